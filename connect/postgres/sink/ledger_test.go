package sink_test

import (
	"database/sql"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/migrations"
)

// opened starts a task and opens one partition as the runner would, and gives the offset that is sought.
func opened(t *testing.T, d *db, group string, p plugin.OpenPartition, more ...string) (int64, error) {
	r := newRunner(t, newTopics(), settings(native, d.url, more...))
	r.group = group
	require.NoError(t, r.start(t.Context()))
	defer r.stop()
	p.TopicPartition = tp("t", 0)
	err := r.task.Open(t.Context(), []plugin.OpenPartition{p})
	return r.at[tp("t", 0)], err
}

func TestWherePartitionsBegin(t *testing.T) {
	id, other := [16]byte{1}, [16]byte{2}
	set := func(d *db, next int) {
		d.exec("DELETE FROM connect.sink_offset")
		if next >= 0 {
			_, err := d.conn.Exec(t.Context(), "INSERT INTO connect.sink_offset VALUES ('s', 't', 0, $1, 7, $2, 'g', 'o')", next,
				"01000000-0000-0000-0000-000000000000")
			require.NoError(t, err)
		}
	}
	d := newDB(t)
	require.NoError(t, apply(d, "connect"))
	for _, c := range []struct {
		name  string
		next  int
		p     plugin.OpenPartition
		more  []string
		want  int64
		error string
		later bool // it may be another way in a moment
	}{
		{name: "nothing known", next: -1, p: plugin.OpenPartition{Committed: -1, Start: 3, End: 9}, want: 3},
		{name: "latest", next: -1, p: plugin.OpenPartition{Committed: -1, Start: 3, End: 9}, want: 9,
			more: []string{"consumer.override.auto.offset.reset", "latest"}},
		{name: "the group's", next: -1, p: plugin.OpenPartition{Committed: 5, Start: 3, End: 9}, want: 5},
		{name: "the ledger's", next: 6, p: plugin.OpenPartition{TopicID: id, Committed: 5, Start: 3, End: 9}, want: 6},
		{name: "no topic id", next: 6, p: plugin.OpenPartition{Committed: 5, Start: 3, End: 9}, want: 6},
		{name: "at the end", next: 9, p: plugin.OpenPartition{TopicID: id, Start: 3, End: 9}, want: 9},
		{name: "deleted", next: 2, p: plugin.OpenPartition{TopicID: id, Start: 3, End: 9},
			error: "records 2 to 2 of partition t-0 were deleted before they were written: to go on without them, set " +
				"offset.ledger.missing=skip"},
		{name: "deleted, of the group", next: -1, p: plugin.OpenPartition{Committed: 1, Start: 3, End: 9},
			error: "records 1 to 2 of partition t-0"},
		{name: "skip", next: 2, p: plugin.OpenPartition{TopicID: id, Start: 3, End: 9}, want: 3,
			more: []string{"offset.ledger.missing", "skip"}},
		{name: "beyond the end", next: 10, p: plugin.OpenPartition{TopicID: id, Start: 3, End: 9},
			error: "the offset ledger is at 10 in partition t-0, which ends at 9", later: true},
		{name: "another topic", next: 6, p: plugin.OpenPartition{TopicID: other, Start: 3, End: 9},
			error: "topic t is not the one that the offset ledger knows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set(d, c.next)
			before := d.text("SELECT next_offset, epoch, owner FROM connect.sink_offset")
			got, err := opened(t, d, "g", c.p, c.more...)
			if c.error != "" {
				require.ErrorContains(t, err, c.error)
				require.Equal(t, c.later, plugin.IsRetriable(err))
				require.Equal(t, before, d.text("SELECT next_offset, epoch, owner FROM connect.sink_offset"))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			if c.next >= 0 {
				require.Equal(t, "8|task 0 of connector s, group g\n", d.text("SELECT epoch, owner FROM connect.sink_offset"))
			}
		})
	}
}

