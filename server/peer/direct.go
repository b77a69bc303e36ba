package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of a Direct.
const (
	directBuffer   = 64 << 10 // of a connection, each way
	maxHeadBytes   = 64 << 10 // of an answer
	maxIdle        = 64       // connections to one node
	maxIdleTime    = 90 * time.Second
	unlimitedBytes = 1<<63 - 1
)

// Direct is an http.RoundTripper for requests that may be sent twice, such as fetches; each has a body and GetBody. The
// goroutine that sends a request writes it and reads the answer. http.Transport has two goroutines a connection for
// that, whose wake-ups cost a follower more than the fetch itself.
//
// The end of the request's context closes its connection. One that was kept and does not answer any more is replaced:
// the other side closes what is idle for long.
type Direct struct {
	// Dial opens a connection.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	idle   map[string][]*directConn // by host, the one used last at the end; guarded by mu
	closed bool                     // guarded by mu: nothing is kept any more
}

// directConn is a connection, which one request uses at a time.
type directConn struct {
	net.Conn
	of     *Direct
	host   string
	in     *bufio.Reader // over the connection itself, whose Read counts
	out    *bufio.Writer
	left   int64 // how much may still be read
	since  time.Time
	silent bool // nothing of the answer has come
}

// Read implements io.Reader, within the bound of what is read.
func (c *directConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("head of the answer: %w", errTooLarge)
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.silent = c.silent && n == 0
	return n, err
}

// RoundTrip implements http.RoundTripper.
func (d *Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if c := d.take(r.URL.Host); c != nil {
		resp, err := c.roundTrip(r)
		if err == nil || !c.silent || r.Context().Err() != nil {
			return resp, err
		}
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		r = r.WithContext(r.Context())
		r.Body = body
	}
	conn, err := d.Dial(r.Context(), "tcp", r.URL.Host)
	if err != nil {
		return nil, errors.Join(err, r.Body.Close())
	}
	c := &directConn{Conn: conn, of: d, host: r.URL.Host, out: bufio.NewWriterSize(conn, directBuffer)}
	c.in = bufio.NewReaderSize(c, directBuffer)
	return c.roundTrip(r)
}

// roundTrip sends a request and reads the head of its answer. After an error the connection is closed.
func (c *directConn) roundTrip(r *http.Request) (*http.Response, error) {
	c.left, c.silent = maxHeadBytes, true
	stop := context.AfterFunc(r.Context(), func() { _ = c.Close() })
	resp, err := c.exchange(r)
	if err != nil {
		stop()
		_ = c.Close()
		return nil, err
	}
	c.left = unlimitedBytes
	resp.Body = &directBody{ReadCloser: resp.Body, conn: c, stop: stop, left: resp.ContentLength, last: resp.Close}
	return resp, nil
}

func (c *directConn) exchange(r *http.Request) (*http.Response, error) {
	if err := r.Write(c.out); err != nil { // which closes the body
		return nil, err
	}
	if err := c.out.Flush(); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, r)
	if err == nil && resp.StatusCode < http.StatusOK {
		return nil, fmt.Errorf("status %d: not asked for", resp.StatusCode)
	}
	return resp, err
}

// directBody gives the connection back when the answer was read whole.
type directBody struct {
	io.ReadCloser
	conn *directConn // nil once closed
	stop func() bool
	left int64 // bytes to come; below 0: not known
	last bool  // the other side closes the connection
}

// Read implements io.Reader.
func (b *directBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

// Close implements io.Closer. Nothing that is left of the answer is read.
func (b *directBody) Close() error {
	c := b.conn
	if c == nil {
		return nil
	}
	b.conn = nil
	if !b.stop() || b.left != 0 || b.last || c.in.Buffered() > 0 {
		return c.Close()
	}
	return c.of.keep(c)
}

// take is the connection to a host that was used last, nil without.
func (d *Direct) take(host string) *directConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	idle := d.idle[host]
	if len(idle) == 0 {
		return nil
	}
	c := idle[len(idle)-1]
	idle[len(idle)-1] = nil
	d.idle[host] = idle[:len(idle)-1]
	return c
}

// keep keeps a connection for the next request, and closes one that has not been used for long.
func (d *Direct) keep(c *directConn) error {
	c.since = time.Now()
	old := d.put(c)
	if old == nil {
		return nil
	}
	return old.Close()
}

// put takes a connection in, and gives one that is to be closed instead, or nil.
func (d *Direct) put(c *directConn) *directConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return c
	}
	if d.idle == nil {
		d.idle = make(map[string][]*directConn)
	}
	idle := append(d.idle[c.host], c)
	var old *directConn
	if len(idle) > maxIdle || c.since.Sub(idle[0].since) > maxIdleTime {
		old, idle = idle[0], append(idle[:0], idle[1:]...)
	}
	d.idle[c.host] = idle
	return old
}

// Close closes the connections that no request uses, and keeps none from now on.
func (d *Direct) Close() {
	d.mu.Lock()
	idle := d.idle
	d.idle, d.closed = nil, true
	d.mu.Unlock()
	for _, cs := range idle {
		for _, c := range cs {
			_ = c.Close()
		}
	}
}
