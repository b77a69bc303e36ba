package group

import (
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The records of __consumer_offsets, byte for byte Kafka's. A key is
//
//	i16 kind | fields of the kind; strings are i16 length and bytes
//
// and a value is
//
//	i16 version | fields of the version; flexible ones have compact strings and end with tagged fields
//
// A null value is a tombstone. Kinds that are not listed here are those of Kafka's share and streams groups,
// or of later versions: they are skipped, so that a log that another version wrote can be loaded.
const (
	kindOffsetV0          int16 = 0  // group, topic, partition: as kindOffset, of very old writers
	kindOffset            int16 = 1  // group, topic, partition: kmsg.OffsetCommitValue
	kindGroupMetadata     int16 = 2  // group: groupMetadata
	kindConsumerGroup     int16 = 3  // group: consumerGroupMetadata
	kindPartitionMetadata int16 = 4  // group: partitionMetadata, which is no longer written
	kindMember            int16 = 5  // group, member: memberMetadata
	kindTargetMetadata    int16 = 6  // group: targetMetadata
	kindTargetMember      int16 = 7  // group, member: targetMember
	kindCurrentMember     int16 = 8  // group, member: currentMember
	kindRegex             int16 = 16 // group, expression: regexTopics
)

// Versions of the values that are written.
const (
	offsetValueVersion        = 3
	groupMetadataValueVersion = 3
)

var (
	errUnknownKind    = errors.New("record of an unknown kind")
	errUnknownVersion = errors.New("record value of an unknown version")
	errBadRecord      = errors.New("record that does not decode")
)

// recordKey is a decoded key. Its bytes are the record's own and valid as long as those.
type recordKey struct {
	kind  int16
	group []byte
	// name is the topic, the member or the expression, as the kind says.
	name      []byte
	partition int32
}

// decodeKey reads the key of any kind listed above; errUnknownKind tells that it is to be skipped.
func decodeKey(src []byte) (recordKey, error) {
	b := kbin.Reader{Src: src}
	k := recordKey{kind: b.Int16()}
	if !b.Ok() {
		return k, errBadRecord
	}
	switch k.kind {
	case kindOffsetV0, kindOffset:
		k.group, k.name, k.partition = span16(&b), span16(&b), b.Int32()
	case kindGroupMetadata, kindConsumerGroup, kindPartitionMetadata, kindTargetMetadata:
		k.group = span16(&b)
	case kindMember, kindTargetMember, kindCurrentMember, kindRegex:
		k.group, k.name = span16(&b), span16(&b)
	default:
		return k, errUnknownKind
	}
	if b.Complete() != nil || len(b.Src) != 0 {
		return k, errBadRecord
	}
	return k, nil
}

// span16 reads a string of the older encoding in place.
func span16(b *kbin.Reader) []byte { return b.Span(int(b.Int16())) }

// offsetKey is the key of a committed offset.
func offsetKey(group, topic string, partition int32) []byte {
	dst := make([]byte, 0, 2+2+len(group)+2+len(topic)+4)
	dst = kbin.AppendInt16(dst, kindOffset)
	dst = kbin.AppendString(dst, group)
	dst = kbin.AppendString(dst, topic)
	return kbin.AppendInt32(dst, partition)
}

// groupKey is the key of a record that a group has one of: kinds 2, 3, 4 and 6.
func groupKey(kind int16, group string) []byte {
	dst := make([]byte, 0, 2+2+len(group))
	dst = kbin.AppendInt16(dst, kind)
	return kbin.AppendString(dst, group)
}

// memberKey is the key of a record that a group has several of: by member, kinds 5, 7 and 8, or by
// expression, kind 16.
func memberKey(kind int16, group, name string) []byte {
	dst := make([]byte, 0, 2+2+len(group)+2+len(name))
	dst = kbin.AppendInt16(dst, kind)
	dst = kbin.AppendString(dst, group)
	return kbin.AppendString(dst, name)
}

// encodeOffset writes a committed offset as version 3:
//
//	i16 3 | i64 offset | i32 leader epoch | string metadata | i64 commit timestamp
func encodeOffset(o *committed) []byte {
	dst := make([]byte, 0, 2+8+4+2+len(o.metadata)+8)
	dst = kbin.AppendInt16(dst, offsetValueVersion)
	dst = kbin.AppendInt64(dst, o.offset)
	dst = kbin.AppendInt32(dst, o.leaderEpoch)
	dst = kbin.AppendString(dst, o.metadata)
	return kbin.AppendInt64(dst, o.commitTimestamp)
}

// decodeOffset reads versions 0 to 4. Versions without a leader epoch leave it at -1, those without an
// expiry time leave that at -1.
func decodeOffset(src []byte) (committed, error) {
	var v kmsg.OffsetCommitValue
	if err := versionUpTo(src, 4); err != nil {
		return committed{}, err
	}
	if err := v.UnsafeReadFrom(src); err != nil {
		return committed{}, errBadRecord
	}
	o := committed{
		offset:          v.Offset,
		leaderEpoch:     -1,
		metadata:        strings.Clone(v.Metadata),
		commitTimestamp: v.CommitTimestamp,
		expireTimestamp: -1,
	}
	if v.Version >= 3 {
		o.leaderEpoch = v.LeaderEpoch
	}
	if v.Version == 1 {
		o.expireTimestamp = v.ExpireTimestamp
	}
	return o, nil
}

// groupMetadata is the value of kindGroupMetadata: a classic group after a rebalance.
type groupMetadata = kmsg.GroupMetadataValue

// encodeGroupMetadata writes it as version 3.
func encodeGroupMetadata(v *groupMetadata) []byte {
	v.Version = groupMetadataValueVersion
	return v.AppendTo(nil)
}

// decodeGroupMetadata reads versions 0 to 4. Nothing of it refers to src.
func decodeGroupMetadata(src []byte) (*groupMetadata, error) {
	if err := versionUpTo(src, 4); err != nil {
		return nil, err
	}
	v := new(groupMetadata)
	if err := v.ReadFrom(append([]byte(nil), src...)); err != nil {
		return nil, errBadRecord
	}
	return v, nil
}

// versionUpTo reports whether a value starts with a version from 0 to most.
func versionUpTo(src []byte, most int16) error {
	b := kbin.Reader{Src: src}
	version := b.Int16()
	switch {
	case !b.Ok():
		return errBadRecord
	case version < 0 || version > most:
		return errUnknownVersion
	}
	return nil
}
