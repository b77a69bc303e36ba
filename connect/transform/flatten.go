package transform

import (
	"fmt"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

func flattenClass() class {
	return class{
		name: kafka + "Flatten", both: true,
		defs: plugin.Defs{
			def("delimiter", plugin.String, ".", "What stands between the names of nested fields."), replaceNull(),
		},
		make: func(p part, s plugin.Settings) (plugin.Transform, error) {
			delimiter := "."
			if v, given := s.Given("delimiter"); given {
				delimiter = v
			}
			return &flatten{part: p, delimiter: delimiter, orDefault: s.Bool(replaceNullKey)}, nil
		},
	}
}

// flatten makes nested fields fields.
type flatten struct {
	part      part
	delimiter string
	orDefault bool
	made      cache[*data.Schema, flat]
}

// flat is a schema without structs in it, with the way to each of its fields in the old one.
type flat struct {
	schema *data.Schema
	ways   [][]int
}

// maxNested bounds how deep structs and maps are flattened.
const maxNested = 100

// Apply implements plugin.Transform.
func (t *flatten) Apply(r *data.Record) (*data.Record, error) {
	x, m, err := t.part.object(r, "flatten")
	switch {
	case x == nil && m == nil:
		return r, err
	case x == nil:
		out := map[string]any{}
		if err := t.flattenMap(out, "", m, 0); err != nil {
			return nil, err
		}
		return t.part.set(r, nil, out), nil
	}
	f, err := t.made.get(x.Schema, func() (flat, error) { return t.flattenSchema(x.Schema) })
	if err != nil {
		return nil, fmt.Errorf("flatten: the %s: %w", t.part, err)
	}
	out := data.New(f.schema)
	for i, way := range f.ways {
		out.Values[i] = t.follow(x, way)
	}
	return t.part.set(r, f.schema, out), nil
}

func (t *flatten) follow(x *data.StructValue, way []int) any {
	for _, i := range way[:len(way)-1] {
		inner, ok := x.Values[i].(*data.StructValue)
		if !ok {
			return nil
		}
		x = inner
	}
	last := way[len(way)-1]
	return read(&x.Schema.Fields[last], x.Values[last], t.orDefault)
}

func (t *flatten) name(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + t.delimiter + name
}

func (t *flatten) flattenMap(out map[string]any, prefix string, m map[string]any, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("flatten: the %s is nested deeper than %d maps", t.part, maxNested)
	}
	for name, v := range m {
		inner, ok := v.(map[string]any)
		if !ok {
			out[t.name(prefix, name)] = v
			continue
		}
		if err := t.flattenMap(out, t.name(prefix, name), inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (t *flatten) flattenSchema(s *data.Schema) (f flat, err error) {
	b := flattening{flatten: t}
	preset, _ := s.Default.(*data.StructValue)
	if err := b.walk(s, "", nil, s.Optional, preset); err != nil {
		return f, err
	}
	f.ways = b.ways
	f.schema, err = like(s, b.fields)
	return f, err
}

// flattening is a schema that is being made flat.
type flattening struct {
	*flatten
	fields []data.Field
	ways   [][]int
}

// walk adds the fields of a struct. They may be null where the struct may be, and its default has theirs.
func (b *flattening) walk(s *data.Schema, prefix string, way []int, optional bool, preset *data.StructValue) error {
	if len(way) > maxNested {
		return fmt.Errorf("it is nested deeper than %d structs", maxNested)
	}
	for i := range s.Fields {
		name, inner := b.name(prefix, s.Fields[i].Name), *s.Fields[i].Schema
		here := append(append([]int(nil), way...), i)
		inner.Optional = inner.Optional || optional
		if inner.Default == nil && preset != nil {
			inner.Default, _ = preset.Get(s.Fields[i].Name)
		}
		switch inner.Type {
		case data.Map:
			return fmt.Errorf("field %q is a map, which has no fields by its schema", name)
		case data.Struct:
			def, _ := inner.Default.(*data.StructValue)
			if err := b.walk(&inner, name, here, inner.Optional, def); err != nil {
				return err
			}
		default:
			b.fields, b.ways = append(b.fields, data.Field{Name: name, Schema: &inner}), append(b.ways, here)
		}
	}
	return nil
}
