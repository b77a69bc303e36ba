package cdc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const signals = `CREATE TABLE sig (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))`

func (l *lab) signal(id, kind, data string) {
	l.exec(fmt.Sprintf(`INSERT INTO sig VALUES ('%s', '%s', '%s')`, id, kind, data))
}

// A large table is read beside the stream while it changes, by tasks that crash.
func TestChunksUnderLoad(t *testing.T) {
	for seed := range uint64(*rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newLab(t, `CREATE TABLE t (id int PRIMARY KEY, v text, n int); ALTER TABLE t ALTER v SET STORAGE EXTERNAL`,
				`INSERT INTO t SELECT g, repeat('v', 3000), g FROM generate_series(1, 1500) g`, `ANALYZE`)
			l.set("millrace.snapshot.small.rows", "10", "incremental.snapshot.chunk.size", "70", "max.batch.size", "50")
			w := &workload{l: l, r: rand.New(rand.NewPCG(seed+1, 1)), next: 1500}
			l.start()
			for range 60 {
				for range w.r.IntN(4) {
					w.step()
				}
				l.exec(fmt.Sprintf(`UPDATE t SET n = n + 1 WHERE id BETWEEN %d AND %[1]d + 20`, w.r.IntN(1500)))
				out, err := l.receive()
				require.NoError(t, err)
				switch w.r.IntN(6) {
				case 0:
					l.stop()
					l.start()
					continue
				case 1:
					l.store(out)
					l.stop()
					l.start()
					continue
				}
				l.store(out)
				require.NoError(t, l.task.Stored(context.Background()))
			}
			l.caughtUp("t")
			for key, n := range l.count("p.public.t", "r") {
				require.Equal(t, 1, n, key)
			}
			l.until("the end of the snapshot", func() bool { return l.offset["snapshot"] == nil })
		})
	}
}

// What is written behind the end that a table had when the slot was made is of the stream alone.
func TestChunksEndWhereTheSlotBegins(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 500) g`, `ANALYZE`,
		`CREATE TABLE grown (id int PRIMARY KEY)`)
	// A table of which the server thinks that it is large, and which is empty.
	l.exec(`INSERT INTO grown SELECT g FROM generate_series(1, 5000) g`, `ANALYZE grown`, `DELETE FROM grown`)
	l.set("millrace.snapshot.small.rows", "10", "incremental.snapshot.chunk.size", "70", "max.batch.size", "50")
	l.start()
	l.until("a place", func() bool { return l.offset != nil })
	l.exec(`INSERT INTO t SELECT g, 'w', g FROM generate_series(501, 600) g`, `INSERT INTO grown VALUES (7)`)
	l.caughtUp("t")
	l.caughtUp("grown")
	require.Len(t, l.count("p.public.t", "r"), 500)
	require.Len(t, l.count("p.public.t", "c"), 100)
	require.Equal(t, []string{"c"}, l.ops("p.public.grown"))
	require.Len(t, l.records, 601)
}

// A task that ends before it has stored anything leaves a slot whose view is gone. What the view of the next one sees
// is read, and comes no second time from the stream; where a table turns out to be large only then, too.
func TestChunksAfterTheSlotsViewIsGone(t *testing.T) {
	for _, c := range []struct {
		name        string
		early, late string
	}{
		{"large from the beginning", `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 500) g`,
			`INSERT INTO t SELECT g, 'v', g FROM generate_series(501, 600) g`},
		{"large later", `SELECT 1`, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 600) g`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, small, c.early, `ANALYZE`)
			l.set("millrace.snapshot.small.rows", "10", "incremental.snapshot.chunk.size", "70", "max.batch.size", "50")
			l.start()
			_, err := l.receive()
			require.NoError(t, err)
			l.stop()
			l.exec(c.late, `DELETE FROM t WHERE id = 599`, `UPDATE t SET n = 0 WHERE id = 600`)
			l.start()
			l.until("a place", func() bool { return l.offset != nil })
			l.exec(`INSERT INTO t SELECT g, 'w', g FROM generate_series(601, 700) g`)
			l.caughtUp("t")
			require.Len(t, l.count("p.public.t", "r"), 599)
			require.Len(t, l.count("p.public.t", "c"), 100)
			require.Len(t, l.records, 699)
		})
	}
}

// What was at a key when a chunk was read is not the row that the stream moves away from there: the large value that it
// lacks is read from its new place.
func TestRowsMoveUnderAChunk(t *testing.T) {
	l := newLab(t, small, `ALTER TABLE t ALTER v SET STORAGE EXTERNAL`,
		`INSERT INTO t SELECT g, repeat('v', 3000), g FROM generate_series(1, 100) g`, `ANALYZE`)
	l.set("millrace.snapshot.small.rows", "10")
	l.start()
	_, err := l.receive() // makes the slot
	require.NoError(t, err)
	l.exec(`UPDATE t SET id = id + 1000 WHERE id <= 50`,
		`INSERT INTO t SELECT g, 'other', g FROM generate_series(1, 50) g`)
	l.caughtUp("t")
}

