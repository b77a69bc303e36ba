package postgres

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
)

// baseTypes have a decoder of their own.
var baseTypes = []string{"bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "money", "text", "bytea",
	"date", "time", "timetz", "timestamp", "timestamptz", "interval", "bit", "varbit", "uuid", "json", "jsonb",
	"xml", "inet",
	"point", "line", "lseg", "box", "path", "polygon", "circle", "tsvector", "xid"}

var extensionTypes = []string{"hstore", "ltree", "citext", "geometry", "geography", "vector", "halfvec", "sparsevec"}

// someTypes are the types above, and an array of each.
func someTypes() (*Types, []uint32) {
	ts := NewTypes()
	var oids []uint32
	add := func(schema, name string) {
		oid := uint32(len(oids)*2 + 1)
		ts.byOID[oid] = &Type{OID: oid, Schema: schema, Name: name, Kind: Base, Delimiter: ','}
		ts.byOID[oid+1] = &Type{OID: oid + 1, Schema: schema, Name: "_" + name, Kind: Array, Elem: oid, Delimiter: ','}
		oids = append(oids, oid)
	}
	for _, n := range baseTypes {
		add("pg_catalog", n)
	}
	for _, n := range extensionTypes {
		add("public", n)
	}
	return ts, oids
}

func mappings() []Mapping {
	return []Mapping{
		{Convention: JDBC}, {Convention: JDBC, Numeric: "best_fit", Granularity: "micros_long"},
		{Convention: JDBC, Granularity: "nanos_iso_datetime_string"}, {Convention: Debezium},
		{Convention: Debezium, Time: "connect"},
		{Convention: Debezium, Time: "isostring", Decimal: "double", Binary: "base64"},
		{Convention: Debezium, Time: "nanoseconds", Decimal: "string", Interval: "string", Hstore: "map"},
		{Convention: Debezium, Time: "structured", Unknown: true},
	}
}

// coders are those of all types in all mappings.
func coders(tb testing.TB, typmod int32) (out []*Coder) {
	ts, oids := someTypes()
	for _, m := range mappings() {
		mapper := NewMapper(m, ts)
		for _, oid := range oids {
			for _, id := range []uint32{oid, oid + 1} {
				c, err := mapper.Column(Column{Name: "c", Type: id, Typmod: typmod})
				require.NoError(tb, err)
				out = append(out, c)
			}
		}
	}
	return out
}

// fits says whether a value is of the Go type that its schema says.
func fits(s *data.Schema, v any) bool {
	if v == nil {
		return s.Optional
	}
	switch s.Type {
	case data.Int8:
		return is[int8](v)
	case data.Int16:
		return is[int16](v)
	case data.Int32:
		return is[int32](v)
	case data.Int64:
		return is[int64](v)
	case data.Float32:
		return is[float32](v)
	case data.Float64:
		return is[float64](v)
	case data.Boolean:
		return is[bool](v)
	case data.String:
		return is[string](v)
	case data.Bytes:
		return is[[]byte](v)
	case data.Array:
		list, ok := v.([]any)
		for _, e := range list {
			ok = ok && fits(s.Elem, e)
		}
		return ok
	case data.Map:
		if s.Key.Type != data.String {
			return is[[]data.Entry](v)
		}
		entries, ok := v.(map[string]any)
		for _, e := range entries {
			ok = ok && fits(s.Elem, e)
		}
		return ok
	case data.Struct:
		x, ok := v.(*data.StructValue)
		if !ok || x.Schema != s || len(x.Values) != len(s.Fields) {
			return false
		}
		for i, f := range s.Fields {
			ok = ok && fits(f.Schema, x.Values[i])
		}
		return ok
	}
	return false
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

// Whatever the text: a value that fits its schema, or an error that does not show the text.
func FuzzDecode(f *testing.F) {
	all := coders(f, -1)
	all = append(all, coders(f, 10<<16|2+4)...)
	for _, seed := range []string{"t", "-1", "1.5", "NaN", "Infinity", "$1,234.50", `\x00ff`, `a\\b\001`, "2024-02-29",
		"0044-03-15 BC", "infinity", "24:00:00", "12:00:00+05:30", "2024-02-29 12:34:56.5+00", "1 year -2 mons -04:05:06.7",
		"0101", "{1,NULL}", `{"a\"b",c}`, `[2:3]={1,2}`, `"a"=>"b", "c"=>NULL`, "(1,2)", "<(1,2),3>", "[1,2]", "{1:2}/3",
		"0101000020E6100000000000000000F03F0000000000000040", "{}", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := string(text)
		for _, c := range all {
			v, err := c.Decode(text)
			require.Equal(t, before, string(text))
			if err == nil {
				require.True(t, text == nil || fits(c.Schema, v), "%s %s: %T", c.Type.Name, c.Schema.Type, v)
			} else if len(text) > 12 && strings.ContainsAny(before, "0123456789") {
				require.NotContains(t, err.Error(), before)
			}
		}
	})
}

