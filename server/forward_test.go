package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/server"
	"millrace/server/metadata"
	"millrace/server/servertest"
)

// seen is what a node tells of a request that it served.
type seen struct {
	Node                                              int
	Method, Path, RawPath, Query, URI, Host, Body, By string
	Header                                            http.Header
}

// forwarders starts a cluster whose nodes serve the groups that they coordinate.
func forwarders(t *testing.T, change func(*server.Config), serve func(id int, w http.ResponseWriter, r *http.Request),
) *servertest.Cluster {
	c := servertest.StartCluster(t, servertest.ClusterOptions{Change: func(cfg *server.Config) {
		cfg.Broker = map[string]string{"offsets.topic.num.partitions": "9"}
		if change != nil {
			change(cfg)
		}
	}})
	for id := 1; id <= 3; id++ {
		server.ServeGroups(c.Node(id), func(w http.ResponseWriter, r *http.Request) { serve(id, w, r) })
	}
	return c
}

// tell answers with what came.
func tell(id int, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Keep-Alive", "timeout=1")
	_ = json.NewEncoder(w).Encode(seen{ // a client that has gone sees nothing
		id, r.Method, r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.RequestURI, r.Host, string(body), r.RemoteAddr, r.Header,
	})
}

// coordinatorOf asks the cluster.
func coordinatorOf(t *testing.T, c *servertest.Cluster, via int, group string) int {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{group}
	var resp *kmsg.FindCoordinatorResponse
	require.NoError(t, persist(t.Context(), func() (err error) {
		if resp, err = req.RequestWith(t.Context(), c.Node(via).Requestor()); err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Coordinators[0].ErrorCode)
	}))
	return int(resp.Coordinators[0].NodeID)
}

// elsewhere is a group that node 1 does not coordinate, and the node that does.
func elsewhere(t *testing.T, c *servertest.Cluster) (group string, node int) {
	for i := 0; ; i++ {
		group = fmt.Sprintf("group-%d", i)
		if node = coordinatorOf(t, c, 1, group); node != 1 {
			everywhere(t, c, metadata.GroupTopic)
			return group, node
		}
	}
}

func through(t *testing.T, c *servertest.Cluster, r *http.Request) (int, seen, http.Header) {
	resp, err := c.Client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var s seen
	if resp.StatusCode == http.StatusOK {
		require.NoError(t, json.Unmarshal(body, &s), string(body))
	}
	return resp.StatusCode, s, resp.Header
}

func requestTo(t *testing.T, method, url string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	return r
}

// Whichever node is asked, the coordinator's serves, and sees the request as the client sent it.
func TestForward(t *testing.T) {
	c := forwarders(t, nil, tell)
	_, _ = elsewhere(t, c) // so that there are coordinators
	for i := range 9 {
		group := fmt.Sprintf("a b/%d", i)
		url := c.URL(i%3+1) + "/v1/groups/a%20b%2F" + fmt.Sprint(i) + "/x//y?q=1;2&e=%zz&f="
		r := requestTo(t, http.MethodPost, url, strings.NewReader("body"))
		r.Host = "front.example:99"
		r.Header = http.Header{
			"Authorization": {"Bearer mine"}, "X-Own": {"1", "2"}, "Millrace-Client": {"1.2.3.4:5"},
			"Connection": {"X-Hop"}, "X-Hop": {"hop"}, "Upgrade": {"h2c"}, "X-Forwarded-For": {"5.6.7.8"},
			"Content-Type": {"text/plain"}, "Cookie": {"a=b"},
		}
		status, s, header := through(t, c, r)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, coordinatorOf(t, c, 1, group), s.Node)
		require.Equal(t, "POST", s.Method)
		require.Equal(t, "/v1/groups/"+group+"/x//y", s.Path)
		require.Equal(t, "/v1/groups/a%20b%2F"+fmt.Sprint(i)+"/x//y", s.RawPath)
		require.Equal(t, s.RawPath+"?q=1;2&e=%zz&f=", s.URI)
		require.Equal(t, "q=1;2&e=%zz&f=", s.Query)
		require.Equal(t, "front.example:99", s.Host)
		require.Equal(t, "body", s.Body)
		require.True(t, strings.HasPrefix(s.By, "127.0.0.1:"), s.By)
		require.Equal(t, []string{"Bearer mine"}, s.Header["Authorization"])
		require.Equal(t, []string{"1", "2"}, s.Header["X-Own"])
		require.Equal(t, []string{"5.6.7.8"}, s.Header["X-Forwarded-For"])
		require.Equal(t, []string{"a=b"}, s.Header["Cookie"])
		if s.Node != i%3+1 {
			require.NotContains(t, s.Header, "X-Hop")
			require.NotContains(t, s.Header, "Upgrade")
			require.NotContains(t, header, "Keep-Alive")
			require.NotContains(t, s.Header, "Millrace-Client")
			require.NotContains(t, s.Header, "Millrace-Authorization")
		}
		require.NotContains(t, header, "Millrace-Client")
	}
}

