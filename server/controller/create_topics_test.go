package controller_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

func TestCreateTopicsRefusals(t *testing.T) {
	null := newTopic("t", 1, 1)
	null.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
	withCount := assigned("t", []int32{0, 1})
	withCount.NumPartitions = 1
	cases := []struct {
		name  string
		topic kmsg.CreateTopicsRequestTopic
		want  *kerr.Error
		says  string
	}{
		{"exists", newTopic("have.it", 1, 1), kerr.TopicAlreadyExists, "have.it"},
		{"exists comes before wrong numbers", newTopic("have.it", 0, 9), kerr.TopicAlreadyExists, "have.it"},
		{"collides", newTopic("have_it", 1, 1), kerr.InvalidTopicException, "have.it"},
		{"empty name", newTopic("", 1, 1), kerr.InvalidTopicException, "empty"},
		{"parent folder", newTopic("..", 1, 1), kerr.InvalidTopicException, ".."},
		{"slash", newTopic("a/b", 1, 1), kerr.InvalidTopicException, "'/'"},
		{"reserved", newTopic("__cluster_metadata", 1, 1), kerr.InvalidTopicException, "reserved"},
		{"no partitions", newTopic("t", 0, 1), kerr.InvalidPartitions, "0 partitions"},
		{"negative partitions", newTopic("t", -2, 1), kerr.InvalidPartitions, "-2"},
		{"no replicas", newTopic("t", 1, 0), kerr.InvalidReplicationFactor, "0 replicas"},
		{"negative replicas", newTopic("t", 1, -2), kerr.InvalidReplicationFactor, "-2"},
		{"more replicas than brokers", newTopic("t", 1, 4), kerr.InvalidReplicationFactor, "3 brokers"},
		{"too many partitions", newTopic("t", 10_001, 1), kerr.PolicyViolation, "10000"},
		{"absurdly many partitions", newTopic("t", 1<<31-1, 1), kerr.PolicyViolation, "10000"},
		{"unknown key", newTopic("t", 1, 1, "retention.mss", "1"), kerr.InvalidConfig, `"retention.mss"`},
		{"bad value", newTopic("t", 1, 1, "retention.ms", "soon"), kerr.InvalidConfig,
			`"soon" for configuration retention.ms`},
		{"null value", null, kerr.InvalidConfig, "retention.ms"},
		{"key twice", newTopic("t", 1, 1, "retention.ms", "1", "retention.ms", "2"), kerr.InvalidRequest, "twice"},
		{"assignment with count", withCount, kerr.InvalidRequest, "-1"},
		{"assignment with a gap", assigned("t", []int32{0, 1}, []int32{2, 1}), kerr.InvalidReplicaAssignment, "0 to 1"},
		{"assignment of one twice", assigned("t", []int32{0, 1}, []int32{0, 1}), kerr.InvalidReplicaAssignment, "each once"},
		{"assignment without replicas", assigned("t", []int32{0}), kerr.InvalidReplicaAssignment, "no replicas"},
		{"assignment to an unknown broker", assigned("t", []int32{0, 9}), kerr.InvalidReplicaAssignment, "broker 9"},
		{"assignment to one broker twice", assigned("t", []int32{0, 1, 1}), kerr.InvalidReplicaAssignment, "twice"},
		{"assignments of unequal size", assigned("t", []int32{0, 1, 2}, []int32{1, 1}),
			kerr.InvalidReplicaAssignment, "same number"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			c.mustCreate(t, newTopic("have.it", 1, 1))
			before := c.machine.Image()
			answers := c.create(t, tc.topic)
			require.Len(t, answers, 1)
			require.Equal(t, tc.topic.Topic, answers[0].Topic)
			requireCode(t, tc.want, answers[0].ErrorCode, answers[0].ErrorMessage)
			require.Contains(t, *answers[0].ErrorMessage, tc.says)
			require.Same(t, before, c.machine.Image(), "what is refused goes into no command")
		})
	}
}

func TestCreateTopicsAnswersAndApplies(t *testing.T) {
	c := newCluster(t, 3, nil)
	answer := c.mustCreate(t, newTopic("t", 4, 2, "retention.ms", "1000", "cleanup.policy", "compact"))
	require.Equal(t, int32(4), answer.NumPartitions)
	require.Equal(t, int16(2), answer.ReplicationFactor)
	configs := make(map[string]kmsg.CreateTopicsResponseTopicConfig)
	for _, config := range answer.Configs {
		configs[config.Name] = config
	}
	require.Equal(t, "1000", *configs["retention.ms"].Value)
	require.Equal(t, int8(kmsg.ConfigSourceDynamicTopicConfig), configs["retention.ms"].Source)
	require.Equal(t, "1048588", *configs["max.message.bytes"].Value)
	require.Equal(t, int8(kmsg.ConfigSourceDefaultConfig), configs["max.message.bytes"].Source)
	require.NotContains(t, configs, "internal.segment.bytes")

	topic := c.machine.Image().Topic("t")
	require.NotNil(t, topic, "an answered topic is applied")
	require.Equal(t, answer.TopicID, topic.ID)
	require.NotZero(t, topic.ID)
	require.True(t, topic.Settings.CleanupCompact)
	for _, p := range topic.Partitions {
		require.Len(t, p.Replicas, 2)
		require.Equal(t, p.Replicas, p.ISR)
		require.Equal(t, p.Replicas[0], p.Leader)
		require.Zero(t, p.LeaderEpoch)
	}
}

