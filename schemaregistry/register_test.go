package schemaregistry

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

// desk is a Registry on a log in memory, and how tests ask it.
type desk struct {
	t   *testing.T
	log *fakeLog
	*Registry
}

func newDesk(t *testing.T) *desk {
	log := newFakeLog()
	return &desk{t, log, run(t, log, nil)}
}

// try registers with a request that change fills in.
func (d *desk) try(subject, text string, change func(*RegisterRequest)) (Version, error) {
	q := RegisterRequest{Content: schema.Content{Text: text}}
	if change != nil {
		change(&q)
	}
	return d.Register(d.t.Context(), subject, q)
}

// put registers and wants a version and an id.
func (d *desk) put(subject, text string, version, id int, change ...func(*RegisterRequest)) Version {
	d.t.Helper()
	v, err := d.try(subject, text, func(q *RegisterRequest) {
		for _, c := range change {
			c(q)
		}
	})
	require.NoError(d.t, err, "%s in %s", text, subject)
	require.Equal(d.t, [2]int{version, id}, [2]int{v.Version, v.ID}, "version and id of %s in %s", text, subject)
	return v
}

// refuses wants an error with a code.
func (d *desk) refuses(code int, err error) *Error {
	d.t.Helper()
	require.Equal(d.t, code, codeOf(err), "%v", err)
	return AsError(err)
}

func (d *desk) level(subject, level string) {
	d.t.Helper()
	_, err := d.SetConfig(d.t.Context(), subject, ConfigUpdate{Compatibility: Change[string]{true, &level}})
	require.NoError(d.t, err)
}

func (d *desk) mode(subject, mode string) {
	d.t.Helper()
	require.NoError(d.t, d.SetMode(d.t.Context(), subject, &mode, false))
}

func (d *desk) deletes(subject, version string, permanent bool) {
	d.t.Helper()
	_, err := d.DeleteVersion(d.t.Context(), subject, version, permanent)
	require.NoError(d.t, err)
}

func (d *desk) numbers(subject string, q VersionsQuery) []int {
	d.t.Helper()
	out, err := d.Versions(d.t.Context(), subject, q)
	require.NoError(d.t, err)
	return out
}

func withID(id int) func(*RegisterRequest)   { return func(q *RegisterRequest) { q.ID = &id } }
func atVersion(n int) func(*RegisterRequest) { return func(q *RegisterRequest) { q.Version = n } }

func withRefs(refs ...schema.Reference) func(*RegisterRequest) {
	return func(q *RegisterRequest) { q.Content.References = refs }
}

func ofBase() schema.Reference { return schema.Reference{Name: "Base", Subject: "base", Version: 1} }

func withProperties(pairs ...string) func(*RegisterRequest) {
	return func(q *RegisterRequest) {
		q.Content.Metadata = &schema.Metadata{Properties: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			q.Content.Metadata.Properties[pairs[i]] = pairs[i+1]
		}
	}
}

// recordOf is an Avro record with fields, each a name, a colon and a type.
func recordOf(name string, fields ...string) string {
	var out []string
	for _, f := range fields {
		n, typ, _ := strings.Cut(f, ":")
		out = append(out, fmt.Sprintf(`{"name":%q,"type":%s}`, n, typ))
	}
	return fmt.Sprintf(`{"type":"record","name":%q,"fields":[%s]}`, name, strings.Join(out, ","))
}

