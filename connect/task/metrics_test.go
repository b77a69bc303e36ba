package task_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/connect/task"
)

// metric is the value of a metric of a task; ok is false if there is none.
func (l *lab) metric(name string) (value float64, labels map[string]string, ok bool) {
	l.t.Helper()
	all, err := l.registry.Gather()
	require.NoError(l.t, err)
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		require.Len(l.t, f.GetMetric(), 1)
		m := f.GetMetric()[0]
		labels = make(map[string]string)
		for _, p := range m.GetLabel() {
			labels[p.GetName()] = p.GetValue()
		}
		return m.GetCounter().GetValue() + m.GetGauge().GetValue(), labels, true
	}
	return 0, nil, false
}

func measured(l *lab) *task.Runner {
	return l.runner(func(o *task.Options) { o.Registerer = l.registry })
}

// own is a source with a metric of its own.
type own struct{ counter }

func (s *own) Start(ctx context.Context, props map[string]string, c plugin.SourceContext) error {
	c.Metrics.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "own_total", Help: "Own."}))
	return s.counter.Start(ctx, props, c)
}

func TestMetrics(t *testing.T) {
	l := newLab(t)
	j := l.start(measured(l), sourceSpec(func() plugin.SourceTask { return &own{counter{limit: 100, most: 10}} }))
	until(t, "all are stored", func() bool { return l.next() == 100 })
	until(t, "they are counted, and nothing is in hand", func() bool {
		v, _, _ := l.metric("millrace_connect_source_record_write_total")
		active, _, _ := l.metric("millrace_connect_source_record_active_count")
		return v == 100 && active == 0
	})
	v, labels, ok := l.metric("millrace_connect_source_record_poll_total")
	require.True(t, ok)
	require.Equal(t, 100.0, v)
	require.Equal(t, map[string]string{"connector": "c", "task": "0"}, labels)
	v, _, _ = l.metric("millrace_connect_transaction_size_max")
	require.Equal(t, 10.0, v)
	_, labels, ok = l.metric("own_total")
	require.True(t, ok)
	require.Equal(t, map[string]string{"connector": "c", "task": "0"}, labels)
	require.NoError(t, j.stop())
	all, err := l.registry.Gather()
	require.NoError(t, err)
	require.Empty(t, all, "all go with the task")
}

// TestMetricsOfTwoRuns has a task run anew before it has ended, as when it was abandoned.
func TestMetricsOfTwoRuns(t *testing.T) {
	l := newLab(t)
	r := measured(l)
	var starts atomic.Int32
	hang := make(chan struct{})
	hangs := func() plugin.SourceTask { return &hanging{hang: hang, starts: &starts} }
	first := l.start(r, sourceSpec(hangs))
	until(t, "it hangs", func() bool { return starts.Load() == 1 })
	first.cancel()
	second := l.start(r, sourceSpec(func() plugin.SourceTask { return &own{counter{limit: 5, most: 5}} }))
	until(t, "the other one writes", func() bool { return l.next() == 5 })
	close(hang)
	require.NoError(t, first.wait())
	_, _, ok := l.metric("own_total")
	require.True(t, ok, "what has ended takes away its own only")
	_, _, ok = l.metric("millrace_connect_source_record_poll_total")
	require.True(t, ok)
	require.NoError(t, second.stop())
}

// hanging is a source that does not heed its context.
type hanging struct {
	own
	hang   chan struct{}
	starts *atomic.Int32
}

func (s *hanging) Poll(context.Context) ([]*plugin.SourceRecord, error) {
	if s.starts.Add(1) == 1 {
		<-s.hang
	}
	return nil, nil
}

func TestMetricsOfErrors(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, "a", "no", "no", "b")
	o := newOutside()
	poison := func(r *plugin.SinkRecord) error {
		if r.Value == "no" {
			return errors.New("no")
		}
		return nil
	}
	j := l.start(measured(l), sinkSpec(func() plugin.SinkTask { return &ledger{o: o, reject: poison} }, "topics", "in",
		"errors.tolerance", "all", "errors.deadletterqueue.topic.name", "dead"))
	until(t, "the others are written", func() bool { return o.count() == 2 })
	until(t, "it is committed", func() bool {
		v, _, _ := l.metric("millrace_connect_offset_commit_completion_total")
		return v >= 1
	})
	for name, want := range map[string]float64{
		"total_record_failures": 2, "total_records_skipped": 2, "total_record_errors": 0,
		"deadletterqueue_produce_requests": 2, "deadletterqueue_produce_failures": 0, "partition_count": 1,
		"sink_record_read_total": 4, "sink_record_send_total": 4, "sink_record_active_count": 0,
	} {
		until(t, fmt.Sprint(name, " is ", want), func() bool {
			v, _, ok := l.metric("millrace_connect_" + name)
			require.True(t, ok, name)
			return v == want
		})
	}
	v, _, _ := l.metric("millrace_connect_last_error_timestamp")
	require.Positive(t, v)
	require.NoError(t, j.stop())
}

func TestPluginThatPanics(t *testing.T) {
	l := newLab(t)
	err := l.start(measured(l), sourceSpec(func() plugin.SourceTask {
		return &counter{limit: 5, most: 5, change: func(*plugin.SourceRecord) { panic("oops") }}
	})).wait()
	require.ErrorContains(t, err, "a plugin panicked: oops")
	require.True(t, strings.Contains(err.Error(), "lab_test.go"), "it says where")
	all, err := l.registry.Gather()
	require.NoError(t, err)
	require.Empty(t, all)
}
