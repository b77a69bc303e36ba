package restv2_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/restv2"
	"millrace/client"
	"millrace/consumer"
	"millrace/internal/ktag"
	"millrace/record"
)

// lenient is a coordinator that takes every member and gives out nothing.
type lenient struct{ left chan string }

// Request implements kmsg.Requestor.
func (l *lenient) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch req := r.(type) {
	case *kmsg.ConsumerGroupHeartbeatRequest:
		resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		resp.MemberEpoch, resp.HeartbeatIntervalMillis = 1, 5000
		if req.MemberEpoch < 0 {
			l.left <- req.MemberID
			resp.MemberEpoch = req.MemberEpoch
		}
		if ms, ok := ktag.HeartbeatWait(&req.UnknownTags); ok {
			t := time.NewTimer(time.Duration(ms) * time.Millisecond)
			defer t.Stop()
			select {
			case <-t.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return resp, nil
	case *kmsg.ConsumerGroupDescribeRequest:
		resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group, g.ErrorCode = req.Groups[0], kerr.GroupIDNotFound.Code
		resp.Groups = append(resp.Groups, g)
		return resp, nil
	}
	return nil, context.DeadlineExceeded
}

// An instance lives for five minutes from its last call, whatever the call was.
func TestConsumerExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := &lenient{left: make(chan string, 1)}
		c := client.New(group, client.Options{})
		edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(1 << 20)})
		require.NoError(t, err)
		members := consumer.New(consumer.Options{Client: c, Requests: group})
		defer members.Close()
		router := chi.NewRouter()
		restv2.New(edge, c, restv2.Options{Members: members}).Mount(router)
		call := func(method, path, body string) int {
			r := httptest.NewRequestWithContext(t.Context(), method, "/consumers/g"+path, strings.NewReader(body))
			r.Header.Set("Content-Type", genericType)
			w := httptest.NewRecorder()
			router.ServeHTTP(w, r)
			return w.Code
		}
		require.Equal(t, http.StatusOK, call("POST", "", `{"name":"c1"}`))
		for _, x := range []struct{ method, path string }{
			{"GET", "/subscription"}, {"GET", "/assignments"}, {"POST", "/offsets"}, {"GET", "/offsets"}, {"GET", "/records"},
			{"DELETE", "/subscription"},
		} {
			time.Sleep(299 * time.Second)
			require.NotEqual(t, http.StatusNotFound, call(x.method, "/instances/c1"+x.path, ""), x)
		}
		time.Sleep(299 * time.Second)
		require.Empty(t, group.left)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "c1", <-group.left)
		require.Equal(t, http.StatusNotFound, call("GET", "/instances/c1/subscription", ""))
		require.Equal(t, http.StatusOK, call("POST", "", `{"name":"c1"}`), "the name is free again")
		require.Equal(t, http.StatusConflict, call("POST", "", `{"name":"c1"}`))
	})
}

// broken is a connection that fails as an answer is sent.
type broken struct{ *httptest.ResponseRecorder }

func (broken) Write([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

// hasty is the connection of a client that closes it as soon as it has an answer.
type hasty struct {
	*httptest.ResponseRecorder
	close func()
}

func (h hasty) Flush() {
	h.ResponseRecorder.Flush()
	h.close()
}

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

// edgeless calls an API without connections, by one instance with two records before it.
type edgeless struct {
	*fixture
	fading *fading
	router chi.Router
}

func startEdgeless(t *testing.T) *edgeless {
	f := startNode(t)
	f.store("orders", `1`, `2`)
	edge, err := api.NewEdge(api.Options{Client: f.client, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	e := &edgeless{f, &fading{Requestor: f.node.Requestor()}, chi.NewRouter()}
	members := consumer.New(consumer.Options{Client: f.client, Requests: e.fading})
	t.Cleanup(members.Close)
	restv2.New(edge, f.client, restv2.Options{Members: members}).Mount(e.router)
	for _, x := range [][2]string{
		{"", `{"name":"c1","format":"json","auto.offset.reset":"earliest"}`},
		{"/instances/c1/subscription", `{"topics":["orders"]}`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/consumers/g"+x[0], strings.NewReader(x[1]))
		r.Header.Set("Content-Type", genericType)
		w := httptest.NewRecorder()
		e.router.ServeHTTP(w, r)
		require.Less(t, w.Code, 300, w.Body)
	}
	return e
}

// read reads one record into w.
func (e *edgeless) read(ctx context.Context, w http.ResponseWriter) {
	r := httptest.NewRequestWithContext(ctx, "GET", "/consumers/g/instances/c1/records?max_bytes=1", nil)
	e.router.ServeHTTP(w, r)
}

// wants reads one record, which is to have an offset and the value after it.
func (e *edgeless) wants(offset int) {
	e.t.Helper()
	got := httptest.NewRecorder()
	e.read(e.t.Context(), got)
	want := fmt.Sprintf(`[{"topic":"orders","key":null,"value":%d,"partition":0,"offset":%d}]`, offset+1, offset)
	require.JSONEq(e.t, want, got.Body.String())
}

// Records whose answer could not be sent come again, and are not committed.
func TestConsumerLostAnswer(t *testing.T) {
	e := startEdgeless(t)
	for range 3 {
		e.read(t.Context(), broken{httptest.NewRecorder()})
	}
	e.wants(0)
	e.read(t.Context(), broken{httptest.NewRecorder()})
	found, err := e.client.Committed(t.Context(), "g", true, client.TopicPartition{Topic: "orders"})
	require.NoError(t, err)
	require.Equal(t, int64(1), found[0].Offset, "of what arrived")
	e.wants(1)
}

// Records come once to a client that closes its connection as soon as it has them.
func TestConsumerClosesAtOnce(t *testing.T) {
	e := startEdgeless(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := httptest.NewRecorder()
	e.read(ctx, hasty{got, cancel})
	require.Contains(t, got.Body.String(), `"offset":0`)
	require.Error(t, ctx.Err())
	e.wants(1)
}

// Records that were fetched for a client that had gone before the answer come again, and are not committed.
func TestConsumerGoneBeforeAnswer(t *testing.T) {
	e := startEdgeless(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e.fading.leave = cancel
	got := httptest.NewRecorder()
	e.read(ctx, got)
	require.Contains(t, got.Body.String(), `"offset":0`, "into a connection that nobody reads")
	e.fading.leave = nil
	e.wants(0)
	e.wants(1)
}
