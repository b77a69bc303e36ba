package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/pgtest"
)

// bad is one case of bad input: databases and connectors of its own, on a cluster that all share.
type bad struct {
	*flows
	t        *testing.T
	name     string // of the prefix, the slot and the publication
	requests int    // to produce
}

// Whatever is wrong with what connectors are given is said when they are created, or by the task that fails of it: what
// it is about, the server's code, and what to do. Once it is mended, all is there that should be.
func TestBadInput(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and takes a minute")
	}
	prepare(t)
	f := startFlows(t, nil)
	for i, c := range []struct {
		name string
		run  func(b *bad)
	}{
		{"wrong password", (*bad).wrongPassword}, {"unreachable host", (*bad).unreachable},
		{"no such database", (*bad).noDatabase}, {"missing privileges of a source", (*bad).sourcePrivileges},
		{"missing privileges of a sink", (*bad).sinkPrivileges}, {"wal_level", (*bad).walLevel},
		{"slot in use", (*bad).slotInUse}, {"slot dropped", (*bad).slotDropped}, {"slot lost", (*bad).slotLost},
		{"publication lacks a table", (*bad).publicationLacks}, {"table without a key", (*bad).noKey},
		{"numeric extremes at the source", (*bad).sourceExtremes}, {"numeric extremes at the sink", (*bad).sinkExtremes},
		{"infinity", (*bad).infinity}, {"NUL", (*bad).nul}, {"invalid JSON in a column", (*bad).invalidJSON},
		{"invalid JSON in a topic", (*bad).damagedJSON}, {"column dropped under way", (*bad).columnDropped},
		{"NULL where there must be none", (*bad).notNull}, {"names that are too long", (*bad).longNames},
		{"two sinks with one name", (*bad).twoSinks},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared := *f.cluster
			shared.t = t
			b := &bad{flows: &flows{cluster: &shared, rand: f.rand, server: f.server, failed: map[string]bool{}}, t: t,
				name: fmt.Sprint("bad", i)}
			b.from, b.to = f.server.Database(t), f.server.Database(t)
			c.run(b)
		})
	}
}

// in runs SQL in a database.
func (b *bad) in(dsn string, sql ...string) { b.server.Exec(b.t, dsn, sql...) }

func (b *bad) source() config {
	return capture(b.t, b.from, b.server.Port(), b.name)
}

func (b *bad) sink() config {
	return deliver(b.t, b.to, b.server.Port(), b.name+`\.public\..*`).with(
		"consumer.override.metadata.max.age.ms", "500")
}

// plain is a sink for records that do not come from a source.
func (b *bad) plain(topic string) config {
	c := b.sink().with("topics", topic, "collection.name.format", "${topic}", "primary.key.mode", "record_value",
		"primary.key.fields", "id", "delete.enabled", "false", "key.converter",
		"org.apache.kafka.connect.storage.StringConverter")
	delete(c, "topics.regex")
	return c
}

// create creates a connector that goes when the case ends.
func (b *bad) create(name string, c config) {
	b.t.Helper()
	b.put(name, c)
	b.t.Cleanup(func() { b.remove(name) })
}

// remove deletes a connector, by one node after the other until one knows none of that name.
func (b *bad) remove(name string) {
	b.t.Helper()
	for start, id := time.Now(), 1; ; id = id%nodes + 1 {
		code, answer, err := b.rest(id, http.MethodDelete, "/connectors/"+name, nil)
		if err == nil && (code < 300 || code == http.StatusNotFound) { // by a try before that was not answered
			return
		}
		require.Less(b.t, time.Since(start), patience, "%d %s %v", code, answer, err)
		pause(context.Background(), 50*time.Millisecond)
	}
}

// refused creates a connector, which is to be refused in these words.
func (b *bad) refused(name string, c config, words ...string) {
	b.t.Helper()
	start := time.Now()
	for {
		code, answer, err := b.rest(1, http.MethodPost, "/connectors", map[string]any{"name": name, "config": c})
		busy := err != nil || code == http.StatusServiceUnavailable || code == http.StatusConflict
		if busy && time.Since(start) < patience {
			pause(b.t.Context(), 50*time.Millisecond)
			continue
		}
		require.NoError(b.t, err)
		if code == http.StatusCreated {
			b.t.Cleanup(func() { b.remove(name) })
		}
		require.Equal(b.t, http.StatusBadRequest, code, string(answer))
		b.says(string(answer), words)
		return
	}
}

func (b *bad) says(text string, words []string) {
	b.t.Helper()
	for _, w := range words {
		require.Contains(b.t, text, w)
	}
	require.NotContains(b.t, text, pgtest.Password)
	b.t.Logf("%s", text)
}

