package connect

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/connect/plugin"
	"millrace/connect/provider"
	"millrace/connect/store"
	"millrace/connect/task"
)

const (
	// lookAround is how often the loop looks around when nothing has happened.
	lookAround = time.Second
	// freshTimeout bounds how long the leader of a rebalance reads the configs up to their end.
	freshTimeout = time.Second
)

// herd runs what this worker was assigned. Its loop alone decides what starts and stops, by the configs, the tenure and
// what runs already; whatever may take long happens in goroutines of the units, so that none holds up another.
type herd struct {
	settings  Settings
	workerID  string
	node      int32
	gone      func() ([]int32, <-chan struct{}) // see Config.Gone
	store     *store.Store
	runner    *task.Runner
	providers *provider.Providers
	class     func(name string) (*plugin.Class, error)
	hidden    func(props map[string]string) *strings.Replacer // takes the secrets of a config out of texts
	log       *slog.Logger
	member    *membership
	statuses  *statuses
	metrics   *metrics

	events chan func() // run by the loop
	ended  chan struct{}
	work   sync.WaitGroup // goroutines of units
	strays sync.WaitGroup // what those run: it may hang for ever

	// owned is what runs, in whatever state, and claimed that with what was assigned and is still to start, for others
	// than the loop to see.
	owned   atomic.Pointer[map[workID]*unit]
	claimed atomic.Pointer[[]held]

	// What follows belongs to the loop.
	rand       *rand.Rand
	configs    *store.Configs // nil at first
	workOffset int64          // of the configs when what is to run changed last
	asked      int64          // the workOffset for which the worker joined again last
	askedAt    time.Time
	tenure     *tenure // nil: nothing may run
	releasing  bool    // something was claimed and not assigned: the worker joins again when nothing of it runs
	units      map[workID]*unit
	since      map[workID]int32 // in which generation what is claimed was assigned last
	stalled    map[workID]bool  // what was assigned and could not start, at the last look
	dead       map[int32]bool   // nodes that are gone, as of the last look
	requests   map[string]requested
}

// requested is which requests to restart a connector and its tasks were seen.
type requested struct {
	connector int64
	tasks     map[int]int64
}

// run runs the herd until ctx ends, and then stops all of it in order.
func (h *herd) run(ctx context.Context) {
	tick := time.NewTicker(lookAround)
	defer tick.Stop()
	for ctx.Err() == nil {
		changed := h.store.Changed() // before the look, so that nothing is missed between the two
		nodes := h.bury(ctx)
		h.take(h.store.Configs())
		h.reconcile()
		select {
		case <-changed:
		case <-nodes:
		case event := <-h.events:
			event()
		case <-tick.C:
			h.insist()
		case <-ctx.Done():
		}
	}
	h.tenure = nil
	for _, u := range h.units {
		u.halt(true)
	}
	for len(h.units) > 0 {
		(<-h.events)()
	}
	close(h.ended)
	h.work.Wait()
}

// post has the loop run something.
func (h *herd) post(event func()) {
	select {
	case h.events <- event:
	case <-h.ended:
	}
}

// assigned is told of a new tenure. It returns when what the worker claims is by that.
func (h *herd) assigned(t tenure) {
	done := make(chan struct{})
	defer func() {
		select {
		case <-done:
		case <-h.ended:
		}
	}()
	h.post(func() {
		defer close(done)
		h.metrics.begin(&t)
		h.log.Info("work was assigned", "generation", t.generation, "leads", t.leads, "work", len(t.Run),
			"workers", len(t.Workers))
		h.begin(&t)
		if t.leads {
			h.mourn(&t)
		}
		h.publish()
	})
}

// begin begins a tenure. What the worker claimed and has not been assigned is nobody's, whether it had started or not,
// until the worker joins without it. Of what it did not claim others may have been assigned, and need not wait for it.
func (h *herd) begin(t *tenure) {
	h.tenure = t
	for _, id := range t.Run {
		h.since[id] = t.generation
	}
	h.releasing = slices.ContainsFunc(t.claimed, func(c held) bool { return !slices.Contains(t.Run, c.workID) })
}

