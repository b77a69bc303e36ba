package cdc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/connect/postgres"
)

// server is what a session knows of the database server.
type server struct {
	version   int // 150018
	standby   bool
	superuser bool
	replicate bool // the role may
	walLevel  string
	role      string
}

const serverQuery = `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), r.rolsuper,
	r.rolreplication OR r.rolsuper OR EXISTS (SELECT FROM pg_roles m WHERE m.rolname IN ('rds_replication',
		'rds_superuser', 'azure_pg_admin', 'cloudsqlsuperuser') AND pg_has_role(r.oid, m.oid, 'member')),
	current_setting('wal_level'), r.rolname
	FROM pg_roles r WHERE r.rolname = current_user`

func loadServer(ctx context.Context, c *pgx.Conn) (s server, err error) {
	err = c.QueryRow(ctx, serverQuery).Scan(&s.version, &s.standby, &s.superuser, &s.replicate, &s.walLevel, &s.role)
	return s, postgres.Explain(err, "look at the server")
}

// published is a table of a publication, as the stream will show it.
type published struct {
	name    tableName
	kind    byte
	columns []string // nil: all
	where   string
	rows    int64 // an estimate
	hasKey  bool  // by which the server can name a row
}

// publishedQuery lists tables. Column lists and row filters came with version 15, whose view gives all columns where
// there is no list. That is no list here: columns that are added later are published too.
func publishedQuery(version int) string {
	more := "NULL::text[], ''"
	if version >= 150000 {
		unpublished := " AND a.attgenerated = ''"
		if version >= 180000 {
			unpublished = "" // a publication may have them
		}
		more = `CASE WHEN EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
			AND NOT a.attisdropped AND a.attname <> ALL (p.attnames)` + unpublished + `) THEN p.attnames::text[] END,
		coalesce(p.rowfilter, '')`
	}
	return `SELECT p.schemaname, p.tablename, c.relkind::text, ` + more + `,
	CASE WHEN c.reltuples > 0 AND c.relpages > 0
		THEN (c.reltuples / c.relpages * (pg_relation_size(c.oid) / 8192))::bigint
		ELSE pg_relation_size(c.oid) / 8192 * 40 END,
	EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident) AND i.indisvalid
		AND (i.indimmediate OR c.relreplident = 'f'))
	FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname
	JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
	WHERE p.pubname = $1 ORDER BY p.schemaname, p.tablename`
}

// loadPublished lists the tables of the publication.
func loadPublished(ctx context.Context, c *pgx.Conn, version int, publication string) (out []published, err error) {
	rows, err := c.Query(ctx, publishedQuery(version), publication)
	if err != nil {
		return nil, postgres.Explain(err, "read the publication")
	}
	defer rows.Close()
	for rows.Next() {
		var p published
		var kind string
		err := rows.Scan(&p.name.Schema, &p.name.Name, &kind, &p.columns, &p.where, &p.rows, &p.hasKey)
		if err != nil {
			return nil, postgres.Explain(err, "read the publication")
		}
		p.kind = kind[0]
		out = append(out, p)
	}
	return out, postgres.Explain(rows.Err(), "read the publication")
}

// publication is what the catalog says of one.
type publication struct {
	exists, all, updates, deletes bool
}

func loadPublication(ctx context.Context, c *pgx.Conn, name string) (p publication, err error) {
	err = c.QueryRow(ctx, `SELECT puballtables, pubupdate, pubdelete FROM pg_publication WHERE pubname = $1`,
		name).Scan(&p.all, &p.updates, &p.deletes)
	if err == pgx.ErrNoRows {
		return p, nil
	}
	p.exists = err == nil
	return p, postgres.Explain(err, "read the publication")
}

// candidate is a table that a publication may have.
type candidate struct {
	name      tableName
	kind      byte
	partition bool
	breaks    bool // its updates and deletes fail once it is published
}

