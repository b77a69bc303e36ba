package partition

import (
	"context"
	"errors"

	"millrace/record"
	"millrace/storage"
)

// Cleaner compacts replicas' logs, one at a time, each replica its own whatever its role. It keeps its memory between
// rounds until Release.
type Cleaner struct {
	compactor storage.Compactor
}

// NewCleaner makes a Cleaner.
func NewCleaner() *Cleaner { return new(Cleaner) }

// Release gives the memory up.
func (c *Cleaner) Release() { c.compactor.Release() }

// CleanOptions is what a round goes by beside the topic's settings.
type CleanOptions struct {
	MapBytes, BufferBytes int
	// Pace hears of bytes read and written, and may wait.
	Pace func(ctx context.Context, bytes int) error
}

// Compacted says whether the topic's cleanup.policy contains compact.
func (r *Replica) Compacted() bool { return r.settings.Load().compact.on }

// Dirty tells how much of the log is dirty, and whether that is enough to compact it.
func (r *Replica) Dirty() (ratio float64, due bool, err error) {
	s := r.settings.Load().compact
	if !s.on {
		return 0, false, nil
	}
	now := r.store.now()
	oldest := now.Add(-s.maxLag)
	d, err := r.log.Dirty(storage.DirtyQuery{
		Bound: r.Bounds().LastStable, MinLag: s.minLag, Age: oldest.UnixMilli() > 0 && oldest.Before(now),
	})
	if err != nil || d.From >= d.To {
		return 0, false, r.cleanFailed(err)
	}
	late := d.Oldest >= 0 && d.Oldest < oldest.UnixMilli()
	return d.Ratio(), late || d.DirtyBytes > 0 && d.Ratio() > s.minRatio, nil
}

// Cleaned is what a round did.
type Cleaned = storage.CompactResult

// Clean does a round of compaction, and says what was done also with an error. It is none when the round had to end
// early, because the log was to be cut, closed or removed, or is to be compacted no longer.
func (r *Replica) Clean(ctx context.Context, c *Cleaner, o CleanOptions) (Cleaned, error) {
	settings := r.settings.Load()
	bounds, err := r.StableBounds()
	if err != nil {
		return Cleaned{}, err
	}
	keep, err := r.keepers(bounds.LastStable)
	if err != nil {
		return Cleaned{}, err
	}
	options := storage.CompactOptions{
		Bound: bounds.LastStable, MinLag: settings.compact.minLag, DeleteRetention: settings.compact.deleteRetention,
		MapBytes: o.MapBytes, BufferBytes: o.BufferBytes, Keep: keep, Level: cleanLevel(&settings.limits),
		Pace: func(ctx context.Context, bytes int) error {
			if !r.settings.Load().compact.on {
				return storage.ErrCompactionStopped
			}
			return o.Pace(ctx, bytes)
		},
	}
	res, err := c.compactor.Run(ctx, r.log, &options)
	if errors.Is(err, storage.ErrAbortedLost) {
		if err = r.renewAborted(); err == nil {
			res, err = c.compactor.Run(ctx, r.log, &options)
		}
	}
	return res, r.cleanFailed(err)
}

// cleanLevel is the level at which compaction compresses batches anew: that of the topic where this compresses by the
// codec, else the fastest.
func cleanLevel(l *record.Limits) func(record.Codec) int {
	return func(c record.Codec) int {
		switch {
		case l.Compression == c.String():
			return l.Level(c)
		case c == record.Gzip, c == record.Zstd:
			return 1
		}
		return 0
	}
}

// cleanFailed is readFailed, but that a log which was closed needs no compaction.
func (r *Replica) cleanFailed(err error) error {
	if err == nil || errors.Is(err, storage.ErrClosed) || errors.Is(err, storage.ErrCompactionStopped) {
		return nil
	}
	return r.readFailed(none, err)
}

// keeper is a producer that a partition remembers, for what of it compaction must keep.
type keeper struct {
	last   int64 // offset of its newest batch, none if only a marker is left of it
	stable int64 // of its newest below the last stable offset, which alone is certain to stay
	epoch  int16
}

// keepers says which batches have to be kept although their records are gone: those by whose headers the sequences and
// epochs of producers are known, should the state be read anew from the log.
func (c *local) keepers(stable int64) (func(b record.Batch) bool, error) {
	c.slot.hold()
	defer c.slot.release()
	if c.closed {
		return nil, c.whyGone()
	}
	if err := c.loadProducers(); err != nil {
		return nil, c.readFailed(none, err)
	}
	all := make(map[int64]keeper, len(c.producers.entries))
	for id, e := range c.producers.entries {
		k := keeper{last: e.lastOffset(), stable: none, epoch: e.epoch}
		for _, w := range e.batches[:e.count] {
			if w.lastOffset < stable {
				k.stable = w.lastOffset
			}
		}
		all[id] = k
	}
	return func(b record.Batch) bool {
		k, known := all[b.ProducerID()]
		switch {
		case !known:
			return false
		case b.IsControl():
			return k.last == none && b.ProducerEpoch() == k.epoch
		}
		return b.LastOffset() == k.last || b.LastOffset() == k.stable
	}, nil
}
