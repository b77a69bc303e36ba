package cdc_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/connect/postgres/cdc"
	"millrace/connect/postgres/pgtest"
)

// fails polls until the task fails.
func (l *lab) fails(want ...string) {
	l.t.Helper()
	var err error
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
		_, err = l.tryPoll()
	}
	require.Error(l.t, err)
	for _, w := range want {
		require.ErrorContains(l.t, err, w)
	}
	l.stop()
}

// dropSlot drops the connector's slot once nobody uses it.
func (l *lab) dropSlot() {
	l.t.Helper()
	l.released()
	l.exec(`SELECT pg_drop_replication_slot('` + l.props["slot.name"] + `')`)
}

func begun(t *testing.T) *lab {
	l := newLab(t, small, `INSERT INTO t VALUES (1, 'a', 1)`)
	l.start()
	l.caughtUp("t")
	l.streaming()
	l.exec(`INSERT INTO t VALUES (2, 'a', 1)`)
	l.caughtUp("t")
	l.stop()
	l.released()
	return l
}

// released waits until the server has seen that nobody uses the slot any more.
func (l *lab) released() {
	l.t.Helper()
	for end := time.Now().Add(patience); l.slot("active") == "true"; {
		require.True(l.t, time.Now().Before(end), "the slot stays in use")
		l.exec(`SELECT pg_sleep(0.01)`)
	}
}

func TestSlotIsGone(t *testing.T) {
	l := begun(t)
	l.dropSlot()
	l.start()
	l.fails("does not exist", "DELETE /connectors/NAME/offsets", "when_needed")
	l.set("snapshot.mode", "when_needed").start()
	l.exec(`INSERT INTO t VALUES (3, 'a', 1)`)
	l.caughtUp("t")
	require.Len(t, l.count("p.public.t", "r"), 3)
}

func TestSlotMadeAnew(t *testing.T) {
	l := begun(t)
	l.dropSlot()
	l.exec(`INSERT INTO t VALUES (3, 'a', 1)`,
		`SELECT pg_create_logical_replication_slot('`+l.props["slot.name"]+`', 'pgoutput')`)
	l.start()
	l.fails("changes between the two are missing", "trust_slot")
	l.log = 8
	l.set("offset.mismatch.strategy", "trust_slot").start()
	l.exec(`INSERT INTO t VALUES (4, 'a', 1)`)
	l.until("the insert", func() bool { return len(l.records) == 3 })
}

func TestSlotReadBySomebodyElse(t *testing.T) {
	l := begun(t)
	l.exec(`INSERT INTO t VALUES (3, 'a', 1)`)
	var n int
	require.NoError(t, l.db.QueryRow(context.Background(), `SELECT count(*) FROM pg_logical_slot_get_binary_changes($1,
		NULL, NULL, 'proto_version', '1', 'publication_names', $2)`, l.props["slot.name"],
		l.props["publication.name"]).Scan(&n))
	require.NotZero(t, n)
	l.start()
	l.fails("changes between the two are missing")
}

func TestSlotInUse(t *testing.T) {
	l := begun(t)
	other := &lab{t: t, server: l.server, url: l.url, db: l.db, props: maps.Clone(l.props), log: 8}
	other.set("topic.prefix", "q", "slot.max.retries", "1")
	l.start()
	l.exec(`INSERT INTO t VALUES (4, 'a', 1)`)
	l.caughtUp("t")
	faults := cdc.Class().New().Validate(context.Background(), other.props)
	require.Len(t, faults, 1)
	require.Equal(t, "slot.name", faults[0].Key)
	require.Contains(t, faults[0].Message, l.slot("active_pid"))
	require.Empty(t, cdc.Class().New().Validate(context.Background(), l.props))
	other.offset = l.offset
	other.start()
	defer other.stop()
	other.log = 8
	other.fails("slot", "active", "pg_terminate_backend")
	l.exec(`INSERT INTO t VALUES (3, 'a', 1)`)
	l.caughtUp("t")
}

// It is told why nothing is read, until a connection has lasted for a while.
func TestTroubleIsTold(t *testing.T) {
	l := begun(t)
	l.start()
	l.exec(`INSERT INTO t VALUES (4, 'a', 1)`)
	l.caughtUp("t")
	heir := &lab{t: t, server: l.server, url: l.url, db: l.db, props: maps.Clone(l.props), log: 8, offset: l.offset}
	heir.start()
	defer heir.stop()
	heir.until("it waits for the slot", func() bool { return heir.trouble != nil })
	require.ErrorContains(t, heir.trouble, "capture database ")
	require.ErrorContains(t, heir.trouble, "is active")
	l.stop()
	heir.until("it reads", func() bool { return heir.trouble == nil })
	l.server.KillBackends(t, l.url)
	heir.until("the connection is lost", func() bool { return heir.trouble != nil })
	heir.until("it reads again", func() bool { return heir.trouble == nil })
}

