package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// flushMode says what a flush is for.
type flushMode uint8

const (
	forCheckpoint flushMode = iota
	forClose                // the index files are completed
)

// flushJob is what one log contributes to a flush: files that were written and have to be synced
// before the recovery point may move.
type flushJob struct {
	log         *Log
	point       int64  // the recovery point to be
	truncations uint64 // the job is void if another truncation came
	files       []File
	epochs      []epochStart
	epochsTmp   bool // the epoch file was written and is to be renamed
	snapshots   []int64
	gaveUp      bool
}

// Checkpoint writes recovery points, log start offsets and high watermarks. The directory does so
// by itself at the intervals of its options.
func (d *Dir) Checkpoint() error {
	d.flushing.Lock()
	defer d.flushing.Unlock()
	if d.isClosed() {
		return ErrClosed
	}
	var changed []*Log
	for _, l := range d.openLogs() {
		if l.usable() == nil && l.changed.Swap(false) {
			changed = append(changed, l)
		}
	}
	if len(changed) == 0 {
		return d.writeWatermarks()
	}
	d.flush(changed, forCheckpoint)
	d.stats.checkpoints.Add(1)
	return d.writeCheckpoints()
}

func (d *Dir) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

func (d *Dir) openLogs() (logs []*Log) {
	for _, e := range d.entries() {
		d.mu.Lock()
		l := e.log
		d.mu.Unlock()
		if l != nil {
			logs = append(logs, l)
		}
	}
	return logs
}

// maxFlushed bounds how many logs are flushed at a time, since their index files are open meanwhile.
const maxFlushed = 256

// flush writes and syncs what the logs hold in memory beside their batches, and moves their recovery
// points. A log where that fails goes offline; one for which there is no room stays as it is. The
// flushing lock is held.
func (d *Dir) flush(logs []*Log, mode flushMode) {
	for some := range slices.Chunk(logs, maxFlushed) {
		d.flushSome(some, mode)
	}
}

func (d *Dir) flushSome(logs []*Log, mode flushMode) {
	jobs := make([]*flushJob, 0, len(logs))
	for _, l := range logs {
		if j := l.stage(mode); j != nil {
			jobs = append(jobs, j)
		}
	}
	d.syncJobs(jobs)
	renamed := jobs[:0:0]
	for _, j := range jobs {
		if j.usable() && j.rename() {
			renamed = append(renamed, j)
		}
	}
	d.syncFolders(renamed)
	for _, j := range jobs {
		if j.usable() {
			j.publish()
		}
	}
}

// stage writes index entries and epochs to their files. nil: there is nothing to flush.
func (l *Log) stage(mode flushMode) *flushJob {
	l.lock.Lock()
	defer l.lock.Unlock()
	p := l.segments.Load()
	if p == nil || l.usable() != nil {
		return nil
	}
	l.unflushed = nil
	j := &flushJob{log: l, point: min(l.synced.Load(), l.unindexed), truncations: l.truncations.Load()}
	err := l.stageIndexesLocked(j, *p, mode)
	if err == nil {
		err = l.stageAbortedLocked(j, *p)
	}
	if err == nil {
		err = l.stageEpochsLocked(j)
	}
	if err == nil {
		j.snapshots = slices.Clone(l.newSnapshots)
		return j
	}
	j.closeFiles()
	l.markChanged()
	if isPassing(err) {
		l.unflushed = err
	} else {
		l.fail(err)
	}
	return nil
}

func (l *Log) stageIndexesLocked(j *flushJob, list segmentList, mode flushMode) error {
	for _, s := range list {
		final := mode == forClose && s == list.active() && s.size.Load() > 0
		if final {
			s.addTimeLocked()
		}
		if !final && !s.indexChanged && s.offsets.unsaved()+s.times.unsaved() == 0 {
			continue
		}
		for _, x := range []*index{&s.offsets, &s.times} {
			f, err := s.saveIndexLocked(x)
			if err != nil {
				return err
			}
			j.files = append(j.files, f)
		}
		s.indexChanged = false
	}
	return nil
}

func (l *Log) stageAbortedLocked(j *flushJob, list segmentList) error {
	if err := l.noteTransactionalLocked(); err != nil {
		return err
	}
	for _, s := range list {
		f, err := s.saveAbortedLocked()
		if err != nil {
			return err
		}
		if f != nil {
			j.files = append(j.files, f)
			s.abortedChanged = false
		}
	}
	return nil
}

func (l *Log) stageEpochsLocked(j *flushJob) error {
	entries, differs := l.epochs.unsaved(l.end.Load())
	if !differs {
		return nil
	}
	j.epochs, j.epochsTmp = entries, true
	name := l.path + "/" + epochFile
	if err := writeTmp(l.dir.fs, name, encodeEpochs(entries), syncLater); err != nil {
		return err
	}
	f, err := l.dir.fs.Open(name+tmpSuffix, OpenWrite)
	if err == nil {
		j.files = append(j.files, f)
	}
	return err
}

