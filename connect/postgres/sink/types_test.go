package sink_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

const typesDDL = `CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
	CREATE TYPE mood AS ENUM ('sad', 'ok', 'very "happy"'); CREATE DOMAIN price AS numeric(10,2);
	CREATE DOMAIN short AS varchar(5); CREATE SCHEMA app; CREATE TYPE app.pair AS (a int, b text)`

// values are types with values that each of them is to carry, as literals.
var values = map[string][]string{
	"boolean": {"true", "false"}, "smallint": {"-32768", "32767"}, "integer": {"-2147483648", "2147483647"},
	"bigint": {"-9223372036854775808", "9223372036854775807", "0"}, "oid": {"0", "4294967295"},
	"real":             {"1.17549435e-38", "-3.4028235e38", "'NaN'", "'Infinity'", "'-Infinity'", "-0.0", "0.1"},
	"double precision": {"5e-324", "1.7976931348623157e308", "'NaN'", "'Infinity'", "'-Infinity'", "0.1"},
	"numeric(10,2)":    {"-12345678.90", "99999999.99", "0", "-0.01"}, "numeric(3,-2)": {"12300", "-100"},
	"numeric(2,5)": {"0.00042"}, "numeric(38)": {strings.Repeat("9", 38)},
	"numeric": {"123.4500", "-1e100", "1e-100", "0", "0.000", "123456789012345678901234567890.5"},
	"money":   {"'-92233720368547758.08'::numeric::money", "'0.01'"},
	"char(4)": {"'ab'", "''", "'abcd'"}, "varchar(5)": {"'abcde'", "''"}, "name": {"'n'"}, `"char"`: {"'x'"},
	"text":  {"''", `E'a\\b\tc\nd\re"f''g'`, "'NULL'", `'\N'`, "'ä😀'", "'{a,b}'", "repeat('x', 100000)"},
	"bytea": {"'\\x'", "'\\x00ff5c27'", "decode(repeat('ab', 50000), 'hex')"},
	"date": {"'1970-01-01'", "'4713-01-01 BC'", "'0001-12-31 BC'", "'5874897-12-31'", "'infinity'", "'-infinity'",
		"'2024-02-29'"},
	"time": {"'00:00:00'", "'24:00:00'", "'23:59:59.999999'", "'00:00:00.000001'"}, "time(0)": {"'12:34:56'"},
	"timetz": {"'04:05:06.789+00'", "'24:00:00+00'"},
	"timestamp": {"'1970-01-01 00:00:00'", "'4713-01-01 00:00:00 BC'", "'294246-12-31 23:59:59.999999'", "'infinity'",
		"'-infinity'", "'1969-12-31 23:59:59.999999'", "'0001-01-01 00:00:00.5'"},
	"timestamp(3)": {"'2024-02-29 12:34:56.789'", "'infinity'", "'-infinity'"},
	"timestamptz":  {"'2024-07-01 12:00:00.123456+02'", "'0044-03-15 12:00:00+00 BC'", "'infinity'", "'-infinity'"},
	"interval":     {"'0'", "'04:05:06.789'", "'-00:00:00.000001'"},
	"bit(1)":       {"B'0'", "B'1'"}, "bit(10)": {"B'1000000001'", "B'0000000000'"},
	"varbit": {"B'0010'", "B''", "B'1'", "B'000000000000000000001'"}, "varbit(5)": {"B'00110'", "B'0'"},
	"uuid": {"'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"},
	"json": {`'{"b": 1,  "a": 1.50}'`, "'null'", `'"text"'`}, "jsonb": {`'{"a": 123456789012345678901234567890.50}'`,
		"'[]'"},
	"xml": {"'<a>b</a>'"}, "hstore": {`'a=>1, "b\"c"=>NULL, d=>"", "e\\f"=>"=>,"'`, "''"},
	"mood": {`'very "happy"'`, "'sad'"}, "price": {"12.50", "-1.00"}, "short": {"'abc'"},
	"inet": {"'10.0.0.1/8'", "'::1'"}, "cidr": {"'::/0'"}, "macaddr": {"'08:00:2b:01:02:03'"},
	"macaddr8":  {"'08:00:2b:01:02:03:04:05'"},
	"int4range": {"'[1,5)'", "'empty'", "'(,)'"}, "tstzrange": {"'[2024-01-01 00:00:00+00,)'"},
	"numrange":       {"'[1.5,2.5]'"},
	"int8multirange": {"'{[1,3),[5,7)}'"}, "citext": {"'MiXed'"}, "ltree": {"'a.b'"},
	"tsvector": {"'''a'':2 ''b'':1A'"}, "tsquery": {"'''a'' & ''b'''"}, "pg_lsn": {"'0/16B3748'"}, "xid8": {"'42'"},
	"app.pair": {"(1, 'a \"b'' c')", "(NULL, '')"},
	"point":    {"'(1.5,-2)'", "'(1e300,NaN)'"}, "line": {"'{1,2,3}'"}, "circle": {"'<(1,2),3>'"},
	"lseg": {"'[(1,2),(3,4)]'"},
	"box":  {"'(3,4),(1,2)'"}, "path": {"'[(1,2),(3,4),(5,6)]'", "'((1,2),(3,4),(5,6))'", "'((1,2),(1,2))'"},
	"polygon": {"'((0,0),(1,0),(1e300,1))'", "'((1,1))'"},
	"int[]":   {"'{1,NULL,-3}'", "'{}'"}, "int[][]": {"'{{1,2},{3,4}}'"},
	"text[]":         {`ARRAY['a,b', NULL, 'NULL', 'q"\', '', '{}', ' ', 'null']`, "'{}'"},
	"bytea[]":        {`ARRAY['\x01'::bytea, '\x']`},
	"numeric(6,2)[]": {"'{1.50,-2.00}'"}, "mood[]": {`ARRAY['ok', 'very "happy"']::mood[]`}, "price[]": {"'{2.00}'"},
	"timestamp[]": {`'{"2024-01-01 00:00:00","0044-01-01 00:00:00 BC",infinity}'`}, "boolean[]": {"'{t,f,NULL}'"},
	"uuid[]": {"'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"}, "inet[]": {"'{10.0.0.1}'"},
	"jsonb[]": {`ARRAY['{"a":"b\"c"}'::jsonb]`}, "app.pair[]": {"ARRAY[(1,'x y')::app.pair]"},
	"date[]": {"'{2024-01-01,-infinity}'"}, "double precision[]": {"'{1.5,NaN,-Infinity}'"},
}

