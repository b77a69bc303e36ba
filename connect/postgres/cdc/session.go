package cdc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"millrace/connect/postgres"
)

// session is what a task has of the database as long as its connections hold. When one breaks, all of it is thrown
// away, and another session goes on from the position that was stored.
type session struct {
	s       *settings
	logger  *slog.Logger
	sql     *pgx.Conn
	replica *pgconn.PgConn // until the stream takes it over
	server  server
	system  system

	seen   string                  // a view from before tables were read
	tables map[tableName]published // captured ones and the signal table
	// current are the tables as the stream last described them; all knows each shape that was seen. An unchanged
	// relation message so finds the same schemas.
	current map[uint32]*table
	all     map[string]*table
	builder *tableBuilder

	exported string // the name of the snapshot that the slot began with, as long as it can be imported
	read     *wholeRead
	stream   *stream
}

// system is what IDENTIFY_SYSTEM says.
type system struct {
	id       string
	timeline int
	at       lsn
}

// connect opens a session for SQL and, where there is something to stream, one for replication.
func connect(ctx context.Context, s *settings, logger *slog.Logger) (n *session, err error) {
	n = &session{s: s, logger: logger, current: map[uint32]*table{}, all: map[string]*table{}}
	defer func() {
		if err != nil {
			n.close()
			n = nil
		}
	}()
	if n.sql, err = openSQL(ctx, s); err != nil {
		return n, err
	}
	if n.server, err = loadServer(ctx, n.sql); err != nil {
		return n, err
	}
	n.builder = &tableBuilder{s: s, types: postgres.NewTypes()}
	n.builder.mapper = postgres.NewMapper(s.mapping, n.builder.types)
	if !s.snapshot.streaming {
		n.system, err = lookUp(ctx, n.sql)
		return n, err
	}
	if n.replica, err = openReplication(ctx, s); err != nil {
		return n, err
	}
	n.system, err = identify(ctx, n.replica)
	return n, err
}

// openSQL opens a session for SQL.
func openSQL(ctx context.Context, s *settings) (*pgx.Conn, error) {
	config, err := s.connection()
	if err != nil {
		return nil, err
	}
	maps.Copy(config.RuntimeParams, map[string]string{
		"statement_timeout": strconv.Itoa(s.Int("database.query.timeout.ms")),
		"lock_timeout":      "0", "idle_in_transaction_session_timeout": "0",
	})
	config.ConnectTimeout = connectTimeout
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, postgres.Explain(err, "connect to the database")
	}
	if _, err := c.Exec(ctx, stayIdle); err != nil {
		return nil, errors.Join(postgres.Explain(err, "connect to the database"), c.Close(ctx))
	}
	if text := s.String("database.initial.statements"); text != "" {
		// Two semicolons stand for one that is meant.
		text = strings.ReplaceAll(text, ";;", "\x00")
		for sql := range strings.SplitSeq(text, ";") {
			if sql = strings.TrimSpace(strings.ReplaceAll(sql, "\x00", ";")); sql == "" {
				continue
			}
			if _, err := c.Exec(ctx, sql); err != nil {
				return nil, errors.Join(postgres.Explain(err, "run database.initial.statements"), c.Close(ctx))
			}
		}
	}
	return c, nil
}

const connectTimeout = 15 * time.Second

// stayIdle lets a session be idle for as long as another one reads a table. Not all servers know the setting.
const stayIdle = `SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'`

// openReplication opens a session for replication.
func openReplication(ctx context.Context, s *settings) (*pgconn.PgConn, error) {
	config, err := s.connection()
	if err != nil {
		return nil, err
	}
	maps.Copy(config.RuntimeParams, map[string]string{
		"replication": "database", "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0",
	})
	config.ConnectTimeout = connectTimeout
	c, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		return nil, postgres.Explain(err, "connect for replication, which takes a role with REPLICATION and a line of "+
			"pg_hba.conf that lets it in")
	}
	if _, err := command(ctx, c, stayIdle); err != nil {
		return nil, errors.Join(postgres.Explain(err, "connect for replication"), c.Close(ctx))
	}
	return c, nil
}

