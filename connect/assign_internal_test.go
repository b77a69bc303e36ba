package connect

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// cluster is some workers and what they run, for properties of the assignment.
type cluster struct {
	owned map[string][]workID
}

func (c *cluster) holders() (out []holder) {
	for id, owned := range c.owned {
		h := holder{ID: id}
		for _, o := range owned {
			h.Owned = append(h.Owned, held{o, 1})
		}
		out = append(out, h)
	}
	return out
}

// settle has rounds go by until nothing changes, and says how many it took.
func (c *cluster) settle(t *rapid.T, work []workID) (rounds int) {
	for rounds = 1; ; rounds++ {
		before := c.owned
		c.round(t, work)
		if maps.EqualFunc(before, c.owned, sameWork) {
			return rounds - 1
		}
		require.Less(t, rounds, 5)
	}
}

func sameWork(a, b []workID) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, workID.compare)
	slices.SortFunc(b, workID.compare)
	return slices.Equal(a, b)
}

// round is one rebalance: it checks what must hold in each.
func (c *cluster) round(t *rapid.T, work []workID) {
	out := assign(c.holders(), work)
	require.Len(t, out, len(c.owned))
	has := make(map[workID]string)
	for worker, run := range out {
		for _, id := range run {
			require.Contains(t, work, id)
			require.NotContains(t, has, id, "it is given to two")
			has[id] = worker
		}
	}
	for worker, owned := range c.owned {
		for _, id := range owned {
			if other, given := has[id]; given {
				require.Equal(t, worker, other, "%v is given away while it runs", id)
			}
		}
	}
	owners := make(map[workID]int)
	for _, owned := range c.owned {
		for _, id := range owned {
			owners[id]++
		}
	}
	for _, id := range work {
		if owners[id] == 0 {
			require.Contains(t, has, id, "lost work waits")
		}
	}
	c.owned = out
}

func (c *cluster) checkStable(t *rapid.T, work []workID) {
	count := make(map[workID]int)
	for _, owned := range c.owned {
		for _, id := range owned {
			count[id]++
		}
	}
	require.Len(t, count, len(work))
	for id, n := range count {
		require.Equal(t, 1, n, "%v", id)
	}
	for _, object := range []bool{true, false} {
		low, high := 1<<30, 0
		for _, owned := range c.owned {
			n := 0
			for _, id := range owned {
				if (id.Task == connectorObject) == object {
					n++
				}
			}
			low, high = min(low, n), max(high, n)
		}
		require.LessOrEqual(t, high-low, 1)
	}
}

func drawWork(t *rapid.T) (work []workID) {
	for i := range rapid.IntRange(0, 6).Draw(t, "connectors") {
		for task := range rapid.IntRange(0, 7).Draw(t, "tasks") + 1 {
			work = append(work, workID{fmt.Sprintf("c%d", i), task - 1})
		}
	}
	return work
}

func TestAssignmentSettlesBalancedAndWithinTwoRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{owned: make(map[string][]workID)}
		for i := range rapid.IntRange(1, 5).Draw(t, "workers") {
			c.owned[fmt.Sprintf("w%d", i)] = nil
		}
		work := drawWork(t)
		c.settle(t, work)
		c.checkStable(t, work)
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			switch ids := slices.Sorted(maps.Keys(c.owned)); rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				c.owned[fmt.Sprintf("x%d", rapid.IntRange(0, 9).Draw(t, "new"))] = nil
			case 1:
				if len(ids) > 1 {
					delete(c.owned, rapid.SampledFrom(ids).Draw(t, "gone"))
				}
			case 2:
				work = drawWork(t)
			}
			require.LessOrEqual(t, c.settle(t, work), 2)
			c.checkStable(t, work)
		}
	})
}

func TestAssignmentTakesWhatRunsTwiceFromBoth(t *testing.T) {
	twice := workID{"c", 0}
	out := assign([]holder{{"a", []held{{twice, 2}}}, {"b", []held{{twice, 2}, {twice, 2}}}}, []workID{twice})
	require.Empty(t, out["a"])
	require.Empty(t, out["b"])
	out = assign([]holder{{ID: "a"}, {ID: "b"}}, []workID{twice})
	require.Len(t, slices.Concat(out["a"], out["b"]), 1)
	out = assign([]holder{{"a", []held{{twice, 2}, {twice, 2}}}}, []workID{twice})
	require.Equal(t, []workID{twice}, out["a"], "one that says it twice is one")
}

// A worker that was put out of the group and is slow to stop what it ran does not take it from the one that has it by
// now.
func TestAssignmentLeavesWorkWithWhoWasAssignedItLast(t *testing.T) {
	first, second := workID{"c", 0}, workID{"c", 1}
	out := assign([]holder{
		{"a", []held{{first, 3}, {second, 3}}}, {"b", []held{{first, 5}}}, {"d", []held{{first, 4}, {second, 3}}},
	}, []workID{first, second})
	require.Equal(t, []workID{first}, out["b"])
	require.Empty(t, out["a"])
	require.Empty(t, out["d"])
}

// When a worker comes, what it does not get stays; when one goes, only what it had moves.
func TestAssignmentMovesNothingWithoutNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{owned: map[string][]workID{"a": nil, "b": nil, "d": nil}}
		work := drawWork(t)
		c.settle(t, work)
		before := maps.Clone(c.owned)
		c.owned["e"] = nil
		c.settle(t, work)
		for worker, owned := range c.owned {
			if worker == "e" {
				continue
			}
			for _, id := range owned {
				require.Contains(t, before[worker], id, "it moved between those that were there")
			}
		}
		before = maps.Clone(c.owned)
		lost := c.owned["a"]
		delete(c.owned, "a")
		require.LessOrEqual(t, c.settle(t, work), 2)
		moved := 0
		for worker, owned := range c.owned {
			for _, id := range owned {
				if !slices.Contains(before[worker], id) {
					moved++
				}
			}
		}
		require.Equal(t, len(lost), moved)
	})
}

func TestAssignmentDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		work := drawWork(t)
		holders := []holder{{ID: "a"}, {ID: "b"}, {ID: "d"}}
		for _, id := range work {
			if i := rapid.IntRange(0, 3).Draw(t, "owner"); i < 3 {
				generation := rapid.Int32Range(1, 3).Draw(t, "generation")
				holders[i].Owned = append(holders[i].Owned, held{id, generation})
			}
		}
		want := assign(holders, work)
		require.Equal(t, want, assign(rapid.Permutation(holders).Draw(t, "holders"),
			rapid.Permutation(work).Draw(t, "work")))
	})
}
