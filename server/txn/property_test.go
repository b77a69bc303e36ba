package txn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/partition"
)

// turmoil is producers that share few ids, with requests that come twice or late, while the coordinator moves, and
// what they were told.
type turmoil struct {
	l    *lab
	seed uint64

	mu       sync.Mutex
	rand     *rand.Rand // guarded by mu
	begins   int        // guarded by mu: what has begun, in order
	attempts []*attempt
	owners   map[string]owner // guarded by mu: by id, the newest session that was given
	faults   []string         // guarded by mu: promises that were broken on the way
}

// owner is a session that InitProducerID has given, and when, in the order of begins.
type owner struct {
	session
	since int
}

// before says whether s was given before o was. Producer ids rise.
func (s session) before(o session) bool {
	return s.producerID < o.producerID || s.producerID == o.producerID && s.epoch < o.epoch
}

// attempt is one transaction.
type attempt struct {
	name    string
	took    map[topicPartition]string // records that were acknowledged
	commit  bool                      // what was asked for
	outcome string                    // "", "done", "failed"; "" is unknown
}

const turmoilTimeout = 2000 // of transactions, in milliseconds

var everywhere = []topicPartition{t0, t1, {"t", 2}, {"t", 3}, u0, {"u", 1}}

func (x *turmoil) n(n int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rand.IntN(n)
}

func (x *turmoil) begin() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begins++
	return x.begins
}

func (x *turmoil) fault(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.faults = append(x.faults, fmt.Sprintf(format, args...))
}

// late does something again, some time later, as a network does with what it has held back.
func (x *turmoil) late(do func()) {
	if x.n(4) > 0 {
		return
	}
	d := time.Duration(x.n(1500)) * time.Millisecond
	x.l.wg.Go(func() {
		time.Sleep(d)
		do()
	})
}

// client is one process.
type client struct {
	x      *turmoil
	number int
	s      session
	alive  bool
}

