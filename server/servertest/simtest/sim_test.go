package simtest_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest/simtest"
)

var (
	seeds = flag.Int("sim.seeds", 0, "how many schedules to run; 0: 250 or 60, under -race 20 or 5, with -short 10 or 3")
	seed0 = flag.Uint64("sim.seed0", 1, "the first seed")
	seed  = flag.Uint64("sim.seed", 0, "the one seed to run")
	tries = flag.Int("sim.tries", 1, "how often to run each seed")
	nodes = flag.Int("sim.nodes", 0, "how many nodes; 0: 3, and some schedules of a single node beside")
	keep  = flag.String("sim.keep", os.TempDir(), "where the histories of failures are kept")
)

// run runs a seed and fails the test with all that is known when something was wrong.
func run(t *testing.T, seed uint64, nodes int) *simtest.Result {
	t.Helper()
	return look(t, simtest.Options{Seed: seed, Scratch: t.TempDir(), Nodes: nodes})
}

// runExact runs a seed with groups and transactions.
func runExact(t *testing.T, seed uint64) *simtest.Result {
	t.Helper()
	return look(t, simtest.Options{Seed: seed, Scratch: t.TempDir(), Exact: true})
}

// runRegistry runs a seed with the schema registry.
func runRegistry(t *testing.T, seed uint64) *simtest.Result {
	t.Helper()
	return look(t, simtest.Options{Seed: seed, Scratch: t.TempDir(), Registry: true})
}

func look(t *testing.T, o simtest.Options) *simtest.Result {
	t.Helper()
	r := simtest.Run(t, o)
	if len(r.Violations) == 0 {
		t.Logf("seed %d: %v, %d records acknowledged, %d read, %d at the end, %d transactions",
			o.Seed, r.Length, r.Acked, r.Seen, r.Final, r.Transactions)
		return r
	}
	t.Error(report(t, &o, r))
	return r
}

// report tells what was wrong, and how to see it again.
func report(t *testing.T, o *simtest.Options, r *simtest.Result) string {
	t.Helper()
	var b strings.Builder
	seed, test := o.Seed, "TestSimulation"
	if o.Exact {
		test = "TestExactSimulation"
	}
	if o.Registry {
		test = "TestRegistrySimulation"
	}
	fmt.Fprintf(&b, "seed %d broke an invariant. Again:\n", seed)
	fmt.Fprintf(&b, "  go test ./server/servertest/simtest -run '^%s$' -sim.nodes %d -sim.seed %d -sim.tries 20\n",
		test, o.Nodes, seed)
	fmt.Fprintf(&b, "plan: %s\n", r.Plan)
	for i, v := range r.Violations {
		if i == 5 {
			fmt.Fprintf(&b, "and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintln(&b, v)
	}
	fmt.Fprintf(&b, "faults:\n  %s\n", strings.Join(r.Faults, "\n  "))
	path := filepath.Join(*keep, fmt.Sprintf("sim-%d.jsonl", seed))
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	w := bufio.NewWriter(f)
	require.NoError(t, r.History.Write(w))
	require.NoError(t, w.Flush())
	logs := filepath.Join(*keep, fmt.Sprintf("sim-%d.log", seed))
	text := strings.Join(slices.Concat(r.Logs, []string{""}, r.Trace, []string{""}, r.Disks), "\n") + "\n"
	require.NoError(t, os.WriteFile(logs, []byte(text), 0o600))
	fmt.Fprintf(&b, "history: %s\nlogs of the nodes and the last packets: %s\n", path, logs)
	return b.String()
}

// totals is what some schedules did.
type totals struct {
	mu    sync.Mutex
	runs  int            // guarded by mu
	acked int            // guarded by mu
	begun map[string]int // guarded by mu
}

func (s *totals) add(r *simtest.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun == nil {
		s.begun = map[string]int{}
	}
	s.runs++
	s.acked += r.Acked
	for kind, n := range r.Begun {
		s.begun[kind] += n
	}
}

// String tells it on one line.
func (s *totals) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d schedules, %d records acknowledged, faults %v", s.runs, s.acked, s.begun)
}

// The cluster keeps what it promises, whatever happens to it.
func TestSimulation(t *testing.T) {
	first, count := *seed0, *seeds
	switch {
	case *seed > 0:
		first, count = *seed, 1
	case count > 0:
	case testing.Short():
		count = 10
	case race:
		count = 20
	default:
		count = 250
	}
	var total totals
	t.Cleanup(func() { t.Log(&total) })
	for i := range uint64(count) {
		for try := range *tries {
			t.Run(fmt.Sprintf("seed=%d/%d", first+i, try), func(t *testing.T) {
				t.Parallel()
				total.add(run(t, first+i, *nodes))
			})
		}
	}
}

// Groups and transactions keep what they promise: what is written in one transaction is seen together or never, what is
// read and copied by one is copied once, and what members of groups share is read by each in turn.
func TestExactSimulation(t *testing.T) {
	first, count := *seed0, *seeds
	switch {
	case *seed > 0:
		first, count = *seed, 1
	case count > 0:
	case testing.Short():
		count = 3
	case race:
		count = 5
	default:
		count = 60
	}
	var total totals
	t.Cleanup(func() { t.Log(&total) })
	for i := range uint64(count) {
		for try := range *tries {
			t.Run(fmt.Sprintf("seed=%d/%d", first+i, try), func(t *testing.T) {
				t.Parallel()
				total.add(runExact(t, first+i))
			})
		}
	}
}

// The schema registry keeps what it promises: an id is one schema, a schema has one id, versions stay what they are,
// and whoever asks sees what was acknowledged before.
func TestRegistrySimulation(t *testing.T) {
	first, count := *seed0, *seeds
	switch {
	case *seed > 0:
		first, count = *seed, 1
	case count > 0:
	case testing.Short(), race:
		count = 3
	default:
		count = 12
	}
	var total totals
	t.Cleanup(func() { t.Log(&total) })
	for i := range uint64(count) {
		for try := range *tries {
			t.Run(fmt.Sprintf("seed=%d/%d", first+i, try), func(t *testing.T) {
				t.Parallel()
				total.add(runRegistry(t, first+i))
			})
		}
	}
}

// A node that is a cluster by itself has nobody to help it: what it acknowledged must be on its own disk.
func TestSimulationAlone(t *testing.T) {
	count := uint64(60)
	switch {
	case *seed > 0, *seeds > 0, *nodes > 0:
		t.Skip("other schedules were asked for")
	case testing.Short():
		count = 5
	case race:
		count = 10
	}
	var total totals
	t.Cleanup(func() { t.Log(&total) })
	for i := range count {
		t.Run(fmt.Sprintf("seed=%d", *seed0+i), func(t *testing.T) {
			t.Parallel()
			total.add(run(t, *seed0+i, 1))
		})
	}
}

// Seeds that once found something find nothing any more.
func TestRegressions(t *testing.T) {
	again(t, "testdata/seeds.txt", func(t *testing.T, seed uint64) { run(t, seed, *nodes) })
}

func TestExactRegressions(t *testing.T) {
	again(t, "testdata/exact_seeds.txt", func(t *testing.T, seed uint64) { runExact(t, seed) })
}

func TestRegistryRegressions(t *testing.T) {
	again(t, "testdata/registry_seeds.txt", func(t *testing.T, seed uint64) { runRegistry(t, seed) })
}

// again runs the seeds of a file.
func again(t *testing.T, name string, run func(t *testing.T, seed uint64)) {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		text, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			t.Log("it found:", what)
			run(t, seed)
		})
	}
}
