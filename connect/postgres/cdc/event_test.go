package cdc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/cdc"
)

// streaming starts a task and waits until it streams.
func (l *lab) streaming() {
	l.t.Helper()
	if l.task == nil {
		l.start()
	}
	l.until("the stream", func() bool {
		var n int
		err := l.db.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_replication 
			WHERE application_name = 'millrace p'
			AND pid IN (SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1) AND state = 'streaming'`,
			l.props["slot.name"]).Scan(&n)
		require.NoError(l.t, err)
		return n > 0
	})
}

func (l *lab) wait(n int) []*event {
	l.t.Helper()
	l.until(fmt.Sprint(n, " records"), func() bool { return len(l.records) >= n })
	require.Len(l.t, l.records, n)
	return l.records
}

const toast = `CREATE TABLE t (id int PRIMARY KEY, other int NOT NULL UNIQUE, big text, small text);
	ALTER TABLE t ALTER big SET STORAGE EXTERNAL`

func insertToast(id int) string {
	return fmt.Sprintf(`INSERT INTO t SELECT %d, %d, string_agg(md5(g::text), ''), 's' FROM generate_series(1, 500) g`,
		id, id+100)
}

func TestUnchangedLargeValues(t *testing.T) {
	for _, identity := range []string{"DEFAULT", "FULL", "USING INDEX t_other_key"} {
		t.Run(strings.Fields(identity)[0], func(t *testing.T) {
			l := newLab(t, toast, `ALTER TABLE t REPLICA IDENTITY `+identity)
			l.streaming()
			l.exec(insertToast(1), `UPDATE t SET small = 'changed'`, `UPDATE t SET id = 2, other = 7`,
				`UPDATE t SET big = 'short'`,
				`DELETE FROM t`)
			l.until("the delete", func() bool { return len(l.on("p.public.t")) >= 8 })
			list := l.on("p.public.t")
			require.Len(t, list, 8)
			u, moved := list[1], list[4]
			if identity == "FULL" {
				require.Len(t, u.after["big"], 16000)
				require.Nil(t, u.headers["__unavailable"])
				require.Equal(t, "s", u.before["small"])
				require.Len(t, list[6].before["big"], len("short"))
			} else {
				require.Equal(t, "__debezium_unavailable_value", u.after["big"])
				require.Equal(t, []any{"big"}, u.headers["__unavailable"])
				require.Nil(t, u.before)
			}
			require.Equal(t, "c", moved.op)
			if identity != "FULL" {
				// The value was read again, and was short by then, or not there any more.
				require.Contains(t, []any{"short", "__debezium_unavailable_value"}, moved.after["big"])
			}
			if strings.HasPrefix(identity, "USING") {
				require.Equal(t, fmt.Sprint(map[string]any{"other": int32(101)}), list[0].key)
				require.Equal(t, int32(7), list[6].before["other"])
				require.Nil(t, list[6].before["id"])
			}
		})
	}
}

// Schemas have lists of one dimension; what was declared with more is text, in the snapshot and in the stream.
func TestArraysOfSeveralDimensions(t *testing.T) {
	l := newLab(t, `CREATE TABLE t (id int PRIMARY KEY, m int[][])`, `INSERT INTO t VALUES (1, '{{1,2},{3,4}}')`)
	l.start()
	l.until("the snapshot comes", func() bool { return len(l.on("p.public.t")) == 1 })
	l.exec(`INSERT INTO t VALUES (2, '{{5},{NULL}}')`)
	l.until("the row comes", func() bool { return len(l.on("p.public.t")) == 2 })
	for i, want := range []string{"{{1,2},{3,4}}", "{{5},{NULL}}"} {
		require.Equal(t, want, l.on("p.public.t")[i].after["m"])
	}
}

func TestMovedRowIsReadAgain(t *testing.T) {
	l := newLab(t, toast)
	l.streaming()
	l.exec(insertToast(1), `UPDATE t SET id = 2`)
	l.until("the move", func() bool { return len(l.on("p.public.t")) >= 4 })
	moved := l.on("p.public.t")[3]
	require.Len(t, moved.after["big"], 16000)
	require.Nil(t, moved.headers["__unavailable"])
}

func TestReplicaIdentityNothing(t *testing.T) {
	l := newLab(t, small, `ALTER TABLE t REPLICA IDENTITY NOTHING`)
	l.start()
	_, err := l.tryPoll()
	require.ErrorContains(t, err, "public.t: without a primary key or a replica identity")
	l.stop()
	l.exec(`CREATE PUBLICATION ` + l.props["publication.name"] + ` FOR TABLE t WITH (publish = 'insert')`)
	l.streaming()
	l.exec(`INSERT INTO t VALUES (1, 'x', 1)`, `UPDATE t SET v = 'y'`, `INSERT INTO t VALUES (2, 'x', 1)`)
	l.until("both", func() bool { return len(l.on("p.public.t")) == 2 })
}

func TestNoKey(t *testing.T) {
	l := newLab(t, `CREATE TABLE n (v text, w int)`, `INSERT INTO n SELECT 'a', g FROM generate_series(1, 3) g`)
	l.set("replica.identity.autoset.values", "public.n:FULL")
	l.streaming()
	l.exec(`UPDATE n SET v = 'b' WHERE w = 2`, `DELETE FROM n WHERE w = 3`)
	l.until("the delete", func() bool { return len(l.on("p.public.n")) >= 5 })
	list := l.on("p.public.n")
	require.Equal(t, []string{"r", "r", "r", "u", "d"}, l.ops("p.public.n"))
	require.Nil(t, list[3].record.Key)
	require.Equal(t, map[string]any{"v": "a", "w": int32(2)}, list[3].before)
}

// Tables that nobody asked for do not begin to refuse updates.
func TestPublicationHurtsNobody(t *testing.T) {
	l := newLab(t, small, `CREATE TABLE keyless (v int)`, `INSERT INTO keyless VALUES (1)`,
		`CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)`, `INSERT INTO late VALUES (1)`)
	l.set("table.include.list", "public.t")
	l.streaming()
	l.exec(`UPDATE keyless SET v = 2`, `UPDATE late SET id = 2`, `INSERT INTO t VALUES (1, 'a', 1)`)
	l.caughtUp("t")
	l.set("table.include.list", "public.late", "publication.name", "another", "slot.name", "another")
	found := cdc.Class().New().Validate(t.Context(), l.props)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Message, `ALTER TABLE "public"."late" REPLICA IDENTITY FULL`)
}

func TestTruncateAndSkippedOperations(t *testing.T) {
	l := newLab(t, small, `CREATE TABLE u (id int PRIMARY KEY)`)
	l.set("skipped.operations", "d")
	l.streaming()
	l.exec(`INSERT INTO t VALUES (1, 'a', 1)`, `DELETE FROM t`, `TRUNCATE t, u`, `INSERT INTO t VALUES (2, 'a', 1)`)
	l.until("the insert", func() bool { return len(l.records) >= 4 })
	require.Equal(t, []string{"c", "t", "c"}, l.ops("p.public.t"))
	truncated := l.on("p.public.t")[1]
	require.Nil(t, truncated.record.Key)
	require.Nil(t, truncated.after)
	require.Equal(t, []string{"t"}, l.ops("p.public.u"))
	l.stop()
	l = newLab(t, small)
	l.streaming()
	l.exec(`INSERT INTO t VALUES (1, 'a', 1)`, `TRUNCATE t`, `INSERT INTO t VALUES (2, 'a', 1)`)
	l.until("the insert", func() bool { return len(l.records) >= 2 })
	require.Equal(t, []string{"c", "c"}, l.ops("p.public.t"), "truncations are not wanted by default")
}

func TestLogicalMessages(t *testing.T) {
	l := newLab(t, small)
	l.set("message.prefix.exclude.list", "secret.*")
	l.streaming()
	l.exec(`SELECT pg_logical_emit_message(false, 'free', 'one')`,
		`SELECT pg_logical_emit_message(true, 'secret.x', 'no')`,
		`BEGIN; INSERT INTO t VALUES (1, 'a', 1); SELECT pg_logical_emit_message(true, 'in', '\x00ff'::bytea); COMMIT`)
	l.until("the messages", func() bool { return len(l.records) >= 3 })
	l.stop()
	l.streaming()
	l.exec(`INSERT INTO t VALUES (2, 'a', 1)`)
	l.until("the insert", func() bool { return len(l.records) >= 4 })
	list := l.on("p.message")
	require.Len(t, list, 2)
	require.Equal(t, "m", list[0].op)
	require.Equal(t, fmt.Sprint(map[string]any{"prefix": "free"}), list[0].key)
	require.Equal(t, "\x00\xff", plain(list[1].record.Value).(map[string]any)["message"].(map[string]any)["content"])
}

func TestTransactionMetadata(t *testing.T) {
	l := newLab(t, small, `CREATE TABLE u (id int PRIMARY KEY)`)
	l.set("provide.transaction.metadata", "true", "max.batch.size", "3")
	l.streaming()
	l.exec(`BEGIN; INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 10) g; INSERT INTO u VALUES (1); COMMIT`)
	l.until("the end", func() bool { return len(l.on("p.transaction")) >= 2 })
	list := l.on("p.transaction")
	end := plain(list[1].record.Value).(map[string]any)
	require.Equal(t, "END", end["status"])
	require.Equal(t, int64(11), end["event_count"])
	require.Equal(t, []any{
		map[string]any{"data_collection": "public.t", "event_count": int64(10)},
		map[string]any{"data_collection": "public.u", "event_count": int64(1)}}, end["data_collections"])
	require.Equal(t, int64(7), l.on("p.public.t")[6].block["total_order"])
	require.Equal(t, int64(1), l.on("p.public.u")[0].block["data_collection_order"])
	require.Equal(t, end["id"], l.on("p.public.u")[0].block["id"])
}

func TestColumnsMasksAndKeys(t *testing.T) {
	l := newLab(t, `CREATE TABLE t (id int PRIMARY KEY, mail text, secret text, note text, region text NOT NULL)`,
		`ALTER TABLE t REPLICA IDENTITY FULL`)
	l.set("column.exclude.list", `public\.t\.secret`, "column.mask.with.5.chars", `public.t.mail`,
		"column.truncate.to.3.chars", `public.t.note`, "message.key.columns", "public.t:region,id",
		"column.propagate.source.type", "public.t.mail")
	l.streaming()
	l.exec(`INSERT INTO t VALUES (1, 'a@b', 'hidden', 'äöüß', 'eu')`, `UPDATE t SET region = 'us'`, `DELETE FROM t`)
	l.until("the delete", func() bool { return len(l.records) >= 4 })
	c := l.records[0]
	require.Equal(t, map[string]any{"id": int32(1), "mail": "*****", "note": "äöü", "region": "eu"}, c.after)
	require.Equal(t, map[string]any{"region": "eu", "id": int32(1)}, plain(c.record.Key))
	field := c.record.ValueSchema.Fields[1].Schema
	require.Equal(t, "TEXT", field.Fields[1].Schema.Parameters["__debezium.source.column.type"])
}

func TestHeartbeats(t *testing.T) {
	l := newLab(t, `CREATE TABLE beats (id int PRIMARY KEY, n int)`, `INSERT INTO beats VALUES (1, 0)`)
	l.set("heartbeat.interval.ms", "100", "heartbeat.action.query", "UPDATE beats SET n = n + 1")
	l.start()
	l.until("heartbeats", func() bool { return len(l.on("__debezium-heartbeat.p")) >= 3 })
	l.until("what they do", func() bool { return len(l.count("p.public.beats", "u")) >= 1 })
	require.Equal(t, fmt.Sprint(map[string]any{"serverName": "p"}), l.on("__debezium-heartbeat.p")[0].key)
}

func TestPartitions(t *testing.T) {
	setup := `CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
		CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (100);
		CREATE TABLE high PARTITION OF parted FOR VALUES FROM (100) TO (200);
		INSERT INTO parted VALUES (1, 'a'), (101, 'b')`
	l := newLab(t, setup)
	l.set("publish.via.partition.root", "true")
	l.start()
	l.caughtUp("parted")
	l.exec(`UPDATE parted SET v = 'c'`, `INSERT INTO parted VALUES (2, 'd')`)
	l.caughtUp("parted")
	require.Len(t, l.records, 5)
	l.stop()
	l = newLab(t, setup)
	l.start()
	l.caughtUp("low")
	l.exec(`UPDATE parted SET v = 'c'`)
	l.caughtUp("low")
	l.caughtUp("high")
	require.Empty(t, l.on("p.public.parted"))
}

func TestGeneratedColumns(t *testing.T) {
	l := newLab(t, `CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)`,
		`INSERT INTO t VALUES (1, 1)`)
	l.start()
	l.until("the snapshot", func() bool { return len(l.records) == 1 })
	l.exec(`INSERT INTO t VALUES (2, 2)`)
	l.until("the insert", func() bool { return len(l.records) == 2 })
	require.Equal(t, map[string]any{"id": int32(1), "n": int32(1)}, l.records[0].after)
	require.Same(t, l.records[0].record.ValueSchema, l.records[1].record.ValueSchema)
}

func TestPublicationRowFilterAndColumnList(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t SELECT g, 'v', g FROM generate_series(1, 10) g`)
	l.exec(`CREATE PUBLICATION ` + l.props["publication.name"] + ` FOR TABLE t (id, n) WHERE (id > 5)`)
	l.start()
	l.until("the snapshot", func() bool { return len(l.records) >= 5 })
	l.exec(`INSERT INTO t VALUES (0, 'x', 1), (11, 'x', 1)`)
	l.until("the insert", func() bool { return len(l.records) >= 6 })
	require.Len(t, l.records, 6)
	require.Equal(t, map[string]any{"id": int32(11), "n": int32(1)}, l.records[5].after)
}

