package transform

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
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
	made             cache[*data.Schema, replaced]
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
	x, m, err := t.part.object(r, "ReplaceField")
	switch {
	case x == nil && m == nil:
		return r, err
	case x == nil:
		out := make(map[string]any, len(m))
		for _, name := range slices.Sorted(maps.Keys(m)) {
			to := t.renamed(name)
			if _, taken := out[to]; t.keeps(name) && (to != name || !taken) { // a name that is given to another goes
				out[to] = m[name]
			}
		}
		return t.part.set(r, nil, out), nil
	}
	to, err := t.made.get(x.Schema, func() (replaced, error) { return t.schema(x.Schema) })
	if err != nil {
		return nil, fmt.Errorf("ReplaceField: %w", err)
	}
	out := data.New(to.schema)
	for i, from := range to.from {
		out.Values[i] = read(&to.schema.Fields[i], x.Values[from], t.orDefault)
	}
	return t.part.set(r, to.schema, out), nil
}

func (t *replaceField) schema(s *data.Schema) (m replaced, err error) {
	var fields []data.Field
	for i := range s.Fields {
		if f := s.Fields[i]; t.keeps(f.Name) {
			fields = append(fields, data.Field{Name: t.renamed(f.Name), Schema: f.Schema})
			m.from = append(m.from, i)
		}
	}
	m.schema, err = like(s, fields)
	return m, err
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
	x, m, err := t.part.object(r, "MaskField")
	switch {
	case x == nil && m == nil:
		return r, err
	case x == nil:
		out := maps.Clone(m)
		for _, name := range t.fields {
			if out[name], err = t.mask(nil, m[name]); err != nil {
				return nil, fmt.Errorf("MaskField: field %q: %w", name, err)
			}
		}
		return t.part.set(r, nil, out), nil
	}
	out := &data.StructValue{Schema: x.Schema, Values: valuesOf(x, t.orDefault)}
	for _, name := range t.fields {
		i := x.Schema.Field(name)
		if i < 0 {
			continue
		}
		if out.Values[i], err = t.mask(x.Schema.Fields[i].Schema, out.Values[i]); err != nil {
			return nil, fmt.Errorf("MaskField: field %q: %w", name, err)
		}
	}
	return t.part.set(r, x.Schema, out), nil
}

// mask is what stands in place of a value, whose schema may be nil.
func (t *maskField) mask(s *data.Schema, v any) (any, error) {
	switch kind := typeOf(v); {
	case v == nil:
		return nil, nil
	case t.with == "":
		return nothingOf(s, v)
	case s.Is(data.Decimal):
		return toDecimal(s, t.with)
	case kind == 0, kind == data.Boolean, kind == data.Bytes, s.Is(data.Date), s.Is(data.Time), s.Is(data.Timestamp):
		return nil, errors.New("a replacement stands only for numbers and texts")
	default:
		return castTo(kind, nil, t.with)
	}
}

// nothingOf is the value that says nothing, of the type of another one.
func nothingOf(s *data.Schema, v any) (any, error) {
	switch v.(type) {
	case string:
		return "", nil
	case []byte:
		if s.Is(data.Decimal) {
			return data.DecimalBytes(new(big.Int)), nil
		}
		return []byte{}, nil
	case []any:
		return []any{}, nil
	case map[string]any:
		return map[string]any{}, nil
	case []data.Entry:
		return []data.Entry{}, nil
	case *data.StructValue:
		return nil, errors.New("it is a struct, of which there is none that says nothing")
	}
	return castTo(typeOf(v), nil, false)
}
