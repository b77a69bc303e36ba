package avro_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	hamba "github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/schemaregistry/schema"
)

// shape is a schema that a property test can print, change and make values of.
type shape struct {
	kind    string
	name    string // of a named type
	aliases []string
	fields  []shapeField
	symbols []string
	preset  string // default of an enum
	size    int
	parts   []*shape // item, or types of a union
}

type shapeField struct {
	name    string
	aliases []string
	shape   *shape
	preset  any // the default, if set
	set     bool
}

func (s *shape) document() any {
	switch s.kind {
	case "record":
		fields := []any{}
		for _, f := range s.fields {
			field := map[string]any{"name": f.name, "type": f.shape.document()}
			if len(f.aliases) > 0 {
				field["aliases"] = f.aliases
			}
			if f.set {
				field["default"] = f.preset
			}
			fields = append(fields, field)
		}
		return s.named(map[string]any{"fields": fields})
	case "enum":
		m := map[string]any{"symbols": s.symbols}
		if s.preset != "" {
			m["default"] = s.preset
		}
		return s.named(m)
	case "fixed":
		return s.named(map[string]any{"size": s.size})
	case "array":
		return map[string]any{"type": "array", "items": s.parts[0].document()}
	case "map":
		return map[string]any{"type": "map", "values": s.parts[0].document()}
	case "union":
		types := []any{}
		for _, p := range s.parts {
			types = append(types, p.document())
		}
		return types
	default:
		return s.kind
	}
}

func (s *shape) named(m map[string]any) any {
	m["type"], m["name"] = s.kind, s.name
	if len(s.aliases) > 0 {
		m["aliases"] = s.aliases
	}
	return m
}

func (s *shape) text(t require.TestingT) string {
	b, err := json.Marshal(s.document())
	require.NoError(t, err)
	return string(b)
}

func primitives() []string {
	return []string{"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
}

// drawShape draws a schema. Names are unique, so that definitions never clash.
func drawShape(t *rapid.T, depth int, count *int, inUnion bool) *shape {
	*count++
	kinds := primitives()
	if depth > 0 {
		kinds = append(kinds, "record", "record", "enum", "fixed", "array", "map")
		if !inUnion {
			kinds = append(kinds, "union", "union")
		}
	}
	s := &shape{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	switch s.kind {
	case "record":
		s.name = "R" + strconv.Itoa(*count)
		for i := range rapid.IntRange(0, 4).Draw(t, "fields") {
			f := shapeField{name: "f" + strconv.Itoa(i), shape: drawShape(t, depth-1, count, false)}
			s.fields = append(s.fields, f)
		}
	case "enum":
		s.name = "E" + strconv.Itoa(*count)
		s.symbols = []string{"A", "B", "C"}[:rapid.IntRange(1, 3).Draw(t, "symbols")]
		if rapid.Bool().Draw(t, "preset") {
			s.preset = s.symbols[0]
		}
	case "fixed":
		s.name, s.size = "F"+strconv.Itoa(*count), rapid.IntRange(1, 4).Draw(t, "size")
	case "array", "map":
		s.parts = []*shape{drawShape(t, depth-1, count, false)}
	case "union":
		seen := map[string]bool{}
		for range rapid.IntRange(1, 4).Draw(t, "types") {
			if p := drawShape(t, depth-1, count, true); !seen[p.tag()] {
				seen[p.tag()] = true
				s.parts = append(s.parts, p)
			}
		}
	}
	return s
}

func (s *shape) tag() string {
	if s.name != "" {
		return s.name
	}
	return s.kind
}

// value draws a value in Avro's JSON encoding.
func (s *shape) value(t *rapid.T) any {
	switch s.kind {
	case "null":
		return nil
	case "boolean":
		return rapid.Bool().Draw(t, "boolean")
	case "int":
		return rapid.Int32().Draw(t, "int")
	case "long":
		return rapid.Int64().Draw(t, "long")
	case "float":
		return float64(rapid.Float32Range(-1e6, 1e6).Draw(t, "float"))
	case "double":
		return rapid.Float64Range(-1e6, 1e6).Draw(t, "double")
	case "bytes", "string":
		return rapid.StringMatching(`[a-zA-Z0-9 "\\]{0,6}`).Draw(t, "text")
	case "fixed":
		return rapid.StringOfN(rapid.RuneFrom([]rune("abc")), s.size, s.size, -1).Draw(t, "fixed")
	case "enum":
		return rapid.SampledFrom(s.symbols).Draw(t, "symbol")
	case "array":
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, s.parts[0].value(t))
		}
		return list
	case "map":
		m := map[string]any{}
		for i := range rapid.IntRange(0, 3).Draw(t, "items") {
			m["k"+strconv.Itoa(i)] = s.parts[0].value(t)
		}
		return m
	case "union":
		p := rapid.SampledFrom(s.parts).Draw(t, "type")
		if p.kind == "null" {
			return nil
		}
		return map[string]any{p.tag(): p.value(t)}
	default:
		m := map[string]any{}
		for _, f := range s.fields {
			m[f.name] = f.shape.value(t)
		}
		return m
	}
}

