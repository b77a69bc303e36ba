package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Variable names the environment variable that holds the URL of a server to use.
const Variable = "MILLRACE_TEST_POSTGRES"

// Password is that of the superuser and of the roles that Role makes.
const Password = "it is a test"

// patience bounds what takes a moment on a machine that does nothing else.
const patience = 2 * time.Minute

// shared is the server of this test process.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Main runs the tests of a package and ends the server that they shared. It is all that a TestMain needs; without one,
// the server ends with the process.
func Main(m *testing.M) {
	m.Run()
	if shared.server != nil {
		shared.server.end()
	}
}

// Start is the server that the tests of this process share, started for the first that asks. Databases, roles and slots
// are for the test to keep apart; whoever stops or configures it is alone with it, or takes New.
func Start(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		if u := os.Getenv(Variable); u != "" {
			shared.server = &Server{url: u}
			return
		}
		shared.server, shared.err = start(Options{})
	})
	check(t, shared.err)
	return shared.server
}

// Options are what may differ from one server to another.
type Options struct {
	Fsync    bool              // the server syncs its files; it does not by default
	Settings map[string]string // of postgresql.conf; they take precedence
}

// New is a server of the test's own, which ends with it.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := start(o)
	check(t, err)
	t.Cleanup(s.end)
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err == errNoServer {
		t.Skipf("SKIPPED, not passed: %s. `.ci/postgres` installs one; %s may name one", err, Variable)
	}
	require.NoError(t, err)
}

// Server is a PostgreSQL server.
type Server struct {
	url   string // of the superuser, database postgres
	local *local // nil: it is not ours to stop
}

// URL is the superuser's, to a database that is always there.
func (s *Server) URL() string { return s.url }

// Host and Port are where the server listens.
func (s *Server) Host() string { return s.parsed().Hostname() }

// Port is where the server listens.
func (s *Server) Port() string { return s.parsed().Port() }

func (s *Server) parsed() *url.URL {
	u, err := url.Parse(s.url)
	if err != nil {
		panic(err) // of Variable: there is no test to fail yet
	}
	return u
}

// Database makes an empty database for the test and gives the superuser's URL to it. It goes when the test ends, with
// its slots and whoever is connected.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := "t_" + random()
	s.Exec(t, s.url, "CREATE DATABASE "+name)
	t.Cleanup(func() { s.drop(name) })
	u := s.parsed()
	u.Path = "/" + name
	return u.String()
}

// drop does what it can: the server may be down at the end of a test.
func (s *Server) drop(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return
	}
	defer c.Close(ctx)
	for ctx.Err() == nil && !c.IsClosed() {
		_, _ = c.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
			WHERE database = $1 AND active`, name)
		_, err := c.Exec(ctx,
			`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, name)
		if err == nil {
			break
		}
		pause(ctx, 20*time.Millisecond)
	}
	_, _ = c.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// Role makes a role with the attributes given, such as "LOGIN REPLICATION", and gives a URL by which it reaches the
// database of another URL. Its privileges there are the test's to grant.
func (s *Server) Role(t testing.TB, database, attributes string) (name, roleURL string) {
	t.Helper()
	name = "r_" + random()
	s.Exec(t, s.url, fmt.Sprintf("CREATE ROLE %s %s PASSWORD '%s'", name, attributes, Password))
	t.Cleanup(func() { s.dropRole(name, database) })
	u, err := url.Parse(database)
	require.NoError(t, err)
	u.User = url.UserPassword(name, Password)
	return name, u.String()
}

func (s *Server) dropRole(name, database string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, u := range []string{database, s.url} {
		c, err := pgx.Connect(ctx, u)
		if err != nil {
			continue
		}
		_, _ = c.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", name)
		_, _ = c.Exec(ctx, "DROP OWNED BY "+name)
		_, _ = c.Exec(ctx, "DROP ROLE IF EXISTS "+name)
		c.Close(ctx)
	}
}

// Connect opens a connection that is closed when the test ends.
func (s *Server) Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

// Exec runs statements one after the other on a connection of their own, each by itself unless it says BEGIN.
func (s *Server) Exec(t testing.TB, url string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer c.Close(ctx)
	for _, sql := range statements {
		_, err := c.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
}

// KillBackends ends the sessions in the database of a URL, walsenders too, and says how many there were.
func (s *Server) KillBackends(t testing.TB, database string) (n int) {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	c := s.Connect(t, s.url)
	err = c.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = $1 AND pid <> pg_backend_pid()) x`, path.Base(u.Path)).Scan(&n)
	require.NoError(t, err)
	return n
}

// Config changes a setting of the server until the test ends; what takes a restart gets one, twice.
func (s *Server) Config(t testing.TB, name, value string) {
	t.Helper()
	s.control(t)
	s.alter(t, fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, strings.ReplaceAll(value, "'", "''")), name)
	t.Cleanup(func() { s.alter(t, "ALTER SYSTEM RESET "+name, name) })
}

func (s *Server) alter(t testing.TB, sql, name string) {
	t.Helper()
	s.Exec(t, s.url, sql)
	var restart bool
	func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := pgx.Connect(ctx, s.url)
		require.NoError(t, err)
		defer c.Close(ctx)
		err = c.QueryRow(ctx, "SELECT context = 'postmaster' FROM pg_settings WHERE name = $1", name).Scan(&restart)
		require.NoError(t, err)
		_, err = c.Exec(ctx, "SELECT pg_reload_conf()")
		require.NoError(t, err)
	}()
	if restart {
		s.Restart(t, Fast)
	}
}

// Mode is how a server is stopped.
type Mode int

// The modes. Immediate is what a crash is to the files; Fast ends sessions in order; Smart waits for them.
const (
	Fast Mode = iota
	Immediate
	Smart
)

// Stop ends the server; its files stay.
func (s *Server) Stop(t testing.TB, mode Mode) {
	t.Helper()
	require.NoError(t, s.control(t).stop(mode))
}

// Stopping has the server stop, and gives what comes of that. Fast and Smart wait for those who read a replication slot
// to confirm all of the log: they must go on until then.
func (s *Server) Stopping(t testing.TB, mode Mode) <-chan error {
	t.Helper()
	l, ended := s.control(t), make(chan error, 1)
	go func() { ended <- l.stop(mode) }()
	return ended
}

// Start starts a server that was stopped, on the same port.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	require.NoError(t, s.control(t).start())
}

// Restart stops and starts the server.
func (s *Server) Restart(t testing.TB, mode Mode) {
	t.Helper()
	s.Stop(t, mode)
	s.Start(t)
}

func (s *Server) control(t testing.TB) *local {
	t.Helper()
	if s.local == nil {
		t.Skipf("SKIPPED, not passed: the server that %s names is not this test's to stop or configure", Variable)
	}
	return s.local
}

func (s *Server) end() {
	if s.local != nil {
		s.local.end()
	}
}

func random() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
