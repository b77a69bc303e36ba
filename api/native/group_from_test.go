package native_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// offered are the offsets of a page.
type offered struct {
	Offsets []struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
		From      *int64 `json:"from"`
		Offset    int64  `json:"offset"`
	}
	Delivery int64
}

// offers reads as a member, and says what it may commit.
func (g *crew) offers(id int, query string) (out offered) {
	g.t.Helper()
	status, _, text := g.do(id, "GET", "/v1/groups/g/records?wait=60s&"+query, nil, "")
	require.Equal(g.t, http.StatusOK, status, text)
	require.NoError(g.t, json.Unmarshal([]byte(text), &out), text)
	return out
}

// A page says what to commit for it, and from where: each comes from where the one before it went, whatever came
// between.
func TestWorkersOffers(t *testing.T) {
	g := newCrew(t, 1)
	g.topic("t", 1)
	for i := range 3 { // each followed by a marker
		status, _, text := g.do(1, "POST", "/v1/transactions", nil, fmt.Sprintf(`{"records":[{"topic":"t","value":%d}]}`, i))
		require.Equal(t, http.StatusOK, status, text)
	}
	const q = "topics=t&member=m&auto_offset_reset=earliest&commit=manual&max_records=1"
	first := g.offers(1, q+"&ack=0")
	require.Len(t, first.Offsets, 1)
	require.EqualValues(t, 0, *first.Offsets[0].From)
	require.Positive(t, first.Offsets[0].Offset)
	again := g.offers(1, q+"&ack=0")
	require.Equal(t, first.Offsets, again.Offsets, "what comes again is offered again")
	commit := func(o offered) (int, string) {
		text, err := json.Marshal(o.Offsets)
		require.NoError(t, err)
		status, _, answer := g.do(1, "POST", "/v1/groups/g/offsets", nil, `{"member":"m","offsets":`+string(text)+`}`)
		return status, answer
	}
	status, text := commit(again)
	require.Equal(t, http.StatusOK, status, text)
	second := g.offers(1, fmt.Sprintf("%s&ack=%d", q, again.Delivery))
	require.Equal(t, first.Offsets[0].Offset, *second.Offsets[0].From, "wherever its record is")
	status, text = commit(second)
	require.Equal(t, http.StatusOK, status, text)
	status, text = commit(second)
	require.Equal(t, http.StatusConflict, status, text)
	require.Contains(t, text, fmt.Sprintf(`"committed_offset":%d`, second.Offsets[0].Offset))
	require.Contains(t, text, "COMMITTED_OFFSET_MOVED")

	// Who commits something else goes on from that.
	third := g.offers(1, fmt.Sprintf("%s&ack=%d", q, second.Delivery))
	require.Equal(t, second.Offsets[0].Offset, *third.Offsets[0].From)
	status, _, text = g.do(1, "POST", "/v1/groups/g/offsets", nil,
		`{"member":"m","offsets":[{"topic":"t","partition":0,"offset":9}]}`)
	require.Equal(t, http.StatusOK, status, text)
	status, text = commit(third)
	require.Equal(t, http.StatusConflict, status, text)
}

// Of workers that have done the same records, one commits, whichever nodes they ask.
func TestTransactionsFromOneOffset(t *testing.T) {
	g := newCrew(t, 3)
	g.topic("t", 2)
	g.topic("out", 1)
	for round := range 3 {
		from := int64(5*round) - 1
		if from > 0 {
			from++
		}
		var wg sync.WaitGroup
		won, lost := make(chan string, 12), make(chan string, 12)
		for i := range 12 {
			body := fmt.Sprintf(`{"records":[{"topic":"out","value":"%d by %d"}],"offsets":`+
				`[{"group":"g","topic":"t","partition":1,"offset":%d,"from":%d}]}`, round, i, 5*(round+1), from)
			key := http.Header{"Idempotency-Key": {fmt.Sprintf("%d by %d", round, i)}} // so that it may be sent again
			wg.Go(func() {
				for {
					status, _, text := g.do(1+i%3, "POST", "/v1/transactions", key, body)
					var p struct{ Retryable bool }
					switch _ = json.Unmarshal([]byte(text), &p); {
					case status == http.StatusOK:
						won <- text
					case p.Retryable:
						continue
					default:
						lost <- text
					}
					return
				}
			})
		}
		wg.Wait()
		require.Len(t, won, 1)
		require.Len(t, lost, 11)
		for range 11 {
			text := <-lost
			require.Contains(t, text, "COMMITTED_OFFSET_MOVED")
			require.Contains(t, text, `"outcome":"failed"`)
			require.Contains(t, text, fmt.Sprintf(`"committed_offset":%d`, 5*(round+1)))
		}
	}
	read := func() int {
		status, _, text := g.do(2, "GET", "/v1/topics/out/records?offset=earliest&max_records=100", nil, "")
		require.Equal(t, http.StatusOK, status, text)
		var page struct{ Records []struct{ Value string } }
		require.NoError(t, json.Unmarshal([]byte(text), &page))
		return len(page.Records)
	}
	until(t, func() bool { return read() >= 3 })
	g.put("out", 0, `"9"`) // behind all that was written
	until(t, func() bool { return read() == 4 })
}

