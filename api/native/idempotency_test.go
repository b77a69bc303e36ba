package native_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/server/servertest"
)

// keyed posts with an Idempotency-Key.
func (e *writes) keyed(key, path, contentType, body string) reply {
	e.t.Helper()
	return e.post(path, contentType, body, "Idempotency-Key", key)
}

// sure is keyed, sent again while it is too early: with a key that does no harm.
func (e *writes) sure(key, path, contentType, body string) (r reply) {
	e.t.Helper()
	until(e.t, func() bool {
		r = e.keyed(key, path, contentType, body)
		return r.status != http.StatusServiceUnavailable
	})
	return r
}

// replayed checks that an answer is the one that was given before.
func replayed(t *testing.T, first, second reply) {
	t.Helper()
	require.Equal(t, first.status, second.status, second.body)
	require.Equal(t, first.body, second.body)
	require.Equal(t, "true", second.header.Get("Idempotent-Replayed"))
	for _, name := range []string{"Content-Type", "Location"} {
		require.Equal(t, first.header.Get(name), second.header.Get(name))
	}
}

func TestIdempotencyKeyReplaysAnswers(t *testing.T) {
	e := onNode(t)
	for name, c := range map[string]struct{ path, contentType, body string }{
		"produce":      {path, "text/plain", "once"},
		"topic":        {"/v1/topics", "application/json", `{"name":"made","partitions":2}`},
		"transaction":  {"/v1/transactions", "application/json", `{"records":[{"topic":"t3","partition":1,"value":1}]}`},
		"begin":        {"/v1/transactions/till-9", "", ""},
		"refused":      {"/v1/topics", "application/json", `{"name":"made too","partitions":2}`},
		"not found":    {"/v1/topics/none/records/delete", "application/json", `{"partitions":[{"partition":0}]}`},
		"bad produce":  {path, "application/json", `{`},
		"bad txn body": {"/v1/transactions", "application/json", `{"x":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			e := *e
			e.t = t
			key := "key of " + name
			first := e.keyed(key, c.path, c.contentType, c.body)
			require.Empty(t, first.header.Get("Idempotent-Replayed"))
			require.NotEqual(t, http.StatusInternalServerError, first.status, first.body)
			for range 2 {
				replayed(t, first, e.keyed(key, c.path, c.contentType, c.body))
			}
			p := e.problem(e.keyed(key, c.path, c.contentType, c.body+" "), 422, "IDEMPOTENCY_KEY_REUSED")
			require.Equal(t, "failed", p["outcome"])
			e.problem(e.keyed(key, "/v1/topics/t3/records", c.contentType, c.body), 422, "IDEMPOTENCY_KEY_REUSED")
		})
	}
	require.Equal(t, []string{"once"}, e.values("t", 0))
	require.Equal(t, []string{"1"}, e.settled("t3", 1))
	e.problem(e.post(path, "text/plain", "x", "Idempotency-Key", ""), 400, "INVALID_PARAMETER")
	e.problem(e.post(path, "text/plain", "x", "Idempotency-Key", strings.Repeat("k", 256)), 400, "INVALID_PARAMETER")
	e.problem(e.post(path, "text/plain", "x", "Idempotency-Key", "a", "Idempotency-Key", "b"), 400, "INVALID_PARAMETER")
	// What the cluster keeps is its own.
	e.problem(e.post("/v1/topics/__idempotency_keys/records?key=k", "text/plain", "x"), 400, "INVALID_TOPIC_EXCEPTION")
	const own = `{"records":[{"topic":"__idempotency_keys","key":1,"value":1}]}`
	e.problem(e.post("/v1/transactions", "application/json", own),
		400, "INVALID_TOPIC_EXCEPTION")
}

// Of many requests with one key at a time one is served; the others are told to wait, or get its answer.
func TestIdempotencyKeyConcurrently(t *testing.T) {
	e := onNode(t)
	for round := range 5 {
		key := fmt.Sprintf("order-%d", round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		answers := map[string]int{}
		for range 8 {
			wg.Go(func() {
				req, err := http.NewRequest(http.MethodPost, e.server.URL+"/v1/transactions",
					strings.NewReader(fmt.Sprintf(`{"records":[{"topic":"t","value":%d}]}`, round)))
				if err != nil {
					return
				}
				req.Header.Set("Idempotency-Key", key)
				resp, err := e.http.Do(req)
				if err != nil {
					return
				}
				defer resp.Body.Close()
				kind := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Idempotent-Replayed"))
				if resp.StatusCode == http.StatusConflict {
					kind += "retry after " + resp.Header.Get("Retry-After")
				}
				mu.Lock()
				defer mu.Unlock()
				answers[kind]++
			})
		}
		wg.Wait()
		require.Equal(t, 1, answers["200 "], answers)
		require.Equal(t, 8, answers["200 "]+answers["200 true"]+answers["409 retry after 1"], answers)
		first := e.keyed(key, "/v1/transactions", "", fmt.Sprintf(`{"records":[{"topic":"t","value":%d}]}`, round))
		require.Equal(t, "true", first.header.Get("Idempotent-Replayed"))
	}
	require.Equal(t, []string{"0", "1", "2", "3", "4"}, e.settled("t", 0))
}

// An answer that says to try again is not kept: nothing was done.
func TestIdempotencyKeyIsFreeAfterARefusalForNow(t *testing.T) {
	e := onNode(t)
	e.call(http.MethodPost, "/v1/topics", `{"name":"strict","configs":{"min.insync.replicas":"2"}}`,
		http.StatusCreated, nil)
	const strict = "/v1/topics/strict/records"
	for range 2 {
		e.problem(e.keyed("k", strict, "text/plain", "x"), 503, "NOT_ENOUGH_REPLICAS")
	}
	e.call(http.MethodPatch, "/v1/topics/strict", `{"configs":{"min.insync.replicas":"1"}}`, http.StatusOK, nil)
	first := e.sure("k", strict, "text/plain", "x")
	require.Equal(t, http.StatusOK, first.status, first.body)
	replayed(t, first, e.keyed("k", strict, "text/plain", "x"))
	require.Equal(t, []string{"x"}, e.values("strict", 0))
}

// Keys outlive the node: what was answered is answered again, and what was under way is found out.
func TestIdempotencyKeySurvivesRestarts(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{})
	on := func(id int) *writes {
		e := &writes{t: t, http: c.Client}
		e.server = &httptest.Server{URL: c.URL(id)}
		e.client = client.New(c.Node(id).Requestor(), client.Options{})
		return e
	}
	e := on(1)
	e.call(http.MethodPost, "/v1/topics", `{"name":"t","replication_factor":3}`, http.StatusCreated, nil)
	bodies := map[string]string{}
	for i := range 6 {
		key := fmt.Sprintf("k%d", i)
		body := fmt.Sprintf(`{"records":[{"topic":"t","value":%d}]}`, i)
		first := e.sure(key, "/v1/transactions", "", body)
		require.Equal(t, http.StatusOK, first.status, first.body)
		bodies[key] = body
	}
	for id := 1; id <= 3; id++ {
		c.Stop(id)
		c.Start(id)
		for key, body := range bodies {
			for node := 1; node <= 3; node++ {
				r := on(node).sure(key, "/v1/transactions", "", body)
				require.Equal(t, http.StatusOK, r.status, r.body)
				require.Equal(t, "true", r.header.Get("Idempotent-Replayed"))
			}
		}
	}
	require.Len(t, on(2).settled("t", 0), 6)
}

// attemptAt leaves a key as a node does that dies in the middle of a request.
func attemptAt(t *testing.T, e *writes, key string, fingerprint []byte, note any) {
	t.Helper()
	claim, before, err := e.client.NewKeys().Claim(t.Context(), key, fingerprint, time.Minute)
	require.NoError(t, err)
	require.Nil(t, before)
	if note != nil {
		require.NoError(t, claim.Note(t.Context(), note))
	}
	require.NoError(t, claim.Leave(t.Context(), client.KeyUnknown))
}

// fingerprintOf learns how a request is told apart, from what is kept of another one that is the same.
func fingerprintOf(t *testing.T, e *writes, path, contentType, body string) []byte {
	t.Helper()
	e.keyed("learn "+path+body, path, contentType, body)
	topic, err := e.client.Topic(t.Context(), client.KeysTopic, client.Refuse)
	require.NoError(t, err)
	for p := range topic.Partitions {
		for _, r := range e.records(client.KeysTopic, int32(p)) {
			var entry client.KeyEntry
			require.NoError(t, json.Unmarshal(r.Value, &entry))
			if string(r.Key) == "learn "+path+body {
				return entry.Fingerprint
			}
		}
	}
	require.Fail(t, "nothing was kept")
	return nil
}

func TestIdempotencyKeyAfterACrash(t *testing.T) {
	e := onNode(t)
	// A produce is done again: what is stored already is found.
	e.keyed("warm", path, "text/plain", "warm")
	fp := fingerprintOf(t, e, path, "text/plain", "x")
	attemptAt(t, e, "produce", fp, nil)
	first := e.keyed("produce", path, "text/plain", "x")
	require.Equal(t, http.StatusOK, first.status, first.body)
	replayed(t, first, e.keyed("produce", path, "text/plain", "x"))

	// Where it cannot be done again, what the first one has done is not known, however often it is asked for.
	fp = fingerprintOf(t, e, "/v1/topics/t3/records?partition=1", "text/plain", "y")
	attemptAt(t, e, "lost", fp, nil)
	e.call(http.MethodDelete, "/v1/topics/t3", "", http.StatusNoContent, nil)
	e.call(http.MethodPost, "/v1/topics", `{"name":"t3","partitions":1}`, http.StatusCreated, nil)
	for range 2 {
		r := e.keyed("lost", "/v1/topics/t3/records?partition=1", "text/plain", "y")
		p := e.problem(r, 404, "UNKNOWN_TOPIC_OR_PARTITION")
		require.Equal(t, "unknown", p["outcome"])
	}

	// A topic that is there as was asked for is taken for the one that was made.
	const topic = `{"name":"half","partitions":2,"configs":{"retention.ms":"1000"}}`
	fp = fingerprintOf(t, e, "/v1/topics", "", topic)
	attemptAt(t, e, "create", fp, nil)
	made := e.keyed("create", "/v1/topics", "", topic)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	e.problem(e.keyed("another", "/v1/topics", "", topic), 409, "TOPIC_ALREADY_EXISTS")

	// What cannot be done again is said to be unknown, every time.
	const deletion = `{"partitions":[{"partition":0,"before_offset":1}]}`
	fp = fingerprintOf(t, e, path+"/delete", "application/json", deletion)
	attemptAt(t, e, "delete", fp, nil)
	for range 2 {
		r := e.keyed("delete", path+"/delete", "application/json", deletion)
		p := e.problem(r, 500, "IDEMPOTENCY_OUTCOME_UNKNOWN")
		require.Equal(t, "unknown", p["outcome"])
	}
}

// A transaction whose node died is aborted and done again if it was open, and else answered by what was decided.
func TestIdempotencyKeyOfATransactionAfterACrash(t *testing.T) {
	e := onNode(t)
	const body = `{"records":[{"topic":"t3","partition":0,"value":1}]}`
	fp := fingerprintOf(t, e, "/v1/transactions", "", body)
	require.Len(t, e.settled("t3", 0), 1)
	ctx := t.Context()
	for _, decision := range []string{"open", "committed", "aborted", "not begun"} {
		p, err := e.client.InitTxn(ctx, client.TxnInit{ID: "died-" + decision, Timeout: 60_000_000_000})
		require.NoError(t, err)
		attemptAt(t, e, decision, fp, map[string]any{"id": p.ID, "epoch": p.Epoch, "producer_id": p.ProducerID})
		if decision != "not begun" {
			_, err := e.client.CommitTxnOffsets(ctx, p, client.GroupCommit{
				Group: "g", Epoch: -1,
				Offsets: []client.CommittedOffset{{TopicPartition: client.TopicPartition{Topic: "t"}, Offset: 1}},
			})
			require.NoError(t, err)
		}
		if decision == "committed" || decision == "aborted" {
			_, err := e.client.EndTxn(ctx, p, decision == "committed")
			require.NoError(t, err)
		}
		first := e.keyed(decision, "/v1/transactions", "", body)
		require.Equal(t, http.StatusOK, first.status, first.body)
		require.Equal(t, decision == "committed", strings.Contains(first.body, `"offsets_lost":true`), first.body)
		replayed(t, first, e.keyed(decision, "/v1/transactions", "", body))
		d, err := e.client.DescribeTxn(ctx, p.ID)
		require.NoError(t, err)
		require.NotEqual(t, client.TxnOngoing, d.State)
	}
	require.Len(t, e.settled("t3", 0), 4, "the first, and three that were done again")
}

// An attempt that was taken over notes and keeps nothing any more: two of them never both go on.
func TestIdempotencyKeyIsTakenOver(t *testing.T) {
	e := onNode(t)
	ctx, keys, fp := t.Context(), e.client.NewKeys(), []byte("fingerprint")
	first, before, err := keys.Claim(ctx, "k", fp, time.Minute)
	require.NoError(t, err)
	require.Nil(t, before)
	require.NoError(t, first.Note(ctx, "first"))
	_, _, err = keys.Claim(ctx, "k", fp, time.Minute)
	require.ErrorIs(t, err, client.ErrKeyRunning)
	_, _, err = keys.Claim(ctx, "k", []byte("other"), time.Minute)
	require.ErrorIs(t, err, client.ErrKeyReused)
	second, before, err := keys.Claim(ctx, "k", fp, 0)
	require.NoError(t, err)
	require.JSONEq(t, `"first"`, string(before.Note))
	require.ErrorIs(t, first.Note(ctx, "late"), client.ErrKeyRunning)
	require.ErrorIs(t, first.Done(ctx, client.KeyEntry{Status: 200}), client.ErrKeyRunning)
	require.NoError(t, second.Leave(ctx, client.KeyFree))
	third, before, err := keys.Claim(ctx, "k", fp, time.Minute)
	require.NoError(t, err)
	require.Nil(t, before, "nothing was done")
	require.NoError(t, third.Done(ctx, client.KeyEntry{Status: 201, Body: []byte("made")}))
	claim, kept, err := keys.Claim(ctx, "k", fp, 0)
	require.NoError(t, err)
	require.Nil(t, claim)
	require.Equal(t, 201, kept.Status)
	require.Equal(t, "made", string(kept.Body))
}
