package transform_test

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/transform"
)

const kafka = "org.apache.kafka.connect.transforms."

type props = map[string]string

func str() *data.Schema    { return &data.Schema{Type: data.String} }
func int32s() *data.Schema { return &data.Schema{Type: data.Int32} }

func build(t *testing.T, class string, p props) plugin.Transform {
	t.Helper()
	tr, err := transform.New(class, p)
	require.NoError(t, err)
	return tr
}

// object is a record whose value is a map without a schema.
func object(v map[string]any) *data.Record {
	return &data.Record{Topic: "t", Partition: 3, Timestamp: 1_500_000_000_123, Offset: 42, Value: v}
}

// person is a record whose value is a struct.
func person() *data.Record {
	inner := data.NewStruct("inner", data.Field{Name: "zip", Schema: str()}, data.Field{Name: "no", Schema: int32s()})
	s := data.NewStruct("person",
		data.Field{Name: "id", Schema: &data.Schema{Type: data.Int64}},
		data.Field{Name: "name", Schema: &data.Schema{Type: data.String, Optional: true, Default: "nobody"}},
		data.Field{Name: "home", Schema: &data.Schema{Type: data.Struct, Optional: true, Fields: inner.Fields}},
		data.Field{Name: "born", Schema: &data.Schema{Type: data.Int64, Name: data.Timestamp, Version: 1}},
	)
	home := s.Fields[2].Schema
	v := data.New(s).Set("id", int64(7)).Set("born", int64(86_400_000)).
		Set("home", data.New(home).Set("zip", "0815").Set("no", int32(4)))
	return &data.Record{Topic: "t", Timestamp: data.NoTimestamp, Offset: -1, ValueSchema: s, Value: v}
}

// step is what a transform makes of a value without a schema.
type step struct {
	name  string
	class string
	props props
	in    map[string]any
	want  any
	err   string
}

