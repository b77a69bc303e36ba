package task_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/record"
	"millrace/server/servertest"
)

const (
	benchRows = 100_000 // of one round
	benchPoll = 2048    // rows of a poll
)

// rows is a source of rows of about 200 bytes, as a table has them.
type rows struct {
	schema, key *data.Schema
	left        int64
	done        chan struct{}
	more        chan int64
	at          int64
	records     []*plugin.SourceRecord
	text        string
}

func newRows() *rows {
	optional := &data.Schema{Type: data.String, Optional: true}
	id := &data.Schema{Type: data.Int64}
	r := &rows{
		done: make(chan struct{}), more: make(chan int64), text: strings.Repeat("y", 50),
		key: data.NewStruct("Key", data.Field{Name: "id", Schema: id}),
		schema: data.NewStruct("Row", data.Field{Name: "id", Schema: id}, data.Field{Name: "name", Schema: optional},
			data.Field{Name: "street", Schema: optional}, data.Field{Name: "city", Schema: optional},
			data.Field{Name: "amount", Schema: &data.Schema{Type: data.Float64}}),
	}
	for range benchPoll {
		r.records = append(r.records, &plugin.SourceRecord{})
	}
	return r
}

func (r *rows) Start(context.Context, map[string]string, plugin.SourceContext) error { return nil }

func (r *rows) Poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	n := min(r.left, benchPoll)
	if n == 0 {
		r.done <- struct{}{}
		select {
		case n := <-r.more:
			r.left = n
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	}
	r.left -= n
	partition, offset := map[string]any{"table": "rows"}, map[string]any{"lsn": r.at + n}
	for i := range n {
		r.at++
		v, k := data.New(r.schema), data.New(r.key)
		v.Values[0], v.Values[1], v.Values[2], v.Values[3], v.Values[4] = r.at, r.text, r.text, r.text, 1.5
		k.Values[0] = r.at
		*r.records[i] = plugin.SourceRecord{
			Record: data.Record{
				Topic: "rows", Partition: data.AnyPartition, KeySchema: r.key, Key: k, ValueSchema: r.schema, Value: v,
				Timestamp: data.NoTimestamp,
			},
			Source: plugin.Offset{Partition: partition, Offset: offset},
		}
	}
	return r.records[:n], nil
}

func (r *rows) Stored(context.Context) error { return nil }
func (r *rows) Stop(context.Context) error   { return nil }

// benchLab is a lab of one node without the encoding of messages.
func benchLab(b *testing.B) *lab {
	n := servertest.Start(b, servertest.Options{Broker: brokerSettings(), Uncoded: true})
	l := labOn(b, n.Requestor())
	l.client = client.New(n.Requestor(), client.Options{})
	return l
}

func BenchmarkSource(b *testing.B) {
	for name, props := range map[string][]string{
		"json": {"key.converter", jsonClass, "value.converter", jsonClass},
		"jsonNoSchema": {
			"key.converter", jsonClass, "value.converter", jsonClass, "key.converter.schemas.enable", "false",
			jsonPlain, "false",
		},
	} {
		b.Run(name, func(b *testing.B) {
			l := benchLab(b)
			l.topic("rows", 3)
			src := newRows()
			j := l.start(l.runner(), sourceSpec(func() plugin.SourceTask { return src }, props...))
			<-src.done
			total := 0
			for b.Loop() {
				src.more <- benchRows
				<-src.done
				total += benchRows
			}
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "rows/s")
			j.cancel()
			require.NoError(b, j.wait())
		})
	}
}

// BenchmarkTransaction is the way of one record from its poll until it is committed.
func BenchmarkTransaction(b *testing.B) {
	l := benchLab(b)
	l.topic("numbers", 3)
	polls := make(chan struct{})
	src := &counter{limit: 1 << 30, most: 1, polls: func(int) { polls <- struct{}{} }}
	j := l.start(l.runner(), sourceSpec(func() plugin.SourceTask { return src }))
	<-polls
	for b.Loop() {
		<-polls
	}
	j.cancel()
	select {
	case <-polls:
	case <-j.done:
	}
	require.NoError(b, j.wait())
}

// devNull is a sink that does nothing.
type devNull struct {
	count *atomic.Int64
	done  chan struct{}
	limit int64
}

func (s *devNull) Start(context.Context, map[string]string, plugin.SinkContext) error { return nil }
func (s *devNull) Open(context.Context, []plugin.OpenPartition) error                 { return nil }
func (s *devNull) PreCommit(_ context.Context, current map[client.TopicPartition]int64) (
	map[client.TopicPartition]int64, error,
) {
	return current, nil
}
func (s *devNull) Close(context.Context, []client.TopicPartition, bool) error { return nil }
func (s *devNull) Stop(context.Context) error                                 { return nil }

func (s *devNull) Put(_ context.Context, batch *plugin.SinkBatch) error {
	before := s.count.Load()
	if now := s.count.Add(int64(len(batch.Records))); before < s.limit && now >= s.limit {
		s.done <- struct{}{}
	}
	return nil
}

func BenchmarkSink(b *testing.B) {
	for name, props := range map[string][]string{
		"bytes": {"value.converter", bytesClass},
		"json":  {"value.converter", jsonClass, jsonPlain, "false"},
	} {
		b.Run(name, func(b *testing.B) {
			l := benchLab(b)
			l.topic("in", 3)
			value := []byte(`{"id":12345,"name":"` + strings.Repeat("x", 60) + `","amount":1.5}`)
			records := make([]record.Record, 10_000)
			for i := range records {
				records[i] = record.Record{Value: value, Timestamp: 1}
			}
			for i := range benchRows / len(records) {
				l.send("in", int32(i%3), records...)
			}
			total := 0
			for b.Loop() {
				s := &devNull{count: &atomic.Int64{}, done: make(chan struct{}, 1), limit: benchRows}
				j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return s }, append(props, "topics", "in",
					"consumer.override.group.id", "g"+strconv.Itoa(total))...))
				<-s.done
				total += benchRows
				b.StopTimer()
				require.NoError(b, j.stop())
				b.StartTimer()
			}
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
