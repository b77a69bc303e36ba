package restv3_test

import (
	"bufio"
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
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api/restv3"
	"millrace/client"
	"millrace/record"
	"millrace/server/servertest"
)

func TestMain(m *testing.M) { servertest.VerifyNoLeaks(m) }

// receipt is what became of one record.
type receipt struct {
	ErrorCode   int    `json:"error_code"`
	Message     string `json:"message"`
	ClusterID   string `json:"cluster_id"`
	TopicName   string `json:"topic_name"`
	PartitionID int32  `json:"partition_id"`
	Offset      int64  `json:"offset"`
	Timestamp   string `json:"timestamp"`
	Key         *part  `json:"key"`
	Value       *part  `json:"value"`
}

type part struct {
	Type string `json:"type"`
	Size int    `json:"size"`
}

// receipts reads an answer: each receipt on a line of its own that ends in CR LF.
func (f *fixture) receipts(a answer) []receipt {
	f.t.Helper()
	require.Equal(f.t, 200, a.status, a.text)
	require.Equal(f.t, "application/json", a.header.Get("Content-Type"))
	var out []receipt
	for line := range strings.Lines(a.text) {
		require.True(f.t, strings.HasSuffix(line, "}\r\n"), "%q", line)
		var r receipt
		require.NoError(f.t, json.Unmarshal([]byte(line), &r), line)
		out = append(out, r)
	}
	return out
}

// post sends a body whose length is known.
func (f *fixture) post(body string, header ...string) answer {
	f.t.Helper()
	return f.call("POST", f.at("/topics/orders/records"), body, header...)
}

// chunked sends a body whose length is not known.
func (f *fixture) chunked(body io.Reader, header ...string) answer {
	f.t.Helper()
	req := f.request("POST", f.at("/topics/orders/records"), "x", header...)
	req.Body, req.ContentLength = io.NopCloser(body), -1
	return f.do(req)
}

// stored reads a partition from its start.
func (f *fixture) stored(topic string, partition int32) []record.Record {
	f.t.Helper()
	meta, err := f.client.Topic(f.t.Context(), topic, client.Refuse)
	require.NoError(f.t, err)
	var out []record.Record
	for offset := int64(0); ; {
		got, err := f.client.Fetch(f.t.Context(), client.FetchRequest{
			Topic: meta, MaxBytes: 64 << 20, Partitions: []client.FetchPartition{{Partition: partition, Offset: offset}},
		})
		require.NoError(f.t, err)
		require.NoError(f.t, got[0].Err)
		if len(got[0].Batches) == 0 {
			return out
		}
		for rest := got[0].Batches; len(rest) > 0; {
			var b record.Batch
			b, rest, err = record.Next(rest)
			require.NoError(f.t, err)
			rd := record.NewReader(b, 64<<20)
			for r := (record.Record{}); rd.Next(&r); {
				kept := record.Record{Offset: r.Offset, Timestamp: r.Timestamp}
				kept.Key, kept.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
				for _, h := range r.Headers {
					kept.Headers = append(kept.Headers, record.Header{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)})
				}
				out = append(out, kept)
			}
			require.NoError(f.t, rd.Err())
			rd.Close()
			offset = b.NextOffset()
		}
	}
}

func TestRecordsStoresOne(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		got := f.receipts(f.post(`{"partition_id":1,"headers":[{"name":"b","value":"Qg=="},{"name":"a","value":null}],
		"key":{"type":"STRING","data":"o-17"},"value":{"type":"JSON","data":{"id": 17}},
		"timestamp":"2026-01-02T03:04:05.678Z"}`))
		require.Equal(t, []receipt{{
			ErrorCode: 200, ClusterID: f.id, TopicName: "orders", PartitionID: 1, Offset: 0,
			Timestamp: "2026-01-02T03:04:05.678Z", Key: &part{"STRING", 4}, Value: &part{"JSON", 9},
		}}, got)
		at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC).UnixMilli()
		require.Equal(t, []record.Record{{
			Timestamp: at, Key: []byte("o-17"), Value: []byte(`{"id":17}`),
			Headers: []record.Header{{Key: "b", Value: []byte("B")}, {Key: "a"}},
		}}, f.stored("orders", 1))
	})
}

