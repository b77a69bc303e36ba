package controller_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/controller"
	"millrace/server/metadata"
	"millrace/server/quorum"
)

// alone is a quorum that agrees with itself at once.
type alone struct {
	machine   *metadata.Machine
	follower  atomic.Bool
	term      atomic.Uint64
	looks     atomic.Int64 // how often somebody asked who leads
	proposals atomic.Int64
	offline   error // then nobody leads

	mu      sync.Mutex    // guards what follows
	fail    error         // answers proposals instead
	before  func()        // called before the next proposal, once
	index   uint64        // of the last command
	changed chan struct{} // closed by elect
}

func (q *alone) failWith(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fail = err
}

func (q *alone) beforeNext(fn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.before = fn
}

func (q *alone) Propose(ctx context.Context, command []byte) (metadata.Result, uint64, error) {
	q.proposals.Add(1)
	q.mu.Lock()
	before, fail := q.before, q.fail
	q.before = nil
	q.mu.Unlock()
	if before != nil {
		before()
	}
	if errors.Is(fail, context.DeadlineExceeded) {
		<-ctx.Done()
		return metadata.Result{}, 0, ctx.Err()
	}
	if fail != nil {
		return metadata.Result{}, 0, fail
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.index++
	r, err := q.machine.Apply(q.index, command)
	return r, q.index, err
}

func (q *alone) IsLeader() bool {
	q.looks.Add(1)
	return !q.follower.Load()
}

func (q *alone) Leader() int32 {
	if q.offline != nil {
		return -1
	}
	return 7
}
func (q *alone) Offline() error { return q.offline }

// Changed is closed by elect.
func (q *alone) Changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// elect begins a term that this node leads.
func (q *alone) elect() {
	q.term.Add(1)
	q.follower.Store(false)
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.changed)
	q.changed = make(chan struct{})
}

var _ quorum.Quorum = (*alone)(nil)

// cluster is a controller with its metadata.
type cluster struct {
	*controller.Controller
	machine *metadata.Machine
	quorum  *alone
}

func newCluster(t testing.TB, brokers int, static map[string]string) *cluster {
	t.Helper()
	return newLimitedCluster(t, brokers, static, metadata.Limits{})
}

func newLimitedCluster(t testing.TB, brokers int, static map[string]string, limits metadata.Limits) *cluster {
	t.Helper()
	c := openCluster(t, static, controller.Config{Limits: limits})
	for id := range brokers {
		_, err := c.RegisterBroker(t.Context(), controller.Registration{
			ID: int32(id + 1), Incarnation: [16]byte{byte(id + 1)}, PreviousEpoch: -1,
		})
		require.NoError(t, err)
	}
	return c
}

// openCluster opens a controller of a cluster without brokers, on node 1 unless the config says otherwise.
func openCluster(t testing.TB, static map[string]string, config controller.Config) *cluster {
	t.Helper()
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1, Static: static})
	require.NoError(t, err)
	q := &alone{machine: m, changed: make(chan struct{})}
	config.Machine, config.Quorum, config.Changed, config.Term = m, q, q.Changed, q.term.Load
	config.Rand = newRand()
	if config.NodeID == 0 {
		config.NodeID = 1
	}
	c := controller.Open(config)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return &cluster{c, m, q}
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// newTopic is a request for a topic with so many partitions and replicas, and settings in pairs.
func newTopic(name string, partitions int32, factor int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, factor
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

// assigned is a request for a topic with a manual assignment: partition, then its replicas.
func assigned(name string, assignment ...[]int32) kmsg.CreateTopicsRequestTopic {
	t := newTopic(name, -1, -1)
	for _, a := range assignment {
		ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		ra.Partition, ra.Replicas = a[0], a[1:]
		t.ReplicaAssignment = append(t.ReplicaAssignment, ra)
	}
	return t
}

func (c *cluster) create(t testing.TB, topics ...kmsg.CreateTopicsRequestTopic) []kmsg.CreateTopicsResponseTopic {
	t.Helper()
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Topics = topics
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	return resp.Topics
}

// mustCreate creates one topic.
func (c *cluster) mustCreate(t testing.TB, topic kmsg.CreateTopicsRequestTopic) kmsg.CreateTopicsResponseTopic {
	t.Helper()
	answers := c.create(t, topic)
	require.Len(t, answers, 1)
	requireCode(t, nil, answers[0].ErrorCode, answers[0].ErrorMessage)
	return answers[0]
}

// requireCode checks an answer, and that a refusal says why.
func requireCode(t testing.TB, want *kerr.Error, code int16, message *string) {
	t.Helper()
	if want == nil {
		require.Zero(t, code, "%v", message)
		require.Nil(t, message)
		return
	}
	require.Equal(t, want.Message, kerr.TypedErrorForCode(code).Message)
	require.NotNil(t, message)
	require.NotEmpty(t, *message)
}
