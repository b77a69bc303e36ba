package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// plantGroups writes the records of groups with members, and has the partition read anew. All have committed an offset
// of the topics t and u.
func plantGroups(l *lab) {
	l.createTopic("u", 1)
	for _, g := range []string{"stable", "connect", "garbled", "heartbeat", "left", "plain"} {
		l.commit(g, "t", 1)
		l.commit(g, "u", 1)
	}
	l.inspect("any", func(s *shard) {
		of := kmsg.NewConsumerMemberMetadata()
		of.Topics = []string{"t"}
		require.NoError(l.t, s.run.Append(
			classicRecord("stable", typeConsumer, of.AppendTo(nil)),
			classicRecord("connect", "connect", of.AppendTo(nil)),
			classicRecord("garbled", typeConsumer, []byte{0, 1, 0, 0, 0, 9}),
			coordinator.KV{Key: groupKey(kindGroupMetadata, "left"), Value: encodeGroupMetadata(&groupMetadata{
				ProtocolType: typeConsumer, Generation: 3, CurrentStateTimestamp: s.millis() + time.Hour.Milliseconds(),
			})},
			coordinator.KV{Key: groupKey(kindConsumerGroup, "heartbeat"),
				Value: encodeConsumerGroup(&consumerGroupMetadata{epoch: 1})},
			coordinator.KV{Key: memberKey(kindMember, "heartbeat", "m"), Value: encodeMember(&memberMetadata{
				topics: []string{"t"}, rebalanceTimeoutMs: 300_000,
			})},
			coordinator.KV{Key: memberKey(kindTargetMember, "heartbeat", "m"), Value: encodeTargetMember(&targetMember{})},
			coordinator.KV{Key: groupKey(kindTargetMetadata, "heartbeat"),
				Value: encodeTargetMetadata(&targetMetadata{assignmentEpoch: 1})},
			coordinator.KV{Key: memberKey(kindCurrentMember, "heartbeat", "m"),
				Value: encodeCurrentMember(&currentMember{memberEpoch: 1})},
		))
	})
	l.again()
}

// classicRecord is a stable group of one member.
func classicRecord(id, protocolType string, subscription []byte) coordinator.KV {
	return coordinator.KV{Key: groupKey(kindGroupMetadata, id), Value: encodeGroupMetadata(&groupMetadata{
		ProtocolType: protocolType, Generation: 2, Protocol: ptr("range"), Leader: ptr("m"),
		Members: []kmsg.GroupMetadataValueMember{{
			MemberID: "m", ClientID: "c", ClientHost: "h", RebalanceTimeoutMillis: 300_000, SessionTimeoutMillis: 45_000,
			Subscription: subscription, Assignment: []byte{},
		}},
	})}
}

// What members are subscribed to does not expire, nor anything of groups of which that is not known.
func TestExpiryRules(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		plantGroups(l)
		week := 7 * 24 * time.Hour
		for name, c := range map[string]struct {
			after time.Duration
			want  map[string][2]bool // of the topics t and u
		}{
			"young": {week - time.Second, map[string][2]bool{
				"stable": {}, "connect": {}, "garbled": {}, "heartbeat": {}, "left": {}, "plain": {}}},
			"old": {week, map[string][2]bool{
				"stable": {false, true}, "connect": {}, "garbled": {}, "heartbeat": {false, true}, "left": {},
				"plain": {true, true}}},
			"old since it was left": {week + time.Hour, map[string][2]bool{"left": {true, true}}},
		} {
			l.inspect("any", func(s *shard) {
				e := expiry{now: s.millis() + c.after.Milliseconds(), retention: week.Milliseconds(), image: s.image}
				for id, want := range c.want {
					g := s.groups[id]
					require.Equal(t, want, [2]bool{
						e.doomed(g, "t", 0, g.offset("t", 0)), e.doomed(g, "u", 0, g.offset("u", 0)),
					}, "%s, %s", id, name)
				}
			})
		}
	})
}

// Groups with members are not deleted, and keep what the members may read by.
func TestGroupsWithMembersAreKept(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		plantGroups(l)
		for id, want := range map[string]struct{ t, u, whole *kerr.Error }{
			"stable":    {t: kerr.GroupSubscribedToTopic},
			"heartbeat": {t: kerr.GroupSubscribedToTopic},
			"connect":   {whole: kerr.NonEmptyGroup},
			"garbled":   {whole: kerr.NonEmptyGroup},
		} {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Groups = []string{id}
			require.Equal(t, kerr.NonEmptyGroup.Code, ask[*kmsg.DeleteGroupsResponse](l, id, req).Groups[0].ErrorCode, id)
			refused := ask[*kmsg.OffsetCommitResponse](l, id, commitTo(id, "t", 9))
			require.Equal(t, kerr.UnknownMemberID.Code, refused.Topics[0].Partitions[0].ErrorCode, id)

			forget := kmsg.NewPtrOffsetDeleteRequest()
			forget.Group = id
			for _, topic := range []string{"t", "u"} {
				in := kmsg.NewOffsetDeleteRequestTopic()
				in.Topic, in.Partitions = topic, []kmsg.OffsetDeleteRequestTopicPartition{{}}
				forget.Topics = append(forget.Topics, in)
			}
			resp := ask[*kmsg.OffsetDeleteResponse](l, id, forget)
			require.Equal(t, codeOf(want.whole), resp.ErrorCode, id)
			if want.whole == nil {
				require.Equal(t, codeOf(want.t), resp.Topics[0].Partitions[0].ErrorCode, id)
				require.Equal(t, codeOf(want.u), resp.Topics[1].Partitions[0].ErrorCode, id)
				require.EqualValues(t, -1, l.committed(id, "u", 0), id)
			}
			require.EqualValues(t, 1, l.committed(id, "t", 0), id)
		}
		list := ask[*kmsg.ListGroupsResponse](l, "any", kmsg.NewPtrListGroupsRequest()).Groups
		got := map[string][3]string{}
		for _, g := range list {
			got[g.Group] = [3]string{g.GroupType, g.GroupState, g.ProtocolType}
		}
		require.Equal(t, map[string][3]string{
			"stable": {"classic", "Stable", "consumer"}, "connect": {"classic", "Stable", "connect"},
			"garbled": {"classic", "Stable", "consumer"}, "left": {"classic", "Empty", "consumer"},
			"plain": {"classic", "Empty", ""}, "heartbeat": {"consumer", got["heartbeat"][1], "consumer"},
		}, got)
		require.NotEqual(t, stateEmpty, got["heartbeat"][1])
	})
}