func TestSignals(t *testing.T) {
	l := newLab(t, small, signals, `CREATE TABLE u (id int PRIMARY KEY)`, `INSERT INTO u VALUES (1)`,
		`INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 100) g`)
	l.set("snapshot.mode", "no_data", "signal.data.collection", "public.sig", "incremental.snapshot.chunk.size", "30",
		"table.include.list", "public.t,public.u", "publication.autocreate.mode", "filtered")
	l.streaming()
	l.signal("1", "execute-snapshot", `{"data-collections": ["public.t"], "type": "incremental",
		"additional-conditions": [{"data-collection": "public.t", "filter": "n > 50"}]}`)
	l.until("the rows", func() bool { return len(l.count("p.public.t", "r")) >= 50 })
	require.Equal(t, "incremental", l.records[0].source["snapshot"])
	require.Len(t, l.records, 50)
	l.signal("2", "pause-snapshot", "")
	l.signal("3", "execute-snapshot", `{"data-collections": ["public.t"]}`)
	l.signal("4", "log", `{"message": "here"}`)
	l.signal("5", "nonsense", `{`)
	l.exec(`INSERT INTO t VALUES (200, 'x', 0)`)
	l.until("the insert", func() bool { return len(l.count("p.public.t", "c")) == 1 })
	for range 5 {
		l.poll()
	}
	require.Len(t, l.records, 51, "the snapshot is paused")
	l.stop()
	l.start()
	l.signal("6", "resume-snapshot", "")
	l.until("the rows", func() bool { return len(l.records) >= 51+101 })
	l.signal("7", "execute-snapshot", `{"data-collections": ["public.*"], "type": "blocking"}`)
	l.until("the rows", func() bool { return len(l.count("p.public.u", "r")) == 1 })
	l.until("the rows", func() bool { return len(l.records) >= 51+101+102 })
	l.caughtUp("t")
	require.Empty(t, l.on("p.public.sig"))
	require.Len(t, l.records, 51+101+102)
}

func TestStoppedSnapshot(t *testing.T) {
	l := newLab(t, small, signals, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 3000) g`)
	l.set("snapshot.mode", "no_data", "signal.data.collection", "public.sig", "incremental.snapshot.chunk.size", "10",
		"read.only", "true")
	l.streaming()
	l.signal("1", "execute-snapshot", `{"data-collections": ["public.t"]}`)
	l.until("some rows", func() bool { return len(l.on("p.public.t")) >= 30 })
	l.signal("2", "stop-snapshot", `{"data-collections": ["public.t"]}`)
	l.until("the signal", func() bool { return len(l.on("p.public.sig")) >= 2 })
	l.poll()
	n := len(l.on("p.public.t"))
	require.Less(t, n, 2000)
	for range 5 {
		l.poll()
	}
	require.Len(t, l.on("p.public.t"), n)
}

// Keys whose order only the server knows: texts of a collation, enums, several columns, and another key than the row's.
func TestChunksOfOddKeys(t *testing.T) {
	l := newLab(t, signals, `CREATE TYPE mood AS ENUM ('zero', 'and', 'bad', 'Aaa')`,
		`CREATE TABLE t (m mood, id text, n int NOT NULL, PRIMARY KEY (m, id))`,
		`INSERT INTO t SELECT (enum_range(NULL::mood))[1 + g % 4], chr(40 + g) || chr(500 - g), g % 3 FROM
			generate_series(1, 80) g`)
	l.set("snapshot.mode", "no_data", "signal.data.collection", "public.sig", "incremental.snapshot.chunk.size", "7")
	l.streaming()
	l.signal("1", "execute-snapshot", `{"data-collections": ["public.t"]}`)
	l.until("the rows", func() bool { return len(l.on("p.public.t")) >= 80 })
	require.Len(t, l.count("p.public.t", "r"), 80)
	l.signal("2", "execute-snapshot", `{"data-collections": ["public.t"], "surrogate-key": "n"}`)
	l.until("the rows", func() bool { return len(l.on("p.public.t")) >= 160 })
	require.Len(t, l.on("p.public.t"), 160)
	for _, n := range l.count("p.public.t", "r") {
		require.Equal(t, 2, n)
	}
}

// A database in which nothing happens lets the server's log go, which others fill.
func TestIdleDatabaseLetsTheLogGo(t *testing.T) {
	l := newLab(t, small)
	l.streaming()
	other := newLab(t, small)
	before := l.slot("confirmed_flush_lsn")
	other.exec(`INSERT INTO t SELECT g, repeat('x', 100), g FROM generate_series(1, 5000) g`)
	var target string
	require.NoError(t, other.db.QueryRow(context.Background(), `SELECT pg_current_wal_lsn()::text`).Scan(&target))
	end := time.Now().Add(patience)
	for {
		l.poll()
		var passed bool
		require.NoError(t, l.db.QueryRow(context.Background(), `SELECT confirmed_flush_lsn >= $1::text::pg_lsn
			FROM pg_replication_slots WHERE slot_name = $2`, target, l.props["slot.name"]).Scan(&passed))
		if passed {
			break
		}
		require.True(t, time.Now().Before(end), "the slot stays at %s", before)
	}
	l.stop()
	l.start() // what is stored agrees with the slot
	l.exec(`INSERT INTO t VALUES (1, 'a', 1)`)
	l.caughtUp("t")
}

// A chunk that waits for its place is read again where the key is another one by then: none of its rows is lost.
func TestKeyRenamedAmidChunks(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 2000) g`)
	l.set("millrace.snapshot.small.rows", "10", "max.batch.size", "50", "incremental.snapshot.chunk.size", "50")
	l.start()
	l.until("some rows", func() bool { return len(l.records) > 100 })
	l.exec(`BEGIN; ALTER TABLE t RENAME id TO uid; UPDATE t SET n = n + 1 WHERE uid % 10 = 0; COMMIT`)
	seen := map[any]bool{}
	l.until("all rows", func() bool {
		for _, e := range l.records {
			if e.after["uid"] != nil {
				seen[e.after["uid"]] = true
			}
		}
		return len(seen) == 2000
	})
}