// lost is told that the tenure is over.
func (h *herd) lost(why error) {
	h.post(func() {
		h.log.Warn("this worker stops all that it runs, for others may run it now", "err", why)
		h.tenure = nil
		h.statuses.drop()
		h.metrics.end()
	})
}

// bury takes workers out of the group whose nodes have gone since the last look, so that nobody waits for the end of
// their sessions. It gives a channel that is closed when that may have changed.
func (h *herd) bury(ctx context.Context) <-chan struct{} {
	if h.gone == nil {
		return nil
	}
	nodes, changed := h.gone()
	dead := make(map[int32]bool, len(nodes))
	for _, n := range nodes {
		dead[n] = true
	}
	before := h.dead
	h.dead = dead
	if h.tenure == nil {
		return changed
	}
	for _, p := range h.tenure.Workers {
		if dead[p.Node] && !before[p.Node] && p.Node != h.node {
			h.work.Go(func() {
				short, cancel := context.WithTimeout(ctx, h.settings.SessionTimeout)
				defer cancel()
				_ = h.member.remove(short, p.Member) // else it is noticed by the end of its session
			})
		}
	}
	return changed
}

// claim is what the worker says of itself.
func (h *herd) claim(fresh bool) claim {
	c := claim{Node: h.node, WorkerID: h.workerID, Offset: h.store.Configs().Offset, Owned: []held{}}
	if claimed := h.claimed.Load(); claimed != nil && !fresh {
		c.Owned = append(c.Owned, *claimed...)
	}
	return c
}

// divide divides the work by the newest configs. If those cannot be read it takes what there is: whoever knows newer
// ones joins again.
func (h *herd) divide(ctx context.Context, claims map[string]claim) map[string]share {
	short, cancel := context.WithTimeout(ctx, freshTimeout)
	defer cancel()
	if err := h.store.Fresh(short); err != nil {
		h.log.Warn("work is assigned by configs that may be out of date", "err", err)
	}
	configs := h.store.Configs()
	var holders []holder
	var workers []peer
	for id, c := range claims {
		holders = append(holders, holder{ID: id, Owned: c.Owned})
		workers = append(workers, peer{Member: id, Node: c.Node, WorkerID: c.WorkerID})
	}
	slices.SortFunc(workers, func(a, b peer) int { return strings.Compare(a.Member, b.Member) })
	out := make(map[string]share, len(claims))
	for id, run := range assign(holders, workOf(configs)) {
		out[id] = share{Leader: h.workerID, Offset: configs.Offset, Run: run, Workers: workers}
	}
	return out
}

// workOf lists what is to run by the configs. A connector's tasks are assigned also while they cannot run.
func workOf(c *store.Configs) (out []workID) {
	for name, connector := range c.Connectors {
		out = append(out, workID{name, connectorObject})
		for i := range connector.Tasks {
			out = append(out, workID{name, i})
		}
	}
	return out
}

// take takes up new configs.
func (h *herd) take(configs *store.Configs) {
	before := h.configs
	if configs == before {
		return
	}
	h.configs = configs
	if before == nil || !sameShape(before, configs) {
		h.workOffset = configs.Offset
	}
	for name, c := range configs.Connectors {
		seen, known := h.requests[name]
		now := requested{connector: -1, tasks: c.TaskRestarts}
		if c.Restart != nil {
			now.connector = c.Restart.Offset
		}
		h.requests[name] = now
		if before != nil && (known || now.connector >= before.Offset) {
			h.restart(c, seen, known)
		}
	}
	maps.DeleteFunc(h.requests, func(name string, _ requested) bool { return configs.Connectors[name] == nil })
}

// sameShape says whether the same connectors and tasks are to run.
func sameShape(a, b *store.Configs) bool {
	return maps.EqualFunc(a.Connectors, b.Connectors, func(x, y *store.Connector) bool {
		return len(x.Tasks) == len(y.Tasks)
	})
}

