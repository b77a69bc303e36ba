package protobuf

import (
	"cmp"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// describer makes a file of a descriptor. Options come sorted by name, each extension under its full name.
type describer struct {
	types    *resolver
	explicit func(*descriptorpb.FieldDescriptorProto) bool // its author chose the field's name in JSON
	syntax   string
}

func (b *describer) file(d *descriptorpb.FileDescriptorProto) *file {
	f := &file{syntax: d.GetSyntax(), pkg: d.GetPackage(), options: b.options(d.GetOptions())}
	switch f.syntax {
	case "":
		f.syntax = "proto2"
	case "editions":
		f.syntax, f.edition = "", strings.TrimPrefix(d.GetEdition().String(), "EDITION_")
	}
	b.syntax = f.syntax
	for i, path := range d.GetDependency() {
		kind := ""
		if slices.Contains(d.GetPublicDependency(), int32(i)) {
			kind = "public"
		} else if slices.Contains(d.GetWeakDependency(), int32(i)) {
			kind = "weak"
		}
		f.imports = append(f.imports, imported{path, kind})
	}
	groups := groupsOf(d.GetExtension(), d.GetMessageType(), d.GetPackage())
	for _, m := range d.GetMessageType() {
		if groups[m.GetName()] == nil {
			f.messages = append(f.messages, b.message(m, join(d.GetPackage(), m.GetName())))
		}
	}
	for _, e := range d.GetEnumType() {
		f.enums = append(f.enums, b.enum(e))
	}
	f.extends = b.extends(d.GetExtension(), groups, d.GetPackage())
	for _, s := range d.GetService() {
		v := &service{name: s.GetName(), options: b.options(s.GetOptions())}
		for _, m := range s.GetMethod() {
			v.methods = append(v.methods, &method{
				name: m.GetName(), input: m.GetInputType(), output: m.GetOutputType(),
				streamsInput: m.GetClientStreaming(), streamsOutput: m.GetServerStreaming(),
				options: b.options(m.GetOptions()),
			})
		}
		f.services = append(f.services, v)
	}
	return f
}

func join(scope, name string) string {
	if scope == "" {
		return name
	}
	return scope + "." + name
}

// groupsOf finds the messages that are bodies of groups of the same scope.
func groupsOf(
	fields []*descriptorpb.FieldDescriptorProto, nested []*descriptorpb.DescriptorProto, scope string,
) map[string]*descriptorpb.DescriptorProto {
	names := map[string]bool{}
	for _, f := range fields {
		if f.GetType() == descriptorpb.FieldDescriptorProto_TYPE_GROUP {
			if local, ok := strings.CutPrefix(f.GetTypeName(), strings.TrimSuffix("."+scope, ".")+"."); ok {
				names[local] = true
			}
		}
	}
	out := map[string]*descriptorpb.DescriptorProto{}
	for _, m := range nested {
		if names[m.GetName()] {
			out[m.GetName()] = m
		}
	}
	return out
}

func (b *describer) message(d *descriptorpb.DescriptorProto, full string) *message {
	m := &message{name: d.GetName(), options: b.options(d.GetOptions())}
	groups := groupsOf(slices.Concat(d.GetField(), d.GetExtension()), d.GetNestedType(), full)
	maps := map[string]*descriptorpb.DescriptorProto{}
	for _, n := range d.GetNestedType() {
		switch {
		case n.GetOptions().GetMapEntry():
			maps["."+full+"."+n.GetName()] = n
		case groups[n.GetName()] == nil:
			m.messages = append(m.messages, b.message(n, full+"."+n.GetName()))
		}
	}
	oneofs := make([]*oneof, len(d.GetOneofDecl()))
	for i, o := range d.GetOneofDecl() {
		oneofs[i] = &oneof{name: o.GetName(), options: b.options(o.GetOptions())}
	}
	for _, f := range d.GetField() {
		out := b.field(f, maps, groups, full)
		switch {
		case f.OneofIndex != nil && !f.GetProto3Optional():
			o := oneofs[f.GetOneofIndex()]
			out.label = ""
			if out.body != nil {
				o.groups = append(o.groups, out)
			} else {
				o.fields = append(o.fields, out)
			}
		case out.body != nil:
			m.groups = append(m.groups, out)
		default:
			m.fields = append(m.fields, out)
		}
	}
	for _, o := range oneofs {
		if len(o.fields)+len(o.groups) > 0 {
			m.oneofs = append(m.oneofs, o)
		}
	}
	for _, e := range d.GetEnumType() {
		m.enums = append(m.enums, b.enum(e))
	}
	m.extends = b.extends(d.GetExtension(), groups, full)
	for _, r := range d.GetExtensionRange() {
		s := span{first: int64(r.GetStart()), last: int64(r.GetEnd()) - 1}
		m.ranges = append(m.ranges, extensionRange{[]span{s}, b.options(r.GetOptions())})
	}
	for _, r := range d.GetReservedRange() {
		m.reserved = append(m.reserved, []span{{first: int64(r.GetStart()), last: int64(r.GetEnd()) - 1}})
	}
	m.reserved = append(m.reserved, b.reservedNames(d.GetReservedName())...)
	return m
}

// reservedNames are strings before editions, and identifiers since.
func (b *describer) reservedNames(names []string) [][]span {
	var out [][]span
	for _, n := range names {
		if b.syntax != "" {
			n = `"` + escape(n) + `"`
		}
		out = append(out, []span{{name: n}})
	}
	return out
}

func (b *describer) field(
	d *descriptorpb.FieldDescriptorProto, maps, groups map[string]*descriptorpb.DescriptorProto, scope string,
) *field {
	f := &field{name: d.GetName(), number: int64(d.GetNumber()), typ: typeName(d)}
	switch {
	case d.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REPEATED:
		f.label = "repeated"
	case d.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REQUIRED:
		f.label = "required"
	case b.syntax == "proto2" || d.GetProto3Optional():
		f.label = "optional"
	}
	if entry := maps[d.GetTypeName()]; entry != nil {
		f.label = ""
		for _, e := range entry.GetField() {
			if e.GetNumber() == 1 {
				f.key = typeName(e)
			} else {
				f.typ = typeName(e)
			}
		}
	}
	if d.GetType() == descriptorpb.FieldDescriptorProto_TYPE_GROUP {
		name := d.GetTypeName()[strings.LastIndexByte(d.GetTypeName(), '.')+1:]
		if body := groups[name]; body != nil {
			f.name, f.typ, f.body = name, "", b.message(body, join(scope, name))
		}
	}
	f.options = b.options(d.GetOptions())
	if d.DefaultValue != nil {
		f.options = append(f.options, option{"default", defaultValue(d)})
	}
	if b.explicit(d) {
		f.options = append(f.options, option{"json_name", text(d.GetJsonName())})
	}
	sortOptions(f.options)
	return f
}

func typeName(d *descriptorpb.FieldDescriptorProto) string {
	if d.TypeName != nil {
		return d.GetTypeName()
	}
	return strings.ToLower(strings.TrimPrefix(d.GetType().String(), "TYPE_"))
}

func defaultValue(d *descriptorpb.FieldDescriptorProto) *value {
	s := d.GetDefaultValue()
	switch d.GetType() {
	case descriptorpb.FieldDescriptorProto_TYPE_STRING:
		return text(s)
	case descriptorpb.FieldDescriptorProto_TYPE_BYTES:
		return text(unescape(s))
	case descriptorpb.FieldDescriptorProto_TYPE_FLOAT, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE:
		bits := 64
		if d.GetType() == descriptorpb.FieldDescriptorProto_TYPE_FLOAT {
			bits = 32
		}
		if n, err := strconv.ParseFloat(s, bits); err == nil {
			return word(number(n, bits))
		}
	}
	return word(s)
}

// unescape reads the bytes that a descriptor keeps with backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; {
		case c >= '0' && c <= '7':
			n := 0
			for j := 0; j < 3 && i < len(s) && s[i] >= '0' && s[i] <= '7'; j++ {
				n = n*8 + int(s[i]-'0')
				i++
			}
			i--
			b.WriteByte(byte(n))
		case (c == 'x' || c == 'X') && i+2 < len(s):
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err == nil {
				b.WriteByte(byte(n))
				i += 2
			}
		default:
			if at := strings.IndexByte("abfnrtv", c); at >= 0 {
				c = "\a\b\f\n\r\t\v"[at]
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}

func (b *describer) enum(d *descriptorpb.EnumDescriptorProto) *enum {
	e := &enum{name: d.GetName(), options: b.options(d.GetOptions())}
	for _, v := range d.GetValue() {
		e.values = append(e.values, enumValue{v.GetName(), int64(v.GetNumber()), b.options(v.GetOptions())})
	}
	for _, r := range d.GetReservedRange() {
		e.reserved = append(e.reserved, []span{{first: int64(r.GetStart()), last: int64(r.GetEnd())}})
	}
	e.reserved = append(e.reserved, b.reservedNames(d.GetReservedName())...)
	return e
}

func (b *describer) extends(
	fields []*descriptorpb.FieldDescriptorProto, groups map[string]*descriptorpb.DescriptorProto, scope string,
) []*extend {
	var out []*extend
	for _, d := range fields {
		if len(out) == 0 || out[len(out)-1].typ != d.GetExtendee() {
			out = append(out, &extend{typ: d.GetExtendee()})
		}
		x := out[len(out)-1]
		if f := b.field(d, nil, groups, scope); f.body != nil {
			x.groups = append(x.groups, f)
		} else {
			x.fields = append(x.fields, f)
		}
	}
	return out
}

// options lists what a message of options says. Extensions that no file declares are lost.
func (b *describer) options(m proto.Message) []option {
	r := m.ProtoReflect()
	if !r.IsValid() {
		return nil
	}
	raw, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil || len(raw) == 0 {
		return nil
	}
	fresh := r.New()
	if (proto.UnmarshalOptions{Resolver: b.types, AllowPartial: true}).Unmarshal(raw, fresh.Interface()) != nil {
		return nil
	}
	var out []option
	fresh.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case f.IsExtension():
			name = "(" + string(f.FullName()) + ")"
		case name == "map_entry", name == "uninterpreted_option":
			return true
		}
		if f.IsList() {
			for i := range v.List().Len() {
				out = append(out, option{name, optionValue(f, v.List().Get(i))})
			}
			return true
		}
		out = append(out, option{name, optionValue(f, v)})
		return true
	})
	sortOptions(out)
	return out
}

