package group

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/coordinator"
	"millrace/server/metadata"
)

// consumer is a group of the consumer protocol (KIP-848): the coordinator assigns partitions, and each member comes to
// its part of the assignment by its own heartbeats. It belongs to the shard's loop.
//
// The group epoch grows with every change of members, subscriptions or topics. An assignment is made for a group
// epoch, and each member has reached the assignment of its own member epoch.
//
// Invariant: a partition has at most one owner, the member that has it assigned or has yet to give it up.
//
// What the log has is replaced, never changed, by the replay methods alone: a request computes records in a draft, and
// only appending them changes the group.
type consumer struct {
	id    string
	shard *shard

	epoch       int32
	hash        int64 // of the topics that are subscribed to
	targetEpoch int32 // of the assignment
	members     map[string]*memberMetadata
	targets     map[string]assignment
	currents    map[string]*current
	static      map[string]string // members by instance id
	owners      map[partitionID]string
	patterns    map[string]*regexTopics // topics that subscribed patterns match

	// The rest is not in the log.
	live     bool // the partition is loaded
	seats    map[string]*seat
	topics   map[string]bool // that are subscribed to; nil: not known
	seen     *metadata.Image // by which hash was computed for the present subscriptions; nil: it was not
	assigned time.Time       // when the last assignment was made; zero: before the load
	assign   *coordinator.Timer
	stirred  bool // parked heartbeats may have news
	retry    *coordinator.Timer
	matching bool // patterns are being matched
	rematch  bool // ... and are to be again
	matched  time.Time
}

func newConsumer(s *shard, id string) *consumer {
	return &consumer{
		id: id, shard: s, live: s.watch.live,
		members: make(map[string]*memberMetadata), targets: make(map[string]assignment),
		currents: make(map[string]*current), static: make(map[string]string), owners: make(map[partitionID]string),
		patterns: make(map[string]*regexTopics), seats: make(map[string]*seat),
	}
}

// consumerOf is the consumer group of an id, which is made if there is none: after a compaction the records of a group
// are in no order.
func (s *shard) consumerOf(id string) *consumer {
	g := s.ensure(id)
	if g.consumer == nil {
		g.consumer = newConsumer(s, id)
	}
	return g.consumer
}

// consumerIf is the consumer group of an id, or nil.
func (s *shard) consumerIf(id string) *consumer {
	if g := s.groups[id]; g != nil {
		return g.consumer
	}
	return nil
}

func (s *shard) replayConsumerGroup(id string, v *consumerGroupMetadata) {
	if v != nil {
		c := s.consumerOf(id)
		c.epoch, c.hash = v.epoch, v.metadataHash
		return
	}
	if c := s.consumerIf(id); c != nil {
		c.dissolve()
		s.groups[id].consumer = nil
	}
}

// replayPartitionMetadata ignores what older versions of Kafka wrote: the hash of the group tells as much.
func (s *shard) replayPartitionMetadata(string, *partitionMetadata) {}

func (s *shard) replayMember(id, member string, v *memberMetadata) {
	if v == nil {
		if c := s.consumerIf(id); c != nil {
			c.unseat(member)
			c.forgetMember(member)
		}
		return
	}
	c := s.consumerOf(id)
	c.forgetMember(member)
	c.members[member] = v
	if v.instanceID != nil {
		c.static[*v.instanceID] = member
	}
}

func (c *consumer) forgetMember(member string) {
	old := c.members[member]
	if old != nil && old.instanceID != nil && c.static[*old.instanceID] == member {
		delete(c.static, *old.instanceID)
	}
	delete(c.members, member)
	c.topics = nil
}

func (s *shard) replayTargetMetadata(id string, v *targetMetadata) {
	if v != nil {
		c := s.consumerOf(id)
		c.targetEpoch = v.assignmentEpoch
		c.stirred = true
		return
	}
	if c := s.consumerIf(id); c != nil {
		c.targetEpoch = 0
	}
}

func (s *shard) replayTargetMember(id, member string, v *targetMember) {
	if v != nil {
		s.consumerOf(id).targets[member] = newAssignment(v.assigned)
		return
	}
	if c := s.consumerIf(id); c != nil {
		delete(c.targets, member)
	}
}

