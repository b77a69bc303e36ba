package registry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"millrace/server/servertest"
)

// The whole surface of franz-go's client, against one node, and against a cluster where each call goes through another
// node than the one before: what is written through one is read through the next.
func TestFranzClient(t *testing.T) {
	t.Run("node", func(t *testing.T) {
		n := servertest.Start(t, servertest.Options{})
		drive(t, func() string { return n.URL() }, sr.HTTPClient(n.Client))
	})
	t.Run("cluster", func(t *testing.T) {
		c := servertest.StartCluster(t, servertest.ClusterOptions{})
		calls := 0
		next := func() string { calls++; return c.URL(calls%3 + 1) }
		drive(t, next, sr.HTTPClient(c.Client))
	})
}

// client is a client of the node that is next.
type franz struct {
	t    *testing.T
	next func() string
	opts []sr.ClientOpt
}

func (f *franz) cl(opts ...sr.ClientOpt) *sr.Client {
	f.t.Helper()
	cl, err := sr.NewClient(append(append([]sr.ClientOpt{sr.URLs(f.next())}, f.opts...), opts...)...)
	require.NoError(f.t, err)
	return cl
}

// fails checks the number of an error.
func (f *franz) fails(err error, code int) {
	f.t.Helper()
	var e *sr.ResponseError
	require.True(f.t, errors.As(err, &e), "%v", err)
	require.Equal(f.t, code, e.ErrorCode, e.Message)
}

func drive(t *testing.T, next func() string, opts ...sr.ClientOpt) {
	f := &franz{t, next, opts}
	one := sr.Schema{Schema: record(fieldA)}
	two := sr.Schema{Schema: record(fieldA, fieldB)}
	f.schemas(one, two)
	f.references()
	f.settings(two)
	f.contexts(one)
	f.deletes()
}

// schemas registers, and reads in every way there is.
func (f *franz) schemas(one, two sr.Schema) {
	t, ctx := f.t, f.t.Context()
	types, err := f.cl().SupportedTypes(ctx)
	require.NoError(t, err)
	require.Equal(t, []sr.SchemaType{sr.TypeAvro, sr.TypeProtobuf, sr.TypeJSON}, types)
	subjects, err := f.cl().Subjects(ctx)
	require.NoError(t, err)
	require.Empty(t, subjects)

	first, err := f.cl().CreateSchema(ctx, "s", one)
	require.NoError(t, err)
	require.Equal(t, sr.SubjectSchema{Subject: "s", Version: 1, ID: 1, GUID: first.GUID, Schema: one}, first)
	id, err := f.cl().RegisterSchema(ctx, "s", two, -1, -1)
	require.NoError(t, err)
	require.Equal(t, 2, id)
	again, err := f.cl().RegisterSchema(ctx, "s", one, -1, -1)
	require.NoError(t, err)
	require.Equal(t, 1, again)
	found, err := f.cl().LookupSchema(ctx, "s", two)
	require.NoError(t, err)
	require.Equal(t, 2, found.Version)
	_, err = f.cl().CreateSchema(ctx, "s", sr.Schema{Schema: record(needful)})
	f.fails(err, 40901)
	_, err = f.cl().LookupSchema(ctx, "none", two)
	f.fails(err, 40401)

	byID, err := f.cl().SchemaByID(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, one, byID)
	text, err := f.cl().SchemaTextByID(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, one.Schema, text)
	byGUID, err := f.cl().SchemaByGUID(ctx, first.GUID)
	require.NoError(t, err)
	require.Equal(t, sr.SubjectSchema{GUID: first.GUID, Schema: one}, byGUID)
	ids, err := f.cl().SchemaIDsByGUID(ctx, first.GUID)
	require.NoError(t, err)
	require.Equal(t, []sr.ContextID{{Context: ".", ID: 1}}, ids)
	f.listings(one, two)
}

