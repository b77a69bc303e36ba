package group

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"millrace/server/coordinator"
	"millrace/server/metadata"
)

// draft is what a request, or a timer, makes of a group: what changes lies over what the log has. Its records are
// appended as one batch; before that nothing of the group has changed.
type draft struct {
	c     *consumer
	image *metadata.Image

	epoch       int32
	hash        int64
	targetEpoch int32
	// What changed; nil is gone.
	members  map[string]*memberMetadata
	targets  map[string]assignment
	currents map[string]*current
	patterns map[string]*regexTopics
	owners   map[partitionID]string // "" is free

	before    []coordinator.KV // records that come first
	hashed    bool             // hash is of the image and the subscriptions of the draft
	postponed bool             // an assignment is due, but not yet
}

func newDraft(c *consumer) *draft {
	return &draft{
		c: c, image: c.shard.image(), epoch: c.epoch, hash: c.hash, targetEpoch: c.targetEpoch,
		members: make(map[string]*memberMetadata), targets: make(map[string]assignment),
		currents: make(map[string]*current), patterns: make(map[string]*regexTopics),
		owners: make(map[partitionID]string),
	}
}

func (d *draft) member(id string) *memberMetadata {
	if m, ok := d.members[id]; ok {
		return m
	}
	return d.c.members[id]
}

func (d *draft) target(id string) assignment {
	if a, ok := d.targets[id]; ok {
		return a
	}
	return d.c.targets[id]
}

func (d *draft) current(id string) *current {
	if now, ok := d.currents[id]; ok && now != nil {
		return now
	}
	return d.c.current(id)
}

func (d *draft) owner(p partitionID) string {
	if id, ok := d.owners[p]; ok {
		return id
	}
	return d.c.owners[p]
}

