// Package api is the HTTP edge of a node: the router, the limits, request bodies, content negotiation,
// errors, and the operations that belong to no API (health, metrics, the OpenAPI document, its page).
//
// Edge holds what all APIs of a node share. The APIs themselves are the packages below this one; each
// mounts its routes on the router and turns HTTP into calls on package client and back. This package
// promises that every request is bounded in size, time and memory before any of it is acted on, that
// every error is JSON with a number from one table, and that a handler's panic ends one request only.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/client"
	"millrace/record"
)

// Limits bound what one request, and all requests together, may cost. Zero values take the defaults.
type Limits struct {
	URIBytes        int           // length of the request's URI; 64 KiB, which the longest position fits in
	QueryParameters int           // number of query parameters; 200
	BodyBytes       int           // a body as sent; 16 MiB
	ExpandedBytes   int           // a body after decompression; 64 MiB
	ExpansionRatio  int           // expanded to sent, past ExpansionFree; 100
	ExpansionFree   int           // expansion that is always allowed; 8 MiB
	BodyRate        int           // least bytes a second of a body, averaged over BodyWindow; 1 KiB
	BodyWindow      time.Duration // 10 s
	InFlightBytes   int64         // bodies of all requests being served; 256 MiB
	Streams         int64         // long polls and live streams; 20,000
	Records         int           // records in one produce request; 10,000
}

// DefaultLimits are the limits that zero values stand for.
func DefaultLimits() Limits {
	return Limits{
		URIBytes: 64 << 10, QueryParameters: 200,
		BodyBytes: 16 << 20, ExpandedBytes: 64 << 20, ExpansionRatio: 100, ExpansionFree: 8 << 20,
		BodyRate: 1 << 10, BodyWindow: 10 * time.Second,
		InFlightBytes: 256 << 20, Streams: 20_000, Records: 10_000,
	}
}

func (l *Limits) setDefaults() {
	d := DefaultLimits()
	for _, p := range []struct{ v, d *int }{
		{&l.URIBytes, &d.URIBytes},
		{&l.QueryParameters, &d.QueryParameters},
		{&l.BodyBytes, &d.BodyBytes},
		{&l.ExpandedBytes, &d.ExpandedBytes},
		{&l.ExpansionRatio, &d.ExpansionRatio},
		{&l.ExpansionFree, &d.ExpansionFree},
		{&l.BodyRate, &d.BodyRate},
		{&l.Records, &d.Records},
	} {
		if *p.v == 0 {
			*p.v = *p.d
		}
	}
	if l.BodyWindow == 0 {
		l.BodyWindow = d.BodyWindow
	}
	if l.InFlightBytes == 0 {
		l.InFlightBytes = d.InFlightBytes
	}
	if l.Streams == 0 {
		l.Streams = d.Streams
	}
}

// Options are what an Edge is made of. Client and Pool are required.
type Options struct {
	Client *client.Client
	Pool   *record.Pool // memory of bodies and batches
	Limits Limits
	Now    func() time.Time // time.Now by default
	Logger *slog.Logger     // discarded by default

	// Registry receives the HTTP metrics and is what /metrics shows; a new one by default.
	Registry *prometheus.Registry
	// Ready says why the node cannot serve, nil when it can. It must be cheap.
	Ready func() error
	// Starting says why the node cannot answer for its cluster yet, nil when it can. Until then all APIs refuse. It must
	// be cheap.
	Starting func() error
	// Forward serves requests on the nodes of groups' coordinators and partitions' leaders; nil: this node serves all.
	Forward Forward
	// SchemasTopic is the topic in which the schema registry keeps its schemas: clients may not delete it.
	SchemasTopic string
	// AdvertisedURLs are the base URLs, such as http://node1:8082, that links in answers begin with, one a
	// scheme. Without one for the request's scheme links use the Host that the request came with.
	AdvertisedURLs []string
	// Origins are the web origins whose pages may use the API, such as https://dash.example, each as CheckOrigin
	// wants it. Without any, pages of other origins cannot read answers and may not write.
	Origins []string
	// TrustedProxies are the peers whose X-Forwarded headers count.
	TrustedProxies []netip.Prefix
	// Spec is openapi.yaml.
	Spec []byte

	Version string
	Commit  string
}

