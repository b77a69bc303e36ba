package cdc

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

// change takes an insert, update, delete or truncate.
func (t *task) change(ctx context.Context, at lsn, m *message) error {
	r := &t.reading
	look := r.counts()
	if m.kind == msgTruncate {
		return t.truncate(at, m, look)
	}
	k := t.session.current[m.rel]
	if k == nil {
		return fmt.Errorf("the stream has a change of a table, %d, that it has not described", m.rel)
	}
	if m.kind != msgDelete && len(m.new.kinds) != k.width || m.oldKind != 0 && len(m.old.kinds) != k.width {
		return fmt.Errorf("a row of table %s has %d columns, and not the %d that were described", k.name, len(m.new.kinds),
			k.width)
	}
	if k.signal && m.kind == msgInsert && !r.skip {
		r.signals = append(r.signals, signalOf(k, &m.new))
	}
	if !k.captured || r.skip || r.hidden[k.name] {
		return nil
	}
	skip := t.s.skip[operationOf(m.kind)]
	if !look {
		if !skip {
			t.events.count(r.origin, k.name)
		}
		return nil
	}
	if m.kind == msgUpdate {
		fill(k, m)
	}
	t.touch(k, m)
	if skip {
		return nil
	}
	var err error
	switch m.kind {
	case msgInsert:
		err = t.insert(ctx, at, k, m)
	case msgUpdate:
		err = t.update(ctx, at, k, m)
	default:
		err = t.delete(ctx, at, k, m)
	}
	if err != nil {
		old, now := &m.old, &m.new
		if m.oldKind == 0 {
			old = nil
		}
		if m.kind == msgDelete {
			now = nil
		}
		t.started()
		return t.unfit(err, k, operationOf(m.kind), old, now)
	}
	return nil
}

func operationOf(kind byte) string {
	switch kind {
	case msgInsert:
		return "c"
	case msgUpdate:
		return "u"
	}
	return "d"
}

// fill takes values that were not sent, as they did not change, from the row before, where that has them.
func fill(k *table, m *message) {
	if m.oldKind == 0 {
		return
	}
	for i, kind := range m.new.kinds {
		if kind == valueUnchanged && (m.oldKind == 'O' || k.wire[i].Key) {
			m.new.kinds[i], m.new.texts[i] = m.old.kinds[i], m.old.texts[i]
		}
	}
}

// decoded is a row with its key.
type decoded struct {
	row     *data.StructValue
	key     any
	missing []any
}

// decodeRow decodes a row and its key. Its table is the one of which the row is in the end.
func (t *task) decodeRow(ctx context.Context, k **table, from *tuple, at lsn) (d decoded, err error) {
	_, err = t.decode(ctx, k, func(k *table) (key any, err error) {
		if d.row, d.missing, err = t.events.row(k, from, at); err == nil {
			d.key, err = t.events.keyFrom(k, from, d.row, at)
		}
		return nil, err
	})
	if err == nil && *k != t.session.current[(*k).oid] {
		t.session.current[(*k).oid] = *k
	}
	return d, err
}

func (t *task) insert(ctx context.Context, at lsn, k *table, m *message) error {
	d, err := t.decodeRow(ctx, &k, &m.new, at)
	if err != nil {
		return err
	}
	t.emit(change{t: k, op: opCreate, key: d.key, after: d.row, at: at}, d.missing)
	return nil
}

// emit appends an event, and a header that names the columns whose values were not sent.
func (t *task) emit(c change, missing []any, headers ...data.Header) {
	t.started()
	r := t.events.envelope(t.reading.origin, c)
	if len(missing) > 0 {
		headers = append(headers, data.Header{Name: unavailableHeader, Schema: namesSchema, Value: missing})
	}
	if len(headers) > 0 {
		with(r, headers...)
	}
}

func (t *task) update(ctx context.Context, at lsn, k *table, m *message) error {
	if t.s.Bool("skip.messages.without.change") && m.oldKind == 'O' && unchanged(k, m) {
		return nil
	}
	if err := keyKnown(k, m, at); err != nil {
		return err
	}
	moved := m.oldKind != 0 && k.keySchema != nil && keyChanged(k, m)
	if moved {
		if err := t.reread(ctx, k, m); err != nil {
			return err
		}
	}
	d, err := t.decodeRow(ctx, &k, &m.new, at)
	if err != nil {
		return err
	}
	var before any
	var old decoded
	if m.oldKind != 0 {
		if old, err = t.decodeRow(ctx, &k, &m.old, at); err != nil {
			return err
		}
		before = old.row
	}
	if !moved {
		t.emit(change{t: k, op: opUpdate, key: d.key, before: before, after: d.row, at: at}, d.missing)
		return nil
	}
	if !t.s.skip["d"] {
		t.emit(change{t: k, op: opDelete, key: old.key, before: before, at: at}, nil,
			data.Header{Name: "__debezium.newkey", Schema: k.keySchema, Value: d.key})
		if t.s.tombstones {
			t.events.tombstone(k, old.key)
		}
	}
	t.emit(change{t: k, op: opCreate, key: d.key, after: d.row, at: at}, d.missing,
		data.Header{Name: "__debezium.oldkey", Schema: k.keySchema, Value: old.key})
	return nil
}

