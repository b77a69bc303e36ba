package sink_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
)

// Four tasks that find no table: one makes it, and all write to it; then all find a column missing.
func TestTasksRaceToCreate(t *testing.T) {
	for round := range 3 {
		d := newDB(t)
		ts := newTopics()
		wide := data.NewStruct("v2", append(rowSchema.Fields, data.Field{Name: "more", Schema: optional(data.Int64)})...)
		for i := range 400 {
			rec := record(int64(i), "a", int32(i))
			if i >= 200 {
				v := data.New(wide)
				v.Values = []any{int64(i), "a", int32(i), int64(i)}
				rec.ValueSchema, rec.Value = wide, v
			}
			ts.add("t", int32(i%4), rec)
		}
		props := settings(native, d.url, "auto.create", "true", "auto.evolve", "true")
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range 4 {
			wg.Go(func() {
				r := newRunner(t, ts, props)
				r.most = 30
				if errs[i] = r.start(t.Context(), tp("t", int32(i))); errs[i] == nil {
					errs[i] = r.drain(t.Context())
				}
				r.stop()
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err, "round %d", round)
		}
		require.Equal(t, "400|200\n", d.text("SELECT count(*), count(more) FROM t"))
		require.Equal(t, "4|400\n", d.text("SELECT count(*), sum(next_offset) FROM connect.sink_offset"))
	}
}

// What a batch that fails had made of tables is gone with it.
func TestTablesAreMadeInTheTransaction(t *testing.T) {
	d := newDB(t)
	ts := newTopics()
	ts.add("made", 0, record(1, "a", nil))
	ts.add(strings.Repeat("x", 70), 0, record(1, "a", nil))
	r := newRunner(t, ts, settings(native, d.url, "auto.create", "true"))
	require.ErrorContains(t, runAll(t, r), "1 to 63 bytes")
	require.Equal(t, "<null>\n", d.text("SELECT to_regclass('made')"))
}

func TestNames(t *testing.T) {
	long := strings.Repeat("n", 63)
	for _, name := range []string{"select", "Order", "with space", `quo"te`, "ünïcode", long, "a'b", "per%cent"} {
		t.Run(name[:min(10, len(name))], func(t *testing.T) {
			d := newDB(t)
			s := data.NewStruct("v", data.Field{Name: "user", Schema: schema(data.Int64)},
				data.Field{Name: "Mixed", Schema: optional(data.String)}, data.Field{Name: name, Schema: optional(data.String)})
			key := data.NewStruct("k", data.Field{Name: "user", Schema: schema(data.Int64)})
			ts := newTopics()
			for i := range int64(3) {
				v := data.New(s).Set("user", i%2).Set("Mixed", "m").Set(name, "x")
				ts.add("t", 0, data.Record{KeySchema: key, Key: data.New(key).Set("user", i%2), ValueSchema: s, Value: v})
			}
			ts.add("t", 0, data.Record{KeySchema: key, Key: data.New(key).Set("user", int64(1))})
			format := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
			props := settings(native, d.url, "auto.create", "true", "table.name.format", format)
			require.Empty(t, run(t, ts, props).reasons)
			require.Equal(t, "0|m|x\n", d.text("SELECT * FROM "+format))
		})
	}
}

// A name that the server would cut is refused: two could become one.
func TestLongColumn(t *testing.T) {
	d := newDB(t)
	s := data.NewStruct("v", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: strings.Repeat("c", 64), Schema: optional(data.String)})
	ts := newTopics()
	ts.add("t", 0, data.Record{KeySchema: idSchema, Key: idKey(1), ValueSchema: s, Value: data.New(s).Set("id", int64(1))})
	err := runAll(t, newRunner(t, ts, settings(native, d.url, "auto.create", "true")))
	require.ErrorContains(t, err, "is no name of a column")
}