func (tc *step) run(t *testing.T) {
	out, err := build(t, kafka+tc.class, tc.props).Apply(object(tc.in))
	if tc.err != "" {
		require.ErrorContains(t, err, tc.err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, tc.want, out.Value)
}

// Records without schemas become what the transform says, or what it says is wrong.
func TestObjects(t *testing.T) {
	for _, tc := range []step{
		{"cast fields", "Cast$Value", props{"spec": "a:int8,b:string, c:boolean,d:float64,e:int64"},
			map[string]any{"a": int64(12), "b": 1.0, "c": "TRUE", "d": "2.5", "e": 3.99, "f": "x"},
			map[string]any{"a": int8(12), "b": "1.0", "c": true, "d": 2.5, "e": int64(3), "f": "x"}, ""},
		{"cast null", "Cast$Value", props{"spec": "a:int8,b:int8"}, map[string]any{"a": nil},
			map[string]any{"a": nil, "b": nil}, ""},
		{"cast out of range", "Cast$Value", props{"spec": "a:int8"},
			map[string]any{"a": int64(300)}, nil, "does not fit into 8 bits"},
		{"cast text that is none", "Cast$Value", props{"spec": "a:int8"}, map[string]any{"a": "x"},
			nil, `field "a": a text is no whole`},
		{"cast map", "Cast$Value", props{"spec": "a:int8"}, map[string]any{"a": map[string]any{}}, nil, "is a map"},
		{"extract", "ExtractField$Value", props{"field": "a"}, map[string]any{"a": "x"}, "x", ""},
		{"extract what is not there", "ExtractField$Value", props{"field": "b"}, map[string]any{"a": "x"}, nil, ""},
		{"extract nested", "ExtractField$Value", props{"field": "a.b", "field.syntax.version": "V2"},
			map[string]any{"a": map[string]any{"b": int64(1)}}, int64(1), ""},
		{"extract a name with a point", "ExtractField$Value", props{"field": "`a.b`.c", "field.syntax.version": "V2"},
			map[string]any{"a.b": map[string]any{"c": int64(1)}}, int64(1), ""},
		{"extract in V1", "ExtractField$Value", props{"field": "a.b"}, map[string]any{"a.b": "x"}, "x", ""},
		{"hoist", "HoistField$Value", props{"field": "all"}, map[string]any{"a": "x"},
			map[string]any{"all": map[string]any{"a": "x"}}, ""},
		{"flatten", "Flatten$Value", props{"delimiter": "_"},
			map[string]any{"a": map[string]any{"b": map[string]any{"c": "x"}, "d": []any{"y"}}, "e": nil},
			map[string]any{"a_b_c": "x", "a_d": []any{"y"}, "e": nil}, ""},
		{"insert", "InsertField$Value", props{"topic.field": "t!", "partition.field": "p?", "offset.field": "o",
			"timestamp.field": "ts", "static.field": "s", "static.value": "v"}, map[string]any{"a": "x"},
			map[string]any{"a": "x", "t": "t", "p": int32(3), "o": int64(42),
				"ts": int64(1_500_000_000_123), "s": "v"}, ""},
		{"mask what is not there", "MaskField$Value", props{"fields": "a"}, map[string]any{"b": "x"},
			map[string]any{"a": nil, "b": "x"}, ""},
		{"mask bytes", "MaskField$Value", props{"fields": "a"}, map[string]any{"a": []byte("x")},
			map[string]any{"a": []byte{}}, ""},
		{"mask a truth with a text", "MaskField$Value", props{"fields": "a", "replacement": "x"},
			map[string]any{"a": true}, nil, "only for numbers and texts"},
		{"rename onto another", "ReplaceField$Value", props{"renames": "a:m,z:m"}, map[string]any{"a": 1, "m": 2},
			map[string]any{"m": 1}, ""},
		{"rename onto one before", "ReplaceField$Value", props{"renames": "a:m,z:m"}, map[string]any{"z": 1, "m": 2},
			map[string]any{"m": 1}, ""},
		{"mask", "MaskField$Value", props{"fields": "a,b,c,d,e"},
			map[string]any{"a": "x", "b": int64(9), "c": true, "d": []any{1}, "e": map[string]any{"q": 1}, "f": "y"},
			map[string]any{"a": "", "b": int64(0), "c": false, "d": []any{}, "e": map[string]any{}, "f": "y"}, ""},
		{"mask with", "MaskField$Value", props{"fields": "a,b", "replacement": "5"},
			map[string]any{"a": "x", "b": int64(9)},
			map[string]any{"a": "5", "b": int64(5)}, ""},
		{"mask with what does not fit", "MaskField$Value", props{"fields": "a", "replacement": "x"},
			map[string]any{"a": int64(1)}, nil, "is no whole number"},
		{"replace", "ReplaceField$Value", props{"exclude": "a", "include": "a,b,c", "renames": "c:d"},
			map[string]any{"a": 1, "b": 2, "c": 3, "e": 4}, map[string]any{"b": 2, "d": 3}, ""},
	} {
		t.Run(tc.name, tc.run)
	}
}

// Times change their form.
func TestTimes(t *testing.T) {
	for _, tc := range []step{
		{"a time as text", "TimestampConverter$Value", props{"field": "a", "target.type": "string",
			"format": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"},
			map[string]any{"a": int64(1_500_000_000_123)}, map[string]any{"a": "2017-07-14T02:40:00.123Z"}, ""},
		{"a text as time", "TimestampConverter$Value", props{"field": "a", "target.type": "unix",
			"format": "EEE, d MMM yyyy h:mm a Z"},
			map[string]any{"a": "Fri, 14 Jul 2017 2:40 PM +0200"}, map[string]any{"a": int64(1_500_036_000_000)}, ""},
		{"microseconds", "TimestampConverter$Value", props{"field": "a", "target.type": "Timestamp",
			"unix.precision": "microseconds"},
			map[string]any{"a": int64(-1_500)}, map[string]any{"a": int64(-2)}, ""},
		{"before 1970 as date", "TimestampConverter$Value", props{"field": "a", "target.type": "Date"},
			map[string]any{"a": int64(-1)}, map[string]any{"a": int32(-1)}, ""},
		{"before 1970 as time", "TimestampConverter$Value", props{"field": "a", "target.type": "Time"},
			map[string]any{"a": int64(-1)}, map[string]any{"a": int32(86_399_999)}, ""},
		{"a field that is not there", "TimestampConverter$Value", props{"field": "a", "target.type": "unix"},
			map[string]any{"b": "x"}, map[string]any{"a": nil, "b": "x"}, ""},
		{"a day of the week", "TimestampConverter$Value", props{"field": "a", "target.type": "string", "format": "u yyyy"},
			map[string]any{"a": int64(1_500_000_000_123)}, map[string]any{"a": "5 2017"}, ""},
		{"a year of two digits", "TimestampConverter$Value", props{"field": "a", "target.type": "string", "format": "yy"},
			map[string]any{"a": int64(1_500_000_000_123)}, map[string]any{"a": "17"}, ""},
		{"an early year of two digits", "TimestampConverter$Value", props{"field": "a", "target.type": "Date",
			"format": "yy-MM-dd"}, map[string]any{"a": "46-01-01"}, map[string]any{"a": int32(-8766)}, ""},
		{"a late year of two digits", "TimestampConverter$Value", props{"field": "a", "target.type": "Date",
			"format": "yy-MM-dd"}, map[string]any{"a": "45-12-31"}, map[string]any{"a": int32(27758)}, ""},
		{"nanoseconds", "TimestampConverter$Value", props{"field": "a", "target.type": "unix", "format": "yyyy-MM-dd",
			"unix.precision": "nanoseconds"}, map[string]any{"a": "1969-12-31"},
			map[string]any{"a": int64(-86_400_000_000_000)}, ""},
		{"too far for nanoseconds", "TimestampConverter$Value", props{"field": "a", "target.type": "unix",
			"format": "yyyy-MM-dd", "unix.precision": "nanoseconds"}, map[string]any{"a": "2300-01-01"}, nil, "too far"},
		{"too far for a date", "TimestampConverter$Value", props{"field": "a", "target.type": "Date"},
			map[string]any{"a": int64(math.MaxInt64)}, nil, "too far"},
		{"a text without a format", "TimestampConverter$Value", props{"field": "a", "target.type": "unix"},
			map[string]any{"a": "x"}, nil, "needs the setting format"},
	} {
		t.Run(tc.name, tc.run)
	}
}

// Settings that make no transform say which one is wrong.
func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		class string
		props props
		err   string
	}{
		{"Nothing", nil, `no transform of class "org.apache.kafka.connect.transforms.Nothing"`},
		{"Cast", props{"spec": "int8"}, "no transform of class"},
		{"Cast$Key", props{}, "spec: Missing"},
		{"Cast$Key", props{"spec": "a:int9"}, `"int9" is no type`},
		{"Cast$Key", props{"spec": "int8,a:int8"}, "stands alone"},
		{"HeaderFrom$Key", props{"fields": "a,b", "headers": "a", "operation": "move"}, "1 headers for 2 fields"},
		{"HeaderFrom$Key", props{"fields": "a", "headers": "a", "operation": "steal"}, "must be one of move, copy"},
		{"RegexRouter", props{"regex": "(", "replacement": ""}, "missing closing"},
		{"RegexRouter", props{"regex": "(.*)", "replacement": "$2"}, "no group 2"},
		{"RegexRouter", props{"regex": "(.*)", "replacement": "${x}"}, `no group "x"`},
		{"RegexRouter", props{"regex": "(.*)", "replacement": "a$"}, "neither a number"},
		{"RegexRouter", props{"regex": "(.*)", "replacement": `a\`}, "nothing follows"},
		{"ReplaceField$Value", props{"renames": "a"}, "no pair"},
		{"TimestampConverter$Value", props{"target.type": "string"}, "needs one"},
		{"TimestampConverter$Value", props{"target.type": "string", "format": "yyyy'"}, "no end"},
		{"TimestampConverter$Value", props{"target.type": "string", "format": "b"}, "means nothing"},
		{"InsertField$Value", props{}, "no field is named"},
		{"ExtractField$Value", props{"field": "`a", "field.syntax.version": "V2"}, "backtick has no end"},
		{"SetSchemaMetadata$Value", props{}, "neither"},
	} {
		_, err := transform.New(kafka+tc.class, tc.props)
		require.ErrorContains(t, err, tc.err)
	}
	_, err := transform.NewPredicate(kafka+"predicates.TopicNameMatches", props{"pattern": "["})
	require.ErrorContains(t, err, "pattern")
}

// Structs become other structs with schemas to match, and the old ones stay what they were.
func TestStructs(t *testing.T) {
	apply := func(class string, p props) *data.StructValue {
		in := person()
		was := person()
		out, err := build(t, kafka+class, p).Apply(in)
		require.NoError(t, err)
		v := out.Value.(*data.StructValue)
		require.Same(t, out.ValueSchema, v.Schema)
		require.Len(t, v.Values, len(v.Schema.Fields))
		require.True(t, data.EqualValues(was.Value, person().Value))
		return v
	}
	get := func(v *data.StructValue, name string) any {
		x, ok := v.Get(name)
		require.True(t, ok, name)
		return x
	}
	v := apply("Cast$Value", props{"spec": "id:string,born:string"})
	require.Equal(t, "7", get(v, "id"))
	require.Equal(t, "1970-01-02T00:00:00.000Z", get(v, "born"))
	require.Equal(t, data.String, v.Schema.Fields[3].Schema.Type)
	require.Empty(t, v.Schema.Fields[3].Schema.Name)

	v = apply("Flatten$Value", nil)
	require.Equal(t, "0815", get(v, "home.zip"))
	require.True(t, v.Schema.Fields[v.Schema.Field("home.zip")].Schema.Optional, "its struct is")
	require.Equal(t, "nobody", get(v, "name"))

	v = apply("InsertField$Value", props{"topic.field": "topic!", "static.field": "s", "static.value": "x",
		"timestamp.field": "at"})
	require.Equal(t, "t", get(v, "topic"))
	require.Nil(t, get(v, "at"))
	require.False(t, v.Schema.Fields[v.Schema.Field("topic")].Schema.Optional)

	v = apply("ReplaceField$Value", props{"exclude": "home", "renames": "id:key"})
	require.Equal(t, int64(7), get(v, "key"))
	require.Equal(t, -1, v.Schema.Field("home"))
	require.Equal(t, "person", v.Schema.Name)

	v = apply("MaskField$Value", props{"fields": "id,born"})
	require.Equal(t, int64(0), get(v, "id"))
	require.Equal(t, int64(0), get(v, "born"))

	v = apply("SetSchemaMetadata$Value", props{"schema.name": "other", "schema.version": "3"})
	require.Equal(t, "other", v.Schema.Name)
	require.Equal(t, 3, v.Schema.Version)

	v = apply("TimestampConverter$Value", props{"field": "born", "target.type": "Date"})
	require.Equal(t, int32(1), get(v, "born"))
	require.Equal(t, data.Date, v.Schema.Fields[3].Schema.Name)

}

// Fields of structs are taken, and what is not there is named.
func TestFieldsOfStructs(t *testing.T) {
	out, err := build(t, kafka+"ValueToKey", props{"fields": "id,name"}).Apply(person())
	require.NoError(t, err)
	require.Equal(t, []any{int64(7), "nobody"}, out.Key.(*data.StructValue).Values)
	_, err = build(t, kafka+"ValueToKey", props{"fields": "id,none"}).Apply(person())
	require.ErrorContains(t, err, `no field "none"`)

	out, err = build(t, kafka+"ExtractField$Value", props{"field": "home.no",
		"field.syntax.version": "V2"}).Apply(person())
	require.NoError(t, err)
	require.Equal(t, int32(4), out.Value)
	require.Equal(t, data.Int32, out.ValueSchema.Type)
	_, err = build(t, kafka+"ExtractField$Value", props{"field": "none"}).Apply(person())
	require.ErrorContains(t, err, `no field "none"`)

	withMap := person()
	withMap.ValueSchema = data.NewStruct("m", data.Field{Name: "m",
		Schema: &data.Schema{Type: data.Map, Key: str(), Elem: str()}})
	withMap.Value = data.New(withMap.ValueSchema)
	_, err = build(t, kafka+"Flatten$Value", nil).Apply(withMap)
	require.ErrorContains(t, err, "is a map")
}

// A null key or value passes where there is nothing to do to it.
func TestNulls(t *testing.T) {
	for class, p := range map[string]props{
		"Cast$Value": {"spec": "a:int8"}, "ExtractField$Value": {"field": "a"}, "Flatten$Value": {},
		"InsertField$Value": {"topic.field": "t"}, "MaskField$Value": {"fields": "a"},
		"ReplaceField$Value":       {"exclude": "a"},
		"TimestampConverter$Value": {"target.type": "unix", "field": "a"},
		"SetSchemaMetadata$Value":  {"schema.name": "n"},
		"HeaderFrom$Value":         {"fields": "a", "headers": "h", "operation": "copy"},
	} {
		out, err := build(t, kafka+class, p).Apply(&data.Record{Topic: "t"})
		require.NoError(t, err, class)
		require.Nil(t, out.Value, class)
	}
}

// A tombstone's key gets the fields that other keys get.
func TestInsertIntoKeyOfTombstone(t *testing.T) {
	out, err := build(t, kafka+"InsertField$Key", props{"topic.field": "t"}).
		Apply(&data.Record{Topic: "t", Key: map[string]any{"id": int64(1)}})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"id": int64(1), "t": "t"}, out.Key)
	require.Nil(t, out.Value)
}

