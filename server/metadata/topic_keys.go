package metadata

import (
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxLong is the text of the greatest 64-bit integer: for a limit, none.
const maxLong = "9223372036854775807"

// The factors of synonyms in other units, in milliseconds.
const (
	inMinutes = 60 * 1000
	inHours   = 60 * inMinutes
)

func same(name string) []Synonym { return []Synonym{{name, 1}} }

// throttled allows "*" or a list of partition:broker pairs.
func throttled() check {
	pair := regexp.MustCompile(`^[0-9]{1,9}:[0-9]{1,9}$`)
	return check{"* or a list of partition:broker pairs", func(v value) bool {
		if len(v.list) == 1 && v.list[0] == "*" {
			return true
		}
		for _, item := range v.list {
			if !pair.MatchString(item) {
				return false
			}
		}
		return true
	}}
}

// ThrottledReplicas is a set of replicas that a replication quota is for. Nil is none.
type ThrottledReplicas struct {
	all   bool
	pairs map[replica]bool
}

// replica is one replica of a topic.
type replica struct{ partition, broker int64 }

// Has reports whether the replica of a partition on a broker is one of them.
func (r *ThrottledReplicas) Has(partition, broker int32) bool {
	return r != nil && (r.all || r.pairs[replica{int64(partition), int64(broker)}])
}

// throttledReplicas parses a list that throttled allowed.
func throttledReplicas(list []string) *ThrottledReplicas {
	if len(list) == 0 {
		return nil
	}
	r := &ThrottledReplicas{all: list[0] == "*", pairs: make(map[replica]bool)}
	for _, item := range list {
		partition, broker, _ := strings.Cut(item, ":")
		p, ok := parseInteger(partition, 64)
		if b, also := parseInteger(broker, 64); ok && also {
			r.pairs[replica{p, b}] = true
		}
	}
	return r
}

func topicRetentionKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "cleanup.policy", Type: kmsg.ConfigTypeList, Default: "delete", check: setOf("compact", "delete"),
		Synonyms: same("log.cleanup.policy"), Acts: true,
		Doc: "What becomes of old records: delete drops segments by retention.ms and retention.bytes; compact keeps the " +
			"latest value of each key, and a topic with it refuses records without a key; both may be given; with neither, " +
			"records stay for ever.",
	}, {
		Name: "file.delete.delay.ms", Type: kmsg.ConfigTypeLong, Default: "60000", check: atLeast(0),
		Synonyms: same("log.segment.delete.delay.ms"), Acts: true,
		Doc: "How long the file of a deleted segment stays on disk, so that reads of it can end.",
	}, {
		Name: "retention.bytes", Type: kmsg.ConfigTypeLong, Default: "-1",
		Synonyms: same("log.retention.bytes"), Acts: true,
		Doc: "The size above which the oldest segments of a partition are deleted. Negative is no limit.",
	}, {
		Name: "retention.ms", Type: kmsg.ConfigTypeLong, Default: "604800000", check: atLeast(-1),
		Synonyms: []Synonym{{"log.retention.ms", 1}, {"log.retention.minutes", inMinutes}, {"log.retention.hours", inHours}},
		Acts:     true,
		Doc:      "The age above which segments are deleted, by the greatest timestamp in them. -1 is no limit.",
	}}
}

func topicSegmentKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "flush.messages", Type: kmsg.ConfigTypeLong, Default: maxLong, check: atLeast(1),
		Synonyms: same("log.flush.interval.messages"), Acts: true,
		Doc: "The number of records after which a log is synced to disk, whatever log.sync says.",
	}, {
		Name: "flush.ms", Type: kmsg.ConfigTypeLong, Default: maxLong, check: atLeast(0),
		Synonyms: []Synonym{{"log.flush.interval.ms", 1}, {"log.flush.scheduler.interval.ms", 1}}, Acts: true,
		Doc: "The time after which a written record is synced to disk, whatever log.sync says.",
	}, {
		Name: "index.interval.bytes", Type: kmsg.ConfigTypeInt, Default: "4096", check: atLeast(0),
		Synonyms: same("log.index.interval.bytes"), Acts: true,
		Doc: "The bytes of records between two entries of the offset index.",
	}, {
		Name: "internal.segment.bytes", Type: kmsg.ConfigTypeInt, NoDefault: true, check: atLeast(14),
		Acts: true, Hidden: true,
		Doc: "For tests: a segment size below what segment.bytes allows. Where it is set it takes its place.",
	}, {
		Name: "preallocate", Type: kmsg.ConfigTypeBoolean, Default: "false",
		Synonyms: same("log.preallocate"),
		Doc:      "Whether the file of a new segment gets its full size at once.",
	}, {
		Name: "segment.bytes", Type: kmsg.ConfigTypeInt, Default: "1073741824", check: atLeast(1 << 20),
		Synonyms: same("log.segment.bytes"), Acts: true,
		Doc: "The size at which a new segment is begun. Retention works on whole segments.",
	}, {
		Name: "segment.index.bytes", Type: kmsg.ConfigTypeInt, Default: "10485760", check: atLeast(4),
		Synonyms: same("log.index.size.max.bytes"), Acts: true,
		Doc: "The size of an index at which a new segment is begun.",
	}, {
		Name: "segment.jitter.ms", Type: kmsg.ConfigTypeLong, Default: "0", check: atLeast(0),
		Synonyms: []Synonym{{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", inHours}}, Acts: true,
		Doc: "The most that is taken off segment.ms at random, so that not all partitions begin a segment at once.",
	}, {
		Name: "segment.ms", Type: kmsg.ConfigTypeLong, Default: "604800000", check: atLeast(1),
		Synonyms: []Synonym{{"log.roll.ms", 1}, {"log.roll.hours", inHours}}, Acts: true,
		Doc: "The age at which a new segment is begun even if the old one is not full.",
	}}
}

func topicMessageKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "compression.gzip.level", Type: kmsg.ConfigTypeInt, Default: "-1", check: gzipLevel(),
		Synonyms: same("compression.gzip.level"), Acts: true,
		Doc: "The gzip level where compression.type is gzip; -1 is gzip's own default.",
	}, {
		Name: "compression.lz4.level", Type: kmsg.ConfigTypeInt, Default: "9", check: between(1, 17),
		Synonyms: same("compression.lz4.level"), Acts: true,
		Doc: "The lz4 level where compression.type is lz4.",
	}, {
		Name: "compression.type", Type: kmsg.ConfigTypeString, Default: "producer", check: compressionTypes(),
		Synonyms: same("compression.type"), Acts: true,
		Doc: "How batches are stored: producer keeps what the producer chose; any other value compresses them anew.",
	}, {
		Name: "compression.zstd.level", Type: kmsg.ConfigTypeInt, Default: "3", check: between(-131072, 22),
		Synonyms: same("compression.zstd.level"), Acts: true,
		Doc: "The zstd level where compression.type is zstd.",
	}, {
		Name: "max.message.bytes", Type: kmsg.ConfigTypeInt, Default: "1048588", check: atLeast(0),
		Synonyms: same("message.max.bytes"), Acts: true,
		Doc: "The greatest size of a record batch, compressed, with its header.",
	}, {
		Name: "message.timestamp.after.max.ms", Type: kmsg.ConfigTypeLong, Default: "3600000", check: atLeast(0),
		Synonyms: same("log.message.timestamp.after.max.ms"), Acts: true,
		Doc: "How far a record's CreateTime may be ahead of the broker's clock.",
	}, {
		Name: "message.timestamp.before.max.ms", Type: kmsg.ConfigTypeLong, Default: maxLong, check: atLeast(0),
		Synonyms: same("log.message.timestamp.before.max.ms"), Acts: true,
		Doc: "How far a record's CreateTime may be behind the broker's clock.",
	}, {
		Name: "message.timestamp.type", Type: kmsg.ConfigTypeString, Default: "CreateTime",
		check:    oneOf("CreateTime", "LogAppendTime"),
		Synonyms: same("log.message.timestamp.type"), Acts: true,
		Doc: "Whose clock a record's timestamp is of: the producer's (CreateTime) or the broker's (LogAppendTime).",
	}, {
		Name: minISRKey, Type: kmsg.ConfigTypeInt, Default: "1", check: atLeast(1),
		Synonyms: same(minISRKey), Acts: true,
		Doc: "The number of in-sync replicas below which a produce with acks=all is refused and nothing new becomes " +
			"visible to readers. More than the topic has replicas is allowed and refuses all of them.",
	}}
}

func gzipLevel() check {
	return check{"between 1 and 9, or -1", func(v value) bool { return v.num >= 1 && v.num <= 9 || v.num == -1 }}
}

func compressionTypes() check {
	return oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
}

func topicCompactionKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "delete.retention.ms", Type: kmsg.ConfigTypeLong, Default: "86400000", check: atLeast(0),
		Synonyms: same("log.cleaner.delete.retention.ms"), Acts: true,
		Doc: "How long compaction keeps the tombstone of a key, so that readers learn of the deletion.",
	}, {
		Name: "max.compaction.lag.ms", Type: kmsg.ConfigTypeLong, Default: maxLong, check: atLeast(1),
		Synonyms: same("log.cleaner.max.compaction.lag.ms"), Acts: true,
		Doc: "The age above which a record must be compacted, whatever part of the log is new. Segments roll at that age.",
	}, {
		Name: "min.cleanable.dirty.ratio", Type: kmsg.ConfigTypeDouble, Default: "0.5", check: betweenReal(0, 1),
		Synonyms: same("log.cleaner.min.cleanable.ratio"), Acts: true,
		Doc: "The part of a log that must be new before it is compacted.",
	}, {
		Name: "min.compaction.lag.ms", Type: kmsg.ConfigTypeLong, Default: "0", check: atLeast(0),
		Synonyms: same("log.cleaner.min.compaction.lag.ms"), Acts: true,
		Doc: "The age below which a segment's records are not compacted. At most max.compaction.lag.ms.",
	}}
}

func topicReplicationKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "follower.replication.throttled.replicas", Type: kmsg.ConfigTypeList, check: throttled(), Acts: true,
		Doc: "The replicas whose fetching counts against the follower's replication quota while they are out of sync.",
	}, {
		Name: "leader.replication.throttled.replicas", Type: kmsg.ConfigTypeList, check: throttled(), Acts: true,
		Doc: "The replicas whose being fetched counts against the leader's replication quota while they are out of sync.",
	}, {
		Name: uncleanKey, Type: kmsg.ConfigTypeBoolean, Default: "false",
		Synonyms: same(uncleanKey), Acts: true,
		Doc: "Whether a replica that is not in sync may become leader when no other can, at the price of lost records.",
	}}
}

func topicSchemaKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "key.schema.validation", Type: kmsg.ConfigTypeBoolean, Default: "false", Acts: true,
		Doc: "Whether a record is refused unless its key is framed with the id of a schema of the topic's subject and is " +
			"data of that schema.",
	}, {
		Name: "key.subject.name.strategy", Type: kmsg.ConfigTypeString, Default: "TOPIC_NAME",
		check: subjectStrategies(), Acts: true,
		Doc: "The subject that the schemas of keys belong to: the topic's name and -key (TOPIC_NAME), the name of the " +
			"schema's type (RECORD_NAME), or both (TOPIC_RECORD_NAME).",
	}, {
		Name: "value.schema.validation", Type: kmsg.ConfigTypeBoolean, Default: "false", Acts: true,
		Doc: "Whether a record is refused unless its value is null, or is framed with the id of a schema of the topic's " +
			"subject and is data of that schema.",
	}, {
		Name: "value.subject.name.strategy", Type: kmsg.ConfigTypeString, Default: "TOPIC_NAME",
		check: subjectStrategies(), Acts: true,
		Doc: "The subject that the schemas of values belong to; as key.subject.name.strategy.",
	}}
}

// subjectStrategies are the rules by which a subject is named, as the REST API spells them.
func subjectStrategies() check { return oneOf("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME") }

func topicTieredKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "local.retention.bytes", Type: kmsg.ConfigTypeLong, Default: "-2", check: atLeast(-2),
		Synonyms: same("log.local.retention.bytes"),
		Doc:      "The size of the local log where there is remote storage; -2 is retention.bytes.",
	}, {
		Name: "local.retention.ms", Type: kmsg.ConfigTypeLong, Default: "-2", check: atLeast(-2),
		Synonyms: same("log.local.retention.ms"),
		Doc:      "The age of the local log where there is remote storage; -2 is retention.ms.",
	}, {
		Name: "remote.copy.lag.bytes", Type: kmsg.ConfigTypeLong, Default: "0", check: atLeast(-1),
		Doc: "The size a sealed segment waits for before it is copied to remote storage.",
	}, {
		Name: "remote.copy.lag.ms", Type: kmsg.ConfigTypeLong, Default: "0", check: atLeast(-1),
		Doc: "The time a sealed segment waits for before it is copied to remote storage.",
	}, {
		Name: "remote.log.copy.disable", Type: kmsg.ConfigTypeBoolean, Default: "false",
		Doc: "Whether copying to remote storage is stopped.",
	}, {
		Name: "remote.log.delete.on.disable", Type: kmsg.ConfigTypeBoolean, Default: "false",
		Doc: "Whether remote data is deleted when remote storage is turned off.",
	}, {
		Name: "remote.storage.enable", Type: kmsg.ConfigTypeBoolean, Default: "false",
		check: check{"false: there is no remote storage", func(v value) bool { return !v.yes }},
		Doc:   "Whether old segments move to remote storage. There is none, so true is refused.",
	}}
}
