package native_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/record"
)

// writes is a server of /v1 over a test double of Kafka.
type writes struct {
	t      *testing.T
	client *client.Client
	cl     *requestors
	server *httptest.Server
	http   *http.Client
}

func newWrites(t *testing.T, limits api.Limits, opts ...kfake.Opt) *writes {
	t.Helper()
	opts = append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.SeedTopics(3, "t3"), kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(2),
	}, opts...)
	c, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	e := &writes{t: t, cl: &requestors{t: t, seed: c.ListenAddrs()[0]}}
	t.Cleanup(e.cl.close)
	e.client = client.New(e.cl, client.Options{MetadataTTL: time.Millisecond})
	edge, err := api.NewEdge(api.Options{Client: e.client, Pool: record.NewPool(64 << 20), Limits: limits})
	require.NoError(t, err)
	s := native.New(native.Options{Edge: edge, Client: e.client})
	t.Cleanup(s.Close)
	e.server = httptest.NewServer(api.NewRouter(edge, s.Mount))
	t.Cleanup(e.server.Close)
	e.http = e.server.Client()
	return e
}

// send sends a request; headers are names and values in turn.
func (e *writes) send(method, path, body string, headers ...string) reply {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), method, e.server.URL+path, strings.NewReader(body))
	require.NoError(e.t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := e.http.Do(req)
	require.NoError(e.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(e.t, err)
	return reply{resp.StatusCode, resp.Header, string(answer)}
}

// post produces with a content type.
func (e *writes) post(path, contentType, body string, headers ...string) reply {
	e.t.Helper()
	if contentType != "" {
		headers = append(headers, "Content-Type", contentType)
	}
	return e.send(http.MethodPost, path, body, headers...)
}

// produced is the answer to a produce.
type produced struct {
	Offsets []struct {
		Partition  int32  `json:"partition"`
		BaseOffset *int64 `json:"base_offset"`
		Count      int    `json:"count"`
		Timestamp  string `json:"timestamp"`
		Duplicate  bool   `json:"duplicate"`
	} `json:"offsets"`
}

func (e *writes) stored(r reply) produced {
	e.t.Helper()
	require.Equal(e.t, http.StatusOK, r.status, r.body)
	require.Equal(e.t, "application/json", r.header.Get("Content-Type"))
	var p produced
	require.NoError(e.t, json.Unmarshal([]byte(r.body), &p), r.body)
	return p
}

// records reads all records of one partition.
func (e *writes) records(topic string, partition int32) (out []record.Record) {
	e.t.Helper()
	e.client.Forget(topic)
	meta, err := e.client.Topic(e.t.Context(), topic, client.Refuse)
	require.NoError(e.t, err)
	results, err := e.client.Fetch(e.t.Context(), client.FetchRequest{
		Topic: meta, MaxBytes: 64 << 20, Partitions: []client.FetchPartition{{Partition: partition}},
	})
	require.NoError(e.t, err)
	require.NoError(e.t, results[0].Err)
	for rest := results[0].Batches; len(rest) > 0; {
		b, next, err := record.Next(rest)
		require.NoError(e.t, err)
		rd := record.NewReader(b, 64<<20)
		for r := (record.Record{}); rd.Next(&r); {
			kept := r
			kept.Key, kept.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
			kept.Headers = append([]record.Header{}, r.Headers...)
			out = append(out, kept)
		}
		require.NoError(e.t, rd.Err())
		rest = next
	}
	return out
}

func (e *writes) values(topic string, partition int32) (out []string) {
	for _, r := range e.records(topic, partition) {
		if r.Value == nil {
			out = append(out, "(null)")
		} else {
			out = append(out, string(r.Value))
		}
	}
	return out
}

// problem checks a refusal and returns it.
func (e *writes) problem(r reply, status int, name string) map[string]any {
	e.t.Helper()
	require.Equal(e.t, status, r.status, r.body)
	require.Equal(e.t, "application/problem+json", r.header.Get("Content-Type"))
	var p map[string]any
	require.NoError(e.t, json.Unmarshal([]byte(r.body), &p), r.body)
	require.Equal(e.t, "/v1/errors#"+name, p["type"], r.body)
	for _, member := range []string{"title", "status", "detail", "error_code", "retryable", "outcome"} {
		require.Contains(e.t, p, member)
	}
	return p
}

const path = "/v1/topics/t/records"

// headersOf shows a record's headers as name=value.
func headersOf(r record.Record) (out []string) {
	for _, h := range r.Headers {
		if h.Value == nil {
			out = append(out, h.Key+"=(null)")
		} else {
			out = append(out, h.Key+"="+string(h.Value))
		}
	}
	return out
}

func TestProduceOneValue(t *testing.T) {
	for name, c := range map[string]struct{ contentType, body, want string }{
		"json":            {"application/json", `{"a": 1,  "b":[ ]}`, `{"a": 1,  "b":[ ]}`},
		"bare curl":       {"application/x-www-form-urlencoded", `{"a":1}`, `{"a":1}`},
		"no type":         {"", `12345678901234567890.5`, `12345678901234567890.5`},
		"json parameters": {"application/json; charset=utf-8", ` "x" ` + "\n", `"x"`},
		"json null":       {"application/json", `null`, "(null)"},
		"text":            {"text/plain", " hello \n", " hello \n"},
		"text charset":    {"text/plain; charset=UTF-8", "grün", "grün"},
		"empty text":      {"text/plain", "", ""},
		"bytes":           {"application/octet-stream", "\x00\xff\x01", "\x00\xff\x01"},
		"empty bytes":     {"application/octet-stream", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newWrites(t, api.Limits{})
			p := e.stored(e.post(path, c.contentType, c.body))
			require.Len(t, p.Offsets, 1)
			require.EqualValues(t, 0, *p.Offsets[0].BaseOffset)
			require.Equal(t, 1, p.Offsets[0].Count)
			_, err := time.Parse("2006-01-02T15:04:05.000Z", p.Offsets[0].Timestamp)
			require.NoError(t, err)
			require.Equal(t, []string{c.want}, e.values("t", 0))
			require.Nil(t, e.records("t", 0)[0].Key)
		})
	}
}

