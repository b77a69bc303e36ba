package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
	"millrace/storage/storagetest"
)

// damage is what a reader is told of a damaged batch.
type damage struct {
	Type, Detail, Outcome, Topic, Next string
	Status, Partition                  int
	ErrorCode                          int `json:"error_code"`
	Retryable                          bool
	Offset                             int64
	ResumeOffset                       int64 `json:"resume_offset"`
}

// reader reads a node's records.
type reader struct {
	t    *testing.T
	node *servertest.Node
}

// get reads an answer to its end; of a live stream, n events.
func (r *reader) get(path, accept string, n int) (status int, body []byte, events []event) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.node.URL()+path, nil)
	require.NoError(r.t, err)
	req.Header.Set("Accept", accept)
	resp, err := r.node.Client.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		events, err = readEvents(resp.Body, n)
	} else {
		body, err = io.ReadAll(resp.Body)
	}
	require.NoError(r.t, err)
	return resp.StatusCode, body, events
}

// refused reads what must be refused because of damage.
func (r *reader) refused(path, accept string) (d damage) {
	r.t.Helper()
	status, body, _ := r.get(path, accept, 0)
	require.Equal(r.t, http.StatusInternalServerError, status, "%s: %s", accept, body)
	require.NoError(r.t, json.Unmarshal(body, &d))
	return d
}

// values reads a page.
func (r *reader) values(path string) (values []int, next string) {
	r.t.Helper()
	status, body, _ := r.get(path, "application/json", 0)
	require.Equal(r.t, http.StatusOK, status, "%s", body)
	var page struct {
		Records []struct{ Value int }
		Next    string
	}
	require.NoError(r.t, json.Unmarshal(body, &page))
	for _, rec := range page.Records {
		values = append(values, rec.Value)
	}
	return values, page.Next
}

// post sends a body that must be taken.
func (r *reader) post(path, mediaType, body string) {
	r.t.Helper()
	resp, err := r.node.Client.Post(r.node.URL()+path, mediaType, strings.NewReader(body))
	require.NoError(r.t, err)
	require.NoError(r.t, resp.Body.Close())
	require.Less(r.t, resp.StatusCode, 300)
}

// A flipped byte in a log is told alike in every form: that it is damage, where, and where to read on; nothing is
// unknown about the outcome of a read.
func TestReadFromDamagedLog(t *testing.T) {
	const raw = "application/vnd.apache.kafka.recordbatch"
	disk := storagetest.New()
	r := &reader{t, servertest.Start(t, servertest.Options{Disk: disk})}
	r.post("/v1/topics", "application/json", `{"name":"t","partitions":2}`)
	var size int64
	for _, value := range []string{"0", "1", "2", "3"} {
		r.post("/v1/topics/t/records?partition=1", "application/json", value)
		if size == 0 {
			_, first, _ := r.get("/v1/topics/t/partitions/1/records", raw, 0)
			size = int64(len(first))
		}
	}
	require.NoError(t, disk.FlipBit("t-1/00000000000000000000.log", 2*size-1, 2)) // the second batch's last byte

	got, from := r.values("/v1/topics/t/records")
	require.Equal(t, []int{0}, got, "what is before the damage comes first")
	var told []damage
	for _, form := range []string{
		"application/json", "application/x-ndjson", "application/cloudevents-batch+json", "text/event-stream",
	} {
		told = append(told, r.refused("/v1/topics/t/records?from="+from, form))
	}
	one := r.refused("/v1/topics/t/partitions/1/records?offset=1", raw)
	require.Regexp(t, "^1:2~", one.Next)
	one.Next = told[0].Next // of the whole topic
	told = append(told, one)
	_, _, events := r.get("/v1/topics/t/records?offset=earliest", "text/event-stream", 2)
	require.Equal(t, "error", events[1].name)
	var inBand damage
	require.NoError(t, json.Unmarshal([]byte(events[1].data), &inBand))
	told = append(told, inBand)
	for _, d := range told {
		require.Equal(t, damage{
			Type: "/v1/errors#DAMAGED_BATCH", Status: 500, ErrorCode: 50002, Outcome: "failed", Topic: "t", Partition: 1,
			Offset: 1, ResumeOffset: 2, Detail: told[0].Detail, Next: told[0].Next,
		}, d)
	}
	require.Contains(t, told[0].Detail, "The batch of t-1 at offset 1 is damaged")
	require.NotContains(t, told[0].Detail, "took effect")

	got, _ = r.values("/v1/topics/t/records?from=" + told[0].Next)
	require.Equal(t, []int{2, 3}, got)
	got, _ = r.values("/v1/topics/t/partitions/1/records?offset=2")
	require.Equal(t, []int{2, 3}, got)
}
