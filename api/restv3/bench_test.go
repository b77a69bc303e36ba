package restv3_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/restv3"
	"millrace/client"
	"millrace/record"
)

// instant answers produce requests at once and stores nothing, so that a benchmark shows what the
// handler costs. It checks what it is sent as a leader would.
type instant struct{ next int64 }

func (c *instant) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	switch req := req.(type) {
	case *kmsg.MetadataRequest:
		resp := kmsg.NewPtrMetadataResponse()
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = req.Topics[0].Topic
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Replicas, p.ISR = []int32{0}, []int32{0}
		t.Partitions = append(t.Partitions, p)
		resp.Topics = append(resp.Topics, t)
		return resp, nil
	case *kmsg.ProduceRequest:
		resp := kmsg.NewPtrProduceResponse()
		t := kmsg.ProduceResponseTopic{Topic: req.Topics[0].Topic}
		for i := range req.Topics[0].Partitions {
			p := &req.Topics[0].Partitions[i]
			b := record.Batch(p.Records)
			if err := b.Verify(); err != nil {
				return nil, err
			}
			t.Partitions = append(t.Partitions, kmsg.ProduceResponseTopicPartition{
				Partition: p.Partition, BaseOffset: c.next, LogAppendTime: -1,
			})
			c.next += int64(b.Count())
		}
		resp.Topics = append(resp.Topics, t)
		return resp, nil
	}
	return nil, fmt.Errorf("unexpected request %T", req)
}

// discard is an answer that only counts.
type discard struct {
	header http.Header
	status int
	bytes  int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(s int)   { d.status = s }
func (d *discard) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}
func (d *discard) Flush()                  {}
func (d *discard) EnableFullDuplex() error { return nil }

// BenchmarkProduceV3 is a request for records from the router on: everything but net/http and the log.
// With length the body's length is known, without it the answer is streamed.
func BenchmarkProduceV3(b *testing.B) {
	for _, n := range []int{1, 100} {
		one := `{"value":{"type":"JSON","data":{"text":"` + strings.Repeat("x", 1013) + `"}}}`
		body := []byte(strings.Repeat(one, n))
		for name, length := range map[string]int64{"length": int64(len(body)), "stream": -1} {
			b.Run(fmt.Sprintf("%s/records=%d", name, n), func(b *testing.B) { benchmark(b, body, length) })
		}
	}
}

func benchmark(b *testing.B, body []byte, length int64) {
	c := client.New(&instant{}, client.Options{})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(64 << 20)})
	require.NoError(b, err)
	mux := chi.NewRouter()
	restv3.New(edge, c, restv3.Options{}).Mount(mux)
	from := bytes.NewReader(body)
	req, err := http.NewRequest("POST", "/v3/clusters/c/topics/bench/records", io.NopCloser(from))
	require.NoError(b, err)
	req.ContentLength = length
	req.Header.Set("Content-Type", "application/json")
	w := &discard{header: http.Header{}}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		from.Reset(body)
		w.status, w.bytes = 0, 0
		mux.ServeHTTP(w, req)
		if w.status > 200 || w.bytes == 0 {
			b.Fatalf("status %d, %d bytes", w.status, w.bytes)
		}
	}
}
