package polling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

// OIDs of types of the system.
const (
	oidInt2, oidInt4, oidInt8       = 21, 23, 20
	oidNumeric                      = 1700
	oidMoney, oidFloat8             = 790, 701
	oidDate, oidStamp, oidStampZone = 1082, 1114, 1184
	oidXID8                         = 5069
)

// plan is how a table or query is read, as long as its columns stay what they are.
type plan struct {
	table   *postgres.Table // nil of a query
	columns []postgres.Column
	coders  []*postgres.Coder
	from    string // behind FROM, named r
	list    string // behind SELECT
	key     []int  // places of the key's columns
	inc     string // expressions; "" where the mode has none
	ts      string
	zoned   bool // ts is of a type with a time zone
	order   []orderBy
	file    string // of a table without a key, in mode xid

	keySchema   *data.Schema // nil: no keys
	valueSchema *data.Schema
}

// orderBy is an expression by which rows are ordered, and the type of its values.
type orderBy struct{ expr, typ string }

// errGone says that a table is not there any more.
var errGone = errors.New("the table is not there")

// planTable looks at a table and says how it is read.
func planTable(ctx context.Context, q postgres.Querier, c *config, name tableName) (*plan, error) {
	t, err := postgres.LoadTable(ctx, q, name.Schema, name.Table)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, errGone
	}
	p := &plan{table: t, columns: t.Columns, from: postgres.QuoteTable(t.Schema, t.Name) + " AS r"}
	if len(p.columns) == 0 {
		return nil, errors.New("the table has no columns")
	}
	types, err := p.code(ctx, q, c)
	if err != nil {
		return nil, err
	}
	p.schemas(t.Name, c.keyed)
	if err := p.tell(c, name); err != nil {
		return nil, err
	}
	if c.mode == modeXID {
		return p, p.tellByXID(ctx, q, c, types)
	}
	return p, nil
}

// planQuery has the server say which columns a query has.
func planQuery(ctx context.Context, conn *pgx.Conn, c *config) (*plan, error) {
	p := &plan{from: "(" + c.query + "\n) AS r"}
	result := conn.PgConn().Exec(ctx, "SELECT * FROM "+p.from+" LIMIT 0")
	for result.NextResult() {
		for _, f := range result.ResultReader().FieldDescriptions() {
			p.columns = append(p.columns, postgres.Column{Name: f.Name, Type: f.DataTypeOID, Typmod: f.TypeModifier})
		}
	}
	if err := result.Close(); err != nil {
		return nil, err
	}
	for i, col := range p.columns {
		if slices.ContainsFunc(p.columns[:i], func(o postgres.Column) bool { return o.Name == col.Name }) {
			return nil, fmt.Errorf("the query has two columns named %q: give one another name with AS", col.Name)
		}
	}
	if _, err := p.code(ctx, conn, c); err != nil {
		return nil, err
	}
	p.schemas("", false)
	return p, p.tell(c, tableName{})
}

// code makes the coders and the list of columns. Money is read as a number, since its text depends on the server's
// locale.
func (p *plan) code(ctx context.Context, q postgres.Querier, c *config) (*postgres.Types, error) {
	oids := []uint32{oidFloat8}
	for _, col := range p.columns {
		oids = append(oids, col.Type)
	}
	types, err := postgres.LoadTypes(ctx, q, oids)
	if err != nil {
		return nil, err
	}
	mapper := postgres.NewMapper(c.mapping, types)
	list := make([]string, len(p.columns))
	for i, col := range p.columns {
		list[i] = ref(col.Name)
		if base, _ := types.Resolve(col.Type, -1); base != nil && base.OID == oidMoney {
			col.Type, col.Typmod = oidFloat8, -1
			list[i] += "::numeric"
		}
		coder, err := mapper.Column(col)
		if err != nil {
			return nil, err
		}
		p.coders = append(p.coders, coder)
	}
	p.list = strings.Join(list, ", ")
	return types, nil
}

func ref(column string) string { return "r." + postgres.Quote(column) }

