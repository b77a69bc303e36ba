package connect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/connect/plugin"
	"millrace/connect/store"
	"millrace/connect/task"
)

// The states of connectors and tasks.
const (
	stateUnassigned = "UNASSIGNED"
	stateRunning    = "RUNNING"
	statePaused     = "PAUSED"
	stateStopped    = "STOPPED"
	stateFailed     = "FAILED"
	stateRestarting = "RESTARTING"
)

// autoRestart is the setting of a connector that says whether what failed is started again by itself.
const autoRestart = "millrace.auto.restart"

// errHang says that something did not stop when it was told to, within the time that it had.
var errHang = errors.New("it did not stop in time and was abandoned")

// plan is how something is to run. It never changes.
type plan struct {
	class  *plugin.Class
	fault  error             // why there is no class
	props  map[string]string // with references
	offset int64             // of the connector's config
	aim    store.State       // at first
	tasks  int               // of the connector, for a task
	fence  int64             // the FencedOffset of the connector
}

func (p *plan) source() bool { return p.class != nil && p.class.Kind == plugin.SourceKind }

// aim is what something shall be, for whoever runs it to see.
type aim struct {
	mu      sync.Mutex
	state   store.State   // guarded by mu
	changed chan struct{} // guarded by mu: closed at the next change
}

func newAim(s store.State) *aim { return &aim{state: s, changed: make(chan struct{})} }

func (a *aim) get() (store.State, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, a.changed
}

func (a *aim) set(s store.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != s {
		a.state = s
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// unit is a connector or task that this worker runs, whether it works or waits after a failure. It ends when the herd
// halts it.
type unit struct {
	herd *herd
	id   workID
	plan *plan
	aim  *aim
	rand *rand.Rand
	// generation is that in which it was assigned.
	generation int32

	cancel context.CancelFunc
	quiet  atomic.Bool   // it is not said that nobody runs it
	redo   chan struct{} // has an element when it is to start anew

	mu       sync.Mutex
	said     store.Status // guarded by mu: of it last; without a state before that
	attempt  *attempt     // guarded by mu: the one that counts
	trouble  string       // guarded by mu: what keeps the attempt from its work while it tries again by itself
	failures int          // guarded by mu: since it worked for a while
}

// attempt is one start of a unit, up to when it ends or is given up.
type attempt struct {
	unit *unit
	once sync.Once // of having started
}

// start starts something.
func (h *herd) start(id workID, p *plan) {
	ctx, cancel := context.WithCancel(context.Background())
	u := &unit{
		herd: h, id: id, plan: p, aim: newAim(p.aim), cancel: cancel, redo: make(chan struct{}, 1),
		generation: h.tenure.generation, rand: rand.New(rand.NewPCG(h.rand.Uint64(), h.rand.Uint64())),
	}
	h.units[id] = u
	h.work.Go(func() {
		u.run(ctx)
		h.post(func() { h.unitEnded(u) })
	})
}

// unitEnded forgets a unit.
func (h *herd) unitEnded(u *unit) {
	delete(h.units, u.id)
	h.publish()
	switch c := h.configs.Connectors[u.id.Connector]; { // it may have said something after the rest was forgotten
	case c == nil:
		h.statuses.forget(u.id.Connector, all)
	case !knows(c, u.id):
		h.statuses.forget(u.id.Connector, len(c.Tasks))
	}
}

// halt ends the unit, soon. Tell has its status say that nobody runs it.
func (u *unit) halt(tell bool) {
	if !tell {
		u.quiet.Store(true)
	}
	u.cancel()
}

// again has the unit start anew.
func (u *unit) again() {
	select {
	case u.redo <- struct{}{}:
	default:
	}
}

func (u *unit) hasFailed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.said.State == stateFailed
}

// errAgain ends an attempt because somebody wants another one.
var errAgain = errors.New("a restart was asked for")

// run starts the unit, and again when it fails or is asked to, until ctx ends.
func (u *unit) run(ctx context.Context) {
	for {
		began := time.Now()
		err := u.try(ctx)
		if ctx.Err() != nil {
			break
		}
		pause := u.failed(err, time.Since(began))
		if errors.Is(err, errAgain) {
			u.say(stateRestarting, "")
			continue
		}
		u.await(ctx, pause)
		if ctx.Err() != nil {
			break
		}
		u.say(stateRestarting, "")
	}
	if !u.quiet.Load() {
		u.say(stateUnassigned, "")
	}
}

// failed notes how an attempt ended, and says how long to wait before the next one; negative: until somebody asks.
func (u *unit) failed(err error, after time.Duration) time.Duration {
	u.mu.Lock()
	u.attempt = nil
	if after > u.herd.settings.RestartHealthy || errors.Is(err, errAgain) {
		u.failures = 0
	}
	fenced := err == nil || errors.Is(err, task.ErrFenced)
	failures := 1
	if !fenced {
		u.failures++
		failures = u.failures
	}
	u.mu.Unlock()
	s := u.herd.settings
	pause := backoff(failures, s.RestartBackoff, s.RestartBackoffMax)
	pause = pause*4/5 + time.Duration(u.rand.Int64N(int64(pause)/5+1))
	switch {
	case errors.Is(err, errAgain):
		return 0
	case fenced: // somebody else ran it as well: if it is this worker's all the same it goes on
		u.herd.log.Info("a part of a connector may be another worker's, and starts again if it is not",
			"connector", u.id.Connector, "task", u.id.Task, "err", err, "wait", pause.String())
		return pause
	}
	trace := traceOf(err, u.herd.hidden(u.plan.props))
	u.say(stateFailed, trace)
	log := u.herd.log.With("connector", u.id.Connector, "task", u.id.Task, "err", trace)
	if strings.EqualFold(strings.TrimSpace(u.plan.props[autoRestart]), "false") {
		log.Error("a part of a connector has failed, and waits for somebody to restart it")
		return -1
	}
	log.Error("a part of a connector has failed, and starts again", "wait", pause.String())
	return pause
}

// backoff is the time after so many failures: the first, doubled for each other one, up to the longest.
func backoff(failures int, first, longest time.Duration) time.Duration {
	for range failures - 1 {
		if first >= longest/2 {
			return longest
		}
		first *= 2
	}
	return min(first, longest)
}

// await waits until the unit is to start again.
func (u *unit) await(ctx context.Context, pause time.Duration) {
	var over <-chan time.Time
	if pause >= 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-u.redo:
		u.mu.Lock()
		u.failures = 0
		u.mu.Unlock()
	case <-ctx.Done():
	}
}

