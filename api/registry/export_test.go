package registry

import (
	"net/http"
	"net/http/httptest"
)

// Rewritten is a request as it is routed.
func Rewritten(r *http.Request) (*http.Request, error) {
	return (&API{}).enter(httptest.NewRecorder(), r)
}
