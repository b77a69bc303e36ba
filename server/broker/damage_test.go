package broker_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
	"millrace/storage/storagetest"
)

const firstSegment = "t-0/00000000000000000000.log"

// stray counts the files of logs that were set aside.
func (m *member) stray() int {
	n := 0
	for _, f := range m.disk.Files() {
		if strings.Contains(f, "-stray/") && strings.HasSuffix(f, ".log") {
			n++
		}
	}
	return n
}

// A leader whose log is damaged hands over, sets its log aside and fetches it anew.
func TestDamagedLeader(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		m := c.members[1]
		for range 10 {
			m.produce("t", strings.Repeat("v", 100))
		}
		require.NoError(t, m.disk.FlipBit(firstSegment, 300, 1))
		_, p := m.read("t", 1, "")
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode), "another will answer")
		c.await("another leads", func() bool { return c.partition("t", 0).Leader != 1 })
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		require.Equal(t, 1, m.stray())
		c.members[c.partition("t", 0).Leader].produce("t", "after")
		c.identical("t")
	})
}

// A follower that finds damage when a consumer reads gives up its place before it gives up its log.
func TestDamagedFollower(t *testing.T) {
	o := ofThree()
	o.racks = map[int32]string{1: "a", 2: "b", 3: "c"}
	simulate(t, o, func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		for range 10 {
			c.members[1].produce("t", strings.Repeat("v", 100))
		}
		synctest.Wait()
		time.Sleep(time.Second) // the followers know that it is committed
		m := c.members[3]
		require.NoError(t, m.disk.FlipBit(firstSegment, 300, 1))
		epoch := c.partition("t", 0).PartitionEpoch
		_, p := m.read("t", 1, "c")
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode), "another will answer")
		c.await("out of the ISR", func() bool { return c.partition("t", 0).PartitionEpoch > epoch })
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		require.Equal(t, 1, m.stray())
		require.Equal(t, int32(1), c.partition("t", 0).Leader)
		c.members[1].produce("t", "after")
		c.identical("t")
	})
}

// A replica that is fetched anew does not pass for one that has everything, though its leader took it back by
// what it had before.
func TestDamagedFollowerIsTakenBackTooSoon(t *testing.T) {
	o := ofThree()
	o.racks = map[int32]string{1: "a", 2: "b", 3: "c"}
	simulate(t, o, func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2", "follower.replication.throttled.replicas", "*")
		for range 100 {
			c.members[1].produce("t", strings.Repeat("v", 1000))
		}
		synctest.Wait()
		time.Sleep(time.Second)
		c.throttle("follower", "1000")
		require.NoError(t, c.members[3].disk.FlipBit(firstSegment, 300, 1))
		c.members[3].read("t", 0, "c")
		c.await("set aside", func() bool { return c.members[3].stray() == 1 })
		now := c.partition("t", 0)
		require.Len(t, now.ISR, 2)
		change := metadata.AlteredPartition{
			TopicID: c.image().Topic("t").ID, LeaderEpoch: now.LeaderEpoch, PartitionEpoch: now.PartitionEpoch,
		}
		for id := int32(1); id <= 3; id++ {
			change.ISR = append(change.ISR, metadata.ISRMember{ID: id, Epoch: c.image().BrokerEpoch(id)})
		}
		r := c.propose(&metadata.AlterPartition{
			BrokerID: 1, BrokerEpoch: c.image().BrokerEpoch(1), Partitions: []metadata.AlteredPartition{change},
		})
		require.Zero(t, r.Items[0].Code, r.Items[0].Message)
		require.Len(t, c.partition("t", 0).ISR, 3)
		time.Sleep(2 * time.Second)
		if len(c.partition("t", 0).ISR) == 3 {
			c.identical("t") // in the ISR it was not throttled, and fast enough
		}
		c.throttle("follower", "10000000")
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		c.identical("t")
	})
}

// A log that cannot be opened is fetched anew like one that cannot be read.
func TestDamageFoundAtStart(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		for range 10 {
			c.members[1].produce("t", strings.Repeat("v", 100))
		}
		m := c.members[1]
		m.stop()
		for _, f := range m.disk.Files() {
			if strings.HasPrefix(f, "t-0/") && strings.HasSuffix(f, "partition.metadata") {
				m.disk.WriteFile(f, []byte("nonsense"))
			}
		}
		m.start()
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		c.members[c.partition("t", 0).Leader].produce("t", "after")
		c.identical("t")
	})
}

// So is one that is in no ISR when its node starts, though nothing happens to its topic that would have it opened
// again.
func TestDamageFoundAtStartOutOfSync(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		for range 10 {
			c.members[1].produce("t", strings.Repeat("v", 100))
		}
		m := c.members[3]
		m.crash()
		c.fence(3)
		require.Equal(t, []int32{1, 2}, c.partition("t", 0).ISR)
		require.Empty(t, c.partition("t", 0).ELR)
		m.disk.WriteFile("t-0/leader-epoch-checkpoint", []byte("nonsense"))
		m.start()
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		require.Equal(t, 1, m.stray())
		c.identical("t")
	})
}

