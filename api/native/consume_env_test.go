package native_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/record"
	"millrace/server/servertest"
)

// A Requestor that opens a connection for each request in flight: on one connection a waiting fetch would hold up all
// others, which our own router does not do.
type requestors struct {
	t    *testing.T
	seed string

	mu   sync.Mutex
	idle []*kgo.Client // guarded by mu
	all  []*kgo.Client // guarded by mu

	// before, if set, sees each request; what it returns in place of an answer is the answer.
	before func(kmsg.Request) kmsg.Response
	after  func(kmsg.Response) // if set, may change each answer
}

func (r *requestors) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if r.before != nil {
		if resp := r.before(req); resp != nil {
			return resp, nil
		}
	}
	c, err := r.take()
	if err != nil {
		return nil, err
	}
	resp, err := c.Broker(0).Request(ctx, req)
	if err == nil && r.after != nil {
		r.after(resp)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, c)
	return resp, err
}

func (r *requestors) take() (*kgo.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.idle); n > 0 {
		c := r.idle[n-1]
		r.idle = r.idle[:n-1]
		return c, nil
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(r.seed))
	if err == nil {
		r.all = append(r.all, c)
	}
	return c, err
}

func (r *requestors) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all {
		c.Close()
	}
}

// reads is a server of reads: one over a test double of Kafka, or a whole node.
type reads struct {
	t    *testing.T
	url  string
	http *http.Client

	// What only a test double has.
	cluster  *kfake.Cluster
	cl       *requestors
	client   *client.Client
	producer *kgo.Client
	api      *native.Server
	server   *httptest.Server
}

// onEach runs a test on a test double of Kafka and on a node.
func onEach(t *testing.T, partitions int32, topic string, test func(t *testing.T, e *reads)) {
	t.Run("double", func(t *testing.T) { test(t, newReads(t, partitions, topic)) })
	t.Run("node", func(t *testing.T) {
		n := servertest.Start(t, servertest.Options{})
		e := &reads{t: t, url: n.URL(), http: n.Client}
		body := fmt.Sprintf(`{"name":%q,"partitions":%d}`, topic, partitions)
		resp, err := e.http.Post(e.url+"/v1/topics", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusCreated, resp.StatusCode)
		test(t, e)
	})
}

func newReads(t *testing.T, partitions int32, topics ...string) *reads {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	e := &reads{t: t, cluster: c, cl: &requestors{t: t, seed: c.ListenAddrs()[0]}}
	t.Cleanup(e.cl.close)
	e.client = client.New(e.cl, client.Options{MetadataTTL: time.Millisecond})
	e.producer, err = kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()[0]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ManualFlushing())
	require.NoError(t, err)
	t.Cleanup(e.producer.Close)
	edge, err := api.NewEdge(api.Options{Client: e.client, Pool: record.NewPool(64 << 20)})
	require.NoError(t, err)
	e.api = native.New(native.Options{Edge: edge, Client: e.client})
	r := chi.NewRouter()
	e.api.Mount(r)
	e.server = httptest.NewUnstartedServer(r)
	e.server.Config.Protocols = new(http.Protocols)
	e.server.Config.Protocols.SetHTTP1(true)
	e.server.Config.Protocols.SetUnencryptedHTTP2(true)
	e.server.Start()
	e.url, e.http = e.server.URL, e.server.Client()
	t.Cleanup(func() {
		e.api.Close()
		e.server.Close()
	})
	return e
}

// put produces records in one batch.
func (e *reads) put(topic string, partition int32, records ...*kgo.Record) {
	e.t.Helper()
	for _, r := range records {
		r.Topic, r.Partition = topic, partition
	}
	if e.producer != nil {
		require.NoError(e.t, e.produce(records...))
		return
	}
	var b record.Builder
	for _, r := range records {
		if r.Timestamp.IsZero() {
			r.Timestamp = time.Now()
		}
		one := record.Record{Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, record.Header{Key: h.Key, Value: h.Value})
		}
		b.Append(&one)
	}
	path := fmt.Sprintf("%s/v1/topics/%s/records?partition=%d", e.url, topic, partition)
	resp, err := e.http.Post(path, "application/vnd.apache.kafka.recordbatch", bytes.NewReader(b.Build()))
	require.NoError(e.t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(e.t, err)
	resp.Body.Close()
	require.Equal(e.t, http.StatusOK, resp.StatusCode, "%s", text)
}

// produce has Kafka's client produce records, which go out together: it flushes when it has all of them.
func (e *reads) produce(records ...*kgo.Record) error {
	errs := make(chan error, len(records))
	for _, r := range records {
		e.producer.Produce(e.t.Context(), r, func(_ *kgo.Record, err error) { errs <- err })
	}
	err := e.producer.Flush(e.t.Context())
	for range records {
		err = errors.Join(err, <-errs)
	}
	return err
}

