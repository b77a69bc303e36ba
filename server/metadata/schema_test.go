package metadata_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

const (
	maxInt  = "2147483647"
	maxLong = "9223372036854775807"
)

// values holds values that a key takes and values that it refuses.
type values struct{ good, bad []string }

func is(good ...string) values            { return values{good: good} }
func (v values) not(bad ...string) values { return values{v.good, bad} }
func intAtLeast(low int64) values         { return number(low, maxInt, "2147483648") }
func longAtLeast(low int64) values        { return number(low, maxLong, "9223372036854775808") }
func number(low int64, high, over string) values {
	return is(strconv.FormatInt(low, 10), " "+strconv.FormatInt(low+1, 10)+" ", high).
		not(strconv.FormatInt(low-1, 10), over, "", "x", "1.5", "0x10", "1_000", "１")
}

func boolean() values { return is("true", "FALSE", " True ").not("", "yes", "1", "truefalse") }

// topicValues has a row for every topic key.
func topicValues() map[string]values {
	return map[string]values{
		"cleanup.policy": is("delete", "compact", "compact,delete", " delete , compact ", "").
			not("x", "delete,delete", "delete,", "Delete"),
		"compression.gzip.level": is("-1", "1", "9").not("0", "10", "-2", "x"),
		"compression.lz4.level":  is("1", "17").not("0", "18", "-1"),
		"compression.type": is("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer", " gzip ").
			not("none", "GZIP", "", "brotli"),
		"compression.zstd.level":                  is("-131072", "0", "22").not("-131073", "23"),
		"delete.retention.ms":                     longAtLeast(0),
		"file.delete.delay.ms":                    longAtLeast(0),
		"flush.messages":                          longAtLeast(1),
		"flush.ms":                                longAtLeast(0),
		"follower.replication.throttled.replicas": is("", "*", "0:1", "0:1, 12:3").not("1", "0:1,", "a:b", "0:1:2", "*,0:1"),
		"leader.replication.throttled.replicas":   is("", "*", "0:1,12:3").not(":", "-1:1", "0:"),
		"index.interval.bytes":                    intAtLeast(0),
		"internal.segment.bytes":                  intAtLeast(14),
		"local.retention.bytes":                   longAtLeast(-2),
		"local.retention.ms":                      longAtLeast(-2),
		"max.compaction.lag.ms":                   longAtLeast(1),
		"max.message.bytes":                       intAtLeast(0),
		"message.timestamp.after.max.ms":          longAtLeast(0),
		"message.timestamp.before.max.ms":         longAtLeast(0),
		"message.timestamp.type":                  is("CreateTime", "LogAppendTime").not("createtime", "", "NoTimestampType"),
		"min.cleanable.dirty.ratio": is("0", "1", "0.5", "1e-3", " .25 ").
			not("-0.1", "1.1", "NaN", "Inf", "", "half", "0x1p-2"),
		"min.compaction.lag.ms":          longAtLeast(0),
		"min.insync.replicas":            intAtLeast(1),
		"preallocate":                    boolean(),
		"remote.copy.lag.bytes":          longAtLeast(-1),
		"remote.copy.lag.ms":             longAtLeast(-1),
		"remote.log.copy.disable":        boolean(),
		"remote.log.delete.on.disable":   boolean(),
		"remote.storage.enable":          is("false").not("true", "x"),
		"retention.bytes":                is("-1", "0", "-5", maxLong).not("9223372036854775808", "x"),
		"retention.ms":                   longAtLeast(-1),
		"segment.bytes":                  intAtLeast(1 << 20),
		"segment.index.bytes":            intAtLeast(4),
		"segment.jitter.ms":              longAtLeast(0),
		"segment.ms":                     longAtLeast(1),
		"unclean.leader.election.enable": boolean(),
		"key.schema.validation":          boolean(),
		"value.schema.validation":        boolean(),
		"key.subject.name.strategy":      is("TOPIC_NAME", " RECORD_NAME ").not("", "topic_name"),
		"value.subject.name.strategy":    is("TOPIC_NAME", "TOPIC_RECORD_NAME").not("", "x"),
	}
}

