package record

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/pierrec/lz4/v4"

	"millrace/internal/invariant"
)

// The LZ4 frame, integers little-endian. Checksums are xxHash-32; the header's is its second byte.
//
//	+----------+-----+----+---------+----------+------+-------+----------+---     +-------+----------+
//	| magic    | flg | bd | content | header   | size | block | block    | ...    | end   | content  |
//	| 4        | 1   | 1  | size, 8 | checksum | 4    |       | checksum |        | 4     | checksum |
//	|          |     |    | if flg  | 1        |      |       | if flg   |        | = 0   | if flg   |
//	+----------+-----+----+---------+----------+------+-------+----------+---     +-------+----------+
//
// A size with the top bit set is that of a block that is not compressed. We write the frame by hand
// rather than with the library's writer to know its memory: blocks of 64 KiB, no checksums, no
// goroutine. Blocks that refer to earlier ones are refused on reading: Kafka's readers cannot
// follow them either.
const (
	lz4Magic = 0x184d2204

	lz4FlagsMask       = 0b1100_0010 // version and the reserved bit
	lz4FlagsVersion    = 0b0100_0000
	lz4Independent     = 0b0010_0000
	lz4BlockChecksum   = 0b0001_0000
	lz4ContentSize     = 0b0000_1000
	lz4ContentChecksum = 0b0000_0100
	lz4Dictionary      = 0b0000_0001

	lz4Raw       = 1 << 31  // of a block's size
	lz4Block     = 64 << 10 // bytes in a block that we write, expanded
	lz4Block64K  = 4 << 4   // its code in bd
	lz4MaxExpand = 255      // how much a byte of input can yield
)

// lz4Encoder keeps the tables of the two compressors.
type lz4Encoder struct {
	fast *lz4.Compressor
	high *lz4.CompressorHC
}

// append compresses payload as one frame behind dst. Levels are Kafka's: 9, its default, and 0 stand
// for the fast compressor, the others for how hard the slow one searches.
func (e *lz4Encoder) append(dst []byte, level int, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	dst = append(dst, lz4FlagsVersion|lz4Independent, lz4Block64K)
	dst = append(dst, lz4HeaderChecksum(dst[len(dst)-2:]))
	for len(payload) > 0 {
		src := payload[:min(lz4Block, len(payload))]
		payload = payload[len(src):]
		at := len(dst)
		dst = slices.Grow(dst, 4+lz4.CompressBlockBound(lz4Block))
		size := e.compress(dst[at+4:cap(dst)], level, src)
		if size == 0 || size >= len(src) {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(src))|lz4Raw)
			dst = append(dst, src...)
			continue
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(size))
		dst = dst[:at+4+size]
	}
	return binary.LittleEndian.AppendUint32(dst, 0)
}

// compress compresses one block into dst, which has room for the worst.
func (e *lz4Encoder) compress(dst []byte, level int, src []byte) int {
	const kafkaDefault, deepest = 9, 9
	var size int
	var err error
	if level <= 0 || level == kafkaDefault {
		if e.fast == nil {
			e.fast = new(lz4.Compressor)
		}
		size, err = e.fast.CompressBlock(src, dst)
	} else {
		if e.high == nil {
			e.high = new(lz4.CompressorHC)
		}
		e.high.Level = lz4.Level1 << (min(level, deepest) - 1)
		size, err = e.high.CompressBlock(src, dst)
	}
	invariant.Check(err == nil, "lz4 block exceeds its bound")
	return size
}

var (
	errLZ4Frame    = errors.New("malformed frame")
	errLZ4Linked   = errors.New("blocks that depend on each other are not supported")
	errLZ4Checksum = errors.New("checksum differs")
)

// lz4Decoder reads one frame, block by block.
type lz4Decoder struct {
	in       []byte // not read yet
	flags    byte
	maxBlock int
	declared uint64 // content size, if flags say so
	total    uint64
	sum      xxh32
	block    []byte // memory of the current block
	rest     []byte // of the current block, not returned yet
	done     bool
}

func (d *lz4Decoder) open(payload, block []byte) error {
	*d = lz4Decoder{block: block}
	if len(payload) < 7 || binary.LittleEndian.Uint32(payload) != lz4Magic {
		return errLZ4Frame
	}
	d.flags = payload[4]
	sizeCode := payload[5] >> 4
	switch {
	case d.flags&lz4FlagsMask != lz4FlagsVersion, d.flags&lz4Dictionary != 0, payload[5]&0x0f != 0:
		return errLZ4Frame
	case sizeCode < 4 || sizeCode > 7:
		return errLZ4Frame
	case d.flags&lz4Independent == 0:
		return errLZ4Linked
	}
	d.maxBlock = 1 << (8 + 2*sizeCode)
	end := 6
	if d.flags&lz4ContentSize != 0 {
		end += 8
		if len(payload) <= end {
			return errLZ4Frame
		}
		d.declared = binary.LittleEndian.Uint64(payload[6:])
	}
	if payload[end] != lz4HeaderChecksum(payload[4:end]) {
		return errLZ4Checksum
	}
	d.in = payload[end+1:]
	d.sum.reset()
	return nil
}

// Read implements io.Reader.
func (d *lz4Decoder) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.done {
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

// next expands the next block, or checks the end.
func (d *lz4Decoder) next() error {
	if len(d.in) < 4 {
		return errLZ4Frame
	}
	word := binary.LittleEndian.Uint32(d.in)
	d.in = d.in[4:]
	if word == 0 {
		return d.finish()
	}
	size := int(word &^ lz4Raw)
	if size > len(d.in) || size > d.maxBlock {
		return errLZ4Frame
	}
	src := d.in[:size]
	d.in = d.in[size:]
	if d.flags&lz4BlockChecksum != 0 {
		if err := d.takeChecksum(xxh32Of(src)); err != nil {
			return err
		}
	}
	if word&lz4Raw != 0 {
		d.rest = src
	} else if err := d.expand(src); err != nil {
		return err
	}
	d.total += uint64(len(d.rest))
	if d.flags&lz4ContentChecksum != 0 {
		d.sum.write(d.rest)
	}
	return nil
}

// expand expands one block into d.rest.
func (d *lz4Decoder) expand(src []byte) error {
	bound := min(d.maxBlock, lz4MaxExpand*len(src))
	if cap(d.block) < bound {
		d.block = make([]byte, bound)
	}
	n, err := lz4.UncompressBlock(src, d.block[:bound])
	if err != nil {
		return err
	}
	d.rest = d.block[:n]
	return nil
}

// finish checks what follows the last block.
func (d *lz4Decoder) finish() error {
	d.done = true
	if d.flags&lz4ContentSize != 0 && d.total != d.declared {
		return errLZ4Frame
	}
	if d.flags&lz4ContentChecksum != 0 {
		if err := d.takeChecksum(d.sum.sum()); err != nil {
			return err
		}
	}
	if len(d.in) > 0 {
		return errLZ4Frame
	}
	return nil
}

// takeChecksum reads a checksum and compares.
func (d *lz4Decoder) takeChecksum(want uint32) error {
	if len(d.in) < 4 {
		return errLZ4Frame
	}
	got := binary.LittleEndian.Uint32(d.in)
	d.in = d.in[4:]
	if got != want {
		return errLZ4Checksum
	}
	return nil
}

func (d *lz4Decoder) close() []byte {
	block := d.block
	*d = lz4Decoder{}
	return block
}

// lz4HeaderChecksum is the checksum of the header's bytes between magic and itself.
func lz4HeaderChecksum(header []byte) byte { return byte(xxh32Of(header) >> 8) }
