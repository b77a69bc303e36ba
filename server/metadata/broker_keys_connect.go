package metadata

import "github.com/twmb/franz-go/pkg/kmsg"

// brokerConnectKeys are the settings of the workers that run connectors: those of a Kafka Connect worker by its names,
// with connect. in front. They are read when the node starts, and all nodes should have the same.
func brokerConnectKeys() []ConfigKey {
	text, named, yes, number := connectText, connectName, connectYes, connectNumber
	policy := text("connector.client.config.override.policy", "All",
		"Which settings of clients connectors may override.")
	policy.check = oneOf("All", "None", "Principal")
	paths := ConfigKey{
		Name: "connect.config.providers.file.allowed.paths", Type: kmsg.ConfigTypeList, Default: "", Acts: true,

		Doc: "The folders and files that ${file:...} and ${dir:...} in configs of connectors may read; none by default.",
	}
	return []ConfigKey{
		yes("enable", "true", "Whether the node runs connectors and serves their API."),
		named("group.id", "connect-cluster", "The group of the workers; also the start of their transactional ids."),
		named("config.storage.topic", "connect-configs", "The topic of the configs of connectors."),
		named("offset.storage.topic", "connect-offsets", "The topic of the offsets of sources."),
		named("status.storage.topic", "connect-status", "The topic of the states of connectors and tasks."),
		number("offset.storage.partitions", "25", between(1, 1000),
			"With how many partitions the topic of offsets is made."),
		number("status.storage.partitions", "5", between(1, 1000),
			"With how many partitions the topic of states is made."),
		number("storage.replication.factor", "-1", between(-1, 32767),
			"With how many replicas these topics are made; below 1 it is three, or as many as there are nodes."),
		named("key.converter", "org.apache.kafka.connect.json.JsonConverter",
			"The converter of keys where a connector names none."),
		yes("key.converter.schemas.enable", "true", "Whether that one writes and expects schemas beside the values."),
		named("value.converter", "org.apache.kafka.connect.json.JsonConverter",
			"The converter of values where a connector names none."),
		yes("value.converter.schemas.enable", "true", "Whether that one writes and expects schemas beside the values."),
		named("header.converter", "org.apache.kafka.connect.storage.SimpleHeaderConverter",
			"The converter of headers where a connector names none."),
		number("session.timeout.ms", "3000", between(1000, 300000),
			"How long a worker may be silent before others run what it ran."),
		number("heartbeat.interval.ms", "500", between(50, 60000),
			"How often a worker is heard of, and hears of changes."),
		number("rebalance.timeout.ms", "10000", between(1000, 300000), "How long a rebalance waits for a worker."),
		number("offset.flush.interval.ms", "5000", between(10, 3600000),
			"How often a sink is asked what may be committed."),
		number("task.shutdown.graceful.timeout.ms", "5000", between(1, 300000),
			"How long a task may take to stop before it is abandoned."),
		number("restart.backoff.ms", "1000", between(10, 3600000),
			"The time before what failed is started again; it doubles each time."),
		number("restart.backoff.max.ms", "300000", between(10, 86400000), "The longest such time."),
		number("restart.healthy.ms", "600000", between(10, 86400000),
			"After how long without a failure the next one counts as the first."),
		policy,
		yes("topic.creation.enable", "true",
			"Whether sources make topics that do not exist, by the rules of their configs."),
		yes("topic.tracking.enable", "true", "Whether it is kept which topics a connector uses."),
		yes("topic.tracking.allow.reset", "true", "Whether that may be forgotten on request."),
		yes("reveal.secrets", "false", "Whether passwords are shown to those who read configs."),
		paths,
		text("config.providers.env.allowlist.pattern", "",

			"A regular expression of the variables that ${env:...} in configs of connectors may read; none by default."),
	}
}

func connectText(name, standard, doc string) ConfigKey {
	return ConfigKey{Name: "connect." + name, Type: kmsg.ConfigTypeString, Default: standard, Acts: true, Doc: doc}
}

func connectName(name, standard, doc string) ConfigKey {
	k := connectText(name, standard, doc)
	k.check = check{"not empty", func(v value) bool { return v.text != "" }}
	return k
}

func connectYes(name, standard, doc string) ConfigKey {
	return ConfigKey{Name: "connect." + name, Type: boolType, Default: standard, Acts: true, Doc: doc}
}

func connectNumber(name, standard string, c check, doc string) ConfigKey {
	return ConfigKey{Name: "connect." + name, Type: intType, Default: standard, check: c, Acts: true, Doc: doc}
}
