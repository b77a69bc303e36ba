package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// lab is a coordinator on each of some nodes, over real replicas of __transaction_state on disks in memory, and real
// partitions that transactions write to, each with a leader that stays. It lives in a synctest bubble.
type lab struct {
	t       testing.TB
	ctx     context.Context
	machine *metadata.Machine
	index   uint64
	nodes   []*labNode
	data    *labNode // has the partitions of topics
	leaders map[topicPartition]*partition.Leader
	stop    context.CancelFunc
	wg      sync.WaitGroup
	gone    chan struct{} // a test's: the coordinator is to move

	producerIDs atomic.Int64 // the next one
	noIDs       atomic.Bool  // none are given

	mu    sync.Mutex
	roles []partition.Role // guarded by mu: of the partitions of __transaction_state
	// markers, if set, is asked about each request with markers before it is seen to; an error is no answer. Guarded
	// by mu.
	markers func(context.Context, *kmsg.WriteTxnMarkersRequest) error
	codes   map[topicPartition]int16 // guarded by mu: that markers are answered with in place of being written
	written []*kmsg.WriteTxnMarkersRequest
}

type topicPartition struct {
	topic  string
	number int32
}

// labNode is one node.
type labNode struct {
	lab         *lab
	id          int32
	dir         *storage.Dir
	store       *partition.Store
	replicas    []*partition.Replica
	coordinator *Coordinator
	metrics     *prometheus.Registry

	mu  sync.Mutex
	cut bool // guarded by mu: it fetches nothing
}

// labOptions say what is not as usual about a lab.
type labOptions struct {
	nodes      int   // 1 if zero
	partitions int   // of __transaction_state, 1 if zero
	lastEpoch  int16 // as usual if zero
	static     map[string]string
	configs    map[string]string // of __transaction_state
	flaws      partition.Flaws
	hook       func(l *lab, id string)
}

// inLab runs a test in a lab, in fake time, with topics t of 4 partitions and u of 2.
func inLab(t *testing.T, o labOptions, fn func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := openLab(t, o)
		defer l.close()
		synctest.Wait()
		fn(t, l)
	})
}

func openLab(t testing.TB, o labOptions) *lab {
	o.nodes, o.partitions = max(o.nodes, 1), max(o.partitions, 1)
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1, Static: o.static})
	require.NoError(t, err)
	l := &lab{t: t, machine: m}
	l.leaders, l.codes = make(map[topicPartition]*partition.Leader), make(map[topicPartition]int16)
	l.gone = make(chan struct{}, 2)
	l.producerIDs.Store(1000)
	l.ctx, l.stop = context.WithCancel(context.Background())
	for id := range o.nodes {
		l.apply(&metadata.RegisterBroker{
			NewClusterID: "c", ID: int32(id + 1), Incarnation: metadata.UUID{1: byte(id + 1)}, PreviousEpoch: -1,
		})
	}
	l.createTopic(metadata.TxnTopic, o.partitions, o.configs)
	for id := range o.nodes {
		l.nodes = append(l.nodes, l.openNode(int32(id+1), &o))
	}
	all := make([]int32, o.nodes)
	for i := range all {
		all[i] = int32(i + 1)
	}
	l.roles = make([]partition.Role, o.partitions)
	for number := range l.roles {
		l.roles[number] = partition.Role{Leader: -1, LeaderEpoch: -1, Replicas: all, ISR: all}
		l.lead(int32(number), int32(1+number%o.nodes))
	}
	for _, n := range l.nodes {
		if o.nodes > 1 {
			l.wg.Go(n.fetch)
		}
	}
	l.data = l.openStore(1)
	l.createData("t", 4)
	l.createData("u", 2)
	return l
}

func (l *lab) openStore(id int32) *labNode {
	n := &labNode{lab: l, id: id, metrics: prometheus.NewRegistry()}
	logger := slog.New(slog.DiscardHandler)
	dir, err := storage.OpenDir(storage.DirOptions{FS: storagetest.New(), SyncPolicy: storage.SyncAck, Logger: logger})
	require.NoError(l.t, err)
	n.dir = dir
	n.store = partition.NewStore(partition.Config{
		Dir: dir, CommitSynced: true, Now: time.Now, Logger: logger,
		Env: partition.Env{ReplicaState: func(id int32) (int64, bool) { return int64(id), true }},
	})
	return n
}

