//go:build !linux

package postgres

import "syscall"

// giveUp has nothing to set here: the kernel decides how long a connection waits for a machine that is gone.
func giveUp(_, _ string, _ syscall.RawConn) error { return nil }
