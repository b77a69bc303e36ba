package servertest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// dropped are the fields that callers fill in although they do not travel, for who is asked goes without them: a topic
// has an id too, and so on.
var dropped = []string{
	"ProduceRequest.Topics.Topic", "FetchRequest.Topics.Topic", "FetchRequest.ForgottenTopics.Topic",
	"FetchRequest.ReplicaID", "FetchResponse.Topics.Topic", "ProduceResponse.Topics.Topic",
	"AlterPartitionRequest.Topics.Topic", "AlterPartitionRequest.Topics.Partitions.NewISR",
	"AlterPartitionResponse.Topics.Topic", "DeleteTopicsRequest.TopicNames",
	"DescribeConfigsResponse.Resources.Configs.IsDefault",
	"LeaveGroupRequest.MemberID", "MetadataResponse.AuthorizedOperations", "OffsetCommitRequest.RetentionTimeMillis",
	"OffsetCommitRequest.Topics.Partitions.Timestamp",
}

// lost lists what is set in a message and was not after it had travelled, but for what is dropped on purpose. A field
// with a number that only says that there is none is not set.
func lost(sent, came any) []string {
	a, b := reflect.ValueOf(sent).Elem(), reflect.ValueOf(came).Elem()
	var w loss
	w.compare(a, b, a.Type().Name())
	slices.Sort(w)
	return slices.Compact(w)
}

type loss []string

func (w *loss) compare(a, b reflect.Value, path string) {
	switch a.Kind() {
	case reflect.Struct:
		if tags, ok := a.Addr().Interface().(*kmsg.Tags); ok {
			w.compareTags(tags, b.Addr().Interface().(*kmsg.Tags), path)
			return
		}
		for i := range a.NumField() {
			if name := a.Type().Field(i).Name; name != "Version" {
				w.compare(a.Field(i), b.Field(i), path+"."+name)
			}
		}
	case reflect.Pointer:
		switch {
		case a.IsNil():
		case b.IsNil():
			w.note(path, a.Elem())
		default:
			w.compare(a.Elem(), b.Elem(), path)
		}
	case reflect.Slice:
		switch {
		case a.Len() != b.Len():
			w.note(path, a)
		case a.Type().Elem().Kind() == reflect.Uint8:
			if !bytes.Equal(a.Bytes(), b.Bytes()) {
				w.note(path, a)
			}
		default:
			for i := range a.Len() {
				w.compare(a.Index(i), b.Index(i), path)
			}
		}
	default:
		if !a.IsZero() && !(a.CanInt() && a.Int() == -1) && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			w.note(path, a)
		}
	}
}

func (w *loss) compareTags(a, b *kmsg.Tags, path string) {
	came := make(map[uint32][]byte)
	b.Each(func(key uint32, value []byte) { came[key] = value })
	a.Each(func(key uint32, value []byte) {
		if got, ok := came[key]; !ok || !bytes.Equal(got, value) {
			w.note(fmt.Sprintf("%s.%d", path, key), reflect.ValueOf(value))
		}
	})
}

func (w *loss) note(path string, v reflect.Value) {
	if !slices.Contains(dropped, path) {
		*w = append(*w, fmt.Sprintf("%s = %v", path, v))
	}
}
