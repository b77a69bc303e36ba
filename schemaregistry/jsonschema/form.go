package jsonschema

import (
	"hash/maphash"
	"slices"
)

// shape is what a form is. Forms of the same shape are compared by their keywords.
type shape uint8

const (
	shapeEmpty shape = iota
	shapeTrue
	shapeFalse
	shapeString
	shapeNumber
	shapeBoolean
	shapeNull
	shapeArray
	shapeObject
	shapeEnum
	shapeConst
	shapeNot
	shapeCondition
	shapeCombined
	shapeReference
)

// isLeaf says that forms of this shape hold no schemas that are compared.
func (s shape) isLeaf() bool {
	switch s {
	case shapeArray, shapeObject, shapeNot, shapeCombined, shapeReference:
		return false
	}
	return true
}

// form is a schema in normal form: one part with the keywords of one family, or parts that are combined. A schema with
// parts of several families is an allOf of them.
type form struct {
	shape   shape
	node    *node
	whole   bool // title, description, default and identifier of the node belong to it
	typed   bool // the keyword type asks for the shape
	integer bool
	by      criterion // of shapeCombined
	list    []*node   // what is combined, or
	parts   []*form
	flat    []*form // the same, without repetition; nil until it is needed
	to      *node   // of shapeReference
}

// forms makes the normal forms of nodes, each once, as comparing knows pairs by their addresses.
type forms struct {
	made   map[*node]*form
	seed   maphash.Seed
	hashes map[*value]uint64 // of arrays and objects
}

func newForms() *forms { return &forms{map[*node]*form{}, maphash.MakeSeed(), map[*value]uint64{}} }

// hash is the same for equal values. It is found once for each value, however many branches hold that.
func (fs *forms) hash(v *value) uint64 {
	if v.kind != array && v.kind != object {
		return v.hash(fs.seed)
	}
	h, ok := fs.hashes[v]
	if !ok {
		h = v.fold(fs.seed, fs.hash)
		fs.hashes[v] = h
	}
	return h
}

func (fs *forms) of(n *node) *form {
	if f := fs.made[n]; f != nil {
		return f
	}
	f := normalForm(n)
	fs.made[n] = f
	return f
}

func normalForm(n *node) *form {
	switch n.always {
	case alwaysTrue:
		return &form{shape: shapeTrue, node: n, whole: true}
	case alwaysFalse:
		return &form{shape: shapeFalse, node: n, whole: true}
	}
	parts := partsOf(n)
	switch len(parts) {
	case 0:
		return &form{shape: shapeEmpty, node: n, whole: true}
	case 1:
		parts[0].whole = true
		return parts[0]
	}
	return &form{shape: shapeCombined, node: n, whole: true, by: allOf, parts: parts}
}

// partsOf lists the parts of a schema in the order that decides their places in paths.
func partsOf(n *node) []*form {
	var parts []*form
	add := func(f form) {
		f.node = n
		parts = append(parts, &f)
	}
	if n.ref != nil {
		add(form{shape: shapeReference, to: n.ref})
		if n.res.draft < draft2019 {
			return parts
		}
	}
	if n.dynamic != nil {
		add(form{shape: shapeReference, to: n.dynamic.to})
	}
	if n.enum != nil {
		add(form{shape: shapeEnum})
	}
	for k, list := range n.combined {
		if list != nil {
			add(form{shape: shapeCombined, by: criterion(k), list: list})
		}
	}
	if n.not != nil {
		add(form{shape: shapeNot})
	}
	if n.con != nil {
		add(form{shape: shapeConst})
	}
	typed := typedForms(n)
	switch {
	case n.list:
		add(form{shape: shapeCombined, by: anyOf, parts: typed})
	case len(typed) == 1:
		parts = append(parts, typed[0])
	}
	for _, s := range untypedShapes(n, typed) {
		add(form{shape: s})
	}
	if n.cond != nil {
		add(form{shape: shapeCondition})
	}
	// Combined parts go first.
	slices.SortStableFunc(parts, func(a, b *form) int { return rank(a) - rank(b) })
	return parts
}

func rank(f *form) int {
	if f.shape == shapeCombined {
		return 0
	}
	return 1
}

func typedForms(n *node) []*form {
	var typed []*form
	for _, t := range n.types {
		f := &form{node: n, typed: true}
		switch t {
		case "null":
			f.shape = shapeNull
		case "boolean":
			f.shape = shapeBoolean
		case "object":
			f.shape = shapeObject
		case "array":
			f.shape = shapeArray
		case "string":
			f.shape = shapeString
		default:
			f.shape, f.integer = shapeNumber, t == "integer"
		}
		typed = append(typed, f)
	}
	return typed
}

// untypedShapes are the families of which the schema has keywords but not the type.
func untypedShapes(n *node, typed []*form) []shape {
	var shapes []shape
	add := func(s shape, has bool) {
		if has && !slices.ContainsFunc(typed, func(f *form) bool { return f.shape == s }) {
			shapes = append(shapes, s)
		}
	}
	add(shapeArray, n.arr != nil && n.arr.counts())
	add(shapeObject, n.obj != nil && n.obj.counts(n))
	add(shapeNumber, n.num != nil)
	s := n.str
	add(shapeString, s != nil &&
		(n.res.draft < draft2019 || s.minLength != nil || s.maxLength != nil || s.pattern != nil))
	return shapes
}

// counts says whether there is more than the limits of an absent contains.
func (a *arrayWords) counts() bool {
	return a.all != nil || a.hasTuple || a.additional != nil || a.contains != nil || a.minItems != nil ||
		a.maxItems != nil || a.unique || a.unevaluated != nil || a.minContains == nil && a.maxContains == nil
}

// counts says whether there is more than, from draft 2019-09 on, lists of no properties.
func (o *objectWords) counts(n *node) bool {
	return n.res.draft < draft2019 || len(o.props) > 0 || len(o.patterns) > 0 ||
		slices.ContainsFunc(n.val.names(), isObjectLimit)
}

// isObjectLimit says whether a keyword is about objects and counts even when it holds nothing.
func isObjectLimit(keyword string) bool {
	switch keyword {
	case "required", "additionalProperties", "unevaluatedProperties", "propertyNames", "minProperties", "maxProperties",
		"dependencies", "dependentRequired", "dependentSchemas":
		return true
	}
	return false
}

// size is the number of branches as they are written.
func (f *form) size() int { return len(f.list) + len(f.parts) }

// branches are what is combined, each once.
func (fs *forms) branches(f *form) []*form {
	if f.flat != nil || f.size() == 0 {
		return f.flat
	}
	if f.parts != nil {
		f.flat = f.parts
		return f.flat
	}
	seen := map[uint64][]*node{}
	for _, n := range f.list {
		h := fs.hash(n.val)
		if slices.ContainsFunc(seen[h], func(o *node) bool { return o.val.equal(n.val) }) {
			continue
		}
		seen[h] = append(seen[h], n)
		f.flat = append(f.flat, fs.of(n))
	}
	slices.SortStableFunc(f.flat, func(a, b *form) int { return rank(a) - rank(b) })
	return f.flat
}
