package group

import (
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Values of the records of KIP-848 groups, all of version 0 and flexible. Tagged fields that are not known
// are kept where a record is written again as a whole, and skipped elsewhere.

// consumerGroupMetadata is the value of kindConsumerGroup:
//
//	i16 0 | i32 epoch | tags: 0 i64 metadata hash
type consumerGroupMetadata struct {
	epoch        int32
	metadataHash int64
}

// topicMetadata is what a group knew of one subscribed topic.
type topicMetadata struct {
	topicID       [16]byte
	topic         string
	numPartitions int32
	partitions    []partitionRacks
}

// partitionRacks names the racks that hold replicas of a partition.
type partitionRacks struct {
	partition int32
	racks     []string
}

// partitionMetadata is the value of kindPartitionMetadata:
//
//	i16 0 | topics [ uuid id | string name | i32 partitions | [ i32 partition | [ string rack ] | tags ] | tags ] | tags
type partitionMetadata struct{ topics []topicMetadata }

// memberMetadata is the value of kindMember:
//
//	i16 0 | instance? | rack? | client id | client host | [ topic ] | regex? | i32 rebalance timeout ms |
//	assignor? | tags: 0 classicMember, 10000 state, 10001 i32 session timeout ms
type memberMetadata struct {
	instanceID         *string
	rackID             *string
	clientID           string
	clientHost         string
	topics             []string
	topicRegex         *string
	rebalanceTimeoutMs int32
	serverAssignor     *string
	// classic is what a member that joined by the classic protocol gave; nil for all others.
	classic *classicMember
	// state is the member's own opaque bytes, and sessionTimeoutMs its own session timeout, 0 for the
	// group's. Both are Millrace's additions.
	state            []byte
	sessionTimeoutMs int32
	unknown          kmsg.Tags
}

// classicMember is tag 0 of memberMetadata: i32 session timeout ms | [ string name | bytes metadata | tags ] | tags
type classicMember struct {
	sessionTimeoutMs int32
	protocols        []classicProtocol
}

type classicProtocol struct {
	name     string
	metadata []byte
}

// targetMetadata is the value of kindTargetMetadata:
//
//	i16 0 | i32 assignment epoch | tags: 0 i64 timestamp
type targetMetadata struct {
	assignmentEpoch int32
	timestamp       int64
}

// topicPartitions is [ uuid topic id | [ i32 partition ] | tags ] in targetMember and currentMember.
type topicPartitions struct {
	topicID    [16]byte
	partitions []int32
}

// targetMember is the value of kindTargetMember: i16 0 | [ topicPartitions ] | tags
type targetMember struct{ assigned []topicPartitions }

// States of a member in currentMember.
const (
	memberStable     int8 = 0
	memberUnrevoked  int8 = 1
	memberUnreleased int8 = 2
	memberUnknown    int8 = 127
)

// currentMember is the value of kindCurrentMember:
//
//	i16 0 | i32 member epoch | i32 previous member epoch | i8 state | assigned [ topicPartitions ] |
//	pending revocation [ topicPartitions ] | tags
type currentMember struct {
	memberEpoch         int32
	previousMemberEpoch int32
	state               int8
	assigned            []topicPartitions
	pendingRevocation   []topicPartitions
}

// regexTopics is the value of kindRegex: i16 0 | [ string topic ] | i64 version | i64 timestamp | tags
type regexTopics struct {
	topics    []string
	version   int64
	timestamp int64
}

// The tags of Millrace in memberMetadata.
const (
	tagMemberState          uint32 = 10000
	tagMemberSessionTimeout uint32 = 10001
)

func encodeConsumerGroup(v *consumerGroupMetadata) []byte {
	dst := kbin.AppendInt16(make([]byte, 0, 24), 0)
	dst = kbin.AppendInt32(dst, v.epoch)
	return appendTag64(dst, v.metadataHash)
}

func decodeConsumerGroup(src []byte) (*consumerGroupMetadata, error) {
	b, err := openValue(src)
	if err != nil {
		return nil, err
	}
	v := &consumerGroupMetadata{epoch: b.Int32()}
	readTags(&b, func(tag uint32, field []byte) {
		if tag == 0 {
			v.metadataHash = int64Of(&b, field)
		}
	})
	return v, closeValue(&b)
}

func encodePartitionMetadata(v *partitionMetadata) []byte {
	dst := kbin.AppendInt16(nil, 0)
	dst = kbin.AppendCompactArrayLen(dst, len(v.topics))
	for i := range v.topics {
		t := &v.topics[i]
		dst = append(dst, t.topicID[:]...)
		dst = kbin.AppendCompactString(dst, t.topic)
		dst = kbin.AppendInt32(dst, t.numPartitions)
		dst = kbin.AppendCompactArrayLen(dst, len(t.partitions))
		for j := range t.partitions {
			dst = kbin.AppendInt32(dst, t.partitions[j].partition)
			dst = appendStrings(dst, t.partitions[j].racks)
			dst = append(dst, 0)
		}
		dst = append(dst, 0)
	}
	return append(dst, 0)
}

func decodePartitionMetadata(src []byte) (*partitionMetadata, error) {
	b, err := openValue(src)
	if err != nil {
		return nil, err
	}
	v := &partitionMetadata{topics: make([]topicMetadata, arrayLen(&b, 23))}
	for i := range v.topics {
		t := &v.topics[i]
		t.topicID, t.topic, t.numPartitions = b.Uuid(), b.CompactString(), b.Int32()
		t.partitions = make([]partitionRacks, arrayLen(&b, 6))
		for j := range t.partitions {
			t.partitions[j] = partitionRacks{partition: b.Int32(), racks: readStrings(&b)}
			readTags(&b, nil)
		}
		readTags(&b, nil)
	}
	readTags(&b, nil)
	return v, closeValue(&b)
}

func encodeMember(v *memberMetadata) []byte {
	dst := kbin.AppendInt16(nil, 0)
	dst = kbin.AppendCompactNullableString(dst, v.instanceID)
	dst = kbin.AppendCompactNullableString(dst, v.rackID)
	dst = kbin.AppendCompactString(dst, v.clientID)
	dst = kbin.AppendCompactString(dst, v.clientHost)
	dst = appendStrings(dst, v.topics)
	dst = kbin.AppendCompactNullableString(dst, v.topicRegex)
	dst = kbin.AppendInt32(dst, v.rebalanceTimeoutMs)
	dst = kbin.AppendCompactNullableString(dst, v.serverAssignor)
	var tags kmsg.Tags
	v.unknown.Each(func(tag uint32, field []byte) { tags.Set(tag, field) })
	if v.classic != nil {
		tags.Set(0, encodeClassicMember(v.classic))
	}
	if v.state != nil {
		tags.Set(tagMemberState, v.state)
	}
	if v.sessionTimeoutMs != 0 {
		tags.Set(tagMemberSessionTimeout, kbin.AppendInt32(nil, v.sessionTimeoutMs))
	}
	dst = kbin.AppendUvarint(dst, uint32(tags.Len()))
	return tags.AppendEach(dst)
}

func decodeMember(src []byte) (*memberMetadata, error) {
	b, err := openValue(src)
	if err != nil {
		return nil, err
	}
	v := &memberMetadata{
		instanceID: b.CompactNullableString(),
		rackID:     b.CompactNullableString(),
		clientID:   b.CompactString(),
		clientHost: b.CompactString(),
		topics:     readStrings(&b),
		topicRegex: b.CompactNullableString(),
	}
	v.rebalanceTimeoutMs, v.serverAssignor = b.Int32(), b.CompactNullableString()
	readTags(&b, func(tag uint32, field []byte) {
		switch tag {
		case 0:
			v.classic = decodeClassicMember(&b, field)
		case tagMemberState:
			v.state = append([]byte{}, field...)
		case tagMemberSessionTimeout:
			f := kbin.Reader{Src: field}
			v.sessionTimeoutMs = f.Int32()
			refuseUnless(&b, f.Complete() == nil)
		default:
			v.unknown.Set(tag, append([]byte{}, field...))
		}
	})
	return v, closeValue(&b)
}

func encodeClassicMember(v *classicMember) []byte {
	dst := kbin.AppendInt32(nil, v.sessionTimeoutMs)
	dst = kbin.AppendCompactArrayLen(dst, len(v.protocols))
	for i := range v.protocols {
		dst = kbin.AppendCompactString(dst, v.protocols[i].name)
		dst = kbin.AppendCompactBytes(dst, v.protocols[i].metadata)
		dst = append(dst, 0)
	}
	return append(dst, 0)
}

func decodeClassicMember(outer *kbin.Reader, field []byte) *classicMember {
	b := kbin.Reader{Src: field}
	v := &classicMember{sessionTimeoutMs: b.Int32()}
	v.protocols = make([]classicProtocol, arrayLen(&b, 3))
	for i := range v.protocols {
		v.protocols[i] = classicProtocol{name: b.CompactString(), metadata: append([]byte{}, b.CompactBytes()...)}
		readTags(&b, nil)
	}
	readTags(&b, nil)
	refuseUnless(outer, b.Complete() == nil)
	return v
}

func encodeTargetMetadata(v *targetMetadata) []byte {
	dst := kbin.AppendInt16(make([]byte, 0, 24), 0)
	dst = kbin.AppendInt32(dst, v.assignmentEpoch)
	return appendTag64(dst, v.timestamp)
}

func decodeTargetMetadata(src []byte) (*targetMetadata, error) {
	b, err := openValue(src)
	if err != nil {
		return nil, err
	}
	v := &targetMetadata{assignmentEpoch: b.Int32()}
	readTags(&b, func(tag uint32, field []byte) {
		if tag == 0 {
			v.timestamp = int64Of(&b, field)
		}
	})
	return v, closeValue(&b)
}

func encodeTargetMember(v *targetMember) []byte {
	dst := kbin.AppendInt16(nil, 0)
	dst = appendTopicPartitions(dst, v.assigned)
	return append(dst, 0)
}

func decodeTargetMember(src []byte) (*targetMember, error) {
	b, err := openValue(src)
	if err != nil {
		return nil, err
	}
	v := &targetMember{assigned: readTopicPartitions(&b)}
	readTags(&b, nil)
	return v, closeValue(&b)
}

func encodeCurrentMember(v *currentMember) []byte {
	dst := kbin.AppendInt16(nil, 0)
	dst = kbin.AppendInt32(dst, v.memberEpoch)
	dst = kbin.AppendInt32(dst, v.previousMemberEpoch)
	dst = kbin.AppendInt8(dst, v.state)
	dst = appendTopicPartitions(dst, v.assigned)
	dst = appendTopicPartitions(dst, v.pendingRevocation)
	return append(dst, 0)
}

func decodeCurrentMember(src []byte) (*currentMember, error) {
	b, err := openValue(src)
	if err != nil {
		return nil, err
	}
	v := &currentMember{memberEpoch: b.Int32(), previousMemberEpoch: b.Int32(), state: b.Int8()}
	v.assigned = readTopicPartitions(&b)
	v.pendingRevocation = readTopicPartitions(&b)
	readTags(&b, nil)
	return v, closeValue(&b)
}

func encodeRegex(v *regexTopics) []byte {
	dst := kbin.AppendInt16(nil, 0)
	dst = appendStrings(dst, v.topics)
	dst = kbin.AppendInt64(dst, v.version)
	dst = kbin.AppendInt64(dst, v.timestamp)
	return append(dst, 0)
}

func decodeRegex(src []byte) (*regexTopics, error) {
	b, err := openValue(src)
	if err != nil {
		return nil, err
	}
	v := &regexTopics{topics: readStrings(&b), version: b.Int64(), timestamp: b.Int64()}
	readTags(&b, nil)
	return v, closeValue(&b)
}

// openValue starts to read a value of version 0.
func openValue(src []byte) (kbin.Reader, error) {
	if err := versionUpTo(src, 0); err != nil {
		return kbin.Reader{}, err
	}
	return kbin.Reader{Src: src[2:]}, nil
}

// closeValue reports whether everything that was read was there, and nothing was left.
func closeValue(b *kbin.Reader) error {
	if b.Complete() != nil || len(b.Src) != 0 {
		return errBadRecord
	}
	return nil
}

// arrayLen reads the length of an array whose elements take at least size bytes each: a length that cannot
// be true is refused before anything is allocated for it.
func arrayLen(b *kbin.Reader, size int) int {
	n := int(b.CompactArrayLen())
	if n <= 0 || !b.Ok() {
		return 0
	}
	if n > len(b.Src)/size {
		refuseUnless(b, false)
		return 0
	}
	return n
}

// refuseUnless makes the reader fail.
func refuseUnless(b *kbin.Reader, ok bool) {
	if !ok {
		b.Span(len(b.Src) + 1)
	}
}

// readTags reads a set of tagged fields; each may be nil to skip them all.
func readTags(b *kbin.Reader, each func(tag uint32, field []byte)) {
	for n := b.Uvarint(); n > 0 && b.Ok(); n-- {
		tag := b.Uvarint()
		field := b.Span(int(b.Uvarint()))
		if each != nil && b.Ok() {
			each(tag, field)
		}
	}
}

func int64Of(outer *kbin.Reader, field []byte) int64 {
	b := kbin.Reader{Src: field}
	v := b.Int64()
	refuseUnless(outer, b.Complete() == nil)
	return v
}

// appendTag64 ends a value with tag 0 as an i64, which is left out at its default of 0.
func appendTag64(dst []byte, v int64) []byte {
	if v == 0 {
		return append(dst, 0)
	}
	return kbin.AppendInt64(append(dst, 1, 0, 8), v)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(list))
	for _, s := range list {
		dst = kbin.AppendCompactString(dst, s)
	}
	return dst
}

func readStrings(b *kbin.Reader) []string {
	list := make([]string, arrayLen(b, 1))
	for i := range list {
		list[i] = b.CompactString()
	}
	return list
}

func appendTopicPartitions(dst []byte, list []topicPartitions) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(list))
	for i := range list {
		dst = append(dst, list[i].topicID[:]...)
		dst = kbin.AppendCompactArrayLen(dst, len(list[i].partitions))
		for _, p := range list[i].partitions {
			dst = kbin.AppendInt32(dst, p)
		}
		dst = append(dst, 0)
	}
	return dst
}

func readTopicPartitions(b *kbin.Reader) []topicPartitions {
	list := make([]topicPartitions, arrayLen(b, 18))
	for i := range list {
		list[i].topicID = b.Uuid()
		list[i].partitions = make([]int32, arrayLen(b, 4))
		for j := range list[i].partitions {
			list[i].partitions[j] = b.Int32()
		}
		readTags(b, nil)
	}
	return list
}
