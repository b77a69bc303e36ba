package storage

import (
	"errors"
	"fmt"
	"math"

	"millrace/record"
)

// walker goes through the batches of a segment in order. It reads in pieces of its buffer, and only
// the pieces that hold what it is asked for. What the checksum of a batch does not cover, its offsets, it holds to
// those of its neighbours.
type walker struct {
	seg *segment
	pos int64  // of the next batch
	end int64  // where the walk ends
	lax bool   // offsets are taken as they are
	buf []byte // buf[:n] is what the file holds from position at on
	at  int64
	n   int
	own bool // buf is not from the free list

	// No batch at position known begins before offset after, where the one before it ends.
	known, after int64
	wrong        int64 // position of a batch that is not where it says; noPosition if none is known
}

const noPosition = -1

const batchMagic = 2

// walk starts a walk at a batch's start. close gives its buffer back.
func (s *segment) walk(pos, end int64) walker {
	return s.walkWithin(walker{pos: pos, end: end, buf: s.log.dir.scratch.get()})
}

// walkWith is walk with a buffer that stays the caller's.
func (s *segment) walkWith(pos, end int64, buf []byte) walker {
	return s.walkWithin(walker{pos: pos, end: end, buf: buf, own: true})
}

// walkWithin begins at the segment's base, or with a batch of which nothing is known.
func (s *segment) walkWithin(w walker) walker {
	w.seg, w.after, w.wrong = s, s.base, noPosition
	return w
}

func (w *walker) close() {
	if !w.own {
		w.seg.log.dir.scratch.put(w.buf)
	}
}

// more says whether there is another batch.
func (w *walker) more() bool { return w.pos < w.end }

// header gives the next batch, at least its header, and its position. The batch is whole when it
// lies in what was read anyway. Valid until the next call.
func (w *walker) header() (record.Batch, int64, error) {
	size, err := w.peek()
	if err != nil {
		return nil, w.pos, err
	}
	i := int(w.pos - w.at)
	b := record.Batch(w.buf[i:min(i+size, w.n)])
	return b, w.pass(b, size), nil
}

// whole gives the next batch, all of it.
func (w *walker) whole() (record.Batch, int64, error) {
	size, err := w.peek()
	if err != nil {
		return nil, w.pos, err
	}
	if err := w.fill(size); err != nil {
		return nil, w.pos, err
	}
	i := int(w.pos - w.at)
	b := record.Batch(w.buf[i : i+size])
	return b, w.pass(b, size), nil
}

// pass goes on behind a batch and gives its position.
func (w *walker) pass(b record.Batch, size int) (pos int64) {
	pos = w.pos
	w.pos += int64(size)
	w.known, w.after = w.pos, b.NextOffset()
	return pos
}

// startAt goes to the batch at a position, whose base offset is known.
func (w *walker) startAt(pos, base int64) { w.pos, w.known, w.after = pos, pos, base }

// peek reads the next header and gives the size of its batch, which lies before the walk's end.
func (w *walker) peek() (int, error) {
	if w.pos+record.HeaderSize > w.end {
		return 0, w.corrupt(record.ErrShort)
	}
	if err := w.fill(record.HeaderSize); err != nil {
		return 0, err
	}
	b := record.Batch(w.buf[w.pos-w.at:])
	size := b.Length()
	switch {
	case b.Magic() != batchMagic:
		return 0, w.corrupt(fmt.Errorf("%w: magic %d", record.ErrCorrupt, b.Magic()))
	case size < record.HeaderSize:
		return 0, w.corrupt(fmt.Errorf("%w: batch size %d", record.ErrCorrupt, size))
	case w.pos+int64(size) > w.end:
		return 0, w.corrupt(record.ErrShort)
	case b.LastOffsetDelta() < 0 || b.BaseOffset() < w.seg.base:
		return 0, w.corrupt(fmt.Errorf("%w: offsets %d to %d", record.ErrCorrupt, b.BaseOffset(), b.LastOffset()))
	}
	if w.lax {
		return size, nil
	}
	return size, w.follows(b, size)
}

// follows says what is wrong with the offsets of the next batch.
func (w *walker) follows(b record.Batch, size int) error {
	base, last, next, exact := b.BaseOffset(), b.LastOffset(), b.NextOffset(), w.pos == w.known
	if w.pos == w.wrong {
		return w.corrupt(fmt.Errorf("%w: offset %d is not that of the index", record.ErrCorrupt, last))
	}
	if exact && base == w.after {
		return nil
	}
	if exact && base < w.after {
		return w.corrupt(fmt.Errorf("%w: offset %d follows offset %d", record.ErrCorrupt, base, w.after-1))
	}
	behind, err := w.behind(size)
	if err != nil || next <= behind {
		return err
	}
	return w.corrupt(fmt.Errorf("%w: offset %d is followed by offset %d", record.ErrCorrupt, last, behind))
}

// behind gives the offset of the batch behind the next one, whose size is given. Where the walk ends it is that at
// which the following segment begins, and beyond all offsets where there is none.
func (w *walker) behind(size int) (int64, error) {
	pos := w.pos + int64(size)
	if pos+record.HeaderSize > w.end {
		return w.seg.below(), nil
	}
	if i := pos - w.at; i+8 <= int64(w.n) {
		return record.Batch(w.buf[i:w.n]).BaseOffset(), nil
	}
	return w.seg.baseAt(pos)
}

// baseAt reads the base offset of the batch at a position.
func (s *segment) baseAt(pos int64) (int64, error) {
	var base [8]byte
	if err := s.readAt(logKind, base[:], pos); err != nil {
		return 0, err
	}
	return record.Batch(base[:]).BaseOffset(), nil
}

// below is the offset that no batch of the segment reaches beyond, as far as the segments that are shown tell.
func (s *segment) below() int64 {
	if p := s.log.segments.Load(); p != nil {
		if i := p.at(s.base); (*p)[i] == s && i+1 < len(*p) {
			return (*p)[i+1].base
		}
	}
	return math.MaxInt64
}

// fill makes the buffer hold need bytes from the next batch's start on.
func (w *walker) fill(need int) error {
	if w.pos >= w.at && w.pos+int64(need) <= w.at+int64(w.n) {
		return nil
	}
	if need > len(w.buf) {
		w.close()
		w.buf, w.own = make([]byte, need), true
	}
	n := int(min(int64(len(w.buf)), w.end-w.pos))
	if err := w.seg.readAt(logKind, w.buf[:n], w.pos); err != nil {
		return err
	}
	w.at, w.n = w.pos, n
	return nil
}

func (w *walker) corrupt(err error) error { return w.corruptAt(w.pos, err) }

func (w *walker) corruptAt(pos int64, err error) error { return w.seg.corruptAt(pos, err) }

func (s *segment) corruptAt(pos int64, err error) error {
	return &CorruptionError{File: s.fileName(logKind), Position: pos, Err: err}
}

// isCorrupt says whether an error tells of bad bytes rather than of a failed read.
func isCorrupt(err error) bool {
	if err == nil {
		return false
	}
	var c *CorruptionError
	return errors.As(err, &c)
}
