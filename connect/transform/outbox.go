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
		"What is done about updates of the table, which shall have none: warn and error pass over them, fatal fails.")
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
	topic, err := expansion(s.String("route.topic.replacement"), p)
	if err != nil {
		return nil, fmt.Errorf("route.topic.replacement: %w", err)
	}
	more, err := placements(s.String("table.fields.additional.placement"))
	return &eventRouter{
		id: s.String("table.field.event.id"), key: s.String("table.field.event.key"),
		payload: s.String("table.field.event.payload"), timestamp: s.String("table.field.event.timestamp"),
		route: s.String("route.by.field"), pattern: p,
		topic: topic, tombstones: s.Bool("route.tombstone.on.empty.payload"),
		expand: s.Bool("table.expand.json.payload"), more: more, fatal: s.Lower("table.op.invalid.behavior") == "fatal",
	}, err
}

// eventRouter makes the rows of an outbox table events of many topics.
type eventRouter struct {
	id, key, payload, timestamp, route string
	pattern                            *regexp.Regexp
	topic                              string
	tombstones, expand, fatal          bool
	more                               []placed
	made                               cache[eventSchema, *data.Schema]
}

// eventSchema is what the schema of an event follows from: that of its row, and its topic.
type eventSchema struct {
	row   *data.Schema
	topic string
}

// Apply implements plugin.Transform.
func (t *eventRouter) Apply(r *data.Record) (*data.Record, error) {
	switch {
	case r.Value == nil:
		return nil, nil // it stands behind a delete
	case !isEnvelope(r.Value):
		return r, nil
	}
	switch _, op, _ := descend(r.Value, []string{"op"}); op {
	case "c", "r":
	case "u":
		if t.fatal {
			return nil, errors.New("EventRouter: a row of the outbox was updated; rows are only inserted and deleted")
		}
		return nil, nil
	default:
		return nil, nil
	}
	_, row, _ := descend(r.Value, []string{"after"})
	at, err := column(row, t.route)
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

func column(row any, name string) (c cell, err error) {
	var ok bool
	if c.schema, c.value, ok = descend(row, []string{name}); !ok {
		return c, fmt.Errorf("EventRouter: the row has no column %q", name)
	}
	return c, nil
}

// event makes the record of a row.
func (t *eventRouter) event(r *data.Record, row any, topic string) (*data.Record, error) {
	id, err := column(row, t.id)
	if err != nil {
		return nil, err
	}
	payload, err := column(row, t.payload)
	if err != nil {
		return nil, err
	}
	if r.Timestamp, err = t.time(r.Value, row); err != nil {
		return nil, err
	}
	r.Topic, r.Partition = topic, data.AnyPartition
	if key, err := column(row, t.key); err == nil && key.value != nil { // else it is the row's
		r.KeySchema, r.Key = key.schema, key.value
	}
	r.Headers = append(slices.Clip(r.Headers), data.Header{Name: "id", Schema: id.schema, Value: id.value})
	if payload, err = t.expanded(payload); err != nil {
		return nil, err
	}
	return t.place(r, row, payload)
}

// time is the timestamp of an event: that of its column or, without it, when the change was read.
func (t *eventRouter) time(envelope, row any) (int64, error) {
	if t.timestamp != "" {
		c, err := column(row, t.timestamp)
		if err != nil {
			return 0, err
		}
		n, number := intOf(c.value)
		switch {
		case c.value == nil:
		case !number:
			return 0, fmt.Errorf("EventRouter: column %q is %s, and no time", t.timestamp, kindOf(c.value))
		case c.schema.Is("io.debezium.time.MicroTimestamp"):
			return floorDiv(n, 1e3), nil
		case c.schema.Is("io.debezium.time.NanoTimestamp"):
			return floorDiv(n, 1e6), nil
		default:
			return n, nil
		}
	}
	_, v, _ := descend(envelope, []string{"ts_ms"})
	if n, ok := intOf(v); ok {
		return n, nil
	}
	return data.NoTimestamp, nil
}

// expanded is a payload with what its JSON says, where that is wanted and it is an object or an array.
func (t *eventRouter) expanded(payload cell) (cell, error) {
	text, ok := payload.value.(string)
	if !t.expand || !ok || !json.Valid([]byte(text)) || !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		return payload, nil // what is no JSON stays what it is
	}
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return payload, err
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
		c, err := column(row, p.column)
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
	text, isText := payload.value.(string)
	switch x, isStruct := row.(*data.StructValue); {
	case t.tombstones && (payload.value == nil || isText && strings.TrimSpace(text) == ""):
		return valuePart.set(r, nil, nil), nil
	case len(fields) == 1:
		return valuePart.set(r, payload.schema, payload.value), nil
	case isStruct && payload.schema != nil:
		s, err := t.made.get(eventSchema{x.Schema, r.Topic}, func() (*data.Schema, error) {
			return like(&data.Schema{Type: data.Struct, Name: r.Topic + ".Value"}, fields)
		})
		if err != nil {
			return nil, fmt.Errorf("EventRouter: %w", err)
		}
		return valuePart.set(r, s, &data.StructValue{Schema: s, Values: values}), nil
	}
	m := map[string]any{}
	for i := range fields {
		m[fields[i].Name] = values[i]
	}
	return valuePart.set(r, nil, m), nil
}
