package ktag_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

func TestTagsSurviveEncoding(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	part := kmsg.NewProduceRequestTopicPartition()
	ktag.SetExpectedOffset(&part.UnknownTags, 1<<40)
	ktag.SetStrictSequence(&part.UnknownTags)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)

	got := kmsg.NewPtrProduceRequest()
	got.SetVersion(9)
	require.NoError(t, got.ReadFrom(req.AppendTo(nil)))
	tags := &got.Topics[0].Partitions[0].UnknownTags
	offset, ok := ktag.ExpectedOffset(tags)
	require.True(t, ok)
	require.Equal(t, int64(1<<40), offset)
	require.True(t, ktag.StrictSequence(tags))
	require.False(t, ktag.Duplicate(tags))
}

func TestEveryTag(t *testing.T) {
	var tags kmsg.Tags
	ktag.SetExpectedOffset(&tags, 1)
	ktag.SetStrictSequence(&tags)
	ktag.SetDuplicate(&tags)
	ktag.SetActualOffset(&tags, -2)
	ktag.SetExpectedSequence(&tags, math.MaxInt32)
	ktag.SetCurrentEpoch(&tags, math.MaxInt16)
	ktag.SetAppendTime(&tags, math.MaxInt64)
	ktag.SetProducerFilter(&tags, 9)
	ktag.SetNotWritten(&tags)
	ktag.SetFirstCount(&tags, 12)
	ktag.SetResumeOffset(&tags, 77)
	ktag.SetDataEpoch(&tags, 41)
	ktag.SetIntact(&tags)
	ktag.SetRefusedBrokers(&tags, []int32{3, math.MaxInt32})
	ktag.SetResign(&tags)
	ktag.SetAppliedIndex(&tags, 99)
	ktag.SetBroker(&tags, 2)
	ktag.SetErrorMessage(&tags, "broker 2 is alive")
	ktag.SetShuttingDown(&tags)
	ktag.SetReplicaLogStart(&tags, 17)
	ktag.SetCertain(&tags)
	ktag.SetPartitionCount(&tags, 6)
	require.Equal(t, 22, tags.Len(), "two tags share a number")
	requireClientTags(t, &tags)
	requireNodeTags(t, &tags)
}

// requireClientTags reads what TestEveryTag set of the tags between clients and brokers.
func requireClientTags(t *testing.T, tags *kmsg.Tags) {
	expected, ok := ktag.ExpectedOffset(tags)
	require.True(t, ok)
	require.Equal(t, int64(1), expected)
	actual, ok := ktag.ActualOffset(tags)
	require.True(t, ok)
	require.Equal(t, int64(-2), actual)
	sequence, ok := ktag.ExpectedSequence(tags)
	require.True(t, ok)
	require.Equal(t, int32(math.MaxInt32), sequence)
	epoch, ok := ktag.CurrentEpoch(tags)
	require.True(t, ok)
	require.Equal(t, int16(math.MaxInt16), epoch)
	at, ok := ktag.AppendTime(tags)
	require.True(t, ok)
	require.Equal(t, int64(math.MaxInt64), at)
	id, ok := ktag.ProducerFilter(tags)
	require.True(t, ok)
	require.Equal(t, int64(9), id)
	count, ok := ktag.FirstCount(tags)
	require.True(t, ok)
	require.Equal(t, int32(12), count)
	resume, ok := ktag.ResumeOffset(tags)
	require.True(t, ok)
	require.Equal(t, int64(77), resume)
	require.True(t, ktag.StrictSequence(tags))
	require.True(t, ktag.Duplicate(tags))
	require.True(t, ktag.NotWritten(tags))
	partitions, ok := ktag.PartitionCount(tags)
	require.True(t, ok)
	require.Equal(t, int32(6), partitions)
}