// Rows that are read after a column was added have it.
func TestColumnAddedAmidChunks(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 2000) g`)
	l.set("millrace.snapshot.small.rows", "10", "max.batch.size", "50", "incremental.snapshot.chunk.size", "50")
	l.start()
	l.until("some rows", func() bool { return len(l.records) > 100 })
	l.exec(`ALTER TABLE t ADD COLUMN more int NOT NULL DEFAULT 7`)
	l.until("all rows", func() bool { return len(l.table("p.public.t")) == 2000 })
	require.EqualValues(t, 7, l.records[len(l.records)-1].after["more"])
}

// whileWaited commits statements once somebody waits for what they have locked.
func (l *lab) whileWaited(statements string, run func()) {
	l.t.Helper()
	other := l.server.Connect(l.t, l.url)
	_, err := other.Exec(context.Background(), "BEGIN; "+statements)
	require.NoError(l.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var failed error
	var wg sync.WaitGroup
	defer func() {
		wg.Wait()
		require.NoError(l.t, failed)
	}()
	wg.Go(func() {
		_, err := other.Exec(ctx, `DO $$ BEGIN
			WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND
				database = (SELECT oid FROM pg_database WHERE datname = current_database()))
			LOOP PERFORM pg_sleep(0.01); END LOOP; END $$; COMMIT`)
		failed = err
	})
	run()
}

// A table that is written anew while a chunk waits to read it shows no row in a view from before.
func TestTableRewrittenAmidChunks(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 2000) g`)
	l.set("millrace.snapshot.small.rows", "10", "max.batch.size", "50", "incremental.snapshot.chunk.size", "50")
	l.start()
	l.until("some rows", func() bool { return len(l.records) > 100 })
	l.whileWaited(`ALTER TABLE t ALTER n TYPE bigint`, func() {
		l.until("all rows", func() bool { return len(l.table("p.public.t")) == 2000 })
	})
}

// The same between the slot's beginning and the reading of a table in whole. It is read in a later view, and what that
// one sees comes no second time from the stream.
func TestTableRewrittenBeforeItIsRead(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 500) g`,
		`CREATE TABLE a (id int PRIMARY KEY)`, `INSERT INTO a SELECT generate_series(1, 500)`)
	l.set("max.batch.size", "50")
	l.start()
	l.until("the first table", func() bool { return len(l.on("p.public.a")) > 0 })
	require.Empty(t, l.on("p.public.t"))
	l.exec(`INSERT INTO t SELECT g, 'w', g FROM generate_series(501, 600) g`, `ALTER TABLE t ALTER n TYPE bigint`,
		`INSERT INTO t SELECT g, 'w', g FROM generate_series(601, 700) g`)
	l.until("all rows", func() bool { return len(l.table("p.public.t")) == 700 })
	l.exec(`INSERT INTO t VALUES (701, 'last', 701)`)
	l.caughtUp("t")
	require.Len(t, l.on("p.public.t"), 701)
}

// A signal is heard though a table is there by now that the publication lacks.
func TestSignalBesideATableThatIsNotPublished(t *testing.T) {
	l := newLab(t, small, signals, `INSERT INTO t VALUES (1, 'a', 1)`)
	l.exec(`CREATE PUBLICATION ` + l.props["publication.name"] + ` FOR TABLE t, sig`)
	l.set("snapshot.mode", "no_data", "signal.data.collection", "public.sig", "publication.autocreate.mode", "disabled",
		"table.include.list", "public.*")
	l.streaming()
	l.exec(`CREATE TABLE late (id int PRIMARY KEY)`)
	l.signal("1", "execute-snapshot", `{"data-collections": ["public.t"]}`)
	l.until("the row", func() bool { return len(l.count("p.public.t", "r")) == 1 })
}
