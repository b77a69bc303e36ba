package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server"
	"millrace/server/servertest"
)

// Damage to a data directory is told when the node starts or when the damaged part is read, or else it is none: no
// topic looks empty or shorter than it is, and nothing panics.
func TestDamagedDataDirectory(t *testing.T) {
	clean, killed := t.TempDir(), ""
	n := servertest.Start(t, servertest.Options{Change: func(c *server.Config) {
		c.Broker = map[string]string{"replica.high.watermark.checkpoint.interval.ms": "1"}
	}})
	body := `{"name":"t","configs":{"internal.segment.bytes":"500"}}`
	status, text := post(t, n, "/v1/topics", "application/json", body)
	require.Equal(t, http.StatusCreated, status, text)
	for i := range 20 {
		produce(t, n, "t", fmt.Sprint(i))
	}
	awaitFile(t, filepath.Join(n.Dir(), "replication-offset-checkpoint"), "t 0 20\n")
	await(t, "the directory is copied", func() bool { // as it lies there when the process dies
		killed = t.TempDir() // a checkpoint may be replaced under the copy, which is made again then
		return os.CopyFS(killed, os.DirFS(n.Dir())) == nil
	})
	n.Stop()
	require.NoError(t, os.CopyFS(clean, os.DirFS(n.Dir())))

	const (
		starts  = ""  // the node starts, and tells of what is missing
		untried = "-" // what retention does looks the same
	)
	cases := []struct {
		name   string
		damage func(d damaged)
		clean  string // what the refusal to start says
		killed string
	}{
		{"metadata gone", func(d damaged) { d.remove("metadata") }, "put the folder back", "put the folder back"},
		{"metadata cut", func(d damaged) {
			d.change("metadata/log/*.log", func(b []byte) []byte { return b[:300] })
		}, "lost entries", "lost entries"},
		{"metadata flipped", func(d damaged) { d.flip("metadata/log/*.log", 80) }, "damaged", "damaged"},
		{"metadata log gone", func(d damaged) { d.remove("metadata/log") }, "lost entries", "lost entries"},
		{"metadata vote gone", func(d damaged) { d.remove("metadata/vote") }, "lost entries", "lost entries"},
		{"metadata vote rubbish", func(d damaged) { d.rubbish("metadata/vote") }, "lost entries", "lost entries"},
		{"metadata mark gone", func(d damaged) { d.remove("metadata/applied") }, starts, starts},
		{"metadata as it was", func(d damaged) { d.put("metadata/wal/x") }, "older version", "older version"},
		{"identity rubbish", func(d damaged) { d.rubbish("meta.properties") }, "meta.properties", "meta.properties"},
		{"recovery points gone", func(d damaged) { d.remove("recovery-point-*") }, "recovery-point", starts},
		{"recovery points rubbish", func(d damaged) { d.rubbish("recovery-point-*") }, "recovery-point", starts},
		{"log starts gone", func(d damaged) { d.remove("log-start-*") }, "log-start", starts},
		{"topic ids gone", func(d damaged) { d.remove("topic-id-*") }, "topic-id", starts},
		{"marker rubbish", func(d damaged) { d.rubbish(".kafka_cleanshutdown") }, starts, starts},
		{"folder gone", func(d damaged) { d.remove("t-0") }, starts, starts},
		{"indexes gone", func(d damaged) { d.remove("t-0/*index") }, starts, starts},
		{"indexes rubbish", func(d damaged) { d.rubbish("t-0/*index") }, starts, starts},
		{"snapshots rubbish", func(d damaged) { d.rubbish("t-0/*.snapshot") }, starts, starts},
		{"batch flipped", func(d damaged) { d.flip("t-0/*.log", 70) }, starts, starts},
		{"batch length flipped", func(d damaged) { d.flip("t-0/*.log", 10) }, starts, starts},
		{"last segment gone", func(d damaged) { d.removeLast("t-0/*.log") }, starts, starts},
		{"first segment gone", func(d damaged) { d.removeFirst("t-0/*.log") }, starts, untried},
		{"foreign files", func(d damaged) {
			d.put("notes.txt")
			d.put("t-0/notes.txt")
			d.put("old backup/file")
			d.put("other-7/file")
			d.put("t-0.0123-delete/00000000000000000000.log")
		}, starts, starts},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			startDamaged(t, clean, tc.damage, tc.clean)
			if tc.killed != untried {
				startDamaged(t, killed, tc.damage, tc.killed)
			}
		})
	}
}

