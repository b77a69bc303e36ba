package statetopic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/record"
)

// calls is a Fold that notes what is called.
type calls struct{ log []string }

func (c *calls) Renew()                { c.log = append(c.log, "renew") }
func (c *calls) Take(records []Record) { c.log = append(c.log, fmt.Sprint("take ", len(records))) }
func (c *calls) Show(at *Place)        { c.log = append(c.log, fmt.Sprint("show ", at.Offsets)) }

// newTail is a Tail that must understand all that it reads.
func newTail(t *testing.T, r kmsg.Requestor) *Tail {
	return New(Options{
		Client: client.New(r, client.Options{}), Topic: "t", What: "a topic", Fold: &calls{},
		Skip: func(what string, _ int32, offset int64, err error) {
			t.Errorf("passed over: %s at %d: %v", what, offset, err)
		},
		Logger: slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(1, 1)), FreshWait: time.Second,
	})
}

// batchOf is a batch at an offset.
func batchOf(base, producer int64, keys ...string) record.Batch {
	var b record.Builder
	if producer >= 0 {
		b.SetProducer(producer, 0, 0)
		b.SetTransactional()
	}
	for _, key := range keys {
		b.Append(&record.Record{Key: []byte(key), Value: []byte(fmt.Sprint(base))})
	}
	out := b.Build()
	out.SetBaseOffset(base)
	return out
}

func marker(base, producer int64, kind record.ControlType) record.Batch {
	out := record.Batch(record.AppendEndTxnMarker(nil, record.EndTxnMarker{Type: kind, ProducerID: producer}))
	out.SetBaseOffset(base)
	return out
}

// Records of transactions count from their marker on, and never if that is an abort; a cut batch is read next time.
func TestSift(t *testing.T) {
	var log []byte
	for _, b := range []record.Batch{
		batchOf(0, 7, "a", "b"), batchOf(2, -1, "c"), batchOf(3, 8, "d"), batchOf(4, 7, "a"),
		marker(5, 7, record.ControlCommit), marker(6, 8, record.ControlAbort), batchOf(7, 8, "e"),
		marker(8, 9, record.ControlCommit),
		marker(9, 8, record.ControlCommit), batchOf(10, -1, "f"),
	} {
		log = append(log, b...)
	}
	tail := newTail(t, nil)
	want := []string{"c@2=2", "a@4=4", "b@1=0", "e@7=7"}
	for cut := 1; cut <= len(log); cut += 13 {
		var s sift
		var got []string
		next, at := int64(0), 0
		for _, part := range [][]byte{log[:cut], log} {
			rest := part
			for len(rest) > 0 { // a fetch begins with the batch that has the offset
				b, after, err := record.Next(rest)
				if err != nil || b.NextOffset() > next {
					break
				}
				rest = after
			}
			out, err := s.take(tail, nil, 0, &client.FetchResult{Batches: rest, HighWatermark: 10}, &next)
			require.NoError(t, err)
			for _, r := range out {
				got = append(got, fmt.Sprintf("%s@%d=%s", r.Key, r.Offset, r.Value))
			}
			at++
		}
		require.Equal(t, want, got, "cut at %d", cut)
		require.Equal(t, int64(10), next)
		require.Empty(t, s.open)
	}
}

// All who ask for the end of a topic before the question is put share one, and none after that.
func TestQuestionsAreShared(t *testing.T) {
	tail := newTail(t, nil)
	first := tail.Ask()
	require.Same(t, first, tail.Ask())
	require.Same(t, first, tail.takeAsk(false))
	later := tail.Ask()
	require.NotSame(t, first, later)
	require.Same(t, later, tail.takeAsk(true))
	refused := tail.Ask()
	<-refused.done
	require.ErrorIs(t, refused.err, ErrStopped)
}

// bounds answers questions for where the first partition starts and ends.
type bounds map[int64]int64

// Request implements kmsg.Requestor.
func (b bounds) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	asked := r.(*kmsg.ListOffsetsRequest).Topics[0]
	resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
	p := kmsg.NewListOffsetsResponseTopicPartition()
	p.Offset = b[asked.Partitions[0].Timestamp]
	resp.Topics = []kmsg.ListOffsetsResponseTopic{{
		Topic: asked.Topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{p},
	}}
	return resp, nil
}

// deleted is a cluster with a topic that is deleted as soon as its metadata was told.
type deleted struct{ told bool }

// Request implements kmsg.Requestor.
func (d *deleted) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch r := r.(type) {
	case *kmsg.MetadataRequest:
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.TopicID = r.Topics[0].Topic, [16]byte{1}
		topic.Partitions = []kmsg.MetadataResponseTopicPartition{kmsg.NewMetadataResponseTopicPartition()}
		if d.told {
			topic.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		resp.Topics, d.told = append(resp.Topics, topic), true
		return resp, nil
	case *kmsg.ListOffsetsRequest:
		resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		p := kmsg.NewListOffsetsResponseTopicPartition()
		p.ErrorCode = kerr.UnknownTopicOrPartition.Code
		resp.Topics = []kmsg.ListOffsetsResponseTopic{{
			Topic: r.Topics[0].Topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{p},
		}}
		return resp, nil
	}
	return nil, errors.ErrUnsupported
}

// A topic that is deleted has an end: it is none.
func TestTheEndOfATopicThatIsDeleted(t *testing.T) {
	tail := newTail(t, &deleted{})
	at, err := tail.end(t.Context())
	require.NoError(t, err)
	require.False(t, at.Exists())
}

// Reading goes on where it was only if that is of the same topic, uncut, and the Fold holds all of it: where reading
// anew was interrupted it holds a part.
func TestWhereReadingGoesOn(t *testing.T) {
	topic := &client.Topic{Name: "t", ID: [16]byte{1}, Partitions: make([]client.Partition, 1)}
	for name, c := range map[string]struct {
		start, end int64
		change     func(*Tail)
		want       int64
		calls      []string
	}{
		"goes on":      {start: 1, end: 7, want: 5},
		"another one":  {start: 1, end: 7, change: func(t *Tail) { t.at.Topic[0] = 2 }, want: 1, calls: []string{"renew"}},
		"cut in front": {start: 2, end: 7, want: 2, calls: []string{"renew"}},
		"cut behind":   {start: 1, end: 4, want: 1, calls: []string{"renew"}},
		"empty":        {start: 1, end: 1, want: 1, calls: []string{"renew", "show [1]"}},
		"interrupted":  {start: 1, end: 7, change: func(t *Tail) { t.whole = false }, want: 1, calls: []string{"renew"}},
	} {
		tail := newTail(t, bounds{client.Earliest: c.start, client.Latest: c.end})
		tail.at, tail.whole = &Place{Topic: topic.ID, Starts: []int64{1}, Offsets: []int64{5}}, true
		if c.change != nil {
			c.change(tail)
		}
		f := &follower{tail: tail, topic: topic}
		require.NoError(t, f.begin(t.Context()), name)
		require.Equal(t, []int64{c.want}, f.at.Offsets, name)
		require.Equal(t, c.calls, tail.opts.Fold.(*calls).log, name)
	}
}
