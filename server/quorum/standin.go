package quorum

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// A leader whose process has ended is replaced before its heartbeats are missed: its streams end at once, and its port
// refuses. Voters that see both stand for election, one after the other so that they do not split the vote, and each
// once. A leader that cannot be reached, and one that still says that it lives, is left to the heartbeats.
const (
	// refusalPause is how long the port has to refuse: one refusal may be a restart of what listens.
	refusalPause = 50 * time.Millisecond
	// standInStep is what lies between two voters that stand. An election takes less, unless disks are slow.
	standInStep = 150 * time.Millisecond
	// refusalTimeout bounds one connection attempt.
	refusalTimeout = time.Second
)

// streamEnded hears that a stream from another node has ended. It never waits.
func (q *Raft) streamEnded(from int32) {
	address, id := q.raft.LeaderWithID()
	if nodeID(id) != from || baseURL(address) == "" || !q.doubting.CompareAndSwap(false, true) {
		return
	}
	if !q.start(func() {
		q.standIn(raft.Server{ID: id, Address: address})
		q.doubting.Store(false)
	}) {
		q.doubting.Store(false)
	}
}

// standIn makes this node stand for election if the leader's process is gone, nobody was faster, and it has a vote.
func (q *Raft) standIn(leader raft.Server) {
	self, turn := q.turn(leader.ID)
	if turn < 0 || !q.streams.refused(baseURL(leader.Address)) {
		return
	}
	since := time.Now()
	if !q.pause(refusalPause+time.Duration(turn)*standInStep) || !q.streams.refused(baseURL(leader.Address)) {
		return
	}
	_, now := q.raft.LeaderWithID()
	if now != "" && now != leader.ID || q.raft.LastContact().After(since) || q.raft.State() != raft.Follower {
		return
	}
	q.config.Logger.Info("the leader of the metadata quorum is gone; this node stands for election",
		"leader", string(leader.ID))
	q.transport.campaign(self)
}

// turn is this node as the others know it, and how many voters besides the leader stand before it; -1: it has no vote.
func (q *Raft) turn(leader raft.ServerID) (self raft.Server, turn int) {
	voters := slices.DeleteFunc(q.servers(), func(s raft.Server) bool {
		return s.Suffrage != raft.Voter || s.ID == leader
	})
	slices.SortFunc(voters, func(a, b raft.Server) int { return int(nodeID(a.ID)) - int(nodeID(b.ID)) })
	turn = slices.IndexFunc(voters, func(s raft.Server) bool { return s.ID == serverID(q.config.NodeID) })
	if turn >= 0 {
		self = voters[turn]
	}
	return self, turn
}

// pause waits; false: this is closing.
func (q *Raft) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-q.closing:
		return false
	}
}
