// Package ktag holds what Millrace says in Kafka messages beyond Kafka's own fields.
//
// The Kafka protocol lets a message carry tagged fields that a reader skips when it does not know
// them. Millrace's are numbered from 10000 up, far from Kafka's, and travel in UnknownTags, so they
// survive encoding and reach another node unchanged. Every tag has one typed pair here: SetX writes
// it and X reads it; a reader reports whether the tag was there and well-formed. A foreign broker
// ignores the request tags: whoever depends on one must check the answer. An expected offset was
// honoured if the base offset of the answer equals it.
//
// The package also owns the producer ids of named producers, because both sides of the seam compute
// them.
package ktag

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The numbers are part of the protocol between nodes: add new ones at the end, never reuse one.
const (
	tagExpectedOffset uint32 = 10000 + iota
	tagStrictSequence
	tagDuplicate
	tagActualOffset
	tagExpectedSequence
	tagCurrentEpoch
	tagAppendTime
	tagProducerFilter
	tagNotWritten
	tagFirstCount
	tagResumeOffset
	tagDataEpoch
	tagIntact
	tagRefusedBrokers
	tagResign
	tagAppliedIndex
	tagBroker
	tagErrorMessage
	tagShuttingDown
	tagReplicaLogStart
	tagUnsettled
	tagSettled
	tagClientID
	tagClientHost
	tagCertain
	tagPartitionCount
)

// SetExpectedOffset asks, in a partition of a ProduceRequest, to append only if the log end offset
// is offset; otherwise the answer is INVALID_UPDATE_VERSION with ActualOffset.
func SetExpectedOffset(t *kmsg.Tags, offset int64) { setInt64(t, tagExpectedOffset, offset) }

// ExpectedOffset reads what SetExpectedOffset wrote.
func ExpectedOffset(t *kmsg.Tags) (offset int64, ok bool) { return getInt64(t, tagExpectedOffset) }

// SetStrictSequence asks, in a partition of a ProduceRequest, to refuse a gap in the sequences of a
// named producer with OUT_OF_ORDER_SEQUENCE_NUMBER and ExpectedSequence.
func SetStrictSequence(t *kmsg.Tags) { t.Set(tagStrictSequence, nil) }

// StrictSequence reports whether SetStrictSequence was called.
func StrictSequence(t *kmsg.Tags) bool { return has(t, tagStrictSequence) }

// SetDuplicate says, in a partition of a ProduceResponse, that an earlier request wrote this batch
// and this one wrote nothing.
func SetDuplicate(t *kmsg.Tags) { t.Set(tagDuplicate, nil) }

// Duplicate reports whether SetDuplicate was called.
func Duplicate(t *kmsg.Tags) bool { return has(t, tagDuplicate) }

// SetActualOffset gives, in a partition of a ProduceResponse, the log end offset that did not equal
// the expected one.
func SetActualOffset(t *kmsg.Tags, offset int64) { setInt64(t, tagActualOffset, offset) }

// ActualOffset reads what SetActualOffset wrote.
func ActualOffset(t *kmsg.Tags) (offset int64, ok bool) { return getInt64(t, tagActualOffset) }

// SetExpectedSequence gives, in a partition of a ProduceResponse, the sequence that would have been
// taken in place of the one refused.
func SetExpectedSequence(t *kmsg.Tags, sequence int32) {
	t.Set(tagExpectedSequence, binary.BigEndian.AppendUint32(nil, uint32(sequence)))
}

// ExpectedSequence reads what SetExpectedSequence wrote.
func ExpectedSequence(t *kmsg.Tags) (sequence int32, ok bool) {
	v, ok := get(t, tagExpectedSequence)
	if !ok || len(v) != 4 {
		return 0, false
	}
	return int32(binary.BigEndian.Uint32(v)), true
}

// SetCurrentEpoch gives, in a partition of a ProduceResponse, the producer epoch that fenced the
// request's.
func SetCurrentEpoch(t *kmsg.Tags, epoch int16) {
	t.Set(tagCurrentEpoch, binary.BigEndian.AppendUint16(nil, uint16(epoch)))
}

// CurrentEpoch reads what SetCurrentEpoch wrote.
func CurrentEpoch(t *kmsg.Tags) (epoch int16, ok bool) {
	v, ok := get(t, tagCurrentEpoch)
	if !ok || len(v) != 2 {
		return 0, false
	}
	return int16(binary.BigEndian.Uint16(v)), true
}

// SetAppendTime gives, beside Duplicate, the largest timestamp of the batch as it was written first,
// in milliseconds. Kafka's own field has no room for it: there -1 means "the record's own time".
func SetAppendTime(t *kmsg.Tags, ms int64) { setInt64(t, tagAppendTime, ms) }

// AppendTime reads what SetAppendTime wrote.
func AppendTime(t *kmsg.Tags) (ms int64, ok bool) { return getInt64(t, tagAppendTime) }

// SetFirstCount gives, beside Duplicate, how many records the batch had when it was written first: a retry
// may hold others. Absent when that is forgotten.
func SetFirstCount(t *kmsg.Tags, count int32) {
	t.Set(tagFirstCount, binary.BigEndian.AppendUint32(nil, uint32(count)))
}

// FirstCount reads what SetFirstCount wrote.
func FirstCount(t *kmsg.Tags) (count int32, ok bool) {
	v, ok := get(t, tagFirstCount)
	if !ok || len(v) != 4 {
		return 0, false
	}
	return int32(binary.BigEndian.Uint32(v)), true
}

// SetNotWritten says, in a partition of a ProduceResponse, that the batch was not written although the
// error code leaves that open: the disk is full, for example.
func SetNotWritten(t *kmsg.Tags) { t.Set(tagNotWritten, nil) }

// NotWritten reports whether SetNotWritten was called.
func NotWritten(t *kmsg.Tags) bool { return has(t, tagNotWritten) }

// SetResumeOffset gives, in a partition of a FetchResponse, beside CORRUPT_MESSAGE, the offset behind the
// damage to read on from. Absent when that is not known.
func SetResumeOffset(t *kmsg.Tags, offset int64) { setInt64(t, tagResumeOffset, offset) }

// ResumeOffset reads what SetResumeOffset wrote.
func ResumeOffset(t *kmsg.Tags) (offset int64, ok bool) { return getInt64(t, tagResumeOffset) }

// SetProducerFilter asks, in a DescribeProducersRequest, for one producer only.
func SetProducerFilter(t *kmsg.Tags, producerID int64) { setInt64(t, tagProducerFilter, producerID) }

// ProducerFilter reads what SetProducerFilter wrote.
func ProducerFilter(t *kmsg.Tags) (producerID int64, ok bool) { return getInt64(t, tagProducerFilter) }

func setInt64(t *kmsg.Tags, tag uint32, v int64) {
	t.Set(tag, binary.BigEndian.AppendUint64(nil, uint64(v)))
}

func getInt64(t *kmsg.Tags, tag uint32) (int64, bool) {
	v, ok := get(t, tag)
	if !ok || len(v) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(v)), true
}

func has(t *kmsg.Tags, tag uint32) bool {
	_, ok := get(t, tag)
	return ok
}

// get costs nothing when there are no tags, which is nearly always.
func get(t *kmsg.Tags, tag uint32) (value []byte, ok bool) {
	if t.Len() == 0 {
		return nil, false
	}
	t.Each(func(key uint32, v []byte) {
		if key == tag {
			value, ok = v, true
		}
	})
	return value, ok
}
