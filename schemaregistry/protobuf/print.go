package protobuf

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxFieldNumber = 1<<29 - 1
	maxEnumNumber  = 1<<31 - 1
)

// printer writes a file as the registry stores it. What belongs together stands together, a blank line apart from the
// rest; a blank line in a body is indented as deep as the line that opens the body.
type printer struct {
	b     strings.Builder
	depth int
}

func (f *file) String() string {
	p := &printer{}
	switch {
	case f.edition != "":
		p.line(`edition = "` + escape(f.edition) + `";`)
	case f.syntax != "":
		p.line(`syntax = "` + escape(f.syntax) + `";`)
	}
	if f.pkg != "" {
		p.line("package " + f.pkg + ";")
	}
	p.imports(f.imports)
	if len(f.options) > 0 {
		p.blank()
		p.optionLines(f.options)
	}
	if len(f.messages)+len(f.enums) > 0 {
		p.blank()
		p.types(f.messages, f.enums)
	}
	p.extends(f.extends)
	if len(f.services) > 0 {
		p.blank()
		for _, s := range f.services {
			p.service(s)
		}
	}
	return p.b.String()
}

func (p *printer) line(s string) {
	p.indent()
	p.b.WriteString(s)
	p.b.WriteByte('\n')
}

func (p *printer) indent() {
	for range p.depth {
		p.b.WriteString("  ")
	}
}

// open starts a body; close ends it.
func (p *printer) open(s string) {
	p.indent()
	p.b.WriteString(s)
	p.depth++
}

func (p *printer) close() {
	p.depth--
	p.line("}")
}

// blank ends the line of an opening brace, or leaves a line empty.
func (p *printer) blank() {
	if strings.HasSuffix(p.b.String(), "{") {
		p.b.WriteByte('\n')
		return
	}
	for range p.depth - 1 {
		p.b.WriteString("  ")
	}
	p.b.WriteByte('\n')
}

// imports come in the order of the text, but public ones last.
func (p *printer) imports(imports []imported) {
	if len(imports) == 0 {
		return
	}
	p.blank()
	for _, public := range []bool{false, true} {
		for _, i := range imports {
			if (i.kind == "public") != public {
				continue
			}
			kind := ""
			if i.kind != "" {
				kind = i.kind + " "
			}
			p.line("import " + kind + `"` + escape(i.path) + `";`)
		}
	}
}

func (p *printer) types(messages []*message, enums []*enum) {
	for _, m := range messages {
		p.open("message " + m.name + " {")
		p.body(m)
	}
	for _, e := range enums {
		p.enum(e)
	}
}

// body writes what a message or group holds, from after its opening brace to its closing one.
func (p *printer) body(m *message) {
	p.reserved(m.reserved, maxFieldNumber)
	if len(m.options) > 0 {
		p.blank()
		p.optionLines(m.options)
	}
	p.fields(m.fields)
	if len(m.oneofs) > 0 {
		p.blank()
		for _, o := range m.oneofs {
			p.oneof(o)
		}
	}
	p.fields(m.groups)
	if len(m.ranges) > 0 {
		p.blank()
		for _, r := range m.ranges {
			p.indent()
			p.b.WriteString("extensions ")
			p.spans(r.spans, maxFieldNumber)
			p.compact(r.options)
			p.b.WriteString(";\n")
		}
	}
	p.extends(m.extends)
	if len(m.messages)+len(m.enums) > 0 {
		p.blank()
		p.types(m.messages, m.enums)
	}
	p.closeBody()
}

// closeBody closes a body, on the line of its opening if it is empty.
func (p *printer) closeBody() {
	if strings.HasSuffix(p.b.String(), "{") {
		p.depth--
		p.b.WriteString("}\n")
		return
	}
	p.close()
}

func (p *printer) reserved(reserved [][]span, most int64) {
	if len(reserved) == 0 {
		return
	}
	p.blank()
	for _, list := range reserved {
		p.indent()
		p.b.WriteString("reserved ")
		p.spans(list, most)
		p.b.WriteString(";\n")
	}
}

func (p *printer) spans(list []span, most int64) {
	for i, s := range list {
		if i > 0 {
			p.b.WriteString(", ")
		}
		switch {
		case s.name != "":
			p.b.WriteString(s.name)
		case s.first == s.last:
			p.b.WriteString(strconv.FormatInt(s.first, 10))
		case s.last >= most:
			p.b.WriteString(strconv.FormatInt(s.first, 10) + " to max")
		default:
			p.b.WriteString(strconv.FormatInt(s.first, 10) + " to " + strconv.FormatInt(s.last, 10))
		}
	}
}

func (p *printer) fields(fields []*field) {
	if len(fields) == 0 {
		return
	}
	p.blank()
	for _, f := range fields {
		p.field(f)
	}
}

