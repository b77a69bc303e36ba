package jsonschema_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/jsonschema"
	"millrace/schemaregistry/schema"
)

func parse(content string, deps ...schema.Dependency) (schema.Schema, error) {
	return jsonschema.New(jsonschema.Limits{}).Parse(content, deps, schema.ParseOptions{})
}

const in4 = `"$schema":"http://json-schema.org/draft-04/schema#"`

var validity = []struct {
	why, content string
	reason       string // "": it is valid
}{
	{"an object", `{}`, ""},
	{"true", `true`, ""},
	{"false", ` false `, ""},
	{"true in draft 4, which knows no booleans but cannot be named by one", `true`, ""},
	{"a number", `1`, "a schema is an object or a boolean, not 1"},
	{"a string", `"string"`, `a schema is an object or a boolean, not "string"`},
	{"null", `null`, "a schema is an object or a boolean, not null"},
	{"an array", `[]`, "a schema is an object or a boolean, not an array"},
	{"no text", ``, "not valid JSON at byte 1: the text ends too early"},
	{"half a text", `{"type":`, "not valid JSON at byte 9: the text ends too early"},
	{"two texts", `{} {}`, "not valid JSON at byte 4: there is text after the value"},
	{"bytes that are no text", "{\"title\":\"\xff\"}", "not valid JSON at byte 11: the text is not valid UTF-8"},

	{"every type", `{"type":["null","boolean","object","array","number","string","integer"]}`, ""},
	{"an unknown type", `{"type":"str"}`, `#/type: "str" is not a type`},
	{"an unknown type in a list", `{"type":["null","any"]}`, `#/type: "any" is not a type`},
	{"a type that is no text", `{"type":1}`, `#/type: 1 is not a type`},
	{"a type that is an object", `{"type":{}}`, `#/type: an object is not a type`},
	{"true as a type's name", `{"type":true}`, `#/type: true is not a type`},
	{"a list of no types", `{"type":[]}`, ""},
	{"an unknown type deep within", `{"properties":{"a/b":{"items":{"type":"x"}}}}`,
		`#/properties/a~1b/items/type: "x" is not a type`},
	{"an unknown type in an alternative", `{"anyOf":[{},{"type":"x"}]}`, `#/anyOf/1/type: "x" is not a type`},
	{"an unknown keyword", `{"x-y":{"type":"nonsense"}}`, ""},
	{"an unknown format", `{"format":"nonsense"}`, ""},
	{"a format that is no text", `{"format":1}`, `#/format: a string is wanted, not 1`},
	{"a title that is no text", `{"title":[]}`, `#/title: a string is wanted, not an array`},
	{"any default", `{"default":{"type":7}}`, ""},
	{"an enum that is no array", `{"enum":"a"}`, `#/enum: an array is wanted, not "a"`},
	{"an empty enum", `{"enum":[]}`, ""},
	{"allOf that is no array", `{"allOf":{}}`, `#/allOf: an array is wanted, not an object`},
	{"allOf of what is no schema", `{"allOf":[1]}`, `#/allOf/0: a schema is wanted here, not 1`},
	{"not of what is no schema", `{"not":null}`, `#/not: a schema is wanted here, not null`},
	{"properties that are no object", `{"properties":[]}`, `#/properties: an object is wanted, not an array`},
	{"a property that is no schema", `{"properties":{"a":"string"}}`,
		`#/properties/a: a schema is wanted here, not "string"`},
	{"a property that is a boolean", `{"properties":{"a":false}}`, ""},
	{"a property that is a boolean in draft 4", `{` + in4 + `,"properties":{"a":false}}`,
		`#/properties/a: a schema is wanted here, not false`},
	{"booleans where draft 4 has them", `{` + in4 + `,"additionalProperties":false,"items":[],"additionalItems":true}`,
		""},
	{"required that is a boolean, as in draft 3", `{"required":true}`, `#/required: an array is wanted, not true`},
	{"required of what is no text", `{"required":[1]}`, `#/required: its elements are strings, not 1`},
	{"a limit that is no number", `{"minimum":"1"}`, `#/minimum: a number is wanted, not "1"`},
	{"a limit that is not whole", `{"maxLength":1.5}`, `#/maxLength: a whole number is wanted, not 1.5`},
	{"a limit that is whole but spelt otherwise", `{"maxLength":1.0,"minItems":1e2}`, ""},
	{"a limit below zero", `{"minLength":-1}`, ""},
	{"a limit beyond all measure", `{"maxItems":1e999999999999999999999}`, ""},
	{"exclusive limits are numbers from draft 6 on", `{"exclusiveMinimum":true}`,
		`#/exclusiveMinimum: a number is wanted, not true`},
	{"exclusive limits are flags in draft 4", `{` + in4 + `,"exclusiveMinimum":true}`, ""},
	{"an exclusive limit that is a number in draft 4", `{` + in4 + `,"exclusiveMinimum":1}`,
		`#/exclusiveMinimum: a boolean is wanted, not 1`},
	{"uniqueItems that is no flag", `{"uniqueItems":1}`, `#/uniqueItems: a boolean is wanted, not 1`},
	{"dependencies of both kinds", `{"dependencies":{"a":["b"],"c":{}}}`, ""},
	{"a dependency that is neither", `{"dependencies":{"a":"b"}}`, `#/dependencies/a: a schema is wanted here, not "b"`},
	{"keywords of later drafts are unknown to draft 7", `{"prefixItems":1,"unevaluatedItems":1,"$anchor":1}`, ""},
	{"keywords of 2020-12 are known there", `{` + in2020 + `,"prefixItems":1}`,
		`#/prefixItems: an array is wanted, not 1`},
	{"2019-09 does not know prefixItems", `{` + in2019 + `,"prefixItems":1}`, ""},
	{"draft 4 does not know const, contains, propertyNames and if",
		`{` + in4 + `,"const":1,"contains":1,"propertyNames":1,"if":1}`, ""},

	{"a regular expression", `{"pattern":"^[a-z]{2,3}$"}`, ""},
	{"a lookahead", `{"pattern":"^(?=.*[0-9])(?!x)(?<=^)(?<!y).{8,}$"}`, ""},
	{"a back reference", `{"pattern":"(?<q>['\"]).*\\k<q>\\1"}`, ""},
	{"escapes of ECMA", `{"pattern":"\\cA\\x41\\u0041\\u{1f600}\\ud83d\\ude00\\/\\-\\0[^]"}`, ""},
	{"classes of Unicode", `{"pattern":"\\p{L}\\p{Script=Greek}\\P{Lu}\\p{Letter}\\pN"}`, ""},
	{"flags and anchors of Java", `{"pattern":"(?i)\\Aabc\\z"}`, ""},
	{"a group that is not closed", `{"pattern":"(a"}`,
		`#/pattern: "(a" is not a regular expression: a group that is not closed at character 3`},
	{"a class that is not closed", `{"pattern":"[a"}`,
		`#/pattern: "[a" is not a regular expression: a class that is not closed at character 3`},
	{"nothing to repeat", `{"pattern":"*a"}`,
		`#/pattern: "*a" is not a regular expression: nothing to repeat at character 1`},
	{"a pattern as a property's name", `{"patternProperties":{"(":{}}}`,
		`#/patternProperties: "(" is not a regular expression: a group that is not closed at character 2`},

	{"a reference that is no text", `{"$ref":{}}`, `#/$ref: a reference is a string, not an object`},
	{"a reference into nothing", `{"items":{"$ref":"#/definitions/a"}}`, `#/items/$ref: "#/definitions/a" leads nowhere`},
	{"a reference to an unknown anchor", `{"$ref":"#a"}`, `#/$ref: "#a" leads nowhere`},
	{"a reference to an unknown document", `{"$ref":"other.json"}`,
		`#/$ref: "other.json" is not among the references of the schema; nothing is fetched`},
	{"a reference into the network", `{"$ref":"http://127.0.0.1:1/a"}`,
		`#/$ref: "http://127.0.0.1:1/a" is not among the references of the schema; nothing is fetched`},
	{"a reference to a file", `{"$ref":"file:///etc/hostname"}`,
		`#/$ref: "file:///etc/hostname" is not among the references of the schema; nothing is fetched`},
	{"a $schema that could be fetched", `{"$schema":"file:///etc/hostname"}`, ""},
	{"a reference to what is no schema", `{"$ref":"#/title","title":"a"}`, `#/$ref: "#/title" leads to what is no schema`},
	{"a reference to a place that no keyword has", `{"$ref":"#/x/0","x":[{"type":"null"}]}`, ""},
	{"a reference to a wrong schema", `{"$ref":"#/definitions/a","definitions":{"a":{"type":"x"}}}`,
		`#/definitions/a/type: "x" is not a type`},
	{"a wrong definition that nothing refers to", `{"definitions":{"a":{"type":"x"}}}`, ""},
	{"a wrong definition from 2019-09 on", `{` + in2019 + `,"$defs":{"a":{"type":"x"}}}`,
		`#/$defs/a/type: "x" is not a type`},
	{"a reference with escapes", `{"$ref":"#/definitions/a~1b%25","definitions":{"a/b%":{}}}`, ""},
	{"a reference with a broken escape", `{"$ref":"#/%zz"}`, `#/$ref: "#/%zz" has a fragment that is not well formed`},
	{"references in a ring", `{"$ref":"#/definitions/a","definitions":{"a":{"$ref":"#/definitions/b"},` +
		`"b":{"$ref":"#/definitions/a"}}}`, ""},
	{"a reference to a draft's own schema", `{"items":{"$ref":"http://json-schema.org/draft-07/schema#"}}`, ""},
	{"an identifier that is no text", `{"$id":1}`, `#/$id: a string is wanted, not 1`},
	{"an identifier that is no address", `{"$id":":"}`, `#/$id: ":" is not a URI`},
	{"id means nothing after draft 4", `{"id":1}`, ""},
}