func TestRegisterConsequences(t *testing.T) {
	d := newDesk(t)
	d.level(":.__GLOBAL:", None)
	a, b := recordOf("R", `a:"int"`), recordOf("R", `b:"int"`)
	d.put("s", a, 1, 1)
	d.put("s", a, 1, 1)
	d.put("s", `{"name":"R", "type":"record", "fields":[{"type":"int","name":"a"}]}`, 1, 1)
	length := d.log.length()
	require.Equal(t, int64(2), length, "a config and a version")
	d.put("s", strings.Replace(a, `"fields"`, `"doc":"d","fields"`, 1), 2, 2)
	d.put("s", a, 1, 1)
	d.put("t", a, 1, 1)
	d.put(":.c:s", a, 1, 1)
	d.put(":.c:s", b, 2, 2)
	d.put("s", b, 3, 3)
	d.put("s", a, 4, 4, withProperties("p", "1"))
	d.put("s", a, 5, 5, withProperties("p", "2"))

	one, err := d.Version(t.Context(), "s", "1", false)
	require.NoError(t, err)
	other, err := d.Version(t.Context(), ":.c:s", "1", false)
	require.NoError(t, err)
	require.Equal(t, one.GUID, other.GUID)
	ids, err := d.GUIDIDs(t.Context(), one.GUID)
	require.NoError(t, err)
	require.Equal(t, []ContextID{{".", 1}, {".c", 1}}, ids)
	contexts, err := d.Contexts(t.Context(), "", Page{})
	require.NoError(t, err)
	require.Equal(t, []string{".", ".c"}, contexts)
}

// The time that an answer tells is that of the record, and so what all later answers tell.
func TestTimesAreThoseOfTheLog(t *testing.T) {
	log := newFakeLog()
	var seconds atomic.Int64
	d := &desk{t, log, run(t, log, func(c *Config) {
		c.Now = func() time.Time { return time.Unix(seconds.Add(1), 0) }
	})}
	same := func(v Version, err error) {
		t.Helper()
		require.NoError(t, err)
		require.NotZero(t, v.Timestamp)
		got, err := d.Version(t.Context(), v.Subject, fmt.Sprint(v.Version), false)
		require.NoError(t, err)
		require.Equal(t, got, v)
	}
	same(d.try("s", `"int"`, nil))
	d.deletes("s", "1", false)
	same(d.Undelete(t.Context(), "s", "1"))
	all, err := d.RegisterBatch(t.Context(), []BatchEntry{
		{"a", RegisterRequest{Content: schema.Content{Text: `"int"`}}},
		{"b", RegisterRequest{Content: schema.Content{Text: `"bytes"`}}},
	})
	require.NoError(t, err)
	same(all[0], nil)
	same(all[1], nil)
}

func TestRegisterAfterDelete(t *testing.T) {
	d := newDesk(t)
	d.level("", None)
	a, b := recordOf("R", `a:"int"`), recordOf("R", `b:"int"`)
	d.put("s", a, 1, 1)
	d.deletes("s", "1", false)
	d.put("s", a, 2, 1)
	require.Equal(t, []int{2}, d.numbers("s", VersionsQuery{Deleted: true}), "the one before has gone")
	d.put("s", b, 3, 2)
	d.deletes("s", "3", false)
	numbers, err := d.DeleteSubject(t.Context(), "s", false)
	require.NoError(t, err)
	require.Equal(t, []int{2}, numbers, "what became deleted")
	_, err = d.ByID(t.Context(), 2, nil)
	require.NoError(t, err, "ids survive soft deletes")
	numbers, err = d.DeleteSubject(t.Context(), "s", true)
	require.NoError(t, err)
	require.Equal(t, []int{2, 3}, numbers)
	_, err = d.ByID(t.Context(), 2, nil)
	d.refuses(CodeSchemaNotFound, err)
	d.put("s", b, 1, 3)

	v, err := d.Undelete(t.Context(), "s", "1")
	require.NoError(t, err)
	require.Equal(t, 1, v.Version)
	d.deletes("s", "1", false)
	_, err = d.Version(t.Context(), "s", "1", false)
	d.refuses(CodeSubjectNotFound, err)
	v, err = d.Undelete(t.Context(), "s", "1")
	require.NoError(t, err)
	require.False(t, v.Deleted)
	require.Equal(t, []int{1}, d.numbers("s", VersionsQuery{}))
}

