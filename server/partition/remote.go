package partition

import (
	"math"
	"time"
)

// remote is what a leader knows of another replica, from its fetches in this leader epoch.
type remote struct {
	id       int32
	epoch    int64 // broker epoch of its last fetch, none before the first
	logEnd   int64 // offset of its last fetch, none before the first: it has all below
	logStart int64
	fetched  time.Time // when that was
	// leaderEnd is the leader's log end offset at that fetch. Whoever asks for it next has caught up with
	// what there was then.
	leaderEnd int64
	caughtUp  time.Time // the latest time at which it had all that the leader had; zero: never
}

func newRemote(id int32) remote {
	return remote{id: id, epoch: none, logEnd: none, logStart: none, leaderEnd: math.MaxInt64}
}

// fetch notes a fetch at which the leader's log ended at leaderEnd.
func (s *remote) fetch(r *FollowerFetch, leaderEnd int64, now time.Time) {
	if r.BrokerEpoch != s.epoch { // another run of the process: what the last one had is not known of this one
		s.caughtUp, s.leaderEnd = time.Time{}, math.MaxInt64
	}
	switch {
	case r.Offset >= leaderEnd:
		s.caughtUp = now
	case r.Offset >= s.leaderEnd && s.fetched.After(s.caughtUp):
		s.caughtUp = s.fetched
	}
	s.epoch, s.logEnd, s.logStart = r.BrokerEpoch, r.Offset, r.LogStart
	s.fetched, s.leaderEnd = now, leaderEnd
}

// lags says whether it has not caught up within the time allowed. A replica that has all there is never lags,
// however long ago its last fetch is: a broker that is gone is the controller's to notice.
func (s *remote) lags(leaderEnd int64, now time.Time, allowed time.Duration) bool {
	return s.logEnd != leaderEnd && now.Sub(s.caughtUp) > allowed
}

// remoteLocked finds a replica's state, nil if it is not assigned. The replica's mu is held.
func (l *Leader) remoteLocked(id int32) *remote {
	for i := range l.remotes {
		if l.remotes[i].id == id {
			return &l.remotes[i]
		}
	}
	return nil
}

// ReplicaState is how far a replica is, for reports. Offsets are -1 as long as it has not fetched.
type ReplicaState struct {
	ID           int32
	LogEndOffset int64
	LogStart     int64
	LastFetch    time.Time // zero: never in this leader epoch; the leader itself: now
	LastCaughtUp time.Time
	InSync       bool
}

// ReplicaStates lists the assigned replicas in order, the leader included.
func (l *Leader) ReplicaStates() []ReplicaState {
	now := l.store.env.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	role := l.role.Load()
	states := make([]ReplicaState, 0, len(role.Replicas))
	for _, id := range role.Replicas {
		s := ReplicaState{ID: id, InSync: role.inSync(id), LogEndOffset: none, LogStart: none}
		if known := l.remoteLocked(id); known != nil {
			s.LogEndOffset, s.LogStart = known.logEnd, known.logStart
			s.LastFetch, s.LastCaughtUp = known.fetched, known.caughtUp
		} else if id == role.Leader {
			s.LogEndOffset, s.LogStart = l.log.EndOffset(), l.log.StartOffset()
			s.LastFetch, s.LastCaughtUp = now, now
		}
		states = append(states, s)
	}
	return states
}
