package storage

import (
	"context"
	"errors"
	"strconv"
	"time"

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

var errUnwritten = errors.New("not written yet")

// Dir is one data directory.
type Dir struct{}

// Stats counts what a directory did since it was opened.
type Stats struct {
	AppendedBatches, AppendedBytes int64
	Commits                        int64 // syncs for waiting appends, however many files each had
	SyncedFiles                    int64 // fdatasync calls of commits
	SyncedAll                      int64 // syncfs calls of commits
	Rolls                          int64
	RemovedSegments                int64
	OfflineLogs                    int64
	OpenFiles                      int64
}

// OpenDir locks a data directory and reads its checkpoints. Logs are opened one by one.
func OpenDir(o DirOptions) (*Dir, error) { return nil, errUnwritten }

// WasClean says whether the last process closed the directory; true as well for a new one.
func (d *Dir) WasClean() bool { return false }

// Meta gives what SetMeta stored; ok is false in a new directory.
func (d *Dir) Meta() (m Meta, ok bool) { return Meta{}, false }

// SetMeta stores to whom the directory belongs.
func (d *Dir) SetMeta(m Meta) error { return errUnwritten }

// Partitions lists the logs on disk, open or not, sorted by name.
func (d *Dir) Partitions() ([]PartitionName, error) { return nil, errUnwritten }

// CreateLog makes a new, empty log. It is durable when the first record in it is.
func (d *Dir) CreateLog(n PartitionName, c Config) (*Log, error) { return nil, errUnwritten }

// OpenLog opens a log that is on disk, recovering it if the last stop was not clean. After a clean
// stop it reads nothing. A zero TopicID accepts any topic; another one must match (ErrTopicID).
// Safe for concurrent use, so that many logs can be recovered at a time.
func (d *Dir) OpenLog(n PartitionName, c Config) (*Log, error) { return nil, errUnwritten }

// DeleteLog closes a log and removes its files in the background.
func (d *Dir) DeleteLog(l *Log) error { return errUnwritten }

// SetAside renames the folder of a log that is not open to TOPIC-PARTITION.ID-stray.
func (d *Dir) SetAside(n PartitionName) error { return errUnwritten }

// Checkpoint writes recovery points, log start offsets and high watermarks. The directory does so
// by itself at the intervals of its options.
func (d *Dir) Checkpoint() error { return errUnwritten }

// Stats gives the counters.
func (d *Dir) Stats() Stats { return Stats{} }

// Close syncs and closes all logs, writes the checkpoints and last the marker of a clean stop.
func (d *Dir) Close() error { return errUnwritten }

// Log is one partition's log. All methods are safe for concurrent use.
type Log struct{}

// AppendResult says what an append did beside writing.
type AppendResult struct {
	Rolled         bool  // the batch is the first of a new segment
	NewSegmentBase int64 // that segment's base offset: the producer state up to here is worth saving
}

// ReadResult is a piece of the log.
type ReadResult struct {
	Batches    []byte // whole batches in order; empty if there is nothing between from and limit
	NextOffset int64  // first offset after Batches; from if it is empty
}

// TimeResult is a record found by its timestamp.
type TimeResult struct {
	Offset    int64
	Timestamp int64 // of that record
	Epoch     int32 // leader epoch of its batch
}

// Name is the name under which the log was opened, with the topic id found on disk.
func (l *Log) Name() PartitionName { return PartitionName{} }

// Append writes one prepared batch at the end. The caller has stamped base offset (the log end
// offset) and leader epoch. When Append returns without error the batch is readable, but only
// durable once SyncedOffset has passed it. On error nothing was appended: ErrDiskFull leaves the
// log in use, everything else is ErrOffline or ErrClosed. b is not kept.
func (l *Log) Append(b record.Batch) (AppendResult, error) { return AppendResult{}, errUnwritten }

// Read gives batches from the one that holds offset from, as far as they lie below limit and within
// one segment: at most maxBytes, but at least one whole batch if there is one. The memory comes
// from alloc, or from the heap if it is nil. An offset outside [log start, log end] is an
// OutOfRangeError; at the end, or at or above limit, the result is empty.
func (l *Log) Read(from int64, maxBytes int, limit int64, alloc func(n int) []byte) (ReadResult, error) {
	return ReadResult{}, errUnwritten
}

// StartOffset is the log start offset: earlier records are deleted.
func (l *Log) StartOffset() int64 { return 0 }

// EndOffset is the log end offset: that of the next batch.
func (l *Log) EndOffset() int64 { return 0 }

// SyncedOffset is the offset below which all is durable.
func (l *Log) SyncedOffset() int64 { return 0 }

// HighWatermark is what SetHighWatermark stored, or the last checkpoint had, within start and end.
func (l *Log) HighWatermark() int64 { return 0 }

// SetHighWatermark hands over the high watermark, for the checkpoint.
func (l *Log) SetHighWatermark(hw int64) {}

// Size is the number of bytes in all segments' log files.
func (l *Log) Size() (int64, error) { return 0, errUnwritten }

// Segments is the number of segments.
func (l *Log) Segments() (int, error) { return 0, errUnwritten }

// Offline gives the error that every call returns after a failed write or sync, or nil.
func (l *Log) Offline() error { return nil }

// OffsetForTime finds the first record at or after the log start with this timestamp or a later one.
func (l *Log) OffsetForTime(timestamp int64) (r TimeResult, ok bool, err error) {
	return TimeResult{}, false, errUnwritten
}

// MaxTimestampOffset finds the first of the records with the greatest timestamp in the log.
func (l *Log) MaxTimestampOffset() (r TimeResult, ok bool, err error) {
	return TimeResult{}, false, errUnwritten
}

// AssignEpoch notes that epoch starts at offset start, usually the log end. Epochs at or below the
// latest are ignored. Append does it by itself when a batch brings a new epoch.
func (l *Log) AssignEpoch(epoch int32, start int64) error { return errUnwritten }

// EndOffsetForEpoch gives the greatest known epoch at or below the asked one, and where it ended:
// the start of the next epoch, or the log end. ok is false if there is none.
func (l *Log) EndOffsetForEpoch(epoch int32) (found int32, end int64, ok bool, err error) {
	return 0, 0, false, errUnwritten
}

// EpochFor is the leader epoch under which an offset was or would be written, -1 if unknown.
func (l *Log) EpochFor(offset int64) (int32, error) { return -1, errUnwritten }

// LatestEpoch is the last leader epoch known, -1 if there is none.
func (l *Log) LatestEpoch() (int32, error) { return -1, errUnwritten }

// SetStart raises the log start offset, durably, and removes the segments wholly below it. A lower
// offset than the present one changes nothing; one above the log end is an OutOfRangeError.
func (l *Log) SetStart(offset int64) error { return errUnwritten }

// TruncateTo removes all batches with offsets at or above offset, also the one it falls into.
func (l *Log) TruncateTo(offset int64) error { return errUnwritten }

// TruncateFullyAndStartAt empties the log and makes it start, and go on, at offset.
func (l *Log) TruncateFullyAndStartAt(offset int64) error { return errUnwritten }

// Reconfigure changes the log's settings from now on.
func (l *Log) Reconfigure(c Config) {}

// ApplyRetention removes whole segments below hw that are below the log start, too old or beyond the
// size bound, and raises the log start to the first that is left.
func (l *Log) ApplyRetention(now time.Time, hw int64) (removed int, err error) { return 0, errUnwritten }

// RequestSync asks the directory's committer to make what was appended so far durable, and returns
// at once. OnSynced tells when it is done.
func (l *Log) RequestSync() {}

// Sync waits until everything appended before the call is durable.
func (l *Log) Sync(ctx context.Context) error { return errUnwritten }

// OnSynced sets the function that hears of each new SyncedOffset, under every policy. It is called
// outside all locks, in rising order, by the goroutine that commits: it must not block. Set it
// before the first append.
func (l *Log) OnSynced(f func(synced int64)) {}

// OnOffline sets the function that hears, once, that the log went offline: nothing that waits for a
// sync will see it. Called like OnSynced.
func (l *Log) OnOffline(f func(err error)) {}

// Scan calls f with the batches from the one that holds offset from to the end. A batch may consist
// of its header alone (len < Length), unless it is a control batch. It is valid until f returns.
func (l *Log) Scan(from int64, f func(b record.Batch) error) error { return errUnwritten }

// SaveProducerSnapshot stores the producer state that results from all batches below offset. It is
// durable from the next recovery point on. Older ones that nothing needs are removed.
func (l *Log) SaveProducerSnapshot(offset int64, payload []byte) error { return errUnwritten }

// LoadProducerSnapshot gives the newest snapshot with log start < offset <= log end. If its payload
// proves unreadable, drop it and load again.
func (l *Log) LoadProducerSnapshot() (offset int64, payload []byte, ok bool, err error) {
	return 0, nil, false, errUnwritten
}

// DropProducerSnapshotsAfter removes the snapshots above offset.
func (l *Log) DropProducerSnapshotsAfter(offset int64) error { return errUnwritten }

// Close syncs the log and closes its files; the directory forgets it but for its checkpoints.
func (l *Log) Close() error { return errUnwritten }
