package native_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/servertest"
)

// crew is a cluster whose workers are under test.
type crew struct {
	t     *testing.T
	c     *servertest.Cluster
	nodes int
}

func newCrew(t *testing.T, nodes int) *crew {
	return &crew{t, servertest.StartCluster(t, servertest.ClusterOptions{Nodes: nodes, Broker: map[string]string{
		"offsets.topic.num.partitions": "5", "group.consumer.assignment.interval.ms": "0",
	}}), nodes}
}

// do makes a request to a node, and again while it is told that nothing was done as yet: leaders and coordinators may
// be on the move at any time.
func (g *crew) do(id int, method, path string, header http.Header, body string) (
	status int, h http.Header, text string,
) {
	g.t.Helper()
	until(g.t, func() bool {
		status, h, text = g.once(id, method, path, header, body)
		return !tooEarly(status, text)
	})
	return status, h, text
}

// tooEarly says of an answer that nothing was done, for a reason that passes.
func tooEarly(status int, text string) bool {
	var p struct {
		Retryable bool
		Outcome   string
	}
	return status == http.StatusServiceUnavailable && json.Unmarshal([]byte(text), &p) == nil && p.Retryable &&
		p.Outcome == "failed"
}

// once makes one request to a node.
func (g *crew) once(id int, method, path string, header http.Header, body string) (int, http.Header, string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, g.c.URL(id)+path, strings.NewReader(body))
	require.NoError(g.t, err)
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := g.c.Client.Do(r)
	require.NoError(g.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	return resp.StatusCode, resp.Header, string(text)
}

func (g *crew) topic(name string, partitions int) {
	g.t.Helper()
	body := fmt.Sprintf(`{"name":%q,"partitions":%d,"replication_factor":%d}`, name, partitions, g.nodes)
	status, _, text := g.do(1, "POST", "/v1/topics", nil, body)
	require.Equal(g.t, http.StatusCreated, status, text)
}

func (g *crew) put(topic string, partition int, values ...string) {
	g.t.Helper()
	path := fmt.Sprintf("/v1/topics/%s/records?partition=%d", topic, partition)
	header := http.Header{"Content-Type": {"application/x-ndjson"}}
	status, _, text := g.do(1, "POST", path, header, strings.Join(values, "\n"))
	require.Equal(g.t, http.StatusOK, status, text)
}

// worked is a page for a worker.
type worked struct {
	Records []struct {
		Topic     string
		Partition int32
		Offset    int64
		Value     json.Number
	}
	Group, Member, Next string
	Delivery            int64
	Assignment          []struct {
		Topic      string
		Partitions []int32
	}
}

func (w *worked) values() (out []string) {
	for _, r := range w.Records {
		out = append(out, r.Value.String())
	}
	return out
}

func (w *worked) partitions() (n int) {
	for _, a := range w.Assignment {
		n += len(a.Partitions)
	}
	return n
}

// read reads as a member, and waits for long unless the query says otherwise.
func (g *crew) read(id int, group, query string) (*worked, http.Header) {
	g.t.Helper()
	if !strings.Contains(query, "wait=") {
		query += "&wait=60s"
	}
	status, header, text := g.do(id, "GET", "/v1/groups/"+url.PathEscape(group)+"/records?"+query, nil, "")
	require.Equal(g.t, http.StatusOK, status, text)
	w := &worked{}
	require.NoError(g.t, json.Unmarshal([]byte(text), w), text)
	return w, header
}

// refused reads what is refused.
func (g *crew) refused(id int, method, path, body string) (status int, name, text string) {
	g.t.Helper()
	status, _, text = g.do(id, method, path, nil, body)
	var p struct{ Type, Detail string }
	require.NoError(g.t, json.Unmarshal([]byte(text), &p), text)
	return status, strings.TrimPrefix(p.Type, "/v1/errors#"), text
}

// committed is what a group has committed for a partition.
func (g *crew) committed(id int, group, topic string, partition int32) int64 {
	g.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	of := kmsg.NewOffsetFetchRequestGroup()
	of.Group = group
	of.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{partition}}}
	req.Groups = append(req.Groups, of)
	var at int64
	until(g.t, func() bool {
		resp, err := req.RequestWith(g.t.Context(), g.c.Node(id).Requestor())
		require.NoError(g.t, err)
		if passes(g.t, resp.Groups[0].ErrorCode) || passes(g.t, resp.Groups[0].Topics[0].Partitions[0].ErrorCode) {
			return false
		}
		at = resp.Groups[0].Topics[0].Partitions[0].Offset
		return true
	})
	return at
}

// passes says of an error of a coordinator that it passes. There is no other one.
func passes(t *testing.T, code int16) bool {
	t.Helper()
	err := kerr.ErrorForCode(code)
	require.True(t, err == nil || kerr.IsRetriable(err), "%v", err)
	return err != nil
}

// coordinator is the node that coordinates a group.
func (g *crew) coordinator(via int, group string) int {
	g.t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{group}
	var id int32
	until(g.t, func() bool {
		resp, err := req.RequestWith(g.t.Context(), g.c.Node(via).Requestor())
		require.NoError(g.t, err)
		id = resp.Coordinators[0].NodeID
		return !passes(g.t, resp.Coordinators[0].ErrorCode)
	})
	return int(id)
}

// liveWork is a live stream of a member.
type liveWork struct {
	t      *testing.T
	cancel context.CancelFunc
	events chan workEvent
	wg     sync.WaitGroup
}

type workEvent struct{ kind, id, data string }

func (g *crew) stream(id int, group, query string) *liveWork {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	var resp *http.Response
	until(g.t, func() bool {
		r, err := http.NewRequestWithContext(ctx, "GET", g.c.URL(id)+"/v1/groups/"+group+"/records?"+query, nil)
		require.NoError(g.t, err)
		r.Header.Set("Accept", "text/event-stream")
		resp, err = g.c.Client.Do(r)
		require.NoError(g.t, err)
		if resp.StatusCode == http.StatusOK {
			return true
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(g.t, err)
		require.True(g.t, tooEarly(resp.StatusCode, string(text)), "%d %s", resp.StatusCode, text)
		return false
	})
	l := &liveWork{t: g.t, cancel: cancel, events: make(chan workEvent, 10_000)}
	l.wg.Go(func() {
		defer resp.Body.Close()
		defer close(l.events)
		var e workEvent
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			name, value, _ := strings.Cut(s.Text(), ": ")
			switch name {
			case "event":
				e.kind = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			case "":
				if e.data != "" {
					l.events <- e
				}
				e = workEvent{}
			}
		}
	})
	g.t.Cleanup(l.close)
	return l
}

// close closes the connection.
func (l *liveWork) close() {
	l.cancel()
	l.wg.Wait()
}

// next is the next event of a kind, "" for a record; those of others are passed over.
func (l *liveWork) next(kind string) workEvent {
	l.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case e, ok := <-l.events:
			require.True(l.t, ok, "the stream has ended")
			if e.kind == kind {
				return e
			}
		case <-timeout:
			require.Fail(l.t, "no event", kind)
		}
	}
}

// expel takes a member out of its group behind its back.
func (g *crew) expel(group, member string) {
	g.t.Helper()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = group, member, -1
	until(g.t, func() bool {
		resp, err := req.RequestWith(g.t.Context(), g.c.Node(1).Requestor())
		require.NoError(g.t, err)
		return resp.ErrorCode == kerr.UnknownMemberID.Code || !passes(g.t, resp.ErrorCode)
	})
}
