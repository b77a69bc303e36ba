package protobuf_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"millrace/schemaregistry/schema"
)

func TestValidTexts(t *testing.T) {
	for _, text := range []string{
		"message M {}", "2 message M { required int32 a = 1; }", `edition = "2023"; message M { int32 a = 1; }`,
		"message M { int32 message = 1; int32 syntax = 2; int32 package = 3; }",
		"message M { reserved 1 to max; }", "message M { int32 a = 536870911; }",
		"2 message M { extensions 1 to max; }", "enum E { Z = 0; A = 2147483647; B = -2147483648; }",
		"message M { map<string, M> m = 1; repeated M l = 2; oneof o { M a = 3; string b = 4; } optional bytes c = 5; }",
		"service S { rpc A (M) returns (stream M); } message M {}",
		"package a.b.c; message M { b.c.M m = 1; }", ";;; message M { ; } ;",
		"message M { int32 a = 1 [deprecated = true, json_name = \"b\"]; }",
		`message M { option (confluent.message_meta) = { doc: "d" tags: ["PII"] params: { key: "k" value: "v" } }; }`,
		`import "confluent/type/decimal.proto"; import "confluent/type/variant.proto"; import "confluent/meta.proto";
			message M { confluent.type.Decimal d = 1; confluent.type.Variant v = 2; confluent.Meta m = 3; }`,
	} {
		_, err := format().Parse(source(text), nil, schema.ParseOptions{Strict: true})
		require.NoError(t, err, text)
	}
	s, err := format().Parse("\ufeff"+head+"message M {}", nil, schema.ParseOptions{Strict: true})
	require.NoError(t, err)
	require.Equal(t, asIs(t, head+"message M {}").Text(), s.Text())
}

// Options that nothing declares are kept as they are written.
func TestUndeclaredOptions(t *testing.T) {
	text := `syntax = "proto3";
package p;

import "google/protobuf/descriptor.proto";

option (.some.where).part = "f";

message M {
  option (some_ref) = "https://example.org";

  oneof o {
    option (some_ref) = true;
    int32 a = 1 [(known) = 5, (unknown) = 6];
  }

  enum E {
    option (some_ref) = {a: [1, 2]};
    Z = 0;
  }
}

extend google.protobuf.FieldOptions {
  int32 known = 5000;
}
`
	for _, normalize := range []bool{false, true} {
		s, err := format().Parse(text, nil, schema.ParseOptions{Strict: true, Normalize: normalize})
		require.NoError(t, err)
		for _, kept := range []string{`(.some.where).part = "f"`, `(some_ref) = "https://example.org"`, "(unknown) = 6"} {
			require.Contains(t, s.Text(), kept)
		}
		require.Equal(t, 3, strings.Count(s.Text(), "(some_ref)"))
		again, err := format().Parse(s.Text(), nil, schema.ParseOptions{Strict: true, Normalize: normalize})
		require.NoError(t, err)
		require.Equal(t, s.Text(), again.Text())
		codec, err := s.Codec()
		require.NoError(t, err)
		require.NotNil(t, codec)
	}
}

const head = "syntax = \"proto3\";\n"

