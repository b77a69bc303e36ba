package cdc_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/cdc"
	"millrace/connect/postgres/pgtest"
)

func TestSnapshotModes(t *testing.T) {
	t.Run("initial_only", func(t *testing.T) {
		l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 100) g`)
		l.set("snapshot.mode", "initial_only", "max.batch.size", "30").start()
		l.caughtUp("t")
		l.exec(`INSERT INTO t VALUES (101, 'x', 1)`)
		l.stop()
		l.start()
		for range 5 {
			l.poll()
		}
		require.Len(t, l.records, 100)
		require.Empty(t, l.slot("slot_name"), "nothing is streamed, so there is no slot")
	})
	t.Run("initial_only as a role that may not replicate", func(t *testing.T) {
		l := newLab(t, small, `INSERT INTO t VALUES (1, 'a', 1)`)
		role := l.role("LOGIN")
		l.exec(`GRANT SELECT ON t TO ` + role)
		l.set("snapshot.mode", "initial_only", "database.user", role, "database.password", pgtest.Password)
		require.Empty(t, cdc.Class().New().Validate(t.Context(), l.props))
		l.start()
		l.caughtUp("t")
		require.NotEmpty(t, l.offset["sysid"])
	})
	t.Run("always", func(t *testing.T) {
		l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 3) g`)
		l.set("snapshot.mode", "always").start()
		l.caughtUp("t")
		l.stop()
		l.exec(`INSERT INTO t VALUES (4, 'x', 1)`, `DELETE FROM t WHERE id = 1`)
		l.start()
		l.until("the rows", func() bool { return len(l.count("p.public.t", "r")) == 4 })
		l.kill()
		l.log = 8
		l.exec(`INSERT INTO t VALUES (5, 'x', 1)`)
		l.caughtUp("t")
		require.Equal(t, []string{"r", "r", "r", "r", "r", "r", "c", "d", "-", "c"}, l.ops("p.public.t"))
	})
	t.Run("no_data", func(t *testing.T) {
		l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 3) g`)
		l.set("snapshot.mode", "no_data")
		l.streaming()
		l.exec(`INSERT INTO t VALUES (4, 'x', 1)`)
		l.until("the insert", func() bool { return len(l.records) > 0 })
		require.Equal(t, []string{"c"}, l.ops("p.public.t"))
	})
	t.Run("override", func(t *testing.T) {
		l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 10) g`)
		l.set("snapshot.select.statement.overrides", "public.t",
			"snapshot.select.statement.overrides.public.t", "SELECT n, id FROM t WHERE id > 8")
		l.start()
		l.until("the rows", func() bool { return len(l.records) == 2 })
		require.Equal(t, map[string]any{"id": int32(9), "v": nil, "n": int32(9)}, l.records[0].after)
	})
}

// A reader that does not read gives signs of life all the while, as often as the settings say, and so keeps its
// connection.
func TestSignsOfLifeUnderBackPressure(t *testing.T) {
	l := newLab(t, small)
	l.set("max.queue.size.in.bytes", "100000", "max.queue.size", "100")
	l.streaming()
	l.exec(`INSERT INTO t SELECT g, repeat('x', 1000), g FROM generate_series(1, 20000) g`)
	l.until("the first rows", func() bool { return len(l.records) > 0 })
	pid := l.slot("active_pid")
	l.alive(4)
	l.caughtUp("t")
	require.Equal(t, pid, l.slot("active_pid"))
	require.Len(t, l.records, 20000)
}

// Tables without a key, larger than a batch, come in several.
func TestLargeTableWithoutKey(t *testing.T) {
	l := newLab(t, `CREATE TABLE n (v int)`, `ALTER TABLE n REPLICA IDENTITY FULL`,
		`INSERT INTO n SELECT g FROM generate_series(1, 1000) g`)
	l.set("snapshot.fetch.size", "100", "max.batch.size", "100").start()
	l.until("the rows", func() bool { return len(l.records) >= 1000 })
	require.Len(t, l.records, 1000)
	require.Equal(t, "last", l.records[999].source["snapshot"])
	polls := map[int]bool{}
	for _, e := range l.records {
		polls[e.poll] = true
	}
	require.Greater(t, len(polls), 8)
}

