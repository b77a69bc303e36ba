package postgres_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/connect/postgres"
	"millrace/connect/postgres/pgtest"
)

const (
	dbzTime = "io.debezium.time."
	dbzData = "io.debezium.data."
)

// typeCase is a column of a type, a value in it, and what is to come of it.
type typeCase struct {
	column string // type, and NOT NULL or DEFAULT
	value  string // SQL
	m      postgres.Mapping
	typ    data.Type
	name   string // of the schema
	want   any
	params map[string]string
}

func dec(unscaled string) []byte {
	n, ok := new(big.Int).SetString(unscaled, 10)
	if !ok {
		panic(unscaled)
	}
	return data.DecimalBytes(n)
}

func scale(s string) map[string]string { return map[string]string{"scale": s} }

func precision(p, s string) map[string]string {
	return map[string]string{"scale": s, "connect.decimal.precision": p}
}

func pgType(s string) map[string]string { return map[string]string{"pg.type": s} }

// fields are the values of a struct, for comparison.
type fields []any

var (
	dbz     = postgres.Mapping{Convention: postgres.Debezium}
	jdbc    = postgres.Mapping{Convention: postgres.JDBC}
	micros  = postgres.Mapping{Convention: postgres.Debezium, Time: "microseconds"}
	nanos   = postgres.Mapping{Convention: postgres.Debezium, Time: "nanoseconds"}
	connect = postgres.Mapping{Convention: postgres.Debezium, Time: "connect"}
	iso     = postgres.Mapping{Convention: postgres.Debezium, Time: "isostring"}
	structs = postgres.Mapping{Convention: postgres.Debezium, Time: "structured"}
	texts   = postgres.Mapping{Convention: postgres.Debezium, Decimal: "string", Interval: "string", Hstore: "map",
		Binary: "hex"}
	doubles = postgres.Mapping{Convention: postgres.Debezium, Decimal: "double", Binary: "base64"}
	opaque  = postgres.Mapping{Convention: postgres.Debezium, Unknown: true}
	best    = postgres.Mapping{Convention: postgres.JDBC, Numeric: "best_fit"}
	eager   = postgres.Mapping{Convention: postgres.JDBC, Numeric: "best_fit_eager_double"}
	whole   = postgres.Mapping{Convention: postgres.JDBC, Numeric: "precision_only"}
)

func granularity(g string) postgres.Mapping {
	return postgres.Mapping{Convention: postgres.JDBC, Granularity: g}
}

