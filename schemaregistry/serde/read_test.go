package serde_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
	"millrace/server/servertest"
)

// A Reader that lives long finds what is registered later, once it is told that records may be newer.
func TestReaderBegins(t *testing.T) {
	r, s := start(t)
	v := register(t, r, "t-value", schema.Avro, `"int"`)
	reader := s.NewReader("t", serde.Value)
	var unknown *serde.UnknownSchemaError
	_, _, err := reader.Append(t.Context(), nil, frame(v.ID+1, "\x06"), nil)
	require.ErrorAs(t, err, &unknown)
	_, _, err = reader.Append(t.Context(), nil, frame(v.ID, "\x06"), nil)
	require.NoError(t, err)
	later := register(t, r, "t-value", schema.Avro, `"long"`)
	require.Equal(t, v.ID+1, later.ID)
	_, _, err = reader.Append(t.Context(), nil, frame(later.ID, "\x06"), nil)
	require.ErrorAs(t, err, &unknown, "records of one time are read alike")
	reader.Begin()
	for range 2 {
		got, read, err := reader.Append(t.Context(), nil, frame(later.ID, "\x06"), nil)
		require.NoError(t, err)
		require.Equal(t, "3", string(got))
		require.Equal(t, later.ID, read.ID)
	}
}

// A schema that another registry took and this one cannot read is the fault of the records that name it: they are not
// waited for.
func TestUnreadableSchema(t *testing.T) {
	node := servertest.Start(t, servertest.Options{})
	c := client.New(node.Requestor(), client.Options{})
	r, s := startOn(t, c)
	register(t, r, "t-value", schema.Avro, `"int"`)
	topic, err := c.Topic(t.Context(), r.Topic(), client.Refuse)
	require.NoError(t, err)
	var b record.Builder
	b.Append(&record.Record{
		Key:   []byte(`{"keytype":"SCHEMA","subject":"t-value","version":2,"magic":1}`),
		Value: []byte(`{"subject":"t-value","version":2,"id":7,"schema":"{","deleted":false}`),
	})
	results, err := c.Produce(t.Context(), client.ProduceRequest{
		Acks: client.AcksAll, Timeout: 30 * time.Second, Batches: []client.Batch{{Topic: topic, Bytes: b.Build()}},
	})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	_, read, err := s.NewReader("t", serde.Value).Append(t.Context(), nil, frame(7, "x"), nil)
	require.ErrorIs(t, err, schema.ErrMismatch)
	require.ErrorContains(t, err, "id 7")
	require.Nil(t, read)
}

// A Reader remembers so many schemas, and reads any number.
func TestReaderOfManySchemas(t *testing.T) {
	r, s := start(t)
	var ids []int
	for i := range 100 {
		ids = append(ids, register(t, r, "s"+strconv.Itoa(i), schema.JSON, `{"const":`+strconv.Itoa(i)+`}`).ID)
	}
	reader := s.NewReader("t", serde.Value)
	for range 3 {
		for i, id := range ids {
			got, _, err := reader.Append(t.Context(), []byte("x"), frame(id, strconv.Itoa(i)), nil)
			require.NoError(t, err)
			require.Equal(t, "x"+strconv.Itoa(i), string(got))
		}
	}
}

// A value keeps what stands before it in the buffer, whatever becomes of it.
func TestBuffersAreKept(t *testing.T) {
	r, s := start(t)
	for _, c := range []struct {
		typ       schema.Type
		text, bad string
	}{{schema.Avro, order, "\x06"}, {schema.JSON, person, `{"age":`}, {schema.Protobuf, messages, "\x00\x08"}} {
		v := register(t, r, string(c.typ), c.typ, c.text)
		got, _, err := s.NewReader("t", serde.Value).Append(t.Context(), []byte("before"), frame(v.ID, c.bad), nil)
		require.ErrorIs(t, err, schema.ErrMismatch)
		require.Equal(t, "before", string(got))
		w, err := s.NewWriter(t.Context(), serde.Spec{Topic: "t", ID: v.ID, Anywhere: true})
		require.NoError(t, err)
		got, err = w.Append([]byte("before"), []byte(`{"age":"x","id":"y","x":[]}`))
		require.ErrorIs(t, err, schema.ErrMismatch)
		require.Equal(t, "before", string(got))
	}
}

// A message that is not the schema's first one is named, and can be written by that name.
func TestMessages(t *testing.T) {
	r, s := start(t)
	v := register(t, r, "elsewhere", schema.Protobuf, messages)
	for name, c := range map[string]struct{ message, json, bytes string }{
		"first": {"", `{"x":5}`, "\x00\x08\x05"}, "second": {"p.C", `{"z":true}`, "\x02\x02\x08\x01"},
		"nested": {"p.A.B", `{"y":"q"}`, "\x04\x00\x00\x0a\x01q"},
	} {
		w, err := s.NewWriter(t.Context(), serde.Spec{Topic: "t", ID: v.ID, Anywhere: true, Message: c.message})
		require.NoError(t, err, name)
		b, err := w.Append(nil, []byte(c.json))
		require.NoError(t, err, name)
		require.Equal(t, string(frame(v.ID, c.bytes)), string(b), name)
		got, read, err := s.NewReader("t", serde.Value).Append(t.Context(), nil, b, nil)
		require.NoError(t, err, name)
		require.Equal(t, c.json, string(got), name)
		require.Equal(t, c.message, read.Message, name)
	}
	_, err := s.NewWriter(t.Context(), serde.Spec{Topic: "t", ID: v.ID, Anywhere: true, Message: "p.D"})
	require.ErrorIs(t, err, schema.ErrMismatch)
	avro := register(t, r, "a", schema.Avro, order)
	_, err = s.NewWriter(t.Context(), serde.Spec{Topic: "t", ID: avro.ID, Anywhere: true, Message: "shop.Order"})
	require.ErrorIs(t, err, schema.ErrMismatch)
	_, err = s.NewWriter(t.Context(), serde.Spec{Topic: "t", ID: v.ID})
	require.Error(t, err, "another subject has it, and that will not do unless it is said")
}

