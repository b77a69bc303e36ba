package convert_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

func TestProtobufSingleValues(t *testing.T) {
	r := startRegistry(t)
	for _, c := range []struct {
		schema *data.Schema
		value  any
		bytes  string // behind the id: the message's place, and the message
	}{
		{is(data.Float64), 1.0, "00" + "09000000000000f03f"},
		{is(data.Float32), float32(1), "0202" + "0d0000803f"},
		{is(data.Int64), int64(-1), "0204" + "08ffffffffffffffffff01"},
		{is(data.Int32), int32(0), "0208"},
		{is(data.Boolean), true, "020c" + "0801"},
		{is(data.String), "x", "020e" + "0a0178"},
		{is(data.Bytes), []byte{1}, "0210" + "0a0101"},
	} {
		conv := newConverter(t, "ProtobufConverter", r)
		b := encode(t, conv, c.schema, c.value)
		require.Equal(t, c.bytes, hex.EncodeToString(b[5:]))
		gotSchema, got := decode(t, conv, b)
		requireSame(t, c.schema, gotSchema, true)
		require.Equal(t, c.value, got)
	}
	require.Contains(t, latest(t, r).Content.Text, "message StringValue {\n  string value = 1;\n}")
}

func TestProtobufRow(t *testing.T) {
	r := startRegistry(t)
	s, v := row()
	for _, nulls := range []string{"optional.for.nullables", "wrapper.for.nullables"} {
		conv := newConverter(t, "ProtobufConverter", r, nulls, "true", "enhanced.protobuf.schema.support", "true")
		b := encode(t, conv, s, v)
		text := latest(t, r).Content.Text
		require.Contains(t, text, "package shop;")
		require.Contains(t, text, "message Row {")
		require.Contains(t, text, `int32 i8 = 1 [(confluent.field_meta) = {`)
		gotSchema, got := decode(t, conv, b)
		require.True(t, sameValues(v, got), "%s %v", nulls, got.(*data.StructValue).Values)
		require.Equal(t, "shop.Row", gotSchema.Name)
		require.Equal(t, data.Int8, gotSchema.Fields[0].Schema.Type)
		require.Equal(t, "1", gotSchema.Fields[0].Schema.Parameters["io.confluent.connect.protobuf.Tag"])
		require.Equal(t, "2", gotSchema.Fields[gotSchema.Field("price")].Schema.Parameters["scale"])
		// What was read is written again with the same numbers.
		again := encode(t, conv, gotSchema, got)
		_, back := decode(t, conv, again)
		require.True(t, sameValues(v, back))

		// protobuf-go, by its own way through JSON, agrees with the bytes.
		parsed, err := r.Parsed(t.Context(), latest(t, r))
		require.NoError(t, err)
		codec, err := parsed.Codec()
		require.NoError(t, err)
		json, err := codec.Decode(nil, b[6:])
		require.NoError(t, err)
		require.Contains(t, string(json), `"i64":"1152921504606846976"`)
		require.Contains(t, string(json), `"at":"2023-11-14T22:13:20.123Z"`)
		theirs, err := codec.Encode(nil, json)
		require.NoError(t, err)
		_, got = decode(t, conv, append(b[:6:6], theirs...))
		require.True(t, sameValues(v, got))
		forget(t, r)
	}
}

func TestProtobufTexts(t *testing.T) {
	r := startRegistry(t)
	inner := data.NewStruct("a.Inner", field("x", is(data.Int64)))
	s := data.NewStruct("a.b.Outer", field("one", inner), field("many", list(inner)), field("Inner", optional(data.Int32)),
		field("m", mapOf(is(data.String), is(data.Int32))))
	conv := newConverter(t, "ProtobufConverter", r, "optional.for.nullables", "true")
	v := structOf(s, structOf(inner, int64(1)), []any{structOf(inner, int64(0))}, int32(0), map[string]any{"k": int32(0)})
	b := encode(t, conv, s, v)
	require.Equal(t, "00"+"0a020801"+"1200"+"1800"+"22030a016b", hex.EncodeToString(b[5:]))
	text := latest(t, r).Content.Text
	require.Equal(t, strings.TrimSpace(`
syntax = "proto3";
package a.b;

message Outer {
  InnerMessage one = 1;
  repeated InnerMessage many = 2;
  optional int32 Inner = 3;
  repeated ConnectDefault1Entry m = 4;

  message InnerMessage {
    int64 x = 1;
  }
  message ConnectDefault1Entry {
    string key = 1;
    int32 value = 2;
  }
}`), strings.TrimSpace(text))
}

