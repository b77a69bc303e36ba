package connect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect/store"
	"millrace/server/servertest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeCommand {
		os.Exit(runNode(os.Args[2:]))
	}
	servertest.VerifyNoLeaks(m)
}

// patience is how long tests wait for what must come.
const patience = 2 * time.Minute

func urlQuery(s string) string { return url.QueryEscape(s) }

// lab is three nodes with the connectors of a bench, and a store of its own to look at them.
type lab struct {
	t       *testing.T
	bench   *bench
	cluster *servertest.Cluster
	client  *client.Client
	store   *store.Store
	dir     string
	unwatch func()       // ends the looking
	deaf    atomic.Int32 // the node whose requests about groups get no answer; 0: none
	stale   atomic.Pointer[lag]
	open    atomic.Bool // transactions do not end
}

// hearing is the cluster as the APIs of a node see it.
type hearing struct {
	kmsg.Requestor
	lab  *lab
	node int32
}

// Request implements kmsg.Requestor.
func (h hearing) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch r.(type) {
	case *kmsg.JoinGroupRequest, *kmsg.SyncGroupRequest, *kmsg.HeartbeatRequest:
		if h.lab.deaf.Load() == h.node {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
	case *kmsg.InitProducerIDRequest:
		if h.lab.open.Load() {
			return &kmsg.InitProducerIDResponse{ErrorCode: kerr.ConcurrentTransactions.Code}, nil
		}
	}
	if lag := h.lab.stale.Load(); lag != nil && lag.node == int(h.node) {
		return lag.request(ctx, h.Requestor, r)
	}
	resp, err := h.Requestor.Request(ctx, r)
	if lag := h.lab.stale.Load(); lag != nil && lag.node == int(h.node) && readsConfigs(r) {
		return lag.hold(ctx, resp, err) // it was under way
	}
	return resp, err
}

// alive is a running node of the cluster, other than some.
func (l *lab) alive(but ...int) int {
	for id := 1; id <= 3; id++ {
		if !slices.Contains(but, id) && l.cluster.Node(id) != nil {
			return id
		}
	}
	l.t.Fatal("no node is left")
	return 0
}

// shortSession is the setting of workers that are soon taken for gone. Those of other tests may be held up for a while.
const shortSession = "connect.session.timeout.ms=3000"

func newLab(t *testing.T, settings ...string) *lab {
	l := &lab{t: t, bench: newBench(t), dir: t.TempDir()}
	broker := map[string]string{"connect.restart.backoff.ms": "100", "offsets.topic.num.partitions": "5",
		"default.replication.factor": "3", "connect.session.timeout.ms": "20000"}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		broker[name] = value
	}
	l.cluster = servertest.StartCluster(t, servertest.ClusterOptions{
		Broker: broker, Connectors: l.bench.classes(),
		Wrap: func(node int, r kmsg.Requestor) kmsg.Requestor { return hearing{r, l, int32(node)} },
	})
	l.unwatch = func() {}
	t.Cleanup(func() { l.unwatch() })
	t.Cleanup(func() { // sooner than three that stop in order
		l.stopAll()
		for id := 1; id <= 3; id++ {
			if n := l.cluster.Node(id); n != nil {
				_ = n.Kill()
			}
		}
	})
	l.watch(1)
	return l
}

// watch has the lab look through a node.
func (l *lab) watch(node int) {
	l.client = client.New(l.cluster.Node(node).Requestor(), client.Options{})
	s, err := store.New(store.Options{Client: l.client})
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ended by the cleanup
		defer close(done)
		_ = s.Run(ctx)
	}()
	l.unwatch()
	l.unwatch = func() {
		cancel()
		<-done
	}
	l.store = s
	require.NoError(l.t, s.AwaitRead(l.t.Context()))
}

// lines makes files of lines: names and how many lines each has.
func (l *lab) lines(dir string, files, count int) string {
	path := filepath.Join(l.dir, dir)
	require.NoError(l.t, os.MkdirAll(path, 0o755))
	for f := range files {
		l.appendLines(filepath.Join(path, fmt.Sprintf("f%d", f)), 0, count)
	}
	return path
}

func (l *lab) appendLines(file string, from, count int) {
	var text strings.Builder
	for n := range count {
		fmt.Fprintf(&text, "%s %d\n", filepath.Base(file), from+n)
	}
	l.appendText(file, text.String())
}

func (l *lab) appendText(file, text string) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(l.t, err)
	_, err = f.WriteString(text)
	require.NoError(l.t, err)
	require.NoError(l.t, f.Close())
}

