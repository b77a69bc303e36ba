package route_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/broker"
	"millrace/server/controller"
	"millrace/server/group"
	"millrace/server/metadata"
	"millrace/server/peer"
	"millrace/server/route"
	"millrace/server/txn"
)

func TestTableAndHandlersAgree(t *testing.T) {
	var handled []kmsg.Key
	handled = append(handled, broker.Keys()...)
	handled = append(handled, controller.Keys()...)
	handled = append(handled, group.Keys()...)
	handled = append(handled, txn.Keys()...)
	handled = append(handled, kmsg.FindCoordinator) // which the router answers itself
	slices.Sort(handled)
	require.Equal(t, slices.Compact(handled), slices.Sorted(maps.Keys(route.Keys())))
	for _, key := range controller.Keys() {
		require.Equal(t, route.Controller, route.Keys()[key], key.Name())
	}
	for _, key := range broker.Keys() {
		require.NotEqual(t, route.Controller, route.Keys()[key], key.Name())
	}
	for _, key := range txn.Keys() {
		require.Contains(t, []route.Server{route.TxnCoordinator, route.AllBrokers}, route.Keys()[key], key.Name())
	}
	for _, key := range group.Keys() {
		require.Contains(t, []route.Server{route.GroupCoordinator, route.AllBrokers}, route.Keys()[key], key.Name())
	}
}

// Whatever the router may send to another node has a version to travel in.
func TestEveryKeyTravels(t *testing.T) {
	for key := range route.Keys() {
		_, ok := peer.Version(key.Request())
		require.True(t, ok, key.Name())
	}
}

// requestor is a fake node.
type requestor func(context.Context, kmsg.Request) (kmsg.Response, error)

func (f requestor) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	return f(ctx, r)
}

// cluster is three fake nodes, of which node 1 is asked. Topic t has partitions 0 to 5, led in turn
// by nodes 1, 2, 3; topic u has two, led by node 2.
type cluster struct {
	router *route.Router
	image  *metadata.Image
	nodes  map[int32]requestor

	mu    sync.Mutex
	asked []string // "node: request", in order of arrival; guarded by mu
}

func newCluster(t testing.TB) *cluster {
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	index := uint64(0)
	apply := func(c metadata.Command) {
		entry, err := metadata.Encode(c)
		require.NoError(t, err)
		index++
		r, err := m.Apply(index, entry)
		require.NoError(t, err)
		for _, item := range r.Items {
			require.Zero(t, item.Code, item.Message)
		}
	}
	for id := range int32(3) {
		apply(&metadata.RegisterBroker{
			NewClusterID: "c", ID: id + 1, Incarnation: metadata.UUID{1: byte(id + 1)}, PreviousEpoch: -1,
		})
	}
	apply(&metadata.CreateTopics{Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{
		{Name: "t", ID: topicID(1), Partitions: [][]int32{{1}, {2}, {3}, {1}, {2}, {3}}},
		{Name: "u", ID: topicID(2), Partitions: [][]int32{{2}, {2}}},
	}})
	c := &cluster{image: m.Image(), nodes: make(map[int32]requestor)}
	c.router = route.New(route.Config{
		NodeID: 1, Image: m.Image, Broker: c.node(1), Controller: c.node(1),
		Peer: func(id int32) kmsg.Requestor { return c.node(id) },
	})
	return c
}

func topicID(n byte) metadata.UUID { return metadata.UUID{0: n, 6: 0x40, 8: 0x80, 15: n} }

// node calls the fake node of that id and notes what was asked.
func (c *cluster) node(id int32) kmsg.Requestor {
	return requestor(func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		c.mu.Lock()
		c.asked = append(c.asked, fmt.Sprintf("%d: %s", id, kmsg.NameForKey(r.Key())))
		c.mu.Unlock()
		return c.nodes[id](ctx, r)
	})
}

