package task_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/task"
	"millrace/server/servertest"
)

func sourceSpec(make func() plugin.SourceTask, props ...string) task.Spec {
	return task.Spec{Class: class{source: make}.of(plugin.SourceKind), Props: with(nil, props...)}
}

func TestSourceWritesRecordsAndOffsets(t *testing.T) {
	l := newLab(t)
	c := &counter{limit: 1000, most: 100}
	running := make(chan struct{})
	s := sourceSpec(func() plugin.SourceTask { return c })
	s.Running = func() { close(running) }
	j := l.start(l.runner(), s)
	j.reaches(running)
	until(t, "all are stored", func() bool { return l.next() == 1000 })
	until(t, "the source knows that they are", func() bool { return c.stored.Load() == 1000 })
	until(t, "its topic is noted", func() bool {
		return l.store.Fresh(t.Context()) == nil && slices.Equal([]string{"numbers"}, l.store.Topics("c"))
	})
	require.NoError(t, j.stop())
	require.Equal(t, numbers(0, 1000), values(l.read("numbers")))
	require.True(t, c.stopped)
}

// TestSourceSplitsLargePolls writes a poll of many megabytes, in one transaction of several requests.
func TestSourceSplitsLargePolls(t *testing.T) {
	l := newLab(t)
	l.topic("numbers", 3)
	pad := strings.Repeat("x", 2000)
	c := &counter{limit: 6000, most: 6000, change: func(r *plugin.SourceRecord) {
		r.Key, r.Value = r.Value, r.Value.(string)+" "+pad
	}}
	j := l.start(l.runner(), sourceSpec(func() plugin.SourceTask { return c }))
	until(t, "all are stored", func() bool { return l.next() == 6000 })
	require.NoError(t, j.stop())
	seen := make(map[string]bool)
	for _, part := range l.readParts("numbers") {
		last := -1
		for _, v := range values(part) {
			var n int
			_, err := fmt.Sscanf(v, "%d ", &n)
			require.NoError(t, err)
			require.Greater(t, n, last, "order in a partition")
			last = n
			seen[v] = true
		}
	}
	require.Len(t, seen, 6000)
}

// TestExactlyOnceWhenTasksEnd ends the task at random moments, and runs it twice at once.
func TestExactlyOnceWhenTasksEnd(t *testing.T) {
	l := newLab(t)
	const limit = 20_000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var fenced atomic.Int32
	make := func() plugin.SourceTask {
		return &counter{limit: limit, most: 50, rand: rand.New(rand.NewPCG(seed, 1))}
	}
	first, second := l.runner(), l.runner()
	for round := 0; l.next() < limit && round < 200; round++ {
		a := l.start(first, sourceSpec(make))
		var b *job
		if r.IntN(2) == 0 {
			pause(r, 60)
			b = l.start(second, sourceSpec(make))
		}
		pause(r, 120)
		for _, j := range []*job{a, b} {
			if j == nil {
				continue
			}
			if err := j.stop(); err != nil {
				require.ErrorIs(t, err, task.ErrFenced)
				fenced.Add(1)
			}
		}
	}
	j := l.start(first, sourceSpec(make))
	until(t, "all are stored", func() bool { return l.next() == limit })
	require.NoError(t, j.stop())
	require.Equal(t, numbers(0, limit), values(l.read("numbers")))
	t.Logf("%d tasks were fenced", fenced.Load())
}

// pause waits for a random time of at most so many milliseconds.
func pause(r *rand.Rand, most int) {
	<-time.After(time.Duration(r.IntN(most*1000)) * time.Microsecond)
}

func TestZombieEndsQuietly(t *testing.T) {
	l := newLab(t)
	make := func() plugin.SourceTask { return &counter{limit: 1 << 30, most: 5} }
	a := l.start(l.runner(), sourceSpec(make))
	until(t, "it writes", func() bool { return l.next() > 0 })
	b := l.start(l.runner(), sourceSpec(make))
	require.ErrorIs(t, a.wait(), task.ErrFenced)
	at := l.next()
	until(t, "the other one writes", func() bool { return l.next() > at+20 })
	require.NoError(t, b.stop())
	got := values(l.read("numbers"))
	require.Equal(t, numbers(0, l.next()), got)
}

