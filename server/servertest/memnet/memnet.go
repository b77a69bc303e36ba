// Package memnet is a network in memory for tests: hosts that come up, die and lose power, and directed links between
// them that are slow, narrow, or cut.
//
// It promises what TCP promises and no more. The bytes of a connection arrive in order and none is lost inside it: a
// cut link holds them and gives them out after it heals. What a program loses it loses by resets, by timeouts, and by
// hosts that are gone. A killed process leaves a host that refuses and resets; a host without power says nothing at
// all, until it is up again and knows none of its connections.
//
// All waiting is on condition variables, channels and timers of package time, so that a network made in a bubble of
// testing/synctest runs in fake time. Chance comes from a seed, one stream a link, and hosts and connections are
// visited in order of name and age, so that nothing depends on map order. Close of a connection and Kill of a host
// leave no goroutine behind. Simulations are its callers; nodes get a Listener and a Dial of a host.
package memnet

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Link is one direction between two hosts.
type Link struct {
	// Latency is how long a byte travels, Jitter by how much at most longer. A connection keeps its order.
	Latency, Jitter time.Duration
	// Window bounds the bytes of a connection that were written and not yet read; 0 is no bound. Writing waits at it.
	Window int
	// BytesPerSec bounds what all connections together send; 0 is no bound.
	BytesPerSec int
}

// route names a link.
type route struct{ from, to string }

// link is a Link and its state. A link is cut while cuts > 0: what had not arrived at cutSince stays under way.
type link struct {
	Link
	rng      *rand.Rand
	cuts     int
	cutSince time.Time
	busy     time.Time // until when BytesPerSec has it sending
	fuse     int       // bytes that still pass before a connection is reset; below 0: none
}

// due says when what is sent now arrives.
func (l *link) due(bytes int) time.Time {
	at := time.Now()
	if l.BytesPerSec > 0 {
		if at.Before(l.busy) {
			at = l.busy
		}
		at = at.Add(time.Duration(bytes) * time.Second / time.Duration(l.BytesPerSec))
		l.busy = at
	}
	at = at.Add(l.Latency)
	if l.Jitter > 0 {
		at = at.Add(time.Duration(l.rng.Int64N(int64(l.Jitter) + 1)))
	}
	return at
}

// arrived says whether what is due at a time is there.
func (l *link) arrived(at time.Time) bool {
	if l.cuts > 0 {
		return !at.After(l.cutSince)
	}
	return !at.After(time.Now())
}

// Net is a network. It is safe for concurrent use.
type Net struct {
	seed  uint64
	began time.Time

	mu      sync.Mutex // guards all below, and every host, listener and connection
	base    Link
	links   map[route]*link
	hosts   map[string]*Host // the newest incarnations
	conns   []*Conn          // those that may still act, by age
	seq     int
	changed chan struct{} // closed and replaced when a link or a host changes
	trace   trace
}

// New makes a network whose links are all like base.
func New(seed uint64, base Link) *Net {
	return &Net{
		seed: seed, began: time.Now(), base: base, links: map[route]*link{}, hosts: map[string]*Host{},
		changed: make(chan struct{}), trace: newTrace(),
	}
}

// linkLocked gives the link from one host to another.
func (n *Net) linkLocked(from, to string) *link {
	r := route{from, to}
	l := n.links[r]
	if l == nil {
		name := fnv.New64a()
		_, _ = fmt.Fprintf(name, "%s>%s", from, to)
		l = &link{Link: n.base, rng: rand.New(rand.NewPCG(n.seed, name.Sum64())), fuse: -1}
		if from == to {
			l.Link = Link{}
		}
		n.links[r] = l
	}
	return l
}

// Set changes a link for all that is sent from now on.
func (n *Net) Set(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkLocked(from, to).Link = l
	n.changedLocked()
}

// Cut cuts a link. Cuts add up: each needs a Mend.
func (n *Net) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.linkLocked(from, to)
	if l.cuts++; l.cuts == 1 {
		l.cutSince = time.Now()
	}
}

