package cdc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/connect/postgres"
)

// prepare makes sure of publication and slot, and says where to go on: at the position given, nil if there is none, or
// at a new one. Its errors that are not the connection's end the task: each says what to do.
func (n *session) prepare(ctx context.Context, at *position) (*position, error) {
	if err := n.checkServer(); err != nil {
		return nil, err
	}
	if !n.s.snapshot.streaming {
		return n.snapshotOnly(ctx, at)
	}
	if at != nil {
		if err := n.checkSystem(ctx, at); err != nil {
			return nil, err
		}
	}
	x, err := loadSlot(ctx, n.sql, n.server, n.s.slot)
	if err != nil {
		return nil, err
	}
	if err := n.checkSlot(x); err != nil {
		return nil, err
	}
	if x.active {
		return nil, n.inUse(x)
	}
	before, err := n.view(ctx)
	if err != nil {
		return nil, err
	}
	made, err := n.ensurePublication(ctx, at)
	if err != nil {
		return nil, err
	}
	if n.seen, err = n.view(ctx); err != nil {
		return nil, err
	}
	if err := n.loadTables(ctx); err != nil {
		return nil, err
	}
	if err := n.checkKeys(ctx); err != nil {
		return nil, err
	}
	if at == nil {
		return n.begin(ctx, x, made)
	}
	if at.seen == "" {
		at.seen = before
	}
	return n.resume(ctx, at, x)
}

func (n *session) checkServer() error {
	switch s := n.server; {
	case s.version < 100000:
		return fmt.Errorf("the server is older than PostgreSQL 10, which has no pgoutput")
	case !n.s.snapshot.streaming:
		return nil
	case s.walLevel != "logical":
		return fmt.Errorf("wal_level is %s; it must be logical. Run: ALTER SYSTEM SET wal_level = logical; and restart "+
			"the server (managed services have a parameter for it, such as rds.logical_replication)", s.walLevel)
	case s.standby && s.version < 160000:
		return fmt.Errorf("the server is a standby, where logical decoding takes PostgreSQL 16; connect to its primary")
	}
	return nil
}

// checkSystem refuses a place that is of another server, or of a history that this one does not have.
func (n *session) checkSystem(ctx context.Context, at *position) error {
	if at.taken {
		at.sysid, at.timeline = n.system.id, n.system.timeline
		return nil
	}
	if at.sysid != n.system.id {
		return fmt.Errorf("the database is another system (%s) than the stored offset is of (%s): places in one's log mean "+
			"nothing in the other's. Connect to the right server, or, to begin anew with a snapshot, stop the connector, "+
			"delete its offsets (DELETE /connectors/NAME/offsets) and resume it", n.system.id, at.sysid)
	}
	if n.system.timeline < at.timeline {
		return fmt.Errorf("the server is on timeline %d, and the stored offset is of the later timeline %d: it was restored "+
			"from a backup, or is an old primary. Connect to the right server, or stop the connector, delete its offsets and "+
			"resume it for a new snapshot", n.system.timeline, at.timeline)
	}
	if n.system.timeline > at.timeline {
		end, err := n.switchPoint(ctx, at.timeline)
		if err != nil {
			return err
		}
		if at.commit > end {
			return fmt.Errorf("the server took over at %s, and changes up to %s were read from the one before, which this one "+
				"never got. Stop the connector, delete its offsets and resume it for a new snapshot", end, at.commit)
		}
		n.logger.Warn("the server is on a new timeline", "before", at.timeline, "now", n.system.timeline, "switch",
			end.String())
		at.timeline = n.system.timeline
	}
	return nil
}

func (n *session) checkSlot(x slot) error {
	switch {
	case !x.exists:
		return nil
	case x.plugin != "pgoutput":
		return fmt.Errorf("replication slot %s is of plugin %q, not pgoutput: set slot.name to another name, or drop it: "+
			"SELECT pg_drop_replication_slot('%s')", n.s.slot, x.plugin, n.s.slot)
	case x.database != n.s.database:
		return fmt.Errorf("replication slot %s is of database %s: set slot.name to another name", n.s.slot, x.database)
	}
	return nil
}

