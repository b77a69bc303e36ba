package metadata

import (
	"math"
	"slices"
	"time"
)

// TopicSettings is the configuration of a topic on this node, parsed. It is shared and read-only.
type TopicSettings struct {
	CleanupDelete  bool
	CleanupCompact bool

	// Compression is producer, uncompressed, gzip, snappy, lz4 or zstd; the levels go with their codec.
	Compression string
	GzipLevel   int // -1: gzip's own default
	LZ4Level    int
	ZstdLevel   int

	MaxMessageBytes int
	LogAppendTime   bool
	// TimestampBefore and TimestampAfter bound a CreateTime around the broker's clock, in milliseconds.
	TimestampBefore int64
	TimestampAfter  int64

	// MinInsyncReplicas is the number as configured, which may be more than a partition has replicas.
	MinInsyncReplicas int

	RetentionTime   time.Duration // negative: no limit
	RetentionBytes  int64         // negative: no limit
	FileDeleteDelay time.Duration

	SegmentBytes       int64
	SegmentTime        time.Duration
	SegmentJitter      time.Duration
	SegmentIndexBytes  int
	IndexIntervalBytes int
	Preallocate        bool
	FlushMessages      int64
	FlushTime          time.Duration

	DeleteRetention        time.Duration
	MinCompactionLag       time.Duration
	MaxCompactionLag       time.Duration
	MinCleanableDirtyRatio float64

	UncleanLeaderElection bool

	// Schemas is what is asked of keys and values; nil: nothing.
	Schemas *SchemaRules

	// ThrottledLeader and ThrottledFollower are the replicas that replication quotas are for.
	ThrottledLeader   *ThrottledReplicas
	ThrottledFollower *ThrottledReplicas
}

// topicSettings returns the settings of a topic with those overrides.
func (n *nodeView) topicSettings(overrides map[string]string) *TopicSettings {
	if len(overrides) == 0 {
		return n.topicDefaults
	}
	return n.newTopicSettings(overrides)
}

func (n *nodeView) newTopicSettings(overrides map[string]string) *TopicSettings {
	r := settingsReader{table: n.schema.Topic, get: func(key *ConfigKey) (string, bool) {
		text, _, ok := n.topicValue(key, overrides)
		return text, ok
	}}
	policy := r.value("cleanup.policy").list
	s := &TopicSettings{
		CleanupDelete:          slices.Contains(policy, "delete"),
		CleanupCompact:         slices.Contains(policy, "compact"),
		Compression:            r.value("compression.type").text,
		GzipLevel:              r.int("compression.gzip.level"),
		LZ4Level:               r.int("compression.lz4.level"),
		ZstdLevel:              r.int("compression.zstd.level"),
		MaxMessageBytes:        r.int("max.message.bytes"),
		LogAppendTime:          r.value("message.timestamp.type").text == "LogAppendTime",
		TimestampBefore:        r.value("message.timestamp.before.max.ms").num,
		TimestampAfter:         r.value("message.timestamp.after.max.ms").num,
		MinInsyncReplicas:      r.int(minISRKey),
		RetentionTime:          r.millis("retention.ms"),
		RetentionBytes:         r.value("retention.bytes").num,
		FileDeleteDelay:        r.millis("file.delete.delay.ms"),
		SegmentBytes:           r.value("segment.bytes").num,
		SegmentTime:            r.millis("segment.ms"),
		SegmentJitter:          r.millis("segment.jitter.ms"),
		SegmentIndexBytes:      r.int("segment.index.bytes"),
		IndexIntervalBytes:     r.int("index.interval.bytes"),
		Preallocate:            r.value("preallocate").yes,
		FlushMessages:          r.value("flush.messages").num,
		FlushTime:              r.millis("flush.ms"),
		DeleteRetention:        r.millis("delete.retention.ms"),
		MinCompactionLag:       r.millis("min.compaction.lag.ms"),
		MaxCompactionLag:       r.millis("max.compaction.lag.ms"),
		MinCleanableDirtyRatio: r.value("min.cleanable.dirty.ratio").real,
		UncleanLeaderElection:  r.value(uncleanKey).yes,
		ThrottledLeader:        throttledReplicas(r.value("leader.replication.throttled.replicas").list),
		ThrottledFollower:      throttledReplicas(r.value("follower.replication.throttled.replicas").list),
	}
	if v := r.value("internal.segment.bytes"); v.text != "" {
		s.SegmentBytes = v.num
	}
	if rules := (SchemaRules{Key: r.schemaRule("key"), Value: r.schemaRule("value")}); rules != (SchemaRules{}) {
		s.Schemas = &rules
	}
	return s
}

