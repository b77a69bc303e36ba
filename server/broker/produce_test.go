package broker_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/storage"
)

// name is Kafka's name of an error code.
func name(code int16) string {
	if e := kerr.TypedErrorForCode(code); e != nil {
		return e.Message
	}
	return "NONE"
}

func transactional() []byte {
	var b record.Builder
	b.SetProducer(1, 0, 0)
	b.SetTransactional()
	b.Append(&record.Record{Value: []byte("v")})
	return b.Build()
}

// keyless has a key in the middle one of three records only.
func keyless() []byte {
	var b record.Builder
	b.Append(&record.Record{Value: []byte("v")})
	b.Append(&record.Record{Key: []byte("k"), Value: []byte("v")})
	b.Append(&record.Record{Value: []byte("v")})
	return b.Build()
}

func TestProduceRefusals(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	n.create("t", 2, "max.message.bytes", "500")
	n.create("compacted", 1, "cleanup.policy", "compact")
	n.create("two", 1, "min.insync.replicas", "2")
	broken := plain("v")
	broken[len(broken)-1] ^= 1
	zero := [16]byte{}
	for _, c := range []struct {
		name    string
		change  func(*kmsg.ProduceRequest)
		topic   string
		records []byte
		want    string
	}{
		{"acks 2", func(r *kmsg.ProduceRequest) { r.Acks = 2 }, "t", plain("v"), "INVALID_REQUIRED_ACKS"},
		{"unknown topic", func(*kmsg.ProduceRequest) {}, "absent", plain("v"), "UNKNOWN_TOPIC_OR_PARTITION"},
		{"unknown id", func(r *kmsg.ProduceRequest) { r.Topics[0].TopicID[3]++ }, "t", plain("v"), "UNKNOWN_TOPIC_ID"},
		{"name and id apart", func(r *kmsg.ProduceRequest) { r.Topics[0].Topic = "compacted" }, "t", plain("v"),
			"INCONSISTENT_TOPIC_ID"},
		{"name alone", func(r *kmsg.ProduceRequest) { r.Topics[0].TopicID = zero }, "t", plain("v"), "NONE"},
		{"id alone", func(r *kmsg.ProduceRequest) { r.Topics[0].Topic = "" }, "t", plain("v"), "NONE"},
		{"unknown partition", func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Partition = 2 }, "t", plain("v"),
			"UNKNOWN_TOPIC_OR_PARTITION"},
		{"negative partition", func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Partition = -1 }, "t", plain("v"),
			"UNKNOWN_TOPIC_OR_PARTITION"},
		{"too large", func(*kmsg.ProduceRequest) {}, "t", plain(strings.Repeat("v", 500)), "MESSAGE_TOO_LARGE"},
		{"no batch", func(*kmsg.ProduceRequest) {}, "t", nil, "INVALID_RECORD"},
		{"two batches", func(*kmsg.ProduceRequest) {}, "t", append(plain("v"), plain("w")...), "INVALID_RECORD"},
		{"broken", func(*kmsg.ProduceRequest) {}, "t", broken, "CORRUPT_MESSAGE"},
		{"short", func(*kmsg.ProduceRequest) {}, "t", plain("v")[:40], "INVALID_RECORD"},
		{"transactional batch", func(*kmsg.ProduceRequest) {}, "t", transactional(),
			"TRANSACTIONAL_ID_AUTHORIZATION_FAILED"},
		{"transactional id", func(r *kmsg.ProduceRequest) { r.TransactionID = kmsg.StringPtr("x") }, "t", plain("v"),
			"INVALID_RECORD"},
		{"null keys", func(*kmsg.ProduceRequest) {}, "compacted", keyless(), "INVALID_RECORD"},
		{"too few replicas", func(*kmsg.ProduceRequest) {}, "two", plain("v"), "NOT_ENOUGH_REPLICAS"},
		{"too few replicas, acks 1", func(r *kmsg.ProduceRequest) { r.Acks = 1 }, "two", plain("v"), "NONE"},
		{"acks 0", func(r *kmsg.ProduceRequest) { r.Acks = 0 }, "t", plain("v"), "NONE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := n.produceRequest(c.topic, 0, c.records)
			c.change(req)
			p := n.send(req)
			require.Equal(t, c.want, name(p.ErrorCode))
			if p.ErrorCode == 0 {
				require.Nil(t, p.ErrorMessage)
				return
			}
			require.NotEmpty(t, *p.ErrorMessage)
			require.Equal(t, int64(-1), p.BaseOffset)
		})
	}
	p := n.send(n.produceRequest("compacted", 0, keyless()))
	require.Len(t, p.ErrorRecords, 2)
	require.Equal(t, int32(0), p.ErrorRecords[0].RelativeOffset)
	require.Equal(t, int32(2), p.ErrorRecords[1].RelativeOffset)
	require.NotEmpty(t, *p.ErrorRecords[1].ErrorMessage)
}

