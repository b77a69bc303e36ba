package broker_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
)

// txnSide is one of two clusters that get the same transactions. Ours has no coordinator here, so it gets the markers
// that one would write.
type txnSide struct {
	*side
	ours  bool
	names map[int64]string // of producers
	at    map[string]*txnProducer
}

type txnProducer struct {
	id       int64
	epoch    int16
	sequence int32
	open     bool
}

func newTxnSide(s *side, ours bool) *txnSide {
	return &txnSide{side: s, ours: ours, names: map[int64]string{}, at: map[string]*txnProducer{}}
}

// producer gives the producer of that name an id.
func (s *txnSide) producer(name string) *txnProducer {
	if p := s.at[name]; p != nil {
		return p
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	if !s.ours {
		req.TransactionalID, req.TransactionTimeoutMillis = &name, 60_000
	}
	resp, err := req.RequestWith(s.t.Context(), s.r)
	require.NoError(s.t, err)
	require.Zero(s.t, resp.ErrorCode)
	p := &txnProducer{id: resp.ProducerID, epoch: resp.ProducerEpoch}
	s.at[name], s.names[p.id] = p, name
	return p
}

// produce appends a batch, in the transaction of a producer if one is named.
func (s *txnSide) produce(who, value string, ms int64) {
	var b record.Builder
	b.Append(&record.Record{Timestamp: began + ms, Key: []byte("k"), Value: []byte(value)})
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 60_000
	if who != "" {
		p := s.producer(who)
		b.SetProducer(p.id, p.epoch, p.sequence)
		b.SetTransactional()
		req.TransactionID = &who
		p.sequence++
		p.open = true
	}
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = "t", s.ids["t"]
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = b.Build()
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(s.t.Context(), s.r)
	require.NoError(s.t, err)
	require.Equal(s.t, "NONE", name(resp.Topics[0].Partitions[0].ErrorCode))
}

// end ends the transaction of a producer, whose epoch rises with it.
func (s *txnSide) end(name string, commit bool) {
	p := s.producer(name)
	if s.ours {
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Version = 2
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.Committed, m.TransactionVersion = p.id, p.epoch+1, commit, 2
		m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t", Partitions: []int32{0}}}
		req.Markers = append(req.Markers, m)
		resp, err := req.RequestWith(s.t.Context(), s.r)
		require.NoError(s.t, err)
		require.Zero(s.t, resp.Markers[0].Topics[0].Partitions[0].ErrorCode)
		p.epoch++
	} else {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = name, p.id, p.epoch, commit
		resp, err := req.RequestWith(s.t.Context(), s.r)
		require.NoError(s.t, err)
		require.Zero(s.t, resp.ErrorCode)
		require.GreaterOrEqual(s.t, resp.Version, int16(5))
		p.epoch = resp.ProducerEpoch
	}
	p.sequence, p.open = 0, false
}

// seen is all that a reader of committed records is told, from an offset on.
func (s *txnSide) seen(offset int64) string {
	req := kmsg.NewPtrFetchRequest()
	req.IsolationLevel = 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = "t", s.ids["t"]
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, 1<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(s.t.Context(), s.r)
	require.NoError(s.t, err)
	a := resp.Topics[0].Partitions[0]
	require.Zero(s.t, a.ErrorCode)
	got := s.delivered(a.RecordBatches, slices.Clone(a.AbortedTransactions))
	out := fmt.Sprintf("%s; hw %d stable %d", strings.Join(got, ","), a.HighWatermark, a.LastStableOffset)
	for _, at := range []int64{-1, -2, began, began + 10, began + 1000} {
		out += " " + s.offset(at)
	}
	return out
}

// delivered is what a client hands out of an answer.
func (s *txnSide) delivered(batches []byte,
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction) (out []string) {
	type begun = kmsg.FetchResponseTopicPartitionAbortedTransaction
	slices.SortFunc(aborted, func(a, b begun) int { return int(a.FirstOffset - b.FirstOffset) }) // kfake does not
	skip := map[int64]bool{}
	for rest := batches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		require.NoError(s.t, err)
		rest = after
		for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
			skip[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		m, ends := b.EndTxnMarker()
		switch {
		case ends:
			out = append(out, fmt.Sprintf("%s %d@%d", s.names[m.ProducerID], m.Type, b.BaseOffset()))
			if m.Type == record.ControlAbort {
				delete(skip, m.ProducerID)
			}
		case !b.IsTransactional() || !skip[b.ProducerID()]:
			out = append(out, values(s.t, b)...)
		}
	}
	return out
}

// offset looks a time up among the committed records.
func (s *txnSide) offset(at int64) string {
	list := kmsg.NewPtrListOffsetsRequest()
	list.IsolationLevel = 1
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic = "t"
	lp := kmsg.NewListOffsetsRequestTopicPartition()
	lp.Timestamp = at
	lt.Partitions = append(lt.Partitions, lp)
	list.Topics = append(list.Topics, lt)
	resp, err := list.RequestWith(s.t.Context(), s.r)
	require.NoError(s.t, err)
	return fmt.Sprintf("%s %d", name(resp.Topics[0].Partitions[0].ErrorCode), resp.Topics[0].Partitions[0].Offset)
}

// Readers of committed records see the same of transactions that overlap, here and at kfake.
func TestCommittedRecordsLikeKfake(t *testing.T) {
	for seed := range uint64(12) {
		c := new(coordinator)
		n := newNode(t, options{cluster: c.Request})
		ours := newTxnSide((&side{t: t, r: n.r}).prepare(), true)
		other := newTxnSide(kfakeSide(t), false)
		rng := rand.New(rand.NewPCG(seed, 3))
		var trace []string
		for step := range 30 {
			who := string(rune('a' + rng.IntN(3)))
			what := fmt.Sprintf("produce %s", who)
			switch kind := rng.IntN(6); {
			case kind == 0:
				who, what = "", "produce"
				fallthrough
			case kind < 4 || !ours.producer(who).open:
				for _, s := range []*txnSide{ours, other} {
					s.produce(who, fmt.Sprintf("%d of %s", step, who), int64(step))
				}
			default:
				what = fmt.Sprintf("end %s %v", who, kind == 4)
				for _, s := range []*txnSide{ours, other} {
					s.end(who, kind == 4)
				}
			}
			trace = append(trace, what)
			from := rng.Int64N(int64(step) + 1)
			want := other.seen(from)
			require.Equal(t, want, ours.seen(from), "seed %d from %d after %s", seed, from, strings.Join(trace, ", "))
		}
		require.NotEmpty(t, c.asked)
		n.stop()
	}
}
