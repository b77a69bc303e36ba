package route_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
	"millrace/server/route"
)

// Ids by their partition of three.
var placed = []string{"my-group", "a", "txn-1"}

// coordinators is three fake nodes that coordinate, of which node 1 is asked. Topics with three partitions are led as
// an image says, and images follow each other.
type coordinators struct {
	t      *testing.T
	router *route.Router

	mu      sync.Mutex
	image   *metadata.Image // guarded by mu
	changed chan struct{}   // guarded by mu
	asked   []string        // guarded by mu
	// answer is called with who is asked; set before the first request.
	answer func(ctx context.Context, node int32, r kmsg.Request) (kmsg.Response, error)
	// controls answers for the controller.
	controls func(r *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse
	nodes    int
}

// led makes an image in which both internal topics are led by those nodes, 0 for a partition without a leader. Without
// any there are no topics.
func led(t *testing.T, leaders ...int32) *metadata.Image {
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	var commands []metadata.Command
	for id := range int32(3) {
		commands = append(commands, &metadata.RegisterBroker{
			NewClusterID: "c", ID: id + 1, Incarnation: metadata.UUID{1: byte(id + 1)}, PreviousEpoch: -1,
			Endpoints: []metadata.Endpoint{{Name: "http", Host: fmt.Sprintf("host%d", id+1), Port: 80 + id}},
		})
	}
	for i, name := range []string{metadata.GroupTopic, metadata.TxnTopic} {
		topic := metadata.NewTopic{Name: name, ID: topicID(byte(10 + i))}
		for _, l := range leaders {
			topic.Partitions = append(topic.Partitions, []int32{max(l, 1)})
		}
		if len(leaders) > 0 {
			commands = append(commands, &metadata.CreateTopics{
				Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{topic},
			})
		}
	}
	for i, c := range commands {
		entry, err := metadata.Encode(c)
		require.NoError(t, err)
		r, err := m.Apply(uint64(i+1), entry)
		require.NoError(t, err)
		for _, item := range r.Items {
			require.Zero(t, item.Code, item.Message)
		}
	}
	return m.Image()
}

func coordinating(t *testing.T, image *metadata.Image) *coordinators {
	c := &coordinators{t: t, image: image, changed: make(chan struct{}), nodes: 3}
	c.router = route.New(route.Config{
		NodeID: 1, Broker: c.node(1), Groups: c.node(1), Txns: c.node(1),
		Nodes: func() int { return c.nodes },
		Image: func() *metadata.Image {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.image
		},
		Changed: func() <-chan struct{} {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.changed
		},
		Peer: func(id int32) kmsg.Requestor { return c.node(id) },
		Controller: requestor(func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
			c.note("controller: " + kmsg.NameForKey(r.Key()))
			return c.controls(r.(*kmsg.CreateTopicsRequest)), nil
		}),
	})
	return c
}

func (c *coordinators) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, what)
}

// log gives what was asked since the last time.
func (c *coordinators) log() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	return asked
}

func (c *coordinators) node(id int32) kmsg.Requestor {
	return requestor(func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		c.note(fmt.Sprintf("%d: %s", id, kmsg.NameForKey(r.Key())))
		return c.answer(ctx, id, r)
	})
}

// publish makes an image the newest.
func (c *coordinators) publish(image *metadata.Image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.image = image
	close(c.changed)
	c.changed = make(chan struct{})
}

