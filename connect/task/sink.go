package task

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/record"
)

// Times and bounds of sinks.
const (
	emptyEvery   = time.Second      // a sink is called at least so often, so that its timers run
	putPause     = time.Second      // before a batch comes again
	longestPut   = time.Minute      // between two tries
	confirmLimit = 10 * time.Second // to hear whether the group went on without the task
	batchLimit   = 8 << 20          // bytes of keys, values and headers in a batch
	slabSize     = 512
	sinkCodecs   = 2
)

// sink runs a task of a sink. One goroutine has it; the membership and the fetch under way have their own.
type sink struct {
	*run
	task   plugin.SinkTask
	member *member
	fetch  *fetcher
	codecs *record.Codecs
	wg     sync.WaitGroup // of the membership

	parts map[client.TopicPartition]*sinkPart // that are open
	lost  int                                 // as of the view that was seen last
	seeks map[client.TopicPartition]int64     // that the sink asked for and that were not made
	work  []*scan                             // fetched, not gone through
	batch *plugin.SinkBatch                   // that the sink has to take, nil: none
	slab  []plugin.SinkRecord
	noted map[string]bool // topics of which it was told that the connector uses them

	tries   backoff // of the batch in hand
	retryAt time.Time
	opens   backoff // of partitions that the sink could not open
	asks    backoff // of partitions of which it could not be found out how they stand
	openAt  time.Time
	fetches backoff
	fetchAt time.Time
	putAt   time.Time // when the sink was called last

	commitAt  time.Time
	commits   int
	mark      string      // of commits
	commitNow atomic.Bool // the sink asked for a commit
}

// sinkPart is a partition that is open.
type sinkPart struct {
	client.TopicPartition
	topicID   [16]byte
	turn      int   // raised by each seek: what was fetched before is of no use
	fetchAt   int64 // where the next fetch begins
	position  int64 // of the next record to go through, <= fetchAt
	taken     int64 // the sink took all below, <= position
	begun     int64 // where it began
	committed int64 // of the group, -1: nothing, or not known
	end       int64 // of what can be read, as far as it was heard, -1: not at all
	sought    bool  // the sink said where to read
	later     time.Time
}

func (t *run) runSink(ctx context.Context) (err error) {
	s := &sink{
		run: t, codecs: record.NewCodecs(sinkCodecs), parts: make(map[client.TopicPartition]*sinkPart),
		seeks: make(map[client.TopicPartition]int64), noted: make(map[string]bool),
		tries: backoff{first: putPause, longest: longestPut}, opens: backoff{first: putPause, longest: longestPut},
		fetches: backoff{first: firstPause, longest: longestPause},
		asks:    backoff{first: firstPause, longest: longestPause},
		putAt:   time.Now(), commitAt: time.Now().Add(t.opts.FlushInterval),
		fetch: &fetcher{requests: t.opts.Requests, uncommitted: t.set.uncommitted, done: make(chan answer, 1)},
	}
	if s.task = t.connect.NewSink(); s.task == nil {
		return fmt.Errorf("class %s is no sink", t.spec.Class.Class)
	}
	if t.spec.StillOwner != nil {
		if err := t.spec.StillOwner(ctx); err != nil {
			return err
		}
	}
	defer func() {
		ctx, cancel := stopping(ctx)
		defer cancel()
		if e := s.task.Stop(ctx); e != nil && err == nil {
			err = fmt.Errorf("stop the sink: %w", e)
		}
	}()
	if err := s.task.Start(ctx, t.spec.Props, s.context()); err != nil {
		return fmt.Errorf("start the sink: %w", err)
	}
	s.join()
	life, leave := context.WithCancel(context.WithoutCancel(ctx)) // the membership outlasts the reading
	s.wg.Go(func() { s.member.run(life) })
	defer s.wg.Wait()
	defer leave()
	defer s.fetch.stop()
	s.started()
	err = s.loop(ctx)
	return s.finish(ctx, err)
}

func (s *sink) context() plugin.SinkContext {
	c := plugin.SinkContext{
		TaskContext: s.run.context(), Group: s.set.group,
		Seek:          func(at client.TopicPartition, offset int64) { s.seeks[at] = offset },
		Mark:          func(text string) { s.mark = text },
		RequestCommit: func() { s.commitNow.Store(true) },
	}
	if s.dead.on() || s.set.log {
		c.Report = s.report
	}
	return c
}

// join makes the membership.
func (s *sink) join() {
	draw := func() string {
		var b [16]byte
		for i := range b {
			b[i] = byte(s.rand.Uint32())
		}
		return hex.EncodeToString(b[:])
	}
	s.member = &member{
		client: s.opts.Client, requests: s.opts.Requests, log: s.log, group: s.set.group,
		name: "connector-consumer-" + s.spec.Connector + "-" + strconv.Itoa(s.spec.ID), host: s.opts.ClientHost,
		topics: s.set.topics, pattern: s.set.pattern, woken: make(chan struct{}, 1), draw: draw, id: draw(),
		held: make(map[client.TopicPartition][16]byte), changed: make(chan struct{}), mark: s.mark,
		session: s.opts.Session,
	}
}

