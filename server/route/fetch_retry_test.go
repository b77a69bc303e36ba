package route_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// fetch reads all three partitions of r and renders each partition's bytes, or its error.
func (c *moving) fetch(ctx context.Context, rack string, minBytes int32, wait time.Duration, partitions ...int32) (
	string, time.Duration,
) {
	if partitions == nil {
		partitions = []int32{0, 1, 2}
	}
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxWaitMillis, req.MaxBytes, req.Rack = minBytes, int32(wait.Milliseconds()), 3000, rack
	req.Topics = []kmsg.FetchRequestTopic{{Topic: "r", TopicID: topicID(7)}}
	for _, p := range partitions {
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition = p
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, part)
	}
	start := time.Now()
	resp, err := req.RequestWith(ctx, c.router)
	require.NoError(c.t, err)
	require.Equal(c.t, "r", resp.Topics[0].Topic)
	out := ""
	for i, p := range resp.Topics[0].Partitions {
		require.Equal(c.t, partitions[i], p.Partition)
		if err := kerr.TypedErrorForCode(p.ErrorCode); err != nil {
			out += err.Message + " "
			continue
		}
		out += fmt.Sprint(len(p.RecordBatches), " ")
	}
	return out, time.Since(start)
}

// with makes a node answer with an error for some partitions as long as bad says so.
func with(n *fetchNode, bad func() bool, code int16, partitions ...int32) requestor {
	return func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		if !bad() {
			return n.answer(ctx, r)
		}
		now := *r.(*kmsg.FetchRequest)
		now.MaxWaitMillis = 0
		resp, err := n.answer(ctx, &now)
		if err != nil {
			return nil, err
		}
		parts := resp.(*kmsg.FetchResponse).Topics[0].Partitions
		for i := range parts {
			for _, p := range partitions {
				if parts[i].Partition == p {
					parts[i].ErrorCode, parts[i].RecordBatches = code, nil
				}
			}
		}
		return resp, nil
	}
}

func until(d time.Duration) func() bool {
	start := time.Now()
	return func() bool { return time.Since(start) < d }
}

func TestFetchWhileALeaderFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		n1, n3 := newFetchNode(10), newFetchNode(10)
		c.nodes[1], c.nodes[2], c.nodes[3] = n1.answer, refuses, n3.answer
		got, took := c.fetch(t.Context(), "", 1, time.Minute)
		require.Equal(t, "10 LEADER_NOT_AVAILABLE 10 ", got, "there is enough without it")
		require.Zero(t, took)

		got, took = c.fetch(t.Context(), "", 1, 0, 1)
		require.Equal(t, "LEADER_NOT_AVAILABLE ", got)
		require.InDelta(t, 15*time.Second, took, float64(time.Second), "alone it is waited for, whatever the wait")

		// The others have nothing: it is waited for, and they still deliver at once.
		n1.size, n3.size = 0, 0
		time.AfterFunc(3*time.Second, func() { n3.grow(7) })
		got, took = c.fetch(t.Context(), "", 1, 0)
		require.Equal(t, "0 LEADER_NOT_AVAILABLE 7 ", got)
		require.Equal(t, 3*time.Second, took)

		// A new leader answers for it.
		n3.size = 0
		time.AfterFunc(2*time.Second, func() {
			n3.grow(5)
			c.put(2, metadata.BrokerFenced)
		})
		got, took = c.fetch(t.Context(), "", 1, time.Minute, 1)
		require.Equal(t, "5 ", got)
		require.Equal(t, 2*time.Second, took)
	})
}

// A frozen node is passed over a moment after the others have enough, and waited for no longer than it leads.
func TestFetchFromAFrozenLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		n1, n3 := newFetchNode(10), newFetchNode(10)
		c.nodes[1], c.nodes[2], c.nodes[3] = n1.answer, frozen, n3.answer
		got, took := c.fetch(t.Context(), "", 1, time.Minute)
		require.Equal(t, "10 LEADER_NOT_AVAILABLE 10 ", got)
		require.Equal(t, 250*time.Millisecond, took)

		time.AfterFunc(9*time.Second, func() { c.put(2, metadata.BrokerFenced) })
		got, took = c.fetch(t.Context(), "", 1, time.Minute, 1)
		require.Equal(t, "10 ", got)
		require.InDelta(t, 9*time.Second, took, float64(300*time.Millisecond))
	})
}

