package serde_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
	"millrace/server/servertest"
)

// start is a registry on a real node.
func start(t testing.TB) (*schemaregistry.Registry, *serde.Serde) {
	t.Helper()
	return startOn(t, client.New(servertest.Start(t, servertest.Options{}).Requestor(), client.Options{}))
}

func startOn(t testing.TB, c *client.Client) (*schemaregistry.Registry, *serde.Serde) {
	t.Helper()
	r, err := schemaregistry.New(schemaregistry.Config{
		Client: c, Limits: schemaregistry.Limits{FreshWait: 20 * time.Second}, // longer than a test may stand still
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r, serde.New(r)
}

const (
	order = `{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"int"},` +
		`{"name":"note","type":["null","string"]}]}`
	person   = `{"type":"object","title":"Person","properties":{"age":{"type":"integer"}},"required":["age"]}`
	messages = `syntax = "proto3"; package p; message A { int32 x = 1; message B { string y = 1; } } ` +
		`message C { bool z = 1; }`
)

func register(t testing.TB, r *schemaregistry.Registry, subject string, typ schema.Type, text string) (
	v schemaregistry.Version,
) {
	t.Helper()
	v, err := r.Register(t.Context(), subject, schemaregistry.RegisterRequest{
		Content: schema.Content{Type: typ, Text: text},
	})
	require.NoError(t, err)
	return v
}

func frame(id int, value string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), value...)
}

// What is written for each type has the bytes that other clients write, and reads back as it was.
func TestWriteAndRead(t *testing.T) {
	_, s := start(t)
	for _, c := range []struct {
		typ   schema.Type
		text  string
		json  string
		bytes string // in hex, without the id
		back  string // as it reads; as it was written if empty
	}{
		{schema.Avro, order, `{"id":3,"note":{"string":"x"}}`, "06020278", ""},
		{schema.Avro, `"bytes"`, `"\u00ff\u0001"`, "ff01", `"ÿ\u0001"`},
		{schema.Avro, `{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`, `"ab"`, "6162", ""},
		{schema.Avro, `["null","long"]`, `null`, "00", ""},
		{schema.JSON, person, `{"age": 7}`, hex.EncodeToString([]byte(`{"age": 7}`)), ""},
		{schema.Protobuf, messages, `{"x":5}`, "000805", ""},
	} {
		w, err := s.NewWriter(t.Context(), serde.Spec{Topic: "t", Type: c.typ, Text: c.text, Subject: c.bytes})
		require.NoError(t, err, c.text)
		require.Equal(t, c.typ, w.Type)
		b, err := w.Append([]byte("before"), []byte(c.json))
		require.NoError(t, err, c.text)
		require.Equal(t, "before"+string(frame(w.ID, "")), string(b[:11]))
		require.Equal(t, c.bytes, hex.EncodeToString(b[11:]), c.text)

		got, read, err := s.NewReader("t", serde.Value).Append(t.Context(), []byte("before"), b[6:], nil)
		require.NoError(t, err)
		if c.back == "" {
			c.back = c.json
		}
		require.Equal(t, "before"+c.back, string(got))
		require.Equal(t, w.ID, read.ID)
		_, err = s.NewReader("t", serde.Value).Check(t.Context(), b[6:], nil)
		require.NoError(t, err)
	}
}

// A value may name its schema by GUID, before it or in a header.
func TestFrames(t *testing.T) {
	r, s := start(t)
	v := register(t, r, "t-value", schema.Avro, order)
	p := register(t, r, "p-value", schema.Protobuf, messages)
	guid := append([]byte{1}, v.GUID[:]...)
	avro := "\x06\x00"
	want := `{"id":3,"note":null}`
	for name, c := range map[string]struct {
		value   []byte
		headers []record.Header
		want    string
	}{
		"id":           {frame(v.ID, avro), nil, want},
		"GUID":         {append(append([]byte(nil), guid...), avro...), nil, want},
		"header":       {[]byte(avro), []record.Header{{Key: "__value_schema_id", Value: guid}}, want},
		"other header": {frame(v.ID, avro), []record.Header{{Key: "__key_schema_id", Value: guid}}, want},
		"last header": {
			[]byte(avro),
			[]record.Header{{Key: "__value_schema_id", Value: []byte{9}}, {Key: "__value_schema_id", Value: guid}}, want,
		},
		"first message":               {frame(p.ID, "\x00\x08\x05"), nil, `{"x":5}`},
		"first message, the long way": {frame(p.ID, "\x02\x00\x08\x05"), nil, `{"x":5}`},
		"second message":              {frame(p.ID, "\x02\x02\x08\x01"), nil, `{"z":true}`},
		"nested message":              {frame(p.ID, "\x04\x00\x00\x0a\x01q"), nil, `{"y":"q"}`},
		"header with a path": {
			[]byte("\x08\x01"),
			[]record.Header{{Key: "__value_schema_id", Value: append(append([]byte{1}, p.GUID[:]...), 2, 2)}}, `{"z":true}`,
		},
	} {
		got, _, err := s.NewReader("t", serde.Value).Append(t.Context(), nil, c.value, c.headers)
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(got), name)
	}
	reader := s.NewReader("t", serde.Value) // one Reader changes between schemas and messages
	for range 2 {
		for _, c := range [][2]string{
			{string(frame(p.ID, "\x00\x08\x05")), `{"x":5}`}, {string(frame(v.ID, avro)), want},
			{string(frame(p.ID, "\x02\x02\x08\x01")), `{"z":true}`},
		} {
			got, _, err := reader.Append(t.Context(), nil, []byte(c[0]), nil)
			require.NoError(t, err)
			require.Equal(t, c[1], string(got))
		}
	}
}

