package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// block is a fenced block of commands and what it prints.
type block struct {
	line int
	code string
	want string
}

// blocks reads a document's blocks marked sh, each with the block marked text that follows it.
func blocks(t *testing.T, name string) (out []block) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	into := (*string)(nil)
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "```sh":
			out = append(out, block{line: i + 1})
			into = &out[len(out)-1].code
		case line == "```text":
			into = &out[len(out)-1].want
		case line == "```":
			into = nil
		case into != nil:
			*into += line + "\n"
		}
	}
	return out
}

// mark begins the output of a block in that of all.
const mark = "--- block "

// patient has a walk wait for longer than a reader would, where a slow machine may take so long. Waits end when what
// they are for is there.
func patient(code string) string {
	return strings.NewReplacer("--wait 10s", "--wait 150s", "--wait 30s", "--wait 150s", "curl -sNm2 ", "live ",
		"&wait=1s$as", "&wait=5s$as", "earliest&max_records=1", "earliest&max_records=1"+longWait).Replace(code)
}

const longWait = "&wait=60s"

// live is curl for a stream that is cut after seven lines, however late they come.
const live = `live() {
  curl -sNm 60 "$@" > live-got & local c=$!
  until [ "$(wc -l < live-got)" -ge 7 ] || ! kill -0 $c; do sleep 0.1; done
  kill $c; wait $c; cat live-got
} 2> /dev/null
`

// The walks of the documents, pasted into bash from the first block to the last, print what the documents say.
func TestWalks(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the walks are written with %s: install it", tool)
		}
	}
	for _, name := range []string{"acks", "groups", "transactions", "compaction", "schemas"} {
		t.Run(name, func(t *testing.T) { walk(t, "docs/"+name+".md") })
	}
}

// walk pastes a document's blocks into one bash, on three ports of its own. More are pairs of what else is replaced.
func walk(t *testing.T, name string, more ...string) {
	t.Helper()
	walk := blocks(t, "../../"+name)
	require.Greater(t, len(walk), 5)
	first := freePorts(t, 3)
	ports := append(more, "$((8081 + ", fmt.Sprintf("$((%d + ", first-1), "--port 8082", fmt.Sprint("--port ", first))
	for i := range 3 {
		ports = append(ports, fmt.Sprint("127.0.0.1:", 8082+i), fmt.Sprint("127.0.0.1:", first+i))
	}
	var script strings.Builder
	script.WriteString(live)
	for _, b := range walk {
		fmt.Fprintf(&script, "echo '%s'$SECONDS\n%s", mark, strings.NewReplacer(ports...).Replace(patient(b.code)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	dir := t.TempDir()
	t.Cleanup(func() { killAll(t, dir) })
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(script.String())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, fmt.Sprint("MILLRACE_URL=http://127.0.0.1:", first)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with what runs behind it
	start := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%d blocks in %v", len(walk), time.Since(start).Round(time.Millisecond))
	if err != nil {
		t.Errorf("bash: %v", err)
	}
	parts := strings.Split(string(out), mark)[1:]
	for i, b := range walk {
		if i >= len(parts) {
			t.Fatalf("%s:%d: the walk ended before this block", name, b.line)
		}
		at, got, _ := strings.Cut(parts[i], "\n")
		t.Logf("%s:%d: after %s s", name, b.line, at)
		got = strings.NewReplacer(append(back(ports), longWait, "")...).Replace(got)
		if !matches(b.want, got) {
			t.Errorf("%s:%d:\n%s\nwant:\n%s\ngot:\n%s", name, b.line, b.code, b.want, got)
		}
	}
}

// back gives the pairs of a replacer that undoes what those of another do.
func back(pairs []string) []string {
	undo := slices.Clone(pairs)
	slices.Reverse(undo)
	return undo
}

// killAll ends the nodes that the walk left, and shows their logs if it failed.
func killAll(t *testing.T, dir string) {
	pids, err := filepath.Glob(filepath.Join(dir, "*", "pid-*"))
	require.NoError(t, err)
	for _, name := range pids {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(command), "data-") { // it is still the node
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			log, _ := os.ReadFile(strings.Replace(name, "pid-", "log-", 1))
			t.Logf("%s:\n%s", filepath.Base(name), log)
		}
	}
}

// freePorts gives the first of n ports of loopback in a row that are free. They lie below those that the system gives
// to clients, so that they stay free until they are used.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for base := 20000 + os.Getpid()%800*15; base < 32000; base += n {
		if portsFree(base, n) {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func portsFree(base, n int) bool {
	for i := range n {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", base+i))
		if err != nil {
			return false
		}
		defer l.Close()
	}
	return true
}
