package jsonschema

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"
	"unicode/utf8"

	formats "github.com/santhosh-tekuri/jsonschema/v5"

	"millrace/schemaregistry/schema"
)

// checker checks one value. Its answer is yes or no; only when it is no is the value gone through again for the reason,
// so that alternatives which do not fit cost no texts.
type checker struct {
	steps   int
	depth   int
	why     bool // find the reason
	path    []step
	scope   []*resource // the resources that references led through, the outermost first
	failure *failure
	stopped string // a limit was hit: nothing counts any more
	seed    maphash.Seed
}

// step is one step into a value: the name of a member or the place of an element.
type step struct {
	name string
	i    int
}

// failure is why a value does not fit, and how deep within it.
type failure struct {
	keyword, reason string
	path            []step
}

// maxCheckDepth bounds schemas that apply to each other without going into the value.
const maxCheckDepth = 2000

// checkValue is nil if the value fits.
func checkValue(root *node, v *value, steps int) error {
	c := checker{steps: steps, seed: maphash.MakeSeed()}
	if c.check(root, v, nil) && c.stopped == "" {
		return nil
	}
	if c.stopped == "" {
		c = checker{steps: steps, why: true, seed: c.seed}
		c.check(root, v, nil)
	}
	if c.stopped != "" || c.failure == nil {
		return schema.Mismatch("the value cannot be checked: %s", c.stopped)
	}
	return schema.Mismatch("%s: %s: %s", pointer(c.failure.path), c.failure.keyword, c.failure.reason)
}

func pointer(path []step) string {
	var b strings.Builder
	b.WriteByte('#')
	for _, s := range path {
		b.WriteByte('/')
		if s.i >= 0 {
			b.WriteString(itoa(s.i))
		} else {
			b.WriteString(strings.ReplaceAll(strings.ReplaceAll(s.name, "~", "~0"), "/", "~1"))
		}
	}
	return b.String()
}

// no notes a reason and is false.
func (c *checker) no(keyword, format string, args ...any) bool {
	if c.why {
		c.failure = &failure{keyword, fmt.Sprintf(format, args...), append([]step(nil), c.path...)}
	}
	return false
}

// spend takes steps; false says that there are none left.
func (c *checker) spend(n int) bool {
	c.steps -= n
	if c.steps < 0 && c.stopped == "" {
		c.stopped = "it takes too many steps"
	}
	return c.stopped == ""
}

// weigh takes steps for all of a value.
func (c *checker) weigh(v *value) bool {
	if !c.spend(1 + len(v.text)/64) {
		return false
	}
	for i := range v.items() {
		if !c.weigh(&v.sub.items[i]) {
			return false
		}
	}
	return true
}

// evaluated is what of an object or array some keyword has looked at.
type evaluated struct {
	all   bool
	names map[string]bool
	first int // elements from the first on
	items map[int]bool
}

func (e *evaluated) name(n string) {
	if e != nil {
		if e.names == nil {
			e.names = map[string]bool{}
		}
		e.names[n] = true
	}
}

func (e *evaluated) item(i int) {
	if e != nil {
		if e.items == nil {
			e.items = map[int]bool{}
		}
		e.items[i] = true
	}
}

func (e *evaluated) merge(o *evaluated) {
	e.all = e.all || o.all
	e.first = max(e.first, o.first)
	for n := range o.names {
		e.name(n)
	}
	for i := range o.items {
		e.item(i)
	}
}

// check says whether a value fits a schema. seen, unless nil, learns what was looked at.
func (c *checker) check(n *node, v *value, seen *evaluated) bool {
	if !c.spend(1) {
		return false
	}
	switch n.always {
	case alwaysTrue:
		return true
	case alwaysFalse:
		return c.no("false", "nothing may be here")
	}
	if c.depth >= maxCheckDepth {
		c.stopped = fmt.Sprintf("its schemas lead to each other more than %d times", maxCheckDepth)
		return false
	}
	c.depth++
	scoped := len(c.scope) == 0 || c.scope[len(c.scope)-1] != n.res
	if scoped {
		c.scope = append(c.scope, n.res)
	}
	ok := c.keywords(n, v, seen)
	if scoped {
		c.scope = c.scope[:len(c.scope)-1]
	}
	c.depth--
	return ok
}

func (c *checker) keywords(n *node, v *value, seen *evaluated) bool {
	if n.ref != nil && n.res.draft < draft2019 {
		return c.check(n.ref, v, seen)
	}
	local := seen
	if unevaluatedOf(n, v) != nil {
		local = &evaluated{}
	}
	if !c.values(n, v) || !c.below(n, v, local) || !c.inPlace(n, v, local) {
		return false
	}
	if u := unevaluatedOf(n, v); u != nil {
		if !c.unevaluated(u, v, local) {
			return false
		}
		local.all = true
		if seen != nil {
			seen.merge(local)
		}
	}
	return c.stopped == ""
}

