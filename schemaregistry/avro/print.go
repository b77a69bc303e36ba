package avro

import (
	"slices"
	"strconv"
	"strings"

	"millrace/api/rawjson"
	"millrace/schemaregistry/schema"
)

// printer prints a schema in its stored form, or in that with equal schemas looking equal.
type printer struct {
	dst      []byte
	known    map[string]bool // full names that stay names
	normal   bool
	maxDepth int
	failed   bool // too deep or too long
	most     int  // bytes
}

// print fills in the stored text of a schema, which can be read again.
func (s *Schema) print(normal bool) error {
	l := s.format.limits
	text, ok := s.render(s.known, normal, l.TextBytes)
	if ok {
		_, _, err := rawjson.Scan([]byte(text), 0, l.Depth) // properties may have moved further in
		ok = err == nil
	}
	if !ok {
		return schema.Invalid("with its types written where they are first used, the schema is nested more than "+
			"%d levels deep or has more than %d bytes", l.Depth, l.TextBytes)
	}
	s.text = text
	return nil
}

// render prints a schema in which some names stay names, if it is not too deep and too long for that.
func (s *Schema) render(known map[string]bool, normal bool, most int) (string, bool) {
	names := make(map[string]bool, len(known))
	for name := range known {
		names[name] = true
	}
	p := &printer{known: names, normal: normal, maxDepth: s.format.limits.Depth, most: most}
	p.node(s.root, "", 0)
	return string(p.dst), !p.failed && len(p.dst) <= most
}

func (p *printer) raw(s string) { p.dst = append(p.dst, s...) }

func (p *printer) text(s string) { p.dst = appendText(p.dst, s) }

// member prints the beginning of an object's member, after the first one.
func (p *printer) member(name string) {
	p.raw(`,"`)
	p.raw(name)
	p.raw(`":`)
}

// node prints a type inside a namespace, at a depth of JSON.
func (p *printer) node(n *node, space string, depth int) {
	if depth >= p.maxDepth && !n.kind.primitive() || len(p.dst) > p.most {
		p.failed = true
	}
	if p.failed {
		return
	}
	switch {
	case n.kind == kindUnion:
		p.union(n, space, depth)
		return
	case n.kind.primitive() && len(n.props) == 0:
		p.raw(`"` + n.kind.String() + `"`)
		return
	case n.kind.named() && p.known[n.name.full()]:
		p.text(n.name.within(space))
		return
	case n.kind.named():
		p.known[n.name.full()] = true
	}
	p.raw(`{"type":"`)
	if n.isError && !p.normal {
		p.raw("error")
	} else {
		p.raw(n.kind.String())
	}
	p.raw(`"`)
	switch {
	case n.kind.named():
		p.definition(n, space, depth)
	case n.kind == kindArray:
		p.member("items")
		p.node(n.item, space, depth+1)
	case n.kind == kindMap:
		p.member("values")
		p.node(n.item, space, depth+1)
	}
	p.properties(n.props, n.logical)
	p.aliases(n)
	p.raw("}")
}

func (p *printer) union(n *node, space string, depth int) {
	p.raw("[")
	for i, b := range n.branches {
		if i > 0 {
			p.raw(",")
		}
		p.node(b, space, depth+1)
	}
	p.raw("]")
}

func (p *printer) definition(n *node, space string, depth int) {
	p.member("name")
	p.text(n.name.name)
	if n.name.space != space {
		p.member("namespace")
		p.text(n.name.space)
	}
	if n.doc != nil && (*n.doc != "" || !p.normal) {
		p.member("doc")
		p.text(*n.doc)
	}
	switch n.kind {
	case kindRecord:
		p.member("fields")
		p.raw("[")
		for i := range n.fields {
			if i > 0 {
				p.raw(",")
			}
			p.field(&n.fields[i], n.name.space, depth+2)
		}
		p.raw("]")
	case kindEnum:
		p.member("symbols")
		p.texts(n.symbols)
		if n.defaultSymbol != nil {
			p.member("default")
			p.text(*n.defaultSymbol)
		}
	default:
		p.member("size")
		p.dst = strconv.AppendInt(p.dst, int64(n.size), 10)
	}
}

func (p *printer) texts(list []string) {
	p.raw("[")
	for i, s := range list {
		if i > 0 {
			p.raw(",")
		}
		p.text(s)
	}
	p.raw("]")
}