// SchemaRules say which schemas a topic enforces: the rule by which the subject is named that a key's or value's schema
// belongs to, such as TOPIC_NAME; "" where anything goes.
type SchemaRules struct{ Key, Value string }

func (r settingsReader) schemaRule(part string) string {
	if !r.value(part + ".schema.validation").yes {
		return ""
	}
	return r.value(part + ".subject.name.strategy").text
}

// BrokerSettings is the configuration of this node as a broker, parsed, as far as it acts. It is
// shared and read-only.
type BrokerSettings struct {
	AutoCreateTopics         bool
	DeleteTopics             bool
	NumPartitions            int32
	DefaultReplicationFactor int16

	FetchMaxBytes int

	InitialTaskDelay       time.Duration
	RetentionCheckInterval time.Duration
	ScrubInterval          time.Duration // 0: never
	RecoveryPointInterval  time.Duration // log.flush.offset.checkpoint.interval.ms
	HighWatermarkInterval  time.Duration // replica.high.watermark.checkpoint.interval.ms

	// Cleaner is what compaction works by.
	Cleaner CleanerSettings

	LogSync         string // ack, interval or never
	LogSyncInterval time.Duration

	ProducerIDExpiration              time.Duration
	ProducerIDExpirationCheckInterval time.Duration

	// Group is what the group coordinator works by.
	Group GroupSettings
	// Txn is what the transaction coordinator works by.
	Txn TxnSettings
	// REST is about the HTTP APIs.
	REST RESTSettings

	Rack               string
	SessionTimeout     time.Duration // broker.session.timeout.ms
	HeartbeatInterval  time.Duration // broker.heartbeat.interval.ms
	ControlledShutdown bool

	AutoLeaderRebalance          bool
	LeaderImbalanceCheckInterval time.Duration
	LeaderImbalancePercent       int

	ReplicaLagTimeMax            time.Duration
	ReplicaFetchWaitMax          time.Duration
	ReplicaFetchMinBytes         int
	ReplicaFetchMaxBytes         int
	ReplicaFetchResponseMaxBytes int
	ReplicaFetchBackoff          time.Duration
	// LeaderThrottleRate and FollowerThrottleRate are in bytes a second; 0 is no limit.
	LeaderThrottleRate   int64
	FollowerThrottleRate int64

	SchemaCompatibilityLevel string
	SchemaModeMutability     bool

	Connect ConnectSettings
}

