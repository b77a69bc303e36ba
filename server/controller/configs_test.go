package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// alter is one operation on one key, as "name=value" (set), "name" (delete), "name+=value" or
// "name-=value".
type alter struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp
	value *string
}

func set(name, value string) alter { return alter{name, kmsg.IncrementalAlterConfigOpSet, &value} }
func unset(name string) alter      { return alter{name, kmsg.IncrementalAlterConfigOpDelete, nil} }
func appendTo(name, value string) alter {
	return alter{name, kmsg.IncrementalAlterConfigOpAppend, &value}
}
func subtract(name, value string) alter {
	return alter{name, kmsg.IncrementalAlterConfigOpSubtract, &value}
}

func resource(kind kmsg.ConfigResourceType, name string, alters ...alter) kmsg.IncrementalAlterConfigsRequestResource {
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, a := range alters {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = a.name, a.op, a.value
		r.Configs = append(r.Configs, c)
	}
	return r
}

const (
	topicKind  = kmsg.ConfigResourceTypeTopic
	brokerKind = kmsg.ConfigResourceTypeBroker
)

func (c *cluster) alter(
	t testing.TB, resources ...kmsg.IncrementalAlterConfigsRequestResource,
) []kmsg.IncrementalAlterConfigsResponseResource {
	t.Helper()
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.Resources = resources
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	return resp.Resources
}

func TestAlterTopic(t *testing.T) {
	cases := []struct {
		name   string
		alters []alter
		want   *kerr.Error
		after  map[string]string // the topic starts with retention.ms=5
	}{
		{"set", []alter{set("segment.bytes", "2097152")}, nil,
			map[string]string{"retention.ms": "5", "segment.bytes": "2097152"}},
		{"set again to something else", []alter{set("retention.ms", " 6")}, nil, map[string]string{"retention.ms": " 6"}},
		{"delete", []alter{unset("retention.ms")}, nil, nil},
		{"delete what is not set", []alter{unset("segment.ms")}, nil, map[string]string{"retention.ms": "5"}},
		{"append to the default", []alter{appendTo("cleanup.policy", "compact")}, nil,
			map[string]string{"retention.ms": "5", "cleanup.policy": "delete,compact"}},
		{"append what is there", []alter{appendTo("cleanup.policy", "delete")}, nil,
			map[string]string{"retention.ms": "5", "cleanup.policy": "delete"}},
		{"subtract to the empty list", []alter{subtract("cleanup.policy", "delete")}, nil,
			map[string]string{"retention.ms": "5", "cleanup.policy": ""}},
		{"subtract what is not there", []alter{subtract("cleanup.policy", "compact")}, nil,
			map[string]string{"retention.ms": "5", "cleanup.policy": "delete"}},
		{"append an unknown item", []alter{appendTo("cleanup.policy", "burn")}, kerr.InvalidConfig, nil},
		{"append to a number", []alter{appendTo("retention.ms", "1")}, kerr.InvalidConfig, nil},
		{"subtract from a number", []alter{subtract("retention.ms", "1")}, kerr.InvalidConfig, nil},
		{"unknown key", []alter{set("retention", "1")}, kerr.InvalidConfig, nil},
		{"delete an unknown key", []alter{unset("retention")}, kerr.InvalidConfig, nil},
		{"broker key", []alter{set("num.partitions", "1")}, kerr.InvalidConfig, nil},
		{"bad value", []alter{set("retention.ms", "-2")}, kerr.InvalidConfig, nil},
		{"null value", []alter{{"retention.ms", kmsg.IncrementalAlterConfigOpSet, nil}}, kerr.InvalidConfig, nil},
		{"key twice", []alter{set("retention.ms", "1"), unset("retention.ms")}, kerr.InvalidRequest, nil},
		{"unknown operation", []alter{{"retention.ms", 9, kmsg.StringPtr("1")}}, kerr.InvalidRequest, nil},
		{"all or none", []alter{set("retention.ms", "9"), set("segment.ms", "0")}, kerr.InvalidConfig, nil},
		{"lag bounds crossed", []alter{set("min.compaction.lag.ms", "10"), set("max.compaction.lag.ms", "9")},
			kerr.InvalidConfig, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, 1, nil)
			c.mustCreate(t, newTopic("t", 1, 1, "retention.ms", "5"))
			answer := c.alter(t, resource(topicKind, "t", tc.alters...))[0]
			require.Equal(t, topicKind, answer.ResourceType)
			require.Equal(t, "t", answer.ResourceName)
			requireCode(t, tc.want, answer.ErrorCode, answer.ErrorMessage)
			if tc.want != nil {
				tc.after = map[string]string{"retention.ms": "5"}
				require.Contains(t, *answer.ErrorMessage, tc.alters[len(tc.alters)-1].name, "the message names the key")
			}
			require.Equal(t, tc.after, c.machine.Image().Topic("t").Configs)
		})
	}
}

