package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
	"millrace/record"
)

// env is a client on a one-broker test double, with a clock of its own and a look at what passes.
type env struct {
	t      *testing.T
	client *client.Client
	broker kmsg.Requestor

	mu    sync.Mutex
	now   time.Time // guarded by mu
	seen  []kmsg.Request
	reply func(kmsg.Request) (kmsg.Response, error) // answers in place of the cluster, unless both are nil
}

func newEnv(t *testing.T, partitions int32, opts ...kfake.Opt) *env {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t")}, opts...)
	c, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	e := &env{t: t, broker: cl.Broker(0), now: time.UnixMilli(1_700_000_000_000)}
	e.client = client.New(e, client.Options{Now: e.clock, Rand: rand.New(rand.NewPCG(1, 2))})
	return e
}

func (e *env) clock() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

func (e *env) advance(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = e.now.Add(d)
}

func (e *env) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	e.mu.Lock()
	e.seen = append(e.seen, req)
	reply := e.reply
	e.mu.Unlock()
	if reply != nil {
		if resp, err := reply(req); resp != nil || err != nil {
			return resp, err
		}
	}
	return e.broker.Request(ctx, req)
}

// count is how many requests of a kind passed.
func (e *env) count(key int16) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, r := range e.seen {
		if r.Key() == key {
			n++
		}
	}
	return n
}

func (e *env) topic(name string, m client.Missing) *client.Topic {
	e.t.Helper()
	topic, err := e.client.Topic(e.t.Context(), name, m)
	require.NoError(e.t, err)
	return topic
}

func TestTopicName(t *testing.T) {
	for _, name := range []string{"a", "A-b_c.9", "...", "__internal", strings.Repeat("x", 249)} {
		require.NoError(t, client.CheckTopicName(name), name)
	}
	for _, name := range []string{"", ".", "..", "a/b", "a b", "ä", "a\x00", "a%2fb", strings.Repeat("x", 250), "../x"} {
		require.ErrorIs(t, client.CheckTopicName(name), kerr.InvalidTopicException, "%q", name)
	}
}

func TestTopicMetadataIsCached(t *testing.T) {
	e := newEnv(t, 3)
	first := e.topic("t", client.Refuse)
	require.Len(t, first.Partitions, 3)
	require.NotZero(t, first.ID)
	require.NoError(t, first.Has(2))
	require.ErrorIs(t, first.Has(3), kerr.UnknownTopicOrPartition)
	require.ErrorIs(t, first.Has(-1), kerr.UnknownTopicOrPartition)
	for range 10 {
		require.Same(t, first, e.topic("t", client.Refuse))
	}
	require.Equal(t, 1, e.count(3))
	e.advance(999 * time.Millisecond)
	require.Same(t, first, e.topic("t", client.Refuse))
	e.advance(time.Millisecond)
	require.NotSame(t, first, e.topic("t", client.Refuse))
	require.Equal(t, 2, e.count(3))
	e.client.Forget("t")
	e.topic("t", client.Refuse)
	require.Equal(t, 3, e.count(3))
	e.advance(-time.Hour) // a clock that is set back does not make metadata last longer
	e.topic("t", client.Refuse)
	require.Equal(t, 4, e.count(3))
}

func TestMissingTopic(t *testing.T) {
	e := newEnv(t, 1, kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(4))
	_, err := e.client.Topic(t.Context(), "new", client.Refuse)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	var k *client.KafkaError
	require.ErrorAs(t, err, &k)
	require.Equal(t, "new", k.Topic)
	require.Len(t, e.topic("new", client.Create).Partitions, 4)
	_, err = e.client.Topic(t.Context(), "a/b", client.Create)
	require.ErrorIs(t, err, kerr.InvalidTopicException)
	require.Equal(t, 2, e.count(3), "an illegal name is not sent")
}

func TestStaleTopicIsForgotten(t *testing.T) {
	e := newEnv(t, 1)
	topic := e.topic("t", client.Refuse)
	require.NoError(t, e.client.DeleteTopic(t.Context(), "t"))
	s := e.client.NewSender(topic, nil, 1, client.SendOptions{Acks: client.AcksAll, Timeout: time.Second})
	defer s.Release()
	require.NoError(t, s.Add(record.Record{Value: []byte("v")}, client.AnyPartition))
	require.NoError(t, s.Send(t.Context()))
	require.Error(t, s.Record(0).Err)
	_, err := e.client.Topic(t.Context(), "t", client.Refuse)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}

