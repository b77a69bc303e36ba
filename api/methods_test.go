package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millrace/api"
)

// listen serves h on a port and gives a client that speaks the given version of HTTP.
func listen(t *testing.T, h http.Handler, version int) (*http.Client, string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	var p http.Protocols
	p.SetHTTP1(version == 1)
	p.SetUnencryptedHTTP2(version == 2)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}, s.URL
}

func TestHeadIsGetWithoutBody(t *testing.T) {
	h := api.NewRouter(newEdge(t, api.Options{}), func(r chi.Router) {
		r.Get("/v1/thing", func(w http.ResponseWriter, r *http.Request) {
			if api.IsHead(r) {
				w.Header().Set("Asked", "head")
			}
			api.WriteJSON(w, 200, "thing")
		})
		r.Post("/v1/act", func(http.ResponseWriter, *http.Request) {})
	})
	for version := 1; version <= 2; version++ {
		c, url := listen(t, h, version)
		resp, err := c.Head(url + "/v1/thing")
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Empty(t, body)
		require.Equal(t, version, resp.ProtoMajor)
		require.Equal(t, 200, resp.StatusCode)
		require.EqualValues(t, len("\"thing\"\n"), resp.ContentLength)
		require.Equal(t, "head", resp.Header.Get("Asked"))
		resp, err = c.Get(url + "/v1/thing")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Empty(t, resp.Header.Get("Asked"))
		for path, status := range map[string]int{"/v1/act": 405, "/v1/none": 404, "/health/live": 200, "/metrics": 200} {
			resp, err := c.Head(url + path)
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode, path)
		}
	}
	w := serve(h, http.MethodHead, "/v1/act", "")
	require.Equal(t, "OPTIONS, POST", w.Header().Get("Allow"))
	require.Contains(t, w.Body.String(), "HEAD is not a method of /v1/act, which has OPTIONS, POST.")
}

func TestOptionsNameTheMethods(t *testing.T) {
	h := api.NewRouter(newEdge(t, api.Options{}), func(r chi.Router) {
		r.Get("/v1/things/{thing}", func(http.ResponseWriter, *http.Request) {})
		r.Delete("/v1/things/{thing}", func(http.ResponseWriter, *http.Request) {})
	})
	w := serve(h, http.MethodOptions, "/v1/things/a%2Fb", "")
	require.Equal(t, 204, w.Code)
	require.Equal(t, "DELETE, GET, HEAD, OPTIONS", w.Header().Get("Allow"))
	require.Empty(t, w.Body.String())
	require.Equal(t, 404, serve(h, http.MethodOptions, "/v1/none", "").Code)
}

func TestOriginsAreAllowedByName(t *testing.T) {
	const dash = "https://dash.example"
	e := newEdge(t, api.Options{Origins: []string{"http://localhost:3000", dash}})
	h := api.NewRouter(e, echo(e))
	allowed := func(w *httptest.ResponseRecorder) string { return w.Header().Get("Access-Control-Allow-Origin") }

	w := serve(h, http.MethodPost, "/v1/echo", "x", "Origin", dash, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, 200, w.Code)
	require.Equal(t, "x", w.Body.String())
	require.Equal(t, dash, allowed(w))
	require.Contains(t, w.Header().Get("Access-Control-Expose-Headers"), "Next")
	require.Empty(t, w.Header().Get("Access-Control-Allow-Credentials"))
	require.Equal(t, []string{"Origin"}, w.Header().Values("Vary"))

	w = serve(h, http.MethodGet, "/v1/none", "", "Origin", "http://localhost:3000")
	require.Equal(t, 404, w.Code)
	require.Equal(t, "http://localhost:3000", allowed(w), "a page reads refusals too")

	w = serve(h, http.MethodOptions, "/v1/echo", "", "Origin", dash, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "content-type,producer-id,record-header-source")
	require.Equal(t, 204, w.Code)
	require.Equal(t, dash, allowed(w))
	require.Equal(t, "OPTIONS, POST", w.Header().Get("Access-Control-Allow-Methods"))
	require.Equal(t, "content-type,producer-id,record-header-source", w.Header().Get("Access-Control-Allow-Headers"))
	require.Equal(t, "600", w.Header().Get("Access-Control-Max-Age"))
	require.Equal(t, []string{"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"},
		w.Header().Values("Vary"))

	for _, other := range []string{"https://dash.example.evil", "http://dash.example", "https://dash.example:8443", "null"} {
		require.Equal(t, 403, serve(h, http.MethodPost, "/v1/echo", "x", "Origin", other).Code, other)
		w = serve(h, http.MethodGet, "/health/live", "", "Origin", other)
		require.Empty(t, allowed(w), other)
		require.Equal(t, "Origin", w.Header().Get("Vary"), other)
		w = serve(h, http.MethodOptions, "/v1/echo", "", "Origin", other, "Access-Control-Request-Method", "POST")
		require.Empty(t, allowed(w), other)
		require.Empty(t, w.Header().Get("Access-Control-Allow-Methods"), other)
	}

	plain := api.NewRouter(newEdge(t, api.Options{}))
	w = serve(plain, http.MethodGet, "/health/live", "", "Origin", dash)
	require.Empty(t, allowed(w), "nothing is allowed by default")
	require.Empty(t, w.Header().Values("Vary"))
}

