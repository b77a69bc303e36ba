package restv3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"millrace/api"
	"millrace/client"
	"millrace/schemaregistry/serde"
)

// jsonType is the one media type of this API, both ways.
const jsonType = "application/json"

// Options are the settings of an API that a client can notice; zero values take the defaults.
type Options struct {
	// BatchEntries bounds the entries of one records:batch call; 10 by default.
	BatchEntries int
	// RecordBytes bounds one record object of a stream as sent; 16 MiB by default.
	RecordBytes int
	// StreamDuration is how long one stream of records may stay open; 24 h by default.
	StreamDuration time.Duration
	// AckTimeout is how long a partition's leader waits for its followers; 30 s by default.
	AckTimeout time.Duration
	// Keyed serves topic creations that come with an Idempotency-Key; nil: the header is passed over.
	Keyed api.Keyed
	// Serde translates keys and values that have schemas; nil: there is no registry, and they are refused.
	Serde *serde.Serde
}

func (o *Options) setDefaults() {
	if o.BatchEntries == 0 {
		o.BatchEntries = 10
	}
	if o.RecordBytes == 0 {
		o.RecordBytes = 16 << 20
	}
	if o.StreamDuration == 0 {
		o.StreamDuration = 24 * time.Hour
	}
	if o.AckTimeout == 0 {
		o.AckTimeout = 30 * time.Second
	}
}

// API is the REST Proxy's API version 3 of one node. It is safe for concurrent use.
type API struct {
	edge   *api.Edge
	client *client.Client
	opts   Options
	idle   chan *stream // streams whose memory can be used again
}

// New makes an API that reaches the cluster through c. It does no I/O.
func New(e *api.Edge, c *client.Client, o Options) *API {
	o.setDefaults()
	return &API{edge: e, client: c, opts: o, idle: make(chan *stream, idleStreams)}
}

// Mount adds the API's routes to r, under both of its prefixes.
func (a *API) Mount(r chi.Router) {
	strict := NewStrictHandlerWithOptions(a, []StrictMiddlewareFunc{a.enter}, StrictHTTPServerOptions{
		RequestErrorHandlerFunc: a.fail, ResponseErrorHandlerFunc: a.fail,
	})
	for _, prefix := range []string{"", "/kafka"} {
		HandlerWithOptions(strict, ChiServerOptions{
			BaseURL: prefix, BaseRouter: r, ErrorHandlerFunc: a.failParameter, Middlewares: []MiddlewareFunc{a.keyed},
		})
		r.Post(prefix+"/v3/clusters/{cluster_id}/topics/{topic_name}/records", a.produceRecords)
	}
}

// keyed serves the creation of topics, of which each with an Idempotency-Key is done once.
func (a *API) keyed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, keyed := r.Header[api.IdempotencyKey]
		creates := r.Method == http.MethodPost &&
			strings.HasSuffix(chi.RouteContext(r.Context()).RoutePattern(), "/clusters/{cluster_id}/topics")
		if !keyed || !creates || a.opts.Keyed == nil {
			next.ServeHTTP(w, r)
			return
		}
		a.opts.Keyed(api.KeyedRoute{Again: true, Fail: a.fail}, next.ServeHTTP)(w, r)
	})
}

// call is what a handler of the strict server needs of its request beyond the parameters.
type call struct {
	links links
	w     http.ResponseWriter
	r     *http.Request
}

type callKey struct{}

func linksFrom(ctx context.Context) links { return ctx.Value(callKey{}).(*call).links }

// enter does what every operation of the strict server needs first: it refuses clients that take no
// JSON and calls for another cluster, and gives the handler the form of its links.
func (a *API) enter(next StrictHandlerFunc, operation string) StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		if err := acceptsJSON(r); err != nil {
			return nil, err
		}
		l := links{root: a.root(r), cluster: api.PathParam(r, "cluster_id")}
		if l.cluster != "" && operation != "ProduceKafkaRecordsBatch" {
			cluster, err := a.client.Cluster(ctx)
			if err != nil {
				return nil, err
			}
			if cluster.ID != l.cluster {
				return nil, api.RefuseCompat(http.StatusNotFound, "Cluster %s cannot be found.", l.cluster)
			}
		}
		return next(context.WithValue(ctx, callKey{}, &call{links: l, w: w, r: r}), w, r, request)
	}
}

func acceptsJSON(r *http.Request) error {
	if api.Negotiate(r.Header, jsonType) == "" {
		return api.RefuseCompat(http.StatusNotAcceptable, "HTTP 406 Not Acceptable: this API answers %s only.", jsonType)
	}
	return nil
}

// root is the address of the API as the client sees it, with the prefix of the request's path.
func (a *API) root(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/kafka/") {
		return a.edge.BaseURL(r) + "/kafka/v3"
	}
	return a.edge.BaseURL(r) + "/v3"
}

func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	a.edge.LogFault(r.Context(), err)
	api.WriteCompat(w, api.ErrorFor(r, err), jsonType)
}

// failParameter answers to a parameter that cannot be read: no such resource if it stands in the path.
func (a *API) failParameter(w http.ResponseWriter, r *http.Request, err error) {
	name := ""
	var format *InvalidParamFormatError
	if errors.As(err, &format) {
		name = format.ParamName
	}
	if v := chi.URLParam(r, name); name != "" && v != "" {
		a.fail(w, r, api.RefuseCompat(http.StatusNotFound, "HTTP 404 Not Found: %s %q is not a number.", name, v))
		return
	}
	if name != "" {
		err = fmt.Errorf("the query parameter %s cannot be %.40q", name, r.URL.Query().Get(name))
	}
	a.fail(w, r, api.RefuseCompat(http.StatusBadRequest, "Bad Request: %v.", err))
}
