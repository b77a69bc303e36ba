package native_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/record"
	"millrace/server/servertest"
)

// keyServer is a server of /v1 of its own over r, with a bound on its indexes of keys.
func keyServer(t testing.TB, r kmsg.Requestor, keyBytes int64) (*native.Server, http.Handler, *client.Client) {
	c := client.New(r, client.Options{MetadataTTL: time.Millisecond})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(64 << 20)})
	require.NoError(t, err)
	s := native.New(native.Options{Edge: edge, Client: c, KeyIndexBytes: keyBytes})
	t.Cleanup(s.Close)
	return s, api.NewRouter(edge, s.Mount), c
}

// onCompacted is a server of /v1 on a node, with compacted topics of one partition and of eight.
func onCompacted(t *testing.T, keyBytes int64) *writes {
	t.Helper()
	node := servertest.Start(t, servertest.Options{})
	e := &writes{t: t, http: node.Client}
	_, handler, c := keyServer(t, node.Requestor(), keyBytes)
	e.client, e.server = c, httptest.NewServer(handler)
	t.Cleanup(e.server.Close)
	e.http = e.server.Client()
	for _, body := range []string{
		`{"name":"c","configs":{"cleanup.policy":"compact"}}`, `{"name":"plain"}`,
		`{"name":"c8","partitions":8,"configs":{"cleanup.policy":"compact,delete"}}`,
	} {
		e.call(http.MethodPost, "/v1/topics", body, http.StatusCreated, nil)
	}
	return e
}

func TestKeyLatestValue(t *testing.T) {
	e := onCompacted(t, 0)
	get := func(path string, headers ...string) reply {
		return e.send(http.MethodGet, "/v1/topics/c/keys/"+path, "", headers...)
	}
	p := e.problem(get("a"), 404, "NO_SUCH_KEY")
	require.Contains(t, p["detail"], "no record of the key in c-0")
	const produce = "/v1/topics/c/records?timestamp=1767323045678&key="
	e.stored(e.post(produce+"a", "application/json", `{"n":1}`, "Record-Header-Source", "web"))
	first := get("a")
	require.Equal(t, 200, first.status, first.body)
	require.JSONEq(t, `{"partition":0,"offset":0,"timestamp":"2026-01-02T03:04:05.678Z","key_text":"a","value":{"n":1},
		"headers":[{"name":"source","value":"web"}]}`, first.body)
	require.Equal(t, "application/json", first.header.Get("Content-Type"))
	require.Equal(t, "0", first.header.Get("Record-Offset"))
	require.Equal(t, "0", first.header.Get("Record-Partition"))
	require.Equal(t, "2026-01-02T03:04:05.678Z", first.header.Get("Record-Timestamp"))
	require.Equal(t, "web", first.header.Get("Record-Header-Source"))
	require.Equal(t, "private, no-cache", first.header.Get("Cache-Control"))

	// Unchanged is 304, in the representation that the tag is of.
	tag := first.header.Get("ETag")
	require.Equal(t, 304, get("a", "If-None-Match", `"x", `+tag).status)
	raw := get("a", "Accept", "application/octet-stream", "If-None-Match", tag)
	require.Equal(t, 200, raw.status)
	require.Equal(t, `{"n":1}`, raw.body)
	require.Equal(t, "nosniff", raw.header.Get("X-Content-Type-Options"))
	e.stored(e.post(produce+"b", "application/json", `7`))
	require.Equal(t, 304, get("a", "If-None-Match", tag).status, "another key")
	e.stored(e.post(produce+"a", "application/json", `{"n":2}`))
	second := get("a", "If-None-Match", tag)
	require.Equal(t, 200, second.status)
	require.Contains(t, second.body, `"value":{"n":2}`)
	require.Equal(t, "2", second.header.Get("Record-Offset"))

	// Forms.
	require.Contains(t, get("a?format=base64&key_format=base64").body, `"key_base64":"YQ==","value_base64":"eyJuIjoyfQ=="`)
	text := get("a", "Accept", "text/plain")
	require.Equal(t, `{"n":2}`, text.body)
	require.Equal(t, "text/plain; charset=utf-8", text.header.Get("Content-Type"))
	head := e.send(http.MethodHead, "/v1/topics/c/keys/a", "")
	require.Equal(t, 200, head.status)
	require.Equal(t, second.header.Get("ETag"), head.header.Get("ETag"))
	e.problem(get("a", "Accept", "image/png"), 406, "NOT_ACCEPTABLE")
	e.stored(e.post(produce+"bytes", "application/octet-stream", "\xff\x00"))
	e.problem(get("bytes", "Accept", "text/plain"), 406, "NOT_ACCEPTABLE")
	require.Equal(t, "\xff\x00", get("bytes", "Accept", "application/octet-stream").body)
	e.stored(e.post(produce+"empty", "application/octet-stream", ""))
	require.Equal(t, 200, get("empty", "Accept", "application/octet-stream").status, "an empty value is one")

	// Deleted.
	deleted := e.send(http.MethodDelete, "/v1/topics/c/keys/a", "")
	require.Equal(t, 200, deleted.status, deleted.body)
	require.Contains(t, deleted.body, `{"partition":0,"offset":5,"timestamp":"`)
	p = e.problem(get("a", "If-None-Match", second.header.Get("ETag")), 404, "NO_SUCH_KEY")
	require.Contains(t, p["detail"], "was deleted in c-0 by the tombstone at offset 5")
	require.NotEmpty(t, p["deleted_at"])
	e.stored(e.post(produce+"a", "application/json", `3`))
	require.Equal(t, "3", get("a", "Accept", "application/octet-stream").body)
}

