package server

import (
	"github.com/go-chi/chi/v5"

	"millrace/api"
	rest "millrace/api/connectors"
)

// connectAPI gives the routes of connectors, none where the node runs no worker.
func (n *Node) connectAPI(edge *api.Edge) api.Mount {
	if n.connect.worker == nil {
		return func(chi.Router) {}
	}
	return rest.New(rest.Options{Edge: edge, Worker: n.connect.worker, Loggers: n.levels}).Mount
}
