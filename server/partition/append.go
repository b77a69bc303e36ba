package partition

import (
	"context"
	"fmt"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/storage"
)

// AppendRequest is one batch that a client wants stored.
type AppendRequest struct {
	Batch []byte // exactly one batch; the leader changes it in place
	// AllInSync asks that the batch be refused when fewer than min.insync.replicas could take it.
	AllInSync bool
	// Expected is the log end offset at which alone to append, or -1.
	Expected int64
	// Strict refuses gaps in the sequences of a named producer.
	Strict bool
	// Epoch is the leader epoch in which alone to append, or -1.
	Epoch int32
	// Guard is the leave to append to a partition that the transaction does not have yet.
	Guard *TxnGuard
	// Coordinator says that a coordinator wrote the batch: its producer's epoch is checked, its sequences are not.
	Coordinator bool
	// Refused is why the batch is not to be written, nil if nothing is wrong. A repeat of what was written before is
	// answered as one all the same.
	Refused error
	// Arena gives memory where the batch must be built anew; may be nil.
	Arena *record.Arena
}

// Appended says where a batch lies in the log.
type Appended struct {
	BaseOffset int64 // -1 for a repeat whose offset is forgotten
	Next       int64 // committed when the high watermark reaches it
	Epoch      int32 // leader epoch in which it was written
	// AppendTime is the leader's time that all records got, or -1 where they keep their own.
	AppendTime int64
	// Duplicate says that an earlier attempt wrote the batch; FirstTimestamp is the largest of its
	// timestamps then and FirstCount its number of records, or both are -1 when that is forgotten.
	Duplicate      bool
	FirstTimestamp int64
	FirstCount     int32
}

// Append checks a batch by the rules of the topic and its producer, and writes it at the end of the
// log. When it returns, the leader is done with the request's bytes. It does not wait for the batch
// to be committed: AwaitCommitted does. An error means that nothing was written, except one of
// storage going offline.
func (l *Leader) Append(ctx context.Context, r *AppendRequest) (Appended, error) {
	settings, role := l.settings.Load(), l.role.Load()
	if r.AllInSync && len(role.ISR) < settings.minInSync {
		return Appended{}, &IsrError{InSync: len(role.ISR), Required: settings.minInSync}
	}
	now := l.store.now().UnixMilli()
	limits := settings.limits
	limits.Now, limits.Codecs, limits.Arena = now, l.store.codecs, r.Arena
	limits.Unsequenced = r.Coordinator || uncounted(r.Batch)
	p, err := record.Prepare(r.Batch, limits)
	if err != nil {
		return Appended{}, err
	}
	if p.Batch.IsTransactional() && p.Batch.ProducerID() < 0 {
		return Appended{}, fmt.Errorf("%w: a batch of a transaction without a producer id", record.ErrInvalid)
	}
	if err := l.slot.take(ctx); err != nil {
		return Appended{}, err
	}
	a, err := l.appendPrepared(r, p.Batch, now)
	l.slot.release()
	if err == nil && !a.Duplicate {
		l.appended(role, r.AllInSync)
	}
	return a, err
}

// uncounted says of a batch that its producer is a named one that does not count the requests of its transaction.
func uncounted(b record.Batch) bool {
	return len(b) >= record.HeaderSize && b.IsTransactional() && b.BaseSequence() == none && ktag.IsNamed(b.ProducerID())
}

// appended has what was appended be committed.
func (l *Leader) appended(role *epochRole, urgent bool) {
	if len(role.Replicas) > 1 {
		l.grown(urgent)
	}
	if l.store.commitSynced {
		l.log.RequestSync()
	} else {
		l.advance()
	}
}

// grown wakes the followers' fetches that wait for the log to grow. Where nobody waits for the batch to be
// committed, they may gather some more first.
func (l *Leader) grown(urgent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grownLocked(urgent)
}

func (l *Leader) grownLocked(urgent bool) {
	if l.watchers.head == nil {
		return
	}
	urgent = urgent || l.waiters.head != nil
	end := l.log.EndOffset()
	for n := l.watchers.head; n != nil; {
		next := n.next
		switch {
		case end <= n.seen.LogEnd:
		case urgent:
			l.watchers.remove(n)
			n.waiter.wake()
		case !n.nudged:
			n.nudged = true
			n.waiter.nudge()
		}
		n = next
	}
}

