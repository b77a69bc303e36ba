package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/record"
)

const (
	produceWait  = 10 * time.Second
	sureFailures = 4 // of a write that certainly is not in the log, before it is given up
	// compressFrom is the size from which a change is compressed: the settings of many tasks say nearly the same.
	compressFrom = 256 << 10
)

// Update has a change decided against all configs that were acknowledged, and appends it as one batch if nobody has
// written meanwhile; else it is decided anew. An error of decide ends it, as does a decision to change nothing. It
// returns the configs with the change in them.
func (s *Store) Update(ctx context.Context, decide func(*Configs) ([]Change, error)) (*Configs, error) {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return nil, &Error{Message: "other changes take too long; nothing was changed", Cause: ctx.Err()}
	}
	for {
		if _, err := s.configs.reachEnd(ctx); err != nil {
			text := "the end of topic " + s.configs.topic + " cannot be read; nothing was changed"
			return nil, &Error{Message: text, Cause: err}
		}
		now := s.Configs()
		changes, err := decide(now)
		if err != nil || len(changes) == 0 {
			return now, err
		}
		done, err := s.append(ctx, now, now.records(changes))
		if err != nil {
			return nil, err
		}
		if done {
			return s.Configs(), nil
		}
		s.metrics.conflicts.Inc()
	}
}

// append appends records if the topic still ends where the configs do, and waits until they are read back. done is
// false when it ends elsewhere: then nothing was written.
func (s *Store) append(ctx context.Context, at *Configs, records []outRecord) (done bool, err error) {
	if at.topic == (place{}).topic {
		return false, s.makeTopic(ctx, s.configs)
	}
	if err := s.checkTopic(ctx, s.configs); err != nil {
		return false, err
	}
	b, err := s.encodeBatch(records)
	if err != nil {
		return false, err
	}
	s.configs.expect(b.id)
	defer s.configs.forget(b.id)
	a := &appending{s: s, at: at, batch: b}
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		switch outcome := a.try(ctx); outcome {
		case appended:
			return true, a.readBack(ctx)
		case elsewhere:
			if done, known, err := a.settle(ctx, wait); known || err != nil {
				return done, err
			}
		case failed:
			return false, a.failure()
		case unsettled:
			if err := pause(ctx, wait); err != nil {
				return false, a.failure()
			}
		}
	}
}

// batch is what a change appends, as bytes that may be sent more than once.
type batch struct {
	id    writeID
	bytes []byte
	count int64 // of records
}

func (s *Store) encodeBatch(records []outRecord) (*batch, error) {
	out := &batch{count: int64(len(records))}
	copy(out.id[:], s.run[:])
	binary.BigEndian.PutUint64(out.id[8:], s.count.Add(1))
	var b record.Builder
	size, now := 0, s.opts.Now().UnixMilli()
	headers := []record.Header{{Key: writeHeader, Value: out.id[:]}}
	for i := range records {
		r := &records[i]
		if n := len(r.key) + len(r.value); n > maxRecordBytes {
			text := fmt.Sprintf("%.300q makes a record of %d bytes; %d are allowed", r.key, n, maxRecordBytes)
			return nil, &Error{Message: text, Refused: true}
		}
		if size += len(r.key) + len(r.value); size > compressFrom {
			b.SetCodec(record.Zstd)
		}
		b.Append(&record.Record{Timestamp: now, Key: []byte(r.key), Value: r.value, Headers: headers})
	}
	out.bytes = b.Build()
	return out, nil
}

// The outcomes of a try.
type outcome int8

const (
	appended  outcome = iota // the records are in the topic
	elsewhere                // the topic ends elsewhere
	unsettled                // another try will tell
	failed                   // another try makes no sense
)

// appending is a change under way.
type appending struct {
	s      *Store
	at     *Configs
	batch  *batch
	maybe  bool  // a try may have written
	sure   int   // how many have certainly not
	actual int64 // where the topic ends, if elsewhere; -1 if that is not known
	err    error // of the last try
}

