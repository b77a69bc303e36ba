package jsonschema_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/jsonschema"
	"millrace/schemaregistry/schema"
)

// pair is an old and a new schema, and what becomes of reading with the new one what was written with the old one:
// "+" is fine, "-" is not, "L" only under the lenient policy.
type pair struct {
	why, old, new string
	verdict       string
	differences   string
}

func compare(t testing.TB, reader, writer string, o schema.CompareOptions) schema.Comparison {
	t.Helper()
	f := jsonschema.New(jsonschema.Limits{})
	r, err := f.Parse(reader, nil, schema.ParseOptions{})
	require.NoError(t, err)
	w, err := f.Parse(writer, nil, schema.ParseOptions{})
	require.NoError(t, err)
	c, err := f.Compare(r, w, o)
	require.NoError(t, err)
	return c
}

func listed(c schema.Comparison) string {
	var list []string
	for _, d := range c.Differences {
		list = append(list, d.Kind+" "+d.Path)
	}
	return strings.Join(list, ", ")
}

func allPairs() []pair {
	var all []pair
	for _, pairs := range [][]pair{valuePairs, objectPairs, arrayPairs, combinedPairs, referencePairs} {
		all = append(all, pairs...)
	}
	return all
}

func TestCompare(t *testing.T) {
	names := map[string]bool{}
	for _, p := range allPairs() {
		require.False(t, names[p.why], "two cases called %q", p.why)
		names[p.why] = true
		t.Run(p.why, func(t *testing.T) {
			c := compare(t, p.new, p.old, schema.CompareOptions{})
			require.Equal(t, p.differences, listed(c))
			require.Equal(t, p.verdict == "+", c.Compatible(), "strict")
			c = compare(t, p.new, p.old, schema.CompareOptions{Lenient: true})
			require.Equal(t, p.verdict != "-", c.Compatible(), "lenient")
		})
	}
	require.Greater(t, len(names), 200)
}

// Every kind that there is comes up, and no other one.
func TestEveryKind(t *testing.T) {
	want := map[string]bool{}
	add := func(prefix string, names ...string) {
		for _, n := range names {
			want[prefix+n] = true
		}
	}
	add("", "ID_CHANGED", "TITLE_CHANGED", "DESCRIPTION_CHANGED", "DEFAULT_CHANGED", "SCHEMA_ADDED", "SCHEMA_REMOVED",
		"TYPE_EXTENDED", "TYPE_NARROWED", "TYPE_CHANGED", "PATTERN_ADDED", "PATTERN_REMOVED", "PATTERN_CHANGED",
		"ENUM_ARRAY_EXTENDED", "ENUM_ARRAY_NARROWED", "ENUM_ARRAY_CHANGED", "NOT_TYPE_NARROWED", "NOT_TYPE_EXTENDED",
		"UNIQUE_ITEMS_ADDED", "UNIQUE_ITEMS_REMOVED", "COMBINED_TYPE_EXTENDED", "COMBINED_TYPE_CHANGED",
		"COMBINED_TYPE_SUBSCHEMAS_CHANGED", "PRODUCT_TYPE_EXTENDED", "PRODUCT_TYPE_NARROWED", "SUM_TYPE_EXTENDED",
		"SUM_TYPE_NARROWED", "DEPENDENCY_SCHEMA_ADDED", "DEPENDENCY_SCHEMA_REMOVED")
	for _, limit := range []string{"MAX_LENGTH", "MIN_LENGTH", "MAXIMUM", "MINIMUM", "EXCLUSIVE_MAXIMUM",
		"EXCLUSIVE_MINIMUM", "MAX_PROPERTIES", "MIN_PROPERTIES", "MAX_ITEMS", "MIN_ITEMS", "MAX_CONTAINS", "MIN_CONTAINS"} {
		add(limit, "_ADDED", "_REMOVED", "_INCREASED", "_DECREASED")
	}
	add("MULTIPLE_OF", "_ADDED", "_REMOVED", "_REDUCED", "_EXPANDED", "_CHANGED")
	add("REQUIRED_ATTRIBUTE", "_ADDED", "_REMOVED", "_WITH_DEFAULT_ADDED")
	add("DEPENDENCY_ARRAY", "_ADDED", "_REMOVED", "_EXTENDED", "_NARROWED", "_CHANGED")
	for _, rest := range []string{"ADDITIONAL", "UNEVALUATED"} {
		add(rest+"_PROPERTIES", "_ADDED", "_REMOVED", "_EXTENDED", "_NARROWED")
		add(rest+"_ITEMS", "_ADDED", "_REMOVED", "_EXTENDED", "_NARROWED")
	}
	add("", "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
		"REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL", "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
		"OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
		"REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL", "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
		"ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
		"ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")
	for _, what := range []string{"PROPERTY", "ITEM"} {
		add(what, "_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
			"_REMOVED_FROM_OPEN_CONTENT_MODEL", "_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
			"_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
			"_REMOVED_FROM_CLOSED_CONTENT_MODEL")
	}
	got := map[string]bool{}
	for _, p := range allPairs() {
		for d := range strings.SplitSeq(p.differences, ", ") {
			if kind, _, ok := strings.Cut(d, " "); ok {
				got[kind] = true
			}
		}
	}
	require.Equal(t, want, got)
}

