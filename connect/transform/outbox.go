package transform

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

func eventRouterClass() class {
	behavior := def("table.op.invalid.behavior", plugin.String, "warn",
		"What is done about updates of the table, which shall have none: warn passes over them, error and fatal fail.")
	behavior.Values = []string{"warn", "error", "fatal"}
	version := optional("table.field.event.schema.version", plugin.String, "The column of the schema's version.")
	version.Unused = "values keep the schema that they have"
	kind := def("table.field.event.type", plugin.String, "type", "The column of the event's type.")
	kind.Unused = "table.fields.additional.placement puts it where it is wanted"
	topic := def("route.topic.regex", plugin.String, "(?<routedByValue>.*)",
		"An expression that matches the value to route by.")
	topic.Check = isPattern
	placement := def("table.fields.additional.placement", plugin.List, "",
		"More columns to pass on: column:header, column:envelope or column:partition, and :name for another name.")
	placement.Check = func(v string) error { _, err := placements(v); return err }
	return class{
		name: "io.debezium.transforms.outbox.EventRouter",
		defs: plugin.Defs{
			def("table.field.event.id", plugin.String, "id", "The column of the event's id, which becomes the header id."),
			def("table.field.event.key", plugin.String, "aggregateid", "The column of the key."),
			def("table.field.event.payload", plugin.String, "payload", "The column of the value."),
			optional("table.field.event.timestamp", plugin.String, "The column of the timestamp; else it is the change's."),
			version, kind,
			def("route.by.field", plugin.String, "aggregatetype", "The column that says where an event goes."), topic,
			def("route.topic.replacement", plugin.String, "outbox.event.${routedByValue}", "The topic, made of it."),
			def("route.tombstone.on.empty.payload", plugin.Boolean, "false",
				"Whether an event without a payload is a tombstone."),
			def("table.expand.json.payload", plugin.Boolean, "false", "Whether a payload that is JSON is read as that."),
			def("table.json.payload.null.behavior", plugin.String, "ignore",
				"What is done about a null in JSON: ignore or optional_bytes; a null stays one either way."),
			placement, behavior,
		},
		make: makeEventRouter,
	}
}

// placed is a column that is passed on beside the payload.
type placed struct{ column, to, name string }

func placements(list string) (out []placed, err error) {
	for e := range strings.SplitSeq(list, ",") {
		if e = strings.TrimSpace(e); e == "" {
			continue
		}
		parts := strings.SplitN(e, ":", 3)
		if len(parts) < 2 || !slices.Contains([]string{"header", "envelope", "partition"}, parts[1]) {
			return nil, fmt.Errorf("%q is not of the form column:header, column:envelope or column:partition", e)
		}
		p := placed{parts[0], parts[1], parts[0]}
		if len(parts) == 3 {
			p.name = parts[2]
		}
		out = append(out, p)
	}
	return out, nil
}

func makeEventRouter(_ part, s plugin.Settings) (plugin.Transform, error) {
	p, err := whole(s.String("route.topic.regex"))
	if err != nil {
		return nil, err
	}
	more, err := placements(s.String("table.fields.additional.placement"))
	return &eventRouter{
		id: s.String("table.field.event.id"), key: s.String("table.field.event.key"),
		payload: s.String("table.field.event.payload"), timestamp: s.String("table.field.event.timestamp"),
		route: s.String("route.by.field"), pattern: p,
		topic: expansion(s.String("route.topic.replacement")), tombstones: s.Bool("route.tombstone.on.empty.payload"),
		expand: s.Bool("table.expand.json.payload"), more: more, strict: s.Lower("table.op.invalid.behavior") != "warn",
	}, err
}

// eventRouter makes the rows of an outbox table events of many topics.
type eventRouter struct {
	id, key, payload, timestamp, route string
	pattern                            *regexp.Regexp
	topic                              string
	tombstones, expand, strict         bool
	more                               []placed
}