func TestProduceParametersAndHeaders(t *testing.T) {
	e := newWrites(t, api.Limits{})
	query := "?key=k%20%C3%A9&timestamp=2026-01-02T03:04:05.678Z&partition=0&acks=1"
	p := e.stored(e.post(path+query, "text/plain", "v",
		"Record-Header-Source", "web", "record-header-A", "1", "record-header-a", "2"))
	require.Equal(t, "2026-01-02T03:04:05.678Z", p.Offsets[0].Timestamp)
	e.stored(e.post(path+"?timestamp=1767323045678&key=", "text/plain", "v"))
	e.stored(e.post(path+"?timestamp=2026-01-02T04:04:05.678%2B01:00&acks=all", "text/plain", "v"))
	records := e.records("t", 0)
	require.Equal(t, "k é", string(records[0].Key))
	require.Equal(t, []string{"a=1", "a=2", "source=web"}, headersOf(records[0]))
	require.NotNil(t, records[1].Key)
	require.Empty(t, records[1].Key, "an empty key is not a null")
	for _, r := range records {
		require.EqualValues(t, 1767323045678, r.Timestamp)
	}
	p = e.stored(e.post(path+"?acks=0", "text/plain", "v"))
	require.Equal(t, 1, p.Offsets[0].Count)
}

func TestProduceLines(t *testing.T) {
	e := newWrites(t, api.Limits{})
	p := e.stored(e.post(path, "application/x-ndjson", "{\"a\":1}\n\n 2 \r\nnull\n\"x\""))
	require.Len(t, p.Offsets, 1)
	require.Equal(t, 4, p.Offsets[0].Count)
	require.Equal(t, []string{`{"a":1}`, "2", "(null)", `"x"`}, e.values("t", 0))
}

const allForms = `[
 {"key": {"k": 1}, "value": [1, 2], "headers": [{"name":"h","value":"é"},{"name":"h","value_base64":"/w=="},
  {"name":"n"}]},
 {"key_text": "a\u0062\n", "value_text": "", "timestamp": 1767323045678, "offset": 99,
  "decode_error": "x", "topic": "t"},
 {"key_base64": "AP8=", "value_base64": "", "timestamp": "2026-01-02T03:04:05.678Z", "headers": null},
 {"key": null, "value": null},
 {}
]`

