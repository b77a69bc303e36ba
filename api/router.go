package api

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
)

// RegistryType is the media type of the schema registry's answers.
const RegistryType = "application/vnd.schemaregistry.v1+json"

// Mount adds the routes of one API to the router.
type Mount func(chi.Router)

// Router is the handler of a node's public HTTP API. Routes tells what it serves.
type Router struct {
	edge *Edge
	mux  *chi.Mux
}

// NewRouter builds the router: the operations of this package, and the mounts.
func NewRouter(e *Edge, mounts ...Mount) *Router {
	rt := &Router{edge: e, mux: chi.NewRouter()}
	rt.mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeByFamily(w, r, Refuse(NotFound, "nothing is served at %s", r.URL.Path))
	})
	rt.mux.MethodNotAllowed(rt.methodNotAllowed)
	e.mountOperations(rt.mux)
	for _, m := range mounts {
		m(rt.mux)
	}
	return rt
}

// Routes walks over the routes, for tests that compare them with the OpenAPI document.
func (rt *Router) Routes() chi.Routes { return rt.mux }

// ServeHTTP checks what is true of every request, counts it, and routes it.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := rt.edge
	sw := &statusWriter{ResponseWriter: w, multiplexed: r.ProtoMajor >= 2}
	start := time.Now()
	defer func() {
		if v := recover(); v != nil {
			e.panicked(sw, r, v)
		}
		e.boundRest(sw, r)
		e.metrics.done(family(r.URL.Path), sw.status, time.Since(start))
	}()
	if len(e.opts.Origins) > 0 {
		e.allowOrigin(sw, r)
	}
	if err := e.admit(r); err != nil {
		writeByFamily(sw, r, err)
		return
	}
	if s, param := e.shortcutFor(r); s != nil {
		s.serve(sw, r, param)
		return
	}
	if e.rewrite != nil && isRegistry(r.URL.Path) {
		rewritten, err := e.rewrite(sw, r)
		if err != nil {
			writeByFamily(sw, r, err)
			return
		}
		r = rewritten
	}
	if isConnect(r.URL.Path) {
		r = asSegments(r)
	}
	switch r.Method {
	case http.MethodHead:
		rt.mux.ServeHTTP(sw, rt.asGet(r))
	case http.MethodOptions:
		rt.options(sw, r)
	default:
		rt.mux.ServeHTTP(sw, r)
	}
}

// boundRest sets a deadline for the rest of a body that no handler read: net/http discards it after the answer, and
// would wait for a silent client without end.
func (e *Edge) boundRest(w *statusWriter, r *http.Request) {
	if r.ContentLength != 0 && !w.bodyDone {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(e.limits.BodyWindow)) // none in a test's writer
	}
}

// admit refuses what no API accepts.
func (e *Edge) admit(r *http.Request) error {
	if len(r.RequestURI) > e.limits.URIBytes {
		return e.OverLimit("uri_bytes",
			Refuse(URITooLong, "the URI has %d bytes, the limit is %d", len(r.RequestURI), e.limits.URIBytes))
	}
	if r.URL.RawQuery != "" {
		if n := strings.Count(r.URL.RawQuery, "&") + 1; n > e.limits.QueryParameters {
			return e.OverLimit("query_parameters",
				Refuse(InvalidParameter, "the query has %d parameters, the limit is %d", n, e.limits.QueryParameters))
		}
	}
	if err := e.opts.Starting(); err != nil && family(r.URL.Path) != familyOperations && r.URL.Path != connectHealth {
		return Refuse(Starting, "%v", err)
	}
	if err := e.origin.Check(r); err != nil {
		return Refuse(Forbidden, "%v", err)
	}
	return nil
}

// panicked ends the request of a handler that panicked. http.ErrAbortHandler is a handler's own wish to
// cut the connection and passes on.
func (e *Edge) panicked(w *statusWriter, r *http.Request, v any) {
	if v == http.ErrAbortHandler {
		panic(v)
	}
	e.metrics.panics.Inc()
	id := uuid.NewString()
	e.log.ErrorContext(r.Context(), "handler panicked", "id", id, "method", r.Method, "path", r.URL.Path,
		"err", fmt.Sprint(v), "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // the answer has begun: only a cut shows that it is not whole
	}
	w.Header().Set("Connection", "close")
	writeByFamily(w, r, Refuse(Internal, "the request failed; the server's log has the reason under id %s", id))
}

// writeByFamily answers with an error in the form of the API that the path belongs to.
func writeByFamily(w http.ResponseWriter, r *http.Request, err error) {
	err = ErrorFor(r, err)
	switch family(r.URL.Path) {
	case familyV1, familyOperations:
		WriteProblem(w, err)
	case familyV2:
		WriteCompat(w, err, "application/vnd.kafka.v2+json")
	case familyRegistry:
		WriteCompat(w, err, RegistryType)
	case familyConnect:
		WriteConnect(w, err)
	default:
		WriteCompat(w, err, "application/json")
	}
}

// asSegments is a request for a path of connectors as it is routed: without a slash at its end, and by its segments as
// they were sent, so that each is decoded once.
func asSegments(r *http.Request) *http.Request {
	out, u := *r, *r.URL
	u.RawPath = r.URL.EscapedPath()
	if raw, ok := strings.CutSuffix(u.RawPath, "/"); ok {
		u.RawPath, u.Path = raw, strings.TrimSuffix(u.Path, "/")
	}
	out.URL = &u
	return &out
}

// statusWriter remembers the status of an answer. ResponseController reaches the writer below.
type statusWriter struct {
	http.ResponseWriter
	status      int  // 0 until the header is written
	bodyDone    bool // the request's body was read to its end, or will not be
	multiplexed bool // the connection carries other requests too: HTTP/2
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
		if w.multiplexed {
			// There it would take the whole connection down, and the answer with it. One request ends without that.
			w.Header().Del("Connection")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
