package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/broker"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/server/peer"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// cluster is some brokers in one process and a controller for them that is always right: it applies
// commands to the metadata of each member in turn. Messages between members are encoded and decoded.
// Tests run it in fake time.
type cluster struct {
	t      testing.TB
	policy storage.SyncPolicy
	static map[string]string // broker configuration
	racks  map[int32]string

	turn     chan struct{} // one command at a time
	commands [][]byte      // the metadata log; guarded by turn
	truth    *metadata.Machine
	members  map[int32]*member // immutable
	control  *fakeController
}

// member is one broker of a cluster. Its disk and its place in the cluster outlive a restart.
type member struct {
	c       *cluster
	id      int32
	fs      storage.FS
	disk    *storagetest.FS // the same, if it is in memory
	machine *metadata.Machine
	dir     *storage.Dir
	broker  *broker.Broker
	applied atomic.Uint64 // index of the last command
	up      atomic.Bool   // its port is open
	cut     atomic.Bool   // nothing reaches it, and it reaches nobody
	fetches atomic.Int64  // fetches of followers that it got
	asked   atomic.Int64  // partitions in them
	pulse   chan struct{} // gets one at each of them, if somebody listens
	lives   byte
	metrics *prometheus.Registry
}

type clusterOptions struct {
	members int
	policy  storage.SyncPolicy
	static  map[string]string
	racks   map[int32]string
	real    bool // files, in place of disks in memory
}

// simulate runs a test of a cluster in fake time.
func simulate(t *testing.T, o clusterOptions, test func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, o)
		defer c.close()
		test(t, c)
	})
}

// newCluster starts members with ids from 1. Close it before the test ends.
func newCluster(t testing.TB, o clusterOptions) *cluster {
	c := &cluster{
		t: t, policy: o.policy, static: o.static, racks: o.racks,
		turn: make(chan struct{}, 1), members: make(map[int32]*member),
	}
	var err error
	c.truth, err = metadata.NewMachine(metadata.Options{NodeID: 0, Static: o.static})
	require.NoError(t, err)
	c.control = &fakeController{c: c, fencing: true}
	for id := int32(1); id <= int32(o.members); id++ {
		m := &member{c: c, id: id, disk: storagetest.New(), pulse: make(chan struct{})}
		if m.fs = m.disk; o.real {
			m.fs, err = storage.OSFS(t.TempDir())
			require.NoError(t, err)
		}
		c.members[id] = m
	}
	for id := int32(1); id <= int32(o.members); id++ {
		c.members[id].start()
	}
	return c
}

func (c *cluster) close() {
	for _, m := range c.members {
		if m.up.Load() {
			m.stop()
		}
	}
}

// propose has a command agreed on and applied by all members that can be reached.
func (c *cluster) propose(cmd metadata.Command) metadata.Result {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	entry, err := metadata.Encode(cmd)
	require.NoError(c.t, err)
	r, err := c.truth.Apply(uint64(len(c.commands)+1), entry)
	require.NoError(c.t, err)
	c.commands = append(c.commands, entry)
	for id := int32(1); id <= int32(len(c.members)); id++ {
		c.members[id].catchUpLocked()
	}
	return r
}

// catchUpLocked applies what the member has not, unless it cannot be reached.
func (m *member) catchUpLocked() {
	if m.machine == nil || m.cut.Load() {
		return
	}
	for i := m.applied.Load(); i < uint64(len(m.c.commands)); i++ {
		_, err := m.machine.Apply(i+1, m.c.commands[i])
		require.NoError(m.c.t, err)
		m.applied.Store(i + 1)
	}
}

// heal ends a cut.
func (m *member) heal() {
	m.c.turn <- struct{}{}
	defer func() { <-m.c.turn }()
	m.cut.Store(false)
	m.catchUpLocked()
}

// image is what the controller knows.
func (c *cluster) image() *metadata.Image { return c.truth.Image() }

func (c *cluster) partition(topic string, number int) metadata.Partition {
	return c.image().Topic(topic).Partitions[number]
}