func TestProduceRecords(t *testing.T) {
	e := newWrites(t, api.Limits{})
	p := e.stored(e.post(path+"?key=default", recordType, allForms, "Record-Header-Z", "9"))
	require.Equal(t, 5, p.Offsets[0].Count)
	records := e.records("t", 0)
	require.Equal(t, `{"k": 1}`, string(records[0].Key))
	require.Equal(t, `[1, 2]`, string(records[0].Value))
	require.Equal(t, []string{"z=9", "h=é", "h=\xff", "n=(null)"}, headersOf(records[0]))
	require.Equal(t, "ab\n", string(records[1].Key))
	require.NotNil(t, records[1].Value)
	require.Empty(t, records[1].Value)
	require.EqualValues(t, 1767323045678, records[1].Timestamp)
	require.Equal(t, "\x00\xff", string(records[2].Key))
	require.NotNil(t, records[2].Value)
	require.EqualValues(t, 1767323045678, records[2].Timestamp)
	require.Nil(t, records[3].Key, "a null given is a null")
	require.Nil(t, records[3].Value)
	require.Equal(t, "default", string(records[4].Key), "the parameter stands in where no key is given")
	require.Nil(t, records[4].Value)
}

func TestProduceRecordLines(t *testing.T) {
	e := newWrites(t, api.Limits{})
	e.stored(e.post("/v1/topics/t3/records", "application/vnd.millrace.records+ndjson",
		`{"partition":2,"value":1}`+"\n"+`{"partition":0,"value":2}`+"\n"+`{"partition":2,"value":3}`+"\n"))
	require.Equal(t, []string{"1", "3"}, e.values("t3", 2))
	require.Equal(t, []string{"2"}, e.values("t3", 0))
	p := e.stored(e.post("/v1/topics/t3/records?partition=1", "application/vnd.millrace.records+ndjson",
		`{"value":4}`+"\n"+`{"partition":0,"value":5}`))
	require.Len(t, p.Offsets, 2)
	require.EqualValues(t, 0, p.Offsets[0].Partition)
	require.EqualValues(t, 1, p.Offsets[1].Partition)
}

func TestProduceUsesTheHashOfTheKey(t *testing.T) {
	e := newWrites(t, api.Limits{})
	p := e.stored(e.post("/v1/topics/t3/records?key=abcde", "text/plain", "v"))
	require.EqualValues(t, 1, p.Offsets[0].Partition)
}

const sampleEvent = `{"specversion":"1.0","id":"a-1","source":"/s","type":"t","partitionkey":"pk",` +
	`"n":1,"b":true,"x":null,"data":{"a": 1}}`

func TestProduceStructuredEvents(t *testing.T) {
	e := newWrites(t, api.Limits{})
	e.stored(e.post(path, "application/cloudevents+json; charset=UTF-8", " "+sampleEvent+"\n"))
	batch := "[" + sampleEvent + " ,\n" + sampleEvent + "]"
	e.stored(e.post(path, "application/cloudevents-batch+json", batch, "Record-Header-A", "1"))
	records := e.records("t", 0)
	require.Len(t, records, 3)
	for _, r := range records {
		require.Equal(t, sampleEvent, string(r.Value))
		require.Equal(t, "pk", string(r.Key))
		require.Equal(t, "content-type=application/cloudevents+json; charset=UTF-8", headersOf(r)[0])
	}
	require.Equal(t, "a=1", headersOf(records[1])[1])
}

func TestProduceBinaryEvent(t *testing.T) {
	e := newWrites(t, api.Limits{})
	e.stored(e.post(path, "application/json", `{"a":1}`, "ce-specversion", "1.0", "ce-id", "a%201%C3%A9",
		"Ce-Source", "/s", "ce-type", "t", "ce-time", "2026-01-02T03:04:05Z", "ce-partitionkey", "pk"))
	e.stored(e.post(path+"?key=k", "", "", "ce-specversion", "1.0", "ce-id", "2", "ce-source", "/s", "ce-type", "t"))
	records := e.records("t", 0)
	require.Equal(t, `{"a":1}`, string(records[0].Value))
	require.Equal(t, "pk", string(records[0].Key))
	require.Equal(t, []string{
		"ce_id=a 1é", "ce_partitionkey=pk", "ce_source=/s", "ce_specversion=1.0", "ce_time=2026-01-02T03:04:05Z",
		"ce_type=t", "content-type=application/json",
	}, headersOf(records[0]))
	require.Nil(t, records[1].Value)
	require.Equal(t, "k", string(records[1].Key))
}

func rawBatch(values ...string) []byte {
	var b record.Builder
	for _, v := range values {
		b.Append(&record.Record{Value: []byte(v), Timestamp: 1767323045678})
	}
	return b.Build()
}

const rawType = "application/vnd.apache.kafka.recordbatch"

