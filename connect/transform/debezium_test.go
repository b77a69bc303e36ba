package transform_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
)

const newState = "io.debezium.transforms.ExtractNewRecordState"

// change is a record of a change of a row.
func change(op string, before, after any) *data.Record {
	row := &data.Schema{Type: data.Struct, Optional: true, Name: "p.public.t.Value", Fields: []data.Field{
		{Name: "id", Schema: int32s()}, {Name: "name", Schema: &data.Schema{Type: data.String, Optional: true}},
		{Name: "topic", Schema: &data.Schema{Type: data.String, Optional: true}},
	}}
	row.Index()
	source := data.NewStruct("io.debezium.connector.postgresql.Source",
		data.Field{Name: "table", Schema: str()}, data.Field{Name: "ts_ms", Schema: &data.Schema{Type: data.Int64}})
	s := data.NewStruct("p.public.t.Envelope",
		data.Field{Name: "before", Schema: row}, data.Field{Name: "after", Schema: row},
		data.Field{Name: "source", Schema: source}, data.Field{Name: "op", Schema: str()})
	made := func(v any) any {
		if name, ok := v.(string); ok {
			return data.New(row).Set("id", int32(1)).Set("name", name).Set("topic", "other")
		}
		return nil
	}
	v := data.New(s).Set("before", made(before)).Set("after", made(after)).Set("op", op).
		Set("source", data.New(source).Set("table", "t").Set("ts_ms", int64(5)))
	return &data.Record{Topic: "p.public.t", ValueSchema: s, Value: v, Timestamp: 9}
}

// A change of a row becomes the row; deletes and tombstones become what is wanted of them.
func TestNewRecordState(t *testing.T) {
	for _, tc := range []struct {
		mode               string
		deleted, tombstone string // gone, null, row
	}{
		{"", "gone", "null"}, {"tombstone", "gone", "null"}, {"drop", "gone", "gone"}, {"rewrite", "row", "gone"},
		{"rewrite-with-tombstone", "row", "null"}, {"delete-to-tombstone", "null", "gone"},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			p := props{}
			if tc.mode != "" {
				p["delete.tombstone.handling.mode"] = tc.mode
			}
			tr := build(t, newState, p)
			is := func(want string, r *data.Record) {
				out, err := tr.Apply(r)
				require.NoError(t, err)
				switch want {
				case "gone":
					require.Nil(t, out)
				case "null":
					require.Nil(t, out.Value)
				default:
					v := out.Value.(*data.StructValue)
					name, _ := v.Get("name")
					require.Equal(t, "was", name)
					deleted, _ := v.Get("__deleted")
					require.Equal(t, "true", deleted)
				}
			}
			is(tc.deleted, change("d", "was", nil))
			is(tc.tombstone, &data.Record{Topic: "t"})
			out, err := tr.Apply(change("u", "was", "is"))
			require.NoError(t, err)
			name, _ := out.Value.(*data.StructValue).Get("name")
			require.Equal(t, "is", name)
			require.Equal(t, "p.public.t.Value", out.ValueSchema.Name)
		})
	}
}

// Fields of the envelope are added where they are wanted, and a field of the row may be the topic.
func TestNewRecordStateAdds(t *testing.T) {
	tr := build(t, newState, props{
		"add.fields": "op,table,source.ts_ms:when", "add.headers": "op", "route.by.field": "topic",
		"drop.fields.header.name": "drop",
	})
	in := change("c", nil, "is")
	in.Headers = []data.Header{{Name: "drop", Value: []any{"name", "id"}}}
	out, err := tr.Apply(in)
	require.NoError(t, err)
	v := out.Value.(*data.StructValue)
	want := map[string]any{"__op": "c", "__table": "t", "__when": int64(5), "id": int32(1)}
	for name, x := range want {
		got, ok := v.Get(name)
		require.True(t, ok, name)
		require.Equal(t, x, got, name)
	}
	require.Equal(t, -1, v.Schema.Field("name"), "it is optional, and id is not")
	require.Equal(t, "other", out.Topic)
	require.Equal(t, data.Header{Name: "__op", Schema: str(), Value: "c"}, out.Headers[1])

	plain := object(map[string]any{"op": "u", "source": map[string]any{"table": "t"},
		"after": map[string]any{"a": int64(1)}})
	out, err = tr.Apply(plain)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": int64(1), "__op": "u", "__table": "t", "__when": nil}, out.Value)
	require.Nil(t, out.Headers[0].Schema, "nothing says of what type it is")

	other := person()
	out, err = tr.Apply(other)
	require.NoError(t, err)
	require.Same(t, other, out, "it is no change of a row")
}

