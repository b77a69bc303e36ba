package native_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

// h2 returns a client that speaks HTTP/2 in the clear.
func h2(t *testing.T) *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestTailFromNowOn(t *testing.T) {
	onEach(t, 2, "t", testTailFromNowOn)
}

func testTailFromNowOn(t *testing.T, e *reads) {
	e.putValues("t", 0, 0, 3)
	l := e.live("/v1/topics/t/records")
	require.Equal(t, "text/event-stream", l.resp.Header.Get("Content-Type"))
	require.Equal(t, "no-store", l.resp.Header.Get("Cache-Control"))
	require.True(t, strings.HasPrefix(l.lastID, "3,0~"), l.lastID)
	e.put("t", 1, &kgo.Record{Key: []byte("k"), Value: []byte("{\n\"a\":1}")})
	got := l.take(1)
	require.Equal(t, `{ "a":1}`, string(got[0].Value))
	require.Equal(t, int32(1), got[0].Partition)
	require.True(t, strings.HasPrefix(l.lastID, "3,1~"), l.lastID)
	e.putValues("t", 0, 10, 5)
	require.Equal(t, []string{"10", "11", "12", "13", "14"}, values(l.take(5)))
}

func TestTailOrigins(t *testing.T) {
	onEach(t, 2, "t", testTailOrigins)
}

func testTailOrigins(t *testing.T, e *reads) {
	e.putValues("t", 0, 0, 3)
	e.putValues("t", 1, 10, 3)
	for _, c := range []struct {
		path string
		want []string
	}{
		{"/v1/topics/t/records?offset=earliest", []string{"0", "1", "10", "11", "12", "2"}},
		{"/v1/topics/t/records?from=2,1", []string{"11", "12", "2"}},
		{"/v1/topics/t/records?from=3", []string{"10", "11", "12"}},
		{"/v1/topics/t/partitions/1/records?offset=2", []string{"12"}},
		{"/v1/topics/t/partitions/1/records?from=1:1", []string{"11", "12"}},
		{"/v1/topics/t/records?timestamp=0", []string{"0", "1", "10", "11", "12", "2"}},
	} {
		for _, cl := range []*http.Client{e.http, h2(t)} {
			l, _ := e.tryLive(cl, c.path)
			got := values(l.take(len(c.want)))
			again, _ := e.tryLive(cl, c.path, "Last-Event-ID", l.start)
			require.ElementsMatch(t, got, values(again.take(len(c.want))), "cut before the first event")
			again.close()
			slices.Sort(got)
			require.Equal(t, c.want, got, c.path)
			l.close()
		}
	}
	one := e.live("/v1/topics/t/partitions/1/records?offset=earliest", "Last-Event-ID", "1:2")
	require.Equal(t, []string{"12"}, values(one.take(1)))
	require.True(t, strings.HasPrefix(one.lastID, "1:3~"), one.lastID)
}

// Whatever cuts a stream, coming back with the last id gives every record once.
func TestTailResumesExactly(t *testing.T) {
	onEach(t, 3, "t", testTailResumesExactly)
}

