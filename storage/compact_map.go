package storage

import (
	"hash/maphash"
	"math/bits"
)

// slotSize is what a key takes in the map of latest offsets.
const slotSize = 24

// offsetMap holds the latest offset of each key, in memory of a fixed size. A key is known by 16 bytes: two hashes of
// it under seeds that nobody knows, so that equal ones are not to be expected, nor to be made. The zero map is full.
//
// The first hash says, by its size, where in the table a key's slot is to be looked for, and the slots lie in the order
// of it, with free ones between. So a search ends at the first slot that comes later, however full the table is.
type offsetMap struct {
	seeds [2]maphash.Seed
	slots []keySlot
	homes uint64 // of the slots, those that a search may begin at; the rest is for what does not fit in front
	used  int
	most  int // keys that it takes

	ahead [][2]uint64 // hashes of the keys that are about to be looked up
	next  int         // the first of them that has not been
	sink  int64
}

// keySlot is free where end is 0, else it holds the hash of a key and the offset after its latest record.
type keySlot struct {
	hash [2]uint64
	end  int64
}

// mapOverflow is how many slots there are behind the last that a search begins at. Keys that lie more densely than that
// somewhere have no room.
const mapOverflow = 4096

// reset empties the map and makes it take so many keys, as far as they fit into so many bytes.
func (m *offsetMap) reset(keys int64, bytes int) {
	const spare = 16
	homes := max(min(int64(bytes/slotSize), keys+keys/9+spare), 2)
	n := int(homes + min(homes, mapOverflow))
	if cap(m.slots) >= n {
		m.slots = m.slots[:n]
		clear(m.slots)
	} else {
		m.slots = make([]keySlot, n)
	}
	m.used, m.homes, m.most = 0, uint64(homes), max(int(homes)*9/10, 1)
	m.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
}

// prepare hears of the keys that are about to be looked up, each once and in this order. Their slots are all over the
// memory, so it has all of them brought near at once, where they are not waited for one by one.
func (m *offsetMap) prepare(keys [][]byte) {
	m.ahead, m.next = m.ahead[:0], 0
	for _, key := range keys {
		m.ahead = append(m.ahead, [2]uint64{maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)})
	}
	sum := int64(0)
	for i := range m.ahead {
		home, _ := bits.Mul64(m.ahead[i][0], m.homes)
		sum += m.slots[home].end
	}
	m.sink = sum
}

// find gives the place of the slot of the next of the keys that were prepared, or the place for it.
func (m *offsetMap) find() (i int, h [2]uint64, found bool) {
	h = m.ahead[m.next]
	m.next++
	home, _ := bits.Mul64(h[0], m.homes)
	for i = int(home); i < len(m.slots); i++ {
		s := &m.slots[i]
		if s.end == 0 || s.hash[0] > h[0] {
			return i, h, false
		}
		if s.hash == h {
			return i, h, true
		}
	}
	return i, h, false
}

// put notes the latest record of the next key. It says no when there is no room for another key.
func (m *offsetMap) put(offset int64) bool {
	i, h, found := m.find()
	if !found {
		if m.used >= m.most || !m.open(i) {
			return false
		}
		m.used++
		m.slots[i].hash = h
	}
	m.slots[i].end = offset + 1
	return true
}

// open makes room at a place, unless there is none.
func (m *offsetMap) open(i int) bool {
	free := i
	for free < len(m.slots) && m.slots[free].end != 0 {
		free++
	}
	if free >= len(m.slots) {
		return false
	}
	copy(m.slots[i+1:free+1], m.slots[i:free])
	return true
}

// skip passes over the next key.
func (m *offsetMap) skip() { m.next++ }

// latest is the offset of the latest record of the next key, -1 if that is not in the map.
func (m *offsetMap) latest() int64 {
	if i, _, found := m.find(); found {
		return m.slots[i].end - 1
	}
	return -1
}
