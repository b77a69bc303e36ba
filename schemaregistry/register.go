package schemaregistry

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"

	"millrace/schemaregistry/schema"
)

// Register makes a schema a version of a subject, unless it is one already.
func (r *Registry) Register(ctx context.Context, subject string, q RegisterRequest) (Version, error) {
	v, ok, err := r.Known(ctx, subject, q)
	if ok || err != nil {
		return v, err
	}
	return r.RegisterUnknown(ctx, subject, q)
}

// RegisterUnknown is Register for what Known has checked and did not find, perhaps some time ago.
func (r *Registry) RegisterUnknown(ctx context.Context, subject string, q RegisterRequest) (Version, error) {
	g := newRegistration(r, ParseSubject(subject), q)
	return g.carryOut(ctx, g.decide)
}

// Known is Register where that needs no write: ok tells whether it did.
func (r *Registry) Known(ctx context.Context, subject string, q RegisterRequest) (v Version, ok bool, err error) {
	if err := checkRules(q.Content.RuleSet); err != nil {
		return v, false, err
	}
	name, err := checkSubject(subject)
	if err != nil {
		return v, false, err
	}
	if err := r.Fresh(ctx); err != nil {
		return v, false, err
	}
	w := r.view()
	if q.changesTags() || q.Content.Text == "" || fillsIn(w.config(name)) {
		return v, false, nil
	}
	o := schema.ParseOptions{Normalize: !imports(w.mode(name)) && w.normalizes(name, q)}
	c, err := w.candidate(q.Content, name.Context, o)
	if err != nil {
		return v, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limits.WriteWait)
	defer cancel()
	var h held
	if q.Version == latestVersion {
		h, ok = w.latest(name)
		ok = ok && (h.content.identity == c.is || w.equal(c, h, name.Context))
	} else {
		h, ok, err = w.find(ctx, name, c, false)
	}
	if err != nil || !ok || q.wantsOtherID(h.content.id) {
		return v, false, err
	}
	if q.Version > 0 {
		ok = q.wantsID() && h.number == q.Version
	}
	return h.version(name), ok, nil
}

func (q *RegisterRequest) changesTags() bool {
	return len(q.TagsAdd) > 0 || len(q.TagsRemove) > 0 || q.PropagateTags
}

func (q *RegisterRequest) wantsID() bool { return q.ID != nil && *q.ID >= 0 }

func (q *RegisterRequest) wantsOtherID(id int) bool { return q.wantsID() && *q.ID != id }

// fillsIn reports whether a config adds to what is registered.
func fillsIn(c SubjectConfig) bool {
	return c.DefaultMetadata != nil || c.OverrideMetadata != nil || c.DefaultRuleSet != nil || c.OverrideRuleSet != nil
}

// registration is a schema on its way to become a version. It remembers what it has parsed and compared, so that a
// decision that has to be made again costs little.
type registration struct {
	r       *Registry
	subject Subject
	q       RegisterRequest

	mode    string        // in force
	config  SubjectConfig // in force
	parsed  []parsedText
	results map[comparedPair]*comparison

	answer held // what the subject holds in the end
	result proposal
}

// parsedText is a text with what it refers to, and what became of it.
type parsedText struct {
	is        identity // of the request's content, without metadata and rules
	options   schema.ParseOptions
	deps      [16]byte
	before    identity // of the version whose tags are taken over
	candidate *candidate
	err       error
}

func newRegistration(r *Registry, name Subject, q RegisterRequest) *registration {
	return &registration{r: r, subject: name, q: q, results: map[comparedPair]*comparison{}}
}

// carryOut makes a decision, first without holding up others, and writes what it proposes.
func (g *registration) carryOut(ctx context.Context, decide func(context.Context, *view) error) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, g.r.cfg.Limits.WriteWait)
	defer cancel()
	_ = decide(ctx, g.r.view()) // for what it remembers; what counts is decided below
	err := g.r.write(ctx, func(ctx context.Context) (proposal, error) {
		g.result = proposal{}
		err := decide(ctx, g.r.view())
		return g.result, err
	})
	if err != nil {
		return Version{}, err
	}
	g.confirm()
	return g.answer.version(g.subject), nil
}

