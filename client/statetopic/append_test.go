package statetopic_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/client/statetopic"
	"millrace/server/servertest"
)

const topic = "state"

// sums is a Fold: the newest value of each key.
type sums struct {
	taking map[string]string // of the reading goroutine alone

	mu    sync.Mutex
	shown map[string]string // guarded by mu
	place *statetopic.Place // guarded by mu
}

// Renew implements statetopic.Fold.
func (s *sums) Renew() { s.taking = map[string]string{} }

// Take implements statetopic.Fold.
func (s *sums) Take(records []statetopic.Record) {
	for i := range records {
		s.taking[string(records[i].Key)] = string(records[i].Value)
	}
}

// Show implements statetopic.Fold.
func (s *sums) Show(at *statetopic.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown, s.place = maps.Clone(s.taking), at
}

func (s *sums) get() (map[string]string, *statetopic.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown, s.place
}

// link is a way to the cluster that a test can disturb. What fault returns is the answer, unless it is nil; it may call
// the cluster itself.
type link struct {
	to    kmsg.Requestor
	fault atomic.Pointer[func(context.Context, kmsg.Request) (kmsg.Response, error)]
}

var errLost = errors.New("lost")

// Request implements kmsg.Requestor.
func (l *link) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if fault := l.fault.Load(); fault != nil {
		if resp, err := (*fault)(ctx, r); resp != nil || err != nil {
			return resp, err
		}
	}
	return l.to.Request(ctx, r)
}

// onProduce has f answer what is produced to the topic. Others are left alone.
func (l *link) onProduce(f func(context.Context, *kmsg.ProduceRequest) (kmsg.Response, error)) {
	fault := func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		if p, ok := r.(*kmsg.ProduceRequest); ok {
			return f(ctx, p)
		}
		return nil, nil
	}
	l.fault.Store(&fault)
}

// once has f answer the first request of these.
func (l *link) once(f func(context.Context, *kmsg.ProduceRequest) (kmsg.Response, error)) {
	var done atomic.Bool
	l.onProduce(func(ctx context.Context, p *kmsg.ProduceRequest) (kmsg.Response, error) {
		if done.CompareAndSwap(false, true) {
			return f(ctx, p)
		}
		return nil, nil
	})
}

// until has f answer, and ends the caller's patience at the third request.
func until(f func(context.Context, *kmsg.ProduceRequest) (kmsg.Response, error), end context.CancelFunc,
) func(context.Context, *kmsg.ProduceRequest) (kmsg.Response, error) {
	var asked atomic.Int32
	return func(ctx context.Context, p *kmsg.ProduceRequest) (kmsg.Response, error) {
		if asked.Add(1) == 3 {
			end()
		}
		return f(ctx, p)
	}
}

func (l *link) loseRequest(context.Context, *kmsg.ProduceRequest) (kmsg.Response, error) {
	return nil, errLost
}

func (l *link) loseAnswer(ctx context.Context, p *kmsg.ProduceRequest) (kmsg.Response, error) {
	if _, err := l.to.Request(ctx, p); err != nil {
		return nil, err
	}
	return nil, errLost
}

// refuse answers with a code.
func refuse(code *kerr.Error) func(context.Context, *kmsg.ProduceRequest) (kmsg.Response, error) {
	return func(_ context.Context, p *kmsg.ProduceRequest) (kmsg.Response, error) {
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		out := kmsg.NewProduceResponseTopicPartition()
		out.ErrorCode = code.Code
		resp.Topics = []kmsg.ProduceResponseTopic{{
			Topic: p.Topics[0].Topic, TopicID: p.Topics[0].TopicID, Partitions: []kmsg.ProduceResponseTopicPartition{out},
		}}
		return resp, nil
	}
}

// writer is a Tail that runs, and what it adds up to.
type writer struct {
	*statetopic.Tail
	*sums
	t      testing.TB
	link   *link
	client *client.Client
	stop   func()
}