// identify asks which system this is.
func identify(ctx context.Context, c *pgconn.PgConn) (s system, err error) {
	rows, err := command(ctx, c, "IDENTIFY_SYSTEM")
	if err != nil {
		return s, postgres.Explain(err, "identify the system")
	}
	if len(rows) != 1 || len(rows[0]) < 3 {
		return s, errors.New("the server does not say which system it is")
	}
	s.id = string(rows[0][0])
	if s.timeline, err = strconv.Atoi(string(rows[0][1])); err == nil {
		s.at, err = parseLSN(string(rows[0][2]))
	}
	return s, err
}

// lookUp asks which system this is, as a role that may not replicate. One that may not know has none.
func lookUp(ctx context.Context, c *pgx.Conn) (s system, err error) {
	var at string
	err = c.QueryRow(ctx, `SELECT system_identifier::text, timeline_id, CASE WHEN pg_is_in_recovery()
		THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END::text
		FROM pg_control_system(), pg_control_checkpoint()`).Scan(&s.id, &s.timeline, &at)
	if postgres.FaultOf(err) == postgres.Denied {
		return system{}, nil
	}
	if err != nil {
		return s, postgres.Explain(err, "identify the system")
	}
	s.at, err = parseLSN(at)
	return s, err
}

// command runs a replication command and gives its rows.
func command(ctx context.Context, c *pgconn.PgConn, sql string) (rows [][][]byte, err error) {
	results, err := c.Exec(ctx, sql).ReadAll()
	for _, r := range results {
		rows = append(rows, r.Rows...)
	}
	return rows, err
}

// switchPoint is where a timeline ended, 0 if it has not.
func (n *session) switchPoint(ctx context.Context, timeline int) (lsn, error) {
	rows, err := command(ctx, n.replica, fmt.Sprintf("TIMELINE_HISTORY %d", n.system.timeline))
	if err != nil {
		return 0, postgres.Explain(err, "read the history of timelines")
	}
	if len(rows) != 1 || len(rows[0]) < 2 {
		return 0, errors.New("the server does not give the history of its timelines")
	}
	return parseHistory(string(rows[0][1]), timeline)
}

func parseHistory(text string, timeline int) (lsn, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == strconv.Itoa(timeline) {
			return parseLSN(fields[1])
		}
	}
	return 0, fmt.Errorf("the history of the server's timelines does not have timeline %d", timeline)
}

// close ends the session's connections, within about a second.
func (n *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n.stream != nil {
		n.stream.close()
	}
	if n.read != nil {
		n.read.abandon()
	}
	if n.replica != nil {
		n.replica.Close(ctx)
	}
	if n.sql != nil {
		n.sql.Close(ctx)
	}
}

// slot is what the catalog says of a replication slot.
type slot struct {
	exists, active   bool
	plugin, database string
	pid              int
	confirmed        lsn
	status           string // reserved, extended, unreserved, lost; "" before version 13
	retained, lag    int64
}

func slotQuery(s server) string {
	status, end := "wal_status", "pg_current_wal_lsn()"
	if s.version < 130000 {
		status = "''"
	}
	if s.standby {
		end = "pg_last_wal_replay_lsn()"
	}
	return `SELECT true, active, coalesce(plugin, ''), coalesce(database, ''), coalesce(active_pid, 0),
	coalesce(confirmed_flush_lsn::text, '0/0'), coalesce(` + status + `, ''),
	coalesce((` + end + ` - restart_lsn)::bigint, 0), coalesce((` + end + ` - confirmed_flush_lsn)::bigint, 0)
	FROM pg_replication_slots WHERE slot_name = $1`
}

func loadSlot(ctx context.Context, c *pgx.Conn, s server, name string) (x slot, err error) {
	var confirmed string
	err = c.QueryRow(ctx, slotQuery(s), name).Scan(&x.exists, &x.active, &x.plugin, &x.database, &x.pid, &confirmed,
		&x.status, &x.retained, &x.lag)
	if err == pgx.ErrNoRows {
		return slot{}, nil
	}
	if err != nil {
		return slot{}, postgres.Explain(err, "look at replication slot "+name)
	}
	x.confirmed, err = parseLSN(confirmed)
	return x, err
}

