package jsonschema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

func check(t testing.TB, s schema.Schema, value string) error {
	t.Helper()
	c, err := s.Codec()
	require.NoError(t, err)
	return c.Check([]byte(value))
}

var checks = []struct {
	content string
	good    []string
	bad     [][2]string // a value and why not
}{
	{`true`, []string{`1`, ` {} `}, [][2]string{
		{``, "not valid JSON at byte 1: the text ends too early"},
		{`{"a":}`, "not valid JSON at byte 6: "},
		{`1 2`, "not valid JSON at byte 3: there is text after the value"},
		{"\"\xff\"", "not valid JSON at byte 2: the text is not valid UTF-8"},
	}},
	{`false`, nil, [][2]string{{`1`, "#: false: nothing may be here"}}},
	{`{"type":"integer"}`, []string{`1`, `1.0`, `10e-1`, `-0`, `1e400`, `123456789012345678901234567890`}, [][2]string{
		{`1.5`, "#: type: integer is wanted, not 1.5"},
		{`1e-1`, "#: type: integer is wanted, not 1e-1"},
		{`"1"`, `#: type: integer is wanted, not "1"`},
	}},
	{`{` + in4 + `,"type":"integer"}`, []string{`1`}, [][2]string{{`1.0`, "#: type: integer is wanted, not 1.0"}}},
	{`{"type":["null","string"]}`, []string{`null`, `"a"`}, [][2]string{{`1`,
		"#: type: null or string is wanted, not 1"}}},
	{`{"maximum":9007199254740992,"minimum":-0.1}`, []string{`9007199254740992`, `-0.10`, `"x"`}, [][2]string{
		{`9007199254740993`, "#: maximum: 9007199254740993 is above 9007199254740992"},
		{`-0.10000000000000000000000000001`, "#: minimum: -0.10000000000000000000000000001 is below -0.1"},
		{`1e999999999`, "#: maximum: 1e999999999 is above 9007199254740992"},
	}},
	{`{"exclusiveMaximum":1,"exclusiveMinimum":0}`, []string{`0.5`, `1e-999999999`}, [][2]string{
		{`1.0`, "#: exclusiveMaximum: 1.0 is not below 1"}, {`0e5`, "#: exclusiveMinimum: 0e5 is not above 0"},
	}},
	{`{` + in4 + `,"minimum":1,"exclusiveMinimum":true}`, []string{`2`}, [][2]string{{`1`, "#: minimum: 1 is below 1"}}},
	{`{"multipleOf":0.01}`, []string{`4.35`, `0`, `1e300`, `-7`}, [][2]string{
		{`4.355`, "#: multipleOf: 4.355 is no multiple of 0.01"},
	}},
	{`{"multipleOf":3}`, []string{`111111111111111111111111111111`, `6e100`, `0.3e1`}, [][2]string{
		{`111111111111111111111111111112`, "#: multipleOf: "}, {`1e999999999999`, "#: multipleOf: "},
	}},
	{`{"minLength":2,"maxLength":3}`, []string{`"éé"`, `"😀😀😀"`, `"\ud800x"`, `1`}, [][2]string{
		{`"😀"`, `#: minLength: "😀" has 1 characters, fewer than 2`},
		{`"abcd"`, `#: maxLength: "abcd" has 4 characters, more than 3`},
	}},
	{`{"pattern":"^(?!.*(.)\\1)\\d+$"}`, []string{`"123"`}, [][2]string{
		{`"122"`, `#: pattern: "122" does not match "^(?!.*(.)\\1)\\d+$"`},
	}},
	{`{"format":"date"}`, []string{`"2024-02-29"`, `1`}, [][2]string{{`"2023-02-29"`,
		`#: format: "2023-02-29" is no date`}}},
	{`{"format":"regex"}`, []string{`"(?=a)"`}, [][2]string{{`"("`, `#: format: "(" is no regex`}}},
	{`{` + in2020 + `,"format":"date"}`, []string{`"x"`}, nil},
	{`{"enum":[1,"a",{"b":[2,null]}]}`, []string{`1.0`, `{"b":[2e0,null]}`}, [][2]string{
		{`2`, "#: enum: 2 is none of the values that are listed"},
	}},
	{`{"const":{"a":1,"b":2}}`, []string{`{"b":2,"a":1}`}, [][2]string{
		{`{"a":1}`, `#: const: {"a":1} is not the value that is wanted`},
	}},
	{`{"properties":{"a/b":{"items":{"minimum":5}}}}`, []string{`{"a/b":[5,6]}`, `[]`}, [][2]string{
		{`{"a/b":[5,4]}`, "#/a~1b/1: minimum: 4 is below 5"},
	}},
	{`{"required":["a","b"]}`, []string{`{"b":1,"a":1}`}, [][2]string{{`{"a":1}`, `#: required: "b" is missing`}}},
	{`{"properties":{"a":{}},"patternProperties":{"^x":{"type":"null"}},"additionalProperties":false}`,
		[]string{`{"a":1,"xy":null}`}, [][2]string{
			{`{"b":1}`, `#: additionalProperties: "b" may not be here`}, {`{"xy":1}`, `#/xy: type: null is wanted, not 1`},
		}},
	{`{"minProperties":1,"maxProperties":1}`, []string{`{"a":1}`, `{"a":1,"a":2}`}, [][2]string{
		{`{}`, "#: minProperties: there are 0 members, fewer than 1"},
		{`{"a":1,"b":1}`, "#: maxProperties: there are 2 members, more than 1"},
	}},
	{`{"propertyNames":{"maxLength":1}}`, []string{`{"a":1}`}, [][2]string{
		{`{"ab":1}`, `#: propertyNames: "ab" is not a name that is admitted`},
	}},
	{`{"dependencies":{"a":["b"],"c":{"required":["d"]}}}`, []string{`{"a":1,"b":1}`, `{"b":1}`, `{"c":1,"d":1}`},
		[][2]string{
			{`{"a":1}`, `#: dependencies: "b" is missing, which "a" needs`}, {`{"c":1}`, `#: required: "d" is missing`},
		}},
	{`{"items":[{"type":"null"}],"additionalItems":{"type":"string"}}`, []string{`[]`, `[null,"a"]`}, [][2]string{
		{`[null,1]`, "#/1: type: string is wanted, not 1"},
	}},
	{`{"additionalItems":false}`, []string{`[1]`}, nil},
	{`{` + in2020 + `,"items":false}`, []string{`[]`}, [][2]string{{`[1]`, "#/0: false: nothing may be here"}}},
	{`{"minItems":1,"maxItems":2,"uniqueItems":true}`, []string{`[1]`}, [][2]string{
		{`[]`, "#: minItems: there are 0 elements, fewer than 1"}, {`[1,2,3]`,
			"#: maxItems: there are 3 elements, more than 2"},
		{`[1,1.0]`, "#: uniqueItems: an element is there more than once"},
		{`[{"a":1,"b":2},{"b":2,"a":1}]`, "#: uniqueItems: an element is there more than once"},
	}},
	{`{"contains":{"type":"null"}}`, []string{`[1,null]`}, [][2]string{
		{`[1]`, "#: contains: 0 elements are as one must be, fewer than 1"},
	}},
	{`{` + in2019 + `,"contains":{"type":"null"},"minContains":0,"maxContains":1}`, []string{`[1]`, `[null]`}, [][2]string{
		{`[null,null]`, "#: maxContains: 2 elements are of a kind of which there may be 1"},
	}},
	{`{"anyOf":[{"properties":{"a":{"properties":{"b":{"type":"null"}}}}},{"type":"string"}]}`, []string{`{}`, `"a"`},
		[][2]string{
			{`{"a":{"b":1}}`, "#/a/b: type: null is wanted, not 1"},
		}},
	{`{"anyOf":[{"type":"null"},{"type":"string"}]}`, nil, [][2]string{{`1`,
		"#: anyOf: 1 fits none of the alternatives"}}},
	{`{"oneOf":[{"minimum":2},{"maximum":3}]}`, []string{`1`, `4`}, [][2]string{
		{`2.5`, "#: oneOf: 2.5 fits more than one of the alternatives"},
	}},
	{`{"allOf":[{"minimum":2},{"maximum":3}]}`, []string{`2`}, [][2]string{{`1`, "#: minimum: 1 is below 2"}}},
	{`{"not":{"type":"null"}}`, []string{`1`}, [][2]string{{`null`, "#: not: null is what it must not be"}}},
	{`{"if":{"type":"string"},"then":{"minLength":1},"else":{"minimum":1}}`, []string{`"a"`, `1`}, [][2]string{
		{`""`, `#: minLength: "" has 0 characters, fewer than 1`}, {`0`, "#: minimum: 0 is below 1"},
	}},
	{`{` + in2020 + `,"allOf":[{"properties":{"a":true}}],"properties":{"b":true},"unevaluatedProperties":false}`,
		[]string{`{"a":1,"b":1}`}, [][2]string{{`{"c":1}`, "#/c: false: nothing may be here"}}},
	{`{` + in2020 + `,"prefixItems":[true],"contains":{"type":"null"},"unevaluatedItems":{"type":"string"}}`,
		[]string{`[1,null,"a"]`}, [][2]string{{`[1,null,2]`, "#/2: type: string is wanted, not 2"}}},
	{`{"properties":{"next":{"$ref":"#"},"v":{"type":"integer"}},"additionalProperties":false}`,
		[]string{`{"next":{"next":{"v":1}}}`}, [][2]string{{`{"next":{"next":{"v":"a"}}}`, "#/next/next/v: type: "}}},
	{`{` + in2019 + `,"$id":"http://x/tree","$recursiveAnchor":true,"items":{"$recursiveRef":"#"}}`, []string{`[[[]]]`},
		nil},
}