// about makes a request of a key about one id.
func about(key kmsg.Key, id string) kmsg.Request {
	r := key.Request()
	switch r := r.(type) {
	case *kmsg.JoinGroupRequest:
		r.Group = id
	case *kmsg.SyncGroupRequest:
		r.Group = id
	case *kmsg.HeartbeatRequest:
		r.Group = id
	case *kmsg.LeaveGroupRequest:
		r.Group = id
	case *kmsg.ConsumerGroupHeartbeatRequest:
		r.Group = id
	case *kmsg.OffsetCommitRequest:
		r.Group = id
		r.Topics = []kmsg.OffsetCommitRequestTopic{{
			Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 4}, {Partition: 5}},
		}}
	case *kmsg.OffsetFetchRequest:
		r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: id}}
	case *kmsg.OffsetDeleteRequest:
		r.Group = id
	case *kmsg.TxnOffsetCommitRequest:
		r.Group = id
		r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{
			Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: 4}, {Partition: 5}},
		}}
	case *kmsg.DescribeGroupsRequest:
		r.Groups = []string{id}
	case *kmsg.ConsumerGroupDescribeRequest:
		r.Groups = []string{id}
	case *kmsg.DeleteGroupsRequest:
		r.Groups = []string{id}
	case *kmsg.InitProducerIDRequest:
		r.TransactionalID = &id
	case *kmsg.AddPartitionsToTxnRequest:
		r.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{
			TransactionalID: id,
			Topics:          []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: []int32{4, 5}}},
		}}
	case *kmsg.AddOffsetsToTxnRequest:
		r.TransactionalID = id
	case *kmsg.EndTxnRequest:
		r.TransactionalID = id
	case *kmsg.DescribeTransactionsRequest:
		r.TransactionalIDs = []string{id}
	default:
		panic(fmt.Sprintf("%T", r))
	}
	return r
}

// says makes the answer to a request that has a code wherever there is room for one, as a coordinator gives it. The
// order of an answer is nobody's promise.
func says(r kmsg.Request, code int16) kmsg.Response {
	resp := r.ResponseKind()
	switch out := resp.(type) {
	case *kmsg.OffsetCommitResponse:
		for _, t := range r.(*kmsg.OffsetCommitRequest).Topics {
			to := kmsg.OffsetCommitResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				to.Partitions = append(to.Partitions,
					kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
			}
			out.Topics = append(out.Topics, to)
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range r.(*kmsg.TxnOffsetCommitRequest).Topics {
			to := kmsg.TxnOffsetCommitResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				to.Partitions = append(to.Partitions,
					kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
			}
			out.Topics = append(out.Topics, to)
		}
	case *kmsg.OffsetFetchResponse:
		for _, g := range slices.Backward(r.(*kmsg.OffsetFetchRequest).Groups) {
			out.Groups = append(out.Groups, kmsg.OffsetFetchResponseGroup{Group: g.Group, ErrorCode: code})
		}
	case *kmsg.DescribeTransactionsResponse:
		for _, id := range r.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
			out.TransactionStates = append(out.TransactionStates,
				kmsg.DescribeTransactionsResponseTransactionState{TransactionalID: id, ErrorCode: code})
		}
	case *kmsg.AddPartitionsToTxnResponse:
		for _, t := range r.(*kmsg.AddPartitionsToTxnRequest).Transactions {
			out.Transactions = append(out.Transactions, kmsg.AddPartitionsToTxnResponseTransaction{
				TransactionalID: t.TransactionalID, Topics: []kmsg.AddPartitionsToTxnResponseTransactionTopic{{
					Topic: "t", Partitions: []kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{
						{Partition: 4, ErrorCode: code}, {Partition: 5, ErrorCode: code},
					},
				}},
			})
		}
	default:
		saysOfGroups(r, resp, code)
	}
	return resp
}

func saysOfGroups(r kmsg.Request, resp kmsg.Response, code int16) {
	switch out := resp.(type) {
	case *kmsg.DescribeGroupsResponse:
		for _, id := range slices.Backward(r.(*kmsg.DescribeGroupsRequest).Groups) {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode = id, code
			out.Groups = append(out.Groups, g)
		}
	case *kmsg.ConsumerGroupDescribeResponse:
		for _, id := range r.(*kmsg.ConsumerGroupDescribeRequest).Groups {
			g := kmsg.NewConsumerGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = id, code
			out.Groups = append(out.Groups, g)
		}
	case *kmsg.DeleteGroupsResponse:
		for _, id := range r.(*kmsg.DeleteGroupsRequest).Groups {
			out.Groups = append(out.Groups, kmsg.DeleteGroupsResponseGroup{Group: id, ErrorCode: code})
		}
	default:
		setCode(resp, code)
	}
}