func start(t testing.TB, cluster kmsg.Requestor, change func(*statetopic.Options)) *writer {
	t.Helper()
	w := &writer{t: t, sums: &sums{}, link: &link{to: cluster}}
	w.client = client.New(w.link, client.Options{MetadataTTL: 10 * time.Millisecond})
	o := statetopic.Options{
		Client: w.client, Topic: topic, What: "a topic", Fold: w.sums,
		Skip:   func(what string, _ int32, offset int64, err error) { t.Errorf("%s at %d: %v", what, offset, err) },
		Logger: slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(rand.Uint64(), 1)), FreshWait: 5 * time.Second,
	}
	if change != nil {
		change(&o)
	}
	w.Tail = statetopic.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	w.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(w.stop)
	return w
}

// begin makes the topic, and gives the place at its end.
func (w *writer) begin() *statetopic.Place {
	w.t.Helper()
	require.NoError(w.t, w.Make(w.t.Context(), 1, 0))
	return w.end()
}

// end is the place at the end of a topic that exists.
func (w *writer) end() *statetopic.Place {
	w.t.Helper()
	require.NoError(w.t, w.ReachEnd(w.t.Context()))
	_, at := w.get()
	require.True(w.t, at.Exists())
	return at
}

// put appends one record at a place.
func (w *writer) put(ctx context.Context, at *statetopic.Place, key, value string) (bool, error) {
	b := w.NewBatch(time.Now())
	b.Add([]byte(key), []byte(value))
	return w.Append(ctx, at, b)
}

// puts must append one record at the end.
func (w *writer) puts(key, value string) {
	w.t.Helper()
	done, err := w.put(w.t.Context(), w.end(), key, value)
	require.NoError(w.t, err)
	require.True(w.t, done)
}

// fails must not append, and gives the error.
func (w *writer) fails(ctx context.Context, at *statetopic.Place, key, value string) *statetopic.Error {
	w.t.Helper()
	done, err := w.put(ctx, at, key, value)
	require.False(w.t, done)
	var fault *statetopic.Error
	require.ErrorAs(w.t, err, &fault)
	return fault
}

// holds says what the topic must add up to, and how many records it must have.
func (w *writer) holds(want map[string]string, records int64) {
	w.t.Helper()
	require.Equal(w.t, records, w.end().Offset())
	got, _ := w.get()
	require.Equal(w.t, want, got)
}

func one(t testing.TB) kmsg.Requestor { return servertest.Start(t, servertest.Options{}).Requestor() }

// Of those who decide at the same place one appends; the others read what it has appended, and decide anew.
func TestOneOfTwoAppends(t *testing.T) {
	n := one(t)
	a, b := start(t, n, nil), start(t, n, nil)
	require.NoError(t, a.ReachEnd(t.Context()))
	require.False(t, a.At().Exists())
	require.True(t, a.Loaded())
	at := a.begin()
	require.NoError(t, b.Make(t.Context(), 1, 0), "one that is there is as good")
	require.Equal(t, at, b.end())
	done, err := a.put(t.Context(), at, "k", "a")
	require.NoError(t, err)
	require.True(t, done)
	got, _ := a.get()
	require.Equal(t, map[string]string{"k": "a"}, got, "it is read back")
	done, err = b.put(t.Context(), at, "k", "b")
	require.NoError(t, err)
	require.False(t, done)
	require.Eventually(t, func() bool {
		got, _ := b.get()
		return maps.Equal(map[string]string{"k": "a"}, got)
	}, 30*time.Second, time.Millisecond, "the other one's record is read")
	b.puts("k", "b")
	a.holds(map[string]string{"k": "b"}, 2)
}

// Writers that count up at once lose no count and count none twice, whatever is lost on the way.
func TestCountingTogether(t *testing.T) {
	n := one(t)
	writers := []*writer{start(t, n, nil), start(t, n, nil)}
	writers[0].begin()
	var chance sync.Mutex
	source := rand.New(rand.NewPCG(3, 5))
	for _, w := range writers {
		w.link.onProduce(func(ctx context.Context, p *kmsg.ProduceRequest) (kmsg.Response, error) {
			chance.Lock()
			n := source.IntN(6)
			chance.Unlock()
			switch n {
			case 0:
				return w.link.loseRequest(ctx, p)
			case 1:
				return w.link.loseAnswer(ctx, p)
			}
			return nil, nil
		})
	}
	const each = 40
	var counting sync.WaitGroup
	for _, w := range writers {
		counting.Go(func() {
			for done := 0; done < each; {
				if err := w.ReachEnd(t.Context()); err != nil {
					t.Error(err)
					return
				}
				now, at := w.get()
				n, _ := strconv.Atoi(now["n"])
				ok, err := w.put(t.Context(), at, "n", fmt.Sprint(n+1))
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					done++
				}
			}
		})
	}
	counting.Wait()
	start(t, n, nil).holds(map[string]string{"n": fmt.Sprint(2 * each)}, 2*each)
}

