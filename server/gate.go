package server

import (
	"math"
	"net/http"
	"sync/atomic"
)

// gate counts the requests that are being answered, so that a stop can wait for them: the HTTP server does not wait
// for those whose connections it has cut. It costs a request two additions and no lock.
type gate struct {
	inside  atomic.Int64  // how many are inside, and shutBias beside once the gate is shut
	outside chan struct{} // of capacity 1: nobody is inside any more; set before the gate is shut
}

// shutBias makes the count of a gate that is shut negative, whoever is inside or tries to be.
const shutBias = math.MinInt64 / 2

// pass lets a request through to a handler unless the gate is shut.
func (g *gate) pass(w http.ResponseWriter, r *http.Request, to http.Handler) {
	if !g.enter() {
		panic(http.ErrAbortHandler) // its connection has been cut
	}
	defer g.leave()
	to.ServeHTTP(w, r)
}

func (g *gate) enter() bool {
	if g.inside.Add(1) > 0 {
		return true
	}
	g.leave() // it may be that the last one left meanwhile and saw this one inside
	return false
}

func (g *gate) leave() {
	if g.inside.Add(-1) != shutBias {
		return
	}
	select {
	case g.outside <- struct{}{}:
	default: // it is known
	}
}

// close shuts the gate, once, and waits until nobody is inside.
func (g *gate) close() {
	g.outside = make(chan struct{}, 1)
	if g.inside.Add(shutBias) != shutBias {
		<-g.outside
	}
}
