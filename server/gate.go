package server

import (
	"net/http"
	"sync"
)

// gate counts the requests that are being answered, so that a stop can wait for them: the HTTP server does not wait
// for those whose connections it has cut.
type gate struct {
	mu     sync.Mutex
	inside int           // guarded by mu
	shut   chan struct{} // guarded by mu; closed when nobody is inside any more; nil while the gate is open
}

// pass lets a request through to a handler unless the gate is shut.
func (g *gate) pass(w http.ResponseWriter, r *http.Request, to http.Handler) {
	if !g.enter() {
		panic(http.ErrAbortHandler) // its connection has been cut
	}
	defer g.leave()
	to.ServeHTTP(w, r)
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.shut != nil && g.inside == 0 {
		close(g.shut)
	}
}

// close shuts the gate, once, and waits until nobody is inside.
func (g *gate) close() {
	g.mu.Lock()
	shut := make(chan struct{})
	g.shut = shut
	if g.inside == 0 {
		close(shut)
	}
	g.mu.Unlock()
	<-shut
}
