package avro_test

import (
	"strings"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/schema"
)

func parse(t require.TestingT, text string, deps ...string) *avro.Schema {
	s, err := parseWith(text, schema.ParseOptions{}, deps...)
	require.NoError(t, err, text)
	return s
}

func parseWith(text string, o schema.ParseOptions, deps ...string) (*avro.Schema, error) {
	var list []schema.Dependency
	for _, d := range deps {
		list = append(list, schema.Dependency{Name: "dep", Subject: "s", Version: 1, Text: d, Direct: true})
	}
	s, err := avro.New(avro.Limits{}).Parse(text, list, o)
	if err != nil {
		return nil, err
	}
	return s.(*avro.Schema), nil
}

func compare(t require.TestingT, reader, writer schema.Schema, readerName, writerName string) schema.Comparison {
	c, err := avro.New(avro.Limits{}).Compare(reader, writer,
		schema.CompareOptions{ReaderName: readerName, WriterName: writerName})
	require.NoError(t, err)
	return c
}

// f is a field in short.
func f(name, kind string) string { return `{"name":"` + name + `","type":` + kind + `}` }

// rec is a record in short.
func rec(name string, fields ...string) string {
	return `{"type":"record","name":"` + name + `","fields":[` + strings.Join(fields, ",") + `]}`
}
