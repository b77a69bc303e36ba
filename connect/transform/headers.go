package transform

import (
	"context"
	"fmt"
	"slices"

	"millrace/connect/convert"
	"millrace/connect/data"
	"millrace/connect/plugin"
)

func filterClass() class {
	return class{name: kafka + "Filter", make: func(part, plugin.Settings) (plugin.Transform, error) {
		return func1(func(*data.Record) (*data.Record, error) { return nil, nil }), nil
	}}
}

func dropHeadersClass() class {
	return class{
		name: kafka + "DropHeaders",
		defs: plugin.Defs{required("headers", plugin.List, "The names of the headers to drop.")},
		make: func(_ part, s plugin.Settings) (plugin.Transform, error) {
			names := s.List("headers")
			return func1(func(r *data.Record) (*data.Record, error) {
				r.Headers = slices.DeleteFunc(slices.Clone(r.Headers), func(h data.Header) bool {
					return slices.Contains(names, h.Name)
				})
				return r, nil
			}), nil
		},
	}
}

func insertHeaderClass() class {
	return class{
		name: kafka + "InsertHeader",
		defs: plugin.Defs{
			required("header", plugin.String, "The name of the header."),
			required("value.literal", plugin.String, "Its value: a number, a boolean, a date, JSON, or else text."),
		},
		make: func(_ part, s plugin.Settings) (plugin.Transform, error) {
			h, err := convert.NewHeader("SimpleHeaderConverter", nil, convert.Deps{})
			if err != nil {
				return nil, err
			}
			name := s.String("header")
			schema, v, err := h.DecodeHeader(context.Background(), "", name, []byte(s.String("value.literal")))
			if err != nil {
				return nil, err
			}
			return func1(func(r *data.Record) (*data.Record, error) {
				r.Headers = append(slices.Clip(r.Headers), data.Header{Name: name, Schema: schema, Value: v})
				return r, nil
			}), nil
		},
	}
}

func headerFromClass() class {
	operation := required("operation", plugin.String, "move takes the fields out of the record, copy leaves them there.")
	operation.Values = []string{"move", "copy"}
	return class{
		name: kafka + "HeaderFrom", both: true,
		defs: plugin.Defs{
			required("fields", plugin.List, "The names of the fields."),
			required("headers", plugin.List, "The names of the headers, as many as fields."), operation, replaceNull(),
		},
		make: func(p part, s plugin.Settings) (plugin.Transform, error) {
			t := &headerFrom{
				part: p, fields: s.List("fields"), headers: s.List("headers"), move: s.Lower("operation") == "move",
				orDefault: s.Bool(replaceNullKey),
			}
			if len(t.fields) != len(t.headers) {
				return nil, fmt.Errorf("headers: there are %d headers for %d fields", len(t.headers), len(t.fields))
			}
			return t, nil
		},
	}
}

// headerFrom puts fields into headers.
type headerFrom struct {
	part            part
	fields, headers []string
	move, orDefault bool
	without         structs // the fields
}

// Apply implements plugin.Transform.
func (t *headerFrom) Apply(r *data.Record) (*data.Record, error) {
	x, m, err := t.part.object(r, "HeaderFrom")
	switch {
	case x != nil:
		return t.ofStruct(r, x)
	case m == nil:
		return r, err
	}
	for i, name := range t.fields {
		r.Headers = append(slices.Clip(r.Headers), data.Header{Name: t.headers[i], Value: m[name]})
	}
	if t.move {
		m = without(m, t.fields)
	}
	return t.part.set(r, nil, m), nil
}

func (t *headerFrom) ofStruct(r *data.Record, x *data.StructValue) (*data.Record, error) {
	for i, name := range t.fields {
		at := x.Schema.Field(name)
		if at < 0 {
			return nil, fmt.Errorf("HeaderFrom: the %s has no field %q", t.part, name)
		}
		f := &x.Schema.Fields[at]
		r.Headers = append(slices.Clip(r.Headers),
			data.Header{Name: t.headers[i], Schema: f.Schema, Value: read(f, x.Values[at], t.orDefault)})
	}
	if !t.move {
		return r, nil
	}
	s, err := t.without.get(x.Schema, func() (*data.Schema, error) {
		return like(x.Schema, slices.DeleteFunc(slices.Clone(x.Schema.Fields), func(f data.Field) bool {
			return slices.Contains(t.fields, f.Name)
		}))
	})
	if err != nil {
		return nil, fmt.Errorf("HeaderFrom: %w", err)
	}
	return t.part.set(r, s, pickFields(s, x, t.orDefault)), nil
}

// pickFields is a struct of some of the fields of another one, which are read.
func pickFields(s *data.Schema, from *data.StructValue, orDefault bool) *data.StructValue {
	out := data.New(s)
	for i := range s.Fields {
		v, _ := from.Get(s.Fields[i].Name)
		out.Values[i] = read(&s.Fields[i], v, orDefault)
	}
	return out
}

// without is a map that lacks some keys.
func without(m map[string]any, names []string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		if !slices.Contains(names, k) {
			out[k] = v
		}
	}
	return out
}
