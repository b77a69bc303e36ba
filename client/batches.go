package client

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/internal/invariant"
	"millrace/internal/ktag"
	"millrace/record"
)

// SendBatches stores ready batches in one partition, one after the other, and stops at the first that
// fails. With a NamedProducer or an expected offset there must be just one. The bytes belong to the
// cluster until SendBatches returns. The error is not nil when nothing was sent at all.
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
	var failed error
	for i, b := range batches {
		out[i] = BatchResult{Partition: partition, Count: int(b.Count()), BaseOffset: -1, Timestamp: b.MaxTimestamp()}
		if failed != nil {
			out[i].Err = newFault(kerr.OperationNotAttempted,
				fmt.Sprintf("an earlier batch of this request was not stored: %v", failed), topic.Name, partition)
			continue
		}
		out[i].Err = c.sendBatch(ctx, topic, b, o, &out[i])
		failed = out[i].Err
	}
	return out, nil
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
	if r.AppendTime >= 0 {
		out.Timestamp = r.AppendTime
	}
	return nil
}