func (f *franz) listings(one, two sr.Schema) {
	t, ctx := f.t, f.t.Context()
	versions, err := f.cl().SubjectVersions(ctx, "s")
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, versions)
	latest, err := f.cl().SchemaByVersion(ctx, "s", -1)
	require.NoError(t, err)
	require.Equal(t, two, latest.Schema)
	text, err := f.cl().SchemaTextByVersion(ctx, "s", 1)
	require.NoError(t, err)
	require.Equal(t, one.Schema, text)
	all, err := f.cl().AllSchemas(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2)
	of, err := f.cl().Schemas(ctx, "s")
	require.NoError(t, err)
	only, other, common := sr.CommSubjectSchemas(all, of)
	require.Empty(t, only)
	require.Empty(t, other)
	require.Len(t, common, 2)
	subjects, err := f.cl().SubjectsByID(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"s"}, subjects)
	places, err := f.cl().SchemaVersionsByID(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, []sr.SubjectVersion{{Subject: "s", Version: 2}}, places)
	usages, err := f.cl().SchemaUsagesByID(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, []sr.SubjectSchema{latest}, usages)
	some, err := f.cl().Subjects(sr.WithParams(ctx, sr.SubjectPrefix("s"), sr.Limit(1)))
	require.NoError(t, err)
	require.Equal(t, []string{"s"}, some)
	newest, err := f.cl().AllSchemas(sr.WithParams(ctx, sr.LatestOnly))
	require.NoError(t, err)
	require.Len(t, newest, 1)
}

// references registers schemas of all languages that refer to others.
func (f *franz) references() {
	t, ctx := f.t, f.t.Context()
	for _, c := range []struct {
		kind       sr.SchemaType
		base, user string
		name       string
	}{
		{sr.TypeAvro, `{"type":"record","name":"Base","fields":[]}`, record(`{"name":"x","type":"Base"}`), "Base"},
		{sr.TypeJSON, `{"type":"integer"}`, `{"type":"object","properties":{"x":{"$ref":"base.json"}}}`, "base.json"},
		{sr.TypeProtobuf, `syntax = "proto3"; message Base {}`,
			`syntax = "proto3"; import "base.proto"; message User { Base x = 1; }`, "base.proto"},
	} {
		base, err := f.cl().CreateSchema(ctx, fmt.Sprint("base-", c.kind), sr.Schema{Schema: c.base, Type: c.kind})
		require.NoError(t, err, c.kind)
		user, err := f.cl().CreateSchema(ctx, fmt.Sprint("user-", c.kind), sr.Schema{
			Schema: c.user, Type: c.kind,
			References:     []sr.SchemaReference{{Name: c.name, Subject: base.Subject, Version: 1}},
			SchemaMetadata: &sr.SchemaMetadata{Properties: map[string]string{"owner": "me"}},
			SchemaRuleSet: &sr.SchemaRuleSet{DomainRules: []sr.SchemaRule{{
				Name: "r", Kind: sr.SchemaRuleKindCondition, Mode: sr.SchemaRuleModeWrite, Type: "CEL", Expr: "true",
			}}},
		})
		require.NoError(t, err, c.kind)
		require.Equal(t, c.kind, user.Type)
		require.Len(t, user.References, 1)
		require.Equal(t, "me", user.SchemaMetadata.Properties["owner"])
		require.Equal(t, sr.SchemaRuleModeWrite, user.SchemaRuleSet.DomainRules[0].Mode)
		referrers, err := f.cl().SchemaReferences(ctx, base.Subject, 1)
		require.NoError(t, err, c.kind)
		require.Equal(t, []sr.SubjectSchema{user}, referrers)
	}
}