func TestNoAnswer(t *testing.T) {
	e := newEnv(t, 1)
	topic := e.topic("t", client.Refuse)
	broken := errors.New("connection reset")
	e.reply = func(kmsg.Request) (kmsg.Response, error) { return nil, broken }
	_, err := e.client.Fetch(t.Context(), client.FetchRequest{Topic: topic})
	require.ErrorIs(t, err, client.ErrNoAnswer)
	require.ErrorIs(t, err, broken)
	s := e.client.NewSender(topic, nil, 1, client.SendOptions{Acks: client.AcksAll})
	defer s.Release()
	require.NoError(t, s.Add(record.Record{}, 0))
	require.NoError(t, s.Send(t.Context()))
	require.ErrorIs(t, s.Record(0).Err, client.ErrNoAnswer)
}

func TestTopicsAndCluster(t *testing.T) {
	e := newEnv(t, 2)
	for _, name := range []string{"b", "a"} {
		made, err := e.client.CreateTopic(t.Context(), client.NewTopic{Name: name, Partitions: 5, ReplicationFactor: 1})
		require.NoError(t, err)
		require.EqualValues(t, 5, made.Partitions)
	}
	topics, err := e.client.Topics(t.Context())
	require.NoError(t, err)
	var names []string
	for _, topic := range topics {
		names = append(names, topic.Name)
	}
	require.Equal(t, []string{"a", "b", "t"}, names)

	_, err = e.client.CreateTopic(t.Context(), client.NewTopic{Name: "a", Partitions: 1, ReplicationFactor: 1})
	require.ErrorIs(t, err, kerr.TopicAlreadyExists)
	_, err = e.client.CreateTopic(t.Context(), client.NewTopic{
		Name: "c", Partitions: 1, ReplicationFactor: 1, Mode: client.ValidateOnly,
	})
	require.NoError(t, err)
	_, err = e.client.Topic(t.Context(), "c", client.Refuse)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)

	require.NoError(t, e.client.CreatePartitions(t.Context(), "a", 6, client.Apply))
	require.Len(t, e.topic("a", client.Refuse).Partitions, 6)
	require.ErrorIs(t, e.client.CreatePartitions(t.Context(), "a", 2, client.Apply), kerr.InvalidPartitions)
	require.ErrorIs(t, e.client.CreatePartitions(t.Context(), "zz", 6, client.Apply), kerr.UnknownTopicOrPartition)
	require.NoError(t, e.client.DeleteTopic(t.Context(), "a"))
	require.ErrorIs(t, e.client.DeleteTopic(t.Context(), "a"), kerr.UnknownTopicOrPartition)

	k, err := e.client.Cluster(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, k.ID)
	require.Len(t, k.Brokers, 1)
	again, err := e.client.Cluster(t.Context())
	require.NoError(t, err)
	require.Same(t, k, again)
}

func TestConfigs(t *testing.T) {
	e := newEnv(t, 1)
	res := client.Resource{Type: client.TopicResource, Name: "t"}
	value := "1234"
	errs, err := e.client.AlterConfigs(t.Context(), []client.ResourceChanges{{
		Resource: res, Changes: []client.ConfigChange{{Name: "retention.ms", Op: client.SetConfig, Value: &value}},
	}, {
		Resource: client.Resource{Type: client.TopicResource, Name: "missing"},
		Changes:  []client.ConfigChange{{Name: "retention.ms", Op: client.SetConfig, Value: &value}},
	}}, client.Apply)
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], kerr.UnknownTopicOrPartition)
	all, err := e.client.DescribeConfigs(t.Context(), []client.Resource{res}, "retention.ms")
	require.NoError(t, err)
	require.NoError(t, all[0].Err)
	require.Len(t, all[0].Configs, 1)
	c := all[0].Configs[0]
	require.Equal(t, "1234", *c.Value)
	require.Equal(t, "DYNAMIC_TOPIC_CONFIG", c.Source.String())
}

