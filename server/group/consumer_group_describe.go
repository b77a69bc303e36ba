package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

// ConsumerGroupDescribe (key 69).
//
// Groups of the consumer protocol with their members: what each has, and what it is to have. A member's own state and
// session timeout come as tags (ktag.MemberState, ktag.SessionTimeout).

// memberTypeConsumer is how Kafka calls members that speak this protocol.
const memberTypeConsumer int8 = 1

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
			group := s.consumerIf(req.Groups[i])
			if group == nil {
				return refuse(i, kerr.GroupIDNotFound)
			}
			out := kmsg.NewConsumerGroupDescribeResponseGroup()
			out.Group = group.id
			group.describe(&out)
			return out
		},
		refuse: refuse,
	})
	return resp, err
}

// describe fills in all but the name.
func (c *consumer) describe(out *kmsg.ConsumerGroupDescribeResponseGroup) {
	image, ids := c.shard.image(), c.ids()
	out.State, out.Epoch, out.AssignmentEpoch = c.state(), c.epoch, c.targetEpoch
	out.AssignorName = newDraft(c).assignor(ids)
	out.Members = make([]kmsg.ConsumerGroupDescribeResponseGroupMember, len(ids))
	for i, id := range ids {
		m, now, o := c.members[id], c.current(id), &out.Members[i]
		*o = kmsg.NewConsumerGroupDescribeResponseGroupMember()
		o.MemberID, o.InstanceID, o.RackID, o.MemberEpoch = id, m.instanceID, m.rackID, now.epoch
		o.ClientID, o.ClientHost = m.clientID, m.clientHost
		o.SubscribedTopics, o.SubscribedTopicRegex = m.topics, m.topicRegex
		o.Assignment = named(image, now.assigned)
		o.TargetAssignment = named(image, c.targets[id])
		o.MemberType = memberTypeConsumer
		if m.state != nil {
			ktag.SetMemberState(&o.UnknownTags, m.state)
		}
		if m.sessionTimeoutMs != 0 {
			ktag.SetSessionTimeout(&o.UnknownTags, m.sessionTimeoutMs)
		}
	}
}

// named is an assignment with the names of the topics; those that are no more have none.
func named(image *metadata.Image, a assignment) kmsg.Assignment {
	var out kmsg.Assignment
	for i := range a {
		t := kmsg.NewAssignmentTopicPartition()
		t.TopicID, t.Partitions = a[i].topicID, a[i].partitions
		if topic := image.TopicByID(t.TopicID); topic != nil {
			t.Topic = topic.Name
		}
		out.TopicPartitions = append(out.TopicPartitions, t)
	}
	return out
}
