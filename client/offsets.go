package client

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Special timestamps of an OffsetQuery.
const (
	Latest       int64 = -1 // the end: the high watermark, or the last stable offset when read_committed
	Earliest     int64 = -2 // the log start offset
	MaxTimestamp int64 = -3 // the record with the greatest timestamp
)

// OffsetQuery asks for the first offset whose timestamp is at or after Timestamp, or a special one.
type OffsetQuery struct {
	Partition int32
	Timestamp int64 // milliseconds, or Latest, Earliest, MaxTimestamp
	// InEpoch has the leader answer in this leader epoch only, else FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH; nil: in
	// any.
	InEpoch *int32
}

// OffsetResult answers an OffsetQuery. Offset is -1 when no record is that late.
type OffsetResult struct {
	Partition   int32
	Offset      int64
	Timestamp   int64 // of the record found, -1 for Latest and Earliest
	LeaderEpoch int32
	Err         error // nil, a *KafkaError, or ErrNoAnswer
}

// ListOffsets looks offsets up. The results are in the order of the queries.
func (c *Client) ListOffsets(ctx context.Context, topic *Topic, queries []OffsetQuery, level Isolation) (
	[]OffsetResult, error,
) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = int8(level)
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic.Name
	for _, q := range queries {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = q.Partition, q.Timestamp
		if q.InEpoch != nil {
			p.CurrentLeaderEpoch = *q.InEpoch
		}
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := call(ctx, "offsets of "+topic.Name, req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	out := make([]OffsetResult, len(queries))
	for i, q := range queries {
		out[i] = offsetResult(resp, i, topic.Name, q.Partition)
		if out[i].Err != nil {
			c.forgetOn(out[i].Err, topic.Name)
		}
	}
	return out, nil
}

// Isolation says whether records of open transactions count.
type Isolation int8

const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

func offsetResult(resp *kmsg.ListOffsetsResponse, i int, topic string, partition int32) OffsetResult {
	for j := range resp.Topics {
		t := &resp.Topics[j]
		if t.Topic != topic {
			continue
		}
		number := func(p *kmsg.ListOffsetsResponseTopicPartition) int32 { return p.Partition }
		if p := find(t.Partitions, i, partition, number); p != nil {
			return OffsetResult{
				Partition: partition, Offset: p.Offset, Timestamp: p.Timestamp, LeaderEpoch: p.LeaderEpoch,
				Err: fault(p.ErrorCode, nil, topic, partition),
			}
		}
	}
	return OffsetResult{Partition: partition, Offset: -1, Timestamp: -1, LeaderEpoch: -1,
		Err: noAnswer("offsets of "+topic, errMissing)}
}

// Bounds are the offsets between which a partition can be read: from the log start offset up to, but not
// including, the high watermark.
func (c *Client) Bounds(ctx context.Context, topic *Topic, partition int32) (start, end int64, err error) {
	var bounds [2]int64
	for i, special := range [...]int64{Earliest, Latest} { // a request may ask about a partition once
		found, err := c.ListOffsets(ctx, topic, []OffsetQuery{{Partition: partition, Timestamp: special}}, ReadUncommitted)
		if err == nil {
			err = found[0].Err
		}
		if err != nil {
			return -1, -1, err
		}
		bounds[i] = found[0].Offset
	}
	return bounds[0], bounds[1], nil
}

// DeletedRecords is the outcome of DeleteRecords for one partition.
type DeletedRecords struct {
	Partition      int32
	LogStartOffset int64
	Err            error // nil, a *KafkaError, or ErrNoAnswer
}

// BeforeOffset says where a partition's log shall start; -1 is the high watermark.
type BeforeOffset struct {
	Partition int32
	Offset    int64
}

// DeleteRecords raises log start offsets. The results are in the order of before.
func (c *Client) DeleteRecords(ctx context.Context, topic *Topic, before []BeforeOffset) ([]DeletedRecords, error) {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = c.adminMillis()
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic.Name
	for _, b := range before {
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Partition, p.Offset = b.Partition, b.Offset
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := call(ctx, "delete records of "+topic.Name, req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	out := make([]DeletedRecords, len(before))
	for i, b := range before {
		out[i] = deletedRecords(resp, i, topic.Name, b.Partition)
	}
	return out, nil
}

func deletedRecords(resp *kmsg.DeleteRecordsResponse, i int, topic string, partition int32) DeletedRecords {
	for j := range resp.Topics {
		t := &resp.Topics[j]
		if t.Topic != topic {
			continue
		}
		number := func(p *kmsg.DeleteRecordsResponseTopicPartition) int32 { return p.Partition }
		if p := find(t.Partitions, i, partition, number); p != nil {
			return DeletedRecords{partition, p.LowWatermark, fault(p.ErrorCode, nil, topic, partition)}
		}
	}
	return DeletedRecords{partition, -1, noAnswer("delete records of "+topic, errMissing)}
}
