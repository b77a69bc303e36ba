package partition

// Flaws are faults planted on purpose, a test hook: a simulation that does not find each of them finds
// nothing. All are false in a real node.
type Flaws struct {
	// AckEarly answers acks=all when the leader has appended.
	AckEarly bool
	// SkipSync makes leader and followers say that what is not on disk is.
	SkipSync bool
	// SkipTruncation makes a follower go on at its own end where its log has parted from the leader's.
	SkipTruncation bool
	// StaleLeader makes a leader shrink the ISR by itself, without asking the controller.
	StaleLeader bool
	// AdvanceHW makes a leader commit what it alone has.
	AdvanceHW bool
	// LSOOffByOne shows readers of committed records the first one that is not decided.
	LSOOffByOne bool
	// SkipAbortedIndex does not tell readers which transactions were aborted.
	SkipAbortedIndex bool
	// SameEpoch ends transactions in the epoch that their producer has and keeps.
	SameEpoch bool
	// SkipMarker leaves out partitions of a transaction when it ends.
	SkipMarker bool
	// AnyGeneration lets members of groups commit whatever their generation or epoch is.
	AnyGeneration bool
	// EarlyOffsets has the offsets of a transaction count before it is decided.
	EarlyOffsets bool
}
