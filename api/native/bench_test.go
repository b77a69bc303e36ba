package native_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/record"
	"millrace/server/servertest"
)

// discard is a ResponseWriter that keeps only the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// BenchmarkProduce measures a produce from the router to the log file and back, without the network: what
// is ours of a request. With acks=1 the answer does not wait for the disk.
func BenchmarkProduce(b *testing.B) {
	note := strings.Repeat("the quick brown fox jumps over the lazy dog, and the log goes on; ", 16)
	value := `{"id":12345678,"name":"customer-7","paid":true,"note":"` + note[:967] + `"}`
	require.Len(b, value, 1<<10)
	lines := strings.Repeat(value+"\n", 100)
	var records strings.Builder
	for i := range 100 {
		fmt.Fprintf(&records, `%s{"value":%s}`, map[bool]string{true: "[", false: ","}[i == 0], value)
	}
	records.WriteByte(']')
	var batch record.Builder
	for range 100 {
		batch.Append(&record.Record{Value: []byte(value), Timestamp: 1767323045678})
	}
	for _, c := range []struct {
		name, query, mediaType string
		body                   []byte
		records                int
	}{
		{"json", "acks=1", "application/json", []byte(value), 1},
		{"ndjson100", "acks=1", "application/x-ndjson", []byte(lines), 100},
		{"records100", "acks=1", "application/vnd.millrace.records+json", []byte(records.String()), 100},
		{"batch100", "acks=1&partition=0", rawType, batch.Build(), 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := benchmarkServer(b)
			body := bytes.NewReader(c.body)
			r := &http.Request{
				Method: http.MethodPost, URL: &url.URL{Path: path, RawQuery: c.query}, RequestURI: path,
				Header: http.Header{"Content-Type": {c.mediaType}}, ContentLength: int64(len(c.body)), Body: io.NopCloser(body),
			}
			w := &discard{header: http.Header{}}
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				body.Reset(c.body)
				h.ServeHTTP(w, r)
				if w.status >= 300 {
					b.Fatal(w.status)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.records), "ns/record")
		})
	}
}

func benchmarkServer(b *testing.B) http.Handler {
	node := servertest.Start(b, servertest.Options{Uncoded: true})
	c := client.New(node.Requestor(), client.Options{})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(64 << 20)})
	require.NoError(b, err)
	s := native.New(native.Options{Edge: edge, Client: c})
	b.Cleanup(s.Close)
	return api.NewRouter(edge, s.Mount)
}

// BenchmarkIdempotencyKey measures what a key adds to a produce: two more writes to the log.
func BenchmarkIdempotencyKey(b *testing.B) {
	for _, keyed := range []bool{false, true} {
		b.Run(fmt.Sprintf("key=%v", keyed), func(b *testing.B) {
			node := servertest.Start(b, servertest.Options{})
			n := 0
			for b.Loop() {
				n++
				r, err := http.NewRequest(http.MethodPost, node.URL()+path, strings.NewReader(`{"n":1}`))
				require.NoError(b, err)
				if keyed {
					r.Header.Set("Idempotency-Key", fmt.Sprint("k", n))
				}
				resp, err := node.Client.Do(r)
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(b, err)
				require.NoError(b, resp.Body.Close())
				require.Equal(b, http.StatusOK, resp.StatusCode)
			}
		})
	}
}

// BenchmarkTransaction measures a transaction of one request: 100 records and the offsets of a group.
func BenchmarkTransaction(b *testing.B) {
	node := servertest.Start(b, servertest.Options{})
	records := strings.Repeat(`{"topic":"t","value":{"n":1}},`, 99) + `{"topic":"t","value":{"n":1}}`
	body := `{"records":[` + records + `],"offsets":[{"group":"g","topic":"t","partition":0,"offset":7}]}`
	resp, err := node.Client.Post(node.URL()+path, "application/json", strings.NewReader("1"))
	require.NoError(b, err)
	require.NoError(b, resp.Body.Close())
	for b.Loop() {
		resp, err := node.Client.Post(node.URL()+"/v1/transactions", "application/json", strings.NewReader(body))
		require.NoError(b, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
		require.NoError(b, resp.Body.Close())
		require.Equal(b, http.StatusOK, resp.StatusCode)
	}
}
