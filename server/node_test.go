package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"millrace/server"
	"millrace/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends a body and returns the status and the answer.
func post(t *testing.T, n *servertest.Node, path, ctype, body string) (int, string) {
	t.Helper()
	resp, err := n.Client.Post(n.URL()+path, ctype, strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func get(t *testing.T, n *servertest.Node, path string) (int, string) {
	t.Helper()
	resp, err := n.Client.Get(n.URL() + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func produce(t *testing.T, n *servertest.Node, topic, value string) {
	t.Helper()
	status, text := post(t, n, "/v1/topics/"+topic+"/records", "application/json", value)
	require.Equal(t, http.StatusOK, status, text)
}

// A node is ready when Open returns, and what was written before a stop is there after the next start.
func TestNodeKeepsRecordsOverRestarts(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	status, text := get(t, n, "/health/ready")
	require.Equal(t, http.StatusOK, status, text)
	for i := range 3 {
		produce(t, n, "orders", fmt.Sprint(i))
		n.Restart()
		status, text := get(t, n, "/v1/topics/orders/records?offset=earliest")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, i+1, strings.Count(text, `"offset":`), text)
	}
	_, root := get(t, n, "/")
	n.Restart()
	_, again := get(t, n, "/")
	require.Equal(t, root, again, "the cluster's id changed")
}

// A node never opens another node's data.
func TestNodeRefusesAnotherNodesData(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	cfg := server.DefaultConfig()
	cfg.Listen, cfg.DataDir, cfg.NodeID = "127.0.0.1:0", n.Dir(), 2
	_, err := server.Open(cfg)
	require.ErrorContains(t, err, "lock", "two nodes at once")
	n.Stop()
	_, err = server.Open(cfg)
	require.ErrorContains(t, err, "belongs to node 1")
}

func TestConfigIsCheckedWhole(t *testing.T) {
	cfg := server.DefaultConfig()
	require.NoError(t, cfg.Validate())
	cfg.NodeID, cfg.DataDir, cfg.Listen = 0, "", "0.0.0.0:1"
	cfg.HTTP = server.HTTPConfig{}
	cfg.Broker = map[string]string{"log.sync": "sometimes", "advertised.listeners": "node1:8082"}
	cfg.Origins = []string{"*"}
	err := cfg.Validate()
	for _, want := range []string{
		"node-id", "data-dir", "--insecure", "max-connections", "timeouts", "header bytes", "log.sync", "cors-origins",
		"advertised.listeners",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = server.Open(cfg)
	require.Error(t, err)
}

// At the limit further connections wait, and are served when one closes.
func TestConnectionsOverTheLimitWait(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Change: func(c *server.Config) { c.HTTP.MaxConnections = 2 }})
	addr := strings.TrimPrefix(n.URL(), "http://")
	ask := func(c net.Conn) error {
		fmt.Fprintf(c, "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	var open []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, ask(c))
		open = append(open, c)
	}
	third, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer third.Close()
	require.NoError(t, third.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	require.ErrorContains(t, ask(third), "timeout")
	require.NoError(t, third.SetReadDeadline(time.Now().Add(longest)))
	require.NoError(t, open[0].Close())
	resp, err := http.ReadResponse(bufio.NewReader(third), nil)
	require.NoError(t, err)
	resp.Body.Close()
}

// A connection that a client has opened ahead of need does not hold up the end of a node.
func TestSilentConnectionsDoNotDelayTheEnd(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		l.start(1)
		l.ready(1)
		silent, err := l.net.Boot("silent").Dial(context.Background(), "tcp", "n1:8082")
		require.NoError(t, err)
		defer silent.Close()
		status, text := l.do(1, http.MethodGet, "/health/live", "") // the other one has been accepted by now
		require.Equal(t, http.StatusOK, status, text)
		start := time.Now()
		l.stop(1)
		require.Less(t, time.Since(start), 3*time.Second)
	})
}

// HTTP/2 in the clear works for clients that know it beforehand.
func TestHTTP2InTheClear(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(n.URL() + "/health/live")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 2, resp.ProtoMajor)
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// What net/http does with malformed requests is part of what we promise, so an upgrade must not change it unseen.
func TestMalformedRequests(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	const path = "POST /v1/topics/t/records HTTP/1.1\r\n"
	for _, c := range []struct {
		name, request string
		want          int
	}{
		{"two lengths", path + "Host: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12", 400},
		{"negative length", path + "Host: x\r\nContent-Length: -1\r\n\r\n", 400},
		{"signed length", path + "Host: x\r\nContent-Length: +4\r\n\r\n1234", 400},
		{"two hosts", path + "Host: x\r\nHost: y\r\n\r\n", 400},
		{"no host", path + "\r\n", 400},
		{"NUL in a header", path + "Host: x\r\nA: b\x00c\r\n\r\n", 400},
		{"space before a colon", path + "Host: x\r\nA : b\r\n\r\n", 400},
		{"unknown transfer encoding", path + "Host: x\r\nTransfer-Encoding: rot13\r\n\r\n", 501},
		{"header block too large", path + "Host: x\r\nA: " + strings.Repeat("a", 180<<10) + "\r\n\r\n", 431},
		{"no HTTP", "this is nothing like HTTP at all\r\n\r\n", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(n.URL(), "http://"))
			require.NoError(t, err)
			defer conn.Close()
			_, _ = conn.Write([]byte(c.request)) // the node need not read all of it before it answers and hangs up
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, c.want, resp.StatusCode)
		})
	}
	status, text := get(t, n, "/v1/topics")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, text, `"name":"t"`, "a malformed request made a topic")
}