// A type may be gone by the time that rows with it are read: their values come as text.
func TestTypeIsGone(t *testing.T) {
	l := newLab(t, `CREATE TYPE mood AS ENUM ('sad', 'glad')`,
		`CREATE TABLE t (id int PRIMARY KEY, m mood, list mood[])`)
	l.streaming()
	l.stop()
	l.exec(`INSERT INTO t VALUES (1, 'glad', '{sad,glad}')`, `ALTER TABLE t DROP m, DROP list`, `DROP TYPE mood`,
		`INSERT INTO t VALUES (2)`)
	l.start()
	events := l.wait(2)
	require.Equal(t, map[string]any{"id": int32(1), "m": "glad", "list": "{sad,glad}"}, events[0].after)
	require.Equal(t, map[string]any{"id": int32(2)}, events[1].after)
}

// Schemas come from the stream, which may be behind the catalog.
func TestSchemaChanges(t *testing.T) {
	l := newLab(t, small, `CREATE TYPE mood AS ENUM ('sad', 'ok')`)
	l.streaming()
	l.exec(`INSERT INTO t VALUES (1, 'a', 1)`, `ALTER TABLE t ADD c int NOT NULL DEFAULT 5`,
		`INSERT INTO t VALUES (2, 'b', 2)`,
		`ALTER TABLE t DROP v`, `INSERT INTO t VALUES (3, 3, 6)`, `ALTER TABLE t RENAME n TO m`,
		`INSERT INTO t VALUES (4, 4, 6)`,
		`ALTER TABLE t ALTER m TYPE text`, `INSERT INTO t VALUES (5, '5', 6)`, `ALTER TABLE t ADD mood mood`,
		`INSERT INTO t VALUES (6, '6', 6, 'ok')`, `ALTER TYPE mood ADD VALUE 'happy'`,
		`INSERT INTO t VALUES (7, '7', 6, 'happy')`,
		`ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, c)`, `INSERT INTO t VALUES (8, '8', 6)`)
	list := l.wait(8)
	require.Equal(t, map[string]any{"id": int32(1), "v": "a", "n": int32(1)}, list[0].after)
	require.Equal(t, map[string]any{"id": int32(2), "v": "b", "n": int32(2), "c": int32(5)}, list[1].after)
	require.Equal(t, map[string]any{"id": int32(3), "n": int32(3), "c": int32(6)}, list[2].after)
	require.Equal(t, map[string]any{"id": int32(4), "m": int32(4), "c": int32(6)}, list[3].after)
	require.Equal(t, map[string]any{"id": int32(5), "m": "5", "c": int32(6)}, list[4].after)
	require.Equal(t, "happy", list[6].after["mood"])
	allowed := func(i int) string {
		row := list[i].record.ValueSchema.Fields[1].Schema
		return row.Fields[row.Field("mood")].Schema.Parameters["allowed"]
	}
	require.Equal(t, "sad,ok,happy", allowed(6))
	require.Equal(t, fmt.Sprint(map[string]any{"id": int32(8), "c": int32(6)}), list[7].key)
}

// A table that sends whole rows does not say which columns are its key.
func TestKeyOfWholeRowsChanges(t *testing.T) {
	l := newLab(t, small, `ALTER TABLE t REPLICA IDENTITY FULL`)
	l.streaming()
	l.exec(`INSERT INTO t VALUES (1, 'a', 1)`)
	l.wait(1)
	l.exec(`ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (n, id)`, `INSERT INTO t VALUES (2, 'b', 2)`)
	list := l.wait(2)
	require.Equal(t, fmt.Sprint(map[string]any{"id": int32(1)}), list[0].key)
	require.Equal(t, fmt.Sprint(map[string]any{"n": int32(2), "id": int32(2)}), list[1].key)
	require.Equal(t, "n", list[1].record.KeySchema.Fields[0].Name)
}
