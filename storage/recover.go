package storage

import (
	"errors"
	"fmt"

	"millrace/record"
)

// recoverLocked finds out how much of the log reached the disk. Below the recovery point everything
// did, so damage there is an error. Past it the log ends at the first batch that is not whole and
// right, or where a segment does not go on from the one before: what was written later than lost
// data must not be kept, or offsets would be missing between.
func (l *Log) recoverLocked(list segmentList, stored []epochStart, snapshots []int64) (segmentList, error) {
	l.epochs.load(stored)
	r := recovery{log: l, point: l.point.Load(), end: l.start.Load()}
	kept := 0
	if len(list) > 0 {
		// The segment that was active when the recovery point was written may lack the last entry of
		// its time index. Those before it were complete.
		kept = list.at(r.point - 1)
	}
	for first := kept; kept < len(list) && (kept == first || list[kept].base == r.end); {
		r.next = nil
		if kept+1 < len(list) {
			r.next = list[kept+1]
		}
		whole, err := r.segment(list[kept])
		if err != nil {
			return nil, err
		}
		kept++
		if !whole {
			break
		}
	}
	if r.end < r.point {
		return nil, &CorruptionError{File: l.path, Position: -1,
			Err: fmt.Errorf("ends at offset %d, below the recovery point %d", r.end, r.point)}
	}
	if err := l.removeLost(list[kept:]); err != nil {
		return nil, err
	}
	list = list[:kept]
	start := l.start.Load()
	if r.end < start { // it was to be emptied and to begin again further up
		if err := l.removeLost(list); err != nil {
			return nil, err
		}
		list, r.tails = nil, nil
		l.epochs.truncateEnd(0)
	}
	r.kept = list
	if err := r.aborted(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		list, r.end = segmentList{newEmptySegment(l, start)}, start
	}
	l.settleRecovered(list, r.end)
	if err := l.loadSnapshotsLocked(snapshots); err != nil {
		return nil, err
	}
	return list, l.renewLocked(&r)
}

// removeLost deletes the files of segments that recovery gives up, the last one first, durably.
func (l *Log) removeLost(lost segmentList) error {
	if len(lost) == 0 {
		return nil
	}
	for i := len(lost) - 1; i >= 0; i-- {
		l.dir.logger.Warn("segment past lost data removed", "topic", l.name.Topic, "partition", l.name.Partition,
			"offset", lost[i].base)
		if err := lost[i].removeFiles(); err != nil {
			return err
		}
	}
	return l.dir.fs.SyncDir(l.path)
}

// settleRecovered sets the log's offsets to what recovery found, which counts as synced once renewLocked has made it
// so: nobody has the log before. The recovery point stays: the indexes past it are in memory.
func (l *Log) settleRecovered(list segmentList, end int64) {
	if hw := l.hw.Load(); hw > end {
		l.dir.logger.Warn("log ends below its high watermark: records that were read or acknowledged are gone",
			"topic", l.name.Topic, "partition", l.name.Partition, "offset", end,
			"err", fmt.Errorf("the high watermark was %d", hw))
	}
	start := max(l.start.Load(), list[0].base)
	point := min(l.point.Load(), end)
	l.start.Store(start)
	l.end.Store(end)
	l.point.Store(point)
	l.synced.Store(end)
	l.epochs.truncateEnd(end)
	l.epochs.truncateStart(start)
	if _, differs := l.epochs.unsaved(end); differs || end != point {
		l.markChanged()
	}
}

// recovery checks the segments past the recovery point.
type recovery struct {
	log   *Log
	point int64
	end   int64    // offset after the last good batch
	next  *segment // the one behind that which is checked, or nil
	tails []tail
	kept  segmentList // those of the segments on disk that are kept

	aborts bool // there is an ABORT marker past the recovery point
}

