package jsonschema

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"millrace/api/rawjson"
	"millrace/schemaregistry/schema"
)

// compiler turns values into nodes: the schema itself and all that it refers to, each once.
type compiler struct {
	lib      *library
	limits   Limits
	nodes    map[*value]*node
	pending  []pendingRef
	seed     maphash.Seed
	programs *atomic.Int64 // size of all programs of regular expressions
	at       string        // where the part that is being compiled begins
	path     *trail        // from there on
	err      error         // the first one; nothing is compiled after it
}

// trail is the way into a document, the last step first.
type trail struct {
	up   *trail
	name string
}

// pendingRef is a reference whose target is not compiled yet.
type pendingRef struct {
	text   string
	res    *resource
	where  func() string
	set    func(*node, target)
	inside *node
}

func newCompiler(lib *library, l Limits, seed maphash.Seed) *compiler {
	return &compiler{lib: lib, limits: l, nodes: map[*value]*node{}, seed: seed, programs: &atomic.Int64{}}
}

// fail keeps the first reason, with the place of the keyword.
func (c *compiler) fail(keyword, format string, args ...any) {
	if c.err == nil {
		c.err = schema.Invalid("%s: %s", c.where(keyword), fmt.Sprintf(format, args...))
	}
}

// where is the JSON pointer of a keyword of the schema at hand; "" means the schema itself.
func (c *compiler) where(keyword string) string {
	var b strings.Builder
	b.WriteString(c.at)
	var parts []string
	for p := c.path; p != nil; p = p.up {
		parts = append(parts, p.name)
	}
	slices.Reverse(parts)
	if keyword != "" {
		parts = append(parts, keyword)
	}
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(p, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// run compiles the schema and then, one after the other, what is referred to.
func (c *compiler) run() (*node, error) {
	c.at = "#"
	root := c.node(c.lib.root.root, c.lib.root)
	for len(c.pending) > 0 && c.err == nil {
		p := c.pending[len(c.pending)-1]
		c.pending = c.pending[:len(c.pending)-1]
		to, err := c.lib.find(p.res, p.text)
		if err != nil {
			return nil, schema.Invalid("%s: %w", p.where(), err)
		}
		c.at, c.path = to.at, nil
		if n := c.node(to.val, to.res); c.err == nil {
			p.set(n, to)
		} else if strings.HasPrefix(to.at, "#") && to.val.kind != object && to.val.kind != boolean {
			return nil, schema.Invalid("%s: %q leads to what is no schema", p.where(), p.text)
		}
	}
	return root, c.err
}

// in compiles a schema below the one at hand.
func (c *compiler) in(v *value, res *resource, path ...string) *node {
	up := c.path
	for _, name := range path {
		c.path = &trail{c.path, name}
	}
	n := c.node(v, res)
	c.path = up
	return n
}

func (c *compiler) node(v *value, res *resource) *node {
	if c.err != nil {
		return &node{val: v, res: res}
	}
	if part := res.doc.parts[v]; part != nil {
		res = part
	}
	if n := c.nodes[v]; n != nil {
		return n
	}
	n := &node{val: v, res: res}
	c.nodes[v] = n
	switch {
	case len(c.nodes) > c.limits.Nodes:
		c.err = schema.Invalid("there are more than %d schemas in it", c.limits.Nodes)
	case v.kind == boolean && (res.draft > draft4 || v == res.doc.root):
		n.always = alwaysTrue
		if v.text == "false" {
			n.always = alwaysFalse
		}
	case v.kind != object:
		c.fail("", "a schema is wanted here, not %s", excerpt(v))
	default:
		c.object(n)
	}
	return n
}

func (c *compiler) object(n *node) {
	if ref := n.val.member("$ref"); ref != nil {
		c.reference(n, "$ref", ref, func(to *node, _ target) { n.ref = to })
		if n.res.draft < draft2019 {
			return
		}
	}
	for i, name := range n.val.names() {
		if c.err != nil {
			return
		}
		c.keyword(n, name, &n.val.sub.items[i])
	}
	if n.arr != nil {
		c.finishArray(n)
	}
}

func (c *compiler) reference(n *node, keyword string, v *value, set func(*node, target)) {
	if v.kind != text {
		c.fail(keyword, "a reference is a string, not %s", excerpt(v))
		return
	}
	at, path := c.at, c.path
	where := func() string { return (&compiler{at: at, path: path}).where(keyword) }
	c.pending = append(c.pending, pendingRef{text: v.text, res: n.res, where: where, set: set, inside: n})
}

// keyword reads one member of a schema.
func (c *compiler) keyword(n *node, name string, v *value) {
	d := n.res.draft
	switch name {
	case "type":
		c.types(n, v)
	case "enum":
		if c.want(name, v, array) {
			n.enum = &valueSet{source: v.items(), seed: c.seed}
		}
	case "const":
		if d >= draft6 {
			n.con = v
		}
	case "allOf", "anyOf", "oneOf":
		k := criterion(slices.Index([]string{"allOf", "anyOf", "oneOf"}, name))
		n.combined[k] = c.list(n, name, v)
	case "not":
		n.not = c.in(v, n.res, name)
	case "if":
		if d >= draft7 {
			n.cond = c.condition(n, v)
		}
	case "title", "description", "$comment", "contentEncoding", "contentMediaType":
		c.want(name, v, text)
	case "$schema":
		c.want(name, v, text)
	case "id", "$id":
		if name == d.idKeyword() {
			c.identifier(name, v)
		}
	case "$anchor", "$dynamicAnchor":
		if d >= draft2019 {
			c.want(name, v, text)
		}
	case "$recursiveRef", "$dynamicRef":
		if name == "$recursiveRef" && d == draft2019 || name == "$dynamicRef" && d >= draft2020 {
			c.dynamicRef(n, name, v)
		}
	case "$defs", "definitions":
		if d >= draft2019 && c.want(name, v, object) {
			for i, def := range v.names() {
				c.in(&v.sub.items[i], n.res, name, def)
			}
		}
	default:
		if !c.stringKeyword(n, name, v) && !c.numberKeyword(n, name, v) && !c.arrayKeyword(n, name, v) {
			c.objectKeyword(n, name, v)
		}
	}
}

func (c *compiler) identifier(name string, v *value) {
	if c.want(name, v, text) {
		if _, err := c.lib.root.base.Parse(v.text); err != nil {
			c.fail(name, "%q is not a URI", v.text)
		}
	}
}

// dynamicRef reads a reference that schemas on the way to it may redirect.
func (c *compiler) dynamicRef(n *node, name string, v *value) {
	c.reference(n, name, v, func(to *node, t target) {
		r := &dynamicRef{keyword: name, to: to, bound: name == "$recursiveRef" && t.res.recursive}
		if _, fragment, ok := strings.Cut(v.text, "#"); name == "$dynamicRef" && ok && t.res.dynamic[fragment] == t.val {
			r.anchor, r.bound = fragment, true
		}
		n.dynamic = r
		if r.bound {
			r.from = c.anchored(r.anchor)
		}
	})
}

// anchored compiles whatever a dynamic reference can lead to.
func (c *compiler) anchored(anchor string) map[*resource]*node {
	from := map[*resource]*node{}
	for _, uri := range slices.Sorted(maps.Keys(c.lib.byURI)) {
		res := c.lib.byURI[uri]
		v := res.dynamic[anchor]
		if anchor == "" && res.recursive {
			v = res.root
		}
		if v != nil && from[res] == nil {
			c.at, c.path = uri+"#", nil
			from[res] = c.node(v, res)
		}
	}
	return from
}

func (c *compiler) condition(n *node, test *value) *condition {
	cond := &condition{test: c.in(test, n.res, "if")}
	if v := n.val.member("then"); v != nil {
		cond.then = c.in(v, n.res, "then")
	}
	if v := n.val.member("else"); v != nil {
		cond.otherwise = c.in(v, n.res, "else")
	}
	return cond
}

func (c *compiler) types(n *node, v *value) {
	list := []value{*v}
	if n.types = []string{}; v.kind == array {
		n.list, list = true, v.items()
	}
	for i := range list {
		t := &list[i]
		switch t.text {
		case "null", "boolean", "object", "array", "number", "string", "integer":
			if t.kind == text {
				if !slices.Contains(n.types, t.text) {
					n.types = append(n.types, t.text)
				}
				continue
			}
		}
		c.fail("type", "%s is not a type", excerpt(t))
	}
}

// list reads an array of schemas. It is never nil.
func (c *compiler) list(n *node, name string, v *value) []*node {
	nodes := make([]*node, 0, len(v.items()))
	if c.want(name, v, array) {
		for i := range v.items() {
			nodes = append(nodes, c.in(&v.sub.items[i], n.res, name, strconv.Itoa(i)))
		}
	}
	return nodes
}

// want checks a keyword's kind.
func (c *compiler) want(name string, v *value, k kind) bool {
	if v.kind == k {
		return true
	}
	article := "a "
	if k == array || k == object {
		article = "an "
	}
	c.fail(name, "%s%s is wanted, not %s", article, k, excerpt(v))
	return false
}

// count reads a whole number.
func (c *compiler) count(name string, v *value) *int {
	if v.kind == number {
		if n, ok := readDecimal(v.text).int(); ok {
			return &n
		}
	}
	c.fail(name, "a whole number is wanted, not %s", excerpt(v))
	return nil
}

func (c *compiler) flag(name string, v *value) bool {
	return c.want(name, v, boolean) && v.text == "true"
}

func (c *compiler) texts(name string, v *value) []string {
	if !c.want(name, v, array) {
		return nil
	}
	list := make([]string, 0, len(v.items()))
	for i := range v.items() {
		if e := &v.sub.items[i]; e.kind != text {
			c.fail(name, "its elements are strings, not %s", excerpt(e))
		} else {
			list = append(list, e.text)
		}
	}
	return list
}

func (c *compiler) pattern(name string, source string) *pattern {
	re, err := parseRegex(source)
	if err != nil {
		c.fail(name, "%q is not a regular expression: %v", source, err)
		return nil
	}
	return &pattern{re: re, size: c.programs}
}

// excerpt is the beginning of a value, for an error's text.
func excerpt(v *value) string {
	switch {
	case v.kind == array:
		return "an array"
	case v.kind == object:
		return "an object"
	}
	return rawjson.Excerpt(v.append(nil, false))
}