// evolve changes a schema somewhere, in a way that may or may not be compatible.
func (s *shape) evolve(t *rapid.T, count *int) *shape {
	*count++
	c := *s
	change := rapid.IntRange(0, 9).Draw(t, "change")
	switch {
	case change == 0 && s.kind != "union":
		return (&shape{kind: "union", parts: []*shape{{kind: "null"}, &c}}).settle()
	case change == 1:
		return drawShape(t, 1, count, true)
	case s.kind == "record":
		c.evolveRecord(t, count, change)
	case s.kind == "enum" && change < 5:
		c.symbols = []string{"C", "A", "B", "D"}[:rapid.IntRange(1, 4).Draw(t, "symbols")]
		c.preset = ""
		if rapid.Bool().Draw(t, "preset") {
			c.preset = c.symbols[0]
		}
	case s.kind == "fixed" && change < 4:
		c.size = rapid.IntRange(1, 4).Draw(t, "size")
	case s.kind == "array" || s.kind == "map":
		c.parts = []*shape{s.parts[0].evolve(t, count)}
	case s.kind == "union" && len(s.parts) > 0:
		c.evolveUnion(t, count, change)
	case s.name == "":
		c.kind = rapid.SampledFrom(primitives()).Draw(t, "kind")
	}
	if c.name != "" && change == 9 {
		c.name += "x"
		c.aliases = []string{s.name}
	}
	return c.settle()
}

// settle unites a union whose type is a union.
func (s *shape) settle() *shape {
	if s.kind != "union" {
		return s
	}
	var parts []*shape
	seen := map[string]bool{}
	for _, p := range s.parts {
		if p.kind != "union" && !seen[p.tag()] {
			seen[p.tag()] = true
			parts = append(parts, p)
		}
	}
	s.parts = parts
	return s
}

func (s *shape) evolveRecord(t *rapid.T, count *int, change int) {
	fields := append([]shapeField{}, s.fields...)
	at := 0
	if len(fields) > 0 {
		at = rapid.IntRange(0, len(fields)-1).Draw(t, "at")
	}
	switch {
	case change == 2 || len(fields) == 0:
		f := shapeField{name: "n" + strconv.Itoa(*count), shape: &shape{kind: "int"}}
		if rapid.Bool().Draw(t, "set") {
			f.preset, f.set = 7, true
		}
		fields = append(fields, f)
	case change == 3:
		fields = append(fields[:at], fields[at+1:]...)
	case change == 4:
		fields[at].aliases = []string{fields[at].name}
		fields[at].name += "x"
	case change == 5:
		fields[0], fields[at] = fields[at], fields[0]
	default:
		fields[at].shape = fields[at].shape.evolve(t, count)
	}
	s.fields = fields
}

func (s *shape) evolveUnion(t *rapid.T, count *int, change int) {
	parts := append([]*shape{}, s.parts...)
	at := rapid.IntRange(0, len(parts)-1).Draw(t, "at")
	switch change {
	case 2, 3:
		parts = append(parts, drawShape(t, 1, count, true))
	case 4:
		parts = append(parts[:at], parts[at+1:]...)
	case 5:
		parts[0], parts[at] = parts[at], parts[0]
	default:
		parts[at] = parts[at].evolve(t, count)
	}
	s.parts = parts
}

