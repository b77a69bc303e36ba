package polling

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// reader reads one table, or the query. Its position is behind all that it has given.
type reader struct {
	c         *config
	name      tableName
	label     string // in metrics and logs: public.orders, or query
	topic     string
	partition map[string]any
	log       *slog.Logger
	m         *metrics

	plan  *plan // nil: not looked at yet
	pos   position
	guard guard
	win   *window   // nil: none is open
	due   time.Time // when to read next
	fails int       // how often in a row the statement was refused
	asked bool      // the initial timestamp has been settled
	begun bool      // it is the time of now, which is to be stored
}

// what is what is read, in errors.
func (r *reader) what() string {
	if r.c.query != "" {
		return "the query"
	}
	return "table " + r.label
}

// window is a round of reading, from one snapshot.
type window struct {
	ahead  *row // was read, and is of the next page
	count  int  // rows read
	bytes  int  // of the rows read
	begin  position
	upTo   position // what the position is once all are given
	groups bool     // a time was given completely
}

// row is a row with the values by which it is ordered.
type row struct {
	record *plugin.SourceRecord
	order  []string
}

const (
	maxPageBytes = 16 << 20
	firstChunk   = 16 // rows
)

// open starts a window; false: there is nothing to read now.
func (r *reader) open(ctx context.Context, conn *pgx.Conn) (bool, error) {
	if err := r.look(ctx, conn); err != nil {
		return false, err
	}
	guarded := r.c.guard && (r.plan.inc != "" || r.plan.ts != "")
	if guarded {
		if err := r.guard.look(ctx, conn, func() (*int64, error) { return r.observe(ctx, conn) }); err != nil {
			return false, err
		}
		r.m.held(r.label, r.guard)
		if r.guard.ready == nil {
			return false, nil
		}
	}
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return false, err
	}
	where, ok, err := r.where(ctx, conn)
	if err == nil && ok {
		r.win.begin = r.pos
		if _, err = conn.Exec(ctx, "DECLARE millrace NO SCROLL CURSOR FOR "+r.sql(where)); err == nil {
			ok, err = r.seen(ctx, conn)
		}
	}
	if err != nil || !ok {
		r.win = nil
		return false, errors.Join(err, rollback(ctx, conn, err))
	}
	return true, nil
}

// seen says whether the window's view is good for the table: one from before it was written anew shows no row.
func (r *reader) seen(ctx context.Context, conn *pgx.Conn) (bool, error) {
	if r.c.query != "" {
		return true, nil
	}
	anew, err := postgres.Rewritten(ctx, conn, r.plan.table.OID)
	return !anew, err
}

// rollback ends a transaction, unless the connection is to go anyway.
func rollback(ctx context.Context, conn *pgx.Conn, cause error) error {
	if cause != nil && postgres.FaultOf(cause) == postgres.Connection {
		return nil
	}
	_, err := conn.Exec(ctx, "ROLLBACK")
	return err
}

// look makes or renews the plan.
func (r *reader) look(ctx context.Context, conn *pgx.Conn) (err error) {
	var p *plan
	if r.c.query != "" {
		if r.plan != nil {
			return nil // a query's columns stay, unless it fails
		}
		p, err = planQuery(ctx, conn, r.c)
	} else {
		p, err = planTable(ctx, conn, r.c, r.name)
	}
	if err != nil {
		return err
	}
	if !p.same(r.plan) {
		if r.plan != nil {
			r.log.Info("columns changed", "table", r.label)
		}
		r.plan = p
	}
	if r.plan.ts != "" && r.pos.ts == nil && r.c.initial != nil && !r.asked {
		micros := *r.c.initial * 1000
		if *r.c.initial == -1 {
			if micros, err = clock(ctx, conn); err != nil {
				return err
			}
			r.begun = true
		}
		r.pos.ts = &micros
	}
	r.asked = true
	return nil
}