// inUse is what the server would say when the stream begins. It is said before that: what the slot's user moves on is
// not missing, and a snapshot that no stream can follow is no use.
func (n *session) inUse(x slot) error {
	return &pgconn.PgError{Severity: "ERROR", Code: "55006",
		Message: fmt.Sprintf("replication slot %q is active for PID %d", n.s.slot, x.pid)}
}

// loadTables reads what the publication has, and refuses where a table that is asked for by name is missing.
func (n *session) loadTables(ctx context.Context) error {
	if err := n.loadMembers(ctx); err != nil {
		return err
	}
	missing, err := n.missing(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	return missingError(n.s.publication, missing)
}

// loadMembers reads what the publication has.
func (n *session) loadMembers(ctx context.Context) error {
	list, err := loadPublished(ctx, n.sql, n.server.version, n.s.publication)
	if err != nil {
		return err
	}
	n.tables = map[tableName]published{}
	captured := 0
	var names []tableName
	for _, p := range list {
		if n.s.captured(p.name) {
			n.tables[p.name] = p
			names = append(names, p.name)
		}
		if n.s.filter.table(p.name) {
			captured++
		}
	}
	if limit := n.s.Int("guardrail.collections.max"); limit > 0 && captured > limit {
		text := fmt.Sprintf("%d tables are captured, more than guardrail.collections.max, %d", captured, limit)
		if n.s.Lower("guardrail.collections.limit.action") == "fail" {
			return fmt.Errorf("%s", text)
		}
		n.logger.Warn(text)
	}
	return n.s.topicFault(names)
}

// missing are tables that are asked for by name and that the publication does not have. A table whose partitions, or
// whose root, it has is not missing.
func (n *session) missing(ctx context.Context) (out []tableName, err error) {
	named := len(n.s.filter.tables.include) > 0 || len(n.s.filter.schemas.include) > 0
	if !named && n.s.signals == (tableName{}) {
		return nil, nil
	}
	all, err := candidates(ctx, n.sql)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if _, ok := n.tables[t.name]; ok || !n.s.captured(t.name) || t.kind == 'p' || t.partition {
			continue
		}
		if !named && t.name != n.s.signals {
			continue
		}
		out = append(out, t.name)
	}
	return out, nil
}

func missingError(publication string, missing []tableName) error {
	var names, sql []string
	for _, t := range missing {
		names, sql = append(names, t.String()), append(sql, t.SQL())
	}
	return fmt.Errorf("publication %q does not have %s. Run: ALTER PUBLICATION %s ADD TABLE %s; or set "+
		"publication.autocreate.mode to filtered", publication, strings.Join(names, ", "), postgres.Quote(publication),
		strings.Join(sql, ", "))
}

// begin starts without an offset.
func (n *session) begin(ctx context.Context, x slot, made bool) (*position, error) {
	p := &position{sysid: n.system.id, timeline: n.system.timeline, slot: n.s.slot, seen: n.seen, scope: n.s.filter.scope}
	var err error
	switch {
	case x.exists && x.status == "lost":
		return nil, n.lost()
	case !x.exists:
		p.commit, err = n.createSlot(ctx)
	case made:
		// The slot is older than the publication, and would fail on the first change from before it.
		p.commit, err = n.advance(ctx)
	default:
		p.commit = x.confirmed
		n.logger.Info("replication slot found", "lsn", x.confirmed.String())
	}
	if err != nil {
		return nil, err
	}
	if n.s.snapshot.initial {
		err = n.planSnapshot(ctx, p, false)
	}
	return p, err
}

