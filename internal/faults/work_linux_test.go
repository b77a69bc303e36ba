package faults_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// longName is as long as a name may be.
var longName = strings.Repeat("long_name_", 6) + "end"

// tablesDDL makes the tables beside the one of all types; strange are columns with names that not all can write.
func tablesDDL(strange []string) []string {
	odd := ""
	for _, name := range strange {
		odd += ", " + pgx.Identifier{name}.Sanitize() + " text"
	}
	external := ""
	for _, c := range []string{"doc", "blob", "tags", "ints", "j"} {
		external += "ALTER TABLE docs ALTER COLUMN " + c + " SET STORAGE EXTERNAL;"
	}
	return []string{
		`CREATE TABLE composite (tenant int, code varchar(20), at timestamptz, n bigint, PRIMARY KEY (code, tenant))`,
		`CREATE TABLE docs (id int PRIMARY KEY, doc text NOT NULL, blob bytea, tags text[], ints int[], j jsonb, n int)`,
		external,
		`CREATE TABLE "Full Table" (id int NOT NULL, doc text, n int, at timestamp)`,
		`CREATE TABLE indexed (code text NOT NULL UNIQUE, v text, n int)`,
		fmt.Sprintf(`CREATE TABLE %s ("select" int PRIMARY KEY, "user" text, "order" int, %s text%s)`, longName,
			strings.Repeat("c", 63), odd),
		`CREATE TABLE evolves (id int PRIMARY KEY, a int, b varchar(10), d numeric(8,2), e timestamp(3))`,
	}
}

// identities are for the source alone.
var identities = []string{
	`ALTER TABLE "Full Table" REPLICA IDENTITY FULL`,
	`ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_code_key`,
	`CREATE TABLE parts (id int, region text, n int, PRIMARY KEY (id, region)) PARTITION BY LIST (region)`,
	`CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a')`,
	`CREATE TABLE parts_rest PARTITION OF parts DEFAULT`,
}

// keysDDL are for the target alone: what the source's tables do without, upserts need.
var keysDDL = []string{`ALTER TABLE "Full Table" ADD PRIMARY KEY (id)`}

// keySpace is how many different keys there are: few, so that rows meet each other.
const keySpace = 300

// labour changes the tables at random until it is stopped.
type labour struct {
	t       testing.TB
	from    string
	to      string
	columns []typed
	strange []string

	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   atomic.Int64 // transactions
	undone atomic.Int64 // of these, rolled back on purpose
	lost   atomic.Int64 // ended by a fault
	ddl    atomic.Int64
}

// hand is one who works, with a session of its own.
type hand struct {
	*labour
	r     *rand.Rand
	conn  *pgx.Conn
	next  int // number of new columns
	wider map[string]bool
}

func (l *labour) start(hands int) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.t.Cleanup(l.stop)
	for i := range hands {
		h := &hand{labour: l, r: rand.New(rand.NewPCG(*seed, uint64(100+i))), wider: map[string]bool{}}
		l.wg.Go(func() {
			for ctx.Err() == nil {
				h.transaction(ctx)
				if i == 0 && h.r.IntN(20) == 0 {
					h.evolve(ctx)
				}
				pause(ctx, time.Duration(h.r.IntN(25))*time.Millisecond)
			}
			h.hangUp()
		})
	}
}

func (l *labour) stop() {
	l.cancel()
	l.wg.Wait()
}

func (h *hand) hangUp() {
	if h.conn != nil {
		h.conn.Close(context.Background())
		h.conn = nil
	}
}

// expected are what the server may say to someone who is disturbed, or in another's way.
var expected = []string{"40P01", "40001", "55P03", "23505", "57P01", "57P02", "57P03", "57014", "53300"}

