package quorum

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"millrace/storage"
)

// ioLock is a mutex made of a channel, for locks that are held across file I/O: who waits for one waits on a channel,
// which a test's fake time understands.
type ioLock chan struct{}

func newIOLock() ioLock { return make(ioLock, 1) }

// Lock takes the lock.
func (l ioLock) Lock() { l <- struct{}{} }

// Unlock gives it back.
func (l ioLock) Unlock() { <-l }

// entryLog is raft's log: entries with consecutive indexes in segment files. What StoreLogs has answered survives a
// power cut.
type entryLog struct {
	fs           storage.FS
	dir          string
	segmentBytes int64
	logger       hclog.Logger

	read atomic.Pointer[lastRead] // what was read last; a leader at rest reads the same again and again

	io  ioLock // held by who changes files
	buf []byte // guarded by io

	mu       sync.Mutex // never held across I/O
	segments []*segment // guarded by mu, changed under io too; by base, without gaps, none empty
	first    uint64     // guarded by mu; the first index that counts, 0 when there is none
	deleted  uint64     // guarded by mu; number of deletions so far
}

// lastRead is an entry as it was read, which nobody changes.
type lastRead struct {
	log     raft.Log
	deleted uint64 // the number of deletions before
}

type segment struct {
	base   uint64
	name   string
	file   storage.File
	starts []int64 // guarded by the log's mu; the place of each entry
	end    int64   // guarded by the log's mu; behind the last entry
}

// last is the index of the last entry.
func (s *segment) last() uint64 { return s.base + uint64(len(s.starts)) - 1 }

const (
	segmentSuffix = ".log"
	// maxSegmentBytes bounds the file that is read at the start; one of ours holds segmentBytes or a single entry.
	maxSegmentBytes = 256 << 20
	// maxKeptBuffer bounds the memory that is kept from one write to the next.
	maxKeptBuffer = 1 << 20
	// maxReadKept bounds the entry that is kept after it was read.
	maxReadKept = 64 << 10
	// readChunk is how much is read at once at the start.
	readChunk = 256 << 10
)

func openEntryLog(fsys storage.FS, dir string, segmentBytes int, logger hclog.Logger) (_ *entryLog, err error) {
	l := &entryLog{fs: fsys, dir: dir, segmentBytes: int64(segmentBytes), logger: logger, io: newIOLock()}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if _, err := storage.RestoreNames(fsys, dir); err != nil {
		return nil, err
	}
	entries, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	var bases []uint64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name, segmentSuffix)
		if base, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && e.Name == segmentName(base) {
			bases = append(bases, base)
		}
	}
	for i, base := range bases {
		if err := l.openSegment(base, i == len(bases)-1); err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(dir, segmentName(base)), err)
		}
	}
	if len(l.segments) > 0 {
		l.first = l.segments[0].base
	}
	return l, l.fs.SyncDir(dir)
}

func segmentName(base uint64) string { return fmt.Sprintf("%020d%s", base, segmentSuffix) }

// openSegment reads a segment and puts it behind the others. Only the last one may be torn: it is cut behind its last
// whole entry, and removed if it has none. A process that ended at a failed sync, or before one, leaves in it what can
// be read and yet be lost, so it is written again, and its name made again; those before it were synced once it was
// begun.
func (l *entryLog) openSegment(base uint64, isLast bool) error {
	s := &segment{base: base, name: path.Join(l.dir, segmentName(base))}
	if n := len(l.segments); n > 0 && l.segments[n-1].last()+1 != base {
		return fmt.Errorf("%w: the entries from %d on are missing before it", errDamaged, l.segments[n-1].last()+1)
	}
	var err error
	if s.file, err = l.fs.Open(s.name, storage.OpenWrite); err != nil {
		return err
	}
	found, err := s.scan()
	switch {
	case err != nil:
	case found.torn && !isLast, len(found.starts) == 0 && !isLast:
		err = fmt.Errorf("%w after entry %d", errDamaged, base+uint64(len(found.starts))-1)
	case len(found.starts) == 0:
		return errors.Join(s.file.Close(), l.fs.Remove(s.name))
	default:
		s.starts, s.end = found.starts, found.end
		l.segments = append(l.segments, s)
		if !isLast {
			return nil
		}
		if found.torn {
			l.logger.Warn("the last write to the log was cut off", "file", s.name, "entry", s.last())
		}
		if err := storage.Rewrite(l.fs, s.name, 0, s.end, make([]byte, readChunk)); err != nil {
			return err
		}
		if err := l.cut(s, s.end); err != nil {
			return err
		}
		return storage.Relink(l.fs, s.name)
	}
	return errors.Join(err, s.file.Close())
}

