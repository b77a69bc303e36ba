package protobuf_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/schema"
)

// pairCase is two schemas, and what reading data of the first with the second is to find. A text that begins with a
// body is proto3; one that begins with "2 " is proto2.
type pairCase struct {
	name     string
	old, new string
	want     []string // "KIND path", an incompatible one with a minus before it
}

func source(s string) string {
	switch {
	case strings.HasPrefix(s, "2 "):
		return "syntax = \"proto2\";\n" + s[2:]
	case strings.HasPrefix(s, "syntax"), strings.HasPrefix(s, "edition"):
		return s
	}
	return "syntax = \"proto3\";\n" + s
}

func parse(t *testing.T, text string, deps ...schema.Dependency) schema.Schema {
	t.Helper()
	s, err := format().Parse(source(text), deps, schema.ParseOptions{Strict: true})
	require.NoError(t, err, text)
	return s
}

func found(c schema.Comparison) []string {
	var out []string
	for _, d := range c.Differences {
		s := d.Kind + " " + d.Path
		if !d.Compatible {
			s = "-" + s
		}
		out = append(out, s)
	}
	return out
}

func compare(t *testing.T, older, newer schema.Schema) schema.Comparison {
	t.Helper()
	c, err := format().Compare(newer, older,
		schema.CompareOptions{ReaderName: "new", WriterName: "old"})
	require.NoError(t, err)
	return c
}

func TestComparePairs(t *testing.T) {
	require.Greater(t, len(pairs()), 100)
	for _, c := range pairs() {
		t.Run(c.name, func(t *testing.T) {
			got := compare(t, parse(t, c.old), parse(t, c.new))
			require.Equal(t, c.want, found(got))
			for _, d := range got.Differences {
				require.Contains(t, d.Description, "'"+d.Path+"'")
				require.Contains(t, d.Description, "new")
				require.Contains(t, d.Description, "old")
			}
		})
	}
}

// Whatever two schemas are, a schema does not differ from itself, and the sides of a pair are found both ways.
func TestCompareWithItself(t *testing.T) {
	for _, c := range pairs() {
		for _, text := range []string{c.old, c.new} {
			s := parse(t, text)
			got := compare(t, s, s)
			require.Empty(t, got.Differences, c.name)
			require.Empty(t, got.Warnings, c.name)
			require.Empty(t, compare(t, s, parse(t, text)).Differences, c.name)
		}
	}
}

// scalars of one family read each other, those of two do not.
func TestCompareEveryPairOfScalars(t *testing.T) {
	families := [][]string{
		{"int32", "int64", "uint32", "uint64", "bool", "E"}, {"sint32", "sint64"}, {"string", "bytes"},
		{"fixed32", "sfixed32"}, {"fixed64", "sfixed64"}, {"float"}, {"double"},
	}
	text := func(typ string) string { return "enum E { Z = 0; } message M { " + typ + " a = 1; }" }
	for i, one := range families {
		for j, two := range families {
			for _, a := range one {
				for _, b := range two {
					got := found(compare(t, parse(t, text(a)), parse(t, text(b))))
					if i == j {
						require.Empty(t, got, "%s to %s", a, b)
					} else {
						require.Equal(t, []string{"-FIELD_SCALAR_KIND_CHANGED #/M/1"}, got, "%s to %s", a, b)
					}
				}
			}
		}
	}
}

// pairs reads testdata/pairs.txt.
var pairs = sync.OnceValue(func() []pairCase {
	var out []pairCase
	for _, part := range sections("pairs.txt") {
		lines := strings.Split(part, "\n")
		c := pairCase{name: lines[0], old: lines[1], new: lines[3]}
		for _, w := range lines[4:] {
			c.want = append(c.want, strings.TrimSpace(w))
		}
		out = append(out, c)
	}
	return out
})

func dependency(name, text string) schema.Dependency {
	return schema.Dependency{Name: name, Subject: name, Version: 1, Text: source(text), Direct: true}
}

// importCase is a pair with a file that both import, or only one does.
type importCase struct {
	name           string
	old, oldImport string
	new, newImport string
	version        int // of the new import; 0 for the same
	want           []string
}

