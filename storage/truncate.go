package storage

import (
	"errors"
)

// TruncateTo removes all batches with offsets at or above offset, also the one it falls into. At or
// above the log end only the epochs that start there go.
func (l *Log) TruncateTo(offset int64) error {
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
	if err == errNoBatch {
		return s.size.Load(), offset, nil
	}
	return b.pos, min(offset, b.base), err
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
	}
	return err
}

// cutSegmentLocked cuts a segment's files and gives the segment that takes its place, with the
// offset at which it ends. Its batches past the last index entry are gone through again, as after a
// crash, for what the indexes must know of them.
func (l *Log) cutSegmentLocked(old *segment, pos, cut int64) (*segment, int64, error) {
	old.closeFilesLocked()
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
	for _, k := range []fileKind{offsetKind, timeKind} {
		if err := syncNamed(l.dir.fs, s.fileName(k)); err != nil && !isMissing(err) {
			return nil, 0, err
		}
	}
	return s, r.end, nil
}

// TruncateFullyAndStartAt empties the log and makes it start, and go on, at offset.
func (l *Log) TruncateFullyAndStartAt(offset int64) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return err
	}
	return l.restartLocked(list, offset)
}

// restartLocked empties the log. When a crash interrupts it, the log's end lies below its start on
// disk, and recovery completes it.
func (l *Log) restartLocked(list segmentList, offset int64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.truncations.Add(1)
	defer l.truncations.Add(1)
	if err := l.syncFolderLocked(); err != nil {
		return err
	}
	if err := l.lowerPointLocked(0); err != nil {
		return err
	}
	l.start.Store(offset)
	if err := l.dir.writeLogStarts(); err != nil {
		return l.fail(err)
	}
	for j := len(list) - 1; j >= 0; j-- {
		if err := l.setAsideLocked(list[j]); err != nil {
			return l.fail(err)
		}
	}
	s := newEmptySegment(l, offset)
	l.end.Store(offset)
	l.hw.Store(offset)
	l.epochs.clear()
	if err := l.dropSnapshotsAfterLocked(-1); err != nil {
		return err
	}
	f, err := s.pinLocked(OpenCreate | OpenTruncate)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, l.saveEpochsLocked(), l.dir.fs.SyncDir(l.path)); err != nil {
		return l.fail(err)
	}
	kept := segmentList{s}
	l.setListLocked(kept)
	l.forgetUnsyncedLocked(kept)
	l.synced.Store(offset)
	l.point.Store(offset)
	l.markChanged()
	return nil
}

// saveEpochsLocked writes the epoch file, whatever it holds.
func (l *Log) saveEpochsLocked() error {
	entries, differs := l.epochs.unsaved(l.end.Load())
	if !differs {
		return nil
	}
	if err := writeFile(l.dir.fs, l.path+"/"+epochFile, encodeEpochs(entries)); err != nil {
		return err
	}
	l.epochs.stored(entries)
	return nil
}
