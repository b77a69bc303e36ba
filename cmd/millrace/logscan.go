package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"millrace/record"
)

// The readers here know Kafka's file formats on their own, not through package storage: they are a second opinion on
// what the server wrote, and they work on the folders of a Kafka broker too. Nothing is ever written.

// maxBatch bounds what one batch of a file may claim to be; no broker accepts more.
const maxBatch = 1 << 30

// damage is one thing found wrong in a file.
type damage struct {
	File     string `json:"file"`
	Position int64  `json:"position"`
	What     string `json:"what"`
}

func (d damage) String() string { return fmt.Sprintf("%s at %d: %s", d.File, d.Position, d.What) }

// batchAt is what the checks of the indexes need to know of a batch.
type batchAt struct {
	position     int64
	last         int64 // offset of its last record
	maxTimestamp int64
}

// segment is one .log file while it is scanned.
type segment struct {
	path    string
	base    int64
	batches []batchAt
	end     int64 // offset after the last batch
	records int64
	damages []damage
}

func (s *segment) damaged(file string, position int64, format string, args ...any) {
	s.damages = append(s.damages, damage{file, position, fmt.Sprintf(format, args...)})
}

// baseOf reads the base offset out of a segment file's name.
func baseOf(path string) (int64, bool) {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	n, err := strconv.ParseInt(name, 10, 64)
	return n, err == nil && len(name) == 20
}

