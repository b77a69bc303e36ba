package sink

import (
	"encoding/binary"
	"fmt"
	"slices"

	"millrace/connect/plugin"
)

// cell is the text of a value in a batch's arena.
type cell struct {
	from, size int32 // size -1: it is null
}

// row is what a record does to a table.
type row struct {
	record *plugin.SinkRecord
	t      *table
	set    *columnSet // the columns it has; of a deletion those of the key
	full   *columnSet // those that records of its layout have
	op     operation
	cells  []cell // by the columns of the table
	key    string // the texts of the key, "" if there is none
	fresh  bool   // a row of the same key is deleted before
	moved  bool   // it came from another key: if it is not there, its columns that were not sent are not elsewhere
}

// item is a record on its way to be a row.
type item struct {
	record *plugin.SinkRecord
	event  event
	target *target
	layout *layout // nil: of a truncation
}

// maxArena bounds the texts of a batch: the places in it are 32 bits.
const maxArena = 1 << 30

// arena holds the texts of a batch.
type arena struct{ b []byte }

func (a *arena) text(c cell) []byte { return a.b[c.from : c.from+c.size] }

// row makes an item a row. An error is the record's own fault.
func (c *config) row(a *arena, it *item, p *plan) (*row, error) {
	t := it.target.table
	r := &row{record: it.record, t: t, set: p.set, full: p.set, op: it.event.op, cells: make([]cell, len(t.Columns)),
		moved: hasMoved(it.record)}
	away := unavailable(it.record)
	var absent []int
	for i := range p.fields {
		f := &p.fields[i]
		v := f.value(it.record, &it.event)
		if !f.key && (away != nil && away[f.name] || c.isPlaceholder(v)) {
			absent = append(absent, f.index)
			continue
		}
		if v == nil && c.replaceNull && f.schema != nil {
			v = f.schema.Default
		}
		from := len(a.b)
		if v == nil {
			if f.key {
				return nil, fmt.Errorf("field %q of the key is null", f.name)
			}
			r.cells[f.index] = cell{int32(from), -1}
			continue
		}
		var err error
		if a.b, err = f.encode(a.b, v); err != nil {
			return nil, fmt.Errorf("column %s of table %s: %w", f.column, t, err)
		}
		if len(a.b) > maxArena {
			return nil, schemaFault("the batch has more than 1 GiB: lower consumer.override.max.poll.records")
		}
		r.cells[f.index] = cell{int32(from), int32(len(a.b) - from)}
	}
	if absent != nil {
		r.set = p.set.without(absent)
	}
	r.key = a.key(r)
	return r, nil
}