// Decimals, floats and times are cast as Java writes them.
func TestCastWhole(t *testing.T) {
	dec := &data.Schema{Type: data.Bytes, Name: data.Decimal, Parameters: props{"scale": "2"}}
	for _, tc := range []struct {
		to     string
		schema *data.Schema
		in     any
		want   any
	}{
		{"string", dec, data.DecimalBytes(big.NewInt(-12345)), "-123.45"},
		{"int32", dec, data.DecimalBytes(big.NewInt(-12345)), int32(-123)},
		{"float64", dec, data.DecimalBytes(big.NewInt(12350)), 123.5},
		{"string", nil, []byte{1, 2}, "AQI="},
		{"string", nil, 1e7, "1.0E7"},
		{"string", nil, 123456.5, "123456.5"},
		{"string", nil, 1.5e-5, "1.5E-5"},
		{"string", nil, math.Inf(-1), "-Infinity"},
		{"string", nil, float32(0.1), "0.1"},
		{"boolean", nil, int64(2), true},
		{"boolean", nil, -0.5, false},
		{"boolean", nil, math.NaN(), false},
		{"boolean", nil, -1.5, true},
		{"boolean", nil, "yes", false},
		{"int64", nil, true, int64(1)},
		{"string", &data.Schema{Type: data.Int32, Name: data.Date}, int32(1), "1970-01-02"},
		{"string", &data.Schema{Type: data.Int32, Name: data.Time}, int32(1), "00:00:00.001Z"},
		{"int32", &data.Schema{Type: data.Int32, Name: data.Date}, int32(5), int32(5)},
	} {
		out, err := build(t, kafka+"Cast$Key",
			props{"spec": tc.to}).Apply(&data.Record{KeySchema: tc.schema, Key: tc.in})
		require.NoError(t, err)
		require.Equal(t, tc.want, out.Key)
	}
	for _, bad := range []any{1e30, math.NaN(), "9223372036854775808"} {
		_, err := build(t, kafka+"Cast$Key", props{"spec": "int64"}).Apply(&data.Record{Key: bad})
		require.Error(t, err)
	}
}

