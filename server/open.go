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
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace"
	"millrace/api"
	"millrace/api/native"
	"millrace/api/restv2"
	"millrace/api/restv3"
	"millrace/client"
	"millrace/connect"
	"millrace/consumer"
	"millrace/record"
	"millrace/schemaregistry"
	"millrace/server/broker"
	"millrace/server/controller"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/server/peer"
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
	n.cfg.Fatal = onceFatal(cfg.Fatal)
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.levels = connect.NewLoggers(n.log.Handler(), cfg.Now)
	n.log = n.levels.Logger("server")
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
	n.life, n.endLife = context.WithCancel(context.Background())
	n.run, n.admitted, n.joined = randomID(n.fork()).String(), make(chan struct{}), make(chan struct{})
	// The port is bound before the disk is touched, so that a second node on the same port fails at once and leaves
	// no trace. It answers before the node has joined its cluster, because other nodes need it to join theirs.
	_ = step(n.listen, n.unlisten) &&
		step(n.openDir, func() error { return n.dir.Close() }) &&
		step(n.openQuorum, n.closeQuorum) &&
		step(n.openCluster, n.closeCluster) &&
		step(n.serve, n.stopServing) &&
		step(n.start, func() error { return nil })
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
			return fmt.Errorf("%w; is another node running there? Stop it, or choose another port", err)
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

// unlisten gives the port up again. Serving that has ended has done so.
func (n *Node) unlisten() error {
	if err := n.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
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
	if errors.Is(err, storage.ErrLocked) {
		return fmt.Errorf("data directory %s: %w: stop that one, or give another --data-dir", n.cfg.DataDir, err)
	}
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

// openQuorum brings the metadata up to date as far as this node has it. Its folder lies beside the partitions and is
// guarded by the same lock.
func (n *Node) openQuorum() (err error) {
	ctx, cancel := context.WithTimeout(n.life, startTimeout)
	defer cancel()
	n.credential = peer.NewCredential(n.cfg.secret())
	n.peers = newPeers(n)
	_, known := n.dir.Meta()
	c := quorum.Config{
		NodeID: n.cfg.NodeID, FS: n.fs, Machine: n.machine, Logger: n.log, Fatal: n.cfg.Fatal, Known: known,
		Voters: n.cfg.Voters, Address: n.cfg.address(n.Addr()), HeartbeatTimeout: n.cfg.QuorumTimeout,
	}
	if n.cfg.clustered() {
		n.streams = quorum.NewStreams(quorum.StreamConfig{
			NodeID: n.cfg.NodeID, Address: c.Address, Voters: n.cfg.Voters, Dial: n.dialQuorum,
			Authorize: n.credential.Set, Check: n.credential.Check, ClusterID: n.clusterID, Logger: n.log,
		})
		c.StreamLayer = n.streams
	}
	n.quorum, err = quorum.Open(ctx, c)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	if members := n.memberships(); !n.cfg.clustered() && len(members) > 1 {
		return errors.Join(n.closeQuorum(), fmt.Errorf("the data directory %s is of a cluster of %d nodes, %s: give "+
			"--voters and --cluster-secret-file, as its other nodes have them", n.cfg.DataDir, len(members), n.founders()))
	}
	return nil
}

// openCluster makes the parts that answer for the cluster and wires them. The broker has no partitions until the node
// has joined.
func (n *Node) openCluster() error {
	n.pool = record.NewPool(warmMemory)
	n.openCoordinators()
	n.controller = controller.Open(controller.Config{
		NodeID: n.cfg.NodeID, Machine: n.machine, Quorum: n.quorum, Rand: n.fork(), Logger: n.log, Probe: n.peers.probe,
		Changed: n.quorum.Changed, Term: n.quorum.Term, Verify: n.quorum.Verify,
	})
	policy := n.machine.Image().Settings().LogSync
	n.broker = broker.Open(broker.Config{
		NodeID: n.cfg.NodeID,
		Store: partition.NewStore(partition.Config{
			Dir: n.dir, CommitSynced: policy == "ack", Now: n.cfg.Now, Logger: n.log,
		}),
		Controller: whole{n}, ControllerID: n.controllerID, Peer: n.peers.requestor, Applied: n.applied,
		Cluster: whole{n}, GroupMarker: n.groups.Marker, OnInternal: n.onInternal, CheckSchemas: n.checkSchemas,
		Changed:  n.changed,
		Register: n.registerAgain,
		Flaws:    n.cfg.Flaws,
		LogDir:   n.cfg.DataDir, Space: space(n.cfg.DataDir), Rand: n.fork(),
		Now: n.cfg.Now, Logger: n.log, Registerer: n.registry,
	})
	n.router = route.New(route.Config{
		NodeID: n.cfg.NodeID, Image: n.machine.Image, Broker: n.broker, Controller: n.controller,
		ControllerID: n.controllerID, Peer: n.peers.requestor, Changed: n.changed, AwaitApplied: n.awaitApplied,
		Groups: n.groups, Txns: n.txns, Nodes: n.nodeCount,
	})
	n.cluster = n.router
	if n.cfg.Wrap != nil {
		n.cluster = n.cfg.Wrap(n.cluster)
	}
	return nil
}

func (n *Node) closeCluster() error {
	return errors.Join(n.coordinators.close(), n.broker.Close(), n.controller.Close())
}

func (n *Node) closeQuorum() error {
	err := n.quorum.Close()
	if n.streams != nil {
		err = errors.Join(err, n.streams.Close())
	}
	n.peers.close()
	return err
}

// whole is the cluster as the node's own broker sees it: the controller may be on any node.
type whole struct{ node *Node }

// Request implements kmsg.Requestor.
func (w whole) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	return w.node.router.Request(ctx, r)
}

