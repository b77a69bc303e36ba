package partition

import (
	"errors"
	"slices"

	"millrace/storage"
)

// stableAt is the last stable offset that goes with a high watermark. That was read before, so what is counted as
// unstable since lies above it.
func (c *local) stableAt(hw int64) int64 {
	u := c.unstable.Load()
	if u == unknownStable || u >= hw {
		return hw
	}
	if c.store.env.Flaws.LSOOffByOne {
		u++
	}
	return u
}

// StableBounds are Bounds with the last stable offset as it is, for which the producers' state is read if need be. A
// log that never had a transaction needs none of that.
func (c *local) StableBounds() (Bounds, error) {
	if b := c.Bounds(); c.unstable.Load() != unknownStable {
		return b, nil
	}
	c.slot.hold()
	defer c.slot.release()
	if err := c.knowStable(); err != nil {
		return Bounds{none, none, none, none}, err
	}
	return c.Bounds(), nil // nothing makes it unknown while the slot is held
}

// knowStable makes the last stable offset known. The slot is held.
func (c *local) knowStable() error {
	if c.closed {
		return c.whyGone()
	}
	transactional, err := c.log.Transactional()
	if err != nil {
		return c.readFailed(none, err)
	}
	if !transactional {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.txns == nil {
			c.unstable.Store(allStable)
		}
		return nil
	}
	if err := c.loadProducers(); err != nil {
		return c.readFailed(none, err)
	}
	return nil
}

// stableLocked takes up what has become of transactions and of the high watermark, and tells whether the last stable
// offset has risen. The replica's mu is held.
func (c *local) stableLocked() (risen bool) {
	if c.txns == nil {
		return false
	}
	hw := c.hw.Load()
	c.txns.commit(hw)
	was := c.unstable.Swap(c.txns.unstable())
	return was != unknownStable && min(c.unstable.Load(), hw) > min(was, hw)
}

// forgetStableLocked makes the last stable offset be looked for anew. The replica's mu is held.
func (c *local) forgetStableLocked() {
	c.txns = nil
	c.unstable.Store(unknownStable)
}

// visibleLocked is where what a waiting consumer may read ends.
func (c *local) visibleLocked(n *waitNode) int64 {
	if n.stable {
		return c.stableAt(c.hw.Load())
	}
	return c.hw.Load()
}

// wakeStableLocked wakes the consumers that wait for the last stable offset to rise.
func (c *local) wakeStableLocked() {
	for n := c.waiters.head; n != nil; {
		next := n.next
		if n.stable {
			c.waiters.remove(n)
			n.waiter.wake()
		}
		n = next
	}
}

// track takes up what a batch did to transactions that is in the log. An abort has its index entry already. The slot is
// held.
func (c *local) track(ch change) {
	if ch.begins == none && ch.ended == none {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.begins != none {
		c.txns.begin(ch.begins)
	}
	if ch.ended != none {
		c.txns.end(ch.ended, ch.marker)
	}
	if c.stableLocked() {
		c.wakeStableLocked()
	}
}

// AbortedTransaction is one of which a reader of committed records skips the data: from FirstOffset on to its
// producer's next ABORT marker.
type AbortedTransaction struct{ ProducerID, FirstOffset int64 }

// aborted lists the aborted transactions with data in [from, to), by where they begin.
func (c *local) aborted(from, to int64) ([]AbortedTransaction, error) {
	if c.store.env.Flaws.SkipAbortedIndex {
		return nil, nil
	}
	if transactional, err := c.log.Transactional(); err != nil || !transactional {
		return nil, err
	}
	found, err := c.log.Aborted(from, to)
	for tries := 0; errors.Is(err, storage.ErrAbortedLost) && tries < maxRebuilds; tries++ {
		if err = c.renewAborted(); err == nil || errors.Is(err, storage.ErrAbortedLost) {
			found, err = c.log.Aborted(from, to)
		}
	}
	if err != nil {
		return nil, err
	}
	list := make([]AbortedTransaction, len(found))
	for i, t := range found {
		list[i] = AbortedTransaction{ProducerID: t.ProducerID, FirstOffset: t.FirstOffset}
	}
	slices.SortFunc(list, func(a, b AbortedTransaction) int { return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1)) })
	return list, nil
}

// maxRebuilds bounds how often one read has the index made anew.
const maxRebuilds = 3

func (c *local) renewAborted() error {
	c.slot.hold()
	defer c.slot.release()
	if c.closed {
		return c.whyGone()
	}
	return c.rebuildAborted()
}
