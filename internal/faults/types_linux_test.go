package faults_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// typesDDL makes what the types below need, in both databases.
const typesDDL = `CREATE SCHEMA app; CREATE TYPE mood AS ENUM ('sad', 'ok', 'very "happy"');
	CREATE DOMAIN price AS numeric(10,2); CREATE DOMAIN short AS varchar(5); CREATE TYPE app.pair AS (a int, b text)`

// extensions bring types, where the server has them.
var extensions = map[string]map[string][]string{
	"hstore": {"hstore": {`'a=>1, "b\"c"=>NULL, d=>"", "e\\f"=>"=>,"'`, "''"}},
	"citext": {"citext": {"'MiXed'", "''"}},
	"ltree":  {"ltree": {"'a.b_c.d'", "''"}},
}

// plainTypes are types with values of theirs, as literals, that are carried whatever the settings.
var plainTypes = map[string][]string{
	"boolean": {"true", "false"}, "smallint": {"-32768", "32767"}, "integer": {"-2147483648", "2147483647"},
	"bigint": {"-9223372036854775808", "9223372036854775807", "0"}, "oid": {"0", "4294967295"},
	"real":             {"1.17549435e-38", "-3.4028235e38", "-0.0", "0.1", "'NaN'", "'Infinity'", "'-Infinity'"},
	"double precision": {"5e-324", "1.7976931348623157e308", "0.1", "'NaN'", "'Infinity'", "'-Infinity'"},
	"numeric(10,2)":    {"-12345678.90", "99999999.99", "0", "-0.01"}, "numeric(3,-2)": {"12300", "-100"},
	"numeric(2,5)": {"0.00042"}, "numeric(38)": {strings.Repeat("9", 38)},
	"numeric": {"123.4500", "-1e100", "1e-100", "0", "0.000", "123456789012345678901234567890.5"},
	"money":   {"'-92233720368547758.08'::numeric::money", "'0.01'"},
	"char(4)": {"'ab'", "''", "'abcd'"}, "varchar(5)": {"'abcde'", "''"}, "name": {"'n'", "repeat('n', 63)"},
	`"char"`: {"'x'"},
	"text":   {"''", `E'a\\b\tc\nd\re"f''g'`, "'NULL'", `'\N'`, "'ä😀'", "'{a,b}'", "repeat('x', 100000)"},
	"bytea":  {"'\\x'", "'\\x00ff5c27'", "decode(repeat('ab', 50000), 'hex')"},
	"date": {"'1970-01-01'", "'4713-01-01 BC'", "'0001-12-31 BC'", "'5874897-12-31'", "'infinity'", "'-infinity'",
		"'2024-02-29'"},
	"time": {"'00:00:00'", "'24:00:00'", "'23:59:59.999999'", "'00:00:00.000001'"}, "time(0)": {"'12:34:56'"},
	"timetz": {"'04:05:06.789+00'", "'24:00:00+00'"},
	"timestamp": {"'1970-01-01 00:00:00'", "'4713-01-01 00:00:00 BC'", "'294246-12-31 23:59:59.999999'", "'infinity'",
		"'-infinity'", "'1969-12-31 23:59:59.999999'", "'0001-01-01 00:00:00.5'"},
	"timestamp(3)": {"'2024-02-29 12:34:56.789'", "'infinity'", "'-infinity'"},
	"timestamptz":  {"'2024-07-01 12:00:00.123456+02'", "'0044-03-15 12:00:00+00 BC'", "'infinity'", "'-infinity'"},
	"interval":     {"'0'", "'04:05:06.789'", "'-00:00:00.000001'", "'1 year 2 mons -3 days -04:05:06.5'"},
	"bit(1)":       {"B'0'", "B'1'"}, "bit(10)": {"B'1000000001'", "B'0000000000'"},
	"varbit": {"B'0010'", "B''", "B'1'", "B'000000000000000000001'"}, "varbit(5)": {"B'00110'", "B'0'"},
	"uuid": {"'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"},
	"json": {`'{"b": 1,  "a": 1.50}'`, "'null'", `'"text"'`}, "jsonb": {`'{"a": 123456789012345678901234567890.50}'`,
		"'[]'"},
	"xml": {"'<a>b</a>'"}, "mood": {`'very "happy"'`, "'sad'"}, "price": {"12.50", "-1.00"}, "short": {"'abc'"},
	"inet": {"'10.0.0.1/8'", "'::1'"}, "cidr": {"'::/0'"}, "macaddr": {"'08:00:2b:01:02:03'"},
	"macaddr8":  {"'08:00:2b:01:02:03:04:05'"},
	"int4range": {"'[1,5)'", "'empty'", "'(,)'"}, "int8range": {"'[1,9223372036854775807)'"},
	"numrange": {"'[1.5,2.5]'"}, "daterange": {"'[2024-01-01,infinity)'"},
	"tsrange":        {"'(-infinity,2024-01-01 00:00:00]'"},
	"tstzrange":      {"'[2024-01-01 00:00:00+00,)'"},
	"int8multirange": {"'{[1,3),[5,7)}'", "'{}'"},
	"tsvector":       {"'''a'':2 ''b'':1A'", "''"}, "tsquery": {"'''a'' & ''b'''"}, "pg_lsn": {"'0/16B3748'"},
	"xid8": {"'42'"}, "app.pair": {"(1, 'a \"b'' c')", "(NULL, '')"},
	"point": {"'(1.5,-2)'", "'(1e300,NaN)'"}, "line": {"'{1,2,3}'"}, "circle": {"'<(1,2),3>'"},
	"lseg": {"'[(1,2),(3,4)]'"},
	"box":  {"'(3,4),(1,2)'"}, "path": {"'[(1,2),(3,4),(5,6)]'", "'((1,2),(3,4),(5,6))'", "'((1,2),(1,2))'"},
	"polygon": {"'((0,0),(1,0),(1e300,1))'", "'((1,1))'"},
	"int[]":   {"'{1,NULL,-3}'", "'{}'"}, "int[][]": {"'{{1,2},{3,4}}'", "'{}'"},
	"text[]":   {`ARRAY['a,b', NULL, 'NULL', 'q"\', '', '{}', ' ', 'null']`, "'{}'"},
	"text[][]": {"'{{a,b},{c,NULL}}'", `ARRAY[['"', '']]`},
	"bytea[]":  {`ARRAY['\x01'::bytea, '\x']`}, "numeric(6,2)[]": {"'{1.50,-2.00}'"},
	"mood[]": {`ARRAY['ok', 'very "happy"']::mood[]`}, "price[]": {"'{2.00}'"},
	"timestamp[]": {`'{"2024-01-01 00:00:00","0044-01-01 00:00:00 BC",infinity}'`}, "boolean[]": {"'{t,f,NULL}'"},
	"uuid[]": {"'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"}, "inet[]": {"'{10.0.0.1}'"},
	"jsonb[]": {`ARRAY['{"a":"b\"c"}'::jsonb]`}, "app.pair[]": {"ARRAY[(1,'x y')::app.pair]"},
	"date[]": {"'{2024-01-01,-infinity}'"}, "double precision[]": {"'{1.5}'", "'{1.5,NaN,-Infinity}'"},
}