// fails waits until a task fails, in these words. It may have failed otherwise before, and have been started again.
func (b *bad) fails(name string, words ...string) {
	b.t.Helper()
	for start := time.Now(); ; pause(b.t.Context(), 20*time.Millisecond) {
		s, err := b.status(name)
		for _, u := range s.Tasks {
			lacks := func(w string) bool { return !strings.Contains(u.Trace, w) }
			if u.State == "FAILED" && !slices.ContainsFunc(words, lacks) {
				b.says(u.Trace, words)
				return
			}
		}
		require.Less(b.t, time.Since(start), patience, "%s does not fail: %+v %v", name, s, err)
	}
}

// again restarts a connector, as whoever has mended something does.
func (b *bad) again(name string) {
	b.insist(http.MethodPost, "/connectors/"+name+"/restart?includeTasks=true&onlyFailed=true", nil)
}

// holds waits until a query of a database has this result.
func (b *bad) holds(dsn, sql string, want ...string) {
	b.t.Helper()
	for start := time.Now(); ; pause(b.t.Context(), 20*time.Millisecond) {
		got, err := query(b.t.Context(), dsn, sql)
		if err == nil && fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Since(start) > patience {
			b.explain()
			require.Equal(b.t, want, got, "%s: %v", sql, err)
		}
	}
}

// produce writes values to a topic.
func (b *bad) produce(topic string, values ...string) {
	b.t.Helper()
	var lines strings.Builder
	for _, v := range values {
		line, err := json.Marshal(map[string]string{"value_text": v})
		require.NoError(b.t, err)
		lines.Write(append(line, '\n'))
	}
	b.requests++
	for start := time.Now(); ; pause(b.t.Context(), 50*time.Millisecond) {
		code, answer, err := b.produceOnce(topic, lines.String())
		if err == nil && code == http.StatusOK {
			return
		}
		require.Less(b.t, time.Since(start), patience, "%d %s %v", code, answer, err)
	}
}

// produceOnce sends the last request. However often that is done, its records are stored once.
func (b *bad) produceOnce(topic, lines string) (code int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), attention)
	defer cancel()
	url := b.nodes[1].url() + "/v1/topics/" + topic + "/records"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(lines))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/vnd.millrace.records+ndjson")
	req.Header.Set("Producer-Id", fmt.Sprint(b.name, "-", b.requests))
	req.Header.Set("Producer-Epoch", "0")
	req.Header.Set("Producer-Seq", "0")
	return do(b.http, req)
}

// value is a value of JsonConverter's, of an id and a column.
func value(id int, kind, column, payload string) string {
	return fmt.Sprintf(`{"schema":{"type":"struct","optional":false,"fields":[
		{"field":"id","type":"int32","optional":false},{"field":%q,"type":%q,"optional":true}]},
		"payload":{"id":%d,%[1]q:%[4]s}}`, column, kind, id, payload)
}

func (b *bad) wrongPassword() {
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY)")
	b.refused(b.name, b.source().with("database.password", "wrong secret"), "database.password", "28P01",
		"Check the user and the password")
	b.refused(b.name, b.sink().with("connection.password", "wrong secret"), "connection.password", "28P01",
		"Check the user and the password")
}

func (b *bad) unreachable() {
	const port = "1" // nobody listens there, and nobody is given it
	b.refused(b.name, b.source().with("database.port", port), "database.hostname", "refused", "Check host and port")
	b.refused(b.name, b.sink().with("connection.url", "jdbc:postgresql://127.0.0.1:"+port+"/x"), "connection.url",
		"refused", "Check host and port")
}

func (b *bad) noDatabase() {
	b.refused(b.name, b.source().with("database.dbname", "nowhere"), "database.dbname", "3D000", "Check the name")
}

// as gives a configuration the role's user and password.
func (b *bad) as(c config, role, user, password string) config {
	return c.with(user, role, password, pgtest.Password)
}

func (b *bad) sourcePrivileges() {
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY)")
	role, _ := b.server.Role(b.t, b.from, "LOGIN")
	b.refused(b.name, b.as(b.source(), role, "database.user", "database.password"), "ALTER ROLE", "REPLICATION")
	role, _ = b.server.Role(b.t, b.from, "LOGIN REPLICATION")
	b.refused(b.name, b.as(b.source(), role, "database.user", "database.password"), "public.t", "GRANT SELECT ON")
	// What is taken away later fails the task.
	b.in(b.from, "GRANT SELECT ON t TO "+role, "CREATE PUBLICATION "+b.name+" FOR TABLE t")
	b.create(b.name, b.as(b.source(), role, "database.user", "database.password").with(
		"publication.autocreate.mode", "disabled"))
	b.awaitRunning(b.name)
	b.in(b.from, "REVOKE SELECT ON t FROM "+role, "ALTER ROLE "+role+" NOREPLICATION",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+role+"'")
	b.fails(b.name, "REPLICATION", "ALTER ROLE")
}

