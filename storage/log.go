package storage

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"millrace/record"
)

// PartitionName names a log: its folder is Topic-Partition. Topic must have passed Kafka's rule for
// topic names. TopicID tells topics of the same name apart.
type PartitionName struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// String is the name of the partition's folder.
func (n PartitionName) String() string { return n.Topic + "-" + strconv.Itoa(int(n.Partition)) }

// Log is one partition's log. All methods are safe for concurrent use.
//
// Offsets: start <= hw <= end and synced <= end, except while a truncation runs.
type Log struct {
	dir  *Dir
	path string // the partition's folder
	name PartitionName

	// lock is held by whatever writes files or changes the segment list. syncing is held while the
	// files are synced, and by whatever removes some of them; it is taken after lock.
	lock    ioLock
	syncing ioLock
	// cleaning is held by a round of compaction, and taken before every other lock.
	cleaning ioLock

	segments atomic.Pointer[segmentList] // nil until the files were first looked at
	config   atomic.Pointer[Config]

	start  atomic.Int64 // log start offset; changed under lock, only grows but for a full truncation
	saved  atomic.Int64 // log start offset on disk; changed with the directory's offsets held
	end    atomic.Int64 // log end offset; grows after the batch is written
	synced atomic.Int64 // all below it is durable, or gone for good
	hw     atomic.Int64 // what the partition last said; for the checkpoint

	// point is the recovery point: below it data and indexes are durable. The checkpoint on disk may
	// say less, but never more.
	point atomic.Int64
	// savedPoint is the recovery point on disk; cleaned is where compaction goes on.
	savedPoint, cleaned atomic.Int64
	next                atomic.Int64 // log start offset to be, while the log begins anew; else none
	changed             atomic.Bool  // since the last checkpoint
	touched             atomic.Bool  // since its files were as a clean stop leaves them

	truncations atomic.Uint64 // odd while a truncation runs, or files change names; readers compare it
	closed      atomic.Bool
	failure     atomic.Pointer[failure]

	epochs epochCache

	transactional atomic.Bool // a batch of a transaction was appended some time; changed under lock
	abortedLost   atomic.Bool // entries of the index of aborted transactions are missing; changed under lock

	// Guarded by lock.
	snapshots    []int64 // offsets of the producer snapshots on disk, rising
	newSnapshots []int64 // those of them that are not synced
	recover      bool    // the last stop was not clean: batches past point are to be checked
	endUnknown   bool    // no checkpoint says where the log ends
	unindexed    int64   // markers from here on may lack their entry: the recovery point stays below
	txnNoted     bool    // the folder says that there were transactions
	gaps         bool    // the folder says that offsets may be missing between batches
	unflushed    error   // why the last flush did not come about, if that may pass

	mu          sync.Mutex
	unsynced    []*segment   // guarded by mu; segments with data that is not synced, rising
	names       uint64       // guarded by mu; counts what was made, renamed or removed in the folder
	syncedNames uint64       // guarded by mu; the count up to which the folder was synced
	newFolder   bool         // guarded by mu; the folder's own name and metadata are not synced
	wantActive  bool         // guarded by mu; the next sync includes the active segment
	waiters     []syncWaiter // guarded by mu
	onSynced    func(int64)  // guarded by mu
	onOffline   func(error)  // guarded by mu

	stopRound context.CancelCauseFunc // guarded by mu; ends the round of compaction under way
	holds     int                     // guarded by mu; who keeps rounds from beginning

	// Guarded by the committer's mu.
	requested bool // in the committer's list
	scheduled bool // in the committer's list of flush times
}

// failure is why a log is offline.
type failure struct{ err error }

func newLog(d *Dir, n PartitionName, c Config) *Log {
	l := &Log{dir: d, path: n.String(), name: n, lock: newIOLock(), syncing: newIOLock(), cleaning: newIOLock()}
	c = c.normal()
	l.config.Store(&c)
	l.next.Store(noOffset)
	l.unindexed = wholeIndex
	return l
}

// noOffset is no offset.
const noOffset = -1

// Name is the name under which the log was opened, with the topic id found on disk.
func (l *Log) Name() PartitionName { return l.name }

// StartOffset is the log start offset: earlier records are deleted.
func (l *Log) StartOffset() int64 { return l.start.Load() }

