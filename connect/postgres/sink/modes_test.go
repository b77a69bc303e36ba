package sink_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
)

func TestUpsertsAndDeletes(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	ts.add("t", 0, record(1, "a", int32(1)))
	ts.add("t", 0, record(2, "b", nil))
	ts.add("t", 0, record(1, "c", int32(3)))
	ts.add("t", 0, tombstone(2))
	ts.add("t", 1, record(3, "d", nil))
	ts.add("t", 1, tombstone(3))
	ts.add("t", 1, record(3, nil, int32(4)))
	r := run(t, ts, settings(native, d.url))
	require.Empty(t, r.reported)
	require.Equal(t, "1|c|3\n3|<null>|4\n", d.text("SELECT * FROM t ORDER BY id"))
	require.Equal(t, "t|0|4\nt|1|3\n", d.ledger())

	ts.add("t", 0, tombstone(1))
	run(t, ts, settings(native, d.url))
	require.Equal(t, "3|<null>|4\n", d.text("SELECT * FROM t ORDER BY id"))
	require.Equal(t, "t|0|5\nt|1|3\n", d.ledger())
}

// Every way of writing with every source of keys that it can have.
func TestModes(t *testing.T) {
	type test struct{ mode, pk, fields, table, want string }
	const plain = "CREATE TABLE t (id bigint %s, name text, n int)"
	tests := []test{
		{"insert", "none", "", "", "1|a|1\n1|b|2\n2|c|3\n"},
		{"insert", "kafka", "", "kafka", "t|0|0|1|a|1\nt|0|1|1|b|2\nt|0|2|2|c|3\n"},
		{"upsert", "kafka", "", "kafka", "t|0|0|1|a|1\nt|0|1|1|b|2\nt|0|2|2|c|3\n"},
		{"upsert", "kafka", "a,b,c", "abc", "t|0|0|1|a|1\nt|0|1|1|b|2\nt|0|2|2|c|3\n"},
		{"update", "kafka", "", "kafka", ""},
		{"insert", "record_key", "", "", "1|a|1\n1|b|2\n2|c|3\n"},
		{"upsert", "record_key", "", "PRIMARY KEY", "1|b|2\n2|c|3\n"},
		{"upsert", "record_key", "id", "PRIMARY KEY", "1|b|2\n2|c|3\n"},
		{"update", "record_key", "", "PRIMARY KEY", ""},
		{"insert", "record_value", "", "", "1|a|1\n1|b|2\n2|c|3\n"},
		{"upsert", "record_value", "id", "PRIMARY KEY", "1|b|2\n2|c|3\n"},
		{"upsert", "record_value", "id,name", ", UNIQUE (id, name)", "1|a|1\n1|b|2\n2|c|3\n"},
		{"upsert", "record_value", "", ", UNIQUE (id, name, n)", "1|a|1\n1|b|2\n2|c|3\n"},
		{"update", "record_value", "id", "PRIMARY KEY", ""},
		{"insert", "record_header", "h", "header", "x|1|a|1\ny|1|b|2\nx|2|c|3\n"},
		{"upsert", "record_header", "h", "header", "y|1|b|2\nx|2|c|3\n"},
	}
	for _, tt := range tests {
		t.Run(tt.mode+" "+tt.pk+" "+tt.fields, func(t *testing.T) {
			t.Parallel()
			d := newDB(t)
			switch tt.table {
			case "kafka":
				d.exec("CREATE TABLE t (__connect_topic text, __connect_partition int, __connect_offset bigint, id bigint, " +
					"name text, n int, PRIMARY KEY (__connect_topic, __connect_partition, __connect_offset))")
			case "abc":
				d.exec("CREATE TABLE t (a text, b int, c bigint, id bigint, name text, n int, PRIMARY KEY (b, c, a))")
			case "header":
				unique := ""
				if tt.mode == "upsert" {
					unique = "UNIQUE"
				}
				d.exec("CREATE TABLE t (h text " + unique + ", id bigint, name text, n int)")
			default:
				where, table := tt.table, plain
				if strings.HasPrefix(where, ",") {
					table, where = strings.Replace(plain, "n int", "n int"+where, 1), ""
				}
				d.exec(strings.Replace(table, "%s", where, 1))
			}
			ts := newTopics()
			for i, rec := range []data.Record{record(1, "a", int32(1)), record(1, "b", int32(2)), record(2, "c", int32(3))} {
				rec.Headers = []data.Header{{Name: "h", Schema: schema(data.String), Value: []string{"x", "y", "x"}[i]}}
				ts.add("t", 0, rec)
			}
			props := settings(native, d.url, "insert.mode", tt.mode, "pk.mode", tt.pk, "pk.fields", tt.fields)
			if tt.pk != "record_key" {
				props["delete.enabled"] = "false"
			}
			r := run(t, ts, props)
			require.Empty(t, r.reasons)
			require.Equal(t, tt.want, d.text("SELECT * FROM t ORDER BY n"))
			require.Equal(t, "t|0|3\n", d.ledger())
		})
	}
}