// try is one attempt. What does not end in time is left to itself, and nothing that it says counts any more.
func (u *unit) try(ctx context.Context) error {
	a := &attempt{unit: u}
	u.mu.Lock()
	u.attempt, u.trouble = a, ""
	u.mu.Unlock()
	select {
	case <-u.redo: // it does start anew
	default:
	}
	u.herd.metrics.attempt(u.id)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	u.herd.strays.Go(func() { result <- a.run(inner) })
	var again error
	select {
	case err := <-result:
		a.once.Do(func() { u.herd.metrics.failed(u.id) })
		a.over()
		return err
	case <-u.redo:
		again = errAgain
	case <-ctx.Done():
	}
	cancel()
	grace := time.NewTimer(u.herd.settings.TaskShutdownTimeout)
	defer grace.Stop()
	select {
	case <-result:
	case <-grace.C:
		u.herd.log.Error("a part of a connector hangs", "connector", u.id.Connector, "task", u.id.Task, "err", errHang)
	}
	a.over()
	return again
}

// run does the work of the unit. A panic is a failure of this unit and of nothing else.
func (a *attempt) run(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	u := a.unit
	switch {
	case u.plan.fault != nil:
		return u.plan.fault
	case u.id.Task == connectorObject:
		return u.herd.runConnector(ctx, a)
	default:
		return u.herd.runTask(ctx, a)
	}
}

// started notes that the attempt works.
func (a *attempt) started() {
	a.once.Do(func() { a.unit.herd.metrics.started(a.unit.id) })
}

// over has nothing that the attempt says count any more.
func (a *attempt) over() {
	a.once.Do(func() {}) // what was stopped did not fail to start
	u := a.unit
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.attempt == a {
		u.attempt = nil
	}
}

// say says what the unit is, on behalf of an attempt.
func (a *attempt) say(state string) {
	u := a.unit
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.attempt == a {
		a.sayLocked(state)
	}
}

// sayLocked says it, with what keeps the attempt from its work if it is to run.
func (a *attempt) sayLocked(state string) {
	trace := ""
	if state == stateRunning {
		trace = a.unit.trouble
	}
	a.unit.sayLocked(state, trace)
}

// trouble notes what keeps the attempt from its work while it tries again by itself; nil: nothing does.
func (a *attempt) trouble(why error) {
	u, text := a.unit, ""
	if why != nil {
		text = traceOf(why, u.herd.hidden(u.plan.props))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.attempt != a {
		return
	}
	if u.trouble = text; u.said.State == stateRunning {
		a.sayLocked(stateRunning)
	}
}

// say says what the unit is.
func (u *unit) say(state, trace string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sayLocked(state, trace)
}

// sayLocked says it in the order in which the lock was taken.
func (u *unit) sayLocked(state, trace string) {
	st := store.Status{State: state, Trace: trace, WorkerID: u.herd.workerID, Generation: int64(u.generation)}
	if u.said != st {
		u.said = st
		u.herd.statuses.put(u.id, st, state == stateUnassigned)
	}
}

// last is what was said of the unit last.
func (u *unit) last() store.Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.said
}

// maxTrace bounds what is stored of a failure.
const maxTrace = 16 << 10

// traceOf is what is stored of a failure, without secrets.
func traceOf(err error, hidden *strings.Replacer) string {
	text := hidden.Replace(err.Error())
	if len(text) > maxTrace {
		text = strings.ToValidUTF8(text[:maxTrace], "") + " ..."
	}
	return text
}