func TestRecordsLeavesOutAbsentParts(t *testing.T) {
	f := start(t, restv3.Options{})
	before := time.Now().UnixMilli()
	a := f.post(`{"partition_id":0}{"partition_id":0,"value":{"type":"BINARY","data":null}}`)
	lines := strings.SplitAfter(a.text, "\n")
	require.NotContains(t, lines[0], `"key"`)
	require.NotContains(t, lines[0], `"value"`)
	require.NotContains(t, lines[1], `"key"`)
	require.Contains(t, lines[1], `"value":{"type":"BINARY","size":0}`)
	for _, r := range f.stored("orders", 0) {
		require.Nil(t, r.Key)
		require.Nil(t, r.Value)
		require.GreaterOrEqual(t, r.Timestamp, before)
	}
}

// The produce operations take any cluster id and repeat it.
func TestRecordsEchoTheCluster(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, prefix := range []string{"/v3", "/kafka/v3"} {
			a := f.call("POST", prefix+"/clusters/other/topics/orders/records", `{"value":{"type":"JSON","data":1}}`)
			require.Equal(t, "other", f.receipts(a)[0].ClusterID)
			a = f.call("POST", prefix+"/clusters/other/topics/orders/records:batch", `{"entries":[{"id":"a"}]}`)
			require.Equal(t, 207, a.status)
			require.Contains(t, a.text, `"cluster_id":"other"`)
		}
	})
}

// A thousand records, concatenated in every way, in one request: all are stored in order, by one request
// to the cluster if they have all come.
func TestRecordsStoresManyAtOnce(t *testing.T) {
	for _, between := range []string{"", "\n", " \r\n\t"} {
		f := start(t, restv3.Options{})
		requests := f.countProduce()
		var body strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&body, `{"partition_id":%d,"value":{"type":"JSON","data":%d}}%s`, i%2, i, between)
		}
		check := func(got []receipt, first int64) {
			require.Len(t, got, 1000)
			for i, r := range got {
				require.Equal(t, 200, r.ErrorCode, r.Message)
				require.Equal(t, int32(i%2), r.PartitionID)
				require.Equal(t, first+int64(i/2), r.Offset)
			}
		}
		check(f.receipts(f.post(body.String())), 0)
		require.Equal(t, 1, *requests)
		check(f.receipts(f.chunked(strings.NewReader(body.String()))), 500)
		require.Less(t, *requests, 50)
	}
}

// countProduce counts the produce requests from now on.
func (f *fixture) countProduce() *int {
	n := new(int)
	f.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		*n++
		return nil, nil, false
	})
	return n
}

// duplex is a stream in which the test writes and reads in turn.
type duplex struct {
	*fixture
	w    *io.PipeWriter
	resp *http.Response
	r    *bufio.Reader
}

// open begins a stream. It returns once the answer's header is there, before any record is sent.
func (f *fixture) open() *duplex {
	f.t.Helper()
	return f.openAt(f.at("/topics/orders/records"))
}

func (f *fixture) openAt(path string) *duplex {
	f.t.Helper()
	from, w := io.Pipe()
	req := f.request("POST", path, "x")
	req.Body, req.ContentLength = from, -1
	resp, err := f.http.Do(req)
	require.NoError(f.t, err)
	f.t.Cleanup(func() {
		_ = w.Close()
		_ = resp.Body.Close()
	})
	require.Equal(f.t, 200, resp.StatusCode)
	return &duplex{f, w, resp, bufio.NewReader(resp.Body)}
}

func (d *duplex) send(text string) {
	d.t.Helper()
	_, err := io.WriteString(d.w, text)
	require.NoError(d.t, err)
}

func (d *duplex) receive() receipt {
	d.t.Helper()
	line, err := d.r.ReadString('\n')
	require.NoError(d.t, err)
	var r receipt
	require.NoError(d.t, json.Unmarshal([]byte(line), &r))
	return r
}

// ended requires that no receipt follows.
func (d *duplex) ended() {
	d.t.Helper()
	rest, err := io.ReadAll(d.r)
	require.NoError(d.t, err)
	require.Empty(d.t, string(rest))
}

