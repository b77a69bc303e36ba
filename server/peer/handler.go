package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
)

// Memory for a body, of a request or an answer.
const (
	firstBytes = 64 << 10 // are set aside before any has come
	growth     = 16       // a longer one takes so many times what has come
)

// Bounds of what a handler takes.
const (
	defaultMaxBody   = 128 << 20
	defaultMaxBodies = 256 << 20
	bodyTime         = 30 * time.Second // for a body to come, and for an answer to be taken
	maxTimeout       = 10 * time.Minute // that a sender may ask for
	warnEvery        = time.Minute
)

// HandlerOptions are the parts of a Handler.
type HandlerOptions struct {
	// To answers: what this node itself serves, not the router, since a request makes one hop at most.
	To         kmsg.Requestor
	Node       int32 // this node
	Credential Credential
	// ClusterID is the id of this node's cluster, "" while it is not known; nil is never known.
	ClusterID func() string
	MaxBody   int // bytes of a request; 0 takes 128 MiB
	// MaxBodies are the bytes of all requests at a time, as far as they have come; 0 takes 256 MiB.
	MaxBodies int
	Logger    *slog.Logger
	Pool      *record.Pool // lends memory for bodies
}

// Handler serves Path.
type Handler struct {
	o      HandlerOptions
	bodies atomic.Int64 // bytes of memory for the bodies of requests being served; <= MaxBodies
	warned atomic.Int64 // when a refusal was logged, in nanoseconds since start
	start  time.Time
}

// NewHandler makes a Handler.
func NewHandler(o HandlerOptions) *Handler {
	if o.MaxBody <= 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.MaxBodies <= 0 {
		o.MaxBodies = defaultMaxBodies
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Pool == nil {
		o.Pool = record.NewPool(0)
	}
	h := &Handler{o: o, start: time.Now()}
	h.warned.Store(-int64(warnEvery))
	return h
}

// refused is why a request is not acted on, in words for who runs the sender.
type refused struct {
	status int
	text   string
}

func refuse(status int, format string, args ...any) *refused {
	return &refused{status, fmt.Sprintf(format, args...)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	no := h.admit(r)
	if no != nil {
		h.warn(r, no)
		h.answer(w, no.status, "text/plain; charset=utf-8", []byte(no.text+"\n"))
		return
	}
	room := &room{h: h}
	defer room.free()
	arena := h.o.Pool.Arena()
	defer arena.Free()
	req, no := h.read(w, r, memory{arena, room})
	if no != nil {
		h.answer(w, no.status, "text/plain; charset=utf-8", []byte(no.text+"\n"))
		return
	}
	ctx, cancel, no := deadline(r)
	if no != nil {
		h.answer(w, no.status, "text/plain; charset=utf-8", []byte(no.text+"\n"))
		return
	}
	defer cancel()
	resp, err := h.o.To.Request(record.WithArena(ctx, arena), req)
	if err != nil {
		// Whether something was done is not known unless the error says so: 504.
		status := http.StatusGatewayTimeout
		var nothing interface{ NotSent() bool }
		if errors.As(err, &nothing) && nothing.NotSent() {
			status = http.StatusServiceUnavailable
		}
		h.answer(w, status, "text/plain; charset=utf-8", []byte(err.Error()+"\n"))
		return
	}
	resp.SetVersion(req.GetVersion())
	h.answer(w, http.StatusOK, "application/octet-stream", resp.AppendTo(arena.Alloc(responseSize(resp))[:0]))
}

// admit checks who sends, and whether this node is meant.
func (h *Handler) admit(r *http.Request) *refused {
	if h.o.Credential.IsZero() {
		return refuse(http.StatusUnauthorized, "node %d was started without a cluster secret and answers no other node: "+
			"give --cluster-secret-file, the same file on all nodes", h.o.Node)
	}
	if !h.o.Credential.Check(r) {
		return refuse(http.StatusUnauthorized, "the cluster credential is missing or another one than that of node %d: "+
			"--cluster-secret-file must name the same secret on all nodes", h.o.Node)
	}
	if r.Method != http.MethodPost {
		return refuse(http.StatusMethodNotAllowed, "method %s: nodes send POST", r.Method)
	}
	theirs, ours := r.Header.Get(headerCluster), ""
	if h.o.ClusterID != nil {
		ours = h.o.ClusterID()
	}
	if theirs != "" && ours != "" && theirs != ours {
		return refuse(http.StatusConflict, "node %d is of cluster %s, the sender of cluster %s: check --voters and the "+
			"advertised addresses; a node that changes clusters needs an empty --data-dir", h.o.Node, ours, theirs)
	}
	if to := r.Header.Get(headerTo); to != "" && to != strconv.Itoa(int(h.o.Node)) {
		return refuse(http.StatusMisdirectedRequest, "this is node %d, not node %s: check the addresses in --voters and the "+
			"advertised ones; two nodes may have changed places", h.o.Node, to)
	}
	return nil
}

// read reads and decodes the request; those that carry batches into memory of the arena.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, m memory) (kmsg.Request, *refused) {
	key, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, Path), 10, 16)
	if err != nil {
		return nil, refuse(http.StatusNotFound, "%.80q: want %s and the number of a key", r.URL.Path, Path)
	}
	s, ok := versions(kmsg.Key(key))
	if !ok {
		return nil, refuse(http.StatusNotFound, "key %d does not travel between nodes", key)
	}
	version := int64(s.newest)
	if v := r.Header.Get(headerVersion); v != "" {
		if version, err = strconv.ParseInt(v, 10, 16); err != nil {
			return nil, refuse(http.StatusBadRequest, "%s: %.20q is not a version", headerVersion, v)
		}
	}
	body, no := h.body(w, r, m)
	if no != nil {
		return nil, no
	}
	if key != int64(kmsg.Produce) && key != int64(kmsg.Fetch) {
		// Coordinators keep what members tell of themselves, and may be at work on a request whose sender is gone.
		body = bytes.Clone(body)
	}
	req, err := ReadRequest(int16(key), int16(version), body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	return req, nil
}

