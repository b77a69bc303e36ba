package api

import (
	"fmt"
	"net/http"
)

// RefuseCompat makes an Error of a compatible API in that API's own words: its number and its text, which
// is sent as it is, without advice.
func RefuseCompat(code int, format string, args ...any) *Error {
	return &Error{
		Fault:  &Fault{Name: "REFUSED", Status: CompatStatus(code), Code: code, Outcome: Failed},
		Detail: fmt.Sprintf(format, args...),
	}
}

// WriteConnect answers with an error as Kafka Connect does: its number is the HTTP status, and there are few of those.
func WriteConnect(w http.ResponseWriter, err error) {
	e := *FromError(err)
	f := *e.Fault
	switch f.Code = f.Status; f.Status {
	case http.StatusUnprocessableEntity:
		f.Code = http.StatusBadRequest
	case http.StatusGatewayTimeout, http.StatusInsufficientStorage:
		f.Code = http.StatusServiceUnavailable
	}
	e.Fault = &f
	WriteCompat(w, &e, "application/json")
}
