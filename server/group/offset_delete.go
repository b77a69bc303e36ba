package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// OffsetDelete (key 47).
//
// Offsets of a group are forgotten, partition by partition, unless a member is subscribed to the topic. A group with
// members of which it is not known what they are subscribed to refuses. Partitions of topics that are no more can be
// named as long as there are offsets of them.

func (s *shard) handleOffsetDelete(
	req *kmsg.OffsetDeleteRequest, _ caller, reply *coordinator.Reply[*kmsg.OffsetDeleteResponse],
) {
	g := s.groups[req.Group]
	if e := g.checkOffsetDelete(); e != nil {
		reply.Send(refuseOffsetDelete(req, e))
		return
	}
	resp := kmsg.NewPtrOffsetDeleteResponse()
	var tombstones []coordinator.KV
	for i := range req.Topics {
		in, out := &req.Topics[i], kmsg.NewOffsetDeleteResponseTopic()
		out.Topic = in.Topic
		subscribed := g.subscribed(in.Topic)
		for _, p := range in.Partitions {
			o := kmsg.NewOffsetDeleteResponseTopicPartition()
			o.Partition = p.Partition
			switch {
			case subscribed:
				o.ErrorCode = kerr.GroupSubscribedToTopic.Code
			case g.offset(in.Topic, p.Partition) != nil || g.unstable(in.Topic, p.Partition):
				tombstones = append(tombstones, coordinator.KV{Key: offsetKey(req.Group, in.Topic, p.Partition)})
			case !s.exists(in.Topic, p.Partition):
				o.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if err := s.bury(tombstones); err != nil {
		reply.Send(refuseOffsetDelete(req, appendRefusal(err)))
		return
	}
	reply.Send(resp)
}

// checkOffsetDelete says why no offsets of the group can be deleted.
func (g *group) checkOffsetDelete() *kerr.Error {
	switch {
	case g == nil:
		return kerr.GroupIDNotFound
	case g.classic == nil || g.classic.empty():
		return nil
	case g.classic.protocolType() != typeConsumer:
		return kerr.NonEmptyGroup
	}
	if _, known := g.classic.subscribed(); !known {
		return kerr.NonEmptyGroup
	}
	return nil
}

// subscribed says whether a member of the group is subscribed to the topic.
func (g *group) subscribed(topic string) bool {
	switch {
	case g.consumer != nil:
		return g.consumer.subscribed(topic)
	case g.classic == nil || g.classic.empty():
		return false
	}
	topics, _ := g.classic.subscribed()
	return topics[topic]
}

// exists says whether there is a partition of that name.
func (s *shard) exists(topic string, partition int32) bool {
	t := s.image().Topic(topic)
	return t != nil && partition >= 0 && int(partition) < len(t.Partitions)
}