// What may be framed is told at a glance.
func TestMayFrame(t *testing.T) {
	header := func(name string, value string) []record.Header {
		return []record.Header{{Key: "x"}, {Key: name, Value: []byte(value)}}
	}
	for _, c := range []struct {
		value   string
		headers []record.Header
		want    bool
	}{
		{"", nil, false}, {"{}", nil, false}, {"\x00", nil, true}, {"\x01abc", nil, true}, {"\x02", nil, false},
		{"{}", header("__value_schema_id", "\x01"), true}, {"{}", header("__value_schema_id", ""), false},
		{"{}", header("__key_schema_id", "\x01"), false},
	} {
		require.Equal(t, c.want, serde.Value.MayFrame([]byte(c.value), c.headers), "%q", c.value)
	}
	require.True(t, serde.Key.MayFrame(nil, header("__key_schema_id", "\x01")))
}

// FuzzReader reads any bytes, of a value or a header, without a panic, in proportion to their size and alike each time.
func FuzzReader(f *testing.F) {
	r, s := start(f)
	ids := []byte{0}
	for i, c := range []struct {
		typ  schema.Type
		text string
	}{
		{schema.Avro, order}, {schema.Avro, `"bytes"`}, {schema.Avro, `["null",{"type":"array","items":"string"}]`},
		{schema.JSON, person}, {schema.JSON, `true`}, {schema.Protobuf, messages},
	} {
		v := register(f, r, "s"+strconv.Itoa(i), c.typ, c.text)
		ids = append(ids, byte(v.ID))
		f.Add(frame(v.ID, "\x06\x00"), []byte{})
		f.Add([]byte("\x06\x00"), append([]byte{1}, v.GUID[:]...))
		f.Add(append(append([]byte{1}, v.GUID[:]...), "\x02\x02\x08\x01"...), []byte(nil))
	}
	reader := s.NewReader("t", serde.Value)
	f.Fuzz(func(t *testing.T, value, header []byte) {
		if len(value) > 4 && value[0] == 0 && value[4] > byte(len(ids)) {
			value[4] %= byte(len(ids)) // mostly a schema that is there
		}
		var headers []record.Header
		if len(header) > 0 {
			headers = []record.Header{{Key: "__value_schema_id", Value: header}}
		}
		got, read, err := reader.Append(t.Context(), []byte("before"), value, headers)
		require.True(t, strings.HasPrefix(string(got), "before"))
		require.LessOrEqual(t, len(got), 1<<21+64*len(value))
		_, checked := reader.Check(t.Context(), value, headers)
		if err != nil {
			require.Equal(t, "before", string(got))
			if checked == nil { // a text may be too long, where the bytes are what the schema says
				require.ErrorIs(t, err, schema.ErrMismatch)
			}
			return
		}
		require.NoError(t, checked)
		require.NotZero(t, read.ID)
		again, _, err := s.NewReader("t", serde.Value).Append(t.Context(), nil, value, headers)
		require.NoError(t, err)
		require.Equal(t, string(got), "before"+string(again))
	})
}

// BenchmarkReader and BenchmarkWriter are what one record costs whose schema is known.
func BenchmarkReader(b *testing.B) {
	r, s := start(b)
	for _, c := range []struct {
		name  string
		typ   schema.Type
		text  string
		value string
	}{
		{"avro", schema.Avro, order, "\x06\x02\x08note"}, {"json", schema.JSON, person, `{"age":7}`},
		{"protobuf", schema.Protobuf, messages, "\x00\x08\x05"},
	} {
		value := frame(register(b, r, c.name, c.typ, c.text).ID, c.value)
		reader := s.NewReader("t", serde.Value)
		for _, op := range []string{"append", "check"} {
			b.Run(c.name+"/"+op, func(b *testing.B) {
				var dst []byte
				b.ReportAllocs()
				for b.Loop() {
					var err error
					if op == "check" {
						_, err = reader.Check(b.Context(), value, nil)
					} else {
						dst, _, err = reader.Append(b.Context(), dst[:0], value, nil)
					}
					require.NoError(b, err)
				}
			})
		}
	}
}

func BenchmarkWriter(b *testing.B) {
	r, s := start(b)
	for _, c := range []struct {
		name string
		typ  schema.Type
		text string
		json string
	}{
		{"avro", schema.Avro, order, `{"id":3,"note":{"string":"note"}}`}, {"json", schema.JSON, person, `{"age":7}`},
		{"protobuf", schema.Protobuf, messages, `{"x":5}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			w, err := s.NewWriter(b.Context(), serde.Spec{ID: register(b, r, c.name, c.typ, c.text).ID, Anywhere: true})
			require.NoError(b, err)
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				dst, err = w.Append(dst[:0], []byte(c.json))
				require.NoError(b, err)
			}
		})
	}
}
