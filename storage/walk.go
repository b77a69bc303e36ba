package storage

import (
	"errors"
	"fmt"

	"millrace/record"
)

// walker goes through the batches of a segment in order. It reads in pieces of its buffer, and only
// the pieces that hold what it is asked for.
type walker struct {
	seg *segment
	pos int64  // of the next batch
	end int64  // where the walk ends
	buf []byte // buf[:n] is what the file holds from position at on
	at  int64
	n   int
	own bool // buf is not from the free list
}

const batchMagic = 2

// walk starts a walk at a batch's start. close gives its buffer back.
func (s *segment) walk(pos, end int64) walker {
	return walker{seg: s, pos: pos, end: end, buf: s.log.dir.scratch.get()}
}

// walkWith is walk with a buffer that stays the caller's.
func (s *segment) walkWith(pos, end int64, buf []byte) walker {
	return walker{seg: s, pos: pos, end: end, buf: buf, own: true}
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
	pos, i := w.pos, int(w.pos-w.at)
	w.pos += int64(size)
	return record.Batch(w.buf[i:min(i+size, w.n)]), pos, nil
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
	pos, i := w.pos, int(w.pos-w.at)
	w.pos += int64(size)
	return record.Batch(w.buf[i : i+size]), pos, nil
}

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
	return size, nil
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

func (w *walker) corruptAt(pos int64, err error) error {
	return &CorruptionError{File: w.seg.fileName(logKind), Position: pos, Err: err}
}

// isCorrupt says whether an error tells of bad bytes rather than of a failed read.
func isCorrupt(err error) bool {
	if err == nil {
		return false
	}
	var c *CorruptionError
	return errors.As(err, &c)
}
