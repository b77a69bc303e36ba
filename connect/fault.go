package connect

import "fmt"

// The HTTP statuses that faults of operations have in the REST API of Kafka Connect.
const (
	badRequest  = 400
	forbidden   = 403
	notFound    = 404
	conflict    = 409
	failed      = 500
	unavailable = 503
)

// Error is the refusal of an operation.
type Error struct {
	Status  int    // the HTTP status that clients of Kafka Connect expect
	Message string // for whoever asked; it holds no secrets
	Cause   error  // for the log, nil if there is none
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Cause }

// refuse makes an Error.
func refuse(status int, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}
