package schemaregistry

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

// A client that was given a schema in another form than it is stored in finds it by that form.
func TestLookupByNormalForms(t *testing.T) {
	d := newDesk(t)
	ctx := t.Context()
	proto := func(q *RegisterRequest) { q.Content.Type = schema.Protobuf }
	refs := withRefs(schema.Reference{Name: "place.proto", Subject: "place", Version: 1})
	d.put("place", `syntax = "proto3"; package shop; message Place { string city = 1; }`, 1, 1, proto)
	parcel := d.put("parcel", `syntax = "proto3"; package shop; import "place.proto"; message Parcel { Place to = 1; }`,
		1, 2, proto, refs)
	shown, err := d.Render(ctx, parcel, "serialized", false)
	require.NoError(t, err)
	require.NotEqual(t, parcel.Content.Text, shown.Content.Text)
	for _, normalize := range []bool{false, true} {
		q := RegisterRequest{Content: shown.Content, Normalize: normalize}
		v, err := d.Lookup(ctx, "parcel", q, false)
		require.NoError(t, err, "by the descriptor")
		require.Equal(t, 2, v.ID)
		q.Content.Metadata = &schema.Metadata{Properties: map[string]string{"owner": "shop"}}
		_, err = d.Lookup(ctx, "parcel", q, false)
		d.refuses(CodeSchemaNotFound, err)
	}
	d.deletes("parcel", "1", false)
	_, err = d.Lookup(ctx, "parcel", RegisterRequest{Content: shown.Content}, false)
	d.refuses(CodeSubjectNotFound, err)
	v, err := d.Lookup(ctx, "parcel", RegisterRequest{Content: shown.Content}, true)
	require.NoError(t, err)
	require.True(t, v.Deleted)

	d.put("n", `{"type":"record","name":"N","zed":1,"abc":2,"fields":[]}`, 1, 3)
	other := RegisterRequest{Content: schema.Content{Text: `{"abc":2,"zed":1,"type":"record","name":"N","fields":[]}`}}
	v, err = d.Lookup(ctx, "n", other, false)
	require.NoError(t, err, "properties in another order")
	require.Equal(t, 3, v.ID)
	v, err = d.Register(ctx, "n", other)
	require.NoError(t, err)
	require.Equal(t, 2, v.Version, "registering is by the form as it is")
}

// A schema that tells its version is that version, or one that does not tell its own and has that number.
func TestLookupByToldVersion(t *testing.T) {
	d := newDesk(t)
	a := recordOf("R", `a:"int"`)
	find := func(change ...func(*RegisterRequest)) (int, error) {
		q := RegisterRequest{Content: schema.Content{Text: a}}
		for _, c := range change {
			c(&q)
		}
		v, err := d.Lookup(t.Context(), "s", q, false)
		return v.Version, err
	}
	finds := func(version int, change ...func(*RegisterRequest)) {
		t.Helper()
		got, err := find(change...)
		require.NoError(t, err)
		require.Equal(t, version, got)
	}
	d.put("s", a, 1, 1)
	d.put("s", a, 2, 2, atVersion(2))
	d.put("s", a, 2, 2, atVersion(-1))
	finds(1)
	finds(1, withProperties(confluentVersion, "1"))
	finds(2, withProperties(confluentVersion, "2"))
	_, err := find(withProperties(confluentVersion, "3"))
	d.refuses(CodeSchemaNotFound, err)
	d.deletes("s", "1", false)
	finds(2)
	d.put("s", a, 2, 2)
	d.put("s", a, 3, 3, withProperties(confluentVersion, "-1"))
	d.put("s", a, 4, 4, withProperties("owner", "shop"))
	v := d.put("s", a, 5, 5, atVersion(-1))
	require.Equal(t, map[string]string{"owner": "shop", confluentVersion: "5"}, v.Content.Metadata.Properties)
	finds(4, withProperties("owner", "shop"))
	d.deletes("s", "4", false)
	finds(5, withProperties("owner", "shop"))
}

