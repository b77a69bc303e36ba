package simtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"

	"millrace/server/servertest/history"
)

// keyOf is the key that goes with a value; its length varies, so that batches have many sizes.
func keyOf(value string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(value))
	return "key of " + value + strings.Repeat("-", int(h.Sum32()%300))
}

// shown is how a value that was read goes into the history: a wrong key makes it one that nobody sent.
func shown(value, key string) string {
	if key == keyOf(value) {
		return value
	}
	return fmt.Sprintf("%s with key %.60q", value, key)
}

// producer sends records, session after session. A session sends to one partition over one API, one request at a time.
// It ends when it does not know what became of a request, unless it can send it again safely.
type producer struct {
	*client
	sessions int
}

// session is one of a producer's.
type session struct {
	p          *producer
	name       string
	topic      *topic
	partition  int
	api        string // native, v2 or v3
	acks       int
	idempotent bool
	seq        int
	try        int    // of the request
	calm       bool   // nothing happens to its requests on the way
	why        string // the last request was not done
	ended      bool   // the server knows of another state than the session: it can only begin anew
}

func (p *producer) run() {
	for p.s.ctx.Err() == nil {
		p.sessions++
		s := p.newSession()
		for range 3 + p.rng.IntN(15) {
			if !s.next() || !p.think() {
				break
			}
		}
	}
}

func (p *producer) newSession() *session {
	s := &session{p: p, name: fmt.Sprintf("%s/%d", p.name, p.sessions), api: "native", acks: -1}
	s.topic, s.partition = p.s.place(p.rng)
	switch p.rng.IntN(10) {
	case 0, 1, 2, 3:
		s.idempotent = true
		s.acks = pick(p.rng, -1, -1, -1, 1)
	case 4:
		s.acks = 1
	case 5:
		s.acks = 0
	case 6:
		s.api = "v2"
	case 7:
		s.api = "v3"
	}
	return s
}

// op is the record of a request that is about to be sent.
func (s *session) op(values []string) *history.Op {
	return &history.Op{
		Kind: history.Send, Client: s.p.name, Session: s.name, Seq: s.seq, API: s.api, Invoke: s.p.s.h.Now(),
		Partition: history.Partition{Topic: s.topic.name, Number: int32(s.partition)},
		Values:    values, Acks: s.acks, Base: -1, Idempotent: s.idempotent, Again: s.try > 0,
	}
}

// add takes an operation that has ended into the history.
func (s *session) add(o *history.Op) {
	o.Return = s.p.s.h.Now()
	s.p.s.h.Add(o)
}

// next sends the next request, again and again where that is safe, and says whether the session goes on.
func (s *session) next() bool {
	defer func() { s.seq++ }()
	values := make([]string, 1+s.p.rng.IntN(4))
	for i := range values {
		values[i] = fmt.Sprintf("%s/%d/%d", s.name, s.seq, i)
	}
	tries := 1
	if s.idempotent {
		tries = 20
	}
	for s.try = range tries {
		var outcome history.Outcome
		switch s.api {
		case "v2", "v3":
			outcome = s.compatible(values)
		default:
			outcome = s.native(values)
		}
		if outcome == history.OK {
			return true
		}
		if !s.idempotent {
			return outcome == history.Fail && s.p.think()
		}
		if outcome == history.Fail && s.ended || !s.p.think() {
			return false
		}
	}
	return false
}