func TestCheck(t *testing.T) {
	for _, c := range checks {
		s, err := parse(c.content)
		require.NoError(t, err, c.content)
		codec, err := s.Codec()
		require.NoError(t, err)
		for _, v := range c.good {
			require.NoError(t, codec.Check([]byte(v)), "%s: %s", c.content, v)
			for _, f := range []func(dst, value []byte) ([]byte, error){codec.Encode, codec.Decode} {
				b, err := f([]byte("x"), []byte(v))
				require.NoError(t, err)
				require.Equal(t, "x"+v, string(b), "a value stays as it is")
			}
		}
		for _, v := range c.bad {
			err := codec.Check([]byte(v[0]))
			require.ErrorContains(t, err, v[1], "%s: %s", c.content, v[0])
			require.ErrorIs(t, err, schema.ErrMismatch)
			b, err := codec.Encode([]byte("x"), []byte(v[0]))
			require.Error(t, err)
			require.Equal(t, "x", string(b))
		}
	}
}

// A dynamic reference leads to the outermost schema on the way that has the anchor.
func TestCheckDynamicReferences(t *testing.T) {
	s,
		err := parse(`{`+in2020+`,"$id":"http://x/strict","$ref":"tree","$dynamicAnchor":"node",`+
		`"unevaluatedProperties":false}`,
		schema.Dependency{Name: "tree",
			Text: `{` + in2020 + `,"$id":"http://x/tree","$dynamicAnchor":"node","type":"object",` +
				`"properties":{"data":true,"children":{"items":{"$dynamicRef":"#node"}}}}`})
	require.NoError(t, err)
	require.NoError(t, check(t, s, `{"children":[{"data":1}]}`))
	require.ErrorContains(t, check(t, s, `{"children":[{"daat":1}]}`), "#/children/0/daat: false: nothing may be here")
}
