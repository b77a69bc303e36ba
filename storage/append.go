package storage

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"millrace/internal/invariant"
	"millrace/record"
)

// AppendResult says what an append did beside writing.
type AppendResult struct {
	Rolled         bool  // the batch is the first of a new segment
	Aborts         bool  // of AppendFollower: there are ABORT markers among the batches, so SettleAborted is to come
	NewSegmentBase int64 // that segment's base offset: the producer state up to here is worth saving
}

// Append writes one prepared batch at the end. The caller has stamped base offset (the log end
// offset) and leader epoch. When Append returns without error the batch is readable, but only
// durable once SyncedOffset has passed it. After ErrDiskFull nothing was appended and the log stays
// in use; after ErrOffline nobody can say whether the batch will be there when the log is opened
// again. b is not kept.
func (l *Log) Append(b record.Batch) (AppendResult, error) { return l.append(b, nil) }

// AppendAborting is Append for an ABORT marker, with its entry in the index of aborted transactions.
func (l *Log) AppendAborting(b record.Batch, t AbortedTxn) (AppendResult, error) {
	return l.append(b, &t)
}

func (l *Log) append(b record.Batch, t *AbortedTxn) (AppendResult, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return AppendResult{}, err
	}
	l.assertNext(b)

	if b.IsTransactional() && !l.transactional.Load() {
		if err := l.beginTransactionalLocked(); err != nil {
			return AppendResult{}, err
		}
	}
	var result AppendResult
	active := list.active()
	c := l.config.Load()
	due, err := l.rollDueLocked(active, b, c)
	if err != nil {
		return result, err
	}
	if due {
		if active, err = l.rollLocked(list); err != nil {
			return result, err
		}
		result = AppendResult{Rolled: true, NewSegmentBase: active.base}
	}
	if err := l.writeLocked(active, b, c); err != nil {
		return result, err
	}
	if t != nil {
		if err := l.addAbortedLocked(active, *t); err != nil {
			return result, err
		}
	}
	l.dir.appended(1, len(b))
	l.afterAppend(c)
	return result, nil
}

// assertNext asserts that the batch may come next. The checks stand behind their conditions, because
// the arguments of their messages would cost memory at every append.
func (l *Log) assertNext(b record.Batch) {
	whole := len(b) >= record.HeaderSize && len(b) == b.Length() && b.LastOffsetDelta() >= 0
	if whole && b.BaseOffset() == l.end.Load() && b.LeaderEpoch() >= l.epochs.latest() {
		return
	}
	invariant.Check(whole, "%s: appending %d bytes that are not one batch", l.path, len(b))
	invariant.Check(b.BaseOffset() == l.end.Load(),
		"%s: appending offset %d at log end %d", l.path, b.BaseOffset(), l.end.Load())
	invariant.Check(b.LeaderEpoch() >= l.epochs.latest(),
		"%s: appending in epoch %d after %d", l.path, b.LeaderEpoch(), l.epochs.latest())
}

// rollDueLocked says whether the batch must open a new segment.
func (l *Log) rollDueLocked(s *segment, b record.Batch, c *Config) (bool, error) {
	size := s.size.Load()
	if size == 0 {
		return false, nil
	}
	if size > c.SegmentBytes-int64(len(b)) || s.indexesFullLocked(c.IndexBytes) || b.LastOffset()-s.base > maxRelative {
		return true, nil
	}
	first, err := s.firstTimestampLocked()
	if err != nil {
		return false, err
	}
	age := c.SegmentAge - s.jitter
	if first >= 0 {
		// Not by a subtraction of durations: timestamps are what producers make of them.
		return b.MaxTimestamp() > first && uint64(b.MaxTimestamp()-first) > uint64(age.Milliseconds()), nil
	}
	return l.dir.now().Sub(s.created) > age, nil
}

// maxRelative is the greatest relative offset that an index entry holds.
const maxRelative = 1<<31 - 1

// firstTimestampLocked gives the greatest timestamp of the segment's first batch.
func (s *segment) firstTimestampLocked() (int64, error) {
	if s.firstTimestamp == unknownTimestamp {
		w := s.walk(0, s.size.Load())
		defer w.close()
		b, _, err := w.header()
		if err != nil {
			return 0, err
		}
		s.firstTimestamp = b.MaxTimestamp()
	}
	return s.firstTimestamp, nil
}

