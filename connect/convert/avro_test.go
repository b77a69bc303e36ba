package convert_test

import (
	"encoding/hex"
	"testing"

	hamba "github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// latest is the text of the newest schema of the topic's values.
func latest(t testing.TB, r *schemaregistry.Registry) schemaregistry.Version {
	t.Helper()
	v, err := r.Version(t.Context(), "topic-value", "latest", false)
	require.NoError(t, err)
	return v
}

// forget makes room for another schema of any kind.
func forget(t testing.TB, r *schemaregistry.Registry) {
	t.Helper()
	_, err := r.DeleteSubject(t.Context(), "topic-value", false)
	require.NoError(t, err)
}

// avroShape is a schema and a value, and what they are in Avro.
type avroShape struct {
	schema *data.Schema
	value  any
	text   string
	bytes  string // in hex, behind the id
}

func avroShapes() []avroShape {
	inner := data.NewStruct("a.b.Inner", field("x", is(data.Int32)))
	versioned := data.NewStruct("a.V", field("s", is(data.String)))
	versioned.Version, versioned.Doc, versioned.Parameters = 3, "doc", map[string]string{"k": "v"}
	unnamed := data.NewStruct("", field("x", data.NewStruct("", field("y", is(data.Int8)))))
	return []avroShape{
		{is(data.Int8), int8(-1), `{"type":"int","connect.type":"int8"}`, "01"},
		{is(data.Int16), int16(1), `{"type":"int","connect.type":"int16"}`, "02"},
		{is(data.Int32), int32(1), `"int"`, "02"},
		{is(data.Int64), int64(-65), `"long"`, "8101"},
		{is(data.Float32), float32(1), `"float"`, "0000803f"},
		{is(data.Float64), 1.0, `"double"`, "000000000000f03f"},
		{is(data.Boolean), true, `"boolean"`, "01"},
		{is(data.String), "é", `"string"`, "04c3a9"},
		{is(data.Bytes), []byte{1, 2}, `"bytes"`, "0102"},
		{optional(data.Int64), int64(1), `["null","long"]`, "0202"},
		{withDefault(optional(data.Int32), int32(5)), int32(1), `[{"type":"int","connect.default":5},"null"]`, "0002"},
		{
			decimal("2"), data.DecimalBytes(bigInt(-1)),
			`{"type":"bytes","scale":2,"precision":64,"connect.version":1,"connect.parameters":{"scale":"2"},` +
				`"connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}`, "ff",
		},
		{
			date(), int32(1),
			`{"type":"int","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Date","logicalType":"date"}`, "02",
		},
		{
			timeOfDay(), int32(1),
			`{"type":"int","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Time",` +
				`"logicalType":"time-millis"}`, "02",
		},
		{
			timestamp(), int64(1), `{"type":"long","connect.version":1,"connect.name":` +
				`"org.apache.kafka.connect.data.Timestamp","logicalType":"timestamp-millis"}`, "02",
		},
		{list(optional(data.String)), []any{nil, "a"}, `{"type":"array","items":["null","string"]}`, "040002026100"},
		{
			mapOf(is(data.String), is(data.Int32)), map[string]any{"a": int32(1)},
			`{"type":"map","values":"int"}`, "0202610200",
		},
		{
			mapOf(is(data.Int32), is(data.String)), []data.Entry{{Key: int32(1), Value: "a"}},
			`{"type":"array","items":{"type":"record","name":"MapEntry","namespace":"io.confluent.connect.avro",` +
				`"fields":[{"name":"key","type":"int"},{"name":"value","type":"string"}]}}`, "0202026100",
		},
		{
			data.NewStruct("a.b.Row", field("one", inner), field("two", inner.AsOptional()),
				field("n", optional(data.Int64))),
			structOf(data.NewStruct("a.b.Row", field("one", inner), field("two", inner.AsOptional()),
				field("n", optional(data.Int64))), structOf(inner, int32(1)), structOf(inner, int32(2)), nil),
			`{"type":"record","name":"Row","namespace":"a.b","fields":[{"name":"one","type":{"type":"record","name":"Inner",` +
				`"fields":[{"name":"x","type":"int"}],"connect.name":"a.b.Inner"}},{"name":"two","type":["null","Inner"],` +
				`"default":null},{"name":"n","type":["null","long"],"default":null}],"connect.name":"a.b.Row"}`, "02020400",
		},
		{
			versioned, structOf(versioned, "x"),
			`{"type":"record","name":"V","namespace":"a","fields":[{"name":"s","type":"string"}],"connect.doc":"doc",` +
				`"connect.version":3,"connect.parameters":{"k":"v"},"connect.name":"a.V"}`, "0278",
		},
		{
			unnamed, structOf(unnamed, structOf(unnamed.Fields[0].Schema, int8(1))),
			`{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro","fields":[{"name":"x","type":` +
				`{"type":"record","name":"ConnectDefault2","fields":[{"name":"y","type":{"type":"int","connect.type":"int8"}}]}}]}`,
			"02",
		},
	}
}

func TestAvroShapes(t *testing.T) {
	r := startRegistry(t)
	for _, c := range avroShapes() {
		conv := newConverter(t, "AvroConverter", r)
		b := encode(t, conv, c.schema, c.value)
		v := latest(t, r)
		require.Equal(t, c.text, v.Content.Text)
		require.Equal(t, c.bytes, hex.EncodeToString(b[5:]))
		require.Equal(t, byte(v.ID), b[4])
		gotSchema, got := decode(t, newConverter(t, "io.confluent.connect.avro.AvroConverter", r), b)
		requireSame(t, c.schema, gotSchema, true)
		require.True(t, sameValues(c.value, got), "%v: %v", c.value, got)
		forget(t, r)
	}
}

// requireSame compares schemas; one without a version may have got that of the registry.
func requireSame(t require.TestingT, want, got *data.Schema, registry bool) {
	o := *got
	if registry && want.Version == 0 {
		o.Version = 0
	}
	require.True(t, want.Equal(&o), "%+v\n%+v", want, &o)
}

// sameValues compares values, whatever the schemas of structs are: a struct may say that it is not optional where its
// field says that it is.
func sameValues(a, b any) bool {
	x, ok := a.(*data.StructValue)
	if !ok {
		if l, ok := a.([]any); ok {
			m, ok := b.([]any)
			if !ok || len(l) != len(m) {
				return false
			}
			for i := range l {
				if !sameValues(l[i], m[i]) {
					return false
				}
			}
			return true
		}
		if l, ok := a.(map[string]any); ok {
			m, ok := b.(map[string]any)
			if !ok || len(l) != len(m) {
				return false
			}
			for k := range l {
				if !sameValues(l[k], m[k]) {
					return false
				}
			}
			return true
		}
		if l, ok := a.([]data.Entry); ok {
			m, ok := b.([]data.Entry)
			if !ok || len(l) != len(m) {
				return false
			}
			for i := range l {
				if !sameValues(l[i].Key, m[i].Key) || !sameValues(l[i].Value, m[i].Value) {
					return false
				}
			}
			return true
		}
		return data.EqualValues(a, b)
	}
	y, ok := b.(*data.StructValue)
	if !ok || len(x.Values) != len(y.Values) {
		return false
	}
	for i := range x.Values {
		if !sameValues(x.Values[i], y.Values[i]) {
			return false
		}
	}
	return true
}

func TestAvroRow(t *testing.T) {
	r := startRegistry(t)
	s, v := row()
	conv := newConverter(t, "AvroConverter", r)
	b := encode(t, conv, s, v)
	gotSchema, got := decode(t, conv, b)
	requireSame(t, s, gotSchema, true)
	require.True(t, sameValues(v, got))

	// What hamba reads of it.
	parsed, err := hamba.ParseWithCache(latest(t, r).Content.Text, "", &hamba.SchemaCache{})
	require.NoError(t, err)
	var generic map[string]any
	require.NoError(t, hamba.Unmarshal(parsed, b[5:], &generic))
	require.Equal(t, "a\"\u00e9\n", generic["text"])
	require.Equal(t, int64(1)<<60, generic["i64"])

	// And what it writes is read here.
	back, err := hamba.Marshal(parsed, generic)
	require.NoError(t, err)
	_, again := decode(t, conv, append(b[:5:5], back...))
	require.True(t, sameValues(v, again), "%v", again)
}

// What other programs register is read, with unions, enums and fixed.
func TestAvroOfOthers(t *testing.T) {
	r := startRegistry(t)
	text := `{"type":"record","name":"Other","namespace":"o","doc":"rd","fields":[` +
		`{"name":"u","type":["null","string",{"type":"record","name":"In","fields":[{"name":"z","type":"long"}]}]},` +
		`{"name":"e","type":{"type":"enum","name":"E","symbols":["B","A"]},"doc":"fd","default":"A"},` +
		`{"name":"f","type":{"type":"fixed","name":"F","size":2}},` +
		`{"name":"m","type":{"type":"long","logicalType":"timestamp-micros"}},` +
		`{"name":"one","type":["int"]},{"name":"s","type":{"type":"string","avro.java.string":"String"}}]}`
	v, err := r.Register(t.Context(), "topic-value", schemaregistry.RegisterRequest{Content: schema.Content{Text: text}})
	require.NoError(t, err)
	b, err := hex.DecodeString("00000000" + hex.EncodeToString([]byte{byte(v.ID)}) +
		"040e" + "02" + "0102" + "06" + "0000" + "0278")
	require.NoError(t, err)
	conv := newConverter(t, "AvroConverter", r)
	s, got := decode(t, conv, b)
	row := got.(*data.StructValue)
	require.Equal(t, "o.Other", s.Name)
	require.Equal(t, 1, s.Version)
	require.Equal(t, "rd", s.Parameters["io.confluent.connect.avro.record.doc"])
	require.Equal(t, "fd", s.Parameters["io.confluent.connect.avro.field.doc.e"])
	u := s.Fields[0].Schema
	require.Equal(t, "io.confluent.connect.avro.Union", u.Name)
	require.True(t, u.Optional)
	require.Equal(t, []string{"string", "In"}, []string{u.Fields[0].Name, u.Fields[1].Name})
	require.Equal(t, []any{nil, structOf(u.Fields[1].Schema, int64(7))}, row.Values[0].(*data.StructValue).Values)
	e := s.Fields[1].Schema
	require.Equal(t, "A", row.Values[1])
	require.Equal(t, "A", e.Default)
	require.Equal(t, "o.E", e.Parameters["io.confluent.connect.avro.Enum"])
	require.Equal(t, "B", e.Parameters["io.confluent.connect.avro.Enum.B"])
	require.Equal(t, []byte{1, 2}, row.Values[2])
	require.Equal(t, "2", s.Fields[2].Schema.Parameters["connect.fixed.size"])
	require.Equal(t, int64(3), row.Values[3])
	require.Equal(t, int32(0), row.Values[4])
	require.Equal(t, "String", s.Fields[5].Schema.Parameters["avro.java.string"])

	// The same value goes back with the enum kept.
	enhanced := newConverter(t, "AvroConverter", r, "enhanced.avro.schema.support", "true",
		"auto.register.schemas", "false", "use.latest.version", "true")
	require.Equal(t, hex.EncodeToString(b), hex.EncodeToString(encode(t, enhanced, s, got)))
}

func TestAvroWithoutSchema(t *testing.T) {
	r := startRegistry(t)
	conv := newConverter(t, "AvroConverter", r)
	v := map[string]any{"a": []any{int64(1), "x", nil, true, 1.5, []byte{1}, float32(2)}, "b": map[string]any{}}
	b := encode(t, conv, nil, v)
	s, got := decode(t, conv, b)
	require.Nil(t, s)
	require.Equal(t, v, got)
	require.Nil(t, encode(t, conv, nil, nil))
}

func TestAvroErrors(t *testing.T) {
	r := startRegistry(t)
	conv := newConverter(t, "AvroConverter", r)
	_, _, err := conv.Decode(t.Context(), "topic", []byte{0, 0, 0, 0, 99, 1}, nil)
	require.ErrorContains(t, err, "schema id 99 is not in the registry")
	_, _, err = conv.Decode(t.Context(), "topic", []byte(`{"a":1}`), nil)
	require.ErrorContains(t, err, "name no schema")
	s := data.NewStruct("S", field("a", list(is(data.Int32))))
	_, _, err = conv.Encode(t.Context(), nil, "topic", s, structOf(s, []any{int32(1), "x"}))
	require.ErrorContains(t, err, "field a.1: ")
	_, _, err = conv.Encode(t.Context(), nil, "topic", s, structOf(s, nil))
	require.ErrorContains(t, err, "field a: it is null")
	b := encode(t, conv, s, structOf(s, []any{int32(1)}))
	_, _, err = conv.Decode(t.Context(), "topic", b[:6], nil)
	require.ErrorContains(t, err, "the value is none of schema id 1")

	// A schema that does not follow from the last is refused by the registry, and its message says so.
	next := data.NewStruct("S", field("a", list(is(data.Int32))), field("b", is(data.Int32)))
	_, _, err = conv.Encode(t.Context(), nil, "topic", next, structOf(next, []any{}, int32(1)))
	require.ErrorContains(t, err, "topic-value")

	bad := data.NewStruct("S", field("a-b", is(data.Int32)))
	_, _, err = conv.Encode(t.Context(), nil, "other", bad, structOf(bad, int32(1)))
	require.ErrorContains(t, err, "a-b")
	scrubbing := newConverter(t, "AvroConverter", r, "scrub.invalid.names", "true")
	out, ok, err := scrubbing.Encode(t.Context(), nil, "other", bad, structOf(bad, int32(1)))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "02", hex.EncodeToString(out[5:]))
}

