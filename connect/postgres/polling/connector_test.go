package polling_test

import (
	"log/slog"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/connect/postgres/pgtest"
	"millrace/connect/postgres/polling"
)

func TestDefinitions(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, d := range polling.Class().Defs {
		require.False(t, seen[d.Name], d.Name)
		seen[d.Name] = true
		require.NotEmpty(t, d.Doc, d.Name)
		require.NotEmpty(t, d.Group, d.Name)
		if d.Default != "" {
			require.Empty(t, plugin.Defs{d}.Check(map[string]string{d.Name: d.Default}), d.Name)
		}
	}
	// All of Confluent's.
	for _, name := range strings.Fields(`connection.url connection.user connection.password connection.attempts
		connection.backoff.ms mode incrementing.column.name timestamp.column.name incrementing.column.mapping
		timestamp.columns.mapping timestamp.initial timestamp.delay.interval.ms timestamp.granularity validate.non.null
		table.whitelist table.blacklist table.include.list table.exclude.list schema.pattern catalog.pattern table.types query
		query.masked query.suffix query.retry.attempts poll.interval.ms poll.linger.ms batch.max.rows max.buffer.size
		table.poll.interval.ms table.monitoring.startup.polling.limit.ms topic.prefix numeric.mapping
		numeric.precision.mapping quote.sql.identifiers db.timezone date.calendar.system dialect.name
		transaction.isolation.mode`) {
		require.True(t, seen[name], name)
	}
}

// What single settings say by themselves.
func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	good := map[string]string{"connection.url": "jdbc:postgresql://h/db", "mode": "bulk", "topic.prefix": "p"}
	require.Empty(t, polling.Class().Defs.Check(good))
	for key, value := range map[string]string{
		"connection.url": "mysql://h/db", "mode": "sideways", "db.timezone": "Mars/Base", "table.include.list": "(",
		"table.types": "SEQUENCE", "poll.interval.ms": "-1", "batch.max.rows": "0", "incrementing.column.mapping": "a",
		"timestamp.columns.mapping": "a:b", "table.whitelist": "a.b.c.d", "numeric.mapping": "worst_fit",
		"record.key.mode": "maybe", "timestamp.granularity": "hours",
	} {
		props := maps.Clone(good)
		props[key] = value
		problems := polling.Class().Defs.Check(props)
		require.Len(t, problems, 1, key)
		require.Equal(t, key, problems[0].Key)
	}
}

// validateCase is settings, the one that is at fault, "" if none is, and what is said of it.
type validateCase struct {
	props map[string]string
	key   string
	texts []string
}

