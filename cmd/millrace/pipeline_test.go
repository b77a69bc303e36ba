package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/pgtest"
)

// The demo in examples/postgres-pipeline does all that it says and leaves nothing behind, in databases that it is given
// and with a server that it starts itself.
func TestPipeline(t *testing.T) {
	srv := pgtest.Start(t)
	for _, tool := range []string{"bash", "psql", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the demo is written with %s: install it", tool)
		}
	}
	t.Run("given databases", func(t *testing.T) {
		shop, warehouse := srv.Database(t), srv.Database(t)
		cut := func(url string) string { // what follows the database is psql's, and the demo wants none
			url, _, _ = strings.Cut(url, "?")
			return url
		}
		runPipeline(t, "SHOP_URL="+cut(shop), "WAREHOUSE_URL="+cut(warehouse))
		for _, url := range []string{shop, warehouse} {
			var left int
			require.NoError(t, srv.Connect(t, url).QueryRow(t.Context(), `SELECT
				(SELECT count(*) FROM pg_namespace WHERE nspname IN ('pipeline', 'connect')) +
				(SELECT count(*) FROM pg_publication) +
				(SELECT count(*) FROM pg_replication_slots WHERE database = current_database())`).Scan(&left))
			require.Zero(t, left, "the demo left something behind")
		}
		out := runPipeline(t, "SHOP_URL="+cut(shop), "WAREHOUSE_URL="+cut(warehouse))
		require.Contains(t, out, "the two tables are equal", "it cannot be run twice")
	})
	if os.Getenv(pgtest.Variable) == "" {
		t.Run("a server of its own", func(t *testing.T) { runPipeline(t) })
	}
}

func runPipeline(t *testing.T, environ ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../examples/postgres-pipeline/run.sh")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=/tmp"}, environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, want := range []string{`{"id":3}  {"shop.pipeline.orders.Value":{"id":3,"customer":{"string":"Cyd"},`,
		"| a gift", "the two tables are equal", "deleted connector pipeline-source"} {
		require.Contains(t, string(out), want)
	}
	require.Equal(t, 2, strings.Count(string(out), "| Bob "), "row 2 is there before, and nowhere after:\n%s", out)
	return string(out)
}
