// Package server is a node: it opens storage, metadata, broker and HTTP edge in order, wires them, owns the
// listener, and closes them in reverse.
//
// It is the one place where the two columns of the architecture meet: below it the cluster (quorum, controller, broker,
// route) and its users (client, api) know each other only as a kmsg.Requestor. Open returns with the port bound and the
// data recovered, so nobody has to poll for readiness; Close returns when every goroutine has ended and every file is
// synced. Commands and tests call it; many nodes may run in one process.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/connect"
	"millrace/consumer"
	"millrace/record"
	"millrace/server/broker"
	"millrace/server/controller"
	"millrace/server/metadata"
	"millrace/server/peer"
	"millrace/server/quorum"
	"millrace/server/route"
	"millrace/storage"
)

// Node is one running broker of a cluster.
type Node struct {
	cfg      Config
	log      *slog.Logger
	registry *prometheus.Registry

	fs         storage.FS
	dir        *storage.Dir
	machine    *metadata.Machine
	credential peer.Credential
	peers      *peers
	streams    *quorum.Streams // nil in a cluster of one
	quorum     *quorum.Raft
	controller *controller.Controller
	broker     *broker.Broker
	router     *route.Router
	cluster    kmsg.Requestor // the router over all of the above
	coordinators

	pool     *record.Pool
	workers  *consumer.Members // members of groups that the node runs for clients
	native   *native.Server    // owns the live streams
	schemas  schemas
	connect  connectors
	levels   *connect.Loggers // of the node's loggers
	edge     *api.Edge
	api      *api.Router // what the public paths answer
	listener *cappedListener
	http     *http.Server
	requests context.Context // parent of every request's context; its end asks long polls to end
	endAll   context.CancelCauseFunc
	// endProduces ends the waits of those requests that outlive their contexts.
	endProduces context.CancelCauseFunc
	answering   gate

	life       context.Context // ends when Close begins; parent of what the node does by itself
	endLife    context.CancelFunc
	joining    sync.WaitGroup
	run        string                 // a random name of this run of the node
	admitted   chan struct{}          // closed when the node may take part in the quorum
	joined     chan struct{}          // closed when the node has joined its cluster
	waiting    atomic.Pointer[error]  // what the node waits for until then
	registered atomic.Pointer[string] // the incarnation of the last registration
	amiss      atomic.Pointer[error]  // what is wrong with other voters, as seen until then

	serving  sync.WaitGroup
	draining atomic.Bool
	killed   atomic.Bool // nothing is handed over
	closing  sync.Once
	closed   error
}

// ErrDraining is the cause with which the contexts of requests end when the node stops.
var ErrDraining = errors.New("the node is stopping")

// URL is where the node's API answers, without a slash at the end.
func (n *Node) URL() string { return "http://" + n.Addr().String() }

// Addr is the address the node listens on.
func (n *Node) Addr() net.Addr { return n.listener.Addr() }

// Requestor is the cluster as this node's own users see it: any request, routed to whoever serves it.
func (n *Node) Requestor() kmsg.Requestor { return n.cluster }

// Registry holds the node's metrics.
func (n *Node) Registry() *prometheus.Registry { return n.registry }

// ready says why the node should get no traffic, or nil. It takes no lock and does no I/O.
func (n *Node) ready() error {
	switch {
	case n.draining.Load():
		return ErrDraining
	case n.quorum.Offline() != nil:
		return n.quorum.Offline()
	case n.starting() != nil:
		return n.starting()
	case n.quorum.Leader() < 0:
		return errNoLeader
	case n.broker.Fenced():
		return errFenced
	}
	return n.schemas.registry.Ready()
}

// errNoLeader says that this node hears of no leader of the metadata.
var errNoLeader = errors.New("the metadata quorum has no leader: a majority of its voters must run and reach " +
	"each other")

// AwaitBrokers waits until the node knows of so many brokers in service.
func (n *Node) AwaitBrokers(ctx context.Context, count int) error {
	for {
		index, _ := n.machine.Settled()
		active := 0
		for _, b := range n.machine.Image().Brokers() {
			if !b.Fenced {
				active++
			}
		}
		if active >= count {
			return nil
		}
		if err := n.awaitApplied(ctx, index+1); err != nil {
			return fmt.Errorf("%d of %d brokers are in service: %w", active, count, err)
		}
	}
}

// errFenced says that the controller has not heard of this node for too long, or not yet.
var errFenced = errors.New("the node is fenced: the controller does not hear from it")

// grace is how long a stop leaves running requests alone before it asks them to end. A produce takes milliseconds;
// what is left after this is a long poll or a stream.
const grace = 500 * time.Millisecond

