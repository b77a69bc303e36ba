package schemaregistry

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/record"
)

// proposal is what a decision would write.
type proposal struct {
	records []outRecord
	more    bool   // decide again afterwards: this is a part
	written func() // called when the records are in the log; may be nil
}

// outRecord is a record to write. A nil value is a null.
type outRecord struct {
	key   key
	value any
}

const (
	produceWait  = 10 * time.Second
	sureFailures = 4 // of a write that certainly is not in the log, before it is given up
)

// write has a decision made against the state at the end of the log, and carries it out. Where the log has moved on
// meanwhile the decision is made anew. An error of the decision counts only if it was made at the end, too.
func (r *Registry) write(ctx context.Context, decide func(context.Context) (proposal, error)) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limits.WriteWait)
	defer cancel()
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
	case <-ctx.Done():
		return &Error{Code: CodeStoreFailed, Message: "other writes take too long; nothing was written", Cause: ctx.Err()}
	}
	for begun := false; ; {
		p, done, err := r.writeOne(ctx, decide)
		switch {
		case err != nil && begun:
			return inPart(err)
		case err != nil || done && !p.more:
			return err
		}
		begun = begun || done
	}
}

// writeOne makes a decision and carries it out. done is false where it has to be made anew.
func (r *Registry) writeOne(ctx context.Context, decide func(context.Context) (proposal, error)) (
	p proposal, done bool, err error,
) {
	at, err := r.reachEnd(ctx)
	if err != nil {
		return p, false, &Error{
			Code: CodeStoreFailed, Message: "the end of " + r.cfg.Topic + " cannot be read: nothing was written", Cause: err,
		}
	}
	p, err = decide(ctx)
	if now, _ := r.whereabouts(); now != at {
		return p, false, nil
	}
	if err != nil || len(p.records) == 0 {
		return proposal{}, true, err
	}
	if done, err = r.append(ctx, at, r.withMarks(p.records)); done && err == nil && p.written != nil {
		p.written()
	}
	return p, done, err
}

// inPart is the error of a write of which a part is in the log.
func inPart(err error) error {
	e := *AsError(err)
	if e.Code == CodeStoreFailed || e.Code == CodeStoreTimeout {
		e.Code, e.Unknown = CodeStoreTimeout, true
		e.Message = "a part of the change is written, perhaps not all; send the same request again"
	}
	return &e
}

// reachEnd is catchUp for a write, which goes on as long as it has time where the log's end cannot be told.
func (r *Registry) reachEnd(ctx context.Context) (position, error) {
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		at, err := r.catchUp(ctx)
		if err == nil || errors.Is(err, errStopped) || isRefusal(err) || pause(ctx, wait) != nil {
			return at, err
		}
	}
}

// withMarks adds marks to records for contexts whose greatest id the log would forget once it is compacted: another
// registry has deleted its schema.
func (r *Registry) withMarks(records []outRecord) []outRecord {
	if r.cfg.Flaws.ForgetMark {
		return slices.DeleteFunc(records, func(o outRecord) bool { return o.key.kind == kindIDs })
	}
	marked := map[string]bool{}
	for i := range records {
		if k := records[i].key; k.kind == kindIDs {
			marked[k.subject.Context] = true
		}
	}
	var marks []outRecord
	r.read(func(s *state) {
		for i := range records {
			name := records[i].key.subject.Context
			if c := s.contexts[name]; c != nil && !marked[name] && c.unmarked() {
				marked[name] = true
				marks = append(marks, outRecord{idsKey(name), idsValue{name, c.maxID}})
			}
		}
	})
	return append(marks, records...)
}

// batch is what a write appends, as bytes that are sent more than once.
type batch struct {
	id    writeID
	bytes []byte
	count int64 // of records
}