// Headers come, go and take fields.
func TestHeaders(t *testing.T) {
	r := object(map[string]any{"a": "x", "b": int64(1)})
	r.Headers = []data.Header{{Name: "h", Value: "1"}, {Name: "i", Value: "2"}, {Name: "h", Value: "3"}}
	was := r.Headers
	out, err := build(t, kafka+"DropHeaders", props{"headers": "h"}).Apply(r)
	require.NoError(t, err)
	require.Equal(t, []data.Header{{Name: "i", Value: "2"}}, out.Headers)
	require.Equal(t, "h", was[0].Name)
	out, err = build(t, kafka+"InsertHeader", props{"header": "n", "value.literal": "12"}).Apply(out)
	require.NoError(t, err)
	require.Equal(t, "n", out.Headers[1].Name)
	require.NotEqual(t, "12", out.Headers[1].Value, "it is a number")
	out, err = build(t, kafka+"HeaderFrom$Value", props{"fields": "a", "headers": "ha",
		"operation": "move"}).Apply(out)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"b": int64(1)}, out.Value)
	require.Equal(t, data.Header{Name: "ha", Value: "x"}, out.Headers[2])
	out, err = build(t, kafka+"HeaderFrom$Value", props{"fields": "id,home", "headers": "i,h",
		"operation": "move"}).Apply(person())
	require.NoError(t, err)
	require.Equal(t, int64(7), out.Headers[0].Value)
	require.Equal(t, -1, out.ValueSchema.Field("home"))
}

