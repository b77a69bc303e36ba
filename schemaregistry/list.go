package schemaregistry

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"millrace/schemaregistry/schema"
)

// cut is a page of a list.
func cut[T any](list []T, p Page) []T {
	start := min(max(p.Offset, 0), len(list))
	list = list[start:]
	if p.Limit > 0 && p.Limit < len(list) {
		list = list[:p.Limit]
	}
	return list
}

// withPrefix lists the subjects that a prefix means, in no order.
func (s *state) withPrefix(prefix string) []*subject {
	name, everywhere := strings.CutPrefix(prefix, EveryContext)
	in := ParseSubject(name)
	var out []*subject
	for _, c := range s.contexts {
		if !everywhere && c.name != in.Context {
			continue
		}
		for _, sub := range c.subjects {
			if strings.HasPrefix(sub.name.Name, in.Name) {
				out = append(out, sub)
			}
		}
	}
	return out
}

// Subjects lists subjects, sorted.
func (r *Registry) Subjects(ctx context.Context, q SubjectsQuery) ([]string, error) {
	if err := r.Fresh(ctx); err != nil {
		return nil, err
	}
	var out []string
	r.read(func(s *state) {
		for _, sub := range s.withPrefix(q.Prefix) {
			live := sub.latest() != nil
			if q.DeletedOnly && !live || !q.DeletedOnly && (live || q.Deleted) {
				out = append(out, sub.name.String())
			}
		}
	})
	slices.Sort(out) // which takes long enough to hold nobody up
	return cut(out, q.Page), nil
}

// Versions lists the numbers of a subject's versions, in their order.
func (r *Registry) Versions(ctx context.Context, name string, q VersionsQuery) (out []int, err error) {
	if err := r.Fresh(ctx); err != nil {
		return nil, err
	}
	deleted := q.Deleted || q.DeletedOnly || q.DeletedAsNegative
	r.read(func(s *state) {
		sub := s.subject(ParseSubject(name))
		if !sub.visible(deleted) {
			err = errNoSubject(ParseSubject(name))
			return
		}
		for _, v := range sub.versions {
			switch {
			case q.DeletedAsNegative && v.deleted:
				out = append(out, -v.number)
			case q.DeletedAsNegative:
				out = append(out, v.number)
			case q.DeletedOnly && v.deleted, !q.DeletedOnly && (q.Deleted || !v.deleted):
				out = append(out, v.number)
			}
		}
	})
	return cut(out, q.Page), err
}

// Version is one version: a number, "latest" or "-1".
func (r *Registry) Version(ctx context.Context, name, version string, deleted bool) (out Version, err error) {
	number, err := parseVersion(version)
	if err != nil {
		return out, err
	}
	if err := r.Fresh(ctx); err != nil {
		return out, err
	}
	subject := ParseSubject(name)
	r.read(func(s *state) {
		v, e := s.version(subject, number, deleted)
		if err = e; err == nil {
			out = v.held().version(subject)
		}
	})
	return out, err
}

// VersionAnywhere is Version, and where the default context lacks a subject without a context, all contexts are tried.
func (r *Registry) VersionAnywhere(ctx context.Context, name, version string, deleted bool) (Version, error) {
	out, err := r.Version(ctx, name, version, deleted)
	if err == nil || AsError(err).Code != CodeSubjectNotFound {
		return out, err
	}
	for _, other := range r.wherever(ParseSubject(name), deleted)[1:] {
		if found, err := r.Version(ctx, other.String(), version, deleted); err == nil {
			return found, nil
		}
	}
	return out, err
}

// Latest is the newest version whose metadata have all of the properties.
func (r *Registry) Latest(ctx context.Context, name string, properties [][2]string, deleted bool) (
	out Version, err error,
) {
	if err := r.Fresh(ctx); err != nil {
		return out, err
	}
	subject := ParseSubject(name)
	r.read(func(s *state) {
		sub := s.subject(subject)
		if !sub.visible(deleted) {
			err = errNoSubject(subject)
			return
		}
		for _, v := range slices.Backward(sub.versions) {
			if (deleted || !v.deleted) && hasAll(v.content.Metadata, properties) {
				out = v.held().version(subject)
				return
			}
		}
		err = refuse(CodeSchemaNotFound, "no version of subject %s has these properties", quoted(name))
	})
	return out, err
}

func hasAll(m *schema.Metadata, properties [][2]string) bool {
	for _, p := range properties {
		if m == nil {
			return false
		}
		if v, ok := m.Properties[p[0]]; !ok || v != p[1] {
			return false
		}
	}
	return true
}

