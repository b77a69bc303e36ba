package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
	"millrace/server/quorum"
	"millrace/server/servertest/memnet"
	"millrace/storage/storagetest"
)

// cluster is members in a bubble, each on a host and a disk of its own.
type cluster struct {
	t       *testing.T
	net     *memnet.Net
	voters  []quorum.Voter
	members map[int32]*member
	leaders map[uint64]int32 // who led, by term
}

// member is a node of a cluster, in one life of its process.
type member struct {
	node
	id      int32
	host    *memnet.Host
	disk    *storagetest.FS
	known   bool // it has been in the cluster
	http    *http.Server
	streams *quorum.Streams
	serving sync.WaitGroup
}

func hostOf(id int32) string { return fmt.Sprintf("n%d", id) }

func urlOf(id int32) string { return "http://" + hostOf(id) + ":8082" }

// newCluster makes a cluster of that many voters, none of which runs. It ends with the test.
func newCluster(t *testing.T, seed uint64, voters int32) *cluster {
	c := &cluster{
		t: t, net: memnet.New(seed, memnet.Link{Latency: time.Millisecond, Jitter: time.Millisecond}),
		members: map[int32]*member{}, leaders: map[uint64]int32{},
	}
	for id := int32(1); id <= voters; id++ {
		c.voters = append(c.voters, quorum.Voter{ID: id, Address: urlOf(id)})
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			c.stop(m)
		}
		c.net.Close()
	})
	return c
}

// start runs a member on its disk, or on a new one.
func (c *cluster) start(id int32, change ...func(*quorum.Config, *quorum.StreamConfig)) (*member, error) {
	m := &member{id: id, host: c.net.Boot(hostOf(id)), disk: storagetest.New()}
	if old := c.members[id]; old != nil {
		m.disk, m.known = old.disk, old.known
	}
	machine, err := metadata.NewMachine(metadata.Options{NodeID: id})
	require.NoError(c.t, err)
	m.machine = machine
	s := quorum.StreamConfig{
		NodeID: id, Address: urlOf(id),
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			u, err := url.Parse(address)
			if err != nil {
				return nil, err
			}
			return m.host.Dial(ctx, "tcp", u.Host)
		},
		Authorize: func(h http.Header) { h.Set("Authorization", "secret") },
		Check:     func(r *http.Request) bool { return r.Header.Get("Authorization") == "secret" },
		ClusterID: func() string { return machine.Image().ClusterID },
	}
	q := quorum.Config{
		NodeID: id, FS: m.disk, Machine: machine, Logger: slog.New(slog.DiscardHandler), Voters: c.voters,
		Address: s.Address, Known: m.known, SegmentBytes: 16 << 10,
	}
	for _, f := range change {
		f(&q, &s)
	}
	m.streams = quorum.NewStreams(s)
	q.StreamLayer = m.streams
	l, err := m.host.Listen(8082)
	require.NoError(c.t, err)
	mux := http.NewServeMux()
	mux.Handle("GET "+quorum.StreamPath, m.streams)
	m.http = &http.Server{Handler: mux}
	m.serving.Go(func() { _ = m.http.Serve(l) })
	c.members[id] = m
	m.Raft, err = quorum.Open(c.t.Context(), q)
	return m, err
}

func (c *cluster) mustStart(ids ...int32) {
	c.t.Helper()
	for _, id := range ids {
		_, err := c.start(id)
		require.NoError(c.t, err)
	}
}

// stop ends a member as its operator would.
func (c *cluster) stop(m *member) {
	if m.Raft != nil {
		_ = m.Close() // its disk may be gone
		m.Raft = nil
	}
	_ = m.http.Close()
	_ = m.streams.Close()
	m.serving.Wait()
	m.host.Kill()
}

// crash ends a member at once, and leaves of its disk what the mode says.
func (c *cluster) crash(id int32, mode storagetest.Mode, rng *rand.Rand) {
	m := c.members[id]
	m.disk = m.disk.Crash(mode, rng)
	if mode == storagetest.KeepAll {
		m.host.Kill()
	} else {
		m.host.PowerOff()
	}
	c.stop(m)
}

