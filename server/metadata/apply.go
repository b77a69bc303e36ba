package metadata

import (
	"fmt"
	"maps"

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
	changed                bool
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

// setConfigs puts the dynamic configuration of a broker resource and recomputes what follows from it.
func (e *editor) setConfigs(resource string, values map[string]string) {
	if !e.ownConfigs {
		e.next.configs, e.ownConfigs = cloneMap(e.next.configs), true
	}
	if len(values) == 0 {
		delete(e.next.configs, resource)
	} else {
		e.next.configs[resource] = values
	}
	e.changed = true
	old := e.next.node
	if resource != "" && resource != old.id {
		return
	}
	e.next.node = old.with(e.next.configs)
	if *e.next.node.topicDefaults == *old.topicDefaults {
		e.next.node.topicDefaults = old.topicDefaults
		return
	}
	for _, t := range e.topics.sorted {
		e.replaceTopic(e.topics.get(t.Name), func(t *Topic) { t.Settings = e.next.node.topicSettings(t.Configs) })
	}
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
		node:    node.with(nil),
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
