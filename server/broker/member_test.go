package broker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// beatsOf are the heartbeats of a broker since the last call.
func (f *fakeController) beatsOf(id int32) (beats []beat) {
	f.set(func(f *fakeController) {
		for _, b := range f.beats {
			if b.id == id {
				beats = append(beats, b)
			}
		}
		f.beats = nil
	})
	return beats
}

func TestHeartbeats(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		m := c.members[1]
		require.False(t, m.broker.Fenced())
		time.Sleep(time.Second)
		c.control.beatsOf(1)
		time.Sleep(20 * time.Second)
		beats := c.control.beatsOf(1)
		require.InDelta(t, 10, len(beats), 1)
		require.Equal(t, m.broker.Epoch(), beats[0].epoch)
		require.Equal(t, int64(c.image().Index), beats[0].applied)

		// A controller that does not answer is asked again and again, and nothing else stops.
		c.create("t", three())
		c.control.set(func(f *fakeController) { f.down = errors.New("no controller") })
		time.Sleep(10 * time.Second)
		m.produce("t", "v")
		c.control.set(func(f *fakeController) { f.down = nil })
		c.control.beatsOf(1)
		time.Sleep(1100 * time.Millisecond)
		require.NotEmpty(t, c.control.beatsOf(1))

		// A broker that was fenced comes back with its next heartbeat.
		c.fence(1)
		time.Sleep(2100 * time.Millisecond)
		require.False(t, m.broker.Fenced())
		require.False(t, c.image().Broker(1).Fenced)

		// One that was registered by another run, or forgotten, registers again.
		was := m.broker.Epoch()
		m.lives++
		epoch := m.register()
		time.Sleep(3 * time.Second)
		require.Greater(t, m.broker.Epoch(), was)
		require.GreaterOrEqual(t, m.broker.Epoch(), epoch)
		require.False(t, c.image().Broker(1).Fenced)
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })
	})
}

// A port that refuses is told of at once.
func TestRefusedPort(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three())
		c.members[1].produce("t", "v")
		time.Sleep(time.Second)
		c.control.beatsOf(2)
		c.members[1].stop()
		time.Sleep(200 * time.Millisecond)
		beats := c.control.beatsOf(2)
		require.NotEmpty(t, beats)
		require.Equal(t, []int32{1}, beats[0].refused)
		require.Less(t, len(beats), 5)
		c.members[2].broker.Refused(3)
		time.Sleep(time.Millisecond * 60)
		require.Equal(t, []int32{3}, c.control.beatsOf(2)[0].refused)
	})
}

// A broker that stops in order hands its leaderships over first, in a moment.
func TestControlledShutdown(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		c.members[1].produce("t", "a")
		began := time.Now()
		require.NoError(t, c.members[1].broker.Shutdown(t.Context()))
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, int32(2), c.partition("t", 0).Leader)
		c.members[2].produce("t", "b")
		c.members[1].stop()
		c.members[1].start()
		c.await("whole again", func() bool { return len(c.partition("t", 0).ISR) == 3 })

		// Where the controller does not let it go, it says so when its time is over.
		c.control.set(func(f *fakeController) { f.down = errors.New("no controller") })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorIs(t, c.members[2].broker.Shutdown(ctx), context.DeadlineExceeded)
	})
}

// A replica that is filled anew takes no more bandwidth than the throttles allow, on either side.
func TestThrottle(t *testing.T) {
	for _, side := range []string{"leader", "follower"} {
		t.Run(side, func(t *testing.T) {
			simulate(t, ofThree(), func(t *testing.T, c *cluster) {
				c.create("t", [][]int32{{1, 2}}, side+".replication.throttled.replicas", "*")
				for range 100 {
					c.members[1].produce("t", strings.Repeat("v", 10_000))
				}
				c.throttle(side, "100000")
				c.move("t", 1, 2, 3)
				began := time.Now()
				c.await("filled", func() bool { return len(c.partition("t", 0).ISR) == 3 })
				require.Greater(t, time.Since(began), 8*time.Second, "a second's worth may come at once")
				require.Less(t, time.Since(began), 13*time.Second)
				began = time.Now()
				for range 20 {
					c.members[1].produce("t", strings.Repeat("v", 10_000))
				}
				require.Less(t, time.Since(began), time.Second, "who is in sync is not throttled")
			})
		})
	}
}

