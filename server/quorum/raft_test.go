package quorum_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"millrace/server/metadata"
	"millrace/server/quorum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is one quorum member of a test and its machine.
type node struct {
	*quorum.Raft
	machine *metadata.Machine
}

func open(t testing.TB, dir string, change ...func(*quorum.Config)) node {
	t.Helper()
	n, err := tryOpen(t, dir, change...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func tryOpen(t testing.TB, dir string, change ...func(*quorum.Config)) (node, error) {
	t.Helper()
	machine, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	c := quorum.Config{NodeID: 1, Dir: dir, Machine: machine, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&c)
	}
	q, err := quorum.Open(t.Context(), c)
	return node{q, machine}, err
}

func (n node) propose(t testing.TB, c metadata.Command) metadata.Result {
	t.Helper()
	entry, err := metadata.Encode(c)
	require.NoError(t, err)
	r, index, err := n.Propose(t.Context(), entry)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n.machine.Image().Index, index, "an answered command is applied here")
	return r
}

func (n node) register(t testing.TB) {
	t.Helper()
	n.propose(t, &metadata.RegisterBroker{NewClusterID: "c", ID: 1, Incarnation: [16]byte{1}, PreviousEpoch: -1})
}

func newTopic(name string, id int) metadata.Command {
	return &metadata.CreateTopics{
		Topics: []metadata.NewTopic{{
			Name: name, ID: metadata.UUID{7, byte(id), byte(id >> 8)}, Partitions: [][]int32{{1}},
		}},
		Limits: metadata.DefaultLimits(),
	}
}

func TestProposeAppliesAndAnswers(t *testing.T) {
	n := open(t, t.TempDir())
	require.True(t, n.IsLeader())
	require.Equal(t, int32(1), n.Leader())
	n.register(t)
	require.Equal(t, "a", n.propose(t, newTopic("a", 1)).Items[0].Topic.Name)
	require.NotNil(t, n.machine.Image().Topic("a"))
	r := n.propose(t, newTopic("a", 2))
	require.Equal(t, int16(36), r.Items[0].Code)
}

func TestStateOutlivesCloseAndOpen(t *testing.T) {
	for _, topics := range []int{3, 400} { // replayed from the log; from a snapshot and the log
		t.Run(fmt.Sprint(topics), func(t *testing.T) {
			dir := t.TempDir()
			n := open(t, dir)
			n.register(t)
			for i := range topics {
				n.propose(t, newTopic(fmt.Sprintf("t%d", i), i))
			}
			want := n.machine.Image()
			require.NoError(t, n.Close())
			for range 2 {
				n = open(t, dir)
				require.Equal(t, want.Hash(), n.machine.Image().Hash())
				require.NoError(t, n.Close())
			}
			n = open(t, dir)
			n.propose(t, newTopic("more", 1000))
			require.Equal(t, topics+1, n.machine.Image().TopicCount())
		})
	}
}

// TestStateOutlivesKill opens copies of the folder made while it was in use: what a killed process
// leaves behind.
func TestStateOutlivesKill(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	n.register(t)
	for i := range 20 {
		n.propose(t, newTopic(fmt.Sprintf("t%d", i), i))
		if i%5 != 0 {
			continue
		}
		want := n.machine.Image().Hash()
		crashed := t.TempDir()
		require.NoError(t, os.CopyFS(crashed, os.DirFS(dir)))
		again := open(t, crashed)
		require.Equal(t, want, again.machine.Image().Hash())
		again.propose(t, newTopic("after", 1000))
	}
}

func TestHalfFoundedFolderIsFoundedAgain(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "wal"), 0o755))
	meta := new(metadb.BoltMetaDB)
	log, err := wal.Open(filepath.Join(dir, "wal"), wal.WithMetaStore(meta))
	require.NoError(t, err)
	require.NoError(t, log.SetUint64([]byte("CurrentTerm"), 1))
	require.NoError(t, log.Close())
	require.NoError(t, meta.Close())
	open(t, dir).register(t)
}

func TestManyProposalsAtOnce(t *testing.T) {
	n := open(t, t.TempDir())
	n.register(t)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			entry, err := metadata.Encode(newTopic(fmt.Sprintf("t%d", i), i))
			if err == nil {
				_, _, err = n.Propose(t.Context(), entry)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 64, n.machine.Image().TopicCount())
}

func TestProposalBounds(t *testing.T) {
	n := open(t, t.TempDir())
	_, _, err := n.Propose(t.Context(), make([]byte, 33<<20))
	require.ErrorIs(t, err, quorum.ErrTooLarge)
	n.register(t)
	// A command may be greater than a file of the log.
	big := newTopic("big", 1).(*metadata.CreateTopics)
	big.Topics[0].Configs = map[string]string{"compression.type": strings.Repeat("x", 6<<20)}
	require.Equal(t, int16(40), n.propose(t, big).Items[0].Code)
	n.propose(t, newTopic("after", 2))
}

