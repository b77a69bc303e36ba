package simtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"millrace/server/servertest/history"
)

// place draws a partition that clients may use.
func (s *sim) place(r *rand.Rand) (*topic, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[r.IntN(len(s.topics))]
	return t, r.IntN(t.partitions)
}

// start brings the nodes up and makes the topics.
func (s *sim) start() bool {
	for _, m := range s.nodes {
		if err := m.start(); err != nil {
			s.violate("start", "%s: %v", m.name, err)
			return false
		}
	}
	c := s.newClient("setup", 0)
	defer c.close()
	end := s.h.Now() + 30*time.Second
	for _, t := range s.allTopics() {
		q := request{
			node: s.nodes[0], method: "POST", path: "/v1/topics", header: jsonBody(), wait: 10 * time.Second,
			body: fmt.Sprintf(`{"name":%q,"partitions":%d,"replication_factor":%d,"configs":%s}`,
				t.name, t.partitions, len(s.nodes), s.plan.configs(t)),
		}
		for r := c.do(s.ctx, q); r.status != http.StatusCreated && r.status != http.StatusConflict; r = c.do(s.ctx, q) {
			if s.h.Now() > end {
				s.violate("start", "topic %s is not made: %d %v %s", t.name, r.status, r.err, r.body)
				return false
			}
			sleep(s.ctx, 100*time.Millisecond)
		}
	}
	r := c.do(s.ctx, request{node: s.nodes[0], method: "GET", path: "/"})
	var info struct {
		ID string `json:"kafka_cluster_id"`
	}
	if err := json.Unmarshal(r.body, &info); err != nil || info.ID == "" {
		s.violate("start", "no cluster id: %v %s", r.err, r.body)
	}
	s.clusterID = info.ID
	return !s.broken()
}

func jsonBody() map[string]string { return map[string]string{"Content-Type": "application/json"} }

// startClients starts the workers.
func (s *sim) startClients() {
	stream := uint64(0)
	begin := func(kind string, count int, run func(c *client)) {
		for i := range count {
			stream++
			c := s.newClient(fmt.Sprint(kind, i+1), stream)
			s.clients.Go(func() {
				defer c.close()
				run(c)
			})
		}
	}
	begin("p", s.plan.producer, func(c *client) { (&producer{client: c}).run() })
	begin("r", s.plan.reader, func(c *client) { (&reader{client: c}).run() })
	begin("w", s.plan.live, func(c *client) { (&watcher{client: c}).run() })
	begin("a", 1, func(c *client) {
		s.admin = &admin{client: c}
		s.admin.run()
	})
	if s.plan.exact != nil {
		s.startExact(begin)
	}
	if s.plan.registry != nil {
		begin("s", s.plan.registry.registrars, func(c *client) { (&registrar{client: c}).run() })
	}
}

// admin makes, changes and deletes topics, and is the only one to use them.
type admin struct {
	*client
	lives int
	murky time.Duration // until when an earlier request may still have an effect
}

// late is how long after it was given up a request may still take effect.
const late = time.Minute

const adminTopic = "admin"

func (a *admin) run() {
	for a.s.ctx.Err() == nil {
		if !a.change("POST", "/v1/topics", fmt.Sprintf(`{"name":%q,"partitions":%d,"replication_factor":%d}`,
			adminTopic, 1+a.rng.IntN(2), len(a.s.nodes)), http.StatusCreated, http.StatusConflict) {
			return
		}
		a.lives++
		if a.murky > a.s.h.Now() {
			a.s.exempt(a.life())
		}
		a.use()
		if a.rng.IntN(2) == 0 {
			a.change("PATCH", "/v1/topics/"+adminTopic, `{"configs":{"segment.bytes":"1048576"}}`, http.StatusOK, 0)
		}
		if a.rng.IntN(4) == 0 {
			a.grow()
		}
		if !a.change("DELETE", "/v1/topics/"+adminTopic, "", http.StatusNoContent, http.StatusNotFound) {
			return
		}
	}
}

// change makes a change, again and again until it is done, and says whether it is. Either status means so.
func (a *admin) change(method, path, body string, done, already int) bool {
	for a.think() {
		n := a.node()
		q := request{node: n, method: method, path: path, body: body}
		if body != "" {
			q.header = jsonBody()
		}
		o := &history.Op{
			Kind: history.Admin, Client: a.name, Node: n.name, API: "native", Invoke: a.s.h.Now(),
			Note: method + " " + path + " " + body,
		}
		r := a.do(a.s.ctx, q)
		var note string
		o.Outcome, note = nativeOutcome(&r)
		o.Return, o.Note = a.s.h.Now(), o.Note+": "+note
		a.s.h.Add(o)
		if o.Outcome == history.Info {
			a.murky = o.Return + late
		}
		if r.err == nil && (r.status == done || r.status == already) {
			if o.Return-o.Invoke < knownWithin {
				a.check(n, method, path)
			}
			return true
		}
	}
	return false
}

// knownWithin is how long a node waits to know of a change itself before it acknowledges it all the same.
const knownWithin = 4 * time.Second

// check asks the node that acknowledged a change whether it knows of it.
func (a *admin) check(n *machine, method, path string) {
	if method == "POST" {
		path += "/" + adminTopic
	}
	r := a.do(a.s.ctx, request{node: n, method: "GET", path: path})
	if a.murky > a.s.h.Now() {
		return
	}
	missing := r.err == nil && r.status == http.StatusNotFound
	if there := r.err == nil && r.status == http.StatusOK; method == "DELETE" && there || method != "DELETE" && missing {
		a.s.violate("R5", "%s acknowledged %s %s and answers %d %s", n.name, method, path, r.status, r.body)
	}
}

// life is what the history calls the topic now.
func (a *admin) life() string { return fmt.Sprintf("%s#%d", adminTopic, a.lives) }

// use produces to the topic and reads it back. A node that knows nothing of the present yet may give what an earlier
// life held, so that does not count here.
func (a *admin) use() {
	life := a.life()
	s := &session{
		p: &producer{client: a.client}, name: fmt.Sprintf("%s/%d", a.name, a.lives), api: "native", acks: -1,
		topic: &topic{name: life}, calm: true, idempotent: a.rng.IntN(2) == 0,
	}
	for range a.rng.IntN(6) {
		if !s.next() || !a.think() {
			break
		}
	}
	p := page{
		c: a.client, ctx: a.s.ctx, session: s.name, records: 100, wait: time.Second,
		partition: history.Partition{Topic: life}, prefix: s.name + "/",
	}
	for range 2 {
		p.read(a.node())
	}
}

// grow gives a busy topic a partition, which the clients then use.
func (a *admin) grow() {
	a.s.mu.Lock()
	t := a.s.topics[a.rng.IntN(len(a.s.topics))]
	count := t.partitions + 1
	a.s.mu.Unlock()
	if count <= 4 && a.change("PATCH", "/v1/topics/"+t.name, fmt.Sprintf(`{"partitions":%d}`, count), http.StatusOK, 0) {
		a.s.mu.Lock()
		t.partitions = count
		a.s.mu.Unlock()
	}
}
