package polling_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/postgres/pgtest"
	"millrace/connect/postgres/polling"
)

func TestBulk(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "bulk", "batch.max.rows": "2"},
		"CREATE TABLE t (id int, v text)", "INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 5) n")
	b.start()
	defer b.stop()
	b.until(10)
	got := b.values()
	require.ElementsMatch(t, got[:5], got[5:])
	require.Nil(t, b.records[0].Source.Offset)
	require.Equal(t, map[string]any{"protocol": "1", "table": "public.t"}, b.records[0].Source.Partition)
	require.Equal(t, "p-t", b.records[0].Topic)
	require.Nil(t, b.records[0].Key)
	require.Equal(t, "t", b.records[0].ValueSchema.Name)
}

func TestIncrementing(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "incrementing", "batch.max.rows": "2"},
		"CREATE TABLE t (id serial PRIMARY KEY, v text)", "INSERT INTO t (v) SELECT 'v' || n FROM generate_series(1, 5) n")
	b.start()
	b.until(5)
	b.stop()
	require.Equal(t, map[string]any{"incrementing": int64(5)}, b.records[4].Source.Offset)
	require.Equal(t, "1", textOf(b.records[0].Key))
	require.Equal(t, "t.Key", b.records[0].KeySchema.Name)
	b.exec("INSERT INTO t VALUES (9, 'nine'), (-3, 'never')")
	b.start()
	defer b.stop()
	b.until(6)
	b.quiet()
	require.Equal(t, "9 nine", b.values()[5])
}

// Rows are counted by their table, under the name that other connectors' metrics have.
func TestMetrics(t *testing.T) {
	b := newBench(t, map[string]string{"mode": "incrementing"}, "CREATE TABLE t (id serial PRIMARY KEY)",
		"INSERT INTO t VALUES (1), (2)")
	b.start()
	b.until(2)
	b.stop()
	families, err := b.metrics.Gather()
	require.NoError(t, err)
	rows := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "millrace_connect_postgres_polling_rows_total" {
				rows[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, map[string]float64{"public.t": 2}, rows)
}

// A transaction that drew its number early and commits late.
func TestLateCommitIncrementing(t *testing.T) {
	t.Parallel()
	for _, guard := range []bool{true, false} {
		b := newBench(t, map[string]string{"mode": "incrementing", "horizon.guard": fmt.Sprint(guard)},
			"CREATE TABLE t (id serial PRIMARY KEY, v text)", "INSERT INTO t (v) VALUES ('first')")
		b.start()
		b.until(1)
		late := b.session()
		late("BEGIN")
		late("INSERT INTO t (v) VALUES ('late')")
		b.exec("INSERT INTO t (v) VALUES ('early')")
		if !guard {
			b.until(2)
			late("COMMIT")
			b.quiet() // late is lost: this is why there is a guard
			b.stop()
			continue
		}
		b.quiet()
		late("COMMIT")
		b.until(3)
		require.Equal(t, []string{"1 first", "2 late", "3 early"}, b.values())
		b.stop()
	}
}

// A number drawn at the beginning of a transaction that writes nothing yet: the transaction has no number of its own.
func TestGuardSeesTransactionsWithoutNumber(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "incrementing"}, "CREATE TABLE t (id bigserial PRIMARY KEY, v text)")
	b.start()
	defer b.stop()
	late := b.session()
	late("BEGIN")
	late("SELECT nextval('t_id_seq')")
	b.exec("INSERT INTO t (v) VALUES ('early')")
	b.quiet()
	late("INSERT INTO t VALUES (1, 'late')")
	b.quiet()
	late("COMMIT")
	b.until(2)
	require.Equal(t, []string{"1 late", "2 early"}, b.values())
}

