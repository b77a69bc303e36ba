package partition

import (
	"context"
	"sync/atomic"
)

// Follower is a replica in a follower's role: it fetches from the leader and does as that says. Any
// goroutine may use it, also after the role has ended; one at a time takes answers.
type Follower struct {
	*local
	role atomic.Pointer[Role] // set with the slot held
	over atomic.Bool          // the role has ended; set with the slot held
	turn atomic.Uint64        // counts answers that were taken, so that none is taken twice; changed with the slot held

	astray *FetchPosition // guarded by slot; from where a fetch was out of the leader's range

	// Guarded by the replica's mu.
	leaderHW int64 // the greatest that the leader has told in this epoch
	readers  bool  // a consumer has read here since the last fetch
}

// FetchPosition is what a follower's next fetch says of it.
type FetchPosition struct {
	Offset           int64
	LastFetchedEpoch int32 // -1: its log is empty
	LeaderEpoch      int32
	LogStart         int64 // as it is saved: what the leader hears of it outlives a crash
	HighWatermark    int64 // its own
	HasReaders       bool  // somebody waits here for a newer high watermark, which is news by itself
	Unsettled        bool  // somebody waits to hear that the log is settled

	turn uint64 // the follower's when this was its position
}

// LeaderAnswer is what the leader answers to a fetch, for one partition.
type LeaderAnswer struct {
	ErrorCode     int16
	HighWatermark int64
	LogStart      int64
	Diverging     *EpochEnd
	Records       []byte
	// Settled says that the follower's log held all that the leader had when its epoch began, and that nobody who
	// could lead next has anything else.
	Settled bool
}

// Outcome says what a follower made of an answer, and what is to be done.
type Outcome uint8

const (
	// Taken: go on with the next fetch.
	Taken Outcome = iota
	// NeedsSync: as Taken, but the next fetch must wait for a sync.
	NeedsSync
	// Diverged: the log was truncated, or is to be compared further; fetch again.
	Diverged
	// Dropped: the answer is not to the present position; nothing was done.
	Dropped
	// Retry: the leader answered with an error that passes; fetch again after a pause.
	Retry
	// Stop: the role is over, or the leader knows a newer epoch: wait for metadata.
	Stop
	// OutOfRange: ask the leader for its bounds and call Restart.
	OutOfRange
	// Corrupt: what came is damaged; fetch again after a pause.
	Corrupt
)

// begin takes up a role. The slot is held.
func (f *Follower) begin(role Role) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.role.Load(); old == nil || old.LeaderEpoch != role.LeaderEpoch {
		f.leaderHW = none
	}
	f.role.Store(&role)
}

// end ends the role. The slot is held.
func (f *Follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over.Store(true)
	f.waiters.wakeAll()
}

// Behind says whether the log lacks something that is committed, as far as the leader of this epoch has told.
func (f *Follower) Behind() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leaderHW == none || f.log.EndOffset() < f.leaderHW
}

// LeaderEpoch is the epoch in which this replica follows.
func (f *Follower) LeaderEpoch() int32 { return f.role.Load().LeaderEpoch }

// RequestSync asks for what was taken to be made durable, where that is what counts, and returns at once.
func (f *Follower) RequestSync() {
	if f.store.commitSynced {
		f.log.RequestSync()
	}
}

// Sync waits until what was taken is durable.
func (f *Follower) Sync(ctx context.Context) error { return f.log.Sync(ctx) }
