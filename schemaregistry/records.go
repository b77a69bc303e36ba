package schemaregistry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"

	"millrace/api/rawjson"
	"millrace/schemaregistry/schema"
)

// The records of the log. Keys are written in exactly this form, because compaction goes by their bytes:
//
//	{"keytype":"SCHEMA","subject":S,"version":V,"magic":1}      a version; null: it is gone
//	{"keytype":"CONFIG","subject":S,"magic":0}                  a config; null: there is none; no subject: the global one
//	{"keytype":"MODE","subject":S,"magic":0}                    a mode, likewise
//	{"keytype":"DELETE_SUBJECT","subject":S,"magic":0}          all versions up to one are softly deleted
//	{"keytype":"CLEAR_SUBJECT","subject":S,"magic":0}           what is softly deleted in the scope is gone
//	{"keytype":"CONTEXT","tenant":"default","context":C,"magic":0}   a context; null: it is deleted
//	{"keytype":"MILLRACE_IDS","context":C,"magic":0}            the greatest id that the context ever gave out
//
// Readers take members in any order, members that they do not know, and other kinds of keys, which mean nothing to
// them.
type kind int8

const (
	kindOther kind = iota // not for us
	kindSchema
	kindConfig
	kindMode
	kindDeleteSubject
	kindClearSubject
	kindContext
	kindIDs
)

// name is how keys spell a kind.
func (k kind) name() string {
	return [...]string{
		"NOOP", "SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT", "MILLRACE_IDS",
	}[k]
}

// key is what a record is about. Two keys in different bytes may be equal.
type key struct {
	kind    kind
	subject Subject // of CONTEXT and MILLRACE_IDS the context alone
	version int     // of SCHEMA
}

// append writes the key in the bytes that this registry gives it.
func (k key) append(dst []byte) []byte {
	dst = append(append(append(dst, `{"keytype":"`...), k.kind.name()...), '"')
	magic := byte('0')
	switch {
	case k.kind == kindContext:
		dst = rawjson.AppendString(append(dst, `,"tenant":"default","context":`...), k.subject.Context)
	case k.kind == kindIDs:
		dst = rawjson.AppendString(append(dst, `,"context":`...), k.subject.Context)
	case k.kind == kindSchema:
		dst = rawjson.AppendString(append(dst, `,"subject":`...), k.subject.String())
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(k.version), 10)
		magic = '1'
	case k.subject != (Subject{Context: DefaultContext}): // which is the global one
		dst = rawjson.AppendString(append(dst, `,"subject":`...), k.subject.String())
	}
	return append(append(dst, `,"magic":`...), magic, '}')
}

// readOwnKey reads the key of a version in the bytes that append gives it; ok is false for any other bytes.
func readOwnKey(data []byte) (k key, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"keytype":"SCHEMA","subject":"`))
	if !ok {
		return key{}, false
	}
	rest, ok = bytes.CutSuffix(rest, []byte(`,"magic":1}`))
	if !ok {
		return key{}, false
	}
	name, number, ok := bytes.Cut(rest, []byte(`","version":`))
	if !ok || !utf8.Valid(name) || bytes.ContainsAny(name, "\\\"") || bytes.ContainsFunc(name, unicode.IsControl) {
		return key{}, false
	}
	n, ok := rawjson.Int64(number)
	if !ok || n < 1 || n > math.MaxInt32 || number[0] == '0' {
		return key{}, false
	}
	k = key{kind: kindSchema, subject: ParseSubject(string(name)), version: int(n)}
	return k, len(k.subject.String()) == len(name) // else the default context is spelt out
}

