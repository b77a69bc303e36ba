package broker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
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

// describeProducers is the error with which a member tells of the producers of partition 0.
func (m *member) describeProducers(topic string) string {
	req := kmsg.NewPtrDescribeProducersRequest()
	of := kmsg.NewDescribeProducersRequestTopic()
	of.Topic, of.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, of)
	resp, err := req.RequestWith(m.c.t.Context(), m.broker)
	require.NoError(m.c.t, err)
	return name(resp.Topics[0].Partitions[0].ErrorCode)
}
