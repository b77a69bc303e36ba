package convert_test

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/convert"
	"millrace/connect/data"
	"millrace/connect/plugin"
)

func TestNumbersAndBytes(t *testing.T) {
	for _, c := range []struct {
		class string
		typ   data.Type
		value any
		bytes string
	}{
		{"org.apache.kafka.connect.converters.BooleanConverter", data.Boolean, true, "01"},
		{"Short", data.Int16, int16(-2), "fffe"},
		{"IntegerConverter", data.Int32, int32(1), "00000001"},
		{"LongConverter", data.Int64, int64(math.MinInt64), "8000000000000000"},
		{"FloatConverter", data.Float32, float32(1), "3f800000"},
		{"DoubleConverter", data.Float64, -1.0, "bff0000000000000"},
		{"ByteArrayConverter", data.Bytes, []byte{7, 8}, "0708"},
		{"io.debezium.converters.BinaryDataConverter", data.Bytes, []byte{}, ""},
		{"BinaryDataConverter", data.Bytes, []byte{}, ""},
		{"ByteBuffer", data.Bytes, []byte{}, ""},
		{"StringConverter", data.String, "é", "c3a9"},
	} {
		conv := newConverter(t, c.class, nil)
		b := encode(t, conv, is(c.typ), c.value)
		require.Equal(t, c.bytes, hex.EncodeToString(b))
		require.Equal(t, c.bytes, hex.EncodeToString(encode(t, conv, nil, c.value)))
		s, v := decode(t, conv, b)
		require.True(t, s.Equal(optional(c.typ)))
		require.Equal(t, c.value, v)
		s, v = decode(t, conv, nil)
		require.True(t, s.Equal(optional(c.typ)))
		require.Nil(t, v)
		require.Nil(t, encode(t, conv, optional(c.typ), nil))
		require.Nil(t, encode(t, conv, is(c.typ), nil), "a tombstone, whatever the schema says")
		if c.typ != data.String {
			_, _, err := conv.Encode(t.Context(), nil, "t", is(data.String), "x")
			require.ErrorContains(t, err, "only, not a value of type string")
			_, _, err = conv.Encode(t.Context(), nil, "t", nil, "x")
			require.Error(t, err)
		}
		if c.typ != data.String && c.typ != data.Bytes {
			_, _, err := conv.Decode(t.Context(), "t", []byte{1, 2, 3}, nil)
			require.Error(t, err)
		}
	}
}

func TestStrings(t *testing.T) {
	s, v := row()
	conv := newConverter(t, "StringConverter", nil)
	require.Equal(t, `Struct{i8=-3,i16=300,i32=-70000,i64=1152921504606846976,f32=1.5,f64=2.0,yes=true,text=a"é`+"\n"+
		`,raw=AP8=,price=-123.45,day=2022-01-08,hour=01:00:00.001Z,at=2023-11-14T22:13:20.123Z,list=[1, -2],map={a=1, b=2},`+
		`pairs={7=seven},inner=Struct{x=9},maybe=Struct{x=10}}`, string(encode(t, conv, s, v)))
	_, _, err := conv.Decode(t.Context(), "t", []byte{0xff}, nil)
	require.ErrorContains(t, err, "UTF-8")
	latin := newConverter(t, "StringConverter", nil, "converter.encoding", "ISO-8859-1")
	require.Equal(t, []byte{0xe9}, encode(t, latin, nil, "é"))
	_, got := decode(t, latin, []byte{0xe9})
	require.Equal(t, "é", got)
	_, _, err = latin.Encode(t.Context(), nil, "t", nil, "€")
	require.ErrorContains(t, err, "encoding lacks")
	ascii := newConverter(t, "StringConverter", nil, "converter.encoding", "US-ASCII")
	_, _, err = ascii.Decode(t.Context(), "t", []byte{0xe9}, nil)
	require.ErrorContains(t, err, "not ASCII")
}