// leader waits for the leader, and checks that no term has two.
func (c *cluster) leader() *member {
	c.t.Helper()
	for range 3000 {
		for _, m := range c.members {
			if m.Raft == nil || !m.IsLeader() {
				continue
			}
			term := m.Term()
			if !m.IsLeader() || m.Term() != term {
				continue
			}
			if other, ok := c.leaders[term]; ok {
				require.Equal(c.t, other, m.id, "two leaders of term %d", term)
			}
			c.leaders[term] = m.id
			m.known = true
			return m
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Fail(c.t, "nobody leads")
	return nil
}

// settle has a command agreed on, whoever leads, and waits until all running members have applied it.
func (c *cluster) settle(command metadata.Command) {
	c.t.Helper()
	var index uint64
	for range 100 {
		var err error
		if index, err = c.try(command); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.NotZero(c.t, index)
	for _, m := range c.members {
		for tries := 0; m.Raft != nil && m.Applied() < index; tries++ {
			require.Less(c.t, tries, 6000, "node %d stays behind", m.id)
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// insist has a command agreed on, whoever leads: who has just been elected may lose the lead to another one still.
func (c *cluster) insist(command metadata.Command) {
	c.t.Helper()
	for try := range 100 {
		index, err := c.try(command)
		if err == nil || index > 0 && try > 0 { // refused, for an earlier try was heard
			return
		}
		require.Zero(c.t, index, "%v", err)
		time.Sleep(10 * time.Millisecond)
	}
	require.Fail(c.t, "it is not agreed on")
}

// try proposes a command to the leader.
func (c *cluster) try(command metadata.Command) (uint64, error) {
	entry, err := metadata.Encode(command)
	require.NoError(c.t, err)
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	r, index, err := c.leader().Propose(ctx, entry)
	if err == nil && len(r.Items) > 0 && r.Items[0].Code != 0 {
		err = fmt.Errorf("refused with code %d", r.Items[0].Code)
	}
	return index, err
}

func register() metadata.Command {
	return &metadata.RegisterBroker{NewClusterID: "c", ID: 1, Incarnation: [16]byte{1}, PreviousEpoch: -1}
}

// agree checks that all running members hold the same.
func (c *cluster) agree() {
	c.t.Helper()
	want := c.leader().machine.Image().Hash()
	for _, m := range c.members {
		if m.Raft != nil {
			require.Equal(c.t, want, m.machine.Image().Hash(), "node %d", m.id)
		}
	}
}

func TestThreeVotersAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 3)
		c.mustStart(1)
		changed := c.members[1].Changed()
		time.Sleep(time.Minute)
		require.EqualValues(t, -1, c.members[1].Leader(), "one of three is no majority")
		c.mustStart(2, 3)
		<-changed
		c.settle(register())
		c.settle(newTopic("a", 1))
		c.agree()
		leader := c.leader()
		require.WithinDuration(t, time.Now(), leader.LastContact(), time.Millisecond)
		for _, m := range c.members {
			require.Equal(t, leader.id, m.Leader())
			require.Equal(t, urlOf(leader.id), m.LeaderAddress())
			require.Equal(t, leader.Term(), m.Term())
			require.WithinDuration(t, time.Now(), m.LastContact(), time.Second)
			members, err := m.Members()
			require.NoError(t, err)
			require.Len(t, members, 3)
			for i, v := range members {
				require.Equal(t, quorum.Member{
					ID: int32(i + 1), Address: urlOf(int32(i + 1)), Voter: true, Leader: v.ID == leader.id,
				}, v)
			}
			if m == leader {
				continue
			}
			entry, err := metadata.Encode(newTopic("b", 2))
			require.NoError(t, err)
			_, _, err = m.Propose(t.Context(), entry)
			require.ErrorIs(t, err, quorum.ErrNotLeader)
			require.ErrorIs(t, m.Remove(t.Context(), 1), quorum.ErrNotLeader)
			require.ErrorIs(t, m.Transfer(t.Context(), -1), quorum.ErrNotLeader)
			require.ErrorIs(t, m.Promote(t.Context(), 9), quorum.ErrNotLeader, "the leader knows more members")
		}
	})
}

// lines counts what is written to a log.
type lines struct{ atomic.Int64 }

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.Add(1)
	return len(p), nil
}

// A voter that waits for a majority does not tell of each election that it begins.
func TestWaitingIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 11, 3)
		var written lines
		_, err := c.start(1, func(q *quorum.Config, _ *quorum.StreamConfig) {
			q.Logger = slog.New(slog.NewTextHandler(&written, nil))
		})
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.Zero(t, written.Load())
		c.mustStart(2, 3)
		old := c.leader()
		if old.id == 1 { // the next leader is lost to node 1
			require.NoError(t, old.Transfer(t.Context(), 2))
		}
		time.Sleep(time.Second) // node 1 knows the leader
		old = c.leader()
		was := written.Load()
		c.stop(old)
		time.Sleep(10 * time.Second)
		require.NotZero(t, written.Load()-was, "that a leader was lost is news")
	})
}

func TestLeaderDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 3)
		c.mustStart(1, 2, 3)
		c.settle(register())
		rng := rand.New(rand.NewPCG(1, 1))
		for round := range 6 {
			dead := c.leader()
			changed := c.members[1+dead.id%3].Changed()
			c.crash(dead.id, storagetest.Modes()[round%4], rng)
			<-changed
			c.settle(newTopic(fmt.Sprintf("t%d", round), round))
			require.NotEqual(t, dead.id, c.leader().id)
			c.mustStart(dead.id)
		}
		c.settle(newTopic("end", 100))
		c.agree()
		require.Equal(t, 7, c.leader().machine.Image().TopicCount())
	})
}

// awaitLeader gives the time until somebody leads instead of a node.
func (c *cluster) awaitLeader(instead int32) time.Duration {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		for _, m := range c.members {
			if m.Raft != nil && m.id != instead && m.IsLeader() {
				return time.Since(began)
			}
		}
		require.Less(c.t, time.Since(began), time.Minute)
	}
}

// A leader whose process ends is replaced before its heartbeats are missed, by one election.
func TestLeaderThatIsGoneIsReplacedAtOnce(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, seed, 3+2*int32(seed%2))
			for id := range int32(len(c.voters)) {
				c.mustStart(id + 1)
			}
			c.settle(register())
			lead := 1 + int32(seed)%int32(len(c.voters))
			if c.leader().id != lead {
				require.NoError(t, c.leader().Transfer(t.Context(), lead))
			}
			c.settle(newTopic("a", 1))
			term := c.leader().Term()
			rng := rand.New(rand.NewPCG(seed, 1))
			limit := 300 * time.Millisecond
			if len(c.voters) == 5 && seed%4 == 1 { // the first of those who would stand dies with it
				limit += 150 * time.Millisecond
				first := int32(1)
				if lead == 1 {
					first = 2
				}
				c.crash(first, storagetest.KeepAll, rng)
			}
			c.crash(lead, storagetest.KeepAll, rng)
			require.Less(t, c.awaitLeader(lead), limit, "seed %d", seed)
			require.LessOrEqual(t, c.leader().Term(), term+1)
			members, err := c.leader().Members()
			require.NoError(t, err)
			require.Len(t, members, len(c.voters))
			for _, m := range members {
				require.Positive(t, m.ID)
			}
			c.mustStart(lead)
			c.settle(newTopic("b", 2))
			c.agree()
			require.LessOrEqual(t, c.leader().Term(), term+1)
		})
	}
}

// Of a leader that lives, or may live, nothing is taken away for a broken connection.
func TestLeaderThatIsNotGoneStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 21, 3)
		c.mustStart(1, 2, 3)
		c.settle(register())
		old := c.leader()
		term := old.Term()
		for range 20 {
			for id := range c.members {
				if id != old.id {
					require.NotZero(t, c.net.Reset(hostOf(old.id), hostOf(id)))
				}
			}
			time.Sleep(500 * time.Millisecond)
			require.True(t, old.IsLeader())
		}
		require.Equal(t, term, old.Term())

		for id := range c.members { // the connections are cut, and the address is silent
			if id != old.id {
				c.net.Cut(hostOf(old.id), hostOf(id))
				c.net.Cut(hostOf(id), hostOf(old.id))
				c.net.Reset(hostOf(old.id), hostOf(id))
			}
		}
		require.Greater(t, c.awaitLeader(old.id), 700*time.Millisecond)
		c.net.Heal()
		c.settle(newTopic("a", 1))
		c.agree()
	})
}