func (b *bad) sinkPrivileges() {
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE SCHEMA connect")
	role, _ := b.server.Role(b.t, b.to, "LOGIN")
	topic := b.name + "_t"
	b.produce(topic, value(1, "string", "v", `"a"`))
	c := b.as(b.plain(topic), role, "connection.username", "connection.password").with("collection.name.format", "t")
	b.refused(topic, c, "GRANT", "connect")
	b.in(b.to, "GRANT ALL ON SCHEMA connect TO "+role)
	b.refused(topic, c, "GRANT", "INSERT", "t")
	b.in(b.to, "GRANT ALL ON t TO "+role)
	b.create(topic, c)
	b.holds(b.to, "SELECT * FROM t", "1|a")
	b.in(b.to, "REVOKE INSERT ON t FROM "+role)
	b.produce(topic, value(2, "string", "v", `"b"`))
	b.fails(topic, "42501", "table t", "GRANT")
	b.in(b.to, "GRANT ALL ON t TO "+role)
	b.again(topic)
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|a", "2|b")
}

func (b *bad) walLevel() {
	server := pgtest.New(b.t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	b.server = server
	b.from = server.Database(b.t)
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY)")
	b.refused(b.name, b.source(), "wal_level", "logical", "restart")
}

func (b *bad) slotInUse() {
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	b.create(b.name, b.source())
	b.holds(b.from, "SELECT state FROM pg_stat_replication WHERE application_name LIKE '%"+b.name+"'", "streaming")
	b.refused(b.name+"_other", b.source().with("topic.prefix", "other"), "slot.name", b.name, "in use")

	// The slot is taken while the task is away.
	b.insist(http.MethodPut, "/connectors/"+b.name+"/stop", nil)
	b.holds(b.from, "SELECT active FROM pg_replication_slots WHERE slot_name = '"+b.name+"'", "f")
	u, err := url.Parse(b.from)
	require.NoError(b.t, err)
	u.RawQuery = "sslmode=disable&replication=database&wal_sender_timeout=0" // it does not answer the server
	thief, err := pgconn.Connect(b.t.Context(), u.String())
	require.NoError(b.t, err)
	defer thief.Close(b.t.Context())
	thief.Exec(b.t.Context(), "START_REPLICATION SLOT "+b.name+
		" LOGICAL 0/0 (proto_version '1', publication_names '"+b.name+"')")
	b.holds(b.from, "SELECT active FROM pg_replication_slots WHERE slot_name = '"+b.name+"'", "t")
	b.put(b.name, b.source().with("slot.max.retries", "2"))
	b.insist(http.MethodPut, "/connectors/"+b.name+"/resume", nil)
	b.fails(b.name, b.name, "55006", "pg_terminate_backend")
}

func (b *bad) slotDropped() {
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	b.create(b.name, b.source())
	b.create(b.name+"_sink", b.sink())
	b.holds(b.to, "SELECT * FROM t", "1")
	b.insist(http.MethodPut, "/connectors/"+b.name+"/stop", nil)
	b.holds(b.from, "SELECT active FROM pg_replication_slots WHERE slot_name = '"+b.name+"'", "f")
	b.in(b.from, "SELECT pg_drop_replication_slot('"+b.name+"')", "INSERT INTO t VALUES (2)")
	b.insist(http.MethodPut, "/connectors/"+b.name+"/resume", nil)
	b.fails(b.name, b.name, "slot", "snapshot")
	b.put(b.name, b.source().with("snapshot.mode", "when_needed"))
	b.holds(b.to, "SELECT * FROM t ORDER BY 1", "1", "2")
}

func (b *bad) slotLost() {
	b.server = pgtest.New(b.t, pgtest.Options{Settings: map[string]string{"max_slot_wal_keep_size": "1MB",
		"max_wal_size": "32MB"}})
	b.from, b.to = b.server.Database(b.t), b.server.Database(b.t)
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	b.create(b.name, b.source())
	b.create(b.name+"_sink", b.sink())
	b.holds(b.to, "SELECT * FROM t", "1")
	b.insist(http.MethodPut, "/connectors/"+b.name+"/stop", nil)
	b.holds(b.from, "SELECT active FROM pg_replication_slots WHERE slot_name = '"+b.name+"'", "f")
	for i := range 6 {
		b.in(b.from, fmt.Sprintf("INSERT INTO t VALUES (%d)", 10+i), "SELECT pg_switch_wal()", "CHECKPOINT")
	}
	b.holds(b.from, "SELECT wal_status FROM pg_replication_slots", "lost")
	b.insist(http.MethodPut, "/connectors/"+b.name+"/resume", nil)
	b.fails(b.name, b.name, "lost", "snapshot")
	b.put(b.name, b.source().with("snapshot.mode", "when_needed"))
	b.holds(b.to, "SELECT count(*) FROM t", "7")
}

