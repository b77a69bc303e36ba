package protobuf_test

import (
	"strings"
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
	for _, c := range pairs {
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
	for _, c := range pairs {
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

var pairs = []pairCase{
	{"the package counts", "package a; message M {}", "package b; message M {}", []string{"-PACKAGE_CHANGED #/"}},
	{"a package where there was none counts", "message M {}", "package b; message M {}", []string{"-PACKAGE_CHANGED #/"}},
	{"types are compared without their package even so", "package a; message M { M m = 1; }",
		"package b; message M { M m = 1; }", []string{"-PACKAGE_CHANGED #/"}},
	{"the syntax does not count", "2 message M { repeated string a = 1; }", "message M { repeated string a = 1; }", nil},
	{"the syntax does not count when a label goes", "2 message M { optional int32 a = 1; }", "message M { int32 a = 1; }", nil},
	{"editions read what proto3 wrote", "message M { int32 a = 1; }",
		`edition = "2023"; message M { int32 a = 1 [features.field_presence = IMPLICIT]; }`, nil},
	{"options do not count", `option java_package = "a"; message M {}`, `option java_package = "b"; message M {}`, nil},
	{"options of fields do not count", "message M { int32 a = 1; }", "message M { int32 a = 1 [deprecated = true]; }", nil},
	{"services do not count", "message M {} service S { rpc A (M) returns (M); }", "message M {}", nil},
	{"imports do not count", `import "google/protobuf/any.proto"; message M {}`, "message M {}", nil},
	{"comments do not count", "/* a */ message M {} // b", "message M {}", nil},
	{"extensions do not count", "2 message M { extensions 5 to 9; } extend M { optional int32 x = 5; }",
		"2 message M { extensions 5 to 9; }", nil},
	{"reserving does not count", "message M { reserved 5; reserved \"x\"; }", "message M {}", nil},
	{"the JSON name does not count", "message M { int32 a = 1; }", "message M { int32 a = 1 [json_name = \"b\"]; }", nil},
	{"a default does not count", "2 message M { optional int32 a = 1; }", "2 message M { optional int32 a = 1 [default = 7]; }", nil},
	{"packing does not count", "message M { repeated int32 a = 1; }",
		"message M { repeated int32 a = 1 [packed = false]; }", nil},

	{"a message may come", "message M {}", "message M {} message N {}", []string{"MESSAGE_ADDED #/N"}},
	{"a message must stay", "message M {} message N {}", "message M {}", []string{"-MESSAGE_REMOVED #/N"}},
	{"a nested message may come", "message M {}", "message M { message N {} }", []string{"MESSAGE_ADDED #/M/N"}},
	{"a nested message must stay", "message M { message N {} }", "message M {}", []string{"-MESSAGE_REMOVED #/M/N"}},
	{"a message deep down must stay", "message M { message N { message O {} } }", "message M { message N {} }",
		[]string{"-MESSAGE_REMOVED #/M/N/O"}},
	{"all of a message goes at once", "message M {} message N { message O { int32 a = 1; } }", "message M {}",
		[]string{"-MESSAGE_REMOVED #/N"}},
	{"another name is another message", "message M { int32 a = 1; }", "message N { int32 a = 1; }",
		[]string{"-MESSAGE_REMOVED #/M", "MESSAGE_ADDED #/N"}},
	{"another case is another message", "message Mm {}", "message MM {}",
		[]string{"-MESSAGE_REMOVED #/Mm", "MESSAGE_ADDED #/MM"}},
	{"a message that moves inside another is gone", "message M {} message N {}", "message M { message N {} }",
		[]string{"-MESSAGE_REMOVED #/N", "MESSAGE_ADDED #/M/N"}},
	{"a message that moves out of another is gone", "message M { message N {} }", "message M {} message N {}",
		[]string{"MESSAGE_ADDED #/N", "-MESSAGE_REMOVED #/M/N"}},
	{"messages may change places", "message M {} message N {}", "message N {} message M {}",
		[]string{"MESSAGE_MOVED #/N", "MESSAGE_MOVED #/M"}},
	{"nested messages may change places", "message M { message N {} message O {} }", "message M { message O {} message N {} }",
		[]string{"MESSAGE_MOVED #/M/O", "MESSAGE_MOVED #/M/N"}},
	{"a message moves when one comes before it", "message M {}", "message N {} message M {}",
		[]string{"MESSAGE_ADDED #/N", "MESSAGE_MOVED #/M"}},
	{"an enum between messages moves none", "message M {} message N {}", "message M {} enum E { Z = 0; } message N {}",
		[]string{"ENUM_ADDED #/E"}},
	{"a map does not move nested messages", "message M { message N {} }", "message M { map<int32, int32> a = 1; message N {} }",
		[]string{"FIELD_ADDED #/M/1"}},

	{"an enum may come", "message M {}", "message M {} enum E { Z = 0; }", []string{"ENUM_ADDED #/E"}},
	{"an enum may go", "message M {} enum E { Z = 0; }", "message M {}", []string{"ENUM_REMOVED #/E"}},
	{"a nested enum may come", "message M {}", "message M { enum E { Z = 0; } }", []string{"ENUM_ADDED #/M/E"}},
	{"a nested enum may go", "message M { enum E { Z = 0; } }", "message M {}", []string{"ENUM_REMOVED #/M/E"}},
	{"an enum value may come", "enum E { Z = 0; }", "enum E { Z = 0; A = 1; }", []string{"ENUM_CONST_ADDED #/E/1"}},
	{"an enum value may go", "enum E { Z = 0; A = 1; }", "enum E { Z = 0; }", []string{"ENUM_CONST_REMOVED #/E/1"}},
	{"an enum value may change its name", "enum E { Z = 0; A = 1; }", "enum E { Z = 0; B = 1; }",
		[]string{"ENUM_CONST_CHANGED #/E/1"}},
	{"an enum value may change its number", "enum E { Z = 0; A = 1; }", "enum E { Z = 0; A = 2; }",
		[]string{"ENUM_CONST_REMOVED #/E/1", "ENUM_CONST_ADDED #/E/2"}},
	{"enum values may be negative", "enum E { Z = 0; A = -1; }", "enum E { Z = 0; }", []string{"ENUM_CONST_REMOVED #/E/-1"}},
	{"enum values may change places", "enum E { Z = 0; A = 1; B = 2; }", "enum E { Z = 0; B = 2; A = 1; }", nil},
	{"an enum value of a nested enum has a longer path", "message M { enum E { Z = 0; } }", "message M { enum E { Y = 0; } }",
		[]string{"ENUM_CONST_CHANGED #/M/E/0"}},

	{"a field may come", "message M {}", "message M { int32 a = 1; }", []string{"FIELD_ADDED #/M/1"}},
	{"a field may go", "message M { int32 a = 1; }", "message M {}", []string{"FIELD_REMOVED #/M/1"}},
	{"a field may go and be reserved", "message M { int32 a = 1; }", "message M { reserved 1; reserved \"a\"; }",
		[]string{"FIELD_REMOVED #/M/1"}},
	{"a field may change its name", "message M { int32 a = 1; }", "message M { int32 b = 1; }",
		[]string{"FIELD_NAME_CHANGED #/M/1"}},
	{"a field that changes its number goes and comes", "message M { int32 a = 1; }", "message M { int32 a = 2; }",
		[]string{"FIELD_REMOVED #/M/1", "FIELD_ADDED #/M/2"}},
	{"fields may swap names", "message M { int32 a = 1; int32 b = 2; }", "message M { int32 b = 1; int32 a = 2; }",
		[]string{"FIELD_NAME_CHANGED #/M/1", "FIELD_NAME_CHANGED #/M/2"}},
	{"fields may change places", "message M { int32 a = 1; string b = 2; }", "message M { string b = 2; int32 a = 1; }", nil},
	{"a number may be used again within the family", "message M { int32 a = 1; }", "message M { bool b = 1; }",
		[]string{"FIELD_NAME_CHANGED #/M/1"}},
	{"a number may not be used again across families", "message M { int32 a = 1; }", "message M { string b = 1; }",
		[]string{"FIELD_NAME_CHANGED #/M/1", "-FIELD_SCALAR_KIND_CHANGED #/M/1"}},
	{"fields are compared in the order of their numbers", "message M { int32 c = 3; int32 a = 1; }",
		"message M { string c = 3; string a = 1; }",
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/M/1", "-FIELD_SCALAR_KIND_CHANGED #/M/3"}},
	{"fields of nested messages have longer paths", "message M { message N { message O { int32 a = 7; } } }",
		"message M { message N { message O { string a = 7; } } }", []string{"-FIELD_SCALAR_KIND_CHANGED #/M/N/O/7"}},

	{"a scalar is not a message", "message M { int32 a = 1; } message N {}", "message M { N a = 1; } message N {}",
		[]string{"-FIELD_KIND_CHANGED #/M/1"}},
	{"bytes are not a message, though they are encoded alike", "message M { bytes a = 1; } message N {}",
		"message M { N a = 1; } message N {}", []string{"-FIELD_KIND_CHANGED #/M/1"}},
	{"an enum is not a message", "message M { E a = 1; } enum E { Z = 0; } message N {}",
		"message M { N a = 1; } enum E { Z = 0; } message N {}", []string{"-FIELD_KIND_CHANGED #/M/1"}},
	{"a message is not a map", "message M { N a = 1; } message N {}", "message M { map<int32, N> a = 1; } message N {}",
		[]string{"-FIELD_KIND_CHANGED #/M/1"}},
	{"a map is not a list of its entries", "message M { map<string, int32> a = 1; message E { string key = 1; int32 value = 2; } }",
		"message M { repeated E a = 1; message E { string key = 1; int32 value = 2; } }",
		[]string{"-FIELD_KIND_CHANGED #/M/1"}},
	{"a map is not a scalar", "message M { map<string, int32> a = 1; }", "message M { bytes a = 1; }",
		[]string{"-FIELD_KIND_CHANGED #/M/1"}},
	{"a field may hold an enum where it held a number", "message M { int32 a = 1; } enum E { Z = 0; }",
		"message M { E a = 1; } enum E { Z = 0; }", nil},
	{"a field may hold a number where it held an enum", "message M { E a = 1; } enum E { Z = 0; }",
		"message M { uint64 a = 1; } enum E { Z = 0; }", nil},
	{"a field may hold another enum", "message M { E a = 1; } enum E { Z = 0; } enum F { Y = 0; }",
		"message M { F a = 1; } enum E { Z = 0; } enum F { Y = 0; }", nil},
	{"an enum is not a signed number", "message M { E a = 1; } enum E { Z = 0; }", "message M { sint32 a = 1; } enum E { Z = 0; }",
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/M/1"}},
	{"a field may not hold another message", "message M { N a = 1; } message N {} message O {}",
		"message M { O a = 1; } message N {} message O {}", []string{"-FIELD_NAMED_TYPE_CHANGED #/M/1"}},
	{"a field may not hold another message with the same fields", "message M { N a = 1; } message N { int32 x = 1; } message O { int32 x = 1; }",
		"message M { O a = 1; } message N { int32 x = 1; } message O { int32 x = 1; }",
		[]string{"-FIELD_NAMED_TYPE_CHANGED #/M/1"}},
	{"a nested message is another than one at the top", "message M { N a = 1; message N {} } message N {}",
		"message M { .N a = 1; message N {} } message N {}", []string{"-FIELD_NAMED_TYPE_CHANGED #/M/1"}},
	{"the name of a type may be written in full", "package p.q; message M { N a = 1; message N {} }",
		"package p.q; message M { .p.q.M.N a = 1; message N {} }", nil},
	{"the name of a type may be written in part", "package p.q; message M { N a = 1; } message N {}",
		"package p.q; message M { q.N a = 1; } message N {}", nil},
	{"what a message holds is compared in its own place, once", "message M { N a = 1; N b = 2; } message N { int32 x = 1; }",
		"message M { N a = 1; N b = 2; } message N { string x = 1; }", []string{"-FIELD_SCALAR_KIND_CHANGED #/N/1"}},
	{"a message may hold itself", "message M { M m = 1; int32 a = 2; }", "message M { M m = 1; string a = 2; }",
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/M/2"}},
	{"messages may hold each other", "message M { N n = 1; } message N { M m = 1; }",
		"message M { N n = 1; int32 a = 2; } message N { M m = 1; }", []string{"FIELD_ADDED #/M/2"}},

	{"a map's key may change within its family", "message M { map<int32, int32> a = 1; }", "message M { map<int64, int32> a = 1; }", nil},
	{"a map's key may not leave its family", "message M { map<int32, int32> a = 1; }", "message M { map<string, int32> a = 1; }",
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/M/1"}},
	{"a map's value may change within its family", "message M { map<int32, int32> a = 1; }", "message M { map<int32, bool> a = 1; }", nil},
	{"a map's value may not leave its family", "message M { map<int32, int32> a = 1; }", "message M { map<int32, sint32> a = 1; }",
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/M/1"}},
	{"a map's key and value are two", "message M { map<int32, int32> a = 1; }", "message M { map<string, string> a = 1; }",
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/M/1", "-FIELD_SCALAR_KIND_CHANGED #/M/1"}},
	{"a map's value may not become a message", "message M { map<int32, int32> a = 1; } message N {}",
		"message M { map<int32, N> a = 1; } message N {}", []string{"-FIELD_KIND_CHANGED #/M/1"}},
	{"a map's value may not be another message", "message M { map<int32, N> a = 1; } message N {} message O {}",
		"message M { map<int32, O> a = 1; } message N {} message O {}", []string{"-FIELD_NAMED_TYPE_CHANGED #/M/1"}},
	{"a map's value may be an enum instead of a number", "message M { map<int32, int32> a = 1; } enum E { Z = 0; }",
		"message M { map<int32, E> a = 1; } enum E { Z = 0; }", nil},
	{"a map may come", "message M {}", "message M { map<int32, int32> a = 1; }", []string{"FIELD_ADDED #/M/1"}},
	{"a map may go, and its entry is no message", "message M { map<int32, int32> a = 1; }", "message M {}",
		[]string{"FIELD_REMOVED #/M/1"}},
	{"a map may change its name", "message M { map<int32, int32> a = 1; }", "message M { map<int32, int32> b = 1; }",
		[]string{"FIELD_NAME_CHANGED #/M/1"}},

	{"a string's label may change", "2 message M { optional string a = 1; }", "2 message M { repeated string a = 1; }",
		[]string{"FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"}},
	{"the label of bytes may change", "2 message M { repeated bytes a = 1; }", "2 message M { optional bytes a = 1; }",
		[]string{"FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"}},
	{"a string may be required", "2 message M { optional string a = 1; }", "2 message M { required string a = 1; }",
		[]string{"FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"}},
	{"a number's label may not change", "2 message M { optional int32 a = 1; }", "2 message M { repeated int32 a = 1; }",
		[]string{"-FIELD_NUMERIC_LABEL_CHANGED #/M/1"}},
	{"a list of numbers stays one", "2 message M { repeated double a = 1; }", "2 message M { optional double a = 1; }",
		[]string{"-FIELD_NUMERIC_LABEL_CHANGED #/M/1"}},
	{"the label of an enum may not change", "2 enum E { Z = 0; } message M { optional E a = 1; }",
		"2 enum E { Z = 0; } message M { repeated E a = 1; }", []string{"-FIELD_NUMERIC_LABEL_CHANGED #/M/1"}},
	{"a number may not become required", "2 message M { optional int32 a = 1; }", "2 message M { required int32 a = 1; }",
		[]string{"-FIELD_NUMERIC_LABEL_CHANGED #/M/1"}},
	{"a message's label is not compared", "2 message M { optional M a = 1; }", "2 message M { repeated M a = 1; }", nil},
	{"a label that only one side states is not compared", "message M { int32 a = 1; }", "message M { repeated int32 a = 1; }", nil},
	{"nor is one that goes", "message M { repeated int32 a = 1; }", "message M { int32 a = 1; }", nil},
	{"optional in proto3 is no change", "message M { int32 a = 1; }", "message M { optional int32 a = 1; }", nil},
	{"optional in proto3 states a label", "message M { optional int32 a = 1; }", "message M { repeated int32 a = 1; }",
		[]string{"-FIELD_NUMERIC_LABEL_CHANGED #/M/1"}},
	{"a family counts before a label", "2 message M { optional int32 a = 1; }", "2 message M { repeated string a = 1; }",
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/M/1"}},
	{"a list of numbers may not change its family", "message M { repeated int32 a = 1; }", "message M { repeated sint32 a = 1; }",
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/M/1"}},
	{"a required field may not come", "2 message M {}", "2 message M { required int32 a = 1; }",
		[]string{"-REQUIRED_FIELD_ADDED #/M/1"}},
	{"a required field may not go", "2 message M { required int32 a = 1; }", "2 message M {}",
		[]string{"-REQUIRED_FIELD_REMOVED #/M/1"}},
	{"required is required in editions too", `edition = "2023"; message M {}`,
		`edition = "2023"; message M { int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; }`,
		[]string{"-REQUIRED_FIELD_ADDED #/M/1"}},
	{"what a file says holds for its fields", `edition = "2023"; message M { M m = 1; }`,
		`edition = "2023"; option features.message_encoding = DELIMITED; message M { M m = 1; }`,
		[]string{"-FIELD_KIND_CHANGED #/M/1"}},
	{"what a message says holds for its fields, but where they say otherwise", `edition = "2023"; message M { M m = 1; }`,
		`edition = "2023"; option features.message_encoding = DELIMITED;
		message M { M m = 1 [features.message_encoding = LENGTH_PREFIXED]; }`, nil},

	{"a oneof may come with new fields", "message M { int32 a = 1; }", "message M { int32 a = 1; oneof c { int32 b = 2; int32 d = 3; } }",
		[]string{"ONEOF_ADDED #/M/c", "ONEOF_FIELD_ADDED #/M/c/2", "ONEOF_FIELD_ADDED #/M/c/3"}},
	{"one field may go into a new oneof", "message M { int32 a = 1; }", "message M { oneof c { int32 a = 1; } }",
		[]string{"ONEOF_ADDED #/M/c"}},
	{"one field may go into a new oneof with new fields", "message M { int32 a = 1; }",
		"message M { oneof c { int32 a = 1; int32 b = 2; } }", []string{"ONEOF_ADDED #/M/c", "ONEOF_FIELD_ADDED #/M/c/2"}},
	{"several fields may not", "message M { int32 a = 1; int32 b = 2; }", "message M { oneof c { int32 a = 1; int32 b = 2; } }",
		[]string{"-MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/c", "ONEOF_ADDED #/M/c"}},
	{"nor several into one that was", "message M { int32 a = 1; int32 b = 2; oneof c { int32 d = 3; } }",
		"message M { oneof c { int32 a = 1; int32 b = 2; int32 d = 3; } }", []string{"-MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/c"}},
	{"a field may not go into a oneof that was", "message M { int32 a = 1; oneof c { int32 b = 2; } }",
		"message M { oneof c { int32 a = 1; int32 b = 2; } }", []string{"-FIELD_MOVED_TO_EXISTING_ONEOF #/M/c"}},
	{"a field may come in a oneof", "message M { oneof c { int32 b = 2; } }", "message M { oneof c { int32 b = 2; int32 a = 1; } }",
		[]string{"ONEOF_FIELD_ADDED #/M/c/1"}},
	{"a field of a oneof must stay", "message M { oneof c { int32 a = 1; int32 b = 2; } }", "message M { oneof c { int32 b = 2; } }",
		[]string{"-ONEOF_FIELD_REMOVED #/M/c/1"}},
	{"a oneof may go with all its fields", "message M { int32 x = 9; oneof c { int32 a = 1; int32 b = 2; } }", "message M { int32 x = 9; }",
		[]string{"ONEOF_REMOVED #/M/c"}},
	{"a oneof may change its name", "message M { oneof c { int32 a = 1; int32 b = 2; } }", "message M { oneof d { int32 a = 1; int32 b = 2; } }",
		[]string{"ONEOF_REMOVED #/M/c", "ONEOF_ADDED #/M/d"}},
	{"a oneof that changes its name keeps its fields", "message M { oneof c { int32 a = 1; int32 b = 2; } }",
		"message M { oneof d { int32 a = 1; } }",
		[]string{"ONEOF_REMOVED #/M/c", "ONEOF_ADDED #/M/d", "-ONEOF_FIELD_REMOVED #/M/c/2"}},
	{"a oneof may become plain fields", "message M { oneof c { int32 a = 1; int32 b = 2; } }", "message M { int32 a = 1; int32 b = 2; }",
		[]string{"ONEOF_REMOVED #/M/c", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/1", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/2"}},
	{"a oneof that becomes plain fields keeps them all", "message M { oneof c { int32 a = 1; int32 b = 2; } }", "message M { int32 a = 1; }",
		[]string{"ONEOF_REMOVED #/M/c", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/1", "-ONEOF_FIELD_REMOVED #/M/c/2"}},
	{"a field may leave a oneof", "message M { oneof c { int32 a = 1; int32 b = 2; } }", "message M { int32 a = 1; oneof c { int32 b = 2; } }",
		[]string{"ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/1"}},
	{"a field that leaves a oneof keeps its type", "message M { oneof c { int32 a = 1; int32 b = 2; } }",
		"message M { string a = 1; oneof c { int32 b = 2; } }",
		[]string{"ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/1", "-FIELD_SCALAR_KIND_CHANGED #/M/1"}},
	{"a field of a oneof keeps its type", "message M { oneof c { int32 a = 1; } }", "message M { oneof c { string a = 1; } }",
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/M/c/1"}},
	{"a field of a oneof may change its name", "message M { oneof c { int32 a = 1; } }", "message M { oneof c { int32 b = 1; } }",
		[]string{"FIELD_NAME_CHANGED #/M/c/1"}},
	{"oneofs may not merge", "message M { oneof c { int32 a = 1; } oneof d { int32 b = 2; } }", "message M { oneof c { int32 a = 1; int32 b = 2; } }",
		[]string{"-FIELD_MOVED_TO_EXISTING_ONEOF #/M/c", "ONEOF_REMOVED #/M/d"}},
	{"a oneof may split", "message M { oneof c { int32 a = 1; int32 b = 2; } }", "message M { oneof c { int32 a = 1; } oneof d { int32 b = 2; } }",
		[]string{"ONEOF_ADDED #/M/d"}},
	{"a field may not go from one oneof into another", "message M { oneof c { int32 a = 1; int32 b = 2; } oneof d { int32 e = 3; } }",
		"message M { oneof c { int32 a = 1; } oneof d { int32 e = 3; int32 b = 2; } }",
		[]string{"-FIELD_MOVED_TO_EXISTING_ONEOF #/M/d"}},
	{"an optional field is in no oneof", "message M { optional int32 a = 1; }", "message M { oneof c { int32 a = 1; } }",
		[]string{"ONEOF_ADDED #/M/c"}},
	{"two optional fields may not go into one", "message M { optional int32 a = 1; optional int32 b = 2; }",
		"message M { oneof c { int32 a = 1; int32 b = 2; } }",
		[]string{"-MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/c", "ONEOF_ADDED #/M/c"}},
	{"an optional field may go", "message M { optional int32 a = 1; }", "message M {}", []string{"FIELD_REMOVED #/M/1"}},
	{"a oneof of a nested message has a longer path", "message M { message N { oneof c { int32 a = 1; int32 b = 2; } } }",
		"message M { message N { oneof c { int32 b = 2; } } }", []string{"-ONEOF_FIELD_REMOVED #/M/N/c/1"}},
	{"oneofs are compared in the order of their names", "message M { oneof z { int32 a = 1; } oneof y { int32 b = 2; } }", "message M {}",
		[]string{"ONEOF_REMOVED #/M/y", "ONEOF_REMOVED #/M/z"}},

	{"a group is not a message", "2 message M { optional group G = 1 { optional int32 a = 1; } }",
		"2 message M { optional G g = 1; message G { optional int32 a = 1; } }",
		[]string{"-FIELD_KIND_CHANGED #/M/1", "MESSAGE_ADDED #/M/G"}},
	{"a group may go", "2 message M { optional group G = 1 { optional int32 a = 1; } }", "2 message M {}", []string{"FIELD_REMOVED #/M/1"}},
	{"a group may change its name", "2 message M { optional group G = 1 { optional int32 a = 1; } }",
		"2 message M { optional group H = 1 { optional int32 a = 1; } }", []string{"FIELD_NAME_CHANGED #/M/1"}},
	{"what a group holds counts", "2 message M { optional group G = 1 { optional int32 a = 1; } }",
		"2 message M { optional group G = 1 { optional string a = 1; } }", []string{"-FIELD_SCALAR_KIND_CHANGED #/M/G/1"}},
	{"a message that editions write as a group is not a plain one", `edition = "2023"; message M { M m = 1; }`,
		`edition = "2023"; message M { M m = 1 [features.message_encoding = DELIMITED]; }`,
		[]string{"-FIELD_KIND_CHANGED #/M/1"}},
}

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
	for _, c := range importCases {
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

const imports = `import "i.proto"; `

var importCases = []importCase{
	{"an import's message is compared at its own path, and where it is used",
		imports + "message M { N n = 3; }", "message N { int32 a = 1; }",
		imports + "message M { N n = 3; }", "message N { string a = 1; }", 2,
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/N/1", "-FIELD_NAMED_TYPE_CHANGED #/M/3"}},
	{"compatible changes of an import are listed",
		imports + "message M { N n = 3; }", "message N { int32 a = 1; }",
		imports + "message M { N n = 3; }", "message N { int32 b = 1; }", 2, []string{"FIELD_NAME_CHANGED #/N/1"}},
	{"one version of one subject is the same, whatever it holds",
		imports + "message M { N n = 3; }", "message N { int32 a = 1; }",
		imports + "message M { N n = 3; }", "message N { string a = 1; }", 0, nil},
	{"what an import does not lend is not compared",
		imports + "message M { N n = 3; }", "message N {} message O { int32 a = 1; }",
		imports + "message M { N n = 3; }", "message N {}", 2, nil},
	{"an import's package may change",
		imports + "message M { p.N n = 3; }", "package p; message N { int32 a = 1; }",
		imports + "message M { q.N n = 3; }", "package q; message N { int32 a = 1; }", 2, nil},
	{"an import's nested message may not become one of the top",
		imports + "message M { p.O.N n = 3; }", "package p; message O { message N { int32 a = 1; } }",
		imports + "message M { p.N n = 3; }", "package p; message N { int32 a = 1; }", 2,
		[]string{"-FIELD_NAMED_TYPE_CHANGED #/M/3"}},
	{"a message may not move to an import",
		"message M { N n = 3; } message N { int32 a = 1; }", "",
		imports + "message M { N n = 3; }", "message N { int32 a = 1; }", 1, []string{"-MESSAGE_REMOVED #/N"}},
	{"a message may come from an import",
		imports + "message M { N n = 3; }", "message N { int32 a = 1; }",
		"message M { N n = 3; } message N { int32 a = 1; }", "", 0, []string{"MESSAGE_ADDED #/N"}},
	{"a message that comes from an import must fit",
		imports + "message M { N n = 3; }", "message N { int32 a = 1; }",
		"message M { N n = 3; } message N { string a = 1; }", "", 0,
		[]string{"MESSAGE_ADDED #/N", "-FIELD_SCALAR_KIND_CHANGED #/N/1", "-FIELD_NAMED_TYPE_CHANGED #/M/3"}},
	{"an import's messages hold each other",
		imports + "message M { N n = 3; }", "message N { O o = 1; } message O { N n = 1; int32 a = 2; }",
		imports + "message M { N n = 3; }", "message N { O o = 1; } message O { N n = 1; string a = 2; }", 2,
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/O/2", "-FIELD_NAMED_TYPE_CHANGED #/N/1", "-FIELD_NAMED_TYPE_CHANGED #/M/3"}},
	{"an import's message is listed once, and counts wherever it is used",
		imports + "message M { N n = 3; N m = 4; }", "message N { int32 a = 1; }",
		imports + "message M { N n = 3; N m = 4; }", "message N { string a = 1; }", 2,
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/N/1", "-FIELD_NAMED_TYPE_CHANGED #/M/3", "-FIELD_NAMED_TYPE_CHANGED #/M/4"}},
	{"an import's nested messages are compared with it",
		imports + "message M { N n = 3; }", "message N { message O {} }",
		imports + "message M { N n = 3; }", "message N {}", 2,
		[]string{"-MESSAGE_REMOVED #/N/O", "-FIELD_NAMED_TYPE_CHANGED #/M/3"}},
	{"a map's values may come from an import",
		imports + "message M { map<int32, N> n = 3; }", "message N { int32 a = 1; }",
		imports + "message M { map<int32, N> n = 3; }", "message N { string a = 1; }", 2,
		[]string{"-FIELD_SCALAR_KIND_CHANGED #/N/1", "-FIELD_NAMED_TYPE_CHANGED #/M/3"}},
	{"an import's enum does not count",
		imports + "message M { E e = 3; }", "enum E { Z = 0; A = 1; }",
		imports + "message M { E e = 3; }", "enum E { Z = 0; }", 2, nil},
	{"a built-in import is the same on both sides",
		`import "google/protobuf/struct.proto"; message M { google.protobuf.Value v = 1; }`, "",
		`import "google/protobuf/struct.proto"; message M { google.protobuf.Value v = 1; }`, "", 0, nil},
	{"another built-in message is another",
		`import "google/type/date.proto"; message M { google.type.Date v = 1; }`, "",
		`import "google/type/latlng.proto"; message M { google.type.LatLng v = 1; }`, "", 0,
		[]string{"-FIELD_NAMED_TYPE_CHANGED #/M/1"}},
}

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
			"message M { .N n = 1; message N {} x.Y y = 2; } message N {}", []string{"-FIELD_NAMED_TYPE_CHANGED #/M/1"}},
		{"an enum that does not begin with zero", "enum E { A = 1; } message M { E e = 1; }", "enum E { B = 1; } message M { int32 e = 1; }",
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
		{"one value becomes a list", "message M { int32 a = 1; }", "message M { repeated int32 a = 1; }", "reads one value as a list"},
		{"a list becomes one value", "message M { repeated M a = 1; }", "message M { M a = 1; }", "of several values"},
		{"a message becomes required", "2 message M { optional M a = 1; }", "2 message M { required M a = 1; }", "cannot be read"},
		{"a string becomes required", "2 message M { optional string a = 1; }", "2 message M { required string a = 1; }", "cannot be read"},
		{"the first message is another", "message M {} message N {}", "message N {} message M {}", "payloads name messages by number"},
		{"bytes become a string", "message M { bytes a = 1; }", "message M { string a = 1; }", "not UTF-8"},
		{"a number shrinks", "message M { int64 a = 1; }", "message M { int32 a = 1; }", "large numbers are cut"},
		{"a number becomes a bool", "message M { int32 a = 1; }", "message M { bool a = 1; }", "large numbers are cut"},
		{"a number becomes a closed enum", "2 enum E { Z = 0; } message M { optional int32 a = 1; }",
			"2 enum E { Z = 0; } message M { optional E a = 1; }", "reads as not set"},
		{"a value of a closed enum goes", "2 enum E { Z = 0; A = 1; }", "2 enum E { Z = 0; }", "unknown to the new schema"},
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
		{"a reserved field is there in a oneof", nil, []string{"b"}, []string{"-FIELD_CONFLICTS_WITH_RESERVED_FIELD b"}},
		{"a reserved field is there by its path", nil, []string{"M.N.d"}, []string{"-FIELD_CONFLICTS_WITH_RESERVED_FIELD M.N.d"}},
		{"a nested field is not meant by its name alone", nil, []string{"d"}, nil},
	} {
		got, err := f.Compare(newer, older, schema.CompareOptions{
			ReaderName: "new", WriterName: "old", ValidateFields: true, ReaderReserved: c.after, WriterReserved: c.before,
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
	require.Equal(t, `{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The field at path '#/M/1' is encoded otherwise `+
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
