package client

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
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
}

// OffsetResult answers an OffsetQuery. Offset is -1 when no record is that late.
type OffsetResult struct {
	Partition   int32
	Offset      int64
	Timestamp   int64 // of the record found, -1 for Latest and Earliest
	LeaderEpoch int32
	Err         error // nil or a *KafkaError
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
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := call(ctx, "offsets of "+topic.Name, req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	out := make([]OffsetResult, len(queries))
	for i, q := range queries {
		out[i] = offsetResult(resp, topic.Name, q.Partition)
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

func offsetResult(resp *kmsg.ListOffsetsResponse, topic string, partition int32) OffsetResult {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if resp.Topics[i].Topic == topic && p.Partition == partition {
				return OffsetResult{
					Partition: partition, Offset: p.Offset, Timestamp: p.Timestamp, LeaderEpoch: p.LeaderEpoch,
					Err: fault(p.ErrorCode, nil, topic, partition),
				}
			}
		}
	}
	return OffsetResult{Partition: partition, Offset: -1, Timestamp: -1, LeaderEpoch: -1,
		Err: newFault(kerr.UnknownServerError, "the answer does not name the partition", topic, partition)}
}

// DeletedRecords is the outcome of DeleteRecords for one partition.
type DeletedRecords struct {
	Partition      int32
	LogStartOffset int64
	Err            error // nil or a *KafkaError
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
		out[i] = deletedRecords(resp, topic.Name, b.Partition)
	}
	return out, nil
}

func deletedRecords(resp *kmsg.DeleteRecordsResponse, topic string, partition int32) DeletedRecords {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if resp.Topics[i].Topic == topic && p.Partition == partition {
				return DeletedRecords{partition, p.LowWatermark, fault(p.ErrorCode, nil, topic, partition)}
			}
		}
	}
	return DeletedRecords{partition, -1,
		newFault(kerr.UnknownServerError, "the answer does not name the partition", topic, partition)}
}
