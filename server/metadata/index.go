package metadata

import (
	"maps"
	"slices"
	"strings"

	"millrace/internal/invariant"
)

const shardCount = 64

// topicIndex finds topics by name and by id and lists them by name. It is a value: a changed index
// shares the shards that stayed the same, so that one more topic among ten thousand costs the copy
// of one shard and of the list of pointers, not of the whole map.
//
// The names map is keyed by the folded name, so a lookup also finds the topic that a name collides
// with.
type topicIndex struct {
	names  [shardCount]map[string]*Topic
	ids    [shardCount]map[[16]byte]*Topic
	sorted []*Topic // by Name
}

func nameShard[T string | []byte](folded T) int {
	h := uint32(2166136261)
	for i := range len(folded) {
		h = (h ^ uint32(folded[i])) * 16777619
	}
	return int(h>>16^h) % shardCount
}

func idShard(id [16]byte) int { return int(id[15]^id[0]) % shardCount }

// clash returns the topic whose name folds to the same text as name, or nil.
func (x *topicIndex) clash(name string) *Topic {
	var buf [MaxTopicName]byte
	if len(name) > len(buf) {
		return nil
	}
	folded := appendFolded(buf[:0], name)
	return x.names[nameShard(folded)][string(folded)]
}

func (x *topicIndex) get(name string) *Topic {
	if t := x.clash(name); t != nil && t.Name == name {
		return t
	}
	return nil
}

func (x *topicIndex) getID(id [16]byte) *Topic { return x.ids[idShard(id)][id] }

// indexEditor collects changes to an index and makes a new one of them. The index it started from
// stays as it was; each shard and the list are copied at most once.
type indexEditor struct {
	topicIndex
	ownNames, ownIDs [shardCount]bool
	edits            map[string]*Topic // by name; nil is a removed topic
	count            int               // of topics
}

func editIndex(x topicIndex) indexEditor { return indexEditor{topicIndex: x, count: len(x.sorted)} }

// put adds a topic whose name and id are both new.
func (e *indexEditor) put(t *Topic) {
	invariant.Check(e.clash(t.Name) == nil && e.getID(t.ID) == nil, "topic %s is there already", t.Name)
	e.set(t)
	e.count++
}

// replace puts now in the place of old; the two have the same name and id.
func (e *indexEditor) replace(old, now *Topic) {
	invariant.Check(old.Name == now.Name && old.ID == now.ID, "topic %s replaced by %s", old.Name, now.Name)
	e.set(now)
}

func (e *indexEditor) remove(t *Topic) {
	folded := fold(t.Name)
	n, d := e.own(folded, t.ID)
	delete(e.names[n], folded)
	delete(e.ids[d], t.ID)
	e.edit(t.Name, nil)
	e.count--
}

func (e *indexEditor) set(t *Topic) {
	folded := fold(t.Name)
	n, d := e.own(folded, t.ID)
	e.names[n][folded] = t
	e.ids[d][t.ID] = t
	e.edit(t.Name, t)
}

func (e *indexEditor) edit(name string, t *Topic) {
	if e.edits == nil {
		e.edits = make(map[string]*Topic)
	}
	e.edits[name] = t
}

// own copies the two shards unless that was done before, and says which they are.
func (e *indexEditor) own(folded string, id [16]byte) (n, d int) {
	n, d = nameShard(folded), idShard(id)
	if !e.ownNames[n] {
		e.names[n], e.ownNames[n] = cloneMap(e.names[n]), true
	}
	if !e.ownIDs[d] {
		e.ids[d], e.ownIDs[d] = cloneMap(e.ids[d]), true
	}
	return n, d
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return make(map[K]V)
	}
	return maps.Clone(m)
}

// done returns the changed index. The editor is of no further use.
func (e *indexEditor) done() topicIndex {
	if len(e.edits) == 0 {
		return e.topicIndex
	}
	rest := e.sorted
	merged := make([]*Topic, 0, len(rest)+len(e.edits))
	for _, name := range slices.Sorted(maps.Keys(e.edits)) {
		i, found := slices.BinarySearchFunc(rest, name, func(t *Topic, name string) int {
			return strings.Compare(t.Name, name)
		})
		merged = append(merged, rest[:i]...)
		if t := e.edits[name]; t != nil {
			merged = append(merged, t)
		}
		if found {
			i++
		}
		rest = rest[i:]
	}
	e.sorted = append(merged, rest...)
	return e.topicIndex
}
