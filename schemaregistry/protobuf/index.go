package protobuf

import (
	"encoding/binary"
	"math"

	"millrace/schemaregistry/schema"
)

// maxIndexes bounds an index read from a payload. Messages are nested less deep.
const maxIndexes = 100

// AppendIndex appends the place of a message in its file as payloads carry it, before the message:
//
//	count  zigzag varint
//	index  zigzag varint, count times: of the file's message, of the one nested in it, ...
//
// The first message of the file is the single byte 00.
func AppendIndex(dst []byte, index []int) []byte {
	if len(index) == 0 || len(index) == 1 && index[0] == 0 {
		return append(dst, 0)
	}
	dst = binary.AppendVarint(dst, int64(len(index)))
	for _, i := range index {
		dst = binary.AppendVarint(dst, int64(i))
	}
	return dst
}

// ReadIndex reads what AppendIndex wrote, and its long form of the first message, and returns what follows.
func ReadIndex(b []byte) (index []int, rest []byte, err error) {
	count, n := binary.Varint(b)
	if n <= 0 {
		return nil, nil, schema.Mismatch("the payload ends within the message index")
	}
	b = b[n:]
	if count == 0 {
		return []int{0}, b, nil
	}
	if count < 0 || count > maxIndexes || count > int64(len(b)) {
		return nil, nil, schema.Mismatch("the payload's message index cannot have %d parts", count)
	}
	for range count {
		i, n := binary.Varint(b)
		if n <= 0 || i < 0 || i > math.MaxInt32 {
			return nil, nil, schema.Mismatch("the payload's message index is broken")
		}
		index, b = append(index, int(i)), b[n:]
	}
	return index, b, nil
}
