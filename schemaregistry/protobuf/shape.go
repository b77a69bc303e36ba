package protobuf

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/descriptorpb"
)

// shape is what comparing looks at in one file. It is made of descriptors whether they compile or not, so type names
// may be relative.
type shape struct {
	messages []*shapeMessage
	enums    []*shapeEnum
	types    map[string]*shapeType // by full name
}

// shapeType is a message or an enum, and where it comes from.
type shapeType struct {
	local   string // its name without the package
	unit    *unit
	message *shapeMessage
	enum    *shapeEnum
}

type shapeMessage struct {
	name     string
	full     string
	fields   map[int32]*shapeField
	oneofs   []*shapeOneof
	messages []*shapeMessage // without entries of maps and bodies of groups
	enums    []*shapeEnum
	entry    bool // of a map
	group    bool // the body of one
}

type shapeOneof struct {
	name    string
	numbers []int32
}

type shapeField struct {
	name     string
	number   int32
	label    string // as far as stated
	repeated bool
	scalar   descriptorpb.FieldDescriptorProto_Type // 0 of a named type
	named    string                                 // as written
	scope    string                                 // in which it is written
	group    bool                                   // encoded as a group
	oneof    string
}

type shapeEnum struct {
	name   string
	values []shapeValue
	closed bool
}

type shapeValue struct {
	number int32
	name   string
}

// shaper makes a shape. Editions let files, messages and fields say what earlier languages fixed.
type shaper struct {
	unit   *unit
	shape  *shape
	syntax string
}

func newShape(u *unit) *shape {
	d := u.proto
	b := shaper{unit: u, syntax: d.GetSyntax(), shape: &shape{types: map[string]*shapeType{}}}
	features := d.GetOptions().GetFeatures()
	groups := groupsOf(d.GetExtension(), d.GetMessageType(), d.GetPackage())
	for _, m := range d.GetMessageType() {
		out := b.message(m, d.GetPackage(), features)
		if out.group = groups[m.GetName()] != nil; !out.group {
			b.shape.messages = append(b.shape.messages, out)
		}
	}
	for _, e := range d.GetEnumType() {
		b.shape.enums = append(b.shape.enums, b.enum(e, d.GetPackage(), features))
	}
	return b.shape
}

func (b *shaper) declare(full string, t *shapeType) {
	t.unit = b.unit
	t.local = strings.TrimPrefix(full, b.unit.proto.GetPackage()+".")
	b.shape.types[full] = t
}

func (b *shaper) message(d *descriptorpb.DescriptorProto, scope string,
	features *descriptorpb.FeatureSet) *shapeMessage {
	m := &shapeMessage{name: d.GetName(), full: join(scope, d.GetName()), fields: map[int32]*shapeField{}}
	m.entry = d.GetOptions().GetMapEntry()
	features = inherit(features, d.GetOptions().GetFeatures())
	b.declare(m.full, &shapeType{message: m})
	oneofs := make([]*shapeOneof, len(d.GetOneofDecl()))
	for i, o := range d.GetOneofDecl() {
		oneofs[i] = &shapeOneof{name: o.GetName()}
	}
	for _, f := range d.GetField() {
		out := b.field(f, m.full, inherit(features, f.GetOptions().GetFeatures()))
		m.fields[out.number] = out
		if i := int(f.GetOneofIndex()); f.OneofIndex != nil && !f.GetProto3Optional() && i < len(oneofs) {
			out.oneof, out.label = oneofs[i].name, ""
			oneofs[i].numbers = append(oneofs[i].numbers, out.number)
		}
	}
	for _, o := range oneofs {
		if len(o.numbers) > 0 {
			m.oneofs = append(m.oneofs, o)
		}
	}
	groups := groupsOf(slices.Concat(d.GetField(), d.GetExtension()), d.GetNestedType(), m.full)
	for _, n := range d.GetNestedType() {
		out := b.message(n, m.full, features)
		if out.group = groups[n.GetName()] != nil || isGroup(d, n); !out.group && !out.entry {
			m.messages = append(m.messages, out)
		}
	}
	for _, e := range d.GetEnumType() {
		m.enums = append(m.enums, b.enum(e, m.full, features))
	}
	return m
}

