package memnet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest/memnet"
)

const ms = time.Millisecond

// bubble runs f in fake time with a network on which a byte takes a millisecond, and checks that nothing is left of it.
func bubble(t *testing.T, f func(t *testing.T, n *memnet.Net)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1, memnet.Link{Latency: ms})
		f(t, n)
		n.Close()
	})
}

// connect makes a connection from a to b and gives both ends.
func connect(t *testing.T, a, b *memnet.Host) (dialled, accepted net.Conn) {
	t.Helper()
	l, err := b.Listen(0)
	require.NoError(t, err)
	defer l.Close()
	dialled, err = a.Dial(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err = l.Accept()
	require.NoError(t, err)
	return dialled, accepted
}

func read(t *testing.T, c net.Conn, bytes int) string {
	t.Helper()
	p := make([]byte, bytes)
	_, err := io.ReadFull(c, p)
	require.NoError(t, err)
	return string(p)
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	n, err := io.WriteString(c, text)
	require.NoError(t, err)
	require.Equal(t, len(text), n)
}

func TestBytesArriveInOrderAndInTime(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		began := time.Now()
		a, b := connect(t, n.Boot("a"), n.Boot("b"))
		require.Equal(t, 2*ms, time.Since(began), "a dial is a round trip")
		require.Equal(t, "b", strings.Split(a.RemoteAddr().String(), ":")[0])
		require.Equal(t, a.LocalAddr(), b.RemoteAddr())
		n.Set("a", "b", memnet.Link{Latency: ms, Jitter: 50 * ms})
		var sent strings.Builder
		for i := range 50 {
			text := fmt.Sprint(i, " ")
			sent.WriteString(text)
			write(t, a, text)
		}
		require.Equal(t, sent.String(), read(t, b, sent.Len()))
		require.Greater(t, time.Since(began), 20*ms)
		require.NoError(t, a.Close())
		_, err := b.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		_, err = a.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, a.Close(), net.ErrClosed)
	})
}

func TestANarrowLinkTakesItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		a, b := connect(t, n.Boot("a"), n.Boot("b"))
		n.Set("a", "b", memnet.Link{Latency: ms, BytesPerSec: 1000})
		began := time.Now()
		write(t, a, strings.Repeat("x", 500))
		write(t, a, strings.Repeat("x", 500))
		require.Zero(t, time.Since(began))
		read(t, b, 1000)
		require.Equal(t, 1001*ms, time.Since(began))
	})
}

func TestAWindowHoldsTheWriter(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		a, b := connect(t, n.Boot("a"), n.Boot("b"))
		n.Set("a", "b", memnet.Link{Window: 10})
		write(t, a, "0123456789")
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Second)))
		began := time.Now()
		_, err := a.Write([]byte("x"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, a.SetWriteDeadline(time.Time{}))
		var wg sync.WaitGroup
		for range 2 { // two writers at once freeze neither each other nor the bubble
			wg.Go(func() { _, _ = a.Write([]byte(strings.Repeat("y", 100))) })
		}
		time.Sleep(time.Second)
		require.Equal(t, "0123456789"+strings.Repeat("y", 200), read(t, b, 210))
		wg.Wait()
	})
}

// A cut link holds what is sent and gives it out after the heal; what had arrived before can be read.
func TestACutLinkHoldsBytes(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		a, b := connect(t, n.Boot("a"), n.Boot("b"))
		write(t, a, "before")
		time.Sleep(2 * ms)
		n.Cut("a", "b")
		n.Cut("a", "b")
		write(t, a, "held")
		write(t, b, "back")
		require.Equal(t, "back", read(t, a, 4), "the other direction is open")
		require.Equal(t, "before", read(t, b, 6))
		require.NoError(t, b.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := b.Read(make([]byte, 9))
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.NoError(t, b.SetReadDeadline(time.Time{}))
		began := time.Now()
		time.AfterFunc(time.Second, func() { n.Mend("a", "b") })
		time.AfterFunc(2*time.Second, func() { n.Mend("a", "b") })
		require.Equal(t, "held", read(t, b, 4))
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestADeadlineInThePastWakesAReader(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		a, _ := connect(t, n.Boot("a"), n.Boot("b"))
		time.AfterFunc(time.Second, func() { _ = a.SetReadDeadline(time.Unix(1, 0)) })
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

func TestDialRefusedUnknownAndCut(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		a, b := n.Boot("a"), n.Boot("b")
		began := time.Now()
		_, err := a.Dial(t.Context(), "tcp", "b:80")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, 2*ms, time.Since(began))
		_, err = a.Dial(t.Context(), "tcp", "nowhere:80")
		var dns *net.DNSError
		require.ErrorAs(t, err, &dns)

		l, err := b.Listen(80)
		require.NoError(t, err)
		_, err = b.Listen(80)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		n.Cut("b", "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = a.Dial(ctx, "tcp", "b:80")
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		given, err := l.Accept() // it heard the dial, and is told that nobody waits
		require.NoError(t, err)
		n.Mend("b", "a")
		_, err = given.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)

		n.Cut("a", "b")
		began = time.Now()
		_, err = a.Dial(t.Context(), "tcp", "b:80")
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.Greater(t, time.Since(began), time.Minute)
		time.AfterFunc(time.Second, n.Heal)
		began = time.Now()
		_, err = a.Dial(t.Context(), "tcp", "b:80")
		require.NoError(t, err)
		require.Equal(t, time.Second+ms, time.Since(began))

		require.NoError(t, l.Close())
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestKillResetsAndRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		ah, bh := n.Boot("a"), n.Boot("b")
		a, b := connect(t, ah, bh)
		l, err := bh.Listen(80)
		require.NoError(t, err)
		n.Cut("a", "b")
		var dialled error
		var wg sync.WaitGroup
		wg.Go(func() { _, dialled = bh.Dial(context.Background(), "tcp", "a:1") })
		synctest.Wait()
		write(t, b, "last words")
		began := time.Now()
		bh.Kill()
		require.False(t, bh.Up())
		require.Equal(t, "last words", read(t, a, 10))
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, ms, time.Since(began))
		_, err = b.Read(make([]byte, 1))
		require.Error(t, err)
		_, err = b.Write([]byte("x"))
		require.Error(t, err)
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		wg.Wait()
		require.Error(t, dialled)
		n.Heal()
		_, err = ah.Dial(t.Context(), "tcp", "b:80")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = bh.Listen(80)
		require.ErrorIs(t, err, syscall.ENETDOWN)
		next := n.Boot("b")
		_, err = next.Listen(80)
		require.NoError(t, err)
		_, err = ah.Dial(t.Context(), "tcp", "b:80")
		require.NoError(t, err)
	})
}

