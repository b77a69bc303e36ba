package native

import (
	"container/list"
	"hash/maphash"
	"sync"
)

// Bounds of the indexes of keys.
const (
	defaultKeyBytes = 64 << 20 // of all indexes of a node
	keyIndexBytes   = 1 << 10  // of an index without its entries, roughly
	keyEntryBytes   = 48       // of an entry in a map that has grown, roughly
)

// keyIndexID names an index: of all keys of a partition, or of a single one.
type keyIndexID struct {
	topic     [16]byte
	name      string // of the topic, for a cluster whose topics have no ids
	partition int32
	single    bool
	key       string // of a single key
}

// bytes is the size of an index without entries.
func (id *keyIndexID) bytes() int64 { return keyIndexBytes + int64(len(id.key)+len(id.name)) }

// keyTable holds the indexes of keys of a node, within a bound on their memory: the ones that were not used for the
// longest time make room. It is safe for concurrent use.
type keyTable struct {
	most  int64
	seeds [2]maphash.Seed

	mu      sync.Mutex
	bytes   int64                        // of all indexes; guarded by mu
	indexes map[keyIndexID]*list.Element // guarded by mu
	used    *list.List                   // of *keyIndex, the last used first; guarded by mu
}

func newKeyTable(most int64) *keyTable {
	if most <= 0 {
		most = defaultKeyBytes
	}
	return &keyTable{
		most: most, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		indexes: map[keyIndexID]*list.Element{}, used: list.New(),
	}
}

// keyDigest stands for a key in an index.
type keyDigest [2]uint64

// digest hashes a key with seeds of the table's own, so that nobody can choose two keys with one digest.
func (t *keyTable) digest(key []byte) keyDigest {
	return keyDigest{maphash.Bytes(t.seeds[0], key), maphash.Bytes(t.seeds[1], key)}
}

// open lends an index, until close. A new one holds nothing yet.
func (t *keyTable) open(id keyIndexID) *keyIndex {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.indexes[id]
	if e == nil {
		e = t.used.PushFront(newKeyIndex(t, id))
		t.indexes[id] = e
		t.bytes += id.bytes()
	}
	t.used.MoveToFront(e)
	x := e.Value.(*keyIndex)
	x.users++
	t.shrinkLocked()
	return x
}

func (t *keyTable) close(x *keyIndex) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x.users--
	t.shrinkLocked()
}

// resize notes how large an index is now. It is false when there is no room for that.
func (t *keyTable) resize(x *keyIndex, bytes int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += bytes - x.bytes
	x.bytes = bytes
	t.shrinkLocked()
	return t.bytes <= t.most
}

// tooLarge says of an index that it leaves the others too little. One has half of all.
func (t *keyTable) tooLarge(bytes int64) bool { return bytes > t.most/2 }

// shrinkLocked drops indexes that nobody uses, as long as there is too much.
func (t *keyTable) shrinkLocked() {
	for e := t.used.Back(); e != nil && t.bytes > t.most; {
		x, before := e.Value.(*keyIndex), e.Prev()
		if x.users == 0 {
			t.used.Remove(e)
			delete(t.indexes, x.id)
			t.bytes -= x.bytes
		}
		e = before
	}
}