// Debezium's and Confluent's settings that leave names unquoted fold them.
func TestUnquotedNames(t *testing.T) {
	d := newDB(t, "CREATE TABLE s_mixed (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	ts.add("S.Mixed", 0, record(1, "a", int32(1)))
	props := settings(debezium, d.url, "insert.mode", "upsert", "primary.key.mode", "record_key")
	require.Empty(t, run(t, ts, props).reasons)
	require.Equal(t, "1|a|1\n", d.text("SELECT * FROM s_mixed"))
	props = settings(confluent, d.url, "insert.mode", "upsert", "pk.mode", "record_key", "table.name.format", "S_MIXED",
		"quote.sql.identifiers", "never", "offset.ledger.name", "other")
	require.Empty(t, run(t, ts, props).reasons)
}

func TestNewColumnsNeedADefault(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY)", "INSERT INTO t VALUES (0)")
	row := func(s *data.Schema) data.Record {
		v := data.New(s)
		v.Values = []any{int64(1), int32(5)}
		return data.Record{KeySchema: idSchema, Key: idKey(1), ValueSchema: s, Value: v}
	}
	must := data.NewStruct("v", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "n", Schema: schema(data.Int32)})
	ts := newTopics()
	ts.add("t", 0, row(must))
	props := settings(native, d.url, "auto.evolve", "true")
	require.ErrorContains(t, runAll(t, newRunner(t, ts, props)), "neither optional nor has a default")
	ts = newTopics()
	ts.add("t", 0, row(data.NewStruct("v", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "n", Schema: &data.Schema{Type: data.Int32, Default: int32(7)}},
		data.Field{Name: "s", Schema: &data.Schema{Type: data.String, Optional: true, Default: `it's \n`}})))
	ts.log[tp("t", 0)][0].Value.(*data.StructValue).Values = []any{int64(1), int32(5), "x"}
	require.NoError(t, runAll(t, newRunner(t, ts, props)))
	require.Equal(t, `0|7|it's \n`+"\n1|5|x\n", d.text("SELECT * FROM t ORDER BY 1"))
}

// Maps without a schema go into tables that are there.
func TestMapsWithoutSchema(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, at timestamptz, doc jsonb, tags text[], "+
		"price numeric, ok bool, day date)")
	ts := newTopics()
	add := func(v map[string]any) {
		ts.add("t", 0, data.Record{Key: map[string]any{"id": v["id"]}, Value: v})
	}
	add(map[string]any{"id": int64(1), "name": "a", "at": "2024-01-01T10:00:00+02:00", "ok": true, "day": "2024-02-29",
		"doc": map[string]any{"b": []any{int64(1), nil}, "a": 1.5}, "tags": []any{"x", nil, "y,z"}, "price": "12.50"})
	add(map[string]any{"id": int64(2), "price": 1.25, "doc": nil, "day": int64(1)})
	add(map[string]any{"id": int64(3), "name": int64(5)})
	add(map[string]any{"id": "four"})
	add(map[string]any{"id": 5.0, "at": int64(17)})
	r := run(t, ts, settings(native, d.url))
	require.Equal(t, []int64{2, 3, 4}, offsets(r.reported), "%v", r.reasons)
	d.exec("SET TimeZone = UTC")
	require.Equal(t, `1|a|2024-01-01 08:00:00+00|{"a": 1.5, "b": [1, null]}|{x,NULL,"y,z"}|12.50|t|2024-02-29`+"\n"+
		"2|<null>|<null>|<null>|<null>|1.25|<null>|1970-01-02\n", d.text("SELECT * FROM t ORDER BY id"))

	err := runAll(t, newRunner(t, ts, settings(native, d.url, "auto.create", "true", "table.name.format", "none",
		"offset.ledger.name", "x")))
	require.ErrorContains(t, err, "has no schema, so that no column can be made")
}

func TestTextValues(t *testing.T) {
	d := newDB(t)
	ts := newTopics()
	ts.add("t", 0, data.Record{KeySchema: schema(data.Int64), Key: int64(7), ValueSchema: schema(data.String),
		Value: "hello"})
	r := run(t, ts, settings(native, d.url, "pk.fields", "id", "auto.create", "true"))
	require.Empty(t, r.reasons)
	require.Equal(t, "7|hello\n", d.text("SELECT id, record_value FROM t"))
}

func TestFields(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	ts.add("t", 0, record(1, "a", int32(1)))
	run(t, ts, settings(native, d.url, "field.include.list", "name"))
	require.Equal(t, "1|a|<null>\n", d.text("SELECT * FROM t"))
	run(t, ts, settings(native, d.url, "field.exclude.list", "name", "offset.ledger.name", "b"))
	require.Equal(t, "1|a|1\n", d.text("SELECT * FROM t"))
}

// Columns that the server makes are left to it, and identities are overridden.
func TestGeneratedColumns(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, "+
		"n int GENERATED ALWAYS AS (length(name)) STORED)")
	ts := newTopics()
	ts.add("t", 0, record(10, "abc", int32(99)))
	ts.add("t", 0, record(10, "abcd", int32(99)))
	require.Empty(t, run(t, ts, settings(native, d.url)).reasons)
	require.Equal(t, "10|abcd|4\n", d.text("SELECT * FROM t"))
}

