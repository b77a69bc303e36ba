package faults_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A group whose members come and go.
const (
	wide          = "wide"
	churners      = "churners"
	widePartition = 200
	crowd         = 50 // members, half of them live streams, half long polls
	// pollSession is how long a long poll that ended without a word keeps its partitions.
	pollSession = 3 * time.Second
	// beatEvery is how often each partition gets a record.
	beatEvery = 200 * time.Millisecond
	// shortChurn is how long members come and go unless faults get a time.
	shortChurn = 12 * time.Second
)

// parting is a way to leave a group.
type parting int

const (
	closes    parting = iota // a stream closes its connection
	resets                   // a stream's connection is reset
	leaves                   // a long poll says that it leaves
	vanishes                 // a long poll comes back no more: its session ends it
	nodeDeath                // a node is killed
)

func (p parting) String() string {
	return [...]string{
		"close of a stream", "reset of a stream", "leave of a long poll", "end of a long poll without a word",
		"kill -9 of a node",
	}[p]
}

// churn is a group of many members, and how long its partitions go unread when some leave.
type churn struct {
	*load
	rand  *rand.Rand
	count int // of members that ever were

	settling []time.Duration // from when members join until all have their share

	mu      sync.Mutex
	members []*member         // guarded by mu: those that are there
	owned   map[*member][]int // guarded by mu: what each was told last that it has
	absent  map[int]absence   // guarded by mu: of partitions that nobody has read again yet
	gaps    map[parting][]time.Duration
}

// absence is a partition whose member has gone.
type absence struct {
	since time.Time
	of    *member // nil: any member's read ends it, if it is of a record written since
	why   parting
}

// Partitions of members that leave, or are gone, are read again at once, or when their session is over.
func TestChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and takes half a minute")
	}
	prepare(t)
	c := startCluster(t)
	l := newLoad(t, c, probes)
	c.makeTopic(wide, widePartition, 16<<20)
	g := &churn{
		load: l, rand: rand.New(rand.NewPCG(*seed, 4)), owned: make(map[*member][]int), absent: make(map[int]absence),
		gaps: make(map[parting][]time.Duration),
	}
	l.run("heart", g.beat)
	start := time.Now()
	for i := range crowd {
		g.join(i%2 == 0)
	}
	g.awaitSettled()
	t.Logf("%d members have all %d partitions %v after the first joined", crowd, widePartition,
		time.Since(start).Round(time.Millisecond))
	each := max(*timeEach, shortChurn)
	for start = time.Now(); time.Since(start) < each && !t.Failed(); {
		g.part(parting(g.rand.IntN(4)))
	}
	g.reportGaps()
	at := quantiles(g.settling)
	t.Logf("all have their share after others have joined: p50 %v, max %v of %d rounds", at(0.5), at(1), len(g.settling))
	for start = time.Now(); time.Since(start) < each/2 && !t.Failed(); {
		g.killNode(1 + g.rand.IntN(nodes))
	}
	g.reportGaps()
	l.stop()
}

// beat writes a record into each partition, again and again: when it was written.
func (g *churn) beat(c *client) {
	for c.ctx.Err() == nil {
		started := time.Now()
		var b strings.Builder
		for p := range widePartition {
			fmt.Fprintf(&b, `{"partition":%d,"value":"%d"}`+"\n", p, started.UnixNano())
		}
		code, _, err := c.call(c.ctx, http.MethodPost, "/v1/topics/"+wide+"/records", b.String(),
			"Content-Type", "application/vnd.millrace.records+ndjson")
		if err != nil || code != http.StatusOK {
			c.elsewhere() // what was not written is written next time
		}
		pause(c.ctx, beatEvery-time.Since(started))
	}
}

// join starts a member.
func (g *churn) join(stream bool) {
	g.count++
	name := fmt.Sprintf("churner-%d", g.count)
	m := &member{client: g.client(name), churn: g, id: name, stream: stream}
	m.ctx, m.cancel = context.WithCancel(g.ctx)
	m.done = make(chan struct{})
	g.mu.Lock()
	g.members = append(g.members, m)
	g.mu.Unlock()
	g.wg.Go(func() {
		defer close(m.done)
		defer m.http.CloseIdleConnections()
		m.run()
	})
}

