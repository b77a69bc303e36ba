package convert

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"millrace/api/rawjson"
	"millrace/connect/data"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
)

// maxScanned bounds the text that is gone through to read a schema, where each part that is reached twice counts twice.
const maxScanned = 64 << 20

// references finds the schemas that a schema refers to.
type references struct{ registry *schemaregistry.Registry }

// text is the schema that a reference of a schema of a subject means.
func (r references) text(ctx context.Context, subject string, ref schema.Reference) ([]byte, error) {
	name := ref.Subject
	if strings.HasPrefix(subject, ":.") && !strings.HasPrefix(name, ":") { // the subject's context
		if end := strings.IndexByte(subject[1:], ':'); end >= 0 {
			name = subject[:end+2] + name
		}
	}
	v, err := r.registry.Version(ctx, name, strconv.Itoa(ref.Version), true)
	return []byte(v.Content.Text), err
}

// jsonDocs reads a JSON Schema, and those that it refers to, as a schema of Connect.
type jsonDocs struct {
	*jsonLanguage
	subject string
	root    []byte
	refs    []schema.Reference
	others  map[string][]byte // the texts of refs, and of parts, by the names that were asked for
	texts   map[*data.Schema]bool
	parts   int
	scanned int // bytes of texts
	unions  int
	open    []*byte // where the schemas that are being read begin
	docs    [][]byte
}

func newJSONDocs(l *jsonLanguage, o *serde.Opened) *jsonDocs {
	return &jsonDocs{
		jsonLanguage: l, subject: o.Subject, root: []byte(o.Content.Text), refs: o.Content.References,
		others: map[string][]byte{}, texts: map[*data.Schema]bool{},
	}
}

func (d *jsonDocs) read(ctx context.Context) (*data.Schema, *fault) {
	value, _, err := rawjson.Document(d.root, 2*maxDepth)
	if err != nil {
		return nil, fail("%w", err)
	}
	d.docs = [][]byte{value}
	return d.schema(ctx, value, false)
}

// orderedMember is a member of an object, at its place.
type orderedMember struct {
	name  string
	value []byte
}

func orderedMembers(text []byte) (out []orderedMember, f *fault) {
	c := rawjson.Cursor{Data: text}
	f = elements(&c, '{', func(name string) *fault {
		v, _, err := c.Value(2 * maxDepth)
		if err != nil {
			return fail("%w", err)
		}
		out = append(out, orderedMember{name, v})
		return nil
	})
	return out, f
}

func arrayOf(text []byte) (out [][]byte, f *fault) {
	c := rawjson.Cursor{Data: text}
	f = elements(&c, '[', func(string) *fault {
		v, _, err := c.Value(2 * maxDepth)
		if err != nil {
			return fail("%w", err)
		}
		out = append(out, v)
		return nil
	})
	return out, f
}

// schema reads a schema.
func (d *jsonDocs) schema(ctx context.Context, text []byte, optional bool) (*data.Schema, *fault) {
	if d.parts++; d.parts > maxSchemaParts {
		return nil, fail("the schema has more than %d parts", maxSchemaParts)
	}
	if d.scanned += len(text); d.scanned > maxScanned {
		return nil, fail("the schema refers to its parts too often for its size")
	}
	if text[0] != '{' {
		if string(text) == "true" {
			return d.anyText(optional), nil
		}
		return nil, fail("a schema that allows nothing has no type in Connect")
	}
	if slices.Contains(d.open, &text[0]) {
		return nil, fail("the schema holds itself, which no schema of Connect can say here")
	}
	if len(d.open) > maxDepth {
		return nil, tooDeep()
	}
	d.open = append(d.open, &text[0])
	defer func() { d.open = d.open[:len(d.open)-1] }()
	m, f := membersOf(text)
	if f != nil {
		return nil, f
	}
	s, f := d.kind(ctx, m, optional)
	if f != nil {
		return nil, f
	}
	return s, d.annotateSchema(s, m)
}

// anyText is the schema of any JSON, which is read as its text.
func (d *jsonDocs) anyText(optional bool) *data.Schema {
	s := &data.Schema{Type: data.String, Optional: optional}
	d.texts[s] = true
	return s
}

// kind reads what a schema says of the type of its values.
func (d *jsonDocs) kind(ctx context.Context, m schemaText, optional bool) (*data.Schema, *fault) {
	if ref := m.members["$ref"]; ref != nil {
		return d.reference(ctx, ref, optional)
	}
	for _, word := range []string{"oneOf", "anyOf"} {
		if v := m.members[word]; v != nil {
			list, f := arrayOf(v)
			if f != nil {
				return nil, f
			}
			return d.choice(ctx, list, optional)
		}
	}
	if v := m.members["allOf"]; v != nil {
		return d.all(ctx, m, v, optional)
	}
	if s := d.enum(m); s != nil {
		s.Optional = optional
		return s, nil
	}
	kind := m.members["type"]
	if kind == nil {
		if m.members["properties"] == nil {
			return d.anyText(optional), nil
		}
		kind = []byte(`"object"`)
	}
	if kind[0] == '[' {
		return d.types(ctx, m, kind, optional)
	}
	name, _ := rawjson.Text(kind)
	return d.typed(ctx, m, string(name), optional)
}

