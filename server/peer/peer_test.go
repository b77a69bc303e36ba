package peer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/peer"
)

// requestor is a kmsg.Requestor of one function.
type requestor func(context.Context, kmsg.Request) (kmsg.Response, error)

func (f requestor) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	return f(ctx, r)
}

var secret = peer.NewCredential([]byte("a secret of the cluster"))

func clusterID(id string) func() string { return func() string { return id } }

// serve runs a handler of node 2 and returns the options of a client for it.
func serve(t testing.TB, to requestor, change func(*peer.HandlerOptions)) peer.ClientOptions {
	t.Helper()
	o := peer.HandlerOptions{
		To: to, Node: 2, Credential: secret, ClusterID: clusterID("c1"), Pool: record.NewPool(1 << 20),
	}
	if change != nil {
		change(&o)
	}
	mux := http.NewServeMux()
	mux.Handle(peer.Path, peer.NewHandler(o))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return peer.ClientOptions{
		Node: 2, URL: s.URL + "/", Transport: tr, Credential: secret, ClusterID: clusterID("c1"),
		Pool: record.NewPool(1 << 20),
	}
}

func produceRequest(id [16]byte, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 1000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = "t", id
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = 3, records
	ktag.SetExpectedOffset(&part.UnknownTags, 77)
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

func TestProduceTravels(t *testing.T) {
	for _, id := range [][16]byte{{}, {1, 2, 3}} {
		t.Run(fmt.Sprint(id[0]), func(t *testing.T) {
			records := bytes.Repeat([]byte("r"), 300<<10)
			o := serve(t, func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
				req := r.(*kmsg.ProduceRequest)
				got := &req.Topics[0]
				part := &got.Partitions[0]
				offset, ok := ktag.ExpectedOffset(&part.UnknownTags)
				if got.TopicID != id || id == [16]byte{} && got.Topic != "t" || !ok || offset != 77 ||
					req.Acks != -1 || req.TimeoutMillis != 1000 || part.Partition != 3 || !bytes.Equal(part.Records, records) {
					return nil, errors.New("the request changed on its way")
				}
				resp := kmsg.NewPtrProduceResponse()
				topic := kmsg.NewProduceResponseTopic()
				topic.Topic, topic.TopicID = got.Topic, got.TopicID
				answer := kmsg.NewProduceResponseTopicPartition()
				answer.Partition, answer.BaseOffset = 3, 41
				ktag.SetNotWritten(&answer.UnknownTags)
				topic.Partitions = append(topic.Partitions, answer)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil
			}, nil)
			resp, err := produceRequest(id, records).RequestWith(t.Context(), peer.NewClient(o))
			require.NoError(t, err)
			require.Equal(t, "t", resp.Topics[0].Topic, "the answer has the name also where only the id travelled")
			require.Equal(t, id, resp.Topics[0].TopicID)
			require.Equal(t, int64(41), resp.Topics[0].Partitions[0].BaseOffset)
			require.True(t, ktag.NotWritten(&resp.Topics[0].Partitions[0].UnknownTags))
		})
	}
}

// A follower's fetch has much that older versions cannot say.
func TestFollowerFetchTravels(t *testing.T) {
	id := [16]byte{9}
	o := serve(t, func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		req := r.(*kmsg.FetchRequest)
		p := &req.Topics[0].Partitions[0]
		if req.ReplicaState.ID != 5 || req.ReplicaState.Epoch != 99 || req.Topics[0].TopicID != id || p.FetchOffset != 10 ||
			p.CurrentLeaderEpoch != 4 || p.LastFetchedEpoch != 3 || p.LogStartOffset != 1 || p.HighWatermark != 8 ||
			req.Rack != "r1" {
			return nil, fmt.Errorf("the request changed on its way: %+v", req)
		}
		resp := kmsg.NewPtrFetchResponse()
		topic := kmsg.NewFetchResponseTopic()
		topic.TopicID = id
		part := kmsg.NewFetchResponseTopicPartition()
		part.Partition, part.HighWatermark, part.RecordBatches = 7, 12, []byte("batch")
		part.DivergingEpoch.Epoch, part.DivergingEpoch.EndOffset = 2, 6
		part.CurrentLeader.LeaderID, part.CurrentLeader.LeaderEpoch = 3, 5
		topic.Partitions = append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil
	}, nil)
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaState.ID, req.ReplicaState.Epoch, req.Rack = 5, 99, "r1"
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = "t", id
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.CurrentLeaderEpoch, part.LastFetchedEpoch = 7, 10, 4, 3
	part.LogStartOffset, part.HighWatermark = 1, 8
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)

	pool := record.NewPool(1 << 20)
	arena := pool.Arena()
	resp, err := req.RequestWith(record.WithArena(t.Context(), arena), peer.NewClient(o))
	require.NoError(t, err)
	got := &resp.Topics[0].Partitions[0]
	require.Equal(t, "t", resp.Topics[0].Topic)
	require.Equal(t, []byte("batch"), got.RecordBatches)
	require.Equal(t, int32(2), got.DivergingEpoch.Epoch)
	require.Equal(t, int64(6), got.DivergingEpoch.EndOffset)
	require.Equal(t, int32(3), got.CurrentLeader.LeaderID)
	arena.Free()
	require.Positive(t, pool.Held(), "the answer was read into the arena")
}