// encodeBatch makes one batch of records, and of tombstones for other spellings of their keys.
func (r *Registry) encodeBatch(records []outRecord) (*batch, error) {
	out := &batch{}
	r.mu.Lock()
	r.count++
	copy(out.id[:], r.run[:])
	binary.BigEndian.PutUint64(out.id[8:], r.count)
	r.mu.Unlock()
	var b record.Builder
	now := r.cfg.Now().UnixMilli()
	headers := []record.Header{{Key: writeHeader, Value: out.id[:]}}
	add := func(key, value []byte) error {
		out.count++
		b.Append(&record.Record{Timestamp: now, Key: key, Value: value, Headers: headers})
		if n := len(key) + len(value); n > r.cfg.Limits.RecordBytes {
			return refuse(CodeTooLarge, "the schema makes a record of %d bytes; %d are allowed", n, r.cfg.Limits.RecordBytes)
		}
		return nil
	}
	for i := range records {
		rec := &records[i]
		for _, other := range r.otherSpellings(rec.key) {
			if err := add([]byte(other), nil); err != nil {
				return nil, err
			}
		}
		var value []byte
		if rec.value != nil {
			value = encode(rec.value)
		}
		if err := add(rec.key.append(nil), value); err != nil {
			return nil, err
		}
	}
	out.bytes = b.Build()
	return out, nil
}

func (r *Registry) otherSpellings(k key) (out []string) {
	r.read(func(s *state) { out = append(out, s.spellings[k]...) })
	return out
}

// append appends records if the log still ends where the state does, and waits until they are read back. done is false
// when the log ends elsewhere: then nothing was written.
func (r *Registry) append(ctx context.Context, at position, records []outRecord) (done bool, err error) {
	if at.topic == (position{}).topic {
		return false, r.createTopic(ctx)
	}
	if err := r.checkCompacted(ctx); err != nil {
		return false, err
	}
	b, err := r.encodeBatch(records)
	if err != nil {
		return false, err
	}
	r.expect(b.id)
	defer r.forget(b.id)
	a := &appending{r: r, at: at, batch: b}
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		switch outcome := a.try(ctx); outcome {
		case appended:
			if r.cfg.Flaws.Early {
				return true, nil
			}
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

// The outcomes of a try.
type outcome int8

const (
	appended  outcome = iota // the records are in the log
	elsewhere                // the log ends elsewhere
	unsettled                // another try will tell
	failed                   // another try makes no sense
)

// appending is a write under way.
type appending struct {
	r      *Registry
	at     position
	batch  *batch
	maybe  bool  // a try may have written
	sure   int   // how many have certainly not
	actual int64 // where the log ends, if elsewhere
	err    error // of the last try
}

// try sends the batch. The expected offset makes sure that it is in the log once at most, however often it is sent.
func (a *appending) try(ctx context.Context) outcome {
	wait := produceWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(deadline), time.Millisecond))
	}
	topic, err := a.r.client.Topic(ctx, a.r.cfg.Topic, client.Refuse)
	if err != nil || topic.ID != a.at.topic {
		a.actual, a.err = -1, err
		if err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
			return elsewhere
		}
		return a.retry(a.maybe)
	}
	results, err := a.r.client.Produce(ctx, a.request(topic, wait))
	if err == nil {
		err = results[0].Err
	}
	a.err = err
	var f *client.KafkaError
	switch {
	case err == nil && results[0].BaseOffset != a.at.offset && !a.r.cfg.Flaws.AnyOffset:
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

// request is what a try sends.
func (a *appending) request(topic *client.Topic, wait time.Duration) client.ProduceRequest {
	q := client.ProduceRequest{
		Acks: client.AcksAll, Timeout: wait, Batches: []client.Batch{{
			Topic: topic, Bytes: append(record.Batch(nil), a.batch.bytes...), Expected: &a.at.offset,
		}},
	}
	if a.r.cfg.Flaws.Early {
		q.Acks = client.AcksLeader
	}
	if a.r.cfg.Flaws.AnyOffset {
		q.Batches[0].Expected = nil
	}
	return q
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

// isRefusal reports whether the batch is refused for what it is, or who sends it.
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

// settle finds out what became of a batch when the log no longer ends where it was to go: one of the tries may have
// written it. What has taken its place may not be committed yet, and never be: after some time another try will tell.
func (a *appending) settle(ctx context.Context, wait time.Duration) (done, known bool, err error) {
	if !a.maybe {
		wait = maxRetryWait // nothing is lost by waiting
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if !a.maybe {
		if a.actual < a.at.offset { // also where it is not known
			a.r.kick()
			_ = pause(ctx, retryWait) // catchUp sees the end of ctx
			return false, true, nil
		}
		_ = a.r.awaitOffset(bounded, position{a.at.topic, a.actual}) // the decision is made anew in any case
		return false, true, nil
	}
	if a.actual < 0 {
		return false, true, a.failure()
	}
	if err := a.r.awaitOffset(bounded, position{a.at.topic, a.at.offset + 1}); err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			return false, false, nil
		}
		a.err = err
		return false, true, a.failure()
	}
	return a.r.seen(a.batch.id), true, nil
}

// readBack waits until the Registry's own reader has the batch.
func (a *appending) readBack(ctx context.Context) error {
	err := a.r.awaitOffset(ctx, position{a.at.topic, a.at.offset + a.batch.count})
	if err != nil {
		a.maybe, a.err = true, err
		return a.failure()
	}
	return nil
}

// failure is the error of a write that came to nothing, or perhaps not.
func (a *appending) failure() error {
	switch {
	case a.maybe:
		return &Error{
			Code: CodeStoreTimeout, Unknown: true, Cause: a.err,
			Message: "it is not known whether " + a.r.cfg.Topic + " has taken the change in; send the same request again",
		}
	case errors.Is(a.err, kerr.MessageTooLarge), errors.Is(a.err, kerr.RecordListTooLarge):
		return &Error{Code: CodeTooLarge, Message: "the schema is larger than " + a.r.cfg.Topic + " takes", Cause: a.err}
	}
	text := "nothing was written to " + a.r.cfg.Topic
	if a.err != nil {
		text += ": " + told(a.err)
	}
	return &Error{Code: CodeStoreFailed, Message: text, Cause: a.err}
}

// told is what a client is told of why the log cannot be written: what the cluster said, but not what lies between.
func told(err error) string {
	var said *client.KafkaError
	if errors.As(err, &said) {
		return said.Error()
	}
	return client.ErrNoAnswer.Error()
}

// expect has the reader look out for a write.
func (r *Registry) expect(id writeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[id] = false
}

func (r *Registry) forget(id writeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, id)
}