// Topics are renamed by expressions, as Java has them, and by times.
func TestRoutes(t *testing.T) {
	for _, tc := range []struct{ regex, with, in, want string }{
		{"db\\.(.*)\\.(.*)", "$2-$1", "db.public.users", "users-public"},
		{"users", "x", "users2", "users2"},
		{"a|b", "c", "b", "c"},
		{"(.*)", "$1x", "t", "tx"},
		{"(.*)", "\\$1-$1", "t", "$1-t"},
		{"(?<name>.*)", "pre.${name}", "t", "pre.t"},
		{"(.)(.)", "$21", "ab", "b1"},
		{"(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)", "$10", "abcdefghij", "j"},
	} {
		out, err := build(t, "RegexRouter", props{"regex": tc.regex,
			"replacement": tc.with}).Apply(&data.Record{Topic: tc.in})
		require.NoError(t, err)
		require.Equal(t, tc.want, out.Topic)
	}
	out, err := build(t, "TimestampRouter", nil).Apply(&data.Record{Topic: "t", Timestamp: 1_500_000_000_123})
	require.NoError(t, err)
	require.Equal(t, "t-20170714", out.Topic)
	_, err = build(t, "TimestampRouter", nil).Apply(&data.Record{Topic: "t", Timestamp: data.NoTimestamp})
	require.ErrorContains(t, err, "no timestamp")
}

