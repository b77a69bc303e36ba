package simtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"millrace/server/servertest/history"
)

// teller makes transfers too, by the long form of transactions over HTTP: it begins, writes each leg with its
// Producer-Seq until it is acknowledged, and commits or aborts until it is told of that, at any node each time.
type teller struct {
	*client
	epoch    int // of the next transaction; -1: it is to begin
	producer int64
	count    int
	op       *history.Op // the transaction that is open
}

func newTeller(c *client) *teller {
	return &teller{client: c, epoch: -1, producer: -1000 - int64(c.name[len(c.name)-1])}
}

func (w *teller) path(rest string) string { return "/v1/transactions/" + w.name + rest }

func (w *teller) run() {
	for w.think() {
		if w.epoch < 0 && !w.begin() {
			continue
		}
		w.count++
		w.op = &history.Op{
			Kind: history.Txn, Client: w.name, Session: w.name, API: "native", Invoke: w.s.h.Now(),
			Txn: &history.Transaction{ID: w.name, ProducerID: w.producer, Epoch: int16(w.epoch)},
		}
		w.finish(w.transfer(1 + w.rng.IntN(100)))
	}
}

// errRefused says that something was answered otherwise than with success, for good.
var errRefused = errors.New("refused")

// answered is what the answers to a begin and to an end tell.
type answered struct {
	State string
	Epoch *int
}

// begin takes the transactional id over.
func (w *teller) begin() bool {
	timeout := w.s.plan.exact.timeout
	o := &history.Op{
		Kind: history.Init, Client: w.name, API: "native", Invoke: w.s.h.Now(), Session: w.name,
		Txn: &history.Transaction{ID: w.name, ProducerID: w.producer},
	}
	r := w.do(w.ctx, request{node: w.node(), method: "POST", path: w.path("?timeout=" + timeout.String())})
	o.Return = w.s.h.Now()
	o.Outcome, o.Note = nativeOutcome(&r)
	if o.Outcome == history.OK {
		w.next(o, &r, "open")
		o.Txn.Epoch = int16(w.epoch)
	}
	w.s.h.Add(o)
	return w.epoch >= 0
}

// next takes over the epoch of the next transaction.
func (w *teller) next(o *history.Op, r *reply, state string) {
	var a answered
	if err := json.Unmarshal(r.body, &a); err != nil || a.Epoch == nil || a.State != state {
		w.s.violate("API", "%s: %v in %.200s", o, err, r.body)
		w.epoch = -1
		return
	}
	w.epoch = *a.Epoch
}

// transfer writes both legs. An error says that the transaction cannot be committed.
func (w *teller) transfer(amount int) error {
	for i, name := range bankTopics() {
		to := w.s.exactPlace(w.rng, name)
		value := fmt.Sprintf("%s of %s/%d: %d", name, w.name, w.count, amount*(2*i-1))
		if err := w.send(i, to, value); err != nil {
			return err
		}
		if w.rng.IntN(4) == 0 && !w.think() {
			return errLost
		}
	}
	return nil
}

// send writes a value, again until that is acknowledged.
func (w *teller) send(seq int, to history.Partition, value string) error {
	at := len(w.op.Txn.Sends)
	w.op.Txn.Sends = append(w.op.Txn.Sends, history.Sent{Partition: to, Value: value, Offset: -1})
	body := fmt.Sprintf(`[{"partition":%d,"key_text":%q,"value":%q}]`, to.Number, keyOf(value), value)
	for range 15 {
		q := request{
			node: w.node(), method: "POST", path: w.path(fmt.Sprintf("/records?topic=%s&epoch=%d", to.Topic, w.epoch)),
			body: body, header: map[string]string{
				"Content-Type": "application/vnd.millrace.records+json", "Producer-Seq": strconv.Itoa(seq),
			},
		}
		w.disturb(q)
		r := w.do(w.ctx, q)
		outcome, note := nativeOutcome(&r)
		w.note(&q, "records", outcome, note)
		switch {
		case outcome == history.OK:
			w.place(&w.op.Txn.Sends[at], &r)
			return nil
		case !passes(&r):
			return errRefused
		case !w.think():
			return errLost
		}
	}
	return errLost
}

// passes says whether the same may be asked again.
func passes(r *reply) bool {
	return r.err != nil || r.status >= 500 || r.status == http.StatusConflict || r.status == http.StatusTooManyRequests
}

func (w *teller) note(q *request, what string, outcome history.Outcome, note string) {
	if len(w.op.Note) < 2000 {
		w.op.Note += fmt.Sprintf("; %s at %.6f %s %s %s", what, w.s.h.Now().Seconds(), q.node.name, outcome, note)
	}
}

// place reads where a value is. The answer to one that was written already may have forgotten.
func (w *teller) place(s *history.Sent, r *reply) {
	var answer struct {
		Offsets []struct {
			Partition int32
			Base      *int64 `json:"base_offset"`
		}
	}
	err := json.Unmarshal(r.body, &answer)
	if err != nil || len(answer.Offsets) != 1 || answer.Offsets[0].Partition != s.Partition.Number {
		w.s.violate("API", "%s: %v in %.200s", w.op, err, r.body)
		return
	}
	if base := answer.Offsets[0].Base; base != nil {
		s.Offset = *base
	}
}

// finish ends the transaction in some way.
func (w *teller) finish(err error) {
	switch n := w.rng.IntN(20); {
	case w.ctx.Err() != nil || n == 0: // nobody will ask to commit it
		w.op.Outcome, w.op.Return = history.Fail, w.s.h.Now()
		w.s.h.Add(w.op)
		w.epoch = -1
	case err != nil || n < 4:
		w.end("abort", "aborted")
	default:
		w.op.Txn.Commit = true
		w.end("commit", "committed")
	}
}

// end asks for the end until it is told of that. As long as one of the tries may have come about, it may have ended so.
func (w *teller) end(how, state string) {
	o := w.op
	o.Txn.Decide, o.Outcome = w.s.h.Now(), history.Fail
	path := w.path(fmt.Sprintf("/%s?epoch=%d", how, w.epoch))
	w.epoch = -1
	for range 15 {
		q := request{node: w.node(), method: "POST", path: path}
		if w.disturb(q) {
			o.Outcome = history.Info
		}
		r := w.do(w.ctx, q)
		outcome, note := nativeOutcome(&r)
		w.note(&q, how, outcome, note)
		if outcome == history.OK {
			o.Outcome = history.OK
			w.next(o, &r, state)
			break
		}
		if outcome == history.Info {
			o.Outcome = history.Info
		}
		if !passes(&r) || !w.think() {
			break
		}
	}
	o.Return = w.s.h.Now()
	w.s.h.Add(o)
}
