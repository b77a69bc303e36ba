package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/pgtest"
)

// docs/connect.md, pasted into bash from the first block to the last, prints what it says. The server is its own:
// databases, roles and slots have the names that they have there.
func TestConnectWalk(t *testing.T) {
	srv := pgtest.New(t, pgtest.Options{})
	for _, tool := range []string{"bash", "curl", "psql"} {
		_, err := exec.LookPath(tool)
		require.NoError(t, err, "the walk is written with %s: install it", tool)
	}
	address := []string{"127.0.0.1:5432", srv.Host() + ":" + srv.Port(), `"5432"`, `"` + srv.Port() + `"`}
	walk(t, "docs/connect.md", append(address, "PGPORT=5432 PGUSER=postgres PGPASSWORD=secret",
		"PGPORT="+srv.Port()+" PGUSER=postgres PGPASSWORD='"+pgtest.Password+"'")...)

	// The two lines of curl in the README make a table of a table.
	srv.Exec(t, srv.URL(), "CREATE DATABASE shop", "CREATE DATABASE warehouse")
	shop, warehouse := strings.Replace(srv.URL(), "/postgres?", "/shop?", 1),
		strings.Replace(srv.URL(), "/postgres?", "/warehouse?", 1)
	srv.Exec(t, shop, "CREATE TABLE orders (id int PRIMARY KEY, total numeric)", "INSERT INTO orders VALUES (1, 12.5)")
	p := serve(t, t.TempDir())
	curls := blocks(t, "../../README.md")
	require.Len(t, curls, 1)
	script := strings.NewReplacer(append(address, "http://127.0.0.1:8082", p.url, "127.0.0.1:8082",
		strings.TrimPrefix(p.url, "http://"), `"secret"`, `"`+pgtest.Password+`"`)...).Replace(curls[0].code)
	out, err := exec.CommandContext(t.Context(), "bash", "-ec", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "error_code")
	srv.Exec(t, shop, "INSERT INTO orders VALUES (2, 3)")
	c := srv.Connect(t, warehouse)
	require.Eventually(t, func() bool {
		var rows int
		err := c.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&rows)
		return err == nil && rows == 2
	}, 2*time.Minute, 50*time.Millisecond, "%s", out)
}
