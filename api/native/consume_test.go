package native_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"millrace/record"
)

func TestReadPage(t *testing.T) {
	onEach(t, 1, "t", testReadPage)
}

func testReadPage(t *testing.T, e *reads) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 7e6, time.UTC)
	e.put("t", 0,
		&kgo.Record{Key: []byte("k"), Value: []byte(`{"a": 1}`), Timestamp: at,
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "b", Value: []byte{0xff}}, {Key: "n"}}},
		&kgo.Record{Key: []byte("1"), Value: []byte("text"), Timestamp: at},
		&kgo.Record{Value: []byte{0xff, 0}, Timestamp: at},
		&kgo.Record{Key: []byte{0xfe}, Timestamp: at},
		&kgo.Record{Key: []byte{}, Value: []byte("null"), Timestamp: at},
	)
	r := e.get("/v1/topics/t/records", "")
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	require.Equal(t, "5", r.header.Get("Next-Offset"))
	require.Equal(t, "5", r.header.Get("High-Watermark"))
	require.Equal(t, "no-store", r.header.Get("Cache-Control"))
	stamp := `"timestamp":"2026-01-31T12:00:00.007Z"`
	require.Equal(t, strings.Join([]string{
		`{"records":[{"partition":0,"offset":0,` + stamp + `,"key_text":"k","value":{"a": 1},"headers":[` +
			`{"name":"h","value":"v"},{"name":"b","value_base64":"/w=="},{"name":"n","value":null}]}`,
		`{"partition":0,"offset":1,` + stamp + `,"key":1,"value_text":"text"}`,
		`{"partition":0,"offset":2,` + stamp + `,"value_base64":"/wA="}`,
		`{"partition":0,"offset":3,` + stamp + `,"key_base64":"/g==","value":null}`,
		`{"partition":0,"offset":4,` + stamp + `,"key_text":"","value_text":"null"}],"next":"` + r.header.Get("Next") +
			`","high_watermarks":{"0":5}}`,
	}, ",")+"\n", r.body)
	require.True(t, strings.HasPrefix(r.header.Get("Next"), "5~"))
	require.Equal(t, `</v1/topics/t/records?from=`+r.header.Get("Next")+`>; rel="next"`, r.header.Get("Link"))
}

func TestReadForms(t *testing.T) {
	onEach(t, 1, "t", testReadForms)
}

func testReadForms(t *testing.T, e *reads) {
	e.put("t", 0,
		&kgo.Record{Key: []byte(`"k"`), Value: []byte("{\"a\":\r\n1}\n")},
		&kgo.Record{Key: []byte("k"), Value: []byte("x")},
		&kgo.Record{Key: []byte{0xff}, Value: []byte("null")},
	)
	for _, c := range []struct{ query, want string }{
		{"format=json&key_format=json", `"key":"k","value":{"a": 1} ` +
			`"key_base64":"aw==","value_base64":"eA==","decode_error":"key is not JSON; value is not JSON" ` +
			`"key_base64":"/w==","value_base64":"bnVsbA==","decode_error":"key is not JSON; value is the JSON text null, ` +
			`which would read as no value"`},
		{"format=text&key_format=text", `"key_text":"\"k\"","value_text":"{\"a\":\r\n1}\n" ` +
			`"key_text":"k","value_text":"x" ` +
			`"key_base64":"/w==","value_text":"null","decode_error":"key is not UTF-8"`},
		{"format=base64&key_format=base64", `"key_base64":"Imsi","value_base64":"eyJhIjoNCjF9Cg==" ` +
			`"key_base64":"aw==","value_base64":"eA==" "key_base64":"/w==","value_base64":"bnVsbA=="`},
		{"", `"key":"k","value":{"a":  1} "key_text":"k","value_text":"x" "key_base64":"/w==","value_text":"null"`},
	} {
		r := e.get("/v1/topics/t/records?"+c.query, "application/x-ndjson")
		require.Equal(t, http.StatusOK, r.status)
		require.Equal(t, "application/x-ndjson", r.header.Get("Content-Type"))
		lines := strings.Split(strings.TrimSuffix(r.body, "\n"), "\n")
		require.Len(t, lines, 3)
		for i, l := range lines {
			require.True(t, json.Valid([]byte(l)), l)
			_, l, _ = strings.Cut(l, `Z",`)
			lines[i] = strings.TrimSuffix(l, "}")
		}
		want := strings.ReplaceAll(c.want, `{"a": 1}`, `{"a":  1}`)
		require.Equal(t, want, strings.Join(lines, " "), c.query)
	}
}

