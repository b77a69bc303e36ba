package schemaregistry

import (
	"errors"
	"fmt"
)

// The numbers of errors, as clients of the registry know them. The first three digits are the HTTP status.
const (
	CodeSubjectNotFound       = 40401
	CodeVersionNotFound       = 40402
	CodeSchemaNotFound        = 40403
	CodeSubjectSoftDeleted    = 40404
	CodeSubjectNotSoftDeleted = 40405
	CodeVersionSoftDeleted    = 40406
	CodeVersionNotSoftDeleted = 40407
	CodeConfigNotFound        = 40408
	CodeModeNotFound          = 40409
	CodeIncompatible          = 40901
	CodeInvalidSchema         = 42201
	CodeInvalidVersion        = 42202
	CodeInvalidLevel          = 42203
	CodeInvalidMode           = 42204
	CodeNotPermitted          = 42205
	CodeReferenced            = 42206
	CodeOtherID               = 42207
	CodeInvalidSubject        = 42208
	CodeTooLarge              = 42209
	CodeInvalidRuleSet        = 42210
	CodeContextNotEmpty       = 42211
	CodeStoreFailed           = 50001
	CodeStoreTimeout          = 50002
)

// Error is what the registry says of a request that it does not carry out. All of the package's errors are one.
type Error struct {
	Code    int    // one of the numbers above
	Message string // for the client to read
	Unknown bool   // the write may or may not have taken effect
	// Messages, Differences and Warnings say why a schema is incompatible.
	Messages    []string
	Differences []Difference
	Warnings    []string
	Cause       error // what the store said, for the server's own log
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Cause }

// Status is the HTTP status that goes with the code.
func (e *Error) Status() int { return e.Code / 100 }

func refuse(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// AsError is err as an *Error: as it is, or as a fault of the store.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeStoreFailed, Message: err.Error(), Cause: err}
}
