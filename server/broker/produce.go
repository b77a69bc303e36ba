package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// Produce (key 0).
//
// All batches of a request are appended first, then those of an acks=all request are waited for
// together, so they share a commit. Each partition is answered for itself. acks=0 is answered like
// acks=1: whoever speaks the wire protocol drops that answer.
//
// Batches of a transaction need the transactional id in the request (produce_txn.go); without it the whole request is
// refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
//
// A topic that enforces schemas has each batch checked before it is appended; a repeat of one that was written before
// is answered as such all the same.
//
// Beyond Kafka, a partition may carry ExpectedOffset and StrictSequence (package ktag) and is
// answered with Duplicate, AppendTime, FirstCount, ActualOffset, ExpectedSequence, CurrentEpoch,
// NotWritten.

const (
	acksAll    = -1
	acksLeader = 1
)

// produced is a batch that waits to be committed.
type produced struct {
	leader *partition.Leader
	at     partition.Appended
	batch  record.Batch // as it was sent, but for what the leader stamped
	answer *kmsg.ProduceResponseTopicPartition
}

func (b *Broker) handleProduce(ctx context.Context, v *view, req *kmsg.ProduceRequest) (*kmsg.ProduceResponse, error) {
	resp := newProduceResponse(req)
	if refusal := refuseProduce(req); refusal != nil {
		refuseAll(resp, refusal)
		return resp, nil
	}
	var few [4]produced
	waiting := few[:0]
	p := producer{broker: b, view: v, req: req, arena: record.ArenaFrom(ctx)}
	if req.TransactionID != nil {
		if err := p.admit(ctx); err != nil {
			return nil, err
		}
	}
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		for j := range in.Partitions {
			wait, err := p.partition(ctx, in, &in.Partitions[j], &out.Partitions[j])
			if err != nil {
				return nil, err
			}
			if wait.leader != nil {
				waiting = append(waiting, wait)
			}
		}
	}
	if err := b.awaitCommitted(ctx, waiting, time.Duration(req.TimeoutMillis)*time.Millisecond); err != nil {
		return nil, err
	}
	return resp, nil
}

// miscounted says whether a request was made for another count of partitions than the topic has.
func miscounted(tags *kmsg.Tags, topic *metadata.Topic) bool {
	count, ok := ktag.PartitionCount(tags)
	return ok && int(count) != len(topic.Partitions)
}

// producer is what the partitions of one request share.
type producer struct {
	broker *Broker
	view   *view
	req    *kmsg.ProduceRequest
	arena  *record.Arena
	// admissions are those of the batches of a transaction; nil for a request without one.
	admissions map[*kmsg.ProduceRequestTopicPartition]*admission
	// evidence is what was found out for partitions that refused their batches; nil: nothing yet.
	evidence *evidence
}

// doubted replaces an error of a leader that may mislead the client, unless it is certain to lead.
func (p *producer) doubted(ctx context.Context, t *kmsg.ProduceRequestTopic, leader *partition.Leader,
	err error) error {
	topic, _ := p.view.topic(t.Topic, t.TopicID) // it is there, or the leader was not
	if p.evidence == nil {
		p.evidence = new(evidence)
	}
	return p.broker.doubted(ctx, judgement{topic: topic, leader: leader, evidence: p.evidence}, err)
}