// try sends the batch. The expected offset makes sure that it is in the topic once at most, however often it is sent.
func (a *appending) try(ctx context.Context) outcome {
	wait := produceWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(deadline), time.Millisecond))
	}
	c := a.s.client
	topic, err := c.Topic(ctx, a.s.configs.topic, client.Refuse)
	if err != nil || topic.ID != a.at.topic {
		a.actual, a.err = -1, err
		if err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
			return elsewhere
		}
		return a.retry(a.maybe)
	}
	results, err := c.Produce(ctx, client.ProduceRequest{
		Acks: client.AcksAll, Timeout: wait, Batches: []client.Batch{{
			Topic: topic, Bytes: append(record.Batch(nil), a.batch.bytes...), Expected: &a.at.Offset,
		}},
	})
	if err == nil {
		err = results[0].Err
	}
	a.err = err
	var f *client.KafkaError
	switch {
	case err == nil && results[0].BaseOffset != a.at.Offset:
		a.maybe = true
		a.err = errors.New("the cluster does not append on conditions")
		return failed
	case err == nil:
		return appended
	case !errors.As(err, &f):
		return a.retry(true)
	case errors.Is(err, kerr.InvalidUpdateVersion):
		a.actual = f.ActualOffset
		return elsewhere
	case isRefusal(err):
		return failed
	}
	return a.retry(!f.NotWritten && !isCertain(err))
}

// retry notes a failure after which another try may succeed.
func (a *appending) retry(maybe bool) outcome {
	if a.maybe = a.maybe || maybe; a.maybe {
		return unsettled
	}
	if a.sure++; a.sure >= sureFailures {
		return failed
	}
	return unsettled
}

// isRefusal reports whether a batch is refused for what it is, or who sends it.
func isRefusal(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) ||
		errors.Is(err, kerr.InvalidRecord) || errors.Is(err, kerr.InvalidTimestamp) ||
		errors.Is(err, kerr.PolicyViolation) ||
		errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)
}

// isCertain reports whether an error says that nothing was written.
func isCertain(err error) bool {
	return errors.Is(err, kerr.NotEnoughReplicas) || errors.Is(err, kerr.LeaderNotAvailable) ||
		errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// settle finds out what became of a batch when the topic no longer ends where it was to go: one of the tries may have
// written it. What has taken its place may not be committed yet, and never be: after some time another try will tell.
func (a *appending) settle(ctx context.Context, wait time.Duration) (done, known bool, err error) {
	t := a.s.configs
	if !a.maybe {
		bounded, cancel := context.WithTimeout(ctx, maxRetryWait) // nothing is lost by waiting
		defer cancel()
		if a.actual < a.at.Offset { // also where it is not known
			t.kick()
			_ = pause(bounded, retryWait) // reachEnd sees the end of ctx
			return false, true, nil
		}
		_ = t.awaitOffset(bounded, a.at.topic, a.actual) // the decision is made anew in any case
		return false, true, nil
	}
	if a.actual < 0 {
		return false, true, a.failure()
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := t.awaitOffset(bounded, a.at.topic, a.at.Offset+1); err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			return false, false, nil
		}
		a.err = err
		return false, true, a.failure()
	}
	return t.seen(a.batch.id), true, nil
}

// readBack waits until the Store's own reader has the batch.
func (a *appending) readBack(ctx context.Context) error {
	err := a.s.configs.awaitOffset(ctx, a.at.topic, a.at.Offset+a.batch.count)
	if err != nil {
		a.maybe, a.err = true, err
		return a.failure()
	}
	return nil
}

// failure is the error of a change that came to nothing, or perhaps not.
func (a *appending) failure() error {
	topic := a.s.configs.topic
	if a.maybe {
		return &Error{
			Unknown: true, Cause: a.err,
			Message: "it is not known whether topic " + topic + " has taken the change in; send the same request again",
		}
	}
	tooLarge := errors.Is(a.err, kerr.MessageTooLarge) || errors.Is(a.err, kerr.RecordListTooLarge)
	return &Error{Message: "nothing was written to topic " + topic, Cause: a.err, Refused: tooLarge}
}

