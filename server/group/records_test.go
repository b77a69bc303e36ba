package group

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func ptr[T any](v T) *T { return &v }

var testTopicID = [16]byte{
	0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
}

// The bytes of golden keys and values are those that Kafka's own classes write.
func TestGoldenKeys(t *testing.T) {
	for name, c := range map[string]struct {
		got  []byte
		want string
		key  recordKey
	}{
		"offset": {offsetKey("g1", "t1", 3), "0001000267310002743100000003",
			recordKey{kind: kindOffset, group: []byte("g1"), name: []byte("t1"), partition: 3}},
		"group": {groupKey(kindGroupMetadata, "g1"), "000200026731",
			recordKey{kind: kindGroupMetadata, group: []byte("g1")}},
		"consumer group": {groupKey(kindConsumerGroup, "g1"), "000300026731",
			recordKey{kind: kindConsumerGroup, group: []byte("g1")}},
		"partition metadata": {groupKey(kindPartitionMetadata, "g1"), "000400026731",
			recordKey{kind: kindPartitionMetadata, group: []byte("g1")}},
		"member": {memberKey(kindMember, "g1", "m1"), "00050002673100026d31",
			recordKey{kind: kindMember, group: []byte("g1"), name: []byte("m1")}},
		"target metadata": {groupKey(kindTargetMetadata, "g1"), "000600026731",
			recordKey{kind: kindTargetMetadata, group: []byte("g1")}},
		"target member": {memberKey(kindTargetMember, "g1", "m1"), "00070002673100026d31",
			recordKey{kind: kindTargetMember, group: []byte("g1"), name: []byte("m1")}},
		"current member": {memberKey(kindCurrentMember, "g1", "m1"), "00080002673100026d31",
			recordKey{kind: kindCurrentMember, group: []byte("g1"), name: []byte("m1")}},
		"regex": {memberKey(kindRegex, "g1", "t.*"), "0010000267310003742e2a",
			recordKey{kind: kindRegex, group: []byte("g1"), name: []byte("t.*")}},
	} {
		require.Equal(t, c.want, hex.EncodeToString(c.got), name)
		key, err := decodeKey(c.got)
		require.NoError(t, err, name)
		require.Equal(t, c.key, key, name)
	}
	old, err := decodeKey(unhex(t, "0000000267310002743100000003"))
	require.NoError(t, err)
	require.Equal(t, kindOffsetV0, old.kind)
	require.Equal(t, "t1", string(old.name))
}

