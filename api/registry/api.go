package registry

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"millrace/api"
	"millrace/client"
	"millrace/schemaregistry"
)

// Options are what an API is made of. Edge, Client and Registry are required; zero values of the others take the
// defaults.
type Options struct {
	Edge     *api.Edge
	Client   *client.Client
	Registry *schemaregistry.Registry

	// Forward serves a request on the node that leads a partition, and reports false where that is this node; nil: this
	// node serves all.
	Forward func(w http.ResponseWriter, r *http.Request, topic string, partition int32) bool

	// BodyBytes bounds a body with one schema; 4 MiB by default.
	BodyBytes int
	// CacheBytes bounds the encoded answers that are kept for consumers who ask for an id; 16 MiB by default.
	CacheBytes int

	Version string
	Commit  string
}

// API is the schema registry's API of one node. It is safe for concurrent use.
type API struct {
	edge     *api.Edge
	client   *client.Client
	registry *schemaregistry.Registry
	opts     Options

	types  [3][]string // values of Content-Type headers
	cache  cache       // encoded answers by id
	large  chan struct{}
	routes http.Handler // what Mount was given
}

// New makes an API. It does no I/O.
func New(o Options) *API {
	if o.BodyBytes == 0 {
		o.BodyBytes = 4 << 20
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 16 << 20
	}
	a := &API{edge: o.Edge, client: o.Client, registry: o.Registry, opts: o, cache: cache{most: o.CacheBytes}}
	a.large = make(chan struct{}, largeTurn)
	for i, t := range answerTypes() {
		a.types[i] = []string{t}
	}
	o.Edge.RewriteRegistry(a.enter)
	o.Edge.Shortcut(http.MethodGet, "/schemas/ids/", "", a.readByID)
	return a
}

// answerTypes are the media types of answers, the best first.
func answerTypes() [3]string {
	return [3]string{api.RegistryType, "application/vnd.schemaregistry+json", "application/json"}
}

// Mount adds the API's routes to r.
func (a *API) Mount(r chi.Router) {
	a.routes = r
	HandlerWithOptions(a, ChiServerOptions{
		BaseRouter: r, Middlewares: []MiddlewareFunc{a.admit, a.negotiate}, ErrorHandlerFunc: a.failParameter,
	})
}

// negotiate refuses clients that take none of the media types.
func (a *API) negotiate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.contentType(r) == nil {
			a.fail(w, r, errNotAcceptable())
			return
		}
		next.ServeHTTP(w, r)
	})
}

func errNotAcceptable() error {
	return api.RefuseCompat(http.StatusNotAcceptable, "HTTP 406 Not Acceptable: this API answers %s.", api.RegistryType)
}

// contentType is the value of the Content-Type header of the answer to r; nil if the client takes none of them.
func (a *API) contentType(r *http.Request) []string {
	offers := answerTypes()
	switch t := api.Negotiate(r.Header, offers[:]...); t {
	case offers[0]:
		return a.types[0]
	case offers[1]:
		return a.types[1]
	case offers[2]:
		return a.types[2]
	default:
		return nil
	}
}

// fail answers with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refused *schemaregistry.Error
	if errors.As(err, &refused) {
		if refused.Cause != nil && refused.Status() >= http.StatusInternalServerError {
			a.edge.LogFault(r.Context(), fmt.Errorf("schema registry: %s: %w", refused.Message, refused.Cause))
		}
		err = api.RefuseCompat(refused.Code, "%s", refused.Message)
	} else {
		a.edge.LogFault(r.Context(), err)
	}
	api.WriteCompat(w, api.ErrorFor(r, err), api.RegistryType)
}

// failParameter answers to a parameter that cannot be read: nothing is there if it stands in the path.
func (a *API) failParameter(w http.ResponseWriter, r *http.Request, err error) {
	name := ""
	var format *InvalidParamFormatError
	if errors.As(err, &format) {
		name = format.ParamName
	}
	if v := chi.URLParam(r, name); name != "" && v != "" {
		a.fail(w, r, api.RefuseCompat(http.StatusNotFound, "HTTP 404 Not Found: %s %.40q is not a number.", name, v))
		return
	}
	if name != "" {
		err = fmt.Errorf("the query parameter %s cannot be %.40q", name, r.URL.Query().Get(name))
	}
	a.fail(w, r, api.RefuseCompat(http.StatusBadRequest, "Bad Request: %v.", err))
}

// forwarded serves a write on the node that leads the registry's log, and reports whether it did.
func (a *API) forwarded(w http.ResponseWriter, r *http.Request) bool {
	if a.opts.Forward == nil || r.Header.Get("X-Forward") != "" {
		return false
	}
	return a.opts.Forward(w, r, a.registry.Topic(), 0)
}

// subject is the subject that a request for one goes to: what its alias names, or itself.
func (a *API) subject(r *http.Request, subject string) (string, error) {
	return a.registry.Alias(r.Context(), subject)
}

// ofSubject is subject for a parameter that may be absent, or name a context alone.
func (a *API) ofSubject(r *http.Request, subject *string) (*string, error) {
	if subject == nil || schemaregistry.ParseSubject(*subject).Name == "" {
		return subject, nil
	}
	name, err := a.subject(r, *subject)
	return &name, err
}

// is reports whether a boolean parameter is there and true.
func is(p *bool) bool { return p != nil && *p }

// text is a text that may be absent.
func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// page reads the parameters of a page. most is its greatest limit, and what a limit beyond it or below 1 stands for;
// 0 is none.
func page(offset, limit *int32, most int) (schemaregistry.Page, error) {
	p := schemaregistry.Page{Limit: most}
	if offset != nil {
		if *offset < 0 {
			return p, api.RefuseCompat(http.StatusBadRequest, "Bad Request: offset=%d is below 0.", *offset)
		}
		p.Offset = int(*offset)
	}
	if limit != nil && *limit > 0 && (most == 0 || int(*limit) <= most) {
		p.Limit = int(*limit)
	}
	return p, nil
}
