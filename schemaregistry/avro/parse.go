package avro

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"millrace/api/rawjson"
	"millrace/schemaregistry/schema"
)

// parser builds the nodes of one schema and its dependencies.
type parser struct {
	limits Limits
	strict bool
	names  map[string]*node // by full name; those of records also while their fields are read
	open   map[string]bool  // names of records whose fields are being read
	later  []fixup          // names that no type had when they were read
	unions []union          // those that hold such names
	all    []*node
	fields int
	path   *step
}

// step is a place in a text, as the way to it from the innermost step outwards.
type step struct {
	up   *step
	name string
}

func (s *step) String() string {
	var names []string
	for ; s != nil; s = s.up {
		names = append(names, s.name)
	}
	slices.Reverse(names)
	return "/" + strings.Join(names, "/")
}

type union struct {
	node *node
	path *step
}

// fixup is a place that wants the node of a name which is defined further on.
type fixup struct {
	name string // full
	as   string // written so
	set  func(*node)
	path *step
}

// maxFixed is the largest size of a fixed that Java can hold.
const maxFixed = math.MaxInt32 - 8

// depTextFactor is how much longer than one text all dependencies together may be.
const depTextFactor = 4

// parse reads a schema and what it depends on.
func (f *Format) parse(text string, deps []schema.Dependency, o schema.ParseOptions) (*Schema, error) {
	p := &parser{limits: f.limits, names: map[string]*node{}, open: map[string]bool{}}
	s := &Schema{format: f, deps: deps, known: map[string]bool{}, normal: o.Normalize}
	left := depTextFactor * f.limits.TextBytes
	for i := range deps {
		if left -= len(deps[i].Text); left < 0 {
			return nil, schema.Invalid("the schemas that are referred to have more than %d bytes together",
				depTextFactor*f.limits.TextBytes)
		}
		root, err := p.document(deps[i].Text)
		if err != nil {
			return nil, schema.Invalid("reference %q (subject %q, version %d): %w",
				deps[i].Name, deps[i].Subject, deps[i].Version, err)
		}
		if root.kind.named() {
			s.known[root.name.full()] = true
		}
	}
	s.own = len(p.all)
	p.strict = o.Strict
	var err error
	if s.root, err = p.document(text); err != nil {
		return nil, err
	}
	s.nodes = p.all
	measure(p.all)
	return s, s.print(o.Normalize)
}

// document reads one text, whose names must all be known at its end.
func (p *parser) document(text string) (*node, error) {
	if len(text) > p.limits.TextBytes {
		return nil, schema.Invalid("the schema has %d bytes; at most %d are allowed", len(text), p.limits.TextBytes)
	}
	v, err := readJSON(text, p.limits.Depth, p.limits.Nodes)
	if err != nil {
		return nil, err
	}
	first := len(p.all)
	var root *node
	if err := p.node(&v, "", func(n *node) { root = n }); err != nil {
		return nil, err
	}
	if err := p.resolve(); err != nil {
		return nil, err
	}
	if p.strict {
		return root, p.checkDefaults(p.all[first:])
	}
	return root, nil
}

// at runs f one step further down.
func (p *parser) at(name string, f func() error) error {
	up := p.path
	p.path = &step{up, name}
	err := f()
	p.path = up
	return err
}

// fail makes an error about the place where the parser is.
func (p *parser) fail(format string, args ...any) error {
	return schema.Invalid("at %s: %w", p.path, schema.Invalid(format, args...))
}

func (p *parser) new(k kind) (*node, error) {
	if len(p.all)+p.fields >= p.limits.Nodes {
		return nil, p.fail("the schema has more than %d types and fields", p.limits.Nodes)
	}
	n := &node{kind: k, id: len(p.all), tag: k.String()}
	p.all = append(p.all, n)
	return n, nil
}

// node reads a type inside a namespace and hands it to set, at once or when its name has been defined.
func (p *parser) node(v *value, space string, set func(*node)) error {
	switch v.kind {
	case jsonString:
		return p.reference(v.text, space, set)
	case jsonArray:
		return p.union(v, space, set)
	case jsonObject:
		return p.complex(v, space, set)
	default:
		return p.fail("a type is a name, an object or an array (a union), not %s", v.kind)
	}
}

