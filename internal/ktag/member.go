package ktag

import (
	"bytes"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The tags of members of consumer groups have numbers of their own.
const (
	tagMemberState uint32 = 10100 + iota
	tagSessionTimeout
	tagHeartbeatWait
	tagCommitFrom
	tagHeld
)

// SetMemberState gives, in a ConsumerGroupHeartbeatRequest, bytes that the coordinator keeps with the member until
// others are given, and that a ConsumerGroupDescribeResponse has in the member. Nil and empty bytes forget them.
func SetMemberState(t *kmsg.Tags, state []byte) { t.Set(tagMemberState, state) }

// MemberState reads what SetMemberState wrote. The bytes are the caller's own.
func MemberState(t *kmsg.Tags) (state []byte, ok bool) {
	v, ok := get(t, tagMemberState)
	return bytes.Clone(v), ok
}

// SetSessionTimeout asks, in a ConsumerGroupHeartbeatRequest, for a session timeout of the member's own, in
// milliseconds, in place of group.consumer.session.timeout.ms; 0 asks for that again. A ConsumerGroupDescribeResponse
// has it in the member.
func SetSessionTimeout(t *kmsg.Tags, ms int32) { setInt32(t, tagSessionTimeout, ms) }

// SessionTimeout reads what SetSessionTimeout wrote.
func SessionTimeout(t *kmsg.Tags) (ms int32, ok bool) { return getInt32(t, tagSessionTimeout) }

// SetHeartbeatWait asks, in a ConsumerGroupHeartbeatRequest, to answer only when there is news for the member, at the
// latest after so many milliseconds or half of its session timeout.
func SetHeartbeatWait(t *kmsg.Tags, ms int32) { setInt32(t, tagHeartbeatWait, ms) }

// HeartbeatWait reads what SetHeartbeatWait wrote.
func HeartbeatWait(t *kmsg.Tags) (ms int32, ok bool) { return getInt32(t, tagHeartbeatWait) }

// SetCommitFrom asks, in a partition of an OffsetCommitRequest or a TxnOffsetCommitRequest, to commit only if from
// is what is committed, -1: nothing; what the request's own transaction has committed counts as that. The answer's
// partition has ActualOffset, which is what was found, beside INVALID_UPDATE_VERSION where that is something else.
// While another transaction may change it, the answer is UNSTABLE_OFFSET_COMMIT.
func SetCommitFrom(t *kmsg.Tags, from int64) { setInt64(t, tagCommitFrom, from) }

// CommitFrom reads what SetCommitFrom wrote.
func CommitFrom(t *kmsg.Tags) (from int64, ok bool) { return getInt64(t, tagCommitFrom) }

// SetHeld asks, in an OffsetCommitRequest or a TxnOffsetCommitRequest, to commit only for partitions that the group
// has assigned to the member, or that it has yet to give up; for others the answer is FENCED_MEMBER_EPOCH. It says
// nothing of members that subscribe to nothing, and of those of the classic protocol, whose assignment the group
// does not know.
func SetHeld(t *kmsg.Tags) { t.Set(tagHeld, nil) }

// Held reports whether SetHeld was called.
func Held(t *kmsg.Tags) bool { return has(t, tagHeld) }

func setInt32(t *kmsg.Tags, tag uint32, v int32) {
	t.Set(tag, binary.BigEndian.AppendUint32(nil, uint32(v)))
}

func getInt32(t *kmsg.Tags, tag uint32) (int32, bool) {
	v, ok := get(t, tag)
	if !ok || len(v) != 4 {
		return 0, false
	}
	return int32(binary.BigEndian.Uint32(v)), true
}