// optionValue is one value of a field of an option.
func optionValue(f protoreflect.FieldDescriptor, v protoreflect.Value) *value {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return literal(v.Message())
	case protoreflect.StringKind:
		return text(v.String())
	case protoreflect.BytesKind:
		return text(string(v.Bytes()))
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return word(string(e.Name()))
		}
		return word(itoa(int(v.Enum())))
	case protoreflect.FloatKind:
		return word(number(v.Float(), 32))
	case protoreflect.DoubleKind:
		return word(number(v.Float(), 64))
	default:
		return word(v.String())
	}
}

// literal is a message within an option: its fields by name, a list of one as the one.
func literal(m protoreflect.Message) *value {
	out := &value{kind: messageValue}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		key := f.TextName()
		switch {
		case f.IsMap():
			out.fields = append(out.fields, member{key, entries(f, v.Map())})
		case f.IsList():
			list := &value{kind: listValue}
			for i := range v.List().Len() {
				list.list = append(list.list, optionValue(f, v.List().Get(i)))
			}
			out.fields = append(out.fields, member{key, list.single()})
		default:
			out.fields = append(out.fields, member{key, optionValue(f, v)})
		}
		return true
	})
	slices.SortFunc(out.fields, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	return out
}

func (v *value) single() *value {
	if len(v.list) == 1 {
		return v.list[0]
	}
	return v
}

func entries(f protoreflect.FieldDescriptor, m protoreflect.Map) *value {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return cmp.Compare(a.String(), b.String()) })
	out := &value{kind: listValue}
	for _, k := range keys {
		out.list = append(out.list, &value{kind: messageValue, fields: []member{
			{"key", optionValue(f.MapKey(), k.Value())}, {"value", optionValue(f.MapValue(), m.Get(k))},
		}})
	}
	return out.single()
}

// number is the shortest text of a float that reads back as the same.
func number(n float64, bits int) string {
	switch {
	case math.IsInf(n, 1):
		return "inf"
	case math.IsInf(n, -1):
		return "-inf"
	case math.IsNaN(n):
		return "nan"
	case n != 0 && (math.Abs(n) < 1e-6 || math.Abs(n) >= 1e17):
		return strconv.FormatFloat(n, 'e', -1, bits)
	}
	return strconv.FormatFloat(n, 'f', -1, bits)
}

func itoa(n int) string { return strconv.Itoa(n) }

func encoded(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }

// camel is the name that a field has in JSON unless its author chooses another.
func camel(name string) string {
	var b strings.Builder
	up := false
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_':
			up = true
			continue
		case up && c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
		}
		up = false
		b.WriteByte(c)
	}
	return b.String()
}
