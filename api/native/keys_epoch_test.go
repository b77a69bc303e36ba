package native_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	fetched int            // batches that fetches gave; guarded by mu
	frozen  bool           // fetches are not answered any more; guarded by mu
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

func (l *keyLog) isFrozen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frozen
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

func (l *keyLog) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if _, ok := r.(*kmsg.FetchRequest); ok && l.isFrozen() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
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

// server serves keys of l, with metadata that is not asked for again by itself.
func (l *keyLog) server(t *testing.T) http.Handler {
	c := client.New(l, client.Options{MetadataTTL: time.Hour})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	s := native.New(native.Options{Edge: edge, Client: c})
	t.Cleanup(s.Close)
	return api.NewRouter(edge, s.Mount)
}

// reader gives a way to read keys of l.
func (l *keyLog) reader(t *testing.T) func(key string) string {
	h := l.server(t)
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

// A read that cannot come to the end in time says how far it is.
func TestKeysInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &keyLog{}
		h := l.server(t)
		get := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/topics/t/keys/a", nil))
			return w
		}
		l.put("a", "1")
		require.Equal(t, http.StatusOK, get().Code)
		l.put("a", "2")
		l.change(func() { l.frozen = true })
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 { // one reads, the others wait for it
			wg.Go(func() {
				w := get()
				assertBehind(t, w)
			})
		}
		wg.Wait()
		require.Equal(t, 10*time.Second, time.Since(start))
		l.change(func() { l.frozen = false })
		w := get()
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "1", w.Header().Get("Record-Offset"))
	})
}

func assertBehind(t *testing.T, w *httptest.ResponseRecorder) {
	body := w.Body.String()
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(body, "INDEX_BEHIND") ||
		!strings.Contains(body, `"next_offset":1`) || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), body)
	}
}
