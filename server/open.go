package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"millrace"
	"millrace/api"
	"millrace/api/native"
	"millrace/api/restv2"
	"millrace/api/restv3"
	"millrace/client"
	"millrace/record"
	"millrace/server/broker"
	"millrace/server/controller"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/server/quorum"
	"millrace/server/route"
	"millrace/storage"
)

// startTimeout bounds how long a start may wait for the metadata quorum.
const startTimeout = 30 * time.Second

// warmMemory bounds the memory kept between requests for bodies and batches.
const warmMemory = 64 << 20

// Open starts a node and returns when it serves. On an error nothing is left running and no file is left open.
func Open(cfg Config) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	n := &Node{cfg: cfg, log: cfg.Logger, registry: prometheus.NewRegistry()}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if n.cfg.Rand == nil {
		n.cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	var undo []func() error
	defer func() {
		for i := len(undo) - 1; err != nil && i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	step := func(open func() error, close func() error) bool {
		if err = open(); err == nil {
			undo = append(undo, close)
		}
		return err == nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	// The port is bound before the disk is touched, so that a second node on the same port fails at once and leaves
	// no trace. Connections made meanwhile wait in the kernel's queue.
	_ = step(n.listen, func() error { return n.listener.Close() }) &&
		step(n.openDir, func() error { return n.dir.Close() }) &&
		step(func() error { return n.openQuorum(ctx) }, func() error { return n.quorum.Close() }) &&
		step(n.openController, func() error { return n.control.Close() }) &&
		step(func() error { return n.openBroker(ctx) }, func() error { return n.broker.Close() }) &&
		step(n.serve, func() error { return nil })
	return n, err
}

// fork seeds the chance of one part.
func (n *Node) fork() *rand.Rand {
	return rand.New(rand.NewPCG(n.cfg.Rand.Uint64(), n.cfg.Rand.Uint64()))
}

func (n *Node) listen() error {
	l := n.cfg.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", n.cfg.Listen); err != nil {
			return fmt.Errorf("%w; is another node running there? --listen 127.0.0.1:0 takes a free port", err)
		}
	}
	limit := connectionLimit(n.cfg.HTTP.MaxConnections, openFiles())
	if limit < n.cfg.HTTP.MaxConnections {
		n.log.Info("fewer connections than max-connections are allowed: the process may open too few files",
			"connections", limit, "files", openFiles())
	}
	n.listener = newCappedListener(l, limit)
	if host, _, err := net.SplitHostPort(l.Addr().String()); err == nil && !isLoopback(host) {
		n.log.Warn("other machines can reach this node, and there is neither TLS nor a login", "address", l.Addr().String())
	}
	return nil
}

// openDir locks the data directory and checks that it is this node's.
func (n *Node) openDir() (err error) {
	n.machine, err = metadata.NewMachine(metadata.Options{NodeID: n.cfg.NodeID, Static: n.cfg.Broker})
	if err != nil {
		return err
	}
	n.fs = n.cfg.FS
	if n.fs == nil {
		if n.fs, err = storage.OSFS(n.cfg.DataDir); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
	}
	s := n.machine.Image().Settings()
	n.dir, err = storage.OpenDir(storage.DirOptions{
		FS: n.fs, Now: n.cfg.Now, Rand: n.fork(), Logger: n.log,
		SyncPolicy: syncPolicy(s.LogSync), SyncInterval: s.LogSyncInterval,
		CheckpointInterval: s.RecoveryPointInterval, WatermarkInterval: s.HighWatermarkInterval,
		ObserveSync: observeSync(n.registry),
	})
	if err != nil {
		return fmt.Errorf("data directory %s: %w", n.cfg.DataDir, err)
	}
	if m, ok := n.dir.Meta(); ok && m.NodeID != n.cfg.NodeID {
		return errors.Join(n.dir.Close(), fmt.Errorf("data directory %s belongs to node %d, this is node %d: "+
			"give --node-id %d or another --data-dir", n.cfg.DataDir, m.NodeID, n.cfg.NodeID, m.NodeID))
	}
	return nil
}

func syncPolicy(name string) storage.SyncPolicy {
	switch name {
	case "interval":
		return storage.SyncInterval
	case "never":
		return storage.SyncNever
	default:
		return storage.SyncAck
	}
}

