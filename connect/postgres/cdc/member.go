package cdc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// A table that comes into the publication brings rows of which the stream says nothing. Since when a table is in it is
// told by the transaction that wrote its row of the catalog: what the view in the position does not see is new. So it
// is noticed whoever published the table, and also what happened while nothing ran.
//
// A publication of all tables, or of all of a schema's, has each table from its making on: none is new there.

const membersQuery = `SELECT %s::text,
	ARRAY(SELECT r.xmin::text::bigint FROM pg_publication_rel r WHERE r.prpubid = p.oid) || %s
	FROM pg_publication p WHERE p.pubname = $1 AND NOT p.puballtables`

// joinedQuery gives each table of the publication with what has it in there: itself, a table that it is a partition of,
// or a schema.
const joinedQuery = `SELECT %s::text, t.schemaname::text, t.tablename::text,
	ARRAY(SELECT r.xmin::text::bigint FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid IN (%s)) || %s
	FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname
	JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
	WHERE p.pubname = $1 AND NOT p.puballtables`

func (s server) snapshotSQL() string {
	if s.version < 130000 {
		return "txid_current_snapshot()"
	}
	return "pg_current_snapshot()"
}

func (s server) membersSQL() string {
	schemas := "'{}'::bigint[]"
	if s.version >= 150000 {
		schemas = "ARRAY(SELECT s.xmin::text::bigint FROM pg_publication_namespace s WHERE s.pnpubid = p.oid)"
	}
	return fmt.Sprintf(membersQuery, s.snapshotSQL(), schemas)
}

func (s server) joinedSQL() string {
	above, schemas := "c.oid", "'{}'::bigint[]"
	if s.version >= 120000 {
		above = "SELECT c.oid UNION ALL SELECT relid FROM pg_partition_ancestors(c.oid)"
	}
	if s.version >= 150000 {
		schemas = `ARRAY(SELECT s.xmin::text::bigint FROM pg_publication_namespace s JOIN pg_class k ON
			k.relnamespace = s.pnnspid WHERE s.pnpubid = p.oid AND k.oid IN (` + above + `))`
	}
	return fmt.Sprintf(joinedQuery, s.snapshotSQL(), above, schemas)
}

// view is what the database shows now.
func (n *session) view(ctx context.Context) (text string, err error) {
	err = n.sql.QueryRow(ctx, "SELECT "+n.server.snapshotSQL()+"::text").Scan(&text)
	return text, postgres.Explain(err, "look at the database")
}

// unseen says whether none of the rows that these transactions wrote is in a view.
func (v *view) unseen(xids []int64) bool {
	return !slices.ContainsFunc(xids, func(x int64) bool { return v.sees(uint32(x)) })
}

// joined are tables that have come into the publication since a view, and the view in which that was seen.
func (n *session) joined(ctx context.Context, since string) (names []tableName, now string, err error) {
	old, err := parseView(since)
	if err != nil {
		return nil, "", fmt.Errorf("offset: published: %w", err)
	}
	var xids []int64
	err = n.sql.QueryRow(ctx, n.server.membersSQL(), n.s.publication).Scan(&now, &xids)
	if err == pgx.ErrNoRows {
		return nil, since, nil
	}
	if err != nil {
		return nil, "", postgres.Explain(err, "look at the publication")
	}
	if !slices.ContainsFunc(xids, func(x int64) bool { return !old.sees(uint32(x)) }) {
		return nil, n.later(old, since, now), nil
	}
	rows, err := n.sql.Query(ctx, n.server.joinedSQL(), n.s.publication)
	if err != nil {
		return nil, "", postgres.Explain(err, "look at the publication")
	}
	now = since // where no table is left in it
	var name tableName
	_, err = pgx.ForEachRow(rows, []any{&now, &name.Schema, &name.Name, &xids}, func() error {
		if len(xids) > 0 && old.unseen(xids) { // without any, the row is newer than what this statement sees
			names = append(names, name)
		}
		return nil
	})
	return names, now, postgres.Explain(err, "look at the publication")
}

