package partition_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// inTxn makes a batch one of a transaction.
func inTxn(b record.Batch) record.Batch {
	b[22] |= 0x10
	b.Seal()
	return b
}

// txn appends a batch of a transaction, with a leave that is asked for now, and gives its offset or its error's code.
func (h *host) txn(id int64, epoch int16, sequence int32, values ...string) (int64, int16) {
	g, _, err := h.leader.TxnGuard(id, epoch)
	if err != nil {
		return -1, partition.Explain(err).Code
	}
	return h.guarded(&g, id, epoch, sequence, values...)
}

func (h *host) guarded(g *partition.TxnGuard, id int64, epoch int16, sequence int32, values ...string) (int64, int16) {
	a, err := h.append(&partition.AppendRequest{
		Batch: inTxn(batch(id, epoch, sequence, h.now, values...)), Expected: -1, Epoch: -1, Guard: g,
	})
	return a.BaseOffset, partition.Explain(err).Code
}

func (h *host) plain(id int64, epoch int16, sequence int32) int16 {
	_, err := h.append(&partition.AppendRequest{Batch: batch(id, epoch, sequence, h.now, "v"), Expected: -1, Epoch: -1})
	return partition.Explain(err).Code
}

// mark ends a transaction by the rules of version 2, and waits for it.
func (h *host) mark(id int64, epoch int16, commit bool, change ...func(*partition.Marker)) (partition.Appended, int16) {
	m := partition.Marker{ProducerID: id, ProducerEpoch: epoch, CoordinatorEpoch: 5, Commit: commit, Version: 2, Epoch: -1}
	for _, f := range change {
		f(&m)
	}
	a, err := h.leader.AppendMarker(context.Background(), &m)
	if err == nil {
		w := partition.NewWaiter()
		w.Start(time.Minute)
		defer w.Stop()
		err = h.leader.AwaitCommitted(context.Background(), w, &a)
	}
	return a, partition.Explain(err).Code
}

func (h *host) stable() int64 {
	b, err := h.leader.StableBounds()
	require.NoError(h.t, err)
	return b.LastStable
}

// ok asserts that what was appended lies at an offset.
func (h *host) ok(want, got int64, code int16) {
	h.t.Helper()
	require.Zero(h.t, code)
	require.Equal(h.t, want, got)
}

const (
	outOfOrder   = 45
	fencedEpoch  = 47
	wrongState   = 48
	crowdedTxns  = 51
	fencedLeader = 52
)

// Each refusal of a batch, in the order in which the rules come.
func TestTransactionalBatches(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.stop()
	_, code := h.guarded(nil, 7, 0, 0, "a")
	require.EqualValues(t, wrongState, code, "no leave")
	_, code = h.guarded(&partition.TxnGuard{}, 7, 0, 0, "a")
	require.EqualValues(t, wrongState, code, "a leave that nobody gave")
	_, code = h.txn(7, 0, 5, "a")
	require.EqualValues(t, outOfOrder, code, "a transaction's epoch begins with 0")
	g, open, err := h.leader.TxnGuard(7, 0)
	require.NoError(t, err)
	require.False(t, open)
	_, code = h.guarded(&g, 8, 0, 0, "a")
	require.EqualValues(t, wrongState, code, "another's leave")
	at, code := h.guarded(&g, 7, 0, 0, "a", "b")
	h.ok(0, at, code)
	_, open, err = h.leader.TxnGuard(7, 0)
	require.NoError(t, err)
	require.True(t, open)
	at, code = h.guarded(nil, 7, 0, 2, "c")
	h.ok(2, at, code)
	at, code = h.guarded(nil, 7, 0, 0, "a", "b")
	h.ok(0, at, code) // a repeat
	_, code = h.guarded(nil, 7, 0, 4, "e")
	require.EqualValues(t, outOfOrder, code)
	require.EqualValues(t, wrongState, h.plain(7, 0, 3), "outside its transaction")
	_, code = h.mark(7, 1, true)
	require.Zero(t, code)
	_, _, err = h.leader.TxnGuard(7, 0)
	require.EqualValues(t, fencedEpoch, partition.Explain(err).Code)
	_, code = h.guarded(&g, 7, 0, 3, "late")
	require.EqualValues(t, fencedEpoch, code)
	_, code = h.guarded(nil, 7, 1, 0, "a")
	require.EqualValues(t, wrongState, code)
	_, code = h.txn(7, 1, 3, "a")
	require.EqualValues(t, outOfOrder, code)
	at, code = h.txn(7, 1, 0, "a")
	h.ok(4, at, code)
	require.Zero(t, h.plain(9, 0, 4), "an idempotent producer may begin anywhere")
	_, err = h.append(&partition.AppendRequest{Batch: inTxn(batch(-1, 0, 0, h.now, "v")), Expected: -1, Epoch: -1})
	require.EqualValues(t, 87, partition.Explain(err).Code, "a transaction without a producer")
}

