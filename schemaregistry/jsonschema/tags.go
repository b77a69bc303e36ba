package jsonschema

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"millrace/schemaregistry/schema"
)

const (
	tagsMember = "confluent:tags"
	recordType = "sr_record"
	fieldType  = "sr_field"
)

// Entities implements schema.Schema. An object's path is that of what it is in, then "object"; a property's is its
// object's and its name.
func (s *Schema) Entities() []schema.Tagged {
	const most = 16 << 20 // bytes of paths
	size := 0
	var found []schema.Tagged
	w := tagWalk{visit: func(kind string, path []string, v *value) {
		if tags := tagsOf(v); len(tags) > 0 && size < most {
			size += joinedSize(path)
			found = append(found, schema.Tagged{Entity: schema.Entity{Path: strings.Join(path, "."), Type: kind}, Tags: tags})
		}
	}}
	w.node(s.root, false)
	return found
}

// WithTags implements schema.Schema. Tags are removed before others are added.
func (s *Schema) WithTags(add, remove []schema.Tagged) (string, error) {
	changes := map[schema.Entity]*tagChange{}
	change := func(e schema.Entity) *tagChange {
		if changes[e] == nil {
			changes[e] = &tagChange{}
		}
		return changes[e]
	}
	for _, t := range remove {
		c := change(t.Entity)
		c.remove = append(c.remove, t.Tags...)
	}
	for _, t := range add {
		c := change(t.Entity)
		c.add = append(c.add, t.Tags...)
	}
	sizes := map[int]bool{}
	for e := range changes {
		sizes[len(e.Path)] = true
	}
	tags := map[*value][]string{}
	w := tagWalk{visit: func(kind string, path []string, v *value) {
		if !sizes[joinedSize(path)] {
			return
		}
		e := schema.Entity{Path: strings.Join(path, "."), Type: kind}
		if c := changes[e]; c != nil && !c.done && v.kind == object {
			c.done = true
			tags[v] = c.apply(tagsOf(v))
		}
	}}
	w.node(s.root, false)
	for _, list := range [][]schema.Tagged{remove, add} {
		for _, t := range list {
			if !changes[t.Entity].done {
				return "", schema.Invalid("there is no %s at %q that could have tags", t.Entity.Type, t.Entity.Path)
			}
		}
	}
	return string(s.root.val.appendTagged(nil, tags)), nil
}

// joinedSize is how long the path is with its dots.
func joinedSize(path []string) int {
	size := len(path) - 1
	for _, p := range path {
		size += len(p)
	}
	return size
}

type tagChange struct {
	add, remove []string
	done        bool
}

func (c *tagChange) apply(tags []string) []string {
	gone := nameSet(c.remove)
	kept := slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return gone[t] })
	there := nameSet(kept)
	for _, t := range c.add {
		if !there[t] {
			there[t] = true
			kept = append(kept, t)
		}
	}
	return kept
}

// tagsOf lists the tags that stand in a schema.
func tagsOf(v *value) []string {
	m := v.member(tagsMember)
	if m == nil {
		return nil
	}
	if m.kind == text {
		return []string{m.text}
	}
	var tags []string
	seen := map[string]bool{}
	for i := range m.items() {
		if t := &m.sub.items[i]; t.kind == text && !seen[t.text] {
			seen[t.text] = true
			tags = append(tags, t.text)
		}
	}
	return tags
}

// appendTagged prints a value, with other tags in some of its objects.
func (v *value) appendTagged(dst []byte, tags map[*value][]string) []byte {
	if v.kind != object && v.kind != array {
		return v.append(dst, false)
	}
	if v.kind == array {
		dst = append(dst, '[')
		for i := range v.items() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.sub.items[i].appendTagged(dst, tags)
		}
		return append(dst, ']')
	}
	list, changed := tags[v]
	dst = append(dst, '{')
	start := len(dst)
	name := func(n string) {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, n), ':')
	}
	for i, n := range v.names() {
		switch {
		case n != tagsMember || !changed:
			name(n)
			dst = v.sub.items[i].appendTagged(dst, tags)
		case len(list) > 0:
			name(n)
			dst = appendTexts(dst, list)
		}
	}
	if changed && len(list) > 0 && v.member(tagsMember) == nil {
		name(tagsMember)
		dst = appendTexts(dst, list)
	}
	return append(dst, '}')
}

