package avro

import (
	"slices"
	"strconv"
	"strings"

	"millrace/schemaregistry/schema"
)

// Kinds of differences, as the registry's clients know them.
const (
	nameMismatch      = "NAME_MISMATCH"
	fixedSizeMismatch = "FIXED_SIZE_MISMATCH"
	missingSymbols    = "MISSING_ENUM_SYMBOLS"
	missingDefault    = "READER_FIELD_MISSING_DEFAULT_VALUE"
	typeMismatch      = "TYPE_MISMATCH"
	missingBranch     = "MISSING_UNION_BRANCH"
	reservedRemoved   = "RESERVED_FIELD_REMOVED"
	reservedConflict  = "FIELD_CONFLICTS_WITH_RESERVED_FIELD"
)

const (
	maxDifferences  = 1000 // that a comparison lists
	pairSteps       = 24   // that one pair of types costs beside its parts
	pairDepthFactor = 20   // how much deeper pairs may nest than texts: names lead back and forth
)

// Compare implements schema.Format: Avro's resolution of a writer's schema by a reader's, without data. Every
// difference is an incompatible one. One that is met on several ways is listed once, with the first place.
func (f *Format) Compare(readerSchema, writerSchema schema.Schema, o schema.CompareOptions) (schema.Comparison, error) {
	r, ok := readerSchema.(*Schema)
	w, isAvro := writerSchema.(*Schema)
	if !ok || !isAvro {
		return schema.Comparison{}, schema.Invalid("a schema of Avro can only be compared with another one")
	}
	c := &comparer{o: o, limits: f.limits, left: f.limits.CompareSteps, pairs: map[pair]*outcome{}}
	if c.o.ReaderName == "" && c.o.WriterName == "" {
		c.o.ReaderName, c.o.WriterName = "new", "old"
	}
	result := c.pair(r.root, w.root, nil, 0)
	if c.left < 0 {
		return schema.Comparison{}, schema.Invalid("comparing the schemas takes more than %d steps", f.limits.CompareSteps)
	}
	if c.tooDeep {
		return schema.Comparison{}, schema.Invalid("the types of the schemas lead to each other in too long a chain")
	}
	var found schema.Comparison
	c.flatten(result, map[*outcome]bool{}, &found.Differences)
	if o.ValidateFields {
		found.Differences = append(found.Differences, reserved(r, w, c.o)...)
	}
	found.Warnings = c.warnings(r.root, w.root)
	return found, nil
}

// comparer compares the types of a reader with those of a writer.
type comparer struct {
	o       schema.CompareOptions
	limits  Limits
	left    int // steps
	tooDeep bool
	pairs   map[pair]*outcome
	fine    outcome // of pairs that need no look inside
}

type pair struct {
	reader, writer *node
}

// outcome is what was found out about a pair: nothing, if data passes. While it is open, the pair counts as
// compatible: it is unless a part is not.
type outcome struct {
	open  bool
	bad   bool
	parts []part
}

// part is a difference, or the outcome of a pair further in.
type part struct {
	difference func() *schema.Difference // put into words only if it is listed
	outcome    *outcome
}

func (o *outcome) add(d func() *schema.Difference) {
	o.bad = true
	o.parts = append(o.parts, part{difference: d})
}

func (o *outcome) include(inner *outcome) {
	if inner.bad {
		o.bad = true
		o.parts = append(o.parts, part{outcome: inner})
	}
}

// flatten lists the differences of an outcome in the order in which they were found.
func (c *comparer) flatten(o *outcome, seen map[*outcome]bool, list *[]schema.Difference) {
	if seen[o] {
		return
	}
	seen[o] = true
	for _, p := range o.parts {
		switch {
		case p.outcome != nil:
			c.flatten(p.outcome, seen, list)
		case len(*list) < maxDifferences:
			*list = append(*list, *p.difference())
		}
	}
}

// pair compares two types. The outcome is kept, and with it the place where the pair was met first.
func (c *comparer) pair(r, w *node, at *step, depth int) *outcome {
	if c.left--; c.left < 0 || c.tooDeep {
		return &outcome{}
	}
	if r.kind.primitive() && (r.kind == w.kind || promotes(r.kind, w.kind)) {
		return &c.fine
	}
	key := pair{r, w}
	memo := !r.kind.primitive() || !w.kind.primitive()
	if memo {
		if o := c.pairs[key]; o != nil && o.open {
			return &outcome{}
		} else if o != nil {
			return o
		}
	}
	if depth > pairDepthFactor*c.limits.Depth {
		c.tooDeep = true
		return &outcome{}
	}
	o := &outcome{open: true}
	if memo {
		c.left -= pairSteps
		c.pairs[key] = o
	}
	if r.kind == w.kind {
		c.sameKind(o, r, w, at, depth)
	} else {
		c.otherKind(o, r, w, at, depth)
	}
	o.open = false
	return o
}

func (c *comparer) sameKind(o *outcome, r, w *node, at *step, depth int) {
	switch r.kind {
	case kindArray:
		o.include(c.pair(r.item, w.item, &step{at, "items"}, depth+1))
	case kindMap:
		o.include(c.pair(r.item, w.item, &step{at, "values"}, depth+1))
	case kindFixed:
		c.names(o, r, w, at)
		if r.size != w.size {
			o.add(func() *schema.Difference { return c.sizes(r, w, &step{at, "size"}) })
		}
	case kindEnum:
		c.names(o, r, w, at)
		c.symbols(o, r, w, at)
	case kindRecord:
		c.names(o, r, w, at)
		c.fields(o, r, w, &step{at, "fields"}, depth)
	case kindUnion:
		for i, branch := range w.branches {
			if c.pair(r, branch, nil, depth+1).bad {
				o.add(func() *schema.Difference { return c.lacking(r, branch, &step{at, strconv.Itoa(i)}) })
			}
		}
	}
}