// awaitOffset waits until the first partition is read up to an offset. It fails when the topic is no longer read.
func (t *tail) awaitOffset(ctx context.Context, topic [16]byte, offset int64) error {
	for {
		at, moved := t.whereabouts()
		switch {
		case at.topic != topic:
			return errors.New("the topic is another one now")
		case len(at.offsets) > 0 && at.offsets[0] >= offset:
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// expect has the tail look out for a write.
func (t *tail) expect(id writeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending[id] = false
}

func (t *tail) forget(id writeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, id)
}

// seen reports whether a write was read back.
func (t *tail) seen(id writeID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending[id]
}

// checkTopic refuses a topic that would forget what is written.
func (s *Store) checkTopic(ctx context.Context, t *tail) error {
	topic, err := s.client.Topic(ctx, t.topic, client.Refuse)
	if err != nil {
		return nil //nolint:nilerr // the write itself tells
	}
	if t == s.configs && len(topic.Partitions) != 1 {
		return &Error{Message: fmt.Sprintf("topic %s has %d partitions, and may have one only: delete it, and it is made as "+
			"it must be, or name another one", t.topic, len(topic.Partitions))}
	}
	compacted, _ := s.client.Compacted(ctx, topic)
	if expires, known := s.client.Expires(ctx, topic); known && (expires || !compacted) {
		text := "topic " + t.topic + " would forget what is written: set its cleanup.policy to compact alone"
		return &Error{Message: text}
	}
	return nil
}

// maxReplicas is how many replicas a topic gets where nothing else is asked for, and there are so many brokers. A
// cluster of ours gives it as many as all topics of its own have, also for brokers that have yet to register.
const maxReplicas = 3

// makeTopic makes a topic, and waits for the brokers that it needs. One that is there already is as good.
func (s *Store) makeTopic(ctx context.Context, t *tail) error {
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		err := s.askForTopic(ctx, t)
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			t.kick()
			return nil
		}
		again := errors.Is(err, client.ErrNoAnswer) || kerr.IsRetriable(err) ||
			errors.Is(err, kerr.InvalidReplicationFactor) // brokers have yet to register
		if !again || pause(ctx, wait) != nil {
			return &Error{Message: "topic " + t.topic + " cannot be made", Cause: err}
		}
	}
}

func (s *Store) askForTopic(ctx context.Context, t *tail) error {
	partitions := int32(1)
	switch t {
	case s.offsets:
		partitions = s.opts.OffsetPartitions
	case s.status:
		partitions = s.opts.StatusPartitions
	}
	replicas, any := s.opts.Replication, s.opts.Replication <= 0
	if any {
		cluster, err := s.client.Cluster(ctx)
		if err != nil {
			return err
		}
		replicas = int16(min(maxReplicas, len(cluster.Brokers)))
	}
	policy, anyTime := "compact", fmt.Sprint(math.MaxInt64)
	_, err := s.client.CreateTopic(ctx, client.NewTopic{
		Name: t.topic, Partitions: partitions, ReplicationFactor: replicas, Internal: any,
		Configs: []client.NewConfig{
			{Name: "cleanup.policy", Value: &policy},
			{Name: "message.timestamp.after.max.ms", Value: &anyTime}, // the leader's clock may be behind ours
		},
	})
	return err
}

// topicOf is a topic to write to, which is made if it does not exist.
func (s *Store) topicOf(ctx context.Context, t *tail) (*client.Topic, error) {
	for {
		topic, err := s.client.Topic(ctx, t.topic, client.Refuse)
		if err == nil {
			return topic, s.checkTopic(ctx, t)
		}
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil, &Error{Message: "topic " + t.topic + " cannot be found", Cause: err}
		}
		if err := s.makeTopic(ctx, t); err != nil {
			return nil, err
		}
		if err := pause(ctx, retryWait); err != nil { // this node may not know it yet
			return nil, &Error{Message: "topic " + t.topic + " cannot be found", Cause: err}
		}
	}
}
