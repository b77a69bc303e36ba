package restv2_test

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
	"millrace/api/restv2"
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

// BenchmarkProduceV2JSON is a produce request from the router on: everything but net/http and the log.
func BenchmarkProduceV2JSON(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			benchmark(b, "application/vnd.kafka.json.v2+json", requestOf(n, `{"text":"`+strings.Repeat("x", 1013)+`"}`))
		})
	}
}

// BenchmarkProduceV2Binary is the same with keys and values in base64.
func BenchmarkProduceV2Binary(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			benchmark(b, "application/vnd.kafka.binary.v2+json", requestOf(n, `"`+strings.Repeat("QUJD", 1024/3)+`"`))
		})
	}
}

func requestOf(n int, value string) []byte {
	records := make([]string, n)
	for i := range records {
		records[i] = `{"value":` + value + `}`
	}
	return []byte(`{"records":[` + strings.Join(records, ",") + `]}`)
}

func benchmark(b *testing.B, contentType string, body []byte) {
	c := client.New(&instant{}, client.Options{})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(64 << 20)})
	require.NoError(b, err)
	var mux http.Handler = chi.NewRouter()
	restv2.New(edge, c, restv2.Options{}).Mount(mux.(chi.Router))
	from := bytes.NewReader(body)
	req, err := http.NewRequest("POST", "/topics/bench", io.NopCloser(from))
	require.NoError(b, err)
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", contentType)
	w := &discard{header: http.Header{}}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		from.Reset(body)
		w.status, w.bytes = 0, 0
		mux.ServeHTTP(w, req)
		if w.status != 0 || w.bytes == 0 {
			b.Fatalf("status %d, %d bytes", w.status, w.bytes)
		}
	}
}
