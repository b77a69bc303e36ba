package task_test

import (
	"context"
	"sync"

	"millrace/connect/plugin"
)

// wanted is what a task is to be.
type wanted struct {
	mu      sync.Mutex
	paused  bool          // guarded by mu
	changed chan struct{} // guarded by mu
}

func newWanted() *wanted { return &wanted{changed: make(chan struct{})} }

func (w *wanted) get() (bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused, w.changed
}

func (w *wanted) set(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = paused
	close(w.changed)
	w.changed = make(chan struct{})
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
