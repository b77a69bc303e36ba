package sink_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

const checkedTable = "CREATE TABLE t (id bigint PRIMARY KEY, name varchar(10) NOT NULL, n int CHECK (n >= 0))"

func offsets(records []*plugin.SinkRecord) (out []int64) {
	for _, r := range records {
		out = append(out, r.Origin.Offset)
	}
	slices.Sort(out)
	return out
}

// Poison among 3,000 records: exactly that is reported, and all else is written, in each mode.
func TestPoison(t *testing.T) {
	bad := map[int]data.Record{
		17:   record(17, "far too long a text", int32(1)), // 22001
		500:  record(500, nil, int32(1)),                  // 23502
		501:  record(501, "check", int32(-1)),             // 23514
		1999: record(1999, "nul\x00", int32(1)),           // ours
		2000: record(2000, "\xff\xfe", int32(1)),          // 22021
		2999: record(2999, "check", int32(-5)),
	}
	for _, mode := range []string{"upsert", "insert", "update"} {
		t.Run(mode, func(t *testing.T) {
			d := newDB(t, checkedTable)
			ts := newTopics()
			var want []int64
			for i := range 3000 {
				rec, isBad := bad[i]
				if !isBad {
					rec = record(int64(i), "good", int32(i))
				} else {
					want = append(want, int64(i))
				}
				ts.add("t", 0, rec)
			}
			if mode == "update" {
				d.exec("INSERT INTO t SELECT i, '', 0 FROM generate_series(0, 2999) i")
			}
			r := newRunner(t, ts, settings(native, d.url, "insert.mode", mode))
			r.most = 5000
			require.NoError(t, runAll(t, r))
			slices.Sort(want)
			require.Equal(t, want, offsets(r.reported))
			require.Equal(t, fmt.Sprintf("%d\n", 3000-len(bad)), d.text("SELECT count(*) FROM t WHERE name = 'good'"))
			require.Equal(t, "t|0|3000\n", d.ledger())
			for _, err := range r.reasons {
				require.Contains(t, err.Error(), "of partition 0 of topic t")
				require.NotContains(t, err.Error(), "far too long")
			}
		})
	}
}

// A bad record's report says which column is at fault, and not what is in it.
func TestColumnAtFault(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name varchar(5), n smallint)",
		"CREATE TABLE typed (id bigint PRIMARY KEY, name jsonb, n int)",
		"CREATE TABLE dated (id bigint PRIMARY KEY, name date, n int)")
	ts := newTopics()
	ts.add("t", 0, record(1, "SECRET", int32(1)))
	ts.add("t", 0, record(2, "a", int32(70000)))
	ts.add("t", 0, record(3, "\xff", nil))
	ts.add("typed", 0, record(1, "{SECRET", nil))
	ts.add("typed", 0, record(2, `"\u0000"`, nil))
	ts.add("dated", 0, record(1, "2024-02-30", nil))
	r := run(t, ts, settings(native, d.url))
	got := map[string]bool{}
	for i, err := range r.reasons {
		got[fmt.Sprintf("%s %d %s", r.reported[i].Topic, r.reported[i].Origin.Offset,
			strings.Split(strings.SplitN(err.Error(), ": ", 2)[1], ": ")[0])] = true
		require.NotContains(t, err.Error(), "SECRET")
		require.Contains(t, err.Error(), "SQLSTATE 22")
	}
	require.Equal(t, map[string]bool{"t 0 column name": true, "t 1 column n": true,
		"t 2 column name of table public.t": true,
		"typed 0 column name":               true, "typed 1 column name": true, "dated 0 column name": true}, got)
}

// Of an insert whose key is taken only the later one is bad, also within a batch.
func TestDuplicateInserts(t *testing.T) {
	d := newDB(t, checkedTable, "INSERT INTO t VALUES (5, 'there', 1)")
	ts := newTopics()
	for _, id := range []int64{1, 2, 1, 5, 3, 2} {
		ts.add("t", 0, record(id, "x", nil))
	}
	r := run(t, ts, settings(native, d.url, "insert.mode", "insert"))
	require.Equal(t, []int64{2, 3, 5}, offsets(r.reported))
	require.ErrorContains(t, r.reasons[0], "SQLSTATE 23505, table public.t, constraint t_pkey")
	require.Equal(t, "1|x\n2|x\n3|x\n5|there\n", d.text("SELECT id, name FROM t ORDER BY 1"))
}

