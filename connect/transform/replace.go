package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

func replaceFieldClass() class {
	renames := def("renames", plugin.List, "", "Pairs old:new of names.")
	renames.Check = func(v string) error { _, err := pairs(v); return err }
	return class{
		name: kafka + "ReplaceField", both: true,
		defs: plugin.Defs{
			def("exclude", plugin.List, "", "The fields to leave out. They go before include is looked at."),
			def("include", plugin.List, "", "The fields to keep; all if empty."), renames,
			def("blacklist", plugin.List, "", "An old name of exclude."),
			def("whitelist", plugin.List, "", "An old name of include."), replaceNull(),
		},
		make: func(p part, s plugin.Settings) (plugin.Transform, error) {
			to, err := pairs(s.String("renames"))
			return &replaceField{
				part: p, exclude: append(s.List("exclude"), s.List("blacklist")...),
				include: append(s.List("include"), s.List("whitelist")...), renames: to, orDefault: s.Bool(replaceNullKey),
			}, err
		},
	}
}

// pairs reads a list of a:b.
func pairs(list string) (map[string]string, error) {
	out := map[string]string{}
	for e := range strings.SplitSeq(list, ",") {
		if e = strings.TrimSpace(e); e == "" {
			continue
		}
		from, to, ok := strings.Cut(e, ":")
		if !ok || from == "" || to == "" {
			return nil, fmt.Errorf("%q is no pair old:new", e)
		}
		out[strings.TrimSpace(from)] = strings.TrimSpace(to)
	}
	return out, nil
}

// replaceField leaves out and renames fields.
type replaceField struct {
	part             part
	exclude, include []string
	renames          map[string]string
	orDefault        bool
	made             cache[replaced]
}

// replaced is the new schema, with the place of each field in the old one.
type replaced struct {
	schema *data.Schema
	from   []int
}

func (t *replaceField) keeps(name string) bool {
	return !slices.Contains(t.exclude, name) && (len(t.include) == 0 || slices.Contains(t.include, name))
}

func (t *replaceField) renamed(name string) string {
	if to, ok := t.renames[name]; ok {
		return to
	}
	return name
}

// Apply implements plugin.Transform.
func (t *replaceField) Apply(r *data.Record) (*data.Record, error) {
	s, v := t.part.get(r)
	switch x := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for name, e := range x {
			if t.keeps(name) {
				out[t.renamed(name)] = e
			}
		}
		return t.part.set(r, s, out), nil
	case *data.StructValue:
		m, err := t.made.get(x.Schema, func() (replaced, error) { return t.schema(x.Schema), nil })
		out := data.New(m.schema)
		for i, from := range m.from {
			out.Values[i] = read(&m.schema.Fields[i], x.Values[from], t.orDefault)
		}
		return t.part.set(r, m.schema, out), err
	case nil:
		if s == nil || s.Type != data.Struct {
			return r, nil
		}
		m, err := t.made.get(s, func() (replaced, error) { return t.schema(s), nil })
		return t.part.set(r, m.schema, nil), err
	}
	return nil, fmt.Errorf("ReplaceField: the %s is %s, and has no fields", t.part, kindOf(v))
}

func (t *replaceField) schema(s *data.Schema) (m replaced) {
	var fields []data.Field
	for i := range s.Fields {
		if f := s.Fields[i]; t.keeps(f.Name) {
			fields = append(fields, data.Field{Name: t.renamed(f.Name), Schema: f.Schema})
			m.from = append(m.from, i)
		}
	}
	m.schema = like(s, fields)
	return m
}

func maskFieldClass() class {
	return class{
		name: kafka + "MaskField", both: true,
		defs: plugin.Defs{
			required("fields", plugin.List, "The fields to mask."),
			optional("replacement", plugin.String, "What stands in place of numbers and texts; else 0 and the empty text."),
			replaceNull(),
		},
		make: func(p part, s plugin.Settings) (plugin.Transform, error) {
			with, given := s.Given("replacement")
			if given && with == "" {
				return nil, errors.New("replacement: it may not be empty")
			}
			return &maskField{part: p, fields: s.List("fields"), with: with, orDefault: s.Bool(replaceNullKey)}, nil
		},
	}
}

// maskField hides fields.
type maskField struct {
	part      part
	fields    []string
	with      string // "": a value of nothing
	orDefault bool
}

// Apply implements plugin.Transform.
func (t *maskField) Apply(r *data.Record) (*data.Record, error) {
	s, v := t.part.get(r)
	switch x := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for name, e := range x {
			if slices.Contains(t.fields, name) {
				masked, err := t.mask(name, e)
				if err != nil {
					return nil, err
				}
				e = masked
			}
			out[name] = e
		}
		return t.part.set(r, s, out), nil
	case *data.StructValue:
		out := &data.StructValue{Schema: x.Schema, Values: slices.Clone(x.Values)}
		for i := range x.Schema.Fields {
			f := &x.Schema.Fields[i]
			if !slices.Contains(t.fields, f.Name) {
				continue
			}
			masked, err := t.mask(f.Name, read(f, x.Values[i], t.orDefault))
			if err != nil {
				return nil, err
			}
			out.Values[i] = masked
		}
		return t.part.set(r, s, out), nil
	case nil:
		return r, nil
	}
	return nil, fmt.Errorf("MaskField: the %s is %s, and has no fields", t.part, kindOf(v))
}

func (t *maskField) mask(name string, v any) (any, error) {
	if t.with == "" {
		return nothingOf(v), nil
	}
	switch v.(type) {
	case int8, int16, int32, int64, float32, float64, string:
		out, err := castTo(typeOf(v), nil, t.with)
		if err != nil {
			return nil, fmt.Errorf("MaskField: field %q: %w", name, err)
		}
		return out, nil
	case nil:
		return nil, nil
	}
	return nil, fmt.Errorf("MaskField: field %q is %s, which a replacement cannot stand for", name, kindOf(v))
}

// nothingOf is the value that says nothing, of the type of another one.
func nothingOf(v any) any {
	switch v.(type) {
	case int8:
		return int8(0)
	case int16:
		return int16(0)
	case int32:
		return int32(0)
	case int64:
		return int64(0)
	case float32:
		return float32(0)
	case float64:
		return float64(0)
	case bool:
		return false
	case string:
		return ""
	case []byte:
		return []byte{0} // a Decimal is 0 too
	case []any:
		return []any{}
	case map[string]any:
		return map[string]any{}
	case []data.Entry:
		return []data.Entry{}
	}
	return nil
}
