package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/partition"
)

// DescribeProducers (key 61).
//
// Lists the producers that a partition remembers, by id. Beyond Kafka, the request may carry a
// ProducerFilter (package ktag) for one of them. A leader that may have been replaced does not answer: a client that
// finds its sequence missing there would send elsewhere what is stored already. Who is about to conclude that something
// is missing asks with Certain; then a moved leadership is noticed too, which costs a heartbeat.

func (b *Broker) handleDescribeProducers(ctx context.Context, v *view,
	req *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	var e *evidence
	if ktag.Certain(&req.UnknownTags) {
		e = new(evidence)
	}
	filter, ok := ktag.ProducerFilter(&req.UnknownTags)
	if !ok {
		filter = -1
	}
	resp := kmsg.NewPtrDescribeProducersResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.DescribeProducersResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.DescribeProducersResponseTopicPartition, len(in.Partitions))
		for j, number := range in.Partitions {
			leader, err := v.leaderByName(in.Topic, number)
			if err != nil {
				out.Partitions[j] = refuseDescribe(number, err)
				continue
			}
			states, err := leader.Producers(filter)
			if err == nil && !b.tellsProducers(ctx, judgement{topic: v.image.Topic(in.Topic), leader: leader, evidence: e}) {
				err = errUnsure
			}
			if err != nil {
				out.Partitions[j] = refuseDescribe(number, b.unlessReplaced(leader.Name(), err))
				continue
			}
			topic := b.view.Load().image.TopicByID(leader.Name().TopicID)
			if topic != nil && miscounted(&in.UnknownTags, topic) {
				out.Partitions[j] = refuseDescribe(number, kerr.LeaderNotAvailable)
				ktag.SetPartitionCount(&out.Partitions[j].UnknownTags, int32(len(topic.Partitions)))
				continue
			}
			out.Partitions[j] = describedProducers(number, states)
		}
	}
	return resp
}

// tellsProducers tells whether a leader is sure enough to tell of its producers; without evidence asked for, by its
// last heartbeat.
func (b *Broker) tellsProducers(ctx context.Context, j judgement) bool {
	if j.evidence == nil {
		return b.likely(j.topic, j.leader)
	}
	return b.certain(ctx, j)
}

func describedProducers(number int32, states []partition.ProducerState) kmsg.DescribeProducersResponseTopicPartition {
	out := kmsg.NewDescribeProducersResponseTopicPartition()
	out.Partition = number
	for _, s := range states {
		p := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		p.ProducerID, p.ProducerEpoch, p.LastSequence = s.ID, int32(s.Epoch), s.LastSequence
		p.LastTimestamp, p.CoordinatorEpoch = s.LastTimestamp, s.CoordinatorEpoch
		p.CurrentTxnStartOffset = s.TxnFirstOffset
		out.ActiveProducers = append(out.ActiveProducers, p)
	}
	return out
}

func refuseDescribe(number int32, err error) kmsg.DescribeProducersResponseTopicPartition {
	out := kmsg.NewDescribeProducersResponseTopicPartition()
	r := explain(err)
	out.Partition, out.ErrorCode, out.ErrorMessage = number, r.Code, &r.Message
	return out
}