// A leave is void when a marker has come meanwhile, also one that does not raise the epoch, and in another leader
// epoch.
func TestLeaveToAppendIsTakenBack(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.stop()
	g, _, err := h.leader.TxnGuard(7, 3)
	require.NoError(t, err)
	_, code := h.mark(7, 3, false, func(m *partition.Marker) { m.Version = 1 })
	require.Zero(t, code)
	_, code = h.guarded(&g, 7, 3, 0, "late")
	require.EqualValues(t, wrongState, code)
	require.Equal(t, int64(1), h.stable())
	g, _, err = h.leader.TxnGuard(7, 3)
	require.NoError(t, err)
	_, code = h.mark(8, 1, false) // of another producer
	require.Zero(t, code)
	h.role.LeaderEpoch++
	h.leader = h.replica.Lead(h.role)
	_, code = h.guarded(&g, 7, 3, 0, "late")
	require.EqualValues(t, 6, code)
	at, code := h.txn(7, 3, 0, "a")
	h.ok(2, at, code)
}

// The next transaction may begin as soon as the coordinator has heard that the marker of the one before is written,
// which may be after its leave was asked for.
func TestLeaveToAppendOutlivesTheMarkerBefore(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.stop()
	for _, begun := range []bool{true, false} {
		id := int64(7)
		if begun {
			id = 8
			at, code := h.txn(id, 3, 0, "a")
			h.ok(0, at, code)
		}
		old, _, err := h.leader.TxnGuard(id, 3)
		require.NoError(t, err)
		next, _, err := h.leader.TxnGuard(id, 4)
		require.NoError(t, err)
		_, code := h.mark(id, 4, true)
		require.Zero(t, code)
		_, code = h.guarded(&old, id, 3, 1, "late")
		require.EqualValues(t, fencedEpoch, code)
		_, code = h.guarded(&next, id, 4, 0, "next")
		require.Zero(t, code)
		_, code = h.mark(id, 5, true)
		require.Zero(t, code)
	}
}