// putValues produces JSON numbers from first on, each in a batch of its own.
func (e *reads) putValues(topic string, partition int32, first, count int) {
	e.t.Helper()
	for i := range count {
		e.put(topic, partition, &kgo.Record{Value: []byte(strconv.Itoa(first + i))})
	}
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

func (e *reads) get(path, accept string, headers ...string) reply {
	e.t.Helper()
	r, err := e.tryGet(path, accept, headers...)
	require.NoError(e.t, err)
	return r
}

// tryGet is get off the test's goroutine.
func (e *reads) tryGet(path, accept string, headers ...string) (reply, error) {
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.url+path, nil)
	if err != nil {
		return reply{}, err
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

// later gets a path beside the test. What it returns waits for the answer.
func (e *reads) later(path string) (answer func() reply) {
	var r reply
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { r, err = e.tryGet(path, "") })
	return func() reply {
		e.t.Helper()
		wg.Wait()
		require.NoError(e.t, err)
		return r
	}
}

// until calls ok in the test's own goroutine, where it may end the test, until it is true.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !ok(); {
		require.True(t, time.Now().Before(limit), "it does not come")
		<-time.After(5 * time.Millisecond)
	}
}

// shown is a record as an answer shows it.
type shown struct {
	Partition   int32           `json:"partition"`
	Offset      int64           `json:"offset"`
	Timestamp   string          `json:"timestamp"`
	Key         json.RawMessage `json:"key"`
	KeyText     *string         `json:"key_text"`
	KeyBase64   *string         `json:"key_base64"`
	Value       json.RawMessage `json:"value"`
	ValueText   *string         `json:"value_text"`
	ValueBase64 *string         `json:"value_base64"`
	DecodeError string          `json:"decode_error"`
	Headers     []struct {
		Name        string  `json:"name"`
		Value       *string `json:"value"`
		ValueBase64 *string `json:"value_base64"`
	} `json:"headers"`
}

type shownPage struct {
	Records        []shown          `json:"records"`
	Next           string           `json:"next"`
	HighWatermarks map[string]int64 `json:"high_watermarks"`
}

func (e *reads) page(path string) shownPage {
	e.t.Helper()
	return e.pageOf(e.get(path, "application/json"))
}

// pageOf is the page in an answer.
func (e *reads) pageOf(r reply) (p shownPage) {
	e.t.Helper()
	require.Equal(e.t, http.StatusOK, r.status, r.body)
	require.NoError(e.t, json.Unmarshal([]byte(r.body), &p), r.body)
	require.Equal(e.t, p.Next, r.header.Get("Next"))
	return p
}

// values are the values of records, as text.
func values(records []shown) []string {
	out := make([]string, 0, len(records))
	for _, r := range records {
		out = append(out, string(r.Value))
	}
	return out
}

// event is one server-sent event.
type event struct {
	id, kind, data string
}

// live is an open stream of events.
type live struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Reader
	lastID string
	start  string // the id before any event
}

func (e *reads) live(path string, headers ...string) *live {
	e.t.Helper()
	l, r := e.tryLive(e.http, path, headers...)
	require.NotNil(e.t, l, r.body)
	return l
}

// tryLive opens a stream, or returns the refusal.
func (e *reads) tryLive(c *http.Client, path string, headers ...string) (*live, reply) {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.url+path, nil)
	require.NoError(e.t, err)
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	require.NoError(e.t, err)
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		return nil, reply{resp.StatusCode, resp.Header, string(body)}
	}
	e.t.Cleanup(func() { resp.Body.Close() })
	l := &live{t: e.t, resp: resp, lines: bufio.NewReader(resp.Body)}
	first, err := l.next()
	require.NoError(e.t, err)
	require.Empty(e.t, first.data)
	require.NotEmpty(e.t, first.id)
	l.start = first.id
	return l, reply{}
}

// next reads up to the end of the next event; comments are no events.
func (l *live) next() (event, error) {
	var ev event
	for some := false; ; {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			return ev, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && some:
			if ev.id != "" {
				l.lastID = ev.id
			}
			return ev, nil
		case line == "" || name == "":
			continue
		case name == "id":
			ev.id = value
		case name == "event":
			ev.kind = value
		case name == "data":
			ev.data += value
		}
		some = true
	}
}

// take reads the records of the next n events.
func (l *live) take(n int) []shown {
	l.t.Helper()
	var out []shown
	for range n {
		ev, err := l.next()
		require.NoError(l.t, err)
		require.Empty(l.t, ev.kind, ev.data)
		var r shown
		require.NoError(l.t, json.Unmarshal([]byte(ev.data), &r), ev.data)
		out = append(out, r)
	}
	return out
}

func (l *live) close() { l.resp.Body.Close() }
