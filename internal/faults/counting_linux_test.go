package faults_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

var (
	kills     = flag.Int("faults.kills", 10, "how many kills and cuts the exactly-once run of connectors gets")
	handOvers = flag.Int("faults.handovers", 4, "how many nodes that run tasks are killed to measure the hand-over")
)

// countedTables are what rows are counted in. The target's first takes a row twice without a word, its second refuses.
var countedTables = []string{"loose", "strict"}

// counters write rows that are counted.
type counters struct {
	f      *flows
	cancel context.CancelFunc
	wg     sync.WaitGroup
	rows   atomic.Int64
}

// Rows go once from tables to tables, where nothing but exactly-once keeps them from being there twice, while nodes,
// sessions and networks are killed and cut.
func TestConnectExactlyOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and takes a minute")
	}
	prepare(t)
	f := startFlows(t, nil, `CREATE TABLE loose (id bigserial PRIMARY KEY, writer int, n bigint)`,
		`CREATE TABLE strict (id bigserial PRIMARY KEY, writer int, n bigint)`)
	f.server.Exec(t, f.to, `CREATE TABLE loose (id bigint, writer int, n bigint)`,
		`CREATE TABLE strict (id bigint PRIMARY KEY, writer int, n bigint)`)
	c := f.count(4)
	f.put(sourceName, capture(t, f.from, f.toSource.port(), "once").with("topic.creation.default.partitions", "3"))
	f.put(sinkName, deliver(t, f.to, f.sink.port(), `once\.public\..*`).with("insert.mode", "insert",
		"primary.key.mode", "none", "delete.enabled", "false", "schema.evolution", "none", "tasks.max", "3",
		"consumer.override.metadata.max.age.ms", "1000"))
	f.awaitRunning(sourceName, sinkName)
	start := time.Now()
	blows := slices.Concat(nodeBlows(), backendBlows(), networkBlows())
	for range *kills {
		f.strike(blows)
	}
	c.stop()
	f.report(time.Since(start))
	f.awaitCounts(c)
	f.awaitLedger()
}

// count starts writers.
func (f *flows) count(writers int) *counters {
	ctx, cancel := context.WithCancel(context.Background())
	c := &counters{f: f, cancel: cancel}
	f.t.Cleanup(c.stop)
	for i := range writers {
		c.wg.Go(func() { c.write(ctx, i) })
	}
	return c
}

func (c *counters) stop() {
	c.cancel()
	c.wg.Wait()
}

// write writes transactions, some of which are undone, until it is stopped.
func (c *counters) write(ctx context.Context, writer int) {
	r := rand.New(rand.NewPCG(*seed, uint64(writer)))
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			conn.Close(context.Background())
		}
	}()
	for n := 0; ctx.Err() == nil; n++ {
		var err error
		if conn == nil || conn.IsClosed() {
			if conn, err = pgx.Connect(ctx, c.f.from); err != nil {
				conn = nil
				pause(ctx, 100*time.Millisecond)
				continue
			}
		}
		var b strings.Builder
		rows := 0
		for range 1 + r.IntN(3) {
			count := 1 + r.IntN(20)
			if r.IntN(50) == 0 {
				count = 2500
			}
			fmt.Fprintf(&b, "INSERT INTO %s (writer, n) SELECT %d, %d FROM generate_series(1, %d);",
				countedTables[r.IntN(2)], writer, n, count)
			rows += count
		}
		end := []string{"COMMIT", "COMMIT", "COMMIT", "ROLLBACK"}[r.IntN(4)]
		_, err = conn.PgConn().Exec(ctx, "BEGIN;"+b.String()+end).ReadAll()
		if err == nil && end == "COMMIT" {
			c.rows.Add(int64(rows))
		}
		pause(ctx, time.Duration(r.IntN(40))*time.Millisecond)
	}
}

// awaitCounts waits until the target has each row, and checks that it has none twice.
func (f *flows) awaitCounts(c *counters) {
	f.t.Helper()
	for _, table := range countedTables {
		sql := fmt.Sprintf("SELECT count(*), count(DISTINCT id), sum(id), sum(n), max(id) FROM %s", table)
		var want []string
		for start := time.Now(); ; pause(f.t.Context(), 100*time.Millisecond) {
			want = f.must(f.from, sql) // a writer that was stopped may have left a commit that goes on
			got := f.must(f.to, sql)
			if slices.Equal(want, got) {
				break
			}
			if time.Since(start) > 3*patience {
				f.explain()
				require.Equal(f.t, want, got, "count, distinct, sums and maximum of table %s", table)
			}
		}
		rows := fmt.Sprintf("SELECT id, writer, n FROM %s ORDER BY id", table)
		require.Equal(f.t, f.must(f.from, rows), f.must(f.to, rows), "rows of table %s", table)
		f.t.Logf("table %s: %s rows are there once", table, strings.Split(want[0], "|")[0])
	}
	require.NotZero(f.t, c.rows.Load())
}

