package record

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/zstd"

	"millrace/internal/invariant"
)

const (
	// zstdWindow is the window of what we write: readers need so much memory for a batch.
	zstdWindow = 1 << 20
	// zstdStreamWindow is the largest window, and so memory, of a frame that is read as a stream.
	zstdStreamWindow = 8 << 20
	// zstdMaxWindow is the largest window at all: that of level 22, and what Kafka's clients read.
	zstdMaxWindow = 128 << 20
	// zstdAtOnce is how much is expanded in one piece before a stream is tried.
	zstdAtOnce = keptBlock

	zstdChecksumSize = 4
)

// zstdEncoder keeps a compressor for each of the library's levels that was used.
type zstdEncoder struct {
	encoders [zstd.SpeedBestCompression + 1]*zstd.Encoder
}

// append compresses payload as one frame behind dst. Levels are those of the reference
// implementation, mapped to the four that the library has; 0 is 3, the default.
func (e *zstdEncoder) append(dst []byte, level int, payload []byte) []byte {
	speed := zstd.SpeedDefault
	if level != 0 {
		speed = zstd.EncoderLevelFromZstd(level)
	}
	enc := e.encoders[speed]
	if enc == nil {
		var err error
		enc, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(speed), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false),
			zstd.WithZeroFrames(true))
		invariant.Check(err == nil, "zstd has no such options")
		e.encoders[speed] = enc
	}
	return enc.EncodeAll(payload, dst)
}

// zstdDecoder reads frames in the way that needs the least memory. Small contents are expanded at
// once into the block, with no memory for a window. What proves larger is read as a stream, whose
// memory is the window; and a frame whose window is larger than we give a stream is expanded at
// once after all, in a block that grows up to the bound.
type zstdDecoder struct {
	whole  *zstd.Decoder // expands at once
	stream *zstd.Decoder // reads a stream; never used for both: one would wait for the other
	src    bytes.Reader
	block  []byte
	rest   []byte // of block, not returned yet
	reads  bool   // the stream is in use
}

func (d *zstdDecoder) open(payload, block []byte, bound int) error {
	d.block, d.rest, d.reads = block, nil, false
	window, most, err := zstdFrames(payload)
	if err != nil {
		return err
	}
	const growth, least = 8, 16 << 10
	most = min(most, bound+1)
	size := min(max(growth*len(payload), least), zstdAtOnce, most)
	err = d.expand(payload, size)
	for err == zstd.ErrDecoderSizeExceeded && size < most && window > zstdStreamWindow {
		size = min(2*size, most)
		err = d.expand(payload, size)
	}
	switch {
	case err == nil:
		return nil
	case window <= zstdStreamWindow:
		return d.startStream(payload)
	case err == zstd.ErrDecoderSizeExceeded && most > bound:
		return errExpands
	default:
		return err
	}
}

// expand expands payload at once, into at most size bytes.
func (d *zstdDecoder) expand(payload []byte, size int) (err error) {
	if d.whole == nil {
		d.whole, err = newZstdReader(zstdMaxWindow)
		invariant.Check(err == nil, "zstd has no such options")
	}
	if cap(d.block) < size {
		d.block = make([]byte, size)
	}
	d.rest, err = d.whole.DecodeAll(payload, d.block[:0:size])
	if err != nil {
		d.rest = nil
	}
	return err
}

func (d *zstdDecoder) startStream(payload []byte) (err error) {
	if d.stream == nil {
		d.stream, err = newZstdReader(zstdStreamWindow)
		invariant.Check(err == nil, "zstd has no such options")
	}
	d.src.Reset(payload)
	d.reads = true
	return d.stream.Reset(&d.src)
}

// newZstdReader makes a decoder without goroutines.
func newZstdReader(maxWindow uint64) (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecodeAllCapLimit(true))
}

// zstdFrames walks over the blocks of all frames without expanding them: the largest window that a
// frame asks for and the most that they can expand to, which is what memory may be claimed for. What
// a frame says about its content's size counts only as far as its blocks can bear it out.
func zstdFrames(payload []byte) (window uint64, most int, err error) {
	for len(payload) > 0 {
		var header zstd.Header
		if payload, err = header.DecodeAndStrip(payload); err != nil {
			return 0, 0, err
		}
		if header.Skippable {
			if uint64(len(payload)) < uint64(header.SkippableSize) {
				return 0, 0, io.ErrUnexpectedEOF
			}
			payload = payload[header.SkippableSize:]
			continue
		}
		if header.SingleSegment {
			header.WindowSize = header.FrameContentSize
		}
		window = max(window, header.WindowSize)
		var expands int
		if payload, expands, err = zstdBlocks(payload); err != nil {
			return 0, 0, err
		}
		most += expands
		if header.HasCheckSum {
			payload = payload[min(zstdChecksumSize, len(payload)):]
		}
	}
	return window, most, nil
}

// zstdBlocks walks over the blocks of one frame. A block begins with three bytes, little-endian:
// bit 0 is set on the last one, bits 1 and 2 are the kind, the others the size.
func zstdBlocks(p []byte) (rest []byte, most int, err error) {
	const maxBlock, headerSize, repeated, packed = 128 << 10, 3, 1, 2
	for last := false; !last; {
		if len(p) < headerSize {
			return nil, 0, io.ErrUnexpectedEOF
		}
		head := int(p[0]) | int(p[1])<<8 | int(p[2])<<16
		p = p[headerSize:]
		last = head&1 != 0
		size := head >> 3
		expands := size
		switch head >> 1 & 3 {
		case repeated:
			size = 1
		case packed:
			expands = maxBlock
		}
		if size > len(p) {
			return nil, 0, io.ErrUnexpectedEOF
		}
		p = p[size:]
		most += expands
	}
	return p, most, nil
}

// Read implements io.Reader.
func (d *zstdDecoder) Read(p []byte) (int, error) {
	if d.reads {
		return d.stream.Read(p)
	}
	if len(d.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *zstdDecoder) close() []byte {
	if d.reads {
		err := d.stream.Reset(nil) // lets go of the payload
		invariant.Check(err == nil, "zstd decoder does not reset")
		d.reads = false
	}
	d.src.Reset(nil)
	block := d.block
	d.block, d.rest = nil, nil
	return block
}
