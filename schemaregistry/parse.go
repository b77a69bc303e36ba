package schemaregistry

import (
	"cmp"
	"container/list"
	"context"
	"crypto/md5" //nolint:gosec // tells dependencies apart, guards nothing
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"millrace/schemaregistry/schema"
)

// resolver collects what a schema depends on.
type resolver struct {
	w     *view
	sum   hash.Hash
	names map[string]bool // those that are on the list, or being looked into
	path  []target        // from the schema down to what is being looked into
	out   []schema.Dependency
	bytes int
	seen  int // references looked at, also those to what is known
}

// dependencies lists what references lead to, each name once and after all that it itself depends on, with a digest of
// the list. What a stored schema refers to may be softly deleted, what a new one refers to may not.
func (w *view) dependencies(references []schema.Reference, context string, stored bool) (
	out []schema.Dependency, digest [md5.Size]byte, err error,
) {
	if len(references) == 0 {
		return nil, digest, nil
	}
	v := &resolver{w: w, names: map[string]bool{}, sum: md5.New()} //nolint:gosec // as above
	if err := v.visit(references, context, stored); err != nil {
		return nil, digest, err
	}
	v.sum.Sum(digest[:0])
	return v.out, digest, nil
}

const (
	maxDependencyBytes = 16 << 20
	referencesSeen     = 10 // times the bound on how many schemas they lead to
)

func (v *resolver) visit(references []schema.Reference, context string, stored bool) error {
	limits := &v.w.r.cfg.Limits
	if len(v.path) >= limits.ReferenceDepth {
		return refuse(CodeInvalidSchema, "references lead through more than %d schemas", limits.ReferenceDepth)
	}
	if v.seen += len(references); v.seen > referencesSeen*limits.References {
		return refuse(CodeInvalidSchema, "references have too many references")
	}
	for _, ref := range references {
		t := target{ParseSubject(ref.Subject).in(context), ref.Version}
		if slices.Contains(v.path, t) {
			return refuse(CodeInvalidSchema, "version %d of subject %s refers to itself, through %s", t.version,
				quoted(t.subject.String()), quoted(ref.Name))
		}
		if v.names[ref.Name] {
			v.direct(ref.Name)
			continue
		}
		h, ok := v.w.findReferenced(t)
		if !ok || h.deleted && !stored {
			return refuse(CodeInvalidSchema, "reference %s leads to version %d of subject %s, which does not exist",
				quoted(ref.Name), t.version, quoted(t.subject.String()))
		}
		v.names[ref.Name] = true
		v.path = append(v.path, t)
		if err := v.visit(h.content.References, t.subject.Context, true); err != nil {
			return err
		}
		v.path = v.path[:len(v.path)-1]
		v.bytes += len(h.content.Text)
		if len(v.out) >= limits.References || v.bytes > maxDependencyBytes {
			return refuse(CodeInvalidSchema, "references lead to more than %d schemas, or to more than %d bytes of them",
				limits.References, maxDependencyBytes)
		}
		fmt.Fprintf(v.sum, "%q %q %x ", ref.Name, t.subject, h.content.hash) // the hash stands for the text
		v.out = append(v.out, schema.Dependency{
			Name: ref.Name, Subject: t.subject.String(), Version: t.version, Text: h.content.Text,
			Direct: len(v.path) == 0,
		})
	}
	return nil
}

// direct marks a dependency that was found before as one of the schema itself, if that is being looked into.
func (v *resolver) direct(name string) {
	if len(v.path) > 0 {
		return
	}
	for i := range v.out {
		v.out[i].Direct = v.out[i].Direct || v.out[i].Name == name
	}
}

// findReferenced is the version that a reference means; -1 is the latest one.
func (w *view) findReferenced(t target) (held, bool) {
	if t.version == latestVersion {
		return w.latest(t.subject)
	}
	return w.at(t)
}

