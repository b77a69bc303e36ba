package partition

import (
	"errors"

	"millrace/storage"
)

// The special timestamps of ListOffsets.
const (
	timeLatest        = -1
	timeEarliest      = -2
	timeMaxTimestamp  = -3
	timeEarliestLocal = -4
	timeLatestTiered  = -5
	timePendingUpload = -6
)

// Position is an offset found by time.
type Position struct {
	Offset      int64 // -1: no such record
	Timestamp   int64 // -1 for the special times
	LeaderEpoch int32
}

func nowhere() Position { return Position{Offset: none, Timestamp: none, LeaderEpoch: none} }

// OffsetQuery asks for an offset by time.
type OffsetQuery struct {
	Timestamp     int64
	LeaderEpoch   int32 // what the client believes, or -1
	ReadCommitted bool  // the log ends at the last stable offset instead of the high watermark
}

// OffsetAt finds the offset that a ListOffsets timestamp asks for: the first record by offset with
// that time or later, or one of the special places. Only committed records are found.
func (l *Leader) OffsetAt(q OffsetQuery) (Position, error) {
	if err := l.checkEpoch(q.LeaderEpoch); err != nil {
		return nowhere(), err
	}
	bounds, timestamp := l.Bounds(), q.Timestamp
	end := bounds.HighWatermark
	if q.ReadCommitted {
		var err error
		if bounds, err = l.StableBounds(); err != nil {
			return nowhere(), err
		}
		end = bounds.LastStable
	}
	role := l.role.Load()
	settled := bounds.HighWatermark >= role.epochStart
	switch {
	case timestamp == timeLatest:
		if !settled {
			return nowhere(), ErrOffsetUnknown
		}
		return Position{Offset: end, Timestamp: none, LeaderEpoch: role.LeaderEpoch}, nil
	case timestamp == timeEarliest, timestamp == timeEarliestLocal:
		epoch, err := l.epochOf(bounds.LogStart)
		return Position{Offset: bounds.LogStart, Timestamp: none, LeaderEpoch: epoch}, err
	case timestamp == timeLatestTiered, timestamp == timePendingUpload:
		return nowhere(), nil
	case timestamp < 0 && timestamp != timeMaxTimestamp:
		return nowhere(), ErrSpecialTime
	}
	p, err := l.lookUp(timestamp)
	if err != nil || p.Offset == none {
		return nowhere(), err
	}
	if p.Offset >= end {
		if !settled {
			return nowhere(), ErrOffsetUnknown
		}
		return nowhere(), nil
	}
	return p, nil
}

// lookUp asks the log, which knows nothing of high watermarks.
func (l *Leader) lookUp(timestamp int64) (Position, error) {
	find := func() (storage.TimeResult, bool, error) { return l.log.OffsetForTime(timestamp) }
	if timestamp == timeMaxTimestamp {
		find = l.log.MaxTimestampOffset
	}
	r, ok, err := find()
	if err != nil {
		return nowhere(), l.readFailed(none, err)
	}
	if !ok {
		return nowhere(), nil
	}
	return Position{Offset: r.Offset, Timestamp: r.Timestamp, LeaderEpoch: r.Epoch}, nil
}

// epochOf is the leader epoch in which the record at offset was written, or would be.
func (l *Leader) epochOf(offset int64) (int32, error) {
	if offset >= l.log.EndOffset() {
		return l.role.Load().LeaderEpoch, nil
	}
	return l.log.EpochFor(offset)
}

// EpochEnd answers OffsetForLeaderEpoch: the greatest epoch not above the one asked for, and where
// it ends. Both are -1 when the log does not know it.
func (l *Leader) EpochEnd(epoch, leaderEpoch int32) (int32, int64, error) {
	if err := l.checkEpoch(leaderEpoch); err != nil {
		return none, none, err
	}
	found, end, ok, err := l.log.EndOffsetForEpoch(epoch)
	if errors.Is(err, storage.ErrClosed) {
		return none, none, l.whyGone()
	}
	if err != nil || !ok {
		return none, none, err
	}
	return found, end, nil
}
