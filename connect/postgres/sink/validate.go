package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
	"millrace/migrations"
)

// Validate connects, and looks whether what the settings ask for can be done there.
func (c *connector) Validate(ctx context.Context, props map[string]string) []plugin.Problem {
	props = named(c.class, props)
	if faults := defsOf(c.class).Check(props); len(faults) > 0 {
		return nil // they are known
	}
	cfg, problems := readConfig(props)
	if cfg.conn == nil {
		return problems
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.conn)
	if err != nil {
		return append(problems, plugin.Problem{Key: blamed(cfg, err), Message: postgres.Explain(err, "connect").Error()})
	}
	defer conn.Close(ctx)
	v := &validation{cfg: cfg, names: namesOf(cfg.class), conn: conn, problems: problems}
	v.server(ctx)
	if cfg.ledger {
		v.ledger(ctx)
	}
	seen := map[string]bool{}
	for _, topic := range cfg.topics {
		name, ok := cfg.tableName(topic, func(string) (string, bool) { return "", false })
		if ok && !seen[name] {
			seen[name] = true
			v.table(ctx, name)
		}
	}
	return v.problems
}

// blamed is the setting that is to blame for a connection that was refused.
func blamed(cfg *config, err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return keyURL
	}
	switch {
	case pg.Code == "28P01":
		return keyPassword
	case strings.HasPrefix(pg.Code, "28"):
		return namesOf(cfg.class).user
	}
	return keyURL
}

type validation struct {
	cfg      *config
	names    names
	conn     *pgx.Conn
	problems []plugin.Problem
}

func (v *validation) fault(key, format string, args ...any) {
	v.problems = append(v.problems, plugin.Problem{Key: key, Message: fmt.Sprintf(format, args...)})
}

// ask asks a question of yes or no.
func (v *validation) ask(ctx context.Context, key, sql string, args ...any) (yes bool) {
	if err := v.conn.QueryRow(ctx, sql, args...).Scan(&yes); err != nil {
		v.fault(key, "%s", postgres.Explain(err, "look at the database"))
		return true // it was said once
	}
	return yes
}

func (v *validation) server(ctx context.Context) {
	if !v.ask(ctx, keyURL, "SELECT current_setting('server_version_num')::int >= 110000") {
		v.fault(keyURL, "the server is older than PostgreSQL 11")
	}
	if v.ask(ctx, keyURL, "SELECT pg_is_in_recovery()") {
		v.fault(keyURL, "the server is a standby, which cannot be written to: connect to the primary")
	}
}

// ledger checks that the ledger is there and may be written, or can be made.
func (v *validation) ledger(ctx context.Context) {
	schema := v.cfg.ledgerSchema
	if migrations.CheckSchema(schema) != nil {
		return
	}
	if !v.ask(ctx, keyLedgerSchema, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema) {
		if !v.ask(ctx, keyLedgerSchema, "SELECT has_database_privilege(current_database(), 'CREATE')") {
			v.fault(keyLedgerSchema, "there is no schema %s and the role may not create it: CREATE SCHEMA %s AUTHORIZATION %s, "+
				"or set %s=off", schema, schema, postgres.Quote(v.cfg.conn.User), keyLedger)
		}
		return
	}
	role := postgres.Quote(v.cfg.conn.User)
	if !v.ask(ctx, keyLedgerSchema, "SELECT has_schema_privilege($1, 'USAGE')", schema) {
		v.fault(keyLedgerSchema, "the role may not use schema %s: GRANT USAGE, CREATE ON SCHEMA %s TO %s", schema, schema,
			role)
		return
	}
	for _, name := range []string{"sink_offset", "millrace_ledger_version"} {
		table := schema + "." + name
		if !v.ask(ctx, keyLedgerSchema, "SELECT to_regclass($1) IS NOT NULL", table) {
			if !v.ask(ctx, keyLedgerSchema, "SELECT has_schema_privilege($1, 'CREATE')", schema) {
				v.fault(keyLedgerSchema, "there is no table %s and the role may not create it: GRANT CREATE ON SCHEMA %s TO %s",
					table, schema, role)
				return
			}
			continue
		}
		wanted := []string{"SELECT", "INSERT", "UPDATE"}
		if name != "sink_offset" {
			wanted = wanted[:1]
		}
		v.privileges(ctx, keyLedgerSchema, table, table, wanted)
	}
}

