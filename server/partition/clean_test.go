package partition_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage/storagetest"
)

// compactSettings are those of a topic that is compacted whenever anything is dirty.
func compactSettings(t testing.TB) metadata.TopicSettings {
	s := topicSettings(t)
	s.CleanupCompact, s.CleanupDelete, s.MinCleanableDirtyRatio = true, false, 0
	s.SegmentBytes, s.IndexIntervalBytes, s.FileDeleteDelay = 1500, 200, 0
	return s
}

// keyed builds a batch of one record; of no producer when id is -1.
func keyed(id int64, sequence int32, key, value string) record.Batch {
	var b record.Builder
	if id >= 0 {
		b.SetProducer(id, 0, sequence)
	}
	b.Append(&record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte(key), Value: []byte(value)})
	return b.Build()
}

// clean compacts a replica until nothing is left to be done.
func (n *replicaNode) clean() (rounds int) {
	c := partition.NewCleaner()
	for {
		_, due, err := n.replica.Dirty()
		require.NoError(n.cluster.t, err)
		if !due {
			return rounds
		}
		res, err := n.replica.Clean(context.Background(), c, partition.CleanOptions{
			MapBytes: 1 << 20, BufferBytes: 64 << 10, Pace: func(context.Context, int) error { return nil },
		})
		require.NoError(n.cluster.t, err)
		if res.To <= res.From {
			return rounds
		}
		rounds++
	}
}

// latest is what a reader from the start has of each key in the end.
func (n *replicaNode) latest() map[string]string {
	all, err := n.replica.Batches()
	require.NoError(n.cluster.t, err)
	values := map[string]string{}
	for _, b := range all {
		r := record.NewReader(b, 1<<20)
		for rec := (record.Record{}); !b.IsControl() && r.Next(&rec); {
			values[string(rec.Key)] = string(rec.Value)
		}
		require.NoError(n.cluster.t, r.Err())
	}
	return values
}

// A follower that stopped below what its leader has compacted away since goes on behind the gap, each compacts its own
// log, and either can lead.
func TestFollowersGoOnBehindCompactedGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, compactSettings(t), 2)
		defer c.close()
		c.node(1).start()
		c.node(2).start()
		c.meta.ISR = []int32{1}
		c.elect(1)
		c.node(1).told(c.meta)
		c.node(2).told(c.meta)
		write := func(from, to int) {
			for i := from; i < to; i++ {
				_, err := c.node(c.meta.Leader).append(keyed(-1, 0, fmt.Sprintf("k%d", i%5), fmt.Sprintf("v%d", i)), false)
				require.NoError(t, err)
			}
		}
		catchUp := func(id int32) {
			for c.node(id).replica.Bounds().LogEnd < c.node(c.meta.Leader).replica.Bounds().LogEnd {
				_, err := c.node(id).fetch()
				require.NoError(t, err)
			}
		}
		write(0, 7)
		catchUp(2)
		write(7, 100)
		require.Positive(t, c.node(1).clean())
		catchUp(2)
		require.Equal(t, c.node(1).latest(), c.node(2).latest())
		own, err := c.node(2).replica.Batches()
		require.NoError(t, err)
		require.Less(t, len(own), 60, "it has what the leader had left")
		c.node(2).clean()

		c.elect(2)
		c.meta.ISR = []int32{2}
		c.node(2).told(c.meta)
		c.node(1).told(c.meta)
		write(100, 200)
		require.Positive(t, c.node(2).clean())
		catchUp(1)
		c.node(1).clean()
		want := map[string]string{}
		for i := range 5 {
			want[fmt.Sprintf("k%d", i)] = fmt.Sprintf("v%d", 195+i)
		}
		require.Equal(t, want, c.node(1).latest())
		require.Equal(t, want, c.node(2).latest())
		require.Equal(t, c.node(1).replica.Bounds().LogEnd, c.node(2).replica.Bounds().LogEnd)

		c.node(1).crash(storagetest.LoseAll)
		c.node(1).start()
		require.Equal(t, want, c.node(1).latest())
		require.EqualValues(t, 200, c.node(1).replica.Bounds().LogEnd)
	})
}

