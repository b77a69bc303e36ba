package convert

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"

	"millrace/connect/data"
)

// textForm writes values as text for people: as SimpleHeaderConverter does, which is nearly JSON, or as Java's
// toString.
type textForm struct{ java bool }

const dayMillis = 24 * 60 * 60 * 1000

// The forms of dates and times in text.
const (
	dateForm      = "2006-01-02"
	timeForm      = "15:04:05.000Z"
	timestampForm = "2006-01-02T15:04:05.000Z"
)

// append appends a value; s may be nil.
func (t *textForm) append(dst []byte, s *data.Schema, v any, depth int) ([]byte, *fault) {
	if depth > maxDepth {
		return dst, tooDeep()
	}
	switch x := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, x), nil
	case int8:
		return strconv.AppendInt(dst, int64(x), 10), nil
	case int16:
		return strconv.AppendInt(dst, int64(x), 10), nil
	case int32:
		return appendTime(dst, s, int64(x)), nil
	case int64:
		return appendTime(dst, s, x), nil
	case float32:
		return appendFloat(dst, float64(x), 32), nil
	case float64:
		return appendFloat(dst, x, 64), nil
	case string:
		if depth == 0 || t.java {
			return append(dst, x...), nil
		}
		return appendQuoted(dst, x), nil
	case []byte:
		return t.appendBytes(dst, s, x, depth)
	case []any:
		return t.appendList(dst, s, x, depth)
	case map[string]any, []data.Entry:
		return t.appendMap(dst, s, v, depth)
	case *data.StructValue:
		return t.appendStruct(dst, x, depth)
	}
	return dst, fail("%s is no value of Connect", typeOf(v))
}

// appendTime appends a number, or the time that it is.
func appendTime(dst []byte, s *data.Schema, n int64) []byte {
	switch {
	case s.Is(data.Date):
		return time.UnixMilli(n*dayMillis).UTC().AppendFormat(dst, dateForm)
	case s.Is(data.Time):
		return time.UnixMilli(n).UTC().AppendFormat(dst, timeForm)
	case s.Is(data.Timestamp):
		return time.UnixMilli(n).UTC().AppendFormat(dst, timestampForm)
	}
	return strconv.AppendInt(dst, n, 10)
}

// appendFloat appends a number with Java's names for what is none.
func appendFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...)
	case math.IsInf(v, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(v, -1):
		return append(dst, "-Infinity"...)
	}
	return appendReal(dst, v, bits)
}

func appendQuoted(dst []byte, s string) []byte {
	s = strings.ReplaceAll(s, `\`, `\\`)
	return append(append(append(dst, '"'), strings.ReplaceAll(s, `"`, `\"`)...), '"')
}

func (t *textForm) appendBytes(dst []byte, s *data.Schema, b []byte, depth int) ([]byte, *fault) {
	if s.Is(data.Decimal) {
		scale, f := scaleOf(s)
		return appendDecimal(dst, b, scale), f
	}
	if depth == 0 || t.java {
		return base64.StdEncoding.AppendEncode(dst, b), nil
	}
	return appendBase64(dst, b), nil
}

func elem(s *data.Schema) *data.Schema {
	if s == nil {
		return nil
	}
	return s.Elem
}

func (t *textForm) between(dst []byte) []byte {
	if t.java {
		return append(dst, ", "...)
	}
	return append(dst, ',')
}

func (t *textForm) appendList(dst []byte, s *data.Schema, list []any, depth int) (_ []byte, f *fault) {
	dst = append(dst, '[')
	for i, e := range list {
		if i > 0 {
			dst = t.between(dst)
		}
		if dst, f = t.append(dst, elem(s), e, depth+1); f != nil {
			return dst, f.at(i)
		}
	}
	return append(dst, ']'), nil
}

func (t *textForm) appendMap(dst []byte, s *data.Schema, v any, depth int) ([]byte, *fault) {
	var key *data.Schema
	if s != nil {
		key = s.Key
	}
	is := byte(':')
	if t.java {
		is = '='
	}
	dst, first := append(dst, '{'), true
	f := each(&data.Schema{Type: data.Map}, v, func(k, e any) (f *fault) {
		if !first {
			dst = t.between(dst)
		}
		first = false
		if dst, f = t.append(dst, key, k, depth+1); f == nil {
			dst, f = t.append(append(dst, is), elem(s), e, depth+1)
		}
		return f
	})
	return append(dst, '}'), f
}

// appendStruct appends a struct; Java leaves out what is null.
func (t *textForm) appendStruct(dst []byte, v *data.StructValue, depth int) (_ []byte, f *fault) {
	if t.java {
		dst = append(dst, "Struct"...)
	}
	dst = append(dst, '{')
	first := true
	for i := range v.Schema.Fields {
		field := &v.Schema.Fields[i]
		if t.java && v.Values[i] == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if t.java {
			dst = append(append(dst, field.Name...), '=')
		} else {
			dst = append(appendQuoted(dst, field.Name), ':')
		}
		if dst, f = t.append(dst, field.Schema, v.Values[i], depth+1); f != nil {
			return dst, f.in(field.Name)
		}
	}
	return append(dst, '}'), nil
}