// produceNode answers each partition with a base offset that tells node and partition, and only names
// or only ids of topics, as old and new versions of the protocol do. It gives partitions backwards:
// the order of an answer is nobody's promise.
func produceNode(id int32) requestor {
	return func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		req := r.(*kmsg.ProduceRequest)
		resp := kmsg.NewPtrProduceResponse()
		for _, t := range slices.Backward(req.Topics) {
			out := kmsg.ProduceResponseTopic{Topic: t.Topic}
			if id == 2 {
				out = kmsg.ProduceResponseTopic{TopicID: t.TopicID}
			}
			for _, p := range slices.Backward(t.Partitions) {
				a := kmsg.NewProduceResponseTopicPartition()
				a.Partition, a.BaseOffset = p.Partition, int64(1000*id)+int64(p.Partition)
				out.Partitions = append(out.Partitions, a)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil
	}
}

func produceRequest(topics ...kmsg.ProduceRequestTopic) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.Topics = -1, topics
	return req
}

func produceTopic(name string, id metadata.UUID, partitions ...int32) kmsg.ProduceRequestTopic {
	t := kmsg.ProduceRequestTopic{Topic: name, TopicID: id}
	for _, p := range partitions {
		t.Partitions = append(t.Partitions, kmsg.ProduceRequestTopicPartition{Partition: p})
	}
	return t
}

// produced renders an answer: topic[partition=offset or error ...].
func produced(resp *kmsg.ProduceResponse) string {
	var b strings.Builder
	for _, t := range resp.Topics {
		fmt.Fprintf(&b, "%s%x[", t.Topic, t.TopicID[15])
		for _, p := range t.Partitions {
			fmt.Fprintf(&b, " %d=", p.Partition)
			if p.ErrorCode != 0 {
				fmt.Fprint(&b, kerr.TypedErrorForCode(p.ErrorCode).Message)
				continue
			}
			fmt.Fprint(&b, p.BaseOffset)
		}
		b.WriteString(" ] ")
	}
	return strings.TrimSpace(b.String())
}

func TestProduceIsSplitByLeader(t *testing.T) {
	c := newCluster(t)
	for id := range int32(3) {
		c.nodes[id+1] = produceNode(id + 1)
	}
	req := produceRequest(produceTopic("t", topicID(1), 5, 0, 1, 4, 2), produceTopic("u", topicID(2), 1))
	resp, err := req.RequestWith(t.Context(), c.router)
	require.NoError(t, err)
	require.Equal(t, "t1[ 5=3005 0=1000 1=2001 4=2004 2=3002 ] u2[ 1=2001 ]", produced(resp))
	slices.Sort(c.asked)
	require.Equal(t, []string{"1: Produce", "2: Produce", "3: Produce"}, c.asked)
	require.Len(t, req.Topics[0].Partitions, 5, "the request was changed")
}

func TestSingleLeaderGetsTheWholeRequest(t *testing.T) {
	for _, c := range []struct {
		topics []kmsg.ProduceRequestTopic
		want   string
	}{
		{[]kmsg.ProduceRequestTopic{produceTopic("t", topicID(1), 1, 4), produceTopic("u", topicID(2), 0)}, "2: Produce"},
		{[]kmsg.ProduceRequestTopic{produceTopic("t", metadata.UUID{}, 0)}, "1: Produce"},
		{[]kmsg.ProduceRequestTopic{produceTopic("", topicID(1), 2)}, "3: Produce"},
		{[]kmsg.ProduceRequestTopic{produceTopic("absent", metadata.UUID{}, 0)}, "1: Produce"},
		{[]kmsg.ProduceRequestTopic{produceTopic("t", topicID(1), 77)}, "1: Produce"},
		{nil, "1: Produce"},
	} {
		cl := newCluster(t)
		req := produceRequest(c.topics...)
		sentinel := errors.New("from the node")
		for id := range int32(3) {
			cl.nodes[id+1] = func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
				require.Equal(t, c.topics, r.(*kmsg.ProduceRequest).Topics)
				return nil, sentinel
			}
		}
		resp, err := req.RequestWith(t.Context(), cl.router)
		require.Equal(t, []string{c.want}, cl.asked)
		if c.want == "1: Produce" {
			require.ErrorIs(t, err, sentinel, "an error of this node is the caller's")
			continue
		}
		require.NoError(t, err)
		require.Contains(t, produced(resp), "NETWORK_EXCEPTION")
		require.Equal(t, "from the node", *resp.Topics[0].Partitions[0].ErrorMessage)
	}
}

