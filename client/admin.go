package client

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// NewTopic describes a topic to create.
type NewTopic struct {
	Name              string
	Partitions        int32             // -1: num.partitions
	ReplicationFactor int16             // -1: default.replication.factor
	Assignments       map[int32][]int32 // replicas by partition; replaces both counts
	Configs           []NewConfig
	Mode              Mode
	// Internal says that the cluster itself makes the topic for a part of its own: where the cluster knows that, it gives
	// it as many replicas as all such topics have.
	Internal bool
}

// NewConfig is a config set when a topic is created.
type NewConfig struct {
	Name  string
	Value *string
}

// Mode says whether a change is made or only checked.
type Mode bool

const (
	Apply        Mode = false
	ValidateOnly Mode = true
)

// CreatedTopic is what was created, or would be.
type CreatedTopic struct {
	ID                [16]byte
	Partitions        int32 // -1 if the cluster did not say
	ReplicationFactor int16 // -1 if the cluster did not say
}

// CreateTopic creates a topic; TOPIC_ALREADY_EXISTS and the like are *KafkaErrors.
func (c *Client) CreateTopic(ctx context.Context, t NewTopic) (CreatedTopic, error) {
	if err := checkNewTopicName(t.Name); err != nil && !t.Internal {
		return CreatedTopic{}, err
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = c.adminMillis()
	req.ValidateOnly = bool(t.Mode)
	req.Topics = append(req.Topics, newTopicRequest(t))
	if t.Internal {
		ktag.SetInternal(&req.UnknownTags)
	}
	resp, err := call(ctx, "create topic "+t.Name, req.RequestWith, c.requestor)
	c.Forget(t.Name)
	if err != nil {
		return CreatedTopic{}, err
	}
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if rt.Topic == t.Name {
			return CreatedTopic{rt.TopicID, rt.NumPartitions, rt.ReplicationFactor},
				fault(rt.ErrorCode, rt.ErrorMessage, t.Name, -1)
		}
	}
	return CreatedTopic{}, noAnswer("create topic "+t.Name, errMissing)
}

func newTopicRequest(t NewTopic) kmsg.CreateTopicsRequestTopic {
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = t.Name, t.Partitions, t.ReplicationFactor
	for _, p := range slices.Sorted(maps.Keys(t.Assignments)) {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = p, t.Assignments[p]
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	}
	if len(t.Assignments) > 0 {
		rt.NumPartitions, rt.ReplicationFactor = -1, -1
	}
	for _, nc := range t.Configs {
		k := kmsg.NewCreateTopicsRequestTopicConfig()
		k.Name, k.Value = nc.Name, nc.Value
		rt.Configs = append(rt.Configs, k)
	}
	return rt
}

// DeleteTopic deletes a topic and its records.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	if err := CheckTopicName(name); err != nil {
		return err
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = c.adminMillis()
	req.TopicNames = []string{name} // versions 0 to 5 read this one
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = &name
	req.Topics = append(req.Topics, t)
	resp, err := call(ctx, "delete topic "+name, req.RequestWith, c.requestor)
	c.Forget(name)
	if err != nil {
		return err
	}
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if rt.Topic != nil && *rt.Topic == name {
			return explainMissing(fault(rt.ErrorCode, rt.ErrorMessage, name, -1))
		}
	}
	return noAnswer("delete topic "+name, errMissing)
}

// CreatePartitions raises a topic's number of partitions to count.
func (c *Client) CreatePartitions(ctx context.Context, name string, count int32, mode Mode) error {
	if err := CheckTopicName(name); err != nil {
		return err
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = c.adminMillis()
	req.ValidateOnly = bool(mode)
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, count
	req.Topics = append(req.Topics, t)
	resp, err := call(ctx, "partitions of topic "+name, req.RequestWith, c.requestor)
	c.Forget(name)
	if err != nil {
		return err
	}
	for i := range resp.Topics {
		if resp.Topics[i].Topic == name {
			return explainMissing(fault(resp.Topics[i].ErrorCode, resp.Topics[i].ErrorMessage, name, -1))
		}
	}
	return noAnswer("partitions of topic "+name, errMissing)
}
