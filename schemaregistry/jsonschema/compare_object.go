package jsonschema

import "slices"

func (n *node) objectWords() *objectWords {
	if n.obj == nil {
		return &objectWords{}
	}
	return n.obj
}

func (c *comparer) objects(r *result, o, n *node) {
	x, y := o.objectWords(), n.objectWords()
	if !c.spend(len(x.props) + len(y.props) + len(y.required)) {
		return
	}
	c.required(r, o, n)
	c.properties(r, o, n)
	c.dependencies(r, x, y)
	c.additional(r, additionalWords{
		path: "additionalProperties", kind: "ADDITIONAL_PROPERTIES", o: x.additional, n: y.additional,
	})
	c.unevaluated(r, additionalWords{
		path: "unevaluatedProperties", kind: "UNEVALUATED_PROPERTIES", o: x.unevaluated, n: y.unevaluated,
	})
	c.counts(r, keyword{"maxProperties", "MAX_PROPERTIES", o, n}, x.maxProperties, y.maxProperties)
	c.counts(r, keyword{"minProperties", "MIN_PROPERTIES", o, n}, x.minProperties, y.minProperties)
	c.warnChanged(r, o, n, "propertyNames", "patternProperties")
	if !c.unchanged(o, n, "patternProperties") && n.val.member("patternProperties") == nil {
		c.warn(r, "patternProperties", "the keyword patternProperties is not compared")
	}
	if len(y.patterns) > 0 && !samePropertyNames(x, y) {
		c.warn(r, "patternProperties", "that patterns also hold for properties that are added or removed is not compared")
	}
	c.warnUnevaluated(r, n, "unevaluatedProperties", y.unevaluated)
	if y.unevaluated != nil && (x.additional == nil) != (y.additional == nil) {
		c.warn(r, "unevaluatedProperties", "what additionalProperties leave to unevaluatedProperties is not compared")
	}
}

// samePropertyNames says whether both declare the same properties.
func samePropertyNames(x, y *objectWords) bool {
	return len(x.props) == len(y.props) &&
		!slices.ContainsFunc(x.props, func(p property) bool { return y.prop(p.name) == nil })
}

// warnUnevaluated warns where other parts of the new schema decide what is left to unevaluated keywords.
func (c *comparer) warnUnevaluated(r *result, n *node, name string, unevaluated *node) {
	if unevaluated == nil || unevaluated.always == alwaysTrue {
		return
	}
	if n.ref != nil || n.dynamic != nil || n.cond != nil || n.combined[allOf] != nil || n.combined[anyOf] != nil ||
		n.combined[oneOf] != nil || n.not != nil || n.obj != nil && len(n.obj.needs) > 0 {
		c.warn(r, name, "what the schema's other parts leave to "+name+" is not compared")
	}
}

// required compares which properties must be there, of those that both sides declare.
func (c *comparer) required(r *result, o, n *node) {
	x, y := o.objectWords(), n.objectWords()
	had, has := nameSet(x.required), nameSet(y.required)
	for _, p := range x.props {
		to := y.prop(p.name)
		if to == nil || had[p.name] == has[p.name] {
			continue
		}
		kind := "REQUIRED_ATTRIBUTE_REMOVED"
		if has[p.name] {
			kind = "REQUIRED_ATTRIBUTE_ADDED"
			if to.hasDefault() {
				kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
			}
		}
		c.add(r, "required/"+p.name, kind, o.val.member("required"), n.val.member("required"))
	}
	for _, name := range x.required {
		r.loose = r.loose || !has[name]
	}
	for _, name := range y.required {
		if !had[name] && y.prop(name) == nil {
			c.warn(r, "required/"+name, "that a property must be there is only compared where it is declared")
		}
	}
}

func nameSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

func (n *node) hasDefault() bool { return n.val.member("default") != nil }