func TestVersionOfTheRequest(t *testing.T) {
	d := newDesk(t)
	d.level("", None)
	a, b := recordOf("R", `a:"int"`), recordOf("R", `b:"int"`)
	d.put("s", a, 1, 1)
	d.put("s", b, 2, 2)
	v := d.put("s", a, 3, 3, atVersion(-1)) // equal to none but the latest one
	require.Equal(t, "3", v.Content.Metadata.Properties[confluentVersion])
	d.put("s", a, 3, 3, atVersion(-1))
	_, err := d.try("s", recordOf("R"), atVersion(7))
	d.refuses(CodeInvalidSchema, err)
	v = d.put("s", recordOf("R"), 4, 4, atVersion(4))
	require.Equal(t, "4", v.Content.Metadata.Properties[confluentVersion])
	v = d.put("s", recordOf("R", `c:"int"`), 5, 5)
	require.Equal(t, "5", v.Content.Metadata.Properties[confluentVersion], "where it is it is kept up")
	v = d.put("s", recordOf("R"), 6, 6, withProperties(confluentVersion, "9"))
	require.Equal(t, "6", v.Content.Metadata.Properties[confluentVersion], "no version tells that it is 9")
}

func TestReadOnlyAnswersWhatIsKnown(t *testing.T) {
	d := newDesk(t)
	a := recordOf("R", `a:"int"`)
	d.put("s", a, 1, 1)
	for _, mode := range []string{ReadOnly, ReadOnlyOverride} {
		d.mode("", mode)
		d.put("s", a, 1, 1)
		d.put("s", a, 1, 1, withID(1))
		_, err := d.try("s", recordOf("R"), nil)
		d.refuses(CodeNotPermitted, err)
		_, err = d.DeleteSubject(t.Context(), "s", false)
		d.refuses(CodeNotPermitted, err)
		level := None
		_, err = d.SetConfig(t.Context(), "s", ConfigUpdate{Compatibility: Change[string]{true, &level}})
		d.refuses(CodeNotPermitted, err)
		_, err = d.DeleteConfig(t.Context(), "")
		d.refuses(CodeNotPermitted, err)
	}
	d.mode("s", ReadWrite)
	_, err := d.try("s", recordOf("R"), nil)
	d.refuses(CodeNotPermitted, err) // overridden
	d.mode("", ReadOnly)
	d.put("s", recordOf("R"), 2, 2)
	_, err = d.try("s", recordOf("R", `c:["null","int"]`), withID(9))
	d.refuses(CodeNotPermitted, err)
}

func TestImport(t *testing.T) {
	d := newDesk(t)
	a, b := recordOf("R", `a:"int"`), recordOf("R", `a:"string"`)
	d.put("s", a, 1, 1)
	err := d.SetMode(t.Context(), "s", new("import"), false)
	d.refuses(CodeNotPermitted, err)
	d.deletes("s", "1", false)
	d.mode("s", Import)
	require.Equal(t, 0, len(mustSubjects(t, d, SubjectsQuery{Deleted: true})), "what was softly deleted has gone")

	_, err = d.try("s", a, nil)
	d.refuses(CodeNotPermitted, err)
	d.put("s", a, 7, 50, withID(50), atVersion(7))
	d.put("s", a, 7, 50, withID(50), atVersion(7))
	d.put("s", b, 3, 60, withID(60), atVersion(3)) // not compatible, and not the next one
	d.put("s", a, 8, 51, withID(51))               // one schema may have several ids
	_, err = d.try("s", b, func(q *RegisterRequest) { withID(50)(q) })
	d.refuses(CodeNotPermitted, err)
	_, err = d.try("s", a, func(q *RegisterRequest) { withID(61)(q); atVersion(7)(q) })
	d.refuses(CodeOtherID, err)
	_, err = d.try("s", b, func(q *RegisterRequest) { withID(60)(q); atVersion(7)(q) })
	d.refuses(CodeNotPermitted, err)
	require.Equal(t, []int{3, 7, 8}, d.numbers("s", VersionsQuery{}))
	d.put("t", recordOf("T"), 1, 61)
	id, err := d.MaxID(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 61, id)
	require.NoError(t, d.SetMode(t.Context(), "s", new(Import), false), "it is set already")
	d.refuses(CodeNotPermitted, d.SetMode(t.Context(), "", new(Import), false))
	require.NoError(t, d.SetMode(t.Context(), "", new(Import), true))
	d.refuses(CodeInvalidMode, d.SetMode(t.Context(), "", new(ForwardMode), false))
	require.NoError(t, d.SetMode(t.Context(), ":.__GLOBAL:", new(ForwardMode), false))
	d.refuses(CodeInvalidMode, d.SetMode(t.Context(), "", new("x"), false))
}