// readKey reads a key in any bytes.
func readKey(data []byte) (key, error) {
	var in struct {
		KeyType string  `json:"keytype"`
		Subject *string `json:"subject"`
		Version int     `json:"version"`
		Context string  `json:"context"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return key{}, fmt.Errorf("key: %w", err)
	}
	k := key{subject: Subject{Context: DefaultContext}}
	for kind := kindSchema; kind <= kindIDs; kind++ {
		if kind.name() == in.KeyType {
			k.kind = kind
		}
	}
	if in.Subject != nil {
		k.subject = ParseSubject(*in.Subject)
	}
	switch k.kind {
	case kindOther:
		return key{}, nil
	case kindSchema:
		if k.version = in.Version; k.version < 1 || k.version > math.MaxInt32 {
			return key{}, fmt.Errorf("key: version %d is out of range", in.Version)
		}
	case kindContext, kindIDs:
		if in.Context == "" {
			return key{}, fmt.Errorf("key: a %s names no context", in.KeyType)
		}
		k.subject = Subject{Context: in.Context}
	}
	return k, nil
}

// schemaValue is the value of a SCHEMA, as it is written.
type schemaValue struct {
	Subject    string             `json:"subject"`
	Version    int                `json:"version"`
	ID         int                `json:"id"`
	MD5        []byte             `json:"md5,omitempty"`
	SchemaType schema.Type        `json:"schemaType,omitempty"` // not that of Avro
	References []schema.Reference `json:"references,omitempty"`
	Metadata   *schema.Metadata   `json:"metadata,omitempty"`
	RuleSet    *schema.RuleSet    `json:"ruleSet,omitempty"`
	Schema     string             `json:"schema"`
	Deleted    bool               `json:"deleted"`
}

// readSchemaValue is what is read of one: the hash is computed anew.
type readSchemaValue struct {
	ID         int                `json:"id"`
	SchemaType schema.Type        `json:"schemaType"`
	References []schema.Reference `json:"references"`
	Metadata   *schema.Metadata   `json:"metadata"`
	RuleSet    *schema.RuleSet    `json:"ruleSet"`
	Schema     string             `json:"schema"`
	Deleted    bool               `json:"deleted"`
}

// read reads the value as it is written mostly, at a third of the cost; ok is false for one that needs more care.
func (v *readSchemaValue) read(data []byte) (ok bool) {
	c := rawjson.Cursor{Data: data}
	if c.Begin('{') != nil {
		return false
	}
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil {
			return false
		}
		if !more {
			return c.End() == nil
		}
		value, _, err := c.Value(rawjson.MaxDepth)
		if err != nil || !v.take(string(name), value) {
			return false
		}
	}
}

// take reads a member.
func (v *readSchemaValue) take(name string, value []byte) (ok bool) {
	var text []byte
	switch name {
	case "subject", "version", "md5":
		return true
	case "id":
		n, ok := rawjson.Int64(value)
		v.ID = int(n)
		return ok
	case "schema":
		text, ok = rawjson.Text(value)
		v.Schema = string(text)
		return ok && utf8.Valid(text)
	case "schemaType":
		text, ok = rawjson.Text(value)
		v.SchemaType = schema.Type(text)
		return ok && utf8.Valid(text)
	case "deleted":
		v.Deleted = string(value) == "true"
		return v.Deleted || string(value) == "false"
	}
	return false
}

func (v *readSchemaValue) check() error {
	switch {
	case v.ID < 0 || v.ID > math.MaxInt32:
		return fmt.Errorf("value: id %d is out of range", v.ID)
	case v.SchemaType == "":
		v.SchemaType = schema.Avro
	}
	return nil
}

// configValue is the value of a CONFIG.
type configValue struct {
	Subject string `json:"subject,omitempty"`
	SubjectConfig
}

// modeValue is the value of a MODE.
type modeValue struct {
	Subject string `json:"subject,omitempty"`
	Mode    string `json:"mode"`
}

// subjectValue is the value of a DELETE_SUBJECT, and without a version of a CLEAR_SUBJECT.
type subjectValue struct {
	Subject string `json:"subject,omitempty"`
	Version int    `json:"version,omitempty"`
}

// contextValue is the value of a CONTEXT.
type contextValue struct {
	Tenant  string `json:"tenant"`
	Context string `json:"context"`
}

// idsValue is the value of a MILLRACE_IDS.
type idsValue struct {
	Context string `json:"context"`
	MaxID   int    `json:"maxId"`
}

// encode writes a value as compact JSON.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // the values above are all JSON
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// entry is a record of the log, understood.
type entry struct {
	key       key
	spelling  string // the key's bytes, where they are not ours
	gone      bool   // the value is null
	own       bool   // a Registry wrote it, so its text is canonical
	timestamp int64

	schema  readSchemaValue // of SCHEMA
	config  *SubjectConfig  // of CONFIG
	mode    string          // of MODE
	version int             // of DELETE_SUBJECT
	maxID   int             // of MILLRACE_IDS
}

// readEntry reads a record. One that means nothing to us has the key kindOther.
func readEntry(rawKey, value []byte) (entry, error) {
	if rawKey == nil {
		return entry{}, fmt.Errorf("it has no key")
	}
	k, own := readOwnKey(rawKey)
	if !own {
		var err error
		if k, err = readKey(rawKey); err != nil || k.kind == kindOther {
			return entry{}, err
		}
	}
	e := entry{key: k, gone: value == nil}
	if !own && !bytes.Equal(rawKey, k.append(make([]byte, 0, len(rawKey)))) {
		e.spelling = string(rawKey)
	}
	if e.gone {
		return e, nil
	}
	return e, e.readValue(value)
}

func (e *entry) readValue(value []byte) error {
	if e.key.kind == kindSchema {
		if e.schema.read(value) {
			return e.schema.check()
		}
		e.schema = readSchemaValue{}
	}
	var into any
	var config configValue
	var mode modeValue
	var subject subjectValue
	var ids idsValue
	switch e.key.kind {
	case kindSchema:
		into = &e.schema
	case kindConfig:
		into = &config
	case kindMode:
		into = &mode
	case kindDeleteSubject:
		into = &subject
	case kindIDs:
		into = &ids
	default:
		return nil // that they are there says all
	}
	if bytes.Equal(bytes.TrimSpace(value), []byte("null")) {
		e.gone = true
		return nil
	}
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	e.config, e.mode, e.version, e.maxID = &config.SubjectConfig, mode.Mode, subject.Version, ids.MaxID
	switch {
	case e.key.kind == kindSchema:
		return e.schema.check()
	case e.key.kind == kindIDs && (e.maxID < 0 || e.maxID > math.MaxInt32):
		return fmt.Errorf("value: id %d is out of range", e.maxID)
	}
	return nil
}