// restart does what was asked for since.
func (h *herd) restart(c *store.Connector, seen requested, known bool) {
	if !known {
		seen.connector = -1
	}
	if r, ok := c.RestartAfter(seen.connector); ok {
		for id, u := range h.units {
			wanted := id.Connector == c.Name && (id.Task == connectorObject || r.IncludeTasks)
			if wanted && (!r.OnlyFailed || u.hasFailed()) {
				u.again()
			}
		}
	}
	for n, offset := range c.TaskRestarts {
		last, ok := seen.tasks[n]
		if u := h.units[workID{c.Name, n}]; u != nil && known && (!ok || offset > last) {
			u.again()
		}
	}
}

// reconcile starts what is to run, and stops what is not.
func (h *herd) reconcile() {
	if h.configs == nil {
		return
	}
	assigned := make(map[workID]bool)
	if h.tenure != nil {
		for _, id := range h.tenure.Run {
			assigned[id] = true
		}
	}
	for id, u := range h.units {
		h.review(id, u, assigned[id])
	}
	// Nothing starts by configs that are older than those by which it was assigned.
	if h.tenure != nil && h.configs.Offset >= h.tenure.Offset {
		for id := range assigned {
			if p := h.plan(id); p != nil && h.units[id] == nil {
				h.start(id, p)
			}
		}
	}
	h.publish()
	h.ask(assigned)
}

// review stops a unit that is not to run, or not like this, and tells the others whether to pause.
func (h *herd) review(id workID, u *unit, assigned bool) {
	c := h.configs.Connectors[id.Connector]
	switch {
	case !knows(c, id):
		u.halt(false) // nobody runs it any more
	case !assigned:
		u.halt(true)
	case h.outdated(u, c):
		u.halt(false)
	default:
		u.aim.set(c.Target)
	}
}

// knows says whether a connector, nil if it is deleted, may have a task.
func knows(c *store.Connector, id workID) bool {
	return c != nil && (id.Task < len(c.Tasks) || c.Inconsistent)
}

// outdated says whether a unit has to start anew to be what the configs say.
func (h *herd) outdated(u *unit, c *store.Connector) bool {
	if u.id.Task == connectorObject {
		return c.Offset != u.plan.offset // it changed, or was deleted and made again
	}
	if c.Inconsistent {
		return false // it goes on as it is until there are new ones
	}
	if c.Target == store.Stopped {
		return true
	}
	if u.plan.source() && c.FencedOffset != u.plan.fence {
		return true
	}
	// Where the connector's settings are newer than those of its tasks, new ones are about to come.
	return c.TasksOffset > c.Offset && !maps.Equal(u.plan.props, merge(c.Props, c.Tasks[u.id.Task]))
}

// plan is how something is to run, nil if it is not, or not yet.
func (h *herd) plan(id workID) *plan {
	c := h.configs.Connectors[id.Connector]
	if c == nil {
		return nil
	}
	class, err := h.class(c.Props["connector.class"])
	p := &plan{class: class, fault: err, props: c.Props, offset: c.Offset, aim: c.Target, fence: c.FencedOffset}
	if id.Task == connectorObject {
		return p
	}
	if c.Target == store.Stopped || c.Inconsistent || id.Task >= len(c.Tasks) {
		return nil
	}
	if p.source() && c.FencedOffset < c.TasksOffset {
		return nil // tasks of the former settings may run yet
	}
	p.props, p.tasks = merge(c.Props, c.Tasks[id.Task]), len(c.Tasks)
	return p
}

// merge is the settings of a task: the connector's, and its own, which count where both say something.
func merge(connector, own map[string]string) map[string]string {
	out := maps.Clone(connector)
	maps.Copy(out, own)
	return out
}