func mustSubjects(t *testing.T, d *desk, q SubjectsQuery) []string {
	t.Helper()
	out, err := d.Subjects(t.Context(), q)
	require.NoError(t, err)
	return out
}

func TestFillingIn(t *testing.T) {
	d := newDesk(t)
	d.level("", None)
	a, b := recordOf("R", `a:"int"`), recordOf("R", `b:"int"`)
	rules := func(names ...string) *schema.RuleSet {
		rs := &schema.RuleSet{}
		for _, n := range names {
			rs.DomainRules = append(rs.DomainRules, schema.Rule{Name: n, Type: "CEL"})
		}
		return rs
	}
	d.put("s", a, 1, 1, withProperties("p", "1"), func(q *RegisterRequest) { q.Content.RuleSet = rules("one") })
	v := d.put("s", b, 2, 2)
	require.Equal(t, map[string]string{"p": "1"}, v.Content.Metadata.Properties, "taken over from the version before")
	require.Equal(t, rules("one"), v.Content.RuleSet)
	v = d.put("s", "", 3, 3, withProperties("p", "2"))
	require.Equal(t, b, v.Content.Text)
	_, err := d.try("none", "", nil)
	d.refuses(CodeInvalidSchema, err)

	_, err = d.SetConfig(t.Context(), "s", ConfigUpdate{
		DefaultMetadata:  Change[schema.Metadata]{true, &schema.Metadata{Properties: map[string]string{"p": "d", "q": "d"}}},
		OverrideMetadata: Change[schema.Metadata]{true, &schema.Metadata{Properties: map[string]string{"o": "o"}}},
		DefaultRuleSet:   Change[schema.RuleSet]{true, rules("one", "two")},
		OverrideRuleSet:  Change[schema.RuleSet]{true, rules("last")},
	})
	require.NoError(t, err)
	v = d.put("s", a, 4, 4, withProperties("p", "3"))
	require.Equal(t, map[string]string{"p": "3", "q": "d", "o": "o"}, v.Content.Metadata.Properties)
	require.Equal(t, rules("two", "one", "last"), v.Content.RuleSet)
	d.put("s", a, 4, 4, withProperties("p", "3"))
}