func source(dir, topic string, tasks int, more ...string) map[string]string {
	p := map[string]string{
		"connector.class": linesClass, "dir": dir, "topic": topic, "tasks.max": fmt.Sprint(tasks),
		"key.converter":   "org.apache.kafka.connect.storage.StringConverter",
		"value.converter": "org.apache.kafka.connect.storage.StringConverter",
	}
	for _, s := range more {
		name, value, _ := strings.Cut(s, "=")
		p[name] = value
	}
	return p
}

func (l *lab) change(changes ...store.Change) {
	l.t.Helper()
	_, err := l.store.Update(l.t.Context(), func(*store.Configs) ([]store.Change, error) { return changes, nil })
	require.NoError(l.t, err)
}

func (l *lab) put(name string, props map[string]string) {
	l.t.Helper()
	props = maps.Clone(props)
	props["name"] = name
	l.change(store.PutConnector(name, props))
}

// gathered waits until all three nodes are in the group of workers: what is put then is shared once, and stays where it
// is.
func (l *lab) gathered() *lab {
	l.t.Helper()
	l.put("first", source(l.lines("none", 1, 0), "none", 1))
	l.awaitStates("first", running(1)...)
	l.await("all have joined", func() bool {
		leaders, _ := l.sum("millrace_connect_worker_rebalance_leader")
		return leaders == 3 && l.metric("millrace_connect_worker_rebalance_rebalancing") == 0
	})
	l.change(store.DeleteConnector("first"))
	l.await("nothing runs", func() bool {
		return l.metric("millrace_connect_worker_connector_count")+l.metric("millrace_connect_worker_task_count") == 0
	})
	return l
}

// awaitGone waits until nothing is left of a connector.
func (l *lab) awaitGone(name string) {
	l.t.Helper()
	l.await("nothing is left of it", func() bool {
		_, ok := l.store.ConnectorStatus(name)
		return !ok && len(l.store.TaskStatuses(name)) == 0
	})
}

// await waits until something holds.
func (l *lab) await(what string, holds func() bool) {
	l.t.Helper()
	require.Eventually(l.t, holds, patience, 10*time.Millisecond, what)
}

// awaitFault waits until a connector, or a task of it, has failed with a text in its trace. It may start again at any
// time.
func (l *lab) awaitFault(text string, status func() store.Status) {
	l.t.Helper()
	var last store.Status
	l.await("it fails", func() bool {
		last = status()
		return last.State == "FAILED" && strings.Contains(last.Trace, text)
	})
}

func (l *lab) connector(name string) func() store.Status {
	return func() store.Status {
		st, _ := l.store.ConnectorStatus(name)
		return st
	}
}

func (l *lab) task(name string, task int) func() store.Status {
	return func() store.Status { return l.store.TaskStatuses(name)[task] }
}

// states are the states of a connector and of so many of its tasks.
func (l *lab) states(name string, tasks int) []string {
	st, _ := l.store.ConnectorStatus(name)
	out := []string{st.State}
	all := l.store.TaskStatuses(name)
	for i := range tasks {
		out = append(out, all[i].State)
	}
	return out
}

// awaitStates waits until a connector and its tasks are in states.
func (l *lab) awaitStates(name string, states ...string) {
	l.t.Helper()
	defer func() {
		if l.t.Failed() {
			l.t.Logf("%s is %+v, its tasks %+v", name, l.connector(name)(), l.store.TaskStatuses(name))
		}
	}()
	require.Eventually(l.t, func() bool {
		return slices.Equal(l.states(name, len(states)-1), states) && len(l.store.TaskStatuses(name)) == len(states)-1
	}, patience, 10*time.Millisecond, "of %s: want %v", name, states)
}

func running(tasks int) []string { return slices.Repeat([]string{"RUNNING"}, tasks+1) }

// owners are how many connectors and tasks each worker runs, by the statuses.
func (l *lab) owners(names ...string) (connectors, tasks map[string]int) {
	connectors, tasks = make(map[string]int), make(map[string]int)
	for _, name := range names {
		if st, ok := l.store.ConnectorStatus(name); ok && st.State == "RUNNING" {
			connectors[st.WorkerID]++
		}
		for _, st := range l.store.TaskStatuses(name) {
			if st.State == "RUNNING" {
				tasks[st.WorkerID]++
			}
		}
	}
	return connectors, tasks
}

func balanced(m map[string]int, workers, total int) bool {
	low, high, sum := 1<<30, 0, 0
	for _, n := range m {
		low, high, sum = min(low, n), max(high, n), sum+n
	}
	if len(m) < workers {
		low = 0
	}
	return sum == total && high-low <= 1
}

// checkOnce checks that each line of files is in a topic once.
func (l *lab) checkOnce(topic string, files, count int) {
	l.t.Helper()
	l.checkOnceFrom(l.alive(), topic, files, count)
}

