package polling_test

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ids that were drawn long before the transaction that uses them.
func TestXIDPreallocated(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "xid"}, "CREATE TABLE t (id int PRIMARY KEY, v text)")
	b.start()
	defer b.stop()
	b.exec("INSERT INTO t VALUES (100, 'first')")
	b.until(1)
	long := b.session()
	long("BEGIN")
	long("INSERT INTO t VALUES (1, 'long')")
	b.exec("INSERT INTO t VALUES (50, 'short')")
	b.quiet() // short has to wait
	long("INSERT INTO t VALUES (2, 'long too')")
	long("SAVEPOINT s")
	long("INSERT INTO t VALUES (3, 'savepoint')")
	long("ROLLBACK TO s")
	long("INSERT INTO t VALUES (4, 'after')")
	long("COMMIT")
	b.until(5)
	b.exec("UPDATE t SET v = 'changed' WHERE id = 50")
	b.until(6)
	b.quiet()
	got := b.values()
	require.Equal(t, "50 changed", got[5])
	require.ElementsMatch(t, []string{"100 first", "1 long", "2 long too", "4 after", "50 short"}, got[:5])
	require.Equal(t, "50", textOf(b.records[5].Key))
	require.Contains(t, b.records[5].Source.Offset, "xid")
}

// A restart after each page, stored or not, with changes meanwhile: each version of a row comes once.
func TestXIDRestartAtEveryPoint(t *testing.T) {
	t.Parallel()
	tables := map[string]string{
		"key":         "CREATE TABLE t (id text, part int, v int, PRIMARY KEY (part, id))",
		"unique":      "CREATE TABLE t (id text NOT NULL UNIQUE, part int, v int)",
		"no key":      "CREATE TABLE t (id text, part int, v int)",
		"column":      "CREATE TABLE t (id text PRIMARY KEY, part int, v int, tx xid8 NOT NULL DEFAULT pg_current_xact_id())",
		"partitioned": "CREATE TABLE t (id text, part int, v int) PARTITION BY HASH (id)",
	}
	for name, create := range tables {
		for k := range 8 {
			if name != "key" && k%3 != 1 {
				continue
			}
			for _, lose := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %d %v", name, k, lose), func(t *testing.T) {
					t.Parallel()
					restartAt(t, name, create, k, lose)
				})
			}
		}
	}
}

func restartAt(t *testing.T, name, create string, k int, lose bool) {
	props := map[string]string{"mode": "xid", "batch.max.rows": "3"}
	if name == "column" {
		props["xid.column.name"] = "tx"
	}
	if name == "partitioned" {
		props["table.types"] = "PARTITIONED TABLE"
	}
	b := newBench(t, props, create)
	if name == "partitioned" {
		b.exec("CREATE TABLE t0 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
			"CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
	}
	if name == "column" {
		b.exec(`CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN new.tx = pg_current_xact_id(); RETURN new; END $$`,
			"CREATE TRIGGER stamp BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION stamp()")
	}
	b.exec("INSERT INTO t SELECT 'k' || n, n % 2, 0 FROM generate_series(10, 22) n")
	open := b.session()
	open("BEGIN")
	open("INSERT INTO t VALUES ('k15x', 1, 0)")
	b.start()
	for range k {
		b.poll(false)
	}
	if lose {
		b.poll(true)
	}
	b.stop()
	b.exec("UPDATE t SET v = 1 WHERE id = 'k11'", "UPDATE t SET v = 1 WHERE id = 'k21'", "DELETE FROM t WHERE id = 'k22'",
		"INSERT INTO t VALUES ('k00', 0, 0), ('k99', 1, 0)")
	open("COMMIT")
	b.start()
	defer b.stop()
	seen := func() map[string]int {
		seen := map[string]int{}
		for _, r := range b.records {
			fields := strings.Fields(textOf(r.Value))
			seen[fields[0]+" "+fields[2]]++
		}
		return seen
	}
	must := []string{"k10 0", "k12 0", "k20 0", "k11 1", "k21 1", "k15x 0", "k00 0", "k99 0"}
	b.eventually(func() bool {
		now := seen()
		return !slices.ContainsFunc(must, func(v string) bool { return now[v] == 0 })
	})
	b.poll(false)
	b.poll(false)
	for version, n := range seen() {
		require.Equal(t, 1, n, version)
	}
}

// A window goes on behind a key of any type.
func TestXIDKeyOfBits(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "xid", "batch.max.rows": "3"}, "CREATE TABLE t (b bit(8) PRIMARY KEY)",
		"INSERT INTO t SELECT n::bit(8) FROM generate_series(100, 119) n")
	for range 4 {
		b.start()
		b.poll(false)
		b.stop()
	}
	b.start()
	defer b.stop()
	b.until(20)
	b.quiet()
}

