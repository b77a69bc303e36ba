package jsonschema

func (n *node) arrayWords() *arrayWords {
	if n.arr == nil {
		return &arrayWords{}
	}
	return n.arr
}

func (c *comparer) arrays(r *result, o, n *node) {
	x, y := o.arrayWords(), n.arrayWords()
	if !c.spend(len(x.tuple) + len(y.tuple)) {
		return
	}
	c.nest(r, "items", c.nodes(x.all, y.all))
	c.tuples(r, x, y)
	c.additional(r, additionalWords{
		path: "additionalItems", kind: "ADDITIONAL_ITEMS", o: x.others(), n: y.others(),
	})
	c.unevaluated(r, additionalWords{
		path: "unevaluatedItems", kind: "UNEVALUATED_ITEMS", o: x.unevaluated, n: y.unevaluated,
	})
	c.counts(r, keyword{"maxItems", "MAX_ITEMS", o, n}, x.maxItems, y.maxItems)
	c.counts(r, keyword{"minItems", "MIN_ITEMS", o, n}, x.minItems, y.minItems)
	switch {
	case x.unique && !y.unique:
		c.add(r, "uniqueItems", "UNIQUE_ITEMS_REMOVED", o.val.member("uniqueItems"), n.val.member("uniqueItems"))
	case y.unique && !x.unique:
		c.add(r, "uniqueItems", "UNIQUE_ITEMS_ADDED", o.val.member("uniqueItems"), n.val.member("uniqueItems"))
	}
	c.counts(r, keyword{"maxContains", "MAX_CONTAINS", o, n}, x.most(), y.most())
	c.counts(r, keyword{"minContains", "MIN_CONTAINS", o, n}, x.least(o), y.least(n))
	if x.contains != nil || y.contains != nil {
		c.warnChanged(r, o, n, "contains")
	}
	c.warnUnevaluated(r, n, "unevaluatedItems", y.unevaluated)
	if y.unevaluated != nil && (x.rest == nil && x.all == nil) != (y.rest == nil && y.all == nil) {
		c.warn(r, "unevaluatedItems", "what items leave to unevaluatedItems is not compared")
	}
	if y.contains != nil && y.unevaluated != nil {
		c.warn(r, "unevaluatedItems", "what contains leaves to unevaluatedItems is not compared")
	}
}

// others is the schema of items that the tuple does not name. Beside items for every place, false says nothing.
func (a *arrayWords) others() *node {
	if a.all != nil && a.additional != nil && a.additional.always == alwaysFalse {
		return nil
	}
	return a.additional
}

// least is how many items must match contains: one, unless the schema says otherwise. Before draft 2019-09 it does not
// count.
func (a *arrayWords) least(n *node) *int {
	if a.contains == nil || n.res.draft < draft2019 {
		return nil
	}
	if a.minContains != nil {
		return a.minContains
	}
	one := 1
	return &one
}

func (a *arrayWords) most() *int {
	if a.contains == nil {
		return nil
	}
	return a.maxContains
}

// open says whether an array admits any item that its tuple does not name.
func (a *arrayWords) open() bool {
	rest := a.others()
	return (rest == nil || rest.always == alwaysTrue) && (a.unevaluated == nil || admitsAll(a.unevaluated))
}

// partial is the schema that an array which is neither open nor closed has for an item that its tuple does not name.
func (a *arrayWords) partial() *node {
	switch rest := a.others(); {
	case rest != nil && rest.always == depends:
		return rest
	case rest != nil && rest.always == alwaysFalse:
		return nil
	case a.unevaluated != nil && a.unevaluated.always != alwaysFalse && !admitsAll(a.unevaluated):
		return a.unevaluated
	}
	return nil
}

func (c *comparer) tuples(r *result, x, y *arrayWords) {
	both := min(len(x.tuple), len(y.tuple))
	for i := range both {
		c.nest(r, "items/"+itoa(i), c.nodes(x.tuple[i], y.tuple[i]))
	}
	for i, item := range x.tuple[both:] {
		c.itemRemoved(r, "items/"+itoa(both+i), item, y)
	}
	for i, item := range y.tuple[both:] {
		c.itemAdded(r, "items/"+itoa(both+i), item, x)
	}
}

func (c *comparer) itemRemoved(r *result, path string, item *node, y *arrayWords) {
	kind := ""
	partial := y.partial()
	switch {
	case y.open():
		kind = "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL"
	case partial != nil:
		sub := c.nodes(item, partial)
		c.nest(r, path, sub)
		kind = "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
		if sub.bad {
			kind = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
		}
	case item.always == alwaysFalse:
		kind = "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL"
	default:
		kind = "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"
	}
	c.add(r, path, kind, item.val, nil)
}

func (c *comparer) itemAdded(r *result, path string, item *node, x *arrayWords) {
	kind := ""
	partial := x.partial()
	switch {
	case x.open() && admitsAll(item):
		kind = "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"
	case x.open():
		kind = "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"
	case partial != nil:
		sub := c.nodes(partial, item)
		c.nest(r, path, sub)
		kind = "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
		if sub.bad {
			kind = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
		}
	default:
		kind = "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL"
	}
	c.add(r, path, kind, nil, item.val)
}