// publish tells the goroutines of the group what runs, and what may start at any time.
func (h *herd) publish() {
	ids := slices.Collect(maps.Keys(h.units))
	if h.tenure != nil {
		ids = append(ids, h.tenure.Run...)
	}
	slices.SortFunc(ids, workID.compare)
	ids = slices.Compact(ids)
	claimed, since := make([]held, len(ids)), make(map[workID]int32, len(ids))
	for i, id := range ids {
		claimed[i], since[id] = held{id, h.since[id]}, h.since[id]
	}
	h.since = since
	h.claimed.Store(&claimed)
	if owned := h.owned.Load(); owned == nil || !maps.Equal(*owned, h.units) {
		owned := maps.Clone(h.units)
		h.owned.Store(&owned)
	}
}

// ask has the worker join again if there is something to be divided anew: what it has let go of, or what the leader did
// not know of.
func (h *herd) ask(assigned map[workID]bool) {
	if h.tenure == nil {
		return
	}
	if h.releasing {
		for id := range h.units {
			if !assigned[id] {
				return // wait for it: all at once
			}
		}
		h.releasing = false
		h.member.rejoin()
		return
	}
	if h.workOffset > h.tenure.Offset && (h.asked != h.workOffset || time.Since(h.askedAt) > 2*lookAround) {
		h.asked, h.askedAt = h.workOffset, time.Now()
		h.member.rejoin()
	}
}

// mourn says of what a lost worker ran that nobody runs it, until somebody does. What runs here nobody else has.
func (h *herd) mourn(t *tenure) {
	configs := h.store.Configs()
	for name, c := range configs.Connectors {
		st, ok := h.store.ConnectorStatus(name)
		h.mournOne(t, workID{name, connectorObject}, st, ok)
		tasks := h.store.TaskStatuses(name)
		for i := range c.Tasks {
			st, ok := tasks[i]
			h.mournOne(t, workID{name, i}, st, ok)
		}
	}
}

func (h *herd) mournOne(t *tenure, id workID, st store.Status, ok bool) {
	lives := slices.ContainsFunc(t.Workers, func(p peer) bool { return p.WorkerID == st.WorkerID })
	if ok && st.State != stateUnassigned && !lives && h.units[id] == nil {
		h.statuses.put(id, store.Status{State: stateUnassigned, WorkerID: h.workerID, Generation: int64(t.generation)}, true)
	}
}

// insist says again of what this worker runs what it is, where something else was said after that: by who ran it before
// and was slow to notice that it is gone, or by this worker, which took it for lost when it led. Of what cannot start
// for a while it says that it does not run.
func (h *herd) insist() {
	if h.tenure == nil || !h.statuses.done() {
		return
	}
	tasks := make(map[string]map[int]store.Status)
	before := h.stalled
	h.stalled = make(map[workID]bool)
	for _, id := range h.tenure.Run {
		said := h.said(id, before[id])
		st, ok := h.store.ConnectorStatus(id.Connector)
		if id.Task != connectorObject {
			if tasks[id.Connector] == nil {
				tasks[id.Connector] = h.store.TaskStatuses(id.Connector)
			}
			st, ok = tasks[id.Connector][id.Task]
		}
		stale := !ok || st.WorkerID != h.workerID || st.State != said.State
		if said.State != "" && stale {
			h.statuses.put(id, said, false)
		}
	}
}

// said is what there is to say of something that is assigned here, without a state if there is nothing. Stalled: it
// could not start at the last look either.
func (h *herd) said(id workID, stalled bool) (st store.Status) {
	switch u := h.units[id]; {
	case u != nil:
		return u.last()
	case !h.awaitsFence(id):
		return st
	}
	if h.stalled[id] = true; stalled {
		st = store.Status{State: stateUnassigned, Trace: whyStalled, WorkerID: h.workerID,
			Generation: int64(h.tenure.generation)}
	}
	return st
}

// whyStalled is what the status of a task says that has not begun for a while.
const whyStalled = "it starts when the transactions of the tasks before it have ended"

// awaitsFence says whether a task does not start because those of the former settings may run yet.
func (h *herd) awaitsFence(id workID) bool {
	c := h.configs.Connectors[id.Connector]
	return id.Task != connectorObject && knows(c, id) && c.Target != store.Stopped && !c.Inconsistent && h.plan(id) == nil
}
