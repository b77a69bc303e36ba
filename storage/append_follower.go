package storage

import (
	"fmt"
	"math"

	"millrace/record"
)

// AppendFollower writes batches as a leader sent them: whole ones, with base offsets at or above the log's
// end, where the leader may have left gaps, and leader epochs that never decrease. All are looked at before
// anything is written; one that is damaged or does not fit makes it a record.ErrCorrupt. They go to the
// file in one write for each segment that they fill. After an error of the disk those that lie below
// EndOffset are in the log; else as Append. Of several segments begun the result names the last.
func (l *Log) AppendFollower(batches []byte) (AppendResult, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return AppendResult{}, err
	}
	gaps, err := l.checkFollowing(batches)
	if err != nil {
		return AppendResult{}, fmt.Errorf("%s: %w", l.path, err)
	}
	if gaps {
		if err := l.noteGapsLocked(); err != nil {
			return AppendResult{}, err
		}
	}
	aborts, err := l.expectMarkersLocked(batches)
	if err != nil {
		return AppendResult{}, err
	}
	a := followerAppend{log: l, config: l.config.Load(), active: list.active()}
	err = a.all(batches)
	l.afterAppend(a.config)
	a.result.Aborts = aborts
	return a.result, err
}

// checkFollowing looks at what a leader sent, and says whether offsets are missing between batches. What offsets and
// epochs of batches say is not covered by their checksums.
func (l *Log) checkFollowing(batches []byte) (gaps bool, err error) {
	end, epoch := l.end.Load(), l.epochs.latest()
	for rest := batches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err == record.ErrShort {
			err = fmt.Errorf("%w: %d bytes are no whole batch", record.ErrCorrupt, len(rest))
		}
		if err == nil {
			err = b.Verify()
		}
		switch {
		case err != nil:
			return gaps, err
		case b.LastOffsetDelta() < 0 || b.BaseOffset() > math.MaxInt64-int64(b.LastOffsetDelta())-1:
			return gaps, fmt.Errorf("%w: last offset delta %d at offset %d", record.ErrCorrupt, b.LastOffsetDelta(),
				b.BaseOffset())
		case b.BaseOffset() < end:
			return gaps, fmt.Errorf("%w: offset %d follows offset %d", record.ErrCorrupt, b.BaseOffset(), end-1)
		case b.LastOffset()-end > maxRelative: // a segment begins where the one before ends
			return gaps, fmt.Errorf("%w: offset %d is too far from %d", record.ErrCorrupt, b.LastOffset(), end-1)
		case b.LeaderEpoch() < epoch:
			return gaps, fmt.Errorf("%w: leader epoch %d follows %d", record.ErrCorrupt, b.LeaderEpoch(), epoch)
		}
		gaps = gaps || b.BaseOffset() > end
		end, epoch, rest = b.NextOffset(), b.LeaderEpoch(), after
	}
	return gaps, nil
}

// expectMarkersLocked looks for what belongs to transactions. The recovery point waits below the first ABORT marker
// until SettleAborted says that its entry has been added.
func (l *Log) expectMarkersLocked(batches []byte) (aborts bool, err error) {
	eachBatch(batches, func(b record.Batch) {
		if !b.IsTransactional() || err != nil {
			return
		}
		if !l.transactional.Load() {
			err = l.beginTransactionalLocked()
		}
		if m, ok := b.EndTxnMarker(); ok && m.Type == record.ControlAbort {
			l.unindexed, aborts = min(l.unindexed, b.BaseOffset()), true
		}
	})
	return aborts, err
}

// followerAppend is one AppendFollower at work. The log's lock is held.
type followerAppend struct {
	log    *Log
	config *Config
	active *segment
	result AppendResult
}

