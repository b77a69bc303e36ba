package metadata

import "github.com/twmb/franz-go/pkg/kmsg"

func brokerTransactionKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "producer.id.expiration.check.interval.ms", Type: intType, Default: "600000", check: atLeast(1), Acts: true,
		Doc: "How often idle producers are looked for.",
	}, {
		Name: "producer.id.expiration.ms", Type: intType, Default: "86400000", check: atLeast(1), Update: ClusterWide,
		Acts: true,
		Doc:  "How long a partition remembers the sequence numbers of a producer that writes nothing.",
	}, {
		Name: "transaction.abort.timed.out.transaction.cleanup.interval.ms", Type: intType, Default: "10000",
		check: atLeast(1), Acts: true,
		Doc: "How often transactions beyond their timeout are looked for, beside when the first one is.",
	}, {
		Name: "transaction.max.timeout.ms", Type: intType, Default: "900000", check: atLeast(1), Acts: true,
		Doc: "The longest timeout that a transactional producer may ask for.",
	}, {
		Name: "transaction.partition.verification.enable", Type: boolType, Default: "true", Update: ClusterWide,
		Doc: "Whether a partition checks with the coordinator that it is part of a transaction.",
	}, {
		Name: "transaction.remove.expired.transaction.cleanup.interval.ms", Type: intType, Default: "3600000",
		check: atLeast(1), Acts: true,
		Doc: "How often transactional ids that expired are removed.",
	}, {
		Name: "transaction.state.log.min.isr", Type: intType, Default: "2", check: atLeast(1), Acts: true,
		Doc: "min.insync.replicas of " + TxnTopic + ".",
	}, {
		Name: "transaction.state.log.num.partitions", Type: intType, Default: "50", check: atLeast(1), Acts: true,
		Doc: "The number of partitions of " + TxnTopic + ".",
	}, {
		Name: "transaction.state.log.replication.factor", Type: kmsg.ConfigTypeShort, Default: "3",
		check: atLeast(1), Acts: true,
		Doc: "The number of replicas of " + TxnTopic + ".",
	}, {
		Name: "transaction.state.log.segment.bytes", Type: intType, Default: "104857600", check: atLeast(1), Acts: true,
		Doc: "segment.bytes of " + TxnTopic + ".",
	}, {
		Name: "transactional.id.expiration.ms", Type: intType, Default: "604800000", check: atLeast(1), Acts: true,
		Doc: "How long a transactional id is kept without use.",
	}}
}

func brokerGroupKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "group.consumer.assignors", Type: kmsg.ConfigTypeList, Default: "uniform,range",
		check: setOf("uniform", "range"), Acts: true,
		Doc: "The assignors that consumer groups may use; the first is the default.",
	}, {
		Name: "group.consumer.assignment.interval.ms", Type: intType, Default: "1000", check: between(0, 15000), Acts: true,
		Doc: "The least time between two assignments of a consumer group.",
	}, {
		Name: "group.consumer.heartbeat.interval.ms", Type: intType, Default: "5000", check: between(5000, 15000),
		Acts: true,
		Doc:  "How often members of a consumer group send heartbeats.",
	}, {
		Name: "group.consumer.max.size", Type: intType, Default: maxInt, check: atLeast(1), Acts: true,
		Doc: "The most members of a consumer group.",
	}, {
		Name: "group.consumer.migration.policy", Type: kmsg.ConfigTypeString, Default: "bidirectional",
		check: oneOf("bidirectional", "upgrade", "downgrade", "disabled"),
		Doc:   "Which way groups may move between the classic and the consumer protocol.",
	}, {
		Name: "group.consumer.regex.refresh.interval.ms", Type: intType, Default: "600000", check: atLeast(10000),
		Acts: true,
		Doc:  "How often the topics that match a subscription by pattern are looked up.",
	}, {
		Name: "group.consumer.session.timeout.ms", Type: intType, Default: "45000", check: between(45000, 60000),
		Acts: true,
		Doc:  "The time without a heartbeat after which a member of a consumer group is removed.",
	}, {
		Name: "group.coordinator.append.linger.ms", Type: intType, Default: "-1", check: atLeast(-1),
		Doc: "How long the group coordinator collects writes; -1 adapts to the load.",
	}, {
		Name: "group.coordinator.threads", Type: intType, Default: "4", check: atLeast(1),
		Doc: "Threads of the group coordinator.",
	}, {
		Name: "group.initial.rebalance.delay.ms", Type: intType, Default: "3000", check: atLeast(0), Acts: true,
		Doc: "How long a new classic group waits for more members.",
	}, {
		Name: "group.max.session.timeout.ms", Type: intType, Default: "1800000", check: atLeast(1), Acts: true,
		Doc: "The longest session timeout of a member of a classic group.",
	}, {
		Name: "group.max.size", Type: intType, Default: maxInt, check: atLeast(1), Acts: true,
		Doc: "The most members of a classic group.",
	}, {
		Name: "group.min.session.timeout.ms", Type: intType, Default: "6000", check: atLeast(1), Acts: true,
		Doc: "The shortest session timeout of a member of a classic group.",
	}}
}

func brokerShareKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "group.share.heartbeat.interval.ms", Type: intType, Default: "5000", check: atLeast(1),
		Doc: "How often members of a share group send heartbeats.",
	}, {
		Name: "group.share.max.size", Type: intType, Default: "200", check: between(1, 1000),
		Doc: "The most members of a share group.",
	}, {
		Name: "group.share.session.timeout.ms", Type: intType, Default: "45000", check: atLeast(1),
		Doc: "The time without a heartbeat after which a member of a share group is removed.",
	}}
}

func brokerOffsetKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "offset.metadata.max.bytes", Type: intType, Default: "4096", check: between(0, 32767), Acts: true,
		Doc: "The longest text that may go with a committed offset.",
	}, {
		Name: "offsets.commit.timeout.ms", Type: intType, Default: "5000", check: atLeast(1), Acts: true,
		Doc: "How long a commit waits for the replicas of " + GroupTopic + ".",
	}, {
		Name: "offsets.retention.check.interval.ms", Type: longType, Default: "600000", check: atLeast(1), Acts: true,
		Doc: "How often committed offsets that expired are looked for.",
	}, {
		Name: "offsets.retention.minutes", Type: intType, Default: "10080", check: atLeast(1), Acts: true,
		Doc: "How long committed offsets outlive their group.",
	}, {
		Name: "offsets.topic.num.partitions", Type: intType, Default: "50", check: atLeast(1), Acts: true,
		Doc: "The number of partitions of " + GroupTopic + ".",
	}, {
		Name: "offsets.topic.replication.factor", Type: kmsg.ConfigTypeShort, Default: "3", check: atLeast(1), Acts: true,
		Doc: "The number of replicas of " + GroupTopic + ".",
	}, {
		Name: "offsets.topic.segment.bytes", Type: intType, Default: "104857600", check: atLeast(1), Acts: true,
		Doc: "segment.bytes of " + GroupTopic + ".",
	}}
}
