package controller

import (
	"time"

	"millrace/server/metadata"
)

// paceConfig is the part of the broker configuration that says when brokers are looked after.
type paceConfig struct {
	SessionTimeout, HeartbeatInterval time.Duration
	AutoLeaderRebalance               bool
	LeaderImbalanceCheckInterval      time.Duration
	LeaderImbalancePercent            int
}

// paceSettings returns Kafka's defaults.
func paceSettings(*metadata.Image) paceConfig {
	return paceConfig{
		SessionTimeout: 9 * time.Second, HeartbeatInterval: 2 * time.Second, AutoLeaderRebalance: true,
		LeaderImbalanceCheckInterval: 300 * time.Second, LeaderImbalancePercent: 10,
	}
}
