package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Table is a table as the catalog has it.
type Table struct {
	OID             uint32
	Schema, Name    string
	Kind            byte     // r: table, p: partitioned table, v: view, m: materialized view, f: foreign table
	Partition       bool     // it is a partition of another one
	ReplicaIdentity byte     // d: default, i: index, f: full, n: nothing
	Columns         []Column // in the order of their numbers, dropped ones left out
	PrimaryKey      []string // its columns, in the order of the key
	Unique          []Index  // unique, valid, without predicate or expression; the primary key's first
}

// Column is a column of a table.
type Column struct {
	Name      string
	Type      uint32
	Typmod    int32 // -1: none
	NotNull   bool
	Generated bool   // always computed from others
	Identity  byte   // a: always, d: by default, 0: none
	Default   string // its expression, "" if there is none
	Serial    bool   // it draws from a sequence: serial or identity
	// Dimensions are those that an array was declared with, 0 for any other type. The server does not enforce them.
	Dimensions int16
}

// Index is a unique index.
type Index struct {
	Name            string
	Columns         []string
	Primary         bool
	ReplicaIdentity bool
	Immediate       bool // not deferrable
}

// Column is a column by its name, nil if there is none.
func (t *Table) Column(name string) *Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return nil
}

// String is the table's name with its schema, as people write it.
func (t *Table) String() string { return t.Schema + "." + t.Name }

const relationSQL = `SELECT c.oid, n.nspname::text, c.relname::text, c.relkind::text, c.relispartition,
	c.relreplident::text
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE `

// LoadTable reads one table, nil if there is none; without a schema it is the one that the search path finds.
func LoadTable(ctx context.Context, q Querier, schema, name string) (*Table, error) {
	var tables []*Table
	var err error
	if schema == "" {
		tables, err = load(ctx, q, relationSQL+"c.oid = to_regclass(quote_ident($1))", name)
	} else {
		tables, err = load(ctx, q, relationSQL+"n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r','p','v','m','f')",
			schema, name)
	}
	if err != nil || len(tables) == 0 {
		return nil, err
	}
	return tables[0], nil
}

// LoadTables reads all tables of the kinds named (see Table.Kind), without those of the system and those of sessions,
// in the order of their names. No kinds: all.
func LoadTables(ctx context.Context, q Querier, kinds string) ([]*Table, error) {
	if kinds == "" {
		kinds = "rpvmf"
	}
	return load(ctx, q, relationSQL+`strpos($1, c.relkind::text) > 0 AND c.relpersistence <> 't'
		AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_toast%'
		ORDER BY n.nspname, c.relname`, kinds)
}

// LoadTablesByOID reads the tables with these OIDs, in no order; those that are gone are left out.
func LoadTablesByOID(ctx context.Context, q Querier, oids []uint32) ([]*Table, error) {
	return load(ctx, q, relationSQL+"c.oid = ANY($1::oid[])", oids)
}

// load reads the tables that a query gives, then their columns and indexes.
func load(ctx context.Context, q Querier, sql string, args ...any) ([]*Table, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	var tables []*Table
	var oids []uint32
	byOID := map[uint32]*Table{}
	t := &Table{}
	var kind, identity string
	_, err = pgx.ForEachRow(rows, []any{&t.OID, &t.Schema, &t.Name, &kind, &t.Partition, &identity},
		func() error {
			found := *t
			found.Kind, found.ReplicaIdentity = kind[0], identity[0]
			tables, oids, byOID[t.OID] = append(tables, &found), append(oids, t.OID), &found
			return nil
		})
	if err != nil || len(tables) == 0 {
		return nil, err
	}
	if err := loadColumns(ctx, q, byOID, oids); err != nil {
		return nil, err
	}
	return tables, loadIndexes(ctx, q, byOID, oids)
}

func loadColumns(ctx context.Context, q Querier, byOID map[uint32]*Table, oids []uint32) error {
	rows, err := q.Query(ctx, `SELECT a.attrelid, a.attname::text, a.atttypid, a.atttypmod, a.attnotnull,
		a.attgenerated <> '', a.attidentity::text, coalesce(pg_get_expr(d.adbin, d.adrelid), ''), a.attndims
		FROM pg_catalog.pg_attribute a
		LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = ANY($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum`, oids)
	if err != nil {
		return err
	}
	var table uint32
	var identity string
	var dimensions int32
	c := Column{}
	_, err = pgx.ForEachRow(rows, []any{&table, &c.Name, &c.Type, &c.Typmod, &c.NotNull, &c.Generated,
		&identity, &c.Default, &dimensions}, func() error {
		c.Identity, c.Dimensions = 0, int16(dimensions)
		if identity != "" {
			c.Identity = identity[0]
		}
		c.Serial = identity != "" || strings.HasPrefix(c.Default, "nextval(")
		if c.Generated {
			c.Default = ""
		}
		byOID[table].Columns = append(byOID[table].Columns, c)
		return nil
	})
	return err
}

func loadIndexes(ctx context.Context, q Querier, byOID map[uint32]*Table, oids []uint32) error {
	rows, err := q.Query(ctx, `SELECT i.indrelid, c.relname::text, i.indisprimary, i.indisreplident, i.indimmediate,
		ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
			WHERE k.place <= i.indnkeyatts ORDER BY k.place)
		FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
		WHERE i.indrelid = ANY($1::oid[]) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
		ORDER BY i.indrelid, NOT i.indisprimary, c.relname`, oids)
	if err != nil {
		return err
	}
	var table uint32
	x := Index{}
	_, err = pgx.ForEachRow(rows, []any{&table, &x.Name, &x.Primary, &x.ReplicaIdentity, &x.Immediate, &x.Columns},
		func() error {
			found := x
			found.Columns = slices.Clone(x.Columns)
			t := byOID[table]
			t.Unique = append(t.Unique, found)
			if x.Primary {
				t.PrimaryKey = found.Columns
			}
			return nil
		})
	return err
}

// Rewritten says whether a table, or a part of it, was written anew since the transaction's view was taken, as ALTER
// TABLE does for some types, or was truncated: the view sees none of its rows then, not even those that were there.
// The transaction must have read the table, so that it cannot happen afterwards.
func Rewritten(ctx context.Context, q Querier, table uint32) (bool, error) {
	rows, err := q.Query(ctx, `WITH RECURSIVE part AS (SELECT $1::oid AS oid
			UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN part ON i.inhparent = part.oid)
		SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN part ON part.oid = c.oid
			WHERE c.relfilenode <> pg_catalog.pg_relation_filenode(c.oid))`, table)
	if err != nil {
		return false, err
	}
	return pgx.CollectOneRow(rows, pgx.RowTo[bool])
}
