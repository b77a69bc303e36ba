// Package statetopic keeps in memory what the records of a topic add up to, on every node that wants it, and appends to
// the topic what is decided by that.
//
// A Tail owns the reading of one topic, from its start to its end and on; what its records mean is the matter of the
// Fold that it feeds. It promises two things. Who has seen a question for the end of the topic answered has in memory
// all that was acknowledged before the question was put, by whomever (Ask, Reach). And a batch that was decided against
// what is read up to a place is appended there or nowhere, once or not at all, however many decide at the same time and
// whatever is lost on the way (Append): nobody is elected, and nobody holds a lock. What may or may not have been
// written is said to be unknown.
//
// Every append must be conditional to keep the second promise: one that is not makes decisions void, not wrong. The
// schema registry and the store of connectors are its callers. It knows the cluster only as a client.Client.
package statetopic

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

const (
	missingWait  = time.Second // between looks for a topic that does not exist
	retryWait    = 20 * time.Millisecond
	maxRetryWait = 2 * time.Second
)

// Fold is what the records of a topic add up to. One goroutine calls it.
type Fold interface {
	// Renew forgets all: the topic is read from its start, or is gone.
	Renew()
	// Take takes records in, in the order in which they became valid. They are not valid any more when it returns.
	Take(records []Record)
	// Show makes what was taken visible: it is all that there is up to a place. The first call after Renew comes when
	// all is taken that was there then.
	Show(at *Place)
}

// Place is where a topic is read up to. It never changes. A topic that does not exist has the zero id and no
// partitions.
type Place struct {
	Topic   [16]byte
	Starts  []int64 // where the partitions began when reading did
	Offsets []int64 // behind what was read, by partition
}

// Exists says whether there is a topic.
func (p *Place) Exists() bool { return p.Topic != [16]byte{} }

// Offset is how far the first partition is read, 0 where there is none.
func (p *Place) Offset() int64 {
	if len(p.Offsets) == 0 {
		return 0
	}
	return p.Offsets[0]
}

// covers says whether all below the offsets of another place is read.
func (p *Place) covers(o *Place) bool {
	if p.Topic != o.Topic || len(p.Offsets) < len(o.Offsets) {
		return false
	}
	for i, offset := range o.Offsets {
		if p.Offsets[i] < offset {
			return false
		}
	}
	return true
}

// Options are what a Tail needs. All down to FreshWait must be there.
type Options struct {
	Client *client.Client
	Topic  string
	What   string // what the topic is called in the log
	Fold   Fold
	// Skip takes note of something that is not understood and passed over.
	Skip   func(what string, partition int32, offset int64, err error)
	Logger *slog.Logger
	Rand   *rand.Rand // names the writes of this Tail; New alone calls it
	// FreshWait bounds one question for the end of the topic.
	FreshWait time.Duration

	// FirstOnly reads the first partition alone, if there should be others.
	FirstOnly bool
	// RecordBytes is the size of key and value from which a record is passed over; 0: none is.
	RecordBytes int
	// CompressFrom is the size of keys and values from which a batch is compressed; 0: none is.
	CompressFrom int
	Flaws        Flaws
}

// Flaws are faults planted on purpose, for tests that must find them.
type Flaws struct {
	AnyOffset bool // appends wherever the topic ends
	Early     bool // acknowledges what the leader alone has, before it is read back
}

// Tail reads one topic to its end and on, all partitions with one waiting fetch. Records of a transaction count from
// where that is committed; nothing waits for transactions that others have open. It is safe for concurrent use.
type Tail struct {
	opts   Options
	run    [8]byte       // a random name of this Tail
	count  atomic.Uint64 // of its own writes
	kicked chan struct{} // wakes the reader that waits for the topic
	asking chan struct{} // wakes the loop that asks for the topic's end

	// Of the reading goroutine alone.
	sifts []sift // by partition
	whole bool   // the Fold has shown what it has taken

	mu      sync.Mutex
	at      *Place           // what is shown; guarded by mu
	loaded  bool             // something was shown; guarded by mu
	moved   chan struct{}    // closed when at or loaded changes; guarded by mu
	lag     int64            // records that were not read yet when the topic was last heard of; guarded by mu
	heard   time.Time        // when that was; guarded by mu
	pending map[writeID]bool // own writes under way: whether they were read back; guarded by mu
	next    *Ask             // what the next question for the end is for; guarded by mu
	stopped bool             // nobody asks any more; guarded by mu
}