// candidates are all tables that a publication may have. What breaks is a plain table without a primary key, or with
// one that is deferrable, or whose replica identity is nothing.
func candidates(ctx context.Context, c *pgx.Conn) (out []candidate, err error) {
	rows, err := c.Query(ctx, `SELECT n.nspname, c.relname, c.relkind::text, c.relispartition,
		c.relkind = 'r' AND (c.relreplident = 'n' OR c.relreplident = 'd' AND NOT EXISTS
			(SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate)
			OR c.relreplident = 'i' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident))
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384
			AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1, 2`)
	if err != nil {
		return nil, postgres.Explain(err, "list the tables")
	}
	defer rows.Close()
	for rows.Next() {
		var t candidate
		var kind string
		if err := rows.Scan(&t.name.Schema, &t.name.Name, &kind, &t.partition, &t.breaks); err != nil {
			return nil, postgres.Explain(err, "list the tables")
		}
		t.kind = kind[0]
		out = append(out, t)
	}
	return out, postgres.Explain(rows.Err(), "list the tables")
}

// plan is what has to be done for the publication to be there.
type plan struct {
	sql  string // "" if nothing is to be done
	note string // for the log
}

// planPublication says how to get the publication, or why there cannot be one.
func (s *settings) planPublication(now publication, all []candidate) (plan, error) {
	mode := s.Lower("publication.autocreate.mode")
	name := postgres.Quote(s.publication)
	options := ""
	if s.Bool("publish.via.partition.root") {
		options = " WITH (publish_via_partition_root = true)"
	}
	var captured, breaking []candidate
	others := false // a table that is not captured would break
	for _, t := range all {
		switch {
		case s.captured(t.name):
			captured = append(captured, t)
			if t.breaks {
				breaking = append(breaking, t)
			}
		case t.breaks:
			others = true
		}
	}
	switch {
	case now.exists && (mode != "filtered" || now.all):
		return plan{}, nil
	case mode == "disabled":
		return plan{}, fmt.Errorf("publication %q does not exist, and publication.autocreate.mode is disabled. Make it: %s",
			s.publication, createFor(name, captured, options))
	case mode == "no_tables":
		return plan{sql: "CREATE PUBLICATION " + name + options}, nil
	case len(breaking) > 0:
		return plan{}, breakingError(breaking, name)
	case mode == "filtered" && len(captured) == 0:
		return plan{}, fmt.Errorf("no table of the database is captured: no name matches the include and exclude lists")
	case mode == "filtered" && now.exists:
		return plan{sql: "ALTER PUBLICATION " + name + " SET TABLE " + tableList(captured)}, nil
	case mode == "filtered":
		return plan{sql: createFor(name, captured, options)}, nil
	case others:
		return plan{sql: createFor(name, captured, options), note: "the publication is made for the captured tables alone: " +
			"with all tables in it, UPDATE and DELETE would begin to fail on tables that have no replica identity"}, nil
	}
	return plan{sql: "CREATE PUBLICATION " + name + " FOR ALL TABLES" + options}, nil
}

func createFor(name string, tables []candidate, options string) string {
	if len(tables) == 0 {
		return "CREATE PUBLICATION " + name + options
	}
	return "CREATE PUBLICATION " + name + " FOR TABLE " + tableList(tables) + options
}

// tableList lists tables for a publication.
func tableList(tables []candidate) string {
	parts := make([]string, 0, len(tables))
	for _, t := range tables {
		parts = append(parts, t.name.SQL())
	}
	return strings.Join(parts, ", ")
}

// breakingError refuses to publish tables whose users would be hurt by it.
func breakingError(tables []candidate, publication string) error {
	var names, cure []string
	for _, t := range tables[:min(len(tables), 5)] {
		names = append(names, t.name.String())
		cure = append(cure, "ALTER TABLE "+t.name.SQL()+" REPLICA IDENTITY FULL")
	}
	more := ""
	if n := len(tables) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("%s%s: without a primary key or a replica identity, each UPDATE and DELETE there would fail once "+
		"the table is published. Give it a primary key that is not deferrable, or run: %s. Or leave it out with "+
		"table.exclude.list, or make publication %s yourself with publish = 'insert'", strings.Join(names, ", "), more,
		strings.Join(cure, "; "), publication)
}

