package storage

import (
	"hash/maphash"
	"math/bits"
)

// slotSize is what a key takes in the map of latest offsets.
const slotSize = 24

// offsetMap holds the latest offset of each key, in memory of a fixed size. A key is known by 16 bytes: two hashes of
// it under seeds that nobody knows, so that equal ones are not to be expected, nor to be made. The zero map is full.
type offsetMap struct {
	seeds [2]maphash.Seed
	slots []keySlot
	used  int
	most  int // keys that it takes
}

// keySlot is free where end is 0, else it holds the hash of a key and the offset after its latest record.
type keySlot struct {
	hash [2]uint64
	end  int64
}

// reset empties the map and makes it take so many keys, as far as they fit into so many bytes.
func (m *offsetMap) reset(keys int64, bytes int) {
	const spare = 16
	n := max(min(int64(bytes/slotSize), keys+keys/9+spare), 2)
	if int64(cap(m.slots)) >= n {
		m.slots = m.slots[:n]
		clear(m.slots)
	} else {
		m.slots = make([]keySlot, n)
	}
	m.used, m.most = 0, max(int(n)*9/10, 1)
	m.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
}

// find gives the key's slot, or the free one that it would get.
func (m *offsetMap) find(key []byte) (*keySlot, [2]uint64) {
	h := [2]uint64{maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)}
	i, _ := bits.Mul64(h[0], uint64(len(m.slots)))
	for {
		s := &m.slots[i]
		if s.end == 0 || s.hash == h {
			return s, h
		}
		if i++; i == uint64(len(m.slots)) {
			i = 0
		}
	}
}

// put notes the latest record of a key. It says no when there is no room for another key.
func (m *offsetMap) put(key []byte, offset int64) bool {
	s, h := m.find(key)
	if s.end == 0 {
		if m.used >= m.most {
			return false
		}
		m.used++
		s.hash = h
	}
	s.end = offset + 1
	return true
}

// latest is the offset of the latest record of a key, -1 for a key that is not in the map.
func (m *offsetMap) latest(key []byte) int64 {
	s, _ := m.find(key)
	return s.end - 1
}
