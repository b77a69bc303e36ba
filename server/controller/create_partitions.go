package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// handleCreatePartitions raises topics to a number of partitions. Keys may move to other partitions;
// that is the clients' affair. A topic that is named twice is refused and answered once.
func (c *Controller) handleCreatePartitions(
	ctx context.Context, r *kmsg.CreatePartitionsRequest,
) (*kmsg.CreatePartitionsResponse, error) {
	names := make([]string, len(r.Topics))
	for i := range r.Topics {
		names[i] = r.Topics[i].Topic
	}
	p := plan{done: "partitions added", timeout: timeout(r.TimeoutMillis), validateOnly: r.ValidateOnly}
	image := c.machine.Image()
	var topics []metadata.MorePartitions
	answered := p.addTopics(names, func(i int) metadata.Item {
		more, refusal := c.morePartitions(image, &r.Topics[i])
		if refusal.Code == 0 {
			topics = append(topics, more)
		}
		return refusal
	})
	p.command = func(items []int) metadata.Command {
		return &metadata.CreatePartitions{Topics: pick(topics, items), Limits: c.limits}
	}
	if err := c.run(ctx, &p); err != nil {
		return nil, err
	}
	resp := r.ResponseKind().(*kmsg.CreatePartitionsResponse)
	setIndex(&resp.UnknownTags, p.index)
	for i, name := range answered {
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic, t.ErrorCode, t.ErrorMessage = name, p.answers[i].Code, message(p.answers[i])
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}

// morePartitions chooses the replicas of the partitions to add, unless the request does. Whether the
// topic exists and the number grows is the metadata's to say.
func (c *Controller) morePartitions(
	image *metadata.Image, r *kmsg.CreatePartitionsRequestTopic,
) (metadata.MorePartitions, metadata.Item) {
	more := metadata.MorePartitions{Name: r.Topic, Count: r.Count}
	if metadata.IsInternal(r.Topic) {
		return more, refuse(kerr.InvalidTopicException,
			"topic %s belongs to the brokers: its number of partitions says where each group or transaction is", r.Topic)
	}
	topic := image.Topic(r.Topic)
	if topic == nil || int(r.Count) <= len(topic.Partitions) {
		return more, metadata.Item{}
	}
	if r.Assignment != nil {
		for _, a := range r.Assignment {
			more.Added = append(more.Added, a.Replicas)
		}
		return more, metadata.Item{}
	}
	if int(r.Count) > c.limits.TopicPartitions {
		return more, refuse(kerr.PolicyViolation, "topic %s cannot get %d partitions: a topic may have at most %d",
			r.Topic, r.Count, c.limits.TopicPartitions)
	}
	var refusal metadata.Item
	more.Added, refusal = c.place(image, r.Topic, int(r.Count)-len(topic.Partitions), topic.ReplicationFactor())
	return more, refusal
}