// SavedStart is the log start offset below which no crash brings anything back. It is below StartOffset between
// RaiseStart and the next checkpoint or SaveLogStarts.
func (l *Log) SavedStart() int64 { return min(l.saved.Load(), l.start.Load()) }

// EndOffset is the log end offset: that of the next batch.
func (l *Log) EndOffset() int64 { return l.end.Load() }

// SyncedOffset is the offset below which all is durable.
func (l *Log) SyncedOffset() int64 { return l.synced.Load() }

// HighWatermark is what SetHighWatermark stored, or the last checkpoint had, within start and end.
func (l *Log) HighWatermark() int64 {
	end := l.end.Load()
	return max(min(l.hw.Load(), end), l.start.Load())
}

// SetHighWatermark hands over the high watermark, for the checkpoint.
func (l *Log) SetHighWatermark(hw int64) {
	if l.hw.Swap(hw) != hw {
		l.dir.watermarksChanged.Store(true)
	}
}

// Generation changes whenever batches are cut off or compacted away.
func (l *Log) Generation() uint64 { return l.truncations.Load() }

// Size is the number of bytes in all segments' log files.
func (l *Log) Size() (int64, error) {
	list, err := l.list()
	if err != nil {
		return 0, err
	}
	return list.size(), nil
}

// Segments is the number of segments.
func (l *Log) Segments() (int, error) {
	list, err := l.list()
	return len(list), err
}

// Reconfigure changes the log's settings from now on.
func (l *Log) Reconfigure(c Config) {
	c = c.normal()
	l.config.Store(&c)
}