// A client that never finishes its header is cut.
func TestSilentClientIsCut(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Change: func(c *server.Config) {
		c.HTTP.ReadHeaderTimeout = 20 * time.Millisecond
	}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.URL(), "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost:")) // it may have been cut before
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(longest)))
	_, err = io.ReadAll(conn)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded) // a reset is an end as well
}

// A stop ends long polls at once and answers requests in flight.
func TestStopEndsLongPolls(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	produce(t, n, "t", "1")
	polled := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		req, err := http.NewRequest(http.MethodGet, n.URL()+"/v1/topics/t/records?offset=latest&wait=60s", nil)
		if err != nil {
			polled <- err
			return
		}
		close(begun)
		resp, err := n.Client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		polled <- err
	}()
	<-begun
	await(t, "the poll waits", func() bool {
		_, text := get(t, n, "/metrics")
		return strings.Contains(text, "millrace_http_streams 1")
	})
	start := time.Now()
	n.Stop()
	require.Less(t, time.Since(start), 40*time.Second, "sooner than the poll ends by itself")
	require.NoError(t, <-polled)
}

// The node's own figures are on /metrics, with those of the process.
func TestMetrics(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	produce(t, n, "t", "1")
	status, text := get(t, n, "/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, want := range []string{
		"millrace_topics 1", "millrace_partitions 1", "millrace_connections_open",
		"millrace_storage_appended_batches_total 1",
		"millrace_storage_offline_logs 0", "millrace_storage_sync_duration_seconds_count", "go_goroutines",
		"process_resident_memory_bytes",
	} {
		require.Contains(t, text, want)
	}
}

// Clients never take the last files of the process, which logs need.
func TestConnectionsLeaveFilesForLogs(t *testing.T) {
	for _, c := range []struct{ wanted, files, want int }{
		{20_000, 1 << 20, 20_000}, {20_000, 20_000, 15_000}, {20_000, 4096, 3072}, {20_000, 1024, 512}, {20_000, 80, 40},
		{10, 1024, 10}, {10, 1, 1},
	} {
		require.Equal(t, c.want, server.ConnectionLimit(c.wanted, c.files))
	}
}