func TestAvroLatestVersion(t *testing.T) {
	r := startRegistry(t)
	text := `{"type":"record","name":"Row","fields":[{"name":"b","type":["null","string"],"default":null},` +
		`{"name":"a","type":"long"},{"name":"c","type":"string","default":"dé"}]}`
	_, err := r.Register(t.Context(), "topic-value", schemaregistry.RegisterRequest{Content: schema.Content{Text: text}})
	require.NoError(t, err)
	settings := []string{"auto.register.schemas", "false", "use.latest.version", "true"}
	conv := newConverter(t, "AvroConverter", r, settings...)
	s := data.NewStruct("x", field("a", is(data.Int32)))
	require.Equal(t, "00"+"0e"+"0664c3a9", hex.EncodeToString(encode(t, conv, s, structOf(s, int32(7)))[5:]))
	more := data.NewStruct("x", field("a", is(data.Int32)), field("z", is(data.Int32)))
	_, _, err = conv.Encode(t.Context(), nil, "topic", more, structOf(more, int32(7), int32(8)))
	require.ErrorContains(t, err, "field z: the schema lacks it")
	lax := newConverter(t, "AvroConverter", r, append(settings, "latest.compatibility.strict", "false")...)
	require.Equal(t, "000e0664c3a9", hex.EncodeToString(encode(t, lax, more, structOf(more, int32(7), int32(8)))[5:]))

	lookup := newConverter(t, "AvroConverter", r, "auto.register.schemas", "false")
	_, _, err = lookup.Encode(t.Context(), nil, "topic", s, structOf(s, int32(7)))
	require.ErrorContains(t, err, "no version of subject")
}
