package restv3

import (
	"time"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
	"millrace/record"
	"millrace/schemaregistry/serde"
)

// format is how a key or value is given.
type format uint8

const (
	formatNone format = iota // no type: the schema tells
	formatBinary
	formatJSON
	formatString
	formatAvro
	formatJSONSchema
	formatProtobuf
)

// formatNames are the formats in requests and receipts.
var formatNames = [...]string{"", "BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"}

func parseFormat(name []byte) (format, bool) {
	for f := formatBinary; int(f) < len(formatNames); f++ {
		if string(name) == formatNames[f] {
			return f, true
		}
	}
	return formatNone, false
}

// Which of a part's members that name a schema are given and not null.
const (
	hasSubject = 1 << iota
	hasTopicStrategy
	hasRecordStrategy
	hasSchema
	hasSchemaID
	hasSchemaVersion
)

// part is the key or the value object of a record.
type part struct {
	present bool
	format  format
	schema  uint8      // of the bits above
	spec    serde.Spec // what those members say
	blank   bool       // there is white space between the tokens of data
	data    []byte
	writer  *serde.Writer // that wrote data, where that has a schema
	size    int           // in bytes as stored
}

// entry is one record of a request. Its slices are parts of the request's body.
type entry struct {
	id           []byte // of a batch entry; nil if absent or not a string
	partition    int32
	timestamp    int64 // -1: none was given
	hasPartition bool
	headers      []record.Header
	key, value   part
	misshapen    *api.Error          // the object is not a record
	fault        *api.Error          // the record was not stored
	sent         int                 // its place among the records sent, -1 if it was not
	at           client.RecordResult // where it is stored, if fault is nil
}

// parser reads record objects. It splits and checks in one pass; what is decoded is decoded by record,
// in place, once the object is known to be whole.
type parser struct {
	cursor rawjson.Cursor
	ids    bool // entries have an id
	names  map[string]string
}

// misshape notes what is wrong with the shape of e; the first fault counts.
func (e *entry) misshape(err *api.Error) {
	if e.misshapen == nil {
		e.misshapen = err
	}
}

// next reads the object at the cursor into e. The error is a *rawjson.SyntaxError; all other faults are
// noted in e and the cursor stands behind the object.
func (p *parser) next(e *entry) error {
	*e = entry{partition: -1, timestamp: -1, headers: e.headers[:0], sent: -1}
	c := &p.cursor
	if c.Peek() != '{' {
		e.misshape(badRequest("A record must be a JSON object."))
		_, _, err := c.Value(rawjson.MaxDepth)
		return err
	}
	if err := c.Begin('{'); err != nil {
		return err
	}
	seen := 0
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil || !more {
			return err
		}
		bit, err := p.member(e, name)
		if err != nil {
			return err
		}
		if seen&bit != 0 {
			e.misshape(badRequest("Duplicate field: %s", name))
		}
		seen |= bit
	}
}

// member reads one member of a record and returns a bit that stands for its name.
func (p *parser) member(e *entry, name []byte) (int, error) {
	switch {
	case string(name) == "value":
		return 1 << 0, p.part(e, &e.value, "value")
	case string(name) == "key":
		return 1 << 1, p.part(e, &e.key, "key")
	case string(name) == "headers":
		return 1 << 2, p.headers(e)
	}
	value, _, err := p.cursor.Value(rawjson.MaxDepth)
	if err != nil {
		return 0, err
	}
	switch {
	case string(name) == "partition_id":
		return 1 << 3, e.setPartition(value)
	case string(name) == "timestamp":
		return 1 << 4, e.setTimestamp(value)
	case p.ids && string(name) == "id":
		e.id, _ = rawjson.Text(value)
		return 1 << 5, nil
	}
	e.misshape(unknownField(string(name)))
	return 0, nil
}

func (e *entry) setPartition(value []byte) error {
	if rawjson.IsNull(value) {
		return nil
	}
	n, ok := rawjson.Int64(value)
	if !ok || int64(int32(n)) != n {
		e.misshape(badRequest("partition_id=%s is not a 32-bit integer.", rawjson.Excerpt(value)))
		return nil
	}
	e.partition, e.hasPartition = int32(n), true
	return nil
}