func TestGoldenOffset(t *testing.T) {
	o := committed{offset: 42, leaderEpoch: 5, metadata: "m", commitTimestamp: 1700000000000, expireTimestamp: -1}
	const v3 = "0003000000000000002a0000000500016d0000018bcfe56800"
	require.Equal(t, v3, hex.EncodeToString(encodeOffset(&o)))
	noEpoch, expiring := o, o
	noEpoch.leaderEpoch, expiring.leaderEpoch, expiring.expireTimestamp = -1, -1, 1700000000001
	for name, c := range map[string]struct {
		src  string
		want committed
	}{
		"v0":                 {"0000000000000000002a00016d0000018bcfe56800", noEpoch},
		"v1":                 {"0001000000000000002a00016d0000018bcfe568000000018bcfe56801", expiring},
		"v2":                 {"0002000000000000002a00016d0000018bcfe56800", noEpoch},
		"v3":                 {v3, o},
		"v4":                 {"0004000000000000002a00000005026d0000018bcfe5680000", o},
		"v4 with a topic id": {"0004000000000000002a00000005026d0000018bcfe568000100100123456789abcdef0011223344556677", o},
	} {
		got, err := decodeOffset(unhex(t, c.src))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestGoldenGroupMetadata(t *testing.T) {
	v := &groupMetadata{
		ProtocolType: "consumer", Generation: 2, Protocol: ptr("range"), Leader: ptr("m1"),
		CurrentStateTimestamp: 1700000000000,
		Members: []kmsg.GroupMetadataValueMember{{
			MemberID: "m1", ClientID: "c", ClientHost: "/127.0.0.1", RebalanceTimeoutMillis: 300000,
			SessionTimeoutMillis: 45000, Subscription: []byte{1}, Assignment: []byte{2},
		}},
	}
	const want = "00030008636f6e73756d657200000002000572616e676500026d310000018bcfe568000000000100026d31ffff0001" +
		"63000a2f3132372e302e302e31000493e00000afc800000001010000000102"
	src := encodeGroupMetadata(v)
	require.Equal(t, want, hex.EncodeToString(src))
	got, err := decodeGroupMetadata(src)
	require.NoError(t, err)
	require.Equal(t, v, got)
	for i := range src {
		src[i] = 0xff
	}
	require.Equal(t, v, got, "nothing refers to the record's bytes")
}

func TestGoldenConsumerValues(t *testing.T) {
	group := &consumerGroupMetadata{epoch: 7}
	require.Equal(t, "00000000000700", hex.EncodeToString(encodeConsumerGroup(group)))
	same(t, group, encodeConsumerGroup, decodeConsumerGroup)
	group.metadataHash = 0x0102030405060708
	require.Equal(t, "0000000000070100080102030405060708", hex.EncodeToString(encodeConsumerGroup(group)))
	same(t, group, encodeConsumerGroup, decodeConsumerGroup)

	member := &memberMetadata{clientID: "c", clientHost: "/127.0.0.1", topics: []string{"t1"},
		rebalanceTimeoutMs: 300000, serverAssignor: ptr("uniform")}
	const bare = "0000000002630b2f3132372e302e302e310203743100000493e008756e69666f726d"
	require.Equal(t, bare+"00", hex.EncodeToString(encodeMember(member)))
	same(t, member, encodeMember, decodeMember)
	member.classic = &classicMember{sessionTimeoutMs: 6000, protocols: []classicProtocol{{"range", []byte{1, 2}}}}
	member.state, member.sessionTimeoutMs = []byte("st"), 5000
	require.Equal(t, bare+"03"+"00"+"10"+"00001770"+"02"+"0672616e6765"+"030102"+"00"+"00"+
		"904e"+"02"+"7374"+"914e"+"04"+"00001388", hex.EncodeToString(encodeMember(member)))
	same(t, member, encodeMember, decodeMember)
	member.instanceID, member.rackID, member.topicRegex = ptr("i"), ptr("r"), ptr("t.*")
	member.unknown.Set(77, []byte("later"))
	same(t, member, encodeMember, decodeMember)

	target := &targetMetadata{assignmentEpoch: 7}
	require.Equal(t, "00000000000700", hex.EncodeToString(encodeTargetMetadata(target)))
	same(t, target, encodeTargetMetadata, decodeTargetMetadata)
	target.timestamp = 1700000000000
	same(t, target, encodeTargetMetadata, decodeTargetMetadata)

	assigned := &targetMember{assigned: []topicPartitions{{testTopicID, []int32{0, 1}}}}
	require.Equal(t, "0000020123456789abcdef00112233445566770300000000000000010000",
		hex.EncodeToString(encodeTargetMember(assigned)))
	same(t, assigned, encodeTargetMember, decodeTargetMember)

	current := &currentMember{memberEpoch: 7, previousMemberEpoch: 6, state: memberStable,
		assigned: []topicPartitions{{testTopicID, []int32{0}}}, pendingRevocation: []topicPartitions{}}
	require.Equal(t, "0000000000070000000600020123456789abcdef00112233445566770200000000000100",
		hex.EncodeToString(encodeCurrentMember(current)))
	same(t, current, encodeCurrentMember, decodeCurrentMember)

	regex := &regexTopics{topics: []string{"t1"}, version: 9, timestamp: 1700000000000}
	require.Equal(t, "0000"+"02037431"+"0000000000000009"+"0000018bcfe56800"+"00", hex.EncodeToString(encodeRegex(regex)))
	same(t, regex, encodeRegex, decodeRegex)

	old := &partitionMetadata{topics: []topicMetadata{{testTopicID, "t1", 1, []partitionRacks{{0, []string{"r"}}}}}}
	require.Equal(t, "0000"+"02"+"0123456789abcdef0011223344556677"+"037431"+"00000001"+
		"02"+"00000000"+"020272"+"00"+"00"+"00", hex.EncodeToString(encodePartitionMetadata(old)))
	same(t, old, encodePartitionMetadata, decodePartitionMetadata)
}

// same encodes and decodes v, also cut short at every place, which must be refused and not crash.
func same[T any](t *testing.T, v *T, encode func(*T) []byte, decode func([]byte) (*T, error)) {
	t.Helper()
	src := encode(v)
	got, err := decode(src)
	require.NoError(t, err)
	require.Equal(t, v, got)
	for n := range src {
		_, err := decode(src[:n])
		require.Error(t, err, "cut at %d", n)
	}
	_, err = decode(append(src[:len(src):len(src)], 0))
	require.ErrorIs(t, err, errBadRecord)
	later := append([]byte(nil), src...)
	later[1] = 9
	_, err = decode(later)
	require.ErrorIs(t, err, errUnknownVersion)
}

func TestKeysThatDoNotDecode(t *testing.T) {
	for _, kind := range []string{"0009", "000a", "000f", "0011", "ffff", "7fff"} {
		_, err := decodeKey(unhex(t, kind+"00026731"))
		require.ErrorIs(t, err, errUnknownKind, kind)
	}
	for _, src := range []string{
		"", "00", "0002", "000200036731", "0002ffff", "00020002673100", "000100026731000274310000",
	} {
		_, err := decodeKey(unhex(t, src))
		require.ErrorIs(t, err, errBadRecord, src)
	}
}

// FuzzRecords decodes any bytes as each kind of record; what decodes is encoded and decodes again.
func FuzzRecords(f *testing.F) {
	f.Add(encodeMember(&memberMetadata{topics: []string{"t"}, state: []byte{1}}))
	f.Add(encodeCurrentMember(&currentMember{assigned: []topicPartitions{{testTopicID, []int32{0}}}}))
	f.Add(encodeOffset(&committed{offset: 1, metadata: "m"}))
	f.Add(encodeGroupMetadata(&groupMetadata{ProtocolType: "consumer", Members: make([]kmsg.GroupMetadataValueMember, 2)}))
	f.Add(offsetKey("g", "t", 1))
	f.Fuzz(func(t *testing.T, src []byte) {
		_, _ = decodeKey(src)
		_, _ = decodeOffset(src)
		_, _ = decodeGroupMetadata(src)
		again(t, src, decodeMember, encodeMember)
		again(t, src, decodeConsumerGroup, encodeConsumerGroup)
		again(t, src, decodePartitionMetadata, encodePartitionMetadata)
		again(t, src, decodeTargetMetadata, encodeTargetMetadata)
		again(t, src, decodeTargetMember, encodeTargetMember)
		again(t, src, decodeCurrentMember, encodeCurrentMember)
		again(t, src, decodeRegex, encodeRegex)
	})
}

func again[T any](t *testing.T, src []byte, decode func([]byte) (*T, error), encode func(*T) []byte) {
	t.Helper()
	v, err := decode(src)
	if err != nil {
		return
	}
	got, err := decode(encode(v))
	require.NoError(t, err)
	require.Equal(t, encode(v), encode(got))
}
