package broker_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/broker"
	"millrace/server/controller"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
)

// soloQuorum agrees with itself at once.
type soloQuorum struct {
	machine *metadata.Machine
	turn    chan struct{}
	index   uint64 // guarded by turn
}

func newSoloQuorum(m *metadata.Machine) *soloQuorum {
	return &soloQuorum{machine: m, turn: make(chan struct{}, 1)}
}

func (q *soloQuorum) Propose(_ context.Context, command []byte) (metadata.Result, uint64, error) {
	q.turn <- struct{}{}
	defer func() { <-q.turn }()
	q.index++
	r, err := q.machine.Apply(q.index, command)
	return r, q.index, err
}

func (q *soloQuorum) IsLeader() bool { return true }
func (q *soloQuorum) Leader() int32  { return 1 }
func (q *soloQuorum) Offline() error { return nil }
func (q *soloQuorum) Close() error   { return nil }

// node is a cluster of one: storage, metadata, controller and broker. The metadata outlives
// a restart.
type node struct {
	t       testing.TB
	options options
	machine *metadata.Machine
	control *controller.Controller
	dir     *storage.Dir
	broker  *broker.Broker
	r       kmsg.Requestor // the node as clients find it
	down    atomic.Bool    // the controller does not answer the broker
	led     []string       // what OnInternal was told
}

// Request is the controller as the broker reaches it.
func (n *node) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if n.down.Load() {
		return nil, errDown
	}
	return n.control.Request(ctx, r)
}

// whole is a node as its clients find it: the broker, and the controller for what changes the cluster. What a
// router would ask again is answered at once.
type whole struct{ n *node }

func (w whole) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if slices.Contains(broker.Keys(), kmsg.Key(r.Key())) {
		return w.n.broker.Request(ctx, r)
	}
	return w.n.control.Request(ctx, r)
}

// requestor is a function that answers requests.
type requestor func(ctx context.Context, r kmsg.Request) (kmsg.Response, error)

func (f requestor) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	return f(ctx, r)
}

func (f requestor) orNil() kmsg.Requestor {
	if f == nil {
		return nil
	}
	return f
}

type options struct {
	fs      storage.FS // real files in a temporary folder when nil
	policy  storage.SyncPolicy
	static  map[string]string // broker configuration
	now     func() time.Time
	recoded bool      // every message is encoded and decoded on its way
	cluster requestor // the coordinators of transactions
	marker  func(ctx context.Context, number int32, m *partition.Marker) error
	schemas func(ctx context.Context, topic string, rules metadata.SchemaRules, b record.Batch) error
}

func newNode(t testing.TB, o options) *node {
	if o.fs == nil {
		fs, err := storage.OSFS(t.TempDir())
		require.NoError(t, err)
		o.fs = fs
	}
	if o.now == nil {
		o.now = time.Now
	}
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1, Static: o.static})
	require.NoError(t, err)
	n := &node{t: t, options: o, machine: m}
	n.control = controller.Open(controller.Config{
		NodeID: 1, Machine: m, Quorum: newSoloQuorum(m), Rand: rand.New(rand.NewPCG(1, 2)),
	})
	t.Cleanup(func() { require.NoError(t, n.control.Close()) })
	_, err = n.control.RegisterBroker(context.Background(), controller.Registration{
		ID: 1, Incarnation: metadata.UUID{1: 1}, PreviousEpoch: -1,
		Endpoints: []metadata.Endpoint{{Name: "http", Host: "127.0.0.1", Port: 8082}},
	})
	require.NoError(t, err)
	n.start()
	return n
}

func (n *node) start() {
	logger := slog.New(slog.DiscardHandler)
	dir, err := storage.OpenDir(storage.DirOptions{
		FS: n.options.fs, Now: n.options.now, SyncPolicy: n.options.policy, Logger: logger,
	})
	require.NoError(n.t, err)
	n.dir = dir
	store := partition.NewStore(partition.Config{
		Dir: dir, CommitSynced: n.options.policy == storage.SyncAck, Now: n.options.now, Logger: logger,
	})
	n.broker = broker.Open(broker.Config{
		NodeID: 1, Store: store, Controller: n, ControllerID: func() int32 { return 1 }, LogDir: "/data",
		Space: func() (int64, int64) { return 1000, 400 },
		Now:   n.options.now, Logger: logger, Registerer: prometheus.NewRegistry(), GroupMarker: n.options.marker,
		Cluster: n.options.cluster.orNil(), CheckSchemas: n.options.schemas,
		OnInternal: func(topic string, number int32, leader *partition.Leader, epoch int32) {
			n.led = append(n.led, fmt.Sprintf("%s-%d led %v epoch %d", topic, number, leader != nil, epoch))
		},
	})
	n.machine.Watch(n.broker.OnImage)
	n.r = whole{n}
	if n.options.recoded {
		n.r = recoder{n.r}
	}
}

func (n *node) stop() {
	require.NoError(n.t, n.broker.Close())
	require.NoError(n.t, n.dir.Close())
}

func (n *node) restart() {
	n.stop()
	n.start()
}

// create makes a topic with configs given as key, value, key, value...
func (n *node) create(name string, partitions int32, configs ...string) {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(context.Background(), n.r)
	require.NoError(n.t, err)
	require.NoError(n.t, kerr.ErrorForCode(resp.Topics[0].ErrorCode), "%v", resp.Topics[0].ErrorMessage)
}

func (n *node) id(topic string) [16]byte { return n.machine.Image().Topic(topic).ID }