func (s *segment) scan() (scanned, error) {
	size, err := s.file.Size()
	if err != nil {
		return scanned{}, err
	}
	if size > maxSegmentBytes {
		return scanned{}, fmt.Errorf("%w: %d bytes are too many", errDamaged, size)
	}
	b, err := readUpToZeros(s.file, size)
	if err != nil {
		return scanned{}, err
	}
	return scanSegment(b, s.base)
}

// readUpToZeros reads a file of that size but for most of the zeros at its end.
func readUpToZeros(f io.ReaderAt, size int64) (all []byte, err error) {
	zeros := 0
	chunk := make([]byte, min(size, readChunk))
	for at := int64(0); at < size; at += int64(len(chunk)) {
		chunk = chunk[:min(int64(len(chunk)), size-at)]
		if n, err := f.ReadAt(chunk, at); n < len(chunk) {
			return nil, err
		}
		if zero(chunk) {
			zeros += len(chunk)
			continue
		}
		all = append(append(all, make([]byte, zeros)...), chunk...)
		zeros = 0
	}
	return all, nil
}

// cut takes everything from end on out of a file, and the torn rest of a write with it.
func (l *entryLog) cut(s *segment, end int64) error {
	if err := s.file.Truncate(end); err != nil {
		return err
	}
	if err := s.file.Truncate(max(end, l.segmentBytes)); err != nil {
		return err
	}
	return s.file.Sync()
}

// FirstIndex implements raft.LogStore.
func (l *entryLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, nil
}

// LastIndex implements raft.LogStore.
func (l *entryLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastLocked(), nil
}

func (l *entryLog) lastLocked() uint64 {
	if n := len(l.segments); n > 0 {
		return l.segments[n-1].last()
	}
	return 0
}

// place is where an entry lies.
type place struct {
	segment *segment
	at      int64
	size    int64
	deleted uint64 // the number of deletions when this was so
}

func (l *entryLog) find(index uint64) (place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == 0 || index < l.first || index > l.lastLocked() {
		return place{}, false
	}
	i := len(l.segments) - 1
	for l.segments[i].base > index {
		i--
	}
	s := l.segments[i]
	n, end := int(index-s.base), s.end
	if n+1 < len(s.starts) {
		end = s.starts[n+1]
	}
	return place{segment: s, at: s.starts[n], size: end - s.starts[n], deleted: l.deleted}, true
}

// GetLog implements raft.LogStore.
func (l *entryLog) GetLog(index uint64, log *raft.Log) error {
	for {
		p, ok := l.find(index)
		if !ok {
			return raft.ErrLogNotFound
		}
		if r := l.read.Load(); r != nil && r.log.Index == index && r.deleted == p.deleted {
			*log = r.log
			return nil
		}
		b := make([]byte, p.size)
		n, err := p.segment.file.ReadAt(b, p.at)
		if int64(n) == p.size {
			if _, _, err = readEntry(b, log); err == nil && log.Index != index {
				err = errDamaged
			}
		}
		if err == nil {
			if p.size <= maxReadKept {
				l.read.Store(&lastRead{log: *log, deleted: p.deleted})
			}
			return nil
		}
		if now, ok := l.find(index); ok && now.deleted == p.deleted {
			return fmt.Errorf("%s: entry %d: %w", p.segment.name, index, err)
		} // else it was deleted meanwhile, and perhaps another one written
	}
}