// Schemas lists versions with their schemas, by subject and version.
func (r *Registry) Schemas(ctx context.Context, q SchemasQuery) ([]ExtendedVersion, error) {
	if err := r.Fresh(ctx); err != nil {
		return nil, err
	}
	var subjects []*subject
	r.read(func(s *state) { subjects = s.withPrefix(q.Prefix) })
	// That takes long where there are many. Who goes meanwhile has no versions left.
	slices.SortFunc(subjects, func(a, b *subject) int { return a.name.compare(b.name) })
	var out []ExtendedVersion
	r.read(func(s *state) {
		all := q.among(subjects)
		var aliases map[Subject][]string
		if q.Aliases {
			aliases = s.aliases()
		}
		for _, v := range cut(all, q.Page) {
			out = append(out, ExtendedVersion{v.version(), aliases[v.subject.name]})
		}
	})
	return out, nil
}

// among lists the versions of subjects that the query means, as far as its page goes.
func (q *SchemasQuery) among(subjects []*subject) (all []*version) {
	for _, sub := range subjects {
		from := len(all)
		if q.Page.Limit > 0 && from >= q.Page.Offset+q.Page.Limit {
			break
		}
		for _, v := range sub.versions {
			if (q.Deleted || !v.deleted) && hasRule(v.content.RuleSet, q.RuleType) {
				all = append(all, v)
			}
		}
		if n := len(all); q.LatestOnly && n > from+1 {
			all = append(all[:from], all[n-1])
		}
	}
	return all
}

func hasRule(rs *schema.RuleSet, typ string) bool {
	if typ == "" {
		return true
	}
	is := func(rule schema.Rule) bool { return rule.Type == typ }
	return rs != nil && (slices.ContainsFunc(rs.MigrationRules, is) || slices.ContainsFunc(rs.DomainRules, is) ||
		slices.ContainsFunc(rs.EncodingRules, is))
}

