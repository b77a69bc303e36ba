package task

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/record"
)

// Times of sources.
const (
	idlePause    = 10 * time.Millisecond // after a poll that gave nothing and did not wait
	lostPause    = 100 * time.Millisecond
	pollPause    = 300 * time.Millisecond // after a poll that may go well another time
	longestPoll  = 10 * time.Second
	freshOffsets = 5 * time.Second // how old what is known of stored offsets may be
)

// source runs a task of a source. One goroutine has it, but for a part that is sent.
type source struct {
	*run
	task     plugin.SourceTask
	producer *producer
	topics   *topics
	encode   encoder
	build    builder
	offsets  target // where source offsets are stored
	flight   *flight
	sending  sync.WaitGroup // of flight
	rejected map[int]*fault // of the poll in hand, by place: what leaders refused
	spent    map[int]bool   // of the poll in hand: what was counted already
	begun    bool           // Running was called

	freshMu sync.Mutex
	fresh   time.Time // guarded by freshMu: when stored offsets were read, zero when some were stored since
}

// flight is a part that is being sent.
type flight struct {
	part *part
	done chan error
}

func (t *run) runSource(ctx context.Context) error {
	s := &source{run: t, encode: encoder{chain: t.chain}}
	if s.build.codec = t.set.codec; s.build.codec != record.None {
		s.build.codecs = record.NewCodecs(1)
	}
	s.producer = &producer{
		client: t.opts.Client, id: t.opts.GroupID + "-" + t.spec.Connector + "-" + strconv.Itoa(t.spec.ID),
		timeout: t.set.txnTimeout, log: t.log, trouble: func(why error) { t.troubles.set(sendWork, why) },
	}
	s.topics = &topics{
		client: t.opts.Client, now: t.opts.Now, rand: t.rand, log: t.log, groups: t.set.creation,
		mayMake: !t.opts.NoTopicCreation, internal: t.opts.Internal, known: make(map[string]*target),
	}
	if t.dead.on() {
		s.topics.groups = append([]topicGroup{t.dead.group()}, s.topics.groups...)
	}
	var lost error
	for {
		err := s.life(ctx, lost)
		if !errors.Is(err, errLost) || ctx.Err() != nil {
			return err
		}
		lost = err
		if err := sleep(ctx, lostPause); err != nil {
			return err
		}
	}
}

// life runs the source from what is stored, until it fails or its transaction is lost, as it was before, if lost is not
// nil.
func (s *source) life(ctx context.Context, lost error) (err error) {
	if err := s.producer.init(ctx); err != nil {
		return fmt.Errorf("transactional id %s: %w", s.producer.id, err)
	}
	if lost != nil {
		s.log.Warn("a transaction was lost: the source starts anew from what is stored", "err", lost)
	}
	if s.spec.StillOwner != nil {
		if err := s.spec.StillOwner(ctx); err != nil {
			return err
		}
	}
	if err := s.readOffsets(ctx); err != nil {
		return err
	}
	if s.task = s.connect.NewSource(); s.task == nil {
		return fmt.Errorf("class %s is no source", s.spec.Class.Class)
	}
	defer func() {
		ctx, cancel := stopping(ctx)
		defer cancel()
		if e := s.task.Stop(ctx); e != nil && err == nil {
			err = fmt.Errorf("stop the source: %w", e)
		}
	}()
	if err := s.task.Start(ctx, s.spec.Props, plugin.SourceContext{
		TaskContext: s.context(), Offset: s.offset,
	}); err != nil {
		return fmt.Errorf("start the source: %w", err)
	}
	if !s.begun {
		s.begun = true
		s.started()
	}
	return s.loop(ctx)
}

// readOffsets reads all offsets that are stored, and asks until it has them.
func (s *source) readOffsets(ctx context.Context) error {
	pause := backoff{first: firstPause, longest: longestPause}
	for {
		begun := time.Now()
		topic, err := s.opts.Store.OffsetTopic(ctx)
		if err == nil {
			if err = s.opts.Store.FreshOffsets(ctx); err == nil {
				s.offsets.topic = topic
				s.freshMu.Lock()
				s.fresh = begun
				s.freshMu.Unlock()
				return nil
			}
		}
		if !transient(err) {
			return fmt.Errorf("stored offsets: %w", err)
		}
		if err := sleep(ctx, pause.delay()); err != nil {
			return err
		}
	}
}

// offset is what is stored for a source partition.
func (s *source) offset(ctx context.Context, partition map[string]any) (map[string]any, error) {
	s.freshMu.Lock()
	old := time.Since(s.fresh) > freshOffsets
	s.freshMu.Unlock()
	if old {
		if err := s.readOffsets(ctx); err != nil {
			return nil, err
		}
	}
	return s.opts.Store.Offset(s.spec.Connector, partition), nil
}

