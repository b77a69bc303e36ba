package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/connect/plugin"
	"millrace/schemaregistry"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/server/quorum"
	"millrace/storage"
)

// Config is everything a node is told from outside. Open reads nothing else: no flag, no environment, no file but
// those in its data directory, so that many nodes can run in one process.
type Config struct {
	// NodeID is the broker's id in the cluster, from 1. It is written to the data directory on the first start, and a data
	// directory is never opened under another id.
	NodeID int32

	// Listen is the address of the one port, HOST:PORT. Port 0 takes a free one; Node.URL tells which. An address
	// that other machines can reach is refused unless Insecure is set, because this version knows neither TLS nor
	// users.
	Listen string

	// Listener, when set, is used in place of a socket bound to Listen. The node owns and closes it.
	Listener net.Listener

	// Insecure allows Listen to name an address that other machines can reach.
	Insecure bool

	// Voters are the nodes that found the metadata quorum, 1, 3 or 5 of them, with the URLs under which nodes reach each
	// other. They count when a data directory is used for the first time; later what was agreed on counts. A node
	// that is not among them joins as one that follows the metadata without a vote. Empty: this node is a cluster by
	// itself, and others cannot join.
	Voters []quorum.Voter

	// ClusterSecret proves to other nodes that this one belongs to the cluster; all have the same. Nothing under
	// /internal/ answers without it. With Voters it may be empty only where Listen is a loopback address.
	ClusterSecret []byte

	// Dial opens connections to other nodes. Unset, it is a net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// QuorumTimeout is how long a voter waits for the leader of the metadata quorum before it stands for election. Zero
	// is one second.
	QuorumTimeout time.Duration

	// Flaws are planted faults: a test hook, by which the simulation shows that it would find them.
	Flaws partition.Flaws
	// RegistryFlaws are those of the schema registry.
	RegistryFlaws schemaregistry.Flaws
	// RegistryLimits bound the schema registry, where its defaults do not suit a test.
	RegistryLimits schemaregistry.Limits

	// DataDir is the folder that holds everything the node keeps: one folder a partition, the metadata log, its lock
	// and its checkpoints. It is made when missing.
	DataDir string

	// FS holds the partitions' files. Unset, it is DataDir on the operating system's file system.
	FS storage.FS

	// Broker holds broker settings by Kafka's names, as text: what Kafka reads from server.properties. Settings that the
	// node does not know are an error, so that a misspelt one is noticed.
	Broker map[string]string

	// HTTP bounds what one client can take from the node.
	HTTP HTTPConfig

	// Limits bounds what requests may cost. Zero values take the defaults.
	Limits api.Limits

	// Origins are the web origins whose pages may use the API, such as https://dash.example. Without any, a page of
	// another origin than the node's can neither read an answer nor write.
	Origins []string

	// TrustedProxies are the peers whose X-Forwarded-Proto and X-Forwarded-Host count where answers hold links.
	TrustedProxies []netip.Prefix

	// DrainTimeout bounds how long Close waits for running requests before it cuts their connections.
	DrainTimeout time.Duration

	// Version and Commit say what was built; GET / and `millrace version` tell them.
	Version, Commit string

	// Environment looks up a variable of the process, for configs of connectors that refer to one, as far as settings
	// allow that. Unset, there are none.
	Environment func(name string) (string, bool)

	// Connectors are classes of connectors beside those that the node has.
	Connectors []plugin.Class

	// Now is the wall clock of record timestamps and retention. Timers use package time.
	Now func() time.Time

	// Rand is the source of all chance in the node, so that a seed replays a run. Open draws a seed for each part from it
	// and uses it no further. Unset, it is seeded by the operating system.
	Rand *rand.Rand

	// Logger receives what an operator acts on. Unset, nothing is logged.
	Logger *slog.Logger

	// Wrap, when set, is put around the cluster as the APIs of this node see it: one place for faults, traces or, in
	// tests, for encoding every message.
	Wrap func(kmsg.Requestor) kmsg.Requestor

	// Fatal is called, once, when the node cannot go on: its metadata log failed. A command exits; a test fences the node.
	Fatal func(error)
}