func (n *labNode) open(topic *metadata.Topic, number int32) *partition.Replica {
	name := partition.Name{Topic: topic.Name, Partition: number, TopicID: topic.ID}
	r, err := n.store.Open(name, partition.NewSettings(topic.Settings))
	require.NoError(n.lab.t, err)
	n.replicas = append(n.replicas, r)
	return r
}

func (l *lab) openNode(id int32, o *labOptions) *labNode {
	n := l.openStore(id)
	topic := l.machine.Image().Topic(metadata.TxnTopic)
	for number := range topic.Partitions {
		n.open(topic, int32(number))
	}
	n.coordinator = Open(Config{
		Image: l.machine.Image, Cluster: l, NewProducerID: l.newProducerID, Registerer: n.metrics,
		Rand: rand.New(rand.NewPCG(uint64(id), 7)), Flaws: o.flaws,
	})
	if o.lastEpoch > 0 {
		n.coordinator.lastEpoch = o.lastEpoch
	}
	if o.hook != nil {
		n.coordinator.hook = func(id string) { o.hook(l, id) }
	}
	return n
}

func (l *lab) newProducerID(context.Context) (int64, error) {
	if l.noIDs.Load() {
		return -1, errors.New("the controller is away")
	}
	return l.producerIDs.Add(1) - 1, nil
}

func (l *lab) close() {
	l.stop()
	l.wg.Wait()
	for _, n := range l.nodes {
		require.NoError(l.t, n.coordinator.Close())
	}
	for _, n := range append(slices.Clone(l.nodes), l.data) {
		for _, r := range n.replicas {
			require.NoError(l.t, r.Close())
		}
		require.NoError(l.t, n.dir.Close())
	}
}

// apply changes the metadata.
func (l *lab) apply(c metadata.Command) {
	entry, err := metadata.Encode(c)
	require.NoError(l.t, err)
	l.index++
	r, err := l.machine.Apply(l.index, entry)
	require.NoError(l.t, err)
	require.True(l.t, r.Changed)
}

// createTopic makes a topic, led by node 1; its id is new each time.
func (l *lab) createTopic(name string, partitions int, configs map[string]string) *metadata.Topic {
	replicas := make([][]int32, partitions)
	for i := range replicas {
		replicas[i] = []int32{1}
	}
	id := metadata.UUID{0: byte(l.index), 1: byte(l.index >> 8), 6: 0x40, 8: 0x80}
	l.apply(&metadata.CreateTopics{Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{
		{Name: name, ID: id, Partitions: replicas, Configs: configs},
	}})
	return l.machine.Image().Topic(name)
}

// createData makes a topic that can be written to.
func (l *lab) createData(name string, partitions int) {
	topic := l.createTopic(name, partitions, nil)
	alone := partition.Role{Leader: 1, LeaderEpoch: 0, Replicas: []int32{1}, ISR: []int32{1}}
	for number := range int32(partitions) {
		l.leaders[topicPartition{name, number}] = l.data.open(topic, number).Lead(alone)
	}
}

func (l *lab) node(id int32) *labNode { return l.nodes[id-1] }

func (l *lab) role(number int32) partition.Role {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.roles[number]
}

// lead gives the leadership of a partition of __transaction_state to a node, in a new epoch.
func (l *lab) lead(number, id int32) {
	l.mu.Lock()
	role := l.roles[number]
	role.Leader, role.LeaderEpoch, role.PartitionEpoch = id, role.LeaderEpoch+1, role.PartitionEpoch+1
	l.roles[number] = role
	l.mu.Unlock()
	for _, n := range l.nodes {
		if n.id == id {
			n.coordinator.Lead(number, n.replicas[number].Lead(role), role.LeaderEpoch)
			continue
		}
		n.coordinator.Resign(number)
		n.replicas[number].Follow(role)
	}
}