// confirm makes the answer what was read back, which tells the time of the record. If that is another version already,
// the answer stays what was decided.
func (g *registration) confirm() {
	h, ok := g.r.view().at(target{g.subject, g.answer.number})
	if ok && !h.deleted && h.content.identity == g.answer.content.identity {
		g.answer = h
	}
}

// decide finds out which version the schema becomes, or is.
func (g *registration) decide(ctx context.Context, w *view) error {
	g.mode, g.config = w.mode(g.subject), w.config(g.subject)
	if err := g.checkMode(); err != nil {
		return err
	}
	versions := w.versions(g.subject)
	number := 1
	if n := len(versions); n > 0 {
		number = versions[n-1].number + 1
	}
	if number > math.MaxInt32 {
		return refuse(CodeInvalidSchema, "subject %s has no number left for another version", quoted(g.subject.String()))
	}
	live := slices.DeleteFunc(slices.Clone(versions), func(h held) bool { return h.deleted })
	c, err := g.fillIn(w, live, number)
	if err != nil {
		return err
	}
	known, done, err := g.recognise(ctx, w, c, live)
	if done || err != nil {
		return err
	}
	if !imports(g.mode) {
		if !g.q.Force {
			if err := g.checkCompatible(ctx, w, c, live); err != nil {
				return err
			}
		}
		if g.q.Version > 0 && g.q.Version != number {
			return refuse(CodeInvalidSchema, "the next version of subject %s is %d, not %d", quoted(g.subject.String()),
				number, g.q.Version)
		}
	}
	if g.q.Version > 0 {
		number = g.q.Version
	}
	if done, err := g.takeNumber(versions, c, number); done || err != nil {
		return err
	}
	content, err := g.takeID(w, c, known)
	if err != nil {
		return err
	}
	g.propose(w, versions, held{number: number, content: content, timestamp: g.r.cfg.Now().UnixMilli()})
	return nil
}

// checkMode refuses what the mode forbids.
func (g *registration) checkMode() error {
	switch {
	case g.mode == ReadOnly || g.mode == ReadOnlyOverride:
		return refuse(CodeNotPermitted, "%s is in mode %s", describe(g.subject), g.mode)
	case imports(g.mode) && !g.q.wantsID():
		return refuse(CodeNotPermitted, "%s is in mode %s: a schema must come with its id", describe(g.subject), g.mode)
	case !imports(g.mode) && g.q.wantsID():
		return refuse(CodeNotPermitted, "%s is not in mode IMPORT: a schema cannot come with its id", describe(g.subject))
	case g.q.wantsID() && *g.q.ID > math.MaxInt32, g.q.Version > math.MaxInt32, g.q.Version < latestVersion:
		return refuse(CodeInvalidSchema, "the id or the version is out of range")
	}
	return nil
}

// fillIn completes the request's schema with what the subject's newest version and the config say, and reads it.
func (g *registration) fillIn(w *view, live []held, number int) (*candidate, error) {
	c := g.q.Content
	var before *schema.Content
	if n := len(live); n > 0 && !imports(g.mode) {
		before = &live[n-1].content.Content
	}
	if c.Text == "" {
		if before == nil {
			return nil, refuse(CodeInvalidSchema, "the schema is empty, and subject %s has none to take over",
				quoted(g.subject.String()))
		}
		c.Text, c.Type, c.References = before.Text, before.Type, before.References
	}
	parsed, err := g.parse(w, c, before)
	if err != nil {
		return nil, err
	}
	content := parsed.content
	content.Metadata, content.RuleSet = c.Metadata, c.RuleSet
	if !imports(g.mode) {
		if before == nil {
			before = &schema.Content{}
		}
		content.Metadata = fillMetadata(c.Metadata, before.Metadata, &g.config)
		content.RuleSet = fillRules(c.RuleSet, before.RuleSet, &g.config)
		content.Metadata = g.tellVersion(content.Metadata, number)
	}
	return &candidate{content, contentOf(content), parsed.parsed}, nil
}

// tellVersion sets the property that tells the version, where it is there or the request names one, be it the latest,
// or changes tags.
func (g *registration) tellVersion(m *schema.Metadata, number int) *schema.Metadata {
	told := false
	if m != nil {
		_, told = m.Properties[confluentVersion]
	}
	if !told && g.q.Version == 0 && len(g.q.TagsAdd) == 0 && len(g.q.TagsRemove) == 0 {
		return m
	}
	out := schema.Metadata{}
	if m != nil {
		out = *m
	}
	if out.Properties = maps.Clone(out.Properties); out.Properties == nil {
		out.Properties = map[string]string{}
	}
	if g.q.Version > 0 {
		number = g.q.Version
	}
	out.Properties[confluentVersion] = strconv.Itoa(number)
	return &out
}

