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

func normal(t *testing.T, text string, deps ...schema.Dependency) schema.Schema {
	t.Helper()
	s, err := format().Parse(text, deps, schema.ParseOptions{Strict: true, Normalize: true})
	require.NoError(t, err, text)
	return s
}

// canonicalCase is a text, its canonical form and its normal form; an empty one is the same as the one before it.
type canonicalCase struct{ name, in, canonical, normal string }

func TestCanonicalText(t *testing.T) {
	for _, c := range canonicalCases {
		t.Run(c.name, func(t *testing.T) {
			want := c.canonical
			if want == "" {
				want = c.in
			}
			s := asIs(t, c.in)
			require.Equal(t, want, s.Text())
			require.Equal(t, want, asIs(t, want).Text())
			require.Equal(t, want, s.Format(""))
			require.Equal(t, want, s.Format("no such format"))
			if c.normal != "" {
				want = c.normal
			}
			n := normal(t, c.in)
			require.Equal(t, want, n.Text())
			require.Equal(t, want, normal(t, s.Text()).Text())
			require.Equal(t, want, normal(t, want).Text())
			require.Equal(t, want, asIs(t, want).Text(), "what is normal is canonical")
			require.True(t, proto.Equal(ordered(t, s), ordered(t, asIs(t, s.Text()))))
		})
	}
}

// descriptorOf reads what Format("serialized") gives.
func descriptorOf(t require.TestingT, s schema.Schema) *descriptorpb.FileDescriptorProto {
	raw, err := base64.StdEncoding.DecodeString(s.Format("serialized"))
	require.NoError(t, err)
	d := &descriptorpb.FileDescriptorProto{}
	require.NoError(t, proto.Unmarshal(raw, d))
	return d
}

