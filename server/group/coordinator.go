package group

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

// Config is what a Coordinator works with.
type Config struct {
	// Image is the newest metadata of this node. When TopicDeleted is called it must lack the topic already.
	Image func() *metadata.Image
	// Cluster answers what concerns transactions, wherever their coordinator is.
	Cluster kmsg.Requestor
	// Now is the node's wall clock; time.Now when nil.
	Now func() time.Time
	// Rand supplies ids of members; the coordinator alone uses it from then on.
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

// Coordinator is the group coordinator of one node: a kmsg.Requestor for the keys that concern groups. It is
// safe for concurrent use.
type Coordinator struct {
	cfg     Config
	run     *coordinator.Runtime
	metrics *metrics
	burial  *burial

	mu   sync.Mutex
	rand *rand.Rand // guarded by mu: every shard has chance of its own, seeded by it

	cancel context.CancelFunc
	wg     sync.WaitGroup // of the burial
}

// Open starts a coordinator that leads no partition yet. Close ends it.
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
	c := &Coordinator{cfg: cfg, rand: cfg.Rand}
	c.run = coordinator.New(coordinator.Config{
		Topic: metadata.GroupTopic, Now: cfg.Now, Logger: cfg.Logger,
		New:           func(run *coordinator.Shard) coordinator.State { return newShard(c, run) },
		CommitTimeout: cfg.Image().Settings().Group.OffsetsCommitTimeout,
		Failed:        cfg.Failed,
	})
	c.metrics = newMetrics(cfg.Registerer, c)
	c.burial = newBurial(c)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.wg.Go(func() { c.burial.serve(ctx) })
	return c
}

// Close ends the coordinator: who waits is told COORDINATOR_NOT_AVAILABLE, and all groups are let go. They live on
// with the next leaders of their partitions.
func (c *Coordinator) Close() error {
	c.cancel() // first, for it asks the loops
	c.wg.Wait()
	return c.run.Close()
}

// Lead says that this node leads a partition of the offsets topic in a leader epoch. It does not wait.
func (c *Coordinator) Lead(number int32, l *partition.Leader, epoch int32) {
	c.run.Lead(number, l, epoch)
}

// Resign says that this node leads a partition no longer. It does not wait.
func (c *Coordinator) Resign(number int32) { c.run.Resign(number) }

// Marker ends a transaction in a partition. When it returns the offsets that were committed with it are what every
// later fetch answers, or are gone.
func (c *Coordinator) Marker(ctx context.Context, number int32, m *partition.Marker) error {
	end := func(st coordinator.State, reply *coordinator.Reply[struct{}]) {
		if err := st.(*shard).run.AppendMarker(m); err != nil {
			reply.Fail(err)
			return
		}
		reply.Send(struct{}{})
	}
	_, err := coordinator.Do(ctx, c.run, number, end)
	return err
}

// TopicDeleted has the offsets removed that groups have committed for a topic that is no more. It does not wait; what
// it misses, because partitions move at the same time, the next look for expired offsets finds.
func (c *Coordinator) TopicDeleted(topic string) { c.burial.add(topic) }

// partitionOf is the partition that a group lives in.
func (c *Coordinator) partitionOf(group string) (int32, *kerr.Error) {
	if e := checkGroupID(group); e != nil {
		return 0, e
	}
	topic := c.cfg.Image().Topic(metadata.GroupTopic)
	if topic == nil {
		return 0, kerr.CoordinatorNotAvailable
	}
	return metadata.CoordinatorPartition(group, int32(len(topic.Partitions))), nil
}

// chance makes a source of chance for one shard.
func (c *Coordinator) chance() *rand.Rand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rand.New(rand.NewPCG(c.rand.Uint64(), c.rand.Uint64()))
}