// A ledger that has lost what the group says it had fails the task, until people say what is to become of the records;
// what others have committed is taken as written.
func TestLedgerIsLost(t *testing.T) {
	d := newDB(t)
	ts := newTopics()
	at, other := tp("t", 0), map[string]string{"offset.ledger.name": "another"}
	for i := range 9 {
		ts.add("t", 0, record(int64(i), "a", nil))
	}
	p := plugin.OpenPartition{TopicPartition: at, TopicID: ts.id, Committed: -1, End: 9}
	begin := func(more map[string]string) (int64, error) {
		r := newRunner(t, ts, settings(native, d.url))
		maps.Copy(r.props, more)
		require.NoError(t, r.start(t.Context()))
		defer r.stop()
		require.NotEmpty(t, r.mark)
		if p.Mark == "" {
			p.Mark = r.mark
		}
		return r.at[at], r.task.Open(t.Context(), []plugin.OpenPartition{p})
	}
	_, err := begin(nil)
	require.NoError(t, err)
	p.Committed = 5
	d.exec("DROP SCHEMA connect CASCADE")
	for range 2 {
		_, err = begin(nil)
		require.ErrorContains(t, err, "knows nothing of partition t-0, of which this sink had written all below offset 5")
		require.ErrorContains(t, err, "DELETE /connectors/NAME/offsets")
		require.False(t, plugin.IsRetriable(err))
	}
	_, err = begin(other) // another name is no loss
	require.NoError(t, err)
	alter := func(offset map[string]any) {
		_, err := class(native).New().AlterOffsets(t.Context(), settings(native, d.url), []plugin.Offset{{
			Partition: map[string]any{"kafka_topic": "t", "kafka_partition": int64(0)}, Offset: offset,
		}})
		require.NoError(t, err)
	}
	alter(map[string]any{"kafka_offset": int64(5)})
	_, err = begin(nil)
	require.NoError(t, err, "offsets were set")
	alter(nil)
	p.Committed, p.Mark = -1, ""
	_, err = begin(nil)
	require.NoError(t, err, "offsets were reset")
	require.Equal(t, "0\n", d.text("SELECT next_offset FROM connect.sink_offset WHERE connector = 's'"))
}

// A log that stays shorter than what was written of it fails the task, but not at once.
func TestBeyondTheEndForLong(t *testing.T) {
	d := newDB(t)
	r := newRunner(t, newTopics(), settings(native, d.url))
	r.now = time.Unix(0, 0)
	require.NoError(t, r.start(t.Context()))
	defer r.stop()
	p := plugin.OpenPartition{TopicPartition: tp("t", 0), Committed: -1, Start: 5, End: 5}
	require.NoError(t, r.task.Open(t.Context(), []plugin.OpenPartition{p}))
	p.Start, p.End = 0, 4
	require.True(t, plugin.IsRetriable(r.task.Open(t.Context(), []plugin.OpenPartition{p})))
	r.now = r.now.Add(31 * time.Second)
	err := r.task.Open(t.Context(), []plugin.OpenPartition{p})
	require.ErrorContains(t, err, "which ends at 4")
	require.False(t, plugin.IsRetriable(err))
}

// Two sinks of one name on one database: the second is refused, and the first goes on.
func TestTwoSinksOfOneName(t *testing.T) {
	d := newDB(t, plainTable)
	ts := newTopics()
	ts.add("t", 0, record(0, "a", nil))
	first := newRunner(t, ts, insertProps(d.url))
	require.NoError(t, first.start(t.Context(), tp("t", 0)))
	defer first.stop()
	second := newRunner(t, ts, insertProps(d.url))
	second.group = "another"
	err := second.start(t.Context(), tp("t", 0))
	second.stop()
	require.ErrorContains(t, err, `the offset ledger holds partition t-0 for a sink named "s" of consumer group connect-s`)
	require.ErrorContains(t, err, "set offset.ledger.name for one of the two")

	elsewhere := newRunner(t, newTopics(), insertProps(d.url)) // the same names in another cluster
	elsewhere.ts.id = [16]byte{9}
	err = elsewhere.start(t.Context(), tp("t", 0))
	elsewhere.stop()
	require.ErrorContains(t, err, "or a sink of the same name in another cluster writes to this database")
	require.NoError(t, first.drain(t.Context()))
	exact(t, d, 1, 1)

	named := insertProps(d.url)
	named["offset.ledger.name"] = "mine"
	second = newRunner(t, ts, named)
	second.group = "another"
	require.NoError(t, second.start(t.Context(), tp("t", 0)))
	second.stop()
}