// The values keep nothing of the text, which the caller uses again.
func TestDecodedValuesAreApart(t *testing.T) {
	for _, c := range coders(t, -1) {
		for _, text := range []string{"some text", `\x616263`, "{abc}", `"k"=>"v"`, "12", "(1,2)"} {
			buf := []byte(text)
			one, err := c.Decode(buf)
			if err != nil {
				continue
			}
			for i := range buf {
				buf[i] = '7'
			}
			two, err := c.Decode([]byte(text))
			require.NoError(t, err)
			if s, ok := one.(*data.StructValue); ok {
				require.True(t, data.EqualValues(s, two))
				continue
			}
			require.Equal(t, two, one, c.Type.Name)
		}
	}
}

func TestPlaceholdersFit(t *testing.T) {
	ts, oids := someTypes()
	for _, m := range mappings() {
		for _, notNull := range []bool{true, false} {
			mapper := NewMapper(m, ts)
			for _, oid := range oids {
				for _, id := range []uint32{oid, oid + 1} {
					c, err := mapper.Column(Column{Name: "c", Type: id, Typmod: -1, NotNull: notNull})
					require.NoError(t, err)
					require.True(t, fits(c.Schema, c.Placeholder), "%s %v", ts.Title(id), m)
				}
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	ts, _ := someTypes()
	byName := map[string]uint32{}
	for oid, t := range ts.byOID {
		byName[t.Name] = oid
	}
	mapper := NewMapper(Mapping{Convention: Debezium}, ts)
	for _, c := range [][2]string{{"int8", "1234567890123"}, {"text", "a text of some length, as columns have"},
		{"numeric", "1234567.89"}, {"timestamp", "2024-02-29 12:34:56.123456"},
		{"timestamptz", "2024-02-29 12:34:56.123456+00"}, {"bytea", `\x0102030405060708090a0b0c0d0e0f10`},
		{"_text", `{abc,"d,e",NULL}`}, {"jsonb", `{"a": 1, "b": [1, 2, 3]}`}} {
		coder, err := mapper.Column(Column{Name: "c", Type: byName[c[0]], Typmod: -1})
		require.NoError(b, err)
		text := []byte(c[1])
		b.Run(c[0], func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := coder.Decode(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Types of extensions that are seldom installed, from the texts that they write.
func TestExtensionTypes(t *testing.T) {
	ts, _ := someTypes()
	byName := map[string]uint32{}
	for oid, x := range ts.byOID {
		byName[x.Name] = oid
	}
	mapper := NewMapper(Mapping{Convention: Debezium}, ts)
	for _, c := range []struct {
		typ, text, schema string
		want              any
	}{
		{"geometry", "0101000020E6100000000000000000F03F0000000000000040", GeometryName, []any{[]byte{1, 1, 0, 0, 0x20,
			0xe6, 0x10,
			0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0x40}, int32(4326)}},
		{"geography", "00000000013FF00000000000004000000000000000", GeographyName, []any{[]byte{0, 0, 0, 0, 1, 0x3f,
			0xf0, 0, 0,
			0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0}, nil}},
		{"vector", "[1,-2.5,3e-7]", DoubleVectorName, []any{1.0, -2.5, 3e-7}},
		{"halfvec", "[0.5,1]", FloatVectorName, []any{float32(0.5), float32(1)}},
		{"sparsevec", "{1:0.5,3:2}/5", SparseVectorName, []any{int16(5), []data.Entry{{Key: int16(1), Value: 0.5},
			{Key: int16(3), Value: 2.0}}}},
		{"sparsevec", "{}/5", SparseVectorName, []any{int16(5), []data.Entry(nil)}},
		{"_ltree", "{a.b,c}", "", []any{"a.b", "c"}},
		{"_hstore", `{"\"a\"=>\"1\""}`, "", []any{`{"a":"1"}`}},
	} {
		coder, err := mapper.Column(Column{Name: "c", Type: byName[c.typ], Typmod: -1})
		require.NoError(t, err)
		v, err := coder.Decode([]byte(c.text))
		require.NoError(t, err, c.typ)
		require.Equal(t, c.schema, coder.Schema.Name)
		if s, ok := v.(*data.StructValue); ok {
			v = s.Values
		}
		require.Equal(t, c.want, v, c.typ)
	}
	for typ, text := range map[string]string{"geometry": "01", "vector": "[1,x]", "sparsevec": "{1:1}/99999999"} {
		coder, err := mapper.Column(Column{Name: "c", Type: byName[typ], Typmod: -1})
		require.NoError(t, err)
		_, err = coder.Decode([]byte(text))
		require.ErrorContains(t, err, `column "c" of type `+typ)
	}
}