// all writes checked batches, in runs of as many as certainly belong into one segment.
func (a *followerAppend) all(batches []byte) error {
	from, count := 0, 0
	for at := 0; at < len(batches); {
		size := record.Batch(batches[at:]).Length()
		b := record.Batch(batches[at : at+size])
		if count == 0 || a.mayRoll(b, record.Batch(batches[from:at]), count) {
			if err := a.write(batches[from:at], count); err != nil {
				return err
			}
			if err := a.rollIfDue(b); err != nil {
				return err
			}
			from, count = at, 0
		}
		at, count = at+size, count+1
	}
	return a.write(batches[from:], count)
}

// mayRoll says whether b could have to open a new segment after a run of count batches. If so, the run is
// written and the question asked exactly.
func (a *followerAppend) mayRoll(b, run record.Batch, count int) bool {
	s, c := a.active, a.config
	size := s.size.Load() + int64(len(run))
	if size > c.SegmentBytes-int64(len(b)) || b.LastOffset()-s.base > maxRelative {
		return true
	}
	offsets, times := indexCapacity(c.IndexBytes)
	if s.offsets.count()+count >= offsets || s.times.count()+count >= times {
		return true
	}
	first := run.MaxTimestamp()
	if s.size.Load() > 0 {
		var err error
		if first, err = s.firstTimestampLocked(); err != nil {
			return true
		}
	}
	return first < 0 || b.MaxTimestamp() > first &&
		uint64(b.MaxTimestamp()-first) > uint64((c.SegmentAge-s.jitter).Milliseconds())
}

func (a *followerAppend) rollIfDue(b record.Batch) error {
	due, err := a.log.rollDueLocked(a.active, b, a.config)
	if err != nil || !due {
		return err
	}
	if a.active, err = a.log.rollLocked(*a.log.segments.Load()); err != nil {
		return err
	}
	a.result = AppendResult{Rolled: true, NewSegmentBase: a.active.base}
	return nil
}

// write writes a run behind the active segment's last batch, makes it visible, and indexes it batch by batch.
func (a *followerAppend) write(run []byte, count int) error {
	if count == 0 {
		return nil
	}
	l, s := a.log, a.active
	pos, err := l.putLocked(s, run, writeUncached)
	if err != nil {
		return err
	}
	end := int64(0)
	eachBatch(run, func(b record.Batch) {
		l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
		end = b.NextOffset()
	})
	l.mu.Lock()
	l.shownLocked(s, pos+int64(len(run)), end)
	l.mu.Unlock()
	eachBatch(run, func(b record.Batch) { // an entry must not lead beyond what can be seen
		l.mu.Lock()
		s.observe(b)
		l.mu.Unlock()
		s.indexLocked(b, pos, a.config.IndexInterval)
		pos += int64(len(b))
	})
	l.dir.appended(count, len(run))
	if s.offsets.tailFullLocked() {
		return l.saveTailsLocked(s)
	}
	return nil
}

// uncachedBytes is the size from which a write is worth keeping out of the page cache. Smaller ones share pages that
// would have to be read again.
const uncachedBytes = 256 << 10

// uncachedWriter is a File that can write without leaving the data in the page cache. Nobody reads what a follower
// writes, as a rule, and pages that are new to the machine cost more than the write itself.
type uncachedWriter interface {
	WriteUncachedAt(p []byte, off int64) (int, error)
}

// writeUncached writes a large run past the page cache where the file can do that, but for its last page, which the
// next write goes on in.
func writeUncached(f File, p []byte, off int64) (int, error) {
	const page = 4 << 10
	u, ok := f.(uncachedWriter)
	if !ok || len(p) < uncachedBytes {
		return f.WriteAt(p, off)
	}
	whole := int((off+int64(len(p)))&^(page-1) - off)
	n, err := u.WriteUncachedAt(p[:whole], off)
	if err != nil || whole == len(p) {
		return n, err
	}
	m, err := f.WriteAt(p[whole:], off+int64(whole))
	return n + m, err
}

// eachBatch calls f with the batches of a checked run.
func eachBatch(run []byte, f func(b record.Batch)) {
	for len(run) > 0 {
		size := record.Batch(run).Length()
		f(record.Batch(run[:size]))
		run = run[size:]
	}
}
