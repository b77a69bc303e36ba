package wire_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server"
	"millrace/server/servertest"
)

// The scripts here are run by consumers of franz-go twice: against a node of ours, and against kfake, which their
// authors wrote. What came of each must be what is expected, of both.

const (
	topic      = "t"
	partitions = 6
	limit      = 60 * time.Second      // of each wait
	between    = 10 * time.Millisecond // two tries
	// session is longer than a machine halts that has much to do; that of members that are killed is a short one, which
	// has to end before the others get what they had.
	session      = 20 * time.Second
	shortSession = 3 * time.Second
)

// settings make groups quick.
func settings() map[string]string {
	return map[string]string{"group.min.session.timeout.ms": "1000"}
}

// impatient has consumers of the newer protocol send heartbeats often: brokers allow no less than five seconds.
type impatient struct{ kmsg.Requestor }

func (i impatient) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	resp, err := i.Requestor.Request(ctx, r)
	if beat, ok := resp.(*kmsg.ConsumerGroupHeartbeatResponse); ok && err == nil {
		beat.HeartbeatIntervalMillis = 100
	}
	return resp, err
}

// brokers starts what the scripts run against, each with a topic.
func brokers(t *testing.T) map[string]string {
	node := servertest.Start(t, servertest.Options{Change: func(c *server.Config) {
		c.Broker = settings()
		c.Broker["group.initial.rebalance.delay.ms"] = "200"
		c.Broker["group.consumer.assignment.interval.ms"] = "0"
	}})
	makeTopic(t, node.Requestor())
	quick := settings()
	quick["group.consumer.heartbeat.interval.ms"] = "100"
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic),
		kfake.BrokerConfigs(quick), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	return map[string]string{
		"ours": start(t, impatient{node.Requestor()}).Addr(), "kfake": fake.ListenAddrs()[0],
	}
}

// makeTopic makes the topic that the scripts are about.
func makeTopic(t *testing.T, to kmsg.Requestor) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(limit.Milliseconds())
	in := kmsg.NewCreateTopicsRequestTopic()
	in.Topic, in.NumPartitions, in.ReplicationFactor = topic, partitions, -1
	req.Topics = append(req.Topics, in)
	var err error
	for start := time.Now(); ; {
		var resp *kmsg.CreateTopicsResponse
		if resp, err = req.RequestWith(t.Context(), to); err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) || !kerr.IsRetriable(err) || time.Since(start) > limit {
			break
		}
		<-time.After(between)
	}
	if !errors.Is(err, kerr.TopicAlreadyExists) { // by a try of which that was not known
		require.NoError(t, err)
	}
}

// world is what a script runs in.
type world struct {
	t    *testing.T
	addr string
	opts []kgo.Opt // of the consumers

	members []*consumer

	mu   sync.Mutex
	read map[string]int // guarded by mu: how often each record was read
	sent int            // guarded by mu
}

// consumer is one member, and what it owns.
type consumer struct {
	world  *world
	name   string
	client *kgo.Client
	stop   context.CancelFunc
	done   sync.WaitGroup
	dead   atomic.Bool

	mu      sync.Mutex
	owned   map[int32]bool // guarded by mu
	changes int            // guarded by mu: how often that was told to change
	lost    []int32        // guarded by mu: what was taken away, ever

	connsMu sync.Mutex
	conns   []net.Conn // guarded by connsMu
}

// consume starts a member.
func (w *world) consume(name string, opts ...kgo.Opt) *consumer {
	c := &consumer{world: w, name: name, owned: make(map[int32]bool)}
	gone := func(_ context.Context, _ *kgo.Client, of map[string][]int32) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, p := range of[topic] {
			delete(c.owned, p)
			c.lost = append(c.lost, p)
		}
		c.changes++
	}
	all := append([]kgo.Opt{
		kgo.SeedBrokers(w.addr), kgo.ClientID(name), kgo.Dialer(c.dial),
		kgo.ConsumerGroup("g"), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.RebalanceTimeout(session), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, of map[string][]int32) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, p := range of[topic] {
				c.owned[p] = true
			}
			c.changes++
		}),
		kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone), kgo.AutoCommitInterval(100 * time.Millisecond),
	}, w.opts...)
	client, err := kgo.NewClient(append(all, opts...)...)
	require.NoError(w.t, err)
	c.client = client
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.done.Go(func() { c.poll(ctx) })
	w.members = append(w.members, c)
	w.t.Cleanup(c.kill)
	return c
}

