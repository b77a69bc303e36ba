package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/s2"
)

// Snappy has no stream format of its own that Kafka uses: records are framed as snappy-java does,
// and some clients write one bare block instead.
//
//	+---------------------------+---------+---------+--------+-------+--------+-------
//	| 82 'S' 'N' 'A' 'P' 'P' 'Y' 00 | version | compat  | length | block | length | block ...
//	| 8 bytes                   | i32 = 1 | i32 = 1 | i32    |       | i32    |
//	+---------------------------+---------+---------+--------+-------+--------+-------
//
// All integers are big-endian. A bare block cannot begin like the frame: its first element would be
// a copy of bytes that are not there yet.
const (
	snappyMagic      = "\x82SNAPPY\x00"
	snappyHeaderSize = len(snappyMagic) + 8
	snappyChunk      = 32 << 10 // bytes in a chunk, expanded
)

// appendSnappy compresses payload in snappy-java's framing behind dst.
func appendSnappy(dst, payload []byte) []byte {
	dst = append(dst, snappyMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	for len(payload) > 0 {
		chunk := payload[:min(snappyChunk, len(payload))]
		payload = payload[len(chunk):]
		at := len(dst)
		dst = slices.Grow(dst, 4+s2.MaxEncodedLen(snappyChunk))
		block := s2.EncodeSnappy(dst[at+4:cap(dst)], chunk)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = dst[:at+4+len(block)]
	}
	return dst
}

var (
	errSnappyFrame = errors.New("malformed frame")
	errSnappyBlock = errors.New("malformed block")
)

// snappyDecoder reads both forms, block by block.
type snappyDecoder struct {
	in     []byte // not read yet
	framed bool
	bound  int    // of a block, expanded
	block  []byte // memory of the current block
	rest   []byte // of the current block, not returned yet
}

func (d *snappyDecoder) open(payload, block []byte, bound int) error {
	d.in, d.block, d.rest, d.bound = payload, block, nil, bound
	d.framed = bytes.HasPrefix(payload, []byte(snappyMagic))
	if !d.framed {
		return d.expand(payload)
	}
	if len(payload) < snappyHeaderSize {
		return errSnappyFrame
	}
	d.in = payload[snappyHeaderSize:]
	return nil
}

// Read implements io.Reader.
func (d *snappyDecoder) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		if !d.framed || len(d.in) == 0 {
			return 0, io.EOF
		}
		if err := d.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// next expands the next chunk. Frames may follow each other.
func (d *snappyDecoder) next() error {
	if bytes.HasPrefix(d.in, []byte(snappyMagic)) && len(d.in) >= snappyHeaderSize {
		d.in = d.in[snappyHeaderSize:]
		return nil
	}
	if len(d.in) < 4 {
		return errSnappyFrame
	}
	size := int(int32(binary.BigEndian.Uint32(d.in)))
	if size <= 0 || size > len(d.in)-4 {
		return errSnappyFrame
	}
	chunk := d.in[4 : 4+size]
	d.in = d.in[4+size:]
	return d.expand(chunk)
}

// expand expands one block into d.rest.
func (d *snappyDecoder) expand(block []byte) (err error) {
	size, ok := snappySize(block)
	if !ok {
		return errSnappyBlock
	}
	if size > d.bound {
		return errExpands
	}
	if cap(d.block) < size {
		d.block = make([]byte, size)
	}
	d.rest, err = s2.Decode(d.block[:size], block)
	return err
}

func (d *snappyDecoder) close() []byte {
	block := d.block
	*d = snappyDecoder{}
	return block
}

// snappySize walks over a block's elements and returns the size it expands to, which is at most 22
// times its own. The walk comes before any allocation, and keeps out what S2, the extended format
// that our decoder knows too, has beyond snappy: other readers would not understand it.
func snappySize(block []byte) (size int, ok bool) {
	declared, n := binary.Uvarint(block)
	if n <= 0 || declared > 1<<32-1 {
		return 0, false
	}
	p := block[n:]
	for len(p) > 0 {
		element, skip := snappyElement(p)
		if skip == 0 || skip > len(p) {
			return 0, false
		}
		size += element
		p = p[skip:]
	}
	return size, uint64(size) == declared
}

// snappyElement gives the expanded size and the own size of the element at the front of p, which is
// not empty; 0 for what is no element.
func snappyElement(p []byte) (size, skip int) {
	tag := int(p[0])
	switch tag & 3 {
	case 0:
		return snappyLiteral(p)
	case 1: // copy of 4 to 11 bytes, 11 bits of offset
		if len(p) < 2 || (tag>>5 == 0 && p[1] == 0) {
			return 0, 0
		}
		return 4 + tag>>2&7, 2
	case 2: // copy of 1 to 64 bytes, 16 bits of offset
		return 1 + tag>>2, 3
	default: // the same, 32 bits of offset
		return 1 + tag>>2, 5
	}
}

// snappyLiteral does snappyElement for literal bytes: up to 60 say their length in the tag, longer
// ones in one to four bytes after it.
func snappyLiteral(p []byte) (size, skip int) {
	const inTag = 60
	length := int(p[0] >> 2)
	if length < inTag {
		return length + 1, length + 2
	}
	extra := length - inTag + 1
	if len(p) < 1+extra {
		return 0, 0
	}
	length = 0
	for i := extra; i > 0; i-- {
		length = length<<8 | int(p[i])
	}
	return length + 1, length + 2 + extra
}