// segment checks one segment from the last index entry below the recovery point on, makes its
// indexes anew from there, and cuts it behind the last good batch. whole says that nothing was cut.
func (r *recovery) segment(s *segment) (whole bool, err error) {
	from, err := r.land(s)
	if err == errDamagedIndex || isCorrupt(err) {
		from, err = landing{base: s.base}, nil
		s.forgetIndexesLocked()
	}
	if err != nil {
		return false, err
	}
	size := s.size.Load()
	buffers := r.log.dir.buffersFor(size - from.pos)
	buf := buffers.get()
	defer buffers.put(buf)
	w := s.walkWith(from.pos, size, buf)
	w.lax = true // check knows more
	r.end = from.base
	r.log.epochs.truncateEnd(r.end)
	good, err := r.walk(s, &w, from)
	if err != nil {
		return false, err
	}
	s.addTimeLocked()
	if s.indexChanged || s.offsets.unsaved()+s.times.unsaved() > 0 {
		r.log.markChanged()
	}
	r.log.mu.Lock()
	s.greatestOK = true
	r.log.mu.Unlock()
	if good == size {
		return true, nil
	}
	r.log.dir.logger.Warn("log cut behind its last whole batch", "topic", r.log.name.Topic,
		"partition", r.log.name.Partition, "offset", r.end, "bytes", size-good)
	s.size.Store(good)
	return false, s.cutLog(good)
}

// walk checks batches until one is bad, and gives the position at which the good ones end.
func (r *recovery) walk(s *segment, w *walker, from landing) (good int64, err error) {
	interval := r.log.config.Load().IndexInterval
	for good = w.pos; w.more(); good = w.pos {
		b, pos, err := w.whole()
		if err == nil {
			err = r.check(w, b, pos)
		}
		if isCorrupt(err) && r.end >= r.point {
			return good, nil
		}
		if err != nil {
			return good, err
		}
		if r.end = b.NextOffset(); r.end > r.point && (len(r.tails) == 0 || r.tails[len(r.tails)-1].segment != s) {
			r.tails = append(r.tails, tail{s, pos})
		}
		r.noteTransaction(b)
		r.log.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
		r.log.mu.Lock()
		s.observe(b)
		r.log.mu.Unlock()
		if from.indexed && pos == from.pos {
			s.sinceEntry = int64(len(b)) // the entry for this one is there
		} else {
			s.indexLocked(b, pos, interval)
		}
	}
	return good, nil
}

// check says what is wrong with a batch, which the walk has just passed, as a CorruptionError.
func (r *recovery) check(w *walker, b record.Batch, pos int64) error {
	err, s, latest := b.Verify(), w.seg, r.log.epochs.latest()
	switch {
	case err != nil:
	case b.BaseOffset() < r.end:
		err = fmt.Errorf("%w: offset %d follows offset %d", record.ErrCorrupt, b.BaseOffset(), r.end-1)
	case b.LastOffset()-s.base > maxRelative:
		err = fmt.Errorf("%w: offset %d does not fit the segment", record.ErrCorrupt, b.LastOffset())
	case b.LeaderEpoch() < latest:
		err = fmt.Errorf("%w: leader epoch %d follows %d", record.ErrCorrupt, b.LeaderEpoch(), latest)
	case b.BaseOffset() > r.end || b.LeaderEpoch() > latest:
		err = r.doubt(w, b)
	}
	if err == nil || isFailedRead(err) {
		return err
	}
	return w.corruptAt(pos, err)
}

// isFailedRead says whether an error is none of what was read.
func isFailedRead(err error) bool {
	return !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrShort)
}

// doubt looks at what no checksum covers of a batch that does not simply go on where the one before ended: those behind
// it tell whether it is right. Nothing follows the last batch of a log.
func (r *recovery) doubt(w *walker, b record.Batch) error {
	behind, err := r.behind(w)
	gap := b.BaseOffset() > r.end
	switch {
	case err != nil:
		return err
	case len(behind) == 0 && gap && !r.log.gaps:
		return fmt.Errorf("%w: offset %d follows offset %d", record.ErrCorrupt, b.BaseOffset(), r.end-1)
	case len(behind) > 0 && gap && behind[0].base < b.NextOffset():
		return fmt.Errorf("%w: offset %d is followed by offset %d", record.ErrCorrupt, b.LastOffset(), behind[0].base)
	case len(behind) > 1 && behind[0].epoch < b.LeaderEpoch() && behind[1].epoch < b.LeaderEpoch():
		return fmt.Errorf("%w: leader epoch %d is followed by %d", record.ErrCorrupt, b.LeaderEpoch(), behind[0].epoch)
	}
	return nil
}

