package broker_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

// A leader that was replaced while it was cut off does not tell clients of the new one that they are wrong.
func TestReplacedLeaderDoesNotJudge(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		old := c.members[1]
		send := func(m *member, sequence int32) string {
			resp, err := m.produceRequest("t", -1, batch(1, 0, sequence, "v")).RequestWith(t.Context(), m.broker)
			require.NoError(t, err)
			p := &resp.Topics[0].Partitions[0]
			require.Equal(t, p.ErrorCode != 0 && name(p.ErrorCode) != "OUT_OF_ORDER_SEQUENCE_NUMBER",
				ktag.NotWritten(&p.UnknownTags))
			return name(p.ErrorCode)
		}
		require.Equal(t, "NONE", send(old, 0))
		require.Equal(t, "OUT_OF_ORDER_SEQUENCE_NUMBER", send(old, 3))
		_, p := old.read("t", 3, "")
		require.Equal(t, "OFFSET_OUT_OF_RANGE", name(p.ErrorCode))

		old.cut.Store(true)
		c.fence(1)
		time.Sleep(10 * time.Second) // more than broker.session.timeout.ms
		for sequence := range int32(3) {
			require.Equal(t, "NONE", send(c.members[2], sequence+1))
		}
		silent := func() {
			require.Equal(t, "NOT_LEADER_FOR_PARTITION", send(old, 4))
			_, p := old.read("t", 4, "")
			require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode))
			require.Equal(t, "NOT_LEADER_FOR_PARTITION", old.describeProducers("t"))
		}
		silent()
		old.cut.Store(false) // heartbeats are answered, and the metadata is not there yet
		c.await("broker 1 is active", func() bool { return !c.image().Broker(1).Fenced })
		time.Sleep(time.Second)
		synctest.Wait()
		silent()
		old.heal()
		require.Equal(t, "NONE", c.members[2].describeProducers("t"))
		require.Equal(t, "NONE", send(c.members[2], 4))
	})
}

// A leader whose leadership was moved on purpose, and that did not hear of it, does not judge clients either.
func TestMovedLeaderDoesNotJudge(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		old := c.members[1]
		old.produce("t", "a")
		time.Sleep(time.Second)
		require.Equal(t, "NONE", old.askProducers("t"))
		old.cut.Store(true)
		c.move("t", 2, 3)
		c.members[2].produce("t", "b", "c", "d")
		began := time.Now()
		_, p := old.read("t", 3, "")
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode))
		_, code := old.deleteBelow("t", 3, time.Minute)
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", code)
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", old.askProducers("t"))
		require.Less(t, time.Since(began), 4*time.Second, "each says so soon")
		_, p = c.members[2].read("t", 5, "")
		require.Equal(t, "OFFSET_OUT_OF_RANGE", name(p.ErrorCode))
		require.Equal(t, "NONE", c.members[2].askProducers("t"))
	})
}

// A replica may have deleted by itself what the leader still has: neither a leader that was replaced, nor a follower
// that consumers read from, says that such an offset lies outside the log.
func TestOnlyTheLeaderJudgesWhatIsDeleted(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		old := c.members[1]
		for _, v := range []string{"a", "b", "c"} {
			old.produce("t", v)
		}
		_, code := old.deleteBelow("t", 1, time.Minute)
		require.Equal(t, "NONE", code)
		_, p := old.read("t", 0, "")
		require.Equal(t, "OFFSET_OUT_OF_RANGE", name(p.ErrorCode))
		require.Equal(t, int64(1), p.LogStartOffset)
		_, p = c.members[2].read("t", 0, "any")
		require.Equal(t, "OFFSET_NOT_AVAILABLE", name(p.ErrorCode), "the leader knows")

		old.cut.Store(true)
		_, code = old.deleteBelow("t", 2, time.Second)
		require.Equal(t, "REQUEST_TIMED_OUT", code)
		c.move("t", 2, 3)
		got, p := c.members[2].read("t", 1, "")
		require.Zero(t, p.ErrorCode)
		require.Equal(t, []string{"b", "c"}, got)
		_, p = old.read("t", 1, "")
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode))
		old.heal()
	})
}