// dial connects, unless the member is dead.
func (c *consumer) dial(ctx context.Context, network, host string) (net.Conn, error) {
	if c.dead.Load() {
		return nil, errors.New("dead")
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, host)
	if err == nil {
		c.connsMu.Lock()
		c.conns = append(c.conns, conn)
		c.connsMu.Unlock()
	}
	return conn, err
}

func (c *consumer) poll(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := c.client.PollFetches(ctx)
		c.world.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) { c.world.read[string(r.Value)]++ })
		c.world.mu.Unlock()
	}
}

// leave ends a member in order.
func (c *consumer) leave() {
	c.stop()
	c.done.Wait()
	c.client.Close()
	c.dead.Store(true)
}

// kill ends a member as a power cut does: nobody hears of it.
func (c *consumer) kill() {
	if c.dead.Swap(true) {
		return
	}
	c.connsMu.Lock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.connsMu.Unlock()
	c.stop()
	c.done.Wait()
	c.world.t.Logf("%s is dead", c.name)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = c.client.LeaveGroupContext(ctx) // which cannot reach anybody
	c.client.Close()
}

// has is what the member owns.
func (c *consumer) has() []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.owned))
}

func (c *consumer) disturbed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

// share waits until the members have so many partitions each, in whatever order, and all of them together.
func (w *world) share(counts []int, members ...*consumer) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var got []int
		all := make(map[int32]bool)
		for _, c := range members {
			has := c.has()
			got = append(got, len(has))
			for _, p := range has {
				all[p] = true
			}
		}
		slices.Sort(got)
		return slices.Equal(got, counts) && len(all) == partitions
	}, limit, 5*time.Millisecond, "shares of the members")
}

// produce sends records to all partitions, waits until each was read, and has the members commit that.
func (w *world) produce() {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(w.t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	var records []*kgo.Record
	for i := range 5 * partitions {
		w.mu.Lock()
		w.sent++
		value := fmt.Sprint("record ", w.sent)
		w.mu.Unlock()
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: []byte(value)})
	}
	require.NoError(w.t, client.ProduceSync(ctx, records...).FirstErr())
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.read) == w.sent
	}, limit, 5*time.Millisecond, "records are read")
	for _, c := range w.members {
		if !c.dead.Load() {
			c.commit()
		}
	}
}

// commit commits what the member has read. While the group shares out anew it may have to wait with that.
func (c *consumer) commit() {
	t := c.world.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := c.client.CommitUncommittedOffsets(ctx)
	for errors.Is(err, kerr.RebalanceInProgress) && ctx.Err() == nil {
		<-time.After(between)
		err = c.client.CommitUncommittedOffsets(ctx)
	}
	require.NoError(t, err)
}

// once checks that no record was read twice.
func (w *world) once() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for value, n := range w.read {
		require.Equal(w.t, 1, n, value)
	}
}

// both runs a script against all brokers. What comes of it is what is wanted of all, or of us and of kfake; empty where
// that differs from run to run.
func both(t *testing.T, opts []kgo.Opt, script func(w *world) string, want ...string) {
	t.Parallel()
	wanted := map[string]string{"ours": want[0], "kfake": want[len(want)-1]}
	for name, addr := range brokers(t) {
		t.Run(name, func(t *testing.T) {
			came := script(&world{t: t, addr: addr, opts: opts, read: make(map[string]int)})
			if wanted[name] != "" {
				require.Equal(t, wanted[name], came)
			}
		})
	}
}

