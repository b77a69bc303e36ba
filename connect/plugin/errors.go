package plugin

import "errors"

// Retriable marks an error after which the same may be tried again.
func Retriable(err error) error {
	if err == nil {
		return nil
	}
	return &retriable{err}
}

type retriable struct{ err error }

func (r *retriable) Error() string { return r.err.Error() }
func (r *retriable) Unwrap() error { return r.err }

// IsRetriable says whether the same may be tried again.
func IsRetriable(err error) bool {
	var r *retriable
	return errors.As(err, &r)
}