// A broker that closes leaves nobody waiting: not those who wait for others, not its own loops.
func TestCloseWithUnfinishedRequests(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		leader := c.members[1]
		leader.produce("t", "a")
		c.members[2].cut.Store(true)
		c.members[3].cut.Store(true)
		produced := make(chan int16, 1)
		fetched := make(chan int16, 1)
		go func() { produced <- leader.send("t", -1, time.Hour, "b").ErrorCode }()
		go func() {
			req := leader.fetchRequest("t", 1, "")
			req.MaxWaitMillis = 3_600_000
			resp, err := req.RequestWith(t.Context(), leader.broker)
			if err == nil {
				fetched <- resp.Topics[0].Partitions[0].ErrorCode
			}
			close(fetched)
		}()
		time.Sleep(time.Second)
		began := time.Now()
		leader.stop()
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.Equal(t, "REQUEST_TIMED_OUT", name(<-produced))
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(<-fetched))
		c.members[2].heal()
		c.members[3].heal()
	})
}

func TestDescribeQuorum(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three())
		c.members[1].produce("t", "a", "b")
		time.Sleep(time.Second)
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Version = 2
		req.Topics = []kmsg.DescribeQuorumRequestTopic{{
			Topic: "t", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}, {Partition: 7}},
		}}
		resp, err := req.RequestWith(t.Context(), c.members[1].broker)
		require.NoError(t, err)
		p := resp.Topics[0].Partitions[0]
		require.Equal(t, int64(2), p.HighWatermark)
		require.Len(t, p.CurrentVoters, 3)
		for _, v := range p.CurrentVoters {
			require.Equal(t, int64(2), v.LogEndOffset)
			require.InDelta(t, time.Now().UnixMilli(), v.LastFetchTimestamp, 1000)
			start, ok := ktag.ReplicaLogStart(&v.UnknownTags)
			require.True(t, ok)
			require.Zero(t, start)
		}
		require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(resp.Topics[0].Partitions[1].ErrorCode))
		resp, err = req.RequestWith(t.Context(), c.members[2].broker)
		require.NoError(t, err)
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(resp.Topics[0].Partitions[0].ErrorCode))
		require.Equal(t, int32(1), resp.Topics[0].Partitions[0].LeaderID)
	})
}

// Clients are not sent to brokers that are out of service.
func TestMetadataOfAFencedBroker(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three())
		c.create("alone", [][]int32{{3}})
		c.control.set(func(f *fakeController) { f.fencing = false })
		c.fence(3)
		req := kmsg.NewPtrMetadataRequest()
		resp, err := req.RequestWith(t.Context(), c.members[1].broker)
		require.NoError(t, err)
		require.Len(t, resp.Brokers, 2)
		for _, topic := range resp.Topics {
			p := topic.Partitions[0]
			require.Equal(t, []int32{3}, p.OfflineReplicas)
			if *topic.Topic == "alone" {
				require.Equal(t, "LEADER_NOT_AVAILABLE", name(p.ErrorCode))
				require.Equal(t, int32(-1), p.Leader)
			}
		}
		describe := kmsg.NewPtrDescribeClusterRequest()
		cluster, err := describe.RequestWith(t.Context(), c.members[1].broker)
		require.NoError(t, err)
		require.Len(t, cluster.Brokers, 2)
		describe.IncludeFencedBrokers = true
		cluster, err = describe.RequestWith(t.Context(), c.members[1].broker)
		require.NoError(t, err)
		require.Len(t, cluster.Brokers, 3)
		require.True(t, cluster.Brokers[2].IsFenced)
	})
}