// A slot that another one reads is in use, and is neither moved by somebody nor the end of a snapshot.
func TestSlotInUseBeforeASnapshot(t *testing.T) {
	l := begun(t)
	old := l.offset
	l.start()
	l.exec(`INSERT INTO t VALUES (4, 'a', 1)`)
	l.caughtUp("t")
	l.exec(`INSERT INTO t VALUES (5, 'a', 1)`)
	l.caughtUp("t")
	for _, offset := range []map[string]any{nil, old} {
		other := &lab{t: t, server: l.server, url: l.url, db: l.db, props: maps.Clone(l.props), log: 8}
		other.set("topic.prefix", "q", "slot.max.retries", "1", "slot.retry.delay.ms", "1", "snapshot.mode", "when_needed")
		other.offset = offset
		other.start()
		other.fails("slot", "active", "pg_terminate_backend")
		require.Empty(t, other.on("q.public.t"))
		require.Equal(t, offset, other.offset)
		other.stop()
	}
	l.exec(`INSERT INTO t VALUES (3, 'a', 1)`)
	l.caughtUp("t")
}

// A key that the replica identity does not have is not told of rows that are deleted or moved.
func TestKeyBeyondTheReplicaIdentity(t *testing.T) {
	l := newLab(t, small, `ALTER TABLE t REPLICA IDENTITY FULL`, `INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1)`)
	l.set("message.key.columns", "public.t:v")
	l.streaming()
	l.exec(`UPDATE t SET v = 'c' WHERE id = 2`)
	l.until("the move", func() bool { return len(l.on("p.public.t")) == 5 })
	require.Equal(t, []string{"r", "r", "d", "-", "c"}, l.ops("p.public.t"))
	l.exec(`ALTER TABLE t REPLICA IDENTITY DEFAULT`, `UPDATE t SET n = 2 WHERE id = 2`, `DELETE FROM t WHERE id = 1`)
	l.fails("message.key.columns", "table public.t", "REPLICA IDENTITY FULL")
	l.start()
	l.fails(`ALTER TABLE "public"."t" REPLICA IDENTITY FULL`)
	l.exec(`ALTER TABLE t REPLICA IDENTITY FULL`, `DELETE FROM t WHERE id = 2`)
	l.start()
	l.fails("event.processing.failure.handling.mode=warn")
	l.log = 8
	l.set("event.processing.failure.handling.mode", "warn").start()
	l.until("what comes after", func() bool { return len(l.on("p.public.t")) == 7 })
	require.Equal(t, map[string]int{l.on("p.public.t")[4].key: 1}, map[string]int{l.on("p.public.t")[5].key: 1})
}

func TestSlotIsLost(t *testing.T) {
	s := pgtest.New(t, pgtest.Options{Settings: map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB",
		"max_wal_size": "32MB"}})
	l := labOn(t, s, small)
	l.streaming()
	l.stop()
	for range 6 {
		l.exec(`SELECT pg_switch_wal()`, `INSERT INTO t SELECT g, repeat('x', 100), g FROM generate_series(1, 20000) g`,
			`TRUNCATE t`, `CHECKPOINT`)
	}
	require.Equal(t, "lost", l.slot("wal_status"))
	l.start()
	l.fails("is lost", "max_slot_wal_keep_size", "pg_drop_replication_slot")
	l.log = 8
	l.exec(`INSERT INTO t VALUES (1, 'a', 1)`)
	l.set("snapshot.mode", "when_needed").start()
	l.caughtUp("t")
}

func TestOtherSystem(t *testing.T) {
	l := begun(t)
	l.offset["sysid"] = "7"
	l.start()
	l.fails("another system")
}

func TestEarlierTimeline(t *testing.T) {
	l := begun(t)
	l.offset["timeline"] = 9
	l.start()
	l.fails("timeline 9")
}

func TestPublicationIsGone(t *testing.T) {
	l := begun(t)
	l.exec(`DROP PUBLICATION ` + l.props["publication.name"])
	l.start()
	l.fails("publication", "does not exist")
}

