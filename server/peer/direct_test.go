package peer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/peer"
)

// direct gives the client's options a Direct, and counts the connections that it opens.
func direct(t testing.TB, o *peer.ClientOptions) (dials *atomic.Int64) {
	dials = new(atomic.Int64)
	d := &peer.Direct{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(d.Close)
	o.Fetches = d
	return dials
}

// answerer answers each fetch with bytes that follow from its MaxBytes.
func answerer(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	part := kmsg.NewFetchResponseTopicPartition()
	n := r.(*kmsg.FetchRequest).MaxBytes
	part.RecordBatches = []byte(strings.Repeat(string(rune('a'+n%26)), int(n)))
	resp := kmsg.NewPtrFetchResponse()
	resp.Topics = []kmsg.FetchResponseTopic{{Topic: "t", Partitions: []kmsg.FetchResponseTopicPartition{part}}}
	return resp, nil
}

// fetchBytes fetches n bytes and checks that they are those of answerer.
func fetchBytes(ctx context.Context, c *peer.Client, n int32) error {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes = n
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return err
	}
	want := strings.Repeat(string(rune('a'+n%26)), int(n))
	if got := string(resp.Topics[0].Partitions[0].RecordBatches); got != want {
		return fmt.Errorf("%d bytes in place of %d, or others", len(got), len(want))
	}
	return nil
}

func TestDirectUsesConnectionsAgain(t *testing.T) {
	o := serve(t, answerer, nil)
	dials := direct(t, &o)
	c := peer.NewClient(o)
	for _, n := range []int32{0, 1, 5000, 200 << 10, 3 << 20, 7} {
		require.NoError(t, fetchBytes(t.Context(), c, n))
	}
	require.Equal(t, int64(1), dials.Load())

	var wg sync.WaitGroup
	faults := make([]error, 8)
	for i := range faults {
		wg.Go(func() {
			for k := range 50 {
				faults[i] = errors.Join(faults[i], fetchBytes(t.Context(), c, int32(1000*i+k)))
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(faults...))
	require.LessOrEqual(t, dials.Load(), int64(len(faults)))
}

// A connection that the other side has closed meanwhile, without a word, is replaced.
func TestDirectReplacesAConnection(t *testing.T) {
	h := peer.NewHandler(peer.HandlerOptions{To: requestor(answerer), Node: 2, Credential: secret})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", rec.Body.Len(), rec.Body)
			_ = conn.Close()
		}
	}))
	t.Cleanup(s.Close)
	o := peer.ClientOptions{Node: 2, URL: s.URL, Credential: secret}
	dials := direct(t, &o)
	c := peer.NewClient(o)
	for range 5 {
		require.NoError(t, fetchBytes(t.Context(), c, 10))
	}
	require.Equal(t, int64(5), dials.Load())
}

// A refusal is told, and what could not be reached did nothing.
func TestDirectTellsWhatFailed(t *testing.T) {
	o := serve(t, answerer, func(o *peer.HandlerOptions) { o.Node = 3 })
	direct(t, &o)
	err := fetchBytes(t.Context(), peer.NewClient(o), 10)
	require.ErrorIs(t, err, peer.ErrNotSent)
	require.ErrorContains(t, err, "this is node 3")

	o.URL = nobody
	require.ErrorIs(t, fetchBytes(t.Context(), peer.NewClient(o), 10), peer.ErrNotSent)
}

// A request whose caller has gone is cancelled on the peer, and its connection is not used again.
func TestDirectIsCancelled(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	o := serve(t, func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		if r.(*kmsg.FetchRequest).MaxBytes > 0 {
			return answerer(ctx, r)
		}
		close(began)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}, nil)
	dials := direct(t, &o)
	c := peer.NewClient(o)
	require.NoError(t, fetchBytes(t.Context(), c, 1))
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	var wg sync.WaitGroup
	wg.Go(func() {
		<-began
		cancel(gone)
	})
	require.ErrorIs(t, fetchBytes(ctx, c, 0), gone)
	wg.Wait()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, fetchBytes(t.Context(), c, 1))
	require.Equal(t, int64(2), dials.Load())
}

// Answers that break off, or never end, are errors.
func TestDirectBadAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":     "",
		"no HTTP":     "hello\r\n\r\n",
		"stub":        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nstub",
		"no length":   "HTTP/1.1 200 OK\r\n\r\nabc",
		"interim":     "HTTP/1.1 103 Early Hints\r\n\r\n",
		"endless":     "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 1<<20),
		"two answers": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() { answerWith(l, answer) })
			o := peer.ClientOptions{Node: 2, URL: "http://" + l.Addr().String(), Credential: secret}
			direct(t, &o)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.Error(t, fetchBytes(ctx, peer.NewClient(o), 1))
			require.NoError(t, ctx.Err())
			require.NoError(t, l.Close())
			wg.Wait()
		})
	}
}

// answerWith reads one request of each connection and answers it with a text, until the listener is closed.
func answerWith(l net.Listener, text string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_ = r.Body.Close()
			_, _ = conn.Write([]byte(text))
		}
		_ = conn.Close()
	}
}

func BenchmarkDirectFetch(b *testing.B) {
	o := serveBench(b)
	direct(b, &o)
	c := peer.NewClient(o)
	pool := record.NewPool(64 << 20)
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes = 4 << 10
	b.ReportAllocs()
	for b.Loop() {
		arena := pool.Arena()
		_, err := req.RequestWith(record.WithArena(b.Context(), arena), c)
		require.NoError(b, err)
		arena.Free()
	}
}
