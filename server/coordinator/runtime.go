package coordinator

import (
	"context"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
	"millrace/server/partition"
)

// idleCodecs is how many decompressors are kept for partitions that are read.
const idleCodecs = 2

// Runtime is the loops of the partitions that this node leads. It is safe for concurrent use.
type Runtime struct {
	cfg    Config
	codecs *record.Codecs
	life   context.Context
	end    context.CancelCauseFunc
	wg     sync.WaitGroup // of all shards

	mu     sync.Mutex
	shards map[int32]*Shard // guarded by mu: the newest of each partition, also when it has ended
	closed bool             // guarded by mu
}

// New makes a Runtime that leads nothing yet.
func New(c Config) *Runtime {
	r := &Runtime{cfg: c.withDefaults(), codecs: record.NewCodecs(idleCodecs), shards: make(map[int32]*Shard)}
	r.life, r.end = context.WithCancelCause(context.Background())
	return r
}

// Close ends all loops, and returns when they have ended. Who waits is told COORDINATOR_NOT_AVAILABLE.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end(kerr.CoordinatorNotAvailable)
	r.wg.Wait()
	return nil
}

// Lead says that this node leads a partition in a leader epoch. The partition is read in the background. It does
// nothing when the epoch is known already.
func (r *Runtime) Lead(number int32, l *partition.Leader, epoch int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.shards[number]
	if r.closed || before != nil && !before.resigned && before.epoch >= epoch {
		return
	}
	s := newShard(r, number, l, epoch)
	r.shards[number] = s
	if before != nil {
		before.resign(kerr.NotCoordinator)
	}
	r.wg.Go(func() { s.run(before) })
}

// Resign says that this node does not lead a partition any more. It does not wait for the end of the loop.
func (r *Runtime) Resign(number int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.shards[number]; s != nil {
		s.resigned = true
		s.resign(kerr.NotCoordinator)
	}
}

// Led lists the partitions that this node leads, those too that are still read.
func (r *Runtime) Led() []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var led []int32
	for number, s := range r.shards {
		if !s.resigned {
			led = append(led, number)
		}
	}
	slices.Sort(led)
	return led
}

// Loading says whether a partition that this node leads is still read.
func (r *Runtime) Loading() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.shards {
		if !s.loaded.Load() && s.ctx.Err() == nil {
			return true
		}
	}
	return false
}

// Guard says whether a producer may append to a partition in a transaction, as partition.Leader.TxnGuard does.
func (r *Runtime) Guard(number int32, producerID int64, epoch int16) (g partition.TxnGuard, open bool, err error) {
	s, err := r.serving(number)
	if err != nil {
		return partition.TxnGuard{}, false, err
	}
	g, open, err = s.leader.TxnGuard(producerID, epoch)
	return g, open, refusal(err)
}

// serving gives the loop of a partition that has been read, or says why there is none.
func (r *Runtime) serving(number int32) (*Shard, error) {
	r.mu.Lock()
	s, closed := r.shards[number], r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return nil, kerr.CoordinatorNotAvailable
	case s == nil:
		return nil, kerr.NotCoordinator
	case s.ctx.Err() != nil:
		return nil, s.why()
	case s.broken.Load():
		return nil, kerr.CoordinatorNotAvailable
	case !s.loaded.Load():
		return nil, kerr.CoordinatorLoadInProgress
	}
	return s, nil
}