// leaveAndKill has members share, leave, come and die, and every record read.
func leaveAndKill(w *world) string {
	a, b := w.consume("a"), w.consume("b")
	w.share([]int{3, 3}, a, b)
	w.produce()
	w.once()
	b.leave()
	w.share([]int{6}, a)
	w.produce()
	w.once()
	c := w.consume("c", kgo.SessionTimeout(shortSession))
	w.share([]int{3, 3}, a, c)
	w.produce()
	began := time.Now()
	c.kill()
	w.share([]int{6}, a)
	require.Less(w.t, time.Since(began), session, "its own session is shorter than those of others")
	w.produce()
	return "3+3, 6, 3+3, 6"
}

func TestEagerGroups(t *testing.T) {
	both(t, []kgo.Opt{kgo.Balancers(kgo.RangeBalancer(), kgo.RoundRobinBalancer())}, leaveAndKill, "3+3, 6, 3+3, 6")
}

func TestStickyGroups(t *testing.T) {
	both(t, []kgo.Opt{kgo.Balancers(kgo.StickyBalancer())}, leaveAndKill, "3+3, 6, 3+3, 6")
}

// Cooperative members give up what others get, and nothing else.
func TestCooperativeGroups(t *testing.T) {
	both(t, []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}, func(w *world) string {
		a := w.consume("a")
		w.share([]int{6}, a)
		w.produce()
		b := w.consume("b")
		w.share([]int{3, 3}, a, b)
		a.mu.Lock()
		lost := len(a.lost)
		a.mu.Unlock()
		w.produce()
		w.once()
		b.leave()
		w.share([]int{6}, a)
		w.produce()
		w.once()
		a.mu.Lock()
		defer a.mu.Unlock()
		return fmt.Sprintf("gave up %d, and %d after all", lost, len(a.lost))
	}, "gave up 3, and 3 after all")
}

// A static member that starts again within its session takes its own place, and nobody is disturbed. As in Kafka that
// goes for the leader too, and for one that says something new to the others in the same protocol, as consumers do that
// owned something before; kfake may have all join again then.
func TestStaticGroups(t *testing.T) {
	opts := []kgo.Opt{kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(2 * shortSession)} // for one is killed
	both(t, opts, func(w *world) string {
		a, b := w.consume("a", kgo.InstanceID("a")), w.consume("b", kgo.InstanceID("b"))
		w.share([]int{3, 3}, a, b)
		w.produce()
		before, disturbed := b.has(), a.disturbed()
		b.leave() // which a static member does not do
		b = w.consume("b again", kgo.InstanceID("b"))
		w.share([]int{3, 3}, a, b)
		w.produce()
		require.Equal(w.t, before, b.has())
		out := fmt.Sprintf("disturbed: %v", a.disturbed() != disturbed)

		before, disturbed = a.has(), b.disturbed()
		a.kill() // the leader
		a = w.consume("a again", kgo.InstanceID("a"))
		w.share([]int{3, 3}, a, b)
		require.Equal(w.t, before, a.has())
		out += fmt.Sprintf(", %v", b.disturbed() != disturbed)
		a.kill()
		w.share([]int{6}, b)
		w.produce()
		return out + ", 6"
	}, "disturbed: false, false, 6", "")
}

// The newer protocol, in which the broker assigns.
func TestConsumerProtocolGroups(t *testing.T) {
	balancers := map[string]kgo.GroupBalancer{"uniform": kgo.StickyBalancer(), "range": kgo.RangeBalancer()}
	for name, balancer := range balancers {
		t.Run(name, func(t *testing.T) {
			both(t, []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(balancer)}, func(w *world) string {
				a := w.consume("a")
				w.share([]int{6}, a)
				b := w.consume("b")
				w.share([]int{3, 3}, a, b)
				w.produce()
				w.once()
				b.leave()
				w.share([]int{6}, a)
				w.produce()
				return "6, 3+3, 6"
			}, "6, 3+3, 6")
		})
	}
}
