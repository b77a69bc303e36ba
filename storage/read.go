package storage

import (
	"fmt"

	"millrace/record"
)

// ReadResult is a piece of the log.
type ReadResult struct {
	Batches    []byte // whole batches in order; empty if there is nothing between from and limit
	NextOffset int64  // first offset after Batches; from if it is empty
}

// Read gives batches from the one that holds offset from, as far as they lie below limit and within
// one segment: at most maxBytes, but at least one whole batch if there is one. The memory comes
// from alloc, or from the heap if it is nil. An offset outside [log start, log end] is an
// OutOfRangeError; at the end, or at or above limit, the result is empty.
func (l *Log) Read(from int64, maxBytes int, limit int64, alloc func(n int) []byte) (ReadResult, error) {
	var r ReadResult
	err := l.settled(func() (err error) {
		r, err = l.read(from, maxBytes, limit, alloc)
		return err
	})
	return r, err
}

// maxReads bounds how often a read is done again because a truncation went on meanwhile.
const maxReads = 100

// settled runs a read of the log's files so that it sees no truncation half done: one that overlaps
// a truncation is done again. The same if a segment was removed while the read looked for it.
func (l *Log) settled(read func() error) error {
	for range maxReads {
		before, list := l.truncations.Load(), l.segments.Load()
		if before%2 == 1 {
			l.waitForWriter()
			continue
		}
		err := read()
		if l.truncations.Load() != before {
			continue
		}
		if err == nil || !isMissing(err) {
			return err
		}
		if l.waitForWriter() == list {
			return l.lost(err)
		}
	}
	return fmt.Errorf("read %s: truncated again and again", l.path)
}

// waitForWriter waits until the log is not being changed and gives its segments.
func (l *Log) waitForWriter() *segmentList {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.segments.Load()
}

// lost is the error for a file of the log that is gone though nobody here removed it.
func (l *Log) lost(err error) error {
	if usable := l.usable(); usable != nil {
		return usable
	}
	return &CorruptionError{File: l.path, Position: -1, Err: err}
}

func (l *Log) read(from int64, maxBytes int, limit int64, alloc func(n int) []byte) (ReadResult, error) {
	if err := l.usable(); err != nil {
		return ReadResult{}, err
	}
	start, end := l.start.Load(), l.end.Load()
	if from < start || from > end {
		return ReadResult{}, &OutOfRangeError{Offset: from, Start: start, End: end}
	}
	if limit = min(limit, end); from >= limit {
		return ReadResult{NextOffset: from}, nil
	}
	// After end was read: what lies below it is in these segments, or has been deleted.
	list, err := l.list()
	if err != nil {
		return ReadResult{}, err
	}
	for i := list.at(from); i < len(list); i++ {
		r, err := l.readSegment(list[i], readRequest{from, maxBytes, limit, alloc})
		if err != errNoBatch {
			return r, l.tellNext(list, i, from, err)
		}
	}
	return ReadResult{NextOffset: from}, nil
}

type readRequest struct {
	from     int64
	maxBytes int
	limit    int64
	alloc    func(n int) []byte
}

// readSegment reads from one segment; errNoBatch if it has nothing at or above the offset. A damaged
// batch in the way that turns out to lie below the offset is passed.
func (l *Log) readSegment(s *segment, q readRequest) (ReadResult, error) {
	pos, known := s.hints.find(q.from - s.base)
	p := place{pos: pos, after: q.from, need: record.HeaderSize}
	if !known {
		b, err := l.find(s, q.from)
		if err != nil {
			return ReadResult{}, err
		}
		p = b.place()
	}
	for {
		r, err := s.readFrom(p, q)
		at, base, ok := s.behindDamage(err)
		if !ok || at <= p.pos || base > q.from {
			return r, err
		}
		w := s.walk(at, s.size.Load())
		w.startAt(at, base)
		b, err := w.seek(base, q.from)
		w.close()
		if err != nil {
			return ReadResult{}, err
		}
		p = b.place()
	}
}

// place is where a batch lies that is to be read.
type place struct {
	pos   int64
	after int64 // no batch there begins before this offset, where the one before it ends
	need  int   // bytes, as far as its size is known
}

func (b *foundBatch) place() place { return place{pos: b.pos, after: b.base, need: b.size} }