// setInSync says who is in sync with the leader of a partition, which goes on as it is.
func (l *lab) setInSync(number int32, ids ...int32) {
	l.mu.Lock()
	role := l.roles[number]
	role.ISR, role.PartitionEpoch = ids, role.PartitionEpoch+1
	l.roles[number] = role
	l.mu.Unlock()
	for _, n := range l.nodes {
		if n.id == role.Leader {
			n.replicas[number].Lead(role)
		} else {
			n.replicas[number].Follow(role)
		}
	}
}

// again has every partition led by the same node anew, so that all is read from the log.
func (l *lab) again() {
	for number := range l.roles {
		l.lead(int32(number), l.role(int32(number)).Leader)
	}
	synctest.Wait()
}

// setCut stops a node's fetching, or lets it go on.
func (n *labNode) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// fetch follows the leaders of all partitions.
func (n *labNode) fetch() {
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for {
		select {
		case <-n.lab.ctx.Done():
			return
		case <-pause.C:
		}
		n.mu.Lock()
		cut := n.cut
		n.mu.Unlock()
		for number := range n.replicas {
			if !cut {
				n.fetchOne(int32(number))
			}
		}
	}
}

func (n *labNode) fetchOne(number int32) {
	f := n.replicas[number].Follower()
	if f == nil || f.Sync(n.lab.ctx) != nil {
		return
	}
	pos, err := f.Position()
	if err != nil {
		return
	}
	leader := n.lab.node(n.lab.role(number).Leader).replicas[number].Leader()
	if leader == nil {
		return
	}
	got, err := leader.FetchFollower(partition.FollowerFetch{
		Replica: n.id, BrokerEpoch: int64(n.id), Offset: pos.Offset, LeaderEpoch: pos.LeaderEpoch,
		LastFetchedEpoch: pos.LastFetchedEpoch, LogStart: pos.LogStart, HighWatermark: pos.HighWatermark,
		Unsettled: pos.Unsettled, MaxBytes: 1 << 20,
	})
	_, _ = f.Take(pos, partition.LeaderAnswer{
		ErrorCode: partition.Explain(err).Code, HighWatermark: got.HighWatermark, LogStart: got.LogStart,
		Diverging: got.Diverging, Records: slices.Clone(got.Records), Settled: got.Settled,
	})
}

// setMarkers sets what happens to requests with markers.
func (l *lab) setMarkers(fn func(context.Context, *kmsg.WriteTxnMarkersRequest) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.markers = fn
}

// blockMarkers has markers wait until the function that it returns is called.
func (l *lab) blockMarkers() (release func()) {
	open := make(chan struct{})
	l.setMarkers(func(ctx context.Context, _ *kmsg.WriteTxnMarkersRequest) error {
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return func() {
		l.setMarkers(nil)
		close(open)
		synctest.Wait()
	}
}

func (l *lab) setCode(topic string, number int32, code int16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.codes[topicPartition{topic, number}] = code
}

// Request implements kmsg.Requestor: it writes markers.
func (l *lab) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.WriteTxnMarkersRequest)
	l.mu.Lock()
	before := l.markers
	l.written = append(l.written, req)
	l.mu.Unlock()
	if before != nil {
		if err := before(ctx, req); err != nil {
			return nil, err
		}
	}
	return l.writeMarkers(ctx, req)
}

func (l *lab) writeMarkers(ctx context.Context, req *kmsg.WriteTxnMarkersRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	for i := range req.Markers {
		in, out := &req.Markers[i], kmsg.NewWriteTxnMarkersResponseMarker()
		out.ProducerID = in.ProducerID
		for _, t := range in.Topics {
			topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			topic.Topic = t.Topic
			for _, number := range t.Partitions {
				p := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				p.Partition, p.ErrorCode = number, l.writeMarker(ctx, in, t.Topic, number)
				topic.Partitions = append(topic.Partitions, p)
			}
			out.Topics = append(out.Topics, topic)
		}
		resp.Markers = append(resp.Markers, out)
	}
	return resp, ctx.Err()
}

