package native_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// txnAnswer is an answer of /v1/transactions.
type txnAnswer struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	Epoch       int    `json:"epoch"`
	Timeout     int    `json:"timeout_ms"`
	Transaction struct {
		ID    string `json:"id"`
		Epoch int    `json:"epoch"`
	} `json:"transaction"`
	Offsets []struct {
		Topic      string `json:"topic"`
		Partition  int32  `json:"partition"`
		BaseOffset *int64 `json:"base_offset"`
		Count      int    `json:"count"`
		Duplicate  bool   `json:"duplicate"`
	} `json:"offsets"`
}

func (e *writes) txn(r reply) (a txnAnswer) {
	e.t.Helper()
	require.Equal(e.t, http.StatusOK, r.status, r.body)
	require.NoError(e.t, json.Unmarshal([]byte(r.body), &a), r.body)
	return a
}

// committed reads the values that readers of committed records see.
func (e *writes) committed(topic string, partition int) (out []string) {
	e.t.Helper()
	r := e.send(http.MethodGet, fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=earliest&max_records=1000&"+
		"isolation=read_committed", topic, partition), "")
	require.Equal(e.t, http.StatusOK, r.status, r.body)
	var page struct {
		Records []struct {
			Value json.RawMessage `json:"value"`
		} `json:"records"`
	}
	require.NoError(e.t, json.Unmarshal([]byte(r.body), &page), r.body)
	for _, one := range page.Records {
		out = append(out, string(one.Value))
	}
	return out
}

// settled is committed once all decided transactions have reached their partitions.
func (e *writes) settled(topic string, partition int) []string {
	e.t.Helper()
	e.awaitTxns()
	return e.committed(topic, partition)
}

// awaitTxns waits until all decided transactions are known to all their partitions.
func (e *writes) awaitTxns() {
	e.t.Helper()
	until(e.t, func() bool {
		r := e.send(http.MethodGet, "/v1/transactions", "")
		require.Equal(e.t, http.StatusOK, r.status, r.body)
		return !strings.Contains(r.body, "ing\"")
	})
}

func (e *writes) groupOffset(group, topic string) int64 {
	e.t.Helper()
	r := e.send(http.MethodGet, "/v1/groups/"+group+"/offsets", "")
	if r.status == http.StatusNotFound {
		return -1
	}
	require.Equal(e.t, http.StatusOK, r.status, r.body)
	var page struct {
		Partitions []struct {
			Topic  string `json:"topic"`
			Offset int64  `json:"offset"`
		} `json:"partitions"`
	}
	require.NoError(e.t, json.Unmarshal([]byte(r.body), &page), r.body)
	for _, o := range page.Partitions {
		if o.Topic == topic {
			return o.Offset
		}
	}
	return -1
}

const onceBody = `{"records":[{"topic":"t","value":1},{"topic":"t3","partition":2,"value":2},{"topic":"t","value":3}],
	"offsets":[{"group":"g","topic":"t3","partition":0,"offset":7,"metadata":"m"}]}`

func TestTransactionInOneRequest(t *testing.T) {
	e := onNode(t)
	for round := range 3 {
		a := e.txn(e.post("/v1/transactions", "application/json", onceBody))
		require.Equal(t, "committed", a.State)
		require.Len(t, a.Offsets, 2)
		require.Equal(t, "t", a.Offsets[0].Topic)
		require.Equal(t, 2, a.Offsets[0].Count)
		require.EqualValues(t, 3*round, *a.Offsets[0].BaseOffset, "two records and a marker each")
		e.awaitTxns() // for the marker
	}
	require.Len(t, e.settled("t", 0), 6)
	require.Equal(t, []string{"2", "2", "2"}, e.settled("t3", 2))
	e.awaitTxns()
	require.EqualValues(t, 7, e.groupOffset("g", "t3"))
	r := e.send(http.MethodGet, "/v1/transactions", "")
	require.Contains(t, r.body, `"state":"commit`)
}

