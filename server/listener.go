package server

import (
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// cappedListener stops accepting while too many connections are open. Slots are given back through the server's
// ConnState hook rather than by wrapping each connection: a wrapper would hide the kernel socket from code that
// writes to it directly.
type cappedListener struct {
	net.Listener
	slots  chan struct{} // one element an open connection
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	fresh map[net.Conn]struct{} // of which nothing has come yet; guarded by mu
	// silent is the size of fresh: where it is 0 nothing has to be looked for there.
	silent atomic.Int64
}

func newCappedListener(l net.Listener, limit int) *cappedListener {
	return &cappedListener{
		Listener: l, slots: make(chan struct{}, limit), closed: make(chan struct{}), fresh: map[net.Conn]struct{}{},
	}
}

// Accept waits for a free slot first, so that a client over the limit waits in the kernel's queue and costs nothing
// here.
func (l *cappedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return c, nil
}

// openFiles is how many files the process may have open. The runtime has raised that as far as it goes.
func openFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return math.MaxInt32
	}
	return int(min(l.Cur, math.MaxInt32))
}

// connectionLimit is how many connections to allow where so many are wanted and the process may open so many files.
// Logs need files too, and a log that cannot open one takes no records.
func connectionLimit(wanted, files int) int {
	return max(1, min(wanted, files-max(files/4, min(files/2, 512))))
}

func (l *cappedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// connState is the server's hook. A connection that a handler took over is the handler's to count: the API bounds
// its streams.
func (l *cappedListener) connState(c net.Conn, s http.ConnState) {
	// The server calls this twice a request. What is idle was active before, and mostly no connection is fresh.
	if s != http.StateIdle && (s == http.StateNew || l.silent.Load() > 0) {
		l.note(c, s == http.StateNew)
	}
	if s == http.StateClosed || s == http.StateHijacked {
		<-l.slots
	}
}

// note takes note of whether something has come of a connection.
func (l *cappedListener) note(c net.Conn, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fresh {
		l.fresh[c] = struct{}{}
	} else {
		delete(l.fresh, c)
	}
	l.silent.Store(int64(len(l.fresh)))
}

// hangUp ends the connections that nothing has come over: clients open some ahead of need. A server that stops would
// wait 5 s for them.
func (l *cappedListener) hangUp() {
	l.mu.Lock()
	fresh := slices.Collect(maps.Keys(l.fresh))
	l.mu.Unlock()
	for _, c := range fresh {
		_ = c.Close() // the server closes it again
	}
}

// open is the number of connections that hold a slot, one of them perhaps not accepted yet.
func (l *cappedListener) open() int { return len(l.slots) }
