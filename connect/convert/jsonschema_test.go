package convert_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

func TestJSONSchemaShapes(t *testing.T) {
	r := startRegistry(t)
	s := data.NewStruct("shop.Order", field("id", is(data.Int64)), field("note", optional(data.String)))
	s.Version, s.Doc, s.Parameters = 2, "d", map[string]string{"k": "v"}
	for _, c := range []struct {
		schema  *data.Schema
		value   any
		text    string
		payload string
	}{
		{is(data.Int8), int8(1), `{"type":"integer","connect.type":"int8"}`, `1`},
		{is(data.Float32), float32(1), `{"type":"number","connect.type":"float32"}`, `1.0`},
		{is(data.Boolean), true, `{"type":"boolean"}`, `true`},
		{is(data.String), "x", `{"type":"string"}`, `"x"`},
		{is(data.Bytes), []byte{0}, `{"type":"string","connect.type":"bytes"}`, `"AA=="`},
		{optional(data.Int32), int32(1), `{"oneOf":[{"type":"null"},{"type":"integer","connect.type":"int32"}]}`, `1`},
		{
			decimal("1"), data.DecimalBytes(bigInt(5)), `{"type":"string","title":"org.apache.kafka.connect.data.Decimal",` +
				`"connect.version":1,"connect.parameters":{"scale":"1"},"connect.type":"bytes"}`, `"BQ=="`,
		},
		{list(is(data.String)), []any{"a"}, `{"type":"array","items":{"type":"string"}}`, `["a"]`},
		{
			mapOf(is(data.String), is(data.Boolean)), map[string]any{"a": true},
			`{"type":"object","additionalProperties":{"type":"boolean"},"connect.type":"map"}`, `{"a":true}`,
		},
		{
			mapOf(is(data.Boolean), is(data.String)), []data.Entry{{Key: true, Value: "x"}},
			`{"type":"array","items":{"type":"object","properties":{"key":{"type":"boolean","connect.index":0},` +
				`"value":{"type":"string","connect.index":1}}},"connect.type":"map"}`, `[{"key":true,"value":"x"}]`,
		},
		{
			s, structOf(s, int64(1), nil),
			`{"type":"object","properties":{"id":{"type":"integer","connect.type":"int64","connect.index":0},` +
				`"note":{"oneOf":[{"type":"null"},{"type":"string"}],"connect.index":1}},"title":"shop.Order","description":"d",` +
				`"connect.version":2,"connect.parameters":{"k":"v"}}`, `{"id":1,"note":null}`,
		},
	} {
		conv := newConverter(t, "JsonSchemaConverter", r)
		b := encode(t, conv, c.schema, c.value)
		require.JSONEq(t, c.text, latest(t, r).Content.Text)
		require.Equal(t, c.payload, string(b[5:]))
		gotSchema, got := decode(t, newConverter(t, "JsonSchema", r), b)
		requireSame(t, c.schema, gotSchema, true)
		require.True(t, sameValues(c.value, got), "%v", got)
		forget(t, r)
	}
}

func TestJSONSchemaRow(t *testing.T) {
	r := startRegistry(t)
	s, v := row()
	for _, format := range []string{"BASE64", "NUMERIC"} {
		conv := newConverter(t, "JsonSchemaConverter", r, "decimal.format", format, "object.additional.properties", "false")
		b := encode(t, conv, s, v)
		gotSchema, got := decode(t, conv, b)
		requireSame(t, s, gotSchema, true)
		require.True(t, sameValues(v, got))
		parsed, err := r.Parsed(t.Context(), latest(t, r))
		require.NoError(t, err)
		codec, err := parsed.Codec()
		require.NoError(t, err)
		require.NoError(t, codec.Check(b[5:]), "what is written is valid by the schema that is registered")
		forget(t, r)
	}
}

// What other programs register is read.
func TestJSONSchemaOfOthers(t *testing.T) {
	r := startRegistry(t)
	register := func(subject, text string, refs ...schema.Reference) {
		_, err := r.Register(t.Context(), subject, schemaregistry.RegisterRequest{
			Content: schema.Content{Type: schema.JSON, Text: text, References: refs},
		})
		require.NoError(t, err)
	}
	register("address", `{"type":"object","title":"Address","properties":{"city":{"type":"string"}}}`)
	register("topic-value", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","title":"Person",`+
		`"definitions":{"name":{"type":"string","description":"a name"}},`+
		`"properties":{"first":{"$ref":"#/definitions/name"},"age":{"type":["integer","null"]},`+
		`"home":{"$ref":"address.json"},"any":{},"kind":{"enum":["b","a"]},`+
		`"u":{"oneOf":[{"type":"string"},{"type":"integer"}]},`+
		`"both":{"allOf":[{"properties":{"p":{"type":"number"}}},{"properties":{"q":{"type":"boolean"}}}]}}}`,
		schema.Reference{Name: "address.json", Subject: "address", Version: 1})
	conv := newConverter(t, "JsonSchemaConverter", r, "use.optional.for.nonrequired", "true")
	text := `{"first":"A","age":null,"home":{"city":"B","zip":1},"any":{"x": [1]},"kind":"a","u":7,` +
		`"both":{"p":1,"q":true}}`
	s, v := decode(t, conv, append([]byte{0, 0, 0, 0, byte(latest(t, r).ID)}, text...))
	require.Equal(t, "Person", s.Name)
	row := v.(*data.StructValue)
	require.Equal(t, "A", row.Values[0])
	require.Equal(t, "a name", s.Fields[0].Schema.Doc)
	require.Nil(t, row.Values[1])
	require.Equal(t, []any{"B"}, row.Values[2].(*data.StructValue).Values)
	require.Equal(t, "Address", s.Fields[2].Schema.Name)
	require.Equal(t, `{"x":[1]}`, row.Values[3])
	require.Equal(t, "a", row.Values[4])
	require.Equal(t, "b", s.Fields[4].Schema.Parameters["io.confluent.connect.json.Enum.b"])
	require.Equal(t, []any{nil, int64(7)}, row.Values[5].(*data.StructValue).Values)
	require.Equal(t, []any{1.0, true}, row.Values[6].(*data.StructValue).Values)

	b := append([]byte{0, 0, 0, 0, byte(latest(t, r).ID)}, `{"first":1}`...)
	_, _, err := conv.Decode(t.Context(), "topic", b, nil)
	require.ErrorContains(t, err, "field first: ")
}

func TestJSONSchemaThatHoldsItself(t *testing.T) {
	r := startRegistry(t)
	_, err := r.Register(t.Context(), "topic-value", schemaregistry.RegisterRequest{Content: schema.Content{
		Type: schema.JSON, Text: `{"type":"object","properties":{"next":{"$ref":"#"}}}`}})
	require.NoError(t, err)
	_, _, err = newConverter(t, "JsonSchemaConverter", r).Decode(t.Context(), "topic",
		append([]byte{0, 0, 0, 0, byte(latest(t, r).ID)}, `{}`...), nil)
	require.ErrorContains(t, err, "holds itself")
}
