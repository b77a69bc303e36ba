package native

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"millrace/api/rawjson"
	"millrace/record"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
)

// decodedBytes bounds what one answer decodes by schemas, since the JSON of a value may be much longer than the value.
// A page ends there; where all records have to be shown, the rest comes as it is.
const decodedBytes = 16 << 20

// keptReaders is of how many topics a decoder remembers the schemas.
const keptReaders = 64

// decoder decodes keys and values that name their schemas. It keeps what it has met of the registry, and is not safe
// for concurrent use.
type decoder struct {
	serde   *serde.Serde    // nil: there is no registry
	ctx     context.Context // of the read under way
	topics  map[string]*topicReaders
	topic   string
	readers *topicReaders // of topic

	made int // bytes of JSON in the answer under way
	// unsure is how many keys and values of the answer may be shown otherwise later: their schemas are not there now.
	unsure int
}

// topicReaders are what reads a topic's values and keys.
type topicReaders [2]*serde.Reader

// begin starts another answer, about records that were fetched since the last one. Without a registry it is nil.
func (d *decoder) begin(ctx context.Context, topic string) *decoder {
	if d.serde == nil {
		return nil
	}
	if len(d.topics) > keptReaders {
		clear(d.topics)
		d.topic, d.readers = "", nil
	}
	for _, t := range d.topics {
		for _, r := range t {
			r.Begin()
		}
	}
	d.ctx, d.made, d.unsure = ctx, 0, 0
	d.of(topic)
	return d
}

// of makes the records that follow those of a topic.
func (d *decoder) of(topic string) {
	if d.topic != topic {
		d.topic, d.readers = topic, d.topics[topic]
	}
}

func (d *decoder) reader(part serde.Part) *serde.Reader {
	if d.readers == nil {
		d.readers = &topicReaders{}
		for _, p := range []serde.Part{serde.Value, serde.Key} {
			d.readers[p] = d.serde.NewReader(d.topic, p)
		}
		if d.topics == nil {
			d.topics = make(map[string]*topicReaders)
		}
		d.topics[d.topic] = d.readers
	}
	return d.readers[part]
}

// isFull says that the answer has decoded as much as it may.
func (d *decoder) isFull() bool { return d != nil && d.made >= decodedBytes }

// schemaType is the type of schemas that a form asks for, "" if it asks for none in particular.
func (f form) schemaType() schema.Type {
	switch f {
	case formAvro:
		return schema.Avro
	case formJSONSchema:
		return schema.JSON
	case formProtobuf:
		return schema.Protobuf
	default:
		return ""
	}
}

// What decode_error says beside what the bytes are.
const (
	undecodable = "cannot be decoded: "
	noRegistry  = undecodable + "there is no schema registry here"
	tooMuch     = "is not decoded: the answer holds much already that was; ask for less at a time, with max_bytes"
)

// decodes says whether a key or value is to be read by a schema.
func (e *jsonEncoder) decodes(asked form, part serde.Part, b []byte, headers []record.Header) bool {
	return asked == formAuto && e.decoder != nil && part.MayFrame(b, headers) || asked > formBase64
}

// appendDecoded writes the rest of a member whose name is begun as its schema reads it, and which one that is. What
// cannot be read so is shown in the first other form that fits if no schema was asked for, else as base64 with a fault.
func (e *jsonEncoder) appendDecoded(dst []byte, asked form, part serde.Part, b []byte, headers []record.Header) (
	out []byte, fault string,
) {
	d := e.decoder
	switch {
	case d == nil:
		return appendBase64(append(dst, `_base64":`...), b), noRegistry
	case d.isFull():
		return appendBase64(append(dst, `_base64":`...), b), tooMuch
	}
	at := len(dst)
	dst = append(dst, '"', ':')
	out, read, err := d.reader(part).Append(d.ctx, dst, b, headers)
	if want := asked.schemaType(); err == nil && want != "" && read.Content.Type != want {
		err = schema.Mismatch("schema id %d is of type %s, not %s", read.ID, read.Content.Type, want)
	}
	switch {
	case err == nil:
		d.made += len(out) - at
		return e.appendSchema(onOneLine(out, len(dst), e.lines), part, read), ""
	case !errors.Is(err, serde.ErrUnframed) && !errors.Is(err, schema.ErrMismatch):
		d.unsure++
	}
	if asked == formAuto {
		out, _, fault = e.appendField(out[:at], formAuto, b)
		return out, fault
	}
	return appendBase64(append(out[:at], `_base64":`...), b), undecodable + err.Error()
}

// onOneLine makes spaces of the line ends from a place on, where that is asked for: in JSON they stand between tokens.
func onOneLine(b []byte, from int, asked bool) []byte {
	if !asked || bytes.IndexByte(b[from:], '\n') < 0 && bytes.IndexByte(b[from:], '\r') < 0 {
		return b
	}
	for i, c := range b[from:] {
		if c == '\n' || c == '\r' {
			b[from+i] = ' '
		}
	}
	return b
}

// appendSchema writes the members that say by which schema a key or value was read, so that it can be written again.
func (e *jsonEncoder) appendSchema(dst []byte, part serde.Part, read *serde.Read) []byte {
	name := `,"value_schema_`
	if part == serde.Key {
		name = `,"key_schema_`
	}
	dst = append(append(dst, name...), `id":`...)
	dst = strconv.AppendInt(dst, int64(read.ID), 10)
	if read.Message != "" {
		dst = append(append(dst, name...), `message":`...)
		dst = rawjson.AppendString(dst, read.Message)
	}
	return dst
}
