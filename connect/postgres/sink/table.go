package sink

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/connect/postgres"
)

// table is a table of the target, as the catalog had it when it was read. All that is derived from it goes with it.
type table struct {
	*postgres.Table
	types   []*columnType // of the columns
	byName  map[string]int
	refs    []uint32 // tables that its foreign keys refer to
	guarded bool     // row security applies, so that COPY does not
	plans   *cache[*layout, *plan]
	sets    map[string]*columnSet
}

// loadTable reads a table from the catalog, nil if there is none.
func loadTable(ctx context.Context, conn *pgx.Conn, schema, name string) (*table, error) {
	found, err := postgres.LoadTable(ctx, conn, schema, name)
	if err != nil || found == nil {
		return nil, err
	}
	t := &table{Table: found, byName: map[string]int{}, plans: newCache[*layout, *plan](1000),
		sets: map[string]*columnSet{}}
	oids := make([]uint32, len(found.Columns))
	for i := range found.Columns {
		oids[i] = found.Columns[i].Type
	}
	types, err := postgres.LoadTypes(ctx, conn, oids)
	if err != nil {
		return nil, err
	}
	for i := range found.Columns {
		c := &found.Columns[i]
		t.byName[c.Name] = i
		t.types = append(t.types, typeBelow(types, c.Type, c.Typmod))
	}
	rows, err := conn.Query(ctx, `SELECT confrelid FROM pg_catalog.pg_constraint
		WHERE conrelid = $1 AND contype = 'f' AND confrelid <> conrelid`, found.OID)
	if err != nil {
		return nil, err
	}
	if t.refs, err = pgx.CollectRows(rows, pgx.RowTo[uint32]); err != nil {
		return nil, err
	}
	return t, conn.QueryRow(ctx, "SELECT row_security_active($1::oid)", found.OID).Scan(&t.guarded)
}

// typeBelow is a type below its domains, with that of its elements.
func typeBelow(types *postgres.Types, oid uint32, typmod int32) *columnType {
	base, typmod := types.Resolve(oid, typmod)
	if base == nil {
		base = &postgres.Type{OID: oid, Schema: "pg_catalog", Name: "text", Kind: postgres.Base}
	}
	t := &columnType{Type: base, typmod: typmod}
	if base.Kind == postgres.Array {
		t.elem = typeBelow(types, base.Elem, -1)
	}
	return t
}

// cast is the type's name for a cast, without a modifier: what does not fit the column's length is then refused when it
// is assigned, where the cast would cut it.
func (t *columnType) cast() string { return postgres.QuoteTable(t.Schema, t.Name) }

// unique says whether a unique index is on exactly these columns, so that upserts can find their row by them.
func (t *table) unique(columns []string) bool {
	want := slices.Sorted(slices.Values(columns))
	return slices.ContainsFunc(t.Unique, func(x postgres.Index) bool {
		return x.Immediate && slices.Equal(slices.Sorted(slices.Values(x.Columns)), want)
	})
}

// plan is how records of one layout become rows of a table.
type plan struct {
	fields []bound
	keys   int        // so many of fields, from the front, are the key
	set    *columnSet // of all fields
}

// bound is a field and its column.
type bound struct {
	*field
	index  int // of the column in the table
	encode encoder
}

// schemaError is a fault that concerns all records of a kind, and so is never reported as one's own.
type schemaError struct{ err error }

func (e *schemaError) Error() string { return e.err.Error() }
func (e *schemaError) Unwrap() error { return e.err }

func schemaFault(format string, args ...any) error { return &schemaError{fmt.Errorf(format, args...)} }

// bind makes the plan of a layout. All columns are there by now, or it is a fault.
func (c *config) bind(t *table, l *layout) (*plan, error) {
	p := &plan{}
	var columns, keys []int
	for i := range l.fields {
		f := &l.fields[i]
		at, ok := t.byName[f.column]
		if !ok {
			return nil, c.missing(t, l)
		}
		if t.Columns[at].Generated {
			if f.key {
				return nil, schemaFault("column %s of table %s is generated, and cannot be of the key", f.column, t)
			}
			continue
		}
		e, err := c.codec.encoder(f.schema, t.types[at])
		if err != nil {
			return nil, schemaFault("column %s of table %s: %w: change the column's type, or that of the field",
				f.column, t, err)
		}
		p.fields = append(p.fields, bound{field: f, index: at, encode: e})
		columns = append(columns, at)
		if f.key {
			keys = append(keys, at)
			p.keys++
		}
	}
	p.set = t.set(columns, keys)
	if c.mode == modeUpsert && p.keys > 0 && !t.unique(p.set.keyNames()) {
		return nil, schemaFault("table %s has no unique index on exactly the columns of the key (%s), which upserts need: "+
			"CREATE UNIQUE INDEX ON %s (%s)", t, strings.Join(p.set.keyNames(), ", "),
			postgres.QuoteTable(t.Schema, t.Name), quoteAll(p.set.keyNames()))
	}
	return p, nil
}

// missing is the fault of columns that are not there.
func (c *config) missing(t *table, l *layout) error {
	var names []string
	for i := range l.fields {
		if _, ok := t.byName[l.fields[i].column]; !ok {
			names = append(names, l.fields[i].column)
		}
	}
	n := namesOf(c.class)
	evolve := n.evolve + "=true"
	if n.evolution != "" {
		evolve = n.evolution + "=basic"
	}
	return schemaFault("table %s has no column %s: add what is missing, set %s to have it added, or leave the fields out",
		t, strings.Join(names, ", "), evolve)
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = postgres.Quote(n)
	}
	return strings.Join(quoted, ", ")
}

// columnSet is a set of columns that rows have, with the statements that write such rows.
type columnSet struct {
	t       *table
	columns []int // in the table's order
	keys    []int
	has     []bool // by column
	isKey   []bool
	sql     map[string]string // made so far
}

// set is the set of some columns. There is one for the same columns and keys.
func (t *table) set(columns, keys []int) *columnSet {
	columns = slices.Compact(slices.Sorted(slices.Values(columns)))
	keys = slices.Sorted(slices.Values(keys))
	id := fmt.Sprint(columns, keys)
	s := t.sets[id]
	if s == nil {
		s = &columnSet{t: t, columns: columns, keys: keys, has: make([]bool, len(t.Columns)),
			isKey: make([]bool, len(t.Columns)), sql: map[string]string{}}
		for _, c := range columns {
			s.has[c] = true
		}
		for _, k := range keys {
			s.isKey[k] = true
		}
		t.sets[id] = s
	}
	return s
}

// without is the set less some columns, none of which is of the key.
func (s *columnSet) without(absent []int) *columnSet {
	away := func(c int) bool { return slices.Contains(absent, c) }
	return s.t.set(slices.DeleteFunc(slices.Clone(s.columns), away), s.keys)
}

// union is the set with another's columns.
func (s *columnSet) union(o *columnSet) *columnSet {
	if s == o || o.covers(s) {
		return o
	}
	return s.t.set(slices.Concat(s.columns, o.columns), o.keys)
}

// covers says whether all of another's columns are in the set.
func (s *columnSet) covers(o *columnSet) bool {
	if s == o {
		return true
	}
	return !slices.ContainsFunc(o.columns, func(c int) bool { return !s.has[c] })
}

func (s *columnSet) names(columns []int) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = s.t.Columns[c].Name
	}
	return out
}

func (s *columnSet) keyNames() []string { return s.names(s.keys) }