func TestGuardSeesPreparedTransactions(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "incrementing"}, "CREATE TABLE t (id bigserial PRIMARY KEY, v text)")
	b.start()
	defer b.stop()
	late := b.session()
	late("BEGIN")
	late("INSERT INTO t (v) VALUES ('late')")
	b.exec("INSERT INTO t (v) VALUES ('early')")
	b.quiet()
	late("PREPARE TRANSACTION 'two'")
	b.quiet()
	late("COMMIT PREPARED 'two'")
	b.until(2)
}

func TestTimestampLateCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "timestamp", "timestamp.column.name": "at"},
		"CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())", "INSERT INTO t VALUES (1)")
	b.start()
	defer b.stop()
	b.until(1)
	late := b.session()
	late("BEGIN")
	late("SELECT now()")
	b.exec("INSERT INTO t VALUES (3)")
	b.quiet()
	late("INSERT INTO t VALUES (2)")
	b.quiet()
	late("COMMIT")
	b.until(3)
	require.True(t, strings.HasPrefix(b.values()[1], "2 "))
}

// A row that its schema cannot carry is for the runner to decide, and those behind it come.
func TestRowThatCannotBeCarried(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "incrementing"},
		"CREATE TABLE t (id serial PRIMARY KEY, n numeric, v text)",
		"INSERT INTO t (n, v) VALUES (1, 'a'), ('NaN', NULL), (2, 'c')")
	b.start()
	defer b.stop()
	b.until(3)
	require.NoError(t, b.records[0].Fault)
	require.ErrorContains(t, b.records[1].Fault, `read table public.t: column "n" of type numeric: the number is NaN`)
	require.Equal(t, map[string]any{"id": "2", "n": "NaN", "v": nil}, b.records[1].Value)
	require.Nil(t, b.records[1].ValueSchema)
	require.NotNil(t, b.records[1].Source.Offset)
	require.NoError(t, b.records[2].Fault)
}

// A sink changes tables of the database that is polled, under a lock of its own.
func TestSinkBesideAPoller(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "bulk"}, "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
	b.start()
	defer b.stop()
	b.eventually(func() bool { return len(b.records) > 0 })
	b.exec("SET lock_timeout = '5s'", fmt.Sprintf("SELECT pg_advisory_lock(%d)", 0x6d696c6c72616365))
}

// Times with and without a zone are compared in the zone of the settings.
func TestTimestampsOfTwoKinds(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "timestamp", "timestamp.column.name": "changed,made",
		"db.timezone": "America/New_York", "validate.non.null": "false"},
		"CREATE TABLE t (id int, changed timestamptz, made timestamp)", "INSERT INTO t VALUES (1, now(), NULL)")
	b.start()
	defer b.stop()
	b.until(1)
	b.exec("INSERT INTO t VALUES (2, NULL, now() AT TIME ZONE 'America/New_York')")
	b.until(2)
}

// What begins now begins then after a restart too, though there was no row in between.
func TestTimestampFromNow(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "timestamp", "timestamp.column.name": "at", "timestamp.initial": "-1"},
		"CREATE TABLE t (id int, at timestamptz NOT NULL DEFAULT now())", "INSERT INTO t VALUES (1)")
	b.start()
	b.poll(false)
	b.stop()
	require.NotEmpty(t, b.stored)
	b.exec("INSERT INTO t VALUES (2)")
	b.start()
	defer b.stop()
	b.until(1)
	require.True(t, strings.HasPrefix(b.values()[0], "2 "), b.values())
}

