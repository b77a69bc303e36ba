package group

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"millrace/server/coordinator"
	"millrace/server/metadata"
)

// shard is what is known of the groups of one partition: the fold of its log, and what the protocols add to that while
// this node leads. It implements coordinator.State and belongs to the loop of the partition.
type shard struct {
	run     *coordinator.Shard
	cfg     *Config
	metrics *metrics
	log     *slog.Logger
	rand    *rand.Rand

	groups map[string]*group
	// pending holds the offsets committed in transactions that are open, by producer id.
	pending map[int64]*txnOffsets
	offsets int64 // of all groups
	// arrivals counts who was given a member id in a classic group, or has joined one, and never took part yet.
	arrivals int
	watch    watch // over the topics that consumer groups subscribe to

	began   time.Time // of the load
	damaged int       // records that did not decode
}

// txnOffsets is what one producer's open transaction commits.
type txnOffsets struct {
	offsets map[groupPartition]*committed
}

// groupPartition names a partition of a topic in a group.
type groupPartition struct {
	group *group
	topicPartition
}

// drop forgets a commit.
func (t *txnOffsets) drop(p groupPartition) { delete(t.offsets, p) }

func newShard(c *Coordinator, run *coordinator.Shard) *shard {
	s := &shard{
		run: run, cfg: &c.cfg, metrics: c.metrics, rand: c.chance(),
		log:    c.cfg.Logger.With("topic", metadata.GroupTopic, "partition", run.Number(), "epoch", run.Epoch()),
		groups: make(map[string]*group), pending: make(map[int64]*txnOffsets), began: time.Now(),
	}
	s.watch.shard = s
	return s
}

// image is the newest metadata.
func (s *shard) image() *metadata.Image { return s.cfg.Image() }

// settings are the coordinator's.
func (s *shard) settings() *metadata.GroupSettings { return &s.cfg.Image().Settings().Group }

// millis is the wall clock in milliseconds, as records have it.
func (s *shard) millis() int64 { return s.run.Now().UnixMilli() }

// ensure gives the group of that id, which is made if there is none. Only what is about to put something into it may
// ask: a group of which nothing is left is forgotten when its last record is.
func (s *shard) ensure(id string) *group {
	g := s.groups[id]
	if g == nil {
		g = &group{
			id: id, shard: s,
			offsets: make(map[string]map[int32]*committed), pending: make(map[topicPartition][]int64),
		}
		s.groups[id] = g
	}
	return g
}

// forget drops a group of which nothing is left.
func (s *shard) forget(g *group) {
	if g != nil && g.bare() && s.groups[g.id] == g {
		delete(s.groups, g.id)
	}
}

// Replay takes up a record.
func (s *shard) Replay(r *coordinator.Record) {
	key, err := decodeKey(r.Key)
	if err == nil {
		switch key.kind {
		case kindOffsetV0, kindOffset:
			err = s.replayOffset(&key, r)
		default:
			err = s.replayGroup(&key, r)
		}
	}
	if err == nil || errors.Is(err, errUnknownKind) || errors.Is(err, errUnknownVersion) {
		return
	}
	// The log's checksums hold, so somebody wrote this. The groups that can be read go on.
	if s.damaged++; s.damaged == 1 {
		s.log.Warn("a record of the offsets topic does not decode and is skipped", "offset", r.Offset, "err", err)
	}
}

// replayOffset takes up a commit, or the tombstone of one.
func (s *shard) replayOffset(key *recordKey, r *coordinator.Record) error {
	g := s.groups[string(key.group)]
	if r.Value == nil {
		if g != nil {
			g.remove(string(key.name), key.partition)
			s.forget(g)
		}
		return nil
	}
	o, err := decodeOffset(r.Value)
	if err != nil {
		return err
	}
	if o.recordOffset = r.Offset; g == nil {
		g = s.ensure(string(key.group))
	}
	topic := string(key.name)
	if r.ProducerID < 0 || s.cfg.Flaws.EarlyOffsets {
		g.put(topic, key.partition, o)
		return nil
	}
	txn := s.pending[r.ProducerID]
	if txn == nil {
		txn = &txnOffsets{offsets: make(map[groupPartition]*committed)}
		s.pending[r.ProducerID] = txn
	}
	tp := topicPartition{topic, key.partition}
	txn.offsets[groupPartition{g, tp}] = &o
	g.await(tp, r.ProducerID)
	return nil
}

// replayGroup takes up a record of a protocol.
func (s *shard) replayGroup(key *recordKey, r *coordinator.Record) (err error) {
	id, name := string(key.group), string(key.name)
	switch key.kind {
	case kindGroupMetadata:
		err = take(r.Value, decodeGroupMetadata, func(v *groupMetadata) { s.replayGroupMetadata(id, v) })
	case kindConsumerGroup:
		err = take(r.Value, decodeConsumerGroup, func(v *consumerGroupMetadata) { s.replayConsumerGroup(id, v) })
	case kindPartitionMetadata:
		err = take(r.Value, decodePartitionMetadata, func(v *partitionMetadata) { s.replayPartitionMetadata(id, v) })
	case kindMember:
		err = take(r.Value, decodeMember, func(v *memberMetadata) { s.replayMember(id, name, v) })
	case kindTargetMetadata:
		err = take(r.Value, decodeTargetMetadata, func(v *targetMetadata) { s.replayTargetMetadata(id, v) })
	case kindTargetMember:
		err = take(r.Value, decodeTargetMember, func(v *targetMember) { s.replayTargetMember(id, name, v) })
	case kindCurrentMember:
		err = take(r.Value, decodeCurrentMember, func(v *currentMember) { s.replayCurrentMember(id, name, v) })
	case kindRegex:
		err = take(r.Value, decodeRegex, func(v *regexTopics) { s.replayRegex(id, name, v) })
	}
	if r.Value == nil {
		s.forget(s.groups[id])
	}
	return err
}

// take decodes a value, if it is no tombstone, and takes it up; nil is a tombstone.
func take[V any](value []byte, decode func([]byte) (*V, error), replay func(*V)) error {
	if value == nil {
		replay(nil)
		return nil
	}
	v, err := decode(value)
	if err == nil {
		replay(v)
	}
	return err
}

// Marker takes up the end of a transaction: what it committed counts now, or is dropped.
func (s *shard) Marker(producerID int64, _ int16, commit bool) {
	txn := s.pending[producerID]
	if txn == nil {
		return
	}
	delete(s.pending, producerID)
	for p, o := range txn.offsets {
		p.group.settle(p.topicPartition, producerID)
		if commit {
			p.group.put(p.topic, p.partition, *o)
		}
		s.forget(p.group)
	}
}

// Loaded starts what runs by the clock.
func (s *shard) Loaded() {
	s.metrics.loads.Observe(time.Since(s.began).Seconds())
	s.watch.live = true
	for _, g := range s.groups {
		switch {
		case g.classic != nil:
			g.classic.loaded()
		case g.consumer != nil:
			g.consumer.loaded()
		}
	}
	s.expireLater()
}