// Mend takes one cut of a link back. What the link held arrives.
func (n *Net) Mend(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.linkLocked(from, to)
	l.cuts = max(0, l.cuts-1)
	n.changedLocked()
}

// Heal makes all links as they were at first.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for r, l := range n.links {
		l.cuts, l.fuse, l.Link = 0, -1, n.base
		if r.from == r.to {
			l.Link = Link{}
		}
	}
	n.changedLocked()
}

// changedLocked wakes whoever waits for a link or a host.
func (n *Net) changedLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
	for _, c := range n.conns {
		c.cond.Broadcast()
	}
}

// ResetAfter lets some more bytes pass a link and then resets the connection that sends the next one. What passed
// arrives. It takes the place of one that has not come to pass.
func (n *Net) ResetAfter(from, to string, bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkLocked(from, to).fuse = bytes
}

// Reset resets every connection between two hosts, at both ends, and says how many.
func (n *Net) Reset(a, b string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range slices.Clone(n.conns) {
		if c.local.Host == a && c.remote.Host == b && c.err == nil {
			c.resetLocked()
			count++
		}
	}
	return count
}

// HalfOpen makes a host lose its connections to a peer without a word to it: the peer finds out when it sends, or by
// its keep-alive.
func (n *Net) HalfOpen(host, peer string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range slices.Clone(n.conns) {
		if c.local.Host == host && c.remote.Host == peer && c.err == nil {
			c.dieLocked()
			c.peer.resetAt = earliest(c.peer.resetAt, time.Now().Add(keepAlive))
			count++
		}
	}
	return count
}

// Connections is how many ends of connections may still act, of all hosts.
func (n *Net) Connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// dropLocked forgets a connection's end.
func (n *Net) dropLocked(c *Conn) {
	i, ok := slices.BinarySearchFunc(n.conns, c.seq, func(c *Conn, seq int) int { return cmp.Compare(c.seq, seq) })
	if ok {
		n.conns = slices.Delete(n.conns, i, i+1)
	}
}

// Close kills every host.
func (n *Net) Close() {
	n.mu.Lock()
	names := make([]string, 0, len(n.hosts))
	for name := range n.hosts {
		names = append(names, name)
	}
	n.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		n.mu.Lock()
		h := n.hosts[name]
		n.mu.Unlock()
		h.Kill()
	}
}

// trace is what was sent: a hash of everything, and the last events.
type trace struct {
	table *crc32.Table
	hash  uint64
	total int
	last  []event // a ring
}

// traced is how many events are kept.
const traced = 400

type event struct {
	at       time.Duration
	what     string
	from, to Addr
	bytes    int
	sum      uint32
}

func newTrace() trace {
	return trace{table: crc32.MakeTable(crc32.Castagnoli), hash: 14695981039346656037, last: make([]event, 0, traced)}
}

// noteLocked takes an event into the trace.
func (n *Net) noteLocked(what string, from, to Addr, data []byte) {
	t := &n.trace
	e := event{time.Since(n.began), what, from, to, len(data), crc32.Checksum(data, t.table)}
	for _, v := range []uint64{uint64(e.at), uint64(len(what)), from.sum(), to.sum(), uint64(e.bytes), uint64(e.sum)} {
		t.hash = (t.hash ^ v) * 1099511628211
	}
	if len(t.last) < traced {
		t.last = append(t.last, e)
	} else {
		t.last[t.total%traced] = e
	}
	t.total++
}

// Fingerprint is a hash of everything that was sent, with its time: equal for equal runs.
func (n *Net) Fingerprint() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trace.hash
}

// Events is how many events there were: chunks of data, ends, resets and dials.
func (n *Net) Events() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trace.total
}

// Trace gives the last events, one a line, oldest first.
func (n *Net) Trace() (lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.trace
	for i := max(0, t.total-len(t.last)); i < t.total; i++ {
		e := t.last[i%traced]
		lines = append(lines, fmt.Sprintf("%13.6f %s > %s %s %d bytes %08x",
			e.at.Seconds(), e.from, e.to, e.what, e.bytes, e.sum))
	}
	return lines
}