func TestRules(t *testing.T) {
	d := newDesk(t)
	for _, bad := range []schema.RuleSet{
		{EnableAt: "SOMEWHERE"},
		{DomainRules: []schema.Rule{{Type: "T"}}},
		{DomainRules: []schema.Rule{{Name: "1a", Type: "T"}}},
		{DomainRules: []schema.Rule{{Name: strings.Repeat("a", 257), Type: "T"}}},
		{DomainRules: []schema.Rule{{Name: "a"}}},
		{DomainRules: []schema.Rule{{Name: "a", Type: "T", Kind: "K"}}},
		{DomainRules: []schema.Rule{{Name: "a", Type: "T", Mode: "UPGRADE"}}},
		{MigrationRules: []schema.Rule{{Name: "a", Type: "T"}}},
		{MigrationRules: []schema.Rule{{Name: "a", Type: "T", Mode: "UPGRADE", OnSuccess: "x,y"}}},
		{EncodingRules: []schema.Rule{{Name: "a", Type: "T", Mode: "X"}}},
		{EncodingRules: []schema.Rule{{Name: "a", Type: "T"}}, DomainRules: []schema.Rule{{Name: "a", Type: "T"}}},
	} {
		_, err := d.try("s", `"int"`, func(q *RegisterRequest) { q.Content.RuleSet = &bad })
		d.refuses(CodeInvalidRuleSet, err)
		_, err = d.SetConfig(t.Context(), "s", ConfigUpdate{OverrideRuleSet: Change[schema.RuleSet]{true, &bad}})
		d.refuses(CodeInvalidRuleSet, err)
	}
	good := &schema.RuleSet{
		MigrationRules: []schema.Rule{{Name: "_m", Type: "T", Mode: "UPDOWN", OnFailure: "ERROR,NONE"}},
		DomainRules:    []schema.Rule{{Name: "d-1", Type: "CEL", Kind: "CONDITION", OnSuccess: "a,b"}},
		EnableAt:       "CLIENT",
	}
	v := d.put("s", `"int"`, 1, 1, func(q *RegisterRequest) { q.Content.RuleSet = good })
	require.Equal(t, good, v.Content.RuleSet)
	found, err := d.Schemas(t.Context(), SchemasQuery{RuleType: "CEL"})
	require.NoError(t, err)
	require.Len(t, found, 1)
}

func TestSubjectNames(t *testing.T) {
	d := newDesk(t)
	for _, bad := range []string{"a\x01", "__GLOBAL", "__EMPTY", ":.__GLOBAL:s", ":.c:__GLOBAL", ":*:s", "a\xff",
		":.::.c:s", ":.::.__GLOBAL:", ":.::*:s", strings.Repeat("s", maxSubject+1)} {
		_, err := d.try(bad, `"int"`, nil)
		d.refuses(CodeInvalidSubject, err)
		d.refuses(CodeInvalidSubject, d.SetMode(t.Context(), bad, new(ReadOnly), false))
	}
	for i, good := range []string{"", "a/b c", ":x", "é:y", ":.:plain"} {
		v := d.put(good, fmt.Sprintf(`{"type":"fixed","name":"F","size":%d}`, i+1), 1, i+1)
		require.Equal(t, strings.TrimPrefix(good, ":.:"), v.Subject)
	}
	require.Equal(t, []string{"", ":x", "a/b c", "plain", "é:y"}, mustSubjects(t, d, SubjectsQuery{Prefix: EveryContext}))
	for bad := range strings.FieldsSeq("0 -2 x 2147483648 +1 1.0 latest1") {
		_, err := d.Version(t.Context(), "plain", bad, false)
		d.refuses(CodeInvalidVersion, err)
	}
	for good := range strings.FieldsSeq("1 latest LATEST -1") {
		_, err := d.Version(t.Context(), "plain", good, false)
		require.NoError(t, err)
	}
}