// exec runs SQL, and says whether it was done as far as is known.
func (h *hand) exec(ctx context.Context, sql string) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if h.conn == nil || h.conn.IsClosed() {
		c, err := pgx.Connect(ctx, h.from)
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			return false
		}
		h.conn = c
	}
	_, err := h.conn.PgConn().Exec(ctx, sql).ReadAll()
	if err == nil {
		return true
	}
	h.lost.Add(1)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && !slices.Contains(expected, pg.Code) {
		h.t.Errorf("the workload is wrong: %v\n%.2000s", err, sql)
	}
	h.hangUp()
	return false
}

// transaction makes one of some changes, now and then of many, with parts that are undone.
func (h *hand) transaction(ctx context.Context) {
	count := 1 + h.r.IntN(6)
	if h.r.IntN(30) == 0 {
		count = 50 + h.r.IntN(150)
	}
	var b strings.Builder
	b.WriteString("BEGIN;")
	for i := range count {
		if h.r.IntN(8) == 0 {
			fmt.Fprintf(&b, "SAVEPOINT s%d; %s %s;", i, h.change(), h.change())
			b.WriteString([]string{"ROLLBACK TO s", "RELEASE s", "ROLLBACK TO s"}[h.r.IntN(3)] + fmt.Sprint(i) + ";")
		}
		b.WriteString(h.change())
	}
	if h.r.IntN(40) == 0 {
		b.WriteString("INSERT INTO composite SELECT g % 7, 'bulk' || g, now(), g FROM generate_series(1, 3000) g " +
			"ON CONFLICT (code, tenant) DO UPDATE SET n = composite.n + 1;")
	}
	end := "COMMIT"
	if h.r.IntN(6) == 0 {
		end = "ROLLBACK"
		h.undone.Add(1)
	}
	if h.exec(ctx, b.String()+end) {
		h.done.Add(1)
	}
}

func (h *hand) id() int { return 1 + h.r.IntN(keySpace) }

// big is a text that is kept apart from its row.
func (h *hand) big() string { return fmt.Sprintf("repeat('%x', %d)", h.r.Uint32(), 500+h.r.IntN(500)) }

func (h *hand) change() string {
	changes := []func() string{h.all, h.all, h.all, h.docs, h.docs, h.docs, h.composite, h.full, h.full, h.indexed, h.long,
		h.parts, h.parts, h.evolving, h.evolving}
	if h.r.IntN(400) == 0 {
		return h.truncate()
	}
	return changes[h.r.IntN(len(changes))]()
}

func (h *hand) truncate() string {
	return []string{"TRUNCATE everything;", "TRUNCATE docs, indexed;", `TRUNCATE "Full Table" RESTART IDENTITY CASCADE;`,
		"TRUNCATE composite;", "TRUNCATE parts;", "TRUNCATE evolves;"}[h.r.IntN(6)]
}

// literal is a value for a column.
func (h *hand) literal(c *typed) string {
	if h.r.IntN(4) == 0 {
		return "NULL"
	}
	return "(" + c.values[h.r.IntN(len(c.values))] + ")::" + c.kind
}

// all changes the table that has all types.
func (h *hand) all() string {
	id := h.id()
	switch h.r.IntN(8) {
	case 0, 1, 2:
		names, values := []string{"id"}, []string{fmt.Sprint(id)}
		for i := range h.columns {
			names, values = append(names, h.columns[i].name), append(values, h.literal(&h.columns[i]))
		}
		return fmt.Sprintf("INSERT INTO everything (%s) VALUES (%s) ON CONFLICT DO NOTHING;", strings.Join(names, ", "),
			strings.Join(values, ", "))
	case 3, 4, 5:
		var sets []string
		for i := range h.columns {
			if h.r.IntN(6) == 0 {
				sets = append(sets, h.columns[i].name+" = "+h.literal(&h.columns[i]))
			}
		}
		if len(sets) == 0 {
			return ""
		}
		return fmt.Sprintf("UPDATE everything SET %s WHERE id = %d;", strings.Join(sets, ", "), id)
	case 6:
		return h.move("everything", "id", id, h.id())
	}
	return fmt.Sprintf("DELETE FROM everything WHERE id = %d;", id)
}