func TestReadPosition(t *testing.T) {
	onEach(t, 3, "t", testReadPosition)
}

func testReadPosition(t *testing.T, e *reads) {
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for p := range int32(3) {
		for i := range 4 {
			e.put("t", p, &kgo.Record{Value: []byte(strconv.Itoa(int(p)*10 + i)),
				Timestamp: base.Add(time.Duration(i) * time.Minute)})
		}
	}
	sorted := func(p shownPage) []string {
		v := values(p.Records)
		slices.Sort(v)
		return v
	}
	require.Len(t, e.page("/v1/topics/t/records").Records, 12)
	require.Len(t, e.page("/v1/topics/t/records?offset=earliest").Records, 12)
	require.Empty(t, e.page("/v1/topics/t/records?offset=latest").Records)
	require.Equal(t, []string{"11", "12", "13"}, values(e.page("/v1/topics/t/partitions/1/records?offset=1").Records))
	late := base.Add(150 * time.Second)
	require.Equal(t, []string{"13", "23", "3"}, sorted(e.page("/v1/topics/t/records?timestamp="+
		strconv.FormatInt(late.UnixMilli(), 10))))
	zoned := late.In(time.FixedZone("", 2*3600)).Format(time.RFC3339Nano)
	require.Equal(t, []string{"13", "23", "3"}, sorted(e.page("/v1/topics/t/records?timestamp="+url.QueryEscape(zoned))))
	require.Equal(t, []string{"13", "23", "3"}, sorted(e.page("/v1/topics/t/records?timestamp="+zoned)))
	require.Empty(t, e.page("/v1/topics/t/records?timestamp=2999-01-01T00:00:00Z").Records)
	require.Equal(t, []string{"12", "13", "23", "3"}, sorted(e.page("/v1/topics/t/records?from=3,2,3")))
	require.Equal(t, []string{"13", "20", "21", "22", "23", "3"}, sorted(e.page("/v1/topics/t/records?from=3,3")))
	require.Equal(t, []string{"13"}, values(e.page("/v1/topics/t/partitions/1/records?from=1:3").Records))
	require.Equal(t, map[string]int64{"0": 4, "1": 4, "2": 4}, e.page("/v1/topics/t/records").HighWatermarks)
}

func TestReadBounds(t *testing.T) {
	onEach(t, 1, "t", testReadBounds)
}

func testReadBounds(t *testing.T, e *reads) {
	e.put("t", 0, &kgo.Record{Value: []byte(`"aaaa"`)}, &kgo.Record{Value: []byte(`"bbbb"`)},
		&kgo.Record{Value: []byte(`"cccc"`)})
	e.putValues("t", 0, 3, 3)
	for _, c := range []struct {
		query string
		want  int
	}{
		{"max_records=1", 1}, {"max_records=2", 2}, {"max_records=4", 4}, {"max_records=10000", 6},
		{"max_bytes=1", 1}, {"max_bytes=12", 2}, {"max_bytes=17", 2}, {"max_bytes=18", 3}, {"max_bytes=19", 4},
		{"max_bytes=18&max_records=1", 1}, {"", 6},
	} {
		r := e.page("/v1/topics/t/records?offset=0&" + c.query)
		require.Len(t, r.Records, c.want, c.query)
		rest := e.page("/v1/topics/t/records?from=" + r.Next)
		require.Len(t, rest.Records, 6-c.want, c.query)
	}
}

func TestReadPagesMeet(t *testing.T) {
	onEach(t, 3, "t", testReadPagesMeet)
}

func testReadPagesMeet(t *testing.T, e *reads) {
	for i := range 40 {
		e.putValues("t", int32(i*i%3), i, 1)
	}
	for _, bound := range []string{"max_records=1", "max_records=7", "max_bytes=3", "max_bytes=30", "max_records=39"} {
		var got []string
		path := "/v1/topics/t/records?" + bound
		for range 50 {
			r := e.page(path)
			if len(r.Records) == 0 {
				break
			}
			got = append(got, values(r.Records)...)
			path = "/v1/topics/t/records?" + bound + "&from=" + r.Next
		}
		require.Len(t, got, 40, bound)
		slices.Sort(got)
		require.Len(t, slices.Compact(got), 40, bound)
	}
}

