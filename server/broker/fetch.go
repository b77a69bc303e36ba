package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// Fetch (key 1), of consumers; handleFollowerFetch has those of followers.
//
// Partitions are read in the order of the request, up to the high watermark, until the request's
// bytes are used up; the first batch of the first partition that has one comes whole, whatever the
// limits say (KIP-74). When there are fewer than MinBytes the fetch waits, until the partitions have
// committed what is missing, MaxWaitMillis are over, or the context ends. An error of a partition,
// and a partition that has more than its share, are answered at once. There are no fetch sessions:
// every answer is complete, with session id 0.
//
// With read_committed the answer ends at the last stable offset, and names the aborted transactions in it.
//
// A consumer that names its rack may read from a follower, up to the high watermark that the follower
// knows (KIP-392); who is asked is the router's choice. The record bytes come from the arena in the context.

func (b *Broker) handleFetch(ctx context.Context, v *view, req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	if req.ReplicaState.ID >= 0 {
		return b.handleFollowerFetch(ctx, v, req)
	}
	resp := newFetchResponse(req)
	if req.SessionID != 0 {
		resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
		return resp, nil
	}
	f := fetch{broker: b, view: v, req: req, resp: resp}
	if arena := record.ArenaFrom(ctx); arena != nil {
		f.alloc = arena.Alloc
	}
	f.maxBytes = min(max(int(req.MaxBytes), 0), v.image.Settings().FetchMaxBytes)
	f.read(ctx)
	if err := f.settle(ctx); err != nil {
		return nil, err
	}
	if f.complete() || req.MaxWaitMillis <= 0 {
		return f.done(), nil
	}
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return f.done(), nil
}

// fetch is one fetch request at work.
type fetch struct {
	broker   *Broker
	view     *view
	req      *kmsg.FetchRequest
	resp     *kmsg.FetchResponse
	alloc    func(n int) []byte
	maxBytes int
	size     int  // bytes of records in resp
	urgent   bool // a partition has an error, or more than fits: answer at once
	// unsettled is set when a partition's leader is new and may show less than the one before did.
	unsettled bool
	evidence  *evidence // nil: nothing yet
}

// read fills the answer anew from the partitions.
func (f *fetch) read(ctx context.Context) {
	f.size, f.urgent, f.unsettled = 0, false, false
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for j := range t.Partitions {
			f.partition(ctx, t, &t.Partitions[j], &f.resp.Topics[i].Partitions[j])
		}
	}
}

// partition reads one partition.
func (f *fetch) partition(ctx context.Context, t *kmsg.FetchRequestTopic, in *kmsg.FetchRequestTopicPartition,
	out *kmsg.FetchResponseTopicPartition) {
	log, err := f.lookUp(t, in.Partition)
	if err != nil {
		f.refuse(t, out, err)
		return
	}
	most := min(max(int(in.PartitionMaxBytes), 0), max(f.maxBytes-f.size, 0))
	r := partition.FetchRequest{
		Offset: in.FetchOffset, LeaderEpoch: in.CurrentLeaderEpoch, MaxBytes: most, Alloc: f.alloc,
		BoundsOnly: f.size > 0 && most == 0, ReadCommitted: f.req.IsolationLevel == readCommitted,
	}
	got, err := log.Fetch(r)
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = got.HighWatermark, got.LastStable, got.LogStart
	if err != nil {
		if leader, leads := log.(*partition.Leader); leads {
			err = f.broker.doubted(ctx, f.judgement(t, leader), err)
		} else if partition.Misleads(err) {
			err = partition.ErrOffsetUnknown // the leader knows
		}
		f.refuse(t, out, err)
		return
	}
	out.RecordBatches, out.AbortedTransactions = got.Records, abortedTransactions(got.Aborted)
	f.unsettled = f.unsettled || got.Unsettled
	if f.size > 0 && len(got.Records) > most {
		out.RecordBatches = got.Records[:most:most] // only the first batch of all may exceed its limit
	}
	end := got.HighWatermark
	if r.ReadCommitted {
		end = got.LastStable
	}
	if len(got.Records) > 0 && got.Next < end {
		f.urgent = true // there is more than fits: waiting would not bring it
	}
	f.size += len(out.RecordBatches)
}

