package connect_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/connect/store"
)

// one waits until some node is found that is something.
func (l *lab) one(what string, find func() int) (node int) {
	l.t.Helper()
	l.await("there is "+what, func() bool {
		node = find()
		return node >= 1 && node <= 3
	})
	return node
}

// workerOf is the node that runs a task, by its status.
func (l *lab) workerOf(name string, task int) int {
	l.t.Helper()
	return l.one("a worker that has the task", func() int {
		id := l.store.TaskStatuses(name)[task].WorkerID
		for n := 1; n <= 3; n++ {
			if l.cluster.URL(n) == "http://"+id {
				return n
			}
		}
		return 0
	})
}

// coordinator is the node that coordinates the group of workers.
func (l *lab) coordinator() int {
	l.t.Helper()
	return l.one("a coordinator", func() int {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version = 4
		req.CoordinatorKeys = []string{"connect-cluster"}
		resp, err := req.RequestWith(l.t.Context(), l.cluster.Node(l.alive()).Requestor())
		if err != nil || len(resp.Coordinators) == 0 {
			return 0
		}
		return int(resp.Coordinators[0].NodeID)
	})
}

func (l *lab) controller() int {
	l.t.Helper()
	return l.one("a controller", func() int {
		state, err := l.client.ClusterState(l.t.Context())
		if err != nil {
			return 0
		}
		return int(state.Controller)
	})
}

// centre makes the node that coordinates the group the controller, too.
func (l *lab) centre() (node int) {
	for limit := time.Now().Add(patience); ; {
		require.True(l.t, time.Now().Before(limit), "the coordinator does not come to control")
		if node = l.coordinator(); l.controller() == node {
			return node
		}
		resp, err := l.cluster.Client.Post(l.cluster.URL(node)+"/v1/cluster/leadership:transfer", "application/json",
			strings.NewReader(fmt.Sprintf(`{"to":%d}`, node)))
		if err == nil {
			require.NoError(l.t, resp.Body.Close())
		}
		<-time.After(100 * time.Millisecond) // until all know
	}
}

// writer appends lines to files until it is stopped, and says how many each has then.
type writer struct {
	stop func() int
}

func (l *lab) write(dir string, files int) *writer {
	ctx, cancel := context.WithCancel(context.Background())
	count := make(chan int, 1)
	go func() { // awaited by stop
		n := 0
		defer func() { count <- n }() // also where a file cannot be written, which ends the test
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for f := range files {
				l.appendLines(filepath.Join(dir, fmt.Sprintf("f%d", f)), n, 1)
			}
			n++
			<-tick.C
		}
	}()
	var once int
	stopped := false
	w := &writer{stop: func() int {
		if !stopped {
			cancel()
			once, stopped = <-count, true
		}
		return once
	}}
	l.t.Cleanup(func() { w.stop() })
	return w
}

func TestAKilledNodesWorkRunsElsewhere(t *testing.T) {
	for _, tc := range []struct {
		name string
		pick func(l *lab) int
	}{
		{"the owner of a task", func(l *lab) int { return l.workerOf("c", 0) }},
		{"the coordinator of the group", (*lab).coordinator},
		{"the controller", (*lab).controller},
		{"all of that", (*lab).centre},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t, shortSession)
			dir := l.lines("in", 6, 0)
			writer := l.write(dir, 6)
			l.put("c", source(dir, "out", 6))
			l.awaitStates("c", running(6)...)
			l.await("all is balanced", func() bool {
				_, tasks := l.owners("c")
				return balanced(tasks, 3, 6)
			})
			victim := tc.pick(l)
			gone := l.cluster.URL(victim)[len("http://"):]
			l.watch(l.alive(victim))
			began := time.Now()
			require.NoError(t, l.cluster.Node(victim).Kill())
			killed := time.Since(began)
			l.await("all runs elsewhere", func() bool {
				connectors, tasks := l.owners("c")
				return tasks[gone] == 0 && connectors[gone] == 0 && balanced(tasks, 2, 6) && balanced(connectors, 1, 1)
			})
			t.Logf("all runs elsewhere after %s, of which the kill took %s", time.Since(began), killed)
			n := writer.stop()
			l.checkOnceFrom(l.alive(victim), "out", 6, n)
		})
	}
}

func TestARollingRestartLosesAndRepeatsNothing(t *testing.T) {
	l := newLab(t, shortSession)
	dir := l.lines("in", 6, 0)
	writer := l.write(dir, 6)
	l.put("c", source(dir, "out", 6))
	l.awaitStates("c", running(6)...)
	for id := 1; id <= 3; id++ {
		other := id%3 + 1
		l.watch(other)
		gone := l.cluster.URL(id)[len("http://"):]
		began := time.Now()
		l.cluster.Stop(id)
		stopped := time.Since(began)
		l.await("all runs elsewhere", func() bool {
			_, tasks := l.owners("c")
			return tasks[gone] == 0 && balanced(tasks, 2, 6)
		})
		t.Logf("node %d stopped after %s, and its tasks run elsewhere after %s", id, stopped, time.Since(began))
		l.cluster.Start(id)
		l.await("the node has its part again", func() bool {
			_, tasks := l.owners("c")
			return balanced(tasks, 3, 6)
		})
	}
	n := writer.stop()
	l.checkOnceFrom(3, "out", 6, n)
	l.awaitStates("c", running(6)...)
}

// TestAWorkerThatIsCutOffStops: one that the coordinator does not hear of stops what it runs within the session.
func TestAWorkerThatIsCutOffStops(t *testing.T) {
	l := newLab(t, shortSession)
	dir := l.lines("in", 6, 0)
	writer := l.write(dir, 6)
	l.put("c", source(dir, "out", 6))
	l.awaitStates("c", running(6)...)
	l.await("all is balanced", func() bool {
		_, tasks := l.owners("c")
		return balanced(tasks, 3, 6)
	})
	victim := l.coordinator()%3 + 1
	l.watch(victim%3 + 1)
	if victim%3+1 == l.coordinator() {
		l.watch(l.coordinator())
	}
	gone := l.cluster.URL(victim)[len("http://"):]
	stops := l.bench.total()
	began := time.Now()
	l.deaf.Store(int32(victim))
	l.await("others run it", func() bool {
		_, tasks := l.owners("c")
		return tasks[gone] == 0 && balanced(tasks, 2, 6)
	})
	t.Logf("others run it after %s", time.Since(began))
	l.await("its tasks have stopped", func() bool { return l.bench.total() >= stops+2 })
	l.deaf.Store(0)
	l.await("it has its part again", func() bool {
		_, tasks := l.owners("c")
		return balanced(tasks, 3, 6)
	})
	n := writer.stop()
	l.checkOnceFrom(victim, "out", 6, n)
}

func TestANodeWithoutConnectorsMakesNothing(t *testing.T) {
	l := newLab(t)
	require.Never(t, func() bool {
		topics, err := l.client.Topics(l.t.Context())
		if err != nil {
			return false
		}
		for i := range topics {
			if topics[i].Name != "" {
				return true
			}
		}
		return false
	}, 2*time.Second, 200*time.Millisecond)
	require.Empty(t, l.store.Configs().Connectors)
	l.put("c", source(l.lines("in", 1, 10), "out", 1))
	l.awaitStates("c", running(1)...)
	l.change(store.DeleteConnector("c"))
}
