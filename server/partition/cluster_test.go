package partition_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// cluster is one partition with its replicas on several nodes, wired directly, and the controller's word on
// it. It lives in a synctest bubble, so what goes on in the background is done when settled returns.
type cluster struct {
	t        fataler
	nodes    []*replicaNode
	meta     partition.Role // as the controller has it
	settings metadata.TopicSettings
	policy   storage.SyncPolicy
	flaws    partition.Flaws
	rng      *rand.Rand
}

// fataler is what a cluster needs of a test.
type fataler interface {
	require.TestingT
	Helper()
	Fatalf(format string, args ...any)
}

// replicaNode is one node of a cluster.
type replicaNode struct {
	cluster *cluster
	id      int32
	epoch   int64 // of its registration, as the metadata has it
	active  bool  // by the metadata

	disk    *storagetest.FS
	dir     *storage.Dir // nil while it is down
	store   *partition.Store
	replica *partition.Replica
	leader  *partition.Leader // the last it was, perhaps no more
	role    partition.Role    // the newest it was told
	wanting bool              // its leader has something to propose
	damage  error
	states  func(broker int32) (epoch int64, active bool) // what it knows of brokers; the truth when nil
}

func newCluster(t fataler, settings metadata.TopicSettings, nodes int) *cluster {
	c := &cluster{t: t, settings: settings, policy: storage.SyncAck, rng: rand.New(rand.NewPCG(1, 2))}
	c.meta = partition.Role{Leader: -1, LeaderEpoch: -1}
	for i := range nodes {
		id := int32(i + 1)
		c.meta.Replicas = append(c.meta.Replicas, id)
		n := &replicaNode{cluster: c, id: id, epoch: int64(100 + id), active: true, disk: storagetest.New()}
		c.nodes = append(c.nodes, n)
	}
	c.meta.ISR = slices.Clone(c.meta.Replicas)
	return c
}

func (c *cluster) node(id int32) *replicaNode { return c.nodes[id-1] }

func (c *cluster) close() {
	for _, n := range c.nodes {
		if n.dir != nil {
			if n.replica != nil {
				_ = n.replica.Close()
			}
			_ = n.dir.Close()
		}
	}
}

// start opens the node's replica, in no role.
func (n *replicaNode) start() {
	c, states := n.cluster, n.states
	if states == nil {
		states = func(id int32) (int64, bool) { return c.node(id).epoch, c.node(id).active }
	}
	logger := slog.New(slog.DiscardHandler)
	dir, err := storage.OpenDir(storage.DirOptions{FS: n.disk, SyncPolicy: c.policy, Logger: logger})
	require.NoError(c.t, err)
	n.store = partition.NewStore(partition.Config{
		Dir: dir, CommitSynced: c.policy == storage.SyncAck, Now: time.Now, Logger: logger,
		Env: partition.Env{
			ReplicaState: states,
			OnIsrChange:  func(*partition.Leader) { n.wanting = true },
			OnDamage:     func(_ *partition.Replica, err error) { n.damage = err },
			Flaws:        c.flaws,
		},
	})
	n.dir = dir
	n.reopen()
	n.role, n.wanting = partition.Role{Leader: -1, LeaderEpoch: -1}, false
	synctest.Wait()
}

// reopen opens the replica, which is not open.
func (n *replicaNode) reopen() {
	c := n.cluster
	r, err := n.store.Open(partition.Name{Topic: "t", TopicID: testTopicID()}, partition.NewSettings(&c.settings))
	require.NoError(c.t, err)
	n.replica = r
}

// told makes the node act on a state of the metadata.
func (n *replicaNode) told(r partition.Role) {
	if n.dir == nil {
		return
	}
	defer synctest.Wait()
	n.role = r
	if r.Leader == n.id {
		n.leader = n.replica.Lead(r)
	} else {
		n.replica.Follow(r)
	}
}

// crash ends the node without a stop and leaves what the disk kept.
func (n *replicaNode) crash(mode storagetest.Mode) {
	synctest.Wait()
	next := n.disk.Crash(mode, n.cluster.rng)
	_ = n.replica.Close()
	_ = n.dir.Close()
	n.disk, n.dir, n.replica = next, nil, nil
}

func (n *replicaNode) stop() {
	require.NoError(n.cluster.t, n.replica.Close())
	require.NoError(n.cluster.t, n.dir.Close())
	n.dir, n.replica = nil, nil
}

// answer is what a follower has to its fetch, or is to have.
type answer struct {
	pos    partition.FetchPosition
	got    partition.LeaderAnswer
	bounds partition.Bounds
}

