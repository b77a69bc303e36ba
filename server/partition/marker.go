package partition

import (
	"context"
	"fmt"

	"millrace/record"
	"millrace/storage"
)

// TxnGuard is a producer's leave to append to a partition that its transaction does not have yet. It is asked for
// before the transaction's coordinator is told of the partition, and loses its force when a marker ends a transaction
// of the producer meanwhile: a batch that comes late does not begin a transaction that nobody would end. A marker that
// carries a new epoch, as all of ours do, takes back only what is of an older epoch.
type TxnGuard struct {
	producerID  int64
	epoch       int16
	given       bool
	leaderEpoch int32
	end         int64 // of the log, when it was asked for
}

// TxnGuard asks for a producer's leave to append in a transaction; open says that the transaction has the partition
// already.
func (l *Leader) TxnGuard(producerID int64, epoch int16) (g TxnGuard, open bool, err error) {
	l.slot.hold()
	defer l.slot.release()
	role, err := l.usable()
	if err == nil {
		err = l.loadProducers()
	}
	if err != nil {
		return TxnGuard{}, false, err
	}
	if e := l.producers.entries[producerID]; e != nil {
		if epoch < e.epoch {
			return TxnGuard{}, false, &FencedError{Producer: producerID, Got: epoch, Current: e.epoch}
		}
		open = e.txnFirstOffset != none && epoch == e.epoch
	}
	return TxnGuard{
		producerID: producerID, epoch: epoch, given: true, leaderEpoch: role.LeaderEpoch, end: l.log.EndOffset(),
	}, open, nil
}

// usable gives the role in which to append. The slot is held.
func (l *Leader) usable() (*epochRole, error) {
	if l.closed || l.ended() {
		return nil, l.whyGone()
	}
	return l.checkRole()
}

// admits says whether a guard allows a batch.
func (p *producers) admits(g *TxnGuard, b record.Batch) bool {
	e := p.entries[g.producerID]
	return g.given && g.producerID == b.ProducerID() && g.epoch == b.ProducerEpoch() && (e == nil || e.marked < g.end)
}

// Marker is the end of a producer's transaction on a partition.
type Marker struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Commit           bool
	// Version is the transaction version. From 2 on the producer's epoch rises with every transaction, so a marker that
	// comes late is told from one of the transaction that is open.
	Version int8
	Epoch   int32 // append only in this leader epoch, -1: in any
}

// markerVersion is the transaction version from which on markers carry a new producer epoch.
const markerVersion = 2

// AppendMarker ends a transaction. A marker that the log has already is a Duplicate, and nothing is appended: then Next
// is the end of the log, behind the first one. It does not wait for the marker to be committed: AwaitCommitted does.
func (l *Leader) AppendMarker(ctx context.Context, m *Marker) (Appended, error) {
	settings, role := l.settings.Load(), l.role.Load()
	if len(role.ISR) < settings.minInSync {
		return Appended{}, &IsrError{InSync: len(role.ISR), Required: settings.minInSync}
	}
	now := l.store.now().UnixMilli()
	kind := record.ControlAbort
	if m.Commit {
		kind = record.ControlCommit
	}
	b := record.Batch(record.AppendEndTxnMarker(nil, record.EndTxnMarker{
		Type: kind, ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, CoordinatorEpoch: m.CoordinatorEpoch,
		Timestamp: now,
	}))
	if settings.limits.TimestampType == record.LogAppendTime {
		b.SetTimestamp(record.LogAppendTime, now)
	}
	if err := l.slot.take(ctx); err != nil {
		return Appended{}, err
	}
	a, err := l.appendMarker(m, b, now)
	l.slot.release()
	if err == nil && !a.Duplicate {
		l.appended(role, true)
	}
	return a, err
}

// appendMarker decides and writes. The slot is held.
func (l *Leader) appendMarker(m *Marker, b record.Batch, now int64) (Appended, error) {
	role, err := l.usable()
	if err != nil {
		return Appended{}, err
	}
	if m.Epoch != none && m.Epoch != role.LeaderEpoch {
		return Appended{}, ErrNotLeader
	}
	if err := l.loadProducers(); err != nil {
		return Appended{}, err
	}
	end := l.log.EndOffset()
	done, err := l.producers.checkMarker(m)
	if err != nil {
		return Appended{}, err
	}
	if done {
		epoch, err := l.log.EpochFor(end - 1)
		return Appended{
			BaseOffset: none, Next: end, Epoch: epoch, AppendTime: none, Duplicate: true, FirstTimestamp: none, FirstCount: none,
		}, err
	}
	b.SetBaseOffset(end)
	b.SetLeaderEpoch(role.LeaderEpoch)
	if err := l.write(b, l.abortedBy(b)); err != nil {
		return Appended{}, err
	}
	l.track(l.producers.apply(stampOf(b), now))
	if e := l.producers.entries[m.ProducerID]; e != nil && m.Version >= markerVersion {
		// It ends what was before its epoch. The leave to append in that epoch is for the next transaction, which may be
		// about to begin; what was before is refused by its epoch.
		e.marked = none
	}
	a := Appended{BaseOffset: end, Next: b.NextOffset(), Epoch: role.LeaderEpoch, AppendTime: none}
	if b.TimestampType() == record.LogAppendTime {
		a.AppendTime = now
	}
	return a, nil
}

// abortedBy is the index entry of a marker, nil if it aborts nothing. The slot is held.
func (l *Leader) abortedBy(b record.Batch) *storage.AbortedTxn {
	m, _ := b.EndTxnMarker()
	e := l.producers.entries[b.ProducerID()]
	if m.Type != record.ControlAbort || e == nil || e.txnFirstOffset == none {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.txns.aborted(change{producerID: b.ProducerID(), ended: e.txnFirstOffset, marker: b.BaseOffset()})
	return &t
}

// checkMarker applies the rules of markers; done says that the log has this one.
func (p *producers) checkMarker(m *Marker) (done bool, err error) {
	e := p.entries[m.ProducerID]
	switch {
	case e == nil:
		return false, nil
	case m.CoordinatorEpoch < e.coordinatorEpoch:
		return false, fmt.Errorf("%w: its epoch is %d, this one's %d", ErrCoordinatorFenced, e.coordinatorEpoch,
			m.CoordinatorEpoch)
	case m.ProducerEpoch > e.epoch || m.Version < markerVersion && m.ProducerEpoch == e.epoch:
		return false, nil
	case m.ProducerEpoch == e.epoch && e.txnFirstOffset == none:
		return true, nil
	}
	return false, &FencedError{Producer: m.ProducerID, Got: m.ProducerEpoch, Current: e.epoch}
}
