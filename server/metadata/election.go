package metadata

import (
	"slices"

	"millrace/internal/invariant"
)

// election is how a leader may be chosen where a partition changes.
type election struct {
	// preferred lets the preferred leader take over from one that could stay.
	preferred bool
	// unclean lets any active replica lead where nobody else can, whatever the topic says; clean
	// lets nobody lead who may lack acknowledged records.
	unclean, clean bool
	// unfit holds brokers that shall not lead now, though they have all acknowledged records.
	unfit []int32
	// lost holds brokers that may have lost acknowledged records: they are eligible no more.
	lost []int32
	// gone holds those of them that have nothing of what they acknowledged, or an older copy: they are not even
	// the last resort where there are other replicas.
	gone []int32
}

// settle changes a partition to p and what follows from it, and reports whether anything did change.
func (e *editor) settle(t *Topic, i int, p Partition, how election) bool {
	now := e.settled(t, i, p, how)
	return e.putPartition(t, i, now)
}

// settled works out what becomes of a partition whose replicas, ISR or recovery change to those of p,
// or whose brokers changed: who stays in sync, whether a reassignment is complete, who is eligible,
// who leads, and the epochs.
func (e *editor) settled(t *Topic, i int, p Partition, how election) Partition {
	was := &t.Partitions[i]
	p.ISR = e.serving(&p)
	completeReassignment(&p)
	enough := min(e.next.rules(t.Configs).minISR, len(p.Replicas))
	settleELR(was, &p, how)
	e.elect(t, &p, how)
	completeReassignment(&p)
	if len(p.ISR) >= min(enough, len(p.Replicas)) {
		p.ELR, p.LastKnownELR = nil, nil
	}
	if samePartition(was, &p) {
		return *was
	}
	p.PartitionEpoch = was.PartitionEpoch + 1
	if p.Leader != was.Leader || !isSubset(was.Replicas, p.Replicas) {
		p.LeaderEpoch = was.LeaderEpoch + 1
	}
	invariant.Check((p.Leader == NoLeader) == (len(p.ISR) == 0), "leader %d, ISR %v", p.Leader, p.ISR)
	return p
}

// serving is the part of the ISR that may stay in it: the active brokers, or where there are none a
// leader that is only shutting down.
func (e *editor) serving(p *Partition) []int32 {
	isr := only(p.ISR, e.next.Active)
	if len(isr) > 0 || !slices.Contains(p.ISR, p.Leader) {
		return isr
	}
	if b := e.next.brokers[p.Leader]; b == nil || b.Fenced {
		return nil
	}
	return []int32{p.Leader}
}

// completeReassignment ends a reassignment when every replica wanted is in sync.
func completeReassignment(p *Partition) {
	if !p.Reassigning() || !isSubset(p.Target(), p.ISR) {
		return
	}
	p.ISR = without(p.ISR, p.Removing)
	p.Replicas = slices.Clone(p.Target())
	p.Adding, p.Removing = nil, nil
}

// settleELR works out the eligible leader replicas of an ISR that is too short: the high watermark does
// not move then, so whoever leaves the ISR still has everything below it.
func settleELR(was, p *Partition, how election) {
	had := func(id int32) bool { return slices.Contains(was.ELR, id) || slices.Contains(was.ISR, id) }
	p.ELR = only(p.Replicas, func(id int32) bool {
		return had(id) && !slices.Contains(p.ISR, id) && !slices.Contains(how.lost, id)
	})
	resort := func(id int32) bool { return len(p.Replicas) == 1 || !slices.Contains(how.gone, id) }
	lastKnown := was.LastKnownELR
	switch {
	case len(p.ISR) > 0:
		known := func(id int32) bool { return had(id) || slices.Contains(lastKnown, id) }
		p.LastKnownELR = only(p.Replicas, func(id int32) bool {
			return known(id) && resort(id) && !slices.Contains(p.ISR, id) && !slices.Contains(p.ELR, id)
		})
		return
	case was.Leader != NoLeader:
		lastKnown = []int32{was.Leader}
	}
	p.LastKnownELR = only(lastKnown, func(id int32) bool { return slices.Contains(p.Replicas, id) && resort(id) })
}

