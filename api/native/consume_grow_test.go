package native_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/record"
)

// growing is a topic t whose partition 0 is empty, and whose others have one record each.
type growing struct{ partitions atomic.Int32 }

func (g *growing) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	name := "t"
	switch r := r.(type) {
	case *kmsg.MetadataRequest:
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = &name, [16]byte{1}
		for i := range g.partitions.Load() {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition = i
			t.Partitions = append(t.Partitions, p)
		}
		resp := kmsg.NewPtrMetadataResponse()
		resp.Topics = append(resp.Topics, t)
		return resp, nil
	case *kmsg.ListOffsetsRequest:
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = name
		for _, in := range r.Topics[0].Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.Offset = in.Partition, 0
			t.Partitions = append(t.Partitions, p)
		}
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Topics = append(resp.Topics, t)
		return resp, nil
	}
	fetch := r.(*kmsg.FetchRequest)
	t := kmsg.NewFetchResponseTopic()
	t.Topic = name
	found := false
	for _, in := range fetch.Topics[0].Partitions {
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition, p.HighWatermark = in.Partition, 0
		if in.Partition > 0 && in.FetchOffset == 0 {
			var b record.Builder
			b.Append(&record.Record{Timestamp: 1, Value: []byte("7")})
			p.RecordBatches, p.HighWatermark, found = b.Build(), 1, true
		}
		t.Partitions = append(t.Partitions, p)
	}
	if !found {
		select {
		case <-time.After(time.Duration(fetch.MaxWaitMillis) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Topics = append(resp.Topics, t)
	return resp, nil
}

// serve gives the API over the topic until the test ends.
func (g *growing) serve(t *testing.T) http.Handler {
	c := client.New(g, client.Options{})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	s := native.New(native.Options{Edge: edge, Client: c})
	t.Cleanup(s.Close)
	r := chi.NewRouter()
	s.Mount(r)
	return r
}

// A long poll reads the partitions that its topic gets meanwhile, within some seconds.
func TestLongPollSeesNewPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &growing{}
		g.partitions.Store(1)
		r := g.serve(t)
		poll := func() (p shownPage, took time.Duration) {
			start := time.Now()
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/topics/t/records?wait=30s", nil))
			require.Equal(t, http.StatusOK, w.Code)
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
			return p, time.Since(start)
		}
		p, took := poll()
		require.Empty(t, p.Records)
		require.Equal(t, 30*time.Second, took)
		time.AfterFunc(7*time.Second, func() { g.partitions.Store(3) })
		p, took = poll()
		require.Equal(t, []string{"7", "7"}, values(p.Records))
		require.Equal(t, 10*time.Second, took)
		require.Equal(t, "0,1,1~AQAA", p.Next)
	})
}

// A reader that comes from a node that knows more partitions of a topic is served as soon as this one knows them too.
func TestPositionsOfPartitionsNotHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &growing{}
		g.partitions.Store(1)
		r := g.serve(t)
		get := func(path string) (status int, took time.Duration) {
			start := time.Now()
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return w.Code, time.Since(start)
		}
		status, _ := get("/v1/topics/t/records")
		require.Equal(t, http.StatusOK, status)
		g.partitions.Store(2) // and what is known here is a moment old
		for _, path := range []string{"/v1/topics/t/partitions/1/records", "/v1/topics/t/records?from=0,1"} {
			status, took := get(path)
			require.Equal(t, http.StatusOK, status, path)
			require.Zero(t, took, path)
		}
		time.AfterFunc(300*time.Millisecond, func() { g.partitions.Store(3) })
		status, took := get("/v1/topics/t/records?from=0,1,1~AQAA")
		require.Equal(t, http.StatusOK, status)
		require.LessOrEqual(t, took, 400*time.Millisecond)
		status, took = get("/v1/topics/t/records?from=0,1,1,1~AQAA")
		require.Equal(t, http.StatusServiceUnavailable, status, "the position may well be right")
		require.Equal(t, time.Second, took)
		status, took = get("/v1/topics/t/records?from=0,1,1,1")
		require.Equal(t, http.StatusBadRequest, status, "written by hand")
		require.Zero(t, took)
	})
}

// A stream reads a partition that its topic gets meanwhile from where its log starts, also when that is no longer 0 by
// the time that the stream hears of it.
func TestTailOfANewPartitionWithDeletedRecords(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreign=%v", foreign), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMemoryCluster(1)
				c.foreign = foreign
				c.stream(t, "", func(f *flow, ended chan struct{}) {
					c.put(0, "1")
					c.grow(2, "10", "11", "12", "13")
					time.Sleep(6 * time.Second)
					require.Equal(t, []string{"1", "12", "13"}, shownValues(f.takeText()))
					c.put(1, "14")
					c.put(0, "2")
					require.ElementsMatch(t, []string{"14", "2"}, shownValues(f.takeText()), "at once")
					c.change(func() {
						c.logs[1].put("15", "16")
						c.first[1] = 6
					})
					<-ended
					require.Contains(t, f.takeText(), `"status":416`, "records are deleted that it has not read")
				})
			})
		})
	}
}

// A stream that is behind does so too, also while another partition cannot be read.
func TestBehindStreamOfANewPartitionWithDeletedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemoryCluster(1)
		c.put(0, "1", "2")
		c.frozen[0] = true
		c.stream(t, "?from=0", func(f *flow, ended chan struct{}) {
			c.grow(2, "10", "11", "12", "13")
			time.Sleep(10 * time.Second)
			require.Equal(t, []string{"12", "13"}, shownValues(f.takeText()))
			c.change(func() { c.frozen[0] = false })
			time.Sleep(2 * time.Second)
			require.Equal(t, []string{"1", "2"}, shownValues(f.takeText()))
		})
	})
}
