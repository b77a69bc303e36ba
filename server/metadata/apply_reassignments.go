package metadata

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

func (c *AlterReassignments) apply(e *editor) Result {
	r := Result{Items: make([]Item, len(c.Partitions))}
	for i := range c.Partitions {
		a := &c.Partitions[i]
		t, item := e.partition(a.Topic, a.Partition)
		switch {
		case item.Code != 0:
			r.Items[i] = item
		case a.Replicas == nil:
			r.Items[i] = e.cancelReassignment(t, int(a.Partition))
		default:
			r.Items[i] = e.reassign(t, a, c.AllowRFChange)
		}
	}
	return r
}

func (e *editor) cancelReassignment(t *Topic, i int) Item {
	p := &t.Partitions[i]
	if !p.Reassigning() {
		return refuse(kerr.NoReassignmentInProgress, "partition %s-%d is not being reassigned", t.Name, i)
	}
	next := *p
	next.Replicas = without(p.Replicas, p.Adding)
	next.Adding, next.Removing = nil, nil
	return e.replaceReplicas(t, i, next)
}

func (e *editor) reassign(t *Topic, a *Reassignment, allowRFChange bool) Item {
	p := &t.Partitions[a.Partition]
	original := without(p.Replicas, p.Adding)
	if item := e.checkTarget(t.Name, a, len(original), allowRFChange); item.Code != 0 {
		return item
	}
	next := *p
	next.Adding = without(a.Replicas, original)
	next.Removing = without(original, a.Replicas)
	next.Replicas = slices.Concat(a.Replicas, next.Removing)
	return e.replaceReplicas(t, int(a.Partition), next)
}

// checkTarget refuses replicas that cannot be.
func (e *editor) checkTarget(topic string, a *Reassignment, factor int, allowRFChange bool) Item {
	if len(a.Replicas) == 0 {
		return refuse(kerr.InvalidReplicaAssignment, "partition %s-%d cannot be without replicas", topic, a.Partition)
	}
	for i, id := range a.Replicas {
		switch {
		case e.next.brokers[id] == nil:
			return refuse(kerr.InvalidReplicaAssignment, "partition %s-%d: broker %d is not registered",
				topic, a.Partition, id)
		case slices.Contains(a.Replicas[:i], id):
			return refuse(kerr.InvalidReplicaAssignment, "partition %s-%d: broker %d is in %v twice",
				topic, a.Partition, id, a.Replicas)
		}
	}
	if len(a.Replicas) != factor && !allowRFChange {
		return refuse(kerr.InvalidReplicationFactor, "partition %s-%d has %s, not %d, and that may not change here",
			topic, a.Partition, Count(factor, "replica"), len(a.Replicas))
	}
	return Item{}
}

// replaceReplicas gives a partition other replicas, unless nobody of who stays could lead it where
// somebody can now.
func (e *editor) replaceReplicas(t *Topic, i int, next Partition) Item {
	p := &t.Partitions[i]
	next.ISR = only(p.ISR, func(id int32) bool { return slices.Contains(next.Replicas, id) })
	next = e.settled(t, i, next, election{clean: !e.next.rules(t.Configs).unclean})
	lost := p.Leader != NoLeader && next.Leader == NoLeader
	if lost || len(p.ELR) > 0 && len(next.ISR)+len(next.ELR) == 0 {
		return refuse(kerr.InvalidReplicaAssignment,
			"partition %s-%d: none of %v has all of its records: wait until the reassignment in progress is complete",
			t.Name, i, next.Replicas)
	}
	e.putPartition(t, i, next)
	return Item{}
}