// parse reads a text, with the inline tags that the request asks for. What is imported stays as it is.
func (g *registration) parse(w *view, c schema.Content, before *schema.Content) (*candidate, error) {
	strict := !g.q.wantsID() && (g.config.ValidateNewSchemas == nil || *g.config.ValidateNewSchemas)
	o := schema.ParseOptions{Strict: strict}
	if !imports(g.mode) {
		o.Normalize = g.q.Normalize || g.config.Normalize != nil && *g.config.Normalize
	}
	c.Metadata, c.RuleSet = nil, nil
	c, err := w.complete(c, g.subject.Context, o.Normalize)
	if err != nil {
		return nil, err
	}
	deps, digest, err := w.dependencies(c.References, g.subject.Context, false)
	if err != nil {
		return nil, err
	}
	p := parsedText{is: contentOf(c), options: o, deps: digest}
	if g.q.PropagateTags && before != nil {
		p.before = contentOf(*before)
	}
	for i := range g.parsed {
		old := &g.parsed[i]
		if old.is == p.is && old.options == o && old.deps == p.deps && old.before == p.before {
			return old.candidate, old.err
		}
	}
	p.candidate, p.err = g.parseAnew(w, c, deps, o, before)
	g.parsed = append(g.parsed, p)
	return p.candidate, p.err
}

func (g *registration) parseAnew(w *view, c schema.Content, deps []schema.Dependency, o schema.ParseOptions,
	before *schema.Content,
) (*candidate, error) {
	parsed, err := w.parse(&c, deps, o)
	if err != nil {
		return nil, err
	}
	if g.q.changesTags() {
		text, err := g.tag(w, parsed, before)
		if err != nil {
			return nil, err
		}
		c.Text = text
		if parsed, err = w.parse(&c, deps, o); err != nil {
			return nil, err
		}
	}
	c.Text = parsed.Text()
	return &candidate{content: c, parsed: parsed}, nil
}

// tag writes inline tags into a text: those of the version before, where the same entities are there, and those that
// the request names.
func (g *registration) tag(w *view, parsed schema.Schema, before *schema.Content) (string, error) {
	add := slices.Clone(g.q.TagsAdd)
	if g.q.PropagateTags && before != nil {
		old, err := w.parsed(before, g.subject.Context)
		if err != nil {
			return "", err
		}
		for _, e := range old.Entities() {
			if _, err := parsed.WithTags([]schema.Tagged{e}, nil); err == nil {
				add = append(add, e)
			}
		}
	}
	text, err := parsed.WithTags(add, g.q.TagsRemove)
	if err != nil {
		return "", invalid(err)
	}
	return text, nil
}

// recognise looks for the schema among what is there. It is done where the subject holds it; else known is the schema
// whose id it keeps, nil if it is new.
func (g *registration) recognise(ctx context.Context, w *view, c *candidate, live []held) (
	known *content, done bool, err error,
) {
	var want *int
	if g.q.wantsID() {
		want = g.q.ID
	}
	among := live
	if g.q.Version == latestVersion && len(live) > 0 {
		among = live[len(live)-1:]
	}
	known = w.same(g.subject.Context, c.is, want)
	if g.q.Version > 0 {
		return known, false, nil
	}
	for _, h := range slices.Backward(among) {
		if known != nil && h.content.identity == c.is && !g.q.wantsOtherID(h.content.id) {
			g.answer = h
			return known, true, nil
		}
	}
	if g.q.wantsID() {
		return known, false, nil
	}
	for _, h := range slices.Backward(among) {
		if err := tooSlow(ctx); err != nil {
			return known, false, err
		}
		if w.equal(c, h, g.subject.Context) {
			g.answer = h
			return known, true, nil
		}
	}
	return known, false, nil
}

