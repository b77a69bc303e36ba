package metadata

import "github.com/twmb/franz-go/pkg/kmsg"

const (
	intType  = kmsg.ConfigTypeInt
	longType = kmsg.ConfigTypeLong
	boolType = kmsg.ConfigTypeBoolean
	maxInt   = "2147483647"
)

// brokerDefaultKeys makes the broker keys that are the first synonym of a topic key: the same values,
// and the same default unless further synonyms supply it.
func brokerDefaultKeys(topicKeys ...[]ConfigKey) []ConfigKey {
	var keys []ConfigKey
	for _, group := range topicKeys {
		for _, topic := range group {
			if len(topic.Synonyms) == 0 {
				continue
			}
			key := topic
			key.Name, key.Synonyms, key.Update = topic.Synonyms[0].Name, nil, ClusterWide
			if len(topic.Synonyms) > 1 {
				key.Default, key.NoDefault = "", true
			}
			key.Doc = "The default of the topic configuration " + topic.Name + "."
			keys = append(keys, key)
		}
	}
	return keys
}

// brokerUnitKeys are the further synonyms of topic keys.
func brokerUnitKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "log.flush.scheduler.interval.ms", Type: longType, Default: maxLong, check: atLeast(0),
		Update: ClusterWide, Acts: true,
		Doc: "The default of the topic configuration flush.ms, where log.flush.interval.ms is not set.",
	}, {
		Name: "log.retention.minutes", Type: intType, NoDefault: true, check: atLeast(-1), Update: ClusterWide, Acts: true,
		Doc: "The default of the topic configuration retention.ms in minutes, where log.retention.ms is not set.",
	}, {
		Name: "log.retention.hours", Type: intType, Default: "168", check: atLeast(-1), Update: ClusterWide, Acts: true,
		Doc: "The default of the topic configuration retention.ms in hours, where neither log.retention.ms nor " +
			"log.retention.minutes is set.",
	}, {
		Name: "log.roll.hours", Type: intType, Default: "168", check: atLeast(1), Update: ClusterWide, Acts: true,
		Doc: "The default of the topic configuration segment.ms in hours, where log.roll.ms is not set.",
	}, {
		Name: "log.roll.jitter.hours", Type: intType, Default: "0", check: atLeast(0), Update: ClusterWide, Acts: true,
		Doc: "The default of the topic configuration segment.jitter.ms in hours, where log.roll.jitter.ms is not set.",
	}}
}

func brokerTopicKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "auto.create.topics.enable", Type: boolType, Default: "true", Acts: true,
		Doc: "Whether producing to a topic that does not exist creates it.",
	}, {
		Name: "default.replication.factor", Type: intType, Default: "1", check: between(1, 32767), Acts: true,
		Doc: "The number of replicas of a topic created without one.",
	}, {
		Name: "delete.topic.enable", Type: boolType, Default: "true", Acts: true,
		Doc: "Whether topics may be deleted.",
	}, {
		Name: "num.partitions", Type: intType, Default: "1", check: atLeast(1), Acts: true,
		Doc: "The number of partitions of a topic created without one.",
	}}
}

func brokerLimitKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "connections.max.idle.ms", Type: longType, Default: "600000",
		Doc: "The time after which an idle connection is closed.",
	}, {
		Name: "fetch.max.bytes", Type: intType, Default: "57671680", check: atLeast(1024), Acts: true,
		Doc: "The most that a broker answers to one fetch, whatever the request asks for.",
	}, {
		Name: "max.incremental.fetch.session.cache.slots", Type: intType, Default: "1000", check: atLeast(0),
		Doc: "The number of incremental fetch sessions a broker keeps.",
	}, {
		Name: "max.request.partition.size.limit", Type: intType, Default: "2000", check: atLeast(1),
		Doc: "The most partitions that one DescribeTopicPartitions answers.",
	}, {
		Name: "queued.max.requests", Type: intType, Default: "500", check: atLeast(1),
		Doc: "The number of requests that wait for a thread before reading from the network stops.",
	}, {
		Name: "quota.window.num", Type: intType, Default: "11", check: atLeast(1),
		Doc: "The number of samples kept to measure client quotas.",
	}, {
		Name: "quota.window.size.seconds", Type: intType, Default: "1", check: atLeast(1),
		Doc: "The length of one sample of client quotas.",
	}, {
		Name: "socket.request.max.bytes", Type: intType, Default: "104857600", check: atLeast(1),
		Doc: "The greatest request of the Kafka protocol.",
	}}
}

func brokerThreadKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "background.threads", Type: intType, Default: "10", check: atLeast(1), Update: ClusterWide, pool: true,
		Doc: "Threads for background tasks.",
	}, {
		Name: "num.io.threads", Type: intType, Default: "8", check: atLeast(1), Update: ClusterWide, pool: true,
		Doc: "Threads that work on requests.",
	}, {
		Name: "num.network.threads", Type: intType, Default: "3", check: atLeast(1), Update: ClusterWide, pool: true,
		Doc: "Threads that read and write the network.",
	}, {
		Name: "num.recovery.threads.per.data.dir", Type: intType, Default: "2", check: atLeast(1),
		Update: ClusterWide, pool: true,
		Doc: "Threads that recover logs when a broker starts.",
	}, {
		Name: "num.replica.fetchers", Type: intType, Default: "1", check: atLeast(1), Update: ClusterWide, pool: true,
		Doc: "Connections over which a follower fetches from each leader.",
	}}
}

func brokerLogKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "log.flush.offset.checkpoint.interval.ms", Type: intType, Default: "60000", check: atLeast(0), Acts: true,
		Doc: "How often the recovery points of all logs are written down.",
	}, {
		Name: "log.flush.start.offset.checkpoint.interval.ms", Type: intType, Default: "60000", check: atLeast(0),
		Doc: "How often the start offsets of all logs are written down. Now it is whenever recovery points are.",
	}, {
		Name: "log.initial.task.delay.ms", Type: longType, Default: "30000", check: atLeast(0), Acts: true,
		Doc: "How long after its start a broker begins retention and checkpoints.",
	}, {
		Name: "log.retention.check.interval.ms", Type: longType, Default: "300000", check: atLeast(1), Acts: true,
		Doc: "How often logs are checked for segments to delete.",
	}, {
		Name: "log.scrub.interval.ms", Type: longType, Default: "604800000", check: atLeast(0), Acts: true,
		Doc: "How often a node reads all that is committed in its logs to find damage, which is then fetched anew from " +
			"another replica; 0 is never. A node begins within the first seventh of it.",
	}, {
		Name: "log.sync", Type: kmsg.ConfigTypeString, Default: "ack", check: oneOf("ack", "interval", "never"), Acts: true,
		Doc: "When written records are synced to disk: ack before acks=all is answered; interval every " +
			"log.sync.interval.ms; never leaves it to the operating system. Only ack survives a power cut whole.",
	}, {
		Name: "log.sync.interval.ms", Type: longType, Default: "1000", check: atLeast(1), Acts: true,
		Doc: "The time between syncs where log.sync is interval.",
	}}
}

func brokerCleanerKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "log.cleaner.backoff.ms", Type: longType, Default: "15000", check: atLeast(0), Update: ClusterWide,
		Acts: true,
		Doc:  "How long compaction sleeps when there is nothing to compact.",
	}, {
		Name: "log.cleaner.dedupe.buffer.size", Type: longType, Default: "46137344", check: atLeast(1 << 20),
		Update: ClusterWide, Acts: true,
		Doc: "The memory for the keys of compaction, 20 bytes each. More keys are taken share by share, for which the log " +
			"is read again.",
	}, {
		Name: "log.cleaner.enable", Type: boolType, Default: "true", Update: ClusterWide, Acts: true,
		Doc: "Whether logs are compacted on this node.",
	}, {
		Name: "log.cleaner.io.buffer.size", Type: intType, Default: "524288", check: atLeast(0), Update: ClusterWide,
		Acts: true,
		Doc:  "How many bytes compaction reads, and writes, at a time; at least 65536 are, at most 8388608.",
	}, {
		Name: "log.cleaner.io.max.bytes.per.second", Type: kmsg.ConfigTypeDouble, Default: "1.7976931348623157E308",
		check: betweenReal(1, 1.7976931348623157e308), Update: ClusterWide, Acts: true,
		Doc: "The rate at which compaction reads and writes; the default is no limit.",
	}, {
		Name: "log.cleaner.threads", Type: intType, Default: "1", check: atLeast(1), Update: ClusterWide, pool: true,
		Doc: "Threads that compact logs: there is one.",
	}}
}

func brokerReplicationKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "follower.replication.throttled.rate", Type: longType, Default: maxLong, check: atLeast(0),
		Update: ClusterWide, Acts: true,
		Doc: "Bytes a second that a broker's throttled replicas may fetch, all together.",
	}, {
		Name: "leader.replication.throttled.rate", Type: longType, Default: maxLong, check: atLeast(0),
		Update: ClusterWide, Acts: true,
		Doc: "Bytes a second that a broker may send to throttled replicas, all together.",
	}, {
		Name: "replica.fetch.backoff.ms", Type: intType, Default: "1000", check: atLeast(0), Acts: true,
		Doc: "How long a follower waits after a fetch that failed.",
	}, {
		Name: "replica.fetch.max.bytes", Type: intType, Default: "1048576", check: atLeast(0), Acts: true,
		Doc: "The bytes a follower asks for from one partition.",
	}, {
		Name: "replica.fetch.min.bytes", Type: intType, Default: "1", check: atLeast(0), Acts: true,
		Doc: "The bytes a follower's fetch waits for.",
	}, {
		Name: "replica.fetch.response.max.bytes", Type: intType, Default: "10485760", check: atLeast(0), Acts: true,
		Doc: "The bytes a follower asks for in one fetch.",
	}, {
		Name: "replica.fetch.wait.max.ms", Type: intType, Default: "500", check: atLeast(0), Acts: true,
		Doc: "The longest that a follower's fetch waits.",
	}, {
		Name: "replica.high.watermark.checkpoint.interval.ms", Type: longType, Default: "5000", check: atLeast(1), Acts: true,
		Doc: "How often the high watermarks of all partitions are written down.",
	}, {
		Name: "replica.lag.time.max.ms", Type: longType, Default: "30000", check: atLeast(1), Acts: true,
		Doc: "How long a follower may lag before it leaves the ISR.",
	}, {
		Name: "replica.selector.class", Type: kmsg.ConfigTypeString, NoDefault: true,
		Doc: "How the replica that a consumer reads from is chosen; not set, it is the leader.",
	}}
}

func brokerControllerKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "auto.leader.rebalance.enable", Type: boolType, Default: "true", Acts: true,
		Doc: "Whether leaderships go back to preferred replicas by themselves.",
	}, {
		Name: "broker.heartbeat.interval.ms", Type: intType, Default: "2000", check: atLeast(1), Acts: true,
		Doc: "How often a broker tells the controller that it lives.",
	}, {
		Name: "broker.rack", Type: kmsg.ConfigTypeString, NoDefault: true, Acts: true,
		Doc: "Where the broker stands. Replicas of a partition go to different racks, and consumers that name a rack read " +
			"from a replica there.",
	}, {
		Name: "broker.session.timeout.ms", Type: intType, Default: "9000", check: atLeast(1), Acts: true,
		Doc: "The time without a heartbeat after which a broker is fenced: others lead its partitions then. More than " +
			"broker.heartbeat.interval.ms.",
	}, {
		Name: "controlled.shutdown.enable", Type: boolType, Default: "true", Acts: true,
		Doc: "Whether a broker hands over its leaderships before it stops.",
	}, {
		Name: "initial.broker.registration.timeout.ms", Type: intType, Default: "60000", check: atLeast(1),
		Doc: "How long a starting broker tries to register.",
	}, {
		Name: "leader.imbalance.check.interval.seconds", Type: longType, Default: "300", check: atLeast(1), Acts: true,
		Doc: "How often the balance of leaderships is checked.",
	}, {
		Name: "leader.imbalance.per.broker.percentage", Type: intType, Default: "10", check: atLeast(0), Acts: true,
		Doc: "The part of a broker's leaderships that may be elsewhere before they are moved back.",
	}, {
		Name: "unclean.leader.election.interval.ms", Type: longType, Default: "300000", check: atLeast(1),
		Doc: "How often partitions are looked for that need an unclean election.",
	}}
}

func brokerListenerKeys() []ConfigKey {
	text, list := kmsg.ConfigTypeString, kmsg.ConfigTypeList
	return []ConfigKey{{
		Name: "advertised.listeners", Type: list, NoDefault: true, Acts: true,
		Doc: "The base URLs under which others reach the node, such as http://node1.example:8082, one a scheme: links in " +
			"answers begin with them. Not set, it is the host that a request names.",
	}, {
		Name: "listener.security.protocol.map", Type: text, NoDefault: true, Update: PerBroker,
		Doc: "The security protocol of each listener of the Kafka protocol.",
	}, {
		Name: "listeners", Type: list, NoDefault: true, Update: PerBroker,
		Doc: "The addresses of the Kafka protocol. The HTTP address is set when the node starts.",
	}, {
		Name: "max.connection.creation.rate", Type: intType, Default: maxInt, check: atLeast(0), Update: ClusterWide,
		Doc: "The connections a second that a broker accepts.",
	}, {
		Name: "max.connections", Type: intType, Default: maxInt, check: atLeast(0), Update: ClusterWide,
		Doc: "The connections a broker holds at a time.",
	}, {
		Name: "max.connections.per.ip", Type: intType, Default: maxInt, check: atLeast(0), Update: ClusterWide,
		Doc: "The connections a broker holds at a time from one address.",
	}, {
		Name: "max.connections.per.ip.overrides", Type: text, Update: ClusterWide,
		Doc: "max.connections.per.ip for certain addresses.",
	}, {
		Name: "metric.reporters", Type: list, Update: ClusterWide,
		Doc: "Classes that report metrics. Metrics are at /metrics.",
	}, {
		Name: "principal.builder.class", Type: kmsg.ConfigTypeClass, NoDefault: true, Update: PerBroker,
		Doc: "How the name of a client is made from its credentials.",
	}, {
		Name: "ssl.keystore.location", Type: text, NoDefault: true, Update: PerBroker,
		Doc: "The file of the broker's certificate.",
	}, {
		Name: "ssl.keystore.type", Type: text, Default: "JKS", Update: PerBroker,
		Doc: "The format of the broker's certificate file.",
	}}
}