// What is no framed value of a known schema is told apart from what the registry cannot tell.
func TestBadValues(t *testing.T) {
	r, s := start(t)
	v := register(t, r, "t-value", schema.Avro, order)
	p := register(t, r, "p-value", schema.Protobuf, messages)
	for name, c := range map[string]struct {
		value []byte
		kind  error
	}{
		"empty":                {[]byte{}, serde.ErrUnframed},
		"short":                {[]byte{0, 0, 0, 1}, serde.ErrUnframed},
		"JSON":                 {[]byte(`{"id":3}`), serde.ErrUnframed},
		"short GUID":           {[]byte("\x01234567890123456"), serde.ErrUnframed},
		"truncated":            {frame(v.ID, "\x06"), schema.ErrMismatch},
		"too long":             {frame(v.ID, "\x06\x00\x00"), schema.ErrMismatch},
		"no such branch":       {frame(v.ID, "\x06\x08"), schema.ErrMismatch},
		"no such message":      {frame(p.ID, "\x02\x08\x08\x01"), schema.ErrMismatch},
		"huge path":            {frame(p.ID, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), schema.ErrMismatch},
		"path that is cut off": {frame(p.ID, "\x04"), schema.ErrMismatch},
	} {
		_, _, err := s.NewReader("t", serde.Value).Append(t.Context(), nil, c.value, nil)
		require.ErrorIs(t, err, c.kind, name)
		_, err = s.NewReader("t", serde.Value).Check(t.Context(), c.value, nil)
		require.ErrorIs(t, err, c.kind, name)
	}
	var unknown *serde.UnknownSchemaError
	reader := s.NewReader("t", serde.Value)
	for id := 100; id < 200; id++ {
		_, _, err := reader.Append(t.Context(), nil, frame(id, "\x06\x00"), nil)
		require.ErrorAs(t, err, &unknown)
	}
	require.ErrorContains(t, unknown, "schema id 199 is not in the registry")
	_, _, err := reader.Append(t.Context(), nil, frame(v.ID, "\x06\x00"), nil)
	require.NoError(t, err, "many that are not there do not hide one that is")
	_, _, err = reader.Append(t.Context(), nil, append(make([]byte, 0), "\x01abcdefghijklmnopq"...), nil)
	require.ErrorAs(t, err, &unknown)
}

// A Spec finds what it names, and registers a text once.
func TestSpecs(t *testing.T) {
	r, s := start(t)
	v1 := register(t, r, "t-value", schema.Avro, order)
	v2 := register(t, r, "t-value", schema.Avro, strings.Replace(order, `"int"`, `"long"`, 1))
	named := register(t, r, "shop.Order", schema.Avro, order)
	require.Equal(t, v1.ID, named.ID)
	for name, c := range map[string]struct {
		spec serde.Spec
		want string
	}{
		"latest":  {serde.Spec{Topic: "t"}, fmt.Sprintf("t-value 2 %d", v2.ID)},
		"version": {serde.Spec{Topic: "t", Version: 1}, fmt.Sprintf("t-value 1 %d", v1.ID)},
		"id":      {serde.Spec{Topic: "t", ID: v1.ID}, fmt.Sprintf("t-value 1 %d", v1.ID)},
		"id of another topic": {
			serde.Spec{Topic: "u", ID: v2.ID, Adopt: true}, fmt.Sprintf("u-value 1 %d", v2.ID),
		},
		"id by name": {
			serde.Spec{Topic: "t", ID: v1.ID, Strategy: serde.RecordName}, fmt.Sprintf("shop.Order 1 %d", v1.ID),
		},
		"id and subject": {
			serde.Spec{Topic: "x", ID: v1.ID, Subject: "t-value"}, fmt.Sprintf("t-value 1 %d", v1.ID),
		},
		"text that is there": {serde.Spec{Topic: "t", Text: order}, fmt.Sprintf("t-value 1 %d", v1.ID)},
		"text by name": {
			serde.Spec{Topic: "t", Text: order, Strategy: serde.RecordName}, fmt.Sprintf("shop.Order 1 %d", v1.ID),
		},
		"text in a new subject": {
			serde.Spec{Topic: "t", Text: order, Strategy: serde.TopicRecordName}, fmt.Sprintf("t-shop.Order 1 %d", v1.ID),
		},
		"key": {
			serde.Spec{Topic: "t", Part: serde.Key, Text: order}, fmt.Sprintf("t-key 1 %d", v1.ID),
		},
	} {
		w, err := s.NewWriter(t.Context(), c.spec)
		require.NoError(t, err, name)
		require.Equal(t, c.want, fmt.Sprintf("%s %d %d", w.Subject, w.Version, w.ID), name)
	}
	for name, c := range map[string]struct {
		spec serde.Spec
		code int
	}{
		"no subject":          {serde.Spec{Topic: "none"}, schemaregistry.CodeSubjectNotFound},
		"no version":          {serde.Spec{Topic: "t", Version: 9}, schemaregistry.CodeVersionNotFound},
		"no id":               {serde.Spec{Topic: "t", ID: 99}, schemaregistry.CodeSchemaNotFound},
		"id of another topic": {serde.Spec{Topic: "w", ID: v2.ID}, schemaregistry.CodeSchemaNotFound},
		"id that a subject has not": {
			serde.Spec{Topic: "t", ID: v2.ID, Subject: "shop.Order"}, schemaregistry.CodeSchemaNotFound,
		},
		"no schema":    {serde.Spec{Topic: "t", Text: `{"type":"recor"}`}, schemaregistry.CodeInvalidSchema},
		"incompatible": {serde.Spec{Topic: "t", Text: `"int"`}, schemaregistry.CodeIncompatible},
	} {
		_, err := s.NewWriter(t.Context(), c.spec)
		var refused *schemaregistry.Error
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, c.code, refused.Code, name)
	}
	_, err := s.NewWriter(t.Context(), serde.Spec{Topic: "t", Text: `"int"`, Strategy: serde.RecordName})
	require.ErrorIs(t, err, schema.ErrInvalid, "int has no name")
	_, err = s.NewWriter(t.Context(), serde.Spec{Topic: "t", Strategy: serde.RecordName})
	require.ErrorIs(t, err, schema.ErrInvalid, "no schema has no name")
}