func (l *lab) checkOnceFrom(node int, topic string, files, count int) {
	l.t.Helper()
	want := make([]string, 0, files*count)
	for f := range files {
		for n := range count {
			want = append(want, fmt.Sprintf("f%d %d", f, n))
		}
	}
	var got []string
	l.await("all lines are there", func() bool {
		all, err := l.readFrom(node, topic)
		got = all
		return err == nil && len(got) >= len(want)
	})
	require.ElementsMatch(l.t, want, got)
}

// stopAll stops all connectors, as far as that is possible, so that none is in the way when the nodes are killed.
func (l *lab) stopAll() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, _ = l.store.Update(ctx, func(all *store.Configs) (out []store.Change, _ error) {
		for name := range all.Connectors {
			out = append(out, store.PutTasks(name, nil), store.SetTarget(name, store.Stopped))
		}
		return out, nil
	})
	names := slices.Collect(maps.Keys(l.store.Configs().Connectors))
	runs := func(name string) bool { return l.states(name, 0)[0] == "RUNNING" }
	for ctx.Err() == nil && slices.ContainsFunc(names, runs) {
		<-time.After(10 * time.Millisecond)
	}
}

// breakTasks writes a commit of more tasks than there are.
func (l *lab) breakTasks(name string, tasks int) {
	l.t.Helper()
	body := fmt.Sprintf(`{"key_text":%q,"value":{"tasks":%d}}`, "commit-"+name, tasks)
	resp, err := l.cluster.Client.Post(l.cluster.URL(1)+"/v1/topics/connect-configs/records",
		"application/vnd.millrace.records+ndjson", strings.NewReader(body))
	require.NoError(l.t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(l.t, errors.Join(err, resp.Body.Close()))
	require.Equal(l.t, http.StatusOK, resp.StatusCode, string(text))
}

// page is an answer of the API that reads records.
type page struct {
	Records []struct {
		Text string `json:"value_text"`
	} `json:"records"`
	Next string `json:"next"`
}

// readFrom reads all that is committed of a topic through a node. A topic that is not there is empty.
func (l *lab) readFrom(node int, topic string) (out []string, err error) {
	at := "offset=earliest"
	for {
		where := fmt.Sprintf("%s/v1/topics/%s/records?isolation=read_committed&max_records=1000&format=text&%s",
			l.cluster.URL(node), topic, at)
		resp, err := l.cluster.Client.Get(where)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		switch resp.StatusCode {
		case http.StatusNotFound:
			return nil, nil
		case http.StatusOK:
		default:
			return nil, fmt.Errorf("%s: %s", resp.Status, body)
		}
		var p page
		if err := json.Unmarshal(body, &p); err != nil {
			return nil, err
		}
		for i := range p.Records {
			out = append(out, p.Records[i].Text)
		}
		if len(p.Records) == 0 || p.Next == "" {
			return out, nil
		}
		at = "from=" + urlQuery(p.Next)
	}
}

func TestConnectorsAndTasksAreSharedAndRun(t *testing.T) {
	l := newLab(t)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		l.put(name, source(l.lines(name, 4, 50), "to-"+name, 4))
	}
	for _, name := range names {
		l.awaitStates(name, running(4)...)
		l.checkOnce("to-"+name, 4, 50)
	}
	l.await("all is balanced, and nobody waits for work", func() bool {
		connectors, tasks := l.owners(names...)
		return balanced(connectors, 3, 3) && balanced(tasks, 3, 12) &&
			l.metric("millrace_connect_worker_rebalance_rebalancing") == 0
	})
	for _, name := range names {
		c := l.store.Configs().Connectors[name]
		require.Len(t, c.Tasks, 4)
		require.Equal(t, 4, c.Fenced)
	}
	leaders := func() float64 {
		n, _ := l.sum("millrace_connect_worker_rebalance_leader")
		return n
	}
	l.await("the numbers of what runs", func() bool {
		return l.metric("millrace_connect_worker_connector_count") == 3 &&
			l.metric("millrace_connect_worker_task_count") == 12 && leaders() == 3 // all name one
	})
	starts := l.metric("millrace_connect_worker_task_startup_success_total")
	require.GreaterOrEqual(t, starts, 12.0)
	require.Zero(t, l.metric("millrace_connect_worker_task_startup_failure_total"))
}

// metric is the sum over all nodes of a metric that is there.
func (l *lab) metric(name string) float64 {
	l.t.Helper()
	sum, found := l.sum(name)
	require.True(l.t, found, name)
	return sum
}

// sum is the sum of a metric over all nodes; false if none has it.
func (l *lab) sum(name string) (sum float64, found bool) {
	l.t.Helper()
	for id := 1; id <= 3; id++ {
		families, err := l.cluster.Node(id).Registry().Gather()
		require.NoError(l.t, err)
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() == name {
					found = true
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum, found
}
