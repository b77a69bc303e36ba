package task

import (
	"errors"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// registry is where the metrics of one run of a task go: all have its labels, and all leave with it. It implements
// prometheus.Registerer.
type registry struct {
	to prometheus.Registerer // nil: nowhere

	mu    sync.Mutex
	all   []prometheus.Collector // guarded by mu
	ended bool                   // guarded by mu: nothing is taken any more
}

// register makes the registry of a run. What an earlier run of the same task shows, and does not end, goes.
func (r *Runner) register(connector string, task int) (reg *registry, end func()) {
	reg = &registry{}
	key := connector + "/" + strconv.Itoa(task)
	if r.opts.Registerer != nil {
		labels := prometheus.Labels{"connector": connector, "task": strconv.Itoa(task)}
		reg.to = prometheus.WrapRegistererWith(labels, r.opts.Registerer)
	}
	r.mu.Lock()
	before := r.live[key]
	r.live[key] = reg
	r.mu.Unlock()
	if before != nil {
		before.clear()
	}
	return reg, func() {
		reg.clear()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.live[key] == reg {
			delete(r.live, key)
		}
	}
}

// Register implements prometheus.Registerer.
func (r *registry) Register(c prometheus.Collector) error {
	if r.to == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errors.New("the task has ended")
	}
	if err := r.to.Register(c); err != nil {
		return err
	}
	r.all = append(r.all, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *registry) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *registry) Unregister(c prometheus.Collector) bool {
	if r.to == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	return r.to.Unregister(c)
}

// clear takes all away, for good.
func (r *registry) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	for _, c := range r.all {
		r.to.Unregister(c)
	}
	r.all = nil
}
