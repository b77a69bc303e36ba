package protobuf

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/descriptorpb"
)

// usage is what a field holds, once its type is looked up.
type usage struct {
	kind   string // "scalar", "message", "map", "group"
	family string // of a scalar
	scalar descriptorpb.FieldDescriptorProto_Type
	named  *shapeType    // of a message or enum, nil if there is none of the name
	entry  *shapeMessage // of a map
}

// families of scalars that read each other's bytes.
func family(t descriptorpb.FieldDescriptorProto_Type) string {
	switch name := scalarName(t); name {
	case "int32", "int64", "uint32", "uint64", "bool":
		return "number"
	case "sint32", "sint64":
		return "signed number"
	case "string", "bytes":
		return "text"
	case "fixed32", "sfixed32":
		return "fixed32"
	case "fixed64", "sfixed64":
		return "fixed64"
	default:
		return name
	}
}

func scalarName(t descriptorpb.FieldDescriptorProto_Type) string {
	return strings.ToLower(strings.TrimPrefix(t.String(), "TYPE_"))
}

func (s *side) usage(f *shapeField) usage {
	if f.named == "" {
		return usage{kind: "scalar", family: family(f.scalar), scalar: f.scalar}
	}
	t := s.resolve(f.named, f.scope)
	switch {
	case t == nil:
		return usage{kind: "message"}
	case t.enum != nil:
		return usage{kind: "scalar", family: "number", scalar: descriptorpb.FieldDescriptorProto_TYPE_ENUM, named: t}
	case t.message.entry:
		return usage{kind: "map", named: t, entry: t.message}
	case f.group:
		return usage{kind: "group", named: t}
	}
	return usage{kind: "message", named: t}
}

// field compares two fields of one number.
func (c *comparison) field(was, is *shapeField) {
	if was.name != is.name {
		c.add(fieldNameChanged, was.name, is.name)
	}
	a, b := c.writer.usage(was), c.reader.usage(is)
	c.labels(was, is, a, b)
	c.usage(was, is, a, b)
}

// labels warns of what the labels mean for data where the verdict does not look at them.
func (c *comparison) labels(was, is *shapeField, a, b usage) {
	if a.kind != b.kind || a.kind == "map" {
		return
	}
	compared := a.kind == "scalar" && a.family != "text" && was.label != "" && is.label != ""
	if was.label == is.label || compared {
		return
	}
	switch {
	case is.repeated && !was.repeated:
		c.warn("the field at path '%s' is repeated in the %s schema only: it reads one value as a list", c.readerName)
	case was.repeated && !is.repeated:
		c.warn("the field at path '%s' is repeated in the %s schema only: of several values one or none is read",
			c.writerName)
	case is.label == "required":
		c.warn("the field at path '%s' is required in the %s schema only: data without it cannot be read",
			c.readerName)
	}
}

// usage compares what two fields hold.
func (c *comparison) usage(was, is *shapeField, a, b usage) {
	if !c.step() {
		return
	}
	if a.kind != b.kind {
		c.add(fieldKindChanged, a.kind, b.kind)
		return
	}
	switch a.kind {
	case "scalar":
		c.scalars(was, is, a, b)
	case "message":
		c.named(was, is, a, b)
	case "map":
		for n := int32(1); n <= 2; n++ {
			x, y := a.entry.fields[n], b.entry.fields[n]
			if x == nil || y == nil {
				continue
			}
			x, y = unlabelled(x), unlabelled(y)
			c.usage(x, y, c.writer.usage(x), c.reader.usage(y))
		}
	case "group":
		c.imported(a, b)
	}
}

// unlabelled is the key or value of a map, whose labels mean nothing.
func unlabelled(f *shapeField) *shapeField {
	g := *f
	g.label = ""
	return &g
}

func (c *comparison) scalars(was, is *shapeField, a, b usage) {
	if a.family != b.family {
		c.add(fieldScalarKindChanged, was.short(), is.short())
		return
	}
	if was.label != "" && is.label != "" && was.label != is.label {
		if a.family == "text" {
			c.add(fieldTextLabelChanged, was.short(), is.short())
		} else {
			c.add(fieldNumericLabelChanged, was.short(), is.short())
		}
	}
	switch {
	case a.scalar == b.scalar:
	case a.scalar == descriptorpb.FieldDescriptorProto_TYPE_BYTES:
		c.warn("the field at path '%s' is a string in the %s schema only: bytes that are not UTF-8 cannot be read",
			c.readerName)
	case width(b.scalar) < width(a.scalar):
		c.warn("the field at path '%s' is smaller in the %s schema: large numbers are cut", c.readerName)
	case b.named != nil && b.named.enum.closed:
		c.warn("the field at path '%s' is an enum in the %s schema only: a number that it does not list reads as not set",
			c.readerName)
	}
}

// width orders numbers by how many values they have.
func width(t descriptorpb.FieldDescriptorProto_Type) int {
	switch scalarName(t) {
	case "int64", "uint64", "sint64":
		return 64
	case "bool":
		return 1
	case "int32", "uint32", "sint32", "enum":
		return 32
	}
	return 0
}

// named compares fields that hold messages. Messages of the two files themselves are compared in their own place, and
// those of one version of one subject are the same.
func (c *comparison) named(was, is *shapeField, a, b usage) {
	if a.named == nil || b.named == nil {
		if was.named != is.named {
			c.add(fieldNamedTypeChanged, was.short(), is.short())
		}
		return
	}
	x, y := a.named, b.named
	if x.local != y.local {
		c.add(fieldNamedTypeChanged, was.short(), is.short())
		return
	}
	if x.unit == c.writer.main && y.unit == c.reader.main || x.unit == y.unit ||
		x.unit.subject != "" && x.unit.subject == y.unit.subject && x.unit.version == y.unit.version {
		return
	}
	if c.imported(a, b) > 0 {
		c.add(fieldNamedTypeChanged, was.short(), is.short())
	}
}

// imported compares messages of other files where a field holds them, under their own names, and returns how many
// incompatible differences they have. What was compared before is not listed again.
func (c *comparison) imported(a, b usage) int {
	p := pair{a.named.message, b.named.message}
	path := c.path
	c.path = strings.Split(b.named.local, ".")
	c.message(p.writer, p.reader)
	c.path = path
	return c.done[p]
}

// allFields are a message's fields, in oneofs and groups too.
func (m *message) allFields() []*field {
	out := slices.Concat(m.fields, m.groups)
	for _, o := range m.oneofs {
		out = slices.Concat(out, o.fields, o.groups)
	}
	return out
}
