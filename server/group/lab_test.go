package group

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// lab is a coordinator on each of some nodes, over real replicas of the offsets topic on disks in memory. Followers
// fetch in the background. It lives in a synctest bubble.
type lab struct {
	t       testing.TB
	ctx     context.Context
	machine *metadata.Machine
	index   uint64
	nodes   []*labNode
	txn     *labTransactions
	stop    context.CancelFunc
	wg      sync.WaitGroup
	rest    func() // waits until all that is due now is done; nil outside of a bubble

	mu    sync.Mutex
	roles []partition.Role // guarded by mu: of the partitions of the offsets topic
}

// labNode is one node.
type labNode struct {
	lab         *lab
	id          int32
	dir         *storage.Dir
	replicas    []*partition.Replica
	coordinator *Coordinator
	metrics     *prometheus.Registry

	mu  sync.Mutex
	cut bool // guarded by mu: it fetches nothing
}

// labOptions say what is not as usual about a lab.
type labOptions struct {
	nodes      int // 1 if zero
	partitions int // of the offsets topic, 1 if zero
	static     map[string]string
	fs         func() storage.FS // a disk in memory if nil
}

// inLab runs a test in a lab, in fake time, with a topic t of 4 partitions.
func inLab(t *testing.T, o labOptions, fn func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := openLab(t, o)
		defer l.close()
		l.rest = synctest.Wait
		l.createTopic("t", 4)
		synctest.Wait()
		fn(t, l)
	})
}

func openLab(t testing.TB, o labOptions) *lab {
	o.nodes, o.partitions = max(o.nodes, 1), max(o.partitions, 1)
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1, Static: o.static})
	require.NoError(t, err)
	l := &lab{t: t, machine: m, txn: &labTransactions{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	for id := range o.nodes {
		l.apply(&metadata.RegisterBroker{
			NewClusterID: "c", ID: int32(id + 1), Incarnation: metadata.UUID{1: byte(id + 1)}, PreviousEpoch: -1,
		})
	}
	l.createTopic(metadata.GroupTopic, o.partitions)
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
	return l
}

func (l *lab) openNode(id int32, o *labOptions) *labNode {
	n := &labNode{lab: l, id: id, metrics: prometheus.NewRegistry()}
	logger := slog.New(slog.DiscardHandler)
	var fs storage.FS = storagetest.New()
	if o.fs != nil {
		fs = o.fs()
	}
	dir, err := storage.OpenDir(storage.DirOptions{FS: fs, SyncPolicy: storage.SyncAck, Logger: logger})
	require.NoError(l.t, err)
	n.dir = dir
	store := partition.NewStore(partition.Config{
		Dir: dir, CommitSynced: true, Now: time.Now, Logger: logger,
		Env: partition.Env{ReplicaState: func(id int32) (int64, bool) { return int64(id), true }},
	})
	topic := l.machine.Image().Topic(metadata.GroupTopic)
	for number := range topic.Partitions {
		name := partition.Name{Topic: topic.Name, Partition: int32(number), TopicID: topic.ID}
		r, err := store.Open(name, partition.NewSettings(topic.Settings))
		require.NoError(l.t, err)
		n.replicas = append(n.replicas, r)
	}
	n.coordinator = Open(Config{
		Image: l.machine.Image, Cluster: l.txn, Logger: logger, Registerer: n.metrics,
		Rand: rand.New(rand.NewPCG(uint64(id), 7)),
	})
	return n
}

func (l *lab) close() {
	l.stop()
	l.wg.Wait()
	for _, n := range l.nodes {
		require.NoError(l.t, n.coordinator.Close())
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

// createTopic makes a topic; its id is new each time.
func (l *lab) createTopic(name string, partitions int) {
	replicas := make([][]int32, partitions)
	for i := range replicas {
		replicas[i] = []int32{1}
	}
	id := metadata.UUID{0: byte(l.index), 1: byte(l.index >> 8), 6: 0x40, 8: 0x80}
	l.apply(&metadata.CreateTopics{Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{
		{Name: name, ID: id, Partitions: replicas},
	}})
}

// deleteTopic deletes a topic, and tells the coordinators.
func (l *lab) deleteTopic(name string) {
	l.apply(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: name}}})
	for _, n := range l.nodes {
		n.coordinator.TopicDeleted(name)
	}
}

