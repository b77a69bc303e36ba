package registry_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/server/servertest"
)

// BenchmarkReadByID is what a consumer asks for when it meets an id: over a real connection, beside a bare server of
// net/http that answers with the same bytes.
func BenchmarkReadByID(b *testing.B) {
	n := servertest.Start(b, servertest.Options{Uncoded: true})
	f := &fixture{b, n.URL(), n.Client}
	fields := make([]string, 20)
	for i := range fields {
		fields[i] = `{"name":"field_` + strconv.Itoa(i) + `","type":["null","string"],"default":null}`
	}
	f.run(step{"POST /subjects/s/versions", body(record(fields...)), `{"id":1}`})
	answer := []byte(f.send("GET", "/schemas/ids/1", "").text)
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", api.RegistryType)
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	}))
	defer bare.Close()
	for _, s := range []struct{ name, url string }{{"bare", bare.URL}, {"registry", n.URL()}} {
		b.Run(s.name+"/one", func(b *testing.B) {
			ask, size := asker(b, s.url)
			b.SetBytes(int64(size))
			for b.Loop() {
				ask()
			}
		})
		b.Run(s.name+"/many", func(b *testing.B) {
			_, size := asker(b, s.url)
			b.SetBytes(int64(size))
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				ask, _ := asker(b, s.url)
				for pb.Next() {
					ask()
				}
			})
		})
	}
}

// asker is a connection on which to ask again and again, with no client that would cost more than the server, and the
// size of an answer.
func asker(b *testing.B, url string) (ask func(), size int) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, conn.Close()) })
	request := []byte("GET /schemas/ids/1 HTTP/1.1\r\nHost: h\r\nAccept: " + api.RegistryType + "\r\n\r\n")
	_, err = conn.Write(request)
	require.NoError(b, err)
	count := &counter{Reader: conn}
	resp, err := http.ReadResponse(bufio.NewReaderSize(count, 64<<10), nil)
	require.NoError(b, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(b, err)
	require.Equal(b, http.StatusOK, resp.StatusCode)
	buf := make([]byte, count.n) // all answers have the same length
	return func() {
		if _, err := conn.Write(request); err != nil {
			b.Error(err)
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			b.Error(err)
		}
	}, len(buf)
}

// counter counts what is read.
type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}
