package jsonschema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand"
	"slices"
	"strings"
	"testing"

	judge "github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/jsonschema"
	"millrace/schemaregistry/schema"
)

// doc is a schema as the generator makes it.
type doc = map[string]any

// maker makes small schemas and values at random.
type maker struct {
	*rand.Rand
	modern bool // of draft 2020-12, not 7
}

func (m maker) of(choices ...any) any { return choices[m.Intn(len(choices))] }

// schema makes one; below depth 0 it has no other ones in it.
func (m maker) schema(depth int) any {
	if m.Intn(8) == 0 {
		return m.of(true, false, doc{})
	}
	s := doc{}
	for range 1 + m.Intn(2) {
		m.keyword(s, depth)
	}
	return s
}

func (m maker) keyword(s doc, depth int) {
	kinds := 9
	if depth > 0 {
		kinds = 24
	}
	switch m.Intn(kinds) {
	case 0, 1:
		s["type"] = m.of("string", "integer", "number", "object", "array", "null", "boolean")
	case 2:
		s["type"] = []any{"null", m.of("string", "integer", "number", "object", "array")}
	case 3:
		s[m.of("minLength", "maxLength").(string)] = m.Intn(3)
	case 4:
		s[m.of("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum").(string)] = m.of(-1, 0, 1, 1.5, 2)
	case 5:
		s["multipleOf"] = m.of(0.5, 1, 2, 3)
	case 6:
		s["enum"] = []any{m.of(-1, 0, 1, 1.5, "", "a", nil, true), m.of("ab", "abc", 2, 3, doc{}, []any{0})}
	case 7:
		s["const"] = m.value(1)
	case 8:
		s[m.of("minItems", "maxItems", "minProperties", "maxProperties").(string)] = m.Intn(3)
	case 9, 10, 11:
		props := doc{}
		for range 1 + m.Intn(2) {
			props[m.name()] = m.schema(depth - 1)
		}
		s["properties"] = props
	case 12:
		s["required"] = []any{m.name()}
	case 13:
		s["additionalProperties"] = m.of(false, false, true, m.schema(depth-1))
	case 14:
		s["patternProperties"] = doc{m.of("^a", "b$").(string): m.schema(depth - 1)}
	case 15:
		s["items"] = m.schema(depth - 1)
	case 16:
		m.tuple(s, depth)
	case 17:
		s["contains"] = m.schema(depth - 1)
		if m.modern {
			s[m.of("minContains", "maxContains").(string)] = m.Intn(3)
		}
	case 18:
		s[m.of("uniqueItems", "uniqueItems").(string)] = true
	case 19:
		s["not"] = m.schema(depth - 1)
	case 20, 21:
		s[m.of("anyOf", "allOf", "oneOf").(string)] = []any{m.schema(depth - 1), m.schema(depth - 1)}[:1+m.Intn(2)]
	case 22:
		m.needs(s, depth)
	default:
		m.rest(s, depth)
	}
}

func (m maker) tuple(s doc, depth int) {
	tuple, rest := "items", "additionalItems"
	if m.modern {
		tuple, rest = "prefixItems", "items"
	}
	s[tuple] = []any{m.schema(depth - 1), m.schema(depth - 1)}[:1+m.Intn(2)]
	if m.Intn(2) == 0 {
		s[rest] = m.of(true, false, m.schema(depth-1))
	}
}

func (m maker) needs(s doc, depth int) {
	names, other := "dependencies", "dependencies"
	if m.modern {
		names, other = "dependentRequired", "dependentSchemas"
	}
	if m.Intn(2) == 0 {
		s[names] = doc{m.name(): []any{m.name()}}
	} else {
		s[other] = doc{m.name(): m.schema(depth - 1)}
	}
}

func (m maker) rest(s doc, depth int) {
	switch m.Intn(4) {
	case 0:
		s["propertyNames"] = doc{"maxLength": m.Intn(2)}
	case 1:
		s["if"], s["then"] = m.schema(depth-1), m.schema(depth-1)
	case 2:
		s["$ref"] = "#/definitions/d"
	default:
		if m.modern {
			s[m.of("unevaluatedProperties", "unevaluatedItems").(string)] = m.of(true, false, m.schema(depth-1))
		}
	}
}

func (m maker) name() string { return m.of("a", "b", "ab").(string) }

func (m maker) value(depth int) any {
	kinds := 10
	if depth > 0 {
		kinds = 16
	}
	switch m.Intn(kinds) {
	case 0:
		return nil
	case 1:
		return m.of(true, false)
	case 2, 3, 4, 5:
		return m.of(-1, 0, 1, 1.5, 2, 3, 4)
	case 6, 7, 8, 9:
		return m.of("", "a", "ab", "abc")
	case 10, 11, 12:
		list := []any{}
		for range m.Intn(4) {
			list = append(list, m.value(depth-1))
		}
		return list
	}
	o := doc{}
	for range m.Intn(4) {
		o[m.name()] = m.value(depth - 1)
	}
	return o
}

