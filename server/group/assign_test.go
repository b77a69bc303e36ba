package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// specOf makes a spec of topics with so many partitions each, and of members that subscribe to all.
func specOf(members int, partitions ...int32) *assignSpec {
	s := &assignSpec{}
	for i, n := range partitions {
		s.topics = append(s.topics, assignTopic{
			name: fmt.Sprintf("t%03d", i), id: [16]byte{byte(255 - i), byte(i)}, partitions: n,
		})
	}
	all := make([]int, len(partitions))
	for i := range all {
		all[i] = i
	}
	for i := range members {
		s.members = append(s.members, assignMember{id: fmt.Sprintf("m%03d", i), topics: all})
	}
	return s
}

// again makes a spec in which members have what they were assigned.
func (s *assignSpec) again(parts []assignment) *assignSpec {
	next := &assignSpec{topics: s.topics, members: slices.Clone(s.members)}
	for i := range next.members {
		next.members[i].current = parts[i]
	}
	return next
}

func assign(s *assignSpec, name string) []assignment { return s.assignments(assignorNamed(name)(s)) }

// requireWhole checks that every partition that somebody subscribes to has one owner, who subscribes to it.
func requireWhole(t *testing.T, s *assignSpec, parts []assignment) {
	t.Helper()
	owners := make(map[partitionID]string)
	for m, part := range parts {
		require.True(t, part.equal(newAssignment(part)), "the assignment of %s is not in order", s.members[m].id)
		part.each(func(p partitionID) {
			require.Empty(t, owners[p], "two owners")
			owners[p] = s.members[m].id
			i := slices.IndexFunc(s.topics, func(topic assignTopic) bool { return topic.id == p.topicID })
			require.Contains(t, s.members[m].topics, i, "not subscribed")
			require.Less(t, p.partition, s.topics[i].partitions)
		})
	}
	for i, members := range s.subscribers() {
		for number := range s.topics[i].partitions {
			_, ok := owners[partitionID{s.topics[i].id, number}]
			require.Equal(t, len(members) > 0, ok, "partition %s/%d", s.topics[i].name, number)
		}
	}
}

// spread is the least and the most partitions that a member has.
func spread(parts []assignment) (least, most int) {
	least = parts[0].count()
	for _, p := range parts {
		least, most = min(least, p.count()), max(most, p.count())
	}
	return least, most
}

// moved counts the partitions that members have and had not.
func moved(before, after map[string]assignment) (n int) {
	for id, a := range after {
		n += a.minus(before[id]).count()
	}
	return n
}

func byMember(s *assignSpec, parts []assignment) map[string]assignment {
	out := make(map[string]assignment)
	for i := range s.members {
		out[s.members[i].id] = parts[i]
	}
	return out
}

func TestUniformMovesLittle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		var counts []int32
		for range 1 + rng.IntN(6) {
			counts = append(counts, int32(rng.IntN(12)))
		}
		s := specOf(1+rng.IntN(12), counts...)
		parts := assign(s, assignorUniform)
		for range 12 {
			requireWhole(t, s, parts)
			least, most := spread(parts)
			require.LessOrEqual(t, most-least, 1)
			s = s.again(parts)
			require.Equal(t, parts, assign(s, assignorUniform), "equal input moves nothing")

			before := byMember(s, parts)
			total := 0
			for _, p := range parts {
				total += p.count()
			}
			bound := total
			if rng.IntN(2) == 0 && len(s.members) > 1 {
				gone := rng.IntN(len(s.members))
				bound = parts[gone].count()
				s.members = slices.Delete(slices.Clone(s.members), gone, gone+1)
			} else {
				s.members = append(slices.Clone(s.members), assignMember{
					id: fmt.Sprintf("n%d", rng.Uint32()), topics: s.members[0].topics,
				})
				slices.SortFunc(s.members, func(a, b assignMember) int { return compareForRange(&a, &b) })
				bound = total/len(s.members) + 1
			}
			parts = assign(s, assignorUniform)
			require.LessOrEqual(t, moved(before, byMember(s, parts)), bound, "more moved than had to")
		}
	}
}

func TestUniformWithUnlikeSubscriptions(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		var counts []int32
		for range 2 + rng.IntN(8) {
			counts = append(counts, int32(rng.IntN(10)))
		}
		s := specOf(2+rng.IntN(10), counts...)
		for i := range s.members {
			s.members[i].topics = slices.DeleteFunc(slices.Clone(s.members[i].topics), func(int) bool {
				return rng.IntN(2) == 0
			})
		}
		parts := assign(s, assignorUniform)
		requireWhole(t, s, parts)
		// No single move makes it more even.
		for from, part := range parts {
			part.each(func(p partitionID) {
				i := slices.IndexFunc(s.topics, func(topic assignTopic) bool { return topic.id == p.topicID })
				for to := range parts {
					if slices.Contains(s.members[to].topics, i) {
						require.LessOrEqual(t, part.count(), parts[to].count()+1, "%d could give to %d", from, to)
					}
				}
			})
		}
		require.Equal(t, parts, assign(s.again(parts), assignorUniform), "equal input moves nothing")
	}
}