// writeLocked writes the batch behind the segment's last and makes it visible.
func (l *Log) writeLocked(s *segment, b record.Batch, c *Config) error {
	pos, err := l.putLocked(s, b, File.WriteAt)
	if err != nil {
		return err
	}
	l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
	l.mu.Lock()
	s.observe(b)
	l.shownLocked(s, pos+int64(len(b)), b.NextOffset())
	l.mu.Unlock()
	s.indexLocked(b, pos, c.IndexInterval)
	if s.offsets.tailFullLocked() {
		return l.saveTailsLocked(s)
	}
	return nil
}

// putLocked writes bytes behind the segment's last, in the given way, and gives where they begin. Nobody sees them yet.
func (l *Log) putLocked(
	s *segment, p []byte, write func(f File, p []byte, off int64) (int, error),
) (pos int64, err error) {
	pos = s.size.Load()
	fresh := pos == 0 && s.pinned == nil
	f, err := s.pinLocked(OpenCreate)
	if fresh {
		l.namesChanged() // the file may have been made
	}
	if err != nil {
		return pos, l.writeFailed(err)
	}
	if _, err := write(f, p, pos); err != nil {
		err = fmt.Errorf("write %s: %w", s.fileName(logKind), err)
		if cut := f.Truncate(pos); cut != nil {
			return pos, l.fail(errors.Join(err, cut)) // the next batch would not follow the last whole one
		}
		return pos, l.writeFailed(err)
	}
	return pos, nil
}

// shownLocked makes what was put visible, up to the given size of the segment and log end. mu is held too.
func (l *Log) shownLocked(s *segment, size, end int64) {
	s.size.Store(size)
	l.end.Store(end)
	if !s.queued {
		s.queued = true
		l.unsynced = append(l.unsynced, s)
	}
}

// saveTailsLocked writes the indexes' entries to their files, without syncing those. The batch is
// appended already, so a full disk is no error, nor is having no file left to open: the entries stay
// in memory until there is room.
func (l *Log) saveTailsLocked(s *segment) error {
	s.indexChanged = true // the next checkpoint syncs the files
	for _, x := range []*index{&s.offsets, &s.times} {
		first := x.state.Load().saved == 0
		f, err := s.saveIndexLocked(x)
		if first {
			l.namesChanged()
		}
		if isPassing(err) {
			return nil
		}
		if err != nil {
			return l.fail(err)
		}
		if err := f.Close(); err != nil {
			return l.fail(err)
		}
	}
	return nil
}

// writeFailed sorts out a failed write of which nothing is left: only a full disk is forgiven.
func (l *Log) writeFailed(err error) error {
	switch {
	case isFull(err):
		return fmt.Errorf("%w: %s: %w", ErrDiskFull, l.path, err)
	case isTooManyFiles(err):
		return err
	}
	return l.fail(err)
}

// isFull says whether an error means that there is no room.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// isPassing says whether an error leaves everything as it was and may be gone at the next try.
func isPassing(err error) bool { return isFull(err) || isTooManyFiles(err) }

// isTooManyFiles says whether an error means that the process or machine has no file to open left.
func isTooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// afterAppend asks for the syncs and checkpoints that the append makes due.
func (l *Log) afterAppend(c *Config) {
	l.markChanged()
	if c.FlushMessages > 0 && l.end.Load()-l.synced.Load() >= c.FlushMessages {
		l.RequestSync()
		return
	}
	interval := c.FlushInterval
	if every := l.dir.syncEvery; every > 0 && (interval <= 0 || every < interval) {
		interval = every
	}
	if interval > 0 {
		l.dir.committer.schedule(l, interval)
	}
}

// rollLocked seals the active segment and starts a new, empty one at the log end.
func (l *Log) rollLocked(list segmentList) (*segment, error) {
	old := list.active()
	s := newEmptySegment(l, l.end.Load())
	invariant.Check(s.base > old.base, "%s: rolling segment %d at its own base", l.path, old.base)
	if _, err := s.pinLocked(OpenCreate | OpenTruncate); err != nil {
		return nil, l.writeFailed(err)
	}
	l.namesChanged()
	old.addTimeLocked()
	if err := l.saveTailsLocked(old); err != nil {
		return nil, err
	}
	l.setListLocked(append(list[:len(list):len(list)], s))
	old.unpin() // if it is synced already
	l.dir.stats.rolls.Add(1)
	l.dir.committer.request(l)
	return s, nil
}

// drawJitter draws how much earlier than its age says a segment rolls.
func (d *Dir) drawJitter(most time.Duration) time.Duration {
	if most <= 0 || d.rand == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rand.Int64N(int64(most)))
}