func (c *comparer) properties(r *result, o, n *node) {
	x, y := o.objectWords(), n.objectWords()
	required := nameSet(y.required)
	for _, p := range x.props {
		to := y.prop(p.name)
		if to == nil {
			c.removed(r, "properties/"+p.name, p, y)
		} else if sub := c.nodes(p.schema, to); len(sub.items) > 0 || sub.loose {
			c.nest(r, "properties/"+p.name, sub)
		}
	}
	for _, p := range y.props {
		if x.prop(p.name) == nil {
			c.added(r, "properties/"+p.name, p, contentModel{x, required[p.name]})
		}
	}
}

// contentModel is the side of an object that lacks a property, and whether the other side demands it.
type contentModel struct {
	*objectWords
	required bool
}

// open says whether an object admits any member that it does not declare.
func (o *objectWords) open() bool {
	return (o.additional == nil || o.additional.always == alwaysTrue) && len(o.patterns) == 0 &&
		(o.unevaluated == nil || admitsAll(o.unevaluated))
}

// partial is the schema that an object which is neither open nor closed has for a member it does not declare.
func (c *comparer) partial(o *objectWords, name string) *node {
	for _, p := range o.patterns {
		if hit, err := p.pattern.match(name, &c.steps); hit && err == nil {
			return p.schema
		}
	}
	switch {
	case o.additional != nil && o.additional.always == depends:
		return o.additional
	case o.additional != nil && o.additional.always == alwaysFalse:
		return nil
	case o.unevaluated != nil && o.unevaluated.always != alwaysFalse && !admitsAll(o.unevaluated):
		return o.unevaluated
	}
	return nil
}

// admitsAll says whether a schema is true or has no keyword that counts.
func admitsAll(n *node) bool {
	return n.always == alwaysTrue || n.always == depends && len(partsOf(n)) == 0
}

// removed is about a property that only the old schema declares: the new one's model decides.
func (c *comparer) removed(r *result, path string, p property, y *objectWords) {
	kind := ""
	partial := c.partial(y, p.name)
	switch {
	case y.open():
		kind = "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL"
	case partial != nil:
		sub := c.nodes(p.schema, partial)
		c.nest(r, path, sub)
		kind = "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
		if sub.bad {
			kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
		}
	case p.schema.always == alwaysFalse:
		kind = "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL"
	default:
		kind = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
	}
	c.add(r, path, kind, p.schema.val, nil)
}

// added is about a property that only the new schema declares: the old one's model decides.
func (c *comparer) added(r *result, path string, p property, old contentModel) {
	if old.open() {
		kind := "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
		switch {
		case admitsAll(p.schema):
			kind = "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"
			if old.required {
				c.warn(r, path, "that a property of any value must be there is not compared")
			}
		case old.required && p.schema.hasDefault():
			kind = "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL"
		case old.required:
			kind = "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
		}
		c.add(r, path, kind, nil, p.schema.val)
		return
	}
	if partial := c.partial(old.objectWords, p.name); partial != nil {
		sub := c.nodes(partial, p.schema)
		c.nest(r, path, sub)
		kind := "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
		if sub.bad {
			kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
		}
		c.add(r, path, kind, partial.val, p.schema.val)
	} else if len(old.patterns) > 0 && (old.additional == nil || old.additional.always == alwaysTrue) {
		c.warn(r, path, "that the old schema, which has patterns, admits any value here is not compared")
	}
	kind := "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
	switch {
	case old.required && p.schema.hasDefault():
		kind = "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL"
	case old.required:
		kind = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
	}
	c.add(r, path, kind, nil, p.schema.val)
}