// A batch is refused for each of its records that is not data of the topic's subject, and for no other.
func TestCheckBatch(t *testing.T) {
	r, s := start(t)
	v := register(t, r, "t-value", schema.Avro, order)
	other := register(t, r, "u-value", schema.Avro, `"string"`)
	k := register(t, r, "t-key", schema.Avro, `"int"`)
	byTopic, byName := serde.TopicName, serde.RecordName
	good := frame(v.ID, "\x06\x00")
	check := func(rules serde.Rules, records ...record.Record) error {
		rules.Topic = "t"
		var b record.Builder
		for i := range records {
			b.Append(&records[i])
		}
		return s.CheckBatch(t.Context(), rules, b.Build(), 1<<20)
	}
	values, keys := serde.Rules{Value: &byTopic}, serde.Rules{Key: &byTopic}
	require.NoError(t, check(values, record.Record{Value: good}, record.Record{}, record.Record{Key: []byte("k")}))
	require.NoError(t, check(keys, record.Record{Key: frame(k.ID, "\x06"), Value: []byte("anything")}))

	err := check(values,
		record.Record{Value: good}, record.Record{Value: []byte(`{}`)}, record.Record{Value: frame(99, "x")},
		record.Record{Value: frame(other.ID, "\x02a")}, record.Record{Value: frame(v.ID, "\x06")})
	var fault *record.Fault
	require.ErrorAs(t, err, &fault)
	require.ErrorIs(t, err, record.ErrInvalid)
	var said []string
	for _, f := range fault.Records {
		said = append(said, fmt.Sprint(f.Index, " ", f.Message))
	}
	require.Len(t, said, 4)
	require.Contains(t, said[0], "1 its value is refused: the bytes name no schema")
	require.Contains(t, said[1], "2 its value is refused: schema id 99 is not in the registry")
	require.Contains(t, said[2], "3 its value is refused: "+
		fmt.Sprintf("schema id %d is not registered under subject t-value", other.ID))
	require.Contains(t, said[3], "4 its value is refused")

	require.ErrorAs(t, check(keys, record.Record{Value: good}), &fault, "a null key has no schema")
	require.ErrorAs(t, check(serde.Rules{Value: &byName}, record.Record{Value: good}), &fault)
	require.Contains(t, fault.Records[0].Message, "shop.Order")
	register(t, r, "shop.Order", schema.Avro, order)
	require.NoError(t, check(serde.Rules{Value: &byName}, record.Record{Value: good}))

	w, err := s.NewWriter(t.Context(), serde.Spec{
		Topic: "t", Type: schema.Protobuf, Text: messages, Message: "p.C", Strategy: byName,
	})
	require.NoError(t, err)
	require.Equal(t, "p.C", w.Subject, "the subject is that of the message")
	c, err := w.Append(nil, []byte(`{"z":true}`))
	require.NoError(t, err)
	first := frame(w.ID, "\x00\x08\x01")
	require.ErrorAs(t, check(serde.Rules{Value: &byName}, record.Record{Value: c}, record.Record{Value: first},
		record.Record{Value: c}, record.Record{Value: first}), &fault)
	require.Len(t, fault.Records, 2)
	require.Contains(t, fault.Records[0].Message, "p.A")

	_, err = r.DeleteVersion(t.Context(), "t-value", "1", false)
	require.NoError(t, err)
	require.ErrorAs(t, check(values, record.Record{Value: good}), &fault, "a deleted version is none of the subject's")
}