// takeNumber makes sure that no version is overwritten, and is done where the version is there as it should be.
func (g *registration) takeNumber(versions []held, c *candidate, number int) (done bool, err error) {
	i, found := slices.BinarySearchFunc(versions, number, func(h held, n int) int { return h.number - n })
	if !found {
		return false, nil
	}
	h := versions[i]
	switch {
	case h.content.identity != c.is:
		return false, refuse(CodeNotPermitted, "version %d of subject %s is there, and is another schema", number,
			quoted(g.subject.String()))
	case g.q.wantsOtherID(h.content.id):
		return false, refuse(CodeOtherID, "version %d of subject %s has id %d, not %d", number,
			quoted(g.subject.String()), h.content.id, *g.q.ID)
	}
	g.answer = h
	return !h.deleted, nil
}

// takeID is the schema under the id that it has, that the request gives it, or the next one.
func (g *registration) takeID(w *view, c *candidate, known *content) (*content, error) {
	if known != nil {
		return known, nil
	}
	out := &content{Content: c.content, identity: c.is, own: true}
	if g.q.wantsID() {
		if other := w.byID(g.subject.Context, *g.q.ID); other != nil {
			return nil, refuse(CodeNotPermitted, "id %d is of another schema", *g.q.ID)
		}
		out.id = *g.q.ID
		return out, nil
	}
	out.id = w.maxID(g.subject.Context) + 1
	if out.id > math.MaxInt32 {
		return nil, refuse(CodeStoreFailed, "context %s has no id left", g.subject.Context)
	}
	return out, nil
}

// propose writes down the records of a new version.
func (g *registration) propose(w *view, versions []held, h held) {
	t := target{g.subject, h.number}
	w.add(t, h)
	if context := g.subject.Context; !w.hasContext(context) {
		w.contexts[context] = true
		g.result.records = append(g.result.records, outRecord{
			key{kind: kindContext, subject: Subject{Context: context}}, contextValue{"default", context},
		})
	}
	for _, old := range versions {
		ot := target{g.subject, old.number}
		if !old.deleted || old.number >= h.number || old.content.id != h.content.id || w.referred(ot) {
			continue
		}
		w.gone[ot] = true
		g.result.records = append(g.result.records, outRecord{key: schemaKey(ot)})
	}
	g.result.records = append(g.result.records, outRecord{schemaKey(t), schemaRecord(t, h)})
	g.answer = h
}

func schemaKey(t target) key { return key{kind: kindSchema, subject: t.subject, version: t.version} }

// schemaRecord is the value of a version.
func schemaRecord(t target, h held) schemaValue {
	c := h.content
	v := schemaValue{
		Subject: t.subject.String(), Version: t.version, ID: c.id, MD5: c.hash[:], References: c.References,
		Metadata: c.Metadata, RuleSet: c.RuleSet, Schema: c.Text, Deleted: h.deleted,
	}
	if c.Type != schema.Avro {
		v.SchemaType = c.Type
	}
	return v
}

// RegisterBatch registers all of some schemas or none. One may refer to another one that comes before it.
func (r *Registry) RegisterBatch(ctx context.Context, entries []BatchEntry) ([]Version, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	if len(entries) > maxBatch {
		return nil, refuse(CodeTooLarge, "a batch has at most %d schemas", maxBatch)
	}
	parts := make([]*registration, len(entries))
	for i := range entries {
		e := &entries[i]
		if err := checkRules(e.Request.Content.RuleSet); err != nil {
			return nil, inEntry(i, err)
		}
		name, err := checkSubject(e.Subject)
		if err != nil {
			return nil, inEntry(i, err)
		}
		parts[i] = newRegistration(r, name, e.Request)
	}
	if err := r.Fresh(ctx); err != nil {
		return nil, err
	}
	whole := newRegistration(r, Subject{}, RegisterRequest{})
	decide := func(ctx context.Context, w *view) error {
		for i, g := range parts {
			g.result = proposal{}
			if err := g.decide(ctx, w); err != nil {
				return inEntry(i, err)
			}
			whole.result.records = append(whole.result.records, g.result.records...)
			whole.answer = g.answer
		}
		return nil
	}
	if _, err := whole.carryOut(ctx, decide); err != nil {
		return nil, err
	}
	out := make([]Version, len(parts))
	for i, g := range parts {
		g.confirm()
		out[i] = g.answer.version(g.subject)
	}
	return out, nil
}

// inEntry says which schema of a batch an error is about.
func inEntry(i int, err error) error {
	e := *AsError(err)
	e.Message = "schema " + strconv.Itoa(i) + " of the batch: " + e.Message
	return &e
}