// format is the language of a type of schema.
func (r *Registry) format(t schema.Type) (schema.Format, error) {
	f, ok := r.cfg.Formats[t]
	if !ok {
		return nil, refuse(CodeInvalidSchema, "%s is no type of schemas", quoted(string(t)))
	}
	return f, nil
}

// parse reads the text of a schema that is in the context. It does not use the cache.
func (w *view) parse(c *schema.Content, deps []schema.Dependency, o schema.ParseOptions) (schema.Schema, error) {
	f, err := w.r.format(c.Type)
	if err != nil {
		return nil, err
	}
	defer w.r.heavies.begin(textBytes(c.Text, deps))()
	parsed, err := f.Parse(c.Text, deps, o)
	if err != nil {
		return nil, invalid(err)
	}
	return parsed, nil
}

// invalid is the error of a format as one of ours. Names in it may be as long as the schema, so it is cut.
func invalid(err error) error {
	if errors.Is(err, schema.ErrInvalid) {
		return refuse(CodeInvalidSchema, "%s", shorten(err.Error()))
	}
	return AsError(err)
}

// parsed is a stored schema, from the cache if it is there.
func (w *view) parsed(c *schema.Content, context string) (schema.Schema, error) {
	deps, digest, err := w.dependencies(c.References, context, true)
	if err != nil {
		return nil, err
	}
	k := parseKey{identity: contentOf(*c), deps: digest}
	if found := w.r.parsed.get(k); found != nil {
		w.r.metrics.hits.Inc()
		return found, nil
	}
	w.r.metrics.misses.Inc()
	parsed, err := w.parse(c, deps, schema.ParseOptions{})
	if err != nil {
		return nil, err
	}
	cost := len(c.Text)
	for i := range deps {
		cost += len(deps[i].Text)
	}
	w.r.parsed.put(k, parsed, cost)
	return parsed, nil
}

// Parsed is a version's schema, parsed. It is cached.
func (r *Registry) Parsed(ctx context.Context, v Version) (schema.Schema, error) {
	if err := ctx.Err(); err != nil {
		return nil, AsError(err)
	}
	return r.view().parsed(&v.Content, ParseSubject(v.Subject).Context)
}

// Render is v with its text in a form that the format of its schema knows by name, and with qualified the subjects of
// its references written with their contexts. The text stays as it is where the name is unknown, and where a schema
// that came with a log is not valid: a form is never a reason to refuse what is stored.
func (r *Registry) Render(ctx context.Context, v Version, format string, qualified bool) (Version, error) {
	own := ParseSubject(v.Subject).Context
	if qualified && own != DefaultContext {
		v.Content.References = slices.Clone(v.Content.References)
		for i := range v.Content.References {
			ref := &v.Content.References[i]
			ref.Subject = ParseSubject(ref.Subject).in(own).String()
		}
	}
	if format == "" {
		return v, nil
	}
	parsed, err := r.Parsed(ctx, v)
	if err != nil {
		return v, unlessInvalid(err)
	}
	v.Content.Text = parsed.Format(format)
	return v, nil
}

// Tagged is v with Tags set: the entities that carry one of the inline tags; "*" is any. A schema that is not valid has
// none.
func (r *Registry) Tagged(ctx context.Context, v Version, tags []string) (Version, error) {
	v.Tags = nil
	parsed, err := r.Parsed(ctx, v)
	if err != nil {
		return v, unlessInvalid(err)
	}
	for _, e := range parsed.Entities() {
		kept := e.Tags
		if !slices.Contains(tags, "*") {
			kept = slices.DeleteFunc(slices.Clone(e.Tags), func(tag string) bool { return !slices.Contains(tags, tag) })
		}
		if len(kept) > 0 {
			v.Tags = append(v.Tags, schema.Tagged{Entity: e.Entity, Tags: kept})
		}
	}
	return v, nil
}

// unlessInvalid is an error but for one of a schema that is not valid.
func unlessInvalid(err error) error {
	if isInvalid(AsError(err).Code) {
		return nil
	}
	return err
}

