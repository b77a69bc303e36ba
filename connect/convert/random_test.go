package convert_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// schemas draws schemas and values of them.
type schemas struct {
	count    int  // of structs
	plain    bool // without what Protobuf cannot hold
	defaults bool
}

// schema draws a schema; single is one that is no list or map.
func (g *schemas) schema(t *rapid.T, depth int, single bool) *data.Schema {
	s := &data.Schema{}
	switch kind := rapid.IntRange(1, 17).Draw(t, "kind"); {
	case kind <= int(data.Bytes):
		s.Type = data.Type(kind)
	case kind <= 13:
		s = []*data.Schema{decimal(strconv.Itoa(rapid.IntRange(0, 20).Draw(t, "scale"))), date(), timeOfDay(),
			timestamp()}[kind-10]
	case depth == 0 || kind == 17 || single && kind < 16:
		s.Type = data.String
	case kind == 14:
		s.Type, s.Elem = data.Array, g.schema(t, depth-1, g.plain)
	case kind == 15:
		s.Type, s.Elem = data.Map, g.schema(t, depth-1, g.plain)
		s.Key = is(rapid.SampledFrom([]data.Type{data.String, data.Int32, data.Boolean, data.Int64}).Draw(t, "key"))
	default:
		return g.row(t, depth-1)
	}
	if g.plain && s.Type > data.Bytes {
		if s.Elem.Optional {
			e := *s.Elem
			e.Optional = false
			s.Elem = &e
		}
		return s
	}
	g.annotate(t, s)
	return s
}

func (g *schemas) annotate(t *rapid.T, s *data.Schema) {
	s.Optional = rapid.Bool().Draw(t, "optional")
	if rapid.IntRange(0, 4).Draw(t, "annotated") == 0 {
		s.Doc = rapid.String().Draw(t, "doc")
		if s.Version == 0 { // the logical types have one
			s.Version = rapid.IntRange(0, 9).Draw(t, "version")
		}
		params := map[string]string{"k": rapid.String().Draw(t, "parameter")}
		for k, v := range s.Parameters {
			params[k] = v
		}
		s.Parameters = params
		if g.defaults {
			s.Default = g.value(t, s)
		}
	}
}

func (g *schemas) row(t *rapid.T, depth int) *data.Schema {
	g.count++
	s := data.NewStruct("n.S" + strconv.Itoa(g.count))
	for i := range rapid.IntRange(1, 4).Draw(t, "fields") {
		s.Fields = append(s.Fields, field("f"+strconv.Itoa(i), g.schema(t, depth, false)))
	}
	g.annotate(t, s)
	s.Index()
	return s
}

// value draws a value of a schema.
func (g *schemas) value(t *rapid.T, s *data.Schema) any {
	if s.Optional && rapid.Bool().Draw(t, "null") {
		return nil
	}
	switch s.Name {
	case data.Decimal:
		return data.DecimalBytes(bigInt(rapid.Int64().Draw(t, "decimal")))
	case data.Date:
		return rapid.Int32Range(-700_000, 2_900_000).Draw(t, "date")
	case data.Time:
		return rapid.Int32Range(0, 86_400_000).Draw(t, "time")
	case data.Timestamp:
		return rapid.Int64Range(-60_000_000_000_000, 250_000_000_000_000).Draw(t, "timestamp")
	}
	switch s.Type {
	case data.Int8:
		return rapid.Int8().Draw(t, "int8")
	case data.Int16:
		return rapid.Int16().Draw(t, "int16")
	case data.Int32:
		return rapid.Int32().Draw(t, "int32")
	case data.Int64:
		return rapid.Int64().Draw(t, "int64")
	case data.Float32:
		return rapid.Float32().Draw(t, "float32")
	case data.Float64:
		return rapid.Float64().Draw(t, "float64")
	case data.Boolean:
		return rapid.Bool().Draw(t, "boolean")
	case data.String:
		return rapid.String().Draw(t, "string")
	case data.Bytes:
		return rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes")
	}
	return g.parts(t, s)
}

func (g *schemas) parts(t *rapid.T, s *data.Schema) any {
	count := rapid.IntRange(0, 3).Draw(t, "count")
	switch s.Type {
	case data.Array:
		list := []any{}
		for range count {
			list = append(list, g.value(t, s.Elem))
		}
		return list
	case data.Map:
		texts, entries, seen := map[string]any{}, []data.Entry{}, map[any]bool{}
		for range count {
			k := g.value(t, s.Key)
			if text, ok := k.(string); ok {
				texts[text] = g.value(t, s.Elem)
			} else if !seen[k] {
				seen[k] = true
				entries = append(entries, data.Entry{Key: k, Value: g.value(t, s.Elem)})
			}
		}
		if s.Key.Type == data.String {
			return texts
		}
		return entries
	}
	v := data.New(s)
	for i := range s.Fields {
		v.Values[i] = g.value(t, s.Fields[i].Schema)
	}
	return v
}