// bounds finds where the tables that are read in chunks end in one view: what comes after that is in the stream. It is
// the view that the slot begins with, if that can still be had, and is good for all of them. Else what the new view
// sees of them is hidden from the stream. A table that is empty there is read.
func (n *session) bounds(ctx context.Context, state *snapshotState) error {
	if len(state.Chunks) == 0 {
		return nil
	}
	for {
		err := n.boundsInView(ctx, state)
		if err != errRewritten {
			return err
		}
		n.exported = ""
	}
}

func (n *session) boundsInView(ctx context.Context, state *snapshotState) (err error) {
	var view string
	var until lsn
	if n.exported != "" {
		err = importView(ctx, n.sql, n.exported)
	} else {
		view, until, err = openView(ctx, n.sql, n.server, newRecent())
	}
	if err != nil {
		return postgres.Explain(err, "begin the snapshot")
	}
	defer func() {
		if _, e := n.sql.Exec(ctx, "ROLLBACK"); err == nil {
			err = e
		}
	}()
	var keep []chunkedTable
	for _, c := range state.Chunks {
		k, p, err := n.fromCatalog(ctx, n.sql, c.Table)
		if err != nil {
			return err
		}
		if k == nil {
			continue // it is gone
		}
		if err := bound(ctx, n.sql, &c, k, p); err != nil {
			return err
		}
		if err := checkView(ctx, n.sql, k); err != nil {
			return err
		}
		if c.Max != nil {
			keep = append(keep, c)
		}
	}
	for _, c := range keep {
		state.hide(c.Table, view, until)
	}
	state.Chunks = keep
	return nil
}

// errViewEnded says that the connection which made the slot has ended, and what it exported with it.
var errViewEnded = errors.New("the connection that holds the slot's snapshot has ended")

// importView begins a transaction that sees what the slot begins with.
func importView(ctx context.Context, c *pgx.Conn, exported string) error {
	_, err := c.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT "+
		postgres.QuoteLiteral(exported))
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "22023" || pg.Code == "42704") { // PostgreSQL 16 and later say the second
		return errViewEnded
	}
	return postgres.Explain(err, "begin the snapshot")
}

// advance moves an idle slot to the end of the log.
func (n *session) advance(ctx context.Context) (lsn, error) {
	var at string
	err := n.sql.QueryRow(ctx, `SELECT end_lsn::text FROM pg_replication_slot_advance($1, pg_current_wal_lsn())`,
		n.s.slot).Scan(&at)
	if err != nil {
		return 0, postgres.Explain(err, "advance replication slot "+n.s.slot+" past what is older than the publication")
	}
	return parseLSN(at)
}

// resume goes on from an offset, if the server still has what comes after it.
func (n *session) resume(ctx context.Context, at *position, x slot) (*position, error) {
	n.exported = ""
	switch {
	case !x.exists || x.status == "lost":
		why := n.lost()
		if !x.exists {
			why = fmt.Errorf("replication slot %s does not exist, and changes after %s are to be read from it. Nobody else "+
				"can have them. Set slot.name right, or %s", n.s.slot, at.commit, anew)
		}
		if !n.s.snapshot.onLoss {
			return nil, why
		}
		n.logger.Warn("the snapshot is taken anew, as snapshot.mode allows", "err", why)
		return n.again(ctx, x)
	case at.slot != "" && at.slot != n.s.slot:
		n.logger.Warn("the offset was stored with another slot", "before", at.slot, "now", n.s.slot)
	}
	at.slot = n.s.slot
	if x.confirmed > at.commit {
		if err := n.mismatch(at, x); err != nil {
			if !n.s.snapshot.onLoss {
				return nil, err
			}
			n.logger.Warn("the snapshot is taken anew, as snapshot.mode allows", "err", err)
			return n.again(ctx, x)
		}
	}
	if n.s.snapshot.always {
		n.s.snapshot.always = false // of this start, not of each connection
		return at, n.planSnapshot(ctx, at, true)
	}
	return at, nil
}