// judgement is what an error of a leader goes by. The topic is there, or the leader was not.
func (f *fetch) judgement(t *kmsg.FetchRequestTopic, leader *partition.Leader) judgement {
	topic, _ := f.view.topic(t.Topic, t.TopicID)
	if f.evidence == nil {
		f.evidence = new(evidence)
	}
	return judgement{topic: topic, leader: leader, evidence: f.evidence}
}

// readCommitted is the isolation level of who sees neither aborted nor undecided records.
const readCommitted = 1

func abortedTransactions(list []partition.AbortedTransaction) []kmsg.FetchResponseTopicPartitionAbortedTransaction {
	if len(list) == 0 {
		return nil
	}
	out := make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, len(list))
	for i, t := range list {
		out[i].ProducerID, out[i].FirstOffset = t.ProducerID, t.FirstOffset
	}
	return out
}

// readable is a partition as consumers read it: its leader, or a follower.
type readable interface {
	Fetch(partition.FetchRequest) (partition.Fetched, error)
	Watch(w *partition.Waiter, seen int64) error
	WatchStable(w *partition.Waiter, seen int64) error
}

func (f *fetch) lookUp(t *kmsg.FetchRequestTopic, number int32) (readable, error) {
	topic, kafkaErr := f.view.topic(t.Topic, t.TopicID)
	if kafkaErr != nil {
		return nil, kafkaErr
	}
	if f.req.ReplicaID >= 0 {
		return nil, kerr.NotLeaderForPartition // a follower that does not tell its broker epoch
	}
	p, err := f.view.part(topic, number)
	switch {
	case err != nil:
		return nil, err
	case p.leader != nil:
		return p.leader, nil
	case p.follower != nil && f.req.Rack != "":
		return p.follower, nil
	}
	return nil, kerr.NotLeaderForPartition
}

func (f *fetch) refuse(t *kmsg.FetchRequestTopic, out *kmsg.FetchResponseTopicPartition, err error) {
	out.ErrorCode, out.RecordBatches, out.AbortedTransactions = code(err), nil, nil
	f.urgent = true
	topic, unknown := f.view.topic(t.Topic, t.TopicID)
	if unknown == nil &&
		f.broker.noticed(partition.Name{Topic: topic.Name, TopicID: topic.ID, Partition: out.Partition}, err) {
		out.ErrorCode = kerr.NotLeaderForPartition.Code // what is damaged here is whole where it is read next
	}
	var damage *partition.DamageError
	if out.ErrorCode == kerr.CorruptMessage.Code && errors.As(err, &damage) && damage.Next > 0 {
		ktag.SetResumeOffset(&out.UnknownTags, damage.Next)
	}
	if unknown == nil {
		sayLeader(topic, out)
	}
}

// sayLeader tells who leads the partition, as far as this node knows, beside an error that means that the
// client does not know.
func sayLeader(t *metadata.Topic, out *kmsg.FetchResponseTopicPartition) {
	moved := out.ErrorCode == kerr.NotLeaderForPartition.Code || out.ErrorCode == kerr.FencedLeaderEpoch.Code
	if moved && t != nil && out.Partition >= 0 && int(out.Partition) < len(t.Partitions) {
		p := &t.Partitions[out.Partition]
		out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = p.Leader, p.LeaderEpoch
	}
}

// complete tells whether there is a reason to answer now.
func (f *fetch) complete() bool {
	return f.urgent || f.size >= min(int(f.req.MinBytes), f.maxBytes) || f.size > 0 && f.size >= f.maxBytes
}