// A request for a partition is served by the node that leads it, and by the one that was asked where none does.
func TestForwardToLeader(t *testing.T) {
	c := forwarders(t, nil, tell)
	require.NoError(t, c.Node(1).AwaitBrokers(t.Context(), 3))
	cl := client.New(c.Node(1).Requestor(), client.Options{})
	for replica := int32(1); replica <= 3; replica++ {
		name := fmt.Sprint("topic-", replica)
		require.NoError(t, persist(t.Context(), func() error {
			_, err := cl.CreateTopic(t.Context(), client.NewTopic{
				Name: name, Assignments: map[int32][]int32{0: {replica}},
			})
			if errors.Is(err, kerr.TopicAlreadyExists) { // an earlier try was done
				return nil
			}
			return err
		}))
		await(t, fmt.Sprintf("node %d serves what it leads", replica), func() bool {
			for via := 1; via <= 3; via++ {
				status, s, _ := through(t, c, requestTo(t, http.MethodPost, c.URL(via)+"/v1/topics/"+name+"/x",
					strings.NewReader("body")))
				if status != http.StatusOK || s.Node != int(replica) || s.Body != "body" {
					return false
				}
			}
			return true
		})
	}
	status, s, _ := through(t, c, requestTo(t, http.MethodGet, c.URL(2)+"/v1/topics/none/x", nil))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 2, s.Node)
}

// A request makes one hop, wherever it comes to, and only nodes may send one on.
func TestForwardedOnlyOnce(t *testing.T) {
	c := forwarders(t, nil, tell)
	group, _ := elsewhere(t, c)
	r := requestTo(t, http.MethodGet, c.URL(1)+"/internal/http/v1/groups/"+group+"/x", nil)
	status, _, _ := through(t, c, r)
	require.Equal(t, http.StatusUnauthorized, status)
	server.Authorize(c.Node(1), r)
	r.Header.Set("Millrace-Client", "9.8.7.6:5")
	status, s, _ := through(t, c, r)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 1, s.Node, "it is served here although another node coordinates the group")
	require.Equal(t, "9.8.7.6:5", s.By)
	require.NotContains(t, s.Header, "Authorization")
}