// native sends values by the native API.
func (s *session) native(values []string) history.Outcome {
	var body []byte
	body = append(body, '[')
	for i, v := range values {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"key_text":%q,"value":%q}`, keyOf(v), v)
	}
	q := request{
		node: s.p.node(), method: "POST", body: string(append(body, ']')),
		path: fmt.Sprintf("/v1/topics/%s/records?partition=%d&acks=%s",
			realName(s.topic.name), s.partition, acksName(s.acks)),
		header: map[string]string{"Content-Type": "application/vnd.millrace.records+json"},
	}
	if s.idempotent {
		q.header["Producer-Id"] = s.name
		q.header["Producer-Seq"] = strconv.Itoa(s.seq)
	}
	o := s.op(values)
	o.Node = q.node.name
	o.Doubled = !s.calm && s.p.disturb(q)
	r := s.p.do(s.p.ctx, q)
	if o.Outcome, o.Note = nativeOutcome(&r); o.Doubled && o.Outcome == history.Fail {
		o.Outcome = history.Info // what became of the other copy, nobody says
	}
	s.why = o.Note
	s.ended = r.status == http.StatusConflict || r.status == http.StatusForbidden
	if o.Outcome == history.OK {
		s.nativePlaces(o, &r)
	}
	s.add(o)
	return o.Outcome
}

func acksName(acks int) string {
	if acks < 0 {
		return "all"
	}
	return strconv.Itoa(acks)
}

// nativePlaces reads where records were stored.
func (s *session) nativePlaces(o *history.Op, r *reply) {
	var answer struct {
		Offsets []struct {
			Partition int32
			Base      *int64 `json:"base_offset"`
			Count     int
			Duplicate bool
		}
	}
	err := json.Unmarshal(r.body, &answer)
	switch {
	case err != nil || len(answer.Offsets) > 1 || len(answer.Offsets) == 0 && o.Acks != 0:
		s.p.s.violate("API", "%s: cannot read the answer %s", o, r.body)
	case len(answer.Offsets) == 1 && answer.Offsets[0].Partition != o.Partition.Number:
		s.p.s.violate("API", "%s: stored in another partition: %s", o, r.body)
	case len(answer.Offsets) == 1 && o.Acks != 0 && answer.Offsets[0].Base != nil:
		o.Base = *answer.Offsets[0].Base
		if answer.Offsets[0].Duplicate {
			o.Note = "duplicate"
		}
	}
}

// nativeOutcome is what the native API says became of a request that changes something.
func nativeOutcome(r *reply) (history.Outcome, string) {
	if r.err != nil {
		if r.unsent() {
			return history.Fail, r.err.Error()
		}
		return history.Info, r.err.Error()
	}
	if r.status < 300 {
		return history.OK, ""
	}
	var problem struct {
		Outcome, Title, Detail string
	}
	_ = json.Unmarshal(r.body, &problem)
	note := fmt.Sprintf("%d %s: %s", r.status, problem.Title, problem.Detail)
	if problem.Outcome == "failed" {
		return history.Fail, note
	}
	return history.Info, note
}

// compatible sends values by one of the compatible APIs. Each record has a fate of its own.
func (s *session) compatible(values []string) history.Outcome {
	q := request{node: s.p.node(), method: "POST", header: map[string]string{}}
	var body []byte
	if s.api == "v2" {
		q.path = fmt.Sprintf("/topics/%s/partitions/%d", s.topic.name, s.partition)
		q.header["Content-Type"] = "application/vnd.kafka.json.v2+json"
		body = append(body, `{"records":[`...)
		for i, v := range values {
			if i > 0 {
				body = append(body, ',')
			}
			body = fmt.Appendf(body, `{"key":%q,"value":%q}`, keyOf(v), v)
		}
		body = append(body, "]}"...)
	} else {
		q.path = fmt.Sprintf("/v3/clusters/%s/topics/%s/records", s.p.s.clusterID, s.topic.name)
		q.header["Content-Type"] = "application/json"
		for _, v := range values {
			body = fmt.Appendf(body, `{"partition_id":%d,"key":{"type":"STRING","data":%q},"value":{"type":"JSON","data":%q}}`,
				s.partition, keyOf(v), v)
		}
	}
	q.body = string(body)
	ops := make([]*history.Op, len(values))
	doubled := s.p.disturb(q)
	for i := range ops {
		ops[i] = s.op(values[i : i+1])
		ops[i].Node, ops[i].Doubled = q.node.name, doubled
		s.seq++
	}
	r := s.p.do(s.p.ctx, q)
	return s.fates(ops, &r)
}

// fate is what a compatible API says of a record.
type fate struct {
	Offset    *int64 `json:"offset"`
	ErrorCode *int   `json:"error_code"`
	Error     string `json:"error"`
	Message   string `json:"message"`
}

// fates reads what became of each record, and says what of all of them.
func (s *session) fates(ops []*history.Op, r *reply) history.Outcome {
	told := readFates(r.body)
	worst := history.OK
	for i, o := range ops {
		switch {
		case i < len(told) && r.err == nil:
			o.Outcome, o.Note = told[i].outcome()
			if o.Outcome == history.OK {
				o.Base = *told[i].Offset
			}
		case r.unsent() || r.err == nil && r.status >= 400 && r.status < 500:
			o.Outcome, o.Note = history.Fail, fmt.Sprint(r.status, " ", r.err, " ", string(r.body))
		default:
			o.Note = fmt.Sprint(r.status, " ", r.err)
		}
		if o.Doubled && o.Outcome == history.Fail {
			o.Outcome = history.Info
		}
		if worst == history.OK || o.Outcome == history.Info {
			worst = o.Outcome
		}
	}
	for i, o := range ops {
		if worst == history.Info && len(ops) > 1 {
			o.Session = fmt.Sprintf("%s.%d", o.Session, i) // what is unknown may come later than what follows it
		}
		s.add(o)
	}
	return worst
}

// readFates reads the answers of both APIs: v2 has a list, v3 receipts one after the other.
func readFates(body []byte) (told []fate) {
	var list struct{ Offsets []fate }
	if json.Unmarshal(body, &list) == nil && len(list.Offsets) > 0 {
		return list.Offsets
	}
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		var f fate
		if d.Decode(&f) != nil {
			return told
		}
		told = append(told, f)
	}
}

func (f *fate) outcome() (history.Outcome, string) {
	code := 0
	if f.ErrorCode != nil {
		code = *f.ErrorCode
	}
	note := fmt.Sprint(code, " ", f.Error, f.Message)
	for code >= 1000 {
		code /= 10
	}
	switch {
	case (code == 0 || code == 200) && f.Offset != nil:
		return history.OK, ""
	case code >= 400 && code < 500 && code != 408:
		return history.Fail, note
	}
	return history.Info, note
}
