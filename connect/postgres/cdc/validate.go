package cdc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// problems are what is wrong, each once.
type problems []plugin.Problem

func (p *problems) add(key, format string, args ...any) {
	found := plugin.Problem{Key: key, Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(*p, found) {
		*p = append(*p, found)
	}
}

// Validate looks at the database, and says what is missing there and by which SQL it comes.
func (c *connector) Validate(ctx context.Context, props map[string]string) []plugin.Problem {
	s, found := parseSettings(props)
	p := problems(found)
	for _, key := range []string{"database.hostname", "database.user", "database.dbname", "topic.prefix"} {
		if s.String(key) == "" {
			return p // that it is missing is said elsewhere
		}
	}
	if len(Defs().Check(props)) > 0 {
		return p
	}
	sql, err := openSQL(ctx, s)
	if err != nil {
		p.add(blame(err), "%v", err)
		return p
	}
	defer sql.Close(context.WithoutCancel(ctx))
	n := &session{s: s, sql: sql, logger: slog.New(slog.DiscardHandler)}
	if n.server, err = loadServer(ctx, sql); err != nil {
		p.add("database.hostname", "%v", err)
		return p
	}
	if err := n.checkServer(); err != nil {
		p.add("database.hostname", "%v", err)
	}
	if s.snapshot.streaming {
		n.validateReplication(ctx, &p)
		n.validateSlot(ctx, &p)
	}
	n.validateTables(ctx, &p)
	return p
}

// blame is the setting that an error of connecting is about.
func blame(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "3D000":
			return "database.dbname"
		case "28P01":
			return "database.password"
		case "28000", "42501", "42704":
			return "database.user"
		}
	}
	switch text := err.Error(); {
	case strings.Contains(text, "initial.statements"):
		return "database.initial.statements"
	case strings.Contains(text, "certificate"), strings.Contains(text, "TLS"), strings.Contains(text, "tls"):
		return "database.sslmode"
	}
	return "database.hostname"
}

// validateReplication sees whether a replication connection comes about.
func (n *session) validateReplication(ctx context.Context, p *problems) {
	if !n.server.replicate {
		p.add("database.user", "role %s may not replicate. Run: ALTER ROLE %s REPLICATION", n.server.role,
			postgres.Quote(n.server.role))
		return
	}
	c, err := openReplication(ctx, n.s)
	if err != nil {
		key := blame(err)
		if key == "database.hostname" || key == "database.password" {
			key = "database.user" // plain connections work
		}
		p.add(key, "%v", err)
		return
	}
	c.Close(ctx)
}