// partition appends one batch and fills in its answer. It returns what to wait for, if anything. An
// error means that the context ended.
func (p *producer) partition(ctx context.Context, t *kmsg.ProduceRequestTopic, in *kmsg.ProduceRequestTopicPartition,
	out *kmsg.ProduceResponseTopicPartition) (produced, error) {
	leader, err := p.lookUp(t, in)
	if err != nil {
		p.refuse(out, err)
		p.sayLeader(t, out)
		ktag.SetNotWritten(&out.UnknownTags)
		return produced{}, nil
	}
	r := partition.AppendRequest{
		Batch: in.Records, AllInSync: p.req.Acks == acksAll, Expected: -1, Epoch: -1, Arena: p.arena,
	}
	if in.UnknownTags.Len() > 0 {
		if offset, ok := ktag.ExpectedOffset(&in.UnknownTags); ok {
			r.Expected = offset
		}
		r.Strict = ktag.StrictSequence(&in.UnknownTags)
		if topic, _ := p.view.topic(t.Topic, t.TopicID); miscounted(&in.UnknownTags, topic) {
			p.refuse(out, kerr.LeaderNotAvailable)
			ktag.SetNotWritten(&out.UnknownTags)
			ktag.SetPartitionCount(&out.UnknownTags, int32(len(topic.Partitions)))
			return produced{}, nil
		}
	}
	if given := p.admissions[in]; given != nil {
		if given.err != nil {
			p.notAdmitted(out, given)
			return produced{}, nil
		}
		r.Guard = &given.guard
	}
	if r.Refused = p.checkSchemas(ctx, t, in.Records); ctx.Err() != nil {
		return produced{}, noAnswer(ctx)
	}
	a, err := leader.Append(ctx, &r)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return produced{}, noAnswer(ctx)
		}
		if partition.Misleads(err) {
			err = p.doubted(ctx, t, leader, err)
		}
		p.refuse(out, err)
		if p.broker.noticed(leader.Name(), err) && ktag.NotWritten(&out.UnknownTags) {
			out.ErrorCode = kerr.NotLeaderForPartition.Code // whoever leads next has room for it
		}
		return produced{}, nil
	}
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = a.BaseOffset, a.AppendTime, leader.Bounds().LogStart
	if a.Duplicate {
		ktag.SetDuplicate(&out.UnknownTags)
		ktag.SetAppendTime(&out.UnknownTags, a.FirstTimestamp)
		if a.FirstCount >= 0 {
			ktag.SetFirstCount(&out.UnknownTags, a.FirstCount)
		}
	} else {
		p.broker.metrics.appended(in.Records)
	}
	if p.req.Acks != acksAll || leader.Committed(a.Next) {
		return produced{}, nil
	}
	return produced{leader: leader, at: a, batch: in.Records, answer: out}, nil
}

// checkSchemas finds out what the topic's schemas say against a batch.
func (p *producer) checkSchemas(ctx context.Context, t *kmsg.ProduceRequestTopic, batch []byte) error {
	topic, _ := p.view.topic(t.Topic, t.TopicID) // it is there, or the leader was not
	if topic.Settings.Schemas == nil || p.broker.cfg.CheckSchemas == nil || len(batch) < record.HeaderSize {
		return nil
	}
	return p.broker.cfg.CheckSchemas(ctx, topic.Name, *topic.Settings.Schemas, batch)
}

func (p *producer) lookUp(t *kmsg.ProduceRequestTopic, in *kmsg.ProduceRequestTopicPartition) (
	*partition.Leader, error,
) {
	topic, kafkaErr := p.view.topic(t.Topic, t.TopicID)
	if kafkaErr != nil {
		return nil, kafkaErr
	}
	if topic.Internal() && (topic.Name != metadata.KeysTopic || !ktag.Internal(&in.UnknownTags)) {
		return nil, kerr.InvalidTopicException
	}
	return p.view.leader(topic, in.Partition)
}

// sayLeader tells who leads the partition, as far as this node knows, to a client that does not know.
func (p *producer) sayLeader(t *kmsg.ProduceRequestTopic, out *kmsg.ProduceResponseTopicPartition) {
	topic, unknown := p.view.topic(t.Topic, t.TopicID)
	if unknown != nil || out.ErrorCode != kerr.NotLeaderForPartition.Code || int(out.Partition) >= len(topic.Partitions) {
		return
	}
	meta := &topic.Partitions[out.Partition]
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = meta.Leader, meta.LeaderEpoch
}

func (p *producer) refuse(out *kmsg.ProduceResponseTopicPartition, err error) {
	refuseProduced(out, err)
	p.broker.metrics.refused(out.ErrorCode)
}

// awaitCommitted waits for all batches within the given time, here or under other leaders. A batch that is not decided
// by then is answered with REQUEST_TIMED_OUT: it may be committed later.
func (b *Broker) awaitCommitted(ctx context.Context, waiting []produced, limit time.Duration) error {
	if len(waiting) == 0 {
		return nil
	}
	b.awaiting.Add(1)
	defer b.awaited()
	w := b.waiters.Get().(*partition.Waiter)
	defer b.waiters.Put(w)
	w.Start(max(limit, 0))
	defer w.Stop()
	for i := range waiting {
		p := &waiting[i]
		err := p.leader.AwaitCommitted(ctx, w, &p.at)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return noAnswer(ctx)
		}
		b.noticed(p.leader.Name(), err)
		p.undecided(err)
		b.metrics.refused(p.answer.ErrorCode)
	}
	return nil
}