// Nobody hears of a power loss: a write goes nowhere, a read waits, until the host is up again and denies the
// connection.
func TestPowerOffTellsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		ah, bh := n.Boot("a"), n.Boot("b")
		writer, lost := connect(t, ah, bh)
		reader, _ := connect(t, ah, bh)
		bh.PowerOff()
		_, err := lost.Read(make([]byte, 1))
		require.Error(t, err)
		write(t, writer, "into the void")
		require.NoError(t, writer.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = writer.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, writer.SetReadDeadline(time.Time{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = ah.Dial(ctx, "tcp", "b:80")
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		n.Boot("b")
		began := time.Now()
		_, err = writer.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, 2*ms, time.Since(began), "what was sent again is denied")
		_, err = reader.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, 15*time.Second, time.Since(began), "keep-alive finds out")
	})
}

func TestResetAfterSomeBytes(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		a, b := connect(t, n.Boot("a"), n.Boot("b"))
		n.ResetAfter("a", "b", 5)
		write(t, a, "012")
		k, err := a.Write([]byte("3456"))
		require.Equal(t, 2, k)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, "01234", read(t, b, 5))
		_, err = b.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

func TestHalfOpen(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Net) {
		a, b := connect(t, n.Boot("a"), n.Boot("b"))
		require.Equal(t, 1, n.HalfOpen("b", "a"))
		_, err := b.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.NoError(t, a.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody told it")
		require.NoError(t, a.SetReadDeadline(time.Time{}))
		write(t, a, "x")
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)

		a, b = connect(t, n.Boot("c"), n.Boot("d"))
		require.Equal(t, 1, n.Reset("c", "d"))
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = b.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Zero(t, n.Connections())
	})
}

// echo is an HTTP server on a host that answers with what it was sent, until the test's end.
func echo(t *testing.T, h *memnet.Host) (stop func()) {
	t.Helper()
	l, err := h.Listen(80)
	require.NoError(t, err)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			time.Sleep(time.Duration(len(body)%7) * ms)
			_, _ = w.Write(body)
		}
	})}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	return func() { _ = s.Close(); wg.Wait() }
}

// The standard library's HTTP runs over it, both versions, with resets and cuts on the way.
func TestHTTP(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("h2=", h2), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *memnet.Net) { overHTTP(t, n, h2) })
		})
	}
}

func overHTTP(t *testing.T, n *memnet.Net, h2 bool) {
	server, client := n.Boot("s"), n.Boot("c")
	stop := echo(t, server)
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	transport := &http.Transport{DialContext: client.Dial, Protocols: &protocols}
	c := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	rng := rand.New(rand.NewPCG(1, 1))
	bodies := make([]string, 40)
	for i := range bodies {
		bodies[i] = strings.Repeat("b", 1+rng.IntN(20_000))
	}
	var mu sync.Mutex
	good, bad := 0, 0
	var wg sync.WaitGroup
	for i, body := range bodies {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 20 * ms)
			back, err := post(c, "http://s:80/", body)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				bad++
				return
			}
			good++
			require.Equal(t, body, back)
		})
	}
	for _, k := range []int{3000, 50_000} {
		n.ResetAfter("c", "s", k)
		time.Sleep(200 * ms)
	}
	n.Cut("s", "c")
	time.Sleep(5 * time.Second)
	n.Mend("s", "c")
	wg.Wait()
	require.Greater(t, good, 30)
	require.LessOrEqual(t, bad, 8)
	client.Kill()
	transport.CloseIdleConnections()
	stop()
}

func post(c *http.Client, url, body string) (string, error) {
	resp, err := c.Post(url, "text/plain", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var back bytes.Buffer
	_, err = back.ReadFrom(resp.Body)
	return back.String(), errors.Join(err)
}

// The same calls with the same seed send the same bytes at the same times.
func TestFingerprint(t *testing.T) {
	run := func(seed uint64) (sum uint64, trace []string) {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.New(seed, memnet.Link{Latency: ms, Jitter: 10 * ms})
			a, b := connect(t, n.Boot("a"), n.Boot("b"))
			c, d := connect(t, n.Boot("c"), n.Boot("d"))
			for i := range 100 {
				write(t, a, fmt.Sprint("a", i))
				read(t, b, 1)
				write(t, d, fmt.Sprint("d", i))
				read(t, c, 2)
			}
			n.Close()
			sum, trace = n.Fingerprint(), n.Trace()
			require.Equal(t, n.Events(), len(trace))
		})
		return sum, trace
	}
	first, trace := run(1)
	again, same := run(1)
	require.Equal(t, trace, same)
	require.Equal(t, first, again)
	require.Contains(t, trace[0], "dial")
	other, _ := run(2)
	require.NotEqual(t, first, other)
}
