package convert

import (
	"encoding/base64"
	"math"
	"strconv"

	"millrace/api/rawjson"
	"millrace/connect/data"
)

// jsonReader reads values from JSON that has been checked to be JSON. It bounds what they cost in memory by their size.
type jsonReader struct {
	*dialect
	rawjson.Cursor
	slots int // fields of structs, and bytes of decimals beyond those of their text, that may still be made
}

const (
	spareSlots = 1 << 16
	timesSlots = 16
)

func (d *dialect) reader(text []byte) *jsonReader {
	return &jsonReader{d, rawjson.Cursor{Data: text}, spareSlots + timesSlots*len(text)}
}

// read reads the next value, of a schema, or of any type where t is nil.
func (r *jsonReader) read(t *jsonType, depth int) (any, *fault) {
	if depth > maxDepth {
		return nil, tooDeep()
	}
	if t == nil {
		return r.readAny(depth)
	}
	if t.union {
		return r.readUnion(t, depth)
	}
	if t.raw && r.Peek() != 'n' {
		text, _, err := r.Value(maxDepth)
		if err != nil {
			return nil, fail("%w", err)
		}
		return string(rawjson.Compact(nil, text)), nil
	}
	first := r.Peek()
	if first == 'n' {
		if _, f := r.scalar(); f != nil {
			return nil, f
		}
		return r.missing(t)
	}
	switch t.kind {
	case data.Array:
		return r.readArray(t.schema, t.elem, depth)
	case data.Map:
		return r.readMap(t, depth)
	case data.Struct:
		return r.readStruct(t, depth)
	}
	if first == '{' || first == '[' {
		return nil, r.unlike(t)
	}
	text, f := r.scalar()
	if f != nil {
		return nil, f
	}
	v, f := t.scalar(text)
	if b, ok := v.([]byte); ok && len(b) > len(text) { // 1e9 is longer than it looks
		if r.slots -= len(b) - len(text); r.slots < 0 {
			return nil, fail("the value is made of too many long numbers for its size")
		}
	}
	return v, f
}

// missing is what stands for a null, or for what is not there.
func (r *jsonReader) missing(t *jsonType) (any, *fault) {
	if t.null != nil || t.schema.Optional {
		return t.null, nil
	}
	return nil, fail("it is null or missing, and the schema neither allows that nor has a default")
}

func (r *jsonReader) unlike(t *jsonType) *fault {
	got := map[byte]string{'{': "an object", '[': "an array", '"': "a text", 't': "a boolean", 'f': "a boolean"}[r.Peek()]
	if got == "" {
		got = "a number"
	}
	return fail("%s is wanted by the schema, not %s", describe(t.schema), got)
}

// scalar takes the text of a value that is no object or array.
func (r *jsonReader) scalar() ([]byte, *fault) {
	text, _, err := r.Value(1)
	if err != nil {
		return nil, fail("%w", err)
	}
	return text, nil
}

// scalar is the value that a text stands for.
func (t *jsonType) scalar(text []byte) (any, *fault) {
	switch t.kind {
	case data.Boolean:
		if text[0] == 't' || text[0] == 'f' {
			return text[0] == 't', nil
		}
	case data.Int8, data.Int16, data.Int32, data.Int64:
		return t.integer(text)
	case data.Float32, data.Float64:
		return t.real(text)
	case data.String:
		if text[0] == '"' {
			s, ok := rawjson.Text(text)
			if !ok {
				return nil, fail("the text holds half of a surrogate pair")
			}
			return string(s), nil
		}
	case data.Bytes:
		return t.bytes(text)
	}
	return nil, t.unfit(text)
}

func (t *jsonType) unfit(text []byte) *fault {
	got := "a number"
	switch text[0] {
	case '"':
		got = "a text"
	case 't', 'f':
		got = "a boolean"
	}
	return fail("%s is wanted by the schema, not %s", describe(t.schema), got)
}

func (t *jsonType) integer(text []byte) (any, *fault) {
	if text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return nil, t.unfit(text)
	}
	bits := map[data.Type]int{data.Int8: 8, data.Int16: 16, data.Int32: 32, data.Int64: 64}[t.kind]
	n, err := strconv.ParseInt(string(text), 10, bits)
	if err != nil {
		return nil, fail("a whole number of at most %d bits is wanted by the schema", bits)
	}
	switch t.kind {
	case data.Int8:
		return int8(n), nil
	case data.Int16:
		return int16(n), nil
	case data.Int32:
		return int32(n), nil
	}
	return n, nil
}

// notFinite are the texts of numbers that JSON has no number for.
var notFinite = map[string]float64{`"NaN"`: math.NaN(), `"Infinity"`: math.Inf(1), `"-Infinity"`: math.Inf(-1)}

