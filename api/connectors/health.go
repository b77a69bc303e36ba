package connectors

import (
	"net/http"
	"sync/atomic"
)

// health remembers whether the worker has ever been well.
type health struct{ well atomic.Bool }

// healthAnswer is how the worker is.
type healthAnswer struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// GetConnectHealth tells how this node's worker is.
func (a *API) GetConnectHealth(w http.ResponseWriter, r *http.Request) {
	err := a.edge.Starting()
	if err == nil {
		err = a.worker.Ready()
	}
	switch {
	case err == nil:
		a.health.well.Store(true)
		a.answer(w, r, healthAnswer{"healthy", "This node's worker is ready."}, nil)
	case a.health.well.Load():
		a.answerAs(w, r, http.StatusInternalServerError, healthAnswer{"unhealthy", err.Error()}, nil)
	default:
		a.answerAs(w, r, http.StatusServiceUnavailable, healthAnswer{"starting", err.Error()}, nil)
	}
}
