package native_test

import (
	"context"
	"encoding/json"
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

// A long poll reads the partitions that its topic gets meanwhile, within some seconds.
func TestLongPollSeesNewPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &growing{}
		g.partitions.Store(1)
		c := client.New(g, client.Options{})
		edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(1 << 20)})
		require.NoError(t, err)
		s := native.New(native.Options{Edge: edge, Client: c})
		defer s.Close()
		r := chi.NewRouter()
		s.Mount(r)
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
