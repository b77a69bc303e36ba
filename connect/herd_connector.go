package connect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/connect/plugin"
	"millrace/connect/provider"
	"millrace/connect/store"
)

// errOutdated ends a write of task settings that were made for a connector that has changed since.
var errOutdated = errors.New("the connector has changed")

// errOpen ends a round of fencing.
var errOpen = errors.New("their transactions do not end, for which each partition that they wrote to needs a leader")

// fenceTimeout bounds a round of fencing, after which the connector looks again at what it shall be.
const fenceTimeout = 5 * time.Second

// connectorRun is one attempt of a connector object.
type connectorRun struct {
	herd     *herd
	attempt  *attempt
	name     string
	plan     *plan
	props    map[string]string // resolved
	log      func(msg string, args ...any)
	object   plugin.Connector    // nil while it is not started
	reask    chan struct{}       // has an element when the task settings are to be asked for again
	faults   chan error          // has an element when the connector says that it cannot go on
	askTasks bool                // the task settings are to be asked for
	tasks    []map[string]string // as they were stored last
	fenced   int64               // the TasksOffset for which earlier tasks were fenced
	rand     *rand.Rand
}

// runConnector is a connector object until ctx ends, or it fails.
func (h *herd) runConnector(ctx context.Context, a *attempt) (err error) {
	u := a.unit
	r := &connectorRun{
		herd: h, attempt: a, name: u.id.Connector, plan: u.plan, reask: make(chan struct{}, 1),
		faults: make(chan error, 1), fenced: -1, rand: rand.New(rand.NewPCG(u.rand.Uint64(), u.rand.Uint64())),
	}
	r.log = h.log.With("connector", r.name).Info
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	pause := firstPause
	for ctx.Err() == nil {
		changed := h.store.Changed() // before the look, so that nothing is missed between the two
		state, aimed := u.aim.get()
		if err := r.follow(ctx, state); err != nil {
			return err
		}
		var again <-chan time.Time
		if err := r.publish(ctx, state); err != nil && ctx.Err() == nil {
			if taskFault := new(taskError); errors.As(err, &taskFault) {
				return taskFault.err
			}
			h.log.Warn("the tasks of a connector could not be made anew yet", "connector", r.name, "err", err)
			again = time.After(pause)
			pause = min(2*pause, longestPause)
		} else {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-aimed:
		case <-changed:
		case <-r.reask:
			r.askTasks = true
		case err := <-r.faults:
			return err
		}
	}
	return nil
}

// follow makes the connector what it shall be. One that is paused from the start is not started; one that was started
// stays so.
func (r *connectorRun) follow(ctx context.Context, state store.State) error {
	switch {
	case state == store.Stopped:
		if err := r.stop(ctx); err != nil {
			return err
		}
		r.attempt.started()
		r.attempt.say(stateStopped)
	case state == store.Paused:
		r.attempt.started()
		r.attempt.say(statePaused)
	case r.object == nil:
		return r.start(ctx)
	default:
		r.attempt.say(stateRunning)
	}
	return nil
}

func (r *connectorRun) start(ctx context.Context) error {
	h := r.herd
	resolved, err := h.resolve(r.plan.props)
	if err != nil {
		return err
	}
	r.props = resolved
	object := r.plan.class.New()
	r.object = object // stopped even if it does not start
	err = object.Start(ctx, maps.Clone(resolved), plugin.ConnectorContext{
		Name: r.name, Logger: h.log.With("connector", r.name),
		Reconfigure: func() {
			select {
			case r.reask <- struct{}{}:
			default:
			}
		},
		Fail: func(err error) {
			select {
			case r.faults <- err:
			default:
			}
		},
	})
	if err != nil {
		return fmt.Errorf("the connector did not start: %w", err)
	}
	r.askTasks = true
	r.attempt.started()
	r.attempt.say(stateRunning)
	return nil
}

// stop stops the connector, if it is started.
func (r *connectorRun) stop(ctx context.Context) error {
	object := r.object
	r.object = nil
	if object == nil {
		return nil
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.herd.settings.TaskShutdownTimeout)
	defer cancel()
	if err := object.Stop(short); err != nil {
		return fmt.Errorf("the connector did not stop: %w", err)
	}
	return nil
}

// taskError says that the connector failed to say what its tasks are.
type taskError struct{ err error }

func (e *taskError) Error() string { return e.err.Error() }

