package native_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
)

const (
	avroOrder = `{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},` +
		`{"name":"note","type":["null","string"]}]}`
	protoOrder  = "syntax = \"proto3\"; package p; message Order { int32 id = 1; } message Other { bool ok = 1; }"
	recordsJSON = "application/vnd.millrace.records+json"
)

// schemaID registers a schema.
func (e *writes) schemaID(subject, typ, text string) (id int, guid []byte) {
	e.t.Helper()
	body, err := json.Marshal(map[string]string{"schemaType": typ, "schema": text})
	require.NoError(e.t, err)
	var out struct {
		ID   int
		GUID string
	}
	r := e.post("/subjects/"+subject+"/versions", "application/json", string(body))
	require.Equal(e.t, 200, r.status, r.body)
	require.NoError(e.t, json.Unmarshal([]byte(r.body), &out))
	require.NotZero(e.t, out.ID)
	_, err = fmt.Sscanf("01"+strings.ReplaceAll(out.GUID, "-", ""), "%x", &guid)
	require.NoError(e.t, err, out.GUID)
	return out.ID, guid
}

func framed(id int, value string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), value...)
}

// put stores records in partition 0 of a topic as they are.
func (e *writes) put(topic string, records ...record.Record) {
	e.t.Helper()
	of, err := e.client.Topic(e.t.Context(), topic, client.Refuse)
	require.NoError(e.t, err)
	s := e.client.NewSender(of, nil, 0, client.SendOptions{Acks: client.AcksAll, Timeout: time.Minute})
	defer s.Release()
	for _, r := range records {
		require.NoError(e.t, s.Add(r, 0))
	}
	require.NoError(e.t, s.Send(e.t.Context()))
	for _, b := range s.Batches() {
		require.NoError(e.t, b.Err)
	}
}

// lines reads a topic as lines.
func (e *writes) lines(query string) []string {
	e.t.Helper()
	r := e.shown(path+"?offset=earliest&"+query, "Accept", "application/x-ndjson")
	require.Equal(e.t, 200, r.status, r.body)
	return strings.Split(strings.TrimSpace(r.body), "\n")
}

// A value that names its schema is shown as that schema reads it, in every form that a read has.
func TestReadBySchema(t *testing.T) {
	e := onNode(t)
	avro, guid := e.schemaID("t-value", "AVRO", avroOrder)
	proto, _ := e.schemaID("p", "PROTOBUF", protoOrder)
	text, _ := e.schemaID("t-key", "AVRO", `"string"`)
	document, _ := e.schemaID("j", "JSON", `{"type":"object"}`)
	e.put("t",
		record.Record{Key: framed(text, "\x02k"), Value: framed(avro, "\x06\x02\x02n")},
		record.Record{Key: []byte("plain"), Value: framed(proto, "\x00\x08\x05")},
		record.Record{Value: framed(proto, "\x02\x02\x08\x01")},
		record.Record{Value: framed(document, "{\n \"a\": 1}")},
		record.Record{Value: []byte("\x06\x00"), Headers: []record.Header{{Key: "__value_schema_id", Value: guid}}},
		record.Record{Key: framed(text, "\x02k")},
	)
	want := []string{
		fmt.Sprintf(`"key":"k","key_schema_id":%d,"value":{"id":3,"note":{"string":"n"}},"value_schema_id":%d}`, text, avro),
		fmt.Sprintf(`"key_text":"plain","value":{"id":5},"value_schema_id":%d}`, proto),
		fmt.Sprintf(`"value":{"ok":true},"value_schema_id":%d,"value_schema_message":"p.Other"}`, proto),
		fmt.Sprintf(`"value":{  "a": 1},"value_schema_id":%d}`, document),
		fmt.Sprintf(`"value":{"id":3,"note":null},"value_schema_id":%d,"headers":[{"name":"__value_schema_id",`, avro),
		fmt.Sprintf(`"key":"k","key_schema_id":%d,"value":null}`, text),
	}
	check := func(name string, got []string) {
		t.Helper()
		require.Len(t, got, len(want), name)
		for i := range want {
			require.True(t, json.Valid([]byte(got[i])), got[i])
			require.Contains(t, got[i], want[i], name)
			require.NotContains(t, got[i], "decode_error", name)
		}
	}
	for range 2 { // the second time the batches are known
		check("lines", e.lines(""))
	}
	check("of a partition", strings.Split(strings.TrimSpace(e.shown(
		"/v1/topics/t/partitions/0/records?offset=0", "Accept", "application/x-ndjson").body), "\n"))

	var page struct{ Records []json.RawMessage }
	r := e.shown(path + "?offset=earliest")
	require.NoError(t, json.Unmarshal([]byte(r.body), &page))
	for i, got := range page.Records {
		require.Contains(t, strings.ReplaceAll(string(got), "\n", " "), want[i])
	}
	check("a stream", e.events("/v1/topics/t/records?offset=earliest", len(want)))
	check("a stream by a group", e.events("/v1/groups/s/records?topics=t&auto_offset_reset=earliest", len(want)))
	r = e.shown("/v1/groups/g/records?topics=t&auto_offset_reset=earliest&wait=60s", "Accept", "application/x-ndjson")
	check("a group", strings.Split(strings.TrimSpace(r.body), "\n"))
}