func TestReadWaits(t *testing.T) {
	onEach(t, 2, "t", testReadWaits)
}

func testReadWaits(t *testing.T, e *reads) {
	start := time.Now()
	require.Empty(t, e.page("/v1/topics/t/records?wait=150ms").Records)
	require.GreaterOrEqual(t, time.Since(start), 150*time.Millisecond)
	got := e.later("/v1/topics/t/records?wait=60")
	e.putValues("t", 1, 7, 1)
	require.Equal(t, []string{"7"}, values(e.pageOf(got()).Records))
	start = time.Now()
	require.Len(t, e.page("/v1/topics/t/records?wait=60s").Records, 1)
	require.Less(t, time.Since(start), 40*time.Second)
}

func TestReadRefusals(t *testing.T) {
	e := newReads(t, 2, "t", "one")
	e.putValues("t", 0, 0, 3)
	for _, c := range []struct {
		path, accept string
		status       int
		detail       string
	}{
		{"/v1/topics/none/records", "", 404, "does not exist"},
		{"/v1/topics/a..b%2F..%2Fc/records", "", 400, "only letters"},
		{"/v1/topics/t/partitions/2/records", "", 404, ""},
		{"/v1/topics/t/partitions/x/records", "", 400, "want a number"},
		{"/v1/topics/t/partitions/-1/records", "", 400, "want a number"},
		{"/v1/topics/t/partitions/99999999999/records", "", 400, "want a number"},
		{"/v1/topics/t/records?offset=1", "", 400, "has 2 partitions"},
		{"/v1/topics/t/records?offset=-1", "", 400, "want earliest, latest"},
		{"/v1/topics/t/records?offset=01", "", 400, "want earliest, latest"},
		{"/v1/topics/t/records?offset=", "", 400, "want earliest, latest"},
		{"/v1/topics/t/records?offset=99999999999999999999", "", 400, "want earliest, latest"},
		{"/v1/topics/t/records?offset=latest&from=1,2", "", 400, "give one of them"},
		{"/v1/topics/t/records?timestamp=yesterday", "", 400, "RFC 3339"},
		{"/v1/topics/t/records?from=1,2,3", "", 400, "is of 3 partitions"},
		{"/v1/topics/t/records?from=1:2", "", 400, "of partition 1 alone"},
		{"/v1/topics/t/records?from=0,0~AAAA", "", 404, "drop from and start with offset=earliest"},
		{"/v1/topics/t/partitions/0/records?from=1,2", "", 400, "of the whole topic"},
		{"/v1/topics/t/partitions/0/records?from=1:0", "", 400, "of partition 1 alone"},
		{"/v1/topics/t/records?from=x", "", 400, "not a position"},
		{"/v1/topics/t/records?max_records=0", "", 400, "from 1 to 10000"},
		{"/v1/topics/t/records?max_records=10001", "", 400, "from 1 to 10000"},
		{"/v1/topics/t/records?max_bytes=0", "", 400, "from 1 to 16777216"},
		{"/v1/topics/t/records?max_bytes=16777217", "", 400, "from 1 to 16777216"},
		{"/v1/topics/t/records?wait=-1s", "", 400, "from 0 to 1m0s"},
		{"/v1/topics/t/records?wait=61", "", 400, "from 0 to 1m0s"},
		{"/v1/topics/t/records?wait=NaN", "", 400, "from 0 to 1m0s"},
		{"/v1/topics/t/records?wait=soon", "", 400, "from 0 to 1m0s"},
		{"/v1/topics/t/records?isolation=dirty", "", 400, "read_committed"},
		{"/v1/topics/t/records?rack=", "", 400, "1 to 255 characters"},
		{"/v1/topics/t/records?format=xml", "", 400, "format="},
		{"/v1/topics/t/records?key_format=xml", "", 400, "key_format="},
		{"/v1/topics/t/records?max_record=5", "", 400, "nknown parameter"},
		{"/v1/topics/t/records?wait=1&wait=1", "", 400, "twice"},
		{"/v1/topics/t/records?wait=%zz", "", 400, "The query"},
		{"/v1/topics/t/records", "application/xml", 406, "application/x-ndjson"},
		{"/v1/topics/t/records", "application/vnd.apache.kafka.recordbatch", 400, "has 2 partitions"},
		{"/v1/topics/t/records?max_records=5", "text/event-stream", 400, "for answers that end"},
		{"/v1/topics/t/partitions/0/records?offset=4", "", 416, "from 0 up to, but not including, 3"},
		{"/v1/topics/t/partitions/0/records?offset=4", "text/event-stream", 416, "from 0 up to, but not including, 3"},
		{"/v1/topics/t/partitions/0/records?offset=4", "application/vnd.apache.kafka.recordbatch", 416, "not including, 3"},
		{"/v1/topics/t/records?from=0,1", "", 416, "ffset 1 of t-1"},
	} {
		r := e.get(c.path, c.accept)
		require.Equal(t, c.status, r.status, "%s: %s", c.path, r.body)
		require.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
		var p struct {
			Status int
			Detail string
			Start  *int64 `json:"log_start_offset"`
			End    *int64 `json:"high_watermark"`
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &p))
		require.Contains(t, p.Detail, c.detail, c.path)
		require.Equal(t, c.status, p.Status)
		if c.status == 416 {
			require.NotNil(t, p.Start)
			require.NotNil(t, p.End)
		}
	}
	r := e.get("/v1/topics/t/records", "", "Last-Event-ID", "nonsense")
	require.Equal(t, 400, r.status)
}