// With nobody to report to, a bad record fails the task, which says which it is, and nothing of its batch is written.
func TestPoisonWithoutReporter(t *testing.T) {
	d := newDB(t, checkedTable)
	ts := newTopics()
	ts.add("t", 0, record(1, "good", nil))
	ts.add("t", 0, record(2, "secret text too long", nil))
	r := newRunner(t, ts, settings(native, d.url))
	r.noReport = true
	err := runAll(t, r)
	require.ErrorContains(t, err, "record 1 of partition 0 of topic t: column name: write to table public.t: "+
		"a text is too long")
	require.NotContains(t, err.Error(), "secret")
	require.False(t, plugin.IsRetriable(err))
	require.Equal(t, "0\n", d.text("SELECT count(*) FROM t"))
	require.Equal(t, "t|0|0\n", d.ledger())
}

// What the runner says to a report that it does not take is the task's error, and nothing of the batch is written.
func TestReportIsRefused(t *testing.T) {
	d := newDB(t, checkedTable)
	ts := newTopics()
	ts.add("t", 0, record(1, "good", nil))
	ts.add("t", 0, record(2, "far too long a text", nil))
	r := newRunner(t, ts, settings(native, d.url))
	r.refuse = errors.New("no errors are tolerated")
	err := runAll(t, r)
	require.ErrorIs(t, err, r.refuse)
	require.Len(t, r.reported, 1)
	require.Equal(t, "0\n", d.text("SELECT count(*) FROM t"))

	r = newRunner(t, ts, settings(native, d.url))
	r.refuse = plugin.Retriable(errors.New("the topic cannot be reached"))
	r.reporting = func() {
		if len(r.reported) == 3 {
			r.refuse = nil
		}
	}
	require.NoError(t, runAll(t, r))
	require.Equal(t, "1\n", d.text("SELECT count(*) FROM t"))
}

// A fault that concerns all records fails the task, and is reported for none.
func TestWholeFaultsAreNotReported(t *testing.T) {
	type test struct {
		name, table, want string
		grants            []string
		props             []string
	}
	for _, tt := range []test{
		{"no table", "", "there is no table t", nil, nil},
		{"no column", "CREATE TABLE t (id bigint PRIMARY KEY, name text)", "table public.t has no column n",
			[]string{"GRANT ALL ON t TO ROLE"}, nil},
		{"no privilege", checkedTable, "42501", []string{"GRANT SELECT, INSERT ON t TO ROLE"}, nil},
		{"no unique index", "CREATE TABLE t (id bigint, name text, n int)",
			"CREATE UNIQUE INDEX ON \"public\".\"t\" (\"id\")",
			[]string{"GRANT ALL ON t TO ROLE"}, nil},
		{"another type", "CREATE TABLE t (id bigint PRIMARY KEY, name int, n int)",
			"column name of table public.t: values of type string do not fit type int4", []string{"GRANT ALL ON t TO ROLE"},
			nil},
		{"numbers into text", "CREATE TABLE t (id bigint PRIMARY KEY, name text, n text)",
			"values of type int32 do not fit type text", []string{"GRANT ALL ON t TO ROLE"}, nil},
		{"may not create", "", "42501", nil, []string{"auto.create", "true"}},
		{"long name", "", "1 to 63 bytes", nil, []string{"table.name.format", strings.Repeat("x", 64)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDB(t, "CREATE SCHEMA connect")
			if tt.table != "" {
				d.exec(tt.table)
			}
			role, u := d.srv.Role(t, d.url, "LOGIN")
			d.exec("GRANT ALL ON SCHEMA connect TO "+role, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
			for _, g := range tt.grants {
				d.exec(strings.ReplaceAll(g, "ROLE", role))
			}
			ts := newTopics()
			ts.add("t", 0, record(1, "a", int32(1)))
			r := newRunner(t, ts, settings(native, u, tt.props...))
			err := runAll(t, r)
			require.ErrorContains(t, err, tt.want)
			require.False(t, plugin.IsRetriable(err))
			require.Empty(t, r.reported)
			require.Equal(t, "t|0|0\n", d.ledger())
			require.NotContains(t, err.Error(), "it is a test") // the password
		})
	}
}

// A column that is dropped under way is a fault of all, and when it is there again the task goes on.
func TestColumnDroppedUnderWay(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	r := newRunner(t, ts, settings(native, d.url))
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	defer r.stop()
	ts.add("t", 0, record(1, "a", int32(1)))
	require.NoError(t, r.drain(t.Context()))
	d.exec("ALTER TABLE t DROP COLUMN n")
	ts.add("t", 0, record(2, "a", int32(1)))
	require.ErrorContains(t, r.drain(t.Context()), "table public.t has no column n")
	require.Empty(t, r.reported)
	d.exec("ALTER TABLE t ADD COLUMN n int")
	require.NoError(t, r.drain(t.Context()))
	d.exec("DROP TABLE t", "CREATE TABLE t (n int, id bigint PRIMARY KEY, name text)") // in another order
	ts.add("t", 0, record(3, "b", int32(4)))
	require.NoError(t, r.drain(t.Context()))
	require.Equal(t, "4|3|b\n", d.text("SELECT * FROM t"))
}

// A column that gets another type under way is no fault of the records that need it.
func TestColumnAltered(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id int PRIMARY KEY, name varchar(3), n smallint)")
	ts := newTopics()
	r := newRunner(t, ts, settings(native, d.url))
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	defer r.stop()
	ts.add("t", 0, record(1, "abc", int32(1)))
	require.NoError(t, r.drain(t.Context()))
	d.exec("ALTER TABLE t ALTER id TYPE bigint, ALTER name TYPE text, ALTER n TYPE numeric(12,2)")
	ts.add("t", 0, record(1<<40, "longer", int32(1<<30)))
	require.NoError(t, r.drain(t.Context()))
	require.Empty(t, r.reasons)
	require.Equal(t, "1|abc|1.00\n1099511627776|longer|1073741824.00\n", d.text("SELECT * FROM t ORDER BY id"))

	d.exec("ALTER TABLE t ADD COLUMN must int NOT NULL DEFAULT 0", "ALTER TABLE t ALTER must DROP DEFAULT")
	ts.add("t", 0, record(5, "x", nil))
	require.ErrorContains(t, r.drain(t.Context()), "column must of table public.t must not be null")
	require.Empty(t, r.reported)
}

