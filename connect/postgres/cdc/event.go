package cdc

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// The operations of events, and the marks of snapshots, boxed once.
var (
	opCreate, opUpdate, opDelete, opRead, opTruncate, opMessage any = "c", "u", "d", "r", "t", "m"

	markNone        any = "false"
	markFirst       any = "first"
	markFirstTable  any = "first_in_data_collection"
	markMore        any = "true"
	markLastTable   any = "last_in_data_collection"
	markLast        any = "last"
	markIncremental any = "incremental"

	boxedVersion   any = version
	boxedConnector any = "postgresql"
)

var (
	stringSchema = &data.Schema{Type: data.String}
	namesSchema  = &data.Schema{Type: data.Array, Elem: &data.Schema{Type: data.String}}
)

// events makes records. What it has made so far belongs to one poll.
type events struct {
	s         *settings
	now       func() time.Time
	name, db  any
	partition map[string]any
	context   []data.Header // on each record
	out       []*plugin.SourceRecord
	bytes     int // of the texts behind out

	records []plugin.SourceRecord
	structs []data.StructValue
	values  []any
}

func newEvents(s *settings, connector string, task int, now func() time.Time) *events {
	e := &events{s: s, now: now, name: s.prefix, db: s.database, partition: s.partition()}
	if s.headers {
		e.context = []data.Header{
			{Name: "__debezium.context.connectorLogicalName", Schema: stringSchema, Value: s.prefix},
			{Name: "__debezium.context.taskId", Schema: stringSchema, Value: strconv.Itoa(task)},
			{Name: "__debezium.context.connectorName", Schema: stringSchema, Value: "postgresql"},
		}
	}
	return e
}

// slab is how many records, and structs, are allocated at a time at most.
const slab = 1024

// piece is how many to allocate for so many of an event: as many as there are events in the poll already, so that
// small polls cost little and large ones few allocations.
func (e *events) piece(each int) int { return min(each*(2+len(e.out)), slab) }

// new makes a struct of nulls, out of a larger piece of memory.
func (e *events) new(schema *data.Schema) *data.StructValue {
	n := len(schema.Fields)
	if len(e.structs) == 0 {
		e.structs = make([]data.StructValue, e.piece(4))
	}
	if len(e.values) < n {
		e.values = make([]any, max(8*e.piece(4), n))
	}
	v := &e.structs[0]
	v.Schema, v.Values = schema, e.values[:n:n]
	e.structs, e.values = e.structs[1:], e.values[n:]
	return v
}

// add appends a record to the poll.
func (e *events) add(topic string, keySchema *data.Schema, key any, valueSchema *data.Schema,
	value any) *plugin.SourceRecord {
	if len(e.records) == 0 {
		e.records = make([]plugin.SourceRecord, e.piece(1))
	}
	r := &e.records[0]
	e.records = e.records[1:]
	r.Topic, r.Partition, r.Timestamp, r.Offset = topic, data.AnyPartition, data.NoTimestamp, -1
	r.KeySchema, r.Key, r.ValueSchema, r.Value = keySchema, key, valueSchema, value
	r.Headers = e.context
	r.Source.Partition = e.partition
	e.out = append(e.out, r)
	return r
}

// with adds headers to a record; those that records share stay as they are.
func with(r *plugin.SourceRecord, headers ...data.Header) {
	r.Headers = append(r.Headers[:len(r.Headers):len(r.Headers)], headers...)
}

// origin is what the events of one transaction, or of one snapshot, have in common.
type origin struct {
	xid                   any // int64; nil where there is none
	millis, micros, nanos any
	last                  string // the first part of sequence
	name, place           any    // of the replication origin
	mark                  any

	id      string // of the transaction, in its metadata
	total   int64
	counts  map[tableName]int64
	order   []tableName // in which counts was filled
	started bool        // its beginning is written
}