// ensurePublication makes or alters the publication if need be. Made says that it was not there.
func (n *session) ensurePublication(ctx context.Context, at *position) (made bool, err error) {
	if err := n.setIdentities(ctx); err != nil {
		return false, err
	}
	now, err := loadPublication(ctx, n.sql, n.s.publication)
	if err != nil {
		return false, err
	}
	if !now.exists && at != nil && !n.s.snapshot.onLoss {
		return false, fmt.Errorf("publication %q does not exist, and changes after %s are to be read by it. The slot cannot "+
			"decode them with a publication that is made later. Set publication.name right, or drop slot %s and %s",
			n.s.publication, at.commit, n.s.slot, anew)
	}
	all, err := candidates(ctx, n.sql)
	if err != nil {
		return false, err
	}
	p, err := n.s.planPublication(now, all)
	if err != nil {
		return false, err
	}
	if p.sql != "" && now.exists {
		if p.sql, err = n.onlyIfOther(ctx, p.sql, all); err != nil {
			return false, err
		}
	}
	if p.sql == "" {
		return false, nil
	}
	if n.server.standby {
		return false, fmt.Errorf("the server is a standby; make the publication on its primary: %s", p.sql)
	}
	if p.note != "" {
		n.logger.Warn(p.note, "publication", n.s.publication)
	}
	if _, err := n.sql.Exec(ctx, p.sql); err != nil {
		if again, e := loadPublication(ctx, n.sql, n.s.publication); e == nil && again.exists && !now.exists {
			return false, nil // another node was faster
		}
		return false, postgres.Explain(err, "make the publication, which takes the tables' owner or, for all tables, a "+
			"superuser ("+p.sql+")")
	}
	return !now.exists, nil
}

// onlyIfOther leaves a publication alone that has the tables already. Partitions come and go with their parent.
func (n *session) onlyIfOther(ctx context.Context, sql string, all []candidate) (string, error) {
	has, err := n.listed(ctx)
	if err != nil {
		return "", err
	}
	want := 0
	for _, t := range all {
		if n.s.captured(t.name) {
			want++
			if !slices.Contains(has, t.name) {
				return sql, nil
			}
		}
	}
	if want == len(has) {
		return "", nil
	}
	return sql, nil
}

// listed are the tables that the publication lists.
func (n *session) listed(ctx context.Context) ([]tableName, error) {
	rows, err := n.sql.Query(ctx, `SELECT s.nspname, c.relname FROM pg_publication p
		JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid
		JOIN pg_namespace s ON s.oid = c.relnamespace WHERE p.pubname = $1`, n.s.publication)
	if err != nil {
		return nil, postgres.Explain(err, "read the publication")
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tableName])
	return list, postgres.Explain(err, "read the publication")
}

// setIdentities sets the replica identities that the settings ask for.
func (n *session) setIdentities(ctx context.Context) error {
	list := n.s.List("replica.identity.autoset.values")
	if len(list) == 0 {
		return nil
	}
	all, err := candidates(ctx, n.sql)
	if err != nil {
		return err
	}
	for _, e := range list {
		i := strings.LastIndexByte(e, ':')
		if i < 0 {
			return fmt.Errorf("replica.identity.autoset.values: %q is not of the form schema.table:FULL", e)
		}
		tables, err := compile([]string{e[:i]})
		if err != nil {
			return fmt.Errorf("replica.identity.autoset.values: %w", err)
		}
		identity, letter, err := identitySQL(e[i+1:])
		if err != nil {
			return err
		}
		for _, t := range all {
			if t.kind != 'r' || !n.s.captured(t.name) || !matches(tables, t.name.String()) {
				continue
			}
			if err := n.setIdentity(ctx, t.name, identity, letter); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *session) setIdentity(ctx context.Context, t tableName, identity, letter string) error {
	var now string
	err := n.sql.QueryRow(ctx, `SELECT relreplident::text FROM pg_class WHERE oid = $1::text::regclass`,
		t.SQL()).Scan(&now)
	if err == nil && (now != letter || letter == "i") {
		_, err = n.sql.Exec(ctx, "ALTER TABLE "+t.SQL()+" REPLICA IDENTITY "+identity)
	}
	return postgres.Explain(err, "set the replica identity of table "+t.String())
}

func identitySQL(v string) (sql, letter string, err error) {
	v = strings.TrimSpace(v)
	word, index, _ := strings.Cut(v, " ")
	switch strings.ToUpper(word) {
	case "FULL", "DEFAULT", "NOTHING":
		if index == "" {
			return strings.ToUpper(word), strings.ToLower(word[:1]), nil
		}
	case "INDEX":
		if index = strings.TrimSpace(index); index != "" {
			return "USING INDEX " + postgres.Quote(index), "i", nil
		}
	}
	return "", "", fmt.Errorf("replica.identity.autoset.values: %q is none of FULL, DEFAULT, NOTHING, INDEX name", v)
}
