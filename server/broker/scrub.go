package broker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"millrace/server/partition"
)

// A scrub reads all that is committed in the logs of this node, so that damage is found while other replicas can still
// make up for it, also where no reader comes by. What it finds is treated as if a reader had met it. One goroutine
// scrubs one log after the other, in pieces, at a bounded rate; the sweep says when.

const (
	// scrubRate is how many bytes a second a scrub reads.
	scrubRate = 20 << 20
	// scrubPiece is read at a time.
	scrubPiece = 1 << 20
	// scrubLeast is what a piece costs at least, so that many small logs are not gone through in a rush.
	scrubLeast = 16 << 10
	// scrubSpread is the part of the interval in which a node begins with the first scrub after its start: nodes that
	// start together shall not scrub together.
	scrubSpread = 7
)

// scrubFirst is the time from the start to the first scrub.
func (b *Broker) scrubFirst(interval time.Duration) time.Duration {
	const step = 64
	spread := interval / scrubSpread
	return spread/2 + spread/2*time.Duration(b.cfg.NodeID%step)/step
}

// planScrub begins a scrub when it is time for one, and plans the next. An interval of 0 is none.
func (b *Broker) planScrub(d *deadline, now time.Time, interval time.Duration) {
	if interval <= 0 {
		d.next = time.Time{}
		return
	}
	if latest := now.Add(interval); d.next.After(latest) {
		d.next = latest
	}
	if d.due(now, b.scrubFirst(interval)) {
		select {
		case b.scrubDue <- struct{}{}:
		default: // it has not begun with the last yet
		}
	}
}

// scrub runs until the broker closes.
func (b *Broker) scrub() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.scrubDue:
		}
		for _, n := range b.view.Load().names() {
			r := b.view.Load().replica(n)
			if r == nil || r.Offline() != nil || b.isr.resigning(n) {
				continue
			}
			if b.scrubReplica(r); b.ctx.Err() != nil {
				return
			}
		}
	}
}

// scrubReplica scrubs what is committed by now in one log.
func (b *Broker) scrubReplica(r *partition.Replica) {
	bounds := r.Bounds()
	for next := bounds.LogStart; next < bounds.HighWatermark; {
		s, err := r.Scrub(next, scrubPiece)
		if err != nil && b.ctx.Err() == nil {
			s.Next = b.scrubFailed(r, err)
		}
		if s.Next <= next {
			return
		}
		next = s.Next
		if !b.pause(max(s.Bytes, scrubLeast)) {
			return
		}
	}
}

// scrubFailed takes up an error and gives the offset to go on at; 0 is none.
func (b *Broker) scrubFailed(r *partition.Replica, err error) int64 {
	n := r.Name()
	var damage *partition.DamageError
	found := errors.As(err, &damage)
	if found {
		b.metrics.scrubCorrupt.Inc()
	}
	switch {
	case b.noticed(n, err): // it will be fetched anew
	case found:
		return damage.Next
	case !errors.Is(err, partition.ErrNotLeader) && !errors.Is(err, partition.ErrDeleted):
		b.cfg.Logger.Warn("log cannot be scrubbed", "topic", n.Topic, "partition", n.Partition, "err", err)
	}
	return 0
}

// pause waits for as long as so many bytes may take. It is false when the broker closes.
func (b *Broker) pause(bytes int) bool {
	timer := time.NewTimer(time.Duration(bytes) * time.Second / scrubRate)
	defer timer.Stop()
	select {
	case <-b.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// names are those of the partitions with a replica here, in order.
func (v *view) names() (names []partition.Name) {
	v.all(func(h *hosted) {
		for i := range h.parts {
			if r := h.parts[i].replica; r != nil {
				names = append(names, r.Name())
			}
		}
	})
	slices.SortFunc(names, func(a, b partition.Name) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return names
}

// replica is that of a partition on this node, or nil.
func (v *view) replica(n partition.Name) *partition.Replica {
	h := v.hosted(n.TopicID)
	if h == nil || int(n.Partition) >= len(h.parts) {
		return nil
	}
	return h.parts[n.Partition].replica
}
