package protobuf

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/bufbuild/protocompile/reporter"

	"millrace/internal/invariant"
	"millrace/schemaregistry/schema"
)

// Limits bound what a schema or a message may cost. A zero is the default.
type Limits struct {
	TextBytes   int // of one text: 1 MiB
	Depth       int // of brackets in a text: 100
	Tokens      int // words and marks in a text, of which some count for more: 40,000
	AllTokens   int // in a text and all its dependencies: 120,000
	Steps       int // of a comparison: 1,000,000
	Differences int // that a comparison lists: 10,000
	ValueDepth  int // of messages in a message: 100
	OutputBytes int // that a message may become, in whatever form: 64 MiB
}

func (l Limits) withDefaults() Limits {
	return Limits{
		TextBytes:   cmp.Or(l.TextBytes, 1<<20),
		Depth:       cmp.Or(l.Depth, 100),
		Tokens:      cmp.Or(l.Tokens, 40_000),
		AllTokens:   cmp.Or(l.AllTokens, 140_000),
		Steps:       cmp.Or(l.Steps, 1_000_000),
		Differences: cmp.Or(l.Differences, 10_000),
		ValueDepth:  cmp.Or(l.ValueDepth, 100),
		OutputBytes: cmp.Or(l.OutputBytes, 64<<20),
	}
}

// Format reads Protobuf schemas. It is safe for concurrent use.
type Format struct {
	limits  Limits
	library *library
}

// New makes a Format with these limits.
func New(l Limits) *Format {
	lib, err := newLibrary()
	invariant.Check(err == nil, "the built-in imports do not compile: %v", err)
	return &Format{limits: l.withDefaults(), library: lib}
}

// Parse reads a text, or a FileDescriptorProto in base64. Without Strict, a text that is well formed but does not
// compile is taken too, since other registries store such: it can be printed and compared, but has no codec.
func (f *Format) Parse(text string, deps []schema.Dependency, o schema.ParseOptions) (s schema.Schema, err error) {
	defer refuse(&err)
	c := newCompilation(f)
	for i := range deps {
		if err := c.dependency(&deps[i]); err != nil && o.Strict {
			return nil, schema.Invalid("import %q: %w", deps[i].Name, err)
		}
	}
	u, err := c.compile(c.freeName(), text)
	if err != nil {
		return nil, err
	}
	if u.fault != nil && o.Strict {
		return nil, u.fault
	}
	written := u.written
	switch {
	case o.Normalize && u.fault == nil && !u.loose:
		written = c.fromDescriptor(u)
		written.normalize()
	case o.Normalize:
		written.qualify(newSide(f.library, u, c.order))
		written.normalize()
	}
	out := written.String()
	if out == "" {
		return nil, schema.Invalid("the text declares nothing")
	}
	if len(out) > 4*f.limits.TextBytes {
		return nil, schema.Invalid("the text has %d bytes when printed, more than the %d allowed", len(out),
			4*f.limits.TextBytes)
	}
	return newProtobuf(c, u, written, out), nil
}

// refuse turns a panic of the compiler, which does not expect hostile texts, into an error.
func refuse(err *error) {
	if r := recover(); r != nil {
		*err = schema.Invalid("the text cannot be compiled: %v", r)
	}
}

// located is an error of the compiler with its place in our words.
func located(err error) error {
	var at reporter.ErrorWithPos
	if !errors.As(err, &at) {
		return schema.Invalid("%w", err)
	}
	p := at.GetPosition()
	reason := elsewhere(at.Unwrap().Error(), p.Filename)
	if p.Line == 0 {
		return schema.Invalid("%s", reason)
	}
	return schema.Invalid("line %d, column %d: %s", p.Line, p.Col, reason)
}

// elsewhere spells other places in the same file, which a reason mentions, in our words.
func elsewhere(reason, name string) string {
	before, after, ok := strings.Cut(reason, name+":")
	if !ok || name == "" {
		return reason
	}
	var line, column int
	if n, err := fmt.Sscanf(after, "%d:%d", &line, &column); n != 2 || err != nil {
		return reason
	}
	return before + fmt.Sprintf("line %d, column %d", line, column) + strings.TrimPrefix(after,
		fmt.Sprintf("%d:%d", line, column))
}

// place names a byte of a text by line and column.
func place(text string, at int) string {
	before := text[:at]
	return fmt.Sprintf("line %d, column %d", 1+strings.Count(before, "\n"), at-strings.LastIndexByte(before, '\n'))
}
