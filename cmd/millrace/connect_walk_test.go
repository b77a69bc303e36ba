package main

import (
	"os/exec"
	"testing"

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
	walk(t, "docs/connect.md",
		"PGPORT=5432 PGUSER=postgres PGPASSWORD=secret", "PGPORT="+srv.Port()+" PGUSER=postgres PGPASSWORD='"+pgtest.Password+"'",
		"127.0.0.1:5432", srv.Host()+":"+srv.Port(), `"5432"`, `"`+srv.Port()+`"`)
}