// types reads a schema of several types, one of which may be null.
func (d *jsonDocs) types(ctx context.Context, m schemaText, list []byte, optional bool) (*data.Schema, *fault) {
	kinds, f := arrayOf(list)
	if f != nil {
		return nil, f
	}
	kinds = slices.DeleteFunc(kinds, func(k []byte) bool {
		null := string(k) == `"null"`
		optional = optional || null
		return null
	})
	if len(kinds) == 1 {
		name, _ := rawjson.Text(kinds[0])
		return d.typed(ctx, m, string(name), optional)
	}
	s := d.union()
	for _, k := range kinds {
		name, _ := rawjson.Text(k)
		of, f := d.typed(ctx, m, string(name), true)
		if f != nil {
			return nil, f
		}
		d.addChoice(s, of)
	}
	s.Optional = optional
	s.Index()
	return s, nil
}

func (d *jsonDocs) typed(ctx context.Context, m schemaText, kind string, optional bool) (*data.Schema, *fault) {
	s := &data.Schema{Optional: optional}
	own := propString(m.members[connectType])
	switch kind {
	case "boolean":
		s.Type = data.Boolean
	case "integer", "number":
		s.Type = map[string]data.Type{
			"int8": data.Int8, "int16": data.Int16, "int32": data.Int32, "int64": data.Int64,
			"float32": data.Float32, "float64": data.Float64, "bytes": data.Bytes,
		}[own]
		if s.Type == 0 && own != "" {
			return nil, fail("the Connect type %q is none of a number", clip(own))
		}
		if s.Type == 0 && kind == "integer" {
			s.Type = data.Int64
		} else if s.Type == 0 {
			s.Type = data.Float64
		}
	case "string":
		s.Type = data.String
		if own == "bytes" {
			s.Type = data.Bytes
		}
	case "array":
		return d.array(ctx, m, own, optional)
	case "object":
		return d.object(ctx, m, own, optional)
	case "null":
		return nil, fail("a value that is always null has no type in Connect")
	default:
		return nil, fail("there is no type %q in JSON Schema", clip(kind))
	}
	return s, nil
}

func (d *jsonDocs) array(ctx context.Context, m schemaText, own string, optional bool) (*data.Schema, *fault) {
	items := m.members["items"]
	s := &data.Schema{Type: data.Array, Optional: optional}
	if items == nil || items[0] == '[' {
		s.Elem = d.anyText(true)
		return s, nil
	}
	var f *fault
	if own != "map" {
		s.Elem, f = d.schema(ctx, items, false)
		return s, f.in("items")
	}
	entry, f := membersOf(items)
	if f != nil || entry.members["properties"] == nil {
		return nil, fail("the items of a map have no key and value")
	}
	parts, f := membersOf(entry.members["properties"])
	if f != nil || parts.members["key"] == nil || parts.members["value"] == nil {
		return nil, fail("the items of a map have no key and value")
	}
	s.Type = data.Map
	if s.Key, f = d.schema(ctx, parts.members["key"], false); f != nil {
		return nil, f.in("key")
	}
	s.Elem, f = d.schema(ctx, parts.members["value"], false)
	return s, f.in("value")
}

func (d *jsonDocs) object(ctx context.Context, m schemaText, own string, optional bool) (*data.Schema, *fault) {
	more := m.members["additionalProperties"]
	isMap := own == "map" || m.members["properties"] == nil && more != nil && more[0] == '{'
	switch {
	case isMap:
		s := &data.Schema{Type: data.Map, Key: &data.Schema{Type: data.String}, Optional: optional}
		if more == nil {
			s.Elem = d.anyText(true)
			return s, nil
		}
		var f *fault
		s.Elem, f = d.schema(ctx, more, false)
		return s, f.in("value")
	case m.members["properties"] == nil:
		return d.anyText(optional), nil
	}
	s := &data.Schema{Type: data.Struct, Optional: optional}
	return s, d.properties(ctx, s, m)
}

