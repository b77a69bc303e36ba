//go:build unix && !linux

package storage

import (
	"errors"

	"golang.org/x/sys/unix"
)

// syncData writes a file's data and metadata.
func syncData(fd int) error { return unix.Fsync(fd) }

// syncAll does not exist here: the committer then syncs file by file.
func syncAll(int) error { return errors.ErrUnsupported }