func TestMarkers(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.stop()
	at, code := h.txn(7, 0, 0, "a")
	h.ok(0, at, code)
	_, code = h.mark(7, 0, true)
	require.EqualValues(t, fencedEpoch, code, "a marker of the transaction before")
	_, code = h.mark(7, 1, true, func(m *partition.Marker) { m.Epoch = 99 })
	require.EqualValues(t, 6, code)
	require.Equal(t, int64(0), h.stable())
	a, code := h.mark(7, 1, true)
	h.ok(1, a.BaseOffset, code)
	require.Equal(t, int64(2), h.stable())
	a, code = h.mark(7, 1, true)
	require.Zero(t, code)
	require.True(t, a.Duplicate)
	require.Equal(t, int64(2), a.Next)
	_, code = h.mark(7, 2, true, func(m *partition.Marker) { m.CoordinatorEpoch = 4 })
	require.EqualValues(t, fencedLeader, code)
	at, code = h.txn(7, 1, 0, "b")
	h.ok(2, at, code)
	_, code = h.mark(7, 1, false) // of the transaction before, and late
	require.EqualValues(t, fencedEpoch, code)
	require.Equal(t, int64(2), h.stable())
	a, code = h.mark(7, 1, false, func(m *partition.Marker) { m.Version = 1 })
	h.ok(3, a.BaseOffset, code)    // an administrator's
	a, code = h.mark(20, 1, false) // of a producer without data
	h.ok(4, a.BaseOffset, code)
	states, err := h.leader.Producers(7)
	require.NoError(t, err)
	require.Equal(t, []partition.ProducerState{{
		ID: 7, Epoch: 1, LastSequence: 0, LastTimestamp: h.now.UnixMilli(), CoordinatorEpoch: 5, TxnFirstOffset: -1,
	}}, states)
	f, err := h.leader.Fetch(partition.FetchRequest{LeaderEpoch: -1, MaxBytes: 1 << 20, ReadCommitted: true})
	require.NoError(t, err)
	require.Equal(t, []partition.AbortedTransaction{{ProducerID: 7, FirstOffset: 2}}, f.Aborted)
	require.Equal(t, []int64{0}, delivered(t, &f))
	h.role = soloRole(h.role.LeaderEpoch+1, 1, 1)
	h.settings.MinInsyncReplicas = 2
	h.replica.Reconfigure(partition.NewSettings(&h.settings))
	_, code = h.mark(7, 3, true)
	require.EqualValues(t, 19, code)
}

// A coordinator's batches carry no sequences, and its producers are fenced like others.
func TestCoordinatorsBatches(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.stop()
	write := func(epoch int16) int16 {
		g, _, err := h.leader.TxnGuard(7, epoch)
		if err != nil {
			return partition.Explain(err).Code
		}
		_, err = h.append(&partition.AppendRequest{
			Batch: inTxn(batch(7, epoch, -1, h.now, "a", "b")), Expected: -1, Epoch: 0, Guard: &g, Coordinator: true,
		})
		return partition.Explain(err).Code
	}
	require.Zero(t, write(4))
	require.Zero(t, write(4))
	states, err := h.leader.Producers(7)
	require.NoError(t, err)
	require.Equal(t, int32(-1), states[0].LastSequence)
	_, code := h.mark(7, 5, true)
	require.Zero(t, code)
	require.EqualValues(t, fencedEpoch, write(4))
	require.Zero(t, write(5))
	_, err = h.append(&partition.AppendRequest{
		Batch: inTxn(batch(8, 0, -1, h.now, "a")), Expected: -1, Epoch: -1,
	})
	require.EqualValues(t, 87, partition.Explain(err).Code, "a client's batches need sequences")
}

// A named producer's sequences count its requests, in a transaction too.
func TestNamedProducersInTransactions(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.stop()
	id := ktag.NamedProducerID("n")
	at, code := h.txn(id, 0, 3, "a", "b")
	h.ok(0, at, code)
	at, code = h.guarded(nil, id, 0, 5, "c")
	h.ok(2, at, code)
	at, code = h.guarded(nil, id, 0, 3, "a", "b")
	h.ok(0, at, code)
	_, code = h.guarded(nil, id, 0, 4, "x")
	require.EqualValues(t, outOfOrder, code)
	_, code = h.mark(id, 1, true)
	require.Zero(t, code)
	at, code = h.txn(id, 1, 1, "d")
	h.ok(4, at, code)
}