// Every file that needs no reference is there.
func TestBuiltinImports(t *testing.T) {
	for path, names := range map[string]string{
		"google/protobuf/any.proto":            "google.protobuf.Any",
		"google/protobuf/api.proto":            "google.protobuf.Api",
		"google/protobuf/descriptor.proto":     "google.protobuf.FileDescriptorProto",
		"google/protobuf/duration.proto":       "google.protobuf.Duration",
		"google/protobuf/empty.proto":          "google.protobuf.Empty",
		"google/protobuf/field_mask.proto":     "google.protobuf.FieldMask",
		"google/protobuf/source_context.proto": "google.protobuf.SourceContext",
		"google/protobuf/struct.proto":         "google.protobuf.Struct google.protobuf.Value google.protobuf.NullValue",
		"google/protobuf/timestamp.proto":      "google.protobuf.Timestamp",
		"google/protobuf/type.proto":           "google.protobuf.Type",
		"google/protobuf/wrappers.proto":       "google.protobuf.StringValue",
		"google/type/calendar_period.proto":    "google.type.CalendarPeriod",
		"google/type/color.proto":              "google.type.Color",
		"google/type/date.proto":               "google.type.Date",
		"google/type/datetime.proto":           "google.type.DateTime google.type.TimeZone",
		"google/type/dayofweek.proto":          "google.type.DayOfWeek",
		"google/type/decimal.proto":            "google.type.Decimal",
		"google/type/expr.proto":               "google.type.Expr",
		"google/type/fraction.proto":           "google.type.Fraction",
		"google/type/interval.proto":           "google.type.Interval",
		"google/type/latlng.proto":             "google.type.LatLng",
		"google/type/money.proto":              "google.type.Money",
		"google/type/month.proto":              "google.type.Month",
		"google/type/phone_number.proto":       "google.type.PhoneNumber google.type.PhoneNumber.ShortCode",
		"google/type/postal_address.proto":     "google.type.PostalAddress",
		"google/type/quaternion.proto":         "google.type.Quaternion",
		"google/type/timeofday.proto":          "google.type.TimeOfDay",
		"confluent/meta.proto":                 "confluent.Meta",
		"confluent/type/decimal.proto":         "confluent.type.Decimal",
		"confluent/type/variant.proto":         "confluent.type.Variant",
	} {
		text := `import "` + path + `"; message M {`
		for i, name := range strings.Fields(names) {
			text += name + " f" + itoa(i) + " = " + itoa(i+1) + "; "
		}
		parse(t, text+"}")
	}
}

// invalidCase is a text, and what the error says of it.
type invalidCase struct{ name, text, want string }

func TestInvalidTexts(t *testing.T) {
	for _, c := range append(invalidCases(), invalidDescriptors(t)...) {
		_, err := format().Parse(c.text, nil, schema.ParseOptions{Strict: true})
		require.ErrorIs(t, err, schema.ErrInvalid, c.name)
		require.ErrorContains(t, err, c.want, c.name)
		require.NotContains(t, err.Error(), "default:", c.name)
	}
}