var canonicalCases = []canonicalCase{
	{name: "one message", in: "syntax=\"proto3\";message M{int32 a=1;}",
		canonical: "syntax = \"proto3\";\n\nmessage M {\n  int32 a = 1;\n}\n"},
	{name: "comments and blanks go", in: "// a\nsyntax = \"proto3\"; /* b */\n\n\npackage  p . q ; // c\nmessage M { // d\n /* e */ }",
		canonical: "syntax = \"proto3\";\npackage p.q;\n\nmessage M {}\n"},
	{name: "without a syntax", in: "package p;\n\nmessage M {\n  optional int32 a = 1;\n}\n"},
	{name: "an explicit proto2", in: "syntax = \"proto2\";\npackage p;\n\nmessage M {\n  required int32 a = 1;\n}\n",
		normal: "package p;\n\nmessage M {\n  required int32 a = 1;\n}\n"},
	{name: "an edition", in: "edition = \"2023\";\npackage p;\n\nmessage M {\n  reserved a, b;\n\n  int32 c = 1;\n}\n",
		normal: "edition = \"2023\";\npackage p;\n\nmessage M {\n  reserved a;\n  reserved b;\n\n  int32 c = 1;\n}\n"},
	{name: "parts of a file in their order",
		in: "syntax = 'proto3'; service S { rpc A (M) returns (stream M); } enum E { Z = 0; } message M { E e = 1; } " +
			"option java_package = \"a\"; import \"google/protobuf/empty.proto\"; package p;",
		canonical: "syntax = \"proto3\";\npackage p;\n\nimport \"google/protobuf/empty.proto\";\n\noption java_package = \"a\";\n\n" +
			"message M {\n  E e = 1;\n}\nenum E {\n  Z = 0;\n}\n\nservice S {\n  rpc A (M) returns (stream M);\n}\n",
		normal: "syntax = \"proto3\";\npackage p;\n\nimport \"google/protobuf/empty.proto\";\n\noption java_package = \"a\";\n\n" +
			"message M {\n  .p.E e = 1;\n}\nenum E {\n  Z = 0;\n}\n\nservice S {\n  rpc A (.p.M) returns (stream .p.M);\n}\n"},
	{name: "parts of a message in their order",
		in: "message M { enum E { Z = 0; } message N {} extend M { optional int32 x = 100; } extensions 100 to max; " +
			"oneof o { int32 a = 4; string b = 3; } optional int32 d = 2; repeated string c = 1; option deprecated = true; reserved 9, 10 to 12; }",
		canonical: "\nmessage M {\n  reserved 9, 10 to 12;\n\n  option deprecated = true;\n\n  optional int32 d = 2;\n  repeated string c = 1;\n\n" +
			"  oneof o {\n    int32 a = 4;\n    string b = 3;\n  }\n\n  extensions 100 to max;\n\n  extend M {\n    optional int32 x = 100;\n  }\n\n" +
			"  message N {}\n  enum E {\n    Z = 0;\n  }\n}\n",
		normal: "\nmessage M {\n  reserved 9;\n  reserved 10 to 12;\n\n  option deprecated = true;\n\n  repeated string c = 1;\n  optional int32 d = 2;\n\n" +
			"  oneof o {\n    string b = 3;\n    int32 a = 4;\n  }\n\n  extensions 100 to max;\n\n  extend .M {\n    optional int32 x = 100;\n  }\n\n" +
			"  message N {}\n  enum E {\n    Z = 0;\n  }\n}\n"},
	{name: "a blank line is as deep as the body's brace",
		in:        "syntax = \"proto3\"; message M { message N { reserved 5; message O {} int32 a = 1; } }",
		canonical: "syntax = \"proto3\";\n\nmessage M {\n  message N {\n    reserved 5;\n  \n    int32 a = 1;\n  \n    message O {}\n  }\n}\n"},
	{name: "imports are sorted, public ones last and apart",
		in: "syntax = \"proto3\";\n\nimport \"google/type/money.proto\";\nimport public \"google/type/month.proto\";\n" +
			"import \"google/type/date.proto\";\nimport public \"google/type/expr.proto\";\n",
		canonical: "syntax = \"proto3\";\n\nimport \"google/type/money.proto\";\nimport \"google/type/date.proto\";\n" +
			"import public \"google/type/month.proto\";\nimport public \"google/type/expr.proto\";\n",
		normal: "syntax = \"proto3\";\n\nimport \"google/type/date.proto\";\nimport \"google/type/money.proto\";\n" +
			"import public \"google/type/expr.proto\";\nimport public \"google/type/month.proto\";\n"},
	{name: "names of types in full",
		in: "syntax = \"proto3\";\npackage p.q;\n\nmessage M {\n  N a = 1;\n  q.M.N b = 2;\n  .p.q.M.N c = 3;\n  map<string, N> d = 4;\n\n  message N {}\n}\n",
		normal: "syntax = \"proto3\";\npackage p.q;\n\nmessage M {\n  .p.q.M.N a = 1;\n  .p.q.M.N b = 2;\n  .p.q.M.N c = 3;\n" +
			"  map<string, .p.q.M.N> d = 4;\n\n  message N {}\n}\n"},
	{name: "enum values by number, then name",
		in:        "enum E {\n  reserved 9, 12 to max, -7;\n  option allow_alias = true;\n  A = 2;\n  B = 0x1;\n  D = -1;\n  C = 1;\n}\n",
		canonical: "\nenum E {\n  reserved 9, 12 to max, -7;\n  option allow_alias = true;\n  A = 2;\n  B = 1;\n  D = -1;\n  C = 1;\n}\n",
		normal:    "\nenum E {\n  reserved -7;\n  reserved 9;\n  reserved 12 to max;\n  option allow_alias = true;\n  D = -1;\n  B = 1;\n  C = 1;\n  A = 2;\n}\n"},
	{name: "oneofs by their first number",
		in:     "syntax = \"proto3\";\n\nmessage M {\n  oneof y {\n    int32 a = 4;\n    int32 b = 3;\n  }\n  oneof x {\n    int32 c = 2;\n    int32 d = 5;\n  }\n}\n",
		normal: "syntax = \"proto3\";\n\nmessage M {\n  oneof x {\n    int32 c = 2;\n    int32 d = 5;\n  }\n  oneof y {\n    int32 b = 3;\n    int32 a = 4;\n  }\n}\n"},
	{name: "the order of messages, enums, services and methods stays",
		in: "syntax = \"proto3\";\n\nmessage Z {}\nmessage A {\n  message Z {}\n  message A {}\n}\nenum Y {\n  Y0 = 0;\n}\nenum B {\n  B0 = 0;\n}\n\n" +
			"service X {\n  rpc Y (A) returns (A);\n  rpc B (A) returns (A);\n}\nservice C {}\n",
		normal: "syntax = \"proto3\";\n\nmessage Z {}\nmessage A {\n  message Z {}\n  message A {}\n}\nenum Y {\n  Y0 = 0;\n}\nenum B {\n  B0 = 0;\n}\n\n" +
			"service X {\n  rpc Y (.A) returns (.A);\n  rpc B (.A) returns (.A);\n}\nservice C {}\n"},
	{name: "options of fields, one in the line and several on their own",
		in:        "message M {\n  optional int32 a = 1 [default = 0x10];\n  optional string b = 2 [\n    json_name = \"x\",\n    deprecated = true,\n    default = \"d\"\n  ];\n}\n",
		canonical: "\nmessage M {\n  optional int32 a = 1 [default = 0x10];\n  optional string b = 2 [\n    json_name = \"x\",\n    deprecated = true,\n    default = \"d\"\n  ];\n}\n",
		normal:    "\nmessage M {\n  optional int32 a = 1 [default = 16];\n  optional string b = 2 [\n    default = \"d\",\n    deprecated = true,\n    json_name = \"x\"\n  ];\n}\n"},
	{name: "a JSON name that says nothing new stays",
		in: "syntax = \"proto3\";\n\nmessage M {\n  int32 a_b = 1 [json_name = \"aB\"];\n  int32 c_d = 2;\n}\n"},
	{name: "defaults of every kind",
		in: "message M { optional float a = 1 [default = -inf]; optional double b = 2 [default = nan]; optional double c = 3 [default = 1.50]; " +
			"optional bool d = 4 [default = true]; optional bytes e = 5 [default = '\\001\\xff\"\\n']; optional E f = 6 [default = A]; " +
			"optional sint64 g = 7 [default = - 5]; optional double h = 8 [default = 1e30]; optional float i = 9 [default = 0.1]; enum E { A = 1; } }",
		canonical: "\nmessage M {\n  optional float a = 1 [default = -inf];\n  optional double b = 2 [default = nan];\n  optional double c = 3 [default = 1.50];\n" +
			"  optional bool d = 4 [default = true];\n  optional bytes e = 5 [default = \"\\001\\377\\\"\\n\"];\n  optional E f = 6 [default = A];\n" +
			"  optional sint64 g = 7 [default = -5];\n  optional double h = 8 [default = 1e30];\n  optional float i = 9 [default = 0.1];\n\n  enum E {\n    A = 1;\n  }\n}\n",
		normal: "\nmessage M {\n  optional float a = 1 [default = -inf];\n  optional double b = 2 [default = nan];\n  optional double c = 3 [default = 1.5];\n" +
			"  optional bool d = 4 [default = true];\n  optional bytes e = 5 [default = \"\\001\\377\\\"\\n\"];\n  optional .M.E f = 6 [default = A];\n" +
			"  optional sint64 g = 7 [default = -5];\n  optional double h = 8 [default = 1e+30];\n  optional float i = 9 [default = 0.1];\n\n  enum E {\n    A = 1;\n  }\n}\n"},
	{name: "strings keep their letters", in: "option java_package = \"gr\\303\\274n \" 'it\\'s' \"\\\\ \\t \\x01 日\";",
		canonical: "\noption java_package = \"grün it\\'s\\\\ \\t \\001 日\";\n"},
	{name: "custom options are put together, in full and sorted",
		in: "package p;\n\nimport \"google/protobuf/descriptor.proto\";\n\nmessage M {\n  option (.p.o).b.c = 2;\n  option (o).b.a = 0x1;\n  option (o).f = 1.0;\n" +
			"  option deprecated = true;\n  option (q) = 5;\n  option (q) = 4;\n}\nmessage O {\n  optional P b = 1;\n  optional double f = 2;\n  repeated P l = 3;\n" +
			"  map<string, int32> m = 4;\n}\nmessage P {\n  optional int32 a = 1;\n  optional int32 c = 2;\n}\n\n" +
			"extend google.protobuf.MessageOptions {\n  optional O o = 50001;\n  repeated int32 q = 50000;\n}\n",
		normal: "package p;\n\nimport \"google/protobuf/descriptor.proto\";\n\nmessage M {\n  option deprecated = true;\n  option (p.o) = {\n    b: {\n      a: 1,\n      c: 2\n    },\n    f: 1\n  };\n" +
			"  option (p.q) = 5;\n  option (p.q) = 4;\n}\nmessage O {\n  optional .p.P b = 1;\n  optional double f = 2;\n  repeated .p.P l = 3;\n" +
			"  map<string, int32> m = 4;\n}\nmessage P {\n  optional int32 a = 1;\n  optional int32 c = 2;\n}\n\n" +
			"extend .google.protobuf.MessageOptions {\n  repeated int32 q = 50000;\n  optional .p.O o = 50001;\n}\n"},
	{name: "values of options in every form",
		in: "package p; import \"google/protobuf/descriptor.proto\"; message O { optional string s = 1; repeated O l = 2; map<string, int32> m = 3; " +
			"optional bytes b = 4; repeated int32 n = 5; extensions 10 to 20; } extend O { optional E e = 10; } enum E { A = 0; } " +
			"extend google.protobuf.FileOptions { optional O o = 50001; } " +
			"option (o) = { s: 'x' n: [2, 1] l <s: 'y'>; l { }, m { key: 'b' value: 1 } m { key: 'a' value: 2 } b: '\\0' [p.e]: A };",
		canonical: "package p;\n\nimport \"google/protobuf/descriptor.proto\";\n\noption (o) = {\n  s: \"x\",\n  n: [\n    2,\n    1\n  ],\n  l: {\n    s: \"y\"\n  },\n  l: {\n  },\n" +
			"  m: {\n    key: \"b\",\n    value: 1\n  },\n  m: {\n    key: \"a\",\n    value: 2\n  },\n  b: \"\\000\",\n  [p.e]: A\n};\n\n" +
			"message O {\n  optional string s = 1;\n  repeated O l = 2;\n  map<string, int32> m = 3;\n  optional bytes b = 4;\n  repeated int32 n = 5;\n\n  extensions 10 to 20;\n}\n" +
			"enum E {\n  A = 0;\n}\n\nextend O {\n  optional E e = 10;\n}\nextend google.protobuf.FileOptions {\n  optional O o = 50001;\n}\n",
		normal: "package p;\n\nimport \"google/protobuf/descriptor.proto\";\n\noption (p.o) = {\n  [p.e]: A,\n  b: \"\\000\",\n  l: [\n    {\n      s: \"y\"\n    },\n    {\n    }\n  ],\n" +
			"  m: [\n    {\n      key: \"a\",\n      value: 2\n    },\n    {\n      key: \"b\",\n      value: 1\n    }\n  ],\n  n: [\n    2,\n    1\n  ],\n  s: \"x\"\n};\n\n" +
			"message O {\n  optional string s = 1;\n  repeated .p.O l = 2;\n  map<string, int32> m = 3;\n  optional bytes b = 4;\n  repeated int32 n = 5;\n\n  extensions 10 to 20;\n}\n" +
			"enum E {\n  A = 0;\n}\n\nextend .p.O {\n  optional .p.E e = 10;\n}\nextend .google.protobuf.FileOptions {\n  optional .p.O o = 50001;\n}\n"},
	{name: "groups", in: "message M { optional group G = 2 { optional int32 a = 1; message N {} } oneof o { group H = 3 { } int32 b = 1; } }",
		canonical: "\nmessage M {\n  oneof o {\n    int32 b = 1;\n  \n    group H = 3 {}\n  }\n\n  optional group G = 2 {\n    optional int32 a = 1;\n  \n    message N {}\n  }\n}\n"},
	{name: "extensions of one message are put together",
		in:     "\nmessage M {\n  extensions 1 to 9;\n}\nmessage N {\n  extensions 5, 1 to 3;\n}\n\nextend M {\n  optional int32 b = 2;\n}\nextend N {\n  optional int32 c = 1;\n}\nextend M {\n  optional int32 a = 1;\n}\n",
		normal: "\nmessage M {\n  extensions 1 to 9;\n}\nmessage N {\n  extensions 1 to 3;\n  extensions 5;\n}\n\nextend .M {\n  optional int32 a = 1;\n  optional int32 b = 2;\n}\nextend .N {\n  optional int32 c = 1;\n}\n"},
	{name: "options of methods", in: "syntax = \"proto3\"; message M {} service S { option deprecated = true; rpc A (stream M) returns (M) { option deprecated = true; } rpc B (M) returns (M) {} }",
		canonical: "syntax = \"proto3\";\n\nmessage M {}\n\nservice S {\n  option deprecated = true;\n\n  rpc A (stream M) returns (M) {\n    option deprecated = true;\n  };\n  rpc B (M) returns (M);\n}\n",
		normal:    "syntax = \"proto3\";\n\nmessage M {}\n\nservice S {\n  option deprecated = true;\n\n  rpc A (stream .M) returns (.M) {\n    option deprecated = true;\n  };\n  rpc B (.M) returns (.M);\n}\n"},
	{name: "an entry that a tool unfolded is a map again",
		in: "syntax = \"proto3\";\n\nmessage M {\n  repeated .M.AEntry a = 1;\n  repeated BEntry b = 2;\n\n  message AEntry {\n    option map_entry = true;\n\n    string key = 1;\n    M value = 2;\n  }\n" +
			"  message BEntry {\n    int32 value = 2;\n    int32 key = 1;\n    option map_entry = true;\n  }\n  message N {}\n}\n",
		canonical: "syntax = \"proto3\";\n\nmessage M {\n  map<string, M> a = 1;\n  map<int32, int32> b = 2;\n\n  message N {}\n}\n",
		normal:    "syntax = \"proto3\";\n\nmessage M {\n  map<string, .M> a = 1;\n  map<int32, int32> b = 2;\n\n  message N {}\n}\n"},
	{name: "meta options without their import",
		in:     "syntax = \"proto3\";\n\nmessage M {\n  int32 a = 1 [(confluent.field_meta).tags = \"PII\"];\n}\n",
		normal: "syntax = \"proto3\";\n\nmessage M {\n  int32 a = 1 [(confluent.field_meta) = {\n    tags: \"PII\"\n  }];\n}\n"},
}

