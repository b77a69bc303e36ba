package task_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/server/servertest"
)

// told is what a task said that keeps it from its work.
type told struct {
	mu   sync.Mutex
	list []string // guarded by mu
}

func (t *told) hear(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := ""
	if why != nil {
		text = why.Error()
	}
	t.list = append(t.list, text)
}

func (t *told) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) == 0 {
		return "nothing"
	}
	return t.list[len(t.list)-1]
}

// shut is a sink that cannot open partitions while it is shut.
type shut struct {
	plugin.SinkTask
	shut *atomic.Bool
}

func (s shut) Open(ctx context.Context, list []plugin.OpenPartition) error {
	if s.shut.Load() {
		return plugin.Retriable(soon{errors.New("the database is starting")})
	}
	return s.SinkTask.Open(ctx, list)
}

// TestSinkSaysWhatItWaitsFor has a sink try in vain to open partitions, and then to write.
func TestSinkSaysWhatItWaitsFor(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, numbers(0, 10)...)
	var closed, full atomic.Bool
	closed.Store(true)
	o := newOutside()
	heard := &told{}
	s := sinkSpec(func() plugin.SinkTask {
		return &batches{SinkTask: shut{&ledger{o: o}, &closed}, before: func(*plugin.SinkBatch) error {
			if full.Load() {
				return plugin.Retriable(soon{errors.New("the disk is full")})
			}
			return nil
		}}
	}, "topics", "in")
	s.Trouble = heard.hear
	j := l.start(l.runner(), s)
	says := func(text string) {
		t.Helper()
		until(t, text, func() bool { return heard.last() == text })
	}
	says("it is tried again: open partitions of the sink: the database is starting")
	closed.Store(false)
	says("")
	until(t, "all are written", func() bool { return o.count() == 10 })
	full.Store(true)
	l.produce("in", 0, "10")
	says("it is tried again: write to the sink: the disk is full")
	full.Store(false)
	says("")
	require.NoError(t, j.stop())
	require.Equal(t, numbers(0, 11), o.all())
	require.Len(t, heard.list, 4)
}

// TestSourceSaysWhatItWaitsFor has a source read in vain, by what it returns and by what it says, and then write.
func TestSourceSaysWhatItWaitsFor(t *testing.T) {
	wire := &offline{
		to: servertest.Start(t, servertest.Options{Broker: brokerSettings()}).Requestor(), topic: "numbers",
	}
	l := labOn(t, wire)
	l.topic("numbers", 1)
	heard := &told{}
	var away, alone atomic.Bool
	away.Store(true)
	s := sourceSpec(func() plugin.SourceTask {
		return &wary{counter: counter{limit: 10, most: 1}, away: &away, alone: &alone}
	})
	s.Trouble = heard.hear
	j := l.start(l.runner(), s)
	says := func(text string) {
		t.Helper()
		until(t, text, func() bool {
			return strings.HasPrefix(heard.last(), "it is tried again: ") && strings.HasSuffix(heard.last(), text)
		})
	}
	says("read the source: nobody is there")
	alone.Store(true)
	away.Store(false)
	says(": the slot is in use")
	wire.off.Store(true)
	alone.Store(false)
	says("the wire is cut")
	require.Contains(t, heard.last(), ": write to topics: ")
	wire.off.Store(false)
	until(t, "it works again", func() bool { return heard.last() == "" })
	until(t, "all is stored", func() bool { return l.next() == 10 })
	require.NoError(t, j.stop())
}

// wary is a source that says why it does not read.
type wary struct {
	counter
	away, alone *atomic.Bool
	context     plugin.SourceContext
}

func (w *wary) Start(ctx context.Context, props map[string]string, c plugin.SourceContext) error {
	w.context = c
	return w.counter.Start(ctx, props, c)
}

func (w *wary) Poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	switch {
	case w.away.Load():
		return nil, plugin.Retriable(soon{errors.New("nobody is there")})
	case w.alone.Load():
		w.context.Trouble(errors.New("the slot is in use"))
		return nil, nil
	}
	w.context.Trouble(nil)
	return w.counter.Poll(ctx)
}