func (n *nodeView) brokerSettings() *BrokerSettings {
	r := settingsReader{table: n.schema.Broker, get: n.brokerValue}
	return &BrokerSettings{
		AutoCreateTopics:                  r.value("auto.create.topics.enable").yes,
		DeleteTopics:                      r.value("delete.topic.enable").yes,
		NumPartitions:                     int32(r.value("num.partitions").num),
		DefaultReplicationFactor:          int16(r.value("default.replication.factor").num),
		FetchMaxBytes:                     r.int("fetch.max.bytes"),
		InitialTaskDelay:                  r.millis("log.initial.task.delay.ms"),
		RetentionCheckInterval:            r.millis("log.retention.check.interval.ms"),
		ScrubInterval:                     r.millis("log.scrub.interval.ms"),
		RecoveryPointInterval:             r.millis("log.flush.offset.checkpoint.interval.ms"),
		HighWatermarkInterval:             r.millis("replica.high.watermark.checkpoint.interval.ms"),
		Cleaner:                           r.cleanerSettings(),
		LogSync:                           r.value("log.sync").text,
		LogSyncInterval:                   r.millis("log.sync.interval.ms"),
		ProducerIDExpiration:              r.millis("producer.id.expiration.ms"),
		ProducerIDExpirationCheckInterval: r.millis("producer.id.expiration.check.interval.ms"),
		Group:                             r.groupSettings(),
		Txn:                               r.txnSettings(),
		REST:                              r.restSettings(),
		Rack:                              r.value("broker.rack").text,
		SessionTimeout:                    r.millis("broker.session.timeout.ms"),
		HeartbeatInterval:                 r.millis("broker.heartbeat.interval.ms"),
		ControlledShutdown:                r.value("controlled.shutdown.enable").yes,
		AutoLeaderRebalance:               r.value("auto.leader.rebalance.enable").yes,
		LeaderImbalanceCheckInterval:      seconds(r.value("leader.imbalance.check.interval.seconds").num),
		LeaderImbalancePercent:            r.int("leader.imbalance.per.broker.percentage"),
		ReplicaLagTimeMax:                 r.millis("replica.lag.time.max.ms"),
		ReplicaFetchWaitMax:               r.millis("replica.fetch.wait.max.ms"),
		ReplicaFetchMinBytes:              r.int("replica.fetch.min.bytes"),
		ReplicaFetchMaxBytes:              r.int("replica.fetch.max.bytes"),
		ReplicaFetchResponseMaxBytes:      r.int("replica.fetch.response.max.bytes"),
		ReplicaFetchBackoff:               r.millis("replica.fetch.backoff.ms"),
		LeaderThrottleRate:                r.rate("leader.replication.throttled.rate"),
		FollowerThrottleRate:              r.rate("follower.replication.throttled.rate"),
		SchemaCompatibilityLevel:          r.value("schema.compatibility.level").text,
		SchemaModeMutability:              r.value("mode.mutability").yes,
		Connect:                           r.connectSettings(),
	}
}

// CleanerSettings is the configuration of the compaction of logs.
type CleanerSettings struct {
	Enable         bool
	Backoff        time.Duration // between looks for something to be compacted
	MapBytes       int
	BufferBytes    int
	BytesPerSecond float64 // read and written
}

func (r settingsReader) cleanerSettings() CleanerSettings {
	return CleanerSettings{
		Enable:         r.value("log.cleaner.enable").yes,
		Backoff:        r.millis("log.cleaner.backoff.ms"),
		MapBytes:       r.int("log.cleaner.dedupe.buffer.size"),
		BufferBytes:    r.int("log.cleaner.io.buffer.size"),
		BytesPerSecond: r.value("log.cleaner.io.max.bytes.per.second").real,
	}
}

// GroupSettings is the configuration of the group coordinator.
type GroupSettings struct {
	// Of classic groups.
	MinSessionTimeout     time.Duration
	MaxSessionTimeout     time.Duration
	InitialRebalanceDelay time.Duration
	MaxSize               int

	// Of groups of the consumer protocol. The first of the assignors is the default.
	ConsumerAssignors            []string
	ConsumerAssignmentInterval   time.Duration
	ConsumerHeartbeatInterval    time.Duration
	ConsumerSessionTimeout       time.Duration
	ConsumerMaxSize              int
	ConsumerRegexRefreshInterval time.Duration

	// Of committed offsets.
	OffsetMetadataMaxBytes        int
	OffsetsCommitTimeout          time.Duration
	OffsetsRetention              time.Duration
	OffsetsRetentionCheckInterval time.Duration
}