// textNumbers are values that numbers have only as text.
var textNumbers = map[string][]string{
	"numeric": {"'NaN'", "'Infinity'", "'-Infinity'"}, "numeric(10,2)": {"'NaN'"}, "price": {"'NaN'"},
	"numeric(6,2)[]": {"'{NaN}'"},
}

// carriage is how a source puts rows into topics: its settings, and what it can carry beside the plain values.
type carriage struct {
	name     string
	settings []string
	more     map[string][]string
	finite   bool // it has no form for floating-point numbers that are none
}

// carriages are the ways that are tried.
func carriages() []carriage {
	by := func(kind string, more ...string) []string {
		var out []string
		for _, part := range []string{"key", "value"} {
			out = append(out, part+".converter", kind, part+".converter.schema.registry.url", "http://millrace")
		}
		return append(append(out, "interval.handling.mode", "string"), more...)
	}
	const json = "org.apache.kafka.connect.json.JsonConverter"
	return []carriage{
		{"avro, numbers as text", by("io.confluent.connect.avro.AvroConverter", "decimal.handling.mode", "string",
			"schema.name.adjustment.mode", "avro"), textNumbers, false},
		{"json, precise numbers, times as ISO text", by(json, "time.precision.mode", "isostring"), nil, false},
		{"json, microseconds", by(json, "time.precision.mode", "microseconds", "hstore.handling.mode", "map"), nil,
			false},
		{"json schema", by("io.confluent.connect.json.JsonSchemaConverter"), nil, true},
	}
}

// typed is a column of a type, with literals of values.
type typed struct {
	name, kind string
	values     []string
}

// columns are a column for each type that a way carries.
func (c carriage) columns(more map[string][]string) (out []typed) {
	all := maps.Clone(plainTypes)
	for _, m := range []map[string][]string{c.more, more} {
		for kind, values := range m {
			all[kind] = slices.Concat(all[kind], values)
		}
	}
	if c.finite {
		for _, kind := range []string{"real", "double precision", "point", "double precision[]"} {
			all[kind] = slices.DeleteFunc(slices.Clone(all[kind]), func(v string) bool {
				return strings.Contains(v, "NaN") || strings.Contains(v, "Infinity")
			})
		}
	}
	for i, kind := range slices.Sorted(maps.Keys(all)) {
		out = append(out, typed{fmt.Sprintf("c%02d", i), kind, all[kind]})
	}
	return out
}