// events are the data of the first events of a stream.
func (e *writes) events(path string, n int) (out []string) {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.server.URL+path, nil)
	require.NoError(e.t, err)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := e.http.Do(req)
	require.NoError(e.t, err)
	defer resp.Body.Close()
	var text []byte
	for buf := make([]byte, 4096); ; {
		out = out[:0]
		for event := range strings.SplitSeq(string(text), "\n\n") {
			if _, data, ok := strings.Cut(event, "\ndata: "); ok && strings.HasPrefix(data, `{"`) &&
				strings.Contains(data, `"offset"`) {
				out = append(out, data)
			}
		}
		if strings.HasSuffix(string(text), "\n\n") && len(out) >= n {
			return out
		}
		k, err := resp.Body.Read(buf)
		require.True(e.t, err == nil || err == io.EOF && k > 0, "%v: %s", err, text)
		text = append(text, buf[:k]...)
	}
}

// What is asked for in the format of schemas and is none comes as base64, with the reason, and the read goes on. What
// is not asked for so is shown as it would be without schemas.
func TestReadWhatHasNoSchema(t *testing.T) {
	e := onNode(t)
	avro, _ := e.schemaID("t-value", "AVRO", avroOrder)
	unframed, cut := []byte(`{"a":1}`), framed(avro, "\x06")
	unknown := framed(999, "\xff\x00")
	e.put("t", record.Record{Value: unframed}, record.Record{Value: cut}, record.Record{Value: unknown},
		record.Record{Key: []byte("k"), Value: framed(avro, "\x06\x00")}, record.Record{Value: []byte("\x00\x00\x00\x00")})
	in64 := func(b []byte) string { return `"value_base64":"` + base64.StdEncoding.EncodeToString(b) + `"` }
	got := e.lines("format=avro&key_format=avro")
	for i, want := range [][]string{
		{in64(unframed), `"decode_error":"value cannot be decoded: the bytes name no schema`},
		{in64(cut), `"decode_error":"value cannot be decoded: `},
		{in64(unknown), `"decode_error":"value cannot be decoded: schema id 999 is not in the registry"`},
		{`"key_base64":"aw=="`, `"value":{"id":3,"note":null},"value_schema_id":`, `"decode_error":"key cannot be`},
		{in64([]byte("\x00\x00\x00\x00")), "decode_error"},
	} {
		for _, part := range want {
			require.Contains(t, got[i], part)
		}
		require.True(t, json.Valid([]byte(got[i])), got[i])
	}
	for _, format := range []string{"protobuf", "jsonschema"} {
		require.Contains(t, e.lines("format=" + format)[3], fmt.Sprintf("schema id %d is of type AVRO, not", avro))
	}
	got = e.lines("")
	for i, want := range []string{
		`"value":{"a":1}}`, `"value_text":"\u0000\u0000\u0000\u0000\u0001\u0006"`, in64(unknown),
		`"key_text":"k","value":{"id":3,"note":null}`, `"value_text":"\u0000\u0000\u0000\u0000"`,
	} {
		require.Contains(t, got[i], want)
		require.NotContains(t, got[i], "decode_error")
	}
	require.Contains(t, e.lines("format=base64")[3], in64(framed(avro, "\x06\x00")))
	require.Contains(t, e.shown(path+"?format=xml").body, "avro, jsonschema or protobuf")
}

