package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// care is how a batch is written: in one go, or so that single bad records are found.
type care uint8

const (
	fast      care = iota
	halving        // what fails is halved until it is one record
	immediate      // and constraints that wait for the end of the transaction are checked at once
)

// copyRows is from how many rows on they are copied to a temporary table and not sent as arrays.
const copyRows = 2000

// write is one batch on its way into the database.
type write struct {
	*task
	records  []*plugin.SinkRecord
	next     map[client.TopicPartition]int64 // where the ledger goes
	care     care
	atCommit bool // the last try failed at the end of the transaction

	arena            arena
	written, deleted int
	probes           int
	waiting          []waiter
	held             map[string]bool // keys of waiting
}

// transaction writes the batch in one transaction: the ledger, tables and columns, rows. When it fails the
// transaction is rolled back, or the connection is closed.
func (w *write) transaction(ctx context.Context) error {
	w.arena.b, w.written, w.deleted, w.atCommit = w.arena.b[:0], 0, 0, false
	err := w.body(ctx)
	if status := w.conn.PgConn().TxStatus(); err == nil && status != 'T' {
		err = fmt.Errorf("the transaction ended on its own (status %c)", status)
	}
	if err == nil {
		w.atCommit = true
		if err = w.conn.simple(ctx, "COMMIT"); err == nil {
			return nil
		}
		err = postgres.Explain(err, "commit")
	}
	if w.conn.PgConn().TxStatus() != 'I' && !w.conn.IsClosed() {
		if rollback := w.conn.simple(ctx, "ROLLBACK"); rollback != nil {
			w.conn.drop()
		}
	}
	if postgres.FaultOf(err) == postgres.Connection && !isReportError(err) {
		w.conn.drop()
	}
	return err
}

func (w *write) body(ctx context.Context) error {
	begin := fmt.Sprintf("BEGIN; SET LOCAL idle_in_transaction_session_timeout = %d", idleLimit.Milliseconds())
	if w.cfg.asyncWAL {
		begin += "; SET LOCAL synchronous_commit = off"
	}
	if w.care == immediate {
		begin += "; SET CONSTRAINTS ALL IMMEDIATE"
	}
	if err := w.conn.simple(ctx, begin); err != nil {
		return postgres.Explain(err, "begin")
	}
	if len(w.next) > 0 {
		if err := w.ledger.advance(ctx, w.conn, w.parts, w.next); err != nil {
			return err
		}
	}
	rows, err := w.rows(ctx)
	if err != nil {
		return err
	}
	if w.care == fast {
		return w.apply(ctx, rows)
	}
	return w.careful(ctx, rows)
}