// back is what comes back of a value.
func back(t *rapid.T, c plugin.Converter, topic string, s *data.Schema, v any) (*data.Schema, any, []byte) {
	b, ok, err := c.Encode(t.Context(), []byte{}, topic, s, v)
	require.NoError(t, err)
	if !ok {
		return s, nil, nil
	}
	gotSchema, got, err := c.Decode(t.Context(), topic, b, nil)
	require.NoError(t, err, "%q", b)
	return gotSchema, got, b
}

// With schemas, all comes back as it was, and defaults stay what they are. Without them values that say their type in
// JSON do.
func TestJSONRoundTrips(t *testing.T) {
	for _, format := range []string{"BASE64", "NUMERIC"} {
		conv := newConverter(t, "JsonConverter", nil, "decimal.format", format, "replace.null.with.default", "false")
		rapid.Check(t, func(t *rapid.T) {
			g := schemas{defaults: true}
			s := g.schema(t, 3, false)
			v := g.value(t, s)
			gotSchema, got, b := back(t, conv, "topic", s, v)
			require.True(t, s.Equal(gotSchema), "%s", b)
			require.True(t, sameValues(v, got), "%s", b)
		})
	}
}

// freshTopics are names of topics that no schema was registered for.
type freshTopics struct{ count int }

func (f *freshTopics) next() string {
	f.count++
	return "topic" + strconv.Itoa(f.count)
}

// Through Avro all comes back as it was; a schema without a version gets the registry's, a logical type version 1, and
// a null in a struct becomes the default that its schema has, unless that is to be ignored.
func TestAvroRoundTrips(t *testing.T) {
	r := startRegistry(t)
	conv := newConverter(t, "AvroConverter", r, "ignore.default.for.nullables", "true", "schemas.cache.size", "4")
	topics := &freshTopics{}
	rapid.Check(t, func(t *rapid.T) {
		g := schemas{defaults: true}
		s := g.row(t, 3)
		v := g.value(t, s)
		gotSchema, got, b := back(t, conv, topics.next(), s, v)
		if b == nil {
			require.Nil(t, v)
			return
		}
		requireSame(t, s, gotSchema, true)
		require.True(t, sameValues(v, got), "%v %v", v, got)
	})
}

// Through JSON Schema likewise.
func TestJSONSchemaRoundTrips(t *testing.T) {
	r := startRegistry(t)
	topics := &freshTopics{}
	for _, format := range []string{"BASE64", "NUMERIC"} {
		conv := newConverter(t, "JsonSchemaConverter", r, "decimal.format", format, "schemas.cache.size", "4")
		rapid.Check(t, func(t *rapid.T) {
			g := schemas{}
			s := g.row(t, 3)
			v := g.value(t, s)
			gotSchema, got, b := back(t, conv, topics.next(), s, v)
			if b == nil {
				require.Nil(t, v)
				return
			}
			requireSame(t, s, gotSchema, true)
			require.True(t, sameValues(v, got), "%s", b)
		})
	}
}

// Through Protobuf values come back as they were, where nulls have a label or message of their own; docs, versions,
// defaults and parameters do not. What is read can be written, and comes back again.
func TestProtobufRoundTrips(t *testing.T) {
	r := startRegistry(t)
	topics := &freshTopics{}
	for _, nulls := range []string{"optional.for.nullables", "wrapper.for.nullables"} {
		conv := newConverter(t, "ProtobufConverter", r, nulls, "true", "schemas.cache.size", "4")
		rapid.Check(t, func(t *rapid.T) {
			g := schemas{plain: true}
			s := g.row(t, 3)
			s.Optional = false
			v := g.value(t, s)
			gotSchema, got, b := back(t, conv, topics.next(), s, v)
			require.True(t, sameValues(v, got), "%s: %x\n%v", nulls, b, got)
			require.Equal(t, shapeOf(s), shapeOf(gotSchema))
			_, again, _ := back(t, conv, topics.next(), gotSchema, got)
			require.True(t, sameValues(v, again))
		})
	}
}

// shapeOf is the types of a schema and nothing else.
func shapeOf(s *data.Schema) string {
	text := s.Type.String()
	if s.Key != nil {
		text += " " + shapeOf(s.Key)
	}
	if s.Elem != nil {
		text += " " + shapeOf(s.Elem)
	}
	for _, f := range s.Fields {
		text += fmt.Sprintf(" (%s %s)", f.Name, shapeOf(f.Schema))
	}
	return text
}
