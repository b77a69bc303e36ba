package storage

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"sync/atomic"
	"time"

	"millrace/internal/invariant"
	"millrace/record"
)

// segment is a run of a log's batches, in one .log file with its two indexes. Only the last segment
// of a log, the active one, is appended to; the others change no more.
//
// A method whose name ends in Locked needs the log's lock.
type segment struct {
	log  *Log
	base int64 // no batch starts before this offset

	// size is the number of bytes of whole batches in the log file. It grows after the bytes are
	// written and never shrinks: truncation puts another segment in this one's place.
	size    atomic.Int64
	files   [fileKinds]atomic.Pointer[openFile]
	offsets index
	times   index
	aborted txnIndex
	hints   hints

	gone   atomic.Bool // another segment has the file names; set before that
	suffix string      // of the file names, as long as the segment is in the making

	// Guarded by the log's lock, and of use in the active segment only.
	pinned         *openFile     // the log file, open for writing
	sinceEntry     int64         // bytes since the last index entry
	timeIndexed    int64         // timestamp of the time index's last entry
	indexChanged   bool          // the index files differ from what was last synced
	abortedChanged bool          // so does that of aborted transactions
	firstTimestamp int64         // greatest timestamp of the first batch, unknownTimestamp until read
	created        time.Time     // when this process first saw the segment
	jitter         time.Duration // how much earlier than its age says it rolls

	// Guarded by the log's mu.
	greatest   greatestTimestamp
	greatestOK bool // greatest covers the whole segment
	syncedSize int64
	queued     bool // in the log's list of segments to be synced
	doubt      span // what is to be written again before the file is synced
}

// span is a part of a file, nothing if empty.
type span struct{ from, to int64 }

// greatestTimestamp is the greatest timestamp of a segment, noTimestamp if it has none, and the last
// offset of the first batch that holds it.
type greatestTimestamp struct {
	timestamp int64
	offset    int64
}

const (
	noTimestamp      = -1
	unknownTimestamp = math.MinInt64
)

func newSegment(l *Log, base int64) *segment {
	s := &segment{log: l, base: base, firstTimestamp: unknownTimestamp, timeIndexed: noTimestamp, created: l.dir.now()}
	s.offsets.kind = offsetKind
	s.times.kind = timeKind
	s.greatest = greatestTimestamp{noTimestamp, base}
	s.jitter = l.dir.drawJitter(l.config.Load().SegmentJitter)
	return s
}

// newEmptySegment is a segment of which nothing is on disk.
func newEmptySegment(l *Log, base int64) *segment {
	s := newSegment(l, base)
	s.resetIndexes()
	s.aborted.state.Store(&txnState{})
	s.greatestOK = true
	return s
}

func (s *segment) resetIndexes() {
	s.offsets.state.Store(newIndexState(0))
	s.times.state.Store(newIndexState(0))
}

func (s *segment) fileName(k fileKind) string {
	return offsetFileName(s.log.path, s.base, k.suffix()+s.suffix)
}

// relative is an offset as the indexes store it.
func (s *segment) relative(offset int64) int64 {
	r := offset - s.base
	if r < 0 || r > math.MaxInt32 {
		invariant.Check(false, "%s: offset %d does not fit segment %d", s.log.path, offset, s.base)
	}
	return r
}

// observe takes a batch's timestamp into account, unless there is no record to it. The log's mu is held.
func (s *segment) observe(b record.Batch) {
	if ts := b.MaxTimestamp(); ts > s.greatest.timestamp && b.Count() > 0 {
		s.greatest = greatestTimestamp{ts, b.LastOffset()}
	}
}

// indexLocked makes the index entries for a batch that starts at pos and has been observed.
func (s *segment) indexLocked(b record.Batch, pos int64, interval int) {
	if pos == 0 {
		s.firstTimestamp = b.MaxTimestamp()
	}
	if s.sinceEntry > int64(interval) {
		s.offsets.addLocked(entry{s.relative(b.LastOffset()), pos})
		s.addTimeLocked()
		s.sinceEntry = 0
	}
	s.sinceEntry += int64(b.Length())
}