func (j *flushJob) closeFiles() {
	for _, f := range j.files {
		f.Close()
	}
	j.files = nil
}

// syncJobs syncs what stage wrote.
func (d *Dir) syncJobs(jobs []*flushJob) {
	calls := 0
	for _, j := range jobs {
		calls += len(j.files) + len(j.snapshots)
	}
	all := calls > 1 && d.syncWhole(jobs)
	for _, j := range jobs {
		if !all {
			if err := j.sync(); err != nil {
				j.giveUp(err)
			}
		}
		j.closeFiles()
	}
}

// syncWhole syncs the whole file system, unless that is not possible.
func (d *Dir) syncWhole(jobs []*flushJob) bool {
	err := d.fs.SyncAll()
	if errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	if err != nil {
		for _, j := range jobs {
			j.log.fail(err)
		}
		d.failUnsettled(err)
	}
	return true
}

func (j *flushJob) sync() error {
	for _, f := range j.files {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	for _, o := range j.snapshots {
		err := syncNamed(j.log.dir.fs, offsetFileName(j.log.path, o, snapshotSuffix))
		if err != nil && !isMissing(err) { // it may have been removed meanwhile
			return err
		}
	}
	return nil
}

// rename puts the epoch file in its place, and says whether the folder has new names.
func (j *flushJob) rename() bool {
	l := j.log
	l.lock.Lock()
	defer l.lock.Unlock()
	if j.epochsTmp && l.truncations.Load() == j.truncations && l.usable() == nil {
		name := l.path + "/" + epochFile
		if err := l.dir.fs.Rename(name+tmpSuffix, name); err != nil {
			l.fail(err)
			return false
		}
		l.epochs.stored(j.epochs)
		l.namesChanged()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names != l.syncedNames || len(j.snapshots) > 0
}

// syncFolders syncs the folders with new names.
func (d *Dir) syncFolders(jobs []*flushJob) {
	if len(jobs) > 1 && d.syncWhole(jobs) {
		return
	}
	for _, j := range jobs {
		if err := d.fs.SyncDir(j.log.path); err != nil {
			j.giveUp(err)
		}
	}
}

// giveUp ends the job. A file that could not be opened was not synced in vain: the next flush comes.
func (j *flushJob) giveUp(err error) {
	if j.log.closed.Load() { // it was deleted meanwhile, and its files with it
		return
	}
	if !isTooManyFiles(err) {
		j.log.fail(err)
		return
	}
	j.gaveUp = true
	j.log.markChanged()
	j.log.lock.Lock()
	defer j.log.lock.Unlock()
	j.log.unflushed = err
}

func (j *flushJob) usable() bool { return !j.gaveUp && j.log.usable() == nil }

// publish moves the recovery point.
func (j *flushJob) publish() {
	l := j.log
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.truncations.Load() != j.truncations {
		l.markChanged()
		return
	}
	l.point.Store(max(l.point.Load(), j.point))
	l.newSnapshots = slices.DeleteFunc(l.newSnapshots, func(o int64) bool { return slices.Contains(j.snapshots, o) })
}

// writeCheckpoints writes the offset checkpoints.
func (d *Dir) writeCheckpoints() error {
	d.mu.Lock()
	gone := make([]logKey, 0, len(d.stale))
	for k := range d.stale {
		gone = append(gone, k)
	}
	d.mu.Unlock()
	d.watermarksChanged.Store(true)
	for _, write := range []func() error{d.writeRecoveryPoints, d.writeLogStarts, d.writeWatermarks, d.writeCleaned} {
		if err := write(); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range gone {
		delete(d.stale, k)
	}
	return nil
}

func (d *Dir) writeRecoveryPoints() error {
	type savedPoint struct {
		log   *Log
		point int64
	}
	var saved []savedPoint
	d.offsets.Lock()
	defer d.offsets.Unlock()
	err := d.writeOffsetsLocked(recoveryPointFile, 0, func(e *dirEntry) int64 {
		if e.log == nil {
			return e.point
		}
		s := savedPoint{e.log, e.log.point.Load()}
		saved = append(saved, s)
		return s.point
	})
	if err != nil {
		return err
	}
	for _, s := range saved {
		s.log.savedPoint.Store(s.point)
	}
	return nil
}

// SaveLogStarts makes the log start offsets of all logs durable, as SavedStart tells then.
func (d *Dir) SaveLogStarts() error { return asDiskFull(d.writeLogStarts()) }

// writeLogStarts writes the log start offsets. Kafka leaves out those that equal a log's first
// segment; ours are all there, so that a log can be opened without a look at its segments.
func (d *Dir) writeLogStarts() error {
	type savedStart struct {
		log   *Log
		start int64
	}
	var saved []savedStart
	d.offsets.Lock()
	defer d.offsets.Unlock()
	err := d.writeOffsetsLocked(logStartFile, 1, func(e *dirEntry) int64 {
		if e.log == nil {
			return e.start
		}
		s := savedStart{e.log, e.log.startToSave()}
		saved = append(saved, s)
		return s.start
	})
	if err != nil {
		return err
	}
	for _, s := range saved {
		s.log.saved.Store(s.start)
	}
	return nil
}

// writeWatermarks writes the high watermarks if one has changed.
func (d *Dir) writeWatermarks() error {
	if !d.watermarksChanged.Swap(false) {
		return nil
	}
	err := d.writeOffsets(watermarkFile, 0, func(e *dirEntry) int64 {
		if e.log != nil {
			return e.log.HighWatermark()
		}
		return e.hw
	})
	if err != nil {
		d.watermarksChanged.Store(true)
	}
	return err
}

// writeOffsets writes an offset checkpoint with the logs whose offset is at least least.
func (d *Dir) writeOffsets(name string, least int64, offset func(e *dirEntry) int64) error {
	d.offsets.Lock()
	defer d.offsets.Unlock()
	return d.writeOffsetsLocked(name, least, offset)
}

func (d *Dir) writeOffsetsLocked(name string, least int64, offset func(e *dirEntry) int64) error {
	all := d.entries()
	keys := make([]logKey, 0, len(all))
	values := make([]int64, 0, len(all))
	d.mu.Lock()
	for _, e := range all {
		if v := offset(e); v >= least {
			keys, values = append(keys, e.name.key()), append(values, v)
		}
	}
	d.mu.Unlock()
	return writeFile(d.fs, name, encodeOffsets(keys, func(i int) int64 { return values[i] }))
}

// releaseLocked closes the log's files.
func (l *Log) releaseLocked() {
	if p := l.segments.Load(); p != nil {
		for _, s := range *p {
			s.closeFilesLocked()
		}
	}
	l.mu.Lock()
	waiters := l.waiters
	l.waiters = nil
	l.mu.Unlock()
	for _, w := range waiters {
		w.done <- ErrClosed
	}
}

// Close syncs the log and closes its files; the directory forgets it but for its checkpoints. A log that is offline is
// closed as it is, and the error says so: it can be set aside then.
func (l *Log) Close() error {
	err := l.closeInOrder()
	if err != nil && l.Offline() != nil && !l.closed.Load() {
		l.abandon()
	}
	return err
}

func (l *Log) closeInOrder() error {
	for range math.MaxInt8 {
		if err := l.Sync(context.Background()); err != nil {
			return err
		}
		l.dir.flushing.Lock()
		l.dir.flush([]*Log{l}, forClose)
		closed, err := l.closeFlushed()
		l.dir.flushing.Unlock()
		if closed || err != nil {
			return err
		}
	}
	return fmt.Errorf("log %s is being appended to while it is closed", l.path)
}

// closeFlushed closes the log if nothing was appended since it was flushed.
func (l *Log) closeFlushed() (bool, error) {
	defer l.holdRounds()()
	l.lock.Lock()
	defer l.lock.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.usable(); err != nil {
		return false, err
	}
	if l.point.Load() != l.end.Load() {
		if l.unindexed < l.end.Load() {
			return false, fmt.Errorf("close log %s: %w", l.path, errUnindexed)
		}
		if l.unflushed != nil {
			return false, fmt.Errorf("close log %s: %w", l.path, asDiskFull(l.unflushed))
		}
		return false, nil
	}
	l.closed.Store(true)
	l.releaseLocked()
	l.dir.takeOver(l)
	return true, nil
}

// takeOver keeps what a closed log knew.
func (d *Dir) takeOver(l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.logs[l.name.key()]
	if e == nil || e.log != l {
		return
	}
	e.log = nil
	e.point, e.start, e.hw, e.cleaned = l.point.Load(), l.start.Load(), l.HighWatermark(), l.cleaned.Load()
	ok := l.Offline() == nil && e.point == l.end.Load()
	e.clean, e.known = ok, ok
}

// closeLogs syncs, flushes and closes all logs. The directory's goroutines have ended.
func (d *Dir) closeLogs() error {
	logs := d.openLogs()
	var dirty []*Log
	for _, l := range logs {
		if l.unsettled() {
			l.wantSync()
			dirty = append(dirty, l)
		}
	}
	d.committer.commit(dirty)
	d.flushing.Lock()
	defer d.flushing.Unlock()
	var touched []*Log
	for _, l := range logs {
		if l.touched.Load() {
			touched = append(touched, l)
		}
	}
	d.flush(touched, forClose)
	var errs []error
	for _, l := range logs {
		closed, err := l.closeFlushed()
		if closed || errors.Is(err, ErrClosed) {
			continue
		}
		if err == nil {
			err = fmt.Errorf("log %s was not closed in order", l.path)
		}
		errs = append(errs, err)
		l.abandon()
	}
	return errors.Join(errs...)
}

// abandon closes the files of a log that cannot be closed in order.
func (l *Log) abandon() {
	defer l.holdRounds()()
	l.lock.Lock()
	defer l.lock.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.closed.Store(true)
	l.releaseLocked()
	l.dir.takeOver(l)
}