func validateCases(wrong, role string) []validateCase {
	return []validateCase{
		{map[string]string{"mode": "incrementing", "table.whitelist": "public.good"}, "", nil},
		{map[string]string{"mode": "timestamp", "table.whitelist": "public.good", "timestamp.column.name": "at"}, "", nil},
		{map[string]string{"mode": "bulk", "table.include.list": `public\..*`}, "", nil},
		{map[string]string{"mode": "bulk", "connection.url": wrong}, "connection.user", []string{"28P01",
			"password"}},
		{map[string]string{"mode": "bulk", "connection.url": "postgres://u:precious@127.0.0.1:1/x"}, "connection.url",
			[]string{"refused", "127.0.0.1:1"}},
		{map[string]string{"mode": "incrementing", "table.whitelist": "plain"}, "incrementing.column.name",
			[]string{"public.plain", "no column draws from a sequence"}},
		{map[string]string{"mode": "incrementing", "table.whitelist": "two"}, "incrementing.column.name",
			[]string{"public.two", `"a" and "b"`}},
		{map[string]string{"mode": "incrementing", "table.whitelist": "public.good", "incrementing.column.name": "nope"},
			"incrementing.column.name", []string{`no column "nope"`, "id, at, n"}},
		{map[string]string{"mode": "incrementing", "table.whitelist": "plain", "incrementing.column.name": "v"},
			"incrementing.column.name", []string{"type text"}},
		{map[string]string{"mode": "incrementing", "table.whitelist": "public.good", "incrementing.column.name": "n"},
			"incrementing.column.name", []string{"NOT NULL", "validate.non.null"}},
		{map[string]string{"mode": "timestamp", "table.whitelist": "two", "timestamp.column.name": "at"},
			"timestamp.column.name", []string{"NOT NULL"}},
		{map[string]string{"mode": "timestamp", "table.whitelist": "two"}, "timestamp.column.name", []string{"needs the " +
			"column"}},
		{map[string]string{"mode": "bulk", "table.whitelist": "absent"}, "table.whitelist", []string{"no table absent"}},
		{map[string]string{"mode": "bulk", "table.whitelist": "good"}, "topic.format",
			[]string{"other.good", "public.good", "${schema}"}},
		{map[string]string{"mode": "bulk", "table.whitelist": "good", "topic.format": "${schema}.${table}"}, "", nil},
		{map[string]string{"mode": "bulk", "table.whitelist": "secret", "connection.url": role}, "table.whitelist",
			[]string{"public.secret", "42501", "GRANT SELECT"}},
		{map[string]string{"mode": "incrementing", "table.whitelist": "public.good", "connection.url": role}, "", nil},
		{map[string]string{"mode": "xid", "table.whitelist": "v", "table.types": "VIEW"}, "mode", []string{"public.v"}},
		{map[string]string{"mode": "xid", "table.whitelist": "xid", "xid.column.name": "tx"}, "xid.column.name",
			[]string{"xid8"}},
		{map[string]string{"mode": "xid", "query": "SELECT 1"}, "mode", []string{"query"}},
		{map[string]string{"mode": "bulk", "query": "SELEC 1"}, "query", []string{"42601"}},
		{map[string]string{"mode": "bulk", "query": "SELECT 1 AS a, 2 AS a"}, "query", []string{"two columns"}},
		{map[string]string{"mode": "bulk", "query.masked": "SELECT * FROM nope"}, "query.masked", []string{"42P01"}},
		{map[string]string{"mode": "bulk", "query": "SELECT 1", "table.whitelist": "good"}, "table.whitelist",
			[]string{"query"}},
		{map[string]string{"mode": "bulk", "table.exclude.list": "a"}, "table.exclude.list", []string{"table.include.list"}},
		{map[string]string{"mode": "bulk", "table.whitelist": "good", "table.blacklist": "x"}, "table.blacklist",
			[]string{"exclude each other"}},
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t)
	u := srv.Database(t)
	srv.Exec(t, u, "CREATE TABLE plain (v text)", "CREATE TABLE two (a serial, b serial, at timestamptz)",
		"CREATE TABLE good (id serial PRIMARY KEY, at timestamptz NOT NULL, n numeric)", "CREATE SCHEMA other",
		"CREATE TABLE other.good (id serial PRIMARY KEY)", "CREATE VIEW v AS SELECT 1 AS one", "CREATE TABLE secret (id "+
			"serial)",
		"CREATE TABLE xid (id int PRIMARY KEY, tx int)")
	name, role := srv.Role(t, u, "LOGIN")
	srv.Exec(t, u, "GRANT SELECT ON good TO "+name)
	wrong, err := url.Parse(u)
	require.NoError(t, err)
	wrong.User = url.UserPassword("postgres", "precious")
	for _, c := range validateCases(wrong.String(), role) {
		props := map[string]string{"connection.url": u, "topic.prefix": "p"}
		maps.Copy(props, c.props)
		require.Empty(t, polling.Class().Defs.Check(props))
		problems := polling.Class().New().Validate(t.Context(), props)
		if c.key == "" {
			require.Empty(t, problems, "%v", c.props)
			continue
		}
		require.Len(t, problems, 1, "%v: %v", c.props, problems)
		require.Equal(t, c.key, problems[0].Key, problems[0].Message)
		require.NotContains(t, problems[0].Message, "precious")
		for _, text := range c.texts {
			require.Contains(t, problems[0].Message, text)
		}
	}
}