// What is refused leaves nothing, and the answer comes after the abort: readers are not held up.
func TestTransactionInOneRequestIsRefusedWhole(t *testing.T) {
	e := onNode(t)
	configs := map[string]string{"small": `"max.message.bytes":"300"`, "compact": `"cleanup.policy":"compact"`}
	for name, config := range configs {
		e.call(http.MethodPost, "/v1/topics", `{"name":"`+name+`","configs":{`+config+`}}`, http.StatusCreated, nil)
	}
	large := strings.Repeat("x", 1000)
	for name, c := range map[string]struct {
		body   string
		status int
		fault  string
	}{
		"record too large": {`{"records":[{"topic":"t","value":1},{"topic":"small","value":"` + large + `"}]}`,
			413, "MESSAGE_TOO_LARGE"},
		"no key": {`{"records":[{"topic":"t","value":1},{"topic":"compact","value":1}]}`, 400, "INVALID_RECORD"},
		"no such partition": {`{"records":[{"topic":"t","value":1},{"topic":"t","partition":7,"value":1}]}`, 404,
			"UNKNOWN_TOPIC_OR_PARTITION"},
		"offset of no topic": {`{"records":[{"topic":"t","value":1}],
			"offsets":[{"group":"g","topic":"none","partition":0,"offset":1}]}`,
			404, "UNKNOWN_TOPIC_OR_PARTITION"},
		"member of no group": {`{"records":[{"topic":"t","value":1}],
			"offsets":[{"group":"g","topic":"t","partition":0,"offset":1,"member":"m","epoch":3}]}`, 409, "ILLEGAL_GENERATION"},
		"metadata": {`{"records":[{"topic":"t","value":1}],"offsets":[{"group":"g","topic":"t","partition":0,"offset":1,
			"metadata":"` + strings.Repeat("m", 5000) + `"}]}`, 400, "OFFSET_METADATA_TOO_LARGE"},
		"empty":         {`{}`, 400, "MALFORMED_BODY"},
		"nothing in it": {`{"records":[],"offsets":null}`, 400, "MALFORMED_BODY"},
		"no topic":      {`{"records":[{"value":1}]}`, 400, "MALFORMED_BODY"},
		"bad topic":     {`{"records":[{"topic":"a/b","value":1}]}`, 400, "INVALID_TOPIC_EXCEPTION"},
		"own topic":     {`{"records":[{"topic":"__consumer_offsets","value":1}]}`, 400, "INVALID_TOPIC_EXCEPTION"},
		"negative":      {`{"offsets":[{"group":"g","topic":"t","partition":0,"offset":-1}]}`, 400, "MALFORMED_BODY"},
		"offset twice": {`{"offsets":[{"group":"g","topic":"t","partition":0,"offset":1},
			{"group":"g","topic":"t","partition":0,"offset":2}]}`, 400, "MALFORMED_BODY"},
		"epoch alone": {`{"offsets":[{"group":"g","topic":"t","partition":0,"offset":1,"epoch":1}]}`, 400,
			"MALFORMED_BODY"},
		"unknown field": {`{"recrods":[]}`, 422, "UNPROCESSABLE_BODY"},
		"text behind":   {onceBody + "x", 400, "MALFORMED_BODY"},
		"not an object": {`[]`, 400, "MALFORMED_BODY"},
	} {
		t.Run(name, func(t *testing.T) {
			e := *e
			e.t = t
			p := e.problem(e.post("/v1/transactions", "application/json", c.body), c.status, c.fault)
			require.Equal(t, "failed", p["outcome"])
			require.Empty(t, e.committed("t", 0))
		})
	}
	e.txn(e.post("/v1/transactions", "application/json", `{"records":[{"topic":"t","value":"good"}]}`))
	require.Equal(t, []string{`"good"`}, e.settled("t", 0))
	require.EqualValues(t, -1, e.groupOffset("g", "t"))
	e.problem(e.post("/v1/transactions?x=1", "application/json", onceBody), 400, "INVALID_PARAMETER")
	e.problem(e.post("/v1/transactions", "text/csv", onceBody), 415, "UNSUPPORTED_MEDIA_TYPE")
}

const long = "/v1/transactions/till-4"

