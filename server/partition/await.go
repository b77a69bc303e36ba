package partition

import (
	"context"
	"errors"
)

// An acks=all produce waits for its batch to be committed. Where the leader that appended the batch is deposed
// before, the wait goes on as long as the replica stays on the node, and what has become of the batch is read off
// the log as it follows the next leaders. An offset that was written in a leader epoch holds one batch in whatever
// log has that epoch there, so:
//
//   - The batch is committed when the high watermark is past it and the log has its epoch at its offset.
//   - It is discarded for good when the high watermark is past it and the log has another epoch there.
//   - It is discarded for good when the log does not hold it and is settled, which the leader says: all that
//     the leader had when its epoch began is in this log, and no replica that can lead next, unless by an unclean
//     election, has anything else.
//
// That the log was truncated is not enough: a replica that has not followed the new leader yet may hold the batch,
// be elected next, and have it committed.

// fate is what has become of a batch whose leader was deposed.
type fate uint8

const (
	undecided fate = iota
	committed
	discarded // no log that counts has it, or ever will
	forgotten // the log starts behind it
)

// err is what the produce is told. A batch that is not decided stays unknown.
func (f fate) err() error {
	switch f {
	case committed:
		return nil
	case discarded:
		return ErrDiscarded
	}
	return ErrLeadershipLost
}

// AwaitCommitted waits until what was appended is committed, at most until the waiter's time is over. An error
// other than ErrDiscarded leaves open whether it will be.
func (l *Leader) AwaitCommitted(ctx context.Context, w *Waiter, a *Appended) error {
	for !l.Committed(a.Next) {
		n, err := l.join(w, a)
		if err != nil {
			return err
		}
		err = w.Wait(ctx)
		w.Leave()
		switch {
		case n.fate != undecided:
			return n.fate.err()
		case errors.Is(err, ErrTimeout) && l.ended() && !l.Committed(a.Next):
			return ErrLeadershipLost
		case err != nil && !l.Committed(a.Next):
			return err
		}
	}
	in, required := len(l.role.Load().ISR), l.settings.Load().minInSync
	if in < required {
		return &IsrError{InSync: in, Required: required, Written: true}
	}
	return nil
}

// Committed reports whether the high watermark has reached next while this replica led.
func (l *Leader) Committed(next int64) bool {
	hw := l.hw.Load()
	if final := l.final.Load(); final != none {
		return final >= next
	}
	return hw >= next || l.store.env.Flaws.AckEarly
}

// join registers a produce that waits for the high watermark to pass its batch.
func (l *Leader) join(w *Waiter, a *Appended) (*waitNode, error) {
	n := w.node(l.local, a.Next)
	n.epoch, n.fate = a.Epoch, undecided
	l.mu.Lock()
	late := false
	defer func() {
		l.mu.Unlock()
		if late {
			l.store.env.OnOrphan(l.name)
		}
	}()
	switch {
	case l.gone != nil:
		return n, lost(l.gone)
	case l.ended():
		late = !l.orphanLocked(n)
		return n, nil
	}
	l.waiters.insert(n)
	if l.hw.Load() >= n.target {
		w.wake()
	}
	l.grownLocked(true) // a fetch that lingers has something that is waited for now
	return n, nil
}

// lost is what a request that waits for its batch hears when the partition has ended: the batch is there, and
// may be committed by the next leader.
func lost(why error) error {
	if errors.Is(why, ErrNotLeader) {
		return ErrLeadershipLost
	}
	return why
}

// orphanLocked takes over a wait for a batch whose leader was deposed, and reports whether it could be decided at
// once.
func (c *local) orphanLocked(n *waitNode) (decided bool) {
	settled := false
	if l := c.leader.Load(); l != nil {
		settled = l.settledLocked()
	}
	if n.fate = c.fateLocked(n, settled); n.fate != undecided {
		n.waiter.wake()
		return true
	}
	c.orphans.insert(n)
	return false
}

// decideLocked ends the waits for batches of deposed leaders that can be decided now.
func (c *local) decideLocked(settled bool) {
	for n := c.orphans.head; n != nil; {
		next := n.next
		if n.fate = c.fateLocked(n, settled); n.fate != undecided {
			c.orphans.remove(n)
			n.waiter.wake()
		}
		n = next
	}
}

// fateLocked reads what has become of a batch off the log.
func (c *local) fateLocked(n *waitNode, settled bool) fate {
	passed := c.hw.Load() >= n.target
	holds, err := c.holds(n)
	switch {
	case err != nil: // the log has ended, which is told by itself
		return undecided
	case n.target <= c.log.StartOffset():
		return forgotten
	case holds && passed:
		return committed
	case !holds && (passed || settled):
		return discarded
	}
	return undecided
}

// holds says whether the batch is in the log.
func (c *local) holds(n *waitNode) (bool, error) {
	epoch, err := c.log.EpochFor(n.target - 1)
	return n.target <= c.log.EndOffset() && epoch == n.epoch, err
}

// astrayLocked says whether somebody waits for a batch that the log does not hold.
func (c *local) astrayLocked() bool {
	for n := c.orphans.head; n != nil; n = n.next {
		if holds, err := c.holds(n); err == nil && !holds {
			return true
		}
	}
	return false
}
