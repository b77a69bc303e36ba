package sink_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/connect/postgres/pgtest"
	"millrace/connect/postgres/sink"
)

func validate(t *testing.T, props map[string]string) string {
	c := class(props["connector.class"])
	require.Empty(t, c.Defs.Check(props))
	text := ""
	for _, p := range c.New().Validate(t.Context(), props) {
		text += p.Key + ": " + p.Message + "\n"
	}
	require.NotContains(t, text, pgtest.Password)
	return text
}

func TestValidateConnects(t *testing.T) {
	d := newDB(t, "CREATE TABLE good (id bigint PRIMARY KEY, name text)", "CREATE TABLE heap (id bigint)",
		"CREATE SCHEMA app", "CREATE TABLE app.theirs (id bigint PRIMARY KEY)", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	role, u := d.srv.Role(t, d.url, "LOGIN")
	d.exec("GRANT ALL ON good TO "+role, "GRANT INSERT, UPDATE, SELECT ON heap TO "+role)

	require.Empty(t, validate(t, settings(native, d.url, "topics", "good")))
	got := validate(t, settings(native, u, "topics", "good"))
	require.Contains(t, got, "offset.ledger.schema: there is no schema connect and the role may not create it: "+
		`CREATE SCHEMA connect AUTHORIZATION "`+role+`", or set offset.ledger=off`)
	require.Equal(t, 1, strings.Count(got, "\n"))

	d.exec("CREATE SCHEMA connect")
	got = validate(t, settings(native, u, "topics", "good"))
	require.Contains(t, got, "offset.ledger.schema: the role may not use schema connect: GRANT USAGE, CREATE ON SCHEMA")
	d.exec("GRANT USAGE ON SCHEMA connect TO " + role)
	got = validate(t, settings(native, u, "topics", "good"))
	require.Contains(t, got, "there is no table connect.sink_offset and the role may not create it")
	require.NoError(t, apply(d, "connect"))
	got = validate(t, settings(native, u, "topics", "good"))
	require.Contains(t, got, "GRANT SELECT, INSERT, UPDATE ON connect.sink_offset TO")
	require.Contains(t, got, "GRANT SELECT ON connect.millrace_ledger_version TO")
	d.exec("GRANT SELECT, INSERT, UPDATE ON connect.sink_offset TO "+role,
		"GRANT SELECT ON connect.millrace_ledger_version TO "+role)
	require.Empty(t, validate(t, settings(native, u, "topics", "good")))

	got = validate(t, settings(native, u, "topics", "heap"))
	require.Contains(t, got, "table.name.format: the role lacks privileges on table public.heap: GRANT DELETE ON")
	require.Contains(t, got, "pk.fields: upserts need a unique index")
	got = validate(t, settings(native, u, "topics", "none, good, app.other"))
	require.Contains(t, got, "table.name.format: there is no table none: create it, or set auto.create=true")
	require.Contains(t, got, "there is no table app.other")
	got = validate(t, settings(native, u, "topics", "none", "auto.create", "true"))
	require.Contains(t, got, `the role may not create table none: GRANT CREATE ON SCHEMA "public"`)
	got = validate(t, settings(native, d.url, "topics", "nowhere.t"))
	require.Contains(t, got, "there is no schema nowhere")
	got = validate(t, settings(native, d.url, "topics", "good", "pk.mode", "record_value", "pk.fields", "name",
		"delete.enabled", "false"))
	require.Contains(t, got, `CREATE UNIQUE INDEX ON "public"."good" ("name")`)
	got = validate(t, settings(debezium, d.url, "topics", "s.good"))
	require.Contains(t, got, "there is no table s_good: create it, or set schema.evolution=basic")
}

func TestValidateRefusesConnections(t *testing.T) {
	d := newDB(t)
	wrong := strings.Replace(d.url, "it%20is", "no%20is", 1)
	require.NotEqual(t, d.url, wrong)
	got := validate(t, settings(native, wrong))
	require.Contains(t, got, "connection.password: connect: ")
	require.Contains(t, got, "28P01")
	got = validate(t, settings(confluent, "jdbc:postgresql://127.0.0.1:1/x", "connection.user", "u", "connection.password",
		pgtest.Password))
	require.Contains(t, got, "connection.url: connect: nobody listens there")
	got = validate(t, settings(native, strings.Replace(d.url, "/t_", "/missing_", 1)))
	require.Contains(t, got, "connection.url: connect: ")
	require.Contains(t, got, "3D000")
}

func TestValidateSettings(t *testing.T) {
	u := pgtest.Start(t).URL()
	for _, c := range []struct {
		class, want string
		more        []string
	}{
		{native, "pk.mode: upsert takes a primary key", []string{"pk.mode", "none", "delete.enabled", "false"}},
		{native, "delete.enabled: to delete rows takes pk.mode=record_key", []string{"pk.mode", "kafka", "delete.enabled",
			"true"}},
		{confluent, "delete.enabled: to delete rows takes pk.mode=record_key", []string{"delete.enabled", "true"}},
		{debezium, "primary.key.fields: primary.key.mode=kafka takes three fields", []string{"primary.key.mode", "kafka",
			"primary.key.fields", "a"}},
		{native, "table.name.format: ${table} is not known", []string{"table.name.format", "${table}"}},
		{native, `db.timezone: "Mars" is no time zone`, []string{"db.timezone", "Mars"}},
		{native, "pk.fields: pk.mode=record_header takes the names", []string{"pk.mode", "record_header", "delete.enabled",
			"false"}},
		{native, "connection.url: the URL is not valid", []string{"connection.url", "http://u:" + pgtest.Password + "@h/x"}},
	} {
		require.Contains(t, validate(t, settings(c.class, u, c.more...)), c.want)
	}
	for _, c := range sink.Classes() {
		missing := c.Defs.Check(map[string]string{})
		require.Equal(t, "connection.url", missing[0].Key)
		require.NotNil(t, c.New().NewSink())
		require.Nil(t, c.New().NewSource())
		require.Equal(t, plugin.SinkKind, c.Kind)
		bad := c.Defs.Check(map[string]string{"connection.url": "http://x", "insert.mode": "never", "offset.ledger.schema": "A b"})
		require.Len(t, bad, 2)
	}
}

// Tasks share partitions among themselves: all have the connector's settings.
func TestTaskConfigs(t *testing.T) {
	props := settings(confluent, "jdbc:postgresql://localhost/x", "connection.user", "u")
	c := class(confluent).New()
	require.NoError(t, c.Start(t.Context(), props, plugin.ConnectorContext{}))
	configs, err := c.TaskConfigs(t.Context(), 3)
	require.NoError(t, err)
	require.Len(t, configs, 3)
	require.Equal(t, confluent, configs[2]["connector.class"])
	require.NoError(t, c.Stop(t.Context()))
	props["db.timezone"] = "nowhere"
	require.ErrorContains(t, class(confluent).New().Start(t.Context(), props, plugin.ConnectorContext{}), "db.timezone")
}