// A batch whose answer is lost is found in the topic, one whose request is lost is not; each is there once at most.
func TestLostOnce(t *testing.T) {
	n := one(t)
	w, other := start(t, n, nil), start(t, n, nil)
	w.begin()
	w.link.once(w.link.loseRequest)
	w.puts("k", "1")
	w.link.once(w.link.loseAnswer)
	w.puts("k", "2")
	w.holds(map[string]string{"k": "2"}, 2)

	w.link.once(func(ctx context.Context, p *kmsg.ProduceRequest) (kmsg.Response, error) {
		defer other.puts("o", "1") // behind it
		return w.link.loseAnswer(ctx, p)
	})
	w.puts("k", "3")
	w.link.once(func(context.Context, *kmsg.ProduceRequest) (kmsg.Response, error) {
		other.puts("o", "2") // in its place
		return nil, errLost
	})
	done, err := w.put(t.Context(), w.end(), "k", "4")
	require.NoError(t, err)
	require.False(t, done)
	w.holds(map[string]string{"k": "3", "o": "2"}, 5)
}

// While no answer comes Append goes on, and when its time is over it says that nothing is known.
func TestUnknown(t *testing.T) {
	w := start(t, one(t), nil)
	at := w.begin()
	for name, lose := range map[string]func(context.Context, *kmsg.ProduceRequest) (kmsg.Response, error){
		"request": w.link.loseRequest, "answer": w.link.loseAnswer,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		lose = until(lose, cancel)
		cut := func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
			switch r := r.(type) {
			case *kmsg.ProduceRequest:
				return lose(ctx, r)
			case *kmsg.FetchRequest: // so that the reader does not find it
				return nil, errLost
			}
			return nil, nil
		}
		w.link.fault.Store(&cut)
		fault := w.fails(ctx, at, name, "1")
		require.True(t, fault.Unknown, name)
		require.False(t, fault.TooLarge(), name)
		require.ErrorContains(t, fault, "not known", name)
		w.link.fault.Store(nil)
		at = w.end()
	}
	w.holds(map[string]string{"answer": "1"}, 1)
}

// What the cluster refuses is certainly not written, and neither is what it has not taken again and again.
func TestCertain(t *testing.T) {
	w := start(t, one(t), nil)
	at := w.begin()
	for _, code := range []*kerr.Error{kerr.MessageTooLarge, kerr.TopicAuthorizationFailed, kerr.NotEnoughReplicas} {
		w.link.onProduce(refuse(code))
		fault := w.fails(t.Context(), at, "k", "1")
		require.False(t, fault.Unknown, code.Message)
		require.ErrorIs(t, fault, code)
		require.Equal(t, code == kerr.MessageTooLarge, fault.TooLarge(), code.Message)
	}
	w.link.once(refuse(kerr.NotEnoughReplicas))
	w.puts("k", "2")
	at = w.end()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.link.onProduce(until(refuse(kerr.NotEnoughReplicasAfterAppend), cancel))
	require.True(t, w.fails(ctx, at, "k", "3").Unknown)
	w.link.fault.Store(nil)
	w.holds(map[string]string{"k": "2"}, 1)
}

// A cluster that does not know the condition is found out, and what it has done is not said to be known.
func TestClusterWithoutConditions(t *testing.T) {
	n := one(t)
	w, other := start(t, n, nil), start(t, n, nil)
	at := w.begin()
	other.puts("o", "1")
	w.link.onProduce(func(_ context.Context, p *kmsg.ProduceRequest) (kmsg.Response, error) {
		p.Topics[0].Partitions[0].UnknownTags = kmsg.Tags{}
		return nil, nil
	})
	fault := w.fails(t.Context(), at, "k", "1")
	require.True(t, fault.Unknown)
	require.ErrorContains(t, fault, "conditions")
}

