package consumer_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/consumer"
)

// One member reads all, in order within partitions, and commits what it comes back from.
func TestReadAndCommit(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 2)
	e.put("t", 0, numbers(0, 10)...)
	e.put("t", 1, numbers(10, 20)...)
	m := e.members()
	k := e.join(m, consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true})
	got := e.read(k, 20)
	require.ElementsMatch(t, numbers(0, 20), got)
	require.Equal(t, int64(-1), max(e.committed("g", "t", 0), e.committed("g", "t", 1)))
	require.Empty(t, e.poll(k, consumer.PollRequest{}))
	require.Equal(t, int64(10), e.committed("g", "t", 0))
	require.Equal(t, int64(10), e.committed("g", "t", 1))
	e.put("t", 0, "20")
	require.Equal(t, []string{"20"}, e.read(k, 1))
	require.NoError(t, k.Leave(t.Context(), nil))
	require.Equal(t, int64(11), e.committed("g", "t", 0))
	_, err := k.Poll(t.Context(), consumer.PollRequest{})
	require.ErrorIs(t, err, consumer.ErrUnknownMember)
	_, err = m.Find(t.Context(), "g", k.ID())
	require.ErrorIs(t, err, consumer.ErrUnknownMember)
	require.Zero(t, m.Count())

	k = e.join(m, consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest})
	require.Empty(t, e.poll(k, consumer.PollRequest{}), "the group has read all")
}

// A poll that waits gets a record as soon as it is there, and one that waits for an assignment that too.
func TestPollWaits(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	k := e.join(e.members(), consumer.Config{Topics: []string{"t"}, Lease: 5 * time.Minute})
	e.assignment(k, 1)
	require.Empty(t, e.poll(k, consumer.PollRequest{})) // from here on
	var got []string
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		var p *consumer.Polled
		if p, err = k.Poll(t.Context(), consumer.PollRequest{Wait: 2 * limit}); err == nil {
			got = valuesOf(p)
			p.Free()
		}
	})
	start := time.Now()
	e.put("t", 0, "1")
	wg.Wait()
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, got)
	require.Less(t, time.Since(start), limit)
	start = time.Now()
	require.Empty(t, e.poll(k, consumer.PollRequest{Wait: 50 * time.Millisecond}))
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = k.Poll(ctx, consumer.PollRequest{Wait: time.Second})
	require.ErrorIs(t, err, context.Canceled)
}

// Bounds cut a delivery, which holds one record at least.
func TestPollBounds(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 30)...)
	k := e.join(e.members(), consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true})
	e.assignment(k, 1)
	require.Equal(t, numbers(0, 7), e.poll(k, consumer.PollRequest{MaxRecords: 7}))
	require.Equal(t, numbers(7, 8), e.poll(k, consumer.PollRequest{MaxBytes: 1}))
	require.Equal(t, int64(7), e.committed("g", "t", 0))
	require.Equal(t, numbers(8, 10), e.poll(k, consumer.PollRequest{MaxBytes: 3}))
	require.Equal(t, numbers(10, 30), e.poll(k, consumer.PollRequest{}))
}

// Who says that a delivery has not come gets it again, and nothing of it is committed.
func TestLostDeliveryComesAgain(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 30)...)
	k := e.join(e.members(), consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true})
	e.assignment(k, 1)
	poll := func(seen int64) ([]string, int64) {
		p, err := k.Poll(t.Context(), consumer.PollRequest{MaxRecords: 10, Seen: seen, SaysSeen: true})
		require.NoError(t, err)
		defer p.Free()
		return valuesOf(p), p.Delivery
	}
	got, first := poll(0)
	require.Equal(t, numbers(0, 10), got)
	got, again := poll(0)
	require.Equal(t, numbers(0, 10), got)
	require.Equal(t, int64(0), e.committed("g", "t", 0), "only where it began")
	require.Greater(t, again, first)
	got, third := poll(again)
	require.Equal(t, numbers(10, 20), got)
	require.Equal(t, int64(10), e.committed("g", "t", 0))
	got, _ = poll(again)
	require.Equal(t, numbers(10, 20), got)
	got, ahead := poll(third + 1000) // of a node whose clock was ahead
	require.Equal(t, numbers(10, 20), got)
	require.Greater(t, ahead, third+1000)
	_, err := k.Poll(t.Context(), consumer.PollRequest{Seen: 1 << 60, SaysSeen: true})
	require.ErrorIs(t, err, consumer.ErrBadSeen)
}