func TestPublicationLacksATable(t *testing.T) {
	l := newLab(t, small, `CREATE TABLE u (id int PRIMARY KEY)`)
	l.exec(`CREATE PUBLICATION ` + l.props["publication.name"] + ` FOR TABLE t`)
	l.set("table.include.list", "public.t,public.u").start()
	l.fails("does not have public.u", `ADD TABLE "public"."u"`)
	l.set("publication.autocreate.mode", "filtered").start()
	l.exec(`INSERT INTO u VALUES (1)`)
	l.caughtUp("u")
}

// A slot that somebody made before the publication still works: it begins where the publication is there.
func TestSlotOlderThanPublication(t *testing.T) {
	l := newLab(t, small)
	l.exec(`SELECT pg_create_logical_replication_slot('`+l.props["slot.name"]+`', 'pgoutput')`,
		`INSERT INTO t VALUES (1, 'a', 1)`)
	l.start()
	l.caughtUp("t")
	l.exec(`INSERT INTO t VALUES (2, 'a', 1)`)
	l.caughtUp("t")
	require.Equal(t, []string{"r", "c"}, l.ops("p.public.t"))
}

func TestSlotMadeBeforehand(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t VALUES (1, 'a', 1)`)
	l.exec(`CREATE PUBLICATION `+l.props["publication.name"]+` FOR ALL TABLES`,
		`SELECT pg_create_logical_replication_slot('`+l.props["slot.name"]+`', 'pgoutput')`,
		`INSERT INTO t VALUES (2, 'a', 1)`)
	l.start()
	l.caughtUp("t")
	l.exec(`INSERT INTO t VALUES (3, 'a', 1)`)
	l.caughtUp("t")
	require.Equal(t, []string{"r", "r", "c"}, l.ops("p.public.t"), "what the snapshot saw does not come again")
}

func TestOffsetOfDebezium(t *testing.T) {
	l := begun(t)
	var at int64
	require.NoError(t, l.db.QueryRow(context.Background(), `SELECT ($1::text::pg_lsn - '0/0')::bigint`,
		l.offset["commit_lsn"]).Scan(&at))
	l.offset = map[string]any{"lsn": float64(at), "lsn_commit": float64(at), "lsn_proc": float64(at), "txId": float64(700),
		"ts_usec": float64(1)}
	l.exec(`INSERT INTO t VALUES (3, 'a', 1)`)
	l.start()
	l.caughtUp("t")
	require.Equal(t, []string{"r", "c", "c"}, l.ops("p.public.t"))
}

// A row that can be no event fails the task, or is given away in its place with what it looked like, less what is
// masked.
func TestRowThatCannotBeAnEvent(t *testing.T) {
	l := newLab(t, `CREATE TABLE t (id int PRIMARY KEY, n numeric, secret text, left_out text)`,
		`INSERT INTO t VALUES (7, 'NaN', 'mine', 'x'), (8, 8, 'mine', 'x')`)
	l.set("column.mask.with.3.chars", "public.t.secret", "column.exclude.list", "public.t.left_out")
	l.start()
	l.fails("table public.t", "column n", "decimal.handling.mode=string")
	l.set("errors.tolerance", "all").start()
	l.until("the snapshot", func() bool { return len(l.records) == 1 && len(l.letters) == 1 })
	l.streaming()
	l.exec(`INSERT INTO t VALUES (1, 1, 'a'), (2, 'NaN', 'mine'), (3, 3, 'b')`, `UPDATE t SET n = 2 WHERE id = 2`,
		`UPDATE t SET id = 4, n = 'NaN' WHERE id = 3`)
	l.until("the rest", func() bool { return len(l.records) == 4 && len(l.letters) == 3 })
	require.Equal(t, map[string]any{"op": "r", "after": map[string]any{"id": "7", "n": "NaN"}}, l.letters[0].Value)
	require.Equal(t, map[string]any{"op": "c", "after": map[string]any{"id": "2", "n": "NaN"}}, l.letters[1].Value)
	require.Equal(t, map[string]any{"id": "4", "n": "NaN"}, l.letters[2].Value.(map[string]any)["after"])
	require.Equal(t, "p.public.t", l.letters[2].Topic)
	require.ErrorContains(t, l.letters[2].Fault, "column n")
	require.NotNil(t, l.letters[2].Source.Offset)
}

func TestValidate(t *testing.T) {
	l := newLab(t, small, signals, `CREATE TABLE keyless (v int)`)
	blame := func(changes ...string) []string {
		props := maps.Clone(l.props)
		for i := 0; i < len(changes); i += 2 {
			props[changes[i]] = changes[i+1]
		}
		var out []string
		for _, p := range cdc.Class().New().Validate(context.Background(), props) {
			require.NotContains(t, p.Message, pgtest.Password)
			out = append(out, p.Key+": "+p.Message)
		}
		return out
	}
	one := func(key, text string, changes ...string) {
		t.Helper()
		got := blame(changes...)
		require.Len(t, got, 1, strings.Join(got, "\n"))
		require.True(t, strings.HasPrefix(got[0], key+":"), got[0])
		require.Contains(t, got[0], text)
	}
	only := []string{"table.include.list", "public.t"}
	require.Empty(t, blame(only...))
	one("table.include.list", "public.keyless")
	one("database.password", "", append(only, "database.password", "wrong", "database.user",
		l.role("LOGIN REPLICATION"))...)
	one("database.dbname", "", append(only, "database.dbname", "nowhere")...)
	one("database.hostname", "", append(only, "database.port", "1")...)
	one("table.include.list", "no table", "table.include.list", "public.nothing")
	one("publication.name", "CREATE PUBLICATION", append(only, "publication.autocreate.mode", "disabled")...)
	one("signal.data.collection", "CREATE TABLE", append(only, "signal.data.collection", "public.signs")...)
	for _, p := range cdc.Defs().Check(map[string]string{"database.port": "99999"}) {
		require.True(t, p.Key != "database.port" || strings.Contains(p.Message, "65535"), p.Message)
	}
	refused := cdc.Defs().Check(map[string]string{"plugin.name": "wal2json"})
	require.True(t, slices.ContainsFunc(refused, func(p plugin.Problem) bool {
		return p.Key == "plugin.name" && strings.Contains(p.Message, "set plugin.name=pgoutput")
	}))
	one("topic.prefix", "249", append(only, "topic.prefix", letters(245))...)
	require.Empty(t, blame(append(only, "topic.prefix", letters(245), "transforms", "route")...))
	l.exec(`CREATE TABLE "a b" (id int PRIMARY KEY)`, `CREATE TABLE a_b (id int PRIMARY KEY)`)
	one("topic.prefix", "tables public.a b and public.a_b", "table.include.list", "public.a.b")
	l.exec(`DROP TABLE "a b"`, `CREATE PUBLICATION few FOR TABLE a_b`)
	one("publication.name", "public.t", "schema.include.list", "public", "table.exclude.list", "public.(keyless|sig)",
		"publication.name", "few", "publication.autocreate.mode", "disabled")
	one("message.key.columns", "no column x", append(only, "message.key.columns", "public.t:x")...)
	one("message.key.columns", `ALTER TABLE "public"."t" REPLICA IDENTITY FULL`,
		append(only, "message.key.columns", "public.t:v,id")...)
	require.Empty(t, blame(append(only, "message.key.columns", "public.t:v,id", "replica.identity.autoset.values",
		"public.t:FULL")...))
	role := l.role("LOGIN")
	got := strings.Join(blame(append(only, "database.user", role, "database.password", pgtest.Password)...), "\n")
	require.Contains(t, got, "ALTER ROLE \""+role+"\" REPLICATION")
	require.Contains(t, got, "GRANT SELECT ON")
	require.Contains(t, got, "only the owner of table public.t")
	l.exec(`SELECT pg_create_logical_replication_slot('` + l.props["slot.name"] + `', 'test_decoding')`)
	one("slot.name", "test_decoding", only...)
}

func (l *lab) role(attributes string) string {
	name, _ := l.server.Role(l.t, l.url, attributes)
	return name
}

func TestAlterOffsets(t *testing.T) {
	c := cdc.Class().New()
	props := map[string]string{"topic.prefix": "p"}
	for _, x := range []struct {
		partition, offset map[string]any
		ok                bool
	}{
		{map[string]any{"server": "p"}, map[string]any{"commit_lsn": "0/10"}, true},
		{map[string]any{"server": "p"}, map[string]any{"lsn": float64(16)}, true},
		{map[string]any{"server": "p"}, nil, true},
		{map[string]any{"server": "p"}, map[string]any{"commit_lsn": "x"}, false},
		{map[string]any{"server": "p"}, map[string]any{"place": 1}, false},
		{map[string]any{"server": "q"}, nil, false},
	} {
		_, err := c.AlterOffsets(context.Background(), props, []plugin.Offset{{Partition: x.partition, Offset: x.offset}})
		require.Equal(t, x.ok, err == nil, "%v %v: %v", x.partition, x.offset, err)
	}
}