// take has the session of an id, unless that takes too long.
func (c *client) take(id string) {
	req := initRequest(id)
	req.TransactionTimeoutMillis = turmoilTimeout
	c.alive = false
	for range 200 {
		s, e := c.x.l.initWith(req)
		if e == nil {
			c.s, c.alive = s, true
			c.x.mu.Lock()
			c.x.begins++
			if c.x.owners[id].before(s) {
				c.x.owners[id] = owner{s, c.x.begins}
			}
			c.x.mu.Unlock()
			return
		}
		if !passing(e) {
			c.x.fault("init %s: %v", id, e)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// replaced says whether another process had the id when something began.
func (c *client) replaced(began int) bool {
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	o := c.x.owners[c.s.id]
	return c.s.before(o.session) && o.since < began
}

// transact does one transaction.
func (c *client) transact(number int) {
	x := c.x
	a := &attempt{name: fmt.Sprintf("%d.%d of %s", c.number, number, c.s), took: make(map[topicPartition]string)}
	x.mu.Lock()
	x.attempts = append(x.attempts, a)
	x.mu.Unlock()
	for range 1 + x.n(4) {
		to := everywhere[x.n(len(everywhere))]
		if _, ok := a.took[to]; ok {
			continue
		}
		if !c.write(a, to) {
			a.outcome = "failed"
			c.alive = false
			return
		}
		time.Sleep(time.Duration(x.n(60)) * time.Millisecond)
	}
	switch x.n(12) {
	case 0: // it dies
		c.alive = false
		return
	case 1: // it sleeps for too long
		time.Sleep(turmoilTimeout * time.Millisecond)
	}
	a.commit = x.n(3) > 0
	c.finish(a)
}

// write appends one record; false when the transaction cannot go on.
func (c *client) write(a *attempt, to topicPartition) bool {
	x, s := c.x, c.s
	text := fmt.Sprintf("%s in %s/%d", a.name, to.topic, to.number)
	x.late(func() { _ = x.l.produce(s, to, 0, text) })
	for range 100 {
		began := x.begin()
		e := x.l.produce(s, to, 0, text)
		if e == nil {
			if a.took[to] = text; c.replaced(began) {
				x.fault("%s: a record was taken of a producer that was replaced", a.name)
			}
			return true
		}
		if !passing(e) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

// finish ends the transaction.
func (c *client) finish(a *attempt) {
	x, s, commit := c.x, c.s, a.commit
	for range 1 + x.n(2) {
		x.late(func() { _, _ = x.l.end(s, commit) })
		x.late(func() { _, _ = x.l.end(s, !commit) }) // as after a change of mind
	}
	for range 200 {
		began := x.begin()
		next, e := x.l.end(s, commit)
		switch {
		case e == nil:
			if a.outcome = "done"; c.replaced(began) && commit {
				x.fault("%s: committed by a producer that was replaced", a.name)
			}
			c.s = next
			return
		case !passing(e):
			c.alive = false
			return // fenced, or the late copy was first: unknown
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.alive = false
}

// move moves the coordinator now and then, with or without what was not replicated.
func (x *turmoil) move(until time.Time) {
	for time.Now().Before(until) {
		time.Sleep(time.Duration(100+x.n(1200)) * time.Millisecond)
		if x.n(2) == 0 {
			leader := x.l.role(0).Leader
			for _, n := range x.l.nodes {
				n.setCut(n.id != leader)
			}
			time.Sleep(time.Duration(x.n(100)) * time.Millisecond)
		}
		x.l.lead(0, int32(1+x.n(3)))
		for _, n := range x.l.nodes {
			n.setCut(false)
		}
	}
}

// markers come late, twice, or not at all.
func (x *turmoil) markers(ctx context.Context, req *kmsg.WriteTxnMarkersRequest) error {
	switch x.n(8) {
	case 0:
		return context.DeadlineExceeded
	case 1:
		_, _ = x.l.writeMarkers(ctx, req)
		return context.DeadlineExceeded // the answer is lost
	case 2:
		time.Sleep(time.Duration(x.n(300)) * time.Millisecond)
	}
	x.late(func() { _, _ = x.l.writeMarkers(context.Background(), req) })
	return nil
}

// runTurmoil runs a while, waits until all is at rest, and says what promises were broken.
func runTurmoil(t *testing.T, seed uint64, flaws partition.Flaws) (faults []string, done int) {
	static := map[string]string{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
	inLab(t, labOptions{nodes: 3, lastEpoch: 5, static: static, flaws: flaws}, func(t *testing.T, l *lab) {
		x := &turmoil{l: l, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), owners: make(map[string]owner)}
		l.setMarkers(x.markers)
		end := time.Now().Add(12 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { x.move(end) })
		for i := range 4 {
			wg.Go(func() {
				c := &client{x: x, number: i}
				for number := 0; time.Now().Before(end); number++ {
					if !c.alive || x.n(25) == 0 {
						c.take(fmt.Sprint("id ", x.n(2)))
					}
					if c.alive {
						c.transact(number)
					}
				}
			})
		}
		wg.Wait()
		l.setMarkers(nil)
		time.Sleep(turmoilTimeout*time.Millisecond + 12*time.Second)
		synctest.Wait()
		for _, a := range x.attempts {
			if a.outcome == "done" {
				done++
			}
		}
		x.check()
		faults = x.faults
	})
	return faults, done
}

// check reads all partitions, and compares.
func (x *turmoil) check() {
	where := make(map[string]string)
	for _, p := range everywhere {
		c := x.l.read(p)
		for _, text := range c.committed {
			if where[text] == "committed" {
				x.fault("twice: %s", text)
			}
			where[text] = "committed"
		}
		for _, text := range c.aborted {
			if where[text] == "" {
				where[text] = "aborted"
			}
		}
		if len(c.open) > 0 {
			x.fault("T5: open at the end in %s/%d: %v", p.topic, p.number, c.open)
		}
		if b := x.l.leaders[p].Bounds(); b.LastStable != b.LogEnd {
			x.fault("T5: the last stable offset of %s/%d stays", p.topic, p.number)
		}
	}
	for _, a := range x.attempts {
		committed := 0
		for _, text := range a.took {
			if where[text] == "committed" {
				committed++
			}
		}
		switch {
		case committed > 0 && committed < len(a.took):
			x.fault("T1: %s is committed in part", a.name)
		case a.outcome == "done" && a.commit && committed < len(a.took):
			x.fault("T4: %s was committed, and is not", a.name)
		case (a.outcome == "done" && !a.commit || a.outcome == "failed") && committed > 0:
			x.fault("T2: %s was not committed, and is", a.name)
		}
	}
	for _, id := range []string{"id 0", "id 1"} {
		d := x.l.describe(id)
		if slices.Contains([]string{"Ongoing", "PrepareCommit", "PrepareAbort"}, d.State) {
			x.fault("T5: %s is %s at the end", id, d.State)
		}
	}
}

func TestTurmoil(t *testing.T) {
	total := 0
	for seed := range uint64(25) {
		faults, done := runTurmoil(t, seed, partition.Flaws{})
		require.Empty(t, faults, "seed %d", seed)
		total += done
	}
	require.Greater(t, total, 500, "transactions that were ended")
}

// The checks find faults that are planted.
func TestTurmoilFindsFlaws(t *testing.T) {
	for name, flaws := range map[string]partition.Flaws{
		"SameEpoch": {SameEpoch: true}, "SkipMarker": {SkipMarker: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				if faults, _ := runTurmoil(t, seed, flaws); len(faults) > 0 {
					t.Logf("seed %d: %s", seed, faults[0])
					return
				}
			}
			require.Fail(t, "not found")
		})
	}
}
