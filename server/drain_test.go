package server_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server"
)

// stuck is a cluster that answers no produce before its context ends.
type stuck struct {
	kmsg.Requestor
	inside *atomic.Int32
}

func (s stuck) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if _, ok := r.(*kmsg.ProduceRequest); !ok {
		return s.Requestor.Request(ctx, r)
	}
	s.inside.Add(1)
	defer s.inside.Add(-1)
	<-ctx.Done()
	<-time.After(time.Second) // an end takes its time
	return nil, context.Cause(ctx)
}

// A stop leaves no request behind, not even a produce, whose wait its client cannot end.
func TestStopAwaitsProduces(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		var inside atomic.Int32
		l.boxes[1].change = func(c *server.Config) {
			c.DrainTimeout = 5 * time.Second
			c.Wrap = func(r kmsg.Requestor) kmsg.Requestor { return stuck{r, &inside} }
		}
		l.start(1)
		l.ready(1)
		status, text := l.do(1, http.MethodPost, "/v1/topics", `{"name":"t","partitions":1,"replication_factor":1}`)
		require.Equal(t, http.StatusCreated, status, text)
		answered := make(chan bool, 1)
		asked := time.AfterFunc(0, func() {
			_, ok := l.send(1, "t", 0)
			answered <- ok
		})
		defer asked.Stop()
		l.until("the produce waits", func() bool { return inside.Load() == 1 })
		began := time.Now()
		l.stop(1)
		require.Zero(t, inside.Load())
		require.Less(t, time.Since(began), 10*time.Second)
		require.False(t, <-answered)
	})
}
