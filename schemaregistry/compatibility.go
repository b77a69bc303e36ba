package schemaregistry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"millrace/schemaregistry/schema"
)

// reserved is the property that lists field paths which a schema must not use, apart by commas.
const reserved = "confluent:reserved"

// shownSchema is how much of an old schema messages show.
const shownSchema = 10 << 10

// comparedPair names a comparison that was made: a schema against a stored one, under some rules.
type comparedPair struct {
	new  identity
	old  *content
	rule string
}

// comparison is what became of comparing with one version.
type comparison struct {
	messages    []string // of what is incompatible
	differences []Difference
	warnings    []string
}

// checkCompatible refuses a schema that the live versions do not admit.
func (g *registration) checkCompatible(ctx context.Context, w *view, c *candidate, live []held) error {
	result, err := g.compare(ctx, w, c, live)
	if err != nil || result.Compatible {
		return err
	}
	why := "the schema is incompatible with an earlier one of subject "
	if len(live) == 0 {
		why = "the schema has fields that its own metadata reserve, in subject "
	}
	return &Error{
		Code: CodeIncompatible, Messages: result.Messages, Differences: result.Differences, Warnings: result.Warnings,
		Message: why + quoted(g.subject.String()) + "; details: [" + strings.Join(result.Messages, ", ") + "]",
	}
}

// compare checks a schema against versions, by the level and the group in force.
func (g *registration) compare(ctx context.Context, w *view, c *candidate, live []held) (
	out CompatibilityResult, err error,
) {
	level := *g.config.CompatibilityLevel
	out.Compatible = true
	if g.validatesFields() && (level == None || len(live) == 0) {
		return g.compareReserved(c, live)
	}
	if level == None {
		return out, nil
	}
	if group := g.config.CompatibilityGroup; group != nil {
		live = slices.DeleteFunc(slices.Clone(live), func(h held) bool {
			return property(h.content.Metadata, *group) != property(c.content.Metadata, *group)
		})
	}
	if !strings.HasSuffix(level, "_TRANSITIVE") && len(live) > 1 {
		live = live[len(live)-1:]
	}
	for _, h := range slices.Backward(live) {
		if err := tooSlow(ctx); err != nil {
			return out, err
		}
		found, err := g.compareWith(w, c, h, strings.TrimSuffix(level, "_TRANSITIVE"))
		if err != nil {
			return out, err
		}
		for _, d := range found.differences {
			d.Version = h.number
			out.Differences = append(out.Differences, d)
		}
		out.Warnings = append(out.Warnings, found.warnings...)
		if len(found.messages) == 0 {
			continue
		}
		out.Compatible = false
		out.Messages = append(slices.Clone(found.messages),
			fmt.Sprintf("{oldSchemaVersion: %d}", h.number),
			fmt.Sprintf("{oldSchema: '%s'}", shorten(h.content.Text)),
			g.rules())
		break
	}
	out.Warnings = slices.Compact(out.Warnings)
	return out, nil
}

// rules tells what a verdict was by, as tools read it.
func (g *registration) rules() string {
	return fmt.Sprintf("{validateFields: '%t', compatibility: '%s'}", g.validatesFields(), *g.config.CompatibilityLevel)
}

// compareReserved looks only for fields that metadata reserve, where there is nothing that the rest is compared with: a
// schema equals itself in all else.
func (g *registration) compareReserved(c *candidate, live []held) (CompatibilityResult, error) {
	format, err := g.r.format(c.content.Type)
	if err != nil {
		return CompatibilityResult{}, err
	}
	o := schema.CompareOptions{
		Lenient: g.lenient(), ValidateFields: true, ReaderName: "new", WriterName: "old",
		ReaderReserved: reservedPaths(c.content.Metadata),
	}
	if n := len(live); n > 0 {
		o.WriterReserved = reservedPaths(live[n-1].content.Metadata)
	}
	found := &comparison{}
	if err := found.add(format, c.content.Type, c.parsed, c.parsed, o); err != nil {
		return CompatibilityResult{}, err
	}
	out := CompatibilityResult{Compatible: len(found.messages) == 0, Differences: found.differences}
	if !out.Compatible {
		out.Messages = append(found.messages, g.rules())
	}
	return out, nil
}

func property(m *schema.Metadata, name string) string {
	if m == nil {
		return ""
	}
	return m.Properties[name]
}

func shorten(text string) string {
	if len(text) <= shownSchema {
		return text
	}
	return strings.ToValidUTF8(text[:shownSchema], "") + "..."
}

func (g *registration) validatesFields() bool {
	return g.config.ValidateFields != nil && *g.config.ValidateFields
}

func (g *registration) lenient() bool {
	return g.config.CompatibilityPolicy != nil && *g.config.CompatibilityPolicy == Lenient
}