// settings are configs, modes and checks.
func (f *franz) settings(two sr.Schema) {
	t, ctx := f.t, f.t.Context()
	for _, r := range f.cl().SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull, Normalize: true}, "s", "") {
		require.NoError(t, r.Err)
		require.Equal(t, sr.CompatFull, r.Level)
	}
	for _, r := range f.cl().Compatibility(ctx, "s", "") {
		require.NoError(t, r.Err)
		require.Equal(t, sr.CompatFull, r.Level)
		require.True(t, r.Normalize)
	}
	f.fails(f.cl().Compatibility(ctx, "none")[0].Err, 40408)
	require.NoError(t, f.cl().Compatibility(sr.WithParams(ctx, sr.DefaultToGlobal), "none")[0].Err)
	check, err := f.cl().CheckCompatibility(sr.WithParams(ctx, sr.Verbose), "s", -1, sr.Schema{Schema: record(needful)})
	require.NoError(t, err)
	require.False(t, check.Is)
	require.NotEmpty(t, check.Messages)
	check, err = f.cl().CheckCompatibility(ctx, "s", -2, two)
	require.NoError(t, err)
	require.True(t, check.Is)
	check, err = f.cl().CheckCompatibility(ctx, "s", 1, two)
	require.NoError(t, err)
	require.True(t, check.Is)
	for _, r := range f.cl().ResetCompatibility(ctx, "s", "") {
		require.NoError(t, r.Err)
	}

	for _, r := range f.cl().SetMode(ctx, sr.ModeReadOnly, "s", "t") {
		require.NoError(t, r.Err)
	}
	for _, r := range f.cl().Mode(ctx, "s", "t") {
		require.NoError(t, r.Err)
		require.Equal(t, sr.ModeReadOnly, r.Mode)
	}
	f.fails(f.cl().SetMode(ctx, sr.ModeImport, "")[0].Err, 42205)
	for _, r := range f.cl().ResetMode(ctx, "s", "t") {
		require.NoError(t, r.Err)
		require.Equal(t, sr.ModeReadOnly, r.Mode)
	}
	require.Equal(t, sr.ModeReadWrite, f.cl().Mode(ctx)[0].Mode)
	require.NoError(t, f.cl().SetMode(ctx, sr.ModeImport, "moved")[0].Err)
	moved, err := f.cl().CreateSchemaWithIDAndVersion(ctx, "moved", sr.Schema{Schema: `"bytes"`}, 500, 9)
	require.NoError(t, err)
	require.Equal(t, 9, moved.Version)
	require.Equal(t, 500, moved.ID)
}

func (f *franz) contexts(one sr.Schema) {
	t, ctx := f.t, f.t.Context()
	in := sr.DefaultSchemaContext(".ctx")
	made, err := f.cl(in).CreateSchema(ctx, "s", one)
	require.NoError(t, err)
	require.Equal(t, ":.ctx:s", made.Subject)
	require.Equal(t, 1, made.ID)
	subjects, err := f.cl().Subjects(sr.InContext(ctx, "ctx"))
	require.NoError(t, err)
	require.Equal(t, []string{":.ctx:s"}, subjects)
	contexts, err := f.cl(in).Contexts(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{".", ".ctx"}, contexts)
	f.fails(f.cl().DeleteContext(ctx, ".ctx"), 42211)
	for _, how := range []sr.DeleteHow{sr.SoftDelete, sr.HardDelete} {
		gone, err := f.cl(in).DeleteSubject(ctx, "s", how)
		require.NoError(t, err)
		require.Equal(t, []int{1}, gone)
	}
	require.NoError(t, f.cl().DeleteContext(ctx, ".ctx"))
}

func (f *franz) deletes() {
	t, ctx := f.t, f.t.Context()
	require.NoError(t, f.cl().DeleteSchema(ctx, "s", 1, sr.SoftDelete))
	f.fails(f.cl().DeleteSchema(ctx, "s", 1, sr.SoftDelete), 40406)
	versions, err := f.cl().SubjectVersions(sr.WithParams(ctx, sr.ShowDeleted), "s")
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, versions)
	require.NoError(t, f.cl().DeleteSchema(ctx, "s", 1, sr.HardDelete))
	require.Eventually(t, func() bool { // what is known by its id is answered from memory: another node forgets it soon
		_, err = f.cl().SchemaByID(ctx, 1)
		return err != nil
	}, time.Minute, time.Millisecond)
	f.fails(err, 40403)
	gone, err := f.cl().DeleteSubject(ctx, "s", sr.SoftDelete)
	require.NoError(t, err)
	require.Equal(t, []int{2}, gone)
	_, err = f.cl().SubjectVersions(ctx, "s")
	f.fails(err, 40401)
	gone, err = f.cl().DeleteSubject(ctx, "s", sr.HardDelete)
	require.NoError(t, err)
	require.Equal(t, []int{2}, gone)
}
