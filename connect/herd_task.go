package connect

import (
	"context"
	"fmt"

	"millrace/connect/store"
	"millrace/connect/task"
)

// runTask is a task until ctx ends, or it fails.
func (h *herd) runTask(ctx context.Context, a *attempt) error {
	u := a.unit
	props, err := h.resolve(u.plan.props)
	if err != nil {
		return err
	}
	// The status follows what the task shall be from when it has started.
	ready := make(chan struct{})
	h.strays.Go(func() {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			state, changed := u.aim.get()
			a.say(workState(state))
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	})
	return h.runner.Run(ctx, task.Spec{
		Connector: u.id.Connector, ID: u.id.Task, Class: u.plan.class, Props: props,
		Target: func() (bool, <-chan struct{}) {
			state, changed := u.aim.get()
			return state != store.Started, changed
		},
		Running: func() {
			a.started()
			close(ready)
		},
		Trouble:    a.trouble,
		StillOwner: func(ctx context.Context) error { return h.stillOwner(ctx, u) },
	})
}

// stillOwner says why a task that has fenced all others must not begin: it is another worker's, or the configs say
// something else by now. Whoever changes the tasks of a source fences the former ones after that, so that of those none
// goes on that began before, and none begins after.
func (h *herd) stillOwner(ctx context.Context, u *unit) error {
	if err := h.member.verify(ctx); err != nil {
		return fmt.Errorf("%w: %w", task.ErrFenced, err)
	}
	if err := h.store.Fresh(ctx); err != nil {
		return fmt.Errorf("read the newest configs of connectors: %w", err)
	}
	if c := h.store.Configs().Connectors[u.id.Connector]; !knows(c, u.id) || h.outdated(u, c) {
		return fmt.Errorf("%w: its settings have changed", task.ErrFenced)
	}
	return nil
}

func workState(s store.State) string {
	if s == store.Started {
		return stateRunning
	}
	return statePaused
}