var numberCases = []typeCase{
	{"boolean", "true", dbz, data.Boolean, "", true, nil},
	{"boolean", "false", jdbc, data.Boolean, "", false, nil},
	{"smallint", "-32768", dbz, data.Int16, "", int16(-32768), nil},
	{"integer", "2147483647", jdbc, data.Int32, "", int32(math.MaxInt32), nil},
	{"bigint", "-9223372036854775808", dbz, data.Int64, "", int64(math.MinInt64), nil},
	{"bigserial", "9223372036854775807", dbz, data.Int64, "", int64(math.MaxInt64), nil},
	{"oid", "4294967295", dbz, data.Int64, "", int64(4294967295), nil},
	{"real", "1.17549435e-38", dbz, data.Float32, "", float32(1.17549435e-38), nil},
	{"real", "'-Infinity'", jdbc, data.Float32, "", float32(math.Inf(-1)), nil},
	{"double precision", "0.1", dbz, data.Float64, "", 0.1, nil},
	{"double precision", "1.7976931348623157e308", dbz, data.Float64, "", math.MaxFloat64, nil},
	{"double precision", "'NaN'", dbz, data.Float64, "", math.NaN(), nil},
	{"numeric(10,2)", "-12345678.9", dbz, data.Bytes, data.Decimal, dec("-1234567890"), precision("10", "2")},
	{"numeric(10,2)", "0", jdbc, data.Bytes, data.Decimal, dec("0"), precision("10", "2")},
	{"numeric(3,-2)", "12345", dbz, data.Bytes, data.Decimal, dec("123"), precision("3", "-2")},
	{"numeric(2,5)", "0.00042", dbz, data.Bytes, data.Decimal, dec("42"), precision("2", "5")},
	{"numeric(38,0)", "99999999999999999999999999999999999999", dbz, data.Bytes, data.Decimal,
		dec("99999999999999999999999999999999999999"), precision("38", "0")},
	{"numeric", "123.4500", dbz, data.Struct, dbzData + "VariableScaleDecimal", fields{int32(4), dec("1234500")}, nil},
	{"numeric", "-1e100", dbz, data.Struct, dbzData + "VariableScaleDecimal",
		fields{int32(0), dec("-1" + strings.Repeat("0", 100))}, nil},
	{"numeric", "1.5", jdbc, data.Bytes, data.Decimal, dec("15" + strings.Repeat("0", 126)), scale("127")},
	{"numeric", "'NaN'", texts, data.String, "", "NaN", pgType("numeric")},
	{"numeric", "'Infinity'", texts, data.String, "", "Infinity", pgType("numeric")},
	{"numeric(5,1)", "2", texts, data.String, "", "2.0", pgType("numeric")},
	{"numeric", "'-Infinity'", doubles, data.Float64, "", math.Inf(-1), nil},
	{"numeric(2)", "-99", whole, data.Int8, "", int8(-99), nil},
	{"numeric(4)", "-9999", whole, data.Int16, "", int16(-9999), nil},
	{"numeric(9)", "999999999", whole, data.Int32, "", int32(999999999), nil},
	{"numeric(18)", "999999999999999999", best, data.Int64, "", int64(999999999999999999), nil},
	{"numeric(19)", "9999999999999999999", best, data.Bytes, data.Decimal, dec("9999999999999999999"), precision("19",
		"0")},
	{"numeric(18,2)", "1.25", whole, data.Bytes, data.Decimal, dec("125"), precision("18", "2")},
	{"numeric(18,2)", "1.25", best, data.Float64, "", 1.25, nil},
	{"numeric(19,2)", "1.25", best, data.Bytes, data.Decimal, dec("125"), precision("19", "2")},
	{"numeric(19,2)", "1.25", eager, data.Float64, "", 1.25, nil},
	{"numeric", "1.25", eager, data.Float64, "", 1.25, nil},
	{"money", "(-1234.56)::numeric::money", dbz, data.Bytes, data.Decimal, dec("-123456"), scale("2")},
	{"money", "92233720368547758.07", texts, data.String, "", "92233720368547758.07", pgType("money")},
	{"money", "1234.5::numeric::money", jdbc, data.Float64, "", 1234.5, nil},
	{"bit(1)", "B'1'", dbz, data.Boolean, "", true, nil},
	{"bit(1)", "B'0'", jdbc, data.Boolean, "", false, nil},
	{"bit(8)", "B'11111110'", jdbc, data.Int8, "", int8(-2), pgType("bit(8)")},
	{"bit(10)", "B'1000000001'", jdbc, data.Bytes, "", []byte{1, 2}, pgType("bit(10)")},
	{"bit(10)", "B'1000000001'", dbz, data.Bytes, dbzData + "Bits", []byte{1, 2}, map[string]string{"length": "10"}},
	{"varbit(5)", "B'0010'", dbz, data.Bytes, dbzData + "Bits", []byte{2, 0, 0, 0},
		map[string]string{"length": "5", "pg.type": "varbit"}},
}

