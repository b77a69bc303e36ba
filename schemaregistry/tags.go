package schemaregistry

import (
	"context"
	"slices"

	"millrace/schemaregistry/schema"
)

// ModifyTags makes a new version from one with other tags, metadata or rules.
func (r *Registry) ModifyTags(ctx context.Context, subject, version string, q TagsRequest) (Version, error) {
	name, err := checkSubject(subject)
	if err != nil {
		return Version{}, err
	}
	number, err := parseVersion(version)
	if err != nil {
		return Version{}, err
	}
	if q.RuleSet != nil && (q.RulesToMerge != nil || len(q.RulesToRemove) > 0) {
		return Version{}, refuse(CodeInvalidRuleSet, "a rule set is given in place of the old one, so no rules can be "+
			"merged or removed")
	}
	for _, rules := range []*schema.RuleSet{q.RuleSet, q.RulesToMerge} {
		if err := checkRules(rules); err != nil {
			return Version{}, err
		}
	}
	if err := r.Fresh(ctx); err != nil {
		return Version{}, err
	}
	g := newRegistration(r, name, RegisterRequest{TagsAdd: q.TagsToAdd, TagsRemove: q.TagsToRemove})
	if q.NewVersion != nil {
		g.q.Version = *q.NewVersion
	}
	return g.carryOut(ctx, func(ctx context.Context, w *view) error {
		var content schema.Content
		var err error
		r.read(func(s *state) {
			from, e := s.version(name, number, false)
			if err = e; err == nil {
				content = from.content.Content
			}
		})
		if err != nil {
			return err
		}
		if g.q.Content, err = q.change(content); err != nil {
			return err
		}
		return g.decide(ctx, w)
	})
}

// change makes the content of the new version, but for its inline tags.
func (q *TagsRequest) change(c schema.Content) (schema.Content, error) {
	if q.Metadata != nil {
		c.Metadata = q.Metadata
	}
	if q.RuleSet != nil {
		c.RuleSet = q.RuleSet
	}
	if q.RulesToMerge == nil && len(q.RulesToRemove) == 0 {
		return c, nil
	}
	merged := mergeRules(c.RuleSet, q.RulesToMerge)
	if merged == nil {
		return c, nil
	}
	out := *merged
	for _, rules := range []*[]schema.Rule{&out.MigrationRules, &out.DomainRules, &out.EncodingRules} {
		*rules = slices.DeleteFunc(slices.Clone(*rules), func(rule schema.Rule) bool {
			return slices.Contains(q.RulesToRemove, rule.Name)
		})
	}
	c.RuleSet = &out
	return c, checkRules(c.RuleSet)
}
