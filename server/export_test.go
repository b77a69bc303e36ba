package server

import (
	"github.com/go-chi/chi/v5"
)

// ConnectionLimit is how many connections a process is allowed.
var ConnectionLimit = connectionLimit

// MemberFault is what a client is told of an error of the quorum.
var MemberFault = memberFault

// Routes lists what a node serves, for the test that compares it with the contract.
func Routes(n *Node) chi.Routes { return n.api.Routes() }
