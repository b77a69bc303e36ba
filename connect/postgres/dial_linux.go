package postgres

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unansweredFor is how long what was sent may stay without an answer of the other machine before the connection counts
// as lost. Without a bound the kernel goes on for a quarter of an hour.
const unansweredFor = 30 * time.Second

// giveUp bounds how long a connection waits for a machine that is gone.
func giveUp(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unansweredFor.Milliseconds()))
	})
	if err != nil {
		return err
	}
	if failed == unix.ENOPROTOOPT || failed == unix.EOPNOTSUPP {
		return nil // it is no connection over TCP
	}
	return failed
}