// A leader that lives and whose port refuses the others gives way to one of them at most once.
func TestLeaderWhosePortRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 22, 3)
		var leads atomic.Int32
		for id := int32(1); id <= 3; id++ {
			_, err := c.start(id, func(_ *quorum.Config, s *quorum.StreamConfig) {
				dial := s.Dial
				s.Dial = func(ctx context.Context, address string) (net.Conn, error) {
					if address == urlOf(leads.Load()) {
						return nil, syscall.ECONNREFUSED
					}
					return dial(ctx, address)
				}
			})
			require.NoError(t, err)
		}
		c.settle(register())
		old := c.leader()
		leads.Store(old.id)
		time.Sleep(2 * time.Second)
		term := old.Term()
		for range 20 {
			c.net.Reset(hostOf(old.id), hostOf(1+old.id%3))
			time.Sleep(500 * time.Millisecond)
		}
		require.LessOrEqual(t, c.leader().Term(), term+1)
		leads.Store(0)
		c.settle(newTopic("a", 1))
		c.agree()
	})
}

// A leader that hears nobody stops leading before another one can be elected, and what it was asked meanwhile is not
// answered as done.
func TestLeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 3)
		c.mustStart(1, 2, 3)
		c.settle(register())
		old := c.leader()
		for id := range c.members {
			c.net.Cut(hostOf(old.id), hostOf(id))
			c.net.Cut(hostOf(id), hostOf(old.id))
		}
		entry, err := metadata.Encode(newTopic("lost", 1))
		require.NoError(t, err)
		_, _, err = old.Propose(t.Context(), entry)
		require.Error(t, err)
		require.NotErrorIs(t, err, quorum.ErrNotLeader, "the outcome is not known")
		require.False(t, old.IsLeader())
		for c.leader() == old {
			time.Sleep(10 * time.Millisecond)
		}
		c.insist(newTopic("kept", 2))
		c.net.Heal()
		c.settle(newTopic("end", 3))
		c.agree()
		require.Nil(t, old.machine.Image().Topic("lost"))
	})
}

// Disks that take their time hold up no more than what waits for them.
func TestSlowDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, 3)
		for id := int32(1); id <= 3; id++ {
			disk := storagetest.New()
			disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
				return time.Duration(id) * time.Duration(op) * time.Millisecond, nil
			})
			c.members[id] = &member{disk: disk}
		}
		c.mustStart(1, 2, 3)
		c.settle(register())
		for i := range 50 {
			c.insist(newTopic(fmt.Sprintf("t%d", i), i))
		}
		require.NoError(t, c.leader().Transfer(t.Context(), -1))
		c.settle(newTopic("end", 100))
		c.agree()
	})
}

// All lose power at once, and then again: what was answered is there, also when the second loss takes what was not
// synced before the first.
func TestPowerFailsEverywhere(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, seed, 3)
			c.mustStart(1, 2, 3)
			c.settle(register())
			rng := rand.New(rand.NewPCG(seed, 1))
			for round, mode := range []storagetest.Mode{
				storagetest.KeepAll, storagetest.LoseAll, storagetest.Prefix, storagetest.LoseAll, storagetest.Pages,
			} {
				c.insist(newTopic(fmt.Sprintf("t%d", round), round))
				for id := range int32(3) {
					c.crash(id+1, mode, rng)
				}
				c.mustStart(1, 2, 3)
			}
			c.settle(newTopic("end", 100))
			c.agree()
			require.Equal(t, 6, c.leader().machine.Image().TopicCount())
		})
	}
}

// TestCrashAtEveryOperation ends the disk of a node at its k-th file operation, then at its k-th after that, while
// commands are agreed on: no term has two leaders, and no command that was answered is lost.
func TestCrashAtEveryOperation(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 9
	}
	for k := 1; k < 90; k += step {
		for i, mode := range []storagetest.Mode{storagetest.LoseAll, storagetest.Prefix} {
			synctest.Test(t, func(t *testing.T) { crashAt(t, k, mode, storagetest.Moment(k/2%2), uint64(2*k+i)) })
		}
	}
}

