package route_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/route"
)

// moving is three fake nodes that replicate all partitions of topic r: partition 0 prefers node 1, partition 1 node 2,
// partition 2 node 3. Fencing a node moves what it leads. Node 1 is asked. Nodes 1 and 2 are in rack a, node 3 in b.
type moving struct {
	t       testing.TB
	machine *metadata.Machine
	router  *route.Router
	nodes   map[int32]requestor

	mu      sync.Mutex
	index   uint64          // guarded by mu
	asked   map[int32]int   // requests by node; guarded by mu
	changed chan struct{}   // guarded by mu
	leader  int32           // controller; guarded by mu
	shown   chan struct{}   // closed when AwaitApplied may return
	awaited []uint64        // guarded by mu
	at      []time.Duration // when nodes other than 1 were asked; guarded by mu
	start   time.Time
}

var errRefused = refusedError{}

// refusedError is like what package peer says of a port where nobody listens.
type refusedError struct{}

func (refusedError) Error() string { return "connection refused" }
func (refusedError) NotSent() bool { return true }
func (refusedError) Unwrap() error { return syscall.ECONNREFUSED }

func newMoving(t testing.TB) *moving {
	c := &moving{
		t: t, nodes: map[int32]requestor{}, asked: map[int32]int{}, changed: make(chan struct{}), leader: 1,
		shown: make(chan struct{}), start: time.Now(),
	}
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	c.machine = m
	for id := int32(1); id <= 3; id++ {
		c.apply(&metadata.RegisterBroker{
			NewClusterID: "c", ID: id, Incarnation: metadata.UUID{1: byte(id)}, PreviousEpoch: -1,
			Rack: map[int32]string{1: "a", 2: "a", 3: "b"}[id],
		})
	}
	c.apply(&metadata.CreateTopics{Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{
		{Name: "r", ID: topicID(7), Partitions: [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}}},
	}})
	c.router = route.New(route.Config{
		NodeID: 1, Image: m.Image, Broker: c.node(1), Controller: c.node(1), Peer: c.node, Changed: c.wait,
		ControllerID: func() int32 {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.leader
		},
		AwaitApplied: func(ctx context.Context, index uint64) error {
			c.mu.Lock()
			c.awaited = append(c.awaited, index)
			c.mu.Unlock()
			select {
			case <-c.shown:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	return c
}

func (c *moving) apply(cmd metadata.Command) {
	entry, err := metadata.Encode(cmd)
	require.NoError(c.t, err)
	c.mu.Lock()
	c.index++
	index := c.index
	c.mu.Unlock()
	r, err := c.machine.Apply(index, entry)
	require.NoError(c.t, err)
	for _, item := range r.Items {
		require.Zero(c.t, item.Code, item.Message)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// put changes a node's state: what a fenced one leads moves on.
func (c *moving) put(id int32, state metadata.BrokerState) {
	c.apply(&metadata.ChangeBrokers{Changes: []metadata.BrokerChange{
		{ID: id, Epoch: c.machine.Image().Broker(id).Epoch, State: state},
	}})
}

func (c *moving) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *moving) node(id int32) kmsg.Requestor {
	return requestor(func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		c.mu.Lock()
		c.asked[id]++
		if id != 1 {
			c.at = append(c.at, time.Since(c.start))
		}
		c.mu.Unlock()
		return c.nodes[id](ctx, r)
	})
}

func (c *moving) count(id int32) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[id]
}

// leads answers Produce as a leader of metadata does: NOT_LEADER, marked as not written, for what it does not lead.
func (c *moving) leads(id int32) requestor {
	return func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		resp := kmsg.NewPtrProduceResponse()
		for _, t := range r.(*kmsg.ProduceRequest).Topics {
			out := kmsg.ProduceResponseTopic{TopicID: t.TopicID}
			for _, p := range t.Partitions {
				a := kmsg.NewProduceResponseTopicPartition()
				a.Partition, a.BaseOffset = p.Partition, int64(id)
				if c.machine.Image().TopicByID(t.TopicID).Partitions[p.Partition].Leader != id {
					a.ErrorCode, a.BaseOffset = kerr.NotLeaderForPartition.Code, -1
					ktag.SetNotWritten(&a.UnknownTags)
				}
				out.Partitions = append(out.Partitions, a)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil
	}
}

// frozen never answers.
func frozen(ctx context.Context, _ kmsg.Request) (kmsg.Response, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// cut breaks off before it answers.
func cut(context.Context, kmsg.Request) (kmsg.Response, error) { return nil, errors.New("cut") }

func refuses(context.Context, kmsg.Request) (kmsg.Response, error) { return nil, errRefused }

// codes answers Produce with these codes, one call after the other; the last one stays.
func codes(codes ...int16) requestor {
	var mu sync.Mutex
	return func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		mu.Lock()
		code := codes[0]
		codes = codes[min(1, len(codes)-1):]
		mu.Unlock()
		resp := kmsg.NewPtrProduceResponse()
		for _, t := range r.(*kmsg.ProduceRequest).Topics {
			out := kmsg.ProduceResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				a := kmsg.NewProduceResponseTopicPartition()
				a.Partition, a.ErrorCode, a.BaseOffset = p.Partition, code, 5
				out.Partitions = append(out.Partitions, a)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil
	}
}

func batch(producerID int64) []byte {
	var b record.Builder
	b.Reset(nil)
	if producerID >= 0 {
		b.SetProducer(producerID, 0, 0)
	}
	b.Append(&record.Record{Value: []byte("v"), Timestamp: 1})
	return b.Build()
}

// produce sends a batch to each of the partitions of r, and returns what came of it and how long it took.
func (c *moving) produce(producerID int64, timeout time.Duration, partitions ...int32) (string, time.Duration) {
	req := produceRequest(produceTopic("r", topicID(7), partitions...))
	req.TimeoutMillis = int32(timeout.Milliseconds())
	for i := range req.Topics[0].Partitions {
		req.Topics[0].Partitions[i].Records = batch(producerID)
	}
	start := time.Now()
	resp, err := req.RequestWith(c.t.Context(), c.router)
	require.NoError(c.t, err)
	return produced(resp), time.Since(start)
}

const unsequenced = -1

func TestLeaderMovesBeforeSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[2], c.nodes[3] = refuses, c.leads(3)
		time.AfterFunc(2*time.Second, func() { c.put(2, metadata.BrokerFenced) })
		got, took := c.produce(unsequenced, 10*time.Second, 1)
		require.Equal(t, "r7[ 1=3 ]", got)
		require.Equal(t, 2*time.Second, took, "the image says at once when to try again")
		require.LessOrEqual(t, c.count(2), 15, "refusals are not asked for without pause")
	})
}

func TestLeaderKnowsItWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[2], c.nodes[3] = codes(kerr.LeaderNotAvailable.Code, kerr.LeaderNotAvailable.Code, 0), c.leads(3)
		got, took := c.produce(unsequenced, 10*time.Second, 1)
		require.Equal(t, "r7[ 1=5 ]", got)
		require.Equal(t, 60*time.Millisecond, took, "20 ms, then 40")

		// Leadership moves behind the back of this node, whose image comes later.
		behind := false
		c.nodes[2] = func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
			if behind {
				return codes(kerr.NotLeaderForPartition.Code)(ctx, r)
			}
			behind = true
			time.AfterFunc(time.Second, func() { c.put(2, metadata.BrokerFenced) })
			resp, err := codes(kerr.NotLeaderForPartition.Code)(ctx, r)
			ktag.SetNotWritten(&resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].UnknownTags)
			return resp, err
		}
		c.nodes[2] = marked(c.nodes[2])
		got, took = c.produce(unsequenced, 10*time.Second, 1)
		require.Equal(t, "r7[ 1=3 ]", got)
		require.Equal(t, time.Second, took)
	})
}