// Every key has a version in the table in which a request with nothing in it travels.
func TestEveryKeyTravels(t *testing.T) {
	o := serve(t, func(_ context.Context, r kmsg.Request) (kmsg.Response, error) { return r.ResponseKind(), nil }, nil)
	c := peer.NewClient(o)
	n := 0
	for key := range int16(kmsg.MaxKey + 1) {
		r := kmsg.RequestForKey(key)
		if r == nil {
			continue
		}
		version, ok := peer.Version(r)
		resp, err := c.Request(t.Context(), r)
		if !ok {
			require.ErrorIs(t, err, peer.ErrNotSent, "key %d", key)
			continue
		}
		n++
		require.NoError(t, err, "key %d", key)
		require.Equal(t, version, resp.GetVersion())
		require.Equal(t, key != kmsg.OffsetDelete.Int16(), r.IsFlexible(), "key %d: do tags survive version %d", key, version)
		require.LessOrEqual(t, version, r.MaxVersion())
	}
	require.Equal(t, 44, n)
}

func TestRefusals(t *testing.T) {
	answer := func(context.Context, kmsg.Request) (kmsg.Response, error) {
		return nil, errors.New("must not be asked")
	}
	for name, tc := range map[string]struct {
		handler func(*peer.HandlerOptions)
		client  func(*peer.ClientOptions)
		say     string
	}{
		"no credential": {
			client: func(o *peer.ClientOptions) { o.Credential = peer.Credential{} },
			say:    "status 401: the cluster credential is missing or another one",
		},
		"another secret": {
			client: func(o *peer.ClientOptions) { o.Credential = peer.NewCredential([]byte("x")) }, say: "--cluster-secret-file",
		},
		"a node without a secret": {
			handler: func(o *peer.HandlerOptions) { o.Credential = peer.Credential{} },
			client:  func(o *peer.ClientOptions) { o.Credential = peer.Credential{} },
			say:     "without a cluster secret",
		},
		"another cluster": {
			client: func(o *peer.ClientOptions) { o.ClusterID = clusterID("c2") },
			say:    "status 409: node 2 is of cluster c1, the sender of cluster c2",
		},
		"another node": {
			client: func(o *peer.ClientOptions) { o.Node = 3 }, say: "status 421: this is node 2, not node 3",
		},
		"too long": {
			handler: func(o *peer.HandlerOptions) { o.MaxBody = 100 }, say: "status 413",
		},
		"no such path": {
			client: func(o *peer.ClientOptions) { o.URL += "elsewhere" }, say: "status 404",
		},
		"no URL": {
			client: func(o *peer.ClientOptions) { o.URL = "here" }, say: `"here" is not the URL of a node`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := serve(t, answer, tc.handler)
			if tc.client != nil {
				tc.client(&o)
			}
			_, err := produceRequest([16]byte{1}, make([]byte, 200)).RequestWith(t.Context(), peer.NewClient(o))
			require.ErrorContains(t, err, tc.say)
			require.ErrorIs(t, err, peer.ErrNotSent)
			require.ErrorContains(t, err, "node "+strconv.Itoa(int(o.Node)))
		})
	}
}