// modesOf are the ways of a source to put it, in which a type is carried without loss.
func modesOf(typ string) []postgres.Mapping {
	dbz := postgres.Mapping{Convention: postgres.Debezium}
	out := []postgres.Mapping{dbz}
	add := func(change func(m *postgres.Mapping)) {
		m := dbz
		change(&m)
		out = append(out, m)
	}
	base := strings.TrimSuffix(typ, "[]")
	switch {
	case strings.HasPrefix(base, "time"), base == "date", base == "interval":
		add(func(m *postgres.Mapping) { m.Time = "isostring" })
		add(func(m *postgres.Mapping) { m.Time = "structured" })
		add(func(m *postgres.Mapping) { m.Time = "microseconds" })
	case strings.HasPrefix(base, "numeric"), base == "money", base == "price":
		add(func(m *postgres.Mapping) { m.Decimal = "string" })
	case base == "hstore":
		add(func(m *postgres.Mapping) { m.Hstore = "map" })
	}
	if base == "interval" {
		add(func(m *postgres.Mapping) { m.Interval = "string" })
	}
	if !strings.HasPrefix(base, "time") && base != "price" && base != "money" && base != "numeric" {
		out = append(out, postgres.Mapping{Convention: postgres.JDBC})
	}
	if base == "app.pair" {
		add(func(m *postgres.Mapping) { m.Unknown = true })
	}
	return out
}