// Predicates hold or not, and a filter drops.
func TestPredicates(t *testing.T) {
	of := func(class string, p props) plugin.Predicate {
		out, err := transform.NewPredicate(class, p)
		require.NoError(t, err)
		return out
	}
	topic := of(kafka+"predicates.TopicNameMatches", props{"pattern": "a.*|b"})
	require.True(t, topic.Test(&data.Record{Topic: "abc"}))
	require.False(t, topic.Test(&data.Record{Topic: "bc"}))
	header := of("HasHeaderKey", props{"name": "h"})
	require.True(t, header.Test(&data.Record{Headers: []data.Header{{Name: "h"}}}))
	require.False(t, header.Test(&data.Record{}))
	require.True(t, of("RecordIsTombstone", nil).Test(&data.Record{}))
	out, err := build(t, "Filter", nil).Apply(person())
	require.NoError(t, err)
	require.Nil(t, out)
}

// Every class is listed by a name that makes it or says what it lacks.
func TestClasses(t *testing.T) {
	for _, c := range transform.Classes() {
		var err error
		if c.Kind == plugin.PredicateKind {
			_, err = transform.NewPredicate(c.Class, nil)
		} else {
			_, err = transform.New(c.Class, nil)
		}
		if err != nil {
			require.NotContains(t, err.Error(), "no transform of class")
			require.NotContains(t, err.Error(), "no predicate of class")
		}
		for _, d := range c.Defs {
			require.NotEmpty(t, d.Doc, d.Name)
		}
	}
}

// What has no fields by its schema gets none, and is named: a map with a schema too.
func TestMapsWithSchemas(t *testing.T) {
	s := &data.Schema{Type: data.Map, Key: str(), Elem: &data.Schema{Type: data.Int64}}
	for class, p := range map[string]props{
		"Cast$Value": {"spec": "a:string"}, "ExtractField$Value": {"field": "a"}, "Flatten$Value": {},
		"InsertField$Value": {"topic.field": "t"}, "MaskField$Value": {"fields": "a"},
		"ReplaceField$Value": {"exclude": "a"}, "TimestampConverter$Value": {"target.type": "unix", "field": "a"},
		"HeaderFrom$Value": {"fields": "a", "headers": "h", "operation": "copy"}, "ValueToKey": {"fields": "a"},
	} {
		_, err := build(t, kafka+class, p).Apply(&data.Record{ValueSchema: s, Value: map[string]any{"a": int64(1)}})
		require.ErrorContains(t, err, "the value is a map", class)
	}
}

// A struct does not get a field twice, and one without the field that is wanted passes where Kafka's does.
func TestFieldsTwiceAndMissing(t *testing.T) {
	for class, p := range map[string]props{
		"InsertField$Value": {"topic.field": "id"}, "ReplaceField$Value": {"renames": "name:id"},
	} {
		_, err := build(t, kafka+class, p).Apply(person())
		require.ErrorContains(t, err, `two fields "id"`, class)
	}
	in := person()
	out, err := build(t, kafka+"TimestampConverter$Value", props{"field": "none", "target.type": "unix"}).Apply(in)
	require.NoError(t, err)
	require.Same(t, in, out)
	_, err = build(t, kafka+"MaskField$Value", props{"fields": "home"}).Apply(person())
	require.ErrorContains(t, err, `field "home": it is a struct`)
	_, err = build(t, kafka+"MaskField$Value", props{"fields": "born", "replacement": "5"}).Apply(person())
	require.ErrorContains(t, err, "only for numbers and texts")
}

