package cdc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

// table is how the rows of one table become events, for one shape of the table. It never changes.
type table struct {
	name     tableName
	oid      uint32
	identity byte // d, n, f or i
	width    int  // columns of a tuple
	captured bool
	signal   bool // it is the signal table
	topic    string
	columns  []column // captured ones, in the order of the row's fields
	key      []keyColumn
	rowKey   []int // of a tuple: the columns that tell rows apart in what the server sends; nil if there are none
	wire     []wireColumn

	rowSchema, keySchema, envelope *data.Schema
	schemaName, tableName          any // boxed once, for each event's source
}

// column is a captured column.
type column struct {
	at       int // in a tuple
	name     string
	decode   func([]byte) (any, error)
	missing  any // the placeholder
	required bool
}

// keyColumn is a column of the events' key.
type keyColumn struct {
	at     int // in a tuple
	field  int // in the row, if its value there is the same; else -1
	name   string
	decode func([]byte) (any, error)
}

// shape identifies what a table looks like: two relation messages that say the same have the same.
func (r *relation) shape() string {
	b := binary.BigEndian.AppendUint32(nil, r.OID)
	b = append(b, r.Identity)
	for _, s := range []string{r.Schema, r.Name} {
		b = append(append(b, s...), 0)
	}
	for _, c := range r.Columns {
		key := byte(0)
		if c.Key {
			key = 1
		}
		b = append(append(append(b, key), c.Name...), 0)
		b = binary.BigEndian.AppendUint32(b, c.Type)
		b = binary.BigEndian.AppendUint32(b, uint32(c.Typmod))
	}
	return string(b)
}

func (r *relation) column(name string) int {
	return slices.IndexFunc(r.Columns, func(c wireColumn) bool { return c.Name == name })
}

// tableBuilder makes tables.
type tableBuilder struct {
	s       *settings
	mapper  *postgres.Mapper
	types   *postgres.Types
	lenient bool // labels of enums that the catalog does not have are no reason to ask it again
}

// build makes a table of what the stream says of it. The catalog's word, nil if there is none, may be ahead of the
// stream, and is taken only for what the stream does not tell, as far as the two agree.
func (b *tableBuilder) build(rel *relation, catalog *postgres.Table) (*table, error) {
	t := &table{name: tableName{rel.Schema, rel.Name}, oid: rel.OID, identity: rel.Identity, width: len(rel.Columns),
		wire: rel.Columns, schemaName: rel.Schema, tableName: rel.Name}
	t.signal = b.s.signals == t.name && slices.Contains(b.s.List("signal.enabled.channels"), "source")
	t.captured = b.s.filter.table(t.name)
	t.rowKey = places(rel, rowKey(rel, catalog))
	if !t.captured {
		return t, nil
	}
	t.topic = b.s.topic(rel.Schema, rel.Name)
	key := messageKey(b.s, rel, rowKey(rel, catalog))
	fields, err := b.columns(t, rel, catalog)
	if err != nil {
		return nil, err
	}
	name := func(what string) string { return adjust(b.s.nameMode, t.topic, true) + "." + what }
	t.rowSchema = data.NewStruct(name("Value"), fields...).AsOptional()
	if err := b.keyOf(t, rel, key, name("Key")); err != nil {
		return nil, err
	}
	t.envelope = envelopeSchema(name("Envelope"), t.rowSchema)
	return t, nil
}

// rowKey are the columns by which the stream tells rows apart: those of the replica identity, or, where that is the
// whole row or nothing, those of a key that the catalog has.
func rowKey(rel *relation, catalog *postgres.Table) []string {
	var flagged []string
	for _, c := range rel.Columns {
		if c.Key {
			flagged = append(flagged, c.Name)
		}
	}
	whole := rel.Identity == 'f' || rel.Identity == 'n'
	fits := func(columns []string) bool {
		if len(columns) == 0 || !whole && len(columns) != len(flagged) {
			return false
		}
		for _, c := range columns {
			i := rel.column(c)
			if i < 0 || !whole && !rel.Columns[i].Key {
				return false
			}
		}
		return true
	}
	if catalog != nil {
		if fits(catalog.PrimaryKey) {
			return catalog.PrimaryKey
		}
		for _, x := range catalog.Unique {
			if fits(x.Columns) && x.Immediate && (!whole || allNotNull(catalog, x.Columns)) {
				return x.Columns
			}
		}
	}
	if whole {
		return nil
	}
	return flagged
}

func allNotNull(t *postgres.Table, columns []string) bool {
	for _, name := range columns {
		if c := t.Column(name); c == nil || !c.NotNull {
			return false
		}
	}
	return true
}

// messageKey are the columns of the events' key.
func messageKey(s *settings, rel *relation, rowKey []string) []string {
	if columns := s.keyColumns(tableName{rel.Schema, rel.Name}); columns != nil {
		return columns
	}
	return rowKey
}

func places(rel *relation, columns []string) (out []int) {
	for _, c := range columns {
		if i := rel.column(c); i >= 0 {
			out = append(out, i)
		}
	}
	return out
}

// coder makes the coder of a column. Whether it is NOT NULL is the catalog's to say.
func (b *tableBuilder) coder(c wireColumn, catalog *postgres.Table, required bool) (*postgres.Coder, error) {
	column := postgres.Column{Name: c.Name, Type: c.Type, Typmod: c.Typmod, NotNull: required}
	if catalog != nil {
		if k := catalog.Column(c.Name); k != nil && k.Type == c.Type {
			column.Dimensions = k.Dimensions
		}
	}
	if t, _ := b.types.Resolve(c.Type, c.Typmod); t == nil {
		column.Type, column.Typmod = pgtype.TextOID, -1 // it was dropped since: the text of its values is left
	}
	return b.mapper.Column(column)
}

