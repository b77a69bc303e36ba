package convert

import (
	"math"
	"strconv"

	"millrace/api/rawjson"
	"millrace/connect/data"
)

// dialect is how values are written as JSON: that of JsonConverter, or that of JsonSchemaConverter.
type dialect struct {
	numeric bool // decimals are numbers, not base64 of their unscaled number
	fill    bool // a null is the schema's default, if that has one
	// named is JSON Schema's way: an entry of a map without string keys is an object with key and value, not a pair;
	// null stands for what is missing; and a union is the value of its one field that is set.
	named bool
}

// jsonType is a schema, made ready to write and read its values. It belongs to one converter.
type jsonType struct {
	shape
	kind    data.Type
	decimal bool
	scale   int
	null    any // what a null stands for
	union   bool
	raw     bool // a text that is any JSON
	fields  []jsonField
	key     *jsonType
	elem    *jsonType
}

type jsonField struct {
	name string
	lead []byte // the name as JSON, between a comma and a colon
	*jsonType
}

func (d *dialect) compile(s *data.Schema, depth int) (*jsonType, *fault) {
	if depth > maxDepth {
		return nil, tooDeep()
	}
	if s == nil {
		return nil, fail("a part of the schema has no type")
	}
	t := &jsonType{shape: shape{schema: s}, kind: s.Type}
	if d.fill {
		t.null = s.Default
	}
	var f *fault
	switch s.Type {
	case data.Bytes:
		if s.Name == data.Decimal {
			t.decimal = true
			t.scale, f = scaleOf(s)
		}
	case data.Map:
		if t.key, f = d.compile(s.Key, depth+1); f != nil {
			return nil, f.in("key")
		}
		t.elem, f = d.compile(s.Elem, depth+1)
	case data.Array:
		t.elem, f = d.compile(s.Elem, depth+1)
	case data.Struct:
		t.union = d.named && isUnion(s, jsonUnion)
		for i := range s.Fields {
			of, f := d.compile(s.Fields[i].Schema, depth+1)
			if f != nil {
				return nil, f.in(s.Fields[i].Name)
			}
			lead := append(rawjson.AppendString([]byte{','}, s.Fields[i].Name), ':')
			t.fields = append(t.fields, jsonField{s.Fields[i].Name, lead, of})
		}
	}
	return t, f
}

// appendReal appends a number so that it reads back as one that is no whole number.
func appendReal(dst []byte, v float64, bits int) []byte {
	start, form := len(dst), byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		form = 'e'
	}
	dst = strconv.AppendFloat(dst, v, form, -1, bits)
	for _, c := range dst[start:] {
		if c == '.' || c == 'e' || c == 'N' || c == 'I' {
			return dst
		}
	}
	return append(dst, '.', '0')
}
