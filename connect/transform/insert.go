package transform

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

func insertFieldClass() class {
	form := " Behind the name, ! makes it a required field and ? an optional one, as it is by default."
	return class{
		name: kafka + "InsertField", both: true,
		defs: plugin.Defs{
			optional("topic.field", plugin.String, "The field for the topic."+form),
			optional("partition.field", plugin.String, "The field for the partition."+form),
			optional("offset.field", plugin.String, "The field for the offset; only in sinks."+form),
			optional("timestamp.field", plugin.String, "The field for the timestamp."+form),
			optional("static.field", plugin.String, "The field for a text that is always the same."+form),
			optional("static.value", plugin.String, "That text."), replaceNull(),
		},
		make: makeInsertField,
	}
}

// insertion is a field to insert. Its value is absent where the record does not have it.
type insertion struct {
	name   string
	schema *data.Schema
	value  func(r *data.Record) any
}

func makeInsertField(p part, s plugin.Settings) (plugin.Transform, error) {
	t := &insertField{part: p, orDefault: s.Bool(replaceNullKey)}
	add := func(key string, schema data.Schema, value func(r *data.Record) any) {
		name := s.String(key)
		if name == "" {
			return
		}
		schema.Optional = !strings.HasSuffix(name, "!")
		name = strings.TrimSuffix(strings.TrimSuffix(name, "!"), "?")
		t.insert = append(t.insert, insertion{name, &schema, value})
	}
	add("topic.field", data.Schema{Type: data.String}, func(r *data.Record) any { return r.Topic })
	add("partition.field", data.Schema{Type: data.Int32}, func(r *data.Record) any {
		if r.Partition == data.AnyPartition {
			return nil
		}
		return r.Partition
	})
	add("offset.field", data.Schema{Type: data.Int64}, func(r *data.Record) any {
		if r.Offset < 0 {
			return nil
		}
		return r.Offset
	})
	add("timestamp.field", data.Schema{Type: data.Int64, Name: data.Timestamp, Version: 1}, func(r *data.Record) any {
		if r.Timestamp == data.NoTimestamp {
			return nil
		}
		return r.Timestamp
	})
	text := s.String("static.value")
	add("static.field", data.Schema{Type: data.String}, func(*data.Record) any { return text })
	if _, given := s.Given("static.value"); s.String("static.field") != "" && !given {
		return nil, errors.New("static.value: static.field has no value")
	}
	if len(t.insert) == 0 {
		return nil, errors.New("InsertField: no field is named; set one of topic.field, partition.field, offset.field, " +
			"timestamp.field or static.field")
	}
	return t, nil
}

// insertField adds fields of what the record is.
type insertField struct {
	part      part
	insert    []insertion
	orDefault bool
	made      structs
}

// Apply implements plugin.Transform.
func (t *insertField) Apply(r *data.Record) (*data.Record, error) {
	x, m, err := t.part.object(r, "InsertField")
	switch {
	case x != nil:
		return t.ofStruct(r, x)
	case m == nil:
		return r, err // a tombstone stays one
	}
	out := maps.Clone(m)
	for _, in := range t.insert {
		if v := in.value(r); v != nil {
			out[in.name] = v
		}
	}
	return t.part.set(r, nil, out), nil
}

func (t *insertField) ofStruct(r *data.Record, x *data.StructValue) (*data.Record, error) {
	to, err := t.made.get(x.Schema, func() (*data.Schema, error) {
		fields := slices.Clone(x.Schema.Fields)
		for _, in := range t.insert {
			fields = append(fields, data.Field{Name: in.name, Schema: in.schema})
		}
		return like(x.Schema, fields)
	})
	if err != nil {
		return nil, fmt.Errorf("InsertField: %w", err)
	}
	out := &data.StructValue{Schema: to, Values: valuesOf(x, t.orDefault)}
	for _, in := range t.insert {
		v := in.value(r)
		if v == nil && !in.schema.Optional {
			return nil, fmt.Errorf("InsertField: the record has nothing for the required field %q", in.name)
		}
		out.Values = append(out.Values, v)
	}
	return t.part.set(r, to, out), nil
}
