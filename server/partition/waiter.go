package partition

import (
	"context"
	"sync/atomic"
	"time"

	"millrace/internal/invariant"
)

// Waiter is one request that waits for high watermarks to move: an acks=all produce for its batch to
// be committed, or a fetch for enough bytes. It registers with the leaders it depends on, is woken
// through its channel, and leaves them again. One goroutine uses a Waiter at a time, and it can be
// used again: it keeps its channel, its timer and its list nodes, so a wait costs no memory once warm.
type Waiter struct {
	woken   chan struct{} // capacity 1: a wake-up is never lost and never blocks the leader
	timer   *time.Timer   // nil until the first Start
	over    bool          // the timer has fired since Start
	missing atomic.Int64  // bytes that a fetch still lacks
	nodes   []*waitNode   // the first inUse of them are registered
	inUse   int
}

// waitNode links a waiter into the list of one leader. All but waiter is guarded by the leader's mu
// while it is registered.
type waitNode struct {
	waiter     *Waiter
	leader     *Leader
	prev, next *waitNode
	linked     bool
	target     int64 // produce: the high watermark to wait for; fetch: none
}

// NewWaiter returns a waiter that is registered nowhere.
func NewWaiter() *Waiter { return &Waiter{woken: make(chan struct{}, 1)} }

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

// Wait blocks until a leader wakes the waiter. It answers ErrTimeout when the time is over, and the
// context's error when that ends first.
func (w *Waiter) Wait(ctx context.Context) error {
	if w.over {
		return ErrTimeout
	}
	select {
	case <-w.woken:
		return nil
	case <-w.timer.C:
		w.over = true
		return ErrTimeout
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wake is called by leaders. It never blocks. A wake-up that comes when the waiter has left, or waits
// for something else already, costs that wait one look too many.
func (w *Waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// node takes an unlinked node for l.
func (w *Waiter) node(l *Leader, target int64) *waitNode {
	if w.inUse == len(w.nodes) {
		w.nodes = append(w.nodes, &waitNode{waiter: w})
	}
	n := w.nodes[w.inUse]
	w.inUse++
	n.leader, n.target = l, target
	return n
}

// Leave takes the waiter out of all lists and forgets a wake-up that came meanwhile.
func (w *Waiter) Leave() {
	for _, n := range w.nodes[:w.inUse] {
		n.leader.unlink(n)
		n.leader = nil
	}
	w.inUse = 0
	select {
	case <-w.woken:
	default:
	}
}

// waitList is the doubly linked list of the nodes registered with one leader, and is guarded by the
// leader's mu. Who has waited longest stands first.
type waitList struct{ head, tail *waitNode }

func (l *waitList) insert(n *waitNode) {
	invariant.Check(!n.linked, "a waiter is registered twice through one node")
	n.prev, n.next, n.linked = l.tail, nil, true
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
	n.prev, n.next, n.linked = nil, nil, false
}
