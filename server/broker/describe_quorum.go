package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// DescribeQuorum (key 55).
//
// Kafka answers it for its metadata topic alone; here it tells of any partition how far its replicas
// are, as its leader knows them: the ISR as voters, the other replicas as observers. Beyond Kafka, each has
// its ReplicaLogStart (package ktag).

func (b *Broker) handleDescribeQuorum(v *view, req *kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.DescribeQuorumResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.DescribeQuorumResponseTopicPartition, len(in.Partitions))
		for j := range in.Partitions {
			out.Partitions[j] = b.describeReplicas(v, in.Topic, in.Partitions[j].Partition)
		}
	}
	return resp
}

func (b *Broker) describeReplicas(v *view, topic string, number int32) kmsg.DescribeQuorumResponseTopicPartition {
	out := kmsg.NewDescribeQuorumResponseTopicPartition()
	out.Partition, out.LeaderID, out.LeaderEpoch, out.HighWatermark = number, -1, -1, -1
	t := v.image.Topic(topic)
	if t != nil && number >= 0 && int(number) < len(t.Partitions) {
		out.LeaderID, out.LeaderEpoch = t.Partitions[number].Leader, t.Partitions[number].LeaderEpoch
	}
	leader, err := v.leaderByName(topic, number)
	if err != nil {
		r := explain(err)
		out.ErrorCode, out.ErrorMessage = r.Code, &r.Message
		return out
	}
	out.HighWatermark = leader.Bounds().HighWatermark
	for _, s := range leader.ReplicaStates() {
		r := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		r.ReplicaID, r.LogEndOffset = s.ID, s.LogEndOffset
		r.LastFetchTimestamp, r.LastCaughtUpTimestamp = millis(s.LastFetch), millis(s.LastCaughtUp)
		ktag.SetReplicaLogStart(&r.UnknownTags, s.LogStart)
		if s.InSync {
			out.CurrentVoters = append(out.CurrentVoters, r)
		} else {
			out.Observers = append(out.Observers, r)
		}
	}
	return out
}

// millis is a time in the protocol, -1 for one that never was.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}