// properties adds the fields of an object to a struct, in the order of their connect.index.
func (d *jsonDocs) properties(ctx context.Context, s *data.Schema, m schemaText) *fault {
	props, f := orderedMembers(m.members["properties"])
	if f != nil {
		return f
	}
	var required [][]byte
	if v := m.members["required"]; v != nil && v[0] == '[' {
		if required, f = arrayOf(v); f != nil {
			return f
		}
	}
	needed := map[string]bool{}
	for _, r := range required {
		needed[propString(r)] = true
	}
	slices.SortStableFunc(props, func(a, b orderedMember) int { return indexOf(a.value) - indexOf(b.value) })
	for _, p := range props {
		if s.Field(p.name) >= 0 {
			continue
		}
		of, f := d.schema(ctx, p.value, d.optional && !needed[p.name])
		if f != nil {
			return f.in(p.name)
		}
		s.Fields = append(s.Fields, data.Field{Name: p.name, Schema: of})
	}
	s.Index()
	return nil
}

// indexOf is the place of a field that its schema tells; those that tell none come last.
func indexOf(text []byte) int {
	if text[0] == '{' {
		if m, f := membersOf(text); f == nil {
			if n, ok := rawjson.Int64(m.members[connectIndex]); ok && n >= 0 && n < math.MaxInt32 {
				return int(n)
			}
		}
	}
	return math.MaxInt32
}

func (d *jsonDocs) union() *data.Schema {
	s := &data.Schema{Type: data.Struct, Name: jsonUnion}
	if d.general {
		s.Name = "connect_union_" + strconv.Itoa(d.unions)
		s.Parameters = map[string]string{generalUnion: s.Name}
		d.unions++
	}
	return s
}

func (d *jsonDocs) addChoice(s, of *data.Schema) {
	name := jsonUnion + ".field." + strconv.Itoa(len(s.Fields))
	if d.general {
		name = "connect_union_field_" + strconv.Itoa(len(s.Fields))
	}
	s.Fields = append(s.Fields, data.Field{Name: name, Schema: of})
}

// choice reads a choice of schemas, one of which may be that of null.
func (d *jsonDocs) choice(ctx context.Context, list [][]byte, optional bool) (*data.Schema, *fault) {
	single := len(list) == 1
	list = slices.DeleteFunc(list, func(text []byte) bool {
		m, f := membersOf(text)
		null := text[0] == '{' && f == nil && string(m.members["type"]) == `"null"`
		optional = optional || null
		return null
	})
	if len(list) == 1 && (!single || d.flatten) {
		return d.schema(ctx, list[0], optional)
	}
	if len(list) == 0 {
		return nil, fail("a value that is always null has no type in Connect")
	}
	s := d.union()
	for _, text := range list {
		of, f := d.schema(ctx, text, true)
		if f != nil {
			return nil, f
		}
		d.addChoice(s, of)
	}
	s.Optional = optional
	s.Index()
	return s, nil
}

// all reads schemas that hold together: the fields of all of them, or the first that says a type.
func (d *jsonDocs) all(ctx context.Context, m schemaText, text []byte, optional bool) (*data.Schema, *fault) {
	list, f := arrayOf(text)
	if f != nil {
		return nil, f
	}
	s := &data.Schema{Type: data.Struct, Optional: optional}
	if m.members["properties"] != nil {
		if f := d.properties(ctx, s, m); f != nil {
			return nil, f
		}
	}
	var first *data.Schema
	for _, part := range list {
		of, f := d.schema(ctx, part, optional)
		if f != nil {
			return nil, f
		}
		if of.Type != data.Struct || isUnion(of, jsonUnion) {
			if first == nil && !d.texts[of] {
				first = of
			}
			continue
		}
		for _, field := range of.Fields {
			if s.Field(field.Name) < 0 {
				s.Fields = append(s.Fields, field)
			}
		}
	}
	switch {
	case len(s.Fields) > 0:
		s.Index()
		return s, nil
	case first != nil:
		return first, nil
	default:
		return d.anyText(optional), nil
	}
}

// enum reads a list of texts, or a single one, that a value may be; nil if there is none.
func (d *jsonDocs) enum(m schemaText) *data.Schema {
	var list [][]byte
	if v := m.members["const"]; v != nil {
		list = [][]byte{v}
	} else if v := m.members["enum"]; v != nil {
		list, _ = arrayOf(v)
	}
	if list == nil {
		return nil
	}
	s := &data.Schema{Type: data.String, Parameters: map[string]string{d.enumKey(): ""}}
	for i, v := range list {
		symbol, ok := rawjson.Text(v)
		switch {
		case rawjson.IsNull(v):
			symbol = []byte(jsonNull)
		case !ok:
			return nil // not of texts: the type says what they are
		}
		value := string(symbol)
		if d.general {
			value = strconv.Itoa(i)
		}
		s.Parameters[d.enumKey()+"."+string(symbol)] = value
	}
	return s
}

