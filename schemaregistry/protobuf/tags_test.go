package protobuf_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

func tagged(path, typ string, tags ...string) schema.Tagged {
	return schema.Tagged{Entity: schema.Entity{Path: path, Type: typ}, Tags: tags}
}

const taggedText = `import "confluent/meta.proto";
package p;
message M {
  option (confluent.message_meta).tags = "A";
  int32 a = 1 [(confluent.field_meta).tags = "X", (.confluent.field_meta).tags = "Y", (confluent.field_meta).tags = "X",
    (confluent.field_meta).doc = "d"];
  int32 b = 2 [deprecated = true];
  oneof o { int32 c = 3 [(confluent.field_meta) = {tags: "Z"}]; }
  message N { int32 d = 1; }
}
`

func TestEntities(t *testing.T) {
	want := []schema.Tagged{
		tagged(".M", "sr_record", "A"), tagged(".M.a", "sr_field", "X", "Y"), tagged(".M.c", "sr_field", "Z"),
	}
	require.Equal(t, want, parse(t, taggedText).Entities())
	require.Equal(t, want, normal(t, source(taggedText)).Entities())
	require.Empty(t, parse(t, "message M {}").Entities())
}

func TestWithTags(t *testing.T) {
	s := parse(t, taggedText)
	out, err := s.WithTags([]schema.Tagged{
		tagged(".M.N", "sr_record", "B"), tagged("M.b", "sr_field", "C"), tagged("p.M.N.d", "sr_field", "D",
			"D"), tagged(".M.o.c", "sr_field", "Z", "E"),
	}, []schema.Tagged{tagged(".M", "sr_record", "A"), tagged(".M.a", "sr_field", "X"), tagged(".M.b",
		"sr_field", "none")})
	require.NoError(t, err)
	again := asIs(t, out)
	require.Equal(t, out, again.Text())
	require.Equal(t, []schema.Tagged{
		tagged(".M.a", "sr_field", "Y"), tagged(".M.b", "sr_field", "C"), tagged(".M.c", "sr_field", "Z", "E"),
		tagged(".M.N", "sr_record", "B"), tagged(".M.N.d", "sr_field", "D"),
	}, again.Entities())
	require.Contains(t, out,
		"  int32 a = 1 [(confluent.field_meta) = {\n    tags: [\n      \"Y\"\n    ],\n    doc: \"d\"\n  }];\n")
	require.Contains(t, out, "    deprecated = true,\n    (confluent.field_meta) = {\n")
	require.NotContains(t, out, "message_meta).tags")
	require.Empty(t, compare(t, s, again).Differences)

	// What is taken away and given is there; what changes nothing leaves the text as it is.
	out, err = s.WithTags([]schema.Tagged{tagged(".M", "sr_record", "A")}, []schema.Tagged{tagged(".M",
		"sr_record", "A")})
	require.NoError(t, err)
	require.Equal(t, s.Entities(), asIs(t, out).Entities())
	out, err = s.WithTags(nil, nil)
	require.NoError(t, err)
	require.Equal(t, s.Text(), out)

	// The options need no import.
	out, err = parse(t, "message M { int32 a = 1; }").WithTags([]schema.Tagged{tagged(".M.a", "sr_field",
		"PII")}, nil)
	require.NoError(t, err)
	require.Equal(t, "syntax = \"proto3\";\n\nmessage M {\n"+
		"  int32 a = 1 [(confluent.field_meta) = {\n    tags: [\n      \"PII\"\n    ]\n  }];\n}\n", out)
}

func TestWithTagsRefuses(t *testing.T) {
	s := parse(t, taggedText)
	for _, e := range []schema.Tagged{
		tagged("", "sr_record", "A"), tagged(".", "sr_record", "A"), tagged(".X", "sr_record", "A"),
		tagged(".M.X", "sr_record", "A"),
		tagged(".M.a", "sr_record", "A"), tagged(".M", "sr_field", "A"), tagged("a", "sr_field", "A"),
		tagged(".M.x", "sr_field", "A"),
		tagged(".M.o.a", "sr_field", "A"), tagged(".M.N.o.d", "sr_field", "A"), tagged(".M.a", "sr_else", "A"),
	} {
		_, err := s.WithTags([]schema.Tagged{e}, nil)
		require.ErrorIs(t, err, schema.ErrInvalid, e.Entity)
		_, err = s.WithTags(nil, []schema.Tagged{e})
		require.ErrorIs(t, err, schema.ErrInvalid, e.Entity)
	}
}
