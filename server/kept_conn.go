package server

import (
	"fmt"
	"io"
	"net"
	"syscall"
)

// keptConn is a connection to another node that carries one request after another. A Write writes nothing where the
// other side has closed the connection, though nobody here has noticed yet: a node that stood still for a while wakes
// to the end of its connections and to requests at once. The request goes out on a new connection then, or is certain
// not to have been sent, instead of being lost on its way.
type keptConn struct {
	*net.TCPConn
	raw syscall.RawConn
}

func keep(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	return &keptConn{TCPConn: tcp, raw: raw}
}

// Write implements io.Writer.
func (c *keptConn) Write(p []byte) (int, error) {
	if err := c.ended(); err != nil {
		return 0, fmt.Errorf("the other side closed the connection: %w", err)
	}
	return c.TCPConn.Write(p)
}

// ended looks, without taking anything, whether what is to be read is the end.
func (c *keptConn) ended() error {
	var ended error
	err := c.raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN || err == syscall.EINTR:
		case err != nil:
			ended = err
		case n == 0:
			ended = io.EOF
		}
	})
	if err != nil {
		return err
	}
	return ended
}
