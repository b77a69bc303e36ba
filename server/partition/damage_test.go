package partition_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/server/partition"
	"millrace/storage/storagetest"
)

const firstSegment = "t-0/00000000000000000000.log"

// pair has a test run with a leader, 1, and a follower, 2.
func pair(t *testing.T, run func(t *testing.T, c *cluster)) {
	settings := topicSettings(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings, 2)
		defer c.close()
		for _, n := range c.nodes {
			n.start()
		}
		c.elect(1)
		c.tell()
		run(t, c)
	})
}

func (c *cluster) tell() {
	for _, n := range c.nodes {
		n.told(c.meta)
	}
}

// follow has node 2 fetch until it has what its leader has.
func (c *cluster) follow() {
	for range 10 {
		_, err := c.node(2).fetch()
		require.NoError(c.t, err)
	}
	ours, err := c.node(1).replica.Batches()
	require.NoError(c.t, err)
	theirs, err := c.node(2).replica.Batches()
	require.NoError(c.t, err)
	require.Equal(c.t, ours, theirs)
}

// appendLong appends so much that the indexes lead past the first batch.
func (c *cluster) appendLong() {
	for range 10 {
		time.Sleep(time.Millisecond)
		_, err := c.node(1).append(batch(-1, -1, -1, time.Now(), strings.Repeat("v", 1000)), false)
		require.NoError(c.t, err)
	}
}

// abort begins a transaction of a producer at the leader and aborts it.
func (c *cluster) abort(id int64) {
	defer synctest.Wait()
	l := c.node(1).replica.Leader()
	g, _, err := l.TxnGuard(id, 0)
	require.NoError(c.t, err)
	_, err = l.Append(context.Background(), &partition.AppendRequest{
		Batch: inTxn(batch(id, 0, 0, time.Now(), "v")), Expected: -1, Epoch: -1, Guard: &g,
	})
	require.NoError(c.t, err)
	_, err = l.AppendMarker(context.Background(), &partition.Marker{
		ProducerID: id, ProducerEpoch: 1, CoordinatorEpoch: 5, Version: 2, Epoch: -1,
	})
	require.NoError(c.t, err)
}

// strays are the segments of the logs that a node has set aside.
func (n *replicaNode) strays() (names []string) {
	for _, f := range n.disk.Files() {
		if strings.Contains(f, "-stray/") && strings.HasSuffix(f, ".log") {
			names = append(names, f)
		}
	}
	return names
}

// A log in which a bit rots while its node is down may lack what a crash has lost of its index of aborted transactions,
// which cannot be made anew: the node says so as it opens the log, which it cannot close in order, and fetches anew.
func TestDamageKeepsTheIndexFromBeingMadeAnew(t *testing.T) {
	pair(t, func(t *testing.T, c *cluster) {
		n := c.node(2)
		c.appendLong()
		c.follow()
		require.NoError(t, n.dir.Checkpoint())
		c.abort(7)
		c.follow()
		n.crash(storagetest.KeepAll)
		require.NoError(t, n.disk.FlipBit(firstSegment, 16, 0))
		n.start()
		require.Error(t, n.damage, "nobody may come by to read it")
		require.True(t, partition.Damaged(n.damage))
		n.told(c.meta)
		_, err := n.fetch()
		require.NoError(t, err)
		r, err := n.replica.SetAsideAndRestart()
		require.NoError(t, err)
		n.replica = r
		n.told(c.meta)
		c.follow()
		require.Len(t, n.strays(), 1)
		c.abort(8)
		c.follow()
	})
}

// A damaged log is set aside also where there is no room to close it in order.
func TestADamagedLogIsSetAsideOnAFullDisk(t *testing.T) {
	pair(t, func(t *testing.T, c *cluster) {
		n := c.node(2)
		c.appendLong()
		c.follow()
		require.NoError(t, n.disk.FlipBit(firstSegment, 300, 1))
		n.disk.SetQuota(1)
		r, err := n.replica.SetAsideAndRestart()
		require.True(t, partition.Passes(err), "%v", err)
		require.Nil(t, r)
		require.Len(t, n.strays(), 1)
		n.disk.SetQuota(0)
		n.reopen()
		n.told(c.meta)
		c.follow()
	})
}

// A follower that meets damage in its own log while it appends does not take it for damage of what its leader sent.
func TestAFollowerMeetsItsOwnDamage(t *testing.T) {
	pair(t, func(t *testing.T, c *cluster) {
		n := c.node(2)
		c.appendLong()
		c.follow()
		n.stop()
		require.NoError(t, n.disk.FlipBit(firstSegment, 16, 0))
		n.start()
		n.told(c.meta)
		c.appendLong()
		outcome, err := n.fetch()
		require.Equal(t, "stop", outcomeName(outcome))
		require.True(t, partition.Damaged(err), "%v", err)
		require.True(t, partition.Damaged(n.damage), "%v", n.damage)
		a, err := n.ask()
		require.NoError(t, err)
		a.got.Records = slices.Clone(a.got.Records)
		a.got.Records[record.HeaderSize] ^= 1
		outcome, err = n.take(a)
		require.Equal(t, "corrupt", outcomeName(outcome))
		require.False(t, partition.Damaged(err), "%v", err)
	})
}
