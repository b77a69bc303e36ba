package schemaregistry

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
	"millrace/record"
)

// fakeLog is a cluster of one broker with one topic of one partition, in memory. What it is asked for it answers as a
// broker does; faults are asked for first.
type fakeLog struct {
	// fault may lose a request before it acts, or its answer after it has; nil loses nothing.
	fault func(r kmsg.Request) loss

	mu      sync.Mutex
	short   int   // how often there are too few brokers for the topic
	hidden  int64 // records at the end that are not committed
	exists  bool
	id      [16]byte
	created int
	start   int64
	records []record.Record // with offsets; of those that are left
	end     int64
	moved   chan struct{} // closed when something changes
}

type loss int8

const (
	nothingLost loss = iota
	requestLost
	answerLost
)

var errLost = errors.New("lost")

func newFakeLog() *fakeLog { return &fakeLog{moved: make(chan struct{})} }

// Request implements kmsg.Requestor.
func (f *fakeLog) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	lost := nothingLost
	if f.fault != nil {
		lost = f.fault(r)
	}
	if lost == requestLost {
		return nil, errLost
	}
	var resp kmsg.Response
	switch r := r.(type) {
	case *kmsg.MetadataRequest:
		resp = f.metadata(r)
	case *kmsg.CreateTopicsRequest:
		resp = f.createTopics(r)
	case *kmsg.ListOffsetsRequest:
		resp = f.listOffsets(r)
	case *kmsg.ProduceRequest:
		resp = f.produce(r)
	case *kmsg.FetchRequest:
		var err error
		if resp, err = f.fetch(ctx, r); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("not known here")
	}
	if lost == answerLost {
		return nil, errLost
	}
	return resp, nil
}

func (f *fakeLog) change() {
	close(f.moved)
	f.moved = make(chan struct{})
}

func (f *fakeLog) metadata(r *kmsg.MetadataRequest) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.MetadataResponse)
	resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "h"}}
	for _, t := range r.Topics {
		out := kmsg.NewMetadataResponseTopic()
		out.Topic = t.Topic
		if out.ErrorCode = kerr.UnknownTopicOrPartition.Code; f.exists {
			out.ErrorCode, out.TopicID = 0, f.id
			out.Partitions = []kmsg.MetadataResponseTopicPartition{{Leader: 1}}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (f *fakeLog) createTopics(r *kmsg.CreateTopicsRequest) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic = r.Topics[0].Topic
	switch {
	case f.exists:
		out.ErrorCode = kerr.TopicAlreadyExists.Code
	case f.short > 0 || !ktag.Internal(&r.UnknownTags):
		f.short--
		out.ErrorCode = kerr.InvalidReplicationFactor.Code
	default:
		f.create()
	}
	resp.Topics = append(resp.Topics, out)
	return resp
}

func (f *fakeLog) create() {
	f.created++
	f.exists, f.id = true, [16]byte{15: byte(f.created)}
	f.start, f.end, f.records = 0, 0, nil
	f.change()
}

// drop deletes the topic.
func (f *fakeLog) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exists = false
	f.change()
}

func (f *fakeLog) listOffsets(r *kmsg.ListOffsetsRequest) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
	p := kmsg.NewListOffsetsResponseTopicPartition()
	if p.ErrorCode = kerr.UnknownTopicOrPartition.Code; f.exists {
		p.ErrorCode, p.Offset = 0, f.end-f.hidden
		if r.Topics[0].Partitions[0].Timestamp == client.Earliest {
			p.Offset = f.start
		}
	}
	resp.Topics = []kmsg.ListOffsetsResponseTopic{{
		Topic: r.Topics[0].Topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{p},
	}}
	return resp
}

func (f *fakeLog) produce(r *kmsg.ProduceRequest) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.ProduceResponse)
	in := &r.Topics[0].Partitions[0]
	p := kmsg.NewProduceResponseTopicPartition()
	expected, ok := ktag.ExpectedOffset(&in.UnknownTags)
	switch {
	case !f.exists:
		p.ErrorCode = kerr.UnknownTopicOrPartition.Code
	case ok && expected != f.end:
		p.ErrorCode = kerr.InvalidUpdateVersion.Code
		ktag.SetActualOffset(&p.UnknownTags, f.end)
	default:
		p.BaseOffset = f.end
		f.take(in.Records)
	}
	resp.Topics = []kmsg.ProduceResponseTopic{{
		Topic: r.Topics[0].Topic, Partitions: []kmsg.ProduceResponseTopicPartition{p},
	}}
	return resp
}

