package server_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/server"
	"millrace/server/servertest"
)

// exchange sends a request with headers, given by name and value in turn.
func exchange(t *testing.T, n *servertest.Node, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, n.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := n.Client.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		require.NoError(t, err)
		return resp, line
	}
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// A dashboard of an origin that the node names produces and reads a live stream, as its browser does it: it asks
// before it writes, and looks whether it may read.
func TestDashboardOfAnotherOrigin(t *testing.T) {
	const dash, records = "https://dash.example", "/v1/topics/t/records"
	n := servertest.Start(t, servertest.Options{Change: func(c *server.Config) { c.Origins = []string{dash} }})
	resp, _ := exchange(t, n, http.MethodOptions, records, "", "Origin", dash, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "content-type")
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	require.Equal(t, dash, resp.Header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, resp.Header.Get("Access-Control-Allow-Methods"), "POST")
	require.Equal(t, "content-type", resp.Header.Get("Access-Control-Allow-Headers"))
	for _, form := range []string{"application/json", "text/event-stream", "application/x-ndjson"} {
		resp, text := exchange(t, n, http.MethodPost, records, `{"a":1}`, "Origin", dash, "Sec-Fetch-Site", "cross-site",
			"Content-Type", "application/json")
		require.Equal(t, http.StatusOK, resp.StatusCode, text)
		require.Equal(t, dash, resp.Header.Get("Access-Control-Allow-Origin"))
		resp, text = exchange(t, n, http.MethodGet, records+"?offset=earliest", "", "Origin", dash,
			"Sec-Fetch-Site", "cross-site", "Accept", form)
		require.Equal(t, http.StatusOK, resp.StatusCode, text)
		require.Equal(t, dash, resp.Header.Get("Access-Control-Allow-Origin"), form)
		require.ElementsMatch(t, []string{"Accept", "Origin"}, resp.Header.Values("Vary"), form)
	}
	resp, _ = exchange(t, n, http.MethodPost, records, "1", "Origin", "https://other.example",
		"Content-Type", "application/json")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))

	off := servertest.Start(t, servertest.Options{})
	resp, _ = exchange(t, off, http.MethodPost, records, "1", "Origin", dash, "Content-Type", "application/json")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	resp, _ = exchange(t, off, http.MethodGet, "/health/live", "", "Origin", dash)
	require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
}

