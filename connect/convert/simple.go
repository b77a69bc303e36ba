package convert

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/record"
)

// simple is a converter of one type, whose bytes say nothing of a schema.
type simple struct {
	schema *data.Schema // of what is read
	encode func(dst []byte, v any) ([]byte, bool)
	decode func(b []byte) (any, error)
}

// Encode implements plugin.Converter.
func (c *simple) Encode(_ context.Context, dst []byte, _ string, s *data.Schema, v any) ([]byte, bool, error) {
	if s != nil && s.Type != c.schema.Type {
		return dst, false, fmt.Errorf("this converter writes values of type %s only, not %s", c.schema.Type, describe(s))
	}
	if v == nil {
		return dst, false, nil
	}
	out, ok := c.encode(dst, v)
	if !ok {
		return dst, false, mismatch(c.schema, v).asError()
	}
	return out, true, nil
}

// Decode implements plugin.Converter.
func (c *simple) Decode(_ context.Context, _ string, b []byte, _ []record.Header) (*data.Schema, any, error) {
	if b == nil {
		return c.schema, nil, nil
	}
	v, err := c.decode(b)
	if err != nil {
		return nil, nil, err
	}
	return c.schema, v, nil
}

// sized refuses bytes of another length than a type's.
func sized(size int, f func(b []byte) any) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		if len(b) != size {
			return nil, fmt.Errorf("a value of %d bytes is wanted, not of %d", size, len(b))
		}
		return f(b), nil
	}
}

func newBytes(bool, map[string]string, Deps) (plugin.Converter, error) {
	return &simple{
		&data.Schema{Type: data.Bytes, Optional: true},
		func(dst []byte, v any) ([]byte, bool) {
			b, ok := v.([]byte)
			return append(dst, b...), ok
		},
		func(b []byte) (any, error) { return b, nil },
	}, nil
}

func newBoolean(bool, map[string]string, Deps) (plugin.Converter, error) {
	return &simple{
		&data.Schema{Type: data.Boolean, Optional: true},
		func(dst []byte, v any) ([]byte, bool) {
			x, ok := v.(bool)
			if x {
				return append(dst, 1), ok
			}
			return append(dst, 0), ok
		},
		func(b []byte) (any, error) {
			if len(b) != 1 || b[0] > 1 {
				return nil, fmt.Errorf("a boolean is one byte, 0 or 1")
			}
			return b[0] == 1, nil
		},
	}, nil
}

func newShort(bool, map[string]string, Deps) (plugin.Converter, error) {
	return &simple{
		&data.Schema{Type: data.Int16, Optional: true},
		func(dst []byte, v any) ([]byte, bool) {
			x, ok := v.(int16)
			return binary.BigEndian.AppendUint16(dst, uint16(x)), ok
		},
		sized(2, func(b []byte) any { return int16(binary.BigEndian.Uint16(b)) }),
	}, nil
}

func newInteger(bool, map[string]string, Deps) (plugin.Converter, error) {
	return &simple{
		&data.Schema{Type: data.Int32, Optional: true},
		func(dst []byte, v any) ([]byte, bool) {
			x, ok := v.(int32)
			return binary.BigEndian.AppendUint32(dst, uint32(x)), ok
		},
		sized(4, func(b []byte) any { return int32(binary.BigEndian.Uint32(b)) }),
	}, nil
}

func newLong(bool, map[string]string, Deps) (plugin.Converter, error) {
	return &simple{
		&data.Schema{Type: data.Int64, Optional: true},
		func(dst []byte, v any) ([]byte, bool) {
			x, ok := v.(int64)
			return binary.BigEndian.AppendUint64(dst, uint64(x)), ok
		},
		sized(8, func(b []byte) any { return int64(binary.BigEndian.Uint64(b)) }),
	}, nil
}

func newFloat(bool, map[string]string, Deps) (plugin.Converter, error) {
	return &simple{
		&data.Schema{Type: data.Float32, Optional: true},
		func(dst []byte, v any) ([]byte, bool) {
			x, ok := v.(float32)
			return binary.BigEndian.AppendUint32(dst, math.Float32bits(x)), ok
		},
		sized(4, func(b []byte) any { return math.Float32frombits(binary.BigEndian.Uint32(b)) }),
	}, nil
}

func newDouble(bool, map[string]string, Deps) (plugin.Converter, error) {
	return &simple{
		&data.Schema{Type: data.Float64, Optional: true},
		func(dst []byte, v any) ([]byte, bool) {
			x, ok := v.(float64)
			return binary.BigEndian.AppendUint64(dst, math.Float64bits(x)), ok
		},
		sized(8, func(b []byte) any { return math.Float64frombits(binary.BigEndian.Uint64(b)) }),
	}, nil
}

const encodingSetting = "converter.encoding"

func stringDefs() plugin.Defs {
	return plugin.Defs{{Name: encodingSetting, Type: plugin.String, Default: "UTF-8", Importance: plugin.High,
		Values: []string{"UTF-8", "UTF8", "US-ASCII", "ASCII", "ISO-8859-1", "LATIN1"},
		Doc:    "The encoding of text in topics."}}
}

// stringConverter is StringConverter: text, and of anything else what Java's toString makes of it.
type stringConverter struct {
	schema *data.Schema
	most   rune // the largest character of the encoding; 0: UTF-8
}

func newString(_ bool, props map[string]string, _ Deps) (plugin.Converter, error) {
	c := &stringConverter{schema: &data.Schema{Type: data.String, Optional: true}}
	switch stringDefs().Settings(props).Lower(encodingSetting) {
	case "us-ascii", "ascii":
		c.most = 0x7f
	case "iso-8859-1", "latin1":
		c.most = 0xff
	}
	return c, nil
}

// Encode implements plugin.Converter.
func (c *stringConverter) Encode(_ context.Context, dst []byte, _ string, s *data.Schema, v any) ([]byte, bool, error) {
	if v == nil {
		return dst, false, nil
	}
	if text, ok := v.(string); ok && c.most == 0 {
		return append(dst, text...), true, nil
	}
	at := len(dst)
	out, f := (&textForm{java: true}).append(dst, s, v, 0)
	if f != nil {
		return dst, false, f.asError()
	}
	if c.most == 0 {
		return out, true, nil
	}
	text := string(out[at:])
	out = out[:at]
	for _, r := range text {
		if r > c.most {
			return dst, false, fmt.Errorf("the text has a character that the encoding lacks: %q", r)
		}
		out = append(out, byte(r))
	}
	return out, true, nil
}

// Decode implements plugin.Converter.
func (c *stringConverter) Decode(_ context.Context, _ string, b []byte, _ []record.Header) (*data.Schema, any, error) {
	if b == nil {
		return c.schema, nil, nil
	}
	if c.most == 0 {
		if !utf8.Valid(b) {
			return nil, nil, fmt.Errorf("the text is not valid UTF-8")
		}
		return c.schema, string(b), nil
	}
	text := make([]rune, len(b))
	for i, x := range b {
		if rune(x) > c.most {
			return nil, nil, fmt.Errorf("the byte 0x%02x is not ASCII", x)
		}
		text[i] = rune(x)
	}
	return c.schema, string(text), nil
}
