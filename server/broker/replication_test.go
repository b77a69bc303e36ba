package broker_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/internal/ktag"
	"millrace/storage"
)

func ofThree() clusterOptions { return clusterOptions{members: 3, policy: storage.SyncAck} }

// What the leader acknowledges with acks=all is on all disks in sync, and soon readable at each.
func TestReplication(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		leader := c.members[1]
		began := time.Now()
		for range 10 {
			leader.produce("t", "a", "b")
		}
		require.Less(t, time.Since(began), 100*time.Millisecond, "acks=all waits for no timer")
		got, _ := leader.read("t", 0, "")
		require.Len(t, got, 20)
		for id, m := range c.members {
			m.crash()
			m.start()
			c.await("everything is back", func() bool {
				got, _ := c.members[c.partition("t", 0).Leader].read("t", 0, "")
				return len(got) == 20 && len(c.partition("t", 0).ISR) == 3
			})
			t.Logf("crashed %d, now led by %d", id, c.partition("t", 0).Leader)
		}
	})
}

// identical asserts that all replicas of a partition hold the same batches, byte for byte.
func (c *cluster) identical(topic string) {
	c.t.Helper()
	var want []byte
	for id := int32(1); id <= int32(len(c.members)); id++ {
		var got []byte
		for _, f := range c.members[id].files(topic + "-0/") {
			if strings.HasSuffix(f, ".log") {
				data, err := c.members[id].disk.ReadFile(f)
				require.NoError(c.t, err)
				got = append(got, data...)
			}
		}
		if want == nil {
			want = got
		}
		require.Equal(c.t, want, got, "member %d", id)
	}
}

// A leader that is cut off goes on in vain: what nobody else has is gone when it comes back, and whoever
// waited for it is told that it is not written.
func TestDivergence(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		old, now := c.members[1], c.members[2]
		old.produce("t", "both")
		old.cut.Store(true)
		answer := make(chan int16, 1)
		go func() { answer <- old.send("t", -1, time.Hour, "lost1").ErrorCode }()
		require.Equal(t, "NONE", name(old.send("t", 1, time.Second, "lost2").ErrorCode))
		synctest.Wait()
		require.Empty(t, answer)
		c.fence(1)
		c.await("2 leads", func() bool { return now.broker.Image().Topic("t").Partitions[0].Leader == 2 })
		now.produce("t", "kept1")
		now.produce("t", "kept2", "kept3")
		got, _ := old.read("t", 0, "")
		require.Equal(t, []string{"both"}, got, "what is not committed is not shown")

		old.heal()
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(<-answer))
		c.await("all in sync", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		p := old.send("t", 1, time.Second, "late")
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode))
		require.True(t, ktag.NotWritten(&p.UnknownTags))
		got, _ = now.read("t", 0, "")
		require.Equal(t, []string{"both", "kept1", "kept2", "kept3"}, got)
		c.identical("t")

		c.fence(2)
		c.fence(3)
		c.await("1 leads", func() bool { return old.broker.Image().Topic("t").Partitions[0].Leader == 1 })
		got, _ = old.read("t", 0, "")
		require.Equal(t, []string{"both", "kept1", "kept2", "kept3"}, got)
	})
}

// A follower that falls silent leaves the ISR after replica.lag.time.max.ms, not before, and comes back
// when it has caught up.
func TestSilentFollower(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		leader, silent := c.members[1], c.members[3]
		leader.produce("t", "a")
		time.Sleep(time.Hour) // an idle partition stays as it is
		require.Len(t, c.partition("t", 0).ISR, 3)
		silent.cut.Store(true)
		began := time.Now()
		p := leader.send("t", -1, 5*time.Second, "b")
		require.Equal(t, "REQUEST_TIMED_OUT", name(p.ErrorCode))
		leader.send("t", -1, time.Minute, "c")
		require.Equal(t, []int32{1, 2}, c.partition("t", 0).ISR)
		require.Greater(t, time.Since(began), 29*time.Second)
		require.Less(t, time.Since(began), 46*time.Second)
		require.Zero(t, c.partition("t", 0).LeaderEpoch, "nobody needs to notice")
		leader.produce("t", "d")
		silent.heal()
		c.await("back in the ISR", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		leader.produce("t", "e")
		c.identical("t")
	})
}

