package metadata

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

func (c *CreateTopics) apply(e *editor) Result {
	r := Result{Items: make([]Item, len(c.Topics))}
	for i := range c.Topics {
		r.Items[i] = e.createTopic(&c.Topics[i], c.Limits)
	}
	return r
}

func (e *editor) createTopic(n *NewTopic, limits Limits) Item {
	if item := e.checkNewTopicName(n.Name); item.Code != 0 {
		return item
	}
	if item := e.checkTopicConfigs(n.Configs); item.Code != 0 {
		return item
	}
	if len(n.Partitions) == 0 {
		return refuse(kerr.InvalidPartitions, "topic %s has no partitions: give at least 1", n.Name)
	}
	if item := e.checkReplicas(n.Name, n.Partitions, len(n.Partitions[0])); item.Code != 0 {
		return item
	}
	if item := e.checkLimits(n.Name, 1, 0, len(n.Partitions), limits); item.Code != 0 {
		return item
	}
	if !n.ID.usable() || e.topics.getID(n.ID) != nil {
		return refuse(kerr.InvalidRequest, "topic %s cannot have the id %s", n.Name, n.ID)
	}
	t := &Topic{Name: n.Name, ID: n.ID, Partitions: make([]Partition, len(n.Partitions))}
	if len(n.Configs) > 0 {
		t.Configs = maps.Clone(n.Configs)
	}
	t.Settings = e.next.node.topicSettings(t.Configs)
	for i, replicas := range n.Partitions {
		t.Partitions[i] = e.newPartition(replicas)
	}
	e.topics.put(t)
	e.next.partitions += len(t.Partitions)
	e.changed = true
	return Item{Topic: t}
}

// checkNewTopicName refuses a name that is illegal, taken, or too like one that is taken.
func (e *editor) checkNewTopicName(name string) Item {
	if err := ValidateTopicName(name); err != nil {
		return refuse(kerr.InvalidTopicException, "%v", err)
	}
	if name == reservedTopicName {
		return refuse(kerr.InvalidTopicException, "topic name %s is reserved for the cluster's metadata", name)
	}
	switch t := e.topics.clash(name); {
	case t == nil:
		return Item{}
	case t.Name == name:
		return refuse(kerr.TopicAlreadyExists, "topic %s exists already", name)
	default:
		return refuse(kerr.InvalidTopicException,
			"topic name %s collides with topic %s: metric names make no difference between '.' and '_'", name, t.Name)
	}
}

// checkReplicas refuses replica lists that name unknown brokers, name one twice, are not of that
// size, or have no broker that can lead.
func (e *editor) checkReplicas(name string, partitions [][]int32, size int) Item {
	for i, replicas := range partitions {
		if len(replicas) == 0 {
			return refuse(kerr.InvalidReplicaAssignment, "topic %s: a partition (number %d of the list) has no replicas",
				name, i)
		}
		if len(replicas) != size {
			return refuse(kerr.InvalidReplicaAssignment,
				"topic %s: a partition (number %d of the list) has %s, others have %d: give all the same number",
				name, i, Count(len(replicas), "replica"), size)
		}
		active := false
		for j, id := range replicas {
			if e.next.brokers[id] == nil {
				return refuse(kerr.InvalidReplicaAssignment, "topic %s: broker %d is not registered", name, id)
			}
			if slices.Contains(replicas[:j], id) {
				return refuse(kerr.InvalidReplicaAssignment, "topic %s: broker %d is in %v twice", name, id, replicas)
			}
			active = active || e.next.Active(id)
		}
		if !active {
			return refuse(kerr.InvalidReplicaAssignment, "topic %s: no broker of %v is in service: one must be able to lead",
				name, replicas)
		}
	}
	return Item{}
}

// checkLimits refuses what would make the metadata too large. The topic has had partitions so far
// and gets more.
func (e *editor) checkLimits(name string, topics, had, more int, limits Limits) Item {
	switch {
	case had+more > limits.TopicPartitions:
		return refuse(kerr.PolicyViolation, "topic %s would have %d partitions: a topic may have at most %d",
			name, had+more, limits.TopicPartitions)
	case e.topics.count+topics > limits.Topics:
		return refuse(kerr.PolicyViolation, "topic %s: the cluster has %d topics and may have at most %d: delete some first",
			name, e.topics.count, limits.Topics)
	case e.next.partitions+more > limits.Partitions:
		return refuse(kerr.PolicyViolation,
			"topic %s: the cluster has %d partitions and may have at most %d: %d more do not fit",
			name, e.next.partitions, limits.Partitions, more)
	}
	return Item{}
}

