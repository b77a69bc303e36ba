package convert_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/convert"
	"millrace/connect/data"
)

func bigInt(n int64) *big.Int { return big.NewInt(n) }

// Each shape has the bytes that Kafka's converter writes, and reads back as it was.
func TestJSONShapes(t *testing.T) {
	s := data.NewStruct("n", field("id", optional(data.Int64)))
	s.Version, s.Doc, s.Parameters = 1, "d", map[string]string{"k": "v"}
	for _, c := range []struct {
		schema  *data.Schema
		value   any
		text    string // of the schema
		payload string
	}{
		{is(data.Int8), int8(-1), `{"type":"int8","optional":false}`, `-1`},
		{is(data.Int16), int16(2), `{"type":"int16","optional":false}`, `2`},
		{is(data.Int32), int32(3), `{"type":"int32","optional":false}`, `3`},
		{is(data.Int64), int64(math.MaxInt64), `{"type":"int64","optional":false}`, `9223372036854775807`},
		{is(data.Float32), float32(0.1), `{"type":"float","optional":false}`, `0.1`},
		{is(data.Float64), 5.0, `{"type":"double","optional":false}`, `5.0`},
		{is(data.Boolean), true, `{"type":"boolean","optional":false}`, `true`},
		{is(data.String), "x", `{"type":"string","optional":false}`, `"x"`},
		{is(data.Bytes), []byte("hello"), `{"type":"bytes","optional":false}`, `"aGVsbG8="`},
		{optional(data.String), nil, `{"type":"string","optional":true}`, `null`},
		{
			list(is(data.Int8)), []any{int8(1)},
			`{"type":"array","items":{"type":"int8","optional":false},"optional":false}`, `[1]`,
		},
		{
			mapOf(is(data.String), is(data.Boolean)), map[string]any{"b": true, "a": false},
			`{"type":"map","keys":{"type":"string","optional":false},` +
				`"values":{"type":"boolean","optional":false},"optional":false}`,
			`{"a":false,"b":true}`,
		},
		{
			mapOf(is(data.Int32), is(data.String)), []data.Entry{{Key: int32(1), Value: "x"}, {Key: int32(0), Value: "y"}},
			`{"type":"map","keys":{"type":"int32","optional":false},` +
				`"values":{"type":"string","optional":false},"optional":false}`,
			`[[1,"x"],[0,"y"]]`,
		},
		{
			s, structOf(s, int64(7)),
			`{"type":"struct","fields":[{"type":"int64","optional":true,"field":"id"}],"optional":false,"name":"n",` +
				`"version":1,"doc":"d","parameters":{"k":"v"}}`, `{"id":7}`,
		},
		{
			decimal("2"), data.DecimalBytes(bigInt(12345)),
			`{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,` +
				`"parameters":{"scale":"2"}}`,
			`"MDk="`,
		},
		{withDefault(is(data.Int32), int32(4)), int32(5), `{"type":"int32","optional":false,"default":4}`, `5`},
	} {
		with := newConverter(t, "JsonConverter", nil)
		b := encode(t, with, c.schema, c.value)
		require.Equal(t, `{"schema":`+c.text+`,"payload":`+c.payload+`}`, string(b))
		gotSchema, got := decode(t, with, b)
		require.True(t, gotSchema.Equal(c.schema), "%s", b)
		require.True(t, data.EqualValues(c.value, got), "%s: %v", b, got)
		without := newConverter(t, "JsonConverter", nil, "schemas.enable", "false")
		require.Equal(t, c.payload, string(encode(t, without, c.schema, c.value)))
	}
}

