package broker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
)

// The differences between our answers and kfake's, by step, and why they are.
var differences = map[string]struct{ ours, kfake, reason string }{
	"produce acks 5":           {"INVALID_REQUIRED_ACKS", "base 0", "Kafka refuses; kfake ignores acks"},
	"produce nothing":          {"INVALID_RECORD", "CORRUPT_MESSAGE", oneBatch},
	"produce two batches":      {"INVALID_RECORD", "CORRUPT_MESSAGE", oneBatch},
	"produce half a batch":     {"INVALID_RECORD", "CORRUPT_MESSAGE", oneBatch},
	"produce old format":       {"INVALID_RECORD", "CORRUPT_MESSAGE", oneBatch},
	"produce base offset 5":    {"INVALID_RECORD", "CORRUPT_MESSAGE", wholeButWrong},
	"produce wrong count":      {"INVALID_RECORD", "CORRUPT_MESSAGE", wholeButWrong},
	"produce unknown codec":    {"UNSUPPORTED_COMPRESSION_TYPE", "CORRUPT_MESSAGE", "tells what to change"},
	"produce without sequence": {"INVALID_RECORD", "base 1", "Kafka refuses a producer id without a sequence"},
	"produce null key to compacted": {"INVALID_RECORD, 2 records at fault", "base 0",
		"Kafka refuses what compaction would lose"},
	"produce transactional without id": {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "INVALID_TXN_STATE",
		"Kafka refuses a request with a transactional batch and no transactional id as not authorised"},
	"metadata illegal name": {"INVALID_TOPIC_EXCEPTION, 0 partitions, internal false",
		"UNKNOWN_TOPIC_OR_PARTITION, 0 partitions, internal false", "Kafka checks the name first"},
	"metadata illegal name, create": {"INVALID_TOPIC_EXCEPTION, 0 partitions, internal false",
		"NONE, 1 partitions, internal false", "a topic name is a folder name; kfake does not check it"},
	"init with a transactional id": {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED, id given false, epoch -1",
		"NONE, id given true, epoch 0", "the transaction coordinator is another part of the node"},
	"init with an empty transactional id": {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED, id given false, epoch -1",
		"INVALID_REQUEST, id given false, epoch 0", "the transaction coordinator is another part of the node"},
}

const wholeButWrong = "Kafka's validator: the batch is whole, but not valid"

const oneBatch = "Kafka's validator: a produce holds exactly one batch of format 2"

// side is one of the two clusters that get the same requests.
type side struct {
	t   *testing.T
	r   kmsg.Requestor
	ids map[string][16]byte
}

// kfakeSide starts a kfake with topics t (2 partitions) and small (max.message.bytes 200), spoken to
// through one broker, as the router would.
func kfakeSide(t *testing.T) *side {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), client)
	require.NoError(t, err)
	return (&side{t: t, r: client.Broker(int(meta.Brokers[0].NodeID))}).prepare()
}

func ourSide(t *testing.T) *side {
	n := newNode(t, options{})
	t.Cleanup(n.stop)
	return (&side{t: t, r: n.r}).prepare()
}

// prepare makes the topics and learns their ids.
func (s *side) prepare() *side {
	create := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range []string{"t", "small", "compacted", "scratch"} {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 2, 1
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		switch name {
		case "small":
			config.Name, config.Value = "max.message.bytes", kmsg.StringPtr("200")
		case "compacted":
			config.Name, config.Value = "cleanup.policy", kmsg.StringPtr("compact")
		default:
			config.Name, config.Value = "retention.ms", kmsg.StringPtr("-1")
		}
		topic.Configs = append(topic.Configs, config)
		create.Topics = append(create.Topics, topic)
	}
	resp, err := create.RequestWith(s.t.Context(), s.r)
	require.NoError(s.t, err)
	s.ids = make(map[string][16]byte)
	for _, topic := range resp.Topics {
		require.Equal(s.t, "NONE", name(topic.ErrorCode))
		s.ids[topic.Topic] = topic.TopicID
	}
	return s
}

// step is one request and how its answer reads.
type step struct {
	name string
	do   func(context.Context, *side) (string, error)
}

func produceStep(what, topic string, b []byte, change ...func(*kmsg.ProduceRequest)) step {
	return step{what, func(ctx context.Context, s *side) (string, error) {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 60_000
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.TopicID = topic, s.ids[topic]
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = append([]byte(nil), b...)
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		for _, f := range change {
			f(req)
		}
		resp, err := req.RequestWith(ctx, s.r)
		if err != nil {
			return "", err
		}
		a := resp.Topics[0].Partitions[0]
		if a.ErrorCode != 0 {
			if n := len(a.ErrorRecords); n > 0 {
				return fmt.Sprintf("%s, %d records at fault", name(a.ErrorCode), n), nil
			}
			return name(a.ErrorCode), nil
		}
		return fmt.Sprintf("base %d", a.BaseOffset), nil
	}}
}