func invalidCases() []invalidCase {
	return []invalidCase{
		{"nothing", "", "empty"},
		{"blanks", " \n\t", "empty"},
		{"not the language", `{"type": "record"}`, "line 1, column 1: "},
		{"a word", "message", "line 1, column 8: "},
		{"a brace is missing", "syntax = \"proto3\";\nmessage M {", "line 2, column 12: "},
		{"a semicolon is missing", "syntax = \"proto3\";\nmessage M { int32 a = 1 }", "line 2, column 25: "},
		{"an unknown syntax", `syntax = "proto4"; message M {}`,
			`line 1, column 10: syntax value must be "proto2" or "proto3"`},
		{"an unknown edition", `edition = "2099"; message M {}`, "line 1, column 11: "},
		{"an unknown type", "syntax = \"proto3\";\nmessage M {\n  Nothing a = 1;\n}",
			"line 3, column 3: field M.a: unknown type Nothing"},
		{"number 0", "syntax = \"proto3\"; message M { int32 a = 0; }", "line 1, column 42: "},
		{"a number that is too large", "syntax = \"proto3\"; message M { int32 a = 536870912; }",
			"line 1, column 42: "},
		{"a number that the language keeps", "syntax = \"proto3\"; message M { int32 a = 19000; }",
			"line 1, column 42: "},
		{"a number twice", "syntax = \"proto3\"; message M { int32 a = 1; int32 b = 1; }",
			"line 1, column 55: message M: fields a and b both have the same tag 1"},
		{"a name twice", "syntax = \"proto3\"; message M { int32 a = 1; int32 a = 2; }", "line 1, column 51: "},
		{"two names that are one in JSON", "syntax = \"proto3\"; message M { int32 a_b = 1; int32 aB = 2; }",
			"line 1, column "},
		{"a message twice", "syntax = \"proto3\"; message M {} message M {}", "line 1, column 41: "},
		{"a reserved number", "syntax = \"proto3\"; message M { reserved 1; int32 a = 1; }", "line 1, column 54: "},
		{"a reserved name", "syntax = \"proto3\"; message M { reserved \"a\"; int32 a = 1; }", "line 1, column 52: "},
		{"required in proto3", "syntax = \"proto3\"; message M { required int32 a = 1; }", "line 1, column 32: "},
		{"a group in proto3", "syntax = \"proto3\"; message M { optional group G = 1 {} }", "line 1, column "},
		{"a default in proto3", "syntax = \"proto3\"; message M { int32 a = 1 [default = 5]; }", "line 1, column "},
		{"a field without a label in proto2", "message M { int32 a = 1; }", "line 1, column 19: "},
		{"an enum without zero in proto3", "syntax = \"proto3\"; enum E { A = 1; }", "line 1, column "},
		{"an enum without values", "syntax = \"proto3\"; enum E {}", "line 1, column "},
		{"an enum value twice", "syntax = \"proto3\"; enum E { A = 0; B = 0; }", "line 1, column "},
		{"enum values share a scope", "syntax = \"proto3\"; enum E { A = 0; } enum F { A = 0; }",
			"line 1, column 47: "},
		{"a map in a oneof", "syntax = \"proto3\"; message M { oneof o { map<int32, int32> a = 1; } }",
			"line 1, column "},
		{"a repeated map", "syntax = \"proto3\"; message M { repeated map<int32, int32> a = 1; }", "line 1, column "},
		{"a map by a float", "syntax = \"proto3\"; message M { map<float, int32> a = 1; }", "line 1, column "},
		{"a oneof without fields", "syntax = \"proto3\"; message M { oneof o {} }", "line 1, column "},
		{"an unknown option", "syntax = \"proto3\"; option nothing = 1; message M {}", "line 1, column 27: "},
		{"an option that is for other things",
			"syntax = \"proto3\"; import \"google/protobuf/descriptor.proto\"; " +
				"extend google.protobuf.FileOptions { int32 x = 5000; } message M { option (x) = 1; }",
			"line 1, column "},
		{"an option of another type", "syntax = \"proto3\"; option java_package = 1; message M {}",
			"line 1, column 42: "},
		{"a dangling import", "syntax = \"proto3\";\nimport \"nothing.proto\";\nmessage M {}",
			`line 2, column 8: import "nothing.proto" is not known`},
		{"an import of a file of this machine", "syntax = \"proto3\";\nimport \"/etc/hosts\";\nmessage M {}",
			"is not known"},
		{"an import from the network",
			"syntax = \"proto3\";\nimport \"http://localhost/x.proto\";\nmessage M {}", "is not known"},
		{"an import twice",
			"syntax = \"proto3\";\nimport \"google/protobuf/any.proto\";\n" +
				"import \"google/protobuf/any.proto\";", "line 3, column 1: "},
		{"a type that is not imported", "syntax = \"proto3\"; message M { google.protobuf.Any a = 1; }",
			"line 1, column 32: "},
		{"a request that is no message",
			"syntax = \"proto3\"; service S { rpc A (E) returns (E); } enum E { Z = 0; }", "line 1, column "},
		{"an entry of a map that nothing uses",
			"syntax = \"proto3\"; message M { message E {" +
				" option map_entry = true; int32 key = 1; int32 value = 2; } }", "line 1, column "},
		{"33 levels of messages", "syntax = \"proto3\";" + strings.Repeat("message M {", 40) +
			strings.Repeat("}", 40), "line 1, column "},
	}
}

func invalidDescriptors(t *testing.T) []invalidCase {
	t.Helper()
	return []invalidCase{
		{"base64 of something else", base64.StdEncoding.EncodeToString([]byte("hello, world")), "line 1, column "},
		{"base64 of a descriptor that does not hold together", descriptorText(t,
			func(d *descriptorpb.FileDescriptorProto) {
				d.MessageType[0].Field[0].TypeName = proto.String(".Nothing")
				d.MessageType[0].Field[0].Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
			}), "does not hold together"},
		{"base64 of a descriptor with names that are none", descriptorText(t,
			func(d *descriptorpb.FileDescriptorProto) {
				d.MessageType[0].Name = proto.String("M {} message N")
			}), "does not hold together"},
	}
}

// descriptorText is a descriptor in base64, changed by fn.
func descriptorText(t *testing.T, fn func(*descriptorpb.FileDescriptorProto)) string {
	t.Helper()
	d := descriptorOf(t, parse(t, "message M { int32 a = 1; }"))
	fn(d)
	raw, err := proto.Marshal(d)
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(raw)
}