// brokerValues has a row for every broker key that is not the first synonym of a topic key.
func brokerValues() map[string]values {
	all := make(map[string]values)
	for low, names := range map[int64]string{
		-1: "group.coordinator.append.linger.ms log.retention.hours log.retention.minutes",
		0: "log.cleaner.io.buffer.size log.flush.offset.checkpoint.interval.ms " +
			"log.flush.start.offset.checkpoint.interval.ms " +
			"group.initial.rebalance.delay.ms leader.imbalance.per.broker.percentage log.roll.jitter.hours " +
			"max.connection.creation.rate max.connections max.connections.per.ip max.incremental.fetch.session.cache.slots " +
			"offset.metadata.max.bytes replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes " +
			"replica.fetch.response.max.bytes replica.fetch.wait.max.ms",
		1: "background.threads broker.heartbeat.interval.ms broker.session.timeout.ms group.consumer.max.size " +
			"group.coordinator.threads group.max.session.timeout.ms group.max.size group.min.session.timeout.ms " +
			"group.share.heartbeat.interval.ms group.share.session.timeout.ms initial.broker.registration.timeout.ms " +
			"log.cleaner.threads log.roll.hours max.request.partition.size.limit num.io.threads num.network.threads " +
			"num.partitions num.recovery.threads.per.data.dir num.replica.fetchers offsets.commit.timeout.ms " +
			"offsets.retention.minutes offsets.topic.num.partitions offsets.topic.segment.bytes " +
			"producer.id.expiration.check.interval.ms producer.id.expiration.ms queued.max.requests quota.window.num " +
			"quota.window.size.seconds socket.request.max.bytes " +
			"transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms " +
			"transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.min.isr " +
			"transaction.state.log.num.partitions transaction.state.log.segment.bytes transactional.id.expiration.ms",
		1024:  "fetch.max.bytes",
		10000: "group.consumer.regex.refresh.interval.ms",
	} {
		for _, name := range strings.Fields(names) {
			all[name] = intAtLeast(low)
		}
	}
	for low, names := range map[int64]string{
		0: "follower.replication.throttled.rate leader.replication.throttled.rate log.cleaner.backoff.ms " +
			"log.flush.scheduler.interval.ms log.initial.task.delay.ms log.scrub.interval.ms",
		1: "keys.index.bytes leader.imbalance.check.interval.seconds log.retention.check.interval.ms log.sync.interval.ms " +
			"offsets.retention.check.interval.ms replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms " +
			"unclean.leader.election.interval.ms",
		1 << 20: "log.cleaner.dedupe.buffer.size",
	} {
		for _, name := range strings.Fields(names) {
			all[name] = longAtLeast(low)
		}
	}
	for _, name := range strings.Fields("auto.create.topics.enable auto.leader.rebalance.enable " +
		"controlled.shutdown.enable delete.topic.enable log.cleaner.enable mode.mutability " +
		"transaction.partition.verification.enable") {
		all[name] = boolean()
	}
	for _, name := range strings.Fields("advertised.listeners broker.rack listener.security.protocol.map listeners " +
		"max.connections.per.ip.overrides metric.reporters principal.builder.class replica.selector.class " +
		"ssl.keystore.location ssl.keystore.type") {
		all[name] = is("", "any text", "a,b").not("\xff", strings.Repeat("x", 40_000))
	}
	return withOddBrokerValues(all)
}

