package connect

import (
	"context"

	"millrace/connect/store"
)

// Pause has a connector and its tasks do nothing, but keep what they have.
func (w *Worker) Pause(ctx context.Context, name string) error {
	return w.aim(ctx, name, store.Paused)
}

// Resume has a connector run that was paused or stopped.
func (w *Worker) Resume(ctx context.Context, name string) error {
	return w.aim(ctx, name, store.Started)
}

// Stop has nothing of a connector run, and leaves its config.
func (w *Worker) Stop(ctx context.Context, name string) error {
	return w.aim(ctx, name, store.Stopped)
}

func (w *Worker) aim(ctx context.Context, name string, state store.State) error {
	_, err := w.update(ctx, func(all *store.Configs) ([]store.Change, error) {
		c, err := known(all, name)
		if err != nil {
			return nil, err
		}
		var out []store.Change
		if state == store.Stopped && (len(c.Tasks) > 0 || c.Inconsistent) {
			out = append(out, store.PutTasks(name, nil))
		}
		if c.Target != state {
			out = append(out, store.SetTarget(name, state))
		}
		return out, nil
	})
	return err
}

// Restart restarts a connector, or with IncludeTasks its tasks too, or with OnlyFailed only what has failed of them. It
// tells what is affected as RESTARTING.
func (w *Worker) Restart(ctx context.Context, name string, r store.Restart) (*ConnectorStatus, error) {
	if _, err := w.connector(ctx, name); err != nil { // reads the status too, by which it is planned
		return nil, err
	}
	all, err := w.update(ctx, func(all *store.Configs) ([]store.Change, error) {
		_, err := known(all, name)
		return []store.Change{store.RequestRestart(name, r)}, err
	})
	if err != nil {
		return nil, err
	}
	c, err := known(all, name)
	if err != nil {
		return nil, err
	}
	out := w.status(c)
	mark := func(st *ConnectorState) {
		if !r.OnlyFailed || st.State == stateFailed {
			st.State, st.Trace = stateRestarting, ""
		}
	}
	mark(&out.Connector)
	for i := range out.Tasks {
		if r.IncludeTasks {
			mark(&out.Tasks[i].ConnectorState)
		}
	}
	return out, nil
}

// RestartTask restarts one task.
func (w *Worker) RestartTask(ctx context.Context, name string, task int) error {
	_, err := w.update(ctx, func(all *store.Configs) ([]store.Change, error) {
		c, err := known(all, name)
		if err == nil {
			err = knownTask(c, task)
		}
		return []store.Change{store.RequestTaskRestart(name, task)}, err
	})
	return err
}

// isStopped says whether nothing of a connector is to run.
func isStopped(c *store.Connector) bool {
	return c.Target == store.Stopped && len(c.Tasks) == 0 && !c.Inconsistent
}
