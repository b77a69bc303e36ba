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
	made      cache[flat]
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
	s, v := t.part.get(r)
	switch x := v.(type) {
	case nil:
		return r, nil
	case map[string]any:
		out := map[string]any{}
		if err := t.flattenMap(out, "", x, 0); err != nil {
			return nil, err
		}
		return t.part.set(r, s, out), nil
	case *data.StructValue:
		f, err := t.made.get(x.Schema, func() (flat, error) { return t.flattenSchema(x.Schema) })
		if err != nil {
			return nil, err
		}
		out := data.New(f.schema)
		for i, way := range f.ways {
			out.Values[i] = t.follow(x, way)
		}
		return t.part.set(r, f.schema, out), nil
	}
	return nil, fmt.Errorf("flatten: the %s is %s, and has no fields", t.part, kindOf(v))
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
	var fields []data.Field
	var walk func(s *data.Schema, prefix string, way []int, optional bool) error
	walk = func(s *data.Schema, prefix string, way []int, optional bool) error {
		if len(way) > maxNested {
			return fmt.Errorf("flatten: the %s is nested deeper than %d structs", t.part, maxNested)
		}
		for i := range s.Fields {
			name, inner := t.name(prefix, s.Fields[i].Name), s.Fields[i].Schema
			here := append(append([]int(nil), way...), i)
			switch inner.Type {
			case data.Map:
				return fmt.Errorf("flatten: field %q of the %s is a map, which has no fields by its schema", name, t.part)
			case data.Struct:
				if err := walk(inner, name, here, optional || inner.Optional); err != nil {
					return err
				}
			default:
				if optional {
					inner = inner.AsOptional()
				}
				fields, f.ways = append(fields, data.Field{Name: name, Schema: inner}), append(f.ways, here)
			}
		}
		return nil
	}
	if err := walk(s, "", nil, false); err != nil {
		return f, err
	}
	f.schema = like(s, fields)
	return f, nil
}
