package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// DeleteRecords (key 21).
//
// The log start offset of a partition moves up to the offset given, or to the high watermark for -1,
// and the answer says where it stands. Whole segments below it are removed; a batch that straddles
// it stays on disk. Topics without delete in cleanup.policy refuse with POLICY_VIOLATION.

func (b *Broker) handleDeleteRecords(v *view, req *kmsg.DeleteRecordsRequest) *kmsg.DeleteRecordsResponse {
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(in.Partitions))
		for j, p := range in.Partitions {
			low, err := deleteRecords(v, in.Topic, p)
			out.Partitions[j] = kmsg.NewDeleteRecordsResponseTopicPartition()
			out.Partitions[j].Partition, out.Partitions[j].LowWatermark = p.Partition, low
			out.Partitions[j].ErrorCode = code(err)
		}
	}
	return resp
}

func deleteRecords(v *view, topic string, p kmsg.DeleteRecordsRequestTopicPartition) (int64, error) {
	leader, err := v.leaderByName(topic, p.Partition)
	if err != nil {
		return -1, err
	}
	return leader.DeleteRecords(p.Offset)
}