func (p *printer) field(f *field) {
	p.indent()
	if f.label != "" {
		p.b.WriteString(f.label + " ")
	}
	switch {
	case f.body != nil:
		p.b.WriteString("group ")
	case f.key != "":
		p.b.WriteString("map<" + f.key + ", " + f.typ + "> ")
	default:
		p.b.WriteString(f.typ + " ")
	}
	p.b.WriteString(f.name + " = " + strconv.FormatInt(f.number, 10))
	p.compact(f.options)
	if f.body == nil {
		p.b.WriteString(";\n")
		return
	}
	p.b.WriteString(" {")
	p.depth++
	p.body(f.body)
}

func (p *printer) oneof(o *oneof) {
	p.open("oneof " + o.name + " {")
	if len(o.options) > 0 {
		p.blank()
		p.optionLines(o.options)
	}
	p.fields(o.fields)
	p.fields(o.groups)
	p.closeBody()
}

func (p *printer) extends(extends []*extend) {
	if len(extends) == 0 {
		return
	}
	p.blank()
	for _, e := range extends {
		p.open("extend " + e.typ + " {")
		p.fields(e.fields)
		p.fields(e.groups)
		p.closeBody()
	}
}

func (p *printer) enum(e *enum) {
	p.open("enum " + e.name + " {")
	p.reserved(e.reserved, maxEnumNumber)
	if len(e.reserved) == 0 && len(e.options)+len(e.values) > 0 {
		p.blank()
	}
	p.optionLines(e.options)
	for _, v := range e.values {
		p.indent()
		p.b.WriteString(v.name + " = " + strconv.FormatInt(v.number, 10))
		p.compact(v.options)
		p.b.WriteString(";\n")
	}
	p.closeBody()
}

func (p *printer) service(s *service) {
	p.open("service " + s.name + " {")
	if len(s.options) > 0 {
		p.blank()
		p.optionLines(s.options)
	}
	if len(s.methods) > 0 {
		p.blank()
	}
	for _, m := range s.methods {
		p.indent()
		p.b.WriteString("rpc " + m.name + " (" + streamed(m.input, m.streamsInput) + ") returns (" +
			streamed(m.output, m.streamsOutput) + ")")
		if len(m.options) > 0 {
			p.b.WriteString(" {\n")
			p.depth++
			p.optionLines(m.options)
			p.depth--
			p.indent()
			p.b.WriteByte('}')
		}
		p.b.WriteString(";\n")
	}
	p.closeBody()
}

func streamed(typ string, stream bool) string {
	if stream {
		return "stream " + typ
	}
	return typ
}

func (p *printer) optionLines(options []option) {
	for _, o := range options {
		p.indent()
		p.b.WriteString("option " + o.name + " = ")
		p.value(o.value)
		p.b.WriteString(";\n")
	}
}

// compact writes options in brackets: one in the line, several a line each.
func (p *printer) compact(options []option) {
	switch len(options) {
	case 0:
		return
	case 1:
		p.b.WriteString(" [" + options[0].name + " = ")
		p.value(options[0].value)
		p.b.WriteByte(']')
		return
	}
	p.b.WriteString(" [\n")
	p.depth++
	for i, o := range options {
		p.indent()
		p.b.WriteString(o.name + " = ")
		p.value(o.value)
		p.comma(i, len(options))
	}
	p.depth--
	p.indent()
	p.b.WriteByte(']')
}

func (p *printer) comma(i, n int) {
	if i < n-1 {
		p.b.WriteByte(',')
	}
	p.b.WriteByte('\n')
}

func (p *printer) value(v *value) {
	switch v.kind {
	case wordValue:
		p.b.WriteString(v.text)
	case stringValue:
		p.b.WriteString(`"` + escape(v.text) + `"`)
	case listValue:
		p.b.WriteString("[\n")
		p.depth++
		for i, e := range v.list {
			p.indent()
			p.value(e)
			p.comma(i, len(v.list))
		}
		p.depth--
		p.indent()
		p.b.WriteByte(']')
	case messageValue:
		p.b.WriteString("{\n")
		p.depth++
		for i, m := range v.fields {
			p.indent()
			p.b.WriteString(m.key + ": ")
			p.value(m.value)
			p.comma(i, len(v.fields))
		}
		p.depth--
		p.indent()
		p.b.WriteByte('}')
	}
}

// escape writes a string's content so that the language reads it back: letters as they are, what cannot be shown in
// octal.
func escape(s string) string {
	const plain = "\a\b\f\n\r\t\v\\'\""
	const named = `abfnrtv\'"`
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		at := strings.IndexByte(plain, s[i])
		switch {
		case at >= 0:
			b.WriteByte('\\')
			b.WriteByte(named[at])
		case r == utf8.RuneError && n == 1, r < ' ', r == 0x7f:
			c := s[i]
			b.Write([]byte{'\\', '0' + c>>6, '0' + c>>3&7, '0' + c&7})
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}
