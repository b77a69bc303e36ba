package controller_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/controller"
)

// wire is a controller on another node: each message is encoded and decoded on its way.
type wire struct{ to kmsg.Requestor }

func (w wire) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	version := r.MaxVersion()
	r.SetVersion(version)
	arrived := kmsg.RequestForKey(r.Key())
	arrived.SetVersion(version)
	if err := arrived.ReadFrom(r.AppendTo(nil)); err != nil {
		return nil, err
	}
	answer, err := w.to.Request(ctx, arrived)
	if err != nil {
		return nil, err
	}
	resp := kmsg.ResponseForKey(r.Key())
	resp.SetVersion(version)
	answer.SetVersion(version)
	return resp, resp.ReadFrom(answer.AppendTo(nil))
}

// TestOverTheWire checks that nothing that matters is lost between nodes.
func TestOverTheWire(t *testing.T) {
	c := started(t, 3, controller.Config{})
	w := wire{c}
	c.mustCreate(t, assigned("t", []int32{0, 1, 2}, []int32{1, 1, 2}))

	refused, err := another(2).RequestWith(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, int16(101), refused.ErrorCode)
	text, ok := ktag.ErrorMessage(&refused.UnknownTags)
	require.True(t, ok)
	require.Contains(t, text, "10.0.0.1:2")

	beat, err := c.heartbeat(3).RequestWith(t.Context(), w)
	require.NoError(t, err)
	require.False(t, beat.IsFenced)
	appliedIndex(t, &beat.UnknownTags)

	give := c.wish("t", 0)
	ktag.SetResign(&give.UnknownTags)
	altered, err := c.alterPartitions(1, "t", give, c.wish("t", 1, 1)).RequestWith(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, int32(2), c.partition("t", 0).Leader)
	require.Equal(t, []int32{1}, altered.Topics[0].Partitions[1].ISR)
	require.Equal(t, c.machine.Image().Index, appliedIndex(t, &altered.UnknownTags))

	require.Equal(t, []int16{0}, reassignCodes(t, w, reassign(move{"t", 1, []int32{3, 1}})))
	require.Len(t, listReassignments(t, w, nil).Topics, 1)
	require.Equal(t, []int16{0}, reassignCodes(t, w, reassign(move{"t", 1, nil})), "null is not empty")
	require.Empty(t, listReassignments(t, w, []kmsg.ListPartitionReassignmentsRequestTopic{}).Topics)
	require.Equal(t, map[string]int16{"t/0": 80}, electCodes(t, w, electRequest(0, "")))
}

func BenchmarkHeartbeat(b *testing.B) {
	c := started(b, 50, controller.Config{})
	c.mustCreate(b, newTopic("t", 10_000, 3))
	r := c.heartbeat(7)
	for b.Loop() {
		c.send(b, r)
	}
}

func BenchmarkAlterPartition(b *testing.B) {
	c := started(b, 3, controller.Config{})
	c.mustCreate(b, newTopic("t", 1_000, 3))
	leader := c.partition("t", 0).Leader
	for b.Loop() {
		c.sendAlter(b, c.alterPartitions(leader, "t", c.wish("t", 0, leader)))
		c.sendAlter(b, c.alterPartitions(leader, "t", c.wish("t", 0, 1, 2, 3)))
	}
}

// BenchmarkFencing takes a broker with a third of the leaderships out of service and back.
func BenchmarkFencing(b *testing.B) {
	c := started(b, 3, controller.Config{})
	for i := range 10 {
		c.mustCreate(b, newTopic("t"+string(rune('a'+i)), 1_000, 3))
	}
	fence := c.heartbeat(2)
	fence.WantFence = true
	for b.Loop() {
		c.send(b, fence)
		c.send(b, c.heartbeat(2))
	}
}
