package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stopTime is how long the three nodes of one process may take to stop.
const stopTime = 45 * time.Second

// startDev starts `millrace dev` and returns when it greets. Its nodes are those of the ports from first on.
func startDev(t *testing.T, first int, dir string, more ...string) *process {
	t.Helper()
	args := append([]string{"dev", "--port", fmt.Sprint(first), "--data-dir", dir, "--log-format", "text"}, more...)
	cmd := exec.Command("millrace", args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{cmd: cmd, url: fmt.Sprint("http://127.0.0.1:", first), log: &log, lines: make(chan string, logRoom)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range p.lines { // until it has ended
		}
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of the nodes:\n%s", &log)
		}
	})
	go p.follow(out)
	for line := range p.lines {
		if strings.Contains(line, "millrace cluster health") { // the last of the greeting
			return p
		}
	}
	_ = cmd.Wait()
	t.Fatalf("it ended before it was ready:\n%s", &log)
	return nil
}

// at is the process as the client of another of its nodes.
func (p *process) at(first, i int) *process {
	return &process{url: fmt.Sprint("http://127.0.0.1:", first+i)}
}

// The cluster in one process comes up, serves at all its ports, stops soon, and goes on with its data.
func TestDev(t *testing.T) {
	dir, first := t.TempDir(), freePorts(t, devNodes)
	for run := range 2 {
		p := startDev(t, first, dir, "--set", "connect.config.providers.env.allowlist.pattern=HOME|NONE")
		for i := range devNodes {
			node := p.at(first, i)
			out, stderr, code := node.run(t, "", "health")
			require.Zero(t, code, stderr)
			require.JSONEq(t, `{"status":"ready"}`, out)
			_, stderr, code = node.run(t, "", "cluster", "health", "--require", "ok", "--wait", "2m")
			require.Zero(t, code, stderr)
			_, stderr, code = node.run(t, fmt.Sprintf("run %d node %d\n", run, i), "produce", "orders")
			require.Zero(t, code, stderr)
		}
		want := ""
		for r := range run + 1 {
			for i := range devNodes {
				want += fmt.Sprintf("run %d node %d\n", r, i)
			}
		}
		for i := range devNodes {
			out, stderr, code := p.at(first, i).run(t, "", "consume", "orders", "--to-end")
			require.Zero(t, code, stderr)
			require.Equal(t, want, out)
		}
		out, stderr, code := p.run(t, "", "topic", "describe", "orders")
		require.Zero(t, code, stderr)
		require.Regexp(t, `min\.insync\.replicas +2 `, out)
		out, stderr, code = p.run(t, "", "connector", "validate", "c", "--set", "connector.class=JdbcSink",
			"--set", "table.name.format=${env:HOME}", "--set", "connection.user=${env:NONE}")
		require.Equal(t, int(exitFailed), code, stderr)
		require.Contains(t, out, "${env:NONE}")
		require.NotContains(t, out, "${env:HOME}")

		start := time.Now()
		require.Zero(t, p.end(t, syscall.SIGTERM))
		t.Logf("stopped in %v", time.Since(start).Round(time.Millisecond))
		require.Less(t, time.Since(start), stopTime)
	}
}

func TestDevRefuses(t *testing.T) {
	p := serve(t, t.TempDir())
	port := strings.TrimPrefix(p.url, "http://127.0.0.1:")
	_, stderr, code := p.run(t, "", "dev", "--port", port, "--data-dir", t.TempDir())
	require.Equal(t, int(exitFailed), code)
	require.Contains(t, stderr, "start node 1: ")
	require.Contains(t, stderr, "is another node running there?")
	for _, args := range [][]string{{"--port", "0"}, {"--port", "65533"}, {"--set", "no.such.setting=1"}} {
		_, stderr, code := p.run(t, "", append([]string{"dev", "--data-dir", t.TempDir()}, args...)...)
		require.Equal(t, int(exitUsage), code, stderr)
	}
}

// A node that waits for its cluster is not healthy and says what it waits for; where there is no node, nobody is.
func TestHealth(t *testing.T) {
	first := freePorts(t, 3)
	secret := t.TempDir() + "/secret"
	require.NoError(t, os.WriteFile(secret, []byte("what only the nodes know"), 0o600))
	voters := fmt.Sprintf("1=http://127.0.0.1:%d,2=http://127.0.0.1:%d,3=http://127.0.0.1:%d", first, first+1, first+2)
	cmd := exec.Command("millrace", "serve", "--node-id", "1", "--listen", fmt.Sprint("127.0.0.1:", first),
		"--data-dir", t.TempDir(), "--voters", voters, "--cluster-secret-file", secret)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p := &process{url: fmt.Sprint("http://127.0.0.1:", first)}
	var stderr string
	for start := time.Now(); !strings.Contains(stderr, "a majority of the voters"); {
		var code int
		_, stderr, code = p.run(t, "", "health")
		require.Less(t, time.Since(start), time.Minute, stderr)
		require.Contains(t, []int{int(exitFailed), int(exitUnreachable)}, code, stderr)
	}
	require.Contains(t, stderr, "is not ready: ")

	_, stderr, code := p.at(first, 1).run(t, "", "health")
	require.Equal(t, int(exitUnreachable), code)
	require.Contains(t, stderr, "no node answers at ")
}
