package partition

import (
	"slices"
	"sync/atomic"

	"millrace/internal/invariant"
)

// Leader is a replica in the leader's role. Any goroutine may use it, also after the role has ended: then
// it refuses everything. It stays the same one over the epochs that follow each other here.
type Leader struct {
	*local
	role atomic.Pointer[epochRole] // a new epoch is set with the slot held, everything with mu held
	// final is the high watermark at which the role ended, none as long as it goes on. What the replica's
	// high watermark passes later need not be what this leader appended.
	final   atomic.Int64
	trusted atomic.Pointer[epochRole] // the role whose epoch was compared with the log's

	// Guarded by the replica's mu.
	hidden   []extent  // what is appended, or about to be, at or above the high watermark, in order
	watchers waitList  // followers' fetches that wait for the log to grow
	remotes  []remote  // the other replicas that are assigned
	change   isrChange // of the in-sync replicas, as far as the controller has not answered
	// deletions are the requests that wait until the log start is saved elsewhere.
	deletions waitList
	// unseen are the replicas that could lead next but have not fetched in this epoch: their logs may hold what
	// this one does not.
	unseen []int32
}

// begin starts a leader epoch. The slot is held, and nobody appends.
func (l *Leader) begin(role Role) {
	end := l.log.EndOffset()
	// A failure means that the log is offline, which every call will say.
	_ = l.log.AssignEpoch(role.LeaderEpoch, end)
	now := l.store.env.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.final.Store(none)
	l.role.Store(&epochRole{Role: role, epochStart: end})
	l.change = isrChange{}
	l.remotes = nil
	for _, id := range role.Replicas {
		if id != role.Leader {
			l.remotes = append(l.remotes, newRemote(id))
		}
	}
	l.unseen = slices.DeleteFunc(slices.Concat(role.ISR, role.ELR), func(id int32) bool { return id == role.Leader })
	if len(l.unseen) == 0 {
		l.decideLocked(true)
	}
	for i := range l.remotes {
		if role.inSync(l.remotes[i].id) {
			l.remotes[i].caughtUp = now
		}
	}
	if hw := l.hw.Load(); hw < end && len(l.hidden) == 0 {
		// What there is was not appended here, so how many bytes it has is not known: whoever waits for
		// any of it shall look.
		l.hidden = append(l.hidden, extent{next: end, bytes: unknownBytes})
	}
	l.watchers.wakeAll() // what they wait for is fenced now
	l.deletions.wakeAll()
}

// end ends the role: calls are refused from here on, and who waits finds out. The slot is held.
func (l *Leader) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.final.Store(l.hw.Load())
	l.hidden = nil
	l.change = isrChange{}
	for n := l.waiters.head; n != nil; n = l.waiters.head {
		l.waiters.remove(n)
		if n.target == none {
			n.waiter.wake()
		} else {
			l.orphans.insert(n)
		}
	}
	l.watchers.wakeAll()
	l.deletions.wakeAll()
}

// settledLocked says whether the log of every replica that could be the next leader is known to agree with this one.
// Once it is so, it stays so in the epoch: others come in sync by fetching in it. The mu is held.
func (l *Leader) settledLocked() bool { return !l.ended() && len(l.unseen) == 0 }

// seenLocked takes note that replicas agree with this log, or cannot lead any more.
func (l *Leader) seenLocked(is func(id int32) bool) {
	if len(l.unseen) == 0 {
		return
	}
	if l.unseen = slices.DeleteFunc(l.unseen, is); len(l.unseen) > 0 {
		return
	}
	l.decideLocked(true)
	for n := l.watchers.head; n != nil; {
		next := n.next
		if n.seen.Unsettled {
			l.watchers.remove(n)
			n.waiter.wake()
		}
		n = next
	}
}

// adopt takes up a state of the same leader epoch, unless a later one is known.
func (l *Leader) adopt(role Role) {
	l.mu.Lock()
	l.adoptLocked(role)
	l.mu.Unlock()
	l.advance()
}

func (l *Leader) adoptLocked(role Role) {
	old := l.role.Load()
	if l.ended() || role.LeaderEpoch != old.LeaderEpoch || role.PartitionEpoch <= old.PartitionEpoch {
		return
	}
	l.role.Store(&epochRole{Role: role, epochStart: old.epochStart})
	l.change = isrChange{}
	l.seenLocked(func(id int32) bool { return !role.inSync(id) && !slices.Contains(role.ELR, id) })
	for i := range l.remotes {
		// Who has left comes back by a new fetch: what is known of it may be why it left.
		if s := &l.remotes[i]; old.inSync(s.id) && !role.inSync(s.id) {
			epoch := s.epoch
			*s = newRemote(s.id)
			s.epoch = epoch
		}
	}
	defer l.deletedLocked()
	if slices.Equal(role.Replicas, old.Replicas) {
		return
	}
	var remotes []remote
	for _, id := range role.Replicas {
		if id == role.Leader {
			continue
		}
		if known := l.remoteLocked(id); known != nil {
			remotes = append(remotes, *known)
		} else {
			remotes = append(remotes, newRemote(id))
		}
	}
	l.remotes = remotes
}

// ended says whether the role is over.
func (l *Leader) ended() bool { return l.final.Load() != none }

// checkEpoch compares the leader epoch of a request with the partition's; -1 is not checked. A leader whose
// role is over refuses whatever the request says.
func (l *Leader) checkEpoch(epoch int32) error {
	if l.ended() {
		return ErrNotLeader
	}
	switch own := l.role.Load().LeaderEpoch; {
	case epoch == none || epoch == own:
		return nil
	case epoch < own:
		return ErrFencedEpoch
	default:
		return ErrUnknownEpoch
	}
}

// checkBounds asserts the leader's invariant. The condition stands outside the call, whose arguments
// would cost memory at every write.
func (l *Leader) checkBounds(hw int64) {
	if end := l.log.EndOffset(); hw > end {
		invariant.Check(false, "%s: high watermark %d above log end offset %d", l.name, hw, end)
	}
}