func TestReferences(t *testing.T) {
	d := newDesk(t)
	ctx := t.Context()
	d.put("base", recordOf("Base", `x:"int"`), 1, 1)
	user := recordOf("User", `b:"Base"`)
	_, err := d.try("user", user, nil)
	d.refuses(CodeInvalidSchema, err)
	for _, bad := range []schema.Reference{
		{Name: "Base", Subject: "base", Version: 2}, {Name: "Base", Subject: "none", Version: 1},
		{Name: "Base", Subject: "none", Version: -1}, {Name: "Base", Subject: "base"},
		{Name: "", Subject: "base", Version: 1},
		{Name: "Base", Version: 1}, {Name: "Base", Subject: "base", Version: -2},
	} {
		_, err := d.try("user", user, withRefs(bad))
		d.refuses(CodeInvalidSchema, err)
	}
	v := d.put("user", user, 1, 2, withRefs(schema.Reference{Name: "Base", Subject: "base", Version: -1}))
	require.Equal(t, []schema.Reference{{Name: "Base", Subject: "base", Version: 1}}, v.Content.References)
	top := recordOf("Top", `u:"User"`, `b:"Base"`)
	d.put("top", top, 1, 3, withRefs(schema.Reference{Name: "User", Subject: "user", Version: 1}))

	ids, err := d.ReferencedBy(ctx, "base", "1", false, Page{})
	require.NoError(t, err)
	require.Equal(t, []int{2}, ids)
	_, err = d.DeleteVersion(ctx, "base", "1", false)
	d.refuses(CodeReferenced, err)
	_, err = d.DeleteSubject(ctx, "base", false)
	d.refuses(CodeReferenced, err)
	_, err = d.DeleteSubject(ctx, "top", false)
	require.NoError(t, err)
	_, err = d.DeleteSubject(ctx, "user", false)
	require.NoError(t, err)
	d.deletes("base", "1", false) // softly deleted referrers do not count
	ids, err = d.ReferencedBy(ctx, "base", "1", true, Page{})
	require.NoError(t, err)
	require.Equal(t, []int{2}, ids)
	_, err = d.DeleteVersion(ctx, "base", "1", true)
	d.refuses(CodeReferenced, err)
	_, err = d.try("other", recordOf("User", `b:"Base"`, `o:"int"`), withRefs(ofBase()))
	d.refuses(CodeInvalidSchema, err) // a new one may not refer to what is deleted
	v, err = d.Version(ctx, "user", "1", true)
	require.NoError(t, err)
	parsed, err := d.Parsed(ctx, v)
	require.NoError(t, err, "a stored one may")
	require.Equal(t, "User", parsed.Name())
	shown, err := d.Render(ctx, v, "resolved", false)
	require.NoError(t, err)
	require.Contains(t, shown.Content.Text, `"name":"Base"`)
	for _, s := range []string{"top", "user", "base"} {
		_, err := d.DeleteSubject(ctx, s, true)
		require.NoError(t, err)
	}
	d.put("base", recordOf("Base", `y:"int"`), 1, 4)
	d.put("user", user, 1, 5, withRefs(ofBase()))
	v, err = d.Version(ctx, "user", "1", true)
	require.NoError(t, err)
	shown, err = d.Render(ctx, v, "resolved", false)
	require.NoError(t, err)
	require.Contains(t, shown.Content.Text, `"name":"y"`, "what is kept in parsed form goes by what references lead to")
}

func TestReferencesAreOfTheirContext(t *testing.T) {
	d := newDesk(t)
	d.put(":.c:base", recordOf("Base", `x:"int"`), 1, 1)
	user := recordOf("User", `b:"Base"`)
	ref := schema.Reference{Name: "Base", Subject: "base", Version: 1}
	_, err := d.try("user", user, withRefs(ref))
	d.refuses(CodeInvalidSchema, err)
	v := d.put(":.c:user", user, 1, 2, withRefs(ref))
	shown, err := d.Render(t.Context(), v, "", true)
	require.NoError(t, err)
	require.Equal(t, ":.c:base", shown.Content.References[0].Subject)
	require.Equal(t, "base", v.Content.References[0].Subject)
	ref.Subject = ":.c:base"
	d.put("user", user, 1, 1, withRefs(ref))
	ids, err := d.ReferencedBy(t.Context(), ":.c:base", "latest", false, Page{})
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, ids)
}

