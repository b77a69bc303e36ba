package avro_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/schema"
)

// order is a record of fifty fields as people have them, and a value of it.
func order(count string) (text, value string) {
	text = `{"type":"record","name":"Order","namespace":"shop","doc":"An order","fields":[{"name":"id","type":"string"}`
	value = `{"id":"0190d6a5-5a3b-7c1e-9f00-000000000001"`
	for i := range 49 {
		name := fmt.Sprintf("field_%02d", i)
		kind, v := `"long"`, "1700000000000"
		switch i % 5 {
		case 1:
			kind, v = `["null","string"]`, `{"string":"some text of a usual length"}`
		case 2:
			kind, v = `"double"`, "12.5"
		case 3:
			kind, v = `{"type":"array","items":"`+count+`"}`, "[1,2,3,4]"
		case 4:
			kind, v = `["null","`+count+`"]`, "null"
		}
		text += `,{"name":"` + name + `","type":` + kind + `,"doc":"What it says"}`
		value += `,"` + name + `":` + v
	}
	return text + "]}", value + "}"
}

func BenchmarkParse(b *testing.B) {
	f := avro.New(avro.Limits{})
	text, _ := order("int")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := f.Parse(text, nil, schema.ParseOptions{Strict: true})
		require.NoError(b, err)
	}
}

func BenchmarkCompare(b *testing.B) {
	f := avro.New(avro.Limits{})
	older, _ := order("int")
	newer, _ := order("long")
	reader, writer := parse(b, newer), parse(b, older)
	b.ReportAllocs()
	for b.Loop() {
		c, err := f.Compare(reader, writer, schema.CompareOptions{ReaderName: "new", WriterName: "old"})
		require.NoError(b, err)
		require.True(b, c.Compatible())
	}
}

func BenchmarkEncode(b *testing.B) {
	text, value := order("int")
	codec := codecOf(b, text)
	in := []byte(value)
	var out []byte
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		out, err = codec.Encode(out[:0], in)
		require.NoError(b, err)
	}
}

func BenchmarkDecode(b *testing.B) {
	text, value := order("int")
	codec := codecOf(b, text)
	in, err := codec.Encode(nil, []byte(value))
	require.NoError(b, err)
	var out []byte
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		out, err = codec.Decode(out[:0], in)
		require.NoError(b, err)
	}
}

func BenchmarkCheck(b *testing.B) {
	text, value := order("int")
	codec := codecOf(b, text)
	in, err := codec.Encode(nil, []byte(value))
	require.NoError(b, err)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		require.NoError(b, codec.Check(in))
	}
}