// Rows of an outbox become events of the topics that they name.
func TestEventRouter(t *testing.T) {
	row := func(kind, payload any) map[string]any {
		return map[string]any{
			"op": "c", "source": map[string]any{}, "after": map[string]any{
				"id": "e1", "aggregateid": "o7", "aggregatetype": kind, "type": "Created",
				"payload": payload, "n": int64(2),
			},
		}
	}
	router := "io.debezium.transforms.outbox.EventRouter"
	out, err := build(t, router, nil).Apply(object(row("order", `{"a":1}`)))
	require.NoError(t, err)
	require.Equal(t, "outbox.event.order", out.Topic)
	require.Equal(t, "o7", out.Key)
	require.Equal(t, `{"a":1}`, out.Value)
	require.Equal(t, "e1", out.Headers[0].Value)

	tr := build(t, router, props{
		"table.expand.json.payload": "true", "route.topic.replacement": "x.${routedByValue}",
		"table.fields.additional.placement": "type:header:eventType,n:partition,type:envelope",
		"table.op.invalid.behavior":         "fatal",
	})
	out, err = tr.Apply(object(row("order", `{"a":1,"b":[1.5]}`)))
	require.NoError(t, err)
	require.Equal(t, "x.order", out.Topic)
	require.Equal(t, int32(2), out.Partition)
	require.Equal(t, map[string]any{"payload": map[string]any{"a": int64(1), "b": []any{1.5}},
		"type": "Created"}, out.Value)
	require.Equal(t, "eventType", out.Headers[1].Name)

	updated := row("order", "x")
	updated["op"] = "u"
	_, err = tr.Apply(object(updated))
	require.ErrorContains(t, err, "was updated")
	out, err = build(t, router, props{"table.op.invalid.behavior": "error"}).Apply(object(updated))
	require.NoError(t, err)
	require.Nil(t, out)
	updated["op"] = "d"
	for _, gone := range []*data.Record{object(updated), {Topic: "t"}} {
		out, err = tr.Apply(gone)
		require.NoError(t, err)
		require.Nil(t, out)
	}
	_, err = tr.Apply(object(row(int64(1), "x")))
	require.ErrorContains(t, err, "says no topic")
	for _, empty := range []any{nil, " "} {
		out, err = build(t, router, props{"route.tombstone.on.empty.payload": "true"}).Apply(object(row("order", empty)))
		require.NoError(t, err)
		require.Nil(t, out.Value)
	}
}

// What only begins like JSON, and JSON that is one number, stays the text that it is.
func TestEventRouterPayloads(t *testing.T) {
	tr := build(t, "io.debezium.transforms.outbox.EventRouter", props{"table.expand.json.payload": "true"})
	for payload, want := range map[string]any{
		`{"a":1}`: map[string]any{"a": int64(1)}, `[2]`: []any{int64(2)}, "12 apples": "12 apples", "12": "12",
		`{"a":1} and more`: `{"a":1} and more`, "": "",
	} {
		out, err := tr.Apply(object(map[string]any{"op": "c", "source": map[string]any{}, "after": map[string]any{
			"id": "e", "aggregatetype": "o", "payload": payload}}))
		require.NoError(t, err)
		require.Equal(t, want, out.Value)
	}
}

// outboxRow is a record of a new row of an outbox.
func outboxRow(at, key any) *data.Record {
	micros := &data.Schema{Type: data.Int64, Name: "io.debezium.time.MicroTimestamp", Optional: true}
	row := data.NewStruct("p.public.outbox.Value",
		data.Field{Name: "id", Schema: str()}, data.Field{Name: "aggregatetype", Schema: str()},
		data.Field{Name: "aggregateid", Schema: &data.Schema{Type: data.String, Optional: true}},
		data.Field{Name: "payload", Schema: str()}, data.Field{Name: "at", Schema: micros})
	s := data.NewStruct("p.public.outbox.Envelope", data.Field{Name: "after", Schema: row},
		data.Field{Name: "op", Schema: str()}, data.Field{Name: "ts_ms", Schema: &data.Schema{Type: data.Int64}})
	after := data.New(row).Set("id", "e").Set("aggregatetype", "o").Set("aggregateid", key).Set("payload", "x").
		Set("at", at)
	return &data.Record{Topic: "t", KeySchema: int32s(), Key: int32(1), ValueSchema: s, Timestamp: data.NoTimestamp,
		Value: data.New(s).Set("after", after).Set("op", "c").Set("ts_ms", int64(77))}
}

// An event has the time of its column, else that of the change; the row's key where it has none; and one schema.
func TestEventRouterOfStructs(t *testing.T) {
	tr := build(t, "io.debezium.transforms.outbox.EventRouter", props{
		"table.field.event.timestamp": "at", "table.fields.additional.placement": "id:envelope:from"})
	in := outboxRow(int64(5_999), "k")
	again := *in
	first, err := tr.Apply(in)
	require.NoError(t, err)
	require.Equal(t, int64(5), first.Timestamp)
	require.Equal(t, "k", first.Key)
	require.Equal(t, []any{"x", "e"}, first.Value.(*data.StructValue).Values)
	second, err := tr.Apply(&again)
	require.NoError(t, err)
	require.Same(t, first.ValueSchema, second.ValueSchema)

	out, err := tr.Apply(outboxRow(nil, nil))
	require.NoError(t, err)
	require.Equal(t, int64(77), out.Timestamp)
	require.Equal(t, int32(1), out.Key)
	require.Equal(t, data.Int32, out.KeySchema.Type)

	twice := build(t, "io.debezium.transforms.outbox.EventRouter",
		props{"table.fields.additional.placement": "id:envelope:payload"})
	_, err = twice.Apply(outboxRow(nil, nil))
	require.ErrorContains(t, err, `two fields "payload"`)
}

// Fields that a header lists are left out by one schema for all records, and a key without fields stays.
func TestNewRecordStateDropsByOneSchema(t *testing.T) {
	tr := build(t, newState, props{"drop.fields.header.name": "drop", "drop.fields.from.key": "true"})
	var schemas []*data.Schema
	row := change("c", nil, "is")
	for range 2 {
		in := *row
		in.Key, in.Headers = "k", []data.Header{{Name: "drop", Value: []any{"name"}}}
		out, err := tr.Apply(&in)
		require.NoError(t, err)
		require.Equal(t, "k", out.Key)
		schemas = append(schemas, out.ValueSchema)
	}
	require.Same(t, schemas[0], schemas[1])
	_, err := build(t, newState, props{"add.fields": "op:id", "add.fields.prefix": ""}).Apply(change("c", nil, "is"))
	require.ErrorContains(t, err, `two fields "id"`)
}
