package task_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/connect/plugin"
	"millrace/connect/store"
	"millrace/server/servertest"
)

// offline is a requestor by which nothing can be written to a topic as long as it is off.
type offline struct {
	to    kmsg.Requestor
	topic string
	off   atomic.Bool
	tries atomic.Int32
}

func (o *offline) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	p, ok := req.(*kmsg.ProduceRequest)
	if !ok || !o.off.Load() || !slices.ContainsFunc(p.Topics, func(t kmsg.ProduceRequestTopic) bool {
		return t.Topic == o.topic
	}) {
		return o.to.Request(ctx, req)
	}
	o.tries.Add(1)
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
	return nil, errWire
}

// TestTopicsAreNotedBesideTheTask has the topic where the use of topics is noted be away: neither sources nor sinks
// wait for it, nor do they when they end; and it is noted once it is back.
func TestTopicsAreNotedBesideTheTask(t *testing.T) {
	wire := &offline{
		to: servertest.Start(t, servertest.Options{Broker: brokerSettings()}).Requestor(), topic: store.DefaultStatusTopic,
	}
	l := labOn(t, wire)
	l.topic("numbers", 1)
	l.topic("more", 1)
	require.NoError(t, l.store.AddTopics(t.Context(), "other", 0, "t")) // the topic is there
	wire.off.Store(true)
	o := newOutside()
	sink := sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "numbers,more")
	sink.Connector = "d"
	drain := l.start(l.runner(), sink)
	var polls atomic.Int32
	source := l.start(l.runner(), sourceSpec(func() plugin.SourceTask {
		return &counter{limit: 100, most: 10, polls: func(from int) { polls.Store(int32(from)) },
			change: func(r *plugin.SourceRecord) {
				if len(r.Value.(string)) == 1 {
					r.Topic = "more"
				}
			}}
	}))
	until(t, "all is written, and the source goes on", func() bool {
		return o.count() == 100 && wire.tries.Load() > 2 && polls.Load() == 100
	})
	source.lives()
	require.NoError(t, source.stop())
	require.Empty(t, l.store.Topics("c"))

	wire.off.Store(false)
	noted := func(connector string) func() bool {
		return func() bool { return len(l.store.Topics(connector)) == 2 }
	}
	until(t, "what the sink reads is noted", noted("d"))
	require.NoError(t, drain.stop())
	again := l.start(l.runner(), sourceSpec(func() plugin.SourceTask {
		return &counter{limit: 120, most: 10, change: toBoth}
	}))
	until(t, "what the source writes is noted", noted("c"))
	require.NoError(t, again.stop())
}

// toBoth sends every other number elsewhere.
func toBoth(r *plugin.SourceRecord) {
	if n := r.Value.(string); n[len(n)-1]%2 == 0 {
		r.Topic = "more"
	}
}
