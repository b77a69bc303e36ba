package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
	"millrace/server/partition"
)

// Bounds of one shard.
const (
	maxMail     = 1024    // requests that wait for the loop
	maxHeld     = 8192    // answers that wait for their commit, before no more requests are taken
	keptBuilder = 1 << 20 // bytes of memory that are kept for the next batch
)

// Shard is one partition in one leader epoch: its loop, and what its State may ask for. All of its exported methods are
// for the loop, but for Number, Epoch and Now.
type Shard struct {
	runtime *Runtime
	number  int32
	epoch   int32
	leader  *partition.Leader
	log     *slog.Logger

	resigned bool // guarded by the runtime's mu: Resign was called

	ctx    context.Context // ends when the node leads no longer; its cause is what callers are told
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // of the commit loop and what Go started
	ended  chan struct{}  // closed when nobody will be answered any more
	done   chan struct{}  // closed when all has ended

	loaded atomic.Bool
	broken atomic.Bool // the log cannot be read at the moment
	mail   chan func() // from Do
	commit *commits

	mu     sync.Mutex
	inner  []func()      // guarded by mu: what Go has to do on the loop
	wakeUp chan struct{} // capacity 1: there is something in inner

	// Owned by the loop.
	state    State
	end      int64 // offset behind all that the state holds
	timers   timers
	timerSeq uint64
	clock    *time.Timer
	rings    time.Time // when the clock is set to ring; zero: it is not
	build    record.Builder
}

func newShard(r *Runtime, number int32, l *partition.Leader, epoch int32) *Shard {
	s := &Shard{
		runtime: r, number: number, epoch: epoch, leader: l,
		log:   r.cfg.Logger.With("topic", r.cfg.Topic, "partition", number, "epoch", epoch),
		ended: make(chan struct{}), done: make(chan struct{}),
		mail: make(chan func(), maxMail), wakeUp: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancelCause(r.life)
	s.commit = newCommits(s)
	return s
}

// Number is the partition's number.
func (s *Shard) Number() int32 { return s.number }

// Epoch is the leader epoch of the load.
func (s *Shard) Epoch() int32 { return s.epoch }

// Now is the node's wall clock.
func (s *Shard) Now() time.Time { return s.runtime.cfg.Now() }

// resign ends the shard. Who waits is told why.
func (s *Shard) resign(why *kerr.Error) { s.cancel(why) }

// why is what callers are told after the end.
func (s *Shard) why() error {
	var why *kerr.Error
	if errors.As(context.Cause(s.ctx), &why) {
		return why
	}
	return kerr.NotCoordinator
}

// run is the life of a shard. The one before it in the same partition ends first, so that there is one state of a
// partition at a time.
func (s *Shard) run(before *Shard) {
	defer close(s.done)
	if before != nil {
		<-before.done
	}
	s.clock = time.NewTimer(time.Hour)
	s.clock.Stop()
	if s.load() {
		s.wg.Go(s.commit.run)
		s.state.Loaded()
		s.loaded.Store(true)
		s.serve()
		s.clock.Stop()
	}
	close(s.ended)
	s.wg.Wait()
	s.state, s.timers = nil, nil
}

// serve is the loop.
func (s *Shard) serve() {
	for {
		mail := s.mail
		if s.commit.crowded() {
			mail = nil
		}
		s.setClock()
		select {
		case <-s.ctx.Done():
			return
		case f := <-mail:
			f()
		case <-s.wakeUp:
			s.runInner()
		case <-s.clock.C:
			s.rings = time.Time{}
			s.runDue()
		case <-s.commit.eased:
		}
		if s.ctx.Err() != nil {
			return
		}
	}
}

// post hands the loop something to do, unless its mailbox is full.
func (s *Shard) post(f func()) error {
	select {
	case s.mail <- f:
		return nil
	default:
		return kerr.CoordinatorLoadInProgress
	}
}

// Go runs work off the loop, and what that returns on the loop, unless the shard has ended before. The context ends
// with the shard, and work must end with that.
func (s *Shard) Go(work func(ctx context.Context) (then func())) {
	s.wg.Go(func() {
		if then := work(s.ctx); then != nil {
			s.later(then)
		}
	})
}

// Committed calls fn on the loop when all that the state holds now is committed, unless the shard has ended before. It
// tells fn when that takes too long.
func (s *Shard) Committed(fn func(error)) {
	s.hold(func(err error) { s.later(func() { fn(err) }) })
}

// later has something done on the loop.
func (s *Shard) later(do func()) {
	s.mu.Lock()
	s.inner = append(s.inner, do)
	s.mu.Unlock()
	signal(s.wakeUp)
}

func (s *Shard) runInner() {
	s.mu.Lock()
	inner := s.inner
	s.inner = nil
	s.mu.Unlock()
	for _, then := range inner {
		if s.ctx.Err() != nil {
			return
		}
		then()
	}
}
