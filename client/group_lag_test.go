package client_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/record"
)

// produce writes batches of records a minute apart, from the start of the clock.
func (e *groupEnv) produce(topic string, partition int32, batches, records int) {
	e.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.cluster.ListenAddrs()...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(e.t, err)
	defer cl.Close()
	for b := range batches {
		var rs []*kgo.Record
		for i := range records {
			at := e.clock().Add(time.Duration(b*records+i) * time.Minute)
			rs = append(rs, &kgo.Record{Topic: topic, Partition: partition, Value: []byte("v"), Timestamp: at})
		}
		require.NoError(e.t, cl.ProduceSync(e.t.Context(), rs...).FirstErr())
	}
}

func TestLag(t *testing.T) {
	e := newGroupEnv(t)
	e.produce("t", 0, 2, 3)
	e.produce("u", 0, 1, 2)
	e.commit("g",
		client.CommittedOffset{TopicPartition: at("t", 0), Offset: 4}, client.CommittedOffset{TopicPartition: at("t", 1)},
		client.CommittedOffset{TopicPartition: at("u", 0), Offset: 9})
	e.commit("h", client.CommittedOffset{TopicPartition: at("t", 0), Offset: 1})
	lags, err := e.client.Lag(t.Context(), "g", client.ReadCommitted, at("t", 2), at("t", 0), at("none", 0))
	require.NoError(t, err)
	require.Len(t, lags, 5)
	require.ErrorIs(t, lags[0].Err, kerr.UnknownTopicOrPartition)
	_, ok := lags[0].Lag()
	require.False(t, ok)
	for i, want := range map[int]client.PartitionLag{
		1: {TopicPartition: at("t", 0), Committed: 4, End: 6}, 2: {TopicPartition: at("t", 1), Committed: 0, End: 0},
		3: {TopicPartition: at("t", 2), Committed: -1, End: 0}, 4: {TopicPartition: at("u", 0), Committed: 9, End: 2},
	} {
		require.Equal(t, want, lags[i])
	}
	lag, ok := lags[4].Lag()
	require.True(t, ok)
	require.Zero(t, lag, "an offset past the end is no lag")
	_, ok = lags[3].Lag()
	require.False(t, ok, "no offset, no lag")

	sums, err := e.client.Lags(t.Context(), []string{"h", "none", "g"}, client.ReadCommitted)
	require.NoError(t, err)
	require.Equal(t, []client.GroupLag{
		{ID: "h", Partitions: 1, Records: 5, MaxRecords: 5}, {ID: "none"},
		{ID: "g", Partitions: 3, Records: 2, MaxRecords: 2},
	}, sums)
}

// A thousand groups of the same topic cost two fetches of offsets and one look at the ends.
func TestLagsAreLookedUpTogether(t *testing.T) {
	e := newGroupEnv(t)
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprint("g", i))
	}
	e.reply = func(r kmsg.Request) (kmsg.Response, error) {
		req, ok := r.(*kmsg.OffsetFetchRequest)
		if !ok {
			return nil, nil
		}
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, g := range req.Groups {
			out := kmsg.NewOffsetFetchResponseGroup()
			out.Group = g.Group
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic = "t"
			for p := range int32(3) {
				o := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				o.Partition = p
				topic.Partitions = append(topic.Partitions, o)
			}
			if g.Group == "g7" {
				out.ErrorCode = kerr.GroupAuthorizationFailed.Code
			} else {
				out.Topics = append(out.Topics, topic)
			}
			resp.Groups = append(resp.Groups, out)
		}
		return resp, nil
	}
	lags, err := e.client.Lags(t.Context(), ids, client.ReadCommitted)
	require.NoError(t, err)
	require.Len(t, lags, 1000)
	require.Equal(t, 3, lags[999].Partitions)
	require.ErrorIs(t, lags[7].Err, kerr.GroupAuthorizationFailed, "one group's failure is its own")
	require.Equal(t, 2, e.count(9))
	require.Equal(t, 1, e.count(2))
}

func TestNextTimes(t *testing.T) {
	e := newGroupEnv(t)
	e.produce("t", 0, 2, 3)
	e.produce("t", 2, 1, 4)
	e.produce("u", 0, 1, 1)
	topic := e.topic("t", client.Refuse)
	_, err := e.client.DeleteRecords(t.Context(), topic, []client.BeforeOffset{{Partition: 2, Offset: 2}})
	require.NoError(t, err)
	next := func(topic string, partition int32, offset int64) int64 {
		times, err := e.client.NextTimes(t.Context(), []client.CommittedOffset{
			{TopicPartition: at("u", 0)}, {TopicPartition: at(topic, partition), Offset: offset},
		}, client.ReadCommitted)
		require.NoError(t, err)
		require.Equal(t, e.clock().UnixMilli(), times[0])
		return times[1]
	}
	minute := func(n int) int64 { return e.clock().Add(time.Duration(n) * time.Minute).UnixMilli() }
	require.Equal(t, minute(0), next("t", 0, 0))
	require.Equal(t, minute(2), next("t", 0, 2), "within a batch")
	require.Equal(t, minute(3), next("t", 0, 3))
	require.EqualValues(t, -1, next("t", 0, 6), "there is none")
	require.EqualValues(t, -1, next("t", 1, 0))
	require.EqualValues(t, -1, next("t", 0, 99), "nor past the end")
	require.Equal(t, minute(2), next("t", 2, 0), "what is gone is not next")
	require.EqualValues(t, -1, next("none", 0, 0))
}

// batchAt is a batch of records a second apart, from a base time.
func batchAt(base int64, count int, change func(*record.Builder)) record.Batch {
	var b record.Builder
	b.Reset(nil)
	if change != nil {
		change(&b)
	}
	for i := range count {
		b.Append(&record.Record{Timestamp: base + int64(i)*1000, Value: make([]byte, 100)})
	}
	return b.Build()
}

// Batches come as a leader may send them: cut, control batches among them, or none for some partitions at first.
func TestNextTimesOfWhatLeadersSend(t *testing.T) {
	e := newGroupEnv(t)
	chance := rand.New(rand.NewPCG(1, 2))
	cut := batchAt(5000, 10, nil)
	control := batchAt(6000, 1, (*record.Builder).SetControl)
	behind := batchAt(7000, 2, nil)
	behind.SetBaseOffset(1)
	asked := 0
	e.reply = func(r kmsg.Request) (kmsg.Response, error) {
		req, ok := r.(*kmsg.FetchRequest)
		if !ok {
			return nil, nil
		}
		asked++
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		for i, p := range req.Topics[0].Partitions {
			out := kmsg.NewFetchResponseTopicPartition()
			out.Partition, out.HighWatermark, out.LastStableOffset = p.Partition, 10, 10
			switch p.Partition {
			case 0:
				out.RecordBatches = cut[:record.HeaderSize+chance.IntN(len(cut)-record.HeaderSize)]
			case 1: // a marker first, and what is behind it on the next call
				if out.RecordBatches = control; p.FetchOffset == 1 {
					out.RecordBatches = behind
				}
			case 2: // only when it stands first
				if i == 0 {
					out.RecordBatches = cut
				}
			}
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
		return resp, nil
	}
	times, err := e.client.NextTimes(t.Context(), []client.CommittedOffset{
		{TopicPartition: at("t", 0), Offset: 4}, {TopicPartition: at("t", 1)}, {TopicPartition: at("t", 2), Offset: 4},
	}, client.ReadCommitted)
	require.NoError(t, err)
	require.Equal(t, []int64{5000, 7000, 9000}, times, "of a batch that is cut, its header tells")
	require.Equal(t, 3, asked)
}
