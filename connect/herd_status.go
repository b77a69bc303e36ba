package connect

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"millrace/connect/store"
)

// statusWriters is how many statuses are written at the same time.
const statusWriters = 8

// statuses writes what is said of connectors and tasks, so that whoever says it does not wait. Of one connector or task
// only the last is written.
type statuses struct {
	store *store.Store
	log   *slog.Logger
	woken chan struct{} // has an element when something is to be written

	mu      sync.Mutex
	pending map[workID]statusLine // guarded by mu
	shorter map[string]int        // guarded by mu: connectors that have fewer tasks now: how many; all: they are deleted
	busy    int                   // guarded by mu: being written
	drops   int                   // guarded by mu: how often drop was called
	idle    chan struct{}         // guarded by mu: closed when nothing is left
}

type statusLine struct {
	store.Status
	safe bool
}

func newStatuses(s *store.Store, log *slog.Logger) *statuses {
	return &statuses{
		store: s, log: log, woken: make(chan struct{}, 1), pending: make(map[workID]statusLine),
		shorter: make(map[string]int), idle: make(chan struct{}),
	}
}

// put has a status be written. Safe: not over what another worker has said since.
func (s *statuses) put(id workID, st store.Status, safe bool) {
	s.mu.Lock()
	s.pending[id] = statusLine{st, safe}
	s.mu.Unlock()
	s.wake()
}

// all stands for the connector with all its tasks.
const all = -1

// forget has the statuses of a connector's tasks from a number on be forgotten, or all of a connector that was deleted.
func (s *statuses) forget(connector string, from int) {
	s.mu.Lock()
	s.shorter[connector] = from
	s.mu.Unlock()
	s.wake()
}

func (s *statuses) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// drop has nothing be written that other workers may know better by now.
func (s *statuses) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops++
	for id, line := range s.pending {
		if !line.safe {
			delete(s.pending, id)
		}
	}
}

// run writes until ctx ends. What cannot be written is tried again.
func (s *statuses) run(ctx context.Context) {
	pause := firstPause
	for {
		if s.pass(ctx) {
			pause = firstPause
		} else {
			wait(ctx, pause)
			pause = min(2*pause, longestPause)
			s.wake()
		}
		select {
		case <-s.woken:
		case <-ctx.Done():
			return
		}
	}
}

// flush waits until all is written, or ctx ends.
func (s *statuses) flush(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		idle := s.idle
		done := s.doneLocked()
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
}

// done says whether all is written.
func (s *statuses) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doneLocked()
}

func (s *statuses) doneLocked() bool {
	return len(s.pending) == 0 && len(s.shorter) == 0 && s.busy == 0
}

// pass writes all that waits, and says whether all of it could be written.
func (s *statuses) pass(ctx context.Context) bool {
	s.mu.Lock()
	lines, shorter, drops := s.pending, s.shorter, s.drops
	s.pending, s.shorter = make(map[workID]statusLine), make(map[string]int)
	s.busy = len(lines) + len(shorter)
	s.mu.Unlock()
	var writing sync.WaitGroup
	var failures atomic.Int32
	slots := make(chan struct{}, statusWriters)
	write := func(do func() error, undo func()) {
		slots <- struct{}{}
		writing.Go(func() {
			defer func() { <-slots }()
			if err := do(); err != nil {
				s.log.Debug("a status could not be written yet", "err", err)
				failures.Add(1)
				undo()
			}
		})
	}
	for id, line := range lines {
		write(func() error { return s.write(ctx, id, line) }, func() { s.restore(id, line, drops) })
	}
	for connector, from := range shorter {
		write(func() error { return s.erase(ctx, connector, from) }, func() { s.forget(connector, from) })
	}
	writing.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = 0
	close(s.idle)
	s.idle = make(chan struct{})
	return failures.Load() == 0
}

// restore has a status be written once more that was put before so many drops, unless there is a newer one.
func (s *statuses) restore(id workID, line statusLine, drops int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, newer := s.pending[id]; !newer && (line.safe || drops == s.drops) {
		s.pending[id] = line
	}
}

// erase forgets what was said of a connector, or of its tasks from a number on: all that this worker has written, too.
func (s *statuses) erase(ctx context.Context, connector string, from int) error {
	if err := s.store.Fresh(ctx); err != nil {
		return err
	}
	if from != all {
		return s.store.ForgetTaskStatus(ctx, connector, from)
	}
	if s.store.Configs().Connectors[connector] != nil {
		return nil // there is a new one
	}
	return s.store.ForgetStatus(ctx, connector)
}

func (s *statuses) write(ctx context.Context, id workID, line statusLine) error {
	// Nothing is said of what is not there any more: it would stay for ever.
	if !knows(s.store.Configs().Connectors[id.Connector], id) {
		return nil
	}
	if id.Task == connectorObject {
		return s.store.PutConnectorStatus(ctx, id.Connector, line.Status, line.safe)
	}
	return s.store.PutTaskStatus(ctx, id.Connector, id.Task, line.Status, line.safe)
}
