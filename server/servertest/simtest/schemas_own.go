package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"millrace/server/servertest/history"
)

// ownedSubject is a subject that one registrar alone changes.
type ownedSubject struct {
	name     string
	live     []int
	deleted  []int
	schemas  int
	finished bool // what came of a change is not known
}

// begin begins a subject of the registrar's own.
func (g *registrar) begin() {
	g.owned++
	g.own = &ownedSubject{name: fmt.Sprintf("own-%s-%d", g.name, g.owned)}
}

// turn does something to the registrar's own subject.
func (g *registrar) turn() {
	if g.own.finished || g.own.schemas > 12 {
		g.begin()
	}
	w := g.own
	switch g.rng.IntN(10) {
	case 0, 1, 2, 3:
		g.registerOwn()
	case 4:
		if len(w.live) > 0 {
			g.removeOwn(&w.live, false)
		}
	case 5:
		if len(w.deleted) > 0 {
			g.removeOwn(&w.deleted, true)
		}
	case 6:
		g.setLevel()
	case 7:
		o := g.ownOp(history.ReadsLevel, history.Schema{})
		var level struct {
			Level string `json:"compatibilityLevel"`
		}
		g.askOwn(o, "GET", "/config/"+w.name+"?defaultToGlobal=true", "", &level, func() { o.Schema.Level = level.Level })
	default:
		g.readOwn()
	}
}

func (g *registrar) ownOp(kind history.Kind, s history.Schema) *history.Op {
	s.Subject, s.Own = g.own.name, true
	return g.op(kind, s)
}

// askOwn is ask of a request to the registrar's own subject. fill takes what was answered into the operation.
func (g *registrar) askOwn(o *history.Op, method, path, body string, into any, fill func()) {
	q := request{node: g.node(), method: method, path: path, body: body, header: map[string]string{}}
	if body != "" {
		q.header = jsonBody()
	}
	if g.rng.IntN(4) == 0 {
		q.header["X-Forward"] = "true"
	}
	r := g.do(g.ctx, q)
	o.Node, o.Return = q.node.name, g.s.h.Now()
	o.Schema.Fresh = g.s.readsLast() && o.Return-o.Invoke < staleWithin
	g.settle(o, &r, into)
	if o.Outcome == history.OK && fill != nil {
		fill()
	}
	g.s.h.Add(o)
	if o.Outcome == history.Info {
		g.own.finished = true
	}
}

func (g *registrar) registerOwn() {
	w := g.own
	w.schemas++
	letter := pick(g.rng, "o", "n")
	name := fmt.Sprintf("%s_%s_%d_%d", letter, g.name, g.owned, g.rng.IntN(4))
	o := g.ownOp(history.Register, history.Schema{Text: name, Needs: letter == "n"})
	var a schemaAnswer
	g.askOwn(o, "POST", at(w.name, "/versions"), registerBody(name), &a, nil)
	if o.Outcome == history.OK && !slices.Contains(w.live, a.Version) {
		w.live = append(w.live, a.Version)
	}
}

func (g *registrar) removeOwn(from *[]int, permanent bool) {
	w, i := g.own, g.rng.IntN(len(*from))
	number := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	o := g.ownOp(history.Remove, history.Schema{Version: number, Deleted: permanent})
	g.askOwn(o, "DELETE", at(w.name, fmt.Sprintf("/versions/%d?permanent=%t", number, permanent)), "", nil, nil)
	if !permanent && o.Outcome == history.OK {
		w.deleted = append(w.deleted, number)
	}
}

func (g *registrar) setLevel() {
	o := g.ownOp(history.SetLevel, history.Schema{Level: pick(g.rng, "NONE", "BACKWARD")})
	g.askOwn(o, "PUT", "/config/"+g.own.name, fmt.Sprintf(`{"compatibility":%q}`, o.Schema.Level), nil, nil)
}

func (g *registrar) readOwn() {
	w := g.own
	o := g.ownOp(history.Versions, history.Schema{})
	var numbers []int
	g.askOwn(o, "GET", at(w.name, "/versions"), "", &numbers, nil)
	if known := append(slices.Clone(w.live), w.deleted...); len(known) > 0 {
		number, deleted := pick(g.rng, known...), g.rng.IntN(2) == 0
		o := g.ownOp(history.ByVersion, history.Schema{Version: number, Deleted: deleted})
		g.askOwn(o, "GET", at(w.name, fmt.Sprintf("/versions/%d?deleted=%t", number, deleted)), "", &schemaAnswer{}, nil)
	}
}

