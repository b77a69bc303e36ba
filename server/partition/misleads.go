package partition

import (
	"errors"

	"millrace/storage"
)

// Misleads tells whether an error says that a client is wrong where it may be this replica that is not as the leader
// is: an offset outside the log, for it may lack the newest batches, or have given up older ones by itself that the
// leader has; a sequence that does not follow; another end than expected.
func Misleads(err error) bool {
	var (
		sequence *SequenceError
		expected *ExpectedOffsetError
		out      *storage.OutOfRangeError
	)
	return errors.As(err, &sequence) || errors.As(err, &expected) || errors.As(err, &out)
}
