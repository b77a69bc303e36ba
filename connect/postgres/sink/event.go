package sink

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// operation is what a record asks for.
type operation uint8

const (
	opWrite operation = iota
	opDelete
	opTruncate
	opSkip // nothing: a message of the source, or what the settings pass over
)

// event is a record taken apart.
type event struct {
	op     operation
	schema *data.Schema // of row; nil: it has none, or there is no row
	row    any          // *data.StructValue, map[string]any, or the one value there is; nil of a deletion
	source any          // the source block of a change event, nil of other records
}

// envelope says where the parts of a change event are in its struct.
type envelope struct{ op, after, source int }

// envelopeOf is where the parts of a change event are; nil: values of the schema are no change events.
func envelopeOf(s *data.Schema) *envelope {
	if s.Type != data.Struct {
		return nil
	}
	e := envelope{s.Field("op"), s.Field("after"), s.Field("source")}
	if e.op < 0 || e.source < 0 || e.after < 0 && s.Field("message") < 0 || s.Fields[e.op].Schema.Type != data.String {
		return nil
	}
	return &e
}

// event takes a record apart. An error is the record's own fault.
func (c *config) event(r *plugin.SinkRecord, envelopes *cache[*data.Schema, *envelope]) (ev event, err error) {
	switch v := r.Value.(type) {
	case nil:
		switch {
		case c.deletes:
			return event{op: opDelete}, nil
		case c.ignoreNull:
			return event{op: opSkip}, nil
		}
		return ev, fmt.Errorf("the value is null, which needs %s=true", keyDelete)
	case *data.StructValue:
		e := envelopes.get(v.Schema, func() *envelope { return envelopeOf(v.Schema) })
		if e == nil {
			return event{schema: v.Schema, row: v}, nil
		}
		ev.source = v.Values[e.source]
		if e.after >= 0 {
			ev.row = v.Values[e.after]
		}
		op, _ := v.Values[e.op].(string)
		return ev, c.change(&ev, op)
	case map[string]any:
		op, isOp := v["op"].(string)
		source, isChange := v["source"].(map[string]any)
		after, hasAfter := v["after"]
		if r.ValueSchema != nil || !isOp || !isChange || !hasAfter && op != "m" {
			if r.ValueSchema != nil {
				return ev, fmt.Errorf("a value of type %s is no row", describe(r.ValueSchema))
			}
			return event{row: v}, nil
		}
		ev.source, ev.row = source, after
		return ev, c.change(&ev, op)
	case string:
		return event{schema: r.ValueSchema, row: v}, nil
	}
	return ev, fmt.Errorf("a value of type %T is no row: it must be a struct, a map or text", r.Value)
}

// change completes the event of a change.
func (c *config) change(ev *event, op string) error {
	switch op {
	case "c", "r", "u":
		switch row := ev.row.(type) {
		case *data.StructValue:
			ev.schema = row.Schema
		case map[string]any:
		default:
			return fmt.Errorf("a change event of operation %q has no row after it", op)
		}
		return nil
	case "d":
		ev.op, ev.row = opDelete, nil
		if !c.deletes {
			ev.op = opSkip
		}
		return nil
	case "t":
		ev.op, ev.row = opTruncate, nil
		if !c.truncates {
			ev.op = opSkip
		}
		return nil
	case "m":
		ev.op = opSkip
		return nil
	}
	return fmt.Errorf("a change event's operation %q is not known", op)
}

// sourceField is a field of a change event's origin, as text.
func (ev *event) sourceField(name string) (string, bool) {
	var v any
	switch s := ev.source.(type) {
	case *data.StructValue:
		v, _ = s.Get(name)
	case map[string]any:
		v = s[name]
	}
	if v == nil {
		return "", false
	}
	return fmt.Sprint(v), true
}

// unavailableHeader lists the columns whose values did not change and were not sent.
const unavailableHeader = "__unavailable"

// movedHeader is on a row that had another key before, and names that.
const movedHeader = "__debezium.oldkey"

func hasMoved(r *plugin.SinkRecord) bool {
	return slices.ContainsFunc(r.Headers, func(h data.Header) bool { return h.Name == movedHeader })
}

