// Package avro is Avro as the schema registry needs it: it reads and prints schemas exactly as Avro for Java 1.12 does
// (so that identities agree with those of other registries), says how two schemas differ and whether data passes from
// one to the other, and translates data between Avro's binary encoding and its JSON encoding.
//
// Everything about the text of schemas is the package's own. hamba/avro, which only this package imports, reads and
// writes the values on the wire: its own parser would refuse schemas that are valid, drop what the stored form must
// keep, and share one cache between all callers. Before it reads a byte, a walk along the schema has checked every
// length, count and index of the value.
//
// The package is pure and keeps no state. Package schemaregistry calls it, through the interfaces of package schema.
package avro

import (
	hamba "github.com/hamba/avro/v2"

	"millrace/schemaregistry/schema"
)

// Limits bound what texts and values may cost. Zero fields take the defaults.
type Limits struct {
	TextBytes    int // of a schema; its dependencies together may have four times as much. Default 1 MiB
	Depth        int // of nesting in a text, as read and as printed. Default 500
	Nodes        int // JSON values of a text; types and fields of a schema and its dependencies. Default 100,000
	CompareSteps int // of one comparison. Default 1,000,000
	ValueDepth   int // of nesting in a value. Default 200
	OutputBytes  int // of one translated value. Default 64 MiB
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field *int
		value int
	}{
		{&l.TextBytes, 1 << 20},
		{&l.Depth, 500},
		{&l.Nodes, 100_000},
		{&l.CompareSteps, 1_000_000},
		{&l.ValueDepth, 200},
		{&l.OutputBytes, 64 << 20},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return l
}

// Format implements schema.Format.
type Format struct {
	limits Limits
	wire   hamba.API
}

// New makes a format with limits.
func New(l Limits) *Format {
	l = l.withDefaults()
	return &Format{l, hamba.Config{MaxByteSliceSize: l.OutputBytes, MaxSliceAllocSize: l.OutputBytes}.Freeze()}
}

// Parse implements schema.Format. Dependencies are stored schemas and never read strictly.
func (f *Format) Parse(text string, deps []schema.Dependency, o schema.ParseOptions) (schema.Schema, error) {
	s, err := f.parse(text, deps, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}
