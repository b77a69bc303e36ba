package metadata

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

func (c *AlterPartition) apply(e *editor) Result {
	r := Result{Items: make([]Item, len(c.Partitions))}
	for i := range c.Partitions {
		r.Items[i] = e.alterPartition(c, &c.Partitions[i])
	}
	return r
}

func (e *editor) alterPartition(c *AlterPartition, a *AlteredPartition) Item {
	if item := e.checkBrokerEpoch(c.BrokerID, c.BrokerEpoch); item.Code != 0 {
		return Item{Code: kerr.StaleBrokerEpoch.Code, Message: item.Message}
	}
	t := e.topics.getID(a.TopicID)
	switch {
	case t == nil:
		return refuse(kerr.UnknownTopicID, "no topic has the id %s", a.TopicID)
	case a.Partition < 0 || int(a.Partition) >= len(t.Partitions):
		return unknownPartition(t.Name, a.Partition)
	}
	p := &t.Partitions[a.Partition]
	if item := checkLeaderEpoch(t.Name, p, a); item.Code != 0 {
		return item
	}
	if a.Resign {
		return e.resign(t, a, c.BrokerID)
	}
	switch {
	case p.Leader != c.BrokerID:
		return refuse(kerr.InvalidRequest, "partition %s-%d has the leader %d, not %d",
			t.Name, a.Partition, p.Leader, c.BrokerID)
	case sameISR(p, a): // made before, and the answer got lost
		now := *p
		return Item{Partition: &now}
	case a.PartitionEpoch < p.PartitionEpoch:
		return refuse(kerr.InvalidUpdateVersion, "partition %s-%d has partition epoch %d, not %d: it changed since",
			t.Name, a.Partition, p.PartitionEpoch, a.PartitionEpoch)
	}
	if item := e.checkISR(t.Name, p, a, c.BrokerID); item.Code != 0 {
		return item
	}
	next := *p
	next.Recovering = a.Recovering
	next.ISR = only(p.Replicas, a.has)
	now := e.settled(t, int(a.Partition), next, election{})
	e.putPartition(t, int(a.Partition), now)
	if now.Leader == c.BrokerID {
		return Item{Partition: &now}
	}
	item := refuse(kerr.NewLeaderElected, "partition %s-%d was changed and has the leader %d now",
		t.Name, a.Partition, now.Leader)
	item.Partition = &now
	return item
}

func unknownPartition(topic string, partition int32) Item {
	return refuse(kerr.UnknownTopicOrPartition, "partition %s-%d does not exist", topic, partition)
}

func checkLeaderEpoch(topic string, p *Partition, a *AlteredPartition) Item {
	switch {
	case a.LeaderEpoch > p.LeaderEpoch || !a.Resign && a.PartitionEpoch > p.PartitionEpoch:
		return refuse(kerr.NotController, "partition %s-%d has epoch %d.%d here, which is older than %d.%d",
			topic, a.Partition, p.LeaderEpoch, p.PartitionEpoch, a.LeaderEpoch, a.PartitionEpoch)
	case a.LeaderEpoch < p.LeaderEpoch:
		return refuse(kerr.FencedLeaderEpoch, "partition %s-%d has leader epoch %d: %d is over",
			topic, a.Partition, p.LeaderEpoch, a.LeaderEpoch)
	}
	return Item{}
}

// checkISR refuses an ISR that cannot be.
func (e *editor) checkISR(topic string, p *Partition, a *AlteredPartition, leader int32) Item {
	bad := func(format string, args ...any) Item {
		return refuse(kerr.InvalidRequest, "partition %s-%d: %s", topic, a.Partition, fmt.Sprintf(format, args...))
	}
	for i, m := range a.ISR {
		switch {
		case !slices.Contains(p.Replicas, m.ID):
			return bad("broker %d is none of its replicas %v", m.ID, p.Replicas)
		case slices.ContainsFunc(a.ISR[:i], func(o ISRMember) bool { return o.ID == m.ID }):
			return bad("broker %d is in the ISR twice", m.ID)
		}
	}
	switch {
	case !a.has(leader):
		return bad("the ISR lacks the leader %d", leader)
	case a.Recovering && !p.Recovering:
		return bad("it has recovered already")
	case a.Recovering && len(a.ISR) > 1:
		return bad("the ISR cannot grow before it has recovered")
	}
	for _, m := range a.ISR {
		if why := e.ineligible(p, m); why != "" && m.ID != leader {
			return refuse(kerr.IneligibleReplica, "partition %s-%d: broker %d %s", topic, a.Partition, m.ID, why)
		}
	}
	return Item{}
}

// ineligible says why a broker may not be in sync, or nothing.
func (e *editor) ineligible(p *Partition, m ISRMember) string {
	b := e.next.brokers[m.ID]
	switch {
	case b == nil:
		return "is not registered"
	case b.Fenced:
		return "is fenced"
	case b.ShuttingDown:
		return "is shutting down"
	case m.Epoch == -1 && slices.Contains(p.ISR, m.ID):
		return ""
	case b.Epoch != m.Epoch:
		return fmt.Sprintf("has epoch %d, not %d: it registered again", b.Epoch, m.Epoch)
	}
	return ""
}

func (a *AlteredPartition) has(id int32) bool {
	return slices.ContainsFunc(a.ISR, func(m ISRMember) bool { return m.ID == id })
}

// sameISR reports whether a partition is as the leader wants it.
func sameISR(p *Partition, a *AlteredPartition) bool {
	return len(a.ISR) == len(p.ISR) && a.Recovering == p.Recovering &&
		!slices.ContainsFunc(p.ISR, func(id int32) bool { return !a.has(id) })
}

// resign takes a damaged replica out of ISR and ELR, or one that takes nothing more out of the ISR, unless nobody else
// could lead then. One that cannot even be opened does not keep others from leading uncleanly where that is allowed.
func (e *editor) resign(t *Topic, a *AlteredPartition, sender int32) Item {
	p := &t.Partitions[a.Partition]
	if !slices.Contains(p.Replicas, sender) {
		return refuse(kerr.InvalidRequest, "partition %s-%d: broker %d is none of its replicas %v",
			t.Name, a.Partition, sender, p.Replicas)
	}
	next := *p
	gone := []int32{sender}
	next.ISR = without(p.ISR, gone)
	how := election{clean: true, lost: gone}
	if a.Eligible {
		how = election{clean: true, unfit: gone}
	}
	now := e.settled(t, int(a.Partition), next, how)
	lost := p.Leader != NoLeader && now.Leader == NoLeader || len(p.ELR) > 0 && len(now.ISR)+len(now.ELR) == 0
	if lost && a.Unusable && e.next.rules(t.Configs).unclean {
		now = e.settled(t, int(a.Partition), next, election{unfit: gone, lost: gone, gone: gone})
		lost = now.Leader == NoLeader
	}
	if lost {
		return refuse(kerr.EligibleLeadersNotAvailable, "partition %s-%d: no other replica than that of broker %d can lead",
			t.Name, a.Partition, sender)
	}
	e.putPartition(t, int(a.Partition), now)
	return Item{Partition: &now}
}