// carried reads a table as a source does, and gives its rows as records.
func carried(t *testing.T, c *pgx.Conn, name string, m postgres.Mapping) []data.Record {
	table, err := postgres.LoadTable(t.Context(), c, "", name)
	require.NoError(t, err)
	var oids []uint32
	for i := range table.Columns {
		oids = append(oids, table.Columns[i].Type)
	}
	types, err := postgres.LoadTypes(t.Context(), c, oids)
	require.NoError(t, err)
	var coders []*postgres.Coder
	var fields []data.Field
	for _, col := range table.Columns {
		coder, err := postgres.NewMapper(m, types).Column(col)
		require.NoError(t, err)
		coders = append(coders, coder)
		fields = append(fields, data.Field{Name: col.Name, Schema: coder.Schema})
	}
	row, key := data.NewStruct(name, fields...), data.NewStruct("key", fields[0])
	var out []data.Record
	result := c.PgConn().ExecParams(t.Context(), "SELECT * FROM "+name+" ORDER BY 1", nil, nil, nil, nil)
	for result.NextRow() {
		v := data.New(row)
		for i, text := range result.Values() {
			v.Values[i], err = coders[i].Decode(text)
			require.NoError(t, err, "%s %s", table.Columns[i].Name, text)
		}
		out = append(out, data.Record{KeySchema: key, Key: data.New(key).Set("id", v.Values[0]), ValueSchema: row, Value: v})
	}
	_, err = result.Close()
	require.NoError(t, err)
	return out
}

// What a table holds comes out of the sink as it was: into tables of the same types, and into those that it makes.
func TestEveryTypeComesBack(t *testing.T) {
	source := newDB(t)
	source.exec(strings.Split(typesDDL, ";")...)
	config, err := postgres.ParseURL(source.url, "", "", nil)
	require.NoError(t, err)
	c, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer c.Close(t.Context())
	types := slices.Sorted(maps.Keys(values))
	var tables []string
	want := make([]string, len(types))
	for i, typ := range types {
		tables = append(tables, fmt.Sprintf("CREATE TABLE t%d (id int PRIMARY KEY, c %s)", i, typ))
		source.exec(tables[i])
		for n, l := range append(values[typ], "NULL") {
			source.exec(fmt.Sprintf("INSERT INTO t%d VALUES (%d, %s)", i, n, l))
		}
		want[i] = source.text(fmt.Sprintf("SELECT * FROM t%d ORDER BY 1", i))
	}
	for mode, some := 0, true; some; mode++ {
		ts := newTopics()
		some = false
		for i, typ := range types {
			if modes := modesOf(typ); mode < len(modes) {
				some = true
				for _, r := range carried(t, c, fmt.Sprintf("t%d", i), modes[mode]) {
					ts.add(fmt.Sprintf("t%d", i), 0, r)
				}
			}
		}
		for _, made := range []bool{false, true} {
			target := newDB(t)
			target.exec(strings.Split(typesDDL, ";")...)
			if !made {
				target.exec(tables...)
			}
			r := run(t, ts, settings(native, target.url, "auto.create", fmt.Sprint(made)))
			require.Empty(t, r.reasons)
			for i, typ := range types {
				if modes := modesOf(typ); mode < len(modes) {
					got := target.text(fmt.Sprintf("SELECT * FROM t%d ORDER BY 1", i))
					if made && (typ == "bit(1)" || typ == "money" || modes[mode].Hstore == "map") { // schemas have others for them
						require.Equal(t, len(values[typ])+1, strings.Count(got, "\n"))
						continue
					}
					require.Equal(t, want[i], got, "%s %+v", typ, modes[mode])
				}
			}
		}
	}
}
