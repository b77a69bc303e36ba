package connect_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lag is a node that hears nothing new of configs, and joins no group.
type lag struct {
	node  int
	id    string        // a transactional id of which no producer is made before it may be
	asked chan struct{} // has an element when one was asked for
	may   chan struct{} // closed when one may be made
	over  chan struct{} // closed when the node hears all again
}

// request is the request of such a node.
func (g *lag) request(ctx context.Context, to kmsg.Requestor, r kmsg.Request) (kmsg.Response, error) {
	switch r := r.(type) {
	case *kmsg.JoinGroupRequest:
		if _, err := g.hold(ctx, nil, nil); err != nil {
			return nil, err
		}
	case *kmsg.InitProducerIDRequest:
		if r.TransactionalID != nil && *r.TransactionalID == g.id {
			select {
			case g.asked <- struct{}{}:
			default:
			}
			select {
			case <-g.may:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	resp, err := to.Request(ctx, r)
	if readsConfigs(r) {
		return g.hold(ctx, resp, err)
	}
	return resp, err
}

// hold gives an answer when the lag is over.
func (g *lag) hold(ctx context.Context, resp kmsg.Response, err error) (kmsg.Response, error) {
	select {
	case <-g.over:
		return resp, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func readsConfigs(r kmsg.Request) bool {
	fetch, ok := r.(*kmsg.FetchRequest)
	return ok && slices.ContainsFunc(fetch.Topics, func(t kmsg.FetchRequestTopic) bool {
		return t.Topic == "connect-configs"
	})
}

// A worker that does not know yet that a connector has other tasks starts none of the former ones, although it became
// the producer of one after those were fenced: the others read what it was to read.
func TestAWorkerThatIsBehindStartsNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t).gathered()
	dir := l.lines("in", 2, 10)
	l.put("c", source(dir, "out", 2, "millrace.auto.restart=true"))
	l.awaitStates("c", running(2)...)
	l.checkOnce("out", 2, 10)
	behind := l.workerOf("c", 1)
	require.NotEqual(t, behind, l.workerOf("c", 0))
	require.NotEqual(t, l.connector("c")().WorkerID, l.task("c", 1)().WorkerID, "which would not hear of the change")
	if behind == 1 {
		l.watch(2)
	}
	before := l.bench.started("c", 1)
	g := &lag{
		node: behind, id: "connect-cluster-c-1", asked: make(chan struct{}, 1), may: make(chan struct{}),
		over: make(chan struct{}),
	}
	l.stale.Store(g)
	l.appendText(filepath.Join(dir, "f1"), "fail\n")
	select {
	case <-g.asked: // the task starts again
	case <-time.After(patience):
		require.Fail(t, "the task does not start again")
	}

	l.put("c", source(l.lines("in2", 2, 10), "out2", 1))
	l.await("there is one task", func() bool {
		c := l.store.Configs().Connectors["c"]
		return len(c.Tasks) == 1 && c.FencedOffset > c.TasksOffset
	})
	close(g.may)
	require.Never(t, func() bool { return l.bench.started("c", 1) > before }, time.Second, 20*time.Millisecond)
	close(g.over)
	l.awaitStates("c", running(1)...)
	l.checkOnceFrom(l.alive(), "out2", 2, 10)
	require.Equal(t, before, l.bench.started("c", 1))
}
