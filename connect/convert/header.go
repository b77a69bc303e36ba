package convert

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// headers makes a header converter of a converter.
type headers struct{ plugin.Converter }

// EncodeHeader implements plugin.HeaderConverter.
func (h headers) EncodeHeader(ctx context.Context, topic, _ string, s *data.Schema, v any) ([]byte, error) {
	b, ok, err := h.Encode(ctx, []byte{}, topic, s, v)
	if err != nil || !ok {
		return nil, err
	}
	return b, nil
}

// DecodeHeader implements plugin.HeaderConverter.
func (h headers) DecodeHeader(ctx context.Context, topic, _ string, b []byte) (*data.Schema, any, error) {
	return h.Decode(ctx, topic, b, nil)
}

// simpleHeaders is SimpleHeaderConverter: it writes text, and reads text by guessing what it was.
type simpleHeaders struct{}

// EncodeHeader implements plugin.HeaderConverter.
func (simpleHeaders) EncodeHeader(_ context.Context, _, _ string, s *data.Schema, v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	b, f := (&textForm{}).append([]byte{}, s, v, 0)
	if f != nil {
		return nil, f.asError()
	}
	return b, nil
}

// DecodeHeader implements plugin.HeaderConverter.
func (simpleHeaders) DecodeHeader(_ context.Context, _, _ string, b []byte) (*data.Schema, any, error) {
	switch {
	case b == nil:
		return nil, nil, nil
	case !utf8.Valid(b):
		return &data.Schema{Type: data.Bytes}, b, nil
	}
	s, v := ParseText(string(b))
	return s, v, nil
}

// ParseText guesses what a text stands for, as Kafka Connect's literals are read: null, booleans, whole numbers of the
// smallest type that holds them, other numbers, dates and times in their ISO form, lists in [] and maps in {}. Anything
// else is the text. Unlike Kafka Connect it takes the smallest floating type that keeps all digits, or a decimal.
func ParseText(text string) (*data.Schema, any) {
	if text == "" {
		return &data.Schema{Type: data.String}, text
	}
	p := &literals{text: text}
	if s, v, ok := p.value(0); ok && p.atEnd() {
		return s, v
	}
	return &data.Schema{Type: data.String}, text
}

// literals reads literals. Where something is none, the whole text is taken as it is.
type literals struct {
	text string
	pos  int
}

const space = " \t\r\n"

