package sink

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"millrace/connect/postgres"
)

// Statements read rows from a relation s with columns c0, c1... It is made of arrays of text, one for each column, or
// is a temporary table that rows were copied to.

// fromArrays is the relation made of arrays.
func fromArrays(n int) string {
	arrays, names := make([]string, n), make([]string, n)
	for i := range n {
		arrays[i] = "$" + strconv.Itoa(i+1) + "::text[]"
		names[i] = "c" + strconv.Itoa(i)
	}
	return "unnest(" + strings.Join(arrays, ", ") + ") AS s(" + strings.Join(names, ", ") + ")"
}

// wire is the type that a value's text is read as.
func (t *columnType) wire() string {
	if t.OID == oidMoney { // whose own text depends on the server's language
		return "numeric"
	}
	return t.cast()
}

// read is the expression that gives a column's value. Typed: the relation has the type of the wire, not text.
func (t *columnType) read(i int, typed bool) string {
	c := "s.c" + strconv.Itoa(i)
	switch {
	case t.OID == oidMoney && typed:
		return c + "::money"
	case t.OID == oidMoney:
		return c + "::numeric::money"
	case typed, t.OID == oidText, t.OID == oidVarchar:
		return c
	}
	return c + "::" + t.cast()
}

func (s *columnSet) reads(columns []int, typed bool) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = s.t.types[c].read(i, typed)
	}
	return strings.Join(out, ", ")
}

func (s *columnSet) table() string { return postgres.QuoteTable(s.t.Schema, s.t.Name) }

// cached makes a statement once.
func (s *columnSet) cached(name string, make func() string) string {
	sql, ok := s.sql[name]
	if !ok {
		sql = make()
		s.sql[name] = sql
	}
	return sql
}

// insert is the INSERT of the set's columns from a relation.
func (s *columnSet) insert(from string, typed bool) string {
	b := strings.Builder{}
	b.WriteString("INSERT INTO " + s.table() + " AS t (" + quoteAll(s.names(s.columns)) + ")")
	for _, c := range s.columns {
		if s.t.Columns[c].Identity == 'a' {
			b.WriteString(" OVERRIDING SYSTEM VALUE")
			break
		}
	}
	b.WriteString(" SELECT " + s.reads(s.columns, typed) + " FROM " + from)
	return b.String()
}

// upsert is the INSERT that updates rows which are there.
func (s *columnSet) upsert(from string, typed bool) string {
	sql := s.insert(from, typed) + " ON CONFLICT (" + quoteAll(s.keyNames()) + ") DO "
	var sets []string
	for _, c := range s.assigned() {
		n := postgres.Quote(s.t.Columns[c].Name)
		sets = append(sets, n+" = EXCLUDED."+n)
	}
	if len(sets) == 0 {
		return sql + "NOTHING"
	}
	return sql + "UPDATE SET " + strings.Join(sets, ", ")
}

// assigned are the columns that an update sets.
func (s *columnSet) assigned() (out []int) {
	for _, c := range s.columns {
		if !s.isKey[c] && s.t.Columns[c].Identity != 'a' {
			out = append(out, c)
		}
	}
	return out
}

// typedRows is the relation of arrays with the columns' types, named as in the arrays.
func (s *columnSet) typedRows(columns []int) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = s.t.types[c].read(i, false) + " AS c" + strconv.Itoa(i)
	}
	return "(SELECT " + strings.Join(out, ", ") + " FROM " + fromArrays(len(columns)) + ") AS s"
}

// match is the condition that a row of the table has the key of one of the relation.
func (s *columnSet) match(columns []int) string {
	var out []string
	for i, c := range columns {
		if s.isKey[c] {
			out = append(out, "t."+postgres.Quote(s.t.Columns[c].Name)+" = s.c"+strconv.Itoa(i))
		}
	}
	return strings.Join(out, " AND ")
}

// update is the UPDATE of rows that are there, "" if there is nothing to set.
func (s *columnSet) update() string {
	var sets []string
	for i, c := range s.columns {
		if !s.isKey[c] && s.t.Columns[c].Identity != 'a' {
			sets = append(sets, postgres.Quote(s.t.Columns[c].Name)+" = s.c"+strconv.Itoa(i))
		}
	}
	if len(sets) == 0 {
		return ""
	}
	return "UPDATE " + s.table() + " AS t SET " + strings.Join(sets, ", ") + " FROM " + s.typedRows(s.columns) +
		" WHERE " + s.match(s.columns)
}

