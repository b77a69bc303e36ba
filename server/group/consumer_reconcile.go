package group

// current is what a member has, and how far it is on the way to its target: a currentMember with sets. It never
// changes.
type current struct {
	// epoch is the member epoch: of the target that the member has reached or grows into; below 0 for a static member
	// that is away.
	epoch int32
	// previous is the last epoch that the member is known to have heard of. It is one who missed answers if it comes
	// with that.
	previous int32
	state    int8
	assigned assignment
	// pending is what the member must give up, and has not said that it did. Nobody else can have it before.
	pending assignment
}

// awayEpoch is the epoch of a static member that left to come back.
const awayEpoch int32 = -2

// decodeCurrent takes up a record.
func decodeCurrent(v *currentMember) *current {
	return &current{
		epoch: v.memberEpoch, previous: v.previousMemberEpoch, state: v.state,
		assigned: newAssignment(v.assigned), pending: newAssignment(v.pendingRevocation),
	}
}

func (c *current) record() *currentMember {
	return &currentMember{
		memberEpoch: c.epoch, previousMemberEpoch: c.previous, state: c.state,
		assigned: c.assigned, pendingRevocation: c.pending,
	}
}

// step is what the next state of a member depends on.
type step struct {
	// epoch and target are the group's assignment and the member's part of it.
	epoch  int32
	target assignment
	// owned is what the member says that it has; nil: it does not say, and counts as having everything still.
	owned *assignment
	// heard is the epoch that the member comes with.
	heard int32
	// free says of a partition that nobody else has it, nor has to give it up.
	free func(partitionID) bool
}

// next is the state after a heartbeat; c itself if that changes nothing. A member gives up what it must before it goes
// on to the epoch of the target; there it gets what others have given up, now and with later heartbeats.
func (c *current) next(s step) *current {
	switch c.state {
	case memberUnrevoked:
		if s.holds(c.pending) {
			return c
		}
	case memberStable:
		if c.epoch == s.epoch {
			return c
		}
	}
	keep := c.assigned.and(s.target)
	if revoke := c.assigned.minus(s.target); s.holds(revoke) {
		return &current{epoch: c.epoch, previous: c.previous, state: memberUnrevoked, assigned: keep, pending: revoke}
	}
	wanted := s.target.minus(keep)
	grab := wanted.only(s.free)
	out := &current{epoch: s.epoch, previous: c.previous, state: memberStable, assigned: keep.plus(grab)}
	if s.epoch != c.epoch {
		out.previous = s.heard
	}
	if grab.count() < wanted.count() {
		out.state = memberUnreleased
	}
	if out.epoch == c.epoch && out.state == c.state && len(grab) == 0 && len(c.pending) == 0 &&
		len(keep) == len(c.assigned) && keep.equal(c.assigned) {
		return c
	}
	return out
}

// holds says whether the member has, or may have, some of the partitions.
func (s *step) holds(some assignment) bool {
	return len(some) > 0 && (s.owned == nil || len(some.and(*s.owned)) > 0)
}
