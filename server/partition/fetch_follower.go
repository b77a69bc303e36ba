package partition

import (
	"errors"
	"fmt"

	"millrace/storage"
)

// FollowerFetch is what a follower asks its leader for. That it asks for an offset says that it has all
// below, on disk where that is what commits.
type FollowerFetch struct {
	Replica          int32
	BrokerEpoch      int64 // of the follower's registration
	Offset           int64 // its log end offset
	LeaderEpoch      int32 // in which it follows, or -1: not checked
	LastFetchedEpoch int32 // of its last batch, or -1: not compared
	LogStart         int64 // its log start offset, as it has saved it
	// HighWatermark is the one the follower knows, or math.MaxInt64 when a newer one alone is no news to it.
	HighWatermark int64
	Unsettled     bool               // it wants to hear that the epoch is settled
	MaxBytes      int                // one whole batch may exceed it
	Alloc         func(n int) []byte // where to put the records; the heap when nil
	BoundsOnly    bool               // the answer has no room for records
}

// EpochEnd says where a leader epoch ended in a log.
type EpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// FollowerFetched is a part of the leader's log as a follower gets it: committed or not.
type FollowerFetched struct {
	Bounds
	Records []byte // whole batches
	Next    int64  // offset after Records
	// Diverging is set when the follower's log has parted from the leader's: it must truncate first. There are
	// no records then.
	Diverging *EpochEnd
	// Settled answers Unsettled: the follower's log holds all that this one had when the epoch began, and that of
	// every replica which could be the next leader agrees with it. Unsettled says that only the latter is awaited.
	Settled, Unsettled bool
}

// FetchFollower reads for a follower, and learns from its offset how far it has come: that may move the high
// watermark, and make the follower fit for the in-sync replicas. The bounds are filled when there is an
// error of the offset.
func (l *Leader) FetchFollower(r FollowerFetch) (FollowerFetched, error) {
	f := FollowerFetched{Bounds: Bounds{none, none, none, none}, Next: r.Offset}
	role, err := l.checkFollower(&r)
	if err != nil {
		return f, err
	}
	f.Bounds = l.Bounds()
	if f.Diverging, err = l.diverging(&r); err != nil || f.Diverging != nil {
		return f, err
	}
	if r.Offset < f.LogStart || r.Offset > f.LogEnd {
		return f, outOfRange(r.Offset, f.Bounds)
	}
	if !r.BoundsOnly && r.Offset < f.LogEnd {
		res, err := l.log.Read(r.Offset, r.MaxBytes, f.LogEnd, r.Alloc)
		if err != nil {
			f.Bounds = l.Bounds() // the log may have been trimmed meanwhile
			return f, l.readFailed(r.Offset, err)
		}
		f.Records, f.Next = res.Batches, res.NextOffset
	}
	if err := l.noteFetch(&r, role.LeaderEpoch, f.LogEnd); err != nil {
		return FollowerFetched{Bounds: f.Bounds, Next: r.Offset}, err
	}
	f.HighWatermark = max(f.HighWatermark, l.hw.Load()) // this very fetch may have moved it
	f.LastStable = max(l.stableAt(f.HighWatermark), f.LogStart)
	if r.Unsettled && r.Offset >= role.epochStart {
		f.Settled = l.settled()
		f.Unsettled = !f.Settled
	}
	return f, nil
}

// checkFollower decides whether the fetch is one of this epoch, by a replica.
func (l *Leader) checkFollower(r *FollowerFetch) (*epochRole, error) {
	if err := l.checkEpoch(r.LeaderEpoch); err != nil {
		return nil, err
	}
	role := l.role.Load()
	if !role.replica(r.Replica) || r.Replica == role.Leader {
		if r.LeaderEpoch != none {
			return nil, fmt.Errorf("%w: %w: node %d", ErrUnknownEpoch, ErrNotReplica, r.Replica)
		}
		return nil, fmt.Errorf("%w: node %d", ErrNotReplica, r.Replica)
	}
	if known, ok := l.store.brokerEpoch(r.Replica); ok && known > r.BrokerEpoch {
		return nil, fmt.Errorf("%w: node %d", ErrStaleBroker, r.Replica)
	}
	return l.checkRole()
}

// brokerEpoch is what the metadata knows of a broker.
func (s *Store) brokerEpoch(broker int32) (epoch int64, ok bool) {
	if s.env.ReplicaState == nil {
		return none, false
	}
	epoch, _ = s.env.ReplicaState(broker)
	return epoch, epoch >= 0
}

// diverging compares the follower's last leader epoch with this log, and says where they part, if they do.
func (l *Leader) diverging(r *FollowerFetch) (*EpochEnd, error) {
	if r.LastFetchedEpoch < 0 {
		return nil, nil
	}
	epoch, end, ok, err := l.log.EndOffsetForEpoch(r.LastFetchedEpoch)
	switch {
	case errors.Is(err, storage.ErrClosed):
		return nil, l.whyGone()
	case err != nil:
		return nil, err
	case !ok: // an epoch that this leader never heard of
		return nil, outOfRange(r.Offset, l.Bounds())
	case epoch < r.LastFetchedEpoch || end < r.Offset:
		return &EpochEnd{Epoch: epoch, EndOffset: end}, nil
	}
	return nil, nil
}

// noteFetch learns from a fetch that was read for: the follower's log end moves the high watermark, and may
// make it fit to be in sync.
func (l *Leader) noteFetch(r *FollowerFetch, epoch int32, leaderEnd int64) error {
	var few [16]*Waiter
	now := l.store.env.Now()
	due, wants, err := l.noteFetchLocked(r, fetchedAt{epoch, leaderEnd, now}, few[:0])
	for _, w := range due {
		w.wake()
	}
	if wants {
		l.propose()
	}
	return err
}

func (l *Leader) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settledLocked()
}

// ReplicaBounds are the log start and end offsets, for a follower that finds itself out of range.
func (l *Leader) ReplicaBounds(leaderEpoch int32) (start, end int64, err error) {
	if err := l.checkEpoch(leaderEpoch); err != nil {
		return none, none, err
	}
	b := l.Bounds()
	return b.LogStart, b.LogEnd, nil
}

// Awaited says whether somebody waits for the high watermark: a produce, or a consumer at the end of the log.
func (l *Leader) Awaited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiters.head != nil
}

// Seen is what is no news to a follower's fetch.
type Seen struct {
	LogEnd        int64
	LogStart      int64 // the one the follower has saved
	HighWatermark int64 // the one the follower knows
	Unsettled     bool  // the epoch is not settled, and it wants to hear when it is
}

// WatchAppends registers a follower's fetch: the waiter is woken when the log grows past the end that was seen, at
// once if somebody waits for the high watermark, else after what Linger allows. It is also woken when the high
// watermark passes the one that the follower knows, when the epoch is settled and the follower wants to hear of that,
// and when the epoch ends. An error means that the partition is not led here any more.
func (l *Leader) WatchAppends(w *Waiter, seen Seen) error {
	n := w.node(l.local, none)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone != nil:
		return l.gone
	case l.ended():
		return ErrNotLeader
	case l.hw.Load() > seen.HighWatermark, seen.Unsettled && l.settledLocked(),
		l.deletions.head != nil && seen.LogStart < l.log.StartOffset():
		w.wake()
		return nil
	}
	n.seen, n.nudged = seen, false
	l.watchers.insert(n)
	l.grownLocked(false)
	return nil
}
