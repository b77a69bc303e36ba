package metadata

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Result is what applying a command answers.
type Result struct {
	// Changed is false when the command left everything as it was.
	Changed bool
	// Items answers the items of the command, in its order. A command without items answers one.
	Items []Item
	// Epoch is the broker epoch that RegisterBroker gave.
	Epoch int64
	// FirstProducerID is the start of the block that AllocateProducerIDs gave.
	FirstProducerID int64
}

// Item is the answer to one item of a command.
type Item struct {
	// Code is a Kafka error code, 0 for success; Message says what is wrong and what would be right.
	Code    int16
	Message string
	// Topic is the topic as it was created or changed, or as it was before its deletion.
	Topic *Topic
	// Partition is the partition as AlterPartition left it.
	Partition *Partition
}

// Err returns the item's failure as a kerr value, or nil.
func (i Item) Err() error { return kerr.ErrorForCode(i.Code) }

func refuse(e *kerr.Error, format string, args ...any) Item {
	return Item{Code: e.Code, Message: fmt.Sprintf(format, args...)}
}

// editor collects the changes of one command. The image it started from stays as it was.
type editor struct {
	next   Image // what a command sees and changes, but for the topics
	topics indexEditor
	// ownBrokers and ownConfigs are set once the map was copied.
	ownBrokers, ownConfigs bool
	// ownTopics holds the topics whose partitions were copied, which this command may change in place.
	ownTopics map[*Topic]bool
	changed   bool
}

// Apply returns the image after a command, which has that log index, and the command's answer.
func (m *Image) Apply(index uint64, c Command) (*Image, Result) {
	e := &editor{next: *m, topics: editIndex(m.topics)}
	e.next.Index = index
	r := c.apply(e)
	r.Changed = e.changed
	e.next.topics = e.topics.done()
	return &e.next, r
}

// Evaluate returns what applying the command would answer now.
func (m *Image) Evaluate(c Command) Result {
	_, r := m.Apply(m.Index+1, c)
	return r
}

func (e *editor) setBroker(b *Broker) {
	if !e.ownBrokers {
		e.next.brokers, e.ownBrokers = cloneMap(e.next.brokers), true
	}
	e.next.brokers[b.ID] = b
	e.changed = true
}

// removeBroker forgets a broker and its dynamic configuration.
func (e *editor) removeBroker(id int32) {
	if !e.ownBrokers {
		e.next.brokers, e.ownBrokers = cloneMap(e.next.brokers), true
	}
	delete(e.next.brokers, id)
	e.changed = true
	if resource := strconv.Itoa(int(id)); e.next.configs[resource] != nil {
		e.setConfigs(resource, nil)
	}
}

// allTopics walks the topics that there were before the command, each as the command left it so far.
func (e *editor) allTopics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, t := range e.topics.sorted {
			if now := e.topics.getID(t.ID); now != nil && !yield(now) {
				return
			}
		}
	}
}

// putPartition puts a partition in its place, unless its epoch says that nothing changed. However many
// partitions of a topic a command changes, their list is copied once.
func (e *editor) putPartition(t *Topic, i int, p Partition) bool {
	if p.PartitionEpoch == t.Partitions[i].PartitionEpoch {
		return false
	}
	t = e.topics.getID(t.ID)
	if !e.ownTopics[t] {
		t = e.replaceTopic(t, func(t *Topic) { t.Partitions = slices.Clone(t.Partitions) })
		if e.ownTopics == nil {
			e.ownTopics = make(map[*Topic]bool)
		}
		e.ownTopics[t] = true
	}
	t.Partitions[i] = p
	return true
}

// replaceTopic puts a changed copy of a topic in its place.
func (e *editor) replaceTopic(old *Topic, change func(*Topic)) *Topic {
	now := *old
	change(&now)
	e.topics.replace(old, &now)
	e.changed = true
	return &now
}

// emptyImage returns the image of a cluster without anything.
func emptyImage(node *nodeView) *Image {
	return &Image{
		brokers: make(map[int32]*Broker),
		configs: make(map[string]map[string]string),
		node:    node.with(nil, Defaults{}),
	}
}

// withOverride returns a copy of a map with one value set, or removed when it is nil.
func withOverride(m map[string]string, key string, value *string) map[string]string {
	m = maps.Clone(m)
	switch {
	case value == nil:
		delete(m, key)
	case m == nil:
		m = map[string]string{key: *value}
	default:
		m[key] = *value
	}
	return m
}