func (p *parser) reference(name, space string, set func(*node)) error {
	if k, ok := primitive(name); ok {
		n, err := p.new(k)
		if err == nil {
			set(n)
		}
		return err
	}
	full := nameIn(name, space).full()
	if n := p.names[full]; n != nil {
		set(n)
		return nil
	}
	if n := p.names[name]; n != nil {
		set(n)
		return nil
	}
	p.later = append(p.later, fixup{full, name, set, p.path})
	return nil
}

// resolve settles the names that were used before they were defined.
func (p *parser) resolve() error {
	for _, f := range p.later {
		n := p.names[f.name]
		if n == nil {
			return schema.Invalid("at %s: %s", f.path, unknownName(f.as, f.name))
		}
		f.set(n)
	}
	for _, u := range p.unions {
		p.path = u.path
		if err := p.checkUnion(u.node); err != nil {
			return err
		}
	}
	p.later, p.unions, p.path = nil, nil, nil
	return nil
}

func unknownName(as, full string) string {
	if k, ok := kindOf(as); ok || as == "error" {
		article := "a"
		if strings.ContainsAny(as[:1], "ae") {
			article = "an"
		}
		if k == kindUnion {
			return "a union is written as an array of its types"
		}
		return article + " " + as + ` is written as an object, {"type":"` + as + `",...}`
	}
	text := "no type has the name " + strconv.Quote(full)
	if as != full {
		text += " (written " + strconv.Quote(as) + ")"
	}
	return text + ": define it in the schema or name a reference to it"
}

func (p *parser) union(v *value, space string, set func(*node)) error {
	n, err := p.new(kindUnion)
	if err != nil {
		return err
	}
	n.branches = make([]*node, len(v.items))
	for i := range v.items {
		if err := p.at(strconv.Itoa(i), func() error {
			return p.node(&v.items[i], space, func(b *node) { n.branches[i] = b })
		}); err != nil {
			return err
		}
	}
	set(n)
	if slices.Contains(n.branches, nil) {
		p.unions = append(p.unions, union{n, p.path})
		return nil
	}
	return p.checkUnion(n)
}

// complex reads a type that is an object.
func (p *parser) complex(v *value, space string, set func(*node)) error {
	name, ok := v.str("type")
	switch {
	case !ok && v.get("type") == nil:
		return p.fail(`a type that is an object has a "type"`)
	case !ok:
		return p.fail(`the "type" of a type that is an object is a name; to put a type into a field, write it as the ` +
			`field's "type" alone`)
	}
	k, known := kindOf(name)
	if name == "error" {
		k, known = kindRecord, true
	}
	if !known || k == kindUnion {
		return p.fail("%q is not a primitive type, and not record, error, enum, fixed, array or map; to refer to a type, "+
			"write its name alone", name)
	}
	n, err := p.new(k)
	if err != nil {
		return err
	}
	n.isError = name == "error"
	switch k {
	case kindRecord, kindEnum, kindFixed:
		n, err = p.definition(n, v, space)
	case kindArray:
		err = p.item(n, v, "items", space)
	case kindMap:
		err = p.item(n, v, "values", space)
	}
	if err != nil {
		return err
	}
	if !k.named() {
		p.finish(n, v)
	}
	set(n)
	return nil
}

func (p *parser) item(n *node, v *value, member, space string) error {
	item := v.get(member)
	if item == nil {
		return p.fail("%s has no %q", withArticle(n.kind), member)
	}
	return p.at(member, func() error {
		return p.node(item, space, func(item *node) { n.item = item })
	})
}

func withArticle(k kind) string {
	switch k {
	case kindInt, kindEnum, kindArray:
		return "an " + k.String()
	case kindNull, kindBytes:
		return k.String()
	default:
		return "a " + k.String()
	}
}

// finish reads what all types may have beside their own members.
func (p *parser) finish(n *node, v *value) {
	n.props = properties(v, n.kind == kindEnum)
	n.logical = logicalOf(n)
}