// identity says whether a column is of a replica identity that is a key.
func identity(rel *relation, i int) bool {
	return rel.Columns[i].Key && (rel.Identity == 'd' || rel.Identity == 'i')
}

func (b *tableBuilder) columns(t *table, rel *relation, catalog *postgres.Table) ([]data.Field, error) {
	var fields []data.Field
	for i, c := range rel.Columns {
		full := t.name.String() + "." + c.Name
		if !b.s.filter.columns.take(full) {
			continue
		}
		required := identity(rel, i) || b.alwaysThere(rel, catalog, c)
		coder, err := b.coder(c, catalog, required)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", full, err)
		}
		schema, decode := b.propagate(full, c, coder.Schema), coder.Decode
		if coder.Type != nil && coder.Type.Kind == postgres.Enum && !b.lenient {
			decode = labelled(decode, coder.Type.Labels)
		}
		for _, m := range b.s.masks {
			if matches(m.columns, full) && schema.Type == data.String {
				decode = masked(decode, m.apply)
			}
		}
		field := adjust(b.s.fieldMode, c.Name, false)
		if slices.ContainsFunc(fields, func(f data.Field) bool { return strings.EqualFold(f.Name, field) }) {
			return nil, fmt.Errorf("table %s has two columns called %s but for their case; leave one out with "+
				"column.exclude.list", t.name, field)
		}
		fields = append(fields, data.Field{Name: field, Schema: schema})
		t.columns = append(t.columns, column{at: i, name: c.Name, decode: decode,
			missing: coder.Placeholder, required: !schema.Optional})
	}
	return fields, nil
}

// alwaysThere says whether a column has a value in every row that the stream will show: not where the old row has only
// the columns of its identity.
func (b *tableBuilder) alwaysThere(rel *relation, catalog *postgres.Table, c wireColumn) bool {
	if catalog == nil || rel.Identity != 'f' && rel.Identity != 'n' {
		return false
	}
	k := catalog.Column(c.Name)
	return k != nil && k.NotNull && k.Type == c.Type
}

// errLabel says that a value is none of its enum's, as far as that was known.
var errLabel = errors.New("the enum has no such label")

// labelled sees to it that the labels of an enum, which the schema lists, have the value among them.
func labelled(decode func([]byte) (any, error), labels []string) func([]byte) (any, error) {
	known := make(map[string]bool, len(labels))
	for _, l := range labels {
		known[l] = true
	}
	return func(text []byte) (any, error) {
		if text != nil && !known[string(text)] {
			return nil, errLabel
		}
		return decode(text)
	}
}

func masked(decode func([]byte) (any, error), apply func(string) string) func([]byte) (any, error) {
	return func(text []byte) (any, error) {
		v, err := decode(text)
		if s, ok := v.(string); ok && err == nil {
			return apply(s), nil
		}
		return v, err
	}
}

// propagate notes the column's type in its schema, if asked to.
func (b *tableBuilder) propagate(full string, c wireColumn, schema *data.Schema) *data.Schema {
	columns, _ := compile(b.s.List("column.propagate.source.type"))
	types, _ := compile(b.s.List("datatype.propagate.source.type"))
	if len(columns) == 0 && len(types) == 0 {
		return schema
	}
	title := b.types.Title(c.Type)
	name := title
	if k := b.types.Find(c.Type); k != nil {
		name = k.Name
		title = k.Schema + "." + k.Name
	}
	if !matches(columns, full) && !matches(types, title) && !matches(types, b.s.database+"."+title) {
		return schema
	}
	out := *schema
	out.Parameters = map[string]string{"__debezium.source.column.type": strings.ToUpper(name)}
	for k, v := range schema.Parameters {
		out.Parameters[k] = v
	}
	switch k := c.Typmod; {
	case k < 4:
	case name == "numeric":
		out.Parameters["__debezium.source.column.length"] = strconv.Itoa(int((k - 4) >> 16 & 0xffff))
		out.Parameters["__debezium.source.column.scale"] = strconv.Itoa(int((k-4)&0x7ff^0x400) - 0x400)
	case name == "varchar" || name == "bpchar":
		out.Parameters["__debezium.source.column.length"] = strconv.Itoa(int(k - 4))
	}
	out.Index()
	return &out
}

// keyOf makes the key of a table's events.
func (b *tableBuilder) keyOf(t *table, rel *relation, key []string, name string) error {
	var fields []data.Field
	for _, k := range key {
		i := rel.column(k)
		if i < 0 {
			return fmt.Errorf("message.key.columns names the column %s, which table %s does not have", k, t.name)
		}
		field := slices.IndexFunc(t.columns, func(c column) bool { return c.at == i })
		full := t.name.String() + "." + k
		hidden := b.s.hidden(t.name, k)
		// A key that is not of the identity may be null where only the identity is known.
		required := identity(rel, i) || slices.Contains(t.rowKey, i)
		coder, err := b.coder(rel.Columns[i], nil, required)
		if err != nil {
			return fmt.Errorf("column %s: %w", full, err)
		}
		if hidden {
			field = -1
		}
		schema := b.propagate(full, rel.Columns[i], coder.Schema)
		fields = append(fields, data.Field{Name: adjust(b.s.fieldMode, k, false), Schema: schema})
		t.key = append(t.key, keyColumn{at: i, field: field, name: k, decode: coder.Decode})
	}
	if len(fields) > 0 {
		t.keySchema = data.NewStruct(name, fields...)
	}
	return nil
}
