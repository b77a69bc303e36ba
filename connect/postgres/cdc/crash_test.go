package cdc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/pgtest"
)

// workload changes a table at random, in transactions that may be undone in part or in whole.
type workload struct {
	l    *lab
	r    *rand.Rand
	next int
}

func (w *workload) step() {
	var b strings.Builder
	b.WriteString("BEGIN;")
	for range 1 + w.r.IntN(6) {
		switch w.r.IntN(8) {
		case 0, 1, 2:
			w.next++
			fmt.Fprintf(&b, "INSERT INTO t VALUES (%d, '%s', %d);", w.next, letters(w.r.IntN(50)), w.r.IntN(1000))
		case 3, 4:
			fmt.Fprintf(&b, "UPDATE t SET n = %d WHERE id = %d;", w.r.IntN(1000), w.id())
		case 5:
			fmt.Fprintf(&b, "DELETE FROM t WHERE id = %d;", w.id())
		case 6:
			w.next++
			fmt.Fprintf(&b, "UPDATE t SET id = %d WHERE id = %d;", w.next, w.id())
		case 7:
			fmt.Fprintf(&b, "SAVEPOINT s; UPDATE t SET n = -1 WHERE id = %d; ROLLBACK TO s;", w.id())
		}
	}
	b.WriteString([]string{"COMMIT", "COMMIT", "COMMIT", "ROLLBACK"}[w.r.IntN(4)])
	w.l.exec(b.String())
}

func (w *workload) id() int { return 1 + w.r.IntN(max(w.next, 1)) }

// ordered fails where the events of a key do not follow from one another: what a create finds, and an update lacks.
func (l *lab) ordered(topic string) {
	l.t.Helper()
	there := map[string]bool{}
	for i, e := range l.records {
		if e.topic != topic || e.tombstone {
			continue
		}
		switch e.op {
		case "c":
			require.False(l.t, there[e.key], "event %d creates %s, which is there", i, e.key)
			there[e.key] = true
		case "r":
			there[e.key] = true
		case "u":
			require.True(l.t, there[e.key], "event %d updates %s, which is not there", i, e.key)
		case "d":
			require.True(l.t, there[e.key], "event %d deletes %s, which is not there", i, e.key)
			delete(there, e.key)
		}
	}
}

// Whatever the task was doing when it went, the one after it goes on as if nothing had happened.
func TestCrashAtEveryStep(t *testing.T) {
	const seed = 7
	l := newLab(t, small, `CREATE TABLE u (id int PRIMARY KEY, v text)`, `CREATE TABLE big (id int PRIMARY KEY, v text)`,
		`INSERT INTO t SELECT g, 'v' || g, g FROM generate_series(1, 50) g`,
		`INSERT INTO u SELECT g, 'v' || g FROM generate_series(1, 30) g`,
		`INSERT INTO big SELECT g, 'v' || g FROM generate_series(1, 900) g`, `ANALYZE`)
	l.set("max.batch.size", "40", "millrace.snapshot.small.rows", "300", "incremental.snapshot.chunk.size", "100")
	w := &workload{l: l, r: rand.New(rand.NewPCG(seed, seed)), next: 50}
	steps := 0
	for steps = 0; steps < 40**rounds; steps++ {
		l.start()
		for range 1 + w.r.IntN(3) {
			w.step()
			l.exec(fmt.Sprintf(`UPDATE big SET v = 'w%d' WHERE id %% 97 = %d`, steps, steps%97))
			out, err := l.receive()
			require.NoError(t, err)
			if w.r.IntN(3) == 0 {
				break // nothing was stored
			}
			l.store(out)
			if w.r.IntN(3) > 0 {
				require.NoError(t, l.task.Stored(context.Background()))
			}
		}
		l.stop()
	}
	l.start()
	for _, table := range []string{"t", "u", "big"} {
		l.caughtUp(table)
		for key, n := range l.count("p.public."+table, "r") {
			require.Equal(t, 1, n, "row %s of table %s was read more than once", key, table)
		}
	}
	l.ordered("p.public.t")
	require.Len(t, l.count("p.public.u", "r"), 30)
}

