package restv3

import (
	"context"
	"net/http"
	"slices"

	"millrace/api"
	"millrace/client"
)

func (a *API) ListKafkaReassignments(ctx context.Context, _ ListKafkaReassignmentsRequestObject) (
	ListKafkaReassignmentsResponseObject, error) {
	all, err := a.client.Reassignments(ctx)
	if err != nil {
		return nil, err
	}
	out := reassignmentsResponse(linksFrom(ctx), "/topics/-/partitions/-/reassignment", all)
	return ListKafkaReassignments200JSONResponse(out), nil
}

func (a *API) ListKafkaTopicReassignments(ctx context.Context, r ListKafkaTopicReassignmentsRequestObject) (
	ListKafkaTopicReassignmentsResponseObject, error) {
	if err := client.CheckTopicName(r.TopicName); err != nil {
		return nil, err
	}
	all, err := a.client.Reassignments(ctx)
	if err != nil {
		return nil, err
	}
	of := slices.DeleteFunc(all, func(m client.Reassignment) bool { return m.Topic != r.TopicName })
	out := reassignmentsResponse(linksFrom(ctx), topicPath(r.TopicName)+"/partitions/-/reassignment", of)
	return ListKafkaTopicReassignments200JSONResponse(out), nil
}

func (a *API) GetKafkaReassignment(ctx context.Context, r GetKafkaReassignmentRequestObject) (
	GetKafkaReassignmentResponseObject, error) {
	topic, err := a.partition(ctx, r.TopicName, r.PartitionId)
	if err != nil {
		return nil, err
	}
	at := client.TopicPartition{Topic: topic.Name, Partition: r.PartitionId}
	moving, err := a.client.Reassignments(ctx, at)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(moving, func(m client.Reassignment) bool { return m.TopicPartition == at })
	if i < 0 {
		return nil, api.RefuseCompat(http.StatusNotFound,
			"Partition %d of topic %s is not being reassigned.", r.PartitionId, topic.Name)
	}
	return GetKafkaReassignment200JSONResponse(reassignmentResponse(linksFrom(ctx), &moving[i])), nil
}

func reassignmentsResponse(l links, path string, moving []client.Reassignment) KafkaReassignmentList {
	out := KafkaReassignmentList{
		Kind: "KafkaReassignmentList", Metadata: l.collection(path), Data: make([]KafkaReassignment, len(moving)),
	}
	for i := range moving {
		out.Data[i] = reassignmentResponse(l, &moving[i])
	}
	return out
}

func reassignmentResponse(l links, m *client.Reassignment) KafkaReassignment {
	path := partitionPath(m.Topic, m.Partition)
	return KafkaReassignment{
		Kind:      "KafkaReassignment",
		Metadata:  l.resource(path+"/reassignment", partitionCRN(m.Topic, m.Partition)+"/reassignment"),
		ClusterId: l.cluster, TopicName: m.Topic, PartitionId: m.Partition,
		AddingReplicas: append([]int32{}, m.Adding...), RemovingReplicas: append([]int32{}, m.Removing...),
		Replicas: l.to(path + "/replicas"),
	}
}
