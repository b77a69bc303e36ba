package metadata

import "github.com/twmb/franz-go/pkg/kerr"

func (c *ElectLeaders) apply(e *editor) Result {
	r := Result{Items: make([]Item, len(c.Partitions))}
	for i, ref := range c.Partitions {
		t, item := e.partition(ref.Topic, ref.Partition)
		switch {
		case item.Code != 0:
			r.Items[i] = item
		case c.Unclean:
			r.Items[i] = e.electUnclean(t, int(ref.Partition))
		default:
			r.Items[i] = e.electPreferred(t, int(ref.Partition))
		}
	}
	return r
}

// partition finds the topic of a partition that exists.
func (e *editor) partition(topic string, partition int32) (*Topic, Item) {
	t := e.topics.get(topic)
	switch {
	case t == nil:
		return nil, refuse(kerr.UnknownTopicOrPartition, "topic %s does not exist", quoteShort(topic))
	case partition < 0 || int(partition) >= len(t.Partitions):
		return nil, unknownPartition(topic, partition)
	}
	return t, Item{}
}

func (e *editor) electPreferred(t *Topic, i int) Item {
	p := t.Partitions[i]
	preferred := p.Replicas[0]
	if p.Leader == preferred {
		return refuse(kerr.ElectionNotNeeded, "partition %s-%d has its preferred leader %d already", t.Name, i, preferred)
	}
	next := e.settled(t, i, p, election{preferred: true})
	if next.Leader != preferred {
		return refuse(kerr.PreferredLeaderNotAvailable, "partition %s-%d: the preferred leader %d is not in sync or not "+
			"in service", t.Name, i, preferred)
	}
	e.putPartition(t, i, next)
	return Item{}
}

func (e *editor) electUnclean(t *Topic, i int) Item {
	p := t.Partitions[i]
	if p.Leader != NoLeader {
		return refuse(kerr.ElectionNotNeeded, "partition %s-%d has the leader %d", t.Name, i, p.Leader)
	}
	next := e.settled(t, i, p, election{unclean: true})
	if next.Leader == NoLeader {
		return refuse(kerr.EligibleLeadersNotAvailable, "partition %s-%d: none of its replicas %v is in service",
			t.Name, i, p.Replicas)
	}
	e.putPartition(t, i, next)
	return Item{}
}
