package controller_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/controller"
	"millrace/server/metadata"
	"millrace/server/quorum"
)

const quorumBusy = busyError("busy")

// busyError is quorum.ErrBusy with a text of its own.
type busyError string

func (e busyError) Error() string { return string(e) }
func (busyError) Unwrap() error   { return quorum.ErrBusy }

// wish is an ISR that a leader wants, by compare-and-set on the present epochs.
func (c *cluster) wish(topic string, partition int, isr ...int32) kmsg.AlterPartitionRequestTopicPartition {
	now := c.partition(topic, partition)
	p := kmsg.NewAlterPartitionRequestTopicPartition()
	p.Partition, p.LeaderEpoch, p.PartitionEpoch = int32(partition), now.LeaderEpoch, now.PartitionEpoch
	for _, id := range isr {
		m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		m.BrokerID, m.BrokerEpoch = id, c.machine.Image().BrokerEpoch(id)
		p.NewEpochISR = append(p.NewEpochISR, m)
	}
	return p
}

// alterPartitions is a request of a broker for partitions of one topic.
func (c *cluster) alterPartitions(
	sender int32, topic string, partitions ...kmsg.AlterPartitionRequestTopicPartition,
) *kmsg.AlterPartitionRequest {
	r := kmsg.NewPtrAlterPartitionRequest()
	r.BrokerID, r.BrokerEpoch = sender, c.machine.Image().BrokerEpoch(sender)
	t := kmsg.NewAlterPartitionRequestTopic()
	if existing := c.machine.Image().Topic(topic); existing != nil {
		t.TopicID = existing.ID
	}
	t.Topic, t.Partitions = topic, partitions
	r.Topics = append(r.Topics, t)
	return r
}

func (c *cluster) sendAlter(t testing.TB, r *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse {
	t.Helper()
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	return resp
}

func TestISRShrinksAndGrows(t *testing.T) {
	c := started(t, 3, controller.Config{})
	c.mustCreate(t, assigned("t", []int32{0, 1, 2, 3}))
	shrink := c.alterPartitions(1, "t", c.wish("t", 0, 1, 2))
	resp := c.sendAlter(t, shrink)
	require.Zero(t, resp.ErrorCode)
	require.Equal(t, c.machine.Image().Index, appliedIndex(t, &resp.UnknownTags))
	require.Equal(t, shrink.Topics[0].TopicID, resp.Topics[0].TopidID)
	got := resp.Topics[0].Partitions[0]
	require.Zero(t, got.ErrorCode)
	require.Equal(t, []int32{1, 2}, slices.Sorted(slices.Values(got.ISR)))
	require.Equal(t, int32(1), got.LeaderID)
	require.Equal(t, int32(0), got.LeaderEpoch, "a smaller ISR is no reason for a new leader epoch")
	require.Equal(t, int32(1), got.PartitionEpoch)

	image := c.machine.Image()
	again := c.sendAlter(t, shrink).Topics[0].Partitions[0]
	require.Zero(t, again.ErrorCode, "the answer was lost and is asked for again")
	require.Equal(t, got.PartitionEpoch, again.PartitionEpoch)
	require.Same(t, image, c.machine.Image())

	grown := c.sendAlter(t, c.alterPartitions(1, "t", c.wish("t", 0, 1, 2, 3))).Topics[0].Partitions[0]
	require.Zero(t, grown.ErrorCode)
	require.Len(t, grown.ISR, 3)
}

func TestAlterPartitionAnswersEachPartition(t *testing.T) {
	c := started(t, 4, controller.Config{})
	topic := assigned("t")
	for i := range int32(9) {
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, assigned("", []int32{i, 1, 2, 3}).ReplicaAssignment...)
	}
	topic.ReplicaAssignment[1].Replicas = []int32{2, 1, 3}
	c.mustCreate(t, topic)
	fence := c.heartbeat(3)
	fence.WantFence = true
	c.send(t, fence)
	c.sendAlter(t, c.alterPartitions(1, "t", c.wish("t", 7, 1)))

	want := map[int32]int16{
		0: 0, 1: kerr.InvalidRequest.Code, 2: kerr.NotController.Code, 3: kerr.NotController.Code,
		4: kerr.InvalidUpdateVersion.Code, 5: kerr.InvalidRequest.Code, 6: kerr.IneligibleReplica.Code,
		7: kerr.IneligibleReplica.Code, 8: kerr.InvalidRequest.Code, 77: kerr.UnknownTopicOrPartition.Code,
	}
	wishes := []kmsg.AlterPartitionRequestTopicPartition{
		c.wish("t", 0, 1), c.wish("t", 1, 1), c.wish("t", 2, 1), c.wish("t", 3, 1), c.wish("t", 4, 1),
		c.wish("t", 5, 1, 4), c.wish("t", 6, 1, 2, 3), c.wish("t", 7, 1, 2), c.wish("t", 8, 2), c.wish("t", 0, 1),
	}
	wishes[2].LeaderEpoch++    // it knows more than this controller
	wishes[3].PartitionEpoch++ // so does this
	wishes[4].PartitionEpoch-- // another change came before
	wishes[7].NewEpochISR[1].BrokerEpoch--
	wishes[9].Partition = 77
	before := c.quorum.proposals.Load()
	resp := c.sendAlter(t, c.alterPartitions(1, "t", wishes...))
	require.Zero(t, resp.ErrorCode)
	require.Equal(t, before+1, c.quorum.proposals.Load())
	for _, p := range resp.Topics[0].Partitions {
		require.Equal(t, want[p.Partition], p.ErrorCode, "partition %d", p.Partition)
		if text, ok := ktag.ErrorMessage(&p.UnknownTags); p.ErrorCode != 0 {
			require.True(t, ok)
			require.NotEmpty(t, text)
		}
	}
	require.Equal(t, []int32{1}, c.partition("t", 0).ISR)
	require.Equal(t, []int32{1}, c.partition("t", 7).ISR)
}

