package memnet

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is one end of a connection. It implements net.Conn.
type Conn struct {
	n             *Net
	seq           int // age
	host          *Host
	local, remote Addr
	peer          *Conn

	// guarded by n.mu
	cond    *sync.Cond // something of this end changed
	timer   *time.Timer
	wakeAt  time.Time // when timer runs off; zero when it does not run
	inbox   []chunk   // what the peer sent, in order
	unread  int       // bytes in it
	last    time.Time // when the last of it is due
	resetAt time.Time // when a reset is due from the peer; zero: none
	denied  bool      // what was sent meets nobody who knows the connection: a reset is due once it gets there
	closed  bool      // Close was called
	err     error     // why this end can do nothing any more

	readDeadline, writeDeadline time.Time
}

// chunk is what one Write sent, or the end.
type chunk struct {
	at   time.Time
	data []byte
	fin  bool
}

// pair makes both ends of a connection.
func pair(from, to *Host, local, remote Addr) (dialled, accepted *Conn) {
	n := from.n
	end := func(h *Host, local, remote Addr) *Conn {
		n.seq++
		c := &Conn{n: n, seq: n.seq, host: h, local: local, remote: remote, cond: sync.NewCond(&n.mu)}
		n.conns = append(n.conns, c)
		return c
	}
	dialled, accepted = end(from, local, remote), end(to, remote, local)
	dialled.peer, accepted.peer = accepted, dialled
	return dialled, accepted
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

func (c *Conn) incoming() *link { return c.n.linkLocked(c.remote.Host, c.local.Host) }
func (c *Conn) outgoing() *link { return c.n.linkLocked(c.local.Host, c.remote.Host) }

func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// brokenLocked says why a call cannot go on.
func (c *Conn) brokenLocked(op string, deadline time.Time) error {
	if c.denied && c.outgoing().cuts == 0 && c.n.hosts[c.remote.Host].state != off {
		c.denied = false
		c.resetAt = earliest(c.resetAt, later(c.incoming().due(0).Add(c.outgoing().Latency), c.last))
	}
	if c.err == nil && !c.closed && !c.resetAt.IsZero() && c.incoming().arrived(c.resetAt) {
		c.err = syscall.ECONNRESET
		c.dropLocked()
	}
	arrived := op == "read" && len(c.inbox) > 0 && c.incoming().arrived(c.inbox[0].at)
	switch {
	case c.closed:
		return c.failed(op, net.ErrClosed)
	case c.err != nil && !arrived:
		return c.failed(op, c.err)
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return c.failed(op, os.ErrDeadlineExceeded)
	}
	return nil
}

// waitLocked waits until something changes, at the latest at a time; zero is no time.
func (c *Conn) waitLocked(until time.Time) {
	if !until.IsZero() && (c.wakeAt.IsZero() || until.Before(c.wakeAt)) {
		c.wakeAt = until
		if c.timer == nil {
			c.timer = time.AfterFunc(time.Until(until), c.wake)
		} else {
			c.timer.Reset(time.Until(until))
		}
	}
	c.cond.Wait()
}

func (c *Conn) wake() {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.wakeAt = time.Time{}
	c.cond.Broadcast()
}

// earliest gives the first of some times, leaving out zero ones.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		if err := c.brokenLocked("read", c.readDeadline); err != nil {
			return 0, err
		}
		if len(p) == 0 {
			return 0, nil
		}
		l := c.incoming()
		if len(c.inbox) > 0 && l.arrived(c.inbox[0].at) {
			return c.takeLocked(l, p)
		}
		until := c.readDeadline
		if l.cuts == 0 {
			until = earliest(until, c.resetAt)
			if len(c.inbox) > 0 {
				until = earliest(until, c.inbox[0].at)
			}
		}
		c.waitLocked(until)
	}
}