func (r settingsReader) groupSettings() GroupSettings {
	return GroupSettings{
		MinSessionTimeout:             r.millis("group.min.session.timeout.ms"),
		MaxSessionTimeout:             r.millis("group.max.session.timeout.ms"),
		InitialRebalanceDelay:         r.millis("group.initial.rebalance.delay.ms"),
		MaxSize:                       r.int("group.max.size"),
		ConsumerAssignors:             r.value("group.consumer.assignors").list,
		ConsumerAssignmentInterval:    r.millis("group.consumer.assignment.interval.ms"),
		ConsumerHeartbeatInterval:     r.millis("group.consumer.heartbeat.interval.ms"),
		ConsumerSessionTimeout:        r.millis("group.consumer.session.timeout.ms"),
		ConsumerMaxSize:               r.int("group.consumer.max.size"),
		ConsumerRegexRefreshInterval:  r.millis("group.consumer.regex.refresh.interval.ms"),
		OffsetMetadataMaxBytes:        r.int("offset.metadata.max.bytes"),
		OffsetsCommitTimeout:          r.millis("offsets.commit.timeout.ms"),
		OffsetsRetention:              seconds(60 * r.value("offsets.retention.minutes").num),
		OffsetsRetentionCheckInterval: r.millis("offsets.retention.check.interval.ms"),
	}
}

// RESTSettings are the settings of the HTTP APIs.
type RESTSettings struct {
	// Of consumer instances.
	InstanceTimeout time.Duration
	RequestTimeout  time.Duration
	RequestMaxBytes int64
	FetchMinBytes   int64 // below 2: the first record
	// KeyIndexBytes bounds the memory of the indexes by which keys are read.
	KeyIndexBytes int64
}

func (r settingsReader) restSettings() RESTSettings {
	return RESTSettings{
		InstanceTimeout: r.millis("consumer.instance.timeout.ms"),
		RequestTimeout:  r.millis("consumer.request.timeout.ms"),
		RequestMaxBytes: r.value("consumer.request.max.bytes").num,
		FetchMinBytes:   r.value("fetch.min.bytes").num,
		KeyIndexBytes:   r.value("keys.index.bytes").num,
	}
}

// TxnSettings is the configuration of the transaction coordinator.
type TxnSettings struct {
	MaxTimeout time.Duration // that a producer may ask for
	// AbortInterval is the time between two looks for transactions beyond their timeout.
	AbortInterval time.Duration
	IDExpiration  time.Duration // of transactional ids without use
	// RemoveInterval is the time between two looks for ids that have expired.
	RemoveInterval time.Duration
}

func (r settingsReader) txnSettings() TxnSettings {
	return TxnSettings{
		MaxTimeout:     r.millis("transaction.max.timeout.ms"),
		AbortInterval:  r.millis("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
		IDExpiration:   r.millis("transactional.id.expiration.ms"),
		RemoveInterval: r.millis("transaction.remove.expired.transaction.cleanup.interval.ms"),
	}
}

// settingsReader parses the values in effect of a table.
type settingsReader struct {
	table *ConfigTable
	get   func(*ConfigKey) (string, bool)
}

// value returns the value of a key. A stored text that this version does not accept counts as not
// set: another version accepted it, and a topic must not stop a node.
func (r settingsReader) value(name string) value {
	key := r.table.Key(name)
	text, ok := r.get(key)
	if !ok {
		return value{}
	}
	v, err := key.parse(text)
	if err != nil {
		v, _ = key.parse(key.Default)
	}
	return v
}

func (r settingsReader) int(name string) int { return int(r.value(name).num) }

func (r settingsReader) millis(name string) time.Duration { return millis(r.value(name).num) }

// rate is a number of bytes a second; 0 is no limit. The least limit is one byte.
func (r settingsReader) rate(name string) int64 {
	if n := r.value(name).num; n != math.MaxInt64 {
		return max(n, 1)
	}
	return 0
}

// seconds converts seconds; what is beyond a Duration is the greatest one.
func seconds(s int64) time.Duration {
	if s > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s) * time.Second
}

// millis converts milliseconds; what is beyond a Duration, 292 years, is the greatest one.
func millis(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(max(ms, -1)) * time.Millisecond
}
