package native

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

// Bounds of the look for what an earlier run has left open.
const (
	// leftTimeout is how long it is tried: what is open then has been ended by its own time.
	leftTimeout    = onceTimeout + 10*time.Second
	leftFirstPause = 20 * time.Millisecond
	leftLastPause  = time.Second
	leftAtOnce     = 8
)

// abortLeft aborts what earlier runs of this node have left open, and counts it. While the coordinators do not all
// answer it tries again.
func (t *transactions) abortLeft(ctx context.Context) (int, error) {
	if t.pool.node == "" {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, leftTimeout)
	defer cancel()
	count := 0
	for pause := leftFirstPause; ; pause = min(2*pause, leftLastPause) {
		n, err := t.abortListed(ctx)
		if count += n; err == nil {
			return count, nil
		}
		if pauseFor(ctx, pause) != nil {
			return count, err
		}
	}
}

// abortListed aborts what is listed once.
func (t *transactions) abortListed(ctx context.Context) (int, error) {
	all, err := t.client.Txns(ctx, client.TxnFilter{States: []string{client.TxnOngoing}, Pattern: t.pool.ofNode()})
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	var count atomic.Int64
	slots, failed := make(chan struct{}, leftAtOnce), make(chan error, len(all))
	for _, one := range all {
		if strings.HasPrefix(one.ID, t.pool.prefix) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			done, err := t.abortOne(ctx, one.ID)
			if err != nil {
				failed <- err
			}
			if done {
				count.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err = <-failed:
	default:
	}
	return int(count.Load()), err
}

// abortOne aborts the transaction that an id has open, in the epoch of its producer: whoever asks what became of
// that, to repeat the request, is answered as if the producer had aborted it.
func (t *transactions) abortOne(ctx context.Context, id string) (bool, error) {
	now, err := t.client.DescribeTxn(ctx, id)
	switch {
	case errors.Is(err, kerr.TransactionalIDNotFound):
		return false, nil
	case err != nil:
		return false, err
	case now.State != client.TxnOngoing:
		return false, nil
	}
	_, err = t.client.EndTxn(ctx, now.TxnProducer, client.Abort)
	if isFenced(err) || errors.Is(err, kerr.InvalidTxnState) { // it has ended meanwhile
		return false, nil
	}
	return err == nil, err
}