func TestUpdateChangesRowsThatAreThere(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)",
		"INSERT INTO t VALUES (1, 'old', 1), (3, 'x', 3)")
	ts := newTopics()
	ts.add("t", 0, record(1, "new", int32(2)))
	ts.add("t", 0, record(2, "none", int32(2)))
	ts.add("t", 0, tombstone(3))
	ts.add("t", 0, record(3, "gone", nil))
	run(t, ts, settings(native, d.url, "insert.mode", "update"))
	require.Equal(t, "1|new|2\n", d.text("SELECT * FROM t ORDER BY id"))
}

// In insert mode a deletion stays where it is between insertions.
func TestInsertsAndDeletesInOrder(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)", "INSERT INTO t VALUES (7, 'x', 7)")
	ts := newTopics()
	for i := range 3 {
		ts.add("t", 0, record(1, "a", int32(i)))
		ts.add("t", 0, tombstone(1))
	}
	ts.add("t", 0, tombstone(7))
	ts.add("t", 0, record(7, "y", nil))
	ts.add("t", 0, record(1, "last", nil))
	r := run(t, ts, settings(native, d.url, "insert.mode", "insert"))
	require.Empty(t, r.reasons)
	require.Equal(t, "1|last|<null>\n7|y|<null>\n", d.text("SELECT * FROM t ORDER BY id"))
}

// A row that is deleted and written again has nothing left of what it was.
func TestDeleteThenPartialRow(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text DEFAULT 'default', n int)",
		"INSERT INTO t VALUES (1, 'old', 1), (2, 'old', 2)")
	part := data.NewStruct("v2", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "n", Schema: optional(data.Int32)})
	write := func(id int64) data.Record {
		r := record(id, nil, nil)
		r.ValueSchema, r.Value = part, data.New(part).Set("id", id).Set("n", int32(9))
		return r
	}
	ts := newTopics()
	ts.add("t", 0, record(1, "before", int32(5)))
	ts.add("t", 0, tombstone(1))
	ts.add("t", 0, write(1))
	ts.add("t", 0, write(2))
	run(t, ts, settings(native, d.url))
	require.Equal(t, "1|default|9\n2|old|9\n", d.text("SELECT * FROM t ORDER BY id"))
}

// Records of several schemas in one batch: one transaction, and each column as its last record says.
func TestMixedSchemas(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int, more text)")
	other := data.NewStruct("v2", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "more", Schema: optional(data.String)})
	ts := newTopics()
	for id := range int64(100) {
		ts.add("t", 0, record(id%50, "a", int32(id)))
		r := record(id%50, nil, nil)
		r.ValueSchema, r.Value = other, data.New(other).Set("id", id%50).Set("more", "m")
		ts.add("t", 0, r)
	}
	run(t, ts, settings(native, d.url))
	require.Equal(t, "50|50|99\n", d.text("SELECT count(*), count(more), max(n) FROM t WHERE name = 'a'"))
}

func TestNullValues(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)", "INSERT INTO t VALUES (1, 'old', 1)")
	ts := newTopics()
	ts.add("t", 0, tombstone(1))
	keep := settings(confluent, d.url, "insert.mode", "upsert", "pk.mode", "record_key")
	r := run(t, ts, keep)
	require.Len(t, r.reported, 1)
	require.ErrorContains(t, r.reasons[0], "record 0 of partition 0 of topic t: the value is null")
	require.Equal(t, "1\n", d.text("SELECT count(*) FROM t"))

	deb := settings(debezium, d.url, "insert.mode", "upsert", "primary.key.mode", "record_key", "offset.ledger.name",
		"deb")
	require.Empty(t, run(t, ts, deb).reported)
	require.Equal(t, "1\n", d.text("SELECT count(*) FROM t"))
	deb["delete.enabled"], deb["offset.ledger.name"] = "true", "deb2"
	require.Empty(t, run(t, ts, deb).reported)
	require.Equal(t, "0\n", d.text("SELECT count(*) FROM t"))
}
