package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestMain makes the test binary answer to the name millrace: scripts, the README's tour and the acceptance tests
// run the real command in processes of its own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"millrace": func() { os.Exit(run()) }})
}

// process is a `millrace serve` that a test started.
type process struct {
	cmd   *exec.Cmd
	url   string
	log   *bytes.Buffer
	lines chan string
}

// logRoom is how many lines of log a process may write that nobody reads meanwhile.
const logRoom = 100_000

// serve starts a node on a free port and returns when it says where it is. The node is ended with the test.
func serve(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return serveBy(t, exec.Command("millrace"), dir, args...)
}

// serveBy is serve by a command of its own, which starts millrace with the arguments that are added to it.
func serveBy(t *testing.T, cmd *exec.Cmd, dir string, args ...string) *process {
	t.Helper()
	cmd.Args = append(cmd.Args, "serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--log-format", "json")
	cmd.Args = append(cmd.Args, args...)
	p := &process{cmd: cmd, log: new(bytes.Buffer)}
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		for line := range p.lines {
			p.log.WriteString(line + "\n")
		}
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("log of the node:\n%s", p.log)
		}
	})
	p.lines = make(chan string, logRoom)
	go p.follow(stderr)
	p.url = p.awaitLog(t, "node started")
	return p
}

// follow reads the node's log until the process ends.
func (p *process) follow(stderr io.Reader) {
	defer close(p.lines)
	for s := bufio.NewScanner(stderr); s.Scan(); {
		p.lines <- s.Text()
	}
}

// awaitLog reads the log up to an entry whose message begins so, and returns the URL in it.
func (p *process) awaitLog(t *testing.T, msg string) string {
	t.Helper()
	for line := range p.lines {
		p.log.WriteString(line + "\n")
		var entry struct{ Msg, URL string }
		if json.Unmarshal([]byte(line), &entry) == nil && strings.HasPrefix(entry.Msg, msg) {
			return entry.URL
		}
	}
	t.Fatalf("the node ended before it said %q:\n%s", msg, p.log)
	return ""
}

// end sends a signal and returns the exit code, or -1 when the signal itself ended the process.
func (p *process) end(t *testing.T, sig os.Signal) int {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(sig))
	for line := range p.lines { // its log ends with it
		p.log.WriteString(line + "\n")
	}
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// get returns the status and body of a path.
func (p *process) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(p.url + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// run runs a client command against the node.
func (p *process) run(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "millrace", args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "MILLRACE_URL=" + p.url}
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Scripts in testdata/script say what commands print and how they exit, with a node of their own each where they
// need one.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"node":   startNode,
			"stop":   stopNode,
			"exits":  exits,
			"damage": flip,
		},
	})
}

// startNode is the script command `node [FLAG...]`: it starts a node on $WORK/data and points MILLRACE_URL at it.
func startNode(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("unsupported: ! node")
	}
	flags := []string{"serve", "--listen", "127.0.0.1:0", "--data-dir", ts.MkAbs("data"), "--log-format", "json"}
	cmd := exec.Command("millrace", append(flags, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Setenv("NODE_PID", strconv.Itoa(cmd.Process.Pid))
	ts.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var entry struct{ Msg, URL string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "node started" {
			ts.Setenv("MILLRACE_URL", entry.URL)
			go io.Copy(io.Discard, stderr) // ends with the process
			return
		}
	}
	ts.Fatalf("the node did not start")
}

// stopNode is the script command `stop`: it stops the script's node as an operator would, and waits for its lock to go.
func stopNode(ts *testscript.TestScript, neg bool, args []string) {
	pid, err := strconv.Atoi(ts.Getenv("NODE_PID"))
	ts.Check(err)
	node, err := os.FindProcess(pid)
	ts.Check(err)
	ts.Check(node.Signal(syscall.SIGTERM))
	lock, err := os.Open(ts.MkAbs("data/.lock"))
	ts.Check(err)
	defer lock.Close()
	ts.Check(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
}

// exits is the script command `exits CODE COMMAND...`.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%v exits with %d, want %d", args[1:], got, want)
	}
}

// flip is the script command `damage FILE`: it changes one byte in the middle of a batch.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	text := []byte(ts.ReadFile(args[0]))
	text[len(text)-3] ^= 1
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text, 0o600))
}

// What a killed node acknowledged is there when it starts again, in the same order, and the log's files are sound.
func TestKilledNodeKeepsWhatItAcknowledged(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	var in strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&in, "record %d\n", i)
	}
	_, stderr, code := p.run(t, in.String(), "produce", "orders", "--batch", "50")
	require.Zero(t, code, stderr)
	require.Equal(t, -1, p.end(t, syscall.SIGKILL))

	p = serve(t, dir)
	out, stderr, code := p.run(t, "", "consume", "orders", "--to-end")
	require.Zero(t, code, stderr)
	require.Equal(t, in.String(), out)
	require.Zero(t, p.end(t, syscall.SIGTERM))

	out, stderr, code = p.run(t, "", "log", "verify", dir)
	require.Zero(t, code, stderr)
	require.Contains(t, out, "1000 records: no damage")
}

// SIGTERM ends a node within its drain time, also with a stream open, and says so to the stream.
func TestSigtermDrains(t *testing.T) {
	p := serve(t, t.TempDir())
	status, _ := p.get(t, "/health/ready")
	require.Equal(t, http.StatusOK, status)
	_, stderr, code := p.run(t, "hello\n", "produce", "orders")
	require.Zero(t, code, stderr)

	records := p.url + "/v1/topics/orders/records?offset=earliest"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, records, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	for {
		line, err := stream.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, "data:") {
			break
		}
	}
	require.Zero(t, p.end(t, syscall.SIGTERM))
	rest, err := io.ReadAll(stream)
	require.NoError(t, err, "the stream was cut instead of ended")
	require.Contains(t, string(rest), `"reason":"drain"`)
}

// A port in use, or a data directory in use, is an error that says so, at once.
func TestSecondNodeOnTheSameDataIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	_, stderr, code := p.run(t, "", "serve", "--listen", "127.0.0.1:0", "--data-dir", dir)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "lock")
	_, stderr, code = p.run(t, "", "serve", "--listen", strings.TrimPrefix(p.url, "http://"), "--data-dir", t.TempDir())
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is another node running there?")
}
