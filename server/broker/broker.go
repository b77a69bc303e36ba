// Package broker answers the requests that concern partition logs: it is the kmsg.Requestor of one
// node for produce, fetch, offsets and what clients ask to find their way.
//
// A Broker holds the partitions that have a replica on this node and keeps them in step with the
// cluster's metadata: OnImage makes, opens, changes and removes logs and gives each its role. Requests
// read one snapshot of that and take no lock. There is one file for each kind of request; its handler
// checks, calls the partition or reads the metadata image, and fills in the answer.
//
// Start begins what a member of a cluster does by itself: heartbeats to the controller (lifecycle.go),
// one fetch loop for each broker that leads something this node follows (fetcher.go, fetch_loop.go), and
// the proposals of its leaders to change their ISRs (isr.go). Each is a goroutine of its own, so that none
// holds up another; Close awaits them all.
//
// Answers follow the seam's rules: whatever Kafka can say stands in the error-code fields, and a Go
// error means that there is no answer, because the context ended or the broker closed; a produce
// may then have been written. Bytes of a request are free again when Request returns. Bytes of a
// fetch come from the arena in the context, if there is one.
//
// The router is its caller, and any node may be: nothing here checks that a request came to the
// right node except the partitions themselves.
package broker

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// Config is what a broker needs. Space may be nil, and what Start needs where it is not called.
type Config struct {
	NodeID int32
	Store  *partition.Store
	// Controller reaches the controller, wherever it is: for topics and producer ids, and for what Start
	// begins, heartbeats and ISR changes.
	Controller kmsg.Requestor
	// ControllerID is the node that leads the quorum, or -1.
	ControllerID func() int32
	// Peer reaches the broker of another node; nil when it cannot be reached, or as a field in a cluster
	// of one.
	Peer func(id int32) kmsg.Requestor
	// Cluster reaches the coordinators of transactions, wherever they are; nil: there are none.
	Cluster kmsg.Requestor
	// GroupMarker ends a transaction in a partition of __consumer_offsets, and returns when the offsets that were
	// committed in it can be read; nil: the marker is appended like any other.
	GroupMarker func(ctx context.Context, number int32, m *partition.Marker) error
	// OnInternal hears whenever this node begins to lead a partition of an internal topic, or to lead it in another
	// epoch, or leads it no longer: then leader is nil. It is called in OnImage's turn and must not block.
	OnInternal func(topic string, number int32, leader *partition.Leader, epoch int32)
	// CheckSchemas finds the records of a batch that do not match the schemas that their topic enforces: a *record.Fault,
	// or an error that wraps partition.ErrUnjudged. It reads the batch and keeps nothing of it. A batch that cannot be
	// read passes: it is refused for that. Nil: nothing is enforced.
	CheckSchemas func(ctx context.Context, topic string, rules metadata.SchemaRules, batch record.Batch) error
	// Register makes this run of the broker known to the controller again and gives its epoch; nil leaves
	// a broker that the controller has forgotten as it is.
	Register func(ctx context.Context) (epoch int64, err error)
	// Applied is the index of the metadata that is applied on this node, for heartbeats. Changed is closed when it is a
	// later one than at the time of the call; nil where there is no controller elsewhere.
	Applied func() uint64
	Changed func() <-chan struct{}
	// Flaws are faults planted on purpose, a test hook.
	Flaws partition.Flaws
	// Rand is the broker's own chance, for the pauses between tries.
	Rand *rand.Rand
	// LogDir is the data directory's path, for DescribeLogDirs.
	LogDir string
	// Space tells the size of the data directory's disk and what is free on it; unknown when nil.
	Space func() (total, usable int64)
	// Now is the node's wall clock.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Broker is the log side of a node. It is safe for concurrent use.
type Broker struct {
	cfg     Config
	view    atomic.Pointer[view]
	newest  atomic.Pointer[metadata.Image] // the image of the next view, while OnImage makes it
	ids     *producerIDs
	metrics *metrics
	waiters sync.Pool // of *partition.Waiter

	life            *lifecycle
	isr             *isrProposer
	throttles       throttles
	pool            *record.Pool // memory of fetched batches
	followerFetches sync.Pool    // of *followerFetch

	turn     chan struct{} // a lock of one slot over what changes the view, which waits for disks
	closed   bool          // guarded by turn
	started  bool          // guarded by turn
	fetchers *fetchers     // guarded by turn

	awaiting atomic.Int64  // acks=all produces that wait for their batches
	answered chan struct{} // gets one, if there is room, when a broker that is to stop has none left

	scrubDue chan struct{} // gets one when a scrub is to begin

	// failing is set while there are partitions that reopen may help.
	failing atomic.Bool

	ctx    context.Context // lifetime of the sweep and of prefetches
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Open starts a broker without partitions: the first OnImage brings them. Close ends it.
func Open(cfg Config) *Broker {
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(uint64(cfg.NodeID), 0))
	}
	if cfg.Peer == nil {
		cfg.Peer = func(int32) kmsg.Requestor { return nil }
	}
	b := &Broker{cfg: cfg, turn: make(chan struct{}, 1), answered: make(chan struct{}, 1),
		scrubDue: make(chan struct{}, 1), pool: record.NewPool(warmBytes)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.view.Store(newView(cfg.NodeID))
	b.life, b.isr, b.fetchers = newLifecycle(b), newIsrProposer(b), newFetchers(b)
	b.followerFetches.New = func() any { return new(followerFetch) }
	cfg.Store.Attach(partition.Env{
		ReplicaState: b.replicaState,
		LagTimeMax:   func() time.Duration { return b.newest.Load().Settings().ReplicaLagTimeMax },
		OnIsrChange:  b.isr.want,
		OnDamage:     func(r *partition.Replica, err error) { b.noticed(r.Name(), err) },
		OnOrphan:     b.orphaned,
		Flaws:        cfg.Flaws,
	})
	b.metrics = newMetrics(cfg.Registerer, b)
	b.ids = &producerIDs{broker: b}
	b.waiters.New = func() any { return partition.NewWaiter() }
	b.wg.Go(b.sweep)
	b.wg.Go(b.scrub)
	b.wg.Go(newCleaner(b).run)
	return b
}

// replicaState is what the metadata knows of a broker.
func (b *Broker) replicaState(id int32) (epoch int64, active bool) {
	image := b.newest.Load()
	return image.BrokerEpoch(id), image.Active(id)
}

// Close ends the broker: heartbeats and fetching stop, who waits for a partition gets an answer, the
// partitions are closed, the data directory is left to its owner.
func (b *Broker) Close() error {
	// What runs in the background gives up first, so that nobody needs the turn for long, and what is closed
	// starts nothing anew.
	b.cancel()
	b.ids.close()
	b.turn <- struct{}{}
	was := b.closed
	b.closed = true
	<-b.turn
	b.wg.Wait()
	if was {
		return nil
	}
	return b.closePartitions()
}

// Image is the metadata that the broker works by: its partitions are those of this image.
func (b *Broker) Image() *metadata.Image { return b.view.Load().image }

// Keys lists the request keys that Request answers.
func Keys() []kmsg.Key {
	return []kmsg.Key{
		kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.DeleteRecords, kmsg.InitProducerID,
		kmsg.OffsetForLeaderEpoch, kmsg.DescribeConfigs, kmsg.DescribeLogDirs, kmsg.DescribeCluster,
		kmsg.DescribeProducers, kmsg.DescribeQuorum, kmsg.WriteTxnMarkers,
	}
}

// notStarted is the error for requests that come before the first image, of the broker with that id.
type notStarted int32

func (e notStarted) Error() string { return fmt.Sprintf("broker %d has no metadata yet", int32(e)) }

// NotSent says that nothing was done.
func (notStarted) NotSent() bool { return true }

// Request answers one request.
func (b *Broker) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	v := b.view.Load()
	if v.image == nil {
		return nil, notStarted(b.cfg.NodeID)
	}
	switch req := r.(type) {
	case *kmsg.ProduceRequest:
		return answer(b.handleProduce(ctx, v, req))
	case *kmsg.FetchRequest:
		return answer(b.handleFetch(ctx, v, req))
	case *kmsg.ListOffsetsRequest:
		return b.handleListOffsets(v, req), nil
	case *kmsg.MetadataRequest:
		return answer(b.handleMetadata(ctx, v, req))
	case *kmsg.DeleteRecordsRequest:
		return answer(b.handleDeleteRecords(ctx, v, req))
	case *kmsg.InitProducerIDRequest:
		return answer(b.handleInitProducerID(ctx, req))
	case *kmsg.OffsetForLeaderEpochRequest:
		return b.handleOffsetForLeaderEpoch(v, req), nil
	case *kmsg.DescribeConfigsRequest:
		return b.handleDescribeConfigs(v, req), nil
	case *kmsg.DescribeLogDirsRequest:
		return b.handleDescribeLogDirs(v, req), nil
	case *kmsg.DescribeClusterRequest:
		return b.handleDescribeCluster(v, req), nil
	case *kmsg.DescribeProducersRequest:
		return b.handleDescribeProducers(ctx, v, req), nil
	case *kmsg.WriteTxnMarkersRequest:
		return answer(b.handleWriteTxnMarkers(ctx, v, req))
	case *kmsg.DescribeQuorumRequest:
		return b.handleDescribeQuorum(v, req), nil
	default:
		return nil, fmt.Errorf("broker does not serve %s (key %d)", kmsg.NameForKey(r.Key()), r.Key())
	}
}

// warmBytes bounds the memory that fetch loops keep for the next answer.
const warmBytes = 32 << 20

// answer keeps a nil pointer from becoming a response that is not nil.
func answer[T kmsg.Response](resp T, err error) (kmsg.Response, error) {
	if err != nil {
		return nil, err
	}
	return resp, nil
}