// A topic that is made anew is read anew, and nothing that was decided by the old one is in it.
func TestTopicMadeAnew(t *testing.T) {
	n := one(t)
	w, other := start(t, n, nil), start(t, n, nil)
	w.begin()
	w.puts("k", "1")
	at := w.end()
	require.NoError(t, other.client.DeleteTopic(t.Context(), topic))
	done, err := w.put(t.Context(), at, "k", "2")
	require.NoError(t, err)
	require.False(t, done)
	require.NoError(t, w.ReachEnd(t.Context()))
	got, gone := w.get()
	require.False(t, gone.Exists())
	require.Empty(t, got)
	again := other.begin()
	require.NotEqual(t, at.Topic, again.Topic)
	require.Zero(t, again.Offset())
	other.puts("o", "1")
	done, err = w.put(t.Context(), at, "k", "3")
	require.NoError(t, err)
	require.False(t, done, "the new topic ends where the old one did")
	w.puts("k", "4")
	w.holds(map[string]string{"o": "1", "k": "4"}, 2)

	at = w.end()
	w.link.once(func(ctx context.Context, p *kmsg.ProduceRequest) (kmsg.Response, error) {
		defer func() { require.NoError(t, other.client.DeleteTopic(t.Context(), topic)) }()
		return w.link.loseAnswer(ctx, p)
	})
	require.True(t, w.fails(t.Context(), at, "k", "5").Unknown, "it may have been in what is gone")
}

// A topic that may lose what counts is told, and only that one.
func TestForgets(t *testing.T) {
	w := start(t, one(t), nil)
	require.False(t, w.Forgets(t.Context()), "nothing is known")
	w.begin()
	require.False(t, w.Forgets(t.Context()))
	for policy, want := range map[string]bool{"compact": false, "delete": true, "compact,delete": true} {
		_, err := w.client.AlterConfigs(t.Context(), []client.ResourceChanges{{
			Resource: client.Resource{Type: client.TopicResource, Name: topic},
			Changes:  []client.ConfigChange{{Name: "cleanup.policy", Value: &policy}},
		}}, client.Apply)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			return w.Forgets(t.Context()) == want
		}, 30*time.Second, 10*time.Millisecond, policy)
	}
}

// Of several partitions all are read, or the first one alone.
func TestPartitions(t *testing.T) {
	n := one(t)
	all := start(t, n, nil)
	first := start(t, n, func(o *statetopic.Options) { o.FirstOnly = true })
	require.NoError(t, all.Make(t.Context(), 3, 1))
	for name, c := range map[string]struct {
		w    *writer
		want int
	}{"all": {all, 3}, "first": {first, 1}} {
		require.Len(t, c.w.end().Offsets, c.want, name)
		c.w.puts(name, "1")
	}
	lag, heard := all.Heard()
	require.Zero(t, lag)
	require.Less(t, time.Since(heard), time.Minute)
	all.holds(map[string]string{"all": "1", "first": "1"}, 2)
	all.stop()
	require.ErrorIs(t, all.ReachEnd(t.Context()), statetopic.ErrStopped)
}

// The planted faults do what they say, or nobody could find them.
func TestPlantedFaults(t *testing.T) {
	n := one(t)
	w := start(t, n, func(o *statetopic.Options) { o.Flaws.AnyOffset = true })
	at := w.begin()
	w.puts("k", "1")
	done, err := w.put(t.Context(), at, "k", "2")
	require.NoError(t, err)
	require.True(t, done, "the topic does not end there")
	w.holds(map[string]string{"k": "2"}, 2)

	early := start(t, n, func(o *statetopic.Options) { o.Flaws.Early = true })
	at = early.end()
	cut := func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		if p, ok := r.(*kmsg.ProduceRequest); ok && p.Acks != int16(client.AcksLeader) {
			return nil, errLost
		}
		if _, ok := r.(*kmsg.FetchRequest); ok {
			return nil, errLost
		}
		return nil, nil
	}
	early.link.fault.Store(&cut)
	done, err = early.put(t.Context(), at, "k", "3")
	require.NoError(t, err)
	require.True(t, done, "it is not read back")
}