// ids lists the members.
func (d *draft) ids() []string {
	list := make([]string, 0, len(d.c.members)+len(d.members))
	for id := range d.c.members {
		if d.member(id) != nil {
			list = append(list, id)
		}
	}
	for id, m := range d.members {
		if m != nil && d.c.members[id] == nil {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// setCurrent moves a member on.
func (d *draft) setCurrent(id string, now *current) {
	d.release(id)
	d.currents[id] = now
	hold := func(p partitionID) { d.owners[p] = id }
	now.assigned.each(hold)
	now.pending.each(hold)
}

// release frees what a member has.
func (d *draft) release(id string) {
	free := func(p partitionID) {
		if d.owner(p) == id {
			d.owners[p] = ""
		}
	}
	old := d.current(id)
	old.assigned.each(free)
	old.pending.each(free)
}

// remove takes a member out of the group.
func (d *draft) remove(id string) {
	d.release(id)
	d.members[id], d.currents[id] = nil, nil
	d.targets[id] = nil
}

// advance reconciles a member with the assignment, and says whether that changed what it has.
func (d *draft) advance(id string, owned *assignment, heard int32) bool {
	now := d.current(id)
	next := now.next(step{
		epoch: d.targetEpoch, target: d.target(id), owned: owned, heard: heard,
		free: func(p partitionID) bool {
			owner := d.owner(p)
			return owner == "" || owner == id
		},
	})
	if next == now {
		return false
	}
	d.setCurrent(id, next)
	return true
}

// bump begins a new group epoch if members or subscriptions changed, or if the topics subscribed to are others than
// when the epoch began.
func (d *draft) bump(changed bool) {
	if !changed && d.c.seen == d.image {
		return
	}
	hash := d.hashTopics()
	d.hashed = true
	if changed || hash != d.hash {
		d.epoch, d.hash = d.epoch+1, hash
	}
}

// topicsOf is what a member subscribes to.
func (d *draft) topicsOf(m *memberMetadata) []string {
	if m.topicRegex != nil {
		if found, ok := d.patterns[*m.topicRegex]; ok && found != nil {
			all := slices.Concat(m.topics, found.topics)
			slices.Sort(all)
			return slices.Compact(all)
		}
	}
	return d.c.topicsOf(m)
}

// topics lists the topics that there are and that somebody subscribes to, by name.
func (d *draft) topics() []assignTopic {
	names := make(map[string]bool)
	var last []string
	for _, id := range d.ids() {
		topics := d.topicsOf(d.member(id))
		if slices.Equal(topics, last) {
			continue
		}
		for _, name := range topics {
			names[name] = true
		}
		last = topics
	}
	list := make([]assignTopic, 0, len(names))
	for name := range names {
		if t := d.image.Topic(name); t != nil {
			list = append(list, assignTopic{name: name, id: t.ID, partitions: int32(len(t.Partitions))})
		}
	}
	slices.SortFunc(list, func(a, b assignTopic) int { return cmp.Compare(a.name, b.name) })
	return list
}

// hashTopics sums up what an assignment depends on besides the members.
func (d *draft) hashTopics() int64 {
	sum := fnv.New64a()
	var number [4]byte
	topics := d.topics()
	for i := range topics {
		sum.Write(topics[i].id[:])
		binary.BigEndian.PutUint32(number[:], uint32(topics[i].partitions))
		sum.Write(number[:])
	}
	return int64(sum.Sum64())
}

// makeTarget assigns for the present group epoch, if that is due. A departure does not wait for the interval between
// assignments, for nobody reads its partitions meanwhile, nor does a member that is alone.
func (d *draft) makeTarget(hurry bool) {
	if d.epoch <= d.targetEpoch {
		return
	}
	ids := d.ids()
	early := !d.c.assigned.IsZero() && time.Since(d.c.assigned) < d.c.shard.settings().ConsumerAssignmentInterval
	if d.targetEpoch > 0 && d.unmatched(ids) || early && !hurry && len(ids) > 1 {
		d.postponed = early
		return
	}
	spec := d.spec(ids)
	parts := spec.assignments(assignorNamed(d.assignor(ids))(spec))
	for i, id := range ids {
		if !parts[i].equal(d.target(id)) {
			d.targets[id] = parts[i]
		}
	}
	d.targetEpoch = d.epoch
}

// unmatched says whether somebody's pattern has not been matched yet.
func (d *draft) unmatched(ids []string) bool {
	for _, id := range ids {
		if m := d.member(id); m.topicRegex != nil && d.patterns[*m.topicRegex] == nil &&
			d.c.patterns[*m.topicRegex] == nil {
			return true
		}
	}
	return false
}

// spec is what the assignor works on.
func (d *draft) spec(ids []string) *assignSpec {
	s := &assignSpec{topics: d.topics(), members: make([]assignMember, len(ids))}
	places := make(map[string]int, len(s.topics))
	for i := range s.topics {
		places[s.topics[i].name] = i
	}
	var (
		last   []string
		topics []int
	)
	for i, id := range ids {
		m := d.member(id)
		if of := d.topicsOf(m); i == 0 || !slices.Equal(of, last) {
			last, topics = of, make([]int, 0, len(of))
			for _, name := range of {
				if t, ok := places[name]; ok {
					topics = append(topics, t)
				}
			}
		}
		s.members[i] = assignMember{id: id, topics: topics, current: d.target(id)}
		if m.instanceID != nil {
			s.members[i].instance = *m.instanceID
		}
	}
	return s
}

// assignor is the assignor that most members ask for, in the order of the setting where as many ask for another; the
// first of the setting when nobody asks.
func (d *draft) assignor(ids []string) string {
	votes := make(map[string]int)
	for _, id := range ids {
		if m := d.member(id); m.serverAssignor != nil {
			votes[*m.serverAssignor]++
		}
	}
	best := ""
	for _, name := range d.c.shard.settings().ConsumerAssignors {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// dropPatterns forgets the patterns that nobody subscribes to any more.
func (d *draft) dropPatterns() {
	if len(d.c.patterns) == 0 {
		return
	}
	used := make(map[string]bool)
	for _, id := range d.ids() {
		if m := d.member(id); m.topicRegex != nil {
			used[*m.topicRegex] = true
		}
	}
	for pattern := range d.c.patterns {
		if !used[pattern] {
			d.patterns[pattern] = nil
		}
	}
}

// maxDraftBytes is how much a batch of the log may hold, roughly, below what logs take.
const maxDraftBytes = 512 << 10

// records are the changes as records, but for the targets.
func (d *draft) records() []coordinator.KV {
	kvs, id := d.before, d.c.id
	add := func(key, value []byte) { kvs = append(kvs, coordinator.KV{Key: key, Value: value}) }
	for _, member := range slices.Sorted(maps.Keys(d.members)) {
		if m := d.members[member]; m != nil {
			add(memberKey(kindMember, id, member), encodeMember(m))
			continue
		}
		add(memberKey(kindCurrentMember, id, member), nil)
		add(memberKey(kindTargetMember, id, member), nil)
		add(memberKey(kindMember, id, member), nil)
	}
	for _, pattern := range slices.Sorted(maps.Keys(d.patterns)) {
		if found := d.patterns[pattern]; found != nil {
			add(memberKey(kindRegex, id, pattern), encodeRegex(found))
			continue
		}
		add(memberKey(kindRegex, id, pattern), nil)
	}
	if d.epoch != d.c.epoch || d.hash != d.c.hash {
		add(groupKey(kindConsumerGroup, id), encodeConsumerGroup(&consumerGroupMetadata{d.epoch, d.hash}))
	}
	if d.targetEpoch != d.c.targetEpoch {
		add(groupKey(kindTargetMetadata, id),
			encodeTargetMetadata(&targetMetadata{d.targetEpoch, d.c.shard.millis()}))
	}
	for _, member := range slices.Sorted(maps.Keys(d.currents)) {
		if now := d.currents[member]; now != nil {
			add(memberKey(kindCurrentMember, id, member), encodeCurrentMember(now.record()))
		}
	}
	return kvs
}

// targetRecords are the members' new parts of the assignment.
func (d *draft) targetRecords() (kvs []coordinator.KV, bytes int) {
	for _, member := range slices.Sorted(maps.Keys(d.targets)) {
		if d.member(member) == nil {
			continue
		}
		kv := coordinator.KV{
			Key: memberKey(kindTargetMember, d.c.id, member), Value: encodeTargetMember(&targetMember{d.targets[member]}),
		}
		kvs, bytes = append(kvs, kv), bytes+len(kv.Key)+len(kv.Value)
	}
	return kvs, bytes
}

// append writes the changes, as one batch if it is not too large for that. Otherwise targets go first: as long as the
// epoch of the assignment is not written too nobody acts on them, and the next assignment is made of what they are.
func (d *draft) append() error {
	targets, bytes := d.targetRecords()
	for bytes > maxDraftBytes {
		n, part := 0, 0
		for ; n < len(targets) && part < maxDraftBytes; n++ {
			part += len(targets[n].Key) + len(targets[n].Value)
		}
		if err := d.c.shard.run.Append(targets[:n]...); err != nil {
			return err
		}
		targets, bytes = targets[n:], bytes-part
	}
	return d.c.shard.run.Append(append(d.records(), targets...)...)
}

// commit appends the changes. The group is then what the draft was; it may have been made by that.
func (d *draft) commit() error {
	s, made := d.c.shard, d.targetEpoch != d.c.targetEpoch
	if err := d.append(); err != nil {
		return err
	}
	c := s.consumerIf(d.c.id)
	if c == nil {
		return nil
	}
	if made {
		c.assigned = time.Now()
	}
	if d.hashed {
		c.seen = d.image
	}
	if d.postponed {
		c.assignLater()
	}
	return nil
}