func setCode(resp kmsg.Response, code int16) {
	switch resp := resp.(type) {
	case *kmsg.JoinGroupResponse:
		resp.ErrorCode = code
	case *kmsg.SyncGroupResponse:
		resp.ErrorCode = code
	case *kmsg.HeartbeatResponse:
		resp.ErrorCode = code
	case *kmsg.LeaveGroupResponse:
		resp.ErrorCode = code
	case *kmsg.ConsumerGroupHeartbeatResponse:
		resp.ErrorCode = code
	case *kmsg.OffsetDeleteResponse:
		resp.ErrorCode = code
	case *kmsg.InitProducerIDResponse:
		resp.ErrorCode = code
	case *kmsg.AddOffsetsToTxnResponse:
		resp.ErrorCode = code
	case *kmsg.EndTxnResponse:
		resp.ErrorCode = code
	default:
		panic(fmt.Sprintf("%T", resp))
	}
}

func coordinatedKeys() (keys []kmsg.Key) {
	for key, server := range route.Keys() {
		if server == route.GroupCoordinator || server == route.TxnCoordinator {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Every key finds the coordinator of its id, waits for one that is not ready, follows it to another node, and says
// honestly what it does not know.
func TestEveryKeyFindsItsCoordinator(t *testing.T) {
	for _, key := range coordinatedKeys() {
		t.Run(key.Name(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { findsItsCoordinator(t, key) }) })
	}
}

func findsItsCoordinator(t *testing.T, key kmsg.Key) {
	c := coordinating(t, led(t, 1, 2, 3))
	c.answer = func(_ context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) { return says(r, 0), nil }
	ok := func(id string) kmsg.Request { return about(key, id) }
	for i, id := range placed {
		resp, err := c.router.Request(t.Context(), ok(id))
		require.NoError(t, err)
		require.Equal(t, says(ok(id), 0), resp)
		require.Equal(t, []string{fmt.Sprintf("%d: %s", i+1, key.Name())}, c.log())
	}

	// It loads, then it is another node's, which the image shows a second later.
	start := time.Now()
	c.answer = func(_ context.Context, node int32, r kmsg.Request) (kmsg.Response, error) {
		switch {
		case node == 3:
			return says(r, 0), nil
		case time.Since(start) < 500*time.Millisecond:
			return says(r, kerr.CoordinatorLoadInProgress.Code), nil
		}
		return says(r, kerr.NotCoordinator.Code), nil
	}
	time.AfterFunc(time.Second, func() { c.publish(led(t, 1, 3, 3)) })
	resp, err := c.router.Request(t.Context(), ok("a"))
	require.NoError(t, err)
	require.Equal(t, says(ok("a"), 0), resp)
	require.Equal(t, time.Second, time.Since(start))
	log := c.log()
	require.Equal(t, "3: "+key.Name(), log[len(log)-1])
	require.Less(t, len(log), 12, "it is not asked without pause")

	// Nobody is it until the time is over.
	start = time.Now()
	c.answer = func(_ context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) {
		return says(r, kerr.CoordinatorLoadInProgress.Code), nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	resp, err = c.router.Request(ctx, ok("a"))
	cancel()
	require.NoError(t, err)
	require.Equal(t, says(ok("a"), kerr.CoordinatorLoadInProgress.Code), resp)
	require.Less(t, time.Since(start), 3*time.Second)
	c.log()

	// Answers are lost.
	ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
	c.answer = func(context.Context, int32, kmsg.Request) (kmsg.Response, error) { return nil, errors.New("cut") }
	resp, err = c.router.Request(ctx, ok("a"))
	cancel()
	require.NoError(t, err)
	require.Equal(t, says(ok("a"), kerr.NetworkException.Code), resp)
	require.Greater(t, len(c.log()), 3, "it does no harm twice")

	// This node stops.
	_, err = c.router.Request(t.Context(), ok("my-group"))
	require.ErrorContains(t, err, "cut")
}

// A coordinator that never answers is left when the image names another one.
func TestFrozenCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinating(t, led(t, 1, 2, 3))
		c.answer = func(ctx context.Context, node int32, r kmsg.Request) (kmsg.Response, error) {
			if node == 2 {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return says(r, 0), nil
		}
		start := time.Now()
		time.AfterFunc(5*time.Second, func() { c.publish(led(t, 1, 3, 3)) })
		resp, err := c.router.Request(t.Context(), about(kmsg.Heartbeat, "a"))
		require.NoError(t, err)
		require.Equal(t, says(about(kmsg.Heartbeat, "a"), 0), resp)
		require.Less(t, time.Since(start), 6*time.Second)
	})
}

// A join may wait as long as its group may take to rebalance.
func TestJoinWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinating(t, led(t, 1, 2, 3))
		c.answer = func(ctx context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) {
			select {
			case <-time.After(55 * time.Second):
				return says(r, 0), nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		join := about(kmsg.JoinGroup, "a").(*kmsg.JoinGroupRequest)
		join.RebalanceTimeoutMillis = 60_000
		resp, err := c.router.Request(t.Context(), join)
		require.NoError(t, err)
		require.Zero(t, resp.(*kmsg.JoinGroupResponse).ErrorCode)
		resp, err = c.router.Request(t.Context(), about(kmsg.SyncGroup, "a"))
		require.NoError(t, err)
		require.Zero(t, resp.(*kmsg.SyncGroupResponse).ErrorCode)
		resp, err = c.router.Request(t.Context(), about(kmsg.Heartbeat, "a"))
		require.NoError(t, err)
		require.Equal(t, kerr.NetworkException.Code, resp.(*kmsg.HeartbeatResponse).ErrorCode)
	})
}

