package task

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"millrace/connect/plugin"
)

// stage is where a record was when something went wrong, as Kafka Connect names it.
type stage string

const (
	stagePoll    stage = "TASK_POLL"
	stagePut     stage = "TASK_PUT"
	stageChange  stage = "TRANSFORMATION"
	stageKey     stage = "KEY_CONVERTER"
	stageValue   stage = "VALUE_CONVERTER"
	stageHeader  stage = "HEADER_CONVERTER"
	stageProduce stage = "KAFKA_PRODUCE"
	stageConsume stage = "KAFKA_CONSUME"
)

// fault is why a record cannot go on.
type fault struct {
	stage stage
	class string // of what was at work
	err   error
}

// reported marks an error that the task itself gave for a record.
type reported struct{ error }

func (r reported) Unwrap() error { return r.error }

func (f *fault) Error() string {
	return fmt.Sprintf("%s, %s: %v", f.stage, f.class, f.err)
}

func (f *fault) Unwrap() error { return f.err }

// passable says whether the tolerance of errors covers the fault. What may go well another time, but did not as long as
// it was tried, is covered as well.
func (f *fault) passable() bool {
	if _, ok := f.err.(reported); ok {
		return true
	}
	switch f.stage {
	case stageChange, stageKey, stageValue, stageHeader, stageProduce:
		return !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded)
	}
	return false
}

// exception is the class by which Kafka Connect knows such an error.
func (f *fault) exception() string {
	switch {
	case plugin.IsRetriable(f.err):
		return "org.apache.kafka.connect.errors.RetriableException"
	case f.stage == stageProduce, f.stage == stagePut, f.stage == stageConsume, f.stage == stagePoll:
		return "org.apache.kafka.connect.errors.ConnectException"
	}
	return "org.apache.kafka.connect.errors.DataException"
}

// firstRetry is the delay before the first retry. It doubles each time.
const firstRetry = 300 * time.Millisecond

// retrier tries again what may go well another time.
type retrier struct {
	limit   time.Duration // how long; 0: not at all
	longest time.Duration // delay
	rand    *rand.Rand
	count   func() // is called before each retry
}

// again calls do until it succeeds, fails for good, or the time is up; err is how it failed before. It gives the last
// error.
func (r *retrier) again(ctx context.Context, err error, do func() error) error {
	if r.limit == 0 {
		return err
	}
	start := time.Now()
	for delay := firstRetry; plugin.IsRetriable(err); delay = min(2*delay, 2*r.longest) {
		wait := delay
		if wait > r.longest {
			wait = time.Duration(r.rand.Int64N(int64(r.longest))) + 1
		}
		if since := time.Since(start); since+wait > r.limit {
			return err
		}
		if sleep(ctx, wait) != nil {
			return err
		}
		r.count()
		err = do()
	}
	return err
}

// backoff is a delay that doubles.
type backoff struct {
	first, longest time.Duration
	next           time.Duration
}

// delay is how long to wait this time.
func (b *backoff) delay() time.Duration {
	d := max(b.next, b.first)
	b.next = min(2*d, b.longest)
	return d
}

func (b *backoff) reset() { b.next = 0 }

// retryAfter is how long to wait before what failed is tried again: what the error asks for, if it does.
func retryAfter(err error, otherwise time.Duration) time.Duration {
	var asks interface{ RetryAfter() time.Duration }
	if errors.As(err, &asks) {
		return asks.RetryAfter()
	}
	return otherwise
}

// sleep waits, or returns an error when ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