func (l *lab) writeMarker(ctx context.Context, m *kmsg.WriteTxnMarkersRequestMarker, topic string, number int32) int16 {
	l.mu.Lock()
	code := l.codes[topicPartition{topic, number}]
	l.mu.Unlock()
	leader := l.leaders[topicPartition{topic, number}]
	switch {
	case code != 0:
		return code
	case leader == nil || l.machine.Image().Topic(topic) == nil:
		return kerr.UnknownTopicOrPartition.Code
	}
	at, err := leader.AppendMarker(ctx, &partition.Marker{
		ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, CoordinatorEpoch: m.CoordinatorEpoch,
		Commit: m.Committed, Version: m.TransactionVersion, Epoch: -1,
	})
	if err == nil {
		w := partition.NewWaiter()
		w.Start(time.Minute)
		defer w.Stop()
		err = leader.AwaitCommitted(ctx, w, &at)
	}
	return partition.Explain(err).Code
}

// of is the coordinator of a transactional id.
func (l *lab) of(id string) *Coordinator {
	number := metadata.CoordinatorPartition(id, int32(len(l.roles)))
	return l.node(l.role(number).Leader).coordinator
}

// ask sends a request about an id to its coordinator.
func ask[R kmsg.Response](l *lab, id string, req kmsg.Request) R {
	l.t.Helper()
	resp, err := l.of(id).Request(context.Background(), req)
	require.NoError(l.t, err)
	return resp.(R)
}

// session is what a producer has: its id, and where it is.
type session struct {
	id         string
	producerID int64
	epoch      int16
}

func (s session) String() string { return fmt.Sprintf("%s %d/%d", s.id, s.producerID, s.epoch) }

const labTimeout = 60_000

func initRequest(id string) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, labTimeout
	return req
}

// init asks for a session, as a new process.
func (l *lab) init(id string) (session, *kerr.Error) { return l.initWith(initRequest(id)) }

func (l *lab) initWith(req *kmsg.InitProducerIDRequest) (session, *kerr.Error) {
	l.t.Helper()
	resp := ask[*kmsg.InitProducerIDResponse](l, *req.TransactionalID, req)
	return session{*req.TransactionalID, resp.ProducerID, resp.ProducerEpoch}, codeError(resp.ErrorCode)
}

// bumpOf asks for the session after s.
func (l *lab) bumpOf(s session) (session, *kerr.Error) {
	l.t.Helper()
	req := initRequest(s.id)
	req.ProducerID, req.ProducerEpoch = s.producerID, s.epoch
	return l.initWith(req)
}

func codeError(code int16) *kerr.Error {
	if code == 0 {
		return nil
	}
	return kerr.ErrorForCode(code).(*kerr.Error)
}

// started asks for a session, which must work.
func (l *lab) started(id string) session {
	l.t.Helper()
	s, e := l.init(id)
	require.Nil(l.t, e)
	return s
}

func (l *lab) end(s session, commit bool) (session, *kerr.Error) {
	l.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = s.id, s.producerID, s.epoch, commit
	resp := ask[*kmsg.EndTxnResponse](l, s.id, req)
	return session{s.id, resp.ProducerID, resp.ProducerEpoch}, codeError(resp.ErrorCode)
}

// ended ends a transaction, which must work, and waits for the markers.
func (l *lab) ended(s session, commit bool) session {
	l.t.Helper()
	next, e := l.end(s, commit)
	require.Nil(l.t, e)
	synctest.Wait()
	return next
}

func addRequest(s session, parts ...topicPartition) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = 5
	of := kmsg.NewAddPartitionsToTxnRequestTransaction()
	of.TransactionalID, of.ProducerID, of.ProducerEpoch = s.id, s.producerID, s.epoch
	for _, p := range parts {
		t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		t.Topic, t.Partitions = p.topic, []int32{p.number}
		of.Topics = append(of.Topics, t)
	}
	req.Transactions = append(req.Transactions, of)
	return req
}

// add adds partitions, and says what came of each.
func (l *lab) add(s session, parts ...topicPartition) (codes []int16) {
	l.t.Helper()
	resp := ask[*kmsg.AddPartitionsToTxnResponse](l, s.id, addRequest(s, parts...))
	for _, t := range resp.Transactions[0].Topics {
		for _, p := range t.Partitions {
			codes = append(codes, p.ErrorCode)
		}
	}
	return codes
}