// SimpleHeaderConverter guesses.
func TestTextIsGuessed(t *testing.T) {
	for _, c := range []struct {
		text   string
		schema *data.Schema
		value  any
	}{
		{"", is(data.String), ""},
		{"null", nil, nil},
		{"true", is(data.Boolean), true},
		{"True", is(data.String), "True"},
		{"1", is(data.Int8), int8(1)},
		{"-129", is(data.Int16), int16(-129)},
		{"+70000", is(data.Int32), int32(70000)},
		{"5000000000", is(data.Int64), int64(5000000000)},
		{"1e2", is(data.Int8), int8(100)},
		{"1.5", is(data.Float32), float32(1.5)},
		{"1.23456789012", is(data.Float64), 1.23456789012},
		{"9223372036854775808", decimal("0"), data.DecimalBytes(bigInt(0).SetUint64(1 << 63))},
		{"0.1234567890123456789", decimal("19"), data.DecimalBytes(bigInt(1234567890123456789))},
		{"2024-02-29", date(), int32(19782)},
		{"01:02:03.004Z", timeOfDay(), int32(3723004)},
		{"1970-01-01T00:00:00.001Z", timestamp(), int64(1)},
		{"2024-02-30", is(data.String), "2024-02-30"},
		{"[1, 300, 2]", list(is(data.Int16)), []any{int16(1), int16(300), int16(2)}},
		{`["a", null]`, list(optional(data.String)), []any{"a", nil}},
		{"[a]", is(data.String), "[a]"},
		{"[1,]", is(data.String), "[1,]"},
		{"[]", nil, []any{}},
		{`{"a":1,"b":-1}`, mapOf(is(data.String), is(data.Int8)), map[string]any{"a": int8(1), "b": int8(-1)}},
		{`{1:"2024-02-29"}`, mapOf(is(data.Int8), date()), []data.Entry{{Key: int8(1), Value: int32(19782)}}},
		{"{", is(data.String), "{"},
		{"1 2", is(data.String), "1 2"},
		{"0x10", is(data.String), "0x10"},
		{"-", is(data.String), "-"},
		{"plain text: with, all", is(data.String), "plain text: with, all"},
	} {
		s, v := convert.ParseText(c.text)
		require.Equal(t, c.value, v, c.text)
		require.True(t, s.Equal(c.schema), "%s: %+v", c.text, s)
	}
}

func TestHeaders(t *testing.T) {
	h, err := convert.NewHeader("org.apache.kafka.connect.storage.SimpleHeaderConverter", nil, convert.Deps{})
	require.NoError(t, err)
	s, v := row()
	for _, c := range []struct {
		schema *data.Schema
		value  any
		text   string
	}{
		{nil, "a\"b", `a"b`}, {nil, []any{"a\"b", int8(1)}, `["a\"b",1]`}, {nil, []byte{1}, "AQ=="},
		{date(), int32(0), "1970-01-01"},
		{nil, 1.0, "1.0"}, {nil, math.NaN(), "NaN"}, {s.Fields[16].Schema, v.Values[16], `{"x":9}`},
		{decimal("1"), data.DecimalBytes(bigInt(15)), "1.5"},
	} {
		b, err := h.EncodeHeader(t.Context(), "t", "h", c.schema, c.value)
		require.NoError(t, err)
		require.Equal(t, c.text, string(b))
	}
	b, err := h.EncodeHeader(t.Context(), "t", "h", nil, nil)
	require.NoError(t, err)
	require.Nil(t, b)
	gotSchema, got, err := h.DecodeHeader(t.Context(), "t", "h", []byte{0xff})
	require.NoError(t, err)
	require.Equal(t, data.Bytes, gotSchema.Type)
	require.Equal(t, []byte{0xff}, got)

	j, err := convert.NewHeader("JsonConverter", map[string]string{"schemas.enable": "false"}, convert.Deps{})
	require.NoError(t, err)
	b, err = j.EncodeHeader(t.Context(), "t", "h", nil, map[string]any{"a": int64(1)})
	require.NoError(t, err)
	require.Equal(t, `{"a":1}`, string(b))
	_, got, err = j.DecodeHeader(t.Context(), "t", "h", b)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": int64(1)}, got)
}

func TestClasses(t *testing.T) {
	kinds := map[plugin.Kind]int{}
	for _, info := range convert.Classes() {
		kinds[info.Kind]++
		require.Empty(t, convert.Check(info.Class, nil), "the defaults are valid")
		for _, def := range info.Defs {
			require.NotEmpty(t, def.Doc, def.Name)
			require.False(t, def.Required)
		}
	}
	require.Equal(t, map[plugin.Kind]int{plugin.ConverterKind: 12, plugin.HeaderConverterKind: 13}, kinds)
	_, err := convert.New("NoConverter", false, nil, convert.Deps{})
	require.ErrorContains(t, err, `no converter of class "NoConverter"`)
	_, err = convert.NewHeader("NoConverter", nil, convert.Deps{})
	require.ErrorContains(t, err, "NoConverter")
	_, err = convert.New("AvroConverter", false, nil, convert.Deps{})
	require.ErrorContains(t, err, "needs the schema registry")
	_, err = convert.New("JsonConverter", false, map[string]string{"schemas.enable": "x"}, convert.Deps{})
	require.ErrorContains(t, err, "schemas.enable")
	require.Len(t, convert.Check("AvroConverter", map[string]string{"key.subject.name.strategy": "x",
		"schema.registry.url": "http://elsewhere:8081", "use.latest.version": "2"}), 2)
}
