package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// staleConn is a connection that the other side has closed while it was kept, which shows at the next request.
type staleConn struct {
	net.Conn
	closed atomic.Bool
}

// Write implements io.Writer.
func (c *staleConn) Write(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

// What was to go to a node that has stopped, over a connection that was kept, has certainly not been sent. Of what has
// a key that is not certain, for the transport tries that again even if it was.
func TestForwardOverAConnectionThatEnded(t *testing.T) {
	for _, c := range []struct {
		key  string
		sent bool
	}{{"", false}, {"Idempotency-Key", true}, {"X-Idempotency-Key", true}} {
		near, far := net.Pipe()
		conn := &staleConn{Conn: near}
		var serving sync.WaitGroup
		serving.Go(func() {
			if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
				_, _ = io.WriteString(far, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		})
		dials := 0
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			if dials++; dials == 1 {
				return conn, nil
			}
			return nil, errors.New("nobody listens there")
		}}
		warm, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node/", nil)
		require.NoError(t, err)
		resp, err := tr.RoundTrip(warm)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		serving.Wait()
		conn.closed.Store(true)

		n := &Node{peers: &peers{transport: tr}, log: slog.New(slog.DiscardHandler)}
		f := &forwarding{node: n, base: &url.URL{Scheme: "http", Host: "node"}}
		r := httptest.NewRequest(http.MethodPost, "/v1/groups/g/records", strings.NewReader("body"))
		if c.key != "" {
			r.Header.Set(c.key, "k")
		}
		_, err = keepBody(r)
		require.NoError(t, err)
		f.serve(httptest.NewRecorder(), r)
		require.ErrorContains(t, f.err, "nobody listens there")
		require.Equal(t, 2, dials)
		require.Equal(t, c.sent, f.sent.Load(), c.key)
		tr.CloseIdleConnections()
		require.NoError(t, far.Close())
	}
}