// StoreLog implements raft.LogStore.
func (l *entryLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. After an error it is not known what the files hold.
func (l *entryLog) StoreLogs(logs []*raft.Log) error {
	l.io.Lock()
	defer l.io.Unlock()
	for len(logs) > 0 {
		if last, _ := l.LastIndex(); last > 0 && logs[0].Index != last+1 {
			return fmt.Errorf("entry %d cannot follow entry %d", logs[0].Index, last)
		}
		n, err := l.write(logs)
		if err != nil {
			return err
		}
		logs = logs[n:]
	}
	return nil
}

// diskSize is the size on disk of an entry.
func diskSize(l *raft.Log) int64 { return int64(entrySize(len(l.Extensions) + len(l.Data))) }

// write writes those of the entries that go into one segment, in one write and one sync.
func (l *entryLog) write(logs []*raft.Log) (n int, err error) {
	l.mu.Lock()
	var s *segment
	var end int64
	if i := len(l.segments); i > 0 {
		s = l.segments[i-1]
		end = s.end
	}
	l.mu.Unlock()
	isNew := s == nil || end+diskSize(logs[0]) > l.segmentBytes
	b := l.buf[:0]
	if isNew {
		s, end = &segment{base: logs[0].Index}, 0
		s.name = path.Join(l.dir, segmentName(s.base))
		b = appendSegmentHeader(b, s.base)
	}
	var starts []int64
	for n < len(logs) && (n == 0 || end+int64(len(b))+diskSize(logs[n]) <= l.segmentBytes) {
		if logs[n].Index != logs[0].Index+uint64(n) {
			return 0, fmt.Errorf("entry %d cannot follow entry %d", logs[n].Index, logs[n-1].Index)
		}
		starts = append(starts, end+int64(len(b)))
		b = appendEntry(b, logs[n], uint32(n))
		n++
	}
	if l.buf = b; cap(b) > maxKeptBuffer {
		l.buf = nil
	}
	if err := l.put(s, b, end, isNew); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.starts, s.end = append(s.starts, starts...), end+int64(len(b))
	if isNew {
		l.segments = append(l.segments, s)
		if l.first == 0 {
			l.first = s.base
		}
	}
	return n, nil
}

// put brings bytes to the disk.
func (l *entryLog) put(s *segment, b []byte, at int64, isNew bool) (err error) {
	if isNew {
		if s.file, err = l.fs.Open(s.name, storage.OpenWrite|storage.OpenCreate|storage.OpenTruncate); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, s.file.Close())
			}
		}()
		if err = s.file.Truncate(max(l.segmentBytes, int64(len(b)))); err != nil {
			return err
		}
	}
	if _, err = s.file.WriteAt(b, at); err != nil {
		return err
	}
	if err = s.file.Sync(); err != nil || !isNew {
		return err
	}
	return l.fs.SyncDir(l.dir)
}

// DeleteRange implements raft.LogStore for ranges at either end of the log.
func (l *entryLog) DeleteRange(from, to uint64) error {
	l.io.Lock()
	defer l.io.Unlock()
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	switch {
	case from > to, to < first, from > last:
		return nil
	case from <= first:
		return l.deleteHead(to)
	case to >= last:
		return l.deleteTail(from)
	default:
		return fmt.Errorf("the entries %d to %d lie inside the log, %d to %d", from, to, first, last)
	}
}

// deleteHead deletes all entries up to an index. What lies before it in its segment is there again after a start,
// which does no harm.
func (l *entryLog) deleteHead(to uint64) error {
	l.mu.Lock()
	l.deleted++
	n := 0
	for n < len(l.segments) && l.segments[n].last() <= to {
		n++
	}
	gone := l.segments[:n]
	l.segments = append([]*segment(nil), l.segments[n:]...)
	l.first = to + 1
	if len(l.segments) == 0 {
		l.first = 0
	}
	l.mu.Unlock()
	return l.remove(gone) // oldest first: what a crash leaves has no gaps
}

// deleteTail deletes all entries from an index on.
func (l *entryLog) deleteTail(from uint64) error {
	l.mu.Lock()
	l.deleted++
	n := len(l.segments)
	for n > 0 && l.segments[n-1].base >= from {
		n--
	}
	var gone []*segment
	for i := len(l.segments) - 1; i >= n; i-- {
		gone = append(gone, l.segments[i])
	}
	l.segments = append([]*segment(nil), l.segments[:n]...)
	s := l.segments[n-1] // there is one, or deleteHead would do this
	var cut int64
	if from <= s.last() {
		cut = s.starts[from-s.base]
		s.starts, s.end = append([]int64(nil), s.starts[:from-s.base]...), cut
	}
	l.mu.Unlock()
	if err := l.remove(gone); err != nil || cut == 0 {
		return err
	}
	return l.cut(s, cut)
}

// remove removes segments in that order.
func (l *entryLog) remove(gone []*segment) error {
	for _, s := range gone {
		if err := errors.Join(s.file.Close(), l.fs.Remove(s.name)); err != nil {
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return l.fs.SyncDir(l.dir)
}

// lastTerm is the term of the last entry, or 0.
func (l *entryLog) lastTerm() (uint64, error) {
	last, _ := l.LastIndex()
	if last == 0 {
		return 0, nil
	}
	var log raft.Log
	err := l.GetLog(last, &log)
	return log.Term, err
}

// close gives the files up; it writes nothing.
func (l *entryLog) close() error {
	l.io.Lock()
	defer l.io.Unlock()
	l.mu.Lock()
	segments := l.segments
	l.mu.Unlock()
	var errs []error
	for _, s := range segments {
		if err := s.file.Close(); !errors.Is(err, fs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