func TestLeaderThatDoesNotAnswer(t *testing.T) { synctest.Test(t, testLeaderThatDoesNotAnswer) }

func testLeaderThatDoesNotAnswer(t *testing.T) {
	c := newCluster(t)
	c.nodes[1], c.nodes[3] = produceNode(1), produceNode(3)
	c.nodes[2] = func(context.Context, kmsg.Request) (kmsg.Response, error) { return nil, errors.New("cut") }
	resp, err := produceRequest(produceTopic("t", topicID(1), 0, 1, 2, 4)).RequestWith(t.Context(), c.router)
	require.NoError(t, err)
	require.Equal(t, "t1[ 0=1000 1=NETWORK_EXCEPTION 2=3002 4=NETWORK_EXCEPTION ]", produced(resp))

	alone := route.New(route.Config{
		NodeID: 1, Image: func() *metadata.Image { return c.image }, Broker: c.nodes[1], Controller: c.nodes[1],
	})
	resp, err = produceRequest(produceTopic("t", topicID(1), 0, 1)).RequestWith(t.Context(), alone)
	require.NoError(t, err)
	require.Equal(t, "t1[ 0=1000 1=LEADER_NOT_AVAILABLE ]", produced(resp))
	resp, err = produceRequest(produceTopic("t", topicID(1), 1)).RequestWith(t.Context(), alone)
	require.NoError(t, err)
	require.Equal(t, "t1[ 1=LEADER_NOT_AVAILABLE ]", produced(resp))
}

func TestAnswerThatLeavesOutAPartition(t *testing.T) {
	c := newCluster(t)
	c.nodes[1] = produceNode(1)
	c.nodes[2] = func(context.Context, kmsg.Request) (kmsg.Response, error) { return kmsg.NewPtrProduceResponse(), nil }
	resp, err := produceRequest(produceTopic("t", topicID(1), 0, 1)).RequestWith(t.Context(), c.router)
	require.NoError(t, err)
	require.Equal(t, "t1[ 0=1000 1=UNKNOWN_SERVER_ERROR ]", produced(resp))
}

func TestOtherKeysOfLeaders(t *testing.T) {
	c := newCluster(t)
	for id := range int32(3) {
		c.nodes[id+1] = offsetsNode(int64(id + 1))
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{
		{Partition: 2}, {Partition: 0}, {Partition: 1},
	}}}
	listed, err := list.RequestWith(t.Context(), c.router)
	require.NoError(t, err)
	require.Equal(t, int64(3), listed.Topics[0].Partitions[0].Offset)
	require.Equal(t, int64(1), listed.Topics[0].Partitions[1].Offset)
	require.Equal(t, int64(2), listed.Topics[0].Partitions[2].Offset)

	del := kmsg.NewPtrDeleteRecordsRequest()
	del.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{
		{Partition: 1}, {Partition: 0},
	}}}
	deleted, err := del.RequestWith(t.Context(), c.router)
	require.NoError(t, err)
	require.Equal(t, int64(2), deleted.Topics[0].Partitions[0].LowWatermark)
	require.Equal(t, int64(1), deleted.Topics[0].Partitions[1].LowWatermark)

	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epochs.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{
		Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{Partition: 1}, {Partition: 0}},
	}}
	ends, err := epochs.RequestWith(t.Context(), c.router)
	require.NoError(t, err)
	require.Equal(t, int64(2), ends.Topics[0].Partitions[0].EndOffset)
	require.Equal(t, int64(1), ends.Topics[0].Partitions[1].EndOffset)

	who := kmsg.NewPtrDescribeProducersRequest()
	who.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{2, 0}}}
	producers, err := who.RequestWith(t.Context(), c.router)
	require.NoError(t, err)
	require.Equal(t, int64(3), producers.Topics[0].Partitions[0].ActiveProducers[0].ProducerID)
	require.Equal(t, int64(1), producers.Topics[0].Partitions[1].ActiveProducers[0].ProducerID)
}