func withOddBrokerValues(all map[string]values) map[string]values {
	short := is("1", "32767").not("0", "32768", "x")
	all["default.replication.factor"] = short
	all["offsets.topic.replication.factor"] = short
	all["transaction.state.log.replication.factor"] = short
	all["connections.max.idle.ms"] = is("-1", "0", maxLong).not("x", "9223372036854775808")
	all["group.consumer.assignment.interval.ms"] = is("0", "15000").not("-1", "15001")
	all["group.consumer.assignors"] = is("uniform", "range,uniform").not("sticky", "range,range")
	all["group.consumer.heartbeat.interval.ms"] = is("5000", "15000").not("4999", "15001")
	all["group.consumer.migration.policy"] = is("bidirectional", "upgrade", "downgrade", "disabled").not("", "both")
	all["group.consumer.session.timeout.ms"] = is("45000", "60000").not("44999", "60001")
	all["group.share.max.size"] = is("1", "1000").not("0", "1001")
	all["log.cleaner.io.max.bytes.per.second"] = is("1", "1e9", "1.7976931348623157E308").not("0", "Infinity", "x")
	all["offset.metadata.max.bytes"] = is("0", "32767").not("-1", "32768", "x")
	all["consumer.instance.timeout.ms"] = is("1000", "1800000").not("999", "1800001")
	all["consumer.request.max.bytes"] = is("1", "134217728").not("0", "134217729")
	all["consumer.request.timeout.ms"] = is("1", "30000").not("0", "30001")
	all["fetch.min.bytes"] = is("-1", "10000000").not("-2", "10000001")
	all["log.sync"] = is("ack", "interval", "never").not("always", "", "ACK")
	all["schema.compatibility.level"] = is("NONE", "FULL_TRANSITIVE").not("full", "", "x")
	return withConnectValues(all)
}

func withConnectValues(all map[string]values) map[string]values {
	for _, name := range strings.Fields("enable key.converter.schemas.enable reveal.secrets topic.creation.enable " +
		"topic.tracking.allow.reset topic.tracking.enable value.converter.schemas.enable") {
		all["connect."+name] = boolean()
	}
	for _, name := range strings.Fields("config.storage.topic group.id header.converter key.converter " +
		"offset.storage.topic status.storage.topic value.converter") {
		all["connect."+name] = is("any text").not("", " ", "\xff")
	}
	for _, name := range strings.Fields("config.providers.env.allowlist.pattern config.providers.file.allowed.paths") {
		all["connect."+name] = is("", "any text", "a,b").not("\xff", strings.Repeat("x", 40_000))
	}
	all["connect.connector.client.config.override.policy"] = is("All", "None", "Principal").not("all", "")
	all["connect.offset.storage.partitions"] = is("1", "1000").not("0", "1001")
	all["connect.status.storage.partitions"] = is("1", "1000").not("0", "1001")
	all["connect.storage.replication.factor"] = is("-1", "32767").not("-2", "32768")
	all["connect.session.timeout.ms"] = is("1000", "300000").not("999", "300001")
	all["connect.rebalance.timeout.ms"] = is("1000", "300000").not("999", "300001")
	all["connect.heartbeat.interval.ms"] = is("50", "60000").not("49", "60001")
	all["connect.offset.flush.interval.ms"] = is("10", "3600000").not("9", "3600001")
	all["connect.task.shutdown.graceful.timeout.ms"] = is("1", "300000").not("0", "300001")
	all["connect.restart.backoff.ms"] = is("10", "3600000").not("9", "3600001")
	all["connect.restart.backoff.max.ms"] = is("10", "86400000").not("9", "86400001")
	all["connect.restart.healthy.ms"] = is("10", "86400000").not("9", "86400001")
	return all
}

func TestTopicKeyValues(t *testing.T) {
	checkValues(t, metadata.NewSchema().Topic, topicValues())
}

func TestBrokerKeyValues(t *testing.T) {
	schema := metadata.NewSchema()
	rows := brokerValues()
	for _, key := range schema.Topic.Keys() {
		if len(key.Synonyms) > 0 {
			rows[key.Synonyms[0].Name] = topicValues()[key.Name]
		}
	}
	checkValues(t, schema.Broker, rows)
}

func checkValues(t *testing.T, table *metadata.ConfigTable, rows map[string]values) {
	t.Helper()
	for name := range rows {
		require.NotNil(t, table.Key(name), "a row for %s, which is no key", name)
	}
	for _, key := range table.Keys() {
		t.Run(key.Name, func(t *testing.T) {
			row, ok := rows[key.Name]
			require.True(t, ok, "no row for this key")
			if !key.NoDefault {
				require.NoError(t, key.Validate(key.Default))
			}
			for _, text := range row.good {
				require.NoError(t, key.Validate(text), "%q", text)
			}
			require.NotEmpty(t, row.bad)
			for _, text := range row.bad {
				err := key.Validate(text)
				require.Error(t, err, "%q", text)
				require.ErrorContains(t, err, key.Name)
				require.ErrorContains(t, err, strings.Trim(strconv.Quote(text[:min(len(text), 20)]), `"`))
				require.Less(t, len(err.Error()), 500)
			}
		})
	}
}

