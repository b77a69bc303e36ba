package sink

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"millrace/connect/data"
)

// json is the encoder for columns of JSON: text is JSON already, all else becomes it.
func (c *codec) json(s *data.Schema) encoder {
	if s.Type == data.String {
		return c.jsonText
	}
	if s.Type == data.Bytes && s.Name != data.Decimal {
		return nil
	}
	return jsonOf(s)
}

// jsonText hands JSON to the server as it is, less the escapes of NUL, which jsonb cannot hold, if they are stripped.
func (c *codec) jsonText(dst []byte, v any) ([]byte, error) {
	s, ok := v.(string)
	if !ok {
		return dst, errUnfit
	}
	if c.stripNUL && strings.Contains(s, `\u0000`) {
		s = stripEscapedNUL(s)
	}
	return c.appendText(dst, s)
}

// stripEscapedNUL removes the escapes of NUL from a JSON text. A backslash that is escaped itself begins none.
func stripEscapedNUL(s string) string {
	b := strings.Builder{}
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\\' || i+1 == len(s):
			b.WriteByte(s[i])
		case strings.HasPrefix(s[i:], `\u0000`):
			i += 5
		default:
			b.WriteString(s[i : i+2])
			i++
		}
	}
	return b.String()
}

func jsonOf(s *data.Schema) encoder {
	return func(dst []byte, v any) ([]byte, error) { return appendJSON(dst, s, v) }
}

// appendJSON writes a value as JSON. Decimals become numbers with all their digits, other bytes base64.
func appendJSON(dst []byte, s *data.Schema, v any) (out []byte, err error) {
	switch x := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, x), nil
	case string:
		return appendJSONString(dst, x), nil
	case []byte:
		if s.Is(data.Decimal) {
			return appendDecimal(dst, data.DecimalInt(x), scaleOf(s)), nil
		}
		return appendJSONString(dst, base64.StdEncoding.EncodeToString(x)), nil
	case float32, float64:
		if f, ok := x.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return dst, fmt.Errorf("JSON has no %v: %w", f, errUnfit)
		}
		return encodeFloat(dst, x)
	case []any:
		return appendJSONArray(dst, s, x)
	case map[string]any:
		return appendJSONMap(dst, s, x)
	case []data.Entry:
		return appendJSONEntries(dst, s, x)
	case *data.StructValue:
		return appendJSONStruct(dst, x)
	}
	return encodeInteger(dst, v)
}

func appendJSONString(dst []byte, s string) []byte {
	b, _ := json.Marshal(s) // of a string: it cannot fail
	return append(dst, b...)
}

func elemOf(s *data.Schema) *data.Schema {
	if s == nil {
		return nil
	}
	return s.Elem
}

func appendJSONArray(dst []byte, s *data.Schema, a []any) (out []byte, err error) {
	dst = append(dst, '[')
	for i, v := range a {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendJSON(dst, elemOf(s), v); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

func appendJSONMap(dst []byte, s *data.Schema, m map[string]any) (out []byte, err error) {
	dst = append(dst, '{')
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(dst, k), ':')
		if dst, err = appendJSON(dst, elemOf(s), m[k]); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// appendJSONEntries writes a map whose keys are no strings as an object whose names are their texts.
func appendJSONEntries(dst []byte, s *data.Schema, entries []data.Entry) (out []byte, err error) {
	dst = append(dst, '{')
	for i, e := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		var key *data.Schema
		if s != nil {
			key = s.Key
		}
		name, err := appendJSON(nil, key, e.Key)
		if err != nil {
			return dst, err
		}
		dst = append(appendJSONString(dst, string(name)), ':')
		if dst, err = appendJSON(dst, elemOf(s), e.Value); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendJSONStruct(dst []byte, v *data.StructValue) (out []byte, err error) {
	if v.Schema.Name == variableScaleDecimal {
		return encodeVariableDecimal(dst, v)
	}
	dst = append(dst, '{')
	for i := range v.Schema.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		f := &v.Schema.Fields[i]
		dst = append(appendJSONString(dst, f.Name), ':')
		if dst, err = appendJSON(dst, f.Schema, v.Values[i]); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}
