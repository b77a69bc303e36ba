package avro

import (
	"strconv"
	"strings"

	"millrace/schemaregistry/schema"
)

// Schema is a parsed schema. It implements schema.Schema.
type Schema struct {
	format *Format
	deps   []schema.Dependency
	root   *node
	nodes  []*node         // all, by id
	own    int             // where those of the text itself begin
	known  map[string]bool // names of the dependencies, which stay names
	normal bool
	text   string
}

// Text implements schema.Schema.
func (s *Schema) Text() string { return s.text }

// Format implements schema.Schema. "resolved" is the text with every type written out where it is first used; where
// that is nested too deeply it is Text.
func (s *Schema) Format(name string) string {
	if name != "resolved" {
		return s.text
	}
	if text, ok := s.render(nil, s.normal, (1+depTextFactor)*s.format.limits.TextBytes); ok {
		return text
	}
	return s.text
}

// Name implements schema.Schema.
func (s *Schema) Name() string {
	if s.root.kind.named() {
		return s.root.name.full()
	}
	return ""
}

// clip is the beginning of a text that may be very long.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// describe is a type in short, for messages.
func (n *node) describe() string {
	switch n.kind {
	case kindRecord, kindEnum:
		return n.kind.String() + " " + clip(n.name.full())
	case kindFixed:
		return "fixed " + clip(n.name.full()) + "(" + strconv.Itoa(n.size) + ")"
	case kindArray, kindMap:
		return n.kind.String() + " of " + n.item.shallow()
	case kindUnion:
		text := "["
		for i, b := range n.branches {
			if i > 0 {
				text += ", "
			}
			if i == 8 {
				return text + "...]"
			}
			text += b.shallow()
		}
		return text + "]"
	default:
		if n.logical != nil {
			return n.kind.String() + " (" + n.logical.describe() + ")"
		}
		return n.kind.String()
	}
}

// shallow is describe without what the type is made of.
func (n *node) shallow() string {
	switch n.kind {
	case kindArray, kindMap, kindUnion:
		return n.kind.String()
	default:
		return n.describe()
	}
}

func (l *logicalType) describe() string {
	if l == nil {
		return "no logical type"
	}
	if l.name != "decimal" {
		return l.name
	}
	return "decimal(" + strconv.Itoa(l.precision) + "," + strconv.Itoa(l.scale) + ")"
}

// unmeasured is more than any value has bytes.
const unmeasured = 1 << 40

// measurePasses are enough for schemas that people write; after fewer than it takes the sizes are still not too large.
const measurePasses = 6

// measure finds for each node how many bytes a value has at least.
func measure(nodes []*node) {
	for pass := range measurePasses {
		changed := false
		for i := range nodes {
			n := nodes[i]
			if pass%2 == 0 { // what a type is made of mostly comes behind it
				n = nodes[len(nodes)-1-i]
			}
			if size := n.least(); size > n.minSize {
				n.minSize, changed = size, true
			}
		}
		if !changed {
			return
		}
	}
}

func (n *node) least() int {
	switch n.kind {
	case kindNull:
		return 0
	case kindFloat:
		return 4
	case kindDouble:
		return 8
	case kindFixed:
		return n.size
	case kindRecord:
		size := 0
		for i := range n.fields {
			size = min(size+n.fields[i].node.minSize, unmeasured)
		}
		return size
	case kindUnion:
		size := unmeasured
		for _, b := range n.branches {
			size = min(size, 1+b.minSize)
		}
		return size
	default:
		return 1
	}
}