func encodeValue(t require.TestingT, s *shape, value any) []byte {
	text, err := json.Marshal(value)
	require.NoError(t, err)
	b, err := codecOf(t, s.text(t)).Encode(nil, text)
	require.NoError(t, err, "%s of %s", text, s.text(t))
	return b
}

// TestCompatibleSchemasDecode lets hamba read, by its own resolution of schemas, what was written with the old one.
func TestCompatibleSchemasDecode(t *testing.T) {
	compatible := 0
	rapid.Check(t, func(rt *rapid.T) {
		count := 0
		older := drawShape(rt, 3, &count, false)
		newer := older
		for range rapid.IntRange(1, 3).Draw(rt, "changes") {
			newer = newer.evolve(rt, &count)
		}
		c := compare(rt, parse(rt, newer.text(rt)), parse(rt, older.text(rt)), "new", "old")
		value := older.value(rt)
		b := encodeValue(rt, older, value)
		if !c.Compatible() {
			return
		}
		compatible++
		require.NoError(rt, newer.read(older, b), "old %s\nnew %s\nvalue %v", older.text(rt), newer.text(rt), value)
	})
	t.Logf("%d of the pairs were compatible", compatible)
	require.Positive(t, compatible)
}

// read reads a value by the rules of the specification, without any shortcuts.
func (s *shape) read(writer *shape, b []byte) error {
	rest, err := resolve(s, writer, b)
	if err == nil && len(rest) > 0 {
		return fmt.Errorf("%d bytes are left", len(rest))
	}
	return err
}

// TestHamba has hamba decode what the codec encodes and encode it again, in blocks with sizes, for the codec to decode.
func TestHamba(t *testing.T) {
	read := 0
	rapid.Check(t, func(rt *rapid.T) {
		count := 0
		s := drawShape(rt, 3, &count, false)
		value := s.value(rt)
		b := encodeValue(rt, s, value)
		theirs, err := hamba.ParseWithCache(s.text(rt), "", &hamba.SchemaCache{})
		require.NoError(rt, err)
		api := hamba.Config{}.Freeze()
		var decoded any
		require.NoError(rt, api.Unmarshal(theirs, b, &decoded))
		again, err := api.Marshal(theirs, decoded)
		if err != nil {
			return // it cannot write all that it reads into an any
		}
		read++
		codec := codecOf(rt, s.text(rt))
		want, err := codec.Decode(nil, b)
		require.NoError(rt, err)
		got, err := codec.Decode(nil, again)
		require.NoError(rt, err)
		require.JSONEq(rt, string(want), string(got)) // maps come in any order
	})
	t.Logf("%d values went there and back", read)
	require.Positive(t, read)
}

// TestRoundTrips draws schemas and values.
func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		count := 0
		s := drawShape(rt, 3, &count, false)
		text := s.text(rt)
		stored := parse(rt, text).Text()
		require.Equal(rt, stored, parse(rt, stored).Text(), "the stored form of the stored form")
		normal, err := parseWith(text, schema.ParseOptions{Normalize: true})
		require.NoError(rt, err)
		again, err := parseWith(normal.Text(), schema.ParseOptions{Normalize: true})
		require.NoError(rt, err)
		require.Equal(rt, normal.Text(), again.Text(), "the normal form of the normal form")
		require.Empty(rt, compare(rt, normal, parse(rt, text), "new", "old").Differences)

		b := encodeValue(rt, s, s.value(rt))
		codec := codecOf(rt, stored)
		require.NoError(rt, codec.Check(b))
		jsonText, err := codec.Decode(nil, b)
		require.NoError(rt, err)
		require.True(rt, json.Valid(jsonText), "%s", jsonText)
		back, err := codec.Encode(nil, jsonText)
		require.NoError(rt, err)
		require.Equal(rt, b, back)
	})
}