// aliases lists the subjects that lead to each subject.
func (s *state) aliases() map[Subject][]string {
	out := map[Subject][]string{}
	for from, c := range s.configs {
		if c.Alias != nil && *c.Alias != "" && from.Name != "" {
			to := ParseSubject(*c.Alias).in(from.Context)
			out[to] = append(out[to], from.String())
		}
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out
}

// ByID is a schema by its id, in the context of the subject if one is given, with the version that holds it there. An
// id that is known is not asked about anew: it never changes its meaning.
func (r *Registry) ByID(ctx context.Context, id int, subject *string) (Version, error) {
	v, ok := r.Glance(id, subject)
	if ok {
		return v, nil
	}
	doubt, err := r.fresh(ctx)
	if err != nil {
		return v, err
	}
	if v, ok = r.Glance(id, subject); !ok {
		return v, r.notFound(doubt, noID, id)
	}
	return v, nil
}

// noID is what is said of an id that is not there.
const noID = "there is no schema with id %d"

func errNoID(id int) error { return refuse(CodeSchemaNotFound, noID, id) }

// byID is a schema in the context of a subject. For one without a context that is not in the default one, all contexts
// are searched for one that has both.
func (s *state) byID(id int, subject *string) *content {
	name := Subject{Context: DefaultContext}
	if subject != nil {
		name = ParseSubject(*subject)
	}
	var found *content
	if c := s.contexts[name.Context]; c != nil {
		found = c.ids[id]
	}
	if name.Context != DefaultContext || name.Name == "" || s.holder(name, found) != nil {
		return found
	}
	for _, context := range s.contextNames()[1:] {
		other := s.contexts[context]
		if other == nil {
			continue
		}
		if c := other.ids[id]; s.holder(Subject{context, name.Name}, c) != nil {
			return c
		}
	}
	return found
}

// holder is the newest version of a subject that holds a schema, if there is one a live one; nil if there is none.
func (s *state) holder(name Subject, c *content) *version {
	sub := s.subject(name)
	if c == nil || sub == nil {
		return nil
	}
	var found *version
	for _, v := range slices.Backward(sub.versions) {
		if v.content == c && (found == nil || !v.deleted) {
			if found = v; !v.deleted {
				break
			}
		}
	}
	return found
}

// shown is the version by which a schema is shown: of the subject if that holds it, else of any, if there is one a live
// one.
func (s *state) shown(c *content, subject *string) Version {
	context := c.holders[0].subject.name.Context
	if subject != nil {
		if v := s.holder(Subject{context, ParseSubject(*subject).Name}, c); v != nil {
			return v.version()
		}
	}
	for _, v := range c.holders {
		if !v.deleted {
			return v.version()
		}
	}
	return c.holders[0].version()
}

func (v *version) version() Version { return v.held().version(v.subject.name) }

// MaxID is the greatest id that was given out in a subject's context; 0 if none was.
func (r *Registry) MaxID(ctx context.Context, subject string) (int, error) {
	if err := r.Fresh(ctx); err != nil {
		return 0, err
	}
	return r.view().maxID(ParseSubject(subject).Context), nil
}

// ByGUID is a schema by its GUID, without Subject and Version.
func (r *Registry) ByGUID(ctx context.Context, guid [16]byte) (Version, error) {
	v, ok := r.GlanceGUID(guid)
	if !ok {
		doubt, err := r.fresh(ctx)
		if err != nil {
			return v, err
		}
		if v, ok = r.GlanceGUID(guid); !ok {
			return v, r.notFound(doubt, "there is no schema with the GUID %s", schema.GUID(guid))
		}
	}
	v.Subject, v.Version = "", 0
	return v, nil
}

// GUIDIDs lists the ids that a schema has.
func (r *Registry) GUIDIDs(ctx context.Context, guid [16]byte) ([]ContextID, error) {
	if err := r.Fresh(ctx); err != nil {
		return nil, err
	}
	var out []ContextID
	r.read(func(s *state) {
		for _, c := range s.byHash(guid) {
			out = append(out, ContextID{c.holders[0].subject.name.Context, c.id})
		}
	})
	return out, nil
}

// byHash lists the schemas with a hash, by context and id.
func (s *state) byHash(hash [16]byte) (out []*content) {
	for _, name := range s.contextNames() {
		c := s.contexts[name]
		if c == nil {
			continue
		}
		for _, t := range []schema.Type{schema.Avro, schema.JSON, schema.Protobuf} {
			for n := c.hashes[identity{hash, t}]; n != nil; n = n.next {
				out = append(out, n)
			}
		}
	}
	return out
}

// HoldersQuery says which holders of a schema to list.
type HoldersQuery struct {
	Subject *string // whose context the id is of, and the only one listed unless its name is empty
	Deleted bool
	Page    Page
}

// VersionsOfID lists the versions that hold a schema.
func (r *Registry) VersionsOfID(ctx context.Context, id int, q HoldersQuery) ([]SubjectVersion, error) {
	out, err := r.holders(ctx, id, q)
	return cut(out, q.Page), err
}

// SubjectsOfID lists the subjects that hold a schema.
func (r *Registry) SubjectsOfID(ctx context.Context, id int, q HoldersQuery) ([]string, error) {
	all, err := r.holders(ctx, id, q)
	var out []string
	for i := range all {
		if i == 0 || all[i].Subject != all[i-1].Subject {
			out = append(out, all[i].Subject)
		}
	}
	return cut(out, q.Page), err
}

// holders lists the versions that hold a schema, by subject and version.
func (r *Registry) holders(ctx context.Context, id int, q HoldersQuery) (out []SubjectVersion, err error) {
	if err := r.Fresh(ctx); err != nil {
		return nil, err
	}
	name := ""
	if q.Subject != nil {
		name = ParseSubject(*q.Subject).Name
	}
	r.read(func(s *state) {
		c := s.byID(id, q.Subject)
		if c == nil {
			err = errNoID(id)
			return
		}
		for _, v := range c.holders {
			if (q.Deleted || !v.deleted) && (name == "" || v.subject.name.Name == name) {
				out = append(out, SubjectVersion{v.subject.name.String(), v.number})
			}
		}
	})
	slices.SortFunc(out, func(a, b SubjectVersion) int {
		return cmp.Or(strings.Compare(a.Subject, b.Subject), a.Version-b.Version)
	})
	return out, err
}

// ReferencedBy lists the ids of schemas that refer to a version, which may be softly deleted.
func (r *Registry) ReferencedBy(ctx context.Context, name, version string, deleted bool, p Page) (
	out []int, err error,
) {
	number, err := parseVersion(version)
	if err != nil {
		return nil, err
	}
	if err := r.Fresh(ctx); err != nil {
		return nil, err
	}
	r.read(func(s *state) {
		v, e := s.version(ParseSubject(name), number, true)
		if err = e; err != nil {
			return
		}
		for by := range s.referrers[target{v.subject.name, v.number}] {
			if deleted || !by.deleted {
				out = append(out, by.content.id)
			}
		}
	})
	slices.Sort(out)
	return cut(slices.Compact(out), p), err
}

// Contexts lists contexts, the default one first.
func (r *Registry) Contexts(ctx context.Context, prefix string, p Page) ([]string, error) {
	if err := r.Fresh(ctx); err != nil {
		return nil, err
	}
	var out []string
	r.read(func(s *state) { out = s.contextNames() })
	out = slices.DeleteFunc(out, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	return cut(out, p), nil
}
