package quorum_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"millrace/server/quorum"
	"millrace/server/servertest/memnet"
)

// twoEnds gives streams of node 1, which calls, and of node 2, which listens on a network in memory.
func twoEnds(t *testing.T, change func(one, two *quorum.StreamConfig)) (one, two *quorum.Streams) {
	n := memnet.New(1, memnet.Link{Latency: time.Millisecond})
	a, b := n.Boot("n1"), n.Boot("n2")
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		return a.Dial(ctx, "tcp", u.Host)
	}
	check := func(r *http.Request) bool { return r.Header.Get("Authorization") == "secret" }
	authorize := func(h http.Header) { h.Set("Authorization", "secret") }
	c1 := quorum.StreamConfig{NodeID: 1, Address: urlOf(1), Dial: dial, Authorize: authorize, Check: check}
	c2 := quorum.StreamConfig{NodeID: 2, Address: urlOf(2), Dial: dial, Authorize: authorize, Check: check}
	if change != nil {
		change(&c1, &c2)
	}
	one, two = quorum.NewStreams(c1), quorum.NewStreams(c2)
	l, err := b.Listen(8082)
	require.NoError(t, err)
	server := &http.Server{Handler: two, ReadHeaderTimeout: time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		require.NoError(t, one.Close())
		require.NoError(t, two.Close())
		require.NoError(t, server.Close())
		serving.Wait()
		n.Close()
	})
	return one, two
}

func TestStreamsCarryBytesBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := twoEnds(t, nil)
		require.Equal(t, "http://n1:8082", one.Addr().String())
		taken := make(chan net.Conn, 1)
		var accepting sync.WaitGroup
		accepting.Go(func() {
			c, err := two.Accept()
			if err != nil {
				t.Error(err)
			}
			taken <- c
		})
		near, err := one.Dial("http://n2:8082#2", time.Second)
		require.NoError(t, err)
		far := <-taken
		time.Sleep(time.Hour) // the server's time limits are not the stream's
		for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
			_, err = io.WriteString(ends[0], "hello")
			require.NoError(t, err)
			b := make([]byte, 5)
			_, err = io.ReadFull(ends[1], b)
			require.NoError(t, err)
			require.Equal(t, "hello", string(b))
		}
		require.NoError(t, two.Close())
		_, err = near.Read(make([]byte, 1))
		require.Error(t, err, "Close ends the streams")
		_, err = two.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestStreamsAreRefused(t *testing.T) {
	is := func(id string) func() string { return func() string { return id } }
	cases := []struct {
		name   string
		to     raft.ServerAddress
		change func(one, two *quorum.StreamConfig)
		err    []string // "" when it is taken
	}{
		{"another credential", "http://n2:8082#2", func(one, _ *quorum.StreamConfig) {
			one.Authorize = func(h http.Header) { h.Set("Authorization", "guess") }
		}, []string{"401", "cluster secret"}},
		{"another cluster", "http://n2:8082#2", func(one, two *quorum.StreamConfig) {
			one.ClusterID, two.ClusterID = is("mine"), is("theirs")
		}, []string{"409", "node 2 belongs to cluster theirs", "node 1 to cluster mine", "empty data directory"}},
		{"another node was wanted", "http://n2:8082#3", nil, []string{"421", "this is node 2, not node 3"}},
		{"a copy", "http://n2:8082#2", func(one, _ *quorum.StreamConfig) { one.NodeID = 2 }, []string{"421", "copy"}},
		{"nobody listens", "http://n3:8082#3", nil, []string{"n3"}},
		{"no address", "3#3", nil, []string{"no address"}},
		{"the caller has no cluster yet", "http://n2:8082#2", func(_, two *quorum.StreamConfig) {
			two.ClusterID = is("theirs")
		}, nil},
	}
	for _, tc := range cases {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			one, two := twoEnds(t, func(one, two *quorum.StreamConfig) {
				one.Logger = slog.New(slog.NewTextHandler(&log, nil))
				if tc.change != nil {
					tc.change(one, two)
				}
			})
			if tc.err == nil {
				var accepting sync.WaitGroup
				accepting.Go(func() { _, _ = two.Accept() })
				_, err := one.Dial(tc.to, time.Second)
				require.NoError(t, err, tc.name)
				accepting.Wait()
				return
			}
			for range 3 {
				_, err := one.Dial(tc.to, time.Second)
				for _, text := range tc.err {
					require.ErrorContains(t, err, text, tc.name)
				}
			}
			require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "%s: %s", tc.name, log.String())
			time.Sleep(time.Minute)
			_, err := one.Dial(tc.to, time.Second)
			require.Error(t, err)
			require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), tc.name)
		})
	}
}

// What is no request for a stream gets an answer.
func TestStreamsTellOthersSo(t *testing.T) {
	s := quorum.NewStreams(quorum.StreamConfig{NodeID: 1})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	ask := func(change func(*http.Request)) int {
		r := httptest.NewRequest(http.MethodGet, quorum.StreamPath, nil)
		r.Header.Set("Upgrade", "millrace-raft/1")
		change(r)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusUpgradeRequired, ask(func(r *http.Request) { r.Header.Del("Upgrade") }))
	require.Equal(t, http.StatusUpgradeRequired, ask(func(r *http.Request) { r.ProtoMajor = 2 }))
	require.Equal(t, http.StatusMethodNotAllowed, ask(func(r *http.Request) { r.Method = http.MethodPost }))
	require.Equal(t, http.StatusUpgradeRequired, ask(func(*http.Request) {}), "a recorder has no connection to give")
}

// A dial that leads nowhere, or to one who says nothing, ends in time, and with Close.
func TestStreamsGiveUp(t *testing.T) {
	for _, listening := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.New(1, memnet.Link{})
			t.Cleanup(n.Close)
			h, other := n.Boot("n1"), n.Boot("n2")
			if listening {
				_, err := other.Listen(8082)
				require.NoError(t, err)
			} else {
				other.PowerOff()
			}
			s := quorum.NewStreams(quorum.StreamConfig{NodeID: 1, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
				return h.Dial(ctx, "tcp", "n2:8082")
			}})
			began := time.Now()
			_, err := s.Dial("http://n2:8082#2", 3*time.Second)
			require.Error(t, err)
			require.Equal(t, 3*time.Second, time.Since(began))
			time.AfterFunc(time.Second, func() { _ = s.Close() })
			_, err = s.Dial("http://n2:8082#2", time.Hour)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 4*time.Second, time.Since(began))
		})
	}
}
