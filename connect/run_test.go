package connect_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// The classes of the connectors that the tests run.
const (
	linesClass  = "test.LinesSourceConnector"
	appendClass = "test.AppendSinkConnector"
)

// bench is what the connectors of a test have in common, on all nodes.
type bench struct {
	mu       sync.Mutex
	starts   map[string]int // guarded by mu: of tasks, by connector and number
	stops    map[string]int // guarded by mu
	asked    map[string]int // guarded by mu: for task settings, by connector
	contexts map[string]plugin.ConnectorContext
	when     map[string][]time.Time       // guarded by mu: starts of tasks
	props    map[string]map[string]string // guarded by mu: of the last start of tasks
	hang     bool                         // guarded by mu: tasks do not stop
	fault    error                        // guarded by mu: tasks do not start
	away     error                        // guarded by mu: tasks read in vain
	released chan struct{}
}

func newBench(t *testing.T) *bench {
	b := emptyBench()
	t.Cleanup(func() { b.release() })
	return b
}

func emptyBench() *bench {
	return &bench{
		starts: make(map[string]int), stops: make(map[string]int), asked: make(map[string]int),
		contexts: make(map[string]plugin.ConnectorContext), released: make(chan struct{}),
		when: make(map[string][]time.Time), props: make(map[string]map[string]string),
	}
}

// release lets what hangs end.
func (b *bench) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hang = false
	select {
	case <-b.released:
	default:
		close(b.released)
	}
}

func (b *bench) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *bench) started(connector string, task int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.starts[connector+"/"+strconv.Itoa(task)]
}

func (b *bench) stopped(connector string, task int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stops[connector+"/"+strconv.Itoa(task)]
}

// total is how many tasks have stopped.
func (b *bench) total() (n int) {
	b.set(func() {
		for _, stops := range b.stops {
			n += stops
		}
	})
	return n
}

// ask is how often a connector was asked for the settings of its tasks.
func (b *bench) ask(connector string) (n int) {
	b.set(func() { n = b.asked[connector] })
	return n
}

func (b *bench) times(task string) (out []time.Time) {
	b.set(func() { out = slices.Clone(b.when[task]) })
	return out
}

// last is what a task was started with last.
func (b *bench) last(task string) (out map[string]string) {
	b.set(func() { out = b.props[task] })
	return out
}

// reconfigure has a connector say that its tasks have changed.
func (b *bench) reconfigure(connector string) {
	var c plugin.ConnectorContext
	b.set(func() { c = b.contexts[connector] })
	c.Reconfigure()
}

func (b *bench) classes() []plugin.Class {
	return []plugin.Class{{
		Info: plugin.Info{Class: linesClass, Kind: plugin.SourceKind, Defs: plugin.Defs{
			{Name: "dir", Type: plugin.String, Required: true}, {Name: "topic", Type: plugin.String, Required: true},
			{Name: "secret", Type: plugin.Password, Null: true},
		}},
		New: func() plugin.Connector { return &linesConnector{bench: b} },
	}}
}

// linesConnector reads the lines of all files of a folder into a topic.
type linesConnector struct {
	bench *bench
	props map[string]string
	name  string
}

func (c *linesConnector) Validate(context.Context, map[string]string) []plugin.Problem { return nil }

func (c *linesConnector) Start(_ context.Context, props map[string]string, x plugin.ConnectorContext) error {
	c.props, c.name = props, x.Name
	c.bench.set(func() { c.bench.contexts[x.Name] = x })
	if props["connector.fault"] != "" {
		return errors.New(props["connector.fault"])
	}
	return nil
}

func (c *linesConnector) TaskConfigs(_ context.Context, most int) ([]map[string]string, error) {
	c.bench.set(func() { c.bench.asked[c.name]++ })
	files, err := filepath.Glob(filepath.Join(c.props["dir"], "*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	tasks := make([][]string, min(most, max(len(files), 1)))
	for i, f := range files {
		tasks[i%len(tasks)] = append(tasks[i%len(tasks)], f)
	}
	var out []map[string]string
	for _, mine := range tasks {
		p := map[string]string{"files": strings.Join(mine, ",")}
		if c.props["secret"] != "" {
			p["secret"], p["copy"] = c.props["secret"], c.props["secret"]
		}
		out = append(out, p)
	}
	return out, nil
}

func (c *linesConnector) Stop(context.Context) error { return nil }

func (c *linesConnector) AlterOffsets(context.Context, map[string]string, []plugin.Offset) (bool, error) {
	return true, nil
}

func (c *linesConnector) NewSource() plugin.SourceTask { return &linesTask{bench: c.bench} }
func (c *linesConnector) NewSink() plugin.SinkTask     { return nil }

// linesTask reads lines: each is a record, whose offset is its number.
type linesTask struct {
	bench *bench
	key   string
	topic string
	files []string
	next  map[string]int64
}

func (l *linesTask) Start(ctx context.Context, props map[string]string, x plugin.SourceContext) error {
	l.key = x.Connector + "/" + strconv.Itoa(x.Task)
	var fault error
	l.bench.set(func() {
		l.bench.starts[l.key]++
		l.bench.when[l.key] = append(l.bench.when[l.key], time.Now())
		l.bench.props[l.key] = props
		fault = l.bench.fault
	})
	if fault != nil {
		return fault
	}
	l.topic, l.next = props["topic"], make(map[string]int64)
	for f := range strings.SplitSeq(props["files"], ",") {
		if f == "" {
			continue
		}
		l.files = append(l.files, f)
		at, err := x.Offset(ctx, map[string]any{"file": f})
		if err != nil {
			return err
		}
		if n, ok := at["line"].(int64); ok {
			l.next[f] = n
		}
	}
	return nil
}

func (l *linesTask) Poll(ctx context.Context) (out []*plugin.SourceRecord, err error) {
	l.bench.set(func() { err = plugin.Retriable(l.bench.away) })
	if err != nil {
		return nil, err
	}
	for _, f := range l.files {
		if out, err = l.read(out, f); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		t := time.NewTimer(20 * time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return out, nil
}

func (l *linesTask) read(out []*plugin.SourceRecord, file string) ([]*plugin.SourceRecord, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(f)
	for n := int64(0); lines.Scan() && len(out) < 100; n++ {
		if n < l.next[file] {
			continue
		}
		if lines.Text() == "fail" {
			return nil, errors.Join(fmt.Errorf("line %d of %s cannot be read", n, filepath.Base(file)), f.Close())
		}
		l.next[file] = n + 1
		out = append(out, &plugin.SourceRecord{
			Record: data.Record{
				Topic: l.topic, Partition: data.AnyPartition, Timestamp: data.NoTimestamp, Offset: -1,
				KeySchema: &data.Schema{Type: data.String}, Key: filepath.Base(file),
				ValueSchema: &data.Schema{Type: data.String}, Value: lines.Text(),
			},
			Source: plugin.Offset{Partition: map[string]any{"file": file}, Offset: map[string]any{"line": n + 1}},
		})
	}
	return out, errors.Join(lines.Err(), f.Close())
}

func (l *linesTask) Stored(context.Context) error { return nil }

func (l *linesTask) Stop(context.Context) error {
	hang := false
	l.bench.set(func() {
		hang = l.bench.hang
		l.bench.stops[l.key]++
	})
	if hang {
		<-l.bench.released
	}
	return nil
}
