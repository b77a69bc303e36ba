package avro

import (
	"slices"

	"millrace/schemaregistry/schema"
)

// Names of the registry's own.
const (
	tagsProperty = "confluent:tags"
	recordEntity = "sr_record"
	fieldEntity  = "sr_field"
)

// Entities implements schema.Schema.
func (s *Schema) Entities() []schema.Tagged {
	var list []schema.Tagged
	s.eachRecord(func(n *node) {
		if tags := tagsOf(n.props); len(tags) > 0 {
			list = append(list, schema.Tagged{Entity: schema.Entity{Path: n.name.full(), Type: recordEntity}, Tags: tags})
		}
		for i := range n.fields {
			if tags := tagsOf(n.fields[i].props); len(tags) > 0 {
				path := n.name.full() + "." + n.fields[i].name
				list = append(list, schema.Tagged{Entity: schema.Entity{Path: path, Type: fieldEntity}, Tags: tags})
			}
		}
	})
	return list
}

// eachRecord visits the records that the text itself defines, in its order.
func (s *Schema) eachRecord(f func(*node)) {
	for _, n := range s.nodes[s.own:] {
		if n.kind == kindRecord {
			f(n)
		}
	}
}

func tagsOf(props []member) []string {
	v := prop(props, tagsProperty)
	if v == nil {
		return nil
	}
	var tags []string
	for _, item := range v.items {
		if item.kind == jsonString && !slices.Contains(tags, item.text) {
			tags = append(tags, item.text)
		}
	}
	return tags
}

// WithTags implements schema.Schema. Tags are removed before others are added. An entity that is not in the text is
// an error that wraps schema.ErrInvalid.
func (s *Schema) WithTags(add, remove []schema.Tagged) (string, error) {
	fresh, err := s.format.parse(s.text, s.deps, schema.ParseOptions{Normalize: s.normal})
	if err != nil {
		return "", err
	}
	entities := map[schema.Entity]*[]member{}
	fresh.eachRecord(func(n *node) {
		entities[schema.Entity{Path: n.name.full(), Type: recordEntity}] = &n.props
		for i := range n.fields {
			path := n.name.full() + "." + n.fields[i].name
			entities[schema.Entity{Path: path, Type: fieldEntity}] = &n.fields[i].props
		}
	})
	for _, t := range remove {
		if err := retag(entities, t, func(tags []string) []string {
			return slices.DeleteFunc(tags, func(tag string) bool { return slices.Contains(t.Tags, tag) })
		}); err != nil {
			return "", err
		}
	}
	for _, t := range add {
		if err := retag(entities, t, func(tags []string) []string {
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
	err = fresh.print(s.normal)
	return fresh.text, err
}

func retag(entities map[schema.Entity]*[]member, t schema.Tagged, change func([]string) []string) error {
	props := entities[t.Entity]
	if props == nil {
		what := "record"
		if t.Entity.Type == fieldEntity {
			what = "field"
		}
		if t.Entity.Type != fieldEntity && t.Entity.Type != recordEntity {
			return schema.Invalid("tags go on %s or %s, not on %q", recordEntity, fieldEntity, t.Entity.Type)
		}
		return schema.Invalid("the schema itself defines no %s %q", what, t.Entity.Path)
	}
	tags := change(tagsOf(*props))
	i := slices.IndexFunc(*props, func(m member) bool { return m.name == tagsProperty })
	if len(tags) == 0 {
		if i >= 0 {
			*props = slices.Delete(*props, i, i+1)
		}
		return nil
	}
	v := value{kind: jsonArray}
	for _, tag := range tags {
		v.items = append(v.items, value{kind: jsonString, text: tag})
	}
	if i < 0 {
		*props = append(*props, member{tagsProperty, v})
	} else {
		(*props)[i].value = v
	}
	return nil
}
