package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/coordinator"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// counts is the state of the tests: the last value of each key.
type counts struct {
	shard  *coordinator.Shard
	values map[string]string
	order  []int64 // offsets as they were replayed
	ends   []string
	parked []*coordinator.Reply[string]
	said   []string // what was called on the loop
}

func newCounts(s *coordinator.Shard) coordinator.State {
	return &counts{shard: s, values: make(map[string]string)}
}

func (c *counts) Replay(r *coordinator.Record) {
	c.order = append(c.order, r.Offset)
	if r.Value == nil {
		delete(c.values, string(r.Key))
	} else {
		c.values[string(r.Key)] = string(r.Value)
	}
	if r.ProducerID >= 0 {
		c.ends = append(c.ends, fmt.Sprintf("%s of %d/%d", r.Key, r.ProducerID, r.ProducerEpoch))
	}
}

func (c *counts) Marker(producerID int64, epoch int16, commit bool) {
	c.ends = append(c.ends, fmt.Sprintf("end of %d/%d: %t", producerID, epoch, commit))
}

func (c *counts) Loaded() { c.said = append(c.said, "loaded") }

// node is a data directory with one partition.
type node struct {
	t       require.TestingT
	fs      storage.FS
	dir     *storage.Dir
	replica *partition.Replica
}

func internalSettings(t require.TestingT) *metadata.TopicSettings {
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	for i, c := range []metadata.Command{
		&metadata.RegisterBroker{NewClusterID: "c", ID: 1, Incarnation: metadata.UUID{1: 1}, PreviousEpoch: -1},
		&metadata.CreateTopics{Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{{
			Name: metadata.GroupTopic, ID: metadata.UUID{0: 1, 6: 0x40, 8: 0x80}, Partitions: [][]int32{{1}},
			Configs: m.Image().InternalTopic(metadata.GroupTopic, 1).Configs,
		}}},
	} {
		entry, err := metadata.Encode(c)
		require.NoError(t, err)
		_, err = m.Apply(uint64(i+1), entry)
		require.NoError(t, err)
	}
	return m.Image().Topic(metadata.GroupTopic).Settings
}

// start opens the node's partition, in no role.
func start(t require.TestingT, fs storage.FS, settings *metadata.TopicSettings) *node {
	n, err := open(fs, settings)
	require.NoError(t, err)
	n.t = t
	return n
}

func open(fs storage.FS, settings *metadata.TopicSettings) (*node, error) {
	dir, err := storage.OpenDir(storage.DirOptions{FS: fs, SyncPolicy: storage.SyncAck})
	if err != nil {
		return nil, err
	}
	store := partition.NewStore(partition.Config{
		Dir: dir, CommitSynced: true, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	name := partition.Name{Topic: metadata.GroupTopic, TopicID: metadata.UUID{1: 1}}
	r, err := store.Open(name, partition.NewSettings(settings))
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &node{fs: fs, dir: dir, replica: r}, nil
}

func (n *node) stop() {
	require.NoError(n.t, n.replica.Close())
	require.NoError(n.t, n.dir.Close())
}

func alone(epoch int32) partition.Role {
	return partition.Role{Leader: 1, LeaderEpoch: epoch, PartitionEpoch: epoch, Replicas: []int32{1}, ISR: []int32{1}}
}

func runtime(change func(*coordinator.Config)) *coordinator.Runtime {
	c := coordinator.Config{Topic: metadata.GroupTopic, New: newCounts}
	if change != nil {
		change(&c)
	}
	return coordinator.New(c)
}

// rig is one node that leads the partition, and its runtime, in a bubble.
type rig struct {
	*node
	*coordinator.Runtime
}

func inBubble(t *testing.T, change func(*coordinator.Config), test func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := start(t, storagetest.New(), internalSettings(t))
		r := &rig{node: n, Runtime: runtime(change)}
		r.Lead(0, n.replica.Lead(alone(0)), 0)
		synctest.Wait()
		test(t, r)
		require.NoError(t, r.Close())
		n.stop()
	})
}

