package protobuf

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// file is a schema as it is written, without comments and blanks. It is made of a text or of a descriptor, and printed.
type file struct {
	syntax   string // "proto2", "proto3"; "" if the text does not say
	edition  string // instead of syntax
	pkg      string
	imports  []imported
	options  []option
	messages []*message
	enums    []*enum
	extends  []*extend
	services []*service
}

type imported struct {
	path string
	kind string // "", "public", "weak"
}

// message is a message, or the body of a group.
type message struct {
	name     string
	options  []option
	reserved [][]span
	fields   []*field
	oneofs   []*oneof
	groups   []*field
	ranges   []extensionRange
	extends  []*extend
	messages []*message
	enums    []*enum
	mapEntry bool // said so by an option
}

// field is a field. Of a group, body is what it holds and typ is empty.
type field struct {
	label   string // "", "optional", "required", "repeated"
	typ     string // as written
	key     string // of a map; typ is then the type of its values
	name    string
	number  int64
	options []option
	body    *message
}

type oneof struct {
	name    string
	options []option
	fields  []*field
	groups  []*field
}

type enum struct {
	name     string
	options  []option
	reserved [][]span
	values   []enumValue
}

type enumValue struct {
	name    string
	number  int64
	options []option
}

// span is a reserved or extension range with both ends in it, or a reserved name.
type span struct {
	first, last int64
	name        string // quoted where the text quotes it
}

type extensionRange struct {
	spans   []span
	options []option
}

type extend struct {
	typ    string
	fields []*field
	groups []*field
}

type service struct {
	name    string
	options []option
	methods []*method
}

type method struct {
	name                        string
	input, output               string
	streamsInput, streamsOutput bool
	options                     []option
}

// option is one setting: its name as written, with parentheses and all.
type option struct {
	name  string
	value *value
}

// value is what an option is set to.
type value struct {
	kind   valueKind
	text   string // of a word, as written; of a string, what it means
	list   []*value
	fields []member
}

type valueKind int

const (
	wordValue valueKind = iota // a number, an identifier
	stringValue
	listValue
	messageValue
)

type member struct {
	key   string // with brackets, where it has them
	value *value
}

func word(s string) *value { return &value{kind: wordValue, text: s} }
func text(s string) *value { return &value{kind: stringValue, text: s} }

// bare is the name of an option without its parentheses, by which options are sorted.
func (o *option) bare() string {
	if !o.custom() {
		return o.name
	}
	return strings.ReplaceAll(strings.ReplaceAll(o.name, "(", ""), ")", "")
}

// custom reports whether the option is an extension of the language's own.
func (o *option) custom() bool { return strings.HasPrefix(o.name, "(") }

// normalize gives the order in which equal schemas look equal. Type names and options come normal from descriptors.
func (f *file) normalize() {
	if f.syntax == "proto2" {
		f.syntax = ""
	}
	slices.SortStableFunc(f.imports, func(a, b imported) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.path, b.path))
	})
	f.imports = slices.Compact(f.imports)
	f.extends = mergeExtends(f.extends)
	for _, m := range f.messages {
		m.normalize()
	}
	for _, e := range f.enums {
		e.normalize()
	}
}

func (m *message) normalize() {
	m.reserved = separate(m.reserved)
	sortFields(m.fields)
	sortFields(m.groups)
	m.oneofs = slices.DeleteFunc(m.oneofs, func(o *oneof) bool { return len(o.fields)+len(o.groups) == 0 })
	for _, o := range m.oneofs {
		sortFields(o.fields)
		sortFields(o.groups)
	}
	slices.SortStableFunc(m.oneofs, func(a, b *oneof) int { return cmp.Compare(a.first(), b.first()) })
	var ranges []extensionRange
	for _, r := range m.ranges {
		for _, s := range r.spans {
			ranges = append(ranges, extensionRange{spans: []span{s}, options: r.options})
		}
	}
	slices.SortStableFunc(ranges, func(a, b extensionRange) int {
		return cmp.Compare(a.spans[0].first, b.spans[0].first)
	})
	m.ranges = ranges
	m.extends = mergeExtends(m.extends)
	for _, n := range m.messages {
		n.normalize()
	}
	for _, e := range m.enums {
		e.normalize()
	}
}

func (e *enum) normalize() {
	e.reserved = separate(e.reserved)
	slices.SortStableFunc(e.values, func(a, b enumValue) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.name, b.name))
	})
}

// first is the lowest number in a sorted oneof.
func (o *oneof) first() int64 {
	n := int64(math.MaxInt64)
	if len(o.fields) > 0 {
		n = o.fields[0].number
	}
	if len(o.groups) > 0 {
		n = min(n, o.groups[0].number)
	}
	return n
}

// sortFields sorts fields by number, and what groups among them hold.
func sortFields(fields []*field) {
	slices.SortStableFunc(fields, func(a, b *field) int { return cmp.Compare(a.number, b.number) })
	for _, f := range fields {
		if f.body != nil {
			f.body.normalize()
		}
	}
}

// separate gives each reserved range and name a statement of its own: ranges by number, then names.
func separate(reserved [][]span) [][]span {
	var out [][]span
	for _, list := range reserved {
		for _, s := range list {
			out = append(out, []span{s})
		}
	}
	slices.SortStableFunc(out, func(a, b []span) int {
		x, y := a[0], b[0]
		if (x.name == "") != (y.name == "") {
			return cmp.Compare(len(x.name), len(y.name)) // the one without a name first
		}
		return cmp.Or(cmp.Compare(x.first, y.first), cmp.Compare(x.name, y.name))
	})
	return out
}

