// Package servertest starts real nodes in tests: the whole server on a loopback port, with its data in a temporary
// folder or on a disk in memory that can crash.
//
// Every message between a node's API and its broker is encoded and decoded on the way (see Coded), so that what
// would only fail between two nodes fails here. A node is closed with its test, and closing it must succeed. Tests
// of every package above the broker are its callers.
package servertest

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/connect/plugin"
	"millrace/server"
	"millrace/storage/storagetest"
)

// Options say what is not as usual about a node.
type Options struct {
	// Disk holds the partitions' files in memory, so that Crash can take away what was not synced. The metadata log
	// is on the real disk all the same: it syncs each command before it is applied.
	Disk *storagetest.FS
	// Broker are broker settings, for tests that may not know package server.
	Broker map[string]string
	// Connectors are classes of connectors, for such tests too.
	Connectors []plugin.Class
	// Change is called with the config before each start.
	Change func(*server.Config)
	// Seed seeds the node's chance; 0 means 1. It is printed when the test fails.
	Seed uint64
	// Uncoded leaves out the encoding of every message, for measurements.
	Uncoded bool
}

// Node is a node under test.
type Node struct {
	t    testing.TB
	opts Options
	dir  string
	node *server.Node
	// starts counts the lives of the node.
	starts uint64
	// Client is an HTTP client of its own, closed with the node.
	Client *http.Client
}

// Start starts a node. It is closed when the test ends.
func Start(t testing.TB, o Options) *Node {
	t.Helper()
	n := &Node{t: t, opts: o, dir: t.TempDir()}
	if n.opts.Seed == 0 {
		n.opts.Seed = 1
	}
	n.start()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed of the node: %d", n.opts.Seed)
		}
		n.Stop()
	})
	return n
}

func (n *Node) start() {
	n.t.Helper()
	cfg := server.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.DataDir = n.dir
	cfg.Rand = rand.New(rand.NewPCG(n.opts.Seed, n.starts)) // ids that one life drew are not drawn by the next
	n.starts++
	cfg.Logger = slog.New(slog.NewTextHandler(n.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg.Fatal = func(err error) { n.t.Errorf("the node cannot go on: %v", err) }
	if n.opts.Disk != nil {
		cfg.FS = n.opts.Disk
	}
	if !n.opts.Uncoded {
		cfg.Wrap = func(r kmsg.Requestor) kmsg.Requestor { return Coded(n.t, r) }
	}
	cfg.Connectors, cfg.RegistryLimits.FreshWait = n.opts.Connectors, freshWait
	if n.opts.Broker != nil {
		cfg.Broker = maps.Clone(n.opts.Broker)
	}
	if n.opts.Change != nil {
		n.opts.Change(&cfg)
	}
	node, err := server.Open(cfg)
	require.NoError(n.t, err)
	n.node = node
	n.Client = &http.Client{Transport: &http.Transport{}}
}

// URL is where the node's API answers.
func (n *Node) URL() string { return n.node.URL() }

// Requestor is the cluster as the node's own APIs see it.
func (n *Node) Requestor() kmsg.Requestor { return n.node.Requestor() }

// Dir is the node's data directory.
func (n *Node) Dir() string { return n.dir }

// Restart stops the node as SIGTERM does and starts it again on the same data, on another port.
func (n *Node) Restart() {
	n.t.Helper()
	n.Stop()
	n.start()
}

// Stop closes the node, which must succeed. A stopped node stays stopped.
func (n *Node) Stop() {
	n.t.Helper()
	if n.node == nil {
		return
	}
	n.Client.CloseIdleConnections()
	require.NoError(n.t, n.node.Close())
	n.node = nil
}

// freshWait is how long a read of the schema registry waits for the end of its log in a test, where an old answer for
// want of a prompt one would be a fault that is none.
const freshWait = 20 * time.Second

// NewDisk is an empty disk in memory, for tests that may not know package storagetest.
func NewDisk() *storagetest.FS { return storagetest.New() }

// Modes are all crash modes.
func Modes() []storagetest.Mode { return storagetest.Modes() }

// Crash ends the node as a power cut does and starts it again: of the partitions' files only what mode keeps is
// there. The node needs a Disk.
func (n *Node) Crash(mode storagetest.Mode) {
	n.t.Helper()
	require.NotNil(n.t, n.opts.Disk, "only a disk in memory can crash")
	disk := n.opts.Disk.Crash(mode, rand.New(rand.NewPCG(n.opts.Seed, 1)))
	n.Client.CloseIdleConnections()
	_ = n.node.Close() // every file call of the old node fails now, as it should
	n.node = nil
	n.opts.Disk = disk
	n.start()
}
