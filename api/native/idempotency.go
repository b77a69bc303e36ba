package native

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"millrace/api"
	"millrace/client"
)

// maxKeptBody bounds the body of an answer that is kept for a key.
const maxKeptBody = 64 << 10

// keyHeader is how a client names a request.
const keyHeader = api.IdempotencyKey

// life is how long an attempt is waited for before it is taken for dead. Where a second one does no harm that is not
// long.
func (r redo) life() time.Duration {
	switch r {
	case again:
		return 5 * time.Second
	case onlyIfUndone: // it would abort the first
		return onceTimeout + 10*time.Second
	}
	return 90 * time.Second
}

// redo says whether a request may be done again when an attempt at it has died.
type redo int

const (
	never        redo = iota // what it has done is not known
	again                    // what is done is found done
	onlyIfUndone             // the handler finds out what became of it
)

// idempotency serves requests that come with an Idempotency-Key: the first one is done, and its answer kept; the same
// one again gets that answer. It is safe for concurrent use.
type idempotency struct {
	edge  *api.Edge
	store *client.Keys // nil: the cluster cannot keep any
}

// attempt is one try at the request of a key, in the context of its handler.
type attempt struct {
	claim *client.Claim
	again bool            // an attempt before has died, or does not know what it has done
	note  json.RawMessage // what that one had noted
}

type attemptKey struct{}

// attemptOf is the attempt that a handler serves; nil without a key.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// wrap serves the requests of a handler that have a key. All others pass.
func (k *idempotency) wrap(kind redo, next http.HandlerFunc) http.HandlerFunc {
	return k.wrapFor(kind, k.edge.Fail, next)
}

// wrapFor is wrap for a handler of an API that tells what goes wrong in its own way.
func (k *idempotency) wrapFor(kind redo, fail func(http.ResponseWriter, *http.Request, error), next http.HandlerFunc,
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header[keyHeader]; !ok {
			next(w, r)
			return
		}
		if err := k.serve(w, r, kind, next); err != nil {
			fail(w, r, err)
		}
	}
}

// middleware is wrap for the generated routes.
func (k *idempotency) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		kind := never
		if chi.RouteContext(r.Context()).RoutePattern() == "/v1/topics" {
			kind = again
		}
		k.wrap(kind, next.ServeHTTP)(w, r)
	})
}

// serve serves one request. An error means that nothing was done or written.
func (k *idempotency) serve(w http.ResponseWriter, r *http.Request, kind redo, next http.HandlerFunc) error {
	key := r.Header[keyHeader]
	switch {
	case len(key) > 1:
		return api.Refuse(api.InvalidParameter, "%s is given twice", keyHeader)
	case !goodName(key[0]):
		return badName(keyHeader)
	case k.store == nil:
		return api.Refuse(api.InvalidParameter, "%s: this cluster keeps no keys", keyHeader)
	}
	body, err := k.edge.ReadBody(w, r, 0)
	defer body.Free()
	if err != nil {
		return err
	}
	claim, entry, err := k.store.Claim(r.Context(), key[0], fingerprint(r, body.Bytes), kind.life())
	switch {
	case err != nil:
		return keyFault(err)
	case claim == nil:
		replay(w, entry)
		return nil
	}
	a := &attempt{claim: claim}
	if entry != nil {
		if a.again, a.note = true, entry.Note; kind == never {
			_ = claim.Leave(r.Context(), client.KeyUnknown) // it says so already, or will when its time is over
			return errUnknownAttempt()
		}
	}
	k.run(w, r, &body, &try{a, kind, next})
	return nil
}

// try is an attempt at a request by its handler.
type try struct {
	*attempt
	kind redo
	next http.HandlerFunc
}

// run has the handler answer, keeps the answer and sends it.
func (k *idempotency) run(w http.ResponseWriter, r *http.Request, body *api.Body, t *try) {
	a := t.attempt
	inner := r.WithContext(context.WithValue(r.Context(), attemptKey{}, a))
	inner.Header = r.Header.Clone()
	inner.Header.Del("Content-Encoding")
	inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(body.Bytes)), int64(len(body.Bytes))
	if len(body.Bytes) == 0 {
		inner.Body = http.NoBody
	}
	kept := &keptAnswer{header: http.Header{}}
	t.next(kept, inner)
	if a.again && t.kind == again {
		kept.doubt()
	}
	// A client that has gone has a key to come back with.
	ctx := context.WithoutCancel(r.Context())
	var err error
	switch state := kept.state(); state {
	case client.KeyDone:
		err = a.claim.Done(ctx, kept.entry())
	default:
		err = a.claim.Leave(ctx, state)
	}
	if err != nil && !errors.Is(err, client.ErrKeyRunning) { // the key has an attempt under way, until its time is over
		k.edge.LogFault(ctx, err)
	}
	kept.send(w)
}

