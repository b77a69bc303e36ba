package cdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

// wholeRead reads tables in whole, all in one view of the database, before streaming begins.
type wholeRead struct {
	conn   *pgx.Conn
	life   context.Context // of the reading, which goes on from one poll to the next
	cancel context.CancelFunc
	view   string // "": the one that the slot begins with
	until  lsn    // all that the view sees is before it in the log
	origin *origin
	first  bool // no row has been read
	table  *tableRead
}

// tableRead is the table that is being read.
type tableRead struct {
	name    tableName
	table   *table
	results *pgconn.ResultReader
	places  []int // of the result's columns in a tuple
	rows    int64
	started bool // a part of it has been given away
	whole   bool // it is given away in one piece, or read in chunks if it is too large for that
	last    *data.StructValue
}

// abandon ends the reading.
func (r *wholeRead) abandon() {
	r.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r.conn.Close(ctx)
}

// openRead begins to read: in the snapshot that the slot was made with, if that can still be had, else in a new one.
func (n *session) openRead(ctx context.Context, now time.Time, recent *recent) (r *wholeRead, err error) {
	r = &wholeRead{first: true}
	r.life, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if r.conn, err = openSQL(ctx, n.s); err != nil {
		r.cancel()
		return nil, err
	}
	opened := r
	defer func() {
		if err != nil {
			opened.abandon()
		}
	}()
	if _, err = r.conn.Exec(ctx, "SET statement_timeout = 0"); err != nil {
		return nil, err
	}
	if n.exported != "" {
		err = importView(ctx, r.conn, n.exported)
		n.exported = ""
	} else {
		r.view, r.until, err = openView(ctx, r.conn, n.server, recent)
	}
	if err != nil {
		return nil, postgres.Explain(err, "begin the snapshot")
	}
	r.origin = newOrigin(nil, microsOf(now), noCommit, markFirst)
	return r, nil
}

// errEarly says that the view does not see a transaction that has been read from the stream already.
var errEarly = errors.New("a committed transaction is not visible yet")

