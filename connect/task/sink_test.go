package task_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/task"
	"millrace/record"
	"millrace/server/servertest"
)

// outside is what sinks write to: values by partition, with the place that goes with them, as a database has them in
// one transaction. Whoever opened a partition last may write it.
type outside struct {
	mu     sync.Mutex
	epochs map[client.TopicPartition]int      // guarded by mu
	next   map[client.TopicPartition]int64    // guarded by mu
	values map[client.TopicPartition][]string // guarded by mu
	opens  []plugin.OpenPartition             // guarded by mu
	lost   int                                // guarded by mu: partitions that were closed since they were lost
	closed int                                // guarded by mu: others that were closed
	fenced int                                // guarded by mu
	empty  int                                // guarded by mu: batches without records
}

func newOutside() *outside {
	return &outside{
		epochs: map[client.TopicPartition]int{}, next: map[client.TopicPartition]int64{},
		values: map[client.TopicPartition][]string{},
	}
}

func (o *outside) count() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range o.values {
		n += len(v)
	}
	return n
}

func (o *outside) all() (out []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range slices.SortedFunc(maps.Keys(o.values), client.TopicPartition.Compare) {
		out = append(out, o.values[at]...)
	}
	return out
}

// ledger is a sink that keeps its own places, as one does that is to write each record once.
type ledger struct {
	o      *outside
	c      plugin.SinkContext
	epochs map[client.TopicPartition]int // guarded by o.mu: of what is open
	at     map[client.TopicPartition]int64
	fails  func(n int) error                // of the n-th put, before it; may be nil
	reject func(r *plugin.SinkRecord) error // may be nil
	puts   int
	props  map[string]string
}

var errLedger = errors.New("somebody else has the partition")

func (s *ledger) Start(_ context.Context, props map[string]string, c plugin.SinkContext) error {
	s.c, s.props, s.at = c, props, map[client.TopicPartition]int64{}
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.epochs = map[client.TopicPartition]int{}
	return nil
}

// holds is how many partitions are open.
func (s *ledger) holds() int {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	return len(s.epochs)
}

func (s *ledger) Open(_ context.Context, partitions []plugin.OpenPartition) error {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.o.opens = append(s.o.opens, partitions...)
	for _, p := range partitions {
		s.o.epochs[p.TopicPartition]++
		s.epochs[p.TopicPartition] = s.o.epochs[p.TopicPartition]
		next, ok := s.o.next[p.TopicPartition]
		if !ok {
			next = p.Start
		}
		s.at[p.TopicPartition] = next
		s.c.Seek(p.TopicPartition, next)
	}
	return nil
}

func (s *ledger) Put(ctx context.Context, b *plugin.SinkBatch) error {
	s.puts++
	if s.fails != nil {
		if err := s.fails(s.puts); err != nil {
			return err
		}
	}
	var good []*plugin.SinkRecord
	for _, r := range b.Records {
		if s.reject != nil {
			if err := s.reject(r); err != nil {
				if s.c.Report == nil {
					return err
				}
				if err := s.c.Report(ctx, r, err); err != nil {
					return err
				}
				continue
			}
		}
		good = append(good, r)
	}
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if len(b.Records) == 0 {
		s.o.empty++
	}
	for at := range b.Next {
		if s.o.epochs[at] != s.epochs[at] {
			s.o.fenced++
			return fmt.Errorf("%w: %v", errLedger, at)
		}
	}
	for _, r := range good {
		at := r.Origin.TopicPartition
		if r.Origin.Offset < s.at[at] {
			return fmt.Errorf("offset %d of %v came twice", r.Origin.Offset, at)
		}
		s.o.values[at] = append(s.o.values[at], fmt.Sprint(r.Value))
	}
	for at, next := range b.Next {
		s.o.next[at], s.at[at] = next, next
	}
	return nil
}

func (s *ledger) PreCommit(_ context.Context, current map[client.TopicPartition]int64) (
	map[client.TopicPartition]int64, error,
) {
	for at, n := range current {
		if n != s.at[at] {
			return nil, fmt.Errorf("the place of %v is %d, not %d", at, s.at[at], n)
		}
	}
	return current, nil
}