// openQuorum brings the metadata up to date. Its folder lies beside the partitions and is guarded by the same lock.
func (n *Node) openQuorum(ctx context.Context) (err error) {
	_, known := n.dir.Meta()
	n.quorum, err = quorum.Open(ctx, quorum.Config{
		NodeID: n.cfg.NodeID, FS: n.fs, Machine: n.machine, Logger: n.log,
		Fatal: n.cfg.Fatal, Known: known,
	})
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// openController starts what looks after the cluster while this node leads the quorum.
func (n *Node) openController() error {
	n.control = controller.Open(controller.Config{
		NodeID: n.cfg.NodeID, Machine: n.machine, Quorum: n.quorum, Rand: n.fork(), Logger: n.log,
	})
	return nil
}

// openBroker registers this node with the cluster, opens its partitions and puts the router over everything.
func (n *Node) openBroker(ctx context.Context) error {
	ctl := n.control
	if err := n.register(ctx, ctl); err != nil {
		return fmt.Errorf("register with the cluster: %w", err)
	}
	policy := n.machine.Image().Settings().LogSync
	n.broker = broker.Open(broker.Config{
		NodeID: n.cfg.NodeID,
		Store: partition.NewStore(partition.Config{
			Dir: n.dir, CommitSynced: policy == "ack", Now: n.cfg.Now, Logger: n.log,
		}),
		Controller: ctl, ControllerID: n.quorum.Leader, LogDir: n.cfg.DataDir, Space: space(n.cfg.DataDir),
		Now: n.cfg.Now, Logger: n.log, Registerer: n.registry,
	})
	n.machine.Watch(n.broker.OnImage)
	n.cluster = route.New(route.Config{
		NodeID: n.cfg.NodeID, Image: n.machine.Image, Broker: n.broker, Controller: ctl, ControllerID: n.quorum.Leader,
	})
	if n.cfg.Wrap != nil {
		n.cluster = n.cfg.Wrap(n.cluster)
	}
	return nil
}

// register makes the node known to the cluster under its address, and the data directory known to belong to the
// cluster.
func (n *Node) register(ctx context.Context, ctl *controller.Controller) error {
	endpoints, err := n.endpoints()
	if err != nil {
		return err
	}
	meta, known := n.dir.Meta()
	r := controller.Registration{
		ClusterID: meta.ClusterID, ID: n.cfg.NodeID, PreviousEpoch: -1, Endpoints: endpoints,
	}
	chance := n.fork()
	r.Incarnation = randomID(chance)
	if b := n.machine.Image().Broker(n.cfg.NodeID); b != nil && n.dir.WasClean() {
		r.PreviousEpoch = b.Epoch
	}
	if _, err := ctl.RegisterBroker(ctx, r); err != nil {
		return err
	}
	if known {
		return nil
	}
	return n.dir.SetMeta(storage.Meta{
		ClusterID: n.machine.Image().ClusterID, NodeID: n.cfg.NodeID, DirectoryID: randomID(chance).String(),
	})
}

// endpoints are the addresses under which the node is known: the advertised ones, else where it listens.
func (n *Node) endpoints() ([]metadata.Endpoint, error) {
	urls, err := n.cfg.advertised()
	if err != nil {
		return nil, err
	}
	if len(urls) == 0 {
		urls = append(urls, &url.URL{Scheme: "http", Host: n.Addr().String()})
	}
	var out []metadata.Endpoint
	for _, u := range urls {
		port, err := portOf(u)
		if err != nil {
			return nil, fmt.Errorf("port of %s: %w", u, err)
		}
		out = append(out, metadata.Endpoint{Name: u.Scheme, Host: u.Hostname(), Port: port})
	}
	return out, nil
}

// randomID draws ids until one is fit for use; Kafka reserves a few.
func randomID(r *rand.Rand) metadata.UUID {
	for {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:8], r.Uint64())
		binary.LittleEndian.PutUint64(b[8:], r.Uint64())
		if id, ok := metadata.MakeUUID(b); ok {
			return id
		}
	}
}

// serve starts the HTTP edge on the port that listen bound.
func (n *Node) serve() error {
	handler, err := n.handler()
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	n.requests, n.endAll = context.WithCancelCause(context.Background())
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	n.http = &http.Server{
		Handler:           handler,
		Protocols:         &protocols,
		ReadHeaderTimeout: n.cfg.HTTP.ReadHeaderTimeout,
		IdleTimeout:       n.cfg.HTTP.IdleTimeout,
		MaxHeaderBytes:    n.cfg.HTTP.MaxHeaderBytes,
		ConnState:         n.listener.connState,
		BaseContext:       func(net.Listener) context.Context { return n.requests },
		ErrorLog:          slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: n.cfg.HTTP.MaxStreams, MaxReadFrameSize: 64 << 10, MaxReceiveBufferPerConnection: 4 << 20,
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: 10 * time.Second,
		},
	}
	n.serving.Go(func() {
		if err := n.http.Serve(n.listener); !errors.Is(err, http.ErrServerClosed) && !n.draining.Load() {
			n.log.Error("the listener failed", "err", err)
			n.fatal(fmt.Errorf("listen on %s: %w", n.Addr(), err))
		}
	})
	return nil
}

func (n *Node) fatal(err error) {
	if n.cfg.Fatal != nil {
		n.cfg.Fatal(err)
	}
}

// handler puts the APIs over the router.
func (n *Node) handler() (http.Handler, error) {
	n.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newNodeCollector(n),
	)
	urls, err := n.cfg.advertised()
	if err != nil {
		return nil, err
	}
	var advertised []string
	for _, u := range urls {
		advertised = append(advertised, u.String())
	}
	c := client.New(n.cluster, client.Options{Now: n.cfg.Now, Rand: n.fork()})
	edge, err := api.NewEdge(api.Options{
		Client: c, Pool: record.NewPool(warmMemory), Limits: n.cfg.Limits, Now: n.cfg.Now, Logger: n.log,
		Registry: n.registry, Ready: n.ready,
		AdvertisedURLs: advertised, Origins: n.cfg.Origins, TrustedProxies: n.cfg.TrustedProxies,
		Spec: millrace.OpenAPI, Version: n.cfg.Version, Commit: n.cfg.Commit,
	})
	if err != nil {
		return nil, err
	}
	n.native = native.New(native.Options{Edge: edge, Client: c})
	v2 := restv2.New(edge, c, restv2.Options{})
	v3 := restv3.New(edge, c, restv3.Options{})
	return api.NewRouter(edge, n.native.Mount, v2.Mount, v3.Mount), nil
}
