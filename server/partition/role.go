package partition

import "slices"

// Role is what the cluster's metadata says about a partition of this node. The slices are the metadata's
// own and never change.
type Role struct {
	Leader         int32 // -1: none
	LeaderEpoch    int32
	PartitionEpoch int32
	Replicas       []int32
	ISR            []int32
	ELR            []int32 // may lead when nobody in sync is left
	// Recovering holds after an unclean election until the leader has said that it is ready.
	Recovering bool
}

func (r *Role) replica(id int32) bool { return slices.Contains(r.Replicas, id) }
func (r *Role) inSync(id int32) bool  { return slices.Contains(r.ISR, id) }

// newer says whether r is later than the state with those epochs.
func (r *Role) newer(leaderEpoch, partitionEpoch int32) bool {
	return r.LeaderEpoch > leaderEpoch || r.LeaderEpoch == leaderEpoch && r.PartitionEpoch > partitionEpoch
}

// epochRole is the Role of a leader with what it noted when its epoch began. It never changes.
type epochRole struct {
	Role
	epochStart int64 // log end offset at the beginning of the leader epoch
}