// A single leader may answer for some partitions and not for others.
func TestFetchWithErrorsOfPartitions(t *testing.T) {
	for _, code := range []int16{
		kerr.NotLeaderForPartition.Code, kerr.OffsetNotAvailable.Code, kerr.UnknownLeaderEpoch.Code,
		kerr.UnknownTopicID.Code, kerr.LeaderNotAvailable.Code,
	} {
		t.Run(kerr.TypedErrorForCode(code).Message, func(t *testing.T) {
			for _, id := range []int32{1, 2} { // here and elsewhere
				synctest.Test(t, func(t *testing.T) {
					c := newMoving(t)
					n := newFetchNode(0)
					c.nodes[id] = with(n, until(2*time.Second), code, id-1)
					time.AfterFunc(4*time.Second, func() { n.grow(8) })
					got, took := c.fetch(t.Context(), "", 1, 10*time.Second, id-1)
					require.Equal(t, "8 ", got)
					require.Equal(t, 4*time.Second, took)
				})
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[2] = with(newFetchNode(0), until(time.Hour), kerr.OffsetOutOfRange.Code, 1)
		got, took := c.fetch(t.Context(), "", 1, 10*time.Second, 1)
		require.Equal(t, "OFFSET_OUT_OF_RANGE ", got)
		require.Zero(t, took, "what will not pass is told at once")
	})
}

// An idle long poll ends in time, also where nodes of others are asked.
func TestIdleFetchEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		for id := int32(1); id <= 3; id++ {
			c.nodes[id] = newFetchNode(0).answer
		}
		got, took := c.fetch(t.Context(), "", 1, 5*time.Second)
		require.Equal(t, "0 0 0 ", got)
		require.Equal(t, 5*time.Second, took)
		require.LessOrEqual(t, c.count(2), 2)
		got, took = c.fetch(t.Context(), "", 1, 5*time.Second, 1)
		require.Equal(t, "0 ", got)
		require.Equal(t, 5*time.Second, took)
		require.LessOrEqual(t, c.count(2), 3)
		_, took = c.fetch(t.Context(), "", 1, 0)
		require.Zero(t, took)
	})
}

func TestFetchInARack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		for id := int32(1); id <= 3; id++ {
			c.nodes[id] = newFetchNode(int(id)).answer
		}
		got, _ := c.fetch(t.Context(), "a", 1, 0)
		require.Equal(t, "1 1 1 ", got, "this node is in the rack")
		got, _ = c.fetch(t.Context(), "b", 1, 0)
		require.Equal(t, "3 3 3 ", got)
		got, _ = c.fetch(t.Context(), "c", 1, 0)
		require.Equal(t, "1 2 3 ", got, "nobody is in the rack: the leaders")
		require.Equal(t, 1, c.count(2))

		// A follower that cannot answer leaves it to the leader, at once.
		for _, code := range []int16{kerr.OffsetOutOfRange.Code, kerr.NotLeaderForPartition.Code} {
			c.nodes[3] = with(newFetchNode(3), until(time.Hour), code, 0, 1)
			got, took := c.fetch(t.Context(), "b", 6, time.Millisecond)
			require.Equal(t, "1 2 3 ", got)
			require.Zero(t, took)
		}
		c.nodes[3] = refuses
		got, took := c.fetch(t.Context(), "b", 1, 0, 0)
		require.Equal(t, "1 ", got)
		require.Zero(t, took)

		// Out of the ISR a follower is not asked.
		c.put(3, metadata.BrokerFenced)
		asked := c.count(3)
		_, _ = c.fetch(t.Context(), "b", 1, 0, 0)
		require.Equal(t, asked, c.count(3))
	})
}

func TestFetchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		n1 := newFetchNode(4)
		c.nodes[1], c.nodes[2], c.nodes[3] = n1.answer, frozen, newFetchNode(0).answer
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		got, took := c.fetch(ctx, "", 100, time.Minute)
		require.Equal(t, "4 LEADER_NOT_AVAILABLE 0 ", got, "what there is comes before the deadline")
		require.Less(t, took, 2*time.Second)
	})
}
