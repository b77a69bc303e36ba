package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"millrace"
	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// newEdge makes an edge on a test double of Kafka.
func newEdge(t *testing.T, o api.Options) *api.Edge {
	t.Helper()
	e, err := api.NewEdge(withClient(t, o))
	require.NoError(t, err)
	return e
}

// withClient adds what every edge needs.
func withClient(t *testing.T, o api.Options) api.Options {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("cluster-1"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	o.Client = client.New(cl.Broker(0), client.Options{})
	o.Pool = record.NewPool(64 << 20)
	return o
}

func serve(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// echo is a route that reads its body.
func echo(e *api.Edge) api.Mount {
	return func(r chi.Router) {
		r.Post("/v1/echo", func(w http.ResponseWriter, r *http.Request) {
			body, err := e.ReadBody(w, r, 0)
			defer body.Free()
			if err != nil {
				api.WriteProblem(w, err)
				return
			}
			_, _ = w.Write(body.Bytes)
		})
	}
}

func TestOptionsAreRequired(t *testing.T) {
	_, err := api.NewEdge(api.Options{})
	require.Error(t, err)
}

func TestErrorsByPathFamily(t *testing.T) {
	h := api.NewRouter(newEdge(t, api.Options{}), func(r chi.Router) {
		r.Get("/v1/thing", func(http.ResponseWriter, *http.Request) {})
		r.Put("/v1/thing", func(http.ResponseWriter, *http.Request) {})
	})
	for path, mediaType := range map[string]string{
		"/v1/none": "application/problem+json", "/v3/none": "application/json", "/kafka/v3/x": "application/json",
		"/topics/a/b/c": "application/vnd.kafka.v2+json", "/consumers/x": "application/vnd.kafka.v2+json",
		"/nowhere": "application/json", "/health/x": "application/problem+json",
	} {
		w := serve(h, http.MethodGet, path, "")
		require.Equal(t, http.StatusNotFound, w.Code, path)
		require.Equal(t, mediaType, w.Header().Get("Content-Type"), path)
		var body map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
		require.EqualValues(t, 404, body["error_code"])
	}
	w := serve(h, http.MethodPost, "/v1/thing", "")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, []string{"GET, HEAD, OPTIONS, PUT"}, w.Header()["Allow"])
	require.Contains(t, w.Body.String(), "METHOD_NOT_ALLOWED")
}

func TestRequestLineLimits(t *testing.T) {
	e := newEdge(t, api.Options{})
	h := api.NewRouter(e)
	path := "/health/live?"
	require.Equal(t, 200, serve(h, http.MethodGet, path+strings.Repeat("x", 64<<10-len(path)), "").Code)
	w := serve(h, http.MethodGet, path+strings.Repeat("x", 64<<10-len(path)+1), "")
	require.Equal(t, http.StatusRequestURITooLong, w.Code)
	require.Contains(t, w.Body.String(), "URI_TOO_LONG")
	require.Equal(t, 200, serve(h, http.MethodGet, path+strings.Repeat("a&", 199)+"a", "").Code)
	w = serve(h, http.MethodGet, path+strings.Repeat("a&", 200)+"a", "")
	require.Equal(t, 400, w.Code)
	require.Contains(t, w.Body.String(), "201 parameters")
}

func TestBodyLimits(t *testing.T) {
	e := newEdge(t, api.Options{Limits: api.Limits{BodyBytes: 1000, InFlightBytes: 8000}})
	h := api.NewRouter(e, echo(e))
	for _, n := range []int{0, 1, 999, 1000} {
		w := serve(h, http.MethodPost, "/v1/echo", strings.Repeat("x", n))
		require.Equal(t, 200, w.Code, "%d", n)
		require.Equal(t, n, w.Body.Len())
	}
	require.Equal(t, 413, serve(h, http.MethodPost, "/v1/echo", strings.Repeat("x", 1001)).Code)
	for n, status := range map[int]int{1000: 200, 1001: 413} {
		r := httptest.NewRequest(http.MethodPost, "/v1/echo", io.NopCloser(strings.NewReader(strings.Repeat("x", n))))
		require.EqualValues(t, -1, r.ContentLength)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, status, w.Code, "%d", n)
	}
}

