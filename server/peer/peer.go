// Package peer carries Kafka's messages between the nodes of a cluster over HTTP.
//
// A Client is a kmsg.Requestor that sends each request to one node: POST /internal/kafka/{key}, the encoded request
// in the body, the encoded answer in the body of a 200. A Handler takes such requests and gives them to the node's
// own Requestor. One table pins the version of each key (Version). The node's server mounts the Handler and makes a
// Client for each other node; route and the broker's fetchers send through them.
//
// What a client may rely on:
//
//   - An error for which errors.Is(err, ErrNotSent) holds means that the peer did nothing. A handler acts only on a
//     request that arrived whole, and refuses before it acts. After any other error the outcome is unknown.
//   - The request's memory is the caller's again when Request returns. Record batches of a Fetch come from the arena
//     in ctx.
//   - The deadline of ctx travels with the request, as a duration: clocks of nodes need not agree. A request whose
//     caller has gone is cancelled on the peer.
//
// Every request carries the cluster's credential, and, so that a mistaken address does no harm, the cluster's id and
// the id of the node that is meant. A handler answers nothing but refusals to a request that lacks the credential.
package peer

import "errors"

// Path is the prefix under which a Handler is mounted; the number of the key follows.
const Path = "/internal/kafka/"

// The headers of a request.
const (
	headerCluster = "Millrace-Cluster" // id of the sender's cluster, where it knows it
	headerTo      = "Millrace-To"      // the node that is meant
	headerVersion = "Millrace-Version" // of the key
	headerTimeout = "Millrace-Timeout" // milliseconds that the sender waits; absent: it does not say
)

// ErrNotSent is wrapped by the errors of requests that the peer certainly did not act on: it could not be reached, the
// request did not arrive whole, or it was refused.
var ErrNotSent error = notSent{}

type notSent struct{}

func (notSent) Error() string { return "the request did not reach the node" }

// NotSent marks the error for packages that do not know this one.
func (notSent) NotSent() bool { return true }

// errTooLarge is why a body is not read.
var errTooLarge = errors.New("larger than nodes send each other")
