package task

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// registry is where the metrics of one task go: all of them have its labels, and all leave with it. It implements
// prometheus.Registerer.
type registry struct {
	to prometheus.Registerer // nil: nowhere

	mu  sync.Mutex
	all []prometheus.Collector // guarded by mu
}

var _ prometheus.Registerer = (*registry)(nil)

// Register implements prometheus.Registerer. What an earlier run of the same task has left makes room.
func (r *registry) Register(c prometheus.Collector) error {
	if r.to == nil {
		return nil
	}
	err := r.to.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) && there.ExistingCollector != c {
		r.to.Unregister(there.ExistingCollector)
		err = r.to.Register(c)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
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
func (r *registry) Unregister(c prometheus.Collector) bool { return r.to != nil && r.to.Unregister(c) }

// clear takes all away.
func (r *registry) clear() {
	r.mu.Lock()
	all := r.all
	r.all = nil
	r.mu.Unlock()
	for _, c := range all {
		r.to.Unregister(c)
	}
}