func unevaluatedOf(n *node, v *value) *node {
	switch {
	case v.kind == object && n.obj != nil:
		return n.obj.unevaluated
	case v.kind == array && n.arr != nil:
		return n.arr.unevaluated
	}
	return nil
}

// values checks the keywords about the value as such.
func (c *checker) values(n *node, v *value) bool {
	if n.types != nil && !c.types(n, v) {
		return false
	}
	if n.con != nil && (!c.weigh(v) || !n.con.equal(v)) {
		return c.no("const", "%s is not the value that is wanted", show(v))
	}
	if n.enum != nil && (!c.weigh(v) || !n.enum.has(v)) {
		return c.no("enum", "%s is none of the values that are listed", show(v))
	}
	switch {
	case v.kind == text && n.str != nil:
		return c.text(n, v)
	case v.kind == number && n.num != nil:
		return c.number(n.num, v)
	}
	return true
}

func (c *checker) types(n *node, v *value) bool {
	for _, t := range n.types {
		switch {
		case t == v.kind.String():
			return true
		case t == "integer" && v.kind == number && isInteger(v.text, n.res.draft):
			return true
		}
	}
	return c.no("type", "%s is wanted, not %s", strings.Join(n.types, " or "), show(v))
}

// isInteger says whether a number is whole. In draft 4 that is a matter of spelling.
func isInteger(s string, d draft) bool {
	return !strings.ContainsAny(s, ".eE") || d > draft4 && readDecimal(s).isInteger()
}

// chars is the text of a string; halves of surrogate pairs are replaced.
func (v *value) chars() string {
	if !v.raw {
		return v.text
	}
	var s string
	if json.Unmarshal([]byte(`"`+v.text+`"`), &s) != nil {
		return v.text
	}
	return s
}

func (c *checker) text(n *node, v *value) bool {
	w, s := n.str, v.chars()
	if w.minLength != nil || w.maxLength != nil {
		c.spend(len(s) / 256)
		size := utf8.RuneCountInString(s)
		if w.minLength != nil && size < *w.minLength {
			return c.no("minLength", "%s has %d characters, fewer than %d", show(v), size, *w.minLength)
		}
		if w.maxLength != nil && size > *w.maxLength {
			return c.no("maxLength", "%s has %d characters, more than %d", show(v), size, *w.maxLength)
		}
	}
	if w.pattern != nil && !c.matches(w.pattern, s) {
		return c.no("pattern", "%s does not match %q", show(v), w.pattern.re.source)
	}
	if w.format != "" && n.res.draft < draft2019 && !c.format(w.format, s) {
		return c.no("format", "%s is no %s", show(v), w.format)
	}
	return true
}

// matches is false too when the steps do not suffice; then nothing else counts.
func (c *checker) matches(p *pattern, s string) bool {
	hit, err := p.match(s, &c.steps)
	if err != nil && c.stopped == "" {
		c.stopped = fmt.Sprintf("the regular expression %q: %v", p.re.source, err)
	}
	return hit
}

// format checks what is known about a format; others admit anything.
func (c *checker) format(name, s string) bool {
	if name == "regex" {
		_, err := parseRegex(s)
		return err == nil
	}
	f := formats.Formats[name]
	return f == nil || !c.spend(len(s)/16) || f(s)
}

func (c *checker) number(w *numberWords, v *value) bool {
	c.spend(len(v.text) / 64)
	d := readDecimal(v.text)
	switch {
	case w.minimum != nil && (d.compare(w.minimum.decimal) < 0 || w.exclusiveLow && d == w.minimum.decimal):
		return c.no("minimum", "%s is below %s", show(v), w.minimum.text)
	case w.maximum != nil && (d.compare(w.maximum.decimal) > 0 || w.exclusiveHigh && d == w.maximum.decimal):
		return c.no("maximum", "%s is above %s", show(v), w.maximum.text)
	case w.exclusiveMinimum != nil && d.compare(w.exclusiveMinimum.decimal) <= 0:
		return c.no("exclusiveMinimum", "%s is not above %s", show(v), w.exclusiveMinimum.text)
	case w.exclusiveMaximum != nil && d.compare(w.exclusiveMaximum.decimal) >= 0:
		return c.no("exclusiveMaximum", "%s is not below %s", show(v), w.exclusiveMaximum.text)
	case w.multipleOf != nil && !c.isMultiple(d, w.multipleOf.decimal):
		return c.no("multipleOf", "%s is no multiple of %s", show(v), w.multipleOf.text)
	}
	return true
}