// isGroup finds bodies of groups whose field names them relatively.
func isGroup(d, nested *descriptorpb.DescriptorProto) bool {
	return slices.ContainsFunc(d.GetField(), func(f *descriptorpb.FieldDescriptorProto) bool {
		return f.GetType() == descriptorpb.FieldDescriptorProto_TYPE_GROUP && f.GetTypeName() == nested.GetName()
	})
}

func (b *shaper) field(d *descriptorpb.FieldDescriptorProto, scope string,
	features *descriptorpb.FeatureSet) *shapeField {
	f := &shapeField{name: d.GetName(), number: d.GetNumber(), scope: scope, named: d.GetTypeName()}
	if d.TypeName == nil {
		f.scalar = d.GetType()
	}
	f.repeated = d.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	f.group = d.GetType() == descriptorpb.FieldDescriptorProto_TYPE_GROUP
	switch b.syntax {
	case "proto3":
		if d.GetProto3Optional() {
			f.label = "optional"
		}
	case "editions":
		if features.GetFieldPresence() == descriptorpb.FeatureSet_LEGACY_REQUIRED {
			f.label = "required"
		}
		f.group = f.group || features.GetMessageEncoding() == descriptorpb.FeatureSet_DELIMITED
	default:
		f.label = strings.ToLower(strings.TrimPrefix(d.GetLabel().String(), "LABEL_"))
	}
	if f.repeated {
		f.label = "repeated"
	}
	return f
}

func (b *shaper) enum(d *descriptorpb.EnumDescriptorProto, scope string,
	features *descriptorpb.FeatureSet) *shapeEnum {
	e := &shapeEnum{name: d.GetName()}
	switch b.syntax {
	case "proto3":
	case "editions":
		e.closed = inherit(features, d.GetOptions().GetFeatures()).GetEnumType() == descriptorpb.FeatureSet_CLOSED
	default:
		e.closed = true
	}
	for _, v := range d.GetValue() {
		e.values = append(e.values, shapeValue{v.GetNumber(), v.GetName()})
	}
	b.declare(join(scope, e.name), &shapeType{enum: e})
	return e
}

// inherit is what holds within: what is said there, and else what holds around it.
func inherit(outer, inner *descriptorpb.FeatureSet) *descriptorpb.FeatureSet {
	if inner == nil || outer == nil {
		if inner == nil {
			return outer
		}
		return inner
	}
	out := &descriptorpb.FeatureSet{
		FieldPresence: outer.FieldPresence, MessageEncoding: outer.MessageEncoding, EnumType: outer.EnumType,
	}
	if inner.FieldPresence != nil {
		out.FieldPresence = inner.FieldPresence
	}
	if inner.MessageEncoding != nil {
		out.MessageEncoding = inner.MessageEncoding
	}
	if inner.EnumType != nil {
		out.EnumType = inner.EnumType
	}
	return out
}

// side is one of two schemas that are compared: its own shape, and the types of all its files.
type side struct {
	shape   *shape
	main    *unit
	imports map[string]*shapeType
	library map[string]*unit
}

func newSide(lib *library, main *unit, deps []*unit) *side {
	out := &side{shape: newShape(main), main: main, imports: map[string]*shapeType{}, library: lib.files}
	for _, u := range deps {
		maps.Copy(out.imports, newShape(u).types)
	}
	return out
}

func (s *side) lookUp(full string) *shapeType {
	if t := s.shape.types[full]; t != nil {
		return t
	}
	if t := s.imports[full]; t != nil {
		return t
	}
	if !strings.HasPrefix(full, "google.") && !strings.HasPrefix(full, "confluent.") {
		return nil
	}
	for _, u := range s.library {
		if t := u.shape.types[full]; t != nil {
			return t
		}
	}
	return nil
}

// resolve finds a type by a name as written in a scope: from the inside out, nil if there is none.
func (s *side) resolve(name, scope string) *shapeType {
	if full, ok := strings.CutPrefix(name, "."); ok {
		return s.lookUp(full)
	}
	for {
		if t := s.lookUp(join(scope, name)); t != nil {
			return t
		}
		if scope == "" {
			return nil
		}
		scope = scope[:max(strings.LastIndexByte(scope, '.'), 0)]
	}
}
