package restv2_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
)

const (
	avroType       = "application/vnd.kafka.avro.v2+json"
	jsonSchemaType = "application/vnd.kafka.jsonschema.v2+json"
	protobufType   = "application/vnd.kafka.protobuf.v2+json"

	avroOrder = `{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},` +
		`{"name":"note","type":["null","string"]}]}`
	protoOrder = "syntax = \"proto3\"; message Order { int32 id = 1; } message Other { bool ok = 1; }"
)

// schemaID registers a schema.
func (f *fixture) schemaID(subject, typ, text string) int {
	f.t.Helper()
	body, err := json.Marshal(map[string]string{"schemaType": typ, "schema": text})
	require.NoError(f.t, err)
	a := f.call("POST", "/subjects/"+subject+"/versions", "application/json", string(body))
	require.Equal(f.t, 200, a.status, a.text)
	var out struct{ ID int }
	a.decode(f.t, &out)
	return out.ID
}

// framed is a value behind the frame of an id, in base64.
func framed(id int, value string) string {
	return base64.StdEncoding.EncodeToString(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), value...))
}

func (f *fixture) storeBytes(topic string, records ...string) {
	f.t.Helper()
	f.produced("/topics/"+topic+"/partitions/0", binaryType, `{"records":[`+strings.Join(records, ",")+`]}`)
}

func earliest(format string) string {
	return `{"format":"` + format + `","auto.offset.reset":"earliest","auto.commit.enable":"false"}`
}

// What was produced in a format of schemas is read in it, keys too.
func TestConsumerReadsSchemas(t *testing.T) {
	f := startNode(t)
	person := `{"type":"object","properties":{"age":{"type":"integer"}}}`
	for _, c := range []struct{ format, mediaType, schema, value, back string }{
		{"avro", avroType, avroOrder, `{"id":3,"note":{"string":"x"}}`, ""},
		{"jsonschema", jsonSchemaType, person, `{"age": 7}`, ""},
		{"protobuf", protobufType, protoOrder, `{ "id" : 5 }`, `{"id":5}`},
	} {
		t.Run(c.format, func(t *testing.T) {
			f.t = t
			text, err := json.Marshal(c.schema)
			require.NoError(t, err)
			topic := "of-" + c.format
			_, err = f.client.CreateTopic(t.Context(), client.NewTopic{Name: topic, Partitions: 1, ReplicationFactor: -1})
			require.NoError(t, err)
			a := f.call("POST", "/topics/"+topic, c.mediaType, `{"key_schema":`+string(text)+`,"value_schema":`+string(text)+
				`,"records":[{"key":`+c.value+`,"value":`+c.value+`}]}`)
			require.Equal(t, 200, a.status, a.text)
			require.Contains(t, a.text, `"error_code":null`)
			f.storeBytes(topic, `{"key":null,"value":null}`)
			if c.back == "" {
				c.back = c.value
			}
			at := f.subscribed("g-"+c.format, earliest(strings.ToUpper(c.format)), topic)
			for _, accept := range []string{c.mediaType, "", genericType, avroType, jsonSchemaType, protobufType} {
				f.done(f.post(at+"/positions/beginning", `{"partitions":[{"topic":"`+topic+`","partition":0}]}`))
				a := f.get(at+"/records", "Accept", accept)
				require.Equal(t, 200, a.status, a.text)
				want := accept
				if accept == "" || accept == genericType {
					want = c.mediaType
				}
				require.Equal(t, want, a.header.Get("Content-Type"))
				require.Equal(t, `[{"topic":"`+topic+`","key":`+c.back+`,"value":`+c.back+`,"partition":0,"offset":0},`+
					`{"topic":"`+topic+`","key":null,"value":null,"partition":0,"offset":1}]`, a.text)
			}
			f.refused(f.get(at+"/records", "Accept", jsonType), 406, 40601, "format "+c.format)
			f.refused(f.get(at+"/records", "Accept", binaryType), 406, 40601, "ask for "+c.mediaType)
			require.Equal(t, 200, f.get(at+"/subscription", "Accept", c.mediaType).status)
		})
	}
}

// An instance of one format reads the values of all three: each record says what it is.
func TestConsumerReadsAnySchema(t *testing.T) {
	f := startNode(t)
	avro := f.schemaID("a", "AVRO", avroOrder)
	proto := f.schemaID("b", "PROTOBUF", protoOrder)
	document := f.schemaID("c", "JSON", `{"type":"integer"}`)
	f.storeBytes("orders", `{"value":"`+framed(avro, "\x06\x00")+`"}`, `{"value":"`+framed(proto, "\x02\x02\x08\x01")+`"}`,
		`{"value":"`+framed(document, " 7")+`"}`)
	a := f.get(f.subscribed("g", earliest("avro"), "orders")+"/records", "Accept", avroType)
	require.Equal(t, 200, a.status, a.text)
	var got []given
	a.decode(t, &got)
	require.Equal(t, []string{`{"id":3,"note":null}`, `{"ok":true}`, `7`}, values(got))
}

