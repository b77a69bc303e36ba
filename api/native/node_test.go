package native_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
	"millrace/server/servertest"
)

// onNode is a server of /v1 on a real node, with a topic t of one partition and t3 of three.
func onNode(t *testing.T) *writes {
	t.Helper()
	node := servertest.Start(t, servertest.Options{})
	e := &writes{
		t: t, client: client.New(node.Requestor(), client.Options{MetadataTTL: time.Millisecond}),
		server: &httptest.Server{URL: node.URL()}, http: node.Client,
	}
	e.call(http.MethodPost, "/v1/topics", `{"name":"t"}`, http.StatusCreated, nil)
	e.call(http.MethodPost, "/v1/topics", `{"name":"t3","partitions":3}`, http.StatusCreated, nil)
	return e
}

func triple(epoch, seq int) []string {
	return []string{"Producer-Id", "till-4", "Producer-Epoch", fmt.Sprint(epoch), "Producer-Seq", fmt.Sprint(seq)}
}

func TestNodeProducerTriple(t *testing.T) {
	e := onNode(t)
	post := func(body string, epoch, seq int) reply {
		return e.post(path+"?timestamp=1767323045678", "application/json", body, triple(epoch, seq)...)
	}
	for seq := range 3 {
		p := e.stored(post(fmt.Sprint(seq), 0, seq))
		require.EqualValues(t, seq, *p.Offsets[0].BaseOffset)
		require.False(t, p.Offsets[0].Duplicate)
	}
	again := e.stored(post("1", 0, 1))
	require.True(t, again.Offsets[0].Duplicate)
	require.EqualValues(t, 1, *again.Offsets[0].BaseOffset, "the first answer's offset")
	require.Equal(t, "2026-01-02T03:04:05.678Z", again.Offsets[0].Timestamp)
	p := e.problem(post("9", 0, 5), 409, "OUT_OF_ORDER_SEQUENCE_NUMBER")
	require.EqualValues(t, 3, p["expected_seq"])
	require.Equal(t, "failed", p["outcome"])
	e.stored(post(`"b"`, 2, 0))
	p = e.problem(post("9", 1, 0), 403, "INVALID_PRODUCER_EPOCH")
	require.EqualValues(t, 2, p["current_epoch"])
	p = e.problem(post("9", 3, 4), 409, "OUT_OF_ORDER_SEQUENCE_NUMBER")
	require.EqualValues(t, 0, p["expected_seq"], "a new epoch begins at 0")
	require.Equal(t, []string{"0", "1", "2", `"b"`}, e.values("t", 0))
}

// With several partitions a retry after a partial failure completes just what is missing.
func TestNodeProducerTripleOverPartitions(t *testing.T) {
	e := onNode(t)
	const path3 = "/v1/topics/t3/records"
	const all = `[{"partition":0,"value":1},{"partition":1,"value":2},{"partition":2,"value":3}]`
	const form = "application/vnd.millrace.records+json"
	e.stored(e.post(path3, form, `[{"partition":1,"value":2}]`, triple(0, 0)...)) // as if the rest had failed
	p := e.stored(e.post(path3, form, all, triple(0, 0)...))
	require.Len(t, p.Offsets, 3)
	for i, o := range p.Offsets {
		require.Equal(t, i == 1, o.Duplicate)
		require.Equal(t, []string{fmt.Sprint(i + 1)}, e.values("t3", int32(i)))
	}
	// A request to one partition is held against the whole sequence.
	problem := e.problem(e.post(path3+"?partition=0", "application/json", "4", triple(0, 2)...),
		409, "OUT_OF_ORDER_SEQUENCE_NUMBER")
	require.EqualValues(t, 1, problem["expected_seq"])
	e.stored(e.post(path3+"?partition=0", "application/json", "4", triple(0, 1)...))
	e.stored(e.post(path3+"?partition=2", "application/json", "5", triple(0, 2)...))
	// Keyless records land where the first try did.
	first := e.stored(e.post(path3, "application/json", "6", triple(0, 3)...))
	second := e.stored(e.post(path3, "application/json", "6", triple(0, 3)...))
	require.True(t, second.Offsets[0].Duplicate)
	require.Equal(t, first.Offsets[0].Partition, second.Offsets[0].Partition)
	require.Equal(t, first.Offsets[0].BaseOffset, second.Offsets[0].BaseOffset)
}

func TestNodeIdempotencyKey(t *testing.T) {
	e := onNode(t)
	for i := range 3 {
		r := e.post(path, "text/plain", "once", "Idempotency-Key", "order-17")
		p := e.stored(r)
		require.Equal(t, i > 0, r.header.Get("Idempotent-Replayed") == "true")
		require.False(t, p.Offsets[0].Duplicate, "the first answer")
		require.EqualValues(t, 0, *p.Offsets[0].BaseOffset)
	}
	e.stored(e.post(path, "text/plain", "other", "Idempotency-Key", "order-18"))
	require.Equal(t, []string{"once", "other"}, e.values("t", 0))
}