func kv(key, value string) coordinator.KV {
	return coordinator.KV{Key: []byte(key), Value: []byte(value)}
}

// put appends, and answers when that is committed.
func put(ctx context.Context, r *coordinator.Runtime, kvs ...coordinator.KV) error {
	_, err := coordinator.Do(ctx, r, 0, func(s coordinator.State, p *coordinator.Reply[bool]) {
		if err := s.(*counts).shard.Append(kvs...); err != nil {
			p.Fail(err)
			return
		}
		p.Send(true)
	})
	return err
}

// look reads the state, once all of it is committed.
func look[R any](r *coordinator.Runtime, read func(*counts) R) (R, error) {
	return coordinator.Do(context.Background(), r, 0, func(s coordinator.State, p *coordinator.Reply[R]) {
		p.Send(read(s.(*counts)))
	})
}

func valuesOf(c *counts) map[string]string { return maps.Clone(c.values) }

func TestAppendAndReplay(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		require.Equal(t, []int32{0}, r.Led())
		require.False(t, r.Loading())
		require.NoError(t, put(t.Context(), r.Runtime, kv("a", "1"), kv("b", "2")))
		require.NoError(t, put(t.Context(), r.Runtime, kv("a", "3"), coordinator.KV{Key: []byte("b")}))
		require.NoError(t, put(t.Context(), r.Runtime))
		got, err := look(r.Runtime, valuesOf)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "3"}, got)
		order, err := look(r.Runtime, func(c *counts) []int64 { return slices.Clone(c.order) })
		require.NoError(t, err)
		require.Equal(t, []int64{0, 1, 2, 3}, order)
	})
}

// What was appended is the state of the next run, up to the end of the log.
func TestLogIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, settings := storagetest.New(), internalSettings(t)
		n := start(t, fs, settings)
		one := runtime(nil)
		one.Lead(0, n.replica.Lead(alone(0)), 0)
		synctest.Wait()
		pad := strings.Repeat("x", 1000)
		for i := range 40 { // several reads
			var kvs []coordinator.KV
			for j := range 100 {
				kvs = append(kvs, kv(fmt.Sprintf("key %d", (i*j)%700), fmt.Sprintf("%d/%d %s", i, j, pad)))
			}
			kvs = append(kvs, coordinator.KV{Key: fmt.Appendf(nil, "key %d", i)})
			require.NoError(t, put(t.Context(), one, kvs...))
		}
		want, err := look(one, valuesOf)
		require.NoError(t, err)
		require.NoError(t, one.Close())
		n.stop()

		n = start(t, fs, settings)
		two := runtime(nil)
		two.Lead(0, n.replica.Lead(alone(1)), 1)
		synctest.Wait()
		got, err := look(two, valuesOf)
		require.NoError(t, err)
		require.Equal(t, want, got)
		order, err := look(two, func(c *counts) []int64 { return slices.Clone(c.order) })
		require.NoError(t, err)
		require.Len(t, order, 40*101)
		require.True(t, slices.IsSorted(order))
		require.NoError(t, two.Close())
		n.stop()
	})
}

// pair is two replicas of the partition, of which the first leads.
type pair struct {
	leader, follower *node
	l                *partition.Leader
	f                *partition.Follower
	replica          int32 // the follower's id
}

func bothInSync(leader, epoch int32) partition.Role {
	return partition.Role{
		Leader: leader, LeaderEpoch: epoch, PartitionEpoch: epoch, Replicas: []int32{1, 2}, ISR: []int32{1, 2},
	}
}

func newPair(t *testing.T, settings *metadata.TopicSettings) *pair {
	p := &pair{replica: 2}
	p.leader, p.follower = start(t, storagetest.New(), settings), start(t, storagetest.New(), settings)
	p.l, p.f = p.leader.replica.Lead(bothInSync(1, 0)), p.follower.replica.Follow(bothInSync(1, 0))
	return p
}

