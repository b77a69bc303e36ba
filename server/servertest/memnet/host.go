package memnet

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"millrace/internal/invariant"
)

// Addr is a host's name and a port.
type Addr struct {
	Host string
	Port int
}

// Network implements net.Addr.
func (a Addr) Network() string { return "tcp" }

// String implements net.Addr: HOST:PORT.
func (a Addr) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

func (a Addr) sum() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.Host))
	return h.Sum64() + uint64(a.Port)
}

// state says what answers under a host's name.
type state uint8

const (
	up     state = iota // a process
	killed              // the kernel alone: it refuses and resets
	off                 // nothing
)

const (
	firstPort = 40_000 // of those that dialling takes
	// synTimeout is how long a dial goes on without any answer, and keepAlive the time in which the end of a connection
	// that only reads learns that the other host has forgotten it: as on Linux, with what Go sets.
	synTimeout = 127 * time.Second
	keepAlive  = 15 * time.Second
)

// Host is one life of a host: what it opens dies with it.
type Host struct {
	n    *Net
	name string
	done chan struct{} // closed at its end

	// guarded by n.mu
	state     state
	listeners map[int]*Listener
	port      int
	forgotten []*Conn // ends elsewhere of connections that a life before lost without a word
}

// Boot brings a host up, for the first time or again. A host that is up must be killed first.
func (n *Net) Boot(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &Host{n: n, name: name, done: make(chan struct{}), listeners: map[int]*Listener{}, port: firstPort}
	if old := n.hosts[name]; old != nil {
		invariant.Check(old.state != up, "host %s is up already", name)
		h.port = old.port
		for _, c := range old.forgotten {
			c.resetAt = earliest(c.resetAt, time.Now().Add(keepAlive))
		}
	}
	n.hosts[name] = h
	n.changedLocked()
	return h
}

// Name is the host's name.
func (h *Host) Name() string { return h.name }

// Up says whether this life of the host goes on.
func (h *Host) Up() bool {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	return h.state == up
}

// Kill ends the process: its connections are reset, its listeners close, its dials fail, and from then on the host
// refuses connections.
func (h *Host) Kill() { h.end(killed) }

// PowerOff ends the host: as Kill, but nobody else hears of it. Whoever waits for an answer waits until its own
// timeout, or until the host is up again and denies the connection.
func (h *Host) PowerOff() { h.end(off) }

func (h *Host) end(s state) {
	n := h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.state != up {
		return
	}
	h.state = s
	close(h.done)
	var own []*Conn
	for _, c := range n.conns {
		if c.host == h {
			own = append(own, c)
		}
	}
	for _, c := range own {
		if s == killed {
			c.resetLocked()
			continue
		}
		c.dieLocked()
		if !c.peer.closed && c.peer.err == nil {
			h.forgotten = append(h.forgotten, c.peer)
		}
	}
	for _, l := range h.listeners {
		l.closed = true
		l.cond.Broadcast()
	}
	n.changedLocked()
}

// Listen listens on a port; 0 takes a free one.
func (h *Host) Listen(port int) (*Listener, error) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	if port == 0 {
		h.port++
		port = h.port
	}
	addr := Addr{h.name, port}
	switch {
	case h.state != up:
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr, Err: syscall.ENETDOWN}
	case h.listeners[port] != nil:
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr, Err: syscall.EADDRINUSE}
	}
	l := &Listener{host: h, addr: addr, cond: sync.NewCond(&h.n.mu)}
	h.listeners[port] = l
	return l, nil
}

// Listener implements net.Listener.
type Listener struct {
	host *Host
	addr Addr

	// guarded by the network's mu
	cond    *sync.Cond
	backlog []*Conn
	closed  bool
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	l.host.n.mu.Lock()
	defer l.host.n.mu.Unlock()
	for {
		if l.closed {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
		}
		if len(l.backlog) > 0 {
			c := l.backlog[0]
			l.backlog = l.backlog[1:]
			return c, nil
		}
		l.cond.Wait()
	}
}

// Close implements net.Listener. Connections that nobody accepted are reset.
func (l *Listener) Close() error {
	l.host.n.mu.Lock()
	defer l.host.n.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	l.closed = true
	delete(l.host.listeners, l.addr.Port)
	for _, c := range l.backlog {
		c.resetLocked()
	}
	l.backlog = nil
	l.cond.Broadcast()
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.addr }

// Dial connects to HOST:PORT, as net.Dialer.DialContext does. A port where nobody listens refuses after a round trip; a
// host that is off, or behind a cut link, is tried until ctx ends or the kernel would give up.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	name, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("port %q: %w", text, err)}
	}
	d := dial{h: h, to: Addr{name, port}, give: time.Now().Add(synTimeout)}
	c, err := d.run(ctx)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: d.to, Err: err}
	}
	return c, nil
}

// dial is one dial under way.
type dial struct {
	h    *Host
	to   Addr
	give time.Time // when the kernel gives up
}

func (d *dial) run(ctx context.Context) (*Conn, error) {
	n := d.h.n
	n.mu.Lock()
	_, known := n.hosts[d.to.Host]
	n.mu.Unlock()
	if !known {
		return nil, &net.DNSError{Err: "no such host", Name: d.to.Host, IsNotFound: true}
	}
	if err := d.travel(ctx, d.h.name, d.to.Host); err != nil {
		return nil, err
	}
	c := d.knock()
	err := d.travel(ctx, d.to.Host, d.h.name)
	switch {
	case c == nil && err == nil:
		return nil, syscall.ECONNREFUSED
	case c != nil && err != nil:
		n.mu.Lock()
		c.resetLocked()
		n.mu.Unlock()
	}
	return c, err
}

// knock makes the connection at the other host, or gives nil when nobody listens.
func (d *dial) knock() *Conn {
	h, n := d.h, d.h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	other := n.hosts[d.to.Host]
	l := other.listeners[d.to.Port]
	h.port++
	from := Addr{h.name, h.port}
	if l == nil || l.closed || h.state != up {
		n.noteLocked("refused", from, d.to, nil)
		return nil
	}
	n.noteLocked("dial", from, d.to, nil)
	c, accepted := pair(h, other, from, d.to)
	l.backlog = append(l.backlog, accepted)
	l.cond.Broadcast()
	return c
}

// travel returns when a packet that is sent now is there.
func (d *dial) travel(ctx context.Context, from, to string) error {
	n := d.h.n
	n.mu.Lock()
	l := n.linkLocked(from, to)
	at := l.due(0)
	n.mu.Unlock()
	for {
		n.mu.Lock()
		there := l.arrived(at) && n.hosts[to].state != off && n.hosts[from].state != off
		cut := l.cuts > 0
		changed := n.changed
		n.mu.Unlock()
		if there {
			return nil
		}
		wake := d.give
		if !cut && at.After(time.Now()) {
			wake = at
		}
		timer := time.NewTimer(time.Until(wake))
		select {
		case <-ctx.Done():
		case <-d.h.done:
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		switch {
		case ctx.Err() != nil:
			if ctx.Err() == context.DeadlineExceeded {
				return os.ErrDeadlineExceeded // as a dialer says it: a timeout
			}
			return ctx.Err()
		case !time.Now().Before(d.give):
			return syscall.ETIMEDOUT
		}
		select {
		case <-d.h.done:
			return syscall.ENETDOWN
		default:
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
