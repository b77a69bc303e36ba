package postgres

import (
	"context"
)

// Table is a table as the catalog has it.
type Table struct {
	OID             uint32
	Schema, Name    string
	Kind            byte     // r: table, p: partitioned table, v: view, m: materialized view, f: foreign table
	Partition       bool     // it is a partition of another one
	ReplicaIdentity byte     // d: default, i: index, f: full, n: nothing
	Persistence     byte     // p: permanent, u: unlogged, t: temporary
	Columns         []Column // in the order of their numbers, dropped ones left out
	PrimaryKey      []string // its columns, in the order of the key
	Unique          []Index  // unique, valid, without predicate or expression; the primary key's first
}

// Column is a column of a table.
type Column struct {
	Name      string
	Number    int16
	Type      uint32
	Typmod    int32 // -1: none
	NotNull   bool
	Generated bool   // always computed from others
	Identity  byte   // a: always, d: by default, 0: none
	Default   string // its expression, "" if there is none
	Serial    bool   // it draws from a sequence of its own: serial or identity
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

// LoadTable reads one table, nil if there is none; without a schema it is the one that the search path finds.
func LoadTable(ctx context.Context, q Querier, schema, name string) (*Table, error) {
	return loadTable(ctx, q, schema, name)
}

// LoadTables reads all tables of the kinds named (see Table.Kind), without those of the system, in the order of their
// names. No kinds: all.
func LoadTables(ctx context.Context, q Querier, kinds string) ([]*Table, error) {
	return loadTables(ctx, q, kinds)
}

// LoadTablesByOID reads the tables with these OIDs, in no order; those that are gone are left out.
func LoadTablesByOID(ctx context.Context, q Querier, oids []uint32) ([]*Table, error) {
	return loadTablesByOID(ctx, q, oids)
}
