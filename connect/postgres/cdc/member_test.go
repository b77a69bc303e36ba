package cdc_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/connect/postgres/pgtest"
)

// keeper is a connector of all tables called w and a digit, which keeps its publication.
func keeper(t *testing.T) *lab {
	l := newLab(t, `CREATE TABLE w1 (id int PRIMARY KEY, v text)`, `INSERT INTO w1 VALUES (1, 'a')`)
	l.set("publication.autocreate.mode", "filtered", "table.include.list", `public\.w[0-9]`,
		"millrace.publication.check.ms", "100")
	l.start()
	l.caughtUp("w1")
	l.streaming()
	return l
}

// Tables that come into the publication have all their rows captured, each once: who published them, and whether the
// connector ran, makes no difference.
func TestNewTables(t *testing.T) {
	l := keeper(t)
	l.exec(`CREATE TABLE w2 (id int PRIMARY KEY, v text)`, `INSERT INTO w2 SELECT g, 'x' FROM generate_series(1, 50) g`)
	l.caughtUp("w2")
	l.exec(`INSERT INTO w2 VALUES (51, 'y')`, `UPDATE w2 SET v = 'z' WHERE id = 1`, `DELETE FROM w2 WHERE id = 2`)
	l.caughtUp("w2")
	// Without a key, it is read in whole.
	l.exec(`CREATE TABLE w3 (id int NOT NULL, v text)`, `ALTER TABLE w3 REPLICA IDENTITY FULL`,
		`INSERT INTO w3 VALUES (1, 'a'), (2, 'b')`)
	l.until("the rows of w3", func() bool { return len(l.on("p.public.w3")) == 2 })
	l.exec(`INSERT INTO w3 VALUES (3, 'c')`)
	l.until("the next row of w3", func() bool { return len(l.on("p.public.w3")) == 3 })
	require.Equal(t, []string{"r", "r", "c"}, l.ops("p.public.w3"))
	// Dropped and made anew, and another one, while nothing runs.
	l.stop()
	l.released()
	l.exec(`DROP TABLE w2`, `CREATE TABLE w2 (id int PRIMARY KEY, v text)`, `INSERT INTO w2 VALUES (700, 'new')`,
		`CREATE TABLE w4 (id int PRIMARY KEY, v text)`, `INSERT INTO w4 VALUES (1, 'd')`,
		`ALTER PUBLICATION `+l.props["publication.name"]+` ADD TABLE w4`)
	l.start()
	l.until("w2 anew", func() bool {
		return l.table("p.public.w2")[fmt.Sprint(map[string]any{"id": 700})] != ""
	})
	l.caughtUp("w4")
	for _, topic := range []string{"p.public.w1", "p.public.w2", "p.public.w4"} {
		for key, n := range l.count(topic, "r") {
			require.Equal(t, 1, n, "%s %s", topic, key)
		}
	}
}

// A table that somebody takes out of the publication is put back, and has its rows read again.
func TestTableTakenOut(t *testing.T) {
	l := keeper(t)
	l.caughtUp("w1")
	l.exec(`ALTER PUBLICATION `+l.props["publication.name"]+` DROP TABLE w1`, `UPDATE w1 SET v = 'unseen'`,
		`INSERT INTO w1 VALUES (77, 'unseen')`)
	l.caughtUp("w1")
}

// Rows that are written before a table is published, and committed after, are of no stream.
func TestNewTableWaitsForItsWriters(t *testing.T) {
	l := keeper(t)
	l.exec(`CREATE TABLE other (id int PRIMARY KEY, v text)`)
	writer, err := pgx.Connect(context.Background(), l.url)
	require.NoError(t, err)
	defer writer.Close(context.Background())
	run := func(sql string) {
		_, err := writer.Exec(context.Background(), sql)
		require.NoError(t, err)
	}
	l.set("table.include.list", `public\.(w[0-9]|other)`)
	run(`BEGIN`)
	run(`INSERT INTO other VALUES (1, 'untold')`)
	l.stop()
	l.released()
	l.streaming()
	l.exec(`INSERT INTO other VALUES (2, 'told')`)
	l.until("the second row", func() bool { return len(l.on("p.public.other")) == 1 })
	for range 30 {
		l.poll()
	}
	require.Equal(t, []string{"c"}, l.ops("p.public.other"))
	run(`COMMIT`)
	l.caughtUp("other")
}

// A table that was published all along and is captured only now has its rows captured.
func TestMoreIsCaptured(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t VALUES (1, 'a', 1)`, `CREATE TABLE u (id int PRIMARY KEY, v text)`,
		`INSERT INTO u VALUES (1, 'a'), (2, 'b')`)
	l.set("table.include.list", "public.t").start()
	l.caughtUp("t")
	l.streaming()
	l.exec(`INSERT INTO u VALUES (3, 'c')`, `INSERT INTO t VALUES (2, 'a', 1)`)
	l.caughtUp("t")
	l.stop()
	l.released()
	l.set("table.include.list", "public.t,public.u").start()
	l.caughtUp("u")
	require.Empty(t, l.count("p.public.t", "r")[fmt.Sprint(map[string]any{"id": 2})])
	require.Len(t, l.count("p.public.u", "r"), 3)
	l.stop()
	l.released()
	seen, n := maps.Clone(l.offset), len(l.records)
	l.start()
	l.streaming()
	require.Len(t, l.records, n)
	require.Equal(t, seen["published"], l.offset["published"])
	require.Equal(t, seen["scope"], l.offset["scope"])
}

// The stream brings a transaction before others see it. A row that it moved is read again only once it is there.
func TestMovedRowBeforeItIsVisible(t *testing.T) {
	s := pgtest.New(t, pgtest.Options{})
	l := labOn(t, s, toast)
	l.streaming()
	l.exec(insertToast(1))
	s.Config(t, "synchronous_standby_names", "nobody")
	waiting := func() (n int) {
		require.NoError(t, l.db.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity WHERE
			wait_event = 'SyncRep'`).Scan(&n))
		return n
	}
	var wg sync.WaitGroup
	first, mover := s.Connect(t, l.url), s.Connect(t, l.url)
	var known atomic.Bool
	wg.Go(func() { // the server takes a moment to take the setting in, in more than one of its processes
		for !known.Load() {
			if _, err := first.Exec(context.Background(), `COMMENT ON TABLE t IS 'x'`); err != nil {
				return
			}
		}
	})
	for end := time.Now().Add(patience); waiting() == 0; {
		require.True(t, time.Now().Before(end), "nobody waits for the standby")
	}
	known.Store(true)
	moved := make(chan error, 1)
	wg.Go(func() {
		_, err := mover.Exec(context.Background(), `UPDATE t SET id = 2, other = 7`)
		moved <- err
	})
	for end := time.Now().Add(patience); waiting() < 2; {
		require.True(t, time.Now().Before(end), "the move does not wait for the standby")
	}
	polled := make(chan error, 1)
	var polls [][]*plugin.SourceRecord
	wg.Go(func() {
		for {
			out, err := l.receive()
			polls = append(polls, out)
			if len(out) > 1 || err != nil {
				polled <- err
				return
			}
		}
	})
	select {
	case err := <-polled:
		require.Fail(t, "the row was not waited for", "%v", err)
	case <-time.After(300 * time.Millisecond):
	}
	s.Config(t, "synchronous_standby_names", "")
	require.NoError(t, <-moved)
	require.NoError(t, <-polled)
	wg.Wait()
	for _, out := range polls {
		l.store(out)
	}
	l.caughtUp("t")
	for _, e := range l.on("p.public.t") {
		require.NotContains(t, e.headers, "__unavailable")
	}
}