var timeCases = []typeCase{
	{"date", "'2024-02-29'", dbz, data.Int32, dbzTime + "Date", int32(19782), nil},
	{"date", "'0044-03-15 BC'", jdbc, data.Int32, data.Date, int32(-735160), nil},
	{"date", "'4713-01-01 BC'", dbz, data.Int32, dbzTime + "Date", int32(-2440550), nil},
	{"date", "'5874897-12-31'", dbz, data.Int32, dbzTime + "Date", int32(2145042905), nil},
	{"date", "'infinity'", dbz, data.Int32, dbzTime + "Date", int32(math.MaxInt32), nil},
	{"date", "'-infinity'", connect, data.Int32, data.Date, int32(math.MinInt32), nil},
	{"date", "'2023-11-21'", iso, data.String, dbzTime + "IsoDate", "2023-11-21Z", nil},
	{"date", "'0044-03-15 BC'", iso, data.String, dbzTime + "IsoDate", "-0043-03-15Z", nil},
	{"date", "'infinity'", structs, data.Struct, dbzTime + "StructuredDate", fields{nil, nil, nil, "POSITIVE_INFINITY"},
		nil},
	{"date", "'0001-01-01 BC'", structs, data.Struct, dbzTime + "StructuredDate", fields{int32(0), int8(1), int8(1),
		nil}, nil},
	{"time(3)", "'23:59:59.999'", dbz, data.Int32, dbzTime + "Time", int32(86399999), nil},
	{"time", "'24:00:00'", dbz, data.Int64, dbzTime + "MicroTime", int64(86400000000), nil},
	{"time(0)", "'12:00'", micros, data.Int64, dbzTime + "MicroTime", int64(43200000000), nil},
	{"time", "'00:00:00.000001'", nanos, data.Int64, dbzTime + "NanoTime", int64(1000), nil},
	{"time", "'24:00:00'", jdbc, data.Int32, data.Time, int32(86400000), nil},
	{"time", "'01:02:03.45'", iso, data.String, dbzTime + "IsoTime", "01:02:03.45Z", nil},
	{"time", "'24:00:00'", structs, data.Struct, dbzTime + "StructuredTime", fields{int8(24), int8(0), int8(0), int32(0),
		int32(6)}, nil},
	{"timetz", "'04:05:06.789+05:30'", dbz, data.String, dbzTime + "ZonedTime", "22:35:06.789Z", nil},
	{"timetz", "'24:00:00+00'", dbz, data.String, dbzTime + "ZonedTime", "24:00:00Z", nil},
	{"timetz", "'04:05:06-01'", jdbc, data.Int32, data.Time, int32(18306000), nil},
	{"timetz", "'04:05:06+05:30:15'", structs, data.Struct, dbzTime + "StructuredZonedTime",
		fields{int8(4), int8(5), int8(6), int32(0), int32(19815), int32(6)}, nil},
	{"timestamp", "'2024-02-29 12:34:56.123456'", dbz, data.Int64, dbzTime + "MicroTimestamp", int64(1709210096123456),
		nil},
	{"timestamp(3)", "'1969-12-31 23:59:59.999'", dbz, data.Int64, dbzTime + "Timestamp", int64(-1), nil},
	{"timestamp", "'1969-12-31 23:59:59.9995'", jdbc, data.Int64, data.Timestamp, int64(-1), nil},
	{"timestamp", "'4713-01-01 00:00:00 BC'", dbz, data.Int64, dbzTime + "MicroTimestamp", int64(-2440550) * 86400000000,
		nil},
	{"timestamp", "'294246-12-31 23:59:59.999999'", dbz, data.Int64, dbzTime + "MicroTimestamp", int64(
		9223371244799999999), nil},
	{"timestamp", "'294276-12-31 23:59:59'", jdbc, data.Int64, data.Timestamp, int64(9224318015999000), nil},
	{"timestamp", "'infinity'", dbz, data.Int64, dbzTime + "MicroTimestamp", int64(9223372036825200000), nil},
	{"timestamp", "'-infinity'", dbz, data.Int64, dbzTime + "MicroTimestamp", int64(-9223372036832400000), nil},
	{"timestamp", "'-infinity'", nanos, data.Int64, dbzTime + "NanoTimestamp", int64(math.MinInt64), nil},
	{"timestamp", "'2262-04-11 23:47:16.854775'", nanos, data.Int64, dbzTime + "NanoTimestamp", int64(
		9223372036854775000), nil},
	{"timestamp", "'infinity'", jdbc, data.Int64, data.Timestamp, int64(9223372036825200000), nil},
	{"timestamp", "'2024-01-01 00:00:00.5'", iso, data.String, dbzTime + "IsoTimestamp", "2024-01-01T00:00:00.5Z", nil},
	{"timestamp", "'12024-01-01'", iso, data.String, dbzTime + "IsoTimestamp", "+12024-01-01T00:00:00Z", nil},
	{"timestamp", "'-infinity'", iso, data.String, dbzTime + "IsoTimestamp", "-infinity", nil},
	{"timestamp(2)", "'2024-01-01 10:20:30.25'", structs, data.Struct, dbzTime + "StructuredTimestamp",
		fields{int32(2024), int8(1), int8(1), int8(10), int8(20), int8(30), int32(250000000), nil, int32(2)}, nil},
	{"timestamp", "'2024-01-01 00:00:00.000123'", granularity("micros_long"), data.Int64, "", int64(1704067200000123),
		nil},
	{"timestamp", "'2024-01-01 00:00:00.000123'", granularity("nanos_string"), data.String, "", "1704067200000123000",
		nil},
	{"timestamp", "'2024-01-01 00:00:00.000123'", granularity("micros_string"), data.String, "", "1704067200000123", nil},
	{"timestamp", "'2024-01-01 00:00:00.000123'", granularity("nanos_long"), data.Int64, "", int64(1704067200000123000),
		nil},
	{"timestamptz", "'2024-01-01 00:00:00.1+01'", granularity("micros_iso_datetime_string"), data.String, "",
		"2023-12-31T23:00:00.100000", nil},
	{"timestamp", "'2024-01-01 00:00:00.1'", granularity("nanos_iso_datetime_string"), data.String, "",
		"2024-01-01T00:00:00.100000000", nil},
	{"timestamptz", "'2024-07-01 12:00:00+02'", dbz, data.String, dbzTime + "ZonedTimestamp",
		"2024-07-01T10:00:00.000000Z", nil},
	{"timestamptz(0)", "'0044-03-15 12:00:00+00 BC'", dbz, data.String, dbzTime + "ZonedTimestamp",
		"-0043-03-15T12:00:00Z", nil},
	{"timestamptz", "'infinity'", dbz, data.String, dbzTime + "ZonedTimestamp", "infinity", nil},
	{"timestamptz", "'2024-07-01 12:00:00+02'", jdbc, data.Int64, data.Timestamp, int64(1719828000000), nil},
	{"timestamptz", "'2024-07-01 12:00:00+02'", structs, data.Struct, dbzTime + "StructuredZonedTimestamp",
		fields{int32(2024), int8(7), int8(1), int8(10), int8(0), int8(0), int32(0), int32(0), nil, nil, int32(6)}, nil},
	{"interval", "'1 year 2 mons 3 days 04:05:06.789'", dbz, data.Int64, dbzTime + "MicroDuration",
		int64(14*2629800000000 + 3*86400000000 + 14706789000), nil},
	{"interval", "'-1 day +00:00:01'", dbz, data.Int64, dbzTime + "MicroDuration", int64(-86399000000), nil},
	{"interval", "'1 year -2 mons 3 days -04:05:06.789'", texts, data.String, dbzTime + "Interval",
		"P0Y10M3DT-4H-5M-6.789S", nil},
	{"interval", "'0'", texts, data.String, dbzTime + "Interval", "P0Y0M0DT0H0M0S", nil},
	{"interval", "'178000000 years'", texts, data.String, dbzTime + "Interval", "P178000000Y0M0DT0H0M0S", nil},
	{"interval", "'2 years 26:00:01.5'", structs, data.Struct, dbzTime + "StructuredDuration",
		fields{int32(2), int32(0), int32(0), int32(26), int32(0), int64(1), int32(500000000), int32(6)}, nil},
	{"interval", "'1 mon'", jdbc, data.String, "", "1 mon", pgType("interval")},
}