// scan reads a .log file from its start and calls fn with every batch, checked or not. It stops where no further
// batch can be told from noise.
func scan(path string, fn func(position int64, b record.Batch) error) (*segment, error) {
	s := &segment{path: path}
	s.base, _ = baseOf(path)
	s.end = s.base
	f, err := os.Open(path)
	if err != nil {
		return nil, openError(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(f, 1<<20)
	var buf []byte
	for at := int64(0); at < st.Size(); {
		buf, err = readBatch(r, buf, st.Size()-at)
		if err != nil {
			s.damaged(path, at, "%v", err)
			break
		}
		b := record.Batch(buf)
		s.check(at, b)
		if err := fn(at, b); err != nil {
			return nil, err
		}
		at += int64(len(buf))
	}
	return s, nil
}

// readBatch reads the next batch into buf, which it may grow; left is how much of the file there is.
func readBatch(r io.Reader, buf []byte, left int64) ([]byte, error) {
	if left < record.HeaderSize {
		return buf, fmt.Errorf("%d bytes are left, too few for a batch: a torn write, or preallocated space", left)
	}
	buf = slices.Grow(buf[:0], record.HeaderSize)[:record.HeaderSize]
	if _, err := io.ReadFull(r, buf); err != nil {
		return buf, err
	}
	size := int64(record.Batch(buf).Length())
	if size < record.HeaderSize || size > maxBatch {
		return buf, fmt.Errorf("a batch cannot have %d bytes", size)
	}
	if size > left {
		return buf, fmt.Errorf("a batch of %d bytes, but %d are left: a torn write", size, left)
	}
	buf = slices.Grow(buf, int(size)-len(buf))[:size]
	_, err := io.ReadFull(r, buf[record.HeaderSize:])
	return buf, err
}

// check verifies one batch and its place after the one before.
func (s *segment) check(at int64, b record.Batch) {
	if err := b.Verify(); err != nil {
		s.damaged(s.path, at, "%v", err)
		return
	}
	if b.BaseOffset() < s.end {
		s.damaged(s.path, at, "base offset %d, but the offsets up to %d are taken", b.BaseOffset(), s.end-1)
	}
	if b.LastOffsetDelta() < 0 {
		s.damaged(s.path, at, "last offset %d is before base offset %d", b.LastOffset(), b.BaseOffset())
	}
	if n, err := countRecords(b); err != nil {
		s.damaged(s.path, at, "%v", err)
	} else {
		s.records += n
	}
	s.end = max(s.end, b.NextOffset())
	s.batches = append(s.batches, batchAt{at, b.LastOffset(), b.MaxTimestamp()})
}

// countRecords decodes a batch and checks that offsets rise within it and that it holds what it says.
func countRecords(b record.Batch) (n int64, err error) {
	r := record.NewReader(b, maxBatch)
	defer r.Close()
	var rec record.Record
	last := b.BaseOffset() - 1
	for r.Next(&rec) {
		if rec.Offset <= last || rec.Offset > b.LastOffset() {
			return n, fmt.Errorf("record offset %d after %d, in a batch of %d to %d",
				rec.Offset, last, b.BaseOffset(), b.LastOffset())
		}
		last = rec.Offset
		n++
	}
	return n, r.Err()
}

// checkIndexes holds the segment's index files against its batches. Missing ones are no damage: they are rebuilt.
func (s *segment) checkIndexes() error {
	stem := strings.TrimSuffix(s.path, ".log")
	if err := s.checkOffsetIndex(stem + ".index"); err != nil {
		return err
	}
	return s.checkTimeIndex(stem + ".timeindex")
}

// readIndex gives the entries of an index file. A file that was not closed ends in zeros, which count as nothing.
func readIndex(path string, size int) ([][]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries [][]byte
	for len(text) >= size {
		e := text[:size]
		if len(entries) > 0 && !slices.ContainsFunc(e, func(b byte) bool { return b != 0 }) {
			break
		}
		entries = append(entries, e)
		text = text[size:]
	}
	if len(entries) == 1 && !slices.ContainsFunc(entries[0], func(b byte) bool { return b != 0 }) {
		return nil, nil
	}
	return entries, nil
}

func (s *segment) checkOffsetIndex(path string) error {
	entries, err := readIndex(path, 8)
	if err != nil {
		return err
	}
	offset, position := int64(-1), int64(-1)
	for i, e := range entries {
		o, p := int64(binary.BigEndian.Uint32(e)), int64(binary.BigEndian.Uint32(e[4:]))
		at := int64(8 * i)
		if o <= offset || p <= position {
			s.damaged(path, at, "entry %d: offset %d, position %d do not rise", i, s.base+o, p)
		}
		offset, position = o, p
		j, found := slices.BinarySearchFunc(s.batches, p, func(b batchAt, p int64) int { return int(b.position - p) })
		if !found || s.batches[j].last != s.base+o {
			s.damaged(path, at, "entry %d: no batch at position %d ends in offset %d", i, p, s.base+o)
		}
	}
	return nil
}

func (s *segment) checkTimeIndex(path string) error {
	entries, err := readIndex(path, 12)
	if err != nil {
		return err
	}
	timestamp, offset := int64(-1), int64(-1)
	for i, e := range entries {
		t, o := int64(binary.BigEndian.Uint64(e)), int64(binary.BigEndian.Uint32(e[8:]))
		at := int64(12 * i)
		if t <= timestamp || o <= offset && i > 0 {
			s.damaged(path, at, "entry %d: timestamp %d, offset %d do not rise", i, t, s.base+o)
		}
		timestamp, offset = t, o
		j, found := slices.BinarySearchFunc(s.batches, s.base+o, func(b batchAt, o int64) int { return int(b.last - o) })
		if !found || s.batches[j].maxTimestamp != t {
			s.damaged(path, at, "entry %d: no batch ends in offset %d with timestamp %d", i, s.base+o, t)
		}
	}
	return nil
}

// segmentsOf lists the .log files of a partition's folder in order.
func segmentsOf(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { _, ok := baseOf(n); return !ok })
	slices.Sort(names)
	return names, nil
}

// logFiles resolves an argument: a .log file, a partition's folder, or a data directory of such folders.
func logFiles(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, openError(err)
	}
	if !st.IsDir() {
		if filepath.Ext(path) != ".log" {
			return nil, usagef("%s: want a .log file, a partition's folder or a data directory", path)
		}
		return []string{path}, nil
	}
	names, err := segmentsOf(path)
	if err != nil || len(names) > 0 {
		return names, err
	}
	folders, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, f := range folders {
		if !f.IsDir() || strings.HasSuffix(f.Name(), "-delete") {
			continue
		}
		more, err := segmentsOf(filepath.Join(path, f.Name()))
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	if len(names) == 0 {
		return nil, failf(exitNotFound, "%s: holds no segment files", path)
	}
	return names, nil
}

func openError(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &failure{exitNotFound, err}
	}
	return err
}
