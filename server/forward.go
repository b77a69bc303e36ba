package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/client"
	"millrace/server/metadata"
)

// The members of a group that this server runs for HTTP clients live on the node of the group's coordinator, and the
// schema registry writes on the node that leads its log. A request for one that comes to another node is sent on, once,
// as it is: to forwardPath and the public path, with the cluster's credential. The node there serves it by the public
// API and sends it nowhere.

// forwardPath is the prefix under which nodes take requests of each other's clients.
const forwardPath = internalPrefix + "http"

// The headers that carry what the credential and the connection between nodes hide.
const (
	headerClient        = "Millrace-Client"        // the client's address
	headerAuthorization = "Millrace-Authorization" // the client's own Authorization
)

const (
	forwardBudget = 15 * time.Second // to find the node, and again when it is not there
	forwardPause  = 50 * time.Millisecond
	forwardKept   = 64 << 10 // bytes of a body that is kept to be sent again
)

// forwardedKey marks the context of a request that another node has sent on.
type forwardedKey struct{}

// forward implements api.Forward.
func (n *Node) forward(w http.ResponseWriter, r *http.Request, to api.Target) (done bool, err error) {
	if !n.cfg.clustered() || r.Context().Value(forwardedKey{}) != nil || to == (api.Target{}) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), forwardBudget)
	defer cancel()
	var kept []byte // the body, where that is small
	for {
		node := n.homeOf(ctx, to)
		base := n.baseOf(node)
		if base == nil || node == n.cfg.NodeID {
			return false, r.Context().Err()
		}
		if kept == nil {
			if kept, err = keepBody(r); err != nil {
				return false, err
			}
		}
		a := &forwarding{node: n, base: base}
		a.serve(w, r)
		if kept != nil {
			r.Body, _ = r.GetBody() // it cannot fail
		}
		safe := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case a.err == nil:
			return true, nil
		case r.Context().Err() != nil:
			return false, fmt.Errorf("%w: %w", client.ErrNoAnswer, context.Cause(r.Context()))
		case a.sent.Load() && !safe:
			return false, fmt.Errorf("%w: node %d, %s: %w", client.ErrNoAnswer, node, describeTarget(to), a.err)
		}
		if pause(ctx, forwardPause) != nil {
			return false, r.Context().Err()
		}
	}
}

