package api

import "fmt"

// RefuseCompat makes an Error of a compatible API in that API's own words: its number and its text, which
// is sent as it is, without advice.
func RefuseCompat(code int, format string, args ...any) *Error {
	return &Error{
		Fault:  &Fault{Name: "REFUSED", Status: CompatStatus(code), Code: code, Outcome: Failed},
		Detail: fmt.Sprintf(format, args...),
	}
}
