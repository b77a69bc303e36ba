package simtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"millrace/server/servertest/history"
)

// entry is a record as the native API gives it.
type entry struct {
	Partition int32
	Offset    int64
	Key       json.RawMessage
	KeyText   *string `json:"key_text"`
	Value     json.RawMessage
}

// shown is the record's value, or what is wrong with it.
func (r *entry) shown() string {
	var value, key string
	if json.Unmarshal(r.Value, &value) != nil {
		return fmt.Sprintf("a value that is no text: %.80s", r.Value)
	}
	switch {
	case r.KeyText != nil:
		key = *r.KeyText
	case len(r.Key) > 0:
		_ = json.Unmarshal(r.Key, &key)
	}
	return shown(value, key)
}

// reader reads one partition page by page, each from any node, from its start to wherever it gets, and then another.
type reader struct {
	*client
	sessions int
}

func (r *reader) run() {
	for r.s.ctx.Err() == nil {
		r.sessions++
		t, number := r.s.place(r.rng)
		p := page{
			c: r.client, session: fmt.Sprintf("%s/%d", r.name, r.sessions),
			partition: history.Partition{Topic: t.name, Number: int32(number)}, ctx: r.s.ctx,
		}
		for range 10 + r.rng.IntN(30) {
			p.lines = r.rng.IntN(3) == 0
			if p.rack = ""; r.s.plan.racks && r.rng.IntN(3) > 0 {
				p.rack = r.node().rack()
			}
			p.wait = pick(r.rng, 0, 500*time.Millisecond, 5*time.Second)
			p.records = pick(r.rng, 3, 50, 1000)
			p.read(r.node())
			if !r.think() {
				break
			}
		}
	}
}

// page reads a partition on from a place.
type page struct {
	c         *client
	ctx       context.Context
	session   string
	partition history.Partition
	next      int64
	lines     bool // as JSON lines
	rack      string
	wait      time.Duration
	records   int
	final     bool
	prefix    string // what the values begin with; a page ends before one that does not
}

// read reads one page. One that did not come whole counts as far as it came.
func (p *page) read(n *machine) (o *history.Op, ok bool) {
	q := request{
		node: n, method: "GET", header: map[string]string{"Accept": "application/json"}, wait: p.wait + p.c.s.plan.patience,
		long: p.wait,
		path: fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&max_records=%d&wait=%s",
			realName(p.partition.Topic), p.partition.Number, p.next, p.records, p.wait),
	}
	if p.rack != "" {
		q.path += "&rack=" + p.rack
	}
	if p.lines {
		q.header["Accept"] = "application/x-ndjson"
	}
	o = &history.Op{
		Kind: history.Read, Client: p.c.name, Session: p.session, Node: n.name, API: "native", Invoke: p.c.s.h.Now(),
		Partition: p.partition, From: p.next, Final: p.final,
	}
	r := p.c.do(p.ctx, q)
	o.Return = p.c.s.h.Now()
	switch {
	case r.status == http.StatusOK:
		o.Outcome = history.OK
		p.take(o, &r)
	case r.status == http.StatusRequestedRangeNotSatisfiable:
		o.Outcome, o.Note = history.Fail, string(r.body)
		p.leap(o, &r)
	default:
		o.Outcome, o.Note = history.Fail, fmt.Sprint(r.status, " ", r.err, " ", string(r.body))
	}
	p.c.s.h.Add(o)
	return o, r.status == http.StatusOK && r.err == nil
}

// leap goes on behind what was deleted. Elsewhere a log that was read up to a place reaches there.
func (p *page) leap(o *history.Op, r *reply) {
	var problem struct {
		Start *int64 `json:"log_start_offset"`
	}
	if json.Unmarshal(r.body, &problem) == nil && problem.Start != nil && *problem.Start > p.next {
		p.next = *problem.Start
		return
	}
	o.OutOfRange = true
}

// take reads a page's records. Of lines, whole ones count even when the rest was lost.
func (p *page) take(o *history.Op, r *reply) {
	var records []entry
	if p.lines {
		for line := range strings.Lines(string(r.body)) {
			var one entry
			if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &one) == nil && one.Value != nil {
				records = append(records, one)
			}
		}
	} else if r.err == nil {
		var whole struct{ Records []entry }
		if err := json.Unmarshal(r.body, &whole); err != nil {
			p.c.s.violate("API", "%s: page: %v in %.200s", o, err, r.body)
		}
		records = whole.Records
	}
	for i := range records {
		value := records[i].shown()
		if !strings.HasPrefix(value, p.prefix) {
			return // of another life: none of the page counts
		}
		o.Values = append(o.Values, value)
		o.Offsets = append(o.Offsets, records[i].Offset)
		p.next = records[i].Offset + 1
	}
}

// realName is a topic's name on the server: the history tells its lives apart.
func realName(topic string) string {
	name, _, _ := strings.Cut(topic, "#")
	return name
}

// watcher follows a topic's live stream, which drops and resumes at other nodes.
type watcher struct {
	*client
	sessions int
}

func (w *watcher) run() {
	for w.s.ctx.Err() == nil {
		w.sessions++
		t, _ := w.s.place(w.rng)
		l := live{w: w, session: fmt.Sprintf("%s/%d", w.name, w.sessions), topic: t.name}
		for range 3 + w.rng.IntN(6) {
			l.follow(w.node(), around(w.rng, 4*time.Second))
			if !w.think() {
				break
			}
		}
	}
}

// live is a live stream over its connections.
type live struct {
	w       *watcher
	session string
	topic   string
	id      string // of the last event
	// Of a final read: where the partitions end that it has not reached the end of. It ends when there are none.
	left     map[int32]int64
	farewell string // why the node ended the stream
}

// follow reads the stream at a node for a time.
func (l *live) follow(n *machine, length time.Duration) {
	ctx, cancel := context.WithTimeout(l.w.ctx, length)
	defer cancel()
	q := request{
		node: n, method: "GET", path: "/v1/topics/" + l.topic + "/records?offset=earliest",
		header: map[string]string{"Accept": "text/event-stream"},
	}
	if l.id != "" {
		q.header["Last-Event-ID"] = l.id
	}
	resp, err := l.w.send(ctx, q)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		l.events(n, bufio.NewReader(resp.Body))
	}
}

// events reads events until the stream ends.
func (l *live) events(n *machine, b *bufio.Reader) {
	id, data, event := "", "", ""
	for {
		line, err := b.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if event == "" {
				l.event(n, id, data)
			} else {
				l.farewell = event + " " + data
			}
			if id != "" {
				l.id = id
			}
			if l.left != nil && len(l.left) == 0 {
				return
			}
			id, data, event = "", "", ""
		case name == "id":
			id = value
		case name == "data":
			data = value
		case name == "event":
			event = value
		}
	}
}

// event takes in one event.
func (l *live) event(n *machine, id, data string) {
	if data == "" {
		return
	}
	var r entry
	if err := json.Unmarshal([]byte(data), &r); err != nil || id == "" {
		l.w.s.violate("API", "event %q of %s: %v in %.200s", id, l.session, err, data)
		return
	}
	if l.left[r.Partition] == r.Offset+1 {
		delete(l.left, r.Partition)
	}
	now := l.w.s.h.Now()
	l.w.s.h.Add(&history.Op{
		Final: l.left != nil, Kind: history.Read, Client: l.w.name, Session: l.session, Node: n.name, API: "sse",
		Invoke: now, Return: now,
		Outcome: history.OK, Partition: history.Partition{Topic: l.topic, Number: r.Partition},
		Values: []string{r.shown()}, Offsets: []int64{r.Offset}, Note: "id " + id,
	})
}
