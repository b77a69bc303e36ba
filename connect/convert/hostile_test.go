package convert_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"millrace/connect/convert"
	"millrace/connect/data"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// allocated is how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// A few bytes do not make many structs of many fields.
func TestManyFieldsOfFewBytes(t *testing.T) {
	const fields, structs = 5000, 100_000
	var text strings.Builder
	text.WriteString(`{"schema":{"type":"array","items":{"type":"struct","fields":[`)
	for i := range fields {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"type":"int8","optional":true,"field":"f%d"}`, i)
	}
	text.WriteString(`]}},"payload":[{}` + strings.Repeat(",{}", structs) + `]}`)
	conv := newConverter(t, "JsonConverter", nil)
	require.Less(t, allocated(func() {
		_, _, err := conv.Decode(t.Context(), "t", []byte(text.String()), nil)
		require.ErrorContains(t, err, "too many structs for its size")
	}), 200<<20)

	r := startRegistry(t)
	var proto strings.Builder
	proto.WriteString(`syntax = "proto3"; message A { repeated B list = 1; } message B {`)
	for i := range fields {
		fmt.Fprintf(&proto, "int32 f%d = %d;", i, i+1)
	}
	proto.WriteString("}")
	v, err := r.Register(t.Context(), "topic-value", schemaregistry.RegisterRequest{Content: schema.Content{
		Type: schema.Protobuf, Text: proto.String()}})
	require.NoError(t, err)
	b := append([]byte{0, 0, 0, 0, byte(v.ID), 0}, bytes.Repeat([]byte{10, 0}, structs)...)
	protobuf := newConverter(t, "Protobuf", r)
	require.Less(t, allocated(func() {
		_, _, err := protobuf.Decode(t.Context(), "topic", b, nil)
		require.ErrorContains(t, err, "too many messages for its size")
	}), 200<<20)
}

// A few bytes do not make many long decimals, and of a single one they may.
func TestLongDecimalsOfFewBytes(t *testing.T) {
	const count = 20_000
	doc := func(text string) []byte {
		return []byte(`{"schema":{"type":"array","items":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal",` +
			`"parameters":{"scale":"0"}}},"payload":[` + text + `]}`)
	}
	conv := newConverter(t, "JsonConverter", nil)
	require.Less(t, allocated(func() {
		_, _, err := conv.Decode(t.Context(), "t", doc(strings.Repeat("1e16384,", count)+"1"), nil)
		require.ErrorContains(t, err, "too many long numbers for its size")
	}), 50<<20)
	_, v := decode(t, conv, doc("1e16384, 1e3"))
	require.Len(t, v.([]any)[0], 6804)

	r := startRegistry(t)
	p, err := r.Register(t.Context(), "topic-value", schemaregistry.RegisterRequest{Content: schema.Content{
		Type: schema.Protobuf, Text: `syntax = "proto3"; import "confluent/type/decimal.proto";
			message A { repeated confluent.type.Decimal list = 1; }`}})
	require.NoError(t, err)
	long := protowire.AppendBytes([]byte{10}, []byte{1})
	long = protowire.AppendVarint(append(long, 24), 1<<64-16384)
	b := append([]byte{0, 0, 0, 0, byte(p.ID), 0},
		bytes.Repeat(protowire.AppendBytes([]byte{10}, long), count)...)
	protobuf := newConverter(t, "Protobuf", r)
	require.Less(t, allocated(func() {
		_, _, err := protobuf.Decode(t.Context(), "topic", b, nil)
		require.ErrorContains(t, err, "too many long numbers for its size")
	}), 100<<20)
}

// What a header's numbers would be if they were written out is not made.
func TestLongNumbersInHeaders(t *testing.T) {
	for _, token := range []string{"1e16384", "1e-16384"} {
		text := "[" + strings.Repeat(token+",", 20_000) + "1]"
		require.Less(t, allocated(func() { convert.ParseText(text) }), 50<<20)
	}
}

