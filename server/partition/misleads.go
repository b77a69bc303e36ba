package partition

import (
	"errors"

	"millrace/storage"
)

// Misleads tells whether an error says that a client is wrong where it may be this replica that lacks the newest
// batches: an offset past the log's end, a sequence that does not follow, another end than expected.
func Misleads(err error) bool {
	var (
		sequence *SequenceError
		expected *ExpectedOffsetError
		out      *storage.OutOfRangeError
	)
	return errors.As(err, &sequence) || errors.As(err, &expected) || errors.As(err, &out) && out.Offset > out.End
}
