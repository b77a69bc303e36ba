package task_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/store"
	"millrace/connect/task"
	"millrace/record"
	"millrace/server/servertest"
)

func TestMain(m *testing.M) { servertest.VerifyNoLeaks(m) }

const (
	stringClass = "org.apache.kafka.connect.storage.StringConverter"
	bytesClass  = "org.apache.kafka.connect.converters.ByteArrayConverter"
	jsonClass   = "org.apache.kafka.connect.json.JsonConverter"
)

// lab is a cluster with a store and a runner on it.
type lab struct {
	t        testing.TB
	requests kmsg.Requestor
	client   *client.Client
	store    *store.Store
	registry *prometheus.Registry
	logs     *bytes.Buffer
	scratch  string
	level    slog.Level // of what is logged
}

// brokerSettings make small clusters quick.
func brokerSettings() map[string]string {
	return map[string]string{
		"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3",
		"group.consumer.assignment.interval.ms": "0",
	}
}

// clusterSettings are those of three nodes that may lose one.
func clusterSettings() map[string]string {
	settings := brokerSettings()
	maps.Copy(settings, map[string]string{
		"default.replication.factor": "3", "transaction.state.log.replication.factor": "3",
		"transaction.state.log.min.isr": "1", "offsets.topic.replication.factor": "3",
		"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "300",
	})
	return settings
}

func newLab(t testing.TB) *lab {
	n := servertest.Start(t, servertest.Options{Broker: brokerSettings()})
	return labOn(t, n.Requestor())
}

func labOn(t testing.TB, r kmsg.Requestor) *lab {
	l := &lab{
		t: t, requests: r, registry: prometheus.NewRegistry(), logs: &bytes.Buffer{}, scratch: t.TempDir(),
		client: client.New(r, client.Options{MetadataTTL: 10 * time.Millisecond}),
	}
	var err error
	l.store, err = store.New(store.Options{
		Client: l.client, OffsetPartitions: 3, StatusPartitions: 2, Logger: l.logger(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.store.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	require.NoError(t, l.store.AwaitRead(t.Context()))
	return l
}

func (l *lab) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l.t.Output(), &slog.HandlerOptions{Level: l.level}))
}

// runner makes a runner of its own, as another worker has one. Groups do not go on without a sink's task that is held
// up for a moment.
func (l *lab) runner(change ...func(*task.Options)) *task.Runner {
	o := task.Options{
		Client: l.client, Requests: l.requests, Store: l.store, GroupID: "workers", Logger: l.logger(),
		Registerer: prometheus.NewRegistry(), ScratchDir: l.scratch, FlushInterval: 200 * time.Millisecond,
		Session:  20 * time.Second,
		Internal: []string{"connect-configs", "connect-offsets", "connect-status"},
		Defaults: task.Converters{Key: stringClass, Value: stringClass, Header: stringClass},
	}
	for _, c := range change {
		c(&o)
	}
	r, err := task.New(o)
	require.NoError(l.t, err)
	return r
}

// class is a class of connectors whose tasks tests make.
type class struct {
	source func() plugin.SourceTask
	sink   func() plugin.SinkTask
}

func (c class) of(kind plugin.Kind) *plugin.Class {
	return &plugin.Class{
		Info: plugin.Info{Class: "test.Connector", Kind: kind},
		New:  func() plugin.Connector { return connector{c} },
	}
}

type connector struct{ class }

func (connector) Validate(context.Context, map[string]string) []plugin.Problem { return nil }
func (connector) Start(context.Context, map[string]string, plugin.ConnectorContext) error {
	return nil
}
func (connector) TaskConfigs(context.Context, int) ([]map[string]string, error) { return nil, nil }
func (connector) Stop(context.Context) error                                    { return nil }
func (connector) AlterOffsets(context.Context, map[string]string, []plugin.Offset) (bool, error) {
	return false, nil
}

func (c connector) NewSource() plugin.SourceTask {
	if c.source == nil {
		return nil
	}
	return c.source()
}

func (c connector) NewSink() plugin.SinkTask {
	if c.sink == nil {
		return nil
	}
	return c.sink()
}

// job is a task that runs.
type job struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
}

// start runs a task until it is stopped, or the test ends.
func (l *lab) start(r *task.Runner, s task.Spec) *job {
	if s.Connector == "" {
		s.Connector = "c"
	}
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{t: l.t, cancel: cancel, done: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(j.done)
		j.err = r.Run(ctx, s)
	})
	l.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return j
}

