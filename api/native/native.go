// Package native is the API under /v1: made for curl and for programs without a client library.
//
// It owns what DESIGN.md says of produce, consume and topics on /v1, as openapi.yaml spells it out. The
// routes that manage things are generated from that file; the two hot ones, produce and consume, read and
// write HTTP themselves. All data comes and goes through package client, so the package serves our own
// cluster, a test double or a foreign one alike. It promises that nothing of a body is stored before the
// whole of it is known to be good, and that every refusal is a problem with a number from package api's
// table.
package native

//go:generate go tool oapi-codegen -config oapi.yaml ../../openapi.yaml

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"millrace/api"
	"millrace/client"
	members "millrace/consumer"
	"millrace/schemaregistry/serde"
)

// Options are what a Server is made of. Edge and Client are required.
type Options struct {
	Edge   *api.Edge
	Client *client.Client
	// ProduceTimeout is how long a partition's leader waits for its followers; 30 s by default.
	ProduceTimeout time.Duration
	// Members are the members of groups that this server runs; by default some of its own, which no other node
	// takes over.
	Members *members.Members
	// Keys remembers requests that come with an Idempotency-Key. Without it a produce is remembered by the
	// partitions it wrote to, and other requests with a key are refused.
	Keys *client.Keys
	// KeyIndexBytes bounds the memory of the indexes by which keys are read; 64 MiB by default.
	KeyIndexBytes int64
	// Serde translates keys and values that have schemas; nil: there is no schema registry.
	Serde *serde.Serde
	// Node is the name of this server among all that serve the cluster, for AbortLeft.
	Node string
	// Membership tells and changes the members of the metadata quorum. Without it that part of the API answers 503.
	Membership Membership
}

// Server serves /v1. It is safe for concurrent use.
type Server struct {
	edge        *api.Edge
	client      *client.Client
	membership  Membership
	producer    *producer
	consumer    *consumer
	workers     *workers
	keyed       *keyed
	txns        *transactions
	idempotency *idempotency
}

// New makes a Server. It does no I/O; Close ends what it starts later.
func New(o Options) *Server {
	if o.ProduceTimeout <= 0 {
		o.ProduceTimeout = 30 * time.Second
	}
	s := &Server{
		edge: o.Edge, client: o.Client, membership: o.Membership,
		producer: newProducer(o),
		consumer: newConsumer(o.Edge, o.Client, o.Serde),
	}
	s.idempotency = &idempotency{edge: o.Edge, store: o.Keys}
	s.workers = newWorkers(s.consumer, o.Members, s.idempotency)
	s.keyed = newKeyed(o, s.consumer)
	s.txns = newTransactions(o, s.producer)
	s.producer.keys = s.idempotency
	o.Edge.Shortcut(http.MethodPost, "/v1/topics/", "/records", s.producer.serve)
	return s
}

// Mount adds the routes of /v1 to r.
func (s *Server) Mount(r chi.Router) {
	fail := s.edge.Fail
	strict := NewStrictHandlerWithOptions(s, []StrictMiddlewareFunc{knownQuery}, StrictHTTPServerOptions{
		RequestErrorHandlerFunc: fail, ResponseErrorHandlerFunc: fail,
	})
	HandlerWithOptions(strict, ChiServerOptions{
		BaseRouter: r, ErrorHandlerFunc: s.failParameter,
		Middlewares: []MiddlewareFunc{s.bodies, s.idempotency.middleware},
	})
	r.Post("/v1/topics/{topic}/records", s.producer.routed)
	s.consumer.routes(r)
	s.workers.routes(r)
	s.keyed.routes(r)
	s.txns.routes(r, s.idempotency)
}

// Close ends the live streams and returns when nothing of them runs any more.
func (s *Server) Close() {
	s.workers.close()
	s.consumer.close()
}

// Keyed is an api.Keyed for the other APIs of this server.
func (s *Server) Keyed(route api.KeyedRoute, next http.HandlerFunc) http.HandlerFunc {
	kind := never
	if route.Again {
		kind = again
	}
	return s.idempotency.wrapFor(kind, route.Fail, next)
}

// AbortLeft aborts the transactions of one request each that an earlier run of this server has left open, so that
// readers need not wait until their time is over, and tells how many these were. It may take as long as that time.
// Without a name of the server there is nothing that it could know of.
func (s *Server) AbortLeft(ctx context.Context) (int, error) { return s.txns.abortLeft(ctx) }

// failParameter answers for a parameter that the generated code could not read.
func (s *Server) failParameter(w http.ResponseWriter, r *http.Request, err error) {
	refusal := api.Refuse(api.InvalidParameter, "%v", err)
	var format *InvalidParamFormatError
	if errors.As(err, &format) {
		name, want, value := format.ParamName, "something else", r.URL.Query().Get(format.ParamName)
		switch name {
		case "internal", "validate_only", "lag":
			want = "true or false"
		case "limit":
			want = "a whole number from 1 to " + strconv.Itoa(maxLimit)
		case "member_id", "broker_id", "partition":
			want, value = "a whole number", api.PathParam(r, name)
		}
		refusal = api.BadParameter(name, value, want)
	}
	s.edge.Fail(w, r, refusal)
}

// bodies is a middleware that reads JSON bodies within the limits, but of the operations that have none.
func (s *Server) bodies(next http.Handler) http.Handler {
	read := s.edge.JSONBodies(s.edge.Fail)(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch chi.RouteContext(r.Context()).RoutePattern() {
		case "/v1/cluster/members/{member_id}/promote", "/v1/cluster/members/{member_id}/demote":
			next.ServeHTTP(w, r)
		default:
			read.ServeHTTP(w, r)
		}
	})
}

// ListErrors lists the catalogue.
func (s *Server) ListErrors(_ context.Context, req ListErrorsRequestObject) (ListErrorsResponseObject, error) {
	out := ListErrors200JSONResponse{Items: []ErrorEntry{}}
	for _, f := range api.Catalogue() {
		if req.Params.Name != nil && *req.Params.Name != f.Name {
			continue
		}
		e := ErrorEntry{
			Name: f.Name, Status: int32(f.Status), ErrorCode: int32(f.Code), Title: f.Title,
			Retryable: f.Retryable, Outcome: Outcome(f.Outcome), Advice: f.Advice,
		}
		if f.Kafka != 0 {
			code := int32(f.Kafka)
			e.KafkaCode = &code
		}
		out.Items = append(out.Items, e)
	}
	if req.Params.Name != nil && len(out.Items) == 0 {
		return nil, api.Refuse(api.NotFound, "no error has the name %q", *req.Params.Name)
	}
	return out, nil
}
