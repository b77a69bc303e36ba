package record

import (
	"encoding/binary"
	"math/bits"
)

// The primes of xxHash-32.
const (
	xxPrime1 = 2654435761
	xxPrime2 = 2246822519
	xxPrime3 = 3266489917
	xxPrime4 = 668265263
	xxPrime5 = 374761393
)

// xxh32 computes xxHash-32 with seed 0, the checksum of LZ4 frames, over bytes as they come.
type xxh32 struct {
	lanes  [4]uint32
	total  uint64
	tail   [16]byte // the bytes after the last whole stripe
	tailed int
}

// xxh32Of is the hash of p.
func xxh32Of(p []byte) uint32 {
	var x xxh32
	x.reset()
	x.write(p)
	return x.sum()
}

func (x *xxh32) reset() {
	var one, two uint32 = xxPrime1, xxPrime2
	*x = xxh32{lanes: [4]uint32{one + two, two, 0, -one}}
}

func (x *xxh32) write(p []byte) {
	x.total += uint64(len(p))
	if x.tailed > 0 {
		n := copy(x.tail[x.tailed:], p)
		x.tailed += n
		p = p[n:]
		if x.tailed < len(x.tail) {
			return
		}
		x.stripes(x.tail[:])
		x.tailed = 0
	}
	whole := len(p) &^ (len(x.tail) - 1)
	x.stripes(p[:whole])
	x.tailed = copy(x.tail[:], p[whole:])
}

// stripes takes whole stripes of 16 bytes.
func (x *xxh32) stripes(p []byte) {
	a, b, c, d := x.lanes[0], x.lanes[1], x.lanes[2], x.lanes[3]
	for ; len(p) >= 16; p = p[16:] {
		a = xxRound(a, binary.LittleEndian.Uint32(p))
		b = xxRound(b, binary.LittleEndian.Uint32(p[4:]))
		c = xxRound(c, binary.LittleEndian.Uint32(p[8:]))
		d = xxRound(d, binary.LittleEndian.Uint32(p[12:]))
	}
	x.lanes = [4]uint32{a, b, c, d}
}

func xxRound(lane, word uint32) uint32 {
	return bits.RotateLeft32(lane+word*xxPrime2, 13) * xxPrime1
}

// sum is the hash of what was written.
func (x *xxh32) sum() uint32 {
	h := uint32(xxPrime5)
	if x.total >= 16 {
		h = bits.RotateLeft32(x.lanes[0], 1) + bits.RotateLeft32(x.lanes[1], 7) +
			bits.RotateLeft32(x.lanes[2], 12) + bits.RotateLeft32(x.lanes[3], 18)
	}
	h += uint32(x.total)
	p := x.tail[:x.tailed]
	for ; len(p) >= 4; p = p[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(p)*xxPrime3, 17) * xxPrime4
	}
	for _, c := range p {
		h = bits.RotateLeft32(h+uint32(c)*xxPrime5, 11) * xxPrime1
	}
	h = (h ^ h>>15) * xxPrime2
	h = (h ^ h>>13) * xxPrime3
	return h ^ h>>16
}