func (c *checker) isMultiple(d, m decimal) bool {
	return c.spend(len(d.digits)*len(m.digits)/1024) && d.isMultipleOf(m)
}

// below checks the keywords about what is in an array or object.
func (c *checker) below(n *node, v *value, seen *evaluated) bool {
	switch {
	case v.kind == object && n.obj != nil:
		return c.object(n.obj, v, seen)
	case v.kind == array && n.arr != nil:
		return c.array(n, v, seen)
	}
	return true
}

func (c *checker) member(n *node, v *value, i int) bool {
	c.path = append(c.path, step{name: v.sub.names[i], i: -1})
	ok := c.check(n, &v.sub.items[i], nil)
	c.path = c.path[:len(c.path)-1]
	return ok
}

func (c *checker) item(n *node, v *value, i int) bool {
	c.path = append(c.path, step{i: i})
	ok := c.check(n, &v.sub.items[i], nil)
	c.path = c.path[:len(c.path)-1]
	return ok
}

func (c *checker) object(o *objectWords, v *value, seen *evaluated) bool {
	size := len(v.names())
	switch {
	case !c.spend(len(o.required)):
		return false
	case o.minProperties != nil && size < *o.minProperties:
		return c.no("minProperties", "there are %d members, fewer than %d", size, *o.minProperties)
	case o.maxProperties != nil && size > *o.maxProperties:
		return c.no("maxProperties", "there are %d members, more than %d", size, *o.maxProperties)
	}
	for _, name := range o.required {
		if v.member(name) == nil {
			return c.no("required", "%q is missing", name)
		}
	}
	if len(o.props) > 0 || len(o.patterns) > 0 || o.additional != nil || o.names != nil {
		for i, name := range v.names() {
			if !c.property(o, v, i, seen) {
				return false
			}
			if o.names != nil && !c.check(o.names, &value{kind: text, text: name}, nil) {
				return c.no("propertyNames", "%q is not a name that is admitted", name)
			}
		}
	}
	return c.needs(o, v, seen)
}

// property checks one member by all that is said about it.
func (c *checker) property(o *objectWords, v *value, i int, seen *evaluated) bool {
	name := v.sub.names[i]
	known := false
	if n := o.prop(name); n != nil {
		known = true
		if !c.member(n, v, i) {
			return false
		}
	}
	if !c.spend(1 + len(o.props)/64) {
		return false
	}
	for _, p := range o.patterns {
		if c.matches(p.pattern, name) {
			known = true
			if !c.member(p.schema, v, i) {
				return false
			}
		}
	}
	if !known && o.additional != nil {
		known = true
		if o.additional.always == alwaysFalse {
			return c.no("additionalProperties", "%q may not be here", name)
		}
		if !c.member(o.additional, v, i) {
			return false
		}
	}
	if known {
		seen.name(name)
	}
	return c.stopped == ""
}

func (c *checker) needs(o *objectWords, v *value, seen *evaluated) bool {
	for _, d := range o.needs {
		if !c.spend(1+len(d.names)) || v.member(d.name) == nil {
			continue
		}
		for _, name := range d.names {
			if v.member(name) == nil {
				return c.no("dependencies", "%q is missing, which %q needs", name, d.name)
			}
		}
		if d.schema != nil && !c.within(d.schema, v, seen) {
			return false
		}
	}
	return true
}

func (c *checker) array(n *node, v *value, seen *evaluated) bool {
	a, size := n.arr, len(v.items())
	switch {
	case a.minItems != nil && size < *a.minItems:
		return c.no("minItems", "there are %d elements, fewer than %d", size, *a.minItems)
	case a.maxItems != nil && size > *a.maxItems:
		return c.no("maxItems", "there are %d elements, more than %d", size, *a.maxItems)
	case a.unique && !c.unique(v):
		return false
	}
	for i := range v.items() {
		item := a.rest
		switch {
		case i < len(a.tuple):
			item = a.tuple[i]
		case a.all != nil:
			item = a.all
		}
		if item == nil {
			break
		}
		if !c.item(item, v, i) {
			return false
		}
		if seen != nil {
			seen.first = max(seen.first, i+1)
		}
	}
	return a.contains == nil || c.contains(n, v, seen)
}

func (c *checker) unique(v *value) bool {
	if !c.weigh(v) {
		return false
	}
	set := valueSet{source: v.items(), seed: c.seed}
	if set.fill(); len(set.values) < len(v.items()) {
		return c.no("uniqueItems", "an element is there more than once")
	}
	return true
}