// properties are the members that mean nothing to Avro.
func properties(v *value, enum bool) []member {
	var props []member
	for _, m := range v.members {
		switch m.name {
		case "type", "name", "namespace", "doc", "aliases", "fields", "symbols", "items", "values", "size":
			continue
		case "default":
			if enum {
				continue
			}
		}
		props = append(props, m)
	}
	return props
}

// definition reads a record, enum or fixed. It returns the node that its name stands for: another one, if the same
// type was defined before.
func (p *parser) definition(n *node, v *value, space string) (*node, error) {
	if err := p.heading(n, v, space); err != nil {
		return nil, err
	}
	full := n.name.full()
	earlier := p.names[full]
	if earlier == nil {
		p.names[full] = n
	} else if p.open[full] {
		return nil, p.fail("the type %q is defined again inside itself", full)
	}
	var err error
	switch n.kind {
	case kindRecord:
		p.open[full] = true
		err = p.record(n, v)
		delete(p.open, full)
	case kindEnum:
		err = p.enum(n, v)
	default:
		err = p.fixed(n, v)
	}
	if err != nil {
		return nil, err
	}
	p.finish(n, v)
	if earlier == nil {
		return n, nil
	}
	if !sameDefinition(earlier, n, p.limits.Nodes) {
		return nil, p.fail("the type %q is defined twice, and not in the same way", full)
	}
	return earlier, nil
}

// heading reads the name of a type, its documentation and its aliases.
func (p *parser) heading(n *node, v *value, space string) error {
	name, ok := v.str("name")
	if !ok {
		return p.fail("%s has no name", withArticle(n.kind))
	}
	if own, ok := v.str("namespace"); ok {
		space = own
	}
	n.name = nameIn(name, space)
	n.tag = n.name.full()
	if _, taken := primitive(n.name.full()); taken {
		return p.fail("a type may not be named like the primitive type %s", n.name.full())
	}
	if err := p.checkTypeName(n.name); err != nil {
		return err
	}
	if doc, ok := v.str("doc"); ok {
		n.doc = &doc
	}
	aliases, err := p.aliases(v)
	if err != nil {
		return err
	}
	seen := make(map[typeName]bool, len(aliases))
	for _, a := range aliases {
		alias := nameIn(a, n.name.space)
		if p.strict && !validName(alias.name) {
			return p.fail("the alias %q is not a name: %s", a, nameRule)
		}
		if !seen[alias] {
			seen[alias] = true
			n.aliases = append(n.aliases, alias)
		}
	}
	return nil
}

// aliases reads aliases, each once.
func (p *parser) aliases(v *value) ([]string, error) {
	list := v.get("aliases")
	if list == nil {
		return nil, nil
	}
	if list.kind != jsonArray {
		return nil, p.fail("aliases are an array of names, not %s", list.kind)
	}
	seen := make(map[string]bool, len(list.items))
	var aliases []string
	for _, a := range list.items {
		if a.kind != jsonString {
			return nil, p.fail("an alias is a name, not %s", a.kind)
		}
		if !seen[a.text] {
			seen[a.text] = true
			aliases = append(aliases, a.text)
		}
	}
	return aliases, nil
}