// complete fills in what a request's schema leaves to the registry: its type, and the numbers of versions that its
// references call the latest. With sorted references are in order and each there once.
func (w *view) complete(c schema.Content, context string, sorted bool) (schema.Content, error) {
	if c.Type == "" {
		c.Type = schema.Avro
	}
	if len(c.Text) > w.r.cfg.Limits.RecordBytes {
		return c, refuse(CodeTooLarge, "the schema has %d bytes; %d are allowed", len(c.Text), w.r.cfg.Limits.RecordBytes)
	}
	if !utf8.ValidString(c.Text) {
		return c, refuse(CodeInvalidSchema, "the schema is not UTF-8")
	}
	if len(c.References) > w.r.cfg.Limits.References {
		return c, refuse(CodeInvalidSchema, "the schema has more than %d references", w.r.cfg.Limits.References)
	}
	c.References = slices.Clone(c.References)
	for i := range c.References {
		ref := &c.References[i]
		if ref.Name == "" || ref.Subject == "" || ref.Version < -1 || ref.Version == 0 || ref.Version > math.MaxInt32 {
			return c, refuse(CodeInvalidSchema, "reference %s needs a name, a subject and a version", quoted(ref.Name))
		}
		if ref.Version != latestVersion {
			continue
		}
		of := ParseSubject(ref.Subject).in(context)
		latest, ok := w.latest(of)
		if !ok {
			return c, refuse(CodeInvalidSchema, "reference %s leads to subject %s, which has no version",
				quoted(ref.Name), quoted(of.String()))
		}
		ref.Version = latest.number
	}
	if sorted {
		slices.SortFunc(c.References, func(a, b schema.Reference) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Subject, b.Subject), a.Version-b.Version)
		})
		c.References = slices.Compact(c.References)
	}
	return c, nil
}

// read is a request's schema, parsed, and its content with the canonical text.
func (w *view) read(c schema.Content, context string, o schema.ParseOptions) (schema.Schema, schema.Content, error) {
	c, err := w.complete(c, context, o.Normalize)
	if err != nil {
		return nil, c, err
	}
	deps, _, err := w.dependencies(c.References, context, false)
	if err != nil {
		return nil, c, err
	}
	parsed, err := w.parse(&c, deps, o)
	if err != nil {
		return nil, c, err
	}
	c.Text = parsed.Text()
	return parsed, c, nil
}

// parseKey tells parsed schemas apart: by what they are, and by what their references led to.
type parseKey struct {
	identity
	deps [16]byte
}

// parseCache keeps the schemas that were used last in parsed form. It is bounded by the bytes of their texts, those
// that they depend on included. It is safe for concurrent use.
type parseCache struct {
	max int

	mu      sync.Mutex
	entries map[parseKey]*list.Element // of *parsedEntry; guarded by mu
	order   list.List                  // the one used last is in front; guarded by mu
	held    int                        // bytes; guarded by mu
}

type parsedEntry struct {
	key    parseKey
	schema schema.Schema
	cost   int
}

// parsedOverhead is what an entry costs beyond its text.
const parsedOverhead = 256

func newParseCache(maxBytes int) *parseCache {
	return &parseCache{max: maxBytes, entries: map[parseKey]*list.Element{}}
}

func (c *parseCache) get(k parseKey) schema.Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[k]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*parsedEntry).schema
}

func (c *parseCache) put(k parseKey, s schema.Schema, cost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cost += parsedOverhead
	if c.entries[k] != nil || cost > c.max {
		return
	}
	c.entries[k] = c.order.PushFront(&parsedEntry{k, s, cost})
	for c.held += cost; c.held > c.max; {
		last := c.order.Remove(c.order.Back()).(*parsedEntry)
		delete(c.entries, last.key)
		c.held -= last.cost
	}
}

func (c *parseCache) bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}
