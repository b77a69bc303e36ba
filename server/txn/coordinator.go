package txn

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// lastEpoch is the last epoch that a producer gets. The one above it is for the marker that ends the last transaction
// of a producer id; then the transactional id gets another producer id.
const lastEpoch = 1<<15 - 2

// Config is what a Coordinator works with.
type Config struct {
	// Image is the newest metadata of this node.
	Image func() *metadata.Image
	// Cluster takes markers to the leaders of partitions.
	Cluster kmsg.Requestor
	// NewProducerID gives an id that no producer has had.
	NewProducerID func(context.Context) (int64, error)
	// Now is the node's wall clock; time.Now when nil.
	Now func() time.Time
	// Rand spreads what is tried again; the coordinator alone uses it from then on.
	Rand *rand.Rand
	// Logger gets a line for what an operator may act on; nil is none.
	Logger *slog.Logger
	// Registerer takes the metrics; nil is none.
	Registerer prometheus.Registerer
	// Failed hears of each error of a partition's log: another replica may have to lead it. It must not wait; nil is
	// nobody.
	Failed func(partition.Name, error)
	// Flaws are faults planted on purpose, a test hook.
	Flaws partition.Flaws
}

// Coordinator is the transaction coordinator of one node: a kmsg.Requestor for the keys that concern transactions. It
// is safe for concurrent use.
type Coordinator struct {
	cfg     Config
	run     *coordinator.Runtime
	metrics *metrics
	// lastEpoch is lastEpoch but in tests, which come to it sooner.
	lastEpoch int16
	hook      func(id string) // called before each append, by tests

	mu   sync.Mutex
	rand *rand.Rand // guarded by mu: every shard has chance of its own, seeded by it
}

// Open makes a coordinator that leads no partition yet. Close ends it.
func Open(cfg Config) *Coordinator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(1, 2))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Coordinator{cfg: cfg, rand: cfg.Rand, lastEpoch: lastEpoch}
	c.run = coordinator.New(coordinator.Config{
		Topic: metadata.TxnTopic, Now: cfg.Now, Logger: cfg.Logger,
		New:    func(run *coordinator.Shard) coordinator.State { return newShard(c, run) },
		Failed: cfg.Failed,
	})
	c.metrics = newMetrics(cfg.Registerer, c)
	return c
}

// Close ends the coordinator: who waits is told COORDINATOR_NOT_AVAILABLE, and markers under way are given up. The
// next leaders of the partitions go on with them.
func (c *Coordinator) Close() error { return c.run.Close() }

// Lead says that this node leads a partition of the topic in a leader epoch. It does not wait.
func (c *Coordinator) Lead(number int32, l *partition.Leader, epoch int32) {
	c.run.Lead(number, l, epoch)
}

// Resign says that this node leads a partition no longer. It does not wait.
func (c *Coordinator) Resign(number int32) { c.run.Resign(number) }

// partitionOf is the partition that a transactional id lives in.
func (c *Coordinator) partitionOf(id string) (int32, *kerr.Error) {
	if e := checkID(id); e != nil {
		return 0, e
	}
	topic := c.cfg.Image().Topic(metadata.TxnTopic)
	if topic == nil {
		return 0, kerr.CoordinatorNotAvailable
	}
	return metadata.CoordinatorPartition(id, int32(len(topic.Partitions))), nil
}

// chance makes a source of chance for one shard.
func (c *Coordinator) chance() *rand.Rand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rand.New(rand.NewPCG(c.rand.Uint64(), c.rand.Uint64()))
}
