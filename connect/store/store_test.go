package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/store"
	"millrace/record"
	"millrace/server/servertest"
)

// alone are settings of nodes that run no connectors: the topics belong to the test.
func alone() map[string]string { return map[string]string{"connect.enable": "false"} }

// running is a store that runs on a cluster.
type running struct {
	*store.Store
	t       testing.TB
	client  *client.Client
	metrics *prometheus.Registry
	stop    func()
}

func start(t testing.TB, cluster kmsg.Requestor) *running {
	t.Helper()
	r := &running{t: t, client: client.New(cluster, client.Options{}), metrics: prometheus.NewRegistry()}
	s, err := store.New(store.Options{Client: r.client, Registerer: r.metrics})
	require.NoError(t, err)
	r.Store = s
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	r.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(r.stop)
	return r
}

func (r *running) update(changes ...store.Change) *store.Configs {
	r.t.Helper()
	c, err := r.Update(r.t.Context(), func(*store.Configs) ([]store.Change, error) { return changes, nil })
	require.NoError(r.t, err)
	return c
}

// kv is a record by hand; a value of "-" is a null.
type kv struct{ key, value string }

// append writes records as a foreign worker does, each to the partition of its key.
func (r *running) append(topic string, records ...kv) {
	r.t.Helper()
	to, err := r.client.Topic(r.t.Context(), topic, client.Refuse)
	require.NoError(r.t, err)
	for _, rec := range records {
		var b record.Builder
		out := record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte(rec.key), Value: []byte(rec.value)}
		if rec.value == "-" {
			out.Value = nil
		}
		b.Append(&out)
		res, err := r.client.Produce(r.t.Context(), client.ProduceRequest{
			Acks: client.AcksAll, Timeout: time.Minute, Batches: []client.Batch{{
				Topic: to, Partition: record.KeyPartition([]byte(rec.key), int32(len(to.Partitions))), Bytes: b.Build(),
			}},
		})
		require.NoError(r.t, err)
		require.NoError(r.t, res[0].Err)
	}
}

// log reads all records of a topic, by partition and offset.
func (r *running) log(topic string) (out []kv) {
	r.t.Helper()
	to, err := r.client.Renew(r.t.Context(), topic)
	require.NoError(r.t, err)
	for p := range to.Partitions {
		offset, end, err := r.client.Bounds(r.t.Context(), to, int32(p))
		require.NoError(r.t, err)
		for offset < end {
			got, err := r.client.Fetch(r.t.Context(), client.FetchRequest{
				Topic: to, Partitions: []client.FetchPartition{{Partition: int32(p), Offset: offset}}, MaxBytes: 1 << 20,
			})
			require.NoError(r.t, err)
			require.NoError(r.t, got[0].Err)
			rest := got[0].Batches
			for len(rest) > 0 {
				b, after, err := record.Next(rest)
				if err != nil {
					break
				}
				rest, offset = after, b.NextOffset()
				if b.IsControl() {
					continue
				}
				var rec record.Record
				for reader := record.NewReader(b, 1<<20); reader.Next(&rec); {
					value := string(rec.Value)
					if rec.Value == nil {
						value = "-"
					}
					out = append(out, kv{string(rec.Key), value})
				}
			}
		}
	}
	return out
}

