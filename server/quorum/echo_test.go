package quorum_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
	"millrace/server/quorum"
)

// countedConn counts the writes to a connection.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

// Write implements net.Conn.
func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// startCounted starts three voters and counts the messages of them all, but for the answers.
func startCounted(c *cluster, messages *atomic.Int64) {
	c.t.Helper()
	for id := int32(1); id <= 3; id++ {
		_, err := c.start(id, func(_ *quorum.Config, s *quorum.StreamConfig) {
			dial := s.Dial
			s.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := dial(ctx, address)
				if err != nil {
					return nil, err
				}
				return countedConn{conn, messages}, nil
			}
		})
		require.NoError(c.t, err)
	}
}

// A quorum in which nothing happens says little more than that its leader lives; what happens then is known soon.
func TestRestingQuorumSaysLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 31, 3)
		var messages atomic.Int64
		startCounted(c, &messages)
		c.settle(register())
		leader := c.leader()
		time.Sleep(5 * time.Second)
		before := messages.Load()
		time.Sleep(time.Minute)
		said := float64(messages.Load()-before) / 60 / 2
		require.Less(t, said, 8.5, "messages a second to each follower")
		require.Greater(t, said, 5.0, "the heartbeats, at least")
		require.Same(t, leader, c.leader())
		for round := range 10 {
			index, err := c.try(newTopic("a", round))
			if round > 0 {
				require.Error(t, err, "there is one")
				index, err = c.try(&metadata.AllocateProducerIDs{
					BrokerID: 1, BrokerEpoch: leader.machine.Image().Broker(1).Epoch, Count: 1000,
				})
			}
			require.NoError(t, err)
			agreed := time.Now()
			for _, m := range c.members {
				for m.Applied() < index {
					time.Sleep(time.Millisecond)
				}
			}
			require.Less(t, time.Since(agreed), 130*time.Millisecond, "until all have applied it")
			time.Sleep(3 * time.Second)
		}
	})
}

// A leader that is cut off at rest gives up in the time of its lease and a little, before others may be elected.
func TestRestingLeaderThatIsCutOffGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 32, 3)
		c.mustStart(1, 2, 3)
		c.settle(register())
		for range 5 {
			time.Sleep(10 * time.Second)
			old := c.leader()
			for id := range c.members {
				if id != old.id {
					c.net.Cut(hostOf(old.id), hostOf(id))
					c.net.Cut(hostOf(id), hostOf(old.id))
				}
			}
			began := time.Now()
			for old.IsLeader() {
				time.Sleep(time.Millisecond)
			}
			require.Less(t, time.Since(began), 900*time.Millisecond)
			require.Less(t, c.awaitLeader(old.id), 30*time.Second, "elections may come to nothing a few times")
			c.net.Heal()
			time.Sleep(5 * time.Second)
			c.agree()
		}
	})
}

// A follower that comes back at rest, with a commit index that it has to be told, is told it.
func TestFollowerThatComesBackAtRestCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 33, 3)
		c.mustStart(1, 2, 3)
		c.settle(register())
		c.settle(newTopic("a", 1))
		for range 5 {
			time.Sleep(10 * time.Second)
			id := 1 + c.leader().id%3
			c.stop(c.members[id])
			c.mustStart(id)
			began := time.Now()
			for c.members[id].machine.Image().TopicCount() == 0 {
				time.Sleep(time.Millisecond)
			}
			require.Less(t, time.Since(began), 2*time.Second)
			c.agree()
		}
	})
}

// What a follower said is said again for it only as long as it is the same question, in the same term, and it lives.
func TestEchoes(t *testing.T) {
	const id, to = raft.ServerID("2"), raft.ServerAddress("http://n2")
	beat := &raft.AppendEntriesRequest{Term: 3}
	rest := func(term, index, commit uint64) *raft.AppendEntriesRequest {
		return &raft.AppendEntriesRequest{Term: term, PrevLogEntry: index, PrevLogTerm: 2, LeaderCommitIndex: commit}
	}
	filled := rest(3, 7, 7)
	filled.Entries = []*raft.Log{{}}
	agreed := raft.AppendEntriesResponse{Term: 3, LastLog: 7, Success: true}
	failed := context.DeadlineExceeded
	for name, c := range map[string]struct {
		between func(e *quorum.Echoes)
		ask     *raft.AppendEntriesRequest
		to      raft.ServerAddress
		echo    bool
	}{
		"the same":         {ask: rest(3, 7, 7), echo: true},
		"a new commit":     {ask: rest(3, 7, 8)},
		"a new entry":      {ask: rest(3, 8, 7)},
		"a new term":       {ask: rest(4, 7, 7)},
		"an old term":      {ask: rest(2, 7, 7)},
		"a heartbeat":      {ask: beat},
		"another address":  {ask: rest(3, 7, 7), to: "http://n9"},
		"with entries":     {ask: filled},
		"it was not heard": {ask: rest(3, 7, 7), between: func(*quorum.Echoes) { time.Sleep(251 * time.Millisecond) }},
		"a heartbeat was lost": {ask: rest(3, 7, 7), between: func(e *quorum.Echoes) {
			e.Heard(id, to, beat, &raft.AppendEntriesResponse{}, failed)
		}},
		"a newer term was met": {ask: rest(3, 7, 7), between: func(e *quorum.Echoes) {
			e.Heard(id, to, beat, &raft.AppendEntriesResponse{Term: 4}, nil)
		}},
		"it was refused then": {ask: rest(3, 7, 7), between: func(e *quorum.Echoes) {
			e.Heard(id, to, rest(3, 7, 7), &raft.AppendEntriesResponse{Term: 3}, nil)
		}},
		"heard by heartbeats": {ask: rest(3, 7, 7), echo: true, between: func(e *quorum.Echoes) {
			for range 4 {
				time.Sleep(200 * time.Millisecond)
				e.Heard(id, to, beat, &agreed, nil)
			}
		}},
		"after a while all the same": {ask: rest(3, 7, 7), between: func(e *quorum.Echoes) {
			for range 5 {
				time.Sleep(200 * time.Millisecond)
				e.Heard(id, to, beat, &agreed, nil)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := quorum.NewEchoes(time.Second)
				var resp raft.AppendEntriesResponse
				require.False(t, e.Answer(id, to, rest(3, 7, 7), &resp), "it never said so")
				e.Heard(id, to, rest(3, 7, 7), &agreed, nil)
				if c.between != nil {
					c.between(e)
				}
				if c.to == "" {
					c.to = to
				}
				require.Equal(t, c.echo, e.Answer(id, c.to, c.ask, &resp))
				if c.echo {
					require.Equal(t, agreed, resp)
				}
			})
		})
	}
}