// fetch lets the follower fetch once.
func (p *pair) fetch(t *testing.T) {
	pos, err := p.f.Position()
	require.NoError(t, err)
	got, err := p.l.FetchFollower(partition.FollowerFetch{
		Replica: p.replica, Offset: pos.Offset, LastFetchedEpoch: pos.LastFetchedEpoch, LogStart: pos.LogStart,
		LeaderEpoch: -1, HighWatermark: math.MaxInt64, MaxBytes: 1 << 20,
	})
	require.NoError(t, err)
	_, err = p.f.Take(pos, partition.LeaderAnswer{
		HighWatermark: got.HighWatermark, LogStart: got.LogStart, Records: got.Records, Diverging: got.Diverging,
	})
	require.NoError(t, err)
	require.NoError(t, p.f.Sync(t.Context()))
	synctest.Wait()
}

// replicate fetches once, and again so that the leader hears that it arrived.
func (p *pair) replicate(t *testing.T) {
	p.fetch(t)
	p.fetch(t)
}

func (p *pair) stop() {
	p.leader.stop()
	p.follower.stop()
}

// outcome is an answer that another goroutine waits for.
type outcome struct{ err chan error }

func pending(do func() error) *outcome {
	o := &outcome{err: make(chan error, 1)}
	go func() { o.err <- do() }()
	synctest.Wait()
	return o
}

func (o *outcome) given() bool { return len(o.err) > 0 }

// Answers wait until the follower has what they speak of, a read too, but for those that are given at once.
func TestAnswersWaitForTheirCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, internalSettings(t))
		r := runtime(nil)
		r.Lead(0, p.l, 0)
		synctest.Wait()
		write := pending(func() error { return put(t.Context(), r, kv("a", "1")) })
		read := pending(func() error {
			got, err := look(r, valuesOf)
			if err == nil && got["a"] != "1" {
				return errors.New("read something else")
			}
			return err
		})
		require.False(t, write.given() || read.given())
		now, err := coordinator.Do(t.Context(), r, 0, func(s coordinator.State, p *coordinator.Reply[string]) {
			p.Now(s.(*counts).values["a"])
			p.Fail(errors.New("the first counts"))
			p.Send("the first counts")
		})
		require.NoError(t, err)
		require.Equal(t, "1", now, "the state is ahead of what is committed")
		p.replicate(t)
		require.NoError(t, <-write.err)
		require.NoError(t, <-read.err)
		require.NoError(t, r.Close())
		p.stop()
	})
}

// A node that begins to lead knows what it followed, and tells nobody before it is committed.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, internalSettings(t))
		one := runtime(nil)
		one.Lead(0, p.l, 0)
		synctest.Wait()
		write := pending(func() error { return put(t.Context(), one, kv("a", "1")) })
		p.replicate(t)
		require.NoError(t, <-write.err)
		open := pending(func() error { return put(t.Context(), one, kv("b", "2")) })
		p.fetch(t)
		lost := pending(func() error { return put(t.Context(), one, kv("a", "lost")) })
		require.False(t, open.given() || lost.given())

		two := runtime(nil)
		l := p.follower.replica.Lead(bothInSync(2, 1))
		two.Lead(0, l, 1)
		synctest.Wait()
		var seen map[string]string
		read := pending(func() (err error) { seen, err = look(two, valuesOf); return err })
		require.False(t, read.given(), "the high watermark of a new leader may lag")

		p.leader.replica.Follow(bothInSync(2, 1))
		one.Resign(0)
		synctest.Wait()
		require.ErrorIs(t, <-open.err, kerr.NotCoordinator)
		require.ErrorIs(t, <-lost.err, kerr.NotCoordinator)
		require.ErrorIs(t, put(t.Context(), one, kv("a", "2")), kerr.NotCoordinator)

		p.l, p.f, p.replica = l, p.leader.replica.Follower(), 1
		p.fetch(t) // what was never committed is cut
		require.Equal(t, int64(2), p.f.Bounds().LogEnd)
		p.fetch(t)
		require.NoError(t, <-read.err)
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, seen)
		require.NoError(t, one.Close())
		require.NoError(t, two.Close())
		p.stop()
	})
}

