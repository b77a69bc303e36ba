package simtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/servertest/history"
)

// view is what a client has seen of a partition under read_committed, on from some offset.
type view struct {
	c         *client
	partition history.Partition
	session   string
	next      int64
	member    *history.Membership // of whom reads for a group
}

// poll reads on, and waits for records if there are none.
func (v *view) poll(wait time.Duration) *history.Op {
	o := &history.Op{
		Kind: history.Poll, Client: v.c.name, Session: v.session, API: "kafka", Invoke: v.c.s.h.Now(), Partition: v.partition,
		From: v.next, Group: v.member,
	}
	err := v.fetch(o, wait)
	if o.Return = v.c.s.h.Now(); err != nil {
		o.Outcome, o.Note = history.Fail, err.Error()
	} else {
		o.Outcome = history.OK
	}
	v.c.s.h.Add(o)
	return o
}

func (v *view) fetch(o *history.Op, wait time.Duration) error {
	r := kmsg.NewPtrFetchRequest()
	r.MaxWaitMillis, r.MinBytes, r.IsolationLevel, r.SessionEpoch = int32(wait.Milliseconds()), 1, 1, -1
	if r.MaxBytes = pick(v.c.rng, int32(200), 2000, 1<<20); v.c == v.c.s.operator { // which has to come to an end
		r.MaxBytes = 1 << 20
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = v.partition.Topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = v.partition.Number, v.next, r.MaxBytes
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	resp, err := ask[*kmsg.FetchResponse](v.c, wait+v.c.s.plan.patience, r)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	p := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return err
	}
	return v.take(o, p)
}

// take takes the records that are committed: those of no transaction that the answer says was aborted.
func (v *view) take(o *history.Op, p *kmsg.FetchResponseTopicPartition) error {
	pending := slices.Clone(p.AbortedTransactions)
	aborted := map[int64]bool{}
	for rest := p.RecordBatches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if errors.Is(err, record.ErrShort) {
			return nil
		} else if err != nil {
			return fmt.Errorf("batch at %d: %w", v.next, err)
		}
		rest = after
		pending = slices.DeleteFunc(pending, func(t kmsg.FetchResponseTopicPartitionAbortedTransaction) bool {
			if t.FirstOffset > b.LastOffset() {
				return false
			}
			aborted[t.ProducerID] = true
			return true
		})
		if m, ok := b.EndTxnMarker(); ok && m.Type == record.ControlAbort {
			delete(aborted, b.ProducerID())
		}
		if !b.IsControl() && !(b.IsTransactional() && aborted[b.ProducerID()]) {
			if err := v.batch(o, b); err != nil {
				return err
			}
		}
		v.next = max(v.next, b.NextOffset())
	}
	return nil
}

func (v *view) batch(o *history.Op, b record.Batch) error {
	r := record.NewReader(b, 1<<20)
	defer r.Close()
	var rec record.Record
	for r.Next(&rec) {
		if rec.Offset >= v.next {
			o.Values = append(o.Values, unwire(&rec))
			o.Offsets = append(o.Offsets, rec.Offset)
		}
	}
	return r.Err()
}