func TestReferencesHaveBounds(t *testing.T) {
	log := newFakeLog()
	log.put( // no registry lets this come about
		fmt.Sprintf(schemaKeyOf, "a", 1), `{"id":1,"schema":"{}","references":[{"name":"B","subject":"b","version":1}]}`,
		fmt.Sprintf(schemaKeyOf, "b", 1), `{"id":2,"schema":"{}","references":[{"name":"A","subject":"a","version":1}]}`,
	)
	for i := range 30 {
		refs := `[]`
		if i > 0 {
			refs = fmt.Sprintf(`[{"name":"N%d","subject":"n%d","version":1}]`, i-1, i-1)
		}
		text := fmt.Sprintf(`"{\"type\":\"fixed\",\"name\":\"N%d\",\"size\":1}"`, i)
		log.put(fmt.Sprintf(schemaKeyOf, fmt.Sprint("n", i), 1), fmt.Sprintf(`{"id":%d,"schema":%s,"references":%s}`,
			10+i, text, refs))
	}
	d := &desk{t, log, run(t, log, func(c *Config) { c.Limits.ReferenceDepth, c.Limits.References = 20, 5 })}
	try := func(refs ...schema.Reference) *Error {
		_, err := d.try("s", `"int"`, withRefs(refs...))
		return d.refuses(CodeInvalidSchema, err)
	}
	require.Contains(t, try(schema.Reference{Name: "A", Subject: "a", Version: 1}).Message, "refers to itself")
	require.Contains(t, try(schema.Reference{Name: "x", Subject: "n29", Version: 1}).Message, "through more than 20")
	require.Contains(t, try(schema.Reference{Name: "x", Subject: "n10", Version: 1}).Message, "more than 5 schemas")
	many := make([]schema.Reference, 6)
	require.Contains(t, try(many...).Message, "more than 5 references")
	_, err := d.try("s", `"int"`, withRefs(schema.Reference{Name: "x", Subject: "n3", Version: 1}))
	require.NoError(t, err)
}

func TestBatch(t *testing.T) {
	d := newDesk(t)
	base, user := recordOf("Base", `x:"int"`), recordOf("User", `b:"Base"`)
	entry := func(subject, text string, change ...func(*RegisterRequest)) BatchEntry {
		e := BatchEntry{Subject: subject, Request: RegisterRequest{Content: schema.Content{Text: text}}}
		for _, c := range change {
			c(&e.Request)
		}
		return e
	}
	ref := withRefs(schema.Reference{Name: "Base", Subject: "base", Version: -1})
	_, err := d.RegisterBatch(t.Context(), []BatchEntry{entry(":.c:base", base), entry(":.c:user", `"x"`)})
	require.Contains(t, d.refuses(CodeInvalidSchema, err).Message, "schema 1 of the batch")
	require.Zero(t, d.log.length(), "all or nothing")

	batch := []BatchEntry{
		entry(":.c:base", base), entry(":.c:user", user, ref), entry(":.c:base", base), entry(":.c:copy", base),
		entry(":.c:base", recordOf("Base", `x:"int"`, `y:["null","int"]`), func(q *RegisterRequest) { q.Force = true }),
	}
	got, err := d.RegisterBatch(t.Context(), batch)
	require.NoError(t, err)
	var places []string
	for _, v := range got {
		places = append(places, fmt.Sprint(v.Subject, "/", v.Version, "=", v.ID))
	}
	want := []string{":.c:base/1=1", ":.c:user/1=2", ":.c:base/1=1", ":.c:copy/1=1", ":.c:base/2=3"}
	require.Equal(t, want, places)
	require.Equal(t, int64(5), d.log.length(), "a context and four versions")
	again, err := d.RegisterBatch(t.Context(), batch[2:4])
	require.NoError(t, err)
	require.Equal(t, 1, again[0].Version)
	_, err = d.RegisterBatch(t.Context(), []BatchEntry{entry(":.c:base", recordOf("Base", `z:"int"`))})
	d.refuses(CodeIncompatible, err)
}

