package metadata_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
)

func TestClusterSettings(t *testing.T) {
	s := configured(t, map[string]string{
		"broker.rack": "east", "broker.session.timeout.ms": "600", "broker.heartbeat.interval.ms": "200",
		"controlled.shutdown.enable": "false", "auto.leader.rebalance.enable": "false",
		"leader.imbalance.check.interval.seconds": "9223372036854775807", "leader.imbalance.per.broker.percentage": "0",
		"replica.lag.time.max.ms": "1", "replica.fetch.wait.max.ms": "2", "replica.fetch.min.bytes": "3",
		"replica.fetch.max.bytes": "4", "replica.fetch.response.max.bytes": "5", "replica.fetch.backoff.ms": "6",
		"leader.replication.throttled.rate": "7",
	}, map[string][]string{"broker 1": {"follower.replication.throttled.rate=0"}}).Image().Settings()
	require.Equal(t, "east", s.Rack)
	require.Equal(t, 600*time.Millisecond, s.SessionTimeout)
	require.Equal(t, 200*time.Millisecond, s.HeartbeatInterval)
	require.False(t, s.ControlledShutdown || s.AutoLeaderRebalance)
	require.Equal(t, time.Duration(math.MaxInt64), s.LeaderImbalanceCheckInterval)
	require.Zero(t, s.LeaderImbalancePercent)
	require.Equal(t, time.Millisecond, s.ReplicaLagTimeMax)
	require.Equal(t, 2*time.Millisecond, s.ReplicaFetchWaitMax)
	require.Equal(t, 3, s.ReplicaFetchMinBytes)
	require.Equal(t, 4, s.ReplicaFetchMaxBytes)
	require.Equal(t, 5, s.ReplicaFetchResponseMaxBytes)
	require.Equal(t, 6*time.Millisecond, s.ReplicaFetchBackoff)
	require.Equal(t, int64(7), s.LeaderThrottleRate)
	require.Equal(t, int64(1), s.FollowerThrottleRate, "0 is a limit, not its absence")
}

func TestSessionMustOutlastHeartbeats(t *testing.T) {
	for _, static := range []map[string]string{
		{"broker.session.timeout.ms": "2000"}, {"broker.heartbeat.interval.ms": "9000"},
		{"broker.session.timeout.ms": "5", "broker.heartbeat.interval.ms": "5"},
	} {
		_, err := metadata.NewMachine(metadata.Options{Static: static})
		require.ErrorContains(t, err, "broker.session.timeout.ms: it must be more than broker.heartbeat.interval.ms")
	}
}

func TestThrottledReplicas(t *testing.T) {
	s := configured(t, nil, map[string][]string{"topic": {
		"leader.replication.throttled.replicas=0:1, 12:3", "follower.replication.throttled.replicas=*",
	}}).Image().Topic("have").Settings
	require.True(t, s.ThrottledLeader.Has(0, 1) && s.ThrottledLeader.Has(12, 3))
	require.False(t, s.ThrottledLeader.Has(0, 3) || s.ThrottledLeader.Has(12, 1))
	require.True(t, s.ThrottledFollower.Has(5, 5))
	var none *metadata.ThrottledReplicas
	require.False(t, none.Has(0, 1))
}

// TestAgreedValues checks that what decides elections is the same on nodes with other files, and
// described as it is.
func TestAgreedValues(t *testing.T) {
	m := configured(t, map[string]string{"min.insync.replicas": "3"}, map[string][]string{
		"broker 1": {"min.insync.replicas=5", "unclean.leader.election.enable=true"},
	})
	const key = "min.insync.replicas"
	require.Equal(t, metadata.Defaults{MinISR: 3}, m.Image().StaticDefaults(), "what the file says")
	require.Equal(t, 5, m.Image().Topic("have").Settings.MinInsyncReplicas, "as long as nothing is agreed")

	apply(t, m, &metadata.RegisterBroker{
		ID: 3, Incarnation: metadata.UUID{3}, Fenced: true, Defaults: metadata.Defaults{MinISR: 2},
	})
	topic := m.Image().Topic("have")
	require.Equal(t, 2, topic.Settings.MinInsyncReplicas)
	require.False(t, topic.Settings.UncleanLeaderElection)
	require.Equal(t, "2 (4) min.insync.replicas=2 (4) min.insync.replicas=1 (5)",
		describe(m.Image().TopicConfigs(topic), key))

	alter := func(kind metadata.ResourceType, name, value string) {
		apply(t, m, &metadata.AlterConfigs{Resources: []metadata.AlterResource{{
			Type: kind, Name: name, Operations: []metadata.AlterKey{{Name: key, Value: &value}},
		}}})
	}
	alter(metadata.BrokerResource, "", "4")
	topic = m.Image().Topic("have")
	require.Equal(t, 4, topic.Settings.MinInsyncReplicas)
	alter(metadata.TopicResource, "have", "1")
	topic = m.Image().Topic("have")
	require.Equal(t, 1, topic.Settings.MinInsyncReplicas)
	require.Equal(t, "1 (1) min.insync.replicas=1 (1) min.insync.replicas=4 (3) min.insync.replicas=2 (4) "+
		"min.insync.replicas=1 (5)", describe(m.Image().TopicConfigs(topic), key))
}

func TestBrokersOfAnImage(t *testing.T) {
	m := newMachine(t, nil)
	setUp(t, m)
	require.True(t, m.Image().Active(1))
	require.False(t, m.Image().Active(2))
	require.Equal(t, int64(1), m.Image().BrokerEpoch(1))
	require.Equal(t, int64(-1), m.Image().BrokerEpoch(2))
	for state, active := range map[metadata.BrokerState]bool{
		metadata.BrokerFenced: false, metadata.BrokerShuttingDown: false, metadata.BrokerActive: true,
	} {
		apply(t, m, &metadata.ChangeBrokers{Changes: []metadata.BrokerChange{
			{ID: 1, Epoch: 1, State: metadata.BrokerActive},
		}})
		apply(t, m, &metadata.ChangeBrokers{Changes: []metadata.BrokerChange{{ID: 1, Epoch: 1, State: state}}})
		require.Equal(t, active, m.Image().Active(1), state)
		require.Equal(t, state, m.Image().Broker(1).State())
	}
}

// TestDiffOfPartitions checks that a change of partitions is a change of their topics, and a change of
// brokers alone of none.
func TestDiffOfPartitions(t *testing.T) {
	m := newMachine(t, nil)
	setUp(t, m)
	old := m.Image()
	apply(t, m, &metadata.RegisterBroker{ID: 2, Incarnation: metadata.UUID{2}, Fenced: true})
	apply(t, m, &metadata.ChangeBrokers{Changes: []metadata.BrokerChange{
		{ID: 2, Epoch: m.Image().BrokerEpoch(2), State: metadata.BrokerActive},
	}})
	require.Empty(t, metadata.Diff(old, m.Image()))
	apply(t, m, &metadata.ChangeBrokers{Changes: []metadata.BrokerChange{{ID: 1, Epoch: 1, State: metadata.BrokerFenced}}})
	changes := metadata.Diff(old, m.Image())
	require.Len(t, changes, 1)
	require.Equal(t, "~have", drawChange(changes[0]))
	require.Equal(t, int32(1), changes[0].Old.Partitions[0].Leader, "old images stay")
	require.Equal(t, metadata.NoLeader, changes[0].New.Partitions[0].Leader)
}