// Many rows of one time across pages, and a restart after each page: none is lost.
func TestEqualTimestampsAtPageBounds(t *testing.T) {
	t.Parallel()
	for _, k := range []int{0, 1, 3, 6} {
		b := newBench(t, map[string]string{"mode": "timestamp", "timestamp.column.name": "at", "batch.max.rows": "3",
			"db.timezone": "Europe/Berlin"},
			"CREATE TABLE t (id int PRIMARY KEY, at timestamp NOT NULL)",
			"INSERT INTO t SELECT n, timestamp '2024-01-01 00:00:00.000001' + (n / 5) * interval '1 microsecond' "+
				"FROM generate_series(0, 19) n")
		b.start()
		for range k {
			b.poll(false)
		}
		b.stop()
		b.start()
		seen := func() []string {
			got := b.values()
			slices.Sort(got)
			return slices.Compact(got)
		}
		b.eventually(func() bool { return len(seen()) == 20 })
		b.quiet()
		require.LessOrEqual(t, len(b.records), 24) // no more than one time's rows come again
		last := b.records[len(b.records)-1]
		require.Equal(t, map[string]any{"timestamp": int64(1704063600000), "timestamp_nanos": int64(4000)},
			last.Source.Offset)
		b.exec("INSERT INTO t VALUES (20, '2024-01-01 00:00:00.000005')")
		n := len(b.records)
		b.until(n + 1)
		b.stop()
	}
}

func TestTimestampAndIncrementing(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "timestamp+incrementing",
		"timestamp.columns.mapping":   "public\\.t:[changed|made]",
		"incrementing.column.mapping": ".*:id", "batch.max.rows": "2", "timestamp.initial": "0",
		"validate.non.null": "false"},
		"CREATE TABLE t (id int PRIMARY KEY, made date NOT NULL, changed timestamptz)",
		"INSERT INTO t SELECT n, '2024-01-01' FROM generate_series(1, 5) n", "INSERT INTO t VALUES (6, '1960-01-01')",
		"INSERT INTO t VALUES (7, '2024-01-01', 'infinity'), (8, '2024-01-01', '-infinity')")
	for range 3 {
		b.start()
		b.poll(false)
		b.stop()
	}
	b.start()
	b.until(5)
	b.exec("UPDATE t SET changed = now() WHERE id = 2")
	b.until(6)
	b.quiet()
	b.stop()
	require.True(t, strings.HasPrefix(b.values()[5], "2 "))
	require.Equal(t, int64(2), b.records[5].Source.Offset["incrementing"])
}

func TestConfluentOffsets(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "timestamp+incrementing", "timestamp.column.name": "at"},
		"CREATE TABLE t (id serial PRIMARY KEY, at timestamp NOT NULL)",
		"INSERT INTO t VALUES (1, '2024-01-01 00:00:00.123456'), (2, '2024-01-01 00:00:00.123456'), (3, '2024-01-02')")
	b.stored[asJSON(map[string]any{"table": "t"})] =
		map[string]any{"timestamp": int64(1704067200123), "timestamp_nanos": int64(123456000), "incrementing": int64(1)}
	b.start()
	defer b.stop()
	b.until(2)
	b.quiet()
}

func TestQuery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		props map[string]string
		want  []string
	}{
		{map[string]string{"mode": "incrementing", "incrementing.column.name": "id"}, []string{"2 x", "3 x"}},
		{map[string]string{"mode": "timestamp", "timestamp.column.name": "at", "query": "SELECT at, id FROM t"}, nil},
	} {
		props := map[string]string{"query": "SELECT t.id, u.v FROM t JOIN u ON true WHERE t.id > 1;",
			"topic.prefix": "joined"}
		for k, v := range c.props {
			props[k] = v
		}
		b := newBench(t, props, "CREATE TABLE t (id int, at timestamptz DEFAULT now())", "CREATE TABLE u (v text)",
			"INSERT INTO t VALUES (1), (2), (3)", "INSERT INTO u VALUES ('x')")
		b.start()
		if c.want == nil {
			b.until(3)
		} else {
			b.until(len(c.want))
			require.Equal(t, c.want, b.values())
		}
		b.quiet()
		require.Equal(t, "joined", b.records[0].Topic)
		require.Equal(t, map[string]any{"query": "query"}, b.records[0].Source.Partition)
		require.Nil(t, b.records[0].Key)
		b.stop()
	}
}