// offsetsNode answers whatever is asked about partitions with its own id.
func offsetsNode(id int64) requestor {
	return func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		switch req := r.(type) {
		case *kmsg.ListOffsetsRequest:
			resp := kmsg.NewPtrListOffsetsResponse()
			for _, t := range req.Topics {
				out := kmsg.ListOffsetsResponseTopic{Topic: t.Topic}
				for _, p := range t.Partitions {
					out.Partitions = append(out.Partitions,
						kmsg.ListOffsetsResponseTopicPartition{Partition: p.Partition, Offset: id})
				}
				resp.Topics = append(resp.Topics, out)
			}
			return resp, nil
		case *kmsg.DeleteRecordsRequest:
			resp := kmsg.NewPtrDeleteRecordsResponse()
			for _, t := range req.Topics {
				out := kmsg.DeleteRecordsResponseTopic{Topic: t.Topic}
				for _, p := range t.Partitions {
					out.Partitions = append(out.Partitions,
						kmsg.DeleteRecordsResponseTopicPartition{Partition: p.Partition, LowWatermark: id})
				}
				resp.Topics = append(resp.Topics, out)
			}
			return resp, nil
		case *kmsg.OffsetForLeaderEpochRequest:
			resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
			for _, t := range req.Topics {
				out := kmsg.OffsetForLeaderEpochResponseTopic{Topic: t.Topic}
				for _, p := range t.Partitions {
					out.Partitions = append(out.Partitions,
						kmsg.OffsetForLeaderEpochResponseTopicPartition{Partition: p.Partition, EndOffset: id})
				}
				resp.Topics = append(resp.Topics, out)
			}
			return resp, nil
		case *kmsg.DescribeProducersRequest:
			resp := kmsg.NewPtrDescribeProducersResponse()
			for _, t := range req.Topics {
				out := kmsg.DescribeProducersResponseTopic{Topic: t.Topic}
				for _, p := range t.Partitions {
					out.Partitions = append(out.Partitions, kmsg.DescribeProducersResponseTopicPartition{
						Partition:       p,
						ActiveProducers: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{{ProducerID: id}},
					})
				}
				resp.Topics = append(resp.Topics, out)
			}
			return resp, nil
		}
		return nil, fmt.Errorf("unexpected %T", r)
	}
}

func TestControllerKeys(t *testing.T) { synctest.Test(t, testControllerKeys) }

func testControllerKeys(t *testing.T) {
	c := newCluster(t)
	for id := range int32(3) {
		c.nodes[id+1] = func(_ context.Context, r kmsg.Request) (kmsg.Response, error) { return r.ResponseKind(), nil }
	}
	leader := int32(3)
	router := route.New(route.Config{
		NodeID: 1, Image: func() *metadata.Image { return c.image }, Broker: c.node(1), Controller: c.node(9),
		ControllerID: func() int32 { return leader },
		Peer: func(id int32) kmsg.Requestor {
			if id == 2 {
				return nil
			}
			return c.node(id)
		},
	})
	c.nodes[9] = c.nodes[1]
	for key, server := range route.Keys() {
		if server != route.Controller {
			continue
		}
		leader, c.asked = 3, nil
		_, err := router.Request(t.Context(), key.Request())
		require.NoError(t, err)
		leader = 1
		_, err = router.Request(t.Context(), key.Request())
		require.NoError(t, err)
		leader = -1
		_, err = router.Request(t.Context(), key.Request())
		require.NoError(t, err)
		require.Equal(t, []string{"3: " + key.Name(), "9: " + key.Name(), "9: " + key.Name()}, c.asked)
		leader, c.asked = 2, nil
		start := time.Now()
		_, err = router.Request(t.Context(), key.Request())
		require.NoError(t, err)
		require.Equal(t, []string{"9: " + key.Name()}, c.asked, "who cannot be reached cannot answer: this node does")
		require.InDelta(t, 15*time.Second, time.Since(start), float64(time.Second))
	}
}

