package partition

import (
	"context"
	"sync/atomic"
)

// slot is a lock that is held over file writes. Who waits for it waits on a channel, so that waiting
// can be given up and does not stop fake time. Release hands the slot to nobody: whoever runs takes it,
// and who was woken tries again. Handed over in turn it would lie idle until the next in line runs, which
// behind a thousand busy connections is long.
//
// Invariant: while the slot is free and somebody waits, free holds a token or a woken waiter is about to
// try.
type slot struct {
	held    atomic.Bool
	waiting atomic.Int32
	free    chan struct{} // one token at most
}

func newSlot() slot { return slot{free: make(chan struct{}, 1)} }

func (s *slot) take(ctx context.Context) error {
	if s.held.CompareAndSwap(false, true) {
		return nil
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	for !s.held.CompareAndSwap(false, true) {
		select {
		case <-s.free:
		case <-ctx.Done():
			s.wake() // the token may have been meant for this one
			return ctx.Err()
		}
	}
	return nil
}

// hold takes the slot however long that takes.
func (s *slot) hold() { _ = s.take(context.Background()) }

func (s *slot) release() {
	s.held.Store(false)
	if s.waiting.Load() > 0 {
		s.wake()
	}
}

func (s *slot) wake() {
	select {
	case s.free <- struct{}{}:
	default: // somebody is being woken already
	}
}