func TestSuffix(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "timestamp", "timestamp.column.name": "at", "query.suffix": "LIMIT 3"},
		"CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL)",
		"INSERT INTO t SELECT n, '2024-01-01'::timestamptz + (n / 2) * interval '1 second' FROM generate_series(0, 5) n")
	b.start()
	defer b.stop()
	seen := map[string]bool{}
	b.eventually(func() bool {
		for _, v := range b.values() {
			seen[v] = true
		}
		return len(seen) == 6
	})
}

func TestOddNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 31) + "x" // 63 bytes
	for _, mode := range []string{"bulk", "incrementing", "timestamp+incrementing", "xid"} {
		b := newBench(t, map[string]string{"mode": mode, "topic.format": "${prefix}${schema}.${table}",
			"incrementing.column.mapping": ".*:SELECT", "timestamp.columns.mapping": ".*:[" + long + "]",
			"table.whitelist": `"My.Schema"."Order, ""quoted"""` + `,"My.Schema".` + long + ",select"},
			`CREATE SCHEMA "My.Schema"`)
		if mode == "bulk" {
			b.props["poll.interval.ms"] = "60000"
		}
		for _, name := range []string{`"My.Schema"."Order, ""quoted"""`, `"My.Schema"."` + long + `"`, `"select"`} {
			b.exec(`CREATE TABLE ` + name + ` ("SELECT" int PRIMARY KEY, "` + long + `" timestamptz NOT NULL DEFAULT now(), ` +
				`"a ""b""" text, "r" int)`)
			b.exec(`INSERT INTO ` + name + ` ("SELECT", "a ""b""") VALUES (1, 'x')`)
		}
		b.start()
		b.until(3)
		b.stop()
		var topics []string
		for _, r := range b.records {
			topics = append(topics, r.Topic)
			require.Equal(t, []string{"SELECT", long, `a "b"`, "r"}, fieldNames(r.ValueSchema))
		}
		require.ElementsMatch(t, []string{`p-My.Schema.Order, "quoted"`, "p-My.Schema." + long, "p-public.select"}, topics)
	}
}

func fieldNames(s *data.Schema) (out []string) {
	for _, f := range s.Fields {
		out = append(out, f.Name)
	}
	return out
}

func TestViewsAndPartitions(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "incrementing", "incrementing.column.name": "id",
		"table.types": "VIEW, PARTITIONED TABLE,TABLE,MATERIALIZED VIEW"},
		"CREATE TABLE parts (id int NOT NULL, at date) PARTITION BY RANGE (at)",
		"CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
		"CREATE TABLE parts_2 PARTITION OF parts DEFAULT",
		"INSERT INTO parts VALUES (1, '2024-02-02'), (2, '2020-01-01')",
		"CREATE VIEW v AS SELECT id FROM parts", "CREATE MATERIALIZED VIEW mv AS SELECT 7 AS id")
	b.start()
	b.until(5)
	b.quiet()
	b.stop()
	count := map[string]int{}
	for _, r := range b.records {
		count[r.Topic]++
	}
	require.Equal(t, map[string]int{"p-parts": 2, "p-v": 2, "p-mv": 1}, count)
}

// A column that is added or dropped while the table is read.
func TestColumnsChange(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "incrementing"}, "CREATE TABLE t (id serial PRIMARY KEY, v text)",
		"INSERT INTO t (v) VALUES ('a')")
	b.start()
	defer b.stop()
	b.until(1)
	b.exec("ALTER TABLE t ADD COLUMN n int DEFAULT 5", "INSERT INTO t (v) VALUES ('b')")
	b.until(2)
	b.exec("ALTER TABLE t DROP COLUMN v", "INSERT INTO t (n) VALUES (6)")
	b.until(3)
	require.Equal(t, []string{"1 a", "2 b 5", "3 6"}, b.values())
}

func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "xid", "batch.max.rows": "4", "connection.backoff.ms": "50"},
		"CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 40)")
	b.start()
	defer b.stop()
	for i := range 12 {
		b.poll(false)
		if i%3 == 0 {
			b.srv.KillBackends(t, b.url)
		}
	}
	require.Positive(t, b.troubles, "it is told why nothing comes")
	b.until(40)
	require.NoError(t, b.trouble)
	got := b.values()
	slices.Sort(got)
	require.Len(t, slices.Compact(got), 40)
}

