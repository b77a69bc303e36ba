package convert_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// fuzzBytes has a converter read any bytes, and write again what it read of them.
func fuzzBytes(f *testing.F, conv plugin.Converter) {
	f.Fuzz(func(t *testing.T, b []byte) {
		before := string(b)
		s, v, err := conv.Decode(t.Context(), "topic", b, nil)
		require.Equal(t, before, string(b), "what is read stays as it is")
		if err != nil || v == nil {
			return
		}
		out, ok, err := conv.Encode(t.Context(), nil, "topic", s, v)
		if err != nil || !ok {
			return // a name, say, that cannot be written
		}
		_, again, err := conv.Decode(t.Context(), "topic", out, nil)
		require.NoError(t, err, "%q -> %q", b, out)
		twice, _, err := conv.Encode(t.Context(), nil, "topic", s, again)
		require.NoError(t, err)
		require.Equal(t, string(out), string(twice), "%q", b)
	})
}

func FuzzJSON(f *testing.F) {
	conv := newConverter(f, "JsonConverter", nil)
	s, v := envelope()
	f.Add(encode(f, conv, s, v))
	s, v = row()
	f.Add(encode(f, conv, s, v))
	for _, text := range []string{
		`{"schema":null,"payload":[1,2.5e3,{"a":null}]}`,
		`{"schema":{"type":"map","keys":{"type":"int8"},"values":{"type":"boolean"}},"payload":[[1,true]]}`,
		`{"schema":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"3"}},"payload":1.5}`,
		`{"schema":{"type":"struct","fields":[{"type":"int8","field":"a","default":1}]},"payload":{}}`,
	} {
		f.Add([]byte(text))
	}
	fuzzBytes(f, conv)
}

func FuzzJSONWithoutSchemas(f *testing.F) {
	f.Add([]byte(`{"a":[1,-0,1.5,"x",null,true]}`))
	fuzzBytes(f, newConverter(f, "JsonConverter", nil, "schemas.enable", "false"))
}

// fuzzRegistered has a converter over the registry read any bytes as values of two schemas.
func fuzzRegistered(f *testing.F, class string, t schema.Type, text string) {
	r := startRegistry(f)
	conv := newConverter(f, class, r)
	s, v := row()
	f.Add(encode(f, conv, s, v)[5:])
	first := latest(f, r).ID
	other, err := r.Register(f.Context(), "other", schemaregistry.RegisterRequest{Content: schema.Content{
		Type: t, Text: text}})
	require.NoError(f, err)
	f.Add([]byte{0, 2, 4})
	f.Add([]byte(`{"a":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, id := range []int{first, other.ID} {
			framed := append([]byte{0, 0, 0, 0, byte(id)}, b...)
			_, v, err := conv.Decode(t.Context(), "topic", framed, nil)
			if err == nil {
				require.True(t, sameValues(v, v) || hasNaN(v))
			}
		}
	})
}

func FuzzAvro(f *testing.F) {
	fuzzRegistered(f, "Avro", schema.Avro, `{"type":"record","name":"R","fields":[{"name":"u","type":["null","string",`+
		`{"type":"array","items":"null"},{"type":"map","values":{"type":"record","name":"E","fields":[]}}]},`+
		`{"name":"e","type":{"type":"enum","name":"N","symbols":["A"]}},{"name":"i","type":{"type":"int",`+
		`"connect.type":"int8"}}]}`)
}

func FuzzJSONSchema(f *testing.F) {
	fuzzRegistered(f, "JsonSchema", schema.JSON, `{"type":"object","properties":{"a":{"oneOf":[{"type":"string"},`+
		`{"type":"integer"},{"type":"object","properties":{"b":{}}}]},"c":{"type":"array","items":{"type":"number"}}}}`)
}

func FuzzProtobuf(f *testing.F) {
	fuzzRegistered(f, "Protobuf", schema.Protobuf, `syntax = "proto2";
message A {
  optional group G = 1 { optional int32 x = 2; }
  repeated sint64 n = 3 [packed = true];
  oneof o { string s = 4; B b = 5; }
  optional fixed32 f = 6 [default = 7];
  message B { repeated B2 list = 1; }
  message B2 { optional double d = 1; optional bytes y = 2; }
}`)
}

// FuzzSchemas has converters read schemas that anybody may register.
func FuzzSchemas(f *testing.F) {
	r := startRegistry(f)
	kinds := []schema.Type{schema.Avro, schema.JSON, schema.Protobuf}
	for i, text := range []string{
		`{"type":"record","name":"a.R","fields":[{"name":"f","type":["null",{"type":"bytes","logicalType":"decimal",` +
			`"precision":4,"scale":2,"connect.default":"\u0001"}],"default":null}],"connect.parameters":{"a":"b"}}`,
		`{"$id":"x","type":"object","properties":{"a":{"$ref":"#/definitions/b"}},"definitions":{"b":{"type":["string",` +
			`"null"],"default":"x","connect.index":3}}}`,
		`syntax = "proto3"; message M { map<string, N> m = 1; oneof o { int32 a = 2; N n = 3; } } message N { bytes b = 1; }`,
	} {
		f.Add(i, text, []byte{0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, kind int, text string, b []byte) {
		typ := kinds[uint(kind)%3]
		v, err := r.Register(t.Context(), "s", schemaregistry.RegisterRequest{
			Content: schema.Content{Type: typ, Text: text}, Force: true})
		if err != nil {
			return
		}
		class := map[schema.Type]string{schema.Avro: "Avro", schema.JSON: "JsonSchema", schema.Protobuf: "Protobuf"}[typ]
		conv := newConverter(t, class, r)
		framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(v.ID))
		start := time.Now()
		s, value, err := conv.Decode(t.Context(), "topic", append(framed, b...), nil)
		require.Less(t, time.Since(start), 30*time.Second)
		if err == nil && s != nil {
			_, _, _ = conv.Encode(t.Context(), nil, "back", s, value)
		}
	})
}

// hasNaN says whether a value holds a number that differs from itself.
func hasNaN(v any) bool {
	switch x := v.(type) {
	case float32:
		return x != x
	case float64:
		return x != x
	case []any:
		return slices.ContainsFunc(x, hasNaN)
	case map[string]any:
		for _, e := range x {
			if hasNaN(e) {
				return true
			}
		}
	case []data.Entry:
		return slices.ContainsFunc(x, func(e data.Entry) bool { return hasNaN(e.Key) || hasNaN(e.Value) })
	case *data.StructValue:
		return slices.ContainsFunc(x.Values, hasNaN)
	}
	return false
}