func TestProduceBatches(t *testing.T) {
	e := newWrites(t, api.Limits{})
	p := e.stored(e.post(path+"?partition=0", rawType, string(rawBatch("a", "b"))))
	require.Equal(t, 2, p.Offsets[0].Count)
	require.Equal(t, "2026-01-02T03:04:05.678Z", p.Offsets[0].Timestamp)
	moved := record.Batch(rawBatch("c"))
	moved.SetBaseOffset(77) // as read from a log
	p = e.stored(e.post(path+"?partition=0", rawType, string(moved)+string(rawBatch("d"))))
	require.Len(t, p.Offsets, 2)
	require.EqualValues(t, 3, *p.Offsets[1].BaseOffset)
	require.Equal(t, []string{"a", "b", "c", "d"}, e.values("t", 0))
}

func TestProduceCompressed(t *testing.T) {
	e := newWrites(t, api.Limits{})
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write([]byte(`{"z":1}`))
	require.NoError(t, w.Close())
	for range 3 { // the decoders are used again
		e.stored(e.post(path, "application/json", gz.String(), "Content-Encoding", "gzip"))
	}
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for range 3 {
		zd := string(z.EncodeAll([]byte(`{"z":1}`), nil))
		e.stored(e.post(path, "application/json", zd, "Content-Encoding", "zstd"))
	}
	e.stored(e.post(path, "application/json", `{"z":1}`, "Content-Encoding", "identity"))
	for _, v := range e.values("t", 0) {
		require.Equal(t, `{"z":1}`, v)
	}
}

func TestProduceCreatesTopics(t *testing.T) {
	e := newWrites(t, api.Limits{})
	e.problem(e.post("/v1/topics/new/records", "application/json", "{"), 400, "MALFORMED_BODY")
	_, err := e.client.Topic(t.Context(), "new", client.Refuse)
	require.Error(t, err, "a refused request creates nothing")
	e.stored(e.post("/v1/topics/new/records", "application/json", "{}"))
	topic, err := e.client.Topic(t.Context(), "new", client.Refuse)
	require.NoError(t, err)
	require.Len(t, topic.Partitions, 2)
}

func TestProduceRefusesUnknownTopic(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	e := newWrites(t, api.Limits{})
	e.cl.seed = c.ListenAddrs()[0] // a cluster that creates no topics
	e.problem(e.post(path, "application/json", "{}"), 404, "UNKNOWN_TOPIC_OR_PARTITION")
}

// What is far too large is refused at a cost that does not grow with it.
func TestProduceBoundsBodies(t *testing.T) {
	// What is refused is less than the server reads of a body that nobody wants, so that the answer always arrives.
	e := newWrites(t, api.Limits{
		BodyBytes: 128 << 10, ExpandedBytes: 2 << 20, ExpansionFree: 64 << 10, ExpansionRatio: 10,
	})
	large := strings.Repeat("x", 128<<10)
	e.problem(e.post(path, "text/plain", large+"x"), 413, "BODY_TOO_LARGE")
	body := io.MultiReader(strings.NewReader(large), strings.NewReader("x"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.server.URL+path, body)
	require.NoError(t, err)
	req.Header.Set("Content-Type", "text/plain")
	resp, err := e.http.Do(req) // chunked: the length is not announced
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 413, resp.StatusCode)

	bomb := func(n int) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(make([]byte, n))
		require.NoError(t, w.Close())
		return b.String()
	}
	post := func(body, encoding string) reply {
		return e.post(path, "application/octet-stream", body, "Content-Encoding", encoding)
	}
	e.problem(post(bomb(100<<20), "gzip"), 413, "BODY_TOO_LARGE")
	e.problem(post(bomb(65<<10), "gzip"), 413, "BODY_TOO_LARGE")
	require.Empty(t, e.values("t", 0))
	e.stored(post(bomb(64<<10), "gzip"))
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	zeros := z.EncodeAll(make([]byte, 100<<20), nil)
	e.problem(post(string(zeros), "zstd"), 413, "BODY_TOO_LARGE")
}

func TestProduceShedsLoad(t *testing.T) {
	e := newWrites(t, api.Limits{InFlightBytes: 1000})
	r := e.post(path, "text/plain", strings.Repeat("x", 1001))
	e.problem(r, 503, "OVERLOADED")
	require.NotEmpty(t, r.header.Get("Retry-After"))
	for range 3 { // what a request took it gives back
		e.stored(e.post(path, "text/plain", strings.Repeat("x", 1000)))
	}
}

