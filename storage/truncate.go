package storage

import (
	"errors"

	"millrace/internal/invariant"
	"millrace/record"
)

// TruncateTo removes all batches with offsets at or above offset, also the one it falls into. At or
// above the log end only the epochs that start there go.
func (l *Log) TruncateTo(offset int64) error {
	defer l.holdRounds()()
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return err
	}
	start, end := l.start.Load(), l.end.Load()
	if offset < start {
		return &OutOfRangeError{Offset: offset, Start: start, End: end}
	}
	if offset >= end {
		l.epochs.truncateEnd(offset)
		l.markChanged()
		return nil
	}
	if offset == start {
		return l.restartLocked(list, start)
	}
	i := list.at(offset)
	pos, cut, err := l.cutPointLocked(list[i], offset)
	if err != nil {
		return err
	}
	if cut <= start { // the batch holds the log start too
		return l.restartLocked(list, start)
	}
	return l.cutLocked(list, i, pos, cut)
}

// cutPointLocked finds where to cut a segment, and an offset that no batch before reaches.
func (l *Log) cutPointLocked(s *segment, offset int64) (pos, cut int64, err error) {
	b, err := s.find(offset)
	if err == errDamagedIndex {
		if err = l.rebuildIndexesLocked(s); err == nil {
			b, err = s.find(offset)
		}
	}
	pos, cut = b.pos, min(offset, b.base)
	if err == errNoBatch {
		pos, cut, err = s.size.Load(), offset, nil
	}
	if err == nil && l.gaps { // the batch before need not reach up to there
		cut, err = s.endBefore(pos)
	}
	return pos, cut, err
}

// endBefore is the offset at which the batch before a position ends, where the next one begins.
func (s *segment) endBefore(pos int64) (int64, error) {
	if _, err := s.loadIndex(&s.offsets); err != nil {
		return 0, err
	}
	_, e, err := s.floor(&s.offsets, byValue, pos-1)
	if err != nil {
		return 0, err
	}
	w := s.walk(e.value, pos)
	defer w.close()
	w.lax = true
	end := s.base
	for w.more() {
		b, _, err := w.header()
		if err != nil {
			return 0, err
		}
		end = b.NextOffset()
	}
	return end, nil
}

// cutLocked makes the i-th segment the last and cuts it at pos, below offset cut. The order of the
// steps lets a crash at any of them leave a log that ends between the old end and the new one.
func (l *Log) cutLocked(list segmentList, i int, pos, cut int64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.truncations.Add(1)
	defer l.truncations.Add(1)
	if err := l.lowerPointLocked(cut); err != nil {
		return err
	}
	if err := l.lowerCleanedLocked(cut); err != nil {
		return err
	}
	for j := len(list) - 1; j > i; j-- {
		if err := l.setAsideLocked(list[j]); err != nil {
			return l.fail(err)
		}
	}
	s, end, err := l.cutSegmentLocked(list[i], pos, cut)
	if err != nil {
		return l.fail(err)
	}
	l.end.Store(end)
	l.synced.Store(min(l.synced.Load(), end))
	l.point.Store(min(l.point.Load(), end))
	l.hw.Store(min(l.hw.Load(), end))
	l.epochs.truncateEnd(end)
	l.truncateAbortedLocked(end)
	kept := append(append(segmentList(nil), list[:i]...), s)
	l.setListLocked(kept)
	l.forgetUnsyncedLocked(kept)
	l.markChanged()
	if err := l.dropSnapshotsAfterLocked(end); err != nil {
		return err
	}
	if err := l.dir.fs.SyncDir(l.path); err != nil {
		return l.fail(err)
	}
	return nil
}

// lowerPointLocked makes sure, before anything is cut, that no recovery point on disk lies above
// what will be left.
func (l *Log) lowerPointLocked(cut int64) error {
	if l.point.Load() <= cut {
		return nil
	}
	point := l.point.Swap(cut)
	err := l.dir.writeRecoveryPoints()
	if err != nil {
		l.point.Store(point) // the next attempt writes it again
		return asDiskFull(err)
	}
	l.markChanged()
	return nil
}

// cutSegmentLocked cuts a segment's files and gives the segment that takes its place, with the
// offset at which it ends. Its batches past the last index entry are gone through again, as after a
// crash, for what the indexes must know of them.
func (l *Log) cutSegmentLocked(old *segment, pos, cut int64) (*segment, int64, error) {
	old.closeFilesLocked()
	if err := old.settleDoubtBelow(pos); err != nil {
		return nil, 0, err
	}
	if err := old.cutLog(pos); err != nil && !(pos == 0 && isMissing(err)) {
		return nil, 0, err
	}
	s := newSegment(l, old.base)
	s.created, s.jitter = old.created, old.jitter
	s.size.Store(pos)
	r := recovery{log: l, point: cut, end: old.base}
	if _, err := r.segment(s); err != nil {
		return nil, 0, err
	}
	if err := s.takeAbortedLocked(old, r.end); err != nil {
		return nil, 0, err
	}
	for _, k := range []fileKind{offsetKind, timeKind, txnKind} {
		if err := syncNamed(l.dir.fs, s.fileName(k)); err != nil && !isMissing(err) {
			return nil, 0, err
		}
	}
	return s, r.end, nil
}

