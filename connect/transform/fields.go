package transform

import (
	"errors"
	"fmt"
	"strings"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

func hoistFieldClass() class {
	return class{
		name: kafka + "HoistField", both: true,
		defs: plugin.Defs{required("field", plugin.String, "The name of the one field of the struct or map that is made.")},
		make: func(p part, s plugin.Settings) (plugin.Transform, error) {
			name := s.String("field")
			var made structs
			return func1(func(r *data.Record) (*data.Record, error) {
				schema, v := p.get(r)
				if schema == nil {
					return p.set(r, nil, map[string]any{name: v}), nil
				}
				to, err := made.get(schema, func() (*data.Schema, error) {
					return data.NewStruct("", data.Field{Name: name, Schema: schema}), nil
				})
				return p.set(r, to, data.New(to).Set(name, v)), err
			}), nil
		},
	}
}

func extractFieldClass() class {
	version := def("field.syntax.version", plugin.String, "V1",
		"V1: the field's name as it is. V2: a path with points; backticks quote a name that has points.")
	version.Values = []string{"V1", "V2"}
	return class{
		name: kafka + "ExtractField", both: true,
		defs: plugin.Defs{required("field", plugin.String, "The field to take."), version, replaceNull()},
		make: func(p part, s plugin.Settings) (plugin.Transform, error) {
			path, err := fieldPath(s.String("field"), s.String("field.syntax.version"))
			t := &extractField{part: p, path: path, orDefault: s.Bool(replaceNullKey)}
			return t, err
		},
	}
}

// fieldPath is the steps to a field.
func fieldPath(text, version string) (path []string, err error) {
	if !strings.EqualFold(version, "V2") {
		return []string{text}, nil
	}
	for rest := text; ; {
		var step string
		if step, rest, err = fieldStep(rest); err != nil {
			return nil, fmt.Errorf("field %q: %w", text, err)
		}
		if path = append(path, step); rest == "" {
			return path, nil
		}
		rest = rest[1:] // the point
	}
}

// fieldStep reads a step of a path up to the point behind it.
func fieldStep(text string) (step, rest string, err error) {
	if !strings.HasPrefix(text, "`") {
		if i := strings.IndexByte(text, '.'); i >= 0 {
			return text[:i], text[i:], nil
		}
		return text, "", nil
	}
	for i := 1; i < len(text); i++ {
		if text[i] != '`' || text[i-1] == '\\' || i+1 < len(text) && text[i+1] != '.' {
			continue // a backtick inside a name stands there, with a backslash or without
		}
		return strings.ReplaceAll(text[1:i], "\\`", "`"), text[i+1:], nil
	}
	return "", "", errors.New("a backtick has no end")
}

// extractField takes a field in place of all.
type extractField struct {
	part      part
	path      []string
	orDefault bool
}

// Apply implements plugin.Transform.
func (t *extractField) Apply(r *data.Record) (*data.Record, error) {
	s, v := t.part.get(r)
	for i, step := range t.path {
		switch x := v.(type) {
		case *data.StructValue:
			at := x.Schema.Field(step)
			if at < 0 {
				return nil, fmt.Errorf("ExtractField: the %s has no field %q", t.part, strings.Join(t.path[:i+1], "."))
			}
			f := &x.Schema.Fields[at]
			s, v = f.Schema, read(f, x.Values[at], t.orDefault)
		case map[string]any:
			if s != nil {
				return nil, t.lacks(v, step)
			}
			v = x[step]
		case nil:
			return t.part.set(r, t.nullSchema(s, t.path[i:]), nil), nil
		default:
			return nil, t.lacks(v, step)
		}
	}
	return t.part.set(r, s, v), nil
}

func (t *extractField) lacks(v any, step string) error {
	return fmt.Errorf("ExtractField: the %s is %s where it should have a field %q", t.part, kindOf(v), step)
}

// nullSchema is the schema of a field of a null.
func (t *extractField) nullSchema(s *data.Schema, path []string) *data.Schema {
	for _, step := range path {
		if s == nil || s.Type != data.Struct || s.Field(step) < 0 {
			return nil
		}
		s = s.Fields[s.Field(step)].Schema
	}
	return s
}

func valueToKeyClass() class {
	return class{
		name: kafka + "ValueToKey",
		defs: plugin.Defs{required("fields", plugin.List, "The fields of the value that make the key."), replaceNull()},
		make: func(_ part, s plugin.Settings) (plugin.Transform, error) {
			return &valueToKey{fields: s.List("fields"), orDefault: s.Bool(replaceNullKey)}, nil
		},
	}
}

// valueToKey makes a key of fields of the value.
type valueToKey struct {
	fields    []string
	orDefault bool
	keys      structs
}

// Apply implements plugin.Transform.
func (t *valueToKey) Apply(r *data.Record) (*data.Record, error) {
	x, m, err := valuePart.object(r, "ValueToKey")
	switch {
	case err != nil:
		return nil, err
	case m != nil:
		key := make(map[string]any, len(t.fields))
		for _, name := range t.fields {
			key[name] = m[name]
		}
		return keyPart.set(r, nil, key), nil
	case x == nil:
		return nil, errors.New("ValueToKey: the value is null, and has no fields")
	}
	s, err := t.keys.get(x.Schema, func() (*data.Schema, error) { return t.keySchema(x.Schema) })
	if err != nil {
		return nil, fmt.Errorf("ValueToKey: the value %w", err)
	}
	return keyPart.set(r, s, pickFields(s, x, t.orDefault)), nil
}

func (t *valueToKey) keySchema(s *data.Schema) (*data.Schema, error) {
	var fields []data.Field
	for _, name := range t.fields {
		i := s.Field(name)
		if i < 0 {
			return nil, fmt.Errorf("has no field %q", name)
		}
		fields = append(fields, s.Fields[i])
	}
	return data.NewStruct("", fields...), nil
}

func setSchemaMetadataClass() class {
	return class{
		name: kafka + "SetSchemaMetadata", both: true,
		defs: plugin.Defs{
			optional("schema.name", plugin.String, "The schema's new name."),
			optional("schema.version", plugin.Int, "The schema's new version."), replaceNull(),
		},
		make: func(p part, s plugin.Settings) (plugin.Transform, error) {
			_, named := s.Given("schema.name")
			_, versioned := s.Given("schema.version")
			if !named && !versioned {
				return nil, errors.New("SetSchemaMetadata: neither schema.name nor schema.version is given")
			}
			name, number, orDefault := s.String("schema.name"), s.Int("schema.version"), s.Bool(replaceNullKey)
			var made structs
			return func1(func(r *data.Record) (*data.Record, error) {
				schema, v := p.get(r)
				if schema == nil {
					if v == nil {
						return r, nil
					}
					return nil, fmt.Errorf("SetSchemaMetadata: the %s has no schema", p)
				}
				to, err := made.get(schema, func() (*data.Schema, error) {
					o := *schema
					if named {
						o.Name = name
					}
					if versioned {
						o.Version = number
					}
					return &o, nil
				})
				if x, ok := v.(*data.StructValue); ok {
					v = &data.StructValue{Schema: to, Values: valuesOf(x, orDefault)}
				}
				return p.set(r, to, v), err
			}), nil
		},
	}
}
