package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

// A process that is killed again and again under load, also while it starts, holds to what it told its clients, and its
// files are sound. Without syncs the page cache keeps what a process that dies has written.
func TestKilledUnderLoad(t *testing.T) {
	for _, policy := range []string{"ack", "interval", "never"} {
		t.Run(policy, func(t *testing.T) {
			dir, set := t.TempDir(), "log.sync="+policy
			p := serve(t, dir, "--set", set)
			m := servertest.NewTurmoil(t, p.url)
			for range 5 {
				m.AwaitAcks(200)
				require.Equal(t, -1, p.end(t, syscall.SIGKILL))
				p = serve(t, dir, "--set", set)
				require.Equal(t, -1, p.end(t, syscall.SIGKILL)) // before all it recovered is on disk
				p = serve(t, dir, "--set", set)
				m.Moved(p.url)
			}
			m.AwaitAcks(200)
			require.Greater(t, m.Check(), 1000)
			require.Zero(t, p.end(t, syscall.SIGTERM))
			out, stderr, code := p.run(t, "", "log", "verify", dir)
			require.Zero(t, code, stderr)
			require.Contains(t, out, "no damage")
		})
	}
}

// A node whose clients use up its files refuses what it cannot store, loses nothing, and goes on when they are gone.
func TestFewOpenFiles(t *testing.T) {
	p := serveBy(t, exec.Command("sh", "-c", `ulimit -n 80; exec millrace "$@"`, "sh"), t.TempDir())
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	put := func(topic string) int {
		resp, err := client.Post(p.url+"/v1/topics/"+topic+"/records", "text/plain", strings.NewReader("v"))
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		if resp.StatusCode != http.StatusOK {
			require.Equal(t, http.StatusInsufficientStorage, resp.StatusCode, "%s", body)
			require.Contains(t, string(body), `"outcome":"failed"`)
			require.Contains(t, string(body), "too many open files")
		}
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, put("open"))
	var others []net.Conn
	for range 100 { // those for which no file is left wait in the kernel's queue
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		require.NoError(t, err)
		defer c.Close()
		others = append(others, c)
	}
	start, refused := time.Now(), 0
	for put(fmt.Sprint("topic", refused)) == http.StatusOK { // until the node has accepted enough of the others
		require.Less(t, time.Since(start), 2*time.Minute)
		refused++
	}
	require.Equal(t, http.StatusOK, put("open"), "a log that is open needs no file")
	for _, c := range others {
		c.Close()
	}
	for put(fmt.Sprint("topic", refused)) != http.StatusOK {
		require.Less(t, time.Since(start), 4*time.Minute)
	}
	require.Equal(t, http.StatusOK, put("open"))
	var metrics []byte
	require.Eventually(t, func() bool { // there may be no file yet for one more connection
		resp, err := http.Get(p.url + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		metrics, err = io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
	require.Contains(t, string(metrics), "millrace_storage_offline_logs 0")
	http.DefaultClient.CloseIdleConnections()
	client.CloseIdleConnections()
	require.Zero(t, p.end(t, syscall.SIGTERM))
}
