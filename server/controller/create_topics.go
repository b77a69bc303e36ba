package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// handleCreateTopics creates topics, each on its own: one that is refused does not stop the others. -1
// partitions or replicas means the broker's default; with a manual assignment both must be -1. A
// topic that is named twice is refused and answered once.
func (c *Controller) handleCreateTopics(
	ctx context.Context, r *kmsg.CreateTopicsRequest,
) (*kmsg.CreateTopicsResponse, error) {
	names := make([]string, len(r.Topics))
	for i := range r.Topics {
		names[i] = r.Topics[i].Topic
	}
	p := plan{done: "topic created", timeout: timeout(r.TimeoutMillis), validateOnly: r.ValidateOnly}
	image := c.machine.Image()
	var topics []metadata.NewTopic
	answered := p.addTopics(names, func(i int) metadata.Item {
		topic, refusal := c.newTopic(image, &r.Topics[i])
		if refusal.Code == 0 {
			topics = append(topics, topic)
		}
		return refusal
	})
	p.command = func(items []int) metadata.Command {
		return &metadata.CreateTopics{Topics: pick(topics, items), Limits: c.limits}
	}
	if err := c.run(ctx, &p); err != nil {
		return nil, err
	}
	resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
	setIndex(&resp.UnknownTags, p.index)
	for i, name := range answered {
		resp.Topics = append(resp.Topics, c.createdTopic(name, p.answers[i], r.ValidateOnly))
	}
	return resp, nil
}

// newTopic turns a request for a topic into the topic to create.
func (c *Controller) newTopic(
	image *metadata.Image, r *kmsg.CreateTopicsRequestTopic,
) (metadata.NewTopic, metadata.Item) {
	t := metadata.NewTopic{Name: r.Topic, ID: c.newUUID()}
	for _, config := range r.Configs {
		if config.Value == nil {
			return t, refuse(kerr.InvalidConfig, "configuration %s: the value is null", config.Name)
		}
		if t.Configs == nil {
			t.Configs = make(map[string]string, len(r.Configs))
		}
		if _, twice := t.Configs[config.Name]; twice {
			return t, refuse(kerr.InvalidRequest, "topic configuration %q is given twice", config.Name)
		}
		t.Configs[config.Name] = *config.Value
	}
	// What is wrong with the name comes before what is wrong with the numbers, as in Kafka.
	if refusal := image.CheckNewTopic(t.Name, t.Configs); refusal.Code != 0 {
		return t, refusal
	}
	var refusal metadata.Item
	if len(r.ReplicaAssignment) > 0 {
		t.Partitions, refusal = assignedPartitions(r)
	} else {
		t.Partitions, refusal = c.placedPartitions(image, r)
	}
	return t, refusal
}

// assignedPartitions checks the shape of a manual assignment; the metadata checks the brokers in it.
func assignedPartitions(r *kmsg.CreateTopicsRequestTopic) ([][]int32, metadata.Item) {
	if r.ReplicationFactor != -1 || r.NumPartitions != -1 {
		return nil, refuse(kerr.InvalidRequest,
			"topic %s has a manual assignment: give -1 for both the number of partitions and the replication factor", r.Topic)
	}
	partitions := make([][]int32, len(r.ReplicaAssignment))
	for _, a := range r.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= len(partitions) || partitions[a.Partition] != nil {
			return nil, refuse(kerr.InvalidReplicaAssignment,
				"topic %s: the %d assigned partitions must be numbered 0 to %d, each once",
				r.Topic, len(partitions), len(partitions)-1)
		}
		if len(a.Replicas) == 0 {
			return nil, refuse(kerr.InvalidReplicaAssignment, "topic %s: partition %d has no replicas", r.Topic, a.Partition)
		}
		partitions[a.Partition] = a.Replicas
	}
	return partitions, metadata.Item{}
}

// placedPartitions chooses the replicas of a topic that leaves it to the controller.
func (c *Controller) placedPartitions(
	image *metadata.Image, r *kmsg.CreateTopicsRequestTopic,
) ([][]int32, metadata.Item) {
	partitions, factor := r.NumPartitions, r.ReplicationFactor
	if factor < -1 || factor == 0 {
		return nil, refuse(kerr.InvalidReplicationFactor,
			"topic %s cannot have %d replicas: give 1 or more, or -1 for the default", r.Topic, factor)
	}
	if partitions < -1 || partitions == 0 {
		return nil, refuse(kerr.InvalidPartitions,
			"topic %s cannot have %d partitions: give 1 or more, or -1 for the default", r.Topic, partitions)
	}
	if factor == -1 {
		factor = image.Settings().DefaultReplicationFactor
	}
	if partitions == -1 {
		partitions = image.Settings().NumPartitions
	}
	return c.place(image, r.Topic, int(partitions), int(factor))
}

// createdTopic answers one topic.
func (c *Controller) createdTopic(
	name string, answer metadata.Item, validateOnly bool,
) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic, t.ErrorCode, t.ErrorMessage = name, answer.Code, message(answer)
	if answer.Code != 0 {
		return t
	}
	if !validateOnly {
		t.TopicID = answer.Topic.ID
	}
	t.NumPartitions = int32(len(answer.Topic.Partitions))
	t.ReplicationFactor = int16(answer.Topic.ReplicationFactor())
	for _, v := range c.machine.Image().TopicConfigs(answer.Topic) {
		config := kmsg.NewCreateTopicsResponseTopicConfig()
		config.Name, config.Value, config.Source = v.Key.Name, v.Value, int8(v.Source)
		config.ReadOnly = v.ReadOnly
		t.Configs = append(t.Configs, config)
	}
	return t
}

// pick returns some items of a list.
func pick[T any](list []T, items []int) []T {
	picked := make([]T, len(items))
	for i, item := range items {
		picked[i] = list[item]
	}
	return picked
}