// Each coordinator is asked about its own ids, and one that is gone costs only those.
func TestSplitByCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinating(t, led(t, 1, 2, 3))
		shares := make(map[int32][]string)
		var mu sync.Mutex
		down := int32(0)
		c.answer = func(_ context.Context, node int32, r kmsg.Request) (kmsg.Response, error) {
			if node == down {
				return nil, notSentError{}
			}
			mu.Lock()
			shares[node] = r.(*kmsg.DescribeGroupsRequest).Groups
			mu.Unlock()
			return says(r, 0), nil
		}
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"txn-1", "a", "my-group", "group-1", "a", "connect-cluster"}
		req.IncludeAuthorizedOperations = true
		codes := func() (codes []int16) {
			resp, err := req.RequestWith(t.Context(), c.router)
			require.NoError(t, err)
			for i, g := range resp.Groups {
				require.Equal(t, req.Groups[i], g.Group)
				codes = append(codes, g.ErrorCode)
			}
			return codes
		}
		require.Equal(t, []int16{0, 0, 0, 0, 0, 0}, codes())
		require.Equal(t, map[int32][]string{
			1: {"my-group"}, 2: {"a", "a", "connect-cluster"}, 3: {"txn-1", "group-1"},
		}, shares)
		down = 3
		start, gone := time.Now(), kerr.CoordinatorNotAvailable.Code
		require.Equal(t, []int16{gone, 0, 0, gone, 0, 0}, codes())
		require.InDelta(t, 15*time.Second, time.Since(start), float64(time.Second))
		req.Groups = nil
		require.Empty(t, codes())
	})
}

type notSentError struct{}

func (notSentError) Error() string { return "refused" }
func (notSentError) NotSent() bool { return true }

// A group that is gone when its deletion is tried again has been deleted.
func TestDeletedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinating(t, led(t, 1, 2, 3))
		tries := 0
		c.answer = func(_ context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) {
			if tries++; tries == 1 {
				return nil, errors.New("cut")
			}
			return says(r, kerr.GroupIDNotFound.Code), nil
		}
		for _, want := range []int16{0, kerr.GroupIDNotFound.Code} {
			resp, err := c.router.Request(t.Context(), about(kmsg.DeleteGroups, "a"))
			require.NoError(t, err)
			require.Equal(t, want, resp.(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode)
		}
	})
}

