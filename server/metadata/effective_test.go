package metadata_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
)

// configured returns a machine of node 1 with a topic "t", and dynamic configuration as given: by
// resource, "topic", "broker 1", "broker 2" or "all".
func configured(t *testing.T, static map[string]string, dynamic map[string][]string) *metadata.Machine {
	t.Helper()
	m := newMachine(t, static)
	setUp(t, m)
	apply(t, m, &metadata.RegisterBroker{ID: 2, Incarnation: metadata.UUID{2}, PreviousEpoch: -1})
	for resource, sets := range dynamic {
		r := metadata.AlterResource{Type: metadata.BrokerResource, Name: strings.TrimPrefix(resource, "broker ")}
		switch resource {
		case "topic":
			r.Type, r.Name = metadata.TopicResource, "have"
		case "all":
			r.Name = ""
		}
		for _, set := range sets {
			name, value, _ := strings.Cut(set, "=")
			r.Operations = append(r.Operations, metadata.AlterKey{Name: name, Value: &value})
		}
		apply(t, m, &metadata.AlterConfigs{Resources: []metadata.AlterResource{r}})
	}
	return m
}

func text(v *string) string {
	if v == nil {
		return "null"
	}
	return *v
}

func describe(values []metadata.ConfigValue, name string) string {
	for _, v := range values {
		if v.Key.Name != name {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s (%d)", text(v.Value), v.Source)
		for _, s := range v.Synonyms {
			fmt.Fprintf(&b, " %s=%s (%d)", s.Name, text(s.Value), s.Source)
		}
		if v.ReadOnly {
			b.WriteString(" read-only")
		}
		return b.String()
	}
	return "not there"
}

func TestTopicValuesInEffect(t *testing.T) {
	cases := []struct {
		name    string
		static  map[string]string
		dynamic map[string][]string
		key     string
		want    string
	}{
		{"default", nil, nil, "retention.ms", "604800000 (5) log.retention.hours=168 (5)"},
		{"default of a key without synonyms", nil, nil, "remote.copy.lag.ms", "0 (5) remote.copy.lag.ms=0 (5)"},
		{"static hours", map[string]string{"log.retention.hours": "2"}, nil, "retention.ms",
			"7200000 (4) log.retention.hours=2 (4) log.retention.hours=168 (5)"},
		{"static: the first synonym wins", map[string]string{"log.retention.hours": "2", "log.retention.minutes": "3"}, nil,
			"retention.ms", "180000 (4) log.retention.minutes=3 (4) log.retention.hours=2 (4) log.retention.hours=168 (5)"},
		{"a level wins over a better synonym below", map[string]string{"log.retention.ms": "5"},
			map[string][]string{"all": {"log.retention.hours=1"}},
			"retention.ms", "3600000 (3) log.retention.hours=1 (3) log.retention.ms=5 (4) log.retention.hours=168 (5)"},
		{"negative in any unit", map[string]string{"log.retention.minutes": "-1"}, nil, "retention.ms",
			"-1 (4) log.retention.minutes=-1 (4) log.retention.hours=168 (5)"},
		{"all levels", map[string]string{"log.retention.ms": "4"},
			map[string][]string{"all": {"log.retention.ms=3"}, "broker 1": {"log.retention.ms=2"}, "topic": {"retention.ms=1"}},
			"retention.ms", "1 (1) retention.ms=1 (1) log.retention.ms=2 (2) log.retention.ms=3 (3) log.retention.ms=4 (4) " +
				"log.retention.hours=168 (5)"},
		{"another broker's does not count", nil, map[string][]string{"broker 2": {"log.retention.ms=2"}}, "retention.ms",
			"604800000 (5) log.retention.hours=168 (5)"},
		{"text as given", nil, map[string][]string{"topic": {"retention.ms= 7 "}}, "retention.ms",
			" 7  (1) retention.ms= 7  (1) log.retention.hours=168 (5)"},
		{"flush.ms by the scheduler's", map[string]string{"log.flush.scheduler.interval.ms": "9"}, nil, "flush.ms",
			"9 (4) log.flush.scheduler.interval.ms=9 (4) log.flush.scheduler.interval.ms=9223372036854775807 (5)"},
		{"hidden", nil, nil, "internal.segment.bytes", "not there"},
		{"hidden but set", nil, map[string][]string{"topic": {"internal.segment.bytes=100"}}, "internal.segment.bytes",
			"100 (1) internal.segment.bytes=100 (1)"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			m := configured(t, tc.static, tc.dynamic).Image()
			require.Equal(t, tc.want, describe(m.TopicConfigs(m.Topic("have")), tc.key))
		})
	}
}

