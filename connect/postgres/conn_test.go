package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"millrace/connect/postgres"
	"millrace/connect/postgres/pgtest"
)

func TestParseURL(t *testing.T) {
	t.Setenv("PGPASSWORD", "from the environment")
	t.Setenv("PGHOST", "elsewhere")
	t.Setenv("PGTZ", "Asia/Tokyo")
	t.Setenv("PGOPTIONS", "-c DateStyle=German")
	t.Setenv("PGCHANNELBINDING", "require")
	for _, raw := range []string{
		"jdbc:postgresql://db.example:5433/shop?user=app&password=p%40ss&currentSchema=sales&ApplicationName=mill&ssl=false",
		"postgres://app:p%40ss@db.example:5433/shop?sslmode=disable&currentSchema=sales&application_name=mill",
		"postgresql://app:p%40ss@db.example:5433/shop?sslmode=disable&currentSchema=sales&application_name=mill",
	} {
		c, err := postgres.ParseURL(raw, "", "", nil)
		require.NoError(t, err)
		require.Equal(t, "db.example", c.Host)
		require.EqualValues(t, 5433, c.Port)
		require.Equal(t, "shop", c.Database)
		require.Equal(t, "app", c.User)
		require.Equal(t, "p@ss", c.Password)
		require.Equal(t, map[string]string{"search_path": "sales", "application_name": "mill", "client_encoding": "UTF8",
			"DateStyle": "ISO", "TimeZone": "UTC", "extra_float_digits": "3"}, c.RuntimeParams)
		require.Equal(t, "prefer", c.ChannelBinding)
		require.Nil(t, c.TLSConfig)
	}
	c, err := postgres.ParseURL("jdbc:postgresql://a:1,b,[::1]:7/x?ssl=true", `o'r\k`, `quo'te\`, nil)
	require.NoError(t, err)
	require.Equal(t, `o'r\k`, c.User)
	require.Equal(t, `quo'te\`, c.Password)
	require.Equal(t, "a", c.TLSConfig.ServerName)
	require.False(t, c.TLSConfig.InsecureSkipVerify)
	require.Len(t, c.Fallbacks, 2)
	require.EqualValues(t, 5432, c.Fallbacks[0].Port)
	require.Equal(t, "::1", c.Fallbacks[1].Host)
	c, err = postgres.ParseURL("jdbc:postgresql:shop", "me", "", map[string]string{"sslmode": "require"})
	require.NoError(t, err)
	require.Equal(t, "localhost", c.Host)
	require.Empty(t, c.Password)
	require.NotNil(t, c.TLSConfig)
}

func TestParseURLHidesPasswords(t *testing.T) {
	for _, raw := range []string{
		"postgres://u:s3cret@h:port/db", "postgres://u:s3cret@h:99999/db", "mysql://u:s3cret@h/db", "jdbc:oracle:s3cret",
		"postgres://u:s3cret%zz@h/db", "postgres://u:s3cret@h/db?sslmode=s3cret", "postgres://u:s3cret@h/db?a=%zz",
		"postgres://u:s3cret@h/db?sslrootcert=/no/such", "jdbc:postgresql://h/db?password=s3cret", "",
	} {
		_, err := postgres.ParseURL(raw, "", "", nil)
		require.Error(t, err, raw)
		require.NotContains(t, err.Error(), "s3cret", raw)
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("jdbc:postgresql://a:1,b/x?user=u&ssl=true", "pw")
	f.Add("postgres://u:p@[::1]:5432/x", "")
	f.Fuzz(func(t *testing.T, raw, password string) {
		_, err := postgres.ParseURL(raw, "", password, nil)
		if err != nil && len(password) > 12 && !strings.Contains(raw, password) {
			require.NotContains(t, err.Error(), password)
		}
	})
}

// fault connects, runs a statement, and reports what went wrong.
func fault(t *testing.T, u string, sql ...string) (postgres.Fault, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := postgres.ParseURL(u, "", "", nil)
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(ctx, c)
	for i := 0; err == nil && i < len(sql); i++ {
		_, err = conn.Exec(ctx, sql[i])
	}
	if conn != nil {
		conn.Close(ctx)
	}
	require.Error(t, err)
	text := postgres.Explain(err, "look at it").Error()
	require.Contains(t, text, "look at it")
	require.NotContains(t, text, pgtest.Password)
	require.NotContains(t, text, "precious")
	return postgres.FaultOf(postgres.Explain(err, "x")), text
}

func TestFaults(t *testing.T) {
	srv := pgtest.Start(t)
	u := srv.Database(t)
	srv.Exec(t, u, "CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL, n int CHECK (n > 0))",
		"INSERT INTO t VALUES (1, 'x', 1)")
	_, role := srv.Role(t, u, "LOGIN")
	edit := func(f func(*url.URL)) string {
		p, err := url.Parse(u)
		require.NoError(t, err)
		f(p)
		return p.String()
	}
	for _, c := range []struct {
		url, sql string
		fault    postgres.Fault
		texts    []string
	}{
		{edit(func(p *url.URL) { p.User = url.UserPassword("postgres", "precious") }), "", postgres.Denied,
			[]string{"28P01", "Check the user and the password"}},
		{edit(func(p *url.URL) { p.Path = "/nowhere" }), "", postgres.Config, []string{"3D000", "nowhere", "name of the " +
			"database"}},
		{edit(func(p *url.URL) { p.Host = "127.0.0.1:1" }), "", postgres.Connection, []string{"refused", "host and port"}},
		{edit(func(p *url.URL) { p.Host = "no-such-host.invalid:1" }), "", postgres.Connection,
			[]string{"no-such-host.invalid"}},
		{edit(func(p *url.URL) { p.RawQuery = "sslmode=require" }), "", postgres.Connection, []string{"TLS"}},
		{role, "SELECT * FROM t", postgres.Denied, []string{"42501", "table t", "GRANT SELECT"}},
		{u, "SELECT * FROM nope", postgres.Schema, []string{"42P01", "nope"}},
		{u, "SELECT nope FROM t", postgres.Schema, []string{"42703", "nope"}},
		{u, "INSERT INTO t VALUES (1, 'precious', 1)", postgres.Data, []string{"23505", "public.t", "t_pkey"}},
		{u, "INSERT INTO t VALUES (2, NULL, 1)", postgres.Data, []string{"23502", "column name"}},
		{u, "INSERT INTO t VALUES (2, 'precious', -1)", postgres.Data, []string{"23514", "t_n_check"}},
		{u, "SELECT 'precious'::int", postgres.Data, []string{"22P02"}},
		{u, "DO $$ BEGIN RAISE EXCEPTION 'precious'; END $$", postgres.Data, []string{"P0001"}},
		{u, "DO $$ BEGIN RAISE EXCEPTION 'precious' USING ERRCODE = 'SHOP1'; END $$", postgres.Data,
			[]string{"SHOP1", "raised an exception"}},
		{u, "SELECT pg_replication_slot_advance('nope', '0/1')", postgres.Config, []string{"42704", "slot is not there"}},
		{u, "SET transaction_read_only = on; CREATE TABLE x (a int)", postgres.Config, []string{"25006", "primary"}},
		{u, "LOAD 'nowhere'", postgres.Config, []string{"58P01"}}, // a library of an extension is missing
		{u, "SET statement_timeout = 1; SELECT pg_sleep(10)", postgres.Retry, []string{"57014"}},
	} {
		sql := []string{c.sql}
		if c.sql == "" {
			sql = nil
		}
		got, text := fault(t, c.url, sql...)
		require.Equal(t, c.fault, got, text)
		for _, want := range c.texts {
			require.Contains(t, text, want)
		}
	}
}

// kept is the fault of a connection, which stays until the end of the test.
func kept(t *testing.T, u string) (postgres.Fault, string) {
	config, err := postgres.ParseURL(u, "", "", nil)
	require.NoError(t, err)
	c, err := pgx.ConnectConfig(t.Context(), config)
	if err == nil {
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return postgres.None, ""
	}
	return postgres.FaultOf(err), postgres.Explain(err, "x").Error()
}

func TestFaultsOfSlots(t *testing.T) {
	srv := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica", "max_replication_slots": "1",
		"max_connections": "5", "superuser_reserved_connections": "2", "max_wal_senders": "1"}})
	u := srv.Database(t)
	got, text := fault(t, u, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
	require.Equal(t, postgres.Config, got)
	require.Contains(t, text, "wal_level = logical")
	got, text = fault(t, u, "SELECT pg_create_physical_replication_slot('a')", "SELECT "+
		"pg_create_physical_replication_slot('b')")
	require.Equal(t, postgres.Config, got)
	require.Contains(t, text, "max_replication_slots")
	_, role := srv.Role(t, u, "LOGIN")
	got = postgres.None
	for range 4 { // the server may not have noticed yet that those of before are gone
		if got == postgres.None {
			got, text = kept(t, role)
		}
	}
	require.Equal(t, postgres.Connection, got)
	require.Contains(t, text, "max_connections")
}

func TestLostSession(t *testing.T) {
	srv := pgtest.Start(t)
	u := srv.Database(t)
	c, err := postgres.ParseURL(u, "", "", nil)
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), c)
	require.NoError(t, err)
	srv.KillBackends(t, u)
	for range 2 { // the first hears of it, the second finds the connection closed
		_, err = conn.Exec(t.Context(), "SELECT 1")
		require.Error(t, err)
		require.Equal(t, postgres.Connection, postgres.FaultOf(err), "%v", err)
	}
}

func TestFaultsOfPublications(t *testing.T) {
	srv := pgtest.Start(t)
	u := srv.Database(t)
	srv.Exec(t, u, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION late",
		"SELECT pg_create_logical_replication_slot('faults_of_publications', 'pgoutput')", "INSERT INTO t VALUES (1)")
	got, text := fault(t, u, "SELECT * FROM pg_logical_slot_get_binary_changes('faults_of_publications', NULL, NULL, "+
		"'proto_version', '1', 'publication_names', 'nope')")
	require.Equal(t, postgres.Config, got)
	require.Contains(t, text, "nope")
	require.Contains(t, text, "Create the publication before the slot")

	config, err := postgres.ParseURL(u+"&replication=database", "", "", nil)
	require.NoError(t, err)
	config.RuntimeParams["replication"] = "database"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	conn.PgConn().Frontend().Send(&pgproto3.Query{String: "START_REPLICATION SLOT faults_of_publications LOGICAL 0/0 " +
		"(proto_version '1', publication_names 'late')"})
	require.NoError(t, conn.PgConn().Frontend().Flush())
	_, err = conn.PgConn().ReceiveMessage(t.Context())
	require.NoError(t, err)
	got, text = fault(t, u, "SELECT pg_drop_replication_slot('faults_of_publications')")
	require.Equal(t, postgres.Config, got)
	require.Contains(t, text, "Another session reads from the slot")
}

// An error keeps what it means once it is explained.
func TestExplainedFault(t *testing.T) {
	for _, err := range []error{pgconn.ErrConnClosed, io.EOF, context.DeadlineExceeded, net.ErrClosed} {
		err = postgres.Explain(fmt.Errorf("in a transaction: %w", err), "take over partitions")
		require.True(t, postgres.FaultOf(err).Transient(), "%v", err)
		require.True(t, postgres.FaultOf(postgres.Explain(err, "again")).Transient(), "%v", err)
	}
}
