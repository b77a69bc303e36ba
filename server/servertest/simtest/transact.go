package simtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/servertest/history"
)

// transactor is a producer of transactions. It goes on in the epoch that the end of each transaction gives it, and asks
// for another one when it does not know how one has ended.
type transactor struct {
	*client
	id       string
	producer int64 // -1: it has none
	epoch    int16
	seqs     map[history.Partition]int32
	op       *history.Op // the transaction that is open, nil if none
	lives    int
	count    int // of values
}

func newTransactor(c *client, id string) *transactor {
	return &transactor{client: c, id: id, producer: -1}
}

// session is what the history calls the transactor since it asked for a producer last.
func (t *transactor) session() string { return fmt.Sprintf("%s/%d", t.id, t.lives) }

// value makes one that nobody else sends.
func (t *transactor) value(format string, args ...any) string {
	t.count++
	return fmt.Sprintf("%s/%d", t.session(), t.count) + fmt.Sprintf(format, args...)
}

// ready sees to it that there is a producer.
func (t *transactor) ready() bool {
	if t.producer >= 0 {
		return true
	}
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionalID, r.TransactionTimeoutMillis = &t.id, int32(t.s.plan.exact.timeout.Milliseconds())
	o := &history.Op{Kind: history.Init, Client: t.name, Invoke: t.s.h.Now(), Txn: &history.Transaction{ID: t.id}}
	resp, err := ask[*kmsg.InitProducerIDResponse](t.client, t.s.plan.patience, r)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if o.Return = t.s.h.Now(); err != nil {
		o.Note = err.Error()
		t.s.h.Add(o)
		return false
	}
	t.producer, t.epoch, t.seqs = resp.ProducerID, resp.ProducerEpoch, map[history.Partition]int32{}
	t.lives++
	o.Outcome, o.Session, o.Txn.ProducerID, o.Txn.Epoch = history.OK, t.session(), t.producer, t.epoch
	t.s.h.Add(o)
	return true
}

// begin begins a transaction. Nobody is told.
func (t *transactor) begin() {
	t.op = &history.Op{
		Kind: history.Txn, Client: t.name, Session: t.session(), Invoke: t.s.h.Now(),
		Txn: &history.Transaction{ID: t.id, ProducerID: t.producer, Epoch: t.epoch},
	}
}

// leave gives up the transaction that is open, and the producer: nobody will ask to commit it.
func (t *transactor) leave(why error) {
	if t.op != nil {
		t.op.Outcome, t.op.Return, t.op.Note = history.Fail, t.s.h.Now(), fmt.Sprint("given up: ", why)
		t.s.h.Add(t.op)
	}
	t.op, t.producer = nil, -1
}

// wire is how a value is written: as the other producers do, so that everybody reads it.
func wire(value string) *record.Record {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	at := time.Now().Add(-6 * time.Hour) // no clock is so far behind that it is the future
	return &record.Record{Timestamp: at.UnixMilli(), Key: []byte(keyOf(value)), Value: text}
}

// unwire is the reverse of wire.
func unwire(r *record.Record) string {
	var value string
	if err := json.Unmarshal(r.Value, &value); err != nil {
		return fmt.Sprintf("a value that is no text: %.80q", r.Value)
	}
	return shown(value, string(r.Key))
}

// send sends values to a partition, again and again until they are acknowledged. An error says that the transaction
// cannot be committed.
func (t *transactor) send(to history.Partition, values ...string) error {
	seq := t.seqs[to]
	var b record.Builder
	b.SetProducer(t.producer, t.epoch, seq)
	b.SetTransactional()
	at := len(t.op.Txn.Sends)
	for _, v := range values {
		b.Append(wire(v))
		t.op.Txn.Sends = append(t.op.Txn.Sends, history.Sent{Partition: to, Value: v, Offset: -1})
	}
	batch := b.Build()
	var why error
	for range 25 {
		base, err := t.produce(to, batch)
		switch {
		case err == nil:
			for i := range values {
				t.op.Txn.Sends[at+i].Offset = base + int64(i)
			}
			t.seqs[to] = record.AddSequence(seq, int32(len(values)))
			return nil
		case !again(err):
			return err
		case !sleep(t.ctx, around(t.rng, 100*time.Millisecond)):
			return err
		}
		why = err
	}
	return why
}

// again says whether the same may be asked again.
func again(err error) bool {
	return errors.Is(err, errUnsent) || errors.Is(err, errLost) || kerr.IsRetriable(err) ||
		errors.Is(err, kerr.ConcurrentTransactions) || errors.Is(err, kerr.UnknownServerError)
}

