package faults_test

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var roundTime = flag.Duration("faults.roundtrip", 30*time.Second, "how long the round trip is disturbed")

// Tables of every type become topics, and those become tables of a second database, while rows and columns of all kinds
// change and nodes, tasks, sessions, networks and the server itself are killed, cut and restarted: in the end the two
// databases hold the same.
func TestRoundTrip(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and takes a minute")
	}
	prepare(t)
	ways := carriages()
	way := ways[*seed%uint64(len(ways))]
	t.Logf("by %s", way.name)
	f, l := roundTrip(t, way)
	// The tables change as they like, and not as readers of old schemas would.
	f.insist(http.MethodPut, "/config", map[string]string{"compatibility": "NONE"})
	start := time.Now()
	l.start(3)
	f.put(sourceName, f.roundSource(way))
	f.put(sinkName, f.roundSink(way))
	f.awaitRunning(sourceName, sinkName)
	blows := slices.Concat(nodeBlows(), backendBlows(), networkBlows(), peopleBlows(), serverBlows())
	for time.Since(start) < *roundTime && !t.Failed() {
		f.strike(blows)
	}
	l.stop()
	t.Logf("%d transactions and %d changes of columns; %d were rolled back, %d disturbed", l.done.Load(), l.ddl.Load(),
		l.undone.Load(), l.lost.Load())
	f.report(time.Since(start))
	f.awaitEqual()
}

// roundTrip makes the databases of a round trip, with some rows in the first.
func roundTrip(t *testing.T, way carriage) (*flows, *labour) {
	strange := []string{"Mixed Case", `quote"d`, "größe", "dash-ed.dot"}
	if strings.HasPrefix(way.name, "avro") {
		strange = nil
	}
	f := startFlows(t, map[string]string{"logical_decoding_work_mem": "64kB", "max_connections": "60"})
	more := map[string][]string{}
	both := strings.Split(typesDDL, ";")
	for name, types := range extensions {
		if len(f.must(f.from, fmt.Sprintf("SELECT FROM pg_available_extensions WHERE name = '%s'", name))) == 0 {
			t.Logf("no extension %s on this server", name)
			continue
		}
		both = append(both, "CREATE EXTENSION "+name)
		for kind, values := range types {
			more[kind] = values
		}
	}
	l := &labour{t: t, from: f.from, to: f.to, columns: way.columns(more), strange: strange}
	everything := "CREATE TABLE everything (id bigint PRIMARY KEY"
	for _, c := range l.columns {
		everything += ", " + c.name + " " + c.kind
	}
	both = append(append(both, everything+")"), tablesDDL(strange)...)
	f.server.Exec(t, f.from, slices.Concat(both, identities)...)
	f.server.Exec(t, f.to, slices.Concat(both, keysDDL)...)
	f.server.Exec(t, f.to, "DROP TABLE composite") // the sink makes it, and parts
	f.server.Exec(t, f.from, `INSERT INTO composite SELECT 9, 'old' || g, now(), g FROM generate_series(1, 4000) g`,
		"ANALYZE")
	return f, l
}

func (f *flows) roundSource(way carriage) config {
	return capture(f.t, f.from, f.toSource.port(), "round").with(append([]string{
		"skipped.operations", "none", "publish.via.partition.root", "true", "message.key.columns", "public.Full Table:id",
		"millrace.snapshot.small.rows", "1000", "incremental.snapshot.chunk.size", "200"}, way.settings...)...)
}

// roundSink is the configuration of a sink that reads what the source writes.
func (f *flows) roundSink(way carriage) config {
	c := deliver(f.t, f.to, f.sink.port(), `round\.public\..*`).with("tasks.max", "3",
		"consumer.override.metadata.max.age.ms", "1000")
	for i := 0; i < len(way.settings); i += 2 {
		if strings.Contains(way.settings[i], "converter") {
			c[way.settings[i]] = way.settings[i+1]
		}
	}
	return c
}

// awaitEqual waits until the target has what the source has.
func (f *flows) awaitEqual() {
	f.t.Helper()
	for start := time.Now(); ; pause(f.t.Context(), 200*time.Millisecond) {
		d := f.difference()
		if d == "" {
			f.t.Logf("the databases are equal %v after the last change", time.Since(start).Round(time.Millisecond))
			return
		}
		if time.Since(start) > patience+*roundTime { // there may be as much to catch up with
			f.explain()
			require.Empty(f.t, d, "target (-) and source (+) differ")
		}
	}
}