// later is the view to go on with where nothing is new: the same, so that the position stays as it is, until it is old.
// Transactions are told apart by half of their numbers, which come again after a while.
func (n *session) later(old *view, since, now string) string {
	const age = 1 << 24
	if v, err := parseView(now); err == nil && v.xmax > old.xmax+age {
		return now
	}
	return since
}

// notice finds the tables that have come to be captured since the position was stored, and has their rows read.
func (t *task) notice(ctx context.Context) error {
	n, p := t.session, t.at
	if !t.s.snapshot.streaming || p.seen == "" {
		return nil
	}
	names, now, err := n.joined(ctx, p.seen)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		if err := n.loadMembers(ctx); err != nil {
			return err
		}
	}
	p.seen = now
	names = slices.DeleteFunc(names, func(x tableName) bool { return !t.s.filter.table(x) })
	if p.scope != t.s.filter.scope {
		names = append(names, t.widened(p.scope, names)...)
		p.scope = t.s.filter.scope
	}
	return t.welcome(ctx, names)
}

// widened are the tables of the publication that the settings of before did not capture.
func (t *task) widened(scope string, but []tableName) (out []tableName) {
	if scope == "" {
		return nil
	}
	before, err := parseScope(scope)
	if err != nil {
		t.logger.Warn("what is captured has been changed. The rows of tables that are captured only now come with their " +
			"changes; to have all of them, send an execute-snapshot signal that names these tables")
		return nil
	}
	for name := range t.session.tables {
		if t.s.filter.table(name) && !before.table(name) && !slices.Contains(but, name) {
			out = append(out, name)
		}
	}
	return out
}

// welcome has the rows of tables read that are new.
func (t *task) welcome(ctx context.Context, names []tableName) error {
	names = slices.DeleteFunc(names, func(x tableName) bool {
		_, there := t.session.tables[x]
		return !there || x == t.s.signals
	})
	if len(names) == 0 {
		return nil
	}
	sortTables(names)
	list := make([]string, 0, len(names))
	for _, x := range names {
		list = append(list, x.String())
	}
	if !t.s.snapshot.initial {
		t.logger.Warn("tables have come to be captured. Their rows of before are not read, as snapshot.mode says; to have "+
			"them, send an execute-snapshot signal", "tables", strings.Join(list, ","))
		return nil
	}
	now, err := t.session.view(ctx)
	if err != nil {
		return err
	}
	v, err := parseView(now)
	if err != nil {
		return err
	}
	state := t.at.state()
	state.Chunks, state.Todo = slices.Clone(state.Chunks), slices.Clone(state.Todo)
	for _, x := range names {
		if !t.s.filter.snapshot.take(x.String()) {
			continue
		}
		state.Chunks = slices.DeleteFunc(state.Chunks, func(c chunkedTable) bool { return c.Table == x })
		state.Todo = slices.DeleteFunc(state.Todo, func(y tableName) bool { return y == x })
		state.New = slices.DeleteFunc(slices.Clone(state.New), func(y newTable) bool { return y.Table == x })
		state.New = append(state.New, newTable{x, v.xmax})
		if t.window != nil && t.window.name == x {
			t.window = nil
		}
	}
	t.logger.Info("tables have come to be captured: their rows are read", "tables", strings.Join(list, ","))
	return nil
}

// admit begins to read new tables once all that changed them untold has ended.
func (t *task) admit(ctx context.Context) error {
	state := t.at.snap
	if state == nil || len(state.New) == 0 || t.now().Before(t.beats.admit) {
		return nil
	}
	t.beats.admit = t.now().Add(admitEvery)
	now, err := t.session.view(ctx)
	if err != nil {
		return err
	}
	v, err := parseView(now)
	if err != nil {
		return err
	}
	var wait []newTable
	for _, x := range state.New {
		p, there := t.session.tables[x.Table]
		switch {
		case v.xmin < x.After:
			wait = append(wait, x)
		case !there:
			t.logger.Warn("a table is gone before it was read", "table", x.Table.String())
		case t.session.chunkable(p):
			state.Chunks = append(slices.Clone(state.Chunks), chunkedTable{Table: x.Table})
		default:
			state.Todo = append(slices.Clone(state.Todo), x.Table)
		}
	}
	state.New = wait
	return nil
}