// marked marks all refusals as not written.
func marked(node requestor) requestor {
	return func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		resp, err := node(ctx, r)
		if err == nil {
			for i := range resp.(*kmsg.ProduceResponse).Topics {
				for j := range resp.(*kmsg.ProduceResponse).Topics[i].Partitions {
					ktag.SetNotWritten(&resp.(*kmsg.ProduceResponse).Topics[i].Partitions[j].UnknownTags)
				}
			}
		}
		return resp, err
	}
}

// What may have been written is sent again only where the leader can tell that it has it.
func TestUnknownOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		node  func() requestor
		plain string // of a batch without a producer id
		named string // of one with
	}{
		"cut":           {func() requestor { return cut }, "NETWORK_EXCEPTION", "NETWORK_EXCEPTION"},
		"not leader":    {func() requestor { return codes(6, 0) }, "NETWORK_EXCEPTION", "5"},
		"not written":   {func() requestor { return marked(codes(6, 74, 75, 0)) }, "5", "5"},
		"timed out":     {func() requestor { return codes(7, 0) }, "REQUEST_TIMED_OUT", "5"},
		"no leader":     {func() requestor { return codes(5, 0) }, "5", "5"},
		"too few":       {func() requestor { return codes(19, 0) }, "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"},
		"topic unheard": {func() requestor { return marked(codes(3, 100, 0)) }, "5", "5"},
		"given up":      {func() requestor { return codes(3, 0) }, "NETWORK_EXCEPTION", "5"},
		"disk":          {func() requestor { return codes(56) }, "KAFKA_STORAGE_ERROR", "KAFKA_STORAGE_ERROR"},
		"too few after": {
			func() requestor { return codes(20, 0) },
			"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMoving(t)
				c.nodes[2] = tc.node()
				got, took := c.produce(unsequenced, 3*time.Second, 1)
				require.Equal(t, fmt.Sprintf("r7[ 1=%s ]", tc.plain), got)
				require.Less(t, took, time.Second, "there is nothing to wait for")
			})
			synctest.Test(t, func(t *testing.T) {
				c := newMoving(t)
				c.nodes[2] = tc.node()
				got, _ := c.produce(4711, 3*time.Second, 1)
				require.Equal(t, fmt.Sprintf("r7[ 1=%s ]", tc.named), got)
			})
		})
	}
}

