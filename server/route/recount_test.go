package route_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

// counts answers Produce as a leader that knows the topic to have so many partitions.
func counts(known *atomic.Int32) requestor {
	return func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		in := &r.(*kmsg.ProduceRequest).Topics[0].Partitions[0]
		said, ok := ktag.PartitionCount(&in.UnknownTags)
		if !ok || said == known.Load() {
			return codes(0)(ctx, r)
		}
		resp, err := codes(kerr.LeaderNotAvailable.Code)(ctx, r)
		out := &resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		ktag.SetNotWritten(&out.UnknownTags)
		ktag.SetPartitionCount(&out.UnknownTags, known.Load())
		return resp, err
	}
}

// Where a leader knows another count of partitions than the request was made for, whoever is behind learns the newer
// one before the request is answered: the leader, or this node, so that what is asked here next is made for that.
func TestCountsOfPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		var known atomic.Int32
		c.nodes[2] = counts(&known)
		send := func(count int32) (*kmsg.ProduceResponseTopicPartition, time.Duration) {
			req := produceRequest(produceTopic("r", topicID(7), 1))
			req.TimeoutMillis = 10_000
			p := &req.Topics[0].Partitions[0]
			p.Records = batch(5)
			ktag.SetPartitionCount(&p.UnknownTags, count)
			start := time.Now()
			resp, err := req.RequestWith(t.Context(), c.router)
			require.NoError(t, err)
			return &resp.Topics[0].Partitions[0], time.Since(start)
		}
		known.Store(3)
		p, took := send(3)
		require.Zero(t, p.ErrorCode)
		require.Zero(t, took)

		known.Store(2) // the leader has not heard of the third
		time.AfterFunc(time.Second, func() { known.Store(3) })
		p, took = send(3)
		require.Zero(t, p.ErrorCode)
		require.InDelta(t, time.Second, took, float64(300*time.Millisecond))

		known.Store(4) // this node has not heard of the fourth, and neither had who asks
		time.AfterFunc(time.Second, func() {
			c.apply(&metadata.CreatePartitions{Limits: metadata.DefaultLimits(), Topics: []metadata.MorePartitions{
				{Name: "r", Count: 4, Added: [][]int32{{1, 2, 3}}},
			}})
		})
		p, took = send(3)
		require.Equal(t, kerr.LeaderNotAvailable.Code, p.ErrorCode)
		require.True(t, ktag.NotWritten(&p.UnknownTags))
		count, ok := ktag.PartitionCount(&p.UnknownTags)
		require.True(t, ok)
		require.Equal(t, int32(4), count)
		require.InDelta(t, time.Second, took, float64(300*time.Millisecond))
		p, took = send(3)
		require.Equal(t, kerr.LeaderNotAvailable.Code, p.ErrorCode)
		require.Zero(t, took, "it is this request that is behind")
		p, _ = send(4)
		require.Zero(t, p.ErrorCode)
	})
}
