package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
	"millrace/server/peer"
	"millrace/server/quorum"
)

// dialTimeout bounds the opening of a connection to another node.
const dialTimeout = 3 * time.Second

// peers reaches the other nodes of the cluster, each under the address that it registered or, before that, under
// the one that the quorum knows. It keeps one client a node and one pool of connections for all.
type peers struct {
	node      *Node
	dialer    net.Dialer
	transport *http.Transport
	fetches   *peer.Direct

	// controller is the node that leads the quorum as others said when this one had no part in it any more.
	controller atomic.Pointer[int32]

	mu      sync.Mutex
	clients map[int32]known // guarded by mu
}

// known is a client and the address it was made for.
type known struct {
	url    string
	client *peer.Client
}

func newPeers(n *Node) *peers {
	p := &peers{node: n, dialer: net.Dialer{Timeout: dialTimeout}, clients: make(map[int32]known)}
	p.transport = &http.Transport{
		DialContext:         p.dialKept,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}
	p.fetches = &peer.Direct{Dial: p.dial}
	return p
}

// dial opens a connection and gives up after dialTimeout, whatever the caller allows.
func (p *peers) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if dial := p.node.cfg.Dial; dial != nil {
		return dial(ctx, network, address)
	}
	return p.dialer.DialContext(ctx, network, address)
}

// dialKept opens a connection that is kept for one request after another.
func (p *peers) dialKept(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return keep(conn), nil
}

// dialURL opens a connection to the port of a base URL.
func (p *peers) dialURL(ctx context.Context, base string) (net.Conn, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	port, err := portOf(u)
	if err != nil {
		return nil, err
	}
	return p.dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), strconv.Itoa(int(port))))
}

// requestor is the way to another node; nil where no address of it is known.
func (p *peers) requestor(id int32) kmsg.Requestor {
	base := p.url(id)
	if base == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.clients[id]; k.url == base {
		return k.client
	}
	k := known{url: base, client: peer.NewClient(peer.ClientOptions{
		Node: id, URL: base, Transport: p.transport, Fetches: p.fetches, Credential: p.node.credential,
		ClusterID: p.node.clusterID, Pool: p.node.pool,
	})}
	p.clients[id] = k
	return k.client
}

// url is the base URL of a node, "" when none is known.
func (p *peers) url(id int32) string {
	if b := p.node.machine.Image().Broker(id); b != nil {
		if base := internalURL(b); base != "" {
			return base
		}
	}
	for _, v := range p.node.memberAddresses() {
		if v.ID == id {
			return v.Address
		}
	}
	return ""
}

// internalEndpoint is the name of the endpoint under which nodes reach a broker. Clients are told the others.
const internalEndpoint = "internal"

// internalURL is where other nodes reach a broker.
func internalURL(b *metadata.Broker) string {
	for _, e := range b.Endpoints {
		if e.Name == internalEndpoint {
			return "http://" + net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
		}
	}
	return ""
}

// probe looks whether the process that registered a broker still listens on its port.
func (p *peers) probe(ctx context.Context, b *metadata.Broker) error {
	base := internalURL(b)
	if base == "" {
		return errors.New("the broker has no address for other nodes")
	}
	who, err := p.node.ask(ctx, base+nodePath)
	switch {
	case err != nil:
		return err
	case who.NodeID != b.ID || who.Incarnation != nameOf(b.Incarnation):
		return fmt.Errorf("another process answers at %s: %w", base, syscall.ECONNREFUSED)
	}
	return nil
}

// close gives up all connections that no request uses.
func (p *peers) close() {
	p.fetches.Close()
	p.transport.CloseIdleConnections()
}

// memberAddresses lists what is known of the quorum's members: what was agreed on, else the founding voters.
func (n *Node) memberAddresses() []quorum.Voter {
	members, err := n.quorum.Members()
	if err != nil || len(members) == 0 {
		return n.cfg.Voters
	}
	out := make([]quorum.Voter, len(members))
	for i, m := range members {
		out[i] = quorum.Voter{ID: m.ID, Address: m.Address}
	}
	return out
}

// clusterID is the id of the cluster as far as this node knows it: by its metadata, else by its data directory.
func (n *Node) clusterID() string {
	if id := n.machine.Image().ClusterID; id != "" {
		return id
	}
	if m, ok := n.dir.Meta(); ok {
		return m.ClusterID
	}
	return ""
}
