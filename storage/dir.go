package storage

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/invariant"
)

// Suffixes of folders that are no partition's any more.
const (
	deleteSuffix = "-delete"
	straySuffix  = "-stray"
	futureSuffix = "-future"
)

// Dir is one data directory: it has the lock on it, what spans its logs, and the two goroutines that
// work for them, the committer and the background.
type Dir struct {
	fs          FS
	now         func() time.Time
	rand        *rand.Rand // guarded by mu
	logger      *slog.Logger
	renewLater  bool          // what an unclean stop left is written again at the next sync, not at once
	syncEvery   time.Duration // at most this long after an append comes a sync; 0: no such time
	observeSync func(time.Duration, int)

	lock       io.Closer
	wasClean   bool
	files      fileCache
	scratch    scratch // small buffers
	large      scratch // large buffers
	committer  *committer
	background *background
	cancel     context.CancelFunc
	wg         sync.WaitGroup

	pinnedFiles       atomic.Int64
	watermarksChanged atomic.Bool
	cleanedChanged    atomic.Bool // the cleaner checkpoint differs from what is on disk
	stats             counters

	// flushing is held while logs are flushed for a checkpoint or a close; offsets while an offset
	// checkpoint is written. Order: flushing, a log's lock, offsets.
	flushing ioLock
	offsets  ioLock

	mu     sync.Mutex
	meta   Meta                 // guarded by mu
	isNew  bool                 // guarded by mu; there is no meta yet
	logs   map[logKey]*dirEntry // guarded by mu; every log on disk
	stale  map[logKey]bool      // guarded by mu; logs that are gone, but not from the checkpoints
	lost   map[logKey][16]byte  // guarded by mu; topic ids of logs that a clean stop left and that are gone
	closed bool                 // guarded by mu
}

// dirEntry is what the directory knows of one log. While the log is open, the log knows better.
type dirEntry struct {
	name    PartitionName
	idKnown bool // name.TopicID is what partition.metadata says
	clean   bool // its files are as a clean stop left them
	known   bool // its end is point: a clean stop of ours wrote the checkpoints
	opening bool
	log     *Log // nil while it is not open

	point, start, hw, cleaned int64
}

