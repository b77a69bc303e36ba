package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/coordinator"
	"millrace/server/metadata"
)

// OffsetCommit (key 8).
//
// Offsets are committed by a member of the group, under its generation or member epoch, or by anybody, with a
// generation below 0, while the group has no members; then a group that there was not is made. Partitions are refused
// one by one: unknown ones, negative offsets, metadata beyond offset.metadata.max.bytes. Those that are not are one
// batch of the log. An offset beyond the end of its log is taken, as in Kafka.
//
// Beyond Kafka, a partition may say which offset is to be committed at the moment (ktag.SetCommitFrom), and a
// member that it is to have the partition (ktag.SetHeld): then of two who have done the same records one is
// refused.

func (s *shard) handleOffsetCommit(
	req *kmsg.OffsetCommitRequest, _ caller, reply *coordinator.Reply[*kmsg.OffsetCommitResponse],
) {
	g := s.groups[req.Group]
	who := committer{member: req.MemberID, instance: req.InstanceID, generation: req.Generation}
	if e := g.checkCommit(who); e != nil {
		reply.Send(refuseOffsetCommit(req, e))
		return
	}
	c := s.newCommit(req.Group)
	if ktag.Held(&req.UnknownTags) {
		c.holder = req.MemberID
	}
	resp := kmsg.NewPtrOffsetCommitResponse()
	for i := range req.Topics {
		in, out := &req.Topics[i], kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		topic, e := c.topic(in.Topic, in.TopicID)
		for j := range in.Partitions {
			p := &in.Partitions[j]
			o := kmsg.NewOffsetCommitResponseTopicPartition()
			o.Partition, o.ErrorCode = p.Partition, codeOf(e)
			if e == nil {
				o.ErrorCode = codeOf(c.add(topic, &wanted{p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, &p.UnknownTags},
					&o.UnknownTags))
			}
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if e := c.tooLarge(); e != nil {
		reply.Send(refuseOffsetCommit(req, e))
		return
	}
	if err := s.run.Append(c.records...); err != nil {
		reply.Send(refuseOffsetCommit(req, appendRefusal(err)))
		return
	}
	c.done()
	if g != nil && g.classic != nil {
		g.classic.touch(req.MemberID)
	}
	reply.Send(resp)
}

// committer is who commits offsets.
type committer struct {
	member   string
	instance *string
	// generation is that of a classic group or the epoch of a member; below 0 for who is no member.
	generation int32
	txn        bool
}

// checkCommit says why somebody may not commit offsets of the group, which is nil where there is none.
func (g *group) checkCommit(c committer) *kerr.Error {
	switch {
	case g == nil && c.generation < 0:
		return nil
	case g == nil && c.txn:
		return kerr.IllegalGeneration
	case g == nil:
		return kerr.GroupIDNotFound
	case g.shard.cfg.Flaws.AnyGeneration:
		return nil
	case g.classic != nil:
		return g.classic.checkCommit(c.member, c.instance, c.generation, c.txn)
	case g.consumer != nil:
		return g.consumer.checkCommit(c.member, c.generation, c.txn)
	case c.generation >= 0:
		return kerr.UnknownMemberID
	}
	return nil
}

// commit collects the records of one commit.
type commit struct {
	shard   *shard
	group   string
	image   *metadata.Image
	now     int64
	limit   int // of metadata, in bytes
	records []coordinator.KV
	marks   []commitMark

	producer int64  // of the transaction, -1: there is none
	holder   string // the member that is to have the partitions; empty: they are not looked at
}

// wanted is what is to be committed for a partition.
type wanted struct {
	partition int32
	offset    int64
	epoch     int32
	text      *string
	tags      *kmsg.Tags
}

// commitMark names a partition that was committed, and its topic as it was then.
type commitMark struct {
	topic     *metadata.Topic
	partition int32
}

func (s *shard) newCommit(group string) *commit {
	image := s.image()
	return &commit{
		shard: s, group: group, image: image, now: s.millis(), limit: image.Settings().Group.OffsetMetadataMaxBytes,
		producer: -1,
	}
}

// topic finds a topic by its id, if that is given, and else by its name.
func (c *commit) topic(name string, id [16]byte) (*metadata.Topic, *kerr.Error) {
	return topicOf(c.image, name, id)
}

func topicOf(image *metadata.Image, name string, id [16]byte) (*metadata.Topic, *kerr.Error) {
	if id != ([16]byte{}) {
		if topic := image.TopicByID(id); topic != nil && (name == "" || topic.Name == name) {
			return topic, nil
		}
		return nil, kerr.UnknownTopicID
	}
	if topic := image.Topic(name); topic != nil {
		return topic, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

// add takes up one partition, or says why not. Answer is where the answer about it has its tags.
func (c *commit) add(topic *metadata.Topic, w *wanted, answer *kmsg.Tags) *kerr.Error {
	o := committed{offset: w.offset, leaderEpoch: w.epoch, commitTimestamp: c.now}
	if w.text != nil {
		o.metadata = *w.text
	}
	switch {
	case w.partition < 0 || int(w.partition) >= len(topic.Partitions):
		return kerr.UnknownTopicOrPartition
	case len(o.metadata) > c.limit:
		return kerr.OffsetMetadataTooLarge
	case w.offset < 0:
		return kerr.InvalidRequest
	case !c.held(topic, w.partition):
		return kerr.FencedMemberEpoch
	}
	if e := c.compare(topic, w, answer); e != nil {
		return e
	}
	kv := coordinator.KV{Key: offsetKey(c.group, topic.Name, w.partition), Value: encodeOffset(&o)}
	c.records = append(c.records, kv)
	c.marks = append(c.marks, commitMark{topic, w.partition})
	return nil
}

// held says whether the member that commits has a partition, where that is asked for and the group knows.
func (c *commit) held(topic *metadata.Topic, partition int32) bool {
	if c.holder == "" || c.shard.cfg.Flaws.AnyGeneration {
		return true
	}
	of := c.shard.consumerIf(c.group)
	return of == nil || of.holds(c.holder, partitionID{topic.ID, partition})
}

// compare refuses a partition of which something else is committed than who commits says.
func (c *commit) compare(topic *metadata.Topic, w *wanted, answer *kmsg.Tags) *kerr.Error {
	from, asked := ktag.CommitFrom(w.tags)
	if !asked {
		return nil
	}
	at := int64(-1)
	if g := c.shard.groups[c.group]; g != nil {
		if o := g.offset(topic.Name, w.partition); o != nil {
			at = o.offset
		}
		tp := topicPartition{topic.Name, w.partition}
		for _, producer := range g.pending[tp] {
			if producer != c.producer {
				return kerr.UnstableOffsetCommit
			}
			if at = c.shard.pending[producer].offsets[groupPartition{g, tp}].offset; at == w.offset {
				from = at // the same again: the answer to the first was lost
			}
		}
	}
	ktag.SetActualOffset(answer, at)
	if at != from && !c.shard.cfg.Flaws.AnyGeneration {
		return kerr.InvalidUpdateVersion
	}
	return nil
}

// done notes, after the records were appended, which topics they were for.
func (c *commit) done() {
	c.shard.metrics.commits.Add(float64(len(c.records)))
	g := c.shard.groups[c.group]
	if g == nil {
		return
	}
	for _, m := range c.marks {
		if o := g.offset(m.topic.Name, m.partition); o != nil {
			o.topicID = m.topic.ID
		}
	}
}

// codeOf is the code of an error, 0 for nil.
func codeOf(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}

// tooLarge refuses a commit that no batch of the log holds, in the word that Kafka has for commits.
func (c *commit) tooLarge() *kerr.Error {
	if sizeOf(c.records) > maxBatchBytes(c.image) {
		return kerr.InvalidCommitOffsetSize
	}
	return nil
}

// recordOverhead is the most that a record of a batch takes beside its key and value, as short as those are.
const recordOverhead = 24

// sizeOf is the most that records take in a batch.
func sizeOf(kvs []coordinator.KV) int {
	size := 0
	for i := range kvs {
		size += recordOverhead + len(kvs[i].Key) + len(kvs[i].Value)
	}
	return size
}

// maxBatchBytes is what the records of a batch of the offsets topic may take.
func maxBatchBytes(image *metadata.Image) int {
	const header = 61
	topic := image.Topic(metadata.GroupTopic)
	if topic == nil {
		return maxTombstoneBytes
	}
	return min(topic.Settings.MaxMessageBytes, int(topic.Settings.SegmentBytes)) - header
}

// appendRefusal is what who writes is told of an append that failed.
func appendRefusal(err error) *kerr.Error {
	if e := coordinator.KafkaError(err); e != nil {
		return e
	}
	return kerr.UnknownServerError
}