// What this node itself leads and gives up while batches wait is not told to be refused either.
func TestUnknownOutcomeHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[1] = codes(3, 0)
		got, _ := c.produce(unsequenced, 3*time.Second, 0)
		require.Equal(t, "r7[ 0=NETWORK_EXCEPTION ]", got)
	})
}

// After one try of unknown outcome, a refusal of the next one does not say that nothing was stored.
func TestDoubtStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[2] = codes(7, 19)
		req := produceRequest(produceTopic("r", topicID(7), 1))
		req.TimeoutMillis, req.Topics[0].Partitions[0].Records = 3000, batch(4711)
		resp, err := req.RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		p := &resp.Topics[0].Partitions[0]
		require.Equal(t, kerr.NetworkException.Code, p.ErrorCode)
		require.Contains(t, *p.ErrorMessage, "NOT_ENOUGH_REPLICAS")

		// The same when the last try did not reach anybody.
		first := true
		c.nodes[2] = func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
			if first {
				first = false
				return nil, errors.New("cut")
			}
			return nil, errRefused
		}
		got, took := c.produce(4711, 3*time.Second, 1)
		require.Equal(t, "r7[ 1=NETWORK_EXCEPTION ]", got)
		require.InDelta(t, 3*time.Second, took, float64(300*time.Millisecond))
	})
}

func TestFrozenLeader(t *testing.T) {
	for name, tc := range map[string]struct {
		producerID int64
		want       string
		took       time.Duration
	}{
		"without a producer id": {unsequenced, "r7[ 1=NETWORK_EXCEPTION ]", 11 * time.Second},
		"with a producer id":    {4711, "r7[ 1=3 ]", 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMoving(t)
				c.nodes[2], c.nodes[3] = frozen, c.leads(3)
				time.AfterFunc(9*time.Second, func() { c.put(2, metadata.BrokerFenced) })
				got, took := c.produce(tc.producerID, 30*time.Second, 1)
				require.Equal(t, tc.want, got)
				require.InDelta(t, tc.took, took, float64(500*time.Millisecond))
			})
		})
	}
}