func TestDependencies(t *testing.T) {
	strict := schema.ParseOptions{Strict: true}
	a := dependency("a.proto", `import "b.proto"; package p; message A { B b = 1; }`)
	b := dependency("b.proto", "package p; message B { int32 n = 1; }")
	text := source(`import "a.proto"; message M { p.A a = 1; }`)
	s, err := format().Parse(text, []schema.Dependency{b, a}, strict)
	require.NoError(t, err)
	c, err := s.Codec()
	require.NoError(t, err)
	out, err := c.Decode(nil, field(1, field(1, varint(1, 5))))
	require.NoError(t, err)
	require.JSONEq(t, `{"a":{"b":{"n":5}}}`, string(out))

	for _, c := range []struct {
		name string
		deps []schema.Dependency
		text string
		want string
	}{
		{"a dependency's import is missing", []schema.Dependency{a}, text,
			`import "a.proto": line 2, column 8: import "b.proto" is not known`},
		{"dependencies import each other", []schema.Dependency{dependency("b.proto",
			`import "a.proto"; package p; message B { A a = 1; }`), a},
			text, `import "b.proto": line 2, column 8: import "a.proto" is not known`},
		{"a dependency imports itself", []schema.Dependency{dependency("a.proto",
			`import "a.proto"; message A {}`)}, text, `import "a.proto" is not known`},
		{"a dependency is broken", []schema.Dependency{dependency("a.proto", "message {")}, text,
			`import "a.proto": line 2, column 9: `},
		{"two files have one name", []schema.Dependency{b, a},
			source(`import "a.proto"; package p; message A {}`), "line 2, column "},
		{"what a dependency imports is not lent on", []schema.Dependency{b, a},
			source(`import "a.proto"; message M { p.B b = 1; }`), "line 2, column "},
	} {
		_, err := format().Parse(c.text, c.deps, strict)
		require.ErrorIs(t, err, schema.ErrInvalid, c.name)
		require.ErrorContains(t, err, c.want, c.name)
	}

	// What an import lends on publicly is there; a dependency may have any name; the language's own are its own.
	_, err = format().Parse(source(`import "pub.proto"; message M { p.B b = 1; }`),
		[]schema.Dependency{b, dependency("pub.proto", `import public "b.proto";`)}, strict)
	require.NoError(t, err)
	_, err = format().Parse(source(`import "default"; message M { p.B b = 1; }`),
		[]schema.Dependency{dependency("default", b.Text)}, strict)
	require.NoError(t, err)
	_, err = format().Parse(source(`import "google/protobuf/any.proto"; message M { google.protobuf.Any a = 1; }`),
		[]schema.Dependency{dependency("google/protobuf/any.proto", "message Nonsense {")}, strict)
	require.NoError(t, err)
	_, err = format().Parse(source(`import "google/type/money.proto"; message M { my.Money a = 1; }`),
		[]schema.Dependency{dependency("google/type/money.proto", "package my; message Money {}")}, strict)
	require.NoError(t, err, "a reference comes before a built-in file")
	s, err = format().Parse(source(`import "d.proto"; message M { p.B b = 1; }`),
		[]schema.Dependency{{Name: "d.proto", Text: parse(t, b.Text).Format("serialized")}}, strict)
	require.NoError(t, err, "a dependency may be a descriptor")
	require.Equal(t, "M", s.Name())
}

// A schema of a built-in file is like any other.
func TestBuiltinFilesAsSchemas(t *testing.T) {
	for _, name := range []string{"timestamp", "struct", "descriptor", "any", "wrappers", "type", "api"} {
		s := parse(t, `import public "google/protobuf/`+name+`.proto";`)
		require.NotEmpty(t, s.Name())
		c, err := s.Codec()
		require.NoError(t, err, name)
		require.NoError(t, c.Check(nil), name)
	}
	d := (&descriptorpb.FileDescriptorProto{}).ProtoReflect().Descriptor().ParentFile()
	raw, err := proto.Marshal(protoOf(d))
	require.NoError(t, err)
	s, err := format().Parse(base64.StdEncoding.EncodeToString(raw), nil, schema.ParseOptions{Strict: true})
	require.NoError(t, err)
	require.Equal(t, "google.protobuf.FileDescriptorSet", s.Name())
	again, err := format().Parse(s.Text(), nil, schema.ParseOptions{Strict: true, Normalize: true})
	require.NoError(t, err)
	require.Empty(t, compare(t, s, again).Differences)
}