// What is imported is stored as it came, whatever asks for normal forms.
func TestImportKeepsTheText(t *testing.T) {
	d := newDesk(t)
	text := `{"type":"record","name":"N","fields":[],"zed":1,"abc":2}`
	yes := true
	_, err := d.SetConfig(t.Context(), "s", ConfigUpdate{Normalize: Change[bool]{true, &yes}})
	require.NoError(t, err)
	d.mode("s", Import)
	for range 2 {
		v := d.put("s", text, 1, 7, withID(7), atVersion(1), func(q *RegisterRequest) { q.Normalize = true })
		require.Equal(t, text, v.Content.Text)
	}
}

// Reserved fields are looked for in a first version too, and where nothing else is compared.
func TestReservedFieldsOfAFirstVersion(t *testing.T) {
	d := newDesk(t)
	yes := true
	_, err := d.SetConfig(t.Context(), "", ConfigUpdate{ValidateFields: Change[bool]{true, &yes}})
	require.NoError(t, err)
	reserve := func(paths string) func(*RegisterRequest) { return withProperties(reserved, paths) }
	bad := recordOf("R", `a:"int"`, `b:"int"`)
	for _, level := range []string{Backward, FullTransitive, None} {
		d.level("", level)
		_, err := d.try("s", bad, reserve("b"))
		d.refuses(CodeIncompatible, err)
		require.Contains(t, err.Error(), "FIELD_CONFLICTS_WITH_RESERVED_FIELD")
		require.NotContains(t, err.Error(), "earlier")
	}
	d.put("s", bad, 1, 1, reserve("c"))
	_, err = d.try("s", recordOf("R", `a:"int"`), reserve("d"))
	d.refuses(CodeIncompatible, err)
	require.Contains(t, err.Error(), "RESERVED_FIELD_REMOVED")
	d.put("s", recordOf("R", `a:"int"`), 2, 2, reserve("b,c"))
}

// A version of a subject that only another context has is found without naming that; the default context goes first.
func TestVersionAnywhere(t *testing.T) {
	d := newDesk(t)
	ctx := t.Context()
	d.put(":.c:only", recordOf("R"), 1, 1)
	d.put(":.c:both", recordOf("R"), 1, 1)
	d.put("both", recordOf("S"), 1, 1)
	v, err := d.VersionAnywhere(ctx, "only", "latest", false)
	require.NoError(t, err)
	require.Equal(t, ":.c:only", v.Subject)
	v, err = d.VersionAnywhere(ctx, "both", "1", false)
	require.NoError(t, err)
	require.Equal(t, "both", v.Subject)
	_, err = d.Version(ctx, "only", "1", false)
	d.refuses(CodeSubjectNotFound, err)
	_, err = d.VersionAnywhere(ctx, "only", "2", false)
	d.refuses(CodeSubjectNotFound, err)
	_, err = d.VersionAnywhere(ctx, ":.d:only", "1", false)
	d.refuses(CodeSubjectNotFound, err)
	_, err = d.VersionAnywhere(ctx, "both", "2", false)
	d.refuses(CodeVersionNotFound, err)
	_, err = d.VersionAnywhere(ctx, "only", "0", false)
	d.refuses(CodeInvalidVersion, err)
}

// Whoever changes tags without naming a version is told it too.
func TestTagsTellTheVersion(t *testing.T) {
	d := newDesk(t)
	d.put("s", recordOf("R"), 1, 1)
	at := schema.Entity{Path: "R", Type: "sr_record"}
	v := d.put("s", recordOf("R"), 2, 2, func(q *RegisterRequest) {
		q.TagsAdd = []schema.Tagged{{Entity: at, Tags: []string{"PII"}}}
	})
	require.Equal(t, "2", v.Content.Metadata.Properties[confluentVersion])
	v = d.put("s", v.Content.Text, 3, 3, func(q *RegisterRequest) {
		q.TagsRemove = []schema.Tagged{{Entity: at, Tags: []string{"PII"}}}
	})
	require.Equal(t, "3", v.Content.Metadata.Properties[confluentVersion])
	require.NotContains(t, v.Content.Text, "PII")
}
