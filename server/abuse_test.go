package server_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

// Clients that behave badly cost themselves an answer and nobody else anything: other requests are answered
// meanwhile, nothing of theirs is half stored, and in the end the node holds no more than before.
func TestClientsThatBehaveBadly(t *testing.T) {
	cases := []struct {
		name string
		run  func(a abused)
	}{
		{"shut their sending side after a request", abused.halfClose},
		{"go in the middle of a body", abused.vanish},
		{"send the next request before the answer", abused.pipeline},
		{"open live streams and reset them", abused.resetStreams},
		{"ask and never read", abused.neverRead},
		{"stream records and never read receipts", abused.neverReadReceipts},
		{"reset HTTP/2 streams as fast as they can", abused.rapidReset},
		{"open HTTP/2 streams without a window", abused.closedWindow},
		{"send what is no HTTP", abused.rubbish},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			a := abused{servertest.Start(t, servertest.Options{}), t}
			produce(t, a.Node, "alive", "0")
			before := a.atRest()
			stop := a.others()
			tc.run(a)
			stop()
			a.settled(before)
			require.Zero(t, a.metric("millrace_http_panics_total"))
		})
	}
}

// abused is a node with clients that behave badly.
type abused struct {
	*servertest.Node
	t *testing.T
}

// dial connects and sends what it is given. The connection is reset at the end, unless that was done before.
func (a abused) dial(text string) *net.TCPConn {
	a.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(a.URL(), "http://"))
	require.NoError(a.t, err)
	a.t.Cleanup(func() { c.Close() })
	require.NoError(a.t, c.SetDeadline(time.Now().Add(longest)))
	_, err = io.WriteString(c, text)
	require.NoError(a.t, err)
	return c.(*net.TCPConn)
}

func reset(cs ...*net.TCPConn) {
	for _, c := range cs {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// others are clients that go on meanwhile. What is returned ends them, and fails if one waited long or was refused.
func (a abused) others() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			resp, err := client.Post(a.URL()+"/v1/topics/alive/records", "application/json", strings.NewReader("1"))
			if err != nil {
				a.t.Errorf("another client: %v", err)
				return
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				a.t.Errorf("another client: %d %s", resp.StatusCode, text)
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		client.CloseIdleConnections()
	}
}

// held is what clients hold of the node: streams, connections, memory for bodies.
func (a abused) held() [3]float64 {
	return [3]float64{
		a.metric("millrace_http_streams"), a.metric("millrace_connections_open"),
		a.metric("millrace_http_body_in_flight_bytes"),
	}
}

// atRest is what they hold when there is none but the test's own: it has one connection, and the listener has a place
// for the next one.
func (a abused) atRest() (held [3]float64) {
	a.t.Helper()
	await(a.t, "the listener waits for the next connection", func() bool {
		held = a.held()
		return held[1] >= 2
	})
	return held
}

// settled returns when the node holds no more than before.
func (a abused) settled(before [3]float64) {
	a.t.Helper()
	start := time.Now()
	for {
		now := a.held()
		if now[0] <= before[0] && now[1] <= before[1] && now[2] <= before[2] {
			return
		}
		require.Less(a.t, time.Since(start), longest, "streams, connections and bytes: %v, were %v", now, before)
	}
}

func (a abused) metric(name string) (value float64) {
	a.t.Helper()
	_, text := get(a.t, a.Node, "/metrics")
	for line := range strings.SplitSeq(text, "\n") {
		if _, err := fmt.Sscanf(line, name+" %g", &value); err == nil {
			return value
		}
	}
	require.Fail(a.t, "no metric "+name)
	return 0
}

// lines is a produce of records by lines; of the body, count bytes are announced.
func lines(topic, body string, count int) string {
	return fmt.Sprintf("POST /v1/topics/%s/records HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"+
		"Content-Length: %d\r\n\r\n%s", topic, count, body)
}

// read is a read of a topic from its start.
func read(topic, accept string) string {
	return "GET /v1/topics/" + topic + "/records?offset=earliest HTTP/1.1\r\nHost: x\r\nAccept: " + accept + "\r\n\r\n"
}

func (a abused) halfClose() {
	for range 20 {
		c := a.dial(lines("alive", "1\n2\n", 4))
		require.NoError(a.t, c.CloseWrite())
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(a.t, err)
		require.Equal(a.t, http.StatusOK, resp.StatusCode)
		reset(c)
	}
	c := a.dial(lines("alive", "1\n2\n", 5))
	require.NoError(a.t, c.CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(a.t, err)
	require.Equal(a.t, http.StatusBadRequest, resp.StatusCode)
}

func (a abused) vanish() {
	produce(a.t, a.Node, "vanished", `"whole"`)
	body := strings.Repeat("\"half\"\n", 2000)
	for i := range 20 {
		chunked := strings.Replace(lines("vanished", fmt.Sprintf("%x\r\n%s\r\n", len(body), body), 0),
			"Content-Length: 0", "Transfer-Encoding: chunked", 1)
		reset(a.dial(lines("vanished", body[:len(body)/2], len(body))), a.dial(chunked))
		if i%2 == 0 {
			a.dial(chunked).Close()
		}
	}
	a.settled([3]float64{0, 3, 1}) // the test's own connection, a place for the next, and what the others hold
	_, text := get(a.t, a.Node, "/v1/topics/vanished/records?max_records=1000")
	require.NotContains(a.t, text, "half")
}

func (a abused) pipeline() {
	const requests = 200
	var all strings.Builder
	for i := range requests {
		all.WriteString(lines("piped", fmt.Sprintf("%04d\n", i+1000), 5))
	}
	c := a.dial("")
	defer reset(c)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _, _ = io.WriteString(c, all.String()) })
	answers := bufio.NewReader(c)
	for i := range requests {
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(a.t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(a.t, err)
		require.Contains(a.t, string(text), fmt.Sprintf(`"base_offset":%d,`, i))
	}
}

func (a abused) resetStreams() {
	for range 5 {
		var open []*net.TCPConn
		for range 100 {
			open = append(open, a.dial(read("alive", "text/event-stream")))
		}
		for _, c := range open[:50] { // the others have not begun perhaps
			_, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(a.t, err)
		}
		produce(a.t, a.Node, "alive", "2")
		reset(open...)
	}
}

func (a abused) neverRead() {
	for range 20 {
		produce(a.t, a.Node, "large", `"`+strings.Repeat("x", 100_000)+`"`)
	}
	var open []*net.TCPConn
	for i := range 60 {
		form := []string{"text/event-stream", "application/json", "application/vnd.apache.kafka.recordbatch"}[i%3]
		c := a.dial("")
		require.NoError(a.t, c.SetReadBuffer(4096))
		_, err := io.WriteString(c, strings.Repeat(read("large", form), 1+i%3))
		require.NoError(a.t, err)
		open = append(open, c)
	}
	for range 20 {
		produce(a.t, a.Node, "large", `"`+strings.Repeat("y", 100_000)+`"`)
	}
	reset(open...)
}

func (a abused) neverReadReceipts() {
	_, text := get(a.t, a.Node, "/v3/clusters")
	_, id, _ := strings.Cut(text, `"cluster_id":"`)
	id, _, _ = strings.Cut(id, `"`)
	record := `{"value":{"type":"JSON","data":1}}` + "\n"
	chunk := strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", len(record), record), 1000)
	var open []*net.TCPConn
	for range 10 {
		c := a.dial("")
		require.NoError(a.t, c.SetReadBuffer(4096))
		_, err := fmt.Fprintf(c, "POST /v3/clusters/%s/topics/alive/records HTTP/1.1\r\nHost: x\r\n"+
			"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", id)
		require.NoError(a.t, err)
		require.NoError(a.t, c.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		for err == nil { // until the node takes no more
			_, err = io.WriteString(c, chunk)
		}
		open = append(open, c)
	}
	reset(open...)
}

func (a abused) rubbish() {
	for i, text := range []string{
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "\x00\x00\x00\x00\r\n\r\n", "GET\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 50_000) + "\r\n",
		"POST /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n1",
		"POST /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n1",
		"POST /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"POST /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n1\r\n0\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("rubbish", 1000),
	} {
		c := a.dial("")
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = io.WriteString(c, text)
			_ = c.CloseWrite() // so that the node does not wait for the rest of a header
		})
		answer, _ := io.ReadAll(c) // a reset, when the node does not read all of it
		wg.Wait()
		if i < 9 {
			require.Regexp(a.t, `^(HTTP/1.1 (4|501)|$)`, string(answer), "%.60q", text)
		}
		reset(c)
	}
}

