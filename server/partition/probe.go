package partition

// Probe is a replica's state at about one moment, as it is: offsets are not brought into order, so that simulations
// can hold them to their invariants.
type Probe struct {
	Name Name
	// Log is equal for two probes of the same open log: one that was given up and came back, or was set aside, is another.
	Log     any
	Leading bool
	// Following is false also of a replica that has no role yet.
	Following bool
	Role      Role
	// The high watermark is read before the log end, so that it does not exceed it unless something is wrong.
	LogStart, HighWatermark, Synced, LogEnd int64
}

// Probe reads the replica's state.
func (r *Replica) Probe() Probe {
	p := Probe{Name: r.name, Log: r.log}
	if l := r.leader.Load(); l != nil && !l.ended() {
		p.Leading, p.Role = true, l.role.Load().Role
	} else if f := r.follower.Load(); f != nil {
		p.Following, p.Role = true, *f.role.Load()
	}
	p.LogStart = r.log.StartOffset()
	p.HighWatermark = r.hw.Load()
	p.Synced = r.log.SyncedOffset()
	p.LogEnd = r.log.EndOffset()
	return p
}
