package client

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
)

// How many replicas must have a batch before it is acknowledged.
const (
	AcksAll    int16 = -1
	AcksNone   int16 = 0
	AcksLeader int16 = 1
)

// ProduceRequest is one Produce request: at most one batch a partition.
type ProduceRequest struct {
	Acks    int16
	Timeout time.Duration // how long the leader waits for AcksAll
	Batches []Batch
	// Transaction is the transactional id of batches that belong to a transaction; empty: they do not.
	Transaction string
}

// Batch is one record batch and where it goes. Bytes belong to the callee until Produce returns.
type Batch struct {
	Topic     *Topic
	Partition int32
	Bytes     record.Batch
	Expected  *int64 // append only if the log end offset is this
	Strict    bool   // refuse a gap in a named producer's sequences
	Internal  bool   // the topic is the cluster's own, and this client writes to it for the cluster
	Counted   bool   // refuse where the topic has another count of partitions than Topic says
}

// ProduceResult is what became of one batch.
type ProduceResult struct {
	Topic      string
	Partition  int32
	BaseOffset int64 // -1 with AcksNone, and for a duplicate whose first answer is no longer known
	// AppendTime is the leader's clock when it sets the timestamps, the first answer's greatest
	// timestamp for a duplicate, else -1.
	AppendTime     int64
	LogStartOffset int64
	Duplicate      bool  // an earlier request wrote it; this one wrote nothing
	Count          int32 // of a duplicate: how many records the first one had, -1 if that is forgotten; else -1
	Err            error // nil, a *KafkaError, or ErrNoAnswer
}

// Produce sends batches. The results are in the order of the request's batches. An error means that no
// answer came: what was sent may or may not be stored. The end of ctx does not give a produce up, as it
// takes nothing back that is stored: Timeout and the client's life bound the wait. So a client that has shut
// its sending side, or asks while the node stops, hears what became of its records.
func (c *Client) Produce(ctx context.Context, r ProduceRequest) ([]ProduceResult, error) {
	out := make([]ProduceResult, len(r.Batches))
	return out, c.produceInto(ctx, &r, out)
}

// detached has the values of one context, and ends with another.
type detached struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (d detached) Value(key any) any {
	if v := d.Context.Value(key); v != nil {
		return v
	}
	return d.values.Value(key)
}

// detach gives a context that ends with the client instead of the caller.
func (c *Client) detach(ctx context.Context) context.Context {
	if c.life == nil {
		return context.WithoutCancel(ctx)
	}
	return detached{Context: c.life, values: ctx}
}

func (c *Client) produceInto(ctx context.Context, r *ProduceRequest, out []ProduceResult) error {
	resp, err := call(c.detach(ctx), "produce", produceRequest(r).RequestWith, c.requestor)
	if err != nil {
		return err
	}
	for i := range r.Batches {
		b := &r.Batches[i]
		out[i] = ProduceResult{
			Topic: b.Topic.Name, Partition: b.Partition, BaseOffset: -1, AppendTime: -1, LogStartOffset: -1, Count: -1,
		}
		if p := findProduced(resp, i, b); p != nil {
			out[i].take(p, b)
		} else if r.Acks != AcksNone { // to which a foreign broker sends no answer
			out[i].Err = noAnswer("produce", errMissing)
		}
		if out[i].Err != nil {
			c.forgetOn(out[i].Err, b.Topic.Name)
		}
	}
	return nil
}

// produceMessage is a request with the memory for one topic and one partition, which is all that most need.
type produceMessage struct {
	req       kmsg.ProduceRequest
	topic     [1]kmsg.ProduceRequestTopic
	partition [1]kmsg.ProduceRequestTopicPartition
}

func produceRequest(r *ProduceRequest) *kmsg.ProduceRequest {
	m := &produceMessage{}
	req := &m.req
	req.Default()
	req.Acks = r.Acks
	req.TimeoutMillis = int32(r.Timeout.Milliseconds())
	if r.Transaction != "" {
		req.TransactionID = &r.Transaction
	}
	req.Topics = m.topic[:0]
	for i := range r.Batches {
		b := &r.Batches[i]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != b.Topic.Name {
			t := kmsg.ProduceRequestTopic{Topic: b.Topic.Name, TopicID: b.Topic.ID, Partitions: m.partition[:0]}
			if len(r.Batches) > 1 {
				t.Partitions = make([]kmsg.ProduceRequestTopicPartition, 0, len(r.Batches)-i)
			}
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.ProduceRequestTopicPartition{Partition: b.Partition, Records: b.Bytes}
		if b.Expected != nil {
			ktag.SetExpectedOffset(&p.UnknownTags, *b.Expected)
		}
		if b.Strict {
			ktag.SetStrictSequence(&p.UnknownTags)
		}
		if b.Internal {
			ktag.SetInternal(&p.UnknownTags)
		}
		if b.Counted {
			ktag.SetPartitionCount(&p.UnknownTags, int32(len(b.Topic.Partitions)))
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return req
}

// take takes in what the answer says of a batch.
func (r *ProduceResult) take(p *kmsg.ProduceResponseTopicPartition, b *Batch) {
	if r.Err = produceFault(p, b); r.Err != nil {
		return
	}
	r.BaseOffset, r.AppendTime, r.LogStartOffset = p.BaseOffset, p.LogAppendTime, p.LogStartOffset
	if ktag.Duplicate(&p.UnknownTags) {
		r.Duplicate = true
		if at, ok := ktag.AppendTime(&p.UnknownTags); ok {
			r.AppendTime = at
		}
		if n, ok := ktag.FirstCount(&p.UnknownTags); ok {
			r.Count = n
		}
	}
}

func findProduced(resp *kmsg.ProduceResponse, i int, b *Batch) *kmsg.ProduceResponseTopicPartition {
	for j := range resp.Topics {
		t := &resp.Topics[j]
		if !b.Topic.is(t.Topic, t.TopicID) {
			continue
		}
		number := func(p *kmsg.ProduceResponseTopicPartition) int32 { return p.Partition }
		if p := find(t.Partitions, i, b.Partition, number); p != nil {
			return p
		}
	}
	return nil
}

func produceFault(p *kmsg.ProduceResponseTopicPartition, b *Batch) error {
	err := fault(p.ErrorCode, p.ErrorMessage, b.Topic.Name, b.Partition)
	if err == nil {
		return nil
	}
	f := err.(*KafkaError)
	if v, ok := ktag.ActualOffset(&p.UnknownTags); ok {
		f.ActualOffset = v
	}
	if v, ok := ktag.ExpectedSequence(&p.UnknownTags); ok {
		f.ExpectedSequence = v
	}
	if v, ok := ktag.CurrentEpoch(&p.UnknownTags); ok {
		f.CurrentEpoch = v
	}
	f.PartitionCount, _ = ktag.PartitionCount(&p.UnknownTags)
	f.NotWritten = ktag.NotWritten(&p.UnknownTags)
	for _, r := range p.ErrorRecords {
		rf := RecordFault{Index: r.RelativeOffset}
		if r.ErrorMessage != nil {
			rf.Message = *r.ErrorMessage
		}
		f.Records = append(f.Records, rf)
	}
	return f
}