func TestTransactionInSteps(t *testing.T) {
	e := onNode(t)
	begun := e.txn(e.send(http.MethodPost, long+"?timeout=30s", ""))
	require.Equal(t, "open", begun.State)
	require.Equal(t, 30_000, begun.Timeout)
	epoch := begun.Epoch
	at := func(what string) string { return fmt.Sprintf("%s/%s?epoch=%d", long, what, epoch) }

	for seq := range 3 {
		body := fmt.Sprintf(`{"n":%d}`, seq)
		for try := range 2 { // each of them is sent twice
			a := e.txn(e.post(at("records")+"&topic=t", "", body, "Producer-Seq", fmt.Sprint(seq)))
			require.Equal(t, try == 1, a.Offsets[0].Duplicate)
			require.EqualValues(t, seq, *a.Offsets[0].BaseOffset)
		}
	}
	e.txn(e.post(at("records"), "application/vnd.millrace.records+json",
		`[{"topic":"t3","key":"a","value":1},{"topic":"t","value":2}]`, "Producer-Seq", "3"))
	for range 2 {
		r := e.send(http.MethodPost, at("offsets"), `{"offsets":[{"group":"g","topic":"t","partition":0,"offset":3}]}`)
		require.Equal(t, http.StatusNoContent, r.status, r.body)
	}
	require.Empty(t, e.committed("t", 0))
	require.EqualValues(t, -1, e.groupOffset("g", "t"))
	r := e.send(http.MethodGet, long, "")
	require.Contains(t, r.body, `"state":"open"`)
	require.Contains(t, r.body, `"topic":"t3"`)

	done := e.txn(e.send(http.MethodPost, at("commit"), ""))
	require.Equal(t, "committed", done.State)
	require.Equal(t, epoch+1, done.Epoch)
	again := e.txn(e.send(http.MethodPost, at("commit"), ""))
	require.Equal(t, done, again, "a commit that is sent again")
	p := e.problem(e.send(http.MethodPost, at("abort"), ""), 409, "INVALID_TXN_STATE")
	require.Contains(t, []any{"committed", "committing"}, p["state"])
	require.Len(t, e.settled("t", 0), 4)
	e.awaitTxns()
	require.EqualValues(t, 3, e.groupOffset("g", "t"))

	// The next transaction goes on with the epoch that was given.
	epoch = done.Epoch
	e.txn(e.post(at("records")+"&topic=t", "", "9", "Producer-Seq", "0"))
	gone := e.txn(e.send(http.MethodPost, at("abort"), ""))
	require.Equal(t, "aborted", gone.State)
	require.Equal(t, gone, e.txn(e.send(http.MethodPost, at("abort"), "")))
	p = e.problem(e.send(http.MethodPost, at("commit"), ""), 409, "INVALID_TXN_STATE")
	require.EqualValues(t, gone.Epoch, p["current_epoch"])
	// The records of an aborted transaction never show.
	epoch = gone.Epoch
	e.txn(e.post(at("records")+"&topic=t", "", "10"))
	e.txn(e.send(http.MethodPost, at("commit"), ""))
	require.Equal(t, "10", e.settled("t", 0)[4])
}

func TestTransactionZombie(t *testing.T) {
	e := onNode(t)
	first := e.txn(e.send(http.MethodPost, long, ""))
	write := func(epoch int, headers ...string) reply {
		return e.post(fmt.Sprintf("%s/records?topic=t&epoch=%d", long, epoch), "", "1", headers...)
	}
	e.txn(write(first.Epoch))
	second := e.txn(e.send(http.MethodPost, long, ""))
	require.Greater(t, second.Epoch, first.Epoch)
	for name, r := range map[string]reply{
		"records": write(first.Epoch),
		"counted": write(first.Epoch, "Producer-Seq", "0"),
		"offsets": e.send(http.MethodPost, fmt.Sprintf("%s/offsets?epoch=%d", long, first.Epoch),
			`{"offsets":[{"group":"g","topic":"t","partition":0,"offset":3}]}`),
		"commit": e.send(http.MethodPost, fmt.Sprintf("%s/commit?epoch=%d", long, first.Epoch), ""),
	} {
		require.Equal(t, http.StatusForbidden, r.status, "%s: %s", name, r.body)
		var p map[string]any
		require.NoError(t, json.Unmarshal([]byte(r.body), &p))
		require.EqualValues(t, second.Epoch, p["current_epoch"], name)
		require.Equal(t, "failed", p["outcome"], name)
		require.Contains(t, p["detail"], "POST /v1/transactions/till-4", name)
	}
	e.txn(write(second.Epoch))
	e.txn(e.send(http.MethodPost, fmt.Sprintf("%s/commit?epoch=%d", long, second.Epoch), ""))
	require.Len(t, e.settled("t", 0), 1)
	// An operator ends what somebody has left open.
	third := e.txn(e.send(http.MethodPost, long, ""))
	e.txn(write(third.Epoch))
	require.Equal(t, "aborted", e.txn(e.send(http.MethodPost, long+"/abort", "")).State)
	e.problem(e.send(http.MethodPost, fmt.Sprintf("%s/commit?epoch=%d", long, third.Epoch), ""), 403, "PRODUCER_FENCED")
}