func TestUnknownKey(t *testing.T) {
	c := newCluster(t)
	_, err := c.router.Request(t.Context(), kmsg.NewPtrShareGroupHeartbeatRequest())
	require.ErrorContains(t, err, "ShareGroupHeartbeat")
	require.Empty(t, c.asked)
}

func TestBrokersDescribeThemselves(t *testing.T) {
	c := newCluster(t)
	for id := range int32(3) {
		c.nodes[id+1] = func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
			resp := kmsg.NewPtrDescribeConfigsResponse()
			for _, in := range r.(*kmsg.DescribeConfigsRequest).Resources {
				value := fmt.Sprint(id + 1)
				resp.Resources = append(resp.Resources, kmsg.DescribeConfigsResponseResource{
					ResourceType: in.ResourceType, ResourceName: in.ResourceName, ErrorMessage: &value,
				})
			}
			return resp, nil
		}
	}
	c.nodes[3] = func(context.Context, kmsg.Request) (kmsg.Response, error) { return nil, errors.New("cut") }
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range []string{"2", "", "t", "1", "3", "44", "2"} {
		kind := kmsg.ConfigResourceTypeBroker
		if name == "t" {
			kind = kmsg.ConfigResourceTypeTopic
		}
		req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kind, ResourceName: name})
	}
	resp, err := req.RequestWith(t.Context(), c.router)
	require.NoError(t, err)
	var got []string
	for _, r := range resp.Resources {
		by := kerr.TypedErrorForCode(r.ErrorCode)
		if by != nil {
			got = append(got, r.ResourceName+" "+by.Message)
			continue
		}
		got = append(got, r.ResourceName+" by "+*r.ErrorMessage)
	}
	require.Equal(t, []string{"2 by 2", " by 1", "t by 1", "1 by 1", "3 BROKER_NOT_AVAILABLE", "44 by 1", "2 by 2"}, got)
}

// fetchNode is a leader with a log that may grow: it answers with bytes and waits like a broker.
type fetchNode struct {
	mu    sync.Mutex
	size  int           // guarded by mu
	grown chan struct{} // replaced at each growth; guarded by mu
	calls int           // guarded by mu
}

func newFetchNode(size int) *fetchNode { return &fetchNode{size: size, grown: make(chan struct{})} }

func (n *fetchNode) grow(size int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.size += size
	close(n.grown)
	n.grown = make(chan struct{})
}

func (n *fetchNode) state() (int, chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.size, n.grown
}