func (b *bad) publicationLacks() {
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)",
		"CREATE PUBLICATION "+b.name+" FOR TABLE t")
	c := b.source().with("publication.autocreate.mode", "disabled")
	b.refused(b.name, c, "publication.name", b.name, "public.u", "ALTER PUBLICATION")
	b.in(b.from, "ALTER PUBLICATION "+b.name+" ADD TABLE u")
	b.create(b.name, c)
	b.awaitRunning(b.name)
}

func (b *bad) noKey() {
	b.in(b.from, "CREATE TABLE t (id int, v text)", "INSERT INTO t VALUES (1, 'a')")
	b.refused(b.name, b.source(), "public.t", "REPLICA IDENTITY")
	b.in(b.from, "ALTER TABLE t REPLICA IDENTITY FULL")
	b.create(b.name, b.source())
	b.create(b.name+"_sink", b.sink())
	b.fails(b.name+"_sink", b.name+".public.t", "key is null", "primary.key.mode")
	b.put(b.name+"_sink", b.sink().with("primary.key.mode", "none", "insert.mode", "insert", "delete.enabled", "false"))
	b.holds(b.to, "SELECT * FROM t", "1|a")
}

func (b *bad) sourceExtremes() {
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY, n numeric, f float8)", "INSERT INTO t VALUES (1, 'NaN', 1)")
	b.create(b.name, b.source())
	b.fails(b.name, "public.t", "column n", "decimal.handling.mode")
	b.put(b.name, b.source().with("decimal.handling.mode", "string"))
	b.create(b.name+"_sink", b.sink())
	b.holds(b.to, "SELECT * FROM t", "1|NaN|1")
	b.in(b.from, "INSERT INTO t VALUES (2, 'Infinity', 'NaN')")
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|NaN|1", "2|Infinity|NaN")
}

func (b *bad) sinkExtremes() {
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY, v smallint)")
	topic := b.name + "_t"
	b.produce(topic, value(1, "int64", "v", "7"), value(2, "int64", "v", "40000"), value(3, "int64", "v", "8"))
	b.create(topic, b.plain(topic).with("collection.name.format", "t"))
	b.fails(topic, "record 1 of partition 0 of topic "+topic, "column v", "table public.t", "22003")
	b.in(b.to, "ALTER TABLE t ALTER COLUMN v TYPE bigint")
	b.again(topic)
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|7", "2|40000", "3|8")
}

func (b *bad) infinity() {
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, d date)", "INSERT INTO t VALUES (1, 'infinity', "+
		"'-infinity')")
	c := b.source().with("time.precision.mode", "connect")
	b.create(b.name, c)
	b.create(b.name+"_sink", b.sink())
	b.holds(b.to, "SELECT * FROM t", "1|infinity|-infinity")
}

func (b *bad) nul() {
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY, v text)")
	topic := b.name + "_t"
	b.produce(topic, value(1, "string", "v", `"a"`), value(2, "string", "v", `"b\u0000c"`))
	c := b.plain(topic).with("collection.name.format", "t")
	b.create(topic, c)
	b.fails(topic, "record 1 of partition 0 of topic "+topic, "column v", "table public.t", "NUL", "text.nul=strip")
	b.put(topic, c.with("text.nul", "strip"))
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|a", "2|bc")
}

func (b *bad) invalidJSON() {
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY, v jsonb)")
	topic := b.name + "_t"
	b.produce(topic, value(1, "string", "v", `"{}"`), value(2, "string", "v", `"{no"`), value(3, "string", "v", `"3"`))
	c := b.plain(topic).with("collection.name.format", "t")
	b.create(topic, c)
	b.fails(topic, "record 1 of partition 0 of topic "+topic, "column v", "table public.t", "22P02")
	b.put(topic, c.with("errors.tolerance", "all", "errors.deadletterqueue.topic.name", topic+"_dead",
		"errors.deadletterqueue.topic.replication.factor", "3"))
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|{}", "3|3")
	b.holdsDead(topic+"_dead", 1)
}