// settleLimit bounds the wait for a new leader to learn what is committed. It takes one fetch of each follower in
// sync; longer only if one of them is gone and that is not known yet.
const settleLimit = 500 * time.Millisecond

// settle waits a moment where a leader is new, so that a reader finds what was acknowledged before the old one was
// lost.
func (f *fetch) settle(ctx context.Context) error {
	if !f.unsettled || f.urgent {
		return nil
	}
	w := f.broker.waiters.Get().(*partition.Waiter)
	defer f.broker.waiters.Put(w)
	w.Start(settleLimit)
	defer w.Stop()
	for f.unsettled && !f.urgent {
		w.Lack(0)
		if !f.watch(w) {
			return nil
		}
		err := w.Wait(ctx)
		w.Leave()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == partition.ErrTimeout {
			return nil
		}
		f.view = f.broker.view.Load()
		f.read(ctx)
	}
	return nil
}

// wait sleeps until the answer is complete or time is over. Each round is one movement of a high
// watermark, so there are no more rounds than appends.
func (f *fetch) wait(ctx context.Context) error {
	w := f.broker.waiters.Get().(*partition.Waiter)
	defer f.broker.waiters.Put(w)
	w.Start(time.Duration(f.req.MaxWaitMillis) * time.Millisecond)
	defer w.Stop()
	f.broker.metrics.waiting.Inc()
	defer f.broker.metrics.waiting.Dec()
	for !f.complete() {
		w.Lack(int(f.req.MinBytes) - f.size)
		if !f.watch(w) {
			return nil
		}
		err := w.Wait(ctx)
		w.Leave()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == partition.ErrTimeout {
			return nil
		}
		f.view = f.broker.view.Load()
		f.read(ctx)
	}
	return nil
}

// watch registers the waiter with all partitions. When one of them is gone, that is its answer and
// there is nothing to wait for.
func (f *fetch) watch(w *partition.Waiter) bool {
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for j := range t.Partitions {
			out := &f.resp.Topics[i].Partitions[j]
			log, err := f.lookUp(t, t.Partitions[j].Partition)
			if err == nil {
				err = f.watchOne(log, w, out)
			}
			if err != nil {
				f.refuse(t, out, err)
				return false
			}
		}
	}
	return true
}

// watchOne waits for what the fetch may read to grow; while a new leader settles, that is the high watermark.
func (f *fetch) watchOne(log readable, w *partition.Waiter, out *kmsg.FetchResponseTopicPartition) error {
	if f.req.IsolationLevel == readCommitted && !f.unsettled {
		return log.WatchStable(w, out.LastStableOffset)
	}
	return log.Watch(w, out.HighWatermark)
}

func (f *fetch) done() *kmsg.FetchResponse {
	f.broker.metrics.fetched(f.size)
	return f.resp
}

// newFetchResponse makes the answer with a place for each partition of the request, in one piece of
// memory when there is one partition.
func newFetchResponse(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	var resp *kmsg.FetchResponse
	if len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 1 {
		single := new(struct {
			resp       kmsg.FetchResponse
			topics     [1]kmsg.FetchResponseTopic
			partitions [1]kmsg.FetchResponseTopicPartition
		})
		resp = &single.resp
		resp.Topics = single.topics[:]
		resp.Topics[0].Partitions = single.partitions[:]
	} else {
		resp = new(kmsg.FetchResponse)
		resp.Topics = make([]kmsg.FetchResponseTopic, len(req.Topics))
		for i := range resp.Topics {
			resp.Topics[i].Partitions = make([]kmsg.FetchResponseTopicPartition, len(req.Topics[i].Partitions))
		}
	}
	resp.Version = req.Version
	for i := range resp.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic, out.TopicID = in.Topic, in.TopicID
		for j := range out.Partitions {
			p := &out.Partitions[j]
			p.Default()
			p.Partition = in.Partitions[j].Partition
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = -1, -1, -1
		}
	}
	return resp
}
