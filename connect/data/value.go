package data

import (
	"bytes"
	"fmt"
	"maps"
	"math/big"
	"slices"
)

// StructValue is a value of a Struct: a value for each field of its schema, in their order.
type StructValue struct {
	Schema *Schema
	Values []any
}

// New makes a struct whose fields are null.
func New(s *Schema) *StructValue { return &StructValue{Schema: s, Values: make([]any, len(s.Fields))} }

// Get is the value of a field; ok is false if there is no such field.
func (v *StructValue) Get(name string) (value any, ok bool) {
	i := v.Schema.Field(name)
	if i < 0 {
		return nil, false
	}
	return v.Values[i], true
}

// Set sets a field. It panics if the schema has none of that name.
func (v *StructValue) Set(name string, value any) *StructValue {
	i := v.Schema.Field(name)
	if i < 0 {
		panic(fmt.Sprintf("struct %q has no field %q", v.Schema.Name, name))
	}
	v.Values[i] = value
	return v
}

// Entry is an entry of a map whose keys are no strings.
type Entry struct{ Key, Value any }

// EqualValues says whether two values are the same. Numbers of different types differ.
func EqualValues(a, b any) bool { return equal(a, b, (*Schema).Equal) }

// equalDefaults is EqualValues of the defaults of schemas that are being compared: the schemas of structs in them are
// parts of those, or they themselves.
func equalDefaults(a, b any) bool { return equal(a, b, func(*Schema, *Schema) bool { return true }) }

func equal(a, b any, schemas func(a, b *Schema) bool) bool {
	values := func(a, b any) bool { return equal(a, b, schemas) }
	switch x := a.(type) {
	case nil:
		return b == nil
	case []byte:
		y, ok := b.([]byte)
		return ok && bytes.Equal(x, y)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, values)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, values)
	case []Entry:
		y, ok := b.([]Entry)
		return ok && slices.EqualFunc(x, y, func(p, q Entry) bool {
			return values(p.Key, q.Key) && values(p.Value, q.Value)
		})
	case *StructValue:
		y, ok := b.(*StructValue)
		return ok && schemas(x.Schema, y.Schema) && slices.EqualFunc(x.Values, y.Values, values)
	default:
		return comparable(b) && a == b
	}
}

// comparable says whether a value may be compared by ==.
func comparable(v any) bool {
	switch v.(type) {
	case []byte, []any, map[string]any, []Entry:
		return false
	}
	return true
}

// DecimalBytes is a Decimal's value: an unscaled number in as few bytes as it takes, big-endian two's complement.
func DecimalBytes(unscaled *big.Int) []byte {
	if unscaled.Sign() >= 0 {
		b := unscaled.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			b = append([]byte{0}, b...)
		}
		return b
	}
	// Of a negative number: the two's complement of as many bytes as hold it.
	n := new(big.Int).Not(unscaled)
	size := n.BitLen()/8 + 1
	b := new(big.Int).Add(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(size)*8)).Bytes()
	for len(b) < size {
		b = append([]byte{0xff}, b...)
	}
	return b
}

// DecimalInt is the unscaled number of a Decimal's bytes.
func DecimalInt(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	return n
}
