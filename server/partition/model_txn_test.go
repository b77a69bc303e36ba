package partition_test

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/partition"
)

// Transactions in the model: producers whose batches belong to one, markers that end them in a new epoch, leaves to
// append that are used late, and readers of committed records on all replicas, who must see exactly what the log's own
// markers have committed.

// lateGuard is a leave to append that is kept for later.
type lateGuard struct {
	leader *partition.Leader
	guard  partition.TxnGuard
	id     int64
	epoch  int16
}

func txnProducers() []int64 { return []int64{2, 3, ktag.NamedProducerID("n")} }

// txnState is what a leader knows of a producer.
func txnState(t *rapid.T, l *partition.Leader, id int64) partition.ProducerState {
	states, err := l.Producers(id)
	require.NoError(t, err)
	if len(states) == 0 {
		return partition.ProducerState{ID: id, LastSequence: -1, TxnFirstOffset: -1}
	}
	return states[0]
}

func (m *model) appendTxn(t *rapid.T) {
	n := m.drawLeader(t)
	l := n.replica.Leader()
	id := rapid.SampledFrom(txnProducers()).Draw(t, "producer")
	s := txnState(t, l, id)
	guard, open, err := l.TxnGuard(id, s.Epoch)
	if err != nil {
		require.Contains(t, []int16{6, 56}, partition.Explain(err).Code, "%v", err)
		return
	}
	require.Equal(t, s.TxnFirstOffset >= 0, open)
	if !open && rapid.IntRange(0, 4).Draw(t, "later") == 0 {
		m.guards = append(m.guards, lateGuard{leader: l, guard: guard, id: id, epoch: s.Epoch})
		return
	}
	r := m.txnRequest(t, l, s)
	r.Guard = &guard
	m.appended(t, l, r)
}

// txnRequest is the next batch of a producer's transaction.
func (m *model) txnRequest(t *rapid.T, l *partition.Leader, s partition.ProducerState) *partition.AppendRequest {
	values := make([]string, rapid.IntRange(1, 3).Draw(t, "records"))
	for i := range values {
		values[i] = fmt.Sprintf("%d of epoch %d", len(m.history), l.LeaderEpoch())
	}
	b := batch(s.ID, s.Epoch, s.LastSequence+1, time.Now(), values...)
	b[22] |= 0x10
	b.Seal()
	return &partition.AppendRequest{Batch: b, AllInSync: rapid.Bool().Draw(t, "acks=all"), Expected: -1, Epoch: -1}
}

// appended appends a batch and has its producer wait, perhaps later.
func (m *model) appended(t *rapid.T, l *partition.Leader, r *partition.AppendRequest) {
	a, err := l.Append(context.Background(), r)
	synctest.Wait()
	if err != nil {
		require.True(t, partition.Explain(err).NotWritten, "%v", err)
		return
	}
	m.await(t, &pending{leader: l, at: a, batch: slices.Clone(record.Batch(r.Batch)), epoch: a.Epoch})
}

func (m *model) await(t *rapid.T, p *pending) {
	p.answer = make(chan error, 1)
	if rapid.Bool().Draw(t, "waits late") {
		m.late = append(m.late, p)
	} else {
		m.join(p)
	}
}

// appendLate uses a leave to append that was given some time ago. A marker that came meanwhile has taken it back.
func (m *model) appendLate(t *rapid.T) {
	if len(m.guards) == 0 {
		t.Skip("no leave was kept")
	}
	g := m.guards[0]
	m.guards = m.guards[1:]
	states, err := g.leader.Producers(g.id)
	if err != nil {
		return // its node is down
	}
	s := partition.ProducerState{ID: g.id, LastSequence: -1, TxnFirstOffset: -1}
	if len(states) > 0 {
		s = states[0]
	}
	ended := s.Epoch != g.epoch
	s.Epoch = g.epoch
	r := m.txnRequest(t, g.leader, s)
	r.Guard = &g.guard
	a, err := g.leader.Append(context.Background(), r)
	synctest.Wait()
	if err == nil {
		require.False(t, ended, "a batch of a transaction that has ended was appended")
		m.await(t, &pending{leader: g.leader, at: a, batch: slices.Clone(record.Batch(r.Batch)), epoch: a.Epoch})
		return
	}
	require.Contains(t, []int16{6, 19, 45, 47, 48}, partition.Explain(err).Code, "%v", err)
}

// mark ends a transaction, or repeats the marker that did.
func (m *model) mark(t *rapid.T) {
	n := m.drawLeader(t)
	l := n.replica.Leader()
	s := txnState(t, l, rapid.SampledFrom(txnProducers()).Draw(t, "producer"))
	mk := partition.Marker{
		ProducerID: s.ID, ProducerEpoch: s.Epoch + 1, CoordinatorEpoch: int32(len(m.history)), Version: 2, Epoch: -1,
		Commit: rapid.Bool().Draw(t, "commit"),
	}
	again := s.Epoch > 0 && rapid.IntRange(0, 5).Draw(t, "again") == 0
	if again {
		mk.ProducerEpoch--
	}
	a, err := l.AppendMarker(context.Background(), &mk)
	synctest.Wait()
	var fenced *partition.FencedError
	switch {
	case again && s.TxnFirstOffset >= 0 && partition.Explain(err).Code == 47:
		require.ErrorAs(t, err, &fenced)
	case err != nil:
		require.Contains(t, []int16{6, 19, 56}, partition.Explain(err).Code, "%v", err)
	case again:
		require.True(t, a.Duplicate)
	default:
		all, err := n.replica.Batches()
		require.NoError(t, err)
		m.await(t, &pending{leader: l, at: a, batch: slices.Clone(all[len(all)-1]), epoch: a.Epoch})
	}
}

