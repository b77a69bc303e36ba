package native

import (
	"encoding/base64"
	"errors"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
	"millrace/record"
)

// recordFields is what was seen of a record's JSON form.
type recordFields struct {
	rec       record.Record
	partition int32
	topic     string // only where a record names its own
	known     uint16 // bits of the names below

	keySchema, valueSchema namedSchema
}

// The names of a record's members, and the groups of which one member may be there.
const (
	memberTopic uint16 = 1 << iota
	memberPartition
	memberOffset
	memberTimestamp
	memberKey
	memberKeyText
	memberKeyBase64
	memberValue
	memberValueText
	memberValueBase64
	memberHeaders
	memberDecodeError
	memberKeySchema
	memberKeyMessage
	memberValueSchema
	memberValueMessage

	keyMembers   = memberKey | memberKeyText | memberKeyBase64
	valueMembers = memberValue | memberValueText | memberValueBase64

	schemaMembers = memberKeySchema | memberKeyMessage | memberValueSchema | memberValueMessage
)

// memberBit is the bit of a name, 0 if a record has no such member.
func memberBit(name []byte) uint16 {
	switch string(name) {
	case "topic":
		return memberTopic
	case "partition":
		return memberPartition
	case "offset":
		return memberOffset
	case "timestamp":
		return memberTimestamp
	case "key":
		return memberKey
	case "key_text":
		return memberKeyText
	case "key_base64":
		return memberKeyBase64
	case "value":
		return memberValue
	case "value_text":
		return memberValueText
	case "value_base64":
		return memberValueBase64
	case "headers":
		return memberHeaders
	case "decode_error":
		return memberDecodeError
	case "key_schema_id":
		return memberKeySchema
	case "key_schema_message":
		return memberKeyMessage
	case "value_schema_id":
		return memberValueSchema
	case "value_schema_message":
		return memberValueMessage
	default:
		return 0
	}
}

// takeRecord reads a record in its JSON form.
func (in *intake) takeRecord(c *rawjson.Cursor) error {
	f := recordFields{partition: client.AnyPartition}
	f.rec.Timestamp = in.request.timestamp
	if err := c.Begin('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := c.More('}', first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		name, err := c.Name()
		if err != nil {
			return err
		}
		bit := memberBit(name)
		switch {
		case bit == 0:
			return api.Refuse(api.UnprocessableBody, "unrecognized field: %s", shorten(name))
		case f.known&bit != 0:
			return api.Refuse(api.MalformedBody, "field %s is there twice", name)
		}
		f.known |= bit
		if err := in.takeMember(c, bit, name, &f); err != nil {
			return err
		}
	}
	return in.finish(&f)
}

// finish checks what belongs together and takes the record.
func (in *intake) finish(f *recordFields) error {
	if more := f.known & keyMembers; more&(more-1) != 0 {
		return api.Refuse(api.MalformedBody, "at most one of key, key_text and key_base64 may be there")
	}
	if more := f.known & valueMembers; more&(more-1) != 0 {
		return api.Refuse(api.MalformedBody, "at most one of value, value_text and value_base64 may be there")
	}
	if f.known&schemaMembers != 0 {
		if err := in.checkSchemas(f); err != nil {
			return err
		}
	}
	if f.known&keyMembers == 0 && f.keySchema.id == 0 {
		f.rec.Key = in.request.key
	}
	if len(in.request.headers) > 0 {
		start := len(in.headers)
		in.headers = append(append(in.headers, in.request.headers...), f.rec.Headers...)
		f.rec.Headers = in.headers[start:len(in.headers):len(in.headers)]
	}
	if in.request.ownTopics() {
		if f.topic == "" {
			return api.Required("topic")
		}
		in.topics = append(in.topics, f.topic)
	}
	return in.add(f.rec, f.partition)
}

// takeTopic reads the topic of a record that names its own. Neighbours mostly have the same.
func (in *intake) takeTopic(value []byte, f *recordFields) error {
	t, ok := rawjson.Text(value)
	if !ok {
		return api.Refuse(api.MalformedBody, "topic is a string, not %s", shorten(value))
	}
	if n := len(in.topics); n > 0 && in.topics[n-1] == string(t) {
		f.topic = in.topics[n-1]
		return nil
	}
	f.topic = string(t)
	return client.CheckTopicName(f.topic)
}

// takeMember reads the value of one member.
func (in *intake) takeMember(c *rawjson.Cursor, bit uint16, name []byte, f *recordFields) (err error) {
	if bit == memberHeaders {
		f.rec.Headers, err = in.takeHeaders(c)
		return rawjson.InField(err, "headers")
	}
	value, _, err := c.Value(rawjson.MaxDepth)
	if err != nil {
		return err
	}
	if rawjson.IsNull(value) { // for any member as if it were not there, and for key and value a null
		return nil
	}
	switch bit {
	case memberTopic:
		if in.request.ownTopics() {
			return in.takeTopic(value, f)
		}
		if t, ok := rawjson.Text(value); !ok || string(t) != in.request.topic {
			err = api.Refuse(api.MalformedBody, "topic is %s, but the path's is %s", shorten(value), in.request.topic)
		}
	case memberPartition:
		p, ok := rawjson.Int64(value)
		if !ok || p < 0 || p > 1<<31-1 {
			return api.Refuse(api.MalformedBody, "partition is a whole number from 0, not %s", shorten(value))
		}
		f.partition = int32(p)
	case memberOffset, memberDecodeError: // how the record was read; what it gets now is the leader's to say
	case memberTimestamp:
		f.rec.Timestamp, err = timestamp(value)
	case memberKey:
		f.rec.Key = value
	case memberKeyText:
		f.rec.Key, err = text(name, value)
	case memberKeyBase64:
		f.rec.Key, err = in.decodeBase64(name, value)
	case memberValue:
		f.rec.Value = value
	case memberValueText:
		f.rec.Value, err = text(name, value)
	case memberValueBase64:
		f.rec.Value, err = in.decodeBase64(name, value)
	default:
		err = takeSchemaMember(bit, name, value, f)
	}
	return err
}