// takeLocked hands out what arrived. There is something.
func (c *Conn) takeLocked(l *link, p []byte) (n int, err error) {
	for len(c.inbox) > 0 && n < len(p) && l.arrived(c.inbox[0].at) {
		ch := &c.inbox[0]
		if ch.fin {
			if n == 0 {
				err = io.EOF
			}
			break
		}
		k := copy(p[n:], ch.data)
		n += k
		if ch.data = ch.data[k:]; len(ch.data) == 0 {
			c.inbox[0] = chunk{}
			c.inbox = c.inbox[1:]
		}
	}
	c.unread -= n
	if l.Window > 0 {
		c.peer.cond.Broadcast()
	}
	return n, err
}

// Write implements net.Conn. It waits only where the link has a Window.
func (c *Conn) Write(p []byte) (written int, err error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		if err := c.brokenLocked("write", c.writeDeadline); err != nil {
			return written, err
		}
		if len(p) == 0 {
			return written, nil
		}
		part := p
		l := c.outgoing()
		if room := l.Window - c.peer.unread; l.Window > 0 {
			if room <= 0 {
				until := c.writeDeadline
				if c.incoming().cuts == 0 {
					until = earliest(until, c.resetAt)
				}
				c.waitLocked(until)
				continue
			}
			part = p[:min(room, len(p))]
		}
		if l.fuse >= 0 && l.fuse < len(part) {
			part = part[:l.fuse]
			c.pushLocked(chunk{data: bytes.Clone(part)})
			l.fuse = -1
			c.resetLocked()
			return written + len(part), c.failed("write", syscall.ECONNRESET)
		}
		if l.fuse >= 0 {
			l.fuse -= len(part)
		}
		c.pushLocked(chunk{data: bytes.Clone(part)})
		written += len(part)
		p = p[len(part):]
	}
}

// pushLocked sends a chunk.
func (c *Conn) pushLocked(ch chunk) {
	what := "data"
	if ch.fin {
		what = "end"
	}
	c.n.noteLocked(what, c.local, c.remote, ch.data)
	to := c.peer
	if to.closed || to.err != nil {
		c.denied = c.denied || !ch.fin
		c.cond.Broadcast()
		return
	}
	ch.at = later(c.outgoing().due(len(ch.data)), to.last)
	to.last = ch.at
	to.inbox = append(to.inbox, ch)
	to.unread += len(ch.data)
	to.cond.Broadcast()
}

// breakLocked ends this end for a reason. The peer is not told.
func (c *Conn) breakLocked(err error) {
	if c.err != nil || c.closed {
		return
	}
	c.err = err
	c.forgetLocked()
}

// forgetLocked gives up what this end holds.
func (c *Conn) forgetLocked() {
	c.inbox, c.unread = nil, 0
	c.dropLocked()
}

// dropLocked takes this end out of the network.
func (c *Conn) dropLocked() {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.wakeAt = time.Time{}
	c.n.dropLocked(c)
	c.cond.Broadcast()
	c.peer.cond.Broadcast() // it may wait for room
}

// dieLocked ends this end without a word to the peer.
func (c *Conn) dieLocked() { c.breakLocked(syscall.ECONNRESET) }

// resetLocked ends this end and sends the peer a reset.
func (c *Conn) resetLocked() {
	if c.err != nil || c.closed {
		return
	}
	c.n.noteLocked("reset", c.local, c.remote, nil)
	to := c.peer
	if to.err == nil && !to.closed && to.resetAt.IsZero() {
		to.resetAt = later(c.outgoing().due(0), to.last)
	}
	c.breakLocked(syscall.ECONNRESET)
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return c.failed("close", net.ErrClosed)
	}
	if c.err == nil {
		c.pushLocked(chunk{fin: true})
		c.closed = true
		c.forgetLocked()
	}
	c.closed = true
	return nil
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(&t, &t) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(&t, nil) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

func (c *Conn) setDeadlines(read, write *time.Time) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return c.failed("set", net.ErrClosed)
	}
	if read != nil {
		c.readDeadline = *read
	}
	if write != nil {
		c.writeDeadline = *write
	}
	c.cond.Broadcast()
	return nil
}