func TestOriginsAreExact(t *testing.T) {
	for _, good := range []string{"https://a.example", "http://localhost:3000", "http://[::1]:8080"} {
		require.NoError(t, api.CheckOrigin(good), good)
	}
	for _, bad := range []string{
		"*", "", "a.example", "https://", "ftp://a.example", "https://a.example/", "https://a.example/x", "https://A.example",
		"https://u@a.example", "https://a.example?x", "https://*.example:", "https://a.example:443", "http://a:80", "null",
	} {
		require.Error(t, api.CheckOrigin(bad), bad)
	}
	_, err := api.NewEdge(withClient(t, api.Options{Origins: []string{"*"}}))
	require.ErrorContains(t, err, "name the origins")
}

// A refusal whose body is not read reaches the client, whatever the version of HTTP, and on HTTP/2 the connection goes
// on to serve others.
func TestLargeBodiesAreRefusedByAnAnswer(t *testing.T) {
	e := newEdge(t, api.Options{Limits: api.Limits{BodyBytes: 1 << 20}})
	h := api.NewRouter(e, echo(e))
	for version := 1; version <= 2; version++ {
		c, url := listen(t, h, version)
		for _, known := range []bool{true, false} {
			if version == 1 && !known {
				continue // the end of the connection may overtake the answer there
			}
			missed := 0
			for range 5 {
				var body io.Reader = bytes.NewReader(make([]byte, 8<<20))
				if !known {
					body = io.NopCloser(body)
				}
				resp, err := c.Post(url+"/v1/echo", "text/plain", body)
				if err != nil && version == 1 && missed == 0 {
					missed++ // a client that stood still for longer than the server waits for it
					continue
				}
				require.NoError(t, err, "HTTP/%d, length known: %v", version, known)
				requireTooLarge(t, resp)
				require.Equal(t, version == 1, resp.Close)
			}
		}
		resp, err := c.Post(url+"/v1/echo", "text/plain", strings.NewReader("after"))
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "after", string(text))
	}
}

func requireTooLarge(t *testing.T, resp *http.Response) {
	t.Helper()
	var p struct{ Type string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&p))
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	require.Equal(t, "/v1/errors#BODY_TOO_LARGE", p.Type)
}

// multiplexedConn speaks HTTP/2 frame by frame.
type multiplexedConn struct {
	*http2.Framer
	conn net.Conn
}

func dialMultiplexed(t *testing.T, url string) *multiplexedConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	require.NoError(t, f.WriteSettings())
	return &multiplexedConn{f, conn}
}

// post begins a request whose body is announced with a size; less than 0 announces none.
func (c *multiplexedConn) post(t *testing.T, stream uint32, path string, size int) {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"}, {":path", path}} {
		require.NoError(t, e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	if size >= 0 {
		require.NoError(t, e.WriteField(hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(size)}))
	}
	require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true,
	}))
}

// answer reads the whole answer to a request. Nothing may end the request before it, or the connection at all.
func (c *multiplexedConn) answer(t *testing.T, stream uint32) (status, body string) {
	t.Helper()
	for {
		f, err := c.ReadFrame()
		require.NoError(t, err)
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
		case *http2.DataFrame:
			body += string(f.Data())
			if f.StreamEnded() {
				require.Equal(t, stream, f.StreamID)
				return status, body
			}
		case *http2.GoAwayFrame:
			require.Fail(t, "the connection ends", "%v", f)
		case *http2.RSTStreamFrame: // which follows an answer, and says that the rest of the body is not wanted
			require.NotEqual(t, stream, f.StreamID, "the request ends before its answer: %v", f.ErrCode)
		}
	}
}

// On HTTP/2 neither the connection nor the request ends before the answer is there, so that no client can miss it.
func TestRefusalsDoNotCutMultiplexedConnections(t *testing.T) {
	const chunk = 16 << 10
	e := newEdge(t, api.Options{Limits: api.Limits{BodyBytes: 2 * chunk}})
	_, url := listen(t, api.NewRouter(e, echo(e)), 2)
	c := dialMultiplexed(t, url)
	for i, size := range []int{8 << 20, -1, -1, 8 << 20} {
		stream := uint32(2*i + 1)
		c.post(t, stream, "/v1/echo", size)
		for range 3 {
			require.NoError(t, c.WriteData(stream, false, make([]byte, chunk)))
		}
		status, body := c.answer(t, stream)
		require.Equal(t, "413", status)
		require.Contains(t, body, "BODY_TOO_LARGE")
	}
	c.post(t, 99, "/v1/echo", 5)
	require.NoError(t, c.WriteData(99, true, []byte("after")))
	for {
		f, err := c.ReadFrame()
		require.NoError(t, err)
		if d, ok := f.(*http2.DataFrame); ok {
			require.Equal(t, "after", string(d.Data()))
			return
		}
	}
}
