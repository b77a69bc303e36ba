package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// answering starts a server that answers the n-th request, from 0, with the n-th handler and the last one for ever. It
// returns what the requests said.
func answering(t *testing.T, handlers ...http.HandlerFunc) (url string, requests func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		n := len(seen)
		seen = append(seen, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Producer-Seq")+" "+string(body))
		mu.Unlock()
		handlers[min(n, len(handlers)-1)](w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// hangUp takes the request and cuts the connection, as a node that is killed does.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// command runs a command line in this process.
func command(t *testing.T, stdin string, args ...string) (stdout, stderr string, code exitCode) {
	t.Helper()
	return commandWith(t, nil, stdin, args...)
}

// commandWith is command in an environment.
func commandWith(t *testing.T, environ []string, stdin string, args ...string) (stdout, stderr string, code exitCode) {
	t.Helper()
	var out, errs bytes.Buffer
	c := &cli{in: strings.NewReader(stdin), out: &out, err: &errs, environ: environ}
	root := newRoot(c)
	root.SetArgs(args)
	code = exitCode(c.finish(root.ExecuteContext(t.Context())))
	return out.String(), errs.String(), code
}

const (
	oneStored  = `{"offsets":[{"partition":0,"base_offset":0,"count":1,"timestamp":"2026-01-01T00:00:00.000Z"}]}`
	overloaded = `{"title":"Overloaded","detail":"busy","status":503,"retryable":true,"outcome":"failed"}`
	unknown    = `{"title":"Timeout","detail":"no answer","status":504,"retryable":true,"outcome":"unknown"}`
	refused    = `{"title":"Bad","detail":"not so","status":400,"retryable":false,"outcome":"failed"}`
)

// A batch that may be sent again is, byte for byte and under the same sequence.
func TestProduceRetries(t *testing.T) {
	for name, first := range map[string]http.HandlerFunc{
		"overloaded": answer(503, overloaded), "unknown": answer(504, unknown), "cut": hangUp,
	} {
		t.Run(name, func(t *testing.T) {
			url, requests := answering(t, first, answer(200, oneStored))
			_, stderr, code := command(t, "a\n", "produce", "t", "--url", url)
			require.Equal(t, exitOK, code, stderr)
			require.Contains(t, stderr, "1 retry")
			seen := requests()
			require.Len(t, seen, 2)
			require.Equal(t, seen[0], seen[1])
			require.Contains(t, seen[0], " 0 {")
		})
	}
}

// A batch is not longer than a topic allows by default, but for a single record that is.
func TestProduceBatches(t *testing.T) {
	small, large := strings.Repeat("s", 10_000)+"\n", strings.Repeat("l", maxBatchBytes+1)+"\n"
	url, requests := answering(t, answer(200, oneStored))
	input := strings.Repeat(small, 1500) + large + small + strings.Repeat("s\n", 3)
	_, stderr, code := command(t, input, "produce", "t", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stderr, "stored 1505 records")
	whole := 0
	for _, r := range requests() {
		if strings.Contains(r, "lllll") {
			require.Equal(t, 1, strings.Count(r, "value"), "the large record goes alone")
			continue
		}
		require.Less(t, len(r), 1_048_588)
		if len(r) > maxBatchBytes-20_000 {
			whole++
		}
	}
	require.Positive(t, whole, "batches are filled")
}

// What is typed goes out after a moment; the rest of a file is waited for, however slow the disk is.
func TestBatchesOfFilesAreNotCut(t *testing.T) {
	for pause, want := range map[time.Duration]int{linger: 1, 0: 2} {
		synctest.Test(t, func(t *testing.T) {
			lines := make(chan line)
			go func() {
				lines <- line{record: []byte("1")}
				time.Sleep(time.Minute)
				lines <- line{record: []byte("2")}
				lines <- line{err: io.EOF}
			}()
			p := &producer{batchRecords: 10, linger: pause}
			n, total := 0, 0
			for end := error(nil); end == nil; total += n {
				was := total
				_, n, end = p.fill(t.Context(), lines)
				if was == 0 {
					require.Equal(t, want, n)
				}
			}
			require.Equal(t, 2, total)
		})
	}
}

// How a produce that cannot be finished ends depends on what is known of its last batch.
func TestProduceGivesUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		code   exitCode
	}{
		{"refused", answer(400, refused), exitFailed},
		{"no topic", answer(404, strings.Replace(refused, "400", "404", 1)), exitNotFound},
		{"overloaded", answer(503, overloaded), exitFailed},
		{"unknown", answer(504, unknown), exitUnknown},
		{"partial", answer(503, strings.Replace(unknown, `"unknown"`, `"partial"`, 1)), exitUnknown},
		{"cut", hangUp, exitUnknown},
		{"not Millrace", answer(502, "<html>bad gateway</html>"), exitFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := answering(t, c.answer)
			_, stderr, code := command(t, "a\n", "produce", "t", "--url", url, "--retry-for", "150ms")
			require.Equal(t, c.code, code, stderr)
		})
	}
}

