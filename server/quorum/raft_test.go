package quorum_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"millrace/server/metadata"
	"millrace/server/quorum"
	"millrace/storage"
	"millrace/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// patient runs the tests and gives what they leave more time to end than goleak does, for a machine that is busy.
type patient struct{ m *testing.M }

// Run implements goleak.TestingM.
func (p patient) Run() int {
	code := p.m.Run()
	for try := 0; code == 0 && try < 60 && goleak.Find() != nil; try++ { // each takes half a second
	}
	return code
}

// node is one quorum member of a test and its machine.
type node struct {
	*quorum.Raft
	machine *metadata.Machine
}

func open(t testing.TB, disk storage.FS, change ...func(*quorum.Config)) node {
	t.Helper()
	n, err := tryOpen(t, disk, change...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func tryOpen(t testing.TB, disk storage.FS, change ...func(*quorum.Config)) (node, error) {
	t.Helper()
	machine, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	c := quorum.Config{NodeID: 1, FS: disk, Machine: machine, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&c)
	}
	q, err := quorum.Open(t.Context(), c)
	return node{q, machine}, err
}

// realDisk gives a directory as the disk of a node.
func realDisk(t testing.TB, dir string) storage.FS {
	t.Helper()
	disk, err := storage.OSFS(dir)
	require.NoError(t, err)
	return disk
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
	n := open(t, storagetest.New())
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
			disk := storagetest.New()
			n := open(t, disk)
			n.register(t)
			for i := range topics {
				n.propose(t, newTopic(fmt.Sprintf("t%d", i), i))
			}
			want := n.machine.Image()
			require.NoError(t, n.Close())
			for range 2 {
				n = open(t, disk)
				require.Equal(t, want.Hash(), n.machine.Image().Hash())
				require.NoError(t, n.Close())
			}
			n = open(t, disk)
			n.propose(t, newTopic("more", 1000))
			require.Equal(t, topics+1, n.machine.Image().TopicCount())
		})
	}
}

// TestStateOutlivesKill opens copies of the folder made while it was in use: what a killed process
// leaves behind.
func TestStateOutlivesKill(t *testing.T) {
	dir := t.TempDir()
	n := open(t, realDisk(t, dir))
	n.register(t)
	for i := range 20 {
		n.propose(t, newTopic(fmt.Sprintf("t%d", i), i))
		if i%5 != 0 {
			continue
		}
		want := n.machine.Image().Hash()
		crashed := t.TempDir()
		require.NoError(t, os.CopyFS(crashed, os.DirFS(dir)))
		again := open(t, realDisk(t, crashed))
		require.Equal(t, want, again.machine.Image().Hash())
		again.propose(t, newTopic("after", 1000))
	}
}

func TestManyProposalsAtOnce(t *testing.T) {
	n := open(t, storagetest.New())
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
	n := open(t, storagetest.New())
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
	n := open(t, storagetest.New())
	require.NoError(t, n.Close())
	require.NoError(t, n.Close(), "closing twice is harmless")
	_, _, err := n.Propose(t.Context(), []byte("{}"))
	require.Error(t, err)
	require.False(t, n.IsLeader())
}

func TestProposeHonoursContext(t *testing.T) {
	n := open(t, storagetest.New())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	entry, err := metadata.Encode(newTopic("a", 1))
	require.NoError(t, err)
	if _, _, err = n.Propose(ctx, entry); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestUnknownCommandStopsTheNode(t *testing.T) {
	disk := storagetest.New()
	var mu sync.Mutex
	var fatal []error
	n := open(t, disk, func(c *quorum.Config) {
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

	_, err = tryOpen(t, disk)
	require.ErrorContains(t, err, "FromTheFuture", "the next start fails too, with the reason")
}

func TestOpenFailsInAnUnusableFolder(t *testing.T) {
	disk := storagetest.New()
	disk.WriteFile("metadata", nil)
	_, err := tryOpen(t, disk)
	require.ErrorContains(t, err, "metadata")

	for _, voters := range [][]quorum.Voter{{{ID: 1, Address: "a"}, {ID: 2, Address: "b"}}, {{ID: 2, Address: "b"}}} {
		_, err = tryOpen(t, storagetest.New(), func(c *quorum.Config) { c.Voters = voters })
		require.ErrorContains(t, err, "stream layer")
	}
}

// A folder from before this layout of files is not taken for an empty one.
func TestFolderOfAnOlderVersionIsRefused(t *testing.T) {
	disk := storagetest.New()
	disk.WriteFile("metadata/wal/wal-meta.db", []byte("x"))
	_, err := tryOpen(t, disk)
	require.ErrorContains(t, err, "older version")
	require.Equal(t, []string{"metadata/wal/wal-meta.db"}, disk.Files())
}

// TestInABubble checks that a node can be part of a simulation, on a disk that takes its time.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storagetest.New()
		disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
			return time.Duration(op) * time.Millisecond, nil
		})
		small := func(c *quorum.Config) { c.SegmentBytes = 4096 }
		n := open(t, disk, small)
		n.register(t)
		for i := range 300 {
			n.propose(t, newTopic(fmt.Sprintf("t%d", i), i))
		}
		time.Sleep(10 * time.Minute) // of leading alone, and of looking whether a snapshot is due
		n.propose(t, newTopic("a", 301))
		require.NoError(t, n.Close())
		require.NotNil(t, open(t, disk, small).machine.Image().Topic("a"))
	})
}

// One proposal costs one write and one sync of the log.
func TestProposalCostsOneSync(t *testing.T) {
	disk := storagetest.New()
	n := open(t, disk)
	n.register(t)
	n.propose(t, newTopic("a", 1))
	count := map[storagetest.Op]int{}
	var mu sync.Mutex
	disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		if name != "metadata/applied" {
			count[op]++
		}
		return 0, nil
	})
	n.propose(t, newTopic("b", 2))
	disk.SetFault(nil)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[storagetest.Op]int{storagetest.OpWrite: 1, storagetest.OpSync: 1}, count)
}

// A node ends while its lead is asked away, whatever raft makes of that.
func TestCloseDuringTransfer(t *testing.T) {
	for range 15 {
		n := open(t, storagetest.New())
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = n.Transfer(ctx, -1)
				}
			})
		}
		require.NoError(t, n.Close())
		cancel()
		wg.Wait()
	}
}
