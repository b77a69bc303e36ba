package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// handleListPartitionReassignments lists the reassignments in progress: of the partitions that the request
// names, or of all where it names no topics. Partitions without one, unknown ones included, are not answered.
func (c *Controller) handleListPartitionReassignments(
	r *kmsg.ListPartitionReassignmentsRequest,
) *kmsg.ListPartitionReassignmentsResponse {
	resp := r.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	if !c.quorum.IsLeader() {
		refusal := c.notController()
		resp.ErrorCode, resp.ErrorMessage = refusal.Code, message(refusal)
		return resp
	}
	image := c.machine.Image()
	setIndex(&resp.UnknownTags, int64(image.Index))
	if r.Topics == nil {
		for t := range image.Topics() {
			addReassigning(resp, t, func(int32) bool { return true })
		}
		return resp
	}
	wanted := make(map[string][]int32, len(r.Topics))
	for _, t := range r.Topics {
		wanted[t.Topic] = append(wanted[t.Topic], t.Partitions...)
	}
	for _, t := range r.Topics {
		partitions, first := wanted[t.Topic]
		if topic := image.Topic(t.Topic); topic != nil && first {
			addReassigning(resp, topic, func(i int32) bool { return slices.Contains(partitions, i) })
		}
		delete(wanted, t.Topic)
	}
	return resp
}

// addReassigning adds those partitions of a topic that are wanted and being reassigned.
func addReassigning(
	resp *kmsg.ListPartitionReassignmentsResponse, t *metadata.Topic, wanted func(partition int32) bool,
) {
	topic := kmsg.NewListPartitionReassignmentsResponseTopic()
	topic.Topic = t.Name
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if !p.Reassigning() || !wanted(int32(i)) {
			continue
		}
		partition := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		partition.Partition, partition.Replicas = int32(i), slices.Clone(p.Replicas)
		partition.AddingReplicas, partition.RemovingReplicas = slices.Clone(p.Adding), slices.Clone(p.Removing)
		topic.Partitions = append(topic.Partitions, partition)
	}
	if len(topic.Partitions) > 0 {
		resp.Topics = append(resp.Topics, topic)
	}
}
