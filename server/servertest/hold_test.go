package servertest

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A port that is held can be listened on again and again. Between, dials are refused, and nobody is given it.
func TestHeldPort(t *testing.T) {
	h, err := holdPort()
	require.NoError(t, err)
	defer h.release()
	for range 3 {
		_, err := net.Dial("tcp", h.address())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		from, err := net.ResolveTCPAddr("tcp", h.address())
		require.NoError(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NotEqual(t, h.address(), l.Addr().String())
		_, err = (&net.Dialer{LocalAddr: from}).Dial("tcp", l.Addr().String())
		require.ErrorIs(t, err, syscall.EADDRINUSE, "a connection does not begin there")
		require.NoError(t, l.Close())

		l, err = net.Listen("tcp", h.address())
		require.NoError(t, err)
		c, err := net.Dial("tcp", h.address())
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
}
