package simtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"millrace/schemaregistry"
	"millrace/server/servertest/history"
)

// schemasTopic is the log of the schema registry.
const schemasTopic = "_schemas"

// registryPlan is what a run with the schema registry at work is made of (W8).
type registryPlan struct {
	registrars int
	made       bool // the log is there before anybody registers, and has small segments
	minISR     int
}

// makeRegistry turns a plan into one of the schema registry.
func (p *plan) makeRegistry(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 6))
	p.registry = &registryPlan{registrars: 2 + r.IntN(3), made: r.IntN(3) > 0, minISR: pick(r, 1, 2, 2)}
	p.producer, p.reader, p.live = 0, 0, 0
	p.shapes = []shape{{partitions: 1, minISR: p.registry.minISR}}
	p.damage, p.racks = false, false
	p.kinds = slices.DeleteFunc(drawKinds(r), func(k faultKind) bool { return k.damages })
	if r.IntN(2) == 0 { // of these every reader must see the last that was written
		p.kinds = slices.DeleteFunc(p.kinds, func(k faultKind) bool { return slices.Contains(staleKinds(), k.name) })
		p.kinds = append(p.kinds, kind("kill", 6, (*sim).killOne), kind("power", 4, (*sim).powerOne))
	}
	p.faults = pick(r, 3, 5, 8, 8, 12)
	p.think = pick(r, 50*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond)
	for name, value := range map[string]string{
		"log.cleaner.enable":              pick(r, "true", "true", "true", "false"),
		"log.cleaner.backoff.ms":          pick(r, "200", "1000"),
		"log.cleaner.min.cleanable.ratio": pick(r, "0", "0.5"),
		"log.cleaner.delete.retention.ms": "86400000",
		"log.cleaner.dedupe.buffer.size":  "1048576",
		"min.insync.replicas":             fmt.Sprint(p.registry.minISR),
		"schema.compatibility.level":      "NONE",
	} {
		p.broker[name] = value
	}
}

// String tells the plan on one line.
func (p *registryPlan) String() string {
	return fmt.Sprintf("%d registrars, log made before %t, min ISR %d", p.registrars, p.made, p.minISR)
}

// schemasTopics are the log of the registry with small segments, so that it is compacted early and often.
func (p *plan) schemasTopics() []*topic {
	if p.registry == nil || !p.registry.made {
		return nil
	}
	return []*topic{{name: schemasTopic, partitions: 1, minISR: p.registry.minISR, exact: true, keyed: true}}
}

// What registrars write to, and where schemas are named by letters: k stays for ever, in some context; what begins with
// g may be removed for good; o and n are of a subject of one registrar's own.
func keptSubjects() []string { return []string{"kept0", "kept1", ":.ctx:kept"} }

const softSubject = "soft" // whose versions are softly deleted and come back

func goneSubjects() []string { return []string{"gone0", "gone1"} }

// registrar uses the schema registry through any node.
type registrar struct {
	*client
	met   map[string]history.Schema // kept schemas under their ids
	names []string                  // of met, in the order in which they were
	made  int                       // schemas of its own
	own   *ownedSubject
	owned int
}

func (g *registrar) run() {
	g.met = map[string]history.Schema{}
	g.begin()
	for g.think() {
		switch g.rng.IntN(20) {
		case 0, 1, 2, 3:
			g.register(pick(g.rng, keptSubjects()...), g.kept(), true)
		case 4:
			g.register(softSubject, g.kept(), true)
		case 5:
			g.softDelete()
		case 6, 7:
			g.passing()
		case 8, 9:
			g.byID()
		case 10:
			g.lookUp()
		case 11, 12:
			g.list(pick(g.rng, keptSubjects()...))
		default:
			g.turn()
		}
	}
}

// kept draws a schema that stays. As time goes on there are more of them, and all registrars come upon a new one at
// about the same time.
func (g *registrar) kept() string {
	return fmt.Sprint("k", g.rng.IntN(3+int(g.s.h.Now()/(700*time.Millisecond))))
}

// textOf is a schema of a name. Those that begin with n want a value that data written before lack.
func textOf(name string) string {
	rest := `,"default":0`
	if strings.HasPrefix(name, "n") {
		rest = ""
	}
	return `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},` +
		`{"name":"` + name + `","type":"int"` + rest + `}]}`
}

