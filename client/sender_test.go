package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
	"millrace/record"
)

func (e *env) sender(topic *client.Topic, o client.SendOptions) *client.Sender {
	o.Acks = client.AcksAll
	o.Timeout = time.Second
	s := e.client.NewSender(topic, nil, 1, o)
	e.t.Cleanup(s.Release)
	return s
}

// produced are the Produce requests that passed.
func (e *env) produced() (out []*kmsg.ProduceRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.seen {
		if p, ok := r.(*kmsg.ProduceRequest); ok {
			out = append(out, p)
		}
	}
	return out
}

// A caller that goes away does not give up what is on its way: whether it is stored could not be told then.
func TestProduceOutlivesItsCaller(t *testing.T) {
	e := newEnv(t, 1)
	topic := e.topic("t", client.Refuse)
	s := e.sender(topic, client.SendOptions{})
	require.NoError(t, s.Add(record.Record{Value: []byte("v"), Timestamp: 7}, 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Send(ctx))
	require.Zero(t, s.Record(0).Offset)
}

func TestSenderPlacesRecords(t *testing.T) {
	e := newEnv(t, 3)
	topic := e.topic("t", client.Refuse)
	s := e.sender(topic, client.SendOptions{})
	add := func(key []byte, partition int32) {
		t.Helper()
		require.NoError(t, s.Add(record.Record{Key: key, Value: fmt.Append(nil, s.Len()), Timestamp: 7}, partition))
	}
	add([]byte("abcde"), client.AnyPartition) // murmur2 places it in partition 1 of 3
	add([]byte(""), client.AnyPartition)      // an empty key is a key: partition 0
	add([]byte("abcde"), 2)                   // an explicit partition wins
	add(nil, client.AnyPartition)
	add(nil, client.AnyPartition)
	require.ErrorIs(t, s.Add(record.Record{}, 3), kerr.UnknownTopicOrPartition)
	require.NoError(t, s.Send(t.Context()))
	require.Len(t, e.produced(), 1, "one Produce request")
	require.EqualValues(t, 1, s.Record(0).Partition)
	require.EqualValues(t, 0, s.Record(1).Partition)
	require.EqualValues(t, 2, s.Record(2).Partition)
	require.Equal(t, s.Record(3).Partition, s.Record(4).Partition, "keyless records stay together")
	for i := range s.Len() {
		r := s.Record(i)
		require.NoError(t, r.Err)
		require.GreaterOrEqual(t, r.Offset, int64(0))
		require.EqualValues(t, 7, r.Timestamp)
	}
	require.Equal(t, s.Record(3).Offset+1, s.Record(4).Offset, "order within a partition holds")
	total := 0
	for _, b := range s.Batches() {
		require.NoError(t, b.Err)
		total += b.Count
	}
	require.Equal(t, 5, total)
}

func TestKeylessRequestsSpread(t *testing.T) {
	e := newEnv(t, 4)
	topic := e.topic("t", client.Refuse)
	used := map[int32]int{}
	for range 60 {
		s := e.client.NewSender(topic, nil, 9000, client.SendOptions{Acks: client.AcksAll})
		require.NoError(t, s.Add(record.Record{Value: []byte("v")}, client.AnyPartition))
		require.NoError(t, s.Send(t.Context()))
		used[s.Record(0).Partition]++
		s.Release()
	}
	require.Len(t, used, 4, "%v", used)
}

func TestSenderPassesOverPartitionsWithoutLeader(t *testing.T) {
	e := newEnv(t, 2)
	topic := *e.topic("t", client.Refuse)
	topic.Partitions = append([]client.Partition{}, topic.Partitions...)
	topic.Partitions[0].Leader = -1
	for range 20 {
		s := e.sender(&topic, client.SendOptions{})
		require.NoError(t, s.Add(record.Record{Value: make([]byte, 20_000)}, client.AnyPartition))
		require.NoError(t, s.Send(t.Context()))
		require.EqualValues(t, 1, s.Record(0).Partition)
	}
}

// A request whose sum is too large for a batch goes in several, in order.
func TestSenderSplitsLargeRequests(t *testing.T) {
	e := newEnv(t, 1)
	topic := e.topic("t", client.Refuse)
	s := e.sender(topic, client.SendOptions{})
	for range 30 {
		require.NoError(t, s.Add(record.Record{Value: make([]byte, 100_000)}, client.AnyPartition))
	}
	require.NoError(t, s.Send(t.Context()))
	require.Len(t, e.produced(), 4)
	for i := range 30 {
		require.NoError(t, s.Record(i).Err)
		require.EqualValues(t, i, s.Record(i).Offset)
	}
}

// A topic with a smaller limit refuses the first try; the halves fit.
func TestSenderHalvesRefusedBatches(t *testing.T) {
	e := newEnv(t, 1)
	limit := "3000"
	errs, err := e.client.AlterConfigs(t.Context(), []client.ResourceChanges{{
		Resource: client.Resource{Type: client.TopicResource, Name: "t"},
		Changes:  []client.ConfigChange{{Name: "max.message.bytes", Value: &limit}},
	}}, client.Apply)
	require.NoError(t, errors.Join(err, errs[0]))
	topic := e.topic("t", client.Refuse)
	s := e.sender(topic, client.SendOptions{})
	sizes := []int{900, 900, 900, 900, 5000, 900, 900}
	for _, n := range sizes {
		require.NoError(t, s.Add(record.Record{Value: make([]byte, n)}, client.AnyPartition))
	}
	require.NoError(t, s.Send(t.Context()))
	for i := range 4 {
		require.NoError(t, s.Record(i).Err, "%d", i)
		require.EqualValues(t, i, s.Record(i).Offset)
	}
	require.ErrorIs(t, s.Record(4).Err, kerr.MessageTooLarge)
	require.ErrorIs(t, s.Record(5).Err, kerr.OperationNotAttempted, "what comes after a failure is not stored")
	require.ErrorIs(t, s.Record(6).Err, kerr.OperationNotAttempted)
}

func TestSenderFailsByPartition(t *testing.T) {
	e := newEnv(t, 2)
	topic := e.topic("t", client.Refuse)
	e.reply = func(req kmsg.Request) (kmsg.Response, error) {
		p, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return nil, nil
		}
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = "t", topic.ID
		good, bad := kmsg.NewProduceResponseTopicPartition(), kmsg.NewProduceResponseTopicPartition()
		good.Partition, good.BaseOffset, good.LogAppendTime = 0, 5, 99
		bad.Partition, bad.ErrorCode = 1, kerr.InvalidRecord.Code
		message := "key is missing"
		bad.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 1, ErrorMessage: &message}}
		rt.Partitions = append(rt.Partitions, bad, good)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil
	}
	s := e.sender(topic, client.SendOptions{})
	for _, p := range []int32{1, 0, 1} {
		require.NoError(t, s.Add(record.Record{Value: []byte("v")}, p))
	}
	require.NoError(t, s.Send(t.Context()))
	require.Equal(t, client.RecordResult{Partition: 0, Offset: 5, Timestamp: 99}, s.Record(1))
	require.ErrorIs(t, s.Record(0).Err, kerr.InvalidRecord)
	require.EqualValues(t, 2, refused(t, s.Batches()[1].Err, kerr.InvalidRecord).Records[0].Index,
		"the place in the request, not in the batch")
	var k *client.KafkaError
	require.ErrorAs(t, s.Record(2).Err, &k)
	require.Equal(t, "key is missing", k.Message)
	require.EqualValues(t, 1, k.Partition)
}

