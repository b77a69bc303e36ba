package controller_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/controller"
)

// TestPlacementSpreads checks on many shapes of cluster that leaders and replicas are spread evenly and
// that a partition is in as many racks as it can be.
func TestPlacementSpreads(t *testing.T) {
	for _, racks := range [][]int{{1}, {3}, {5}, {1, 1, 1}, {2, 2, 2}, {3, 2, 1}} {
		for factor := range 3 {
			brokers := 0
			for _, n := range racks {
				brokers += n
			}
			if factor+1 <= brokers {
				t.Run(fmt.Sprint(racks, " x", factor+1), func(t *testing.T) { checkPlacement(t, racks, brokers, factor+1) })
			}
		}
	}
}

func checkPlacement(t *testing.T, racks []int, brokers, factor int) {
	const rounds = 20
	c := newCluster(t, 0, nil)
	rackOf := make(map[int32]int)
	for rack, n := range racks {
		for range n {
			id := int32(len(rackOf) + 1)
			rackOf[id] = rack
			_, err := c.RegisterBroker(t.Context(), controller.Registration{
				ID: id, Incarnation: [16]byte{byte(id)}, Rack: fmt.Sprint("rack", rack), PreviousEpoch: -1,
			})
			require.NoError(t, err)
		}
	}
	c.mustCreate(t, newTopic("t", int32(brokers*rounds), int16(factor)))
	leads := make(map[int32]int)
	sets := make(map[string]bool)
	for _, p := range c.machine.Image().Topic("t").Partitions {
		leads[p.Leader]++
		in := make(map[int]bool)
		for _, id := range p.Replicas {
			in[rackOf[id]] = true
		}
		require.Len(t, in, min(factor, len(racks)), "racks of %v", p.Replicas)
		set := slices.Sorted(slices.Values(p.Replicas))
		require.Len(t, slices.Compact(slices.Clone(set)), factor)
		sets[fmt.Sprint(set)] = true
	}
	require.Len(t, leads, brokers)
	for id, n := range leads {
		require.Equal(t, rounds, n, "leaderships of broker %d", id)
	}
	if factor == 2 && len(racks) == 1 && brokers > 2 {
		require.Len(t, sets, brokers*(brokers-1)/2, "every pair of brokers shares a partition")
	}
}

func TestSmallTopicsStartAnywhere(t *testing.T) {
	c := newCluster(t, 3, nil)
	leads := make(map[int32]int)
	for i := range 60 {
		c.mustCreate(t, newTopic(fmt.Sprint("t", i), 1, 1))
		leads[c.machine.Image().Topic(fmt.Sprint("t", i)).Partitions[0].Leader]++
	}
	for id := range int32(3) {
		require.Greater(t, leads[id+1], 8, "one-partition topics led by broker %d", id+1)
	}
}

func TestNoBrokers(t *testing.T) {
	c := newCluster(t, 0, nil)
	answer := c.create(t, newTopic("t", 1, 1))[0]
	require.Equal(t, int16(38), answer.ErrorCode)
	require.Contains(t, *answer.ErrorMessage, "0 brokers")
}
