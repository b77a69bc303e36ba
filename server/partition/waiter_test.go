package partition_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/partition"
	"millrace/storage"
)

// led runs a test with a partition that node 1 leads and the others follow, in fake time.
func led(t *testing.T, do func(c *cluster, l *partition.Leader)) {
	settings := topicSettings(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings, 2)
		c.policy = storage.SyncNever
		defer c.close()
		for _, n := range c.nodes {
			n.start()
		}
		c.elect(1)
		for _, n := range c.nodes {
			n.told(c.meta)
		}
		do(c, c.node(1).leader)
	})
}

// watch waits as a follower's fetch that knows that high watermark, and tells how long that took.
func watch(t *testing.T, l *partition.Leader, hw int64, meanwhile func()) time.Duration {
	w := partition.NewWaiter()
	w.Linger(5 * time.Millisecond)
	w.Start(500 * time.Millisecond)
	defer w.Stop()
	require.NoError(t, l.WatchAppends(w, partition.Seen{LogEnd: l.Bounds().LogEnd, HighWatermark: hw}))
	start := time.Now()
	done := make(chan time.Duration)
	go func() {
		_ = w.Wait(context.Background())
		done <- time.Since(start)
	}()
	synctest.Wait()
	meanwhile()
	return <-done
}

func appendOne(t *testing.T, c *cluster, all bool) partition.Appended {
	a, err := c.node(1).append(batch(-1, 0, 0, time.Now(), "v"), all)
	require.NoError(t, err)
	return a
}

// A follower's fetch is answered at once with what somebody waits for; the rest gathers for a moment.
func TestFetchesOfFollowersLinger(t *testing.T) {
	led(t, func(c *cluster, l *partition.Leader) {
		never := int64(math.MaxInt64)
		require.Equal(t, 500*time.Millisecond, watch(t, l, never, func() {}))
		require.Zero(t, watch(t, l, never, func() { appendOne(t, c, true) }))
		require.Equal(t, 5*time.Millisecond, watch(t, l, never, func() { appendOne(t, c, false) }))
		require.Equal(t, 5*time.Millisecond, watch(t, l, never, func() {
			appendOne(t, c, false)
			time.Sleep(2 * time.Millisecond)
			appendOne(t, c, false)
		}), "from the first on")
		require.Equal(t, 2*time.Millisecond, watch(t, l, never, func() {
			a := appendOne(t, c, false)
			time.Sleep(2 * time.Millisecond)
			awaitBriefly(l, &a)
		}), "until somebody waits for it")
		require.Equal(t, 3*time.Millisecond, watch(t, l, never, func() {
			appendOne(t, c, false)
			time.Sleep(3 * time.Millisecond)
			w := partition.NewWaiter()
			w.Lack(1)
			require.NoError(t, l.Watch(w, l.Bounds().HighWatermark))
			w.Leave()
		}), "as a consumer does")
	})
}

// awaitBriefly waits for a batch for no time.
func awaitBriefly(l *partition.Leader, a *partition.Appended) {
	w := partition.NewWaiter()
	w.Start(0)
	defer w.Stop()
	_ = l.AwaitCommitted(context.Background(), w, a)
}

// A high watermark that moved is news to a follower by itself only when it has readers.
func TestHighWatermarkIsNews(t *testing.T) {
	led(t, func(c *cluster, l *partition.Leader) {
		two := c.node(2)
		appendOne(t, c, false)
		_, err := two.fetch()
		require.NoError(t, err)
		commit := func() { // node 2 asks for what comes next
			a, err := two.ask()
			require.NoError(t, err)
			_, err = two.take(a)
			require.NoError(t, err)
		}
		require.Zero(t, watch(t, l, 0, commit))
		require.EqualValues(t, 1, l.Bounds().HighWatermark)
		require.Zero(t, watch(t, l, 0, func() {}), "it has moved already")
		appendOne(t, c, false)
		_, err = two.fetch()
		require.NoError(t, err)
		require.Equal(t, 500*time.Millisecond, watch(t, l, math.MaxInt64, commit))
	})
}