func TestAlterBroker(t *testing.T) {
	cases := []struct {
		name     string
		resource string
		alters   []alter
		want     *kerr.Error
	}{
		{"default of all", "", []alter{set("log.retention.ms", "5")}, nil},
		{"one broker", "1", []alter{set("log.retention.ms", "5")}, nil},
		{"unknown broker", "9", []alter{set("log.retention.ms", "5")}, kerr.BrokerIDNotRegistered},
		{"no number", "one", []alter{set("log.retention.ms", "5")}, kerr.InvalidRequest},
		{"number in another form", "01", []alter{set("log.retention.ms", "5")}, kerr.InvalidRequest},
		{"topic key", "1", []alter{set("retention.ms", "5")}, kerr.InvalidConfig},
		{"read-only", "1", []alter{set("num.partitions", "5")}, kerr.InvalidRequest},
		{"per broker for one", "1", []alter{set("ssl.keystore.type", "PEM")}, nil},
		{"per broker for all", "", []alter{set("ssl.keystore.type", "PEM")}, kerr.InvalidRequest},
		{"pool doubled", "1", []alter{set("num.io.threads", "16")}, nil},
		{"pool halved", "", []alter{set("num.io.threads", "4")}, nil},
		{"pool more than doubled", "1", []alter{set("num.io.threads", "17")}, kerr.InvalidConfig},
		{"pool less than half", "", []alter{set("num.io.threads", "3")}, kerr.InvalidConfig},
		{"bad value", "", []alter{set("log.retention.ms", "x")}, kerr.InvalidConfig},
		{"append to the default", "", []alter{appendTo("log.cleanup.policy", "compact")}, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, 1, nil)
			before := c.machine.Image()
			answer := c.alter(t, resource(brokerKind, tc.resource, tc.alters...))[0]
			requireCode(t, tc.want, answer.ErrorCode, answer.ErrorMessage)
			if tc.want != nil {
				require.Same(t, before, c.machine.Image())
				return
			}
			require.Len(t, c.machine.Image().BrokerOverrides(tc.resource), 1)
		})
	}
}

func TestAlterBrokerReachesTopics(t *testing.T) {
	c := newCluster(t, 1, map[string]string{"log.cleanup.policy": "compact", "log.retention.hours": "1"})
	c.mustCreate(t, newTopic("t", 1, 1))
	c.mustCreate(t, newTopic("own", 1, 1, "retention.ms", "7"))
	settings := func(topic string) *metadata.TopicSettings { return c.machine.Image().Topic(topic).Settings }
	require.Equal(t, int64(3_600_000), settings("t").RetentionTime.Milliseconds())
	c.alter(t, resource(brokerKind, "", set("log.retention.ms", "5"), appendTo("log.cleanup.policy", "delete")))
	require.Equal(t, int64(5), settings("t").RetentionTime.Milliseconds())
	require.Equal(t, int64(7), settings("own").RetentionTime.Milliseconds())
	require.True(t, settings("own").CleanupDelete && settings("own").CleanupCompact, "the static list was the base")
	c.alter(t, resource(brokerKind, "1", set("log.retention.ms", "6")))
	require.Equal(t, int64(6), settings("t").RetentionTime.Milliseconds())
	c.alter(t, resource(brokerKind, "1", unset("log.retention.ms")), resource(brokerKind, "", unset("log.retention.ms")))
	require.Equal(t, int64(3_600_000), settings("t").RetentionTime.Milliseconds())
}

func TestAlterResources(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.mustCreate(t, newTopic("a", 1, 1))
	c.mustCreate(t, newTopic("b", 1, 1))
	answers := c.alter(t,
		resource(topicKind, "a", set("retention.ms", "1")),
		resource(topicKind, "none", set("retention.ms", "1")),
		resource(topicKind, "b", set("retention.ms", "1")),
		resource(topicKind, "b", set("segment.ms", "1")),
		resource(kmsg.ConfigResourceTypeBrokerLogger, "1", set("x", "DEBUG")),
		resource(kmsg.ConfigResourceTypeGroupConfig, "g", set("x", "1")),
	)
	want := []*kerr.Error{nil, kerr.UnknownTopicOrPartition, kerr.InvalidRequest, kerr.InvalidRequest,
		kerr.InvalidRequest, kerr.InvalidRequest}
	for i, w := range want {
		requireCode(t, w, answers[i].ErrorCode, answers[i].ErrorMessage)
	}
	require.Equal(t, map[string]string{"retention.ms": "1"}, c.machine.Image().Topic("a").Configs)
	require.Empty(t, c.machine.Image().Topic("b").Configs)
}

func TestAlterThatChangesNothingIsNotProposed(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.mustCreate(t, newTopic("t", 1, 1, "retention.ms", "5"))
	before := c.quorum.proposals.Load()
	for _, r := range []kmsg.IncrementalAlterConfigsRequestResource{
		resource(topicKind, "t", set("retention.ms", "5")), resource(topicKind, "t", unset("segment.ms")),
		resource(topicKind, "t"), resource(brokerKind, "", unset("log.retention.ms")),
	} {
		answer := c.alter(t, r)[0]
		requireCode(t, nil, answer.ErrorCode, answer.ErrorMessage)
	}
	require.Equal(t, before, c.quorum.proposals.Load())

	c.alter(t, resource(brokerKind, "1", set("log.retention.ms", "5")))
	c.alter(t, resource(brokerKind, "1", set("log.retention.ms", "5")))
	require.Equal(t, before+2, c.quorum.proposals.Load(), "a broker's value set again counts: it may name a changed file")
}

func TestAlterValidateOnly(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.mustCreate(t, newTopic("t", 1, 1))
	before := c.machine.Image()
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.ValidateOnly = true
	r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{
		resource(topicKind, "t", set("retention.ms", "5")), resource(brokerKind, "", set("log.retention.ms", "x")),
	}
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Zero(t, resp.Resources[0].ErrorCode)
	require.Equal(t, kerr.InvalidConfig.Code, resp.Resources[1].ErrorCode)
	require.Same(t, before, c.machine.Image())
}
