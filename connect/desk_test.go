package connect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect"
	"millrace/connect/plugin"
	"millrace/server/servertest"
)

// The classes of connectors that do nothing.
const (
	idleSource = "test.IdleSourceConnector"
	idleSink   = "test.IdleSinkConnector"
)

// idle is a connector that does nothing but take note of what it is told.
type idle struct{ desk *desk }

func (i *idle) Validate(_ context.Context, props map[string]string) []plugin.Problem {
	i.desk.set(func() { i.desk.validated++ })
	if props["bad"] != "" {
		return []plugin.Problem{{Key: "bad", Message: "bad is " + props["bad"]}}
	}
	return nil
}

func (i *idle) Start(context.Context, map[string]string, plugin.ConnectorContext) error { return nil }

func (i *idle) TaskConfigs(_ context.Context, most int) ([]map[string]string, error) {
	out := make([]map[string]string, most)
	for n := range out {
		out[n] = map[string]string{"number": fmt.Sprint(n)}
	}
	return out, nil
}

func (i *idle) Stop(context.Context) error { return nil }

func (i *idle) AlterOffsets(_ context.Context, props map[string]string, offsets []plugin.Offset) (bool, error) {
	i.desk.set(func() { i.desk.altered = offsets })
	switch props["veto"] {
	case "":
	case "later":
		return false, plugin.Retriable(errors.New("the server is away"))
	default:
		return false, errors.New(props["veto"])
	}
	return props["agree"] != "", nil
}

func (i *idle) NewSource() plugin.SourceTask { return &idleTask{i.desk} }
func (i *idle) NewSink() plugin.SinkTask     { return &idleSinkTask{} }

// idleTask is a source that has nothing.
type idleTask struct{ desk *desk }

func (i *idleTask) Start(context.Context, map[string]string, plugin.SourceContext) error {
	i.desk.set(func() { i.desk.started++ })
	return nil
}

func (*idleTask) Stored(context.Context) error { return nil }
func (*idleTask) Stop(context.Context) error   { return nil }

func (*idleTask) Poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return nil, nil
}

// idleSinkTask is a sink that forgets what it gets.
type idleSinkTask struct{}

func (*idleSinkTask) Start(context.Context, map[string]string, plugin.SinkContext) error { return nil }
func (*idleSinkTask) Open(context.Context, []plugin.OpenPartition) error                 { return nil }
func (*idleSinkTask) Put(context.Context, *plugin.SinkBatch) error                       { return nil }
func (*idleSinkTask) Stop(context.Context) error                                         { return nil }

func (*idleSinkTask) PreCommit(_ context.Context, current map[client.TopicPartition]int64) (
	map[client.TopicPartition]int64, error,
) {
	return current, nil
}

func (*idleSinkTask) Close(context.Context, []client.TopicPartition, bool) error { return nil }

// desk is a cluster with a worker on each node, which are asked in turn.
type desk struct {
	t       *testing.T
	client  *client.Client
	cluster kmsg.Requestor
	nodes   *servertest.Cluster // nil of one node
	workers []*connect.Worker
	next    int

	mu        sync.Mutex
	validated int             // guarded by mu: how often connectors were validated
	altered   []plugin.Offset // guarded by mu: what a connector was told last
	started   int             // guarded by mu: how many tasks of sources were
}

func (d *desk) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// newDesk makes a desk on a cluster of some nodes, with changed settings.
func newDesk(t *testing.T, nodes int, change func(*connect.Settings)) *desk {
	d := &desk{t: t}
	broker := map[string]string{
		"connect.enable": "false", "offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3",
	}
	var clusters []kmsg.Requestor
	if nodes == 1 {
		clusters = append(clusters, servertest.Start(t, servertest.Options{Broker: broker}).Requestor())
	} else {
		c := servertest.StartCluster(t, servertest.ClusterOptions{Nodes: nodes, Broker: broker})
		require.NoError(t, c.Node(1).AwaitBrokers(t.Context(), nodes))
		for id := 1; id <= nodes; id++ {
			clusters = append(clusters, c.Node(id).Requestor())
		}
		d.nodes = c
		t.Cleanup(func() { // sooner than all that stop in order
			for id := 1; id <= nodes; id++ {
				_ = c.Node(id).Kill()
			}
		})
	}
	defs := plugin.Defs{
		{Name: "secret", Type: plugin.Password, Null: true}, {Name: "url", Type: plugin.String, Null: true},
	}
	for i, cluster := range clusters {
		settings := connect.DefaultSettings()
		settings.SessionTimeout = 20 * time.Second // workers may be held up for a while
		if change != nil {
			change(&settings)
		}
		made := func() plugin.Connector { return &idle{d} }
		c := client.New(cluster, client.Options{})
		var awaitTopic func(ctx context.Context, topic string) error // of one node: as the worker does it itself
		if nodes > 1 {                                               // all join at the same time
			awaitTopic = func(ctx context.Context, topic string) error { return poll(ctx, c, topic) }
		}
		w, err := connect.New(connect.Config{
			Client: c, Requests: cluster, Settings: settings, NodeID: int32(i + 1), WorkerID: fmt.Sprintf("w%d:1", i+1),
			AwaitTopic: awaitTopic,
			Classes: []plugin.Class{
				{Info: plugin.Info{Class: idleSource, Kind: plugin.SourceKind, Defs: defs}, New: made},
				{Info: plugin.Info{Class: idleSink, Kind: plugin.SinkKind, Defs: defs}, New: made},
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = w.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			running.Wait()
		})
		d.client, d.cluster, d.workers = c, cluster, append(d.workers, w)
	}
	return d
}

// poll waits until a topic exists.
func poll(ctx context.Context, c *client.Client, topic string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := c.Renew(ctx, topic); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// await waits until something holds.
func (d *desk) await(what string, holds func() bool) {
	d.t.Helper()
	require.Eventually(d.t, holds, patience, 20*time.Millisecond, what)
}

// ask gives the worker whose turn it is.
func (d *desk) ask() *connect.Worker {
	d.next++
	return d.workers[d.next%len(d.workers)]
}

func idleProps(class string, more ...string) map[string]string {
	out := map[string]string{"connector.class": class, "tasks.max": "2"}
	if class == idleSink {
		out["topics"] = "t"
	}
	for _, m := range more {
		name, value, _ := strings.Cut(m, "=")
		out[name] = value
	}
	return out
}

// refused checks the status and a part of the text of an error.
func refused(t *testing.T, err error, status int, text string) {
	t.Helper()
	var fault *connect.Error
	require.ErrorAs(t, err, &fault)
	require.Equal(t, status, fault.Status, fault.Message)
	require.Contains(t, fault.Message, text)
}

// awaitStates waits for the states of a connector and its tasks.
func (d *desk) awaitStates(name string, states ...string) {
	d.t.Helper()
	var got []string
	require.Eventually(d.t, func() bool {
		st, err := d.ask().Status(d.t.Context(), name)
		if err != nil {
			return false
		}
		got = []string{st.Connector.State}
		for _, task := range st.Tasks {
			got = append(got, task.State)
		}
		return fmt.Sprint(got) == fmt.Sprint(states)
	}, patience, 20*time.Millisecond, "want %v", states)
}
