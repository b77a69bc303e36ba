package route_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// claims are the requests that name the leader epoch their sender knows, about one partition of r, and the code that
// they are answered with.
func claims() map[string]func(ctx context.Context, c *moving, partition, epoch int32) int16 {
	return map[string]func(ctx context.Context, c *moving, partition, epoch int32) int16{
		"Fetch": func(ctx context.Context, c *moving, partition, epoch int32) int16 {
			req := kmsg.NewPtrFetchRequest()
			req.MinBytes, req.MaxBytes, req.MaxWaitMillis = 1, 1000, 100
			part := kmsg.NewFetchRequestTopicPartition()
			part.Partition, part.CurrentLeaderEpoch = partition, epoch
			req.Topics = []kmsg.FetchRequestTopic{{
				Topic: "r", TopicID: topicID(7), Partitions: []kmsg.FetchRequestTopicPartition{part},
			}}
			resp, err := req.RequestWith(ctx, c.router)
			require.NoError(c.t, err)
			return resp.Topics[0].Partitions[0].ErrorCode
		},
		"ListOffsets": func(ctx context.Context, c *moving, partition, epoch int32) int16 {
			req := kmsg.NewPtrListOffsetsRequest()
			part := kmsg.NewListOffsetsRequestTopicPartition()
			part.Partition, part.CurrentLeaderEpoch = partition, epoch
			req.Topics = []kmsg.ListOffsetsRequestTopic{{
				Topic: "r", Partitions: []kmsg.ListOffsetsRequestTopicPartition{part},
			}}
			resp, err := req.RequestWith(ctx, c.router)
			require.NoError(c.t, err)
			return resp.Topics[0].Partitions[0].ErrorCode
		},
		"OffsetForLeaderEpoch": func(ctx context.Context, c *moving, partition, epoch int32) int16 {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			part.Partition, part.CurrentLeaderEpoch = partition, epoch
			req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{
				Topic: "r", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{part},
			}}
			resp, err := req.RequestWith(ctx, c.router)
			require.NoError(c.t, err)
			return resp.Topics[0].Partitions[0].ErrorCode
		},
	}
}

// inEpoch answers as a leader does that is in a leader epoch: for requests that name it, or none.
func inEpoch(epoch func() int32) requestor {
	return func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		code := func(claimed int32) int16 {
			switch e := epoch(); {
			case claimed < 0 || claimed == e:
				return 0
			case claimed < e:
				return kerr.FencedLeaderEpoch.Code
			}
			return kerr.UnknownLeaderEpoch.Code
		}
		resp := r.ResponseKind()
		switch r := r.(type) {
		case *kmsg.FetchRequest:
			for _, t := range r.Topics {
				for _, p := range t.Partitions {
					a := kmsg.FetchResponseTopicPartition{Partition: p.Partition, ErrorCode: code(p.CurrentLeaderEpoch)}
					resp := resp.(*kmsg.FetchResponse)
					resp.Topics = append(resp.Topics, kmsg.FetchResponseTopic{
						Topic: t.Topic, TopicID: t.TopicID, Partitions: []kmsg.FetchResponseTopicPartition{a},
					})
				}
			}
		case *kmsg.ListOffsetsRequest:
			p := r.Topics[0].Partitions[0]
			resp.(*kmsg.ListOffsetsResponse).Topics = []kmsg.ListOffsetsResponseTopic{{
				Topic: r.Topics[0].Topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{
					{Partition: p.Partition, ErrorCode: code(p.CurrentLeaderEpoch)},
				},
			}}
		case *kmsg.OffsetForLeaderEpochRequest:
			p := r.Topics[0].Partitions[0]
			resp.(*kmsg.OffsetForLeaderEpochResponse).Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{
				Topic: r.Topics[0].Topic, Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{
					{Partition: p.Partition, ErrorCode: code(p.CurrentLeaderEpoch)},
				},
			}}
		}
		return resp, nil
	}
}

// imageEpoch is the leader epoch of a partition of r by the image.
func (c *moving) imageEpoch(partition int32) func() int32 {
	return func() int32 { return c.machine.Image().Topic("r").Partitions[partition].LeaderEpoch }
}

// Who names an older leader epoch than the image has is told so at once, whoever leads: asking again cannot help.
func TestOldLeaderEpoch(t *testing.T) {
	for name, ask := range claims() {
		for leader, node := range map[string]requestor{"frozen": frozen, "refuses": refuses, "answers": nil} {
			t.Run(name+"/"+leader, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newMoving(t)
					c.put(2, metadata.BrokerFenced) // partition 1 moves to node 3, in leader epoch 1
					require.EqualValues(t, 1, c.imageEpoch(1)())
					c.nodes[3] = node
					if node == nil {
						c.nodes[3] = inEpoch(c.imageEpoch(1))
					}
					start := time.Now()
					require.Equal(t, kerr.FencedLeaderEpoch.Code, ask(t.Context(), c, 1, 0))
					require.Zero(t, time.Since(start))
				})
			})
		}
		// The leader is ahead of this node: it knows best, here and elsewhere.
		t.Run(name+"/ahead", func(t *testing.T) {
			for id := int32(1); id <= 2; id++ {
				synctest.Test(t, func(t *testing.T) {
					c := newMoving(t)
					c.nodes[id] = inEpoch(func() int32 { return 3 })
					start := time.Now()
					require.Equal(t, kerr.FencedLeaderEpoch.Code, ask(t.Context(), c, id-1, 2))
					require.Zero(t, time.Since(start))
				})
			}
		})
		// An epoch ends while the request waits for its leader.
		t.Run(name+"/moves", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMoving(t)
				c.nodes[2] = refuses
				c.nodes[3] = inEpoch(c.imageEpoch(1))
				time.AfterFunc(2*time.Second, func() { c.put(2, metadata.BrokerFenced) })
				start := time.Now()
				require.Equal(t, kerr.FencedLeaderEpoch.Code, ask(t.Context(), c, 1, 0))
				require.Equal(t, 2*time.Second, time.Since(start))
			})
		})
	}
}

// Who names a newer leader epoch than the image has knows more than this node: it is heard of within a second, or not.
func TestNewLeaderEpoch(t *testing.T) {
	for name, ask := range claims() {
		for id := int32(1); id <= 2; id++ { // led here and elsewhere
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newMoving(t)
					for n := range int32(3) {
						c.nodes[n+1] = inEpoch(c.imageEpoch(id - 1))
					}
					time.AfterFunc(500*time.Millisecond, func() { c.put(id, metadata.BrokerFenced) })
					start := time.Now()
					require.Zero(t, ask(t.Context(), c, id-1, 1))
					require.InDelta(t, 500*time.Millisecond, time.Since(start), float64(101*time.Millisecond))

					start = time.Now()
					require.Equal(t, kerr.UnknownLeaderEpoch.Code, ask(t.Context(), c, id-1, 7))
					require.InDelta(t, time.Second, time.Since(start), float64(251*time.Millisecond))
				})
			})
		}
	}
}
