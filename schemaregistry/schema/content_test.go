package schema_test

import (
	"crypto/md5"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

func TestContentID(t *testing.T) {
	plain := schema.Content{Type: schema.Avro, Text: `"string"`}
	require.Equal(t, md5.Sum([]byte(`"string"`)), plain.ID(), "a bare text is hashed alone")

	other := plain
	other.Type = schema.JSON
	require.Equal(t, plain.ID(), other.ID(), "the type does not count")

	refs := plain
	refs.References = []schema.Reference{{Name: "a", Subject: "s", Version: 258}}
	require.Equal(t, md5.Sum([]byte("\"string\"as\x00\x00\x01\x02")), refs.ID())

	meta := plain
	meta.Metadata = &schema.Metadata{}
	require.Equal(t, md5.Sum([]byte("\"string\"\x01")), meta.ID(), "empty metadata count")
	meta.Metadata = &schema.Metadata{
		Tags:       map[string][]string{"b": {"y", "x", "y"}, "a": nil},
		Properties: map[string]string{"p": "1", "o": "2"},
		Sensitive:  []string{"p", "o", "p"},
	}
	require.Equal(t, md5.Sum([]byte("\"string\"\x01abxyo2p1op")), meta.ID())

	rules := plain
	rules.RuleSet = &schema.RuleSet{
		MigrationRules: []schema.Rule{{Name: "m", Mode: "UPGRADE", Type: "T", Disabled: true}},
		DomainRules: []schema.Rule{{
			Name: "d", Doc: "doc", Kind: "CONDITION", Type: "CEL", Tags: []string{"z", "a"},
			Params: map[string]string{"k": "v"}, Expr: "e", OnSuccess: "s", OnFailure: "f",
		}},
		EnableAt: "CLIENT",
	}
	want := "\"string\"\x01" + "mTRANSFORMUPGRADET\x01" + "ddocCONDITIONWRITEREADCELazkvesf" + "CLIENT"
	require.Equal(t, md5.Sum([]byte(want)), rules.ID())
}

func TestReasons(t *testing.T) {
	err := schema.Invalid("field %q has no type", "a")
	require.EqualError(t, err, `field "a" has no type`)
	require.ErrorIs(t, err, schema.ErrInvalid)
	require.False(t, errors.Is(err, schema.ErrMismatch))
	require.ErrorIs(t, schema.Mismatch("no"), schema.ErrMismatch)
}

func TestMessage(t *testing.T) {
	d := schema.Difference{Kind: "K", Description: "D at '/a'", Info: "I"}
	require.Equal(t, `{errorType:'K', description:'D at '/a'', additionalInfo:'I'}`, d.Message(schema.Avro))
	require.Equal(t, `{errorType:"K", description:"D at '/a''}`, d.Message(schema.JSON))
	require.Equal(t, `{errorType:"K", description:"D at '/a'"}`, d.Message(schema.Protobuf))
}