// unavailable is the set of columns that a record leaves alone, nil if there are none.
func unavailable(r *plugin.SinkRecord) map[string]bool {
	var set map[string]bool
	add := func(name string) {
		if set == nil {
			set = map[string]bool{}
		}
		set[strings.TrimSpace(name)] = true
	}
	for i := range r.Headers {
		if r.Headers[i].Name != unavailableHeader {
			continue
		}
		switch v := r.Headers[i].Value.(type) {
		case []any:
			for _, n := range v {
				add(fmt.Sprint(n))
			}
		case []byte:
			addNames(string(v), add)
		case string:
			addNames(v, add)
		}
	}
	return set
}

// addNames takes a JSON array of names, or names with commas between them.
func addNames(text string, add func(string)) {
	var names []string
	if json.Unmarshal([]byte(text), &names) != nil {
		names = strings.Split(text, ",")
	}
	for _, n := range names {
		add(n)
	}
}

// origin is where a field's value is.
type origin uint8

const (
	fromValue origin = iota // a field of the row
	fromRow                 // the row itself, which is no struct
	fromKey                 // a field of the record's key
	fromKeyWhole
	fromTopic
	fromPartition
	fromOffset
	fromHeader
)

// field is a column that records of a layout have.
type field struct {
	name   string // of the field
	column string
	schema *data.Schema // nil: each value has to be looked at
	from   origin
	index  int // in the struct it is from
	key    bool
}

// layout is which columns records of one form have, those of the key first. It does not depend on the table.
type layout struct {
	fields []field
	loose  bool // fields of the row have no schema
}

// forms is what tells layouts apart.
type forms struct {
	op         operation
	value, key *data.Schema
	nullKey    bool
	names      string // of fields without a schema
}

func (c *config) forms(r *plugin.SinkRecord, ev *event) forms {
	f := forms{op: ev.op, value: ev.schema, key: r.KeySchema, nullKey: r.Key == nil}
	if key, ok := r.Key.(*data.StructValue); ok {
		f.key = key.Schema
	}
	b := strings.Builder{}
	addMap := func(v any) {
		if m, ok := v.(map[string]any); ok {
			for _, k := range slices.Sorted(maps.Keys(m)) {
				b.WriteString(k)
				b.WriteByte(0)
			}
			b.WriteByte(1)
		}
	}
	addMap(ev.row)
	addMap(r.Key)
	if c.pkMode == pkHeader {
		for i := range r.Headers {
			b.WriteString(r.Headers[i].Name)
			b.WriteByte(0)
			if s := r.Headers[i].Schema; s != nil {
				b.WriteString(describe(s))
			}
			b.WriteByte(0)
		}
	}
	f.names = b.String()
	return f
}

// layout says which columns a record has. An error is the record's own fault.
func (c *config) layout(r *plugin.SinkRecord, ev *event) (*layout, error) {
	l := &layout{}
	if err := c.keyFields(l, r, ev); err != nil {
		return nil, err
	}
	if ev.op == opDelete {
		return l, nil
	}
	taken := map[string]bool{}
	for i := range l.fields {
		taken[l.fields[i].column] = true
	}
	for _, f := range c.rowFields(ev) {
		if taken[f.column] || !c.wants(f.name) {
			continue
		}
		taken[f.column] = true
		l.fields = append(l.fields, f)
	}
	if _, isMap := ev.row.(map[string]any); isMap {
		l.loose = true
	}
	if len(l.fields) == 0 {
		return nil, fmt.Errorf("no field of the record becomes a column")
	}
	return l, nil
}

// rowFields are the fields of a row, in order.
func (c *config) rowFields(ev *event) (out []field) {
	switch row := ev.row.(type) {
	case *data.StructValue:
		for i := range row.Schema.Fields {
			f := &row.Schema.Fields[i]
			s := f.Schema
			if c.stamps[f.Name] && s.Type == data.Int64 && s.Name == "" {
				stamp := *s
				stamp.Name = c.stampType
				s = &stamp
			}
			out = append(out, field{name: f.Name, column: c.column(f.Name), schema: s, from: fromValue, index: i})
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(row)) {
			out = append(out, field{name: k, column: c.column(k), from: fromValue})
		}
	default:
		out = append(out, field{name: c.stringColumn, column: c.column(c.stringColumn), schema: ev.schema, from: fromRow})
	}
	return out
}

