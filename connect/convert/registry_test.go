package convert_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"millrace/connect/convert"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/record"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// The frames are those of other clients.
func TestFramesOfOtherClients(t *testing.T) {
	r := startRegistry(t)
	s := data.NewStruct("p.M", field("x", is(data.Int32)))
	v := structOf(s, int32(7))
	for _, c := range []struct {
		class string
		index []int
	}{{"AvroConverter", nil}, {"JsonSchemaConverter", nil}, {"ProtobufConverter", []int{0}}} {
		conv := newConverter(t, c.class, r)
		b := encode(t, conv, s, v)
		want := latest(t, r)
		var header sr.ConfluentHeader
		id, rest, err := header.DecodeID(b)
		require.NoError(t, err)
		require.Equal(t, want.ID, id)
		if c.index != nil {
			var index []int
			index, rest, err = header.DecodeIndex(rest, 10)
			require.NoError(t, err)
			require.Equal(t, c.index, index)
		}
		theirs, err := header.AppendEncode(nil, id, c.index)
		require.NoError(t, err)
		require.Equal(t, b, append(theirs, rest...))
		// A GUID in a header of the record, which leaves the value bare.
		guid := append([]byte{1}, want.GUID[:]...)
		if c.index != nil {
			guid = append(guid, 0)
		}
		_, got, err := conv.Decode(t.Context(), "topic", rest, []record.Header{{Key: "__value_schema_id", Value: guid}})
		require.NoError(t, err)
		require.True(t, sameValues(v, got))
		// The wrong converter for the schema says so.
		for _, other := range []string{"AvroConverter", "JsonSchemaConverter", "ProtobufConverter"} {
			if other != c.class {
				_, _, err := newConverter(t, other, r).Decode(t.Context(), "topic", b, nil)
				require.ErrorContains(t, err, "and this converter reads")
			}
		}
		forget(t, r)
		_, err = r.DeleteSubject(t.Context(), "topic-value", true)
		require.NoError(t, err)
	}
}

func TestSubjects(t *testing.T) {
	r := startRegistry(t)
	s := data.NewStruct("n.Rec", field("x", is(data.Int32)))
	v := structOf(s, int32(7))
	for _, c := range []struct {
		key      bool
		strategy string
		want     string
	}{
		{false, "", "t-value"}, {true, "", "t-key"},
		{true, "io.confluent.kafka.serializers.subject.RecordNameStrategy", "n.Rec"},
		{false, "TopicRecordNameStrategy", "t-n.Rec"},
	} {
		for _, class := range []string{"Avro", "JsonSchema", "Protobuf"} {
			props := map[string]string{}
			if c.strategy != "" {
				props["key.subject.name.strategy"], props["value.subject.name.strategy"] = c.strategy, c.strategy
			}
			conv, err := convert.New(class, c.key, props, convert.Deps{Schemas: r})
			require.NoError(t, err)
			b, _, err := conv.Encode(t.Context(), nil, "t", s, v)
			require.NoError(t, err)
			got, err := r.Version(t.Context(), c.want, "latest", false)
			require.NoError(t, err)
			require.Equal(t, byte(got.ID), b[4])
			_, back, err := conv.Decode(t.Context(), "t", b, nil)
			require.NoError(t, err)
			require.True(t, sameValues(v, back))
			_, err = r.DeleteSubject(t.Context(), c.want, false)
			require.NoError(t, err)
			_, err = r.DeleteSubject(t.Context(), c.want, true)
			require.NoError(t, err)
		}
	}
	conv := newConverter(t, "Avro", r, "value.subject.name.strategy", "RecordNameStrategy")
	_, _, err := conv.Encode(t.Context(), nil, "t", is(data.String), "x")
	require.ErrorContains(t, err, "names no type")
}

// A schema that is not there when a record is read may be there for the next one.
func TestSchemaThatComesLater(t *testing.T) {
	r := startRegistry(t)
	conv := newConverter(t, "Avro", r)
	b := []byte{0, 0, 0, 0, 1, 2}
	for range 3 {
		_, _, err := conv.Decode(t.Context(), "topic", b, nil)
		require.ErrorContains(t, err, "schema id 1 is not in the registry")
		require.False(t, plugin.IsRetriable(err))
	}
	_, err := r.Register(t.Context(), "x", schemaregistry.RegisterRequest{Content: schema.Content{Text: `"int"`}})
	require.NoError(t, err)
	s, v := decode(t, conv, b)
	require.Equal(t, int32(1), v)
	require.Zero(t, s.Version, "the version of another subject is none of the topic's")
}

// What the registry cannot tell now may be asked again; what it refuses may not.
func TestRetriable(t *testing.T) {
	r := startRegistry(t)
	conv := newConverter(t, "Avro", r)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := conv.Encode(gone, nil, "topic", is(data.Int32), int32(1))
	require.Error(t, err)
	require.True(t, plugin.IsRetriable(err))
	encode(t, conv, is(data.Int32), int32(1))
	_, _, err = conv.Encode(t.Context(), nil, "topic", is(data.Boolean), true)
	require.ErrorContains(t, err, "incompatible")
	require.False(t, plugin.IsRetriable(err))
}

// A schema is looked for once, whatever the address of the one that says the same; and the cache is bounded.
func TestEqualSchemasAreOne(t *testing.T) {
	r := startRegistry(t)
	conv := newConverter(t, "Avro", r, "schemas.cache.size", "2")
	var first []byte
	for i := range 10 {
		s := data.NewStruct("n.Rec", field("x", is(data.Int32)))
		b := encode(t, conv, s, structOf(s, int32(7)))
		if i == 0 {
			first = b
		}
		require.Equal(t, first, b)
	}
	require.Equal(t, 1, latest(t, r).Version)
}

// With another schema than their own, values are written as that one wants them, or refused.
func TestPinnedSchemas(t *testing.T) {
	r := startRegistry(t)
	text := `{"type":"object","properties":{"x":{"type":"integer","maximum":9}},"additionalProperties":false}`
	_, err := r.Register(t.Context(), "topic-value", schemaregistry.RegisterRequest{Content: schema.Content{
		Type: schema.JSON, Text: text}})
	require.NoError(t, err)
	conv := newConverter(t, "JsonSchema", r, "auto.register.schemas", "false", "use.latest.version", "true")
	s := data.NewStruct("n.Rec", field("x", is(data.Int32)))
	require.Equal(t, `{"x":9}`, string(encode(t, conv, s, structOf(s, int32(9)))[5:]))
	_, _, err = conv.Encode(t.Context(), nil, "topic", s, structOf(s, int32(10)))
	require.ErrorContains(t, err, "x")

	v, err := r.Register(t.Context(), "elsewhere", schemaregistry.RegisterRequest{Content: schema.Content{
		Text: `{"type":"record","name":"R","fields":[{"name":"x","type":"long"}]}`}})
	require.NoError(t, err)
	byID := newConverter(t, "Avro", r, "use.schema.id", strconv.Itoa(v.ID))
	require.Equal(t, []byte{0, 0, 0, 0, byte(v.ID), 14}, encode(t, byID, s, structOf(s, int32(7))))
	none := newConverter(t, "Avro", r, "use.schema.id", "77")
	_, _, err = none.Encode(t.Context(), nil, "topic", s, structOf(s, int32(7)))
	require.ErrorContains(t, err, "schema id 77")
	require.False(t, plugin.IsRetriable(err))
}