func (s *sink) loop(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		seen := s.member.look()
		if seen.fatal != nil {
			return seen.fatal
		}
		if err := s.rebalance(ctx, seen); err != nil {
			return err
		}
		if s.commitNow.Load() || !time.Now().Before(s.commitAt) {
			if err := s.commit(ctx, slices.Collect(maps.Values(s.parts)), false); err != nil {
				return err
			}
			s.commitNow.Store(false)
			s.commitAt = time.Now().Add(s.opts.FlushInterval)
		}
		paused, changed := s.paused()
		s.metrics.clock.set(paused)
		news := news{seen.changed, changed}
		switch {
		case paused:
			s.wait(ctx, news, s.commitAt)
		case s.batch != nil && time.Now().Before(s.retryAt):
			s.wait(ctx, news, s.retryAt)
		case s.batch == nil:
			s.troubles.set(putWork, nil)
			if err := s.gather(ctx, news); err != nil {
				return err
			}
		}
		if s.batch != nil && !paused && !time.Now().Before(s.retryAt) && ctx.Err() == nil {
			if err := s.deliver(ctx); err != nil {
				return err
			}
		}
	}
}

// news are channels that are closed when there is something new.
type news struct{ member, target <-chan struct{} }

// wait waits for news, or until a time.
func (s *sink) wait(ctx context.Context, n news, until time.Time) {
	if now := time.Now(); s.commitAt.Before(until) && s.commitAt.After(now) {
		until = s.commitAt
	}
	if s.openAt.After(time.Now()) && s.openAt.Before(until) {
		until = s.openAt
	}
	t := time.NewTimer(max(time.Until(until), time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.member:
	case <-n.target:
	case <-ctx.Done():
	}
}

// deliver gives the sink its batch.
func (s *sink) deliver(ctx context.Context) error {
	m := s.metrics.sink
	begun := time.Now()
	err := s.task.Put(ctx, s.batch)
	m.put.millis(time.Since(begun))
	s.putAt = time.Now()
	switch {
	case err == nil:
		for at, next := range s.batch.Next {
			if p := s.parts[at]; p != nil {
				p.taken = next
			}
		}
		s.note()
		m.sent.Add(float64(len(s.batch.Records)))
		m.active.Sub(float64(len(s.batch.Records)))
		s.batch = nil
		s.tries.reset()
		s.seek()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case plugin.IsRetriable(err):
		wait := retryAfter(err, s.tries.delay())
		s.retryAt = time.Now().Add(wait)
		s.seek()
		s.log.Warn("a batch could not be written; it comes again", "err", err, "pause", wait)
		s.troubles.set(putWork, fmt.Errorf("write to the sink: %w", err))
	case s.strayed(ctx):
		s.log.Info("a batch could not be written, and the group has given its partitions to others", "err", err)
	default:
		return fmt.Errorf("write to the sink: %w", err)
	}
	return nil
}

// note notes which topics the connector uses.
func (s *sink) note() {
	for at := range s.batch.Next {
		if !s.opts.NoTopicTracking && !s.noted[at.Topic] {
			s.notes.add(at.Topic)
			s.noted[at.Topic] = true
		}
	}
}

// strayed asks whether the group gave a partition of the batch to somebody else.
func (s *sink) strayed(ctx context.Context) bool {
	s.member.confirm(ctx, confirmLimit)
	seen := s.member.look()
	if seen.lost != s.lost {
		return true
	}
	for at := range s.batch.Next {
		if p := s.parts[at]; p == nil || seen.target[at] != p.topicID {
			return true
		}
	}
	return false
}

// report takes a record that the sink cannot write.
func (s *sink) report(ctx context.Context, r *plugin.SinkRecord, why error) error {
	return s.reject(ctx, r, &fault{stagePut, s.spec.Class.Class, reported{why}})
}

// reject deals with a record that cannot go on. Nil: it is passed over.
func (s *sink) reject(ctx context.Context, r *plugin.SinkRecord, f *fault) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	passed := s.spend(f, "topic", r.Origin.Topic, "partition", r.Origin.Partition, "offset", r.Origin.Offset)
	if s.dead.on() {
		s.dead.add(s.dead.ofSink(r, f))
		if _, now := f.err.(reported); now || !passed || s.dead.full() {
			if err := s.dead.flush(ctx); err != nil {
				return fmt.Errorf("%w, for: %w", err, f)
			}
		}
	}
	if !passed {
		return fmt.Errorf("record %v at offset %d: %w", r.Origin.TopicPartition, r.Origin.Offset, f)
	}
	return nil
}

// finish commits and closes what is open.
func (s *sink) finish(ctx context.Context, err error) error {
	ctx, cancel := stopping(ctx)
	defer cancel()
	s.batch, s.work = nil, nil
	seen := s.member.look()
	lost := seen.lost != s.lost
	all := slices.SortedFunc(maps.Keys(s.parts), client.TopicPartition.Compare)
	if len(all) == 0 {
		return err
	}
	if !lost {
		if e := s.commit(ctx, slices.Collect(maps.Values(s.parts)), true); e != nil {
			s.log.Warn("the last offsets of a sink could not be committed", "err", e)
		}
	}
	if e := s.task.Close(ctx, all, lost); e != nil && err == nil {
		err = fmt.Errorf("close the sink: %w", e)
	}
	clear(s.parts)
	return err
}
