package task

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// work is a part of what a task does, which may be in trouble by itself.
type work int

const (
	openWork work = iota // a sink opens partitions
	putWork              // a sink writes
	ownWork              // a task does what only it knows of
	pollWork             // a source reads
	sendWork             // what a source read is sent
	works
)

// Times of troubles.
const (
	troubleAfter = time.Second     // that something must fail for before it is told
	troubleEvery = 5 * time.Second // it is not told more often, so that those who hear of it can write it down
)

// troubles are what keeps a task from its work while it tries again: those who look at the task's state are to see
// it. What passes at once is not told.
type troubles struct {
	tell func(why error) // nil: all is well

	mu     sync.Mutex
	why    [works]error     // guarded by mu: how it failed last, nil: it did not
	since  [works]time.Time // guarded by mu: when it failed first
	told   string           // guarded by mu: the text, "": all is well
	toldAt time.Time        // guarded by mu: when something was told that was in trouble
}

// set says how it stands with a part of the work: why it is about to be tried again, or nil.
func (t *troubles) set(w work, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case why == nil && t.why[w] == nil:
		return
	case t.why[w] == nil:
		t.since[w] = time.Now()
	}
	t.why[w] = why
	var all []error
	for i, err := range t.why {
		if err != nil && time.Since(t.since[i]) >= troubleAfter {
			all = append(all, err)
		}
	}
	err, text := errors.Join(all...), ""
	if err != nil {
		text = err.Error()
	}
	if text == t.told || text != "" && time.Since(t.toldAt) < troubleEvery {
		return
	}
	if t.told = text; text != "" {
		t.toldAt = time.Now()
	}
	switch {
	case t.tell == nil:
	case err == nil:
		t.tell(nil)
	default:
		t.tell(fmt.Errorf("it is tried again: %w", err))
	}
}