func TestRecordsFullDuplex(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d := f.open()
		for i := range 20 {
			d.send(fmt.Sprintf(`{"partition_id":0,"value":{"type":"JSON","data":%d}}`, i))
			require.Equal(t, int64(i), d.receive().Offset)
		}
		d.send(`{"partition_id":0,"value":{"type":"STRING","data":"ha`)
		d.send(`lf"}}{"value":1}`)
		require.Equal(t, part{"STRING", 4}, *d.receive().Value)
		require.Equal(t, 400, d.receive().ErrorCode)
		d.send(`{"partition_id":0}`)
		require.Equal(t, int64(21), d.receive().Offset)
		require.NoError(t, d.w.Close())
		d.ended()
	})
}

func TestRecordsFullDuplexHTTP2(t *testing.T) {
	f := startWith(t, restv3.Options{}, setup{srv: func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	}})
	d := f.open()
	require.Equal(t, 2, d.resp.ProtoMajor)
	for i := range 5 {
		d.send(fmt.Sprintf(`{"partition_id":0,"value":{"type":"JSON","data":%d}}`, i))
		require.Equal(t, int64(i), d.receive().Offset)
	}
	d.send(`{]`)
	require.Equal(t, 400, d.receive().ErrorCode)
	d.ended()
}

// Wherever a record is cut on its way, it is one record.
func TestRecordsCutAnywhere(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		body := `{"partition_id":0,"key":{"type":"STRING","data":"\u00e9\\\"é𝄞"},` +
			`"value":{"type":"JSON","data":[true,false,null,-1.5e-3,"}{"]}} ` +
			`{"partition_id":0,"headers":[{"name":"h","value":"aGk="}],"value":{"type":"BINARY","data":"aGk="}}`
		d := f.open()
		for i := range len(body) {
			d.send(body[i : i+1])
		}
		require.Equal(t, 200, d.receive().ErrorCode)
		require.Equal(t, 200, d.receive().ErrorCode)
		require.NoError(t, d.w.Close())
		d.ended()
		for n := range 7 {
			got := f.receipts(f.chunked(&stepReader{body, n + 2}))
			require.Len(t, got, 2)
			require.Equal(t, 200, got[0].ErrorCode, got[0].Message)
		}
		for i, r := range f.stored("orders", 0) {
			if i%2 == 0 {
				require.Equal(t, `é\"é𝄞`, string(r.Key))
				require.Equal(t, `[true,false,null,-1.5e-3,"}{"]`, string(r.Value))
			} else {
				require.Equal(t, "hi", string(r.Value))
			}
		}
	})
}

// stepReader gives n bytes at a time.
type stepReader struct {
	rest string
	n    int
}

func (s *stepReader) Read(p []byte) (int, error) {
	if s.rest == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(s.n, len(p))], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Each fault of one record leaves the others alone, in order.
func TestRecordsFaultsGoOn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		good := `{"partition_id":0,"value":{"type":"JSON","data":1}}`
		var body strings.Builder
		var codes []int
		for _, c := range []struct {
			text string
			code int
		}{
			{`{"value":{"type":"BINARY","data":"?"}}`, 400},
			{`{"value":{"type":"STRING","data":1}}`, 400},
			{`{"value":{"type":"AVRO","data":1}}`, 400},
			{`{"values":{"type":"JSON","data":1}}`, 400},
			{`{"value":{"data":1}}`, 422},
			{`{"value":{"type":"AVRO","schema":"\"no such type\"","data":1}}`, 422},
			{`{"partition_id":-1,"value":{"type":"JSON","data":1}}`, 40402},
			{`{"partition_id":9,"value":{"type":"JSON","data":1}}`, 40401},
			{`{"partition_id":1,"value":{"type":"STRING","data":"` + strings.Repeat("x", 2<<20) + `"}}`, 413},
		} {
			body.WriteString(c.text + good)
			codes = append(codes, c.code, 200)
		}
		for _, a := range []answer{f.post(body.String()), f.chunked(strings.NewReader(body.String()))} {
			got := f.receipts(a)
			require.Len(t, got, len(codes))
			for i, r := range got {
				require.Equal(t, codes[i], r.ErrorCode, r.Message)
				require.Equal(t, r.ErrorCode == 200, r.Message == "")
			}
		}
	})
}

func TestRecordsFaultsOfTopics(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		body := `{"value":{"type":"JSON","data":1}}{"value":{"type":"BINARY","data":1}}`
		a := f.call("POST", f.at("/topics/a%20b/records"), body)
		got := f.receipts(a)
		require.Equal(t, 40002, got[0].ErrorCode)
		a = f.call("POST", f.at("/topics/fresh/records"), body)
		got = f.receipts(a)
		require.Equal(t, 200, got[0].ErrorCode, "the topic is created")
		require.Equal(t, 400, got[1].ErrorCode)
	})
}

