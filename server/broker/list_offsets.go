package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/partition"
)

// ListOffsets (key 2).
//
// Special timestamps: -1 latest (the high watermark, or the last stable offset with read_committed),
// -2 earliest, -3 the first record with the greatest timestamp, -4 earliest local,
// -5 and -6 tiered storage, which has none. Any other is the first record, by offset, with that
// time or a later one. A record at or above that end is not found: offset -1, no error. To a
// follower, which says so by ReplicaID, latest is the log end offset.

func (b *Broker) handleListOffsets(v *view, req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(in.Partitions))
		asked := make(map[int32]int, len(in.Partitions)) // how often each
		for j := range in.Partitions {
			asked[in.Partitions[j].Partition]++
		}
		for j := range in.Partitions {
			p := &in.Partitions[j]
			out.Partitions[j] = b.listOffset(v, in.Topic, p, asked[p.Partition], req)
		}
	}
	return resp
}

func (b *Broker) listOffset(v *view, topic string, in *kmsg.ListOffsetsRequestTopicPartition,
	times int, req *kmsg.ListOffsetsRequest) kmsg.ListOffsetsResponseTopicPartition {
	out := kmsg.NewListOffsetsResponseTopicPartition()
	out.Partition = in.Partition
	out.Offset, out.Timestamp, out.LeaderEpoch = -1, -1, -1
	if times > 1 {
		out.ErrorCode = kerr.InvalidRequest.Code
		return out
	}
	leader, err := v.leaderByName(topic, in.Partition)
	switch {
	case err != nil:
	case req.ReplicaID >= 0 && in.Timestamp == timeLatest:
		_, out.Offset, err = leader.ReplicaBounds(in.CurrentLeaderEpoch)
	default:
		var p partition.Position
		p, err = leader.OffsetAt(partition.OffsetQuery{
			Timestamp: in.Timestamp, LeaderEpoch: in.CurrentLeaderEpoch, ReadCommitted: req.IsolationLevel == readCommitted,
		})
		out.Offset, out.Timestamp, out.LeaderEpoch = p.Offset, p.Timestamp, p.LeaderEpoch
	}
	if err != nil && leader != nil {
		err = b.unlessReplaced(leader.Name(), err)
	}
	out.ErrorCode = code(err)
	return out
}