// What is cut from the log while an answer that speaks of it is thought over is told to nobody: neither to who wrote it
// nor to who read it.
func TestCutUnderAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, internalSettings(t))
		r := runtime(nil)
		r.Lead(0, p.l, 0)
		synctest.Wait()
		write := pending(func() error { return put(t.Context(), r, kv("a", "1")) })
		p.replicate(t)
		require.NoError(t, <-write.err)
		goOn := make(chan struct{})
		answer := pending(func() error {
			_, err := coordinator.Do(t.Context(), r, 0, func(s coordinator.State, reply *coordinator.Reply[string]) {
				c := s.(*counts)
				if err := c.shard.Append(kv("a", "cut")); err != nil {
					reply.Fail(err)
					return
				}
				<-goOn
				reply.Send(c.values["a"])
			})
			return err
		})
		require.Equal(t, int64(2), p.l.Bounds().LogEnd)
		l := p.follower.replica.Lead(bothInSync(2, 1))
		r.Resign(0)
		p.leader.replica.Follow(bothInSync(2, 1))
		p.l, p.f, p.replica = l, p.leader.replica.Follower(), 1
		p.fetch(t)
		require.Equal(t, int64(1), p.f.Bounds().LogEnd, "it was cut")
		close(goOn)
		require.ErrorIs(t, <-answer.err, kerr.NotCoordinator)
		require.NoError(t, r.Close())
		p.stop()
	})
}

// A leader of a later epoch does not write for a loop of an earlier one.
func TestEpochLost(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		require.NoError(t, put(t.Context(), r.Runtime, kv("a", "1")))
		l := r.replica.Lead(alone(1))
		end := l.Bounds().LogEnd
		require.ErrorIs(t, put(t.Context(), r.Runtime, kv("a", "2")), kerr.NotCoordinator)
		require.Equal(t, end, l.Bounds().LogEnd)
		synctest.Wait()
		require.ErrorIs(t, put(t.Context(), r.Runtime, kv("a", "2")), kerr.NotCoordinator, "its loop has ended")
		r.Lead(0, l, 0)
		require.ErrorIs(t, put(t.Context(), r.Runtime, kv("a", "2")), kerr.NotCoordinator, "nothing new")
		r.Lead(0, l, 1)
		synctest.Wait()
		require.NoError(t, put(t.Context(), r.Runtime, kv("b", "2")))
		got, err := look(r.Runtime, valuesOf)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, got)
	})
}

// Who waits is told when the node leads no longer, or stops, whatever the state does; nothing runs after that.
func TestTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*rig)
		want error
	}{
		"resign":     {func(r *rig) { r.Resign(0) }, kerr.NotCoordinator},
		"next epoch": {func(r *rig) { r.Lead(0, r.replica.Lead(alone(1)), 1) }, kerr.NotCoordinator},
		"close":      {func(r *rig) { require.NoError(t, r.Close()) }, kerr.CoordinatorNotAvailable},
	} {
		t.Run(name, func(t *testing.T) {
			var state *counts
			inBubble(t, func(c *coordinator.Config) {
				c.New = func(s *coordinator.Shard) coordinator.State {
					if state == nil {
						state = newCounts(s).(*counts)
						return state
					}
					return newCounts(s)
				}
			}, func(t *testing.T, r *rig) {
				var worked error
				parked := pending(func() error {
					_, err := coordinator.Do(t.Context(), r.Runtime, 0, func(s coordinator.State, p *coordinator.Reply[string]) {
						state.parked = append(state.parked, p)
						state.shard.After(time.Second, func() { state.said = append(state.said, "a timer ran") })
						state.shard.Go(func(ctx context.Context) func() {
							<-ctx.Done()
							worked = context.Cause(ctx)
							return func() { state.said = append(state.said, "something went on") }
						})
					})
					return err
				})
				tc.end(r)
				require.ErrorIs(t, <-parked.err, tc.want)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, []string{"loaded"}, state.said)
				require.ErrorIs(t, worked, tc.want)
				state.parked[0].Send("too late")
			})
		})
	}
}

// stalled is a state whose replay waits.
type stalled struct {
	*counts
	until chan struct{}
}