// nameOf is the name of a schema that the registry gave.
func (g *registrar) nameOf(text string) string {
	_, rest, _ := strings.Cut(text, `"type":"int"},{"name":"`)
	name, _, _ := strings.Cut(rest, `"`)
	if text != textOf(name) {
		g.s.violate("S1", "the registry gave a schema that nobody has registered: %.300q", text)
	}
	return name
}

// schemaAnswer is what the registry answers about a schema, or why not.
type schemaAnswer struct {
	ID      int
	Version int
	Schema  string
	Code    int `json:"error_code"`
	Message string
}

// op begins an operation.
func (g *registrar) op(kind history.Kind, s history.Schema) *history.Op {
	s.Context = schemaregistry.ParseSubject(s.Subject).Context
	o := &history.Op{Kind: kind, Client: g.name, API: "registry", Invoke: g.s.h.Now(), Schema: &s}
	return o
}

// staleWithin is how long a node asks for the log's end before it answers from memory.
const staleWithin = 2 * time.Second

// ask sends a request of an operation, and takes the operation into the history with what was answered. into may be
// nil.
func (g *registrar) ask(o *history.Op, method, path, body string, disturbed bool, into any) {
	q := request{node: g.node(), method: method, path: path, body: body, header: map[string]string{}}
	if body != "" {
		q.header = jsonBody()
	}
	if g.rng.IntN(4) == 0 {
		q.header["X-Forward"] = "true" // it is served where it arrives
	}
	if disturbed {
		g.disturb(q)
	}
	r := g.do(g.ctx, q)
	o.Node, o.Return = q.node.name, g.s.h.Now()
	o.Schema.Fresh = o.Schema.Fresh || g.s.readsLast() && o.Return-o.Invoke < staleWithin
	g.settle(o, &r, into)
	g.s.h.Add(o)
}

// settle takes an answer into an operation.
func (g *registrar) settle(o *history.Op, r *reply, into any) {
	var failed schemaAnswer
	switch {
	case r.unsent():
		o.Outcome = history.Fail
	case r.err != nil:
		o.Note = r.err.Error()
		return
	case r.status == http.StatusOK:
		o.Outcome = history.OK
		if into != nil {
			if err := json.Unmarshal(r.body, into); err != nil {
				g.s.violate("API", "%s: %v in %.200s", o, err, r.body)
			}
		}
		g.take(o, into)
		return
	default:
		_ = json.Unmarshal(r.body, &failed) // what cannot be read is unknown
		o.Note = fmt.Sprintf("%d %.200s", r.status, r.body)
		switch code := failed.Code; {
		case code/100 == http.StatusNotFound:
			o.Outcome, o.Schema.Missing = history.Fail, true
			if o.Kind != history.Remove { // it is an answer
				o.Outcome = history.OK
			}
		case code == schemaregistry.CodeIncompatible:
			o.Outcome, o.Schema.Refused = history.Fail, true
		case code/100 == http.StatusUnprocessableEntity, code == schemaregistry.CodeStoreFailed,
			r.status == http.StatusTooManyRequests:
			o.Outcome = history.Fail
		case code == http.StatusConflict || code == http.StatusBadRequest:
			g.s.violate("API", "%s: %d %.200s", o, r.status, r.body)
		}
	}
}

// take takes what a successful answer says into an operation.
func (g *registrar) take(o *history.Op, into any) {
	s := o.Schema
	switch a := into.(type) {
	case *schemaAnswer:
		if a.Schema != "" {
			s.Text = g.nameOf(a.Schema)
		}
		if a.ID > 0 {
			s.ID = a.ID
		}
		if a.Version > 0 {
			s.Version = a.Version
		}
		if s.Kept && s.ID > 0 {
			at := fmt.Sprint(s.Context, " ", s.ID)
			if _, ok := g.met[at]; !ok {
				g.names = append(g.names, at)
			}
			g.met[at] = *s
		}
	case *[]int:
		s.Numbers = *a
		if s.Numbers == nil {
			s.Numbers = []int{}
		}
	}
}

func registerBody(name string) string { return fmt.Sprintf(`{"schema":%q}`, textOf(name)) }