// The long form and a commit without a transaction compare too.
func TestCommitsFromAnOffset(t *testing.T) {
	e := onNode(t)
	const offsets = `{"offsets":[{%s"topic":"t","partition":0,"offset":%d,"from":%d}]}`
	plain := func(offset, from int) reply {
		return e.post("/v1/groups/g/offsets", "application/json", fmt.Sprintf(offsets, "", offset, from))
	}
	require.Equal(t, http.StatusOK, plain(3, -1).status)
	p := e.problem(plain(4, -1), http.StatusConflict, "COMMITTED_OFFSET_MOVED")
	require.EqualValues(t, 3, p["committed_offset"])
	require.Equal(t, "failed", p["outcome"])
	require.Equal(t, http.StatusOK, plain(4, 3).status)
	e.problem(plain(4, -2), http.StatusBadRequest, "MALFORMED_BODY")

	e.txn(e.post("/v1/transactions/x", "", ""))
	long := func(offset, from int) reply {
		return e.post("/v1/transactions/x/offsets?epoch=0", "application/json",
			fmt.Sprintf(offsets, `"group":"g",`, offset, from))
	}
	e.problem(long(9, 3), http.StatusConflict, "COMMITTED_OFFSET_MOVED")
	require.Equal(t, http.StatusNoContent, long(9, 4).status)
	require.Equal(t, http.StatusNoContent, long(9, 4).status, "the same again")
	p = e.problem(plain(5, 4), http.StatusServiceUnavailable, "UNSTABLE_OFFSET_COMMIT")
	require.Equal(t, true, p["retryable"])
	e.txn(e.post("/v1/transactions/x/commit?epoch=0", "", ""))
	e.awaitTxns()
	e.problem(plain(5, 4), http.StatusConflict, "COMMITTED_OFFSET_MOVED")
	require.EqualValues(t, 9, e.groupOffset("g", "t"))
}

// A member's transaction passes only for partitions that it has.
func TestTransactionOfAnothersPartition(t *testing.T) {
	g := newCrew(t, 3)
	g.topic("t", 2)
	const q = "topics=t&auto_offset_reset=earliest&commit=manual&wait=0s&member="
	g.read(1, "g", q+"a")
	have := func(member string, want int) (w *worked) {
		t.Helper()
		until(t, func() bool {
			g.read(2, "g", q+"a")
			w, _ = g.read(2, "g", q+member)
			return w.partitions() == want
		})
		return w
	}
	have("b", 1)
	mine, others := int32(-1), int32(-1)
	for _, p := range have("a", 1).Assignment[0].Partitions {
		mine, others = p, 1-p
	}
	post := func(member string, partition int32) (int, string, string) {
		return g.refused(3, "POST", "/v1/transactions", fmt.Sprintf(
			`{"offsets":[{"group":"g","member":%q,"topic":"t","partition":%d,"offset":1}]}`, member, partition))
	}
	status, name, text := post("a", others)
	require.Equal(t, http.StatusConflict, status, text)
	require.Equal(t, "FENCED_MEMBER_EPOCH", name)
	require.Contains(t, text, fmt.Sprintf("does not have t-%d", others))
	status, _, text = post("a", mine)
	require.Equal(t, http.StatusOK, status, text)
	status, _, text = post("b", others)
	require.Equal(t, http.StatusOK, status, text)
}

