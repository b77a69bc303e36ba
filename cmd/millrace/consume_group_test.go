package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Members of a group share the partitions; one that is interrupted leaves, and what it printed is not printed again.
func TestConsumeGroup(t *testing.T) {
	p := serve(t, t.TempDir(), "--set", "offsets.topic.num.partitions=3")
	for _, topic := range []string{"orders", "payments"} {
		_, stderr, code := p.run(t, "", "topic", "create", topic, "--partitions", "3")
		require.Zero(t, code, stderr)
	}
	var in strings.Builder
	for i := range 100 {
		fmt.Fprintf(&in, "%d\n", i)
	}
	_, stderr, code := p.run(t, in.String(), "produce", "orders", "--batch", "10")
	require.Zero(t, code, stderr)
	_, stderr, code = p.run(t, in.String(), "produce", "payments", "--batch", "10")
	require.Zero(t, code, stderr)

	out, stderr, code := p.run(t, "", "consume", "orders,payments", "--group", "g", "--count", "50")
	require.Zero(t, code, stderr)
	require.Equal(t, 50, strings.Count(out, "\n"))

	cmd := exec.Command("millrace", "consume", "orders,payments", "--group", "g", "--member", "m", "--url", p.url,
		"-o", "json")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(pipe)
	for range 150 {
		require.True(t, lines.Scan())
		require.Contains(t, lines.Text(), `"topic":`)
	}
	// It commits what it printed, and leaves, whenever it is interrupted.
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.False(t, lines.Scan(), lines.Text())
	require.NoError(t, cmd.Wait())

	_, stderr, code = p.run(t, "last\n", "produce", "orders")
	require.Zero(t, code, stderr)
	start := time.Now()
	out, stderr, code = p.run(t, "", "consume", "orders,payments", "--group", "g", "--count", "1")
	require.Zero(t, code, stderr)
	require.Equal(t, "last\n", out)
	require.Less(t, time.Since(start), 40*time.Second, "the one before left, and its session did not end")
}

func TestConsumeGroupUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--group", "g", "--partition", "0"}, {"--group", "g", "--to-end"}, {"--group", "g", "--from", "15m"},
		{"--member", "m"},
	} {
		_, stderr, code := command(t, "", append([]string{"consume", "orders"}, args...)...)
		require.Equal(t, exitUsage, code, stderr)
	}
}
