package partition_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// A follower whose disk stops at its k-th operation, for every k, on the way through a divergence: it has batches
// of a leader that is gone, and takes what the new one has instead. Whatever survived, it then gets the leader's
// log, and knows the producers as the leader does.
func TestFollowerCrashesAtEveryOperation(t *testing.T) {
	settings := topicSettings(t)
	settings.SegmentBytes = 500
	for _, mode := range storagetest.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			k := 1
			for ; crashFollower(t, settings, k, mode); k++ {
				if testing.Short() {
					k += 6
				}
			}
			require.Greater(t, k, 40, "the workload does too little")
		})
	}
}

// crashFollower tells whether the disk came to its k-th operation.
func crashFollower(t *testing.T, settings metadata.TopicSettings, k int, mode storagetest.Mode) (stopped bool) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings, 3)
		c.policy, c.rng = storage.SyncAck, rand.New(rand.NewPCG(uint64(k), uint64(mode)))
		defer c.close()
		for _, n := range c.nodes {
			n.start()
		}
		tell := func(leader int32) {
			c.meta.ISR = []int32{leader}
			c.elect(leader)
			for _, n := range c.nodes {
				n.told(c.meta)
			}
		}
		three := c.node(3)
		var sequence [3]int32
		write := func(at int32, count int) {
			for range count {
				id := int64(c.rng.IntN(3))
				b := batch(id, int16(at), sequence[id], time.Now(), strings.Repeat("v", c.rng.IntN(90)))
				sequence[id]++
				_, err := c.node(at).append(b, false)
				require.NoError(t, err)
			}
		}
		tell(1)
		write(1, 8)
		fetchUntilCrash(c.node(2)) // all of it
		three.disk.StopAt(k, storagetest.Moment(k%2))
		fetchUntilCrash(three)
		write(1, 5)
		fetchUntilCrash(three) // what the next leader has not
		sequence = [3]int32{}
		tell(2)
		write(2, 12)
		fetchUntilCrash(three)
		stopped = three.disk.Stopped()
		three.crash(mode)
		three.start()
		three.told(c.meta)
		for range 12 {
			_, err := three.fetch()
			require.NoError(t, err)
		}
		compareReplicas(t, c.node(2), three)
	})
	return stopped
}

// A follower whose log is to begin anew on a disk without room keeps what it has, and its offsets stay in order.
func TestFollowerBeginsAnewOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, topicSettings(t), 2)
		defer c.close()
		for _, n := range c.nodes {
			n.start()
		}
		c.meta.ISR = []int32{1}
		c.elect(1)
		for _, n := range c.nodes {
			n.told(c.meta)
		}
		leader, follower := c.node(1), c.node(2)
		follower.active = false // or the leader would wait for it
		write := func() {
			for range 5 {
				_, err := leader.append(batch(1, 0, int32(leader.replica.Bounds().LogEnd), time.Now(), "v"), false)
				require.NoError(t, err)
			}
		}
		write()
		fetchUntilCrash(follower)
		had := follower.replica.Probe()
		require.Equal(t, int64(5), had.LogEnd)
		write()
		_, err := leader.replica.Leader().DeleteRecords(8)
		require.NoError(t, err)
		for room := int64(1); ; room++ {
			follower.disk.SetQuota(follower.disk.Used() + room)
			outcome, err := follower.fetch()
			require.Equal(t, partition.OutOfRange, outcome)
			if err == nil {
				break
			}
			require.ErrorIs(t, err, storage.ErrDiskFull)
			require.Equal(t, had, follower.replica.Probe())
		}
		follower.disk.SetQuota(0)
		fetchUntilCrash(follower)
		compareReplicas(t, leader, follower)
	})
}

// fetchUntilCrash lets a follower catch up, as far as its disk lets it.
func fetchUntilCrash(n *replicaNode) {
	for range 12 {
		if n.disk.Stopped() || n.replica.Offline() != nil {
			return
		}
		if _, err := n.fetch(); err != nil {
			return
		}
	}
}

// compareReplicas holds a follower that has caught up to its leader.
func compareReplicas(t *testing.T, leader, follower *replicaNode) {
	want, err := leader.replica.Batches()
	require.NoError(t, err)
	got, err := follower.replica.Batches()
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, leader.replica.Bounds(), follower.replica.Bounds())
	states, err := leader.replica.Producers(-1)
	require.NoError(t, err)
	followers, err := follower.replica.Producers(-1)
	require.NoError(t, err)
	require.Equal(t, states, followers)
}
