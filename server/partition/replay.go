package partition

import (
	"errors"
	"fmt"

	"millrace/record"
)

// errReplayed ends a scan that has seen enough.
var errReplayed = errors.New("replayed")

// loadProducers reads the producers' state unless that is done: the newest snapshot that can be
// read, then the headers of the batches after it. Batches that this leader appended without the
// state carry no sequences, so the replay ends where the log ended at open. From then on the last stable offset is
// known. The slot is held.
func (c *local) loadProducers() error {
	if c.log.AbortedLost() {
		if err := c.rebuildAborted(); err != nil {
			return err
		}
	}
	if c.producers != nil {
		return nil
	}
	now := c.store.now().UnixMilli()
	p, from, err := c.readSnapshot(now)
	if err != nil {
		return fmt.Errorf("load producer state: %w", err)
	}
	err = c.replay(from, c.replayTo, func(b record.Batch) error {
		p.fold(b, now)
		return nil
	})
	if err != nil {
		return err
	}
	c.producers = p
	c.mu.Lock()
	defer c.mu.Unlock()
	c.txns = p.txns
	c.stableLocked()
	return nil
}

// replay calls f with the batches from an offset on that begin below another one.
func (c *local) replay(from, to int64, f func(record.Batch) error) error {
	if from >= to {
		return nil
	}
	err := c.log.Scan(max(from, c.log.StartOffset()), func(b record.Batch) error {
		if b.BaseOffset() >= to {
			return errReplayed
		}
		return f(b)
	})
	if err != nil && !errors.Is(err, errReplayed) {
		return fmt.Errorf("replay producer state from offset %d: %w", from, err)
	}
	return nil
}

// rebuildAborted makes the index of aborted transactions complete. Where a transaction began is known from a snapshot
// of before, or from the log. The slot is held.
func (c *local) rebuildAborted() error {
	now := c.store.now().UnixMilli()
	err := c.log.RebuildAborted(func(from int64) error {
		p, at, err := c.readSnapshotBefore(from, now)
		if err != nil {
			return err
		}
		return c.replay(at, c.log.EndOffset(), func(b record.Batch) error {
			if t, aborted := p.fold(b, now); aborted && t.LastOffset >= from {
				return c.log.AppendAborted(t)
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("make the index of aborted transactions anew: %w", err)
	}
	return nil
}

// readSnapshotBefore finds the newest usable snapshot at or below an offset, and the offset it covers up to.
func (c *local) readSnapshotBefore(offset, now int64) (*producers, int64, error) {
	for {
		at, payload, ok, err := c.log.ProducerSnapshotBefore(offset)
		if err != nil || !ok {
			start := c.log.StartOffset()
			return newProducers(start > 0), start, err
		}
		if p, err := decodeProducers(payload, now); err == nil {
			return p, at, nil
		}
		offset = at - 1
	}
}

// readSnapshot finds the newest usable snapshot and the offset it covers up to. Snapshots beyond the
// log's end and damaged ones are deleted; without any the replay starts at the first batch.
func (c *local) readSnapshot(now int64) (*producers, int64, error) {
	for {
		offset, payload, ok, err := c.log.LoadProducerSnapshot()
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			start := c.log.StartOffset()
			return newProducers(start > 0), start, nil
		}
		if offset <= c.replayTo {
			p, err := decodeProducers(payload, now)
			if err == nil {
				return p, offset, nil
			}
			c.logger().Warn("producer snapshot dropped", "offset", offset, "err", err)
		}
		if err := c.log.DropProducerSnapshotsAfter(offset - 1); err != nil {
			return nil, 0, err
		}
	}
}

// saveProducers writes a snapshot of the state before offset. A failure costs a longer replay at the
// next start.
func (c *local) saveProducers(offset int64) {
	if err := c.log.SaveProducerSnapshot(offset, c.producers.encode()); err != nil {
		c.logger().Warn("producer state not saved", "offset", offset, "err", err)
		return
	}
	c.snapshotAt = offset
}

// ProducerState is what the partition knows of one producer.
type ProducerState struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1 when no batch is remembered
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnFirstOffset   int64 // -1 when no transaction is open
}

// Producers lists the partition's producers by id, or only one of them when id is not -1.
func (c *local) Producers(id int64) ([]ProducerState, error) {
	c.slot.hold()
	defer c.slot.release()
	if c.closed {
		return nil, c.whyGone()
	}
	if err := c.loadProducers(); err != nil {
		return nil, err
	}
	ids := []int64{id}
	if id == none {
		ids = c.producers.ids()
	}
	states := make([]ProducerState, 0, len(ids))
	for _, id := range ids {
		if e := c.producers.entries[id]; e != nil {
			states = append(states, e.state(id))
		}
	}
	return states, nil
}

func (e *producer) state(id int64) ProducerState {
	s := ProducerState{
		ID: id, Epoch: e.epoch, LastSequence: none, LastTimestamp: e.lastTimestamp,
		CoordinatorEpoch: e.coordinatorEpoch, TxnFirstOffset: e.txnFirstOffset,
	}
	if e.count > 0 {
		s.LastSequence = e.newest().lastSequence
	}
	return s
}
