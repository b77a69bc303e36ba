package task

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

const (
	// fencePause is the wait before a transactional id is asked for again that is busy with its last transaction.
	fencePause = 20 * time.Millisecond
	// fenceTimeout is that of transactions of whoever fences; there are none.
	fenceTimeout = time.Minute
)

// Fence makes sure that none of the first tasks of a source that runs by now, wherever, stores anything any more.
func (r *Runner) Fence(ctx context.Context, connector string, tasks int) error {
	for n := range tasks {
		in := client.TxnInit{
			ID: r.opts.GroupID + "-" + connector + "-" + strconv.Itoa(n), Timeout: fenceTimeout,
		}
		for {
			_, err := r.opts.Client.InitTxn(ctx, in)
			if err == nil {
				break
			}
			if !errors.Is(err, kerr.ConcurrentTransactions) {
				return fmt.Errorf("task %d: %w", n, err)
			}
			t := time.NewTimer(fencePause)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return context.Cause(ctx)
			}
		}
	}
	return nil
}