var textCases = []typeCase{
	{"text", `E'a"\\\n\u00e4'`, dbz, data.String, "", "a\"\\\nä", nil},
	{"varchar(5)", "''", jdbc, data.String, "", "", nil},
	{"char(4)", "'ab'", dbz, data.String, "", "ab  ", nil},
	{"name", "'n'", dbz, data.String, "", "n", nil},
	{`"char"`, "'x'", dbz, data.String, "", "x", nil},
	{"bytea", `'\x00ff'`, dbz, data.Bytes, "", []byte{0, 255}, nil},
	{"bytea", "''", jdbc, data.Bytes, "", []byte{}, nil},
	{"bytea", `'\x00ff'`, texts, data.String, "", "00ff", pgType("bytea")},
	{"bytea", `'\x00ff'`, doubles, data.String, "", "AP8=", pgType("bytea")},
	{"uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", dbz, data.String, dbzData + "Uuid",
		"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", nil},
	{"json", `'{"b": 1,  "a": 1.50}'`, dbz, data.String, dbzData + "Json", `{"b": 1,  "a": 1.50}`, nil},
	{"jsonb", `'{"b": 1, "a": 123456789012345678901234567890.50}'`, dbz, data.String, dbzData + "Json",
		`{"a": 123456789012345678901234567890.50, "b": 1}`, pgType("jsonb")},
	{"jsonb", `'[1]'`, jdbc, data.String, "", "[1]", pgType("jsonb")},
	{"xml", "'<a/>'", dbz, data.String, dbzData + "Xml", "<a/>", nil},
	{"hstore", `'a=>1, "b\"c"=>NULL, d=>""'`, dbz, data.String, dbzData + "Json", `{"a":"1","d":"","b\"c":null}`, pgType(
		"hstore")},
	{"hstore", `'a=>1, "b,=>"=>NULL, d=>""'`, texts, data.Map, "", map[string]any{"a": "1", "b,=>": nil, "d": ""}, nil},
	{"hstore", `''`, texts, data.Map, "", map[string]any{}, nil},
	{"hstore", `'a=>1'`, jdbc, data.String, "", `"a"=>"1"`, pgType("hstore")},
	{"mood", "'very \"happy\"'", dbz, data.String, dbzData + "Enum", `very "happy"`,
		map[string]string{"allowed": `sad,ok,very "happy"`, "pg.type": "mood"}},
	{"mood", "'ok'", jdbc, data.String, "", "ok", nil},
	{"netprice", "12.5", dbz, data.Bytes, data.Decimal, dec("1250"), precision("10", "2")},
	{"netprice", "12.5", jdbc, data.Bytes, data.Decimal, dec("1250"), precision("10", "2")},
	{"inet", "'10.0.0.1/8'", dbz, data.String, "", "10.0.0.1/8", pgType("inet")},
	{"cidr", "'::/0'", jdbc, data.String, "", "::/0", pgType("cidr")},
	{"macaddr8", "'08:00:2b:01:02:03:04:05'", dbz, data.String, "", "08:00:2b:01:02:03:04:05", pgType("macaddr8")},
	{"int4range", "'[1,5)'", dbz, data.String, "", "[1,5)", pgType("int4range")},
	{"tstzrange", "'empty'", jdbc, data.String, "", "empty", pgType("tstzrange")},
	{"int8multirange", "'{[1,3),[5,7)}'", dbz, data.String, "", "{[1,3),[5,7)}", pgType("int8multirange")},
	{"citext", "'MiXed'", dbz, data.String, "", "MiXed", pgType("citext")},
	{"ltree", "'a.b'", dbz, data.String, dbzData + "Ltree", "a.b", nil},
	{"tsvector", "to_tsvector('simple', 'b a')", dbz, data.String, dbzData + "Tsvector", "'a':2 'b':1", nil},
	{"tsquery", "'a & b'", dbz, data.String, "", "'a' & 'b'", pgType("tsquery")},
	{"pg_lsn", "'0/16B3748'", dbz, data.String, "", "0/16B3748", pgType("pg_lsn")},
	{"xid8", "'42'", jdbc, data.String, "", "42", pgType("xid8")},
	{"pair", "(1, 'a b')", dbz, data.String, "", `(1,"a b")`, pgType("app.pair")},
	{"pair", "(1, 'a b')", opaque, data.Bytes, "", []byte(`(1,"a b")`), pgType("app.pair")},
}