func TestReadSealed(t *testing.T) {
	onEach(t, 2, "t", testReadSealed)
}

func testReadSealed(t *testing.T, e *reads) {
	e.putValues("t", 0, 0, 10)
	e.putValues("t", 1, 10, 10)
	for _, c := range []struct{ path, accept, cache string }{
		{"/v1/topics/t/records?from=1,1&max_records=5", "application/json", "private, max-age=60"},
		{"/v1/topics/t/records?max_records=5", "application/x-ndjson", "private, no-cache"},
		{"/v1/topics/t/partitions/1/records?offset=2&max_records=5", "application/cloudevents-batch+json",
			"private, max-age=60"},
		{"/v1/topics/t/partitions/1/records?offset=2&max_records=5", "application/vnd.apache.kafka.recordbatch",
			"private, max-age=60"},
	} {
		r := e.get(c.path, c.accept)
		require.Equal(t, 200, r.status)
		tag := r.header.Get("Etag")
		require.NotEmpty(t, tag)
		require.Equal(t, c.cache, r.header.Get("Cache-Control"))
		e.putValues("t", 0, 100, 1)
		again := e.get(c.path, c.accept, "If-None-Match", `"x", `+tag)
		require.Equal(t, http.StatusNotModified, again.status)
		require.Empty(t, again.body)
		require.Equal(t, tag, again.header.Get("Etag"))
		require.Equal(t, r.header.Get("Next"), again.header.Get("Next"))
		require.Equal(t, 200, e.get(c.path, c.accept, "If-None-Match", `"x"`).status)
		require.NotEqual(t, tag, e.get(strings.Replace(c.path, "max_records=5", "max_records=4", 1), c.accept).
			header.Get("Etag"))
	}
	open := e.get("/v1/topics/t/records?from=1,1", "application/json")
	require.Empty(t, open.header.Get("Etag"))
	require.Equal(t, "no-store", open.header.Get("Cache-Control"))
}

func TestReadBatches(t *testing.T) {
	onEach(t, 1, "t", testReadBatches)
}

func testReadBatches(t *testing.T, e *reads) {
	e.put("t", 0, &kgo.Record{Value: []byte("a")}, &kgo.Record{Value: []byte("b")})
	e.put("t", 0, &kgo.Record{Value: []byte("c")})
	for _, c := range []struct {
		query string
		want  string
		next  string
	}{
		{"", "abc", "3"}, {"offset=1", "abc", "3"}, {"offset=2", "c", "3"}, {"offset=3", "", "3"},
		{"max_records=1", "ab", "2"}, {"max_records=3", "abc", "3"}, {"max_bytes=1", "ab", "2"},
	} {
		r := e.get("/v1/topics/t/records?"+c.query, "application/vnd.apache.kafka.recordbatch")
		require.Equal(t, 200, r.status)
		got := ""
		for rest := []byte(r.body); len(rest) > 0; {
			b, next, err := record.Next(rest)
			require.NoError(t, err)
			require.NoError(t, b.Verify())
			rd := record.NewReader(b, 1<<20)
			for rec := (record.Record{}); rd.Next(&rec); {
				got += string(rec.Value)
			}
			require.NoError(t, rd.Err())
			rest = next
		}
		require.Equal(t, c.want, got, c.query)
		require.Equal(t, c.next, r.header.Get("Next-Offset"), c.query)
	}
}

