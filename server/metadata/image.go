// Package metadata is the state that all nodes of a cluster agree on: brokers, topics, partitions,
// configuration and producer id blocks, and the commands that change it.
//
// An Image is one moment of that state. It never changes, so anybody may keep and read one without
// a lock; a change makes a new Image that shares what stayed the same, and a topic that stayed the
// same is the same pointer. A Machine owns the current Image and applies commands to it in the
// order of their log index. Applying is pure: no clock, no random numbers, no input or output, no
// map order. Whatever of that a command needs (topic ids, replica placement, limits) it carries,
// so every node computes the same Image and the same answer.
//
// Beside the agreed state an Image holds what this one node makes of it: the settings of each topic
// after its static configuration is laid below the agreed one. That part is in no snapshot and no
// hash.
//
// The package also owns the tables of configuration keys. The controller proposes commands, the
// quorum feeds the machine, brokers read images.
package metadata

import (
	"iter"
	"maps"
	"slices"
)

// Image is the metadata of the cluster after one command. All of it is read-only.
type Image struct {
	// Index is the log index of the last command applied; it only grows.
	Index uint64
	// ClusterID names the cluster; empty until the first broker has registered.
	ClusterID string
	// NextProducerID is the first producer id that no broker was given yet.
	NextProducerID int64

	brokers    map[int32]*Broker
	configs    map[string]map[string]string // by broker resource name; "" is the default of all brokers
	topics     topicIndex
	partitions int // of all topics
	defaults   Defaults
	node       *nodeView
}

// Broker is one registered broker.
type Broker struct {
	ID int32 `json:"id"`
	// Epoch is the log index of the registration.
	Epoch int64 `json:"epoch"`
	// Incarnation tells one run of the process from the next.
	Incarnation UUID `json:"incarnation"`
	// Endpoints holds where the broker answers; the first one is told to clients.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	Rack      string     `json:"rack,omitempty"`
	// Fenced brokers lead nothing and are in no ISR.
	Fenced bool `json:"fenced,omitempty"`
	// ShuttingDown brokers are in no ISR and lead nothing, but for partitions that nobody else could
	// lead. No broker is both this and fenced.
	ShuttingDown bool `json:"shutting_down,omitempty"`
	// ServedEpoch is the epoch of the last run that was in service, where that is not Epoch: 0 means it
	// is, -1 that there was none.
	ServedEpoch int64 `json:"served_epoch,omitempty"`
	// Stopping is a fenced run that has asked to stop: only the next one is taken into service.
	Stopping bool `json:"stopping,omitempty"`
	// VoteDue is a node that lost its vote in the quorum because it had forgotten what it knew, and is to have it back
	// once it has caught up. It outlasts the run.
	VoteDue bool `json:"vote_due,omitempty"`
}

// State is what the broker may do now.
func (b *Broker) State() BrokerState {
	switch {
	case b.Fenced:
		return BrokerFenced
	case b.ShuttingDown:
		return BrokerShuttingDown
	default:
		return BrokerActive
	}
}

// Endpoint is an address of a broker.
type Endpoint struct {
	Name string `json:"name"`
	Host string `json:"host"`
	Port int32  `json:"port"`
}

// Topic is one topic. All of it is read-only; a changed topic is a new Topic.
type Topic struct {
	Name string
	// ID never changes; a topic of the same name made later has another.
	ID         [16]byte
	Partitions []Partition
	// Configs holds the topic's own settings as text; nil when it has none.
	Configs map[string]string
	// Settings is what this node does for the topic; shared between topics with equal settings.
	Settings *TopicSettings
}

// Partition is one partition of a topic.
//
// Invariant: ISR, ELR, LastKnownELR, Adding and Removing are parts of Replicas; ISR and ELR have no
// broker in common. Leader is in ISR, or NoLeader where the ISR is empty. The ISR holds active brokers,
// or only a leader that is shutting down.
type Partition struct {
	// Replicas is in order of preference as leader. During a reassignment it is the replicas wanted
	// and then Removing.
	Replicas []int32
	ISR      []int32
	Leader   int32
	// LeaderEpoch grows with every change of the leader and whenever a replica is taken away,
	// PartitionEpoch with every change.
	LeaderEpoch    int32
	PartitionEpoch int32
	// Adding and Removing are what a reassignment in progress adds to and takes from the replicas
	// there were before it.
	Adding   []int32
	Removing []int32
	// ELR is the eligible leader replicas: out of the ISR, but complete up to the high watermark, since
	// that has not moved after they left. LastKnownELR is who may lead when they all have lost data:
	// the last leader, once the ISR is empty.
	ELR          []int32
	LastKnownELR []int32
	// Recovering is true from an unclean election until the leader says that it has recovered.
	Recovering bool
}

