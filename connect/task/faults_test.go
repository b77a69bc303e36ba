package task_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/task"
	"millrace/server/servertest"
)

// lossy is a requestor that loses requests and answers of some kinds.
type lossy struct {
	to kmsg.Requestor

	mu     sync.Mutex
	rand   *rand.Rand        // guarded by mu
	chance map[int16]int     // guarded by mu: of 100, by key
	lost   map[int16]*[2]int // guarded by mu: requests and answers, by key
}

func newLossy(to kmsg.Requestor, seed uint64) *lossy {
	return &lossy{to: to, rand: rand.New(rand.NewPCG(seed, 9)), chance: map[int16]int{}, lost: map[int16]*[2]int{}}
}

var errWire = errors.New("the wire is cut")

func (l *lossy) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	before, after := l.draw(req.Key())
	if before {
		return nil, errWire
	}
	resp, err := l.to.Request(ctx, req)
	if after {
		return nil, errWire
	}
	return resp, err
}

func (l *lossy) draw(key int16) (before, after bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chance := l.chance[key]
	if chance == 0 {
		return false, false
	}
	n := l.lost[key]
	if n == nil {
		n = &[2]int{}
		l.lost[key] = n
	}
	switch {
	case l.rand.IntN(100) >= chance:
	case l.rand.IntN(2) == 0 || chance == 100:
		before = true
		n[0]++
	default:
		after = true
		n[1]++
	}
	return before, after
}

func (l *lossy) set(chance int, keys ...kmsg.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		l.chance[int16(k)] = chance
	}
}

// on makes a runner that has its requests go another way.
func (l *lab) on(r kmsg.Requestor) *task.Runner { return l.runner(over(r)) }

func over(r kmsg.Requestor) func(*task.Options) {
	return func(o *task.Options) {
		o.Requests, o.Client = r, client.New(r, client.Options{MetadataTTL: 10 * time.Millisecond})
	}
}

// TestExactlyOnceWhenAnswersAreLost loses requests and answers of all kinds that a source makes, while it is run anew.
func TestExactlyOnceWhenAnswersAreLost(t *testing.T) {
	l := newLab(t)
	l.topic("numbers", 2)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	wire := newLossy(l.requests, seed)
	wire.set(20, kmsg.Produce, kmsg.EndTxn, kmsg.InitProducerID, kmsg.Metadata, kmsg.DescribeConfigs)
	runner := l.on(wire)
	const limit = 5000
	make := func() plugin.SourceTask {
		return &counter{limit: limit, most: 30, rand: rand.New(rand.NewPCG(seed, 1)), change: func(r *plugin.SourceRecord) {
			r.Key = r.Value
		}}
	}
	begun := time.Now()
	for l.next() < limit {
		require.Less(t, time.Since(begun), patience)
		j := l.start(runner, sourceSpec(make))
		pause(r, 2000)
		if err := j.stop(); err != nil {
			require.ErrorIs(t, err, errWire)
		}
	}
	j := l.start(l.runner(), sourceSpec(make)) // ends what is open
	until(t, "nothing is open", func() bool {
		txn, err := l.client.DescribeTxn(t.Context(), "workers-c-0")
		return err == nil && txn.State != client.TxnOngoing && txn.State != client.TxnPrepareCommit
	})
	require.NoError(t, j.stop())
	seen := map[string]int{}
	for _, v := range values(l.read("numbers")) {
		seen[v]++
	}
	require.Len(t, seen, limit)
	for n, count := range seen {
		require.Equal(t, 1, count, "number %s", n)
	}
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.EndTxn} {
		require.Positive(t, wire.lost[int16(key)][1], "answers of %s were lost", kmsg.NameForKey(int16(key)))
	}
	for key, n := range wire.lost {
		t.Logf("%s: %d requests and %d answers were lost", kmsg.NameForKey(key), n[0], n[1])
	}
}

// TestTransactionThatTimesOut has the cluster abort a transaction under a source: it starts anew from what is stored.
func TestTransactionThatTimesOut(t *testing.T) {
	l := newLab(t)
	l.topic("numbers", 1)
	wire := newLossy(l.requests, 1)
	var cut atomic.Bool
	make := func() plugin.SourceTask {
		return &counter{limit: 1 << 30, most: 5, polls: func(from int) {
			if from > 20 && cut.CompareAndSwap(false, true) {
				wire.set(100, kmsg.EndTxn)
			}
		}}
	}
	j := l.start(l.on(wire), sourceSpec(make, "producer.override.transaction.timeout.ms", "1000"))
	until(t, "its commits get lost", cut.Load)
	until(t, "the transaction is aborted", func() bool {
		txn, err := l.client.DescribeTxn(t.Context(), "workers-c-0")
		return err == nil && txn.State == client.TxnCompleteAbort
	})
	at := l.next()
	wire.set(0, kmsg.EndTxn)
	until(t, "it goes on", func() bool { return l.next() > at+50 })
	require.NoError(t, j.stop())
	got := values(l.read("numbers"))
	require.Equal(t, numbers(0, l.next()), got)
}