func TestFetchAndOffsets(t *testing.T) {
	e := newEnv(t, 2)
	topic := e.topic("t", client.Refuse)
	for i := range 3 {
		s := e.client.NewSender(topic, nil, 1, client.SendOptions{Acks: client.AcksAll})
		require.NoError(t, s.Add(record.Record{Value: fmt.Append(nil, i), Timestamp: 1000 + int64(i)}, 1))
		require.NoError(t, s.Send(t.Context()))
		require.EqualValues(t, i, s.Record(0).Offset)
		s.Release()
	}
	results, err := e.client.Fetch(t.Context(), client.FetchRequest{
		Topic: topic, MaxBytes: 1 << 20, Partitions: []client.FetchPartition{{Partition: 1, Offset: 1}, {Partition: 0}},
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, results[0].Partition)
	require.EqualValues(t, 3, results[0].HighWatermark)
	b, _, err := record.Next(results[0].Batches)
	require.NoError(t, err)
	require.EqualValues(t, 1, b.BaseOffset())
	require.Empty(t, results[1].Batches)
	require.NoError(t, results[1].Err)

	results, err = e.client.Fetch(t.Context(), client.FetchRequest{
		Topic: topic, MaxBytes: 1 << 20, Partitions: []client.FetchPartition{{Partition: 1, Offset: 9}},
	})
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, kerr.OffsetOutOfRange)

	offsets, err := e.client.ListOffsets(t.Context(), topic, []client.OffsetQuery{
		{Partition: 1, Timestamp: client.Latest}, {Partition: 1, Timestamp: client.Earliest}, {Partition: 7, Timestamp: 0},
	}, client.ReadUncommitted)
	require.NoError(t, err)
	require.Error(t, offsets[2].Err)
	_, err = e.client.DeleteRecords(t.Context(), topic, []client.BeforeOffset{{Partition: 1, Offset: 2}})
	require.NoError(t, err)
	offsets, err = e.client.ListOffsets(t.Context(), topic,
		[]client.OffsetQuery{{Partition: 1, Timestamp: client.Earliest}}, client.ReadUncommitted)
	require.NoError(t, err)
	require.EqualValues(t, 2, offsets[0].Offset)
}

func TestBounds(t *testing.T) {
	e := newEnv(t, 1)
	topic := e.topic("t", client.Refuse)
	s := e.client.NewSender(topic, nil, 1, client.SendOptions{Acks: client.AcksAll})
	defer s.Release()
	for range 3 {
		require.NoError(t, s.Add(record.Record{Value: []byte("v"), Timestamp: 1000}, 0))
	}
	require.NoError(t, s.Send(t.Context()))
	_, err := e.client.DeleteRecords(t.Context(), topic, []client.BeforeOffset{{Partition: 0, Offset: 2}})
	require.NoError(t, err)
	start, end, err := e.client.Bounds(t.Context(), topic, 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, start)
	require.EqualValues(t, 3, end)
	_, _, err = e.client.Bounds(t.Context(), topic, 1)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}

// A cluster may know topics by name alone, and answer in another order than it was asked.
func TestProduceAnswersWithoutTopicIDs(t *testing.T) {
	e := newEnv(t, 1)
	e.reply = func(r kmsg.Request) (kmsg.Response, error) {
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		for i, name := range []string{"b", "a"} {
			p := kmsg.NewProduceResponseTopicPartition()
			p.BaseOffset = int64(i)
			if name == "b" {
				p.ErrorCode = kerr.KafkaStorageError.Code
				ktag.SetNotWritten(&p.UnknownTags)
			}
			resp.Topics = append(resp.Topics, kmsg.ProduceResponseTopic{
				Topic: name, Partitions: []kmsg.ProduceResponseTopicPartition{p},
			})
		}
		return resp, nil
	}
	batch := func(name string) client.Batch {
		return client.Batch{Topic: &client.Topic{Name: name, Partitions: make([]client.Partition, 1)}}
	}
	results, err := e.client.Produce(t.Context(), client.ProduceRequest{
		Acks: client.AcksAll, Batches: []client.Batch{batch("a"), batch("b"), batch("c")},
	})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	require.EqualValues(t, 1, results[0].BaseOffset)
	var k *client.KafkaError
	require.ErrorAs(t, results[1].Err, &k)
	require.True(t, k.NotWritten)
	require.ErrorIs(t, results[2].Err, client.ErrNoAnswer)
}

// Bounds within which an offset lies refute that it is outside the log.
func TestFetchCode(t *testing.T) {
	for _, c := range []struct {
		code               int16
		start, end, offset int64
		want               *kerr.Error
	}{
		{1, 0, 95, 0, kerr.OffsetNotAvailable},
		{1, 18, 95, 95, kerr.OffsetNotAvailable},
		{1, 18, 95, 17, kerr.OffsetOutOfRange},
		{1, 18, 95, 96, kerr.OffsetOutOfRange},
		{1, -1, -1, 0, kerr.OffsetOutOfRange},
		{1, -1, 95, 0, kerr.OffsetOutOfRange},
		{6, 0, 95, 0, kerr.NotLeaderForPartition},
	} {
		p := kmsg.NewFetchResponseTopicPartition()
		p.ErrorCode, p.LogStartOffset, p.HighWatermark = c.code, c.start, c.end
		require.Equal(t, c.want.Code, client.FetchCode(&p, c.offset), "%+v", c)
	}
	p := kmsg.NewFetchResponseTopicPartition()
	require.Zero(t, client.FetchCode(&p, 0))
}