func TestProposeAfterClose(t *testing.T) {
	n := open(t, t.TempDir())
	require.NoError(t, n.Close())
	require.NoError(t, n.Close(), "closing twice is harmless")
	_, _, err := n.Propose(t.Context(), []byte("{}"))
	require.Error(t, err)
	require.False(t, n.IsLeader())
}

func TestProposeHonoursContext(t *testing.T) {
	n := open(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	entry, err := metadata.Encode(newTopic("a", 1))
	require.NoError(t, err)
	if _, _, err = n.Propose(ctx, entry); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestUnknownCommandStopsTheNode(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	var fatal []error
	n := open(t, dir, func(c *quorum.Config) {
		c.Fatal = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			fatal = append(fatal, err)
		}
	})
	n.register(t)
	_, _, err := n.Propose(t.Context(), []byte(`{"type":"FromTheFuture","version":9,"body":{}}`))
	require.ErrorContains(t, err, "FromTheFuture")
	before := n.machine.Image()
	entry, err := metadata.Encode(newTopic("a", 1))
	require.NoError(t, err)
	_, _, err = n.Propose(t.Context(), entry)
	require.ErrorContains(t, err, "FromTheFuture", "nothing is applied after a command that is not known")
	require.Same(t, before, n.machine.Image())
	mu.Lock()
	require.Len(t, fatal, 1)
	mu.Unlock()
	require.NoError(t, n.Close())

	_, err = tryOpen(t, dir)
	require.ErrorContains(t, err, "FromTheFuture", "the next start fails too, with the reason")
}

func TestOpenFailsInAnUnusableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := tryOpen(t, file)
	require.ErrorContains(t, err, file)

	_, err = tryOpen(t, t.TempDir(), func(c *quorum.Config) {
		c.Voters = []quorum.Voter{{ID: 1, Address: "a"}, {ID: 2, Address: "b"}}
	})
	require.ErrorContains(t, err, "stream layer")
}

// TestInABubble checks that a node can be part of a simulation: its files are real, its time is not.
func TestInABubble(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := open(t, dir)
		n.register(t)
		time.Sleep(10 * time.Minute) // of leading alone, and of looking whether a snapshot is due
		n.propose(t, newTopic("a", 1))
		require.NoError(t, n.Close())
		require.NotNil(t, open(t, dir).machine.Image().Topic("a"))
	})
}

func TestThreeVotersAgree(t *testing.T) {
	nodes := openThree(t)
	leader := awaitLeader(t, nodes)
	leader.register(t)
	leader.propose(t, newTopic("a", 1))
	for _, n := range nodes {
		awaitImage(t, n.machine, func(m *metadata.Image) bool { return m.Topic("a") != nil })
		require.Equal(t, leader.machine.Image().Hash(), n.machine.Image().Hash())
		if n != leader {
			entry, err := metadata.Encode(newTopic("b", 2))
			require.NoError(t, err)
			_, _, err = n.Propose(t.Context(), entry)
			require.ErrorIs(t, err, quorum.ErrNotLeader)
			require.Equal(t, leader.Leader(), n.Leader())
		}
	}
}

func openThree(t *testing.T) []node {
	t.Helper()
	var layers []raft.StreamLayer
	var voters []quorum.Voter
	for i := range 3 {
		layer := newLoopbackLayer(t)
		layers = append(layers, layer)
		voters = append(voters, quorum.Voter{ID: int32(i), Address: layer.Addr().String()})
	}
	var nodes []node
	for i := range voters {
		nodes = append(nodes, open(t, t.TempDir(), func(c *quorum.Config) {
			c.NodeID, c.Voters, c.StreamLayer = int32(i), voters, layers[i]
			c.HeartbeatTimeout = 200 * time.Millisecond
		}))
	}
	return nodes
}

// awaitLeader waits until one of the nodes leads.
func awaitLeader(t *testing.T, nodes []node) node {
	t.Helper()
	select {
	case <-nodes[0].Ready():
		return nodes[0]
	case <-nodes[1].Ready():
		return nodes[1]
	case <-nodes[2].Ready():
		return nodes[2]
	case <-time.After(20 * time.Second):
		require.Fail(t, "nobody leads")
		return node{}
	}
}

// awaitImage waits for an image, which a watcher brings.
func awaitImage(t *testing.T, m *metadata.Machine, good func(*metadata.Image) bool) {
	t.Helper()
	images := make(chan struct{}, 1)
	m.Watch(func(_, now *metadata.Image) {
		if good(now) {
			select {
			case images <- struct{}{}:
			default:
			}
		}
	})
	select {
	case <-images:
	case <-time.After(20 * time.Second):
		require.Fail(t, "the image never came")
	}
}
