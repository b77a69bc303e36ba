package cdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/connect/postgres"
)

// window is a chunk of a table that has been read and waits for its place in the stream: behind all that its view sees.
// Until the stream has come there, whatever the stream says of a row of the chunk is newer, or has been read from the
// stream anyway, and takes the row out. What is left is what the table has at that place.
type window struct {
	name   tableName
	table  *table
	key    []string // columns by which the rows of the chunk and of the stream are told apart
	places map[*table][]int
	rows   map[string]*chunkRow
	order  []*chunkRow
	until  lsn
	opened time.Time
	pushed bool     // a message was written for the place to be reached
	last   []string // the key of the last row
	end    bool     // there are no rows after it
	state  chunkedTable
}

// chunkRow is a row of a chunk. Once it is out, it only lends its large values to events that lack them.
type chunkRow struct {
	tuple tuple
	out   bool
}

func (w *window) clear() {
	for _, r := range w.order {
		r.out = true
	}
}

// place finds the columns of the window's key in a table's shape; nil if it does not have them.
func (w *window) place(k *table) []int {
	if p, ok := w.places[k]; ok {
		return p
	}
	if w.places == nil {
		w.places = map[*table][]int{}
	}
	var p []int
	for _, name := range w.key {
		i := slices.IndexFunc(k.wire, func(c wireColumn) bool { return c.Name == name })
		if i < 0 {
			p = nil
			break
		}
		p = append(p, i)
	}
	w.places[k] = p
	return p
}

// keyText is the key of a row as one text; "" if a part of it is not known.
func keyText(from *tuple, places []int) string {
	var b []byte
	for _, at := range places {
		if from.kinds[at] != valueText {
			return ""
		}
		b = binary.AppendUvarint(b, uint64(len(from.texts[at])))
		b = append(b, from.texts[at]...)
	}
	return string(b)
}

// touch takes rows out of the chunk that the stream speaks of, and gives large values to changes that lack them.
func (t *task) touch(k *table, m *message) {
	w := t.window
	if w == nil || w.name != k.name {
		return
	}
	places := w.place(k)
	if places == nil { // the key has other columns by now: the rows are read again
		t.window = nil
		return
	}
	if m.oldKind != 0 {
		if old := w.rows[keyText(&m.old, places)]; old != nil {
			old.out = true // whose values may be those of another row, that came in its place
		}
	}
	if m.kind == msgDelete {
		return
	}
	row := w.rows[keyText(&m.new, places)]
	if row == nil {
		return
	}
	row.out = !t.s.skip["u"] || m.kind == msgInsert
	if w.table.shapeEqual(k) {
		row.lend(&m.new)
		row.tuple.copy(&m.new)
	}
}

// lend gives values to a row that lacks them.
func (r *chunkRow) lend(to *tuple) {
	for i, kind := range to.kinds {
		if kind == valueUnchanged && r.tuple.kinds[i] != valueUnchanged {
			to.kinds[i], to.texts[i] = r.tuple.kinds[i], r.tuple.texts[i]
		}
	}
}

// copy makes a tuple one that refers to nothing else. Values that were not sent stay as they are.
func (t *tuple) copy(from *tuple) {
	if len(t.kinds) != len(from.kinds) {
		t.kinds, t.texts = make([]byte, len(from.kinds)), make([][]byte, len(from.kinds))
	}
	size := 0
	for i, text := range from.texts {
		if from.kinds[i] == valueText {
			size += len(text)
		}
	}
	buf := make([]byte, 0, size)
	for i, text := range from.texts {
		if from.kinds[i] == valueUnchanged {
			continue
		}
		t.kinds[i], t.texts[i] = from.kinds[i], nil
		if from.kinds[i] == valueText {
			start := len(buf)
			buf = append(buf, text...)
			t.texts[i] = buf[start:len(buf):len(buf)]
		}
	}
}

// shapeEqual says whether rows of two tables have the same columns.
func (t *table) shapeEqual(o *table) bool { return t == o || slices.Equal(t.wire, o.wire) }

// placeChunk reads the next chunk, or gives away the one whose place is reached.
func (t *task) placeChunk(ctx context.Context) error {
	state := t.at.snap
	if w := t.window; w != nil {
		if t.at.commit < w.until {
			return t.lower(ctx, w)
		}
		return t.closeWindow(ctx, w)
	}
	if state == nil || len(state.Chunks) == 0 || state.Paused || len(state.Todo) > 0 || t.now().Before(t.beats.chunk) {
		return nil
	}
	w, err := t.openWindow(ctx, &state.Chunks[0])
	switch {
	case errors.Is(err, errEarly), errors.Is(err, errRewritten):
		t.beats.chunk = t.now().Add(20 * time.Millisecond)
	case errors.Is(err, errGone):
		c := t.endTable(state)
		t.logger.Warn("a table is gone, or has another name, before all of it was read", "table", c.Table.String(), "rows",
			c.Rows)
	case err != nil:
		return t.chunkFault(err, state)
	case w == nil:
		t.endRead(state)
	default:
		t.window = w
	}
	return nil
}