// settleRegistry has every node register something when all is well (L1), and give everything that the registry holds,
// which is the same everywhere (S3).
func (s *sim) settleRegistry() {
	if s.plan.registry == nil {
		return
	}
	g := &registrar{client: s.operator, met: map[string]history.Schema{}}
	s.forgetLast(g)
	end := s.h.Now() + leaderWithin
	for i, m := range s.nodes {
		name := fmt.Sprint("k_last_", i)
		for !g.registerAt(m, name) {
			if s.h.Now() > end {
				s.violate("L1", "%s registers no schema", m.name)
				return
			}
			sleep(context.Background(), settle/10)
		}
	}
	first := ""
	for _, m := range s.nodes {
		r := g.do(context.Background(), request{
			node: m, method: "GET", path: "/schemas?deleted=true&subjectPrefix=%3A*%3A", wait: leaderWithin,
		})
		if r.status != http.StatusOK {
			s.violate("L1", "%s does not list its schemas: %d %v %.300s", m.name, r.status, r.err, r.body)
			return
		}
		if first == "" {
			first = string(r.body)
		} else if first != string(r.body) {
			s.violate("S3", "%s has %s\n%s has %s", s.nodes[0].name, first, m.name, r.body)
			return
		}
		g.takeAll(m, r.body)
	}
}

// forgetLast removes the schemas with the greatest ids, has the log compacted and all nodes read it anew: the ids of
// what is registered then are still greater (S1).
func (s *sim) forgetLast(g *registrar) {
	if !s.plan.registry.made || s.plan.broker["log.cleaner.enable"] == "false" {
		return
	}
	const subject, times, records = "gone0", 3, 60
	for i := range times {
		o := g.op(history.Register, history.Schema{Subject: subject, Text: fmt.Sprint("g_last_", i)})
		var a schemaAnswer
		g.ask(o, "POST", at(subject, "/versions"), registerBody(o.Schema.Text), false, &a)
		if o.Outcome == history.OK {
			g.remove(subject, a.Version, false)
			g.remove(subject, a.Version, true)
		}
	}
	for i := range records { // what is compacted lies before what is written now
		level := []string{"FULL", "NONE"}[i%2]
		g.do(context.Background(), request{
			node: s.nodes[0], method: "PUT", path: "/config/filler", header: jsonBody(), wait: leaderWithin,
			body: fmt.Sprintf(`{"compatibility":%q}`, level),
		})
	}
	sleep(context.Background(), 3*settle)
	for _, m := range s.nodes {
		if err := m.stopInOrder(); err != nil {
			s.violate("stop", "%s: %v", m.name, err)
		}
		m.tryStart()
	}
}

// registerAt has a node register a schema itself, and says whether it did.
func (g *registrar) registerAt(m *machine, name string) bool {
	const subject = "kept0"
	o := g.op(history.Register, history.Schema{Subject: subject, Text: name, Kept: true})
	header := jsonBody()
	header["X-Forward"] = "true"
	r := g.do(context.Background(), request{
		node: m, method: "POST", path: at(subject, "/versions"), body: registerBody(name), header: header, wait: leaderWithin,
	})
	o.Node, o.Return = m.name, g.s.h.Now()
	g.settle(o, &r, &schemaAnswer{})
	g.s.h.Add(o)
	return o.Outcome == history.OK
}

// takeAll takes a list of all versions into the history. What is kept is in it if it ever was.
func (g *registrar) takeAll(m *machine, body []byte) {
	var all []struct {
		Subject string
		schemaAnswer
	}
	if err := json.Unmarshal(body, &all); err != nil {
		g.s.violate("API", "%s: %v in %.200s", m.name, err, body)
		return
	}
	now := g.s.h.Now()
	numbers, ids := map[string][]int{}, map[string][]int{}
	for i := range all {
		a := &all[i]
		kept := slices.Contains(keptSubjects(), a.Subject)
		o := g.op(history.ByVersion, history.Schema{
			Subject: a.Subject, Version: a.Version, ID: a.ID, Text: g.nameOf(a.Schema), Kept: kept || a.Subject == softSubject,
			Deleted: true,
		})
		o.Node, o.Return, o.Outcome = m.name, now, history.OK
		g.s.h.Add(o)
		numbers[a.Subject] = append(numbers[a.Subject], a.Version)
		ids[o.Schema.Context] = append(ids[o.Schema.Context], a.ID)
	}
	for _, subject := range keptSubjects() {
		o := g.op(history.Versions, history.Schema{
			Subject: subject, Numbers: numbers[subject], Kept: true, Deleted: true, Fresh: true,
		})
		o.Node, o.Return, o.Outcome = m.name, now, history.OK
		g.s.h.Add(o)
	}
	for _, o := range g.s.h.Ops() { // what was told of under an id is still there
		if t := o.Schema; t != nil && t.Kept && t.ID > 0 && t.Text != "" && o.Outcome == history.OK &&
			!slices.Contains(ids[t.Context], t.ID) {
			g.s.violate("S1", "%s has no id %d of context %q any more: %s", m.name, t.ID, t.Context, o)
			return
		}
	}
}