func TestCompareImports(t *testing.T) {
	for _, c := range importCases() {
		t.Run(c.name, func(t *testing.T) {
			var before, after []schema.Dependency
			if c.oldImport != "" {
				before = append(before, dependency("i.proto", c.oldImport))
			}
			if c.newImport != "" {
				d := dependency("i.proto", c.newImport)
				d.Version = max(c.version, 1)
				after = append(after, d)
			}
			older, newer := parse(t, c.old, before...), parse(t, c.new, after...)
			require.Equal(t, c.want, found(compare(t, older, newer)))
			require.Empty(t, compare(t, older, older).Differences)
			require.Empty(t, compare(t, newer, newer).Differences)
		})
	}
}

// importCases reads testdata/imports.txt.
var importCases = sync.OnceValue(func() []importCase {
	var out []importCase
	for _, part := range sections("imports.txt") {
		lines := strings.Split(part, "\n")
		c := importCase{name: lines[0], old: lines[1], new: lines[4]}
		c.oldImport = strings.TrimPrefix(strings.TrimPrefix(lines[2], "with"), " ")
		c.newImport = strings.TrimPrefix(strings.TrimPrefix(lines[5], "with"), " ")
		c.version, _ = strconv.Atoi(strings.TrimPrefix(lines[3], "=> version "))
		for _, w := range lines[6:] {
			c.want = append(c.want, strings.TrimSpace(w))
		}
		out = append(out, c)
	}
	return out
})

// Texts that do not compile are compared by the names in them.
func TestCompareWhatDoesNotCompile(t *testing.T) {
	f := format()
	for _, c := range []pairCase{
		{"the same unknown type", "message M { x.N n = 1; }", "message M { x.N n = 1; }", nil},
		{"another unknown type", "message M { x.N n = 1; }", "message M { y.N n = 1; }",
			[]string{"-FIELD_NAMED_TYPE_CHANGED #/M/1"}},
		{"an unknown type is a message", "message M { x.N n = 1; }", "message M { int32 n = 1; }",
			[]string{"-FIELD_KIND_CHANGED #/M/1"}},
		{"known names are looked up from the inside out", "package p; message M { N n = 1; message N {} x.Y y = 2; }",
			"package p; message M { p.M.N n = 1; message N {} x.Y y = 2; }", nil},
		{"a name that another scope hides", "message M { N n = 1; message N {} x.Y y = 2; } message N {}",
			"message M { .N n = 1; message N {} x.Y y = 2; } message N {}",
			[]string{"-FIELD_NAMED_TYPE_CHANGED #/M/1"}},
		{"an enum that does not begin with zero", "enum E { A = 1; } message M { E e = 1; }",
			"enum E { B = 1; } message M { int32 e = 1; }",
			[]string{"ENUM_CONST_CHANGED #/E/1"}},
	} {
		older, err := f.Parse(source(c.old), nil, schema.ParseOptions{})
		require.NoError(t, err, c.name)
		newer, err := f.Parse(source(c.new), nil, schema.ParseOptions{})
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, found(compare(t, older, newer)), c.name)
		_, err = older.Codec()
		require.ErrorIs(t, err, schema.ErrInvalid, c.name)
	}
}

func TestCompareWarnsOfWhatItDoesNotCover(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"one value becomes a list", "message M { int32 a = 1; }", "message M { repeated int32 a = 1; }",
			"reads one value as a list"},
		{"a list becomes one value", "message M { repeated M a = 1; }", "message M { M a = 1; }",
			"of several values"},
		{"a message becomes required", "2 message M { optional M a = 1; }",
			"2 message M { required M a = 1; }", "cannot be read"},
		{"a string becomes required", "2 message M { optional string a = 1; }",
			"2 message M { required string a = 1; }", "cannot be read"},
		{"the first message is another", "message M {} message N {}", "message N {} message M {}",
			"payloads name messages by number"},
		{"bytes become a string", "message M { bytes a = 1; }", "message M { string a = 1; }", "not UTF-8"},
		{"a number shrinks", "message M { int64 a = 1; }", "message M { int32 a = 1; }", "large numbers are cut"},
		{"a number becomes a bool", "message M { int32 a = 1; }", "message M { bool a = 1; }",
			"large numbers are cut"},
		{"a number becomes a closed enum", "2 enum E { Z = 0; } message M { optional int32 a = 1; }",
			"2 enum E { Z = 0; } message M { optional E a = 1; }", "reads as not set"},
		{"a value of a closed enum goes", "2 enum E { Z = 0; A = 1; }", "2 enum E { Z = 0; }",
			"unknown to the new schema"},
	} {
		got := compare(t, parse(t, c.old), parse(t, c.new))
		require.True(t, got.Compatible(), c.name)
		require.NotEmpty(t, got.Warnings, c.name)
		require.Contains(t, strings.Join(got.Warnings, "\n"), c.want, c.name)
	}
	got := compare(t, parse(t, "message M { int32 a = 1; }"), parse(t, "message M { int64 a = 1; string b = 2; }"))
	require.Empty(t, got.Warnings)
}

