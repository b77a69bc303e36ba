package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

const (
	fetchBytes   = 4 << 20
	fetchWait    = 2 * time.Second
	fetchTimeout = 30 * time.Second
	missingWait  = time.Second // between looks for a topic that does not exist
	retryWait    = 20 * time.Millisecond
	maxRetryWait = 2 * time.Second
)

// fold is what the records of a topic add up to. The tail alone calls it.
type fold interface {
	// take takes records in, in the order in which they became valid.
	take(records []taken)
	// settle is called once, when all that there was at the start is taken in.
	settle()
}

// place is where a topic is read up to. It never changes. A topic that does not exist has the zero id and no
// partitions.
type place struct {
	topic   [16]byte
	starts  []int64 // where the partitions began when reading did
	offsets []int64 // behind what was read, by partition
}

// covers says whether all below the offsets of another place is read.
func (p *place) covers(o *place) bool {
	if p.topic != o.topic || len(p.offsets) < len(o.offsets) {
		return false
	}
	for i, offset := range o.offsets {
		if p.offsets[i] < offset {
			return false
		}
	}
	return true
}

// tail reads one topic to its end and on, all partitions with one waiting fetch, and feeds a fold. Records of a
// transaction count from where that is committed; nothing waits for transactions that others have open.
type tail struct {
	s       *Store
	topic   string
	renew   func() fold
	publish func(f fold, at *place) // f is all that there is up to a place
	skip    skip
	kicked  chan struct{} // wakes the tail that waits for the topic
	asking  chan struct{} // wakes the loop that asks for the topic's end

	// Of the reading goroutine alone.
	fold  fold
	sifts []sift // by partition

	mu      sync.Mutex
	at      *place           // what is published; guarded by mu
	loaded  bool             // all was read once; guarded by mu
	moved   chan struct{}    // closed when at or loaded changes; guarded by mu
	pending map[writeID]bool // own writes under way: whether they were read back; guarded by mu
	next    *ask             // what the next question for the end is for; guarded by mu
	stopped bool             // nobody asks any more; guarded by mu
}

func newTail(s *Store, topic string, renew func() fold, publish func(fold, *place)) *tail {
	return &tail{
		s: s, topic: topic, renew: renew, publish: publish, skip: s.skipper(topic),
		kicked: make(chan struct{}, 1), asking: make(chan struct{}, 1),
		at: &place{}, moved: make(chan struct{}), pending: map[writeID]bool{},
	}
}

// run reads until ctx ends. It goes on after errors.
func (t *tail) run(ctx context.Context) {
	wait := retryWait
	for ctx.Err() == nil {
		before, _ := t.whereabouts()
		err := t.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if now, _ := t.whereabouts(); now != before {
			wait = retryWait
		}
		if err != nil {
			t.s.log.Debug("reading a topic of connectors is interrupted", "topic", t.topic, "err", err)
			_ = pause(ctx, wait) // its end ends the loop
			wait = min(2*wait, maxRetryWait)
		}
	}
}

