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
	need := record.HeaderSize
	if !known {
		b, err := l.find(s, q.from)
		if err != nil {
			return ReadResult{}, err
		}
		pos, need = b.pos, b.size
	}
	for {
		r, err := s.readFrom(pos, need, q)
		at, base, ok := s.behindDamage(err)
		if !ok || at <= pos || base > q.from {
			return r, err
		}
		w := s.walk(at, s.size.Load())
		b, err := w.seek(base, q.from)
		w.close()
		if err != nil {
			return ReadResult{}, err
		}
		pos, need = b.pos, b.size
	}
}

// readFrom reads from the batch at position pos on.
func (s *segment) readFrom(pos int64, need int, q readRequest) (ReadResult, error) {
	left := s.size.Load() - pos
	if left <= 0 {
		return ReadResult{}, errNoBatch
	}
	buf, err := s.readBatches(pos, int(min(left, int64(max(q.maxBytes, need)))), q.alloc)
	if err != nil {
		return ReadResult{}, err
	}
	n, next, err := s.cut(buf, pos, q)
	if n == 0 {
		return ReadResult{NextOffset: q.from}, err
	}
	s.hints.keep(next-s.base, pos+int64(n))
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
// than it got. The offset of a batch is not covered by its checksum, so it is compared too, with the
// batch before and the log's end.
func (s *segment) cut(buf []byte, pos int64, q readRequest) (n int, next int64, err error) {
	for rest := buf; ; {
		var b record.Batch
		b, rest, err = record.Next(rest)
		misplaced := err == nil && (n == 0 && b.LastOffset() < q.from || n > 0 && b.BaseOffset() < next ||
			s.misplaced(b))
		if err == nil && !misplaced && b.BaseOffset() >= q.limit {
			return n, next, nil
		}
		if misplaced {
			err = record.ErrCorrupt
		}
		if err == nil {
			err = b.Verify()
		}
		if err != nil && n > 0 {
			return n, next, nil // the next read tells
		}
		if err != nil {
			return n, next, &CorruptionError{File: s.fileName(logKind), Position: pos + int64(n), Err: err}
		}
		n += len(b)
		next = b.NextOffset()
	}
}
