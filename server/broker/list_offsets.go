package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListOffsets (key 2).
//
// Special timestamps: -1 latest (the high watermark; read_committed is the same while there are no
// transactions), -2 earliest, -3 the first record with the greatest timestamp, -4 earliest local,
// -5 and -6 tiered storage, which has none. Any other is the first record, by offset, with that
// time or a later one. A record at or above the high watermark is not found: offset -1, no error.

func (b *Broker) handleListOffsets(v *view, req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(in.Partitions))
		for j := range in.Partitions {
			listOffset(v, in, j, &out.Partitions[j])
		}
	}
	return resp
}

func listOffset(v *view, t *kmsg.ListOffsetsRequestTopic, j int, out *kmsg.ListOffsetsResponseTopicPartition) {
	in := &t.Partitions[j]
	out.Default()
	out.Partition = in.Partition
	out.Offset, out.Timestamp, out.LeaderEpoch = -1, -1, -1
	for k := range t.Partitions {
		if k != j && t.Partitions[k].Partition == in.Partition {
			out.ErrorCode = kerr.InvalidRequest.Code
			return
		}
	}
	leader, err := v.leaderByName(t.Topic, in.Partition)
	if err != nil {
		out.ErrorCode = code(err)
		return
	}
	p, err := leader.OffsetAt(in.Timestamp, in.CurrentLeaderEpoch)
	out.ErrorCode = code(err)
	out.Offset, out.Timestamp, out.LeaderEpoch = p.Offset, p.Timestamp, p.LeaderEpoch
}