// stop ends the task, and gives what Run gave.
func (j *job) stop() error {
	j.cancel()
	return j.wait()
}

// wait waits for the end of the task.
func (j *job) wait() error {
	select {
	case <-j.done:
	case <-time.After(patience):
		require.Fail(j.t, "the task does not end")
	}
	return j.err
}

// reaches waits until the task has closed a channel.
func (j *job) reaches(c <-chan struct{}) {
	j.t.Helper()
	select {
	case <-c:
	case <-j.done:
		require.Fail(j.t, "the task has ended", "%v", j.err)
	}
}

// lives checks that the task has not ended.
func (j *job) lives() {
	j.t.Helper()
	select {
	case <-j.done:
		require.Fail(j.t, "the task has ended", "%v", j.err)
	default:
	}
}

// patience is how long tests wait for what must come.
const patience = 3 * time.Minute

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			require.Fail(t, "not in time: "+what)
		}
	}
}

// topic makes a topic, as soon as there are brokers enough.
func (l *lab) topic(name string, partitions int, configs ...string) {
	l.t.Helper()
	spec := client.NewTopic{Name: name, Partitions: int32(partitions), ReplicationFactor: -1}
	for i := 0; i < len(configs); i += 2 {
		spec.Configs = append(spec.Configs, client.NewConfig{Name: configs[i], Value: &configs[i+1]})
	}
	var failed error
	until(l.t, "there is topic "+name, func() bool {
		_, err := l.client.CreateTopic(l.t.Context(), spec)
		if failed != nil && errors.Is(err, kerr.TopicAlreadyExists) {
			return true // a try before that one has made it
		}
		if failed = err; err != nil {
			again := errors.Is(err, client.ErrNoAnswer) || kerr.IsRetriable(err) ||
				errors.Is(err, kerr.InvalidReplicationFactor)
			require.True(l.t, again, "%v", err)
		}
		return err == nil
	})
}

// produce writes values to a partition.
func (l *lab) produce(topic string, partition int32, values ...string) {
	l.t.Helper()
	var records []record.Record
	for _, v := range values {
		records = append(records, record.Record{Value: []byte(v), Timestamp: 1000})
	}
	l.send(topic, partition, records...)
}

func (l *lab) send(topic string, partition int32, records ...record.Record) {
	l.t.Helper()
	t, err := l.client.Topic(l.t.Context(), topic, client.Refuse)
	require.NoError(l.t, err)
	s := l.client.NewSender(t, nil, 0, client.SendOptions{Acks: client.AcksAll, Timeout: time.Minute})
	defer s.Release()
	for _, r := range records {
		require.NoError(l.t, s.Add(r, partition))
	}
	require.NoError(l.t, s.Send(l.t.Context()))
	for i := range records {
		require.NoError(l.t, s.Record(i).Err)
	}
}

// read gives all committed records of a topic, by partition and then in order. Bytes and headers are copies.
func (l *lab) read(topic string) (out []record.Record) {
	l.t.Helper()
	for _, part := range l.readParts(topic) {
		out = append(out, part...)
	}
	return out
}

func (l *lab) readParts(topic string) [][]record.Record {
	l.t.Helper()
	until(l.t, "what was decided is done", func() bool {
		txn, err := l.client.DescribeTxn(l.t.Context(), "workers-c-0")
		return errors.Is(err, kerr.TransactionalIDNotFound) ||
			err == nil && txn.State != client.TxnPrepareCommit && txn.State != client.TxnPrepareAbort
	})
	t, err := l.client.Topic(l.t.Context(), topic, client.Refuse)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	require.NoError(l.t, err)
	out := make([][]record.Record, len(t.Partitions))
	for p := range t.Partitions {
		out[p] = l.readPartition(t, int32(p))
	}
	return out
}

// end is where the committed records of a partition end.
func (l *lab) end(t *client.Topic, p int32) (end int64) {
	l.t.Helper()
	until(l.t, "the leader knows the end", func() bool {
		at := []client.TopicPartition{{Topic: t.Name, Partition: p}}
		found, err := l.client.EndOffsets(l.t.Context(), at, client.ReadCommitted)
		if err != nil || found[0].Err != nil {
			return false
		}
		end = found[0].Offset
		return true
	})
	return end
}

