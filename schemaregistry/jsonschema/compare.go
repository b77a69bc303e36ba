package jsonschema

import (
	"slices"

	"millrace/schemaregistry/schema"
)

// comparer compares an old schema, with which data was written, to a new one that is to read it.
//
// What it finds about a pair of forms is kept, so that no pair is compared twice, and while a pair is being compared it
// is taken to have no differences: recursion ends there. Where that was used, all is compared again with what was found
// incompatible known, until nothing changes.
type comparer struct {
	lenient  bool
	alike    bool // both schemas are the same text
	forms    *forms
	memo     map[pair]*result
	known    map[pair]*result // incompatible ones of the pass before
	assumed  bool             // an active pair was met again
	followed map[*form]*form
	steps    int
	depth    int
	maxDepth int
	err      error
	limit    int    // steps at the outset
	leaf     result // of the leaves that are being compared
	nothing  result // stands for every result without items, and
	widened  result // for those that are loose
}

type pair struct{ o, n *form }

// result is what is found about a pair, with paths that begin at the pair. Results are shared: they form a graph in
// which the same one may be reached many ways.
type result struct {
	items  []item
	bad    bool // incompatible
	loose  bool // the new one may take more, be it said in items or not
	active bool // still being found out
}

// item is a difference, a warning, or the result of another pair.
type item struct {
	path string // from the pair; "" is the pair itself
	kind string // "": a warning, unless there is a sub
	warn string
	sub  *result
	o, n *value // what differs
}

// What is counted in steps: a pair costs pairCost, beside its keywords. Each thing that is said about it is kept until
// the comparison ends and costs itemCost, so that steps bound memory too.
const (
	pairCost = 4
	itemCost = 8
)

func (c *comparer) run(o, n *node) *result {
	for {
		c.memo, c.assumed = map[pair]*result{}, false
		root := c.nodes(o, n)
		bad := map[pair]*result{}
		for p, r := range c.memo {
			if r.bad {
				bad[p] = r
			}
		}
		if !c.assumed || len(bad) == len(c.known) || c.err != nil {
			return root
		}
		c.known = bad
	}
}

// spend takes steps; false says that there are none left.
func (c *comparer) spend(n int) bool {
	c.steps -= n
	if c.steps < 0 && c.err == nil {
		c.err = schema.Invalid("comparing the schemas takes more than %d steps", c.limit)
	}
	return c.err == nil
}

// nodes compares two schemas of which either may be missing.
func (c *comparer) nodes(o, n *node) *result {
	switch {
	case o == nil && n == nil:
		return &result{}
	case o == nil:
		r := &result{}
		c.add(r, "", "SCHEMA_ADDED", nil, n.val)
		return r
	case n == nil:
		r := &result{}
		c.add(r, "", "SCHEMA_REMOVED", o.val, nil)
		return r
	}
	return c.compare(c.forms.of(o), c.forms.of(n))
}

// follow goes along references to what they mean. What only refers to itself means nothing: any value.
func (c *comparer) follow(f *form) *form {
	if f.shape != shapeReference {
		return f
	}
	if to := c.followed[f]; to != nil {
		return to
	}
	seen := map[*form]bool{}
	to := f
	for to.shape == shapeReference && c.spend(1) {
		if seen[to] {
			to = &form{shape: shapeEmpty, node: f.node, whole: true}
			break
		}
		seen[to] = true
		to = c.forms.of(to.to)
	}
	for s := range seen {
		c.followed[s] = to
	}
	return to
}

// compare finds what is known about a pair or compares it.
func (c *comparer) compare(o, n *form) *result {
	p := pair{c.follow(o), c.follow(n)}
	if p.o.shape.isLeaf() && p.n.shape.isLeaf() {
		r := &c.leaf
		*r = result{}
		if c.spend(pairCost) {
			c.shapes(r, p.o, p.n)
		}
		switch {
		case len(r.items) == 0 && r.loose:
			return &c.widened
		case len(r.items) == 0:
			return &c.nothing
		}
		kept := *r
		return &kept
	}
	if r := c.memo[p]; r != nil {
		if !r.active {
			return r
		}
		if r := c.known[p]; r != nil {
			return r
		}
		c.assumed = true
		return &result{}
	}
	if !c.spend(pairCost) {
		return &result{}
	}
	if c.depth >= c.maxDepth {
		c.err = schema.Invalid("comparing the schemas goes more than %d levels deep", c.maxDepth)
		return &result{}
	}
	r := &result{active: true}
	c.memo[p] = r
	c.depth++
	c.shapes(r, p.o, p.n)
	c.depth--
	r.active = false
	return r
}