// openView begins a transaction with a view of its own, and says what it sees and a place in the log behind all that.
// A transaction is in the log a moment before others see it, longer where it waits for a standby: a view is no good
// while one that was read is not in it. Of those that were read in an earlier life nothing is known, so for a while
// nobody may be waiting.
func openView(ctx context.Context, c *pgx.Conn, s server, recent *recent) (text string, until lsn, err error) {
	for tries := range 1 << 30 {
		text, until, err = tryView(ctx, c, s, recent)
		waiting := false
		if err == nil && tries < 200 {
			err = c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND
				backend_type = 'client backend')`).Scan(&waiting)
		}
		if err != errEarly && !waiting {
			break
		}
		if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
			return "", 0, err
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return "", 0, err
		}
	}
	return text, until, err
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func tryView(ctx context.Context, c *pgx.Conn, s server, recent *recent) (text string, until lsn, err error) {
	if _, err := c.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return "", 0, err
	}
	snapshot, end := "pg_current_snapshot()", "pg_current_wal_insert_lsn()"
	if s.version < 130000 {
		snapshot = "txid_current_snapshot()"
	}
	if s.standby {
		end = "pg_last_wal_replay_lsn()"
	}
	var place string
	err = c.QueryRow(ctx, "SELECT "+snapshot+"::text, "+end+"::text").Scan(&text, &place)
	if err != nil {
		return "", 0, err
	}
	v, err := parseView(text)
	if err != nil {
		return "", 0, err
	}
	if !recent.visible(v) {
		return "", 0, errEarly
	}
	until, err = parseLSN(place)
	// At the beginning of a page, the place where the next record goes is behind the page's header, and the end of the
	// last record before it.
	if offset := until % 8192; offset <= 40 {
		until -= offset
	}
	return text, until, err
}

// relationOf describes a table of the catalog as the stream would.
func relationOf(t *postgres.Table, p published, version int) *relation {
	r := &relation{OID: t.OID, Schema: t.Schema, Name: t.Name, Identity: t.ReplicaIdentity}
	key := identityColumns(t)
	for _, c := range t.Columns {
		if len(p.columns) > 0 && !slices.Contains(p.columns, c.Name) || c.Generated && version < 180000 {
			continue
		}
		flag := r.Identity == 'f' || r.Identity != 'n' && slices.Contains(key, c.Name)
		r.Columns = append(r.Columns, wireColumn{Key: flag, Name: c.Name, Type: c.Type, Typmod: c.Typmod})
	}
	return r
}

// fromCatalog is a table as the catalog has it now; nil if it is gone.
func (n *session) fromCatalog(ctx context.Context, c *pgx.Conn, name tableName) (*table, published, error) {
	p := n.tables[name]
	found, err := postgres.LoadTable(ctx, c, name.Schema, name.Name)
	if err != nil || found == nil {
		return nil, p, postgres.Explain(err, "read the catalog of table "+name.String())
	}
	t, err := n.describe(ctx, relationOf(found, p, n.server.version))
	return t, p, err
}

// wholeRows is how many rows of a table with a key are given away in one piece, so that none comes again after a crash.
func (s *settings) wholeRows() int {
	return max(int(min(2*s.Int64("millrace.snapshot.small.rows"), 20000)), s.batchRows)
}

// selection is what is selected of a table, without its end.
func selection(t *table, p published) string {
	columns := make([]string, 0, len(t.wire))
	for _, c := range t.wire {
		columns = append(columns, postgres.Quote(c.Name))
	}
	only := "ONLY "
	if p.kind == 'p' {
		only = ""
	}
	sql := "SELECT " + strings.Join(columns, ", ") + " FROM " + only + t.name.SQL()
	if p.where != "" {
		sql += " WHERE (" + p.where + ")"
	} else {
		sql += " WHERE true"
	}
	return sql
}

// openTable begins to read the next table; nil if it is gone.
func (r *wholeRead) openTable(ctx context.Context, n *session, name tableName) (*tableRead, error) {
	t, p, err := n.fromCatalog(ctx, r.conn, name)
	if err != nil || t == nil {
		return nil, err
	}
	sql := n.s.overrides[name.String()]
	if sql == "" {
		sql = selection(t, p)
	}
	x := &tableRead{name: name, table: t, whole: n.s.snapshot.streaming && n.chunkable(p)}
	if x.whole {
		sql += fmt.Sprintf(" LIMIT %d", n.s.wholeRows()+1)
	}
	if err := lockAsPlanned(ctx, r.conn, sql, t); err != nil {
		return nil, err
	}
	x.results = r.conn.PgConn().ExecParams(r.life, sql, nil, nil, nil, nil)
	for _, f := range x.results.FieldDescriptions() {
		at := slices.IndexFunc(t.wire, func(c wireColumn) bool { return c.Name == f.Name })
		x.places = append(x.places, at)
	}
	return x, nil
}

// errRewritten says that the view does not see what is in a table, as the table was written anew since.
var errRewritten = errors.New("the table was written anew after the view of it was taken")

// lockAsPlanned locks the tables that a query reads, and says whether the view is still good for them.
func lockAsPlanned(ctx context.Context, c *pgx.Conn, sql string, t *table) error {
	if err := c.PgConn().ExecParams(ctx, "EXPLAIN "+sql, nil, nil, nil, nil).Read().Err; err != nil {
		return readFault(err, t.name)
	}
	return checkView(ctx, c, t)
}

// checkView gives errRewritten if the view of a connection is not good for a table that it has read.
func checkView(ctx context.Context, c *pgx.Conn, t *table) error {
	yes, err := postgres.Rewritten(ctx, c, t.oid)
	if yes {
		return errRewritten
	}
	return postgres.Explain(err, "read the catalog of table "+t.name.String())
}

// snapshotPoll reads on: as many small tables as fit, or a part of a larger one. It has rows to give, or is done.
func (t *task) snapshotPoll(ctx context.Context) error {
	n, state := t.session, t.at.snap
	if n.read == nil {
		r, err := n.openRead(ctx, t.now(), t.recent)
		if err != nil {
			return err
		}
		n.read = r
		t.logger.Info("snapshot begins", "tables", len(state.Todo), "chunked", len(state.Chunks))
	}
	r := n.read
	defer context.AfterFunc(ctx, r.cancel)()
	for len(state.Todo) > 0 {
		full, err := t.readTable(ctx, r, state)
		if err == errRewritten {
			r.abandon()
			n.read = nil
			return t.snapshotPoll(ctx) // in a new view
		}
		if err != nil || full || len(t.events.out) >= t.s.batchRows || t.events.bytes >= batchBytes {
			return err
		}
	}
	state.Again = false
	t.logger.Info("snapshot is done", "rows", state.Rows, "chunked", len(state.Chunks))
	r.abandon()
	n.read = nil
	return nil
}

// readTable reads on in the first table that is left. Full: a part of it is to be given away first.
func (t *task) readTable(ctx context.Context, r *wholeRead, state *snapshotState) (full bool, err error) {
	if r.table == nil {
		if r.table, err = r.openTable(ctx, t.session, state.Todo[0]); err != nil {
			return false, err
		}
		if r.table == nil {
			t.logger.Warn("a table is gone before it was read", "table", state.Todo[0].String())
			state.Todo = state.Todo[1:]
			return false, nil
		}
	}
	x, mark := r.table, len(t.events.out)
	limit, limitBytes := t.s.Int("snapshot.fetch.size"), batchBytes
	if x.whole {
		limit, limitBytes = t.s.wholeRows(), 2*batchBytes
	}
	var row tuple
	for x.results.NextRow() {
		if len(t.events.out)-mark >= limit || t.events.bytes >= limitBytes && len(t.events.out) > mark {
			if x.whole && !x.started {
				return false, t.readInChunks(ctx, r, state, mark)
			}
			full = true
		}
		x.tuple(&row)
		if err := t.emitRead(ctx, r, &row); err != nil {
			return false, err
		}
		if full {
			x.started = true
			return true, nil
		}
	}
	if _, err := x.results.Close(); err != nil {
		return false, readFault(err, x.name)
	}
	if x.last != nil && len(t.events.out) > mark {
		x.last.Values[srcSnapshot] = markLastTable
		if len(state.Todo) == 1 {
			x.last.Values[srcSnapshot] = markLast
		}
	}
	state.Todo, state.Rows, r.table = slices.Clone(state.Todo[1:]), state.Rows+x.rows, nil
	t.tries.stale = 0
	if t.s.snapshot.streaming {
		state.hide(x.name, r.view, r.until)
	}
	t.metrics.snapshotRows.Add(float64(x.rows))
	return false, nil
}

func readFault(err error, name tableName) error {
	what := "read table " + name.String()
	if postgres.FaultOf(err) == postgres.Denied {
		what += ", which takes GRANT SELECT ON " + name.SQL()
	}
	return postgres.Explain(err, what)
}

// readInChunks leaves a table that is larger than was thought to be read chunk by chunk.
func (t *task) readInChunks(ctx context.Context, r *wholeRead, state *snapshotState, mark int) error {
	x := r.table
	clear(t.events.out[mark:])
	t.events.out, t.events.bytes = t.events.out[:mark], 0
	r.table = nil
	if _, err := x.results.Close(); err != nil {
		return readFault(err, x.name)
	}
	c := chunkedTable{Table: x.name}
	if err := bound(ctx, r.conn, &c, x.table, t.session.tables[x.name]); err != nil {
		return err
	}
	state.Todo = slices.Clone(state.Todo[1:])
	state.Chunks = append(state.Chunks, c)
	state.hide(c.Table, r.view, r.until)
	return nil
}

func (x *tableRead) tuple(to *tuple) {
	to.kinds = slices.Grow(to.kinds[:0], x.table.width)[:x.table.width]
	to.texts = slices.Grow(to.texts[:0], x.table.width)[:x.table.width]
	for i := range to.kinds {
		to.kinds[i], to.texts[i] = valueNull, nil
	}
	for i, text := range x.results.Values() {
		if at := x.places[i]; at >= 0 && text != nil {
			to.kinds[at], to.texts[at] = valueText, text
		}
	}
}

// emitRead appends the event of a row that was read.
func (t *task) emitRead(ctx context.Context, r *wholeRead, row *tuple) error {
	x := r.table
	switch {
	case r.first:
		r.origin.mark = markFirst
	case x.rows == 0:
		r.origin.mark = markFirstTable
	default:
		r.origin.mark = markMore
	}
	r.first = false
	x.rows++
	source, err := t.emitRow(ctx, &x.table, r.origin, row)
	x.last = source
	return err
}

// emitRow appends a row that was read, and gives its source to be marked; nil if it could not be made an event.
func (t *task) emitRow(ctx context.Context, at **table, o *origin, row *tuple) (*data.StructValue, error) {
	var after *data.StructValue
	key, err := t.decode(ctx, at, func(k *table) (key any, err error) {
		if after, _, err = t.events.row(k, row, t.at.commit); err == nil {
			key, err = t.events.keyFrom(k, row, after, t.at.commit)
		}
		return key, err
	})
	if err != nil {
		return nil, t.unfit(err, *at, opRead, nil, row)
	}
	e := t.events.envelope(o, change{t: *at, op: opRead, key: key, after: after, at: t.at.commit})
	return e.Value.(*data.StructValue).Values[envSource].(*data.StructValue), nil
}

// decode runs what decodes a row, and again with the table described anew, if the catalog has promised too much, or has
// got labels of an enum since.
func (t *task) decode(ctx context.Context, at **table, run func(*table) (any, error)) (any, error) {
	key, err := run(*at)
	for _, anew := range []struct {
		why error
		as  func(context.Context, *table) (*table, error)
	}{{errLabel, t.session.relabel}, {errLabel, t.session.lenient}, {errRequired, t.session.relax}} {
		if err == nil || !errors.Is(err, anew.why) {
			continue
		}
		k, e := anew.as(ctx, *at)
		if e != nil {
			return nil, e
		}
		*at = k
		key, err = run(k)
	}
	return key, err
}