// Who announces a large body and sends little of it takes little of the memory for bodies.
func TestAnnouncedBodiesTakeNoMemory(t *testing.T) {
	e := newEdge(t, api.Options{Limits: api.Limits{BodyBytes: 64 << 20, InFlightBytes: 12 << 20}})
	reading := make(chan struct{}, 8)
	server := httptest.NewServer(api.NewRouter(e, echo(e), func(r chi.Router) {
		r.Post("/v1/slow", func(w http.ResponseWriter, r *http.Request) {
			r.Body = tellingBody{r.Body, reading}
			body, _ := e.ReadBody(w, r, 0) // it never comes whole
			body.Free()
		})
	}))
	defer server.Close()
	for range cap(reading) {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "POST /v1/slow HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nx", 16<<20)
		require.NoError(t, err)
	}
	for range cap(reading) {
		<-reading
	}
	resp, err := http.Post(server.URL+"/v1/echo", "text/plain", bytes.NewReader(make([]byte, 3<<20)))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Len(t, body, 3<<20)
	http.DefaultClient.CloseIdleConnections()
}

// tellingBody tells when it is read.
type tellingBody struct {
	io.ReadCloser
	read chan<- struct{}
}

func (b tellingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case b.read <- struct{}{}:
	default:
	}
	return n, err
}

func TestPanicEndsOneRequest(t *testing.T) {
	var log bytes.Buffer
	e := newEdge(t, api.Options{Logger: textLogger(&log)})
	h := api.NewRouter(e, func(r chi.Router) {
		r.Get("/v1/panic", func(http.ResponseWriter, *http.Request) { panic("oh no") })
		r.Get("/v1/late", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("half"))
			panic("too late")
		})
	})
	w := serve(h, http.MethodGet, "/v1/panic", "")
	require.Equal(t, 500, w.Code)
	var p struct{ Detail, Outcome string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, "failed", p.Outcome, "there is nothing that a read can have done")
	id := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(p.Detail)
	require.NotEmpty(t, id)
	require.Contains(t, log.String(), id)
	require.Contains(t, log.String(), "oh no")
	require.NotContains(t, p.Detail, "oh no")
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { serve(h, http.MethodGet, "/v1/late", "") },
		"an answer that has begun can only be cut")
	metrics := serve(h, http.MethodGet, "/metrics", "").Body.String()
	require.Contains(t, metrics, "millrace_http_panics_total 2")
}

func TestStreamsAreBounded(t *testing.T) {
	e := newEdge(t, api.Options{Limits: api.Limits{Streams: 2}})
	first, err := e.OpenStream()
	require.NoError(t, err)
	_, err = e.OpenStream()
	require.NoError(t, err)
	_, err = e.OpenStream()
	require.Equal(t, api.Overloaded, api.FromError(err).Fault)
	first()
	_, err = e.OpenStream()
	require.NoError(t, err)
}

func TestOtherOriginsMayNotWrite(t *testing.T) {
	e := newEdge(t, api.Options{})
	h := api.NewRouter(e, echo(e))
	require.Equal(t, 403, serve(h, http.MethodPost, "/v1/echo", "x", "Sec-Fetch-Site", "cross-site").Code)
	require.Equal(t, 403, serve(h, http.MethodPost, "/v1/echo", "x", "Origin", "https://evil.example").Code)
	require.Equal(t, 200, serve(h, http.MethodPost, "/v1/echo", "x", "Sec-Fetch-Site", "same-origin").Code)
	require.Equal(t, 200, serve(h, http.MethodPost, "/v1/echo", "x").Code)
	require.Equal(t, 200, serve(h, http.MethodGet, "/health/live", "", "Sec-Fetch-Site", "cross-site").Code)
}

func TestHealth(t *testing.T) {
	var notReady error
	h := api.NewRouter(newEdge(t, api.Options{Ready: func() error { return notReady }}))
	require.JSONEq(t, `{"status":"live"}`, serve(h, http.MethodGet, "/health/live", "").Body.String())
	require.JSONEq(t, `{"status":"ready"}`, serve(h, http.MethodGet, "/health/ready", "").Body.String())
	notReady = errors.New("the metadata is not caught up")
	w := serve(h, http.MethodGet, "/health/ready", "")
	require.Equal(t, 503, w.Code)
	require.JSONEq(t, `{"status":"not ready","reason":"the metadata is not caught up"}`, w.Body.String())
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, 200, serve(h, http.MethodHead, "/health/live", "").Code)
}