// keepBody keeps a small body, so that it can be sent again where it cannot have been read. It is nil for another one.
func keepBody(r *http.Request) ([]byte, error) {
	if r.ContentLength <= 0 || r.ContentLength > forwardKept {
		return nil, nil
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody() // it cannot fail
	return body, nil
}

// baseOf is where a node answers other nodes, nil for a node without an address.
func (n *Node) baseOf(node int32) *url.URL {
	if node == metadata.NoLeader {
		return nil
	}
	base, err := url.Parse(n.peers.url(node))
	if err != nil || base.Host == "" {
		return nil
	}
	return base
}

// homeOf is the node that a target is at home on, NoLeader where nobody says so in time.
func (n *Node) homeOf(ctx context.Context, to api.Target) int32 {
	if to.Group != "" {
		return n.coordinatorOf(ctx, to.Group)
	}
	t := n.machine.Image().Topic(to.Topic)
	if t == nil || int(to.Partition) >= len(t.Partitions) {
		return metadata.NoLeader
	}
	return t.Partitions[to.Partition].Leader
}

func describeTarget(to api.Target) string {
	if to.Group != "" {
		return fmt.Sprintf("which coordinates group %q", to.Group)
	}
	return fmt.Sprintf("which leads %s-%d", to.Topic, to.Partition)
}

// coordinatorOf is the node that coordinates a group, NoLeader when nobody says so in time.
func (n *Node) coordinatorOf(ctx context.Context, group string) int32 {
	if t := n.machine.Image().Topic(metadata.GroupTopic); t != nil {
		leader := t.Partitions[metadata.CoordinatorPartition(group, int32(len(t.Partitions)))].Leader
		if leader != metadata.NoLeader {
			return leader
		}
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{group}
	resp, err := req.RequestWith(ctx, n.router)
	if err != nil || len(resp.Coordinators) != 1 || resp.Coordinators[0].ErrorCode != 0 {
		return metadata.NoLeader
	}
	return resp.Coordinators[0].NodeID
}

// forwarding is one try to send a request on.
type forwarding struct {
	node *Node
	base *url.URL
	sent atomic.Bool // the other node may have acted on the request
	err  error       // why there is no answer; nothing has been written then
}

func (f *forwarding) serve(w http.ResponseWriter, r *http.Request) {
	proxy := httputil.ReverseProxy{
		Rewrite:       f.rewrite,
		Transport:     f.node.peers.transport,
		FlushInterval: -1, // at once: streams and long polls wait for nothing
		ErrorLog:      slog.NewLogLogger(f.node.log.Handler(), slog.LevelDebug),
		ModifyResponse: func(resp *http.Response) error {
			if resp.Header.Get(headerClient) == "" {
				f.sent.Store(false)
				return fmt.Errorf("it refused with status %d", resp.StatusCode)
			}
			resp.Header.Del(headerClient)
			for name := range resp.Header { // what both nodes set is said once
				w.Header().Del(name)
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { f.err = err },
	}
	// The transport tries again by itself what it has written nothing of, as to a node that has closed the connection,
	// and whatever has a key.
	keyed := r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
	trace := &httptrace.ClientTrace{
		GetConn: func(string) {
			if !keyed {
				f.sent.Store(false)
			}
		},
		WroteHeaders: func() { f.sent.Store(true) },
	}
	proxy.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// rewrite makes the request as the other node gets it. The client's own headers go along, but for those of the
// connection, and for those by which this node has judged where the request comes from.
func (f *forwarding) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	out.URL.Scheme, out.URL.Host = f.base.Scheme, f.base.Host
	out.URL.Path = forwardPath + in.URL.Path
	if out.URL.RawPath = ""; in.URL.RawPath != "" {
		out.URL.RawPath = forwardPath + in.URL.RawPath
	}
	out.URL.RawQuery = in.URL.RawQuery
	out.Host = in.Host
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
		if v := in.Header[name]; v != nil {
			out.Header[name] = v
		}
	}
	for _, name := range []string{"Connection", "Upgrade", "Expect", "Origin", "Sec-Fetch-Site"} {
		out.Header.Del(name)
	}
	for name := range out.Header {
		if strings.HasPrefix(name, "Millrace-") {
			delete(out.Header, name)
		}
	}
	out.Header.Set(headerClient, in.RemoteAddr)
	if own := in.Header.Get("Authorization"); own != "" {
		out.Header.Set(headerAuthorization, own)
	}
	f.node.credential.Set(out.Header)
}

// isForwarded reports whether a request between nodes is one that a client has sent to the other.
func isForwarded(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, forwardPath+"/") }

// serveForwarded answers a request that another node has sent on, as if the client had sent it here. The credential has
// been checked.
func (n *Node) serveForwarded(w http.ResponseWriter, r *http.Request) {
	own := r.WithContext(context.WithValue(r.Context(), forwardedKey{}, true))
	u := *r.URL
	u.Path = strings.TrimPrefix(u.Path, forwardPath)
	u.RawPath = strings.TrimPrefix(u.RawPath, forwardPath)
	own.URL, own.RequestURI = &u, strings.TrimPrefix(r.RequestURI, forwardPath)
	own.Header = r.Header.Clone()
	own.Header.Del("Authorization")
	if v := own.Header.Get(headerAuthorization); v != "" {
		own.Header.Set("Authorization", v)
	}
	if v := own.Header.Get(headerClient); validAddress(v) {
		own.RemoteAddr = v
	}
	own.Header.Del(headerAuthorization)
	own.Header.Del(headerClient)
	w.Header().Set(headerClient, "served") // tells an answer of the API from a refusal of this node
	n.api.ServeHTTP(w, own)
}

func validAddress(a string) bool {
	_, _, err := net.SplitHostPort(a)
	return err == nil
}
