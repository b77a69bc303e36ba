package sink_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

var (
	sourceSchema = data.NewStruct("source", data.Field{Name: "schema", Schema: schema(data.String)},
		data.Field{Name: "table", Schema: schema(data.String)})
	envelopeSchema = data.NewStruct("x.Envelope",
		data.Field{Name: "before", Schema: rowSchema.AsOptional()}, data.Field{Name: "after", Schema: rowSchema.AsOptional()},
		data.Field{Name: "source", Schema: sourceSchema}, data.Field{Name: "op", Schema: schema(data.String)})
)

// change is a change event as Debezium has it.
func change(op string, id int64, name, n any) data.Record {
	v := data.New(envelopeSchema).Set("op", op).
		Set("source", data.New(sourceSchema).Set("schema", "public").Set("table", "copy"))
	row := data.New(rowSchema)
	row.Values = []any{id, name, n}
	switch op {
	case "d":
		v.Set("before", row)
	case "c", "r", "u":
		v.Set("after", row)
	}
	r := data.Record{KeySchema: idSchema, Key: idKey(id), ValueSchema: envelopeSchema, Value: v}
	if op == "t" || op == "m" {
		r.KeySchema, r.Key = nil, nil
	}
	return r
}

func TestChangeEvents(t *testing.T) {
	for _, c := range []struct {
		class string
		props []string
		table string
	}{
		{native, []string{"table.name.format", "${source.schema}.${source.table}", "truncate.enabled", "true"}, "copy"},
		{debezium, []string{"collection.name.format", "${source.table}", "insert.mode", "upsert", "primary.key.mode",
			"record_key", "delete.enabled", "true", "truncate.enabled", "true"}, "copy"},
		{native, []string{"truncate.enabled", "true"}, "customers"},
	} {
		d := newDB(t, "CREATE TABLE "+c.table+" (id bigint PRIMARY KEY, name text, n int)")
		ts := newTopics()
		const topic = "server.public.customers"
		ts.add(topic, 0, change("r", 9, "snapshot", nil))
		ts.add(topic, 0, change("t", 0, nil, nil))
		ts.add(topic, 0, change("r", 1, "a", nil))
		ts.add(topic, 0, change("c", 2, "b", int32(2)))
		ts.add(topic, 0, change("m", 0, nil, nil))
		ts.add(topic, 0, change("u", 1, "c", int32(1)))
		ts.add(topic, 0, change("d", 2, nil, nil))
		ts.add(topic, 0, tombstone(2))
		ts.add(topic, 0, change("d", 1, nil, nil)) // the key changes
		ts.add(topic, 0, tombstone(1))
		ts.add(topic, 0, change("c", 3, "c", int32(1)))
		r := run(t, ts, settings(c.class, d.url, c.props...))
		require.Empty(t, r.reasons)
		require.Equal(t, "3|c|1\n", d.text("SELECT * FROM "+c.table))
		require.Equal(t, topic+"|0|11\n", d.ledger())

		ts.add(topic, 0, change("t", 0, nil, nil))
		require.Empty(t, run(t, ts, settings(c.class, d.url, c.props...)).reasons)
		require.Equal(t, "0\n", d.text("SELECT count(*) FROM "+c.table))
	}
}

// Change events without schemas, and with an operation that nobody knows.
func TestChangeEventsWithoutSchema(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	event := func(op string, id int64, name string) data.Record {
		v := map[string]any{"op": op, "source": map[string]any{"table": "t"}, "before": nil,
			"after": map[string]any{"id": id, "name": name}}
		if op == "d" {
			v["after"] = nil
		}
		return data.Record{Key: map[string]any{"id": id}, Value: v}
	}
	ts.add("x", 0, event("c", 1, "a"))
	ts.add("x", 0, event("c", 2, "b"))
	ts.add("x", 0, event("d", 1, ""))
	ts.add("x", 0, event("?", 1, ""))
	r := run(t, ts, settings(native, d.url, "table.name.format", "${source.table}"))
	require.Equal(t, []int64{3}, offsets(r.reported))
	require.Equal(t, "2|b|<null>\n", d.text("SELECT * FROM t"))
}

