package partition

import (
	"context"
	"sync/atomic"
	"time"

	"millrace/internal/invariant"
)

// Waiter is one request that waits: an acks=all produce for its batch to be committed, a consumer's fetch
// for enough bytes, a follower's fetch for the log to grow. It registers with the partitions it depends on,
// is woken through its channel, and leaves them again. One goroutine uses a Waiter at a time, and it can be
// used again: it keeps its channel, its timers and its list nodes, so a wait costs no memory once warm.
type Waiter struct {
	woken   chan struct{} // capacity 1: a wake-up is never lost and never blocks who wakes
	timer   *time.Timer   // nil until the first Start
	over    bool          // the timer has fired since Start
	missing atomic.Int64  // bytes that a consumer's fetch still lacks
	nodes   []*waitNode   // the first inUse of them are registered
	inUse   int

	linger   time.Duration
	nudged   chan struct{} // capacity 1: there is something that can wait for linger; nil until it is first asked for
	gather   *time.Timer   // runs from the first nudge on; nil until then
	gathered bool          // it runs
}

// waitNode links a waiter into a list of one partition. All but waiter and owner is guarded by the replica's
// mu while it is registered.
type waitNode struct {
	waiter     *Waiter
	owner      *local
	list       *waitList
	prev, next *waitNode
	linked     bool
	target     int64 // produce: the high watermark to wait for; else none
	stable     bool  // consumer: it waits for the last stable offset
	epoch      int32 // produce: the leader epoch that wrote the batch
	fate       fate  // produce: what has become of the batch, when its leader was deposed
	seen       Seen  // follower's fetch: what is no news to it
	nudged     bool  // follower's fetch: it knows that the log has grown
}

// NewWaiter returns a waiter that is registered nowhere.
func NewWaiter() *Waiter { return &Waiter{woken: make(chan struct{}, 1)} }

// Linger says, before the waiter is registered, how long what nobody waits for may be gathered before a
// follower's fetch is answered with it.
func (w *Waiter) Linger(d time.Duration) {
	if w.nudged == nil {
		w.nudged = make(chan struct{}, 1)
	}
	w.linger = d
}

// Start begins the time that all waits until Stop have together.
func (w *Waiter) Start(d time.Duration) {
	w.over = false
	if w.timer == nil {
		w.timer = time.NewTimer(d)
		return
	}
	w.timer.Reset(d)
}

// Stop ends what Start began and forgets all registrations.
func (w *Waiter) Stop() {
	w.Leave()
	w.timer.Stop()
}

// Wait blocks until a partition wakes the waiter, or what may linger has. It answers ErrTimeout when the time
// is over, and the context's error when that ends first.
func (w *Waiter) Wait(ctx context.Context) error {
	if w.over {
		return ErrTimeout
	}
	for {
		var gathered <-chan time.Time
		if w.gathered {
			gathered = w.gather.C
		}
		select {
		case <-w.woken:
			return nil
		case <-w.nudged:
			w.startGathering()
		case <-gathered:
			w.gathered = false
			return nil
		case <-w.timer.C:
			w.over = true
			return ErrTimeout
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *Waiter) startGathering() {
	switch {
	case w.gathered:
		return
	case w.gather == nil:
		w.gather = time.NewTimer(w.linger)
	default:
		w.gather.Reset(w.linger)
	}
	w.gathered = true
}

// wake is called by partitions. It never blocks. A wake-up that comes when the waiter has left, or waits
// for something else already, costs that wait one look too many.
func (w *Waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// nudge tells that there is something which may linger.
func (w *Waiter) nudge() {
	if w.nudged == nil {
		w.wake()
		return
	}
	select {
	case w.nudged <- struct{}{}:
	default:
	}
}

// node takes an unlinked node for a partition.
func (w *Waiter) node(owner *local, target int64) *waitNode {
	if w.inUse == len(w.nodes) {
		w.nodes = append(w.nodes, &waitNode{waiter: w})
	}
	n := w.nodes[w.inUse]
	w.inUse++
	n.owner, n.target, n.stable = owner, target, false
	return n
}

// Leave takes the waiter out of all lists and forgets a wake-up that came meanwhile.
func (w *Waiter) Leave() {
	for _, n := range w.nodes[:w.inUse] {
		n.owner.unlink(n)
		n.owner = nil
	}
	w.inUse = 0
	select {
	case <-w.woken:
	default:
	}
	select {
	case <-w.nudged:
	default:
	}
	if w.gathered {
		w.gather.Stop()
		w.gathered = false
	}
}

// waitList is a doubly linked list of nodes registered with one partition, and is guarded by its mu. Who has
// waited longest stands first.
type waitList struct{ head, tail *waitNode }

func (l *waitList) insert(n *waitNode) {
	invariant.Check(!n.linked, "a waiter is registered twice through one node")
	n.list, n.prev, n.next, n.linked = l, l.tail, nil, true
	if l.tail != nil {
		l.tail.next = n
	} else {
		l.head = n
	}
	l.tail = n
}

// remove does nothing with a node that was taken out by a wake-up.
func (l *waitList) remove(n *waitNode) {
	if !n.linked {
		return
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		l.head = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		l.tail = n.prev
	}
	n.list, n.prev, n.next, n.linked = nil, nil, nil, false
}

// wakeAll empties the list.
func (l *waitList) wakeAll() {
	for n := l.head; n != nil; n = l.head {
		l.remove(n)
		n.waiter.wake()
	}
}
