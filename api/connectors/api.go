package connectors

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"millrace/api"
	"millrace/connect"
)

// Options are what an API is made of.
type Options struct {
	Edge    *api.Edge
	Worker  *connect.Worker
	Loggers *connect.Loggers // of this node
}

// API is the API of connectors of one node. It is safe for concurrent use.
type API struct {
	edge    *api.Edge
	worker  *connect.Worker
	loggers *connect.Loggers

	health health
}

// New makes an API. It does no I/O.
func New(o Options) *API { return &API{edge: o.Edge, worker: o.Worker, loggers: o.Loggers} }

// Mount adds the API's routes to r.
func (a *API) Mount(r chi.Router) {
	HandlerWithOptions(a, ChiServerOptions{
		BaseRouter: r, Middlewares: []MiddlewareFunc{a.negotiate}, ErrorHandlerFunc: a.failParameter,
	})
}

const jsonType = "application/json"

// negotiate refuses clients that do not take JSON.
func (a *API) negotiate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api.Negotiate(r.Header, jsonType) == "" {
			a.fail(w, r, api.RefuseCompat(http.StatusNotAcceptable, "HTTP 406 Not Acceptable: this API answers %s.", jsonType))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fail answers with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refused *connect.Error
	if errors.As(err, &refused) {
		if refused.Cause != nil && refused.Status >= http.StatusInternalServerError {
			a.edge.LogFault(r.Context(), fmt.Errorf("connectors: %s: %w", refused.Message, refused.Cause))
		}
		err = api.RefuseCompat(refused.Status, "%s", refused.Message)
	} else {
		a.edge.LogFault(r.Context(), err)
	}
	api.WriteConnect(w, api.ErrorFor(r, err))
}

// failParameter answers to a parameter that cannot be read: nothing is there if it stands in the path.
func (a *API) failParameter(w http.ResponseWriter, r *http.Request, err error) {
	name := ""
	var format *InvalidParamFormatError
	if errors.As(err, &format) {
		name = format.ParamName
	}
	if v := chi.URLParam(r, name); name != "" && v != "" {
		a.fail(w, r, api.RefuseCompat(http.StatusNotFound, "HTTP 404 Not Found: %s %.40q cannot be one.", name, v))
		return
	}
	if name != "" {
		err = fmt.Errorf("the query parameter %s cannot be %.40q", name, r.URL.Query().Get(name))
	}
	a.fail(w, r, api.RefuseCompat(http.StatusBadRequest, "Bad Request: %v.", err))
}

// answer answers with v, or with err if there is one.
func (a *API) answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	a.answerAs(w, r, http.StatusOK, v, err)
}

func (a *API) answerAs(w http.ResponseWriter, r *http.Request, status int, v any, err error) {
	if err != nil {
		a.fail(w, r, err)
		return
	}
	body, err := marshal(v)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// done answers with a status and no body, or with err if there is one.
func (a *API) done(w http.ResponseWriter, r *http.Request, status int, err error) {
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.WriteHeader(status)
}
