package connect

import (
	"context"

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
		StillOwner: h.member.verify,
	})
}

func workState(s store.State) string {
	if s == store.Started {
		return stateRunning
	}
	return statePaused
}
