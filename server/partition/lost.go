package partition

import (
	"errors"

	"millrace/storage"
)

// Damaged says whether err means that a log does not hold what was once synced to it, so that it is to be
// fetched anew from another replica.
func Damaged(err error) bool {
	var read *DamageError
	var found *storage.CorruptionError
	return errors.As(err, &read) || errors.As(err, &found)
}

// Unusable says whether err means that a log is so damaged that nothing of it can be read.
func Unusable(err error) bool {
	var unopened *OpenError
	return Damaged(err) && (errors.As(err, &unopened) || errors.Is(err, storage.ErrUnusable))
}

// Lost says whether err means that a log takes nothing any more until the node starts again, or until the disk has
// room, or until it can be opened: so long another replica does better.
func Lost(err error) bool {
	var unopened *OpenError
	return errors.As(err, &unopened) || errors.Is(err, storage.ErrOffline) || errors.Is(err, storage.ErrDiskFull)
}