// With fewer in sync than min.insync.replicas nothing is promised, and nothing that is written can be seen.
func TestTooFewInSync(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "3")
		leader := c.members[1]
		leader.produce("t", "a")
		c.members[3].cut.Store(true)
		require.Equal(t, "NONE", name(leader.send("t", 1, time.Second, "b").ErrorCode))
		c.await("shrunk", func() bool { return len(leader.broker.Image().Topic("t").Partitions[0].ISR) == 2 })
		p := leader.send("t", -1, time.Second, "c")
		require.Equal(t, "NOT_ENOUGH_REPLICAS", name(p.ErrorCode))
		require.True(t, ktag.NotWritten(&p.UnknownTags))
		got, _ := leader.read("t", 0, "")
		require.Equal(t, []string{"a"}, got)
		c.members[3].heal()
		c.await("grown", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		leader.produce("t", "d")
		got, _ = leader.read("t", 0, "")
		require.Equal(t, []string{"a", "b", "d"}, got)
	})
}

// A replica that is added is filled and then takes part; one that is taken away loses its files.
func TestReassignment(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", [][]int32{{1, 2}}, "file.delete.delay.ms", "1000")
		for range 20 {
			c.members[1].produce("t", "v")
		}
		require.Empty(t, c.members[3].files("t-0"))
		c.move("t", 3, 2)
		c.await("moved", func() bool { p := c.partition("t", 0); return !p.Reassigning() })
		require.Equal(t, []int32{3, 2}, c.partition("t", 0).Replicas)
		leader := c.members[c.partition("t", 0).Leader]
		leader.produce("t", "after")
		got, _ := leader.read("t", 0, "")
		require.Len(t, got, 21)
		p := c.members[1].send("t", 1, time.Second, "v")
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode))
		for _, f := range c.members[1].files("t-0") {
			require.Contains(t, f, "-delete", "the folder is renamed at once")
		}
		c.await("files are gone", func() bool { return len(c.members[1].files("t-0")) == 0 })
		require.NotEmpty(t, c.members[3].files("t-0"))
	})
}

// Whoever waits for a batch when its leader is relieved is not told that the partition is gone: the batch is
// there, and may be committed.
func TestReassignmentOfALeaderThatIsWaitedFor(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		leader := c.members[1]
		leader.produce("t", "a")
		c.members[2].cut.Store(true)
		c.members[3].cut.Store(true)
		answer := make(chan int16, 1)
		go func() { answer <- leader.send("t", -1, time.Hour, "b").ErrorCode }()
		synctest.Wait()
		c.move("t", 2, 3)
		require.Equal(t, "REQUEST_TIMED_OUT", name(<-answer))
		c.members[2].heal()
		c.members[3].heal()
		c.await("2 leads", func() bool { return c.members[2].broker.Image().Topic("t").Partitions[0].Leader == 2 })
		c.members[2].produce("t", "c")
	})
}

// What acks=1 writes are not waited for, they do not cost a fetch each.
func TestFetchesLinger(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three())
		leader := c.members[1]
		leader.produce("t", "a")
		before := leader.fetches.Load()
		for range 1000 {
			leader.send("t", 1, time.Second, "v")
			time.Sleep(time.Millisecond)
		}
		require.Less(t, leader.fetches.Load()-before, int64(2*220), "fetches of two followers in a second")
		time.Sleep(20 * time.Millisecond)
		got, _ := leader.read("t", 0, "")
		require.Len(t, got, 1001)

		time.Sleep(time.Second)
		before = leader.fetches.Load()
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, leader.fetches.Load()-before, int64(2*21), "an idle partition is asked for twice a second")
	})
}

// Partitions that rest do not make those expensive in which something is going on.
func TestBusyPartitions(t *testing.T) {
	simulate(t, clusterOptions{members: 2, policy: storage.SyncAck}, func(t *testing.T, c *cluster) {
		pair := [][]int32{{1, 2}}
		c.create("t", pair)
		for i := range 50 {
			c.create(fmt.Sprintf("rests%d", i), pair)
		}
		leader := c.members[1]
		cost := func() float64 {
			fetches, asked := leader.fetches.Load(), leader.asked.Load()
			for range 200 {
				leader.produce("t", "v")
				time.Sleep(time.Millisecond)
			}
			return float64(leader.asked.Load()-asked) / float64(leader.fetches.Load()-fetches)
		}
		cost()
		require.Less(t, cost(), 2.0, "partitions a fetch")
		leader.produce("rests7", "v")
		began := time.Now()
		leader.produce("rests8", "v")
		require.Less(t, time.Since(began), 10*time.Millisecond)

		time.Sleep(10 * time.Second)
		fetches, asked := leader.fetches.Load(), leader.asked.Load()
		time.Sleep(10 * time.Second)
		require.InDelta(t, 20, leader.fetches.Load()-fetches, 2, "one loop at rest")
		require.InDelta(t, 20*51, leader.asked.Load()-asked, 2*51)
		began = time.Now()
		leader.produce("t", "v")
		require.Less(t, time.Since(began), 10*time.Millisecond)
		c.await("all is committed", func() bool { got, _ := leader.read("t", 0, ""); return len(got) == 401 })
		c.identical("t")
	})
}