// seen reports whether a write was read back.
func (r *Registry) seen(id writeID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.pending[id]
}

// checkCompacted refuses to write where the log would forget what is written.
func (r *Registry) checkCompacted(ctx context.Context) error {
	topic, err := r.client.Topic(ctx, r.cfg.Topic, client.Refuse)
	if err != nil {
		return nil //nolint:nilerr // the write itself tells
	}
	compacted, _ := r.client.Compacted(ctx, topic)
	if expires, known := r.client.Expires(ctx, topic); known && (expires || !compacted) {
		return &Error{
			Code:    CodeStoreFailed,
			Message: "topic " + r.cfg.Topic + " would forget schemas: set its cleanup.policy to compact alone",
		}
	}
	return nil
}

// maxReplicas is how many replicas the topic gets, where there are so many brokers. A cluster of ours gives it as many
// as all topics of its own have, also for brokers that have yet to register.
const maxReplicas = 3

// createTopic makes the log, and waits for the brokers that it needs. One that is there already is as good.
func (r *Registry) createTopic(ctx context.Context) error {
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		err := r.askForTopic(ctx)
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			r.kick()
			return nil
		}
		again := errors.Is(err, client.ErrNoAnswer) || kerr.IsRetriable(err) ||
			errors.Is(err, kerr.InvalidReplicationFactor) // brokers have yet to register
		if !again || pause(ctx, wait) != nil {
			return &Error{
				Code: CodeStoreFailed, Message: "topic " + r.cfg.Topic + " cannot be created: " + told(err), Cause: err,
			}
		}
	}
}

func (r *Registry) askForTopic(ctx context.Context) error {
	cluster, err := r.client.Cluster(ctx)
	if err != nil {
		return err
	}
	policy, anyTime := "compact", fmt.Sprint(math.MaxInt64)
	_, err = r.client.CreateTopic(ctx, client.NewTopic{
		Name: r.cfg.Topic, Partitions: 1, ReplicationFactor: int16(min(maxReplicas, len(cluster.Brokers))), Internal: true,
		Configs: []client.NewConfig{
			{Name: "cleanup.policy", Value: &policy},
			{Name: "message.timestamp.after.max.ms", Value: &anyTime}, // the leader's clock may be behind ours
		},
	})
	return err
}