func TestInternalTopicsAreNotForClients(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	n.create("__consumer_offsets", 1)
	p := n.send(n.produceRequest("__consumer_offsets", 0, plain("v")))
	require.Equal(t, "INVALID_TOPIC_EXCEPTION", name(p.ErrorCode))
}

func TestTagsOfProduce(t *testing.T) {
	n := newNode(t, options{recoded: true})
	defer n.stop()
	n.create("t", 1)
	id := ktag.NamedProducerID("device")
	req := func(b []byte, set func(*kmsg.Tags)) *kmsg.ProduceRequest {
		r := n.produceRequest("t", 0, b)
		set(&r.Topics[0].Partitions[0].UnknownTags)
		return r
	}
	none := func(*kmsg.Tags) {}

	p := n.send(req(plain("a"), func(tags *kmsg.Tags) { ktag.SetExpectedOffset(tags, 0) }))
	require.Equal(t, "NONE", name(p.ErrorCode))
	p = n.send(req(plain("b"), func(tags *kmsg.Tags) { ktag.SetExpectedOffset(tags, 0) }))
	require.Equal(t, "INVALID_UPDATE_VERSION", name(p.ErrorCode))
	actual, ok := ktag.ActualOffset(&p.UnknownTags)
	require.True(t, ok)
	require.Equal(t, int64(1), actual)

	first := batch(id, 3, 0, "c", "d")
	at := first.MaxTimestamp()
	p = n.send(req(first, none))
	require.Equal(t, int64(1), p.BaseOffset)
	require.False(t, ktag.Duplicate(&p.UnknownTags))
	p = n.send(req(batch(id, 3, 0, "c", "d", "not of the first"), none))
	require.Equal(t, "NONE", name(p.ErrorCode))
	require.Equal(t, int64(1), p.BaseOffset)
	require.True(t, ktag.Duplicate(&p.UnknownTags))
	got, ok := ktag.AppendTime(&p.UnknownTags)
	require.True(t, ok)
	require.Equal(t, at, got)
	count, ok := ktag.FirstCount(&p.UnknownTags)
	require.True(t, ok)
	require.Equal(t, int32(2), count, "of the first")

	p = n.send(req(batch(id, 3, 5, "e"), ktag.SetStrictSequence))
	require.Equal(t, "OUT_OF_ORDER_SEQUENCE_NUMBER", name(p.ErrorCode))
	sequence, ok := ktag.ExpectedSequence(&p.UnknownTags)
	require.True(t, ok)
	require.Equal(t, int32(1), sequence)

	require.Equal(t, int64(3), n.produce("t", 0, batch(id, 3, 2, "e")))
	p = n.send(req(batch(id, 3, 1, "passed over"), none))
	require.Equal(t, "OUT_OF_ORDER_SEQUENCE_NUMBER", name(p.ErrorCode))
	require.Contains(t, *p.ErrorMessage, "this one was not")
	_, ok = ktag.ExpectedSequence(&p.UnknownTags)
	require.False(t, ok, "it is not the next that is wanted")

	p = n.send(req(batch(id, 2, 1, "e"), none))
	require.Equal(t, "INVALID_PRODUCER_EPOCH", name(p.ErrorCode))
	epoch, ok := ktag.CurrentEpoch(&p.UnknownTags)
	require.True(t, ok)
	require.Equal(t, int16(3), epoch)
}

func TestDuplicatesAcrossARestart(t *testing.T) {
	n := newNode(t, options{})
	defer func() { n.stop() }()
	n.create("t", 1)
	for i := range int32(3) {
		require.Equal(t, int64(2*i), n.produce("t", 0, batch(9, 0, 2*i, "a", "b")))
	}
	n.restart()
	p := n.send(n.produceRequest("t", 0, batch(9, 0, 4, "a", "b")))
	require.Equal(t, "NONE", name(p.ErrorCode))
	require.Equal(t, int64(4), p.BaseOffset)
	require.True(t, ktag.Duplicate(&p.UnknownTags))
	count, ok := ktag.FirstCount(&p.UnknownTags)
	require.True(t, ok)
	require.Equal(t, int32(2), count)
	require.Equal(t, int64(6), n.produce("t", 0, batch(9, 0, 6, "c")))
}

