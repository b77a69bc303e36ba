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
	heard   bool          // guarded by mu: the task knows that it is to be paused
	changed chan struct{} // guarded by mu
}

func newWanted() *wanted { return &wanted{changed: make(chan struct{})} }

func (w *wanted) get() (bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = w.paused
	return w.paused, w.changed
}

// reached says whether the task was told to pause. From then on it does nothing.
func (w *wanted) reached() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}

func (w *wanted) set(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused, w.heard = paused, false
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