// A decimal is masked by a number of its own scale.
func TestMaskDecimal(t *testing.T) {
	dec := &data.Schema{Type: data.Bytes, Name: data.Decimal, Parameters: props{"scale": "2"}}
	s := data.NewStruct("s", data.Field{Name: "d", Schema: dec})
	mask := func(p props) (any, error) {
		v := data.New(s).Set("d", []byte{7})
		out, err := build(t, kafka+"MaskField$Value", p).Apply(&data.Record{ValueSchema: s, Value: v})
		if err != nil {
			return nil, err
		}
		return out.Value.(*data.StructValue).Values[0], nil
	}
	for with, want := range map[string]int64{"": 0, "1.5": 150, "-2": -200} {
		p := props{"fields": "d"}
		if with != "" {
			p["replacement"] = with
		}
		got, err := mask(p)
		require.NoError(t, err)
		require.Equal(t, data.DecimalBytes(big.NewInt(want)), got)
	}
	for _, with := range []string{"1.234", "x"} {
		_, err := mask(props{"fields": "d", "replacement": with})
		require.Error(t, err)
	}
}

// A whole value that is a time gets one schema for all records, also where it is null.
func TestTimestampConverterOfWholeValues(t *testing.T) {
	tr := build(t, kafka+"TimestampConverter$Value", props{"target.type": "unix"})
	s := &data.Schema{Type: data.Int64, Name: data.Timestamp, Optional: true}
	first, err := tr.Apply(&data.Record{ValueSchema: s, Value: int64(5)})
	require.NoError(t, err)
	null, err := tr.Apply(&data.Record{ValueSchema: s})
	require.NoError(t, err)
	require.Equal(t, int64(5), first.Value)
	require.Nil(t, null.Value)
	require.Same(t, first.ValueSchema, null.ValueSchema)
	require.Empty(t, null.ValueSchema.Name)
}

// Nulls of fields that have defaults are read as those, in all fields or in none.
func TestDefaultsForNulls(t *testing.T) {
	for class, p := range map[string]props{
		"Cast$Value": {"spec": "id:string"}, "InsertField$Value": {"topic.field": "t"}, "MaskField$Value": {"fields": "id"},
		"ReplaceField$Value": {"exclude": "id"}, "TimestampConverter$Value": {"field": "born", "target.type": "unix"},
		"SetSchemaMetadata$Value": {"schema.name": "n"}, "Flatten$Value": {},
		"HeaderFrom$Value": {"fields": "id", "headers": "h", "operation": "move"},
	} {
		for with, want := range map[string]any{"true": "nobody", "false": nil} {
			p["replace.null.with.default"] = with
			out, err := build(t, kafka+class, p).Apply(person())
			require.NoError(t, err)
			got, ok := out.Value.(*data.StructValue).Get("name")
			require.True(t, ok)
			require.Equal(t, want, got, class)
		}
	}
}

// The fields of a struct that may be null may be, and its default is theirs.
func TestFlattenInherits(t *testing.T) {
	inner := data.NewStruct("", data.Field{Name: "zip", Schema: str()}, data.Field{Name: "no", Schema: int32s()})
	preset := data.New(inner).Set("zip", "0815").Set("no", int32(4))
	inner.Default = preset
	s := data.NewStruct("s", data.Field{Name: "home", Schema: inner}, data.Field{Name: "id", Schema: int32s()})
	s.Optional = true
	out, err := build(t, kafka+"Flatten$Value", nil).Apply(&data.Record{ValueSchema: s,
		Value: data.New(s).Set("id", int32(1))})
	require.NoError(t, err)
	zip := out.ValueSchema.Fields[0].Schema
	require.Equal(t, "0815", zip.Default)
	require.True(t, zip.Optional)
	require.True(t, out.ValueSchema.Fields[2].Schema.Optional)
	require.False(t, inner.Fields[0].Schema.Optional, "the old schema stays")

	both := data.NewStruct("s", data.Field{Name: "a", Schema: data.NewStruct("", data.Field{Name: "b", Schema: str()})},
		data.Field{Name: "a.b", Schema: str()})
	_, err = build(t, kafka+"Flatten$Value", nil).Apply(&data.Record{ValueSchema: both, Value: data.New(both)})
	require.ErrorContains(t, err, `two fields "a.b"`)
}