func TestAlterOffsets(t *testing.T) {
	d := newDB(t, plainTable)
	ts := newTopics()
	for i := range 6 {
		ts.add("t", 0, record(int64(i), "a", nil))
	}
	props := insertProps(d.url)
	old := newRunner(t, ts, props)
	old.most = 3
	require.NoError(t, old.start(t.Context(), tp("t", 0)))
	defer old.stop()
	_, err := old.put(t.Context())
	require.NoError(t, err)

	alter := func(offsets ...plugin.Offset) error {
		agreed, err := class(native).New().AlterOffsets(t.Context(), props, offsets)
		require.Equal(t, err == nil, agreed)
		return err
	}
	at := func(partition any) map[string]any {
		return map[string]any{"kafka_topic": "t", "kafka_partition": partition}
	}
	require.NoError(t, alter(plugin.Offset{Partition: at(int64(0)), Offset: map[string]any{"kafka_offset": "1"}},
		plugin.Offset{Partition: at("1"), Offset: map[string]any{"kafka_offset": 5.0}}))
	require.Equal(t, "t|0|1\nt|1|5\n", d.ledger())
	_, err = old.put(t.Context())
	require.ErrorContains(t, err, "taken over", "a task that is still about writes nothing more")
	got, err := opened(t, d, "connect-s", plugin.OpenPartition{TopicID: [16]byte{5}, Committed: -1, End: 9})
	require.NoError(t, err)
	require.EqualValues(t, 1, got)

	require.NoError(t, alter(plugin.Offset{Partition: at(int64(0))}))
	require.Equal(t, "t|0|-1\nt|1|5\n", d.ledger())
	require.Equal(t, "4\n", d.text("SELECT epoch FROM connect.sink_offset WHERE kpartition = 0"),
		"an epoch never comes back")
	got, err = opened(t, d, "other group now", plugin.OpenPartition{TopicID: [16]byte{6}, Committed: 2, End: 9})
	require.NoError(t, err)
	require.EqualValues(t, 2, got)
	require.NoError(t, alter())
	require.Equal(t, "t|0|-1\nt|1|-1\n", d.ledger())
	props["connection.url"] = "postgresql://u@127.0.0.1:1/d"
	require.True(t, plugin.IsRetriable(alter()), "a server that is not there may come back")

	require.ErrorContains(t, alter(plugin.Offset{Partition: map[string]any{"topic": "t"}}),
		"kafka_topic and kafka_partition")
	require.ErrorContains(t, alter(plugin.Offset{Partition: at(int64(0)), Offset: map[string]any{"kafka_offset": -4.0}}),
		"kafka_offset, a number from 0 on")
}

// A ledger that went back with its database, or was changed by hand, stops the task; the next one goes on from there.
func TestLedgerThatWentBack(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	for i := range 6 {
		ts.add("t", 0, record(int64(i), "a", nil))
	}
	r := newRunner(t, ts, settings(native, d.url))
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	require.NoError(t, r.drain(t.Context()))
	d.exec("DELETE FROM t WHERE id > 2", "UPDATE connect.sink_offset SET next_offset = 3")
	ts.add("t", 0, record(6, "a", nil))
	require.ErrorContains(t, r.drain(t.Context()), "the offset ledger is at 3 in partition t-0, and was at 6: "+
		"the database was restored or failed over")
	r.stop()
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	defer r.stop()
	require.NoError(t, r.drain(t.Context()))
	require.Equal(t, "7\n", d.text("SELECT count(*) FROM t"))
}

