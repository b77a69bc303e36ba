package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
)

// restoreGroups makes the groups that the examples name: reports without members, which is at the end of `orders`, and
// audit, which is two records behind and whose one member is worker-1.
func (g *rig) restoreGroups(t *testing.T) {
	t.Helper()
	c := client.New(g.node.Requestor(), client.Options{})
	commit := client.GroupCommit{Group: "reports", Epoch: -1, Offsets: []client.CommittedOffset{{
		TopicPartition: client.TopicPartition{Topic: "orders"}, Offset: 4, LeaderEpoch: -1,
	}}}
	g.commit(t, c, commit)
	commit.Group, commit.Member, commit.Epoch = "audit", "worker-1", g.join(t, "audit", "worker-1")
	commit.Offsets[0].Offset = 2
	g.commit(t, c, commit)
}

func (g *rig) commit(t *testing.T, c *client.Client, commit client.GroupCommit) {
	t.Helper()
	errs, err := c.CommitOffsets(t.Context(), commit)
	require.NoError(t, err)
	require.NoError(t, errs[0])
}

// join makes a member of a group that reads orders, and returns its epoch. It stays longer than the tests take.
func (g *rig) join(t *testing.T, group, member string) (epoch int32) {
	t.Helper()
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis = group, member, 60_000
	beat.SubscribedTopicNames = []string{"orders"}
	beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	ktag.SetSessionTimeout(&beat.UnknownTags, int32((30 * time.Minute).Milliseconds()))
	ktag.SetClient(&beat.UnknownTags, "billing-service", "/10.0.0.7")
	await(t, "the member has its partition", func() bool {
		resp, err := beat.RequestWith(t.Context(), g.node.Requestor())
		require.NoError(t, err)
		require.Zero(t, resp.ErrorCode, "%v", resp.ErrorMessage)
		beat = kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Group, beat.MemberID, beat.MemberEpoch, beat.RebalanceTimeoutMillis = group, member, resp.MemberEpoch, -1
		return resp.Assignment != nil && len(resp.Assignment.Topics) == 1
	})
	return beat.MemberEpoch
}
