package serde

import (
	"encoding/binary"
	"strings"

	"millrace/schemaregistry/schema"
)

// codecOf is the codec of a schema's message at an index path; nil is the first.
func codecOf(s schema.Schema, t schema.Type, index []int) (schema.Codec, error) {
	if m, ok := s.(schema.Messages); ok && index != nil {
		return m.Message(index)
	}
	c, err := s.Codec()
	if err == nil && t == schema.Avro && isBytes(s.Text()) {
		c = bareBytes{c}
	}
	return c, err
}

// isBytes says of a canonical Avro schema whether its type is bytes.
func isBytes(text string) bool {
	return text == `"bytes"` || strings.HasPrefix(text, `{"type":"bytes"`)
}

// bareBytes is the codec of an Avro schema of bytes, which a frame holds without their length.
type bareBytes struct{ schema.Codec }

func (b bareBytes) Encode(dst, json []byte) ([]byte, error) {
	at := len(dst)
	dst, err := b.Codec.Encode(dst, json)
	if err != nil {
		return dst, err
	}
	_, n := binary.Varint(dst[at:])
	return append(dst[:at], dst[at+n:]...), nil
}

func (b bareBytes) Decode(dst, value []byte) ([]byte, error) {
	whole := binary.AppendVarint(make([]byte, 0, len(value)+binary.MaxVarintLen64), int64(len(value)))
	return b.Codec.Decode(dst, append(whole, value...))
}

func (bareBytes) Check([]byte) error { return nil }