func (f *fakeLog) take(batch record.Batch) {
	reader := record.NewReader(batch, 1<<30)
	var rec record.Record
	for reader.Next(&rec) {
		kept := record.Record{Offset: f.end, Timestamp: rec.Timestamp, Key: clone(rec.Key), Value: clone(rec.Value)}
		for _, h := range rec.Headers {
			kept.Headers = append(kept.Headers, record.Header{Key: h.Key, Value: clone(h.Value)})
		}
		f.records = append(f.records, kept)
		f.end++
	}
	f.change()
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

// put appends records as another writer would: keys and values in turns, a value "" is a null.
func (f *fakeLog) put(pairs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.exists {
		f.create()
	}
	for i := 0; i < len(pairs); i += 2 {
		rec := record.Record{Offset: f.end, Timestamp: 1000 + f.end, Key: []byte(pairs[i])}
		if pairs[i+1] != "" {
			rec.Value = []byte(pairs[i+1])
		}
		f.records = append(f.records, rec)
		f.end++
	}
	f.change()
}

func (f *fakeLog) fetch(ctx context.Context, r *kmsg.FetchRequest) (kmsg.Response, error) {
	in := &r.Topics[0].Partitions[0]
	wait := time.NewTimer(time.Duration(r.MaxWaitMillis) * time.Millisecond)
	defer wait.Stop()
	for {
		p, moved, done := f.look(in.FetchOffset, r.Topics[0].TopicID)
		if !done {
			select {
			case <-moved:
				continue
			case <-wait.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		resp := r.ResponseKind().(*kmsg.FetchResponse)
		resp.Topics = []kmsg.FetchResponseTopic{{
			Topic: r.Topics[0].Topic, TopicID: r.Topics[0].TopicID,
			Partitions: []kmsg.FetchResponseTopicPartition{p},
		}}
		return resp, nil
	}
}

func (f *fakeLog) look(offset int64, id [16]byte) (p kmsg.FetchResponseTopicPartition, moved chan struct{}, done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p = kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark, p.LogStartOffset = f.end-f.hidden, f.start
	switch {
	case !f.exists || f.id != id:
		p.ErrorCode = kerr.UnknownTopicID.Code
	case offset < f.start || offset > f.end-f.hidden:
		p.ErrorCode = kerr.OffsetOutOfRange.Code
	case offset >= f.end-f.hidden:
		return p, f.moved, false
	default:
		p.RecordBatches = f.batches(offset)
	}
	return p, f.moved, true
}

// batches are the records from an offset on, one a batch; the last offset is always covered.
func (f *fakeLog) batches(offset int64) (out []byte) {
	next := offset
	for i := range f.records {
		rec := &f.records[i]
		if rec.Offset < offset {
			continue
		}
		var b record.Builder
		b.Append(rec)
		batch := b.Build()
		batch.SetBaseOffset(rec.Offset)
		out = append(out, batch...)
		next = rec.Offset + 1
	}
	if next < f.end {
		out = record.AppendEmpty(out, record.Fields{
			BaseOffset: f.end - 1, LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
		})
	}
	return out
}

// compacted is the log with the last record of each key alone, and without tombstones.
func (f *fakeLog) compacted() *fakeLog {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := map[string]int64{}
	for _, rec := range f.records {
		last[string(rec.Key)] = rec.Offset
	}
	out := newFakeLog()
	out.exists, out.id, out.start, out.end, out.created = f.exists, f.id, f.start, f.end, f.created
	for _, rec := range f.records {
		if last[string(rec.Key)] == rec.Offset && rec.Value != nil {
			out.records = append(out.records, rec)
		}
	}
	return out
}

// folded is the state that a log gives.
func (f *fakeLog) folded(t require.TestingT) *state {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := newState()
	for i := range f.records {
		rec := &f.records[i]
		e, err := readEntry(rec.Key, rec.Value)
		require.NoError(t, err)
		e.timestamp = rec.Timestamp
		s.apply(&e)
	}
	return s
}

// length is how many records the log has had.
func (f *fakeLog) length() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end
}

// run makes a Registry on a cluster, and reads until the test ends. It asks long for the log's end: a test may stand
// still, and an old answer would be taken for a fault.
func run(t testing.TB, cluster kmsg.Requestor, change func(*Config)) *Registry {
	t.Helper()
	cfg := Config{
		Client: client.New(cluster, client.Options{MetadataTTL: time.Millisecond}),
		Rand:   rand.New(rand.NewPCG(1, rand.Uint64())),
		Limits: Limits{FreshWait: 20 * time.Second},
	}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}