// TestSinkThatLosesItsPlace keeps a task's heartbeats from its group for longer than a session.
func TestSinkThatLosesItsPlace(t *testing.T) {
	l := newLab(t)
	l.topic("in", 2)
	wire := newLossy(l.requests, 1)
	o := newOutside()
	one, two := &ledger{o: o}, &ledger{o: o}
	runner := func(r kmsg.Requestor) *task.Runner {
		return l.runner(over(r), func(o *task.Options) { o.Session = 3 * time.Second })
	}
	spec := sinkSpec(func() plugin.SinkTask { return one }, "topics", "in")
	first := l.start(runner(wire), spec)
	l.produce("in", 0, numbers(0, 10)...)
	l.produce("in", 1, numbers(0, 10)...)
	until(t, "all is written", func() bool { return o.count() == 20 })
	wire.set(100, kmsg.ConsumerGroupHeartbeat)
	spec = sinkSpec(func() plugin.SinkTask { return two }, "topics", "in")
	spec.ID = 1
	second := l.start(runner(l.requests), spec)
	until(t, "another task has all", func() bool { return two.holds() == 2 })
	l.produce("in", 0, numbers(10, 20)...)
	l.produce("in", 1, numbers(10, 20)...)
	until(t, "it writes, and nobody else does", func() bool { return o.count() == 40 })
	wire.set(0, kmsg.ConsumerGroupHeartbeat)
	until(t, "the first has lost a part", func() bool { // it may have given one up in order, by a heartbeat under way
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.lost > 0
	})
	until(t, "each has a part", func() bool { return one.holds() == 1 && two.holds() == 1 })
	l.produce("in", 0, numbers(20, 30)...)
	l.produce("in", 1, numbers(20, 30)...)
	until(t, "both write", func() bool { return o.count() == 60 })
	for _, j := range []*job{first, second} {
		require.NoError(t, j.stop())
	}
	for _, v := range o.values {
		require.Equal(t, numbers(0, 30), v)
	}
}

// TestSinkThroughFaults loses what a sink asks for, and its commits.
func TestSinkThroughFaults(t *testing.T) {
	l := newLab(t)
	l.topic("in", 2)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	wire := newLossy(l.requests, seed)
	wire.set(30, kmsg.Fetch, kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.ListOffsets, kmsg.ConsumerGroupHeartbeat,
		kmsg.Metadata)
	o := newOutside()
	j := l.start(l.on(wire), sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "in"))
	for i := 0; i < 1000; i += 20 {
		l.produce("in", int32(i/20%2), numbers(i, i+20)...)
	}
	until(t, "all is written", func() bool { return o.count() == 1000 })
	wire.set(0, kmsg.OffsetCommit)
	require.NoError(t, j.stop())
	seen := map[string]bool{}
	for _, v := range o.all() {
		require.False(t, seen[v])
		seen[v] = true
	}
}

// slow is a source task that can be started, and waits.
type slow struct{ counter }

func (s *slow) Poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	<-ctx.Done()
	return []*plugin.SourceRecord{{Record: data.Record{Topic: "numbers", Value: "late"}}}, nil
}

func TestStopDuringPoll(t *testing.T) {
	l := newLab(t)
	s := &slow{}
	running := make(chan struct{})
	spec := sourceSpec(func() plugin.SourceTask { return s })
	spec.Running = func() { close(running) }
	j := l.start(l.runner(), spec)
	j.reaches(running)
	require.NoError(t, j.stop())
	require.True(t, s.stopped)
	require.Empty(t, l.read("numbers"))
}

// moving is a requestor whose node may be another one after a while. What is under way then is cut off.
type moving struct {
	mu   sync.Mutex
	to   kmsg.Requestor  // guarded by mu
	life context.Context // guarded by mu: of the way to it
	end  func()          // guarded by mu
}

func (m *moving) set(r kmsg.Requestor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.to = r; m.end != nil {
		m.end()
	}
	m.life, m.end = context.WithCancel(context.Background())
}

func (m *moving) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	m.mu.Lock()
	to, life := m.to, m.life
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	resp, err := to.Request(ctx, req)
	if life.Err() != nil {
		return nil, errWire
	}
	return resp, err
}

// dead is the way to no node.
type dead struct{}

func (dead) Request(context.Context, kmsg.Request) (kmsg.Response, error) { return nil, errWire }

// TestExactlyOnceThroughPowerCuts takes the power of a node from under a source and a sink.
func TestExactlyOnceThroughPowerCuts(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: brokerSettings(), Disk: servertest.NewDisk()})
	m := &moving{}
	m.set(n.Requestor())
	l := labOn(t, m)
	l.topic("numbers", 3)
	o := newOutside()
	src := l.start(l.runner(), sourceSpec(func() plugin.SourceTask {
		return &counter{limit: 1 << 30, most: 20, change: func(r *plugin.SourceRecord) { r.Key = r.Value }}
	}))
	sink := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "numbers"))
	flow := func() {
		at := o.count()
		until(t, "records come through", func() bool {
			src.lives()
			sink.lives()
			return o.count() > at+100
		})
	}
	for _, mode := range servertest.Modes() {
		flow()
		m.set(dead{})
		n.Crash(mode)
		m.set(n.Requestor())
	}
	flow()
	require.NoError(t, src.stop())
	count := len(l.read("numbers"))
	require.Equal(t, l.next(), count)
	until(t, "all is written", func() bool { return o.count() >= count })
	require.NoError(t, sink.stop())
	seen := map[string]bool{}
	for _, v := range o.all() {
		require.False(t, seen[v], "number %s", v)
		seen[v] = true
	}
	for _, v := range numbers(0, count) {
		require.True(t, seen[v], "number %s", v)
	}
}