func TestValidity(t *testing.T) {
	for _, v := range validity {
		t.Run(v.why, func(t *testing.T) {
			s, err := parse(v.content)
			if v.reason == "" {
				require.NoError(t, err)
				require.NotEmpty(t, s.Text())
				return
			}
			require.EqualError(t, err, v.reason)
			require.ErrorIs(t, err, schema.ErrInvalid)
		})
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ why, content, text, normal string }{
		{"white space", " { \"type\" :\n\t[ \"null\" , \"string\" ] } ", `{"type":["null","string"]}`,
			`{"type":["null","string"]}`},
		{"members keep their order", `{"b":1,"a":{"d":[],"c":{}}}`, `{"b":1,"a":{"d":[],"c":{}}}`,
			`{"a":{"c":{},"d":[]},"b":1}`},
		{"elements keep theirs", `{"enum":[{"b":1,"a":2},"z","a"]}`, `{"enum":[{"b":1,"a":2},"z","a"]}`,
			`{"enum":[{"a":2,"b":1},"z","a"]}`},
		{"numbers keep their spelling", `{"enum":[1.0,1e2,-0,10000000000000000000001]}`,
			`{"enum":[1.0,1e2,-0,10000000000000000000001]}`, `{"enum":[1.0,1e2,-0,10000000000000000000001]}`},
		{"the last of repeated members stands where the first stood", `{"a":1,"b":2,"a":3}`, `{"a":3,"b":2}`,
			`{"a":3,"b":2}`},
		{"escapes that need not be", `{"title":"\u00e9\/\ud83d\ude00","\u0061":0}`, `{"title":"é/😀","a":0}`,
			`{"a":0,"title":"é/😀"}`},
		{"escapes that must be", `{"title":"\"\\\b\f\n\r\t\u000b\u001f"}`, `{"title":"\"\\\b\f\n\r\t\u000B\u001F"}`,
			`{"title":"\"\\\b\f\n\r\t\u000B\u001F"}`},
		{"half of a surrogate pair", `{"title":"\ud800x"}`, `{"title":"\ud800x"}`, `{"title":"\ud800x"}`},
		{"names are sorted by their UTF-16 units", `{"\uffee":1,"😀":2}`, `{"￮":1,"😀":2}`, `{"😀":2,"￮":1}`},
		{"booleans", ` true`, `true`, `true`},
	} {
		s, err := parse(c.content)
		require.NoError(t, err, c.why)
		require.Equal(t, c.text, s.Text(), c.why)
		require.Equal(t, c.text, s.Format("resolved"), c.why)
		n, err := jsonschema.New(jsonschema.Limits{}).Parse(c.content, nil, schema.ParseOptions{Normalize: true})
		require.NoError(t, err, c.why)
		require.Equal(t, c.normal, n.Text(), c.why)
		again, err := parse(s.Text())
		require.NoError(t, err, c.why)
		require.Equal(t, c.text, again.Text(), "%s: once more", c.why)
	}
}

