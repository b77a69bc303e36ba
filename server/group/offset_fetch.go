package group

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch (key 9).
//
// Where groups stand, for several groups or, as older clients ask, for one. A partition without a commit has offset -1;
// without a list of topics all that the group has committed is answered. Who asks for stable offsets is told of a
// partition that an open transaction may still change, and comes again. A member of a group of the consumer protocol
// that names itself must be one, in its present epoch.

func (c *Coordinator) handleOffsetFetch(
	ctx context.Context, req *kmsg.OffsetFetchRequest,
) (*kmsg.OffsetFetchResponse, error) {
	resp := kmsg.NewPtrOffsetFetchResponse()
	if len(req.Groups) == 0 {
		one := oneGroup(req)
		got, err := c.fetchOffsets(ctx, []kmsg.OffsetFetchRequestGroup{one}, req.RequireStable)
		if err == nil {
			answerOneGroup(resp, &got[0])
		}
		return resp, err
	}
	var err error
	resp.Groups, err = c.fetchOffsets(ctx, req.Groups, req.RequireStable)
	return resp, err
}

func (c *Coordinator) fetchOffsets(
	ctx context.Context, groups []kmsg.OffsetFetchRequestGroup, stable bool,
) ([]kmsg.OffsetFetchResponseGroup, error) {
	ids := make([]string, len(groups))
	for i := range groups {
		ids[i] = groups[i].Group
	}
	return each(ctx, c, many[kmsg.OffsetFetchResponseGroup]{
		ids: ids,
		answer: func(s *shard, i int) kmsg.OffsetFetchResponseGroup {
			return s.fetchOffsets(&groups[i], stable)
		},
		refuse: func(i int, e *kerr.Error) kmsg.OffsetFetchResponseGroup { return refuseOffsetFetch(ids[i], e) },
	})
}

func refuseOffsetFetch(id string, e *kerr.Error) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group, out.ErrorCode = id, e.Code
	return out
}

// oneGroup is a request of the older form in the newer one.
func oneGroup(req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = req.Group
	if req.Topics != nil {
		one.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	}
	for i := range req.Topics {
		one.Topics[i].Topic, one.Topics[i].Partitions = req.Topics[i].Topic, req.Topics[i].Partitions
	}
	return one
}

// answerOneGroup is the reverse of oneGroup.
func answerOneGroup(resp *kmsg.OffsetFetchResponse, got *kmsg.OffsetFetchResponseGroup) {
	resp.ErrorCode = got.ErrorCode
	for i := range got.Topics {
		topic := kmsg.NewOffsetFetchResponseTopic()
		topic.Topic = got.Topics[i].Topic
		for _, p := range got.Topics[i].Partitions {
			o := kmsg.NewOffsetFetchResponseTopicPartition()
			o.Partition, o.Offset, o.LeaderEpoch = p.Partition, p.Offset, p.LeaderEpoch
			o.Metadata, o.ErrorCode = p.Metadata, p.ErrorCode
			topic.Partitions = append(topic.Partitions, o)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

// fetchOffsets answers for one group.
func (s *shard) fetchOffsets(req *kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	g := s.groups[req.Group]
	if g != nil && g.consumer != nil && (req.MemberID != nil || req.MemberEpoch >= 0) {
		member := ""
		if req.MemberID != nil {
			member = *req.MemberID
		}
		if e := g.consumer.checkCommit(member, req.MemberEpoch, false); e != nil {
			return refuseOffsetFetch(req.Group, e)
		}
	}
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = req.Group
	if req.Topics == nil {
		out.Topics = g.allOffsets(stable)
		return out
	}
	image := s.image()
	out.Topics = make([]kmsg.OffsetFetchResponseGroupTopic, len(req.Topics))
	for i := range req.Topics {
		in, topic := &req.Topics[i], &out.Topics[i]
		topic.Topic, topic.TopicID = in.Topic, in.TopicID
		name, e := in.Topic, (*kerr.Error)(nil)
		if in.TopicID != ([16]byte{}) {
			found, why := topicOf(image, in.Topic, in.TopicID)
			if e = why; e == nil {
				name = found.Name
			}
		}
		topic.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(in.Partitions))
		for j, p := range in.Partitions {
			if e != nil {
				topic.Partitions[j] = noOffset(p, e)
				continue
			}
			topic.Partitions[j] = g.answerOffset(name, p, stable)
		}
	}
	return out
}

// answerOffset is what the group, nil where there is none, committed for a partition.
func (g *group) answerOffset(topic string, partition int32, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	if g == nil {
		return noOffset(partition, nil)
	}
	if stable && g.unstable(topic, partition) {
		return noOffset(partition, kerr.UnstableOffsetCommit)
	}
	o := g.offset(topic, partition)
	if o == nil {
		return noOffset(partition, nil)
	}
	out := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	out.Partition, out.Offset, out.LeaderEpoch = partition, o.offset, o.leaderEpoch
	out.Metadata = kmsg.StringPtr(o.metadata)
	return out
}

func noOffset(partition int32, e *kerr.Error) kmsg.OffsetFetchResponseGroupTopicPartition {
	out := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	out.Partition, out.Offset, out.LeaderEpoch, out.Metadata = partition, -1, -1, kmsg.StringPtr("")
	out.ErrorCode = codeOf(e)
	return out
}

// allOffsets is all that the group committed, by topic and partition. With stable it includes partitions for which an
// open transaction holds the first commit.
func (g *group) allOffsets(stable bool) []kmsg.OffsetFetchResponseGroupTopic {
	all := []kmsg.OffsetFetchResponseGroupTopic{}
	if g == nil {
		return all
	}
	parts := make(map[string][]int32, len(g.offsets))
	for topic, of := range g.offsets {
		parts[topic] = slices.AppendSeq(make([]int32, 0, len(of)), maps.Keys(of))
	}
	if stable {
		for tp := range g.pending {
			if g.offset(tp.topic, tp.partition) == nil {
				parts[tp.topic] = append(parts[tp.topic], tp.partition)
			}
		}
	}
	for topic, numbers := range parts {
		slices.Sort(numbers)
		out := kmsg.NewOffsetFetchResponseGroupTopic()
		out.Topic = topic
		out.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(numbers))
		for i, n := range numbers {
			out.Partitions[i] = g.answerOffset(topic, n, stable)
		}
		all = append(all, out)
	}
	slices.SortFunc(all, func(a, b kmsg.OffsetFetchResponseGroupTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return all
}