func (p *parser) record(n *node, v *value) error {
	list := v.get("fields")
	if list == nil || list.kind != jsonArray {
		return p.fail(`the record %q has no array "fields"`, n.name.full())
	}
	n.fields = make([]field, len(list.items))
	n.fieldIndex = make(map[string]int, len(list.items))
	return p.at("fields", func() error {
		for i := range list.items {
			if err := p.at(strconv.Itoa(i), func() error { return p.field(n, i, &list.items[i]) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *parser) field(n *node, i int, v *value) error {
	if p.fields++; len(p.all)+p.fields > p.limits.Nodes {
		return p.fail("the schema has more than %d types and fields", p.limits.Nodes)
	}
	f := &n.fields[i]
	var ok bool
	if f.name, ok = v.str("name"); !ok {
		return p.fail("a field is an object with a name")
	}
	if p.strict && !validName(f.name) {
		return p.fail("the field name %q is not valid: %s", f.name, nameRule)
	}
	if _, twice := n.fieldIndex[f.name]; twice {
		return p.fail("the record %q has two fields %q", n.name.full(), f.name)
	}
	n.fieldIndex[f.name] = i
	f.key = append(rawjson.AppendString(nil, f.name), ':')
	if doc, ok := v.str("doc"); ok {
		f.doc = &doc
	}
	t := v.get("type")
	if t == nil {
		return p.fail("the field %q has no type", f.name)
	}
	if err := p.at("type", func() error {
		return p.node(t, n.name.space, func(t *node) { f.node = t })
	}); err != nil {
		return err
	}
	if err := p.order(f, v); err != nil {
		return err
	}
	if err := p.fieldDefault(f, v); err != nil {
		return err
	}
	var err error
	f.aliases, err = p.aliases(v)
	f.props = fieldProperties(v)
	return err
}

func (p *parser) order(f *field, v *value) error {
	order := v.get("order")
	if order == nil {
		return nil
	}
	switch text := strings.ToLower(order.text); {
	case order.kind != jsonString:
	case text == "ascending":
		return nil
	case text == "descending" || text == "ignore":
		f.order = text
		return nil
	}
	return p.fail(`the order of the field %q is neither "ascending" nor "descending" nor "ignore"`, f.name)
}

// fieldDefault reads a field's default. That of a float or double may be a number in quotes.
func (p *parser) fieldDefault(f *field, v *value) error {
	f.def = v.get("default")
	if f.def == nil || f.def.kind != jsonString || f.node == nil {
		return nil
	}
	if f.node.kind != kindFloat && f.node.kind != kindDouble {
		return nil
	}
	n, ok := quotedDouble(f.def.text)
	if !ok {
		return p.fail("the default of the field %q is not a number", f.name)
	}
	d := double(n)
	f.def = &d
	return nil
}

// quotedDouble reads a number as text.
func quotedDouble(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	switch strings.TrimLeft(text, "+-") {
	case "NaN", "Infinity":
	default:
		if strings.ContainsAny(text, "_xXiInN") { // Go's own spellings
			return 0, false
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil || math.IsInf(n, 0)
}

func fieldProperties(v *value) []member {
	var props []member
	for _, m := range v.members {
		switch m.name {
		case "default", "doc", "name", "order", "type", "aliases":
		default:
			props = append(props, m)
		}
	}
	return props
}

func (p *parser) enum(n *node, v *value) error {
	list := v.get("symbols")
	if list == nil || list.kind != jsonArray {
		return p.fail(`the enum %q has no array "symbols"`, n.name.full())
	}
	n.symbols = make([]string, len(list.items))
	n.symbolIndex = make(map[string]int, len(list.items))
	for i, s := range list.items {
		if s.kind != jsonString {
			return p.fail("a symbol of the enum %q is %s, not a string", n.name.full(), s.kind)
		}
		if p.strict && !validName(s.text) {
			return p.fail("the symbol %q of the enum %q is not a name: %s", s.text, n.name.full(), nameRule)
		}
		if _, twice := n.symbolIndex[s.text]; twice {
			return p.fail("the enum %q has the symbol %q twice", n.name.full(), s.text)
		}
		n.symbols[i], n.symbolIndex[s.text] = s.text, i
	}
	if symbol, ok := v.str("default"); ok {
		if _, known := n.symbolIndex[symbol]; !known {
			return p.fail("the default %q of the enum %q is not one of its symbols", symbol, n.name.full())
		}
		n.defaultSymbol = &symbol
	}
	return nil
}

func (p *parser) fixed(n *node, v *value) error {
	size := v.get("size")
	if size == nil || size.kind != jsonInteger {
		return p.fail(`the fixed %q has no whole number "size"`, n.name.full())
	}
	bytes, err := strconv.Atoi(size.text)
	if err != nil || bytes < 0 || bytes > maxFixed {
		return p.fail("the size of the fixed %q is %s; it must be from 0 to %d", n.name.full(), size.text, maxFixed)
	}
	n.size = bytes
	return nil
}