func (s *source) loop(ctx context.Context) error {
	pause := backoff{first: pollPause, longest: longestPoll}
	for {
		if err := s.awaitTurn(ctx); err != nil {
			return err
		}
		begun := time.Now()
		records, err := s.task.Poll(ctx)
		took := time.Since(begun)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case plugin.IsRetriable(err):
			wait := retryAfter(err, pause.delay())
			s.log.Warn("the source could not be read; it is tried again", "err", err, "pause", wait)
			s.troubles.set(pollWork, fmt.Errorf("read the source: %w", err))
			if err := sleep(ctx, wait); err != nil {
				return err
			}
			continue
		case err != nil:
			return fmt.Errorf("read the source: %w", err)
		}
		pause.reset()
		s.troubles.set(pollWork, nil)
		s.metrics.source.poll.millis(took)
		if err := s.write(ctx, records); err != nil {
			return err
		}
		if err := s.task.Stored(ctx); err != nil {
			return fmt.Errorf("tell the source what is stored: %w", err)
		}
		if len(records) == 0 && took < idlePause {
			if err := sleep(ctx, idlePause); err != nil {
				return err
			}
		}
	}
}

// awaitTurn waits while the task is paused.
func (s *source) awaitTurn(ctx context.Context) error {
	for {
		paused, changed := s.paused()
		s.metrics.clock.set(paused)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !paused {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// Bounds of how often a poll is written anew since leaders refused something.
const (
	maxAnew   = 20
	maxResize = 3 // without knowing which records are to blame
)

// write writes the records of a poll with their offsets in one transaction.
func (s *source) write(ctx context.Context, records []*plugin.SourceRecord) error {
	if len(records) == 0 {
		return nil
	}
	m := s.metrics.source
	m.polled.Add(float64(len(records)))
	s.metrics.batch.add(float64(len(records)))
	m.active.Set(float64(len(records)))
	m.actives.add(float64(len(records)))
	defer m.active.Set(0)
	s.rejected, s.spent = nil, nil
	resized := 0
	for try := 0; ; try++ {
		err := s.transact(ctx, records, try > 0)
		if err == nil || errors.Is(err, errLost) {
			return err
		}
		if lost := s.producer.abort(ctx); lost != nil && ctx.Err() == nil {
			return errors.Join(lost, err)
		}
		var refused *refusedError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &refused) && try < maxAnew:
			known, fatal := s.blame(refused)
			if fatal != nil {
				return fatal
			}
			if !known {
				resized++
			}
			if resized > maxResize {
				return fmt.Errorf("topic %s: %w", refused.topic, err)
			}
		case errors.Is(err, errGone) && try < maxAnew:
		default:
			return s.fail(ctx, records, err)
		}
	}
}

// blame notes which records of a batch were refused; known is false where the leader did not say.
func (s *source) blame(refused *refusedError) (known bool, fatal error) {
	list := refusals(refused)
	for i, why := range list {
		switch {
		case i < 0:
			return false, fmt.Errorf("topic %s: %w", refused.topic, why)
		case s.rejected[i] != nil:
			return false, fmt.Errorf("topic %s: %w: %w", refused.topic, errUnwritable, why)
		case s.rejected == nil:
			s.rejected = make(map[int]*fault)
		}
		s.rejected[i] = &fault{stageProduce, s.spec.Class.Class, fmt.Errorf("topic %s: %w", refused.topic, why)}
	}
	return len(list) > 0, nil
}

// refusals are the records that were refused, by their places in the poll.
func refusals(refused *refusedError) map[int]error {
	out := make(map[int]error)
	if len(refused.from) == 1 {
		out[int(refused.from[0])] = refused.err
		return out
	}
	var k *client.KafkaError
	if errors.As(refused.err, &k) {
		for _, r := range k.Records {
			if i := int(r.Index); i >= 0 && i < len(refused.from) {
				out[int(refused.from[i])] = fmt.Errorf("%w: %s", k.Err, r.Message)
			}
		}
	}
	return out
}

// fail is how the task fails. The record to blame is told of before.
func (s *source) fail(ctx context.Context, records []*plugin.SourceRecord, err error) error {
	var blamed *blamedError
	if !errors.As(err, &blamed) || !s.dead.on() {
		return err
	}
	s.dead.add(s.dead.ofSource(ctx, records[blamed.place], blamed.fault))
	if e := s.dead.flush(ctx); e != nil {
		return errors.Join(err, e)
	}
	return err
}

// blamedError says which record of a poll fails the task.
type blamedError struct {
	place int
	topic string // as the source named it
	*fault
}

func (e *blamedError) Error() string { return fmt.Sprintf("record for topic %s: %v", e.topic, e.fault) }

func (e *blamedError) Unwrap() error { return e.fault }
