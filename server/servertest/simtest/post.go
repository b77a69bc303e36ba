package simtest

import (
	"encoding/json"
	"fmt"
	"net/http"

	"millrace/server/servertest/history"
)

// poster makes transfers too, each by one HTTP request that is sent again under its Idempotency-Key until it is
// answered.
type poster struct {
	*client
	count int
}

func (p *poster) run() {
	for p.think() {
		p.count++
		key := fmt.Sprintf("%s-%d", p.name, p.count)
		o := &history.Op{
			Kind: history.Txn, Client: p.name, Session: key, API: "native", Invoke: p.s.h.Now(),
			Txn: &history.Transaction{ID: key, ProducerID: -1, Epoch: int16(p.count), Commit: true, Again: true},
		}
		o.Txn.Decide = o.Invoke
		o.Txn.ProducerID -= int64(len(p.name)) + int64(p.name[len(p.name)-1])
		body := p.body(o, 1+p.rng.IntN(100))
		answer := p.post(o, key, body)
		if o.Return = p.s.h.Now(); answer != nil {
			p.repeat(o, key, body, answer)
		}
		p.s.h.Add(o)
	}
}

// body is a request for a transfer.
func (p *poster) body(o *history.Op, amount int) string {
	text := ""
	for i, name := range bankTopics() {
		at := p.s.exactPlace(p.rng, name)
		value := fmt.Sprintf("%s of %s: %d", name, o.Session, amount*(2*i-1))
		o.Txn.Sends = append(o.Txn.Sends, history.Sent{Partition: at, Value: value, Offset: -1})
		text += fmt.Sprintf(`,{"topic":%q,"partition":%d,"key_text":%q,"value":%q}`, name, at.Number, keyOf(value), value)
	}
	return `{"records":[` + text[1:] + `]}`
}

func (p *poster) request(key, body string) request {
	header := jsonBody()
	header["Idempotency-Key"] = key
	return request{node: p.node(), method: "POST", path: "/v1/transactions", header: header, body: body}
}

// post sends the request until it is done, and gives the answer, or until that makes no sense.
func (p *poster) post(o *history.Op, key, body string) (answer []byte) {
	o.Outcome = history.Fail
	for range 15 {
		q := p.request(key, body)
		if p.disturb(q) {
			o.Outcome = history.Info
		}
		r := p.do(p.ctx, q)
		outcome, note := nativeOutcome(&r)
		o.Node = q.node.name
		if note = fmt.Sprintf("; at %.6f %s %s %s", p.s.h.Now().Seconds(), q.node.name, outcome, note); len(o.Note) < 2000 {
			o.Note += note
		}
		if outcome == history.OK {
			o.Outcome = history.OK
			p.places(o, &r)
			return r.body
		}
		if outcome == history.Info {
			o.Outcome = history.Info
		}
		if r.err == nil && r.status < 500 && r.status != http.StatusConflict && r.status != http.StatusTooManyRequests {
			return nil
		}
		if !p.think() {
			return nil
		}
	}
	return nil
}

// places reads where the records are.
func (p *poster) places(o *history.Op, r *reply) {
	var answer struct {
		Offsets []struct {
			Topic     string
			Partition int32
			Base      int64 `json:"base_offset"`
		}
	}
	if err := json.Unmarshal(r.body, &answer); err != nil {
		p.s.violate("API", "%s: %v in %.200s", o, err, r.body)
		return
	}
	for _, at := range answer.Offsets {
		for i := range o.Txn.Sends {
			if s := &o.Txn.Sends[i]; s.Partition == (history.Partition{Topic: at.Topic, Number: at.Partition}) {
				s.Offset = at.Base
			}
		}
	}
}

// repeat perhaps asks for the same again, or for something else under the same key (I3).
func (p *poster) repeat(o *history.Op, key, body string, answer []byte) {
	if p.rng.IntN(4) > 0 || !p.think() {
		return
	}
	other := p.rng.IntN(2) == 0
	if other {
		body += " "
	}
	r := p.do(p.ctx, p.request(key, body))
	switch {
	case r.err != nil || r.status >= 500 || r.status == http.StatusConflict:
	case other && r.status != http.StatusUnprocessableEntity:
		p.s.violate("I3", "another body under the key %s is answered %d %.200s", key, r.status, r.body)
	case !other && string(r.body) != string(answer) && !sameButOffsets(answer, r.body):
		p.s.violate("I3", "%s was answered %.300s; again, %d %.300s", o, answer, r.status, r.body)
	}
}

// sameButOffsets says whether an answer tells of the same transaction as another, and that the offsets are lost: the
// node died before the first answer was kept.
func sameButOffsets(first, again []byte) bool {
	var a, b struct {
		State       string
		Transaction struct {
			ID    string
			Epoch int32
		}
		Lost bool `json:"offsets_lost"`
	}
	if json.Unmarshal(first, &a) != nil || json.Unmarshal(again, &b) != nil {
		return false
	}
	return b.Lost && a.State == b.State && a.Transaction == b.Transaction
}