// anew says how to begin anew.
const anew = "stop the connector, delete its offsets (DELETE /connectors/NAME/offsets) and resume it: it then takes " +
	"a new snapshot. snapshot.mode=when_needed does so by itself"

func (n *session) lost() error {
	return fmt.Errorf("replication slot %s is lost: the server has dropped log that it still needed, as "+
		"max_slot_wal_keep_size tells it to. Drop it, SELECT pg_drop_replication_slot('%s'), and %s", n.s.slot, n.s.slot,
		anew)
}

// mismatch is about a slot that is further than what is stored: somebody else has used or made it.
func (n *session) mismatch(at *position, x slot) error {
	switch n.s.Lower("offset.mismatch.strategy") {
	case "trust_slot", "trust_greater_lsn":
		n.logger.Warn("changes are missing: the slot is further than what is stored, and offset.mismatch.strategy "+
			"trusts it", "confirmed", x.confirmed.String(), "stored", at.commit.String())
		at.commit, at.txn, at.seq = x.confirmed, 0, 0
		return nil
	}
	return fmt.Errorf("replication slot %s is at %s, and what is stored ends at %s: changes between the two are missing, "+
		"as the slot was read by somebody else or made anew. To go on without them, set "+
		"offset.mismatch.strategy=trust_slot; else %s", n.s.slot, x.confirmed, at.commit, anew)
}

// again begins anew with a slot of its own, in place of one that is lost.
func (n *session) again(ctx context.Context, x slot) (*position, error) {
	if x.exists {
		if _, err := n.sql.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, n.s.slot); err != nil {
			return nil, postgres.Explain(err, "drop replication slot "+n.s.slot)
		}
	}
	p, err := n.begin(ctx, slot{}, false)
	if err == nil && p.snap == nil {
		err = n.planSnapshot(ctx, p, false)
	}
	return p, err
}

// planSnapshot notes which tables are to be read, and how. Again: what happened to them up to here was given away.
func (n *session) planSnapshot(ctx context.Context, p *position, again bool) error {
	p.snap = &snapshotState{Again: again}
	limit := n.s.Int64("millrace.snapshot.small.rows")
	for _, name := range n.snapshotTables() {
		if t := n.tables[name]; n.s.snapshot.streaming && n.chunkable(t) && t.rows > limit {
			p.snap.Chunks = append(p.snap.Chunks, chunkedTable{Table: name})
		} else {
			p.snap.Todo = append(p.snap.Todo, name)
		}
	}
	err := n.bounds(ctx, p.snap)
	p.snap.Again = again && len(p.snap.Todo) > 0
	return err
}

// chunkable says whether a table can be read in the order of a key.
func (n *session) chunkable(t published) bool {
	return t.hasKey && n.s.overrides[t.name.String()] == ""
}

// snapshotTables are the captured tables whose rows are to be read, in order.
func (n *session) snapshotTables() (out []tableName) {
	for name := range n.tables {
		if name == n.s.signals || !n.s.filter.table(name) || !n.s.filter.snapshot.take(name.String()) {
			continue
		}
		out = append(out, name)
	}
	sortTables(out)
	return out
}

// snapshotOnly starts where nothing is streamed: neither slot nor publication are needed.
func (n *session) snapshotOnly(ctx context.Context, at *position) (*position, error) {
	all, err := candidates(ctx, n.sql)
	if err != nil {
		return nil, err
	}
	n.tables = map[tableName]published{}
	for _, t := range all {
		if n.s.filter.table(t.name) && !t.partition {
			n.tables[t.name] = published{name: t.name, kind: t.kind}
		}
	}
	if at != nil {
		return at, nil
	}
	p := &position{sysid: n.system.id, timeline: n.system.timeline, commit: n.system.at}
	if n.s.snapshot.initial {
		return p, n.planSnapshot(ctx, p, false)
	}
	return p, nil
}
