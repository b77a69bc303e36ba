package protobuf

import (
	"slices"
	"strings"

	"millrace/schemaregistry/schema"
)

const (
	recordEntity = "sr_record"
	fieldEntity  = "sr_field"
	messageMeta  = "confluent.message_meta"
	fieldMeta    = "confluent.field_meta"
)

// Entities lists messages and fields with inline tags. Paths are names after a leading dot, without the package.
func (s *parsed) Entities() []schema.Tagged {
	var out []schema.Tagged
	for _, m := range s.written.messages {
		out = m.tagged(out, "."+m.name)
	}
	return out
}

func (m *message) tagged(out []schema.Tagged, path string) []schema.Tagged {
	add := func(options []option, meta, path, entity string) {
		if tags := metaOf(options, meta).tags(); len(tags) > 0 {
			out = append(out, schema.Tagged{Entity: schema.Entity{Path: path, Type: entity}, Tags: tags})
		}
	}
	add(m.options, messageMeta, path, recordEntity)
	for _, f := range m.allFields() {
		add(f.options, fieldMeta, path+"."+f.name, fieldEntity)
	}
	for _, n := range m.messages {
		out = n.tagged(out, path+"."+n.name)
	}
	return out
}

// WithTags is the text with tags removed and then added. The options that hold the tags become one. As in other
// registries they are not imported: they are known without.
func (s *parsed) WithTags(add, remove []schema.Tagged) (string, error) {
	node, err := parse(s.main.name, s.text)
	if err != nil {
		return "", err
	}
	f := fromSource(node)
	for _, t := range remove {
		if err := f.retag(t, func(tags []string) []string {
			return slices.DeleteFunc(tags, func(tag string) bool { return slices.Contains(t.Tags, tag) })
		}); err != nil {
			return "", err
		}
	}
	for _, t := range add {
		if err := f.retag(t, func(tags []string) []string {
			for _, tag := range t.Tags {
				if !slices.Contains(tags, tag) {
					tags = append(tags, tag)
				}
			}
			return tags
		}); err != nil {
			return "", err
		}
	}
	return f.String(), nil
}

// retag changes the tags of one entity.
func (f *file) retag(t schema.Tagged, change func([]string) []string) error {
	var options *[]option
	meta := messageMeta
	switch t.Entity.Type {
	case recordEntity:
		m := f.lookUp(t.Entity.Path)
		if m == nil {
			return schema.Invalid("the schema has no message %q", t.Entity.Path)
		}
		options = &m.options
	case fieldEntity:
		x := f.lookUpField(t.Entity.Path)
		if x == nil {
			return schema.Invalid("the schema has no field %q", t.Entity.Path)
		}
		options, meta = &x.options, fieldMeta
	default:
		return schema.Invalid("tags go on sr_record and sr_field, not on %q", t.Entity.Type)
	}
	old := metaOf(*options, meta)
	tags := change(old.tags())
	if slices.Equal(tags, old.tags()) {
		return nil
	}
	old.setTags(tags)
	*options = withMeta(*options, meta, old)
	return nil
}

// lookUp finds a message by the names on the way to it, with or without a leading dot and the package.
func (f *file) lookUp(path string) *message {
	path = strings.TrimPrefix(path, ".")
	if m := lookUp(f.messages, path); m != nil {
		return m
	}
	if local, ok := strings.CutPrefix(path, f.pkg+"."); ok && f.pkg != "" {
		return lookUp(f.messages, local)
	}
	return nil
}

func lookUp(messages []*message, path string) *message {
	name, rest, deeper := strings.Cut(path, ".")
	for _, m := range messages {
		switch {
		case m.name != name:
		case deeper:
			return lookUp(m.messages, rest)
		default:
			return m
		}
	}
	return nil
}

// lookUpField finds a field by its message's path and its name; the name of its oneof may stand between.
func (f *file) lookUpField(path string) *field {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return nil
	}
	within, name := path[:i], path[i+1:]
	is := func(f *field) bool { return f.name == name }
	if m := f.lookUp(within); m != nil {
		all := m.allFields()
		if at := slices.IndexFunc(all, is); at >= 0 {
			return all[at]
		}
		return nil
	}
	i = strings.LastIndexByte(within, '.')
	if i < 0 {
		return nil
	}
	m := f.lookUp(within[:i])
	if m == nil {
		return nil
	}
	for _, o := range m.oneofs {
		if at := slices.IndexFunc(o.fields, is); at >= 0 && o.name == within[i+1:] {
			return o.fields[at]
		}
	}
	return nil
}

// isMeta reports whether an option is the one with this full name or sets a part of it, and which.
func isMeta(o *option, meta string) (part string, ok bool) {
	name, ok := strings.CutPrefix(o.name, "(")
	if !ok {
		return "", false
	}
	rest, ok := strings.CutPrefix(strings.TrimPrefix(name, "."), meta+")")
	return strings.TrimPrefix(rest, "."), ok
}

// metaOf puts together all that options say of one message-valued option. It is a copy at the top.
func metaOf(options []option, meta string) *value {
	out := &value{kind: messageValue}
	for i := range options {
		part, ok := isMeta(&options[i], meta)
		if !ok {
			continue
		}
		if part == "" {
			for _, m := range options[i].value.fields {
				out.put(m.key, m.value)
			}
			continue
		}
		names := strings.Split(part, ".")
		v := options[i].value
		for _, name := range slices.Backward(names[1:]) {
			v = &value{kind: messageValue, fields: []member{{name, v}}}
		}
		out.put(names[0], v)
	}
	return out
}

// put adds a member: what can be said several times is collected, else the last holds.
func (v *value) put(key string, x *value) {
	at := slices.IndexFunc(v.fields, func(m member) bool { return m.key == key })
	switch {
	case at < 0:
		v.fields = append(v.fields, member{key, x})
	case key == "tags" || key == "params" || key == "rules":
		v.fields[at].value = &value{kind: listValue, list: slices.Concat(v.fields[at].value.items(), x.items())}
	default:
		v.fields[at].value = x
	}
}

func (v *value) items() []*value {
	if v.kind == listValue {
		return v.list
	}
	return []*value{v}
}

// tags are those of a meta option, each once.
func (v *value) tags() []string {
	var out []string
	for _, m := range v.fields {
		if m.key != "tags" {
			continue
		}
		for _, t := range m.value.items() {
			if !slices.Contains(out, t.text) {
				out = append(out, t.text)
			}
		}
	}
	return out
}

func (v *value) setTags(tags []string) {
	list := &value{kind: listValue}
	for _, t := range tags {
		list.list = append(list.list, text(t))
	}
	is := func(m member) bool { return m.key == "tags" }
	at := slices.IndexFunc(v.fields, is)
	switch {
	case len(tags) == 0:
		v.fields = slices.DeleteFunc(v.fields, is)
	case at >= 0:
		v.fields[at].value = list
	default:
		v.fields = append(v.fields, member{"tags", list})
	}
}

// withMeta replaces all that options say of one option by a single one, where the first was, or at the end.
func withMeta(options []option, meta string, v *value) []option {
	one := option{"(" + meta + ")", v}
	var out []option
	placed := len(v.fields) == 0
	for i := range options {
		if _, ok := isMeta(&options[i], meta); !ok {
			out = append(out, options[i])
		} else if !placed {
			out, placed = append(out, one), true
		}
	}
	if !placed {
		out = append(out, one)
	}
	return out
}