// shorten shows a piece of the body in a message, cut when it is long.
func shorten(b []byte) string {
	const most = 64
	if len(b) > most {
		return string(b[:most]) + "..."
	}
	return string(b)
}

func timestamp(value []byte) (int64, error) {
	s := value
	if value[0] == '"' {
		s, _ = rawjson.Text(value)
	}
	ms, fault := parseInstant(string(s))
	if fault != "" {
		return 0, api.Refuse(api.MalformedBody, "%s %s", fault, shorten(value))
	}
	return ms, nil
}

func text(name, value []byte) ([]byte, error) {
	t, ok := rawjson.Text(value)
	if !ok && value[0] == '"' {
		return nil, api.Refuse(api.MalformedBody, "%s holds half of a surrogate pair", name)
	}
	if !ok {
		return nil, api.Refuse(api.MalformedBody, "%s is a string, not %s", name, shorten(value))
	}
	return nonNil(t), nil
}

// nonNil keeps an empty value apart from a null.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func (in *intake) decodeBase64(name, value []byte) ([]byte, error) {
	t, ok := rawjson.Text(value)
	if !ok {
		return nil, api.Refuse(api.MalformedBody, "%s is a string of base64, not %s", name, shorten(value))
	}
	out := in.room(base64.StdEncoding.DecodedLen(len(t)))
	n, err := base64.StdEncoding.Strict().Decode(out, t)
	if err != nil {
		return nil, notBase64(string(name), rawjson.ExplainBase64(t, err))
	}
	return nonNil(out[:n:n]), nil
}

func notBase64(name string, err error) error {
	return api.Refuse(api.MalformedBody, "%s is not valid base64: %v", name, err)
}

// validBase64 checks base64 without keeping what it stands for.
func validBase64(t []byte) error {
	var out [768]byte
	for start := 0; start < len(t); start += 1024 {
		part := t[start:min(len(t), start+1024)]
		_, err := base64.StdEncoding.Strict().Decode(out[:], part)
		if end := start + len(part); err == nil && end < len(t) && t[end-1] == '=' {
			err = base64.CorruptInputError(len(part) - 1) // padding before the end
		}
		var at base64.CorruptInputError
		if errors.As(err, &at) {
			return rawjson.ExplainBase64(t, base64.CorruptInputError(start)+at)
		}
	}
	return nil
}

// takeHeaders reads a record's headers.
func (in *intake) takeHeaders(c *rawjson.Cursor) ([]record.Header, error) {
	if c.Peek() == 'n' {
		_, _, err := c.Value(rawjson.BodyDepth)
		return nil, err
	}
	if err := c.Begin('['); err != nil {
		return nil, err
	}
	start := len(in.headers)
	for first := true; ; first = false {
		more, err := c.More(']', first)
		if err != nil {
			return nil, err
		}
		if !more {
			return in.headers[start:len(in.headers):len(in.headers)], nil
		}
		h, err := in.takeHeader(c)
		if err != nil {
			return nil, err
		}
		in.headers = append(in.headers, h)
	}
}

func (in *intake) takeHeader(c *rawjson.Cursor) (record.Header, error) {
	var h record.Header
	var seen [3]bool // name, value, value_base64
	if err := c.Begin('{'); err != nil {
		return h, err
	}
	for first := true; ; first = false {
		more, err := c.More('}', first)
		if err != nil {
			return h, err
		}
		if !more {
			break
		}
		name, err := c.Name()
		if err != nil {
			return h, err
		}
		if err := in.takeHeaderMember(c, string(name), &h, &seen); err != nil {
			return h, err
		}
	}
	switch {
	case !seen[0]:
		return h, api.Refuse(api.MalformedBody, "a header needs a name")
	case seen[1] && seen[2]:
		return h, api.Refuse(api.MalformedBody, "at most one of value and value_base64 of a header may be there")
	}
	return h, nil
}

func (in *intake) takeHeaderMember(c *rawjson.Cursor, name string, h *record.Header, seen *[3]bool) error {
	i := 0
	switch name {
	case "name":
	case "value":
		i = 1
	case "value_base64":
		i = 2
	default:
		return api.Refuse(api.UnprocessableBody, "unrecognized field of a header: %s", shorten([]byte(name)))
	}
	if seen[i] {
		return api.Refuse(api.MalformedBody, "field %s of a header is there twice", name)
	}
	seen[i] = true
	value, _, err := c.Value(rawjson.BodyDepth)
	if err != nil {
		return err
	}
	switch {
	case i == 0:
		t, err := text([]byte("name of a header"), value)
		h.Key = string(t)
		return err
	case rawjson.IsNull(value):
		return nil
	case i == 1:
		h.Value, err = text([]byte("value of a header"), value)
	default:
		h.Value, err = in.decodeBase64([]byte("value_base64 of a header"), value)
	}
	return err
}
