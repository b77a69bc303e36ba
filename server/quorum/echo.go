package quorum

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// echoes spares a leader at rest most of its messages. Raft's leader tells each follower every 50 to 100 ms how far the
// log is committed, so that a follower learns of a commit soon. When nothing was committed since, the follower's answer
// is known: it said so already, to the same message. Then the answer is given here, and nothing is sent.
//
// Raft also takes an answer as a sign of life, so one is given only for a follower that answered a heartbeat a moment
// ago; the leader's lease is longer by that moment at most, and still ends before another election may begin. An echo
// claims nothing about the log that the follower has not said in this term. It does not prove that this node still
// leads, so raft's VerifyLeader is not to be used with it; Barrier is fine, as it has an entry.
type echoes struct {
	fresh  time.Duration // how long a sign of life counts
	repeat time.Duration // how long the same is not said again

	mu        sync.Mutex
	term      uint64                     // guarded by mu; the newest one that this node led in
	followers map[raft.ServerID]followed // guarded by mu; of that term
}

// followed is what is known of a follower.
type followed struct {
	to     raft.ServerAddress
	claim  claim
	answer raft.AppendEntriesResponse // to the claim
	asked  time.Time                  // when that answer came
	alive  time.Time                  // when the last answer came, to a heartbeat or anything else
}

// claim is what a message without entries says.
type claim struct{ term, index, indexTerm, commit uint64 }

// heartbeatFraction is the part of the heartbeat timeout for which a sign of life counts: longer than the longest pause
// between two heartbeats, which is a fifth. With the lease of half a timeout it makes three quarters.
const heartbeatFraction = 4

func newEchoes(heartbeat time.Duration) *echoes {
	return &echoes{
		fresh: heartbeat / heartbeatFraction, repeat: heartbeat, followers: make(map[raft.ServerID]followed),
	}
}

// claimOf tells what a message says. False: it is a heartbeat, or it brings entries.
func claimOf(r *raft.AppendEntriesRequest) (claim, bool) {
	c := claim{term: r.Term, index: r.PrevLogEntry, indexTerm: r.PrevLogTerm, commit: r.LeaderCommitIndex}
	return c, len(r.Entries) == 0 && r.PrevLogEntry > 0
}

// answer fills in what the follower would answer, or reports false: it has to be asked.
func (e *echoes) answer(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) bool {
	c, ok := claimOf(req)
	if !ok {
		return false
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.followers[id]
	if f.claim != c || f.to != to || now.Sub(f.asked) >= e.repeat || now.Sub(f.alive) > e.fresh {
		return false
	}
	*resp = f.answer
	return true
}

// heard notes how an exchange with a follower ended.
func (e *echoes) heard(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse, err error) {
	c, atRest := claimOf(req)
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if req.Term < e.term {
		return
	}
	if req.Term > e.term {
		e.term = req.Term
		clear(e.followers)
	}
	f := e.followers[id]
	switch {
	case err != nil || !resp.Success || resp.Term != req.Term:
		delete(e.followers, id)
		return
	case atRest:
		f = followed{to: to, claim: c, answer: *resp, asked: now}
	}
	f.alive = now
	e.followers[id] = f
}