func TestUniformSpreadsEachTopic(t *testing.T) {
	s := specOf(4, 8, 8, 8)
	for _, part := range assign(s, assignorUniform) {
		for i := range s.topics {
			require.Len(t, part.of(s.topics[i].id), 2)
		}
	}
}

func TestAssignorsForgetWhatIsNoMore(t *testing.T) {
	s := specOf(2, 2)
	s.members[0].current = assignment{
		{topicID: [16]byte{9, 9}, partitions: []int32{0}}, {topicID: s.topics[0].id, partitions: []int32{0, 1, 7}},
	}
	s.members[1].current = assignment{{topicID: s.topics[0].id, partitions: []int32{1}}}
	for _, name := range []string{assignorUniform, assignorRange} {
		requireWhole(t, s, assign(s, name))
	}
	require.Empty(t, assign(specOf(0, 3), assignorUniform))
	require.Empty(t, assign(specOf(0, 3), assignorRange))
}

func TestRangeAssignsBlocksAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		n := int32(1 + rng.IntN(20))
		s := specOf(1+rng.IntN(8), n, n, n)
		for i := range s.members {
			if rng.IntN(3) == 0 {
				s.members[i].instance = fmt.Sprintf("i%d", rng.IntN(1000))
			}
		}
		parts := assign(s, assignorRange)
		requireWhole(t, s, parts)
		for _, part := range parts {
			first := part.of(s.topics[0].id)
			for i := range s.topics {
				require.Equal(t, first, part.of(s.topics[i].id), "the same numbers of topics that are alike")
			}
			for i := 1; i < len(first); i++ {
				require.Equal(t, first[i-1]+1, first[i], "a block")
			}
		}
		least, most := spread(parts)
		require.LessOrEqual(t, most-least, 3, "one for each topic")
		require.Equal(t, parts, assign(s.again(parts), assignorRange))
	}
}

func TestRangeOrdersStaticMembersFirst(t *testing.T) {
	s := specOf(3, 5)
	s.members[2].instance = "z"
	parts := assign(s, assignorRange)
	id := s.topics[0].id
	require.Equal(t, []int32{0, 1}, parts[2].of(id))
	require.Equal(t, []int32{2, 3}, parts[0].of(id))
	require.Equal(t, []int32{4}, parts[1].of(id))
}

func TestAssignorsAreFast(t *testing.T) {
	s := specOf(50, 200)
	parts := assign(s, assignorUniform)
	fastest := time.Hour // the machine may do other things meanwhile
	for range 100 {
		start := time.Now()
		parts = assign(s.again(parts), assignorUniform)
		assign(s, assignorRange)
		fastest = min(fastest, time.Since(start))
	}
	require.Less(t, fastest, 50*time.Millisecond, "an assignment of 200 partitions to 50 members by each")
	require.Equal(t, 4, parts[0].count())
}

func BenchmarkAssignUniform(b *testing.B) {
	for _, size := range []struct{ members, partitions int }{{50, 200}, {1000, 10_000}} {
		b.Run(fmt.Sprintf("%dx%d", size.members, size.partitions), func(b *testing.B) {
			s := specOf(size.members, int32(size.partitions))
			s = s.again(assign(s, assignorUniform))
			gone := slices.Clone(s.members[1:])
			b.ReportAllocs()
			for b.Loop() {
				assign(&assignSpec{topics: s.topics, members: gone}, assignorUniform)
			}
		})
	}
}

func TestAssignmentSets(t *testing.T) {
	x, y := [16]byte{1}, [16]byte{2}
	a := newAssignment([]topicPartitions{{y, []int32{3, 1, 1}}, {x, nil}, {x, []int32{2}}, {x, []int32{0, 2}}})
	require.Equal(t, assignment{{x, []int32{0, 2}}, {y, []int32{1, 3}}}, a)
	b := assignment{{x, []int32{2, 5}}}
	require.Equal(t, assignment{{x, []int32{2}}}, a.and(b))
	require.Equal(t, assignment{{x, []int32{0}}, {y, []int32{1, 3}}}, a.minus(b))
	require.Equal(t, assignment{{x, []int32{0, 2, 5}}, {y, []int32{1, 3}}}, a.plus(b))
	require.Equal(t, 4, a.count())
	require.True(t, a.has(partitionID{y, 3}))
	require.False(t, a.has(partitionID{y, 2}))
	require.Nil(t, owned(nil))
}
