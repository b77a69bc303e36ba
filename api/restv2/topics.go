package restv2

import (
	"context"
	"slices"

	"millrace/client"
)

func (a *API) ListV2Brokers(ctx context.Context, _ ListV2BrokersRequestObject) (ListV2BrokersResponseObject, error) {
	cluster, err := a.client.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	out := V2Brokers{Brokers: make([]int32, len(cluster.Brokers))}
	for i, b := range cluster.Brokers {
		out.Brokers[i] = b.ID
	}
	return ListV2Brokers200ApplicationVndKafkaV2PlusJSONResponse(out), nil
}

func (a *API) ListV2Topics(ctx context.Context, _ ListV2TopicsRequestObject) (ListV2TopicsResponseObject, error) {
	topics, err := a.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	out := make(V2TopicNames, len(topics))
	for i, t := range topics {
		out[i] = t.Name
	}
	return ListV2Topics200ApplicationVndKafkaV2PlusJSONResponse(out), nil
}

func (a *API) GetV2Topic(ctx context.Context, r GetV2TopicRequestObject) (GetV2TopicResponseObject, error) {
	topic, err := a.client.Topic(ctx, r.Topic, client.Refuse)
	if err != nil {
		return nil, err
	}
	owner := []client.Resource{{Type: client.TopicResource, Name: topic.Name}}
	configs, err := a.client.DescribeConfigs(ctx, owner)
	if err == nil {
		err = configs[0].Err
	}
	if err != nil {
		return nil, err
	}
	return GetV2Topic200ApplicationVndKafkaV2PlusJSONResponse(topicResponse(topic, configs[0].Configs)), nil
}

func (a *API) ListV2Partitions(ctx context.Context, r ListV2PartitionsRequestObject) (
	ListV2PartitionsResponseObject, error) {
	topic, err := a.client.Topic(ctx, r.Topic, client.Refuse)
	if err != nil {
		return nil, err
	}
	return ListV2Partitions200ApplicationVndKafkaV2PlusJSONResponse(partitionsResponse(topic)), nil
}

func (a *API) GetV2Partition(ctx context.Context, r GetV2PartitionRequestObject) (GetV2PartitionResponseObject, error) {
	topic, err := a.partition(ctx, r.Topic, r.Partition)
	if err != nil {
		return nil, err
	}
	return GetV2Partition200ApplicationVndKafkaV2PlusJSONResponse(partitionResponse(topic, r.Partition)), nil
}

func (a *API) GetV2Offsets(ctx context.Context, r GetV2OffsetsRequestObject) (GetV2OffsetsResponseObject, error) {
	topic, err := a.partition(ctx, r.Topic, r.Partition)
	if err != nil {
		return nil, err
	}
	start, end, err := a.client.Bounds(ctx, topic, r.Partition)
	if err != nil {
		return nil, err
	}
	return GetV2Offsets200ApplicationVndKafkaV2PlusJSONResponse{BeginningOffset: start, EndOffset: end}, nil
}

// partition is the metadata of a topic that has partition p.
func (a *API) partition(ctx context.Context, name string, p int32) (*client.Topic, error) {
	topic, err := a.client.Topic(ctx, name, client.Refuse)
	if err != nil {
		return nil, err
	}
	if topic.Has(p) != nil {
		return nil, errPartitionNotFound
	}
	return topic, nil
}

// topicResponse describes a topic; a config without a value, secret ones too, is left out.
func topicResponse(t *client.Topic, configs []client.Config) V2Topic {
	out := V2Topic{Name: t.Name, Configs: make(map[string]string, len(configs)), Partitions: partitionsResponse(t)}
	for _, c := range configs {
		if c.Value != nil && !c.Sensitive {
			out.Configs[c.Name] = *c.Value
		}
	}
	return out
}

func partitionsResponse(t *client.Topic) V2Partitions {
	out := make(V2Partitions, len(t.Partitions))
	for p := range t.Partitions {
		out[p] = partitionResponse(t, int32(p))
	}
	return out
}

func partitionResponse(t *client.Topic, p int32) V2Partition {
	from := &t.Partitions[p]
	out := V2Partition{Partition: p, Leader: max(from.Leader, -1), Replicas: make([]V2Replica, len(from.Replicas))}
	for i, b := range from.Replicas {
		out.Replicas[i] = V2Replica{Broker: b, Leader: b == from.Leader, InSync: slices.Contains(from.ISR, b)}
	}
	return out
}
