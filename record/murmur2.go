package record

import (
	"encoding/binary"

	"millrace/internal/invariant"
)

// Murmur2 is the hash of a key by which Kafka's default partitioner places it.
func Murmur2(key []byte) uint32 {
	const (
		m    = 0x5bd1e995
		seed = 0x9747b28c
	)
	h := seed ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key)
		k *= m
		k ^= k >> 24
		k *= m
		h *= m
		h ^= k
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(key[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// KeyPartition is the partition of a key that is not null (it may be empty), counted over all
// partitions whether or not they have a leader.
func KeyPartition(key []byte, partitions int32) int32 {
	invariant.Check(partitions > 0, "a topic without partitions")
	return int32(Murmur2(key)&0x7fffffff) % partitions
}
