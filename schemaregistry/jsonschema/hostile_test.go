package jsonschema_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/jsonschema"
	"millrace/schemaregistry/schema"
)

// nested is inner within n times before and after.
func nested(n int, before, inner, after string) string {
	return strings.Repeat(before, n) + inner + strings.Repeat(after, n)
}

// list is n texts made from their numbers.
func list(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, strings.ReplaceAll(format, "§", "%[1]d"), i)
	}
	return b.String()
}

// ring is a schema of references that lead in a circle.
func ring(n int) string {
	var defs []string
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"r%d":{"$ref":"#/definitions/r%d"}`, i, (i+1)%n))
	}
	return `{"$ref":"#/definitions/r0","definitions":{` + strings.Join(defs, ",") + `}}`
}

// doubling is a schema in which each definition refers to the next one twice.
func doubling(k string, depth int) string {
	var defs []string
	for i := range depth {
		defs = append(defs,
			fmt.Sprintf(`"d%d":{"%s":[{"allOf":[{"$ref":"#/definitions/d%d"}]},{"$ref":"#/definitions/d%d"},`+
				`{"minLength":1}]}`, i, k, i+1, i+1))
	}
	return `{"$ref":"#/definitions/d0","definitions":{` + strings.Join(defs, ",") +
		fmt.Sprintf(`,"d%d":{"maximum":1}}}`, depth)
}

// hostileSchemas are texts that cost much if they are not bounded. Some are refused.
func hostileSchemas() map[string]string {
	both := func(k string, depth int) string {
		s := `{"type":"string"}`
		for range depth {
			s = `{"` + k + `":[` + s + `,{"minLength":1}]}`
		}
		return s
	}
	return map[string]string{
		"10,000 levels of objects":   nested(10_000, `{"not":`, `{}`, `}`),
		"10,000 levels of arrays":    `{"enum":` + nested(10_000, `[`, ``, `]`) + `}`,
		"490 levels of items":        nested(490, `{"items":`, `{"maximum":1}`, `}`),
		"1,000 levels of items":      nested(1000, `{"items":`, `{}`, `}`),
		"160 levels of properties":   nested(160, `{"properties":{"a":`, `{}`, `}}`),
		"1 MiB of properties":        `{"properties":{` + list(60_000, `"p§":{}`) + `}}`,
		"1 MiB of one text":          `{"title":"` + strings.Repeat("x", 1<<20-20) + `"}`,
		"1 MiB of escapes":           `{"title":"` + strings.Repeat(`\u0041`, 170_000) + `"}`,
		"1 MiB of a repeated member": `{` + strings.TrimSuffix(strings.Repeat(`"a":{},`, 149_000), ",") + `}`,
		"more than 1 MiB":            `{"title":"` + strings.Repeat("x", 1<<20) + `"}`,
		"a huge enum":                `{"enum":[` + list(120_000, `§`) + `]}`,
		"a huge enum of texts":       `{"enum":[` + list(80_000, `"v§"`) + `]}`,
		"a reference to itself":      `{"$ref":"#"}`,
		"a ring of references":       ring(2000),
		"a ring in place":            `{` + in2020 + `,"$ref":"#","anyOf":[{"$ref":"#"},{"$ref":"#"}]}`,
		"a ring of allOf":            `{"allOf":[{"$ref":"#"},{"$ref":"#"}]}`,
		"a ring of not":              `{"not":{"$ref":"#"}}`,
		"anyOf 30 deep":              both("anyOf", 30),
		"allOf 30 deep":              both("allOf", 30),
		"oneOf 30 deep":              both("oneOf", 30),
		"anyOf that doubles":         doubling("anyOf", 30),
		"allOf that doubles":         doubling("allOf", 30),
		"oneOf that doubles":         doubling("oneOf", 30),
		"1,000 alternatives":         `{"anyOf":[` + list(1000, `{"maximum":§}`) + `]}`,
		"300 objects as alternatives": `{"oneOf":[` +
			list(300, `{"properties":{"kind":{"const":§},"a":{"type":"string"},"b":{"maximum":§}},`+
				`"required":["kind"]}`) + `]}`,
		"5,000 objects as alternatives": `{"anyOf":[` +
			list(5000, `{"type":"object","properties":{"p§":{"maximum":1}},"required":["p§"]}`) + `]}`,
		"20,000 alternatives": `{"anyOf":[` + list(20_000, `{"maxLength":§}`) + `]}`,
		"100,000 schemas":     `{"anyOf":[` + list(150_000, `{}`) + `]}`,
		"numbers with vast exponents": `{"enum":[1e999999999,1E-999999999],"maximum":1e999999999999999999,` +
			`"multipleOf":1e-99999}`,
		"a number of many digits":    `{"maximum":` + strings.Repeat("9", 1_000_000) + `}`,
		"multipleOf of many digits":  `{"multipleOf":` + strings.Repeat("9", 1_000_000) + `}`,
		"a deep regular expression":  `{"pattern":"` + nested(100_000, `(`, `a`, `)`) + `"}`,
		"a long regular expression":  `{"pattern":"` + strings.Repeat(`(a|b)*`, 100_000) + `"}`,
		"many regular expressions":   `{"patternProperties":{` + list(40_000, `"(ab){§}":{}`) + `}}`,
		"repetitions of repetitions": `{"pattern":"((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}"}`,
		"repetitions of nothing":     `{"pattern":"((((){9999}){9999}){9999}){9999}"}`,
		"many identifiers":           `{"definitions":{` + list(20_000, `"d§":{"$id":"http://x/§"}`) + `}}`,
		"many references": `{"items":[` + list(20_000,
			`{"$ref":"#/definitions/d"}`) + `],"definitions":{"d":{}}}`,
		"many missing references": `{"items":[` + list(20_000, `{"$ref":"http://x/§"}`) + `]}`,
		"many tags of one schema": `{"type":"object","confluent:tags":[` + list(100_000, `"§"`) + `]}`,
		"many needs":              `{"dependencies":{` + list(40_000, `"d§":["x"]`) + `}}`,
		"a long name above many": `{"properties":{"` + strings.Repeat("n", 500_000) + `":{"properties":{` +
			list(8000, `"p§":{"minLength":1,"confluent:tags":["a"]}`) + `}}}}`,
		"a long name above many references": `{"properties":{"` + strings.Repeat("n", 500_000) + `":{"properties":{` +
			list(8000, `"p§":{"$ref":"#/definitions/d"}`) + `}}},"definitions":{"d":{"minLength":1}}}`,
		"many names in a row of not": nested(200, `{"not":`, `{"properties":{`+
			list(20_000, `"p§":{"minLength":1}`)+`}}`, `}`),
		"many tags": `{"properties":{` + list(15_000, `"d§":{"confluent:tags":["a","b"]}`) + `}}`,
	}
}

// soon fails where something takes more than its time, or more than twenty times what plain work takes here and now.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	took := time.Duration(1 << 62)
	allowed := 50 * time.Millisecond
	for range 10 {
		start := time.Now()
		f()
		if took = min(took, time.Since(start)); took < allowed {
			return
		}
		start = time.Now()
		_, err := parse(`{"enum":["` + strings.Repeat(`a","`, 100_000) + `"]}`)
		require.NoError(t, err)
		allowed = max(allowed, 20*time.Since(start))
	}
	t.Errorf("%s takes %v, more than %v", what, took, allowed)
}

func TestHostileSchemas(t *testing.T) {
	f := jsonschema.New(jsonschema.Limits{})
	for name, content := range hostileSchemas() {
		t.Run(name, func(t *testing.T) {
			var s schema.Schema
			var err error
			soon(t, "parsing", func() { s, err = parse(content) })
			if err != nil {
				require.ErrorIs(t, err, schema.ErrInvalid)
				require.Less(t, len(err.Error()), 3*len(content)+200)
				return
			}
			other, err := parse(strings.NewReplacer(`"minLength":1`, `"minLength":2`, `const`, `enum`, `"maximum":1`,
				`"maximum":0`).
				Replace(content))
			if err != nil {
				other = s
			}
			for _, pair := range [][2]schema.Schema{{s, s}, {s, other}, {other, s}} {
				soon(t, "comparing", func() {
					c, err := f.Compare(pair[0], pair[1], schema.CompareOptions{})
					require.True(t, err == nil || c.Differences == nil)
				})
			}
			soon(t, "listing tags", func() { s.Entities() })
			c, err := s.Codec()
			require.NoError(t, err)
			for _, v := range []string{
				`"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"`, `{"a":1}`, `[[[[1]]]]`, `7`, `[` + list(1000, `§`) + `]`,
				`{"kind":299,"b":5000}`,
			} {
				soon(t, "checking "+v[:min(20, len(v))], func() { _ = c.Check([]byte(v)) })
			}
		})
	}
}

func TestHostileValues(t *testing.T) {
	for _, h := range []struct{ why, content, value string }{
		{"depth", `{"items":{"$ref":"#"}}`, nested(100_000, `[`, ``, `]`)},
		{"depth of objects", `{"additionalProperties":{"$ref":"#"}}`, nested(199, `{"a":`, `1`, `}`)},
		{"depth through alternatives that double", `{"anyOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"},"minItems":2}]}`,
			nested(190, `[`, `1`, `]`)},
		{"alternatives that all fail", `{"items":{"oneOf":[{"items":{"$ref":"#/items"}},{"items":{"$ref":"#/items"}}]}}`,
			nested(190, `[`, `1`, `]`)},
		{"numbers with vast exponents", `{"items":{"multipleOf":3,"maximum":1e999999999}}`, `[` + list(1000,
			`1e99999999§`) + `]`},
		{"a long number", `{"multipleOf":` + strings.Repeat("7", 1000) + `}`, strings.Repeat("9", 500_000)},
		{"a long number compared to another", `{"enum":[1],"maximum":1}`, strings.Repeat("9", 500_000)},
		{"many members", `{"patternProperties":{"^(a+)+$":{"type":"null"}},"required":["zz"]}`, `{` + list(20_000,
			`"a§":null`) + `}`},
		{"unique items that all differ", `{"uniqueItems":true}`, `[` + list(60_000, `§`) + `]`},
		{"unique items within unique items", `{"uniqueItems":true,"items":{"$ref":"#"}}`, nested(150, `[`, list(1000, `§`),
			`]`)},
		{"a bomb of nested repetition", `{"pattern":"^(a+)+$"}`, `"` + strings.Repeat("a", 5000) + `!"`},
		{"a bomb of alternatives", `{"pattern":"^(a|a)*$"}`, `"` + strings.Repeat("a", 5000) + `!"`},
		{"a bomb of dots", `{"pattern":"(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x"}`, `"` + strings.Repeat("a", 20_000) + `"`},
		{"a bomb with a back reference", `{"pattern":"^(a*)*\\1b$"}`, `"` + strings.Repeat("a", 5000) + `!"`},
		{"a bomb in a lookahead", `{"pattern":"^(?=(a+)+$)"}`, `"` + strings.Repeat("a", 5000) + `!"`},
		{"a bomb in a lookbehind", `{"pattern":"(?<=^(a+)+)b"}`, `"` + strings.Repeat("a", 5000) + `!"`},
		{"a bomb for each item", `{"items":{"pattern":"^(a|aa)+$"}}`, `["` + strings.Repeat(strings.Repeat("a", 40)+`!","`,
			2000) + `"]`},
		{"names to evaluate", `{` + in2020 + `,"unevaluatedProperties":false,"allOf":[` +
			nested(50, `{"allOf":[`, `{"additionalProperties":true}`, `]}`) + `]}`, `{` + list(5000, `"a§":1`) + `}`},
		{"an enum of large values for each item", `{"items":{"enum":[` + list(1000, `[[§]]`) + `]}}`, `[` + list(20_000,
			`[[§]]`) + `]`},
		{"surrogate halves", `{"maxLength":5}`, `"` + strings.Repeat(`\ud800`, 50_000) + `"`},
	} {
		t.Run(h.why, func(t *testing.T) {
			s, err := parse(h.content)
			require.NoError(t, err)
			c, err := s.Codec()
			require.NoError(t, err)
			soon(t, "checking", func() { err = c.Check([]byte(h.value)) })
			if err != nil {
				require.ErrorIs(t, err, schema.ErrMismatch)
				require.Less(t, len(err.Error()), 3000)
			}
		})
	}
}
