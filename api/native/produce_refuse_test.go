package native_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/record"
)

// refusal is a request that is wrong in itself, and what must be said about it.
type refusal struct {
	name              string
	path, mediaType   string
	body              string
	headers           []string
	status            int
	fault, wantDetail string
}

const (
	jsonType   = "application/json"
	recordType = "application/vnd.millrace.records+json"
	lineType   = "application/x-ndjson"
	cloudType  = "application/cloudevents+json"

	malformed = "MALFORMED_BODY"
	parameter = "INVALID_PARAMETER"
	badName   = "INVALID_TOPIC_EXCEPTION"
	noField   = "UNPROCESSABLE_BODY"
	mediaType = "UNSUPPORTED_MEDIA_TYPE"
	encoding  = "UNSUPPORTED_ENCODING"
)

func of(path, mediaType, body string, headers ...string) refusal {
	return refusal{path: path, mediaType: mediaType, body: body, headers: headers}
}

func (r refusal) is(name string, status int, fault, detail string) refusal {
	r.name, r.status, r.fault, r.wantDetail = name, status, fault, detail
	return r
}

func valueRefusals() []refusal {
	deep := strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001)
	return []refusal{
		of(path, jsonType, `{"a":`).is("malformed JSON", 400, malformed, "byte 6"),
		of(path, jsonType, `{} {}`).is("text behind JSON", 400, malformed, "after the value"),
		of(path, jsonType, ``).is("empty", 400, malformed, "empty"),
		of(path, jsonType, " \n").is("only blanks", 400, malformed, "empty"),
		of(path, "application/x-www-form-urlencoded", `hello`).is("curl without type", 400, malformed, "text/plain"),
		of(path, jsonType, deep).is("deep nesting", 400, malformed, "nested too deeply"),
		of(path, jsonType, "\"\xff\"").is("invalid UTF-8", 400, malformed, "UTF-8"),
		of(path, "text/plain", "\xff").is("invalid text", 400, malformed, "UTF-8"),
		of(path, "text/plain", strings.Repeat("x", 1_100_000)).is("too large", 413, "MESSAGE_TOO_LARGE", ""),
		of(path, lineType, "1\n{\n3\n").is("bad line", 400, malformed, "line 2"),
		of(path, lineType, "1\n2 3\n").is("two on a line", 400, malformed, "line 2"),
		of(path, lineType, "1\n[2,\n3]\n").is("value over lines", 400, malformed, "line 2"),
		of(path, lineType, "\n\n").is("no lines", 400, malformed, "no record"),
		of(path, lineType, strings.Repeat("1\n", 10_001)).is("many", 413, "BODY_TOO_LARGE", "10000 records"),
	}
}

func requestRefusals() []refusal {
	long := "/v1/topics/" + strings.Repeat("x", 250) + "/records"
	return []refusal{
		of(path, "application/xml", "<a/>").is("wrong type", 415, mediaType, "application/x-ndjson"),
		of(path, "text/plain; charset=latin1", "a").is("wrong charset", 415, mediaType, "latin1"),
		of(path, jsonType, "{}", "Content-Encoding", "br").is("wrong encoding", 415, encoding, "br"),
		of(path, jsonType, "{}", "Content-Encoding", "gzip, gzip").is("two encodings", 415, encoding, ""),
		of(path, jsonType, "{}", "Content-Encoding", "gzip").is("not gzip", 400, malformed, "gzip"),
		of(path, jsonType, "{}", "Content-Encoding", "zstd").is("not zstd", 400, malformed, "zstd"),
		of("/v1/topics/%2E%2E/records", jsonType, "{}").is("name ..", 400, badName, ".."),
		of("/v1/topics/a%2Fb/records", jsonType, "{}").is("name a/b", 400, badName, "a/b"),
		of("/v1/topics/a%00/records", jsonType, "{}").is("name with zero", 400, badName, ""),
		of(long, jsonType, "{}").is("long name", 400, badName, "249"),
		of(path+"?partition=1", jsonType, "{}").is("no partition", 404, "UNKNOWN_TOPIC_OR_PARTITION", "0 only"),
		of(path+"?partition=-1", jsonType, "{}").is("bad partition", 400, parameter, "partition"),
		of(path+"?acks=2", jsonType, "{}").is("bad acks", 400, parameter, "acks"),
		of(path+"?timestamp=yesterday", jsonType, "{}").is("bad timestamp", 400, parameter, `since 1970, not "yes`),
		of(path+"?timestamp=1960-01-02T03:04:05Z", jsonType, "{}").is("old timestamp", 400, parameter, "before 1970"),
		of(path+"?timestamp=-1", jsonType, "{}").is("negative timestamp", 400, parameter, "before 1970"),
		of(path+"?partiton=1", jsonType, "{}").is("unknown parameter", 400, parameter, "partiton"),
		of(path+"?key=a&key=b", jsonType, "{}").is("parameter twice", 400, parameter, "twice"),
		of(path+"?key=%zz", jsonType, "{}").is("bad query", 400, parameter, "key"),
		of(path+"?key=%ff", jsonType, "{}").is("key not UTF-8", 400, parameter, "UTF-8"),
		of(path, jsonType, "{}", "Record-Header-A", "\xff").is("header not UTF-8", 400, parameter,
			"header Record-Header-A is not valid UTF-8; send it as UTF-8, or in a full record as value_base64"),
		of(path, jsonType, "{}", "Record-Header-", "x").is("header without a name", 400, parameter, "Record-Header-: a name"),
		of(path, jsonType, "{}", "ce-", "x").is("attribute without a name", 400, parameter, "ce-: a name"),
		of(path, jsonType, "{}", "ce-id", "\xe9").is("attribute not UTF-8", 400, parameter,
			"header ce-id is not valid UTF-8; percent-encode"),
		of(path, jsonType, "{}", "ce-id", "%e9").is("attribute encoded not as UTF-8", 400, parameter,
			"header ce-id is not valid UTF-8; percent-encode"),
		of(path, jsonType, "{}", "Expected-Offset", "-1").is("bad expected", 400, parameter, "Expected-Offset"),
		of("/v1/topics/t3/records", recordType, `[{"partition":0},{"partition":1}]`, "Expected-Offset", "0").
			is("expected of two", 400, parameter, "?partition="),
		of("/v1/topics/t3/records", jsonType, "1", "Expected-Offset", "0").
			is("expected of any", 400, parameter, "topic t3 has 3: name the partition with ?partition="),
	}
}