// soon is sooner than by a heartbeat that hears no news: of a member by default that is after 22 s.
const soon = 15 * time.Second

// The partitions of a member that comes are taken from the others, and those of one that leaves go to them. What was
// handed out is dealt with before.
func TestShare(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 4)
	for n := range 4 {
		e.put("t", n, numbers(10*n, 10*n+10)...)
	}
	m := e.members()
	c := consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true}
	a := e.join(m, c)
	e.assignment(a, 4)
	require.Len(t, e.read(a, 40), 40) // it holds them
	b := e.join(m, c)
	require.Empty(t, e.poll(b, consumer.PollRequest{Wait: 200 * time.Millisecond}), "a has not come back")
	require.Empty(t, e.poll(a, consumer.PollRequest{}))
	e.assignment(a, 2)
	start := time.Now()
	e.assignment(b, 2)
	require.Less(t, time.Since(start), soon)
	for n := range 4 {
		e.put("t", n, "100")
	}
	require.Equal(t, []string{"100", "100"}, e.read(b, 2))
	require.Equal(t, []string{"100", "100"}, e.read(a, 2))
	start = time.Now()
	require.NoError(t, b.Leave(t.Context(), nil))
	e.assignment(a, 4)
	require.Less(t, time.Since(start), soon)
	require.Empty(t, e.poll(a, consumer.PollRequest{Wait: 100 * time.Millisecond}), "b committed")
	for n := range 4 {
		require.Equal(t, int64(11), e.committed("g", "t", int32(n)))
	}
}

// A member that nobody calls for leaves at the end of its lease, and what it had goes to others, from where it
// committed.
func TestLease(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 2)
	m := e.members()
	c := consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true}
	dead := c
	dead.Lease, dead.Session = 6*time.Second, time.Minute
	a := e.join(m, dead)
	e.assignment(a, 2)
	b := e.join(m, c)
	e.assignment(b, 1)
	e.put("t", 0, numbers(0, 5)...)
	e.put("t", 1, numbers(5, 10)...)
	e.read(a, 5)
	start := time.Now()
	require.Len(t, e.read(b, 10), 10, "what a did not commit comes again")
	require.Greater(t, time.Since(start), dead.Lease/2)
	_, err := a.Poll(t.Context(), consumer.PollRequest{})
	require.ErrorIs(t, err, consumer.ErrUnknownMember)
	require.Eventually(t, func() bool { return m.Count() == 1 }, limit, time.Millisecond)
}

// severed is a way to the cluster that is gone once its node has died.
type severed struct {
	kmsg.Requestor
	dead atomic.Bool
}

func (s *severed) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if s.dead.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	return s.Requestor.Request(ctx, r)
}

// A member that no other node takes over is gone with its node: the group does not wait for its client to come back.
func TestNodeOfAMemberDies(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 2)
	way := &severed{Requestor: e.node.Requestor()}
	dying := e.members(func(o *consumer.Options) { o.Requests = way })
	// Their sessions are short: who loses one, where all is slow, comes back.
	c := consumer.Config{Topics: []string{"t"}, Here: true, Rejoin: true}
	e.assignment(e.join(dying, c), 2)
	heir := e.join(e.members(), c)
	e.assignment(heir, 1)
	way.dead.Store(true)
	e.assignment(heir, 2) // within less than a lease
}

