package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/partition"
)

// DeleteRecords (key 21).
//
// The log start offset of a partition moves up to the offset given, or to the high watermark for -1. Whole segments
// below it are removed; a batch that straddles it stays on disk. The answer comes when every replica that may lead next
// has saved a log start that is as high, so that what was deleted is not there again after a fail-over, and says the
// least of them. When TimeoutMillis are over before that, it is REQUEST_TIMED_OUT: the records are deleted here, and
// the others will follow. Topics without delete in cleanup.policy refuse with POLICY_VIOLATION.

// deletion is one partition whose replicas are waited for.
type deletion struct {
	leader *partition.Leader
	start  int64
	out    *kmsg.DeleteRecordsResponseTopicPartition
}

func (b *Broker) handleDeleteRecords(ctx context.Context, v *view, req *kmsg.DeleteRecordsRequest) (
	*kmsg.DeleteRecordsResponse, error,
) {
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	var waiting []deletion
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(in.Partitions))
		for j, p := range in.Partitions {
			d := deletion{out: &out.Partitions[j]}
			*d.out = kmsg.NewDeleteRecordsResponseTopicPartition()
			d.out.Partition, d.out.LowWatermark = p.Partition, -1
			var err error
			if d.leader, d.start, err = b.deleteRecords(ctx, v, in.Topic, p); err != nil {
				d.out.ErrorCode = code(err)
				continue
			}
			waiting = append(waiting, d)
		}
	}
	if err := b.awaitDeleted(ctx, waiting, time.Duration(req.TimeoutMillis)*time.Millisecond); err != nil {
		return nil, err
	}
	return resp, nil
}

// deleteRecords deletes the records of one partition here, and gives where the log starts then.
func (b *Broker) deleteRecords(ctx context.Context, v *view, topic string,
	p kmsg.DeleteRecordsRequestTopicPartition) (*partition.Leader, int64, error) {
	leader, err := v.leaderByName(topic, p.Partition)
	if err != nil {
		return nil, -1, err
	}
	start, err := leader.DeleteRecords(p.Offset)
	if err != nil {
		j := judgement{topic: v.image.Topic(topic), leader: leader, evidence: new(evidence)}
		err = b.unlessReplaced(leader.Name(), b.doubted(ctx, j, err))
	}
	return leader, start, err
}

// awaitDeleted waits for the replicas of all partitions, which have the time together. An error means that the context
// ended.
func (b *Broker) awaitDeleted(ctx context.Context, waiting []deletion, limit time.Duration) error {
	if len(waiting) == 0 {
		return nil
	}
	w := b.waiters.Get().(*partition.Waiter)
	defer b.waiters.Put(w)
	w.Start(max(limit, 0))
	defer w.Stop()
	for _, d := range waiting {
		low, err := d.leader.AwaitDeleted(ctx, w, d.start)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, partition.ErrTimeout):
			d.out.ErrorCode = kerr.RequestTimedOut.Code
		case err != nil:
			d.out.ErrorCode = code(err)
		default:
			d.out.LowWatermark = low
		}
	}
	return nil
}