// rows makes rows of the records, and tables and columns for them where that is wanted. A record that can be none is
// reported.
func (w *write) rows(ctx context.Context) ([]*row, error) {
	items := make([]item, 0, len(w.records))
	byTarget := map[*target][]*layout{}
	var targets []*target
	for _, r := range w.records {
		if w.reported[r.Origin] {
			continue
		}
		it, err := w.item(r)
		if err == nil && it == nil {
			continue
		}
		if err != nil {
			if err := w.bad(ctx, r, err); err != nil {
				return nil, err
			}
			continue
		}
		items = append(items, *it)
		layouts, known := byTarget[it.target]
		if !known {
			targets = append(targets, it.target)
		}
		if it.layout != nil && (len(layouts) == 0 || layouts[len(layouts)-1] != it.layout) {
			layouts = append(layouts, it.layout)
		}
		byTarget[it.target] = layouts
	}
	for _, tg := range targets {
		layouts := distinct(byTarget[tg])
		_, err := w.ensure(ctx, tg, layouts)
		rows := slices.DeleteFunc(slices.Clone(layouts), bareText)
		tg.rows = tg.rows || len(rows) > 0
		if err != nil && tg.rows && tg.table != nil && isSchemaError(err) && len(rows) < len(layouts) {
			if items, err = w.withoutTexts(ctx, items, tg, err); err == nil {
				_, err = w.ensure(ctx, tg, rows)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return w.bound(ctx, items)
}

// bareText says whether records of a layout are bare texts, for which there is a column of its own.
func bareText(l *layout) bool {
	return slices.ContainsFunc(l.fields, func(f field) bool { return f.from == fromRow })
}

// withoutTexts reports the texts among items for a table that has no column for them, and whose records are none
// otherwise.
func (w *write) withoutTexts(ctx context.Context, items []item, tg *target, why error) ([]item, error) {
	var keep []item
	for _, it := range items {
		if it.target != tg || it.layout == nil || !bareText(it.layout) {
			keep = append(keep, it)
			continue
		}
		if err := w.bad(ctx, it.record, fmt.Errorf("the value is a bare text: %s", why)); err != nil {
			return nil, err
		}
	}
	return keep, nil
}

func distinct(layouts []*layout) (out []*layout) {
	seen := map[*layout]bool{}
	for _, l := range layouts {
		if !seen[l] {
			seen[l] = true
			out = append(out, l)
		}
	}
	return out
}

// item takes a record apart; nil if it does nothing.
func (w *write) item(r *plugin.SinkRecord) (*item, error) {
	ev, err := w.cfg.event(r, w.envelopes)
	if err != nil || ev.op == opSkip {
		return nil, err
	}
	it := &item{record: r, event: ev}
	name, ok := w.cfg.tableName(r.Topic, ev.sourceField)
	if !ok {
		if ev.op == opDelete && r.Value == nil { // a tombstone behind the deletion that says the same
			return nil, nil
		}
		return nil, fmt.Errorf("the record has no source, which %s takes the table's name from", namesOf(w.cfg.class).format)
	}
	if it.target, err = w.task.target(name); err != nil || ev.op == opTruncate {
		return it, err
	}
	f := w.cfg.forms(r, &ev)
	if it.layout = w.layouts.m[f]; it.layout == nil {
		if it.layout, err = w.cfg.layout(r, &ev); err != nil {
			return nil, err
		}
		w.layouts.get(f, func() *layout { return it.layout })
	}
	return it, nil
}

// errDoubt says that a record does not fit its table, as far as the table is known. It may be another one by now.
var errDoubt = errors.New("a record does not fit its table")

// bound makes rows of items whose tables are there.
func (w *write) bound(ctx context.Context, items []item) ([]*row, error) {
	rows := make([]*row, 0, len(items))
	for i := range items {
		it := &items[i]
		t := it.target.table
		if it.event.op == opTruncate {
			rows = append(rows, &row{record: it.record, t: t, op: opTruncate})
			continue
		}
		p := t.plans.m[it.layout]
		if p == nil {
			var err error
			if p, err = w.cfg.bind(t, it.layout); err != nil {
				return nil, err
			}
			t.plans.get(it.layout, func() *plan { return p })
		}
		r, err := w.cfg.row(&w.arena, it, p)
		if err != nil && w.care == fast {
			return nil, fmt.Errorf("%w: %w", errDoubt, err)
		}
		if err != nil {
			if err := w.bad(ctx, it.record, err); err != nil {
				return nil, err
			}
			continue
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// bad reports a record that cannot be written. With nobody to report to it fails the task.
func (w *write) bad(ctx context.Context, r *plugin.SinkRecord, why error) error {
	if isSchemaError(why) {
		return why
	}
	why = fmt.Errorf("%s: %w", where(r), why)
	if w.Report == nil {
		return &schemaError{why}
	}
	if w.reported[r.Origin] {
		return nil
	}
	if err := w.Report(ctx, r, why); err != nil {
		return &reportError{err}
	}
	w.reported[r.Origin] = true
	w.metrics.reported.Inc()
	return nil
}

// reportError is a report that was not taken. It says nothing about the database.
type reportError struct{ err error }

func (e *reportError) Error() string { return e.err.Error() }
func (e *reportError) Unwrap() error { return e.err }

func isReportError(err error) bool {
	var e *reportError
	return errors.As(err, &e)
}

// apply writes rows: truncations, then deletions of all tables, then all else, referred to tables first.
func (w *write) apply(ctx context.Context, rows []*row) error {
	works := ordered(w.cfg.reduce(rows))
	if err := w.truncate(ctx, works); err != nil {
		return err
	}
	for i := len(works) - 1; i >= 0; i-- {
		wk := works[i]
		if wk.last != nil && len(wk.steps) > 0 && wk.steps[0].op == opDelete {
			if err := w.step(ctx, wk.t, wk.steps[0]); err != nil {
				return err
			}
			wk.steps = wk.steps[1:]
		}
	}
	for _, wk := range works {
		for _, s := range wk.steps {
			if err := w.step(ctx, wk.t, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// truncate empties all tables at once, as they may refer to each other.
func (w *write) truncate(ctx context.Context, works []*work) error {
	var names []string
	for _, wk := range works {
		if wk.truncate {
			names = append(names, postgres.QuoteTable(wk.t.Schema, wk.t.Name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	err := w.conn.simple(ctx, "TRUNCATE "+strings.Join(names, ", "))
	return postgres.Explain(err, "truncate "+strings.Join(names, ", "))
}

// step writes or deletes rows of one table.
func (w *write) step(ctx context.Context, t *table, s step) error {
	for _, rows := range bySet(s.rows) {
		err := w.group(ctx, rows[0].set, s.op, rows)
		if err != nil {
			return postgres.Explain(err, "write to table "+t.String())
		}
		if s.op == opDelete {
			w.deleted += len(rows)
		} else {
			w.written += len(rows)
		}
	}
	return nil
}

// group writes or deletes rows that have the same columns.
func (w *write) group(ctx context.Context, set *columnSet, op operation, rows []*row) error {
	if op == opWrite && w.care == fast && len(rows) >= copyRows && w.cfg.mode != modeUpdate {
		if done, err := w.byCopy(ctx, set, rows); done || err != nil {
			return err
		}
	}
	for len(rows) > 0 {
		n := w.chunk(rows)
		if err := w.byArrays(ctx, set, op, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// maxStatement bounds the bytes of one statement, so that the server does not run out of memory.
const maxStatement = 32 << 20

// chunk is how many rows go into one statement.
func (w *write) chunk(rows []*row) int {
	bytes := 0
	for i, r := range rows {
		for _, c := range r.set.columns {
			bytes += int(max(r.cells[c].size, 0))
		}
		if i > 0 && bytes > maxStatement || i == w.cfg.batchRows {
			return i
		}
	}
	return len(rows)
}

// byArrays writes rows by statements that take their columns as arrays.
func (w *write) byArrays(ctx context.Context, set *columnSet, op operation, rows []*row) error {
	run := func(name string, columns []int, make func() string) error {
		sql := set.cached(name, make)
		if sql == "" {
			return nil
		}
		return w.conn.arrays(ctx, sql, &w.arena, rows, columns)
	}
	switch {
	case op == opDelete:
		return run("delete", set.keys, set.delete)
	case w.cfg.mode == modeUpdate:
		return run("update", set.columns, set.update)
	case w.cfg.mode == modeInsert:
		return run("insert", set.columns, func() string { return set.insert(fromArrays(len(set.columns)), false) })
	case set.partial():
		if err := run("update", set.columns, set.update); err != nil {
			return err
		}
		var missing, moved []*row
		for _, r := range rows {
			if r.moved {
				moved = append(moved, r)
			} else {
				missing = append(missing, r)
			}
		}
		if rows = moved; len(moved) > 0 {
			if err := run("moved", set.columns, set.insertMoved); err != nil {
				return err
			}
		}
		if rows = missing; len(missing) > 0 {
			return run("missing", set.columns, set.insertMissing)
		}
		return nil
	}
	return run("upsert", set.columns, func() string { return set.upsert(fromArrays(len(set.columns)), false) })
}

// byCopy writes many rows by COPY, to the table itself or to a temporary one; false if that cannot be.
func (w *write) byCopy(ctx context.Context, set *columnSet, rows []*row) (bool, error) {
	if w.cfg.mode == modeUpsert && set.partial() {
		return false, nil
	}
	if w.cfg.mode == modeInsert && set.copies() {
		sql := "COPY " + set.table() + " (" + quoteAll(set.names(set.columns)) + ") FROM STDIN"
		return true, w.conn.copyTo(ctx, sql, &w.arena, rows, set.columns)
	}
	temp, err := w.conn.temporary(ctx, set)
	if err != nil || temp == nil {
		return false, err
	}
	if err := w.conn.copyTo(ctx, "COPY "+temp.name+" FROM STDIN", &w.arena, rows, set.columns); err != nil {
		return false, err
	}
	from := temp.name + " AS s"
	sql := ""
	if w.cfg.mode == modeInsert {
		sql = set.insert(from, true)
	} else {
		sql = set.upsert(from, true)
	}
	_, err = w.conn.run(ctx, sql, nil, false)
	return true, err
}

// copies says whether COPY can write to the table itself.
func (s *columnSet) copies() bool {
	if s.t.Kind != 'r' && s.t.Kind != 'p' || s.t.guarded {
		return false
	}
	for _, c := range s.columns {
		if s.t.types[c].OID == oidMoney {
			return false
		}
	}
	return true
}
