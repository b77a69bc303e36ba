package statetopic

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/record"
)

const (
	produceWait  = 10 * time.Second
	sureFailures = 4 // of a write that certainly is not in the topic, before it is given up
)

// Error is why a batch was not appended, or perhaps was.
type Error struct {
	Unknown bool  // it may or may not be in the topic
	Cause   error // what the cluster said
}

func (e *Error) Error() string {
	text := "nothing was written"
	if e.Unknown {
		text = "it is not known whether all was written"
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Cause }

// TooLarge says that the topic takes no batches of that size.
func (e *Error) TooLarge() bool {
	return !e.Unknown &&
		(errors.Is(e.Cause, kerr.MessageTooLarge) || errors.Is(e.Cause, kerr.RecordListTooLarge))
}

// Batch is what one write appends, as one batch that may be sent more than once.
type Batch struct {
	id      writeID
	headers []record.Header
	now     int64
	builder record.Builder
	count   int64 // of records
	size    int   // of keys and values
	// compressFrom is the size from which it is compressed.
	compressFrom int
}

// NewBatch begins a batch, for one Append.
func (t *Tail) NewBatch(now time.Time) *Batch {
	b := &Batch{now: now.UnixMilli(), compressFrom: t.opts.CompressFrom}
	copy(b.id[:], t.run[:])
	binary.BigEndian.PutUint64(b.id[8:], t.count.Add(1))
	b.headers = []record.Header{{Key: writeHeader, Value: b.id[:]}}
	return b
}

// Add adds a record. A nil value is a null.
func (b *Batch) Add(key, value []byte) {
	b.count++
	if b.size += len(key) + len(value); b.compressFrom > 0 && b.size > b.compressFrom {
		b.builder.SetCodec(record.Zstd)
	}
	b.builder.Append(&record.Record{Timestamp: b.now, Key: key, Value: value, Headers: b.headers})
}

// Append appends a batch to the first partition if that still ends at a place of this Tail, against which the batch was
// decided, and waits until it is read back. It is false when the topic is another one or ends elsewhere: then nothing
// was written, and what has taken the batch's place is read, or about to be. All of its errors are of type *Error.
func (t *Tail) Append(ctx context.Context, at *Place, b *Batch) (bool, error) {
	t.expect(b.id)
	defer t.forget(b.id)
	a := &appending{t: t, topic: at.Topic, offset: at.Offset(), batch: b, bytes: b.builder.Build()}
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		switch outcome := a.try(ctx); outcome {
		case appended:
			if t.opts.Flaws.Early {
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
	appended  outcome = iota // the records are in the topic
	elsewhere                // the topic ends elsewhere
	unsettled                // another try will tell
	failed                   // another try makes no sense
)

// appending is a write under way.
type appending struct {
	t      *Tail
	topic  [16]byte
	offset int64 // where the topic must end
	batch  *Batch
	bytes  record.Batch
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
	topic, err := a.t.opts.Client.Topic(ctx, a.t.opts.Topic, client.Refuse)
	switch {
	case err == nil && topic.ID != a.topic:
		a.actual, a.err = -1, errAnother
		return elsewhere
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		a.actual, a.err = -1, err
		return elsewhere
	case err != nil:
		a.err = err
		return a.retry(a.maybe)
	}
	results, err := a.t.opts.Client.Produce(ctx, a.request(topic, wait))
	if err == nil {
		err = results[0].Err
	}
	a.err = err
	var f *client.KafkaError
	switch {
	case err == nil && results[0].BaseOffset != a.offset && !a.t.opts.Flaws.AnyOffset:
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
	case IsRefusal(err):
		return failed
	}
	return a.retry(!f.NotWritten && !isCertain(err))
}

// request is what a try sends.
func (a *appending) request(topic *client.Topic, wait time.Duration) client.ProduceRequest {
	q := client.ProduceRequest{
		Acks: client.AcksAll, Timeout: wait, Batches: []client.Batch{{
			Topic: topic, Bytes: append(record.Batch(nil), a.bytes...), Expected: &a.offset, // the callee may write into it
		}},
	}
	if a.t.opts.Flaws.Early {
		q.Acks = client.AcksLeader
	}
	if a.t.opts.Flaws.AnyOffset {
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

// IsRefusal reports whether a batch is refused for what it is, or who sends it.
func IsRefusal(err error) bool {
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
	if !a.maybe {
		bounded, cancel := context.WithTimeout(ctx, maxRetryWait) // nothing is lost by waiting
		defer cancel()
		if a.actual < a.offset { // also where it is not known
			a.t.kick()
			_ = pause(bounded, retryWait) // the next decision sees the end of ctx
			return false, true, nil
		}
		_ = a.t.awaitOffset(bounded, a.topic, a.actual) // the decision is made anew in any case
		return false, true, nil
	}
	if a.actual < 0 {
		return false, true, a.failure()
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := a.t.awaitOffset(bounded, a.topic, a.offset+1); err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			return false, false, nil
		}
		a.err = err
		return false, true, a.failure()
	}
	return a.t.seen(a.batch.id), true, nil
}

// readBack waits until the Tail has read the batch.
func (a *appending) readBack(ctx context.Context) error {
	if err := a.t.awaitOffset(ctx, a.topic, a.offset+a.batch.count); err != nil {
		a.maybe, a.err = true, err
		return a.failure()
	}
	return nil
}

// failure is the error of a write that came to nothing, or perhaps not.
func (a *appending) failure() error { return &Error{Unknown: a.maybe, Cause: a.err} }

// expect has the reader look out for a write.
func (t *Tail) expect(id writeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending[id] = false
}

func (t *Tail) forget(id writeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, id)
}

// seen reports whether a write was read back.
func (t *Tail) seen(id writeID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending[id]
}