// keyFields adds the columns of the key.
func (c *config) keyFields(l *layout, r *plugin.SinkRecord, ev *event) error {
	switch c.pkMode {
	case pkKafka:
		names := []string{"__connect_topic", "__connect_partition", "__connect_offset"}
		if len(c.pkFields) == 3 {
			names = c.pkFields
		}
		types := []data.Type{data.String, data.Int32, data.Int64}
		for i, n := range names {
			l.fields = append(l.fields, field{name: n, column: c.column(n), schema: &data.Schema{Type: types[i]},
				from: fromTopic + origin(i), key: true})
		}
		return nil
	case pkKey:
		return c.recordKey(l, r)
	case pkHeader:
		for _, n := range c.pkFields {
			i := slices.IndexFunc(r.Headers, func(h data.Header) bool { return h.Name == n })
			if i < 0 {
				return fmt.Errorf("there is no header %q, which the key is taken from", n)
			}
			l.fields = append(l.fields, field{name: n, column: c.column(n), schema: r.Headers[i].Schema, from: fromHeader,
				key: true})
		}
		return nil
	case pkValue:
		for _, f := range c.rowFields(ev) {
			if c.primary(f.name) {
				f.key = true
				l.fields = append(l.fields, f)
			}
		}
		return c.allThere(l, "value")
	}
	return nil
}

func (c *config) recordKey(l *layout, r *plugin.SinkRecord) error {
	switch key := r.Key.(type) {
	case nil:
		n := namesOf(c.class)
		return fmt.Errorf("the key is null, and %s=record_key: give the source's table a key, or its connector "+
			"message.key.columns, or set %s=none and insert.mode=insert", n.pkMode, n.pkMode)
	case *data.StructValue:
		for i := range key.Schema.Fields {
			f := &key.Schema.Fields[i]
			if c.primary(f.Name) {
				l.fields = append(l.fields, field{name: f.Name, column: c.column(f.Name), schema: f.Schema, from: fromKey,
					index: i, key: true})
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(key)) {
			if c.primary(k) {
				l.fields = append(l.fields, field{name: k, column: c.column(k), from: fromKey, key: true})
			}
		}
	default:
		if len(c.pkFields) != 1 {
			return fmt.Errorf("the key is a %T and no struct, which takes exactly one name in %s", key,
				namesOf(c.class).pkFields)
		}
		n := c.pkFields[0]
		l.fields = append(l.fields, field{name: n, column: c.column(n), schema: r.KeySchema, from: fromKeyWhole, key: true})
	}
	return c.allThere(l, "key")
}

// allThere checks that the fields of the primary key were found.
func (c *config) allThere(l *layout, where string) error {
	for _, name := range c.pkFields {
		if !slices.ContainsFunc(l.fields, func(f field) bool { return f.name == name }) {
			return fmt.Errorf("the %s has no field %q, which %s names", where, name, namesOf(c.class).pkFields)
		}
	}
	if len(l.fields) == 0 {
		return fmt.Errorf("the %s has no fields to make a primary key of", where)
	}
	return nil
}

// value is a field's value in a record.
func (f *field) value(r *plugin.SinkRecord, ev *event) any {
	switch f.from {
	case fromValue:
		return member(ev.row, f)
	case fromRow:
		return ev.row
	case fromKey:
		return member(r.Key, f)
	case fromKeyWhole:
		return r.Key
	case fromTopic:
		return r.Origin.Topic
	case fromPartition:
		return r.Origin.Partition
	case fromOffset:
		return r.Origin.Offset
	case fromHeader:
		for i := range r.Headers {
			if r.Headers[i].Name == f.name {
				return r.Headers[i].Value
			}
		}
	}
	return nil
}

func member(v any, f *field) any {
	switch s := v.(type) {
	case *data.StructValue:
		return s.Values[f.index]
	case map[string]any:
		return s[f.name]
	}
	return nil
}

// cache keeps what is made of keys, and forgets all when it is full: what is in use comes back at once.
type cache[K comparable, V any] struct {
	m    map[K]V
	most int
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{m: map[K]V{}, most: most}
}

func (c *cache[K, V]) get(k K, make func() V) V {
	v, ok := c.m[k]
	if !ok {
		if len(c.m) >= c.most {
			clear(c.m)
		}
		v = make()
		c.m[k] = v
	}
	return v
}
