package storage

import (
	"errors"
	"fmt"
)

// What can be wrong with a log.
var (
	// ErrOutOfRange says that an offset lies outside the log; the error found is an OutOfRangeError.
	ErrOutOfRange = errors.New("offset is out of the log's range")
	// ErrOffline says that a write or sync of this log failed, and that nothing is tried on it again.
	// The cause is wrapped beside it.
	ErrOffline = errors.New("log is offline")
	// ErrDiskFull says that there was no room for an append. The log is as before and can be read;
	// an append may be tried again once there is room.
	ErrDiskFull = errors.New("disk is full")
	// ErrClosed says that the log or its directory was closed or deleted.
	ErrClosed = errors.New("log is closed")
	// ErrLocked says that another process has the data directory open.
	ErrLocked = errors.New("data directory is in use by another process")
	// ErrTopicID says that the files of a partition belong to another topic of the same name.
	ErrTopicID = errors.New("partition belongs to another topic id")
	// ErrExists says that a log to be created is there already.
	ErrExists = errors.New("log exists")
	// ErrNotFound says that a log to be opened is not there.
	ErrNotFound = errors.New("log does not exist")
	// ErrUnusable says of damage that it keeps the log from being used at all.
	ErrUnusable = errors.New("log cannot be used")
)

// unusableError is a CorruptionError that is ErrUnusable too.
type unusableError struct{ error }

// Is makes errors.Is find ErrUnusable.
func (e unusableError) Is(target error) bool { return target == ErrUnusable }

// Unwrap gives the CorruptionError.
func (e unusableError) Unwrap() error { return e.error }

// OutOfRangeError gives the log's bounds to whoever asked for an offset outside them.
type OutOfRangeError struct {
	Offset     int64 // what was asked for
	Start, End int64 // log start offset and log end offset
}

// Error says the offset and the bounds.
func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("offset %d is out of the log's range %d to %d", e.Offset, e.Start, e.End)
}

// Is makes errors.Is find ErrOutOfRange.
func (e *OutOfRangeError) Is(target error) bool { return target == ErrOutOfRange }

// CorruptionError says that a file does not hold what was once synced to it.
type CorruptionError struct {
	File     string // relative to the data directory
	Position int64  // first byte that is wrong, -1 when the file as a whole is
	Next     int64  // of a batch that Read met: the offset to read on from, 0 when it is not known
	Err      error
}

// Error says where the damage is.
func (e *CorruptionError) Error() string {
	if e.Position < 0 {
		return fmt.Sprintf("%s is damaged: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s is damaged at position %d: %v", e.File, e.Position, e.Err)
}

// Unwrap gives the cause.
func (e *CorruptionError) Unwrap() error { return e.Err }