func (l *lab) readPartition(t *client.Topic, p int32) (out []record.Record) {
	l.t.Helper()
	end := l.end(t, p)
	for offset := int64(0); offset < end; {
		var found []client.FetchResult
		until(l.t, "more is read", func() (ok bool) {
			var err error
			found, err = l.client.Fetch(l.t.Context(), client.FetchRequest{
				Topic: t, Partitions: []client.FetchPartition{{Partition: p, Offset: offset}}, MaxBytes: 1 << 20,
				ReadCommitted: true,
			})
			return err == nil && found[0].Err == nil && len(found[0].Batches) > 0
		})
		aborted := slices.Clone(found[0].Aborted)
		var open []int64
		for rest := found[0].Batches; ; {
			b, left, err := record.Next(rest)
			if err != nil {
				break
			}
			rest, offset = left, b.NextOffset()
			aborted = slices.DeleteFunc(aborted, func(a client.AbortedTransaction) bool {
				if a.FirstOffset > b.LastOffset() {
					return false
				}
				open = append(open, a.ProducerID)
				return true
			})
			if m, ok := b.EndTxnMarker(); ok && m.Type == record.ControlAbort {
				open = slices.DeleteFunc(open, func(id int64) bool { return id == b.ProducerID() })
			}
			if b.IsControl() || b.IsTransactional() && slices.Contains(open, b.ProducerID()) {
				continue
			}
			var rec record.Record
			for r := record.NewReader(b, 1<<20); r.Next(&rec); rec = (record.Record{}) {
				rec.Headers = slices.Clone(rec.Headers)
				out = append(out, rec)
			}
		}
	}
	return out
}

func values(records []record.Record) (out []string) {
	for _, r := range records {
		out = append(out, string(r.Value))
	}
	return out
}

func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

// headersOf are the headers of a record as text.
func headersOf(r *record.Record) map[string]string {
	out := make(map[string]string)
	for _, h := range r.Headers {
		out[h.Key] = string(h.Value)
	}
	return out
}

// counter is a source of numbers from 0 up to a limit, of one source partition.
type counter struct {
	limit   int
	most    int // records of a poll
	rand    *rand.Rand
	change  func(*plugin.SourceRecord) // may be nil
	polls   func(from int)             // is told where a poll begins; may be nil
	topic   string
	next    int
	offered int
	stored  atomic.Int64
	stopped bool
}

func (c *counter) Start(ctx context.Context, _ map[string]string, s plugin.SourceContext) error {
	at, err := s.Offset(ctx, map[string]any{"source": "numbers"})
	if err != nil {
		return err
	}
	if at != nil {
		c.next = int(at["next"].(int64))
	}
	c.offered = c.next
	return nil
}

func (c *counter) Poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	if c.polls != nil {
		c.polls(c.next)
	}
	n := max(0, min(c.most, c.limit-c.next))
	if n > 1 && c.rand != nil {
		n = 1 + c.rand.IntN(n)
	}
	if n == 0 {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
		return nil, ctx.Err()
	}
	out := make([]*plugin.SourceRecord, n)
	partition := map[string]any{"source": "numbers"}
	for i := range out {
		c.next++
		topic := c.topic
		if topic == "" {
			topic = "numbers"
		}
		out[i] = &plugin.SourceRecord{
			Record: data.Record{
				Topic: topic, Partition: data.AnyPartition, Timestamp: data.NoTimestamp, Offset: -1,
				Value: strconv.Itoa(c.next - 1),
			},
			Source: plugin.Offset{Partition: partition, Offset: map[string]any{"next": int64(c.next)}},
		}
		if c.change != nil {
			c.change(out[i])
		}
	}
	c.offered = c.next
	return out, nil
}

func (c *counter) Stored(context.Context) error {
	c.stored.Store(int64(c.offered))
	return nil
}

func (c *counter) Stop(context.Context) error {
	c.stopped = true
	return nil
}

// next is where the source goes on, by what is stored.
func (l *lab) next() int {
	l.t.Helper()
	until(l.t, "what is stored is known", func() bool { return l.store.FreshOffsets(l.t.Context()) == nil })
	at := l.store.Offset("c", map[string]any{"source": "numbers"})
	if at == nil {
		return 0
	}
	return int(at["next"].(int64))
}

// with is props with more.
func with(props map[string]string, more ...string) map[string]string {
	out := maps.Clone(props)
	if out == nil {
		out = make(map[string]string)
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}