func producerRefusals() []refusal {
	const id, seq, epoch = "Producer-Id", "Producer-Seq", "Producer-Epoch"
	return []refusal{
		of(path, jsonType, "{}", id, "p").is("no seq", 400, parameter, seq),
		of(path, jsonType, "{}", seq, "1").is("no producer", 400, parameter, id),
		of(path, jsonType, "{}", id, "p", seq, "2147483648").is("bad seq", 400, parameter, seq),
		of(path, jsonType, "{}", id, "p", seq, "1", epoch, "x").is("bad epoch", 400, parameter, epoch),
		of(path, jsonType, "{}", id, "p", seq, "1", epoch, "32768").is("large epoch", 400, parameter, epoch),
		of(path, jsonType, "{}", id, strings.Repeat("p", 256), seq, "1").is("long name", 400, parameter, "255"),
		of(path, jsonType, "{}", id, "p", seq, "1", "Idempotency-Key", "k").is("two ways", 400, parameter, "exclude"),
		of(path, jsonType, "{}", "Idempotency-Key", "").is("empty key", 400, parameter, "Idempotency-Key"),
		of(path+"?partition=0", rawType, string(rawBatch("a"))+string(rawBatch("a")), id, "p", seq, "0").
			is("several batches", 400, parameter, "2 batches"),
	}
}

func recordRefusals() []refusal {
	one := func(record string) refusal { return of(path, recordType, "["+record+"]") }
	return []refusal{
		of(path, recordType, `{"value":1}`).is("not an array", 400, malformed, "an array is wanted, not an object"),
		of(path, recordType, `[]`).is("empty array", 400, malformed, "no record"),
		one(`{"valu":1}`).is("unknown field", 422, noField, "record 0: unrecognized field: valu"),
		one(`{"Value":1}`).is("field in capitals", 422, noField, "Value"),
		one(`{"value":1,"value":2}`).is("field twice", 400, malformed, "twice"),
		one(`{"key":1,"key_text":"1"}`).is("two keys", 400, malformed, "at most one of key"),
		one(`{"value":1,"value_text":"1"}`).is("two values", 400, malformed, "at most one of value"),
		one(`{"value":1},{"value_base64":"*"}`).is("bad base64", 400, malformed, "record 1: value_base64"),
		one(`{"key_base64":1}`).is("base64 of a number", 400, malformed, "key_base64"),
		one(`{"value_base64":"AA"}`).is("base64 without its end", 400, malformed,
			`value_base64 is not valid base64: the padding is missing: "=="`),
		one(`{"value_text":1}`).is("text of a number", 400, malformed, "value_text"),
		one(`{"value_text":"\ud800"}`).is("half a surrogate", 400, malformed, "surrogate"),
		one(`{"partition":-1}`).is("partition below 0", 400, malformed, "partition"),
		one(`{"partition":"1"}`).is("partition as text", 400, malformed, "partition"),
		one(`{"partition":1.0}`).is("partition with a point", 400, malformed, "partition"),
		one(`{"value":1},{"partition":7}`).is("no partition", 404, "UNKNOWN_TOPIC_OR_PARTITION", "record 1"),
		one(`{"timestamp":1.5}`).is("timestamp with a point", 400, malformed, "timestamp"),
		one(`{"timestamp":-1}`).is("timestamp below 0", 400, malformed, "before 1970, where timestamps begin: -1"),
		one(`{"topic":"u"}`).is("other topic", 400, malformed, "topic"),
		one(`{"headers":[{"value":"x"}]}`).is("header without name", 400, malformed, "name"),
		one(`{"headers":[{"name":"x","v":1}]}`).is("unknown header field", 422, noField, "v"),
		one(`{"headers":[{"name":"x","value":"1","value_base64":""}]}`).is("two in a header", 400, malformed, "at most one"),
		one(`{"headers":{"a":"b"}}`).is("headers object", 400, malformed, `record 0: field "headers": an array is wanted`),
		one(`{"headers":["a"]}`).is("header string", 400, malformed, `field "headers": an object is wanted, not a string`),
		one(`1`).is("record a number", 400, malformed, "record 0: an object is wanted, not a number"),
		one(`{"headers":{`).is("headers cut", 400, malformed, "not valid JSON"),
	}
}

