package restv3

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/record"
)

// read parses one record object and decodes it.
func read(t *testing.T, text string) (*entry, record.Record) {
	t.Helper()
	p := parser{cursor: rawjson.Cursor{Data: []byte(text)}}
	e := &entry{}
	require.NoError(t, p.next(e))
	require.NoError(t, p.cursor.End())
	if e.misshapen != nil {
		return e, record.Record{}
	}
	return e, e.record(99, &encoder{api: &API{}})
}

func TestRecordFormats(t *testing.T) {
	for _, c := range []struct {
		part string
		want []byte // nil is null
	}{
		{`{"type":"BINARY","data":"aGk="}`, []byte("hi")},
		{`{"type":"BINARY","data":""}`, []byte{}},
		{`{"type":"BINARY","data":null}`, nil},
		{`{"type":"BINARY"}`, nil},
		{`{"type":"BINARY","data":"\/+8="}`, []byte("\xff\xef")},
		{`{"data":"aGk=","type":"BINARY"}`, []byte("hi")},
		{`{"type":"JSON","data":{"a": [1, "b c"] }}`, []byte(`{"a":[1,"b c"]}`)},
		{`{"type":"JSON","data":12345678901234567890.10}`, []byte(`12345678901234567890.10`)},
		{`{"type":"JSON","data":"\u0041"}`, []byte(`"\u0041"`)},
		{`{"type":"JSON","data":null}`, nil},
		{`{"type":"JSON","data":false}`, []byte(`false`)},
		{`{"type":"STRING","data":"a\"\u00e9\ud834\udd1e\n"}`, []byte("a\"é𝄞\n")},
		{`{"type":"STRING","data":""}`, []byte{}},
		{`{"type":"STRING","data":null}`, nil},
		{`{"type":"STRING","data":"x","subject":null,"schema_id":null}`, []byte("x")},
		{`null`, nil},
	} {
		for _, which := range []string{"key", "value"} {
			e, r := read(t, fmt.Sprintf(`{"%s":%s}`, which, c.part))
			require.Nil(t, e.misshapen, c.part)
			require.Nil(t, e.fault, c.part)
			got, other, part := r.Key, r.Value, &e.key
			if which == "value" {
				got, other, part = r.Value, r.Key, &e.value
			}
			require.Equal(t, c.want, got, c.part)
			require.Nil(t, other)
			require.Equal(t, c.part != "null", part.present)
			require.Equal(t, len(c.want), part.size)
		}
	}
}

// Every row of the matrix of what may stand beside type.
func TestRecordSchemaMatrix(t *testing.T) {
	const noRegistry, misuse = 422, 400
	for _, c := range []struct {
		part string
		code int
	}{
		{`{}`, noRegistry},
		{`{"data":1}`, noRegistry},
		{`{"subject":"s"}`, noRegistry},
		{`{"subject":"s","schema_id":1}`, noRegistry},
		{`{"subject_name_strategy":"TOPIC_NAME","schema_version":1}`, noRegistry},
		{`{"subject_name_strategy":"RECORD_NAME","schema_id":1}`, noRegistry},
		{`{"schema_id":1}`, noRegistry},
		{`{"type":"AVRO","schema":"\"int\""}`, noRegistry},
		{`{"type":"AVRO","schema":"\"int\"","subject":"s"}`, noRegistry},
		{`{"type":"JSONSCHEMA","schema":"{}","subject_name_strategy":"RECORD_NAME"}`, noRegistry},
		{`{"type":"PROTOBUF","schema":"message A {}","data":null}`, noRegistry},
		{`{"subject":"s","subject_name_strategy":"TOPIC_NAME"}`, misuse},
		{`{"subject_name_strategy":"RECORD_NAME"}`, misuse},
		{`{"subject_name_strategy":"TOPIC_RECORD_NAME","schema_version":1}`, misuse},
		{`{"schema":"\"int\""}`, misuse},
		{`{"schema_id":1,"schema_version":1}`, misuse},
		{`{"type":"AVRO","schema":"\"int\"","schema_id":1}`, misuse},
		{`{"type":"AVRO"}`, misuse},
		{`{"type":"AVRO","schema_id":1}`, misuse},
		{`{"type":"PROTOBUF","schema_version":1}`, misuse},
		{`{"type":"JSONSCHEMA","subject":"s"}`, misuse},
		{`{"type":"BINARY","data":"","subject":"s"}`, misuse},
		{`{"type":"JSON","data":1,"subject_name_strategy":"TOPIC_NAME"}`, misuse},
		{`{"type":"JSON","data":1,"schema":"{}"}`, misuse},
		{`{"type":"STRING","data":"","schema_id":1}`, misuse},
		{`{"type":"STRING","data":"","schema_version":1}`, misuse},
	} {
		for _, which := range []string{"key", "value"} {
			e, _ := read(t, fmt.Sprintf(`{"%s":%s}`, which, c.part))
			require.Nil(t, e.misshapen, c.part)
			require.NotNil(t, e.fault, c.part)
			require.Equal(t, c.code, e.fault.Fault.Code, c.part)
			if c.code == noRegistry {
				require.True(t, strings.HasPrefix(e.fault.Text(), "Error: 42206 : "), e.fault.Text())
			}
		}
	}
}

