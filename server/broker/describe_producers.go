package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// DescribeProducers (key 61).
//
// Lists the producers that a partition remembers, by id. Beyond Kafka, the request may carry a
// ProducerFilter (package ktag) for one of them. A leader that may have been replaced does not answer: a client that
// finds its sequence missing there would send elsewhere what is stored already.

func (b *Broker) handleDescribeProducers(v *view, req *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
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
			out.Partitions[j] = b.describeProducers(v, in.Topic, number, filter)
		}
	}
	return resp
}

func (b *Broker) describeProducers(v *view, topic string, number int32,
	filter int64) kmsg.DescribeProducersResponseTopicPartition {
	out := kmsg.NewDescribeProducersResponseTopicPartition()
	out.Partition = number
	leader, err := v.leaderByName(topic, number)
	if err != nil {
		return refuseDescribe(out, err)
	}
	states, err := leader.Producers(filter)
	if err == nil && !b.sure(v.image.Topic(topic), number) {
		err = errUnsure
	}
	if err != nil {
		return refuseDescribe(out, b.unlessReplaced(leader.Name(), err))
	}
	for _, s := range states {
		p := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		p.ProducerID, p.ProducerEpoch, p.LastSequence = s.ID, int32(s.Epoch), s.LastSequence
		p.LastTimestamp, p.CoordinatorEpoch = s.LastTimestamp, s.CoordinatorEpoch
		p.CurrentTxnStartOffset = s.TxnFirstOffset
		out.ActiveProducers = append(out.ActiveProducers, p)
	}
	return out
}

func refuseDescribe(out kmsg.DescribeProducersResponseTopicPartition,
	err error) kmsg.DescribeProducersResponseTopicPartition {
	r := explain(err)
	out.ErrorCode, out.ErrorMessage = r.Code, &r.Message
	return out
}