func eventRefusals() []refusal {
	one := func(event string) refusal { return of(path, cloudType, "{"+event+"}") }
	const full = `"specversion":"1.0","id":"1","source":"s","type":"t",`
	head := []string{"ce-specversion", "1.0", "ce-id", "1", "ce-source", "/"}
	return []refusal{
		one(`"specversion":"1.0","source":"s","type":"t"`).is("no id", 400, malformed, "attribute id"),
		one(`"specversion":"1.0","id":"","source":"s","type":"t"`).is("empty id", 400, malformed, "id"),
		one(`"specversion":"0.3","id":"1","source":"s","type":"t"`).is("version", 400, malformed, "specversion"),
		one(`"specversion":"1.0","id":1,"source":"s","type":"t"`).is("number as id", 400, malformed, "id"),
		one(full+`"e":{}`).is("object", 400, malformed, "e"),
		one(full+`"E_":1`).is("bad name", 400, malformed, "E_"),
		one(full+`"data":1,"data_base64":""`).is("two data", 400, malformed, "data"),
		one(full+`"data_base64":"!"`).is("bad base64", 400, malformed, "data_base64 is not valid base64: character 1"),
		one(full+`"data_base64":"`+strings.Repeat("A", 2045)+`*AA"`).is("bad base64 far", 400, malformed, "character 2046"),
		one(full+`"data_base64":"`+strings.Repeat("A", 1023)+`=AAAA"`).is("goes on", 400, malformed, "character 1024"),
		one(full+`"e":1.5`).is("fraction", 400, malformed, "a whole number of 32 bits or a boolean, not 1.5"),
		one(full+`"e":2147483648`).is("large number", 400, malformed, "not 2147483648"),
		one(full+`"e":1e3`).is("exponent", 400, malformed, "not 1e3"),
		one(full+`"e":[]`).is("array", 400, malformed, "a boolean, not []"),
		one(full+`"time":"now"`).is("bad time", 400, malformed, "time"),
		of(path, "application/cloudevents-batch+json", `[`+sampleEvent+`,{}]`).is("in a batch", 400, malformed, "record 1"),
		of(path, jsonType, `{}`, head...).is("binary without type", 400, malformed, "attribute type"),
		of(path, jsonType, `{`, append(head, "ce-type", "t")...).is("binary with bad JSON", 400, malformed, "byte"),
	}
}

func batchRefusals() []refusal {
	good := string(rawBatch("a"))
	one := func(body string) refusal { return of(path+"?partition=0", rawType, body) }
	return []refusal{
		of(path, rawType, good).is("no partition", 400, parameter, "partition"),
		of(path+"?partition=0&key=a", rawType, good).is("with a key", 400, parameter, "own keys"),
		of(path+"?partition=0&timestamp=5", rawType, good).is("with a time", 400, parameter, "own timestamps"),
		one(good+string(transactionalBatch())).is("of a transaction", 422, noField,
			"batch 2 belongs to a transaction, of which this batch alone says nothing: send its records"),
		one("").is("empty", 400, malformed, "empty"),
		one(good[:40]).is("cut", 400, malformed, "batch 1"),
		one(good+good[:60]+"xxxxxxxxx").is("second damaged", 400, malformed, "batch 2"),
	}
}

func transactionalBatch() []byte {
	var b record.Builder
	b.SetProducer(7, 0, 0)
	b.SetTransactional()
	b.Append(&record.Record{Value: []byte("v")})
	return b.Build()
}

// Each is refused with a clear problem, at a bounded cost, and nothing is stored.
func TestProduceRefuses(t *testing.T) {
	for kind, refusals := range map[string][]refusal{
		"value": valueRefusals(), "request": requestRefusals(), "producer": producerRefusals(), "record": recordRefusals(),
		"event": eventRefusals(), "batch": batchRefusals(),
	} {
		for _, c := range refusals {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				e := newWrites(t, api.Limits{})
				p := e.problem(e.post(c.path, c.mediaType, c.body, c.headers...), c.status, c.fault)
				require.Contains(t, strings.ToLower(p["detail"].(string)), strings.ToLower(c.wantDetail))
				require.Less(t, len(p["detail"].(string)), 1000)
				require.Equal(t, "failed", p["outcome"])
				require.Empty(t, e.values("t", 0))
				for i := range int32(3) {
					require.Empty(t, e.values("t3", i))
				}
			})
		}
	}
}