func TestAlterPartitionIsRefusedAsAWhole(t *testing.T) {
	c := started(t, 2, controller.Config{Limits: metadata.Limits{Topics: 1, Partitions: 2, TopicPartitions: 2}})
	c.mustCreate(t, assigned("t", []int32{0, 1, 2}, []int32{1, 1, 2}))
	stale := c.alterPartitions(1, "t", c.wish("t", 0, 1))
	stale.BrokerEpoch--
	require.Equal(t, kerr.StaleBrokerEpoch.Code, c.sendAlter(t, stale).ErrorCode)

	large := c.alterPartitions(1, "t", c.wish("t", 0, 1), c.wish("t", 1, 1), c.wish("t", 1, 1))
	require.Equal(t, kerr.InvalidRequest.Code, c.sendAlter(t, large).ErrorCode)

	c.quorum.beforeNext(func() { // it registers anew while this is agreed on
		again := registration(1)
		again.IncarnationID[1]++
		c.register(t, again)
	})
	require.Equal(t, kerr.StaleBrokerEpoch.Code, c.sendAlter(t, c.alterPartitions(1, "t", c.wish("t", 0, 1))).ErrorCode)

	c.beat(t, 1)
	fine := c.alterPartitions(2, "t", c.wish("t", 0, 2))
	fine.Topics[0].Partitions[0].NewEpochISR = c.wish("t", 0, 2, 1).NewEpochISR
	c.quorum.failWith(quorumBusy)
	resp := c.sendAlter(t, fine)
	require.Equal(t, kerr.ThrottlingQuotaExceeded.Code, resp.ErrorCode)
	require.Empty(t, resp.Topics)
	c.quorum.failWith(nil)
	c.quorum.follower.Store(true)
	require.Equal(t, kerr.NotController.Code, c.sendAlter(t, fine).ErrorCode)
}

// resign moves the leadership of one partition away from a broker, which then returns to the ISR.
func (c *cluster) resign(t testing.TB, sender int32, topic string, partition int) {
	t.Helper()
	give := c.wish(topic, partition)
	ktag.SetResign(&give.UnknownTags)
	c.sendAlter(t, c.alterPartitions(sender, topic, give))
	p := c.partition(topic, partition)
	require.NotEqual(t, sender, p.Leader)
	back := c.wish(topic, partition, append(inSync(p), sender)...)
	require.Zero(t, c.sendAlter(t, c.alterPartitions(p.Leader, topic, back)).Topics[0].Partitions[0].ErrorCode)
}

func TestResign(t *testing.T) {
	c := started(t, 2, controller.Config{})
	c.mustCreate(t, assigned("both", []int32{0, 1, 2}))
	c.mustCreate(t, assigned("alone", []int32{0, 1}))
	give := c.wish("both", 0)
	ktag.SetResign(&give.UnknownTags)
	keep := c.wish("alone", 0)
	ktag.SetResign(&keep.UnknownTags)
	r := c.alterPartitions(1, "both", give)
	r.Topics = append(r.Topics, c.alterPartitions(1, "alone", keep).Topics...)
	resp := c.sendAlter(t, r)
	require.Contains(t, []int16{0, kerr.NewLeaderElected.Code}, resp.Topics[0].Partitions[0].ErrorCode)
	require.Equal(t, int32(2), c.partition("both", 0).Leader)
	require.Equal(t, []int32{2}, c.partition("both", 0).ISR)
	require.Equal(t, kerr.EligibleLeadersNotAvailable.Code, resp.Topics[1].Partitions[0].ErrorCode)
	require.Equal(t, int32(1), c.partition("alone", 0).Leader)
}