func (t *jsonType) real(text []byte) (any, *fault) {
	if x, ok := notFinite[string(text)]; ok {
		if t.kind == data.Float32 {
			return float32(x), nil
		}
		return x, nil
	}
	if text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return nil, t.unfit(text)
	}
	if t.kind == data.Float32 {
		x, err := strconv.ParseFloat(string(text), 32)
		if err != nil {
			return nil, fail("the number is too large for a float32")
		}
		return float32(x), nil
	}
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return nil, fail("the number is too large for a float64")
	}
	return x, nil
}

func (t *jsonType) bytes(text []byte) (any, *fault) {
	if text[0] != '"' {
		if !t.decimal || text[0] == 't' || text[0] == 'f' {
			return nil, t.unfit(text)
		}
		b, f := decimalFromText(string(text), t.scale)
		if f != nil {
			return nil, f
		}
		return b, nil
	}
	s, ok := rawjson.Text(text)
	if !ok {
		return nil, fail("the text holds half of a surrogate pair")
	}
	b, err := base64.StdEncoding.AppendDecode(make([]byte, 0, len(s)*3/4), s)
	if err != nil {
		return nil, fail("the text is not base64: %w", err)
	}
	return b, nil
}

func (r *jsonReader) readArray(s *data.Schema, elem *jsonType, depth int) (any, *fault) {
	if r.Peek() != '[' {
		return nil, r.unlike(&jsonType{shape: shape{schema: s}})
	}
	r.Pos++
	list := []any{}
	for {
		more, err := r.More(']', len(list) == 0)
		if err != nil {
			return nil, fail("%w", err)
		}
		if !more {
			return list, nil
		}
		v, f := r.read(elem, depth+1)
		if f != nil {
			return nil, f.at(len(list))
		}
		list = append(list, v)
	}
}

// members calls f with each name of the object that begins here; f takes the value.
func (r *jsonReader) members(f func(name string) *fault) *fault {
	r.Pos++ // the bracket
	for first := true; ; first = false {
		name, more, err := r.Member(first)
		if err != nil {
			return fail("%w", err)
		}
		if !more {
			return nil
		}
		key := string(name)
		if f := f(key); f != nil {
			return f.in(key)
		}
	}
}

func (r *jsonReader) readMap(t *jsonType, depth int) (any, *fault) {
	if t.key.kind == data.String && !(r.named && t.key.schema.Optional) {
		if r.Peek() != '{' {
			return nil, r.unlike(t)
		}
		m := map[string]any{}
		f := r.members(func(name string) (f *fault) {
			m[name], f = r.read(t.elem, depth+1)
			return f
		})
		return m, f
	}
	if r.Peek() != '[' {
		return nil, r.unlike(t)
	}
	r.Pos++
	entries := []data.Entry{}
	for {
		more, err := r.More(']', len(entries) == 0)
		if err != nil {
			return nil, fail("%w", err)
		}
		if !more {
			return keyed(t.key, entries), nil
		}
		e, f := r.readEntry(t, depth+1)
		if f != nil {
			return nil, f.at(len(entries))
		}
		entries = append(entries, e)
	}
}

// keyed is the entries as a map where their keys are strings.
func keyed(key *jsonType, entries []data.Entry) any {
	if key.kind != data.String {
		return entries
	}
	m := make(map[string]any, len(entries))
	for i := range entries {
		k, ok := entries[i].Key.(string)
		if !ok {
			return entries // a null among the keys
		}
		m[k] = entries[i].Value
	}
	return m
}

// readEntry reads a pair, or an object with key and value.
func (r *jsonReader) readEntry(t *jsonType, depth int) (e data.Entry, f *fault) {
	if r.named {
		if r.Peek() != '{' {
			return e, fail("an entry of a map is an object with key and value")
		}
		found := 0
		f = r.members(func(name string) (f *fault) {
			found++
			switch name {
			case "key":
				e.Key, f = r.read(t.key, depth+1)
			case "value":
				e.Value, f = r.read(t.elem, depth+1)
			default:
				f = fail("an entry of a map has only key and value")
			}
			return f
		})
		if f == nil && found != 2 {
			f = fail("an entry of a map has a key and a value")
		}
		return e, f
	}
	pair, f := r.pair(t, depth)
	if f == nil && len(pair) != 2 {
		f = fail("an entry of a map is an array of key and value")
	}
	if f != nil {
		return e, f
	}
	return data.Entry{Key: pair[0], Value: pair[1]}, nil
}

func (r *jsonReader) pair(t *jsonType, depth int) (pair []any, f *fault) {
	if r.Peek() != '[' {
		return nil, nil
	}
	r.Pos++
	for {
		more, err := r.More(']', len(pair) == 0)
		if err != nil {
			return nil, fail("%w", err)
		}
		if !more || len(pair) == 2 {
			if more {
				pair = nil
			}
			return pair, nil
		}
		of := t.key
		if len(pair) == 1 {
			of = t.elem
		}
		v, f := r.read(of, depth+1)
		if f != nil {
			return nil, f
		}
		pair = append(pair, v)
	}
}

