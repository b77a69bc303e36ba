package protobuf

import (
	"strings"

	"github.com/bufbuild/protocompile/ast"
)

// source makes a file of a parsed text. Names, numbers and options stay as the author wrote them.
type source struct {
	node *ast.FileNode
}

func fromSource(node *ast.FileNode) *file {
	s := source{node}
	f := &file{}
	if node.Syntax != nil {
		f.syntax = node.Syntax.Syntax.AsString()
	}
	if node.Edition != nil {
		f.edition = node.Edition.Edition.AsString()
	}
	for _, d := range node.Decls {
		switch d := d.(type) {
		case *ast.PackageNode:
			f.pkg = string(d.Name.AsIdentifier())
		case *ast.ImportNode:
			i := imported{path: d.Name.AsString()}
			if d.Public != nil {
				i.kind = "public"
			} else if d.Weak != nil {
				i.kind = "weak"
			}
			f.imports = append(f.imports, i)
		case *ast.OptionNode:
			f.options = append(f.options, s.option(d))
		case *ast.MessageNode:
			f.messages = append(f.messages, s.message(d.Name.Val, &d.MessageBody))
		case *ast.EnumNode:
			f.enums = append(f.enums, s.enum(d))
		case *ast.ExtendNode:
			f.extends = append(f.extends, s.extend(d))
		case *ast.ServiceNode:
			f.services = append(f.services, s.service(d))
		}
	}
	return f
}

func (s source) message(name string, body *ast.MessageBody) *message {
	m := &message{name: name}
	for _, d := range body.Decls {
		switch d := d.(type) {
		case *ast.OptionNode:
			o := s.option(d)
			m.mapEntry = m.mapEntry || o.name == "map_entry" && o.value.text == "true"
			m.options = append(m.options, o)
		case *ast.FieldNode:
			m.fields = append(m.fields, s.field(d))
		case *ast.MapFieldNode:
			m.fields = append(m.fields, &field{
				key: d.MapType.KeyType.Val, typ: string(d.MapType.ValueType.AsIdentifier()),
				name: d.Name.Val, number: int64(d.Tag.Val), options: s.compact(d.Options),
			})
		case *ast.GroupNode:
			m.groups = append(m.groups, s.group(d))
		case *ast.OneofNode:
			m.oneofs = append(m.oneofs, s.oneof(d))
		case *ast.MessageNode:
			m.messages = append(m.messages, s.message(d.Name.Val, &d.MessageBody))
		case *ast.EnumNode:
			m.enums = append(m.enums, s.enum(d))
		case *ast.ExtendNode:
			m.extends = append(m.extends, s.extend(d))
		case *ast.ExtensionRangeNode:
			m.ranges = append(m.ranges, extensionRange{ranges(d.Ranges, maxFieldNumber), s.compact(d.Options)})
		case *ast.ReservedNode:
			m.reserved = append(m.reserved, reserved(d, maxFieldNumber))
		}
	}
	return m
}

func (s source) field(d *ast.FieldNode) *field {
	return &field{
		label: label(d.Label), typ: string(d.FldType.AsIdentifier()),
		name: d.Name.Val, number: int64(d.Tag.Val), options: s.compact(d.Options),
	}
}

func (s source) group(d *ast.GroupNode) *field {
	return &field{
		label: label(d.Label), name: d.Name.Val, number: int64(d.Tag.Val), options: s.compact(d.Options),
		body: s.message(d.Name.Val, &d.MessageBody),
	}
}

func label(l ast.FieldLabel) string {
	if l.KeywordNode == nil {
		return ""
	}
	return l.Val
}

func (s source) oneof(d *ast.OneofNode) *oneof {
	o := &oneof{name: d.Name.Val}
	for _, e := range d.Decls {
		switch e := e.(type) {
		case *ast.OptionNode:
			o.options = append(o.options, s.option(e))
		case *ast.FieldNode:
			o.fields = append(o.fields, s.field(e))
		case *ast.GroupNode:
			o.groups = append(o.groups, s.group(e))
		}
	}
	return o
}