func TestRecordFaults(t *testing.T) {
	for _, c := range []struct {
		text string
		code int
		says string
	}{
		{`{"value":{"type":"BINARY","data":1}}`, 400, "data=1 is not a base64 string"},
		{`{"value":{"type":"BINARY","data":"a"}}`, 400, "base64"},
		{`{"value":{"type":"BINARY","data":"\ud800"}}`, 400, "base64"},
		{`{"value":{"type":"STRING","data":1}}`, 400, "data=1 is not a string"},
		{`{"value":{"type":"STRING","data":"\ud800x"}}`, 400, "surrogate"},
		{`{"headers":[{"name":"h","value":"a"}]}`, 400, "base64"},
		{`{"headers":[{"name":"h","value":5}]}`, 400, "base64"},
		{`{"partition_id":-1}`, 40402, "Partition not found"},
	} {
		e, _ := read(t, c.text)
		require.Nil(t, e.misshapen, c.text)
		require.NotNil(t, e.fault, c.text)
		require.Equal(t, c.code, e.fault.Fault.Code, c.text)
		require.Contains(t, e.fault.Text(), c.says)
	}
}

func TestRecordShape(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{`{"extra":1}`, "Unrecognized field: extra"},
		{`{"value":{"type":"JSON","datum":1}}`, "Unrecognized field: datum"},
		{`{"headers":[{"name":"a","values":"b"}]}`, "Unrecognized field: values"},
		{`{"id":"a"}`, "Unrecognized field: id"},
		{`{"Value":null}`, "Unrecognized field: Value"},
		{`{"value":1}`, "value=1 is not an object"},
		{`{"key":"k"}`, `key="k" is not an object`},
		{`{"value":{"type":"XML","data":1}}`, `type="XML" is none of`},
		{`{"value":{"type":1}}`, "type=1 is none of"},
		{`{"value":{"subject":1}}`, "subject=1 is not valid"},
		{`{"value":{"subject_name_strategy":"X"}}`, `subject_name_strategy="X" is not valid`},
		{`{"value":{"schema_id":"1"}}`, `schema_id="1" is not valid`},
		{`{"value":{"schema_id":9999999999}}`, "schema_id=9999999999 is not valid"},
		{`{"value":null,"value":null}`, "Duplicate field: value"},
		{`{"value":{"type":"JSON","data":1,"data":2}}`, "Duplicate field: value.data"},
		{`{"partition_id":"0"}`, `partition_id="0" is not a 32-bit integer`},
		{`{"partition_id":1.5}`, "partition_id=1.5 is not"},
		{`{"partition_id":2147483648}`, "partition_id=2147483648 is not"},
		{`{"timestamp":1}`, "timestamp=1 is not an ISO-8601 time"},
		{`{"timestamp":"yesterday"}`, "is not an ISO-8601 time"},
		{`{"timestamp":"1969-12-31T23:59:59Z"}`, "before 1970"},
		{`{"headers":{}}`, "headers={} is not an array"},
		{`{"headers":[1]}`, "header=1 is not an object"},
		{`{"headers":[{"value":""}]}`, "A header needs a name"},
		{`{"headers":[{"name":1}]}`, "A header needs a name"},
		{`{"value":"` + strings.Repeat("x", 100) + `"}`, `xxx... is not an object`},
	} {
		e, _ := read(t, c.text)
		require.NotNil(t, e.misshapen, c.text)
		require.Contains(t, e.misshapen.Text(), c.says)
		told := badRecord(e.misshapen)
		require.Equal(t, 400, told.Fault.Code, c.text)
	}
}