// errGone says that the catalog does not have a table any more.
var errGone = errors.New("the table is gone")

// lower has the window's place reached, or sees whether it can be lower: on an idle server, the end of the log may not
// be flushed, and so not streamed, for long. What has been visible for a while is flushed.
func (t *task) lower(ctx context.Context, w *window) error {
	waited := t.now().Sub(w.opened)
	if waited >= 50*time.Millisecond && !w.pushed {
		w.pushed = true
		return t.writeMessage(ctx)
	}
	if t.session.server.standby || waited < 2*time.Second {
		return nil
	}
	var flushed string
	var delay int64
	err := t.session.sql.QueryRow(ctx, `SELECT pg_current_wal_flush_lsn()::text,
		(SELECT setting::bigint FROM pg_settings WHERE name = 'wal_writer_delay')`).Scan(&flushed, &delay)
	if err != nil {
		return postgres.Explain(err, "ask for the end of the log")
	}
	if waited < time.Duration(5*delay)*time.Millisecond {
		return nil
	}
	w.opened = t.now() // not again at once
	at, err := parseLSN(flushed)
	w.until = min(w.until, at)
	return err
}

// chunkFault is about a table that cannot be read. One that a signal asked for is left out: the stream goes on.
func (t *task) chunkFault(err error, state *snapshotState) error {
	if state.Chunks[0].Signal == "" || postgres.FaultOf(err).Transient() {
		return err
	}
	c := t.endTable(state)
	t.logger.Error("an incremental snapshot ends, as the table cannot be read", "table", c.Table.String(),
		"signal", c.Signal, "err", err)
	return nil
}

// openWindow reads the next chunk of a table, all in one view; nil if there is nothing left to read.
func (t *task) openWindow(ctx context.Context, c *chunkedTable) (w *window, err error) {
	n := t.session
	_, until, err := tryView(ctx, n.sql, n.server, t.recent)
	defer func() {
		if _, e := n.sql.Exec(ctx, "ROLLBACK"); err == nil {
			err = e
		}
	}()
	if err != nil {
		return nil, err
	}
	k, p, err := n.fromCatalog(ctx, n.sql, c.Table)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, errGone
	}
	bounded := *c
	if err := bound(ctx, n.sql, &bounded, k, p); err != nil {
		return nil, err
	}
	if bounded.Max != nil {
		w = &window{name: c.Table, table: k, key: keyNames(k), until: until, rows: map[string]*chunkRow{}, opened: t.now()}
		if err := t.readChunk(ctx, w, &bounded, p); err != nil {
			return nil, err
		}
	}
	if err := checkView(ctx, n.sql, k); err != nil {
		return nil, err
	}
	*c = bounded
	return w, nil
}

func keyNames(k *table) (out []string) {
	for _, at := range k.rowKey {
		out = append(out, k.wire[at].Name)
	}
	return out
}

// bound finds where the table ends, once: in what the connection sees. A table that has lost a column of its key since
// is read anew.
func bound(ctx context.Context, conn *pgx.Conn, c *chunkedTable, k *table, p published) error {
	absent := func(name string) bool {
		return !slices.ContainsFunc(k.wire, func(w wireColumn) bool { return w.Name == name })
	}
	if c.Max != nil {
		if !slices.ContainsFunc(c.Key, absent) {
			return nil
		}
		c.Key, c.Last, c.Max = nil, nil, nil
	}
	if len(k.rowKey) == 0 {
		return fmt.Errorf("table %s has no key by which it could be read in chunks", c.Table)
	}
	for _, name := range keyNames(k) { // also behind another key, of which several rows may have the same
		if !slices.Contains(c.Key, name) {
			c.Key = append(c.Key, name)
		}
	}
	if i := slices.IndexFunc(c.Key, absent); i >= 0 {
		return fmt.Errorf("table %s has no column %s to be read in the order of", c.Table, c.Key[i])
	}
	columns := quoted(c.Key)
	sql := "SELECT " + strings.Join(columns, ", ") + " FROM (" + selection(k, p) + condition(c) + ") x ORDER BY " +
		strings.Join(columns, " DESC, ") + " DESC LIMIT 1"
	res := conn.PgConn().ExecParams(ctx, sql, nil, nil, nil, nil).Read()
	if res.Err != nil {
		return readFault(res.Err, c.Table)
	}
	for _, row := range res.Rows {
		c.Max = texts(row)
		if c.Max == nil {
			return fmt.Errorf("column %s of table %s has nulls: a table cannot be read in its order",
				strings.Join(c.Key, ", "), c.Table)
		}
	}
	return nil
}