// key joins the texts of a row's key.
func (a *arena) key(r *row) string {
	if len(r.set.keys) == 1 {
		return "\x00" + string(a.text(r.cells[r.set.keys[0]]))
	}
	var b []byte
	for _, k := range r.set.keys {
		text := a.text(r.cells[k])
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return string(b)
}

// isPlaceholder says whether a value stands for one that did not change and was not sent.
func (c *config) isPlaceholder(v any) bool {
	if c.placeholder == "" {
		return false
	}
	switch x := v.(type) {
	case string:
		return x == c.placeholder
	case []byte:
		return string(x) == c.placeholder
	case []any:
		return c.isPlaceholderArray(x)
	case map[string]any:
		return len(x) == 1 && x[c.placeholder] == c.placeholder
	}
	return false
}

// isPlaceholderArray knows the array of one text, and that of the text's bytes as numbers.
func (c *config) isPlaceholderArray(a []any) bool {
	if len(a) == 1 {
		s, _ := a[0].(string)
		return s == c.placeholder || s != "" && s == nameUUID(c.placeholder)
	}
	if len(a) != len(c.placeholder) {
		return false
	}
	for i, v := range a {
		if n, ok := wholeNumber(v); !ok || n != int64(c.placeholder[i]) {
			return false
		}
	}
	return true
}

// step is rows to write, or to delete, in one go.
type step struct {
	op   operation
	rows []*row
}

// work is what a batch does to one table, in order.
type work struct {
	t        *table
	truncate bool
	steps    []step

	last map[string]int // of reduced rows: the place of the one with a key
	rows []*row         // nil where another one took its place
}

// reduce makes of rows, in the order of their records, what is to be done to each table. Where rows have keys, there is
// one for each in the end, with what all of them say.
func (c *config) reduce(rows []*row) (out []*work) {
	byTable := map[*table]*work{}
	for _, r := range rows {
		w := byTable[r.t]
		if w == nil {
			w = &work{t: r.t}
			byTable[r.t] = w
			out = append(out, w)
		}
		switch {
		case r.op == opTruncate:
			*w = work{t: r.t, truncate: true}
		case c.mode == modeInsert || r.key == "":
			w.append(r)
		default:
			w.merge(r)
		}
	}
	for _, w := range out {
		if w.last != nil {
			w.settle(c.mode)
		}
	}
	return out
}

// append keeps rows in order; only those of one kind in a row are written in one go.
func (w *work) append(r *row) {
	if n := len(w.steps); n > 0 && w.steps[n-1].op == r.op {
		w.steps[n-1].rows = append(w.steps[n-1].rows, r)
		return
	}
	w.steps = append(w.steps, step{r.op, []*row{r}})
}

// merge puts a row in the place of an earlier one with its key.
func (w *work) merge(r *row) {
	if w.last == nil {
		w.last = map[string]int{}
	}
	if at, ok := w.last[r.key]; ok {
		old := w.rows[at]
		w.rows[at] = nil
		r = merged(old, r)
	}
	w.last[r.key] = len(w.rows)
	w.rows = append(w.rows, r)
}

// merged is a row that does what two do, one after the other.
func merged(old, r *row) *row {
	if r.op == opDelete {
		return r
	}
	m := *r
	if old.op == opDelete {
		m.fresh = true
		return &m
	}
	m.fresh, m.moved = old.fresh, r.moved || old.moved
	if r.set.covers(old.set) {
		return &m
	}
	m.set = old.set.union(r.set)
	m.cells = slices.Clone(old.cells)
	for _, c := range r.set.columns {
		m.cells[c] = r.cells[c]
	}
	return &m
}

// settle makes steps of reduced rows: deletions first, so that what they free can be taken.
func (w *work) settle(mode string) {
	var deletes, writes []*row
	for _, r := range w.rows {
		switch {
		case r == nil:
		case r.op == opDelete:
			deletes = append(deletes, r)
		case r.fresh && mode == modeUpdate: // there is no row to update any more
			deletes = append(deletes, r)
		default:
			if r.fresh {
				deletes = append(deletes, r)
			}
			writes = append(writes, r)
		}
	}
	for _, s := range []step{{opDelete, deletes}, {opWrite, writes}} {
		if len(s.rows) > 0 {
			w.steps = append(w.steps, s)
		}
	}
}

// ordered puts tables before those that refer to them by foreign keys, as far as there is such an order.
func ordered(works []*work) []*work {
	if len(works) < 2 {
		return works
	}
	byOID := map[uint32]*work{}
	for _, w := range works {
		byOID[w.t.OID] = w
	}
	var out []*work
	seen := map[*work]bool{}
	var visit func(w *work)
	visit = func(w *work) {
		if seen[w] {
			return
		}
		seen[w] = true
		for _, oid := range w.t.refs {
			if parent := byOID[oid]; parent != nil {
				visit(parent)
			}
		}
		out = append(out, w)
	}
	for _, w := range works {
		visit(w)
	}
	return out
}

// bySet groups rows by their columns, in the order of their first.
func bySet(rows []*row) (out [][]*row) {
	at := map[*columnSet]int{}
	for _, r := range rows {
		i, ok := at[r.set]
		if !ok {
			i = len(out)
			at[r.set] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// where names a record in errors.
func where(r *plugin.SinkRecord) string {
	return fmt.Sprintf("record %d of partition %d of topic %s", r.Origin.Offset, r.Origin.Partition, r.Origin.Topic)
}