// A leader hands over also when damage is found by who asks for its producers.
func TestDamageFoundByAQuestion(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		m := c.members[1]
		for range 10 {
			m.produce("t", strings.Repeat("v", 100))
		}
		m.stop()
		for _, f := range m.disk.Files() {
			if strings.HasPrefix(f, "t-0/") && strings.HasSuffix(f, ".snapshot") {
				m.disk.WriteFile(f, []byte("nonsense"))
			}
		}
		m.start()
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		c.propose(&metadata.ElectLeaders{Partitions: []metadata.PartitionRef{{Topic: "t"}}})
		require.Equal(t, int32(1), c.partition("t", 0).Leader)
		require.NoError(t, m.disk.FlipBit(firstSegment, 16, 0))
		c.await("the answer", func() bool { return m.describeProducers("t") == "NOT_LEADER_FOR_PARTITION" })
		c.await("another leads", func() bool { return c.partition("t", 0).Leader != 1 })
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		require.Equal(t, 1, m.stray())
		c.identical("t")
	})
}

// The last replica in sync hands over to one that has everything all the same.
func TestDamagedLeaderHandsOverToEligible(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		m := c.members[1]
		for range 10 {
			m.produce("t", strings.Repeat("v", 100))
		}
		for _, id := range []int32{2, 3} {
			c.members[id].cut.Store(true)
			c.fence(id)
		}
		require.Equal(t, []int32{1}, c.partition("t", 0).ISR)
		require.NotEmpty(t, c.partition("t", 0).ELR)
		m.stop()
		m.disk.WriteFile("t-0/leader-epoch-checkpoint", []byte("nonsense"))
		for _, id := range []int32{2, 3} {
			c.members[id].cut.Store(false)
		}
		m.start()
		c.await("set aside", func() bool { return m.stray() == 1 })
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		c.members[c.partition("t", 0).Leader].produce("t", "after")
		c.identical("t")
	})
}

// The only replica in sync keeps its damaged log and what can be read of it.
func TestDamagedLastReplica(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", [][]int32{{1, 2}})
		m := c.members[1]
		m.produce("t", strings.Repeat("v", 100))
		m.produce("t", strings.Repeat("v", 100))
		c.members[2].cut.Store(true)
		c.fence(2)
		require.NoError(t, m.disk.FlipBit(firstSegment, 100, 1))
		_, p := m.read("t", 0, "")
		require.Equal(t, "CORRUPT_MESSAGE", name(p.ErrorCode))
		time.Sleep(time.Minute)
		require.Equal(t, int32(1), c.partition("t", 0).Leader)
		require.Zero(t, m.stray())
		got, _ := m.read("t", 1, "")
		require.Len(t, got, 1)
	})
}

// Where the last replica in sync cannot even be opened, or be looked at, another one leads if the topic allows that.
func TestUnusableLastReplica(t *testing.T) {
	for _, end := range []func(*member){(*member).stop, (*member).crash} {
		simulate(t, ofThree(), func(t *testing.T, c *cluster) {
			m := unusableLastReplica(c, "true", end)
			c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
			require.Equal(t, 1, m.stray())
			c.members[c.partition("t", 0).Leader].produce("t", "after")
			c.identical("t")
		})
		simulate(t, ofThree(), func(t *testing.T, c *cluster) {
			m := unusableLastReplica(c, "false", end)
			time.Sleep(time.Minute)
			require.Equal(t, []int32{1}, c.partition("t", 0).ISR)
			require.Zero(t, m.stray())
		})
	}
}

// unusableLastReplica has member 1 go on as the only one in sync, with a log that cannot be used, and the others come
// back later.
func unusableLastReplica(c *cluster, unclean string, end func(*member)) *member {
	c.create("t", three(), "min.insync.replicas", "1", "unclean.leader.election.enable", unclean)
	m := c.members[1]
	m.produce("t", strings.Repeat("v", 100))
	for _, id := range []int32{2, 3} {
		c.members[id].cut.Store(true)
		c.fence(id)
	}
	require.Equal(c.t, []int32{1}, c.partition("t", 0).ISR)
	require.Empty(c.t, c.partition("t", 0).ELR)
	end(m)
	m.disk.WriteFile("t-0/leader-epoch-checkpoint", []byte("nonsense"))
	m.start()
	require.Equal(c.t, int32(1), c.partition("t", 0).Leader)
	for _, id := range []int32{2, 3} {
		c.members[id].heal()
	}
	return m
}