// batch builds a batch of values; of no producer when id is -1.
func batch(id int64, epoch int16, sequence int32, values ...string) record.Batch {
	var b record.Builder
	if id >= 0 {
		b.SetProducer(id, epoch, sequence)
	}
	for _, v := range values {
		b.Append(&record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: []byte(v)})
	}
	return b.Build()
}

func plain(values ...string) record.Batch { return batch(-1, -1, -1, values...) }

// produceRequest is one batch for one partition.
func (n *node) produceRequest(topic string, partition int32, b []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 60_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	if meta := n.machine.Image().Topic(topic); meta != nil {
		t.TopicID = meta.ID
	}
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, b
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (n *node) send(req *kmsg.ProduceRequest) *kmsg.ProduceResponseTopicPartition {
	resp, err := req.RequestWith(context.Background(), n.r)
	require.NoError(n.t, err)
	require.Len(n.t, resp.Topics, 1)
	require.Len(n.t, resp.Topics[0].Partitions, 1)
	return &resp.Topics[0].Partitions[0]
}

// produce writes one batch and returns its base offset.
func (n *node) produce(topic string, partition int32, b []byte) int64 {
	p := n.send(n.produceRequest(topic, partition, b))
	require.NoError(n.t, kerr.ErrorForCode(p.ErrorCode), "%v", p.ErrorMessage)
	return p.BaseOffset
}

func (n *node) fetchRequest(topic string, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes = 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	if meta := n.machine.Image().Topic(topic); meta != nil {
		t.TopicID = meta.ID
	}
	for i, offset := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(i), offset, 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// values are those of all records in b.
func values(t testing.TB, b []byte) (out []string) {
	for len(b) > 0 {
		one, rest, err := record.Next(b)
		if err == record.ErrShort {
			return out
		}
		require.NoError(t, err)
		require.NoError(t, one.Verify())
		r := record.NewReader(one, 1<<20)
		var rec record.Record
		for r.Next(&rec) {
			out = append(out, string(rec.Value))
		}
		require.NoError(t, r.Err())
		r.Close()
		b = rest
	}
	return out
}

// recoder encodes and decodes every message, so that whoever relies on shared memory or on a field
// that no version carries is found out. After the call the memory of the sent request is spoilt.
type recoder struct{ r kmsg.Requestor }

func (c recoder) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	version := r.MaxVersion()
	if v, ok := map[kmsg.Key]int16{kmsg.Produce: 12, kmsg.Fetch: 12}[kmsg.Key(r.Key())]; ok {
		version = v // the last with topic names
	}
	r.SetVersion(version)
	wire := r.AppendTo(nil)
	sent := kmsg.RequestForKey(r.Key())
	sent.SetVersion(version)
	if err := sent.ReadFrom(wire); err != nil {
		return nil, fmt.Errorf("decode %s: %w", kmsg.NameForKey(r.Key()), err)
	}
	resp, err := c.r.Request(ctx, sent)
	if err != nil {
		return nil, err
	}
	if p, ok := sent.(*kmsg.ProduceRequest); ok {
		for i := range p.Topics {
			for j := range p.Topics[i].Partitions {
				clear(p.Topics[i].Partitions[j].Records)
			}
		}
	}
	if resp.GetVersion() != version {
		return nil, fmt.Errorf("%s answered in version %d, not %d", kmsg.NameForKey(r.Key()), resp.GetVersion(), version)
	}
	back := r.ResponseKind()
	back.SetVersion(version)
	if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
		return nil, fmt.Errorf("decode the answer to %s: %w", kmsg.NameForKey(r.Key()), err)
	}
	return back, nil
}

func TestKeysAreThoseHandled(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	served := make(map[kmsg.Key]bool)
	for _, key := range broker.Keys() {
		served[key] = true
	}
	for key := range int16(100) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		_, err := n.broker.Request(t.Context(), req)
		if served[kmsg.Key(key)] {
			require.NoError(t, err, kmsg.NameForKey(key))
		} else {
			require.ErrorContains(t, err, kmsg.NameForKey(key))
		}
	}
}

func TestProduceAndFetch(t *testing.T) {
	for _, recoded := range []bool{false, true} {
		t.Run(fmt.Sprintf("recoded=%v", recoded), func(t *testing.T) {
			n := newNode(t, options{recoded: recoded})
			defer n.stop()
			n.create("t", 3)
			require.Equal(t, int64(0), n.produce("t", 0, plain("a", "b")))
			require.Equal(t, int64(2), n.produce("t", 0, plain("c")))
			require.Equal(t, int64(0), n.produce("t", 2, plain("d")))
			resp, err := n.fetchRequest("t", 0, 0, 0).RequestWith(t.Context(), n.r)
			require.NoError(t, err)
			p := resp.Topics[0].Partitions
			require.Equal(t, []string{"a", "b", "c"}, values(t, p[0].RecordBatches))
			require.Empty(t, p[1].RecordBatches)
			require.Equal(t, []string{"d"}, values(t, p[2].RecordBatches))
			require.Equal(t, int64(3), p[0].HighWatermark)
			require.Equal(t, int64(3), p[0].LastStableOffset)
			require.Equal(t, int64(0), p[0].LogStartOffset)
			require.Equal(t, "t", resp.Topics[0].Topic)

			n.restart()
			resp, err = n.fetchRequest("t", 1, 0, 1).RequestWith(t.Context(), n.r)
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b", "c"}, values(t, resp.Topics[0].Partitions[0].RecordBatches))
			require.Equal(t, int64(3), n.produce("t", 0, plain("e")))
		})
	}
}