// The time that the request gives bounds all.
func TestTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[2] = frozen
		got, took := c.produce(4711, 4*time.Second, 1)
		require.Equal(t, "r7[ 1=NETWORK_EXCEPTION ]", got)
		require.InDelta(t, 4*time.Second, took, float64(time.Second))

		c.nodes[2] = refuses
		got, took = c.produce(unsequenced, 4*time.Second, 1)
		require.Equal(t, "r7[ 1=LEADER_NOT_AVAILABLE ]", got, "nothing was sent: the outcome is known")
		require.InDelta(t, 4*time.Second, took, float64(time.Second))

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		req := produceRequest(produceTopic("r", topicID(7), 1))
		_, err := req.RequestWith(ctx, c.router)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// One of two leaders fails: the other is asked once, and each partition has its own answer.
func TestOneOfTwoLeadersFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[1], c.nodes[2], c.nodes[3] = c.leads(1), refuses, c.leads(3)
		time.AfterFunc(time.Second, func() { c.put(2, metadata.BrokerFenced) })
		got, took := c.produce(unsequenced, 5*time.Second, 0, 1, 2)
		require.Equal(t, "r7[ 0=1 1=3 2=3 ]", got)
		require.Equal(t, time.Second, took)
		require.Equal(t, 1, c.count(1))
		require.Equal(t, 2, c.count(3), "for its own partition, then for the one that moved there")
	})
}

// No leader in the image is waited out, without asking anybody.
func TestNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[1] = c.leads(1)
		c.put(2, metadata.BrokerFenced)
		c.put(3, metadata.BrokerFenced)
		c.put(1, metadata.BrokerFenced)
		require.Equal(t, metadata.NoLeader, c.machine.Image().Topic("r").Partitions[0].Leader)
		time.AfterFunc(3*time.Second, func() { c.put(1, metadata.BrokerActive) })
		got, took := c.produce(unsequenced, 5*time.Second, 0)
		require.Equal(t, "r7[ 0=1 ]", got)
		require.Equal(t, 3*time.Second, took)
		require.Equal(t, 1, c.count(1))
	})
}

// This node led and does no more: its own answer is tried again elsewhere.
func TestOwnLeadershipMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[1], c.nodes[2] = marked(codes(kerr.NotLeaderForPartition.Code)), c.leads(2)
		time.AfterFunc(100*time.Millisecond, func() { c.put(1, metadata.BrokerFenced) })
		got, took := c.produce(unsequenced, 5*time.Second, 0)
		require.Equal(t, "r7[ 0=2 ]", got)
		require.Equal(t, 100*time.Millisecond, took)
	})
}

func TestReadsAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.nodes[1] = offsetsNode(1)
		c.nodes[2] = frozen
		c.nodes[3] = offsetsNode(3)
		time.AfterFunc(9*time.Second, func() { c.put(2, metadata.BrokerFenced) })
		list := kmsg.NewPtrListOffsetsRequest()
		list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "r", Partitions: []kmsg.ListOffsetsRequestTopicPartition{
			{Partition: 0, CurrentLeaderEpoch: -1}, {Partition: 1, CurrentLeaderEpoch: -1},
		}}}
		start := time.Now()
		resp, err := list.RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, int64(1), resp.Topics[0].Partitions[0].Offset)
		require.Equal(t, int64(3), resp.Topics[0].Partitions[1].Offset)
		require.InDelta(t, 9*time.Second, time.Since(start), float64(300*time.Millisecond))
	})
}

