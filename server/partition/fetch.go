package partition

import (
	"errors"

	"millrace/storage"
)

// FetchRequest asks for the batches of one partition from an offset on.
type FetchRequest struct {
	Offset      int64
	LeaderEpoch int32              // what the client believes, or -1
	MaxBytes    int                // one whole batch may exceed it
	Alloc       func(n int) []byte // where to put the records; the heap when nil
	BoundsOnly  bool               // the answer has no room for records
	// ReadCommitted ends the answer at the last stable offset instead of the high watermark.
	ReadCommitted bool
}

// Fetched is a part of the log as a consumer may see it.
type Fetched struct {
	Bounds
	Records []byte // whole batches
	Next    int64  // offset after Records
	// Aborted are those transactions in Records that were aborted, with ReadCommitted, by where they begin.
	Aborted []AbortedTransaction
	// Unsettled says that the leader is new and does not know yet how much of what it found in its log is
	// committed: an earlier leader may have shown, and acknowledged, more than Bounds tells.
	Unsettled bool
}

// Fetch reads committed batches. Nothing to read yet is no error; the bounds are filled even when
// there is one.
func (l *Leader) Fetch(r FetchRequest) (Fetched, error) {
	if err := l.checkEpoch(r.LeaderEpoch); err != nil {
		return Fetched{Bounds: Bounds{none, none, none, none}}, err
	}
	f, err := l.read(r)
	if role := l.role.Load(); f.HighWatermark < role.epochStart && err == nil {
		f.Unsettled = len(role.ISR) >= needed(&role.Role, l.settings.Load().minInSync)
	}
	return f, err
}

// maxJudgements bounds how often a read is judged anew because the log's bounds moved under it.
const maxJudgements = 10

// read reads below the high watermark, or the last stable offset. Whether the offset lies in the log is judged by the
// bounds that are answered: a log whose start has moved past the offset while it was read is looked at again.
func (c *local) read(r FetchRequest) (f Fetched, err error) {
	for range maxJudgements {
		f = Fetched{Bounds: c.Bounds(), Next: r.Offset}
		if err = f.judge(r.Offset); err != nil { // which a log that is offline still says
			return f, err
		}
		if r.ReadCommitted {
			if f.Bounds, err = c.StableBounds(); err != nil {
				return f, err
			}
			if err = f.judge(r.Offset); err != nil {
				return f, err
			}
		}
		if err = c.readWithin(r, &f); !errors.Is(err, storage.ErrOutOfRange) {
			return f, err
		}
	}
	return f, ErrOffsetUnknown
}

// judge says of an offset outside the log that it is.
func (b *Bounds) judge(offset int64) error {
	if offset < b.LogStart || offset > b.LogEnd {
		return outOfRange(offset, *b)
	}
	return nil
}

// readWithin reads what lies within the bounds that f has. It is out of range where they hold no more.
func (c *local) readWithin(r FetchRequest, f *Fetched) error {
	limit := f.HighWatermark
	if r.ReadCommitted {
		limit = f.LastStable
	}
	if r.Offset >= limit || r.BoundsOnly {
		return nil
	}
	generation := c.log.Generation()
	for tries := 0; ; tries++ {
		res, err := c.log.Read(r.Offset, r.MaxBytes, limit, r.Alloc)
		if err != nil {
			return c.readFailed(r.Offset, err)
		}
		if r.ReadCommitted && len(res.Batches) > 0 {
			if f.Aborted, err = c.aborted(r.Offset, res.NextOffset); err != nil {
				return c.readFailed(r.Offset, err)
			}
			if c.hw.Load() < res.NextOffset { // truncated meanwhile
				return nil
			}
			now := c.log.Generation()
			if now != generation && tries < maxRebuilds { // compacted meanwhile: what was read may not be what is listed
				generation = now
				continue
			}
		}
		f.Records, f.Next = res.Batches, res.NextOffset
		return nil
	}
}

func outOfRange(offset int64, b Bounds) error {
	return &storage.OutOfRangeError{Offset: offset, Start: b.LogStart, End: b.LogEnd}
}

// Watch registers a fetch that saw the partition at high watermark seen and lacks bytes: the waiter
// is woken when all that its partitions commit amounts to what it lacks. Only what comes after seen
// counts, so a high watermark that has moved since wakes it at once. An error means that the
// partition is not led here any more.
func (l *Leader) Watch(w *Waiter, seen int64) error { return l.watch(w.node(l.local, none), seen) }

// WatchStable is Watch for a fetch that reads up to the last stable offset, and saw that at seen.
func (l *Leader) WatchStable(w *Waiter, seen int64) error {
	n := w.node(l.local, none)
	n.stable = true
	return l.watch(n, seen)
}

func (l *Leader) watch(n *waitNode, seen int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone != nil:
		return l.gone
	case l.ended():
		return ErrNotLeader
	case l.visibleLocked(n) > seen:
		n.waiter.wake()
		return nil
	}
	l.waiters.insert(n)
	l.grownLocked(true)
	return nil
}

// Lack says how many bytes the fetch still needs, before it is registered with leaders.
func (w *Waiter) Lack(bytes int) { w.missing.Store(int64(bytes)) }
