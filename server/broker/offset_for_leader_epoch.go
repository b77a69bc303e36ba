package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// OffsetForLeaderEpoch (key 23).
//
// For each partition: the greatest leader epoch that is not above the one asked for, and the offset
// where it ended, or ends, in this log. Both are -1 when the log knows of none.

func (b *Broker) handleOffsetForLeaderEpoch(v *view,
	req *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(in.Partitions))
		for j := range in.Partitions {
			out.Partitions[j] = epochEnd(v, in.Topic, &in.Partitions[j])
		}
	}
	return resp
}

func epochEnd(v *view, topic string,
	in *kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	out := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	out.Partition, out.LeaderEpoch, out.EndOffset = in.Partition, -1, -1
	leader, err := v.leaderByName(topic, in.Partition)
	if err == nil {
		out.LeaderEpoch, out.EndOffset, err = leader.EpochEnd(in.LeaderEpoch, in.CurrentLeaderEpoch)
	}
	out.ErrorCode = code(err)
	return out
}
