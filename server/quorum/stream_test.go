package quorum_test

import (
	"bytes"
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

// ends keeps the other ends of dialled streams.
type ends struct {
	t     *testing.T
	conns []net.Conn
}

// dial dials a number of streams to node 2.
func (e *ends) dial(s *quorum.Streams, count int) {
	e.t.Helper()
	for range count {
		c, err := s.Dial("http://n2:8082#2", time.Second)
		require.NoError(e.t, err)
		e.conns = append(e.conns, c)
	}
}

// live tells for each stream whether the other end still has it.
func (e *ends) live() (out []bool) {
	for _, c := range e.conns {
		require.NoError(e.t, c.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		_, err := c.Read(make([]byte, 1))
		var timeout net.Error
		out = append(out, errors.As(err, &timeout) && timeout.Timeout())
	}
	return out
}

// A node keeps a number of streams of each other node, the newest, and a number of all; whoever dials one more gets it.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var config quorum.StreamConfig
		one, two := twoEnds(t, func(one, _ *quorum.StreamConfig) { config = *one })
		var ended atomic.Int64
		two.OnEnd(func(int32) { ended.Add(1) })
		var accepting sync.WaitGroup
		var reading sync.WaitGroup
		accepting.Go(func() {
			for {
				c, err := two.Accept()
				if err != nil {
					return
				}
				reading.Go(func() { _, _ = io.Copy(io.Discard, c) })
			}
		})
		ofNode := func(id int32) *quorum.Streams {
			config.NodeID = id
			s := quorum.NewStreams(config)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}
		other := ends{t: t}
		other.dial(ofNode(3), 3)
		first := ends{t: t}
		first.dial(one, 40)
		live := first.live()
		require.NotContains(t, live[:24], true)
		require.NotContains(t, live[24:], false, "the newest 16")
		require.NotContains(t, other.live(), false, "another node's stay")
		require.Zero(t, ended.Load(), "what this node closed is no sign that the other one is gone")
		all := ends{t: t}
		for id := range int32(20) {
			all.dial(ofNode(10+id), 16)
		}
		count := 0
		for _, l := range all.live() {
			if l {
				count++
			}
		}
		require.Equal(t, 256, count)
		require.NotContains(t, all.live()[64:], false, "the newest of all")
		require.NotContains(t, first.live(), true)
		require.NoError(t, two.Close())
		accepting.Wait()
		reading.Wait()
	})
}