// Target returns the replicas that there will be at the end of the reassignment in progress; without
// one, those there are.
func (p *Partition) Target() []int32 { return p.Replicas[:len(p.Replicas)-len(p.Removing)] }

// Reassigning reports whether a reassignment is in progress.
func (p *Partition) Reassigning() bool { return len(p.Adding)+len(p.Removing) > 0 }

// NoLeader is the leader of a partition that has none.
const NoLeader int32 = -1

// Internal reports whether the topic belongs to the brokers.
func (t *Topic) Internal() bool { return IsInternal(t.Name) }

// ReplicationFactor is the number of replicas that the topic's first partition shall have.
func (t *Topic) ReplicationFactor() int { return len(t.Partitions[0].Target()) }

// Topic returns the topic of that name, or nil.
func (m *Image) Topic(name string) *Topic { return m.topics.get(name) }

// TopicByID returns the topic of that id, or nil.
func (m *Image) TopicByID(id [16]byte) *Topic { return m.topics.getID(id) }

// Topics walks all topics by name.
func (m *Image) Topics() iter.Seq[*Topic] { return slices.Values(m.topics.sorted) }

// TopicCount is the number of topics.
func (m *Image) TopicCount() int { return len(m.topics.sorted) }

// PartitionCount is the number of partitions of all topics.
func (m *Image) PartitionCount() int { return m.partitions }

// Broker returns the broker of that id, or nil.
func (m *Image) Broker(id int32) *Broker { return m.brokers[id] }

// Brokers returns all registered brokers by id.
func (m *Image) Brokers() []*Broker {
	ids := slices.Sorted(maps.Keys(m.brokers))
	brokers := make([]*Broker, len(ids))
	for i, id := range ids {
		brokers[i] = m.brokers[id]
	}
	return brokers
}

// BrokerOverrides returns the dynamic configuration of a broker resource: its id as text, or ""
// for the default of all brokers. The map is read-only and may be nil.
func (m *Image) BrokerOverrides(resource string) map[string]string { return m.configs[resource] }

// Settings is what this node does as a broker.
func (m *Image) Settings() *BrokerSettings { return m.node.settings }

// Active reports whether the broker may lead partitions and be in sync: it is registered, and neither
// fenced nor shutting down.
func (m *Image) Active(id int32) bool {
	b := m.brokers[id]
	return b != nil && !b.Fenced && !b.ShuttingDown
}

// BrokerEpoch returns the epoch of a broker's registration, -1 when it has none.
func (m *Image) BrokerEpoch(id int32) int64 {
	if b := m.brokers[id]; b != nil {
		return b.Epoch
	}
	return -1
}

// StaticDefaults returns what this node's static configuration says, for it to put into commands.
func (m *Image) StaticDefaults() Defaults { return m.node.staticDefaults() }

// Change is a topic that differs between two images: Old is nil when it is new, New when it is gone.
// A topic deleted and made again under its name is two changes, the deletion first.
type Change struct{ Old, New *Topic }

// Diff lists the topics that differ between two images, by name. A topic whose settings on this
// node changed counts as different. Old may be nil: then all topics are new.
func Diff(old, now *Image) []Change {
	var changes []Change
	var a []*Topic
	if old != nil {
		a = old.topics.sorted
	}
	b := now.topics.sorted
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Name < b[0].Name:
			changes = append(changes, Change{Old: a[0]})
			a = a[1:]
		case len(a) == 0 || b[0].Name < a[0].Name:
			changes = append(changes, Change{New: b[0]})
			b = b[1:]
		default:
			if a[0].ID != b[0].ID {
				changes = append(changes, Change{Old: a[0]}, Change{New: b[0]})
			} else if a[0] != b[0] {
				changes = append(changes, Change{Old: a[0], New: b[0]})
			}
			a, b = a[1:], b[1:]
		}
	}
	return changes
}