// addTimeLocked appends the greatest timestamp to the time index unless it is there.
func (s *segment) addTimeLocked() {
	s.log.mu.Lock()
	g := s.greatest
	s.log.mu.Unlock()
	if g.timestamp > s.timeIndexed {
		s.times.addLocked(entry{g.timestamp, s.relative(g.offset)})
		s.timeIndexed = g.timestamp
	}
}

// timestamps gives the greatest timestamp, reading it from the time index if need be.
func (s *segment) timestamps() (greatestTimestamp, error) {
	s.log.mu.Lock()
	g, ok := s.greatest, s.greatestOK
	s.log.mu.Unlock()
	if ok {
		return g, nil
	}
	g, err := s.storedTimestamp()
	if err != nil {
		return g, err // errDamagedIndex: make the indexes anew, which settles it
	}
	s.log.mu.Lock()
	s.greatest, s.greatestOK = g, true
	s.log.mu.Unlock()
	return g, nil
}

// storedTimestamp reads the last entry of a sealed segment's time index and makes sure that its
// batch agrees. An empty index of a segment that is not empty tells nothing, so the batches do.
func (s *segment) storedTimestamp() (greatestTimestamp, error) {
	if _, err := s.loadIndex(&s.times); err != nil {
		return greatestTimestamp{}, err
	}
	e, ok, err := s.last(&s.times)
	if err != nil {
		return greatestTimestamp{}, err
	}
	if !ok {
		return s.scanTimestamps(0)
	}
	return greatestTimestamp{e.key, s.base + e.value}, s.checkTimeEntry(e)
}

// scanTimestamps finds the greatest timestamp of the batches from offset from on.
func (s *segment) scanTimestamps(from int64) (greatestTimestamp, error) {
	g := greatestTimestamp{noTimestamp, s.base}
	w := s.walk(0, s.size.Load())
	defer w.close()
	for w.more() {
		b, _, err := w.header()
		if err != nil {
			return g, err
		}
		if b.LastOffset() >= from && b.MaxTimestamp() > g.timestamp && b.Count() > 0 {
			g = greatestTimestamp{b.MaxTimestamp(), b.LastOffset()}
		}
	}
	return g, nil
}

// checkTimeEntry makes sure that the batch which a time index entry names is as it says.
func (s *segment) checkTimeEntry(e entry) error {
	if e.value < 0 || e.key < 0 {
		return errDamagedIndex
	}
	b, err := s.find(s.base + e.value)
	if errors.Is(err, errNoBatch) {
		return errDamagedIndex
	}
	if err != nil {
		return err
	}
	if b.last != s.base+e.value || b.maxTimestamp != e.key {
		return errDamagedIndex
	}
	return nil
}

// foundBatch is where a batch lies and what its header says.
type foundBatch struct {
	pos          int64
	size         int
	base, last   int64
	maxTimestamp int64
	epoch        int32
}

// errNoBatch says that a segment holds nothing at or above an offset.
var errNoBatch = errors.New("no batch at or above the offset")

// find gives the first batch whose last offset is at or above offset. What the index says is
// compared with the batch, so that a wrong one does no harm.
func (s *segment) find(offset int64) (foundBatch, error) {
	e, ok, err := s.indexed(offset)
	if err != nil {
		return foundBatch{}, err
	}
	w := s.walk(e.value, s.size.Load())
	defer w.close()
	if ok {
		if err := w.checkEntry(e); err != nil {
			return foundBatch{}, err
		}
	}
	return w.seek(s.base, offset)
}

// checkEntry compares an entry of the offset index with the batch that it names, the walk's next. A
// damaged batch is no reason to make the index anew, and will not do.
func (w *walker) checkEntry(e entry) error {
	w.lax = true
	_, err := w.peek()
	w.lax = false
	if err == nil {
		if b := record.Batch(w.buf[w.pos-w.at:]); b.LastOffset() == w.seg.base+e.key {
			w.startAt(w.pos, b.BaseOffset())
			return nil
		}
	}
	if err != nil && !isCorrupt(err) {
		return err
	}
	if w.seg.indexHolds(e) {
		w.wrong = e.value
		return nil
	}
	return errDamagedIndex
}