func testTailResumesExactly(t *testing.T, e *reads) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	const partitions, total, readers = 3, 600, 4
	clients := []*http.Client{e.http, h2(t)}
	var wg sync.WaitGroup
	for reader := range readers {
		rng := rand.New(rand.NewPCG(uint64(seed), uint64(reader)))
		l, refusal := e.tryLive(clients[reader%2], "/v1/topics/t/records")
		require.NotNil(t, l, refusal.body)
		id := l.lastID
		wg.Go(func() {
			var got []string
			ended := map[int32]bool{}
			take := func(records []shown, next string) {
				for _, r := range records {
					if string(r.Value) == endMark {
						ended[r.Partition] = true
					} else {
						got = append(got, string(r.Value))
					}
				}
				id = next
			}
			for {
				for range rng.IntN(60) {
					if len(ended) == partitions {
						l.close()
						checkComplete(t, got, total)
						return
					}
					r := l.take(1)
					take(r, l.lastID)
				}
				l.close()
				if rng.IntN(3) == 0 { // a page in between moves on just as well
					p := e.page("/v1/topics/t/records?max_records=7&from=" + url.QueryEscape(id))
					take(p.Records, p.Next)
				}
				l, _ = e.tryLive(clients[rng.IntN(2)], "/v1/topics/t/records?offset=earliest", "Last-Event-ID", id)
			}
		})
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 99))
	for i := 0; i < total; {
		n := min(1+rng.IntN(20), total-i)
		var records []*kgo.Record
		for range n {
			records = append(records, &kgo.Record{Value: []byte(strconv.Itoa(i))})
			i++
		}
		e.put("t", int32(rng.IntN(partitions)), records...)
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for { // the end marks, until all have seen them
		for p := range int32(partitions) {
			e.put("t", p, &kgo.Record{Value: []byte(endMark)})
		}
		select {
		case <-done:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// endMark is the value of the records after all that count.
const endMark = "-1"

func checkComplete(t *testing.T, got []string, total int) {
	seen := map[string]int{}
	for _, v := range got {
		seen[v]++
	}
	for i := range total {
		if n := seen[strconv.Itoa(i)]; n != 1 {
			t.Errorf("record %d came %d times", i, n)
			return
		}
	}
	require.Len(t, got, total)
}

func TestTailManyReaders(t *testing.T) {
	onEach(t, 2, "t", testTailManyReaders)
}

func testTailManyReaders(t *testing.T, e *reads) {
	const readers = 200
	var ls []*live
	for range readers {
		ls = append(ls, e.live("/v1/topics/t/records"))
	}
	for round := range 20 {
		e.putValues("t", int32(round%2), round*3, 3)
	}
	for i, l := range ls {
		got := values(l.take(60))
		slices.SortFunc(got, func(a, b string) int { x, _ := strconv.Atoi(a); y, _ := strconv.Atoi(b); return x - y })
		for j, v := range got {
			require.Equal(t, strconv.Itoa(j), v, "reader %d", i)
		}
		if i%2 == 0 {
			l.close()
		}
	}
	e.putValues("t", 0, 1000, 3)
	for i, l := range ls {
		if i%2 == 1 {
			require.Equal(t, []string{"1000", "1001", "1002"}, values(l.take(3)))
		}
	}
}

// A reader that does not read holds up nobody, and gets all it missed when it reads on.
func TestTailSlowReader(t *testing.T) {
	onEach(t, 1, "t", testTailSlowReader)
}

func testTailSlowReader(t *testing.T, e *reads) {
	raw := dial(t, strings.TrimPrefix(e.url, "http://"))
	fmt.Fprintf(raw, "GET /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(raw), nil)
	require.NoError(t, err)
	slow := &live{t: t, resp: resp, lines: bufio.NewReader(resp.Body)}
	_, err = slow.next()
	require.NoError(t, err)
	quick := e.live("/v1/topics/t/records")
	big := `"` + strings.Repeat("x", 200_000) + `"`
	// 20 MB: beyond what the sockets and the ring hold. In few batches, since who takes nothing for too long is cut off.
	const count = 100
	for range count / 4 {
		var four []*kgo.Record
		for range 4 {
			four = append(four, &kgo.Record{Value: []byte(big)})
		}
		e.put("t", 0, four...)
		for _, r := range quick.take(4) {
			require.Equal(t, big, string(r.Value))
		}
	}
	for i := range count {
		r := slow.take(1)[0]
		require.EqualValues(t, i, r.Offset)
		require.Equal(t, big, string(r.Value))
	}
	e.putValues("t", 0, 5, 1)
	require.Equal(t, []string{"5"}, values(slow.take(1)))
	require.Equal(t, []string{"5"}, values(quick.take(1)))
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTailPartitionsAdded(t *testing.T) {
	e := newReads(t, 1, "t")
	l := e.live("/v1/topics/t/records")
	req := kmsg.NewPtrCreatePartitionsRequest()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = "t", 3
	req.Topics = append(req.Topics, rt)
	_, err := req.RequestWith(t.Context(), e.cl)
	require.NoError(t, err)
	until(t, func() bool {
		e.producer.ForceMetadataRefresh()
		return e.produce(&kgo.Record{Topic: "t", Partition: 2, Value: []byte("22")}) == nil
	})
	got := l.take(1)[0]
	require.EqualValues(t, 2, got.Partition)
	require.Equal(t, "22", string(got.Value))
	require.True(t, strings.HasPrefix(l.lastID, "0,0,1~"), l.lastID)
	l.close()
	e.putValues("t", 1, 11, 1)
	l = e.live("/v1/topics/t/records", "Last-Event-ID", l.lastID)
	require.Equal(t, []string{"11"}, values(l.take(1)))
}

func TestTailTopicDeleted(t *testing.T) {
	e := newReads(t, 1, "t")
	ls := []*live{e.live("/v1/topics/t/records"), e.live("/v1/topics/t/records")}
	other, _ := e.tryLive(h2(t), "/v1/topics/t/records")
	ls = append(ls, other)
	req := kmsg.NewPtrDeleteTopicsRequest()
	name := "t"
	req.TopicNames = []string{name}
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = &name
	req.Topics = append(req.Topics, rt)
	_, err := req.RequestWith(t.Context(), e.cl)
	require.NoError(t, err)
	for _, l := range ls {
		ev, err := l.next()
		require.NoError(t, err)
		require.Equal(t, "error", ev.kind)
		require.Contains(t, ev.data, `"status":404`)
		_, err = l.next()
		require.ErrorIs(t, err, io.EOF)
	}
	_, refusal := e.tryLive(e.http, "/v1/topics/t/records")
	require.Equal(t, 404, refusal.status)
}

func TestTailEndsOnClose(t *testing.T) {
	e := newReads(t, 1, "t")
	one := e.live("/v1/topics/t/records")
	two, _ := e.tryLive(h2(t), "/v1/topics/t/records")
	e.api.Close()
	for _, l := range []*live{one, two} {
		ev, err := l.next()
		require.NoError(t, err)
		require.Equal(t, event{kind: "end", data: `{"reason":"drain"}`}, ev)
		_, err = l.next()
		require.ErrorIs(t, err, io.EOF)
	}
	_, refusal := e.tryLive(e.http, "/v1/topics/t/records")
	require.Equal(t, 503, refusal.status)
	require.NotEmpty(t, refusal.header.Get("Retry-After"))
}

// Readers that vanish leave nothing behind.
func TestTailAbruptClose(t *testing.T) {
	e := newReads(t, 1, "t")
	before := goleak.IgnoreCurrent()
	for i := range 30 {
		c := dial(t, strings.TrimPrefix(e.url, "http://"))
		fmt.Fprintf(c, "GET /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
		if i%2 == 0 {
			_, err := bufio.NewReader(c).ReadString('\n')
			require.NoError(t, err)
		}
		require.NoError(t, c.(*net.TCPConn).SetLinger(0))
		require.NoError(t, c.Close())
	}
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	for range 5 {
		l, _ := e.tryLive(&http.Client{Transport: tr}, "/v1/topics/t/records")
		l.close()
	}
	tr.CloseIdleConnections()
	e.putValues("t", 0, 0, 3) // those who were quick to go are noticed by writing to them
	e.api.Close()
	e.server.Close()
	e.cl.close()
	e.cluster.Close()
	until(t, func() bool { return goleak.Find(before) == nil })
}

func TestTailThroughProxy(t *testing.T) {
	onEach(t, 1, "t", testTailThroughProxy)
}

func testTailThroughProxy(t *testing.T, e *reads) {
	to, err := url.Parse(e.url)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	front := httptest.NewServer(proxy)
	defer front.Close()
	direct := e.url
	e.url = front.URL
	l := e.live("/v1/topics/t/records")
	e.url = direct
	e.putValues("t", 0, 0, 2)
	require.Equal(t, []string{"0", "1"}, values(l.take(2)))
	l.close()
}

func TestTailOverHTTP10(t *testing.T) {
	onEach(t, 1, "t", testTailOverHTTP10)
}

func testTailOverHTTP10(t *testing.T, e *reads) {
	c := dial(t, strings.TrimPrefix(e.url, "http://"))
	fmt.Fprintf(c, "GET /v1/topics/t/records HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	l := &live{t: t, resp: resp, lines: bufio.NewReader(resp.Body)}
	_, err = l.next()
	require.NoError(t, err)
	e.putValues("t", 0, 0, 2)
	require.Equal(t, []string{"0", "1"}, values(l.take(2)))
}

// A stream that is behind when the log's start passes it says so.
func TestTailOvertaken(t *testing.T) {
	e := newReads(t, 1, "t")
	e.putValues("t", 0, 0, 10)
	l := e.live("/v1/topics/t/records?offset=9")
	require.Equal(t, []string{"9"}, values(l.take(1)))
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Offset = 5
	rt.Topic, rt.Partitions = "t", []kmsg.DeleteRecordsRequestTopicPartition{rp}
	req.Topics = append(req.Topics, rt)
	_, err := req.RequestWith(t.Context(), e.cl)
	require.NoError(t, err)
	_, refusal := e.tryLive(e.http, "/v1/topics/t/records?offset=4")
	require.Equal(t, 416, refusal.status)
	require.Contains(t, refusal.body, `"log_start_offset":5,"high_watermark":10`)
	e.putValues("t", 0, 10, 1)
	require.Equal(t, []string{"10"}, values(l.take(1)))
}
