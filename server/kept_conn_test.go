package server

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// connected is a kept connection and its other side.
func connected(t *testing.T) (conn net.Conn, other *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	conn = keep(dialed)
	require.IsType(t, &keptConn{}, conn)
	return conn, accepted.(*net.TCPConn)
}

// A connection that the other side has closed, in order or not, takes nothing more. One that it has sent something on
// does, and loses nothing of that.
func TestKeptConnections(t *testing.T) {
	conn, other := connected(t)
	one := make([]byte, 1)
	for range 3 {
		n, err := conn.Write([]byte("a"))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		_, err = other.Read(one)
		require.NoError(t, err)
		_, err = other.Write([]byte("bc"))
		require.NoError(t, err)
	}
	_, err := conn.Read(one)
	require.NoError(t, err)
	require.Equal(t, "b", string(one))
	_, err = conn.Write([]byte("a"))
	require.NoError(t, err)
	all := make([]byte, 5)
	_, err = io.ReadFull(conn, all)
	require.NoError(t, err)
	require.Equal(t, "cbcbc", string(all))

	for _, linger := range []int{-1, 0} { // the end, or a reset
		conn, other := connected(t)
		require.NoError(t, other.SetLinger(linger))
		require.NoError(t, other.Close())
		_, err := conn.Read(one) // which waits until that is here
		require.Error(t, err)
		n, err := conn.Write([]byte("a"))
		require.Error(t, err)
		require.Zero(t, n)
	}
}
