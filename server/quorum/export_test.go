package quorum

import (
	"time"

	"github.com/hashicorp/raft"
)

// Ready is closed when this node leads for the first time.
func (q *Raft) Ready() <-chan struct{} { return q.ready }

// Echoes is what a leader need not ask again.
type Echoes struct{ *echoes }

// NewEchoes makes them for a heartbeat timeout.
func NewEchoes(heartbeat time.Duration) *Echoes { return &Echoes{newEchoes(heartbeat)} }

// Answer gives the answer that needs not be asked for.
func (e *Echoes) Answer(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) bool {
	return e.answer(id, to, req, resp)
}

// Heard notes how an exchange ended.
func (e *Echoes) Heard(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse, err error) {
	e.heard(id, to, req, resp, err)
}

// OnEnd sets who hears of streams that other nodes end.
func (s *Streams) OnEnd(ended func(from int32)) { s.onEnd(ended) }