// start opens the member's data and registers it, as a node does.
func (m *member) start() {
	t := m.c.t
	m.lives++
	static := map[string]string{"broker.rack": m.c.racks[m.id]}
	for k, v := range m.c.static {
		static[k] = v
	}
	machine, err := metadata.NewMachine(metadata.Options{NodeID: m.id, Static: static})
	require.NoError(t, err)
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("at", m.id)
	if !testing.Verbose() {
		logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	m.dir, err = storage.OpenDir(storage.DirOptions{FS: m.fs, Now: time.Now, SyncPolicy: m.c.policy, Logger: logger})
	require.NoError(t, err)
	m.metrics = prometheus.NewRegistry()
	m.broker = broker.Open(broker.Config{
		NodeID: m.id,
		Store: partition.NewStore(partition.Config{
			Dir: m.dir, CommitSynced: m.c.policy == storage.SyncAck, Now: time.Now, Logger: logger,
		}),
		Controller: link{from: m, to: controllerOf(m)}, ControllerID: func() int32 { return 1 },
		Peer:     func(id int32) kmsg.Requestor { return link{from: m, to: m.c.members[id]} },
		Register: func(context.Context) (int64, error) { return m.register(), nil },
		Applied:  func() uint64 { index, _ := machine.Settled(); return index },
		Changed:  func() <-chan struct{} { _, next := machine.Settled(); return next },
		LogDir:   "/data", Now: time.Now, Logger: logger, Registerer: m.metrics,
		Rand: rand.New(rand.NewPCG(uint64(m.id), uint64(m.lives))),
	})
	m.c.turn <- struct{}{}
	m.machine = machine
	m.applied.Store(0)
	m.catchUpLocked()
	<-m.c.turn
	m.up.Store(true)
	epoch := m.register()
	machine.Watch(m.broker.OnImage)
	m.broker.Start(epoch)
	m.c.await("member is active", func() bool { return !m.broker.Fenced() })
}

func (m *member) register() int64 {
	r := m.c.propose(&metadata.RegisterBroker{
		NewClusterID: "test", ID: m.id, Incarnation: metadata.UUID{0: m.lives, 15: byte(m.id)}, Fenced: true, Intact: true,
		PreviousEpoch: -1, Rack: m.c.racks[m.id],
		Endpoints: []metadata.Endpoint{{Name: "http", Host: "h", Port: 8080 + m.id}},
	})
	require.Zero(m.c.t, r.Items[0].Code, r.Items[0].Message)
	return r.Epoch
}

// stop ends the member in order.
func (m *member) stop() {
	m.up.Store(false)
	m.detach()
	require.NoError(m.c.t, m.broker.Close())
	require.NoError(m.c.t, m.dir.Close())
}

func (m *member) detach() {
	m.c.turn <- struct{}{}
	m.machine = nil
	<-m.c.turn
}

// abandon ends a member that has something to complain of.
func (m *member) abandon() {
	m.up.Store(false)
	m.detach()
	require.Error(m.c.t, m.broker.Close())
	_ = m.dir.Close()
}

// crash takes the power away; what was not synced is lost.
func (m *member) crash() {
	m.up.Store(false)
	m.detach()
	m.disk = m.disk.Crash(storagetest.LoseAll, rand.New(rand.NewPCG(1, 1)))
	m.fs = m.disk
	_ = m.broker.Close() // its disk is gone
	_ = m.dir.Close()
}

// fence takes a broker out of service, as a controller that misses its heartbeats does.
func (c *cluster) fence(id int32) { c.change(id, metadata.BrokerFenced) }

func (c *cluster) change(id int32, state metadata.BrokerState) {
	b := c.image().Broker(id)
	r := c.propose(&metadata.ChangeBrokers{Changes: []metadata.BrokerChange{{ID: id, Epoch: b.Epoch, State: state}}})
	require.Zero(c.t, r.Items[0].Code, r.Items[0].Message)
}

// move gives partition 0 of a topic other replicas.
func (c *cluster) move(topic string, replicas ...int32) {
	r := c.propose(&metadata.AlterReassignments{
		Partitions: []metadata.Reassignment{{Topic: topic, Replicas: replicas}}, AllowRFChange: true,
	})
	require.Zero(c.t, r.Items[0].Code, r.Items[0].Message)
}

// throttle sets the rate of a side of replication on all brokers.
func (c *cluster) throttle(side, rate string) {
	r := c.propose(&metadata.AlterConfigs{Resources: []metadata.AlterResource{{
		Type:       metadata.BrokerResource,
		Operations: []metadata.AlterKey{{Name: side + ".replication.throttled.rate", Value: &rate}},
	}}})
	require.Zero(c.t, r.Items[0].Code, r.Items[0].Message)
}

// awaitPartition waits until the member's metadata says that of partition 0.
func (m *member) awaitPartition(topic string, is func(metadata.Partition) bool) {
	for {
		_, next := m.machine.Settled()
		if is(m.machine.Image().Topic(topic).Partitions[0]) {
			return
		}
		<-next
	}
}

// create makes a topic with a partition for each list of replicas.
func (c *cluster) create(name string, replicas [][]int32, configs ...string) {
	m := make(map[string]string)
	for i := 0; i < len(configs); i += 2 {
		m[configs[i]] = configs[i+1]
	}
	c.turn <- struct{}{}
	id := metadata.UUID{0: 7, 1: byte(len(c.commands) >> 8), 2: byte(len(c.commands)), 6: 0x40, 8: 0x80}
	<-c.turn
	r := c.propose(&metadata.CreateTopics{
		Topics: []metadata.NewTopic{{Name: name, ID: id, Partitions: replicas, Configs: m}},
		Limits: metadata.DefaultLimits(),
	})
	require.Zero(c.t, r.Items[0].Code, r.Items[0].Message)
}

// await waits in fake time. The command that has brought it about is applied by all members then.
func (c *cluster) await(what string, is func() bool) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); {
		if time.Now().After(end) {
			c.t.Fatalf("never: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.turn <- struct{}{}
	<-c.turn
}

// link is the network between two ends: it encodes and decodes what passes.
type link struct {
	from *member
	to   end
}

// end is what a link leads to.
type end interface {
	kmsg.Requestor
	reach() error
}

func (m *member) reach() error {
	switch {
	case m == nil || !m.up.Load():
		return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	case m.cut.Load():
		return errCut
	}
	return nil
}

func (m *member) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if f, ok := r.(*kmsg.FetchRequest); ok && f.ReplicaState.ID >= 0 {
		m.fetches.Add(1)
		for i := range f.Topics {
			m.asked.Add(int64(len(f.Topics[i].Partitions)))
		}
		select {
		case m.pulse <- struct{}{}:
		default:
		}
	}
	return m.broker.Request(ctx, r)
}

var errCut = errors.New("the network is cut")

func (l link) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if err := errors.Join(l.from.cutError(), l.to.reach()); err != nil {
		return nil, err
	}
	wire, err := peer.AppendRequest(nil, r)
	if err != nil {
		return nil, err
	}
	sent, err := peer.ReadRequest(r.Key(), r.GetVersion(), wire)
	if err != nil {
		return nil, err
	}
	resp, err := l.to.Request(ctx, sent)
	for i := range wire {
		wire[i] = 0xdb
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(l.from.cutError(), l.to.reach()); err != nil {
		return nil, err // the answer is lost
	}
	resp.SetVersion(r.GetVersion())
	body := resp.AppendTo(nil)
	if arena := record.ArenaFrom(ctx); arena != nil {
		own := arena.Alloc(len(body))
		copy(own, body)
		body = own
	}
	return peer.ReadResponse(r, body)
}

func (m *member) cutError() error {
	if m.cut.Load() {
		return errCut
	}
	return nil
}

// fakeController answers what a broker asks of a controller, from the real metadata.
type fakeController struct {
	c       *cluster
	fencing bool // heartbeats unfence

	mu sync.Mutex
	// Guarded by mu.
	beats   []beat
	altered int   // AlterPartition requests
	down    error // why it does not answer
}

// beat is a heartbeat that the controller got.
type beat struct {
	id             int32
	epoch, applied int64
	refused        []int32
}

// controllerOf is the controller as a member reaches it.
func controllerOf(m *member) end { return m.c.control }

func (f *fakeController) reach() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}

