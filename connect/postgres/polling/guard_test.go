package polling_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Writers whose transactions overlap, with the numbers and times that the server gives: behind the guard each row
// comes, and in the modes that tell rows apart by a number, once, whatever is lost and started again.
func TestGuardRandom(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"incrementing", "timestamp", "timestamp+incrementing"} {
		b := newBench(t, map[string]string{"mode": mode, "batch.max.rows": "5", "poll.interval.ms": "1",
			"timestamp.column.name": "at"},
			"CREATE TABLE t (id serial PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")
		writers := overlap(b)
		rnd := rand.New(rand.NewSource(7))
		b.start()
		b.during(writers, func() {
			lose := rnd.Intn(30) == 0
			b.poll(lose)
			if lose || rnd.Intn(30) == 0 {
				b.stop()
				b.start()
			}
		})
		var want []string
		rows, err := b.conn.Query(t.Context(), "SELECT id::text FROM t ORDER BY id")
		require.NoError(t, err)
		for rows.Next() {
			var id string
			require.NoError(t, rows.Scan(&id))
			want = append(want, id)
		}
		require.NoError(t, rows.Err())
		ids := func() (out []string) {
			for _, v := range b.values() {
				id, _, _ := strings.Cut(v, " ")
				out = append(out, id)
			}
			slices.Sort(out)
			return out
		}
		slices.Sort(want)
		b.eventually(func() bool { return slices.Equal(want, slices.Compact(ids())) })
		if mode != "timestamp" {
			require.Equal(t, want, ids(), "a row came twice")
		}
		b.stop()
	}
}

// overlap starts writers whose transactions overlap.
func overlap(b *bench) (failed <-chan error) {
	var writers []func() error
	for w := range 4 {
		exec := b.beside()
		rnd := rand.New(rand.NewSource(int64(w)))
		writers = append(writers, func() error {
			for range 40 {
				sql := []string{"BEGIN"}
				if rnd.Intn(3) == 0 {
					sql = append(sql, fmt.Sprintf("SELECT pg_sleep(%f)", rnd.Float64()/100))
				}
				for range 1 + rnd.Intn(3) {
					sql = append(sql, "INSERT INTO t DEFAULT VALUES", fmt.Sprintf("SELECT pg_sleep(%f)", rnd.Float64()/40))
				}
				sql = append(sql, []string{"COMMIT", "COMMIT", "COMMIT", "ROLLBACK"}[rnd.Intn(4)])
				for _, s := range sql {
					if err := exec(s); err != nil {
						return fmt.Errorf("%s: %w", s, err)
					}
				}
			}
			return nil
		})
	}
	return b.together(writers...)
}