// What names no known schema, or is no value of it, stops an instance before it, and says how to go on.
func TestConsumerSchemaUndecodable(t *testing.T) {
	f := startNode(t)
	id := f.schemaID("orders-value", "AVRO", avroOrder)
	good := `"` + framed(id, "\x06\x00") + `"`
	bad := []struct{ record, says string }{
		{`{"key":"aw==","value":` + good + `}`, "the key of the record at offset 0 of orders-0 cannot be decoded: the bytes"},
		{`{"value":"eA=="}`, "the value of the record at offset 1 of orders-0 cannot be decoded: the bytes name"},
		{`{"value":""}`, "offset 2 of orders-0 cannot be decoded: the bytes name no schema"},
		{`{"value":"` + framed(999, "\x06\x00") + `"}`, "schema id 999 is not in the registry"},
		{`{"value":"` + framed(id, "\x06") + `"}`, "offset 4 of orders-0 cannot be decoded"},
	}
	for _, b := range bad {
		f.storeBytes("orders", b.record)
	}
	f.storeBytes("orders", `{"value":`+good+`}`)
	c := f.subscribed("g", earliest("avro"), "orders")
	for i, b := range bad {
		for range 2 {
			f.refused(f.get(c+"/records"), 408, 40801, b.says)
		}
		f.refused(f.get(c+"/records"), 408, 40801, fmt.Sprintf("to offset %d, or read with undecodable=base64", i+1))
		f.done(f.post(c+"/positions", fmt.Sprintf(`{"offsets":[{"topic":"orders","partition":0,"offset":%d}]}`, i+1)))
	}
	require.Equal(t, []string{`{"id":3,"note":null}`}, values(f.read(c+"/records")))

	f.done(f.post(c+"/positions/beginning", `{"partitions":[{"topic":"orders","partition":0}]}`))
	got := f.read(c + "/records?undecodable=base64")
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5}, offsets(got))
	require.Equal(t, `"aw=="`, string(got[0].Key))
	require.Equal(t, `{"id":3,"note":null}`, string(got[0].Value))
	require.Contains(t, got[0].DecodeError, "key: the bytes name no schema")
	require.Equal(t, []string{`"eA=="`, `""`, `"` + framed(999, "\x06\x00") + `"`}, values(got[1:4]))
	require.Contains(t, got[3].DecodeError, "value: schema id 999 is not in the registry")
	require.Empty(t, got[5].DecodeError)
}

// A schema may stand in a record's header, as newer clients write it.
func TestConsumerReadsSchemaHeaders(t *testing.T) {
	f := startNode(t)
	id := f.schemaID("orders-value", "AVRO", avroOrder)
	a := f.get(fmt.Sprintf("/schemas/ids/%d?", id))
	var shown struct{ GUID string }
	a.decode(t, &shown)
	guid := make([]byte, 0, 17)
	_, err := fmt.Sscanf("01"+strings.ReplaceAll(shown.GUID, "-", ""), "%x", &guid)
	require.NoError(t, err)
	topic, err := f.client.Topic(t.Context(), "orders", client.Refuse)
	require.NoError(t, err)
	s := f.client.NewSender(topic, nil, 0, client.SendOptions{Acks: client.AcksAll, Timeout: 30 * time.Second})
	defer s.Release()
	require.NoError(t, s.Add(record.Record{
		Value: []byte("\x06\x00"), Headers: []record.Header{{Key: "__value_schema_id", Value: guid}},
	}, 0))
	require.NoError(t, s.Send(t.Context()))
	c := f.subscribed("g", earliest("avro"), "orders")
	require.Equal(t, []string{`{"id":3,"note":null}`}, values(f.read(c+"/records")))
}

// A small record may be a long text. However many there are, an answer holds only so much.
func TestConsumerSchemaAnswersAreBounded(t *testing.T) {
	f := startNode(t)
	name := strings.Repeat("n", 200_000)
	id := f.schemaID("orders-value", "AVRO", `{"type":"record","name":"R","fields":[{"name":"`+name+`","type":"int"}]}`)
	const count = 400
	var records []string
	for range count {
		records = append(records, `{"value":"`+framed(id, "\x00")+`"}`)
	}
	f.storeBytes("orders", records...)
	c := f.subscribed("g", earliest("avro"), "orders")
	for next := int64(0); next < count; {
		a := f.get(c + "/records")
		require.Equal(t, 200, a.status)
		require.Less(t, len(a.text), 40<<20)
		var got []given
		a.decode(t, &got)
		require.NotEmpty(t, got)
		for _, g := range got {
			require.Equal(t, next, g.Offset)
			next++
		}
	}
}