// Rows in the thousands go by COPY, and mean the same.
func TestManyRows(t *testing.T) {
	for _, props := range [][]string{{}, {"insert.mode", "insert"}, {"connection.pooler", "true"}} {
		d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
		ts := newTopics()
		for i := range 5000 {
			ts.add("t", 0, record(int64(i), "tab\t line\n back\\ \\N", any(nil)))
		}
		if len(props) == 0 {
			for i := range 5000 {
				ts.add("t", 0, record(int64(i), "tab\t line\n back\\ \\N", any(int32(i))))
			}
		}
		r := newRunner(t, ts, settings(native, d.url, props...))
		r.most = 5000
		require.NoError(t, runAll(t, r))
		require.Empty(t, r.reasons)
		require.Equal(t, "5000\n", d.text(`SELECT count(*) FROM t WHERE name = E'tab\t line\n back\\ \\N'`))
		require.Equal(t, fmt.Sprintf("t|0|%d\n", len(ts.log[tp("t", 0)])), d.ledger())
	}
}

// Whatever a text holds arrives as it was, by either way.
func TestTextsArriveAsTheyAre(t *testing.T) {
	const n = 2500
	rnd := rand.New(rand.NewPCG(1, 2))
	letters := []rune("\\\\\t\n\r\"'{}(),. NULLnull\\N\x01\x7fäß😀\u2028a0-_$%")
	want := map[int64]string{}
	s := data.NewStruct("v", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "name", Schema: optional(data.String)},
		data.Field{Name: "list", Schema: &data.Schema{Type: data.Array, Optional: true, Elem: optional(data.String)}},
		data.Field{Name: "pairs", Schema: &data.Schema{Type: data.Map, Optional: true, Key: schema(data.String),
			Elem: optional(data.String)}})
	ts := newTopics()
	for id := range int64(n) {
		text := make([]rune, rnd.IntN(12))
		for i := range text {
			text[i] = letters[rnd.IntN(len(letters))]
		}
		want[id] = string(text)
		v := data.New(s)
		v.Values = []any{id, want[id], []any{want[id], "x", want[id]}, map[string]any{want[id]: want[id]}}
		ts.add("t", 0, data.Record{KeySchema: idSchema, Key: idKey(id), ValueSchema: s, Value: v})
	}
	for _, most := range []int{n, 500} { // COPY, and arrays
		d := newDB(t, "CREATE EXTENSION hstore",
			"CREATE TABLE t (id bigint PRIMARY KEY, name text, list text[], pairs hstore)")
		r := newRunner(t, ts, settings(native, d.url))
		r.most = most
		require.NoError(t, runAll(t, r))
		require.Empty(t, r.reasons)
		rows, err := d.conn.Query(t.Context(), "SELECT id, name, list[1], list[3], pairs->name FROM t")
		require.NoError(t, err)
		var id int64
		var texts [4]string
		_, err = pgx.ForEachRow(rows, []any{&id, &texts[0], &texts[1], &texts[2], &texts[3]}, func() error {
			for _, text := range texts {
				require.Equal(t, want[id], text)
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, n, int(rows.CommandTag().RowsAffected()))
	}
}

// Behind a pooler in transaction mode nothing is kept in the session.
func TestPoolerKeepsNothing(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	for i := range 2500 {
		ts.add("t", 0, record(int64(i), "a", nil))
	}
	r := newRunner(t, ts, settings(native, d.url, "connection.pooler", "true"))
	r.most = 2500
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	defer r.stop()
	require.NoError(t, r.drain(t.Context()))
	require.Equal(t, "0\n", d.text("SELECT count(*) FROM pg_class WHERE relpersistence = 't'"))
}

// Filtered records move the ledger on without a row.
func TestFilteredRecords(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	at := tp("t", 0)
	for i := range 10 {
		ts.add("t", 0, record(int64(i), "a", nil))
	}
	r := newRunner(t, ts, settings(native, d.url))
	require.NoError(t, r.start(t.Context(), at))
	defer r.stop()
	all := ts.read(at, 0, 10)
	next := func(n int64) map[client.TopicPartition]int64 { return map[client.TopicPartition]int64{at: n} }
	require.NoError(t, r.task.Put(t.Context(), &plugin.SinkBatch{Next: next(4)}))
	require.Equal(t, "t|0|4\n", d.ledger())
	require.NoError(t, r.task.Put(t.Context(), &plugin.SinkBatch{Records: all[2:6], Next: next(9)}))
	require.Equal(t, "t|0|9\n", d.ledger())
	require.Equal(t, "4\n5\n", d.text("SELECT id FROM t ORDER BY 1"))
	require.NoError(t, r.task.Put(t.Context(), &plugin.SinkBatch{}))
	got, err := r.task.PreCommit(t.Context(), next(10))
	require.NoError(t, err)
	require.Equal(t, next(9), got)
}