// A partition that comes back to a task is claimed anew, and one that is gone is written no more.
func TestCloseAndOpenAgain(t *testing.T) {
	d := newDB(t, plainTable)
	ts := newTopics()
	for i := range 10 {
		ts.add("t", int32(i%2), record(int64(i), "a", nil))
	}
	r := newRunner(t, ts, insertProps(d.url))
	r.most = 2
	require.NoError(t, r.start(t.Context(), tp("t", 0), tp("t", 1)))
	defer r.stop()
	_, err := r.put(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.task.Close(t.Context(), []client.TopicPartition{tp("t", 1)}, true))
	delete(r.at, tp("t", 1))
	require.NoError(t, r.drain(t.Context()))
	require.Equal(t, "t|0|5\nt|1|2\n", d.ledger())
	require.NoError(t, r.open(t.Context(), tp("t", 1)))
	require.EqualValues(t, 2, r.at[tp("t", 1)])
	require.NoError(t, r.drain(t.Context()))
	exact(t, d, 10, 2)
}

func open(url string) *sql.DB {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		panic(err)
	}
	return stdlib.OpenDB(*config)
}

func apply(d *db, schema string) error {
	db := open(d.url)
	defer db.Close()
	return migrations.Apply(d.t.Context(), db, schema, migrations.Ledger)
}

// Workers that start at the same time make the ledger once.
func TestMigrationsRace(t *testing.T) {
	d := newDB(t)
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = apply(d, "app") })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, "1\n", d.text("SELECT count(*) FROM app.millrace_ledger_version WHERE version_id > 0"))
	require.NoError(t, apply(d, "other"), "another schema has its own")

	db := open(d.url)
	defer db.Close()
	require.NoError(t, migrations.Apply(t.Context(), db, "app", migrations.Helpers))
	d.exec("CREATE TABLE orders (id int PRIMARY KEY, note text)", "INSERT INTO orders VALUES (1, 'a')",
		"SELECT app.add_xid_column('orders')", "INSERT INTO orders VALUES (2, 'b')",
		"UPDATE orders SET note = 'c' WHERE id = 1",
		"INSERT INTO app.signal VALUES ('1', 'log', NULL)", "INSERT INTO app.heartbeat VALUES (1)")
	require.Equal(t, "2|b\n1|c\n", d.text("SELECT id, note FROM orders ORDER BY tx"))
}

// A role that may create nothing finds what is there; a newer version, and a name that is none, are refused.
func TestMigrationsOfLesserRoles(t *testing.T) {
	d := newDB(t, "CREATE SCHEMA theirs")
	role, u := d.srv.Role(t, d.url, "LOGIN")
	lesser := open(u)
	defer lesser.Close()
	run := func(schema string) error { return migrations.Apply(t.Context(), lesser, schema, migrations.Ledger) }
	require.ErrorContains(t, run("missing"), "42501")
	d.exec("GRANT USAGE, CREATE ON SCHEMA theirs TO " + role)
	require.NoError(t, run("theirs"), "it may not create schemas, but this one is there")

	require.NoError(t, apply(d, "connect"))
	d.exec("GRANT USAGE ON SCHEMA connect TO "+role, "GRANT SELECT ON connect.millrace_ledger_version TO "+role)
	require.NoError(t, run("connect"), "the tables are there")
	d.exec("INSERT INTO connect.millrace_ledger_version (version_id, is_applied) VALUES (9999, true)")
	require.ErrorContains(t, run("connect"), "is at version 9999 and this program knows versions up to 1")
	require.ErrorContains(t, run("Bad-Name"), "lower-case letters")
}

// What a role lacks for the ledger is said when the task starts.
func TestLedgerIsDenied(t *testing.T) {
	d := newDB(t, plainTable)
	role, u := d.srv.Role(t, d.url, "LOGIN")
	d.exec("GRANT ALL ON t TO " + role)
	r := newRunner(t, newTopics(), insertProps(u))
	err := r.start(t.Context())
	require.ErrorContains(t, err, "prepare the offset ledger in schema connect")
	require.ErrorContains(t, err, "offset.ledger=off does without")
	r.stop()
}