func at(subject, rest string) string { return "/subjects/" + url.PathEscape(subject) + rest }

// register registers a schema, and perhaps once more where nobody knows what came of it.
func (g *registrar) register(subject, name string, kept bool) {
	for range 3 {
		o := g.op(history.Register, history.Schema{Subject: subject, Text: name, Kept: kept})
		g.ask(o, "POST", at(subject, "/versions"), registerBody(name), true, &schemaAnswer{})
		if o.Outcome == history.OK || g.rng.IntN(2) == 0 || !g.think() {
			return
		}
	}
}

// byID reads a schema under an id that the registrar was told, or that somebody will be told soon.
func (g *registrar) byID() {
	if len(g.names) == 0 {
		return
	}
	s := g.met[g.names[g.rng.IntN(len(g.names))]]
	if g.rng.IntN(4) == 0 {
		s.ID += 1 + g.rng.IntN(3)
	}
	g.readID(s)
}

func (g *registrar) readID(s history.Schema) {
	o := g.op(history.ByID, history.Schema{Subject: s.Subject, ID: s.ID, Kept: true})
	path := fmt.Sprint("/schemas/ids/", s.ID)
	if o.Schema.Context != schemaregistry.DefaultContext {
		path = "/contexts/" + o.Schema.Context + path
	}
	o.Schema.Subject = ""
	// That it is kept is known of its name alone.
	o.Schema.Kept = g.met[fmt.Sprint(o.Schema.Context, " ", s.ID)].Kept
	g.ask(o, "GET", path, "", false, &schemaAnswer{})
}

// lookUp looks for a schema.
func (g *registrar) lookUp() {
	subject, name := pick(g.rng, append(keptSubjects(), softSubject)...), g.kept()
	o := g.op(history.LookUp, history.Schema{Subject: subject, Text: name, Kept: true, Deleted: true})
	g.ask(o, "POST", at(subject, "?deleted=true"), registerBody(name), false, &schemaAnswer{})
}

// list lists the versions of a subject, and reads one of them.
func (g *registrar) list(subject string) {
	o := g.op(history.Versions, history.Schema{Subject: subject, Kept: true, Deleted: true})
	g.ask(o, "GET", at(subject, "/versions?deleted=true"), "", false, &[]int{})
	if n := len(o.Schema.Numbers); n > 0 {
		g.version(subject, o.Schema.Numbers[g.rng.IntN(n)])
	}
}

func (g *registrar) version(subject string, number int) {
	o := g.op(history.ByVersion, history.Schema{Subject: subject, Version: number, Kept: true, Deleted: true})
	g.ask(o, "GET", at(subject, fmt.Sprintf("/versions/%d?deleted=true", number)), "", false, &schemaAnswer{})
}

// softDelete deletes a version that comes back when its schema is registered again.
func (g *registrar) softDelete() {
	o := g.op(history.Versions, history.Schema{Subject: softSubject})
	g.ask(o, "GET", at(softSubject, "/versions"), "", false, &[]int{})
	if n := len(o.Schema.Numbers); n > 0 {
		g.remove(softSubject, o.Schema.Numbers[g.rng.IntN(n)], false)
	}
}

func (g *registrar) remove(subject string, number int, permanent bool) {
	o := g.op(history.Remove, history.Schema{Subject: subject, Version: number, Deleted: permanent})
	g.ask(o, "DELETE", at(subject, fmt.Sprintf("/versions/%d?permanent=%t", number, permanent)), "", true, nil)
}

// passing registers a schema in a subject that is emptied again and again. Most such schemas are new, so that the
// greatest id is often one of those that go.
func (g *registrar) passing() {
	subject, name := pick(g.rng, goneSubjects()...), fmt.Sprint("g", g.rng.IntN(3))
	if g.rng.IntN(3) > 0 {
		g.made++
		name = fmt.Sprintf("g_%s_%d", g.name, g.made)
	}
	o := g.op(history.Register, history.Schema{Subject: subject, Text: name})
	var a schemaAnswer
	g.ask(o, "POST", at(subject, "/versions"), registerBody(name), true, &a)
	if o.Outcome == history.OK && g.rng.IntN(4) > 0 && g.think() {
		g.remove(subject, a.Version, false)
		g.remove(subject, a.Version, true)
	}
}
