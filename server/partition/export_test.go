package partition

import (
	"context"

	"millrace/record"
)

// LeaderEpoch is the epoch in which this node leads.
func (l *Leader) LeaderEpoch() int32 { return l.role.Load().LeaderEpoch }

// InSync is the ISR as the leader knows it.
func (l *Leader) InSync() []int32 { return l.role.Load().ISR }

// Batches is the whole log, committed or not.
func (c *local) Batches() (all []record.Batch, err error) {
	for from := c.log.StartOffset(); from < c.log.EndOffset(); {
		r, err := c.log.Read(from, 1<<20, c.log.EndOffset(), nil)
		if err != nil {
			return all, err
		}
		for rest := r.Batches; len(rest) > 0; {
			b, after, err := record.Next(rest)
			if err != nil {
				return all, err
			}
			all, rest = append(all, b), after
		}
		from = r.NextOffset
	}
	return all, nil
}

// Synced is the offset below which all is on disk.
func (c *local) Synced() int64 { return c.log.SyncedOffset() }

// SyncLog waits for the disk.
func (c *local) SyncLog() error { return c.log.Sync(context.Background()) }

// Epochs tells where each leader epoch up to most ends, as the log knows it.
func (c *local) Epochs(most int32) (ends []EpochEnd, err error) {
	for e := range most + 1 {
		found, end, ok, err := c.log.EndOffsetForEpoch(e)
		if err != nil {
			return nil, err
		}
		if ok && found == e {
			ends = append(ends, EpochEnd{Epoch: e, EndOffset: end})
		}
	}
	return ends, nil
}
