package convert

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"

	"millrace/api/rawjson"
	"millrace/connect/data"
)

// append appends a value as JSON.
func (d *dialect) append(dst []byte, t *jsonType, v any) ([]byte, *fault) {
	if v == nil {
		if t.null == nil {
			if !t.schema.Optional {
				return dst, fail("it is null, and the schema neither allows that nor has a default")
			}
			return append(dst, "null"...), nil
		}
		v = t.null
	}
	switch t.kind {
	case data.Boolean:
		if x, ok := v.(bool); ok {
			return strconv.AppendBool(dst, x), nil
		}
	case data.Int8:
		if x, ok := v.(int8); ok {
			return strconv.AppendInt(dst, int64(x), 10), nil
		}
	case data.Int16:
		if x, ok := v.(int16); ok {
			return strconv.AppendInt(dst, int64(x), 10), nil
		}
	case data.Int32:
		if x, ok := v.(int32); ok {
			return strconv.AppendInt(dst, int64(x), 10), nil
		}
	case data.Int64:
		if x, ok := v.(int64); ok {
			return strconv.AppendInt(dst, x, 10), nil
		}
	case data.Float32:
		if x, ok := v.(float32); ok {
			return d.appendFloat(dst, float64(x), 32)
		}
	case data.Float64:
		if x, ok := v.(float64); ok {
			return d.appendFloat(dst, x, 64)
		}
	case data.String:
		if x, ok := v.(string); ok {
			return appendText(dst, x)
		}
	case data.Bytes:
		if x, ok := v.([]byte); ok {
			if t.decimal && d.numeric {
				return appendDecimal(dst, x, t.scale), nil
			}
			return appendBase64(dst, x), nil
		}
	case data.Array:
		return d.appendArray(dst, t, v)
	case data.Map:
		return d.appendMap(dst, t, v)
	case data.Struct:
		return d.appendStruct(dst, t, v)
	}
	return dst, mismatch(t.schema, v)
}

// appendFloat appends a number. JsonConverter writes what JSON has no number for as a text, as Kafka's does, and reads
// it back; to JSON Schema such a text would be no number.
func (d *dialect) appendFloat(dst []byte, v float64, bits int) ([]byte, *fault) {
	switch {
	case !math.IsNaN(v) && !math.IsInf(v, 0):
		return appendReal(dst, v, bits), nil
	case d.named:
		return dst, fail("JSON has no form for %v; another converter, such as Avro's, has", v)
	case math.IsNaN(v):
		return append(dst, `"NaN"`...), nil
	case v > 0:
		return append(dst, `"Infinity"`...), nil
	default:
		return append(dst, `"-Infinity"`...), nil
	}
}

func appendText(dst []byte, s string) ([]byte, *fault) {
	if !utf8.ValidString(s) {
		return dst, fail("the text is not valid UTF-8")
	}
	return rawjson.AppendString(dst, s), nil
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}

func (d *dialect) appendArray(dst []byte, t *jsonType, v any) (_ []byte, f *fault) {
	list, ok := v.([]any)
	if !ok {
		return dst, mismatch(t.schema, v)
	}
	dst = append(dst, '[')
	for i, e := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, f = d.append(dst, t.elem, e); f != nil {
			return dst, f.at(i)
		}
	}
	return append(dst, ']'), nil
}

func (d *dialect) appendStruct(dst []byte, t *jsonType, v any) ([]byte, *fault) {
	s, f := t.of(v)
	if f != nil {
		return dst, f
	}
	if t.union {
		return d.appendUnion(dst, t, s)
	}
	dst = append(dst, '{')
	for i := range t.fields {
		field := &t.fields[i]
		lead := field.lead
		if i == 0 {
			lead = lead[1:]
		}
		dst = append(dst, lead...)
		if dst, f = d.append(dst, field.jsonType, s.Values[i]); f != nil {
			return dst, f.in(field.name)
		}
	}
	return append(dst, '}'), nil
}

// appendUnion appends the one field that is set.
func (d *dialect) appendUnion(dst []byte, t *jsonType, s *data.StructValue) ([]byte, *fault) {
	for i := range t.fields {
		if s.Values[i] != nil {
			dst, f := d.append(dst, t.fields[i].jsonType, s.Values[i])
			return dst, f.in(t.fields[i].name)
		}
	}
	if t.schema.Optional {
		return append(dst, "null"...), nil
	}
	return dst, fail("none of the union's fields is set")
}

func (d *dialect) appendMap(dst []byte, t *jsonType, v any) ([]byte, *fault) {
	object := t.key.kind == data.String && !(d.named && t.key.schema.Optional)
	brackets, first := "[]", true
	if object {
		brackets = "{}"
	}
	dst = append(dst, brackets[0])
	f := each(t.schema, v, func(key, value any) (f *fault) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if object {
			k, ok := key.(string)
			if !ok {
				return fail("a key of a map is %s, and text is wanted", typeOf(key))
			}
			if dst, f = appendText(dst, k); f == nil {
				dst, f = d.append(append(dst, ':'), t.elem, value)
			}
			return f
		}
		open, between, end := "[", ",", "]"
		if d.named {
			open, between, end = `{"key":`, `,"value":`, "}"
		}
		if dst, f = d.append(append(dst, open...), t.key, key); f != nil {
			return f.in("key")
		}
		if dst, f = d.append(append(dst, between...), t.elem, value); f != nil {
			return f.in("value")
		}
		dst = append(dst, end...)
		return nil
	})
	return append(dst, brackets[1]), f
}

// appendAny appends a value that has no schema.
func (d *dialect) appendAny(dst []byte, v any, depth int) (_ []byte, f *fault) {
	if depth > maxDepth {
		return dst, tooDeep()
	}
	switch x := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case []any:
		dst = append(dst, '[')
		for i, e := range x {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, f = d.appendAny(dst, e, depth+1); f != nil {
				return dst, f.at(i)
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		dst = append(dst, '{')
		for i, k := range sortedKeys(x) {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, f = appendText(dst, k); f == nil {
				dst, f = d.appendAny(append(dst, ':'), x[k], depth+1)
			}
			if f != nil {
				return dst, f.in(k)
			}
		}
		return append(dst, '}'), nil
	case []data.Entry:
		return d.appendEntries(dst, x, depth)
	case *data.StructValue:
		t, f := d.compile(x.Schema, depth)
		if f != nil {
			return dst, f
		}
		return d.append(dst, t, x)
	}
	s := &data.Schema{Type: guess(v)}
	if s.Type == 0 {
		return dst, fail("a %T is no value of Connect", v)
	}
	return d.append(dst, &jsonType{shape: shape{schema: s}, kind: s.Type}, v)
}

func (d *dialect) appendEntries(dst []byte, entries []data.Entry, depth int) (_ []byte, f *fault) {
	dst = append(dst, '[')
	for i := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, f = d.appendAny(append(dst, '['), entries[i].Key, depth+1); f == nil {
			dst, f = d.appendAny(append(dst, ','), entries[i].Value, depth+1)
		}
		if f != nil {
			return dst, f.at(i)
		}
		dst = append(dst, ']')
	}
	return append(dst, ']'), nil
}
