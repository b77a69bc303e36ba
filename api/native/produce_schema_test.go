package native_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/record"
)

// What was read by its schema can be posted back as it is, and is stored byte for byte as it was.
func TestPostBackWhatWasRead(t *testing.T) {
	e := onNode(t)
	avro, guid := e.schemaID("t-value", "AVRO", avroOrder)
	optional, _ := e.schemaID("o", "AVRO", `["null","int"]`)
	proto, _ := e.schemaID("p", "PROTOBUF", protoOrder)
	text, _ := e.schemaID("t-key", "AVRO", `"string"`)
	in := []record.Record{
		{Key: framed(text, "\x02k"), Value: framed(avro, "\x06\x02\x02n")},
		{Key: []byte("plain"), Value: framed(proto, "\x00\x08\x05")},
		{Value: framed(proto, "\x02\x02\x08\x01")}, {Value: framed(optional, "\x00")},
		{Value: []byte("\x06\x00"), Headers: []record.Header{
			{Key: "a", Value: []byte("b")}, {Key: "__value_schema_id", Value: guid},
		}},
		{Key: framed(text, "\x02k")}, {Key: framed(optional, "\x00"), Value: []byte("x")}, {Value: framed(999, "\xff")},
	}
	e.put("t", in...)
	const ndjson = "application/vnd.millrace.records+ndjson"
	e.stored(e.post(path, ndjson, strings.Join(e.lines("format=auto"), "\n")))
	got := e.records("t", 0)
	require.Len(t, got, 2*len(in))
	got = got[len(in):]
	in[4] = record.Record{Value: framed(avro, "\x06\x00"), Headers: in[4].Headers[:1]} // the frame goes before the value
	for i := range in {
		require.Equal(t, in[i].Key, got[i].Key, i)
		require.Equal(t, in[i].Value, got[i].Value, i)
		require.Equal(t, append([]record.Header{}, in[i].Headers...), append([]record.Header{}, got[i].Headers...), i)
	}
	// In a transaction as well.
	e.stored(e.post(path, recordsJSON, "["+strings.Join(e.lines("max_records=3"), ",")+"]"))
	first := strings.Replace(e.lines("max_records=1")[0], "{", `{"topic":"t",`, 1)
	r := e.post("/v1/transactions", "application/json", `{"records":[`+first+`]}`)
	require.Equal(t, 200, r.status, r.body)
	all := e.records("t", 0)
	require.Equal(t, string(in[0].Value), string(all[len(all)-1].Value))
}

// One line of curl produces by a schema from JSON.
func TestProduceBySchema(t *testing.T) {
	e := onNode(t)
	e.schemaID("t-value", "AVRO", `"int"`)
	id, _ := e.schemaID("t-value", "AVRO", `"long"`)
	key, _ := e.schemaID("t-key", "AVRO", `"string"`)
	e.stored(e.post(path+"?value_schema=latest", "", `3`))
	e.stored(e.post(fmt.Sprintf("%s?value_schema_id=%d&key_schema_id=%d&key=%%22k%%22", path, id, key), "", `4`))
	e.stored(e.post(path+"?value_schema=latest&key_schema=latest&key=%22k%22", "application/x-ndjson", "5\nnull\n"))
	got := e.records("t", 0)
	require.Len(t, got, 4)
	for i, want := range [][2][]byte{
		{nil, framed(id, "\x06")}, {framed(key, "\x02k"), framed(id, "\x08")}, {framed(key, "\x02k"), framed(id, "\x0a")},
		{framed(key, "\x02k"), nil},
	} {
		require.Equal(t, want[0], got[i].Key)
		require.Equal(t, want[1], got[i].Value)
	}
}

func TestProduceBySchemaRefusals(t *testing.T) {
	e := onNode(t)
	id, _ := e.schemaID("t-value", "AVRO", `"int"`)
	proto, _ := e.schemaID("p", "PROTOBUF", protoOrder)
	lines := "application/x-ndjson"
	for _, c := range []struct {
		query, mediaType, body string
		status                 int
		name, detail           string
	}{
		{"value_schema_id=999", "", "1", 422, "SCHEMA_NOT_FOUND", "id 999"},
		{"key_schema=latest&key=1", "", "1", 422, "SCHEMA_NOT_FOUND", "t-key"},
		{fmt.Sprintf("value_schema_id=%d", id), lines, "1\n\"x\"\n", 422, "SCHEMA_MISMATCH", "Line 2: the value cannot be"},
		{"value_schema_id=0", "", "1", 400, "INVALID_PARAMETER", "value_schema_id"},
		{"value_schema=3", "", "1", 400, "INVALID_PARAMETER", "value_schema_id takes the id"},
		{"value_schema=latest&value_schema_id=1", "", "1", 400, "INVALID_PARAMETER", "anew"},
		{"value_schema=latest&value_schema=latest", "", "1", 400, "INVALID_PARAMETER", "twice"},
		{"key_schema=latest", "", "1", 400, "INVALID_PARAMETER", "parameter key"},
		{"key_schema=latest&key=a", "", "1", 400, "INVALID_PARAMETER", "JSON"},
		{"value_schema=latest", "text/plain", "1", 400, "INVALID_PARAMETER", "value_schema_id"},
		{"value_schema=latest", recordsJSON, `[{"value":1}]`, 400, "INVALID_PARAMETER", "members"},
		{"", recordsJSON, `[{"value":1},{"value":1,"value_schema_id":999}]`, 422, "SCHEMA_NOT_FOUND", "Record 1: "},
		{"", recordsJSON, `[{"value":"x","value_schema_id":` + fmt.Sprint(id) + `}]`, 422, "SCHEMA_MISMATCH", ""},
		{"", recordsJSON, `[{"value_schema_id":` + fmt.Sprint(id) + `}]`, 422, "SCHEMA_MISMATCH", "value"},
		{"", recordsJSON, `[{"value_text":"x","value_schema_id":1}]`, 400, "MALFORMED_BODY", "goes with value"},
		{"", recordsJSON, `[{"key_base64":"","key_schema_id":1}]`, 400, "MALFORMED_BODY", "goes with key"},
		{"", recordsJSON, `[{"value":1,"value_schema_id":"1"}]`, 400, "MALFORMED_BODY", "whole number"},
		{"", recordsJSON, `[{"value":1,"value_schema_id":1,"value_schema_id":1}]`, 400, "MALFORMED_BODY", "twice"},
		{"", recordsJSON, `[{"value":1,"value_schema_message":"p.Other"}]`, 400, "MALFORMED_BODY", "goes with"},
		{"", recordsJSON, `[{"value":{},"value_schema_message":"p.No","value_schema_id":` + fmt.Sprint(proto) + `}]`, 422,
			"SCHEMA_MISMATCH", "p.No"},
	} {
		p := e.problem(e.post(path+"?"+c.query, c.mediaType, c.body), c.status, c.name)
		require.Contains(t, p["detail"], c.detail, c.query+c.body)
		require.Equal(t, "failed", p["outcome"])
	}
	require.Empty(t, e.records("t", 0))
	e.stored(e.post(path, recordsJSON, `[{"value":1,"value_schema_id":null,"key_schema_message":null}]`))

	// Beside a cluster without a registry.
	w := newWrites(t, api.Limits{})
	w.problem(w.post(path, recordsJSON, `[{"value":1,"value_schema_id":1}]`), 422, "UNPROCESSABLE_BODY")
}