func (r *jsonReader) readStruct(t *jsonType, depth int) (any, *fault) {
	if r.Peek() != '{' {
		return nil, r.unlike(t)
	}
	if r.slots -= len(t.fields) + 1; r.slots < 0 {
		return nil, fail("the value is made of too many structs for its size")
	}
	v := data.New(t.schema)
	var (
		there = make(bits, len(t.fields)/64+1)
		next  int
	)
	r.Pos++
	for first := true; ; first = false {
		name, more, err := r.Member(first)
		if err != nil {
			return nil, fail("%w", err)
		}
		if !more {
			break
		}
		i := next
		if i >= len(t.fields) || t.fields[i].name != string(name) {
			if i = t.schema.Field(string(name)); i < 0 {
				if _, _, err := r.Value(maxDepth); err != nil {
					return nil, fail("%w", err)
				}
				continue
			}
		}
		next = i + 1
		there.set(i)
		var f *fault
		if v.Values[i], f = r.read(t.fields[i].jsonType, depth+1); f != nil {
			return nil, f.in(t.fields[i].name)
		}
	}
	for i := range t.fields {
		if there.has(i) {
			continue
		}
		var f *fault
		if v.Values[i], f = r.missing(t.fields[i].jsonType); f != nil {
			return nil, f.in(t.fields[i].name)
		}
	}
	return v, nil
}

type bits []uint64

func (b bits) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bits) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

// readAny reads a value without a schema.
func (r *jsonReader) readAny(depth int) (any, *fault) {
	switch r.Peek() {
	case '[':
		return r.readArray(&data.Schema{Type: data.Array}, nil, depth)
	case '{':
		m := map[string]any{}
		f := r.members(func(name string) (f *fault) {
			m[name], f = r.read(nil, depth+1)
			return f
		})
		return m, f
	}
	text, f := r.scalar()
	if f != nil {
		return nil, f
	}
	switch text[0] {
	case 'n':
		return nil, nil
	case 't', 'f':
		return text[0] == 't', nil
	case '"':
		s, ok := rawjson.Text(text)
		if !ok {
			return nil, fail("the text holds half of a surrogate pair")
		}
		return string(s), nil
	}
	for _, c := range text {
		if c == '.' || c == 'e' || c == 'E' {
			x, err := strconv.ParseFloat(string(text), 64)
			if err != nil {
				return nil, fail("the number is too large for a float64")
			}
			return x, nil
		}
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return nil, fail("the whole number does not fit into 64 bits")
	}
	return n, nil
}

// readUnion reads the value of the first of the union's fields that it fits, or of the one with the most names of it.
func (r *jsonReader) readUnion(t *jsonType, depth int) (any, *fault) {
	start, slots := r.Pos, r.slots
	if r.Peek() == 'n' {
		_, f := r.scalar()
		if f == nil && !t.schema.Optional {
			f = fail("it is null, and the union does not allow that")
		}
		return nil, f
	}
	text, _, err := r.Value(maxDepth)
	if err != nil {
		return nil, fail("%w", err)
	}
	end, best, most := r.Pos, -1, -1
	for i := range t.fields {
		if n := t.fields[i].likeness(text); n > most {
			best, most = i, n
		}
	}
	if best < 0 {
		return nil, fail("none of the union's types fits the value")
	}
	r.Pos, r.slots = start, slots-len(t.fields)
	v := data.New(t.schema)
	var f *fault
	v.Values[best], f = r.read(t.fields[best].jsonType, depth+1)
	if f == nil && r.Pos != end {
		f = fail("the value ends where it should not")
	}
	return v, f.in(t.fields[best].name)
}

// likeness is how well a value's text fits a field of a union: not at all if negative. It looks at one level.
func (f *jsonField) likeness(text []byte) int {
	const exact = 1 << 20
	first := text[0]
	number := first == '-' || first >= '0' && first <= '9'
	switch f.kind {
	case data.Boolean:
		if first == 't' || first == 'f' {
			return exact
		}
	case data.Int8, data.Int16, data.Int32, data.Int64:
		if number {
			if _, bad := f.integer(text); bad == nil {
				return exact
			}
		}
	case data.Float32, data.Float64:
		if number {
			return exact - 1
		}
	case data.Bytes:
		if first == '"' || f.decimal && number {
			if _, bad := f.bytes(text); bad == nil {
				return exact - 2
			}
		}
	case data.String:
		if first == '"' {
			return exact - 1
		}
	case data.Array:
		if first == '[' {
			return exact
		}
	case data.Map:
		if first == '{' && f.key.kind == data.String || first == '[' && f.key.kind != data.String {
			return 0
		}
	case data.Struct:
		if first == '{' {
			return f.names(text)
		}
	}
	return -1
}

// names counts the names of an object that a struct has.
func (f *jsonField) names(text []byte) (n int) {
	c := rawjson.Cursor{Data: text}
	if c.Begin('{') != nil {
		return -1
	}
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil || !more {
			return n + 1
		}
		if f.schema.Field(string(name)) >= 0 {
			n++
		}
		if _, _, err := c.Value(maxDepth); err != nil {
			return n
		}
	}
}