func TestTasksAndDiscovery(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "bulk", "table.poll.interval.ms": "20", "schema.pattern": "publi_"},
		"CREATE SCHEMA other", "CREATE TABLE other.x (id int)")
	asked := make(chan struct{}, 1)
	cn := polling.Class().New()
	require.NoError(t, cn.Start(t.Context(), b.props, plugin.ConnectorContext{Logger: slog.New(slog.DiscardHandler),
		Reconfigure: func() {
			select {
			case asked <- struct{}{}:
			default: // it asks until it is answered
			}
		}}))
	defer func() { require.NoError(t, cn.Stop(t.Context())) }()
	configs, err := cn.TaskConfigs(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, []map[string]string{{"millrace.tables": "[]"}}, configs)
	b.exec("CREATE TABLE a (id int)", "CREATE TABLE b (id int)", "CREATE TABLE c (id int)", "CREATE TABLE d (id int)")
	select {
	case <-asked:
	case <-time.After(patience):
		require.Fail(t, "the tables that came were not seen")
	}
	configs, err = cn.TaskConfigs(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, []map[string]string{{"millrace.tables": `[["public","a"]]`}, {"millrace.tables": `[["public","b"]]`},
		{"millrace.tables": `[["public","c"],["public","d"]]`}}, configs)
}

func TestAlterOffsets(t *testing.T) {
	t.Parallel()
	cn := polling.Class().New()
	for _, o := range []plugin.Offset{
		{Partition: map[string]any{"protocol": "1", "table": "public.t"}, Offset: map[string]any{"incrementing": "7"}},
		{Partition: map[string]any{"query": "query"}, Offset: map[string]any{"timestamp": int64(5)}},
		{Partition: map[string]any{"protocol": "1", "table": "public.t"}},
	} {
		agreed, err := cn.AlterOffsets(t.Context(), nil, []plugin.Offset{o})
		require.NoError(t, err)
		require.True(t, agreed)
	}
	for _, o := range []plugin.Offset{
		{Partition: map[string]any{"server": "x"}},
		{Partition: map[string]any{"table": "t"}, Offset: map[string]any{"incrementing": "x"}},
		{Partition: map[string]any{"table": "t"}, Offset: map[string]any{"xid": "5", "pk": "["}},
	} {
		_, err := cn.AlterOffsets(t.Context(), nil, []plugin.Offset{o})
		require.Error(t, err)
	}
}

// What a task cannot go on with says which table, why, and what to do.
func TestTaskFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		props map[string]string
		sql   string
		texts []string
	}{
		{map[string]string{"mode": "bulk"}, "REVOKE SELECT ON t FROM PUBLIC", []string{"public.t", "42501", "GRANT SELECT"}},
		{map[string]string{"mode": "incrementing"}, "ALTER TABLE t DROP COLUMN id", []string{"public.t", "sequence"}},
	} {
		b := newBench(t, c.props, "CREATE TABLE t (id serial PRIMARY KEY, n numeric)", "GRANT SELECT ON t TO PUBLIC",
			"INSERT INTO t (n) VALUES (1)")
		_, b.props["connection.url"] = b.srv.Role(t, b.url, "LOGIN")
		b.start()
		b.eventually(func() bool { return len(b.records) > 0 })
		b.exec(c.sql)
		var err error
		for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
			_, err = b.task.Poll(t.Context())
		}
		require.Error(t, err)
		for _, text := range c.texts {
			require.ErrorContains(t, err, text)
		}
		b.stop()
	}
}

// What fails as rows are fetched is tried no oftener than what fails before.
func TestFetchFails(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"42P01", "40001"} {
		b := newBench(t, map[string]string{"mode": "bulk", "query": "SELECT id, boom() AS x FROM t",
			"query.retry.attempts": "2"}, "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)",
			"CREATE FUNCTION boom() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'boom' USING ERRCODE = '"+
				code+"'; END $$")
		b.start()
		var err error
		for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
			_, err = b.task.Poll(t.Context())
		}
		require.ErrorContains(t, err, code)
		b.stop()
	}
}

// A table that is dropped is waited for, and the others are read.
func TestTableGoes(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"mode": "incrementing", "table.poll.interval.ms": "50"},
		"CREATE TABLE a (id serial PRIMARY KEY)", "CREATE TABLE b (id serial PRIMARY KEY)", "INSERT INTO a VALUES (1)",
		"INSERT INTO b VALUES (1)")
	b.start()
	defer b.stop()
	b.until(2)
	b.exec("DROP TABLE a", "INSERT INTO b VALUES (2)")
	b.until(3)
	b.exec("CREATE TABLE a (id serial PRIMARY KEY)", "INSERT INTO a VALUES (5)")
	b.until(4)
}