// holdsDead waits until there are so many dead letters.
func (b *bad) holdsDead(topic string, count int) {
	b.t.Helper()
	for start := time.Now(); ; pause(b.t.Context(), 50*time.Millisecond) {
		code, answer, err := b.rest(1, http.MethodGet, "/v1/topics/"+topic+"/records?offset=earliest&max_records=100", nil)
		if err == nil && code == http.StatusOK && strings.Count(string(answer), `"offset":`) == count {
			return
		}
		require.Less(b.t, time.Since(start), patience, "%d %s %v", code, answer, err)
	}
}

func (b *bad) damagedJSON() {
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY, v text)")
	topic := b.name + "_t"
	b.produce(topic, value(1, "string", "v", `"a"`), "{no", value(3, "string", "v", `"c"`))
	c := b.plain(topic).with("collection.name.format", "t")
	b.create(topic, c)
	b.fails(topic, topic, "offset 1", "JSON")
	b.put(topic, c.with("errors.tolerance", "all", "errors.deadletterqueue.topic.name", topic+"_dead",
		"errors.deadletterqueue.topic.replication.factor", "3"))
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|a", "3|c")
	b.holdsDead(topic+"_dead", 1)
}

func (b *bad) columnDropped() {
	b.in(b.from, "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY, v text)")
	b.create(b.name, b.source())
	b.create(b.name+"_sink", b.sink().with("schema.evolution", "none"))
	b.holds(b.to, "SELECT * FROM t", "1|a")
	b.in(b.to, "ALTER TABLE t DROP COLUMN v")
	b.in(b.from, "INSERT INTO t VALUES (2, 'b')")
	b.fails(b.name+"_sink", "table public.t", "column v", "schema.evolution=basic")
	b.in(b.to, "ALTER TABLE t ADD COLUMN v text")
	b.again(b.name + "_sink")
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|∅", "2|b")
	// Dropped at the source, the column is left alone.
	b.in(b.from, "ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (3)")
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|∅", "2|b", "3|∅")
	b.in(b.to, "DROP TABLE t")
	b.in(b.from, "INSERT INTO t VALUES (4)")
	b.fails(b.name+"_sink", "no table t", "schema.evolution=basic")
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY)")
	b.again(b.name + "_sink")
	b.holds(b.to, "SELECT * FROM t", "4")
}

func (b *bad) notNull() {
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL)")
	topic := b.name + "_t"
	b.produce(topic, value(1, "string", "v", `"a"`), value(2, "string", "v", `null`))
	b.create(topic, b.plain(topic).with("collection.name.format", "t"))
	b.fails(topic, "record 1 of partition 0 of topic "+topic, "column v", "table public.t", "23502")
	b.in(b.to, "ALTER TABLE t ALTER COLUMN v DROP NOT NULL")
	b.again(topic)
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|a", "2|∅")
}

func (b *bad) longNames() {
	topic := b.name + "_" + strings.Repeat("t", 64)
	b.produce(topic, value(1, "string", "v", `"a"`))
	b.refused(topic, b.plain(topic), topic, "63")
	column := strings.Repeat("c", 64)
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY)")
	topic = b.name + "_t"
	b.produce(topic, value(1, "string", column, `"a"`))
	b.create(topic, b.plain(topic).with("collection.name.format", "t"))
	b.fails(topic, column, "63", "rename the field")
}

func (b *bad) twoSinks() {
	b.in(b.to, "CREATE TABLE t (id int PRIMARY KEY, v text)")
	topic := b.name + "_t"
	b.produce(topic, value(1, "string", "v", `"a"`))
	c := b.plain(topic).with("collection.name.format", "t")
	b.create(topic, c)
	for start := time.Now(); ; pause(b.t.Context(), 50*time.Millisecond) {
		code, answer, err := b.rest(2, http.MethodPost, "/connectors", map[string]any{"name": topic, "config": c})
		if err == nil && code == http.StatusConflict && strings.Contains(string(answer), topic) {
			break // other conflicts, and 503, are of a herd that shares out its work
		}
		require.True(b.t, err != nil || code == http.StatusConflict || code == http.StatusServiceUnavailable, string(answer))
		require.Less(b.t, time.Since(start), patience, "%d %s %v", code, answer, err)
	}
	b.holds(b.to, "SELECT * FROM t", "1|a")
	// One that goes by the other's name in the ledger takes nothing from it without a word.
	b.create(topic+"_2", c.with("offset.ledger.name", topic))
	b.fails(topic+"_2", topic, "ledger", "offset.ledger.name")
	b.produce(topic, value(2, "string", "v", `"b"`))
	b.holds(b.to, "SELECT * FROM t ORDER BY id", "1|a", "2|b")
}
