package record

import "math/bits"

// Varints are zig-zag LEB128: seven bits a byte from the lowest, the top bit set on all but the
// last byte; the sign in bit 0. 32-bit values take at most 5 bytes, 64-bit ones at most 10.

// varintSize is the number of bytes that v takes.
func varintSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	return (bits.Len64(u|1) + 6) / 7
}

// varint32 reads a 32-bit varint off the front of p: n bytes, 0 when p ends inside it or it is too
// long.
func varint32(p []byte) (v int32, n int) {
	if len(p) > 0 && p[0] < 0x80 {
		u := uint32(p[0])
		return int32(u>>1) ^ -int32(u&1), 1
	}
	if len(p) > 1 && p[1] < 0x80 {
		u := uint32(p[0]&0x7f) | uint32(p[1])<<7
		return int32(u>>1) ^ -int32(u&1), 2
	}
	return longVarint32(p)
}

func longVarint32(p []byte) (v int32, n int) {
	var u uint32
	for i := 0; i < len(p) && i < 5; i++ {
		c := p[i]
		if i == 4 && c > 0x0f {
			return 0, 0
		}
		u |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
	}
	return 0, 0
}

// varint64 is varint32 for 64 bits.
func varint64(p []byte) (v int64, n int) {
	if len(p) > 0 && p[0] < 0x80 {
		return int64(p[0]>>1) ^ -int64(p[0]&1), 1
	}
	return longVarint64(p)
}

func longVarint64(p []byte) (v int64, n int) {
	var u uint64
	for i := 0; i < len(p) && i < 10; i++ {
		c := p[i]
		if i == 9 && c > 0x01 {
			return 0, 0
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, 0
}