func (s *stalled) Replay(r *coordinator.Record) {
	<-s.until
	s.counts.Replay(r)
}

func TestLoading(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		until := make(chan struct{})
		require.NoError(t, put(t.Context(), r.Runtime, kv("a", "1")))
		slow := runtime(func(c *coordinator.Config) {
			c.New = func(s *coordinator.Shard) coordinator.State { return &stalled{newCounts(s).(*counts), until} }
		})
		r.Resign(0)
		require.Empty(t, r.Led())
		slow.Lead(0, r.replica.Lead(alone(1)), 1)
		synctest.Wait()
		require.True(t, slow.Loading())
		require.Equal(t, []int32{0}, slow.Led())
		_, err := coordinator.Do(t.Context(), slow, 0, func(coordinator.State, *coordinator.Reply[int]) {})
		require.ErrorIs(t, err, kerr.CoordinatorLoadInProgress)
		_, err = coordinator.Do(t.Context(), slow, 1, func(coordinator.State, *coordinator.Reply[int]) {})
		require.ErrorIs(t, err, kerr.NotCoordinator)
		close(until)
		synctest.Wait()
		require.False(t, slow.Loading())
		v, err := coordinator.Do(t.Context(), slow, 0, func(s coordinator.State, p *coordinator.Reply[string]) {
			p.Send(s.(*stalled).values["a"])
		})
		require.NoError(t, err)
		require.Equal(t, "1", v)
		require.NoError(t, slow.Close())
		_, err = coordinator.Do(t.Context(), slow, 0, func(coordinator.State, *coordinator.Reply[int]) {})
		require.ErrorIs(t, err, kerr.CoordinatorNotAvailable)
	})
}

func TestTimers(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		var ran []string
		begin := time.Now()
		note := func(what string) func() {
			return func() { ran = append(ran, fmt.Sprintf("%s at %v", what, time.Since(begin))) }
		}
		_, err := look(r.Runtime, func(c *counts) bool {
			s := c.shard
			s.After(3*time.Second, note("third"))
			stopped := s.After(time.Second, note("never"))
			second := s.After(2*time.Second, note("second"))
			s.After(2*time.Second, func() {
				note("also second")()
				stopped.Stop()
				second.Stop()
				s.After(0, note("at once"))
				s.After(time.Second, note("after the third"))
			})
			s.After(time.Second, func() {
				note("first")()
				s.After(500*time.Millisecond, note("between"))
			})
			stopped.Stop()
			stopped.Stop()
			var none *coordinator.Timer
			none.Stop()
			return true
		})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{
			"first at 1s", "between at 1.5s", "second at 2s", "also second at 2s", "at once at 2s", "third at 3s",
			"after the third at 3s",
		}, ran)
	})
}

// What waits for a commit is called on the loop, after the answers that were given before, or told that it takes long.
func TestCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, internalSettings(t))
		r := runtime(nil)
		r.Lead(0, p.l, 0)
		synctest.Wait()
		var said []error
		wait := func(s coordinator.State, reply *coordinator.Reply[string]) {
			c := s.(*counts)
			if err := c.shard.Append(kv("a", "1")); err != nil {
				reply.Fail(err)
				return
			}
			c.shard.Committed(func(err error) { said = append(said, err) })
			reply.Now("")
		}
		_, err := coordinator.Do(t.Context(), r, 0, wait)
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, said)
		p.replicate(t)
		synctest.Wait()
		require.Equal(t, []error{nil}, said)
		_, err = coordinator.Do(t.Context(), r, 0, wait)
		require.NoError(t, err)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, []error{nil, kerr.CoordinatorNotAvailable}, said)
		_, err = coordinator.Do(t.Context(), r, 0, wait)
		require.NoError(t, err)
		r.Resign(0)
		synctest.Wait()
		require.Len(t, said, 2, "not after the end")
		require.NoError(t, r.Close())
		p.stop()
	})
}

func TestGo(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		var ran []string
		for _, d := range []time.Duration{2, 1, 0} {
			_, err := look(r.Runtime, func(c *counts) bool {
				c.shard.Go(func(context.Context) func() {
					time.Sleep(d * time.Second)
					if d == 0 {
						return nil
					}
					return func() { ran = append(ran, fmt.Sprintf("%d", d)) }
				})
				return true
			})
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"1", "2"}, ran)
	})
}