// What other programs register is read: oneof, enums, packed numbers, all kinds, nested messages.
func TestProtobufOfOthers(t *testing.T) {
	r := startRegistry(t)
	text := `syntax = "proto3"; package p; message A { int32 x = 1; } message B { enum E { ZERO = 0; ONE = 1; }
		message In { sint64 z = 1; uint32 u = 2; fixed64 f = 3; }
		oneof choice { string s = 1; In in = 2; } repeated sint32 nums = 3; E e = 4; map<int32, string> m = 5;
		optional bool flag = 6; google.protobuf.Timestamp at = 7; }`
	text = strings.Replace(text, "package p;", `package p; import "google/protobuf/timestamp.proto";`, 1)
	_, err := r.Register(t.Context(), "topic-value", schemaregistry.RegisterRequest{
		Content: schema.Content{Type: schema.Protobuf, Text: text}})
	require.NoError(t, err)
	parsed, err := r.Parsed(t.Context(), latest(t, r))
	require.NoError(t, err)
	codec, err := parsed.(schema.Messages).Message([]int{1})
	require.NoError(t, err)
	body, err := codec.Encode(nil, []byte(`{"in":{"z":"-3","u":4000000000,"f":"9"},"nums":[1,-2],"e":"ONE",`+
		`"m":{"5":"five"},"at":"1969-12-31T23:59:59.999Z"}`))
	require.NoError(t, err)
	conv := newConverter(t, "ProtobufConverter", r)
	b := append([]byte{0, 0, 0, 0, byte(latest(t, r).ID), 2, 2}, body...)
	s, v := decode(t, conv, b)
	require.Equal(t, "B", s.Name)
	row := v.(*data.StructValue)
	u := s.Fields[0]
	require.Equal(t, "choice_0", u.Name)
	require.Equal(t, "io.confluent.connect.protobuf.Union.choice", u.Schema.Name)
	in := row.Values[0].(*data.StructValue).Values[1].(*data.StructValue)
	require.Equal(t, []any{int64(-3), int64(4000000000), int64(9)}, in.Values)
	require.Equal(t, []any{int32(1), int32(-2)}, row.Values[1])
	require.Equal(t, "ONE", row.Values[2])
	require.Equal(t, "1", s.Fields[2].Schema.Parameters["io.confluent.connect.protobuf.Enum.ONE"])
	require.Equal(t, []data.Entry{{Key: int32(5), Value: "five"}}, row.Values[3])
	require.Nil(t, row.Values[4])
	require.Equal(t, int64(-1), row.Values[5])

	// It goes back as it came, by the latest schema or by the one that follows from what was read.
	pinned := newConverter(t, "ProtobufConverter", r, "auto.register.schemas", "false", "use.latest.version", "true",
		"scrub.invalid.names", "false")
	s.Name = "p.B"
	same := encode(t, pinned, s, v)
	require.Equal(t, b[:7], same[:7])
	want, err := codec.Decode(nil, body)
	require.NoError(t, err)
	got, err := codec.Decode(nil, same[7:])
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
	keeping := newConverter(t, "ProtobufConverter", r, "optional.for.nullables", "true")
	other, ok, err := keeping.Encode(t.Context(), nil, "other", s, v)
	require.NoError(t, err)
	require.True(t, ok)
	_, back, err := keeping.Decode(t.Context(), "other", other, nil)
	require.NoError(t, err)
	require.True(t, sameValues(v, back), "%v %v", v, back)
}

func TestProtobufErrors(t *testing.T) {
	r := startRegistry(t)
	conv := newConverter(t, "ProtobufConverter", r)
	for _, c := range []struct {
		schema *data.Schema
		value  any
		want   string
	}{
		{nil, "x", "needs one"},
		{list(is(data.Int32)), []any{}, "a message is a struct or a single value"},
		{data.NewStruct("S", field("l", list(list(is(data.Int32))))), nil, "lists of lists"},
		{data.NewStruct("S", field("d", date())), int32(-800000), "field d: a date in Protobuf"},
		{data.NewStruct("S", field("d", timeOfDay())), int32(-1), "field d: a time of the day"},
	} {
		v := c.value
		if c.schema != nil && c.schema.Type == data.Struct {
			v = structOf(c.schema, c.value)
		}
		_, _, err := conv.Encode(t.Context(), nil, "t"+c.want[len(c.want)-3:], c.schema, v)
		require.ErrorContains(t, err, c.want)
	}
}