// behind gives what the next two batches that a walk comes to claim, in the next segment if need be; those that are
// not whole claim nothing.
func (r *recovery) behind(w *walker) (claims []epochBase, err error) {
	ahead := w.seg.walk(w.pos, w.end)
	defer func() { ahead.close() }()
	for len(claims) < 2 {
		if !ahead.more() {
			if ahead.seg == r.next || r.next == nil {
				return claims, nil
			}
			ahead.close()
			ahead = r.next.walk(0, r.next.size.Load())
			continue
		}
		ahead.lax = true
		b, _, err := ahead.whole()
		if isCorrupt(err) || err == nil && b.Verify() != nil {
			return claims, nil
		}
		if err != nil {
			return nil, err
		}
		claims = append(claims, epochBase{b.BaseOffset(), b.LeaderEpoch()})
	}
	return claims, nil
}

// epochBase is what no checksum of a batch covers.
type epochBase struct {
	base  int64
	epoch int32
}

// landing is where the check of a segment begins: at a batch below the recovery point that an index
// entry leads to, or at the segment's start.
type landing struct {
	pos     int64
	base    int64 // of that batch
	indexed bool
}

// land finds the last index entry below the recovery point, checks what it says against its batch,
// and drops the entries behind it. errDamagedIndex, or damage where the entry leads, means that the
// check has to begin at the segment's start.
func (r *recovery) land(s *segment) (landing, error) {
	if s.base >= r.point {
		return landing{}, errDamagedIndex // nothing here was below the recovery point
	}
	for _, x := range []*index{&s.offsets, &s.times} {
		n, whole, err := s.countEntries(x.kind)
		if err != nil {
			return landing{}, err
		}
		x.state.Store(newIndexState(n))
		if !whole {
			if err := s.cutIndexLocked(x, n); err != nil {
				return landing{}, err
			}
		}
	}
	i, e, err := s.floor(&s.offsets, byKey, r.point-1-s.base)
	if err != nil {
		return landing{}, err
	}
	if i < 0 || e.key < 0 || e.value < 0 || e.value >= s.size.Load() {
		return landing{}, errDamagedIndex
	}
	w := s.walk(e.value, s.size.Load())
	defer w.close()
	b, _, err := w.whole()
	if err != nil {
		return landing{}, err
	}
	if b.Verify() != nil || b.LastOffset() != s.base+e.key {
		return landing{}, errDamagedIndex
	}
	from := landing{pos: e.value, base: b.BaseOffset(), indexed: true}
	return from, r.keepIndexes(s, i, e)
}

// keepIndexes keeps the entries up to the i-th of the offset index and takes over the timestamps.
func (r *recovery) keepIndexes(s *segment, i int, e entry) error {
	j, t, err := s.floor(&s.times, byValue, e.key)
	if err != nil {
		return err
	}
	if j < 0 {
		return errDamagedIndex
	}
	if err := s.checkTimeEntry(t); err != nil {
		return err
	}
	r.log.mu.Lock()
	s.greatest = greatestTimestamp{t.key, s.base + t.value}
	r.log.mu.Unlock()
	s.timeIndexed = t.key
	if s.offsets.count() > i+1 {
		if err := s.cutIndexLocked(&s.offsets, i+1); err != nil {
			return err
		}
	}
	if s.times.count() > j+1 {
		return s.cutIndexLocked(&s.times, j+1)
	}
	return nil
}

// forgetIndexesLocked starts the segment's indexes and timestamps afresh.
func (s *segment) forgetIndexesLocked() {
	s.dropHandle(offsetKind, nil)
	s.dropHandle(timeKind, nil)
	s.resetIndexes()
	s.sinceEntry, s.timeIndexed, s.indexChanged = 0, noTimestamp, true
	s.log.mu.Lock()
	s.greatest, s.greatestOK = greatestTimestamp{noTimestamp, s.base}, false
	s.log.mu.Unlock()
}

// cutLog cuts the segment's log file, durably: bytes that came back could follow new ones as if they
// belonged there.
func (s *segment) cutLog(size int64) error {
	f, err := s.log.dir.fs.Open(s.fileName(logKind), OpenWrite)
	if err != nil {
		return err
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// removeFiles removes the segment's files, the log file last: without it the others are cleared
// away at the next start.
func (s *segment) removeFiles() error {
	for k := range fileKinds {
		s.dropHandle(k, nil)
	}
	for _, suffix := range []string{indexSuffix, timeSuffix, txnSuffix, logSuffix} {
		err := s.log.dir.fs.Remove(offsetFileName(s.log.path, s.base, suffix))
		if err != nil && !isMissing(err) {
			return err
		}
	}
	return nil
}
