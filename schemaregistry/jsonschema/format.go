// Package jsonschema is the JSON Schema format of the schema registry: drafts 4, 6, 7, 2019-09 and 2020-12.
//
// It reads schemas and resolves their references among what it is given, prints them in their canonical form, decides
// whether one schema reads what another one wrote, and checks values. All of that is done here, within limits: nothing
// is ever fetched, from a network or from files, whatever a $ref or $schema says, and no text costs more than a small
// multiple of its length. Values keep their numbers exactly, and regular expressions are those of ECMA-262.
//
// Two schemas are compared in a normal form, by the rules that registries of this kind share. The verdict is theirs,
// also where it is not what a proof would say; such places are named in the warnings of a comparison.
//
// The package does no I/O and keeps no state. Package schemaregistry calls it through schema.Format.
package jsonschema

import (
	"hash/maphash"
	"strings"

	"millrace/schemaregistry/schema"
)

// Limits bound what a schema or a value can cost. A zero is replaced by the default.
type Limits struct {
	Text         int // bytes of a schema's text; all its references together may have four times as many. 1 MiB
	Depth        int // nesting of a schema's text. 500
	Nodes        int // schemas within a schema and its references. 100,000
	CompareSteps int // of one comparison. 1,000,000
	ValueDepth   int // nesting of a value. 200
	CheckSteps   int // of checking one value, beside 16 for each of its bytes. 250,000
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		limit *int
		value int
	}{
		{&l.Text, 1 << 20}, {&l.Depth, 500}, {&l.Nodes, 100_000}, {&l.CompareSteps, 1_000_000}, {&l.ValueDepth, 200},
		{&l.CheckSteps, 250_000},
	} {
		if *d.limit <= 0 {
			*d.limit = d.value
		}
	}
	return l
}

// Format implements schema.Format.
type Format struct {
	limits Limits
	seed   maphash.Seed // of the hashes of values
}

// New makes the format.
func New(l Limits) *Format { return &Format{l.withDefaults(), maphash.MakeSeed()} }

// Parse implements schema.Format.
func (f *Format) Parse(content string, deps []schema.Dependency, o schema.ParseOptions) (schema.Schema, error) {
	root, err := f.read("", content)
	if err != nil {
		return nil, err
	}
	lib := newLibrary()
	lib.addRoot(root)
	total := 0
	for i := range deps {
		if total += len(deps[i].Text); total > 4*f.limits.Text {
			return nil, schema.Invalid("its references have more than %d bytes in all", 4*f.limits.Text)
		}
		v, err := f.read("reference "+deps[i].Name+": ", deps[i].Text)
		if err != nil {
			return nil, err
		}
		lib.addDependency(deps[i].Name, v)
	}
	n, err := newCompiler(lib, f.limits, f.seed).run()
	if err != nil {
		return nil, err
	}
	if o.Strict {
		if err := checkNames(n); err != nil {
			return nil, err
		}
	}
	return &Schema{limits: f.limits, root: n, text: string(root.append(nil, o.Normalize)), foreign: len(deps) > 0}, nil
}

// read reads one document.
func (f *Format) read(prefix, content string) (*value, error) {
	if len(content) > f.limits.Text {
		return nil, schema.Invalid("%sthe schema has more than %d bytes", prefix, f.limits.Text)
	}
	v, err := readValue([]byte(content), f.limits.Depth)
	if err != nil {
		return nil, schema.Invalid("%s%w", prefix, err)
	}
	if v.kind != object && v.kind != boolean {
		return nil, schema.Invalid("%sa schema is an object or a boolean, not %s", prefix, excerpt(v))
	}
	return v, nil
}

// checkNames refuses properties that begin as the registry's own do.
func checkNames(n *node) error {
	if n.obj == nil {
		return nil
	}
	for _, p := range n.obj.props {
		if strings.HasPrefix(p.name, "$$") {
			return schema.Invalid("#/properties/%s: names of properties may not begin with $$", p.name)
		}
	}
	return nil
}

// Compare implements schema.Format.
func (f *Format) Compare(reader, writer schema.Schema, o schema.CompareOptions) (schema.Comparison, error) {
	r, rok := reader.(*Schema)
	w, wok := writer.(*Schema)
	if !rok || !wok {
		return schema.Comparison{}, schema.Invalid("a schema of another format")
	}
	c := comparer{
		lenient: o.Lenient, alike: w.text == r.text && !w.foreign && !r.foreign,
		forms: newForms(), followed: map[*form]*form{},
		steps: f.limits.CompareSteps, limit: f.limits.CompareSteps, maxDepth: 4 * f.limits.Depth,
		widened: result{loose: true},
	}
	root := c.run(w.root, r.root)
	if c.err != nil {
		return schema.Comparison{}, c.err
	}
	found := c.report(root, o)
	if o.ValidateFields {
		found.Differences = append(found.Differences, reserved(r, w, o)...)
	}
	return found, nil
}

// Schema implements schema.Schema.
type Schema struct {
	limits  Limits
	root    *node
	text    string
	foreign bool // it has references to other schemas
}

// Text implements schema.Schema.
func (s *Schema) Text() string { return s.text }

// Format implements schema.Schema. There is but one form.
func (s *Schema) Format(string) string { return s.text }

// Name implements schema.Schema. It is the title.
func (s *Schema) Name() string { return s.root.val.str("title") }