func (c *checker) contains(n *node, v *value, seen *evaluated) bool {
	a := n.arr
	least := 1
	if a.minContains != nil {
		least = *a.minContains
	}
	hits := 0
	was := c.quiet()
	for i := range v.items() {
		if c.item(a.contains, v, i) {
			hits++
			if n.res.draft >= draft2020 {
				seen.item(i)
			}
		}
	}
	c.why = was
	switch {
	case hits < least:
		return c.no("contains", "%d elements are as one must be, fewer than %d", hits, least)
	case a.maxContains != nil && hits > *a.maxContains:
		return c.no("maxContains", "%d elements are of a kind of which there may be %d", hits, *a.maxContains)
	}
	return true
}

// quiet leaves out reasons until why is set to what it returns.
func (c *checker) quiet() bool {
	was := c.why
	c.why = false
	return was
}

// within checks another schema for the same value.
func (c *checker) within(n *node, v *value, seen *evaluated) bool {
	if seen == nil {
		return c.check(n, v, nil)
	}
	sub := &evaluated{}
	ok := c.check(n, v, sub)
	if ok && c.spend(len(sub.names)+len(sub.items)) {
		seen.merge(sub)
	}
	return ok
}

// inPlace checks the keywords that apply other schemas to the same value.
func (c *checker) inPlace(n *node, v *value, seen *evaluated) bool {
	if n.ref != nil && !c.within(n.ref, v, seen) {
		return false
	}
	if n.dynamic != nil && !c.within(c.redirect(n.dynamic), v, seen) {
		return false
	}
	for _, sub := range n.combined[allOf] {
		if !c.within(sub, v, seen) {
			return false
		}
	}
	if list := n.combined[anyOf]; list != nil && !c.anyOf(list, v, seen) {
		return false
	}
	if list := n.combined[oneOf]; list != nil && !c.oneOf(list, v, seen) {
		return false
	}
	if n.not != nil {
		was := c.quiet()
		hit := c.check(n.not, v, nil)
		if c.why = was; hit {
			return c.no("not", "%s is what it must not be", show(v))
		}
	}
	return n.cond == nil || c.condition(n.cond, v, seen)
}

// anyOf tries all alternatives where it matters what they look at.
func (c *checker) anyOf(list []*node, v *value, seen *evaluated) bool {
	hit := false
	var best *failure
	for _, sub := range list {
		c.failure = nil
		if c.within(sub, v, seen) {
			if hit = true; seen == nil {
				break
			}
		}
		best = deeper(best, c.failure)
	}
	return hit || c.none("anyOf", v, best)
}

// none notes that no alternative fits: by the reason deepest within the value, where there is one.
func (c *checker) none(keyword string, v *value, best *failure) bool {
	if best != nil && len(best.path) > len(c.path) {
		c.failure = best
		return false
	}
	return c.no(keyword, "%s fits none of the alternatives", show(v))
}

func deeper(a, b *failure) *failure {
	if a == nil || b != nil && len(b.path) > len(a.path) {
		return b
	}
	return a
}

func (c *checker) oneOf(list []*node, v *value, seen *evaluated) bool {
	hits := 0
	var best *failure
	for _, sub := range list {
		c.failure = nil
		if c.within(sub, v, seen) {
			if hits++; hits > 1 {
				return c.no("oneOf", "%s fits more than one of the alternatives", show(v))
			}
		}
		best = deeper(best, c.failure)
	}
	return hits == 1 || c.none("oneOf", v, best)
}

func (c *checker) condition(cond *condition, v *value, seen *evaluated) bool {
	was := c.quiet()
	hit := c.within(cond.test, v, seen)
	c.why = was
	next := cond.otherwise
	if hit {
		next = cond.then
	}
	return next == nil || c.within(next, v, seen)
}

// redirect finds what a dynamic reference leads to: the outermost schema on the way with the same anchor.
func (c *checker) redirect(d *dynamicRef) *node {
	if !d.bound {
		return d.to
	}
	for _, res := range c.scope {
		if n := d.from[res]; n != nil {
			return n
		}
	}
	return d.to
}

// unevaluated checks what no other keyword has looked at.
func (c *checker) unevaluated(n *node, v *value, seen *evaluated) bool {
	if seen.all {
		return true
	}
	for i := range v.items() {
		switch {
		case v.kind == object && !seen.names[v.sub.names[i]]:
			if !c.member(n, v, i) {
				return false
			}
		case v.kind == array && i >= seen.first && !seen.items[i]:
			if !c.item(n, v, i) {
				return false
			}
		}
	}
	return true
}
