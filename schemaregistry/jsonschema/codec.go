package jsonschema

import "millrace/schemaregistry/schema"

// Codec implements schema.Schema.
func (s *Schema) Codec() (schema.Codec, error) { return &codec{s.root, s.limits}, nil }

// codec checks values. They are JSON text already, and stay as they are.
type codec struct {
	root   *node
	limits Limits
}

func (c *codec) Encode(dst, json []byte) ([]byte, error) {
	if err := c.Check(json); err != nil {
		return dst, err
	}
	return append(dst, json...), nil
}

func (c *codec) Decode(dst, value []byte) ([]byte, error) { return c.Encode(dst, value) }

func (c *codec) Check(data []byte) error {
	v, err := readValue(data, c.limits.ValueDepth)
	if err != nil {
		return schema.Mismatch("%w", err)
	}
	return checkValue(c.root, v, c.limits.CheckSteps+16*len(data))
}
