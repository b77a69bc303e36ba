package client

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Compacted says whether a topic keeps the latest record of each key, as far as the cluster tells; at most as old as
// the metadata of t.
func (c *Client) Compacted(ctx context.Context, t *Topic) (compacted, known bool) {
	l, ok := c.limits(ctx, t)
	return l.Compacted, ok
}

// Expires says whether a topic drops records for their age, or where there are too many, also the latest of a key; as
// Compacted does.
func (c *Client) Expires(ctx context.Context, t *Topic) (expires, known bool) {
	l := c.knownLimits(ctx, t)
	return l.expires, l.ok
}

// EpochEnd is where a leader epoch ends in the log of a partition's leader.
type EpochEnd struct {
	LeaderEpoch int32 // the greatest that is there and not after the one asked for, -1 if there is none
	EndOffset   int64 // behind its last record, -1 if there is none
}

// EpochEnd asks the leader of a partition where a leader epoch ends, to be answered in another one only.
func (c *Client) EpochEnd(ctx context.Context, topic *Topic, partition, epoch, inEpoch int32) (EpochEnd, error) {
	none := EpochEnd{LeaderEpoch: -1, EndOffset: -1}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.LeaderEpoch, p.CurrentLeaderEpoch = partition, epoch, inEpoch
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic, t.Partitions = topic.Name, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	what := "leader epochs of " + topic.Name
	resp, err := call(ctx, what, req.RequestWith, c.requestor)
	if err != nil {
		return none, err
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		number := func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) int32 { return p.Partition }
		p := find(t.Partitions, 0, partition, number)
		if t.Topic != topic.Name || p == nil {
			continue
		}
		if err := fault(p.ErrorCode, nil, topic.Name, partition); err != nil {
			c.forgetOn(err, topic.Name)
			return none, err
		}
		return EpochEnd{p.LeaderEpoch, p.EndOffset}, nil
	}
	return none, noAnswer(what, errMissing)
}
