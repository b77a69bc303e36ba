package consumer_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"millrace/client"
	"millrace/consumer"
)

// expel takes a member out of its group behind its back.
func (e *env) expel(group, member string) {
	e.t.Helper()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = group, member, -1
	resp, err := req.RequestWith(e.t.Context(), e.node.Requestor())
	require.NoError(e.t, err)
	require.Zero(e.t, resp.ErrorCode)
}

// A member that the group went on without is told so once, and is no more.
func TestFenced(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, "1")
	m := e.members()
	c := consumer.Config{ID: "k", Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true}
	for name, call := range map[string]func(k *consumer.Member) error{
		"poll": func(k *consumer.Member) error { // before the news comes it may rightly hand out what is there
			for {
				p, err := k.Poll(t.Context(), consumer.PollRequest{Wait: limit})
				if err != nil {
					return err
				}
				p.Free()
			}
		},
		"commit": func(k *consumer.Member) error {
			_, err := k.Commit(t.Context(), []consumer.Offset{{TopicPartition: tp("t", 0), Offset: 1}})
			return err
		},
		"subscribe": func(k *consumer.Member) error { return k.Subscribe(t.Context(), []string{"t", "u"}, "") },
	} {
		k := e.join(m, c)
		e.assignment(k, 1)
		e.expel("g", "k")
		require.ErrorIs(t, call(k), consumer.ErrFenced, name)
		require.ErrorIs(t, call(k), consumer.ErrUnknownMember, name)
		_, err := m.Find(t.Context(), "g", "k")
		require.ErrorIs(t, err, consumer.ErrUnknownMember, name)
	}
	require.Equal(t, int64(-1), e.committed("g", "t", 0), "nothing of it counts")
}

// One that rejoins by itself goes on from what is committed.
func TestRejoin(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 3)...)
	k := e.join(e.members(), consumer.Config{
		ID: "k", Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true, Rejoin: true,
	})
	require.Equal(t, numbers(0, 3), e.read(k, 3))
	e.expel("g", "k")
	require.Equal(t, numbers(0, 3), e.read(k, 3))
	require.Empty(t, e.poll(k, consumer.PollRequest{}))
	require.Equal(t, int64(3), e.committed("g", "t", 0))
}

// Answers of the coordinator that are lost, and coordinators that move, do no harm.
func TestCoordinatorTroubles(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 2)
	e.put("t", 0, numbers(0, 3)...)
	e.put("t", 1, numbers(3, 6)...)
	var n atomic.Int64
	s := &spoiled{Requestor: e.node.Requestor()}
	s.answer = func(r kmsg.Request) (kmsg.Response, error) {
		req, ok := r.(*kmsg.ConsumerGroupHeartbeatRequest)
		if !ok || req.MemberEpoch <= 0 {
			return nil, nil
		}
		switch n.Add(1) % 4 {
		case 0: // the answer is lost
			if _, err := e.node.Requestor().Request(t.Context(), r); err != nil {
				return nil, err
			}
			return nil, client.ErrNoAnswer
		case 2:
			resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
			resp.ErrorCode = kerr.NotCoordinator.Code
			return resp, nil
		}
		return nil, nil
	}
	m := e.members(func(o *consumer.Options) { o.Requests = s })
	c := consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true, Session: 10 * time.Second}
	a := e.join(m, c)
	require.Len(t, e.read(a, 6), 6)
	require.Empty(t, e.poll(a, consumer.PollRequest{}))
	b := e.join(m, c)
	e.assignment(a, 1)
	e.assignment(b, 1)
	e.put("t", 0, "7")
	e.put("t", 1, "7")
	require.Equal(t, []string{"7"}, e.read(a, 1))
	require.Equal(t, []string{"7"}, e.read(b, 1))
	require.NoError(t, b.Leave(t.Context(), nil))
	e.assignment(a, 2)
	require.Empty(t, e.poll(a, consumer.PollRequest{Wait: 100 * time.Millisecond}))
}

// A node that does not coordinate the group any more gives its members up without taking them out of the group, and the
// one that does takes them over.
func TestMovesWithTheCoordinator(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 4)...)
	var here atomic.Bool
	here.Store(true)
	m := e.members(func(o *consumer.Options) { o.Local = func(string) bool { return here.Load() } })
	c := consumer.Config{
		ID: "k", Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true,
	}
	k := e.join(m, c)
	e.assignment(k, 1)
	require.Equal(t, numbers(0, 2), e.poll(k, consumer.PollRequest{MaxRecords: 2}))
	require.Equal(t, numbers(2, 4), e.poll(k, consumer.PollRequest{MaxRecords: 2}))
	here.Store(false)
	_, err := k.Poll(t.Context(), consumer.PollRequest{Wait: limit, More: true})
	require.ErrorIs(t, err, consumer.ErrMoved)
	require.Eventually(t, func() bool { return m.Count() == 0 }, limit, time.Millisecond)
	_, err = m.Find(t.Context(), "g", "k")
	require.ErrorIs(t, err, consumer.ErrMoved)
	k, err = e.members().Find(t.Context(), "g", "k")
	require.NoError(t, err)
	require.Equal(t, numbers(2, 4), e.read(k, 2), "the client had not come back from these")
}