// knownProducer is what a partition remembers of one producer.
type knownProducer struct {
	partition  int32
	id         int64
	epoch, seq int32
}

// answerProducers makes the cluster remember named producers, as far as DescribeProducers tells.
func (e *env) answerProducers(known ...knownProducer) {
	e.reply = func(req kmsg.Request) (kmsg.Response, error) {
		d, ok := req.(*kmsg.DescribeProducersRequest)
		if !ok {
			return nil, nil
		}
		resp := d.ResponseKind().(*kmsg.DescribeProducersResponse)
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = d.Topics[0].Topic
		for _, p := range d.Topics[0].Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = p
			for _, k := range known {
				if k.partition == p {
					a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
					a.ProducerID, a.ProducerEpoch, a.LastSequence = k.id, k.epoch, k.seq
					rp.ActiveProducers = append(rp.ActiveProducers, a)
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
		return resp, nil
	}
}

func TestNamedProducerBatches(t *testing.T) {
	e := newEnv(t, 3)
	topic := e.topic("t", client.Refuse)
	e.answerProducers()
	for range 2 { // a retry lands where the first try did
		s := e.sender(topic, client.SendOptions{Producer: &client.NamedProducer{Name: "till-4", Epoch: 2, Seq: 0}})
		require.NoError(t, s.Add(record.Record{Value: []byte("v")}, client.AnyPartition))
		require.NoError(t, s.Send(t.Context()))
	}
	requests := e.produced()
	require.Len(t, requests, 2)
	require.Equal(t, requests[0].Topics[0].Partitions[0].Partition, requests[1].Topics[0].Partitions[0].Partition)
	b := record.Batch(requests[0].Topics[0].Partitions[0].Records)
	require.Equal(t, ktag.NamedProducerID("till-4"), b.ProducerID())
	require.EqualValues(t, 2, b.ProducerEpoch())
	require.EqualValues(t, 0, b.BaseSequence())
	require.False(t, ktag.StrictSequence(&requests[0].Topics[0].Partitions[0].UnknownTags))
}

// After partitions were added, a retry of records that the name placed goes where the first try was stored.
func TestNamedProducerAfterPartitionsWereAdded(t *testing.T) {
	e := newEnv(t, 8)
	topic := e.topic("t", client.Refuse)
	id := ktag.NamedProducerID("till-4") // led to partition 0 when that was the only one, and leads elsewhere now
	e.answerProducers(knownProducer{0, id, 0, 4})
	send := func(np client.NamedProducer, keys ...[]byte) int32 {
		s := e.sender(topic, client.SendOptions{Producer: &np})
		for _, key := range keys {
			require.NoError(t, s.Add(record.Record{Key: key, Value: []byte("v")}, client.AnyPartition))
		}
		require.NoError(t, s.Send(t.Context()))
		requests := e.produced()
		sent := requests[len(requests)-1].Topics[0].Partitions[0].Partition
		require.Equal(t, sent, s.Record(0).Partition)
		return sent
	}
	next := send(client.NamedProducer{Name: "till-4", Seq: 5}, nil)
	require.NotZero(t, next)
	require.Zero(t, send(client.NamedProducer{Name: "till-4", Seq: 4}, nil, nil))
	key := []byte("abcde")
	require.Equal(t, record.KeyPartition(key, 8), send(client.NamedProducer{Name: "till-4", Seq: 4}, key),
		"a key leads on")
	asked := e.count(61)
	require.Equal(t, next, send(client.NamedProducer{Name: "till-4", Seq: 5, Once: true}, nil), "the same name")
	require.Zero(t, send(client.NamedProducer{Name: "till-4", Once: true}, nil),
		"a producer's only request")
	require.Equal(t, asked+2, e.count(61))
	ask := e.seen[len(e.seen)-2].(*kmsg.DescribeProducersRequest)
	require.Less(t, len(ask.Topics[0].Partitions), 8, "only where the name may have led is asked")
	send(client.NamedProducer{Name: "till-4", Once: true}, key)
	require.Equal(t, asked+2, e.count(61), "a key needs no asking")
}

func TestDuplicateTellsOfTheFirst(t *testing.T) {
	e := newEnv(t, 1)
	topic := e.topic("t", client.Refuse)
	var tag func(*kmsg.ProduceResponseTopicPartition)
	e.reply = func(req kmsg.Request) (kmsg.Response, error) {
		p, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return nil, nil
		}
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = "t", topic.ID
		rp := kmsg.NewProduceResponseTopicPartition()
		ktag.SetDuplicate(&rp.UnknownTags)
		tag(&rp)
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil
	}
	send := func() (client.BatchResult, *client.Sender) {
		s := e.sender(topic, client.SendOptions{Producer: &client.NamedProducer{Name: "p"}})
		for range 3 {
			require.NoError(t, s.Add(record.Record{Timestamp: 77}, 0))
		}
		require.NoError(t, s.Send(t.Context()))
		return s.Batches()[0], s
	}
	tag = func(p *kmsg.ProduceResponseTopicPartition) {
		p.BaseOffset = 5
		ktag.SetAppendTime(&p.UnknownTags, 9)
		ktag.SetFirstCount(&p.UnknownTags, 2)
	}
	b, s := send()
	require.Equal(t, client.BatchResult{Count: 2, BaseOffset: 5, Timestamp: 9, Duplicate: true}, b)
	require.EqualValues(t, 6, s.Record(1).Offset)
	require.EqualValues(t, -1, s.Record(2).Offset, "the first request did not have it")
	tag = func(p *kmsg.ProduceResponseTopicPartition) { // older than what is remembered
		p.BaseOffset = -1
		ktag.SetAppendTime(&p.UnknownTags, -1)
	}
	b, _ = send()
	require.Equal(t, client.BatchResult{Count: -1, BaseOffset: -1, Timestamp: -1, Duplicate: true}, b)
	batch := record.Builder{}
	batch.Append(&record.Record{Timestamp: 77})
	results, err := e.client.SendBatches(t.Context(), topic, 0, []record.Batch{batch.Build()},
		client.SendOptions{Producer: &client.NamedProducer{Name: "p"}})
	require.NoError(t, err)
	require.Equal(t, []client.BatchResult{b}, results)
}

func TestNamedProducerIsStrictInOnePartition(t *testing.T) {
	e := newEnv(t, 1)
	topic := e.topic("t", client.Refuse)
	expected := int64(41)
	s := e.sender(topic, client.SendOptions{Producer: &client.NamedProducer{Name: "p", Seq: 9}, Expected: &expected})
	require.NoError(t, s.Add(record.Record{Value: []byte("v")}, client.AnyPartition))
	require.Equal(t, 1, s.Partitions())
	require.NoError(t, s.Send(t.Context()))
	require.Zero(t, e.count(61), "the leader sees the whole sequence")
	tags := &e.produced()[0].Topics[0].Partitions[0].UnknownTags
	require.True(t, ktag.StrictSequence(tags))
	offset, ok := ktag.ExpectedOffset(tags)
	require.True(t, ok)
	require.Equal(t, expected, offset)
}

func TestSequenceOverPartitions(t *testing.T) {
	id := ktag.NamedProducerID("p")
	for name, c := range map[string]struct {
		known    []knownProducer
		epoch    int16
		seq      int32
		expected int32 // -1: accepted
		current  int16 // -1: not fenced
	}{
		"first":              {nil, 0, 0, -1, -1},
		"first is a gap":     {nil, 0, 3, 0, -1},
		"next":               {[]knownProducer{{0, id, 0, 4}, {1, id, 0, 6}}, 0, 7, -1, -1},
		"repeat":             {[]knownProducer{{0, id, 0, 4}, {1, id, 0, 6}}, 0, 2, -1, -1},
		"gap":                {[]knownProducer{{0, id, 0, 4}, {1, id, 0, 6}}, 0, 8, 7, -1},
		"others":             {[]knownProducer{{0, 17, 0, 4}}, 0, 5, 0, -1},
		"old epoch":          {[]knownProducer{{0, id, 3, 4}}, 2, 5, -1, 3},
		"new epoch":          {[]knownProducer{{0, id, 3, 4}}, 4, 0, -1, -1},
		"new epoch with gap": {[]knownProducer{{0, id, 3, 4}}, 4, 5, 0, -1},
		"highest epoch":      {[]knownProducer{{0, id, 3, 9}, {1, id, 4, 1}}, 4, 2, -1, -1},
		"end of the numbers": {[]knownProducer{{0, id, 0, math.MaxInt32}}, 0, 5, -1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 2)
			topic := e.topic("t", client.Refuse)
			e.answerProducers(c.known...)
			s := e.sender(topic, client.SendOptions{Producer: &client.NamedProducer{Name: "p", Epoch: c.epoch, Seq: c.seq}})
			require.NoError(t, s.Add(record.Record{Value: []byte("v")}, 0))
			err := s.Send(t.Context())
			if c.expected < 0 && c.current < 0 {
				require.NoError(t, err)
				return
			}
			var k *client.KafkaError
			require.ErrorAs(t, err, &k)
			require.Equal(t, c.expected, k.ExpectedSequence)
			require.Equal(t, c.current, k.CurrentEpoch)
			require.Empty(t, e.produced(), "nothing is sent")
		})
	}
}

func TestSendBatches(t *testing.T) {
	e := newEnv(t, 1)
	topic := e.topic("t", client.Refuse)
	batch := func(n int) record.Batch {
		var b record.Builder
		for range n {
			b.Append(&record.Record{Value: []byte("v"), Timestamp: 5})
		}
		return b.Build()
	}
	results, err := e.client.SendBatches(t.Context(), topic, 0, []record.Batch{batch(2), batch(3)},
		client.SendOptions{Acks: client.AcksAll})
	require.NoError(t, err)
	require.EqualValues(t, 0, results[0].BaseOffset)
	require.EqualValues(t, 2, results[1].BaseOffset)
	require.EqualValues(t, 5, results[1].Timestamp)
	bad := batch(1)
	bad[len(bad)-1] ^= 1
	results, err = e.client.SendBatches(t.Context(), topic, 0, []record.Batch{bad, batch(1)},
		client.SendOptions{Acks: client.AcksAll})
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, kerr.CorruptMessage)
	require.ErrorIs(t, results[1].Err, kerr.OperationNotAttempted)
	_, err = e.client.SendBatches(t.Context(), topic, 4, nil, client.SendOptions{})
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}
