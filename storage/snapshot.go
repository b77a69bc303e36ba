package storage

import (
	"slices"
	"sort"
)

// loadSnapshotsLocked takes over the snapshots that were found. Those beyond the log's end tell of
// batches that are gone.
func (l *Log) loadSnapshotsLocked(found []int64) error {
	l.snapshots = found
	end := l.end.Load()
	return l.dropSnapshotsLocked(func(offset int64) bool { return offset > end })
}

// dropSnapshotsLocked removes snapshots, but not the newest for being old: drop is asked about that
// one only when it lies beyond the log's end.
func (l *Log) dropSnapshotsLocked(drop func(offset int64) bool) error {
	end := l.end.Load()
	kept := make([]int64, 0, len(l.snapshots))
	for i, o := range l.snapshots {
		newest := i == len(l.snapshots)-1 && o <= end
		if newest || !drop(o) {
			kept = append(kept, o)
			continue
		}
		if err := l.removeSnapshotLocked(o); err != nil {
			return err
		}
	}
	l.snapshots = kept
	return nil
}

func (l *Log) removeSnapshotLocked(offset int64) error {
	l.newSnapshots = slices.DeleteFunc(l.newSnapshots, func(o int64) bool { return o == offset })
	err := l.dir.fs.Remove(offsetFileName(l.path, offset, snapshotSuffix))
	if err != nil && !isMissing(err) {
		return l.fail(err)
	}
	l.namesChanged()
	return nil
}

// SaveProducerSnapshot stores the producer state that results from all batches below offset. It is
// durable from the next recovery point on; a crash before that may leave less than the payload, so
// the payload must carry a checksum. Of the older ones those at segment bases stay, and the newest.
func (l *Log) SaveProducerSnapshot(offset int64, payload []byte) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return err
	}
	start, end := l.start.Load(), l.end.Load()
	if offset < start || offset > end {
		return &OutOfRangeError{Offset: offset, Start: start, End: end}
	}
	name := offsetFileName(l.path, offset, snapshotSuffix)
	if err := writeTmp(l.dir.fs, name, payload, syncLater); err != nil {
		return l.writeFailed(err)
	}
	if err := l.dir.fs.Rename(name+tmpSuffix, name); err != nil {
		return l.writeFailed(err)
	}
	l.namesChanged()
	l.markChanged()
	l.newSnapshots = append(l.newSnapshots, offset)
	i, known := slices.BinarySearch(l.snapshots, offset)
	previous := int64(-1)
	if i > 0 {
		previous = l.snapshots[i-1]
	}
	if !known {
		l.snapshots = slices.Insert(l.snapshots, i, offset)
	}
	return l.dropSnapshotsLocked(func(o int64) bool {
		j := sort.Search(len(list), func(j int) bool { return list[j].base >= o })
		atBase := j < len(list) && list[j].base == o
		return !atBase && o != previous && o != offset
	})
}

// LoadProducerSnapshot gives the newest snapshot with log start <= offset <= log end: an older one
// lacks batches that are gone, one at the start is complete although no batch is left. If its payload
// proves unreadable, drop it with DropProducerSnapshotsAfter(offset-1) and load again.
func (l *Log) LoadProducerSnapshot() (offset int64, payload []byte, ok bool, err error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if _, err := l.listLocked(); err != nil {
		return 0, nil, false, err
	}
	if len(l.snapshots) == 0 {
		return 0, nil, false, nil
	}
	offset = l.snapshots[len(l.snapshots)-1]
	if offset < l.start.Load() {
		return 0, nil, false, nil
	}
	payload, err = readFile(l.dir.fs, offsetFileName(l.path, offset, snapshotSuffix))
	if err != nil {
		return 0, nil, false, err
	}
	return offset, payload, true, nil
}

// ProducerSnapshotBefore gives the newest snapshot at or below an offset that LoadProducerSnapshot could give.
func (l *Log) ProducerSnapshotBefore(limit int64) (offset int64, payload []byte, ok bool, err error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if _, err := l.listLocked(); err != nil {
		return 0, nil, false, err
	}
	i := sort.Search(len(l.snapshots), func(i int) bool { return l.snapshots[i] > limit }) - 1
	if i < 0 || l.snapshots[i] < l.start.Load() {
		return 0, nil, false, nil
	}
	payload, err = readFile(l.dir.fs, offsetFileName(l.path, l.snapshots[i], snapshotSuffix))
	if err != nil {
		return 0, nil, false, err
	}
	return l.snapshots[i], payload, true, nil
}

// DropProducerSnapshotsAfter removes the snapshots above offset.
func (l *Log) DropProducerSnapshotsAfter(offset int64) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	if _, err := l.listLocked(); err != nil {
		return err
	}
	return l.dropSnapshotsAfterLocked(offset)
}

func (l *Log) dropSnapshotsAfterLocked(offset int64) error {
	for n := len(l.snapshots); n > 0 && l.snapshots[n-1] > offset; n = len(l.snapshots) {
		if err := l.removeSnapshotLocked(l.snapshots[n-1]); err != nil {
			return err
		}
		l.snapshots = l.snapshots[:n-1]
	}
	return nil
}
