package ktag

import (
	"crypto/sha256"
	"encoding/binary"
)

// Named producers have ids from 1<<62 up. Kafka hands out ids from 0, in blocks, and would need
// longer than any cluster lives to get there.
const (
	namedBase = int64(1) << 62
	hashBits  = 61
)

// NamedProducerID is the producer id of a producer that a client named: bit 62 and the first 61 bits
// of the name's SHA-256. Two names that meet by chance would share sequences; with a million names
// the chance is below one in four million.
func NamedProducerID(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return namedBase | int64(binary.BigEndian.Uint64(sum[:8])>>(64-hashBits))
}

// IsNamed reports whether id is of a named producer. Such a producer's baseSequence counts its
// requests, not its records: all records of a batch share one sequence.
func IsNamed(id int64) bool { return id>>hashBits == namedBase>>hashBits }
