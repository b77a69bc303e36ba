package native_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/consumer"
	"millrace/record"
	"millrace/server/servertest"
)

// fading is a cluster whose client goes when the records for it have been fetched, but not handed out.
type fading struct {
	kmsg.Requestor
	leave func() // nil: it stays
}

// Request implements kmsg.Requestor.
func (f *fading) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	resp, err := f.Requestor.Request(ctx, r)
	if fetch, ok := resp.(*kmsg.FetchResponse); ok && f.leave != nil {
		for i := range fetch.Topics {
			for j := range fetch.Topics[i].Partitions {
				if len(fetch.Topics[i].Partitions[j].RecordBatches) > 0 {
					f.leave()
				}
			}
		}
	}
	return resp, err
}

// hasty is the connection of a client that closes it as soon as it has an answer.
type hasty struct {
	*httptest.ResponseRecorder
	close func()
}

func (h hasty) Flush() {
	h.ResponseRecorder.Flush()
	h.close()
}

// broken is a connection that fails as an answer is sent.
type broken struct{ *httptest.ResponseRecorder }

func (broken) Write([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

// lossy is a worker that reads pages of one record over connections of its own, and says nothing of what came.
type lossy struct {
	t      *testing.T
	node   *servertest.Node
	client *client.Client
	fading *fading
	router http.Handler
}

func startLossy(t *testing.T) *lossy {
	n := servertest.Start(t, servertest.Options{})
	l := &lossy{
		t: t, node: n, client: client.New(n.Requestor(), client.Options{}), fading: &fading{Requestor: n.Requestor()},
	}
	_, err := l.client.CreateTopic(t.Context(), client.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: -1})
	require.NoError(t, err)
	resp, err := n.Client.Post(n.URL()+"/v1/topics/t/records", "application/x-ndjson", strings.NewReader("0\n1\n2"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	edge, err := api.NewEdge(api.Options{Client: l.client, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	members := consumer.New(consumer.Options{Client: l.client, Requests: l.fading})
	t.Cleanup(members.Close)
	s := native.New(native.Options{Edge: edge, Client: l.client, Members: members})
	t.Cleanup(s.Close)
	l.router = api.NewRouter(edge, s.Mount)
	return l
}

func (l *lossy) read(ctx context.Context, w http.ResponseWriter, accept string) {
	url := "/v1/groups/g/records?topics=t&member=m&auto_offset_reset=earliest&max_records=1&wait=60s"
	r := httptest.NewRequestWithContext(ctx, "GET", url, nil)
	r.Header.Set("Accept", accept)
	l.router.ServeHTTP(w, r)
}

// wants reads the record with an offset, and as value the same number.
func (l *lossy) wants(offset int, accept string) {
	l.t.Helper()
	got := httptest.NewRecorder()
	l.read(l.t.Context(), got, accept)
	require.Equal(l.t, http.StatusOK, got.Code, got.Body)
	require.Contains(l.t, got.Body.String(), fmt.Sprintf(`{"topic":"t","partition":0,"offset":%d,`, offset))
}

// A page comes once to a client that closes its connection as soon as it has it, and again to one that had gone before
// it or whose connection failed; only what came is committed.
func TestWorkersConnections(t *testing.T) {
	for _, accept := range []string{"application/json", "application/x-ndjson"} {
		t.Run(accept, func(t *testing.T) {
			l := startLossy(t)
			ctx, cancel := context.WithCancel(t.Context())
			got := httptest.NewRecorder()
			l.read(ctx, hasty{got, cancel}, accept)
			require.Contains(t, got.Body.String(), `"offset":0`)
			require.Error(t, ctx.Err())
			l.read(t.Context(), broken{httptest.NewRecorder()}, accept)
			for range 70 { // more than may hold at a time what they fetched
				ctx, cancel := context.WithCancel(t.Context())
				l.fading.leave = cancel
				l.read(ctx, httptest.NewRecorder(), accept)
				require.Error(t, ctx.Err())
			}
			l.fading.leave = nil
			at := client.TopicPartition{Topic: "t"}
			found, err := l.client.Committed(t.Context(), "g", true, at)
			require.NoError(t, err)
			require.Equal(t, int64(1), found[0].Offset)
			l.wants(1, accept)
			l.wants(2, accept)
		})
	}
}
