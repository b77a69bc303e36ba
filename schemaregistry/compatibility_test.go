package schemaregistry

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/schemaregistry/schema"
)

// check asks whether a schema is compatible.
func (d *desk) check(subject, version, text string) CompatibilityResult {
	d.t.Helper()
	out, err := d.Compatibility(d.t.Context(), subject, version, RegisterRequest{Content: schema.Content{Text: text}})
	require.NoError(d.t, err)
	return out
}

func TestLevels(t *testing.T) {
	// Of old versions: one has a, then a and b with a default; the newest one has a alone again.
	a := recordOf("R", `a:"int"`)
	ab := `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}`
	aLong := recordOf("R", `a:"long"`)
	abString := `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},` +
		`{"name":"b","type":"string","default":""}]}`
	none := recordOf("R")
	for _, c := range []struct {
		level, text string
		want        bool
	}{
		{None, recordOf("Other", `z:"bytes"`), true},
		{Backward, aLong, true}, {Backward, abString, true}, {Backward, recordOf("R", `a:"string"`), false},
		{BackwardTransitive, aLong, true}, {BackwardTransitive, abString, false},
		{Forward, aLong, false}, {Forward, abString, true}, {Forward, none, false},
		{ForwardTransitive, abString, false}, {ForwardTransitive, a, true},
		{Full, abString, true}, {Full, aLong, false}, {FullTransitive, abString, false},
		{FullTransitive, ab, true},
	} {
		t.Run(c.level, func(t *testing.T) {
			d := newDesk(t)
			d.level("", None)
			d.put("s", a, 1, 1)
			d.put("s", ab, 2, 2)
			d.put("s", `{"type":"record","name":"R","doc":"again","fields":[{"name":"a","type":"int"}]}`, 3, 3)
			d.level("s", strings.ToLower(c.level))
			got := d.check("s", "", c.text)
			require.Equal(t, c.want, got.Compatible, "%s: %q", c.text, got.Messages)
			_, err := d.try("s", c.text, nil)
			require.Equal(t, c.want, err == nil, "registering says the same")
			if !c.want {
				require.Equal(t, got.Messages, d.refuses(CodeIncompatible, err).Messages)
				_, err = d.try("s", c.text, func(q *RegisterRequest) { q.Force = true })
				require.NoError(t, err)
			}
		})
	}
}

func TestMessages(t *testing.T) {
	d := newDesk(t)
	d.put("s", recordOf("R", `a:"int"`), 1, 1)
	d.level("s", FullTransitive)
	got := d.check("s", "", recordOf("R", `b:"int"`))
	require.False(t, got.Compatible)
	require.Len(t, got.Messages, 5, "%q", got.Messages)
	require.Contains(t, got.Messages[0], "READER_FIELD_MISSING_DEFAULT_VALUE")
	require.Contains(t, got.Messages[0], "additionalInfo:'a'", "forward first")
	require.Contains(t, got.Messages[1], "additionalInfo:'b'")
	require.Equal(t, "{oldSchemaVersion: 1}", got.Messages[2])
	require.Equal(t, "{oldSchema: '"+recordOf("R", `a:"int"`)+"'}", got.Messages[3])
	require.Equal(t, "{validateFields: 'false', compatibility: 'FULL_TRANSITIVE'}", got.Messages[4])
	require.Len(t, got.Differences, 2)
	require.Equal(t, 1, got.Differences[0].Version)
	require.NotEqual(t, got.Differences[0].Old, got.Differences[1].Old, "each side is what it is in both directions")

	_, err := d.try("s", recordOf("R", `b:"int"`), nil)
	e := d.refuses(CodeIncompatible, err)
	require.Contains(t, e.Message, "details: ["+got.Messages[0]+", ")

	long := `{"type":"record","name":"R","doc":"` + strings.Repeat("x", 20_000) + `","fields":[]}`
	d.put("long", long, 1, 2)
	got = d.check("long", "latest", `"int"`)
	require.Less(t, len(got.Messages[2]), 11_000)
}