// newPartition makes a partition whose first active replica leads and whose active replicas are in
// sync: there is nothing yet to be behind of.
func (e *editor) newPartition(replicas []int32) Partition {
	p := Partition{Replicas: slices.Clone(replicas), Leader: NoLeader}
	p.ISR = p.Replicas
	if !e.allActive(p.Replicas) {
		p.ISR = slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return !e.next.Active(id) })
	}
	if len(p.ISR) > 0 {
		p.Leader = p.ISR[0]
	}
	return p
}

func (e *editor) allActive(replicas []int32) bool {
	return !slices.ContainsFunc(replicas, func(id int32) bool { return !e.next.Active(id) })
}

func (c *DeleteTopics) apply(e *editor) Result {
	r := Result{Items: make([]Item, len(c.Topics))}
	for i, ref := range c.Topics {
		r.Items[i] = e.deleteTopic(ref)
	}
	return r
}

func (e *editor) deleteTopic(ref TopicRef) Item {
	var t *Topic
	switch {
	case ref.ID == UUID{}:
		if t = e.topics.get(ref.Name); t == nil {
			return refuse(kerr.UnknownTopicOrPartition, "topic %s does not exist", quoteShort(ref.Name))
		}
	default:
		if t = e.topics.getID(ref.ID); t == nil {
			return refuse(kerr.UnknownTopicID, "no topic has the id %s", ref.ID)
		}
	}
	e.topics.remove(t)
	e.next.partitions -= len(t.Partitions)
	e.changed = true
	return Item{Topic: t}
}

func (c *CreatePartitions) apply(e *editor) Result {
	r := Result{Items: make([]Item, len(c.Topics))}
	for i := range c.Topics {
		r.Items[i] = e.createPartitions(&c.Topics[i], c.Limits)
	}
	return r
}

func (e *editor) createPartitions(n *MorePartitions, limits Limits) Item {
	t := e.topics.get(n.Name)
	if t == nil {
		return refuse(kerr.UnknownTopicOrPartition, "topic %s does not exist", quoteShort(n.Name))
	}
	had := len(t.Partitions)
	switch {
	case int(n.Count) == had:
		return refuse(kerr.InvalidPartitions, "topic %s has %s already", n.Name, Count(had, "partition"))
	case int(n.Count) < had:
		return refuse(kerr.InvalidPartitions, "topic %s has %s: it cannot be lowered to %d", n.Name,
			Count(had, "partition"), n.Count)
	case had+len(n.Added) != int(n.Count):
		return refuse(kerr.InvalidReplicaAssignment,
			"topic %s has %s: raising it to %d needs replicas for the %d more, not for %d",
			n.Name, Count(had, "partition"), n.Count, int(n.Count)-had, len(n.Added))
	}
	if item := e.checkReplicas(n.Name, n.Added, t.ReplicationFactor()); item.Code != 0 {
		return item
	}
	if item := e.checkLimits(n.Name, 0, had, len(n.Added), limits); item.Code != 0 {
		return item
	}
	now := e.replaceTopic(t, func(t *Topic) {
		t.Partitions = slices.Grow(slices.Clone(t.Partitions), len(n.Added))
		for _, replicas := range n.Added {
			t.Partitions = append(t.Partitions, e.newPartition(replicas))
		}
	})
	e.next.partitions += len(n.Added)
	return Item{Topic: now}
}

// CheckNewTopic answers why no topic of that name with those overrides can be created now, whatever
// its partitions.
func (m *Image) CheckNewTopic(name string, configs map[string]string) Item {
	e := &editor{next: *m, topics: editIndex(m.topics)}
	if item := e.checkNewTopicName(name); item.Code != 0 {
		return item
	}
	return e.checkTopicConfigs(configs)
}
