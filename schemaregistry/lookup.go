package schemaregistry

import (
	"context"
	"crypto/md5" //nolint:gosec // tells texts apart, guards nothing
	"maps"
	"slices"
	"strconv"

	"millrace/schemaregistry/schema"
)

// confluentVersion is the property that tells the number of a version within its own metadata.
const confluentVersion = "confluent:version"

// candidate is a schema that is looked for.
type candidate struct {
	content schema.Content // canonical
	is      identity
	parsed  schema.Schema
}

// candidate reads a request's schema.
func (w *view) candidate(c schema.Content, context string, o schema.ParseOptions) (*candidate, error) {
	if c.Text == "" {
		return nil, refuse(CodeInvalidSchema, "the schema is empty")
	}
	parsed, content, err := w.read(c, context, o)
	if err != nil {
		return nil, err
	}
	return &candidate{content, contentOf(content), parsed}, nil
}

// find is the newest version of a subject that holds a schema: the very same, or else one that is equal but for what
// versions may differ in.
func (w *view) find(ctx context.Context, of Subject, c *candidate, deleted bool) (held, bool, error) {
	versions := w.versions(of)
	for _, same := range []bool{true, false} {
		for _, h := range slices.Backward(versions) {
			if h.deleted && !deleted {
				continue
			}
			if same {
				if h.content.identity == c.is {
					return h, true, nil
				}
				continue
			}
			if err := tooSlow(ctx); err != nil {
				return held{}, false, err
			}
			if w.equal(c, h, of.Context) {
				return h, true, nil
			}
		}
	}
	return held{}, false, nil
}

// equal reports whether a schema equals a stored version: in text, metadata and rules, but for the property that tells
// the version; and in its references, or, where it has none, with those of the stored one written out.
func (w *view) equal(c *candidate, h held, context string) bool {
	old := h.content
	if c.content.Type != old.Type || !sameRest(&c.content, h) {
		return false
	}
	written := len(c.content.References) == 0 && len(old.References) > 0 && c.content.Type == schema.Avro
	if !written && !w.sameReferences(c.content.References, old.References, context) {
		return false
	}
	if !written && (old.own || c.content.Text == old.Text) {
		return c.content.Text == old.Text
	}
	parsed, err := w.parsed(&old.Content, context)
	if err != nil {
		return false // a stored schema that cannot be read equals none
	}
	if written {
		return parsed.Format("resolved") == c.content.Text
	}
	return parsed.Text() == c.content.Text
}

// tooSlow is the error of a request whose time is over, or whose client has gone, in the midst of many versions.
func tooSlow(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &Error{
			Code: CodeStoreFailed, Message: "the subject has more versions than can be compared in time", Cause: err,
		}
	}
	return nil
}

// sameRest compares metadata and rules with those of a version. Where only one side tells its version, that is left
// out; the schema that is looked for must tell the right one.
func sameRest(a *schema.Content, h held) bool {
	b := &h.content.Content
	x := schema.Content{Metadata: a.Metadata, RuleSet: filled(a.RuleSet)}
	y := schema.Content{Metadata: b.Metadata, RuleSet: filled(b.RuleSet)}
	wanted, told := toldVersion(a.Metadata), toldVersion(b.Metadata)
	switch {
	case wanted == nil || told == nil:
		if wanted != nil && *wanted != h.number {
			return false
		}
		x.Metadata, y.Metadata = unversioned(a.Metadata), unversioned(b.Metadata)
	case *wanted != *told:
		return false
	}
	return x.ID() == y.ID()
}

// toldVersion is the version that metadata tell, nil if none.
func toldVersion(m *schema.Metadata) *int {
	n, err := strconv.Atoi(property(m, confluentVersion))
	if err != nil {
		return nil
	}
	return &n
}

// unversioned is metadata without the property that tells the version; nil if nothing else is there.
func unversioned(m *schema.Metadata) *schema.Metadata {
	if m == nil {
		return nil
	}
	out := *m
	if _, ok := m.Properties[confluentVersion]; ok {
		out.Properties = maps.Clone(m.Properties)
		delete(out.Properties, confluentVersion)
	}
	if len(out.Properties) == 0 && len(out.Tags) == 0 && len(out.Sensitive) == 0 {
		return nil
	}
	return &out
}

func filled(rs *schema.RuleSet) *schema.RuleSet {
	if rs != nil && len(rs.MigrationRules)+len(rs.DomainRules)+len(rs.EncodingRules) == 0 && rs.EnableAt == "" {
		return nil
	}
	return rs
}

// sameReferences compares references; -1 in a stored one is the latest version.
func (w *view) sameReferences(a, b []schema.Reference, context string) bool {
	return slices.EqualFunc(a, b, func(x, y schema.Reference) bool {
		if y.Version == latestVersion {
			if h, ok := w.latest(ParseSubject(y.Subject).in(context)); ok {
				y.Version = h.number
			}
		}
		return x == y
	})
}