// readFrom reads from the batch at a place on.
func (s *segment) readFrom(p place, q readRequest) (ReadResult, error) {
	left := s.size.Load() - p.pos
	if left <= 0 {
		return ReadResult{}, errNoBatch
	}
	buf, err := s.readBatches(p.pos, int(min(left, int64(max(q.maxBytes, p.need)))), q.alloc)
	if err != nil {
		return ReadResult{}, err
	}
	n, next, err := s.cut(buf, p, q)
	if n == 0 {
		return ReadResult{NextOffset: q.from}, err
	}
	s.hints.keep(next-s.base, p.pos+int64(n))
	return ReadResult{Batches: buf[:n], NextOffset: next}, nil
}

// readBatches reads n bytes from a batch's start on, or the whole batch if that is longer.
func (s *segment) readBatches(pos int64, n int, alloc func(n int) []byte) ([]byte, error) {
	if alloc == nil {
		alloc = func(n int) []byte { return make([]byte, n) }
	}
	buf := alloc(n)[:n]
	if err := s.readAt(logKind, buf, pos); err != nil {
		return nil, err
	}
	size := record.Batch(buf).Length()
	if size <= n || int64(size) > s.size.Load()-pos {
		return buf, nil // if it is absurd, cut will say so
	}
	buf = alloc(size)[:size]
	return buf, s.readAt(logKind, buf, pos)
}

// cut finds the end of the whole and undamaged batches that start below q's limit, and the offset
// after them. An error comes only when there is none: usually the last batch is cut by the size.
// Checksums are compared here because many readers never do, and a disk may give back other bytes
// than it got. Offset and leader epoch of a batch are not covered by its checksum, so they are compared too, with its
// neighbours and with what is known of epochs.
func (s *segment) cut(buf []byte, p place, q readRequest) (n int, next int64, err error) {
	next = p.after
	epochs := epochCheck{cache: &s.log.epochs}
	for rest := buf; ; {
		var b record.Batch
		b, rest, err = record.Next(rest)
		if err == nil && n == 0 && b.LastOffset() < q.from {
			err = fmt.Errorf("%w: offset %d before offset %d", record.ErrCorrupt, b.LastOffset(), q.from)
		}
		if err == nil && b.BaseOffset() != next {
			err = s.follows(b, rest, next, p.pos+int64(n))
		}
		if err == nil && b.BaseOffset() >= q.limit {
			return n, next, nil
		}
		if err == nil {
			err = epochs.check(b)
		}
		if err == nil {
			err = b.Verify()
		}
		if err != nil && n > 0 {
			return n, next, nil // the next read tells
		}
		if err != nil && isFailedRead(err) {
			return n, next, err
		}
		if err != nil {
			return n, next, &CorruptionError{File: s.fileName(logKind), Position: p.pos + int64(n), Err: err}
		}
		n += len(b)
		next = b.NextOffset()
	}
}

// follows says what is wrong with the offset of a batch at position pos that does not go on where the one before ended,
// at offset after: the batch behind it tells, of which rest holds as much as was read.
func (s *segment) follows(b record.Batch, rest []byte, after, pos int64) error {
	if b.BaseOffset() < after {
		return fmt.Errorf("%w: offset %d follows offset %d", record.ErrCorrupt, b.BaseOffset(), after-1)
	}
	behind := pos + int64(len(b))
	var err error
	next := s.below()
	switch {
	case len(rest) >= 8:
		next = record.Batch(rest).BaseOffset()
	case behind < s.size.Load():
		next, err = s.baseAt(behind)
	case s.misplaced(b):
		next = s.log.end.Load()
	}
	if err == nil && b.NextOffset() > next {
		err = fmt.Errorf("%w: offset %d is followed by offset %d", record.ErrCorrupt, b.LastOffset(), next)
	}
	return err
}

// epochCheck compares the leader epochs of batches that follow each other with what is known of them.
type epochCheck struct {
	cache *epochCache
	epoch int32
	until int64
}

func (c *epochCheck) check(b record.Batch) error {
	if b.BaseOffset() >= c.until {
		c.epoch, c.until = c.cache.span(b.BaseOffset())
	}
	if c.epoch >= 0 && c.epoch != b.LeaderEpoch() {
		return fmt.Errorf("%w: offset %d is of leader epoch %d, not %d", record.ErrCorrupt, b.BaseOffset(), c.epoch,
			b.LeaderEpoch())
	}
	return nil
}
