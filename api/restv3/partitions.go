package restv3

import (
	"context"
	"net/http"
	"slices"

	"millrace/api"
	"millrace/client"
)

// earliestAndLatest is the only offset type there is.
const earliestAndLatest = "earliest_and_latest"

func (a *API) ListKafkaPartitions(ctx context.Context, r ListKafkaPartitionsRequestObject) (
	ListKafkaPartitionsResponseObject, error) {
	topic, err := a.client.Renew(ctx, r.TopicName)
	if err != nil {
		return nil, err
	}
	l := linksFrom(ctx)
	out := KafkaPartitionList{
		Kind: "KafkaPartitionList", Metadata: l.collection(topicPath(topic.Name) + "/partitions"),
		Data: make([]KafkaPartition, len(topic.Partitions)),
	}
	for p := range topic.Partitions {
		out.Data[p] = partitionResponse(l, topic, int32(p))
	}
	return ListKafkaPartitions200JSONResponse(out), nil
}

func (a *API) GetKafkaPartition(ctx context.Context, r GetKafkaPartitionRequestObject) (
	GetKafkaPartitionResponseObject, error) {
	topic, err := a.partition(ctx, r.TopicName, r.PartitionId)
	if err != nil {
		return nil, err
	}
	return GetKafkaPartition200JSONResponse(partitionResponse(linksFrom(ctx), topic, r.PartitionId)), nil
}

func (a *API) GetKafkaPartitionOffsets(ctx context.Context, r GetKafkaPartitionOffsetsRequestObject) (
	GetKafkaPartitionOffsetsResponseObject, error) {
	if t := r.Params.OffsetType; t != nil && *t != earliestAndLatest {
		return nil, api.RefuseCompat(http.StatusBadRequest,
			"Bad Request: offset_type %q is unknown; the only one is %s.", *t, earliestAndLatest)
	}
	topic, err := a.partition(ctx, r.TopicName, r.PartitionId)
	if err != nil {
		return nil, err
	}
	start, end, err := a.client.Bounds(ctx, topic, r.PartitionId)
	if err != nil {
		return nil, err
	}
	l, path := linksFrom(ctx), partitionPath(topic.Name, r.PartitionId)
	return GetKafkaPartitionOffsets200JSONResponse{
		Kind:      "KafkaPartitionWithOffsets",
		Metadata:  l.resource(path+"/offset", partitionCRN(topic.Name, r.PartitionId)),
		ClusterId: l.cluster, TopicName: topic.Name, PartitionId: r.PartitionId,
		EarliestOffset: start, LatestOffset: end,
	}, nil
}

func (a *API) ListKafkaReplicas(ctx context.Context, r ListKafkaReplicasRequestObject) (
	ListKafkaReplicasResponseObject, error) {
	topic, err := a.partition(ctx, r.TopicName, r.PartitionId)
	if err != nil {
		return nil, err
	}
	l, replicas := linksFrom(ctx), topic.Partitions[r.PartitionId].Replicas
	out := KafkaReplicaList{
		Kind:     "KafkaReplicaList",
		Metadata: l.collection(partitionPath(topic.Name, r.PartitionId) + "/replicas"),
		Data:     make([]KafkaReplica, len(replicas)),
	}
	for i, broker := range replicas {
		out.Data[i] = replicaResponse(l, topic, r.PartitionId, broker)
	}
	return ListKafkaReplicas200JSONResponse(out), nil
}

func (a *API) GetKafkaReplica(ctx context.Context, r GetKafkaReplicaRequestObject) (
	GetKafkaReplicaResponseObject, error) {
	topic, err := a.partition(ctx, r.TopicName, r.PartitionId)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(topic.Partitions[r.PartitionId].Replicas, r.BrokerId) {
		return nil, api.RefuseCompat(http.StatusNotFound,
			"Broker %d holds no replica of partition %d of topic %s.", r.BrokerId, r.PartitionId, topic.Name)
	}
	return GetKafkaReplica200JSONResponse(replicaResponse(linksFrom(ctx), topic, r.PartitionId, r.BrokerId)), nil
}

// partition is the metadata of a topic that has partition p.
func (a *API) partition(ctx context.Context, name string, p int32) (*client.Topic, error) {
	topic, err := a.client.Renew(ctx, name)
	if err != nil {
		return nil, err
	}
	if topic.Has(p) != nil {
		return nil, errPartitionNotFound
	}
	return topic, nil
}

func partitionResponse(l links, t *client.Topic, p int32) KafkaPartition {
	path := partitionPath(t.Name, p)
	out := KafkaPartition{
		Kind: "KafkaPartition", Metadata: l.resource(path, partitionCRN(t.Name, p)), ClusterId: l.cluster,
		TopicName: t.Name, PartitionId: p,
		Replicas: l.to(path + "/replicas"), Reassignment: l.to(path + "/reassignment"),
	}
	if leader := t.Partitions[p].Leader; leader >= 0 {
		to := l.to(replicaPath(t.Name, p, leader))
		out.Leader = &to
	}
	return out
}

func replicaResponse(l links, t *client.Topic, p, broker int32) KafkaReplica {
	return KafkaReplica{
		Kind: "KafkaReplica", ClusterId: l.cluster, TopicName: t.Name, PartitionId: p, BrokerId: broker,
		Metadata: l.resource(replicaPath(t.Name, p, broker), replicaCRN(t.Name, p, broker)),
		IsLeader: t.Partitions[p].Leader == broker,
		IsInSync: slices.Contains(t.Partitions[p].ISR, broker),
		Broker:   l.to(brokerPath(broker)),
	}
}
