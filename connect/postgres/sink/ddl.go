package sink

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

// ddlLock is the advisory lock under which sinks change tables: one for all of a database, so that two cannot wait for
// each other.
const ddlLock = 0x6d696c6c72616365

// ensure makes a table have the columns of layouts, within the transaction under way. It gives the table as it is then.
func (t *task) ensure(ctx context.Context, tg *target, layouts []*layout) (*table, error) {
	for round := 0; ; round++ {
		if tg.table == nil || round > 0 {
			found, err := loadTable(ctx, t.conn.Conn, tg.schema, tg.name)
			if err != nil {
				return nil, whole(postgres.Explain(err, "read table "+tg.full))
			}
			tg.table = found
		}
		missing := t.cfg.lacking(tg.table, layouts)
		if tg.table != nil && len(missing) == 0 {
			return tg.table, nil
		}
		if err := t.mayChange(tg, layouts); err != nil {
			return nil, err
		}
		t.changed = true
		switch round {
		case 0:
			if _, err := t.conn.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(ddlLock)); err != nil {
				return nil, whole(postgres.Explain(err, "lock the catalog"))
			}
		case 1:
			if err := t.change(ctx, tg, missing); err != nil {
				return nil, err
			}
		default:
			return nil, schemaFault("table %s is not as it was made: another session changes it", tg.full)
		}
	}
}

// whole marks an error as one that concerns all records, if it would pass for one record's.
func whole(err error) error {
	if perRecord(err) {
		return &schemaError{err}
	}
	return err
}

// lacking are the fields without a column, each column once.
func (c *config) lacking(t *table, layouts []*layout) (out []*field) {
	taken := map[string]bool{}
	for _, l := range layouts {
		for i := range l.fields {
			f := &l.fields[i]
			there := taken[f.column]
			if t != nil && !there {
				_, there = t.byName[f.column]
			}
			if !there {
				taken[f.column] = true
				out = append(out, f)
			}
		}
	}
	return out
}

// mayChange says why a table is not created or changed, nil if it may be.
func (t *task) mayChange(tg *target, layouts []*layout) error {
	n := namesOf(t.cfg.class)
	if tg.table == nil && !t.cfg.create {
		create := n.create + "=true"
		if n.evolution != "" {
			create = n.evolution + "=basic"
		}
		return schemaFault("there is no table %s: create it, set %s to have it created, or change %s; names are "+
			"case-sensitive", tg.full, create, n.format)
	}
	if tg.table != nil && !t.cfg.evolve {
		for _, l := range layouts {
			if len(t.cfg.lacking(tg.table, []*layout{l})) > 0 {
				return t.cfg.missing(tg.table, l)
			}
		}
	}
	return nil
}

// tableChange is what the transaction under way has done to a table.
type tableChange struct {
	table   string
	created bool
	columns int
}

// change creates a table, or adds columns to it.
func (t *task) change(ctx context.Context, tg *target, missing []*field) error {
	var columns, keys []string
	for _, f := range missing {
		def, err := t.columnDef(ctx, f, tg)
		if err != nil {
			return err
		}
		columns = append(columns, def)
		if f.key {
			keys = append(keys, f.column)
		}
	}
	quoted, sql := postgres.QuoteTable(tg.schema, tg.name), ""
	if tg.table == nil {
		if len(keys) > 0 {
			columns = append(columns, "PRIMARY KEY ("+quoteAll(keys)+")")
		}
		sql = "CREATE TABLE IF NOT EXISTS " + quoted + " (" + strings.Join(columns, ", ") + ")"
	} else {
		for i := range columns {
			columns[i] = "ADD COLUMN IF NOT EXISTS " + columns[i]
		}
		sql = "ALTER TABLE " + quoted + " " + strings.Join(columns, ", ")
	}
	if _, err := t.conn.Exec(ctx, sql); err != nil {
		return whole(postgres.Explain(err, "create or change table "+tg.full))
	}
	t.changes = append(t.changes, tableChange{tg.full, tg.table == nil, len(missing)})
	return nil
}

// columnDef is the definition of a field's column.
func (t *task) columnDef(ctx context.Context, f *field, tg *target) (string, error) {
	if len(f.column) > postgres.MaxName || f.column == "" || strings.IndexByte(f.column, 0) >= 0 {
		return "", schemaFault("%q is no name of a column, which has 1 to %d bytes: rename the field", f.column,
			postgres.MaxName)
	}
	if f.schema == nil {
		return "", schemaFault("field %q has no schema, so that no column can be made for it in table %s: create the "+
			"column, or use a converter with schemas", f.name, tg.full)
	}
	typ, err := t.ddlType(ctx, f.schema)
	if err != nil {
		return "", err
	}
	if typ == "" {
		return "", schemaFault("there is no type for a column of %s, field %q of table %s: create the column, or leave "+
			"the field out", describe(f.schema), f.name, tg.full)
	}
	def := postgres.Quote(f.column) + " " + typ
	if literal, ok := t.literal(f.schema); ok {
		def += " DEFAULT " + literal
	} else if tg.table != nil && !f.schema.Optional {
		return "", schemaFault("column %s cannot be added to table %s: its field is neither optional nor has a default",
			f.column, tg.full)
	}
	if !f.schema.Optional || f.key {
		def += " NOT NULL"
	}
	return def, nil
}