// A constraint that waits for COMMIT: what is bad there is found as well, and what is only early there is not bad.
func TestDeferredConstraint(t *testing.T) {
	d := newDB(t, "CREATE TABLE parent (id bigint PRIMARY KEY, name text, n int)",
		"CREATE TABLE child (id bigint PRIMARY KEY, name text, n int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
	ts := newTopics()
	for i := range int64(20) {
		ts.add("child", 0, record(i, "c", int32(i)))
	}
	for i := range int64(20) {
		if i != 7 {
			ts.add("parent", 0, record(i, "p", nil))
		}
	}
	r := newRunner(t, ts, settings(native, d.url))
	r.most = 100
	require.NoError(t, runAll(t, r))
	if len(r.reported) != 1 { // the parents may have come in a batch of their own, later
		t.Log(r.reasons)
	}
	require.Equal(t, []int64{7}, offsets(r.reported))
	require.Equal(t, "child", r.reported[0].Topic)
	require.ErrorContains(t, r.reasons[0], "SQLSTATE 23503")
	require.Equal(t, "19|19\n", d.text("SELECT (SELECT count(*) FROM child), (SELECT count(*) FROM parent)"))
}

// Rows that refer to each other are written in whatever order their records come.
func TestForeignKeysInAnyOrder(t *testing.T) {
	d := newDB(t, "CREATE TABLE parent (id bigint PRIMARY KEY, name text, n int)",
		"CREATE TABLE child (id bigint PRIMARY KEY, name text, n int REFERENCES parent)",
		"CREATE TABLE tree (id bigint PRIMARY KEY, name text, n int REFERENCES tree)")
	ts := newTopics()
	for i := range int64(30) {
		ts.add("child", 0, record(i, "c", int32(i)))
		ts.add("parent", 0, record(i, "p", nil))
		up := any(int32(i + 1)) // a row below one that is yet to come
		if i == 29 {
			up = nil
		}
		ts.add("tree", 0, record(i, "t", up))
	}
	ts.add("tree", 0, record(50, "orphan", int32(99)))
	r := newRunner(t, ts, settings(native, d.url))
	require.NoError(t, runAll(t, r))
	require.Equal(t, []int64{30}, offsets(r.reported))
	require.Equal(t, "30|30|30\n", d.text("SELECT (SELECT count(*) FROM child), (SELECT count(*) FROM parent), "+
		"(SELECT count(*) FROM tree)"))

	ts.add("parent", 0, tombstone(3)) // a child refers to it until it is deleted, in the same batch
	ts.add("child", 0, tombstone(3))
	r = newRunner(t, ts, settings(native, d.url))
	require.NoError(t, runAll(t, r))
	require.Empty(t, r.reported)
	require.Equal(t, "29|29\n", d.text("SELECT (SELECT count(*) FROM child), (SELECT count(*) FROM parent)"))
}

// A record that waits for another in vain keeps nothing of its key back that is good.
func TestBadReferenceThenGood(t *testing.T) {
	d := newDB(t, "CREATE TABLE parent (id bigint PRIMARY KEY, name text, n int)", "INSERT INTO parent VALUES (1)",
		"CREATE TABLE child (id bigint PRIMARY KEY, name text, n int REFERENCES parent)")
	ts := newTopics()
	ts.add("child", 0, record(1, "bad", int32(9)))
	ts.add("child", 0, record(2, "good", int32(1)))
	ts.add("child", 0, record(1, "good", int32(1)))
	r := newRunner(t, ts, settings(native, d.url, "insert.mode", "insert"))
	require.NoError(t, runAll(t, r))
	require.Equal(t, []int64{0}, offsets(r.reported))
	require.Equal(t, "1|good|1\n2|good|1\n", d.text("SELECT * FROM child ORDER BY 1"))
}

// A row may refer to one that another task, or another topic, brings a moment later: it is tried again before it is
// bad.
func TestParentComesLate(t *testing.T) {
	d := newDB(t, "CREATE TABLE parent (id bigint PRIMARY KEY)",
		"CREATE TABLE child (id bigint PRIMARY KEY, name text, n int REFERENCES parent)")
	ts := newTopics()
	ts.add("child", 0, record(1, "child", int32(9)))
	r := newRunner(t, ts, settings(native, d.url))
	require.NoError(t, r.start(t.Context(), tp("child", 0)))
	defer r.stop()
	require.True(t, plugin.IsRetriable(r.task.Put(t.Context(), r.batch())))
	require.Empty(t, r.reported)
	d.exec("INSERT INTO parent VALUES (9)")
	require.NoError(t, r.drain(t.Context()))
	require.Empty(t, r.reported)
	require.Equal(t, "1|child|9\n", d.text("SELECT * FROM child"))
}

// A text among structs is a bad record, and no reason to stop or to have a column for texts.
func TestTextAmongStructs(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	ts.add("t", 0, record(1, "a", int32(1)))
	text := record(2, "", nil)
	text.ValueSchema, text.Value = schema(data.String), "just a text"
	ts.add("t", 0, text)
	ts.add("t", 0, record(3, "b", int32(3)))
	r := run(t, ts, settings(native, d.url))
	require.Equal(t, []int64{1}, offsets(r.reported))
	require.ErrorContains(t, r.reasons[0], "record_value")
	require.Equal(t, "1|a|1\n3|b|3\n", d.text("SELECT * FROM t ORDER BY 1"))
}

// A unique column may change hands within a batch.
func TestUniqueValuesChangeHands(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text UNIQUE, n int)",
		"INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
	ts := newTopics()
	ts.add("t", 0, record(1, "tmp", int32(1)))
	ts.add("t", 0, record(2, "a", int32(2)))
	ts.add("t", 0, record(1, "b", int32(1)))
	ts.add("t", 0, tombstone(3))
	ts.add("t", 0, record(4, "c", int32(4)))
	ts.add("t", 0, record(3, "tmp", int32(3)))
	r := run(t, ts, settings(native, d.url))
	require.Empty(t, r.reasons)
	require.Equal(t, "1|b|1\n2|a|2\n3|tmp|3\n4|c|4\n", d.text("SELECT * FROM t ORDER BY 1"))
}

func TestNULIsStrippedIfAsked(t *testing.T) {
	s := data.NewStruct("v", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "a", Schema: optional(data.String)}, data.Field{Name: "j", Schema: optional(data.String)})
	ts := newTopics()
	v := data.New(s).Set("id", int64(1)).Set("a", "x\x00y").Set("j", `{"a":"x\u0000y\\u0000"}`)
	ts.add("t", 0, data.Record{KeySchema: idSchema, Key: idKey(1), ValueSchema: s, Value: v})
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, a text, j jsonb)")
	r := run(t, ts, settings(native, d.url))
	require.Len(t, r.reported, 1)
	require.ErrorContains(t, r.reasons[0], "column a of table public.t: text with a NUL character")
	r = run(t, ts, settings(native, d.url, "text.nul", "strip", "offset.ledger.name", "other"))
	require.Empty(t, r.reasons)
	require.Equal(t, `1|xy|{"a": "xy\\u0000"}`+"\n", d.text("SELECT * FROM t"))
}