// A sender that knows no cluster yet is let in, and asks a node that knows none.
func TestClusterNotKnownYet(t *testing.T) {
	answer := func(_ context.Context, r kmsg.Request) (kmsg.Response, error) { return r.ResponseKind(), nil }
	o := serve(t, answer, nil)
	o.ClusterID = nil
	_, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), peer.NewClient(o))
	require.NoError(t, err)
	o = serve(t, answer, func(h *peer.HandlerOptions) { h.ClusterID = clusterID("") })
	_, err = kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), peer.NewClient(o))
	require.NoError(t, err)
}

// nobody is where nobody listens, and nobody will: a port that was free a moment ago may be another's now.
const nobody = "http://127.0.0.1:1"

func TestNobodyListens(t *testing.T) {
	c := peer.NewClient(peer.ClientOptions{Node: 4, URL: nobody, Transport: &http.Transport{}, Credential: secret})
	_, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), c)
	require.ErrorIs(t, err, peer.ErrNotSent)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	var marked interface{ NotSent() bool }
	require.ErrorAs(t, err, &marked)
	require.True(t, marked.NotSent())
}

// What was sent whole may have been done, whatever became of the answer.
func TestOutcomeUnknown(t *testing.T) {
	o := serve(t, func(context.Context, kmsg.Request) (kmsg.Response, error) {
		return nil, errors.New("the log is closed")
	}, nil)
	_, err := produceRequest([16]byte{1}, nil).RequestWith(t.Context(), peer.NewClient(o))
	require.ErrorContains(t, err, "status 504: the log is closed")
	require.NotErrorIs(t, err, peer.ErrNotSent)

	o = serve(t, func(context.Context, kmsg.Request) (kmsg.Response, error) { panic(http.ErrAbortHandler) }, nil)
	_, err = produceRequest([16]byte{1}, nil).RequestWith(t.Context(), peer.NewClient(o))
	require.Error(t, err)
	require.NotErrorIs(t, err, peer.ErrNotSent)
}

// brittle is a connection whose writes fail from some time on.
type brittle struct {
	net.Conn
	broken *atomic.Bool
}

func (c brittle) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, syscall.ECONNRESET
	}
	return c.Conn.Write(p)
}

// A request of which nothing went out on a connection that was kept goes out on another one, or was certainly not sent.
func TestKeptConnectionThatBroke(t *testing.T) {
	o := serve(t, func(_ context.Context, r kmsg.Request) (kmsg.Response, error) { return r.ResponseKind(), nil }, nil)
	var broken atomic.Bool
	var refused error
	o.Transport = &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if refused != nil {
			return nil, refused
		}
		broken.Store(false)
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return brittle{conn, &broken}, err
	}}
	c := peer.NewClient(o)
	send := func() error {
		_, err := produceRequest([16]byte{1}, make([]byte, 100)).RequestWith(t.Context(), c)
		return err
	}
	require.NoError(t, send())
	broken.Store(true)
	require.NoError(t, send())
	broken.Store(true)
	refused = syscall.ECONNREFUSED
	require.ErrorIs(t, send(), peer.ErrNotSent)
}

// notYet is the error of a node that did nothing.
type notYet struct{}

func (notYet) Error() string { return "there is no metadata yet" }
func (notYet) NotSent() bool { return true }

// A node that says that it did nothing is believed.
func TestNothingDone(t *testing.T) {
	o := serve(t, func(context.Context, kmsg.Request) (kmsg.Response, error) {
		return nil, fmt.Errorf("node 1: %w", notYet{})
	}, nil)
	_, err := produceRequest([16]byte{1}, nil).RequestWith(t.Context(), peer.NewClient(o))
	require.ErrorIs(t, err, peer.ErrNotSent)
	require.ErrorContains(t, err, "there is no metadata yet")
}

// A peer that hangs up in the middle of a request has not got it.
func TestCutWhileSending(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.CopyN(io.Discard, conn, 1000)
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	})
	c := peer.NewClient(peer.ClientOptions{URL: "http://" + l.Addr().String(), Transport: &http.Transport{}, Credential: secret})
	_, err = produceRequest([16]byte{1}, make([]byte, 64<<20)).RequestWith(t.Context(), c)
	require.ErrorIs(t, err, peer.ErrNotSent)
	require.NoError(t, l.Close())
	wg.Wait()
}