func TestMetrics(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t VALUES (1, 'a', 1)`)
	l.start()
	l.caughtUp("t")
	l.exec(`INSERT INTO t VALUES (2, 'a', 1)`)
	l.caughtUp("t")
	families, err := l.metrics.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	const p = "millrace_connect_postgres_cdc_"
	require.Equal(t, 1.0, values[p+"connected"])
	require.Equal(t, 1.0, values[p+"snapshot_rows_total"])
	require.NotZero(t, values[p+"slot_retained_bytes"])
	require.Contains(t, values, p+"slot_status")
	require.Zero(t, values[p+"slot_status"])
	require.NotZero(t, values[p+"stored_lsn_bytes"])
}

func TestDatabaseThatIsNotThereIsWaitedFor(t *testing.T) {
	s := pgtest.New(t, pgtest.Options{})
	l := labOn(t, s, small, `INSERT INTO t VALUES (1, 'a', 1)`)
	l.log = 8
	s.Stop(t, pgtest.Fast)
	l.start()
	begin := time.Now()
	for time.Since(begin) < time.Second {
		require.False(t, l.poll())
	}
	s.Start(t)
	l.db = s.Connect(t, l.url)
	l.caughtUp("t")
	l.stop()
}

func TestWrongPasswordFailsAtOnce(t *testing.T) {
	l := newLab(t, small)
	l.set("database.user", l.role("LOGIN REPLICATION"), "database.password", "wrong").start()
	_, err := l.tryPoll()
	require.ErrorContains(t, err, "28P01")
	require.NotContains(t, err.Error(), "wrong\"")
}

// With lsn.flush.mode=manual, neither what is read nor a restart moves the slot on.
func TestSlotThatTheUserAdvances(t *testing.T) {
	l := newLab(t, small).set("lsn.flush.mode", "manual", "status.update.interval.ms", "20")
	l.streaming()
	before := l.slot("confirmed_flush_lsn")
	for i := range 3 {
		l.exec(fmt.Sprintf(`INSERT INTO t VALUES (%d, 'a', 1)`, i))
		l.caughtUp("t")
		l.stop()
		l.start()
	}
	l.exec(`INSERT INTO t VALUES (9, 'a', 1)`)
	l.caughtUp("t")
	for range 5 {
		l.poll()
	}
	require.Equal(t, before, l.slot("confirmed_flush_lsn"))
}

// A server that ends sessions which are idle leaves ours alone.
func TestIdleSessions(t *testing.T) {
	l := newLab(t, small)
	l.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET idle_session_timeout = 200', current_database()); END $$`)
	l.streaming()
	l.exec(`SELECT pg_sleep(1)`, `INSERT INTO t VALUES (1, 'a', 1)`)
	l.caughtUp("t")
	n := 0
	require.NoError(t, l.db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE
		datname = current_database() AND application_name LIKE 'millrace%' AND backend_start < now() - interval '900 ms'`).
		Scan(&n))
	require.GreaterOrEqual(t, n, 2) // one that has read the snapshot may not have ended yet
}

// A slot's name may begin with a digit, or be a word of the replication protocol.
func TestSlotNames(t *testing.T) {
	for _, name := range []string{"1st", "logical"} {
		l := newLab(t, small).set("slot.name", name)
		l.streaming()
		l.exec(`INSERT INTO t VALUES (1, 'a', 1)`)
		l.caughtUp("t")
		l.stop()
		l.dropSlot()
	}
}

// A slot is dropped with its connector, also where the server needs seconds to see that its reader is gone.
func TestSlotDroppedOnStop(t *testing.T) {
	l := newLab(t, small)
	l.set("slot.drop.on.stop", "true")
	l.streaming()
	if os.Getenv(pgtest.Variable) == "" { // the server is here
		pid, err := strconv.Atoi(l.slot("active_pid"))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		time.AfterFunc(3*time.Second, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	}
	require.NoError(t, l.task.Stop(context.Background()))
	l.task = nil
	require.Empty(t, l.slot("slot_name"))
}

// BenchmarkStream reads a large transaction from a server, without what becomes of the records.
func BenchmarkStream(b *testing.B) {
	l := newLab(b, small)
	l.log = 8
	l.streaming()
	const rows = 200_000
	b.SetBytes(200 * rows)
	from := 0
	for b.Loop() {
		b.StopTimer()
		l.exec(fmt.Sprintf(`INSERT INTO t SELECT g, repeat('x', 190), g FROM generate_series(%d, %d) g`, from+1, from+rows))
		from += rows
		b.StartTimer()
		for n := 0; n < rows; {
			out, err := l.receive()
			require.NoError(b, err)
			for _, r := range out {
				if r.Topic != "" {
					n++
				}
			}
			require.NoError(b, l.task.Stored(context.Background()))
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// A task that waits for the database ends when it is told to.
func TestStopWhileTheDatabaseIsBusy(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t VALUES (1, 'a', 1)`)
	c := l.server.Connect(t, l.url)
	_, err := c.Exec(t.Context(), `BEGIN; LOCK TABLE t`)
	require.NoError(t, err)
	l.start()
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	task := l.task
	wg.Go(func() {
		for {
			if _, err := task.Poll(context.Background()); err != nil {
				ended <- err
				return
			}
		}
	})
	l.exec(`SELECT pg_sleep(0.5)`)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, task.Stop(ctx), "it waits for as long as the table is locked")
	require.Error(t, <-ended)
	l.task = nil
}

func TestRightsThatAreMissing(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t VALUES (1, 'a', 1)`)
	l.exec(`CREATE PUBLICATION ` + l.props["publication.name"] + ` FOR TABLE t`)
	l.set("database.user", l.role("LOGIN REPLICATION"), "database.password", pgtest.Password).start()
	l.fails("table public.t", "GRANT SELECT ON", "42501")
}
