package ktag

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// SetPartitionCount gives, in a partition of a ProduceRequest or a topic of a DescribeProducersRequest, how many
// partitions the topic has by what the sender knows, who has chosen partitions by that. A leader that knows another
// count does nothing, and gives its own in the partition of its answer, beside LEADER_NOT_AVAILABLE: whichever of the
// two is behind is to learn the newer one first.
func SetPartitionCount(t *kmsg.Tags, count int32) {
	t.Set(tagPartitionCount, binary.BigEndian.AppendUint32(nil, uint32(count)))
}

// PartitionCount reads what SetPartitionCount wrote.
func PartitionCount(t *kmsg.Tags) (count int32, ok bool) {
	v, ok := get(t, tagPartitionCount)
	if !ok || len(v) != 4 {
		return 0, false
	}
	return int32(binary.BigEndian.Uint32(v)), true
}
