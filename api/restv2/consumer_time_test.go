package restv2_test

import (
	"context"
	"errors"
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

// Records whose answer could not be sent come again, and are not committed.
func TestConsumerLostAnswer(t *testing.T) {
	f := startNode(t)
	f.store("orders", `1`, `2`)
	edge, err := api.NewEdge(api.Options{Client: f.client, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	members := consumer.New(consumer.Options{Client: f.client, Requests: f.node.Requestor()})
	defer members.Close()
	router := chi.NewRouter()
	restv2.New(edge, f.client, restv2.Options{Members: members}).Mount(router)
	call := func(w http.ResponseWriter, method, path, body string) {
		r := httptest.NewRequestWithContext(t.Context(), method, "/consumers/g"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", genericType)
		router.ServeHTTP(w, r)
	}
	call(httptest.NewRecorder(), "POST", "", `{"name":"c1","format":"json","auto.offset.reset":"earliest"}`)
	call(httptest.NewRecorder(), "POST", "/instances/c1/subscription", `{"topics":["orders"]}`)
	for range 3 {
		call(broken{httptest.NewRecorder()}, "GET", "/instances/c1/records", "")
	}
	got := httptest.NewRecorder()
	call(got, "GET", "/instances/c1/records?max_bytes=1", "")
	require.JSONEq(t, `[{"topic":"orders","key":null,"value":1,"partition":0,"offset":0}]`, got.Body.String())
	call(broken{httptest.NewRecorder()}, "GET", "/instances/c1/records", "")
	found, err := f.client.Committed(t.Context(), "g", true, client.TopicPartition{Topic: "orders"})
	require.NoError(t, err)
	require.Equal(t, int64(1), found[0].Offset, "of what arrived")
	got = httptest.NewRecorder()
	call(got, "GET", "/instances/c1/records", "")
	require.JSONEq(t, `[{"topic":"orders","key":null,"value":2,"partition":0,"offset":1}]`, got.Body.String())
}