func TestTags(t *testing.T) {
	d := newDesk(t)
	d.put("s", recordOf("R", `a:"int"`), 1, 1)
	at := schema.Entity{Path: "R.a", Type: "sr_field"}
	v, err := d.ModifyTags(t.Context(), "s", "latest", TagsRequest{
		TagsToAdd:    []schema.Tagged{{Entity: at, Tags: []string{"PII"}}},
		RulesToMerge: &schema.RuleSet{DomainRules: []schema.Rule{{Name: "r", Type: "T"}, {Name: "q", Type: "T"}}},
	})
	require.NoError(t, err)
	require.Equal(t, [2]int{2, 2}, [2]int{v.Version, v.ID})
	require.Contains(t, v.Content.Text, "PII")
	v, err = d.ModifyTags(t.Context(), "s", "2", TagsRequest{
		Metadata: &schema.Metadata{Properties: map[string]string{"p": "1"}}, RulesToRemove: []string{"r"},
	})
	require.NoError(t, err)
	require.Equal(t, "q", v.Content.RuleSet.DomainRules[0].Name)
	require.Equal(t, "1", v.Content.Metadata.Properties["p"])
	v, err = d.Tagged(t.Context(), v, []string{"PII", "x"})
	require.NoError(t, err)
	require.Equal(t, []schema.Tagged{{Entity: at, Tags: []string{"PII"}}}, v.Tags)

	v = d.put("s", recordOf("R", `a:"int"`, `b:["null","int"]`), 4, 4, func(q *RegisterRequest) {
		q.PropagateTags, q.Force = true, true
	})
	require.Contains(t, v.Content.Text, "PII", "tags are carried over")
	_, err = d.ModifyTags(t.Context(), "s", "9", TagsRequest{})
	d.refuses(CodeVersionNotFound, err)
	_, err = d.ModifyTags(t.Context(), "none", "1", TagsRequest{})
	d.refuses(CodeSubjectNotFound, err)
	_, err = d.ModifyTags(t.Context(), "s", "1", TagsRequest{RuleSet: &schema.RuleSet{}, RulesToRemove: []string{"r"}})
	d.refuses(CodeInvalidRuleSet, err)
}

func TestLookup(t *testing.T) {
	d := newDesk(t)
	ctx := context.Background()
	d.level("", None)
	find := func(subject, text string, deleted bool) (Version, error) {
		return d.Lookup(ctx, subject, RegisterRequest{Content: schema.Content{Text: text}}, deleted)
	}
	a := recordOf("R", `a:"int"`)
	_, err := find("s", a, false)
	d.refuses(CodeSubjectNotFound, err)
	d.put("s", a, 1, 1)
	_, err = find("s", recordOf("R"), false)
	d.refuses(CodeSchemaNotFound, err)
	_, err = find("s", `{`, false)
	d.refuses(CodeInvalidSchema, err)
	d.put("s", recordOf("R"), 2, 2)
	v, err := find("s", a, false)
	require.NoError(t, err)
	require.Equal(t, 1, v.Version)
	d.deletes("s", "1", false)
	_, err = find("s", a, false)
	d.refuses(CodeSchemaNotFound, err)
	v, err = find("s", a, true)
	require.NoError(t, err)
	require.True(t, v.Deleted)

	odd := `{"type":"record","name":"N","zed":1,"abc":2,"fields":[]}`
	v, err = d.try("n", odd, func(q *RegisterRequest) { q.Normalize = true })
	require.NoError(t, err)
	require.NotEqual(t, odd, v.Content.Text)
	v, err = find("n", odd, false)
	require.NoError(t, err, "what was registered in its normal form is found in any")
	require.Equal(t, 1, v.Version)

	d.put(":.c:only", a, 1, 1)
	v, err = find("only", a, false)
	require.NoError(t, err, "a subject is looked for in all contexts")
	require.Equal(t, ":.c:only", v.Subject)

	d.put("base", recordOf("Base", `x:"int"`), 1, 4)
	d.put("user", recordOf("User", `b:"Base"`), 1, 5, withRefs(ofBase()))
	v, err = find("user", recordOf("User", "b:"+recordOf("Base", `x:"int"`)), false)
	require.NoError(t, err, "references may be written out")
	require.Equal(t, 5, v.ID)
}