func TestBrokerValuesInEffect(t *testing.T) {
	m := configured(t, map[string]string{"num.partitions": "3", "log.retention.ms": "4"}, map[string][]string{
		"all": {"log.retention.ms=3", "num.io.threads=9"}, "broker 1": {"log.retention.ms=2"},
		"broker 2": {"num.io.threads=12"},
	}).Image()
	for key, want := range map[string]string{
		"log.retention.ms":      "2 (2) log.retention.ms=2 (2) log.retention.ms=3 (3) log.retention.ms=4 (4)",
		"log.retention.minutes": "null (5)",
		"num.partitions":        "3 (4) num.partitions=3 (4) num.partitions=1 (5) read-only",
		"num.io.threads":        "9 (3) num.io.threads=9 (3) num.io.threads=8 (5)",
		"log.sync":              "ack (5) log.sync=ack (5) read-only",
	} {
		require.Equal(t, want, describe(m.BrokerConfigs(), key), key)
	}
	all := m.ClusterConfigs()
	require.Len(t, all, 2, "of the default of all brokers only what is set")
	require.Equal(t, "3 (3) log.retention.ms=3 (3)", describe(all, "log.retention.ms"))
}

// TestDefaultsAgree checks that the default of a topic key is that of the broker keys that supply it.
func TestDefaultsAgree(t *testing.T) {
	m, schema := configured(t, nil, nil).Image(), metadata.NewSchema()
	for _, v := range m.TopicConfigs(m.Topic("have")) {
		factor, found := int64(1), false
		for _, s := range v.Key.Synonyms {
			if d := schema.Broker.Key(s.Name); !d.NoDefault && !found {
				factor, found = s.Factor, true
				require.Equal(t, d.Default, text(v.Synonyms[0].Value), v.Key.Name)
			}
		}
		if factor == 1 {
			require.Equal(t, v.Key.Default, text(v.Synonyms[0].Value), v.Key.Name)
		}
		require.Equal(t, v.Key.Default, text(v.Value), v.Key.Name)
	}
	require.Equal(t, "604800000 (5) log.roll.hours=168 (5)", describe(m.TopicConfigs(m.Topic("have")), "segment.ms"))
}

