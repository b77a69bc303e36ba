package protobuf_test

import (
	"encoding/base64"
	"strings"
	"sync"
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
	for _, c := range canonicalCases() {
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

// canonicalCases reads testdata/canonical.txt.
var canonicalCases = sync.OnceValue(func() []canonicalCase {
	var out []canonicalCase
	for _, part := range sections("canonical.txt") {
		c := canonicalCase{}
		for i, s := range strings.Split(part, "\n--- ") {
			kind, text, _ := strings.Cut(s, "\n")
			switch {
			case i == 0:
				c.name = s
			case kind == "in":
				c.in = text
			case kind == "canonical":
				c.canonical = text
			case kind == "normal":
				c.normal = text
			default:
				panic(kind)
			}
		}
		out = append(out, c)
	}
	return out
})

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
	const text = "syntax = \"proto2\";\n\nimport \"google/protobuf/descriptor.proto\";\n" +
		"import \"confluent/meta.proto\";\n\noption (x) = 1;\n\n" +
		"message M {\n  option (confluent.message_meta).doc = \"d\";\n\n  optional int32 a = 1 [\n" +
		"    (y) = 2,\n    deprecated = true\n  ];\n\n  extensions 5;\n}\n\n" +
		"extend google.protobuf.FileOptions {\n  optional int32 x = 50000;\n}\n" +
		"extend google.protobuf.FieldOptions {\n  optional int32 y = 50000;\n}\n"
	s := asIs(t, text)
	require.Equal(t, text, s.Text())
	require.Equal(t,
		"syntax = \"proto2\";\n\nimport \"google/protobuf/descriptor.proto\";\nimport \"confluent/meta.proto\";\n\n"+
			"message M {\n  option (confluent.message_meta).doc = \"d\";\n\n"+
			"  optional int32 a = 1 [deprecated = true];\n}\n", s.Format("ignore_extensions"))
	d := descriptorOf(t, s)
	require.Equal(t, "M", d.GetMessageType()[0].GetName())
	require.Equal(t, []string{"google/protobuf/descriptor.proto", "confluent/meta.proto"}, d.GetDependency())

	// A descriptor is read like the text that it was made of.
	fromDescriptor, err := format().Parse(s.Format("serialized"), nil, schema.ParseOptions{Strict: true,
		Normalize: true})
	require.NoError(t, err)
	require.Equal(t, normal(t, text).Text(), fromDescriptor.Text())
}

func TestEveryCaseFromItsDescriptor(t *testing.T) {
	for _, c := range canonicalCases() {
		if strings.Contains(c.name, "without their import") || strings.Contains(c.name, "JSON name") {
			continue // a descriptor shows what the text did not
		}
		want := normal(t, c.in).Text()
		s, err := format().Parse(normal(t, c.in).Format("serialized"), nil, schema.ParseOptions{Strict: true,
			Normalize: true})
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
	const text = "syntax = \"proto3\";\npackage p;\n\nmessage M {\n  q.Unknown b = 2;\n  N a = 1;\n\n" +
		"  message N {}\n}\nenum E {\n  A = 1;\n}\n"
	s, err := format().Parse(text, nil, schema.ParseOptions{})
	require.NoError(t, err)
	require.Equal(t, text, s.Text())
	require.NotEmpty(t, s.Format("serialized"))
	require.Equal(t, "p.M", s.Name())
	s, err = format().Parse(text, nil, schema.ParseOptions{Normalize: true})
	require.NoError(t, err)
	require.Equal(t,
		"syntax = \"proto3\";\npackage p;\n\nmessage M {\n  .p.M.N a = 1;\n  q.Unknown b = 2;\n\n"+
			"  message N {}\n}\nenum E {\n  A = 1;\n}\n", s.Text())
}