func TestCompareReservedFields(t *testing.T) {
	f := format()
	older := parse(t, "message M { int32 a = 1; }")
	newer := parse(t, "message M { int32 a = 1; oneof c { int32 b = 2; } message N { int32 d = 1; } }")
	for _, c := range []struct {
		name          string
		before, after []string
		want          []string
	}{
		{"nothing is reserved", nil, nil, nil},
		{"a field stays reserved", []string{"x"}, []string{"x", "y"}, nil},
		{"a field is no longer reserved", []string{"x", "y"}, []string{"x"}, []string{"-RESERVED_FIELD_REMOVED y"}},
		{"a reserved field is there", nil, []string{"a"}, []string{"-FIELD_CONFLICTS_WITH_RESERVED_FIELD a"}},
		{"a reserved field is there in a oneof", nil, []string{"b"},
			[]string{"-FIELD_CONFLICTS_WITH_RESERVED_FIELD b"}},
		{"a reserved field is there by its path", nil, []string{"M.N.d"},
			[]string{"-FIELD_CONFLICTS_WITH_RESERVED_FIELD M.N.d"}},
		{"a nested field is not meant by its name alone", nil, []string{"d"}, nil},
	} {
		got, err := f.Compare(newer, older, schema.CompareOptions{
			ReaderName: "new", WriterName: "old", ValidateFields: true, ReaderReserved: c.after,
			WriterReserved: c.before,
		})
		require.NoError(t, err)
		var kinds []string
		for _, s := range found(got) {
			if strings.HasPrefix(s, "-") {
				kinds = append(kinds, s)
			}
		}
		require.Equal(t, c.want, kinds, c.name)
	}
}

// A message is as the registry's clients know it.
func TestDifferenceMessage(t *testing.T) {
	got := compare(t, parse(t, "message M { int32 a = 1; }"), parse(t, "message M { string a = 1; }"))
	require.Len(t, got.Differences, 1)
	require.Equal(t,
		`{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The field at path '#/M/1' is encoded otherwise `+
			`in the new schema than in the old schema"}`, got.Differences[0].Message(schema.Protobuf))
	require.Equal(t, "string a", got.Differences[0].Reader)
	require.Equal(t, "int32 a", got.Differences[0].Writer)
}

// Listing stops, the verdict does not.
func TestCompareListsSoMany(t *testing.T) {
	f := protobuf.New(protobuf.Limits{Differences: 10})
	o := schema.ParseOptions{Strict: true}
	fields := func(from, to int, typ string) string {
		return repeat(to-from, func(i int) string { return typ + " a" + itoa(from+i) + "=" + itoa(from+i+1) + ";" })
	}
	older, err := f.Parse(source("message M {"+fields(0, 100, "int32")+"}"), nil, o)
	require.NoError(t, err)
	newer, err := f.Parse(source("message M {"+fields(50, 99, "int32")+"string a99 = 100; }"), nil, o)
	require.NoError(t, err)
	got, err := f.Compare(newer, older, schema.CompareOptions{})
	require.NoError(t, err)
	require.Len(t, got.Differences, 11)
	require.False(t, got.Compatible())

	_, err = protobuf.New(protobuf.Limits{Steps: 20}).Compare(newer, older, schema.CompareOptions{})
	require.ErrorIs(t, err, schema.ErrInvalid)
	require.ErrorContains(t, err, "20 steps")
}
