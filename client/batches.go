package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/internal/invariant"
	"millrace/internal/ktag"
	"millrace/record"
)

// SendBatches stores ready batches in one partition, one after the other, and stops at the first that
// fails. With a NamedProducer or an expected offset there must be just one. Records at fault are numbered
// through all batches. The bytes belong to the cluster until SendBatches returns. The error is not nil when
// nothing was sent at all.
func (c *Client) SendBatches(ctx context.Context, topic *Topic, partition int32, batches []record.Batch,
	o SendOptions) ([]BatchResult, error) {
	if err := topic.Has(partition); err != nil {
		return nil, err
	}
	one := o.Producer != nil || o.Expected != nil
	invariant.Check(!one || len(batches) == 1, "%d batches for a sequence or an expected offset", len(batches))
	if np := o.Producer; np != nil {
		if err := c.checkSequence(ctx, topic, partition, np); err != nil {
			return nil, err
		}
		if err := batches[0].Verify(); err != nil { // its new checksum must not hide a damage
			return nil, newFault(kerr.CorruptMessage, err.Error(), topic.Name, partition)
		}
		batches[0].SetProducer(ktag.NamedProducerID(np.Name), np.Epoch, np.Seq)
	}
	out := make([]BatchResult, len(batches))
	for i, b := range batches {
		out[i] = BatchResult{Partition: partition, Count: int(b.Count()), BaseOffset: -1, Timestamp: b.MaxTimestamp()}
	}
	if o.CheckAll && len(batches) > 1 && c.checkBatches(ctx, topic, batches, out) {
		return out, nil
	}
	var failed error
	for i, b := range batches {
		if failed != nil {
			out[i].Err = newFault(kerr.OperationNotAttempted,
				fmt.Sprintf("an earlier batch of this request was not stored: %v", failed), topic.Name, partition)
			continue
		}
		out[i].Err = c.sendBatch(ctx, topic, b, o, &out[i])
		failed = out[i].Err
	}
	number(out)
	return out, nil
}

// checkBatches holds all batches against the topic's limits, and gives up all of them if one is at fault.
func (c *Client) checkBatches(ctx context.Context, topic *Topic, batches []record.Batch, out []BatchResult) bool {
	l, ok := c.limits(ctx, topic)
	if !ok {
		return false
	}
	refused := false
	for i, b := range batches {
		out[i].Err = checkFault(record.Check(b, l), topic.Name, out[i].Partition)
		refused = refused || out[i].Err != nil
	}
	for i := range out {
		if refused && out[i].Err == nil {
			out[i].Err = notAttempted(topic.Name, out[i].Partition)
		}
	}
	number(out)
	return refused
}

// number makes the places of records in their batch places among all records.
func number(results []BatchResult) {
	first := 0
	for i := range results {
		if results[i].Err != nil {
			addToIndexes(results[i].Err, int32(first))
		}
		first += results[i].Count
	}
}

func addToIndexes(err error, first int32) {
	var f *KafkaError
	if errors.As(err, &f) {
		for k := range f.Records {
			f.Records[k].Index += first
		}
	}
}

func (c *Client) sendBatch(ctx context.Context, topic *Topic, b record.Batch, o SendOptions, out *BatchResult) error {
	results, err := c.Produce(ctx, ProduceRequest{
		Acks: o.Acks, Timeout: o.Timeout,
		Batches: []Batch{{
			Topic: topic, Partition: out.Partition, Bytes: b, Expected: o.Expected,
			Strict: o.Producer != nil && len(topic.Partitions) == 1,
		}},
	})
	if err != nil {
		return err
	}
	r := &results[0]
	if r.Err != nil {
		return r.Err
	}
	out.BaseOffset, out.Duplicate = r.BaseOffset, r.Duplicate
	if r.AppendTime >= 0 || r.Duplicate {
		out.Timestamp = r.AppendTime
	}
	if r.Duplicate {
		out.Count = int(r.Count)
	}
	return nil
}