// Offline gives the error that every call returns after a failed write or sync, or nil.
func (l *Log) Offline() error {
	if f := l.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// usable says why nothing can be done with the log, if that is so.
func (l *Log) usable() error {
	if l.closed.Load() {
		return ErrClosed
	}
	return l.Offline()
}

// fail takes the log offline and gives the error that it answers from now on.
func (l *Log) fail(cause error) error {
	f := &failure{fmt.Errorf("%w: %s: %w", ErrOffline, l.path, cause)}
	if !l.failure.CompareAndSwap(nil, f) {
		return l.Offline()
	}
	l.dir.stats.offlineLogs.Add(1)
	l.dir.logger.Error("log goes offline", "topic", l.name.Topic, "partition", l.name.Partition, "err", cause)
	l.mu.Lock()
	waiters, tell := l.waiters, l.onOffline
	l.waiters = nil
	l.mu.Unlock()
	for _, w := range waiters {
		w.done <- f.err
	}
	if tell != nil {
		tell(f.err)
	}
	return f.err
}

// list gives the segments, looking at the files if that has not happened yet.
func (l *Log) list() (segmentList, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	if p := l.segments.Load(); p != nil {
		return *p, nil
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.listLocked()
}

func (l *Log) listLocked() (segmentList, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	if p := l.segments.Load(); p != nil {
		return *p, nil
	}
	if err := l.loadLocked(); isCorrupt(err) {
		return nil, unusableError{err}
	} else if err != nil {
		return nil, err
	}
	return *l.segments.Load(), nil
}

// setListLocked publishes the segments.
func (l *Log) setListLocked(list segmentList) { l.segments.Store(&list) }

// namesChanged notes that the folder must be synced before the log counts as synced. It comes after the change: a sync
// that began between the two would take for durable what it has not seen.
func (l *Log) namesChanged() {
	l.mu.Lock()
	l.names++
	l.mu.Unlock()
}

// markChanged notes that the next checkpoint, and a clean stop, have to look at the log.
func (l *Log) markChanged() {
	if !l.changed.Load() {
		l.changed.Store(true)
	}
	if !l.touched.Load() {
		l.touched.Store(true)
	}
}

// AssignEpoch notes that epoch starts at offset start, usually the log end. Epochs at or below the
// latest are ignored. Append does it by itself when a batch brings a new epoch. It does no I/O: an
// epoch that wrote nothing may be forgotten by a crash, and one that did is found in its batches.
func (l *Log) AssignEpoch(epoch int32, start int64) error {
	if err := l.usable(); err != nil {
		return err
	}
	l.epochs.assign(epoch, start)
	if start < l.end.Load() { // else there is nothing to be saved before the next append
		l.markChanged()
	}
	return nil
}

// EndOffsetForEpoch gives the greatest known epoch at or below the asked one, and where it ended:
// the start of the next epoch, or the log end for the latest. ok is false for an epoch above the
// latest, or if none is known.
func (l *Log) EndOffsetForEpoch(epoch int32) (found int32, end int64, ok bool, err error) {
	if _, err := l.list(); err != nil {
		return -1, -1, false, err
	}
	found, end, ok = l.epochs.endOf(epoch, l.end.Load())
	return found, end, ok, nil
}

// EpochFor is the leader epoch under which an offset was or would be written, -1 if unknown.
func (l *Log) EpochFor(offset int64) (int32, error) {
	if _, err := l.list(); err != nil {
		return -1, err
	}
	return l.epochs.at(offset), nil
}

// LatestEpoch is the last leader epoch known, -1 if there is none.
func (l *Log) LatestEpoch() (int32, error) {
	if _, err := l.list(); err != nil {
		return -1, err
	}
	return l.epochs.latest(), nil
}

// Scan calls f with the batches from the one that holds offset from to the log's end as it is now.
// A batch may consist of its header alone (len < Length), unless it is a control batch. It is valid
// until f returns.
func (l *Log) Scan(from int64, f func(b record.Batch) error) error {
	end := l.end.Load()
	from = max(from, l.start.Load())
	var failed error
	call := func(b record.Batch) error {
		failed = f(b)
		return failed
	}
	for tries := 0; from < end; {
		list := l.segments.Load()
		next, err := l.scanSegment(from, end, call)
		if err != nil && failed == nil && isMissing(err) && tries < maxReads && l.waitForWriter() != list {
			from, tries = next, tries+1 // compaction has replaced the segment
			continue
		}
		if err != nil {
			return err
		}
		from, tries = next, 0
	}
	return nil
}

// scanSegment calls f with the batches of one segment and gives the offset to go on from, also with an error.
func (l *Log) scanSegment(from, end int64, f func(b record.Batch) error) (int64, error) {
	list, err := l.list()
	if err != nil {
		return from, err
	}
	i := list.at(from)
	next := end
	if i+1 < len(list) {
		next = list[i+1].base
	}
	b, err := l.find(list[i], from)
	if err == errNoBatch {
		return next, nil
	}
	if err != nil {
		return from, err
	}
	w := list[i].walk(b.pos, list[i].size.Load())
	defer w.close()
	w.startAt(b.pos, b.base)
	for w.more() {
		b, err := w.scanNext()
		if err != nil {
			return from, err
		}
		if b.BaseOffset() >= end {
			break
		}
		if err := f(b); err != nil {
			return from, err
		}
		from = b.NextOffset()
	}
	return next, nil
}

// scanNext gives the next header, with the whole batch if it is a control batch.
func (w *walker) scanNext() (record.Batch, error) {
	before := w.pos
	b, _, err := w.header()
	if err != nil || !b.IsControl() || len(b) == b.Length() {
		return b, err
	}
	w.pos = before
	b, _, err = w.whole()
	return b, err
}

// find is segment.find, which makes the segment's indexes anew when they prove wrong.
func (l *Log) find(s *segment, offset int64) (foundBatch, error) {
	b, err := s.find(offset)
	if err != errDamagedIndex {
		return b, err
	}
	if err := l.rebuildIndexes(s); err != nil {
		return foundBatch{}, err
	}
	return s.find(offset)
}

// timestamps is segment.timestamps in the same way.
func (l *Log) timestamps(s *segment) (greatestTimestamp, error) {
	g, err := s.timestamps()
	if err != errDamagedIndex {
		return g, err
	}
	if err := l.rebuildIndexes(s); err != nil {
		return g, err
	}
	return s.timestamps()
}

func (l *Log) rebuildIndexes(s *segment) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.rebuildIndexesLocked(s)
}

func (l *Log) rebuildIndexesLocked(s *segment) error {
	if err := l.usable(); err != nil {
		return err
	}
	if s.gone.Load() {
		return errGone
	}
	l.dir.logger.Warn("index made anew", "topic", l.name.Topic, "partition", l.name.Partition, "offset", s.base)
	l.markChanged()
	return s.rebuildIndexesLocked()
}

// Sync waits until everything appended before the call is durable.
func (l *Log) Sync(ctx context.Context) error {
	w := syncWaiter{target: l.end.Load(), done: make(chan error, 1)}
	if err := l.usable(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.synced.Load() >= w.target {
		l.mu.Unlock()
		return nil
	}
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	if err := l.usable(); err != nil { // it failed before the waiter was in the list
		return err
	}
	l.RequestSync()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