// Apply implements plugin.Transform.
func (t *eventRouter) Apply(r *data.Record) (*data.Record, error) {
	if r.Value == nil || !isEnvelope(r.ValueSchema, r.Value) {
		if r.Value == nil {
			return nil, nil // it stands behind a delete
		}
		return r, nil
	}
	switch _, op, _ := descend(r.Value, []string{"op"}); op {
	case "c", "r":
	case "u":
		if t.strict {
			return nil, errors.New("EventRouter: a row of the outbox was updated; rows are only inserted and deleted")
		}
		return nil, nil
	default:
		return nil, nil
	}
	_, row, _ := descend(r.Value, []string{"after"})
	at, _, err := t.column(row, t.route)
	if err != nil {
		return nil, err
	}
	by, ok := at.value.(string)
	if !ok {
		return nil, fmt.Errorf("EventRouter: column %q is %s, and says no topic", t.route, kindOf(at.value))
	}
	return t.event(r, row, reroute(t.pattern, t.topic, by))
}

// cell is a value with its schema.
type cell struct {
	schema *data.Schema
	value  any
}

func (t *eventRouter) column(row any, name string) (c cell, ok bool, err error) {
	c.schema, c.value, ok = descend(row, []string{name})
	if !ok {
		return c, false, fmt.Errorf("EventRouter: the row has no column %q", name)
	}
	return c, true, nil
}

// event makes the record of a row.
func (t *eventRouter) event(r *data.Record, row any, topic string) (*data.Record, error) {
	id, _, err := t.column(row, t.id)
	if err != nil {
		return nil, err
	}
	payload, _, err := t.column(row, t.payload)
	if err != nil {
		return nil, err
	}
	r.Topic, r.Partition = topic, data.AnyPartition
	if key, ok, _ := t.column(row, t.key); ok {
		r.KeySchema, r.Key = key.schema, key.value
	}
	r.Headers = append(slices.Clip(r.Headers), data.Header{Name: "id", Schema: id.schema, Value: id.value})
	if c, ok, _ := t.column(row, t.timestamp); ok && t.timestamp != "" {
		if n, number := intOf(c.value); number {
			r.Timestamp = n
			if c.schema.Is("io.debezium.time.MicroTimestamp") {
				r.Timestamp = n / 1000
			}
		}
	}
	if payload, err = t.expanded(payload); err != nil {
		return nil, err
	}
	return t.place(r, row, payload)
}

// expanded is a payload with what its JSON says, where that is wanted.
func (t *eventRouter) expanded(payload cell) (cell, error) {
	text, ok := payload.value.(string)
	if !t.expand || !ok {
		return payload, nil
	}
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return payload, nil // it is no JSON, and stays what it is
	}
	out, err := plain(v)
	return cell{nil, out}, err
}

// plain makes what was read of JSON a value without a schema.
func plain(v any) (_ any, err error) {
	switch x := v.(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n, nil
		}
		return x.Float64()
	case []any:
		for i := range x {
			if x[i], err = plain(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range x {
			if x[k], err = plain(x[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// place makes the payload the value, and puts other columns where they are wanted.
func (t *eventRouter) place(r *data.Record, row any, payload cell) (*data.Record, error) {
	fields, values := []data.Field{{Name: "payload", Schema: payload.schema}}, []any{payload.value}
	for _, p := range t.more {
		c, _, err := t.column(row, p.column)
		if err != nil {
			return nil, err
		}
		switch p.to {
		case "header":
			r.Headers = append(slices.Clip(r.Headers), data.Header{Name: p.name, Schema: c.schema, Value: c.value})
		case "partition":
			n, ok := intOf(c.value)
			if !ok || n < 0 || n > 1<<31-1 {
				return nil, fmt.Errorf("EventRouter: column %q names no partition", p.column)
			}
			r.Partition = int32(n)
		default:
			fields, values = append(fields, data.Field{Name: p.name, Schema: c.schema}), append(values, c.value)
		}
	}
	if payload.value == nil && t.tombstones {
		r.ValueSchema, r.Value = nil, nil
		return r, nil
	}
	if len(fields) == 1 {
		r.ValueSchema, r.Value = payload.schema, payload.value
		return r, nil
	}
	if slices.ContainsFunc(fields, func(f data.Field) bool { return f.Schema == nil }) {
		m := map[string]any{}
		for i := range fields {
			m[fields[i].Name] = values[i]
		}
		r.ValueSchema, r.Value = nil, m
		return r, nil
	}
	r.ValueSchema = data.NewStruct(r.Topic+".Value", fields...)
	r.Value = &data.StructValue{Schema: r.ValueSchema, Values: values}
	return r, nil
}