// appendPrepared decides and writes. The slot is held.
func (l *Leader) appendPrepared(r *AppendRequest, b record.Batch, now int64) (Appended, error) {
	if l.closed || l.ended() {
		return Appended{}, l.whyGone()
	}
	role, err := l.checkRole()
	if err != nil {
		return Appended{}, err
	}
	if r.Epoch != none && r.Epoch != role.LeaderEpoch {
		return Appended{}, ErrNotLeader
	}
	end := l.log.EndOffset()
	sequenced := b.ProducerID() >= 0
	if sequenced {
		dup, err := l.checkProducer(b, r, role)
		if err != nil {
			return Appended{}, err
		}
		if dup != nil {
			return l.repeated(dup)
		}
	}
	if r.Refused != nil {
		return Appended{}, r.Refused
	}
	if r.Expected != none && r.Expected != end {
		return Appended{}, &ExpectedOffsetError{Expected: r.Expected, Actual: end}
	}
	b.SetBaseOffset(end)
	b.SetLeaderEpoch(role.LeaderEpoch)
	begins := b.IsTransactional() && l.beginTransaction(b)
	if err := l.write(b, nil); err != nil {
		if begins {
			l.undoTransaction()
		}
		b.SetBaseOffset(0) // the client may send the same bytes again
		b.SetLeaderEpoch(none)
		return Appended{}, err
	}
	if sequenced {
		l.producers.apply(stampOf(b), now)
	}
	a := Appended{BaseOffset: end, Next: b.NextOffset(), Epoch: role.LeaderEpoch, AppendTime: none}
	if b.TimestampType() == record.LogAppendTime {
		a.AppendTime = b.MaxTimestamp()
	}
	return a, nil
}

// checkRole gives the role to append in. The first append in a role looks whether the log knows of a
// newer leader epoch: then the metadata is older than the log, and appending would fork it.
func (l *Leader) checkRole() (*epochRole, error) {
	role := l.role.Load()
	if role == l.trusted.Load() {
		return role, nil
	}
	latest, err := l.log.LatestEpoch()
	if err != nil {
		return nil, err
	}
	if latest > role.LeaderEpoch {
		return nil, fmt.Errorf("%w: epoch %d in the log, %d in the metadata", ErrStaleMetadata, latest, role.LeaderEpoch)
	}
	l.trusted.Store(role)
	return role, nil
}

// checkProducer applies the rules of sequences and transactions, after reading the producers' state if that is still
// to be done.
func (l *Leader) checkProducer(b record.Batch, r *AppendRequest, role *epochRole) (*repeat, error) {
	if err := l.loadProducers(); err != nil {
		return nil, err
	}
	by := terms{strict: r.Strict, unsequenced: r.Coordinator}
	if r.Guard != nil && b.IsTransactional() {
		if r.Guard.leaderEpoch != role.LeaderEpoch {
			return nil, errStaleGuard // what has happened since it was given is not known
		}
		by.guarded = l.producers.admits(r.Guard, b)
	}
	return l.producers.check(stampOf(b), by)
}

// beginTransaction counts a transaction that begins with the batch, before that is written: from then on the high
// watermark may pass it. It says whether one begins.
func (l *Leader) beginTransaction(b record.Batch) bool {
	if e := l.producers.entries[b.ProducerID()]; e != nil && e.txnFirstOffset != none {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.txns.begin(b.BaseOffset())
	l.stableLocked()
	return true
}

// undoTransaction takes that back.
func (l *Leader) undoTransaction() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.txns.undo()
	l.stableLocked()
}

// repeated is the answer to the first attempt, as far as it is remembered. A forgotten batch is committed
// when the newest batch of its producer is. The slot is held.
func (l *Leader) repeated(d *repeat) (Appended, error) {
	epoch, err := l.log.EpochFor(d.lastOffset)
	if err != nil {
		return Appended{}, err
	}
	a := Appended{
		BaseOffset: none, Next: d.lastOffset + 1, Epoch: epoch, AppendTime: none, Duplicate: true, FirstTimestamp: none,
		FirstCount: none,
	}
	if d.remembered {
		a.BaseOffset, a.FirstTimestamp, a.FirstCount = d.firstOffset(), d.timestamp, d.offsetDelta+1
	}
	return a, nil
}

// write appends the batch to the log, and saves the producers when that began a new segment: the
// snapshot holds what lies before the segment. aborted is the index entry of an ABORT marker.
func (l *Leader) write(b record.Batch, aborted *storage.AbortedTxn) (err error) {
	l.hide(b.NextOffset(), len(b))
	var res storage.AppendResult
	if aborted != nil {
		res, err = l.log.AppendAborting(b, *aborted)
	} else {
		res, err = l.log.Append(b)
	}
	if err != nil {
		l.unhide(b.BaseOffset(), len(b))
		return err
	}
	if res.Rolled {
		if err := l.loadProducers(); err != nil {
			l.logger().Warn("producer state not saved", "err", err)
			return nil
		}
		l.saveProducers(res.NewSegmentBase)
	}
	return nil
}