// What a coordinator that moved, or that waited too long for a commit, may have done is not said to have failed:
// neither when nobody answers in the end, nor when another one refuses.
func TestUnknownOutcomesOfCoordinators(t *testing.T) {
	refused := map[kmsg.Key]int16{ // by whoever is asked again: that says nothing of the first try
		kmsg.OffsetCommit: kerr.UnknownMemberID.Code, kmsg.TxnOffsetCommit: kerr.InvalidProducerEpoch.Code,
		kmsg.OffsetDelete: kerr.GroupIDNotFound.Code, kmsg.DeleteGroups: kerr.NonEmptyGroup.Code,
		kmsg.EndTxn: kerr.ProducerFenced.Code,
	}
	for _, key := range coordinatedKeys() {
		for _, first := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable} {
			t.Run(key.Name()+"/"+first.Message, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := coordinating(t, led(t, 1, 2, 3))
					c.answer = func(_ context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) {
						return says(r, first.Code), nil
					}
					want := kerr.NetworkException.Code
					switch key {
					case kmsg.OffsetFetch, kmsg.DescribeGroups, kmsg.ConsumerGroupDescribe, kmsg.DescribeTransactions,
						kmsg.Heartbeat, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn: // it does not matter whether it was done
						want = first.Code
					}
					resp, err := c.router.Request(t.Context(), about(key, "a"))
					require.NoError(t, err)
					require.Equal(t, says(about(key, "a"), want), resp)

					code, unknown := refused[key]
					if !unknown {
						return
					}
					tries := 0
					c.answer = func(_ context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) {
						if tries++; tries == 1 {
							return says(r, first.Code), nil
						}
						return says(r, code), nil
					}
					resp, err = c.router.Request(t.Context(), about(key, "a"))
					require.NoError(t, err)
					require.Equal(t, says(about(key, "a"), kerr.NetworkException.Code), resp)
					tries = 1 // the first try refuses: that stands
					resp, err = c.router.Request(t.Context(), about(key, "a"))
					require.NoError(t, err)
					require.Equal(t, says(about(key, "a"), code), resp)
				})
			})
		}
	}
}

// A member that is not there when it is asked for again to leave has left.
func TestLeftTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinating(t, led(t, 1, 2, 3))
		tries := 0
		c.answer = func(_ context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) {
			if tries++; tries == 1 {
				return says(r, kerr.NotCoordinator.Code), nil
			}
			resp := kmsg.NewPtrLeaveGroupResponse()
			resp.Members = []kmsg.LeaveGroupResponseMember{{MemberID: "m", ErrorCode: kerr.UnknownMemberID.Code}}
			return resp, nil
		}
		resp, err := c.router.Request(t.Context(), about(kmsg.LeaveGroup, "a"))
		require.NoError(t, err)
		require.Zero(t, resp.(*kmsg.LeaveGroupResponse).Members[0].ErrorCode)
	})
}

// The first requests make the topic, once, and wait until this node knows it.
func TestInternalTopicOnFirstUse(t *testing.T) {
	for name, said := range map[string]int16{"made here": 0, "made elsewhere": kerr.TopicAlreadyExists.Code} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := coordinating(t, led(t))
				c.answer = func(_ context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) { return says(r, 0), nil }
				var asked *kmsg.CreateTopicsRequest
				c.controls = func(r *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
					asked = r
					time.AfterFunc(time.Second, func() { c.publish(led(t, 1, 2, 3)) })
					resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
					resp.Topics = []kmsg.CreateTopicsResponseTopic{{Topic: r.Topics[0].Topic, ErrorCode: said}}
					return resp
				}
				var wg sync.WaitGroup
				for i := range 30 {
					wg.Go(func() {
						resp, err := c.router.Request(t.Context(), about(kmsg.Heartbeat, placed[i%3]))
						if err != nil || resp.(*kmsg.HeartbeatResponse).ErrorCode != 0 {
							t.Errorf("answer %v, %v", resp, err)
						}
					})
				}
				wg.Wait()
				made := 0
				for _, line := range c.log() {
					if strings.HasPrefix(line, "controller") {
						made++
					}
				}
				require.Equal(t, 1, made)
				require.Equal(t, metadata.GroupTopic, asked.Topics[0].Topic)
				require.Equal(t, int32(50), asked.Topics[0].NumPartitions)
				require.Equal(t, int16(3), asked.Topics[0].ReplicationFactor)
				require.Equal(t, "cleanup.policy", asked.Topics[0].Configs[0].Name)
				require.Equal(t, "compact", *asked.Topics[0].Configs[0].Value)
			})
		})
	}
}