// The mailbox is bounded, and who left meanwhile is passed over.
func TestMailbox(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		until := make(chan struct{})
		block := pending(func() error {
			_, err := coordinator.Do(t.Context(), r.Runtime, 0, func(_ coordinator.State, p *coordinator.Reply[int]) {
				<-until
				p.Now(1)
			})
			return err
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		ran := 0
		leaves := pending(func() error {
			_, err := coordinator.Do(ctx, r.Runtime, 0, func(coordinator.State, *coordinator.Reply[int]) { ran++ })
			return err
		})
		left := errors.New("left")
		cancel(left)
		require.ErrorIs(t, <-leaves.err, left)
		var waiting []*outcome
		for {
			o := pending(func() error { return put(t.Context(), r.Runtime, kv("a", "1")) })
			if o.given() {
				require.ErrorIs(t, <-o.err, kerr.CoordinatorLoadInProgress)
				break
			}
			waiting = append(waiting, o)
		}
		require.Len(t, waiting, 1023)
		close(until)
		require.NoError(t, <-block.err)
		for _, o := range waiting {
			require.NoError(t, <-o.err)
		}
		require.Zero(t, ran)
	})
}

// A commit that does not come is not waited for without end, and what was appended stays.
func TestCommitTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, internalSettings(t))
		r := runtime(func(c *coordinator.Config) { c.CommitTimeout = 3 * time.Second })
		r.Lead(0, p.l, 0)
		synctest.Wait()
		begin := time.Now()
		one := pending(func() error { return put(t.Context(), r, kv("a", "1")) })
		time.Sleep(time.Second)
		two := pending(func() error { return put(t.Context(), r, kv("b", "2")) })
		require.ErrorIs(t, <-one.err, kerr.CoordinatorNotAvailable)
		require.Equal(t, 3*time.Second, time.Since(begin))
		p.replicate(t)
		require.NoError(t, <-two.err)
		got, err := look(r, valuesOf)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, got)
		require.NoError(t, r.Close())
		p.stop()
	})
}

// While too many answers wait for their commit, requests wait in the mailbox; they go on when that is over.
func TestManyAnswersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, internalSettings(t))
		r := runtime(func(c *coordinator.Config) { c.CommitTimeout = time.Hour })
		r.Lead(0, p.l, 0)
		synctest.Wait()
		var waiting []*outcome
		for len(waiting) < 9000 {
			o := pending(func() error { return put(t.Context(), r, kv("a", "1")) })
			require.False(t, o.given())
			waiting = append(waiting, o)
		}
		require.Equal(t, int64(8192), p.l.Bounds().LogEnd)
		p.replicate(t)
		p.replicate(t)
		for _, o := range waiting {
			require.NoError(t, <-o.err)
		}
		require.NoError(t, r.Close())
		p.stop()
	})
}

func TestRefusedAppends(t *testing.T) {
	var failed error
	inBubble(t, func(c *coordinator.Config) {
		c.Failed = func(n partition.Name, err error) {
			require.Equal(t, metadata.GroupTopic, n.Topic)
			failed = err
		}
	}, func(t *testing.T, r *rig) {
		require.NoError(t, put(t.Context(), r.Runtime, kv("a", "1")))
		require.ErrorIs(t, put(t.Context(), r.Runtime, kv("a", strings.Repeat("x", 2<<20))), kerr.UnknownServerError)
		require.ErrorIs(t, put(t.Context(), r.Runtime, coordinator.KV{Value: []byte("no key")}), kerr.InvalidRecord)
		got, err := look(r.Runtime, valuesOf)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "1"}, got)
		disk := r.fs.(*storagetest.FS)
		disk.SetQuota(disk.Used())
		require.ErrorIs(t, put(t.Context(), r.Runtime, kv("a", "2")), kerr.NotCoordinator, "the disk is full")
		require.True(t, partition.Lost(failed) && partition.Passes(failed), "the broker is told, which moves the leadership")
		got, err = look(r.Runtime, valuesOf)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "1"}, got)
		disk.SetQuota(0)
		require.NoError(t, put(t.Context(), r.Runtime, kv("a", "3")))
	})
}

func TestTooFewReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := *internalSettings(t)
		settings.MinInsyncReplicas = 2
		p := newPair(t, &settings)
		r := runtime(nil)
		r.Lead(0, p.l, 0)
		synctest.Wait()
		role := bothInSync(1, 0)
		role.ISR, role.PartitionEpoch = []int32{1}, 1
		p.leader.replica.Lead(role)
		require.ErrorIs(t, put(t.Context(), r, kv("a", "1")), kerr.CoordinatorNotAvailable)
		require.Zero(t, p.l.Bounds().LogEnd)
		require.NoError(t, r.Close())
		p.stop()
	})
}

// A leadership that is lost while the log is read is no fault of the log.
func TestLostWhileLoading(t *testing.T) {
	var told []error
	inBubble(t, func(c *coordinator.Config) {
		c.Failed = func(_ partition.Name, err error) { told = append(told, err) }
	}, func(t *testing.T, r *rig) {
		require.NoError(t, put(t.Context(), r.Runtime, kv("a", "1")))
		l := r.replica.Lead(alone(1))
		follow := alone(2)
		follow.Leader, follow.Replicas, follow.ISR = 2, []int32{1, 2}, []int32{2}
		r.replica.Follow(follow)
		r.Lead(0, l, 1)
		synctest.Wait()
		require.ErrorIs(t, put(t.Context(), r.Runtime, kv("a", "2")), kerr.NotCoordinator)
		require.Empty(t, told)
	})
}

// A log that is damaged is told to be, and read when it is whole again.
func TestDamagedLog(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		for range 3 {
			require.NoError(t, put(t.Context(), r.Runtime, kv("a", "1")))
		}
		r.Resign(0)
		disk := r.fs.(*storagetest.FS)
		var log string
		for _, name := range disk.Files() {
			if strings.HasSuffix(name, ".log") {
				log = name
			}
		}
		require.NoError(t, disk.FlipBit(log, 70, 3))
		r.Lead(0, r.replica.Lead(alone(1)), 1)
		synctest.Wait()
		require.ErrorIs(t, put(t.Context(), r.Runtime, kv("a", "1")), kerr.CoordinatorNotAvailable)
		require.NoError(t, disk.FlipBit(log, 70, 3))
		time.Sleep(2 * time.Second)
		require.NoError(t, put(t.Context(), r.Runtime, kv("a", "2")))
	})
}

// All asks every partition at once, also where one is busy, is read still, or has gone to another node.
func TestAll(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		require.NoError(t, put(t.Context(), r.Runtime, kv("a", "1")))
		ask := func(ctx context.Context) ([]string, *kerr.Error, error) {
			return coordinator.All(ctx, r.Runtime, func(s coordinator.State, p *coordinator.Reply[string]) {
				if c := s.(*counts); c.shard.Number() == 0 {
					p.Send(c.values["a"])
				}
			})
		}
		all, missing, err := ask(t.Context())
		require.NoError(t, err)
		require.Nil(t, missing)
		require.Equal(t, []string{"1"}, all)

		r.Lead(1, r.replica.Leader(), 0) // which never replies
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all, missing, err = ask(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Nil(t, missing)
		require.Equal(t, []string{"1"}, all)

		time.AfterFunc(time.Second, func() { r.Resign(1) })
		all, missing, err = ask(t.Context())
		require.NoError(t, err)
		require.Nil(t, missing, "whoever leads it now tells")
		require.Equal(t, []string{"1"}, all)

		time.AfterFunc(time.Second, func() { require.NoError(t, r.Close()) })
		r.Lead(1, r.replica.Leader(), 0)
		synctest.Wait()
		_, missing, err = ask(t.Context())
		require.NoError(t, err)
		require.Equal(t, kerr.CoordinatorNotAvailable, missing)
	})
}
