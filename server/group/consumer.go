package group

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// consumer is a group of the consumer protocol, as the log has it.
type consumer struct {
	id      string
	members map[string]*memberMetadata
}

func (s *shard) handleConsumerGroupHeartbeat(
	req *kmsg.ConsumerGroupHeartbeatRequest, _ caller, reply *coordinator.Reply[*kmsg.ConsumerGroupHeartbeatResponse],
) {
	reply.Now(refuseConsumerGroupHeartbeat(req, kerr.UnsupportedVersion))
}

func (c *Coordinator) handleConsumerGroupDescribe(
	ctx context.Context, req *kmsg.ConsumerGroupDescribeRequest,
) (*kmsg.ConsumerGroupDescribeResponse, error) {
	refuse := func(i int, e *kerr.Error) kmsg.ConsumerGroupDescribeResponseGroup {
		out := kmsg.NewConsumerGroupDescribeResponseGroup()
		out.Group, out.ErrorCode, out.ErrorMessage = req.Groups[i], e.Code, kmsg.StringPtr(e.Description)
		return out
	}
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	var err error
	resp.Groups, err = each(ctx, c, many[kmsg.ConsumerGroupDescribeResponseGroup]{
		ids: req.Groups,
		answer: func(s *shard, i int) kmsg.ConsumerGroupDescribeResponseGroup {
			g := s.groups[req.Groups[i]]
			if g == nil || g.consumer == nil {
				return refuse(i, kerr.GroupIDNotFound)
			}
			out := kmsg.NewConsumerGroupDescribeResponseGroup()
			out.Group = g.id
			g.consumer.describe(&out)
			return out
		},
		refuse: refuse,
	})
	return resp, err
}

func (s *shard) replayConsumerGroup(id string, v *consumerGroupMetadata) {
	if v != nil {
		s.ensure(id).consumer = &consumer{id: id, members: make(map[string]*memberMetadata)}
		return
	}
	if g := s.groups[id]; g != nil {
		g.consumer = nil
	}
}

func (s *shard) replayPartitionMetadata(string, *partitionMetadata)   {}
func (s *shard) replayTargetMetadata(string, *targetMetadata)         {}
func (s *shard) replayTargetMember(_, _ string, _ *targetMember)      {}
func (s *shard) replayCurrentMember(_, _ string, _ *currentMember)    {}
func (s *shard) replayRegex(_, _ string, _ *regexTopics)              {}
func (c *consumer) loaded()                                           {}
func (c *consumer) unloaded()                                         {}
func (c *consumer) empty() bool                                       { return len(c.members) == 0 }
func (c *consumer) describe(*kmsg.ConsumerGroupDescribeResponseGroup) {}

func (s *shard) replayMember(id, member string, v *memberMetadata) {
	g := s.groups[id]
	if g == nil || g.consumer == nil {
		return
	}
	if v == nil {
		delete(g.consumer.members, member)
		return
	}
	g.consumer.members[member] = v
}

func (c *consumer) state() string {
	if c.empty() {
		return stateEmpty
	}
	return stateStable
}

func (c *consumer) subscribed(topic string) bool {
	for _, m := range c.members {
		if slices.Contains(m.topics, topic) {
			return true
		}
	}
	return false
}

func (c *consumer) checkCommit(_ string, epoch int32, _ bool) *kerr.Error {
	if epoch < 0 && c.empty() {
		return nil
	}
	return kerr.UnknownMemberID
}

func (c *consumer) tombstones() []coordinator.KV {
	return []coordinator.KV{{Key: groupKey(kindConsumerGroup, c.id)}}
}