// move changes a key.
func (h *hand) move(table, column string, id, to int) string {
	return fmt.Sprintf("UPDATE %s SET %s = %d WHERE %[2]s = %[4]d AND NOT EXISTS (SELECT FROM %[1]s WHERE %[2]s = %[3]d);",
		table, column, to, id)
}

// docs changes rows of which most is kept apart.
func (h *hand) docs() string {
	id := h.id() % 60
	switch h.r.IntN(9) {
	case 0, 1:
		return fmt.Sprintf(`INSERT INTO docs VALUES (%d, %s, decode(%s, 'hex'), ARRAY[%s, NULL, ''],
			(SELECT array_agg(g) FROM generate_series(1, 1000) g), to_jsonb(%s), 0) ON CONFLICT DO NOTHING;`, id, h.big(),
			fmt.Sprintf("repeat('%08x', 800)", h.r.Uint32()), h.big(), h.big())
	case 2, 3, 4:
		return fmt.Sprintf("UPDATE docs SET n = n + 1 WHERE id = %d;", id)
	case 5:
		return fmt.Sprintf("UPDATE docs SET doc = %s, tags = NULL WHERE id = %d;", h.big(), id)
	case 6:
		return h.move("docs", "id", id, h.id()%60)
	case 7: // to and fro in one transaction
		over := 1000 + h.id()
		return h.move("docs", "id", id, over) + h.move("docs", "id", over, id)
	}
	return fmt.Sprintf("DELETE FROM docs WHERE id = %d;", id)
}

func (h *hand) composite() string {
	tenant, code := h.r.IntN(3), fmt.Sprintf("c%d", h.r.IntN(50))
	where := fmt.Sprintf("WHERE tenant = %d AND code = '%s'", tenant, code)
	switch h.r.IntN(5) {
	case 0, 1:
		return fmt.Sprintf("INSERT INTO composite VALUES (%d, '%s', clock_timestamp(), %d) ON CONFLICT DO NOTHING;", tenant,
			code, h.r.Int64())
	case 2:
		return "UPDATE composite SET n = -n, at = now() " + where + ";"
	case 3:
		return fmt.Sprintf(`UPDATE composite SET tenant = %d %s
			AND NOT EXISTS (SELECT FROM composite WHERE tenant = %[1]d AND code = '%[3]s');`, h.r.IntN(3), where, code)
	}
	return "DELETE FROM composite " + where + ";"
}

// full changes a table without a key; that there is one row of an id at most is up to this.
func (h *hand) full() string {
	id := h.id()
	switch h.r.IntN(5) {
	case 0, 1:
		return fmt.Sprintf(`LOCK TABLE "Full Table" IN SHARE ROW EXCLUSIVE MODE;
			INSERT INTO "Full Table" SELECT %d, %s, 0, now() WHERE NOT EXISTS (SELECT FROM "Full Table" WHERE id = %[1]d);`,
			id, h.big())
	case 2:
		return fmt.Sprintf(`UPDATE "Full Table" SET n = n + 1 WHERE id = %d;`, id)
	case 3:
		return `LOCK TABLE "Full Table" IN SHARE ROW EXCLUSIVE MODE;` + h.move(`"Full Table"`, "id", id, h.id())
	}
	return fmt.Sprintf(`DELETE FROM "Full Table" WHERE id = %d;`, id)
}

func (h *hand) indexed() string {
	code := fmt.Sprint("k", h.r.IntN(40))
	switch h.r.IntN(4) {
	case 0, 1:
		return fmt.Sprintf("INSERT INTO indexed VALUES ('%s', %s, 1) ON CONFLICT (code) DO UPDATE SET n = indexed.n + 1;",
			code, h.big())
	case 2:
		return fmt.Sprintf(`UPDATE indexed SET code = code || '.' WHERE code = '%s'
			AND NOT EXISTS (SELECT FROM indexed WHERE code = '%[1]s.');`, code)
	}
	return fmt.Sprintf("DELETE FROM indexed WHERE code = '%s';", code)
}

