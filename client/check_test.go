package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/record"
)

const describeConfigs = 32

// configure sets configs of topic t; names and values come in turn.
func (e *env) configure(configs ...string) {
	e.t.Helper()
	var changes []client.ConfigChange
	for i := 0; i < len(configs); i += 2 {
		changes = append(changes, client.ConfigChange{Name: configs[i], Value: &configs[i+1]})
	}
	errs, err := e.client.AlterConfigs(e.t.Context(), []client.ResourceChanges{{
		Resource: client.Resource{Type: client.TopicResource, Name: "t"}, Changes: changes,
	}}, client.Apply)
	require.NoError(e.t, errors.Join(err, errs[0]))
}

// refused is the KafkaError that err must be.
func refused(t *testing.T, err error, code *kerr.Error) *client.KafkaError {
	t.Helper()
	var k *client.KafkaError
	require.ErrorAs(t, err, &k)
	require.ErrorIs(t, err, code)
	return k
}

// One record that cannot be stored leaves none stored when several batches would be sent.
func TestSenderChecksAllBeforeTheFirst(t *testing.T) {
	e := newEnv(t, 3)
	now := e.clock().UnixMilli()
	e.configure("max.message.bytes", "3000", "cleanup.policy", "compact",
		"message.timestamp.before.max.ms", "1000", "message.timestamp.after.max.ms", "1000")
	key := []byte("k")
	for name, c := range map[string]struct {
		bad  record.Record
		code *kerr.Error
		says string
	}{
		"size":  {record.Record{Key: key, Timestamp: now, Value: make([]byte, 4000)}, kerr.MessageTooLarge, "is 3000"},
		"early": {record.Record{Key: key, Timestamp: now - 1001}, kerr.InvalidTimestamp, "the earliest"},
		"late":  {record.Record{Key: key, Timestamp: now + 1001}, kerr.InvalidTimestamp, "the latest"},
		"key":   {record.Record{Timestamp: now}, kerr.InvalidRecord, "need a key"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(e.produced())
			s := e.sender(e.topic("t", client.Refuse), client.SendOptions{CheckAll: true})
			good := record.Record{Key: key, Timestamp: now}
			require.NoError(t, s.Add(good, 2))
			require.NoError(t, s.Add(good, 1))
			require.NoError(t, s.Add(good, 2))
			require.NoError(t, s.Add(c.bad, 1))
			require.NoError(t, s.Add(c.bad, 1))
			require.NoError(t, s.Send(t.Context()))
			require.Len(t, e.produced(), before, "nothing is sent")
			batches := s.Batches()
			require.Len(t, batches, 2)
			k := refused(t, batches[0].Err, c.code)
			require.Equal(t, "2 records were refused", k.Message)
			require.EqualValues(t, []int32{3, 4}, []int32{k.Records[0].Index, k.Records[1].Index}, "places in the request")
			require.Contains(t, k.Records[0].Message, c.says)
			refused(t, batches[1].Err, kerr.OperationNotAttempted)
			require.Contains(t, s.Record(3).Err.Error(), c.says)
			refused(t, s.Record(1).Err, c.code)
			refused(t, s.Record(2).Err, kerr.OperationNotAttempted)
		})
	}
}

// The only batch of a request is its leader's to check; only what it refuses for its size is looked at here.
func TestSenderChecksWhatALeaderFoundTooLarge(t *testing.T) {
	e := newEnv(t, 1)
	e.configure("max.message.bytes", "3000")
	topic := e.topic("t", client.Refuse)
	send := func(sizes ...int) *client.Sender {
		s := e.sender(topic, client.SendOptions{CheckAll: true})
		for _, n := range sizes {
			require.NoError(t, s.Add(record.Record{Value: make([]byte, n), Timestamp: e.clock().UnixMilli()}, 0))
		}
		require.NoError(t, s.Send(t.Context()))
		return s
	}
	require.NoError(t, send(900, 900).Record(0).Err)
	require.Zero(t, e.count(describeConfigs), "one batch needs no check")
	s := send(900, 900, 5000, 900)
	k := refused(t, s.Record(2).Err, kerr.MessageTooLarge)
	require.Contains(t, k.Message, "is 3000")
	for i := range 4 {
		require.EqualValues(t, -1, s.Record(i).Offset, "%d is stored", i)
	}
	require.EqualValues(t, 2, refused(t, s.Batches()[0].Err, kerr.MessageTooLarge).Records[0].Index)
	s = send(900, 900, 900, 900, 900, 900)
	for i := range 6 {
		require.NoError(t, s.Record(i).Err)
		require.EqualValues(t, 2+i, s.Record(i).Offset)
	}
	require.Len(t, s.Batches(), 2, "cut at the limit instead of halved")
	require.Equal(t, 1, e.count(describeConfigs), "the limits are kept with the metadata")
	e.advance(2 * time.Second)
	topic = e.topic("t", client.Refuse)
	send(900, 900, 900, 900)
	require.Equal(t, 2, e.count(describeConfigs))
}

