package client

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// FetchRequest asks for records of some partitions of one topic.
type FetchRequest struct {
	Topic      *Topic
	Partitions []FetchPartition
	// MaxWait is how long to wait for MinBytes when fewer are there; 0 answers at once.
	MaxWait  time.Duration
	MinBytes int
	// MaxBytes bounds the whole answer, save that its first batch always comes whole.
	MaxBytes      int
	ReadCommitted bool
	// Rack asks for replicas of that broker.rack, which are read instead of the leaders where they are in sync; "" asks
	// for the leaders.
	Rack string
}

// FetchPartition is where to read one partition.
type FetchPartition struct {
	Partition int32
	Offset    int64
	MaxBytes  int // bounds this partition's part of the answer; 0 takes the request's MaxBytes
	// InEpoch has the leader answer in this leader epoch only, else FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH; nil: in
	// any.
	InEpoch *int32
}

// FetchResult is the answer for one partition. Batches are whole record batches, the last one possibly
// cut, and begin with the batch that holds the asked offset. The memory belongs to the request's arena,
// if ctx carries one, and must not be changed. The offsets are -1 where the answer leaves the partition out.
type FetchResult struct {
	Partition        int32
	Batches          []byte
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64
	Aborted          []AbortedTransaction
	Err              error // nil or a *KafkaError
}

// AbortedTransaction is an aborted transaction that overlaps a fetched range.
type AbortedTransaction struct {
	ProducerID  int64
	FirstOffset int64
}

// Fetch reads. The results are in the order of the request's partitions. The error is only ever
// ErrNoAnswer or a code for the whole request.
func (c *Client) Fetch(ctx context.Context, r FetchRequest) ([]FetchResult, error) {
	resp, err := call(ctx, "fetch from "+r.Topic.Name, fetchRequest(r).RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	if err := fault(resp.ErrorCode, nil, r.Topic.Name, -1); err != nil {
		return nil, err
	}
	out, err := fetchResponse(r, resp)
	for i := range out {
		if out[i].Err != nil {
			c.forgetOn(out[i].Err, r.Topic.Name)
		}
	}
	return out, err
}

func fetchRequest(r FetchRequest) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(r.MaxWait.Milliseconds())
	req.MinBytes = int32(r.MinBytes)
	req.MaxBytes = int32(r.MaxBytes)
	req.SessionEpoch = -1 // no fetch session
	req.Rack = r.Rack
	if r.ReadCommitted {
		req.IsolationLevel = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.Topic.Name, r.Topic.ID
	t.Partitions = make([]kmsg.FetchRequestTopicPartition, len(r.Partitions))
	for i, p := range r.Partitions {
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset = p.Partition, p.Offset
		fp.PartitionMaxBytes = int32(p.MaxBytes)
		if p.InEpoch != nil {
			fp.CurrentLeaderEpoch = *p.InEpoch
		}
		if p.MaxBytes == 0 {
			fp.PartitionMaxBytes = int32(r.MaxBytes)
		}
		t.Partitions[i] = fp
	}
	req.Topics = []kmsg.FetchRequestTopic{t}
	return req
}

func fetchResponse(r FetchRequest, resp *kmsg.FetchResponse) ([]FetchResult, error) {
	out := make([]FetchResult, len(r.Partitions))
	found := 0
	for i := range out {
		p := findFetched(resp, r.Topic, i, r.Partitions[i].Partition)
		if p == nil {
			out[i] = FetchResult{
				Partition: r.Partitions[i].Partition, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1,
			}
			continue
		}
		found++
		out[i] = FetchResult{
			Partition: p.Partition, Batches: p.RecordBatches, HighWatermark: p.HighWatermark,
			LastStableOffset: p.LastStableOffset, LogStartOffset: p.LogStartOffset,
			Err: fetchFault(p, r.Partitions[i].Offset, r.Topic.Name),
		}
		for _, a := range p.AbortedTransactions {
			out[i].Aborted = append(out[i].Aborted, AbortedTransaction{a.ProducerID, a.FirstOffset})
		}
	}
	if found == 0 && len(out) > 0 {
		return nil, noAnswer("fetch from "+r.Topic.Name, errMissing)
	}
	return out, nil
}

// fetchFault is what is wrong with a partition of a fetch from an offset.
func fetchFault(p *kmsg.FetchResponseTopicPartition, offset int64, topic string) error {
	code := FetchCode(p, offset)
	if code == 0 {
		return nil
	}
	f := newFault(kerr.TypedErrorForCode(code), "", topic, p.Partition)
	if offset, ok := ktag.ResumeOffset(&p.UnknownTags); ok {
		f.ResumeOffset = offset
	}
	return f
}

// FetchCode is the error code of the answer for a partition that was read from an offset. Where it says that the offset
// lies outside the log, with bounds within which it lies, it says nothing: a reader that went by it would leave out
// records, or begin anew. It is asked again instead.
func FetchCode(p *kmsg.FetchResponseTopicPartition, offset int64) int16 {
	within := p.LogStartOffset >= 0 && p.LogStartOffset <= offset && offset <= p.HighWatermark
	if p.ErrorCode == kerr.OffsetOutOfRange.Code && within {
		return kerr.OffsetNotAvailable.Code
	}
	return p.ErrorCode
}

func findFetched(resp *kmsg.FetchResponse, topic *Topic, i int, partition int32) *kmsg.FetchResponseTopicPartition {
	for j := range resp.Topics {
		if t := &resp.Topics[j]; topic.is(t.Topic, t.TopicID) {
			return find(t.Partitions, i, partition, func(p *kmsg.FetchResponseTopicPartition) int32 { return p.Partition })
		}
	}
	return nil
}
