package native_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/record"
)

// memoryLog is a topic t of one partition in memory, for tests in fake time.
type memoryLog struct {
	mu      sync.Mutex
	batches []byte        // guarded by mu
	end     int64         // guarded by mu
	fault   *kerr.Error   // what fetches are answered with; guarded by mu
	changed chan struct{} // closed at each change; guarded by mu
}

func newMemoryLog() *memoryLog { return &memoryLog{changed: make(chan struct{})} }

func (m *memoryLog) put(values ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b record.Builder
	for _, v := range values {
		b.Append(&record.Record{Timestamp: 1, Value: []byte(v)})
	}
	batch := b.Build()
	batch.SetBaseOffset(m.end)
	m.batches = append(m.batches, batch...)
	m.end += int64(len(values))
	m.changeLocked()
}

func (m *memoryLog) fail(err *kerr.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = err
	m.changeLocked()
}

func (m *memoryLog) changeLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memoryLog) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch r := r.(type) {
	case *kmsg.MetadataRequest:
		name := "t"
		p := kmsg.NewMetadataResponseTopicPartition()
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID, t.Partitions = &name, [16]byte{1}, []kmsg.MetadataResponseTopicPartition{p}
		resp := kmsg.NewPtrMetadataResponse()
		resp.Topics = append(resp.Topics, t)
		return resp, nil
	case *kmsg.ListOffsetsRequest:
		p := kmsg.NewListOffsetsResponseTopicPartition()
		if r.Topics[0].Partitions[0].Timestamp == client.Latest {
			m.mu.Lock()
			p.Offset = m.end
			m.mu.Unlock()
		}
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic, t.Partitions = "t", []kmsg.ListOffsetsResponseTopicPartition{p}
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Topics = append(resp.Topics, t)
		return resp, nil
	}
	return m.fetch(ctx, r.(*kmsg.FetchRequest))
}

func (m *memoryLog) fetch(ctx context.Context, r *kmsg.FetchRequest) (kmsg.Response, error) {
	patience := time.NewTimer(time.Duration(r.MaxWaitMillis) * time.Millisecond)
	defer patience.Stop()
	for last := r.MaxWaitMillis == 0; ; {
		p, changed := m.look(r.Topics[0].Partitions[0].FetchOffset)
		if last || len(p.RecordBatches) > 0 || p.ErrorCode != 0 {
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.Partitions = "t", []kmsg.FetchResponseTopicPartition{p}
			resp := kmsg.NewPtrFetchResponse()
			resp.Topics = append(resp.Topics, t)
			return resp, nil
		}
		select {
		case <-changed:
		case <-patience.C:
			last = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *memoryLog) look(from int64) (kmsg.FetchResponseTopicPartition, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = m.end, m.end, 0
	if m.fault != nil {
		p.ErrorCode = m.fault.Code
		return p, m.changed
	}
	for rest := m.batches; ; {
		b, next, err := record.Next(rest)
		if err != nil {
			return p, m.changed
		}
		if b.NextOffset() > from {
			p.RecordBatches = bytes.Clone(rest)
			return p, m.changed
		}
		rest = next
	}
}

// flow is the writer of a stream's response. It can be stopped from taking more.
type flow struct {
	mu       sync.Mutex
	text     strings.Builder // guarded by mu
	header   http.Header
	status   int
	deadline time.Time     // guarded by mu
	stuck    chan struct{} // nil, or what Write waits for, up to the deadline
}

func (f *flow) Header() http.Header { return f.header }
func (f *flow) WriteHeader(s int)   { f.status = s }
func (f *flow) Flush()              {}

func (f *flow) SetWriteDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = t
	return nil
}

func (f *flow) Write(b []byte) (int, error) {
	f.mu.Lock()
	until := time.Until(f.deadline)
	f.mu.Unlock()
	if f.stuck != nil {
		select {
		case <-f.stuck:
		case <-time.After(until):
			return 0, context.DeadlineExceeded
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(b)
}

// takeText returns what was written since the last call.
func (f *flow) takeText() string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.text.Reset()
	return f.text.String()
}

// inFakeTime runs a test with a stream that is open at the end of m.
func inFakeTime(t *testing.T, fn func(t *testing.T, m *memoryLog, f *flow, ended chan struct{})) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryLog()
		c := client.New(m, client.Options{})
		edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(1 << 20)})
		require.NoError(t, err)
		s := native.New(native.Options{Edge: edge, Client: c})
		defer s.Close()
		r := chi.NewRouter()
		s.Mount(r)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/topics/t/records", nil)
		req.Header.Set("Accept", "text/event-stream")
		f := &flow{header: http.Header{}}
		ended := make(chan struct{})
		go func() {
			r.ServeHTTP(f, req)
			close(ended)
		}()
		require.Equal(t, "retry: 2000\nid: 0~AQAA\n\n", f.takeText())
		require.Equal(t, http.StatusOK, f.status)
		fn(t, m, f, ended)
	})
}