func TestTextOfManyMembers(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"p0":9`)
	for i := range 40 {
		b.WriteString(`,"p` + strings.Repeat("x", i) + `":` + strings.Repeat("1", i+1))
	}
	b.WriteString(`,"p0":8,"pxx":7}`)
	s, err := parse(b.String())
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(s.Text(), `{"p0":8,"p":1,"px":11,"pxx":7,"pxxx":1111,`), s.Text())
	require.Equal(t, 40, strings.Count(s.Text(), ","))
}

func TestReferences(t *testing.T) {
	text := func(name, content string) schema.Dependency {
		return schema.Dependency{Name: name, Subject: "s", Version: 1, Text: content, Direct: true}
	}
	for _, r := range []struct {
		why, content string
		deps         []schema.Dependency
		good, bad    string // values
	}{
		{"by its name", `{"$ref":"a.json"}`, []schema.Dependency{text("a.json", `{"type":"null"}`)}, `null`, `1`},
		{"relative to the identifier", `{"$id":"http://x/dir/root.json","$ref":"a.json"}`,
			[]schema.Dependency{text("a.json", `{"type":"null"}`)}, `null`, `1`},
		{"by the full address of a relative name", `{"$id":"http://x/dir/root.json","$ref":"http://x/dir/a.json"}`,
			[]schema.Dependency{text("a.json", `{"type":"null"}`)}, `null`, `1`},
		{"by the name as it is although there is an identifier", `{"$id":"urn:x:y","$ref":"a.json"}`,
			[]schema.Dependency{text("a.json", `{"type":"null"}`)}, `null`, `1`},
		{"by its own identifier", `{"$ref":"http://y/b"}`, []schema.Dependency{text("a",
			`{"$id":"http://y/b","type":"null"}`)},
			`null`, `1`},
		{"a definition in it", `{"$ref":"a.json#/definitions/n"}`,
			[]schema.Dependency{text("a.json", `{"definitions":{"n":{"type":"null"}}}`)}, `null`, `1`},
		{"a definition in it by the other name", `{"$ref":"a.json#/$defs/n"}`,
			[]schema.Dependency{text("a.json", `{"definitions":{"n":{"type":"null"}}}`)}, `null`, `1`},
		{"one that refers on", `{"$ref":"a.json"}`, []schema.Dependency{
			text("b.json", `{"type":"null"}`), text("a.json", `{"items":{"$ref":"b.json"}}`),
		}, `[null]`, `[1]`},
		{"two that refer to each other", `{"$ref":"a.json"}`, []schema.Dependency{
			text("b.json", `{"additionalProperties":{"$ref":"a.json"}}`), text("a.json", `{"type":"object","$defs":0,`+
				`"additionalProperties":{"$ref":"b.json"}}`),
		}, `{"x":{"y":{}}}`, `{"x":{"y":1}}`},
		{"its own references are relative to it", `{"$id":"http://x/r","$ref":"d/a.json"}`, []schema.Dependency{
			text("http://x/d/b.json", `{"type":"null"}`), text("d/a.json", `{"items":{"$ref":"b.json"}}`),
		}, `[null]`, `[1]`},
		{"its own # is itself", `{"items":{"$ref":"a.json"}}`, []schema.Dependency{
			text("a.json", `{"type":"object","additionalProperties":{"$ref":"#"}}`),
		}, `[{"x":{"y":{}}}]`, `[{"x":{"y":1}}]`},
		{"an anchor in it", `{` + in2020 + `,"$ref":"a.json#n"}`,
			[]schema.Dependency{text("a.json", `{"$defs":{"x":{"$anchor":"n","type":"null"}}}`)}, `null`, `1`},
		{"it is of the referring draft unless it says so", `{` + in4 + `,"items":{"$ref":"a"}}`,
			[]schema.Dependency{text("a", `{"maximum":1,"exclusiveMaximum":true}`)}, `[0]`, `[1]`},
		{"it is of its own draft", `{` + in4 + `,"items":{"$ref":"a"}}`,
			[]schema.Dependency{text("a", `{`+in2020+`,"const":1}`)}, `[1]`, `[2]`},
		{"an identifier within the schema",
			`{"properties":{"a":{"$ref":"http://x/n"}},"definitions":{"n":{"$id":"http://x/n",` +
				`"type":"null"}}}`, nil, `{"a":null}`, `{"a":1}`},
		{"an identifier that is an anchor",
			`{"properties":{"a":{"$ref":"#n"}},"definitions":{"n":{"$id":"#n","type":"null"}}}`,
			nil, `{"a":null}`, `{"a":1}`},
		{"id in draft 4", `{` + in4 + `,"properties":{"a":{"$ref":"#n"}},"definitions":{"n":{"id":"#n","type":"null"}}}`, nil,
			`{"a":null}`, `{"a":1}`},
		{"a scope within the schema", `{"$id":"http://x/","items":{"$id":"d/","items":{"$ref":"n"}},"definitions":{` +
			`"right":{"$id":"http://x/d/n","type":"null"},"wrong":{"$id":"http://x/n","type":"string"}}}`, nil, `[[null]]`,
			`[["a"]]`},
		{"a pointer relative to a scope",
			`{` + in2020 + `,"$id":"http://x/","items":{"$id":"d/","$ref":"#/$defs/n","$defs":{` +
				`"n":{"type":"null"}}},"$defs":{"n":{"type":"string"}}}`, nil, `[null]`, `["a"]`},
		{"properties may be called like keywords", `{"properties":{"$ref":{"type":"null"},"$id":{"type":"null"},` +
			`"enum":{"$id":"#n","type":"null"},"x":{"$ref":"#n"}}}`, nil, `{"$ref":null,"$id":null,"x":null}`, `{"x":1}`},
	} {
		s, err := parse(r.content, r.deps...)
		require.NoError(t, err, r.why)
		require.NoError(t, check(t, s, r.good), r.why)
		require.Error(t, check(t, s, r.bad), r.why)
	}
}

func TestWrongReferences(t *testing.T) {
	text := func(name, content string) schema.Dependency { return schema.Dependency{Name: name, Text: content} }
	_, err := parse(`{"$ref":"a"}`, text("a", `{"$ref":"b"}`))
	require.EqualError(t, err, `a#/$ref: "b" is not among the references of the schema; nothing is fetched`)
	_, err = parse(`{"$ref":"a"}`, text("a", `{"properties":{"x":{"type":"y"}}}`))
	require.EqualError(t, err, `a#/properties/x/type: "y" is not a type`)
	_, err = parse(`{}`, text("a", `[]`))
	require.EqualError(t, err, `reference a: a schema is an object or a boolean, not an array`)
}