// awaitLedger waits until the ledger in the target says for each partition what its log's end is.
func (f *flows) awaitLedger() {
	f.t.Helper()
	ledger := func() map[string]int64 {
		out := map[string]int64{}
		for _, row := range f.must(f.to, "SELECT topic, kpartition, next_offset FROM connect.sink_offset") {
			var next int64
			fields := strings.Split(row, "|")
			_, err := fmt.Sscan(fields[2], &next)
			require.NoError(f.t, err)
			out[fields[0]+"-"+fields[1]] = next
		}
		return out
	}
	for start := time.Now(); ; pause(f.t.Context(), 100*time.Millisecond) {
		want := map[string]int64{}
		for _, table := range countedTables {
			for p := range 3 {
				name := "once.public." + table
				var ends struct {
					End int64 `json:"end_offset"`
				}
				path := fmt.Sprintf("/topics/%s/partitions/%d/offsets", name, p)
				require.NoError(f.t, json.Unmarshal(f.insist(http.MethodGet, path, nil), &ends))
				want[fmt.Sprint(name, "-", p)] = ends.End
			}
		}
		got := ledger()
		if fmt.Sprint(want) == fmt.Sprint(got) {
			f.t.Logf("the ledger is at the logs' ends: %v", got)
			return
		}
		if time.Since(start) > patience {
			require.Equal(f.t, want, got)
		}
	}
}

// awaitRoles are what nodes are, once it is known of all roles.
func (f *flows) awaitRoles() map[string]int {
	f.t.Helper()
	for start := time.Now(); ; pause(f.t.Context(), 50*time.Millisecond) {
		roles, known := f.roles(), true
		for _, id := range roles {
			known = known && 1 <= id && id <= nodes
		}
		if known {
			return roles
		}
		require.Less(f.t, time.Since(start), patience, "some are nobody: %v", roles)
	}
}

// roles are what a node may be when it is killed. One of which that is not known is below 1.
func (f *flows) roles() map[string]int {
	roles := map[string]int{"source": f.owner(sourceName), "sink": f.owner(sinkName)}
	var group struct{ Coordinator int }
	require.NoError(f.t, json.Unmarshal(f.insist(http.MethodGet, "/v1/groups/connect-cluster", nil), &group))
	roles["coordinator"] = group.Coordinator
	var cluster struct{ Controller int }
	require.NoError(f.t, json.Unmarshal(f.insist(http.MethodGet, "/v1/cluster", nil), &cluster))
	roles["controller"] = cluster.Controller
	return roles
}

// When a node is killed, what it ran runs elsewhere within seconds: rows that are written meanwhile arrive.
func TestConnectHandOver(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and takes a minute")
	}
	prepare(t)
	f := startFlows(t, nil, `CREATE TABLE ticks (id bigserial PRIMARY KEY,
		at timestamptz NOT NULL DEFAULT clock_timestamp())`)
	f.put(sourceName, capture(t, f.from, f.toSource.port(), "hand"))
	f.put(sinkName, deliver(t, f.to, f.sink.port(), `hand\.public\.ticks`))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { f.tick(ctx) })
	f.awaitRunning(sourceName, sinkName)
	f.flowsAfter(time.Now())
	took := map[string][]time.Duration{}
	order := []string{"source", "sink", "coordinator", "controller"}
	for i := range *handOvers {
		role := order[i%len(order)]
		roles := f.awaitRoles()
		id := roles[role]
		is := ""
		for _, r := range order {
			if roles[r] == id {
				is += " " + r
			}
		}
		at := time.Now()
		f.kill(id)
		d := f.flowsAfter(at)
		t.Logf("node %d killed,%s: rows flow again after %v", id, is, d.Round(time.Millisecond))
		require.Less(t, d, allowed(10*time.Second))
		took[role] = append(took[role], d)
		took["any"] = append(took["any"], d)
		f.start(id)
		f.awaitHealth()
		f.awaitRunning(sourceName, sinkName)
		f.pauseUpTo(3 * time.Second) // the node that is back takes its part
	}
	for role, d := range took {
		slices.Sort(d)
		q := quantiles(d)
		t.Logf("%-12s p50 %v, p90 %v, max %v of %d", role, q(0.5).Round(time.Millisecond), q(0.9).Round(time.Millisecond),
			d[len(d)-1].Round(time.Millisecond), len(d))
	}
}

// tick writes a row every few milliseconds.
func (f *flows) tick(ctx context.Context) {
	conn, err := pgx.Connect(ctx, f.from)
	if err != nil {
		f.t.Errorf("tick: %v", err)
		return
	}
	defer conn.Close(context.Background())
	for ctx.Err() == nil {
		if _, err := conn.Exec(ctx, "INSERT INTO ticks DEFAULT VALUES"); err != nil && ctx.Err() == nil {
			f.t.Errorf("tick: %v", err)
			return
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// flowsAfter waits until a row that was written after a time is in the target, and says how long after it that is.
func (f *flows) flowsAfter(at time.Time) time.Duration {
	f.t.Helper()
	conn := f.server.Connect(f.t, f.to)
	for ; ; pause(f.t.Context(), 5*time.Millisecond) {
		var there bool
		err := conn.QueryRow(f.t.Context(), "SELECT max(at) > $1 FROM ticks", at.Add(time.Millisecond)).Scan(&there)
		if err == nil && there {
			return time.Since(at)
		}
		require.Less(f.t, time.Since(at), patience, "no row arrives: %v", err)
	}
}
