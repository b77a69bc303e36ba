package storage

import (
	"hash/maphash"
	"math"

	"millrace/record"
)

// slotSize is what a key takes in the map of latest records.
const slotSize = 20

// keyHash is what a key is known by: 16 bytes, of two hashes under seeds that nobody knows, so that equal ones of
// different keys are not to be expected, nor to be made.
type keyHash [4]uint32

// keyMap tells which record of each key is the latest, in memory of a fixed size. Records have numbers, less than
// mostNumber. The zero map is full.
//
// The first word of a hash says, by its size, where in the table a key's slot is to be looked for, and the slots lie
// in the order of it, with free ones between. So a search ends at the first slot that comes later, however full the
// table is. The second word says whether the map takes the key at all: it can be of a share of all keys.
type keyMap struct {
	seeds [2]maphash.Seed
	slots []keySlot
	homes uint64 // of the slots, those that a search may begin at; the rest is for what does not fit in front
	used  int
	most  int      // keys that it takes
	share keyShare // of the keys, that it takes
}

// keySlot is free where after is 0, else it holds the hash of a key and the number after that of its latest record.
type keySlot struct {
	hash  keyHash
	after uint32
}

const (
	// mapOverflow is how many slots there are behind the last that a search begins at. Keys that lie more densely than
	// that somewhere have no room.
	mapOverflow = 4096

	mostNumber = math.MaxUint32
	allKeys    = 1 << 32 // of second words
)

// reset empties the map and makes it take so many keys, as far as they fit into so many bytes, under new seeds.
func (m *keyMap) reset(keys int64, bytes int) {
	const spare = 16
	homes := max(min(int64(bytes/slotSize), keys+keys/8+spare, math.MaxInt32), 2)
	n := int(homes + min(homes, mapOverflow))
	if cap(m.slots) >= n {
		m.slots = m.slots[:n]
	} else {
		m.slots = make([]keySlot, n)
	}
	m.homes, m.most = uint64(homes), max(int(homes)*93/100, 1)
	m.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	m.begin(0, allKeys)
}

// begin empties the map for another share of the keys.
func (m *keyMap) begin(low, high uint64) {
	clear(m.slots)
	m.used, m.share = 0, keyShare{low, high}
}

// narrow makes the map's share that part of what it was, less than all: it keeps what is left of the keys.
func (m *keyMap) narrow(part float64) {
	m.share.high = m.share.low + uint64(float64(m.share.high-m.share.low)*part)
	m.used = 0
	end := 0 // of the slots that were moved up
	for i := range m.slots {
		s := m.slots[i]
		m.slots[i].after = 0
		if s.after == 0 || !m.takes(s.hash) {
			continue
		}
		end = max(end, m.home(s.hash))
		m.slots[end] = s
		end++
		m.used++
	}
}

// takes says whether a key is in the map's share.
func (m *keyMap) takes(h keyHash) bool {
	return uint64(h[1]) >= m.share.low && uint64(h[1]) < m.share.high
}

func (m *keyMap) home(h keyHash) int { return int(uint64(h[0]) * m.homes >> 32) }

func (m *keyMap) hash(key []byte) keyHash {
	a, b := maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)
	return keyHash{uint32(a >> 32), uint32(a), uint32(b >> 32), uint32(b)}
}

// find gives the place of a key's slot, or the place for it.
func (m *keyMap) find(h keyHash) (i int, found bool) {
	for i = m.home(h); i < len(m.slots); i++ {
		s := &m.slots[i]
		if s.after == 0 || s.hash[0] > h[0] {
			return i, false
		}
		if s.hash == h {
			return i, true
		}
	}
	return i, false
}

// has says whether a key is in the map.
func (m *keyMap) has(h keyHash) bool {
	_, found := m.find(h)
	return found
}

// put notes a key's latest record. It gives the number of the one before, if there was one, and says no when there is
// no room for another key.
func (m *keyMap) put(h keyHash, number uint32) (before uint32, again, ok bool) {
	i, found := m.find(h)
	s := i
	if !found {
		if m.used >= m.most || !m.open(i) {
			return 0, false, false
		}
		m.used++
		m.slots[s] = keySlot{hash: h, after: number + 1}
		return 0, false, true
	}
	before = m.slots[s].after - 1
	m.slots[s].after = number + 1
	return before, true, true
}

// open makes room at a place, unless there is none.
func (m *keyMap) open(i int) bool {
	free := i
	for free < len(m.slots) && m.slots[free].after != 0 {
		free++
	}
	if free >= len(m.slots) {
		return false
	}
	copy(m.slots[i+1:free+1], m.slots[i:free])
	return true
}

// prefetch hears of keys that are about to be looked up. Their slots are all over the memory, so it has all of them
// brought near at once, where they are not waited for one by one.
func (m *keyMap) prefetch(keys []hashedKey) (sum uint32) {
	for i := range keys {
		sum += m.slots[m.home(keys[i].hash)].after
	}
	return sum
}

// hashedKey is what a round wants to know of a record.
type hashedKey struct {
	hash   keyHash
	number uint32
	kind   keyKind
}

// keyKind says what a record is.
type keyKind uint32

const (
	valueKind     keyKind = iota
	tombstoneKind         // without a value
	keylessKind           // without a key
	othersKind            // without a value, of a key that the map does not take
)

// keyShare is a share of the keys.
type keyShare struct{ low, high uint64 }

// appendHashes hashes the keys of records, which have numbers from number on. Of records whose keys are not in the
// share it tells with the first share only, and only what matters.
func (m *keyMap) appendHashes(dst []hashedKey, some []record.KeyedRecord, number int, share keyShare) []hashedKey {
	first := share.low == 0
	for i := range some {
		r := &some[i]
		k := hashedKey{hash: m.hash(r.Key), number: uint32(number + i)}
		takes := uint64(k.hash[1])-share.low < share.high-share.low
		switch {
		case r.Key == nil:
			takes, k.kind = first, keylessKind
		case r.Tombstone && takes:
			k.kind = tombstoneKind
		case r.Tombstone:
			takes, k.kind = first, othersKind
		}
		if takes {
			dst = append(dst, k)
		}
	}
	return dst
}