// body reads the body whole. Nothing is done for a part of one.
func (h *Handler) body(w http.ResponseWriter, r *http.Request, m memory) ([]byte, *refused) {
	switch {
	case r.ContentLength < 0:
		return nil, refuse(http.StatusLengthRequired, "a request between nodes says how long it is")
	case r.ContentLength > int64(h.o.MaxBody):
		return nil, refuse(http.StatusRequestEntityTooLarge, "%d bytes are more than the %d that node %d takes of another",
			r.ContentLength, h.o.MaxBody, h.o.Node)
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(bodyTime)) == nil {
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }() // it could be set before
	}
	size := int(r.ContentLength)
	body, err := readWhole(r.Body, size, m)
	switch {
	case errors.Is(err, errNoRoom):
		return nil, refuse(http.StatusServiceUnavailable, "node %d: %v", h.o.Node, err)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body broke off after %d of %d bytes: %v", len(body), size, err)
	}
	return body, nil
}

// memory is what a body is read into, and the room that is counted for it; nil counts nothing.
type memory struct {
	arena *record.Arena
	room  *room
}

func (m memory) take(bytes int) error {
	if m.room == nil {
		return nil
	}
	return m.room.take(bytes)
}

// room is the part of MaxBodies that one request has.
type room struct {
	h     *Handler
	taken int64
}

// errNoRoom is told to a node that asks again later: nothing was done.
var errNoRoom = errors.New("the requests of other nodes fill the memory set aside for them")

func (r *room) take(bytes int) error {
	if r.h.bodies.Add(int64(bytes)) > int64(r.h.o.MaxBodies) {
		r.h.bodies.Add(int64(-bytes))
		return errNoRoom
	}
	r.taken += int64(bytes)
	return nil
}

func (r *room) free() { r.h.bodies.Add(-r.taken) }

// readWhole reads a body that is said to have so many bytes. Memory is taken as they come, not as they are announced.
// With an error goes what came.
func readWhole(r io.Reader, size int, m memory) ([]byte, error) {
	if err := m.take(min(size, firstBytes)); err != nil {
		return nil, err
	}
	buf := m.arena.Alloc(min(size, firstBytes))
	for at := 0; ; {
		n, err := io.ReadFull(r, buf[at:])
		if err != nil {
			return buf[:at+n], err
		}
		if at = len(buf); at == size {
			return buf, nil
		}
		if err := m.take(min(size, growth*at)); err != nil {
			return buf, err
		}
		grown := m.arena.Alloc(min(size, growth*at))
		copy(grown, buf)
		buf = grown
	}
}

// deadline is the context of a request: it ends when the sender has gone or no longer waits.
func deadline(r *http.Request) (context.Context, context.CancelFunc, *refused) {
	v := r.Header.Get(headerTimeout)
	if v == "" {
		return r.Context(), func() {}, nil
	}
	ms, err := strconv.ParseInt(v, 10, 64)
	if err != nil || ms < 0 {
		return nil, nil, refuse(http.StatusBadRequest, "%s: %.20q is not a number of milliseconds", headerTimeout, v)
	}
	limit := maxTimeout
	if ms < maxTimeout.Milliseconds() {
		limit = time.Duration(ms) * time.Millisecond
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), limit, errNoTime)
	return ctx, cancel, nil
}

// errNoTime is the cause with which a request ends that its sender no longer waits for.
var errNoTime = errors.New("the time that the asking node gave is over")

// answer writes an answer whole. A sender that has gone, or does not take it in time, needs none. The deadline goes
// with the answer: what the connection is used for next may be slower, or another handler's.
func (h *Handler) answer(w http.ResponseWriter, status int, mediaType string, body []byte) {
	rc := http.NewResponseController(w)
	limited := rc.SetWriteDeadline(time.Now().Add(bodyTime)) == nil // without one it may take longer
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	if limited && err == nil && rc.Flush() == nil {
		_ = rc.SetWriteDeadline(time.Time{}) // it could be set before
	}
}

// warn tells the operator of a refusal, at most once a minute: a node that is set up wrongly tries again and again.
func (h *Handler) warn(r *http.Request, no *refused) {
	now, last := int64(time.Since(h.start)), h.warned.Load()
	if now-last < int64(warnEvery) || !h.warned.CompareAndSwap(last, now) {
		return
	}
	h.o.Logger.Warn("refused a request of another node", "remote", r.RemoteAddr, "status", no.status, "reason", no.text)
}
