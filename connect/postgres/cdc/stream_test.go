package cdc_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const small = `CREATE TABLE t (id int PRIMARY KEY, v text, n int)`

func TestSnapshotThenStream(t *testing.T) {
	l := newLab(t, small, `INSERT INTO t SELECT g, 'v' || g, g FROM generate_series(1, 100) g`)
	l.start()
	l.caughtUp("t")
	require.Len(t, l.records, 100)
	first, last := l.records[0], l.records[99]
	require.Equal(t, "first", first.source["snapshot"])
	require.Equal(t, "last", last.source["snapshot"])
	require.Equal(t, "true", l.records[50].source["snapshot"])
	l.exec(`INSERT INTO t VALUES (101, 'new', 1)`, `UPDATE t SET v = 'changed' WHERE id = 5`, `DELETE FROM t WHERE id = 7`,
		`UPDATE t SET id = 1000 WHERE id = 8`)
	l.caughtUp("t")
	require.Equal(t, []string{"c", "u", "d", "-", "d", "-", "c"}, l.ops("p.public.t")[100:])
	moved := l.records[104]
	require.Equal(t, map[string]any{"id": int32(1000)}, moved.headers["__debezium.newkey"])
	require.Equal(t, map[string]any{"id": int32(8)}, l.records[106].headers["__debezium.oldkey"])
	u := l.records[101]
	require.Nil(t, u.before)
	require.Equal(t, "false", u.source["snapshot"])
	require.Equal(t, "public", u.source["schema"])
	require.Equal(t, "t", u.source["table"])
	require.NotNil(t, u.source["txId"])
	require.Equal(t, "postgresql", u.headers["__debezium.context.connectorName"])
}

func TestRestartComesToTheSamePlace(t *testing.T) {
	l := newLab(t, small)
	l.start()
	l.until("the stream", func() bool { return l.slot("active") == "true" })
	for i := range 20 {
		l.exec(fmt.Sprintf(`INSERT INTO t VALUES (%d, 'x', 1)`, i))
		l.stop()
		l.start()
		l.caughtUp("t")
	}
	require.Len(t, l.records, 20)
}