func (n *fetchNode) answer(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.FetchRequest)
	n.mu.Lock()
	n.calls++
	n.mu.Unlock()
	over := time.After(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	size, grown := n.state()
wait:
	for size < int(req.MinBytes) && req.MaxWaitMillis > 0 {
		select {
		case <-grown:
		case <-over:
			break wait
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		size, grown = n.state()
	}
	resp := kmsg.NewPtrFetchResponse()
	for _, t := range req.Topics {
		out := kmsg.FetchResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			a := kmsg.NewFetchResponseTopicPartition()
			a.Partition, a.RecordBatches = p.Partition, make([]byte, min(size, int(req.MaxBytes)))
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

func fetchRequest(minBytes int32, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxWaitMillis, req.MaxBytes = minBytes, int32(wait.Milliseconds()), 3000
	req.Topics = []kmsg.FetchRequestTopic{{Topic: "t", TopicID: topicID(1), Partitions: []kmsg.FetchRequestTopicPartition{
		{Partition: 0}, {Partition: 1}, {Partition: 2},
	}}}
	return req
}

func sizes(resp *kmsg.FetchResponse) (out []int) {
	for _, p := range resp.Topics[0].Partitions {
		out = append(out, len(p.RecordBatches))
	}
	return out
}

func TestFetchFromSeveralLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		nodes := []*fetchNode{newFetchNode(0), newFetchNode(10), newFetchNode(0)}
		for i, n := range nodes {
			c.nodes[int32(i+1)] = n.answer
		}
		start := time.Now()
		resp, err := fetchRequest(10, time.Minute).RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, []int{0, 10, 0}, sizes(resp), "there is enough: nobody waits")
		require.Zero(t, time.Since(start))

		// Together the nodes have enough only after the second growth.
		time.AfterFunc(time.Second, func() { nodes[0].grow(5) })
		time.AfterFunc(2*time.Second, func() { nodes[2].grow(7) })
		resp, err = fetchRequest(20, time.Minute).RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, []int{5, 10, 7}, sizes(resp))
		require.Equal(t, 2*time.Second, time.Since(start))

		// Time runs out: what there is comes.
		resp, err = fetchRequest(100, time.Second).RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, []int{5, 10, 7}, sizes(resp))
		require.Equal(t, 3*time.Second, time.Since(start))
		for _, n := range nodes {
			require.LessOrEqual(t, n.calls, 6, "waiting is not a loop of requests")
		}

		// The context ends.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err = fetchRequest(100, time.Minute).RequestWith(ctx, c.router)
		require.NoError(t, err)
		require.Equal(t, []int{5, 10, 7}, sizes(resp), "what there is comes before the deadline")
		gone, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		_, err = fetchRequest(100, time.Minute).RequestWith(gone, c.router)
		require.ErrorIs(t, err, context.Canceled)

		// Each node gets its part of MaxBytes.
		nodes[1].grow(5000)
		resp, err = fetchRequest(1, 0).RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, []int{5, 1000, 7}, sizes(resp))

		// A node that does not answer holds nothing up where there is enough.
		c.nodes[2] = func(context.Context, kmsg.Request) (kmsg.Response, error) { return nil, errors.New("cut") }
		start = time.Now()
		resp, err = fetchRequest(10, time.Minute).RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		require.Equal(t, []int{5, 0, 7}, sizes(resp))
		require.Equal(t, kerr.NetworkException.Code, resp.Topics[0].Partitions[1].ErrorCode)
		require.Equal(t, int64(-1), resp.Topics[0].Partitions[1].HighWatermark)
	})
}

// A node may become unreachable between two rounds of a fetch that waits.
func TestFetchWhoseLeaderGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for id := range int32(3) {
			c.nodes[id+1] = newFetchNode(0).answer
		}
		asked := make(map[int32]int)
		router := route.New(route.Config{
			NodeID: 1, Image: func() *metadata.Image { return c.image }, Broker: c.node(1), Controller: c.node(1),
			Peer: func(id int32) kmsg.Requestor {
				c.mu.Lock()
				defer c.mu.Unlock()
				if asked[id]++; id == 3 && asked[id] > 1 {
					return nil
				}
				return c.node(id)
			},
		})
		resp, err := fetchRequest(1, time.Second).RequestWith(t.Context(), router)
		require.NoError(t, err)
		require.Equal(t, []int{0, 0, 0}, sizes(resp))
	})
}

func BenchmarkSingleLeader(b *testing.B) {
	c := newCluster(b)
	answer := kmsg.NewPtrProduceResponse()
	self := requestor(func(context.Context, kmsg.Request) (kmsg.Response, error) { return answer, nil })
	router := route.New(route.Config{
		NodeID: 1, Image: func() *metadata.Image { return c.image }, Broker: self, Controller: self,
	})
	req := produceRequest(produceTopic("t", topicID(1), 0))
	for b.Loop() {
		if _, err := router.Request(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
