package jsonschema

import (
	"cmp"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// keyword is one keyword of two schemas.
type keyword struct {
	name string // in the schema
	kind string // what its kinds begin with
	o, n *node
}

// changed notes how a limit changed. order is how the old one compares to the new one, where both are there.
func (c *comparer) changed(r *result, k keyword, hadOld, hasNew bool, order int) {
	kind := ""
	switch {
	case !hadOld && !hasNew, hadOld && hasNew && order == 0:
		return
	case !hadOld:
		kind = "_ADDED"
	case !hasNew:
		kind = "_REMOVED"
	case order < 0:
		kind = "_INCREASED"
	default:
		kind = "_DECREASED"
	}
	c.add(r, k.name, k.kind+kind, k.o.val.member(k.name), k.n.val.member(k.name))
}

func (c *comparer) counts(r *result, k keyword, o, n *int) {
	order := 0
	if o != nil && n != nil {
		order = cmp.Compare(*o, *n)
	}
	c.changed(r, k, o != nil, n != nil, order)
}

func (c *comparer) limits(r *result, k keyword, o, n *limit) {
	order := 0
	if o != nil && n != nil {
		order = o.compare(n.decimal)
	}
	c.changed(r, k, o != nil, n != nil, order)
}

func (c *comparer) strings(r *result, o, n *node) {
	x, y := o.str, n.str
	if x == nil {
		x = &stringWords{}
	}
	if y == nil {
		y = &stringWords{}
	}
	c.counts(r, keyword{"maxLength", "MAX_LENGTH", o, n}, x.maxLength, y.maxLength)
	c.counts(r, keyword{"minLength", "MIN_LENGTH", o, n}, x.minLength, y.minLength)
	from, to := o.val.member("pattern"), n.val.member("pattern")
	switch {
	case x.pattern == nil && y.pattern == nil:
	case x.pattern == nil:
		c.add(r, "pattern", "PATTERN_ADDED", nil, to)
	case y.pattern == nil:
		c.add(r, "pattern", "PATTERN_REMOVED", from, nil)
	case x.pattern.re.source != y.pattern.re.source:
		c.add(r, "pattern", "PATTERN_CHANGED", from, to)
		c.warn(r, "pattern", "another pattern is taken to be narrower, even if it admits more")
	}
	c.warnChanged(r, o, n, "format", "contentEncoding", "contentMediaType", "contentSchema")
}

func (c *comparer) numbers(r *result, of, nf *form) {
	o, n := of.node, nf.node
	x, y := o.num, n.num
	if x == nil {
		x = &numberWords{}
	}
	if y == nil {
		y = &numberWords{}
	}
	c.limits(r, keyword{"maximum", "MAXIMUM", o, n}, x.maximum, y.maximum)
	c.limits(r, keyword{"minimum", "MINIMUM", o, n}, x.minimum, y.minimum)
	c.limits(r, keyword{"exclusiveMaximum", "EXCLUSIVE_MAXIMUM", o, n}, x.exclusiveMaximum, y.exclusiveMaximum)
	c.limits(r, keyword{"exclusiveMinimum", "EXCLUSIVE_MINIMUM", o, n}, x.exclusiveMinimum, y.exclusiveMinimum)
	r.loose = r.loose || x.exclusiveLow || x.exclusiveHigh
	if y.exclusiveLow && !x.exclusiveLow || y.exclusiveHigh && !x.exclusiveHigh {
		c.warn(r, "", "whether draft 4's limits are exclusive is not compared")
	}
	c.multiples(r, o, n, [2]*limit{x.multipleOf, y.multipleOf})
	switch {
	case of.integer && !nf.integer:
		c.add(r, "", "TYPE_EXTENDED", o.val.member("type"), n.val.member("type"))
	case nf.integer && !of.integer:
		c.add(r, "", "TYPE_NARROWED", o.val.member("type"), n.val.member("type"))
	}
}

func (c *comparer) multiples(r *result, o, n *node, of [2]*limit) {
	x, y := of[0], of[1]
	kind := ""
	switch {
	case x == nil && y == nil, x != nil && y != nil && x.decimal == y.decimal:
		return
	case x == nil:
		kind = "MULTIPLE_OF_ADDED"
	case y == nil:
		kind = "MULTIPLE_OF_REMOVED"
	case y.isMultipleOf(x.decimal) && x.sign() != 0:
		kind = "MULTIPLE_OF_EXPANDED"
	case x.isMultipleOf(y.decimal) && y.sign() != 0:
		kind = "MULTIPLE_OF_REDUCED"
	default:
		kind = "MULTIPLE_OF_CHANGED"
	}
	c.add(r, "multipleOf", kind, o.val.member("multipleOf"), n.val.member("multipleOf"))
}

func (c *comparer) enums(r *result, o, n *node) {
	if !c.spend((len(o.enum.source)+len(n.enum.source))/4) || o.enum.same(n.enum) {
		return
	}
	wider, narrower := n.enum.hasAll(o.enum), o.enum.hasAll(n.enum)
	kind := ""
	switch {
	case wider && narrower:
		return
	case wider:
		kind = "ENUM_ARRAY_EXTENDED"
	case narrower:
		kind = "ENUM_ARRAY_NARROWED"
	default:
		kind = "ENUM_ARRAY_CHANGED"
	}
	c.add(r, "enum", kind, o.val.member("enum"), n.val.member("enum"))
}

// conditions are not compared: two of them are taken to be alike.
func (c *comparer) conditions(r *result, o, n *node) {
	c.warnChanged(r, o, n, "if", "then", "else")
}

// warnChanged warns of keywords that are not compared, where they are new or another.
func (c *comparer) warnChanged(r *result, o, n *node, names ...string) {
	for _, name := range names {
		switch {
		case c.unchanged(o, n, name):
		case n.val.member(name) == nil:
			r.loose = true
		default:
			c.warn(r, name, "the keyword "+name+" is not compared")
		}
	}
}

// unchanged says whether a member is there in both schemas and means the same, or in neither.
func (c *comparer) unchanged(o, n *node, name string) bool {
	x, y := o.val.member(name), n.val.member(name)
	if x == nil || y == nil {
		return x == y
	}
	return x.equal(y) && (c.alike || !c.refers(x))
}

// refers says whether there are references in a value.
func (c *comparer) refers(v *value) bool {
	for i := range v.items() {
		if v.kind == object && strings.HasSuffix(v.sub.names[i], "Ref") || v.kind == object && v.sub.names[i] == "$ref" {
			return true
		}
		if !c.spend(1) || c.refers(&v.sub.items[i]) {
			return true
		}
	}
	return false
}

// demandsType warns where the new schema alone says which type it wants: the keywords are compared, not that.
func (c *comparer) demandsType(r *result, o, n *form) {
	r.loose = r.loose || o.typed && !n.typed
	if n.typed && !o.typed {
		c.warn(r, "type", "that the new schema wants the type, and not only limits values of it, is not compared")
	}
	if o.node.res.draft != n.node.res.draft {
		c.warn(r, "", "the schemas are of different drafts; what one of them lacks is not compared")
	}
}