func TestTablesAreWhole(t *testing.T) {
	schema := metadata.NewSchema()
	for _, table := range []*metadata.ConfigTable{schema.Topic, schema.Broker} {
		seen := make(map[string]bool)
		for _, key := range table.Keys() {
			require.False(t, seen[key.Name], "%s is there twice", key.Name)
			seen[key.Name] = true
			require.NotEmpty(t, key.Doc, key.Name)
			require.True(t, strings.HasSuffix(key.Doc, "."), key.Name)
			require.NotZero(t, key.Type, key.Name)
			require.Equal(t, !key.Acts, strings.HasPrefix(key.Description(), "Not acted on yet: "), key.Name)
		}
	}
	for _, key := range schema.Topic.Keys() {
		for _, s := range key.Synonyms {
			broker := schema.Broker.Key(s.Name)
			require.NotNil(t, broker, "%s, synonym of %s", s.Name, key.Name)
			require.Equal(t, key.Acts, broker.Acts, s.Name)
			require.Equal(t, metadata.ClusterWide, broker.Update, s.Name)
		}
	}
}

func TestConfigTypesAreNamed(t *testing.T) {
	schema := metadata.NewSchema()
	require.Equal(t, kmsg.ConfigTypeList, schema.Topic.Key("cleanup.policy").Type)
	require.Equal(t, kmsg.ConfigTypeDouble, schema.Topic.Key("min.cleanable.dirty.ratio").Type)
	require.Equal(t, "read-only", metadata.StaticOnly.String())
	require.Equal(t, "between 1 and 17", schema.Topic.Key("compression.lz4.level").Valid())
	require.Nil(t, schema.Topic.Key("log.sync"))
}

func TestStaticConfiguration(t *testing.T) {
	for _, static := range []map[string]string{{"no.such.key": "1"}, {"num.partitions": "0"}, {"retention.ms": "1"}} {
		_, err := metadata.NewMachine(metadata.Options{Static: static})
		for name := range static {
			require.ErrorContains(t, err, name)
		}
	}
}

func TestTopicNames(t *testing.T) {
	for _, name := range []string{"a", "A-z_0.9", "...", "__consumer_offsets", strings.Repeat("x", 249)} {
		require.NoError(t, metadata.ValidateTopicName(name), name)
	}
	for name, says := range map[string]string{
		"": "empty", ".": "folder", "..": "folder", "a/b": "'/'", "a b": "' '", "ä": "'ä'",
		"a\x00": "'\\x00'", "\xff": "byte 0",
		`a\b`: "only a-z", "../x": "'/'", strings.Repeat("x", 250): "250 bytes",
	} {
		require.ErrorContains(t, metadata.ValidateTopicName(name), says)
	}
	require.True(t, metadata.IsInternal("__transaction_state"))
	require.False(t, metadata.IsInternal("_schemas"))
}

func TestUUIDs(t *testing.T) {
	for _, random := range [][16]byte{{}, {0: 0xf8}, {0: 0xfb}} {
		id, ok := metadata.MakeUUID(random)
		require.Equal(t, random == [16]byte{}, ok, "%s", id) // 0xf8..0xfb make a leading dash
		require.Equal(t, byte(0x40), id[6]&0xf0)
		require.Equal(t, byte(0x80), id[8]&0xc0)
	}
	id, ok := metadata.MakeUUID([16]byte{1, 2, 3})
	require.True(t, ok)
	var again metadata.UUID
	require.NoError(t, again.UnmarshalText([]byte(id.String())))
	require.Equal(t, id, again)
	for _, bad := range []string{
		"", "AAAA", strings.Repeat("A", 23), strings.Repeat("!", 22), strings.Repeat("A", 21) + "B",
		strings.Repeat("A", 20) + "\nA",
	} {
		require.Error(t, again.UnmarshalText([]byte(bad)), bad)
	}
}
