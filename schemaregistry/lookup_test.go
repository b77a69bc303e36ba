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
