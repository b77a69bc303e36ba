package connect

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/client"
	"millrace/connect/store"
)

// crew is some herds that are members of one group, without a cluster: what they start and stop is up to the test.
type crew struct {
	herds      map[string]*herd
	outside    map[string]bool // herds that were put out of the group
	generation int32
}

func (c *crew) add(t *rapid.T, id string) {
	s, err := store.New(store.Options{Client: &client.Client{}})
	require.NoError(t, err)
	c.herds[id] = &herd{
		store: s, units: make(map[workID]*unit), since: make(map[workID]int32),
		member: &membership{woken: make(chan struct{}, 1)},
	}
}

// round is one rebalance of those that are in the group, and of those outside that join again.
func (c *crew) round(t *rapid.T, work []workID) {
	c.generation++
	var holders []holder
	claims := make(map[string][]held)
	for _, id := range slices.Sorted(maps.Keys(c.herds)) {
		if c.outside[id] && !rapid.Bool().Draw(t, "joins again") {
			continue
		}
		claims[id] = c.herds[id].claim(c.outside[id]).Owned
		holders = append(holders, holder{id, claims[id]})
		delete(c.outside, id)
	}
	for id, run := range assign(holders, work) {
		h := c.herds[id]
		h.begin(&tenure{share: share{Run: run}, claimed: claims[id], generation: c.generation})
		h.publish()
	}
}

// work has a herd start some of what it may, and end some of what it must. It says whether it joins again.
func (c *crew) work(t *rapid.T, h *herd) (again bool) {
	assigned := make(map[workID]bool)
	if h.tenure != nil {
		for _, id := range h.tenure.Run {
			assigned[id] = true
			if h.units[id] == nil && rapid.Bool().Draw(t, "starts") {
				h.units[id] = &unit{}
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(h.units), workID.compare) {
		if !assigned[id] && rapid.Bool().Draw(t, "ends") {
			delete(h.units, id)
		}
	}
	h.publish()
	h.ask(assigned)
	select {
	case <-h.member.woken:
		return true
	default:
		return false
	}
}

// settle has rounds go by until no herd waits for anything.
func (c *crew) settle(t *rapid.T, work []workID) {
	for again := true; again || len(c.outside) > 0; {
		c.round(t, work)
		require.Less(t, c.generation, int32(1000), "there is no end to it")
		again = false
		for waits := true; waits && !again; {
			waits = false
			for _, id := range slices.Sorted(maps.Keys(c.herds)) {
				again = c.work(t, c.herds[id]) || again
				waits = waits || c.herds[id].releasing
			}
		}
	}
}

// Whatever is started or not when a rebalance comes, and whoever is put out of the group meanwhile: when nobody waits
// for anything any more, all work is somebody's.
func TestNoWorkIsLeftToNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &crew{herds: make(map[string]*herd), outside: make(map[string]bool)}
		c.add(t, "w0")
		work := drawWork(t)
		for n := range rapid.IntRange(1, 8).Draw(t, "changes") {
			c.settle(t, work)
			c.check(t, work)
			ids := slices.Sorted(maps.Keys(c.herds))
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				c.add(t, fmt.Sprintf("w%d", n+1))
			case 1:
				if len(ids) > 1 {
					delete(c.herds, rapid.SampledFrom(ids).Draw(t, "gone"))
				}
			case 2:
				id := rapid.SampledFrom(ids).Draw(t, "put out")
				c.outside[id] = true
				c.herds[id].tenure = nil
				c.herds[id].publish()
			case 3:
				work = drawWork(t)
			}
		}
	})
}

func (c *crew) check(t *rapid.T, work []workID) {
	var runs []workID
	for _, h := range c.herds {
		if h.tenure != nil {
			runs = append(runs, h.tenure.Run...)
		}
	}
	require.ElementsMatch(t, work, runs)
}