// A cluster in which too few nodes have registered is waited for; the topic is not made with fewer replicas.
func TestInternalTopicWaitsForNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinating(t, led(t))
		c.answer = func(_ context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) { return says(r, 0), nil }
		start := time.Now()
		c.controls = func(r *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
			resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
			topic := kmsg.CreateTopicsResponseTopic{Topic: r.Topics[0].Topic}
			if time.Since(start) < 3*time.Second {
				topic.ErrorCode = kerr.InvalidReplicationFactor.Code
			} else {
				c.publish(led(t, 1, 2, 3))
			}
			resp.Topics = append(resp.Topics, topic)
			return resp
		}
		resp, err := c.router.Request(t.Context(), about(kmsg.InitProducerID, "a"))
		require.NoError(t, err)
		require.Zero(t, resp.(*kmsg.InitProducerIDResponse).ErrorCode)
		require.Less(t, time.Since(start), 4*time.Second)

		start = time.Now().Add(time.Hour)
		c.publish(led(t))
		resp, err = c.router.Request(t.Context(), about(kmsg.InitProducerID, "a"))
		require.NoError(t, err)
		require.Equal(t, kerr.CoordinatorNotAvailable.Code, resp.(*kmsg.InitProducerIDResponse).ErrorCode)
	})
}

// An id without a transaction is anybody's to give.
func TestInitProducerIDWithoutTransaction(t *testing.T) {
	c := coordinating(t, led(t))
	c.answer = func(_ context.Context, _ int32, r kmsg.Request) (kmsg.Response, error) { return says(r, 0), nil }
	_, err := c.router.Request(t.Context(), kmsg.NewPtrInitProducerIDRequest())
	require.NoError(t, err)
	require.Equal(t, []string{"1: InitProducerID"}, c.log())
}

func TestFindCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinating(t, led(t, 1, 2, 3))
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKeys = []string{"a", "", "txn-1"}
		resp, err := req.RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		line := func(f *kmsg.FindCoordinatorResponseCoordinator) string {
			return fmt.Sprintf("%q %d %s:%d %d", f.Key, f.NodeID, f.Host, f.Port, f.ErrorCode)
		}
		require.Equal(t, `"a" 2 host2:81 0`, line(&resp.Coordinators[0]))
		require.Equal(t, kerr.InvalidGroupID.Code, resp.Coordinators[1].ErrorCode)
		require.Equal(t, `"txn-1" 3 host3:82 0`, line(&resp.Coordinators[2]))
		req.CoordinatorType = 1
		resp, err = req.RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, kerr.InvalidRequest.Code, resp.Coordinators[1].ErrorCode)
		req.CoordinatorType = 2
		resp, err = req.RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, kerr.InvalidRequest.Code, resp.Coordinators[0].ErrorCode)

		c.publish(led(t))
		c.controls = func(r *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
			resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
			resp.Topics = []kmsg.CreateTopicsResponseTopic{{ErrorCode: kerr.PolicyViolation.Code}}
			return resp
		}
		req.CoordinatorType, req.CoordinatorKeys = 0, []string{"a"}
		start := time.Now()
		resp, err = req.RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, `"a" -1 :-1 15`, line(&resp.Coordinators[0]))
		require.InDelta(t, 15*time.Second, time.Since(start), float64(time.Second))
		require.Empty(t, slices.DeleteFunc(c.log(), func(s string) bool { return s == "controller: CreateTopics" }))
	})
}