func TestCheckAgainst(t *testing.T) {
	d := newDesk(t)
	d.level("", None)
	ctx := t.Context()
	a := recordOf("R", `a:"int"`)
	require.True(t, d.check("none", "latest", a).Compatible)
	require.True(t, d.check("none", "-1", a).Compatible)
	require.True(t, d.check("none", "", a).Compatible)
	q := RegisterRequest{Content: schema.Content{Text: a}}
	_, err := d.Compatibility(ctx, "none", "1", q)
	d.refuses(CodeVersionNotFound, err)
	_, err = d.Compatibility(ctx, "none", "0", q)
	d.refuses(CodeInvalidVersion, err)
	_, err = d.Compatibility(ctx, "none", "latest", RegisterRequest{Content: schema.Content{Text: "{"}})
	d.refuses(CodeInvalidSchema, err)
	_, err = d.Compatibility(ctx, "none", "latest", RegisterRequest{})
	d.refuses(CodeInvalidSchema, err)
	_, err = d.Compatibility(ctx, "none", "", RegisterRequest{Content: schema.Content{Type: "X", Text: "x"}})
	d.refuses(CodeInvalidSchema, err)

	d.put("s", recordOf("R", `z:"string"`), 1, 1)
	d.put("s", a, 2, 2)
	d.level("s", BackwardTransitive)
	require.False(t, d.check("s", "", a).Compatible)
	require.True(t, d.check("s", "2", a).Compatible)
	require.True(t, d.check("s", "latest", a).Compatible, "one version is one version under any level")
	require.False(t, d.check("s", "1", a).Compatible)
	d.deletes("s", "1", false)
	require.True(t, d.check("s", "", a).Compatible)
	_, err = d.Compatibility(ctx, "s", "1", q)
	d.refuses(CodeVersionNotFound, err)
}

func TestCompatibilityGroups(t *testing.T) {
	d := newDesk(t)
	group := "major"
	_, err := d.SetConfig(t.Context(), "s", ConfigUpdate{CompatibilityGroup: Change[string]{true, &group}})
	require.NoError(t, err)
	d.put("s", recordOf("R", `a:"int"`), 1, 1, withProperties("major", "1"))
	d.put("s", recordOf("R", `b:"int"`), 2, 2, withProperties("major", "2"))
	_, err = d.try("s", recordOf("R", `c:"int"`), nil)
	d.refuses(CodeIncompatible, err) // of the group of the version before, which it takes over
	d.put("s", recordOf("R", `a:"long"`), 3, 3, withProperties("major", "1"))
	d.put("s", recordOf("R", `d:"int"`), 4, 4, withProperties("other", "1"))
}

func TestOtherTypes(t *testing.T) {
	d := newDesk(t)
	d.put("s", `"string"`, 1, 1)
	_, err := d.try("s", `{"type":"string"}`, func(q *RegisterRequest) { q.Content.Type = schema.JSON })
	require.Contains(t, d.refuses(CodeIncompatible, err).Message, "of type JSON, version 1 of type AVRO")
	d.level("s", None)
	v := d.put("s", `{"type":"string"}`, 2, 2, func(q *RegisterRequest) { q.Content.Type = schema.JSON })
	require.Equal(t, schema.JSON, v.Content.Type)
}

func TestConfigs(t *testing.T) {
	d := newDesk(t)
	ctx := t.Context()
	yes, group, alias := true, "g", "other"
	c, err := d.Config(ctx, "", false)
	require.NoError(t, err)
	require.Equal(t, Backward, *c.CompatibilityLevel)
	_, err = d.Config(ctx, "s", false)
	d.refuses(CodeConfigNotFound, err)
	_, err = d.DeleteConfig(ctx, "s")
	d.refuses(CodeSubjectNotFound, err)
	for _, bad := range []ConfigUpdate{
		{Compatibility: Change[string]{true, &group}}, {CompatibilityPolicy: Change[string]{true, &group}},
	} {
		_, err = d.SetConfig(ctx, "s", bad)
		d.refuses(CodeInvalidLevel, err)
	}
	d.level("", Full)
	_, err = d.SetConfig(ctx, "", ConfigUpdate{CompatibilityGroup: Change[string]{true, &group}})
	require.NoError(t, err)
	c, err = d.SetConfig(ctx, "s", ConfigUpdate{Normalize: Change[bool]{true, &yes}, Alias: Change[string]{true, &alias}})
	require.NoError(t, err)
	require.Nil(t, c.CompatibilityLevel)
	c, err = d.SetConfig(ctx, "s", ConfigUpdate{ValidateFields: Change[bool]{true, &yes}})
	require.NoError(t, err)
	require.True(t, *c.Normalize, "what is absent stays")
	c, err = d.SetConfig(ctx, "s", ConfigUpdate{ValidateFields: Change[bool]{Set: true}})
	require.NoError(t, err)
	require.Nil(t, c.ValidateFields, "null removes")
	c, err = d.Config(ctx, "s", true)
	require.NoError(t, err)
	require.Equal(t, Full, *c.CompatibilityLevel, "the level is taken from above")
	require.Equal(t, "g", *c.CompatibilityGroup)
	require.True(t, *c.Normalize)

	to, err := d.Alias(ctx, "s")
	require.NoError(t, err)
	require.Equal(t, "other", to)
	to, err = d.Alias(ctx, "other")
	require.NoError(t, err)
	require.Equal(t, "other", to)
	_, err = d.SetConfig(ctx, ":.c:s", ConfigUpdate{Alias: Change[string]{true, &alias}})
	require.NoError(t, err)
	to, err = d.Alias(ctx, ":.c:s")
	require.NoError(t, err)
	require.Equal(t, ":.c:other", to)
	d.put("other", `"int"`, 1, 1)
	list, err := d.Schemas(ctx, SchemasQuery{Aliases: true})
	require.NoError(t, err)
	require.Equal(t, []string{"s"}, list[0].Aliases)

	c, err = d.Config(ctx, ":.c:t", true)
	require.NoError(t, err)
	require.Equal(t, Backward, *c.CompatibilityLevel, "the default context is not above the others")
	d.level(":.__GLOBAL:", None)
	d.level(":.c:", Forward)
	for subject, want := range map[string]string{":.c:t": Forward, ":.d:t": None, "t": Full} {
		c, err = d.Config(ctx, subject, true)
		require.NoError(t, err)
		require.Equal(t, want, *c.CompatibilityLevel, subject)
	}
	old, err := d.DeleteConfig(ctx, "")
	require.NoError(t, err)
	require.Equal(t, Full, *old.CompatibilityLevel)
	old, err = d.DeleteConfig(ctx, "")
	require.NoError(t, err)
	require.Equal(t, Backward, *old.CompatibilityLevel)
}