func TestProduceToManyPartitions(t *testing.T) {
	n := newNode(t, options{recoded: true})
	defer n.stop()
	n.create("t", 20)
	n.create("u", 2)
	req := n.produceRequest("t", 0, plain("0"))
	for i := range int32(25) {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = i+1, plain("x", "y")
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	req.Topics = append(req.Topics, n.produceRequest("u", 1, plain("z")).Topics...)
	resp, err := req.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	for i, p := range resp.Topics[0].Partitions {
		require.Equal(t, int32(i), p.Partition)
		want := "NONE"
		if i >= 20 {
			want = "UNKNOWN_TOPIC_OR_PARTITION"
		}
		require.Equal(t, want, name(p.ErrorCode), "partition %d", i)
	}
	require.Equal(t, "u", resp.Topics[1].Topic)
	require.Equal(t, "NONE", name(resp.Topics[1].Partitions[0].ErrorCode))
}

func TestAcknowledgedMeansReadable(t *testing.T) {
	for _, policy := range []storage.SyncPolicy{storage.SyncAck, storage.SyncNever} {
		n := newNode(t, options{policy: policy})
		n.create("t", 1)
		for i := range int64(50) {
			require.Equal(t, i, n.produce("t", 0, plain("v")))
			resp, err := n.fetchRequest("t", i).RequestWith(t.Context(), n.r)
			require.NoError(t, err)
			require.Equal(t, []string{"v"}, values(t, resp.Topics[0].Partitions[0].RecordBatches))
		}
		n.stop()
	}
}

func TestProduceWithAnEndedContext(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	n.create("t", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := n.produceRequest("t", 0, plain("v")).RequestWith(ctx, n.r)
	if err != nil { // the batch may also have been committed before anybody looked
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestListOffsets(t *testing.T) {
	n := newNode(t, options{recoded: true})
	defer n.stop()
	n.create("t", 2)
	var b record.Builder
	for _, at := range []int64{1000, 3000, 2000} {
		b.Append(&record.Record{Timestamp: at, Value: []byte("v")})
	}
	n.produce("t", 0, b.Build())
	type part = kmsg.ListOffsetsRequestTopicPartition
	list := func(topic string, partitions ...part) []kmsg.ListOffsetsResponseTopicPartition {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: partitions}}
		resp, err := req.RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		return resp.Topics[0].Partitions
	}
	at := func(partition int32, timestamp int64) part {
		return part{Partition: partition, CurrentLeaderEpoch: -1, Timestamp: timestamp}
	}
	for _, c := range []struct{ timestamp, offset, found int64 }{
		{-1, 3, -1}, {-2, 0, -1}, {-3, 1, 3000}, {-4, 0, -1}, {-5, -1, -1},
		{0, 0, 1000}, {1000, 0, 1000}, {1001, 1, 3000}, {3000, 1, 3000}, {3001, -1, -1}, {math.MaxInt64, -1, -1},
	} {
		p := list("t", at(0, c.timestamp))[0]
		require.Equal(t, "NONE", name(p.ErrorCode))
		require.Equal(t, c.offset, p.Offset, "at %d", c.timestamp)
		require.Equal(t, c.found, p.Timestamp, "at %d", c.timestamp)
	}
	require.Equal(t, int64(0), list("t", at(1, -1))[0].Offset)
	require.Equal(t, int64(-1), list("t", at(1, -3))[0].Offset)
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(list("t", at(2, -1))[0].ErrorCode))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(list("absent", at(0, -1))[0].ErrorCode))
	require.Equal(t, "UNSUPPORTED_VERSION", name(list("t", at(0, -9))[0].ErrorCode))
	twice := list("t", at(0, -1), at(1, -1), at(0, -2))
	require.Equal(t, "INVALID_REQUEST", name(twice[0].ErrorCode))
	require.Equal(t, "NONE", name(twice[1].ErrorCode))
	require.Equal(t, "INVALID_REQUEST", name(twice[2].ErrorCode))
	newer := at(0, -1)
	newer.CurrentLeaderEpoch = 7
	require.Equal(t, "UNKNOWN_LEADER_EPOCH", name(list("t", newer)[0].ErrorCode))
}

func TestDeleteRecords(t *testing.T) {
	n := newNode(t, options{recoded: true})
	defer n.stop()
	n.create("t", 1)
	n.create("compacted", 1, "cleanup.policy", "compact")
	n.produce("t", 0, plain("a", "b", "c", "d"))
	del := func(topic string, partition int32, offset int64) (int64, string) {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{
			Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}},
		}}
		resp, err := req.RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		p := resp.Topics[0].Partitions[0]
		return p.LowWatermark, name(p.ErrorCode)
	}
	for _, c := range []struct {
		topic     string
		partition int32
		offset    int64
		low       int64
		want      string
	}{
		{"t", 0, 5, -1, "OFFSET_OUT_OF_RANGE"},
		{"t", 0, -2, -1, "OFFSET_OUT_OF_RANGE"},
		{"t", 0, 2, 2, "NONE"},
		{"t", 0, 1, 2, "NONE"},
		{"t", 0, -1, 4, "NONE"},
		{"t", 1, 0, -1, "UNKNOWN_TOPIC_OR_PARTITION"},
		{"absent", 0, 0, -1, "UNKNOWN_TOPIC_OR_PARTITION"},
		{"compacted", 0, 0, -1, "POLICY_VIOLATION"},
	} {
		low, err := del(c.topic, c.partition, c.offset)
		require.Equal(t, c.want, err)
		require.Equal(t, c.low, low)
	}
	resp, err := n.fetchRequest("t", 3).RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, "OFFSET_OUT_OF_RANGE", name(resp.Topics[0].Partitions[0].ErrorCode))
	require.Equal(t, int64(4), resp.Topics[0].Partitions[0].LogStartOffset)
}
