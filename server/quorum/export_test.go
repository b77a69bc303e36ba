package quorum

// Ready is closed when this node leads for the first time.
func (q *Raft) Ready() <-chan struct{} { return q.ready }
