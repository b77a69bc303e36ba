package partition

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
	"millrace/storage"
)

// Position is where the next fetch goes on. ErrUnsynced means that a sync must come first: the leader takes
// the offset of a fetch for what is on disk. It does not where it lies below the leader's high watermark of
// the same epoch: such a replica is in no ISR and counts for nothing.
func (f *Follower) Position() (FetchPosition, error) {
	role, turn := f.role.Load(), f.turn.Load()
	if f.over.Load() {
		return FetchPosition{}, f.whyGone()
	}
	epoch, err := f.log.LatestEpoch()
	if err != nil {
		return FetchPosition{}, f.readFailed(none, err)
	}
	if f.store.env.Flaws.SkipTruncation {
		epoch = none
	}
	f.mu.Lock()
	readers := f.readers || f.waiters.head != nil || f.orphans.head != nil
	unsettled := f.astrayLocked()
	f.readers = false
	unsynced := f.unsyncedLocked()
	f.mu.Unlock()
	if unsynced {
		return FetchPosition{}, ErrUnsynced
	}
	return FetchPosition{
		Offset: f.log.EndOffset(), LastFetchedEpoch: epoch, LeaderEpoch: role.LeaderEpoch,
		LogStart: f.log.SavedStart(), HighWatermark: f.hw.Load(), HasReaders: readers,
		Unsettled: unsettled, turn: turn,
	}, nil
}

// unsyncedLocked says whether the log's end must not be told to the leader before a sync. The replica's mu is
// held.
func (f *Follower) unsyncedLocked() bool {
	end := f.log.EndOffset()
	return f.committable() < end && end >= f.leaderHW
}

// Take does what an answer to a fetch from position pos says. An error says why the outcome is no better, or,
// with Taken, what is left to be done by the next answer.
func (f *Follower) Take(pos FetchPosition, a LeaderAnswer) (Outcome, error) {
	f.slot.hold()
	defer f.slot.release()
	if f.over.Load() || f.closed {
		return Stop, f.whyGone()
	}
	if !f.current(pos) {
		return Dropped, nil
	}
	f.turn.Add(1)
	f.astray = nil
	if a.ErrorCode != 0 {
		return f.refused(pos, a.ErrorCode), nil
	}
	if a.Diverging != nil { // and nothing else of such an answer counts
		if err := f.truncateDiverged(*a.Diverging); err != nil {
			return Retry, fmt.Errorf("truncate where the log parts from the leader's: %w", err)
		}
		return Diverged, nil
	}
	if len(a.Records) > 0 {
		if outcome, err := f.appendFetched(pos, a.Records); outcome != Taken {
			return outcome, err
		}
	}
	return f.follow(a)
}

// follow takes over the leader's offsets. The slot is held.
func (f *Follower) follow(a LeaderAnswer) (outcome Outcome, err error) {
	f.mu.Lock()
	f.leaderHW = max(f.leaderHW, a.HighWatermark)
	f.advanceLocked()
	if a.Settled {
		f.decideLocked(true)
	}
	hw, unsynced := f.hw.Load(), f.unsyncedLocked()
	f.mu.Unlock()
	if start := min(a.LogStart, hw); start > f.log.StartOffset() {
		err = f.log.RaiseStart(start)
	}
	if unsynced {
		return NeedsSync, err
	}
	return Taken, err
}

// current says whether pos is the present position, and not one of before a truncation that looks the same. The
// slot is held.
func (f *Follower) current(pos FetchPosition) bool {
	return pos.turn == f.turn.Load() && pos.LeaderEpoch == f.role.Load().LeaderEpoch && pos.Offset == f.log.EndOffset()
}

// refused is what to do about an error code of the leader.
func (f *Follower) refused(pos FetchPosition, code int16) Outcome {
	switch code {
	case kerr.OffsetOutOfRange.Code:
		pos.turn = f.turn.Load()
		f.astray = &pos
		return OutOfRange
	case kerr.CorruptMessage.Code:
		return Corrupt
	case kerr.FencedLeaderEpoch.Code:
		return Stop
	default:
		return Retry
	}
}

// appendFetched writes what the leader sent, as far as it may. The slot is held.
func (f *Follower) appendFetched(pos FetchPosition, records []byte) (Outcome, error) {
	batches, sequenced, err := ofEpoch(records, pos.LeaderEpoch)
	if err == nil && len(batches) > 0 && record.Batch(batches).BaseOffset() < pos.Offset {
		first := record.Batch(batches)[:record.Batch(batches).Length()]
		err = f.beginWithin(first, pos.Offset)
		batches = batches[len(first):]
	}
	if err == nil && sequenced {
		if err = f.loadProducers(); err != nil {
			return Stop, f.readFailed(pos.Offset, err)
		}
	}
	if err == nil && len(batches) > 0 {
		err = f.write(batches)
	}
	switch {
	case err == nil:
		return Taken, nil
	case errors.Is(err, record.ErrCorrupt) && !Damaged(err): // not the log here
		return Corrupt, fmt.Errorf("fetched at offset %d: %w", pos.Offset, err)
	case Passes(err):
		return Retry, err
	}
	return Stop, f.readFailed(pos.Offset, err)
}