// What was not sent as it did not change is left alone: by the header, and by Debezium's placeholder in every form.
func TestUnavailableColumns(t *testing.T) {
	const ph = postgres.DefaultPlaceholder
	fields := []data.Field{{Name: "id", Schema: schema(data.Int64)}, {Name: "a", Schema: optional(data.String)},
		{Name: "b", Schema: optional(data.Bytes)},
		{Name: "c", Schema: &data.Schema{Type: data.Array, Optional: true, Elem: optional(data.String)}},
		{Name: "d", Schema: &data.Schema{Type: data.Array, Optional: true, Elem: optional(data.Int32)}},
		{Name: "n", Schema: optional(data.Int32)}}
	s := data.NewStruct("v", fields...)
	var numbers []any
	for _, b := range []byte(ph) {
		numbers = append(numbers, int32(b))
	}
	row := func(id int64, values ...any) data.Record {
		v := data.New(s)
		v.Values = append([]any{id}, values...)
		return data.Record{KeySchema: idSchema, Key: idKey(id), ValueSchema: s, Value: v}
	}
	const old, want = "'a', 'b', '{c}', '{1}', 0", "|a|\\x62|{c}|{1}|"
	names := data.Header{Name: "__unavailable", Schema: &data.Schema{Type: data.Array, Elem: schema(data.String)},
		Value: []any{"a", "b", "c", "d"}}
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, a text NOT NULL, b bytea NOT NULL, c text[], d int[], n int)",
		"INSERT INTO t VALUES (1, "+old+"), (2, "+old+"), (3, "+old+")")
	ts := newTopics()
	ts.add("t", 0, row(1, ph, []byte(ph), []any{ph}, numbers, int32(1)))
	two := row(2, ph, []byte(ph), []any{ph}, numbers, int32(2))
	two.Headers = []data.Header{names}
	ts.add("t", 0, two)
	three := row(3, "", []byte{}, []any{}, nil, int32(3))
	names.Schema, names.Value = schema(data.String), `["a","b","c","d"]`
	three.Headers = []data.Header{names}
	ts.add("t", 0, three)
	// A row that is written in full and then in part within a batch is merged.
	ts.add("t", 0, row(4, "a", []byte("b"), []any{"c"}, []any{int32(1)}, int32(0)))
	ts.add("t", 0, row(4, ph, []byte(ph), []any{ph}, numbers, int32(4)))
	r := run(t, ts, settings(native, d.url))
	require.Empty(t, r.reasons)
	text := ""
	for i := 1; i <= 4; i++ {
		text += fmt.Sprintf("%d%s%d\n", i, want, i)
	}
	require.Equal(t, text, d.text("SELECT * FROM t ORDER BY id"))

	ts.add("t", 0, row(5, ph, []byte("b"), []any{"c"}, numbers, int32(5))) // there is no row, and a must not be null
	r = run(t, ts, settings(native, d.url))
	require.Len(t, r.reported, 1)
	require.ErrorContains(t, r.reasons[0], "SQLSTATE 23502, table public.t, column a")
}

// A row that moved and was not there any more when its source read it again has columns without values, which must not
// be null. It is written all the same, as a later record deletes it or moves it on; a row that did not move is not.
func TestMovedRowsWithoutValues(t *testing.T) {
	const ph = postgres.DefaultPlaceholder
	fields := []data.Field{{Name: "id", Schema: schema(data.Int64)}, {Name: "a", Schema: schema(data.String)},
		{Name: "b", Schema: schema(data.Bytes)},
		{Name: "j", Schema: &data.Schema{Type: data.String, Name: postgres.JSONName}},
		{Name: "n", Schema: optional(data.Int32)}}
	s := data.NewStruct("v", fields...)
	row := func(id int64, n int32, moved bool) data.Record {
		v := data.New(s)
		v.Values = []any{id, ph, []byte(ph), ph, n}
		r := data.Record{KeySchema: idSchema, Key: idKey(id), ValueSchema: s, Value: v}
		if moved {
			r.Headers = []data.Header{{Name: "__debezium.oldkey", Schema: schema(data.String), Value: "{}"}}
		}
		return r
	}
	d := newDB(t, `CREATE TABLE t (id bigint PRIMARY KEY, a varchar(3) NOT NULL, b bytea NOT NULL, j jsonb NOT NULL,
		n int)`)
	ts := newTopics()
	ts.add("t", 0, row(1, 0, true))
	ts.add("t", 0, row(2, 0, true))
	ts.add("t", 0, row(2, 1, false)) // it changes before it moves on
	require.Empty(t, run(t, ts, settings(native, d.url)).reasons)
	require.Equal(t, "1||\\x|{}|0\n2||\\x|{}|1\n", d.text("SELECT * FROM t ORDER BY id"))

	ts.add("t", 0, row(1, 7, false))
	ts.add("t", 0, tombstone(2))
	ts.add("t", 0, row(3, 0, false))
	r := run(t, ts, settings(native, d.url))
	require.Len(t, r.reported, 1)
	require.ErrorContains(t, r.reasons[0], "SQLSTATE 23502, table public.t, column a")
	require.Equal(t, "1||\\x|{}|7\n", d.text("SELECT * FROM t ORDER BY id"))
}
