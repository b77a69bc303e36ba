package native

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// mute is a cluster that does not answer.
type mute struct{}

func (mute) Request(context.Context, kmsg.Request) (kmsg.Response, error) {
	return nil, errors.New("mute")
}

// idleHub is a hub whose goroutine is the test, with members whose far ends are returned.
func idleHub(t *testing.T, members int) (h *hub, ends []net.Conn, done *int) {
	t.Helper()
	c := client.New(mute{}, client.Options{})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	k := newConsumer(edge, c, nil)
	t.Cleanup(k.close)
	h = newHub(k.tails, hubKey{topic: "t", partition: 0}, &client.Topic{Name: "t"})
	h.offsets, h.users = []int64{0}, members+1
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	done = new(int)
	for range members {
		far, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { far.Close() })
		near, err := l.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { near.Close() })
		s := &stream{hub: h, done: func() { *done++ }}
		s.sink, err = takeOver(near, http.Header{"X": {"y"}}, time.Unix(0, 0))
		require.NoError(t, err)
		require.NoError(t, s.sink.send(sealFrame(append(newFrame(nil), ": hello\n\n"...))))
		s.offsets = h.offsets
		h.join(s)
		require.True(t, h.admit(s))
		ends = append(ends, far)
	}
	return h, ends, done
}

func sweepAll(t *testing.T, h *hub, now time.Time) {
	t.Helper()
	for {
		require.NoError(t, h.sweep(now))
		if h.sweepAt < 0 {
			return
		}
	}
}

func TestSweep(t *testing.T) {
	const members = 7
	h, ends, done := idleHub(t, members)
	var bodies []*bufio.Reader
	for _, c := range ends {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, []string{"y"}, resp.Header["X"])
		require.Equal(t, "Thu, 01 Jan 1970 00:00:00 GMT", resp.Header.Get("Date"))
		bodies = append(bodies, bufio.NewReader(resp.Body))
		expectLine(t, bodies[len(bodies)-1], ": hello\n")
	}
	h.sent = time.Now()
	sweepAll(t, h, h.sent.Add(5*time.Second)) // nothing is due
	require.Len(t, h.members, members)
	sweepAll(t, h, h.sent.Add(15*time.Second))
	for _, b := range bodies {
		expectLine(t, b, ": keep-alive\n")
	}
	require.NoError(t, ends[0].Close())
	require.NoError(t, ends[6].(*net.TCPConn).SetLinger(0))
	require.NoError(t, ends[6].Close())
	require.Eventually(t, func() bool {
		sweepAll(t, h, h.sent.Add(5*time.Second))
		return len(h.members) == members-2
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, 2, *done)
	h.publish(&eventWriter{offsets: []int64{1}, frames: []frame{sealFrame(append(newFrame(nil), "x\n\n"...))},
		after: [][]int64{{1}}})
	for _, b := range bodies[1:6] {
		expectLine(t, b, "x\n")
	}
	h.err = errStopped
	h.finish()
	require.Equal(t, members, *done)
	for _, b := range bodies[1:6] {
		expectLine(t, b, "event: end\n")
		rest, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, "data: {\"reason\":\"drain\"}\n\n", string(rest))
	}
}

func expectLine(t *testing.T, b *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := b.ReadString('\n')
		require.NoError(t, err)
		if line != "\n" {
			require.Equal(t, want, line)
			return
		}
	}
}

// A sweep over many members is cut into slices, between which the hub fetches.
func TestSweepInSlices(t *testing.T) {
	h, ends, _ := idleHub(t, 5)
	one := h.joining[0]
	for range 2*sweepSlice - 5 {
		h.members = append(h.members, one)
	}
	require.NoError(t, h.sweep(time.Now()))
	require.Equal(t, sweepSlice, h.sweepAt)
	require.NoError(t, h.sweep(time.Now()))
	require.Equal(t, -1, h.sweepAt)
	require.Len(t, ends, 5)
	h.members = h.members[len(h.members)-5:]
}

// Readers that are behind when their hub ends are told what the others are told.
func TestSlowReadersAreToldTheEnd(t *testing.T) {
	h, ends, _ := idleHub(t, 6)
	large := sealFrame(append(newFrame(nil), bytes.Repeat([]byte(": more than sockets hold\n"), 1<<20)...))
	h.publish(&eventWriter{offsets: []int64{1}, frames: []frame{large}, after: [][]int64{{1}}})
	require.Empty(t, h.members)
	h.err = api.Refuse(api.Internal, "the topic has gone")
	h.finish()
	bodies, errs := make([][]byte, len(ends)), make([]error, len(ends))
	var wg sync.WaitGroup
	for i, c := range ends { // at the same time: who takes nothing for too long is cut off
		wg.Go(func() {
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err == nil {
				bodies[i], err = io.ReadAll(resp.Body)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i, body := range bodies {
		require.NoError(t, errs[i])
		require.Contains(t, string(body[len(body)-500:]), "event: error\ndata: ")
	}
}

func TestFrame(t *testing.T) {
	f := sealFrame(append(newFrame(nil), "id: 1\ndata: x\n\n"...))
	require.Equal(t, "0000000f\r\nid: 1\ndata: x\n\n\r\n", string(f))
	require.Equal(t, "id: 1\ndata: x\n\n", string(f.events()))
}