// undecided answers for a batch that was appended and not committed.
func (p *produced) undecided(err error) {
	if errors.Is(err, partition.ErrDiscarded) {
		p.batch.SetBaseOffset(0) // the same bytes may go to another leader
		p.batch.SetLeaderEpoch(-1)
		p.answer.UnknownTags = kmsg.Tags{}
		refuseProduced(p.answer, err)
		return
	}
	offset := p.answer.BaseOffset
	refuseProduced(p.answer, err)
	p.answer.BaseOffset = offset // where it lies, should it be committed yet
}

// awaited takes note that a produce waits no longer.
func (b *Broker) awaited() {
	if b.awaiting.Add(-1) == 0 && b.life.leaving.Load() {
		select {
		case b.answered <- struct{}{}:
		default:
		}
	}
}

// noAnswer is the error for a produce whose context ended: what was appended stays.
func noAnswer(ctx context.Context) error {
	return fmt.Errorf("produce given up, its outcome is unknown: %w", context.Cause(ctx))
}

// refuseProduce finds what is wrong with a request as a whole.
func refuseProduce(req *kmsg.ProduceRequest) error {
	if err := refuseTransaction(req); err != nil {
		return err
	}
	if req.Acks != acksAll && req.Acks != 0 && req.Acks != acksLeader {
		return kerr.InvalidRequiredAcks
	}
	return nil
}

func refuseAll(resp *kmsg.ProduceResponse, err error) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			refuseProduced(&resp.Topics[i].Partitions[j], err)
		}
	}
}

// refuseProduced fills in the answer for a batch that was refused.
func refuseProduced(out *kmsg.ProduceResponseTopicPartition, err error) {
	r := explain(err)
	out.ErrorCode, out.BaseOffset, out.LogAppendTime = r.Code, -1, -1
	out.ErrorMessage = &r.Message
	for _, f := range r.Records {
		e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		e.RelativeOffset, e.ErrorMessage = f.Index, &f.Message
		out.ErrorRecords = append(out.ErrorRecords, e)
	}
	if r.NotWritten {
		ktag.SetNotWritten(&out.UnknownTags)
	}
	var (
		sequence *partition.SequenceError
		fenced   *partition.FencedError
		expected *partition.ExpectedOffsetError
	)
	switch {
	case errors.As(err, &sequence):
		ktag.SetExpectedSequence(&out.UnknownTags, sequence.Expected)
	case errors.As(err, &fenced):
		ktag.SetCurrentEpoch(&out.UnknownTags, fenced.Current)
	case errors.As(err, &expected):
		ktag.SetActualOffset(&out.UnknownTags, expected.Actual)
	}
}

// newProduceResponse makes the answer with a place for each partition of the request. Nearly every
// request has one partition: then the parts of the answer are one piece of memory.
func newProduceResponse(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	var resp *kmsg.ProduceResponse
	if len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 1 {
		single := new(struct {
			resp       kmsg.ProduceResponse
			topics     [1]kmsg.ProduceResponseTopic
			partitions [1]kmsg.ProduceResponseTopicPartition
		})
		resp = &single.resp
		resp.Topics = single.topics[:]
		resp.Topics[0].Partitions = single.partitions[:]
	} else {
		resp = new(kmsg.ProduceResponse)
		resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
		for i := range resp.Topics {
			resp.Topics[i].Partitions = make([]kmsg.ProduceResponseTopicPartition, len(req.Topics[i].Partitions))
		}
	}
	resp.Version = req.Version
	for i := range resp.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic, out.TopicID = in.Topic, in.TopicID
		for j := range out.Partitions {
			p := &out.Partitions[j]
			p.Default()
			p.Partition, p.BaseOffset, p.LogAppendTime = in.Partitions[j].Partition, -1, -1
		}
	}
	return resp
}