func TestKeyNames(t *testing.T) {
	e := onCompacted(t, 0)
	for i, key := range []struct{ path, record string }{
		{"a%2Fb", `"key_text":"a/b"`},
		{"a%20b+c", `"key_text":"a b+c"`},
		{"%C3%BC", `"key_text":"ü"`},
		{"%25", `"key_text":"%"`},
		{"%7B%22id%22:1%7D", `"key":{"id":1}`},
		{"_wD-?key_encoding=base64", `"key_base64":"/wD+"`},
		{"%2FwD%2B?key_encoding=base64", `"key_base64":"/wD+"`},
		{"YQ==?key_encoding=base64", `"key_text":"a"`},
	} {
		body := fmt.Sprintf(`[{%s,"value":%d}]`, key.record, i)
		e.stored(e.post("/v1/topics/c8/records", "application/vnd.millrace.records+json", body))
		r := e.send(http.MethodGet, "/v1/topics/c8/keys/"+key.path, "", "Accept", "application/octet-stream")
		require.Equal(t, 200, r.status, "%s: %s", key.path, r.body)
		require.Equal(t, fmt.Sprint(i), r.body)
	}
	// Who placed a record by hand names the partition.
	home := record.KeyPartition([]byte("hand"), 8)
	away := (home + 3) % 8
	e.stored(e.post(fmt.Sprintf("/v1/topics/c8/records?key=hand&partition=%d", away), "application/json", "1"))
	p := e.problem(e.send(http.MethodGet, "/v1/topics/c8/keys/hand", ""), 404, "NO_SUCH_KEY")
	require.EqualValues(t, home, p["partition"])
	require.Contains(t, p["detail"], "the parameter partition")
	path := fmt.Sprintf("/v1/topics/c8/keys/hand?partition=%d", away)
	require.Equal(t, 200, e.send(http.MethodGet, path, "").status)
	require.Equal(t, 200, e.send(http.MethodDelete, path, "").status)
	e.problem(e.send(http.MethodGet, path, ""), 404, "NO_SUCH_KEY")

	for query, name := range map[string]string{
		"%FF": "INVALID_PARAMETER", "a?key_encoding=hex": "INVALID_PARAMETER", "!?key_encoding=base64": "INVALID_PARAMETER",
		"a?partition=-1": "INVALID_PARAMETER", "a?partition=x": "INVALID_PARAMETER", "a?offset=1": "INVALID_PARAMETER",
		"a?format=xml": "INVALID_PARAMETER", "a?format=json&format=json": "INVALID_PARAMETER",
		"a?partition=%zz": "INVALID_PARAMETER",
	} {
		e.problem(e.send(http.MethodGet, "/v1/topics/c8/keys/"+query, ""), 400, name)
	}
	e.problem(e.send(http.MethodDelete, "/v1/topics/c8/keys/a?format=json", ""), 400, "INVALID_PARAMETER")
	e.problem(e.send(http.MethodGet, "/v1/topics/c8/keys/a?partition=8", ""), 404, "UNKNOWN_TOPIC_OR_PARTITION")
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		e.problem(e.send(method, "/v1/topics/none/keys/a", ""), 404, "UNKNOWN_TOPIC_OR_PARTITION")
		p := e.problem(e.send(method, "/v1/topics/plain/keys/a", ""), 409, "NOT_COMPACTED")
		require.Contains(t, p["detail"], "cleanup.policy")
	}
	require.Empty(t, e.values("plain", 0), "a refused deletion wrote nothing")
}

