package server

import (
	"net/http"
	"strings"

	"millrace/server/peer"
)

// The paths that nodes use among each other.
const (
	internalPrefix = "/internal/"
	raftPath       = internalPrefix + "raft"
	membershipPath = internalPrefix + "membership"
)

// internalHandler serves what nodes say to each other. Nothing of it answers without the cluster's credential, which
// is checked here, before anything is told about what exists.
func (n *Node) internalHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+raftPath, n.serveRaft)
	mux.HandleFunc("GET "+nodePath, n.serveIdentity)
	mux.Handle("POST "+peer.Path+"{key}", peer.NewHandler(peer.HandlerOptions{
		To: local{n}, Node: n.cfg.NodeID, Credential: n.credential, ClusterID: n.clusterID, Logger: n.log, Pool: n.pool,
	}))
	mux.HandleFunc("POST "+membershipPath, n.serveMembership)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !n.cfg.clustered():
			http.Error(w, "the node that answers is a cluster by itself: if it is to be one of several, start it with their "+
				"--voters and --cluster-secret-file", http.StatusUnauthorized)
		case !n.credential.Check(r):
			http.Error(w, "not the credential of this cluster: all its nodes need the same --cluster-secret-file",
				http.StatusUnauthorized)
		case isForwarded(r):
			n.serveForwarded(w, r)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// isInternal reports whether a request is between nodes.
func isInternal(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, internalPrefix) }