// publish stores the settings of the tasks, if there are new ones, and fences the tasks before them.
func (r *connectorRun) publish(ctx context.Context, state store.State) error {
	c := r.herd.store.Configs().Connectors[r.name]
	if c == nil || c.Offset != r.plan.offset {
		return nil // the herd is about to end this
	}
	// Others take tasks away: whoever stops a connector, which may be resumed before it is seen to be stopped.
	stale := r.askTasks || c.Inconsistent || !slices.EqualFunc(c.Tasks, r.tasks, maps.Equal)
	if state == store.Started && r.object != nil && stale {
		tasks, err := r.taskConfigs(ctx)
		if err != nil {
			return &taskError{err}
		}
		if err := r.putTasks(ctx, tasks); err != nil {
			return err
		}
	}
	c = r.herd.store.Configs().Connectors[r.name]
	if r.plan.source() && c != nil && !c.Inconsistent && len(c.Tasks) > 0 && c.FencedOffset < c.TasksOffset &&
		r.fenced != c.TasksOffset {
		return r.fence(ctx, c)
	}
	return nil
}

// taskConfigs asks the connector what its tasks are to do.
func (r *connectorRun) taskConfigs(ctx context.Context) ([]map[string]string, error) {
	most := 1
	if text := strings.TrimSpace(r.props["tasks.max"]); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostTasks {
			return nil, fmt.Errorf("tasks.max is %.40q, and must be a number from 1 to %d", text, mostTasks)
		}
		most = n
	}
	tasks, err := r.object.TaskConfigs(ctx, most)
	if err != nil {
		return nil, fmt.Errorf("the connector did not say what its tasks are: %w", err)
	}
	if len(tasks) > most {
		return nil, fmt.Errorf("the connector wants %d tasks, and tasks.max is %d", len(tasks), most)
	}
	for i := range tasks {
		tasks[i] = concealed(tasks[i], r.plan.props, r.props)
	}
	return tasks, nil
}

// concealed is the settings of a task with the references of the connector's settings in place of their values.
func concealed(own, raw, resolved map[string]string) map[string]string {
	out := maps.Clone(own)
	for key, value := range own {
		if was, ok := raw[key]; ok && was != value && resolved[key] == value {
			out[key] = was
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(raw)) {
			if raw[name] != resolved[name] && resolved[name] == value && value != "" {
				out[key] = raw[name]
				break
			}
		}
	}
	return out
}

// putTasks stores the settings of the tasks, if they are not what is stored. Those of a connector that has changed, or
// is stopped, are asked for again when that has come to this one.
func (r *connectorRun) putTasks(ctx context.Context, tasks []map[string]string) error {
	wrote := false
	_, err := r.herd.store.Update(ctx, func(all *store.Configs) ([]store.Change, error) {
		wrote = false
		c := all.Connectors[r.name]
		if c == nil || c.Target == store.Stopped || c.Offset != r.plan.offset {
			return nil, errOutdated
		}
		if !c.Inconsistent && c.TasksOffset > c.Offset && slices.EqualFunc(c.Tasks, tasks, maps.Equal) {
			return nil, nil
		}
		wrote = true
		return []store.Change{store.PutTasks(r.name, tasks)}, nil
	})
	if errors.Is(err, errOutdated) {
		return nil
	}
	if err != nil {
		return err
	}
	r.tasks, r.askTasks = tasks, false
	if wrote {
		r.log("the connector has new tasks", "tasks", len(tasks))
		r.herd.statuses.forget(r.name, len(tasks))
	}
	return nil
}

// fence makes sure that no task of the former settings can store anything any more, and lets those of the new ones
// start.
func (r *connectorRun) fence(ctx context.Context, c *store.Connector) error {
	if c.Fenced > 1 || c.Fenced == 1 && len(c.Tasks) != 1 { // of one and one, the later fences the earlier by itself
		short, cancel := context.WithTimeoutCause(ctx, fenceTimeout, errOpen)
		defer cancel()
		if err := r.herd.runner.Fence(short, r.name, c.Fenced); err != nil {
			if cause := context.Cause(short); errors.Is(cause, errOpen) {
				err = cause
			}
			return fmt.Errorf("fence the tasks before: %w", err)
		}
	}
	_, err := r.herd.store.Update(ctx, func(all *store.Configs) ([]store.Change, error) {
		now := all.Connectors[r.name]
		if now == nil || now.TasksOffset != c.TasksOffset || now.FencedOffset > now.TasksOffset {
			return nil, errOutdated // there is another round, or there was this one
		}
		return []store.Change{store.SetFenced(r.name, len(now.Tasks))}, nil
	})
	if errors.Is(err, errOutdated) {
		err = nil
	}
	if err == nil {
		r.fenced = c.TasksOffset
	}
	return err
}

// resolve puts values in the place of references. A reference to what there is not is an error; it names the reference.
func (h *herd) resolve(props map[string]string) (map[string]string, error) {
	out, problems := h.providers.Resolve(props)
	if len(problems) == 0 {
		return out, nil
	}
	slices.SortFunc(problems, func(a, b provider.Problem) int { return strings.Compare(a.Setting, b.Setting) })
	return nil, fmt.Errorf("setting %s: %s: %s", problems[0].Setting, problems[0].Reference, problems[0].Why)
}
