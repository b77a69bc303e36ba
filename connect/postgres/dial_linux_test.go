package postgres_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"millrace/connect/postgres"
)

// A connection gives a machine up that is gone, over TCP, and is made over a socket file too.
func TestDialGivesUp(t *testing.T) {
	c, err := postgres.ParseURL("postgres://h/db", "u", "", nil)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	conn, err := c.DialFunc(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	var ms int
	require.NoError(t, raw.Control(func(fd uintptr) {
		ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}))
	require.NoError(t, err)
	require.Equal(t, 30_000, ms)
	local, err := net.Listen("unix", t.TempDir()+"/s")
	require.NoError(t, err)
	defer local.Close()
	file, err := c.DialFunc(t.Context(), "unix", local.Addr().String())
	require.NoError(t, err)
	require.NoError(t, file.Close())
}
