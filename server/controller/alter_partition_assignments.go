package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// handleAlterPartitionAssignments begins to move partitions to other brokers, each on its own, or cancels
// that where the replicas are null. The answer comes when the move has begun; the new replicas then fetch
// what there is, and ListPartitionReassignments tells what is still under way. A partition that is named
// twice is refused each time.
func (c *Controller) handleAlterPartitionAssignments(
	ctx context.Context, r *kmsg.AlterPartitionAssignmentsRequest,
) (*kmsg.AlterPartitionAssignmentsResponse, error) {
	resp := r.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = r.AllowReplicationFactorChange
	var asked []metadata.PartitionRef
	var moves []metadata.Reassignment
	for _, t := range r.Topics {
		for _, m := range t.Partitions {
			asked = append(asked, metadata.PartitionRef{Topic: t.Topic, Partition: m.Partition})
			moves = append(moves, metadata.Reassignment{Topic: t.Topic, Partition: m.Partition, Replicas: m.Replicas})
		}
	}
	if refusal := c.checkCount(len(asked)); refusal.Code != 0 {
		resp.ErrorCode, resp.ErrorMessage = refusal.Code, message(refusal)
		return resp, nil
	}
	p := plan{timeout: timeout(r.TimeoutMillis)}
	twice := duplicates(asked)
	var good []metadata.Reassignment
	for i, ref := range asked {
		if twice[ref] {
			p.add(refuse(kerr.InvalidRequest, "partition %d of topic %q is in the request more than once",
				ref.Partition, ref.Topic))
			continue
		}
		p.add(metadata.Item{})
		good = append(good, moves[i])
	}
	p.command = func(items []int) metadata.Command {
		return &metadata.AlterReassignments{
			Partitions: pick(good, items), AllowRFChange: r.AllowReplicationFactorChange,
		}
	}
	if err := c.run(ctx, &p); err != nil {
		return nil, err
	}
	if p.changed > 0 {
		c.logger.Info("reassignments altered", "partitions", p.changed)
	}
	setIndex(&resp.UnknownTags, p.index)
	if p.refusal.Code != 0 {
		resp.ErrorCode, resp.ErrorMessage = p.refusal.Code, message(p.refusal)
	}
	i := 0
	for _, t := range r.Topics {
		topic := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		topic.Topic = t.Topic
		for _, m := range t.Partitions {
			partition := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			partition.Partition = m.Partition
			partition.ErrorCode, partition.ErrorMessage = p.answers[i].Code, message(p.answers[i])
			topic.Partitions = append(topic.Partitions, partition)
			i++
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp, nil
}