func (s *ledger) Close(_ context.Context, partitions []client.TopicPartition, lost bool) error {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	for _, at := range partitions {
		delete(s.epochs, at)
		delete(s.at, at)
	}
	if lost {
		s.o.lost += len(partitions)
	} else {
		s.o.closed += len(partitions)
	}
	return nil
}

func (s *ledger) Stop(context.Context) error { return nil }

func sinkSpec(make func() plugin.SinkTask, props ...string) task.Spec {
	return task.Spec{Class: class{sink: make}.of(plugin.SinkKind), Props: with(nil, props...)}
}

func (l *lab) committed(group, topic string, partition int32) int64 {
	l.t.Helper()
	at := client.TopicPartition{Topic: topic, Partition: partition}
	found, err := l.client.Committed(l.t.Context(), group, false, at)
	if err != nil || found[0].Err != nil {
		return -2
	}
	return found[0].Offset
}

func TestSinkReadsAndCommits(t *testing.T) {
	l := newLab(t)
	l.topic("in", 2)
	l.produce("in", 0, numbers(0, 500)...)
	l.produce("in", 1, numbers(500, 1000)...)
	o := newOutside()
	j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "in"))
	until(t, "all are written", func() bool { return o.count() == 1000 })
	require.Equal(t, numbers(0, 1000), o.all())
	until(t, "it is committed", func() bool {
		return l.committed("connect-c", "in", 0) == 500 && l.committed("connect-c", "in", 1) == 500
	})
	l.produce("in", 0, "more")
	until(t, "more is written", func() bool { return o.count() == 1001 })
	require.NoError(t, j.stop())
	require.Equal(t, int64(501), l.committed("connect-c", "in", 0), "what was written last is committed at the end")
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Equal(t, 2, o.closed)
	require.Zero(t, o.lost)
	topic, err := l.client.Topic(t.Context(), "in", client.Refuse)
	require.NoError(t, err)
	require.Len(t, o.opens, 2)
	for i, p := range o.opens {
		require.Equal(t, plugin.OpenPartition{
			TopicPartition: client.TopicPartition{Topic: "in", Partition: int32(i)},
			TopicID:        topic.ID, Committed: -1, Start: 0, End: 500,
		}, p)
	}
}

// plain is a sink that goes where the group is.
type plain struct {
	ledger
}

func (s *plain) Open(_ context.Context, partitions []plugin.OpenPartition) error {
	for _, p := range partitions {
		s.epochs[p.TopicPartition] = 0
		s.at[p.TopicPartition] = max(p.Committed, p.Start)
	}
	return nil
}

func TestSinkGoesOnFromGroup(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, numbers(0, 10)...)
	o := newOutside()
	make := func() plugin.SinkTask { return &plain{ledger{o: o}} }
	j := l.start(l.runner(), sinkSpec(make, "topics", "in"))
	until(t, "all are written and committed", func() bool {
		return o.count() == 10 && l.committed("connect-c", "in", 0) == 10
	})
	require.NoError(t, j.stop())
	l.produce("in", 0, numbers(10, 20)...)
	j = l.start(l.runner(), sinkSpec(make, "topics", "in"))
	until(t, "the rest is written", func() bool { return o.count() == 20 })
	require.NoError(t, j.stop())
	require.Equal(t, numbers(0, 20), o.all())
}

func TestSinkReset(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, numbers(0, 10)...)
	o := newOutside()
	make := func() plugin.SinkTask { return &plain{ledger{o: o}} }
	err := l.start(l.runner(), sinkSpec(make, "topics", "in", "consumer.override.auto.offset.reset", "none",
		"consumer.override.group.id", "g1")).wait()
	require.ErrorContains(t, err, "the group g1 has committed nothing for in-0")

	make = func() plugin.SinkTask { return &openSink{plain{ledger{o: o}}} }
	j := l.start(l.runner(), sinkSpec(make, "topics", "in", "consumer.override.auto.offset.reset", "latest"))
	until(t, "its place is committed", func() bool { return l.committed("connect-c", "in", 0) == 10 })
	l.produce("in", 0, "new")
	until(t, "it is written", func() bool { return o.count() == 1 })
	require.NoError(t, j.stop())
	require.Equal(t, []string{"new"}, o.all())
}

// openSink takes its place from the first batch.
type openSink struct{ plain }