// Edge is what all APIs of a node share. It is safe for concurrent use.
type Edge struct {
	client *client.Client
	pool   *record.Pool
	limits Limits
	now    func() time.Time
	log    *slog.Logger
	opts   Options

	metrics   *metrics
	expanders *expanders
	origin    *http.CrossOriginProtection

	inFlight atomic.Int64 // bytes of bodies being served; <= limits.InFlightBytes
	streams  atomic.Int64 // open streams; <= limits.Streams

	document  document
	shortcuts []shortcut // complete before the first request
	rewrite   Rewrite    // nil if there is none; set before the first request
}

// NewEdge makes an Edge. It does no I/O.
func NewEdge(o Options) (*Edge, error) {
	if o.Client == nil || o.Pool == nil {
		return nil, errors.New("api: Options need a Client and a Pool")
	}
	o.Limits.setDefaults()
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Starting == nil {
		o.Starting = func() error { return nil }
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	e := &Edge{
		client: o.Client, pool: o.Pool, limits: o.Limits, now: o.Now, log: o.Logger, opts: o,
		expanders: newExpanders(o.Limits), origin: http.NewCrossOriginProtection(),
	}
	for _, origin := range o.Origins {
		if err := CheckOrigin(origin); err != nil {
			return nil, err
		}
		if err := e.origin.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	e.document.yaml = o.Spec
	e.metrics = newMetrics(o.Registry, e)
	return e, nil
}

// Limits are the limits in force.
func (e *Edge) Limits() Limits { return e.limits }

// Starting says why the node cannot answer for its cluster yet, nil when it can.
func (e *Edge) Starting() error { return e.opts.Starting() }

// Now is the wall clock.
func (e *Edge) Now() time.Time { return e.now() }

// Arena lends memory for one request; the caller frees it.
func (e *Edge) Arena() *record.Arena { return e.pool.Arena() }

// OpenStream takes a place among the long polls and live streams; the caller calls done once.
func (e *Edge) OpenStream() (done func(), err error) {
	if e.streams.Add(1) > e.limits.Streams {
		e.streams.Add(-1)
		return nil, e.OverLimit("streams", Refuse(Overloaded, "%d streams are open, which is the limit", e.limits.Streams))
	}
	return func() { e.streams.Add(-1) }, nil
}

// shortcut is a route that needs no router: one parameter between two fixed parts of the path.
type shortcut struct {
	method, before, after string
	serve                 func(w http.ResponseWriter, r *http.Request, param string)
}

// Shortcut lets a hot route pass by the router, which costs it a tenth of its time. The route must be mounted too: the
// router is what tells all routes. Shortcuts are added before the first request is served.
func (e *Edge) Shortcut(method, before, after string, serve func(http.ResponseWriter, *http.Request, string)) {
	e.shortcuts = append(e.shortcuts, shortcut{method, before, after, serve})
}

// Rewrite changes a request before it is routed. It may set headers of the answer. An error is the answer.
type Rewrite func(w http.ResponseWriter, r *http.Request) (*http.Request, error)

// RewriteRegistry has every request for a path of the schema registry rewritten before it is routed. It is called
// before the first request is served.
func (e *Edge) RewriteRegistry(f Rewrite) { e.rewrite = f }

// shortcutFor finds the shortcut for a request and its parameter; nil if there is none. A path with encoded parts is
// left to the router.
func (e *Edge) shortcutFor(r *http.Request) (s *shortcut, param string) {
	if r.URL.RawPath != "" {
		return nil, ""
	}
	path := r.URL.Path
	for i := range e.shortcuts {
		s := &e.shortcuts[i]
		end := len(path) - len(s.after)
		fits := r.Method == s.method && end > len(s.before) && path[:len(s.before)] == s.before && path[end:] == s.after
		if !fits {
			continue
		}
		if param := path[len(s.before):end]; strings.IndexByte(param, '/') < 0 {
			return s, param
		}
	}
	return nil, ""
}

// OverLimit counts a refusal at a limit, under the limit's name, and returns it.
func (e *Edge) OverLimit(limit string, err *Error) *Error {
	e.metrics.refused.WithLabelValues(limit).Inc()
	return err
}

// LogFault logs an error whose cause is the server's own, and is silent about all others.
func (e *Edge) LogFault(ctx context.Context, err error) {
	if f := FromError(err); f.Fault == Internal {
		e.log.ErrorContext(ctx, "request failed", "err", err)
	}
}