func TestRecordsWithoutTopicCreation(t *testing.T) {
	f := start(t, restv3.Options{}, kfake.BrokerConfigs(map[string]string{"auto.create.topics.enable": "false"}))
	f.cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		req.(*kmsg.MetadataRequest).AllowAutoTopicCreation = false
		return nil, nil, false
	})
	got := f.receipts(f.call("POST", f.at("/topics/none/records"), `{}{}`))
	require.Len(t, got, 2)
	require.Equal(t, 40401, got[0].ErrorCode)
	require.Equal(t, 40401, got[1].ErrorCode)
}

func TestRecordsTellKafkaErrors(t *testing.T) {
	for _, c := range []struct {
		err  *kerr.Error
		code int
	}{
		{kerr.TopicAuthorizationFailed, 40301}, {kerr.SaslAuthenticationFailed, 40101},
		{kerr.NotEnoughReplicas, 50003}, {kerr.InvalidTimestamp, 50002}, {kerr.MessageTooLarge, 413},
		{kerr.ThrottlingQuotaExceeded, 42901},
	} {
		f := start(t, restv3.Options{})
		f.failProduce(c.err)
		got := f.receipts(f.post(`{"partition_id":0}{"partition_id":1}{"partition_id":0,"value":1}`))
		require.Len(t, got, 3)
		require.Equal(t, 200, got[0].ErrorCode)
		require.Equal(t, c.code, got[1].ErrorCode)
		require.NotEmpty(t, got[1].Message)
		require.Equal(t, 400, got[2].ErrorCode)
	}
}

// Records that share a batch share its fate; which one is at fault is told by its place in the request.
func TestRecordsAreNamedByTheirPlace(t *testing.T) {
	f := startNode(t)
	compact := "compact"
	_, err := f.client.CreateTopic(t.Context(), client.NewTopic{
		Name: "latest", Partitions: 1, ReplicationFactor: -1,
		Configs: []client.NewConfig{{Name: "cleanup.policy", Value: &compact}},
	})
	require.NoError(t, err)
	const key, path = `{"key":{"type":"JSON","data":1}}`, "/topics/latest/records"
	const shared = "Not stored, since record 2 was refused: a compacted topic's records need a key"
	got := f.receipts(f.call("POST", f.at(path), `{"partition_id":9}`+key+`{}`+key))
	require.Contains(t, got[0].Message, "partition 0 only")
	require.Contains(t, got[1].Message, shared)
	require.Contains(t, got[2].Message, "A compacted topic's records need a key")
	require.Contains(t, got[3].Message, shared)
	var batch struct {
		Failures []struct{ ID, Message string }
	}
	a := f.call("POST", f.at(path+":batch"), `{"entries":[{"id":"a","partition_id":9},{"id":"b",`+key[1:]+`,{"id":"c"}]}`)
	require.Equal(t, 207, a.status, a.text)
	require.NoError(t, json.Unmarshal([]byte(a.text), &batch))
	require.Contains(t, batch.Failures[1].Message, shared)
	d := f.openAt(f.at(path))
	d.send(key)
	require.Equal(t, 200, d.receive().ErrorCode)
	d.send(key + `{}`)
	require.Contains(t, d.receive().Message, shared, "the place in the whole stream")
}

// failProduce answers for partition 1 with an error and for the others as if all were well.
func (f *fixture) failProduce(err *kerr.Error) {
	f.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, from := range req.(*kmsg.ProduceRequest).Topics {
			to := kmsg.NewProduceResponseTopic()
			to.Topic, to.TopicID = from.Topic, from.TopicID
			for _, p := range from.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.LogAppendTime = -1
				if rp.Partition = p.Partition; p.Partition == 1 {
					rp.ErrorCode = err.Code
				}
				to.Partitions = append(to.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, to)
		}
		return resp, nil, true
	})
}