// What is open stays so over a restart, clean or not; so does what was aborted.
func TestTransactionsAfterARestart(t *testing.T) {
	disk := storagetest.New()
	h := newHost(t)
	h.fs, h.policy = disk, storage.SyncAck
	h.settings.SegmentBytes = 500
	h.start()
	for i := range int32(10) {
		_, code := h.txn(1, int16(i), 0, "aborted")
		require.Zero(t, code)
		_, code = h.txn(2, 0, i, "open")
		require.Zero(t, code)
		_, code = h.mark(1, int16(i)+1, false)
		require.Zero(t, code)
	}
	check := func() {
		t.Helper()
		require.Equal(t, int64(1), h.stable())
		f, err := h.leader.Fetch(partition.FetchRequest{Offset: 0, LeaderEpoch: -1, MaxBytes: 1 << 20, ReadCommitted: true})
		require.NoError(t, err)
		require.Equal(t, []partition.AbortedTransaction{{ProducerID: 1, FirstOffset: 0}}, f.Aborted)
		_, open, err := h.leader.TxnGuard(2, 0)
		require.NoError(t, err)
		require.True(t, open)
	}
	check()
	h.stop()
	h.start()
	check()
	crashed := disk.Copy().Crash(storagetest.LoseAll, nil)
	h.stop()
	h.fs = crashed
	h.start()
	defer h.stop()
	check()
	_, code := h.mark(2, 1, false)
	require.Zero(t, code)
	var got int
	for at := int64(0); at < h.stable(); {
		f, err := h.leader.Fetch(partition.FetchRequest{Offset: at, LeaderEpoch: -1, MaxBytes: 300, ReadCommitted: true})
		require.NoError(t, err)
		got += len(delivered(t, &f))
		at = f.Next
	}
	require.Zero(t, got)
}

// Producers in a transaction are not forgotten, however old.
func TestOpenTransactionsAreKept(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.stop()
	_, code := h.txn(1, 0, 0, "a")
	require.Zero(t, code)
	require.Zero(t, h.plain(2, 0, 0))
	h.now = h.now.Add(48 * time.Hour)
	require.Equal(t, 1, h.replica.ExpireProducers(24*time.Hour))
	require.Equal(t, int64(0), h.stable())
	start, err := h.leader.DeleteRecords(2)
	require.NoError(t, err)
	require.Equal(t, int64(2), start)
	require.Equal(t, int64(2), h.stable(), "never below the log start")
	require.Zero(t, h.plain(2, 0, 0))
	require.Equal(t, int64(2), h.stable())
	_, code = h.mark(1, 1, false)
	require.Zero(t, code)
	require.Equal(t, int64(4), h.stable())
}

// Look-ups by time end at the last stable offset too.
func TestOffsetsByIsolation(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.stop()
	require.Zero(t, h.plain(2, 0, 0))
	h.now = h.now.Add(time.Second)
	_, code := h.txn(1, 0, 0, "a")
	require.Zero(t, code)
	at := func(timestamp int64, committed bool) int64 {
		p, err := h.leader.OffsetAt(partition.OffsetQuery{Timestamp: timestamp, LeaderEpoch: -1, ReadCommitted: committed})
		require.NoError(t, err)
		return p.Offset
	}
	late := h.now.UnixMilli()
	require.Equal(t, []int64{2, 1, 1}, []int64{at(-1, false), at(late, false), at(-3, false)})
	require.Equal(t, []int64{1, -1, -1, 0}, []int64{at(-1, true), at(late, true), at(-3, true), at(late-1000, true)})
	_, code = h.mark(1, 1, true)
	require.Zero(t, code)
	require.Equal(t, []int64{3, 1}, []int64{at(-1, true), at(late, true)})
}

