package convert

import (
	"math"
	"slices"
	"strconv"

	"millrace/api/rawjson"
	"millrace/connect/data"
)

// appendValue appends a value in the JSON that defaults have in Avro: bytes are text of U+0000 to U+00FF, and a value
// of a union is bare.
func (d *avroDescriber) appendValue(dst []byte, s *data.Schema, v any) (_ []byte, f *fault) {
	if v == nil {
		return append(dst, "null"...), nil
	}
	if guess(v) != s.Type {
		return dst, mismatch(s, v)
	}
	switch x := v.(type) {
	case []byte:
		return appendLatin(dst, x), nil
	case []any:
		dst = append(dst, '[')
		for i, e := range x {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, f = d.appendValue(dst, s.Elem, e); f != nil {
				return dst, f.at(i)
			}
		}
		return append(dst, ']'), nil
	case map[string]any, []data.Entry:
		return d.appendEntries(dst, s, v)
	case *data.StructValue:
		dst = append(dst, '{')
		for i := range x.Values {
			if i > 0 {
				dst = append(dst, ',')
			}
			field := &x.Schema.Fields[i]
			dst = append(rawjson.AppendString(dst, d.fieldName(field.Name)), ':')
			if dst, f = d.appendValue(dst, field.Schema, x.Values[i]); f != nil {
				return dst, f.in(field.Name)
			}
		}
		return append(dst, '}'), nil
	}
	return (&dialect{}).append(dst, &jsonType{shape: shape{schema: s}, kind: s.Type}, v)
}

func (d *avroDescriber) appendEntries(dst []byte, s *data.Schema, v any) ([]byte, *fault) {
	brackets := "[]"
	if d.textMap(s) {
		brackets = "{}"
	}
	dst = append(dst, brackets[0])
	first := true
	f := each(s, v, func(key, value any) (f *fault) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if d.textMap(s) {
			k, ok := key.(string)
			if !ok {
				return mismatch(s.Key, key)
			}
			dst, f = d.appendValue(append(rawjson.AppendString(dst, k), ':'), s.Elem, value)
			return f
		}
		if dst, f = d.appendValue(append(dst, `{"key":`...), s.Key, key); f != nil {
			return f
		}
		dst, f = d.appendValue(append(dst, `,"value":`...), s.Elem, value)
		dst = append(dst, '}')
		return f
	})
	return append(dst, brackets[1]), f
}

// appendLatin appends bytes as a text of one character each.
func appendLatin(dst, b []byte) []byte {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return rawjson.AppendString(dst, string(runes))
}

// readValue reads what appendValue wrote, for a schema that was read from Avro.
func (l *avroLanguage) readValue(c *rawjson.Cursor, s *data.Schema, depth int) (any, *fault) {
	if depth > maxDepth {
		return nil, tooDeep()
	}
	if c.Peek() == 'n' {
		_, _, err := c.Value(1)
		if err != nil {
			return nil, fail("%w", err)
		}
		if !s.Optional && depth > 0 {
			return nil, fail("it is null, and the schema does not allow that")
		}
		return nil, nil
	}
	switch s.Type {
	case data.Array:
		list := []any{}
		f := elements(c, '[', func(string) *fault {
			v, f := l.readValue(c, s.Elem, depth+1)
			list = append(list, v)
			return f
		})
		return list, f
	case data.Map:
		return l.readEntries(c, s, depth)
	case data.Struct:
		return l.readStruct(c, s, depth)
	}
	text, _, err := c.Value(1)
	if err != nil {
		return nil, fail("%w", err)
	}
	t := jsonType{shape: shape{schema: s}, kind: s.Type}
	if s.Type != data.Bytes {
		return t.scalar(text)
	}
	latin, ok := rawjson.Text(text)
	if !ok {
		return nil, fail("bytes are written as a text")
	}
	b := make([]byte, 0, len(latin))
	for _, r := range string(latin) {
		if r > math.MaxUint8 {
			return nil, fail("bytes are written as a text of characters up to U+00FF")
		}
		b = append(b, byte(r))
	}
	return b, nil
}

// elements calls f for each element of an array, or with each name of an object; f takes the value.
func elements(c *rawjson.Cursor, bracket byte, f func(name string) *fault) *fault {
	if err := c.Begin(bracket); err != nil {
		return fail("%w", err)
	}
	for first := true; ; first = false {
		more, err := c.More(bracket+2, first)
		if err != nil {
			return fail("%w", err)
		}
		if !more {
			return nil
		}
		var name []byte
		if bracket == '{' {
			if name, err = c.Name(); err != nil {
				return fail("%w", err)
			}
		}
		if f := f(string(name)); f != nil {
			return f.in(string(name))
		}
	}
}

func (l *avroLanguage) readEntries(c *rawjson.Cursor, s *data.Schema, depth int) (any, *fault) {
	if l.textMap(s) {
		m := map[string]any{}
		f := elements(c, '{', func(name string) (f *fault) {
			m[name], f = l.readValue(c, s.Elem, depth+1)
			return f
		})
		return m, f
	}
	entries := []data.Entry{}
	f := elements(c, '[', func(string) *fault {
		var e data.Entry
		f := elements(c, '{', func(name string) (f *fault) {
			switch name {
			case "key":
				e.Key, f = l.readValue(c, s.Key, depth+1)
			case "value":
				e.Value, f = l.readValue(c, s.Elem, depth+1)
			default:
				f = fail("an entry of a map has only key and value")
			}
			return f
		})
		entries = append(entries, e)
		return f
	})
	if s.Key.Type == data.String {
		return textKeys(entries), f
	}
	return entries, f
}

func (l *avroLanguage) readStruct(c *rawjson.Cursor, s *data.Schema, depth int) (any, *fault) {
	if l.union(s) { // the value is one of the first type
		v := data.New(s)
		if len(s.Fields) == 0 {
			return nil, fail("the union has no types")
		}
		var f *fault
		v.Values[0], f = l.readValue(c, s.Fields[0].Schema, depth+1)
		return v, f
	}
	v := data.New(s)
	for i := range s.Fields {
		v.Values[i] = s.Fields[i].Schema.Default
	}
	f := elements(c, '{', func(name string) (f *fault) {
		i := slices.IndexFunc(s.Fields, func(f data.Field) bool { return l.fieldName(f.Name) == name })
		if i < 0 {
			_, _, err := c.Value(maxDepth)
			if err != nil {
				return fail("%w", err)
			}
			return nil
		}
		v.Values[i], f = l.readValue(c, s.Fields[i].Schema, depth+1)
		return f
	})
	if f != nil {
		return nil, f
	}
	for i := range s.Fields {
		if v.Values[i] == nil && !s.Fields[i].Schema.Optional {
			return nil, fail("the default lacks it").in(s.Fields[i].Name)
		}
	}
	return v, nil
}

// sortByNumber sorts texts by numbers that belong to them.
func sortByNumber(texts []string, number func(string) string) {
	slices.SortStableFunc(texts, func(a, b string) int {
		x, _ := strconv.Atoi(number(a))
		y, _ := strconv.Atoi(number(b))
		return x - y
	})
}
