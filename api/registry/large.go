package registry

import (
	"net/http"
	"time"

	"millrace/api"
)

const (
	largeBody = 64 << 10         // bytes of a body that has to wait for its turn
	largeTurn = 4                // of which so many are worked on at once
	largeWait = 20 * time.Second // and others wait so long
)

// admit lets few large bodies in at once: what they are decoded and parsed into is many times as large.
func (a *API) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		packed := r.ContentLength < 0 || r.Header.Get("Content-Encoding") != "" // nobody knows how large it is
		if r.ContentLength < largeBody && !packed || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		wait := time.NewTimer(largeWait)
		defer wait.Stop()
		select {
		case a.large <- struct{}{}:
			defer func() { <-a.large }()
			next.ServeHTTP(w, r)
		case <-wait.C:
			a.fail(w, r, api.RefuseCompat(http.StatusServiceUnavailable,
				"HTTP 503 Service Unavailable: there are too many large schemas at once; try again later."))
		case <-r.Context().Done(): // nobody waits for an answer
		}
	})
}