// All records of a partition go in one batch where they must: that one too is checked before the first is sent.
func TestSenderChecksSingleBatches(t *testing.T) {
	e := newEnv(t, 2)
	e.configure("max.message.bytes", "3000")
	e.answerProducers()
	send := func(n int) error {
		s := e.sender(e.topic("t", client.Refuse), client.SendOptions{
			CheckAll: true, Producer: &client.NamedProducer{Name: "p"},
		})
		require.NoError(t, s.Add(record.Record{Value: []byte("v"), Timestamp: e.clock().UnixMilli()}, 0))
		for range n {
			require.NoError(t, s.Add(record.Record{Value: make([]byte, 100), Timestamp: e.clock().UnixMilli()}, 1))
		}
		require.NoError(t, s.Send(t.Context()))
		return errors.Join(s.Batches()[0].Err, s.Batches()[1].Err)
	}
	k := send(30)
	require.ErrorIs(t, k, kerr.MessageTooLarge)
	require.ErrorIs(t, k, kerr.OperationNotAttempted)
	require.Empty(t, e.produced())
	// By the bound of its records' sizes 26 are too large a batch, but not by what they take.
	require.NoError(t, send(26))
}

// Where the limits are not told, each partition says what became of its records.
func TestSenderWithoutLimits(t *testing.T) {
	e := newEnv(t, 2)
	e.configure("max.message.bytes", "3000")
	e.reply = func(req kmsg.Request) (kmsg.Response, error) {
		if req.Key() == describeConfigs {
			return nil, errors.New("no answer")
		}
		return nil, nil
	}
	for range 2 {
		s := e.sender(e.topic("t", client.Refuse), client.SendOptions{CheckAll: true})
		for i, n := range []int{100, 4000, 100, 4000} {
			require.NoError(t, s.Add(record.Record{Value: make([]byte, n), Timestamp: 5}, int32(i/2)))
		}
		require.NoError(t, s.Send(t.Context()))
		require.NoError(t, s.Record(0).Err)
		refused(t, s.Record(1).Err, kerr.MessageTooLarge)
		last := s.Batches()[3]
		k := refused(t, last.Err, kerr.MessageTooLarge)
		require.EqualValues(t, 3, k.Records[0].Index, "a record that is too large alone is named")
	}
	require.Equal(t, 1, e.count(describeConfigs), "an answer that did not come is not asked for again at once")
}

func TestSendBatchesChecksAllBeforeTheFirst(t *testing.T) {
	e := newEnv(t, 1)
	now := e.clock().UnixMilli()
	e.configure("message.timestamp.after.max.ms", "1000")
	topic := e.topic("t", client.Refuse)
	batch := func(times ...int64) record.Batch {
		var b record.Builder
		b.SetCodec(record.Gzip)
		for _, at := range times {
			b.Append(&record.Record{Value: []byte("v"), Timestamp: at})
		}
		return b.Build()
	}
	results, err := e.client.SendBatches(t.Context(), topic, 0, []record.Batch{
		batch(now, now), batch(now, now+2000), batch(now),
	}, client.SendOptions{Acks: client.AcksAll, CheckAll: true})
	require.NoError(t, err)
	require.Empty(t, e.produced())
	refused(t, results[0].Err, kerr.OperationNotAttempted)
	k := refused(t, results[1].Err, kerr.InvalidTimestamp)
	require.EqualValues(t, 3, k.Records[0].Index, "the place in the request")
	refused(t, results[2].Err, kerr.OperationNotAttempted)
	results, err = e.client.SendBatches(t.Context(), topic, 0, []record.Batch{batch(now), batch(now, now)},
		client.SendOptions{Acks: client.AcksAll, CheckAll: true})
	require.NoError(t, err)
	require.NoError(t, errors.Join(results[0].Err, results[1].Err))
}
