package peer_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/peer"
)

// lossy lists the fields that do not arrive, of each message that has such: what its pinned version has no room for.
// Nobody may rely on them. A message that is not listed arrives whole.
var lossy = map[string]string{
	"AddPartitionsToTxnRequest":  "ProducerEpoch ProducerID Topics TransactionalID",
	"AddPartitionsToTxnResponse": "Topics",
	"AlterPartitionRequest":      "Topics.Partitions.NewISR Topics.Topic",
	"AlterPartitionResponse":     "Topics.Topic",
	"DeleteTopicsRequest":        "TopicNames",
	"DescribeConfigsResponse":    "Resources.Configs.IsDefault",
	"FetchRequest":               "ForgottenTopics.Topic ReplicaID Topics.Topic",
	"FindCoordinatorRequest":     "CoordinatorKey",
	"FindCoordinatorResponse":    "ErrorCode ErrorMessage Host NodeID Port",
	"LeaveGroupRequest":          "MemberID",
	"ListOffsetsRequest":         "Topics.Partitions.MaxNumOffsets",
	"ListOffsetsResponse":        "Topics.Partitions.OldStyleOffsets",
	"MetadataRequest":            "IncludeClusterAuthorizedOperations",
	"MetadataResponse":           "AuthorizedOperations",
	"OffsetCommitRequest":        "RetentionTimeMillis Topics.Partitions.Timestamp Topics.TopicID",
	"OffsetCommitResponse":       "Topics.TopicID",
	"OffsetFetchRequest":         "Group Groups.Topics.TopicID Topics",
	"OffsetFetchResponse":        "ErrorCode Groups.Topics.TopicID Topics",
	"ProduceRequest":             "Topics.Topic",
	"TxnOffsetCommitRequest":     "Topics.TopicID",
	"TxnOffsetCommitResponse":    "Topics.TopicID",
}

// Every message is filled in everywhere, encoded as between nodes, and compared with what comes out. What is lost is
// known, and nothing else is.
func TestNothingElseIsLost(t *testing.T) {
	lost := make(map[string]string)
	note := func(message any, gone []string) {
		if slices.Sort(gone); len(gone) > 0 {
			lost[reflect.TypeOf(message).Elem().Name()] = strings.Join(slices.Compact(gone), " ")
		}
	}
	for key := range int16(kmsg.MaxKey + 1) {
		r := kmsg.RequestForKey(key)
		if r == nil {
			continue
		}
		fill(reflect.ValueOf(r).Elem())
		version, ok := peer.Version(r)
		if !ok {
			continue
		}
		wire, err := peer.AppendRequest(nil, r)
		require.NoError(t, err)
		got, err := peer.ReadRequest(key, version, wire)
		require.NoError(t, err)
		note(r, differences(reflect.ValueOf(r).Elem(), reflect.ValueOf(got).Elem(), ""))

		resp := r.ResponseKind()
		fill(reflect.ValueOf(resp).Elem())
		resp.SetVersion(version)
		answer, err := peer.ReadResponse(r, resp.AppendTo(nil))
		require.NoError(t, err)
		note(resp, differences(reflect.ValueOf(resp).Elem(), reflect.ValueOf(answer).Elem(), ""))
	}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		require.Equal(t, lossy[name], lost[name], name)
	}
	require.Equal(t, slices.Sorted(maps.Keys(lossy)), slices.Sorted(maps.Keys(lost)))
}

// fill sets everything in a message to something that no default is.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if _, tags := v.Addr().Interface().(*kmsg.Tags); tags {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString("filled")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Float64:
		v.SetFloat(6.5)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	default:
		v.SetInt(7)
	}
}

// differences lists the fields in which two messages differ. What a slice has is compared by its first.
func differences(a, b reflect.Value, path string) []string {
	switch a.Kind() {
	case reflect.Struct:
		if _, tags := a.Addr().Interface().(*kmsg.Tags); tags {
			return nil
		}
		var out []string
		for i := range a.NumField() {
			if name := a.Type().Field(i).Name; name != "Version" {
				out = append(out, differences(a.Field(i), b.Field(i), strings.TrimPrefix(path+"."+name, "."))...)
			}
		}
		return out
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			break
		}
		return differences(a.Elem(), b.Elem(), path)
	case reflect.Slice:
		if a.Len() != b.Len() || a.Len() == 0 {
			break
		}
		return differences(a.Index(0), b.Index(0), path)
	}
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return nil
	}
	return []string{path}
}