// OpenDir locks a data directory and reads its checkpoints. Logs are opened one by one.
func OpenDir(o DirOptions) (*Dir, error) {
	invariant.Check(o.FS != nil, "a data directory needs a file system")
	d := &Dir{
		fs: o.FS, now: o.Now, rand: o.Rand, logger: o.Logger, observeSync: o.ObserveSync,
		flushing: newIOLock(), offsets: newIOLock(),
		scratch: newScratch(16, scratchSize), large: newScratch(2, largeSize),
		logs: map[logKey]*dirEntry{}, stale: map[logKey]bool{}, lost: map[logKey][16]byte{},
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.logger == nil {
		d.logger = slog.New(slog.DiscardHandler)
	}
	d.files.limit = orDefault(o.OpenFiles, 512)
	d.renewLater = o.SyncPolicy != SyncAck
	if o.SyncPolicy == SyncInterval {
		d.syncEvery = orDefault(o.SyncInterval, time.Second)
	}
	lock, err := d.fs.Lock(lockFile)
	if err != nil {
		return nil, err
	}
	d.lock = lock
	d.committer = newCommitter(d)
	d.background = newBackground(d, o)
	if err := d.read(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	d.wg.Go(func() { d.committer.run(ctx) })
	d.wg.Go(func() { d.background.run(ctx) })
	return d, nil
}

func orDefault[T int | int64 | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// read reads what spans the logs, and removes the mark of a clean stop before any log is touched.
func (d *Dir) read() error {
	if _, err := RestoreNames(d.fs, "."); err != nil {
		return err
	}
	meta, ok, err := readMeta(d.fs)
	if err != nil {
		return err
	}
	d.meta, d.isNew = meta, !ok
	marked, complete, err := readCleanMark(d.fs)
	if err != nil {
		return err
	}
	if err := d.readLogs(marked, complete); err != nil {
		return err
	}
	d.wasClean = marked || len(d.logs) == 0
	if !marked {
		return d.settle()
	}
	if err := d.fs.Remove(cleanFile); err != nil {
		return err
	}
	return d.settleFolders()
}

// readLogs finds the partitions' folders and what the checkpoints say of them.
func (d *Dir) readLogs(clean, complete bool) error {
	entries, err := d.fs.List(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Dir {
			continue
		}
		if strings.HasSuffix(e.Name, deleteSuffix) {
			d.background.removeFolder(e.Name, 0)
			continue
		}
		if n, ok := parseFolder(e.Name); ok {
			d.logs[n.key()] = &dirEntry{name: n, clean: clean}
		}
	}
	err = errors.Join(
		d.readOffsets(recoveryPointFile, func(e *dirEntry, o int64) { e.point = o }),
		d.readOffsets(logStartFile, func(e *dirEntry, o int64) { e.start = o }),
		d.readOffsets(watermarkFile, func(e *dirEntry, o int64) { e.hw = o }),
		d.readCleaned(),
	)
	if err == nil && complete {
		err = d.readTopicIDs()
	}
	return err
}

// readOffsets hands out an offset checkpoint to the logs it names.
func (d *Dir) readOffsets(file string, set func(*dirEntry, int64)) error {
	offsets, err := readOffsets(d.fs, file)
	for k, o := range offsets {
		if e := d.logs[k]; e != nil {
			set(e, o)
		} else {
			d.stale[k] = true
		}
	}
	return err
}

// readTopicIDs reads which logs a clean stop of ours closed, with their topic ids. Any other log was
// not closed then, whatever the marker says.
func (d *Dir) readTopicIDs() error {
	data, err := readFile(d.fs, topicIDFile)
	if err != nil {
		return err
	}
	for _, e := range d.logs {
		e.clean = false
	}
	err = decodeCheckpoint(data, 3, func(f []string) error {
		p, err := parsePartition(f[1])
		if err != nil {
			return err
		}
		id, err := decodeTopicID(f[2])
		if err != nil {
			return err
		}
		if e := d.logs[logKey{f[0], p}]; e != nil {
			e.name.TopicID, e.idKnown, e.clean, e.known = id, id != noTopicID, true, true
		} else if id != noTopicID {
			d.lost[logKey{f[0], p}] = id
		}
		return nil
	})
	if err != nil {
		return &CorruptionError{File: topicIDFile, Position: -1, Err: err}
	}
	return nil
}

// parseFolder takes a folder's name apart at its last dash.
func parseFolder(name string) (PartitionName, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 || strings.HasSuffix(name, straySuffix) || strings.HasSuffix(name, futureSuffix) {
		return PartitionName{}, false
	}
	p, err := parsePartition(name[i+1:])
	return PartitionName{Topic: name[:i], Partition: p}, err == nil
}

// WasClean says whether the last process closed the directory; true as well for a new one.
func (d *Dir) WasClean() bool { return d.wasClean }

// Meta gives what SetMeta stored; ok is false in a new directory.
func (d *Dir) Meta() (m Meta, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.meta, !d.isNew
}

// SetMeta stores to whom the directory belongs.
func (d *Dir) SetMeta(m Meta) error {
	if err := writeFile(d.fs, metaFile, encodeMeta(m)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.meta, d.isNew = m, false
	return nil
}

// Partitions lists the logs on disk, open or not, by topic and partition. Only after a stop that was
// not clean it reads the topic ids from their folders; one that never reached the disk, or cannot be
// read, is zero. OpenLog tells the difference.
func (d *Dir) Partitions() ([]PartitionName, error) {
	var names []PartitionName
	for _, e := range d.entries() {
		n, err := d.identify(e)
		if err != nil && !isCorrupt(err) {
			return nil, err
		}
		names = append(names, n)
	}
	return names, nil
}

// entries gives the logs by topic and partition.
func (d *Dir) entries() []*dirEntry {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*dirEntry, 0, len(d.logs))
	for _, e := range d.logs {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *dirEntry) int { return comparePartitions(a.name, b.name) })
	return all
}

// comparePartitions orders by topic and partition.
func comparePartitions(a, b PartitionName) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// identify gives a log's name with its topic id.
func (d *Dir) identify(e *dirEntry) (PartitionName, error) {
	d.mu.Lock()
	n, known := e.name, e.idKnown
	d.mu.Unlock()
	if known {
		return n, nil
	}
	id, err := readTopicID(d.fs, n.String())
	if err != nil {
		return n, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e.name.TopicID, e.idKnown = id, true
	return e.name, nil
}

var errNoTopicID = errors.New("it is gone, or does not say to which topic the records belong")

var errLost = errors.New("the folder is gone since the last clean stop: put it back, or delete the topic")

// CreateLog makes a new, empty log. It is durable when the first record in it is. In the place of a
// log whose folder was lost it makes none: an empty log would give its offsets to other records.
func (d *Dir) CreateLog(n PartitionName, c Config) (*Log, error) {
	e := &dirEntry{name: n, idKnown: true, opening: true}
	d.mu.Lock()
	var err error
	switch {
	case d.closed:
		err = ErrClosed
	case d.logs[n.key()] != nil:
		err = fmt.Errorf("create log %s: %w", n, ErrExists)
	case n.TopicID != noTopicID && d.lost[n.key()] == n.TopicID:
		err = &CorruptionError{File: n.String(), Position: -1, Err: errLost}
	default:
		delete(d.lost, n.key()) // it was of another topic of the name
		d.logs[n.key()] = e
	}
	stale := d.stale[n.key()]
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if stale { // or a crash would take the old log's offsets for the new one's
		err = d.writeCheckpoints()
	}
	l := newLog(d, n, c)
	if err == nil {
		err = l.make()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e.opening = false
	if err != nil {
		delete(d.logs, n.key())
		return nil, fmt.Errorf("create log %s: %w", n, asDiskFull(err))
	}
	e.log = l
	return l, nil
}

// asDiskFull marks an error as ErrDiskFull if it is that.
func asDiskFull(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}

// make makes the log's folder.
func (l *Log) make() error {
	fsys := l.dir.fs
	err := fsys.Mkdir(l.path)
	if errors.Is(err, fs.ErrExist) && isUnfinished(fsys, l.path) {
		if err = fsys.RemoveAll(l.path); err == nil {
			err = fsys.Mkdir(l.path)
		}
	}
	if err != nil {
		return err
	}
	if err := l.writeTopicID(); err != nil {
		return errors.Join(err, fsys.RemoveAll(l.path))
	}
	l.setListLocked(segmentList{newEmptySegment(l, 0)})
	l.markChanged()
	return nil
}

// isUnfinished says whether a folder is all that came of making a log: it has no topic id, or a part of one, and
// nothing was ever appended. Where that cannot be found out it is not.
func isUnfinished(fsys FS, path string) bool {
	data, err := readFile(fsys, path+"/"+partitionMetadataFile)
	if err != nil && !isMissing(err) || !isPartOfMetadata(data) {
		return false
	}
	entries, err := fsys.List(path)
	return err == nil && !slices.ContainsFunc(entries, func(e Entry) bool { return strings.Contains(e.Name, logSuffix) })
}

// writeTopicID writes partition.metadata. It is synced together with the log's first data; a file
// that a crash before that leaves without content names no topic.
func (l *Log) writeTopicID() error {
	name := l.path + "/" + partitionMetadataFile
	err := writeTmp(l.dir.fs, name, encodePartitionMetadata(l.name.TopicID), syncLater)
	if err == nil {
		err = l.dir.fs.Rename(name+tmpSuffix, name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names++
	l.newFolder = true
	return err
}

// OpenLog opens a log that is on disk, recovering it if the last stop was not clean. After a clean
// stop it reads nothing. A zero TopicID accepts any topic; another one must match (ErrTopicID), but
// where a crash came before the topic id was on disk the log is made anew, empty.
// After an error it can be tried again. Safe for concurrent use, so that many logs can be recovered at a time.
func (d *Dir) OpenLog(n PartitionName, c Config) (*Log, error) {
	d.mu.Lock()
	e := d.logs[n.key()]
	var err error
	switch {
	case d.closed:
		err = ErrClosed
	case e == nil:
		err = fmt.Errorf("open log %s: %w", n, ErrNotFound)
	case e.opening || e.log != nil:
		err = fmt.Errorf("open log %s: it is open", n)
	default:
		e.opening = true
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l, err := d.open(e, n, c)
	d.mu.Lock()
	e.opening = false
	if err == nil {
		e.log, e.clean, e.known = l, false, false
	}
	d.mu.Unlock()
	if err != nil {
		return nil, asDiskFull(err)
	}
	if l.unsettled() {
		l.RequestSync()
	}
	return l, nil
}

// open opens a log whose entry is marked as being opened, so that nobody else changes it.
func (d *Dir) open(e *dirEntry, wanted PartitionName, c Config) (*Log, error) {
	found, err := d.identify(e)
	if isCorrupt(err) && !e.clean && e.point == 0 && wanted.TopicID != noTopicID && isUnfinished(d.fs, wanted.String()) {
		return d.renew(e, wanted, c)
	}
	if err != nil {
		return nil, err
	}
	adopt := found.TopicID == noTopicID && wanted.TopicID != noTopicID
	if adopt && !e.clean {
		if e.point > 0 { // the id was on disk before anything below the recovery point
			return nil, &CorruptionError{File: wanted.String() + "/" + partitionMetadataFile, Position: -1, Err: errNoTopicID}
		}
		return d.renew(e, wanted, c)
	}
	if wanted.TopicID != noTopicID && !adopt && found.TopicID != wanted.TopicID {
		return nil, fmt.Errorf("open log %s: %w", wanted, ErrTopicID)
	}
	if adopt {
		found.TopicID = wanted.TopicID
	}
	l := newLog(d, found, c)
	l.start.Store(e.start)
	l.saved.Store(e.start)
	l.end.Store(max(e.point, e.start))
	l.synced.Store(l.end.Load())
	l.point.Store(e.point)
	l.savedPoint.Store(e.point)
	l.cleaned.Store(e.cleaned)
	l.hw.Store(e.hw)
	l.recover, l.endUnknown = !e.clean, !e.known
	if adopt || l.recover && e.point == 0 && found.TopicID != noTopicID { // its folder may never have been synced
		if err := l.writeTopicID(); err != nil && (adopt || !isFull(err)) {
			return nil, err
		}
		d.named(e, found)
	}
	if l.recover || l.endUnknown {
		if _, err := l.list(); err != nil {
			return nil, fmt.Errorf("open log %s: %w", wanted, err)
		}
	}
	return l, nil
}

// renew puts an empty log in the place of a folder whose topic id did not reach the disk before a
// crash. Nothing in it was ever synced, and what it holds may be of a deleted topic of the same
// name, so it is set aside for a person if there is any.
func (d *Dir) renew(e *dirEntry, n PartitionName, c Config) (*Log, error) {
	d.mu.Lock()
	e.point, e.start, e.hw, e.cleaned = 0, 0, 0, 0
	d.mu.Unlock()
	d.cleanedChanged.Store(true)
	if err := d.writeCheckpoints(); err != nil {
		return nil, err
	}
	old, err := readFolder(d.fs, n.String())
	if err != nil {
		return nil, err
	}
	if len(old.bases) == 0 {
		err = d.fs.RemoveAll(n.String())
	} else {
		d.logger.Warn("log without a topic id set aside", "topic", n.Topic, "partition", n.Partition)
		err = d.fs.Rename(n.String(), d.retiredName(n.String(), straySuffix))
	}
	if err != nil {
		return nil, err
	}
	l := newLog(d, n, c)
	if err := l.make(); err != nil {
		return nil, fmt.Errorf("create log %s: %w", n, asDiskFull(err))
	}
	d.named(e, n)
	return l, nil
}

// named notes the topic id that a log's folder got.
func (d *Dir) named(e *dirEntry, n PartitionName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.name, e.idKnown = n, true
}

// DeleteLog closes a log and removes its files in the background. After a crash the log may be there
// again.
func (d *Dir) DeleteLog(l *Log) error {
	defer l.holdRounds()()
	l.lock.Lock()
	defer l.lock.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.closed.Swap(true) {
		return ErrClosed
	}
	l.releaseLocked()
	gone := d.retiredName(l.path, deleteSuffix)
	if err := d.fs.Rename(l.path, gone); err != nil {
		return fmt.Errorf("delete log %s: %w", l.path, err)
	}
	d.forget(l.name.key())
	d.background.removeFolder(gone, l.config.Load().FileDeleteDelay)
	return nil
}

func (d *Dir) forget(k logKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.logs, k)
	d.stale[k] = true
	d.cleanedChanged.Store(true)
}

// SetAside renames the folder of a log that is not open to TOPIC-PARTITION.ID-stray: it is no log of
// this directory any more.
func (d *Dir) SetAside(n PartitionName) error {
	d.mu.Lock()
	e := d.logs[n.key()]
	busy := e != nil && (e.opening || e.log != nil)
	d.mu.Unlock()
	if e == nil || busy {
		return fmt.Errorf("set aside log %s: %w", n, ErrNotFound)
	}
	if err := d.fs.Rename(n.String(), d.retiredName(n.String(), straySuffix)); err != nil {
		return fmt.Errorf("set aside log %s: %w", n, err)
	}
	d.forget(n.key())
	return d.fs.SyncDir(".")
}

// SetAsideLog closes a log, in order if that can be, else as it is, and sets it aside.
func (d *Dir) SetAsideLog(l *Log) error {
	if err := l.Close(); err != nil {
		d.logger.Warn("log that is to be set aside is not closed in order", "topic", l.name.Topic,
			"partition", l.name.Partition, "err", err)
		l.abandon()
	}
	return d.SetAside(l.name)
}

// maxFolderName is how long a name may be.
const maxFolderName = 255

// retiredName is a name that no folder has.
func (d *Dir) retiredName(path, suffix string) string {
	var id [16]byte
	if d.rand == nil {
		crand.Read(id[:])
	} else {
		d.mu.Lock()
		for i := range id {
			id[i] = byte(d.rand.Uint32())
		}
		d.mu.Unlock()
	}
	tail := "." + hex.EncodeToString(id[:]) + suffix
	return path[:min(len(path), maxFolderName-len(tail))] + tail
}

// buffersFor gives the free list for a walk over so many bytes.
func (d *Dir) buffersFor(bytes int64) scratch {
	if bytes > scratchSize {
		return d.large
	}
	return d.scratch
}

// Close syncs and closes all logs, writes the checkpoints and last the marker of a clean stop. Logs
// that could not be closed in order, or are offline, are not named in it: they are recovered at the
// next start.
func (d *Dir) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return ErrClosed
	}
	d.closed = true
	d.mu.Unlock()
	d.cancel() // nothing is synced or removed behind our back from here on
	d.wg.Wait()
	logs := d.closeLogs()
	d.background.removeAll()
	err := d.writeCheckpoints()
	if err == nil {
		err = d.writeTopicIDs()
	}
	if err == nil { // last: it vouches for all the above
		err = writeCleanMark(d.fs)
	}
	d.files.close()
	return errors.Join(logs, err, d.lock.Close())
}

// writeTopicIDs writes which logs are cleanly closed, with their topic ids.
func (d *Dir) writeTopicIDs() error {
	var clean []PartitionName
	for _, e := range d.entries() {
		if e.clean {
			n, err := d.identify(e)
			if err != nil {
				return err
			}
			clean = append(clean, n)
		}
	}
	d.mu.Lock()
	lost := make([]PartitionName, 0, len(d.lost)) // they are not forgotten
	for k, id := range d.lost {
		lost = append(lost, PartitionName{Topic: k.topic, Partition: k.partition, TopicID: id})
	}
	d.mu.Unlock()
	slices.SortFunc(lost, comparePartitions)
	clean = append(clean, lost...)
	return writeFile(d.fs, topicIDFile, encodeCheckpoint(len(clean), func(dst []byte, i int) []byte {
		n := clean[i]
		return fmt.Appendf(dst, "%s %d %s", n.Topic, n.Partition, encodeTopicID(n.TopicID))
	}))
}

// Stats counts what a directory did since it was opened.
type Stats struct {
	AppendedBatches, AppendedBytes int64
	Commits                        int64 // syncs for waiting appends, however many files each had
	SyncedFiles                    int64 // files and folders that commits synced one by one
	SyncedAll                      int64 // commits that synced the whole file system
	Checkpoints                    int64
	Rolls                          int64
	RemovedSegments                int64
	OfflineLogs                    int64
	OpenFiles                      int64
}

// counters are Stats while they count.
type counters struct {
	appendedBatches, appendedBytes, commits, syncedFiles, syncedAll atomic.Int64
	checkpoints, rolls, removedSegments, offlineLogs                atomic.Int64
}

// Stats gives the counters.
func (d *Dir) Stats() Stats {
	return Stats{
		AppendedBatches: d.stats.appendedBatches.Load(), AppendedBytes: d.stats.appendedBytes.Load(),
		Commits: d.stats.commits.Load(), SyncedFiles: d.stats.syncedFiles.Load(), SyncedAll: d.stats.syncedAll.Load(),
		Checkpoints: d.stats.checkpoints.Load(), Rolls: d.stats.rolls.Load(),
		RemovedSegments: d.stats.removedSegments.Load(), OfflineLogs: d.stats.offlineLogs.Load(),
		OpenFiles: d.pinnedFiles.Load() + int64(d.files.count()),
	}
}