// compareWith compares with one version, in one direction or both.
func (g *registration) compareWith(w *view, c *candidate, h held, level string) (*comparison, error) {
	pair := comparedPair{c.is, h.content, fmt.Sprint(level, g.lenient(), g.validatesFields())}
	if known := g.results[pair]; known != nil {
		return known, nil
	}
	out := &comparison{}
	if c.content.Type != h.content.Type {
		out.messages = []string{fmt.Sprintf("the schema is of type %s, version %d of type %s", c.content.Type, h.number,
			h.content.Type)}
		g.results[pair] = out
		return out, nil
	}
	format, err := g.r.format(c.content.Type)
	if err != nil {
		return nil, err
	}
	old, err := w.parsed(&h.content.Content, g.subject.Context)
	if err != nil {
		return nil, unreadable(err, h.number)
	}
	o := schema.CompareOptions{Lenient: g.lenient(), ValidateFields: g.validatesFields()}
	defer g.r.heavies.begin(len(c.content.Text) + len(h.content.Text))()
	ours, theirs := reservedPaths(c.content.Metadata), reservedPaths(h.content.Metadata)
	if level == Forward || level == Full {
		o.ReaderName, o.WriterName, o.ReaderReserved, o.WriterReserved = "old", "new", theirs, ours
		if err := out.add(format, h.content.Type, old, c.parsed, o); err != nil {
			return nil, err
		}
	}
	if level == Backward || level == Full {
		o.ReaderName, o.WriterName, o.ReaderReserved, o.WriterReserved = "new", "old", ours, theirs
		if err := out.add(format, h.content.Type, c.parsed, old, o); err != nil {
			return nil, err
		}
	}
	g.results[pair] = out
	return out, nil
}

// unreadable is the error of a stored version that cannot be parsed.
func unreadable(err error, number int) error {
	e := *AsError(err)
	e.Message = fmt.Sprintf("version %d of the subject cannot be compared with: %s", number, e.Message)
	return &e
}

// add compares in one direction.
func (c *comparison) add(f schema.Format, t schema.Type, reader, writer schema.Schema, o schema.CompareOptions) error {
	found, err := f.Compare(reader, writer, o)
	if err != nil {
		return invalid(err)
	}
	c.warnings = append(c.warnings, found.Warnings...)
	for i := range found.Differences {
		d := &found.Differences[i]
		out := Difference{
			Kind: d.Kind, Path: d.Path, Compatible: d.Compatible, Description: d.Description, Old: d.Writer, New: d.Reader,
		}
		if o.ReaderName == "old" {
			out.Old, out.New = d.Reader, d.Writer
		}
		c.differences = append(c.differences, out)
		if !d.Compatible {
			c.messages = append(c.messages, d.Message(t))
		}
	}
	return nil
}

// reservedPaths are the field paths that metadata reserve.
func reservedPaths(m *schema.Metadata) []string {
	var out []string
	for _, path := range strings.Split(property(m, reserved), ",") {
		if path = strings.TrimSpace(path); path != "" {
			out = append(out, path)
		}
	}
	return out
}

// Compatibility checks a schema against a version, or with version "" against all as registering would.
func (r *Registry) Compatibility(ctx context.Context, subject, version string, q RegisterRequest) (
	out CompatibilityResult, err error,
) {
	name, err := checkSubject(subject)
	if err != nil {
		return out, err
	}
	number := latestVersion
	if version != "" {
		if number, err = parseVersion(version); err != nil {
			return out, err
		}
	}
	if q.Content.Text == "" {
		return out, refuse(CodeInvalidSchema, "the schema is empty")
	}
	if err := r.Fresh(ctx); err != nil {
		return out, err
	}
	w := r.view()
	live := slices.DeleteFunc(w.versions(name), func(h held) bool { return h.deleted })
	switch {
	case number != latestVersion:
		h, ok := w.at(target{name, number})
		if !ok || h.deleted {
			return out, errNoVersion(name, number)
		}
		live = []held{h}
	case version != "" && len(live) > 1:
		live = live[len(live)-1:]
	}
	g := newRegistration(r, name, q)
	g.mode, g.config, g.q.Version = ReadWrite, w.config(name), 0
	next := 1
	if n := len(live); n > 0 {
		next = live[n-1].number + 1
	}
	c, err := g.fillIn(w, live, next)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limits.WriteWait)
	defer cancel()
	return g.compare(ctx, w, c, live)
}

func errNoVersion(name Subject, number int) error {
	if number == latestVersion {
		return refuse(CodeVersionNotFound, "subject %s has no version", quoted(name.String()))
	}
	return refuse(CodeVersionNotFound, "subject %s has no version %d", quoted(name.String()), number)
}