func (l *lab) node(id int32) *labNode { return l.nodes[id-1] }

func (l *lab) role(number int32) partition.Role {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.roles[number]
}

// lead gives the leadership of a partition of the offsets topic to a node, in a new epoch.
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

// of is the coordinator of a group.
func (l *lab) of(group string) *Coordinator {
	number := metadata.CoordinatorPartition(group, int32(len(l.roles)))
	return l.node(l.role(number).Leader).coordinator
}

// ask sends a request about a group to its coordinator.
func ask[R kmsg.Response](l *lab, group string, req kmsg.Request) R {
	l.t.Helper()
	resp, err := l.of(group).Request(context.Background(), req)
	require.NoError(l.t, err)
	return resp.(R)
}

// labTransactions stands for the transaction coordinator: it takes partitions into transactions, or refuses.
type labTransactions struct {
	mu    sync.Mutex
	code  int16                             // guarded by mu: what it says
	asked []*kmsg.AddPartitionsToTxnRequest // guarded by mu
	// before is called, if it is set, before an answer.
	before func()
}

// Request implements kmsg.Requestor.
func (x *labTransactions) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.AddPartitionsToTxnRequest)
	if x.before != nil {
		x.before()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = append(x.asked, req)
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	for i := range req.Transactions {
		txn := kmsg.NewAddPartitionsToTxnResponseTransaction()
		txn.TransactionalID = req.Transactions[i].TransactionalID
		for _, topic := range req.Transactions[i].Topics {
			out := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			out.Topic = topic.Topic
			for _, number := range topic.Partitions {
				p := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				p.Partition, p.ErrorCode = number, x.code
				out.Partitions = append(out.Partitions, p)
			}
			txn.Topics = append(txn.Topics, out)
		}
		resp.Transactions = append(resp.Transactions, txn)
	}
	return resp, nil
}

func (x *labTransactions) answer(e *kerr.Error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.code = codeOf(e)
}

// commitTo builds a commit of offsets of one topic, for partitions from 0 up.
func commitTo(group, topic string, offsets ...int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	in := kmsg.NewOffsetCommitRequestTopic()
	in.Topic = topic
	for i, offset := range offsets {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = int32(i), offset
		in.Partitions = append(in.Partitions, p)
	}
	req.Topics = append(req.Topics, in)
	return req
}

// committed is the offset of a partition, as a fetch answers it.
func (l *lab) committed(group, topic string, partition int32) int64 {
	l.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	in := kmsg.NewOffsetFetchRequestGroup()
	in.Group = group
	of := kmsg.NewOffsetFetchRequestGroupTopic()
	of.Topic, of.Partitions = topic, []int32{partition}
	in.Topics = append(in.Topics, of)
	req.Groups = append(req.Groups, in)
	resp := ask[*kmsg.OffsetFetchResponse](l, group, req)
	require.Zero(l.t, resp.Groups[0].ErrorCode)
	require.Zero(l.t, resp.Groups[0].Topics[0].Partitions[0].ErrorCode)
	return resp.Groups[0].Topics[0].Partitions[0].Offset
}

// commit commits offsets as nobody's member, which must succeed.
func (l *lab) commit(group, topic string, offsets ...int64) {
	l.t.Helper()
	resp := ask[*kmsg.OffsetCommitResponse](l, group, commitTo(group, topic, offsets...))
	for _, p := range resp.Topics[0].Partitions {
		require.Zero(l.t, p.ErrorCode)
	}
}

// inspect looks at the state of the partition of a group, on its loop, behind what timers that are due now do.
func (l *lab) inspect(group string, fn func(s *shard)) {
	l.t.Helper()
	if l.rest != nil {
		l.rest()
	}
	c := l.of(group)
	_, err := each(l.ctx, c, many[struct{}]{
		ids: []string{group},
		answer: func(s *shard, _ int) struct{} {
			fn(s)
			return struct{}{}
		},
		refuse: func(_ int, e *kerr.Error) struct{} {
			l.t.Errorf("partition of group %s: %v", group, e)
			return struct{}{}
		},
	})
	require.NoError(l.t, err)
}
