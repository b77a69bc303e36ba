package partition

import "fmt"

// truncateDiverged cuts the log where it parts from the leader's, which has that epoch end there. Where this
// log does not know the epoch, its own last one before is where to go on comparing. The slot is held.
func (f *Follower) truncateDiverged(d EpochEnd) error {
	epoch, ownEnd, ok, err := f.log.EndOffsetForEpoch(d.Epoch)
	if err != nil {
		return f.readFailed(none, err)
	}
	offset := f.log.EndOffset()
	switch {
	case !ok:
		offset = min(offset, d.EndOffset)
	case epoch == d.Epoch:
		offset = min(offset, ownEnd, d.EndOffset)
	default:
		offset = min(offset, ownEnd)
	}
	return f.truncateTo(offset)
}

// truncateTo makes the log end at offset, or before where a batch is in the way. Producers, offsets and high
// watermark change in one step for everybody who takes the slot; who reads without it sees a high watermark
// that lies within the log. The slot is held.
func (f *Follower) truncateTo(offset int64) error {
	end := f.log.EndOffset()
	if offset < end {
		f.logger().Info("log truncated", "offset", offset, "epoch", f.LeaderEpoch(), "err", fmt.Errorf("it ended at %d", end))
		f.alarm(offset)
	}
	if offset < f.log.StartOffset() {
		return f.restartAt(offset)
	}
	if offset < end {
		f.forgetProducers()
		f.lower(offset)
	}
	err := f.log.TruncateTo(offset) // also where only epochs go
	if offset < end {
		f.replayTo = f.log.EndOffset()
		f.lower(f.replayTo)
	}
	return err
}

// restartAt empties the log and makes it begin, and the high watermark be, at offset. After an error that passes
// everything is as it was. The slot is held.
func (f *Follower) restartAt(offset int64) error {
	was := f.hw.Load()
	f.lower(max(offset, f.log.StartOffset())) // not below the log, as long as that is as it is
	err := f.log.TruncateFullyAndStartAt(offset)
	if Passes(err) {
		f.setWatermark(was)
	}
	if err != nil {
		return err
	}
	f.forgetProducers()
	f.replayTo = offset
	f.setWatermark(offset)
	return nil
}

// setWatermark makes the high watermark be at offset. The slot is held.
func (f *Follower) setWatermark(offset int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hw.Store(offset)
	f.log.SetHighWatermark(offset)
	f.decideLocked(false)
}

// forgetProducers makes the state be read anew from what will be left of the log. The slot is held.
func (f *Follower) forgetProducers() {
	f.producers, f.snapshotAt = nil, none
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetStableLocked()
}

// alarm tells of a truncation below the high watermark. A leader that was elected from the in-sync replicas has
// all that was committed, so this one was not.
func (f *Follower) alarm(offset int64) {
	if hw := f.hw.Load(); offset < hw {
		f.logger().Error("records that were committed are truncated after an unclean election",
			"offset", offset, "epoch", f.LeaderEpoch(), "err", fmt.Errorf("the high watermark was %d", hw))
	}
}

// lower takes back the high watermark to offset, if it lies above.
func (f *Follower) lower(offset int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if offset < f.hw.Load() {
		f.hw.Store(offset)
		f.log.SetHighWatermark(offset)
	}
}

// Restart puts a follower whose last answer was OutOfRange where it can go on, given the start and end of its
// leader's log. Only an unclean election leaves a follower beyond its leader's end. If the follower has moved
// since, it changes nothing.
func (f *Follower) Restart(leaderStart, leaderEnd int64) error {
	f.slot.hold()
	defer f.slot.release()
	if f.over.Load() || f.closed {
		return f.whyGone()
	}
	if f.astray == nil || !f.current(*f.astray) || f.store.env.Flaws.SkipTruncation {
		return nil
	}
	end := f.astray.Offset
	f.astray = nil
	switch {
	case leaderEnd < end:
		return f.truncateTo(leaderEnd)
	case leaderStart > end:
		f.logger().Info("log begins anew where its leader's does", "offset", leaderStart, "epoch", f.LeaderEpoch(),
			"err", fmt.Errorf("it ended at %d", end))
		return f.restartAt(leaderStart)
	}
	return nil
}
