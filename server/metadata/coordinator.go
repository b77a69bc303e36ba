package metadata

import (
	"strconv"
	"unicode/utf16"
)

// leastSegmentBytes is the least that segment.bytes of a topic may be. What coordinators' topics are to have may be
// less.
const leastSegmentBytes = 1 << 20

// CoordinatorPartition is the partition of an internal topic with so many partitions that has a group or a
// transactional id: Java's hash of the text, over UTF-16 code units, so that Kafka finds it at the same place.
func CoordinatorPartition(id string, partitions int32) int32 {
	var h int32
	for _, r := range id {
		if r1, r2 := utf16.EncodeRune(r); r1 != '\uFFFD' {
			h = 31*(31*h+r1) + r2
			continue
		}
		h = 31*h + r
	}
	if h == -1<<31 { // has no absolute value
		return 0
	}
	return max(h, -h) % partitions
}

// InternalTopic is how an internal topic is to be made.
type InternalTopic struct {
	Partitions        int32
	ReplicationFactor int16
	Configs           map[string]string
}

// InternalTopic says how GroupTopic or TxnTopic is to be made in a cluster of so many nodes, by this node's
// configuration: with as many replicas as that says, or one on each node where there are fewer.
func (m *Image) InternalTopic(name string, nodes int) InternalTopic {
	r := settingsReader{table: m.node.schema.Broker, get: m.node.brokerValue}
	keys := "offsets.topic."
	if name == TxnTopic {
		keys = "transaction.state.log."
	}
	t := InternalTopic{
		Partitions:        int32(r.value(keys + "num.partitions").num),
		ReplicationFactor: int16(max(min(r.int(keys+"replication.factor"), nodes), 1)),
		Configs: map[string]string{
			"cleanup.policy":   "compact",
			"compression.type": "producer",
		},
	}
	segment, size := "segment.bytes", r.value(keys+"segment.bytes").num
	if size < leastSegmentBytes {
		segment, size = "internal.segment.bytes", max(size, 14)
	}
	t.Configs[segment] = strconv.FormatInt(size, 10)
	if name == TxnTopic {
		inSync := min(r.int("transaction.state.log.min.isr"), int(t.ReplicationFactor))
		t.Configs["min.insync.replicas"] = strconv.Itoa(inSync)
		t.Configs["unclean.leader.election.enable"] = "false"
	}
	return t
}
