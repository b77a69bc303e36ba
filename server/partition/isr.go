package partition

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// isrChange is a change of the in-sync replicas that the controller has not committed. Guarded by the
// replica's mu.
type isrChange struct {
	flight  *IsrProposal // what the controller was asked for; nil: nothing
	added   []int32      // of flight: who is not in sync yet
	unheard bool         // the controller's answer was lost: the same proposal goes out again
	told    bool         // the broker knows that there is something to propose
	// notBefore is when the next replica may be proposed to come in, after the controller has refused one.
	notBefore time.Time
}

// refusedPause is how long a leader that was refused a replica does not propose one.
const refusedPause = 200 * time.Millisecond

// IsrProposal is a state of a partition that its leader asks the controller for.
type IsrProposal struct {
	Name           Name
	LeaderEpoch    int32
	PartitionEpoch int32 // of the state that it changes
	ISR            []IsrMember
	Recovering     bool
}

// IsrMember is a replica in sync, as it was seen in that broker epoch.
type IsrMember struct {
	ID    int32
	Epoch int64 // -1: not known
}

// Alone says whether no other replica may lead: none is in sync, or has been proposed to be, and none is eligible.
func (l *Leader) Alone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	role := l.role.Load()
	return !l.ended() && len(role.ISR) == 1 && role.inSync(role.Leader) && len(role.ELR) == 0 && l.change.flight == nil
}

// fetchedAt is what the leader notes with a fetch.
type fetchedAt struct {
	epoch     int32
	leaderEnd int64
	now       time.Time
}

func (l *Leader) noteFetchLocked(r *FollowerFetch, at fetchedAt, due []*Waiter) ([]*Waiter, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.remoteLocked(r.Replica)
	switch {
	case l.ended():
		return due, false, ErrNotLeader
	case l.role.Load().LeaderEpoch != at.epoch:
		return due, false, ErrFencedEpoch
	case s == nil:
		return due, false, ErrNotReplica
	case r.BrokerEpoch < s.epoch:
		return due, false, ErrStaleBroker
	}
	if s.epoch == none && l.role.Load().inSync(s.id) {
		s.epoch = r.BrokerEpoch // its first fetch shows it a little behind, no longer than since the epoch began
	}
	s.fetch(r, at.leaderEnd, at.now)
	l.seenLocked(func(id int32) bool { return id == r.Replica })
	l.deletedLocked()
	due = l.advanceLocked(due)
	return due, l.wantsLocked(s, at.now), nil
}

// wantsLocked says whether a follower has just become fit to be in sync.
func (l *Leader) wantsLocked(s *remote, now time.Time) bool {
	if l.change.flight != nil || l.change.told || !l.fitLocked(s, now) {
		return false
	}
	l.change.told = true
	return true
}

// fitLocked says whether a replica may be proposed to be in sync: it has all that is committed and all that was
// there when the epoch began, nothing that is deleted, and it is the run of the broker that the metadata knows.
func (l *Leader) fitLocked(s *remote, now time.Time) bool {
	role := l.role.Load()
	return s.logEnd >= l.hw.Load() && s.logEnd >= role.epochStart && s.logEnd >= 0 && l.startSavedLocked(s) &&
		!role.Recovering && !role.inSync(s.id) && !now.Before(l.change.notBefore) && l.store.active(s.id, s.epoch)
}

// lagsLocked says whether an in-sync replica is too far behind. One that is not assigned always is.
func (l *Leader) lagsLocked(id int32, now time.Time) bool {
	if id == l.role.Load().Leader {
		return false
	}
	s := l.remoteLocked(id)
	return s == nil || s.lags(l.log.EndOffset(), now, l.store.env.LagTimeMax())
}

// propose tells the broker that there is something to propose. No lock is held.
func (l *Leader) propose() { l.store.env.OnIsrChange(l) }

// CheckLag looks for in-sync replicas that have fallen behind, at half of replica.lag.time.max.ms and when the
// metadata fences a broker: a replica that was about to be in sync may count no more.
func (l *Leader) CheckLag(now time.Time) {
	l.advance()
	l.mu.Lock()
	wants := !l.ended() && l.change.flight == nil && len(l.wantedLocked(now)) > 0
	if wants && l.store.env.Flaws.StaleLeader && !l.role.Load().Recovering {
		l.shrinkAloneLocked(now)
		l.mu.Unlock()
		l.advance()
		return
	}
	l.change.told = l.change.told || wants
	l.mu.Unlock()
	if wants {
		l.propose()
	}
}

// shrinkAloneLocked is the flaw StaleLeader.
func (l *Leader) shrinkAloneLocked(now time.Time) {
	role := *l.role.Load()
	role.ISR = slices.DeleteFunc(slices.Clone(role.ISR), func(id int32) bool { return l.lagsLocked(id, now) })
	l.role.Store(&role)
}