// clock is the database's time in microseconds since 1970.
func clock(ctx context.Context, conn *pgx.Conn) (micros int64, err error) {
	err = conn.QueryRow(ctx, "SELECT round(extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&micros)
	return micros, err
}

// observe takes a bound for the guard.
func (r *reader) observe(ctx context.Context, conn *pgx.Conn) (*int64, error) {
	if r.plan.ts != "" {
		micros, err := clock(ctx, conn)
		return &micros, err
	}
	var greatest *int64
	err := conn.QueryRow(ctx, "SELECT max("+r.plan.inc+")::bigint FROM "+r.plan.from).Scan(&greatest)
	if greatest != nil && r.pos.inc != nil && *greatest <= *r.pos.inc {
		r.guard.ready = nil
		return nil, err
	}
	return greatest, err
}

// where is the condition for what the window is to hold; false: it would hold nothing.
func (r *reader) where(ctx context.Context, conn *pgx.Conn) (cond string, ok bool, err error) {
	r.win = &window{upTo: r.pos}
	switch r.c.mode {
	case modeInc:
		return r.whereNumber(), true, nil
	case modeTS, modeTSInc:
		end := r.guard.ready
		if !r.c.guard {
			now, err := clock(ctx, conn)
			if err != nil {
				return "", false, err
			}
			end = &now
		}
		return r.whereTime(*end - 1000*r.c.Int64(keyDelay)), true, nil
	case modeXID:
		return r.whereXID(ctx, conn)
	}
	return "true", true, nil
}

func (r *reader) whereNumber() string {
	conds := []string{r.plan.inc + " IS NOT NULL"}
	if r.pos.inc != nil {
		conds[0] = fmt.Sprintf("%s > %d", r.plan.inc, *r.pos.inc)
	}
	if r.c.guard {
		conds = append(conds, fmt.Sprintf("%s <= %d", r.plan.inc, *r.guard.ready))
	}
	return strings.Join(conds, " AND ")
}

func (r *reader) whereTime(end int64) string {
	ts := r.plan.ts
	conds := []string{ts + " < " + r.moment(end)}
	switch from := r.pos.ts; {
	case from == nil:
		conds = append(conds, ts+" > '-infinity'")
	case r.c.mode == modeTSInc && r.pos.inc != nil:
		at := r.moment(*from)
		conds = append(conds, fmt.Sprintf("%s >= %s AND (%s > %s OR %s > %d)", ts, at, ts, at, r.plan.inc, *r.pos.inc))
	default:
		conds = append(conds, ts+" > "+r.moment(*from))
	}
	if r.c.mode == modeTSInc {
		conds = append(conds, r.plan.inc+" IS NOT NULL")
	}
	return strings.Join(conds, " AND ")
}

// moment is a time as a constant of the type of the column that it is compared with.
func (r *reader) moment(micros int64) string {
	s := fmt.Sprintf("(timestamptz 'epoch' + interval '%d microseconds')", micros)
	if r.plan.zoned {
		return s
	}
	return "(" + s + " AT TIME ZONE " + postgres.QuoteLiteral(r.c.zone.String()) + ")"
}

// whereXID takes the window from the transactions that are given to those that may still be open.
func (r *reader) whereXID(ctx context.Context, conn *pgx.Conn) (cond string, ok bool, err error) {
	var xmin, xmax uint64
	if err := conn.QueryRow(ctx, `SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint
		FROM pg_current_snapshot() s`).Scan(&xmin, &xmax); err != nil {
		return "", false, err
	}
	r.m.horizon(xmax - xmin)
	until := xmin
	if r.pos.key != nil {
		until = r.pos.until
		if r.pos.file != r.plan.file || len(r.pos.key) != len(r.plan.order) {
			r.log.Warn("the table was rewritten, or has another key, in the midst of a round: the round begins again",
				"table", r.label)
			r.pos.key = nil
		}
	}
	from := uint64(0)
	if r.pos.xid != nil {
		from = *r.pos.xid
	}
	if until > xmin || from > xmin {
		return "", false, fmt.Errorf("the server is behind what was read from it: transactions below %d were read, and "+
			"those "+
			"from %d on may be open. It was restored or replaced: forget the connector's offsets to read all again",
			max(until, from), xmin)
	}
	if from == until && r.pos.xid != nil {
		return "", false, nil
	}
	r.win.upTo = position{xid: &until, system: r.pos.system}
	return strings.Join(r.xidConditions(from, until, xmax), " AND "), true, nil
}

func (r *reader) xidConditions(from, until, xmax uint64) (conds []string) {
	if r.c.xid != "" {
		typ := r.plan.order[0].typ
		conds = append(conds, fmt.Sprintf("%s < '%d'::%s", ref(r.c.xid), until, typ))
		if from > 0 {
			conds = append(conds, fmt.Sprintf("%s >= '%d'::%s", ref(r.c.xid), from, typ))
		}
	} else {
		// A row has the low half of its transaction's number; the high half is that of the last one not after now.
		xid := fmt.Sprintf("(%d - ((%d - r.xmin::text::bigint) & 4294967295))", xmax, xmax)
		conds = append(conds, fmt.Sprintf("%s < %d", xid, until))
		if from > 0 {
			conds = append(conds, fmt.Sprintf("%s >= %d", xid, from))
		}
	}
	if r.pos.key == nil {
		return conds
	}
	var left, right []string
	for i, o := range r.plan.order {
		left, right = append(left, o.expr), append(right, postgres.QuoteLiteral(r.pos.key[i])+"::"+o.typ)
	}
	return append(conds, "ROW("+strings.Join(left, ", ")+") > ROW("+strings.Join(right, ", ")+")")
}

// sql is the statement of a window: the columns, and then the values by which rows are ordered.
func (r *reader) sql(where string) string {
	list, order := []string{r.plan.list}, []string{}
	for _, o := range r.plan.order {
		order = append(order, o.expr)
		switch {
		case o.expr == r.plan.ts && r.plan.zoned:
			list = append(list, "round(extract(epoch FROM "+o.expr+") * 1000000)::bigint")
		case o.expr == r.plan.ts:
			list = append(list, "round(extract(epoch FROM "+o.expr+" AT TIME ZONE "+
				postgres.QuoteLiteral(r.c.zone.String())+") * 1000000)::bigint")
		default:
			list = append(list, o.expr+"::text")
		}
	}
	s := "SELECT " + strings.Join(list, ", ") + " FROM " + r.plan.from + " WHERE " + where
	if len(order) > 0 {
		s += " ORDER BY " + strings.Join(order, ", ")
	}
	if r.c.suffix != "" {
		s += " " + r.c.suffix
	}
	return s
}

// fetch reads a page of the open window; done: it is the last.
func (r *reader) fetch(ctx context.Context, conn *pgx.Conn) (out []*plugin.SourceRecord, done bool, err error) {
	var rows []*row
	if r.win.ahead != nil {
		rows = append(rows, r.win.ahead)
		r.win.ahead = nil
	}
	for size := 0; !done && len(rows) <= r.c.rows && size < maxPageBytes; {
		n := min(r.chunk(size), r.c.rows+1-len(rows))
		more, bytes, err := r.chunkOf(ctx, conn, n)
		if err != nil {
			return nil, false, err
		}
		rows, size, done = append(rows, more...), size+bytes, len(more) < n
	}
	if !done {
		r.win.ahead = rows[len(rows)-1]
		rows = rows[:len(rows)-1]
	}
	if err := r.advance(rows, done); err != nil {
		return nil, false, err
	}
	offset := r.pos.offset()
	for _, one := range rows {
		one.record.Source = plugin.Offset{Partition: r.partition, Offset: offset}
		out = append(out, one.record)
	}
	return out, done, nil
}

// chunk is how many rows to ask for: few, until it is known how large they are, and then as many as a page of which a
// part is there may still take.
func (r *reader) chunk(size int) int {
	if r.win.count == 0 {
		return firstChunk
	}
	room := (maxPageBytes - size) / max(1, r.win.bytes/r.win.count)
	return max(1, min(room, 4*r.win.count))
}

// chunkOf reads rows of the open window. Fewer than were asked for: there are no more.
func (r *reader) chunkOf(ctx context.Context, conn *pgx.Conn, n int) (rows []*row, size int, err error) {
	result := conn.PgConn().Exec(ctx, fmt.Sprintf("FETCH %d FROM millrace", n))
	for result.NextResult() {
		rr := result.ResultReader()
		for rr.NextRow() {
			one, bytes := r.row(rr.Values())
			rows = append(rows, one)
			size += bytes
		}
	}
	r.win.count += len(rows)
	r.win.bytes += size
	return rows, size, result.Close()
}

// row makes a record of a row. One that its schemas cannot carry has the fault, and the texts of the row, for the
// runner to decide.
func (r *reader) row(values [][]byte) (one *row, size int) {
	n := len(r.plan.columns)
	v := data.New(r.plan.valueSchema)
	record := &plugin.SourceRecord{Record: data.Record{Topic: r.topic, Partition: data.AnyPartition,
		ValueSchema: r.plan.valueSchema, Value: v, Timestamp: data.NoTimestamp, Offset: -1}}
	for i, text := range values[:n] {
		var err error
		if v.Values[i], err = r.plan.coders[i].Decode(text); err != nil && record.Fault == nil {
			record.Fault = fmt.Errorf("read %s: %w", r.what(), err)
		}
	}
	switch {
	case record.Fault != nil:
		record.ValueSchema, record.Value = nil, r.plan.texts(values)
	case r.plan.keySchema != nil:
		key := data.New(r.plan.keySchema)
		for i, at := range r.plan.key {
			key.Values[i] = v.Values[at]
		}
		record.KeySchema, record.Key = r.plan.keySchema, key
	}
	one = &row{record: record}
	for _, text := range values[n:] {
		one.order = append(one.order, string(text))
	}
	for _, text := range values {
		size += len(text)
	}
	return one, size
}

// texts are a row's columns as the server wrote them.
func (p *plan) texts(values [][]byte) map[string]any {
	out := map[string]any{}
	for i, c := range p.columns {
		out[c.Name] = nil
		if values[i] != nil {
			out[c.Name] = string(values[i])
		}
	}
	return out
}

// advance moves the position behind a page.
func (r *reader) advance(page []*row, done bool) error {
	if len(page) == 0 && !done {
		return nil
	}
	switch r.c.mode {
	case modeXID:
		if done {
			r.pos = r.win.upTo
			return nil
		}
		r.pos.key, r.pos.until, r.pos.file = page[len(page)-1].order, *r.win.upTo.xid, r.plan.file
		if r.pos.xid == nil {
			r.pos.xid = new(uint64)
		}
	case modeInc:
		if len(page) > 0 {
			return r.pos.setNumber(page[len(page)-1].order[0])
		}
	case modeTSInc:
		if len(page) == 0 {
			return nil
		}
		last := page[len(page)-1].order
		if err := r.pos.setTime(last[0]); err != nil {
			return err
		}
		return r.pos.setNumber(last[1])
	case modeTS:
		return r.advanceTime(page, done)
	}
	return nil
}

// advanceTime moves to the last time of which all rows are given.
func (r *reader) advanceTime(page []*row, done bool) error {
	next := "" // of the row behind the page
	if r.win.ahead != nil {
		next = r.win.ahead.order[0]
	}
	cut := done && r.c.limit > 0 && r.win.count >= r.c.limit
	for i := len(page) - 1; i >= 0; i-- {
		at := page[i].order[0]
		if at != next && (next != "" || done && !cut) {
			r.win.groups = true
			return r.pos.setTime(at)
		}
		next = at
	}
	if cut && !r.win.groups {
		return fmt.Errorf("%s leaves out rows of one time, which would be lost: raise the limit, or use mode %s", keySuffix,
			modeTSInc)
	}
	return nil
}

func (p *position) setNumber(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return errors.New("the incrementing column holds a number beyond 64 bits, or with a fraction")
	}
	p.inc = &n
	return nil
}

func (p *position) setTime(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return errors.New("the timestamp column holds a time that cannot be kept as an offset")
	}
	p.ts = &n
	return nil
}

// close ends the open window.
func (r *reader) close(ctx context.Context, conn *pgx.Conn) error {
	r.win = nil
	_, err := conn.Exec(ctx, "COMMIT")
	return err
}