// literal is a schema's default as a literal.
func (t *task) literal(s *data.Schema) (string, bool) {
	if s.Default == nil {
		return "", false
	}
	e := t.cfg.codec.plain(s)
	if e == nil {
		return "", false
	}
	text, err := e(nil, s.Default)
	if err != nil {
		return "", false
	}
	// With a backslash it would depend on a setting of the server what it means.
	return "E'" + strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(string(text)) + "'", true
}

var typeName = regexp.MustCompile(`^[A-Za-z_"][A-Za-z0-9_. "]*(\(\d+(,\s*-?\d+)?\))?(\[\])*$`)

// ddlType is the type of a column for values of a schema, "" if there is none.
func (t *task) ddlType(ctx context.Context, s *data.Schema) (string, error) {
	want := s.Parameters[postgres.TypeKey]
	if s.Type == data.String && want == "bytea" { // there is no telling in which of several ways the text is bytes
		want = ""
	}
	if typeName.MatchString(want) {
		var there bool
		err := t.conn.QueryRow(ctx, "SELECT to_regtype($1) IS NOT NULL", want).Scan(&there)
		if err != nil {
			return "", whole(postgres.Explain(err, "look for type "+want))
		}
		if there {
			return want, nil
		}
	}
	if name := extensionTypes[s.Name]; name != "" {
		var there bool
		if err := t.conn.QueryRow(ctx, "SELECT to_regtype($1) IS NOT NULL", name).Scan(&there); err != nil {
			return "", whole(postgres.Explain(err, "look for type "+name))
		}
		if !there {
			return "", schemaFault("type %s is not in the database: CREATE EXTENSION, or create the column", name)
		}
		return name, nil
	}
	if s.Type == data.Array && s.Elem != nil {
		elem, err := t.ddlType(ctx, s.Elem)
		if err != nil || elem == "" {
			return "", err
		}
		return strings.TrimSuffix(elem, "[]") + "[]", nil
	}
	return ddlTypeOf(s), nil
}

// extensionTypes are types that may be missing from a database.
var extensionTypes = map[string]string{
	"io.debezium.data.Ltree":              "ltree",
	"io.debezium.data.DoubleVector":       "vector",
	"io.debezium.data.FloatVector":        "halfvec",
	"io.debezium.data.SparseDoubleVector": "sparsevec",
	"io.debezium.data.geometry.Geography": "geography",
	"io.debezium.data.geometry.Geometry":  "geometry",
}

var namedTypes = map[string]string{
	"io.debezium.data.Json":           "json",
	"io.debezium.data.Uuid":           "uuid",
	"io.debezium.data.Xml":            "xml",
	"io.debezium.data.Tsvector":       "tsvector",
	"io.debezium.time.ZonedTimestamp": "timestamptz",
	"io.debezium.time.ZonedTime":      "timetz",
	"io.debezium.time.Interval":       "interval",
	"io.debezium.time.IsoDate":        "date",
	"io.debezium.time.IsoTime":        "time",
	"io.debezium.time.IsoTimestamp":   "timestamp",

	structuredPrefix + "Date":           "date",
	structuredPrefix + "Time":           "time",
	structuredPrefix + "ZonedTime":      "timetz",
	structuredPrefix + "Timestamp":      "timestamp",
	structuredPrefix + "ZonedTimestamp": "timestamptz",
	structuredPrefix + "Duration":       "interval",
	"io.debezium.data.geometry.Point":   "point",
	"io.debezium.data.geometry.Line":    "line",
	"io.debezium.data.geometry.Circle":  "circle",
}

var typeNames = map[uint32]string{
	oidInt2: "smallint", oidInt4: "integer", oidInt8: "bigint", oidFloat4: "real", oidFloat8: "double precision",
	oidBool: "boolean", oidText: "text", oidBytea: "bytea", oidNumeric: "numeric", oidDate: "date", oidTime: "time",
	oidTimestamp: "timestamp", oidInterval: "interval", oidVarbit: "bit varying",
}

// ddlTypeOf is the built-in type of a column for values of a schema, "" if there is none.
func ddlTypeOf(s *data.Schema) string {
	if name := namedTypes[s.Name]; name != "" {
		return name
	}
	switch {
	case s.Type == data.Map, s.Type == data.Struct && s.Name != variableScaleDecimal:
		return "jsonb"
	case s.Name == data.Decimal:
		precision, err := strconv.Atoi(s.Parameters["connect.decimal.precision"])
		scale := scaleOf(s)
		if err == nil && precision > 0 && precision <= 1000 && scale >= -1000 && scale <= 1000 {
			return fmt.Sprintf("numeric(%d,%d)", precision, scale)
		}
	case s.Name == tTime || s.Name == data.Time:
		return "time(3)"
	case s.Name == tTimestamp || s.Name == data.Timestamp:
		return "timestamp(3)"
	case s.Name == bitsName:
		if n, err := strconv.Atoi(s.Parameters["length"]); err == nil && n > 0 && n < math.MaxInt32 {
			return fmt.Sprintf("bit(%d)", n)
		}
	}
	return typeNames[typeOf(s)]
}

// target is a table by the name that records are sent to.
type target struct {
	schema, name string
	full         string // for people
	table        *table // nil: not read, or not there
	rows         bool   // records were structs or maps
}

func (t *task) target(name string) (*target, error) {
	if tg := t.targets[name]; tg != nil {
		return tg, nil
	}
	schema, table, err := t.cfg.parseTable(name)
	if err != nil {
		return nil, &schemaError{err}
	}
	tg := &target{schema: schema, name: table, full: table}
	if schema != "" {
		tg.full = schema + "." + table
	}
	t.targets[name] = tg
	return tg, nil
}