// seek gives the first batch of the rest of a walk whose last offset is at or above offset; none
// starts below after. Damage before the offset is passed, if it is known where the batches go on.
func (w *walker) seek(after, offset int64) (foundBatch, error) {
	for w.more() {
		b, pos, err := w.header()
		if err == nil && (b.BaseOffset() < after || w.seg.misplaced(b)) {
			err = w.corruptAt(pos, fmt.Errorf("%w: offset %d behind %d", record.ErrCorrupt, b.BaseOffset(), after))
		}
		if isCorrupt(err) {
			at, base, ok := w.seg.passDamage(pos)
			if !ok || base > offset {
				return foundBatch{}, err
			}
			w.startAt(at, base)
			after = base
			continue
		}
		if err != nil {
			return foundBatch{}, err
		}
		if b.LastOffset() >= offset {
			return foundBatch{
				pos: pos, size: b.Length(), base: b.BaseOffset(), last: b.LastOffset(),
				maxTimestamp: b.MaxTimestamp(), epoch: b.LeaderEpoch(),
			}, nil
		}
		after = b.NextOffset()
	}
	return foundBatch{}, errNoBatch
}

// indexed gives the offset index's last entry at or below an offset.
func (s *segment) indexed(offset int64) (e entry, ok bool, err error) {
	if _, err := s.loadIndex(&s.offsets); err != nil {
		return entry{}, false, err
	}
	i, e, err := s.floor(&s.offsets, byKey, offset-s.base)
	if err != nil || i < 0 {
		return entry{}, false, err
	}
	if e.key < 0 || e.value < 0 || e.value >= s.size.Load() {
		return entry{}, false, errDamagedIndex
	}
	return e, true, nil
}

// rebuildIndexesLocked makes both indexes anew from the batches. Where those are damaged the indexes stay as they were:
// half of them would pass for all.
func (s *segment) rebuildIndexesLocked() error {
	offsets, times := s.offsets.state.Load(), s.times.state.Load()
	sinceEntry, timeIndexed, changed := s.sinceEntry, s.timeIndexed, s.indexChanged
	s.log.mu.Lock()
	greatest, greatestOK := s.greatest, s.greatestOK
	s.log.mu.Unlock()
	err := s.reindexLocked()
	if err == nil {
		return nil
	}
	s.offsets.state.Store(offsets)
	s.times.state.Store(times)
	s.sinceEntry, s.timeIndexed, s.indexChanged = sinceEntry, timeIndexed, changed
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.greatest, s.greatestOK = greatest, greatestOK
	return err
}

func (s *segment) reindexLocked() error {
	s.forgetIndexesLocked()
	interval := s.log.config.Load().IndexInterval
	w := s.walk(0, s.size.Load())
	defer w.close()
	for w.more() {
		b, pos, err := w.header()
		if err != nil {
			return err
		}
		s.log.mu.Lock()
		s.observe(b)
		s.log.mu.Unlock()
		s.indexLocked(b, pos, interval)
	}
	s.addTimeLocked()
	s.log.mu.Lock()
	s.greatestOK = true
	s.log.mu.Unlock()
	return nil
}

// indexesFullLocked says whether the segment must not take one more batch.
func (s *segment) indexesFullLocked(bytes int) bool {
	offsets, times := indexCapacity(bytes)
	return s.offsets.count() >= offsets || s.times.count() >= times
}

// indexCapacity is how many entries the two indexes of a segment may have before it is full.
func indexCapacity(bytes int) (offsets, times int) {
	return max(bytes/offsetEntrySize, 1), max(bytes/timeEntrySize-1, 1) // one is kept free for the last entry
}

// segmentList is a log's segments by base offset, the active one last. It is never changed.
type segmentList []*segment

func (l segmentList) active() *segment { return l[len(l)-1] }

// at is the place of the segment that holds an offset: the last one with a base at or below it.
func (l segmentList) at(offset int64) int {
	return max(sort.Search(len(l), func(i int) bool { return l[i].base > offset })-1, 0)
}

// size is the number of bytes in all segments.
func (l segmentList) size() (n int64) {
	for _, s := range l {
		n += s.size.Load()
	}
	return n
}