// unchanged says whether no captured column differs.
func unchanged(k *table, m *message) bool {
	for i := range k.columns {
		at := k.columns[i].at
		if m.new.kinds[at] != m.old.kinds[at] || !bytes.Equal(m.new.texts[at], m.old.texts[at]) {
			return false
		}
	}
	return true
}

// keyChanged says whether a column of the key differs.
func keyChanged(k *table, m *message) bool {
	for i := range k.key {
		at := k.key[i].at
		if m.new.kinds[at] != m.old.kinds[at] || !bytes.Equal(m.new.texts[at], m.old.texts[at]) {
			return true
		}
	}
	return false
}

// reread asks the table for values that were not sent of a row that moves to another key: whoever reads the events has
// nothing under that key to leave alone. What it finds may be newer than the event; then a later event has it too. A
// row that is not there any more keeps its placeholders, and is deleted or moved by a later event.
func (t *task) reread(ctx context.Context, k *table, m *message) error {
	sql := ""
	var places []int
	for i := range k.columns {
		if at := k.columns[i].at; m.new.kinds[at] == valueUnchanged {
			if sql != "" {
				sql += ", "
			}
			sql += postgres.Quote(k.wire[at].Name)
			places = append(places, at)
		}
	}
	if len(places) == 0 || len(k.rowKey) == 0 {
		return nil
	}
	sql = "SELECT " + sql + " FROM " + k.name.SQL() + " WHERE "
	var args [][]byte
	for i, at := range k.rowKey {
		if i > 0 {
			sql += " AND "
		}
		sql += postgres.Quote(k.wire[at].Name) + " = $" + strconv.Itoa(i+1)
		args = append(args, m.new.texts[at])
	}
	if err := t.visible(ctx, t.reading.xid); err != nil {
		return err
	}
	res := t.session.sql.PgConn().ExecParams(ctx, sql, args, nil, nil, nil).Read()
	if f := postgres.FaultOf(res.Err); f == postgres.Schema || f == postgres.Denied {
		return nil // the table has changed since, or may not be read
	}
	if res.Err != nil {
		return readFault(res.Err, k.name)
	}
	if len(res.Rows) != 1 {
		return nil
	}
	for i, at := range places {
		m.new.kinds[at], m.new.texts[at] = valueText, res.Rows[0][i]
		if res.Rows[0][i] == nil {
			m.new.kinds[at] = valueNull
		}
	}
	return nil
}

// visible waits until others see a transaction that was read from the stream, which is a moment later, or more where
// its user waits for a standby. Before that, a row that it wrote is not there, or another one is under its key.
func (t *task) visible(ctx context.Context, xid uint32) error {
	for {
		text, err := t.session.view(ctx)
		if err != nil {
			return err
		}
		v, err := parseView(text)
		if err != nil || v.sees(xid) {
			return err
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

func (t *task) delete(ctx context.Context, at lsn, k *table, m *message) error {
	if err := keyKnown(k, m, at); err != nil {
		return err
	}
	d, err := t.decodeRow(ctx, &k, &m.old, at)
	if err != nil {
		return err
	}
	t.emit(change{t: k, op: opDelete, key: d.key, before: d.row, at: at}, nil)
	if t.s.tombstones && d.key != nil {
		t.events.tombstone(k, d.key)
	}
	return nil
}

// truncate gives one event for each table.
func (t *task) truncate(at lsn, m *message, look bool) error {
	r := &t.reading
	if r.skip {
		return nil
	}
	for _, oid := range m.rels {
		k := t.session.current[oid]
		if k == nil || !k.captured || r.hidden[k.name] {
			continue
		}
		if look && t.window != nil && t.window.name == k.name {
			t.window.clear()
		}
		switch {
		case t.s.skip["t"]:
		case !look:
			t.events.count(r.origin, k.name)
		default:
			t.emit(change{t: k, op: opTruncate, at: at}, nil)
		}
	}
	return nil
}
