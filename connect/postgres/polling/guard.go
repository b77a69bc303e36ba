package polling

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A column that only grows does not grow in the order in which rows become visible: a transaction draws its number, or
// reads the time, and commits later, after others that drew later ones. So a reader that has seen number 2 may not go
// behind it while the transaction with number 1 is open.
//
// The guard takes a bound (the greatest number that is visible, or the time), and then asks which transactions are
// open. Whatever is not visible and lies below the bound is of one of these, for who begins later draws later. Once
// they have all ended, all below the bound is visible or never will be, and may be read. What it cannot see are numbers
// that were drawn in another transaction than the one that writes them: mode xid finds those rows too.

// marker is the advisory lock that sessions of pollers share, so that the guards of others do not wait for them. Nobody
// may want it alone: it would not be had while a poller runs.
const marker = 0x6d696c6c706f6c6c

// holdersSQL lists the open transactions of this database but our own, pollers' and those of maintenance, which write
// no rows. Prepared ones come last: one that is being prepared is in the first part or in the second.
var holdersSQL = fmt.Sprintf(`SELECT l.virtualtransaction FROM pg_catalog.pg_locks l
	JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid AND a.datname = current_database()
	WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
	AND l.pid NOT IN (SELECT m.pid FROM pg_catalog.pg_locks m WHERE m.locktype = 'advisory' AND m.pid IS NOT NULL
		AND m.classid = %d AND m.objid = %d AND m.objsubid = 1)
	AND l.pid NOT IN (SELECT pid FROM pg_catalog.pg_stat_progress_vacuum UNION ALL
		SELECT pid FROM pg_catalog.pg_stat_progress_analyze UNION ALL
		SELECT pid FROM pg_catalog.pg_stat_progress_create_index)
	UNION ALL SELECT 'prepared ' || p.transaction::text FROM pg_catalog.pg_prepared_xacts p
	WHERE p.database = current_database()`, marker>>32, marker&0xffffffff)

// guard keeps a table's reader behind open transactions.
type guard struct {
	ready   *int64          // all up to here, or below it for times, can be read
	pending *int64          // what comes after that
	holders map[string]bool // the transactions that pending waits for
	xmax    uint64          // on a standby: the transactions below are those
	since   time.Time       // when pending was taken
}

// look takes a bound where none is pending, and lets it be ready if nothing holds it. Observe gives the bound, nil if
// there is none.
func (g *guard) look(ctx context.Context, conn *pgx.Conn, observe func() (*int64, error)) error {
	first := g.pending == nil
	if first {
		bound, err := observe()
		if err != nil || bound == nil {
			return err
		}
		standby, xmax, err := recovery(ctx, conn)
		if err != nil {
			return err
		}
		if g.xmax = 0; standby {
			g.xmax = xmax
		}
		g.pending, g.since = bound, time.Now()
	}
	held, err := g.held(ctx, conn, first)
	if err == nil && !held {
		g.ready, g.pending = g.pending, nil
	}
	return err
}

// recovery says whether the server is a standby, whose transactions are open elsewhere and end in the order of the
// primary's log, and which numbers of transactions are to come.
func recovery(ctx context.Context, conn *pgx.Conn) (standby bool, xmax uint64, err error) {
	err = conn.QueryRow(ctx, `SELECT pg_is_in_recovery(), pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).
		Scan(&standby, &xmax)
	return standby, xmax, err
}

// held says whether transactions that the bound waits for are still open.
func (g *guard) held(ctx context.Context, conn *pgx.Conn, first bool) (bool, error) {
	if g.xmax > 0 {
		var xmin uint64
		err := conn.QueryRow(ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`).Scan(&xmin)
		return xmin < g.xmax, err
	}
	rows, err := conn.Query(ctx, holdersSQL)
	if err != nil {
		return false, err
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, err
	}
	now := map[string]bool{}
	for _, name := range open {
		now[name] = true
	}
	if first {
		g.holders = now
	}
	left := map[string]bool{}
	for name := range now {
		// One that was prepared since may be one of those that we wait for, under another name.
		if g.holders[name] || strings.HasPrefix(name, "prepared ") {
			left[name] = true
		}
	}
	g.holders = left
	return len(left) > 0, nil
}
