package cdc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/pgtest"
)

// alive waits until the server has heard of the slot's reader some more times, while nothing is read.
func (l *lab) alive(times int) {
	l.t.Helper()
	heard := map[string]bool{}
	for end := time.Now().Add(patience); len(heard) <= times; l.exec(`SELECT pg_sleep(0.05)`) {
		require.True(l.t, time.Now().Before(end), "the server has heard of the reader %d times", len(heard))
		var at *string
		err := l.db.QueryRow(context.Background(), `SELECT reply_time::text FROM pg_stat_replication WHERE pid IN
			(SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1)`, l.props["slot.name"]).Scan(&at)
		require.NoError(l.t, err, "the server has given the reader up")
		if at != nil {
			heard[*at] = true
		}
	}
}

// The server hears of a reader that is not read from, well within the time that it waits for one, although its own
// questions stand behind what is not read, and the settings have statuses be sent more seldom.
func TestServerHearsWhileNothingIsRead(t *testing.T) {
	// The server's patience is long enough for a machine that stutters, and a fourth of it is still waited for.
	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_sender_timeout": "8s"}})
	l := labOn(t, server, small).set("max.queue.size", "8", "max.batch.size", "10", "status.update.interval.ms", "600000")
	l.streaming()
	pid := l.slot("active_pid")
	const rows = 100_000 // more than all buffers between hold
	l.exec(fmt.Sprintf(`INSERT INTO t SELECT g, repeat('x', 300), g FROM generate_series(1, %d) g`, rows))
	l.until("the first rows", func() bool { return len(l.records) > 0 })
	l.alive(2)
	require.Equal(t, pid, l.slot("active_pid"), "the server has given the reader up")
	l.poll()
	require.NoError(t, l.task.Stored(context.Background()))
	require.Equal(t, pid, l.slot("active_pid"))
}