func TestStillOwnerEndsTask(t *testing.T) {
	l := newLab(t)
	gone := errors.New("it is another's")
	s := sourceSpec(func() plugin.SourceTask { return &counter{limit: 10, most: 5} })
	s.StillOwner = func(context.Context) error { return gone }
	require.ErrorIs(t, l.start(l.runner(), s).wait(), gone)
	require.Empty(t, l.read("numbers"))
}

// TestExactlyOnceWhenNodesDie stops and starts the nodes of a cluster under a source.
func TestExactlyOnceWhenNodesDie(t *testing.T) {
	settings := clusterSettings()
	c := servertest.StartCluster(t, servertest.ClusterOptions{Broker: settings, Uncoded: true})
	l := labOn(t, c.Node(3).Requestor())
	l.topic("numbers", 3)
	const limit = 1 << 30
	make := func() plugin.SourceTask {
		return &counter{limit: limit, most: 20, change: func(r *plugin.SourceRecord) { r.Key = r.Value }}
	}
	runner := l.runner()
	j := l.start(runner, sourceSpec(make))
	for round := range 4 {
		id := 1 + round%2
		at := l.next()
		until(t, "it goes on", func() bool { return l.next() > at+100 })
		c.Stop(id)
		at = l.next()
		until(t, "it goes on without a node", func() bool { return l.next() > at+100 })
		c.Start(id)
		select {
		case <-j.done:
			require.NoError(t, j.err)
		default:
		}
	}
	require.NoError(t, j.stop())
	l.complete(make, runner)
}

// complete ends a source in order, and checks that each number that it says is stored is there once.
func (l *lab) complete(make func() plugin.SourceTask, r *task.Runner) {
	j := l.start(r, sourceSpec(make)) // ends what an earlier task left open
	at := l.next()
	until(l.t, "it goes on", func() bool { return l.next() > at })
	require.NoError(l.t, j.stop())
	j = l.start(r, sourceSpec(func() plugin.SourceTask { return &counter{} }))
	until(l.t, "nothing is open", func() bool {
		id := "workers-c-0"
		txn, err := l.client.DescribeTxn(l.t.Context(), id)
		return err == nil && txn.State != client.TxnOngoing && txn.State != client.TxnPrepareCommit
	})
	require.NoError(l.t, j.stop())
	seen := map[string]int{}
	for _, v := range values(l.read("numbers")) {
		seen[v]++
	}
	for _, n := range numbers(0, l.next()) {
		require.Equal(l.t, 1, seen[n], "number %s", n)
	}
	require.Len(l.t, seen, l.next())
}

func TestSourceDirAndPause(t *testing.T) {
	l := newLab(t)
	dirs := make(chan string, 1)
	var polls atomic.Int32
	src := &dirSource{counter: counter{limit: 1 << 30, most: 1, polls: func(int) { polls.Add(1) }}, dirs: dirs}
	target := newWanted()
	s := sourceSpec(func() plugin.SourceTask { return src })
	s.Target = target.get
	j := l.start(l.runner(), s)
	dir := <-dirs
	require.DirExists(t, dir)
	until(t, "it writes", func() bool { return l.next() > 3 })
	target.set(true)
	until(t, "it is paused", target.reached)
	before := polls.Load()
	<-time.After(200 * time.Millisecond)
	require.Equal(t, before, polls.Load())
	target.set(false)
	at := l.next()
	until(t, "it goes on", func() bool { return l.next() > at })
	target.set(true)
	require.NoError(t, j.stop(), "a paused task can be stopped")
	require.NoDirExists(t, dir)
	entries, err := os.ReadDir(l.scratch)
	require.NoError(t, err)
	require.Empty(t, entries)
}
