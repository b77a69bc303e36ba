package storage

import "fmt"

// readCleaned reads how far logs are clean. It tells compaction what it need not look at again, so without it there is
// more to be done and nothing lost.
func (d *Dir) readCleaned() error {
	err := d.readOffsets(cleanerFile, func(e *dirEntry, o int64) { e.cleaned = o })
	if isCorrupt(err) {
		d.logger.Warn("compaction begins anew with all logs", "err", err)
		d.cleanedChanged.Store(true)
		return nil
	}
	if err == nil && len(d.stale) > 0 {
		d.cleanedChanged.Store(true)
	}
	return err
}

// writeCleaned writes how far logs are clean, if that has changed.
func (d *Dir) writeCleaned() error {
	if !d.cleanedChanged.Swap(false) {
		return nil
	}
	err := d.writeOffsets(cleanerFile, 1, func(e *dirEntry) int64 {
		if e.log != nil {
			return e.log.cleaned.Load()
		}
		return e.cleaned
	})
	if err != nil {
		d.cleanedChanged.Store(true)
		return fmt.Errorf("write %s: %w", cleanerFile, err)
	}
	return nil
}

// setCleaned makes it durable that the log is clean below an offset.
func (l *Log) setCleaned(offset int64) error {
	if l.cleaned.Swap(offset) == offset {
		return nil
	}
	l.dir.cleanedChanged.Store(true)
	return l.dir.writeCleaned()
}

// lowerCleanedLocked makes sure that what is appended after a truncation to an offset counts as dirty.
func (l *Log) lowerCleanedLocked(offset int64) error {
	if l.cleaned.Load() <= offset {
		return nil
	}
	return asDiskFull(l.setCleaned(offset))
}

// CleanedOffset is the offset below which compaction has been, as the checkpoint says.
func (l *Log) CleanedOffset() int64 { return l.cleaned.Load() }