func (p *printer) field(f *field, space string, depth int) {
	p.raw(`{"name":`)
	p.text(f.name)
	p.member("type")
	p.node(f.node, space, depth+1)
	if f.doc != nil {
		p.member("doc")
		p.text(*f.doc)
	}
	if f.def != nil {
		p.member("default")
		if p.normal {
			def := *f.def
			normalDefault(f.node, &def)
			p.dst = appendValue(p.dst, &def, true)
		} else {
			p.dst = appendValue(p.dst, f.def, false)
		}
	}
	if f.order != "" {
		p.member("order")
		p.text(f.order)
	}
	if len(f.aliases) > 0 {
		p.member("aliases")
		aliases := f.aliases
		if p.normal {
			aliases = slices.Sorted(slices.Values(aliases))
		}
		p.texts(aliases)
	}
	p.properties(f.props, nil)
	p.raw("}")
}

func (p *printer) aliases(n *node) {
	if len(n.aliases) == 0 {
		return
	}
	aliases := n.aliases
	if p.normal {
		key := func(a typeName) string {
			if a.space == "" && n.name.space != "" {
				return "." + a.name
			}
			return a.full()
		}
		aliases = slices.SortedFunc(slices.Values(aliases), func(a, b typeName) int {
			return strings.Compare(key(a), key(b))
		})
	}
	texts := make([]string, len(aliases))
	for i, a := range aliases {
		texts[i] = a.alias(n.name.space)
	}
	p.member("aliases")
	p.texts(texts)
}

// properties prints what means nothing to Avro. In normal form those of a valid logical type come first.
func (p *printer) properties(props []member, logical *logicalType) {
	first := 0
	if p.normal {
		props = ordered(props, true)
		if logical != nil {
			names := []string{"logicalType"}
			if logical.name == "decimal" {
				names = append(names, "precision")
				if logical.scale != 0 {
					names = append(names, "scale")
				}
			}
			props = slices.Clone(props)
			for _, name := range names {
				i := slices.IndexFunc(props, func(m member) bool { return m.name == name })
				m := props[i]
				copy(props[first+1:i+1], props[first:i])
				props[first] = m
				first++
			}
		}
	}
	for i := range props {
		p.raw(",")
		p.text(props[i].name)
		p.raw(":")
		p.dst = appendValue(p.dst, &props[i].value, p.normal)
	}
}

// normalDefault brings numbers in a default to the form of their type: whole numbers of floats and doubles get a
// fraction, and floats the digits that a float has. What does not fit the type stays as it is.
func normalDefault(n *node, v *value) {
	switch n.kind {
	case kindFloat, kindDouble:
		normalNumber(n.kind, v)
	case kindUnion:
		for _, b := range n.branches {
			if b.kind != kindNull && looksLike(b.kind, v) {
				normalDefault(b, v)
				return
			}
		}
	case kindArray:
		v.items = slices.Clone(v.items)
		for i := range v.items {
			normalDefault(n.item, &v.items[i])
		}
	case kindMap:
		v.members = slices.Clone(v.members)
		for i := range v.members {
			normalDefault(n.item, &v.members[i].value)
		}
	case kindRecord:
		v.members = slices.Clone(v.members)
		for i := range v.members {
			if at, known := n.fieldIndex[v.members[i].name]; known {
				normalDefault(n.fields[at].node, &v.members[i].value)
			}
		}
	}
}

func normalNumber(k kind, v *value) {
	if v.kind != jsonInteger && v.kind != jsonDouble {
		return
	}
	bits := 64
	if k == kindFloat {
		bits = 32
	}
	n, err := strconv.ParseFloat(v.text, bits)
	if err != nil && v.kind == jsonDouble { // infinite already
		return
	}
	*v = value{kind: jsonDouble, text: string(appendDouble(nil, n, bits))}
}

// looksLike says whether the form of a value is that of a type.
func looksLike(k kind, v *value) bool {
	switch k {
	case kindBoolean:
		return v.kind == jsonBool
	case kindInt, kindLong:
		return v.kind == jsonInteger
	case kindFloat, kindDouble:
		return v.kind == jsonInteger || v.kind == jsonDouble
	case kindBytes, kindString, kindEnum, kindFixed:
		return v.kind == jsonString
	case kindArray:
		return v.kind == jsonArray
	case kindMap, kindRecord:
		return v.kind == jsonObject
	default:
		return v.kind == jsonNull
	}
}
