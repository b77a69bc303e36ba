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
}

func (w *worker) run() {
	w.forget()
	for w.think() {
		switch w.rng.IntN(40) {
		case 0:
			w.leave()
		case 1: // it dies
			w.forget()
		case 2: // it is paused
			sleep(w.ctx, around(w.rng, 2*w.s.plan.exact.session))
		}
		w.read()
		if !w.auto && w.rng.IntN(2) == 0 {
			w.commit()
		}
	}
}

func (w *worker) forget() {
	w.lives++
	w.id, w.delivery = fmt.Sprintf("%s.%d", w.name, w.lives), 0
}

func (w *worker) path(rest string) string { return "/v1/groups/" + url.PathEscape(w.group) + rest }

// read reads a page.
func (w *worker) read() {
	q := url.Values{
		"topics": {listTopic}, "member": {w.id}, "auto_offset_reset": {"earliest"}, "wait": {"200ms"},
		"session":     {strconv.Itoa(int(w.s.plan.exact.session.Milliseconds())) + "ms"},
		"max_records": {strconv.Itoa(pick(w.rng, 3, 50))}, "isolation": {"read_committed"}, "commit": {"manual"},
		"ack": {strconv.FormatInt(w.delivery, 10)},
	}
	if w.auto {
		q.Set("commit", "auto")
	}
	sent := request{
		node: w.node(), method: "GET", path: w.path("/records?" + q.Encode()), wait: time.Second + w.s.plan.patience,
		long: time.Second, header: map[string]string{"Accept": "application/json"},
	}
	invoke := w.s.h.Now()
	w.disturb(sent)
	r := w.do(w.ctx, sent)
	if r.err != nil {
		return
	}
	if r.status == http.StatusConflict {
		w.forget() // the group went on without it
		return
	}
	var page struct {
		Records []struct {
			Topic string
			entry
		}
		Delivery   int64
		Assignment []struct {
			Topic      string
			Partitions []int32
		}
	}
	if r.status != http.StatusOK {
		return
	}
	if err := json.Unmarshal(r.body, &page); err != nil {
		w.s.violate("API", "%s: page for %s: %v in %.200s", sent.node.name, w.id, err, r.body)
		return
	}
	w.delivery = page.Delivery
	of := map[history.Partition]*history.Op{}
	var order []*history.Op
	for i := range page.Records {
		rec := &page.Records[i]
		p := history.Partition{Topic: rec.Topic, Number: rec.Partition}
		if of[p] == nil {
			of[p] = &history.Op{
				Kind: history.Poll, Client: w.name, Session: w.id, Node: sent.node.name, API: "native", Invoke: invoke,
				Return: w.s.h.Now(), Outcome: history.OK, Partition: p, From: rec.Offset,
				Group: &history.Membership{Group: w.group, Member: w.id, Protocol: history.Worker},
			}
			order = append(order, of[p])
		}
		of[p].Values, of[p].Offsets = append(of[p].Values, rec.shown()), append(of[p].Offsets, rec.Offset)
	}
	for _, o := range order {
		w.s.h.Add(o)
	}
}

// commit commits what was delivered.
func (w *worker) commit() {
	sent := request{
		node: w.node(), method: "POST", path: w.path("/offsets"), header: jsonBody(),
		body: fmt.Sprintf(`{"member":%q}`, w.id),
	}
	w.disturb(sent)
	if r := w.do(w.ctx, sent); r.err == nil && r.status == http.StatusConflict {
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
	var answer struct {
		Offsets []struct {
			Topic     string
			Partition int32
			Offset    int64
		}
	}
	if err := json.Unmarshal(r.body, &answer); err != nil {
		o.s.violate("API", "%s: offsets of %s: %v in %.200s", sent.node.name, group, err, r.body)
		return
	}
	for _, at := range answer.Offsets {
		o.s.h.Add(&history.Op{
			Kind: history.Committed, Client: o.name, Node: sent.node.name, API: "native", Invoke: invoke,
			Return: o.s.h.Now(), Outcome: history.OK, Partition: history.Partition{Topic: at.Topic, Number: at.Partition},
			Group: &history.Membership{Group: group, Protocol: history.Worker, Offset: at.Offset},
		})
	}
}
