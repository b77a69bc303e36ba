package quorum_test

import (
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// loopbackLayer is a stream layer over TCP on this machine.
type loopbackLayer struct{ net.Listener }

func newLoopbackLayer(t *testing.T) loopbackLayer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() }) // closed by the transport before, as a rule
	return loopbackLayer{l}
}

func (loopbackLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(address), timeout)
}
