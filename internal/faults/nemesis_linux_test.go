package faults_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kind is a kind of fault. do does one to a node, or two, and undoes it.
type kind struct {
	name     string
	isolated bool // needs namespaces
	do       func(*nemesis)
}

func allKinds() []kind {
	return []kind{
		{"kill", false, (*nemesis).kill},
		{"freeze", false, (*nemesis).freeze},
		{"stop", false, (*nemesis).stop},
		{"two", false, (*nemesis).two},
		{"cut", true, (*nemesis).cut},
		{"disk", true, (*nemesis).disk},
	}
}

// nemesis does faults, one at a time, and lets the cluster get well after each.
type nemesis struct {
	t       *testing.T
	cluster *cluster
	load    *load
	rand    *rand.Rand
	each    time.Duration

	count     int
	takeovers []time.Duration // from a kill to the first acknowledgement of each partition that the node led
	silences  []silence
}

// silence is a time without a majority, in the history's time.
type silence struct{ from, to time.Duration }

// heal waits until all is well again.
func (n *nemesis) heal() {
	n.count++
	n.cluster.awaitHealth()
}

// target is a node to hurt, more often than not the leader of some partition.
func (n *nemesis) target() int {
	if n.rand.IntN(4) > 0 {
		leaders := n.cluster.awaitLeaders(1+n.rand.IntN(nodes), probes)
		if id := leaders[n.rand.IntN(len(leaders))]; id > 0 {
			return id
		}
	}
	return 1 + n.rand.IntN(nodes)
}

// last lets a fault last, between the two and no longer than there is time.
func (n *nemesis) last(least, most time.Duration) {
	most = max(min(most, n.each/2), least+1)
	pause(n.t.Context(), least+time.Duration(n.rand.Int64N(int64(most-least))))
}

func (n *nemesis) note(id int, format string, args ...any) {
	n.load.fault(id, fmt.Sprintf(format, args...))
}

// kill kills a node, measures how long the partitions that it led take no records, and starts it again, now and then
// only to be killed while it starts.
func (n *nemesis) kill() {
	id := n.target()
	leaders := n.cluster.awaitLeaders(id, probes)
	n.note(id, "kill -9")
	start := time.Now()
	n.cluster.kill(id)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for p, leader := range leaders {
		if leader != id {
			continue
		}
		wg.Go(func() {
			n.load.probe(int32(p), id)
			mu.Lock()
			defer mu.Unlock()
			n.takeovers = append(n.takeovers, time.Since(start))
		})
	}
	wg.Wait()
	n.last(0, 2*time.Second)
	n.cluster.start(id)
	if n.rand.IntN(4) == 0 {
		n.last(20*time.Millisecond, 300*time.Millisecond)
		n.note(id, "kill -9 while it starts")
		n.cluster.kill(id)
		n.cluster.start(id)
	}
}

// freeze stops a node's time, for less or more than its session.
func (n *nemesis) freeze() {
	id := n.target()
	n.note(id, "SIGSTOP")
	n.cluster.signal(id, syscall.SIGSTOP)
	n.last(100*time.Millisecond, 2*sessionTimeout)
	n.cluster.signal(id, syscall.SIGCONT)
	n.note(id, "SIGCONT")
}

// stop stops a node in order and starts it again.
func (n *nemesis) stop() {
	id := n.target()
	n.note(id, "SIGTERM")
	n.cluster.signal(id, syscall.SIGTERM)
	require.Zero(n.t, n.cluster.wait(id), "exit code of node %d after SIGTERM", id)
	n.last(0, 2*time.Second)
	n.cluster.start(id)
}

// two kills two nodes. Until one of them is back, nothing new is acknowledged.
func (n *nemesis) two() {
	one := n.target()
	other := one%nodes + 1
	n.note(one, "kill -9")
	n.cluster.kill(one)
	n.last(0, time.Second)
	n.note(other, "kill -9, the second")
	n.cluster.kill(other)
	from := n.load.history.Now()
	n.last(500*time.Millisecond, 4*time.Second)
	n.silences = append(n.silences, silence{from, n.load.history.Now()})
	n.cluster.start(one)
	n.last(0, time.Second)
	n.cluster.start(other)
}

// cut cuts a node off: from everybody, or so that it cannot send to the other nodes, or not to one of them. What it
// sends is lost without a word.
func (n *nemesis) cut() {
	id := n.target()
	c := n.cluster
	mute := func(to int) (undo func()) {
		host := fmt.Sprintf("198.18.0.1%d", to)
		c.run("ip", "-n", fmt.Sprint("n", id), "neigh", "replace", host, "lladdr", "02:00:00:00:00:ff", "nud", "permanent",
			"dev", "eth0")
		return func() { c.run("ip", "-n", fmt.Sprint("n", id), "neigh", "del", host, "dev", "eth0") }
	}
	others := []int{id%nodes + 1, (id+1)%nodes + 1}
	var undo []func()
	switch n.rand.IntN(4) {
	case 0:
		n.note(id, "cannot send to nodes %v", others)
		undo = append(undo, mute(others[0]), mute(others[1]))
	case 1:
		n.note(id, "cannot send to node %d", others[0])
		undo = append(undo, mute(others[0]))
	default:
		n.note(id, "cut off")
		c.run("bridge", "link", "set", "dev", fmt.Sprint("p", id), "state", "0")
		undo = append(undo, func() { c.run("bridge", "link", "set", "dev", fmt.Sprint("p", id), "state", "3") })
	}
	n.last(200*time.Millisecond, 2*sessionTimeout)
	for _, f := range undo {
		f()
	}
	n.note(id, "connected")
}

// disk fills a node's disk, frees it, and starts the node anew, as its operator would.
func (n *nemesis) disk() {
	id := n.target()
	n.note(id, "disk full")
	name := filepath.Join(n.cluster.nodes[id].data, "filler")
	f, err := os.Create(name)
	require.NoError(n.t, err)
	size := int64(0)
	for zeros := make([]byte, 64<<10); err == nil; {
		var wrote int
		wrote, err = f.Write(zeros)
		size += int64(wrote)
	}
	require.ErrorIs(n.t, err, syscall.ENOSPC)
	require.NoError(n.t, f.Truncate(size-n.rand.Int64N(64<<10))) // a little is left
	require.NoError(n.t, f.Close())
	n.last(500*time.Millisecond, 5*time.Second)
	require.NoError(n.t, os.Remove(name))
	n.note(id, "disk freed, kill -9, start")
	n.cluster.kill(id)
	n.cluster.start(id)
}

// report logs what was measured and holds it to what is promised: a port that refuses is noticed at once.
func (n *nemesis) report() {
	if len(n.takeovers) > 0 {
		slices.Sort(n.takeovers)
		at := func(q float64) time.Duration { return n.takeovers[int(math.Ceil(q*float64(len(n.takeovers))))-1] }
		n.t.Logf("acks=all again after kill -9 of the leader: p50 %v, p99 %v, max %v of %d", at(0.5).Round(time.Millisecond),
			at(0.99).Round(time.Millisecond), at(1).Round(time.Millisecond), len(n.takeovers))
		if len(n.takeovers) >= 10 { // of few, half may be of nodes that led the metadata too
			require.Less(n.t, at(0.5), allowed(2*time.Second))
		}
		require.Less(n.t, at(0.99), allowed(sessionTimeout+3*time.Second))
	}
	for _, s := range n.silences {
		require.Empty(n.t, n.load.acknowledged(s), "acknowledged without a majority")
	}
}