// annotateSchema adds what a schema says beside its type.
func (d *jsonDocs) annotateSchema(s *data.Schema, m schemaText) *fault {
	if title := propString(m.members["title"]); title != "" && s.Name == "" {
		s.Name = title
	}
	if v, ok := rawjson.Int64(m.members[connectVersion]); ok && v > 0 && v <= math.MaxInt32 {
		s.Version = int(v)
	}
	if doc := propString(m.members["description"]); doc != "" {
		s.Doc = doc
	}
	if params := m.members[connectParameters]; params != nil && params[0] == '{' {
		own, f := stringsOf(params)
		if f != nil {
			return f
		}
		if s.Parameters == nil {
			s.Parameters = map[string]string{}
		}
		for k, v := range own {
			s.Parameters[k] = v
		}
	}
	if def := m.members["default"]; def != nil && !rawjson.IsNull(def) && !d.texts[s] {
		t, f := d.compile(s, 0)
		if f != nil {
			return f
		}
		if v, f := d.dialect.reader(def).read(t, 0); f == nil { // one that does not fit is none
			s.Default = v
		}
	}
	return nil
}

// reference reads the schema that a $ref means.
func (d *jsonDocs) reference(ctx context.Context, ref []byte, optional bool) (*data.Schema, *fault) {
	target, ok := rawjson.Text(ref)
	if !ok {
		return nil, fail("a $ref is no text")
	}
	name, fragment, _ := strings.Cut(string(target), "#")
	doc := d.docs[len(d.docs)-1]
	if name != "" {
		found, f := d.document(ctx, name)
		if f != nil {
			return nil, f
		}
		doc = found
	}
	if d.scanned += 4 * len(doc); d.scanned > maxScanned {
		return nil, fail("the schema refers to its parts too often for its size")
	}
	at, f := pointTo(doc, fragment)
	if f != nil {
		return nil, f
	}
	d.docs = append(d.docs, doc)
	defer func() { d.docs = d.docs[:len(d.docs)-1] }()
	return d.schema(ctx, at, optional)
}

// document is the text of another schema: of a reference, or of a part of this one that has the name as its id.
func (d *jsonDocs) document(ctx context.Context, name string) ([]byte, *fault) {
	if text, ok := d.others[name]; ok {
		return text, nil
	}
	for _, ref := range d.refs {
		if ref.Name != name {
			continue
		}
		text, err := d.registry.text(ctx, d.subject, ref)
		if err != nil {
			return nil, fail("the schema %s that is referred to: %w", clip(name), err)
		}
		value, _, err := rawjson.Document(text, 2*maxDepth)
		if err != nil {
			return nil, fail("the schema %s that is referred to: %w", clip(name), err)
		}
		d.others[name] = value
		return value, nil
	}
	if d.scanned += len(d.docs[0]); d.scanned > maxScanned {
		return nil, fail("the schema refers to its parts too often for its size")
	}
	if found := withID(d.docs[0], name, 0); found != nil {
		d.others[name] = found
		return found, nil
	}
	return nil, fail("the schema refers to %q, which is none of its references", clip(name))
}

// withID finds the part of a schema that has an id.
func withID(text []byte, id string, depth int) []byte {
	if depth > maxDepth || !bytes.Contains(text, []byte(id)) {
		return nil
	}
	switch text[0] {
	case '{':
		members, f := orderedMembers(text)
		if f != nil {
			return nil
		}
		for _, m := range members {
			if (m.name == "$id" || m.name == "id") && propString(m.value) == id {
				return text
			}
		}
		for _, m := range members {
			if found := withID(m.value, id, depth+1); found != nil {
				return found
			}
		}
	case '[':
		list, _ := arrayOf(text)
		for _, v := range list {
			if found := withID(v, id, depth+1); found != nil {
				return found
			}
		}
	}
	return nil
}

// pointTo follows a fragment, which is a JSON pointer or an anchor, in a document.
func pointTo(doc []byte, fragment string) ([]byte, *fault) {
	if fragment == "" {
		return doc, nil
	}
	if fragment[0] != '/' {
		for _, word := range []string{"#" + fragment, fragment} {
			if found := withID(doc, word, 0); found != nil {
				return found, nil
			}
		}
		return nil, fail("the schema refers to #%s, which is not there", clip(fragment))
	}
	at := doc
	for step := range strings.SplitSeq(fragment[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~", "%25", "%", "%20", " ").Replace(step)
		var next []byte
		switch at[0] {
		case '{':
			m, f := membersOf(at)
			if f != nil {
				return nil, f
			}
			next = m.members[step]
		case '[':
			list, f := arrayOf(at)
			if i, err := strconv.Atoi(step); f == nil && err == nil && i >= 0 && i < len(list) {
				next = list[i]
			}
		}
		if next == nil {
			return nil, fail("the schema refers to #%s, which is not there", clip(fragment))
		}
		at = next
	}
	return at, nil
}
