// Package broker answers the requests that concern partition logs: it is the kmsg.Requestor of one
// node for produce, fetch, offsets and what clients ask to find their way.
//
// A Broker holds the partitions that this node leads and keeps them in step with the cluster's
// metadata: OnImage makes, opens, changes and removes logs. Requests read one snapshot of that and
// take no lock. There is one file for each kind of request; its handler checks, calls the partition
// or reads the metadata image, and fills in the answer.
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
	"millrace/server/partition"
)

// Config is what a broker needs. All fields but Space are required.
type Config struct {
	NodeID int32
	Store  *partition.Store
	// Controller answers CreateTopics and AllocateProducerIDs, wherever the controller is.
	Controller kmsg.Requestor
	// ControllerID is the node that leads the quorum, or -1.
	ControllerID func() int32
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
	ids     *producerIDs
	metrics *metrics
	waiters sync.Pool // of *partition.Waiter

	turn   chan struct{} // a lock of one slot over OnImage and Close, which wait for disks
	closed bool          // guarded by turn

	// failing is set while there are partitions that reopen may help.
	failing atomic.Bool

	ctx    context.Context // lifetime of the sweep and of prefetches
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Open starts a broker without partitions: the first OnImage brings them. Close ends it.
func Open(cfg Config) *Broker {
	b := &Broker{cfg: cfg, turn: make(chan struct{}, 1)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.view.Store(newView())
	b.metrics = newMetrics(cfg.Registerer, b)
	b.ids = &producerIDs{broker: b}
	b.waiters.New = func() any { return partition.NewWaiter() }
	b.wg.Go(b.sweep)
	return b
}

// Close ends the broker: who waits for a partition gets an answer, the partitions are closed, the
// data directory is left to its owner.
func (b *Broker) Close() error {
	b.cancel()
	b.ids.close()
	b.wg.Wait()
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.closed {
		return nil
	}
	b.closed = true
	return b.closePartitions()
}

// Image is the metadata that the broker works by: its partitions are those of this image.
func (b *Broker) Image() *metadata.Image { return b.view.Load().image }

// Keys lists the request keys that Request answers.
func Keys() []kmsg.Key {
	return []kmsg.Key{
		kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.DeleteRecords, kmsg.InitProducerID,
		kmsg.OffsetForLeaderEpoch, kmsg.DescribeConfigs, kmsg.DescribeLogDirs, kmsg.DescribeCluster,
		kmsg.DescribeProducers,
	}
}

// Request answers one request.
func (b *Broker) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	v := b.view.Load()
	if v.image == nil {
		return nil, fmt.Errorf("broker %d has no metadata yet", b.cfg.NodeID)
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
		return b.handleDeleteRecords(v, req), nil
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
		return b.handleDescribeProducers(v, req), nil
	default:
		return nil, fmt.Errorf("broker does not serve %s (key %d)", kmsg.NameForKey(r.Key()), r.Key())
	}
}

// answer keeps a nil pointer from becoming a response that is not nil.
func answer[T kmsg.Response](resp T, err error) (kmsg.Response, error) {
	if err != nil {
		return nil, err
	}
	return resp, nil
}