func (s *openSink) PreCommit(_ context.Context, current map[client.TopicPartition]int64) (
	map[client.TopicPartition]int64, error,
) {
	return current, nil
}

// TestSinkPassesOverControlAndAborted has transactions in the topic.
func TestSinkPassesOverControlAndAborted(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	topic, err := l.client.Topic(t.Context(), "in", client.Refuse)
	require.NoError(t, err)
	p, err := l.client.InitTxn(t.Context(), client.TxnInit{ID: "t", Timeout: time.Minute})
	require.NoError(t, err)
	var want []string
	for i := range 20 {
		s := l.client.NewSender(topic, nil, 0, client.SendOptions{Acks: client.AcksAll, Timeout: time.Minute, Txn: &p})
		for k := range 5 {
			v := fmt.Sprint(i, ".", k)
			require.NoError(t, s.Add(record.Record{Value: []byte(v), Timestamp: 1}, 0))
			if i%3 == 0 {
				want = append(want, v)
			}
		}
		require.NoError(t, s.Send(t.Context()))
		require.NoError(t, s.Record(0).Err)
		s.Release()
		p, err = l.client.EndTxn(t.Context(), p, client.Decision(i%3 == 0))
		require.NoError(t, err)
	}
	o := newOutside()
	j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "in",
		"consumer.override.max.poll.records", "3"))
	until(t, "all is committed", func() bool { return l.committed("connect-c", "in", 0) == 120 })
	require.NoError(t, j.stop())
	require.Equal(t, want, o.all())
}

func TestSinkRetriesBatch(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, numbers(0, 10)...)
	o := newOutside()
	var seen [][]string
	s := &ledger{o: o}
	failing := &batches{SinkTask: s, before: func(b *plugin.SinkBatch) error {
		var of []string
		for _, r := range b.Records {
			of = append(of, r.Value.(string))
		}
		if len(of) > 0 {
			seen = append(seen, of)
		}
		if len(seen) < 3 && len(of) > 0 {
			return plugin.Retriable(soon{errors.New("not now")})
		}
		return nil
	}}
	j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return failing }, "topics", "in"))
	until(t, "all are written", func() bool { return o.count() == 10 })
	require.NoError(t, j.stop())
	require.Equal(t, numbers(0, 10), o.all())
	require.Equal(t, seen[0], seen[1])
	require.Equal(t, seen[0], seen[2])
}

// soon is an error that asks for a short wait.
type soon struct{ error }

func (soon) RetryAfter() time.Duration { return 10 * time.Millisecond }

// batches sees the batches of another sink before it does.
type batches struct {
	plugin.SinkTask
	before func(*plugin.SinkBatch) error
}

func (b *batches) Put(ctx context.Context, batch *plugin.SinkBatch) error {
	if err := b.before(batch); err != nil {
		return err
	}
	return b.SinkTask.Put(ctx, batch)
}

func TestSinkFailsAndSaysWhy(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, "a")
	gone := errors.New("no such table")
	err := l.start(l.runner(), sinkSpec(func() plugin.SinkTask {
		return &ledger{o: newOutside(), fails: func(int) error { return gone }}
	}, "topics", "in")).wait()
	require.ErrorIs(t, err, gone)
	require.NotEqual(t, int64(1), l.committed("connect-c", "in", 0))
}

func TestSinkByPattern(t *testing.T) {
	l := newLab(t)
	l.topic("a-1", 1)
	l.topic("b-1", 1)
	o := newOutside()
	j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics.regex", "a-.*"))
	l.produce("a-1", 0, "one")
	l.produce("b-1", 0, "other")
	until(t, "one is written", func() bool { return o.count() == 1 })
	l.topic("a-2", 1)
	l.produce("a-2", 0, "two")
	until(t, "two is written", func() bool { return o.count() == 2 })
	require.NoError(t, j.stop())
	require.Equal(t, []string{"one", "two"}, o.all())
}