// Malformed JSON ends the stream behind the records before it; what follows is not stored.
func TestRecordsMalformedEnds(t *testing.T) {
	good := `{"partition_id":0,"value":{"type":"JSON","data":1}}`
	for _, bad := range []string{
		`{"partition_id":0,"value":tru}`, `{]`, `[` + good + `]`, `,`, `5`, `"text"`, `}`, `{"a":"` + "\xff" + `"}`,
		`{"value":{"type":"JSON","data":1}`, `{"value":"\x"}`, `{"value":01}`, `{"a" 1}`,
	} {
		f := start(t, restv3.Options{})
		body := good + good + bad
		if !strings.HasPrefix(bad, `{"value":{`) { // cut at the end, it is followed by nothing
			body += good
		}
		for i, send := range []func() answer{
			func() answer { return f.post(body) },
			func() answer { return f.chunked(strings.NewReader(body)) },
			func() answer { return f.chunked(iotest.OneByteReader(strings.NewReader(body))) },
		} {
			got := f.receipts(send())
			require.Len(t, got, 3, bad)
			require.Equal(t, []int{200, 200, 400}, []int{got[0].ErrorCode, got[1].ErrorCode, got[2].ErrorCode})
			require.Contains(t, got[2].Message, "Malformed JSON", bad)
			require.Len(t, f.stored("orders", 0), 2*(i+1))
		}
	}
}

// The client sees the end of a stream with malformed JSON while it still holds its side open.
func TestRecordsMalformedEndsAnOpenStream(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d := f.open()
		d.send(`{"partition_id":0} {"partition_id":tru} `)
		require.Equal(t, 200, d.receive().ErrorCode)
		require.Equal(t, 400, d.receive().ErrorCode)
		d.ended()
	})
}

func TestRecordsRefuseBeforeTheStream(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		req := f.request("POST", f.at("/topics/orders/records"), "")
		req.Header.Set("Content-Type", "application/json")
		f.refused(f.do(req), 422, 42206, "Payload error. Request body is empty. Data is required.")
		f.refused(f.post(" \n"), 422, 42206, "")
		f.refused(f.post("null"), 422, 42206, "")
		for _, contentType := range []string{"text/plain", "", "application/x-ndjson", "application/vnd.kafka.json.v2+json"} {
			f.refused(f.post(`{}`, "Content-Type", contentType), 415, 415, "HTTP 415 Unsupported Media Type")
		}
		f.refused(f.post(`{}`, "Content-Type", "application/json; charset=utf-16"), 400, 400, "charset")
		f.refused(f.post(`{}`, "Content-Type", "application/json; charset"), 400, 400, "Content-Type")
		f.refused(f.post(`{}`, "Accept", "text/event-stream"), 406, 406, "")
		f.refused(f.post(`zzz`, "Content-Encoding", "gzip"), 400, 400, "gzip")
		f.refused(f.post(`{}`, "Content-Encoding", "br"), 415, 415, "")
		for _, p := range []int32{0, 1, 2} {
			require.Empty(t, f.stored("orders", p))
		}
		for _, contentType := range []string{"application/json;charset=UTF-8", `Application/JSON; charset="utf-8"`} {
			require.Len(t, f.receipts(f.post(`{}`, "Content-Type", contentType)), 1)
		}
	})
}

func TestRecordsWithoutARecord(t *testing.T) {
	f := start(t, restv3.Options{})
	got := f.receipts(f.chunked(strings.NewReader(" \n ")))
	require.Len(t, got, 1)
	require.Equal(t, 422, got[0].ErrorCode)
	require.Contains(t, got[0].Message, "Error: 42206 : ")
}

func TestRecordsInLatin1(t *testing.T) {
	f := start(t, restv3.Options{})
	body := "{\"partition_id\":0,\"value\":{\"type\":\"STRING\",\"data\":\"caf\xe9\"}}"
	f.receipts(f.post(body, "Content-Type", "application/json; charset=ISO-8859-1"))
	f.receipts(f.chunked(strings.NewReader(body), "Content-Type", "application/json; charset=iso-8859-1"))
	got := f.stored("orders", 0)
	require.Len(t, got, 2)
	require.Equal(t, "café", string(got[0].Value))
	require.Equal(t, "café", string(got[1].Value))
}

func TestRecordsExpandBodies(t *testing.T) {
	f := start(t, restv3.Options{})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.WriteString(z, `{"partition_id":0}{"partition_id":0}`)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.Len(t, f.receipts(f.post(packed.String(), "Content-Encoding", "gzip")), 2)
	require.Len(t, f.receipts(f.chunked(&packed, "Content-Encoding", "gzip")), 2)
}