// mergeExtends puts the extensions of one message together, where the first of them is.
func mergeExtends(extends []*extend) []*extend {
	var out []*extend
	at := map[string]*extend{}
	for _, e := range extends {
		if first := at[e.typ]; first != nil {
			first.fields = append(first.fields, e.fields...)
			first.groups = append(first.groups, e.groups...)
			continue
		}
		at[e.typ] = e
		out = append(out, e)
	}
	for _, e := range out {
		sortFields(e.fields)
		sortFields(e.groups)
	}
	return out
}

// fold turns fields whose type is a message declared to be a map entry into maps, as they were before a tool unfolded
// them. It reports whether there were any.
func (f *file) fold() bool {
	found := false
	for _, m := range f.messages {
		found = m.fold() || found
	}
	return found
}

func (m *message) fold() bool {
	found := false
	entries := map[string]*message{}
	rest := m.messages[:0:0]
	for _, n := range m.messages {
		if n.mapEntry && len(n.fields) == 2 && n.fields[0].number+n.fields[1].number == 3 {
			entries[n.name] = n
			continue
		}
		found = n.fold() || found
		rest = append(rest, n)
	}
	used := map[string]bool{}
	for _, f := range m.fields {
		name := f.typ[strings.LastIndexByte(f.typ, '.')+1:]
		e := entries[name]
		if e == nil || f.label != "repeated" || !strings.HasSuffix("."+f.typ, "."+name) {
			continue
		}
		k, v := e.fields[0], e.fields[1]
		if k.number == 2 {
			k, v = v, k
		}
		f.label, f.key, f.typ = "", k.typ, v.typ
		used[name] = true
	}
	for _, n := range m.messages {
		if entries[n.name] == n && !used[n.name] {
			rest = append(rest, n)
		}
	}
	m.messages = rest
	return found || len(used) > 0
}

// plain is the file without extensions and without custom options, but those that describe the data.
func (f *file) plain() *file {
	c := *f
	c.options, c.extends = keepPlain(f.options), nil
	c.messages, c.enums = plainMessages(f.messages), plainEnums(f.enums)
	c.services = nil
	for _, s := range f.services {
		t := *s
		t.options, t.methods = keepPlain(s.options), nil
		for _, m := range s.methods {
			n := *m
			n.options = keepPlain(m.options)
			t.methods = append(t.methods, &n)
		}
		c.services = append(c.services, &t)
	}
	return &c
}

func (m *message) plain() *message {
	c := *m
	c.options = keepPlain(m.options)
	c.ranges, c.extends = nil, nil
	c.fields, c.groups = plainFields(m.fields), plainFields(m.groups)
	c.oneofs = nil
	for _, o := range m.oneofs {
		n := *o
		n.options, n.fields, n.groups = keepPlain(o.options), plainFields(o.fields), plainFields(o.groups)
		c.oneofs = append(c.oneofs, &n)
	}
	c.messages, c.enums = plainMessages(m.messages), plainEnums(m.enums)
	return &c
}

func plainMessages(messages []*message) []*message {
	var out []*message
	for _, m := range messages {
		out = append(out, m.plain())
	}
	return out
}

func plainFields(fields []*field) []*field {
	var out []*field
	for _, f := range fields {
		c := *f
		c.options = keepPlain(f.options)
		if f.body != nil {
			c.body = f.body.plain()
		}
		out = append(out, &c)
	}
	return out
}

func plainEnums(enums []*enum) []*enum {
	var out []*enum
	for _, e := range enums {
		c := *e
		c.options, c.values = keepPlain(e.options), nil
		for _, v := range e.values {
			v.options = keepPlain(v.options)
			c.values = append(c.values, v)
		}
		out = append(out, &c)
	}
	return out
}

func keepPlain(options []option) []option {
	var out []option
	for _, o := range options {
		if !o.custom() || strings.HasPrefix(strings.TrimPrefix(o.bare(), "."), "confluent.") {
			out = append(out, o)
		}
	}
	return out
}

// eachOption calls fn with every option of the file.
func (f *file) eachOption(fn func(*option)) {
	all := func(options []option) {
		for i := range options {
			fn(&options[i])
		}
	}
	fields := func(lists ...[]*field) {
		for _, list := range lists {
			for _, f := range list {
				all(f.options)
				if f.body != nil {
					f.body.eachOption(all)
				}
			}
		}
	}
	all(f.options)
	for _, m := range f.messages {
		m.eachOption(all)
	}
	eachEnumOption(f.enums, all)
	for _, x := range f.extends {
		fields(x.fields, x.groups)
	}
	for _, s := range f.services {
		all(s.options)
		for _, m := range s.methods {
			all(m.options)
		}
	}
}

func (m *message) eachOption(all func([]option)) {
	all(m.options)
	var fields [][]*field
	fields = append(fields, m.fields, m.groups)
	for _, o := range m.oneofs {
		all(o.options)
		fields = append(fields, o.fields, o.groups)
	}
	for _, x := range m.extends {
		fields = append(fields, x.fields, x.groups)
	}
	for _, list := range fields {
		for _, f := range list {
			all(f.options)
			if f.body != nil {
				f.body.eachOption(all)
			}
		}
	}
	for _, r := range m.ranges {
		all(r.options)
	}
	for _, n := range m.messages {
		n.eachOption(all)
	}
	eachEnumOption(m.enums, all)
}

func eachEnumOption(enums []*enum, all func([]option)) {
	for _, e := range enums {
		all(e.options)
		for _, v := range e.values {
			all(v.options)
		}
	}
}
