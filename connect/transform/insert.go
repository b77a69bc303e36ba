package transform

import (
	"errors"
	"fmt"
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
	made      cache[*data.Schema]
}

// Apply implements plugin.Transform.
func (t *insertField) Apply(r *data.Record) (*data.Record, error) {
	s, v := t.part.get(r)
	switch x := v.(type) {
	case nil:
		return r, nil // a tombstone stays one
	case map[string]any:
		out := without(x, nil)
		for _, i := range t.insert {
			out[i.name] = i.value(r)
		}
		return t.part.set(r, s, out), nil
	case *data.StructValue:
		to, err := t.made.get(x.Schema, func() (*data.Schema, error) {
			fields := append([]data.Field(nil), x.Schema.Fields...)
			for _, i := range t.insert {
				fields = append(fields, data.Field{Name: i.name, Schema: i.schema})
			}
			return like(x.Schema, fields), nil
		})
		if err != nil {
			return nil, err
		}
		out := data.New(to)
		for i := range x.Values {
			out.Values[i] = read(&x.Schema.Fields[i], x.Values[i], t.orDefault)
		}
		for i, in := range t.insert {
			value := in.value(r)
			if value == nil && !in.schema.Optional {
				return nil, fmt.Errorf("InsertField: the record has nothing for the required field %q", in.name)
			}
			out.Values[len(x.Values)+i] = value
		}
		return t.part.set(r, to, out), nil
	}
	return nil, fmt.Errorf("InsertField: the %s is %s, and takes no fields", t.part, kindOf(v))
}
