package storage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// folder is what a partition's folder holds.
type folder struct {
	bases     []int64 // of the log files, rising
	snapshots []int64 // offsets of the producer snapshots, rising
	changed   bool    // leftovers were removed
	indexed   []int64 // bases of the segments with aborted transactions, rising
	txns      bool    // there were transactions
	gaps      bool    // offsets may be missing between batches
}

// readFolder lists a partition's folder and clears away what an interrupted change left in it.
func readFolder(fsys FS, path string) (folder, error) {
	entries, err := fsys.List(path)
	if err != nil {
		return folder{}, err
	}
	restored := false
	if slices.ContainsFunc(entries, func(e Entry) bool { return strings.HasSuffix(e.Name, renamedSuffix) }) {
		if restored, err = RestoreNames(fsys, path); err != nil {
			return folder{}, err
		}
		if entries, err = fsys.List(path); err != nil {
			return folder{}, err
		}
	}
	cleared, err := clearLeftovers(fsys, path, entries)
	if err != nil {
		return folder{}, err
	}
	f := folder{changed: cleared || restored}
	if cleared {
		if entries, err = fsys.List(path); err != nil {
			return folder{}, err
		}
	}
	for _, e := range entries {
		offset, suffix, ok := parseOffsetFile(e.Name)
		switch {
		case ok && suffix == logSuffix:
			f.bases = append(f.bases, offset)
		case ok && suffix == snapshotSuffix:
			f.snapshots = append(f.snapshots, offset)
		case ok && suffix == txnSuffix:
			f.indexed = append(f.indexed, offset)
		case e.Name == transactionsFile:
			f.txns = true
		case e.Name == gapsFile:
			f.gaps = true
		}
	}
	for _, e := range entries { // indexes whose log file is gone
		offset, suffix, ok := parseOffsetFile(e.Name)
		if !ok || suffix != indexSuffix && suffix != timeSuffix && suffix != txnSuffix {
			continue
		}
		if _, found := slices.BinarySearch(f.bases, offset); !found {
			f.changed = true
			if err := fsys.Remove(path + "/" + e.Name); err != nil {
				return folder{}, err
			}
		}
	}
	return f, nil
}

// clearLeftovers removes files that were to be removed or were never finished, and finishes the
// replacement of compacted segments.
func clearLeftovers(fsys FS, path string, entries []Entry) (changed bool, err error) {
	var swaps []string
	for _, e := range entries {
		switch {
		case strings.HasSuffix(e.Name, tmpSuffix), strings.HasSuffix(e.Name, deletedSuffix):
			changed = true
			if err := fsys.Remove(path + "/" + e.Name); err != nil {
				return changed, err
			}
		case strings.HasSuffix(e.Name, cleanedSuffix), strings.HasSuffix(e.Name, swapSuffix):
			swaps = append(swaps, e.Name)
		}
	}
	if len(swaps) == 0 {
		return changed, nil
	}
	return true, finishSwap(fsys, path, swaps)
}

// loadLocked looks at the log's files for the first time: it checks them after a clean stop and
// recovers them after any other.
func (l *Log) loadLocked() error {
	f, err := readFolder(l.dir.fs, l.path)
	if err != nil {
		return fmt.Errorf("open log %s: %w", l.path, err)
	}
	list := make(segmentList, 0, len(f.bases))
	for _, base := range f.bases {
		s := newSegment(l, base)
		e, err := l.dir.fs.Stat(s.fileName(logKind))
		if err != nil {
			return fmt.Errorf("open log %s: %w", l.path, err)
		}
		s.size.Store(e.Size)
		if _, indexed := slices.BinarySearch(f.indexed, base); !indexed {
			s.aborted.state.Store(&txnState{})
		}
		list = append(list, s)
	}
	stored, err := readEpochs(l.dir.fs, l.path)
	if err != nil {
		return err
	}
	l.epochs.stored(stored)
	if f.changed {
		l.namesChanged()
	}
	l.txnNoted, l.gaps = f.txns, f.gaps
	l.transactional.Store(f.txns)
	if l.recover {
		list, err = l.recoverLocked(list, stored, f.snapshots)
	} else if list, err = l.checkLocked(list, stored); err == nil {
		err = l.loadSnapshotsLocked(f.snapshots)
	}
	if err != nil {
		return err
	}
	l.recover = false
	l.setListLocked(list)
	return nil
}

// checkLocked makes sure that the files end where the checkpoint of a clean stop says, and reads what
// appending needs. Only the end of the last segment is looked at.
func (l *Log) checkLocked(list segmentList, stored []epochStart) (segmentList, error) {
	end := l.start.Load()
	if len(list) == 0 {
		list = segmentList{newEmptySegment(l, l.end.Load())}
	} else {
		var err error
		if end, err = l.readyLocked(list.active()); err != nil {
			return nil, err
		}
	}
	if l.endUnknown {
		l.endUnknown = false
		l.start.Store(max(l.start.Load(), list[0].base))
		l.end.Store(end)
		l.synced.Store(end)
		l.point.Store(end)
	}
	if end != l.end.Load() || list[0].base > l.start.Load() {
		return nil, &CorruptionError{File: l.path, Position: -1,
			Err: fmt.Errorf("holds offsets %d to %d, not %d to %d as at the clean stop",
				list[0].base, end, l.start.Load(), l.end.Load())}
	}
	l.epochs.load(epochsBelow(stored, end))
	l.epochs.truncateStart(l.start.Load())
	return list, nil
}

// readyLocked prepares the active segment for appends and gives the offset at which it ends.
func (l *Log) readyLocked(s *segment) (end int64, err error) {
	end, err = s.readyLocked()
	if !errors.Is(err, errDamagedIndex) {
		return end, err
	}
	l.markChanged()
	if err := s.rebuildIndexesLocked(); err != nil {
		return 0, err
	}
	return s.readyLocked()
}

// readyLocked goes from the last index entry to the end, for what the indexes do not say.
func (s *segment) readyLocked() (end int64, err error) {
	e, ok, err := s.indexed(s.base + maxRelative)
	if err != nil {
		return 0, err
	}
	if _, err := s.timestamps(); err != nil {
		return 0, err
	}
	t, timed, err := s.last(&s.times)
	if err != nil {
		return 0, err
	}
	if timed {
		s.timeIndexed = t.key
	}
	end = s.base
	w := s.walk(e.value, s.size.Load())
	defer w.close()
	for w.more() {
		b, pos, err := w.header()
		if ok && pos == e.value && (isCorrupt(err) || err == nil && b.LastOffset() != s.base+e.key) {
			return 0, errDamagedIndex
		}
		if err != nil {
			return 0, err
		}
		end = b.NextOffset()
		s.log.mu.Lock()
		s.observe(b)
		s.log.mu.Unlock()
	}
	s.sinceEntry = s.size.Load() - e.value
	return end, nil
}