func (p *plan) schemas(name string, keyed bool) {
	var fields, keys []data.Field
	for i, col := range p.columns {
		fields = append(fields, data.Field{Name: col.Name, Schema: p.coders[i].Schema})
	}
	p.valueSchema = data.NewStruct(name, fields...)
	if !keyed || p.table == nil || len(p.table.PrimaryKey) == 0 {
		return
	}
	for _, k := range p.table.PrimaryKey {
		i := p.place(k)
		p.key = append(p.key, i)
		keys = append(keys, fields[i])
	}
	p.keySchema = data.NewStruct(name+".Key", keys...)
}

func (p *plan) place(column string) int {
	return slices.IndexFunc(p.columns, func(c postgres.Column) bool { return c.Name == column })
}

// columnError is a column that cannot do what a setting wants of it.
type columnError struct{ key, text string }

func (e *columnError) Error() string { return e.text + " (setting " + e.key + ")" }

// tell finds the columns that tell new rows.
func (p *plan) tell(c *config, name tableName) error {
	inc, ts := c.columnsOf(name)
	if c.mode == modeInc || c.mode == modeTSInc {
		if err := p.tellByNumber(c, inc); err != nil {
			return err
		}
	}
	if c.mode == modeTS || c.mode == modeTSInc {
		if err := p.tellByTime(c, ts); err != nil {
			return err
		}
		p.order = append(p.order, orderBy{p.ts, ""})
	}
	if p.inc != "" {
		p.order = append(p.order, orderBy{p.inc, ""})
	}
	return nil
}

// tellByNumber takes the column named, or the one that draws from a sequence.
func (p *plan) tellByNumber(c *config, column string) error {
	if column == "" {
		for _, col := range p.columns {
			if !col.Serial {
				continue
			}
			if column != "" {
				return &columnError{keyIncrementing, fmt.Sprintf("columns %q and %q both draw from a sequence: name the one to use",
					column, col.Name)}
			}
			column = col.Name
		}
		if column == "" {
			return &columnError{keyIncrementing, "no column draws from a sequence: name the one that only grows"}
		}
	}
	i := p.place(column)
	if i < 0 {
		return &columnError{keyIncrementing, fmt.Sprintf("there is no column %q; there are %s", column, p.names())}
	}
	col := p.columns[i]
	switch p.coders[i].Type.OID {
	case oidInt2, oidInt4, oidInt8, oidNumeric:
	default:
		return &columnError{keyIncrementing, fmt.Sprintf("column %q is of type %s, and must be a whole number", column,
			p.coders[i].Type.Name)}
	}
	if c.Bool(keyNonNull) && p.table != nil && p.table.Kind != 'v' && p.table.Kind != 'm' && !col.NotNull {
		return &columnError{keyIncrementing, fmt.Sprintf("column %q may be null, and rows with null there would not be "+
			"found: "+
			"make it NOT NULL, or set %s=false", column, keyNonNull)}
	}
	p.inc = ref(column)
	return nil
}

func (p *plan) tellByTime(c *config, columns []string) error {
	if len(columns) == 0 {
		return &columnError{keyTimestamp, "no column is named for this table that says when a row was changed"}
	}
	var refs []string
	dates, notNull := 0, false
	for _, column := range columns {
		i := p.place(column)
		if i < 0 {
			return &columnError{keyTimestamp, fmt.Sprintf("there is no column %q; there are %s", column, p.names())}
		}
		switch p.coders[i].Type.OID {
		case oidStampZone:
			p.zoned = true
		case oidStamp:
		case oidDate:
			dates++
		default:
			return &columnError{keyTimestamp, fmt.Sprintf("column %q is of type %s, and must be a timestamp or date", column,
				p.coders[i].Type.Name)}
		}
		notNull = notNull || p.columns[i].NotNull
		refs = append(refs, ref(column))
	}
	if c.Bool(keyNonNull) && p.table != nil && p.table.Kind != 'v' && p.table.Kind != 'm' && !notNull {
		return &columnError{keyTimestamp, fmt.Sprintf("column %s may be null, and rows with null there would not be found: "+
			"make it NOT NULL, or set %s=false", strings.Join(columns, ", "), keyNonNull)}
	}
	if p.zoned { // those without a zone are of the zone of the settings, not of the session's
		for i, column := range columns {
			if p.coders[p.place(column)].Type.OID != oidStampZone {
				refs[i] = "(" + refs[i] + "::timestamp AT TIME ZONE " + postgres.QuoteLiteral(c.zone.String()) + ")"
			}
		}
	}
	p.ts = refs[0]
	if len(refs) > 1 {
		p.ts = "COALESCE(" + strings.Join(refs, ", ") + ")"
	}
	if dates == len(refs) {
		p.ts += "::timestamp"
	}
	return nil
}