// A stub of a body is not acted on and takes little memory, whatever length it announced.
func TestStubOfABody(t *testing.T) {
	h := peer.NewHandler(peer.HandlerOptions{Credential: secret, To: requestor(
		func(context.Context, kmsg.Request) (kmsg.Response, error) { panic("asked") })})
	r := httptest.NewRequest(http.MethodPost, peer.Path+"0", strings.NewReader("stub"))
	r.ContentLength = 100 << 20
	secret.Set(r.Header)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "broke off")
}

// A stub of an answer takes little memory as well.
func TestStubOfAnAnswer(t *testing.T) {
	c := peer.NewClient(peer.ClientOptions{
		Node: 2, URL: "http://n2:1", Credential: secret,
		Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusOK, ContentLength: 256 << 20, Body: io.NopCloser(strings.NewReader("stub")),
			}, nil
		}),
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.Request(t.Context(), kmsg.NewPtrMetadataRequest())
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "broken off")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// roundTripper is a func as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestBadRequests(t *testing.T) {
	h := peer.NewHandler(peer.HandlerOptions{Credential: secret, To: requestor(
		func(context.Context, kmsg.Request) (kmsg.Response, error) { panic("asked") })})
	for name, tc := range map[string]struct {
		method, path, header, value string
		length                      int64
		status                      int
	}{
		"method":      {method: http.MethodGet, path: "3", status: 405},
		"key":         {path: "x", status: 404},
		"unknown key": {path: "76", status: 404},
		"huge key":    {path: "70000", status: 404},
		"version":     {path: "3", header: "Millrace-Version", value: "x", status: 400},
		"old version": {path: "3", header: "Millrace-Version", value: "1", status: 400},
		"new version": {path: "3", header: "Millrace-Version", value: "14", status: 400},
		"timeout":     {path: "67", header: "Millrace-Timeout", value: "-1", status: 400},
		"garbage":     {path: "3", status: 400},
		"no length":   {path: "3", length: -1, status: 411},
	} {
		t.Run(name, func(t *testing.T) {
			body := "garbage"
			if tc.path == "67" {
				req := kmsg.NewPtrAllocateProducerIDsRequest()
				body = string(req.AppendTo(nil))
			}
			if tc.method == "" {
				tc.method = http.MethodPost
			}
			r := httptest.NewRequest(tc.method, peer.Path+tc.path, strings.NewReader(body))
			if tc.length != 0 {
				r.ContentLength = tc.length
			}
			if tc.header != "" {
				r.Header.Set(tc.header, tc.value)
			}
			secret.Set(r.Header)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, tc.status, w.Code, w.Body.String())
		})
	}
}

// The deadline arrives, and the end of the caller too.
func TestCallerEnds(t *testing.T) {
	ended := make(chan error, 1)
	started := make(chan time.Duration, 1)
	o := serve(t, func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		left := time.Duration(-1)
		if d, ok := ctx.Deadline(); ok {
			left = time.Until(d)
		}
		started <- left
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return r.ResponseKind(), nil
	}, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if left := <-started; left != -1 {
			t.Errorf("a deadline in %v, and there is none", left)
		}
		cancel(errors.New("enough"))
	})
	_, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, peer.NewClient(o))
	require.ErrorContains(t, err, "enough")
	require.NotErrorIs(t, err, peer.ErrNotSent, "the peer was already at it")
	wg.Wait()
	require.ErrorIs(t, <-ended, context.Canceled, "the peer heard of it")

	ctx, end := context.WithTimeout(t.Context(), time.Hour)
	wg.Go(func() {
		if left := <-started; left <= 0 || left > time.Hour {
			t.Errorf("a deadline in %v", left)
		}
		end()
	})
	_, err = kmsg.NewPtrMetadataRequest().RequestWith(ctx, peer.NewClient(o))
	require.ErrorIs(t, err, context.Canceled)
	wg.Wait()
	require.Error(t, <-ended)
}

// deadlines is a response that notes its last write deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	set  int
	last time.Time
}

// SetWriteDeadline is what http.ResponseController calls.
func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set, d.last = d.set+1, t
	return nil
}

// The deadline of an answer does not stay on the connection, which another handler may answer on next.
func TestDeadlineGoesWithTheAnswer(t *testing.T) {
	h := peer.NewHandler(peer.HandlerOptions{Node: 2, Credential: secret})
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(d, httptest.NewRequest(http.MethodPost, peer.Path+"0", nil))
	require.Equal(t, http.StatusUnauthorized, d.Code)
	require.Equal(t, 2, d.set)
	require.True(t, d.last.IsZero())
}