// follow reads the topic as it is now, from where the fold is if that is of this topic, until something is wrong.
func (t *tail) follow(ctx context.Context) error {
	topic, err := t.s.client.Renew(ctx, t.topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if at, _ := t.whereabouts(); len(at.offsets) > 0 {
			t.s.log.Warn("a topic of connectors is gone, and all that was in it", "topic", t.topic)
		}
		t.fold, t.sifts = t.renew(), nil
		t.fold.settle()
		t.show(&place{}, nil)
		t.awaitTopic(ctx)
		return nil
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

// awaitTopic returns when it is time to look for the topic again.
func (t *tail) awaitTopic(ctx context.Context) {
	timer := time.NewTimer(missingWait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.kicked:
	case <-ctx.Done():
	}
}

// kick has the tail look for the topic now.
func (t *tail) kick() {
	t.s.client.Forget(t.topic)
	select {
	case t.kicked <- struct{}{}:
	default:
	}
}

// show publishes what the fold says, and wakes who waits for it.
func (t *tail) show(at *place, own []writeID) {
	t.publish(t.fold, at)
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

func (t *tail) whereabouts() (at *place, moved <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at, t.moved
}

func (t *tail) isLoaded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.loaded
}

// follower reads one topic as it is now.
type follower struct {
	tail  *tail
	topic *client.Topic
	at    place // as far as it is read
	// until is where the topic ended when it was begun anew; nil once that is read and published.
	until *place
	own   []writeID // read before anything was published
}

func (f *follower) partitions() []client.TopicPartition {
	out := make([]client.TopicPartition, len(f.topic.Partitions))
	for i := range out {
		out[i] = client.TopicPartition{Topic: f.topic.Name, Partition: int32(i)}
	}
	return out
}

// begin finds where to read on.
func (f *follower) begin(ctx context.Context) error {
	starts, err := f.lookUp(ctx, client.Earliest)
	if err != nil {
		return err
	}
	ends, err := f.lookUp(ctx, client.Latest)
	if err != nil {
		return err
	}
	t := f.tail
	was, _ := t.whereabouts()
	f.at = place{topic: f.topic.ID, starts: starts, offsets: starts}
	end := &place{topic: f.topic.ID, offsets: ends}
	if t.isLoaded() && was.topic == f.topic.ID && slices.Equal(was.starts, starts) && end.covers(was) {
		f.at.offsets = was.offsets
		return nil
	}
	if len(was.offsets) > 0 {
		t.s.log.Warn("a topic of connectors is another one, or was cut: it is read again from its start", "topic", t.topic)
	}
	t.fold, t.sifts = t.renew(), make([]sift, len(starts))
	f.until = end
	f.progress(nil)
	return nil
}

// lookUp asks where all partitions start or end.
func (f *follower) lookUp(ctx context.Context, which int64) ([]int64, error) {
	return lookUp(ctx, f.tail.s.client, f.partitions(), which)
}

func lookUp(ctx context.Context, c *client.Client, of []client.TopicPartition, which int64) ([]int64, error) {
	asked := make([]client.OffsetLookup, len(of))
	for i, at := range of {
		asked[i] = client.OffsetLookup{TopicPartition: at, Timestamp: which}
	}
	found, err := c.LookUpOffsets(ctx, asked, client.ReadUncommitted)
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(found))
	for i := range found {
		if found[i].Err != nil {
			return nil, found[i].Err
		}
		out[i] = found[i].Offset
	}
	return out, nil
}

// step fetches once.
func (f *follower) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if now, err := f.tail.s.client.Topic(ctx, f.topic.Name, client.Refuse); err != nil {
		return err
	} else if now.ID != f.topic.ID || len(now.Partitions) != len(f.topic.Partitions) {
		return errors.New("the topic is another one, or has other partitions")
	}
	asked := make([]client.FetchPartition, len(f.at.offsets))
	for i, offset := range f.at.offsets {
		asked[i] = client.FetchPartition{Partition: int32(i), Offset: offset}
	}
	results, err := f.tail.s.client.Fetch(ctx, client.FetchRequest{
		Topic: f.topic, Partitions: asked, MaxWait: fetchWait, MinBytes: 1, MaxBytes: fetchBytes,
	})
	if err != nil {
		return err
	}
	next := slices.Clone(f.at.offsets)
	var records []taken
	var faults []error
	for i := range results {
		if records, err = f.take(records, i, &results[i], &next[i]); err != nil {
			faults = append(faults, err)
		}
	}
	f.advance(records, next)
	return errors.Join(faults...)
}

// take takes what came of one partition.
func (f *follower) take(out []taken, i int, got *client.FetchResult, next *int64) ([]taken, error) {
	var fault *client.KafkaError
	switch {
	case errors.As(got.Err, &fault) && errors.Is(got.Err, kerr.CorruptMessage) && fault.ResumeOffset > *next:
		f.tail.skip("a damaged batch", int32(i), *next, got.Err)
		*next = fault.ResumeOffset
		return out, nil
	case got.Err != nil:
		return out, got.Err
	case got.LogStartOffset > f.at.starts[i]:
		return out, errors.New("the topic was cut")
	case got.HighWatermark < 0: // nothing is said of it
		return out, nil
	}
	return f.tail.sifts[i].take(out, int32(i), got, next, f.tail.skip)
}

// advance folds records and moves on.
func (f *follower) advance(records []taken, next []int64) {
	if len(records) == 0 && slices.Equal(next, f.at.offsets) {
		return
	}
	f.tail.fold.take(records)
	f.at.offsets = next
	var own []writeID
	for i := range records {
		if records[i].own {
			own = append(own, records[i].write)
		}
	}
	f.progress(own)
}

// progress publishes what is read, once that is all that there was.
func (f *follower) progress(own []writeID) {
	f.own = append(f.own, own...)
	at := f.at
	if f.until != nil {
		if !at.covers(f.until) {
			return
		}
		f.until = nil
		f.tail.fold.settle()
	}
	f.tail.show(&at, f.own)
	f.own = nil
}