// A consumer of committed records sleeps while transactions are open, and wakes when there is something for it.
func TestWaitingForTheLastStableOffset(t *testing.T) {
	led(t, func(c *cluster, l *partition.Leader) {
		n := c.node(1)
		woken := func(what string, f func()) bool {
			w := partition.NewWaiter()
			w.Start(time.Hour)
			defer w.Stop()
			b, err := l.StableBounds()
			require.NoError(t, err)
			w.Lack(1)
			require.NoError(t, l.WatchStable(w, b.LastStable))
			before := time.Now()
			f()
			synctest.Wait()
			require.NoError(t, c.node(2).catchUp(), what)
			err = w.Wait(context.Background())
			return err == nil && time.Since(before) < time.Hour
		}
		write := func(b record.Batch, g *partition.TxnGuard) func() {
			return func() {
				_, err := l.Append(context.Background(), &partition.AppendRequest{Batch: b, Expected: -1, Epoch: -1, Guard: g})
				require.NoError(t, err)
			}
		}
		require.True(t, woken("plain", write(batch(-1, 0, 0, time.Now(), "v"), nil)))
		g, _, err := l.TxnGuard(5, 0)
		require.NoError(t, err)
		require.False(t, woken("begin", write(inTxn(batch(5, 0, 0, time.Now(), "v")), &g)))
		require.False(t, woken("plain behind it", write(batch(-1, 0, 0, time.Now(), "v"), nil)))
		require.True(t, woken("marker", func() {
			_, err := l.AppendMarker(context.Background(), &partition.Marker{
				ProducerID: 5, ProducerEpoch: 1, Version: 2, Epoch: -1,
			})
			require.NoError(t, err)
		}))
		require.Equal(t, n.replica.Bounds().HighWatermark, n.replica.Bounds().LastStable)
	})
}

// catchUp lets a follower fetch until it has everything and the leader knows.
func (n *replicaNode) catchUp() error {
	for range 4 {
		if _, err := n.fetch(); err != nil {
			return err
		}
	}
	return nil
}

// Readers beside writers and syncs never see a transaction that is open.
func TestLastStableOffsetUnderLoad(t *testing.T) {
	h := newHost(t)
	h.policy = storage.SyncAck
	h.start()
	defer h.stop()
	var (
		first atomic.Int64 // of the transaction that is open, -1 when none is
		done  atomic.Bool
		wg    sync.WaitGroup
	)
	first.Store(-1)
	for range 2 {
		wg.Go(func() {
			for !done.Load() {
				before := first.Load()
				b, err := h.leader.StableBounds()
				if after := first.Load(); before >= 0 && before == after && (err != nil || b.LastStable > before) {
					t.Errorf("last stable offset %d, and a transaction is open from %d on: %v", b.LastStable, before, err)
					return
				}
				if b.LastStable > b.HighWatermark || b.HighWatermark > b.LogEnd {
					t.Errorf("%+v", b)
					return
				}
			}
		})
	}
	for i := range int16(300) {
		at, code := h.txn(1, i, 0, "v")
		require.Zero(t, code)
		first.Store(at)
		require.Zero(t, h.plain(-1, 0, 0))
		first.Store(-1)
		_, code = h.mark(1, i+1, i%2 == 0)
		require.Zero(t, code)
		require.Equal(t, h.leader.Bounds().HighWatermark, h.stable())
	}
	done.Store(true)
	wg.Wait()
}

// followed is a replica that follows, and takes batches as they come.
func followed(h *host) (f *partition.Follower, take func(batches ...record.Batch)) {
	f = h.replica.Follow(partition.Role{Leader: 2, LeaderEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}})
	return f, func(batches ...record.Batch) {
		var all []byte
		require.NoError(h.t, f.Sync(context.Background()))
		pos, err := f.Position()
		require.NoError(h.t, err)
		at := pos.Offset
		for _, b := range batches {
			b.SetBaseOffset(at)
			b.SetLeaderEpoch(1)
			all, at = append(all, b...), b.NextOffset()
		}
		_, err = f.Take(pos, partition.LeaderAnswer{HighWatermark: 1 << 40, Records: all})
		require.NoError(h.t, err)
	}
}

