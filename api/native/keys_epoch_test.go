package native_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/record"
)

// keyLog is a Requestor with a compacted topic t of one partition, whose leader a test changes as it likes.
type keyLog struct {
	mu      sync.Mutex
	epoch   int32          // guarded by mu
	batches []record.Batch // guarded by mu
	stable  int64          // guarded by mu
	start   int64          // guarded by mu
	fetched int            // fetches of a record or more; guarded by mu
}

// put appends a record in the epoch in force.
func (l *keyLog) put(key, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b record.Builder
	b.Append(&record.Record{Key: []byte(key), Value: []byte(value)})
	batch := record.Batch(append([]byte{}, b.Build()...))
	batch.SetBaseOffset(l.stable)
	batch.SetLeaderEpoch(l.epoch)
	l.batches = append(l.batches, batch)
	l.stable++
}

// change changes the log under its lock.
func (l *keyLog) change(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
}

// truncate has another leader whose log ends at an offset.
func (l *keyLog) truncate(end int64) {
	l.change(func() {
		l.epoch++
		for len(l.batches) > 0 && l.batches[len(l.batches)-1].NextOffset() > end {
			l.batches = l.batches[:len(l.batches)-1]
		}
		l.stable = end
	})
}

func (l *keyLog) code(claimed int32) int16 {
	switch {
	case claimed < 0 || claimed == l.epoch:
		return 0
	case claimed < l.epoch:
		return kerr.FencedLeaderEpoch.Code
	}
	return kerr.UnknownLeaderEpoch.Code
}

func (l *keyLog) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := "t"
	switch r := r.(type) {
	case *kmsg.MetadataRequest:
		p := kmsg.MetadataResponseTopicPartition{LeaderEpoch: l.epoch}
		return &kmsg.MetadataResponse{Topics: []kmsg.MetadataResponseTopic{
			{Topic: &name, TopicID: [16]byte{1}, Partitions: []kmsg.MetadataResponseTopicPartition{p}},
		}}, nil
	case *kmsg.DescribeConfigsRequest:
		policy := "compact"
		return &kmsg.DescribeConfigsResponse{Resources: []kmsg.DescribeConfigsResponseResource{{
			ResourceType: r.Resources[0].ResourceType, ResourceName: name,
			Configs: []kmsg.DescribeConfigsResponseResourceConfig{{Name: "cleanup.policy", Value: &policy}},
		}}}, nil
	case *kmsg.ListOffsetsRequest:
		asked := r.Topics[0].Partitions[0]
		p := kmsg.ListOffsetsResponseTopicPartition{Offset: l.start, ErrorCode: l.code(asked.CurrentLeaderEpoch)}
		if asked.Timestamp == client.Latest {
			p.Offset = l.stable
		}
		return &kmsg.ListOffsetsResponse{Topics: []kmsg.ListOffsetsResponseTopic{
			{Topic: name, Partitions: []kmsg.ListOffsetsResponseTopicPartition{p}},
		}}, nil
	case *kmsg.OffsetForLeaderEpochRequest:
		return l.epochEnd(&r.Topics[0].Partitions[0]), nil
	default:
		return l.fetch(&r.(*kmsg.FetchRequest).Topics[0].Partitions[0]), nil
	}
}

func (l *keyLog) epochEnd(asked *kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.Response {
	p := kmsg.OffsetForLeaderEpochResponseTopicPartition{
		LeaderEpoch: -1, EndOffset: -1, ErrorCode: l.code(asked.CurrentLeaderEpoch),
	}
	for _, b := range l.batches {
		if b.LeaderEpoch() <= asked.LeaderEpoch {
			p.LeaderEpoch, p.EndOffset = b.LeaderEpoch(), b.NextOffset()
		}
	}
	return &kmsg.OffsetForLeaderEpochResponse{Topics: []kmsg.OffsetForLeaderEpochResponseTopic{
		{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{p}},
	}}
}

func (l *keyLog) fetch(asked *kmsg.FetchRequestTopicPartition) kmsg.Response {
	p := kmsg.FetchResponseTopicPartition{
		HighWatermark: l.stable, LastStableOffset: l.stable, LogStartOffset: l.start,
		ErrorCode: l.code(asked.CurrentLeaderEpoch),
	}
	if p.ErrorCode == 0 && (asked.FetchOffset < l.start || asked.FetchOffset > l.stable) {
		p.ErrorCode = kerr.OffsetOutOfRange.Code
	}
	for _, b := range l.batches {
		if p.ErrorCode == 0 && b.NextOffset() > asked.FetchOffset {
			p.RecordBatches = append(p.RecordBatches, b...)
			l.fetched++
		}
	}
	return &kmsg.FetchResponse{Topics: []kmsg.FetchResponseTopic{
		{Topic: "t", TopicID: [16]byte{1}, Partitions: []kmsg.FetchResponseTopicPartition{p}},
	}}
}

// readers gives a way to read keys of l, with metadata that is not asked for again by itself.
func (l *keyLog) reader(t *testing.T) func(key string) string {
	c := client.New(l, client.Options{MetadataTTL: time.Hour})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	s := native.New(native.Options{Edge: edge, Client: c})
	t.Cleanup(s.Close)
	h := api.NewRouter(edge, s.Mount)
	return func(key string) string {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/v1/topics/t/keys/"+key, nil)
		r.Header.Set("Accept", "text/plain")
		h.ServeHTTP(w, r)
		if w.Code == http.StatusNotFound {
			return "none"
		}
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return w.Body.String()
	}
}

// A new leader whose log is another one has the index read anew; one whose log goes on as the last one's does not.
func TestKeysOfAnotherLeader(t *testing.T) {
	l := &keyLog{}
	get := l.reader(t)
	l.put("a", "1")
	l.put("b", "2")
	l.put("a", "3")
	require.Equal(t, "3", get("a"))

	l.change(func() { l.epoch, l.fetched = 1, 0 })
	require.Equal(t, "2", get("b"))
	require.Equal(t, 2, l.fetched, "the record and what stands behind it, no more")
	l.put("b", "4")
	require.Equal(t, "4", get("b"))

	l.truncate(1) // in epoch 2 there is a=1 alone
	require.Equal(t, "1", get("a"))
	require.Equal(t, "none", get("b"))
	l.put("c", "5")
	l.put("b", "6")
	l.put("c", "7")
	l.put("c", "8")
	require.Equal(t, "6", get("b"))
	require.Equal(t, "1", get("a"))

	// The log is as long as before when it is looked at, but not the same.
	l.truncate(2)
	for range 3 {
		l.put("d", "9")
	}
	require.Equal(t, "none", get("b"))
	require.Equal(t, "5", get("c"))
	require.Equal(t, "9", get("d"))
}

// Compaction may leave offsets without a batch before the end, where the index must come to the end all the same.
func TestKeysBeforeAGap(t *testing.T) {
	l := &keyLog{}
	get := l.reader(t)
	l.put("a", "1")
	l.change(func() { l.stable = 10 })
	require.Equal(t, "1", get("a"))
	require.Equal(t, "none", get("b"))
	l.put("b", "2") // at 10
	require.Equal(t, "2", get("b"))
	l.change(func() { l.start, l.batches = 10, l.batches[1:] })
	require.Equal(t, "none", get("a"))
	require.Equal(t, "2", get("b"))
	l.change(func() { l.batches, l.stable = nil, 20 }) // b's record went, though nothing says so
	require.Equal(t, "none", get("b"))
}
