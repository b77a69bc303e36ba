package simtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"millrace/server/servertest/history"
)

// worker is a member of a group that reads by the native API, page after page from any node. It counts as done with a
// page when it asks for the next, or says so.
type worker struct {
	*client
	group    string
	auto     bool
	lives    int
	id       string
	delivery int64
	got      []workOffset // what the last read gave, to be committed
	lost     bool         // the last read, or its answer
}

// workOffset is an offset of a group in JSON.
type workOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// workPage is a page of records in JSON.
type workPage struct {
	Records []struct {
		Topic string
		entry
	}
	Delivery int64
}

func (w *worker) run() {
	w.forget()
	for w.think() {
		switch w.rng.IntN(40) {
		case 0:
			// Who leaves says that all is done that was delivered. That it was told of all, only a good network promises.
			if !w.auto || !w.lost && w.s.plan.chaos == 0 {
				w.leave()
			}
		case 1: // it dies
			w.forget()
		case 2: // it is paused
			sleep(w.ctx, around(w.rng, 2*w.s.plan.exact.session))
		}
		w.read()
		if !w.auto && len(w.got) > 0 && w.rng.IntN(2) == 0 {
			w.commit()
		}
	}
}

func (w *worker) forget() {
	w.lives++
	w.id, w.delivery, w.got, w.lost = fmt.Sprintf("%s.%d", w.name, w.lives), 0, nil, false
}

func (w *worker) path(rest string) string { return "/v1/groups/" + url.PathEscape(w.group) + rest }

// read reads a page.
func (w *worker) read() {
	mode := "manual"
	if w.auto {
		mode = "auto"
	}
	q := url.Values{
		"topics": {listTopic}, "member": {w.id}, "auto_offset_reset": {"earliest"}, "wait": {"200ms"}, "commit": {mode},
		"session":     {strconv.Itoa(int(w.s.plan.exact.session.Milliseconds())) + "ms"},
		"max_records": {strconv.Itoa(pick(w.rng, 3, 50))}, "isolation": {"read_committed"},
		"ack": {strconv.FormatInt(w.delivery, 10)},
	}
	sent := request{
		node: w.node(), method: "GET", path: w.path("/records?" + q.Encode()), wait: time.Second + w.s.plan.patience,
		long: time.Second, header: map[string]string{"Accept": "application/json"},
	}
	invoke := w.s.h.Now()
	w.disturb(sent)
	r := w.do(w.ctx, sent)
	w.got, w.lost = nil, r.err != nil
	note := fmt.Sprintf("ack %d: %d %v", w.delivery, r.status, r.err)
	switch {
	case r.err != nil:
		w.fail(sent.node, invoke, note)
	case r.status == http.StatusConflict:
		w.fail(sent.node, invoke, note)
		w.forget() // the group went on without it
	case r.status == http.StatusOK:
		var page workPage
		if err := json.Unmarshal(r.body, &page); err != nil {
			w.s.violate("API", "%s: page for %s: %v in %.200s", sent.node.name, w.id, err, r.body)
			return
		}
		w.delivery = page.Delivery
		w.take(sent.node, invoke, &page)
	default:
		w.fail(sent.node, invoke, note+string(r.body))
	}
}

// fail takes a read into the history that gave nothing.
func (w *worker) fail(from *machine, invoke time.Duration, note string) {
	w.s.h.Add(&history.Op{
		Kind: history.Poll, Client: w.name, Session: w.id, Node: from.name, API: "native", Invoke: invoke,
		Return: w.s.h.Now(), Outcome: history.Fail, Note: note,
		Group: &history.Membership{Group: w.group, Member: w.id, Protocol: history.Worker},
	})
}

// take takes the records of a page into the history, an operation a partition.
func (w *worker) take(from *machine, invoke time.Duration, page *workPage) {
	of := map[history.Partition]*history.Op{}
	var order []*history.Op
	for i := range page.Records {
		rec := &page.Records[i]
		p := history.Partition{Topic: rec.Topic, Number: rec.Partition}
		o := of[p]
		if o == nil {
			o = &history.Op{
				Kind: history.Poll, Client: w.name, Session: w.id, Seq: int(page.Delivery), Node: from.name, API: "native",
				Invoke: invoke, Return: w.s.h.Now(), Outcome: history.OK, Partition: p, From: rec.Offset,
				Group: &history.Membership{Group: w.group, Member: w.id, Protocol: history.Worker},
			}
			of[p], order = o, append(order, o)
		}
		o.Values, o.Offsets = append(o.Values, rec.shown()), append(o.Offsets, rec.Offset)
	}
	for _, o := range order {
		w.got = append(w.got, workOffset{o.Partition.Topic, o.Partition.Number, o.Offsets[len(o.Offsets)-1] + 1})
		w.s.h.Add(o)
	}
}

// commit commits what the last read gave.
func (w *worker) commit() {
	offsets, err := json.Marshal(w.got)
	if err != nil {
		panic(err)
	}
	sent := request{
		node: w.node(), method: "POST", path: w.path("/offsets"), header: jsonBody(),
		body: fmt.Sprintf(`{"member":%q,"offsets":%s}`, w.id, offsets),
	}
	r := w.do(w.ctx, sent)
	w.got = nil
	if r.err == nil && r.status == http.StatusConflict {
		w.forget()
	}
}

// leave leaves the group in order.
func (w *worker) leave() {
	w.do(w.ctx, request{node: w.node(), method: "DELETE", path: w.path("/members/" + url.PathEscape(w.id))})
	w.forget()
}

// overseer looks at where groups of workers have come to.
type overseer struct{ *client }

func (o *overseer) run() {
	for o.think() {
		for _, group := range o.s.plan.exact.workGroups() {
			o.look(group)
		}
	}
}

func (o *overseer) look(group string) {
	sent := request{node: o.node(), method: "GET", path: "/v1/groups/" + group + "/offsets"}
	invoke := o.s.h.Now()
	r := o.do(o.ctx, sent)
	if r.err != nil || r.status != http.StatusOK {
		return
	}
	var answer struct{ Partitions []workOffset }
	if err := json.Unmarshal(r.body, &answer); err != nil {
		o.s.violate("API", "%s: offsets of %s: %v in %.200s", sent.node.name, group, err, r.body)
		return
	}
	for _, at := range answer.Partitions {
		o.s.h.Add(&history.Op{
			Kind: history.Committed, Client: o.name, Node: sent.node.name, API: "native", Invoke: invoke,
			Return: o.s.h.Now(), Outcome: history.OK, Partition: history.Partition{Topic: at.Topic, Number: at.Partition},
			Group: &history.Membership{Group: group, Protocol: history.Worker, Offset: at.Offset},
		})
	}
}