func fetchStep(what, topic string, offset int64, change ...func(*kmsg.FetchRequest)) step {
	return step{what, func(ctx context.Context, s *side) (string, error) {
		req := kmsg.NewPtrFetchRequest()
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = topic, s.ids[topic]
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.PartitionMaxBytes = offset, 1<<20
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		for _, f := range change {
			f(req)
		}
		resp, err := req.RequestWith(ctx, s.r)
		if err != nil {
			return "", err
		}
		a := resp.Topics[0].Partitions[0]
		if a.ErrorCode != 0 {
			return name(a.ErrorCode), nil
		}
		return fmt.Sprintf("%s hw %d start %d stable %d", strings.Join(values(s.t, a.RecordBatches), ","),
			a.HighWatermark, a.LogStartOffset, a.LastStableOffset), nil
	}}
}

func listStep(what, topic string, at int64, change ...func(*kmsg.ListOffsetsRequest)) step {
	return step{what, func(ctx context.Context, s *side) (string, error) {
		req := kmsg.NewPtrListOffsetsRequest()
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = at
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		for _, f := range change {
			f(req)
		}
		resp, err := req.RequestWith(ctx, s.r)
		if err != nil {
			return "", err
		}
		a := resp.Topics[0].Partitions[0]
		if a.ErrorCode != 0 {
			return name(a.ErrorCode), nil
		}
		if a.Timestamp >= 0 {
			a.Timestamp -= began
		}
		return fmt.Sprintf("offset %d timestamp %d", a.Offset, a.Timestamp), nil
	}}
}

func metadataStep(what string, auto bool, topic string) step {
	return step{what, func(ctx context.Context, s *side) (string, error) {
		resp, err := metadataRequest(auto, topic).RequestWith(ctx, s.r)
		if err != nil {
			return "", err
		}
		a := resp.Topics[0]
		return fmt.Sprintf("%s, %d partitions, internal %v", name(a.ErrorCode), len(a.Partitions), a.IsInternal), nil
	}}
}

func initStep(what string, change func(*kmsg.InitProducerIDRequest)) step {
	return step{what, func(ctx context.Context, s *side) (string, error) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.ProducerID, req.ProducerEpoch = -1, -1
		change(req)
		resp, err := req.RequestWith(ctx, s.r)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s, id given %v, epoch %d", name(resp.ErrorCode), resp.ProducerID >= 0, resp.ProducerEpoch), nil
	}}
}

// began is the time from which the tests count: records much older would begin a new segment each. All that nodes date
// themselves, such as markers, is far behind what is looked up.
var began = time.Now().Add(-time.Hour).UnixMilli()

// timed builds a batch of records with those timestamps, in milliseconds since began.
func timed(at ...int64) []byte {
	var b record.Builder
	for _, ms := range at {
		b.Append(&record.Record{Timestamp: began + ms, Key: []byte("k"), Value: []byte(fmt.Sprint(ms))})
	}
	return b.Build()
}

func corrupted(b record.Batch, change func(record.Batch)) []byte {
	change(b)
	return b
}

func differentialSteps() []step {
	return slices.Concat(produceSteps(), fetchSteps(), listSteps(), otherSteps())
}