func TestBoundsOfMembers(t *testing.T) {
	e := newEnv(t)
	m := e.members(func(o *consumer.Options) { o.MaxMembers = 1 })
	for name, c := range map[string]consumer.Config{
		"no group":      {},
		"long group":    {Group: string(make([]byte, 256))},
		"long id":       {Group: "g", ID: string(make([]byte, 256))},
		"odd id":        {Group: "g", ID: "\xff"},
		"short lease":   {Group: "g", Lease: time.Millisecond},
		"long lease":    {Group: "g", Lease: time.Hour},
		"short session": {Group: "g", Session: time.Millisecond},
		"many topics":   {Group: "g", Topics: numbers(0, consumer.MaxTopics+1)},
		"bad topic":     {Group: "g", Topics: []string{".."}},
		"long pattern":  {Group: "g", Pattern: string(make([]byte, 1025))},
		"bad pattern":   {Group: "g", Pattern: "a("},
	} {
		_, err := m.Join(t.Context(), c)
		var k *client.KafkaError
		require.ErrorAs(t, err, &k, name)
	}
	require.Eventually(t, func() bool { return m.Count() == 0 }, limit, time.Millisecond)
	k := e.join(m, consumer.Config{Topics: []string{"t"}})
	_, err := m.Join(t.Context(), consumer.Config{Group: "g"})
	require.ErrorIs(t, err, consumer.ErrTooMany)
	require.ErrorIs(t, k.Subscribe(t.Context(), nil, "b("), consumer.ErrSubscribedOtherwise)
	require.NoError(t, k.Unsubscribe(t.Context()))
	require.ErrorIs(t, k.Subscribe(t.Context(), nil, "b("), kerr.InvalidRegularExpression)
	topics, pattern := k.Subscription()
	require.Empty(t, topics)
	require.Empty(t, pattern)
}

func TestResetNone(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 3)...)
	k := e.join(e.members(), consumer.Config{Topics: []string{"t"}, Reset: consumer.None})
	_, err := k.Poll(t.Context(), consumer.PollRequest{Wait: limit})
	var none *consumer.NoOffsetError
	require.ErrorAs(t, err, &none)
	require.Equal(t, int64(-1), none.Offset)
	require.NoError(t, k.Seek(t.Context(), consumer.Offset{TopicPartition: tp("t", 0), Offset: 77}))
	_, err = k.Poll(t.Context(), consumer.PollRequest{Wait: limit})
	require.ErrorAs(t, err, &none)
	require.Equal(t, int64(77), none.Offset)
	require.NoError(t, k.Seek(t.Context(), consumer.Offset{TopicPartition: tp("t", 0), Offset: 1}))
	require.Equal(t, numbers(1, 3), e.read(k, 2))
}

// A position outside the log is where Reset says.
func TestOffsetOutOfRange(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 3)...)
	k := e.join(e.members(), consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest})
	e.assignment(k, 1)
	require.NoError(t, k.Seek(t.Context(), consumer.Offset{TopicPartition: tp("t", 0), Offset: 77}))
	require.Equal(t, numbers(0, 3), e.read(k, 3))
}

// The same on a test double of Kafka, whose coordinator knows nothing of what Millrace adds.
func TestOnKafka(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "t"),
		kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "100"}))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	v := kversion.Stable()
	v.SetMaxKeyVersion(8, 9)
	v.SetMaxKeyVersion(9, 9)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.MaxVersions(v),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	e := &env{t: t, client: client.New(cl.Broker(0), client.Options{})}
	m := consumer.New(consumer.Options{Client: e.client, Requests: cl.Broker(0)})
	t.Cleanup(m.Close)
	for i, n := range numbers(0, 40) {
		r := kgo.Record{Topic: "t", Partition: int32(i % 4), Value: []byte(n)}
		require.NoError(t, cl.ProduceSync(t.Context(), &r).FirstErr())
	}
	cfg := consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true}
	a := e.join(m, cfg)
	got := e.read(a, 40)
	require.ElementsMatch(t, numbers(0, 40), got)
	b := e.join(m, cfg)
	require.Empty(t, e.poll(a, consumer.PollRequest{}))
	e.assignment(a, 2)
	e.assignment(b, 2)
	for p := range int32(4) {
		r := kgo.Record{Topic: "t", Partition: p, Value: []byte("x")}
		require.NoError(t, cl.ProduceSync(t.Context(), &r).FirstErr())
	}
	require.Equal(t, []string{"x", "x"}, e.read(b, 2))
	require.NoError(t, b.Leave(t.Context(), nil))
	e.assignment(a, 4)
	require.Equal(t, []string{"x", "x"}, e.read(a, 2))
	require.Empty(t, e.poll(a, consumer.PollRequest{}))
	for p := range int32(4) {
		require.Equal(t, int64(11), e.committed("g", "t", p))
	}
}