func TestTransactionBadRequests(t *testing.T) {
	e := onNode(t)
	begun := e.txn(e.send(http.MethodPost, long, ""))
	at := fmt.Sprintf("?epoch=%d", begun.Epoch)
	const form = "application/vnd.millrace.records+json"
	bad := func(r reply, status int, fault string) {
		t.Helper()
		require.Equal(t, "failed", e.problem(r, status, fault)["outcome"])
	}
	for _, id := range []string{"%00", "a%0Ab", "%FF", strings.Repeat("x", 256), "%C2%85", "__millrace-once-x"} {
		bad(e.send(http.MethodPost, "/v1/transactions/"+id, ""), 400, "INVALID_PARAMETER")
	}
	for _, timeout := range []string{"0", "-1s", "x", "999ms", "1e300"} {
		bad(e.send(http.MethodPost, long+"?timeout="+timeout, ""), 400, "INVALID_PARAMETER")
	}
	bad(e.send(http.MethodPost, long+"?timeout=1h", ""), 400, "INVALID_TRANSACTION_TIMEOUT")
	bad(e.send(http.MethodGet, "/v1/transactions/none", ""), 404, "TRANSACTIONAL_ID_NOT_FOUND")
	bad(e.send(http.MethodPost, "/v1/transactions/none/commit?epoch=0", ""), 404, "TRANSACTIONAL_ID_NOT_FOUND")
	bad(e.post("/v1/transactions/none/records?epoch=0&topic=t", "", "1"), 404, "TRANSACTIONAL_ID_NOT_FOUND")
	bad(e.send(http.MethodPost, long+"/commit", ""), 400, "INVALID_PARAMETER")
	bad(e.send(http.MethodPost, long+"/commit?epoch=40000", ""), 400, "INVALID_PARAMETER")
	bad(e.send(http.MethodPost, long+"/commit"+at, ""), 409, "INVALID_TXN_STATE")
	bad(e.post(long+"/records?topic=t", "", "1"), 400, "INVALID_PARAMETER")
	bad(e.post(long+"/records"+at, "", "1"), 400, "INVALID_PARAMETER")
	bad(e.post(long+"/records"+at+"&topic=t&acks=1", "", "1"), 400, "INVALID_PARAMETER")
	bad(e.post(long+"/records"+at+"&topic=t", "", "1", "Producer-Id", "p", "Producer-Seq", "0"), 400, "INVALID_PARAMETER")
	bad(e.post(long+"/records"+at+"&topic=t", "", "1", "Idempotency-Key", "k"), 400, "INVALID_PARAMETER")
	bad(e.post(long+"/records"+at+"&topic=t", "", "1", "Expected-Offset", "0"), 400, "INVALID_PARAMETER")
	bad(e.post(long+"/records"+at+"&topic=t&partition=0", rawType, string(rawBatch("a"))), 415, "UNSUPPORTED_MEDIA_TYPE")
	bad(e.post(long+"/records"+at, form, `[{"value":1}]`), 400, "MALFORMED_BODY")
	bad(e.post(long+"/records"+at+"&topic=t", form, `[{"topic":"t3","value":1}]`), 400, "MALFORMED_BODY")
	bad(e.send(http.MethodPost, long+"/offsets"+at, `{"offsets":[]}`), 400, "MALFORMED_BODY")
	bad(e.send(http.MethodGet, "/v1/transactions?state=odd", ""), 400, "INVALID_PARAMETER")
	bad(e.send(http.MethodGet, "/v1/transactions?limit=0", ""), 400, "INVALID_PARAMETER")
	// A request that is counted does not go with one that is not: of its repeat nothing would be known.
	e.txn(e.post(long+"/records"+at+"&topic=t", "", "1", "Producer-Seq", "0"))
	bad(e.post(long+"/records"+at+"&topic=t", "", "1"), 409, "OUT_OF_ORDER_SEQUENCE_NUMBER")
	// Odd names that are names.
	for _, id := range []string{"é/ü", "日本", "a b", "..", "%"} {
		a := e.txn(e.send(http.MethodPost, "/v1/transactions/"+strings.ReplaceAll(url.PathEscape(id), "..", "%2E%2E"), ""))
		require.Equal(t, id, a.ID)
	}
}

// A refused record takes the others of its transaction with it, and nobody is told to send the rest alone.
func TestNodeTellsThatNoneIsKept(t *testing.T) {
	e := onNode(t)
	r := e.post("/v1/topics", jsonType, `{"name":"compacted","configs":{"cleanup.policy":"compact"}}`)
	require.Equal(t, 201, r.status, r.body)
	const body = `{"records":[{"topic":"t","value":1},{"topic":"compacted","value":2}]}`
	p := e.problem(e.post("/v1/transactions", jsonType, body), 400, "INVALID_RECORD")
	require.Equal(t, "failed", p["outcome"])
	require.Contains(t, p["detail"], "1 of 2 records was not stored, so that none is kept, see offsets")
	require.Contains(t, p["detail"], "Correct the record")
	require.NotContains(t, p["detail"], "Send again only")
	require.Len(t, p["offsets"], 1)
	require.Empty(t, e.settled("t", 0))
}
