package avro

import (
	"cmp"
	"slices"
	"strings"
)

// kind is one of Avro's types.
type kind uint8

const (
	kindNull kind = iota
	kindBoolean
	kindInt
	kindLong
	kindFloat
	kindDouble
	kindBytes
	kindString
	kindRecord
	kindEnum
	kindFixed
	kindArray
	kindMap
	kindUnion
)

// String is the kind as schemas spell it.
func (k kind) String() string {
	return [...]string{
		"null", "boolean", "int", "long", "float", "double", "bytes", "string",
		"record", "enum", "fixed", "array", "map", "union",
	}[k]
}

func (k kind) primitive() bool { return k <= kindString }
func (k kind) named() bool     { return k >= kindRecord && k <= kindFixed }

// kindOf finds the kind that schemas spell so.
func kindOf(name string) (kind, bool) {
	for k := range kindUnion + 1 {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}

// primitive finds the primitive type of a name.
func primitive(name string) (kind, bool) {
	k, ok := kindOf(name)
	return k, ok && k.primitive()
}

// node is a type. Nodes of one schema are a graph: a name is a pointer to the node that it names.
type node struct {
	kind    kind
	isError bool   // a record that is spelt "error"
	id      int    // counts from 0 in each schema, dependencies included
	minSize int    // no value has fewer bytes
	tag     string // what the type is called in a union

	name    typeName
	doc     *string
	aliases []typeName

	fields     []field
	fieldIndex map[string]int

	symbols       []string
	symbolIndex   map[string]int
	defaultSymbol *string

	size     int     // of fixed
	item     *node   // of array and map
	branches []*node // of union
	branch   map[string]int

	props   []member
	logical *logicalType // nil if there is none, or none that is valid here
}

// field is a field of a record.
type field struct {
	name    string
	key     []byte // the name as JSON, and a colon
	node    *node
	doc     *string
	def     *value
	order   string // empty if ascending
	aliases []string
	props   []member
}

// typeName is the name of a record, enum or fixed. A name without namespace has an empty space.
type typeName struct {
	space, name string
}

func (n typeName) full() string {
	if n.space == "" {
		return n.name
	}
	return n.space + "." + n.name
}

// nameIn reads a name that is written inside a namespace.
func nameIn(name, space string) typeName {
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		return typeName{name[:dot], name[dot+1:]}
	}
	return typeName{space, name}
}

// within is the name as it is written inside a namespace: as short as can be.
func (n typeName) within(space string) string {
	if n.space == "" || n.space != space {
		return n.full()
	}
	if _, taken := kindOf(n.name); taken {
		return n.full()
	}
	return n.name
}

// alias is the name as it is written among the aliases of a type in a namespace.
func (n typeName) alias(space string) string {
	if n.space == "" && space != "" {
		return "." + n.name
	}
	return n.within(space)
}

// prop is the property with a name, nil if there is none.
func prop(props []member, name string) *value {
	for i := range props {
		if props[i].name == name {
			return &props[i].value
		}
	}
	return nil
}

// ordered is the members, sorted by name if asked for.
func ordered(members []member, sorted bool) []member {
	if !sorted {
		return members
	}
	return slices.SortedFunc(slices.Values(members), func(a, b member) int { return cmp.Compare(a.name, b.name) })
}