// add notes a difference.
func (c *comparer) add(r *result, path, kind string, o, n *value) {
	c.spend(itemCost)
	r.items = append(r.items, item{path: path, kind: kind, o: o, n: n})
	if !compatible(kind, c.lenient) {
		r.bad = true
	}
	switch kind {
	case "ID_CHANGED", "TITLE_CHANGED", "DESCRIPTION_CHANGED", "DEFAULT_CHANGED":
	default:
		r.loose = true
	}
}

// nest notes the result of another pair.
func (c *comparer) nest(r *result, path string, sub *result) {
	r.loose = r.loose || sub.loose
	if len(sub.items) > 0 {
		c.spend(itemCost)
		r.items = append(r.items, item{path: path, sub: sub})
		r.bad = r.bad || sub.bad
	}
}

// warn notes what is not compared.
func (c *comparer) warn(r *result, path, text string) {
	c.spend(itemCost)
	r.items = append(r.items, item{path: path, warn: text})
	r.loose = true
}

// shapes compares two forms, neither of them a reference.
func (c *comparer) shapes(r *result, o, n *form) {
	if o.shape != shapeCombined && n.shape == shapeCombined && c.intoBranch(r, o, n) {
		return
	}
	if o.shape == shapeCombined && n.shape != shapeCombined && c.fromBranch(r, o, n) {
		return
	}
	if o.shape != n.shape {
		switch {
		case o.shape == shapeFalse || n.shape == shapeEmpty || n.shape == shapeTrue:
			r.loose = r.loose || o.shape != shapeTrue && o.shape != shapeEmpty
		case c.bytes(o) && c.bytes(n):
			c.warn(r, "", "both sides are marked as bytes of Kafka Connect, so their types are not compared")
		default:
			c.add(r, "", "TYPE_CHANGED", o.node.val, n.node.val)
		}
		return
	}
	c.annotations(r, o, n)
	c.demandsType(r, o, n)
	switch o.shape {
	case shapeString:
		c.strings(r, o.node, n.node)
	case shapeNumber:
		c.numbers(r, o, n)
	case shapeConst:
		if !o.node.con.equal(n.node.con) {
			c.add(r, "const", "ENUM_ARRAY_CHANGED", o.node.con, n.node.con)
		}
	case shapeEnum:
		c.enums(r, o.node, n.node)
	case shapeCombined:
		c.combined(r, o, n)
	case shapeNot:
		c.not(r, o.node, n.node)
	case shapeObject:
		c.objects(r, o.node, n.node)
	case shapeArray:
		c.arrays(r, o.node, n.node)
	case shapeCondition:
		c.conditions(r, o.node, n.node)
	}
}

// intoBranch compares what is not combined to the branches of what is; false says that the whole is to be compared.
func (c *comparer) intoBranch(r *result, o, n *form) bool {
	branches := c.forms.branches(n)
	switch {
	case n.size() == 1:
		if sub := c.compare(o, branches[0]); !sub.bad {
			c.nest(r, "", sub)
			return true
		}
	case n.by != allOf:
		for _, b := range branches {
			if sub := c.compare(o, b); !sub.bad {
				c.nest(r, "", sub)
				c.add(r, "", "SUM_TYPE_EXTENDED", o.node.val, n.node.val)
				c.warnOneOf(r, n)
				return true
			}
		}
	}
	return false
}

// fromBranch compares the branches of what is combined to what is not.
func (c *comparer) fromBranch(r *result, o, n *form) bool {
	branches := c.forms.branches(o)
	switch {
	case o.size() == 1:
		if sub := c.compare(branches[0], n); !sub.bad {
			c.nest(r, "", sub)
			return true
		}
	case o.by == allOf:
		for _, b := range branches {
			if sub := c.compare(b, n); !sub.bad {
				c.nest(r, "", sub)
				c.add(r, "", "PRODUCT_TYPE_NARROWED", o.node.val, n.node.val)
				return true
			}
		}
	}
	return false
}

// bytes says whether a schema is of bytes of Kafka Connect, which may be spelt as several types.
func (c *comparer) bytes(f *form) bool { return f.whole && f.node.val.str("connect.type") == "bytes" }

func (c *comparer) annotations(r *result, o, n *form) {
	for _, a := range []struct{ name, kind string }{
		{"$id", "ID_CHANGED"}, {"title", "TITLE_CHANGED"}, {"description", "DESCRIPTION_CHANGED"},
		{"default", "DEFAULT_CHANGED"},
	} {
		x, y := o.annotation(a.name), n.annotation(a.name)
		if x != y && (x == nil || y == nil || !x.equal(y)) {
			c.add(r, "", a.kind, x, y)
		}
	}
}

func (f *form) annotation(name string) *value {
	if !f.whole || f.shape == shapeTrue || f.shape == shapeFalse {
		return nil
	}
	if name == "$id" {
		name = f.node.res.draft.idKeyword()
	}
	return f.node.val.member(name)
}