// reach has the follower sync, and waits until its high watermark is there.
func (h *host) reach(f *partition.Follower, hw int64) {
	w := partition.NewWaiter()
	w.Start(time.Minute)
	defer w.Stop()
	for now := h.replica.Bounds().HighWatermark; now < hw; now = h.replica.Bounds().HighWatermark {
		require.NoError(h.t, f.Watch(w, now))
		f.RequestSync()
		require.NoError(h.t, w.Wait(context.Background()))
		w.Leave()
	}
}

// What a follower has written may be committed before it has looked at it. Its readers see no open transaction then,
// and who waits hears of the marker that ends it when that has been looked at.
func TestFollowerCommitsBeforeItHasLooked(t *testing.T) {
	h := newHost(t)
	h.policy = storage.SyncAck
	h.start()
	defer h.stop()
	f, take := followed(h)
	take(batch(-1, 0, 0, h.now, "v"), inTxn(batch(1, 0, 0, h.now, "v")))
	h.reach(f, 2)
	b, err := h.replica.StableBounds()
	require.NoError(t, err)
	require.Equal(t, int64(1), b.LastStable)
	take(markerOf(1, 1, record.ControlCommit))
	h.reach(f, 3)

	var between []partition.Bounds
	h.asked = func() {
		h.reach(f, h.replica.Bounds().LogEnd)
		b, err := h.replica.StableBounds()
		require.NoError(t, err)
		between = append(between, b)
	}
	take(batch(-1, 0, 0, h.now, "v"), inTxn(batch(1, 1, 0, h.now, "v")), batch(-1, 0, 0, h.now, "v"))
	require.Equal(t, []partition.Bounds{{LastStable: 4, HighWatermark: 6, LogEnd: 6}}, between)
	require.Equal(t, int64(4), h.replica.Bounds().LastStable)

	w := partition.NewWaiter()
	w.Start(time.Minute)
	defer w.Stop()
	require.NoError(t, f.WatchStable(w, 4))
	take(markerOf(1, 2, record.ControlAbort))
	require.Equal(t, partition.Bounds{LastStable: 4, HighWatermark: 7, LogEnd: 7}, between[1])
	require.NoError(t, w.Wait(t.Context()))
	require.Equal(t, int64(7), h.replica.Bounds().LastStable)
	h.asked = nil
	got, err := f.Fetch(partition.FetchRequest{Offset: 3, LeaderEpoch: -1, MaxBytes: 1 << 20, ReadCommitted: true})
	require.NoError(t, err)
	require.Equal(t, []partition.AbortedTransaction{{ProducerID: 1, FirstOffset: 4}}, got.Aborted)
}

func markerOf(id int64, epoch int16, kind record.ControlType) record.Batch {
	return record.AppendEndTxnMarker(nil, record.EndTxnMarker{Type: kind, ProducerID: id, ProducerEpoch: epoch})
}

// A truncation takes back transactions with the log.
func TestTruncationOfTransactions(t *testing.T) {
	h := newHost(t)
	h.policy = storage.SyncAck
	h.start()
	defer h.stop()
	f, take := followed(h)
	take(batch(-1, 0, 0, h.now, "v"), inTxn(batch(1, 0, 0, h.now, "v")))
	h.reach(f, 2)
	b, err := h.replica.StableBounds()
	require.NoError(t, err)
	require.Equal(t, int64(1), b.LastStable)
	pos, err := f.Position()
	require.NoError(t, err)
	outcome, err := f.Take(pos, partition.LeaderAnswer{Diverging: &partition.EpochEnd{Epoch: 1, EndOffset: 1}})
	require.NoError(t, err)
	require.Equal(t, partition.Diverged, outcome)
	take(batch(-1, 0, 0, h.now, "v"), batch(-1, 0, 0, h.now, "v"))
	h.reach(f, 3)
	b, err = h.replica.StableBounds()
	require.NoError(t, err)
	require.Equal(t, partition.Bounds{LastStable: 3, HighWatermark: 3, LogEnd: 3}, b)
}