// A schema that names its parts over and over does not grow without bound.
func TestSchemasThatGrow(t *testing.T) {
	r := startRegistry(t)
	var avro, json strings.Builder
	avro.WriteString(`{"type":"record","name":"R0","fields":[]}`)
	text := avro.String()
	for i := 1; i <= 40; i++ {
		text = fmt.Sprintf(`{"type":"record","name":"R%d","fields":[{"name":"a","type":%s},{"name":"b","type":"R%d"}]}`,
			i, text, i-1)
	}
	json.WriteString(`{"type":"object","properties":{"a":{"$ref":"#/definitions/d40"}},` +
		`"definitions":{"d0":{"type":"string"}`)
	for i := 1; i <= 40; i++ {
		fmt.Fprintf(&json, `,"d%d":{"type":"object","properties":{"a":{"$ref":"#/definitions/d%d"},`+
			`"b":{"$ref":"#/definitions/d%d"}}}`, i, i-1, i-1)
	}
	json.WriteString("}}")
	for class, c := range map[string]schema.Content{
		"Avro": {Type: schema.Avro, Text: text}, "JsonSchema": {Type: schema.JSON, Text: json.String()},
	} {
		v, err := r.Register(t.Context(), class, schemaregistry.RegisterRequest{Content: c})
		require.NoError(t, err)
		_, _, err = newConverter(t, class, r).Decode(t.Context(), "topic", []byte{0, 0, 0, 0, byte(v.ID), '{', '}'}, nil)
		require.Error(t, err)
	}
	recursive, err := r.Register(t.Context(), "rec", schemaregistry.RegisterRequest{Content: schema.Content{
		Text: `{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}`}})
	require.NoError(t, err)
	_, _, err = newConverter(t, "Avro", r).Decode(t.Context(), "topic", []byte{0, 0, 0, 0, byte(recursive.ID), 0}, nil)
	require.ErrorContains(t, err, "holds itself")
}

// A schema that names many of its parts by their ids is not gone through for each of them without bound.
func TestSchemaOfManyIDs(t *testing.T) {
	r := startRegistry(t)
	text := func(ids int) string {
		var refs, parts strings.Builder
		for i := range ids {
			fmt.Fprintf(&refs, `,"p%d":{"$ref":"id%d"}`, i, i)
			fmt.Fprintf(&parts, `,"d%d":{"$id":"id%d","type":"string","description":"%s"}`, i, i, strings.Repeat("x", 100))
		}
		return `{"type":"object","properties":{"a":{"type":"string"}` + refs.String() + `},"definitions":{"z":{}` +
			parts.String() + "}}"
	}
	for ids, says := range map[int]string{50: "", 2000: "too often for its size"} {
		v, err := r.Register(t.Context(), fmt.Sprint(ids), schemaregistry.RegisterRequest{Content: schema.Content{
			Type: schema.JSON, Text: text(ids)}})
		require.NoError(t, err)
		_, _, err = newConverter(t, "JsonSchema", r, "use.optional.for.nonrequired", "true").
			Decode(t.Context(), "topic", []byte{0, 0, 0, 0, byte(v.ID), '{', '}'}, nil)
		if says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, says)
		}
	}
}

// A record that only says that it is Confluent's Anything is read as what it is.
func TestFalseAnything(t *testing.T) {
	r := startRegistry(t)
	v, err := r.Register(t.Context(), "topic-value", schemaregistry.RegisterRequest{Content: schema.Content{
		Text: `{"type":"record","name":"Anything","namespace":"io.confluent.connect.avro",` +
			`"fields":[{"name":"a","type":"int"}]}`}})
	require.NoError(t, err)
	_, got := decode(t, newConverter(t, "Avro", r), []byte{0, 0, 0, 0, byte(v.ID), 4})
	require.Equal(t, []any{int32(2)}, got.(*data.StructValue).Values)
}

func TestProtobufWarnsOfLostNulls(t *testing.T) {
	r := startRegistry(t)
	var log bytes.Buffer
	conv, err := convert.New("Protobuf", false, nil,
		convert.Deps{Schemas: r, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	s := data.NewStruct("S", field("a", optional(data.Int32)))
	require.Equal(t, []byte{0}, encode(t, conv, s, structOf(s, nil))[5:])
	require.Equal(t, 1, strings.Count(log.String(), "optional.for.nullables=true"))
}
