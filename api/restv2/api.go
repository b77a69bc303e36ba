package restv2

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"millrace/api"
	"millrace/client"
	"millrace/consumer"
	"millrace/schemaregistry/serde"
)

// The media types of this API.
const (
	genericType = "application/vnd.kafka.v2+json"
	jsonType    = "application/vnd.kafka.json.v2+json"
	binaryType  = "application/vnd.kafka.binary.v2+json"

	avroType       = "application/vnd.kafka.avro.v2+json"
	jsonSchemaType = "application/vnd.kafka.jsonschema.v2+json"
	protobufType   = "application/vnd.kafka.protobuf.v2+json"
)

// Options are the settings of an API; zero values take the defaults.
type Options struct {
	// AckTimeout is how long a partition's leader waits for its followers; 30 s by default.
	AckTimeout time.Duration

	// Serde translates keys and values that have schemas; nil: there is no registry, and their formats are refused.
	Serde *serde.Serde
	// Keyed serves requests that come with an Idempotency-Key; nil: the header is passed over.
	Keyed api.Keyed

	// Members are the members of groups that consumer instances are; nil: the server has no instances.
	Members *consumer.Members
	// RequestTimeout is how long a read of an instance waits that does not say; 1 s by default.
	RequestTimeout time.Duration
	// RequestMaxBytes bounds the keys and values of a read; 64 MiB by default.
	RequestMaxBytes int64
	// InstanceTimeout is how long an instance lives without a call; 5 min by default.
	InstanceTimeout time.Duration
	// FetchMinBytes is what a read waits for; by default -1: the first record.
	FetchMinBytes int64
}

// API is the REST Proxy's API version 2 of one node. It is safe for concurrent use.
type API struct {
	edge   *api.Edge
	client *client.Client
	opts   Options

	contentType []string      // the value of every answer's Content-Type header
	idle        chan *produce // requests whose memory can be used again
	writing     atomic.Int64  // bytes of records that are being sent
}

// New makes an API that reaches the cluster through c. It does no I/O.
func New(e *api.Edge, c *client.Client, o Options) *API {
	if o.AckTimeout == 0 {
		o.AckTimeout = 30 * time.Second
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = time.Second
	}
	if o.RequestMaxBytes == 0 {
		o.RequestMaxBytes = 64 << 20
	}
	if o.InstanceTimeout == 0 {
		o.InstanceTimeout = 5 * time.Minute
	}
	if o.FetchMinBytes == 0 {
		o.FetchMinBytes = -1
	}
	a := &API{
		edge: e, client: c, opts: o, contentType: []string{genericType}, idle: make(chan *produce, idleProduces),
	}
	e.Shortcut(http.MethodPost, "/topics/", "", func(w http.ResponseWriter, r *http.Request, topic string) {
		a.produce(w, r, destination{topic, client.AnyPartition})
	})
	return a
}

// Mount adds the API's routes to r.
func (a *API) Mount(r chi.Router) {
	strict := NewStrictHandlerWithOptions(a, []StrictMiddlewareFunc{negotiate}, StrictHTTPServerOptions{
		RequestErrorHandlerFunc: a.fail, ResponseErrorHandlerFunc: a.fail,
	})
	HandlerWithOptions(strict, ChiServerOptions{BaseRouter: r, ErrorHandlerFunc: a.failParameter})
	r.Post("/topics/{topic}", a.produceToTopic)
	r.Post("/topics/{topic}/partitions/{partition}", a.produceToPartition)
	a.mountConsumers(r)
}

// negotiate refuses clients that take no JSON.
func negotiate(next StrictHandlerFunc, _ string) StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		if err := acceptable(r); err != nil {
			return nil, err
		}
		return next(ctx, w, r, request)
	}
}

// acceptable refuses a request whose Accept header excludes what this API answers. Plain JSON will do.
func acceptable(r *http.Request) error {
	if api.Negotiate(r.Header, genericType, "application/json") == "" {
		return api.RefuseCompat(http.StatusNotAcceptable,
			"HTTP 406 Not Acceptable: this API answers %s.", genericType)
	}
	return nil
}

func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	a.edge.LogFault(r.Context(), err)
	api.WriteCompat(w, api.ErrorFor(r, err), genericType)
}

// failParameter answers to a partition in a path that is not a number: there is no such partition.
func (a *API) failParameter(w http.ResponseWriter, r *http.Request, err error) {
	var format *InvalidParamFormatError
	if errors.As(err, &format) {
		a.fail(w, r, errNotANumber(format.ParamName, chi.URLParam(r, format.ParamName)))
		return
	}
	a.fail(w, r, api.RefuseCompat(http.StatusBadRequest, "Bad Request: %v", err))
}