func (c *comparer) otherKind(o *outcome, r, w *node, at *step, depth int) {
	switch {
	case w.kind == kindUnion:
		for i, branch := range w.branches {
			o.include(c.pair(r, branch, &step{at, strconv.Itoa(i)}, depth+1))
		}
	case r.kind == kindUnion:
		if c.reading(r, w, depth) == nil {
			o.add(func() *schema.Difference { return c.lacking(r, w, at) })
		}
	case !promotes(r.kind, w.kind):
		o.add(func() *schema.Difference { return c.types(r, w, at) })
	}
}

// reading is the first branch of a reader's union that can read a type, nil if none can.
func (c *comparer) reading(r, w *node, depth int) *node {
	for _, branch := range r.branches {
		if !c.pair(branch, w, nil, depth+1).bad {
			return branch
		}
	}
	return nil
}

// promotes says whether a primitive type reads another one.
func promotes(r, w kind) bool {
	switch r {
	case kindLong:
		return w == kindInt
	case kindFloat:
		return w == kindInt || w == kindLong
	case kindDouble:
		return w == kindInt || w == kindLong || w == kindFloat
	case kindBytes:
		return w == kindString
	case kindString:
		return w == kindBytes
	default:
		return false
	}
}

// names compares the names of two types: the namespaces do not count, and the reader may know the writer's full name
// as an alias.
func (c *comparer) names(o *outcome, r, w *node, at *step) {
	if r.name.name == w.name.name {
		return
	}
	c.left -= len(r.aliases)
	if !slices.Contains(r.aliases, w.name) {
		o.add(func() *schema.Difference { return c.otherName(r, w, &step{at, "name"}) })
	}
}

func (c *comparer) symbols(o *outcome, r, w *node, at *step) {
	c.left -= len(w.symbols)
	if r.defaultSymbol != nil || c.left < 0 {
		return
	}
	for _, s := range w.symbols {
		if _, known := r.symbolIndex[s]; !known {
			o.add(func() *schema.Difference { return c.lostSymbols(r, w, &step{at, "symbols"}) })
			return
		}
	}
}

func (c *comparer) fields(o *outcome, r, w *node, at *step, depth int) {
	for i := range r.fields {
		f := &r.fields[i]
		c.left -= 1 + len(f.aliases)
		if c.left < 0 || c.tooDeep {
			return
		}
		here := &step{at, strconv.Itoa(i)}
		found := writerFields(w, f)
		switch {
		case len(found) > 1:
			o.add(func() *schema.Difference { return c.ambiguous(r, w, f, found, here) })
		case len(found) == 1:
			o.include(c.pair(f.node, found[0].node, &step{here, "type"}, depth+1))
		case f.def != nil:
		case f.node.kind == kindEnum && f.node.defaultSymbol != nil:
			o.include(c.pair(f.node, w, &step{here, "type"}, depth+1))
		default:
			o.add(func() *schema.Difference { return c.noDefault(r, w, f, here) })
		}
	}
}

// writerFields are the writer's fields that a reader's field may stand for: by its name and by its aliases.
func writerFields(w *node, f *field) []*field {
	var found []*field
	if i, ok := w.fieldIndex[f.name]; ok {
		found = append(found, &w.fields[i])
	}
	for _, a := range f.aliases {
		if i, ok := w.fieldIndex[a]; ok {
			found = append(found, &w.fields[i])
		}
	}
	return found
}

// reserved lists the reserved fields that were dropped from the list, and those that are there as fields.
func reserved(r, w *Schema, o schema.CompareOptions) []schema.Difference {
	now, before, s := o.ReaderReserved, o.WriterReserved, r
	name, other := o.ReaderName, o.WriterName
	if o.ReaderName == "old" {
		now, before, s = before, now, w
		name, other = other, name
	}
	var list []schema.Difference
	for _, path := range before {
		if !slices.Contains(now, path) {
			list = append(list, schema.Difference{
				Kind: reservedRemoved, Path: path, Info: path,
				Description: "The field '" + path + "' is reserved in the metadata of the " + other + " schema and no longer in " +
					"those of the " + name + " schema, but what was reserved once stays reserved",
			})
		}
	}
	for _, path := range now {
		if s.hasField(path) {
			list = append(list, schema.Difference{
				Kind: reservedConflict, Path: path, Info: path,
				Description: "The " + name + " schema has a field '" + path + "', which its own metadata reserve: a reserved " +
					"field may not be there",
			})
		}
	}
	return list[:min(len(list), maxDifferences)]
}

// hasField says whether there is a field on a path of names from the root, through whatever holds records.
func (s *Schema) hasField(path string) bool {
	nodes := []*node{s.root}
	for name := range strings.SplitSeq(path, ".") {
		var next []*node
		for _, n := range recordsIn(nodes) {
			if i, ok := n.fieldIndex[name]; ok {
				next = append(next, n.fields[i].node)
			}
		}
		if len(next) == 0 {
			return false
		}
		nodes = next
	}
	return true
}

// recordsIn finds the records that types are or hold, without looking into records.
func recordsIn(nodes []*node) []*node {
	var records []*node
	seen := map[*node]bool{}
	for len(nodes) > 0 {
		n := nodes[len(nodes)-1]
		nodes = nodes[:len(nodes)-1]
		if seen[n] {
			continue
		}
		seen[n] = true
		switch n.kind {
		case kindRecord:
			records = append(records, n)
		case kindUnion:
			nodes = append(nodes, n.branches...)
		case kindArray, kindMap:
			nodes = append(nodes, n.item)
		}
	}
	return records
}
