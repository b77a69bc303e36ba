package avro

import (
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	hamba "github.com/hamba/avro/v2"

	"millrace/api/rawjson"
	"millrace/schemaregistry/schema"
)

// codec implements schema.Codec: between the binary encoding and Avro's JSON encoding, in which a value of a union
// other than null is an object that names its type, bytes are text of U+0000 to U+00FF, and a logical type is the
// value that underlies it.
type codec struct {
	root     *node
	limits   Limits
	decoders sync.Pool // of *decoder
	encoders sync.Pool // of *encoder
}

// Codec implements schema.Schema.
func (s *Schema) Codec() (schema.Codec, error) {
	c := &codec{root: s.root, limits: s.format.limits}
	wire := s.format.wire
	c.decoders.New = func() any { return &decoder{wire: hamba.NewReader(nil, 0, hamba.WithReaderConfig(wire))} }
	c.encoders.New = func() any { return &encoder{wire: hamba.NewWriter(io.Discard, 512, hamba.WithWriterConfig(wire))} }
	return c, nil
}

// Payload is the codec of a record's payload as the registry's clients write it: that of Codec, but under a schema
// that is of type bytes the payload is the bytes alone, without their length.
func (s *Schema) Payload() (schema.Codec, error) {
	if s.root.kind == kindBytes {
		return bareCodec{}, nil
	}
	return s.Codec()
}

// fault is why a value does not fit, and where: its steps from the inside out.
type fault struct {
	steps  []string
	reason string
}

func (f *fault) in(step string) *fault {
	if f != nil {
		f.steps = append(f.steps, step)
	}
	return f
}

func (f *fault) err() error {
	if f == nil {
		return nil
	}
	if len(f.steps) == 0 {
		return schema.Mismatch("%s", f.reason)
	}
	slices.Reverse(f.steps)
	return schema.Mismatch("at /%s: %s", clip(strings.Join(f.steps, "/")), f.reason)
}

// outputLimit bounds the JSON of a value by its own size.
func (c *codec) outputLimit(bytes int) int {
	const base, factor = 1 << 20, 64 // names of fields are longer than most values
	return min(c.limits.OutputBytes, base+factor*bytes)
}

// Check implements schema.Codec.
func (c *codec) Check(value []byte) error {
	w := &walker{data: value, maxDepth: c.limits.ValueDepth, visits: visitBase + visitFactor*len(value)}
	f := w.node(c.root, 0)
	if f == nil && w.pos < len(value) {
		f = w.fail("%d bytes follow the value", len(value)-w.pos)
	}
	return f.err()
}

// Decode implements schema.Codec.
func (c *codec) Decode(dst, value []byte) ([]byte, error) {
	if err := c.Check(value); err != nil {
		return dst, err
	}
	d := c.decoders.Get().(*decoder)
	defer c.decoders.Put(d)
	d.wire.Reset(value)
	d.wire.Error = nil
	d.dst, d.most = dst, len(dst)+c.outputLimit(len(value))
	f := d.node(c.root)
	out := d.dst
	d.dst = nil
	if f == nil && d.wire.Error != nil {
		f = &fault{reason: d.wire.Error.Error()}
	}
	if f != nil {
		return dst, f.err()
	}
	return out, nil
}

// Encode implements schema.Codec.
func (c *codec) Encode(dst, json []byte) ([]byte, error) {
	e := c.encoders.Get().(*encoder)
	defer func() {
		e.forget()
		c.encoders.Put(e)
	}()
	e.maxDepth = c.limits.ValueDepth
	e.wire.Reset(io.Discard)
	cursor := rawjson.Cursor{Data: json}
	err := e.scan(&cursor, 0)
	if err == nil {
		err = cursor.End()
	}
	if err != nil {
		return dst, schema.Mismatch("%w", err)
	}
	if f := e.node(c.root, 0, 0); f != nil {
		return dst, f.err()
	}
	return append(dst, e.wire.Buffer()...), nil
}

// bareCodec is that of payloads that are bytes and nothing else.
type bareCodec struct{}

func (bareCodec) Encode(dst, json []byte) ([]byte, error) {
	value, _, err := rawjson.Document(json, 1)
	if err != nil {
		return dst, schema.Mismatch("%w", err)
	}
	text, ok := rawjson.Text(value)
	if !ok {
		return dst, schema.Mismatch("bytes are written as a string, one character from U+0000 to U+00FF for each byte")
	}
	out, ok := appendLatin(dst, text)
	if !ok {
		return dst, schema.Mismatch("%s", notLatin)
	}
	return out, nil
}

func (bareCodec) Decode(dst, value []byte) ([]byte, error) { return appendBytes(dst, value), nil }

func (bareCodec) Check([]byte) error { return nil }

const notLatin = "bytes are written as text in which each character stands for one byte; " +
	"characters beyond U+00FF stand for none"

// appendLatin appends the bytes that the characters of a text stand for.
func appendLatin(dst, text []byte) ([]byte, bool) {
	for len(text) > 0 {
		if text[0] < utf8.RuneSelf {
			dst, text = append(dst, text[0]), text[1:]
			continue
		}
		r, n := utf8.DecodeRune(text)
		if r > 0xff {
			return dst, false
		}
		dst, text = append(dst, byte(r)), text[n:]
	}
	return dst, true
}

// appendBytes appends bytes as a JSON string of one character each.
func appendBytes(dst, b []byte) []byte {
	dst = append(dst, '"')
	for _, c := range b {
		switch {
		case c >= utf8.RuneSelf:
			dst = append(dst, 0xc0|c>>6, 0x80|c&0x3f)
		case c >= 0x20 && c != '"' && c != '\\':
			dst = append(dst, c)
		default:
			dst = appendEscape(dst, c)
		}
	}
	return append(dst, '"')
}
