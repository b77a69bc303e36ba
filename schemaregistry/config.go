package schemaregistry

import (
	"context"
	"slices"
	"strings"

	"millrace/schemaregistry/schema"
)

// The compatibility levels.
const (
	None               = "NONE"
	Backward           = "BACKWARD"
	BackwardTransitive = "BACKWARD_TRANSITIVE"
	Forward            = "FORWARD"
	ForwardTransitive  = "FORWARD_TRANSITIVE"
	Full               = "FULL"
	FullTransitive     = "FULL_TRANSITIVE"
)

// The compatibility policies.
const (
	Strict  = "STRICT"
	Lenient = "LENIENT" // members that JSON objects have beyond their schema do no harm
	Logical = "LOGICAL" // as STRICT
)

func validLevel(level string) bool {
	switch level {
	case None, Backward, BackwardTransitive, Forward, ForwardTransitive, Full, FullTransitive:
		return true
	}
	return false
}

// scopes are where the config or mode of a subject is looked for, in order.
func (s Subject) scopes() []Subject {
	out := []Subject{s}
	for _, next := range []Subject{{Context: s.Context}, {Context: globalContext}} {
		if !slices.Contains(out, next) {
			out = append(out, next)
		}
	}
	return out
}

// configInScope is the config in force for a subject: the nearest one, with the members that it inherits where it does
// not set them. The level is always set.
func (s *state) configInScope(of Subject, builtIn string) SubjectConfig {
	var out SubjectConfig
	found := false
	for _, scope := range of.scopes() {
		c := s.configs[scope]
		switch {
		case c == nil:
		case !found:
			out, found = *c, true
		default:
			inherit(&out.CompatibilityLevel, c.CompatibilityLevel)
			inherit(&out.CompatibilityPolicy, c.CompatibilityPolicy)
			inherit(&out.CompatibilityGroup, c.CompatibilityGroup)
			inherit(&out.Normalize, c.Normalize)
			inherit(&out.ValidateFields, c.ValidateFields)
			inherit(&out.ValidateNewSchemas, c.ValidateNewSchemas)
			inherit(&out.ValidateRules, c.ValidateRules)
		}
	}
	inherit(&out.CompatibilityLevel, &builtIn)
	return out
}

func inherit[T any](own **T, from *T) {
	if *own == nil {
		*own = from
	}
}

// Config is the config of a subject: its own, or with inScope what is in force. The global one is never missing.
func (r *Registry) Config(ctx context.Context, subject string, inScope bool) (out SubjectConfig, err error) {
	name := ParseSubject(subject)
	if err := r.Fresh(ctx); err != nil {
		return out, err
	}
	r.read(func(s *state) {
		own := s.configs[name]
		switch {
		case inScope:
			out = s.configInScope(name, r.cfg.Compatibility)
		case own != nil:
			out = *own
		case name == Subject{Context: DefaultContext}:
			out.CompatibilityLevel = &r.cfg.Compatibility
		default:
			err = refuse(CodeConfigNotFound, "%s has no config of its own", describe(name))
		}
	})
	return out, err
}

// describe names a subject, or the context or all that it stands for, in a message.
func describe(s Subject) string {
	switch {
	case s.Context == globalContext:
		return "the registry"
	case s.Name != "":
		return "subject " + quoted(s.String())
	case s.Context == DefaultContext:
		return "the default context"
	}
	return "context " + s.Context
}

// SetConfig changes a config, and tells it as it is then.
func (r *Registry) SetConfig(ctx context.Context, subject string, u ConfigUpdate) (out SubjectConfig, err error) {
	name, err := checkScope(subject)
	if err != nil {
		return out, err
	}
	if err := u.check(); err != nil {
		return out, err
	}
	err = r.write(ctx, func(context.Context) (p proposal, err error) {
		r.read(func(s *state) {
			out = SubjectConfig{}
			if own := s.configs[name]; own != nil {
				out = *own
			}
			err = s.checkWritable(name)
		})
		if err != nil {
			return p, err
		}
		u.apply(&out)
		value := configValue{Subject: name.String(), SubjectConfig: out}
		return proposal{records: []outRecord{{key{kind: kindConfig, subject: name}, value}}}, nil
	})
	return out, err
}

// check refuses values that nothing knows, and writes the others as they are stored.
func (u *ConfigUpdate) check() error {
	if v := u.Compatibility.Value; v != nil {
		level := strings.ToUpper(*v)
		if u.Compatibility.Value = &level; !validLevel(level) {
			return refuse(CodeInvalidLevel, "%s is no compatibility level: NONE, BACKWARD, FORWARD and FULL are, the last "+
				"three also with _TRANSITIVE", quoted(*v))
		}
	}
	if v := u.CompatibilityPolicy.Value; v != nil {
		policy := strings.ToUpper(*v)
		if u.CompatibilityPolicy.Value = &policy; policy != Strict && policy != Lenient && policy != Logical {
			return refuse(CodeInvalidLevel, "%s is no compatibility policy: STRICT, LENIENT and LOGICAL are", quoted(*v))
		}
	}
	if err := checkRules(u.DefaultRuleSet.Value); err != nil {
		return err
	}
	return checkRules(u.OverrideRuleSet.Value)
}