// A leader whose disk takes no more writes hands over, and stays out.
func TestFailedDisk(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		m := c.members[1]
		m.produce("t", "a")
		m.disk.SetFault(func(op storagetest.Op, file string) (time.Duration, error) {
			if (op == storagetest.OpSync || op == storagetest.OpSyncAll) && strings.HasPrefix(file, "t-0") {
				return 0, errCut
			}
			return 0, nil
		})
		_, at := m.read("t", 9, "")
		require.Equal(t, "OFFSET_OUT_OF_RANGE", name(at.ErrorCode))
		m.cut.Store(true) // it hears late of its successor
		p := m.send("t", -1, 10*time.Second, "b")
		require.NotEqual(t, "NONE", name(p.ErrorCode))
		_, at = m.read("t", 9, "")
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(at.ErrorCode), "it has asked for one")
		m.heal()
		c.await("another leads", func() bool { return c.partition("t", 0).Leader != 1 })
		require.False(t, slices.Contains(c.partition("t", 0).ISR, 1))
		c.members[c.partition("t", 0).Leader].produce("t", "c")
		m.disk.SetFault(nil)
		m.abandon()
		m.start()
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		c.identical("t")
	})
}

// A follower whose log takes no more writes gives its place up at once, and is not taken back for what it had.
func TestFailedDiskOfAFollower(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		m := c.members[3]
		c.members[1].produce("t", "a")
		m.disk.SetFault(func(op storagetest.Op, file string) (time.Duration, error) {
			if (op == storagetest.OpSync || op == storagetest.OpSyncAll) && strings.HasPrefix(file, "t-0") {
				return 0, errCut
			}
			return 0, nil
		})
		began := time.Now()
		c.members[1].produce("t", "b")
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, []int32{1, 2}, c.partition("t", 0).ISR)
		epoch := c.partition("t", 0).PartitionEpoch
		c.fence(2)
		c.await("2 is back", func() bool { return len(c.partition("t", 0).ISR) == 2 })
		time.Sleep(2 * time.Minute)
		require.Equal(t, []int32{1, 2}, c.partition("t", 0).ISR)
		require.LessOrEqual(t, c.partition("t", 0).PartitionEpoch, epoch+2)
		m.disk.SetFault(nil)
		m.abandon()
		m.start()
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		c.identical("t")
	})
}

// A replica that finds no room gives its place up, and is eligible: it has everything.
func TestFullDiskStaysEligible(t *testing.T) {
	for _, full := range []int32{1, 3} { // the leader, a follower
		simulate(t, ofThree(), func(t *testing.T, c *cluster) {
			c.create("t", three(), "min.insync.replicas", "2")
			c.members[1].produce("t", "a")
			c.members[2].cut.Store(true)
			c.fence(2)
			require.Equal(t, []int32{1, 3}, c.partition("t", 0).ISR)
			m, other := c.members[full], 4-full
			m.disk.SetQuota(1)
			c.members[1].send("t", 1, time.Second, "b")
			c.await("the other leads", func() bool { return c.partition("t", 0).Leader == other })
			c.members[other].send("t", 1, time.Second, "c") // which this one cannot follow
			c.await("and alone", func() bool { return slices.Equal(c.partition("t", 0).ISR, []int32{other}) })
			require.Contains(t, c.partition("t", 0).ELR, full)
			time.Sleep(time.Minute)
			require.Equal(t, []int32{other}, c.partition("t", 0).ISR)
			require.Contains(t, c.partition("t", 0).ELR, full)
			c.members[other].cut.Store(true)
			c.fence(other)
			require.Equal(t, full, c.partition("t", 0).Leader)
			m.disk.SetQuota(0)
			c.members[other].heal()
			c.members[2].heal()
			c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
			leader := c.members[c.partition("t", 0).Leader]
			leader.produce("t", "d")
			got, _ := leader.read("t", 0, "")
			require.Equal(t, "a", got[0])
			c.identical("t")
		})
	}
}

// A consumer that names its rack may read at a follower, up to the high watermark that this knows, which
// follows the leader's at once.
func TestFollowerReads(t *testing.T) {
	o := ofThree()
	o.racks = map[int32]string{1: "a", 2: "b", 3: "c"}
	simulate(t, o, func(t *testing.T, c *cluster) {
		c.create("t", three())
		leader, near := c.members[1], c.members[2]
		leader.produce("t", "a")
		_, p := near.read("t", 0, "")
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode))
		require.Equal(t, int32(1), p.CurrentLeader.LeaderID)
		require.Equal(t, int32(0), p.CurrentLeader.LeaderEpoch)
		c.await("a is known to be committed", func() bool { got, _ := near.read("t", 0, "b"); return len(got) == 1 })
		began := time.Now()
		done := make(chan time.Duration, 1)
		go func() {
			req := near.fetchRequest("t", 1, "b")
			req.MaxWaitMillis = 60_000
			resp, err := req.RequestWith(t.Context(), near.broker)
			if err == nil && len(resp.Topics[0].Partitions[0].RecordBatches) > 0 {
				done <- time.Since(began)
			}
			close(done)
		}()
		time.Sleep(time.Second)
		began = time.Now()
		leader.produce("t", "b")
		require.Less(t, <-done, 50*time.Millisecond, "a reader at a follower waits for no long poll")
		_, p = near.read("t", 99, "b")
		require.Equal(t, "OFFSET_NOT_AVAILABLE", name(p.ErrorCode), "only the leader knows where the log ends")
	})
}
