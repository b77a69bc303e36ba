package task_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/task"
	"millrace/record"
)

// hooked is a sink some of whose calls are others.
type hooked struct {
	plugin.SinkTask
	open      func(open func() error) error
	preCommit func(current map[client.TopicPartition]int64) (map[client.TopicPartition]int64, error)
	start     func(plugin.SinkContext)
}

func (h *hooked) Start(ctx context.Context, props map[string]string, c plugin.SinkContext) error {
	if h.start != nil {
		h.start(c)
	}
	return h.SinkTask.Start(ctx, props, c)
}

func (h *hooked) Open(ctx context.Context, partitions []plugin.OpenPartition) error {
	open := func() error { return h.SinkTask.Open(ctx, partitions) }
	if h.open != nil {
		return h.open(open)
	}
	return open()
}

func (h *hooked) PreCommit(ctx context.Context, current map[client.TopicPartition]int64) (
	map[client.TopicPartition]int64, error,
) {
	if h.preCommit != nil {
		return h.preCommit(current)
	}
	return h.SinkTask.PreCommit(ctx, current)
}

func TestSinkThatOpensLater(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, numbers(0, 10)...)
	o := newOutside()
	var opens atomic.Int32
	j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask {
		return &hooked{SinkTask: &ledger{o: o}, open: func(open func() error) error {
			if opens.Add(1) < 3 {
				return plugin.Retriable(soon{errors.New("no connection")})
			}
			return open()
		}}
	}, "topics", "in"))
	until(t, "all is written", func() bool { return o.count() == 10 })
	require.NoError(t, j.stop())
	require.GreaterOrEqual(t, opens.Load(), int32(3))

	bad := errors.New("no such schema")
	err := l.start(l.runner(), sinkSpec(func() plugin.SinkTask {
		return &hooked{SinkTask: &ledger{o: o}, open: func(func() error) error { return bad }}
	}, "topics", "in")).wait()
	require.ErrorIs(t, err, bad)
}

// TestSinkGoesBackWhenItCannotFlush has what was not kept come again.
func TestSinkGoesBackWhenItCannotFlush(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	o := newOutside()
	var commits atomic.Int32
	lost := errors.New("what was buffered is lost")
	j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask {
		s := &plain{ledger{o: o}}
		return &hooked{SinkTask: s, preCommit: func(current map[client.TopicPartition]int64) (
			map[client.TopicPartition]int64, error,
		) {
			for at, n := range current {
				if n == 10 && commits.Add(1) == 1 {
					s.at[at] = 0
					return nil, lost
				}
			}
			return current, nil
		}}
	}, "topics", "in"))
	l.produce("in", 0, numbers(0, 10)...)
	until(t, "all is written twice", func() bool { return o.count() == 20 })
	until(t, "it is committed", func() bool { return l.committed("connect-c", "in", 0) == 10 })
	require.NoError(t, j.stop())
	require.Equal(t, append(numbers(0, 10), numbers(0, 10)...), o.all())
}

// TestSinkCommitsLessAndWhenAsked has a sink that commits what it wants, when it wants.
func TestSinkCommitsLessAndWhenAsked(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	o := newOutside()
	var ask atomic.Pointer[func()]
	var may atomic.Int64
	j := l.start(l.runner(func(o *task.Options) { o.FlushInterval = time.Hour }), sinkSpec(func() plugin.SinkTask {
		return &hooked{
			SinkTask: &ledger{o: o}, start: func(c plugin.SinkContext) { ask.Store(&c.RequestCommit) },
			preCommit: func(map[client.TopicPartition]int64) (map[client.TopicPartition]int64, error) {
				return map[client.TopicPartition]int64{
					{Topic: "in"}: may.Load(), {Topic: "other"}: 3, {Topic: "in", Partition: 7}: 1,
				}, nil
			},
		}
	}, "topics", "in"))
	l.produce("in", 0, numbers(0, 10)...)
	until(t, "all is written", func() bool { return o.count() == 10 })
	require.Equal(t, int64(-1), l.committed("connect-c", "in", 0))
	may.Store(4)
	(*ask.Load())()
	until(t, "a part is committed", func() bool { return l.committed("connect-c", "in", 0) == 4 })
	may.Store(11) // more than it was given
	(*ask.Load())()
	l.produce("in", 0, numbers(10, 20)...)
	until(t, "more is written", func() bool { return o.count() == 20 })
	may.Store(25)
	require.NoError(t, j.stop())
	require.LessOrEqual(t, l.committed("connect-c", "in", 0), int64(11))
}

