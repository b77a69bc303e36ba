package cdc_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// little has the server stream, or spill, all but the smallest transactions.
const little = `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database()
	|| ' SET logical_decoding_work_mem = ''64kB'''; END $$`

// Transactions that the server sends while they are open: several at a time, with parts that are undone.
func TestStreamedTransactions(t *testing.T) {
	l := newLab(t, small, little)
	l.streaming()
	a, b := l.server.Connect(t, l.url), l.server.Connect(t, l.url)
	ctx := context.Background()
	insert := func(from, to int) string {
		return fmt.Sprintf(`INSERT INTO t SELECT g, repeat('x', 100), g FROM generate_series(%d, %d) g`, from, to)
	}
	do := func(which int, sql string) {
		c := a
		if which == 1 {
			c = b
		}
		_, err := c.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	do(0, "BEGIN")
	do(1, "BEGIN")
	do(0, insert(1, 2000))
	do(1, insert(10001, 12000))
	do(0, "SAVEPOINT one")
	do(0, insert(2001, 4000))
	do(0, "SAVEPOINT two")
	do(0, insert(4001, 6000))
	do(0, "RELEASE two")
	do(0, insert(6001, 7000))
	l.until("something is in a file", func() bool { return spilled(l) > 0 })
	do(0, "ROLLBACK TO one")
	do(0, insert(20001, 23000))
	do(1, "SAVEPOINT three")
	do(1, "UPDATE t SET n = -1 WHERE id > 10500")
	do(1, "RELEASE three")
	l.exec(`INSERT INTO t VALUES (-1, 'between', 0)`)
	do(0, "COMMIT")
	do(1, "ROLLBACK")
	do(1, "BEGIN")
	do(1, insert(30001, 32000))
	do(1, "DELETE FROM t WHERE id BETWEEN 31001 AND 31500")
	do(1, "COMMIT")
	l.caughtUp("t")
	l.ordered("p.public.t")
	require.Len(t, l.on("p.public.t"), 2000+3000+1+2000+500*2)
	require.Zero(t, spilled(l), "files are left")
}

func spilled(l *lab) (n int64) {
	if l.dir == "" {
		return 0
	}
	list, err := os.ReadDir(l.dir)
	require.NoError(l.t, err)
	for _, f := range list {
		if i, err := f.Info(); err == nil {
			n += i.Size()
		}
	}
	return n
}

// A subtransaction that first shows a table and is undone leaves the description of the table behind.
func TestDescriptionInUndonePart(t *testing.T) {
	l := newLab(t, small, `CREATE TABLE other (id int PRIMARY KEY, v text)`, little)
	l.start()
	l.caughtUp("t")
	l.exec(`BEGIN; INSERT INTO t SELECT g, repeat('x', 100), g FROM generate_series(1, 2000) g; SAVEPOINT s;
		INSERT INTO other SELECT g, repeat('y', 100) FROM generate_series(1, 3000) g; ROLLBACK TO s;
		INSERT INTO other SELECT g, repeat('z', 100) FROM generate_series(1, 10) g; COMMIT`)
	l.caughtUp("t")
	l.caughtUp("other")
	require.Len(t, l.on("p.public.other"), 10)
}

func TestLargeTransaction(t *testing.T) {
	l := newLab(t, small, little)
	l.start()
	l.caughtUp("t")
	const rows = 200_000
	l.exec(fmt.Sprintf(`INSERT INTO t SELECT g, repeat('x', 150), g FROM generate_series(1, %d) g`, rows))
	runtime.GC() // what is left of other tests is not counted
	seen, most, last, restarts := 0, uint64(0), int32(0), 1
	for seen < rows {
		out, err := l.receive()
		require.NoError(t, err)
		require.LessOrEqual(t, len(out), 8192)
		for _, r := range out {
			if r.Topic == "" {
				continue
			}
			seen++
			id := plain(r.Key).(map[string]any)["id"].(int32)
			require.Equal(t, last+1, id)
			last = id
		}
		if len(out) > 0 {
			l.offset = roundTrip(t, out[len(out)-1].Source.Offset)
		}
		require.NoError(t, l.task.Stored(context.Background()))
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapInuse)
		if restarts < 1+*rounds && seen > restarts*rows/8 {
			restarts++
			l.stop() // in the middle of it
			l.start()
		}
	}
	require.Equal(t, rows, seen)
	require.Less(t, most, uint64(80<<20))
	t.Logf("largest heap %d MiB", most>>20)
}

// Of what a transaction does to tables that are not captured, nothing waits in files; and a part of it that is stored
// is not given again, whether the server sends it in parts the second time or not.
func TestLargeTransactionOfOtherTables(t *testing.T) {
	l := newLab(t, small, `CREATE TABLE other (id int, v text)`, little)
	l.set("table.include.list", "public.t", "publication.autocreate.mode", "all_tables", "max.batch.size", "100")
	l.exec(`ALTER TABLE other REPLICA IDENTITY FULL`)
	l.streaming()
	c := l.server.Connect(t, l.url)
	do := func(sql string) {
		_, err := c.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	do("BEGIN")
	for i := range 10 {
		do(fmt.Sprintf(`INSERT INTO t SELECT g, 'v', g FROM generate_series(%d, %d) g`, i*100+1, i*100+100))
		do(`INSERT INTO other SELECT g, repeat('x', 1000) FROM generate_series(1, 2000) g`)
		do(`SAVEPOINT s`)
		do(`INSERT INTO other SELECT g, repeat('x', 1000) FROM generate_series(1, 500) g`)
		do(fmt.Sprintf(`INSERT INTO t VALUES (%d, 'undone', 0)`, 5000+i))
		do(`ROLLBACK TO s`)
	}
	most := int64(0)
	l.until("something is in a file", func() bool { most = max(most, spilled(l)); return most > 0 })
	for range 20 {
		l.poll()
		most = max(most, spilled(l))
	}
	do("COMMIT")
	l.until("a part", func() bool { return len(l.records) >= 300 })
	l.stop()
	l.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET logical_decoding_work_mem', current_database()); END $$`)
	l.start()
	l.caughtUp("t")
	require.Len(t, l.records, 1000)
	require.Less(t, most, int64(200_000), "25 MB were written to the other table")
}