func newOrigin(xid any, at micros, last string, mark any) *origin {
	return &origin{xid: xid, millis: at.millis(), micros: int64(at), nanos: int64(at) * 1000, last: last, mark: mark}
}

func lastCommit(at lsn) string { return `["` + strconv.FormatUint(uint64(at), 10) + `","` }

// noCommit is the first part of a sequence where there is no commit before.
const noCommit = `[null,"`

// source makes the source of an event.
func (e *events) source(o *origin, schema, name any, at lsn) *data.StructValue {
	v := e.new(sourceSchema)
	f := v.Values
	f[srcVersion], f[srcConnector], f[srcName], f[srcDatabase] = boxedVersion, boxedConnector, e.name, e.db
	f[srcMillis], f[srcMicros], f[srcNanos] = o.millis, o.micros, o.nanos
	f[srcSnapshot], f[srcSchema], f[srcTable], f[srcXID] = o.mark, schema, name, o.xid
	b := make([]byte, 0, 48)
	b = append(b, o.last...)
	b = strconv.AppendUint(b, uint64(at), 10)
	b = append(b, `"]`...)
	f[srcSequence], f[srcLSN] = string(b), int64(at)
	f[srcOrigin], f[srcOriginLSN] = o.name, o.place
	return v
}

// change is one row's event.
type change struct {
	t             *table
	op            any
	key           any
	before, after any // *data.StructValue, or nil
	at            lsn
}

// envelope appends the event of a change.
func (e *events) envelope(o *origin, c change) *plugin.SourceRecord {
	v := e.new(c.t.envelope)
	f := v.Values
	f[envBefore], f[envAfter], f[envOp] = c.before, c.after, c.op
	f[envSource] = e.source(o, c.t.schemaName, c.t.tableName, c.at)
	f[envTransaction] = e.block(o, c.t.name)
	e.stamp(f[envMillis:])
	var schema *data.Schema
	if c.key != nil {
		schema = c.t.keySchema
	}
	return e.add(c.t.topic, schema, c.key, c.t.envelope, v)
}

// stamp sets ts_ms, ts_us and ts_ns.
func (e *events) stamp(f []any) {
	now := e.now()
	f[0], f[1], f[2] = now.UnixMilli(), now.UnixMicro(), now.UnixNano()
}

// block numbers an event in its transaction, where that is asked for.
func (e *events) block(o *origin, t tableName) any {
	if !e.s.transactions || o.counts == nil {
		return nil
	}
	e.count(o, t)
	v := e.new(blockSchema)
	v.Values[0], v.Values[1], v.Values[2] = o.id, o.total, o.counts[t]
	return v
}

func (e *events) count(o *origin, t tableName) {
	if o.counts == nil {
		return
	}
	if _, ok := o.counts[t]; !ok {
		o.order = append(o.order, t)
	}
	o.total++
	o.counts[t]++
}

// tombstone appends a null.
func (e *events) tombstone(t *table, key any) *plugin.SourceRecord {
	return e.add(t.topic, t.keySchema, key, nil, nil)
}

// message appends the event of a logical message.
func (e *events) message(o *origin, m *message) {
	key := e.new(messageKeySchema)
	key.Values[0] = m.prefix
	content := e.new(messageBlockSchema)
	content.Values[0], content.Values[1] = m.prefix, append([]byte{}, m.content...)
	v := e.new(messageValueSchema)
	v.Values[0] = opMessage
	e.stamp(v.Values[1:])
	v.Values[4] = e.block(o, tableName{"", "message"})
	v.Values[5] = e.source(o, "", "", m.lsn)
	v.Values[6] = content
	e.add(e.s.topic("message"), messageKeySchema, key, messageValueSchema, v)
}