func crashAt(t *testing.T, k int, mode storagetest.Mode, moment storagetest.Moment, seed uint64) {
	c := newCluster(t, seed, 3)
	rng := rand.New(rand.NewPCG(seed, 2))
	victim := int32(1 + rng.IntN(3))
	c.members[victim] = &member{disk: storagetest.New()}
	c.members[victim].disk.StopAt(k, moment)
	for id := range int32(3) {
		if _, err := c.start(id + 1); err != nil {
			require.Equal(t, victim, id+1, "%s", err)
		}
	}
	answered := map[string]bool{}
	run := func(from, to int) {
		for i := from; i < to; i++ {
			name := fmt.Sprintf("t%d", i)
			if _, err := c.try(newTopic(name, i)); err == nil {
				answered[name] = true
			}
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
	}
	_, err := c.try(register())
	run(0, 10)
	for round := range 2 { // the second is a crash of what came back
		if !c.members[victim].disk.Stopped() {
			break
		}
		c.crash(victim, mode, rng)
		run(10+10*round, 15+10*round)
		if round == 0 {
			c.members[victim].disk.StopAt(k, moment)
		}
		if _, err := c.start(victim); err != nil {
			require.True(t, c.members[victim].disk.Stopped(), "k %d, %s: %s", k, mode, err)
		}
		run(15+10*round, 20+10*round)
	}
	c.members[victim].disk.StopAt(-1, moment) // never
	if c.members[victim].disk.Stopped() {
		c.crash(victim, mode, rng)
		c.mustStart(victim)
	}
	if err != nil {
		c.settle(register())
	}
	// Whoever comes back has what was answered, also without the one that had led.
	last := c.leader()
	c.stop(last)
	c.mustStart(last.id)
	c.settle(newTopic("end", 1000))
	c.agree()
	for name := range answered {
		require.NotNil(t, c.leader().machine.Image().Topic(name), "k %d, %s: %s is lost", k, mode, name)
	}
}

// A follower that is far behind gets a snapshot, and has it after a power cut.
func TestSnapshotIsInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 5, 3)
		c.mustStart(1, 2, 3)
		c.settle(register())
		behind := 1 + c.leader().id%3
		rng := rand.New(rand.NewPCG(5, 5))
		c.crash(behind, storagetest.LoseAll, rng)
		var wg sync.WaitGroup
		leader := c.leader()
		for i := range 2600 { // more than stay in the log behind a snapshot
			wg.Go(func() {
				if _, _, err := leader.Propose(t.Context(), encoded(t, newTopic(fmt.Sprintf("t%d", i), i))); err != nil {
					t.Error(err)
				}
			})
			if i%50 == 49 {
				wg.Wait()
			}
		}
		time.Sleep(3 * time.Minute) // a snapshot is taken
		c.mustStart(behind)
		c.settle(newTopic("end", 10000))
		c.agree()
		var snapshots int
		for _, name := range c.members[behind].disk.Files() {
			if len(name) > len("metadata/snapshots/") && name[:len("metadata/snapshots/")] == "metadata/snapshots/" {
				snapshots++
			}
		}
		require.NotZero(t, snapshots)
		c.crash(behind, storagetest.LoseAll, rng)
		c.mustStart(behind)
		c.settle(newTopic("after", 10001))
		c.agree()
	})
}

func encoded(t *testing.T, c metadata.Command) []byte {
	b, err := metadata.Encode(c)
	if err != nil {
		t.Error(err)
	}
	return b
}

func TestMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 6, 1)
		ctx := t.Context()
		began := time.Now()
		c.mustStart(1)
		require.True(t, c.members[1].IsLeader())
		require.Zero(t, time.Since(began), "a node alone does not wait for others")
		c.settle(register())
		c.mustStart(2, 3) // these are no founders
		time.Sleep(time.Minute)
		require.EqualValues(t, -1, c.members[2].Leader(), "they wait to be added")
		one := c.members[1]
		require.ErrorIs(t, one.Promote(ctx, 2), quorum.ErrNotMember)
		require.ErrorIs(t, one.Transfer(ctx, -1), quorum.ErrRefused)
		require.ErrorIs(t, one.Demote(ctx, 1), quorum.ErrRefused)
		require.ErrorIs(t, one.AddNonvoter(ctx, 2, ""), quorum.ErrRefused)
		require.NoError(t, one.AddNonvoter(ctx, 2, urlOf(2)))
		require.ErrorIs(t, one.AddNonvoter(ctx, 3, urlOf(2)), quorum.ErrRefused, "that is the address of another one")
		require.NoError(t, one.AddNonvoter(ctx, 3, urlOf(33)))
		require.NoError(t, one.AddNonvoter(ctx, 3, urlOf(3)), "a corrected address")
		c.settle(newTopic("a", 1))
		require.ErrorIs(t, one.Transfer(ctx, 3), quorum.ErrRefused)
		require.NoError(t, one.Promote(ctx, 2))
		require.NoError(t, one.Promote(ctx, 3))
		require.NoError(t, one.Promote(ctx, 3), "once is enough")
		require.NoError(t, one.Transfer(ctx, 2))
		require.EqualValues(t, 2, c.leader().id)
		require.NoError(t, c.members[2].Demote(ctx, 1))
		require.NoError(t, c.members[2].Remove(ctx, 1))
		require.ErrorIs(t, c.members[2].Remove(ctx, 1), quorum.ErrNotMember)
		c.stop(one)
		c.settle(newTopic("b", 2))

		delete(c.members, 1) // it comes again, with an empty disk
		c.voters = nil
		for id := int32(2); id <= 3; id++ {
			c.voters = append(c.voters, quorum.Voter{ID: id, Address: urlOf(id)})
		}
		c.mustStart(1)
		require.NoError(t, c.leader().AddNonvoter(ctx, 1, urlOf(1)))
		require.NoError(t, c.leader().Promote(ctx, 1))
		c.settle(newTopic("c", 3))
		c.agree()
		require.NoError(t, c.leader().Remove(ctx, c.leader().id), "also the leader may go")
		c.leader()
		members, err := c.leader().Members()
		require.NoError(t, err)
		require.Len(t, members, 2)
	})
}

// A transfer to a voter that does not answer is not told as refused: the voter may have heard of it.
func TestTransferWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 10, 3)
		c.mustStart(1, 2, 3)
		c.settle(register())
		leader := c.leader()
		to := 1 + leader.id%3
		c.net.Cut(hostOf(leader.id), hostOf(to))
		err := leader.Transfer(t.Context(), to)
		require.ErrorContains(t, err, "unknown outcome")
		require.NotErrorIs(t, err, quorum.ErrRefused)
		c.net.Heal()

		c.stop(c.members[to])
		time.Sleep(10 * time.Second) // an election may be under way
		err = c.leader().Transfer(t.Context(), to)
		require.ErrorContains(t, err, "unknown outcome")
		require.NotErrorIs(t, err, quorum.ErrRefused)
	})
}

// A disk that fails under the leader makes another node lead.
func TestLeaderWithAFailedDiskGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 7, 3)
		c.mustStart(1, 2, 3)
		c.settle(register())
		old := c.leader()
		old.disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
			if op == storagetest.OpSync {
				return 0, errors.New("input/output error")
			}
			return 0, nil
		})
		_, err := c.try(newTopic("a", 1))
		require.ErrorIs(t, err, quorum.ErrOffline)
		require.ErrorIs(t, old.Offline(), quorum.ErrOffline)
		require.NotEqual(t, old.id, c.leader().id)
		c.insist(newTopic("b", 2))
	})
}

// A disk from which the log cannot be read any more stops no process: where raft would panic over an entry to apply,
// the log goes offline.
func TestFollowerWithAnUnreadableDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 9, 3)
		c.mustStart(1, 2, 3)
		c.settle(register())
		follower := c.members[1+c.leader().id%3]
		follower.disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
			if op == storagetest.OpRead {
				return 0, errors.New("input/output error")
			}
			return 0, nil
		})
		_, err := c.try(newTopic("a", 1))
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		require.ErrorIs(t, follower.Offline(), quorum.ErrOffline)
		_, err = c.try(newTopic("b", 2))
		require.NoError(t, err)
	})
}

// A founder whose folder is gone does not found another cluster.
func TestKnownNodeWithoutALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 8, 3)
		_, err := c.start(1, func(q *quorum.Config, _ *quorum.StreamConfig) { q.Known = true })
		require.ErrorIs(t, err, quorum.ErrLost)
	})
}
