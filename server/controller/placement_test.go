package controller_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

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

// Brokers out of service get replicas only where there are too few others, and lead nothing; but a partition is in
// as many racks as it can be even so.
func TestPlacementAvoidsBrokersOutOfService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 5, controller.Config{})
		c.mustCreate(t, assigned("alone", []int32{0, 5}))
		fence := c.heartbeat(4)
		fence.WantFence = true
		c.send(t, fence)
		c.send(t, c.stopping(5))
		require.True(t, c.machine.Image().Broker(5).ShuttingDown)
		c.mustCreate(t, newTopic("three", 30, 3))
		for _, p := range c.machine.Image().Topic("three").Partitions {
			require.ElementsMatch(t, []int32{1, 2, 3}, p.Replicas)
		}
		c.mustCreate(t, newTopic("five", 30, 5))
		for _, p := range c.machine.Image().Topic("five").Partitions {
			require.ElementsMatch(t, []int32{1, 2, 3}, p.Replicas[:3])
			require.Equal(t, p.Replicas[0], p.Leader)
			require.Len(t, p.ISR, 3)
		}
		for _, id := range []int32{1, 2, 3} {
			fence := c.heartbeat(id)
			fence.WantFence = true
			c.send(t, fence)
		}
		answer := c.create(t, newTopic("none", 1, 1))[0]
		requireCode(t, kerr.InvalidReplicationFactor, answer.ErrorCode, answer.ErrorMessage)
	})
}

func TestRacksComeBeforeService(t *testing.T) {
	c := openCluster(t, nil, controller.Config{})
	for id, rack := range map[int32]string{1: "a", 2: "a", 3: "b", 4: "c"} {
		r := registration(id)
		r.Rack = &rack
		c.register(t, r)
		if id != 3 {
			c.beat(t, id)
		}
	}
	c.mustCreate(t, newTopic("two", 20, 2))
	for _, p := range c.machine.Image().Topic("two").Partitions {
		require.NotContains(t, p.Replicas, int32(3), "two racks have brokers in service")
		require.Contains(t, p.Replicas, int32(4), "not both in rack a")
	}
	c.mustCreate(t, newTopic("three", 20, 3))
	for _, p := range c.machine.Image().Topic("three").Partitions {
		require.Contains(t, p.Replicas, int32(3))
		require.Contains(t, p.Replicas, int32(4))
	}
}