// Equal schemas look equal, different ones do not.
func TestNormalTextTellsSchemasApart(t *testing.T) {
	same := []string{
		"syntax = \"proto3\"; package p; message M { int32 a = 1; N n = 2; message N {} }",
		"syntax = \"proto3\"; package p; message M { message N {} .p.M.N n = 2; int32 a = 1; }",
		"syntax = \"proto3\"; package p; message M { M.N n = 0x2; int32 a = 01; /**/ message N {} }",
	}
	for _, s := range same {
		require.Equal(t, normal(t, same[0]).Text(), normal(t, s).Text())
	}
	require.NotEqual(t, asIs(t, same[0]).Text(), asIs(t, same[1]).Text())
	require.NotEqual(t, normal(t, same[0]).Text(), normal(t, strings.Replace(same[0], "int32", "int64", 1)).Text())
}

func TestFormats(t *testing.T) {
	const text = "syntax = \"proto2\";\n\nimport \"google/protobuf/descriptor.proto\";\nimport \"confluent/meta.proto\";\n\noption (x) = 1;\n\n" +
		"message M {\n  option (confluent.message_meta).doc = \"d\";\n\n  optional int32 a = 1 [\n    (y) = 2,\n    deprecated = true\n  ];\n\n  extensions 5;\n}\n\n" +
		"extend google.protobuf.FileOptions {\n  optional int32 x = 50000;\n}\nextend google.protobuf.FieldOptions {\n  optional int32 y = 50000;\n}\n"
	s := asIs(t, text)
	require.Equal(t, text, s.Text())
	require.Equal(t, "syntax = \"proto2\";\n\nimport \"google/protobuf/descriptor.proto\";\nimport \"confluent/meta.proto\";\n\n"+
		"message M {\n  option (confluent.message_meta).doc = \"d\";\n\n  optional int32 a = 1 [deprecated = true];\n}\n", s.Format("ignore_extensions"))
	d := descriptorOf(t, s)
	require.Equal(t, "M", d.GetMessageType()[0].GetName())
	require.Equal(t, []string{"google/protobuf/descriptor.proto", "confluent/meta.proto"}, d.GetDependency())

	// A descriptor is read like the text that it was made of.
	fromDescriptor, err := format().Parse(s.Format("serialized"), nil, schema.ParseOptions{Strict: true, Normalize: true})
	require.NoError(t, err)
	require.Equal(t, normal(t, text).Text(), fromDescriptor.Text())
}