func TestConfigAndModeGoWithTheLastVersion(t *testing.T) {
	d := newDesk(t)
	ctx := t.Context()
	d.put("s", `"int"`, 1, 1)
	d.level("s", Full)
	d.mode("s", ReadWrite)
	_, err := d.DeleteSubject(ctx, "s", false)
	require.NoError(t, err)
	_, err = d.Config(ctx, "s", false)
	require.NoError(t, err)
	_, err = d.DeleteSubject(ctx, "s", true)
	require.NoError(t, err)
	_, err = d.Config(ctx, "s", false)
	d.refuses(CodeConfigNotFound, err)
	_, err = d.Mode(ctx, "s", false)
	d.refuses(CodeModeNotFound, err)
}

func TestModes(t *testing.T) {
	d := newDesk(t)
	ctx := t.Context()
	mode := func(subject string, inScope bool) string {
		m, err := d.Mode(ctx, subject, inScope)
		require.NoError(t, err)
		return m
	}
	require.Equal(t, ReadWrite, mode("", false))
	require.Equal(t, ReadWrite, mode("s", true))
	_, err := d.DeleteMode(ctx, "s", false)
	d.refuses(CodeSubjectNotFound, err)
	d.mode(":.__GLOBAL:", ReadOnly)
	require.Equal(t, ReadOnly, mode("s", true))
	require.Equal(t, ReadOnly, mode(":.c:s", true))
	d.mode(":.c:s", ReadWrite)
	d.mode(":.c:", ReadOnly)
	require.Equal(t, ReadWrite, mode(":.c:s", true))
	require.Equal(t, ReadOnly, mode(":.c:t", true))
	old, err := d.DeleteMode(ctx, ":.c:", true)
	require.NoError(t, err)
	require.Equal(t, ReadOnly, old)
	_, err = d.Mode(ctx, ":.c:s", false)
	d.refuses(CodeModeNotFound, err)
	d.mode(":.c:s", ReadWrite)
	old, err = d.DeleteMode(ctx, ":.c:", true)
	require.NoError(t, err)
	require.Empty(t, old)
	require.NoError(t, d.SetMode(ctx, ":.__GLOBAL:", nil, false))
	require.Equal(t, ReadWrite, mode("s", true))

	fixed := run(t, d.log, func(c *Config) { c.ModeFixed = true })
	d.refuses(CodeNotPermitted, fixed.SetMode(ctx, "s", new(ReadOnly), false))
	_, err = fixed.DeleteMode(ctx, "s", false)
	d.refuses(CodeNotPermitted, err)
}