// dial opens a bare connection and sends the start of a request.
func (e *writes) dial(head string) net.Conn {
	e.t.Helper()
	conn, err := net.Dial("tcp", e.server.Listener.Addr().String())
	require.NoError(e.t, err)
	e.t.Cleanup(func() { conn.Close() })
	_, err = conn.Write([]byte(strings.ReplaceAll(head, "\n", "\r\n")))
	require.NoError(e.t, err)
	return conn
}

func TestProduceFromSlowClient(t *testing.T) {
	e := newWrites(t, api.Limits{BodyWindow: 50 * time.Millisecond, BodyRate: 1 << 20})
	conn := e.dial("POST " + path + " HTTP/1.1\nHost: x\nContent-Type: text/plain\nContent-Length: 100\n\nabc")
	answer, err := io.ReadAll(conn) // the server answers and closes
	require.NoError(t, err)
	require.Contains(t, string(answer), "408 Request Timeout")
	require.Contains(t, string(answer), "SLOW_BODY")
	require.Empty(t, e.values("t", 0))
}

// A body that nobody wants does not hold its connection for ever either.
func TestProduceRefusedWithUnreadBody(t *testing.T) {
	e := newWrites(t, api.Limits{BodyWindow: 50 * time.Millisecond})
	conn := e.dial("POST " + path + " HTTP/1.1\nHost: x\nContent-Type: image/png\nContent-Length: 100\n\nabc")
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "415 Unsupported Media Type")
}

func TestProduceFromClientThatGoes(t *testing.T) {
	e := newWrites(t, api.Limits{})
	conn := e.dial("POST " + path + " HTTP/1.1\nHost: x\nContent-Type: text/plain\nContent-Length: 100\n\nabc")
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "400 Bad Request")
	require.Contains(t, string(answer), "after 3 of 100 bytes")
	conn = e.dial("POST " + path + " HTTP/1.1\nHost: x\nContent-Type: application/x-ndjson\n" +
		"Transfer-Encoding: chunked\n\n4\n1\n2\n\n")
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	answer, err = io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "400 Bad Request")
	require.Empty(t, e.values("t", 0), "whole lines before the cut are not stored either")
}

// With no answer from the cluster the outcome is unknown, and the problem says so.
func TestProduceTellsUnknownOutcomes(t *testing.T) {
	e := newWrites(t, api.Limits{})
	codes := map[int32]int16{}
	e.cl.before = func(req kmsg.Request) kmsg.Response {
		p, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return nil
		}
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = p.Topics[0].Topic, p.Topics[0].TopicID
		for _, part := range p.Topics[0].Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.BaseOffset = part.Partition, codes[part.Partition], 17
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
		return resp
	}
	const two = `[{"partition":0},{"partition":1},{"partition":1}]`
	codes[0] = 7 // REQUEST_TIMED_OUT
	p := e.problem(e.post(path, "application/json", "{}"), 504, "REQUEST_TIMED_OUT")
	require.Equal(t, "unknown", p["outcome"])
	require.Equal(t, true, p["retryable"])

	codes[0], codes[1] = 0, 19 // NOT_ENOUGH_REPLICAS
	p = e.problem(e.post("/v1/topics/t3/records", recordType, two), 503, "NOT_ENOUGH_REPLICAS")
	require.Equal(t, "partial", p["outcome"], "a part is stored, and every fate is known")
	require.Contains(t, p["detail"], "2 of 3 records were not stored")
	require.Equal(t, false, p["retryable"], "the same request would store a part twice")
	require.Contains(t, p["detail"], "Send again only the records that offsets tell were not stored.")
	p = e.problem(e.post("/v1/topics/t3/records", recordType, two, "Idempotency-Key", "k"), 503, "NOT_ENOUGH_REPLICAS")
	require.Equal(t, "partial", p["outcome"])
	require.Equal(t, true, p["retryable"], "this one would not")
	fates := p["offsets"].([]any)
	require.Len(t, fates, 2)
	require.EqualValues(t, 17, fates[0].(map[string]any)["base_offset"])
	failed := fates[1].(map[string]any)["error"].(map[string]any)
	require.Equal(t, "failed", failed["outcome"])
	require.EqualValues(t, 50003, failed["error_code"])

	codes[0], codes[1] = 19, 19
	p = e.problem(e.post("/v1/topics/t3/records", recordType, two), 503, "NOT_ENOUGH_REPLICAS")
	require.Equal(t, "failed", p["outcome"])

	codes[0], codes[1] = 19, 7
	p = e.problem(e.post("/v1/topics/t3/records", recordType, two), 504, "REQUEST_TIMED_OUT")
	require.Equal(t, "unknown", p["outcome"])

	codes[0], codes[1] = 0, 7
	p = e.problem(e.post("/v1/topics/t3/records", recordType, two), 504, "REQUEST_TIMED_OUT")
	require.Equal(t, "unknown", p["outcome"])
	require.Contains(t, p["detail"], "2 of 3 records were not acknowledged")
}

