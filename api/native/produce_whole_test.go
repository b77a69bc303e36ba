package native_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
)

const recordLineType = "application/vnd.millrace.records+ndjson"

// fates are the offsets of a problem.
func fates(t *testing.T, p map[string]any) (out []struct {
	Partition  int32
	BaseOffset *int64 `json:"base_offset"`
	Count      *int
	Error      *struct {
		Type, Detail, Outcome string
		Records               []struct {
			Index, Line int
			Detail      string
		}
	}
}) {
	t.Helper()
	text, err := json.Marshal(p["offsets"])
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// A sequence that a later one has passed over is neither stored nor acknowledged.
func TestNodeTellsWhatWasPassedOver(t *testing.T) {
	e := onNode(t)
	const path3 = "/v1/topics/t3/records"
	at := func(partitions ...int) string {
		var out []string
		for _, p := range partitions {
			out = append(out, fmt.Sprintf(`{"partition":%d,"value":%d}`, p, len(out)))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	e.stored(e.post(path3, recordType, at(0, 1), triple(0, 0)...))
	e.stored(e.post(path3, recordType, at(0, 2), triple(0, 2)...))
	p := e.problem(e.post(path3, recordType, at(0, 1), triple(0, 1)...), 409, "OUT_OF_ORDER_SEQUENCE_NUMBER")
	require.Equal(t, "partial", p["outcome"], "partition 1 took its record")
	require.Contains(t, p["detail"], "1 of 2 records was not stored")
	require.Contains(t, p["detail"], "a later request of this producer was stored before it; this one was not")
	told := fates(t, p)
	require.Equal(t, "failed", told[0].Error.Outcome)
	require.Nil(t, told[1].Error)
	require.EqualValues(t, 1, *told[1].BaseOffset)
	p = e.problem(e.post(path3+"?partition=2", jsonType, "1", triple(0, 1)...), 409, "OUT_OF_ORDER_SEQUENCE_NUMBER")
	require.Equal(t, "failed", p["outcome"])
	require.NotContains(t, p, "expected_seq")
	for partition, n := range []int{2, 2, 1} {
		require.Len(t, e.values("t3", int32(partition)), n)
	}
}

// What is older than a partition remembers is a duplicate of which nothing is known any more.
func TestNodeForgetsFirstAnswers(t *testing.T) {
	e := onNode(t)
	for seq := range 7 {
		e.stored(e.post(path, jsonType, "1", triple(0, seq)...))
	}
	r := e.post(path, lineType, "1\n2\n3", triple(0, 0)...)
	require.JSONEq(t, `{"offsets":[{"partition":0,"base_offset":null,"count":null,"timestamp":null,"duplicate":true}]}`,
		r.body)
	p := e.stored(e.post(path+"?timestamp=5", lineType, "1\n2\n3", triple(0, 6)...))
	require.Equal(t, 1, p.Offsets[0].Count, "the first count, not the retry's")
	require.NotContains(t, p.Offsets[0].Timestamp, "1970")
	e.stored(e.post(path, lineType, "1\n2", "Idempotency-Key", "k"))
	e.problem(e.post(path, lineType, "1\n2\n3", "Idempotency-Key", "k"), 422, "IDEMPOTENCY_KEY_REUSED")
}

// Of a body that is refused for its content nothing is stored, whatever number of partitions and batches it is for.
func TestNodeStoresWholeBodiesOnly(t *testing.T) {
	e := onNode(t)
	e.call(http.MethodPost, "/v1/topics",
		`{"name":"c3","partitions":3,"configs":{"cleanup.policy":"compact","max.message.bytes":"2000"}}`,
		http.StatusCreated, nil)
	large := strings.Repeat("x", 3000)
	for name, c := range map[string]struct {
		bad, fault, says string
		status           int
	}{
		"time": {`"timestamp":"2999-01-01T00:00:00Z","key":1`, "INVALID_TIMESTAMP", "2999-01-01T00:00:00.000Z is after", 400},
		"key":  {`"value":2`, "INVALID_RECORD", "a compacted topic's records need a key", 400},
		"size": {`"key":1,"value":"` + large + `"`, "MESSAGE_TOO_LARGE", "max.message.bytes is 2000", 413},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Join([]string{
				`{"partition":0,"key":1}`, "", `{"partition":1,"key":1}`, `{"partition":1,` + c.bad + `}`,
				`{"partition":2,"key":1}`,
			}, "\n")
			for _, headers := range [][]string{nil, {"Idempotency-Key", name}} {
				p := e.problem(e.post("/v1/topics/c3/records", recordLineType, body, headers...), c.status, c.fault)
				require.Equal(t, "failed", p["outcome"])
				require.Contains(t, p["detail"], "4 of 4 records were not stored")
				require.Contains(t, p["detail"], "1 record was refused; line 4: ")
				require.Contains(t, p["detail"], c.says)
				told := fates(t, p)
				require.Contains(t, told[0].Error.Type, "OPERATION_NOT_ATTEMPTED")
				require.Len(t, told[1].Error.Records, 1)
				require.Equal(t, 2, told[1].Error.Records[0].Index, "the place in the request")
				require.Equal(t, 4, told[1].Error.Records[0].Line)
				require.Contains(t, told[1].Error.Records[0].Detail, c.says)
				for partition := range int32(3) {
					require.Empty(t, e.values("c3", partition))
				}
			}
		})
	}
}

// Several batches for one partition are stored all or not at all, too.
func TestNodeStoresWholeBatchesOnly(t *testing.T) {
	e := onNode(t)
	line := `"` + strings.Repeat("x", 998) + "\"\n"
	bad := `{"timestamp":"2999-01-01T00:00:00Z"}`
	body := strings.Repeat(`{"value":`+line[:len(line)-1]+"}\n", 3000) + bad
	p := e.problem(e.post(path, recordLineType, body), 400, "INVALID_TIMESTAMP")
	require.Contains(t, p["detail"], "line 3001: timestamp 2999-01-01T00:00:00.000Z is after")
	require.Equal(t, "failed", p["outcome"])
	large := line + line + `"` + strings.Repeat("x", 1_100_000) + "\"\n" + line
	p = e.problem(e.post(path, lineType, large), 413, "MESSAGE_TOO_LARGE")
	require.Equal(t, 2, fates(t, p)[1].Error.Records[0].Index)
	require.Contains(t, p["detail"], "line 3: the record takes")
	var late record.Builder
	late.Append(&record.Record{Timestamp: 32503680000000})
	raw := string(rawBatch("a", "b")) + string(late.Build())
	p = e.problem(e.post(path+"?partition=0", rawType, raw), 400, "INVALID_TIMESTAMP")
	require.Equal(t, 2, fates(t, p)[1].Error.Records[0].Index)
	require.Contains(t, p["detail"], "record 2: timestamp 3000")
	require.Empty(t, e.values("t", 0))
	// A topic with smaller batches takes large requests still.
	e.call(http.MethodPost, "/v1/topics", `{"name":"small","configs":{"max.message.bytes":"5000"}}`, http.StatusCreated,
		nil)
	got := e.stored(e.post("/v1/topics/small/records", lineType, strings.Repeat(line, 20)))
	require.Len(t, got.Offsets, 5)
	p = e.problem(e.post("/v1/topics/small/records", lineType, strings.Repeat(line, 20), triple(0, 0)...),
		413, "MESSAGE_TOO_LARGE")
	require.Contains(t, p["detail"], "Idempotency-Key or Expected-Offset all records of a partition go in one batch")
}

// A retry finds its first try after partitions were added.
func TestNodeRetriesAfterPartitionsWereAdded(t *testing.T) {
	e := onNode(t)
	post := func(body string, headers ...string) produced {
		return e.stored(e.post(path, "text/plain", body, headers...))
	}
	for seq := range 3 {
		post(fmt.Sprint(seq), triple(0, seq)...)
	}
	once := post("once", "Idempotency-Key", "k")
	e.call(http.MethodPatch, "/v1/topics/t", `{"partitions":8}`, http.StatusOK, nil)
	require.Equal(t, once, post("once", "Idempotency-Key", "k"))
	last := post("2", triple(0, 2)...)
	require.True(t, last.Offsets[0].Duplicate)
	require.Zero(t, last.Offsets[0].Partition)
	next := post("3", triple(0, 3)...)
	require.False(t, next.Offsets[0].Duplicate)
	require.NotZero(t, next.Offsets[0].Partition, "the name leads to another partition now")
	again := post("3", triple(0, 3)...)
	require.True(t, again.Offsets[0].Duplicate)
	require.Equal(t, next.Offsets[0].Partition, again.Offsets[0].Partition)
	require.Equal(t, []string{"0", "1", "2", "once"}, e.values("t", 0))
}

// What is refused for where it is to go creates no topic.
func TestNodeCreatesNoTopicInVain(t *testing.T) {
	e := onNode(t)
	const fresh = "/v1/topics/fresh/records"
	e.problem(e.post(fresh, jsonType, "1", "Expected-Offset", "3"), 404, "UNKNOWN_TOPIC_OR_PARTITION")
	e.problem(e.post(fresh+"?partition=7", jsonType, "1"), 404, "UNKNOWN_TOPIC_OR_PARTITION")
	e.problem(e.post(fresh+"?partition=7", rawType, string(rawBatch("a"))), 404, "UNKNOWN_TOPIC_OR_PARTITION")
	e.problem(e.post(fresh, recordType, `[{"partition":0},{"partition":1}]`, "Expected-Offset", "0"), 404,
		"UNKNOWN_TOPIC_OR_PARTITION")
	e.client.Forget("fresh")
	_, err := e.client.Topic(t.Context(), "fresh", client.Refuse)
	require.Error(t, err)
	e.stored(e.post(fresh, jsonType, "1", "Expected-Offset", "0"))

	const path3 = "/v1/topics/t3/records"
	p := e.problem(e.post(path3, jsonType, "1", "Expected-Offset", "0"), 400, parameter)
	require.Contains(t, p["detail"], "topic t3 has 3: name the partition with ?partition=")
	e.problem(e.post(path3, recordType, `[{"key":"a"},{}]`, "Expected-Offset", "0"), 400, parameter)
	e.stored(e.post(path3+"?partition=1", jsonType, "1", "Expected-Offset", "0"))
	e.stored(e.post(path3+"?key=abcde", jsonType, "2", "Expected-Offset", "1")) // which leads to partition 1
}

// A name that differs from another only in '.' and '_' is refused with the reason, also where using it creates it.
func TestNodeExplainsNamesThatCollide(t *testing.T) {
	e := onNode(t)
	e.call(http.MethodPost, "/v1/topics", `{"name":"a.b"}`, http.StatusCreated, nil)
	for _, r := range []reply{
		e.post("/v1/topics/a_b/records", jsonType, "1"),
		e.post("/v1/topics/a_b/records?partition=0", jsonType, "1"),
		e.post("/v1/topics", jsonType, `{"name":"a_b"}`),
	} {
		p := e.problem(r, 400, "INVALID_TOPIC_EXCEPTION")
		require.Contains(t, p["detail"], "opic name a_b collides with topic a.b")
	}
}
