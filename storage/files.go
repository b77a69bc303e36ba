package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// fileKind tells the files of a segment apart.
type fileKind uint8

const (
	logKind    fileKind = iota // the batches
	offsetKind                 // offset index
	timeKind                   // time index
	txnKind                    // index of aborted transactions
	fileKinds
)

const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"
	deletedSuffix  = ".deleted"
	cleanedSuffix  = ".cleaned"
	swapSuffix     = ".swap"
)

func (k fileKind) suffix() string {
	switch k {
	case offsetKind:
		return indexSuffix
	case timeKind:
		return timeSuffix
	case txnKind:
		return txnSuffix
	default:
		return logSuffix
	}
}

// offsetFileName names a file of a partition's folder by an offset of 20 digits.
func offsetFileName(folder string, offset int64, suffix string) string {
	return fmt.Sprintf("%s/%020d%s", folder, offset, suffix)
}

// parseOffsetFile takes apart what offsetFileName made, without the folder.
func parseOffsetFile(name string) (offset int64, suffix string, ok bool) {
	digits, _, found := strings.Cut(name, ".")
	if !found || len(digits) != 20 {
		return 0, "", false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || offset < 0 || digits[0] == '+' {
		return 0, "", false
	}
	return offset, name[len(digits):], true
}

// openFile is an open file of a segment, held by the pointer at owner.
type openFile struct {
	file   File
	owner  *atomic.Pointer[openFile]
	recent atomic.Bool // used since the cache's hand last passed
	slot   int         // place in the cache's ring, -1 outside it; guarded by the cache's mu
}

// fileCache bounds how many files are open for reading. A file is opened when it is first read and
// stays open until the hand of a clock finds it unused. Its readers are not waited for: they open
// the file again when they find it closed.
//
// The files that are being written, one for each log, are not in the cache: what is not synced yet
// must not be closed, or a write-back error could pass unseen.
type fileCache struct {
	mu     sync.Mutex
	ring   []*openFile // guarded by mu
	hand   int         // guarded by mu
	limit  int
	closed bool // guarded by mu
}

// admit puts a file that its owner holds into the ring, and closes another one if it is full.
func (c *fileCache) admit(o *openFile) {
	if victim := c.place(o); victim != nil {
		victim.owner.CompareAndSwap(victim, nil)
		victim.file.Close()
	}
}

func (c *fileCache) place(o *openFile) (victim *openFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return o
	}
	if len(c.ring) < c.limit {
		o.slot = len(c.ring)
		c.ring = append(c.ring, o)
		return nil
	}
	for c.ring[c.hand].recent.Swap(false) {
		c.hand = (c.hand + 1) % len(c.ring)
	}
	victim = c.ring[c.hand]
	victim.slot = -1
	o.slot = c.hand
	c.ring[c.hand] = o
	c.hand = (c.hand + 1) % len(c.ring)
	return victim
}

// release takes a file out of the ring, if it is there, so that its owner may pin or close it.
func (c *fileCache) release(o *openFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.slot < 0 {
		return
	}
	last := len(c.ring) - 1
	c.ring[o.slot] = c.ring[last]
	c.ring[o.slot].slot = o.slot
	c.ring = c.ring[:last]
	o.slot = -1
	if c.hand >= len(c.ring) {
		c.hand = 0
	}
}

// count is the number of files in the ring.
func (c *fileCache) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ring)
}

// close closes the ring's files and those that come later.
func (c *fileCache) close() {
	c.mu.Lock()
	ring := c.ring
	c.ring, c.closed = nil, true
	for _, o := range ring {
		o.slot = -1
	}
	c.mu.Unlock()
	for _, o := range ring {
		o.owner.CompareAndSwap(o, nil)
		o.file.Close()
	}
}

// maxReopens bounds how often one read opens its file again because the cache closed it in between.
const maxReopens = 100

// open gives one of the segment's files for reading.
func (s *segment) open(k fileKind) (File, error) {
	p := &s.files[k]
	for range maxReopens {
		if o := p.Load(); o != nil {
			if !o.recent.Load() {
				o.recent.Store(true)
			}
			return o.file, nil
		}
		f, err := s.log.dir.fs.Open(s.fileName(k), 0)
		if err != nil {
			return nil, err
		}
		if s.gone.Load() {
			f.Close()
			return nil, errGone
		}
		if s.log.closed.Load() { // if it was deleted, the file under its name may be that of the next log
			f.Close()
			return nil, ErrClosed
		}
		o := &openFile{file: f, owner: p, slot: -1}
		if p.CompareAndSwap(nil, o) {
			s.log.dir.files.admit(o)
			return f, nil
		}
		f.Close()
	}
	return nil, errors.New("too many open files are in use")
}

// readAt fills p from one of the segment's files.
func (s *segment) readAt(k fileKind, p []byte, off int64) error {
	for range maxReopens {
		f, err := s.open(k)
		if err != nil {
			return err
		}
		n, err := f.ReadAt(p, off)
		switch {
		case n == len(p):
			return nil
		case errors.Is(err, io.EOF) && k != logKind:
			return errDamagedIndex // shorter than it was; perhaps it is being made anew
		case errors.Is(err, io.EOF):
			return &CorruptionError{File: s.fileName(k), Position: off + int64(n), Err: io.ErrUnexpectedEOF}
		case !errors.Is(err, fs.ErrClosed):
			return fmt.Errorf("read %s: %w", s.fileName(k), err)
		case s.log.closed.Load():
			return ErrClosed
		}
	}
	return fmt.Errorf("read %s: %w", s.fileName(k), fs.ErrClosed)
}

// syncFile makes one of the segment's files durable. The caller holds the log's syncing lock, so the
// file is not removed meanwhile.
func (s *segment) syncFile(k fileKind) error {
	for range maxReopens {
		f, err := s.open(k)
		if err != nil {
			return err
		}
		if err := f.Sync(); !errors.Is(err, fs.ErrClosed) {
			return err
		}
	}
	return fs.ErrClosed
}

// pinLocked opens the segment's log file for writing, making it if need be, and keeps it open.
func (s *segment) pinLocked(flag OpenFlag) (File, error) {
	if s.pinned != nil {
		return s.pinned.file, nil
	}
	f, err := s.log.dir.fs.Open(s.fileName(logKind), OpenWrite|flag)
	if err != nil {
		return nil, err
	}
	s.pinned = &openFile{file: f, owner: &s.files[logKind], slot: -1}
	s.dropHandle(logKind, s.pinned)
	s.log.dir.pinnedFiles.Add(1)
	return f, nil
}

// unpin leaves the log file of a sealed segment to the cache, once it is synced. Both the roll and
// the sync that may come last call it.
func (s *segment) unpin() {
	s.log.mu.Lock()
	o := s.pinned
	if s.queued {
		o = nil
	}
	if o != nil {
		s.pinned = nil
	}
	s.log.mu.Unlock()
	if o != nil {
		s.log.dir.pinnedFiles.Add(-1)
		s.log.dir.files.admit(o)
	}
}

// dropHandle closes one of the segment's files and puts another, or none, in its place.
func (s *segment) dropHandle(k fileKind, next *openFile) {
	if o := s.files[k].Swap(next); o != nil {
		s.log.dir.files.release(o)
		o.file.Close()
	}
}

// closeFilesLocked closes all of the segment's files.
func (s *segment) closeFilesLocked() {
	if s.pinned != nil {
		s.pinned = nil
		s.log.dir.pinnedFiles.Add(-1)
	}
	for k := range fileKinds {
		s.dropHandle(k, nil)
	}
}