func (h *hand) long() string {
	id := h.id()
	if h.r.IntN(4) == 0 {
		return fmt.Sprintf(`DELETE FROM %s WHERE "select" = %d;`, longName, id)
	}
	column := append([]string{"user", strings.Repeat("c", 63)}, h.strange...)[h.r.IntN(2+len(h.strange))]
	return fmt.Sprintf(`INSERT INTO %s ("select", %s) VALUES (%d, 'v%d') ON CONFLICT ("select") DO UPDATE SET %[2]s =
		excluded.%[2]s, "order" = %[4]d;`, longName, pgx.Identifier{column}.Sanitize(), id, h.r.IntN(1000))
}

// parts changes a table in parts, between which rows move.
func (h *hand) parts() string {
	id, region := h.id(), string(rune('a'+h.r.IntN(3)))
	switch h.r.IntN(5) {
	case 0, 1:
		return fmt.Sprintf("INSERT INTO parts VALUES (%d, '%s', 0) ON CONFLICT DO NOTHING;", id, region)
	case 2:
		return fmt.Sprintf("UPDATE parts SET n = n + 1 WHERE id = %d;", id)
	case 3:
		return fmt.Sprintf(`UPDATE parts SET region = '%s' WHERE id = %d AND region = '%s'
			AND NOT EXISTS (SELECT FROM parts WHERE id = %[2]d AND region = '%[1]s');`, string(rune('a'+h.r.IntN(3))), id,
			region)
	}
	return fmt.Sprintf("DELETE FROM parts WHERE id = %d;", id)
}

// evolving changes rows of the table whose columns change, by the columns that stay.
func (h *hand) evolving() string {
	id := h.id()
	switch h.r.IntN(4) {
	case 0, 1:
		return fmt.Sprintf(`INSERT INTO evolves (id, a, b, d, e) VALUES (%d, %d, 'b%d', %d.25, now()) ON CONFLICT (id)
			DO UPDATE SET a = excluded.a, b = excluded.b;`, id, h.r.Int32(), h.r.IntN(99), h.r.IntN(9999))
	case 2:
		return fmt.Sprintf("UPDATE evolves SET d = -d, e = clock_timestamp() WHERE id = %d;", id)
	}
	return fmt.Sprintf("DELETE FROM evolves WHERE id = %d;", id)
}

// touch writes all rows anew: what a change of the table does to rows is not in the server's log.
const touch = "UPDATE evolves SET a = a;"

// evolve changes the columns of a table. What came of a change that was disturbed, the next one finds.
func (h *hand) evolve(ctx context.Context) {
	extra := h.extra(ctx)
	h.next++
	name := fmt.Sprintf("x%d_%d", h.next, h.r.IntN(1_000_000))
	kinds := []string{"int", "text", "numeric(12,3)", "timestamptz", "boolean", "date", "uuid", "jsonb", "int[]"}
	kind := kinds[h.r.IntN(len(kinds))]
	sql := ""
	switch n := h.r.IntN(8); {
	case n == 0:
		sql = fmt.Sprintf("ALTER TABLE evolves ADD COLUMN %s %s;", name, kind)
	case n == 1:
		sql = fmt.Sprintf("ALTER TABLE evolves ADD COLUMN %s int DEFAULT 7;", name) + touch
	case n == 2:
		sql = fmt.Sprintf("ALTER TABLE evolves ADD COLUMN %s text NOT NULL DEFAULT 'given';", name) + touch
	case n == 3 && len(extra) > 0:
		sql = fmt.Sprintf("ALTER TABLE evolves DROP COLUMN %s;", extra[h.r.IntN(len(extra))])
	case n == 4 && len(extra) > 0:
		sql = fmt.Sprintf("ALTER TABLE evolves RENAME COLUMN %s TO %s;", extra[h.r.IntN(len(extra))], name) + touch
	case n == 5:
		sql = h.evolving() + fmt.Sprintf("ALTER TABLE evolves ADD COLUMN %s %s;", name, kind) + h.evolving()
	case n == 6:
		sql = fmt.Sprintf("ALTER TABLE evolves ADD COLUMN %s int; UPDATE evolves SET %[1]s = id; ROLLBACK; BEGIN;", name)
	default:
		h.widen(ctx)
		return
	}
	if h.exec(ctx, "BEGIN;"+sql+h.evolving()+"COMMIT") {
		h.ddl.Add(1)
	}
}