func (u *ConfigUpdate) apply(to *SubjectConfig) {
	change(&to.CompatibilityLevel, u.Compatibility)
	change(&to.CompatibilityPolicy, u.CompatibilityPolicy)
	change(&to.CompatibilityGroup, u.CompatibilityGroup)
	change(&to.Normalize, u.Normalize)
	change(&to.ValidateFields, u.ValidateFields)
	change(&to.ValidateNewSchemas, u.ValidateNewSchemas)
	change(&to.ValidateRules, u.ValidateRules)
	change(&to.Alias, u.Alias)
	change(&to.AliasForDeks, u.AliasForDeks)
	change(&to.DefaultMetadata, u.DefaultMetadata)
	change(&to.OverrideMetadata, u.OverrideMetadata)
	change(&to.DefaultRuleSet, u.DefaultRuleSet)
	change(&to.OverrideRuleSet, u.OverrideRuleSet)
}

func change[T any](member **T, c Change[T]) {
	if c.Set {
		*member = c.Value
	}
}

// DeleteConfig removes a config, and tells what it was.
func (r *Registry) DeleteConfig(ctx context.Context, subject string) (out SubjectConfig, err error) {
	name := ParseSubject(subject)
	err = r.write(ctx, func(context.Context) (p proposal, err error) {
		r.read(func(s *state) {
			own := s.configs[name]
			if err = s.checkWritable(name); err != nil {
				return
			}
			switch {
			case own != nil:
				out = *own
				p.records = []outRecord{{key: key{kind: kindConfig, subject: name}}}
			case name == Subject{Context: DefaultContext}:
				out = SubjectConfig{CompatibilityLevel: &r.cfg.Compatibility}
			default:
				err = refuse(CodeSubjectNotFound, "%s has no config of its own", describe(name))
			}
		})
		return p, err
	})
	return out, err
}

// Alias is the subject that requests for a subject go to: the subject itself where its config names no other.
func (r *Registry) Alias(ctx context.Context, subject string) (string, error) {
	if err := r.Fresh(ctx); err != nil {
		return "", err
	}
	name := ParseSubject(subject)
	to := subject
	r.read(func(s *state) {
		if c := s.configs[name]; c != nil && name.Name != "" && c.Alias != nil && *c.Alias != "" {
			to = ParseSubject(*c.Alias).in(name.Context).String()
		}
	})
	return to, nil
}

// fillMetadata is what a new version's metadata are: its own, else those of the version before it, with the defaults
// of the config below and its overrides above.
func fillMetadata(own, before *schema.Metadata, c *SubjectConfig) *schema.Metadata {
	if own == nil {
		own = before
	}
	return mergeMetadata(mergeMetadata(c.DefaultMetadata, own), c.OverrideMetadata)
}

func mergeMetadata(below, above *schema.Metadata) *schema.Metadata {
	if below == nil || above == nil {
		if above == nil {
			return below
		}
		return above
	}
	out := &schema.Metadata{
		Tags: mergeMaps(below.Tags, above.Tags), Properties: mergeMaps(below.Properties, above.Properties),
		Sensitive: slices.Concat(below.Sensitive, above.Sensitive),
	}
	slices.Sort(out.Sensitive)
	out.Sensitive = slices.Compact(out.Sensitive)
	return out
}

func mergeMaps[V any](below, above map[string]V) map[string]V {
	if len(below) == 0 {
		return above
	}
	out := make(map[string]V, len(below)+len(above))
	for k, v := range below {
		out[k] = v
	}
	for k, v := range above {
		out[k] = v
	}
	return out
}

// fillRules does for rules what fillMetadata does.
func fillRules(own, before *schema.RuleSet, c *SubjectConfig) *schema.RuleSet {
	if own == nil {
		own = before
	}
	return mergeRules(mergeRules(c.DefaultRuleSet, own), c.OverrideRuleSet)
}

func mergeRules(below, above *schema.RuleSet) *schema.RuleSet {
	if below == nil || above == nil {
		if above == nil {
			return below
		}
		return above
	}
	out := &schema.RuleSet{
		MigrationRules: mergeByName(below.MigrationRules, above.MigrationRules),
		DomainRules:    mergeByName(below.DomainRules, above.DomainRules),
		EncodingRules:  mergeByName(below.EncodingRules, above.EncodingRules),
		EnableAt:       above.EnableAt,
	}
	if out.EnableAt == "" {
		out.EnableAt = below.EnableAt
	}
	return out
}

// mergeByName keeps the rules below that none above replaces, in order, and then those above.
func mergeByName(below, above []schema.Rule) []schema.Rule {
	var out []schema.Rule
	for _, b := range below {
		if !slices.ContainsFunc(above, func(a schema.Rule) bool { return a.Name == b.Name }) {
			out = append(out, b)
		}
	}
	return append(out, above...)
}