func TestReadCloudEvents(t *testing.T) {
	onEach(t, 1, "t", testReadCloudEvents)
}

func testReadCloudEvents(t *testing.T, e *reads) {
	header := func(kv ...string) (out []kgo.RecordHeader) {
		for i := 0; i < len(kv); i += 2 {
			out = append(out, kgo.RecordHeader{Key: kv[i], Value: []byte(kv[i+1])})
		}
		return out
	}
	at := time.UnixMilli(1)
	e.put("t", 0,
		&kgo.Record{Key: []byte("k"), Value: []byte(`{"x":1}`), Timestamp: at, Headers: header("ce_specversion", "1.0",
			"ce_id", "1", "ce_source", "/s", "ce_type", "ty", "content-type", "application/json", "ce_Bad", "x",
			"ce_id", "2", "other", "y")},
		&kgo.Record{Value: []byte("<x/>"), Timestamp: at, Headers: header("ce_specversion", "1.0", "ce_id", "2",
			"ce_source", "/s", "ce_type", "ty", "content-type", "text/xml; charset=utf-8", "ce_partitionkey", "q")},
		&kgo.Record{Value: []byte(`{"specversion":"1.0","id":"3","source":"/s","type":"ty"}`), Timestamp: at,
			Headers: header("content-type", "application/cloudevents+json; charset=utf-8")},
		&kgo.Record{Key: []byte("k"), Value: []byte(`5`), Timestamp: at},
		&kgo.Record{Value: []byte("text"), Timestamp: at},
		&kgo.Record{Value: []byte{0xff}, Timestamp: at},
		&kgo.Record{Timestamp: at},
	)
	r := e.get("/v1/topics/t/records", "application/cloudevents-batch+json")
	require.Equal(t, 200, r.status)
	require.Equal(t, "application/cloudevents-batch+json", r.header.Get("Content-Type"))
	wrap := func(offset, rest string) string {
		return `{"specversion":"1.0","id":"0-` + offset + `","source":"/v1/topics/t","type":"millrace.record",` +
			`"time":"1970-01-01T00:00:00.001Z"` + rest + `}`
	}
	require.Equal(t, "["+strings.Join([]string{
		`{"specversion":"1.0","id":"1","source":"/s","type":"ty","partitionkey":"k","datacontenttype":"application/json",` +
			`"data":{"x":1}}`,
		`{"specversion":"1.0","id":"2","source":"/s","type":"ty","partitionkey":"q","datacontenttype":"text/xml; ` +
			`charset=utf-8","data":"<x/>"}`,
		`{"specversion":"1.0","id":"3","source":"/s","type":"ty"}`,
		wrap("3", `,"partitionkey":"k","datacontenttype":"application/json","data":5`),
		wrap("4", `,"datacontenttype":"text/plain","data":"text"`),
		wrap("5", `,"datacontenttype":"application/octet-stream","data_base64":"`+
			base64.StdEncoding.EncodeToString([]byte{0xff})+`"`),
		wrap("6", ""),
	}, ",")+"]\n", r.body)
}

func TestReadCompressed(t *testing.T) {
	e := newReads(t, 1, "t")
	for _, codec := range []kgo.CompressionCodec{kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(),
		kgo.ZstdCompression()} {
		p, err := kgo.NewClient(kgo.SeedBrokers(e.cluster.ListenAddrs()[0]), kgo.ProducerBatchCompression(codec))
		require.NoError(t, err)
		var records []*kgo.Record
		for range 100 {
			records = append(records, &kgo.Record{Topic: "t", Value: []byte(`"` + strings.Repeat("x", 200) + `"`)})
		}
		require.NoError(t, p.ProduceSync(t.Context(), records...).FirstErr())
		p.Close()
	}
	got := 0
	path := "/v1/topics/t/records?max_bytes=5000"
	for {
		r := e.page(path)
		if len(r.Records) == 0 {
			break
		}
		require.LessOrEqual(t, len(r.Records), 24)
		require.EqualValues(t, got, r.Records[0].Offset)
		got += len(r.Records)
		path = "/v1/topics/t/records?max_bytes=5000&from=" + r.Next
	}
	require.Equal(t, 400, got)
}