// extra are the columns that came later, and may go.
func (h *hand) extra(ctx context.Context) []string {
	out, err := query(ctx, h.from, `SELECT attname FROM pg_attribute
		WHERE attrelid = 'evolves'::regclass AND attname ~ '^x[0-9]' AND NOT attisdropped`)
	if err != nil {
		return nil // the server is away
	}
	return out
}

// widen changes the type of a column, in the target first, as whoever runs it must.
func (h *hand) widen(ctx context.Context) {
	wider := map[string]string{"a": "bigint", "b": "text", "d": "numeric(12,4)", "e": "timestamp(6)"}
	column := string("abde"[h.r.IntN(4)])
	if h.wider[column] {
		return
	}
	sql := fmt.Sprintf("ALTER TABLE evolves ALTER COLUMN %s TYPE %s;", column, wider[column])
	if _, err := query(ctx, h.to, sql+"SELECT 1"); err != nil {
		return // later
	}
	if h.exec(ctx, "BEGIN;"+sql+touch+"COMMIT") {
		h.wider[column] = true
		h.ddl.Add(1)
	}
}

// tables are the tables that are compared, with what they are ordered by.
var tables = map[string]string{
	"everything": "id", "composite": "code, tenant", "docs": "id", `"Full Table"`: "id", "indexed": "code",
	longName: `"select"`, "evolves": "id", "parts": "id, region",
}

// contents is a table as text, by the source's columns.
func (f *flows) contents(dsn, table string) ([]string, error) {
	f.t.Helper()
	columns := f.must(f.from, fmt.Sprintf(`SELECT string_agg(quote_ident(attname) || '::text', ', ' ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = '%s'::regclass AND attnum > 0 AND NOT attisdropped`, table))
	rows, err := query(f.t.Context(), dsn, fmt.Sprintf("SELECT %s FROM %s ORDER BY %s", columns[0], table, tables[table]))
	for i, row := range rows {
		fields := strings.Split(row, "|")
		for k, v := range fields {
			if len(v) > 100 {
				fields[k] = fmt.Sprintf("%.12s…%d bytes, %x", v, len(v), crc32.ChecksumIEEE([]byte(v)))
			}
		}
		rows[i] = strings.Join(fields, "|")
	}
	return rows, err
}

// difference is what differs between the databases, "" if nothing does.
func (f *flows) difference() string {
	f.t.Helper()
	var b strings.Builder
	for table := range tables {
		want, err := f.contents(f.from, table)
		require.NoError(f.t, err)
		got, err := f.contents(f.to, table)
		if err != nil {
			fmt.Fprintf(&b, "table %s: %v\n", table, err)
			continue
		}
		rows := map[string]int{}
		for _, r := range want {
			rows[r]++
		}
		for _, r := range got {
			rows[r]--
		}
		var lines []string
		for r, n := range rows {
			if n != 0 {
				lines = append(lines, fmt.Sprintf("table %s: %+d × %s\n", table, n, r))
			}
		}
		slices.SortFunc(lines, func(a, b string) int { return strings.Compare(after(a, "×"), after(b, "×")) })
		fmt.Fprintf(&b, "%s", strings.Join(lines[:min(8, len(lines))], ""))
	}
	return b.String()
}

func after(s, sep string) string {
	_, rest, _ := strings.Cut(s, sep)
	return rest
}
