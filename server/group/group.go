package group

import (
	"slices"

	"millrace/server/coordinator"
)

// topicPartition names a partition of a topic.
type topicPartition struct {
	topic     string
	partition int32
}

// committed is an offset that a group committed.
type committed struct {
	offset      int64
	leaderEpoch int32 // -1: not given
	metadata    string
	// commitTimestamp is when it was committed; expireTimestamp when it expires, -1 for by the rules.
	commitTimestamp int64
	expireTimestamp int64
	// recordOffset is where the record of it lies in the log: of two commits the one with the higher counts.
	recordOffset int64
	// topicID is the topic's of that name when it was committed here; zero for what was read from the log, which does
	// not tell.
	topicID [16]byte
}

// group is one consumer group of a shard. It belongs to the shard's loop.
//
// Invariant: at most one of classic and consumer is set. A group with neither keeps offsets alone, for clients that
// assign partitions to themselves, and exists as long as it has some.
type group struct {
	id    string
	shard *shard

	classic  *classic  // a group of the classic protocol, also when it has no members any more
	consumer *consumer // a group of the consumer protocol (KIP-848), likewise

	// offsets holds what was committed, by topic and partition; no topic without partitions.
	offsets map[string]map[int32]*committed
	count   int // of offsets
	// pending names the producers with an open transaction that holds a commit for the partition.
	pending map[topicPartition][]int64
}

// Names of states and types that are not of one protocol alone.
const (
	stateEmpty  = "Empty"
	stateStable = "Stable"
	stateDead   = "Dead"

	typeClassic  = "classic"
	typeConsumer = "consumer"
)

// offset is what the group committed for a partition, or nil.
func (g *group) offset(topic string, partition int32) *committed { return g.offsets[topic][partition] }

// put takes up a commit, unless the group has one that lies further up in the log.
func (g *group) put(topic string, partition int32, o committed) {
	of := g.offsets[topic]
	if of == nil {
		of = make(map[int32]*committed, 1)
		g.offsets[topic] = of
	}
	have := of[partition]
	if have == nil {
		of[partition] = &o
		g.count++
		g.shard.offsets++
		return
	}
	if have.recordOffset <= o.recordOffset {
		*have = o
	}
}

// remove takes up the tombstone of a commit; pending ones of the partition go with it.
func (g *group) remove(topic string, partition int32) {
	tp := topicPartition{topic, partition}
	for _, producer := range g.pending[tp] {
		if txn := g.shard.pending[producer]; txn != nil {
			txn.drop(groupPartition{g, tp})
			if len(txn.offsets) == 0 {
				delete(g.shard.pending, producer)
			}
		}
	}
	delete(g.pending, tp)
	of := g.offsets[topic]
	if of[partition] == nil {
		return
	}
	delete(of, partition)
	g.count--
	g.shard.offsets--
	if len(of) == 0 {
		delete(g.offsets, topic)
	}
}

// await notes that a producer's open transaction holds a commit for the partition.
func (g *group) await(tp topicPartition, producer int64) {
	if !slices.Contains(g.pending[tp], producer) {
		g.pending[tp] = append(g.pending[tp], producer)
	}
}

// settle is the reverse of await.
func (g *group) settle(tp topicPartition, producer int64) {
	left := slices.DeleteFunc(g.pending[tp], func(p int64) bool { return p == producer })
	if len(left) == 0 {
		delete(g.pending, tp)
		return
	}
	g.pending[tp] = left
}

// unstable says whether an open transaction may change what is committed for the partition.
func (g *group) unstable(topic string, partition int32) bool {
	return len(g.pending) > 0 && len(g.pending[topicPartition{topic, partition}]) > 0
}

// empty says whether the group has no members.
func (g *group) empty() bool {
	switch {
	case g.classic != nil:
		return g.classic.empty()
	case g.consumer != nil:
		return g.consumer.empty()
	}
	return true
}

// bare says whether nothing is left of the group.
func (g *group) bare() bool {
	return g.classic == nil && g.consumer == nil && g.count == 0 && len(g.pending) == 0
}

// state is what the group is called to be in.
func (g *group) state() string {
	switch {
	case g.classic != nil:
		return g.classic.state()
	case g.consumer != nil:
		return g.consumer.state()
	}
	return stateEmpty
}

// kind is the type by which the group is listed.
func (g *group) kind() string {
	if g.consumer != nil {
		return typeConsumer
	}
	return typeClassic
}

// protocolType is what the members have in common; empty where there were none.
func (g *group) protocolType() string {
	switch {
	case g.classic != nil:
		return g.classic.protocolType()
	case g.consumer != nil:
		return typeConsumer
	}
	return ""
}

// tombstones ends the group itself, without its offsets.
func (g *group) tombstones() []coordinator.KV {
	switch {
	case g.classic != nil:
		return []coordinator.KV{{Key: groupKey(kindGroupMetadata, g.id)}}
	case g.consumer != nil:
		return g.consumer.tombstones()
	}
	return nil
}