// truth is what a log says of transactions.
type truth struct {
	committed map[int64]bool // by base offset of a data batch: its marker commits it
	decided   map[int64]bool
	unstable  int64 // the first offset of a transaction that is open
	doubtful  int64 // or whose marker lies at or above the high watermark
}

func truthOf(log []record.Batch, hw int64) truth {
	out := truth{committed: map[int64]bool{}, decided: map[int64]bool{}, unstable: hw, doubtful: hw}
	open := map[int64][]int64{}
	for _, b := range log {
		id := b.ProducerID()
		mk, ends := b.EndTxnMarker()
		switch {
		case ends:
			for _, at := range open[id] {
				out.decided[at], out.committed[at] = true, mk.Type == record.ControlCommit
			}
			if len(open[id]) > 0 && b.BaseOffset() >= hw {
				out.doubtful = min(out.doubtful, open[id][0])
			}
			delete(open, id)
		case b.IsTransactional():
			open[id] = append(open[id], b.BaseOffset())
		default:
			out.decided[b.BaseOffset()], out.committed[b.BaseOffset()] = true, true
		}
	}
	for _, at := range open {
		out.unstable = min(out.unstable, at[0])
	}
	out.doubtful = min(out.doubtful, out.unstable)
	return out
}

// fetcher is a replica that consumers may read.
type fetcher interface {
	Fetch(partition.FetchRequest) (partition.Fetched, error)
}

// readAny reads the committed records of one replica as a client does.
func (m *model) readAny(t *rapid.T) { m.readCommitted(t, m.drawNode(t, true)) }

func (m *model) readCommitted(t *rapid.T, n *replicaNode) {
	var from fetcher
	if l := n.replica.Leader(); l != nil {
		from = l
	} else if f := n.replica.Follower(); f != nil {
		from = f
	} else {
		return
	}
	log, err := n.replica.Batches()
	require.NoError(t, err)
	hw := n.replica.Bounds().HighWatermark
	want := truthOf(log, hw)
	stable, err := n.replica.StableBounds()
	require.NoError(t, err)
	require.GreaterOrEqual(t, stable.LastStable, want.doubtful, "node %d holds back what is decided", n.id)
	require.LessOrEqual(t, stable.LastStable, want.unstable, "node %d shows what is not decided", n.id)
	var expected, got []int64
	for _, b := range log {
		if !b.IsControl() && b.BaseOffset() < stable.LastStable && want.committed[b.BaseOffset()] {
			expected = append(expected, b.BaseOffset())
		}
	}
	size := rapid.IntRange(1, 2000).Draw(t, "max bytes")
	for at := stable.LogStart; ; {
		f, err := from.Fetch(partition.FetchRequest{Offset: at, LeaderEpoch: -1, MaxBytes: size, ReadCommitted: true})
		require.NoError(t, err)
		require.Equal(t, stable, f.Bounds)
		if len(f.Records) == 0 {
			require.Equal(t, stable.LastStable, at)
			break
		}
		got = append(got, delivered(t, &f)...)
		at = f.Next
	}
	require.Equal(t, expected, got, "node %d", n.id)
}

// delivered is what a client makes of an answer: the batches that it hands out.
func delivered(t require.TestingT, f *partition.Fetched) (offsets []int64) {
	aborted := f.Aborted
	skip := map[int64]bool{}
	for rest := f.Records; len(rest) > 0; {
		b, after, err := record.Next(rest)
		require.NoError(t, err)
		rest = after
		for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
			skip[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		if mk, ends := b.EndTxnMarker(); ends {
			if mk.Type == record.ControlAbort {
				delete(skip, mk.ProducerID)
			}
			continue
		}
		if !b.IsTransactional() || !skip[b.ProducerID()] {
			offsets = append(offsets, b.BaseOffset())
		}
	}
	return offsets
}

// foldProducers is the producers' state by the log alone.
func foldProducers(log []record.Batch) []partition.ProducerState {
	states := map[int64]*partition.ProducerState{}
	var ids []int64
	for _, b := range log {
		id := b.ProducerID()
		if id < 0 {
			continue
		}
		s := states[id]
		if s == nil {
			s = &partition.ProducerState{
				ID: id, Epoch: b.ProducerEpoch(), LastSequence: -1, CoordinatorEpoch: -1, TxnFirstOffset: -1,
			}
			states[id], ids = s, append(ids, id)
		}
		if s.Epoch != b.ProducerEpoch() {
			s.Epoch, s.LastSequence = b.ProducerEpoch(), -1
		}
		s.LastTimestamp = b.MaxTimestamp()
		if mk, ends := b.EndTxnMarker(); ends {
			s.CoordinatorEpoch, s.TxnFirstOffset = mk.CoordinatorEpoch, -1
			continue
		}
		s.LastSequence = b.LastSequence()
		if ktag.IsNamed(id) {
			s.LastSequence = b.BaseSequence()
		}
		if b.IsTransactional() && s.TxnFirstOffset < 0 {
			s.TxnFirstOffset = b.BaseOffset()
		}
	}
	slices.Sort(ids)
	out := []partition.ProducerState{}
	for _, id := range ids {
		out = append(out, *states[id])
	}
	return out
}