// What a stream sends arrives at once, and its end on either side is the end of it.
func TestForwardedStream(t *testing.T) {
	next, ended := make(chan string), make(chan struct{}, 1)
	c := forwarders(t, nil, func(_ int, w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case event, ok := <-next:
				if !ok {
					return
				}
				fmt.Fprintf(w, "data: %s\n\n", event)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	group, _ := elsewhere(t, c)
	open := func(ctx context.Context) *bufio.Reader {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL(1)+"/v1/groups/"+group+"/events", nil)
		require.NoError(t, err)
		started := make(chan *http.Response, 1)
		go func() {
			resp, err := c.Client.Do(r)
			if err == nil {
				started <- resp
			}
			close(started)
		}()
		select {
		case next <- "first":
		case resp := <-started:
			require.Fail(t, "the stream did not begin", "%v", resp)
		}
		resp := <-started
		require.NotNil(t, resp)
		t.Cleanup(func() { resp.Body.Close() })
		return bufio.NewReader(resp.Body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := open(ctx)
	for _, event := range []string{"first", "second", "third"} {
		if event != "first" {
			next <- event
		}
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "data: "+event+"\n", line)
		_, err = in.ReadString('\n')
		require.NoError(t, err)
	}
	cancel() // the client goes
	<-ended
	in = open(t.Context())
	close(next)
	<-ended
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, "data: first\n\n", string(rest))
}

// A long body is sent on as it comes, and none is longer than a body may be.
func TestForwardedBody(t *testing.T) {
	half := make(chan int, 1)
	c := forwarders(t, func(cfg *server.Config) { cfg.Limits.BodyBytes = 1 << 20 },
		func(_ int, w http.ResponseWriter, r *http.Request) {
			first := make([]byte, 1000)
			n, _ := io.ReadFull(r.Body, first)
			select {
			case half <- n:
			default:
			}
			n2, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, `{"Body":"%d"}`, n+int(n2))
		})
	group, _ := elsewhere(t, c)
	url := c.URL(1) + "/v1/groups/" + group + "/x"
	from, to := io.Pipe()
	done := make(chan seen, 1)
	go func() {
		resp, err := c.Client.Post(url, "text/plain", from)
		var s seen
		if err == nil {
			_ = json.NewDecoder(resp.Body).Decode(&s)
			resp.Body.Close()
		}
		done <- s
	}()
	_, err := to.Write(make([]byte, 1000))
	require.NoError(t, err)
	select {
	case n := <-half:
		require.Equal(t, 1000, n, "the other node has what has been sent of a body that goes on")
	case <-done:
		require.Fail(t, "the request ended before its body did")
	}
	_, err = to.Write(make([]byte, 500_000))
	require.NoError(t, err)
	require.NoError(t, to.Close())
	require.Equal(t, "501000", (<-done).Body)

	resp, err := c.Client.Post(url, "text/plain", bytes.NewReader(make([]byte, 2<<20)))
	if err == nil { // else the connection was cut while the client still sent
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
		resp.Body.Close()
	}
}

// A client that sends nothing more of its body does not hold two nodes.
func TestForwardedSlowBody(t *testing.T) {
	c := forwarders(t, func(cfg *server.Config) { cfg.Limits.BodyWindow = 100 * time.Millisecond }, tell)
	group, _ := elsewhere(t, c)
	from, to := io.Pipe()
	defer to.Close()
	r := requestTo(t, http.MethodPost, c.URL(1)+"/v1/groups/"+group+"/x", from)
	r.ContentLength = 100_000
	go func() { _, _ = to.Write([]byte("x")) }()
	status, _, _ := through(t, c, r)
	require.Equal(t, http.StatusRequestTimeout, status)
}

// When a coordinator's node goes, requests wait for the next one, with their bodies.
func TestForwardFindsTheNextCoordinator(t *testing.T) {
	c := forwarders(t, nil, tell)
	group, was := elsewhere(t, c)
	url := c.URL(1) + "/v1/groups/" + group + "/x"
	_, s, _ := through(t, c, requestTo(t, http.MethodPost, url, strings.NewReader("one")))
	require.Equal(t, was, s.Node)
	c.Stop(was)
	for range 5 {
		status, s, _ := through(t, c, requestTo(t, http.MethodPost, url, strings.NewReader("two")))
		require.Equal(t, http.StatusOK, status)
		require.NotEqual(t, was, s.Node)
		require.Equal(t, "two", s.Body)
	}
}