// All who coordinate are asked; what is loading, or moves meanwhile, is waited for.
func TestListGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinating(t, led(t))
		resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Zero(t, resp.ErrorCode)
		require.Empty(t, resp.Groups)
		require.Empty(t, c.log(), "what was never used is not made for that")

		c.publish(led(t, 1, 2, 2))
		start, ready := time.Now(), time.Second
		c.answer = func(_ context.Context, node int32, r kmsg.Request) (kmsg.Response, error) {
			out := r.ResponseKind().(*kmsg.ListGroupsResponse)
			out.Groups = []kmsg.ListGroupsResponseGroup{{Group: fmt.Sprint("of ", node)}, {Group: "of both"}}
			if node == 2 && time.Since(start) < ready {
				out.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			}
			return out, nil
		}
		names := func(code int16) (names []string) {
			resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(t.Context(), c.router)
			require.NoError(t, err)
			require.Equal(t, code, resp.ErrorCode)
			for _, g := range resp.Groups {
				names = append(names, g.Group)
			}
			return names
		}
		require.Equal(t, []string{"of 1", "of both", "of 2"}, names(0))
		require.GreaterOrEqual(t, time.Since(start), time.Second)
		start, ready = time.Now(), time.Hour
		require.Equal(t, []string{"of 1", "of both", "of 2"}, names(kerr.CoordinatorLoadInProgress.Code))
		require.InDelta(t, 15*time.Second, time.Since(start), float64(time.Second))

		c.log()
		var move sync.Once
		c.answer = func(_ context.Context, node int32, r kmsg.Request) (kmsg.Response, error) {
			move.Do(func() { c.publish(led(t, 3, 3, 3)) })
			return r.ResponseKind(), nil
		}
		require.Empty(t, names(0))
		require.Contains(t, c.log(), "3: ListGroups", "a group may have been missed on its way")
	})
}

// Markers for one leader go out at once; others go their own ways and come back in order.
func TestWriteTxnMarkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinating(t, led(t, 1, 2, 3))
		mark := func(partitions ...[]int32) *kmsg.WriteTxnMarkersRequest {
			req := kmsg.NewPtrWriteTxnMarkersRequest()
			for i, p := range partitions {
				topics := []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: metadata.GroupTopic, Partitions: p}}
				req.Markers = append(req.Markers, kmsg.WriteTxnMarkersRequestMarker{ProducerID: int64(i), Topics: topics})
			}
			return req
		}
		refuse := int32(0)
		c.answer = func(_ context.Context, node int32, r kmsg.Request) (kmsg.Response, error) {
			req, out := r.(*kmsg.WriteTxnMarkersRequest), kmsg.NewPtrWriteTxnMarkersResponse()
			for _, m := range req.Markers {
				marked := kmsg.WriteTxnMarkersResponseMarker{ProducerID: m.ProducerID}
				for _, topic := range m.Topics {
					to := kmsg.WriteTxnMarkersResponseMarkerTopic{Topic: topic.Topic}
					for _, number := range topic.Partitions {
						p := kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: number}
						if node == refuse {
							p.ErrorCode = kerr.NotLeaderForPartition.Code
						}
						to.Partitions = append(to.Partitions, p)
					}
					marked.Topics = append(marked.Topics, to)
				}
				out.Markers = append(out.Markers, marked)
			}
			return out, nil
		}
		check := func(req *kmsg.WriteTxnMarkersRequest) []string {
			resp, err := req.RequestWith(t.Context(), c.router)
			require.NoError(t, err)
			require.Len(t, resp.Markers, len(req.Markers))
			for i, m := range resp.Markers {
				require.Equal(t, int64(i), m.ProducerID)
				var numbers []int32
				for _, p := range m.Topics[0].Partitions {
					require.Zero(t, p.ErrorCode)
					numbers = append(numbers, p.Partition)
				}
				require.Equal(t, req.Markers[i].Topics[0].Partitions, numbers)
			}
			log := c.log()
			slices.Sort(log)
			return log
		}
		require.Equal(t, []string{"2: WriteTxnMarkers"}, check(mark([]int32{1}, []int32{1}, []int32{1})))
		require.Equal(t, []string{"1: WriteTxnMarkers", "2: WriteTxnMarkers", "3: WriteTxnMarkers", "3: WriteTxnMarkers"},
			check(mark([]int32{0, 2}, []int32{1, 2})))
		refuse = 2
		time.AfterFunc(time.Second, func() { c.publish(led(t, 1, 3, 3)) })
		log := check(mark([]int32{1}, []int32{1}))
		require.Equal(t, "3: WriteTxnMarkers", log[len(log)-1])
	})
}