// changed is a copy of a schema in which something is added, taken away or made anew.
func (m maker) changed(s any, depth int) any {
	d, ok := s.(doc)
	if !ok || m.Intn(10) == 0 {
		return m.schema(depth)
	}
	n := doc{}
	for k, v := range d {
		n[k] = v
	}
	var keys []string
	for k := range n {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if len(keys) == 0 || m.Intn(4) == 0 {
		m.keyword(n, depth)
		return n
	}
	k := keys[m.Intn(len(keys))]
	switch v := n[k].(type) {
	case int:
		n[k] = max(1, v+m.of(-1, 1).(int))
		return n
	case []any:
		if len(v) > 0 && k != "enum" && k != "type" && k != "required" && k != "const" {
			list := slices.Clone(v)
			i := m.Intn(len(list))
			list[i] = m.changed(list[i], depth-1)
			n[k] = list
			return n
		}
	case doc:
		switch k {
		case "properties":
			props := doc{m.name(): m.schema(depth - 1)}
			for p, sub := range v {
				if m.Intn(4) > 0 {
					props[p] = sub
				}
			}
			n[k] = props
			return n
		case "items", "additionalProperties", "not", "contains":
			n[k] = m.changed(v, depth-1)
			return n
		}
	}
	delete(n, k)
	return n
}

// whole makes a text of a schema.
func (m maker) whole(s, def any) string {
	d, ok := s.(doc)
	if !ok {
		d = doc{"allOf": []any{s}}
	}
	root := doc{"definitions": doc{"d": def}, "$schema": "http://json-schema.org/draft-07/schema#"}
	if m.modern {
		root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	}
	for k, v := range d {
		root[k] = v
	}
	if !m.modern && root["$ref"] != nil { // beside which nothing would count
		root["allOf"] = []any{doc{"$ref": root["$ref"]}}
		delete(root, "$ref")
	}
	b, err := json.Marshal(root)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// judgeOf is nil for schemas that only refer to themselves, which the judge refuses.
func judgeOf(t testing.TB, content string) *judge.Schema {
	t.Helper()
	c := judge.NewCompiler()
	c.LoadURL = func(string) (io.ReadCloser, error) { return nil, errors.New("nothing is fetched") }
	require.NoError(t, c.AddResource("mem:///schema", strings.NewReader(content)))
	s, err := c.Compile("mem:///schema")
	var loop judge.InfiniteLoopError
	if errors.As(err, &loop) {
		return nil
	}
	require.NoError(t, err, content)
	return s
}

// fits asks the judge. It is undecided where a schema applies to itself without end.
func fits(t testing.TB, s *judge.Schema, value []byte) (fits, decided bool) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v))
	err := s.Validate(v)
	var loop judge.InfiniteLoopError
	return err == nil, !errors.As(err, &loop)
}

// What a compatible new schema reads is all that fits the old one, where no warning says otherwise. Left out are the
// kinds that count on defaults, which nothing fills in when a value is checked.
func TestCompatibleMeansReadable(t *testing.T) {
	holes := []string{
		"REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
	}
	f := jsonschema.New(jsonschema.Limits{})
	tried, readable := 0, 0
	for seed := range int64(6000) {
		m := maker{rand.New(rand.NewSource(seed)), seed%2 == 0}
		def := doc{"type": m.of("string", "integer", "object"), "maxLength": 2}
		was := m.schema(2)
		old, updated := m.whole(was, def), m.whole(m.changed(was, 2), m.of(def, doc{"type": "string"}))
		w, err := f.Parse(old, nil, schema.ParseOptions{})
		require.NoError(t, err, old)
		r, err := f.Parse(updated, nil, schema.ParseOptions{})
		require.NoError(t, err, updated)
		c, err := f.Compare(r, w, schema.CompareOptions{})
		require.NoError(t, err)
		hole := slices.ContainsFunc(c.Differences, func(d schema.Difference) bool { return slices.Contains(holes, d.Kind) })
		if !c.Compatible() || len(c.Warnings) > 0 || hole {
			continue
		}
		tried++
		oldJudge, newJudge := judgeOf(t, old), judgeOf(t, updated)
		if oldJudge == nil || newJudge == nil {
			continue
		}
		for range 40 {
			v, err := json.Marshal(m.value(2))
			require.NoError(t, err)
			if ok, _ := fits(t, oldJudge, v); ok {
				readable++
				ok, _ = fits(t, newJudge, v)
				require.True(t, ok, "seed %d\nold %s\nnew %s\nvalue %s\n%s", seed, old, updated, v, listed(c))
			}
		}
	}
	require.Greater(t, tried, 500)
	require.Greater(t, readable, 3000)
}

// Values fit or not as the judge says.
func TestCheckAgreesWithJudge(t *testing.T) {
	good, bad := 0, 0
	for seed := range int64(2500) {
		m := maker{rand.New(rand.NewSource(seed)), seed%2 == 0}
		content := m.whole(m.schema(3), m.schema(1))
		s, err := parse(content)
		require.NoError(t, err, content)
		j := judgeOf(t, content)
		if j == nil {
			continue
		}
		for range 20 {
			v, err := json.Marshal(m.value(2))
			require.NoError(t, err)
			ok, decided := fits(t, j, v)
			if !decided {
				continue
			}
			err = check(t, s, string(v))
			require.Equal(t, ok, err == nil, "seed %d\n%s\n%s\n%v", seed, content, v, err)
			if ok {
				good++
			} else {
				bad++
			}
		}
	}
	require.Greater(t, good, 10_000)
	require.Greater(t, bad, 10_000)
}
