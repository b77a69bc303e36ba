package data

import (
	"fmt"
	"maps"
	"slices"
)

// Type is the type of a value, as Kafka Connect has them.
type Type uint8

// The types, with the Go type of their values. A logical type's values are those of its type: a Decimal is the bytes of
// its unscaled number, a Timestamp an int64. A null value is a nil any.
const (
	Int8    Type = iota + 1 // int8
	Int16                   // int16
	Int32                   // int32
	Int64                   // int64
	Float32                 // float32
	Float64                 // float64
	Boolean                 // bool
	String                  // string
	Bytes                   // []byte
	Array                   // []any
	Map                     // map[string]any where the keys are strings, else []Entry
	Struct                  // *StructValue
)

var typeNames = [...]string{
	Int8: "int8", Int16: "int16", Int32: "int32", Int64: "int64", Float32: "float32", Float64: "float64",
	Boolean: "boolean", String: "string", Bytes: "bytes", Array: "array", Map: "map", Struct: "struct",
}

// String is Kafka Connect's name of the type, in lower case.
func (t Type) String() string {
	if int(t) < len(typeNames) && t > 0 {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// The names of Kafka Connect's own logical types.
const (
	Decimal   = "org.apache.kafka.connect.data.Decimal"   // Bytes: big-endian two's complement; parameter ScaleKey
	Date      = "org.apache.kafka.connect.data.Date"      // Int32: days since 1970
	Time      = "org.apache.kafka.connect.data.Time"      // Int32: milliseconds of the day
	Timestamp = "org.apache.kafka.connect.data.Timestamp" // Int64: milliseconds since 1970, UTC
)

// ScaleKey is the parameter of a Decimal that says how many of its digits stand behind the point.
const ScaleKey = "scale"

// Schema describes a value. It must not be changed once it is in use. A nil *Schema says nothing: the value is what it
// is, of the types that JSON has (nil, bool, int64, float64, string, []any, map[string]any), or []byte.
type Schema struct {
	Type       Type
	Optional   bool
	Name       string // "" if it has none
	Version    int    // 0 if it has none
	Doc        string
	Default    any // nil if it has none
	Parameters map[string]string
	Fields     []Field // of a Struct
	Key        *Schema // of a Map
	Elem       *Schema // of an Array or a Map: of its values

	index map[string]int // of Fields by name
}

// Field is a field of a struct.
type Field struct {
	Name   string
	Schema *Schema
}

// NewStruct makes the schema of a struct. Two fields of one name are an error of the caller, and the last is found.
func NewStruct(name string, fields ...Field) *Schema {
	s := &Schema{Type: Struct, Name: name, Fields: fields}
	s.Index()
	return s
}

// Index makes the fields be found fast. Whoever builds a struct's schema by hand calls it last, before the schema is
// shared.
func (s *Schema) Index() {
	s.index = make(map[string]int, len(s.Fields))
	for i := range s.Fields {
		s.index[s.Fields[i].Name] = i
	}
}

// Field is the place of a field by its name, -1 if there is none.
func (s *Schema) Field(name string) int {
	if s.index == nil {
		return slices.IndexFunc(s.Fields, func(f Field) bool { return f.Name == name })
	}
	if i, ok := s.index[name]; ok {
		return i
	}
	return -1
}

// Is says whether the schema is one of a logical type or has a name.
func (s *Schema) Is(name string) bool { return s != nil && s.Name == name }

// AsOptional is the schema, but optional.
func (s *Schema) AsOptional() *Schema {
	if s.Optional {
		return s
	}
	o := *s
	o.Optional = true
	return &o
}

// Equal says whether two schemas say the same of their values.
func (s *Schema) Equal(o *Schema) bool {
	if s == o {
		return true
	}
	if s == nil || o == nil || s.Type != o.Type || s.Optional != o.Optional || s.Name != o.Name ||
		s.Version != o.Version || s.Doc != o.Doc || !equalDefaults(s.Default, o.Default) ||
		!maps.Equal(s.Parameters, o.Parameters) || !s.Key.Equal(o.Key) || !s.Elem.Equal(o.Elem) {
		return false
	}
	return slices.EqualFunc(s.Fields, o.Fields, func(a, b Field) bool {
		return a.Name == b.Name && a.Schema.Equal(b.Schema)
	})
}
