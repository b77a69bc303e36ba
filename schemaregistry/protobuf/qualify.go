package protobuf

import (
	"cmp"
	"slices"
)

// qualify does for a file that does not compile what a descriptor does for others: it writes out the type names that it
// can resolve, and sorts options.
func (f *file) qualify(s *side) {
	q := qualifier{s}
	f.eachOption(func(o *option) { o.value = o.value.sorted() })
	sortOptions(f.options)
	for _, m := range f.messages {
		q.message(m, join(f.pkg, m.name))
	}
	q.enums(f.enums)
	q.extends(f.extends, f.pkg)
	for _, v := range f.services {
		sortOptions(v.options)
		for _, m := range v.methods {
			m.input, m.output = q.name(m.input, f.pkg), q.name(m.output, f.pkg)
			sortOptions(m.options)
		}
	}
}

type qualifier struct{ side *side }

func (q qualifier) name(name, scope string) string {
	t := q.side.resolve(name, scope)
	if t == nil || len(name) > 0 && name[0] == '.' {
		return name
	}
	return "." + join(t.unit.proto.GetPackage(), t.local)
}

func (q qualifier) message(m *message, scope string) {
	sortOptions(m.options)
	q.fields(m.fields, scope)
	q.fields(m.groups, scope)
	for _, o := range m.oneofs {
		sortOptions(o.options)
		q.fields(o.fields, scope)
		q.fields(o.groups, scope)
	}
	q.extends(m.extends, scope)
	for _, n := range m.messages {
		q.message(n, scope+"."+n.name)
	}
	q.enums(m.enums)
}

func (q qualifier) fields(fields []*field, scope string) {
	for _, f := range fields {
		sortOptions(f.options)
		if f.body != nil {
			q.message(f.body, join(scope, f.body.name))
		} else {
			f.typ = q.name(f.typ, scope)
		}
	}
}

func (q qualifier) enums(enums []*enum) {
	for _, e := range enums {
		sortOptions(e.options)
		for _, v := range e.values {
			sortOptions(v.options)
		}
	}
}

func (q qualifier) extends(extends []*extend, scope string) {
	for _, x := range extends {
		x.typ = q.name(x.typ, scope)
		q.fields(x.fields, scope)
		q.fields(x.groups, scope)
	}
}

// sorted is the value with the fields of messages in it by name, and lists of one as the one.
func (v *value) sorted() *value {
	out := &value{kind: v.kind, text: v.text}
	for _, e := range v.list {
		out.list = append(out.list, e.sorted())
	}
	for _, m := range v.fields {
		out.fields = append(out.fields, member{m.key, m.value.sorted()})
	}
	slices.SortStableFunc(out.fields, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	return out.single()
}

func sortOptions(options []option) {
	slices.SortStableFunc(options, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.bare(), b.bare()), cmp.Compare(a.name, b.name))
	})
}