// ask does the leader's part of a follower's fetch. It is nil when there is nobody to ask, or the follower must
// sync first.
func (n *replicaNode) ask() (*answer, error) {
	defer synctest.Wait()
	if n.dir == nil || n.replica.Follower() == nil || n.role.Leader < 0 {
		return nil, nil
	}
	f := n.replica.Follower()
	pos, err := f.Position()
	if errors.Is(err, partition.ErrUnsynced) {
		if err := f.Sync(context.Background()); err != nil {
			return nil, err
		}
		synctest.Wait()
		pos, err = f.Position()
	}
	if err != nil {
		return nil, err
	}
	leader := n.cluster.node(n.role.Leader)
	if leader.dir == nil {
		return nil, nil
	}
	a := &answer{pos: pos}
	l := leader.replica.Leader()
	if l == nil {
		a.got.ErrorCode = kerr.NotLeaderForPartition.Code
		return a, nil
	}
	got, err := l.FetchFollower(partition.FollowerFetch{
		Replica: n.id, BrokerEpoch: n.epoch, Offset: pos.Offset, LeaderEpoch: pos.LeaderEpoch,
		LastFetchedEpoch: pos.LastFetchedEpoch, LogStart: pos.LogStart, HighWatermark: pos.HighWatermark,
		Unsettled: pos.Unsettled, MaxBytes: 1 << 20,
	})
	a.got = partition.LeaderAnswer{
		ErrorCode: partition.Explain(err).Code, HighWatermark: got.HighWatermark, LogStart: got.LogStart,
		Diverging: got.Diverging, Records: slices.Clone(got.Records), Settled: got.Settled,
	}
	a.bounds = l.Bounds()
	return a, nil
}

// take does the follower's part.
func (n *replicaNode) take(a *answer) (partition.Outcome, error) {
	defer synctest.Wait() // what it set going in the background is part of the step
	f := n.replica.Follower()
	if f == nil {
		return partition.Stop, nil
	}
	outcome, err := f.Take(a.pos, a.got)
	if outcome == partition.OutOfRange {
		return outcome, f.Restart(a.bounds.LogStart, a.bounds.LogEnd)
	}
	return outcome, err
}

// fetch is one round of a follower.
func (n *replicaNode) fetch() (partition.Outcome, error) {
	a, err := n.ask()
	if a == nil || err != nil {
		return partition.Retry, err
	}
	return n.take(a)
}

// append writes at a node that leads, or believes so, and reports whether it was committed at once.
func (n *replicaNode) append(b record.Batch, all bool) (partition.Appended, error) {
	defer synctest.Wait()
	l := n.replica.Leader()
	if l == nil {
		return partition.Appended{}, partition.ErrNotLeader
	}
	return l.Append(context.Background(), &partition.AppendRequest{Batch: b, AllInSync: all, Expected: -1, Epoch: -1})
}

// alter is the controller: it takes a proposal or says why not.
func (c *cluster) alter(from int32, p *partition.IsrProposal) (int16, *partition.Role) {
	var members []int32
	for _, m := range p.ISR {
		members = append(members, m.ID)
	}
	switch {
	case p.LeaderEpoch < c.meta.LeaderEpoch:
		return kerr.FencedLeaderEpoch.Code, nil
	case from != c.meta.Leader || !slices.Contains(members, from):
		return kerr.InvalidRequest.Code, nil
	case slices.Equal(members, c.meta.ISR) && p.Recovering == c.meta.Recovering:
		state := c.meta
		return 0, &state
	case p.PartitionEpoch < c.meta.PartitionEpoch:
		return kerr.InvalidUpdateVersion.Code, nil
	}
	for _, m := range p.ISR {
		if n := c.node(m.ID); !n.active || m.Epoch >= 0 && m.Epoch != n.epoch {
			return kerr.IneligibleReplica.Code, nil
		}
	}
	c.meta.ISR, c.meta.Recovering = members, p.Recovering
	c.meta.PartitionEpoch++
	state := c.meta
	return 0, &state
}

// elect gives the partition a leader in a new epoch, or none with -1.
func (c *cluster) elect(leader int32) {
	c.meta.Leader = leader
	c.meta.LeaderEpoch++
	c.meta.PartitionEpoch++
}

// show draws the state of a node.
func (n *replicaNode) show() string {
	if n.dir == nil {
		return fmt.Sprintf("%d down", n.id)
	}
	synctest.Wait()
	role := "idle"
	if l := n.replica.Leader(); l != nil {
		role = fmt.Sprintf("leader@%d isr=%v", l.LeaderEpoch(), l.InSync())
	} else if f := n.replica.Follower(); f != nil {
		role = fmt.Sprintf("follower@%d", f.LeaderEpoch())
	}
	b := n.replica.Bounds()
	out := fmt.Sprintf("%d %s start=%d hw=%d end=%d", n.id, role, b.LogStart, b.HighWatermark, b.LogEnd)
	if s := n.replica.Synced(); s != b.LogEnd && n.cluster.policy == storage.SyncAck {
		out += fmt.Sprintf(" synced=%d", s)
	}
	all, err := n.replica.Batches()
	if err != nil {
		out += " unreadable"
	}
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].LeaderEpoch() == all[i].LeaderEpoch() {
			j++
		}
		out += fmt.Sprintf(" [%d..%d@%d]", all[i].BaseOffset(), all[j-1].LastOffset(), all[i].LeaderEpoch())
		i = j
	}
	ends, err := n.replica.Epochs(math.MaxInt8)
	require.NoError(n.cluster.t, err)
	out += " epochs"
	for _, e := range ends {
		out += fmt.Sprintf(" %d<%d", e.Epoch, e.EndOffset)
	}
	return out
}

// topicSettings are a topic's as a fresh cluster has them.
func topicSettings(t testing.TB) metadata.TopicSettings {
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	return *defaults(t, m)
}

func outcomeName(o partition.Outcome) string {
	return [...]string{"taken", "needs sync", "diverged", "dropped", "retry", "stop", "out of range", "corrupt"}[o]
}