// restoreLocked ends what the flaw StaleLeader did, once the controller has said which replicas are in sync.
func (l *Leader) restoreLocked(isr []int32) {
	if l.store.env.Flaws.StaleLeader {
		role := *l.role.Load()
		role.ISR = isr
		l.role.Store(&role)
	}
}

// wantedLocked is the set of in-sync replicas that should be, nil when it is the one that is and the leader has
// nothing else to say.
func (l *Leader) wantedLocked(now time.Time) []int32 {
	role := l.role.Load()
	if role.Recovering {
		return []int32{role.Leader}
	}
	var wanted []int32
	changed := false
	for _, id := range role.ISR {
		if l.lagsLocked(id, now) {
			changed = true
		} else {
			wanted = append(wanted, id)
		}
	}
	for i := range l.remotes {
		if s := &l.remotes[i]; l.fitLocked(s, now) {
			wanted, changed = append(wanted, s.id), true
		}
	}
	if !changed {
		return nil
	}
	return wanted
}

// Propose gives what the controller is to be asked for, and takes it in flight: there is one proposal at a
// time. Whoever is proposed to be in sync counts for the high watermark from now on. ok is false when
// nothing is wanted, or an answer is still awaited.
func (l *Leader) Propose() (p IsrProposal, ok bool) {
	now := l.store.env.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.change.told = false
	if l.ended() || l.gone != nil {
		return IsrProposal{}, false
	}
	if f := l.change.flight; f != nil {
		again := l.change.unheard
		l.change.unheard = false
		return *f, again
	}
	wanted := l.wantedLocked(now)
	if wanted == nil {
		return IsrProposal{}, false
	}
	role := l.role.Load()
	p = IsrProposal{Name: l.name, LeaderEpoch: role.LeaderEpoch, PartitionEpoch: role.PartitionEpoch}
	for _, id := range wanted {
		p.ISR = append(p.ISR, IsrMember{ID: id, Epoch: l.memberEpochLocked(id)})
		if !role.inSync(id) {
			l.change.added = append(l.change.added, id)
		}
	}
	l.change.flight = &p
	return p, true
}

// memberEpochLocked is the broker epoch under which a replica is proposed: of one that comes in that of its
// fetches, of one that stays in the one that the controller took it in by, as far as known.
func (l *Leader) memberEpochLocked(id int32) int64 {
	role := l.role.Load()
	s := l.remoteLocked(id)
	if s != nil && !role.inSync(id) {
		return s.epoch
	}
	if epoch, ok := l.store.brokerEpoch(id); ok {
		return epoch
	}
	if s != nil {
		return s.epoch
	}
	return none
}

// Unanswered is the code of a proposal that the controller has not answered.
const Unanswered = -1

// Proposed takes the controller's answer to a proposal. Without an answer, and with one that says nothing about
// the proposal, the same one is to go out again: OnIsrChange says so at once, how soon is the caller's. After
// an answer that says that newer metadata is on its way, the leader waits for that. state is what an answer
// without an error holds; its Replicas may be nil, which is: as they were.
func (l *Leader) Proposed(p IsrProposal, code int16, state *Role) {
	l.mu.Lock()
	wants := l.proposedLocked(p, code, state)
	l.mu.Unlock()
	l.advance()
	if wants {
		l.propose()
	}
}

func (l *Leader) proposedLocked(p IsrProposal, code int16, state *Role) (wants bool) {
	f := l.change.flight
	current := f != nil && f.LeaderEpoch == p.LeaderEpoch && f.PartitionEpoch == p.PartitionEpoch
	if state != nil && code == 0 {
		next := *state
		if next.Replicas == nil {
			next.Replicas = l.role.Load().Replicas
		}
		l.adoptLocked(next)
		l.restoreLocked(next.ISR)
	}
	if l.ended() || l.gone != nil || !current {
		return false
	}
	now := l.store.env.Now()
	switch code {
	case 0: // also when the state was known: it is what was asked for
		if state != nil && state.LeaderEpoch > l.role.Load().LeaderEpoch {
			return false // it completed a reassignment: who was to come in counts until the new epoch begins here
		}
		l.change = isrChange{}
	case kerr.IneligibleReplica.Code, kerr.OperationNotAttempted.Code:
		l.change = isrChange{notBefore: now.Add(refusedPause)}
		l.deletedLocked()
		return false
	case kerr.FencedLeaderEpoch.Code, kerr.InvalidRequest.Code, kerr.InvalidUpdateVersion.Code,
		kerr.UnknownTopicID.Code, kerr.UnknownTopicOrPartition.Code, kerr.NewLeaderElected.Code:
		return false // in flight until the metadata says more
	default:
		l.change.unheard, l.change.told = true, true
		return true
	}
	l.deletedLocked()
	l.change.told = len(l.wantedLocked(now)) > 0
	return l.change.told
}
