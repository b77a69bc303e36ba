package jsonschema

// maxMultipleDigits bounds what multipleOf may cost.
const maxMultipleDigits = 1000

func (c *compiler) stringKeyword(n *node, name string, v *value) bool {
	switch name {
	case "minLength", "maxLength", "pattern", "format":
	default:
		return false
	}
	if n.str == nil {
		n.str = &stringWords{}
	}
	switch name {
	case "minLength":
		n.str.minLength = c.count(name, v)
	case "maxLength":
		n.str.maxLength = c.count(name, v)
	case "pattern":
		if c.want(name, v, text) {
			n.str.pattern = c.pattern(name, v.text)
		}
	case "format":
		if c.want(name, v, text) {
			n.str.format = v.text
		}
	}
	return true
}

func (c *compiler) numberKeyword(n *node, name string, v *value) bool {
	switch name {
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
	default:
		return false
	}
	if n.num == nil {
		n.num = &numberWords{}
	}
	if n.res.draft == draft4 && name[0] == 'e' {
		exclusive := c.flag(name, v)
		if name == "exclusiveMinimum" {
			n.num.exclusiveLow = exclusive
		} else {
			n.num.exclusiveHigh = exclusive
		}
		return true
	}
	if !c.want(name, v, number) {
		return true
	}
	l := &limit{decimal: readDecimal(v.text), text: v.text}
	switch name {
	case "minimum":
		n.num.minimum = l
	case "maximum":
		n.num.maximum = l
	case "exclusiveMinimum":
		n.num.exclusiveMinimum = l
	case "exclusiveMaximum":
		n.num.exclusiveMaximum = l
	default:
		if len(l.digits) > maxMultipleDigits {
			c.fail(name, "the number has more than %d digits", maxMultipleDigits)
		}
		n.num.multipleOf = l
	}
	return true
}

func (c *compiler) arrayKeyword(n *node, name string, v *value) bool {
	d := n.res.draft
	switch name {
	case "items", "additionalItems", "minItems", "maxItems", "uniqueItems":
	case "contains":
		if d < draft6 {
			return true
		}
	case "prefixItems", "minContains", "maxContains", "unevaluatedItems":
		if d < draft2019 || d < draft2020 && name == "prefixItems" {
			return true
		}
	default:
		return false
	}
	if n.arr == nil {
		n.arr = &arrayWords{}
	}
	a := n.arr
	switch name {
	case "items", "additionalItems", "prefixItems": // finishArray reads them together
	case "minItems":
		a.minItems = c.count(name, v)
	case "maxItems":
		a.maxItems = c.count(name, v)
	case "uniqueItems":
		a.unique = c.flag(name, v)
	case "contains":
		a.contains = c.in(v, n.res, name)
	case "minContains":
		a.minContains = c.count(name, v)
	case "maxContains":
		a.maxContains = c.count(name, v)
	case "unevaluatedItems":
		a.unevaluated = c.in(v, n.res, name)
	}
	return true
}

// finishArray reads items and what belongs to it. Each draft has other names for the tuple and the rest.
func (c *compiler) finishArray(n *node) {
	a := n.arr
	items, tuple, rest := n.val.member("items"), n.val.member("prefixItems"), n.val.member("additionalItems")
	tupleName, restName := "prefixItems", "additionalItems"
	if n.res.draft < draft2020 {
		tuple = nil
	}
	switch {
	case items != nil && items.kind == array && tuple == nil:
		tuple, tupleName, items = items, "items", nil
	case tuple != nil && items != nil:
		rest, restName, items = items, "items", nil
	}
	if tuple != nil {
		a.hasTuple, a.tuple = true, c.list(n, tupleName, tuple)
	}
	if items != nil {
		all := c.in(items, n.res, "items")
		switch {
		case n.res.draft < draft2019 || all.always == depends:
			a.all = all
		case all.always == alwaysFalse:
			a.additional, a.rest = all, all
		default: // no limit, but they are looked at
			a.rest = all
		}
	}
	if rest != nil {
		a.additional = c.additional(n, restName, rest)
		if a.hasTuple {
			a.rest = a.additional
		}
	}
}

// additional reads additionalItems or additionalProperties, which may be booleans in every draft.
func (c *compiler) additional(n *node, name string, v *value) *node {
	if v.kind == boolean {
		known := &node{val: v, res: n.res, always: alwaysTrue}
		if v.text == "false" {
			known.always = alwaysFalse
		}
		return known
	}
	return c.in(v, n.res, name)
}

func (c *compiler) objectKeyword(n *node, name string, v *value) {
	d := n.res.draft
	switch name {
	case "properties", "required", "patternProperties", "additionalProperties", "dependencies", "minProperties",
		"maxProperties":
	case "propertyNames":
		if d < draft6 {
			return
		}
	case "unevaluatedProperties", "dependentRequired", "dependentSchemas":
		if d < draft2019 {
			return
		}
	default:
		return
	}
	if n.obj == nil {
		n.obj = &objectWords{}
	}
	o := n.obj
	switch name {
	case "properties":
		c.properties(n, v)
	case "required":
		o.required = c.texts(name, v)
	case "patternProperties":
		c.patternProperties(n, v)
	case "additionalProperties":
		o.additional = c.additional(n, name, v)
	case "minProperties":
		o.minProperties = c.count(name, v)
	case "maxProperties":
		o.maxProperties = c.count(name, v)
	case "propertyNames":
		o.names = c.in(v, n.res, name)
	case "unevaluatedProperties":
		o.unevaluated = c.in(v, n.res, name)
	default:
		c.dependencies(n, name, v)
	}
}

func (c *compiler) properties(n *node, v *value) {
	if !c.want("properties", v, object) {
		return
	}
	o := n.obj
	o.props = make([]property, 0, len(v.names()))
	for i, name := range v.names() {
		o.props = append(o.props, property{name, c.in(&v.sub.items[i], n.res, "properties", name)})
	}
	if v.sub != nil {
		o.index = v.sub.index
	}
}

func (c *compiler) patternProperties(n *node, v *value) {
	if !c.want("patternProperties", v, object) {
		return
	}
	for i, source := range v.names() {
		p := c.pattern("patternProperties", source)
		n.obj.patterns = append(n.obj.patterns, patternProperty{p, c.in(&v.sub.items[i], n.res, "patternProperties", source)})
	}
}

func (c *compiler) dependencies(n *node, keyword string, v *value) {
	if !c.want(keyword, v, object) {
		return
	}
	for i, name := range v.names() {
		d := dependency{name: name}
		if e := &v.sub.items[i]; e.kind == array && keyword != "dependentSchemas" || keyword == "dependentRequired" {
			up := c.path
			c.path = &trail{up, keyword}
			d.names = c.texts(name, e)
			c.path = up
		} else {
			d.schema = c.in(e, n.res, keyword, name)
		}
		n.obj.needs = append(n.obj.needs, d)
	}
}

// needsOf are the dependencies of one kind by name.
func (o *objectWords) needsOf(withSchema bool) map[string]*dependency {
	needs := map[string]*dependency{}
	for i := range o.needs {
		if d := &o.needs[i]; (d.schema != nil) == withSchema {
			needs[d.name] = d
		}
	}
	return needs
}