// frame is an HTTP/2 frame.
func frame(kind, flags byte, stream uint32, payload string) string {
	head := []byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], stream)
	return string(head) + payload
}

// The kinds and flags of HTTP/2 frames that are used here.
const (
	frameHeaders   = 1
	frameReset     = 3
	frameSettings  = 4
	flagEndStream  = 1
	flagEndHeaders = 4
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// fields are header fields that use no table and no compression.
func fields(pairs ...string) (block string) {
	for i := 0; i < len(pairs); i += 2 {
		block += "\x00" + string(rune(len(pairs[i]))) + pairs[i] + string(rune(len(pairs[i+1]))) + pairs[i+1]
	}
	return block
}

func getFields(accept string) string {
	return fields(":method", "GET", ":path", "/v1/topics/alive/records?offset=earliest", ":scheme", "http",
		":authority", "x", "accept", accept)
}

func (a abused) rapidReset() {
	for range 3 {
		c := a.dial(preface + frame(frameSettings, 0, 0, ""))
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(io.Discard, c) })
		var err error
		for id := uint32(1); err == nil && id < 40_000; id += 2 {
			_, err = io.WriteString(c, frame(frameHeaders, flagEndStream|flagEndHeaders, id, getFields("application/json"))+
				frame(frameReset, 0, id, "\x00\x00\x00\x08"))
		}
		reset(c)
		wg.Wait()
	}
}

func (a abused) closedWindow() {
	var open []*net.TCPConn
	for range 3 {
		noWindow := "\x00\x04\x00\x00\x00\x00"
		text := preface + frame(frameSettings, 0, 0, noWindow) + frame(frameSettings, 1, 0, "")
		for i := range uint32(60) {
			accept := []string{"text/event-stream", "application/json"}[i%2]
			text += frame(frameHeaders, flagEndStream|flagEndHeaders, 2*i+1, getFields(accept))
		}
		open = append(open, a.dial(text))
	}
	produce(a.t, a.Node, "alive", "3")
	reset(open...)
}