func appendTexts(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, s)
	}
	return append(dst, ']')
}

// tagWalk visits everything that can have tags. References are not followed: what they lead to has a path of its own.
type tagWalk struct {
	visit func(kind string, path []string, v *value)
	path  []string
}

// in walks on below some more names of the path.
func (w *tagWalk) in(n *node, names ...string) {
	size := len(w.path)
	w.path = append(w.path, names...)
	w.node(n, false)
	w.path = w.path[:size]
}

// node walks a schema; tagged says that its own tags are those of a property.
func (w *tagWalk) node(n *node, tagged bool) { w.form(normalForm(n), tagged) }

func (w *tagWalk) form(f *form, tagged bool) {
	n := f.node
	size := len(w.path)
	switch f.shape {
	case shapeCombined:
		w.combined(f, tagged)
	case shapeArray:
		if n.arr != nil && n.arr.all != nil {
			w.in(n.arr.all, "array")
		}
	case shapeObject:
		w.path = append(w.path, "object")
		w.object(f, tagged)
	case shapeCondition:
		w.in(n.cond.test, "conditional", "if")
		if n.cond.then != nil {
			w.in(n.cond.then, "conditional", "then")
		}
		if n.cond.otherwise != nil {
			w.in(n.cond.otherwise, "conditional", "else")
		}
	case shapeNot:
		w.in(n.not, "not")
	}
	w.path = w.path[:size]
}

func (w *tagWalk) object(f *form, tagged bool) {
	n := f.node
	if !tagged {
		w.visit(recordType, w.path, n.val)
	}
	if n.obj != nil {
		for _, p := range n.obj.props {
			w.path = append(w.path, p.name)
			w.visit(fieldType, w.path, p.schema.val)
			w.node(p.schema, true)
			w.path = w.path[:len(w.path)-1]
		}
	}
	for _, keyword := range []string{"definitions", "$defs"} {
		defs := n.val.member(keyword)
		if defs == nil || defs.kind != object {
			continue
		}
		for i, name := range defs.names() {
			w.in(loosely(&defs.sub.items[i], n.res), keyword, name)
		}
	}
}

// loosely reads a definition that nothing may refer to, and that may be wrong.
func loosely(v *value, res *resource) *node {
	lib := newLibrary()
	lib.root = res
	c := newCompiler(lib, Limits{}.withDefaults(), maphash.MakeSeed())
	n := c.node(v, res)
	for _, p := range c.pending {
		p.inside.ref = p.inside // all that counts is that there is one
	}
	return n
}

// combined walks branches in an order of their own: by what they are, then by their title, description and default.
func (w *tagWalk) combined(f *form, tagged bool) {
	branches := slices.Clone(f.parts)
	for _, n := range f.list {
		branches = append(branches, normalForm(n))
	}
	slices.SortStableFunc(branches, compareForms)
	name := strings.ToLower(f.by.String())
	for i, b := range branches {
		w.path = append(w.path, name, itoa(i))
		w.form(b, tagged && f.parts != nil)
		w.path = w.path[:len(w.path)-2]
	}
}

func compareForms(a, b *form) int {
	if c := cmp.Compare(a.shape.order(), b.shape.order()); c != 0 {
		return c
	}
	for _, name := range []string{"title", "description", "default"} {
		x, y := a.annotation(name), b.annotation(name)
		if x == nil || y == nil {
			if x != y {
				return cmp.Compare(btoi(x != nil), btoi(y != nil))
			}
			continue
		}
		if c := compareUTF16(string(x.append(nil, false)), string(y.append(nil, false))); c != 0 {
			return c
		}
	}
	return 0
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// order is the shape's place among the names of shapes.
func (s shape) order() int {
	return slices.Index([]shape{
		shapeArray, shapeBoolean, shapeCombined, shapeCondition, shapeConst, shapeEmpty, shapeEnum, shapeFalse, shapeNot,
		shapeNull, shapeNumber, shapeObject, shapeReference, shapeString, shapeTrue,
	}, s)
}