// What a transaction wrote counts when it is committed, and not at all when it is aborted.
func TestKeyTransactions(t *testing.T) {
	e := onCompacted(t, 0)
	value := func() string {
		r := e.send(http.MethodGet, "/v1/topics/c/keys/k", "", "Accept", "application/octet-stream")
		require.Equal(t, 200, r.status, r.body)
		return r.body
	}
	put := func(v string, txn *client.TxnProducer) {
		topic, err := e.client.Topic(t.Context(), "c", client.Refuse)
		require.NoError(t, err)
		s := e.client.NewSender(topic, nil, 10, client.SendOptions{Acks: client.AcksAll, Timeout: time.Minute, Txn: txn})
		defer s.Release()
		require.NoError(t, s.Add(record.Record{Key: []byte("k"), Value: []byte(v)}, 0))
		require.NoError(t, s.Send(t.Context()))
		require.NoError(t, s.Record(0).Err)
	}
	put("0", nil)
	p, err := e.client.InitTxn(t.Context(), client.TxnInit{ID: "t", Timeout: time.Minute})
	require.NoError(t, err)
	for i, end := range []client.Decision{client.Abort, client.Commit, client.Abort} {
		before := value()
		put(fmt.Sprint("in ", i), &p)
		require.Equal(t, before, value())
		p, err = e.client.EndTxn(t.Context(), p, end)
		require.NoError(t, err)
		want := before
		if end == client.Commit {
			want = fmt.Sprint("in ", i)
		}
		until(t, func() bool { return value() == want })
		put(fmt.Sprint("out ", i), nil)
		until(t, func() bool { return value() == fmt.Sprint("out ", i) })
	}
}

func TestKeyAfterItsRecordsWent(t *testing.T) {
	e := onCompacted(t, 0)
	const path = "/v1/topics/c8/keys/k?partition=0"
	put := func(key, value string) {
		e.stored(e.post("/v1/topics/c8/records?partition=0&key="+key, "application/json", value))
	}
	get := func() string {
		return e.send(http.MethodGet, path, "", "Accept", "application/octet-stream").body
	}
	put("k", "1")
	require.Equal(t, "1", get())
	put("other", "2")
	cut := func(before int) {
		e.call(http.MethodPost, "/v1/topics/c8/records/delete",
			fmt.Sprintf(`{"partitions":[{"partition":0,"before_offset":%d}]}`, before), http.StatusOK, nil)
	}
	cut(1)
	p := e.problem(e.send(http.MethodGet, path, ""), 404, "NO_SUCH_KEY")
	require.Contains(t, p["detail"], "no record of the key")
	put("k", "3") // 2
	put("k", "4") // 3
	cut(3)        // before the index has seen it
	require.Equal(t, "4", get())

	// The topic is made anew, and so are its offsets.
	e.call(http.MethodDelete, "/v1/topics/c8", "", http.StatusNoContent, nil)
	e.call(http.MethodPost, "/v1/topics", `{"name":"c8","configs":{"cleanup.policy":"compact"}}`, http.StatusCreated, nil)
	e.problem(e.send(http.MethodGet, path, ""), 404, "NO_SUCH_KEY")
	put("k", "5")
	require.Equal(t, "5", get())
}