// added adds partitions, which must work.
func (l *lab) added(s session, parts ...topicPartition) {
	l.t.Helper()
	for _, code := range l.add(s, parts...) {
		require.Zero(l.t, code)
	}
}

// produce appends one record in a transaction, as the leader of a partition does: with a guard, and when the
// coordinator has agreed. sequence is the record's in its transaction and partition.
func (l *lab) produce(s session, to topicPartition, sequence int32, text string) *kerr.Error {
	leader := l.leaders[to]
	guard, open, err := leader.TxnGuard(s.producerID, s.epoch)
	if err == nil && !open {
		for _, code := range l.add(s, to) {
			if code != 0 {
				return codeError(code)
			}
		}
	}
	var a partition.Appended
	if err == nil {
		var b record.Builder
		b.Reset(nil)
		b.SetTransactional()
		b.SetProducer(s.producerID, s.epoch, sequence)
		b.Append(&record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(text)})
		req := partition.AppendRequest{Batch: b.Build(), AllInSync: true, Expected: -1, Epoch: -1}
		if !open {
			req.Guard = &guard
		}
		a, err = leader.Append(l.ctx, &req)
	}
	if err == nil {
		w := partition.NewWaiter()
		w.Start(time.Minute)
		defer w.Stop()
		err = leader.AwaitCommitted(l.ctx, w, &a)
	}
	return codeError(partition.Explain(err).Code)
}

// produced appends a record, which must work.
func (l *lab) produced(s session, to topicPartition, sequence int32, text string) {
	l.t.Helper()
	require.Nil(l.t, l.produce(s, to, sequence, text))
}

// contents is what a partition's log has.
type contents struct {
	committed []string
	aborted   []string
	open      map[string]bool
}

// read folds the log of a partition, markers and all.
func (l *lab) read(of topicPartition) contents {
	l.t.Helper()
	c := contents{open: make(map[string]bool)}
	leader := l.leaders[of]
	alloc := func(n int) []byte { return make([]byte, n) }
	pending := make(map[int64][]string)
	reader := record.Reader{Codecs: record.NewCodecs(1)}
	defer reader.Close()
	for at := int64(0); at < leader.Bounds().LogEnd; {
		batches, next, err := leader.Read(at, 1<<20, alloc)
		require.NoError(l.t, err)
		for at = next; len(batches) > 0; {
			b, rest, err := record.Next(batches)
			require.NoError(l.t, err)
			batches = rest
			var rec record.Record
			for reader.Reset(b, 1<<20); reader.Next(&rec); {
				id := b.ProducerID()
				if !b.IsControl() {
					pending[id] = append(pending[id], string(rec.Value))
					continue
				}
				m, err := record.ParseControl(&rec)
				require.NoError(l.t, err)
				if m.Type == record.ControlCommit {
					c.committed = append(c.committed, pending[id]...)
				} else {
					c.aborted = append(c.aborted, pending[id]...)
				}
				delete(pending, id)
			}
			require.NoError(l.t, reader.Err())
		}
	}
	for _, texts := range pending {
		for _, text := range texts {
			c.open[text] = true
		}
	}
	return c
}

// describe is what the coordinator says of an id.
func (l *lab) describe(id string) kmsg.DescribeTransactionsResponseTransactionState {
	l.t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	return ask[*kmsg.DescribeTransactionsResponse](l, id, req).TransactionStates[0]
}

// state is a line about an id.
func (l *lab) state(id string) string {
	l.t.Helper()
	d := l.describe(id)
	if d.ErrorCode != 0 {
		return codeError(d.ErrorCode).Message
	}
	return fmt.Sprintf("%s %d/%d", d.State, d.ProducerID, d.ProducerEpoch)
}

// metric adds up what the node says under a name, of those with the given labels.
func (n *labNode) metric(name string, labels ...string) (sum float64) {
	families, err := n.metrics.Gather()
	require.NoError(n.lab.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	next:
		for _, m := range f.GetMetric() {
			for i, l := range m.GetLabel() {
				if i < len(labels) && l.GetValue() != labels[i] {
					continue next
				}
			}
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sum
}