// privileges checks those on a table, given as the catalog finds it and as people write it.
func (v *validation) privileges(ctx context.Context, key, regclass, shown string, wanted []string) {
	var lacking []string
	for _, p := range wanted {
		if !v.ask(ctx, key, "SELECT has_table_privilege($1::regclass, $2)", regclass, p) {
			lacking = append(lacking, p)
		}
	}
	if lacking != nil {
		v.fault(key, "the role lacks privileges on table %s: GRANT %s ON %s TO %s", shown, strings.Join(lacking, ", "),
			regclass,
			postgres.Quote(v.cfg.conn.User))
	}
}

// table checks the table of a topic.
func (v *validation) table(ctx context.Context, name string) {
	schema, table, err := v.cfg.parseTable(name)
	if err != nil {
		v.fault(v.names.format, "%s", err)
		return
	}
	if schema != "" && !v.ask(ctx, v.names.format, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema) {
		v.fault(v.names.format, "there is no schema %s: CREATE SCHEMA %s, or change the setting", schema,
			postgres.Quote(schema))
		return
	}
	found, err := loadTable(ctx, v.conn, schema, table)
	switch {
	case err != nil:
		v.fault(v.names.format, "%s", postgres.Explain(err, "read table "+name))
	case found == nil:
		v.creatable(ctx, schema, name)
	default:
		v.writable(ctx, found)
	}
}

func (v *validation) creatable(ctx context.Context, schema, name string) {
	switch {
	case !v.cfg.create && v.names.evolution != "":
		v.fault(v.names.format, "there is no table %s: create it, or set %s=basic", name, v.names.evolution)
	case !v.cfg.create:
		v.fault(v.names.format, "there is no table %s: create it, or set %s=true", name, v.names.create)
	case !v.ask(ctx, v.names.format, "SELECT coalesce(has_schema_privilege(coalesce(nullif($1, ''), current_schema()), "+
		"'CREATE'), false)", schema):
		if schema == "" {
			schema = "public"
		}
		v.fault(v.names.format, "the role may not create table %s: GRANT CREATE ON SCHEMA %s TO %s", name,
			postgres.Quote(schema), postgres.Quote(v.cfg.conn.User))
	}
}

func (v *validation) writable(ctx context.Context, t *table) {
	wanted := map[string][]string{modeInsert: {"INSERT"}, modeUpsert: {"INSERT", "UPDATE", "SELECT"},
		modeUpdate: {"UPDATE", "SELECT"}}[v.cfg.mode]
	if v.cfg.deletes {
		wanted = append(wanted, "DELETE")
	}
	if v.cfg.truncates {
		wanted = append(wanted, "TRUNCATE")
	}
	quoted := postgres.QuoteTable(t.Schema, t.Name)
	v.privileges(ctx, v.names.format, quoted, t.String(), wanted)
	var keys []string
	switch {
	case v.cfg.pkMode == pkKafka && len(v.cfg.pkFields) == 0:
		keys = []string{"__connect_topic", "__connect_partition", "__connect_offset"}
	default:
		for _, f := range v.cfg.pkFields {
			keys = append(keys, v.cfg.column(f))
		}
	}
	for _, k := range keys {
		if _, ok := t.byName[k]; !ok && !v.cfg.evolve {
			v.fault(v.names.pkFields, "table %s has no column %s", t, k)
			return
		}
	}
	if v.cfg.mode != modeUpsert {
		return
	}
	if len(keys) == 0 && len(t.Unique) == 0 || len(keys) > 0 && !t.unique(keys) {
		v.fault(v.names.pkFields, "upserts need a unique index on exactly the columns of the key, and table %s has none "+
			"on (%s): CREATE UNIQUE INDEX ON %s (%s)", t, strings.Join(keys, ", "), quoted, quoteAll(keys))
	}
}