// Rows of a megabyte come a few at a time, however many are asked for.
func TestLargeRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "incrementing"}, "CREATE TABLE t (id serial PRIMARY KEY, v text)",
		"INSERT INTO t (v) SELECT repeat('x', 1000000) FROM generate_series(1, 60)")
	b.start()
	defer b.stop()
	for end := time.Now().Add(patience); len(b.records) < 60; {
		require.True(t, time.Now().Before(end), "%d rows have come", len(b.records))
		require.LessOrEqual(t, b.poll(false), 18)
	}
	require.Len(t, b.records, 60)
}

// The guard waits for whoever may yet write, and not for other pollers.
func TestGuardPassesPollersOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "incrementing"}, "CREATE TABLE t (id serial PRIMARY KEY)")
	poller := b.session()
	poller(fmt.Sprintf("SELECT pg_advisory_lock_shared(%d)", 0x6d696c6c706f6c6c))
	poller("BEGIN")
	poller("SELECT 1")
	b.exec("INSERT INTO t VALUES (1)")
	b.start()
	defer b.stop()
	b.until(1)
	reader := b.session()
	reader("BEGIN")
	reader("SELECT 1")
	b.exec("INSERT INTO t VALUES (2)")
	b.quiet()
	reader("ROLLBACK")
	b.until(2)
}

// Stop ends a poll that waits, and one that reads.
func TestStopWhilePolling(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"SELECT 1 AS a WHERE false", "SELECT pg_sleep(60)"} {
		b := newBench(t, map[string]string{"mode": "bulk", "query": query})
		b.start()
		polled := make(chan error, 1)
		go func() {
			_, err := b.task.Poll(t.Context())
			polled <- err
		}()
		b.stop()
		require.NoError(t, <-polled)
	}
}

func BenchmarkXID(b *testing.B) {
	srv := pgtest.Start(b)
	u := srv.Database(b)
	srv.Exec(b, u, "CREATE TABLE t (id bigint PRIMARY KEY, a int, at timestamptz DEFAULT now(), v text)",
		"INSERT INTO t SELECT n, n, now(), repeat('x', 170) FROM generate_series(1, 200000) n")
	props := map[string]string{"connection.url": u, "topic.prefix": "p", "mode": "xid",
		"millrace.tables": `[["public","t"]]`}
	for b.Loop() {
		task := polling.Class().New().NewSource()
		require.NoError(b, task.Start(b.Context(), props, plugin.SourceContext{
			TaskContext: plugin.TaskContext{
				Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Trouble: func(error) {},
			},
			Offset: func(context.Context, map[string]any) (map[string]any, error) { return nil, nil }}))
		for n := 0; n < 200000; {
			out, err := task.Poll(b.Context())
			require.NoError(b, err)
			n += len(out)
		}
		require.NoError(b, task.Stop(b.Context()))
	}
	b.ReportMetric(200000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// A server that is down for a while, and comes back as after a crash.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	srv := pgtest.New(t, pgtest.Options{})
	u := srv.Database(t)
	srv.Exec(t, u, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 30)")
	b := &bench{t: t, srv: srv, url: u, stored: map[string]map[string]any{}, props: map[string]string{"connection.url": u,
		"topic.prefix": "p-", "poll.interval.ms": "10", "mode": "xid", "batch.max.rows": "4", "connection.backoff.ms": "50"}}
	b.start()
	defer b.stop()
	b.poll(false)
	srv.Stop(t, pgtest.Immediate)
	for range 3 {
		require.Zero(t, b.poll(false))
	}
	srv.Start(t)
	b.until(30)
	srv.Exec(t, u, "INSERT INTO t VALUES (31)")
	b.until(31)
}