// Lookup finds the version of a subject that holds a schema. A subject without a context that the default one lacks is
// looked for in all of them.
func (r *Registry) Lookup(ctx context.Context, subject string, q RegisterRequest, deleted bool) (Version, error) {
	name, err := checkSubject(subject)
	if err != nil {
		return Version{}, err
	}
	if err := r.Fresh(ctx); err != nil {
		return Version{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limits.WriteWait)
	defer cancel()
	w := r.view()
	for _, of := range r.wherever(name, deleted) {
		h, ok, err := w.lookUp(ctx, of, q, deleted)
		if err != nil {
			return Version{}, err
		}
		if ok {
			return h.version(of), nil
		}
	}
	return Version{}, r.missing(name, deleted, "the schema is no version of subject %s", quoted(subject))
}

// wherever lists what a subject may mean: itself where it has versions, or those of its name in other contexts.
func (r *Registry) wherever(name Subject, deleted bool) (out []Subject) {
	out = []Subject{name}
	if name.Context != DefaultContext {
		return out
	}
	r.read(func(s *state) {
		if s.subject(name).visible(deleted) {
			return
		}
		for _, context := range s.contextNames()[1:] {
			if other := (Subject{context, name.Name}); s.subject(other).visible(deleted) {
				out = append(out, other)
			}
		}
	})
	return out
}

// visible reports whether a subject has a version that is not deleted, or any.
func (s *subject) visible(deleted bool) bool {
	return s != nil && (deleted || s.latest() != nil)
}

// missing is why nothing was found: the subject is not there, or what was looked for in it.
func (r *Registry) missing(name Subject, deleted bool, format string, args ...any) (err error) {
	r.read(func(s *state) {
		if err = refuse(CodeSchemaNotFound, format, args...); !s.subject(name).visible(deleted) {
			err = errNoSubject(name)
		}
	})
	return err
}

func errNoSubject(name Subject) error {
	return refuse(CodeSubjectNotFound, "subject %s does not exist", quoted(name.String()))
}

// lookUp finds a request's schema in one subject: as it is, in its normal form, and by the normal forms of both, which
// finds, for example, a Protobuf file by the descriptor that a client was given of it.
func (w *view) lookUp(ctx context.Context, of Subject, q RegisterRequest, deleted bool) (held, bool, error) {
	o := schema.ParseOptions{Normalize: w.normalizes(of, q)}
	c, err := w.candidate(q.Content, of.Context, o)
	if err != nil {
		return held{}, false, err
	}
	h, ok, err := w.find(ctx, of, c, deleted)
	if ok || err != nil {
		return h, ok, err
	}
	if !o.Normalize {
		o.Normalize = true
		if c, err = w.candidate(q.Content, of.Context, o); err != nil {
			return held{}, false, err
		}
		if h, ok, err = w.find(ctx, of, c, deleted); ok || err != nil {
			return h, ok, err
		}
	}
	return w.findNormal(ctx, of, c, deleted)
}

// findNormal is the newest version of a subject whose normal form is a schema's.
func (w *view) findNormal(ctx context.Context, of Subject, c *candidate, deleted bool) (held, bool, error) {
	want := md5.Sum([]byte(c.content.Text)) //nolint:gosec // as above
	for _, h := range slices.Backward(w.versions(of)) {
		if h.deleted && !deleted || h.content.Type != c.content.Type || !sameRest(&c.content, h) {
			continue
		}
		if err := tooSlow(ctx); err != nil {
			return held{}, false, err
		}
		text, references, err := w.normal(h.content, of.Context)
		if err == nil && text == want && w.sameReferences(c.content.References, references, of.Context) {
			return h, true, nil
		}
	}
	return held{}, false, nil
}

// normal is the hash of a stored schema's text in normal form, with the references of that. It is remembered, so that
// many lookups of what is not there do not read all versions of a subject again.
func (w *view) normal(c *content, context string) (text [md5.Size]byte, _ []schema.Reference, err error) {
	full, err := w.complete(c.Content, context, true)
	if err != nil {
		return text, nil, err
	}
	deps, digest, err := w.dependencies(full.References, context, true)
	if err != nil {
		return text, nil, err
	}
	if known := c.normal.Load(); known != nil && known.deps == digest {
		return known.text, full.References, nil
	}
	if parsed, err := w.parse(&full, deps, schema.ParseOptions{Normalize: true}); err == nil {
		text = md5.Sum([]byte(parsed.Text())) //nolint:gosec // as above
	}
	c.normal.Store(&normalForm{digest, text})
	return text, full.References, nil
}

func (w *view) normalizes(of Subject, q RegisterRequest) bool {
	c := w.config(of)
	return q.Normalize || c.Normalize != nil && *c.Normalize
}
