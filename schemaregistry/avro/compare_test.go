package avro_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/schema"
)

// found is what a comparison finds, in short.
func found(c schema.Comparison) []string {
	var list []string
	for _, d := range c.Differences {
		list = append(list, d.Kind+" "+d.Path+" "+d.Info)
	}
	return list
}

// TestCompare holds the verdicts on pairs of an old and a new schema, both ways, to what is written in the file. Avro
// for Java 1.12.2 gives the same, but for faults that are reachable on several ways, which it repeats.
func TestCompare(t *testing.T) {
	for _, e := range entries(t, "testdata/compare.txt") {
		t.Run(e.name, func(t *testing.T) {
			older, newer := parse(t, e.first("old")), parse(t, e.first("new"))
			backward := compare(t, newer, older, "new", "old")
			require.Equal(t, e.all("backward"), found(backward))
			require.Equal(t, len(e.all("backward")) == 0, backward.Compatible())
			forward := compare(t, older, newer, "old", "new")
			require.Equal(t, e.all("forward"), found(forward))
			for _, d := range slices.Concat(backward.Differences, forward.Differences) {
				require.Contains(t, d.Description, "'"+d.Path+"'")
				require.Contains(t, d.Description, "new schema")
				require.Contains(t, d.Description, "old schema")
				require.Contains(t, d.Description, ": ", "the rule")
				require.NotEmpty(t, d.Reader)
			}
		})
	}
}

