package ktag_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

func TestMemberTagsSurviveEncoding(t *testing.T) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.SetVersion(1)
	_, ok := ktag.MemberState(&req.UnknownTags)
	require.False(t, ok)
	ktag.SetMemberState(&req.UnknownTags, []byte("state"))
	ktag.SetSessionTimeout(&req.UnknownTags, math.MaxInt32)
	ktag.SetHeartbeatWait(&req.UnknownTags, -1)

	got := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	got.SetVersion(1)
	require.NoError(t, got.ReadFrom(req.AppendTo(nil)))
	state, ok := ktag.MemberState(&got.UnknownTags)
	require.True(t, ok)
	require.Equal(t, []byte("state"), state)
	session, ok := ktag.SessionTimeout(&got.UnknownTags)
	require.True(t, ok)
	require.Equal(t, int32(math.MaxInt32), session)
	wait, ok := ktag.HeartbeatWait(&got.UnknownTags)
	require.True(t, ok)
	require.Equal(t, int32(-1), wait)
}

func TestCommitTagsSurviveEncoding(t *testing.T) {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.SetVersion(5)
	require.False(t, ktag.Held(&req.UnknownTags))
	topic, part := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	_, ok := ktag.CommitFrom(&part.UnknownTags)
	require.False(t, ok)
	ktag.SetCommitFrom(&part.UnknownTags, -1)
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	ktag.SetHeld(&req.UnknownTags)

	got := kmsg.NewPtrTxnOffsetCommitRequest()
	got.SetVersion(5)
	require.NoError(t, got.ReadFrom(req.AppendTo(nil)))
	require.True(t, ktag.Held(&got.UnknownTags))
	from, ok := ktag.CommitFrom(&got.Topics[0].Partitions[0].UnknownTags)
	require.True(t, ok)
	require.Equal(t, int64(-1), from)
}

func TestMalformedMemberTags(t *testing.T) {
	var tags kmsg.Tags
	tags.Set(10101, []byte{1, 2, 3})
	tags.Set(10102, nil)
	_, ok := ktag.SessionTimeout(&tags)
	require.False(t, ok)
	_, ok = ktag.HeartbeatWait(&tags)
	require.False(t, ok)
}
