package server

import (
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"millrace/api"
)

// ConnectionLimit is how many connections a process is allowed.
var ConnectionLimit = connectionLimit

// MemberFault is what a client is told of an error of the quorum.
var MemberFault = memberFault

// Routes lists what a node serves, for the test that compares it with the contract.
func Routes(n *Node) chi.Routes { return n.api.Routes() }

// ServeGroups makes serve answer /v1/groups/{group}/..., on the node of the group's coordinator, and
// /v1/topics/{topic}/..., on the node that leads its partition 0, in place of all else. It comes before the first
// request.
func ServeGroups(n *Node, serve http.HandlerFunc) {
	n.api = api.NewRouter(n.edge, func(r chi.Router) {
		r.HandleFunc("/v1/groups/{group}/*", func(w http.ResponseWriter, r *http.Request) {
			group, err := url.PathUnescape(chi.URLParam(r, "group"))
			if err != nil || !n.edge.ForwardGroup(w, r, group) {
				serve(w, r)
			}
		})
		r.HandleFunc("/v1/topics/{topic}/*", func(w http.ResponseWriter, r *http.Request) {
			if !n.edge.ForwardPartition(w, r, chi.URLParam(r, "topic"), 0) {
				serve(w, r)
			}
		})
	})
}

// Authorize puts the cluster's credential on a request.
func Authorize(n *Node, r *http.Request) { n.credential.Set(r.Header) }