func TestRoot(t *testing.T) {
	h := api.NewRouter(newEdge(t, api.Options{Version: "1.2.3", Commit: "abc"}))
	w := serve(h, http.MethodGet, "/", "")
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.JSONEq(t, `{"version":"1.2.3","commit":"abc","kafka_cluster_id":"cluster-1"}`, w.Body.String())
	w = serve(h, http.MethodGet, "/", "", "Accept", "application/vnd.schemaregistry.v1+json")
	require.Equal(t, "application/vnd.schemaregistry.v1+json", w.Header().Get("Content-Type"))
	w = serve(h, http.MethodGet, "/", "", "Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	require.Contains(t, w.Body.String(), "1.2.3")
	require.Contains(t, w.Body.String(), "http://example.com/v1/topics")
	checkPolicy(t, w)
}

// checkPolicy checks that the page's own style and script are what the policy allows, and nothing else is.
func checkPolicy(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	page := w.Body.String()
	inline := regexp.MustCompile(`(?s)<(?:style|script)>(.*?)</(?:style|script)>`)
	for _, m := range inline.FindAllStringSubmatch(page, -1) {
		sum := sha256.Sum256([]byte(m[1]))
		require.Contains(t, policy, base64.StdEncoding.EncodeToString(sum[:]))
	}
	require.NotRegexp(t, `(?i)\ssrc=|@import|<link|\sstyle=|\son[a-z]+=`, page)
}

func TestDocument(t *testing.T) {
	h := api.NewRouter(newEdge(t, api.Options{Spec: millrace.OpenAPI}))
	w := serve(h, http.MethodGet, "/openapi.yaml", "")
	require.Equal(t, millrace.OpenAPI, w.Body.Bytes())
	w = serve(h, http.MethodGet, "/openapi.json", "")
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	var doc struct {
		OpenAPI string                     `json:"openapi"`
		Paths   map[string]json.RawMessage `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc))
	require.Equal(t, "3.0.3", doc.OpenAPI)
	require.Contains(t, doc.Paths, "/v1/topics/{topic}/records")
	native, restv3 := strings.Index(w.Body.String(), `"/v1/topics"`), strings.Index(w.Body.String(), `"/v3/clusters"`)
	require.Less(t, native, restv3, "the order stays")

	w = serve(h, http.MethodGet, "/docs", "")
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	checkPolicy(t, w)
	page := w.Body.String()
	for _, id := range regexp.MustCompile(`operationId: (\w+)`).FindAllStringSubmatch(string(millrace.OpenAPI), -1) {
		require.Contains(t, page, `<article id="`+id[1]+`">`)
	}
	require.NotContains(t, page, "ZgotmplZ")
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		require.Contains(t, page, `id="`+link[1]+`"`)
	}
	none := api.NewRouter(newEdge(t, api.Options{}))
	for _, path := range []string{"/docs", "/openapi.yaml", "/openapi.json"} {
		require.Equal(t, 404, serve(none, http.MethodGet, path, "").Code)
	}
}

func TestMetrics(t *testing.T) {
	e := newEdge(t, api.Options{})
	h := api.NewRouter(e, echo(e))
	serve(h, http.MethodGet, "/health/live?"+strings.Repeat("x", 70_000), "")
	serve(h, http.MethodGet, "/health/live?"+strings.Repeat("&", 300), "")
	serve(h, http.MethodPost, "/v1/echo", strings.Repeat("x", 17<<20))
	serve(h, http.MethodGet, "/v1/none", "")
	body := serve(h, http.MethodGet, "/metrics", "").Body.String()
	require.Contains(t, body, `millrace_http_requests_total{api="v1",status="4xx"} 2`)
	require.Contains(t, body, `millrace_http_request_duration_seconds_count{api="v1"} 2`)
	for _, limit := range []string{"uri_bytes", "query_parameters", "body_bytes"} {
		require.Contains(t, body, `millrace_http_refused_total{limit="`+limit+`"} 1`)
	}
	require.Contains(t, body, "millrace_http_body_in_flight_bytes 0")
}

func TestBaseURL(t *testing.T) {
	request := func(remote string, headers ...string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "http://host:1234/x", nil)
		r.RemoteAddr = remote
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		return r
	}
	forwarded := []string{"X-Forwarded-Proto", "https, http", "X-Forwarded-Host", "public.example"}
	plain := newEdge(t, api.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	require.Equal(t, "http://host:1234", plain.BaseURL(request("192.0.2.1:5")))
	require.Equal(t, "http://host:1234", plain.BaseURL(request("192.0.2.1:5", forwarded...)), "not a trusted peer")
	require.Equal(t, "https://public.example", plain.BaseURL(request("10.1.2.3:5", forwarded...)))
	require.Equal(t, "https://public.example", plain.BaseURL(request("[::ffff:10.1.2.3]:5", forwarded...)))
	old := request("192.0.2.1:5")
	old.Host = ""
	local := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8082})
	require.Equal(t, "http://127.0.0.1:8082", plain.BaseURL(old.WithContext(local)))
	advertised := newEdge(t, api.Options{AdvertisedURLs: []string{"https://a:1", "http://b:2/"}})
	require.Equal(t, "http://b:2", advertised.BaseURL(request("192.0.2.1:5")))
}

func TestNegotiate(t *testing.T) {
	offers := []string{"application/json", "application/x-ndjson", "text/event-stream"}
	for accept, want := range map[string]string{
		"": "application/json", "*/*": "application/json", "text/event-stream": "text/event-stream",
		"application/*": "application/json", "application/*;q=0.5, text/*": "text/event-stream",
		"application/json;q=0, */*": "application/x-ndjson", "image/png": "", "text/html, */*;q=0.1": "application/json",
		"application/json;q=0.2,application/x-ndjson;q=0.3": "application/x-ndjson",
		"APPLICATION/JSON": "application/json", "application/json; q=2": "", ",,": "",
		" text/event-stream ; q=1.0 ": "text/event-stream",
	} {
		require.Equal(t, want, api.Negotiate(http.Header{"Accept": {accept}}, offers...), "%q", accept)
	}
	require.Equal(t, "application/json", api.Negotiate(http.Header{}, offers...))
	several := http.Header{"Accept": {"image/png", "application/x-ndjson"}}
	require.Equal(t, "application/x-ndjson", api.Negotiate(several, offers...))
}

func TestMediaType(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "text/plain": "text/plain", "Text/PLAIN; charset=x": "text/plain", " a/b ;c": "a/b", ";": "",
	} {
		require.Equal(t, want, api.MediaType(in))
	}
}

func TestFromError(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want *api.Fault
	}{
		"refusal":  {fmt.Errorf("outer: %w", api.Refuse(api.NotFound, "x")), api.NotFound},
		"noAnswer": {fmt.Errorf("produce: %w: %w", client.ErrNoAnswer, io.EOF), api.NoAnswer},
		"deadline": {context.DeadlineExceeded, api.NoAnswer},
		"large":    {&http.MaxBytesError{Limit: 4}, api.BodyTooLarge},
		"other":    {errors.New("bug"), api.Internal},
	} {
		require.Equal(t, c.want, api.FromError(c.err).Fault, name)
	}
}

// A shortcut serves what the router would have served there, and nothing else.
func TestShortcut(t *testing.T) {
	e := newEdge(t, api.Options{})
	e.Shortcut(http.MethodPost, "/v1/things/", "/parts", func(w http.ResponseWriter, _ *http.Request, thing string) {
		_, _ = w.Write([]byte("short " + thing))
	})
	h := api.NewRouter(e, func(r chi.Router) {
		r.Post("/v1/things/{thing}/parts", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("long " + api.PathParam(r, "thing")))
		})
	})
	for path, want := range map[string]string{
		"/v1/things/a/parts": "short a", "/v1/things/a.b/parts?x=1": "short a.b", "/v1/things/a%2Fb/parts": "long a/b",
		"/v1/things/%2e%2e/parts": "long ..",
	} {
		w := serve(h, http.MethodPost, path, "")
		require.Equal(t, 200, w.Code, path)
		require.Equal(t, want, w.Body.String(), path)
	}
	require.Equal(t, "long ", serve(h, http.MethodPost, "/v1/things//parts", "").Body.String())
	for _, path := range []string{"/v1/things/parts", "/v1/things/a/b/parts", "/v1/things/a/parts/"} {
		require.Equal(t, 404, serve(h, http.MethodPost, path, "").Code, path)
	}
	require.Equal(t, 405, serve(h, http.MethodPut, "/v1/things/a/parts", "").Code)
}
