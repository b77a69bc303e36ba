package broker

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/metadata"
	"millrace/server/partition"
)

// view is one moment of the broker: an image of the metadata and the partitions that follow from it.
// It never changes; OnImage makes the next one.
type view struct {
	node   int32 // whose view it is
	image  *metadata.Image
	topics [viewShards]map[[16]byte]*hosted
	// superseded is closed when there is a next view.
	superseded chan struct{}
}

func newView(node int32) *view { return &view{node: node, superseded: make(chan struct{})} }

const viewShards = 64

// hosted is a topic of which this node has partitions. It never changes.
type hosted struct {
	topic    *metadata.Topic
	settings *partition.Settings
	parts    []part // by partition number
}

// clone is a copy to change.
func (h *hosted) clone() *hosted {
	return &hosted{topic: h.topic, settings: h.settings, parts: slices.Clone(h.parts)}
}

// part is one partition: led or followed here, of no concern to this node (all nil), or one whose log
// cannot be used.
// Invariant: with replica, one of leader and follower is set.
type part struct {
	replica  *partition.Replica
	leader   *partition.Leader
	follower *partition.Follower
	feed     *feed // how a follower is fetched; nil while nobody leads
	anew     bool  // the log was set aside, and has not been in sync since
	internal int32 // of an internal topic: the leader epoch that OnInternal was told of; 0: that it leads none
	err      error
}

// shard spreads topic ids, which are random.
func shard(id [16]byte) int { return int(id[15]) % viewShards }

// hosted finds a topic by its id.
func (v *view) hosted(id [16]byte) *hosted { return v.topics[shard(id)][id] }

// all walks the hosted topics in no order.
func (v *view) all(fn func(*hosted)) {
	for _, m := range v.topics {
		for _, h := range m {
			fn(h)
		}
	}
}

// topic finds a topic by id, or by name where no id is given. Where both are, they must belong
// together: a client that remembers an id asks for that very topic, not for a later one of its name.
func (v *view) topic(name string, id [16]byte) (*metadata.Topic, *kerr.Error) {
	if id == ([16]byte{}) {
		if t := v.image.Topic(name); t != nil {
			return t, nil
		}
		return nil, kerr.UnknownTopicOrPartition
	}
	t := v.image.TopicByID(id)
	switch {
	case t == nil:
		return nil, kerr.UnknownTopicID
	case name != "" && name != t.Name:
		return nil, kerr.InconsistentTopicID
	}
	return t, nil
}

// part finds one partition of t. The error is a *kerr.Error or why the partition cannot be used.
func (v *view) part(t *metadata.Topic, number int32) (*part, error) {
	if number < 0 || int(number) >= len(t.Partitions) {
		return nil, kerr.UnknownTopicOrPartition
	}
	h := v.hosted(t.ID)
	if h == nil || int(number) >= len(h.parts) {
		return nil, kerr.NotLeaderForPartition
	}
	p := &h.parts[number]
	if p.err != nil && t.Partitions[number].Leader == v.node {
		return nil, p.err
	}
	return p, nil
}

// leader is part for what only the leader answers.
func (v *view) leader(t *metadata.Topic, number int32) (*partition.Leader, error) {
	p, err := v.part(t, number)
	if err != nil {
		return nil, err
	}
	if p.leader == nil {
		return nil, kerr.NotLeaderForPartition
	}
	return p.leader, nil
}

// leaderByName is leader for requests that know topics by name alone.
func (v *view) leaderByName(topic string, number int32) (*partition.Leader, error) {
	t := v.image.Topic(topic)
	if t == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	return v.leader(t, number)
}

// editor makes a view from another, copying the shards that change.
type editor struct {
	view
	own [viewShards]bool
}

func (v *view) edit(image *metadata.Image) *editor {
	e := &editor{view: *v}
	e.image, e.superseded = image, make(chan struct{})
	return e
}

// put sets the topic of that id; nil removes it.
func (e *editor) put(id [16]byte, h *hosted) {
	s := shard(id)
	if !e.own[s] {
		e.topics[s], e.own[s] = maps.Clone(e.topics[s]), true
	}
	switch {
	case h == nil:
		delete(e.topics[s], id)
	case e.topics[s] == nil:
		e.topics[s] = map[[16]byte]*hosted{id: h}
	default:
		e.topics[s][id] = h
	}
}