// applied is the metadata that all parts of this node know.
func (n *Node) applied() uint64 {
	index, _ := n.machine.Settled()
	return index
}

// changed is closed when all parts of this node know newer metadata.
func (n *Node) changed() <-chan struct{} {
	_, next := n.machine.Settled()
	return next
}

// awaitApplied waits until all parts of this node know the metadata up to an index.
func (n *Node) awaitApplied(ctx context.Context, index uint64) error {
	for {
		at, next := n.machine.Settled()
		if at >= index {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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
	if err := n.openAPI(); err != nil {
		return fmt.Errorf("http: %w", err)
	}
	internal := n.internalHandler()
	n.requests, n.endAll = context.WithCancelCause(context.Background())
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	n.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isInternal(r) {
				n.answering.pass(w, r, internal)
				return
			}
			n.answering.pass(w, r, n.api)
		}),
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

// stopServing ends the HTTP side of a start that failed.
func (n *Node) stopServing() error {
	n.draining.Store(true)
	n.connect.close(true)
	n.endLife()
	n.joining.Wait()
	n.native.Close()
	n.endAll(ErrDraining)
	n.endProduces(ErrDraining)
	err := n.http.Close()
	n.serving.Wait()
	n.answering.close()
	n.workers.Close()
	n.schemas.close()
	return err
}

func (n *Node) fatal(err error) {
	if n.cfg.Fatal != nil {
		n.cfg.Fatal(err)
	}
}

// onceFatal makes sure that of several faults only the first is told.
func onceFatal(f func(error)) func(error) {
	if f == nil {
		return nil
	}
	var once sync.Once
	return func(err error) { once.Do(func() { f(err) }) }
}

// openAPI puts the APIs over the router.
func (n *Node) openAPI() error {
	n.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newNodeCollector(n),
	)
	urls, err := n.cfg.advertised()
	if err != nil {
		return err
	}
	var advertised []string
	for _, u := range urls {
		advertised = append(advertised, u.String())
	}
	var produces context.Context
	produces, n.endProduces = context.WithCancelCause(context.Background())
	c := client.New(n.cluster, client.Options{Now: n.cfg.Now, Rand: n.fork(), Life: produces})
	edge, err := api.NewEdge(api.Options{
		Client: c, Pool: n.pool, Limits: n.cfg.Limits, Now: n.cfg.Now, Logger: n.log,
		Registry: n.registry, Ready: n.ready, Starting: n.starting, Forward: n.forward,
		AdvertisedURLs: advertised, Origins: n.cfg.Origins, TrustedProxies: n.cfg.TrustedProxies,
		SchemasTopic: schemaregistry.DefaultTopic,
		Spec:         millrace.OpenAPI, Version: n.cfg.Version, Commit: n.cfg.Commit,
	})
	if err != nil {
		return err
	}
	n.edge = edge
	n.workers = consumer.New(consumer.Options{
		Client: c, Requests: n.cluster, Local: n.coordinates, Arena: n.pool.Arena, Now: n.cfg.Now, Logger: n.log,
		Rand: n.fork(),
	})
	rest := n.machine.Image().Settings().REST
	if err := n.openSchemas(edge, c); err != nil {
		return err
	}
	if err := n.openConnect(c); err != nil {
		return err
	}
	n.native = native.New(native.Options{
		Edge: edge, Client: c, Members: n.workers, Keys: c.NewKeys(), Membership: n.membership(),
		Serde: n.schemas.serde.Load(), Node: strconv.Itoa(int(n.cfg.NodeID)), KeyIndexBytes: rest.KeyIndexBytes,
	})
	v2 := restv2.New(edge, c, restv2.Options{
		Keyed: n.native.Keyed, Members: n.workers, Serde: n.schemas.serde.Load(), InstanceTimeout: rest.InstanceTimeout,
		RequestTimeout: rest.RequestTimeout, RequestMaxBytes: rest.RequestMaxBytes, FetchMinBytes: rest.FetchMinBytes,
	})
	v3 := restv3.New(edge, c, restv3.Options{Keyed: n.native.Keyed, Serde: n.schemas.serde.Load()})
	n.api = api.NewRouter(edge, n.native.Mount, v2.Mount, v3.Mount, n.schemas.api.Mount,
		n.connectAPI(edge))
	return nil
}