// A connection that breaks at any moment is made again, and nothing shows.
func TestKilledBackends(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t SELECT g, 'v' || g, g FROM generate_series(1, 2000) g`, `ANALYZE`)
	l.set("max.batch.size", "100", "millrace.snapshot.small.rows", "100")
	l.log = 8
	w := &workload{l: l, r: rand.New(rand.NewPCG(3, 3)), next: 2000}
	l.start()
	for range 15 * *rounds {
		for range w.r.IntN(8) {
			w.step()
			l.poll()
		}
		l.kill()
	}
	l.caughtUp("t")
	for key, n := range l.count("p.public.t", "r") {
		require.Equal(t, 1, n, key)
	}
}

// kill ends the sessions of the connector, not the test's own.
func (l *lab) kill() {
	l.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
		AND pid <> pg_backend_pid()`)
}

func TestServerRestarts(t *testing.T) {
	s := pgtest.New(t, pgtest.Options{})
	l := labOn(t, s, small, `INSERT INTO t SELECT g, 'v' || g, g FROM generate_series(1, 500) g`)
	l.log = 8
	l.set("max.batch.size", "100")
	w := &workload{l: l, r: rand.New(rand.NewPCG(5, 5)), next: 500}
	l.start()
	for i := range 4 * *rounds {
		for range 5 {
			w.step()
			l.poll()
		}
		stopped := s.Stopping(t, []pgtest.Mode{pgtest.Fast, pgtest.Immediate}[i%2])
		for running := true; running; {
			select {
			case err := <-stopped:
				require.NoError(t, err)
				running = false
			default:
				l.poll()
			}
		}
		s.Start(t)
		l.db = s.Connect(t, l.url)
	}
	l.caughtUp("t")
	l.ordered("p.public.t")
	l.stop()
}

// Columns come and go while rows are written and tasks crash.
func TestSchemaChangesUnderLoad(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 500) g`, `ANALYZE`)
	l.set("max.batch.size", "30", "millrace.snapshot.small.rows", "100", "incremental.snapshot.chunk.size", "50")
	r := rand.New(rand.NewPCG(9, 9))
	l.start()
	next, columns := 500, 0
	for range 40 * *rounds {
		for range r.IntN(4) {
			next++
			l.exec(fmt.Sprintf(`INSERT INTO t (id, v, n) VALUES (%d, 'x', 1)`, next),
				fmt.Sprintf(`UPDATE t SET n = n + 1 WHERE id %% 50 = %d`, r.IntN(50)))
		}
		switch r.IntN(6) {
		case 0:
			columns++
			l.exec(fmt.Sprintf(`ALTER TABLE t ADD c%d int NOT NULL DEFAULT %[1]d`, columns))
		case 1:
			if columns > 0 {
				l.exec(fmt.Sprintf(`ALTER TABLE t DROP COLUMN IF EXISTS c%d`, 1+r.IntN(columns)))
			}
		case 2:
			l.exec(fmt.Sprintf(`BEGIN; ALTER TABLE t ADD gone int; UPDATE t SET n = 0 WHERE id = %d; ROLLBACK`, r.IntN(500)))
		case 3:
			l.stop()
			l.start()
		}
		l.poll()
	}
	for l.poll() {
	}
	l.exec(`UPDATE t SET n = n`) // rows that were not written since say nothing of new columns
	l.caughtUp("t")
	for key, n := range l.count("p.public.t", "r") {
		require.Equal(t, 1, n, key)
	}
}

// Sessions that end as soon as they have begun are tried again with pauses that grow, and no oftener than is allowed.
func TestSessionsThatEndAtOnce(t *testing.T) {
	l := newLab(t, small).set("errors.max.retries", "3")
	l.streaming()
	ended := map[int]bool{} // by their processes: one may be told to end more than once before it does
	for end := time.Now().Add(patience); ; {
		_, err := l.tryPoll()
		if err != nil {
			require.GreaterOrEqual(t, len(ended), 4)
			return
		}
		require.Less(t, len(ended), 20, "it is tried for ever")
		require.True(t, time.Now().Before(end), "sessions go on")
		rows, err := l.db.Query(t.Context(), `SELECT active_pid FROM pg_replication_slots
			WHERE slot_name = $1 AND active AND pg_terminate_backend(active_pid)`, l.props["slot.name"])
		require.NoError(t, err)
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		require.NoError(t, err)
		for _, pid := range pids {
			ended[pid] = true
		}
	}
}
