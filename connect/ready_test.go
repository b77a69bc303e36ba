package connect_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect"
	"millrace/server/servertest"
)

// gated is a cluster that is asked nothing before a gate opens.
type gated struct {
	kmsg.Requestor
	gate chan struct{}
}

// Request implements kmsg.Requestor.
func (g gated) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	select {
	case <-g.gate:
		return g.Requestor.Request(ctx, r)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A worker is ready when it has read what there is, and from then on, whether there is a topic of configs yet or not.
func TestAWorkerIsReadyWhenItHasRead(t *testing.T) {
	node := servertest.Start(t, servertest.Options{Broker: map[string]string{"connect.enable": "false"}})
	cluster := gated{node.Requestor(), make(chan struct{})}
	var waits atomic.Bool
	w, err := connect.New(connect.Config{
		Client: client.New(cluster, client.Options{}), Requests: cluster, Settings: connect.DefaultSettings(),
		AwaitTopic: func(ctx context.Context, topic string) error {
			waits.Store(true)
			<-ctx.Done()
			return context.Cause(ctx)
		},
	})
	require.NoError(t, err)
	require.ErrorContains(t, w.Ready(), "starting")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	require.Eventually(t, func() bool {
		err := w.Ready()
		return err != nil && strings.Contains(err.Error(), "reads")
	}, patience, time.Millisecond)
	require.Never(t, func() bool { return w.Ready() == nil || waits.Load() }, 200*time.Millisecond, time.Millisecond)
	close(cluster.gate)
	require.Eventually(t, func() bool { return waits.Load() && w.Ready() == nil }, patience, time.Millisecond)
}
