package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
	"millrace/record"
)

// leaders answers what is asked of leaders that know the topic to have so many partitions; what they stored is noted.
func leaders(count int32, stored func(partition int32)) func(kmsg.Request) (kmsg.Response, error) {
	return func(r kmsg.Request) (kmsg.Response, error) {
		switch req := r.(type) {
		case *kmsg.DescribeProducersRequest:
			resp := kmsg.NewPtrDescribeProducersResponse()
			out := kmsg.DescribeProducersResponseTopic{Topic: req.Topics[0].Topic}
			known, ok := ktag.PartitionCount(&req.Topics[0].UnknownTags)
			for _, number := range req.Topics[0].Partitions {
				p := kmsg.NewDescribeProducersResponseTopicPartition()
				if p.Partition = number; ok && known != count {
					p.ErrorCode = kerr.LeaderNotAvailable.Code
					ktag.SetPartitionCount(&p.UnknownTags, count)
				}
				out.Partitions = append(out.Partitions, p)
			}
			resp.Topics = append(resp.Topics, out)
			return resp, nil
		case *kmsg.ProduceRequest:
			in := &req.Topics[0].Partitions[0]
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.LogAppendTime = in.Partition, -1
			if known, ok := ktag.PartitionCount(&in.UnknownTags); ok && known != count {
				p.ErrorCode = kerr.LeaderNotAvailable.Code
				ktag.SetNotWritten(&p.UnknownTags)
				ktag.SetPartitionCount(&p.UnknownTags, count)
			} else {
				stored(in.Partition)
			}
			resp := kmsg.NewPtrProduceResponse()
			resp.Topics = []kmsg.ProduceResponseTopic{{
				Topic: req.Topics[0].Topic, TopicID: req.Topics[0].TopicID,
				Partitions: []kmsg.ProduceResponseTopicPartition{p},
			}}
			return resp, nil
		}
		return nil, nil
	}
}

// A named producer's records are placed anew where the topic has got partitions that the client has not heard of: its
// requests go where those that know of the partitions send them.
func TestPlacedByTheNewestCount(t *testing.T) {
	for _, before := range []int32{1, 2} {
		e := newEnv(t, before)
		old := e.topic("t", client.Refuse)
		require.Len(t, old.Partitions, int(before))
		grow := kmsg.NewPtrCreatePartitionsRequest()
		grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 5}}
		grow.TimeoutMillis = 1000
		_, err := grow.RequestWith(t.Context(), e.broker)
		require.NoError(t, err)
		var stored []int32
		e.reply = leaders(5, func(partition int32) { stored = append(stored, partition) })
		send := func(topic *client.Topic, name string, key []byte, partition int32) {
			s := e.client.NewSender(topic, nil, 0, client.SendOptions{
				Acks: client.AcksAll, Timeout: time.Second, Producer: &client.NamedProducer{Name: name},
			})
			defer s.Release()
			require.NoError(t, s.Add(record.Record{Key: key, Value: []byte("v")}, partition))
			require.NoError(t, s.Send(t.Context()))
			require.NoError(t, s.Record(0).Err)
			require.Equal(t, stored[len(stored)-1], s.Record(0).Partition)
		}
		newest, err := e.client.Renew(t.Context(), "t")
		require.NoError(t, err)
		require.Len(t, newest.Partitions, 5)
		beyond := 0
		for i := range 20 {
			name := fmt.Sprint("producer-", i)
			for _, key := range [][]byte{nil, []byte(name)} {
				stored = nil
				send(newest, name, key, client.AnyPartition)
				send(old, name, key, client.AnyPartition)
				require.Len(t, stored, 2)
				require.Equal(t, stored[0], stored[1], name)
				if stored[0] >= before {
					beyond++
				}
			}
		}
		require.Positive(t, beyond)
		stored = nil
		send(old, "p", nil, 0)
		require.Equal(t, []int32{0}, stored, "who names a partition gets it")
	}
}

// A count that stays in dispute is told as an error after which nothing is stored.
func TestCountStaysInDispute(t *testing.T) {
	e := newEnv(t, 2)
	e.reply = leaders(3, func(int32) { t.Error("it is stored") })
	s := e.client.NewSender(e.topic("t", client.Refuse), nil, 0, client.SendOptions{
		Acks: client.AcksAll, Timeout: time.Second, Producer: &client.NamedProducer{Name: "p", Once: true},
	})
	defer s.Release()
	require.NoError(t, s.Add(record.Record{Value: []byte("v")}, client.AnyPartition))
	require.ErrorIs(t, s.Send(t.Context()), kerr.LeaderNotAvailable)
	require.LessOrEqual(t, e.count(int16(kmsg.DescribeProducers)), 4)
}
