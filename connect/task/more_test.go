package task_test

import (
	"context"
	"sync"

	"millrace/connect/plugin"
)

type ctxt = context.Context

// target is a task's target state.
type target struct {
	mu      sync.Mutex
	paused  bool          // guarded by mu
	changed chan struct{} // guarded by mu
}

func newTarget() *target { return &target{changed: make(chan struct{})} }

func (t *target) get() (bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.paused, t.changed
}

func (t *target) set(paused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = paused
	close(t.changed)
	t.changed = make(chan struct{})
}

// dirSource asks for a folder.
type dirSource struct {
	counter
	dirs chan string
}

func (d *dirSource) Start(ctx context.Context, props map[string]string, s plugin.SourceContext) error {
	dir, err := s.Dir()
	if err != nil {
		return err
	}
	d.dirs <- dir
	return d.counter.Start(ctx, props, s)
}