// New makes a Tail. It does no I/O; Run reads.
func New(o Options) *Tail {
	t := &Tail{
		opts: o, kicked: make(chan struct{}, 1), asking: make(chan struct{}, 1),
		at: &Place{}, moved: make(chan struct{}), pending: map[writeID]bool{},
	}
	binary.BigEndian.PutUint64(t.run[:], o.Rand.Uint64())
	return t
}

// Run reads until ctx ends. It goes on after errors.
func (t *Tail) Run(ctx context.Context) {
	var asking sync.WaitGroup
	asking.Go(func() { t.answerAsks(ctx) })
	defer asking.Wait()
	wait := retryWait
	for ctx.Err() == nil {
		before := t.At()
		err := t.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if t.At() != before {
			wait = retryWait
		}
		if err != nil {
			t.opts.Logger.Debug("reading "+t.opts.What+" is interrupted", "topic", t.opts.Topic, "err", err)
			_ = pause(ctx, wait) // its end ends the loop
			wait = min(2*wait, maxRetryWait)
		}
	}
}

// follow reads the topic as it is now, from where the Fold is if that is of this topic, until something is wrong.
func (t *Tail) follow(ctx context.Context) error {
	topic, err := t.opts.Client.Renew(ctx, t.opts.Topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.gone()
		return awaitEither(ctx, t.kicked, missingWait)
	}
	if err != nil {
		return err
	}
	f := &follower{tail: t, topic: topic}
	if err := f.begin(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := f.step(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// gone takes note that there is no topic.
func (t *Tail) gone() {
	t.hear(0)
	switch exists := t.At().Exists(); {
	case exists:
		t.opts.Logger.Warn(t.opts.What+" is gone, and all that was in it", "topic", t.opts.Topic)
	case t.whole:
		return // as before
	}
	t.renew(0)
	t.show(&Place{}, nil)
}

// renew has the Fold forget all.
func (t *Tail) renew(partitions int) {
	t.sifts, t.whole = make([]sift, partitions), false
	t.opts.Fold.Renew()
}

// kick has the reader look for the topic now.
func (t *Tail) kick() {
	t.opts.Client.Forget(t.opts.Topic)
	select {
	case t.kicked <- struct{}{}:
	default:
	}
}

// hear notes that the topic was heard of, and how many records of it are not read yet.
func (t *Tail) hear(lag int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lag, t.heard = lag, time.Now()
}

// show shows what the Fold has taken, and wakes who waits for it. What the Fold shows is never behind the Tail.
func (t *Tail) show(at *Place, own []writeID) {
	t.whole = true
	t.opts.Fold.Show(at)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.loaded = at, true
	for _, id := range own {
		if _, ok := t.pending[id]; ok {
			t.pending[id] = true
		}
	}
	close(t.moved)
	t.moved = make(chan struct{})
}

// Topic names the topic.
func (t *Tail) Topic() string { return t.opts.Topic }

// At is where the topic is read up to.
func (t *Tail) At() *Place {
	at, _ := t.whereabouts()
	return at
}

func (t *Tail) whereabouts() (at *Place, moved <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at, t.moved
}

// Loaded says whether all of the topic was read once.
func (t *Tail) Loaded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.loaded
}

// Heard is when the cluster last told of the topic, and how many of its records were not read yet then.
func (t *Tail) Heard() (lag int64, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lag, t.heard
}

// pause waits for d, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error { return awaitEither(ctx, nil, d) }

// awaitEither waits for a channel, but no longer than d.
func awaitEither(ctx context.Context, moved <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-moved:
		return nil
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