func TestControllerMoves(t *testing.T) {
	create := func() *kmsg.CreateTopicsRequest {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new"}}
		return req
	}
	answer := func(code int16) requestor {
		return func(context.Context, kmsg.Request) (kmsg.Response, error) {
			resp := kmsg.NewPtrCreateTopicsResponse()
			resp.Topics = []kmsg.CreateTopicsResponseTopic{{Topic: "new", ErrorCode: code}}
			ktag.SetAppliedIndex(&resp.UnknownTags, 77)
			return resp, nil
		}
	}
	lead := func(c *moving, id int32) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leader = id
	}
	for name, tc := range map[string]struct {
		first requestor
		took  time.Duration
		err   string
	}{
		"refused":          {refuses, 2 * time.Second, ""},
		"not it any more":  {answer(kerr.NotController.Code), 2 * time.Second, ""},
		"may have done it": {cut, 0, "cut"},
		"frozen":           {frozen, 3 * time.Second, "no longer leads"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMoving(t)
				close(c.shown)
				lead(c, 2)
				c.nodes[1], c.nodes[2], c.nodes[3] = answer(kerr.NotController.Code), tc.first, answer(0)
				time.AfterFunc(time.Second, func() { lead(c, -1) })
				time.AfterFunc(2*time.Second, func() { lead(c, 3) })
				start := time.Now()
				resp, err := create().RequestWith(t.Context(), c.router)
				if tc.err != "" {
					require.ErrorContains(t, err, tc.err)
				} else {
					require.NoError(t, err)
					require.Zero(t, resp.Topics[0].ErrorCode)
					require.Equal(t, []uint64{77}, c.awaited)
				}
				require.InDelta(t, tc.took, time.Since(start), float64(400*time.Millisecond))
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		lead(c, -1)
		c.nodes[1] = answer(kerr.NotController.Code)
		start := time.Now()
		resp, err := create().RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, kerr.NotController.Code, resp.Topics[0].ErrorCode)
		require.InDelta(t, 15*time.Second, time.Since(start), float64(400*time.Millisecond))
	})
}

// Whoever is told of a change finds it on this node: the answer waits for it, but not for ever.
func TestAnswersOfTheControllerAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.mu.Lock()
		c.leader = 2
		c.mu.Unlock()
		c.nodes[2] = func(context.Context, kmsg.Request) (kmsg.Response, error) {
			resp := kmsg.NewPtrDeleteTopicsResponse()
			ktag.SetAppliedIndex(&resp.UnknownTags, 9)
			return resp, nil
		}
		time.AfterFunc(time.Second, func() { close(c.shown) })
		start := time.Now()
		_, err := kmsg.NewPtrDeleteTopicsRequest().RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))

		c.shown = make(chan struct{})
		start = time.Now()
		_, err = kmsg.NewPtrDeleteTopicsRequest().RequestWith(t.Context(), c.router)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

// A leader is told of its new ISR only when its node goes by the settings that the ISR was made by.
func TestAnswersToLeadersAreShownOrKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		c.mu.Lock()
		c.leader = 2
		c.mu.Unlock()
		c.nodes[2] = func(context.Context, kmsg.Request) (kmsg.Response, error) {
			resp := kmsg.NewPtrAlterPartitionResponse()
			ktag.SetAppliedIndex(&resp.UnknownTags, 9)
			return resp, nil
		}
		_, err := kmsg.NewPtrAlterPartitionRequest().RequestWith(t.Context(), c.router)
		require.ErrorContains(t, err, "has not heard of it yet")
		close(c.shown)
		_, err = kmsg.NewPtrAlterPartitionRequest().RequestWith(t.Context(), c.router)
		require.NoError(t, err)
	})
}

func TestLogDirsOfOneBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMoving(t)
		for id := int32(1); id <= 3; id++ {
			c.nodes[id] = func(context.Context, kmsg.Request) (kmsg.Response, error) {
				resp := kmsg.NewPtrDescribeLogDirsResponse()
				resp.Dirs = []kmsg.DescribeLogDirsResponseDir{{Dir: fmt.Sprint(id)}}
				return resp, nil
			}
		}
		c.nodes[3] = refuses
		ask := func(id int32) *kmsg.DescribeLogDirsResponse {
			req := kmsg.NewPtrDescribeLogDirsRequest()
			if id > 0 {
				ktag.SetBroker(&req.UnknownTags, id)
			}
			resp, err := req.RequestWith(t.Context(), c.router)
			require.NoError(t, err)
			return resp
		}
		require.Equal(t, "1", ask(0).Dirs[0].Dir)
		require.Equal(t, "1", ask(1).Dirs[0].Dir)
		require.Equal(t, "2", ask(2).Dirs[0].Dir)
		require.Equal(t, kerr.BrokerNotAvailable.Code, ask(3).ErrorCode)
		c.nodes[3] = frozen
		start := time.Now()
		require.Equal(t, kerr.BrokerNotAvailable.Code, ask(3).ErrorCode)
		require.Equal(t, 15*time.Second, time.Since(start))
	})
}