func (e *entry) setTimestamp(value []byte) error {
	if rawjson.IsNull(value) {
		return nil
	}
	var t time.Time
	text, ok := rawjson.Text(value)
	if !ok || t.UnmarshalText(text) != nil {
		e.misshape(badRequest("timestamp=%s is not an ISO-8601 time such as 2026-01-02T03:04:05.678Z.",
			rawjson.Excerpt(value)))
		return nil
	}
	if e.timestamp = t.UnixMilli(); e.timestamp < 0 {
		e.misshape(badRequest("timestamp=%s lies before 1970.", rawjson.Excerpt(value)))
	}
	return nil
}

// part reads a key or value object; null is the same as leaving it out.
func (p *parser) part(e *entry, to *part, what string) error {
	c := &p.cursor
	if c.Peek() != '{' {
		value, _, err := c.Value(rawjson.MaxDepth)
		if err == nil && !rawjson.IsNull(value) {
			e.misshape(badRequest(`%s=%s is not an object such as {"type":"JSON","data":1}.`, what, rawjson.Excerpt(value)))
		}
		return err
	}
	c.Pos++
	*to = part{present: true}
	seen := 0
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil || !more {
			return err
		}
		value, flags, err := c.Value(rawjson.MaxDepth)
		if err != nil {
			return err
		}
		bit := 0
		switch {
		case string(name) == "data":
			bit = 1 << 7
			to.data, to.blank = value, flags&rawjson.Blank != 0
		case string(name) == "type":
			bit = 1 << 8
			to.setFormat(e, value)
		default:
			bit = to.setSchema(e, name, value)
		}
		if seen&bit != 0 {
			e.misshape(badRequest("Duplicate field: %s.%s", what, name))
		}
		seen |= bit
	}
}

func (f *part) setFormat(e *entry, value []byte) {
	if rawjson.IsNull(value) {
		return
	}
	name, _ := rawjson.Text(value)
	var ok bool
	if f.format, ok = parseFormat(name); !ok {
		e.misshape(badRequest("type=%s is none of BINARY, JSON, STRING, AVRO, JSONSCHEMA, PROTOBUF.", rawjson.Excerpt(value)))
	}
}

// setSchema reads a member that names a schema and returns a bit that stands for its name.
func (f *part) setSchema(e *entry, name, value []byte) int {
	text, isText := rawjson.Text(value)
	id, isID := rawjson.Int64(value)
	bit, ok := 0, isText
	switch string(name) {
	case "subject":
		bit, ok, f.spec.Subject = hasSubject, len(text) > 0, string(text)
	case "subject_name_strategy":
		bit = hasTopicStrategy
		if string(text) != "TOPIC_NAME" {
			bit = hasRecordStrategy
			ok = string(text) == "RECORD_NAME" || string(text) == "TOPIC_RECORD_NAME"
		}
		f.spec.Strategy, _ = serde.ParseStrategy(string(text))
	case "schema":
		bit, ok, f.spec.Text = hasSchema, len(text) > 0, string(text)
	case "schema_id":
		bit, ok, f.spec.ID = hasSchemaID, isID && id > 0 && int64(int32(id)) == id, int(id)
	case "schema_version":
		bit, ok, f.spec.Version = hasSchemaVersion, isID && id > 0 && int64(int32(id)) == id, int(id)
	default:
		e.misshape(unknownField(string(name)))
		return 0
	}
	switch {
	case rawjson.IsNull(value):
	case !ok:
		e.misshape(badRequest("%s=%s is not valid.", name, rawjson.Excerpt(value)))
	default:
		f.schema |= uint8(bit)
	}
	return bit
}

// headers reads a record's headers.
func (p *parser) headers(e *entry) error {
	c := &p.cursor
	if c.Peek() != '[' {
		value, _, err := c.Value(rawjson.MaxDepth)
		if err == nil && !rawjson.IsNull(value) {
			e.misshape(badRequest("headers=%s is not an array.", rawjson.Excerpt(value)))
		}
		return err
	}
	c.Pos++
	for first := true; ; first = false {
		more, err := c.More(']', first)
		if err != nil || !more {
			return err
		}
		if err := p.header(e); err != nil {
			return err
		}
	}
}

// header reads one header. Its value stays the JSON text until record decodes it.
func (p *parser) header(e *entry) error {
	c := &p.cursor
	if c.Peek() != '{' {
		value, _, err := c.Value(rawjson.MaxDepth)
		if err == nil {
			e.misshape(badRequest("header=%s is not an object with a name and a value.", rawjson.Excerpt(value)))
		}
		return err
	}
	c.Pos++
	h, named := record.Header{}, false
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		value, _, err := c.Value(rawjson.MaxDepth)
		if err != nil {
			return err
		}
		switch {
		case string(name) == "value":
			h.Value = value
		case string(name) == "name":
			var text []byte
			if text, named = rawjson.Text(value); named {
				h.Key = p.intern(text)
			}
		default:
			e.misshape(unknownField(string(name)))
		}
	}
	if !named {
		e.misshape(badRequest("A header needs a name, which is a string."))
	}
	e.headers = append(e.headers, h)
	return nil
}