func (s *shard) replayCurrentMember(id, member string, v *currentMember) {
	c := s.consumerIf(id)
	if c == nil && v == nil {
		return
	}
	c = s.consumerOf(id)
	old := c.current(member)
	release := func(p partitionID) {
		if c.owners[p] == member {
			delete(c.owners, p)
		}
	}
	old.assigned.each(release)
	old.pending.each(release)
	if c.stirred = true; v == nil {
		delete(c.currents, member)
		return
	}
	now := decodeCurrent(v)
	c.currents[member] = now
	hold := func(p partitionID) { c.owners[p] = member }
	now.assigned.each(hold)
	now.pending.each(hold)
	if c.live {
		c.seat(member).moved(old, now)
	}
}

func (s *shard) replayRegex(id, pattern string, v *regexTopics) {
	if v != nil {
		c := s.consumerOf(id)
		c.patterns[pattern], c.topics = v, nil
		return
	}
	if c := s.consumerIf(id); c != nil {
		delete(c.patterns, pattern)
		c.topics = nil
	}
}

// current is what a member has; nothing when it has just come.
func (c *consumer) current(member string) *current {
	if now := c.currents[member]; now != nil {
		return now
	}
	return &current{}
}

// loaded starts the timers. Nobody knows which answers of the coordinator before were heard.
func (c *consumer) loaded() {
	c.live = true
	for _, member := range slices.Sorted(maps.Keys(c.members)) {
		s := c.seat(member)
		s.untold = true
		s.listen()
		s.allow()
	}
	c.shard.watch.start()
}

// dissolve ends the group.
func (c *consumer) dissolve() {
	for member := range c.seats {
		c.unseat(member)
	}
	c.assign.Stop()
	c.retry.Stop()
	c.live = false
}

// States that only groups of the consumer protocol have.
const (
	stateAssigning   = "Assigning"
	stateReconciling = "Reconciling"
)

func (c *consumer) state() string {
	switch {
	case c.empty():
		return stateEmpty
	case c.epoch > c.targetEpoch:
		return stateAssigning
	}
	for member := range c.members {
		if now := c.current(member); now.state != memberStable || now.epoch != c.targetEpoch {
			return stateReconciling
		}
	}
	return stateStable
}

func (c *consumer) empty() bool { return len(c.members) == 0 }

// subscribed says whether a member is subscribed to a topic, by its name or by a pattern.
func (c *consumer) subscribed(topic string) bool {
	if c.topics == nil {
		c.topics = make(map[string]bool)
		for _, m := range c.members {
			for _, t := range c.topicsOf(m) {
				c.topics[t] = true
			}
		}
	}
	return c.topics[topic]
}

// topicsOf is what a member subscribes to, in order, as far as its pattern has been matched.
func (c *consumer) topicsOf(m *memberMetadata) []string {
	if m.topicRegex == nil {
		return m.topics
	}
	found := c.patterns[*m.topicRegex]
	if found == nil {
		return m.topics
	}
	all := slices.Concat(m.topics, found.topics)
	slices.Sort(all)
	return slices.Compact(all)
}

// checkCommit says why a member may not commit offsets, or read its own, under an epoch; anybody may without one while
// there are no members.
func (c *consumer) checkCommit(member string, epoch int32, txn bool) *kerr.Error {
	if epoch < 0 && c.empty() {
		return nil
	}
	if c.members[member] == nil {
		return kerr.UnknownMemberID
	}
	switch {
	case c.current(member).epoch == epoch && epoch >= 0:
		return nil
	case txn:
		return kerr.IllegalGeneration
	}
	return kerr.StaleMemberEpoch
}

// holds says whether a member has a partition or has yet to give it up. Of one that subscribes to nothing the group
// does not know what it reads.
func (c *consumer) holds(member string, p partitionID) bool {
	m := c.members[member]
	if m == nil || len(m.topics) == 0 && (m.topicRegex == nil || *m.topicRegex == "") {
		return true
	}
	return c.owners[p] == member
}

// tombstones ends the group, which has no members.
func (c *consumer) tombstones() []coordinator.KV {
	var kvs []coordinator.KV
	for _, pattern := range slices.Sorted(maps.Keys(c.patterns)) {
		kvs = append(kvs, coordinator.KV{Key: memberKey(kindRegex, c.id, pattern)})
	}
	return append(kvs, coordinator.KV{Key: groupKey(kindTargetMetadata, c.id)},
		coordinator.KV{Key: groupKey(kindConsumerGroup, c.id)})
}