func (s source) extend(d *ast.ExtendNode) *extend {
	x := &extend{typ: string(d.Extendee.AsIdentifier())}
	for _, e := range d.Decls {
		switch e := e.(type) {
		case *ast.FieldNode:
			x.fields = append(x.fields, s.field(e))
		case *ast.GroupNode:
			x.groups = append(x.groups, s.group(e))
		}
	}
	return x
}

func (s source) enum(d *ast.EnumNode) *enum {
	e := &enum{name: d.Name.Val}
	for _, x := range d.Decls {
		switch x := x.(type) {
		case *ast.OptionNode:
			e.options = append(e.options, s.option(x))
		case *ast.EnumValueNode:
			n, _ := x.Number.AsInt64()
			e.values = append(e.values, enumValue{name: x.Name.Val, number: n, options: s.compact(x.Options)})
		case *ast.ReservedNode:
			e.reserved = append(e.reserved, reserved(x, maxEnumNumber))
		}
	}
	return e
}

func (s source) service(d *ast.ServiceNode) *service {
	v := &service{name: d.Name.Val}
	for _, x := range d.Decls {
		switch x := x.(type) {
		case *ast.OptionNode:
			v.options = append(v.options, s.option(x))
		case *ast.RPCNode:
			m := &method{
				name:  x.Name.Val,
				input: string(x.Input.MessageType.AsIdentifier()), streamsInput: x.Input.Stream != nil,
				output: string(x.Output.MessageType.AsIdentifier()), streamsOutput: x.Output.Stream != nil,
			}
			for _, e := range x.Decls {
				if o, ok := e.(*ast.OptionNode); ok {
					m.options = append(m.options, s.option(o))
				}
			}
			v.methods = append(v.methods, m)
		}
	}
	return v
}

func reserved(d *ast.ReservedNode, most int64) []span {
	list := ranges(d.Ranges, most)
	for _, n := range d.Names {
		list = append(list, span{name: `"` + escape(n.AsString()) + `"`})
	}
	for _, n := range d.Identifiers {
		list = append(list, span{name: n.Val})
	}
	return list
}

func ranges(nodes []*ast.RangeNode, most int64) []span {
	var list []span
	for _, r := range nodes {
		first, _ := r.StartVal.AsInt64()
		last := first
		if r.EndVal != nil {
			last, _ = r.EndVal.AsInt64()
		} else if r.Max != nil {
			last = most
		}
		list = append(list, span{first: first, last: last})
	}
	return list
}

func (s source) compact(n *ast.CompactOptionsNode) []option {
	if n == nil {
		return nil
	}
	var out []option
	for _, o := range n.Options {
		out = append(out, s.option(o))
	}
	return out
}

func (s source) option(n *ast.OptionNode) option {
	var b strings.Builder
	for i, part := range n.Name.Parts {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part.Value())
	}
	return option{name: b.String(), value: s.value(n.Val)}
}

func (s source) value(n ast.ValueNode) *value {
	switch n := n.(type) {
	case ast.StringValueNode:
		return text(n.AsString())
	case *ast.ArrayLiteralNode:
		v := &value{kind: listValue}
		for _, e := range n.Elements {
			v.list = append(v.list, s.value(e))
		}
		return v
	case *ast.MessageLiteralNode:
		v := &value{kind: messageValue}
		for _, e := range n.Elements {
			v.fields = append(v.fields, member{key: e.Name.Value(), value: s.value(e.Val)})
		}
		return v
	case ast.IdentValueNode:
		return word(string(n.AsIdentifier()))
	}
	// A number. A blank or comment may stand after its sign.
	raw := s.node.NodeInfo(n).RawText()
	if rest, ok := strings.CutPrefix(raw, "-"); ok {
		if c, ok := n.(ast.CompositeNode); ok {
			children := c.Children()
			rest = s.node.NodeInfo(children[len(children)-1]).RawText()
		}
		raw = "-" + rest
	}
	return word(raw)
}