func (r *running) skipped(topic string) int {
	r.t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(r.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "millrace_connect_store_records_skipped_total" && m.GetLabel()[0].GetValue() == topic {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

func props(text string) map[string]string { return map[string]string{"v": text} }

// What is written is in Kafka Connect's bytes, one batch after the other, and read back.
func TestConfigsAreWrittenInKafkasFormat(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	require.NoError(t, r.AwaitRead(t.Context()))
	require.Empty(t, r.Configs().Connectors)
	require.NoError(t, r.Fresh(t.Context()))

	changed := r.Changed()
	c := r.update(store.PutConnector("a-1", map[string]string{"name": "a-1", "x": "1"}),
		store.SetTarget("a-1", store.Stopped))
	<-changed
	require.Equal(t, &store.Configs{Offset: 2, Connectors: c.Connectors, Loggers: map[string]store.Logger{}}, bare(c))
	require.Equal(t, store.Stopped, c.Connectors["a-1"].Target)
	require.Equal(t, int64(-1), c.Connectors["a-1"].TasksOffset)
	c = r.update(store.PutTasks("a-1", []map[string]string{props("0"), props("1")}), store.SetTarget("a-1", store.Started))
	require.Equal(t, []map[string]string{props("0"), props("1")}, c.Connectors["a-1"].Tasks)
	require.Equal(t, int64(4), c.Connectors["a-1"].TasksOffset)
	c = r.update(store.SetFenced("a-1", 2), store.RequestRestart("a-1", store.Restart{IncludeTasks: true}),
		store.RequestTaskRestart("a-1", 1), store.SetLogger("root", "DEBUG"))
	require.Equal(t, 2, c.Connectors["a-1"].Fenced)
	require.Equal(t, &store.Restart{Offset: 7, IncludeTasks: true}, c.Connectors["a-1"].Restart)
	require.Equal(t, map[int]int64{1: 8}, c.Connectors["a-1"].TaskRestarts)
	require.Equal(t, map[string]store.Logger{"root": {"DEBUG", 9}}, c.Loggers)
	require.Equal(t, []kv{
		{"connector-a-1", `{"properties":{"name":"a-1","x":"1"}}`},
		{"target-state-a-1", `{"state":"PAUSED","state.v2":"STOPPED"}`},
		{"task-a-1-0", `{"properties":{"v":"0"}}`},
		{"task-a-1-1", `{"properties":{"v":"1"}}`},
		{"commit-a-1", `{"tasks":2}`},
		{"target-state-a-1", `{"state":"STARTED","state.v2":"STARTED"}`},
		{"tasks-fencing-a-1", `{"task-count":2}`},
		{"restart-connector-a-1", `{"include-tasks":true,"only-failed":false}`},
		{"restart-task-a-1-1", `{}`},
		{"logger-cluster-root", `{"level":"DEBUG"}`},
	}, r.log(store.DefaultConfigTopic))

	before := len(r.log(store.DefaultConfigTopic))
	c = r.update(store.DeleteConnector("a-1"))
	require.Empty(t, c.Connectors)
	gone := r.log(store.DefaultConfigTopic)[before:]
	require.Len(t, gone, 8)
	for _, rec := range gone {
		require.Equal(t, "-", rec.value, rec.key)
	}
	topic, err := r.client.Renew(t.Context(), store.DefaultConfigTopic)
	require.NoError(t, err)
	require.Len(t, topic.Partitions, 1)
	compacted, known := r.client.Compacted(t.Context(), topic)
	require.True(t, compacted && known)
}

// bare is a snapshot without what is not exported.
func bare(c *store.Configs) *store.Configs {
	return &store.Configs{Offset: c.Offset, Connectors: c.Connectors, Loggers: c.Loggers}
}

// A decision to change nothing, or an error, writes nothing.
func TestUpdateWithoutChange(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	none := fmt.Errorf("no")
	_, err := r.Update(t.Context(), func(*store.Configs) ([]store.Change, error) { return nil, none })
	require.ErrorIs(t, err, none)
	_, err = r.Update(t.Context(), func(*store.Configs) ([]store.Change, error) { return nil, nil })
	require.NoError(t, err)
	_, err = r.client.Renew(t.Context(), store.DefaultConfigTopic)
	require.Error(t, err, "nothing was to be made")
}

// The records of a Kafka Connect worker are read, and what nobody understands is counted and passed over.
func TestForeignConfigs(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	r.update(store.PutConnector("own", props("own")))
	r.append(store.DefaultConfigTopic,
		kv{"session-key", `{"key":"c2VjcmV0","algorithm":"HmacSHA256","creation-timestamp":1700000000000}`},
		kv{"target-state-c", `{"state":"PAUSED"}`},
		kv{"connector-c", `{"properties":{"name":"c","connector.class":"X","n":null}}`},
		kv{"task-c-0", `{"properties":{"v":"0"}}`},
		kv{"task-c-1", `{"properties":{"v":"1"}}`},
		kv{"commit-c", `{"tasks":2}`},
		kv{"tasks-fencing-c", `{"task-count":2}`},
		kv{"restart-connector-c", `{"include-tasks":true,"only-failed":true}`},
		kv{"restart-connector-c", `{"include-tasks":false,"only-failed":false}`},
		kv{"what-is-this", `?`},
		kv{"task-c-x", `{"properties":{}}`},
		kv{"target-state-own", `{"state":"PAUSED","state.v2":"STOPPED"}`},
		kv{"connector-own", `{"properties":[]}`}, // broken: what was before stays
		kv{"commit-own", `-`},                    // means nothing
		kv{"target-state-own", `{"state":"DANCING"}`},
	)
	require.NoError(t, r.Fresh(t.Context()))
	c := r.Configs().Connectors["c"]
	require.Equal(t, map[string]string{"name": "c", "connector.class": "X"}, c.Props)
	require.Equal(t, store.Paused, c.Target)
	require.Equal(t, []map[string]string{props("0"), props("1")}, c.Tasks)
	require.Equal(t, 2, c.Fenced)
	require.False(t, c.Inconsistent)
	all, ok := c.RestartAfter(-1)
	require.True(t, ok)
	require.Equal(t, store.Restart{Offset: c.Restart.Offset, IncludeTasks: true}, all, "the wider one wins")
	_, ok = c.RestartAfter(c.Restart.Offset)
	require.False(t, ok)
	own := r.Configs().Connectors["own"]
	require.Equal(t, props("own"), own.Props)
	require.Equal(t, store.Stopped, own.Target)
	require.Equal(t, 2, r.skipped(store.DefaultConfigTopic))

	// An incomplete set of tasks.
	r.append(store.DefaultConfigTopic, kv{"task-c-0", `{"properties":{"v":"new"}}`}, kv{"commit-c", `{"tasks":3}`})
	require.NoError(t, r.Fresh(t.Context()))
	c = r.Configs().Connectors["c"]
	require.True(t, c.Inconsistent)
	require.Empty(t, c.Tasks)
	c = r.update(store.PutTasks("c", []map[string]string{props("again")})).Connectors["c"]
	require.False(t, c.Inconsistent)
	require.Equal(t, []map[string]string{props("again")}, c.Tasks)

	// Kafka Connect deletes by two nulls, and leaves the tasks. They do not come back with the name.
	r.append(store.DefaultConfigTopic, kv{"connector-c", "-"}, kv{"target-state-c", "-"})
	require.NoError(t, r.Fresh(t.Context()))
	require.NotContains(t, r.Configs().Connectors, "c")
	c = r.update(store.PutConnector("c", props("second"))).Connectors["c"]
	require.Empty(t, c.Tasks)
	require.Equal(t, store.Started, c.Target)

	// Who starts now sees the same, but for the requests to restart.
	later := start(t, n.Requestor())
	require.NoError(t, later.AwaitRead(t.Context()))
	require.Equal(t, r.Configs().Offset, later.Configs().Offset)
	require.Nil(t, later.Configs().Connectors["c"].Restart)
	require.Equal(t, r.Configs().Connectors["own"], later.Configs().Connectors["own"])
}

// Settings of a connector take its tasks along, so that they still count when the older settings are compacted away.
func TestTasksFollowTheirConnector(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	r.update(store.PutConnector("c", props("1")), store.PutTasks("c", []map[string]string{props("t")}))
	before := r.Configs().Connectors["c"].TasksOffset
	c := r.update(store.PutConnector("c", props("2")))
	require.Equal(t, before, c.Connectors["c"].TasksOffset, "the tasks are of the settings before")
	require.Less(t, before, c.Connectors["c"].Offset)
	require.Equal(t, []kv{
		{"connector-c", `{"properties":{"v":"2"}}`}, {"task-c-0", `{"properties":{"v":"t"}}`},
		{"commit-c", `{"tasks":1,"since":2}`},
	}, r.log(store.DefaultConfigTopic)[3:])
	c = r.update(store.PutConnector("c", props("3")), store.PutTasks("c", nil))
	require.Empty(t, c.Connectors["c"].Tasks)
	log := r.log(store.DefaultConfigTopic)
	require.Equal(t, []kv{
		{"connector-c", `{"properties":{"v":"3"}}`}, {"commit-c", `{"tasks":0}`}, {"task-c-0", "-"},
	}, log[6:])
}

// The settings of many tasks are one batch still, and one that is too large for a record is refused.
func TestLargeChanges(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	tasks := make([]map[string]string, 1000)
	for i := range tasks {
		tasks[i] = map[string]string{"n": fmt.Sprint(i), "query": strings.Repeat("SELECT something ", 250)}
	}
	c := r.update(store.PutConnector("c", nil), store.PutTasks("c", tasks))
	require.Equal(t, tasks, c.Connectors["c"].Tasks)
	later := start(t, n.Requestor())
	require.NoError(t, later.AwaitRead(t.Context()))
	require.Equal(t, tasks, later.Configs().Connectors["c"].Tasks)
	_, err := r.Update(t.Context(), func(*store.Configs) ([]store.Change, error) {
		return []store.Change{store.PutConnector("d", props(strings.Repeat("x", 1<<20)))}, nil
	})
	var fault *store.Error
	require.ErrorAs(t, err, &fault)
	require.True(t, fault.Refused)
}

// A topic that would forget is refused, with what to do about it.
func TestConfigTopicMustBeCompacted(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	for _, name := range []string{store.DefaultConfigTopic, store.DefaultStatusTopic, store.DefaultOffsetTopic} {
		_, err := r.client.CreateTopic(t.Context(), client.NewTopic{Name: name, Partitions: 1, ReplicationFactor: 1})
		require.NoError(t, err)
	}
	_, err := r.Update(t.Context(), func(*store.Configs) ([]store.Change, error) {
		return []store.Change{store.PutConnector("c", nil)}, nil
	})
	require.ErrorContains(t, err, "set its cleanup.policy to compact alone")
	err = r.PutConnectorStatus(t.Context(), "c", store.Status{State: "RUNNING"}, false)
	require.ErrorContains(t, err, "cleanup.policy")
	_, err = r.OffsetTopic(t.Context())
	require.ErrorContains(t, err, "cleanup.policy")
	require.ErrorContains(t, err, strings.ToLower(store.DefaultOffsetTopic))
}

func TestConfigTopicMayHaveOnePartitionOnly(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	policy := "compact"
	_, err := r.client.CreateTopic(t.Context(), client.NewTopic{
		Name: store.DefaultConfigTopic, Partitions: 2, ReplicationFactor: 1,
		Configs: []client.NewConfig{{Name: "cleanup.policy", Value: &policy}},
	})
	require.NoError(t, err)
	_, err = r.Update(t.Context(), func(*store.Configs) ([]store.Change, error) {
		return []store.Change{store.PutConnector("c", nil)}, nil
	})
	require.ErrorContains(t, err, "2 partitions")
}

// Status is written in Kafka Connect's format, and by its rules.
func TestStatus(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	ctx := t.Context()
	run := store.Status{State: "RUNNING", WorkerID: "a:1", Generation: 3}
	require.NoError(t, r.PutConnectorStatus(ctx, "c-1", run, false))
	hurt := store.Status{State: "FAILED", Trace: "why\nso", WorkerID: "a:1", Generation: 3}
	require.NoError(t, r.PutTaskStatus(ctx, "c-1", 0, hurt, false))
	require.NoError(t, r.AddTopics(ctx, "c-1", 0, "t"))
	require.NoError(t, r.Fresh(ctx))
	got, ok := r.ConnectorStatus("c-1")
	require.True(t, ok)
	require.Equal(t, run, got)
	require.Equal(t, map[int]store.Status{0: hurt}, r.TaskStatuses("c-1"))
	require.Equal(t, []string{"t"}, r.Topics("c-1"))
	require.NoError(t, r.AddTopics(ctx, "c-1", 0, "t"))
	log := map[string]string{}
	for _, rec := range r.log(store.DefaultStatusTopic) {
		require.NotContains(t, log, rec.key)
		log[rec.key] = rec.value
	}
	require.Len(t, log, 3)
	require.JSONEq(t, `{"state":"RUNNING","trace":null,"worker_id":"a:1","generation":3}`, log["status-connector-c-1"])
	require.JSONEq(t, `{"state":"FAILED","trace":"why\nso","worker_id":"a:1","generation":3}`, log["status-task-c-1-0"])
	require.Regexp(t, `^{"topic":{"name":"t","connector":"c-1","task":0,"discoverTimestamp":\d{13}}}$`,
		log["status-topic-t:connector-c-1"])

	// A safe put of another worker needs a later generation.
	lost := func(worker string, generation int64) store.Status {
		require.NoError(t, r.PutConnectorStatus(ctx, "c-1",
			store.Status{State: "PAUSED", WorkerID: worker, Generation: generation}, true))
		require.NoError(t, r.Fresh(ctx))
		st, _ := r.ConnectorStatus("c-1")
		return st
	}
	require.Equal(t, run, lost("b:1", 2))
	require.Equal(t, run, lost("b:1", 3))
	require.Equal(t, "PAUSED", lost("a:1", 3).State)
	require.Equal(t, "b:1", lost("b:1", 4).WorkerID)

	// That nobody has it, said late by who had it before, does not count.
	r.append(store.DefaultStatusTopic,
		kv{"status-task-c-1-1", `{"state":"RUNNING","trace":null,"worker_id":"b:1","generation":5,"version":"1"}`},
		kv{"status-task-c-1-1", `{"state":"UNASSIGNED","trace":null,"worker_id":"a:1","generation":5}`},
		kv{"status-task-c-1-2", `{"state":"RUNNING","trace":null,"worker_id":"b:1","generation":5}`},
		kv{"status-task-c-1-2", `{"state":"UNASSIGNED","trace":null,"worker_id":"b:1","generation":5}`},
		kv{"status-task-c-1-3", `{"state":"RUNNING","trace":null,"worker_id":"b:1","generation":5}`},
		kv{"status-task-c-1-3", `-`},
		kv{"status-task-c-1-4", `{"state":7}`},
		kv{"status-something", `{}`})
	require.NoError(t, r.Fresh(ctx))
	tasks := r.TaskStatuses("c-1")
	require.Len(t, tasks, 3)
	require.Equal(t, "RUNNING", tasks[1].State)
	require.Equal(t, "UNASSIGNED", tasks[2].State)
	require.Equal(t, 1, r.skipped(store.DefaultStatusTopic))

	require.NoError(t, r.ForgetTaskStatus(ctx, "c-1", 2))
	require.NoError(t, r.ResetTopics(ctx, "c-1"))
	require.NoError(t, r.Fresh(ctx))
	require.Len(t, r.TaskStatuses("c-1"), 2)
	require.Empty(t, r.Topics("c-1"))
	require.NoError(t, r.ForgetStatus(ctx, "c-1"))
	require.NoError(t, r.Fresh(ctx))
	_, ok = r.ConnectorStatus("c-1")
	require.False(t, ok)
	require.Empty(t, r.TaskStatuses("c-1"))
}

// commit writes offsets in a transaction of a task, and ends it.
func (r *running) commit(id, connector string, d client.Decision, offsets ...plugin.Offset) {
	r.t.Helper()
	p := r.open(id, connector, offsets...)
	_, err := r.client.EndTxn(r.t.Context(), p, d)
	require.NoError(r.t, err)
	r.init(id)
}

// init gives the next producer of an id, once the transactions before are ended everywhere.
func (r *running) init(id string) (p client.TxnProducer) {
	r.t.Helper()
	require.Eventually(r.t, func() (done bool) {
		var err error
		p, err = r.client.InitTxn(r.t.Context(), client.TxnInit{ID: id, Timeout: time.Minute})
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	return p
}

func (r *running) open(id, connector string, offsets ...plugin.Offset) client.TxnProducer {
	r.t.Helper()
	ctx := r.t.Context()
	topic, err := r.OffsetTopic(ctx)
	require.NoError(r.t, err)
	p := r.init(id)
	seq := map[int32]int32{}
	for _, o := range offsets {
		partition, key, value, err := r.OffsetRecord(topic, connector, o)
		require.NoError(r.t, err)
		var b record.Builder
		b.SetProducer(p.ProducerID, p.Epoch, seq[partition])
		b.SetTransactional()
		b.Append(&record.Record{Timestamp: time.Now().UnixMilli(), Key: key, Value: value})
		seq[partition]++
		res, err := r.client.Produce(ctx, client.ProduceRequest{
			Acks: client.AcksAll, Timeout: time.Minute, Transaction: id,
			Batches: []client.Batch{{Topic: topic, Partition: partition, Bytes: b.Build()}},
		})
		require.NoError(r.t, err)
		require.NoError(r.t, res[0].Err)
	}
	return p
}

func of(server string, offset any) plugin.Offset {
	o := plugin.Offset{Partition: map[string]any{"server": server}}
	if offset != nil {
		o.Offset = map[string]any{"lsn": offset}
	}
	return o
}

// Offsets count when their transaction is committed, whatever else is open.
func TestOffsetsAreReadCommitted(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	ctx := t.Context()
	require.NoError(t, r.FreshOffsets(ctx))
	require.Nil(t, r.Offset("c", map[string]any{"server": "a"}))

	// A transaction stays open in all partitions that there are records in, for as long as the test goes on.
	for i := range 60 {
		r.open(fmt.Sprint("hanging-", i), "other", of(fmt.Sprint(i), int64(i)))
	}
	r.commit("t", "c", client.Commit, of("a", int64(1)), of("b", "text"))
	require.NoError(t, r.FreshOffsets(ctx))
	require.Equal(t, map[string]any{"lsn": int64(1)}, r.Offset("c", map[string]any{"server": "a"}))
	r.commit("t", "c", client.Abort, of("a", int64(2)))
	require.NoError(t, r.FreshOffsets(ctx))
	require.Equal(t, map[string]any{"lsn": int64(1)}, r.Offset("c", map[string]any{"server": "a"}))
	r.commit("t", "c", client.Commit, of("a", int64(3)), of("a", int64(4)), of("b", nil))
	require.NoError(t, r.FreshOffsets(ctx))
	require.Equal(t, []plugin.Offset{of("a", int64(4))}, r.Offsets("c"))
	require.Empty(t, r.Offsets("other"))

	again := start(t, n.Requestor())
	require.NoError(t, again.FreshOffsets(ctx))
	require.Equal(t, []plugin.Offset{of("a", int64(4))}, again.Offsets("c"))
	require.Zero(t, again.skipped(store.DefaultOffsetTopic))
}

// Keys of another writer, whose members are in another order, are written again as they are.
func TestOffsetsOfForeignSpelling(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	ctx := t.Context()
	topic, err := r.OffsetTopic(ctx)
	require.NoError(t, err)
	require.Len(t, topic.Partitions, 25)
	foreign := `["c", {"table":"t","protocol":"1"}]`
	r.append(store.DefaultOffsetTopic, kv{foreign, `{"incrementing": 7, "rate": 1.0, "done": true, "none": null}`},
		kv{`["broken"`, "{}"}, kv{`["c",{"p":1}]`, "[]"})
	require.NoError(t, r.FreshOffsets(ctx))
	partition := map[string]any{"protocol": "1", "table": "t"}
	require.Equal(t, map[string]any{"incrementing": int64(7), "rate": 1.0, "done": true, "none": nil},
		r.Offset("c", partition))
	require.Equal(t, 2, r.skipped(store.DefaultOffsetTopic))
	offset := map[string]any{"n": 2.0, "a": []any{int64(1)}}
	at, key, value, err := r.OffsetRecord(topic, "c", plugin.Offset{Partition: partition, Offset: offset})
	require.NoError(t, err)
	require.Equal(t, foreign, string(key))
	require.Equal(t, record.KeyPartition([]byte(foreign), 25), at)
	require.JSONEq(t, `{"a":[1],"n":2.0}`, string(value))
	require.Equal(t, `{"a":[1],"n":2.0}`, string(value))
	_, key, _, err = r.OffsetRecord(topic, "d\"", plugin.Offset{Partition: map[string]any{"b": "<ü>", "a": int64(1)}})
	require.NoError(t, err)
	require.Equal(t, `["d\"",{"a":1,"b":"<ü>"}]`, string(key))
	_, _, _, err = r.OffsetRecord(topic, "d", plugin.Offset{})
	require.Error(t, err)
	_, _, _, err = r.OffsetRecord(topic, "d", plugin.Offset{Partition: partition, Offset: map[string]any{"x": struct{}{}}})
	require.ErrorContains(t, err, "source offset")
}
