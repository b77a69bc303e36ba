package servertest

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// hold keeps a loopback port from being given to anybody's connections while nobody listens there: a node that stops
// could not come back to it. Dials are refused then, as they should be. Nodes listen beside it.
type hold struct {
	socket int
	port   string
}

func holdPort() (hold, error) {
	syscall.ForkLock.RLock()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return hold{}, fmt.Errorf("hold a port: %w", err)
	}
	// With this option on both sides, who is bound stands in the way of nobody who listens.
	err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var at syscall.Sockaddr
	if err == nil {
		at, err = syscall.Getsockname(socket)
	}
	if err != nil {
		_ = syscall.Close(socket) // it is of no use
		return hold{}, fmt.Errorf("hold a port: %w", err)
	}
	return hold{socket, strconv.Itoa(at.(*syscall.SockaddrInet4).Port)}, nil
}

// HoldPort gives an address for a node that is a process, whose port is held until the test ends.
func HoldPort(t testing.TB) (address string) {
	t.Helper()
	h, err := holdPort()
	require.NoError(t, err)
	t.Cleanup(h.release)
	return h.address()
}

func (h hold) address() string { return net.JoinHostPort("127.0.0.1", h.port) }

func (h hold) release() { _ = syscall.Close(h.socket) } // nothing was written to it