const (
	comment   = ": keep-alive\n\n"
	firstText = "id: 1~AQAA\n" +
		`data: {"partition":0,"offset":0,"timestamp":"1970-01-01T00:00:00.001Z","value":1}` + "\n\n"
)

func TestTailKeepAlive(t *testing.T) {
	inFakeTime(t, func(t *testing.T, m *memoryLog, f *flow, _ chan struct{}) {
		time.Sleep(15*time.Second - time.Millisecond)
		require.Empty(t, f.takeText())
		time.Sleep(time.Millisecond)
		require.Equal(t, comment, f.takeText())
		time.Sleep(10 * time.Second)
		m.put("1")
		require.Equal(t, firstText, f.takeText())
		time.Sleep(14 * time.Second)
		require.Empty(t, f.takeText())
		time.Sleep(32 * time.Second)
		require.Equal(t, comment+comment+comment, f.takeText())
	})
}

func TestTailSurvivesShortFaults(t *testing.T) {
	inFakeTime(t, func(t *testing.T, m *memoryLog, f *flow, _ chan struct{}) {
		m.fail(kerr.NotLeaderForPartition)
		time.Sleep(10 * time.Second)
		m.put("1")
		require.Empty(t, f.takeText())
		m.fail(nil)
		time.Sleep(time.Second)
		require.Equal(t, firstText, f.takeText())
	})
}

func TestTailEndsAfterLongFaults(t *testing.T) {
	inFakeTime(t, func(t *testing.T, m *memoryLog, f *flow, ended chan struct{}) {
		m.fail(kerr.NotLeaderForPartition)
		time.Sleep(29 * time.Second)
		require.Equal(t, comment, f.takeText())
		<-ended
		text := f.takeText()
		require.Contains(t, text, "event: error\ndata: {\"type\":\"/v1/errors#NOT_LEADER")
	})
}

// Who takes nothing for ten seconds is cut off.
func TestTailCutsStuckReader(t *testing.T) {
	inFakeTime(t, func(t *testing.T, m *memoryLog, f *flow, ended chan struct{}) {
		f.stuck = make(chan struct{})
		start := time.Now()
		m.put("1")
		<-ended
		require.LessOrEqual(t, time.Since(start), 21*time.Second)
	})
}

// One who takes little falls out of the hub's ring and reads the log, and misses nothing.
func TestTailReadsOnAfterTheRing(t *testing.T) {
	inFakeTime(t, func(t *testing.T, m *memoryLog, f *flow, _ chan struct{}) {
		f.stuck = make(chan struct{})
		big := `"` + strings.Repeat("x", 100_000) + `"`
		const count = 40
		for range count {
			m.put(big)
			synctest.Wait()
		}
		time.Sleep(9 * time.Second)
		close(f.stuck)
		text := f.takeText()
		require.Equal(t, count, strings.Count(text, big))
		require.Contains(t, text, "id: 40~AQAA\n")
	})
}