func (p *plan) names() string {
	var out []string
	for _, c := range p.columns {
		out = append(out, c.Name)
	}
	return strings.Join(out, ", ")
}

// tellByXID orders rows by their key, so that a window can be gone on with in its midst: by the primary key, another
// unique one without nulls, or else the places of rows in the table's files.
func (p *plan) tellByXID(ctx context.Context, q postgres.Querier, c *config, types *postgres.Types) error {
	if c.xid != "" {
		i := p.place(c.xid)
		if i < 0 {
			return &columnError{keyXID, fmt.Sprintf("there is no column %q; there are %s", c.xid, p.names())}
		}
		if oid := p.coders[i].Type.OID; oid != oidXID8 && oid != oidInt8 {
			return &columnError{keyXID, fmt.Sprintf("column %q is of type %s, and must be xid8", c.xid, p.coders[i].Type.Name)}
		}
		if c.Bool(keyNonNull) && !p.columns[i].NotNull && p.table.Kind != 'v' {
			return &columnError{keyXID, fmt.Sprintf("column %q may be null, and rows with null there would not be found: "+
				"make it NOT NULL, or set %s=false", c.xid, keyNonNull)}
		}
		p.order = append(p.order, orderBy{ref(c.xid), p.coders[i].Type.Name})
	} else if p.table.Kind != 'r' && p.table.Kind != 'p' {
		return &columnError{keyMode, fmt.Sprintf("%s is no table of its own, so its rows have no transaction that wrote "+
			"them: "+
			"use another mode, or name a column with %s", p.table, keyXID)}
	}
	for _, k := range p.rowKey() {
		i := p.place(k)
		p.order = append(p.order, orderBy{ref(k), types.Title(p.columns[i].Type)})
	}
	if len(p.rowKey()) > 0 {
		return nil
	}
	if p.table.Kind != 'r' && p.table.Kind != 'p' {
		return &columnError{keyXID, fmt.Sprintf("%s has no key to go on from in the midst of a window: use another "+
			"mode", p.table)}
	}
	p.order = append(p.order, orderBy{"r.tableoid", "oid"}, orderBy{"r.ctid", "tid"})
	return p.loadFile(ctx, q)
}

// rowKey are the columns of a unique key without nulls, none if there is none.
func (p *plan) rowKey() []string {
	for _, x := range p.table.Unique {
		if x.Primary || x.Immediate && !slices.ContainsFunc(x.Columns,
			func(c string) bool { return !p.table.Column(c).NotNull }) {
			return x.Columns
		}
	}
	return nil
}

// loadFile finds out which files the table is in. They change when it is rewritten, and rows then have other places.
func (p *plan) loadFile(ctx context.Context, q postgres.Querier) error {
	rows, err := q.Query(ctx,
		`SELECT md5(string_agg(c.oid || ':' || coalesce(pg_relation_filenode(c.oid), 0), ',' ORDER BY c.oid))
		FROM pg_catalog.pg_class c WHERE c.oid = $1 OR c.oid IN (SELECT relid FROM pg_partition_tree($1::regclass))
		OR c.oid IN (SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = $1)`, p.table.OID)
	if err != nil {
		return err
	}
	p.file, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	return err
}

// same says whether a table still is what a plan was made for.
func (p *plan) same(o *plan) bool {
	return o != nil && p.from == o.from && slices.Equal(p.columns, o.columns) && slices.Equal(p.order, o.order) &&
		p.file == o.file && slices.Equal(p.key, o.key) && slices.EqualFunc(p.coders, o.coders,
		func(a, b *postgres.Coder) bool { return a.Schema.Equal(b.Schema) })
}