// widen adds tables to the publication that were made since, where the connector keeps it. What it cannot add, it warns
// of, once.
func (t *task) widen(ctx context.Context) error {
	n := t.session
	mode, before := t.s.Lower("publication.autocreate.mode"), n.tables
	out, err := n.outside(ctx)
	if err != nil {
		return err
	}
	var leave []candidate
	for _, c := range out {
		if mode != "filtered" || c.breaks || n.server.standby || t.s.readOnly {
			leave = append(leave, c)
			continue
		}
		_, err := n.sql.Exec(ctx, "SET LOCAL lock_timeout = '1s'; "+n.s.addSQL(c)) // both are one transaction
		switch f := postgres.FaultOf(err); {
		case f == postgres.Connection:
			return err
		case f == postgres.Retry: // another time
		case err != nil:
			leave = append(leave, c)
		default:
			if _, was := before[c.name]; was {
				t.logger.Warn("a table was taken out of the publication, and has been published again. Its rows are read; "+
					"those that were deleted meanwhile are not told", "table", c.name.String())
				continue
			}
			t.logger.Info("a table is new, and has been published", "table", c.name.String())
		}
	}
	t.warnOf(leave)
	return nil
}

// addSQL publishes a table, so that its users are not hurt by it.
func (s *settings) addSQL(c candidate) string {
	sql := "ALTER PUBLICATION " + postgres.Quote(s.publication) + " ADD TABLE " + c.name.SQL()
	if c.breaks {
		sql = "ALTER TABLE " + c.name.SQL() + " REPLICA IDENTITY FULL; " + sql
	}
	return sql
}

// outside are tables that should be captured and are not in the publication.
func (n *session) outside(ctx context.Context) (out []candidate, err error) {
	now, err := loadPublication(ctx, n.sql, n.s.publication)
	if err != nil || now.all || !now.exists {
		return nil, err
	}
	all, err := candidates(ctx, n.sql)
	if err != nil {
		return nil, err
	}
	members, err := loadPublished(ctx, n.sql, n.server.version, n.s.publication)
	if err != nil {
		return nil, err
	}
	list, err := n.listed(ctx)
	if err != nil {
		return nil, err
	}
	has := map[tableName]bool{}
	for _, p := range members {
		has[p.name] = true
	}
	for _, name := range list { // also a root whose partitions are told of
		has[name] = true
	}
	for _, c := range all {
		if n.s.captured(c.name) && !c.partition && !has[c.name] {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, n.loadMembers(ctx)
}

// warnOf tells of tables that should be captured and are not, of each once.
func (t *task) warnOf(list []candidate) {
	var names, sql []string
	for _, c := range list {
		if !t.warned[c.name] {
			names, sql = append(names, c.name.String()), append(sql, t.s.addSQL(c))
		}
	}
	if len(names) == 0 {
		return
	}
	if t.warned == nil {
		t.warned = map[tableName]bool{}
	}
	for _, c := range list {
		t.warned[c.name] = true
	}
	const most = 10
	t.logger.Warn("tables are not captured, as the publication does not have them", "count", len(names), "tables",
		strings.Join(names[:min(len(names), most)], ","), "run", strings.Join(sql[:min(len(sql), most)], "; "))
}

// scopeOf writes what is captured; a long list as its digest, which can only be compared.
func scopeOf(s plugin.Settings) string {
	const most = 4096
	b, err := json.Marshal([]string{s.String("schema.include.list"), s.String("schema.exclude.list"),
		s.String("table.include.list"), s.String("table.exclude.list")})
	if err != nil {
		panic(err) // it is made of strings
	}
	if len(b) > most {
		sum := sha256.Sum256(b)
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return string(b)
}

// parseScope reads what scopeOf wrote.
func parseScope(text string) (f filter, err error) {
	var lists []string
	if err := json.Unmarshal([]byte(text), &lists); err != nil || len(lists) != 4 {
		return f, fmt.Errorf("%q is no scope", text)
	}
	for i, to := range []*[]*regexp.Regexp{&f.schemas.include, &f.schemas.exclude, &f.tables.include, &f.tables.exclude} {
		if *to, err = compile(splitList(lists[i])); err != nil {
			return f, err
		}
	}
	return f, nil
}
