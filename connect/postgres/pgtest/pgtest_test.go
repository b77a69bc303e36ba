package pgtest_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestDatabasesAreApart(t *testing.T) {
	srv := pgtest.Start(t)
	one, two := srv.Database(t), srv.Database(t)
	srv.Exec(t, one, "CREATE TABLE t (id int)")
	srv.Exec(t, two, "CREATE TABLE t (id int)")
	require.NotEqual(t, one, two)
	require.Same(t, srv, pgtest.Start(t))
}

func TestDatabaseGoesWithItsSlots(t *testing.T) {
	srv := pgtest.Start(t)
	t.Run("with slot", func(t *testing.T) {
		u := srv.Database(t)
		srv.Exec(t, u, "SELECT pg_create_logical_replication_slot('pgtest_slot', 'pgoutput')")
	})
	var n int
	require.NoError(t, srv.Connect(t, srv.URL()).QueryRow(t.Context(),
		"SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'pgtest_slot'").Scan(&n))
	require.Zero(t, n)
}

func TestRestartAndConfig(t *testing.T) {
	srv := pgtest.New(t, pgtest.Options{Settings: map[string]string{"work_mem": "5MB"}})
	u := srv.Database(t)
	srv.Exec(t, u, "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
	srv.Restart(t, pgtest.Immediate)
	show := func(name string) (value string) {
		require.NoError(t, srv.Connect(t, u).QueryRow(t.Context(), "SHOW "+name).Scan(&value))
		return value
	}
	var n int
	require.NoError(t, srv.Connect(t, u).QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n))
	require.Equal(t, 1, n)
	require.Equal(t, "5MB", show("work_mem"))
	require.Equal(t, "logical", show("wal_level"))
	t.Run("changed", func(t *testing.T) {
		srv.Config(t, "wal_level", "replica")
		require.Equal(t, "replica", show("wal_level"))
	})
	require.Equal(t, "logical", show("wal_level"))
}

func TestKillBackends(t *testing.T) {
	srv := pgtest.Start(t)
	u := srv.Database(t)
	c := srv.Connect(t, u)
	require.Equal(t, 1, srv.KillBackends(t, u))
	_, err := c.Exec(t.Context(), "SELECT 1")
	require.Error(t, err)
}

func TestRole(t *testing.T) {
	srv := pgtest.Start(t)
	u := srv.Database(t)
	name, ru := srv.Role(t, u, "LOGIN REPLICATION")
	var got string
	require.NoError(t, srv.Connect(t, ru).QueryRow(t.Context(), "SELECT current_user").Scan(&got))
	require.Equal(t, name, got)
	_, err := pgx.Connect(t.Context(), strings.Replace(ru, pgtest.Password[:2], "no", 1))
	require.ErrorContains(t, err, "28P01")
}

// A test process that panics leaves no server behind.
func TestPanicLeavesNothing(t *testing.T) {
	if os.Getenv("PGTEST_PANIC") == "1" {
		srv := pgtest.Start(t)
		os.Stdout.WriteString("listens " + srv.Port() + "\n")
		panic("on purpose")
	}
	srv := pgtest.Start(t)
	if os.Getenv(pgtest.Variable) != "" {
		t.Skip("SKIPPED, not passed: the server is not ours to end")
	}
	require.NotEmpty(t, srv.Port())
	cmd := exec.Command(os.Args[0], "-test.run=^TestPanicLeavesNothing$")
	cmd.Env = append(os.Environ(), "PGTEST_PANIC=1")
	out, err := cmd.Output()
	require.Error(t, err)
	port := ""
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		if p, ok := strings.CutPrefix(s.Text(), "listens "); ok {
			port = p
		}
	}
	require.NotEmpty(t, port, string(out))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return
		}
		c.Close()
		select {
		case <-ctx.Done():
			require.Fail(t, "the server still listens")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