// A table without a key that is rewritten in the midst of a round: rows may come again, and none is lost.
func TestXIDRewritten(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "xid", "batch.max.rows": "3"}, "CREATE TABLE t (id int)",
		"INSERT INTO t SELECT generate_series(1, 20)")
	b.start()
	b.eventually(func() bool { return len(b.records) >= 6 })
	b.stop()
	b.exec("DELETE FROM t WHERE id < 5", "VACUUM FULL t")
	b.start()
	defer b.stop()
	b.eventually(func() bool {
		got := b.values()
		slices.Sort(got)
		return len(slices.Compact(got)) == 20
	})
}

// A look that waits for a table to be written anew has a view that shows none of its rows: it looks again.
func TestXIDRewrittenUnderALook(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "xid", "xid.column.name": "tx"},
		"CREATE TABLE t (id int PRIMARY KEY, v int, tx xid8 NOT NULL)",
		"INSERT INTO t VALUES (1, 1, pg_current_xact_id())")
	b.start()
	defer b.stop()
	b.until(1)
	b.exec("INSERT INTO t VALUES (2, 2, pg_current_xact_id())")
	other := b.beside()
	require.NoError(t, other("BEGIN; ALTER TABLE t ALTER v TYPE bigint"))
	failed := b.together(func() error {
		return other(`DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 't'::regclass)
			LOOP PERFORM pg_sleep(0.01); END LOOP; END $$; COMMIT`)
	})
	b.until(2)
	require.NoError(t, <-failed)
	b.quiet()
}

func TestXIDOtherServer(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "xid"}, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	partition := asJSON(map[string]any{"protocol": "1", "table": "public.t"})
	for text, o := range map[string]map[string]any{
		"another one":      {"xid": "5", "system": "123"},
		"restored or repl": {"xid": "999999999999"},
	} {
		b.stored[partition] = o
		b.start()
		_, err := b.task.Poll(t.Context())
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, "public.t")
		b.stop()
	}
}

// Writers at random, with transactions that overlap and draw their ids early: each row comes once, in the order in
// which its versions were made.
func TestXIDRandom(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "xid", "batch.max.rows": "7", "poll.interval.ms": "1"},
		"CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)", "CREATE SEQUENCE ids")
	const count, rounds = 4, 60
	var writers []func() error
	for w := range count {
		exec := b.beside()
		rnd := rand.New(rand.NewSource(int64(w)))
		writers = append(writers, func() error {
			for i := range rounds {
				sql := []string{"BEGIN"}
				for j := range 1 + rnd.Intn(4) {
					id := w*100000 + (rounds-i)*10 + j // ids that grow downwards
					sql = append(sql, fmt.Sprintf("INSERT INTO t VALUES (%d, 0)", id))
					if rnd.Intn(3) == 0 {
						sql = append(sql, "SELECT pg_sleep(0.002)")
					}
				}
				if rnd.Intn(5) == 0 {
					sql = append(sql, "ROLLBACK")
				} else {
					sql = append(sql, "COMMIT", fmt.Sprintf("UPDATE t SET v = v + 1 WHERE id = %d",
						w*100000+(rounds-rnd.Intn(i+1))*10))
				}
				for _, s := range sql {
					if err := exec(s); err != nil {
						return fmt.Errorf("%s: %w", s, err)
					}
				}
			}
			return nil
		})
	}
	rnd := rand.New(rand.NewSource(99))
	b.start()
	b.during(b.together(writers...), func() {
		lose := rnd.Intn(6) == 0
		b.poll(lose)
		if lose || rnd.Intn(3) == 0 {
			b.stop()
			b.start()
		}
	})
	b.stop()
	b.start()
	defer b.stop()
	table := map[string]string{}
	rows, err := b.conn.Query(t.Context(), "SELECT id::text, v::text FROM t")
	require.NoError(t, err)
	for rows.Next() {
		var id, v string
		require.NoError(t, rows.Scan(&id, &v))
		table[id] = v
	}
	require.NoError(t, rows.Err())
	b.eventually(func() bool {
		last := map[string]string{}
		for _, v := range b.values() {
			id, version, _ := strings.Cut(v, " ")
			last[id] = version
		}
		return maps.Equal(table, last)
	})
	versions := b.values()
	slices.Sort(versions)
	require.Len(t, slices.Compact(slices.Clone(versions)), len(versions), "a version came twice")
}