func TestCredentialHidesItself(t *testing.T) {
	h := http.Header{}
	secret.Set(h)
	token := strings.TrimPrefix(h.Get("Authorization"), "Millrace-Cluster ")
	require.Len(t, token, 43)
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "c", secret)
	fmt.Fprintf(&out, "%v %+v %#v %s %v", secret, secret, secret, secret, struct{ C peer.Credential }{secret})
	require.NotContains(t, out.String(), token)

	r := httptest.NewRequest(http.MethodPost, "/", nil)
	require.False(t, secret.Check(r))
	require.False(t, peer.Credential{}.Check(r))
	r.Header.Set("Authorization", "")
	require.False(t, peer.Credential{}.Check(r))
	secret.Set(r.Header)
	require.True(t, secret.Check(r))
	require.False(t, peer.NewCredential([]byte("other")).Check(r))
	r.Header.Add("Authorization", token)
	require.False(t, secret.Check(r), "two credentials are none")
}

// A refusal is told once, not once a request.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	h := peer.NewHandler(peer.HandlerOptions{Credential: secret, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, peer.Path+"3", nil))
	}
	require.Equal(t, 1, strings.Count(out.String(), "refused a request"))
}

// Many at once, some given up while they are sent: no memory is handed to two requests.
func TestConcurrentRequests(t *testing.T) {
	o := serve(t, func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		req := r.(*kmsg.ProduceRequest)
		records := req.Topics[0].Partitions[0].Records
		if want := bytes.Repeat(records[:1], len(records)); !bytes.Equal(records, want) {
			panic("another request's bytes")
		}
		return r.ResponseKind(), nil
	}, nil)
	c := peer.NewClient(o)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 30 {
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					time.AfterFunc(time.Duration(i)*30*time.Microsecond, cancel)
				}
				_, err := produceRequest([16]byte{1}, bytes.Repeat([]byte{byte(g*30 + i)}, 100<<10)).RequestWith(ctx, c)
				if i%3 != 0 {
					require.NoError(t, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

// The bodies of all requests at a time have a bound. What is over it is refused before anything is done, so that it can
// be asked again; memory is counted as a body comes, not as it is announced, and given back with the answer.
func TestBodiesAreBoundedTogether(t *testing.T) {
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	o := serve(t, func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		entered <- struct{}{}
		<-leave
		return r.ResponseKind(), nil
	}, func(o *peer.HandlerOptions) { o.MaxBodies = 1 << 20 })
	c := peer.NewClient(o)
	produce := func(size int) error {
		_, err := produceRequest([16]byte{1}, make([]byte, size)).RequestWith(context.Background(), c)
		return err
	}
	var stubs []net.Conn
	for range 5 { // they announce 100 MiB each and send next to nothing
		conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(o.URL, "http://"), "/"))
		require.NoError(t, err)
		defer conn.Close()
		head := http.Header{}
		secret.Set(head)
		_, err = fmt.Fprintf(conn, "POST %s0 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nAuthorization: %s\r\n\r\nstub",
			peer.Path, 100<<20, head.Get("Authorization"))
		require.NoError(t, err)
		stubs = append(stubs, conn)
	}
	var wg sync.WaitGroup
	results := make(chan error, 2)
	wg.Go(func() { results <- produce(500 << 10) })
	<-entered
	err := produce(500 << 10)
	require.ErrorIs(t, err, peer.ErrNotSent)
	require.ErrorContains(t, err, "503")
	require.ErrorContains(t, err, "memory set aside")
	wg.Go(func() { results <- produce(10 << 10) })
	<-entered // what is small fits still
	close(leave)
	wg.Wait()
	require.NoError(t, <-results)
	require.NoError(t, <-results)
	for range 10 { // each gives its memory back a moment after its answer
		require.Eventually(t, func() bool { return produce(500<<10) == nil }, 30*time.Second, time.Millisecond,
			"all was given back")
	}
	require.ErrorIs(t, produce(2<<20), peer.ErrNotSent, "more than there is for all")
	for _, conn := range stubs {
		require.NoError(t, conn.Close())
	}
}