func TestDeadLetterThatIsTooLarge(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.topic("dead", 1, "max.message.bytes", "500")
	l.send("in", 0, record.Record{Value: []byte(strings.Repeat("no json ", 100))})
	err := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &ledger{o: newOutside()} }, "topics", "in",
		"value.converter", jsonClass, jsonPlain, "false", "errors.tolerance", "all",
		"errors.deadletterqueue.topic.name", "dead")).wait()
	require.ErrorContains(t, err, "dead-letter topic dead: MESSAGE_TOO_LARGE")
	require.LessOrEqual(t, l.committed("connect-c", "in", 0), int64(0), "it is not lost")

	l.topic("numbers", 1, "max.message.bytes", "400")
	err = l.start(l.runner(), sourceSpec(func() plugin.SourceTask {
		return &counter{limit: 3, most: 3, change: func(r *plugin.SourceRecord) { r.Value = strings.Repeat("x", 600) }}
	}, "errors.tolerance", "all", "errors.deadletterqueue.topic.name", "dead")).wait()
	require.ErrorContains(t, err, "cannot be written to the dead-letter topic either")
	require.Zero(t, l.next())
}

// TestSinkWhoseRecordsAreGone begins behind what was deleted, and says so where it asked for what is gone.
func TestSinkWhoseRecordsAreGone(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, numbers(0, 20)...)
	topic, err := l.client.Topic(t.Context(), "in", client.Refuse)
	require.NoError(t, err)
	deleted, err := l.client.DeleteRecords(t.Context(), topic, []client.BeforeOffset{{Partition: 0, Offset: 15}})
	require.NoError(t, err)
	require.NoError(t, deleted[0].Err)
	at := client.TopicPartition{Topic: "in"}
	errs, err := l.client.CommitOffsets(t.Context(), client.GroupCommit{
		Group: "connect-c", Epoch: -1, Offsets: []client.CommittedOffset{{TopicPartition: at, Offset: 5, LeaderEpoch: -1}},
	})
	require.NoError(t, err)
	require.NoError(t, errs[0])
	o := newOutside()
	j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &openSink{plain{ledger{o: o}}} }, "topics", "in"))
	until(t, "what is left is written", func() bool { return o.count() == 5 })
	require.NoError(t, j.stop())
	require.Equal(t, numbers(15, 20), o.all())

	o = newOutside()
	o.next[at] = 5
	err = l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "in")).wait()
	require.ErrorContains(t, err, "reads in-0 from offset 5, but there is only what is from 15 to 20")
}

// TestSinkMarksCommits has a sink tell what it committed itself from what was set by hand.
func TestSinkMarksCommits(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, numbers(0, 10)...)
	o := newOutside()
	mark := strings.Repeat("m", 100)
	opens := func() int {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.opens)
	}
	write := func() (found string) {
		t.Helper()
		before := opens()
		j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask {
			return &hooked{SinkTask: &ledger{o: o}, start: func(c plugin.SinkContext) { c.Mark(mark) }}
		}, "topics", "in"))
		until(t, "all is committed", func() bool { return opens() > before && l.committed("connect-c", "in", 0) == 10 })
		require.NoError(t, j.stop())
		return o.opens[before].Mark
	}
	require.Empty(t, write())
	require.Equal(t, mark, write())
	errs, err := l.client.CommitOffsets(t.Context(), client.GroupCommit{
		Group: "connect-c", Epoch: -1,
		Offsets: []client.CommittedOffset{{TopicPartition: client.TopicPartition{Topic: "in"}, Offset: 9, LeaderEpoch: -1}},
	})
	require.NoError(t, errors.Join(append(errs, err)...))
	mark = strings.Repeat("m", 10_000) // more than may be committed
	require.Empty(t, write())
	require.Empty(t, write())
}