// startDamaged starts a node on a damaged copy of a directory.
func startDamaged(t *testing.T, from string, damage func(damaged), refusal string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	damage(damaged{t, dir})
	var log bytes.Buffer
	cfg := server.DefaultConfig()
	cfg.Listen, cfg.DataDir = "127.0.0.1:0", dir
	cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	n, err := server.Open(cfg)
	if refusal != "" {
		require.ErrorContains(t, err, refusal)
		return
	}
	require.NoError(t, err)
	values, whole := readValues(t, n.URL())
	_ = n.Close() // a log that cannot be used cannot be closed in order either
	if whole && len(values) < 20 {
		require.Contains(t, log.String(), "WARN", "records are missing and nobody is told: %v", values)
	}
	for i, v := range values {
		require.Equal(t, values[0]+i, v)
	}
	require.NotContains(t, log.String(), "panic")
}

// readValues reads a topic from the start; whole says that it met no error.
func readValues(t *testing.T, url string) (values []int, whole bool) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for next := "offset=earliest"; ; {
		resp, err := client.Get(url + "/v1/topics/t/records?" + next)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		var p struct {
			Records []struct{ Value int }
			Next    string
		}
		require.NoError(t, json.Unmarshal(text, &p), "%s", text)
		if resp.StatusCode != http.StatusOK || len(p.Records) == 0 {
			return values, resp.StatusCode == http.StatusOK
		}
		for _, r := range p.Records {
			values = append(values, r.Value)
		}
		next = "from=" + p.Next
	}
}

// awaitFile returns when a file ends so.
func awaitFile(t *testing.T, name, end string) {
	t.Helper()
	await(t, name+" ends so", func() bool {
		b, err := os.ReadFile(name)
		return err == nil && strings.HasSuffix(string(b), end)
	})
}

// damaged is a data directory that a test damages. Names are patterns; what matches none is no error, as some files are
// there only after a clean stop.
type damaged struct {
	t   *testing.T
	dir string
}

func (d damaged) match(pattern string) []string {
	d.t.Helper()
	names, err := filepath.Glob(filepath.Join(d.dir, pattern))
	require.NoError(d.t, err)
	return names
}

func (d damaged) remove(pattern string) {
	for _, name := range d.match(pattern) {
		require.NoError(d.t, os.RemoveAll(name))
	}
}

func (d damaged) removeFirst(pattern string) { require.NoError(d.t, os.Remove(d.match(pattern)[0])) }

func (d damaged) removeLast(pattern string) {
	names := d.match(pattern)
	require.NoError(d.t, os.Remove(names[len(names)-1]))
}

func (d damaged) change(pattern string, f func([]byte) []byte) {
	for _, name := range d.match(pattern) {
		b, err := os.ReadFile(name)
		require.NoError(d.t, err)
		require.NoError(d.t, os.WriteFile(name, f(b), 0o600))
	}
}

// flip flips a bit in the first file that matches.
func (d damaged) flip(pattern string, at int) {
	name := d.match(pattern)[0]
	b, err := os.ReadFile(name)
	require.NoError(d.t, err)
	b[at] ^= 64
	require.NoError(d.t, os.WriteFile(name, b, 0o600))
}

func (d damaged) rubbish(pattern string) {
	d.change(pattern, func([]byte) []byte { return []byte("rubbish of 24 bytes here\n") })
}

func (d damaged) put(name string) {
	path := filepath.Join(d.dir, name)
	require.NoError(d.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(d.t, os.WriteFile(path, []byte("x"), 0o600))
}
