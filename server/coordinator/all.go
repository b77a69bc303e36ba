package coordinator

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// All runs fn on the loops of all partitions that this node leads, at once, and gives what they reply, in no order.
// missing is why that of some partition is missing, nil if none is: a partition that another node leads by now is that
// one's to tell of. An error means that ctx has ended before all had replied.
func All[R any](ctx context.Context, r *Runtime, fn func(State, *Reply[R])) (all []R, missing *kerr.Error, err error) {
	led := r.Led()
	replies, errs := make([]R, len(led)), make([]error, len(led))
	var wg sync.WaitGroup
	for i, number := range led {
		wg.Go(func() { replies[i], errs[i] = Do(ctx, r, number, fn) })
	}
	wg.Wait()
	for i, failed := range errs {
		switch e := KafkaError(failed); {
		case failed == nil:
			all = append(all, replies[i])
		case e == nil:
			err = failed
		case e != kerr.NotCoordinator:
			missing = e
		}
	}
	return all, missing, err
}

// KafkaError is what Kafka calls an error, nil for what it has no word for.
func KafkaError(err error) *kerr.Error {
	var e *kerr.Error
	errors.As(err, &e)
	return e
}