// ofEpoch cuts off the batches of records that the leader of that epoch can have sent: whole ones, before the
// first of a later epoch, since that is not what was asked for. sequenced says that a producer counts some
// of them.
func ofEpoch(records []byte, epoch int32) (batches []byte, sequenced bool, err error) {
	rest := records
	for len(rest) > 0 {
		b, after, err := record.Next(rest)
		if errors.Is(err, record.ErrShort) {
			break // the answer was cut by its size
		}
		if err != nil {
			return nil, false, err
		}
		if b.LeaderEpoch() > epoch {
			break
		}
		sequenced = sequenced || b.ProducerID() >= 0
		rest = after
	}
	return records[:len(records)-len(rest)], sequenced, nil
}

// beginWithin makes an empty log begin with a batch in whose midst it starts, as the leader's does. The slot is held.
func (f *Follower) beginWithin(first record.Batch, end int64) error {
	base := first.BaseOffset()
	if f.log.StartOffset() < end || base < 0 || first.NextOffset() <= end {
		return fmt.Errorf("%w: offset %d at log end %d", record.ErrCorrupt, base, end)
	}
	if err := first.Verify(); err != nil {
		return err
	}
	if err := f.log.BeginWithin(first); err != nil {
		return err
	}
	f.forgetProducers()
	f.replayTo = f.log.EndOffset()
	return nil
}

// write appends batches and takes up their producers. The slot is held.
func (f *Follower) write(batches []byte) error {
	f.holdStable(batches)
	res, err := f.log.AppendFollower(batches)
	if f.producers == nil && res.Rolled {
		if err := f.loadProducers(); err != nil {
			f.logger().Warn("producer state not saved", "err", err)
			return nil
		}
		f.saveProducers(res.NewSegmentBase)
	}
	if f.producers != nil {
		if failed := f.applyProducers(batches, res); err == nil {
			err = failed
		}
	}
	return err
}

// holdStable keeps the last stable offset from passing the first transaction that may begin in batches, before those
// are written and the high watermark may pass them. The slot is held.
func (f *Follower) holdStable(batches []byte) {
	if f.txns == nil {
		return
	}
	for rest := batches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err != nil {
			return
		}
		if b.IsTransactional() && !b.IsControl() {
			f.mu.Lock()
			f.txns.held = b.BaseOffset()
			f.stableLocked()
			f.mu.Unlock()
			return
		}
		rest = after
	}
}

// releaseStable ends that. The slot is held.
func (f *Follower) releaseStable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.txns.held == allStable {
		return
	}
	f.txns.held = allStable
	if f.stableLocked() {
		f.wakeStableLocked()
	}
}

// applyProducers takes up the producers of batches that were appended, and saves the state where a segment began
// among them. The slot is held.
func (f *Follower) applyProducers(batches []byte, res storage.AppendResult) error {
	defer f.releaseStable()
	now, end := f.store.now().UnixMilli(), f.log.EndOffset()
	save := res.Rolled && f.snapshotAt != res.NewSegmentBase
	for rest := batches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err != nil || b.BaseOffset() >= end {
			break // the disk took no more
		}
		if save && b.BaseOffset() >= res.NewSegmentBase {
			f.saveProducers(res.NewSegmentBase)
			save = false
		}
		ch := f.producers.apply(stampOf(b), now)
		if ch.ended != none && ch.aborted {
			if err := f.indexAborted(ch); err != nil {
				return err
			}
		}
		f.track(ch)
		rest = after
	}
	if res.Aborts {
		f.log.SettleAborted()
	}
	return nil
}

// indexAborted adds the index entry of an ABORT marker that is in the log. The slot is held.
func (f *Follower) indexAborted(ch change) error {
	f.mu.Lock()
	t := f.txns.aborted(ch)
	f.mu.Unlock()
	return f.log.AppendAborted(t)
}

// advance moves the high watermark to what the leader says, as far as this replica has the log.
func (f *Follower) advance() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advanceLocked()
}

func (f *Follower) advanceLocked() {
	to := min(f.leaderHW, f.committable())
	if f.over.Load() || to <= f.hw.Load() {
		return
	}
	stable := f.stableAt(f.hw.Load())
	f.hw.Store(to)
	f.log.SetHighWatermark(to)
	f.stableLocked()
	f.wakeReadersLocked(f.stableAt(to) > stable)
	f.decideLocked(false)
}

// wakeReadersLocked wakes the consumers that wait for the high watermark, which has risen, and those that wait for the
// last stable offset if that has.
func (f *Follower) wakeReadersLocked(stable bool) {
	for n := f.waiters.head; n != nil; {
		next := n.next
		if stable || !n.stable {
			f.waiters.remove(n)
			n.waiter.wake()
		}
		n = next
	}
}
