package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"millrace/connect/postgres"
)

// waiter is a row that waits for others.
type waiter struct {
	row *row
	err error // why it failed; nil: an earlier row of its key waits
}

// careful writes rows in the order of their records, so that bad ones are found and reported and all others written. A
// row that refers to one which is not there waits until all others are written, and so do those of its key behind it.
func (w *write) careful(ctx context.Context, rows []*row) error {
	w.waiting, w.held = nil, map[string]bool{}
	if err := w.halve(ctx, rows); err != nil {
		return err
	}
	for len(w.waiting) > 0 {
		again := w.waiting
		w.waiting, w.held = nil, map[string]bool{}
		for _, wt := range again {
			if err := w.halve(ctx, []*row{wt.row}); err != nil {
				return err
			}
		}
		if len(w.waiting) < len(again) {
			continue
		}
		if err := w.giveUp(ctx); err != nil {
			return err
		}
	}
	return nil
}

// orphanTries is how often a batch is tried before rows that refer to others which are not there are bad ones: those
// may be on their way by another topic, or another task.
const orphanTries = 3

// orphanError is a row that refers to one which is not there yet.
type orphanError struct{ err error }

func (e *orphanError) Error() string { return e.err.Error() }
func (e *orphanError) Unwrap() error { return e.err }

func isOrphan(err error) bool {
	var e *orphanError
	return errors.As(err, &e)
}

// giveUp reports rows that waited in vain: those that others wait behind, or else all that failed.
func (w *write) giveUp(ctx context.Context) error {
	behind := map[string]bool{}
	for _, wt := range w.waiting {
		if wt.err == nil {
			behind[wt.row.heldBy()] = true
		}
	}
	waiting := w.waiting
	w.waiting = nil
	tries := orphanTries
	if w.cfg.retries >= 0 {
		tries = min(tries, w.cfg.retries)
	}
	if w.failures < tries {
		for _, wt := range waiting {
			if wt.err != nil {
				return &orphanError{fmt.Errorf("%s: %w", where(wt.row.record), wt.err)}
			}
		}
	}
	for _, wt := range waiting {
		if wt.err == nil || len(behind) > 0 && !behind[wt.row.heldBy()] {
			w.waiting = append(w.waiting, wt)
			continue
		}
		if err := w.bad(ctx, wt.row.record, wt.err); err != nil {
			return err
		}
	}
	return nil
}

// heldBy is the name by which a row's key is held.
func (r *row) heldBy() string {
	if r.key == "" {
		return ""
	}
	return r.t.String() + "\x00" + r.key
}

// halve writes rows, and where that fails halves of them, each within a savepoint.
func (w *write) halve(ctx context.Context, rows []*row) error {
	if rows = w.free(rows); len(rows) == 0 {
		return nil
	}
	if err := w.conn.simple(ctx, "SAVEPOINT millrace"); err != nil {
		return postgres.Explain(err, "set a savepoint")
	}
	written, deleted := w.written, w.deleted
	failed := w.apply(ctx, rows)
	if failed == nil {
		return postgres.Explain(w.conn.simple(ctx, "RELEASE SAVEPOINT millrace"), "release a savepoint")
	}
	if !perRecord(failed) {
		return failed
	}
	w.written, w.deleted = written, deleted
	if err := w.conn.simple(ctx, "ROLLBACK TO SAVEPOINT millrace; RELEASE SAVEPOINT millrace"); err != nil {
		return postgres.Explain(err, "go back to a savepoint")
	}
	if len(rows) > 1 {
		if err := w.halve(ctx, rows[:len(rows)/2]); err != nil {
			return err
		}
		return w.halve(ctx, rows[len(rows)/2:])
	}
	var pg *pgconn.PgError
	if errors.As(failed, &pg) {
		switch at, known := rows[0].t.byName[pg.ColumnName]; {
		case pg.Code == "23503":
			w.wait(waiter{rows[0], failed})
			return nil
		case pg.Code == "23502" && known && rows[0].full != nil && !rows[0].full.has[at]: // no record has it
			return schemaFault("column %s of table %s must not be null, has no default, and is no field of the records: %w",
				pg.ColumnName, rows[0].t, failed)
		}
	}
	if at := w.blame(ctx, rows[0], failed); at != "" {
		failed = fmt.Errorf("column %s: %w", at, failed)
	}
	return w.bad(ctx, rows[0].record, failed)
}

// wait puts a row behind all others.
func (w *write) wait(wt waiter) {
	w.waiting = append(w.waiting, wt)
	if k := wt.row.heldBy(); k != "" {
		w.held[k] = true
	}
}

// free is the rows less those whose key waits, which wait behind it.
func (w *write) free(rows []*row) []*row {
	if len(w.held) == 0 {
		return rows
	}
	out := make([]*row, 0, len(rows))
	for _, r := range rows {
		if w.held[r.heldBy()] {
			w.wait(waiter{row: r})
			continue
		}
		out = append(out, r)
	}
	return out
}

// maxProbes bounds for how many bad records of a batch the column at fault is looked for.
const maxProbes = 100

// blame finds the column whose value the server cannot read, where it does not say so itself: COPY does. "": it is not
// found.
func (w *write) blame(ctx context.Context, r *row, failed error) string {
	var pg *pgconn.PgError
	if !errors.As(failed, &pg) || !strings.HasPrefix(pg.Code, "22") || pg.ColumnName != "" || r.op != opWrite ||
		w.probes >= maxProbes {
		return ""
	}
	w.probes++
	if w.conn.simple(ctx, "SAVEPOINT millrace") != nil {
		return ""
	}
	err := w.conn.simple(ctx, "CREATE TEMPORARY TABLE millrace_probe ON COMMIT DROP AS SELECT "+
		quoteAll(r.set.names(r.set.columns))+" FROM "+r.set.table()+" LIMIT 0")
	if err == nil {
		err = w.conn.copyTo(ctx, "COPY pg_temp.millrace_probe FROM STDIN", &w.arena, []*row{r}, r.set.columns)
	}
	_ = w.conn.simple(ctx, "ROLLBACK TO SAVEPOINT millrace; RELEASE SAVEPOINT millrace") // or the next statement fails
	if !errors.As(err, &pg) {
		return ""
	}
	_, after, _ := strings.Cut(pg.Where, ", column ")
	for _, name := range r.set.names(r.set.columns) {
		if strings.HasPrefix(after, name+":") {
			return name
		}
	}
	return ""
}
