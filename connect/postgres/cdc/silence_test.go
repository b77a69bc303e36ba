package cdc_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/pgtest"
)

// The server hears of a reader that is not read from for longer than it waits for one, although its own questions stand
// behind what is not read, and the settings have statuses be sent more seldom.
func TestServerHearsWhileNothingIsRead(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_sender_timeout": "1s"}})
	l := labOn(t, server, small).set("max.queue.size", "8", "max.batch.size", "10", "status.update.interval.ms", "10000")
	l.start()
	l.until("the stream", func() bool { return l.slot("active") == "true" })
	pid := l.slot("active_pid")
	const rows = 100_000 // more than all buffers between hold
	l.exec(fmt.Sprintf(`INSERT INTO t SELECT g, repeat('x', 300), g FROM generate_series(1, %d) g`, rows))
	for len(l.records) == 0 {
		l.poll()
	}
	l.exec(`SELECT pg_sleep(3)`)
	require.Equal(t, pid, l.slot("active_pid"), "the server has given the reader up")
	l.poll()
	require.NoError(t, l.task.Stored(context.Background()))
	require.Equal(t, pid, l.slot("active_pid"))
}