func TestRecordTakesAllMembers(t *testing.T) {
	e, r := read(t, `{"partition_id":7,"timestamp":"2026-01-02T04:04:05.678+01:00","headers":[
		{"name":"b","value":"Qg=="},{"name":"a","value":null},{"name":"b"},{"name":"\u00e9","value":""}],
		"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":1}}`)
	require.Nil(t, e.fault)
	require.Equal(t, int32(7), e.partition)
	want := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC).UnixMilli()
	require.Equal(t, want, r.Timestamp)
	require.Equal(t, []record.Header{
		{Key: "b", Value: []byte("B")}, {Key: "a"}, {Key: "b"}, {Key: "é", Value: []byte{}},
	}, r.Headers)
	_, r = read(t, `{"partition_id":null,"timestamp":null,"headers":null,"key":null,"value":null}`)
	require.Equal(t, record.Record{Timestamp: 99}, r)
}

func TestReceiptTimes(t *testing.T) {
	var rs receipts
	for _, c := range []struct {
		ms   int64
		text string
	}{
		{0, "1970-01-01T00:00:00Z"}, {1612552482000, "2021-02-05T19:14:42Z"}, {1612552482000, "2021-02-05T19:14:42Z"},
		{1612552482670, "2021-02-05T19:14:42.670Z"}, {1612552482007, "2021-02-05T19:14:42.007Z"},
	} {
		require.Equal(t, c.text, string(rs.appendTime(nil, c.ms)))
	}
}

// The seeker finds an object's end however the object is cut, at the same place as the parser.
func TestSeekerFindsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.SampledFrom([]string{
			`{}`, `{"a":1}`, `{"a":"}"}`, `{"a\"}":["]",{"b":"\\"}]}`, `{"\\\"":[[[]]]}`, `{"é":"\u007d𝄞"}`,
		}).Draw(t, "object")
		data := []byte(object + rapid.SampledFrom([]string{"", "{", "}", `"`, "{}", "  "}).Draw(t, "rest"))
		var s seeker
		for n := 0; n < len(data); {
			n = min(len(data), n+rapid.IntRange(1, 4).Draw(t, "step"))
			if whole := s.find(data[:n]); whole != (n >= len(object)) {
				t.Fatalf("whole=%v of %q after %d bytes", whole, object, n)
			}
		}
	})
}

func TestLatin1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := rapid.SliceOf(rapid.Byte()).Draw(t, "src")
		var want []rune
		for _, b := range src {
			want = append(want, rune(b))
		}
		size := rapid.IntRange(2, 64).Draw(t, "size")
		var got []byte
		for r, p := (&latin1Reader{bytes.NewReader(src)}), make([]byte, size); ; {
			n, err := r.Read(p)
			got = append(got, p[:n]...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if string(got) != string(want) {
			t.Fatalf("got %q, want %q", got, string(want))
		}
	})
}

// What is decoded in place is what decoding into other memory gives.
func TestBase64InPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		text := `"` + base64.StdEncoding.EncodeToString(want) + `"`
		if rapid.Bool().Draw(t, "escaped") {
			text = strings.ReplaceAll(text, "/", `\/`)
		}
		got, err := decodeBase64([]byte(text))
		if err != nil || !bytes.Equal(got, want) || got == nil {
			t.Fatalf("%q: got %q, %v; want %q", text, got, err, want)
		}
	})
}