// Keys that do not fit the memory for indexes are looked for one by one, and found all the same, also where many reads
// at once take all that memory for a moment.
func TestKeysBeyondTheBudget(t *testing.T) {
	e := onCompacted(t, 16<<10)
	const keys = 3000
	var lines strings.Builder
	for round := range 2 {
		for i := range keys {
			fmt.Fprintf(&lines, "{\"key_text\":\"key-%d\",\"value\":%d}\n", i, 10*i+round)
		}
	}
	for _, topic := range []string{"c", "c8"} {
		e.stored(e.post("/v1/topics/"+topic+"/records", "application/vnd.millrace.records+ndjson", lines.String()))
	}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < keys; i += 397 {
				topic := []string{"c", "c8"}[i%2]
				got, err := e.get(t.Context(), fmt.Sprintf("/v1/topics/%s/keys/key-%d", topic, i))
				if err != nil || got != fmt.Sprint(10*i+1) {
					t.Errorf("%s key-%d: %s %v", topic, i, got, err)
				}
			}
		})
	}
	wg.Wait()
	e.stored(e.post("/v1/topics/c/records?key=key-5", "application/json", "77"))
	got, err := e.get(t.Context(), "/v1/topics/c/keys/key-5")
	require.NoError(t, err)
	require.Equal(t, "77", got)
	e.problem(e.send(http.MethodGet, "/v1/topics/c/keys/key-none", ""), 404, "NO_SUCH_KEY")
}

// get reads a value, off the test's goroutine too.
func (e *writes) get(ctx context.Context, path string) (string, error) {
	return getValue(ctx, e.http, e.server.URL+path)
}

// Keys are read while the topic is compacted: what was the latest record of a key stays, what was a tombstone goes.
func TestKeysWhileTheTopicIsCompacted(t *testing.T) {
	node := servertest.Start(t, servertest.Options{Broker: map[string]string{"log.cleaner.backoff.ms": "20"}})
	e := &writes{t: t, http: node.Client, server: &httptest.Server{URL: node.URL()}}
	e.call(http.MethodPost, "/v1/topics", `{"name":"c","configs":{"cleanup.policy":"compact","segment.bytes":"1048576",
		"min.cleanable.dirty.ratio":"0.01","delete.retention.ms":"0"}}`, http.StatusCreated, nil)
	const keys = 50
	filler := strings.Repeat("x", 4<<10)
	get := func(key int) string {
		got, err := e.get(t.Context(), fmt.Sprintf("/v1/topics/c/keys/key-%d", key))
		if errors.Is(err, errNoValue) {
			return "none"
		}
		require.NoError(t, err)
		got, _, _ = strings.Cut(got, " ")
		return got
	}
	offsets := func() int { // of the records that are there
		var page struct{ Records []struct{ Offset int } }
		r := e.send(http.MethodGet, "/v1/topics/c/records?max_bytes=16777216&format=base64", "")
		require.NoError(t, json.Unmarshal([]byte(r.body), &page), r.body)
		return len(page.Records)
	}
	e.stored(e.post("/v1/topics/c/records?key=gone", "text/plain", "1"))
	require.Equal(t, 200, e.send(http.MethodDelete, "/v1/topics/c/keys/gone", "").status)
	written := 2
	for round := 1; round < 100; round++ {
		for key := range keys {
			e.stored(e.post(fmt.Sprintf("/v1/topics/c/records?key=key-%d", key), "text/plain", fmt.Sprint(round, " ", filler)))
			written++
			require.Equal(t, fmt.Sprint(round), get(key))
			if key < keys-1 {
				require.Equal(t, fmt.Sprint(round-1), strings.ReplaceAll(get(key+1), "none", "0"), "of the last round")
			}
		}
		if round > 10 && offsets() < written/2 {
			p := e.problem(e.send(http.MethodGet, "/v1/topics/c/keys/gone", ""), 404, "NO_SUCH_KEY")
			t.Log(p["detail"])
			if strings.Contains(fmt.Sprint(p["detail"]), "no record") {
				return
			}
		}
	}
	require.Fail(t, "the topic was not compacted")
}