// Links in answers begin with what the node is told to advertise, or what a trusted proxy says.
func TestAdvertisedAddress(t *testing.T) {
	self := func(n *servertest.Node, headers ...string) string {
		_, text := exchange(t, n, http.MethodGet, "/v3/clusters", "", headers...)
		var list struct{ Metadata struct{ Self string } }
		require.NoError(t, json.Unmarshal([]byte(text), &list), text)
		return list.Metadata.Self
	}
	forwarded := []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "public.example"}
	plain := servertest.Start(t, servertest.Options{})
	require.Equal(t, plain.URL()+"/v3/clusters", self(plain, forwarded...))
	n := servertest.Start(t, servertest.Options{Change: func(c *server.Config) {
		c.Broker = map[string]string{"advertised.listeners": "http://node1.example:8082"}
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}})
	require.Equal(t, "http://node1.example:8082/v3/clusters", self(n))
	require.Equal(t, "https://public.example/v3/clusters", self(n, forwarded...))
	_, text := exchange(t, n, http.MethodGet, "/v3/clusters", "")
	var clusters struct {
		Data []struct {
			ID string `json:"cluster_id"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &clusters))
	_, text = exchange(t, n, http.MethodGet, "/v3/clusters/"+clusters.Data[0].ID+"/brokers", "")
	require.Contains(t, text, `"host":"node1.example"`)
	require.Contains(t, text, `"port":8082`)
}

// The limits of a config are those of the node: at each of them a request passes, one more is refused.
func TestLimitsOfTheConfig(t *testing.T) {
	l := api.Limits{
		URIBytes: 300, QueryParameters: 3, BodyBytes: 1000, ExpandedBytes: 5000, ExpansionFree: 2000, ExpansionRatio: 10,
		Records: 5, Streams: 1,
	}
	n := servertest.Start(t, servertest.Options{Change: func(c *server.Config) { c.Limits = l }})
	const records = "/v1/topics/t/records"
	status := func(method, path, body string, headers ...string) int {
		resp, _ := exchange(t, n, method, path, body, headers...)
		return resp.StatusCode
	}
	plain := []string{"Content-Type", "text/plain"}
	lines := []string{"Content-Type", "application/x-ndjson"}
	squeezed := func(n int) string {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := w.Write(make([]byte, n))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return out.String()
	}
	gzipped := []string{"Content-Type", "application/octet-stream", "Content-Encoding", "gzip"}
	const path = "/health/live?"
	for _, c := range []struct {
		name     string
		at, over int
		send     func(n int) int
	}{
		{"URI", l.URIBytes, 414, func(n int) int { return status("GET", path+strings.Repeat("x", n-len(path)), "") }},
		{"query", l.QueryParameters, 400, func(n int) int { return status("GET", path+strings.Repeat("a&", n-1), "") }},
		{"body", l.BodyBytes, 413, func(n int) int { return status("POST", records, strings.Repeat("x", n), plain...) }},
		{"records", l.Records, 413, func(n int) int { return status("POST", records, strings.Repeat("1\n", n), lines...) }},
		{"expansion", l.ExpansionFree, 413, func(n int) int { return status("POST", records, squeezed(n), gzipped...) }},
	} {
		require.Equal(t, 200, c.send(c.at), "%s at its limit", c.name)
		require.Equal(t, c.over, c.send(c.at+1), "%s over its limit", c.name)
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.URL()+records, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/event-stream")
	live, err := n.Client.Do(req)
	require.NoError(t, err)
	defer func() { _ = live.Body.Close() }()
	require.Equal(t, 200, live.StatusCode)
	resp, _ := exchange(t, n, http.MethodGet, records+"?offset=latest&wait=1s", "")
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
}

// A topic of very many partitions is paged through by next, and followed by the id of its events.
func TestPagesOfManyPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a topic of thousands of partitions")
	}
	const partitions = 1000
	n := servertest.Start(t, servertest.Options{Uncoded: true})
	wide := `{"name":"wide","partitions":` + strconv.Itoa(partitions) + `}`
	resp, text := exchange(t, n, http.MethodPost, "/v1/topics", wide, "Content-Type", "application/json")
	require.Equal(t, http.StatusCreated, resp.StatusCode, text)
	for _, p := range []int{7, partitions - 1} {
		_, text = exchange(t, n, http.MethodPost, "/v1/topics/wide/records?partition="+strconv.Itoa(p), "1\n2\n",
			"Content-Type", "application/x-ndjson")
		require.Contains(t, text, "base_offset")
	}
	next, seen := "", 0
	for seen < 4 {
		path := "/v1/topics/wide/records?max_records=1"
		if next != "" {
			path += "&from=" + next
		}
		resp, text = exchange(t, n, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, text)
		var page struct {
			Records []json.RawMessage
			Next    string
		}
		require.NoError(t, json.Unmarshal([]byte(text), &page))
		require.Len(t, page.Records, 1)
		next, seen = page.Next, seen+1
	}
	resp, text = exchange(t, n, http.MethodGet, "/v1/topics/wide/records", "", "Accept", "text/event-stream",
		"Last-Event-ID", next)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	far := strings.Repeat("9223372036854775806,", partitions-1) + "9223372036854775806"
	resp, text = exchange(t, n, http.MethodGet, "/v1/topics/wide/records?from="+far, "")
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, resp.StatusCode, "it is not understood: %s", text)
	resp, _ = exchange(t, n, http.MethodGet, "/v1/topics/wide/records", "", "Last-Event-ID", far)
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, resp.StatusCode)
}

// Whatever reaches the node's own code is refused in JSON, however odd it is.
func TestOddRequestsAreRefusedInJSON(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	for _, line := range []string{
		"GET //", "GET /v1//topics", "GET /v1/topics/", "GET /..", "GET /v1/topics/%2e%2e", "GET /v1/topics/%00",
		"GET /v1/topics/a%2Fb", "GET /v1/topics/%ff", "GET /%7Bx%7D", "PROPFIND /v1/topics", "TRACE /v1/topics",
		"get /v1/topics", "PUT /", "GET /v1/topics?%zz", "GET /v1/topics/t/records?wait=%zz", "GET /topics/%2e%2e",
		"GET /v3/clusters/%2e%2e/topics", "POST /topics/%00", "POST /v1/topics", "GET /index.html", "CONNECT /v1/topics",
		"DELETE /health/live", "GET /v1/topics;x", "GET http://elsewhere.example/nothing",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.URL(), "http://"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", line)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, line)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err, line)
		require.NoError(t, conn.Close())
		require.GreaterOrEqual(t, resp.StatusCode, 400, line)
		require.Less(t, resp.StatusCode, 500, line)
		require.Contains(t, resp.Header.Get("Content-Type"), "json", line)
		require.True(t, json.Valid(body), "%s: %s", line, body)
	}
}

// Every JSON answer of /v1, and every problem, ends with a line end, so that a shell's prompt begins a line of its own.
func TestJSONEndsWithALineEnd(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	for _, c := range [][3]string{
		{"POST", "/v1/topics", `{"name":"t"}`}, {"POST", "/v1/topics/t/records", "1"}, {"GET", "/v1/topics/t/records", ""},
		{"GET", "/v1/topics/t/partitions/0/records", ""}, {"GET", "/v1/topics", ""}, {"GET", "/v1/topics/t", ""},
		{"PATCH", "/v1/topics/t", `{"partitions":2}`}, {"GET", "/v1/errors?name=NOT_FOUND", ""}, {"GET", "/", ""},
		{"POST", "/v1/topics/t/records/delete", `{"partitions":[{"partition":0}]}`}, {"GET", "/health/live", ""},
		{"GET", "/openapi.json", ""}, {"GET", "/v1/none", ""}, {"PUT", "/v1/topics", ""}, {"POST", "/v1/topics", "x"},
		{"POST", "/v1/topics/t/records?acks=9", "1"}, {"GET", "/v1/topics/t/records?offset=x", ""},
	} {
		resp, text := exchange(t, n, c[0], c[1], c[2], "Content-Type", "application/json")
		require.Contains(t, resp.Header.Get("Content-Type"), "json", "%v", c)
		require.True(t, strings.HasSuffix(text, "}\n"), "%v: %q", c, text)
	}
}
