package route

import (
	"context"
	"sync/atomic"
	"time"
)

// A watch ends a request to a node that has been replaced: such a node may be frozen, or cut off, and never answer.
type watch struct {
	stale  func() bool
	grace  time.Duration
	cancel context.CancelCauseFunc
	timer  *time.Timer
	over   atomic.Bool
	since  time.Time // when the node was first seen replaced; only look touches it
}

// watched returns a context that ends with errReplaced when stale has been true for the grace. stop must be called when
// the request has ended.
func watched(ctx context.Context, stale func() bool, grace time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{stale: stale, grace: grace, cancel: cancel}
	started := make(chan struct{})
	w.timer = time.AfterFunc(lookEvery, func() {
		<-started
		w.look()
	})
	close(started)
	return ctx, func() {
		w.over.Store(true)
		w.timer.Stop()
		cancel(nil)
	}
}

func (w *watch) look() {
	if w.over.Load() {
		return
	}
	switch now := time.Now(); {
	case !w.stale():
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
		fallthrough
	default:
		if now.Sub(w.since) >= w.grace {
			w.cancel(errReplaced)
			return
		}
	}
	w.timer.Reset(lookEvery)
}