// A read that is cut does nothing, so it is not unknown.
func TestCutReadIsUnreachable(t *testing.T) {
	url, _ := answering(t, hangUp)
	_, _, code := command(t, "", "topic", "list", "--url", url)
	require.Equal(t, exitUnreachable, code)
}

// Whoever writes https, which no node speaks, is told what to write.
func TestHTTPSIsNotSpoken(t *testing.T) {
	url, _ := answering(t, answer(200, "{}"))
	_, stderr, code := command(t, "", "topic", "list", "--url", strings.Replace(url, "http:", "https:", 1))
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, stderr, "speaks http, not https: try "+url)
}

// A port in use is named with the flag that chooses another one.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	for _, args := range [][]string{{"serve", "--listen", l.Addr().String()}, {"dev", "--port", port}} {
		_, stderr, code := command(t, "", append(args, "--data-dir", t.TempDir())...)
		require.Equal(t, exitFailed, code)
		require.Contains(t, stderr, "Stop it, or choose another port with "+args[1]+"\n")
	}
}

// Consume goes on where it was when the node is away for a while.
func TestConsumeRetriesFromWhereItWas(t *testing.T) {
	record := func(i int) string {
		return fmt.Sprintf(`{"records":[{"partition":0,"offset":%d,"value_base64":"YQ=="}],"next":"%d",`+
			`"high_watermarks":{"0":9}}`, i, i+1)
	}
	url, requests := answering(t, answer(200, record(0)), answer(503, overloaded), hangUp, answer(200, record(1)))
	out, stderr, code := command(t, "", "consume", "t", "--count", "2", "--format", "{offset}", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "0\n1\n", out)
	seen := requests()
	require.Contains(t, seen[0], "offset=earliest")
	for _, r := range seen[1:] {
		require.Contains(t, r, "from=1")
		require.NotContains(t, r, "offset=earliest")
	}
}

// Killing the node in the middle of a produce and starting it again neither loses nor doubles a record.
func TestProduceAcrossAKill(t *testing.T) {
	dir, addr := t.TempDir(), fmt.Sprint("127.0.0.1:", freePorts(t, 1))
	p := serve(t, dir, "--listen", addr)
	_, errs, code := p.run(t, "", "topic", "create", "t")
	require.Zero(t, code, errs)

	cmd := exec.CommandContext(t.Context(), "millrace", "produce", "t", "--batch", "7", "--retry-for", "3m")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "MILLRACE_URL=" + p.url}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	var want strings.Builder
	write := func(from, to int) {
		for i := from; i < to; i++ {
			fmt.Fprintf(&want, "%d\n", i)
			_, err := fmt.Fprintln(in, i)
			require.NoError(t, err)
		}
	}
	write(0, 300)
	_, some := p.get(t, "/v1/topics/t/records?offset=earliest&wait=60s")
	require.Contains(t, some, `"offset":0`)
	require.Equal(t, -1, p.end(t, syscall.SIGKILL))
	write(300, 600)
	p = serve(t, dir, "--listen", addr)
	write(600, 900)
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait(), stderr.String())
	out, errs, code := p.run(t, "", "consume", "t", "--to-end")
	require.Zero(t, code, errs)
	require.Equal(t, want.String(), out, stderr.String())
}

// A second signal ends a node that is still draining, at once.
func TestSecondSignalExitsAtOnce(t *testing.T) {
	p := serve(t, t.TempDir(), "--drain-timeout", "1h")
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	// A request whose body never comes holds the drain up, once it is being read.
	fmt.Fprintf(conn, "POST /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"+
		"Expect: 100-continue\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "100 Continue")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.awaitLog(t, "stopping")
	require.Equal(t, -1, p.end(t, syscall.SIGTERM))
}
