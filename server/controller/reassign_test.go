package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/controller"
)

// move is where a partition shall be; no replicas cancels that.
type move struct {
	topic     string
	partition int32
	replicas  []int32
}

func reassign(moves ...move) *kmsg.AlterPartitionAssignmentsRequest {
	r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	for _, m := range moves {
		t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		t.Topic = m.topic
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Partition, p.Replicas = m.partition, m.replicas
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
	}
	return r
}

// reassignCodes sends a request and returns the code of each partition.
func reassignCodes(t testing.TB, to kmsg.Requestor, r *kmsg.AlterPartitionAssignmentsRequest) (codes []int16) {
	t.Helper()
	resp, err := r.RequestWith(t.Context(), to)
	require.NoError(t, err)
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			codes = append(codes, p.ErrorCode)
			require.Equal(t, p.ErrorCode != 0, p.ErrorMessage != nil)
		}
	}
	return codes
}

func listReassignments(
	t testing.TB, to kmsg.Requestor, topics []kmsg.ListPartitionReassignmentsRequestTopic,
) *kmsg.ListPartitionReassignmentsResponse {
	t.Helper()
	r := kmsg.NewPtrListPartitionReassignmentsRequest()
	r.Topics = topics
	resp, err := r.RequestWith(t.Context(), to)
	require.NoError(t, err)
	return resp
}

func TestReassignment(t *testing.T) {
	c := started(t, 4, controller.Config{})
	c.mustCreate(t, assigned("t", []int32{0, 1, 2}, []int32{1, 1, 2}))
	resp, err := reassign(move{"t", 0, []int32{3, 2}}).RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Zero(t, resp.ErrorCode)
	require.Equal(t, c.machine.Image().Index, appliedIndex(t, &resp.UnknownTags))

	listed := listReassignments(t, c, nil)
	require.Equal(t, c.machine.Image().Index, appliedIndex(t, &listed.UnknownTags))
	require.Len(t, listed.Topics, 1)
	require.Len(t, listed.Topics[0].Partitions, 1)
	p := listed.Topics[0].Partitions[0]
	require.Equal(t, []int32{3, 2, 1}, p.Replicas)
	require.Equal(t, []int32{3}, p.AddingReplicas)
	require.Equal(t, []int32{1}, p.RemovingReplicas)

	// The leader takes the new replica into the ISR, which completes the move and ends its leadership.
	got := c.sendAlter(t, c.alterPartitions(1, "t", c.wish("t", 0, 1, 2, 3))).Topics[0].Partitions[0]
	require.Equal(t, kerr.NewLeaderElected.Code, got.ErrorCode)
	now := c.partition("t", 0)
	require.Equal(t, []int32{3, 2}, now.Replicas, "the change was made although the answer has an error code")
	require.Equal(t, int32(3), now.Leader)
	require.Equal(t, int32(1), now.LeaderEpoch)
	require.Empty(t, listReassignments(t, c, nil).Topics)
}

func TestReassignmentIsCancelled(t *testing.T) {
	c := started(t, 3, controller.Config{})
	c.mustCreate(t, assigned("t", []int32{0, 1, 2}))
	require.Equal(t, []int16{kerr.NoReassignmentInProgress.Code}, reassignCodes(t, c, reassign(move{"t", 0, nil})))
	require.Equal(t, []int16{0}, reassignCodes(t, c, reassign(move{"t", 0, []int32{3, 2}})))
	require.Equal(t, []int16{0}, reassignCodes(t, c, reassign(move{"t", 0, nil})))
	require.ElementsMatch(t, []int32{1, 2}, c.partition("t", 0).Replicas)
}

func TestReassignmentIsRefused(t *testing.T) {
	c := started(t, 3, controller.Config{})
	c.mustCreate(t, assigned("t", []int32{0, 1, 2}, []int32{1, 1, 2}))
	codes := reassignCodes(t, c, reassign(
		move{"t", 0, []int32{2, 9}}, move{"t", 1, []int32{}}, move{"t", 7, []int32{1}}, move{"none", 0, []int32{1}},
	))
	require.Equal(t, []int16{
		kerr.InvalidReplicaAssignment.Code, kerr.InvalidReplicaAssignment.Code,
		kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicOrPartition.Code,
	}, codes)
	twice := reassignCodes(t, c, reassign(move{"t", 0, []int32{2, 3}}, move{"t", 0, []int32{3, 2}}))
	require.Equal(t, []int16{kerr.InvalidRequest.Code, kerr.InvalidRequest.Code}, twice)
	fewer := reassign(move{"t", 0, []int32{2}})
	fewer.AllowReplicationFactorChange = false
	require.NotContains(t, reassignCodes(t, c, fewer), int16(0))
	require.Equal(t, []int32{1, 2}, c.partition("t", 0).Replicas)

	c.quorum.follower.Store(true)
	resp, err := reassign(move{"t", 0, []int32{2, 3}}).RequestWith(t.Context(), c)
	require.NoError(t, err)
	requireCode(t, kerr.NotController, resp.ErrorCode, resp.ErrorMessage)
	listed := listReassignments(t, c, nil)
	requireCode(t, kerr.NotController, listed.ErrorCode, listed.ErrorMessage)
}

func TestListOnlyWhatIsAskedFor(t *testing.T) {
	c := started(t, 3, controller.Config{})
	c.mustCreate(t, assigned("a", []int32{0, 1, 2}, []int32{1, 1, 2}))
	c.mustCreate(t, assigned("b", []int32{0, 1, 2}))
	require.Equal(t, []int16{0, 0, 0}, reassignCodes(t, c, reassign(
		move{"a", 0, []int32{3, 2}}, move{"a", 1, []int32{3, 2}}, move{"b", 0, []int32{3, 2}},
	)))
	ask := func(topic string, partitions ...int32) kmsg.ListPartitionReassignmentsRequestTopic {
		t := kmsg.NewListPartitionReassignmentsRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		return t
	}
	listed := listReassignments(t, c, []kmsg.ListPartitionReassignmentsRequestTopic{
		ask("a", 1, 5), ask("none", 0), ask("a", 0, 1),
	})
	require.Len(t, listed.Topics, 1)
	require.Len(t, listed.Topics[0].Partitions, 2)
	require.Empty(t, listReassignments(t, c, []kmsg.ListPartitionReassignmentsRequestTopic{}).Topics)
	require.Len(t, listReassignments(t, c, nil).Topics, 2)
}