// requireNodeTags reads what TestEveryTag set of the tags among nodes.
func requireNodeTags(t *testing.T, tags *kmsg.Tags) {
	dataEpoch, ok := ktag.DataEpoch(tags)
	require.True(t, ok)
	require.Equal(t, int64(41), dataEpoch)
	index, ok := ktag.AppliedIndex(tags)
	require.True(t, ok)
	require.Equal(t, int64(99), index)
	broker, ok := ktag.Broker(tags)
	require.True(t, ok)
	require.Equal(t, int32(2), broker)
	text, ok := ktag.ErrorMessage(tags)
	require.True(t, ok)
	require.Equal(t, "broker 2 is alive", text)
	require.Equal(t, []int32{3, math.MaxInt32}, ktag.RefusedBrokers(tags))
	require.True(t, ktag.Intact(tags))
	require.True(t, ktag.Resign(tags))
	require.False(t, ktag.ResignEligible(tags))
	require.False(t, ktag.ResignUnusable(tags))
	ktag.SetResignEligible(tags)
	require.True(t, ktag.Resign(tags) && ktag.ResignEligible(tags))
	require.False(t, ktag.ResignUnusable(tags))
	ktag.SetResignUnusable(tags)
	require.True(t, ktag.Resign(tags) && ktag.ResignUnusable(tags))
	require.False(t, ktag.ResignEligible(tags))
	require.True(t, ktag.ShuttingDown(tags))
	require.True(t, ktag.Certain(tags))
	start, _ := ktag.ReplicaLogStart(tags)
	require.Equal(t, int64(17), start)
}

func TestRefusedBrokersAreBounded(t *testing.T) {
	var tags kmsg.Tags
	require.Empty(t, ktag.RefusedBrokers(&tags))
	ktag.SetRefusedBrokers(&tags, nil)
	require.Zero(t, tags.Len(), "an empty list needs no tag")
	ktag.SetRefusedBrokers(&tags, make([]int32, 5000))
	require.Len(t, ktag.RefusedBrokers(&tags), ktag.MaxRefusedBrokers)
}

func TestAbsentAndMalformedTags(t *testing.T) {
	var tags kmsg.Tags
	_, ok := ktag.ExpectedOffset(&tags)
	require.False(t, ok)
	tags.Set(10000, []byte{1, 2, 3})
	tags.Set(10004, []byte{1})
	tags.Set(10005, []byte{1})
	tags.Set(10009, []byte{1})
	_, ok = ktag.ExpectedOffset(&tags)
	require.False(t, ok)
	_, ok = ktag.ExpectedSequence(&tags)
	require.False(t, ok)
	_, ok = ktag.CurrentEpoch(&tags)
	require.False(t, ok)
	_, ok = ktag.FirstCount(&tags)
	require.False(t, ok)
	tags.Set(10013, []byte{1, 2, 3, 4, 5})
	require.Empty(t, ktag.RefusedBrokers(&tags))
	tags.Set(10016, []byte{1})
	_, ok = ktag.Broker(&tags)
	require.False(t, ok)
}

func TestNamedProducerID(t *testing.T) {
	// SHA-256("abc") begins ba7816bf8f01cfea.
	require.Equal(t, int64(1<<62|0xba7816bf8f01cfea>>3), ktag.NamedProducerID("abc"))
	for _, name := range []string{"", "a", "device-17", "日本"} {
		require.True(t, ktag.IsNamed(ktag.NamedProducerID(name)), name)
	}
	for _, id := range []int64{-1, 0, 1, 1<<62 - 1, 1<<62 | 1<<61, math.MaxInt64, math.MinInt64} {
		require.False(t, ktag.IsNamed(id), "%d", id)
	}
	require.True(t, ktag.IsNamed(1<<62))
	require.True(t, ktag.IsNamed(1<<62|(1<<61-1)))
}

func TestSettledTags(t *testing.T) {
	var tags kmsg.Tags
	ktag.SetUnsettled(&tags)
	require.True(t, ktag.Unsettled(&tags))
	require.False(t, ktag.Settled(&tags))
	ktag.SetSettled(&tags)
	require.True(t, ktag.Settled(&tags))
	require.Equal(t, 2, tags.Len())
}
