package servertest

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/connect/plugin"
	"millrace/server"
	"millrace/server/quorum"
)

// ClusterOptions say what is not as usual about a cluster.
type ClusterOptions struct {
	// Nodes is the number of nodes; 0 means 3. Up to three of them are voters.
	Nodes int
	// Broker are broker settings, for tests that may not know package server.
	Broker map[string]string
	// Connectors are classes of connectors, for such tests too.
	Connectors []plugin.Class
	// Uncoded leaves out the encoding of every message, for measurements.
	Uncoded bool
	// Wrap is put around the cluster as a node's APIs see it.
	Wrap func(node int, r kmsg.Requestor) kmsg.Requestor
	// Change is called with the config of each node before each of its starts.
	Change func(*server.Config)
	// Seed seeds the nodes' chance; 0 means 1.
	Seed uint64
}

// Cluster is some nodes under test, on loopback ports and in real folders, with ids from 1.
type Cluster struct {
	t       testing.TB
	opts    ClusterOptions
	voters  []quorum.Voter
	members []*member
	// Client is an HTTP client of its own, closed with the cluster.
	Client *http.Client
}

// member is one node of the cluster, running or not.
type member struct {
	hold    hold // of its port, for as long as the cluster lasts
	address string
	dir     string
	starts  uint64
	node    *server.Node // nil while stopped
}

// StartCluster starts a cluster and waits until all its nodes are ready. It is closed when the test ends.
func StartCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	c := &Cluster{t: t, opts: o, Client: &http.Client{Transport: &http.Transport{}}}
	root := t.TempDir()
	t.Cleanup(c.close)
	var listeners []net.Listener
	for i := range o.Nodes {
		h, err := holdPort()
		require.NoError(t, err)
		l, err := net.Listen("tcp", h.address())
		require.NoError(t, err)
		listeners = append(listeners, l)
		c.members = append(c.members, &member{
			hold: h, address: h.address(), dir: filepath.Join(root, "node-"+strconv.Itoa(i+1)),
		})
		if i < 3 {
			c.voters = append(c.voters, quorum.Voter{ID: int32(i + 1), Address: "http://" + h.address()})
		}
	}
	if o.Nodes == 2 {
		c.voters = c.voters[:1]
	}
	for i := range o.Nodes {
		c.start(i+1, listeners[i])
	}
	c.AwaitReady()
	return c
}

// start starts a node. Without a listener it listens on its port itself.
func (c *Cluster) start(id int, l net.Listener) {
	c.t.Helper()
	m := c.members[id-1]
	cfg := server.DefaultConfig()
	cfg.NodeID, cfg.Listen, cfg.Listener, cfg.DataDir = int32(id), m.address, l, m.dir
	cfg.Voters, cfg.ClusterSecret = c.voters, []byte("the secret of a test")
	cfg.Rand = rand.New(rand.NewPCG(c.opts.Seed+uint64(id)<<32, m.starts))
	m.starts++
	cfg.DrainTimeout = 5 * time.Second
	cfg.Logger = slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("at", id)
	cfg.Fatal = func(err error) { c.t.Errorf("node %d cannot go on: %v", id, err) }
	if !c.opts.Uncoded {
		cfg.Wrap = func(r kmsg.Requestor) kmsg.Requestor { return Coded(c.t, r) }
	}
	if c.opts.Wrap != nil {
		inner := cfg.Wrap
		cfg.Wrap = func(r kmsg.Requestor) kmsg.Requestor {
			if inner != nil {
				r = inner(r)
			}
			return c.opts.Wrap(id, r)
		}
	}
	cfg.Connectors, cfg.RegistryLimits.FreshWait = c.opts.Connectors, freshWait
	if c.opts.Broker != nil {
		cfg.Broker = maps.Clone(c.opts.Broker)
	}
	if c.opts.Change != nil {
		c.opts.Change(&cfg)
	}
	node, err := server.Open(cfg)
	require.NoError(c.t, err)
	m.node = node
}

// AwaitReady waits until all running nodes have joined.
func (c *Cluster) AwaitReady() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for id, m := range c.members {
		if m.node != nil {
			require.NoError(c.t, m.node.AwaitReady(ctx), "node %d", id+1)
		}
	}
}

// URL is where a node's API answers. It stays the same through restarts.
func (c *Cluster) URL(id int) string { return "http://" + c.members[id-1].address }

// Node is a running node, nil for a stopped one.
func (c *Cluster) Node(id int) *server.Node { return c.members[id-1].node }

// Dir is a node's data directory.
func (c *Cluster) Dir(id int) string { return c.members[id-1].dir }

// Stop stops a node as SIGTERM does.
func (c *Cluster) Stop(id int) {
	c.t.Helper()
	m := c.members[id-1]
	if m.node != nil {
		require.NoError(c.t, m.node.Close(), "node %d", id)
		m.node = nil
		c.Client.CloseIdleConnections() // a POST that is written to one of the node's would be lost
	}
}

// Start starts a stopped node and waits until it is ready.
func (c *Cluster) Start(id int) {
	c.t.Helper()
	c.start(id, nil)
	c.AwaitReady()
}

func (c *Cluster) close() {
	c.Client.CloseIdleConnections()
	for id := len(c.members); id >= 1; id-- {
		if m := c.members[id-1]; m.node != nil {
			_ = m.node.Close() // a test may have left it in any state
			m.node = nil
		}
		c.members[id-1].hold.release()
	}
}