func TestSeekAndAssignByHand(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 2)
	e.put("t", 0, numbers(0, 10)...)
	m := e.members()
	k := e.join(m, consumer.Config{Reset: consumer.Earliest})
	ctx := t.Context()
	_, err := k.Poll(ctx, consumer.PollRequest{})
	require.ErrorIs(t, err, consumer.ErrNotSubscribed)
	require.NoError(t, k.Assign(ctx, []client.TopicPartition{tp("t", 0)}))
	require.ErrorIs(t, k.Subscribe(ctx, []string{"t"}, ""), consumer.ErrSubscribedOtherwise)
	require.Equal(t, numbers(0, 10), e.read(k, 10))
	at, err := k.Position(ctx, tp("t", 0))
	require.NoError(t, err)
	require.Equal(t, int64(10), at)
	require.NoError(t, k.Seek(ctx, consumer.Offset{TopicPartition: tp("t", 0), Offset: 7}))
	require.Equal(t, numbers(7, 10), e.read(k, 3))
	require.NoError(t, k.SeekTo(ctx, client.Earliest, tp("t", 0)))
	require.Equal(t, numbers(0, 10), e.read(k, 10))
	require.ErrorIs(t, k.Seek(ctx, consumer.Offset{TopicPartition: tp("t", 1), Offset: 7}), consumer.ErrNotAssigned)
	errs, err := k.Commit(ctx, []consumer.Offset{
		{TopicPartition: tp("t", 0), Offset: 4, Metadata: "here"}, {TopicPartition: tp("t", 1), Offset: 1},
	})
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], consumer.ErrNotAssigned)
	found, err := k.Committed(ctx, []client.TopicPartition{tp("t", 0), tp("t", 1)})
	require.NoError(t, err)
	require.Equal(t, consumer.Offset{TopicPartition: tp("t", 0), Offset: 4, Metadata: "here"}, found[0])
	require.Equal(t, int64(-1), found[1].Offset)
	_, _, err = k.CommitDelivered(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, int64(10), e.committed("g", "t", 0))
	require.NoError(t, k.Unsubscribe(ctx))
	require.NoError(t, k.Subscribe(ctx, []string{"t"}, ""))
	e.assignment(k, 2)
	require.ErrorIs(t, k.Assign(ctx, []client.TopicPartition{tp("t", 0)}), consumer.ErrSubscribedOtherwise)
	require.Error(t, k.Assign(ctx, []client.TopicPartition{tp("t", 9)}))
}

// Another process takes a member over when the one that ran it is no more, with all that makes it.
func TestTakeOver(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 3)
	e.put("t", 0, numbers(0, 10)...)
	m := e.members()
	c := consumer.Config{
		ID: "k", Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true, Extra: []byte("mine"),
		Lease: 2 * time.Minute,
	}
	k := e.join(m, c)
	e.assignment(k, 3)
	require.Equal(t, numbers(0, 4), e.poll(k, consumer.PollRequest{MaxRecords: 4}))
	require.Equal(t, numbers(4, 8), e.poll(k, consumer.PollRequest{MaxRecords: 4}))
	require.NoError(t, k.Seek(t.Context(), consumer.Offset{TopicPartition: tp("t", 1), Offset: 0}))
	hand := e.join(m, consumer.Config{Group: "h", ID: "hand", Reset: consumer.Earliest})
	require.NoError(t, hand.Assign(t.Context(), []client.TopicPartition{tp("t", 0)}))
	require.NoError(t, hand.Seek(t.Context(), consumer.Offset{TopicPartition: tp("t", 0), Offset: 6}))
	m.Close()
	_, err := k.Poll(t.Context(), consumer.PollRequest{})
	require.ErrorIs(t, err, consumer.ErrMoved)

	other := e.members()
	start := time.Now()
	k, err = other.Find(t.Context(), "g", "k")
	require.NoError(t, err)
	e.assignment(k, 3)
	require.Less(t, time.Since(start), limit)
	require.Equal(t, []byte("mine"), k.Config().Extra)
	require.Equal(t, numbers(4, 10), e.read(k, 6), "4 was committed by the second poll")
	_, err = other.Join(t.Context(), c1("g", "k"))
	require.ErrorIs(t, err, consumer.ErrTaken)
	third := e.members()
	_, err = third.Join(t.Context(), c1("g", "k"))
	require.ErrorIs(t, err, consumer.ErrTaken)
	hand, err = other.Find(t.Context(), "h", "hand")
	require.NoError(t, err)
	require.Equal(t, numbers(6, 10), e.read(hand, 4))
	_, err = other.Find(t.Context(), "h", "nobody")
	require.ErrorIs(t, err, consumer.ErrUnknownMember)
	_, err = other.Find(t.Context(), "nothing", "nobody")
	require.ErrorIs(t, err, consumer.ErrUnknownMember)
}

func c1(group, id string) consumer.Config {
	return consumer.Config{Group: group, ID: id, Topics: []string{"t"}}
}