// A record that does not fit the buffer grows it, up to the bound.
func TestRecordsOfAllSizes(t *testing.T) {
	f := start(t, restv3.Options{RecordBytes: 3 << 20},
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": "8000000"}))
	var body strings.Builder
	sizes := []int{1, 15_000, 17_000, 100_000, 600_000, 1 << 20, 2 << 20, 1}
	for _, size := range sizes {
		fmt.Fprintf(&body, `{"partition_id":0,"value":{"type":"STRING","data":"%s"}}`, strings.Repeat("x", size))
	}
	got := f.receipts(f.chunked(strings.NewReader(body.String())))
	require.Len(t, got, len(sizes))
	for i, r := range got {
		require.Equal(t, 200, r.ErrorCode, r.Message)
		require.Equal(t, sizes[i], r.Value.Size)
	}
	body.Reset()
	fmt.Fprintf(&body, `{"partition_id":0}{"value":{"type":"STRING","data":"%s"}}{}`, strings.Repeat("x", 5<<20))
	got = f.receipts(f.chunked(strings.NewReader(body.String())))
	require.Len(t, got, 2)
	require.Equal(t, 200, got[0].ErrorCode)
	require.Equal(t, 400, got[1].ErrorCode)
	require.Contains(t, got[1].Message, "3145728 bytes")
}

func TestRecordsEndAfterTheirTime(t *testing.T) {
	for allowed := 50 * time.Millisecond; ; allowed *= 4 {
		require.Less(t, allowed, time.Minute, "the time is over before a record has come")
		f := start(t, restv3.Options{StreamDuration: allowed})
		d := f.open()
		_, err := io.WriteString(d.w, `{"partition_id":0}{"partition_id":0,`)
		first := d.receive()
		if first.ErrorCode == 408 { // the machine is slower than that
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 200, first.ErrorCode)
		last := d.receive()
		require.Equal(t, 408, last.ErrorCode)
		require.Contains(t, last.Message, "Streaming connection open for longer than allowed")
		d.ended()
		return
	}
}

// A client that goes away in the middle of a record ends the stream; the record is not stored.
func TestRecordsClientGone(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d := f.open()
		d.send(`{"partition_id":0}{"partition_id":0,"value":`)
		require.Equal(t, 200, d.receive().ErrorCode)
		require.NoError(t, d.resp.Body.Close())
		require.NoError(t, d.w.CloseWithError(io.ErrClosedPipe))
	})
}

// A node that stops ends the streams that are open.
func TestRecordsEndWithTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := startWith(t, restv3.Options{}, setup{srv: func(s *httptest.Server) {
		s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
		s.Start()
	}})
	d := f.open()
	d.send(`{"partition_id":0}`)
	require.Equal(t, 200, d.receive().ErrorCode)
	cancel()
	d.ended()
}

// What curl does with a large body: it waits for 100 before it sends.
func TestRecordsExpectContinue(t *testing.T) {
	f := start(t, restv3.Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n", f.at("/topics/orders/records"))
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
	body := `{"partition_id":0}`
	_, err = fmt.Fprintf(conn, "%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	require.NoError(t, err)
	_, err = r.ReadString('\n') // the blank line behind 100
	require.NoError(t, err)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `"error_code":200`)
}

// An answer with many receipts is not held in memory.
func TestRecordsManyReceipts(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		got := f.receipts(f.post(strings.Repeat(`{}`, 25_000)))
		require.Len(t, got, 25_000)
	})
}