// What has not arrived is not committed by who leaves, or who commits all that has arrived.
func TestWorkersSayWhatHasArrived(t *testing.T) {
	g := newCrew(t, 1)
	g.topic("t", 1)
	g.put("t", 0, count(0, 10)...)
	const q = "topics=t&auto_offset_reset=earliest&max_records=3&member="
	one, _ := g.read(1, "g", q+"m&commit=manual&ack=0")
	require.Equal(t, count(0, 3), one.values())
	two, _ := g.read(1, "g", fmt.Sprintf("%sm&ack=%d", q, one.Delivery))
	require.Equal(t, count(3, 6), two.values())
	status, _, text := g.do(1, "POST", fmt.Sprintf("/v1/groups/g/offsets?ack=%d", one.Delivery), nil, `{"member":"m"}`)
	require.Equal(t, http.StatusOK, status, text)
	require.JSONEq(t, `{"offsets":[{"topic":"t","partition":0,"offset":3}]}`, text)
	require.EqualValues(t, 3, g.committed(1, "g", "t", 0))
	again, _ := g.read(1, "g", fmt.Sprintf("%sm&ack=%d", q, one.Delivery))
	require.Equal(t, count(3, 6), again.values())
	for range 2 { // asked for again it is the same
		status, _, text = g.do(1, "POST", fmt.Sprintf("/v1/groups/g/offsets?ack=%d", again.Delivery), nil, `{"member":"m"}`)
		require.Equal(t, http.StatusOK, status, text)
		require.JSONEq(t, `{"offsets":[{"topic":"t","partition":0,"offset":6}]}`, text)
	}
	for _, bad := range []string{"?ack=x", "?ack=-1", "?ack=" + fmt.Sprint(int64(1)<<62), "?ack=1&ack=2", "?other=1"} {
		status, name, text := g.refused(1, "POST", "/v1/groups/g/offsets"+bad, `{"member":"m"}`)
		require.Equal(t, http.StatusBadRequest, status, text)
		require.Equal(t, "INVALID_PARAMETER", name)
	}
	status, name, _ := g.refused(1, "POST", "/v1/groups/g/offsets?ack=1",
		`{"member":"m","offsets":[{"topic":"t","partition":0,"offset":1}]}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "INVALID_PARAMETER", name)
	status, _, text = g.do(1, "DELETE", "/v1/groups/g/members/m", nil, "")
	require.Equal(t, http.StatusNoContent, status, text)

	// With commit=auto leaving commits what the member had, but for what it says that it had not.
	three, _ := g.read(1, "g", q+"n&ack=0")
	require.Equal(t, count(6, 9), three.values())
	status, _, text = g.do(1, "DELETE", "/v1/groups/g/members/n?ack=0", nil, "")
	require.Equal(t, http.StatusNoContent, status, text)
	require.EqualValues(t, 6, g.committed(1, "g", "t", 0))
	four, _ := g.read(1, "g", q+"o&ack=0")
	require.Equal(t, count(6, 9), four.values())
	status, _, text = g.do(1, "DELETE", fmt.Sprintf("/v1/groups/g/members/o?ack=%d", four.Delivery), nil, "")
	require.Equal(t, http.StatusNoContent, status, text)
	require.EqualValues(t, 9, g.committed(1, "g", "t", 0))
}

// What refusals advise fits what was asked for.
func TestWorkersAdvice(t *testing.T) {
	g := newCrew(t, 1)
	g.topic("t", 2)
	g.put("t", 0, count(0, 5)...)
	status, name, text := g.refused(1, "GET", "/v1/groups/g/records?topics=t&member=m&auto_offset_reset=none", "")
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, status)
	require.Equal(t, "OFFSET_OUT_OF_RANGE", name)
	require.Contains(t, text, `"log_start_offset":0`)
	require.Contains(t, text, `"high_watermark":5`)
	require.Contains(t, text, "POST /v1/groups/g/offsets")
	status, _, text = g.do(1, "POST", "/v1/groups/g/offsets", nil,
		`{"member":"m","offsets":[{"topic":"t","partition":0,"offset":99},{"topic":"t","partition":1,"offset":0}]}`)
	require.Equal(t, http.StatusOK, status, text)
	status, _, text = g.refused(1, "GET", "/v1/groups/g/records?member=m&wait=20s", "")
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, status)
	require.Contains(t, text, `"offset":99`)
	require.Contains(t, text, "0 to 5")

	g.topic("other", 1)
	status, name, text = g.refused(1, "POST", "/v1/groups/g/offsets",
		`{"member":"m","offsets":[{"topic":"other","partition":0,"offset":0}]}`)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "MEMBER_CONFLICT", name)
	require.Contains(t, text, "does not have the partition")
	require.NotContains(t, text, "have this one leave")

	status, name, text = g.refused(1, "DELETE", "/v1/groups/g/members/gone", "")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "UNKNOWN_MEMBER_ID", name)
	require.Contains(t, text, "Nothing needs doing")
	require.NotContains(t, text, "Join")

	status, name, text = g.refused(1, "GET", "/v1/groups/g/records?topics=t&ack=7", "")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "FENCED_MEMBER_EPOCH", name)
	require.Contains(t, text, "without this member")
	require.NotContains(t, text, `\"\"`)
}

// A commit with a key is done once, and one that finds that its offset has moved says so each time.
func TestIdempotencyKeyOfCommits(t *testing.T) {
	g := newCrew(t, 3)
	g.topic("t", 1)
	header := func(key string) http.Header { return http.Header{"Idempotency-Key": {key}} }
	const body = `{"offsets":[{"topic":"t","partition":0,"offset":%d,"from":%d}]}`
	for i := range 6 {
		key := fmt.Sprint("commit-", i)
		status, head, text := g.do(1+i%3, "POST", "/v1/groups/g/offsets", header(key), fmt.Sprintf(body, i, i-1))
		require.Equal(t, http.StatusOK, status, text)
		require.Empty(t, head.Get("Idempotent-Replayed"))
		again, head, same := g.do(1+(i+1)%3, "POST", "/v1/groups/g/offsets", header(key), fmt.Sprintf(body, i, i-1))
		require.Equal(t, http.StatusOK, again, same)
		require.Equal(t, "true", head.Get("Idempotent-Replayed"))
		require.Equal(t, text, same)
	}
	for i := range 2 {
		status, _, text := g.do(1+i, "POST", "/v1/groups/g/offsets", header("late"), fmt.Sprintf(body, 9, 1))
		require.Equal(t, http.StatusConflict, status, text)
		require.Contains(t, text, `"outcome":"failed"`)
	}
	require.EqualValues(t, 5, g.committed(1, "g", "t", 0))
}