func TestSettings(t *testing.T) {
	plain := configured(t, nil, nil).Image()
	require.Equal(t, metadata.TopicSettings{
		CleanupDelete: true, Compression: "producer", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3, MaxMessageBytes: 1048588,
		TimestampBefore: math.MaxInt64, TimestampAfter: 3_600_000, MinInsyncReplicas: 1,
		RetentionTime: 7 * 24 * time.Hour, RetentionBytes: -1, FileDeleteDelay: time.Minute,
		SegmentBytes: 1 << 30, SegmentTime: 7 * 24 * time.Hour, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096,
		FlushMessages: math.MaxInt64, FlushTime: math.MaxInt64, DeleteRetention: 24 * time.Hour,
		MaxCompactionLag: math.MaxInt64, MinCleanableDirtyRatio: 0.5,
	}, *plain.Topic("have").Settings)
	require.Equal(t, metadata.BrokerSettings{
		Cleaner: metadata.CleanerSettings{
			Enable: true, Backoff: 15 * time.Second, MapBytes: 44 << 20, BufferBytes: 512 << 10,
			BytesPerSecond: math.MaxFloat64,
		},
		AutoCreateTopics: true, DeleteTopics: true, NumPartitions: 1, DefaultReplicationFactor: 1, FetchMaxBytes: 57671680,
		InitialTaskDelay: 30 * time.Second, RetentionCheckInterval: 5 * time.Minute, RecoveryPointInterval: time.Minute,
		HighWatermarkInterval: 5 * time.Second, ScrubInterval: 7 * 24 * time.Hour,
		LogSync: "ack", LogSyncInterval: time.Second, SchemaCompatibilityLevel: "BACKWARD", SchemaModeMutability: true,
		Connect: metadata.ConnectSettings{
			Enable: true, GroupID: "connect-cluster", ConfigTopic: "connect-configs", OffsetTopic: "connect-offsets",
			StatusTopic: "connect-status", OffsetPartitions: 25, StatusPartitions: 5, Replication: -1,
			KeyConverter:    "org.apache.kafka.connect.json.JsonConverter",
			ValueConverter:  "org.apache.kafka.connect.json.JsonConverter",
			HeaderConverter: "org.apache.kafka.connect.storage.SimpleHeaderConverter", KeySchemas: true, ValueSchemas: true,
			SessionTimeout: 3 * time.Second, HeartbeatInterval: 500 * time.Millisecond, RebalanceTimeout: 10 * time.Second,
			OffsetFlushInterval: 5 * time.Second, TaskShutdownTimeout: 5 * time.Second, RestartBackoff: time.Second,
			RestartBackoffMax: 5 * time.Minute, RestartHealthy: 10 * time.Minute, OverridePolicy: "All",
			TopicCreation: true, TopicTracking: true, TopicTrackingReset: true,
		},
		ProducerIDExpiration: 24 * time.Hour, ProducerIDExpirationCheckInterval: 10 * time.Minute,
		SessionTimeout: 9 * time.Second, HeartbeatInterval: 2 * time.Second, ControlledShutdown: true,
		Group: metadata.GroupSettings{
			MinSessionTimeout: 6 * time.Second, MaxSessionTimeout: 30 * time.Minute, InitialRebalanceDelay: 3 * time.Second,
			MaxSize: math.MaxInt32, ConsumerAssignors: []string{"uniform", "range"}, ConsumerAssignmentInterval: time.Second,
			ConsumerHeartbeatInterval: 5 * time.Second, ConsumerSessionTimeout: 45 * time.Second, ConsumerMaxSize: math.MaxInt32,
			ConsumerRegexRefreshInterval: 10 * time.Minute, OffsetMetadataMaxBytes: 4096, OffsetsCommitTimeout: 5 * time.Second,
			OffsetsRetention: 168 * time.Hour, OffsetsRetentionCheckInterval: 10 * time.Minute,
		},
		Txn: metadata.TxnSettings{
			MaxTimeout: 15 * time.Minute, AbortInterval: 10 * time.Second, IDExpiration: 168 * time.Hour,
			RemoveInterval: time.Hour,
		},
		REST: metadata.RESTSettings{
			InstanceTimeout: 5 * time.Minute, RequestTimeout: time.Second, RequestMaxBytes: 64 << 20, FetchMinBytes: -1,
			KeyIndexBytes: 64 << 20,
		},
		AutoLeaderRebalance: true, LeaderImbalanceCheckInterval: 5 * time.Minute, LeaderImbalancePercent: 10,
		ReplicaLagTimeMax: 30 * time.Second, ReplicaFetchWaitMax: 500 * time.Millisecond, ReplicaFetchMinBytes: 1,
		ReplicaFetchMaxBytes: 1 << 20, ReplicaFetchResponseMaxBytes: 10 << 20, ReplicaFetchBackoff: time.Second,
	}, *plain.Settings())

	all := configured(t, map[string]string{"log.sync": "never"}, map[string][]string{"topic": {
		"cleanup.policy=compact", "compression.type=zstd", "compression.zstd.level=-5",
		"message.timestamp.type=LogAppendTime",
		"retention.ms=-1", "segment.ms=1", "segment.jitter.ms=2", "min.insync.replicas=3", "preallocate=TRUE",
		"internal.segment.bytes=100", "unclean.leader.election.enable=true", "flush.messages= 10 ",
	}}).Image()
	s := all.Topic("have").Settings
	require.True(t, s.CleanupCompact && !s.CleanupDelete && s.LogAppendTime && s.Preallocate && s.UncleanLeaderElection)
	require.Equal(t, "zstd", s.Compression)
	require.Equal(t, -5, s.ZstdLevel)
	require.Negative(t, s.RetentionTime)
	require.Equal(t, time.Millisecond, s.SegmentTime)
	require.Equal(t, 2*time.Millisecond, s.SegmentJitter)
	require.Equal(t, int64(100), s.SegmentBytes)
	require.Equal(t, int64(10), s.FlushMessages)
	require.Equal(t, 3, s.MinInsyncReplicas, "more than there are replicas")
	require.Equal(t, "never", all.Settings().LogSync)
}

func TestTopicsWithoutOverridesShareSettings(t *testing.T) {
	m := configured(t, nil, nil)
	apply(t, m, &metadata.CreateTopics{Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{
		{Name: "other", ID: metadata.UUID{8}, Partitions: [][]int32{{1}}},
	}})
	require.Same(t, m.Image().Topic("have").Settings, m.Image().Topic("other").Settings)
}