// What a parser remembers of header names, from one stream to the next: so many, of so many bytes at most.
const (
	maxNames     = 64
	maxNameBytes = 256
)

// intern is the header name as a string; names of one stream repeat.
func (p *parser) intern(name []byte) string {
	if s, ok := p.names[string(name)]; ok {
		return s
	}
	s := string(name)
	if p.names == nil {
		p.names = make(map[string]string, 8)
	}
	if len(p.names) < maxNames && len(s) <= maxNameBytes {
		p.names[s] = s
	}
	return s
}

// record turns a whole entry into a record. It decodes in place, so it is called once; the record's bytes are parts of
// the request's body, or the encoder's. A fault is noted in e.
func (e *entry) record(now int64, enc *encoder) record.Record {
	r := record.Record{Timestamp: e.timestamp, Headers: e.headers}
	if r.Timestamp < 0 {
		r.Timestamp = now
	}
	if e.hasPartition && e.partition < 0 {
		e.fault = api.RefuseCompat(codePartitionNotFound, "Partition not found.")
		return r
	}
	var err *api.Error
	if r.Key, err = enc.bytes(&e.key, serde.Key); err == nil {
		r.Value, err = enc.bytes(&e.value, serde.Value)
	}
	for i := range e.headers {
		h := &e.headers[i]
		if err == nil && h.Value != nil {
			h.Value, err = decodeBase64(h.Value)
		}
	}
	e.key.size, e.value.size, e.fault = len(r.Key), len(r.Value), err
	return r
}

// plain is what a part without a schema is stored as; nil is null.
func (f *part) plain() ([]byte, *api.Error) {
	if f.data == nil || rawjson.IsNull(f.data) {
		return nil, nil
	}
	switch f.format {
	case formatBinary:
		return decodeBase64(f.data)
	case formatString:
		if f.data[0] != '"' {
			return nil, badRequest("data=%s is not a string.", rawjson.Excerpt(f.data))
		}
		text, ok := rawjson.Unquote(f.data[:0], f.data)
		if !ok {
			return nil, badRequest("data holds half of a surrogate pair, which is no text.")
		}
		return text, nil
	default:
		if f.blank {
			return rawjson.Compact(f.data[:0], f.data), nil
		}
		return f.data, nil
	}
}

// decodeBase64 decodes a base64 string in place; null is nil.
func decodeBase64(value []byte) ([]byte, *api.Error) {
	if rawjson.IsNull(value) {
		return nil, nil
	}
	if value[0] != '"' {
		return nil, badRequest("data=%s is not a base64 string.", rawjson.Excerpt(value))
	}
	b, err := rawjson.Base64(value)
	if err != nil {
		return nil, badRequest("data is not a base64 string: %v.", err)
	}
	return b, nil
}

// check refuses members that name a schema where they contradict each other or the type.
func (f *part) check() *api.Error {
	schemas := f.schema & (hasSchema | hasSchemaID | hasSchemaVersion)
	switch {
	case f.format == formatBinary, f.format == formatJSON, f.format == formatString:
		if f.schema != 0 {
			return badRequest("type=%s takes no subject, subject_name_strategy or schema.", formatNames[f.format])
		}
		return nil
	case f.schema&hasSubject != 0 && f.schema&(hasTopicStrategy|hasRecordStrategy) != 0:
		return badRequest("subject and subject_name_strategy exclude each other.")
	case schemas&(schemas-1) != 0:
		return badRequest("At most one of schema, schema_id and schema_version may be given.")
	case f.format == formatNone && schemas == hasSchema:
		return badRequest("schema needs a type: AVRO, JSONSCHEMA or PROTOBUF.")
	case f.format != formatNone && schemas != hasSchema:
		return badRequest("type=%s needs a schema; schema_id, schema_version and the latest version do without type.",
			formatNames[f.format])
	case f.schema&hasRecordStrategy != 0 && schemas&(hasSchema|hasSchemaID) == 0:
		return badRequest("RECORD_NAME and TOPIC_RECORD_NAME need schema or schema_id.")
	}
	return nil
}