// Close stops the node: it is Open in reverse. It is safe to call more than once, from any goroutine.
func (n *Node) Close() error {
	n.closing.Do(func() { n.closed = n.close() })
	return n.closed
}

func (n *Node) close() error {
	// Readiness fails first, so that whoever balances load stops sending. A node that is still joining gives that up.
	n.draining.Store(true)

	// Connectors and tasks come first: they store what they have read or written, and the other nodes take them over.
	// That needs all that follows, on this node too.
	n.connect.close(n.killed.Load())

	n.endLife()
	n.joining.Wait()

	// The leaderships move while everything still answers, so that clients find the new leaders before this node
	// is gone.
	n.handOver()

	// The listener closes, kept-alive connections get Connection: close or GOAWAY, and running requests are awaited. They
	// need everything below, so everything below is still open.
	drained := n.drain()

	// The members of groups that the node ran for clients stay in their groups, for other nodes to take over. Those that
	// no other node takes over leave, by the coordinators.
	n.workers.Close()

	// The schema registry answers no request any more, and reads from the cluster until here.
	n.schemas.close()

	// No request is left, so nothing new reaches the logs but from the coordinators, which end first. Closing the broker
	// wakes whoever still waits for a partition, ends the fetching from other nodes and retention, and closes each log
	// with a sync.
	err := errors.Join(n.coordinators.close(), n.broker.Close())

	// The controller proposes to the quorum, so it ends first.
	err = errors.Join(err, n.controller.Close())

	// The quorum goes after the broker, which may have asked the controller for producer ids until now, and before the
	// directory, whose lock also guards the metadata log.
	err = errors.Join(err, n.closeQuorum())

	// The directory is last: it writes the checkpoints and, when all logs were closed cleanly, the marker that lets
	// the next start skip recovery. Then it gives up the lock.
	return errors.Join(drained, err, n.dir.Close())
}

// handOverTimeout bounds the wait for other nodes to take over.
const handOverTimeout = 8 * time.Second

// leaderless is how often in a row, joinRetry apart, a node that stops finds no controller before it takes it that
// nobody is left to hand over to. An election takes less. Looks are counted and not time, since a node that stands
// still for seconds cannot tell.
const leaderless = 12

// handOver moves the leaderships of partitions and of the quorum to other nodes, where there are some. What cannot be
// moved in time is found out by the others later.
func (n *Node) handOver() {
	if !n.hasJoined() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(handOverTimeout, n.cfg.DrainTimeout/2))
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		n.awaitLeaderless(ctx)
		cancel()
	})
	if err := n.broker.Shutdown(ctx); err != nil {
		n.log.Warn("not all leaderships were handed over", "err", err)
	}
	if n.cfg.clustered() && n.quorum.IsLeader() {
		if err := n.quorum.Transfer(ctx, anyNode); err != nil {
			n.log.Warn("the quorum's leadership was not handed over", "err", err)
		}
	}
	cancel()
	watching.Wait()
}

// awaitLeaderless returns when the quorum has had no leader for a while, or when ctx ends.
func (n *Node) awaitLeaderless(ctx context.Context) {
	for looks := 0; looks < leaderless && pause(ctx, joinRetry) == nil; looks++ {
		if n.quorum.Leader() >= 0 {
			looks = -1
		}
	}
}

// anyNode leaves it to the quorum who leads it next.
const anyNode int32 = -1

// silence is how long a stop waits for the first request of a connection. Clients use the newest ones first, so one
// that was silent for so long hardly carries a request at the moment when it is closed.
const silence = time.Second

// drain ends the HTTP side. When requests outlast DrainTimeout their connections are cut, which loses nothing:
// whoever got no answer has an unknown outcome, as with any cut.
func (n *Node) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.DrainTimeout)
	defer cancel()
	asked := time.AfterFunc(min(grace, n.cfg.DrainTimeout/2), func() { n.endAll(ErrDraining) })
	n.serving.Go(n.native.Close) // live streams get an event that says so; new ones are refused
	silent := time.AfterFunc(silence, n.listener.hangUp)
	err := n.http.Shutdown(ctx)
	silent.Stop()
	asked.Stop()
	n.endAll(ErrDraining)
	if err != nil {
		n.log.Warn("requests outlasted the drain and were cut", "err", err)
		err = n.http.Close()
	}
	n.endProduces(ErrDraining)
	n.serving.Wait()
	n.answering.close() // each has lost its connection and its contexts, so it ends soon
	if err != nil {
		return fmt.Errorf("close the listener: %w", err)
	}
	return nil
}
