package schemaregistry

import (
	"context"

	"millrace/client/statetopic"
)

// Run reads the log until ctx ends, and returns nil then. It goes on after errors.
func (r *Registry) Run(ctx context.Context) error {
	r.tail.Run(ctx)
	return nil
}

// AwaitRead waits until all of the log was read once.
func (r *Registry) AwaitRead(ctx context.Context) error { return r.tail.AwaitRead(ctx) }

// folding folds the log into the Registry's state. While it has a fresh state of its own, that one is filled up to the
// end of the log before it takes the place of the Registry's.
type folding struct {
	r       *Registry
	fresh   *state  // nil: the Registry's state is read on
	entries []entry // that the Registry's state is yet to show
}

// Renew implements statetopic.Fold.
func (f *folding) Renew() { f.fresh, f.entries = newState(), nil }

// Take implements statetopic.Fold. What cannot be understood is counted and passed over.
func (f *folding) Take(records []statetopic.Record) {
	for i := range records {
		rec := &records[i]
		e, err := readEntry(rec.Key, rec.Value)
		if err != nil {
			f.r.skip("a record", rec.Partition, rec.Offset, err)
			continue
		}
		e.timestamp, e.own = rec.Timestamp, rec.Own
		if f.fresh != nil {
			f.fresh.apply(&e)
		} else {
			f.entries = append(f.entries, e)
		}
	}
}

// Show implements statetopic.Fold.
func (f *folding) Show(at *statetopic.Place) {
	r := f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	conflicts := r.state.conflicts
	if f.fresh != nil {
		r.state, f.fresh, conflicts = f.fresh, nil, 0
	}
	for i := range f.entries {
		r.state.apply(&f.entries[i])
	}
	f.entries = nil
	r.at = at
	r.metrics.conflicts.Add(float64(r.state.conflicts - conflicts))
}

// skip counts what is passed over.
func (r *Registry) skip(what string, _ int32, offset int64, err error) {
	r.metrics.skipped.Inc()
	r.log.Warn("something in the log of schemas is not understood, and is passed over",
		"topic", r.cfg.Topic, "what", what, "offset", offset, "err", err)
}

// place is what the state is.
func (r *Registry) place() *statetopic.Place {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.at
}
