package storage

import (
	"time"
)

// ApplyRetention removes whole segments below hw that are below the log start, too old or beyond the
// size bound, oldest first until one has to stay, and raises the log start to the first that is
// left. An active segment that has to go is rolled first, so that a log always has one.
func (l *Log) ApplyRetention(now time.Time, hw int64) (removed int, err error) {
	if l.start.Load() == l.end.Load() && l.segments.Load() == nil {
		return 0, l.usable() // an empty log that nobody uses
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return 0, err
	}
	n, err := l.expiredLocked(list, now, hw)
	if err != nil || n == 0 {
		return 0, err
	}
	if n == len(list) {
		if _, err := l.rollLocked(list); err != nil {
			return 0, err
		}
		list = *l.segments.Load()
	}
	if l.start.Load() > list[n].base { // else the segments that are left tell
		if err := asDiskFull(l.dir.writeLogStarts()); err != nil {
			return 0, err
		}
	}
	return n, l.dropLocked(list, n)
}

// expiredLocked counts the segments that may go.
func (l *Log) expiredLocked(list segmentList, now time.Time, hw int64) (int, error) {
	c := l.config.Load()
	start, size := l.start.Load(), list.size()
	for i, s := range list {
		next := l.end.Load()
		if i+1 < len(list) {
			next = list[i+1].base
		} else if s.size.Load() == 0 {
			return i, nil
		}
		if hw < next {
			return i, nil
		}
		expired := next <= start && i+1 < len(list)
		if !expired && c.DeleteRetained {
			expired = c.RetentionBytes >= 0 && size-s.size.Load() >= c.RetentionBytes
		}
		if !expired && c.DeleteRetained && c.RetentionTime >= 0 {
			age, err := l.ageLocked(s, now)
			if err != nil {
				return i, err
			}
			expired = age > c.RetentionTime
		}
		if !expired {
			return i, nil
		}
		size -= s.size.Load()
	}
	return len(list), nil
}

// ageLocked is how long ago the newest record of a segment was made; if its records have no
// timestamps, how long ago its file was written.
func (l *Log) ageLocked(s *segment, now time.Time) (time.Duration, error) {
	g, err := s.timestamps()
	if err == errDamagedIndex {
		if err = l.rebuildIndexesLocked(s); err == nil {
			g, err = s.timestamps()
		}
	}
	if err != nil {
		return 0, err
	}
	if g.timestamp >= 0 {
		return now.Sub(time.UnixMilli(g.timestamp)), nil
	}
	e, err := l.dir.fs.Stat(s.fileName(logKind))
	return now.Sub(e.ModTime), err
}

// dropLocked removes the first n segments: their files get another name at once, durably, and are
// unlinked later. Readers who look for them meanwhile wait for the log's lock and then find the new
// log start.
func (l *Log) dropLocked(list segmentList, n int) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.syncFolderLocked(); err != nil {
		return err
	}
	for _, s := range list[:n] {
		if err := l.setAsideLocked(s); err != nil {
			return l.fail(err)
		}
	}
	if err := l.dir.fs.SyncDir(l.path); err != nil {
		return l.fail(err)
	}
	list = list[n:]
	start := max(l.start.Load(), list[0].base)
	l.start.Store(start)
	l.point.Store(max(l.point.Load(), list[0].base))
	l.setListLocked(append(segmentList(nil), list...))
	l.forgetUnsyncedLocked(list)
	l.epochs.truncateStart(start)
	l.markChanged()
	l.dir.stats.removedSegments.Add(int64(n))
	return l.dropSnapshotsLocked(func(offset int64) bool { return offset < list[0].base })
}

// setAsideLocked renames a segment's files to be unlinked later and closes them.
func (l *Log) setAsideLocked(s *segment) error {
	delay := l.config.Load().FileDeleteDelay
	for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix, txnSuffix} {
		name := offsetFileName(l.path, s.base, suffix)
		err := l.dir.fs.Rename(name, name+deletedSuffix)
		if err != nil && !isMissing(err) {
			return err
		}
		if err == nil {
			l.dir.background.remove(name+deletedSuffix, delay)
		}
	}
	s.closeFilesLocked()
	return nil
}

// forgetUnsyncedLocked takes segments that are not in the list any more off the list of those to be
// synced. What lies below the first segment counts as synced.
func (l *Log) forgetUnsyncedLocked(list segmentList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.unsynced[:0]
	for _, s := range l.unsynced {
		if i := list.at(s.base); list[i] == s {
			kept = append(kept, s)
		}
	}
	clear(l.unsynced[len(kept):])
	l.unsynced = kept
	l.synced.Store(max(l.synced.Load(), list[0].base))
}

// persistStartLocked raises the log start offset on disk.
func (l *Log) persistStartLocked(offset int64) error {
	l.syncing.Lock()
	err := l.syncFolderLocked()
	l.syncing.Unlock()
	if err != nil {
		return err
	}
	l.start.Store(offset)
	l.markChanged()
	return asDiskFull(l.dir.writeLogStarts())
}

// SetStart raises the log start offset, durably, and removes the segments wholly below it. A lower
// offset than the present one changes nothing; one above the log end is an OutOfRangeError.
func (l *Log) SetStart(offset int64) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return err
	}
	start, end := l.start.Load(), l.end.Load()
	if offset > end {
		return &OutOfRangeError{Offset: offset, Start: start, End: end}
	}
	if offset <= start {
		return nil
	}
	if err := l.persistStartLocked(offset); err != nil {
		return err
	}
	l.epochs.truncateStart(offset)
	n := 0
	for n+1 < len(list) && list[n+1].base <= offset {
		n++
	}
	if n == 0 {
		return nil
	}
	return l.dropLocked(list, n)
}

// RaiseStart raises the log start offset, durably from the next checkpoint or removal of a segment on: a crash before
// that brings back the one before. Segments that are wholly below it go with the next ApplyRetention. A lower offset
// than the present one changes nothing; one above the log end is an OutOfRangeError.
func (l *Log) RaiseStart(offset int64) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	if _, err := l.listLocked(); err != nil {
		return err
	}
	start, end := l.start.Load(), l.end.Load()
	if offset > end {
		return &OutOfRangeError{Offset: offset, Start: start, End: end}
	}
	if offset <= start {
		return nil
	}
	l.syncing.Lock()
	err := l.syncFolderLocked()
	l.syncing.Unlock()
	if err != nil {
		return err
	}
	l.start.Store(offset)
	l.epochs.truncateStart(offset)
	l.markChanged()
	return nil
}