func (t *transactor) produce(to history.Partition, batch record.Batch) (base int64, err error) {
	r := kmsg.NewPtrProduceRequest()
	r.TransactionID, r.Acks, r.TimeoutMillis = &t.id, -1, int32(t.s.plan.patience.Milliseconds())
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = to.Topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = to.Number, batch
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	resp, err := ask[*kmsg.ProduceResponse](t.client, t.s.plan.patience, r)
	if err != nil {
		return -1, err
	}
	p := &resp.Topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

// end ends the transaction that is open, and says how it has.
func (t *transactor) end(commit bool) history.Outcome {
	o := t.op
	t.op = nil
	o.Txn.Commit, o.Txn.Decide = commit, t.s.h.Now()
	maybe, err := false, error(nil)
	for range 40 {
		var resp *kmsg.EndTxnResponse
		resp, err = t.ask(commit)
		if err == nil {
			o.Outcome = history.OK
			if resp.ProducerID != t.producer || resp.ProducerEpoch != t.epoch {
				t.seqs = map[history.Partition]int32{}
			}
			t.producer, t.epoch = resp.ProducerID, resp.ProducerEpoch
			break
		}
		maybe = maybe || !errors.Is(err, errUnsent) && again(err)
		if !again(err) || !sleep(t.ctx, around(t.rng, 100*time.Millisecond)) {
			break
		}
	}
	if err != nil {
		if o.Outcome = history.Fail; maybe {
			o.Outcome = history.Info
		}
		o.Note, t.producer = err.Error(), -1
	}
	o.Return = t.s.h.Now()
	t.s.h.Add(o)
	return o.Outcome
}

func (t *transactor) ask(commit bool) (*kmsg.EndTxnResponse, error) {
	r := kmsg.NewPtrEndTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = t.id, t.producer, t.epoch, commit
	resp, err := ask[*kmsg.EndTxnResponse](t.client, t.s.plan.patience, r)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	return resp, err
}

// mover makes transfers between accounts in two topics (W3), and appender writes to and reads from lists (W4).
type (
	mover    struct{ *transactor }
	appender struct {
		*transactor
		views map[history.Partition]*view
	}
)

func (m mover) run() {
	for m.think() {
		if !m.ready() {
			continue
		}
		m.begin()
		amount := 1 + m.rng.IntN(100)
		id := m.value("")
		var err error
		for _, leg := range []struct {
			topic string
			sum   int
		}{{"bank0", -amount}, {"bank1", amount}} {
			if to := m.s.exactPlace(m.rng, leg.topic); err == nil {
				err = m.send(to, fmt.Sprintf("%s of %s: %d", leg.topic, id, leg.sum))
			}
			if m.rng.IntN(4) == 0 && !m.think() {
				err = errLost
			}
		}
		m.finish(err)
	}
}

// finish ends a transaction in some way.
func (t *transactor) finish(err error) {
	switch n := t.rng.IntN(20); {
	case t.ctx.Err() != nil || n == 0:
		t.leave(err)
	case err != nil || n < 4:
		t.end(false)
	default:
		t.end(true)
	}
}

func (a appender) run() {
	for a.think() {
		if !a.ready() {
			continue
		}
		if a.views == nil || a.rng.IntN(20) == 0 {
			a.views = map[history.Partition]*view{}
		}
		a.begin()
		var err error
		sent := false
		for n := 1 + a.rng.IntN(4); n > 0 && err == nil; n-- {
			at := a.s.exactPlace(a.rng, listTopic)
			if sent && a.rng.IntN(3) == 0 {
				a.poll(at)
				continue
			}
			values := make([]string, 1+a.rng.IntN(3))
			for i := range values {
				values[i] = a.value("")
			}
			err, sent = a.send(at, values...), true
			if a.rng.IntN(4) == 0 && !a.think() {
				err = errLost
			}
		}
		a.finish(err)
	}
}

// poll reads in the midst of a transaction, on from where the transactor has come to.
func (a *appender) poll(at history.Partition) {
	v := a.views[at]
	if v == nil {
		v = &view{c: a.client, partition: at, session: fmt.Sprintf("%s from %v", a.session(), a.s.h.Now())}
		a.views[at] = v
	}
	o := v.poll(0)
	for i := range o.Values {
		a.op.Txn.Reads = append(a.op.Txn.Reads, history.Sent{Partition: at, Value: o.Values[i], Offset: o.Offsets[i]})
	}
}
