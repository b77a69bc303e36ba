package controller

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

// handleAlterPartition changes the ISR of partitions that the sender leads, each on its own, by
// compare-and-set on the epochs. An ISR that is so already is a success, so a lost answer may be asked for again.
// With ktag.Resign the sender gives up its damaged replica instead. What is wrong with the sender, and what keeps the
// quorum from agreeing, is the code of the whole answer.
func (c *Controller) handleAlterPartition(
	ctx context.Context, r *kmsg.AlterPartitionRequest,
) (*kmsg.AlterPartitionResponse, error) {
	resp := r.ResponseKind().(*kmsg.AlterPartitionResponse)
	altered := alteredPartitions(r)
	image := c.machine.Image()
	if refusal := c.checkSender(image, r, len(altered)); refusal.Code != 0 {
		resp.ErrorCode = refusal.Code
		ktag.SetErrorMessage(&resp.UnknownTags, refusal.Message)
		return resp, nil
	}
	var p plan
	for range altered {
		p.add(metadata.Item{})
	}
	p.command = func(items []int) metadata.Command {
		return &metadata.AlterPartition{
			BrokerID: r.BrokerID, BrokerEpoch: r.BrokerEpoch, Partitions: pick(altered, items),
		}
	}
	if err := c.run(ctx, &p); err != nil {
		return nil, err
	}
	if p.changed > 0 {
		c.logger.Debug("partitions altered", "node", r.BrokerID, "partitions", p.changed)
	}
	setIndex(&resp.UnknownTags, p.index)
	if p.refusal.Code == 0 && len(p.answers) > 0 && p.answers[0].Code == kerr.StaleBrokerEpoch.Code {
		p.refusal = p.answers[0] // it registered anew while this was agreed on
	}
	if p.refusal.Code != 0 {
		resp.ErrorCode = p.refusal.Code
		ktag.SetErrorMessage(&resp.UnknownTags, p.refusal.Message)
		return resp, nil
	}
	i := 0
	for _, t := range r.Topics {
		topic := kmsg.NewAlterPartitionResponseTopic()
		topic.Topic, topic.TopidID = t.Topic, t.TopicID
		for _, asked := range t.Partitions {
			topic.Partitions = append(topic.Partitions, alteredPartition(asked.Partition, p.answers[i]))
			i++
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp, nil
}

// checkSender refuses a request as a whole.
func (c *Controller) checkSender(
	image *metadata.Image, r *kmsg.AlterPartitionRequest, partitions int,
) metadata.Item {
	if !c.quorum.IsLeader() {
		return c.notController()
	}
	if epoch := image.BrokerEpoch(r.BrokerID); epoch != r.BrokerEpoch {
		return refuse(kerr.StaleBrokerEpoch, "broker %d has epoch %d, not %d: it must register again",
			r.BrokerID, epoch, r.BrokerEpoch)
	}
	return c.checkCount(partitions)
}

func alteredPartitions(r *kmsg.AlterPartitionRequest) []metadata.AlteredPartition {
	var altered []metadata.AlteredPartition
	for i := range r.Topics {
		t := &r.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := metadata.AlteredPartition{
				TopicID: t.TopicID, Partition: p.Partition, LeaderEpoch: p.LeaderEpoch,
				PartitionEpoch: p.PartitionEpoch, Recovering: p.LeaderRecoveryState == 1,
				Resign: ktag.Resign(&p.UnknownTags), Eligible: ktag.ResignEligible(&p.UnknownTags),
				Unusable: ktag.ResignUnusable(&p.UnknownTags),
			}
			for _, m := range p.NewEpochISR {
				a.ISR = append(a.ISR, metadata.ISRMember{ID: m.BrokerID, Epoch: m.BrokerEpoch})
			}
			altered = append(altered, a)
		}
	}
	return altered
}

// alteredPartition answers one partition, with its state where the change is made or was there already.
func alteredPartition(number int32, answer metadata.Item) kmsg.AlterPartitionResponseTopicPartition {
	a := kmsg.NewAlterPartitionResponseTopicPartition()
	a.Partition, a.ErrorCode = number, answer.Code
	if answer.Code != 0 {
		ktag.SetErrorMessage(&a.UnknownTags, answer.Message)
	}
	if p := answer.Partition; p != nil {
		a.LeaderID, a.LeaderEpoch, a.PartitionEpoch = p.Leader, p.LeaderEpoch, p.PartitionEpoch
		a.ISR = slices.Clone(p.ISR)
		if p.Recovering {
			a.LeaderRecoveryState = 1
		}
	}
	return a
}