// settled says whether the members know of all partitions, each of its share.
func (g *churn) settled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := make(map[int]bool)
	count := 0
	for _, m := range g.members {
		if len(g.owned[m]) != widePartition/crowd {
			return false
		}
		for _, p := range g.owned[m] {
			count++
			seen[p] = true
		}
	}
	return count == widePartition && len(seen) == widePartition
}

func (g *churn) awaitSettled() {
	for start := time.Now(); !g.settled(); pause(g.ctx, 5*time.Millisecond) {
		require.Less(g.t, time.Since(start), patience, "the group has not shared out its partitions")
	}
}

// part has some members leave, waits until their partitions are read again, and has others join.
func (g *churn) part(how parting) {
	var gone []*member
	now := time.Now()
	g.mu.Lock()
	for _, i := range g.rand.Perm(len(g.members))[:1+g.rand.IntN(10)] {
		if m := g.members[i]; m.stream == (how == closes || how == resets) {
			gone = append(gone, m)
		}
	}
	g.members = slices.DeleteFunc(g.members, func(m *member) bool { return slices.Contains(gone, m) })
	for _, m := range gone {
		for _, p := range g.owned[m] {
			g.absent[p] = absence{since: now, of: m, why: how}
		}
		delete(g.owned, m)
	}
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, m := range gone {
		wg.Go(func() { m.part(how) })
	}
	wg.Wait()
	g.awaitRead()
	for _, m := range gone {
		<-m.done
		g.join(m.stream)
	}
	now = time.Now()
	g.awaitSettled()
	g.settling = append(g.settling, time.Since(now))
}

// killNode kills a node, waits until all partitions are read again, and starts it.
func (g *churn) killNode(id int) {
	g.cluster.kill(id)
	now := time.Now()
	g.mu.Lock()
	for p := range widePartition {
		g.absent[p] = absence{since: now, why: nodeDeath}
	}
	g.mu.Unlock()
	g.awaitRead()
	g.cluster.start(id)
	g.cluster.awaitHealth()
	g.awaitSettled()
}

// awaitRead waits until nothing is left unread.
func (g *churn) awaitRead() {
	for start := time.Now(); ; pause(g.ctx, 5*time.Millisecond) {
		g.mu.Lock()
		left := len(g.absent)
		g.mu.Unlock()
		if left == 0 {
			return
		}
		require.Less(g.t, time.Since(start), patience, "%d partitions are not read again", left)
	}
}

// assigned notes what a member has.
func (g *churn) assigned(m *member, partitions []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Contains(g.members, m) {
		g.owned[m] = partitions
	}
}

// read notes that a member has read a record.
func (g *churn) read(m *member, r jsonRecord) {
	p := int(r.Partition)
	g.mu.Lock()
	defer g.mu.Unlock()
	a, ok := g.absent[p]
	if !ok || a.of == m {
		return
	}
	if a.of == nil {
		written, err := strconv.ParseInt(r.Value, 10, 64)
		if err != nil || written < a.since.UnixNano() {
			return
		}
	}
	g.gaps[a.why] = append(g.gaps[a.why], time.Since(a.since))
	delete(g.absent, p)
}

// quantiles sorts times and gives a function that tells their quantiles.
func quantiles(d []time.Duration) func(float64) time.Duration {
	slices.Sort(d)
	return func(q float64) time.Duration { return d[int(math.Ceil(q*float64(len(d))))-1].Round(time.Millisecond) }
}

// reportGaps logs how long partitions went unread, and holds it to what is promised, with room for a busy machine.
func (g *churn) reportGaps() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for why := range nodeDeath + 1 {
		gaps := g.gaps[why]
		delete(g.gaps, why)
		if len(gaps) == 0 {
			continue
		}
		at := quantiles(gaps)
		g.t.Logf("read again after %v: p50 %v, p99 %v, max %v of %d partitions", why, at(0.5), at(0.99), at(1), len(gaps))
		limit := time.Second
		switch why {
		case vanishes:
			limit += pollSession
		case nodeDeath:
			limit += sessionTimeout
		}
		require.LessOrEqual(g.t, at(0.5), allowed(limit), "%v", why)
		require.LessOrEqual(g.t, at(1), allowed(limit+5*time.Second), "%v", why)
	}
}