// odd are values of all types, with schemas and without, also with ones that they do not fit.
func odd() (out []data.Record) {
	s := person()
	values := []any{nil, true, int8(1), int16(2), int32(3), int64(math.MinInt64), float32(1), math.Inf(1), "", "x",
		[]byte{}, []any{}, []any{nil}, map[string]any{}, map[string]any{"a": nil, "op": "c", "source": map[string]any{}},
		[]data.Entry{{Key: int8(1)}}, s.Value, data.New(s.ValueSchema), change("d", nil, nil).Value}
	schemas := []*data.Schema{nil, str(), int32s(), s.ValueSchema, change("c", nil, nil).ValueSchema,
		{Type: data.Bytes, Name: data.Decimal}, {Type: data.Int32, Name: data.Date}, {Type: data.Int64, Name: data.Timestamp},
		{Type: data.Map, Key: str(), Elem: str()}, {Type: data.Array, Elem: str()}}
	for _, v := range values {
		for _, schema := range schemas {
			if x, ok := v.(*data.StructValue); ok {
				schema = x.Schema // a struct's is its own
			}
			out = append(out, data.Record{Topic: "t", KeySchema: schema, Key: v, ValueSchema: schema, Value: v,
				Timestamp: data.NoTimestamp, Offset: -1, Headers: []data.Header{{Name: "drop", Value: v}}})
		}
	}
	return out
}

// What no transform is made for is an error, or passes; a struct's schema is the record's.
func TestOddRecords(t *testing.T) {
	for _, c := range []struct {
		class string
		props props
	}{
		{"Cast$Value", props{"spec": "a:int8,name:int32"}}, {"Cast$Value", props{"spec": "string"}},
		{"Cast$Key", props{"spec": "int64"}}, {"DropHeaders", props{"headers": "drop"}},
		{"ExtractField$Value", props{"field": "home.zip", "field.syntax.version": "V2"}}, {"Flatten$Value", nil},
		{"HeaderFrom$Value", props{"fields": "a", "headers": "h", "operation": "move"}},
		{"HeaderFrom$Value", props{"fields": "home,id", "headers": "h,i", "operation": "move"}},
		{"HoistField$Key", props{"field": "f"}}, {"InsertField$Value", props{"offset.field": "o", "timestamp.field": "t!"}},
		{"InsertHeader", props{"header": "h", "value.literal": "[1"}}, {"MaskField$Value", props{"fields": "a,id,name,home"}},
		{"MaskField$Value", props{"fields": "a,id", "replacement": "7"}},
		{"RegexRouter", props{"regex": ".", "replacement": ""}},
		{"ReplaceField$Value", props{"exclude": "id", "renames": "name:n"}}, {"TimestampRouter", nil},
		{"SetSchemaMetadata$Value", props{"schema.name": "n"}}, {"ValueToKey", props{"fields": "id"}},
		{"TimestampConverter$Value", props{"target.type": "unix", "format": "yyyy"}},
		{"TimestampConverter$Key", props{"target.type": "Date", "field": "born"}},
		{newState, props{"add.fields": "op,x.y", "add.headers": "z", "delete.tombstone.handling.mode": "rewrite",
			"drop.fields.header.name": "drop", "drop.fields.from.key": "true", "route.by.field": "topic"}},
		{"io.debezium.transforms.outbox.EventRouter", props{"table.fields.additional.placement": "id:envelope,name:partition",
			"route.by.field": "name", "table.field.event.payload": "topic", "table.expand.json.payload": "true"}},
	} {
		for _, r := range odd() {
			class := strings.TrimPrefix(c.class, kafka)
			out, err := build(t, class, c.props).Apply(&r)
			if err != nil || out == nil {
				continue
			}
			if x, ok := out.Value.(*data.StructValue); ok {
				require.Same(t, x.Schema, out.ValueSchema, class)
				require.Len(t, x.Values, len(x.Schema.Fields), class)
			}
		}
	}
}
