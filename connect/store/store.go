package store

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/client"
	"millrace/client/statetopic"
)

// The names and sizes of the topics where the Options say nothing.
const (
	DefaultConfigTopic      = "connect-configs"
	DefaultOffsetTopic      = "connect-offsets"
	DefaultStatusTopic      = "connect-status"
	DefaultOffsetPartitions = 25
	DefaultStatusPartitions = 5
)

// The bounds of waits.
const (
	freshWait = 10 * time.Second // for the end of a topic, once
	writeWait = 30 * time.Second // for the outcome of a change, where the caller has no sooner deadline
)

// Options are what a Store needs. Client must be there; all else has a default.
type Options struct {
	Client *client.Client
	// ConfigTopic, OffsetTopic and StatusTopic are the names of the topics: connect-configs, connect-offsets and
	// connect-status by default.
	ConfigTopic, OffsetTopic, StatusTopic string
	// OffsetPartitions and StatusPartitions are how many partitions these topics are made with, 25 and 5 by default.
	OffsetPartitions, StatusPartitions int32
	// Replication is how many replicas the topics are made with; -1 or 0 is three, or as many as there are brokers.
	Replication int16
	Logger      *slog.Logger
	Now         func() time.Time // the wall clock
	Rand        *rand.Rand
	Registerer  prometheus.Registerer
}

// Store is the shared state of connectors, as far as it is read. It is safe for concurrent use.
type Store struct {
	opts    Options
	client  *client.Client
	log     *slog.Logger
	metrics *metrics

	configs, offsets, status *statetopic.Tail

	writing chan struct{} // holds one token while a change of configs is under way
	puts    putQueue

	// known is the newest snapshot of configs, and offsetsNow and statusNow what the other topics add up to.
	known      atomic.Pointer[Configs]
	offsetsNow atomic.Pointer[offsetFold]
	statusNow  atomic.Pointer[statusFold]

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of configs; guarded by mu
}

// New returns a Store. It does no I/O; Run does.
func New(o Options) (*Store, error) {
	if o.Client == nil {
		return nil, errors.New("connect/store: Options need a Client")
	}
	o.setDefaults()
	s := &Store{
		opts: o, client: o.Client, log: o.Logger, writing: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	s.puts.wake = make(chan struct{}, 1)
	s.known.Store(&Configs{place: &statetopic.Place{}})
	s.offsetsNow.Store(newOffsetFold(s.skipper(o.OffsetTopic)))
	s.statusNow.Store(newStatusFold(s.skipper(o.StatusTopic)))
	s.configs = s.newTail(o.ConfigTopic, &feed{
		renew:   func() fold { return newConfigFold(s.skipper(o.ConfigTopic)) },
		publish: s.publishConfigs,
	})
	s.offsets = s.newTail(o.OffsetTopic, &feed{
		renew:   func() fold { return newOffsetFold(s.skipper(o.OffsetTopic)) },
		publish: func(f fold, _ *statetopic.Place) { s.offsetsNow.Store(f.(*offsetFold)) },
	})
	s.status = s.newTail(o.StatusTopic, &feed{
		renew:   func() fold { return newStatusFold(s.skipper(o.StatusTopic)) },
		publish: func(f fold, _ *statetopic.Place) { s.statusNow.Store(f.(*statusFold)) },
	})
	s.metrics = newMetrics(o.Registerer, s)
	return s, nil
}

func (o *Options) setDefaults() {
	for _, p := range []struct {
		v *string
		d string
	}{
		{&o.ConfigTopic, DefaultConfigTopic}, {&o.OffsetTopic, DefaultOffsetTopic}, {&o.StatusTopic, DefaultStatusTopic},
	} {
		if *p.v == "" {
			*p.v = p.d
		}
	}
	if o.OffsetPartitions <= 0 {
		o.OffsetPartitions = DefaultOffsetPartitions
	}
	if o.StatusPartitions <= 0 {
		o.StatusPartitions = DefaultStatusPartitions
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
}

func (s *Store) tails() [3]*statetopic.Tail {
	return [...]*statetopic.Tail{s.configs, s.offsets, s.status}
}

// Run reads the topics until ctx ends, and returns nil then. It goes on after errors.
func (s *Store) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, t := range s.tails() {
		running.Go(func() { t.Run(ctx) })
	}
	running.Go(func() { s.writePuts(ctx) })
	running.Wait()
	return nil
}

// AwaitRead waits until all of the topics was read once.
func (s *Store) AwaitRead(ctx context.Context) error {
	for _, t := range s.tails() {
		if err := t.AwaitRead(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Fresh waits until all configs and status that were acknowledged before it was called are read. All who wait share one
// question to the cluster.
func (s *Store) Fresh(ctx context.Context) error { return freshOf(ctx, s.configs, s.status) }

// FreshOffsets waits until all offsets are read whose transactions had ended when it was called. A transaction of which
// the end is acknowledged has ended in all partitions once InitTxn has given a next producer of its id; others that are
// open are not waited for.
func (s *Store) FreshOffsets(ctx context.Context) error { return freshOf(ctx, s.offsets) }

func freshOf(ctx context.Context, tails ...*statetopic.Tail) error {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	asks := make([]*statetopic.Ask, len(tails))
	for i, t := range tails {
		asks[i] = t.Ask()
	}
	for i, t := range tails {
		if err := t.Reach(ctx, asks[i]); err != nil {
			return &Error{Message: "the end of topic " + t.Topic() + " cannot be read", Cause: err}
		}
	}
	return nil
}

// Error is why something was not carried out, or perhaps was.
type Error struct {
	Message string
	Unknown bool  // the change may or may not have been made
	Refused bool  // the change is refused for what it is
	Cause   error // what the cluster said
}

func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.Cause.Error()
}

func (e *Error) Unwrap() error { return e.Cause }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
