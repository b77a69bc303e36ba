package native_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/server/servertest"
)

// keyedTopic is a node with a compacted topic c of so many records, of 100 bytes, with a key each.
func keyedTopic(b *testing.B, records, keys int) *servertest.Node {
	node := servertest.Start(b, servertest.Options{Uncoded: true})
	_, h, _ := keyServer(b, node.Requestor(), 0)
	send := func(path, mediaType string, body string) {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", mediaType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Less(b, w.Code, 300, w.Body)
	}
	send("/v1/topics", "application/json", `{"name":"c","configs":{"cleanup.policy":"compact"}}`)
	value := []byte(strings.Repeat("v", 88))
	for n := 0; n < records; {
		var batch record.Builder
		for range 1000 {
			batch.Append(&record.Record{Key: fmt.Appendf(nil, "key-%08d", n%keys), Value: value, Timestamp: 1767323045678})
			n++
		}
		send("/v1/topics/c/records?partition=0&acks=1", rawType, string(batch.Build()))
	}
	return node
}

func getKey(b *testing.B, h http.Handler, n int) {
	w := &discard{header: http.Header{}}
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/v1/topics/c/keys/key-%08d", n), nil))
	if w.status != 0 && w.status != http.StatusOK {
		b.Fatal(w.status)
	}
}

// BenchmarkKey measures a read by key of an index that is up to date.
func BenchmarkKey(b *testing.B) {
	const keys = 100_000
	node := keyedTopic(b, keys, keys)
	_, h, _ := keyServer(b, node.Requestor(), 0)
	getKey(b, h, 0)
	n := 0
	for b.Loop() {
		getKey(b, h, n*7919%keys)
		n++
	}
}

// BenchmarkKeyCold measures the first read by key of a partition: of keys that are all different, and of keys that come
// again and again.
func BenchmarkKeyCold(b *testing.B) {
	const records = 500_000
	for name, keys := range map[string]int{"unique": records, "repeated": 1000} {
		b.Run(name, func(b *testing.B) {
			node := keyedTopic(b, records, keys)
			for b.Loop() {
				_, h, _ := keyServer(b, node.Requestor(), 0)
				getKey(b, h, 0)
			}
			b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