func (p *literals) skip() {
	for p.pos < len(p.text) && strings.IndexByte(space, p.text[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *literals) atEnd() bool {
	p.skip()
	return p.pos == len(p.text)
}

func (p *literals) take(c byte) bool {
	p.skip()
	if p.pos < len(p.text) && p.text[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *literals) value(depth int) (*data.Schema, any, bool) {
	switch {
	case depth > maxDepth:
		return nil, nil, false
	case p.take('['):
		return p.list(depth)
	case p.take('{'):
		return p.entries(depth)
	case depth > 0 && p.take('"'):
		text, ok := p.quoted()
		if s, v := temporal(text); s != nil && ok {
			return s, v, true
		}
		return &data.Schema{Type: data.String}, text, ok
	}
	end := len(p.text)
	if depth > 0 {
		if i := strings.IndexAny(p.text[p.pos:], `,[]{}"`); i >= 0 {
			end = p.pos + i
		}
	}
	token := strings.Trim(p.text[p.pos:end], space)
	if depth > 0 {
		// Colons are in times, and after the keys of maps.
		if s, v := temporal(token); s != nil {
			p.pos = end
			return s, v, true
		}
		if i := strings.IndexByte(p.text[p.pos:end], ':'); i >= 0 {
			end = p.pos + i
			token = strings.Trim(p.text[p.pos:end], space)
		}
	}
	p.pos = end
	return scalar(token)
}

// quoted reads to the closing quote.
func (p *literals) quoted() (string, bool) {
	var b strings.Builder
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		p.pos++
		switch {
		case c == '"':
			return b.String(), true
		case c == '\\' && p.pos < len(p.text):
			c = p.text[p.pos]
			p.pos++
		}
		b.WriteByte(c)
	}
	return "", false
}

// scalar is what a text stands for that is no list, map or quoted text.
func scalar(token string) (*data.Schema, any, bool) {
	switch token {
	case "":
		return nil, nil, false
	case "null":
		return nil, nil, true
	case "true", "false":
		return &data.Schema{Type: data.Boolean}, token == "true", true
	}
	if s, v := temporal(token); s != nil {
		return s, v, true
	}
	if c := token[0]; c != '+' && c != '-' && (c < '0' || c > '9') {
		return nil, nil, false
	}
	return number(token)
}

// temporal reads a date, a time of the day or a timestamp; the schema is nil where the text is none.
func temporal(token string) (*data.Schema, any) {
	switch len(token) {
	case len(dateForm):
		if t, err := time.Parse(dateForm, token); err == nil {
			return &data.Schema{Type: data.Int32, Name: data.Date, Version: 1}, int32(t.Unix() / (dayMillis / 1000))
		}
	case len(timeForm):
		if t, err := time.Parse(timeForm, token); err == nil {
			return &data.Schema{Type: data.Int32, Name: data.Time, Version: 1},
				int32(t.Sub(t.Truncate(24 * time.Hour)).Milliseconds())
		}
	case len(timestampForm):
		if t, err := time.Parse(timestampForm, token); err == nil {
			return &data.Schema{Type: data.Int64, Name: data.Timestamp, Version: 1}, t.UnixMilli()
		}
	}
	return nil, nil
}

func number(token string) (*data.Schema, any, bool) {
	n, scale, ok := parseDecimal(token)
	if !ok {
		return nil, nil, false
	}
	// Where a power of ten would be larger than any int64, or than the number, it need not be made.
	whole, exact := n, n.Sign() == 0
	if !exact && scale >= -18 && 3*scale < n.BitLen() {
		whole, exact = rescale(n, scale, 0)
	}
	if exact && whole.IsInt64() {
		switch x := whole.Int64(); {
		case x >= math.MinInt8 && x <= math.MaxInt8:
			return &data.Schema{Type: data.Int8}, int8(x), true
		case x >= math.MinInt16 && x <= math.MaxInt16:
			return &data.Schema{Type: data.Int16}, int16(x), true
		case x >= math.MinInt32 && x <= math.MaxInt32:
			return &data.Schema{Type: data.Int32}, int32(x), true
		default:
			return &data.Schema{Type: data.Int64}, x, true
		}
	}
	for _, bits := range []int{32, 64} {
		x, err := strconv.ParseFloat(token, bits)
		if err != nil || scale == 0 {
			continue
		}
		back, backScale, ok := parseDecimal(string(strconv.AppendFloat(nil, x, 'e', -1, bits)))
		if back, exact := rescale(back, backScale, max(scale, backScale)); !ok || !exact {
			continue
		} else if same, exact := rescale(n, scale, max(scale, backScale)); !exact || same.Cmp(back) != 0 {
			continue
		}
		if bits == 32 {
			return &data.Schema{Type: data.Float32}, float32(x), true
		}
		return &data.Schema{Type: data.Float64}, x, true
	}
	return &data.Schema{Type: data.Bytes, Name: data.Decimal, Version: 1,
		Parameters: map[string]string{data.ScaleKey: strconv.Itoa(scale)}}, data.DecimalBytes(n), true
}

func (p *literals) list(depth int) (*data.Schema, any, bool) {
	var of common
	list := []any{}
	for !p.take(']') {
		if len(list) > 0 && !p.take(',') {
			return nil, nil, false
		}
		s, v, ok := p.value(depth + 1)
		if !ok {
			return nil, nil, false
		}
		of.add(s, v)
		list = append(list, v)
	}
	s := &data.Schema{Type: data.Array, Elem: of.schema()}
	if s.Elem == nil {
		return nil, list, true
	}
	for i := range list {
		list[i] = widen(s.Elem, list[i])
	}
	return s, list, true
}

func (p *literals) entries(depth int) (*data.Schema, any, bool) {
	var keys, values common
	entries := []data.Entry{}
	for !p.take('}') {
		if len(entries) > 0 && !p.take(',') {
			return nil, nil, false
		}
		ks, k, ok := p.value(depth + 1)
		if !ok || k == nil || !p.take(':') {
			return nil, nil, false
		}
		vs, v, ok := p.value(depth + 1)
		if !ok {
			return nil, nil, false
		}
		keys.add(ks, k)
		values.add(vs, v)
		entries = append(entries, data.Entry{Key: k, Value: v})
	}
	s := &data.Schema{Type: data.Map, Key: keys.schema(), Elem: values.schema()}
	if s.Key == nil || s.Elem == nil {
		return nil, textKeys(entries), true
	}
	for i := range entries {
		entries[i] = data.Entry{Key: widen(s.Key, entries[i].Key), Value: widen(s.Elem, entries[i].Value)}
	}
	return s, textKeys(entries), true
}

// textKeys is the entries as a map where all their keys are texts.
func textKeys(entries []data.Entry) any {
	m := make(map[string]any, len(entries))
	for i := range entries {
		k, ok := entries[i].Key.(string)
		if !ok {
			return entries
		}
		m[k] = entries[i].Value
	}
	return m
}

// common finds the type that several values have in common: the widest of numbers.
type common struct {
	of       *data.Schema
	differ   bool
	optional bool
}

func (c *common) add(s *data.Schema, v any) {
	switch {
	case v == nil:
		c.optional = true
	case s == nil:
		c.differ = true
	case c.of == nil:
		c.of = s
	case isNumber(c.of) && isNumber(s):
		if s.Type > c.of.Type {
			c.of = s
		}
	case !c.of.Equal(s):
		c.differ = true
	}
}

func isNumber(s *data.Schema) bool { return s.Type <= data.Float64 && s.Name == "" }

func (c *common) schema() *data.Schema {
	switch {
	case c.of == nil || c.differ:
		return nil
	case c.optional:
		return c.of.AsOptional()
	default:
		return c.of
	}
}

// widen is a number as one of a wider type.
func widen(s *data.Schema, v any) any {
	var (
		whole int64
		real  float64
	)
	switch x := v.(type) {
	case int8:
		whole = int64(x)
	case int16:
		whole = int64(x)
	case int32:
		whole = int64(x)
	case int64:
		whole = x
	case float32:
		real = widenReal(x)
	default:
		return v
	}
	if !isNumber(s) || guess(v) == s.Type {
		return v
	}
	if guess(v) != data.Float32 {
		real = float64(whole)
	}
	switch s.Type {
	case data.Int16:
		return int16(whole)
	case data.Int32:
		return int32(whole)
	case data.Int64:
		return whole
	case data.Float32:
		return float32(real)
	default:
		return real
	}
}

// widenReal is the float64 that has the same digits.
func widenReal(x float32) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	return v
}