func TestBatchChecks(t *testing.T) {
	for _, c := range []struct {
		body string
		code int
		says string
	}{
		{``, 42208, "Request body is empty. Data is required."},
		{` null `, 42208, "Request body is empty. Data is required."},
		{`{}`, 42208, "Empty batch."},
		{`{"entries":[]}`, 42208, "Empty batch."},
		{`{"entries":[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"}]}`, 42208, "Too many entries in batch."},
		{`{"entries":[{"id":"a"},{"id":"a"},{"id":"c"},{"id":"d"}]}`, 42208, "Batch entry IDs are not distinct."},
		{`{"entries":[{}]}`, 42208, "Batch entry identifier is not a valid string."},
		{`{"entries":[{"id":1}]}`, 42208, "Batch entry identifier is not a valid string."},
		{`{"entries":[{"id":""}]}`, 42208, "Batch entry identifier is not a valid string."},
		{`{"entries":[{"id":"a b"}]}`, 42208, "Batch entry identifier is not a valid string."},
		{`{"entries":[{"id":"` + strings.Repeat("x", 81) + `"}]}`, 42208, "Batch entry identifier is not a valid string."},
		{`[]`, 400, "object"},
		{`{"entries":{}}`, 400, "array"},
		{`{"entries":[1]}`, 400, "A record must be a JSON object"},
		{`{"entries":[{"id":"a","value":1}]}`, 400, "not an object"},
		{`{"entries":[{"id":"a"]}`, 400, "Malformed JSON"},
		{`{"entries":[{"id":"a"}]} x`, 400, "Malformed JSON"},
		{`{"entries":[],"entries":[]}`, 400, "Duplicate field: entries"},
		{`{"entries":[{"id":"a","extra":1}]}`, 422, "Unrecognized field: extra"},
		{`{"records":[]}`, 422, "Unrecognized field: records"},
	} {
		_, err := batchRequest([]byte(c.body), 3)
		require.Error(t, err, c.body)
		told := api.FromError(err)
		require.Equal(t, c.code, told.Fault.Code, c.body)
		require.Contains(t, told.Text(), c.says, c.body)
	}
	entries, err := batchRequest([]byte(`{"entries":[{"id":"a"},{"id":"`+strings.Repeat("_", 80)+`"},{"id":"Z-9"}]}`), 3)
	require.NoError(t, err)
	require.Len(t, entries, 3)
}

// A request cannot make the server hold much more than its body: not by many entries, nor by long names.
func TestRequestsCostTheirSize(t *testing.T) {
	many := []byte(`{"entries":[` + strings.Repeat("{},", 1<<20) + `{}]}`)
	_, err := batchRequest(many, 10)
	require.ErrorIs(t, err, errTooManyEntries)
	p := parser{}
	long := strings.Repeat("n", maxNameBytes+1)
	require.Equal(t, long, p.intern([]byte(long)))
	require.Empty(t, p.names)
}

// FuzzRecords feeds the parser what may come over the network.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":{"a":[1]}}}`))
	f.Add([]byte(`{"headers":[{"name":"h","value":"aGk="}],"timestamp":"2026-01-02T03:04:05Z"}{}`))
	f.Add([]byte(`{"value":{"type":"BINARY","data":"\u0061GVsbG8="}} {"value":{"type":"STRING","data":"\ud834\udd1e"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := parser{cursor: rawjson.Cursor{Data: append([]byte(nil), data...)}, ids: true}
		for e := (entry{}); p.cursor.Peek() == '{' && p.next(&e) == nil; {
			if e.misshapen == nil {
				r := e.record(1, &encoder{api: &API{}})
				require.LessOrEqual(t, len(r.Key)+len(r.Value), len(data))
			}
		}
		_, _ = batchRequest(append([]byte(nil), data...), 10)
	})
}