// elect makes the leader that choose finds lead.
func (e *editor) elect(t *Topic, p *Partition, how election) {
	id, clean := e.choose(t, p, how)
	p.Leader = id
	switch {
	case id == NoLeader:
	case !clean:
		p.ISR, p.ELR, p.LastKnownELR, p.Recovering = []int32{id}, nil, nil, true
	case !slices.Contains(p.ISR, id):
		p.ISR = []int32{id}
		p.ELR = without(p.ELR, p.ISR)
		p.LastKnownELR = without(without(p.LastKnownELR, p.ISR), p.ELR)
	}
}

// choose finds who shall lead: of those that are complete the present leader if it can stay, else the
// first in order of preference. Without any it is a leader that is shutting down, then the last known
// one, then where that is allowed any active replica; the last two may lack records and are not clean.
func (e *editor) choose(t *Topic, p *Partition, how election) (id int32, clean bool) {
	valid := func(id int32) bool { return e.canLead(p, id) && !slices.Contains(how.unfit, id) }
	switch {
	case how.preferred && valid(p.Replicas[0]):
		return p.Replicas[0], true
	case valid(p.Leader):
		return p.Leader, true
	}
	if i := slices.IndexFunc(p.Replicas, valid); i >= 0 {
		return p.Replicas[i], true
	}
	switch {
	case len(p.ISR) > 0:
		return p.Leader, true
	case how.clean:
		return NoLeader, true
	case len(p.ELR) == 0 && len(p.LastKnownELR) == 1 && e.next.Active(p.LastKnownELR[0]):
		return p.LastKnownELR[0], false
	case how.unclean || e.next.rules(t.Configs).unclean:
		fit := func(id int32) bool { return e.next.Active(id) && !slices.Contains(how.unfit, id) }
		if i := slices.IndexFunc(p.Replicas, fit); i >= 0 {
			return p.Replicas[i], false
		}
	}
	return NoLeader, true
}

// canLead reports whether a replica is active and complete.
func (e *editor) canLead(p *Partition, id int32) bool {
	if !e.next.Active(id) {
		return false
	}
	return slices.Contains(p.ISR, id) || len(p.ISR) == 0 && slices.Contains(p.ELR, id)
}

// settleAll settles every partition that has a replica on one of the brokers, after their state
// changed.
func (e *editor) settleAll(brokers []int32, how election) {
	concerned := func(id int32) bool { return slices.Contains(brokers, id) }
	for t := range e.allTopics() {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; slices.ContainsFunc(p.Replicas, concerned) {
				e.settle(t, i, *p, how)
			}
		}
	}
}

// samePartition reports whether two states differ in nothing but epochs.
func samePartition(a, b *Partition) bool {
	return a.Leader == b.Leader && a.Recovering == b.Recovering &&
		slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.ISR, b.ISR) &&
		slices.Equal(a.Adding, b.Adding) && slices.Equal(a.Removing, b.Removing) &&
		slices.Equal(a.ELR, b.ELR) && slices.Equal(a.LastKnownELR, b.LastKnownELR)
}

// only returns the items that shall be kept, in their order: the list itself when that is all, nil when
// there are none.
func only(list []int32, keep func(int32) bool) []int32 {
	i := slices.IndexFunc(list, func(id int32) bool { return !keep(id) })
	if i < 0 {
		return list
	}
	var kept []int32
	for j, id := range list {
		if j < i || j > i && keep(id) {
			kept = append(kept, id)
		}
	}
	return kept
}

// without returns the items of a list that are not in another.
func without(list, drop []int32) []int32 {
	return only(list, func(id int32) bool { return !slices.Contains(drop, id) })
}

// isSubset reports whether every item of a list is in another.
func isSubset(part, whole []int32) bool {
	return !slices.ContainsFunc(part, func(id int32) bool { return !slices.Contains(whole, id) })
}