// fingerprint tells requests apart: by all that says what is to be done.
func fingerprint(r *http.Request, body []byte) []byte {
	h := sha256.New()
	part := func(s string) {
		_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
	}
	part(r.Method)
	part(r.URL.EscapedPath())
	part(r.URL.RawQuery)
	var names []string
	for name := range r.Header {
		if name == "Content-Type" || name == "Expected-Offset" || strings.HasPrefix(name, "Record-Header-") ||
			strings.HasPrefix(name, "Ce-") || strings.HasPrefix(name, "Producer-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		part(name)
		for _, v := range r.Header[name] {
			part(v)
		}
	}
	part("")
	_, _ = h.Write(body)
	return h.Sum(nil)
}

// keyFault tells why the request of a key is not served.
func keyFault(err error) error {
	switch {
	case errors.Is(err, client.ErrKeyRunning):
		return api.Refuse(api.KeyInUse, "%v", err)
	case errors.Is(err, client.ErrKeyReused):
		return api.Refuse(api.KeyReused, "the key came with another method, path, query or body before")
	case errors.Is(err, client.ErrKeyLost):
		return errUnknownAttempt()
	}
	return nothingDone(err)
}

// errUnknownAttempt says that nobody knows what the first request has done.
func errUnknownAttempt() *api.Error {
	return api.Refuse(api.KeyOutcomeUnknown,
		"the first request with this key ended without an answer, and it is not one that can be done again")
}

// replay sends the answer that was kept.
func replay(w http.ResponseWriter, entry *client.KeyEntry) {
	h := w.Header()
	for name, value := range entry.Header {
		h.Set(name, value)
	}
	h.Set("Idempotent-Replayed", "true")
	body := entry.Body
	if entry.Cut {
		h.Set("Content-Type", "application/json")
		body = []byte(`{"detail":"the first answer had more than 64 KiB and was not kept; its status is this one's"}` + "\n")
	}
	w.WriteHeader(entry.Status)
	_, _ = w.Write(body)
}

// keptAnswer is an answer in memory.
type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer

	// What the handler says that the answer means, where it does.
	judged    bool
	outcome   api.Outcome
	retryable bool
}

// Judge is called by api.Judge.
func (a *keptAnswer) Judge(o api.Outcome, retryable bool) {
	a.judged, a.outcome, a.retryable = true, o, retryable
}

// Header implements http.ResponseWriter.
func (a *keptAnswer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *keptAnswer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *keptAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// state is what the answer says of the request: done, to be tried again, or of unknown effect.
func (a *keptAnswer) state() client.KeyState {
	switch {
	case !a.judged:
	case a.outcome == api.Unknown:
		return client.KeyUnknown
	case a.retryable:
		return client.KeyFree
	default:
		return client.KeyDone
	}
	if a.status > 0 && a.status < 300 {
		return client.KeyDone
	}
	var p struct {
		Retryable bool        `json:"retryable"`
		Outcome   api.Outcome `json:"outcome"`
	}
	switch {
	case json.Unmarshal(a.body.Bytes(), &p) != nil || p.Outcome != api.Failed:
		return client.KeyUnknown
	case p.Retryable:
		return client.KeyFree
	}
	return client.KeyDone
}

// doubt has a refusal say no more than that this attempt has failed: the one before may have done what it was to do.
func (a *keptAnswer) doubt() {
	if a.status < 300 {
		return
	}
	a.outcome = api.Unknown
	told := bytes.Replace(a.body.Bytes(), []byte(`"outcome":"failed"`), []byte(`"outcome":"unknown"`), 1)
	a.header.Del("Content-Length")
	a.body = *bytes.NewBuffer(bytes.Clone(told))
}

// entry is what is kept of the answer.
func (a *keptAnswer) entry() client.KeyEntry {
	out := client.KeyEntry{Status: a.status, Header: map[string]string{}}
	for _, name := range []string{"Content-Type", "Location", "Etag"} {
		if v := a.header.Get(name); v != "" {
			out.Header[name] = v
		}
	}
	if out.Cut = a.body.Len() > maxKeptBody; !out.Cut {
		out.Body = a.body.Bytes()
	}
	return out
}

// send sends the answer.
func (a *keptAnswer) send(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range a.header {
		h[name] = values
	}
	w.WriteHeader(max(a.status, http.StatusOK))
	_, _ = w.Write(a.body.Bytes()) // a client that has gone needs no answer
}