// TruncateFullyAndStartAt empties the log and makes it start, and go on, at offset. After ErrDiskFull the log is as it
// was.
func (l *Log) TruncateFullyAndStartAt(offset int64) error {
	defer l.holdRounds()()
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return err
	}
	return l.restartLocked(list, offset)
}

// restartLocked empties the log. All that takes room comes first; nobody sees the new bounds before the rest is done.
// When a crash interrupts it, the log's end lies below its start on disk, and recovery completes it.
func (l *Log) restartLocked(list segmentList, offset int64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.truncations.Add(1)
	defer l.truncations.Add(1)
	if err := l.syncFolderLocked(); err != nil {
		return err
	}
	l.next.Store(offset)
	defer l.next.Store(noOffset)
	if err := l.prepareRestartLocked(offset); err != nil {
		return err
	}
	for j := len(list) - 1; j >= 0; j-- {
		if err := l.setAsideLocked(list[j]); err != nil {
			return l.fail(err)
		}
	}
	if err := l.dropSnapshotsAfterLocked(noOffset); err != nil {
		return err
	}
	s := newEmptySegment(l, offset)
	f, err := s.pinLocked(OpenCreate | OpenTruncate)
	switch {
	case err == nil:
		err = f.Sync()
	case isPassing(err): // the first append makes the file
		err = nil
	}
	if err := errors.Join(err, l.dir.fs.SyncDir(l.path)); err != nil {
		return l.fail(err)
	}
	l.restartedLocked(s)
	return nil
}

// BeginWithin makes an empty log begin with a batch in whose midst it starts, and keeps its start. After ErrDiskFull
// the log is as it was. b is not kept.
func (l *Log) BeginWithin(b record.Batch) error {
	defer l.holdRounds()()
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return err
	}
	start, end := l.start.Load(), l.end.Load()
	invariant.Check(start == end && b.BaseOffset() < start && b.NextOffset() > start && len(b) == b.Length(),
		"%s: beginning with offsets %d to %d at log start %d and end %d", l.path, b.BaseOffset(), b.LastOffset(), start, end)
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.truncations.Add(1)
	defer l.truncations.Add(1)
	if err := l.lowerPointLocked(b.BaseOffset()); err != nil {
		return err
	}
	// What a crash leaves of it is whole, and reaches beyond the log start, or goes with the rest.
	s := newEmptySegment(l, b.BaseOffset())
	if _, err := l.putLocked(s, b, File.WriteAt); err != nil {
		s.closeFilesLocked()
		if gone := s.removeFiles(); gone != nil {
			return l.fail(errors.Join(err, gone))
		}
		return err
	}
	for j := len(list) - 1; j >= 0; j-- {
		if err := l.setAsideLocked(list[j]); err != nil {
			return l.fail(err)
		}
	}
	l.begunLocked(s, b)
	l.afterAppend(l.config.Load())
	return nil
}

// begunLocked shows the log that begins within a batch.
func (l *Log) begunLocked(s *segment, b record.Batch) {
	kept := segmentList{s}
	l.setListLocked(kept)
	l.forgetUnsyncedLocked(kept)
	l.epochs.clear()
	l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
	l.epochs.truncateStart(l.start.Load())
	l.mu.Lock()
	s.observe(b)
	l.shownLocked(s, int64(len(b)), b.NextOffset())
	l.mu.Unlock()
	s.indexLocked(b, 0, l.config.Load().IndexInterval)
	l.dir.appended(1, len(b))
}

// prepareRestartLocked writes what says that the log begins anew. After ErrDiskFull nothing has changed that a crash
// would bring to light: epochs are found again in the batches past the recovery point.
func (l *Log) prepareRestartLocked(offset int64) error {
	if err := l.lowerPointLocked(0); err != nil {
		return err
	}
	if err := l.lowerCleanedLocked(offset); err != nil {
		return err
	}
	if err := l.dropEpochFileLocked(); err != nil {
		return l.writeFailed(err)
	}
	err := l.dir.writeLogStarts()
	if err != nil && l.saved.Load() != offset { // else a checkpoint has written it meanwhile
		return l.writeFailed(err)
	}
	return nil
}

// dropEpochFileLocked makes the epoch file hold nothing, whatever it is known to hold: after a recovery that is
// nothing, so that it is written anew. The epochs in memory stay, for the next checkpoint.
func (l *Log) dropEpochFileLocked() error {
	err := writeFile(l.dir.fs, l.path+"/"+epochFile, encodeEpochs(nil))
	if err == nil {
		l.epochs.stored(nil)
	}
	return err
}

// restartedLocked shows the log that begins anew with an empty segment.
func (l *Log) restartedLocked(s *segment) {
	kept := segmentList{s}
	l.setListLocked(kept)
	l.epochs.clear()
	l.truncateAbortedLocked(noOffset)
	if s.base < l.start.Load() {
		l.start.Store(s.base)
	}
	l.end.Store(s.base)
	l.hw.Store(s.base)
	l.start.Store(s.base)
	l.synced.Store(s.base)
	l.forgetUnsyncedLocked(kept)
	l.point.Store(s.base)
	l.markChanged()
}

// startToSave is the log start offset for the checkpoint.
func (l *Log) startToSave() int64 {
	if next := l.next.Load(); next != noOffset {
		return next
	}
	return l.start.Load()
}