func TestBatchAnswersBothLists(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.call("POST", f.at("/topics/orders/records:batch"), `{"entries":[
		{"id":"a","partition_id":0,"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":[1, 2]},
			"timestamp":"2026-01-02T03:04:05Z"},
		{"id":"b","value":{"type":"BINARY","data":1}},
		{"id":"c","partition_id":0},
		{"id":"d","partition_id":-1},
		{"id":"e","value":{"data":1}}]}`)
		require.Equal(t, 207, a.status, a.text)
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
		require.JSONEq(t, `[{"id":"a","cluster_id":"`+f.id+`","topic_name":"orders","partition_id":0,"offset":0,
		"timestamp":"2026-01-02T03:04:05Z","key":{"type":"STRING","size":1},"value":{"type":"JSON","size":5}}]`,
			mustJSON(t, a.body["successes"].([]any)[:1]))
		require.Equal(t, "c", a.body["successes"].([]any)[1].(map[string]any)["id"])
		var failures []string
		for _, e := range a.body["failures"].([]any) {
			m := e.(map[string]any)
			failures = append(failures, fmt.Sprintf("%s %v", m["id"], m["error_code"]))
		}
		require.Equal(t, []string{"b 400", "d 40402", "e 422"}, failures)
		require.Contains(t, a.text, "Bad Request: data=1 is not a base64 string.")

		a = f.call("POST", f.at("/topics/orders/records:batch"), `{"entries":[{"id":"a"}]}`)
		require.Contains(t, a.text, `"failures":[]`)
		a = f.call("POST", f.at("/topics/orders/records:batch"), `{"entries":[{"id":"a","partition_id":-1}]}`)
		require.Contains(t, a.text, `"successes":[]`)
	})
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func TestBatchRefuses(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		path := f.at("/topics/orders/records:batch")
		ten := strings.Repeat(`{"id":"%d"},`, 10)
		numbered := func(n int) string {
			args := make([]any, 10)
			for i := range args {
				args[i] = i
			}
			return `{"entries":[` + fmt.Sprintf(ten, args...) + fmt.Sprintf(`{"id":"last%d"}`, n) + `]}`
		}
		f.refused(f.call("POST", path, numbered(0)), 422, 42208, "Too many entries in batch.")
		a := f.call("POST", path, strings.Replace(numbered(0), `{"id":"0"},`, "", 1))
		require.Equal(t, 207, a.status)
		require.Len(t, a.body["successes"], 10)
		f.refused(f.call("POST", path, "{}"), 422, 42208, "Empty batch.")
		f.refused(f.call("POST", path, `{"entries":[{"id":"a","unknown":1}]}`), 422, 422, "Unrecognized field: unknown")
		f.refused(f.call("POST", path, `{"entries":`), 400, 400, "Malformed JSON")
		f.refused(f.call("POST", path, `{}`, "Content-Type", "text/plain"), 415, 415, "")
		f.refused(f.call("POST", path, `{}`, "Accept", "text/plain"), 406, 406, "")
	})
}

// Offsets beyond what a float holds come through.
func TestRecordsBigOffsets(t *testing.T) {
	f := start(t, restv3.Options{})
	const big = int64(1)<<53 + 1
	f.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		from := req.(*kmsg.ProduceRequest).Topics[0]
		to := kmsg.NewProduceResponseTopic()
		to.Topic, to.TopicID = from.Topic, from.TopicID
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.Partition, rp.BaseOffset, rp.LogAppendTime = from.Partitions[0].Partition, big, 1612552482000
		to.Partitions = append(to.Partitions, rp)
		resp.Topics = append(resp.Topics, to)
		return resp, nil, true
	})
	got := f.receipts(f.post(`{"partition_id":0,"timestamp":"2026-01-02T03:04:05Z"}`))
	require.Equal(t, big, got[0].Offset)
	require.Equal(t, "2021-02-05T19:14:42Z", got[0].Timestamp, "the broker's time counts where it sets one")
}

// Where the broker sets the time, the receipt shows the broker's.
func TestRecordsLogAppendTime(t *testing.T) {
	f := startNode(t)
	path := f.at("/topics/orders/configs/message.timestamp.type")
	require.Equal(t, 204, f.call("PUT", path, `{"value":"LogAppendTime"}`).status)
	before := time.Now().Truncate(time.Millisecond)
	got := f.receipts(f.post(`{"partition_id":0,"timestamp":"2001-01-02T03:04:05Z"}`))
	at, err := time.Parse(time.RFC3339, got[0].Timestamp)
	require.NoError(t, err)
	require.False(t, at.Before(before), got[0].Timestamp)
}

func TestRecordsBinaryOfAllBytes(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		text := strings.ReplaceAll(base64.StdEncoding.EncodeToString(all), "/", `\/`)
		part := `{"type":"BINARY","data":"` + text + `"}`
		f.receipts(f.post(`{"partition_id":0,"key":` + part + `,"value":` + part + `}`))
		got := f.stored("orders", 0)
		require.Equal(t, all, got[0].Key)
		require.Equal(t, all, got[0].Value)
	})
}
