package broker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteBelow deletes the records of partition 0 below an offset, and tells the answer.
func (m *member) deleteBelow(topic string, offset int64, limit time.Duration) (low int64, code string) {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = int32(limit.Milliseconds())
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{
		Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: offset}},
	}}
	resp, err := req.RequestWith(m.c.t.Context(), m.broker)
	require.NoError(m.c.t, err)
	p := resp.Topics[0].Partitions[0]
	return p.LowWatermark, name(p.ErrorCode)
}

// starts are where the logs of partition 0 begin, by member.
func (c *cluster) starts() (out []int64) {
	for id := int32(1); id <= int32(len(c.members)); id++ {
		for _, p := range c.members[id].broker.Probe() {
			out = append(out, p.LogStart)
		}
	}
	return out
}

// What is deleted is deleted on the disks of all replicas that may lead when the client hears of it, and that takes no
// timer.
func TestDeletedRecordsStayDeleted(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		c.members[1].produce("t", strings.Split("abcdefghij", "")...)
		for offset := int64(3); offset < 9; offset += 3 {
			time.Sleep(time.Second) // the followers' fetches wait
			began := time.Now()
			low, code := c.members[1].deleteBelow("t", offset, time.Minute)
			require.Equal(t, "NONE", code)
			require.Equal(t, offset, low)
			require.Less(t, time.Since(began), 20*time.Millisecond)
			for _, m := range c.members {
				m.crash()
			}
			for id := int32(1); id <= 3; id++ {
				c.members[id].start()
			}
			require.Equal(t, []int64{offset, offset, offset}, c.starts())
			c.await("all in sync", func() bool { return len(c.partition("t", 0).ISR) == 3 })
			for led := c.partition("t", 0).Leader; led != 1; led = c.partition("t", 0).Leader {
				c.fence(led)
				c.await("all in sync", func() bool { return len(c.partition("t", 0).ISR) == 3 })
			}
		}
	})
}

// A replica in sync that does not answer is waited for as long as the request allows, and no longer than it is in sync.
func TestDeleteRecordsWaitsForReplicasInSync(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three())
		c.members[1].produce("t", "a", "b", "c", "d")
		c.members[3].cut.Store(true)
		began := time.Now()
		low, code := c.members[1].deleteBelow("t", 2, 3*time.Second)
		require.Equal(t, "REQUEST_TIMED_OUT", code)
		require.Equal(t, int64(-1), low)
		require.Equal(t, 3*time.Second, time.Since(began))
		_, p := c.members[1].read("t", 1, "")
		require.Equal(t, "OFFSET_OUT_OF_RANGE", name(p.ErrorCode), "it is deleted all the same")

		_, code = c.members[1].deleteBelow("t", 9, time.Minute)
		require.Equal(t, "OFFSET_OUT_OF_RANGE", code)
		answered := make(chan string, 1)
		go func() {
			_, code := c.members[1].deleteBelow("t", 2, time.Minute)
			answered <- code
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, answered)
		c.fence(3)
		require.Equal(t, "NONE", <-answered)

		// It is not in sync again before it has deleted them too.
		c.members[3].heal()
		c.await("all in sync", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		require.Equal(t, []int64{2, 2, 2}, c.starts())
	})
}

// A leader that was replaced does not say that records are deleted.
func TestDeleteRecordsAtReplacedLeader(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		old := c.members[1]
		old.produce("t", "a", "b", "c", "d")
		old.cut.Store(true)
		answered := make(chan string, 1)
		go func() {
			_, code := old.deleteBelow("t", 2, time.Minute)
			answered <- code
		}()
		c.fence(1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Empty(t, answered)
		old.heal()
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", <-answered)
		low, code := c.members[2].deleteBelow("t", 3, time.Minute)
		require.Equal(t, "NONE", code)
		require.Equal(t, int64(3), low)
	})
}