func TestComparePrimitiveTypes(t *testing.T) {
	promoted := "long<int float<int float<long double<int double<long double<float bytes<string string<bytes"
	types := []string{"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
	for _, r := range types {
		for _, w := range types {
			t.Run(r+" reads "+w, func(t *testing.T) {
				c := compare(t, parse(t, `"`+r+`"`), parse(t, `"`+w+`"`), "new", "old")
				if r == w || slices.Contains(strings.Fields(promoted), r+"<"+w) {
					require.Empty(t, c.Differences)
					return
				}
				require.Equal(t, []string{"TYPE_MISMATCH / reader type: " + strings.ToUpper(r) +
					" not compatible with writer type: " + strings.ToUpper(w)}, found(c))
			})
		}
	}
}

func TestDescriptions(t *testing.T) {
	older := parse(t, `{"type":"record","name":"x.R","fields":[
		{"name":"a","type":"int"},
		{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}},
		{"name":"f","type":{"type":"fixed","name":"F","size":2}},
		{"name":"u","type":["null","int"]},
		{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":4}},
		{"name":"old1","type":"int"},{"name":"old2","type":"int"}]}`)
	newer := parse(t, `{"type":"record","name":"y.Q","fields":[
		{"name":"a","type":"string"},
		{"name":"e","type":{"type":"enum","name":"E","symbols":["A"]}},
		{"name":"f","type":{"type":"fixed","name":"F","size":4}},
		{"name":"u","type":["null","string"]},
		{"name":"d","type":"int"},
		{"name":"new","type":"int","aliases":["old1","old2"]},
		{"name":"z","type":{"type":"array","items":"long"}}]}`)
	var lines []string
	for _, d := range compare(t, newer, older, "new", "old").Differences {
		lines = append(lines, d.Kind+" | "+d.Description+" | "+d.Reader+" | "+d.Writer)
	}
	want, err := readLines("testdata/descriptions.txt")
	require.NoError(t, err)
	require.Equal(t, want, lines)
}

func TestCompareAmbiguousField(t *testing.T) {
	older := parse(t, `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}`)
	newer := parse(t, `{"type":"record","name":"R","fields":[{"name":"a","type":"int","aliases":["b"]}]}`)
	c := compare(t, newer, older, "new", "old")
	require.Equal(t, []string{"NAME_MISMATCH /fields/0/name expected one of: a, b"}, found(c))
	require.False(t, c.Compatible())
}

func TestCompareReferences(t *testing.T) {
	user := func(kind string) string {
		return `{"type":"record","name":"n.User","fields":[{"name":"id","type":"` + kind + `"}]}`
	}
	text := `{"type":"record","name":"n.Event","fields":[{"name":"user","type":"User"}]}`
	c := compare(t, parse(t, text, user("string")), parse(t, text, user("int")), "new", "old")
	require.Equal(t, []string{"TYPE_MISMATCH /fields/0/type/fields/0/type reader type: STRING not compatible " +
		"with writer type: INT"}, found(c))
}

func TestReservedFields(t *testing.T) {
	text := `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},
		{"name":"n","type":["null",{"type":"array","items":` + rec("N", f("b", `"int"`)) + `}]}]}`
	s := parse(t, text)
	check := func(o schema.CompareOptions) []string {
		o.ValidateFields = true
		c, err := avro.New(avro.Limits{}).Compare(s, s, o)
		require.NoError(t, err)
		var list []string
		for _, d := range c.Differences {
			require.False(t, d.Compatible)
			require.Contains(t, d.Description, "'"+d.Path+"'")
			list = append(list, d.Kind+" "+d.Path)
		}
		return list
	}
	removed, conflict := "RESERVED_FIELD_REMOVED ", "FIELD_CONFLICTS_WITH_RESERVED_FIELD "
	require.Equal(t, []string{removed + "x", conflict + "a", conflict + "n.b"}, check(schema.CompareOptions{
		ReaderName: "new", ReaderReserved: []string{"a", "n.b", "n.c", "y"},
		WriterName: "old", WriterReserved: []string{"x", "y"},
	}))
	require.Equal(t, []string{removed + "x", conflict + "a"}, check(schema.CompareOptions{
		ReaderName: "old", ReaderReserved: []string{"x"},
		WriterName: "new", WriterReserved: []string{"a"},
	}))
	require.Empty(t, check(schema.CompareOptions{
		ReaderName: "new", ReaderReserved: []string{"b", "x"}, WriterName: "old",
	}))
}

func TestWarnings(t *testing.T) {
	dec := func(precision, scale int) string {
		return fmt.Sprintf(`{"type":"bytes","logicalType":"decimal","precision":%d,"scale":%d}`, precision, scale)
	}
	for _, c := range []struct{ why, old, new, warning string }{
		{"scale", dec(9, 2), dec(9, 3),
			"from decimal(9,2) in the old schema to decimal(9,3) in the new schema: the same bytes"},
		{"precision", dec(9, 2), dec(6, 2),
			"from decimal(9,2) in the old schema to decimal(6,2) in the new schema: numbers may"},
		{"unit of time", `{"type":"long","logicalType":"timestamp-millis"}`,
			`{"type":"long","logicalType":"timestamp-micros"}`, "from timestamp-millis"},
		{"logical type gone", dec(9, 2), `"bytes"`, "from decimal(9,2) in the old schema to no logical type"},
		{"logical type inside a union", `["null",` + dec(9, 2) + `]`, `["null",` + dec(9, 3) + `]`, "decimal(9,3)"},
		{"logical type inside an array", `{"type":"array","items":` + dec(9, 2) + `}`,
			`{"type":"array","items":` + dec(9, 3) + `}`, "At path '/items'"},
		{"default that does not fit", `{"type":"record","name":"R","fields":[]}`,
			`{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}`,
			`At path '/fields/0' the default "x" of the field a in the new schema is no value of its type, int`},
		{"namespace", `{"type":"fixed","name":"a.F","size":1}`, `{"type":"fixed","name":"b.F","size":1}`, "a.F"},
		{"numbers that do not fit", `"long"`, `"double"`, "long is read as double"},
		{"bytes that are no text", `"bytes"`, `"string"`, "bytes are read as string"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got := compare(t, parse(t, c.new), parse(t, c.old), "new", "old")
			require.True(t, got.Compatible())
			require.Len(t, got.Warnings, 1)
			require.Contains(t, got.Warnings[0], c.warning)
			require.Empty(t, compare(t, parse(t, c.new), parse(t, c.new), "new", "old").Warnings)
		})
	}
	require.Empty(t, compare(t, parse(t, `"long"`), parse(t, `"int"`), "new", "old").Warnings)
	require.Empty(t, compare(t, parse(t, `"double"`), parse(t, `"int"`), "new", "old").Warnings)
}

func TestCompareOtherFormats(t *testing.T) {
	_, err := avro.New(avro.Limits{}).Compare(nil, parse(t, `"int"`), schema.CompareOptions{})
	require.ErrorIs(t, err, schema.ErrInvalid)
}