// A page is told apart from what it will be when a schema comes that is not there yet.
func TestPagesChangeWithSchemas(t *testing.T) {
	e := onNode(t)
	avro, _ := e.schemaID("t-value", "AVRO", `"int"`)
	e.put("t", record.Record{Value: framed(avro+1, "\x06")}, record.Record{Value: []byte("1")})
	query := path + "?offset=earliest&max_records=1"
	before := e.shown(query)
	require.Contains(t, before.body, "value_text")
	require.Equal(t, 304, e.shown(query, "If-None-Match", before.header.Get("Etag")).status)
	e.schemaID("t-value", "AVRO", `"long"`)
	after := e.shown(query, "If-None-Match", before.header.Get("Etag"))
	require.Equal(t, 200, after.status)
	require.Contains(t, after.body, `"value":3,"value_schema_id":`)
	require.Equal(t, 304, e.shown(query, "If-None-Match", after.header.Get("Etag")).status)
}

// A value that reads long ends the page, and a group's page shows what it has no room for as it is.
func TestDecodedPagesAreBounded(t *testing.T) {
	e := onNode(t)
	name := strings.Repeat("n", 200_000)
	id, _ := e.schemaID("t-value", "AVRO", `{"type":"record","name":"R","fields":[{"name":"`+name+`","type":"int"}]}`)
	const count = 200
	var records []record.Record
	for range count {
		records = append(records, record.Record{Value: framed(id, "\x00")})
	}
	e.put("t", records...)
	next, seen := path+"?offset=earliest", 0
	for pages := 1; seen < count; pages++ {
		require.Less(t, pages, 5)
		r := e.shown(next)
		require.Equal(t, 200, r.status)
		require.Less(t, len(r.body), 20<<20)
		n := strings.Count(r.body, `"value_schema_id":`)
		require.NotZero(t, n)
		seen += n
		next = path + "?from=" + r.header.Get("Next")
	}
	r := e.shown("/v1/groups/g/records?topics=t&auto_offset_reset=earliest&wait=60s")
	require.Less(t, len(r.body), 20<<20)
	require.Equal(t, count, strings.Count(r.body, `"offset":`)-1)
	require.Contains(t, r.body, `"decode_error":"value is not decoded: the answer holds much already`)
}

// The record of a key is read by its schema too.
func TestKeyBySchema(t *testing.T) {
	e := onNode(t)
	id, _ := e.schemaID("c-value", "AVRO", `"int"`)
	e.call(http.MethodPost, "/v1/topics", `{"name":"c","configs":{"cleanup.policy":"compact"}}`, 201, nil)
	e.put("c", record.Record{Key: []byte("k"), Value: framed(id, "\x06")})
	r := e.shown("/v1/topics/c/keys/k")
	require.Equal(t, 200, r.status, r.body)
	require.Contains(t, r.body, fmt.Sprintf(`"value":3,"value_schema_id":%d`, id))
	require.Contains(t, e.shown("/v1/topics/c/keys/k?format=avro").body, `"value":3`)
	require.Contains(t, e.shown("/v1/topics/c/keys/k?format=protobuf").body, `"value_base64"`)
	require.Equal(t, string(framed(id, "\x06")), e.shown("/v1/topics/c/keys/k", "Accept", "application/octet-stream").body)
}

// shown is the answer to a read.
func (e *writes) shown(path string, headers ...string) reply {
	e.t.Helper()
	return e.send(http.MethodGet, path, "", headers...)
}