// When leadership moves, everybody who waits is told that this node does not lead, but a produce: that waits on until
// its batch is decided, its time is over or the partition leaves the node.
func TestWaitersHearOfTheEndOfARole(t *testing.T) {
	led(t, func(c *cluster, l *partition.Leader) {
		a := appendOne(t, c, true)
		outcome := make(chan error)
		go func() {
			w := partition.NewWaiter()
			w.Start(time.Minute)
			defer w.Stop()
			outcome <- l.AwaitCommitted(context.Background(), w, &a)
		}()
		synctest.Wait()
		elapsed := watch(t, l, math.MaxInt64, func() {
			c.elect(2)
			c.node(1).told(c.meta)
		})
		require.Zero(t, elapsed)
		require.Empty(t, outcome)
		time.Sleep(time.Minute)
		synctest.Wait()
		err := <-outcome
		require.ErrorIs(t, err, partition.ErrLeadershipLost)
		require.EqualValues(t, 7, partition.Explain(err).Code)
		require.False(t, partition.Explain(err).NotWritten)

		w := partition.NewWaiter()
		require.ErrorIs(t, l.Watch(w, 0), partition.ErrNotLeader)
		require.ErrorIs(t, l.WatchAppends(w, partition.Seen{}), partition.ErrNotLeader)
		w.Leave()
		_, err = l.Append(t.Context(), &partition.AppendRequest{
			Batch: batch(-1, 0, 0, time.Now(), "v"), Expected: -1, Epoch: -1,
		})
		require.ErrorIs(t, err, partition.ErrNotLeader)
		require.True(t, partition.Explain(err).NotWritten)
		for _, err := range []error{
			fetchError(l), offsetError(l), deleteError(l), epochError(l),
		} {
			require.ErrorIs(t, err, partition.ErrNotLeader)
		}
	})
}

func fetchError(l *partition.Leader) error {
	_, err := l.Fetch(partition.FetchRequest{LeaderEpoch: -1})
	return err
}

func offsetError(l *partition.Leader) error {
	_, err := l.OffsetAt(partition.OffsetQuery{Timestamp: -1, LeaderEpoch: -1})
	return err
}

func deleteError(l *partition.Leader) error {
	_, err := l.DeleteRecords(0)
	return err
}

func epochError(l *partition.Leader) error {
	_, _, err := l.EpochEnd(0, -1)
	return err
}

// What a leader that is deposed and leads again has at an offset is not what it was asked about before.
func TestCommitOfAnotherRoleIsNone(t *testing.T) {
	led(t, func(c *cluster, l *partition.Leader) {
		one, two := c.node(1), c.node(2)
		a := appendOne(t, c, true)
		c.meta.ISR = []int32{2}
		c.elect(2)
		one.told(c.meta)
		two.told(c.meta)
		_, err := two.append(batch(-1, 0, 0, time.Now(), "another"), false)
		require.NoError(t, err)
		for range 3 {
			_, err := one.fetch()
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, one.replica.Bounds().HighWatermark, a.Next)
		require.False(t, l.Committed(a.Next))
		c.meta.ISR = []int32{1, 2}
		c.elect(1)
		one.told(c.meta)
		require.False(t, l.Committed(a.Next))
		require.NotSame(t, l, one.leader)
		w := partition.NewWaiter()
		w.Start(time.Second)
		defer w.Stop()
		err = l.AwaitCommitted(context.Background(), w, &a)
		require.ErrorIs(t, err, partition.ErrDiscarded)
		require.EqualValues(t, 6, partition.Explain(err).Code)
		require.True(t, partition.Explain(err).NotWritten)
	})
}

// Consumers that wait at a follower are woken by its high watermark, and by the end of its role.
func TestReadersAtAFollower(t *testing.T) {
	led(t, func(c *cluster, l *partition.Leader) {
		two := c.node(2)
		f := two.replica.Follower()
		wait := func(meanwhile func()) error {
			w := partition.NewWaiter()
			w.Lack(1)
			w.Start(time.Second)
			defer w.Stop()
			require.NoError(t, f.Watch(w, f.Bounds().HighWatermark))
			pos, err := f.Position()
			require.NoError(t, err)
			require.True(t, pos.HasReaders)
			meanwhile()
			return w.Wait(context.Background())
		}
		require.ErrorIs(t, wait(func() {}), partition.ErrTimeout)
		require.NoError(t, wait(func() {
			appendOne(t, c, false)
			for range 2 {
				_, err := two.fetch()
				require.NoError(t, err)
			}
		}))
		require.NoError(t, wait(func() {
			c.elect(2)
			two.told(c.meta)
		}))
		w := partition.NewWaiter()
		require.ErrorIs(t, f.Watch(w, 0), partition.ErrNotLeader)
		w.Leave()
		_, err := f.Fetch(partition.FetchRequest{LeaderEpoch: -1})
		require.ErrorIs(t, err, partition.ErrNotLeader)
		_, err = f.Position()
		require.ErrorIs(t, err, partition.ErrNotLeader)
	})
}