func TestJSONDecimalsAsNumbers(t *testing.T) {
	for _, c := range []struct {
		scale    string
		unscaled int64
		text     string
	}{
		{"2", 12345, "123.45"}, {"2", -5, "-0.05"}, {"0", 7, "7"}, {"-3", 12, "12e3"}, {"5", 0, "0.00000"}, {"-2", 0, "0"},
	} {
		conv := newConverter(t, "JsonConverter", nil, "decimal.format", "numeric", "schemas.enable", "false")
		value := data.DecimalBytes(bigInt(c.unscaled))
		require.Equal(t, c.text, string(encode(t, conv, decimal(c.scale), value)))
		with := newConverter(t, "JsonConverter", nil, "decimal.format", "NUMERIC")
		_, back := decode(t, with, encode(t, with, decimal(c.scale), value))
		require.Equal(t, value, back)
	}
	conv := newConverter(t, "JsonConverter", nil)
	for text, want := range map[string]string{"1.5": "", "1.50": "", "15e-1": "", "1.555": "digits behind the point",
		"1e99999999": "digits is wanted", "true": "not a boolean", `"@"`: "not base64"} {
		b := []byte(`{"schema":{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal",` +
			`"parameters":{"scale":"2"}},"payload":` + text + `}`)
		_, v, err := conv.Decode(t.Context(), "t", b, nil)
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, data.DecimalBytes(bigInt(150)), v)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

func TestJSONNulls(t *testing.T) {
	conv := newConverter(t, "JsonConverter", nil, "schemas.enable", "false")
	s := withDefault(optional(data.Int32), int32(4))
	require.Equal(t, "4", string(encode(t, conv, s, nil)))
	keep := newConverter(t, "JsonConverter", nil, "replace.null.with.default", "false")
	require.Contains(t, string(encode(t, keep, s, nil)), `"payload":null}`)
	_, v := decode(t, keep, encode(t, keep, s, nil))
	require.Nil(t, v)
	_, v = decode(t, newConverter(t, "JsonConverter", nil), encode(t, keep, s, nil))
	require.Equal(t, int32(4), v)

	require.Nil(t, encode(t, keep, nil, nil), "a null without a schema is a null in the topic")
	gotSchema, got := decode(t, keep, nil)
	require.Nil(t, gotSchema)
	require.Nil(t, got)
	_, _, err := keep.Encode(t.Context(), nil, "t", data.NewStruct("s", field("a", is(data.Int8))),
		structOf(data.NewStruct("s", field("a", is(data.Int8))), nil))
	require.ErrorContains(t, err, "field a: it is null")
}

func TestJSONWithoutSchemas(t *testing.T) {
	conv := newConverter(t, "JsonConverter", nil, "schemas.enable", "false")
	s, v := decode(t, conv, []byte(` {"a":[1,2.0,1e3,null,true,"x"],"b":{}} `))
	require.Nil(t, s)
	require.Equal(t, map[string]any{
		"a": []any{int64(1), 2.0, 1000.0, nil, true, "x"}, "b": map[string]any{},
	}, v)
	require.JSONEq(t, `{"a":[1,2.0,1000.0,null,true,"x"],"b":{}}`, string(encode(t, conv, nil, v)))
	for text, want := range map[string]string{
		"9223372036854775808": "64 bits", `{"a":}`: "byte 6", "1e999": "too large", "": "too early",
		`"\ud800"`: "surrogate",
	} {
		_, _, err := conv.Decode(t.Context(), "t", []byte(text), nil)
		require.ErrorContains(t, err, want, text)
	}
}

func TestJSONEnvelopeIsStrict(t *testing.T) {
	conv := newConverter(t, "JsonConverter", nil)
	for _, text := range []string{
		`1`, `{}`, `{"schema":null}`, `{"payload":1}`, `{"schema":null,"payload":1,"x":2}`,
		`{"schema":null,"payload":1,"payload":2}`,
	} {
		_, _, err := conv.Decode(t.Context(), "t", []byte(text), nil)
		require.ErrorContains(t, err, "schemas.enable=false", text)
	}
	s, v := decode(t, conv, []byte(`{"payload":{"a":1},"schema":null}`))
	require.Nil(t, s)
	require.Equal(t, map[string]any{"a": int64(1)}, v)
	for text, want := range map[string]string{
		`{"schema":{"type":"float64"},"payload":1}`:                                             `"float64" is none`,
		`{"schema":{"type":"int8"},"payload":128}`:                                              "at most 8 bits",
		`{"schema":{"type":"int8"},"payload":null}`:                                             "null or missing",
		`{"schema":{"type":"int8"},"payload":"1"}`:                                              "not a text",
		`{"schema":{"type":"array"},"payload":[]}`:                                              `lacks "items"`,
		`{"schema":{"type":"struct","fields":[{"type":"int8","field":"a"}]},"payload":{}}`:      "a: it is null or missing",
		`{"schema":{"type":"struct","fields":[{"type":"int8","field":"a"}]},"payload":[]}`:      "not an array",
		`{"schema":{"type":"struct","fields":[{"type":"int8"}]},"payload":{}}`:                  `"field" is missing`,
		`{"schema":{"type":"map","keys":{"type":"int8"},"values":{"type":"int8"}},"payload":1}`: "not a number",
	} {
		_, _, err := conv.Decode(t.Context(), "t", []byte(text), nil)
		require.ErrorContains(t, err, want, text)
	}
}

// What JSON has no number for is a text that reads back, as in Kafka; JSON Schema has no place for it.
func TestJSONNotFinite(t *testing.T) {
	conv := newConverter(t, "JsonConverter", nil)
	in := data.NewStruct("in", field("b", is(data.Float64)), field("c", is(data.Float32)))
	s := data.NewStruct("s", field("a", list(in)))
	for text, x := range map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)} {
		v := structOf(s, []any{structOf(in, 1.0, float32(2)), structOf(in, x, float32(x))})
		out, ok, err := conv.Encode(t.Context(), nil, "t", s, v)
		require.NoError(t, err)
		require.True(t, ok)
		require.Contains(t, string(out), `{"b":"`+text+`","c":"`+text+`"}`)
		_, back, err := conv.Decode(t.Context(), "t", out, nil)
		require.NoError(t, err)
		last := back.(*data.StructValue).Values[0].([]any)[1].(*data.StructValue).Values
		require.Equal(t, fmt.Sprint(x, float32(x)), fmt.Sprint(last...))
	}
	_, _, err := conv.Encode(t.Context(), nil, "t", is(data.Int32), int64(1))
	require.ErrorContains(t, err, "int32 is wanted by the schema, not int64")
}

func TestJSONRow(t *testing.T) {
	s, v := row()
	for _, format := range []string{"BASE64", "NUMERIC"} {
		conv := newConverter(t, "JsonConverter", nil, "decimal.format", format)
		gotSchema, got := decode(t, conv, encode(t, conv, s, v))
		require.True(t, gotSchema.Equal(s))
		require.True(t, sameValues(v, got))
	}
}

func TestJSONReadsByAGivenSchema(t *testing.T) {
	conv := newConverter(t, "JsonConverter", nil, "schema.content", `{"type":"int16"}`)
	s, v := decode(t, conv, []byte("5"))
	require.True(t, s.Equal(is(data.Int16)))
	require.Equal(t, int16(5), v)
	require.Len(t, convert.Check("JsonConverter", map[string]string{"schema.content": `{"type":"x"}`,
		"schemas.cache.size": "-1", "decimal.format": "roman", "schemas.enable": "maybe"}), 4)
}