// What producers wrote last is known from a compacted log alone: repeats are found, and the next sequence fits.
func TestProducersOutliveTheirRecords(t *testing.T) {
	for _, id := range []int64{7, ktag.NamedProducerID("a name")} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, compactSettings(t), 1)
			defer c.close()
			n := c.node(1)
			n.start()
			c.elect(1)
			n.told(c.meta)
			for seq := range int32(3) {
				_, err := n.append(keyed(id, seq, "mine", fmt.Sprint(seq)), true)
				require.NoError(t, err)
			}
			for i := range 60 {
				_, err := n.append(keyed(-1, 0, "mine", fmt.Sprint("another's ", i)), true)
				require.NoError(t, err)
			}
			require.Positive(t, n.clean())
			empty := 0
			all, err := n.replica.Batches()
			require.NoError(t, err)
			for _, b := range all {
				if b.ProducerID() == id {
					require.Zero(t, b.Count(), "a header is all that is left")
					require.EqualValues(t, 2, b.BaseSequence())
					empty++
				}
			}
			require.Equal(t, 1, empty)

			n.crash(storagetest.KeepAll)
			for _, name := range n.disk.Files() {
				if strings.HasSuffix(name, ".snapshot") {
					require.NoError(t, n.disk.Remove(name))
				}
			}
			n.start()
			c.elect(1)
			n.told(c.meta)
			a, err := n.append(keyed(id, 2, "mine", "2"), true)
			require.NoError(t, err)
			require.True(t, a.Duplicate)
			require.EqualValues(t, 2, a.BaseOffset)
			a, err = n.append(keyed(id, 3, "mine", "3"), true)
			require.NoError(t, err)
			require.False(t, a.Duplicate)
		})
	}
}

// txnNode is a node on which producers write in transactions.
type txnNode struct {
	*replicaNode
	t     *testing.T
	epoch map[int64]int16
}

// txn writes one record in its producer's transaction.
func (n *txnNode) txn(id int64, key, value string) {
	g, open, err := n.leader.TxnGuard(id, n.epoch[id])
	require.NoError(n.t, err)
	var b record.Builder
	b.SetTransactional()
	b.SetProducer(id, n.epoch[id], 0)
	b.Append(&record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte(key), Value: []byte(value)})
	r := &partition.AppendRequest{Batch: b.Build(), AllInSync: true, Expected: -1, Epoch: -1}
	if !open {
		r.Guard = &g
	}
	_, err = n.leader.Append(n.t.Context(), r)
	require.NoError(n.t, err)
}

// end ends a producer's transaction.
func (n *txnNode) end(id int64, commit bool) {
	n.epoch[id]++
	_, err := n.leader.AppendMarker(n.t.Context(), &partition.Marker{
		ProducerID: id, ProducerEpoch: n.epoch[id], CoordinatorEpoch: 1, Commit: commit, Version: 2, Epoch: -1,
	})
	require.NoError(n.t, err)
	synctest.Wait()
}

// plain writes records of a key outside of transactions.
func (n *txnNode) plain(key string, count int) {
	for i := range count {
		_, err := n.append(keyed(-1, 0, key, fmt.Sprint(i)), true)
		require.NoError(n.t, err)
	}
}

// committed is what a reader of committed records has in the end.
func (n *txnNode) committed() map[string]string {
	values := map[string]string{}
	for from := n.replica.Bounds().LogStart; ; {
		f, err := n.leader.Fetch(partition.FetchRequest{
			Offset: from, LeaderEpoch: -1, MaxBytes: 1 << 20, ReadCommitted: true,
		})
		require.NoError(n.t, err)
		if f.Next == from {
			return values
		}
		from = f.Next
		takeCommitted(n.t, f, values)
	}
}

// batches are those that are in the log.
func (n *txnNode) batches() []record.Batch {
	all, err := n.replica.Batches()
	require.NoError(n.t, err)
	return all
}