func TestStrict(t *testing.T) {
	f := jsonschema.New(jsonschema.Limits{})
	const content = `{"properties":{"a":{"properties":{"$$b":{}}},"$$c":{}}}`
	_, err := f.Parse(content, nil, schema.ParseOptions{})
	require.NoError(t, err)
	_, err = f.Parse(content, nil, schema.ParseOptions{Strict: true})
	require.EqualError(t, err, "#/properties/$$c: names of properties may not begin with $$")
	_, err = f.Parse(`{"properties":{"a":{"properties":{"$$b":{}}}}}`, nil, schema.ParseOptions{Strict: true})
	require.NoError(t, err, "only those of the whole")
}

func TestName(t *testing.T) {
	for content, name := range map[string]string{
		`{"title":"a.B"}`: "a.B", `{}`: "", `true`: "", `{"properties":{"title":{"title":"x"}}}`: "",
	} {
		s, err := parse(content)
		require.NoError(t, err)
		require.Equal(t, name, s.Name())
	}
}

func TestLimits(t *testing.T) {
	f := jsonschema.New(jsonschema.Limits{Text: 100, Depth: 5, Nodes: 3, CompareSteps: 50})
	parse := func(content string, deps ...schema.Dependency) (schema.Schema, error) {
		return f.Parse(content, deps, schema.ParseOptions{})
	}
	_, err := parse(`{"title":"` + strings.Repeat("x", 100) + `"}`)
	require.EqualError(t, err, "the schema has more than 100 bytes")
	_, err = parse(`{}`, schema.Dependency{Name: "a", Text: strings.Repeat(" ", 101)})
	require.EqualError(t, err, "reference a: the schema has more than 100 bytes")
	deps := []schema.Dependency{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		deps = append(deps, schema.Dependency{Name: name, Text: `{"title":"` + strings.Repeat("x", 85) + `"}`})
	}
	_, err = parse(`{}`, deps...)
	require.EqualError(t, err, "its references have more than 400 bytes in all")
	_, err = parse(`{"a":{"a":{"a":{"a":{"a":{}}}}}}`)
	require.EqualError(t, err, "not valid JSON at byte 26: values are nested too deeply")
	_, err = parse(`{"anyOf":[{},{},{}]}`)
	require.EqualError(t, err, "there are more than 3 schemas in it")

	many := jsonschema.New(jsonschema.Limits{CompareSteps: 50})
	s, err := many.Parse(`{"anyOf":[{"maximum":1},{"maximum":2},{"maximum":3},{"maximum":4}]}`, nil, schema.ParseOptions{})
	require.NoError(t, err)
	r, err := many.Parse(`{"anyOf":[{"type":"null"},{"minimum":2},{"minimum":3},{"minimum":4}]}`, nil,
		schema.ParseOptions{})
	require.NoError(t, err)
	_, err = many.Compare(r, s, schema.CompareOptions{})
	require.EqualError(t, err, "comparing the schemas takes more than 50 steps")
	require.ErrorIs(t, err, schema.ErrInvalid)
}