func (f *fakeController) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch req := r.(type) {
	case *kmsg.AlterPartitionRequest:
		return f.alterPartition(req), nil
	case *kmsg.BrokerHeartbeatRequest:
		return f.heartbeat(req), nil
	}
	return nil, fmt.Errorf("key %d is not for this controller", r.Key())
}

func (f *fakeController) alterPartition(req *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse {
	f.mu.Lock()
	f.altered++
	f.mu.Unlock()
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	cmd := &metadata.AlterPartition{BrokerID: req.BrokerID, BrokerEpoch: req.BrokerEpoch}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			a := metadata.AlteredPartition{
				TopicID: t.TopicID, Partition: p.Partition, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
				Recovering: p.LeaderRecoveryState == 1, Resign: ktag.Resign(&p.UnknownTags),
				Eligible: ktag.ResignEligible(&p.UnknownTags), Unusable: ktag.ResignUnusable(&p.UnknownTags),
			}
			for _, m := range p.NewEpochISR {
				a.ISR = append(a.ISR, metadata.ISRMember{ID: m.BrokerID, Epoch: m.BrokerEpoch})
			}
			cmd.Partitions = append(cmd.Partitions, a)
		}
	}
	items := f.c.propose(cmd).Items
	for _, t := range req.Topics {
		out := kmsg.NewAlterPartitionResponseTopic()
		out.Topic, out.TopidID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			a := kmsg.NewAlterPartitionResponseTopicPartition()
			a.Partition, a.ErrorCode = p.Partition, items[0].Code
			if now := items[0].Partition; now != nil {
				a.LeaderID, a.LeaderEpoch, a.ISR = now.Leader, now.LeaderEpoch, now.ISR
				a.PartitionEpoch = now.PartitionEpoch
			}
			out.Partitions = append(out.Partitions, a)
			items = items[1:]
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (f *fakeController) heartbeat(req *kmsg.BrokerHeartbeatRequest) *kmsg.BrokerHeartbeatResponse {
	f.mu.Lock()
	f.beats = append(f.beats, beat{
		id: req.BrokerID, epoch: req.BrokerEpoch, applied: req.CurrentMetadataOffset,
		refused: ktag.RefusedBrokers(&req.UnknownTags),
	})
	fencing := f.fencing
	f.mu.Unlock()
	resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	b := f.c.image().Broker(req.BrokerID)
	switch {
	case b == nil:
		resp.ErrorCode = kerr.BrokerIDNotRegistered.Code
		return resp
	case b.Epoch != req.BrokerEpoch:
		resp.ErrorCode = kerr.StaleBrokerEpoch.Code
		return resp
	case req.WantShutdown && b.State() == metadata.BrokerActive:
		f.c.change(b.ID, metadata.BrokerShuttingDown)
	case req.WantShutdown:
		resp.ShouldShutdown = !f.leads(b.ID)
	case b.Fenced && fencing && req.CurrentMetadataOffset >= b.Epoch:
		f.c.change(b.ID, metadata.BrokerActive)
	}
	resp.IsFenced = f.c.image().Broker(req.BrokerID).Fenced
	ktag.SetAppliedIndex(&resp.UnknownTags, int64(f.c.image().Index))
	return resp
}

func (f *fakeController) leads(id int32) bool {
	for t := range f.c.image().Topics() {
		for i := range t.Partitions {
			if t.Partitions[i].Leader == id {
				return true
			}
		}
	}
	return false
}

// set changes the controller's state.
func (f *fakeController) set(change func(*fakeController)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// produceRequest is one batch for partition 0.
func (m *member) produceRequest(topic string, acks int16, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, m.broker.Image().Topic(topic).ID
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = batch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// send produces one batch to partition 0 of a topic through the member given.
func (m *member) send(topic string, acks int16, timeout time.Duration,
	vs ...string) *kmsg.ProduceResponseTopicPartition {
	req := m.produceRequest(topic, acks, plain(vs...))
	req.TimeoutMillis = int32(timeout.Milliseconds())
	resp, err := req.RequestWith(context.Background(), m.broker)
	require.NoError(m.c.t, err)
	return &resp.Topics[0].Partitions[0]
}

// produce writes with acks=all and must succeed.
func (m *member) produce(topic string, vs ...string) int64 {
	m.c.t.Helper()
	p := m.send(topic, -1, 30*time.Second, vs...)
	require.Equal(m.c.t, "NONE", name(p.ErrorCode), "%v", p.ErrorMessage)
	return p.BaseOffset
}

// fetchRequest is a consumer's for partition 0.
func (m *member) fetchRequest(topic string, offset int64, rack string) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.Rack = 1, rack
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, m.broker.Image().Topic(topic).ID
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = offset, 1<<20, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// read is what a consumer gets from the member, in a rack or in none.
func (m *member) read(topic string, offset int64, rack string) ([]string, *kmsg.FetchResponseTopicPartition) {
	resp, err := m.fetchRequest(topic, offset, rack).RequestWith(context.Background(), m.broker)
	require.NoError(m.c.t, err)
	out := &resp.Topics[0].Partitions[0]
	return values(m.c.t, out.RecordBatches), out
}

// files are the folders and files of the member's disk whose names begin so.
func (m *member) files(prefix string) (names []string) {
	for _, f := range m.disk.Files() {
		if strings.HasPrefix(f, prefix) {
			names = append(names, f)
		}
	}
	return names
}

// three is one partition on all of three members, led by the first.
func three() [][]int32 { return [][]int32{{1, 2, 3}} }