// combined compares two combinations.
func (c *comparer) combined(r *result, o, n *form) {
	if o.by != n.by {
		if n.by != anyOf && (o.size() != 1 || n.size() != 1 && n.by != oneOf) && (n.size() != 1 || o.by != allOf) {
			c.add(r, "", "COMBINED_TYPE_CHANGED", o.node.val, n.node.val)
			return
		}
		c.add(r, "", "COMBINED_TYPE_EXTENDED", o.node.val, n.node.val)
	}
	from, to := c.forms.branches(o), c.forms.branches(n)
	switch {
	case len(from) < len(to) && n.by == allOf:
		c.add(r, "", "PRODUCT_TYPE_EXTENDED", o.node.val, n.node.val)
	case len(from) < len(to):
		c.add(r, "", "SUM_TYPE_EXTENDED", o.node.val, n.node.val)
	case len(from) > len(to) && o.by == allOf:
		c.add(r, "", "PRODUCT_TYPE_NARROWED", o.node.val, n.node.val)
	case len(from) > len(to):
		c.add(r, "", "SUM_TYPE_NARROWED", o.node.val, n.node.val)
	}
	m := matching{comparer: c, from: from, to: to, partner: make([]int, len(to)), tried: make([]int, len(to))}
	matched := m.largest()
	partners := make([]*form, len(from))
	for j, i := range m.partner {
		if i > 0 {
			partners[i-1] = to[j]
		}
	}
	for i, t := range partners {
		if t != nil {
			c.nest(r, o.by.String()+"/"+itoa(i), c.compare(from[i], t))
		}
	}
	if matched < min(len(from), len(to)) {
		c.add(r, "", "COMBINED_TYPE_SUBSCHEMAS_CHANGED", o.node.val, n.node.val)
	}
	if r.loose {
		c.warnOneOf(r, n)
	}
	if n.by == anyOf && len(to) == 0 {
		c.warn(r, "", "the new schema has no alternatives, so nothing fits it")
	}
}

func (c *comparer) warnOneOf(r *result, n *form) {
	if n.by == oneOf && n.size() > 1 {
		c.warn(r, "", "whether a value fits more than one alternative of the new oneOf, and is then refused, is not compared")
	}
}

// not compares what must not match, the other way round.
func (c *comparer) not(r *result, o, n *node) {
	sub := c.nodes(n.not, o.not)
	switch {
	case len(sub.items) == 0 && !sub.loose: // the same
	case sub.bad:
		c.add(r, "not", "NOT_TYPE_EXTENDED", o.not.val, n.not.val)
	default:
		c.add(r, "not", "NOT_TYPE_NARROWED", o.not.val, n.not.val)
		if c.warns(sub, map[*result]bool{}) {
			c.warn(r, "not", "what must not match holds keywords that are not compared")
		}
	}
}

// warns says whether there are warnings in a result.
func (c *comparer) warns(r *result, seen map[*result]bool) bool {
	if seen[r] || !c.spend(1+len(r.items)) {
		return false
	}
	seen[r] = true
	return slices.ContainsFunc(r.items, func(i item) bool { return i.warn != "" || i.sub != nil && c.warns(i.sub, seen) })
}

// matching pairs branches of two combinations one to one, so that as many as possible are paired and each pair is
// compatible. Branches that are written alike are tried first, then those in the same place.
type matching struct {
	*comparer
	from, to []*form
	partner  []int // of each branch of to: the place in from, plus one
	tried    []int // of each branch of to: the round in which it was last tried
	round    int
}

func (m *matching) largest() int {
	alike := map[uint64][]int{}
	for j, t := range m.to {
		h := m.forms.sketch(t)
		alike[h] = append(alike[h], j)
	}
	matched := 0
	for i, f := range m.from {
		first := i
		for _, j := range alike[m.forms.sketch(f)] {
			if m.partner[j] == 0 && m.to[j].shape == f.shape && m.to[j].node.val.equal(f.node.val) {
				first = j
				break
			}
		}
		m.round++
		if m.augment(i, first) {
			matched++
		}
		if m.err != nil {
			break
		}
	}
	return matched
}

// augment finds a partner for one branch of from, moving others to new partners where it must.
func (m *matching) augment(i, first int) bool {
	for k := -1; k < len(m.to); k++ {
		j := k
		if k < 0 {
			j = first
		}
		if j >= len(m.to) || m.tried[j] == m.round || !m.spend(1) || m.compare(m.from[i], m.to[j]).bad {
			continue
		}
		m.tried[j] = m.round
		if m.partner[j] == 0 || m.augment(m.partner[j]-1, len(m.to)) {
			m.partner[j] = i + 1
			return true
		}
	}
	return false
}

// sketch is the same for forms that are written alike.
func (fs *forms) sketch(f *form) uint64 { return fs.hash(f.node.val) + uint64(f.shape) }