// HTTPConfig holds the limits of the HTTP listener.
type HTTPConfig struct {
	// MaxConnections is how many connections may be open at once. At the limit the node stops accepting until one
	// closes, so further clients wait in the kernel's queue.
	MaxConnections int

	// ReadHeaderTimeout is how long a client may take to send a request's header block.
	ReadHeaderTimeout time.Duration

	// IdleTimeout is how long a kept-alive connection may wait for its next request.
	IdleTimeout time.Duration

	// MaxHeaderBytes bounds a request's header block, its first line included. It must have room for Limits.URIBytes.
	MaxHeaderBytes int

	// MaxStreams bounds an HTTP/2 connection's concurrent requests.
	MaxStreams int
}

// DefaultConfig returns the settings of a node started without any: one node on loopback with its data in ./data, every
// acknowledged record on disk.
func DefaultConfig() Config {
	return Config{
		NodeID:  1,
		Listen:  "127.0.0.1:8082",
		DataDir: "./data",
		HTTP: HTTPConfig{
			MaxConnections:    20_000,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       120 * time.Second,
			MaxHeaderBytes:    160 << 10,
			MaxStreams:        100,
		},
		Limits:       api.DefaultLimits(),
		DrainTimeout: 25 * time.Second,
		Version:      "dev",
		Now:          time.Now,
	}
}

// Validate says what is wrong with the settings, all of it at once, and what to do about each.
func (c *Config) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.NodeID < 1 {
		add("node-id %d: must be at least 1", c.NodeID)
	}
	if c.DataDir == "" {
		add("data-dir: must name a folder")
	}
	if c.Listener == nil {
		if err := checkListen(c.Listen, c.Insecure); err != nil {
			errs = append(errs, err)
		}
	}
	if c.HTTP.MaxConnections < 1 {
		add("max-connections %d: must be at least 1", c.HTTP.MaxConnections)
	}
	if c.HTTP.ReadHeaderTimeout <= 0 || c.HTTP.IdleTimeout <= 0 || c.DrainTimeout <= 0 {
		add("timeouts must be above zero: without them a silent client stays for ever")
	}
	if least := c.Limits.URIBytes + 4<<10; c.HTTP.MaxHeaderBytes < least {
		add("max header bytes %d: must be at least %d, 4096 more than a URI may have", c.HTTP.MaxHeaderBytes, least)
	}
	for _, origin := range c.Origins {
		if err := api.CheckOrigin(origin); err != nil {
			add("cors-origins: %w", err)
		}
	}
	if _, err := c.advertised(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.checkCluster()...)
	if c.Now == nil {
		add("no clock: set Config.Now")
	}
	if err := metadata.NewSchema().ValidateStatic(c.Broker); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// advertised reads advertised.listeners: the base URLs that links in answers begin with, and under which the node is
// known in the cluster. nil stands for the address that the node listens on.
func (c *Config) advertised() ([]*url.URL, error) {
	const name = "advertised.listeners"
	var urls []*url.URL
	for text := range strings.SplitSeq(c.Broker[name], ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Scheme+"://"+u.Host != text {
			return nil, fmt.Errorf("%s %q: want a base URL such as http://node1.example:8082", name, text)
		}
		if _, err := portOf(u); err != nil {
			return nil, fmt.Errorf("%s %q: %w", name, text, err)
		}
		urls = append(urls, u)
	}
	return urls, nil
}

// portOf is the port that a URL leads to.
func portOf(u *url.URL) (int32, error) {
	switch {
	case u.Port() != "":
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		return int32(n), err
	case u.Scheme == "https":
		return 443, nil
	default:
		return 80, nil
	}
}

// checkListen refuses an address that other machines can reach, unless the operator has said that this is meant.
func checkListen(listen string, insecure bool) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("listen %q: want HOST:PORT, for example 127.0.0.1:8082", listen)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("listen %q: %q is not a port number from 0 to 65535", listen, port)
	}
	if insecure || isLoopback(host) {
		return nil
	}
	return fmt.Errorf("listen %q can be reached from other machines, and this version has neither TLS nor users: "+
		"listen on 127.0.0.1 and put a proxy in front, or give --insecure if everyone who can reach the port may read, "+
		"write and delete everything", listen)
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