// boundary appends the beginning or the end of a transaction, where that is asked for.
func (e *events) boundary(o *origin, status string) {
	key := e.new(transactionKeySchema)
	key.Values[0] = o.id
	v := e.new(transactionValueSchema)
	v.Values[0], v.Values[1], v.Values[4] = status, o.id, o.millis
	if status == "END" {
		v.Values[2] = o.total
		list := make([]any, 0, len(o.order))
		for _, t := range o.order {
			c := e.new(collectionSchema)
			c.Values[0], c.Values[1] = t.String(), o.counts[t]
			list = append(list, c)
		}
		v.Values[3] = list
	}
	e.add(e.s.topic(e.s.String("topic.transaction")), transactionKeySchema, key, transactionValueSchema, v)
}

// heartbeat appends a heartbeat.
func (e *events) heartbeat() {
	key, v := e.new(heartbeatKeySchema), e.new(heartbeatValueSchema)
	key.Values[0], v.Values[0] = e.name, e.now().UnixMilli()
	topic := e.s.String("topic.heartbeat.prefix") + e.s.delimiter + e.s.prefix
	e.add(topic, heartbeatKeySchema, key, heartbeatValueSchema, v)
}

// unfit appends what a change that can be no event looked like: the texts of its captured columns, but for those that
// are masked.
func (e *events) unfit(t *table, op any, old, now *tuple, fault error) {
	value := map[string]any{"op": op}
	for name, from := range map[string]*tuple{"before": old, "after": now} {
		if from == nil || len(from.kinds) != t.width {
			continue
		}
		row := map[string]any{}
		for i := range t.columns {
			switch c := &t.columns[i]; {
			case from.kinds[c.at] == valueUnchanged || e.s.hidden(t.name, c.name):
			case from.kinds[c.at] == valueText:
				row[c.name] = string(from.texts[c.at])
				e.bytes += len(from.texts[c.at])
			default:
				row[c.name] = nil
			}
		}
		value[name] = row
	}
	e.add(t.topic, nil, nil, nil, value).Fault = fault
}

// rowFault is a row that cannot be made an event. It names where it is from, and holds nothing of it.
type rowFault struct {
	table  tableName
	column string
	at     lsn
	err    error
}

func (f *rowFault) Error() string {
	return fmt.Sprintf("table %s, column %s, at %s: %v", f.table, f.column, f.at, f.err)
}

func (f *rowFault) Unwrap() error { return f.err }

// errRequired says that the catalog, which may be ahead of the stream, promised too much.
var errRequired = errors.New("it is NULL, and the catalog says that it cannot be")

// row decodes a row. Where a value was not sent as it did not change, the field has a placeholder and is among those
// missing.
func (e *events) row(t *table, from *tuple, at lsn) (v *data.StructValue, missing []any, err error) {
	v = e.new(t.rowSchema)
	for i := range t.columns {
		c := &t.columns[i]
		kind, text := from.kinds[c.at], from.texts[c.at]
		switch kind {
		case valueNull:
			if c.required {
				return nil, nil, &rowFault{t.name, c.name, at, errRequired}
			}
		case valueUnchanged:
			v.Values[i] = c.missing
			missing = append(missing, t.rowSchema.Fields[i].Name)
		default:
			e.bytes += len(text)
			if v.Values[i], err = c.decode(text); err != nil {
				return nil, nil, &rowFault{t.name, c.name, at, err}
			}
		}
	}
	return v, missing, nil
}

// keyFrom makes the key of a row; nil where the table has none. Row is that row decoded, or nil.
func (e *events) keyFrom(t *table, from *tuple, row *data.StructValue, at lsn) (any, error) {
	if t.keySchema == nil {
		return nil, nil
	}
	key := e.new(t.keySchema)
	for i := range t.key {
		k := &t.key[i]
		if from.kinds[k.at] != valueText {
			continue
		}
		if row != nil && k.field >= 0 {
			key.Values[i] = row.Values[k.field]
			continue
		}
		v, err := k.decode(from.texts[k.at])
		if err != nil {
			return nil, &rowFault{t.name, k.name, at, err}
		}
		key.Values[i] = v
	}
	return key, nil
}
