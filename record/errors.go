package record

import (
	"errors"
	"fmt"
)

// What can be wrong with a batch. The callers translate: each names the Kafka error of one code.
var (
	// ErrShort says that the bytes end inside a batch. In a fetched range that is normal: the range
	// was cut by size.
	ErrShort = errors.New("record: bytes end inside a batch")
	// ErrCorrupt says that the bytes are not what was once written (CORRUPT_MESSAGE, 2).
	ErrCorrupt = errors.New("record: batch is corrupt")
	// ErrTooLarge says that a batch exceeds a size limit (MESSAGE_TOO_LARGE, 10).
	ErrTooLarge = errors.New("record: batch is too large")
	// ErrSegmentTooSmall says that a batch does not fit a whole segment (RECORD_LIST_TOO_LARGE, 18).
	ErrSegmentTooSmall = errors.New("record: batch is larger than a segment")
	// ErrTimestamp says that a timestamp is not acceptable (INVALID_TIMESTAMP, 32).
	ErrTimestamp = errors.New("record: timestamp is not acceptable")
	// ErrUnsupportedCodec says that the compression is unknown, or not allowed here
	// (UNSUPPORTED_COMPRESSION_TYPE, 76).
	ErrUnsupportedCodec = errors.New("record: compression type is not supported")
	// ErrInvalid says that a batch is whole but breaks a rule (INVALID_RECORD, 87).
	ErrInvalid = errors.New("record: batch is invalid")
)

// Fault is why Prepare refused a batch. errors.Is finds its sentinel.
type Fault struct {
	Err     error         // one of the sentinels above
	Message string        // for the client: what is wrong, with the numbers
	Records []RecordFault // the records at fault when single ones are, the first maxRecordFaults of them
}

// RecordFault names one record of a refused batch.
type RecordFault struct {
	Index   int32 // place in the batch, from 0
	Message string
}

// Error says the message behind the sentinel's.
func (f *Fault) Error() string { return f.Err.Error() + ": " + f.Message }

// Unwrap gives the sentinel.
func (f *Fault) Unwrap() error { return f.Err }

// RefusedRecords says how many records were at fault; which they are stands beside it.
func RefusedRecords(n int) string {
	if n == 1 {
		return "1 record was refused"
	}
	return fmt.Sprintf("%d records were refused", n)
}

// fault makes a Fault about the batch as a whole.
func fault(err error, format string, args ...any) *Fault {
	return &Fault{Err: err, Message: fmt.Sprintf(format, args...)}
}

// corrupt wraps ErrCorrupt with what was found.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
