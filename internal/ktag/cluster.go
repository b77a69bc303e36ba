package ktag

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// MaxRefusedBrokers bounds the list of SetRefusedBrokers; what is above it is left out.
const MaxRefusedBrokers = 64

// SetDataEpoch gives, in a BrokerRegistrationRequest, the broker epoch under which the data directory
// was written last, or -1 for a new one.
func SetDataEpoch(t *kmsg.Tags, epoch int64) { setInt64(t, tagDataEpoch, epoch) }

// DataEpoch reads what SetDataEpoch wrote.
func DataEpoch(t *kmsg.Tags) (epoch int64, ok bool) { return getInt64(t, tagDataEpoch) }

// SetIntact says, in a BrokerRegistrationRequest, that the data directory holds everything that the
// broker acknowledged before: it stopped cleanly, or had synced each record before it acknowledged it.
func SetIntact(t *kmsg.Tags) { t.Set(tagIntact, nil) }

// Intact reports whether SetIntact was called.
func Intact(t *kmsg.Tags) bool { return has(t, tagIntact) }

// SetRefusedBrokers names, in a BrokerHeartbeatRequest, the brokers whose port refused a connection
// since the last heartbeat.
func SetRefusedBrokers(t *kmsg.Tags, ids []int32) {
	if len(ids) == 0 {
		return
	}
	ids = ids[:min(len(ids), MaxRefusedBrokers)]
	v := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		v = binary.BigEndian.AppendUint32(v, uint32(id))
	}
	t.Set(tagRefusedBrokers, v)
}

// RefusedBrokers reads what SetRefusedBrokers wrote; at most MaxRefusedBrokers.
func RefusedBrokers(t *kmsg.Tags) []int32 {
	v, ok := get(t, tagRefusedBrokers)
	if !ok || len(v)%4 != 0 {
		return nil
	}
	v = v[:min(len(v), 4*MaxRefusedBrokers)]
	ids := make([]int32, 0, len(v)/4)
	for ; len(v) > 0; v = v[4:] {
		ids = append(ids, int32(binary.BigEndian.Uint32(v)))
	}
	return ids
}

// SetResign asks, in a partition of an AlterPartitionRequest, to take the sender's replica out of the
// ISR and to move the leadership away if the sender has it, because its log is damaged.
func SetResign(t *kmsg.Tags) { t.Set(tagResign, nil) }

// SetResignEligible asks the same for a log that has all it ever had but takes nothing more for now: the replica stays
// eligible to lead where the ISR gets too short.
func SetResignEligible(t *kmsg.Tags) { t.Set(tagResign, []byte{1}) }

// SetResignUnusable asks the same for a log of which nothing can be read: where the topic allows unclean elections,
// any other replica is better.
func SetResignUnusable(t *kmsg.Tags) { t.Set(tagResign, []byte{2}) }

// Resign reports whether SetResign, SetResignEligible or SetResignUnusable was called.
func Resign(t *kmsg.Tags) bool { return has(t, tagResign) }

// ResignEligible reports whether SetResignEligible was called.
func ResignEligible(t *kmsg.Tags) bool { return resigns(t, 1) }

// ResignUnusable reports whether SetResignUnusable was called.
func ResignUnusable(t *kmsg.Tags) bool { return resigns(t, 2) }

func resigns(t *kmsg.Tags, how byte) bool {
	v, ok := get(t, tagResign)
	return ok && len(v) == 1 && v[0] == how
}

// SetAppliedIndex gives, in an answer of the controller, the index of the metadata log that holds what
// the answer speaks of: a node that has applied it shows the change.
func SetAppliedIndex(t *kmsg.Tags, index int64) { setInt64(t, tagAppliedIndex, index) }

// AppliedIndex reads what SetAppliedIndex wrote.
func AppliedIndex(t *kmsg.Tags) (index int64, ok bool) { return getInt64(t, tagAppliedIndex) }

// SetBroker names, in a DescribeLogDirsRequest, the broker to ask: that message has no field for it.
func SetBroker(t *kmsg.Tags, id int32) {
	t.Set(tagBroker, binary.BigEndian.AppendUint32(nil, uint32(id)))
}

// Broker reads what SetBroker wrote.
func Broker(t *kmsg.Tags) (id int32, ok bool) {
	v, ok := get(t, tagBroker)
	if !ok || len(v) != 4 {
		return 0, false
	}
	return int32(binary.BigEndian.Uint32(v)), true
}

// SetErrorMessage gives, in an answer that has no field for it, the text beside the error code.
func SetErrorMessage(t *kmsg.Tags, text string) { t.Set(tagErrorMessage, []byte(text)) }

// ErrorMessage reads what SetErrorMessage wrote.
func ErrorMessage(t *kmsg.Tags) (text string, ok bool) {
	v, ok := get(t, tagErrorMessage)
	return string(v), ok
}

// SetShuttingDown says, in a broker of a DescribeClusterResponse, that the broker is about to stop: it leads
// nothing new and leaves every ISR.
func SetShuttingDown(t *kmsg.Tags) { t.Set(tagShuttingDown, nil) }

// ShuttingDown reports whether SetShuttingDown was called.
func ShuttingDown(t *kmsg.Tags) bool { return has(t, tagShuttingDown) }

// SetReplicaLogStart gives, in a replica of a DescribeQuorumResponse, the replica's log start offset, for which
// that message has no field.
func SetReplicaLogStart(t *kmsg.Tags, offset int64) { setInt64(t, tagReplicaLogStart, offset) }

// ReplicaLogStart reads what SetReplicaLogStart wrote.
func ReplicaLogStart(t *kmsg.Tags) (offset int64, ok bool) { return getInt64(t, tagReplicaLogStart) }

// SetUnsettled asks, in a partition of a follower's FetchRequest, to be told when the leader epoch is settled.
func SetUnsettled(t *kmsg.Tags) { t.Set(tagUnsettled, nil) }

// Unsettled reports whether SetUnsettled was called.
func Unsettled(t *kmsg.Tags) bool { return has(t, tagUnsettled) }

// SetSettled says, in a partition of a FetchResponse, to a follower that asked: its log, up to the offset of the
// request, holds all that the leader had when its epoch began, and the log of every replica that could be the next
// leader agrees with the leader's. What is missing there is in no log that counts, and never will be.
func SetSettled(t *kmsg.Tags) { t.Set(tagSettled, nil) }

// Settled reports whether SetSettled was called.
func Settled(t *kmsg.Tags) bool { return has(t, tagSettled) }