var geoCases = []typeCase{
	{"point", "'(1.5,-2)'", dbz, data.Struct, dbzData + "geometry.Point", fields{1.5, -2.0, wkb("0101000000", 1.5, -2),
		nil}, nil},
	{"line", "'{1,2,3}'", dbz, data.Struct, dbzData + "geometry.Line", fields{1.0, 2.0, 3.0}, nil},
	{"circle", "'<(1,2),3>'", dbz, data.Struct, dbzData + "geometry.Circle",
		fields{fields{1.0, 2.0, wkb("0101000000", 1, 2), nil}, 3.0}, nil},
	{"lseg", "'[(1,2),(3,4)]'", dbz, data.Struct, dbzData + "geometry.Geometry",
		fields{wkb("010200000002000000", 1, 2, 3, 4), nil, map[string]any{"type": "lseg"}}, pgType("lseg")},
	{"box", "'(3,4),(1,2)'", dbz, data.Struct, dbzData + "geometry.Geometry",
		fields{wkb("01030000000100000005000000", 3, 4, 3, 2, 1, 2, 1, 4, 3, 4), nil, map[string]any{"type": "box"}}, pgType(
			"box")},
	{"path", "'[(1,2),(3,4),(5,6)]'", dbz, data.Struct, dbzData + "geometry.Geometry",
		fields{wkb("010200000003000000", 1, 2, 3, 4, 5, 6), nil, map[string]any{"type": "path", "closed": "false"}}, pgType(
			"path")},
	{"polygon", "'((0,0),(1,0),(1e300,1))'", dbz, data.Struct, dbzData + "geometry.Geometry",
		fields{wkb("01030000000100000004000000", 0, 0, 1, 0, 1e300, 1, 0, 0), nil, map[string]any{"type": "polygon"}},
		pgType("polygon")},
	{"point", "'(1.5,-2)'", jdbc, data.String, "", "(1.5,-2)", pgType("point")},
}