func TestNodeExpectedOffset(t *testing.T) {
	e := onNode(t)
	post := func(body, offset string) reply {
		return e.post(path, "application/json", body, "Expected-Offset", offset)
	}
	e.stored(post("0", "0"))
	p := e.problem(post("1", "0"), 412, "INVALID_UPDATE_VERSION")
	require.EqualValues(t, 1, p["actual_offset"])
	e.stored(post("1", "1"))
	p = e.problem(post("9", "7"), 412, "INVALID_UPDATE_VERSION")
	require.EqualValues(t, 2, p["actual_offset"])
	require.Equal(t, []string{"0", "1"}, e.values("t", 0))
	batch := string(rawBatch("raw"))
	e.problem(e.post(path+"?partition=0", rawType, batch, "Expected-Offset", "1"), 412, "INVALID_UPDATE_VERSION")
	e.stored(e.post(path+"?partition=0", rawType, batch, "Expected-Offset", "2"))

	// Of many who append at the same offset one wins.
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 8 {
		wg.Go(func() {
			req, err := http.NewRequest(http.MethodPost, e.server.URL+path, strings.NewReader("race"))
			if err != nil {
				return
			}
			req.Header.Set("Content-Type", "text/plain")
			req.Header.Set("Expected-Offset", "3")
			resp, err := e.http.Do(req)
			if err != nil {
				return
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				mu.Lock()
				defer mu.Unlock()
				won++
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, won)
}

func TestNodeRefusesBadRecords(t *testing.T) {
	e := onNode(t)
	e.call(http.MethodPost, "/v1/topics", `{"name":"compact","configs":{"cleanup.policy":"compact"}}`,
		http.StatusCreated, nil)
	const compact, form = "/v1/topics/compact/records", "application/vnd.millrace.records+json"
	p := e.problem(e.post(compact, form, `[{"key":1,"value":1},{"value":2}]`), 400, "INVALID_RECORD")
	records := p["offsets"].([]any)[0].(map[string]any)["error"].(map[string]any)["records"].([]any)
	require.Len(t, records, 1)
	require.EqualValues(t, 1, records[0].(map[string]any)["index"])
	require.Empty(t, e.values("compact", 0), "nothing of a refused batch is stored")
	e.stored(e.post(compact+"?key=a", "application/json", "null"))
	require.Equal(t, []string{"(null)"}, e.values("compact", 0))

	p = e.problem(e.post(path+"?timestamp=32503680000000", "text/plain", "x"), 400, "INVALID_TIMESTAMP")
	require.EqualValues(t, 50002, p["error_code"])
	e.problem(e.post(path, "text/plain", strings.Repeat("x", 1_100_000)), 413, "MESSAGE_TOO_LARGE")
	damaged := record.Batch(rawBatch("a"))
	damaged.SetBaseOffset(0)
	damaged[len(damaged)-1] ^= 1
	e.problem(e.post(path+"?partition=0", rawType, string(damaged)), 400, "CORRUPT_MESSAGE")
	require.Empty(t, e.values("t", 0))
}

// The producer of a batch that was read from a log has no say where the batch is stored anew.
func TestNodeTakesBatchesOfOtherProducers(t *testing.T) {
	e := onNode(t)
	b := record.Batch(rawBatch("a"))
	b.SetProducer(7, 0, 0)
	for range 3 {
		p := e.stored(e.post(path+"?partition=0", rawType, string(b)))
		require.False(t, p.Offsets[0].Duplicate)
	}
	require.Equal(t, []string{"a", "a", "a"}, e.values("t", 0))
	b[len(b)-1] ^= 1
	e.problem(e.post(path+"?partition=0", rawType, string(b)), 400, "MALFORMED_BODY")
	damaged := record.Batch(rawBatch("b"))
	damaged[len(damaged)-1] ^= 1
	e.problem(e.post(path+"?partition=0", rawType, string(damaged), triple(0, 0)...), 400, "CORRUPT_MESSAGE")
	for i := range 2 { // the triple is for raw batches too
		p := e.stored(e.post(path+"?partition=0", rawType, string(rawBatch("b")), triple(0, 0)...))
		require.Equal(t, i == 1, p.Offsets[0].Duplicate)
	}
}

// A request may be larger than max.message.bytes as long as its records are not.
func TestNodeTakesLargeRequests(t *testing.T) {
	e := onNode(t)
	line := `"` + strings.Repeat("x", 998) + "\"\n"
	p := e.stored(e.post(path, "application/x-ndjson", strings.Repeat(line, 5000)))
	next := int64(0)
	for _, o := range p.Offsets {
		require.Equal(t, next, *o.BaseOffset)
		next += int64(o.Count)
	}
	require.EqualValues(t, 5000, next)
}

func TestNodeStampsTimes(t *testing.T) {
	e := onNode(t)
	e.call(http.MethodPost, "/v1/topics",
		`{"name":"stamped","configs":{"message.timestamp.type":"LogAppendTime"}}`, http.StatusCreated, nil)
	before := time.Now().Add(-time.Minute)
	p := e.stored(e.post("/v1/topics/stamped/records?timestamp=1000", "text/plain", "x"))
	at, err := time.Parse(time.RFC3339, p.Offsets[0].Timestamp)
	require.NoError(t, err)
	require.True(t, at.After(before), "the leader's time, not the client's")
}

func TestNodeAcks(t *testing.T) {
	e := onNode(t)
	for _, acks := range []string{"0", "1", "all", "-1"} {
		p := e.stored(e.post(path+"?acks="+acks, "text/plain", acks))
		require.Equal(t, 1, p.Offsets[0].Count)
	}
	require.Equal(t, []string{"0", "1", "all", "-1"}, e.values("t", 0))
}