func TestTags(t *testing.T) {
	const content = `{"type":"object","confluent:tags":["T"],"properties":{` +
		`"a":{"type":"string","confluent:tags":["PII","X"]},` +
		`"b":{"type":"array","items":{"type":"object","properties":{"c":{"type":"null"}}}},` +
		`"d":{"oneOf":[{"type":"null"},{"type":"array","items":{"properties":{"e":{"confluent:tags":["E"]}}}}]},` +
		`"f":{"not":{"properties":{"g":{"confluent:tags":["G"]}}}},` +
		`"h":{"$ref":"#/definitions/K.L","confluent:tags":["H"]}},` +
		`"definitions":{"K.L":{"properties":{"m.n":{"type":"null"}}},"bad":{"type":"x"}}}`
	s, err := parse(content)
	require.NoError(t, err)
	entity := func(kind, path string, tags ...string) schema.Tagged {
		return schema.Tagged{Entity: schema.Entity{Path: path, Type: kind}, Tags: tags}
	}
	require.Equal(t, []schema.Tagged{
		entity("sr_record", "object", "T"),
		entity("sr_field", "object.a", "PII", "X"),
		entity("sr_field", "object.d.oneof.0.array.object.e", "E"),
		entity("sr_field", "object.f.not.object.g", "G"),
		entity("sr_field", "object.h", "H"),
	}, s.Entities())

	got, err := s.WithTags(
		[]schema.Tagged{
			entity("sr_field", "object.b.array.object.c", "new", "new"), entity("sr_record", "object.b.array.object", "rec"),
			entity("sr_field", "object.definitions.K.L.object.m.n", "deep"), entity("sr_field", "object.a", "PII", "Y"),
		},
		[]schema.Tagged{entity("sr_record", "object", "T", "unknown"), entity("sr_field", "object.a", "X")},
	)
	require.NoError(t, err)
	want := strings.NewReplacer(
		`,"confluent:tags":["T"]`, ``,
		`["PII","X"]`, `["PII","Y"]`,
		`{"type":"object","properties":{"c":{"type":"null"}}}`,
		`{"type":"object","properties":{"c":{"type":"null","confluent:tags":["new"]}},"confluent:tags":["rec"]}`,
		`"m.n":{"type":"null"}`, `"m.n":{"type":"null","confluent:tags":["deep"]}`,
	).Replace(content)
	require.Equal(t, want, got)
	require.Equal(t, content, s.Text(), "the schema itself stays as it is")

	_, err = s.WithTags([]schema.Tagged{entity("sr_field", "object.zzz", "t")}, nil)
	require.EqualError(t, err, `there is no sr_field at "object.zzz" that could have tags`)
	_, err = s.WithTags(nil, []schema.Tagged{entity("sr_record", "object.a", "t")})
	require.EqualError(t, err, `there is no sr_record at "object.a" that could have tags`)
}

func TestTagsOfCombinations(t *testing.T) {
	s, err := parse(`{"type":["null","object"],"properties":{"a":{"confluent:tags":["A"]}},"if":{"properties":{` +
		`"b":{"confluent:tags":["B"]}}},"then":{"required":["a"]}}`)
	require.NoError(t, err)
	var paths []string
	for _, e := range s.Entities() {
		paths = append(paths, e.Entity.Path)
	}
	require.Equal(t, []string{"allof.0.anyof.1.object.a", "allof.1.conditional.if.object.b"}, paths)
}