func TestContexts(t *testing.T) {
	d := newDesk(t)
	ctx := t.Context()
	d.put(":.c:s", `"int"`, 1, 1)
	d.put(":.d:s", `"int"`, 1, 1)
	d.put(":.d:s2", `"long"`, 1, 2)
	d.refuses(CodeContextNotEmpty, d.DeleteContext(ctx, ".c"))
	_, err := d.DeleteSubject(ctx, ":.c:s", false)
	require.NoError(t, err)
	d.refuses(CodeContextNotEmpty, d.DeleteContext(ctx, ".c"))
	_, err = d.DeleteSubject(ctx, ":.c:s", true)
	require.NoError(t, err)
	require.NoError(t, d.DeleteContext(ctx, ".c"))
	require.NoError(t, d.DeleteContext(ctx, ".none"))
	d.refuses(CodeNotPermitted, d.DeleteContext(ctx, "."))
	names, err := d.Contexts(ctx, "", Page{})
	require.NoError(t, err)
	require.Equal(t, []string{".", ".d"}, names)
	d.put(":.c:s", `"long"`, 1, 2) // its first id is not given out again
	names, err = d.Contexts(ctx, ".", Page{Offset: 1, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, []string{".c"}, names)

	require.Equal(t, []string{":.c:s", ":.d:s", ":.d:s2"}, mustSubjects(t, d, SubjectsQuery{Prefix: ":*:s"}))
	require.Equal(t, []string{":.d:s", ":.d:s2"}, mustSubjects(t, d, SubjectsQuery{Prefix: ":.d:"}))
	require.Empty(t, mustSubjects(t, d, SubjectsQuery{}))
	s2, plain := "s2", ""
	v, err := d.ByID(ctx, 2, &s2)
	require.NoError(t, err, "an unqualified subject is looked for in all contexts")
	require.Equal(t, ":.d:s2", v.Subject)
	_, err = d.ByID(ctx, 2, &plain)
	d.refuses(CodeSchemaNotFound, err)
	of := ":.d:"
	held, err := d.VersionsOfID(ctx, 2, HoldersQuery{Subject: &of})
	require.NoError(t, err)
	require.Equal(t, []SubjectVersion{{":.d:s2", 1}}, held)
}

func TestListings(t *testing.T) {
	d := newDesk(t)
	ctx := t.Context()
	d.level("", None)
	for i := range 5 {
		d.put("a", enum(i), i+1, i+1)
		d.put(fmt.Sprint("b", i), enum(0), 1, 1)
	}
	d.deletes("a", "3", false)
	require.Equal(t, []int{1, 2, -3, 4, 5}, d.numbers("a", VersionsQuery{DeletedAsNegative: true, DeletedOnly: true}))
	require.Equal(t, []int{3}, d.numbers("a", VersionsQuery{Deleted: true, DeletedOnly: true}))
	require.Equal(t, []int{2, 4}, d.numbers("a", VersionsQuery{Page: Page{1, 2}}))
	require.Empty(t, d.numbers("a", VersionsQuery{Page: Page{9, 2}}))
	_, err := d.DeleteSubject(ctx, "b1", false)
	require.NoError(t, err)
	require.Equal(t, []string{"b1"}, mustSubjects(t, d, SubjectsQuery{DeletedOnly: true, Deleted: true}))
	require.Equal(t, []string{"b0", "b2"}, mustSubjects(t, d, SubjectsQuery{Prefix: "b", Page: Page{0, 2}}))
	subjects, err := d.SubjectsOfID(ctx, 1, HoldersQuery{Page: Page{1, 2}})
	require.NoError(t, err)
	require.Equal(t, []string{"b0", "b2"}, subjects)
	subjects, err = d.SubjectsOfID(ctx, 1, HoldersQuery{Deleted: true, Page: Page{1, 2}})
	require.NoError(t, err)
	require.Equal(t, []string{"b0", "b1"}, subjects)
	_, err = d.SubjectsOfID(ctx, 99, HoldersQuery{})
	d.refuses(CodeSchemaNotFound, err)
	list, err := d.Schemas(ctx, SchemasQuery{LatestOnly: true, Page: Page{0, 2}})
	require.NoError(t, err)
	require.Equal(t, "a", list[0].Subject)
	require.Equal(t, 5, list[0].Version.Version)
	require.Equal(t, "b0", list[1].Subject)
	v, err := d.Latest(ctx, "a", nil, false)
	require.NoError(t, err)
	require.Equal(t, 5, v.Version)
	_, err = d.Latest(ctx, "a", [][2]string{{"p", "1"}}, false)
	d.refuses(CodeSchemaNotFound, err)
	_, err = d.Latest(ctx, "none", nil, true)
	d.refuses(CodeSubjectNotFound, err)
	_, err = d.Version(ctx, "a", "3", false)
	d.refuses(CodeVersionNotFound, err)
	_, err = d.DeleteVersion(ctx, "a", "3", false)
	d.refuses(CodeVersionSoftDeleted, err)
	_, err = d.DeleteVersion(ctx, "a", "1", true)
	d.refuses(CodeVersionNotSoftDeleted, err)
	_, err = d.DeleteSubject(ctx, "b1", false)
	d.refuses(CodeSubjectSoftDeleted, err)
	_, err = d.DeleteSubject(ctx, "a", true)
	d.refuses(CodeSubjectNotSoftDeleted, err)
}

// A schema that one subject has deleted and another one holds is not shown as deleted.
func TestShownByALiveVersion(t *testing.T) {
	d := newDesk(t)
	for _, subject := range []string{"a", "b"} {
		d.put(subject, `"int"`, 1, 1)
	}
	for i, subject := range []string{"a", "b"} {
		d.deletes(subject, "1", false)
		v, err := d.ByID(t.Context(), 1, nil)
		require.NoError(t, err)
		require.Equal(t, i == 1, v.Deleted)
	}
}

// A subject with very many versions is deleted in parts, and all of it.
func TestDeletesInParts(t *testing.T) {
	log := newFakeLog()
	var records []string
	const many = 2*maxBatch + 10
	for i := range many {
		records = append(records, fmt.Sprintf(schemaKeyOf, "s", i+1), fmt.Sprintf(`{"id":%d,"schema":%q,"deleted":true}`,
			i+1, enum(i)))
	}
	log.put(records...)
	d := &desk{t, log, run(t, log, nil)}
	numbers, err := d.DeleteSubject(t.Context(), "s", true)
	require.NoError(t, err)
	require.Len(t, numbers, many)
	require.Empty(t, mustSubjects(t, d, SubjectsQuery{Deleted: true}))
	d.put("s", `"int"`, 1, many+1)
	d.read(func(s *state) { require.Equal(t, s.dump(), log.compacted().folded(t).dump()) })
}

// No part is larger than what a broker takes, however long the names are.
func TestPartsAreSmall(t *testing.T) {
	log := newFakeLog()
	name := strings.Repeat("n", maxSubject)
	var records []string
	for i := range 300 {
		records = append(records, fmt.Sprintf(schemaKeyOf, name, i+1), fmt.Sprintf(`{"id":%d,"schema":%q,"deleted":true}`,
			i+1, enum(i)), fmt.Sprintf(`{"keytype":"MODE","subject":%q,"magic":0}`, fmt.Sprint(i, name[4:])),
			`{"mode":"IMPORT"}`)
	}
	log.put(records...)
	var most atomic.Int64
	log.fault = func(r kmsg.Request) loss {
		if p, ok := r.(*kmsg.ProduceRequest); ok {
			most.Store(max(most.Load(), int64(len(p.Topics[0].Partitions[0].Records))))
		}
		return nothingLost
	}
	d := &desk{t, log, run(t, log, nil)}
	numbers, err := d.DeleteSubject(t.Context(), name, true)
	require.NoError(t, err)
	require.Len(t, numbers, 300)
	_, err = d.DeleteMode(t.Context(), "", true)
	require.NoError(t, err)
	d.read(func(s *state) { require.Empty(t, s.modes) })
	require.Less(t, most.Load(), int64(500_000))
}

// Of what is written in parts, one part in the log makes a failure an unknown outcome.
func TestPartsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		for i := range maxBatch + 1 {
			log.put(fmt.Sprintf(schemaKeyOf, "s", i+1), fmt.Sprintf(`{"id":%d,"schema":%q,"deleted":true}`, i+1, enum(i)))
		}
		var cut atomic.Bool
		log.fault = func(r kmsg.Request) loss {
			switch r.(type) {
			case *kmsg.ProduceRequest:
				cut.Store(true)
			case *kmsg.ListOffsetsRequest:
				if cut.Load() {
					return requestLost
				}
			}
			return nothingLost
		}
		d := &desk{t, log, run(t, log, func(c *Config) { c.Limits.WriteWait = 300 * time.Millisecond })}
		require.NoError(t, d.AwaitRead(t.Context()))
		_, err := d.DeleteSubject(t.Context(), "s", true)
		require.True(t, d.refuses(CodeStoreTimeout, err).Unknown)
		cut.Store(false)
		_, err = d.DeleteSubject(t.Context(), "s", true)
		require.NoError(t, err)
	})
}
