package avro

import (
	"strings"
)

const nameRule = "a name begins with a letter A-Z, a-z or '_', and goes on with these and digits"

// validName says whether a text is a name without dots.
func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func (p *parser) checkTypeName(n typeName) error {
	if !p.strict {
		return nil
	}
	if !validName(n.name) {
		return p.fail("the type name %q is not valid: %s", n.name, nameRule)
	}
	if n.space == "" {
		return nil
	}
	for part := range strings.SplitSeq(n.space, ".") {
		if !validName(part) {
			return p.fail("the part %q of the namespace %q is not valid: %s", part, n.space, nameRule)
		}
	}
	return nil
}

// checkUnion checks a union whose types are all known.
func (p *parser) checkUnion(n *node) error {
	n.branch = make(map[string]int, len(n.branches))
	for i, b := range n.branches {
		if b.kind == kindUnion {
			return p.fail("a union holds another union; write the types of both as one array")
		}
		name := b.tag
		if _, twice := n.branch[name]; twice {
			return p.fail("the union has the type %q twice; only records, enums and fixed may occur more often, "+
				"under different names", name)
		}
		n.branch[name] = i
	}
	return nil
}

// same compares definitions of types by all that counts when one name is defined twice: not by documentation,
// aliases and the defaults of enums.
type same struct {
	seen map[[2]*node]bool
	left int
}

func sameDefinition(a, b *node, steps int) bool {
	s := &same{map[[2]*node]bool{}, steps}
	return s.definition(a, b)
}

// node compares two types where they are used. A type that is not known yet is equal to none.
func (s *same) node(a, b *node) bool {
	switch {
	case a == b:
		return true
	case a == nil || b == nil || a.kind != b.kind:
		return false
	case a.kind.named():
		return s.definition(a, b)
	case !s.props(a.props, b.props) || len(a.branches) != len(b.branches):
		return false
	case a.kind == kindArray || a.kind == kindMap:
		return s.node(a.item, b.item)
	}
	for i := range a.branches {
		if !s.node(a.branches[i], b.branches[i]) {
			return false
		}
	}
	return true
}

func (s *same) definition(a, b *node) bool {
	pair := [2]*node{a, b}
	if a == b || s.seen[pair] {
		return true
	}
	s.left -= 1 + len(a.fields) + len(a.symbols)
	if s.left < 0 {
		return false
	}
	s.seen[pair] = true
	if a.kind != b.kind || a.name != b.name || a.size != b.size || !s.props(a.props, b.props) ||
		len(a.fields) != len(b.fields) || len(a.symbols) != len(b.symbols) {
		return false
	}
	for i := range a.symbols {
		if a.symbols[i] != b.symbols[i] {
			return false
		}
	}
	for i := range a.fields {
		f, g := &a.fields[i], &b.fields[i]
		if f.name != g.name || f.order != g.order || (f.def == nil) != (g.def == nil) || !s.props(f.props, g.props) ||
			!s.node(f.node, g.node) || f.def != nil && !equalValues(f.def, g.def) {
			return false
		}
	}
	return true
}

func (s *same) props(a, b []member) bool {
	return equalValues(&value{kind: jsonObject, members: a}, &value{kind: jsonObject, members: b})
}

// equalValues compares two JSON values; the order of members does not count.
func equalValues(a, b *value) bool {
	if a.kind != b.kind || a.text != b.text || len(a.items) != len(b.items) || len(a.members) != len(b.members) {
		return false
	}
	for i := range a.items {
		if !equalValues(&a.items[i], &b.items[i]) {
			return false
		}
	}
	am, bm := ordered(a.members, true), ordered(b.members, true)
	for i := range am {
		if am[i].name != bm[i].name || !equalValues(&am[i].value, &bm[i].value) {
			return false
		}
	}
	return true
}