// insertMissing is the INSERT of rows that are not there.
func (s *columnSet) insertMissing() string {
	from := s.typedRows(s.columns) + " WHERE NOT EXISTS (SELECT FROM " + s.table() + " AS t WHERE " +
		s.match(s.columns) + ")"
	return s.insert(from, true)
}

// insertMoved is the INSERT of rows that are not there and came from another key. Their source reads values that are
// missing again when a row moves: where it did not find the row, a later record deletes it or moves it on. Until then
// something stands in columns that must not be null.
func (s *columnSet) insertMoved() string {
	columns, values := quoteAll(s.names(s.columns)), s.reads(s.columns, true)
	for _, i := range s.demanded() {
		columns += ", " + postgres.Quote(s.t.Columns[i].Name)
		values += ", '" + s.t.types[i].blank() + "'::" + s.t.types[i].cast()
	}
	overriding := ""
	if slices.ContainsFunc(s.columns, func(c int) bool { return s.t.Columns[c].Identity == 'a' }) {
		overriding = " OVERRIDING SYSTEM VALUE"
	}
	return "INSERT INTO " + s.table() + " (" + columns + ")" + overriding + " SELECT " + values + " FROM " +
		s.typedRows(s.columns) + " WHERE NOT EXISTS (SELECT FROM " + s.table() + " AS t WHERE " + s.match(s.columns) + ")"
}

// blank is the text of a value that says nothing, of a type whose values may be kept apart from their row.
func (t *columnType) blank() string {
	switch {
	case t.Kind == postgres.Array, t.OID == oidJSONB, t.OID == oidJSON:
		return "{}"
	case t.Kind == postgres.Range:
		return "empty"
	case t.OID == oidNumeric:
		return "0"
	case t.OID == oidPath, t.OID == oidPolygon:
		return "((0,0))"
	}
	return ""
}

// delete is the DELETE of the rows with the keys given.
func (s *columnSet) delete() string {
	return "DELETE FROM " + s.table() + " AS t USING " + s.typedRows(s.keys) + " WHERE " + s.match(s.keys)
}

// partial says whether a column that the set lacks must not be null and has no default. An INSERT would be refused for
// it, even one that finds its row.
func (s *columnSet) partial() bool { return len(s.demanded()) > 0 }

// demanded are those columns.
func (s *columnSet) demanded() (out []int) {
	for i := range s.t.Columns {
		c := &s.t.Columns[i]
		if c.NotNull && !s.has[i] && c.Default == "" && c.Identity == 0 && !c.Generated {
			out = append(out, i)
		}
	}
	return out
}

// appendArray writes texts as an array of text in the binary format.
func appendArray(dst []byte, a *arena, rows []*row, column int) []byte {
	nulls := uint32(0)
	for _, r := range rows {
		if r.cells[column].size < 0 {
			nulls = 1
			break
		}
	}
	dst = binary.BigEndian.AppendUint32(dst, 1) // dimensions
	dst = binary.BigEndian.AppendUint32(dst, nulls)
	dst = binary.BigEndian.AppendUint32(dst, oidText)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(rows)))
	dst = binary.BigEndian.AppendUint32(dst, 1) // lower bound
	for _, r := range rows {
		c := r.cells[column]
		dst = binary.BigEndian.AppendUint32(dst, uint32(c.size))
		if c.size > 0 {
			dst = append(dst, a.text(c)...)
		}
	}
	return dst
}

// appendCopy writes a row in the text format of COPY.
func appendCopy(dst []byte, a *arena, r *row, columns []int) []byte {
	for i, c := range columns {
		if i > 0 {
			dst = append(dst, '\t')
		}
		cell := r.cells[c]
		if cell.size < 0 {
			dst = append(dst, '\\', 'N')
			continue
		}
		dst = appendCopyText(dst, a.text(cell))
	}
	return append(dst, '\n')
}

func appendCopyText(dst, text []byte) []byte {
	from := 0
	for i, b := range text {
		if b != '\\' && b != '\n' && b != '\r' && b != '\t' {
			continue
		}
		dst = append(dst, text[from:i]...)
		switch b {
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', '\\')
		}
		from = i + 1
	}
	return append(dst, text[from:]...)
}