// dependencies compares what properties need: first those that need other properties, then those that need a schema.
func (c *comparer) dependencies(r *result, x, y *objectWords) {
	c.spend(len(x.needs) + len(y.needs))
	had, has := x.needsOf(false), y.needsOf(false)
	for _, name := range needNames(x, y, false) {
		o, n := had[name], has[name]
		path := "dependencies/" + name
		switch {
		case n == nil:
			c.add(r, path, "DEPENDENCY_ARRAY_REMOVED", nil, nil)
		case o == nil:
			c.add(r, path, "DEPENDENCY_ARRAY_ADDED", nil, nil)
		default:
			more, less := containsAll(n.names, o.names), containsAll(o.names, n.names)
			switch {
			case more && less:
			case more:
				c.add(r, path, "DEPENDENCY_ARRAY_EXTENDED", nil, nil)
			case less:
				c.add(r, path, "DEPENDENCY_ARRAY_NARROWED", nil, nil)
			default:
				c.add(r, path, "DEPENDENCY_ARRAY_CHANGED", nil, nil)
			}
		}
	}
	had, has = x.needsOf(true), y.needsOf(true)
	for _, name := range needNames(x, y, true) {
		o, n := had[name], has[name]
		path := "dependencies/" + name
		switch {
		case n == nil:
			c.add(r, path, "DEPENDENCY_SCHEMA_REMOVED", o.schema.val, nil)
		case o == nil:
			c.add(r, path, "DEPENDENCY_SCHEMA_ADDED", nil, n.schema.val)
		default:
			c.nest(r, path, c.nodes(o.schema, n.schema))
		}
	}
}

// needNames lists the names of both sides' dependencies of one kind, each once.
func needNames(x, y *objectWords, withSchema bool) []string {
	var names []string
	seen := map[string]bool{}
	for _, needs := range [][]dependency{x.needs, y.needs} {
		for _, d := range needs {
			if (d.schema != nil) == withSchema && !seen[d.name] {
				seen[d.name] = true
				names = append(names, d.name)
			}
		}
	}
	return names
}

func containsAll(all, some []string) bool {
	set := nameSet(all)
	return !slices.ContainsFunc(some, func(s string) bool { return !set[s] })
}

// additionalWords are the two sides of a keyword that rules over what others do not name.
type additionalWords struct {
	path, kind string
	o, n       *node
}

// additional compares additionalProperties or additionalItems, where true is the same as nothing.
func (c *comparer) additional(r *result, w additionalWords) {
	permits := func(n *node) bool { return n == nil || n.always != alwaysFalse }
	restricts := func(n *node) bool { return n != nil && n.always == depends }
	switch o, n := w.o, w.n; {
	case permits(o) && !permits(n):
		c.add(r, w.path, w.kind+"_REMOVED", val(o), val(n))
	case permits(n) && !permits(o):
		c.add(r, w.path, w.kind+"_ADDED", val(o), val(n))
	case restricts(n) && !restricts(o):
		c.add(r, w.path, w.kind+"_NARROWED", val(o), val(n))
	case restricts(o) && !restricts(n):
		c.add(r, w.path, w.kind+"_EXTENDED", val(o), val(n))
	case restricts(o):
		c.nest(r, w.path, c.nodes(o, n))
	}
}

// unevaluated compares unevaluatedProperties or unevaluatedItems.
func (c *comparer) unevaluated(r *result, w additionalWords) {
	isFalse := func(n *node) bool { return n != nil && n.always == alwaysFalse }
	isOpen := func(n *node) bool { return n == nil || admitsAll(n) }
	switch o, n := w.o, w.n; {
	case o == nil && n == nil:
	case isFalse(n) && !isFalse(o):
		c.add(r, w.path, w.kind+"_REMOVED", val(o), val(n))
	case isFalse(o) && !isFalse(n):
		c.add(r, w.path, w.kind+"_ADDED", val(o), val(n))
	case o == nil || n != nil && isOpen(o) && !isOpen(n):
		c.add(r, w.path, w.kind+"_NARROWED", val(o), val(n))
	case n == nil || isOpen(n) && !isOpen(o):
		c.add(r, w.path, w.kind+"_EXTENDED", val(o), val(n))
	default:
		c.nest(r, w.path, c.nodes(o, n))
	}
}

func val(n *node) *value {
	if n == nil {
		return nil
	}
	return n.val
}