func produceSteps() []step {
	acks := func(n int16) func(*kmsg.ProduceRequest) { return func(r *kmsg.ProduceRequest) { r.Acks = n } }
	partition := func(n int32) func(*kmsg.ProduceRequest) {
		return func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Partition = n }
	}
	unknown := func(r *kmsg.ProduceRequest) { r.Topics[0].TopicID = [16]byte{5} }
	return []step{
		produceStep("produce", "t", timed(1000, 3000, 2000)),
		produceStep("produce acks 1", "t", timed(4000), acks(1)),
		produceStep("produce acks 5", "scratch", timed(4000), acks(5)),
		produceStep("produce unknown topic", "absent", timed(1), unknown),
		produceStep("produce unknown partition", "t", timed(1), partition(2)),
		produceStep("produce nothing", "t", nil),
		produceStep("produce two batches", "t", append(timed(1), timed(2)...)),
		produceStep("produce half a batch", "t", timed(1)[:50]),
		produceStep("produce bad checksum", "t", corrupted(timed(1), func(b record.Batch) { b[len(b)-1] ^= 1 })),
		produceStep("produce old format", "t", corrupted(timed(1), func(b record.Batch) { b[16] = 1 })),
		produceStep("produce base offset 5", "t", corrupted(timed(1), func(b record.Batch) { b.SetBaseOffset(5) })),
		produceStep("produce control batch", "t", corrupted(timed(1), func(b record.Batch) { b[22] |= 0x20; b.Seal() })),
		produceStep("produce unknown codec", "t", corrupted(timed(1), func(b record.Batch) { b[22] |= 7; b.Seal() })),
		produceStep("produce wrong count", "t", corrupted(timed(1), func(b record.Batch) { b[60]++; b.Seal() })),
		produceStep("produce without sequence", "scratch", batch(5, 0, -1, "v")),
		produceStep("produce too large", "small", timed(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)),
		produceStep("produce null key to compacted", "compacted", keyless()),
		produceStep("produce transactional without id", "t", transactional()),
		produceStep("idempotent first", "t", batch(50, 0, 0, "a", "b")),
		produceStep("idempotent next", "t", batch(50, 0, 2, "c")),
		produceStep("idempotent repeat", "t", batch(50, 0, 0, "a", "b")),
		produceStep("idempotent gap", "t", batch(50, 0, 9, "x")),
		produceStep("idempotent new epoch not from 0", "t", batch(50, 1, 9, "x")),
		produceStep("idempotent new epoch", "t", batch(50, 1, 0, "d")),
		produceStep("idempotent old epoch", "t", batch(50, 0, 3, "x")),
		produceStep("idempotent unknown producer", "t", batch(51, 0, 77, "e")),
	}
}

func fetchSteps() []step {
	return []step{
		fetchStep("fetch all", "t", 0),
		fetchStep("fetch from the middle of a batch", "t", 1),
		fetchStep("fetch at the end", "t", 9),
		fetchStep("fetch beyond the end", "t", 10),
		fetchStep("fetch below the start", "t", -1),
		fetchStep("fetch unknown topic", "absent", 0, func(r *kmsg.FetchRequest) { r.Topics[0].TopicID = [16]byte{5} }),
		fetchStep("fetch unknown partition", "t", 0,
			func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 2 }),
		fetchStep("fetch newer epoch", "t", 0,
			func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 90 }),
		fetchStep("fetch one byte", "t", 0, func(r *kmsg.FetchRequest) { r.MaxBytes = 1 }),
	}
}

func listSteps() []step {
	first := func(r *kmsg.ListOffsetsRequest) { r.Topics[0].Partitions[0].Partition = 1 }
	return []step{
		listStep("list latest", "t", -1),
		listStep("list earliest", "t", -2),
		listStep("list greatest timestamp", "small", -3),
		listStep("list -7", "t", -7),
		listStep("list at 0", "t", 0),
		listStep("list at 1001", "t", began+1001),
		listStep("list at 3000", "t", began+3000),
		listStep("list in the future", "t", 1<<60),
		listStep("list empty partition", "t", 1000, first),
		listStep("list latest of empty partition", "t", -1, first),
		listStep("list unknown topic", "absent", -1),
		listStep("list newer epoch", "t", -1,
			func(r *kmsg.ListOffsetsRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 90 }),
	}
}

func otherSteps() []step {
	return []step{
		metadataStep("metadata", false, "t"),
		metadataStep("metadata unknown", false, "absent"),
		metadataStep("metadata illegal name", false, "a/b"),
		metadataStep("metadata illegal name, create", true, "a/b"),
		metadataStep("metadata create", true, "created"),

		initStep("init", func(*kmsg.InitProducerIDRequest) {}),
		initStep("init with a transactional id", func(r *kmsg.InitProducerIDRequest) {
			r.TransactionalID, r.TransactionTimeoutMillis = kmsg.StringPtr("x"), 1000
		}),
		initStep("init with an empty transactional id", func(r *kmsg.InitProducerIDRequest) {
			r.TransactionalID, r.TransactionTimeoutMillis = kmsg.StringPtr(""), 1000
		}),
	}
}

// kfake is a second opinion on what Kafka answers. Where we differ, the table says why.
func TestAnswersLikeKfake(t *testing.T) {
	ours, other := ourSide(t), kfakeSide(t)
	used := make(map[string]bool)
	for _, s := range differentialSteps() {
		got, err := s.do(t.Context(), ours)
		require.NoError(t, err, s.name)
		want, err := s.do(t.Context(), other)
		if err != nil {
			want = "error"
		}
		if d, ok := differences[s.name]; ok {
			used[s.name] = true
			require.Equal(t, d.ours, got, s.name)
			require.Equal(t, d.kfake, want, s.name)
			require.NotEmpty(t, d.reason)
			continue
		}
		if got != want {
			t.Errorf("%s: we answer %q, kfake %q", s.name, got, want)
		}
	}
	require.Len(t, used, len(differences), "the table lists a difference that is none")
}