var arrayCases = []typeCase{
	{"int[]", "'{1,NULL,-3}'", dbz, data.Array, "", []any{int32(1), nil, int32(-3)}, nil},
	{"int[]", "'{}'", dbz, data.Array, "", []any{}, nil},
	{"int[]", "'[5:6]={1,2}'", dbz, data.Array, "", []any{int32(1), int32(2)}, nil},
	{"int[][]", "'{{1,2},{3,4}}'", dbz, data.String, "", "{{1,2},{3,4}}", pgType("int4[]")},
	{"text[]", `ARRAY['a,b', NULL, 'NULL', 'q"\', '', '{}', ' ']`, dbz, data.Array, "",
		[]any{"a,b", nil, "NULL", `q"\`, "", "{}", " "}, nil},
	{"text[]", `ARRAY['a,b', NULL]`, jdbc, data.String, "", `{"a,b",NULL}`, pgType("text[]")},
	{"bytea[]", `ARRAY['\x01'::bytea, '\x']`, dbz, data.Array, "", []any{[]byte{1}, []byte{}}, nil},
	{"numeric(6,2)[]", "'{1.5,2}'", dbz, data.Array, "", []any{dec("150"), dec("200")}, nil},
	{"mood[]", "'{ok,sad}'", dbz, data.Array, "", []any{"ok", "sad"}, nil},
	{"netprice[]", "'{2}'", dbz, data.Array, "", []any{dec("200")}, nil},
	{"box[]", "'{(3,4),(1,2);(1,1),(0,0)}'", jdbc, data.String, "", "{(3,4),(1,2);(1,1),(0,0)}", pgType("box[]")},
	{"timestamp[]", "'{\"2024-01-01 00:00:00\"}'", dbz, data.Array, "", []any{int64(1704067200000000)}, nil},
	{"uuid[]", "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", dbz, data.Array, "",
		[]any{"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}, nil},
	{"inet[]", "'{10.0.0.1}'", dbz, data.Array, "", []any{"10.0.0.1"}, nil},
	{"interval[]", "'{1 day}'", texts, data.Array, "", []any{"P0Y0M1DT0H0M0S"}, nil},
	{"money[]", "'{$1.50}'", dbz, data.Array, "", []any{dec("150")}, nil},
	{"jsonb[]", `ARRAY['{"a":1}'::jsonb]`, dbz, data.Array, "", []any{`{"a": 1}`}, nil},
	{"pair[]", "ARRAY[(1,'x')::pair]", dbz, data.Array, "", []any{"(1,x)"}, nil},
}

// reader reads one column of one row of each table, as text, in a session like the connectors'.
type reader struct {
	c *pgx.Conn
	n int
}

func newReader(t *testing.T) *reader {
	srv := pgtest.Start(t)
	u := srv.Database(t)
	srv.Exec(t, u, "CREATE EXTENSION hstore", "CREATE EXTENSION citext", "CREATE EXTENSION ltree",
		`CREATE TYPE mood AS ENUM ('sad', 'ok', 'very "happy"')`, "CREATE DOMAIN price AS numeric(10,2)",
		"CREATE DOMAIN netprice AS price CHECK (value > 0)", "CREATE SCHEMA app", "CREATE TYPE app.pair AS (a int, b text)",
		// A database whose own settings would make other texts.
		"DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET TimeZone = ''Asia/Kolkata'''; "+
			"EXECUTE 'ALTER DATABASE ' || current_database() || ' SET DateStyle = ''SQL, DMY'''; "+
			"EXECUTE 'ALTER DATABASE ' || current_database() || ' SET IntervalStyle = ''iso_8601'''; "+
			"EXECUTE 'ALTER DATABASE ' || current_database() || ' SET bytea_output = ''escape'''; "+
			"EXECUTE 'ALTER DATABASE ' || current_database() || ' SET search_path = public, app'; "+
			"EXECUTE 'ALTER DATABASE ' || current_database() || ' SET extra_float_digits = -5'; END $$")
	config, err := postgres.ParseURL(u, "", "", nil)
	require.NoError(t, err)
	c, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(t.Context()) })
	return &reader{c: c}
}

func (r *reader) read(t *testing.T, c typeCase) (*postgres.Coder, any, error) {
	t.Helper()
	r.n++
	name := fmt.Sprintf("t%d", r.n)
	_, err := r.c.Exec(t.Context(), fmt.Sprintf("CREATE TABLE %s (c %s)", name, c.column))
	require.NoError(t, err)
	_, err = r.c.Exec(t.Context(), fmt.Sprintf("INSERT INTO %s VALUES (%s)", name, c.value))
	require.NoError(t, err)
	table, err := postgres.LoadTable(t.Context(), r.c, "", name)
	require.NoError(t, err)
	types, err := postgres.LoadTypes(t.Context(), r.c, []uint32{table.Columns[0].Type})
	require.NoError(t, err)
	coder, err := postgres.NewMapper(c.m, types).Column(table.Columns[0])
	require.NoError(t, err)
	result := r.c.PgConn().ExecParams(t.Context(), "SELECT c FROM "+name, nil, nil, nil, nil)
	require.True(t, result.NextRow())
	v, decodeErr := coder.Decode(result.Values()[0])
	_, err = result.Close()
	require.NoError(t, err)
	return coder, v, decodeErr
}

// simplify makes structs comparable.
func simplify(v any) any {
	s, ok := v.(*data.StructValue)
	if !ok {
		return v
	}
	out := fields{}
	for _, x := range s.Values {
		out = append(out, simplify(x))
	}
	return out
}

func TestEveryType(t *testing.T) {
	r := newReader(t)
	for _, group := range [][]typeCase{numberCases, timeCases, textCases, geoCases, arrayCases} {
		for _, c := range group {
			coder, v, err := r.read(t, c)
			at := fmt.Sprintf("%s %s %+v", c.column, c.value, c.m)
			require.NoError(t, err, at)
			require.Equal(t, c.typ, coder.Schema.Type, at)
			require.Equal(t, c.name, coder.Schema.Name, at)
			require.Equal(t, c.params, coder.Schema.Parameters, at)
			require.Equal(t, !strings.Contains(c.column, "serial"), coder.Schema.Optional, at)
			if f, ok := c.want.(float64); ok && math.IsNaN(f) {
				require.True(t, math.IsNaN(v.(float64)))
				continue
			}
			require.Equal(t, c.want, simplify(v), at)
			if coder.Schema.Name != "" {
				version := 1
				if strings.HasSuffix(c.name, "geometry.Geometry") {
					version = 2
				}
				require.Equal(t, version, coder.Schema.Version, at)
			}
			if s, ok := v.(*data.StructValue); ok {
				require.Same(t, coder.Schema, s.Schema)
			}
			null, err := coder.Decode(nil)
			require.NoError(t, err)
			require.Nil(t, null)
		}
	}
}

// What a schema cannot carry is an error that names the column, and no wrong value.
func TestWhatCannotBeCarried(t *testing.T) {
	r := newReader(t)
	for _, c := range []typeCase{
		{column: "numeric(5,2)", value: "'NaN'", m: dbz, name: "Decimal cannot carry"},
		{column: "numeric", value: "'-Infinity'", m: jdbc, name: "Decimal cannot carry"},
		{column: "numeric", value: "1e-200", m: jdbc, name: "scale"},
		{column: "int[]", value: "'{{1},{2}}'", m: dbz, name: "several dimensions"},
		{column: "timestamp", value: "'2300-01-01'", m: nanos, name: "beyond"},
		{column: "timestamp", value: "'294276-12-31'", m: dbz, name: "beyond"},
		{column: "interval", value: "'178000000 years'", m: dbz, name: "interval.handling.mode=string"},
	} {
		_, v, err := r.read(t, c)
		require.ErrorContains(t, err, c.name, "%s %s gave %v", c.column, c.value, v)
		require.ErrorContains(t, err, `column "c"`)
	}
}

func TestZone(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	r := newReader(t)
	m := postgres.Mapping{Convention: postgres.JDBC, Zone: zone}
	_, v, err := r.read(t, typeCase{column: "timestamp", value: "'2024-07-01 12:00:00'", m: m})
	require.NoError(t, err)
	require.Equal(t, time.Date(2024, 7, 1, 16, 0, 0, 0, time.UTC).UnixMilli(), v)
	_, v, err = r.read(t, typeCase{column: "timestamptz", value: "'2024-07-01 12:00:00+00'", m: m})
	require.NoError(t, err)
	require.Equal(t, time.Date(2024, 7, 1, 12, 0, 0, 0, time.UTC).UnixMilli(), v)
}

func TestPlaceholders(t *testing.T) {
	r := newReader(t)
	const ph = postgres.DefaultPlaceholder
	var asInts, asLongs []any
	for _, b := range []byte(ph) {
		asInts, asLongs = append(asInts, int32(b)), append(asLongs, int64(b))
	}
	for _, c := range []typeCase{
		{column: "text", value: "''", m: dbz, want: ph},
		{column: "jsonb", value: "'1'", m: dbz, want: ph},
		{column: "xml", value: "''", m: dbz, want: ph},
		{column: "hstore", value: "''", m: dbz, want: ph},
		{column: "hstore", value: "''", m: texts, want: map[string]any{ph: ph}},
		{column: "bytea", value: "''", m: dbz, want: []byte(ph)},
		{column: "bytea", value: "''", m: doubles, want: "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="},
		{column: "text[]", value: "'{}'", m: dbz, want: []any{ph}},
		{column: "int[]", value: "'{}'", m: dbz, want: asInts},
		{column: "bigint[]", value: "'{}'", m: dbz, want: asLongs},
		{column: "uuid[]", value: "'{}'", m: dbz, want: []any{"16acda3d-8960-3fb5-bbdf-f4ee2a19c34a"}},
		{column: "numeric", value: "1", m: dbz, want: nil},
		{column: "numeric(4,2) not null", value: "1", m: dbz, want: []byte{0}},
		{column: "path not null", value: "'[(1,2)]'", m: dbz, want: fields{[]byte{0}, nil, nil}},
	} {
		coder, _, err := r.read(t, c)
		require.NoError(t, err)
		if strings.HasPrefix(c.column, "uuid") {
			id := coder.Placeholder.([]any)[0].(string)
			require.Len(t, id, 36)
			require.Equal(t, byte('3'), id[14])
			continue
		}
		require.Equal(t, c.want, simplify(coder.Placeholder), c.column)
	}
}

func TestBitString(t *testing.T) {
	for _, c := range []struct {
		packed []byte
		length int
		want   string
	}{{[]byte{1, 2}, 10, "1000000001"}, {[]byte{2, 0, 0, 0}, -1, "0010"}, {nil, -1, ""}, {[]byte{5}, 3, "101"}, {nil, 2,
		"00"}} {
		got, err := postgres.BitString(c.packed, c.length)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := postgres.BitString([]byte{8}, 3)
	require.Error(t, err)
}

// wkb is a head in hexadecimal and numbers.
func wkb(head string, numbers ...float64) []byte {
	out, err := hex.DecodeString(head)
	if err != nil {
		panic(err)
	}
	for _, n := range numbers {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(n))
	}
	return out
}

// The arithmetic of dates agrees with the server's, over all of its range.
func TestDatesAgreeWithTheServer(t *testing.T) {
	r := newReader(t)
	rows, err := r.c.Query(t.Context(), `SELECT d::text, d - '1970-01-01'::date, s::text,
		trunc(extract(epoch from s) * 1000000)::bigint FROM (
		SELECT '4713-01-02 BC'::date + (n * 2147.123)::int AS d,
			'4713-01-02 BC'::timestamp + n * interval '1491 hours 7 minutes 3.000457 seconds' AS s
		FROM generate_series(0, 20000) n) x`)
	require.NoError(t, err)
	types, err := postgres.LoadTypes(t.Context(), newReader(t).c, []uint32{1082, 1114})
	require.NoError(t, err)
	mapper := postgres.NewMapper(dbz, types)
	date, err := mapper.Column(postgres.Column{Name: "d", Type: 1082, Typmod: -1})
	require.NoError(t, err)
	stamp, err := mapper.Column(postgres.Column{Name: "s", Type: 1114, Typmod: -1})
	require.NoError(t, err)
	isoMapper := postgres.NewMapper(iso, types)
	text, err := isoMapper.Column(postgres.Column{Name: "d", Type: 1082, Typmod: -1})
	require.NoError(t, err)
	n := 0
	var d, s string
	var days int32
	var micros int64
	_, err = pgx.ForEachRow(rows, []any{&d, &days, &s, &micros}, func() error {
		n++
		got, err := date.Decode([]byte(d))
		require.NoError(t, err, d)
		require.Equal(t, days, got, d)
		got, err = stamp.Decode([]byte(s))
		require.NoError(t, err, s)
		require.Equal(t, micros, got, s)
		got, err = text.Decode([]byte(d))
		require.NoError(t, err, d)
		if !strings.HasSuffix(d, "BC") && len(d) == 10 {
			require.Equal(t, d+"Z", got)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 20001, n)
}
