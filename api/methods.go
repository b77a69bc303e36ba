package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// headKey is the key under which a request that asks for a head only carries that in its context.
type headKey struct{}

// IsHead says whether only the head of the answer to a GET is wanted: the request was a HEAD. A handler whose answer
// may wait or go on without end answers at once.
func IsHead(r *http.Request) bool { return r.Context().Value(headKey{}) != nil }

// asGet makes a GET of a HEAD, where there is one: net/http drops the body of its answer.
func (rt *Router) asGet(r *http.Request) *http.Request {
	if !rt.mux.Match(chi.NewRouteContext(), http.MethodGet, routedPath(r)) {
		return r
	}
	get := r.WithContext(context.WithValue(r.Context(), headKey{}, true))
	get.Method = http.MethodGet
	return get
}

// options tells the methods of a path.
func (rt *Router) options(w http.ResponseWriter, r *http.Request) {
	allow := rt.allowed(r)
	if allow == nil {
		rt.mux.ServeHTTP(w, r) // nothing is there
		return
	}
	h := w.Header()
	h.Set("Allow", strings.Join(allow, ", "))
	if h.Get(allowOriginHeader) != "" {
		allowMethods(h, r, allow)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (rt *Router) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	allow := strings.Join(rt.allowed(r), ", ")
	err := Refuse(MethodNotAllowed, "%s is not a method of %s, which has %s", r.Method, r.URL.Path, allow)
	err.Allow = allow
	writeByFamily(w, r, err)
}

// allowed lists the methods that the path of r has, nil if there is nothing.
func (rt *Router) allowed(r *http.Request) (allow []string) {
	for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut} {
		if rt.mux.Match(chi.NewRouteContext(), m, routedPath(r)) {
			allow = append(allow, m)
		}
	}
	if slices.Contains(allow, http.MethodGet) {
		allow = append(allow, http.MethodHead)
	}
	if allow != nil {
		allow = append(allow, http.MethodOptions)
	}
	slices.Sort(allow)
	return allow
}

// routedPath is what the router looks at of a path.
func routedPath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}
