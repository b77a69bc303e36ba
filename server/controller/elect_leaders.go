package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// The types of an election, numbered as in Kafka.
const (
	preferredElection = 0
	uncleanElection   = 1
)

// handleElectLeaders elects the preferred leader of partitions (type 0), or any replica in service for those
// that have no leader (type 1). No topics at all means every partition that such an election could change; only what
// was not as it should be is answered then.
func (c *Controller) handleElectLeaders(
	ctx context.Context, r *kmsg.ElectLeadersRequest,
) (*kmsg.ElectLeadersResponse, error) {
	resp := r.ResponseKind().(*kmsg.ElectLeadersResponse)
	if r.ElectionType != preferredElection && r.ElectionType != uncleanElection {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil
	}
	unclean := r.ElectionType == uncleanElection
	var refs []metadata.PartitionRef
	for _, t := range r.Topics {
		for _, partition := range t.Partitions {
			refs = append(refs, metadata.PartitionRef{Topic: t.Topic, Partition: partition})
		}
	}
	if r.Topics == nil {
		refs = electable(c.machine.Image(), unclean)
	}
	p := plan{timeout: timeout(r.TimeoutMillis)}
	if refusal := c.checkCount(len(refs)); refusal.Code != 0 {
		resp.ErrorCode = refusal.Code
		return resp, nil
	}
	for range refs {
		p.add(metadata.Item{})
	}
	p.command = func(items []int) metadata.Command {
		return &metadata.ElectLeaders{Unclean: unclean, Partitions: pick(refs, items)}
	}
	if err := c.run(ctx, &p); err != nil {
		return nil, err
	}
	if p.changed > 0 {
		c.logger.Info("leaders elected", "partitions", p.changed, "unclean", unclean)
	}
	setIndex(&resp.UnknownTags, p.index)
	if p.refusal.Code == kerr.NotController.Code {
		resp.ErrorCode = p.refusal.Code
	}
	for i, ref := range refs {
		if r.Topics == nil && p.answers[i].Code == kerr.ElectionNotNeeded.Code {
			continue
		}
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != ref.Topic {
			t := kmsg.NewElectLeadersResponseTopic()
			t.Topic = ref.Topic
			resp.Topics = append(resp.Topics, t)
		}
		answered := kmsg.NewElectLeadersResponseTopicPartition()
		answered.Partition, answered.ErrorCode = ref.Partition, p.answers[i].Code
		answered.ErrorMessage = message(p.answers[i])
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, answered)
	}
	return resp, nil
}

// electable lists the partitions that an election could change.
func electable(image *metadata.Image, unclean bool) []metadata.PartitionRef {
	var refs []metadata.PartitionRef
	for t := range image.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if unclean && p.Leader == metadata.NoLeader || !unclean && p.Leader != p.Replicas[0] {
				refs = append(refs, metadata.PartitionRef{Topic: t.Name, Partition: int32(i)})
			}
		}
	}
	return refs
}

// checkCount bounds the partitions of one request: no cluster has more than the limit.
func (c *Controller) checkCount(partitions int) metadata.Item {
	if partitions <= c.limits.Partitions {
		return metadata.Item{}
	}
	return refuse(kerr.InvalidRequest, "the request names %d partitions: a cluster has at most %d",
		partitions, c.limits.Partitions)
}