// The answers that only our own leader gives.
func TestProduceTellsSequencesAndOffsets(t *testing.T) {
	e := newWrites(t, api.Limits{})
	var tag func(*kmsg.ProduceResponseTopicPartition)
	e.cl.before = func(req kmsg.Request) kmsg.Response {
		p, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return nil
		}
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = p.Topics[0].Topic, p.Topics[0].TopicID
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.BaseOffset = 3
		tag(&rp)
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp
	}
	triple := []string{"Producer-Id", "p", "Producer-Epoch", "1", "Producer-Seq", "7"}
	tag = taggedGap
	p := e.problem(e.post(path, "application/json", "{}", triple...), 409, "OUT_OF_ORDER_SEQUENCE_NUMBER")
	require.EqualValues(t, 5, p["expected_seq"])
	tag = taggedEpoch
	p = e.problem(e.post(path, "application/json", "{}", triple...), 403, "INVALID_PRODUCER_EPOCH")
	require.EqualValues(t, 4, p["current_epoch"])
	tag = taggedOffset
	p = e.problem(e.post(path, "application/json", "{}", "Expected-Offset", "9"), 412, "INVALID_UPDATE_VERSION")
	require.EqualValues(t, 11, p["actual_offset"])
	tag = taggedDuplicate
	got := e.stored(e.post(path, "application/json", "{}", triple...))
	require.True(t, got.Offsets[0].Duplicate)
	require.EqualValues(t, 3, *got.Offsets[0].BaseOffset)
	require.Equal(t, "2026-01-02T03:04:05.678Z", got.Offsets[0].Timestamp)
	got = e.stored(e.post(path, "application/json", "{}", "Idempotency-Key", "once"))
	require.True(t, got.Offsets[0].Duplicate)
}

func TestProduceKeepsNothingOfOtherRequests(t *testing.T) {
	e := newWrites(t, api.Limits{})
	e.stored(e.post(path+"?key=k", recordType, allForms, "Record-Header-A", "1"))
	e.stored(e.post(path, "text/plain", "v"))
	records := e.records("t", 0)
	last := records[len(records)-1]
	require.Nil(t, last.Key)
	require.Empty(t, last.Headers)
}

// A client that gives up does not take the server's memory with it.
func TestProduceCancelled(t *testing.T) {
	e := newWrites(t, api.Limits{InFlightBytes: 4096})
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.server.URL+path, r)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			resp, err := e.http.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			done <- err
		}()
		_, err = w.Write([]byte("x"))
		require.NoError(t, err)
		cancel()
		w.CloseWithError(context.Canceled) // the transport waits for its read of the body
		require.Error(t, <-done)
	}
	until(t, func() bool { return e.post(path, "text/plain", strings.Repeat("x", 4096)).status == 200 })
}

func TestBase64OfManyRecords(t *testing.T) {
	e := newWrites(t, api.Limits{})
	var body strings.Builder
	var want []string
	for i := range 500 {
		v := bytes.Repeat([]byte{byte(i)}, i)
		want = append(want, string(v))
		fmt.Fprintf(&body, "{\"value_base64\":%q}\n", base64.StdEncoding.EncodeToString(v))
	}
	e.stored(e.post(path, "application/vnd.millrace.records+ndjson", body.String()))
	require.Equal(t, want, e.values("t", 0))
}

func TestProduceTakesTheMostRecords(t *testing.T) {
	e := newWrites(t, api.Limits{})
	p := e.stored(e.post(path, lineType, strings.Repeat("1\n", 10_000)))
	require.Equal(t, 10_000, p.Offsets[0].Count)
	e.problem(e.post(path, lineType, strings.Repeat("1\n", 10_001)), 413, "BODY_TOO_LARGE")
	require.Len(t, e.values("t", 0), 10_000)
}