func TestCreateTopicsDefaults(t *testing.T) {
	c := newCluster(t, 3, map[string]string{"num.partitions": "6", "default.replication.factor": "3"})
	answer := c.mustCreate(t, newTopic("t", -1, -1))
	require.Equal(t, int32(6), answer.NumPartitions)
	require.Equal(t, int16(3), answer.ReplicationFactor)
}

func TestCreateTopicsManualAssignment(t *testing.T) {
	c := newCluster(t, 3, nil)
	answer := c.mustCreate(t, assigned("t", []int32{1, 3, 2}, []int32{0, 2, 1}))
	require.Equal(t, int32(2), answer.NumPartitions)
	topic := c.machine.Image().Topic("t")
	require.Equal(t, []int32{2, 1}, topic.Partitions[0].Replicas)
	require.Equal(t, []int32{3, 2}, topic.Partitions[1].Replicas)
	require.Equal(t, int32(3), topic.Partitions[1].Leader)
}

func TestCreateTopicsEachOnItsOwn(t *testing.T) {
	c := newCluster(t, 1, nil)
	answers := c.create(t, newTopic("a", 1, 1), newTopic("twice", 1, 1), newTopic("b", 0, 1), newTopic("twice", 2, 1),
		newTopic("x.y", 1, 1), newTopic("x_y", 1, 1))
	var got []string
	for _, a := range answers {
		got = append(got, fmt.Sprint(a.Topic, " ", a.ErrorCode))
	}
	require.Equal(t, []string{"a 0", "twice 42", "b 37", "x.y 0", "x_y 17"}, got)
	require.Equal(t, 2, c.machine.Image().TopicCount())
}

func TestCreateTopicsValidateOnly(t *testing.T) {
	c := newCluster(t, 1, nil)
	before := c.machine.Image()
	r := kmsg.NewPtrCreateTopicsRequest()
	r.ValidateOnly = true
	r.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("a", 2, 1), newTopic("b", 1, 5)}
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Zero(t, resp.Topics[0].ErrorCode)
	require.Zero(t, resp.Topics[0].TopicID, "there is no topic, so it has no id")
	require.Equal(t, int32(2), resp.Topics[0].NumPartitions)
	require.NotEmpty(t, resp.Topics[0].Configs)
	require.Equal(t, kerr.InvalidReplicationFactor.Code, resp.Topics[1].ErrorCode)
	require.Same(t, before, c.machine.Image())
}

func TestLimits(t *testing.T) {
	c := newLimitedCluster(t, 1, nil, metadata.Limits{Topics: 2, Partitions: 5, TopicPartitions: 3})
	c.mustCreate(t, newTopic("a", 3, 1))
	answers := c.create(t, newTopic("b", 3, 1), newTopic("c", 2, 1), newTopic("d", 1, 1))
	requireCode(t, kerr.PolicyViolation, answers[0].ErrorCode, answers[0].ErrorMessage)
	require.Contains(t, *answers[0].ErrorMessage, "at most 5")
	requireCode(t, nil, answers[1].ErrorCode, answers[1].ErrorMessage)
	requireCode(t, kerr.PolicyViolation, answers[2].ErrorCode, answers[2].ErrorMessage)
	require.Contains(t, *answers[2].ErrorMessage, "at most 2")
	more := c.morePartitions(t, "c", 4)
	requireCode(t, kerr.PolicyViolation, more.ErrorCode, more.ErrorMessage)
	require.Contains(t, *more.ErrorMessage, "at most 3")
	more = c.morePartitions(t, "c", 3)
	requireCode(t, kerr.PolicyViolation, more.ErrorCode, more.ErrorMessage)
	require.Contains(t, *more.ErrorMessage, "at most 5")
}

func TestTenThousandPartitionsFitOneTopic(t *testing.T) {
	c := newCluster(t, 1, nil)
	require.Equal(t, int32(10_000), c.mustCreate(t, newTopic("wide", 10_000, 1)).NumPartitions)
}
