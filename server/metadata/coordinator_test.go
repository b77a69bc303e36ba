package metadata_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
)

// The vectors were made with Java's String.hashCode.
func TestCoordinatorPartition(t *testing.T) {
	for _, v := range []struct {
		id         string
		of50, of3  int32
		whatsItFor string
	}{
		{"", 0, 0, "no text"},
		{"a", 47, 1, "a short one"},
		{"my-group", 12, 0, "a negative hash"},
		{"console-consumer-12345", 6, 0, ""},
		{"group-0", 48, 1, ""},
		{"group-1", 49, 2, ""},
		{"connect-cluster", 13, 1, ""},
		{"polygenelubricants", 0, 0, "the hash that has no absolute value"},
		{"Aa", 12, 0, "two texts with one hash"},
		{"BB", 12, 0, "two texts with one hash"},
		{"héllo", 34, 1, "code units, not bytes"},
		{"😀", 49, 1, "two code units"},
		{"txn-1", 10, 2, ""},
		{"orders-processor", 44, 0, ""},
	} {
		require.Equal(t, v.of50, metadata.CoordinatorPartition(v.id, 50), "%q: %s", v.id, v.whatsItFor)
		require.Equal(t, v.of3, metadata.CoordinatorPartition(v.id, 3), "%q: %s", v.id, v.whatsItFor)
		require.Zero(t, metadata.CoordinatorPartition(v.id, 1))
	}
	require.Equal(t, metadata.CoordinatorPartition("\uFFFD", 50), metadata.CoordinatorPartition("\xff", 50),
		"what is no text is read as the replacement character")
}

func TestInternalTopics(t *testing.T) {
	image := configured(t, map[string]string{"offsets.topic.segment.bytes": "1048576"}, nil).Image()
	require.Equal(t, metadata.InternalTopic{
		Partitions: 50, ReplicationFactor: 3, Configs: map[string]string{
			"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "1048576",
		},
	}, image.InternalTopic(metadata.GroupTopic, 5))
	require.Equal(t, metadata.InternalTopic{
		Partitions: 50, ReplicationFactor: 3, Configs: map[string]string{
			"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600",
			"min.insync.replicas": "2", "unclean.leader.election.enable": "false",
		},
	}, image.InternalTopic(metadata.TxnTopic, 3))
	one := image.InternalTopic(metadata.TxnTopic, 1)
	require.Equal(t, int16(1), one.ReplicationFactor)
	require.Equal(t, "1", one.Configs["min.insync.replicas"])
	require.Equal(t, int16(1), image.InternalTopic(metadata.GroupTopic, 0).ReplicationFactor)
	for bytes, internal := range map[string]string{"1": "14", "4096": "4096"} { // less than segment.bytes may be
		tiny := configured(t, map[string]string{"transaction.state.log.segment.bytes": bytes}, nil).Image()
		configs := tiny.InternalTopic(metadata.TxnTopic, 3).Configs
		require.NotContains(t, configs, "segment.bytes")
		require.Equal(t, internal, configs["internal.segment.bytes"])
	}
}