func texts(row [][]byte) (out []string) {
	for _, v := range row {
		if v == nil {
			return nil
		}
		out = append(out, string(v))
	}
	return out
}

func quoted(names []string) (out []string) {
	for _, n := range names {
		out = append(out, postgres.Quote(n))
	}
	return out
}

func condition(c *chunkedTable) string {
	if c.Where == "" {
		return ""
	}
	return " AND (" + c.Where + ")"
}

// chunkSQL selects the rows of a chunk. Only the server compares keys: it alone knows their order.
func chunkSQL(c *chunkedTable, k *table, p published, limit int) (sql string, args [][]byte) {
	columns := strings.Join(quoted(c.Key), ", ")
	parameters := func(values []string) string {
		var list []string
		for _, v := range values {
			args = append(args, []byte(v))
			list = append(list, "$"+strconv.Itoa(len(args)))
		}
		return "(" + strings.Join(list, ", ") + ")"
	}
	sql = selection(k, p) + condition(c)
	if c.Last != nil {
		sql += " AND (" + columns + ") > " + parameters(c.Last)
	}
	sql += " AND (" + columns + ") <= " + parameters(c.Max)
	return sql + " ORDER BY " + columns + " LIMIT " + strconv.Itoa(limit), args
}

// readChunk reads the rows.
func (t *task) readChunk(ctx context.Context, w *window, c *chunkedTable, p published) error {
	limit := t.s.chunkRows
	if c.Signal == "" {
		limit = max(limit, t.s.batchRows)
	}
	if t.beats.chunkRows > 0 {
		limit = min(limit, t.beats.chunkRows)
	}
	sql, args := chunkSQL(c, w.table, p, limit)
	res := t.session.sql.PgConn().ExecParams(ctx, sql, args, nil, nil, nil)
	var order []int
	for _, name := range c.Key {
		order = append(order, slices.IndexFunc(w.table.wire, func(k wireColumn) bool { return k.Name == name }))
	}
	size, rows := 0, 0
	for res.NextRow() {
		rows++
		if size > 2*batchBytes {
			continue // the rest comes with the next, smaller chunk
		}
		var row tuple
		for _, v := range res.Values() {
			if v == nil {
				row.add(valueNull, nil)
				continue
			}
			size += len(v)
			row.add(valueText, v)
		}
		kept := &chunkRow{}
		kept.tuple.copy(&row)
		w.order = append(w.order, kept)
		w.rows[keyText(&kept.tuple, w.table.rowKey)] = kept
	}
	if _, err := res.Close(); err != nil {
		return readFault(err, c.Table)
	}
	if n := len(w.order); n > 0 {
		for _, at := range order {
			w.last = append(w.last, string(w.order[n-1].tuple.texts[at]))
		}
		if size > 2*batchBytes {
			t.beats.chunkRows = max(n/2, 1)
		}
	}
	w.end = rows < limit && len(w.order) == rows
	w.state = *c
	return nil
}

// closeWindow gives away what is left of the chunk, and goes on to the next.
func (t *task) closeWindow(ctx context.Context, w *window) error {
	t.window = nil
	t.tries.stale = 0
	mark := markMore
	if w.state.Signal != "" {
		mark = markIncremental
	}
	o := newOrigin(nil, microsOf(t.now()), lastCommit(t.at.commit), mark)
	rows := int64(0)
	k := w.table
	for _, r := range w.order {
		if r.out {
			continue
		}
		if _, err := t.emitRow(ctx, &k, o, &r.tuple); err != nil {
			return err
		}
		rows++
	}
	state := t.at.state()
	if len(state.Chunks) == 0 || state.Chunks[0].Table != w.name {
		return nil
	}
	state.Chunks = slices.Clone(state.Chunks)
	c := &state.Chunks[0]
	c.Last, c.Rows = w.last, c.Rows+rows
	state.Rows += rows
	t.metrics.snapshotRows.Add(float64(rows))
	if w.end {
		t.endRead(state)
	}
	t.reading.boundary = len(t.events.out)
	return nil
}

// endTable goes on to the next table, and gives the one that has ended.
func (t *task) endTable(state *snapshotState) chunkedTable {
	c := state.Chunks[0]
	state.Chunks = slices.Clone(state.Chunks[1:])
	t.window = nil
	return c
}

// endRead ends a table of which all is read.
func (t *task) endRead(state *snapshotState) {
	c := t.endTable(state)
	t.logger.Info("a table is read", "table", c.Table.String(), "rows", c.Rows, "left", len(state.Chunks), "signal",
		c.Signal)
}
