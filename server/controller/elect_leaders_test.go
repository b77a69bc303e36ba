package controller_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/controller"
)

func electRequest(kind int8, topic string, partitions ...int32) *kmsg.ElectLeadersRequest {
	r := kmsg.NewPtrElectLeadersRequest()
	r.ElectionType = kind
	if topic != "" {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		r.Topics = append(r.Topics, t)
	}
	return r
}

// electCodes sends a request and returns the codes by "topic/partition".
func electCodes(t testing.TB, to kmsg.Requestor, r *kmsg.ElectLeadersRequest) map[string]int16 {
	t.Helper()
	resp, err := r.RequestWith(t.Context(), to)
	require.NoError(t, err)
	require.Zero(t, resp.ErrorCode)
	codes := make(map[string]int16)
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			codes[fmt.Sprint(topic.Topic, "/", p.Partition)] = p.ErrorCode
		}
	}
	return codes
}

// restart takes a broker out of service and back, so that it leads nothing.
func (c *cluster) restart(t testing.TB, id int32) {
	t.Helper()
	fence := c.heartbeat(id)
	fence.WantFence = true
	c.send(t, fence)
	c.beat(t, id)
	require.True(t, c.machine.Image().Active(id))
}

// rejoin takes a broker back into the ISR of every partition of a topic.
func (c *cluster) rejoin(t testing.TB, topic string, id int32) {
	t.Helper()
	for i, p := range c.machine.Image().Topic(topic).Partitions {
		resp := c.sendAlter(t, c.alterPartitions(p.Leader, topic, c.wish(topic, i, append(inSync(p), id)...)))
		require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
	}
}

func TestPreferredElection(t *testing.T) {
	c := started(t, 3, controller.Config{})
	c.mustCreate(t, assigned("t", []int32{0, 2, 1}, []int32{1, 1, 2}))
	c.restart(t, 2)
	require.Equal(t, int32(1), c.partition("t", 0).Leader)
	require.Equal(t, map[string]int16{"t/0": 80, "t/1": 84, "t/5": 3, "none/0": 3}, func() map[string]int16 {
		r := electRequest(0, "t", 0, 1, 5)
		r.Topics = append(r.Topics, electRequest(0, "none", 0).Topics...)
		return electCodes(t, c, r)
	}(), "broker 2 is not in sync yet")
	c.rejoin(t, "t", 2)
	require.Equal(t, map[string]int16{"t/0": 0}, electCodes(t, c, electRequest(0, "")), "all that are needed")
	p := c.partition("t", 0)
	require.Equal(t, int32(2), p.Leader)
	require.Equal(t, map[string]int16{"t/0": 84}, electCodes(t, c, electRequest(0, "t", 0)))
	require.Empty(t, electCodes(t, c, electRequest(0, "")))
}

func TestUncleanElection(t *testing.T) {
	c := started(t, 3, controller.Config{})
	c.mustCreate(t, assigned("t", []int32{0, 2, 3}))
	c.mustCreate(t, assigned("u", []int32{0, 2}))
	fence := c.heartbeat(3)
	fence.WantFence = true
	c.send(t, fence)
	fence = c.heartbeat(2)
	fence.WantFence = true
	c.send(t, fence)
	c.beat(t, 3)
	require.Equal(t, int32(-1), c.partition("t", 0).Leader, "broker 3 left before broker 2")
	require.Equal(t, map[string]int16{"t/0": 0, "u/0": kerr.EligibleLeadersNotAvailable.Code},
		electCodes(t, c, electRequest(1, "")))
	p := c.partition("t", 0)
	require.Equal(t, int32(3), p.Leader)
	require.True(t, p.Recovering)
	require.Equal(t, map[string]int16{"t/0": 84}, electCodes(t, c, electRequest(1, "t", 0)))
}

func TestElectionIsRefused(t *testing.T) {
	c := started(t, 1, controller.Config{})
	c.mustCreate(t, newTopic("t", 1, 1))
	resp, err := electRequest(2, "t", 0).RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, kerr.InvalidRequest.Code, resp.ErrorCode)
	c.quorum.follower.Store(true)
	resp, err = electRequest(0, "t", 0).RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, kerr.NotController.Code, resp.ErrorCode)
}

func TestLeadersAreBalanced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, controller.Config{})
		c.mustCreate(t, assigned("t", []int32{0, 2, 1}, []int32{1, 2, 1}, []int32{2, 1, 2}))
		c.restart(t, 2)
		require.Equal(t, int32(1), c.partition("t", 0).Leader)
		c.rejoin(t, "t", 2)
		c.beatFor(t, 300*time.Second-time.Nanosecond, 1, 2)
		require.Equal(t, int32(1), c.partition("t", 0).Leader, "not before the interval is over")
		c.beatFor(t, 2*time.Second, 1, 2)
		require.Equal(t, int32(2), c.partition("t", 0).Leader)
		require.Equal(t, int32(2), c.partition("t", 1).Leader)
		require.Equal(t, int32(1), c.partition("t", 2).Leader)
	})
}

// A few leaderships elsewhere are not worth a move.
func TestBalanceAllowsSomeImbalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, controller.Config{})
		topic := assigned("t")
		for i := range int32(10) {
			topic.ReplicaAssignment = append(topic.ReplicaAssignment, assigned("", []int32{i, 2, 1}).ReplicaAssignment...)
		}
		c.mustCreate(t, topic)
		// One partition of ten goes to broker 1, by a resignation and a return.
		c.resign(t, 2, "t", 0)
		c.beatFor(t, 700*time.Second, 1, 2)
		require.Equal(t, int32(1), c.partition("t", 0).Leader, "10 percent are allowed")
		c.resign(t, 2, "t", 1)
		c.beatFor(t, 302*time.Second, 1, 2)
		require.Equal(t, int32(2), c.partition("t", 0).Leader)
		require.Equal(t, int32(2), c.partition("t", 1).Leader)
	})
}

func TestBalanceCanBeTurnedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t, map[string]string{"auto.leader.rebalance.enable": "false"}, controller.Config{})
		c.startBrokers(t, 2)
		c.mustCreate(t, assigned("t", []int32{0, 2, 1}))
		c.resign(t, 2, "t", 0)
		c.beatFor(t, 700*time.Second, 1, 2)
		require.Equal(t, int32(1), c.partition("t", 0).Leader)
	})
}

func TestBalanceMovesSoManyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, controller.Config{})
		topic := assigned("t")
		for i := range int32(1500) {
			topic.ReplicaAssignment = append(topic.ReplicaAssignment, assigned("", []int32{i, 2, 1}).ReplicaAssignment...)
		}
		c.mustCreate(t, topic)
		c.restart(t, 2)
		r := c.alterPartitions(1, "t")
		for i := range 1500 {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, c.wish("t", i, 1, 2))
		}
		c.sendAlter(t, r)
		ledBy2 := func() (n int) {
			for _, p := range c.machine.Image().Topic("t").Partitions {
				if p.Leader == 2 {
					n++
				}
			}
			return n
		}
		c.beatFor(t, 300*time.Second, 1, 2)
		synctest.Wait()
		require.Equal(t, 1000, ledBy2())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1500, ledBy2())
	})
}