// validateSlot sees whether the slot is fit, or there is room for it.
func (n *session) validateSlot(ctx context.Context, p *problems) {
	x, err := loadSlot(ctx, n.sql, n.server, n.s.slot)
	if err == nil {
		err = n.checkSlot(x)
	}
	if err == nil && x.status == "lost" && !n.s.snapshot.onLoss { // else it is made anew
		err = n.lost()
	}
	if err != nil {
		p.add("slot.name", "%v", err)
		return
	}
	if x.exists {
		n.validateReader(ctx, x, p)
		return
	}
	var slots, most, senders, mostSenders int
	err = n.sql.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_replication_slots),
		current_setting('max_replication_slots')::int,
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'),
		current_setting('max_wal_senders')::int`).Scan(&slots, &most, &senders, &mostSenders)
	switch {
	case err != nil:
		p.add("slot.name", "%v", postgres.Explain(err, "count the slots"))
	case slots >= most:
		p.add("slot.name", "all %d replication slots are in use. Drop one that nobody needs (SELECT slot_name FROM "+
			"pg_replication_slots WHERE NOT active), or run: ALTER SYSTEM SET max_replication_slots = %d; and restart", most,
			most+5)
	case senders >= mostSenders:
		p.add("slot.name", "all %d walsenders are in use. Run: ALTER SYSTEM SET max_wal_senders = %d; and restart the server",
			mostSenders, mostSenders+5)
	}
}

// validateReader sees whether somebody else reads from the slot. A task that runs by this config, or by an earlier one
// of the same topic.prefix, is known by the name that it goes by at the server.
func (n *session) validateReader(ctx context.Context, x slot, p *problems) {
	if !x.active {
		return
	}
	var name, own string
	err := n.sql.QueryRow(ctx, `SELECT a.application_name, current_setting('application_name') FROM pg_stat_activity a
		WHERE a.pid = $1`, x.pid).Scan(&name, &own)
	if err == nil && name != own && name != "" {
		p.add("slot.name", "replication slot %s is in use: process %d, %q, reads from it. Give each connector a slot.name "+
			"of its own, or end the other one", n.s.slot, x.pid, name)
	}
}

// validateTables sees which tables are captured, and whether they can be.
func (n *session) validateTables(ctx context.Context, p *problems) {
	all, err := candidates(ctx, n.sql)
	if err != nil {
		p.add("database.user", "%v", err)
		return
	}
	var captured []candidate
	for _, t := range all {
		if n.s.captured(t.name) {
			captured = append(captured, t)
		}
	}
	if len(captured) == 0 && len(n.s.filter.tables.include) > 0 {
		p.add("table.include.list", "no table of database %s has a matching name; names are schema.table", n.s.database)
	}
	names := make([]tableName, 0, len(captured))
	for _, t := range captured {
		names = append(names, t.name)
	}
	if err := n.s.topicFault(names); err != nil {
		p.add("topic.prefix", "%v", err)
	}
	n.validateSignals(all, p)
	n.validateKeys(ctx, captured, p)
	if n.s.snapshot.streaming {
		n.validatePublication(ctx, all, captured, p)
	}
	if n.s.snapshot.initial || n.s.signals != (tableName{}) {
		n.validateRights(ctx, captured, p)
	}
}

func (n *session) validateSignals(all []candidate, p *problems) {
	if n.s.signals == (tableName{}) {
		return
	}
	if !slices.ContainsFunc(all, func(t candidate) bool { return t.name == n.s.signals }) {
		p.add("signal.data.collection", "table %s does not exist. Run: CREATE TABLE %s (id varchar(42) PRIMARY KEY, "+
			"type varchar(32) NOT NULL, data varchar(2048))", n.s.signals, n.s.signals.SQL())
	}
}

// validateKeys sees whether message.key.columns names columns that are there, and that the stream tells.
func (n *session) validateKeys(ctx context.Context, captured []candidate, p *problems) {
	for _, t := range captured {
		if err := n.keyFault(ctx, t.name); err != nil {
			p.add("message.key.columns", "%v", err)
		}
	}
}

// validatePublication sees whether the publication is there, or can be made.
func (n *session) validatePublication(ctx context.Context, all, captured []candidate, p *problems) {
	now, err := loadPublication(ctx, n.sql, n.s.publication)
	if err != nil {
		p.add("publication.name", "%v", err)
		return
	}
	made, err := n.s.planPublication(now, all)
	if err != nil {
		key := "publication.name"
		if !now.exists && strings.Contains(err.Error(), "REPLICA IDENTITY") {
			key = "table.include.list"
		}
		p.add(key, "%v", err)
		return
	}
	if made.sql != "" && now.exists {
		if made.sql, err = n.onlyIfOther(ctx, made.sql, all); err != nil {
			p.add("publication.name", "%v", err)
			return
		}
	}
	if made.sql == "" {
		if now.exists {
			n.validateMembers(ctx, p)
		}
		return
	}
	n.validateMaking(ctx, made.sql, captured, p)
}

// validateMembers sees whether the publication has the tables that are asked for.
func (n *session) validateMembers(ctx context.Context, p *problems) {
	list, err := loadPublished(ctx, n.sql, n.server.version, n.s.publication)
	if err != nil {
		p.add("publication.name", "%v", err)
		return
	}
	n.tables = map[tableName]published{}
	for _, t := range list {
		n.tables[t.name] = t
	}
	missing, err := n.missing(ctx)
	switch {
	case err != nil:
		p.add("publication.name", "%v", err)
	case len(missing) > 0:
		p.add("publication.name", "%v", missingError(n.s.publication, missing))
	}
}

// validateMaking sees whether the role may make the publication.
func (n *session) validateMaking(ctx context.Context, sql string, captured []candidate, p *problems) {
	if n.server.superuser {
		return
	}
	role := postgres.Quote(n.server.role)
	if strings.Contains(sql, "FOR ALL TABLES") {
		p.add("publication.autocreate.mode", "a publication of all tables takes a superuser. As one, run: %s; or set "+
			"publication.autocreate.mode to filtered", sql)
		return
	}
	var may bool
	err := n.sql.QueryRow(ctx, `SELECT has_database_privilege(current_database(), 'CREATE')`).Scan(&may)
	if err == nil && !may && strings.HasPrefix(sql, "CREATE") {
		p.add("publication.autocreate.mode", "role %s may not make a publication. Run: GRANT CREATE ON DATABASE %s TO %s; "+
			"or, as the tables' owner: %s", n.server.role, postgres.Quote(n.s.database), role, sql)
	}
	for _, t := range captured {
		err := n.sql.QueryRow(ctx, `SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1::text::regclass`,
			t.name.SQL()).Scan(&may)
		if err == nil && !may {
			p.add("publication.autocreate.mode", "only the owner of table %s can publish it. As the owner, run: %s",
				t.name, sql)
			return
		}
	}
}

// validateRights sees whether the role may read the tables.
func (n *session) validateRights(ctx context.Context, captured []candidate, p *problems) {
	for _, t := range captured {
		if !n.s.filter.snapshot.take(t.name.String()) {
			continue
		}
		var table, schema bool
		err := n.sql.QueryRow(ctx, `SELECT has_any_column_privilege(c.oid, 'SELECT'), has_schema_privilege(c.relnamespace,
			'USAGE') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`,
			t.name.Schema, t.name.Name).Scan(&table, &schema)
		role := postgres.Quote(n.server.role)
		switch {
		case err == pgx.ErrNoRows || err == nil && table && schema:
		case err != nil:
			p.add("database.user", "%v", postgres.Explain(err, "look at the rights on table "+t.name.String()))
		case !schema:
			p.add("database.user", "role %s may not use schema %s. Run: GRANT USAGE ON SCHEMA %s TO %s", n.server.role,
				t.name.Schema, postgres.Quote(t.name.Schema), role)
		default:
			p.add("database.user", "role %s may not read table %s. Run: GRANT SELECT ON %s TO %s", n.server.role, t.name,
				t.name.SQL(), role)
		}
	}
}
