package native

import (
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"
)

// A sink is where the frames of a stream go.
type sink interface {
	// send writes one frame, within a deadline. After an error the sink is of no use.
	send(f frame) error
	// raw gives access to a connection that can be written to without waiting, nil if there is none.
	raw() syscall.RawConn
	// close ends the response, cleanly if the last frame was sent.
	close()
}

// openSink sends the head of an endless response. An HTTP/1.1 connection in the clear is taken over from net/http,
// whose buffers and goroutine it then does without; all others are written to through net/http.
func openSink(w http.ResponseWriter, r *http.Request, now time.Time) (sink, error) {
	h := w.Header()
	setStreamHead(h)
	rc := http.NewResponseController(w)
	if r.ProtoAtLeast(1, 1) && r.ProtoMajor == 1 && r.TLS == nil {
		conn, _, err := rc.Hijack()
		if err == nil {
			return takeOver(conn, h, now)
		}
		if !errors.Is(err, http.ErrNotSupported) {
			return nil, err
		}
	}
	w.WriteHeader(http.StatusOK)
	if err := rc.Flush(); err != nil {
		return nil, err
	}
	return &responseSink{w, rc}, nil
}

func setStreamHead(h http.Header) {
	h.Set("Content-Type", typeEvents)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	vary(h)
}

// responseSink writes through net/http. It belongs to the goroutine of the request's handler.
type responseSink struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (s *responseSink) send(f frame) error {
	err := s.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write(f.events()); err != nil {
		return err
	}
	return s.rc.Flush()
}

func (s *responseSink) raw() syscall.RawConn { return nil }

func (s *responseSink) close() {} // returning from the handler ends the response

// connSink is a connection taken over.
type connSink struct {
	conn net.Conn
	rawc syscall.RawConn // nil if the connection is not one of the operating system's
	head []byte          // goes before the first frame
}

func takeOver(conn net.Conn, h http.Header, now time.Time) (sink, error) {
	head := append(make([]byte, 0, 512), "HTTP/1.1 200 OK\r\nDate: "...)
	head = now.UTC().AppendFormat(head, http.TimeFormat)
	head = append(head, "\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"...)
	s := &connSink{conn: conn, rawc: rawConn(conn)}
	buf := headWriter{head}
	if err := h.Write(&buf); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.head = append(buf.b, '\r', '\n')
	return s, nil
}

type headWriter struct{ b []byte }

func (h *headWriter) Write(p []byte) (int, error) {
	h.b = append(h.b, p...)
	return len(p), nil
}

// rawConn looks for the socket in conn, through wrappers that show what they wrap.
func rawConn(conn net.Conn) syscall.RawConn {
	for {
		switch c := conn.(type) {
		case syscall.Conn:
			raw, err := c.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

func (s *connSink) send(f frame) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	b := []byte(f)
	if s.head != nil {
		b, s.head = append(s.head, f...), nil
	}
	_, err := s.conn.Write(b)
	return err
}

func (s *connSink) raw() syscall.RawConn { return s.rawc }

func (s *connSink) close() {
	_, _ = s.conn.Write([]byte(lastChunk)) // after a failed write this fails too, or the deadline ends it
	_ = s.conn.Close()
}

// directWriter writes to connections without ever waiting for them. One goroutine uses it.
type directWriter struct {
	buf []byte
	n   int
	err error

	write, look func(fd uintptr) bool // made once: a method value a call would be garbage
}

func newDirectWriter() *directWriter {
	d := &directWriter{}
	d.write, d.look = d.writeTo, func(fd uintptr) bool { d.lookAt(fd); return true }
	return d
}

// send writes b and returns how much the connection took. An error means that it is of no use any more.
func (d *directWriter) send(c syscall.RawConn, b []byte) (int, error) {
	d.buf, d.n, d.err = b, 0, nil
	if err := c.Write(d.write); err != nil {
		return 0, err
	}
	return d.n, d.err
}

func (d *directWriter) writeTo(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), d.buf)
		switch err {
		case nil:
			d.n = n
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
		default:
			d.err = err
		}
		return true // never wait until the connection takes more
	}
}

// gone says whether the peer has closed the connection.
func (d *directWriter) gone(c syscall.RawConn) bool {
	d.err = nil
	if err := c.Read(d.look); err != nil {
		return true
	}
	return d.err != nil
}

// errEOF stands for the end of what the peer sends.
var errEOF = errors.New("closed by the peer")

func (d *directWriter) lookAt(fd uintptr) {
	var one [1]byte
	n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
	case err != nil:
		d.err = err
	case n == 0:
		d.err = errEOF
	}
}
