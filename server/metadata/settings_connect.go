package metadata

import "time"

// ConnectSettings are the settings of the worker that runs connectors.
type ConnectSettings struct {
	Enable                                bool
	GroupID                               string
	ConfigTopic, OffsetTopic, StatusTopic string
	OffsetPartitions, StatusPartitions    int32
	Replication                           int16

	KeyConverter, ValueConverter, HeaderConverter string
	KeySchemas, ValueSchemas                      bool

	SessionTimeout      time.Duration
	HeartbeatInterval   time.Duration
	RebalanceTimeout    time.Duration
	OffsetFlushInterval time.Duration
	TaskShutdownTimeout time.Duration
	RestartBackoff      time.Duration
	RestartBackoffMax   time.Duration
	RestartHealthy      time.Duration

	OverridePolicy     string
	TopicCreation      bool
	TopicTracking      bool
	TopicTrackingReset bool
	RevealSecrets      bool
	FilePaths          []string
	EnvAllow           string
}

func (r settingsReader) connectSettings() ConnectSettings {
	return ConnectSettings{
		Enable:              r.value("connect.enable").yes,
		GroupID:             r.value("connect.group.id").text,
		ConfigTopic:         r.value("connect.config.storage.topic").text,
		OffsetTopic:         r.value("connect.offset.storage.topic").text,
		StatusTopic:         r.value("connect.status.storage.topic").text,
		OffsetPartitions:    int32(r.int("connect.offset.storage.partitions")),
		StatusPartitions:    int32(r.int("connect.status.storage.partitions")),
		Replication:         int16(r.int("connect.storage.replication.factor")),
		KeyConverter:        r.value("connect.key.converter").text,
		ValueConverter:      r.value("connect.value.converter").text,
		HeaderConverter:     r.value("connect.header.converter").text,
		KeySchemas:          r.value("connect.key.converter.schemas.enable").yes,
		ValueSchemas:        r.value("connect.value.converter.schemas.enable").yes,
		SessionTimeout:      r.millis("connect.session.timeout.ms"),
		HeartbeatInterval:   r.millis("connect.heartbeat.interval.ms"),
		RebalanceTimeout:    r.millis("connect.rebalance.timeout.ms"),
		OffsetFlushInterval: r.millis("connect.offset.flush.interval.ms"),
		TaskShutdownTimeout: r.millis("connect.task.shutdown.graceful.timeout.ms"),
		RestartBackoff:      r.millis("connect.restart.backoff.ms"),
		RestartBackoffMax:   r.millis("connect.restart.backoff.max.ms"),
		RestartHealthy:      r.millis("connect.restart.healthy.ms"),
		OverridePolicy:      r.value("connect.connector.client.config.override.policy").text,
		TopicCreation:       r.value("connect.topic.creation.enable").yes,
		TopicTracking:       r.value("connect.topic.tracking.enable").yes,
		TopicTrackingReset:  r.value("connect.topic.tracking.allow.reset").yes,
		RevealSecrets:       r.value("connect.reveal.secrets").yes,
		FilePaths:           r.value("connect.config.providers.file.allowed.paths").list,
		EnvAllow:            r.value("connect.config.providers.env.allowlist.pattern").text,
	}
}