// The words of differences name the path and both sides, whichever is the reader.
func TestDescriptions(t *testing.T) {
	for _, p := range allPairs() {
		c := compare(t, p.new, p.old, schema.CompareOptions{ReaderName: "new", WriterName: "old"})
		for _, d := range c.Differences {
			require.Contains(t, d.Description, "'"+d.Path+"'", p.why)
			require.Contains(t, d.Description, "new schema", p.why)
			require.Contains(t, d.Description, "old schema", p.why)
			require.NotContains(t, d.Description, "{")
			require.NotContains(t, d.Description, "@")
		}
	}
	c := compare(t, `{"type":"string"}`, `{"type":"null"}`, schema.CompareOptions{ReaderName: "old", WriterName: "new"})
	require.Equal(t, "At '#/' the old schema is of another type than the new schema", c.Differences[0].Description)
	require.Equal(t, `{"type":"string"}`, c.Differences[0].Reader)
	require.Equal(t, `{"type":"null"}`, c.Differences[0].Writer)
	require.Equal(t, `{errorType:"TYPE_CHANGED", description:"At '#/' the old schema is of another type than the new `+
		`schema'}`, c.Differences[0].Message(schema.JSON))
}

func TestWarnings(t *testing.T) {
	const d2020 = `"$schema":"https://json-schema.org/draft/2020-12/schema"`
	for _, w := range []struct{ old, new, warning string }{
		{`{"type":"string"}`, `{"type":"string","format":"date"}`, "#/format: the keyword format is not compared"},
		{`{"type":"string","pattern":"a"}`, `{"type":"string","pattern":"b"}`,
			"#/pattern: another pattern is taken to be narrower, even if it admits more"},
		{`{"type":"object"}`, `{"type":"object","propertyNames":{"maxLength":1}}`,
			"#/propertyNames: the keyword propertyNames is not compared"},
		{`{"type":"object"}`, `{"type":"object","patternProperties":{"a":{"type":"string"}}}`,
			"#/patternProperties: the keyword patternProperties is not compared"},
		{`{"type":"object","patternProperties":{"a":{"type":"string"}}}`, `{"type":"object"}`,
			"#/patternProperties: the keyword patternProperties is not compared"},
		{`{"type":"array","contains":{"type":"string"}}`, `{"type":"array","contains":{"type":"null"}}`,
			"#/contains: the keyword contains is not compared"},
		{`{"if":true,"then":true}`, `{"if":true,"then":false}`, "#/then: the keyword then is not compared"},
		{`{"type":"object"}`, `{"type":"object","required":["a"]}`,
			"#/required/a: that a property must be there is only compared where it is declared"},
		{`{"type":"string"}`, `{"type":"string","contentEncoding":"base64"}`,
			"#/contentEncoding: the keyword contentEncoding is not compared"},
		{`{"minLength":1}`, `{"type":"string","minLength":1}`,
			"#/type: that the new schema wants the type, and not only limits values of it, is not compared"},
		{`{"type":"string"}`, `{"oneOf":[{"type":"string"},{"minLength":1}]}`, "#/: whether a value fits more than one " +
			"alternative of the new oneOf, and is then refused, is not compared"},
		{`{` + d2020 + `,"allOf":[{"properties":{"a":{"type":"string"}}}],"unevaluatedProperties":false}`,
			`{` + d2020 + `,"allOf":[{"required":["b"]}],"unevaluatedProperties":false}`,
			"#/allOf/1/unevaluatedProperties: what the schema's other parts leave to unevaluatedProperties is not compared"},
	} {
		c := compare(t, w.new, w.old, schema.CompareOptions{})
		require.Contains(t, c.Warnings, w.warning, "%s -> %s", w.old, w.new)
	}
	c := compare(t, `{"type":"string","format":"date"}`, `{"type":"string","format":"date"}`, schema.CompareOptions{})
	require.Empty(t, c.Warnings)
}