// Markers and aborted records go, and with them what is known of them, but not before all data is gone and a day over.
// Open transactions hold compaction back.
func TestTransactionsAreCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, compactSettings(t), 1)
		defer c.close()
		n := &txnNode{replicaNode: c.node(1), t: t, epoch: map[int64]int16{}}
		n.start()
		c.elect(1)
		n.told(c.meta)
		for i := range 40 {
			n.txn(1, fmt.Sprint("a", i%3), fmt.Sprint(i))
			n.end(1, true)
			n.txn(2, fmt.Sprint("a", i%3), "aborted")
			n.end(2, false)
		}
		want := map[string]string{"a0": "39", "a1": "37", "a2": "38"}
		require.Equal(t, want, n.committed())
		n.clean()
		require.Equal(t, want, n.committed())

		n.txn(3, "b", "open")
		open := n.replica.Bounds().LogEnd - 1
		n.plain("c", 60)
		n.clean()
		seen := 0
		for _, b := range n.batches() {
			if b.BaseOffset() >= open {
				seen++
			}
		}
		require.Equal(t, 61, seen, "nothing is compacted from an open transaction on")
		n.end(3, true)
		want["b"], want["c"], want["d"] = "open", "59", "39"
		for range 3 {
			time.Sleep(25 * time.Hour)
			n.plain("d", 40)
			n.replica.ExpireProducers(24 * time.Hour)
			n.clean()
			require.Equal(t, want, n.committed())
		}
		require.Less(t, len(n.batches()), 70)
		aborts := 0
		for _, b := range n.batches() {
			if m, ok := b.EndTxnMarker(); ok && m.Type == record.ControlAbort {
				aborts++
			}
		}
		require.LessOrEqual(t, aborts, 1, "markers of transactions of which nothing is left")
	})
}

// takeCommitted does what a client does with an answer.
func takeCommitted(t *testing.T, f partition.Fetched, values map[string]string) {
	aborted := map[int64]bool{}
	for rest := f.Records; len(rest) > 0; {
		b, after, err := record.Next(rest)
		require.NoError(t, err)
		rest = after
		for _, a := range f.Aborted {
			if a.FirstOffset == b.BaseOffset() || a.FirstOffset < b.BaseOffset() && len(f.Aborted) == 1 {
				aborted[a.ProducerID] = true
			}
		}
		if m, ok := b.EndTxnMarker(); ok {
			delete(aborted, m.ProducerID)
		}
		r := record.NewReader(b, 1<<20)
		for rec := (record.Record{}); !b.IsControl() && !aborted[b.ProducerID()] && r.Next(&rec); {
			values[string(rec.Key)] = string(rec.Value)
		}
	}
}

// A policy that no longer asks for compaction ends it, and one that does again begins it.
func TestPolicyEndsCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, compactSettings(t), 1)
		defer c.close()
		n := c.node(1)
		n.start()
		c.elect(1)
		n.told(c.meta)
		for i := range 100 {
			_, err := n.append(keyed(-1, 0, "k", strings.Repeat("x", 1200)+fmt.Sprint(i)), true)
			require.NoError(t, err)
		}
		plain := c.settings
		plain.CleanupCompact = false
		before, err := n.replica.Size()
		require.NoError(t, err)
		cleaner := partition.NewCleaner()
		res, err := n.replica.Clean(t.Context(), cleaner, partition.CleanOptions{
			MapBytes: 1 << 20, BufferBytes: 64 << 10,
			Pace: func(ctx context.Context, _ int) error {
				n.replica.Reconfigure(partition.NewSettings(&plain))
				<-ctx.Done()
				return ctx.Err()
			},
		})
		require.NoError(t, err)
		require.Equal(t, res.From, res.To)
		after, err := n.replica.Size()
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.False(t, n.replica.Compacted())
		_, due, err := n.replica.Dirty()
		require.NoError(t, err)
		require.False(t, due)
		n.replica.Reconfigure(partition.NewSettings(&c.settings))
		require.Positive(t, n.clean())
	})
}
