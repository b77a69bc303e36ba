package schema

import (
	"crypto/md5" //nolint:gosec // the registry's identity, not a secret
	"encoding/binary"
	"maps"
	"slices"

	"github.com/google/uuid"
)

// Reference is a schema's mention of another one, by subject and version.
type Reference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// Metadata are tags and properties that go with a schema and are part of its identity.
type Metadata struct {
	Tags       map[string][]string `json:"tags,omitempty"`       // by path; a set of tags each
	Properties map[string]string   `json:"properties,omitempty"` //
	Sensitive  []string            `json:"sensitive,omitempty"`  // names of properties
}

// RuleSet are rules that clients run. The registry keeps and checks them.
type RuleSet struct {
	MigrationRules []Rule `json:"migrationRules,omitempty"`
	DomainRules    []Rule `json:"domainRules,omitempty"`
	EncodingRules  []Rule `json:"encodingRules,omitempty"`
	EnableAt       string `json:"enableAt,omitempty"`
}

// Rule is one rule of a RuleSet.
type Rule struct {
	Name      string            `json:"name,omitempty"`
	Doc       string            `json:"doc,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Mode      string            `json:"mode,omitempty"`
	Type      string            `json:"type,omitempty"`
	Tags      []string          `json:"tags,omitempty"`
	Params    map[string]string `json:"params,omitempty"`
	Expr      string            `json:"expr,omitempty"`
	OnSuccess string            `json:"onSuccess,omitempty"`
	OnFailure string            `json:"onFailure,omitempty"`
	Disabled  bool              `json:"disabled,omitempty"`
}

// Entity names what an inline tag sits on.
type Entity struct {
	Path string `json:"entityPath"`
	Type string `json:"entityType"` // sr_record or sr_field
}

// Tagged is an entity and its inline tags.
type Tagged struct {
	Entity Entity   `json:"schemaEntity"`
	Tags   []string `json:"tags"`
}

// Content is all of a schema that makes it what it is: two with the same ID are the same schema.
type Content struct {
	Type       Type
	Text       string // canonical
	References []Reference
	Metadata   *Metadata
	RuleSet    *RuleSet
}

// ID is the hash by which schemas are told apart. The type does not count.
//
//	text
//	each reference: name subject version(4 bytes, big-endian)
//	metadata, if there is any: 01 each path and its tags, each property and its value, sensitive names; all sorted
//	rules, if there are any: 01 each rule's parts, enableAt
//
// Nothing separates the parts.
func (c *Content) ID() [16]byte {
	b := []byte(c.Text)
	for _, r := range c.References {
		b = append(append(b, r.Name...), r.Subject...)
		b = binary.BigEndian.AppendUint32(b, uint32(r.Version))
	}
	if m := c.Metadata; m != nil {
		b = m.append(append(b, 1))
	}
	if rs := c.RuleSet; rs != nil {
		b = append(b, 1)
		for _, rules := range [][]Rule{rs.MigrationRules, rs.DomainRules, rs.EncodingRules} {
			for i := range rules {
				b = rules[i].append(b)
			}
		}
		b = append(b, rs.EnableAt...)
	}
	return md5.Sum(b) //nolint:gosec // as above
}

// GUID prints an ID as clients know it.
func GUID(id [16]byte) string { return uuid.UUID(id).String() }

func (m *Metadata) append(b []byte) []byte {
	for _, path := range slices.Sorted(maps.Keys(m.Tags)) {
		b = appendSet(append(b, path...), m.Tags[path])
	}
	b = appendMap(b, m.Properties)
	return appendSet(b, m.Sensitive)
}

func (r *Rule) append(b []byte) []byte {
	kind, mode := r.Kind, r.Mode
	if kind == "" {
		kind = "TRANSFORM"
	}
	if mode == "" {
		mode = "WRITEREAD"
	}
	for _, s := range []string{r.Name, r.Doc, kind, mode, r.Type} {
		b = append(b, s...)
	}
	b = appendMap(appendSet(b, r.Tags), r.Params)
	for _, s := range []string{r.Expr, r.OnSuccess, r.OnFailure} {
		b = append(b, s...)
	}
	if r.Disabled {
		b = append(b, 1)
	}
	return b
}

// appendSet appends values sorted, each once.
func appendSet(b []byte, values []string) []byte {
	for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
		b = append(b, v...)
	}
	return b
}

func appendMap(b []byte, m map[string]string) []byte {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = append(append(b, k...), m[k]...)
	}
	return b
}
