package api

import "net/http"

// IdempotencyKey is the header by which a client names a request, so that it can be sent again.
const IdempotencyKey = "Idempotency-Key"

// Keyed makes a handler of one API's that serves requests with an Idempotency-Key once, and answers those that come
// again as the first one. Requests without a key pass.
type Keyed func(KeyedRoute, http.HandlerFunc) http.HandlerFunc

// KeyedRoute is what is particular to the requests of one route.
type KeyedRoute struct {
	// Again says that a request of which it is not known whether it was done may be done again: what is done is
	// found done.
	Again bool
	Fail  func(http.ResponseWriter, *http.Request, error)
}

// Judge says what an answer that is about to be written means, for whoever keeps answers: whether the request has
// taken effect, and whether the same one may succeed later. Done with is what is judged to have Failed for good, as
// it is told.
func Judge(w http.ResponseWriter, o Outcome, retryable bool) {
	if k, ok := w.(interface{ Judge(Outcome, bool) }); ok {
		k.Judge(o, retryable)
	}
}