// However many clients are wrong at once, the controller is asked once at a time.
func TestDoubtsShareHeartbeats(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three())
		m := c.members[1]
		m.produce("t", "a")
		time.Sleep(time.Second)
		c.control.beatsOf(1)
		began := time.Now()
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				_, p := m.read("t", 7, "")
				require.Equal(t, "OFFSET_OUT_OF_RANGE", name(p.ErrorCode))
			})
		}
		wg.Wait()
		require.Less(t, time.Since(began), 60*time.Millisecond)
		beats := len(c.control.beatsOf(1))
		require.Positive(t, beats)
		require.Less(t, beats, 5)

		c.control.set(func(f *fakeController) { f.down = errors.New("no controller") })
		began = time.Now()
		_, p := m.read("t", 7, "")
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode))
		require.LessOrEqual(t, time.Since(began), time.Second)
		got, p := m.read("t", 0, "")
		require.Zero(t, p.ErrorCode)
		require.Equal(t, []string{"a"}, got)
	})
}

// Without a controller for long, a leader still judges where no other replica may lead.
func TestLoneLeaderJudges(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three())
		c.create("one", [][]int32{{1}})
		c.fence(2)
		c.fence(3)
		old := c.members[1]
		c.members[2].cut.Store(true)
		c.members[3].cut.Store(true)
		old.cut.Store(true)
		time.Sleep(time.Minute)
		for _, topic := range []string{"t", "one"} {
			_, p := old.read(topic, 3, "")
			require.Equal(t, "OFFSET_OUT_OF_RANGE", name(p.ErrorCode), topic)
			require.Equal(t, "NONE", old.describeProducers(topic))
		}
	})
}

// askProducers is describeProducers of who is about to conclude something from it.
func (m *member) askProducers(topic string) string {
	return m.tellProducers(topic, func(req *kmsg.DescribeProducersRequest) { ktag.SetCertain(&req.UnknownTags) })
}

// describeProducers is the error with which a member tells of the producers of partition 0.
func (m *member) describeProducers(topic string) string {
	return m.tellProducers(topic, func(*kmsg.DescribeProducersRequest) {})
}

func (m *member) tellProducers(topic string, change func(*kmsg.DescribeProducersRequest)) string {
	req := kmsg.NewPtrDescribeProducersRequest()
	of := kmsg.NewDescribeProducersRequestTopic()
	of.Topic, of.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, of)
	change(req)
	resp, err := req.RequestWith(m.c.t.Context(), m.broker)
	require.NoError(m.c.t, err)
	return name(resp.Topics[0].Partitions[0].ErrorCode)
}

// A leader takes nothing that was placed by another count of partitions than it knows, and does not tell of its
// producers by an old one where the asker is about to conclude something.
func TestLeaderChecksTheCountOfPartitions(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		m := c.members[1]
		send := func(count int32) *kmsg.ProduceResponseTopicPartition {
			req := m.produceRequest("t", -1, batch(1, 0, 0, "v"))
			ktag.SetPartitionCount(&req.Topics[0].Partitions[0].UnknownTags, count)
			resp, err := req.RequestWith(t.Context(), m.broker)
			require.NoError(t, err)
			return &resp.Topics[0].Partitions[0]
		}
		ask := func(count int32) string {
			return m.tellProducers("t", func(req *kmsg.DescribeProducersRequest) {
				ktag.SetCertain(&req.UnknownTags)
				ktag.SetPartitionCount(&req.Topics[0].UnknownTags, count)
			})
		}
		p := send(2)
		require.Equal(t, "LEADER_NOT_AVAILABLE", name(p.ErrorCode))
		require.True(t, ktag.NotWritten(&p.UnknownTags))
		count, ok := ktag.PartitionCount(&p.UnknownTags)
		require.True(t, ok)
		require.Equal(t, int32(1), count)
		require.Zero(t, send(1).ErrorCode)
		require.Equal(t, "NONE", ask(1))
		require.Equal(t, "LEADER_NOT_AVAILABLE", ask(2))

		m.cut.Store(true)
		c.propose(&metadata.CreatePartitions{Limits: metadata.DefaultLimits(), Topics: []metadata.MorePartitions{
			{Name: "t", Count: 2, Added: three()},
		}})
		m.cut.Store(false) // its heartbeats are answered, and the metadata is not there yet
		time.Sleep(time.Second)
		require.Equal(t, "NOT_LEADER_FOR_PARTITION", ask(1))
		m.heal()
		synctest.Wait()
		require.Equal(t, "LEADER_NOT_AVAILABLE", ask(1))
		require.Equal(t, "NONE", ask(2))
	})
}