// createSlot makes the slot and says where it begins. The snapshot of that moment can be imported as long as nothing
// else is done on the connection.
func (n *session) createSlot(ctx context.Context) (lsn, error) {
	option := "EXPORT_SNAPSHOT"
	if n.server.version >= 150000 {
		option = "(SNAPSHOT 'export')"
		if n.server.version >= 170000 && n.s.Bool("slot.failover") {
			option = "(SNAPSHOT 'export', FAILOVER true)"
		}
	}
	rows, err := command(ctx, n.replica, fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput %s",
		postgres.Quote(n.s.slot), option))
	if err != nil {
		return 0, postgres.Explain(err, "create replication slot "+n.s.slot)
	}
	if len(rows) != 1 || len(rows[0]) < 3 {
		return 0, errors.New("the server does not say where its new slot begins")
	}
	n.exported = string(rows[0][2])
	n.logger.Info("replication slot created", "lsn", string(rows[0][1]))
	return parseLSN(string(rows[0][1]))
}

// describe is the table that a relation message, or the catalog, describes. A shape that was seen before is the same
// table, unless its key, of which a relation message does not always tell, is another one by now.
func (n *session) describe(ctx context.Context, rel *relation) (*table, error) {
	shape := rel.shape()
	known := n.all[shape]
	if known != nil && rel.Identity != 'f' && rel.Identity != 'n' {
		return known, nil
	}
	catalog, err := n.catalog(ctx, rel)
	if err != nil {
		return nil, err
	}
	if known != nil && slices.Equal(known.rowKey, places(rel, rowKey(rel, catalog))) {
		return known, nil
	}
	t, err := n.builder.build(rel, catalog)
	if err != nil {
		return nil, err
	}
	if len(n.all) > 10000 {
		clear(n.all)
	}
	n.all[shape] = t
	return t, nil
}

// catalog reads what the catalog has of a table and its types; nil if the table is gone.
func (n *session) catalog(ctx context.Context, rel *relation) (*postgres.Table, error) {
	oids := []uint32{pgtype.TextOID}
	for _, c := range rel.Columns {
		oids = append(oids, c.Type)
	}
	// An enum may have labels that were not there when it was last looked at.
	for _, oid := range oids {
		if k, _ := n.builder.types.Resolve(oid, -1); k != nil && k.Kind == postgres.Enum {
			n.builder.types.Forget(k.OID)
			oids = append(oids, k.OID)
		}
	}
	if err := n.builder.types.Load(ctx, n.sql, oids); err != nil {
		return nil, postgres.Explain(err, "read the types of table "+rel.Schema+"."+rel.Name)
	}
	found, err := postgres.LoadTablesByOID(ctx, n.sql, []uint32{rel.OID})
	if err != nil || len(found) != 1 {
		return nil, postgres.Explain(err, "read the catalog of table "+rel.Schema+"."+rel.Name)
	}
	return found[0], nil
}

// relation is what describes a table as it is.
func (t *table) relation() *relation {
	return &relation{OID: t.oid, Schema: t.name.Schema, Name: t.name.Name, Identity: t.identity, Columns: t.wire}
}

// relax describes a table anew without the catalog's promises, which the stream has broken.
func (n *session) relax(_ context.Context, t *table) (*table, error) {
	keys := make([]string, 0, len(t.rowKey))
	for _, i := range t.rowKey {
		keys = append(keys, t.wire[i].Name)
	}
	return n.rebuilt(t, &postgres.Table{PrimaryKey: keys})
}

// relabel describes a table anew with the labels that its enums have now.
func (n *session) relabel(ctx context.Context, t *table) (*table, error) {
	catalog, err := n.catalog(ctx, t.relation())
	if err != nil {
		return nil, err
	}
	return n.rebuilt(t, catalog)
}

// lenient describes a table anew whose enums have lost labels since.
func (n *session) lenient(ctx context.Context, t *table) (*table, error) {
	n.builder.lenient = true
	defer func() { n.builder.lenient = false }()
	return n.relabel(ctx, t)
}

func (n *session) rebuilt(t *table, catalog *postgres.Table) (*table, error) {
	k, err := n.builder.build(t.relation(), catalog)
	if err == nil {
		n.all[t.relation().shape()] = k
	}
	return k, err
}