func TestEveryCaseFromItsDescriptor(t *testing.T) {
	for _, c := range canonicalCases {
		if strings.Contains(c.name, "without their import") || strings.Contains(c.name, "JSON name") {
			continue // a descriptor shows what the text did not
		}
		want := normal(t, c.in).Text()
		s, err := format().Parse(normal(t, c.in).Format("serialized"), nil, schema.ParseOptions{Strict: true, Normalize: true})
		require.NoError(t, err, c.name)
		require.Equal(t, want, s.Text(), c.name)
		plain, err := format().Parse(normal(t, c.in).Format("serialized"), nil, schema.ParseOptions{Strict: true})
		require.NoError(t, err, c.name)
		require.Equal(t, plain.Text(), asIs(t, plain.Text()).Text(), c.name)
	}
}

func asIs(t *testing.T, text string) schema.Schema {
	t.Helper()
	s, err := format().Parse(text, nil, schema.ParseOptions{Strict: true})
	require.NoError(t, err)
	return s
}

// What does not compile is printed too, and as normal as it can be.
func TestCanonicalTextOfWhatDoesNotCompile(t *testing.T) {
	const text = "syntax = \"proto3\";\npackage p;\n\nmessage M {\n  q.Unknown b = 2;\n  N a = 1;\n\n  message N {}\n}\nenum E {\n  A = 1;\n}\n"
	s, err := format().Parse(text, nil, schema.ParseOptions{})
	require.NoError(t, err)
	require.Equal(t, text, s.Text())
	require.NotEmpty(t, s.Format("serialized"))
	require.Equal(t, "p.M", s.Name())
	s, err = format().Parse(text, nil, schema.ParseOptions{Normalize: true})
	require.NoError(t, err)
	require.Equal(t, "syntax = \"proto3\";\npackage p;\n\nmessage M {\n  .p.M.N a = 1;\n  q.Unknown b = 2;\n\n  message N {}\n}\nenum E {\n  A = 1;\n}\n", s.Text())
}