// A schema is used by many at once.
func TestConcurrency(t *testing.T) {
	content, value := order()
	f := jsonschema.New(jsonschema.Limits{})
	s, err := f.Parse(content, nil, schema.ParseOptions{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			c, err := s.Codec()
			if err == nil {
				err = c.Check([]byte(value))
			}
			if err == nil {
				_, err = f.Compare(s, s, schema.CompareOptions{})
			}
			s.Entities()
			errs[i] = err
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// However much differs, and however long its paths are, an incompatible difference is among what is listed.
func TestTheVerdictIsListed(t *testing.T) {
	name := strings.Repeat("n", 100_000)
	old := `{"properties":{"` + name + `":{"properties":{` + list(3000, `"p§":{"maximum":1}`) +
		`,"last":{"maximum":2}}}}}`
	updated := strings.NewReplacer(`"maximum":1`, `"maximum":9`, `"maximum":2`, `"maximum":0`).Replace(old)
	c := compare(t, updated, old, schema.CompareOptions{})
	require.False(t, c.Compatible())
	require.Equal(t, "MAXIMUM_DECREASED #/properties/"+name+"/properties/last/maximum", listed(c))
	require.Less(t, len(compare(t, old, updated, schema.CompareOptions{}).Differences), 1001)
}

func TestReserved(t *testing.T) {
	const content = `{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"null"}}},"x.y":true}}`
	o := schema.CompareOptions{
		ReaderName: "new", WriterName: "old", ReaderReserved: []string{"a.b", "c"}, WriterReserved: []string{"c", "d.e"},
	}
	require.Empty(t, compare(t, content, content, o).Differences, "only when asked for")
	o.ValidateFields = true
	const want = "RESERVED_PROPERTY_REMOVED #/properties/d/properties/e, " +
		"RESERVED_PROPERTY_CONFLICTS_WITH_PROPERTY #/properties/a/properties/b"
	c := compare(t, content, content, o)
	require.Equal(t, want, listed(c))
	require.False(t, c.Compatible())
	require.Contains(t, c.Differences[0].Description, "The new schema's metadata no longer reserve")

	o.ReaderName, o.WriterName = "old", "new"
	o.ReaderReserved, o.WriterReserved = o.WriterReserved, o.ReaderReserved
	c = compare(t, content, content, o)
	require.Equal(t, want, listed(c), "it is the new schema that may not drop them, whichever reads")
	require.Contains(t, c.Differences[0].Description, "The new schema's metadata no longer reserve")

	o = schema.CompareOptions{ValidateFields: true, ReaderReserved: []string{"x.y", "a.b.c"}}
	require.Equal(t, "RESERVED_PROPERTY_CONFLICTS_WITH_PROPERTY #/properties/x/properties/y",
		listed(compare(t, content, content, o)))
}
