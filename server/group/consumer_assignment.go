package group

import (
	"bytes"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// assignment is a set of partitions as records hold it. It never changes.
//
// Invariant: the topics are in the order of their ids, each once and with at least one partition, and so are the
// partitions of each.
type assignment []topicPartitions

// partitionID names a partition by the id of its topic.
type partitionID struct {
	topicID   [16]byte
	partition int32
}

// newAssignment makes a set of lists in any order.
func newAssignment(lists []topicPartitions) assignment {
	a := make(assignment, 0, len(lists))
	for _, l := range lists {
		if len(l.partitions) > 0 {
			numbers := slices.Sorted(slices.Values(l.partitions))
			a = append(a, topicPartitions{l.topicID, slices.Compact(numbers)})
		}
	}
	slices.SortStableFunc(a, compareTopics)
	out := a[:0]
	for _, l := range a {
		if n := len(out); n > 0 && out[n-1].topicID == l.topicID {
			out[n-1].partitions = union(out[n-1].partitions, l.partitions)
			continue
		}
		out = append(out, l)
	}
	return out
}

func compareTopics(a, b topicPartitions) int { return bytes.Compare(a.topicID[:], b.topicID[:]) }

// owned is the set that a member reports, nil when it reports none.
func owned(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) *assignment {
	if topics == nil {
		return nil
	}
	lists := make([]topicPartitions, len(topics))
	for i := range topics {
		lists[i] = topicPartitions{topics[i].TopicID, topics[i].Partitions}
	}
	a := newAssignment(lists)
	return &a
}

// count is the number of partitions.
func (a assignment) count() (n int) {
	for i := range a {
		n += len(a[i].partitions)
	}
	return n
}

// of is the partitions of a topic.
func (a assignment) of(topicID [16]byte) []int32 {
	i, ok := slices.BinarySearchFunc(a, topicPartitions{topicID: topicID}, compareTopics)
	if !ok {
		return nil
	}
	return a[i].partitions
}

func (a assignment) equal(b assignment) bool {
	return slices.EqualFunc(a, b, func(x, y topicPartitions) bool {
		return x.topicID == y.topicID && slices.Equal(x.partitions, y.partitions)
	})
}

// each calls fn for every partition.
func (a assignment) each(fn func(partitionID)) {
	for i := range a {
		for _, p := range a[i].partitions {
			fn(partitionID{a[i].topicID, p})
		}
	}
}

// only keeps the partitions that fn accepts.
func (a assignment) only(fn func(partitionID) bool) assignment {
	var out assignment
	for i := range a {
		var kept []int32
		for _, p := range a[i].partitions {
			if fn(partitionID{a[i].topicID, p}) {
				kept = append(kept, p)
			}
		}
		if kept != nil {
			out = append(out, topicPartitions{a[i].topicID, kept})
		}
	}
	return out
}

func (a assignment) has(p partitionID) bool {
	_, ok := slices.BinarySearch(a.of(p.topicID), p.partition)
	return ok
}

// and is what both sets have.
func (a assignment) and(b assignment) assignment { return a.only(b.has) }

// minus is what a has and b has not.
func (a assignment) minus(b assignment) assignment {
	return a.only(func(p partitionID) bool { return !b.has(p) })
}

// plus is what either set has.
func (a assignment) plus(b assignment) assignment {
	switch {
	case len(b) == 0:
		return a
	case len(a) == 0:
		return b
	}
	return newAssignment(slices.Concat(a, b))
}

// union merges two sorted lists.
func union(a, b []int32) []int32 {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