// TestSinkKeepsItsPlacesWhenTasksComeAndGo has several tasks of one connector come and go while records arrive.
func TestSinkKeepsItsPlacesWhenTasksComeAndGo(t *testing.T) {
	l := newLab(t)
	const partitions, each = 6, 3000
	l.topic("in", partitions)
	o := newOutside()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var wg sync.WaitGroup
	wg.Go(func() {
		r := rand.New(rand.NewPCG(seed, 1))
		for i := 0; i < each; i += 20 {
			for p := range int32(partitions) {
				l.produce("in", p, numbers(i, i+20)...)
			}
			pause(r, 40)
		}
	})
	spec := sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "in",
		"consumer.override.max.poll.records", "50")
	runner := l.runner()
	var jobs []*job
	errs := 0
	limit := time.Now().Add(patience)
	for o.count() < partitions*each && time.Now().Before(limit) {
		spec.ID++
		jobs = append(jobs, l.start(runner, spec))
		pause(r, 200)
		for len(jobs) > 1 && r.IntN(2) == 0 {
			i := r.IntN(len(jobs))
			if err := jobs[i].stop(); err != nil {
				require.ErrorIs(t, err, errLedger)
				errs++
			}
			jobs = slices.Delete(jobs, i, i+1)
		}
	}
	for _, j := range jobs {
		if err := j.stop(); err != nil {
			require.ErrorIs(t, err, errLedger)
			errs++
		}
	}
	wg.Wait()
	require.Equal(t, partitions*each, o.count())
	spec.ID++
	last := l.start(runner, spec) // commits what others had no time for
	for at, v := range o.values {
		require.Equal(t, numbers(0, each), v, "%v", at)
		until(t, "all is committed", func() bool { return l.committed("connect-c", at.Topic, at.Partition) == each })
	}
	require.NoError(t, last.stop())
	t.Logf("%d opened, %d closed, %d lost, %d fenced, %d failed", len(o.opens), o.closed, o.lost, o.fenced, errs)
	require.Zero(t, errs, "no task fails when others come and go")
}

// TestSinkKeepsItsPlacesWhenNodesDie stops and starts nodes under two tasks.
func TestSinkKeepsItsPlacesWhenNodesDie(t *testing.T) {
	settings := clusterSettings()
	c := servertest.StartCluster(t, servertest.ClusterOptions{Broker: settings, Uncoded: true})
	l := labOn(t, c.Node(3).Requestor())
	l.topic("in", 4)
	o := newOutside()
	spec := sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "in")
	jobs := []*job{l.start(l.runner(), spec)}
	spec.ID = 1
	jobs = append(jobs, l.start(l.runner(), spec))
	src := l.start(l.runner(), sourceSpec(func() plugin.SourceTask {
		return &counter{limit: 1 << 30, most: 20, topic: "in", change: func(r *plugin.SourceRecord) { r.Key = r.Value }}
	}))
	for round := range 4 {
		id := 1 + round%2
		at := o.count()
		until(t, "it goes on", func() bool { return o.count() > at+100 })
		c.Stop(id)
		at = o.count()
		until(t, "it goes on without a node", func() bool { return o.count() > at+100 })
		c.Start(id)
	}
	require.NoError(t, src.stop())
	n := l.next()
	until(t, "all is written", func() bool { return o.count() >= n })
	for _, j := range jobs {
		require.NoError(t, j.stop())
	}
	seen := map[string]int{}
	for _, v := range o.all() {
		seen[v]++
	}
	for i := range n {
		require.Equal(t, 1, seen[strconv.Itoa(i)], "number %d", i)
	}
}

// TestSinkIsCalledWithNothing has its timers run.
func TestSinkIsCalledWithNothing(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	o := newOutside()
	target := newWanted()
	var puts atomic.Int32
	s := sinkSpec(func() plugin.SinkTask {
		return &batches{SinkTask: &ledger{o: o}, before: func(*plugin.SinkBatch) error {
			puts.Add(1)
			return nil
		}}
	}, "topics", "in")
	s.Target = target.get
	j := l.start(l.runner(), s)
	until(t, "it is called", func() bool { return puts.Load() >= 2 })
	target.set(true)
	until(t, "it is paused", target.reached)
	before := puts.Load()
	l.produce("in", 0, "a")
	<-time.After(1200 * time.Millisecond)
	require.Equal(t, before, puts.Load())
	require.Zero(t, o.count())
	target.set(false)
	until(t, "it goes on", func() bool { return o.count() == 1 })
	require.NoError(t, j.stop())
}
