package group

import (
	"cmp"
	"slices"
)

// Names of the assignors, as members ask for them.
const (
	assignorUniform = "uniform"
	assignorRange   = "range"
)

// assignSpec is what an assignor works on. Equal specs give equal assignments.
type assignSpec struct {
	topics  []assignTopic  // by name
	members []assignMember // by id
}

// assignTopic is a topic that somebody subscribes to.
type assignTopic struct {
	name       string
	id         [16]byte
	partitions int32
}

// assignMember is a member, with the places of its topics in the spec, in rising order, and with what it has now.
type assignMember struct {
	id       string
	instance string // empty: not static
	topics   []int
	current  assignment
}

// nobody owns a partition that was not assigned.
const nobody int32 = -1

// placement is who owns each partition, by the places of topics and members in the spec.
type placement [][]int32

// assignorNamed is the assignor of a name, uniform where the name is not known.
func assignorNamed(name string) func(*assignSpec) placement {
	if name == assignorRange {
		return assignByRange
	}
	return assignUniformly
}

// empty is a placement in which nobody owns anything.
func (s *assignSpec) empty() placement {
	total := 0
	for i := range s.topics {
		total += int(s.topics[i].partitions)
	}
	all := make([]int32, total)
	for i := range all {
		all[i] = nobody
	}
	out := make(placement, len(s.topics))
	for i := range s.topics {
		n := int(s.topics[i].partitions)
		out[i], all = all[:n:n], all[n:]
	}
	return out
}

// assignments are the members' parts of a placement, by their places.
func (s *assignSpec) assignments(p placement) []assignment {
	byID := make([]int, len(s.topics))
	for i := range byID {
		byID[i] = i
	}
	slices.SortFunc(byID, func(a, b int) int {
		return compareTopics(topicPartitions{topicID: s.topics[a].id}, topicPartitions{topicID: s.topics[b].id})
	})
	out := make([]assignment, len(s.members))
	for _, t := range byID {
		id := s.topics[t].id
		for number, m := range p[t] {
			if m == nobody {
				continue
			}
			a := out[m]
			if len(a) == 0 || a[len(a)-1].topicID != id {
				a = append(a, topicPartitions{topicID: id})
			}
			a[len(a)-1].partitions = append(a[len(a)-1].partitions, int32(number))
			out[m] = a
		}
	}
	return out
}

// subscribers lists who subscribes to each topic, in the order of the members.
func (s *assignSpec) subscribers() [][]int32 {
	out := make([][]int32, len(s.topics))
	for m := range s.members {
		for _, t := range s.members[m].topics {
			out[t] = append(out[t], int32(m))
		}
	}
	return out
}

// assignByRange gives each member a block of neighbouring partitions of every topic, the first members one more where
// the number does not divide. So topics with equally many partitions and the same subscribers are assigned alike: who
// has partition 3 of one has partition 3 of all.
func assignByRange(s *assignSpec) placement {
	out := s.empty()
	for t, members := range s.subscribers() {
		if len(members) == 0 {
			continue
		}
		slices.SortStableFunc(members, func(a, b int32) int { return compareForRange(&s.members[a], &s.members[b]) })
		each, more := len(out[t])/len(members), len(out[t])%len(members)
		next := 0
		for i, m := range members {
			n := each
			if i < more {
				n++
			}
			for range n {
				out[t][next] = m
				next++
			}
		}
	}
	return out
}

// compareForRange orders members: static ones by their instance first, so that a restart moves nothing, then by id.
func compareForRange(a, b *assignMember) int {
	switch {
	case (a.instance == "") != (b.instance == ""):
		if a.instance != "" {
			return -1
		}
		return 1
	case a.instance != b.instance:
		return cmp.Compare(a.instance, b.instance)
	}
	return cmp.Compare(a.id, b.id)
}
